//! The kernel of every elementwise operator on float32, float16 and bfloat16: one [`Function`] over whole
//! tensors, block by block.
//!
//! Operands that lie as the output does are read in place, others (broadcast, another memory order, sixteen bits)
//! are laid out in f32 blocks; a result of sixteen bits is rounded once. One kernel for all operators,
//! since the function is a pointer: blocks are long enough for that to cost nothing.
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, broadcast_shape};
use super::chain::{StoreBools, lay_out};
use super::function::{Function, MAX_OPERANDS, Rows};
use super::half_floats::{Binary16, Brain16, HalfFormat, Narrow, Widen};
use super::pointwise::Pointwise;
use crate::vector_math::SimdLevel;
use pteron_core::{
    AliasRule, Args, BindArgs, Bound, DType, Dims, Error, Grid, PrepareContext, Prepared, Result, Scratch,
    WorkerScratch,
};
use std::marker::PhantomData;

/// Elements computed at a time.
const BLOCK: usize = 1024;

/// How the elements lie in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Format {
    Single,
    Binary16,
    Brain16,
}

impl Format {
    fn of(dtype: DType) -> Option<Format> {
        match dtype {
            DType::Float32 => Some(Format::Single),
            DType::Float16 => Some(Format::Binary16),
            DType::BFloat16 => Some(Format::Brain16),
            _ => None,
        }
    }

    fn size(self) -> usize {
        if self == Format::Single { 4 } else { 2 }
    }
}

struct FloatKernel {
    name: String,
    level: SimdLevel,
    format: Format,
    arity: usize,
    out: usize,
    cost: usize,
    is_predicate: bool,
    /// The function with its numbers, which may be other ones in every call.
    function: fn(&Args<'_>) -> Result<Function>,
}

/// Prepares `P` when all operands are of one float dtype, and so is the output (bool for a predicate).
pub fn prepare<P: Pointwise<N>, const N: usize>(
    ctx: &PrepareContext<'_>,
) -> Result<Option<Box<dyn Prepared>>> {
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else { return Ok(None) };
    let Some(format) = Format::of(dtype) else { return Ok(None) };
    let out = if P::IS_PREDICATE { DType::Bool } else { dtype };
    let has = |i: usize, d: DType| ctx.tensor(i).is_some_and(|t| t.dtype == d);
    if !((0..N).all(|i| has(i, dtype)) && has(P::OUT, out) && P::accepts(ctx.args)) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let dtype = if format == Format::Single { "f32" } else { dtype.name() };
    Ok(Some(Box::new(FloatKernel {
        name: format!("{}.{dtype}.{}", P::NAME, level.isa().name()),
        level,
        format,
        arity: N,
        out: P::OUT,
        cost: P::COST + if format == Format::Single { 0 } else { 2 },
        is_predicate: P::IS_PREDICATE,
        function: |args| P::from_scalars(args).map(Function::of),
    })))
}

/// How the operands lie, each by itself, and the function of this call.
struct Plan {
    numel: usize,
    function: Option<Function>,
    operands: [BroadcastPlan<1>; MAX_OPERANDS],
}

impl Plan {
    const EMPTY: Plan =
        Plan { numel: 0, function: None, operands: [const { BroadcastPlan::EMPTY }; MAX_OPERANDS] };
}

impl Prepared for FloatKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn alias(&self) -> AliasRule {
        if self.is_predicate { AliasRule::None } else { AliasRule::InPlace }
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: (MAX_OPERANDS + 1) * BLOCK * size_of::<f32>(), shared: 0 }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Plan::EMPTY)
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let mut shapes = [Dims::EMPTY; MAX_OPERANDS];
        for (i, shape) in shapes.iter_mut().enumerate().take(self.arity) {
            *shape = *args.args().tensor(i)?.shape();
        }
        let refs: [&Dims; MAX_OPERANDS] = std::array::from_fn(|i| &shapes[i]);
        args.resize(self.out, &broadcast_shape(&refs[..self.arity])?)?;
        let args = args.args();
        let out = args.output(self.out)?;
        let plan = bound.get_mut::<Plan>()?;
        for (i, operand) in plan.operands.iter_mut().enumerate().take(self.arity) {
            *operand = BroadcastPlan::new(out.meta(), [args.tensor(i)?.meta()]);
        }
        plan.numel = out.meta().numel();
        plan.function = Some((self.function)(&args)?);
        if plan.numel == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(plan.numel.div_ceil(CHUNK), plan.numel.min(CHUNK) / 16 * self.cost))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let plan = bound.get::<Plan>()?;
        let too_small = || Error::internal("worker scratch is too small");
        let blocks: &mut [f32] = bytemuck::try_cast_slice_mut(scratch.worker).map_err(|_| too_small())?;
        if blocks.len() < (MAX_OPERANDS + 1) * BLOCK {
            return Err(too_small());
        }
        let function = plan.function.ok_or_else(|| Error::internal("the call is not bound"))?;
        let (operand_blocks, result) = blocks.split_at_mut(MAX_OPERANDS * BLOCK);
        let mut sources = [std::ptr::null::<u8>(); MAX_OPERANDS];
        for (i, source) in sources.iter_mut().enumerate().take(self.arity) {
            *source = args.tensor(i)?.as_ptr();
        }
        let out = args.output(self.out)?.as_ptr();
        let first = chunk as usize * CHUNK;
        let last = (first + CHUNK).min(plan.numel);
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            let is_direct = self.format == Format::Single && !self.is_predicate;
            let target = match is_direct {
                true => out.wrapping_add(at * size_of::<f32>()).cast(),
                false => result.as_mut_ptr(),
            };
            let mut rows = Rows {
                operands: [std::ptr::null(); MAX_OPERANDS],
                strides: [n; MAX_OPERANDS],
                out: target,
                out_stride: n,
                rows: 1,
                columns: n,
            };
            for k in 0..self.arity {
                let block = &mut operand_blocks[k * BLOCK..(k + 1) * BLOCK];
                // SAFETY: the plan was bound to this operand and the output; `at + n ≤ numel`.
                rows.operands[k] = unsafe { self.operand(&plan.operands[k], sources[k], [at, n], block) };
            }
            // SAFETY: operands hold `n` elements, and the output has `n` left at `at`.
            unsafe {
                function.run(self.level, &rows);
                if !is_direct {
                    self.put(target, out, [at, n]);
                }
            }
        }
        Ok(())
    }
}

impl FloatKernel {
    /// The operand's elements for output elements `at..at + n` in f32, side by side.
    ///
    /// # Safety
    /// `plan` is that of the operand at `source`; `at + n` is at most the output's element count; `block` holds
    /// `n` elements.
    unsafe fn operand(
        &self,
        plan: &BroadcastPlan<1>,
        source: *const u8,
        [at, n]: [usize; 2],
        block: &mut [f32],
    ) -> *const f32 {
        let start = block.as_ptr();
        match self.format {
            Format::Single if plan.is_dense() => return source.wrapping_add(at * self.format.size()).cast(),
            // SAFETY: the caller's promise.
            Format::Single => unsafe { lay_out(plan, source.cast::<f32>(), [at, n], block) },
            Format::Binary16 => self.widen::<Binary16>(plan, source, [at, n], block),
            Format::Brain16 => self.widen::<Brain16>(plan, source, [at, n], block),
        }
        start
    }

    fn widen<H: HalfFormat>(
        &self,
        plan: &BroadcastPlan<1>,
        source: *const u8,
        [at, n]: [usize; 2],
        block: &mut [f32],
    ) {
        let task = Widen::<H> { plan, source: source.cast(), at, n, block, format: PhantomData };
        self.level.dispatch_narrow(task);
    }

    /// Writes a block of results to output elements `at..at + n`.
    ///
    /// # Safety
    /// Both have as many elements.
    unsafe fn put(&self, from: *const f32, out: *mut u8, [at, n]: [usize; 2]) {
        let to = out.wrapping_add(at * self.format.size()).cast();
        match self.format {
            _ if self.is_predicate => {
                self.level.dispatch(StoreBools { from, out: out.wrapping_add(at), n });
            }
            Format::Binary16 => {
                self.level.dispatch_narrow(Narrow::<Binary16> { from, to, n, format: PhantomData });
            }
            Format::Brain16 => {
                self.level.dispatch_narrow(Narrow::<Brain16> { from, to, n, format: PhantomData });
            }
            // Computed in place.
            Format::Single => {}
        }
    }
}
