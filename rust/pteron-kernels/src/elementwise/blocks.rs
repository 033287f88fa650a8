//! The vector frame: elementwise functions of f32 over whole tensors, block by block. An operand that lies as the output
//! does is read in place, others (broadcast, another memory order, sixteen bits, quantised, bool) are laid out in f32 blocks; a result
//! of sixteen bits is rounded once. What is computed of the blocks is a [`BlockBody`]: one function ([`super::floats`]) or a
//! chain of them ([`super::chain_kernel`]).
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, broadcast_shape};
use super::operand::{BLOCK, Convert, Layout, SPACE, begin, elements};
use crate::frame::{Chunk, Split, UnitKernel};
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{AliasRule, Args, BindArgs, Bool8, DType, Dims, Result, Scratch};

/// How the elements of an operand or of the result lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Single,
    Binary16,
    Brain16,
    /// Read as 1 for true and 0 for false.
    Bool,
    /// Quantised numbers.
    Int8,
    /// Quantised numbers.
    UInt8,
}

impl Stored {
    pub(super) fn of(dtype: DType) -> Option<Stored> {
        match dtype {
            DType::Float32 => Some(Stored::Single),
            DType::Float16 => Some(Stored::Binary16),
            DType::BFloat16 => Some(Stored::Brain16),
            DType::Bool => Some(Stored::Bool),
            _ => None,
        }
    }

    /// As [`Stored::of`], for what is quantised, too.
    pub(super) fn or_quantised(dtype: DType) -> Option<Stored> {
        match dtype {
            DType::Int8 => Some(Stored::Int8),
            DType::UInt8 => Some(Stored::UInt8),
            other => Stored::of(other),
        }
    }
}

/// Evaluates an expression with a type name that stands for the elements.
macro_rules! with_elements_of {
    ($stored:expr, $t:ident => $body:expr) => {
        match $stored {
            Stored::Single => {
                type $t = f32;
                $body
            }
            Stored::Binary16 => {
                type $t = f16;
                $body
            }
            Stored::Brain16 => {
                type $t = bf16;
                $body
            }
            Stored::Bool => {
                type $t = Bool8;
                $body
            }
            Stored::Int8 => {
                type $t = i8;
                $body
            }
            Stored::UInt8 => {
                type $t = u8;
                $body
            }
        }
    };
}

pub(super) use with_elements_of;

/// What is computed of the operands.
pub(super) trait BlockBody: Send + Sync + 'static {
    /// What `bind` finds out about a call: the numbers of a function.
    type Call: Default + Send + Sync + 'static;

    /// Rough nanoseconds for 16 elements.
    fn cost(&self) -> usize;

    /// Floats of scratch memory beside the blocks.
    fn scratch_floats(&self) -> usize {
        0
    }

    /// The numbers of a call.
    fn call(&self, args: &Args<'_>) -> Result<Self::Call>;

    /// Computes a chunk in blocks.
    ///
    /// # Safety
    /// The operands and the output of `chunk` are those that its plans were made for.
    unsafe fn run(&self, call: &Self::Call, chunk: &mut BlockChunk<'_>) -> Result<()>;
}

/// A kernel in the frame; its operands are arguments `0..operands.len()`, at most `N`, the output is the last argument.
pub(super) struct BlockKernel<B, const N: usize> {
    pub(super) level: SimdLevel,
    pub(super) operands: Vec<Stored>,
    /// Position of the output among the arguments.
    pub(super) out: usize,
    pub(super) stored_out: Stored,
    pub(super) body: B,
}

/// How the operands lie, each by itself, and the numbers of the call.
pub(super) struct BlockProblem<C, const N: usize> {
    numel: usize,
    plans: [BroadcastPlan<1>; N],
    call: C,
}

impl<C: Default, const N: usize> Default for BlockProblem<C, N> {
    fn default() -> Self {
        BlockProblem { numel: 0, plans: [const { BroadcastPlan::EMPTY }; N], call: C::default() }
    }
}

/// A chunk of a call: output elements `first..last`.
pub(super) struct BlockChunk<'a> {
    pub(super) level: SimdLevel,
    pub(super) range: [usize; 2],
    pub(super) operands: &'a [BlockOperand<'a>],
    pub(super) out: *mut u8,
    pub(super) stored_out: Stored,
    /// [`SPACE`] floats for each operand.
    pub(super) blocks: &'a mut [f32],
    /// [`BLOCK`] floats.
    pub(super) result: &'a mut [f32],
    /// What the body asked for.
    pub(super) scratch: &'a mut [f32],
}

/// An operand of a chunk.
#[derive(Clone, Copy)]
pub(super) struct BlockOperand<'a> {
    pub(super) plan: &'a BroadcastPlan<1>,
    pub(super) source: *const u8,
    pub(super) stored: Stored,
    layout: Layout,
}

impl BlockChunk<'_> {
    /// Where the elements of operand `k` for output elements `at..at + n` lie side by side.
    ///
    /// # Safety
    /// As for [`BlockBody::run`]; the elements are inside the chunk and no more than [`BLOCK`].
    #[inline(always)]
    pub(super) unsafe fn elements(&mut self, k: usize, at: [usize; 2]) -> *const f32 {
        let operand = &self.operands[k];
        let block = &mut self.blocks[k * SPACE..(k + 1) * SPACE];
        // SAFETY: the plan was made for the tensor at `source`, whose dtype chose `stored`; the caller promises elements inside
        // the output, and the layout is that of this block.
        unsafe {
            with_elements_of!(operand.stored, T => {
                elements(self.level, operand.plan, operand.source.cast::<T>(), operand.layout, at, block)
            })
        }
    }

    /// Where `n` results for output elements from `at` on are computed: in place if the output is f32.
    #[inline(always)]
    pub(super) fn target(&mut self, at: usize) -> *mut f32 {
        match self.stored_out {
            Stored::Single => self.out.cast::<f32>().wrapping_add(at),
            _ => self.result.as_mut_ptr(),
        }
    }

    /// Stores `n` results that were computed at [`BlockChunk::target`].
    ///
    /// # Safety
    /// As for [`BlockBody::run`]; output elements `at..at + n` are inside the chunk and no more than [`BLOCK`].
    #[inline(always)]
    pub(super) unsafe fn store(&mut self, [at, n]: [usize; 2]) {
        let from = self.result.as_ptr();
        with_elements_of!(self.stored_out, T => {
            if self.stored_out != Stored::Single {
                self.level.dispatch(Convert { from, to: self.out.cast::<T>().wrapping_add(at), n });
            }
        });
    }
}

impl<B: BlockBody, const N: usize> UnitKernel for BlockKernel<B, N> {
    type Problem = BlockProblem<B::Call, N>;

    fn alias(&self) -> AliasRule {
        match self.stored_out {
            Stored::Bool | Stored::Int8 | Stored::UInt8 => AliasRule::None,
            Stored::Single | Stored::Binary16 | Stored::Brain16 => AliasRule::InPlace,
        }
    }

    fn scratch(&self) -> Scratch {
        let floats = self.body.scratch_floats() + self.operands.len() * SPACE + BLOCK;
        Scratch { per_worker: floats * size_of::<f32>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Self::Problem) -> Result<Split> {
        let mut shapes = [Dims::EMPTY; N];
        for (i, shape) in shapes.iter_mut().enumerate().take(self.operands.len()) {
            *shape = *args.args().tensor(i)?.shape();
        }
        let refs: [&Dims; N] = std::array::from_fn(|i| &shapes[i]);
        args.resize(self.out, &broadcast_shape(&refs[..self.operands.len()])?)?;
        let args = args.args();
        let out = args.output(self.out)?;
        for (i, plan) in problem.plans.iter_mut().enumerate().take(self.operands.len()) {
            *plan = BroadcastPlan::new(out.meta(), [args.tensor(i)?.meta()]);
        }
        problem.numel = out.meta().numel();
        problem.call = self.body.call(&args)?;
        Ok(Split::new(problem.numel, CHUNK, problem.numel.min(CHUNK) / 16 * self.body.cost()))
    }

    fn run(&self, problem: &Self::Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let blocks = chunk.take_scratch::<f32>(self.operands.len() * SPACE)?;
        let result = chunk.take_scratch::<f32>(BLOCK)?;
        let scratch = chunk.take_scratch::<f32>(self.body.scratch_floats())?;
        let args = chunk.args();
        let nothing = BlockOperand {
            plan: &problem.plans[0],
            source: std::ptr::null(),
            stored: Stored::Single,
            layout: Layout::Other,
        };
        let mut operands = [nothing; N];
        for (k, stored) in self.operands.iter().enumerate() {
            let (plan, source) = (&problem.plans[k], args.tensor(k)?.as_ptr());
            let block = &mut blocks[k * SPACE..(k + 1) * SPACE];
            // SAFETY: `prepare` chose `stored` by the dtype of this tensor, and `bind` made the plan for its shape and the
            // output's; the block has SPACE floats.
            let layout = unsafe {
                with_elements_of!(*stored, T => begin(self.level, plan, source.cast::<T>(), block))
            };
            operands[k] = BlockOperand { plan, source, stored: *stored, layout };
        }
        let mut chunk = BlockChunk {
            level: self.level,
            range: [chunk.units.start, chunk.units.end],
            operands: &operands[..self.operands.len()],
            out: args.output(self.out)?.as_ptr(),
            stored_out: self.stored_out,
            blocks,
            result,
            scratch,
        };
        // SAFETY: the plans are those of these operands and this output; the frame gives the elements of the chunk to this call alone, and its alias rule says that an
        // operand that is the output has the same elements in the same places.
        unsafe { self.body.run(&problem.call, &mut chunk) }
    }
}
