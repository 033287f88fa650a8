//! The largest elements of windows without their places: what `max_pool2d_with_indices` and `max_pool3d_with_indices` compute
//! where nobody reads the indices. Floats of at most 32 bits, int8 and uint8; NaN counts as largest.

use super::window::{Extents, Window, input_shape, rows_of_unit, split};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, Element, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

/// Behind input, kernel size, stride, padding, dilation and ceil mode.
const OUT: usize = 6;

/// An element that is compared.
trait Compared: Element + Copy + Send + Sync + 'static {
    /// None is smaller.
    const LEAST: Self;
    /// `new` where it is larger, or NaN.
    fn larger(self, new: Self) -> Self;
}

macro_rules! compared {
    ($t:ty, $least:expr, |$so_far:ident, $new:ident| $wins:expr) => {
        impl Compared for $t {
            const LEAST: Self = $least;
            #[inline(always)]
            fn larger(self, $new: Self) -> Self {
                let $so_far = self;
                if $wins { $new } else { $so_far }
            }
        }
    };
}
compared!(f16, f16::NEG_INFINITY, |so_far, new| half_wins::<0x7c00>(so_far.to_bits(), new.to_bits()));
compared!(bf16, bf16::NEG_INFINITY, |so_far, new| half_wins::<0x7f80>(so_far.to_bits(), new.to_bits()));
compared!(f32, f32::NEG_INFINITY, |so_far, new| new > so_far || new.is_nan());
compared!(i8, i8::MIN, |so_far, new| new > so_far);
compared!(u8, u8::MIN, |so_far, new| new > so_far);

/// Is the float of sixteen bits `new` larger than `so_far`, or NaN? By their bits, which needs no conversion; larger
/// magnitudes than that of infinity are NaN.
#[inline(always)]
fn half_wins<const INFINITY: u16>(so_far: u16, new: u16) -> bool {
    let is_nan = |bits: u16| bits & 0x7fff > INFINITY;
    // Numbers in their order; the zeros are equal.
    let order = |bits: u16| {
        let sign = bits as i16 >> 15;
        ((bits & 0x7fff) as i16 ^ sign) - sign
    };
    is_nan(new) | (!is_nan(so_far) & (order(new) > order(so_far)))
}

struct MaxPool<T> {
    level: SimdLevel,
    window: Window,
    is_interleaved: bool,
    element: PhantomData<T>,
}

/// The kernel for `input, kernel_size, stride, padding, dilation, ceil_mode, out`; `None` for other dtypes, and for tensors
/// that are not all row-major or all channels-last.
pub fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let rank = match input.shape.len() {
        4 => 2,
        5 => 3,
        _ => return ctx.decline("takes 4 or 5 dimensions"),
    };
    let is_interleaved = input.dim_order.is_channels_last();
    let is_alike = out.dtype == input.dtype
        && out.shape.len() == input.shape.len()
        && out.dim_order == input.dim_order
        && (is_interleaved || input.dim_order.is_contiguous());
    let is_known = matches!(ctx.args.get(5), Some(ArgSpec::Bool(Some(_))));
    let Some(window) = Window::of(ctx, rank, Some(4), 5).filter(|_| is_alike && is_known) else {
        return ctx
            .decline("takes one dtype, row-major or channels-last throughout, and a window known at load");
    };
    if window.extents(&input.shape).is_err() {
        return ctx.decline("the window does not fit the input");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("max_pool{rank}d.values.{}.{}", input.dtype, level.isa().name());
    match input.dtype {
        DType::Float32 => framed(name, pool::<f32>(level, window, is_interleaved)),
        DType::Float16 => framed(name, pool::<f16>(level, window, is_interleaved)),
        DType::BFloat16 => framed(name, pool::<bf16>(level, window, is_interleaved)),
        DType::Int8 => framed(name, pool::<i8>(level, window, is_interleaved)),
        DType::UInt8 => framed(name, pool::<u8>(level, window, is_interleaved)),
        _ => ctx.decline("takes floats of at most 32 bits, int8 and uint8"),
    }
}

fn pool<T>(level: SimdLevel, window: Window, is_interleaved: bool) -> MaxPool<T> {
    MaxPool { level, window, is_interleaved, element: PhantomData }
}

impl<T: Compared> UnitKernel for MaxPool<T> {
    type Problem = Extents;

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.window.extents(&input_shape(&args.args())?)?;
        args.resize(OUT, &extents.output_shape(self.window.rank)?)?;
        let taps = self.window.kernel.iter().product::<usize>();
        Ok(split(extents, self.is_interleaved, taps, 1.0 / 16.0))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let per_unit = match self.is_interleaved {
            true => extents.output[2] * extents.channels,
            false => extents.pixels(),
        };
        let input = chunk.input::<T>(0)?.as_slice()?;
        let out = chunk.output_units::<T>(OUT, per_unit)?.into_slice()?;
        let task = Windows {
            window: &self.window,
            extents: *extents,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            input,
            out,
        };
        self.level.dispatch(task);
        Ok(())
    }
}

/// The units of a chunk.
struct Windows<'a, T> {
    window: &'a Window,
    extents: Extents,
    units: Range<usize>,
    is_interleaved: bool,
    input: &'a [T],
    /// Of the units alone.
    out: &'a mut [T],
}

impl<T: Compared> SimdTask for Windows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Windows { window, extents, units, is_interleaved, input, out } = self;
        let width = extents.output[2];
        let row = if is_interleaved { width * extents.channels } else { width };
        out.fill(T::LEAST);
        let mut rows = out.chunks_exact_mut(row.max(1));
        for unit in units {
            for ([plane, oz, oy], out) in rows_of_unit(&extents, unit, is_interleaved).zip(&mut rows) {
                let lines = lines(window, &extents, [oz, oy]);
                if is_interleaved {
                    let size = extents.input_pixels() * extents.channels;
                    let Some(image) = input.get(plane * size..(plane + 1) * size) else { continue };
                    lines.for_each(|line| pixels(window, &extents, image, line, out));
                } else {
                    let size = extents.input_pixels();
                    let Some(image) = input.get(plane * size..(plane + 1) * size) else { continue };
                    lines.for_each(|line| values(window, &extents, image, line, out));
                }
            }
        }
    }
}

/// First pixels of the lines of the input that windows of output row (oz, oy) read.
#[inline(always)]
fn lines<'a>(
    window: &'a Window,
    extents: &'a Extents,
    [oz, oy]: [usize; 2],
) -> impl Iterator<Item = usize> + 'a {
    let [_, height, width] = extents.input;
    (0..window.kernel[0] * window.kernel[1]).filter_map(move |k| {
        let z = window.position(extents, 0, oz, k / window.kernel[1])?;
        let y = window.position(extents, 1, oy, k % window.kernel[1])?;
        Some((z * height + y) * width)
    })
}

/// Compares a line of a channels-last image with a row of results.
#[inline(always)]
fn pixels<T: Compared>(window: &Window, extents: &Extents, image: &[T], line: usize, out: &mut [T]) {
    let channels = extents.channels;
    for (ox, out) in out.chunks_exact_mut(channels.max(1)).enumerate() {
        for kx in 0..window.kernel[2] {
            let Some(x) = window.position(extents, 2, ox, kx) else { continue };
            let Some(from) = image.get((line + x) * channels..(line + x + 1) * channels) else { continue };
            out.iter_mut().zip(from).for_each(|(so_far, new)| *so_far = so_far.larger(*new));
        }
    }
}

/// Compares a line of a plane with a row of results.
#[inline(always)]
fn values<T: Compared>(window: &Window, extents: &Extents, plane: &[T], line: usize, out: &mut [T]) {
    let step = window.stride[2];
    for kx in 0..window.kernel[2] {
        let (outputs, x) = window.covered(extents, 2, kx);
        let (Some(out), Some(from)) = (out.get_mut(outputs), plane.get(line.wrapping_add(x)..)) else {
            continue;
        };
        let compare = |(so_far, new): (&mut T, &T)| *so_far = so_far.larger(*new);
        match step {
            1 => out.iter_mut().zip(from).for_each(compare),
            _ => out.iter_mut().zip(from.iter().step_by(step)).for_each(compare),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pairs of some bits, among them NaN and infinities of both signs, zeros and subnormal numbers.
    #[test]
    fn halves_are_compared_as_floats() {
        let mut bits: Vec<u16> = (0..=u16::MAX).step_by(257).collect();
        bits.extend([0, 1, 0x7c00, 0x7c01, 0x7f80, 0x7f81, 0x7fff].iter().flat_map(|b| [*b, b | 0x8000]));
        for (a, b) in bits.iter().flat_map(|a| bits.iter().map(move |b| (*a, *b))) {
            let wins = |a: f32, b: f32| b > a || b.is_nan();
            let (x, y) = (f16::from_bits(a), f16::from_bits(b));
            let want = if wins(x.to_f32(), y.to_f32()) { y } else { x };
            assert_eq!(x.larger(y).to_bits(), want.to_bits(), "f16 {a:#x} {b:#x}");
            let (x, y) = (bf16::from_bits(a), bf16::from_bits(b));
            let want = if wins(x.to_f32(), y.to_f32()) { y } else { x };
            assert_eq!(x.larger(y).to_bits(), want.to_bits(), "bf16 {a:#x} {b:#x}");
        }
    }
}
