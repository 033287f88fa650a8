//! Gradients of a convolution with respect to its input, its weight and its bias.
//!
//! Shape: those of input and weight, and `[channels]` for the bias. Dtype: all operands the same float;
//! the gradients of weight and bias accumulate in float64. The gradient of the input is the transposed
//! convolution of the incoming gradient with the same weight (a plain one where the convolution itself is
//! transposed). Edge cases: a result that `output_mask` does not ask for is left as it is. `products` is the fast kernel.

use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::convolution::{Geometry, convolve_with, geometry, strides};
use crate::reduction::plain::LaneSum;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_same;
use crate::strided::copy::zero;
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};

#[cfg(test)]
#[path = "convolution_backward/tests.rs"]
mod fast_tests;
mod products;
mod tasks;

const GRAD: usize = 0;
const X: usize = 1;
const W: usize = 2;
const MASK: usize = 10;
const OUT: usize = 11;

fn mask(args: &Args<'_>) -> Result<[bool; 3]> {
    let mask = args.bool_list(MASK)?;
    mask.try_into().map_err(|_| {
        Error::kernel("there are three gradients")
            .argument("output_mask")
            .expected("3")
            .got(mask.len().to_string())
    })
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let g = geometry(&view, X)?;
    check_same("grad_output", &g.shape, view.tensor(GRAD)?.shape())?;
    let channels = g.outputs * g.groups;
    if let Some(sizes) = view.optional_int_list(3)? {
        check_same("bias_sizes", &[channels], &sizes.to_dims()?)?;
    }
    let (x, w) = (*view.tensor(X)?.shape(), *view.tensor(W)?.shape());
    let mask = mask(&view)?;
    for (i, shape) in [&x[..], &w[..], &[channels]].into_iter().enumerate() {
        if mask[i] {
            args.resize(OUT + i, shape)?;
        }
    }
    Ok(())
}

/// The geometry of the convolution that takes the incoming gradient to that of the input.
fn backwards(g: &Geometry, args: &Args<'_>) -> Result<Geometry> {
    Ok(Geometry {
        inputs: g.outputs,
        outputs: g.inputs,
        size: g.out,
        out: g.size,
        is_transposed: !g.is_transposed,
        shape: *args.tensor(X)?.shape(),
        ..*g
    })
}

fn input_gradient<C: Compute>(args: &Args<'_>) -> Result<()> {
    let g = backwards(&geometry(args, X)?, args)?;
    let (grad, w) = (Reader::<C>::new(args.tensor(GRAD)?)?, Reader::<C>::new(args.tensor(W)?)?);
    convolve_with(g, grad, w, None, Writer::new(args.output(OUT)?)?)
}

/// The two tensors whose products make up the gradient of the weight: a kernel tap pairs every element of
/// the sparse one with an element of the dense one, `stride` apart.
struct Pairing<'a> {
    g: Geometry,
    sparse: Reader<'a, f64>,
    dense: Reader<'a, f64>,
    /// Extents of both, and channels per group.
    sizes: [[isize; 3]; 2],
    channels: [usize; 2],
    at: [([isize; 2], [isize; 3]); 2],
}

impl<'a> Pairing<'a> {
    fn new(args: &Args<'a>) -> Result<Self> {
        let g = geometry(args, X)?;
        let (grad, x) = (Reader::new(args.tensor(GRAD)?)?, Reader::new(args.tensor(X)?)?);
        let (sparse, dense) = if g.is_transposed { (x, grad) } else { (grad, x) };
        let at = [strides(sparse.meta().strides()), strides(dense.meta().strides())];
        let (sizes, channels) = if g.is_transposed {
            ([g.size, g.out], [g.inputs, g.outputs])
        } else {
            ([g.out, g.size], [g.outputs, g.inputs])
        };
        Ok(Pairing { g, sparse, dense, sizes, channels, at })
    }

    /// The sparse elements of dimension `d` that tap `k` pairs with an element: first, one after the last,
    /// and the partner of the first.
    fn span(&self, d: usize, k: isize) -> (isize, isize, isize) {
        let shift = k * self.g.dilation[d] - self.g.padding[d];
        let stride = self.g.stride[d];
        let first = (-shift + stride - 1).div_euclid(stride).max(0);
        let end = ((self.sizes[1][d] - 1 - shift).div_euclid(stride) + 1).min(self.sizes[0][d]);
        (first, end, first * stride + shift)
    }

    /// The gradient of tap `k` between a channel of the sparse and one of the dense tensor.
    fn tap(&self, channels: [usize; 2], k: [isize; 3]) -> Result<f64> {
        let mut sum = LaneSum::default();
        let spans = [0, 1, 2].map(|d| self.span(d, k[d]));
        let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
        let mut products = [0.0; BLOCK];
        for n in 0..self.g.batch as isize {
            let start = |i: usize| n * self.at[i].0[0] + channels[i] as isize * self.at[i].0[1];
            for d in spans[0].0..spans[0].1 {
                for h in spans[1].0..spans[1].1 {
                    let partner = |i: usize, at: isize| spans[i].2 + (at - spans[i].0) * self.g.stride[i];
                    let sparse = start(0) + d * self.at[0].1[0] + h * self.at[0].1[1];
                    let dense = start(1) + partner(0, d) * self.at[1].1[0] + partner(1, h) * self.at[1].1[1];
                    for first in (spans[2].0..spans[2].1).step_by(BLOCK) {
                        let count = (spans[2].1 - first).min(BLOCK as isize) as usize;
                        let (s, t) = (self.at[0].1[2], self.at[1].1[2]);
                        let a = self.sparse.block(sparse + first * s, s, count, &mut left)?;
                        let from = dense + partner(2, first) * t;
                        let b = self.dense.block(from, t * self.g.stride[2], count, &mut right)?;
                        for (p, (a, b)) in products.iter_mut().zip(a.iter().zip(b)) {
                            *p = a * b;
                        }
                        sum.add(&products[..count], |v| v);
                    }
                }
            }
        }
        Ok(sum.total())
    }
}

fn weight_gradient(args: &Args<'_>) -> Result<()> {
    let pairing = Pairing::new(args)?;
    let mut out = Writer::<f64>::new(args.output(OUT + 1)?)?;
    let (at, spatial) = strides(out.meta().strides());
    let [rows, columns] = pairing.channels;
    let kernel = pairing.g.kernel;
    for row in 0..pairing.g.groups * rows {
        for column in 0..columns {
            let base = row as isize * at[0] + column as isize * at[1];
            let channels = [row, row / rows * columns + column];
            for d in 0..kernel[0] {
                for h in 0..kernel[1] {
                    for w in 0..kernel[2] {
                        let sum = pairing.tap(channels, [d, h, w])?;
                        out.write(base + d * spatial[0] + h * spatial[1] + w * spatial[2], 1, &[sum])?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn bias_gradient(args: &Args<'_>) -> Result<()> {
    let grad = Reader::<f64>::new(args.tensor(GRAD)?)?;
    let mut out = Writer::<f64>::new(args.output(OUT + 2)?)?;
    let (shape, from) = (grad.meta().shape(), grad.meta().strides());
    let members = Walk::new((0..shape.len()).filter(|d| *d != 1), shape, &signed(from));
    let mut buffer = [0.0; BLOCK];
    for c in 0..shape[1] {
        let mut sum = LaneSum::default();
        grad.blocks(&members, (c * from[1]) as isize, &mut buffer, |_, block| {
            sum.add(block, |v| v);
            Ok(())
        })?;
        out.put(c, sum.total())?;
    }
    Ok(())
}

fn run(args: &Args<'_>) -> Result<()> {
    let mask = mask(args)?;
    // No channels, or nothing to add up.
    let is_empty = args.tensor(GRAD)?.numel() == 0;
    for i in (0..3).filter(|i| is_empty && mask[*i]) {
        zero(args.output(OUT + i)?);
    }
    if is_empty {
        return Ok(());
    }
    match (mask[0], Class::of(args.tensor(X)?.dtype())) {
        (true, Some(Class::F64)) => input_gradient::<f64>(args)?,
        (true, _) => input_gradient::<f32>(args)?,
        _ => {}
    }
    if mask[1] {
        weight_gradient(args)?;
    }
    if mask[2] { bias_gradient(args) } else { Ok(()) }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, X)?;
    for i in [GRAD, W, OUT, OUT + 1, OUT + 2] {
        if let Some(spec) = ctx.tensor(i)
            && spec.dtype != dtype
        {
            return Err(Error::kernel("a convolution needs operands of one dtype")
                .expected(dtype.name())
                .got(spec.dtype.name()));
        }
    }
    if !dtype.is_float() || Class::of(dtype).is_none() {
        return Err(Error::kernel("the operator needs floats").got(dtype.name()));
    }
    Routine::prepare(bind, |args, _| run(args))
}

/// convolution_backward.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::convolution_backward.out(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    prepare,
)
.fast("products", products::prepare)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    fn arguments(grad: &[f32], mask: Vec<bool>) -> Vec<Arg> {
        let output = |shape: &[usize]| -> Arg { Tensor::output(DType::Float32, shape).into() };
        vec![
            Tensor::of(&[1, 1, grad.len()], grad).into(),
            Tensor::of(&[1, 1, 4], &[1f32, 2.0, 3.0, 4.0]).into(),
            Tensor::of(&[1, 1, 2], &[1f32, 10.0]).into(),
            vec![1].into(),
            vec![2].into(),
            vec![0].into(),
            vec![1].into(),
            false.into(),
            vec![0].into(),
            1i64.into(),
            Arg::BoolList(mask),
            output(&[1, 1, 4]),
            output(&[1, 1, 2]),
            output(&[1]),
        ]
    }

    #[test]
    fn all_three_gradients() {
        let r = call("aten::convolution_backward.out", &arguments(&[1.0, 5.0], vec![true; 3])).unwrap();
        let values = |i: usize| match &r[i] {
            Arg::Tensor(t) => t.values::<f32>(),
            _ => panic!("no tensor"),
        };
        assert_eq!(values(11), [1.0, 10.0, 5.0, 50.0]);
        assert_eq!(values(12), [16.0, 22.0]);
        assert_eq!(values(13), [6.0]);
    }

    #[test]
    fn a_gradient_of_another_shape_is_refused() {
        let run =
            |grad: &[f32], mask| error_text(call("aten::convolution_backward.out", &arguments(grad, mask)));
        assert!(run(&[1.0; 3], vec![true; 3]).contains("grad_output"));
        assert!(run(&[1.0; 2], vec![true; 2]).contains("three gradients"));
    }
}
