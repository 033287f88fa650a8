//! Times of the steps of runs: a tracer that reads the clock, keeps what it reads and does nothing else.

use super::tracer::{StepInfo, Tracer};
use pteron_core::{DelegateEvent, Error, EventId};
use pteron_cpu::executor::{WorkerSpan, WorkerTimes};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When a step ran, since the origin of its [`StepTimes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// Index of the step in the method's plan.
    pub step: usize,
    /// Its beginning.
    pub begin: Duration,
    /// Its end, well or badly.
    pub end: Duration,
}

/// What a delegate calls a part of itself ([`EventId`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartId {
    /// A number.
    Int(i64),
    /// A name.
    Name(String),
}

/// Something that took time inside a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartTime {
    /// Index of the step that called the delegate.
    pub step: usize,
    /// Name of the backend.
    pub backend: String,
    /// The part.
    pub id: PartId,
    /// Its beginning on the delegate's clock, nanoseconds.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// Number of the step's time in [`StepTimes::steps`].
    pub interval: usize,
}

/// When a thread of the pool helped with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperTime {
    /// Index of the step.
    pub step: usize,
    /// The thread, 1 and more.
    pub worker: usize,
    /// Beginning of its first chunk of a phase.
    pub begin: Duration,
    /// End of its last.
    pub end: Duration,
}

/// Watches any number of calls, one after the other. A step takes two readings of the clock, and its time holds one of
/// them ([`StepTimes::clock_cost`]).
#[derive(Debug, Clone)]
pub struct StepTimes {
    origin: Instant,
    open: Duration,
    steps: Vec<StepTime>,
    parts: Vec<PartTime>,
    workers: Option<Arc<WorkerTimes>>,
    helpers: Vec<HelperTime>,
}

impl StepTimes {
    /// No times yet; they count from `origin`.
    pub fn since(origin: Instant) -> StepTimes {
        let (steps, parts, helpers) = (Vec::new(), Vec::new(), Vec::new());
        StepTimes { origin, open: Duration::ZERO, steps, parts, workers: None, helpers }
    }

    /// Steps in the order in which they ended.
    pub fn steps(&self) -> &[StepTime] {
        &self.steps
    }

    /// What delegates have reported.
    pub fn parts(&self) -> &[PartTime] {
        &self.parts
    }

    /// When other threads than the caller's worked.
    pub fn helpers(&self) -> &[HelperTime] {
        &self.helpers
    }

    /// Adds what another one has seen since the same origin.
    pub fn append(&mut self, other: StepTimes) {
        let before = self.steps.len();
        self.steps.extend(other.steps);
        self.helpers.extend(other.helpers);
        self.parts.extend(
            other.parts.into_iter().map(|p| PartTime { interval: p.interval.saturating_add(before), ..p }),
        );
    }

    /// What the time of every step has too much: the shortest time between two readings of the clock.
    pub fn clock_cost() -> Duration {
        let readings = (0..1000).map(|_| Instant::now().elapsed());
        readings.min().unwrap_or_default()
    }
}

impl Tracer for StepTimes {
    fn step_begin(&mut self, _: &StepInfo<'_>) {
        // Room is made before the clock is read.
        self.steps.reserve(1);
        self.open = self.origin.elapsed();
    }

    fn step_end(&mut self, step: &StepInfo<'_>, _: Option<&Error>) {
        let end = self.origin.elapsed();
        self.steps.push(StepTime { step: step.step, begin: self.open, end });
        let spans = self.workers.as_ref().map(|workers| workers.take()).unwrap_or_default();
        self.helpers.extend(spans.into_iter().map(|WorkerSpan { worker, begin, end }| HelperTime {
            step: step.step,
            worker,
            begin,
            end,
        }));
    }

    fn worker_times(&mut self, threads: usize) -> Option<Arc<WorkerTimes>> {
        self.workers = (threads > 1).then(|| Arc::new(WorkerTimes::since(self.origin, threads)));
        self.workers.clone()
    }

    fn delegate_event(&mut self, step: &StepInfo<'_>, backend: &str, event: &DelegateEvent<'_>) {
        let id = match event.id {
            EventId::Int(id) => PartId::Int(id),
            EventId::Name(name) => PartId::Name(name.to_string()),
        };
        self.parts.push(PartTime {
            step: step.step,
            backend: backend.to_string(),
            id,
            start_ns: event.start_ns,
            end_ns: event.end_ns,
            interval: self.steps.len(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(step: usize) -> StepInfo<'static> {
        StepInfo { method: "forward", step, name: "k", covers: &[], handles: &[], parts: &[] }
    }

    #[test]
    fn steps_and_parts_of_several_calls() {
        let origin = Instant::now();
        let (mut all, mut call) = (StepTimes::since(origin), StepTimes::since(origin));
        all.step_begin(&info(3));
        all.step_end(&info(3), None);
        call.step_begin(&info(0));
        let event = DelegateEvent { id: EventId::Name("a"), start_ns: 1, end_ns: 2, metadata: &[] };
        call.delegate_event(&info(0), "b", &event);
        call.step_end(&info(0), None);
        all.append(call);
        assert_eq!(all.steps().iter().map(|s| s.step).collect::<Vec<_>>(), [3, 0]);
        assert!(all.steps().iter().all(|s| s.begin <= s.end && s.end <= origin.elapsed()));
        let [part] = all.parts() else { panic!("{:?}", all.parts()) };
        assert_eq!((part.interval, part.id.clone()), (1, PartId::Name("a".into())));
    }
}
