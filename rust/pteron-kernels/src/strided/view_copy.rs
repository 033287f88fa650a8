//! Copies a view of a tensor into a dense one: the fast kernel behind permute, slice, expand and the
//! other layout operators. Unsafe island (raw pointers of any element size).
//!
//! Three shapes of inner loop, chosen at bind: contiguous runs, block transposes when some other loop is
//! contiguous in the source, and single elements.

use super::copy::{RegionCopy, StridedRegion, by_size, copy_run};
use super::loops::{Loops, Run};
use super::views::View;
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::grid_kernel::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, PrepareContext, Result, TensorView};
use std::ops::Range;

/// Says which view of argument 0 an operator copies.
pub type ViewOf = fn(&Args<'_>, &TensorView<'_>) -> Result<View>;

/// Rows of a block transpose that one work unit covers.
const UNIT_ROWS: usize = 32;
const MAX_OUTER: usize = 14;

/// A transpose: `dst[r * dst_stride + c] = src[r + c * src_stride]` for every outer index.
#[derive(Debug, Clone, Copy)]
struct Transpose {
    rows: usize,
    cols: usize,
    src_stride: usize,
    dst_stride: usize,
    outer_rank: usize,
    /// (extent, source stride, target stride).
    outer: [(usize, isize, isize); MAX_OUTER],
    units: usize,
}

impl Transpose {
    /// The transpose that `loops` are, if the innermost one strides in the source and another one is contiguous there.
    fn find(loops: &Loops<2>) -> Option<Self> {
        let inner = loops.rank().checked_sub(1)?;
        let (cols, [src_stride, 1]) = loops.loop_at(inner) else { return None };
        if src_stride <= 1 || cols < 2 || inner > MAX_OUTER {
            return None;
        }
        let is_row_loop = |d: &usize| matches!(loops.loop_at(*d), (4.., [1, to]) if to > 0);
        let row_loop = (0..inner).find(is_row_loop)?;
        let (rows, [_, dst_stride]) = loops.loop_at(row_loop);
        let (mut outer, mut outer_rank, mut count) = ([(1, 0, 0); MAX_OUTER], 0, 1);
        for d in (0..inner).rev().filter(|d| *d != row_loop) {
            let (n, [source, target]) = loops.loop_at(d);
            outer[outer_rank] = (n, source, target);
            outer_rank += 1;
            count *= n;
        }
        let units = count * rows.div_ceil(UNIT_ROWS);
        let (src_stride, dst_stride) = (src_stride as usize, dst_stride as usize);
        Some(Transpose { rows, cols, src_stride, dst_stride, outer_rank, outer, units })
    }
}

/// A bound call.
#[derive(Debug, Clone, Copy)]
struct ViewLoops {
    copy: RegionCopy,
    transpose: Option<Transpose>,
}

impl Default for ViewLoops {
    fn default() -> Self {
        ViewLoops { copy: RegionCopy::EMPTY, transpose: None }
    }
}

struct ViewCopy {
    level: SimdLevel,
    element_size: usize,
    out: usize,
    view_of: ViewOf,
}

/// Prepares the copy of `view_of` argument 0 into output `out` for dtypes of 1, 2, 4 or 8 bytes.
pub fn prepare(ctx: &PrepareContext<'_>, name: &'static str, out: usize, view_of: ViewOf) -> Preparation {
    let (Some(from), Some(to)) = (ctx.tensor(0), ctx.tensor(out)) else {
        return ctx.decline("an argument is no tensor");
    };
    let element_size = from.dtype.size();
    if from.dtype != to.dtype || !matches!(element_size, 1 | 2 | 4 | 8) {
        return ctx.decline("takes one dtype of 1, 2, 4 or 8 bytes");
    }
    framed(name, ViewCopy { level: SimdLevel::at_most(ctx.cpu.isa), element_size, out, view_of })
}

/// Gives output `out` the shape of a view of argument 0, and plans the copy in the memory order of the output.
pub fn bind_copy(args: &mut BindArgs<'_>, out: usize, view_of: ViewOf) -> Result<RegionCopy> {
    let view = args.args();
    let chosen = view_of(&view, &view.tensor(0)?)?;
    args.resize(out, &chosen.shape)?;
    let view = args.args();
    let (x, y) = (view.tensor(0)?, view.output(out)?);
    RegionCopy::ordered(&chosen.shape, chosen.region, x.numel(), StridedRegion::of(y.strides()), y.numel())
}

impl UnitKernel for ViewCopy {
    type Problem = ViewLoops;

    fn bind(&self, args: &mut BindArgs<'_>, plan: &mut ViewLoops) -> Result<Split> {
        let copy = bind_copy(args, self.out, self.view_of)?;
        let transpose = Transpose::find(copy.parts().0);
        *plan = ViewLoops { copy, transpose };
        let (numel, ns) = (copy.numel(), copy.numel().min(CHUNK) * self.element_size / 16);
        Ok(match &plan.transpose {
            Some(t) => Split::new(t.units, CHUNK.div_ceil(t.rows.min(UNIT_ROWS) * t.cols), ns),
            None => Split::new(numel, CHUNK, ns),
        })
    }

    fn run(&self, plan: &ViewLoops, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let size = self.element_size;
        let (from, to) = (chunk.input_bytes(0)?, chunk.output_shared_bytes(self.out)?);
        plan.copy.check(from.len() / size, to.len() / size)?;
        let (loops, first) = plan.copy.parts();
        let units = chunk.units.clone();
        // SAFETY: the regions lie inside tensors of as many elements as `RegionCopy::check` counted just now, so that
        // everything that the loops visit does; the units of a chunk are its own.
        unsafe {
            let from = from.as_ptr().offset(first[0] * size as isize);
            let to = to.as_ptr().offset(first[1] * size as isize);
            by_size!(size, T => {
                let (from, to) = (from.cast::<T>(), to.cast::<T>());
                match &plan.transpose {
                    Some(transpose) => self.level.dispatch(TransposeTask { transpose, units, from, to }),
                    None => self.level.dispatch(RunsTask { loops, range: units, from, to }),
                }
            });
        }
        Ok(())
    }
}

struct RunsTask<'a, T> {
    loops: &'a Loops<2>,
    range: Range<usize>,
    from: *const T,
    to: *mut T,
}

impl<T: Copy> SimdTask for RunsTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [from_stride, to_stride] = self.loops.inner_strides();
        let is_contiguous = (from_stride, to_stride) == (1, 1);
        for Run { offsets: [from, to], n, .. } in self.loops.runs_between(self.range.start, self.range.end) {
            // SAFETY: runs lie inside source and target, which `ViewCopy::run` checked.
            unsafe {
                let (from, to) = (self.from.offset(from), self.to.offset(to));
                match is_contiguous {
                    true => copy_neighbours(s, from, to, n),
                    false => copy_run(from, from_stride, to, to_stride, n),
                }
            }
        }
    }
}

/// Copies `n` elements; short runs of 4- and 8-byte elements without a library call.
///
/// # Safety
/// Valid for `n` elements, without overlap.
#[inline(always)]
unsafe fn copy_neighbours<S: Simd, T: Copy>(s: S, from: *const T, to: *mut T, n: usize) {
    let words = n * size_of::<T>() / 4;
    // SAFETY: the caller's promise; with elements of 4 or 8 bytes the words are the elements, loaded and
    // stored as bits.
    unsafe {
        if size_of::<T>() < 4 || words > 256 {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), n * size_of::<T>());
            return;
        }
        let (from, to): (*const f32, *mut f32) = (from.cast(), to.cast());
        let mut i = 0;
        while i < words {
            let m = S::LANES.min(words - i);
            s.store_up_to(to.add(i), s.load_up_to(from.add(i), m), m);
            i += m;
        }
    }
}

struct TransposeTask<'a, T> {
    transpose: &'a Transpose,
    units: Range<usize>,
    from: *const T,
    to: *mut T,
}

impl<T: Copy> SimdTask for TransposeTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.transpose;
        let blocks = t.rows.div_ceil(UNIT_ROWS);
        for unit in self.units {
            let (mut rest, row) = (unit / blocks, unit % blocks * UNIT_ROWS);
            let (mut source, mut target) = (row as isize, (row * t.dst_stride) as isize);
            for &(n, src, dst) in t.outer[..t.outer_rank].iter() {
                source += (rest % n) as isize * src;
                target += (rest % n) as isize * dst;
                rest /= n;
            }
            let rows = UNIT_ROWS.min(t.rows - row);
            // SAFETY: the unit's rows and columns are positions of the loops that the transpose was made of, which lie
            // inside source and target (`ViewCopy::run`).
            unsafe { transpose_unit(s, t, self.from.offset(source), self.to.offset(target), rows) };
        }
    }
}

/// # Safety
/// `rows` rows and all columns of `t` are valid behind `from` and `to`.
#[inline(always)]
unsafe fn transpose_unit<S: Simd, T: Copy>(s: S, t: &Transpose, from: *const T, to: *mut T, rows: usize) {
    // SAFETY: indices stay below rows and t.cols.
    unsafe {
        match t.cols {
            2 => return few_columns::<T, 2>(t, from, to, rows),
            3 => return few_columns::<T, 3>(t, from, to, rows),
            _ => {}
        }
        if size_of::<T>() == 4 {
            for c in (0..t.cols).step_by(S::LANES) {
                for r in (0..rows).step_by(S::LANES) {
                    let src: *const f32 = from.add(r + c * t.src_stride).cast();
                    let dst: *mut f32 = to.add(r * t.dst_stride + c).cast();
                    let (n, m) = (S::LANES.min(t.cols - c), S::LANES.min(rows - r));
                    s.transpose_block(src, t.src_stride, n, m, dst, t.dst_stride);
                }
            }
            return;
        }
        for c in (0..t.cols).step_by(16) {
            for r in 0..rows {
                for c in c..t.cols.min(c + 16) {
                    let value = from.add(r + c * t.src_stride).read_unaligned();
                    to.add(r * t.dst_stride + c).write_unaligned(value);
                }
            }
        }
    }
}

/// The same for so few columns that a loop over them would cost more than they do: planes of colours that become pixels.
///
/// # Safety
/// As [`transpose_unit`]; `C` is the number of columns.
#[inline(always)]
unsafe fn few_columns<T: Copy, const C: usize>(t: &Transpose, from: *const T, to: *mut T, rows: usize) {
    for r in 0..rows {
        for c in 0..C {
            // SAFETY: indices stay below the rows and columns that the caller promises.
            unsafe {
                to.add(r * t.dst_stride + c).write_unaligned(from.add(r + c * t.src_stride).read_unaligned());
            }
        }
    }
}
