//! `ExecutorBackend`, run half: the blob is a whole program, run as a program inside the program.

use crate::copy_tensor::copy_tensor;
use pteron_core::{
    AlignedBuffer, ArgView, Backend, CompileSpec, Delegate, DelegateState, Error, ErrorKind, ExecuteContext,
    InitContext, OutputView, OwnedTensor, Result, TensorView,
};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, Method, MethodOptions, OutputValue, Program, ProgramSource, Runtime,
    TensorInput,
};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// The method of the nested program that runs.
const METHOD: &str = "forward";

/// The backend.
pub struct ExecutorBackend {
    // Weak: the runtime owns its backends.
    runtime: Weak<Runtime>,
}

impl ExecutorBackend {
    /// A backend whose nested programs take kernels and backends from `runtime`.
    pub fn new(runtime: &Arc<Runtime>) -> Self {
        ExecutorBackend { runtime: Arc::downgrade(runtime) }
    }
}

impl Backend for ExecutorBackend {
    fn name(&self) -> &str {
        "ExecutorBackend"
    }

    fn init(
        &self,
        _ctx: &InitContext<'_>,
        processed: &[u8],
        _specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        let runtime = self.runtime.upgrade().ok_or_else(|| Error::delegate("the runtime is gone"))?;
        let source = ProgramSource::Bytes(Arc::new(AlignedBuffer::copy_of(processed)?));
        let program = Program::load(&runtime, source, Limits::default()).map_err(nested)?;
        let method = program.load_method(METHOD, MethodOptions::default()).map_err(nested)?;
        Ok(Box::new(ExecutorDelegate { method }))
    }
}

/// An error of the nested program as one of the delegate; what the nested error says stays readable.
fn nested(inner: Error) -> Error {
    if matches!(inner.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded | ErrorKind::LimitExceeded) {
        return inner;
    }
    let mut out = Error::delegate("the nested program failed").got(inner.to_string());
    if let Some(line) = &inner.detail().source_line {
        out = out.source_line(line.clone());
    }
    out.cause(inner)
}

struct ExecutorDelegate {
    method: Method,
}

impl Delegate for ExecutorDelegate {
    fn num_outputs(&self) -> usize {
        self.method.outputs().len()
    }

    fn state(&mut self) -> Option<&mut dyn DelegateState> {
        Some(self)
    }

    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        let strides: SmallVec<[SmallVec<[isize; 4]>; 4]> = inputs.iter().map(strides_of).collect();
        let values: SmallVec<[InputValue<'_>; 4]> = inputs
            .iter()
            .zip(&strides)
            .map(|(input, strides)| {
                Ok(match input {
                    ArgView::Tensor(t) => InputValue::Tensor(TensorInput::from_view(*t, Some(strides))?),
                    ArgView::Int(v) => InputValue::Int(*v),
                    ArgView::Double(v) => InputValue::Double(*v),
                    ArgView::Bool(v) => InputValue::Bool(*v),
                    ArgView::String(s) => InputValue::String(s),
                    ArgView::None => InputValue::None,
                })
            })
            .collect::<Result<_>>()?;
        // What stops the outer run stops the inner one.
        let mut poll = || match (ctx.is_cancelled)() {
            true => Err(Error::new(ErrorKind::Cancelled, "the run was cancelled")),
            false => ctx.poll.map_or(Ok(()), |poll| poll()),
        };
        let options = ExecuteOptions { poll: Some(&mut poll), ..ExecuteOptions::default() };
        let results = self.method.execute(&values, options).map_err(nested)?;
        for (result, output) in results.iter().zip(outputs) {
            let OutputValue::Tensor(tensor) = result else {
                return Err(Error::delegate("an output of the nested program is no tensor"));
            };
            output.resize(tensor.meta.shape())?;
            copy_tensor(tensor.view()?, output.view_mut())?;
        }
        Ok(())
    }
}

impl DelegateState for ExecutorDelegate {
    fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        self.method.get_state().map_err(nested)
    }

    fn set_state(&mut self, state: &[(&str, TensorView<'_>)]) -> Result<()> {
        let state = state
            .iter()
            .map(|(name, view)| Ok((*name, InputValue::Tensor(TensorInput::from_view(*view, None)?))));
        self.method.set_state(&state.collect::<Result<Vec<_>>>()?).map_err(nested)
    }

    fn reset_state(&mut self) -> Result<()> {
        self.method.reset_state().map_err(nested)
    }
}

/// Strides of a tensor argument, signed.
fn strides_of(input: &ArgView<'_>) -> SmallVec<[isize; 4]> {
    match input {
        ArgView::Tensor(t) => t.strides().iter().map(|s| isize::try_from(*s).unwrap_or(isize::MAX)).collect(),
        _ => SmallVec::new(),
    }
}
