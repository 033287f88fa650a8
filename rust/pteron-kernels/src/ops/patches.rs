//! Sliding patches of images as columns (im2col), and the sum of such columns (col2im).
//!
//! Shape: `[N, C, H, W]` ⇄ `[N, C · kh · kw, L]`, the batch dimension optional. Dtype: kept; floats, complex64 and bool,
//! as in PyTorch; sums of 16-bit floats are those of float32, rounded once. Edge cases: what lies in the padding is 0;
//! empty batches. `columns` is the fast kernel of im2col, `lines` that of col2im.

use crate::complex_number::Number;
use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::volume::integers;
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, TensorMeta};

mod columns;
mod lines;

/// Geometry of a call, `[height, width]` each.
#[derive(Clone, Copy, Default)]
struct Patches {
    batch: usize,
    channels: usize,
    size: [i64; 2],
    kernel: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
    /// Patches per dimension.
    count: [i64; 2],
}

fn pair(args: &Args<'_>, i: usize, name: &'static str, least: i64) -> Result<[i64; 2]> {
    let [_, h, w] = integers::<2>(args, i, (name, least, 1), None)?;
    Ok([h, w])
}

impl Patches {
    /// Reads kernel, dilation, padding and stride, arguments `first` and on, for images of `size`.
    fn new(args: &Args<'_>, first: usize, size: [i64; 2]) -> Result<Patches> {
        let mut patches = Patches {
            batch: 1,
            channels: 1,
            size,
            kernel: pair(args, first, "kernel_size", 1)?,
            dilation: pair(args, first + 1, "dilation", 1)?,
            padding: pair(args, first + 2, "padding", 0)?,
            stride: pair(args, first + 3, "stride", 1)?,
            count: [0; 2],
        };
        for d in 0..2 {
            let span = size[d] + 2 * patches.padding[d] - patches.dilation[d] * (patches.kernel[d] - 1) - 1;
            patches.count[d] = span.div_euclid(patches.stride[d]) + 1;
            if patches.count[d] < 1 {
                return Err(Error::kernel("a patch is larger than the padded image")
                    .argument("kernel_size")
                    .got(format!("{:?} for {size:?}", patches.kernel)));
            }
        }
        Ok(patches)
    }

    /// Elements of a patch.
    fn area(&self) -> usize {
        (self.kernel[0] as usize).saturating_mul(self.kernel[1] as usize)
    }

    /// Number of patches.
    fn total(&self) -> usize {
        // More than there is memory for where the product does not fit.
        (self.count[0] as usize).saturating_mul(self.count[1] as usize)
    }

    /// Calls `visit(image element, column element)` for every pair; the image element is `None` in the
    /// padding. Bases and strides: of the image by channel, row, column; of the columns by row, column.
    fn for_each(
        &self,
        (image, at): (usize, [usize; 3]),
        (columns, to): (usize, [usize; 2]),
        mut visit: impl FnMut(Option<usize>, usize) -> Result<()>,
    ) -> Result<()> {
        for row in 0..self.channels * self.area() {
            let tap = row % self.area();
            let tap = [tap as i64 / self.kernel[1], tap as i64 % self.kernel[1]];
            let plane = image + row / self.area() * at[0];
            let first = [0, 1].map(|d| tap[d] * self.dilation[d] - self.padding[d]);
            let mut column = columns + row * to[0];
            for down in 0..self.count[0] {
                let h = first[0] + down * self.stride[0];
                let is_row_inside = (0..self.size[0]).contains(&h);
                for across in 0..self.count[1] {
                    let w = first[1] + across * self.stride[1];
                    let is_inside = is_row_inside && (0..self.size[1]).contains(&w);
                    let element = is_inside.then(|| plane + h as usize * at[1] + w as usize * at[2]);
                    visit(element, column)?;
                    column += to[1];
                }
            }
        }
        Ok(())
    }

    /// Calls `visit(element of the patch, patch)` for every patch that has the pixel, elements in their order.
    fn for_each_of(&self, pixel: [i64; 2], mut visit: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        // The patch whose element `tap` along dimension `d` the pixel is.
        let patch = |d: usize, tap: i64| {
            let from = pixel[d] + self.padding[d] - tap * self.dilation[d];
            let patch = from / self.stride[d];
            (from >= 0 && from % self.stride[d] == 0 && patch < self.count[d]).then_some(patch)
        };
        for down in 0..self.kernel[0] {
            let Some(row) = patch(0, down) else { continue };
            for across in 0..self.kernel[1] {
                let Some(column) = patch(1, across) else { continue };
                visit((down * self.kernel[1] + across) as usize, (row * self.count[1] + column) as usize)?;
            }
        }
        Ok(())
    }
}

/// Stride of the batch dimension, 0 without one, and those of the last `N`.
fn strides<const N: usize>(meta: &TensorMeta) -> (usize, [usize; N]) {
    let (from, rank) = (meta.strides(), meta.rank());
    let mut last = [0; N];
    last.copy_from_slice(&from[rank - N..]);
    (if rank > N { from[0] } else { 0 }, last)
}

/// Batch and rest of a shape of rank `n` or, with a batch dimension, `n + 1`.
fn split_batch(shape: &Dims, n: usize) -> Result<(usize, &[usize])> {
    let is_batched = shape.len() == n + 1;
    if !(is_batched || shape.len() == n) || shape[usize::from(is_batched)..].contains(&0) {
        return Err(Error::kernel("the input has a wrong rank, or an empty dimension after the batch")
            .argument("self")
            .expected(format!("{n} dimensions, or {} with a batch", n + 1))
            .got(shape.to_string()));
    }
    Ok(if is_batched { (shape[0], &shape[1..]) } else { (1, shape) })
}

fn with_batch(is_batched: bool, batch: usize, rest: &[usize]) -> Result<Dims> {
    let mut shape = Dims::EMPTY;
    if is_batched {
        shape.push(batch)?;
    }
    rest.iter().try_for_each(|n| shape.push(*n))?;
    Ok(shape)
}

fn extent(n: usize) -> Result<i64> {
    i32::try_from(n).map(i64::from).map_err(|_| Error::kernel("an extent is too large").got(n.to_string()))
}

fn of_images(args: &Args<'_>) -> Result<Patches> {
    let (batch, rest) = split_batch(args.tensor(0)?.shape(), 3)?;
    let patches = Patches::new(args, 1, [extent(rest[1])?, extent(rest[2])?])?;
    Ok(Patches { batch, channels: rest[0], ..patches })
}

fn of_columns(args: &Args<'_>) -> Result<Patches> {
    let (batch, rest) = split_batch(args.tensor(0)?.shape(), 2)?;
    let patches = Patches::new(args, 2, pair(args, 1, "output_size", 1)?)?;
    if rest[0] % patches.area() != 0 || rest[1] != patches.total() {
        return Err(Error::kernel("the columns are not the patches of such an image")
            .argument("self")
            .expected(format!("a multiple of {} rows, {} columns", patches.area(), patches.total()))
            .got(format!("{rest:?}")));
    }
    Ok(Patches { batch, channels: rest[0] / patches.area(), ..patches })
}

fn bind_im2col(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let patches = of_images(&view)?;
    let rows = patches.channels.checked_mul(patches.area()).ok_or_else(|| Error::kernel("too many rows"))?;
    let shape = with_batch(view.tensor(0)?.rank() == 4, patches.batch, &[rows, patches.total()])?;
    args.resize(5, &shape)
}

fn im2col<C: Compute>(args: &Args<'_>) -> Result<()> {
    let patches = of_images(args)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let mut y = Writer::<C>::new(args.output(5)?)?;
    let ((x_batch, from), (y_batch, to)) = (strides::<3>(x.meta()), strides::<2>(y.meta()));
    for n in 0..patches.batch {
        patches.for_each((n * x_batch, from), (n * y_batch, to), |element, column| {
            y.put(column, element.map_or(Ok(C::ZERO), |e| x.get(e))?)
        })?;
    }
    Ok(())
}

fn bind_col2im(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let patches = of_columns(&view)?;
    let image = [patches.channels, patches.size[0] as usize, patches.size[1] as usize];
    let shape = with_batch(view.tensor(0)?.rank() == 3, patches.batch, &image)?;
    args.resize(6, &shape)
}

fn col2im<C: Compute>(args: &Args<'_>) -> Result<()> {
    let patches = of_columns(args)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let mut y = Writer::<C>::new(args.output(6)?)?;
    let ((x_batch, from), (y_batch, to)) = (strides::<2>(x.meta()), strides::<3>(y.meta()));
    for n in 0..patches.batch {
        for c in 0..patches.channels {
            let first = n * x_batch + c * patches.area() * from[0];
            for h in 0..patches.size[0] {
                for w in 0..patches.size[1] {
                    let mut sum = C::ZERO;
                    patches.for_each_of([h, w], |tap, patch| {
                        sum = sum.plus(x.get(first + tap * from[0] + patch * from[1])?);
                        Ok(())
                    })?;
                    y.put(n * y_batch + c * to[0] + h as usize * to[1] + w as usize * to[2], sum)?;
                }
            }
        }
    }
    Ok(())
}

macro_rules! prepared {
    ($ctx:expr, $out:literal, $bind:ident, $run:ident) => {{
        same_dtype($ctx, 0, $out)?;
        match (dtype_of($ctx, 0)?, Class::of(dtype_of($ctx, 0)?)) {
            (DType::Complex64, _) => Routine::prepare($bind, |args, _| $run::<Number>(args)),
            (DType::Bool, _) => Routine::prepare($bind, |args, _| $run::<i64>(args)),
            (_, Some(Class::F32)) => Routine::prepare($bind, |args, _| $run::<f32>(args)),
            (_, Some(Class::F64)) => Routine::prepare($bind, |args, _| $run::<f64>(args)),
            (dtype, _) => {
                Err(Error::kernel("the operator needs floats, bool or complex64").got(dtype.name()))
            }
        }
    }};
}

fn prepare_im2col(ctx: &PrepareContext<'_>) -> Preparation {
    prepared!(ctx, 5, bind_im2col, im2col)
}

fn prepare_col2im(ctx: &PrepareContext<'_>) -> Preparation {
    prepared!(ctx, 6, bind_col2im, col2im)
}

/// im2col, col2im.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::im2col.out(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_im2col,
    )
    .fast("rows", columns::prepare),
    kernel(
        "aten::col2im.out(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_col2im,
    )
    .fast("lines", lines::prepare),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn patches_and_back() {
        let x = Tensor::of(&[1, 2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let list = |v: i64| -> Arg { vec![v].into() };
        let args = [x.into(), vec![1, 2].into(), list(1), vec![0, 1].into(), list(1)];
        let y = run_out("aten::im2col.out", &args, DType::Float32, &[2, 6]).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
        let mut args = [y.into(), vec![2, 2].into(), vec![1, 2].into(), list(1), vec![0, 1].into(), list(1)];
        let z = run_out("aten::col2im.out", &args, DType::Float32, &[1, 2, 2]).unwrap();
        assert_eq!(z.values::<f32>(), [2.0, 4.0, 6.0, 8.0]);
        args[1] = vec![3, 2].into();
        assert!(
            error_text(run_out("aten::col2im.out", &args, DType::Float32, &[1, 3, 2])).contains("patches")
        );
    }
}
