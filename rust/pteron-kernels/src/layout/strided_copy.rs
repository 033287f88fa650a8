//! Copies a strided view of a tensor into a dense one: the engine behind permute, slice, expand and the
//! other layout operators. Unsafe island (raw pointers of any element size).
//!
//! Three shapes of inner loop, chosen at bind: contiguous runs, block transposes when some other loop is
//! contiguous in the source, and single elements.

use crate::elementwise::broadcast::{BroadcastPlan, CHUNK, Run};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    Args, BindArgs, Bound, Dims, Grid, PrepareContext, Prepared, Result, TensorMeta, TensorView,
    WorkerScratch,
};

/// A strided view of a tensor's elements.
#[derive(Debug, Clone, Copy)]
pub struct StridedView {
    /// First element.
    pub offset: usize,
    /// Extents.
    pub shape: Dims,
    /// Strides in elements, zero for repeated ones.
    pub strides: Dims,
}

impl StridedView {
    /// All of `tensor`.
    pub fn of(tensor: &TensorView<'_>) -> Self {
        StridedView { offset: 0, shape: *tensor.shape(), strides: *tensor.strides() }
    }
}

/// Computes the view of argument 0 that the operator copies. Its indices stay inside the tensor.
pub type ViewOf = fn(&Args<'_>) -> Result<StridedView>;

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
    outer: [(usize, usize, usize); MAX_OUTER],
    units_per_chunk: usize,
    units: usize,
}

#[derive(Debug, Clone)]
struct CopyPlan {
    offset: usize,
    walk: BroadcastPlan<1>,
    transpose: Option<Transpose>,
}

impl Transpose {
    /// The transpose that `walk` is, if its innermost loop strides and another one is contiguous.
    fn find(walk: &BroadcastPlan<1>) -> Option<Self> {
        let rank = walk.rank();
        let inner = rank.checked_sub(1)?;
        let (cols, [src_stride]) = walk.loop_at(inner);
        if src_stride <= 1 || cols < 4 || rank - 1 > MAX_OUTER {
            return None;
        }
        let row_loop = (0..inner).find(|d| walk.loop_at(*d).1 == [1] && walk.loop_at(*d).0 >= 4)?;
        let rows = walk.loop_at(row_loop).0;
        let (mut outer, mut outer_rank, mut dst_stride, mut step) = ([(1, 0, 0); MAX_OUTER], 0, 0, cols);
        let mut count = 1;
        for d in (0..inner).rev() {
            let (n, [source]) = walk.loop_at(d);
            if d == row_loop {
                dst_stride = step;
            } else {
                outer[outer_rank] = (n, source, step);
                outer_rank += 1;
                count *= n;
            }
            step *= n;
        }
        let units = count * rows.div_ceil(UNIT_ROWS);
        let units_per_chunk = CHUNK.div_ceil(rows.min(UNIT_ROWS) * cols);
        Some(Transpose { rows, cols, src_stride, dst_stride, outer_rank, outer, units_per_chunk, units })
    }
}

impl CopyPlan {
    const EMPTY: CopyPlan = CopyPlan { offset: 0, walk: BroadcastPlan::EMPTY, transpose: None };

    fn new(view: &StridedView, out: &TensorMeta) -> Self {
        let walk = BroadcastPlan::from_strides(out, |d, _| view.strides.get(d).copied().unwrap_or(0));
        CopyPlan { offset: view.offset, transpose: Transpose::find(&walk), walk }
    }

    fn grid(&self, element_size: usize) -> Grid {
        if self.walk.numel() == 0 {
            return Grid::EMPTY;
        }
        let chunks = match &self.transpose {
            Some(t) => t.units.div_ceil(t.units_per_chunk),
            None => self.walk.chunk_count(),
        };
        Grid::chunks(chunks, self.walk.numel().min(CHUNK) * element_size / 16)
    }
}

struct StridedCopy {
    name: &'static str,
    level: SimdLevel,
    element_size: usize,
    out: usize,
    view_of: ViewOf,
}

/// Prepares the copy of `view_of` argument 0 into output `out` for dtypes of 1, 2, 4 or 8 bytes.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    name: &'static str,
    out: usize,
    view_of: ViewOf,
) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(from), Some(to)) = (ctx.tensor(0), ctx.tensor(out)) else { return Ok(None) };
    let element_size = from.dtype.size();
    if from.dtype != to.dtype || !matches!(element_size, 1 | 2 | 4 | 8) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(StridedCopy { name, level, element_size, out, view_of })))
}

impl Prepared for StridedCopy {
    fn name(&self) -> &str {
        self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(CopyPlan::EMPTY)
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let view = (self.view_of)(&args.args())?;
        args.resize(self.out, &view.shape)?;
        let plan = bound.get_mut::<CopyPlan>()?;
        *plan = CopyPlan::new(&view, args.args().output(self.out)?.meta());
        Ok(plan.grid(self.element_size))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let plan = bound.get::<CopyPlan>()?;
        // SAFETY: the view starts inside the tensor.
        let from = unsafe { args.tensor(0)?.as_ptr().add(plan.offset * self.element_size) };
        let to = args.output(self.out)?.as_ptr();
        let chunk = chunk as usize;
        // SAFETY: the plan stays inside both tensors, whose elements have this size and alignment.
        unsafe {
            match self.element_size {
                1 => copy_chunk::<u8>(self.level, plan, chunk, from, to),
                2 => copy_chunk::<u16>(self.level, plan, chunk, from.cast(), to.cast()),
                4 => copy_chunk::<u32>(self.level, plan, chunk, from.cast(), to.cast()),
                _ => copy_chunk::<u64>(self.level, plan, chunk, from.cast(), to.cast()),
            }
        }
        Ok(())
    }
}

/// # Safety
/// The plan stays inside the memory behind `from` and `to`.
unsafe fn copy_chunk<T: Copy>(level: SimdLevel, plan: &CopyPlan, chunk: usize, from: *const T, to: *mut T) {
    match &plan.transpose {
        Some(transpose) => level.dispatch(TransposeTask { transpose, chunk, from, to }),
        None => level.dispatch(RunsTask { walk: &plan.walk, chunk, from, to }),
    }
}

struct RunsTask<'a, T> {
    walk: &'a BroadcastPlan<1>,
    chunk: usize,
    from: *const T,
    to: *mut T,
}

impl<T: Copy> SimdTask for RunsTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [stride] = self.walk.inner_strides();
        for Run { at, offsets: [offset], n } in self.walk.runs(self.chunk) {
            // SAFETY: runs lie inside source and target.
            unsafe {
                let (from, to) = (self.from.add(offset), self.to.add(at));
                match stride {
                    1 => copy_run(s, from, to, n),
                    0 => std::slice::from_raw_parts_mut(to, n).fill(*from),
                    _ => {
                        for i in 0..n {
                            *to.add(i) = *from.add(i * stride);
                        }
                    }
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
unsafe fn copy_run<S: Simd, T: Copy>(s: S, from: *const T, to: *mut T, n: usize) {
    let words = n * size_of::<T>() / 4;
    // SAFETY: the caller's promise; with elements of 4 or 8 bytes the words are the elements, loaded and
    // stored as bits.
    unsafe {
        if size_of::<T>() < 4 || words > 256 {
            std::ptr::copy_nonoverlapping(from, to, n);
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
    chunk: usize,
    from: *const T,
    to: *mut T,
}

impl<T: Copy> SimdTask for TransposeTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.transpose;
        let blocks = t.rows.div_ceil(UNIT_ROWS);
        let first = self.chunk * t.units_per_chunk;
        for unit in first..(first + t.units_per_chunk).min(t.units) {
            let (mut rest, row) = (unit / blocks, unit % blocks * UNIT_ROWS);
            let (mut source, mut target) = (row, row * t.dst_stride);
            for &(n, src, dst) in t.outer[..t.outer_rank].iter() {
                source += rest % n * src;
                target += rest % n * dst;
                rest /= n;
            }
            let rows = UNIT_ROWS.min(t.rows - row);
            // SAFETY: the unit's rows and columns lie inside source and target.
            unsafe { transpose_unit(s, t, self.from.add(source), self.to.add(target), rows) };
        }
    }
}

/// # Safety
/// `rows` rows and all columns of `t` are valid behind `from` and `to`.
#[inline(always)]
unsafe fn transpose_unit<S: Simd, T: Copy>(s: S, t: &Transpose, from: *const T, to: *mut T, rows: usize) {
    // SAFETY: indices stay below rows and t.cols.
    unsafe {
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
                    *to.add(r * t.dst_stride + c) = *from.add(r + c * t.src_stride);
                }
            }
        }
    }
}
