use super::*;
use crate::graph::testing::{AnyKernel, Builder};
use crate::graph::{ET_VIEW, Literal};

const IMAGE: &[usize] = &[1, 64, 28, 28];

fn image(b: &Builder, tensor: TensorId) -> &'static str {
    match order_of(&b.graph.tensor(tensor).spec) {
        Some(true) => "pixels",
        Some(false) => "planes",
        None => "none",
    }
}

fn convolution(b: &mut Builder, x: TensorId, weight: &[usize], groups: i64, out: &[usize]) -> TensorId {
    let w = b.constant(weight);
    let flag = Argument::Literal(Literal::Bool(false), None);
    let pad = (weight[2] / 2) as i64;
    let ints = |v: i64| Argument::ints(&[v, v]);
    let args = vec![
        Argument::Tensor(x),
        Argument::Tensor(w),
        Argument::none(),
        ints(1),
        ints(pad),
        ints(1),
        flag,
        ints(0),
        Argument::int(groups),
    ];
    b.call_with("aten::convolution.out", args, out)
}

fn add(b: &mut Builder, x: TensorId, y: TensorId, shape: &[usize]) -> TensorId {
    b.call_with("aten::add.out", vec![Argument::Tensor(x), Argument::Tensor(y), Argument::int(1)], shape)
}

fn mean(b: &mut Builder, x: TensorId, keepdim: bool, shape: &[usize]) -> TensorId {
    let keep = Argument::Literal(Literal::Bool(keepdim), None);
    let args = vec![Argument::Tensor(x), Argument::ints(&[-1, -2]), keep, Argument::none()];
    b.call_with("aten::mean.out", args, shape)
}

fn copies(b: &Builder) -> usize {
    b.graph.live().filter(|(_, n)| n.operator == COPY).count()
}

fn applied(b: &mut Builder) -> usize {
    apply(&mut b.graph, &mut AnyKernel).unwrap()
}

#[test]
fn a_residual_block_needs_no_copy_of_its_own() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let r = b.call("aten::relu.out", &[y], IMAGE);
    let z = convolution(&mut b, r, &[64, 64, 3, 3], 1, IMAGE);
    let s = add(&mut b, z, r, IMAGE);
    let m = mean(&mut b, s, false, &[1, 64]);
    b.name("m", m).pin("m", 1 << 20);
    assert!(applied(&mut b) > 0);
    assert_eq!([x, y, r, z, s].map(|t| image(&b, t)), ["planes", "pixels", "pixels", "pixels", "pixels"]);
    assert_eq!(copies(&b), 0);
}

#[test]
fn what_leaves_the_run_is_written_where_it_was() {
    let mut b = Builder::new();
    let x = b.border(IMAGE);
    let y = convolution(&mut b, x, &[64, 1, 3, 3], 64, IMAGE);
    let z = convolution(&mut b, y, &[64, 1, 3, 3], 64, IMAGE);
    let out = b.call("aten::relu.out", &[z], IMAGE);
    b.name("out", out).pin("out", 1 << 20);
    assert!(applied(&mut b) > 0);
    assert_eq!([x, y, out].map(|t| image(&b, t)), ["planes", "pixels", "planes"]);
    // One into pixels, one out of them.
    let read = b.graph.node(b.graph.producer(y).unwrap()).input(0).unwrap();
    assert_eq!(image(&b, read), "pixels");
    assert_eq!(copies(&b), 2);
}

#[test]
fn one_copy_serves_all_readers() {
    let mut b = Builder::new();
    let x = b.border(IMAGE);
    for _ in 0..3 {
        let y = convolution(&mut b, x, &[64, 1, 3, 3], 64, IMAGE);
        let z = convolution(&mut b, y, &[64, 64, 1, 1], 1, IMAGE);
        mean(&mut b, z, false, &[1, 64]);
    }
    assert!(applied(&mut b) > 0);
    assert_eq!(copies(&b), 1);
}

#[test]
fn little_work_between_operations_that_are_fixed_is_left_alone() {
    let mut b = Builder::new();
    let x = b.border(IMAGE);
    let p = b.call("aten::cumsum.out", &[x], IMAGE);
    let y = b.call("aten::relu.out", &[p], IMAGE);
    let q = b.call("aten::cumsum.out", &[y], IMAGE);
    let z = convolution(&mut b, q, &[8, 64, 1, 1], 1, &[1, 8, 28, 28]);
    b.call("aten::cumsum.out", &[z], &[1, 8, 28, 28]);
    applied(&mut b);
    assert_eq!([p, y, q].map(|t| image(&b, t)), ["planes"; 3]);
    assert_eq!(copies(&b), 0);
}

#[test]
fn shuffles_read_one_order_and_write_another_without_a_copy() {
    let mut b = Builder::new();
    let x = b.border(IMAGE);
    let y = b.call("aten::pixel_shuffle.out", &[x], IMAGE);
    let z = convolution(&mut b, y, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
    assert_eq!([y, z].map(|t| image(&b, t)), ["pixels"; 2]);
    assert_eq!(copies(&b), 0);
}

#[test]
fn gates_of_one_pixel_follow_without_a_copy() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let m = mean(&mut b, y, true, &[1, 64, 1, 1]);
    let g = convolution(&mut b, m, &[64, 64, 1, 1], 1, &[1, 64, 1, 1]);
    let s = b.call("aten::sigmoid.out", &[g], &[1, 64, 1, 1]);
    let z = b.call("aten::mul.out", &[y, s], IMAGE);
    let m2 = mean(&mut b, z, true, &[1, 64, 1, 1]);
    let v = b.call_with(
        "executorch_prim::et_view.default",
        vec![Argument::Tensor(m2), Argument::ints(&[1, 64])],
        &[1, 64],
    );
    b.call("aten::neg.out", &[v], &[1, 64]);
    assert!(applied(&mut b) > 0);
    assert_eq!([y, m, g, s, z].map(|t| image(&b, t)), ["pixels"; 5]);
    assert_eq!((copies(&b), image(&b, v)), (0, "none"));
}

#[test]
fn a_copy_of_the_file_goes_where_it_became_idle() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let c = b.call_with("aten::clone.out", vec![Argument::Tensor(y), Argument::none()], IMAGE);
    let z = convolution(&mut b, c, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
    assert_eq!(copies(&b), 0);
    assert_eq!(b.graph.node(b.graph.producer(z).unwrap()).input(0), Some(y));
}

#[test]
fn constants_are_reordered_at_load() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let k = b.constant(IMAGE);
    let s = add(&mut b, y, k, IMAGE);
    let z = convolution(&mut b, s, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
    let added = b.graph.node(b.graph.producer(s).unwrap()).input(1).unwrap();
    assert!(added != k && b.graph.tensor(added).is_constant());
    assert_eq!((image(&b, added), copies(&b)), ("pixels", 0));
}

#[test]
fn reordered_elements_keep_their_places() {
    let shape = pteron_core::Dims::new(&[1, 2, 1, 3]).unwrap();
    let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let view = ConstantView {
        key: pteron_core::ConstantKey { origin: 0, offset: 0, nbytes: 24 },
        data: bytemuck::cast_slice(&data),
        dtype: pteron_core::DType::Float32,
        offset: 0,
        shape,
        strides: DimOrder::contiguous(4).strides(&shape),
    };
    let planes = TensorSpec::contiguous(pteron_core::DType::Float32, &[1, 2, 1, 3]).unwrap();
    let out = elements_in_order(&view, &in_order(&planes, true)).unwrap().unwrap();
    assert_eq!(out.as_elements::<f32>(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

fn permute(b: &mut Builder, x: TensorId, dims: &[i64], shape: &[usize]) -> TensorId {
    b.call_with("aten::permute_copy.out", vec![Argument::Tensor(x), Argument::ints(dims)], shape)
}

fn view(b: &mut Builder, x: TensorId, shape: &[usize]) -> TensorId {
    let sizes: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
    b.call_with(ET_VIEW, vec![Argument::Tensor(x), Argument::ints(&sizes)], shape)
}

fn operators(b: &Builder) -> Vec<&str> {
    b.graph.live().map(|(_, n)| n.operator.as_str()).collect()
}

#[test]
fn rows_of_an_image_in_pixels_are_its_bytes() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let rows = permute(&mut b, y, &[0, 2, 3, 1], &[1, 28, 28, 64]);
    let normed = b.call("aten::softmax.out", &[rows], &[1, 28, 28, 64]);
    let back = permute(&mut b, normed, &[0, -1, 1, 2], IMAGE);
    let z = convolution(&mut b, back, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
    assert_eq!([y, back, z].map(|t| image(&b, t)), ["pixels"; 3]);
    let seen = ["aten::convolution.out", ET_VIEW, "aten::softmax.out", ET_VIEW, "aten::convolution.out"];
    assert_eq!(operators(&b), [&seen[..], &["aten::mean.out"]].concat());
}

#[test]
fn flattened_images_are_rows_too() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let flat = view(&mut b, y, &[1, 64, 784]);
    let rows = permute(&mut b, flat, &[0, 2, 1], &[1, 784, 64]);
    let normed = b.call("aten::softmax.out", &[rows], &[1, 784, 64]);
    let swapped = permute(&mut b, normed, &[0, 2, 1], &[1, 64, 784]);
    let back = view(&mut b, swapped, IMAGE);
    let z = convolution(&mut b, back, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
    // One view each, of what was computed.
    let read = |t: TensorId| b.graph.node(b.graph.producer(t).unwrap()).input(0);
    assert_eq!((read(rows), read(back)), (Some(y), Some(normed)));
    assert_eq!(operators(&b).iter().filter(|o| **o == ET_VIEW).count(), 2);
    assert!(!operators(&b).contains(&"aten::permute_copy.out"));
}

#[test]
fn a_flat_image_that_others_read_is_permuted_once() {
    let mut b = Builder::new();
    let rows = b.border(&[1, 784, 64]);
    let normed = b.call("aten::softmax.out", &[rows], &[1, 784, 64]);
    let swapped = permute(&mut b, normed, &[0, 2, 1], &[1, 64, 784]);
    b.call("aten::exp.out", &[swapped], &[1, 64, 784]);
    let back = view(&mut b, swapped, IMAGE);
    let z = convolution(&mut b, back, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    applied(&mut b);
    assert_eq!(operators(&b).iter().filter(|o| **o == "aten::permute_copy.out").count(), 1);
}

#[test]
fn rows_that_leave_the_run_are_copied_to_where_they_were() {
    let mut b = Builder::new();
    let x = b.border(&[1, 3, 28, 28]);
    let y = convolution(&mut b, x, &[64, 3, 3, 3], 1, IMAGE);
    let rows = permute(&mut b, y, &[0, 2, 3, 1], &[1, 28, 28, 64]);
    b.name("rows", rows).pin("rows", 1 << 20);
    applied(&mut b);
    assert_eq!(operators(&b), ["aten::convolution.out", "aten::permute_copy.out"]);
}

#[test]
fn an_image_of_rows_that_are_overwritten_is_copied() {
    let mut b = Builder::new();
    let rows = b.border(&[1, 784, 64]);
    let swapped = permute(&mut b, rows, &[0, 2, 1], &[1, 64, 784]);
    let other = b.call("aten::neg.out", &[swapped], &[1, 64, 784]);
    b.name("other", other).pin("other", 0);
    let back = view(&mut b, swapped, IMAGE);
    let z = convolution(&mut b, back, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    applied(&mut b);
    // Permuted before the rows are gone, and copied into pixels.
    let first = b.graph.node(b.graph.producer(swapped).unwrap());
    assert_eq!((first.operator.as_str(), first.input(0)), ("aten::permute_copy.out", Some(rows)));
    assert_eq!((image(&b, back), copies(&b)), ("planes", 1));
}

/// Dimensions of all permutes that are left.
fn permutes(b: &Builder) -> Vec<Vec<i64>> {
    let permutes = b.graph.live().filter(|(_, n)| n.operator == "aten::permute_copy.out");
    permutes.map(|(_, n)| n.ints(1).unwrap().to_vec()).collect()
}

#[test]
fn patches_are_cut_and_put_together_by_whole_pixels() {
    for batch in [1, 2] {
        let mut b = Builder::new();
        let shape = [batch, 64, 28, 28];
        let x = b.border(&shape);
        let y = convolution(&mut b, x, &[64, 1, 3, 3], 64, &shape);
        let z = convolution(&mut b, y, &[64, 64, 1, 1], 1, &shape);
        let v = view(&mut b, z, &[batch * 64 * 14, 2, 14, 2]);
        let p = permute(&mut b, v, &[0, 2, 1, 3], &[batch * 64 * 14, 14, 2, 2]);
        let v = view(&mut b, p, &[batch, 64, 196, 4]);
        let tokens = permute(&mut b, v, &[0, 3, 2, 1], &[batch, 4, 196, 64]);
        let r = b.call("aten::relu.out", &[tokens], &[batch, 4, 196, 64]);
        let p = permute(&mut b, r, &[0, 3, 2, 1], &[batch, 64, 196, 4]);
        let v = view(&mut b, p, &[batch * 64 * 14, 14, 2, 2]);
        let p = permute(&mut b, v, &[0, 2, 1, 3], &[batch * 64 * 14, 2, 14, 2]);
        let back = view(&mut b, p, &shape);
        let y = convolution(&mut b, back, &[64, 64, 1, 1], 1, &shape);
        let out = convolution(&mut b, y, &[64, 1, 3, 3], 64, &shape);
        b.name("out", out).pin("out", 1 << 20);
        assert!(applied(&mut b) > 0);
        assert_eq!([z, back].map(|t| image(&b, t)), ["pixels", "pixels"]);
        // Of rows, columns and channels, behind the images of a batch.
        let expected: [&[i64]; 2] = match batch {
            1 => [&[1, 3, 0, 2, 4], &[2, 0, 3, 1, 4]],
            _ => [&[0, 2, 4, 1, 3, 5], &[0, 3, 1, 4, 2, 5]],
        };
        assert_eq!(permutes(&b), expected, "{:?}", operators(&b));
        // The relu reads what was cut, and nothing else.
        assert_eq!(b.graph.tensor(tokens).spec.shape[..], [batch, 4, 196, 64]);
    }
}

#[test]
fn patches_of_an_image_that_is_overwritten_stay() {
    let mut b = Builder::new();
    let x = b.border(IMAGE);
    let v = view(&mut b, x, &[64 * 14, 2, 14, 2]);
    let p = permute(&mut b, v, &[0, 2, 1, 3], &[64 * 14, 14, 2, 2]);
    let other = b.call("aten::neg.out", &[p], &[64 * 14, 14, 2, 2]);
    b.name("other", other).pin("other", 0);
    let v = view(&mut b, p, &[1, 64, 196, 4]);
    permute(&mut b, v, &[0, 3, 2, 1], &[1, 4, 196, 64]);
    let y = convolution(&mut b, other, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, y, false, &[1, 64]);
    applied(&mut b);
    assert_eq!(permutes(&b), [[0, 2, 1, 3], [0, 3, 2, 1]], "{:?}", operators(&b));
}

#[test]
fn any_number_of_views_may_follow() {
    let mut b = Builder::new();
    let rows = b.border(&[1, 784, 64]);
    let swapped = permute(&mut b, rows, &[0, 2, 1], &[1, 64, 784]);
    let mut back = view(&mut b, swapped, IMAGE);
    for _ in 0..200_000 {
        back = view(&mut b, back, IMAGE);
    }
    let z = convolution(&mut b, back, &[64, 1, 3, 3], 64, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    assert!(applied(&mut b) > 0);
}

const SIGNAL: &[usize] = &[1, 64, 300];
const SAMPLES: &[usize] = &[1, 300, 64];

/// A convolution over one dimension.
fn over_samples(b: &mut Builder, x: TensorId, weight: &[usize], out: &[usize]) -> TensorId {
    let w = b.constant(weight);
    let flag = Argument::Literal(Literal::Bool(false), None);
    let ints = |v: usize| Argument::ints(&[v as i64]);
    let args = vec![
        Argument::Tensor(x),
        Argument::Tensor(w),
        Argument::none(),
        ints(1),
        ints(weight[2] / 2),
        ints(1),
        flag,
        ints(0),
        Argument::int(1),
    ];
    b.call_with("aten::convolution.out", args, out)
}

#[test]
fn samples_of_a_signal_are_its_bytes_on_the_way_out_and_back() {
    let mut b = Builder::new();
    let x = b.border(&[1, 80, 300]);
    let y = over_samples(&mut b, x, &[64, 80, 3], SIGNAL);
    let g = b.call("aten::gelu.out", &[y], SIGNAL);
    let samples = permute(&mut b, g, &[0, 2, 1], SAMPLES);
    let normed = b.call("aten::softmax.out", &[samples], SAMPLES);
    let back = permute(&mut b, normed, &[0, 2, 1], SIGNAL);
    let s = add(&mut b, back, g, SIGNAL);
    let z = over_samples(&mut b, s, &[64, 64, 1], SIGNAL);
    mean_of_samples(&mut b, z);
    assert!(applied(&mut b) > 0);
    assert_eq!(
        [x, y, g, samples, back, s, z].map(|t| image(&b, t)),
        ["planes", "pixels", "pixels", "planes", "pixels", "pixels", "pixels"]
    );
    assert_eq!(copies(&b), 0);
    assert!(!operators(&b).contains(&"aten::permute_copy.out"));
}

fn mean_of_samples(b: &mut Builder, x: TensorId) {
    let keep = Argument::Literal(Literal::Bool(false), None);
    let args = vec![Argument::Tensor(x), Argument::ints(&[2]), keep, Argument::none()];
    b.call_with("aten::mean.out", args, &[1, 64]);
}

#[test]
fn rows_without_a_convolution_beside_them_stay() {
    let mut b = Builder::new();
    let x = b.border(SAMPLES);
    let rows = b.call("aten::softmax.out", &[x], SAMPLES);
    let swapped = permute(&mut b, rows, &[0, 2, 1], SIGNAL);
    let y = b.call("aten::cumsum.out", &[swapped], SIGNAL);
    // Somewhere else.
    let other = b.border(&[1, 3, 28, 28]);
    let z = convolution(&mut b, other, &[64, 3, 3, 3], 1, IMAGE);
    mean(&mut b, z, false, &[1, 64]);
    applied(&mut b);
    assert_eq!([rows, swapped, y].map(|t| image(&b, t)), ["planes"; 3]);
    assert_eq!(operators(&b).iter().filter(|o| **o == "aten::permute_copy.out").count(), 1);
}

/// Of rank 3, pooling takes an image without its batch.
#[test]
fn a_single_image_is_no_signal() {
    let mut b = Builder::new();
    let x = b.border(&[1, 80, 300]);
    let y = over_samples(&mut b, x, &[64, 80, 3], SIGNAL);
    let pooled = b.call("aten::avg_pool2d.out", &[y], &[1, 32, 150]);
    b.call("aten::cumsum.out", &[pooled], &[1, 32, 150]);
    applied(&mut b);
    let read = b.graph.node(b.graph.producer(pooled).unwrap()).input(0).unwrap();
    assert_eq!([read, pooled].map(|t| image(&b, t)), ["planes"; 2]);
}
