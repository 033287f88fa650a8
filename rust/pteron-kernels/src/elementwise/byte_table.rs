//! A chain of one operand of bytes whose result is bytes: a function of 256 numbers, looked up. The table is what the chain makes of
//! them, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Input};
use super::operand::{BLOCK, Convert};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, Result};

/// Rough nanoseconds for 16 look-ups.
const COST: usize = 3;

/// The result of each byte.
pub(super) struct ByteTable([u8; 256]);

impl ByteTable {
    /// The table of a chain that reads and writes bytes, for the instruction set of `level`.
    pub(super) fn of(chain: &Chain, level: SimdLevel, [operand, result]: [Stored; 2]) -> Option<Self> {
        let number: fn(u8) -> f32 = match operand {
            Stored::Int8 => |byte| f32::from(byte as i8),
            Stored::UInt8 => |byte| f32::from(byte),
            _ => return None,
        };
        if chain.inputs() != 1 || !matches!(result, Stored::Int8 | Stored::UInt8) {
            return None;
        }
        let numbers: [f32; 256] = std::array::from_fn(|i| number(i as u8));
        let (mut results, mut table) = ([0f32; 256], [0u8; 256]);
        let mut scratch = vec![0f32; chain.scratch_floats()];
        let input = [Input { data: numbers.as_ptr(), row_stride: 0 }];
        let n = results.len();
        // SAFETY: operand and results are arrays of `n` numbers each, and the scratch is as large as the chain says.
        unsafe { chain.run(level, &input, results.as_mut_ptr(), n, [1, n], &mut scratch) };
        let (from, to) = (results.as_ptr(), table.as_mut_ptr());
        match result {
            Stored::Int8 => level.dispatch(Convert { from, to: to.cast::<i8>(), n }),
            _ => level.dispatch(Convert { from, to, n }),
        }
        Some(ByteTable(table))
    }
}

/// Looks up `n` bytes.
struct LookUp<'a> {
    table: &'a [u8; 256],
    from: *const u8,
    to: *mut u8,
    n: usize,
}

impl SimdTask for LookUp<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: whoever makes the task promises `n` bytes behind each pointer.
        unsafe { s.look_up(self.table, self.from, self.to, self.n) }
    }
}

impl BlockBody for ByteTable {
    type Call = ();

    fn cost(&self) -> usize {
        COST
    }

    fn call(&self, _: &Args<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: &(), chunk: &mut BlockChunk<'_>) -> Result<()> {
        let [first, last] = chunk.range;
        let out = chunk.out;
        if let [x] = chunk.operands
            && x.plan.is_dense()
        {
            let (from, to) = (x.source.wrapping_add(first), out.wrapping_add(first));
            chunk.level.dispatch(LookUp { table: &self.0, from, to, n: last - first });
            return Ok(());
        }
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            // SAFETY: the block is inside the chunk, whose operand and output are as the caller promises; numbers of bytes are
            // laid out for as many bytes of the output, which overlaps nothing.
            unsafe {
                let numbers = std::slice::from_raw_parts(chunk.elements(0, [at, n]), n);
                let bytes = std::slice::from_raw_parts_mut(out.add(at), n);
                for (byte, number) in bytes.iter_mut().zip(numbers) {
                    *byte = self.0[usize::from(*number as i32 as u8)];
                }
            }
        }
        Ok(())
    }
}
