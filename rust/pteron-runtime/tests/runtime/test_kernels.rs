//! Kernels that fail, panic, wait, or count.

use pteron_core::{
    Args, BindArgs, Bound, Error, Grid, Kernel, PrepareContext, Prepared, Result, WorkerScratch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a test kernel does when it runs.
#[derive(Clone)]
pub enum Behaviour {
    Fail,
    Panic,
    /// Many chunks that each take about a millisecond.
    Wait,
    /// Signals that it runs and waits for the permission to end.
    Meet(Arc<AtomicU32>),
}

pub struct TestKernel {
    pub schema: &'static str,
    pub behaviour: Behaviour,
}

impl TestKernel {
    pub fn of(schema: &'static str, behaviour: Behaviour) -> Arc<dyn Kernel> {
        Arc::new(TestKernel { schema, behaviour })
    }
}

impl Kernel for TestKernel {
    fn schema(&self) -> &str {
        self.schema
    }
    fn variant(&self) -> &str {
        "test"
    }
    fn prepare(&self, _: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
        Ok(Some(Box::new(Ready(self.behaviour.clone()))))
    }
}

struct Ready(Behaviour);

impl Prepared for Ready {
    fn name(&self) -> &str {
        "test"
    }
    fn bind(&self, args: &mut BindArgs<'_>, _: &mut Bound) -> Result<Grid> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(1, &shape)?;
        Ok(match self.0 {
            Behaviour::Wait => Grid::chunks(10_000, 1_000_000),
            _ => Grid::SINGLE,
        })
    }
    unsafe fn run(&self, _: &Bound, _: &Args<'_>, _: u32, _: u32, _: &mut WorkerScratch<'_>) -> Result<()> {
        match &self.0 {
            Behaviour::Fail => {
                Err(Error::kernel("this kernel always fails").expected("success").got("failure"))
            }
            Behaviour::Panic => panic!("this kernel always panics"),
            Behaviour::Wait => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                Ok(())
            }
            Behaviour::Meet(word) => {
                word.store(1, Ordering::SeqCst);
                let start = std::time::Instant::now();
                while word.load(Ordering::SeqCst) != 2 {
                    assert!(start.elapsed().as_secs() < 30);
                    std::thread::yield_now();
                }
                Ok(())
            }
        }
    }
}

/// The schema that the kernels above are used with.
pub const SCHEMA: &str = "test::act.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)";

/// A method that adds `x` to itself and then calls `test::act.out`.
pub fn acting_method() -> pteron_fuzz::builder::MethodBuilder {
    let mut m = pteron_fuzz::builder::MethodBuilder::new("forward");
    let (x, t, y) = (m.unplanned(&[2]), m.planned(&[2]), m.unplanned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(x, x, t);
    m.call("test::act.out", &[t, y, y]);
    m
}
