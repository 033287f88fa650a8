//! Rows that torchao quantises and dequantises, with and without something else in the midst.

use super::super::affine_reader::CASTS;
use super::*;
use crate::graph::testing::{AnyKernel, Builder};
use crate::graph::{Argument, Draft, Literal, NodeId};
use pteron_core::{AlignedBuffer, ConstantKey, ConstantView, Dims, Result, TensorSpec};
use std::collections::HashMap;

/// A host of single numbers.
#[derive(Default)]
struct Numbers(HashMap<TensorId, [f32; 1]>);

impl Host for Numbers {
    fn can_prepare(&mut self, _: &Graph, _: &Draft) -> Result<bool> {
        Ok(true)
    }
    fn constant(&self, _: &Graph, tensor: TensorId) -> Option<ConstantView<'_>> {
        Some(ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: 4 },
            data: bytemuck::cast_slice(self.0.get(&tensor)?),
            dtype: DType::Float32,
            offset: 0,
            shape: Dims::new(&[]).unwrap(),
            strides: Dims::new(&[]).unwrap(),
        })
    }
    fn add_constant(
        &mut self,
        graph: &mut Graph,
        recipe: &str,
        sources: &[TensorId],
        spec: TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>> {
        AnyKernel.add_constant(graph, recipe, sources, spec, make)
    }
    fn evaluate(&mut self, graph: &mut Graph, node: NodeId) -> Result<Option<TensorId>> {
        AnyKernel.evaluate(graph, node)
    }
}

/// What differs from torchao's form.
#[derive(Default, Clone, Copy, PartialEq, Debug)]
enum Change {
    #[default]
    Nothing,
    NoFactor,
    Steps,
    Lowest,
    Factor,
    ZeroSide,
    LeastScale,
    Limits,
    Alpha,
    OtherDimension,
    OtherInput,
    OtherScale,
    OtherZero,
    Maximum,
}

const ROWS: usize = 4;
const K: usize = 8;

fn chain(change: Change) -> (Builder, Numbers, [TensorId; 2]) {
    let mut b = Builder::new();
    let x = b.border(&[ROWS, K]);
    let other = b.border(&[ROWS, K]);
    let mut host = Numbers::default();
    let mut number = |b: &mut Builder, usual: f32, when: Change, changed: f32| {
        let t = b.constant(&[]);
        host.0.insert(t, [if change == when { changed } else { usual }]);
        t
    };
    let steps = number(&mut b, 255.0, Change::Steps, 254.0);
    let lowest = number(&mut b, -128.0, Change::Lowest, -127.0);
    let one = number(&mut b, 1.0, Change::Factor, 2.0);
    let float = |v: f64| Argument::Literal(Literal::Double(v), None);
    let tensor = Argument::Tensor;
    let end = |b: &mut Builder, reducing: &str, operator: &str, zero: f64| {
        let from = if change == Change::OtherInput { other } else { x };
        let dims = Argument::ints(&[if change == Change::OtherDimension { 0 } else { 1 }]);
        let ends = b.call_with(reducing, vec![tensor(from), dims, Argument::int(0)], &[ROWS]);
        let zeros =
            b.call_with("aten::full_like.out", vec![tensor(ends), float(zero), Argument::none()], &[ROWS]);
        b.call(operator, &[ends, zeros], &[ROWS])
    };
    let low = end(&mut b, "aten::amin.out", "aten::minimum.out", 0.0);
    let greatest = if change == Change::Maximum { "aten::minimum.out" } else { "aten::maximum.out" };
    let high = end(&mut b, "aten::amax.out", greatest, if change == Change::ZeroSide { 1.0 } else { 0.0 });
    let plain = |b: &mut Builder, operator: &str, inputs: [TensorId; 2], alpha: i64, shape: &[usize]| {
        b.call_with(operator, vec![tensor(inputs[0]), tensor(inputs[1]), Argument::int(alpha)], shape)
    };
    let limits = |b: &mut Builder, t: TensorId, low: f64, shape: &[usize]| {
        b.call_with("aten::clamp.out", vec![tensor(t), float(low), float(127.0)], shape)
    };
    let cast = |b: &mut Builder, t: TensorId, dtype: DType, shape: &[usize]| {
        let q = b.call_with(CASTS[0], vec![tensor(t), Argument::int(0), Argument::ints(&[0, 1])], shape);
        b.cast(q, dtype)
    };
    let spread =
        plain(&mut b, "aten::sub.out", [high, low], if change == Change::Alpha { 2 } else { 1 }, &[ROWS]);
    let divided = b.call("aten::div.out", &[spread, steps], &[ROWS]);
    let least = if change == Change::LeastScale { 0.0 } else { 1e-10 };
    let scale =
        b.call_with("aten::clamp.out", vec![tensor(divided), float(least), Argument::none()], &[ROWS]);
    let scaled = b.call("aten::div.out", &[low, scale], &[ROWS]);
    let rounded = b.call("aten::round.out", &[scaled], &[ROWS]);
    let moved = plain(&mut b, "aten::sub.out", [lowest, rounded], 1, &[ROWS]);
    let limited = limits(&mut b, moved, -128.0, &[ROWS]);
    let zero = cast(&mut b, limited, DType::Int8, &[ROWS]);
    let seen = |b: &mut Builder, t: TensorId| {
        let args = vec![tensor(t), Argument::ints(&[ROWS as i64, 1])];
        b.call_with(crate::graph::semantics::ET_VIEW, args, &[ROWS, 1])
    };
    let (scale, zero) = (seen(&mut b, scale), seen(&mut b, zero));
    b.cast(zero, DType::Int8);
    let mut inverse = b.call("aten::reciprocal.out", &[scale], &[ROWS, 1]);
    if change != Change::NoFactor {
        inverse = b.call("aten::mul.out", &[inverse, one], &[ROWS, 1]);
    }
    let shape = [ROWS, K];
    let scaled = b.call("aten::mul.out", &[x, inverse], &shape);
    let rounded = b.call("aten::round.out", &[scaled], &shape);
    let zero = cast(&mut b, zero, DType::Float32, &[ROWS, 1]);
    let moved = plain(&mut b, "aten::add.out", [rounded, zero], 1, &shape);
    let limited = limits(&mut b, moved, if change == Change::Limits { -127.0 } else { -128.0 }, &shape);
    let q = cast(&mut b, limited, DType::Int8, &shape);
    let back = cast(&mut b, q, DType::Float32, &shape);
    let zero = if change == Change::OtherZero { b.border(&[ROWS, 1]) } else { zero };
    let difference = plain(&mut b, "aten::sub.out", [back, zero], 1, &shape);
    let scale = if change == Change::OtherScale { b.border(&[ROWS, 1]) } else { scale };
    let y = b.call("aten::mul.out", &[difference, scale], &shape);
    (b, host, [x, y])
}

#[test]
fn rows_of_torchao_are_known() {
    for change in [Change::Nothing, Change::NoFactor] {
        let (b, host, [x, y]) = chain(change);
        let expected = (RowScheme::PerRow { least_scale: 1e-10 }, x);
        assert_eq!(rows_by_affine(&b.graph, &host, y), Some(expected), "{change:?}");
    }
}

#[test]
fn anything_else_stays() {
    use Change::*;
    for change in [
        Steps,
        Lowest,
        Factor,
        ZeroSide,
        LeastScale,
        Limits,
        Alpha,
        OtherDimension,
        OtherInput,
        OtherScale,
        OtherZero,
        Maximum,
    ] {
        let (b, host, [_, y]) = chain(change);
        assert_eq!(rows_by_affine(&b.graph, &host, y), None, "{change:?}");
    }
}
