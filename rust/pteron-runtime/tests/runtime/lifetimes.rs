//! Runtime, program, methods, outputs, lent outputs, looks at them and states are made, used and dropped in random
//! order and on random threads: whatever is left stays usable, its bytes stay what they were, and in the end nothing is
//! left. Worth most under AddressSanitizer, ThreadSanitizer and valgrind (`make help`).

use proptest::prelude::*;
use pteron_core::{
    ArgView, Backend, CompileSpec, Delegate, ErrorKind, ExecuteContext, InitContext, OutputView, Result,
};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder};
use pteron_runtime::{
    CancelHandle, ExecuteOptions, Export, InputValue, LentTensor, Limits, Method, MethodOptions, OutputValue,
    OwnedTensor, Program, ProgramSource, Runtime, RuntimeOptions, TensorInput,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONSTANT: [f32; 2] = [10.0, 20.0];
const INITIAL: [f32; 2] = [1.0, 2.0];

type State = Vec<(String, OwnedTensor)>;

/// Delegates that live.
type Living = Arc<AtomicUsize>;

struct Doubler(Living);

struct DoublerDelegate(Living);

impl Backend for Doubler {
    fn name(&self) -> &str {
        "Doubler"
    }
    fn init(&self, _: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(DoublerDelegate(self.0.clone())))
    }
}

impl Delegate for DoublerDelegate {
    fn num_outputs(&self) -> usize {
        1
    }
    fn execute(
        &mut self,
        _: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        let x = inputs[0].tensor()?.as_slice::<f32>()?;
        for (y, x) in outputs[0].view_mut().into_slice::<f32>()?.iter_mut().zip(x) {
            *y = 2.0 * x;
        }
        Ok(())
    }
}

impl Drop for DoublerDelegate {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// `forward`: sum = x + c; twice = delegate(sum); gives twice (lent on request), twice + c, c.
/// `count`: total += x; gives total.
fn file() -> Vec<u8> {
    let mut p = ProgramBuilder::new();
    let (constant, blob, initial) = (p.constant(&CONSTANT), p.blob(b"blob"), p.mutable(&INITIAL));
    let mut m = MethodBuilder::new("forward");
    let (x, c) = (m.unplanned(&[2]), m.constant(&[2], constant));
    let (sum, twice, more) = (m.planned(&[2]), m.planned(&[2]), m.unplanned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[twice, more, c]);
    m.add(x, c, sum);
    m.delegate("Doubler", blob, &[sum, twice]);
    m.add(twice, c, more);
    let mut n = MethodBuilder::new("count");
    let (x, total) = (n.planned(&[2]), n.buffer("total", &[2], initial));
    n.inputs(&[x]);
    n.outputs(&[total]);
    n.add(total, x, total);
    p.with(m).with(n).bytes()
}

/// What `forward` gives for `x`.
fn expected(x: [f32; 2]) -> [[f32; 2]; 3] {
    let twice = [0, 1].map(|i| 2.0 * (x[i] + CONSTANT[i]));
    [twice, [0, 1].map(|i| twice[i] + CONSTANT[i]), CONSTANT]
}

struct Session {
    number: usize,
    method: Method,
    /// Calls that have begun.
    calls: usize,
    total: [f32; 2],
}

struct Lent {
    tensor: LentTensor,
    /// Whose it is: number of the session and of its call.
    of: (usize, usize),
    bytes: [f32; 2],
}

#[derive(Default)]
struct World {
    runtime: Option<Arc<Runtime>>,
    living: Living,
    programs: Vec<Arc<Program>>,
    sessions: Vec<Session>,
    /// Number of calls that each session ever began, those of dropped sessions too.
    calls: Vec<usize>,
    owned: Vec<(OutputValue, [f32; 2])>,
    lent: Vec<Lent>,
    looks: Vec<(Export, (usize, usize))>,
    states: Vec<(State, [f32; 2])>,
    cancels: Vec<CancelHandle>,
}

fn pick<T>(list: &mut [T], at: u8) -> Option<&mut T> {
    let at = usize::from(at) % list.len().max(1);
    list.get_mut(at)
}

/// Drops one of a list, on a thread of its own for odd numbers.
fn drop_one<T: Send>(list: &mut Vec<T>, at: u8) {
    if list.is_empty() {
        return;
    }
    let one = list.swap_remove(usize::from(at) % list.len());
    if at % 2 == 1 {
        std::thread::scope(|scope| {
            scope.spawn(move || drop(one));
        });
    }
}

fn elements(value: &OwnedTensor) -> &[f32] {
    value.elements::<f32>().unwrap()
}

impl World {
    fn new() -> Self {
        let world = World::default();
        let runtime = Runtime::new(RuntimeOptions { threads: Some(2), ..Default::default() }).unwrap();
        runtime.register_backend(Arc::new(Doubler(world.living.clone())), false).unwrap();
        World { runtime: Some(runtime), ..world }
    }

    fn step(&mut self, what: u8, at: u8, number: u8) {
        match what % 16 {
            0 => self.load_program(number),
            1..=3 => self.load_method(at, number),
            4 | 5 => self.call(at, number, false),
            6 | 7 => self.call(at, number, true),
            8 => self.look(at),
            9 => self.state(at),
            10 => self.cancel(at),
            11 => drop_one(&mut self.programs, at),
            12 => drop_one(&mut self.sessions, at),
            13 => drop_one(&mut self.owned, at),
            14 => drop_one(&mut self.lent, at),
            _ if number.is_multiple_of(8) => self.runtime = None,
            _ if number.is_multiple_of(2) => drop_one(&mut self.states, at),
            _ => drop_one(&mut self.looks, at),
        }
        self.check();
    }

    /// From bytes, from a mapped file and from one that is read; a file is removed at once.
    fn load_program(&mut self, number: u8) {
        let Some(runtime) = &self.runtime else { return };
        let (bytes, way) = (file(), number % 3);
        let program = if way == 0 {
            Program::load(runtime, ProgramSource::Bytes(Arc::new(bytes)), Limits::default())
        } else {
            static FILES: AtomicUsize = AtomicUsize::new(0);
            let file = FILES.fetch_add(1, Ordering::Relaxed);
            let name = format!("pteron-lifetimes-{}-{file}.pte", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, bytes).unwrap();
            let source = ProgramSource::File { path: path.clone(), is_mapped: way == 1 };
            let program = Program::load(runtime, source, Limits::default());
            std::fs::remove_file(&path).unwrap();
            program
        };
        self.programs.push(program.unwrap());
    }

    fn load_method(&mut self, at: u8, number: u8) {
        let Some(program) = pick(&mut self.programs, at) else { return };
        let name = if number.is_multiple_of(3) { "count" } else { "forward" };
        let method = program.load_method(name, MethodOptions::default()).unwrap();
        self.sessions.push(Session { number: self.calls.len(), method, calls: 0, total: INITIAL });
        self.calls.push(0);
    }

    fn call(&mut self, at: u8, number: u8, lend_outputs: bool) {
        let Some(session) = pick(&mut self.sessions, at) else { return };
        let x = [f32::from(number), -f32::from(at)];
        let input = [InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap())];
        let result = session.method.execute(&input, ExecuteOptions { lend_outputs, ..Default::default() });
        let last = (session.number, session.calls);
        if self.looks.iter().any(|(_, of)| *of == last) {
            assert_eq!(result.err().map(|e| e.kind()), Some(ErrorKind::OutputsInUse), "somebody looks at it");
            return;
        }
        session.calls += 1;
        self.calls[session.number] = session.calls;
        let of = (session.number, session.calls);
        let contents = if session.method.name() == "count" {
            session.total = [0, 1].map(|i| session.total[i] + x[i]);
            vec![session.total]
        } else {
            expected(x).to_vec()
        };
        for (output, bytes) in result.unwrap().into_iter().zip(contents) {
            match output {
                OutputValue::Lent(tensor) => self.lent.push(Lent { tensor, of, bytes }),
                output => self.owned.push((output, bytes)),
            }
        }
    }

    fn look(&mut self, at: u8) {
        let Some(lent) = pick(&mut self.lent, at) else { return };
        self.looks.extend(Export::of(lent.tensor.memory()).map(|export| (export, lent.of)));
    }

    fn state(&mut self, at: u8) {
        let Some(session) = pick(&mut self.sessions, at) else { return };
        if session.method.name() == "count" {
            self.states.push((session.method.get_state().unwrap(), session.total));
        }
    }

    fn cancel(&mut self, at: u8) {
        if let Some(session) = pick(&mut self.sessions, at) {
            self.cancels.push(session.method.cancel_handle());
        }
        if let Some(handle) = pick(&mut self.cancels, at) {
            handle.cancel();
        }
    }

    fn check(&self) {
        for (output, bytes) in &self.owned {
            assert_eq!(elements(output.tensor().unwrap()), bytes);
        }
        for (state, bytes) in &self.states {
            assert_eq!(elements(&state[0].1), bytes);
        }
        for Lent { tensor, of: (session, call), bytes } in &self.lent {
            match tensor.borrow() {
                Ok(look) => assert_eq!(look.view().as_slice::<f32>().unwrap(), bytes),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::OutputsInUse);
                    assert!(self.calls[*session] > *call, "taken back before the session's next call");
                }
            }
        }
    }

    /// Everything that is left goes, in an order that `number` chooses.
    fn end(mut self, number: u8) {
        let weak: Vec<_> = self.programs.iter().map(Arc::downgrade).collect();
        for turn in 0..6u8 {
            let turn = if number.is_multiple_of(2) { turn } else { 5 - turn };
            match (turn + number % 6) % 6 {
                0 => self.programs.clear(),
                1 => self.sessions.clear(),
                2 => self.lent.clear(),
                3 => self.looks.clear(),
                4 => self.owned.clear(),
                _ => self.runtime = None,
            }
            self.check();
        }
        let World { living, cancels, .. } = self;
        assert_eq!(living.load(Ordering::SeqCst), 0, "delegates outlive their sessions");
        assert!(weak.iter().all(|p| p.upgrade().is_none()), "a program outlives its owners");
        cancels.iter().for_each(CancelHandle::cancel);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dropped_in_any_order(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..80),
        last in any::<u8>(),
    ) {
        let mut world = World::new();
        world.load_program(last);
        world.load_method(0, last);
        world.load_method(0, last / 3);
        for (what, at, number) in steps {
            world.step(what, at, number);
        }
        world.end(last);
    }
}

/// One session in turns by many threads, dropped by whichever is last.
#[test]
fn the_last_thread_drops_the_session() {
    for _ in 0..20 {
        let mut world = World::new();
        world.load_program(0);
        let program = world.programs.remove(0);
        let method = Arc::new(program.load_method("forward", MethodOptions::default()).unwrap());
        drop(program);
        let threads: Vec<_> = (0..4u8)
            .map(|i| {
                let method = method.clone();
                std::thread::spawn(move || {
                    let x = [f32::from(i), 1.0];
                    for _ in 0..10 {
                        let input = [InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap())];
                        match method.execute(&input, ExecuteOptions::default()) {
                            Ok(out) => assert_eq!(elements(out[0].tensor().unwrap()), expected(x)[0]),
                            Err(e) => assert_eq!(e.kind(), ErrorKind::MethodBusy),
                        }
                    }
                })
            })
            .collect();
        assert_eq!(run_one_or_busy(&method), Some(expected([3.0, 4.0])[0].to_vec()));
        drop(method);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(world.living.load(Ordering::SeqCst), 0);
    }
}

/// What a call gives once no other one is running.
fn run_one_or_busy(method: &Method) -> Option<Vec<f32>> {
    for _ in 0..1_000_000 {
        let x = [3.0f32, 4.0];
        let input = [InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap())];
        match method.execute(&input, ExecuteOptions::default()) {
            Ok(out) => return Some(elements(out[0].tensor().unwrap()).to_vec()),
            Err(e) => assert_eq!(e.kind(), ErrorKind::MethodBusy),
        }
        std::thread::yield_now();
    }
    None
}
