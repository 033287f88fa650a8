//! Shapes of operators whose arguments belong together in a way that chance does not find.

use super::argument::Argument;
use super::contents::Contents;
use super::generate::Generator;
use pteron_core::{DType, Dims, Schema};

/// What tells the tensors of a family how long they are.
type Recipe = fn(&mut Generator<'_, '_>, &Schema, &mut [Argument]);

/// Families by a part of their name; the first that fits is taken.
const RECIPES: [(&str, Recipe); 25] = [
    ("convolution.out", convolution),
    ("max_pool", pooling),
    ("avg_pool", pooling),
    ("upsample", resampling),
    ("_bmm", batch_product),
    ("::bmm", batch_product),
    ("baddbmm", batch_product),
    ("addmm", product),
    ("::mm", product),
    ("linear", linear),
    ("addmv", matrix_vector),
    ("::mv", matrix_vector),
    ("native_layer_norm", layer_norm),
    ("native_group_norm", group_norm),
    ("batch_norm", batch_norm),
    ("embedding", embedding),
    ("scaled_dot_product", attention),
    ("linalg", square),
    ("cholesky", square),
    ("geqrf", square),
    ("lu_unpack", square),
    ("quantize_per", quantized),
    ("choose_qparams", floats),
    ("backward", floats),
    ("fft", floats),
];

/// Changes `args` so that they fit together, if the operator is of a known family.
pub fn apply(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let recipe = RECIPES.iter().find(|(part, _)| schema.name.contains(part));
    if let Some((_, recipe)) = recipe {
        recipe(g, schema, args);
    }
}

/// Puts a tensor of `shape` in place of argument `name`, if that is a tensor.
fn put(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument], name: &str, shape: &[usize]) {
    let Some(at) = schema.args.iter().position(|a| a.name == name) else { return };
    if let (Some(Argument::Tensor(t)), Ok(shape)) = (args.get(at), Dims::new(shape)) {
        let (dtype, is_constant) = (t.spec.dtype, t.is_constant && !schema.args[at].is_output);
        let mut new = g.tensor(dtype, shape, g.contents);
        new.is_constant = is_constant && !new.spec.is_dynamic();
        args[at] = Argument::Tensor(new);
    }
}

fn put_ints(schema: &Schema, args: &mut [Argument], name: &str, list: &[i64]) {
    let at = schema.args.iter().position(|a| a.name == name);
    if let Some(arg @ Argument::Ints(_)) = at.and_then(|at| args.get_mut(at)) {
        *arg = Argument::Ints(list.to_vec());
    }
}

fn put_int(schema: &Schema, args: &mut [Argument], name: &str, value: usize) {
    let at = schema.args.iter().position(|a| a.name == name);
    if let Some(arg @ Argument::Int(_)) = at.and_then(|at| args.get_mut(at)) {
        *arg = Argument::Int(value as i64);
    }
}

fn extent(g: &mut Generator<'_, '_>) -> usize {
    g.choices.pick(&[3, 4, 1, 8, 5, 2, 7, 16, 17, 33, 0])
}

fn convolution(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let spatial = g.choices.pick(&[2, 2, 1, 3]);
    let groups = g.choices.pick(&[1, 1, 2, 4]);
    let per_group = g.choices.pick(&[1, 2, 4, 8]);
    let channels = groups * per_group;
    let outputs = groups * g.choices.pick(&[1, 2, 8, 16]);
    let is_transposed = g.choices.chance(25);
    let batch = g.choices.pick(&[1, 2, 0]);
    let mut input = vec![batch, channels];
    let mut weight =
        if is_transposed { vec![channels, outputs / groups] } else { vec![outputs, channels / groups] };
    for _ in 0..spatial {
        input.push(g.choices.pick(&[5, 7, 8, 4, 12, 3, 1, 0]));
        weight.push(g.choices.pick(&[3, 1, 2, 4, 5, 7]));
    }
    let mut small = |from: &[i64]| -> Vec<i64> { (0..spatial).map(|_| g.choices.pick(from)).collect() };
    let lists = [
        ("stride", small(&[1, 1, 2, 3, 0, -1])),
        ("padding", small(&[0, 1, 2, 3, -1])),
        ("dilation", small(&[1, 1, 2, 3, 0])),
        ("output_padding", small(&[0, 0, 1, -1])),
    ];
    for (name, list) in lists {
        put_ints(schema, args, name, &list);
    }
    put(g, schema, args, "input", &input);
    put(g, schema, args, "weight", &weight);
    put(g, schema, args, "bias", &[outputs]);
    put_int(schema, args, "groups", groups);
    let at = schema.args.iter().position(|a| a.name == "transposed");
    if let Some(arg) = at.and_then(|at| args.get_mut(at)) {
        *arg = Argument::Bool(is_transposed);
    }
}

fn pooling(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let spatial = ["1d", "2d", "3d"].iter().position(|d| schema.name.contains(d)).map_or(2, |d| d + 1);
    let mut input = vec![g.choices.pick(&[1, 2]), g.choices.pick(&[3, 1, 8, 16])];
    for _ in 0..spatial {
        input.push(g.choices.pick(&[6, 8, 5, 9, 3, 1]));
    }
    if g.choices.chance(20) {
        input.remove(0);
    }
    let mut small = |from: &[i64]| -> Vec<i64> { (0..spatial).map(|_| g.choices.pick(from)).collect() };
    let lists = [
        ("kernel_size", small(&[2, 3, 1, 5, 0])),
        ("stride", small(&[1, 2, 3, 0])),
        ("padding", small(&[0, 1, 2, -1])),
        ("dilation", small(&[1, 2, 0])),
        ("output_size", small(&[1, 2, 3, 7, 0])),
    ];
    for (name, list) in lists {
        put_ints(schema, args, name, &list);
    }
    put(g, schema, args, "self", &input);
}

fn resampling(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let spatial = ["1d", "2d", "3d"].iter().position(|d| schema.name.contains(d)).map_or(2, |d| d + 1);
    let mut input = vec![g.choices.pick(&[1, 2]), g.choices.pick(&[3, 1, 8])];
    input.extend((0..spatial).map(|_| g.choices.pick(&[4, 5, 1, 7, 0])));
    let sizes: Vec<i64> = (0..spatial).map(|_| g.choices.pick(&[8, 3, 1, 10, 0, -2])).collect();
    put_ints(schema, args, "output_size", &sizes);
    put(g, schema, args, "input", &input);
    put(g, schema, args, "self", &input);
}

fn product(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (m, k, n) = (extent(g), extent(g), extent(g));
    let rows = if g.choices.chance(60) { vec![m, n] } else { vec![n] };
    let first = if schema.name.contains("addmm") { "mat1" } else { "self" };
    put(g, schema, args, "self", &rows);
    put(g, schema, args, first, &[m, k]);
    put(g, schema, args, "mat2", &[k, n]);
}

fn batch_product(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (b, m, k, n) = (extent(g), extent(g), extent(g), extent(g));
    let first = if schema.name.contains("add") { "batch1" } else { "self" };
    put(g, schema, args, "self", &[b, m, n]);
    put(g, schema, args, first, &[b, m, k]);
    put(g, schema, args, "batch2", &[b, k, n]);
    put(g, schema, args, "mat2", &[b, k, n]);
}

fn linear(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (k, n) = (extent(g), extent(g));
    let mut input: Vec<usize> = (0..g.choices.below(3)).map(|_| extent(g)).collect();
    input.push(k);
    put(g, schema, args, "input", &input);
    put(g, schema, args, "weight", &[n, k]);
    put(g, schema, args, "bias", &[n]);
}

fn matrix_vector(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (m, k) = (extent(g), extent(g));
    let matrix = if schema.name.contains("add") { "mat" } else { "self" };
    put(g, schema, args, "self", &[m]);
    put(g, schema, args, matrix, &[m, k]);
    put(g, schema, args, "vec", &[k]);
}

fn layer_norm(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let rows: Vec<usize> = (0..g.choices.below(3)).map(|_| extent(g)).collect();
    let normalized: Vec<usize> = (0..1 + g.choices.below(2)).map(|_| extent(g)).collect();
    put(g, schema, args, "input", &[rows, normalized.clone()].concat());
    put(g, schema, args, "weight", &normalized);
    put(g, schema, args, "bias", &normalized);
    let list: Vec<i64> = normalized.iter().map(|n| *n as i64).collect();
    put_ints(schema, args, "normalized_shape", &list);
}

fn group_norm(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (batch, groups, each) =
        (g.choices.pick(&[1, 2, 0]), g.choices.pick(&[1, 2, 4]), g.choices.pick(&[1, 2, 3]));
    let (height, width) = (extent(g), extent(g));
    let channels = groups * each;
    put(g, schema, args, "input", &[batch, channels, height, width]);
    put(g, schema, args, "weight", &[channels]);
    put(g, schema, args, "bias", &[channels]);
    for (name, value) in [("N", batch), ("C", channels), ("HxW", height * width), ("group", groups)] {
        put_int(schema, args, name, value);
    }
}

fn batch_norm(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let channels = extent(g);
    let mut input = vec![g.choices.pick(&[1, 2, 0]), channels];
    input.extend((0..g.choices.below(3)).map(|_| extent(g)));
    put(g, schema, args, "input", &input);
    for name in ["weight", "bias", "running_mean", "running_var"] {
        put(g, schema, args, name, &[channels]);
    }
}

fn embedding(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (rows, width) = (g.choices.pick(&[4, 8, 1, 0]), extent(g));
    put(g, schema, args, "weight", &[rows, width]);
    if g.choices.chance(50) {
        g.contents = Contents::Indices;
    }
}

fn attention(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let (batch, heads) = (g.choices.pick(&[1, 2, 0]), g.choices.pick(&[2, 1, 4]));
    let (rows, keys, width) = (extent(g), extent(g), g.choices.pick(&[8, 4, 16, 1]));
    put(g, schema, args, "query", &[batch, heads, rows, width]);
    put(g, schema, args, "key", &[batch, heads, keys, width]);
    put(g, schema, args, "value", &[batch, heads, keys, width]);
    put(g, schema, args, "attn_mask", &[rows, keys]);
}

/// Square matrices of float32 or float64, and what belongs to them.
fn square(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    g.dtype = g.choices.pick(&[DType::Float32, DType::Float64]);
    let n = g.choices.pick(&[3, 2, 4, 1, 7, 0]);
    let batch: Vec<usize> = (0..g.choices.below(2)).map(|_| g.choices.pick(&[2, 1, 0])).collect();
    for (declared, arg) in schema.args.iter().zip(args) {
        let Argument::Tensor(t) = arg else { continue };
        let is_pivots = declared.name.contains("piv") || declared.name == "info";
        let dtype = if is_pivots { DType::Int32 } else { g.dtype };
        let shape = if is_pivots { [&*batch, &[n]].concat() } else { [&*batch, &[n, n]].concat() };
        if let Ok(shape) = Dims::new(&shape) {
            *t = g.tensor(dtype, shape, g.contents);
        }
    }
}

/// All tensors of one float type.
fn floats(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    g.dtype = g.choices.pick(&[DType::Float32, DType::Float64, DType::Float16, DType::BFloat16]);
    for (declared, arg) in schema.args.iter().zip(args) {
        if let Argument::Tensor(t) = arg {
            let is_index = declared.name.contains("ind");
            let dtype = if is_index { DType::Int64 } else { g.dtype };
            *t = g.tensor(dtype, t.spec.shape, if is_index { Contents::Indices } else { g.contents });
        }
    }
}

/// Quantised elements, their scales and zero points.
fn quantized(g: &mut Generator<'_, '_>, schema: &Schema, args: &mut [Argument]) {
    let dtype = g.choices.pick(&[DType::Int8, DType::UInt8, DType::Int16, DType::Int32]);
    let is_back = schema.name.contains("dequantize");
    for (declared, arg) in schema.args.iter().zip(args) {
        match (declared.name.as_str(), arg) {
            ("input", Argument::Tensor(t)) => {
                let dtype = if is_back { dtype } else { DType::Float32 };
                *t = g.tensor(dtype, t.spec.shape, g.contents);
            }
            ("out", Argument::Tensor(t)) => {
                let dtype = if is_back { DType::Float32 } else { dtype };
                *t = g.tensor(dtype, t.spec.shape, Contents::Small);
            }
            ("scale" | "scales", Argument::Tensor(t)) => {
                *t = g.tensor(DType::Float64, t.spec.shape, Contents::Fractions);
            }
            ("zero_point" | "zero_points", Argument::Tensor(t)) => {
                *t = g.tensor(DType::Int64, t.spec.shape, Contents::Indices);
            }
            ("quant_min", arg @ Argument::Int(_)) => *arg = Argument::Int(0),
            ("quant_max", arg @ Argument::Int(_)) => *arg = Argument::Int(127),
            ("dtype" | "out_dtype", arg @ Argument::Int(_)) => *arg = Argument::Int(i64::from(dtype.code())),
            _ => {}
        }
    }
}
