use super::*;
use crate::graph::ET_VIEW;
use crate::graph::testing::{AnyKernel, Builder, Holds};
use crate::graph::{Literal, Tensor, TensorMemory};

const TO_F32: &str = "dim_order_ops::_to_dim_order_copy.out";

fn constant(b: &mut Builder, dtype: DType, shape: &[usize]) -> TensorId {
    let spec = TensorSpec::contiguous(dtype, shape).unwrap();
    let value = b.graph.tensor_count() as u32;
    b.graph.push_tensor(Tensor::new(spec, TensorMemory::Constant, value))
}

fn sub(b: &mut Builder, x: TensorId, y: TensorId, shape: &[usize]) -> TensorId {
    b.call_with("aten::sub.out", vec![Argument::Tensor(x), Argument::Tensor(y), Argument::int(1)], shape)
}

fn permute(b: &mut Builder, x: TensorId, shape: &[usize]) -> TensorId {
    b.call_with("aten::permute_copy.out", vec![Argument::Tensor(x), Argument::ints(&[1, 0])], shape)
}

fn view(b: &mut Builder, x: TensorId, sizes: &[i64], shape: &[usize]) -> TensorId {
    b.call_with(ET_VIEW, vec![Argument::Tensor(x), Argument::ints(sizes)], shape)
}

fn addmm(b: &mut Builder, bias: TensorId, x: TensorId, w: TensorId, beta: i64) -> TensorId {
    let args = vec![
        Argument::Tensor(bias),
        Argument::Tensor(x),
        Argument::Tensor(w),
        Argument::int(beta),
        Argument::int(1),
    ];
    b.call_with("aten::addmm.out", args, &[4, 16])
}

/// The weight [16, 64] in groups of 32, as torchao's `dequantize_affine` decomposes, seen by `addmm` as [64, 16].
fn grouped(b: &mut Builder, zeros: DType) -> TensorId {
    let q = constant(b, DType::Int8, &[16, 2, 32]);
    let zeros_at = constant(b, zeros, &[16, 2, 1]);
    let scales = b.constant(&[16, 2, 1]);
    let converted = b.call(TO_F32, &[q], &[16, 2, 32]);
    let zeros_at = match zeros {
        DType::Float32 => zeros_at,
        _ => b.call(TO_F32, &[zeros_at], &[16, 2, 1]),
    };
    let difference = sub(b, converted, zeros_at, &[16, 2, 32]);
    let w = b.call("aten::mul.out", &[difference, scales], &[16, 2, 32]);
    let w = view(b, w, &[16, 64], &[16, 64]);
    permute(b, w, &[64, 16])
}

fn spec_of(b: &Builder, y: TensorId) -> (WeightOnlySpec, usize) {
    let node = b.graph.node(b.graph.producer(y).unwrap());
    let Op::WeightOnly(spec) = &node.op else { panic!("{:?}", node.op) };
    (WeightOnlySpec::clone(spec), node.args.len())
}

#[test]
fn groups_with_zero_points_behind_a_view_and_a_permute() {
    for zeros in [DType::Float32, DType::Int8] {
        let mut b = Builder::new();
        let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
        let w = grouped(&mut b, zeros);
        let y = addmm(&mut b, bias, x, w, 1);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let expected = WeightOnlySpec {
            k: 64,
            n: 16,
            group: 32,
            is_row_per_output: true,
            has_pairs: false,
            has_zeros: true,
            has_bias: true,
            rows: None,
        };
        assert_eq!(spec_of(&b, y), (expected, 6));
        assert_eq!(b.graph.live().count(), 1);
    }
}

#[test]
fn a_weight_of_two_products_serves_both() {
    let mut b = Builder::new();
    let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
    let w = grouped(&mut b, DType::Float32);
    let (y, z) = (addmm(&mut b, bias, x, w, 1), addmm(&mut b, bias, x, w, 1));
    assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
    assert_eq!((spec_of(&b, y), b.graph.live().count()), (spec_of(&b, z), 2));
}

#[test]
fn what_is_no_product_with_columns_of_scales_stays() {
    let mut b = Builder::new();
    let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
    let w = grouped(&mut b, DType::Float32);
    addmm(&mut b, bias, x, w, 2);
    // Scales of the summed dimension.
    let q = constant(&mut b, DType::Int8, &[64, 16]);
    let (converted, scales) = (b.call(TO_F32, &[q], &[64, 16]), b.constant(&[64, 1]));
    let w = b.call("aten::mul.out", &[converted, scales], &[64, 16]);
    b.call("aten::mm.out", &[x, w], &[4, 16]);
    // A weight that is computed.
    let q = b.border(&[64, 16]);
    let (converted, scales) = (b.call(TO_F32, &[q], &[64, 16]), b.constant(&[16]));
    let w = b.call("aten::mul.out", &[converted, scales], &[64, 16]);
    b.call("aten::mm.out", &[x, w], &[4, 16]);
    // Rows of another matrix, seen through a view.
    let q = constant(&mut b, DType::Int8, &[32, 32]);
    let (converted, scales) = (b.call(TO_F32, &[q], &[32, 32]), b.constant(&[32, 1]));
    let w = b.call("aten::mul.out", &[converted, scales], &[32, 32]);
    let w = view(&mut b, w, &[16, 64], &[16, 64]);
    let w = permute(&mut b, w, &[64, 16]);
    b.call("aten::mm.out", &[x, w], &[4, 16]);
    assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
}

/// `add(view(mul(mm(x, to_f32(Q)), s)), b)`: torchao's int8 weight-only form of a linear layer.
fn scaled_behind(viewed: bool) -> (Builder, TensorId) {
    let mut b = Builder::new();
    let x = b.border(&[4, 64]);
    let q = constant(&mut b, DType::Int8, &[64, 16]);
    let w = b.call(TO_F32, &[q], &[64, 16]);
    let y = b.call("aten::mm.out", &[x, w], &[4, 16]);
    let (scales, bias) = (b.constant(&[16]), b.constant(&[16]));
    let y = b.call("aten::mul.out", &[y, scales], &[4, 16]);
    let (y, shape) = match viewed {
        true => (view(&mut b, y, &[2, 2, 16], &[2, 2, 16]), &[2, 2, 16][..]),
        false => (y, &[4, 16][..]),
    };
    let sum = vec![Argument::Tensor(y), Argument::Tensor(bias), Argument::int(1)];
    let z = b.call_with("aten::add.out", sum, shape);
    b.call("aten::relu.out", &[z], shape);
    (b, z)
}

#[test]
fn scales_and_bias_behind_the_product_go_into_it() {
    for viewed in [false, true] {
        let (mut b, z) = scaled_behind(viewed);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let last = b.graph.node(b.graph.producer(z).unwrap());
        let y = if viewed { last.input(0).unwrap() } else { z };
        assert_eq!(last.op == Op::View, viewed);
        let (spec, arguments) = spec_of(&b, y);
        assert_eq!((spec.group, spec.is_row_per_output, spec.has_bias, arguments), (64, false, true, 5));
        assert_eq!(b.graph.live().count(), 2 + usize::from(viewed));
    }
}

#[test]
fn per_channel_on_the_axis_of_the_columns() {
    for (axis, count) in [(0, 1), (1, 0)] {
        let mut b = Builder::new();
        let x = b.border(&[4, 64]);
        let q = constant(&mut b, DType::Int8, &[16, 64]);
        let (scales, zeros) =
            (constant(&mut b, DType::Float64, &[16]), constant(&mut b, DType::Int64, &[16]));
        let args = vec![
            Argument::Tensor(q),
            Argument::Tensor(scales),
            Argument::Tensor(zeros),
            Argument::int(axis),
            Argument::int(-127),
            Argument::int(127),
            Argument::int(1),
            Argument::none(),
        ];
        let w = b.call_with("quantized_decomposed::dequantize_per_channel.out", args, &[16, 64]);
        let args = vec![Argument::Tensor(x), Argument::Tensor(w), Argument::Literal(Literal::None, None)];
        let y = b.call_with("aten::linear.out", args, &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), count, "axis {axis}");
        if count == 1 {
            let node = b.graph.node(b.graph.producer(y).unwrap());
            let parameter = |at: usize| b.graph.tensor(node.input(at).unwrap()).spec.dtype;
            assert_eq!([parameter(2), parameter(3)], [DType::Float32; 2]);
        }
    }
}

/// The weight [16, 64] as `rows` rows of a table of pairs with `groups` groups in each, seen by `addmm` as [64, 16].
fn pairs(b: &mut Builder, rows: usize, groups: usize, limits: [i64; 2]) -> TensorId {
    let numbers = 16 * 64 / rows;
    let q = constant(b, DType::UInt8, &[rows, numbers / 2]);
    let (scales, zeros) = (b.constant(&[rows, groups]), b.constant(&[rows, groups]));
    let every = constant(b, DType::Int64, &[rows]);
    let mut args = vec![Argument::Tensor(q), Argument::Tensor(scales), Argument::Tensor(zeros)];
    args.extend(limits.map(Argument::int));
    args.push(Argument::Tensor(every));
    let mut w = b.call_with("quantized_decomposed::embedding_4bit.out", args, &[rows, numbers]);
    if rows != 16 {
        w = view(b, w, &[16, 64], &[16, 64]);
    }
    permute(b, w, &[64, 16])
}

#[test]
fn tables_of_pairs_are_read_as_they_are() {
    // In rows of the weight, and in one row; a scale for each 32 numbers, and for each row.
    for (rows, groups, group) in [(16, 2, 32), (16, 1, 64), (1, 32, 32), (1, 16, 64)] {
        let mut b = Builder::new();
        let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
        let w = pairs(&mut b, rows, groups, [-8, 7]);
        let y = addmm(&mut b, bias, x, w, 1);
        assert_eq!(apply(&mut b.graph, &mut Holds((0..rows as i64).collect())).unwrap(), 1);
        let (spec, arguments) = spec_of(&b, y);
        assert_eq!((spec.k, spec.n, spec.group, arguments), (64, 16, group, if rows == 1 { 5 } else { 6 }));
        assert!(spec.has_pairs && spec.is_row_per_output && spec.has_bias);
        assert_eq!(b.graph.live().count(), 1);
    }
}

#[test]
fn parts_of_tables_and_odd_groups_stay() {
    let other_rows: Vec<i64> = (1..17).collect();
    let in_order: Vec<i64> = (0..16).collect();
    for (groups, limits, held) in [
        (2, [-8, 7], other_rows),
        (2, [-7, 7], in_order.clone()),
        // No number of each group; groups of one number; groups that two rows share.
        (3, [-8, 7], in_order.clone()),
        (64, [-8, 7], in_order.clone()),
    ] {
        let mut b = Builder::new();
        let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
        let w = pairs(&mut b, 16, groups, limits);
        addmm(&mut b, bias, x, w, 1);
        assert_eq!(apply(&mut b.graph, &mut Holds(held)).unwrap(), 0, "{groups} {limits:?}");
    }
    let mut b = Builder::new();
    let (x, bias) = (b.border(&[4, 64]), b.constant(&[16]));
    let w = pairs(&mut b, 1, 8, [-8, 7]);
    addmm(&mut b, bias, x, w, 1);
    assert_eq!(apply(&mut b.graph, &mut Holds(vec![0])).unwrap(), 0);
}
