//! The kernel of every elementwise operator on float32, float16 and bfloat16: one [`Function`] over whole tensors.
//!
//! One kernel for all operators, since the function is a pointer: blocks are long enough for that to cost nothing. Cheap
//! functions of sixteen bits, and those with a condition, have code of their own for operands that lie as the output does:
//! passes over blocks would take longer than they.
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::blocks::{BlockBody, BlockChunk, BlockKernel, BlockOperand, Stored, with_elements_of};
use super::broadcast::{BroadcastPlan, CHUNK};
use super::function::{Function, MAX_OPERANDS, RowBlock};
use super::operand::{BLOCK, Half, SPACE, Sink, Source, load_up_to, store_up_to};
use super::pointwise::{LONG, Parameters, Pointwise, fits};
use crate::frame::framed;
use crate::grid_kernel::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{Args, Bool8, Error, Isa, PrepareContext, Result};
use std::marker::PhantomData;

struct FunctionBody {
    cost: usize,
    /// The function with its numbers, which may be other ones in every call.
    function: fn(&Args<'_>) -> Result<Function>,
    /// Computes neighbouring elements without blocks.
    direct: Option<DirectFn>,
}

/// The same function with the same numbers, of operands that lie side by side from their pointers on; the range is that of
/// the elements to compute.
///
/// # Safety
/// Operands are readable and the result writable at these elements, of the dtypes that it was made for. The level is not the
/// portable one.
type DirectFn = unsafe fn(SimdLevel, Parameters, [*const u8; MAX_OPERANDS], *mut u8, [usize; 2]);

/// Of operands of type `A`, the first one of type `C`.
///
/// # Safety
/// As [`DirectFn`].
unsafe fn direct<F: Pointwise<N>, C: Source, A: Source + Sink, const N: usize>(
    level: SimdLevel,
    parameters: Parameters,
    operands: [*const u8; MAX_OPERANDS],
    out: *mut u8,
    [first, last]: [usize; 2],
) {
    let mut from = [std::ptr::null::<A>(); N];
    for (p, operand) in from.iter_mut().zip(operands) {
        *p = operand.cast::<A>().wrapping_add(first);
    }
    let lead = operands[0].cast::<C>().wrapping_add(first);
    let out = out.cast::<A>().wrapping_add(first);
    level.dispatch_vectors(Direct {
        parameters,
        lead,
        from,
        out,
        n: last - first,
        function: PhantomData::<F>,
    });
}

struct Direct<F, C, A, const N: usize> {
    parameters: Parameters,
    /// Operand 0.
    lead: *const C,
    /// The others, behind one that is not read.
    from: [*const A; N],
    out: *mut A,
    n: usize,
    function: PhantomData<F>,
}

impl<F: Pointwise<N>, C: Source, A: Source + Sink, const N: usize> SimdTask for Direct<F, C, A, N> {
    type Output = ();
    // Indexed loops, here as elsewhere: they are unrolled.
    #[allow(clippy::needless_range_loop, reason = "indexed loops are unrolled")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        // SAFETY: `direct` makes the task of pointers with `n` elements each (its contract); i + LANES ≤ n, and the tail has n - i.
        unsafe {
            while i + S::LANES <= self.n {
                let mut v = [s.zero(); N];
                v[0] = C::load(s, self.lead.add(i));
                for k in 1..N {
                    v[k] = A::load(s, self.from[k].add(i));
                }
                A::store(s, self.out.add(i), F::apply(s, self.parameters, v));
                i += S::LANES;
            }
            if i < self.n {
                let mut v = [s.zero(); N];
                v[0] = load_up_to(s, self.lead.add(i), self.n - i);
                for k in 1..N {
                    v[k] = load_up_to(s, self.from[k].add(i), self.n - i);
                }
                store_up_to(s, self.out.add(i), F::apply(s, self.parameters, v), self.n - i);
            }
        }
    }
}

fn direct_of<F: Pointwise<N>, A: Half, const N: usize>() -> Option<DirectFn> {
    (F::COST < LONG && !F::IS_PREDICATE && !F::HAS_CONDITION).then_some(direct::<F, A, A, N>)
}

/// Prepares `F` when all operands are of one float dtype, and so is the output (bool for a predicate).
pub fn prepare<F: Pointwise<N>, const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    // With a condition in front, the dtype is that of the operand behind it.
    let Some(dtype) = ctx.tensor(usize::from(F::HAS_CONDITION)).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(stored) = Stored::of(dtype).filter(|s| *s != Stored::Bool) else {
        return ctx.decline("takes floats");
    };
    if !fits::<F, N>(ctx.args, dtype) {
        return ctx.decline("takes operands and output of one float dtype, in orders that it can walk");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let mut operands = vec![stored; N];
    if F::HAS_CONDITION {
        operands[0] = Stored::Bool;
    }
    let is_single = stored == Stored::Single;
    let body = FunctionBody {
        cost: F::COST + if is_single { 0 } else { 2 },
        function: |args| F::parameters(args).map(Function::of::<F, N>),
        direct: match stored {
            _ if level.isa() == Isa::Portable => None,
            Stored::Binary16 => direct_of::<F, f16, N>(),
            Stored::Brain16 => direct_of::<F, bf16, N>(),
            _ if F::HAS_CONDITION => Some(direct::<F, Bool8, f32, N>),
            _ => None,
        },
    };
    let dtype = if is_single { "f32" } else { dtype.name() };
    let name = format!("{}.{dtype}.{}", F::NAME, level.isa().name());
    framed(
        name,
        BlockKernel::<FunctionBody, MAX_OPERANDS> {
            level,
            operands,
            out: ctx.args.len() - 1,
            stored_out: if F::IS_PREDICATE { Stored::Bool } else { stored },
            body,
        },
    )
}

impl BlockBody for FunctionBody {
    type Call = Option<Function>;

    fn cost(&self) -> usize {
        self.cost
    }

    fn call(&self, args: &Args<'_>) -> Result<Option<Function>> {
        (self.function)(args).map(Some)
    }

    unsafe fn run(&self, call: &Option<Function>, chunk: &mut BlockChunk<'_>) -> Result<()> {
        let function = call.ok_or_else(|| Error::internal("the call is not bound"))?;
        if let Some(direct) = self.direct
            && chunk.operands.iter().all(|operand| operand.plan.is_dense())
        {
            let mut sources = [std::ptr::null::<u8>(); MAX_OPERANDS];
            for (source, operand) in sources.iter_mut().zip(chunk.operands) {
                *source = operand.source;
            }
            // SAFETY: dense operands have an element for each of the output, which the range is inside of; `prepare` chose
            // `direct` by the dtypes.
            unsafe { direct(chunk.level, function.parameters(), sources, chunk.out, chunk.range) };
            return Ok(());
        }
        let [first, last] = chunk.range;
        let is_lead = |operand: &BlockOperand<'_>| function.takes_numbers() && is_long_number(operand.plan);
        let lead = chunk.operands.iter().position(is_lead);
        let rows = (0..chunk.operands.len()).find_map(|k| Some((k, columns_of_rows(chunk, function, k)?)));
        let mut call = Call { chunk, function, number: 0.0 };
        // SAFETY: the caller promises operands and output as the plans say; all ranges are parts of the chunk's.
        unsafe {
            match (rows, lead) {
                (Some((lead, columns)), _) => {
                    let head = first.next_multiple_of(columns).min(last);
                    let count = (last - head) / columns;
                    call.numbers(lead, [first, head]);
                    call.rows(lead, [count, columns], head);
                    call.numbers(lead, [head + count * columns, last]);
                }
                (None, Some(lead)) => call.numbers(lead, [first, last]),
                (None, None) => {
                    for at in (first..last).step_by(BLOCK) {
                        call.block([at, BLOCK.min(last - at)], None);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Is the operand one number for stretches that are long enough for calls of their own?
fn is_long_number(plan: &BroadcastPlan<1>) -> bool {
    const LONG: usize = 512;
    plan.rank() > 0 && plan.inner_strides() == [0] && plan.loop_at(plan.rank() - 1).0 >= LONG
}

/// The shortest row worth code of its own.
const LONG_ROW: usize = 32;
/// The numbers of all rows of a chunk have room in the block of their operand.
const _: () = assert!(CHUNK / LONG_ROW <= SPACE);

/// Length of rows along which operand `lead` is one number and all others can be read in place, as dense
/// rows or the same one again and again.
fn columns_of_rows(chunk: &BlockChunk<'_>, function: Function, lead: usize) -> Option<usize> {
    let plan = chunk.operands[lead].plan;
    let is_single = |(k, operand): (usize, &BlockOperand<'_>)| k == lead || operand.stored == Stored::Single;
    let are_single = chunk.operands.iter().enumerate().all(is_single);
    if !(are_single && chunk.stored_out == Stored::Single && function.takes_numbers() && plan.rank() == 2) {
        return None;
    }
    let (columns, strides) = plan.loop_at(1);
    let mut others =
        chunk.operands.iter().enumerate().filter(|(k, _)| *k != lead).map(|(_, other)| other.plan);
    let fits = |other: &BroadcastPlan<1>| other.is_dense() || other.period() == Some(columns);
    (strides == [0] && columns >= LONG_ROW && others.all(fits)).then_some(columns)
}

/// A chunk while it is computed.
struct Call<'c, 'a> {
    chunk: &'c mut BlockChunk<'a>,
    function: Function,
    number: f32,
}

impl Call<'_, '_> {
    /// `rows` whole rows of output elements from `at` on; see [`columns_of_rows`].
    ///
    /// # Safety
    /// As for [`BlockBody::run`], f32 everywhere but for `lead`; the rows are inside the chunk.
    unsafe fn rows(&mut self, lead: usize, [rows, columns]: [usize; 2], at: usize) {
        let mut task = RowBlock {
            operands: [std::ptr::null(); MAX_OPERANDS],
            strides: [0; MAX_OPERANDS],
            is_number: [false; MAX_OPERANDS],
            out: self.chunk.out.cast::<f32>().wrapping_add(at),
            out_stride: columns,
            rows,
            columns,
        };
        for (k, operand) in self.chunk.operands.iter().enumerate() {
            let (plan, source) = (operand.plan, operand.source.cast::<f32>());
            (task.operands[k], task.strides[k]) = if k == lead {
                let ((_, [stride]), first) = (plan.loop_at(0), at / columns);
                task.is_number[k] = true;
                if operand.stored == Stored::Single {
                    (source.wrapping_add(first * stride), stride)
                } else {
                    let numbers = &mut self.chunk.blocks[k * SPACE..][..rows];
                    for (row, number) in (first..).zip(numbers.iter_mut()) {
                        // SAFETY: the rows are inside the chunk, so that the operand has an element for each.
                        *number = unsafe { number_at(operand.stored, operand.source, row * stride) };
                    }
                    (numbers.as_ptr(), 1)
                }
            } else if plan.is_dense() {
                (source.wrapping_add(at), columns)
            } else {
                (source, 0)
            };
        }
        // SAFETY: rows of the operands lie as `columns_of_rows` has found out, those of the output side by side.
        unsafe { self.function.run(self.chunk.level, &task) };
    }

    /// Computes output elements `first..last`, along whose runs operand `lead` is one number.
    ///
    /// # Safety
    /// As for [`BlockBody::run`]; the elements are inside the chunk.
    unsafe fn numbers(&mut self, lead: usize, [first, last]: [usize; 2]) {
        let operand = self.chunk.operands[lead];
        for run in operand.plan.runs_between(first, last) {
            // SAFETY: the plan's runs lie inside the operand; the blocks are parts of the run, which is inside the chunk.
            unsafe {
                self.number = number_at(operand.stored, operand.source, run.offsets[0]);
                for at in (run.at..run.at + run.n).step_by(BLOCK) {
                    self.block([at, BLOCK.min(run.at + run.n - at)], Some(lead));
                }
            }
        }
    }

    /// Computes output elements `at..at + n`; operand `lead`, if there is one, is `self.number` for all of them.
    ///
    /// # Safety
    /// As for [`BlockBody::run`]; the elements are inside the chunk and no more than [`BLOCK`].
    unsafe fn block(&mut self, [at, n]: [usize; 2], lead: Option<usize>) {
        let mut rows = RowBlock {
            operands: [std::ptr::null(); MAX_OPERANDS],
            strides: [n; MAX_OPERANDS],
            is_number: [false; MAX_OPERANDS],
            out: self.chunk.target(at),
            out_stride: n,
            rows: 1,
            columns: n,
        };
        for k in 0..self.chunk.operands.len() {
            if lead == Some(k) {
                (rows.operands[k], rows.is_number[k]) = (&raw const self.number, true);
            } else {
                // SAFETY: the caller promises elements of the chunk.
                rows.operands[k] = unsafe { self.chunk.elements(k, [at, n]) };
            }
        }
        // SAFETY: operands hold `n` elements, or are the one number; the target has room for `n`.
        unsafe {
            self.function.run(self.chunk.level, &rows);
            self.chunk.store([at, n]);
        }
    }
}

/// Element `at` as f32.
///
/// # Safety
/// It is readable, of the dtype that `stored` says.
unsafe fn number_at(stored: Stored, source: *const u8, at: usize) -> f32 {
    // SAFETY: the caller promises the element and its type.
    unsafe { with_elements_of!(stored, T => (*source.cast::<T>().add(at)).number()) }
}
