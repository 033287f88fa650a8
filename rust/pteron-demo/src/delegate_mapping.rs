//! `BackendWithDelegateMappingDemo`, run half: reports an event for each step of its blob, under the id that the exporter
//! gave it. It computes nothing, since the blob lists the steps without weights and wiring: its output holds zeros.
//!
//! ```text
//! blob = count "#" step*
//! step = name "," id ","
//! ```

use crate::copy_tensor::copy_tensor;
use pteron_core::error::printable;
use pteron_core::{
    AlignedBuffer, ArgView, Backend, CompileSpec, Delegate, DelegateEvent, Error, EventId, ExecuteContext,
    InitContext, OutputView, OwnedTensor, Result, TensorMeta,
};
use std::time::Instant;

/// The backend.
pub struct DelegateMappingBackend;

impl Backend for DelegateMappingBackend {
    fn name(&self) -> &str {
        "BackendWithDelegateMappingDemo"
    }

    fn init(
        &self,
        _ctx: &InitContext<'_>,
        processed: &[u8],
        _specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        Ok(Box::new(DelegateMappingDelegate { steps: read_steps(processed)?, began: Instant::now() }))
    }
}

/// One step: its name, and its id in the map from steps to debug handles.
#[derive(Debug, PartialEq, Eq)]
struct MappedStep {
    name: String,
    id: i64,
}

fn read_steps(blob: &[u8]) -> Result<Vec<MappedStep>> {
    let text = std::str::from_utf8(blob).map_err(|_| damaged("it is not UTF-8"))?;
    let (count, list) = text.split_once('#').ok_or_else(|| damaged("it has no count"))?;
    let mut parts = list.split_terminator(',');
    let mut steps = Vec::new();
    while let Some(name) = parts.next() {
        let id = parts.next().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| damaged("a step has no number").got(printable(name)))?;
        steps.push(MappedStep { name: name.to_string(), id });
    }
    if count.parse() != Ok(steps.len()) {
        return Err(damaged("it has another number of steps than it says")
            .expected(printable(count))
            .got(steps.len().to_string()));
    }
    Ok(steps)
}

#[cold]
fn damaged(what: &str) -> Error {
    Error::delegate(format!("the list of steps cannot be read: {what}"))
}

struct DelegateMappingDelegate {
    steps: Vec<MappedStep>,
    began: Instant,
}

impl DelegateMappingDelegate {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Delegate for DelegateMappingDelegate {
    fn num_outputs(&self) -> usize {
        1
    }

    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        _inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        for output in outputs {
            let meta = TensorMeta::contiguous(output.dtype(), output.shape())?;
            let data = AlignedBuffer::zeroed(meta.nbytes())?;
            copy_tensor(OwnedTensor { meta, data }.view()?, output.view_mut())?;
        }
        for step in &self.steps {
            let start_ns = self.now();
            if let Some(events) = &mut ctx.events {
                let (id, end_ns) = (EventId::Int(step.id), self.now());
                events(DelegateEvent { id, start_ns, end_ns, metadata: step.name.as_bytes() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        let steps = read_steps(b"2#conv_relu_op,0,sin_decomp_from_tan,7,").expect("a list");
        assert_eq!(
            steps.iter().map(|s| (s.name.as_str(), s.id)).collect::<Vec<_>>(),
            [("conv_relu_op", 0), ("sin_decomp_from_tan", 7)]
        );
        assert_eq!(read_steps(b"0#").expect("no steps"), []);
    }

    #[test]
    fn damaged_lists_are_refused() {
        for blob in [&b""[..], b"#", b"1#", b"x#a,1,", b"2#a,1,", b"1#a", b"1#a,b,", b"1#a,1,b", b"1#\xff,1,"]
        {
            let error = read_steps(blob).expect_err("damaged");
            assert!(error.to_string().contains("the list of steps cannot be read"), "{error}");
        }
    }
}
