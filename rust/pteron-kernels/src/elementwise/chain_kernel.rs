//! A run of elementwise calls as one kernel: a [`Chain`] over whole tensors, whose inputs may broadcast.
//!
//! Arguments are the chain's inputs in order (f32, bool where a condition is meant, int8 or uint8 where what is quantised
//! is read), then the output (f32, bool when the last step is a predicate, int8 or uint8 when it quantises).
//! Unsafe island (raw pointers, since the output may be an input).

use super::blocks::{BlockBody, BlockChunk, BlockKernel, Stored};
use super::byte_table::ByteTable;
use super::chain::{Chain, Input};
use super::function::RecogniseFn;
use super::operand::BLOCK;
use super::quantised_product::QuantisedProduct;
use super::quantised_sum::QuantisedSum;
use crate::frame::framed;
use crate::grid_kernel::Preparation;
use crate::vector_math::SimdLevel;
use pteron_core::{Args, PrepareContext, Result};
use std::sync::Arc;

const _: () = assert!(BLOCK == Chain::BLOCK);

struct ChainBody(Arc<Chain>);

/// Prepares `chain` on the tensors of `ctx`; `None` when their number or dtypes are others.
pub fn prepare(ctx: &PrepareContext<'_>, chain: &Arc<Chain>) -> Preparation {
    let inputs = chain.inputs();
    let stored = |i: usize| match Stored::or_quantised(ctx.tensor(i)?.dtype)? {
        Stored::Binary16 | Stored::Brain16 => None,
        stored => Some(stored),
    };
    let operands: Option<Vec<Stored>> = (0..inputs).map(stored).collect();
    let (Some(operands), Some(stored_out)) = (operands, stored(inputs)) else {
        return ctx.decline("takes dtypes of chains");
    };
    if inputs == 0 || ctx.args.len() != inputs + 1 {
        return ctx.decline("takes as many tensors as the chain has operands");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("elementwise[{chain}].{}", level.isa().name());
    if let [operand] = *operands.as_slice()
        && let Some(body) = ByteTable::of(chain, level, [operand, stored_out])
    {
        let name = format!("elementwise[{chain}].table.{}", level.isa().name());
        return framed(name, BlockKernel::<_, 1> { level, operands, out: inputs, stored_out, body });
    }
    let is_one_of_bytes = operands.iter().all(|stored| *stored == stored_out)
        && matches!(stored_out, Stored::Int8 | Stored::UInt8);
    if is_one_of_bytes && let Some(body) = QuantisedSum::of(chain) {
        return framed(name, BlockKernel::<_, 2> { level, operands, out: inputs, stored_out, body });
    }
    if let Some(body) = QuantisedProduct::of(chain, &operands, stored_out) {
        return framed(name, BlockKernel::<_, 2> { level, operands, out: inputs, stored_out, body });
    }
    framed(
        name,
        BlockKernel::<ChainBody, { Chain::MAX_INPUTS }> {
            level,
            operands,
            out: inputs,
            stored_out,
            body: ChainBody(chain.clone()),
        },
    )
}

/// Prepares a call that `recognise` knows as a function of one operand, whose numbers are known at load; `None` for others.
pub(crate) fn prepare_unary(ctx: &PrepareContext<'_>, recognise: RecogniseFn) -> Preparation {
    let Some(call) = recognise(ctx.args) else {
        return ctx.decline("a number is not known at load, or this form is no function of a chain");
    };
    let stored = |i: usize| Stored::or_quantised(ctx.tensor(i)?.dtype);
    let (Some(operand), Some(stored_out)) = (stored(0), stored(call.out)) else {
        return ctx.decline("takes dtypes of chains");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("{}.{}", call.function.name(), level.isa().name());
    let body = ChainBody(Arc::new(Chain::unary(call.function)?));
    framed(
        name,
        BlockKernel::<ChainBody, 1> { level, operands: vec![operand], out: call.out, stored_out, body },
    )
}

impl BlockBody for ChainBody {
    type Call = ();

    fn cost(&self) -> usize {
        self.0.cost()
    }

    fn scratch_floats(&self) -> usize {
        self.0.scratch_floats()
    }

    fn call(&self, _: &Args<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: &(), chunk: &mut BlockChunk<'_>) -> Result<()> {
        let [first, last] = chunk.range;
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            let mut given = [Input { data: std::ptr::null(), row_stride: 0 }; Chain::MAX_INPUTS];
            for (k, slot) in given.iter_mut().enumerate().take(chunk.operands.len()) {
                // SAFETY: the caller promises operands as their plans say; the block is inside the chunk.
                slot.data = unsafe { chunk.elements(k, [at, n]) };
            }
            let target = chunk.target(at);
            // SAFETY: inputs hold `n` elements each, the target has room for `n`; it and an input are the same elements or
            // disjoint (the alias rule).
            unsafe {
                self.0.run(chunk.level, &given[..chunk.operands.len()], target, n, [1, n], chunk.scratch);
                chunk.store([at, n]);
            }
        }
        Ok(())
    }
}
