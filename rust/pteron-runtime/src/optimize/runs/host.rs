//! What the rules ask of the loader.

use super::super::Loader;
use crate::ir::{ConstantRef, FoldedConstant, MethodIr, Placement, TensorIr};
use crate::load::constants::dense_bytes;
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, Device, Dynamism, Result, TensorSpec, ValueId,
};
use pteron_cpu::graph::{self, Argument, Draft, Graph, Host, Literal, Node, NodeId, Tensor, TensorId};
use pteron_cpu::plan::PlanSpec;
use pteron_kernels::single_call::{CallArg, HostTensor};
use std::sync::Arc;

/// The loader's half of [`Host`].
pub(super) struct RunHost<'a> {
    pub ir: &'a mut MethodIr,
    pub folded: &'a mut Vec<FoldedConstant>,
    pub loader: &'a dyn Loader,
}

impl RunHost<'_> {
    fn tensor<'s>(&'s self, graph: &'s Graph, id: TensorId) -> ArgSpec<'s> {
        ArgSpec::Tensor(graph.tensor(id).spec.clone(), self.constant(graph, id))
    }

    fn argument<'s>(&'s self, graph: &'s Graph, argument: &'s Argument) -> ArgSpec<'s> {
        match argument {
            Argument::Tensor(id) => self.tensor(graph, *id),
            Argument::Tensors(list) => {
                ArgSpec::TensorList(list.iter().map(|t| t.map(|t| graph.tensor(t).spec.clone())).collect())
            }
            Argument::Literal(literal, _) => literal.arg_spec(),
            Argument::Value(v) => self.loader.arg_spec(self.ir, self.folded, ValueId(*v)),
        }
    }
}

impl RunHost<'_> {
    /// `argument` of a call that load makes; with the constants that it reads. Nothing where it is not known.
    fn call_arg<'s>(
        &'s self,
        graph: &Graph,
        argument: &Argument,
        sources: &mut Vec<ConstantView<'s>>,
    ) -> Result<Option<CallArg>> {
        let mut held = |id: &TensorId| -> Result<Option<HostTensor>> {
            let spec = TensorSpec { dynamism: Dynamism::Static, ..graph.tensor(*id).spec.clone() };
            let Some(view) = Host::constant(self, graph, *id) else { return Ok(None) };
            let dense = dense_bytes(&view, &spec.dim_order)?;
            sources.push(view);
            HostTensor::of_bytes(&spec, dense.as_slice()).map(Some)
        };
        Ok(match argument {
            Argument::Tensor(id) => held(id)?.map(CallArg::Constant),
            Argument::Tensors(list) => {
                let mut all = Vec::with_capacity(list.len());
                for tensor in list {
                    let Some(tensor) = tensor else { return Ok(None) };
                    let Some(tensor) = held(tensor)? else { return Ok(None) };
                    all.push(tensor);
                }
                Some(CallArg::Tensors(all))
            }
            Argument::Literal(Literal::None, _) => Some(CallArg::None),
            Argument::Literal(Literal::Int(v), _) => Some(CallArg::int(*v)),
            Argument::Literal(Literal::Double(v), _) => Some(CallArg::double(*v)),
            Argument::Literal(Literal::Bool(v), _) => Some(CallArg::bool(*v)),
            Argument::Literal(Literal::Ints(v), _) => Some(CallArg::Ints(v.clone())),
            Argument::Literal(Literal::String(_), _) | Argument::Value(_) => None,
        })
    }

    fn new_constant(
        &mut self,
        graph: &mut Graph,
        spec: TensorSpec,
        key: ConstantKey,
        data: Arc<AlignedBuffer>,
    ) -> TensorId {
        let index = u32::try_from(self.folded.len()).unwrap_or(u32::MAX);
        self.folded.push(FoldedConstant {
            key,
            offset: 0,
            shape: spec.shape,
            strides: spec.dim_order.strides(&spec.shape),
            data: Some(data),
        });
        let value = u32::try_from(self.ir.values.len()).unwrap_or(u32::MAX);
        let placement = Placement::Constant(ConstantRef::Folded(index));
        self.ir
            .values
            .push(TensorIr { spec: spec.clone(), placement, device: Device::Cpu, name: None }.into());
        graph.push_tensor(Tensor::new(spec, graph::TensorMemory::Constant, value))
    }
}

/// What a call computes from its constants: operator, other arguments, and how the result lies.
fn recipe_of(node: &Node, spec: &TensorSpec) -> String {
    let literals: Vec<&Literal> = node
        .args
        .iter()
        .filter_map(|a| match a {
            Argument::Literal(literal, _) => Some(literal),
            _ => None,
        })
        .collect();
    format!("{} {literals:?} {:?}", node.operator, spec.dim_order)
}

/// The plan that a draft or node becomes.
pub(super) fn plan_of(draft: &Draft) -> PlanSpec {
    PlanSpec {
        op: draft.op.clone(),
        operator: draft.operator.clone(),
        epilogue: draft.epilogue.clone(),
        outputs: u32::try_from(draft.outputs.len()).unwrap_or(u32::MAX),
    }
}

impl Host for RunHost<'_> {
    fn can_prepare(&mut self, graph: &Graph, draft: &Draft) -> Result<bool> {
        let specs: Vec<ArgSpec<'_>> = draft.args.iter().map(|a| self.argument(graph, a)).collect();
        self.loader.can_prepare(&plan_of(draft), &specs)
    }

    fn constant(&self, graph: &Graph, tensor: TensorId) -> Option<ConstantView<'_>> {
        let tensor = graph.tensor(tensor);
        let value = ValueId(tensor.value.filter(|_| tensor.is_constant())?);
        match self.loader.arg_spec(self.ir, self.folded, value) {
            ArgSpec::Tensor(_, constant) => constant,
            _ => None,
        }
    }

    fn add_constant(
        &mut self,
        graph: &mut Graph,
        recipe: &str,
        sources: &[TensorId],
        spec: TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>> {
        let views: Option<Vec<ConstantView<'_>>> =
            sources.iter().map(|t| Host::constant(self, graph, *t)).collect();
        let Some(views) = views else { return Ok(None) };
        let Some((key, data)) = self.loader.derive(recipe, &views, &spec, make)? else { return Ok(None) };
        Ok(Some(self.new_constant(graph, spec, key, data)))
    }

    fn evaluate(&mut self, graph: &mut Graph, node: NodeId) -> Result<Option<TensorId>> {
        let call = graph.node(node);
        let Some(output) = call.output() else { return Ok(None) };
        let spec = TensorSpec { dynamism: Dynamism::Static, ..graph.tensor(output).spec.clone() };
        let (mut args, mut sources) = (Vec::with_capacity(call.args.len()), Vec::new());
        let mut out = None;
        for (i, argument) in call.args.iter().enumerate() {
            if argument.tensor() == Some(output) {
                out = Some(i);
                let empty = HostTensor::zeros_in_order(spec.dtype, &spec.shape, spec.dim_order)?;
                args.push(CallArg::Tensor(empty));
                continue;
            }
            let Some(known) = self.call_arg(graph, argument, &mut sources)? else { return Ok(None) };
            args.push(known);
        }
        let Some(out) = out else { return Ok(None) };
        let mut args = Some(args);
        let loader = self.loader;
        let mut make = |_: &[ConstantView<'_>]| {
            args.take().map_or(Ok(None), |args| loader.evaluate(&call.operator, args, out))
        };
        let made = loader.derive(&recipe_of(call, &spec), &sources, &spec, &mut make)?;
        let Some((key, data)) = made else { return Ok(None) };
        drop(sources);
        Ok(Some(self.new_constant(graph, spec, key, data)))
    }
}
