//! A batch and a key head of a call: where its rows lie, and its keys and values packed. Unsafe island.
#![allow(unsafe_code, reason = "rows of queries, keys, values and sums are addressed by stride")]

use super::key_value_panels::{WidenRows, pack_keys, pack_values};
use super::problem::{MaskKind, Problem, Strides};
use super::scores::BlockMask;
use pteron_core::Element;
use pteron_kernels::elementwise::operand::{Sink, Source};
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;

/// An element of queries, keys, values and output: f32, or 16 bits, which become f32 when they are read.
pub(super) trait Number: Source + Sink + Element {}
impl Number for f32 {}
impl Number for half::bf16 {}
impl Number for half::f16 {}

/// An element of keys and values: of the same type, or int8 with a factor for each row.
pub(super) trait Stored: Source + Element {}
impl<T: Number> Stored for T {}
impl Stored for i8 {}

/// Where the parts of a worker's scratch begin.
pub(super) struct Buffers {
    pub keys: *mut f32,
    pub values: *mut f32,
    pub queries: *mut f32,
    pub scores: *mut f32,
    pub largest: *mut f32,
    pub sum: *mut f32,
    pub widened: *mut f32,
    pub sums: *mut f32,
}

/// A batch and a key head, with the tensors of the call.
pub(super) struct Unit<'a, T, C> {
    pub problem: &'a Problem,
    pub query: *const T,
    pub key: *const C,
    pub value: *const C,
    /// Of the rows of keys and values; null where they have none.
    pub factors: [*const f32; 2],
    pub out: *mut T,
    pub mask: *const u8,
    pub batch: usize,
    pub key_head: usize,
    pub is_direct: bool,
    pub buffers: &'a Buffers,
}

/// Rows of one query head that are computed together.
pub(super) struct RowBlock {
    pub head: usize,
    pub rows: Range<usize>,
    /// Of the first row among those of the chunk.
    pub slot: usize,
}

/// Cuts rows of a unit, heads one after the other, into blocks inside one head of at most `most` rows.
pub(super) fn row_blocks(
    per_head: usize,
    rows: &Range<usize>,
    most: usize,
) -> impl Iterator<Item = RowBlock> {
    let (first, end) = (rows.start, rows.end);
    let mut at = first;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (head, row) = (at / per_head, at % per_head);
        let left = (end - at).min(per_head - row);
        // Even parts of what is left of the head.
        let n = left.div_ceil(left.div_ceil(most));
        let block = RowBlock { head, rows: row..row + n, slot: at - first };
        at += n;
        Some(block)
    })
}

fn at(s: &Strides, batch: usize, head: usize, row: usize, element: usize) -> usize {
    batch * s.batch + head * s.head + row * s.row + element * s.element
}

impl<T: Number, C: Stored> Unit<'_, T, C> {
    /// Head of the queries.
    fn query_head(&self, head: usize) -> usize {
        self.key_head * self.problem.group + head
    }
    pub(super) fn query_at(&self, head: usize, row: usize) -> *const T {
        self.query.wrapping_add(at(&self.problem.query, self.batch, self.query_head(head), row, 0))
    }
    pub(super) fn out_at(&self, head: usize, row: usize) -> *mut T {
        self.out.wrapping_add(at(&self.problem.out, self.batch, self.query_head(head), row, 0))
    }
    pub(super) fn key_at(&self, key: usize) -> *const C {
        self.key.wrapping_add(at(&self.problem.key, self.batch, self.key_head, key, 0))
    }
    pub(super) fn value_at(&self, key: usize) -> *const C {
        self.value.wrapping_add(at(&self.problem.value, self.batch, self.key_head, key, 0))
    }
    /// The factors of keys (0) or values (1) from one on, and how far apart they are.
    pub(super) fn factors_at(&self, which: usize, key: usize) -> Option<(*const f32, usize)> {
        let (factors, strides) = (*self.factors.get(which)?, self.problem.factors.get(which)?);
        let first = factors.wrapping_add(at(strides, self.batch, self.key_head, key, 0));
        (!factors.is_null()).then_some((first, strides.row))
    }
    /// Where the sums of a block's rows are kept, and how far apart: in the output itself if it is f32.
    pub(super) fn sums_at(&self, block: &RowBlock) -> (*mut f32, usize) {
        match T::IS_F32 {
            true => (self.out_at(block.head, block.rows.start).cast(), self.problem.out.row),
            false => {
                let width = self.problem.width;
                (self.buffers.sums.wrapping_add(block.slot * width), width)
            }
        }
    }
    pub(super) fn mask_at(&self, head: usize, row: usize, key: usize) -> BlockMask {
        let m = &self.problem.mask;
        let offset = at(m, self.batch, self.query_head(head), row, key);
        match self.problem.mask_kind {
            MaskKind::None => BlockMask::None,
            MaskKind::Added => {
                BlockMask::Added(self.mask.cast::<f32>().wrapping_add(offset), m.row, m.element)
            }
            MaskKind::AddedBrain => {
                BlockMask::AddedBrain(self.mask.cast::<half::bf16>().wrapping_add(offset), m.row, m.element)
            }
            MaskKind::AddedBinary => {
                BlockMask::AddedBinary(self.mask.cast::<half::f16>().wrapping_add(offset), m.row, m.element)
            }
            MaskKind::Kept => BlockMask::Kept(self.mask.wrapping_add(offset), m.row, m.element),
        }
    }

    /// Makes the rows of `block` those of a sum over nothing.
    ///
    /// # Safety
    /// The rows are inside the output.
    pub(super) unsafe fn begin(&self, block: &RowBlock) {
        let (p, b) = (self.problem, self.buffers);
        let (out, stride) = self.sums_at(block);
        for row in 0..block.rows.len() {
            // SAFETY: the rows are inside the output, as the caller promises; the buffers have room for every row of a chunk.
            unsafe {
                out.add(row * stride).write_bytes(0, p.width);
                *b.largest.add(block.slot + row) = f32::NEG_INFINITY;
                *b.sum.add(block.slot + row) = 0.0;
            }
        }
    }

    /// # Safety
    /// `keys` are inside the tensors; the buffers have room for them.
    pub(super) unsafe fn pack(&self, level: SimdLevel, keys: &Range<usize>) {
        let (p, b) = (self.problem, self.buffers);
        // SAFETY: the keys are inside the tensors and the buffers have room for them, as the caller promises.
        unsafe {
            let (key, strides) = self.as_f32(level, self.key_at(keys.start), &p.key, [keys.len(), p.depth]);
            pack_keys(level, key, strides, keys.len(), p.depth, b.keys);
            let (value, strides) =
                self.as_f32(level, self.value_at(keys.start), &p.value, [keys.len(), p.width]);
            pack_values(level, value, strides, keys.len(), p.width, b.values);
        }
    }

    /// Some rows as f32, with the strides of rows and elements: where they lie, or widened in the scratch.
    ///
    /// # Safety
    /// The rows are there; the scratch has room for them.
    unsafe fn as_f32(
        &self,
        level: SimdLevel,
        from: *const C,
        strides: &Strides,
        [rows, n]: [usize; 2],
    ) -> (*const f32, (usize, usize)) {
        if C::IS_F32 {
            return (from.cast(), (strides.row, strides.element));
        }
        let to = self.buffers.widened;
        let rows = WidenRows { from, row: strides.row, element: strides.element, rows, n, to };
        level.dispatch(rows);
        (to.cast_const(), (n, 1))
    }
}
