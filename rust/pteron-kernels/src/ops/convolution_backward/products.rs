//! Gradients of plain convolutions of row-major signals and images, float32 and float64, as products. Some units of work are
//! channels of the gradient of the input, some those of the weight's for a few input channels, the last ones are of the
//! bias: each is computed whole by one thread, in one order.

use super::tasks::{ImageTask, WeightTask, Window};
use super::{GRAD, OUT, W, X, bind, mask};
use crate::elements::Writer;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::convolution::{Geometry, geometry};
use crate::ops::tile_product::{DOTS, TALL, TileProduct, WIDTH};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, BindArgs, DType, Element, Error, PrepareContext, Result, Scratch, sizes};
use std::marker::PhantomData;
use std::ops::Range;

/// Input channels of a unit.
const CHANNELS: usize = 4;
/// Bytes of a row of columns that the gradient is multiplied with at once.
const ROW_BYTES: usize = 2 << 10;
/// Most bytes of scratch for a thread.
const MOST_SCRATCH: usize = 8 << 20;
/// Channels of the bias of a unit.
const BIASES: usize = 8;

struct Products<T> {
    level: SimdLevel,
    /// Bytes for a thread.
    scratch: usize,
    element: PhantomData<T>,
}

/// A bound call: units of the input come first, then those of the weight.
#[derive(Clone, Copy, Default)]
struct Problem {
    geometry: Option<Geometry>,
    /// Units of a group of channels of an image.
    per_group: usize,
    input_units: usize,
    weight_units: usize,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(x), Some(w)) = (ctx.tensor(X), ctx.tensor(W)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = |i: usize| {
        ctx.tensor(i).is_some_and(|t| t.dtype == x.dtype && t.dim_order.is_contiguous())
            || i > OUT && matches!(ctx.args.get(i), Some(ArgSpec::None))
    };
    let is_signal = (3..=4).contains(&x.shape.len()) && w.shape.len() == x.shape.len();
    if !is_signal || ![GRAD, X, W, OUT, OUT + 1, OUT + 2].into_iter().all(is_plain) {
        return ctx.decline("takes row-major signals and images of one dtype");
    }
    if !matches!(ctx.args.get(7), Some(ArgSpec::Bool(Some(false)))) {
        return ctx.decline("takes convolutions that are not transposed");
    }
    let groups = match ctx.args.get(9) {
        Some(ArgSpec::Int(Some(groups))) => usize::try_from(*groups).unwrap_or(1).max(1),
        _ => 1,
    };
    let area = sizes::checked_numel(&w.shape[2..])?;
    let extents = [(w.shape[0] / groups).max(1), w.shape[1].min(CHANNELS), area];
    match x.dtype {
        DType::Float32 => products::<f32>(ctx, extents),
        DType::Float64 => products::<f64>(ctx, extents),
        _ => ctx.decline("takes float32 and float64"),
    }
}

/// Bytes of scratch for output and input channels of a unit with a window of so many elements.
fn room(size: usize, [outputs, channels, area]: [usize; 3]) -> Option<usize> {
    let rows = channels.checked_mul(area)?.checked_next_multiple_of(TALL)?;
    let weights = rows.checked_add(WIDTH)?.checked_mul(outputs)?.checked_mul(size)?;
    let totals = rows.checked_mul(outputs.checked_next_multiple_of(TALL)?)?.checked_mul(size_of::<f64>())?;
    let columns = rows.checked_mul(ROW_BYTES)?;
    Some(weights.max(columns.checked_add(totals)?))
}

fn products<T: TileProduct + Element>(ctx: &PrepareContext<'_>, extents: [usize; 3]) -> Preparation {
    let Some(scratch) = room(size_of::<T>(), extents).filter(|bytes| *bytes <= MOST_SCRATCH) else {
        return ctx.decline("takes windows whose columns fit into 8 MiB");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("convolution_backward.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Products::<T> { level, scratch, element: PhantomData })
}

impl<T: TileProduct + Element> UnitKernel for Products<T> {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        bind(args)?;
        let view = args.args();
        let g = geometry(&view, X)?;
        let mask = mask(&view)?;
        let per_group = g.inputs.div_ceil(CHANNELS);
        let units = g.groups * per_group;
        let input_units = if mask[0] { g.batch.saturating_mul(units) } else { 0 };
        let weight_units = if mask[1] { units } else { 0 };
        let bias_units = if mask[2] { (g.groups * g.outputs).div_ceil(BIASES) } else { 0 };
        *problem = Problem { geometry: Some(g), per_group, input_units, weight_units };
        let work = (CHANNELS * g.outputs).saturating_mul(Window::of(&g).area());
        let work = work.saturating_mul(view.tensor(GRAD)?.numel() / (g.groups * g.outputs).max(1)) / 16;
        Ok(Split::new(input_units.saturating_add(weight_units + bias_units), 1, work))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let unit = chunk.units.start;
        let g = problem.geometry.as_ref().ok_or_else(|| Error::internal("the call is not bound"))?;
        match unit.checked_sub(problem.input_units) {
            None => self.input(g, problem.per_group, unit, chunk),
            Some(unit) if unit < problem.weight_units => self.weight(g, problem.per_group, unit, chunk),
            Some(unit) => self.bias(g, unit - problem.weight_units, chunk),
        }
    }
}

/// The input channels of unit `unit` of a group.
fn channels_of(unit: usize, inputs: usize) -> Range<usize> {
    let first = unit * CHANNELS;
    first..(first + CHANNELS).min(inputs)
}

impl<T: TileProduct + Element> Products<T> {
    /// The gradient of some channels of an image.
    fn input(&self, g: &Geometry, per_group: usize, unit: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (image, group) = (unit / per_group / g.groups, unit / per_group % g.groups);
        let channels = channels_of(unit % per_group, g.inputs);
        let window = Window::of(g);
        let first = (image * g.groups + group) * g.inputs + channels.start;
        let planes = first * window.size()..(first + channels.len()) * window.size();
        let rows = (channels.len() * window.area()).next_multiple_of(TALL);
        self.level.dispatch(ImageTask::<T> {
            window,
            channels,
            inputs: g.inputs,
            grad: planes_of(
                chunk.input(GRAD)?.as_slice()?,
                image * g.groups + group,
                g.outputs,
                window.pixels(),
            )?,
            weight: planes_of(chunk.input(W)?.as_slice()?, group, g.outputs, g.inputs * window.area())?,
            out: chunk.output_part(OUT, planes)?.into_slice()?,
            packed: chunk.take_scratch(rows / TALL * g.outputs)?,
            tile: chunk.take_scratch(g.outputs)?,
        })
    }

    /// The gradient of the weights of some input channels of a group.
    fn weight(&self, g: &Geometry, per_group: usize, unit: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (group, channels) = (unit / per_group, channels_of(unit % per_group, g.inputs));
        let window = Window::of(g);
        let rows = channels.len() * window.area();
        let even = rows.next_multiple_of(DOTS);
        let totals = chunk.take_scratch::<f64>(g.outputs.next_multiple_of(TALL) * even)?;
        let columns = chunk.take_scratch::<T>(even * (ROW_BYTES / size_of::<T>()))?;
        totals.fill(0.0);
        let (grad, x): (&[T], &[T]) = (chunk.input(GRAD)?.as_slice()?, chunk.input(X)?.as_slice()?);
        for image in 0..g.batch {
            let group = image * g.groups + group;
            self.level.dispatch(WeightTask::<T> {
                window,
                outputs: g.outputs,
                channels: channels.clone(),
                grad: planes_of(grad, group, g.outputs, window.pixels())?,
                x: planes_of(x, group, g.inputs, window.size())?,
                columns,
                totals,
            })?;
        }
        let mut out = Writer::<T>::new(chunk.args().output(OUT + 1)?)?;
        for (o, totals) in totals.chunks_exact(even.max(1)).take(g.outputs).enumerate() {
            let row = columns.get_mut(..rows).ok_or_else(|| Error::internal("scratch is too small"))?;
            row.iter_mut().zip(totals).for_each(|(to, total)| *to = T::from_f64(*total));
            let at = ((group * g.outputs + o) * g.inputs + channels.start) * window.area();
            out.write(at as isize, 1, row)?;
        }
        Ok(())
    }

    /// The gradient of some channels of the bias.
    fn bias(&self, g: &Geometry, unit: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let all = g.groups * g.outputs;
        let channels = unit * BIASES..((unit + 1) * BIASES).min(all);
        let pixels = Window::of(g).pixels();
        let grad: &[T] = chunk.input(GRAD)?.as_slice()?;
        let out = chunk.output_part::<T>(OUT + 2, channels.clone())?.into_slice()?;
        for (channel, out) in channels.zip(out) {
            let mut total = 0.0;
            for image in 0..g.batch {
                total +=
                    self.level.dispatch_narrow(Total(planes_of(grad, image * all + channel, 1, pixels)?));
            }
            *out = T::from_f64(total);
        }
        Ok(())
    }
}

/// The planes, of `size` numbers, of group `group` of `count` each.
fn planes_of<T>(all: &[T], group: usize, count: usize, size: usize) -> Result<&[T]> {
    let first = group * count * size;
    all.get(first..first + count * size)
        .ok_or_else(|| Error::internal("a convolution would leave its tensors"))
}

/// The sum of numbers in float64.
struct Total<'a, T>(&'a [T]);

impl<T: TileProduct> SimdTask for Total<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        const LANES: usize = 16;
        let (whole, rest) = self.0.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for block in whole {
            sums.iter_mut().zip(block).for_each(|(sum, v)| *sum += v.to_f64());
        }
        sums.iter_mut().zip(rest).for_each(|(sum, v)| *sum += v.to_f64());
        sums.iter().sum()
    }
}
