//! Convolution in one, two or three dimensions, plain and transposed, with groups.
//!
//! Shape: PyTorch's formula per spatial dimension. Dtype: all operands the same. Edge cases: empty
//! batches; kernels larger than the padded input, zero strides and odd groups are errors.

use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_rank, check_same};
use pteron_core::{Args, DType, Dims, Error, PrepareContext, Result};

/// Geometry of a call; spatial dimensions are filled up to three with leading ones.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) batch: usize,
    pub(crate) groups: usize,
    /// Input and output channels of one group.
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) size: [isize; 3],
    pub(crate) out: [isize; 3],
    pub(crate) kernel: [isize; 3],
    pub(crate) stride: [isize; 3],
    pub(crate) padding: [isize; 3],
    pub(crate) dilation: [isize; 3],
    pub(crate) is_transposed: bool,
    /// Shape of the output.
    pub(crate) shape: Dims,
}

/// The integers of argument `i`, one for each of `n` spatial dimensions, each at least `least`.
fn per_dimension(
    args: &Args<'_>,
    i: usize,
    name: &str,
    n: usize,
    least: i64,
    fill: isize,
) -> Result<[isize; 3]> {
    let list = args.int_list(i)?;
    let mut out = [fill; 3];
    if list.len() != n && list.len() != 1 {
        return Err(Error::kernel("a list must have one entry per spatial dimension")
            .argument(name)
            .expected(n.to_string())
            .got(list.len().to_string()));
    }
    for d in 0..n {
        let v = list.get(if list.len() == 1 { 0 } else { d })?;
        // The upper limit keeps every product below in range.
        if v < least || v > i64::from(i32::MAX) {
            return Err(Error::kernel("a value is out of range")
                .argument(name)
                .expected(format!("between {least} and {}", i32::MAX))
                .got(v.to_string()));
        }
        out[3 - n + d] = v as isize;
    }
    Ok(out)
}

fn spatial(extents: &[usize]) -> Result<[isize; 3]> {
    let mut out = [1; 3];
    let lead = 3 - extents.len();
    for (d, extent) in extents.iter().enumerate() {
        out[lead + d] = i32::try_from(*extent)
            .map_err(|_| Error::kernel("a spatial extent is too large").got(extent.to_string()))?
            as isize;
    }
    Ok(out)
}

/// The geometry of the convolution of argument `first`, which the weight, the bias or its sizes, and the
/// options follow; its bias is not looked at.
pub(crate) fn geometry(args: &Args<'_>, first: usize) -> Result<Geometry> {
    let (x, w) = (args.tensor(first)?, args.tensor(first + 1)?);
    let n = x.rank().wrapping_sub(2);
    if !(1..=3).contains(&n) {
        return Err(Error::kernel("the input needs a batch, channels and one to three spatial dimensions")
            .argument("input")
            .got(x.shape().to_string()));
    }
    check_rank("the weight", x.rank(), w.shape())?;
    let is_transposed = args.bool(first + 6)?;
    if w.shape()[0] == 0 || (is_transposed && w.shape()[1] == 0) {
        return Err(Error::kernel("the weight is empty").argument("weight").got(w.shape().to_string()));
    }
    let groups = args.int(first + 8)?;
    let channels = x.shape()[1];
    let per_group =
        usize::try_from(groups).ok().filter(|g| *g > 0 && channels % g == 0 && w.shape()[0] % g == 0);
    let Some(groups) = per_group else {
        return Err(Error::kernel("groups must divide the channels")
            .argument("groups")
            .expected(format!("a divisor of {channels} and {}", w.shape()[0]))
            .got(groups.to_string()));
    };
    let (inputs, outputs, fits) = if is_transposed {
        (channels / groups, w.shape()[1], w.shape()[0] == channels)
    } else {
        (w.shape()[1], w.shape()[0] / groups, w.shape()[1] == channels / groups)
    };
    if !fits {
        return Err(Error::kernel("the weight does not fit the input's channels")
            .argument("weight")
            .got(format!("{} for input {} in {groups} groups", w.shape(), x.shape())));
    }
    let mut g = Geometry {
        batch: x.shape()[0],
        groups,
        inputs,
        outputs,
        size: spatial(&x.shape()[2..])?,
        out: [1; 3],
        kernel: spatial(&w.shape()[2..])?,
        stride: per_dimension(args, first + 3, "stride", n, 1, 1)?,
        padding: per_dimension(args, first + 4, "padding", n, 0, 0)?,
        dilation: per_dimension(args, first + 5, "dilation", n, 1, 1)?,
        is_transposed,
        shape: *x.shape(),
    };
    let extra = per_dimension(args, first + 7, "output_padding", n, 0, 0)?;
    g.fill_output(n, extra)?;
    Ok(g)
}

impl Geometry {
    fn fill_output(&mut self, n: usize, extra: [isize; 3]) -> Result<()> {
        self.shape[1] = self.outputs * self.groups;
        for (d, extra) in extra.iter().enumerate().skip(3 - n) {
            let reach = self.dilation[d] * (self.kernel[d] - 1);
            let extent = if self.is_transposed {
                (self.size[d] - 1) * self.stride[d] - 2 * self.padding[d] + reach + extra + 1
            } else {
                let span = self.size[d] + 2 * self.padding[d] - reach - 1;
                if span < 0 { -1 } else { span / self.stride[d] + 1 }
            };
            if extent < 0 || (extent == 0 && self.size[d] > 0) || self.kernel[d] == 0 {
                return Err(Error::kernel("the kernel is larger than the padded input")
                    .argument("weight")
                    .got(format!(
                        "kernel {:?}, input {:?}, padding {:?}",
                        &self.kernel[3 - n..],
                        &self.size[3 - n..],
                        &self.padding[3 - n..]
                    )));
            }
            self.out[d] = extent;
            self.shape[2 + d - (3 - n)] = extent as usize;
        }
        Ok(())
    }
}

/// Strides of `[N, C, spatial]` with the spatial ones filled up to three.
pub(crate) fn strides(strides: &[usize]) -> ([isize; 2], [isize; 3]) {
    let mut out = [0; 3];
    let n = strides.len() - 2;
    for d in 0..n {
        out[3 - n + d] = strides[2 + d] as isize;
    }
    ([strides[0] as isize, strides[1] as isize], out)
}

/// Operands of a call.
struct Operands<'a, C: Compute> {
    g: Geometry,
    x: Reader<'a, C>,
    w: Reader<'a, C>,
    x_at: ([isize; 2], [isize; 3]),
    w_at: ([isize; 2], [isize; 3]),
}

impl<C: Compute> Operands<'_, C> {
    /// Offset of a kernel tap and of the first element of an input plane.
    fn bases(&self, n: usize, group: usize, output: usize, input: usize) -> (isize, isize) {
        let g = &self.g;
        let x = n as isize * self.x_at.0[0] + (group * g.inputs + input) as isize * self.x_at.0[1];
        let (first, second) = if g.is_transposed {
            (group * g.inputs + input, output)
        } else {
            (group * g.outputs + output, input)
        };
        (x, first as isize * self.w_at.0[0] + second as isize * self.w_at.0[1])
    }

    /// The input row (in dimension `d`) that tap `k` of output row `o` reads, if there is one.
    #[inline(always)]
    fn source(&self, d: usize, o: isize, k: isize) -> Option<isize> {
        let g = &self.g;
        let at = if g.is_transposed {
            let at = o + g.padding[d] - k * g.dilation[d];
            if at % g.stride[d] != 0 {
                return None;
            }
            at / g.stride[d]
        } else {
            o * g.stride[d] - g.padding[d] + k * g.dilation[d]
        };
        (at >= 0 && at < g.size[d]).then_some(at)
    }

    /// Adds every contribution to the outputs `first..first + sums.len()` of one output row.
    fn row(&self, place: [usize; 3], rows: [isize; 2], first: isize, sums: &mut [C]) -> Result<()> {
        let [n, group, output] = place;
        for input in 0..self.g.inputs {
            let (x, w) = self.bases(n, group, output, input);
            for kd in 0..self.g.kernel[0] {
                let Some(id) = self.source(0, rows[0], kd) else { continue };
                for kh in 0..self.g.kernel[1] {
                    let Some(ih) = self.source(1, rows[1], kh) else { continue };
                    let x = x + id * self.x_at.1[0] + ih * self.x_at.1[1];
                    let w = w + kd * self.w_at.1[0] + kh * self.w_at.1[1];
                    self.taps(x, w, first, sums)?;
                }
            }
        }
        Ok(())
    }

    /// The taps of one kernel row on one input row.
    fn taps(&self, x: isize, w: isize, first: isize, sums: &mut [C]) -> Result<()> {
        let g = &self.g;
        let mut buffer = [C::ZERO; BLOCK];
        let last = first + sums.len() as isize - 1;
        for kw in 0..g.kernel[2] {
            let weight = self.w.get((w + kw * self.w_at.1[2]) as usize)?;
            let shift = kw * g.dilation[2] - g.padding[2];
            if g.is_transposed {
                // Output o receives input i where o = i * stride + shift.
                let low = (first - shift).div_euclid(g.stride[2])
                    + isize::from((first - shift).rem_euclid(g.stride[2]) != 0);
                let high = (last - shift).div_euclid(g.stride[2]).min(g.size[2] - 1);
                for i in low.max(0)..=high {
                    let v = self.x.get((x + i * self.x_at.1[2]) as usize)?;
                    let o = (i * g.stride[2] + shift - first) as usize;
                    sums[o] = sums[o].plus(weight.times(v));
                }
                continue;
            }
            // Output o reads input o * stride + shift: the o for which that lies inside.
            let low = (-shift + g.stride[2] - 1).div_euclid(g.stride[2]).max(first);
            let high = (g.size[2] - 1 - shift).div_euclid(g.stride[2]).min(last);
            if low > high {
                continue;
            }
            let count = (high - low + 1) as usize;
            let at = x + (low * g.stride[2] + shift) * self.x_at.1[2];
            let block = self.x.block(at, g.stride[2] * self.x_at.1[2], count, &mut buffer)?;
            let sums = &mut sums[(low - first) as usize..];
            for (sum, v) in sums.iter_mut().zip(block) {
                *sum = sum.plus(weight.times(*v));
            }
        }
        Ok(())
    }
}

fn convolve<C: Compute>(args: &Args<'_>) -> Result<()> {
    let (x, w) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<C>::new(args.tensor(1)?)?);
    let bias = args.optional_tensor(2)?.map(Reader::<C>::new).transpose()?;
    convolve_with(geometry(args, 0)?, x, w, bias, Writer::<C>::new(args.output(9)?)?)
}

/// The convolution of `x` with `w`, written to `y`.
pub(crate) fn convolve_with<C: Compute>(
    g: Geometry,
    x: Reader<'_, C>,
    w: Reader<'_, C>,
    bias: Option<Reader<'_, C>>,
    mut y: Writer<'_, C>,
) -> Result<()> {
    let (y_at, y_spatial) = strides(y.meta().strides());
    let (x_at, w_at) = (strides(x.meta().strides()), strides(w.meta().strides()));
    let operands = Operands { g, x, w, x_at, w_at };
    let g = &operands.g;
    let mut sums = [C::ZERO; BLOCK];
    for n in 0..g.batch {
        for channel in 0..g.groups * g.outputs {
            let place = [n, channel / g.outputs, channel % g.outputs];
            let start = bias.as_ref().map_or(Ok(C::ZERO), |b| b.get(channel))?;
            for od in 0..g.out[0] {
                for oh in 0..g.out[1] {
                    let base = n as isize * y_at[0]
                        + channel as isize * y_at[1]
                        + od * y_spatial[0]
                        + oh * y_spatial[1];
                    for first in (0..g.out[2]).step_by(BLOCK) {
                        let sums = &mut sums[..(g.out[2] - first).min(BLOCK as isize) as usize];
                        sums.fill(start);
                        operands.row(place, [od, oh], first, sums)?;
                        y.write(base + first * y_spatial[2], y_spatial[2], sums)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, 0)?;
    for i in [1, 2, 9] {
        if let Some(spec) = ctx.tensor(i)
            && spec.dtype != dtype
        {
            return Err(Error::kernel("a convolution needs operands of one dtype")
                .expected(dtype.name())
                .got(spec.dtype.name()));
        }
    }
    if dtype == DType::Bool || Class::of(dtype).is_none() {
        return Err(unsupported(dtype));
    }
    Routine::prepare(
        |args| {
            let view = args.args();
            let g = geometry(&view, 0)?;
            if let Some(bias) = view.optional_tensor(2)? {
                check_same("bias", &[g.outputs * g.groups], bias.shape())?;
            }
            args.resize(9, &g.shape)
        },
        |args, _| match Class::of(args.tensor(0)?.dtype()) {
            Some(Class::F64) => convolve::<f64>(args),
            Some(Class::I64) => convolve::<i64>(args),
            _ => convolve::<f32>(args),
        },
    )
}

/// Convolution.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{DType, Result};

    fn conv(
        x: Tensor,
        w: Tensor,
        lists: [&[i64]; 4],
        transposed: bool,
        groups: i64,
        out: &[usize],
    ) -> Result<Tensor> {
        let args = [
            x.into(),
            w.into(),
            Arg::None,
            lists[0].to_vec().into(),
            lists[1].to_vec().into(),
            lists[2].to_vec().into(),
            transposed.into(),
            lists[3].to_vec().into(),
            groups.into(),
        ];
        run_out("aten::convolution.out", &args, DType::Float32, out)
    }

    #[test]
    fn one_dimension_with_stride_padding_and_dilation() {
        let x = Tensor::of(&[1, 1, 5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
        let w = Tensor::of(&[1, 1, 2], &[1f32, 10.0]);
        let y = conv(x, w, [&[2], &[1], &[2], &[0]], false, 1, &[1, 1, 3]).unwrap();
        assert_eq!(y.values::<f32>(), [20.0, 42.0, 4.0]);
    }

    #[test]
    fn depthwise_in_channels_last() {
        let x =
            Tensor::of(&[1, 2, 2, 2], &[1f32, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]).in_order(&[0, 2, 3, 1]);
        let w = Tensor::of(&[2, 1, 2, 2], &[1f32, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        let y = conv(x, w, [&[1, 1], &[0, 0], &[1, 1], &[0, 0]], false, 2, &[1, 2, 1, 1]).unwrap();
        assert_eq!(y.values::<f32>(), [10.0, 10.0]);
    }

    #[test]
    fn transposed_spreads_the_input() {
        let x = Tensor::of(&[1, 1, 2], &[1f32, 2.0]);
        let w = Tensor::of(&[1, 1, 3], &[1f32, 10.0, 100.0]);
        let y = conv(x, w, [&[2], &[1], &[1], &[1]], true, 1, &[1, 1, 4]).unwrap();
        assert_eq!(y.values::<f32>(), [10.0, 102.0, 20.0, 200.0]);
    }

    #[test]
    fn bad_geometry_is_refused() {
        let run = |stride: i64, padding: i64, groups: i64| {
            let x = Tensor::of(&[1, 2, 2], &[0f32; 4]);
            let w = Tensor::of(&[2, 2, 3], &[0f32; 12]);
            error_text(conv(x, w, [&[stride], &[padding], &[1], &[0]], false, groups, &[1, 2, 1]))
        };
        assert!(run(0, 1, 1).contains("stride"));
        assert!(run(1, -1, 1).contains("padding"));
        assert!(run(1, 0, 1).contains("larger than"));
        assert!(run(1, 1, 0).contains("groups"));
        assert!(run(i64::MAX, 1, 1).contains("stride"));
    }
}
