//! `fold_batch_norm`: batch norm with stored statistics goes into the weight and bias of the convolution
//! before it.
//!
//! *Before*: `y = convolution(x, W, b); z = batch_norm(y, γ, β, μ, σ²)`. *After*: `z = convolution(x, W', b')`,
//! where, per output channel, `s = γ / sqrt(σ² + ε)`, `W' = s · W` and `b' = s · (b - μ) + β`.
//!
//! Applies when the norm is the only reader of `y` and everything else is constant; not to transposed
//! convolutions. Computed in f64 and rounded once, so the result differs from the separate calls by rounding
//! (about 1e-7 of the largest output per layer). Saves a pass over the activations.

use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, TensorId};
use pteron_core::{AlignedBuffer, ConstantView, DType, DimOrder, Dims, Dynamism, Result, TensorSpec};

pub(super) const RULE: Rule = Rule {
    name: "fold_batch_norm",
    about: "batch norm with stored statistics into the weight of the convolution before it",
    needs: &[&["aten::convolution.out"], &[NORM]],
    apply,
};

const NORM: &str = "aten::_native_batch_norm_legit_no_training.out";

// Positions among the arguments of the norm.
const SCALE: usize = 1;
const SHIFT: usize = 2;
const MEAN: usize = 3;
const VARIANCE: usize = 4;
const EPSILON: usize = 6;
// And of the convolution.
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const TRANSPOSED: usize = 6;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for norm in graph.ids() {
        let Some(found) = find(graph, norm) else { continue };
        let Some(draft) = folded(graph, host, &found)? else { continue };
        count += usize::from(graph.replace(&[found.convolution, norm], draft).is_some());
    }
    Ok(count)
}

/// A convolution, the result of the norm behind it, and the constants of both.
struct Found {
    convolution: NodeId,
    result: TensorId,
    weight: TensorId,
    bias: Option<TensorId>,
    scale: Option<TensorId>,
    shift: Option<TensorId>,
    mean: TensorId,
    variance: TensorId,
    epsilon: f64,
    channels: usize,
}

fn find(graph: &Graph, norm: NodeId) -> Option<Found> {
    let node = graph.node(norm);
    if !graph.is_live(norm) || node.operator != NORM {
        return None;
    }
    let (y, result) = (node.input(0)?, *node.outputs.first()?);
    let convolution = graph.sole_producer(y)?;
    let before = graph.node(convolution);
    let is_fit = before.op.is_convolution()
        && before.epilogue.is_none()
        && before.number(TRANSPOSED) == Some(0.0)
        && graph.tensor(y).spec == graph.tensor(result).spec;
    let weight = before.input(WEIGHT)?;
    let channels = *graph.tensor(weight).spec.shape.first()?;
    let optional = |position: usize, node: &crate::graph::Node| match node.input(position) {
        Some(t) => Some(Some(t)),
        None => node.is_none(position).then_some(None),
    };
    let found = Found {
        convolution,
        result,
        weight,
        bias: optional(BIAS, before)?,
        scale: optional(SCALE, node)?,
        shift: optional(SHIFT, node)?,
        mean: node.input(MEAN)?,
        variance: node.input(VARIANCE)?,
        epsilon: node.number(EPSILON)?,
        channels,
    };
    let is_row = |t: TensorId| {
        let t = graph.tensor(t);
        t.is_constant() && t.spec.dtype == DType::Float32 && *t.spec.shape == [channels]
    };
    let rows = [found.bias, found.scale, found.shift, Some(found.mean), Some(found.variance)];
    let w = graph.tensor(weight);
    (is_fit
        && w.is_constant()
        && w.spec.dtype == DType::Float32
        && w.spec.dim_order.is_contiguous()
        && rows.into_iter().flatten().all(is_row))
    .then_some(found)
}

/// The convolution with the new constants; `None` where a constant's contents are not to be had.
fn folded(graph: &mut Graph, host: &mut dyn Host, found: &Found) -> Result<Option<Draft>> {
    let presence = [found.bias, found.scale, found.shift];
    // Which optional ones are there is part of the recipe, and so is epsilon.
    let sources: Vec<TensorId> = [found.weight, found.mean, found.variance]
        .into_iter()
        .chain(presence.into_iter().flatten())
        .collect();
    let is_there = presence.map(|t| t.is_some());
    let epsilon = found.epsilon;
    let weight_spec = TensorSpec { dynamism: Dynamism::Static, ..graph.tensor(found.weight).spec.clone() };
    let bias_spec = TensorSpec {
        dtype: DType::Float32,
        shape: Dims::new(&[found.channels])?,
        dim_order: DimOrder::contiguous(1),
        dynamism: Dynamism::Static,
    };
    let recipe = |what: &str| {
        let [bias, scale, shift] = is_there.map(u8::from);
        format!("batch_norm.{what}.{bias}{scale}{shift}.{:016x}", epsilon.to_bits())
    };
    let mut weight = |views: &[ConstantView<'_>]| folded_weight(views, is_there, epsilon);
    let weight = host.add_constant(graph, &recipe("weight"), &sources, weight_spec, &mut weight)?;
    let mut bias = |views: &[ConstantView<'_>]| folded_bias(views, is_there, epsilon);
    let bias = host.add_constant(graph, &recipe("bias"), &sources, bias_spec, &mut bias)?;
    let (Some(weight), Some(bias)) = (weight, bias) else { return Ok(None) };
    let before = graph.node(found.convolution);
    let Some(y) = before.output() else { return Ok(None) };
    let mut draft = before.draft();
    draft.epilogue = Epilogue::NONE;
    draft.rename(y, found.result);
    draft.args[WEIGHT] = Argument::Tensor(weight);
    draft.args[BIAS] = Argument::Tensor(bias);
    Ok(Some(draft))
}

/// The rows among the constants: mean, variance, and those of bias, scale and shift that are there.
struct NormConstants {
    mean: Vec<f32>,
    variance: Vec<f32>,
    optional: [Option<Vec<f32>>; 3],
}

impl NormConstants {
    fn new(views: &[ConstantView<'_>], is_there: [bool; 3]) -> Result<Option<NormConstants>> {
        let [_, mean, variance, rest @ ..] = views else { return Ok(None) };
        let mut rest = rest.iter();
        let mut optional = [None, None, None];
        for (slot, is_there) in optional.iter_mut().zip(is_there) {
            if is_there {
                let Some(view) = rest.next() else { return Ok(None) };
                *slot = Some(view.to_vec::<f32>()?);
            }
        }
        Ok(Some(NormConstants { mean: mean.to_vec()?, variance: variance.to_vec()?, optional }))
    }

    fn at(&self, which: usize, channel: usize, absent: f64) -> f64 {
        self.optional[which].as_ref().and_then(|row| row.get(channel)).map_or(absent, |v| f64::from(*v))
    }

    /// γ / sqrt(σ² + ε).
    fn factor(&self, channel: usize, epsilon: f64) -> f64 {
        self.at(1, channel, 1.0) / (f64::from(self.variance[channel]) + epsilon).sqrt()
    }
}

fn folded_weight(
    views: &[ConstantView<'_>],
    is_there: [bool; 3],
    epsilon: f64,
) -> Result<Option<AlignedBuffer>> {
    let (Some(rows), Some(weight)) = (NormConstants::new(views, is_there)?, views.first()) else {
        return Ok(None);
    };
    let channels = rows.variance.len();
    let values = weight.row_major::<f32>()?;
    let mut out = AlignedBuffer::zeroed(std::mem::size_of_val(&values[..]))?;
    if channels == 0 || values.is_empty() {
        return Ok(Some(out));
    }
    let each = values.len() / channels;
    let filters = values.chunks_exact(each).zip(out.as_mut_elements::<f32>().chunks_exact_mut(each));
    for (channel, (from, to)) in filters.enumerate() {
        let factor = rows.factor(channel, epsilon);
        for (to, from) in to.iter_mut().zip(from) {
            *to = (f64::from(*from) * factor) as f32;
        }
    }
    Ok(Some(out))
}

fn folded_bias(
    views: &[ConstantView<'_>],
    is_there: [bool; 3],
    epsilon: f64,
) -> Result<Option<AlignedBuffer>> {
    let Some(rows) = NormConstants::new(views, is_there)? else { return Ok(None) };
    let mut out = AlignedBuffer::zeroed(std::mem::size_of_val(&rows.variance[..]))?;
    for (channel, to) in out.as_mut_elements::<f32>().iter_mut().enumerate() {
        let centred = rows.at(0, channel, 0.0) - f64::from(rows.mean[channel]);
        *to = (centred * rows.factor(channel, epsilon) + rows.at(2, channel, 0.0)) as f32;
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Op;
    use crate::graph::testing::{AnyKernel, Builder};
    use pteron_core::ConstantKey;

    fn network(running_mean_is_constant: bool) -> Builder {
        let mut b = Builder::new();
        let (x, w) = (b.border(&[1, 2, 4, 4]), b.constant(&[3, 2, 1, 1]));
        let ints = |v: &[i64]| Argument::ints(v);
        let y = b.call_with(
            "aten::convolution.out",
            vec![
                Argument::Tensor(x),
                Argument::Tensor(w),
                Argument::none(),
                ints(&[1, 1]),
                ints(&[0, 0]),
                ints(&[1, 1]),
                Argument::Literal(crate::graph::Literal::Bool(false), None),
                ints(&[0, 0]),
                Argument::int(1),
            ],
            &[1, 3, 4, 4],
        );
        let mean = if running_mean_is_constant { b.constant(&[3]) } else { b.border(&[3]) };
        let variance = b.constant(&[3]);
        let number = |v: f64| Argument::Literal(crate::graph::Literal::Double(v), None);
        let z = b.call_with(
            NORM,
            vec![
                Argument::Tensor(y),
                Argument::none(),
                Argument::none(),
                Argument::Tensor(mean),
                Argument::Tensor(variance),
                number(0.1),
                number(1e-5),
            ],
            &[1, 3, 4, 4],
        );
        b.name("z", z);
        b
    }

    #[test]
    fn the_norm_goes_into_the_convolution() {
        let mut b = network(true);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let folded = b.graph.node(b.graph.producer(b.get("z")).unwrap());
        assert_eq!((folded.op.clone(), folded.covers.as_slice()), (Op::Convolution, &[0, 1][..]));
        assert!(b.graph.tensor(folded.input(BIAS).unwrap()).is_constant());
    }

    #[test]
    fn statistics_that_change_stay_apart() {
        assert_eq!(apply(&mut network(false).graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn weights_and_biases_are_those_of_the_formula() {
        let row = |data: &'static [f32], shape: &[usize]| ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: 0 },
            data: bytemuck::cast_slice(data),
            dtype: DType::Float32,
            offset: 0,
            shape: Dims::new(shape).unwrap(),
            strides: DimOrder::contiguous(shape.len()).strides(&Dims::new(shape).unwrap()),
        };
        let views = [
            row(&[1.0, 2.0, 3.0, 4.0], &[2, 2]),
            row(&[0.5, -1.0], &[2]),
            row(&[3.0, 0.0], &[2]),
            row(&[2.0, 0.5], &[2]),
        ];
        // Scale is there, bias and shift are not.
        let there = [false, true, false];
        let weight = folded_weight(&views, there, 1.0).unwrap().unwrap();
        assert_eq!(weight.as_elements::<f32>(), [1.0, 2.0, 1.5, 2.0]);
        let bias = folded_bias(&views, there, 1.0).unwrap().unwrap();
        assert_eq!(bias.as_elements::<f32>(), [-0.5, 0.5]);
    }
}
