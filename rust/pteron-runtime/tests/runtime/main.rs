//! Whole programs through the public surface: load, run, fail.

mod control_flow;
mod custom_kernels;
mod data_files;
mod delegates;
mod demo;
mod dynamic_shapes;
mod errors;
mod hostile_programs;
mod lifetimes;
mod limits;
mod memory;
mod odd_programs;
mod sharing;
mod state;
mod test_kernels;
mod xnnpack;

use pteron_core::Result;
use pteron_runtime::{
    CancelHandle, ExecuteOptions, InputValue, Method, MethodOptions, Outputs, Program, TensorInput,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Loads `forward`.
fn forward(program: &Arc<Program>) -> Method {
    program.load_method("forward", MethodOptions::default()).unwrap()
}

/// Runs with f32 tensors.
fn run(method: &Method, inputs: &[(&[usize], &[f32])]) -> Result<Outputs> {
    let values: Vec<InputValue<'_>> = inputs
        .iter()
        .map(|(shape, data)| InputValue::Tensor(TensorInput::from_slice(shape, data).unwrap()))
        .collect();
    method.execute(&values, ExecuteOptions::default())
}

/// The only output of a run with f32 tensors.
fn run_one(method: &Method, inputs: &[(&[usize], &[f32])]) -> Vec<f32> {
    let out = run(method, inputs).unwrap();
    out[0].tensor().unwrap().elements::<f32>().unwrap().to_vec()
}

/// Calls `work`, which only a cancel can end. Another thread cancels again and again: a cancel that comes
/// before the run has begun does nothing.
fn cancelled_until_done<T>(handle: CancelHandle, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
                handle.cancel();
            }
        });
        let result = work();
        is_done.store(true, Ordering::SeqCst);
        result
    })
}
