//! Products of torchao's symmetric rows, with and without something else in the midst.

use super::*;
use crate::graph::rules::fuse_clamp;
use crate::graph::rules::remove_dead::remove_dead;
use crate::graph::testing::{Builder, Holds};
use crate::graph::{ET_VIEW, Literal, Tensor, TensorMemory};
use crate::integer::RowScheme;
use pteron_core::{AlignedBuffer, ConstantKey, ConstantView, DimOrder, Dims};

/// What differs from torchao's form.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    Nothing,
    OtherScale,
    OtherReader,
    WeightOfCall,
    Negated,
    Zero,
    Alpha,
    OtherShares,
}

const ROWS: usize = 6;
const K: usize = 8;
const N: usize = 16;

struct Form {
    change: Change,
    /// Is the factor of each column first?
    columns_first: bool,
    /// Two times three rows, seen as six?
    has_views: bool,
    has_bias: bool,
    /// Are bytes raised by 128 before they are multiplied?
    is_raised: bool,
}

const PLAIN: Form = Form {
    change: Change::Nothing,
    columns_first: false,
    has_views: false,
    has_bias: true,
    is_raised: false,
};

/// Constants that hold one number for each dtype: 127.5, weights of 1, and as int32 128 or what such weights take from sums.
struct Typed;

const RAISED: [i32; 1] = [128];
const WEIGHTS: [i8; K * N] = [1; K * N];
const SHARES: [i32; N] = [128 * K as i32; N];
const OTHER_SHARES: [i32; N] = [128; N];

impl Host for Typed {
    fn can_prepare(&mut self, _: &Graph, _: &Draft) -> Result<bool> {
        Ok(true)
    }
    fn constant(&self, graph: &Graph, tensor: TensorId) -> Option<ConstantView<'_>> {
        let spec = &graph.tensor(tensor).spec;
        let data: &[u8] = match (spec.dtype, &*spec.shape) {
            (DType::Int8, _) => bytemuck::cast_slice(&WEIGHTS),
            (DType::Int32, []) => bytemuck::cast_slice(&RAISED),
            (DType::Int32, [1, N]) => bytemuck::cast_slice(&SHARES),
            (DType::Int32, _) => bytemuck::cast_slice(&OTHER_SHARES),
            _ => bytemuck::cast_slice(&[127.5f32]),
        };
        let shape = if spec.dtype == DType::Float32 { Dims::new(&[1]).unwrap() } else { spec.shape };
        Some(ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
            data,
            dtype: spec.dtype,
            offset: 0,
            shape,
            strides: DimOrder::contiguous(shape.len()).strides(&shape),
        })
    }
    fn add_constant(
        &mut self,
        _: &mut Graph,
        _: &str,
        _: &[TensorId],
        _: TensorSpec,
        _: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>> {
        Ok(None)
    }
    fn evaluate(&mut self, _: &mut Graph, _: NodeId) -> Result<Option<TensorId>> {
        Ok(None)
    }
}

fn constant(b: &mut Builder, dtype: DType, shape: &[usize]) -> TensorId {
    let spec = TensorSpec::contiguous(dtype, shape).unwrap();
    let value = b.graph.tensor_count() as u32;
    b.graph.push_tensor(Tensor::new(spec, TensorMemory::Constant, value))
}

/// The graph, its input and its result behind a relu. Constants are all the one number of the host.
fn product(form: &Form) -> (Builder, Holds<f32>, [TensorId; 2]) {
    let change = form.change;
    let mut b = Builder::new();
    let (shape, ends) = match form.has_views {
        true => (vec![2, 3, K], vec![2, 3, 1]),
        false => (vec![ROWS, K], vec![ROWS, 1]),
    };
    let tensor = Argument::Tensor;
    let float = |v: f64| Argument::Literal(Literal::Double(v), None);
    let cast = |b: &mut Builder, t: TensorId, dtype: DType, shape: &[usize]| {
        let q = b.call_with(CASTS[0], vec![tensor(t), Argument::int(0), Argument::ints(&[0, 1])], shape);
        b.cast(q, dtype)
    };
    let zeros = |b: &mut Builder, like: TensorId, v: f64| {
        b.call_with("aten::full_like.out", vec![tensor(like), float(v), Argument::none()], &ends)
    };
    let x = b.border(&shape);
    let steps = b.constant(&[]);
    let end = |b: &mut Builder, reducing: &str, operator: &str| {
        let dims = Argument::ints(&[-1]);
        let found = b.call_with(reducing, vec![tensor(x), dims, Argument::int(1)], &ends);
        let nothing = zeros(b, found, 0.0);
        b.call(operator, &[found, nothing], &ends)
    };
    let low = end(&mut b, "aten::amin.out", "aten::minimum.out");
    let high = end(&mut b, "aten::amax.out", "aten::maximum.out");
    let negated =
        b.call(if change == Change::Negated { "aten::abs.out" } else { "aten::neg.out" }, &[low], &ends);
    let most = b.call("aten::maximum.out", &[negated, high], &ends);
    let chosen = b.call("aten::div.out", &[most, steps], &ends);
    let scale = b.call_with("aten::clamp.out", vec![tensor(chosen), float(1e-7), Argument::none()], &ends);
    let zero = zeros(&mut b, chosen, if change == Change::Zero { 1.0 } else { 0.0 });
    let zero = cast(&mut b, zero, DType::Int8, &ends);
    let inverse = b.call("aten::reciprocal.out", &[scale], &ends);
    let scaled = b.call("aten::mul.out", &[x, inverse], &shape);
    let rounded = b.call("aten::round.out", &[scaled], &shape);
    let zero = cast(&mut b, zero, DType::Float32, &ends);
    let sum = vec![tensor(rounded), tensor(zero), Argument::int(1)];
    let moved = b.call_with("aten::add.out", sum, &shape);
    let limited = b.call_with("aten::clamp.out", vec![tensor(moved), float(-128.0), float(127.0)], &shape);
    let mut q = cast(&mut b, limited, DType::Int8, &shape);
    let mut seen_scale = scale;
    if form.has_views {
        let args = vec![tensor(q), Argument::ints(&[-1, K as i64])];
        q = b.call_with(ET_VIEW, args, &[ROWS, K]);
        b.cast(q, DType::Int8);
        seen_scale = b.call_with(ET_VIEW, vec![tensor(scale), Argument::ints(&[-1, 1])], &[ROWS, 1]);
    }
    let weight = match change {
        Change::WeightOfCall => b.border(&[K, N]),
        _ => constant(&mut b, DType::Int8, &[K, N]),
    };
    if form.is_raised {
        let words = cast(&mut b, q, DType::Int32, &[ROWS, K]);
        let by = constant(&mut b, DType::Int32, &[]);
        let sum = vec![tensor(words), tensor(by), Argument::int(1)];
        let raised = b.call_with("aten::add.out", sum, &[ROWS, K]);
        b.cast(raised, DType::Int32);
        q = cast(&mut b, raised, DType::UInt8, &[ROWS, K]);
    }
    let mut sums = b.call(INT_MM, &[q, weight], &[ROWS, N]);
    b.cast(sums, DType::Int32);
    if form.is_raised {
        let shape: &[usize] = if change == Change::OtherShares { &[N] } else { &[1, N] };
        let shares = constant(&mut b, DType::Int32, shape);
        let difference = vec![tensor(sums), tensor(shares), Argument::int(1)];
        sums = b.call_with("aten::sub.out", difference, &[ROWS, N]);
        b.cast(sums, DType::Int32);
    }
    let mut y = cast(&mut b, sums, DType::Float32, &[ROWS, N]);
    let columns = b.constant(&[N]);
    let rows = if change == Change::OtherScale { b.border(&[ROWS, 1]) } else { seen_scale };
    for factors in if form.columns_first { [columns, rows] } else { [rows, columns] } {
        y = b.call("aten::mul.out", &[y, factors], &[ROWS, N]);
        if change == Change::OtherReader && factors == columns {
            b.call("aten::exp.out", &[y], &[ROWS, N]);
        }
    }
    let mut shape = vec![ROWS, N];
    if form.has_views {
        shape = vec![2, 3, N];
        y = b.call_with(ET_VIEW, vec![tensor(y), Argument::ints(&[2, 3, N as i64])], &shape);
    }
    if form.has_bias {
        let bias = b.constant(&[N]);
        let alpha = Argument::int(if change == Change::Alpha { 2 } else { 1 });
        y = b.call_with("aten::add.out", vec![tensor(y), tensor(bias), alpha], &shape);
    }
    let z = b.call("aten::relu.out", &[y], &shape);
    (b, Holds(vec![127.5]), [x, z])
}

/// The only product in integers, and how many inputs it has.
fn made(b: &Builder) -> Option<(IntegerSpec, usize)> {
    let mut all = b.graph.live().filter_map(|(_, node)| match &node.op {
        Op::Integer(spec) => Some((IntegerSpec::clone(spec), node.args.len() - 1)),
        _ => None,
    });
    let first = all.next();
    assert!(all.next().is_none(), "two products");
    first
}

fn apply(b: &mut Builder, host: &mut dyn Host) -> usize {
    let ids: Vec<NodeId> = b.graph.ids().collect();
    ids.into_iter().filter(|id| replace(&mut b.graph, host, *id).unwrap()).count()
}

#[test]
fn products_of_torchao_are_known() {
    for (columns_first, has_views, has_bias) in
        [(false, false, true), (true, false, false), (false, true, true), (true, true, false)]
    {
        let form = Form { columns_first, has_views, has_bias, ..PLAIN };
        let (mut b, mut host, [x, _]) = product(&form);
        assert_eq!(apply(&mut b, &mut host), 1, "{columns_first} {has_views} {has_bias}");
        let (spec, inputs) = made(&b).unwrap();
        assert_eq!(spec.input, IntegerInput::Rows { scheme: RowScheme::Symmetric { least_scale: 1e-7 } });
        assert_eq!((spec.has_bias, inputs), (has_bias, 3 + usize::from(has_bias)));
        let node = b.graph.live().find(|(_, node)| matches!(node.op, Op::Integer(_))).unwrap().1;
        assert_eq!(b.graph.through_views(node.input(0).unwrap()), x);
        assert!(!b.graph.live().any(|(_, node)| node.operator == INT_MM));
    }
}

#[test]
fn bytes_that_were_raised_are_what_they_were() {
    for has_views in [false, true] {
        let form = Form { has_views, is_raised: true, ..PLAIN };
        let (mut b, _, [x, _]) = product(&form);
        assert_eq!(apply(&mut b, &mut Typed), 1, "{has_views}");
        let node = b.graph.live().find(|(_, node)| matches!(node.op, Op::Integer(_))).unwrap().1;
        assert_eq!(b.graph.through_views(node.input(0).unwrap()), x);
        assert!(!b.graph.live().any(|(_, node)| [INT_MM, "aten::sub.out"].contains(&node.operator.as_str())));
        remove_dead(&mut b.graph);
        assert!(!b.graph.live().any(|(_, node)| node.operator == "aten::add.out"));
        // Other numbers are taken from the sums.
        let (mut b, _, _) = product(&Form { change: Change::OtherShares, ..form });
        assert_eq!(apply(&mut b, &mut Typed), 0, "{has_views}");
    }
}

#[test]
fn a_clamp_behind_it_is_a_part_of_it() {
    let (mut b, mut host, [_, z]) = product(&PLAIN);
    assert_eq!(apply(&mut b, &mut host), 1);
    assert_eq!((fuse_clamp::RULE.apply)(&mut b.graph, &mut host).unwrap(), 1);
    assert_eq!(made(&b).unwrap().0.clamp, Some((0.0, f32::INFINITY)));
    assert!(matches!(b.graph.node(b.graph.producer(z).unwrap()).op, Op::Integer(_)));
}

#[test]
fn a_factor_of_a_bias_stays_behind_it() {
    let (mut b, mut host, _) = product(&Form { change: Change::Alpha, ..PLAIN });
    assert_eq!(apply(&mut b, &mut host), 1);
    assert!(!made(&b).unwrap().0.has_bias);
}

#[test]
fn anything_else_stays() {
    use Change::*;
    for change in [OtherScale, OtherReader, WeightOfCall, Negated, Zero] {
        for has_views in [false, true] {
            let form = Form { change, has_views, columns_first: change == OtherReader, ..PLAIN };
            let (mut b, mut host, _) = product(&form);
            assert_eq!(apply(&mut b, &mut host), 0, "{change:?}");
        }
    }
    // Constants of another number.
    let (mut b, _, _) = product(&PLAIN);
    assert_eq!(apply(&mut b, &mut Holds(vec![127.0])), 0);
}
