//! The kernel of every elementwise operator on float32, float16 and bfloat16: one [`Function`] over whole
//! tensors, block by block.
//!
//! Operands that lie as the output does are read in place, others (broadcast, another memory order, sixteen bits)
//! are laid out in f32 blocks; a result of sixteen bits is rounded once. One kernel for all operators,
//! since the function is a pointer: blocks are long enough for that to cost nothing. Cheap functions of sixteen bits
//! have code of their own for operands that lie as the output does: passes over blocks would take longer than they.
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, broadcast_shape};
use super::function::{Function, MAX_OPERANDS, Rows};
use super::operand::{
    BLOCK, Convert, Half, Layout, SPACE, Sink, Source, begin, elements, load_up_to, store_up_to,
};
use super::pointwise::{LONG, Parameters, Pointwise};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{
    AliasRule, Args, BindArgs, Bool8, Bound, DType, Dims, Element, Error, Grid, PrepareContext, Prepared,
    Result, Scratch, WorkerScratch,
};

/// Floats of a worker: the operands, and a block of results.
const SCRATCH: usize = MAX_OPERANDS * SPACE + BLOCK;

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
    /// Computes neighbouring elements without blocks.
    direct: Option<DirectFn>,
}

/// The same function with the same numbers, of operands that lie side by side from their pointers on.
///
/// # Safety
/// Operands are readable and the result writable for `n` elements of the dtype that it was made for.
type DirectFn = unsafe fn(SimdLevel, Parameters, &[*const u8; MAX_OPERANDS], *mut u8, usize);

unsafe fn direct<P: Pointwise<N>, A: Half, const N: usize>(
    level: SimdLevel,
    parameters: Parameters,
    operands: &[*const u8; MAX_OPERANDS],
    out: *mut u8,
    n: usize,
) {
    let mut from = [std::ptr::null::<A>(); N];
    for (p, operand) in from.iter_mut().zip(operands) {
        *p = operand.cast();
    }
    level.dispatch(Direct { function: P::from_parameters(parameters), from, out: out.cast(), n });
}

struct Direct<P, A, const N: usize> {
    function: P,
    from: [*const A; N],
    out: *mut A,
    n: usize,
}

impl<P: Pointwise<N>, A: Half, const N: usize> SimdTask for Direct<P, A, N> {
    type Output = ();
    // Indexed loops, here as elsewhere: they are unrolled.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        // SAFETY: whoever makes the task has `n` elements everywhere.
        unsafe {
            while i + S::LANES <= self.n {
                let mut v = [s.zero(); N];
                for k in 0..N {
                    v[k] = A::load(s, self.from[k].add(i));
                }
                A::store(s, self.out.add(i), self.function.apply(s, v));
                i += S::LANES;
            }
            if i < self.n {
                let mut v = [s.zero(); N];
                for k in 0..N {
                    v[k] = load_up_to(s, self.from[k].add(i), self.n - i);
                }
                store_up_to(s, self.out.add(i), self.function.apply(s, v), self.n - i);
            }
        }
    }
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
        direct: match format {
            Format::Binary16 if P::COST < LONG && !P::IS_PREDICATE => Some(direct::<P, f16, N>),
            Format::Brain16 if P::COST < LONG && !P::IS_PREDICATE => Some(direct::<P, bf16, N>),
            _ => None,
        },
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
        Scratch { per_worker: SCRATCH * size_of::<f32>(), shared: 0 }
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
        if blocks.len() < SCRATCH {
            return Err(too_small());
        }
        let function = plan.function.ok_or_else(|| Error::internal("the call is not bound"))?;
        let (operand_blocks, result) = blocks.split_at_mut(MAX_OPERANDS * SPACE);
        let mut sources = [std::ptr::null::<u8>(); MAX_OPERANDS];
        for (i, source) in sources.iter_mut().enumerate().take(self.arity) {
            *source = args.tensor(i)?.as_ptr();
        }
        let first = chunk as usize * CHUNK;
        if let Some(direct) = self.direct
            && plan.operands[..self.arity].iter().all(BroadcastPlan::is_dense)
        {
            let size = size_of::<f16>();
            let out = args.output(self.out)?.as_ptr().wrapping_add(first * size);
            let operands = sources.map(|p| p.wrapping_add(first * size));
            // SAFETY: all lie as the output does, which has so many elements from `first` on.
            unsafe {
                direct(self.level, function.parameters(), &operands, out, CHUNK.min(plan.numel - first))
            };
            return Ok(());
        }
        let chunk = Chunk {
            level: self.level,
            plan,
            function,
            range: [first, (first + CHUNK).min(plan.numel)],
            arity: self.arity,
            sources,
            out: args.output(self.out)?.as_ptr(),
        };
        // SAFETY: operands and output are those that the plan was bound to, of the dtypes that were asked for in
        // `prepare`; the scratch memory has the size that was asked for.
        unsafe {
            match (self.format, self.is_predicate) {
                (Format::Single, false) => chunk.run::<f32, f32>(operand_blocks, result),
                (Format::Binary16, false) => chunk.run::<f16, f16>(operand_blocks, result),
                (Format::Brain16, false) => chunk.run::<bf16, bf16>(operand_blocks, result),
                (Format::Single, true) => chunk.run::<f32, Bool8>(operand_blocks, result),
                (Format::Binary16, true) => chunk.run::<f16, Bool8>(operand_blocks, result),
                (Format::Brain16, true) => chunk.run::<bf16, Bool8>(operand_blocks, result),
            }
        }
        Ok(())
    }
}

/// A chunk of a call.
struct Chunk<'a> {
    level: SimdLevel,
    plan: &'a Plan,
    function: Function,
    /// Output elements, first and one past the last.
    range: [usize; 2],
    arity: usize,
    sources: [*const u8; MAX_OPERANDS],
    out: *mut u8,
}

impl Chunk<'_> {
    /// # Safety
    /// Operands have elements of type `A` and lie as the plan says, the output of type `B`; `blocks` holds [`SPACE`] floats
    /// for each operand, `result` [`BLOCK`].
    unsafe fn run<A: Source, B: Sink + Element>(&self, blocks: &mut [f32], result: &mut [f32]) {
        let operands = &self.plan.operands[..self.arity];
        let mut layouts = [Layout::Other; MAX_OPERANDS];
        for (k, plan) in operands.iter().enumerate() {
            let block = &mut blocks[k * SPACE..(k + 1) * SPACE];
            // SAFETY: the caller's promise.
            layouts[k] = unsafe { begin(self.level, plan, self.sources[k].cast::<A>(), block) };
        }
        let [first, last] = self.range;
        let lead = (0..self.arity).find(|k| self.function.takes_numbers() && is_long_number(&operands[*k]));
        let rows = (0..self.arity).find_map(|k| Some((k, self.columns_of_rows::<A, B>(k)?)));
        let mut call = Call { chunk: self, layouts, blocks, result, number: 0.0 };
        // SAFETY: the caller's promise.
        unsafe {
            match (rows, lead) {
                (Some((lead, columns)), _) => {
                    let head = first.next_multiple_of(columns).min(last);
                    let count = (last - head) / columns;
                    call.numbers::<A, B>(lead, [first, head]);
                    self.rows(lead, [count, columns], head);
                    call.numbers::<A, B>(lead, [head + count * columns, last]);
                }
                (None, Some(lead)) => call.numbers::<A, B>(lead, [first, last]),
                (None, None) => {
                    for at in (first..last).step_by(BLOCK) {
                        call.block::<A, B>([at, BLOCK.min(last - at)], None);
                    }
                }
            }
        }
    }

    /// Length of rows along which operand `lead` is one number and all others can be read in place, as dense
    /// rows or the same one again and again.
    fn columns_of_rows<A: Source, B: Element>(&self, lead: usize) -> Option<usize> {
        const LONG: usize = 32;
        let plan = &self.plan.operands[lead];
        if !(A::IS_F32 && B::DTYPE == DType::Float32 && self.function.takes_numbers() && plan.rank() == 2) {
            return None;
        }
        let (columns, strides) = plan.loop_at(1);
        let others = self.plan.operands[..self.arity].iter().enumerate().filter(|(k, _)| *k != lead);
        let fits = |other: &BroadcastPlan<1>| other.is_dense() || other.period() == Some(columns);
        let mut others = others.map(|(_, other)| other);
        (strides == [0] && columns >= LONG && others.all(fits)).then_some(columns)
    }

    /// `rows` whole rows of output elements from `at` on; see [`Chunk::columns_of_rows`].
    ///
    /// # Safety
    /// As for [`Chunk::run`], f32 everywhere; the rows are inside the output.
    unsafe fn rows(&self, lead: usize, [rows, columns]: [usize; 2], at: usize) {
        let mut task = Rows {
            operands: [std::ptr::null(); MAX_OPERANDS],
            strides: [0; MAX_OPERANDS],
            is_number: [false; MAX_OPERANDS],
            out: self.out.cast::<f32>().wrapping_add(at),
            out_stride: columns,
            rows,
            columns,
        };
        for (k, plan) in self.plan.operands[..self.arity].iter().enumerate() {
            let source = self.sources[k].cast::<f32>();
            (task.operands[k], task.strides[k]) = if k == lead {
                let (_, [stride]) = plan.loop_at(0);
                task.is_number[k] = true;
                (source.wrapping_add(at / columns * stride), stride)
            } else if plan.is_dense() {
                (source.wrapping_add(at), columns)
            } else {
                (source, 0)
            };
        }
        // SAFETY: the caller's promise.
        unsafe { self.function.run(self.level, &task) };
    }
}

/// Is the operand one number for stretches that are long enough for calls of their own?
fn is_long_number(plan: &BroadcastPlan<1>) -> bool {
    const LONG: usize = 512;
    plan.rank() > 0 && plan.inner_strides() == [0] && plan.loop_at(plan.rank() - 1).0 >= LONG
}

/// A chunk while it is computed.
struct Call<'a> {
    chunk: &'a Chunk<'a>,
    layouts: [Layout; MAX_OPERANDS],
    blocks: &'a mut [f32],
    result: &'a mut [f32],
    number: f32,
}

impl Call<'_> {
    /// Computes output elements `first..last`, along whose runs operand `lead` is one number.
    ///
    /// # Safety
    /// As for [`Chunk::run`]; the elements are inside the chunk.
    unsafe fn numbers<A: Source, B: Sink + Element>(&mut self, lead: usize, [first, last]: [usize; 2]) {
        let chunk = self.chunk;
        for run in chunk.plan.operands[lead].runs_between(first, last) {
            // SAFETY: the plan's runs lie inside the operand; the caller's promise.
            unsafe {
                self.number = (*chunk.sources[lead].cast::<A>().add(run.offsets[0])).number();
                for at in (run.at..run.at + run.n).step_by(BLOCK) {
                    self.block::<A, B>([at, BLOCK.min(run.at + run.n - at)], Some(lead));
                }
            }
        }
    }

    /// Computes output elements `at..at + n`; operand `lead`, if there is one, is `self.number` for all of them.
    ///
    /// # Safety
    /// As for [`Chunk::run`]; the elements are inside the chunk and no more than [`BLOCK`].
    unsafe fn block<A: Source, B: Sink + Element>(&mut self, [at, n]: [usize; 2], lead: Option<usize>) {
        let chunk = self.chunk;
        let is_direct = B::DTYPE == DType::Float32;
        let target = match is_direct {
            true => chunk.out.cast::<f32>().wrapping_add(at),
            false => self.result.as_mut_ptr(),
        };
        let mut rows = Rows {
            operands: [std::ptr::null(); MAX_OPERANDS],
            strides: [n; MAX_OPERANDS],
            is_number: [false; MAX_OPERANDS],
            out: target,
            out_stride: n,
            rows: 1,
            columns: n,
        };
        for (k, plan) in chunk.plan.operands[..chunk.arity].iter().enumerate() {
            if lead == Some(k) {
                (rows.operands[k], rows.is_number[k]) = (&raw const self.number, true);
                continue;
            }
            let block = &mut self.blocks[k * SPACE..(k + 1) * SPACE];
            let source = chunk.sources[k].cast::<A>();
            // SAFETY: the caller's promise; `at + n ≤ numel`.
            rows.operands[k] =
                unsafe { elements(chunk.level, plan, source, self.layouts[k], [at, n], block) };
        }
        // SAFETY: operands hold `n` elements, or are the one number; the output has `n` left at `at`.
        unsafe {
            chunk.function.run(chunk.level, &rows);
            if !is_direct {
                let to = chunk.out.cast::<B>().wrapping_add(at);
                chunk.level.dispatch(Convert { from: target.cast_const(), to, n });
            }
        }
    }
}
