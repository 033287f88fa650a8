//! What the rules ask of the loader.

use super::super::Loader;
use crate::ir::{FoldedConstant, MethodIr, Place as IrPlace, TensorIr, ValueIr};
use pteron_core::{AlignedBuffer, ArgSpec, ConstantView, Result, TensorSpec, ValueId};
use pteron_cpu::graph::{Argument, Draft, Graph, Host, Place, Tensor, TensorId};
use pteron_cpu::plan::PlanSpec;

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
        let index = u32::try_from(self.folded.len()).unwrap_or(u32::MAX);
        self.folded.push(FoldedConstant {
            key,
            offset: 0,
            shape: spec.shape,
            strides: spec.dim_order.strides(&spec.shape),
            data: Some(data),
        });
        let value = u32::try_from(self.ir.values.len()).unwrap_or(u32::MAX);
        self.ir.values.push(ValueIr::Tensor(TensorIr {
            spec: spec.clone(),
            place: IrPlace::Folded(index),
            name: None,
        }));
        Ok(Some(graph.push_tensor(Tensor::new(spec, Place::Constant, value))))
    }
}
