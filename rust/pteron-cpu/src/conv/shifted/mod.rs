//! Convolutions of f32, f64, float16 and bfloat16 whose weight need not be a constant, plain and transposed, in any memory
//! order: behind the kernels of packed constant weights. Unsafe island (raw pointers: chunks share scratch and output).
//!
//! The input is laid out once as numbers in planes with a margin of zeros, one for every remainder of a step ([`plan`],
//! [`lay_out`]). Output pixels are counted along such a plane: then what a tap reads is the same plane, shifted, and a tile of
//! output channels × pixels loads its vectors from there, without gathering a window ([`tile`]). Pixels counted that
//! lie in the margin are computed and left out. Sixteen-bit floats are multiplied and added up in f32 and rounded once.
//!
//! *Order.* A sum begins with the bias and runs over input channels, then taps, whatever the number of chunks.
//!
//! *Margins.* A zero times an infinite weight is NaN. So it is in eager PyTorch where a plain convolution multiplies padding;
//! a transposed one has no padding to multiply, so weights that are not finite take the pixels one by one ([`careful`]).
#![allow(unsafe_code, reason = "chunks share scratch and output")]

mod careful;
mod lay_out;
mod plan;
mod stored;
#[cfg(test)]
mod tests;
mod tile;

use super::geometry::{BIAS, Geometry, INPUT, OUT, WEIGHT, has_margins_apart};
use super::operands::check_bias;
use super::window::phase;
use half::{bf16, f16};
use lay_out::{LayOut, Pack};
use plan::{Plan, SLACK, STRIPE, TILE};
use pteron_core::{ArgSpec, BindArgs, DType, Error, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::vector_math::SimdLevel;
use std::marker::PhantomData;
use stored::{Number, Stored};
use tile::Unit;

struct Shifted<T> {
    level: SimdLevel,
    /// Of the shapes at load; those of a call may be smaller.
    geometry: Geometry,
    /// Numbers of shared scratch.
    room: usize,
    elements: PhantomData<fn() -> T>,
}

/// Prepares `aten::convolution.out`.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = ctx.tensor(INPUT).map(|t| t.dtype);
    match dtype {
        Some(DType::Float32) => of::<f32>(ctx),
        Some(DType::Float64) => of::<f64>(ctx),
        Some(DType::Float16) => of::<f16>(ctx),
        Some(DType::BFloat16) => of::<bf16>(ctx),
        _ => ctx.decline("takes floats"),
    }
}

fn of<T: Stored>(ctx: &PrepareContext<'_>) -> Preparation {
    let is_same = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == T::DTYPE);
    let has_bias = !matches!(ctx.args.get(BIAS), Some(ArgSpec::None));
    if ![INPUT, WEIGHT, OUT].into_iter().all(is_same)
        || (has_bias && !is_same(BIAS))
        || has_margins_apart(ctx)
    {
        return ctx.decline("takes operands of one dtype, with the same padding at both ends");
    }
    let (Some(geometry), Some(input)) = (Geometry::of(ctx), ctx.tensor(INPUT)) else {
        return ctx.decline("takes numbers that are known at load");
    };
    let Ok(extents) = geometry.extents(&input.shape) else {
        return ctx.decline("the window is larger than the input");
    };
    let Some(plan) = Plan::of(&geometry, &extents, size_of::<Number<T>>()).filter(|p| p.is_modest(&geometry))
    else {
        return ctx.decline("the input with its margins is much larger than the tensors");
    };
    let room = plan.numbers();
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("convolution.shifted.{}.{}", T::DTYPE.name(), level.isa().name());
    prepared(name, Shifted::<T> { level, geometry, room, elements: PhantomData })
}

impl<T: Stored> GridKernel for Shifted<T> {
    type Problem = Option<(Geometry, Plan)>;

    fn scratch(&self) -> Scratch {
        Scratch {
            per_worker: TILE * STRIPE * size_of::<Number<T>>()
                + self.geometry.taps().saturating_mul(size_of::<usize>()),
            shared: self.room.saturating_mul(size_of::<Number<T>>()),
        }
    }

    fn new_problem(&self) -> Option<(Geometry, Plan)> {
        None
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Option<(Geometry, Plan)>) -> Result<Grid> {
        let geometry = self.geometry_now(args)?;
        let extents = geometry.extents(args.args().tensor(INPUT)?.shape())?;
        let shape = geometry.output_shape(&extents)?;
        args.resize(OUT, &shape)?;
        if extents.images == 0 {
            return Ok(Grid::EMPTY);
        }
        let too_large = || Error::kernel("the input of a convolution is larger than its upper bound");
        let plan = Plan::of(&geometry, &extents, size_of::<Number<T>>()).ok_or_else(too_large)?;
        if plan.numbers() > self.room {
            return Err(too_large());
        }
        *bound = Some((geometry, plan));
        Ok(Grid::phases(&[plan.line_chunks + plan.tile_chunks, plan.units], plan.unit_ns))
    }

    fn run(&self, bound: &Option<(Geometry, Plan)>, mut part: Part<'_>) -> Result<()> {
        let (geometry, plan) = bound.as_ref().ok_or_else(|| Error::internal("the call is not bound"))?;
        let packed: *mut Number<T> = part.scratch.shared.cast();
        let planes = packed.wrapping_add(plan.packed);
        if part.phase > 0 {
            return self.unit(geometry, plan, &mut part, packed, planes);
        }
        if let Some(chunk) = part.chunk.checked_sub(plan.line_chunks) {
            let weight = part.args.tensor(WEIGHT)?;
            self.level.dispatch(Pack::<T> {
                geometry,
                plan,
                from: weight.ptr()?,
                strides: spread(weight.strides()),
                to: packed,
                tiles: plan.tiles_of(chunk),
            });
            if chunk == 0 {
                // SAFETY: the planes end with these numbers, which only this chunk writes.
                unsafe { planes.add(plan.planes).write_bytes(0, SLACK) };
            }
        } else {
            let input = part.args.tensor(INPUT)?;
            self.level.dispatch(LayOut::<T> {
                plan,
                from: input.ptr()?,
                strides: spread(input.strides()),
                to: planes,
                lines: plan.lines_of(part.chunk),
            });
        }
        Ok(())
    }
}

/// Strides of the two leading dimensions and of three spatial ones, of which the missing come first.
fn spread(strides: &[usize]) -> [usize; 5] {
    let mut all = [0; 5];
    let lead = 5usize.saturating_sub(strides.len());
    for (i, stride) in strides.iter().enumerate().take(5) {
        all[if i < 2 { i } else { lead + i }] = *stride;
    }
    all
}

impl<T: Stored> Shifted<T> {
    /// The geometry of the shapes of this call.
    ///
    /// Errors: weight or bias do not fit, or the window has more elements than at load.
    fn geometry_now(&self, args: &BindArgs<'_>) -> Result<Geometry> {
        let args = args.args();
        let weight = args.tensor(WEIGHT)?;
        let too_many = || {
            Error::kernel("the weight of a convolution does not fit, or has a larger window than at load")
                .argument("weight")
                .got(weight.shape().to_string())
        };
        let geometry = self.geometry.with_weight(weight.shape()).ok_or_else(too_many)?;
        if geometry.taps() > self.geometry.taps() {
            return Err(too_many());
        }
        check_bias(&args, &geometry)?;
        Ok(geometry)
    }

    fn unit(
        &self,
        geometry: &Geometry,
        plan: &Plan,
        part: &mut Part<'_>,
        packed: *const Number<T>,
        planes: *const Number<T>,
    ) -> Result<()> {
        let Some(place) = plan.place(geometry, part.chunk) else { return Ok(()) };
        let phase = phase(geometry, &plan.extents, place.phase);
        let table = part.take_scratch::<usize>(geometry.taps())?;
        let table = plan.fill_table(&phase, table);
        let sums = part.take_scratch::<Number<T>>(TILE * STRIPE)?;
        let out = part.args.output(OUT)?;
        let bias = match part.args.optional_tensor(BIAS)? {
            Some(bias) => bias.ptr::<T>()?,
            None => std::ptr::null(),
        };
        self.level.dispatch(Unit::<T> {
            geometry,
            plan,
            phase,
            place,
            table,
            packed,
            planes,
            bias,
            out: out.ptr()?,
            strides: spread(out.strides()),
            sums: sums.as_mut_ptr(),
        });
        Ok(())
    }
}
