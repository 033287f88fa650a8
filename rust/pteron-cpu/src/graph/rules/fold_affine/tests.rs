use super::contents;
use super::*;
use crate::graph::Literal;
use crate::graph::testing::{AnyKernel, Builder};
use pteron_core::ConstantKey;

fn number(v: f64) -> Argument {
    Argument::Literal(Literal::Double(v), None)
}

fn convolution(b: &mut Builder, is_transposed: bool, groups: i64) -> TensorId {
    let (x, w) = (b.border(&[1, 4, 5, 5]), b.constant(&[4, 3, 1, 1]));
    let ints = Argument::ints;
    let args = vec![
        Argument::Tensor(x),
        Argument::Tensor(w),
        Argument::none(),
        ints(&[1, 1]),
        ints(&[0, 0]),
        ints(&[1, 1]),
        Argument::Literal(Literal::Bool(is_transposed), None),
        ints(&[0, 0]),
        Argument::int(groups),
    ];
    b.call_with(
        "aten::convolution.out",
        args,
        &[1, if is_transposed { 3 * groups as usize } else { 4 }, 5, 5],
    )
}

/// A call of `operator` on `y` and a constant of this shape, first or second.
fn behind(b: &mut Builder, operator: &str, y: TensorId, shape: &[usize], is_first: bool) -> usize {
    let (c, out) = (b.constant(shape), b.graph.tensor(y).spec.shape);
    let mut args = vec![Argument::Tensor(y), Argument::Tensor(c)];
    if is_first {
        args.reverse();
    }
    if operator.contains("add") || operator.contains("sub") {
        args.push(Argument::int(2));
    }
    let z = b.call_with(operator, args, &out);
    b.name("z", z);
    apply(&mut b.graph, &mut AnyKernel).unwrap()
}

#[test]
fn what_stands_behind_a_convolution_goes_into_it() {
    for (operator, is_first) in [
        ("aten::mul.out", true),
        ("aten::mul.out", false),
        ("aten::add.out", false),
        ("aten::sub.out", true),
        ("aten::div.out", false),
    ] {
        for shape in [&[4usize, 1, 1][..], &[1, 4, 1, 1], &[1], &[]] {
            let mut b = Builder::new();
            let y = convolution(&mut b, false, 1);
            assert_eq!(behind(&mut b, operator, y, shape, is_first), 1, "{operator} {shape:?}");
            let node = b.graph.node(b.graph.producer(b.get("z")).unwrap());
            assert_eq!((&node.op, node.covers.as_slice()), (&Op::Convolution, &[0, 1][..]));
            assert_eq!(b.graph.live().count(), 1);
        }
    }
}

#[test]
fn what_is_no_product_per_channel_stays() {
    for (operator, shape, is_first) in [
        ("aten::mul.out", &[5usize][..], false),
        ("aten::mul.out", &[4, 5, 5], false),
        ("aten::add.out", &[1, 1, 4, 1, 1], false),
        ("aten::div.out", &[4, 1, 1], true),
    ] {
        let mut b = Builder::new();
        let y = convolution(&mut b, false, 1);
        assert_eq!(behind(&mut b, operator, y, shape, is_first), 0, "{operator} {shape:?}");
    }
    let mut b = Builder::new();
    let y = convolution(&mut b, false, 1);
    b.call("aten::neg.out", &[y], &[1, 4, 5, 5]);
    assert_eq!(behind(&mut b, "aten::mul.out", y, &[], false), 0, "somebody else reads it");
}

#[test]
fn a_product_that_gets_a_bias_is_addmm() {
    let mut b = Builder::new();
    let (x, w) = (b.border(&[4, 8]), b.constant(&[8, 16]));
    let y = b.call("aten::mm.out", &[x, w], &[4, 16]);
    let y = b.call_with("aten::mul.Scalar_out", vec![Argument::Tensor(y), number(0.5)], &[4, 16]);
    assert_eq!(behind(&mut b, "aten::add.out", y, &[16], false), 2);
    let node = b.graph.node(b.graph.producer(b.get("z")).unwrap());
    assert_eq!((node.operator.as_str(), node.args.len()), ("aten::addmm.out", 6));
    assert_eq!((node.input(1), node.number(3), node.number(4)), (Some(x), Some(1.0), Some(1.0)));
    assert_eq!(node.args[5].tensor(), Some(b.get("z")));
    assert!(b.graph.tensor(node.input(0).unwrap()).is_constant());
}

#[test]
fn a_product_of_two_results_has_no_weight() {
    let mut b = Builder::new();
    let (x, w) = (b.border(&[4, 8]), b.border(&[8, 16]));
    let y = b.call("aten::mm.out", &[x, w], &[4, 16]);
    assert_eq!(behind(&mut b, "aten::mul.out", y, &[16], false), 0);
}

fn row<'a>(data: &'a [f32], shape: &[usize]) -> ConstantView<'a> {
    ConstantView {
        key: ConstantKey { origin: 0, offset: 0, nbytes: 0 },
        data: bytemuck::cast_slice(data),
        dtype: DType::Float32,
        offset: 0,
        shape: Dims::new(shape).unwrap(),
        strides: DimOrder::contiguous(shape.len()).strides(&Dims::new(shape).unwrap()),
    }
}

#[test]
fn channels_are_where_the_operator_has_them() {
    let affine = Affine { terms: Terms::Product, number: 0.0 };
    let factors = row(&[2.0, 4.0, 8.0, 16.0], &[4]);
    let of = |filters| {
        let weight = row(&[1.0; 8], &[8]);
        contents::weight(&[weight, factors], &affine, filters).unwrap().unwrap().as_elements::<f32>().to_vec()
    };
    let rows = Filters { taps: 2, per_block: 4, blocks: 1, repeats: 1 };
    assert_eq!(of(rows), [2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 16.0, 16.0]);
    let columns = Filters { taps: 1, per_block: 4, blocks: 1, repeats: 2 };
    assert_eq!(of(columns), [2.0, 4.0, 8.0, 16.0, 2.0, 4.0, 8.0, 16.0]);
    // Transposed: two groups of two inputs, two channels each.
    let groups = Filters { taps: 1, per_block: 2, blocks: 2, repeats: 2 };
    assert_eq!(of(groups), [2.0, 4.0, 2.0, 4.0, 8.0, 16.0, 8.0, 16.0]);
}

#[test]
fn sums_have_their_factors_and_nothing_overflows() {
    let sum = Affine { terms: Terms::Sum { y_times: -2.0, c_times: 1.0 }, number: 0.5 };
    let bias = contents::bias(&[row(&[1.0, 2.0], &[2])], &sum, true, 2).unwrap().unwrap();
    assert_eq!(bias.as_elements::<f32>(), [-1.5, -3.5]);
    let bias = contents::bias(&[row(&[1.0, 2.0], &[2])], &sum, false, 2).unwrap().unwrap();
    assert_eq!(bias.as_elements::<f32>(), [1.0, 2.0]);
    let filters = Filters { taps: 1, per_block: 1, blocks: 1, repeats: 1 };
    for (weight, factor) in [(1e30, 1e30), (1e-30, 1e-20), (3.0, 0.0)] {
        let affine = Affine { terms: Terms::Product, number: factor };
        assert!(contents::weight(&[row(&[weight], &[1])], &affine, filters).unwrap().is_none());
    }
}
