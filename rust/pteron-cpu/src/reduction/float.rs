//! sum, mean, amax and amin of f32 over neighbouring dimensions.
//!
//! Long sums are made of blocks, so that rounding grows with the square root of the length rather than with
//! the length; every output element has one order of summation. amax and amin answer NaN when there is one.

use super::shape::{DimsArg, ReducedDims, Volumes};
use crate::norm::moments::sum_of;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, StaticKernel, WorkerScratch,
};

/// Input elements of a chunk, about.
const CHUNK: usize = 16 << 10;
/// Columns that one unit reduces together: what one pass over the rows keeps in registers.
const COLUMNS: usize = 64;
/// Rows added up before their sum is added to the total.
const ROWS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    Max,
    Min,
}

struct Reduction {
    kind: Kind,
    level: SimdLevel,
    name: String,
    dims: ReducedDims,
    out: usize,
}

/// Units of work: rows when the innermost dimension is reduced, else blocks of columns.
#[derive(Debug, Clone, Copy, Default)]
struct Units {
    volumes: Volumes,
    count: usize,
    per_chunk: usize,
}

fn prepare(
    ctx: &PrepareContext<'_>,
    kind: Kind,
    out: usize,
    form: DimsArg,
) -> Result<Option<Box<dyn Prepared>>> {
    let is_f32 = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32);
    if !is_f32(0) || !is_f32(out) {
        return Ok(None);
    }
    let Some(dims) = ReducedDims::neighbours(ctx, out, form) else { return Ok(None) };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = match kind {
        Kind::Sum => "sum",
        Kind::Mean => "mean",
        Kind::Max => "amax",
        Kind::Min => "amin",
    };
    let name = format!("{operator}.f32.{}", level.isa().name());
    Ok(Some(Box::new(Reduction { kind, level, name, dims, out })))
}

impl Prepared for Reduction {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let volumes = self.dims.bind(args, self.out)?;
        let outputs = volumes.outer * volumes.inner;
        if volumes.reduced == 0 && outputs > 0 && matches!(self.kind, Kind::Max | Kind::Min) {
            return Err(Error::kernel("the largest or smallest of no elements is not defined")
                .expected("a non-zero extent in every reduced dimension")
                .got(args.args().tensor(0)?.shape().to_string()));
        }
        if outputs == 0 {
            return Ok(Grid::EMPTY);
        }
        let (count, size) = match volumes.inner {
            1 => (volumes.outer, volumes.reduced),
            inner => (volumes.outer * inner.div_ceil(COLUMNS), volumes.reduced * inner.min(COLUMNS)),
        };
        let per_chunk = CHUNK.div_ceil(size.max(1));
        *bound.get_mut::<Units>()? = Units { volumes, count, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * size / 8))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let units = *bound.get::<Units>()?;
        let first = chunk as usize * units.per_chunk;
        self.level.dispatch(UnitsTask {
            kind: self.kind,
            volumes: units.volumes,
            range: first..(first + units.per_chunk).min(units.count),
            input: args.tensor(0)?.ptr()?,
            out: args.output(self.out)?.ptr()?,
        });
        Ok(())
    }
}

struct UnitsTask {
    kind: Kind,
    volumes: Volumes,
    range: std::ops::Range<usize>,
    input: *const f32,
    out: *mut f32,
}

impl SimdTask for UnitsTask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let blocks = inner.div_ceil(COLUMNS);
        for unit in self.range.clone() {
            // SAFETY: units of the range lie inside input and output.
            unsafe {
                if inner == 1 {
                    *self.out.add(unit) = self.row(s, self.input.add(unit * reduced), reduced);
                    continue;
                }
                let (outer, first) = (unit / blocks, unit % blocks * COLUMNS);
                let n = COLUMNS.min(inner - first);
                let input = self.input.add(outer * reduced * inner + first);
                let out = self.out.add(outer * inner + first);
                for c in (0..n).step_by(2 * S::LANES) {
                    self.columns(s, input.add(c), out.add(c), (2 * S::LANES).min(n - c));
                }
            }
        }
    }
}

impl UnitsTask {
    /// # Safety
    /// `n` elements behind `x`.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const f32, n: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                Kind::Sum => sum_of(s, x, n, |v| v) as f32,
                Kind::Mean => (sum_of(s, x, n, |v| v) / n as f64) as f32,
                Kind::Max | Kind::Min => {
                    // Starting from the first element needs no neutral one; overlapping the last vector
                    // with the one before changes nothing.
                    let mut best = s.splat(*x);
                    let mut i = 0;
                    while i + S::LANES <= n {
                        best = self.better(s, best, s.load(x.add(i)));
                        i += S::LANES;
                    }
                    let mut lanes = [0f32; crate::vector_math::simd::MAX_LANES];
                    s.store(lanes.as_mut_ptr(), best);
                    let rest = std::slice::from_raw_parts(x.add(i), n - i);
                    let all = lanes[..S::LANES].iter().chain(rest);
                    all.fold(*x, |a, b| self.better_of(a, *b))
                }
            }
        }
    }

    #[inline(always)]
    fn better<S: Simd>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if self.kind == Kind::Max { s.max_nan(a, b) } else { s.min_nan(a, b) }
    }

    #[inline(always)]
    fn better_of(&self, a: f32, b: f32) -> f32 {
        let is_first = if self.kind == Kind::Max { a > b } else { a < b };
        if is_first || a.is_nan() { a } else { b }
    }

    /// Reduces up to two vectors of neighbouring columns.
    ///
    /// # Safety
    /// `n ≤ 2 LANES` columns of all rows behind `x`, `n` elements behind `y`.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, x: *const f32, y: *mut f32, n: usize) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let (n0, n1) = (n.min(S::LANES), n.saturating_sub(S::LANES));
        // SAFETY: rows are `inner` apart; partial loads and stores touch n0 and n1 elements.
        unsafe {
            let load = |row: usize| {
                let p = x.add(row * inner);
                let second = if n1 > 0 { s.load_up_to(p.add(S::LANES), n1) } else { s.zero() };
                (s.load_up_to(p, n0), second)
            };
            let (mut a, mut b) = (s.zero(), s.zero());
            if matches!(self.kind, Kind::Max | Kind::Min) {
                (a, b) = load(0);
                for row in 1..reduced {
                    let (v, w) = load(row);
                    (a, b) = (self.better(s, a, v), self.better(s, b, w));
                }
            } else {
                for start in (0..reduced).step_by(ROWS) {
                    let (mut p, mut q) = (s.zero(), s.zero());
                    for row in start..reduced.min(start + ROWS) {
                        let (v, w) = load(row);
                        (p, q) = (s.add(p, v), s.add(q, w));
                    }
                    (a, b) = (s.add(a, p), s.add(b, q));
                }
                if self.kind == Kind::Mean {
                    let count = s.splat(reduced as f32);
                    (a, b) = (s.div(a, count), s.div(b, count));
                }
            }
            s.store_up_to(y, a, n0);
            if n1 > 0 {
                s.store_up_to(y.add(S::LANES), b, n1);
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, \
                 Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Kind::Mean, 4, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Kind::Mean, 2, DimsArg::All),
    },
    StaticKernel {
        schema: "aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, \
                 Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Kind::Sum, 4, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Kind::Max, 3, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::amin.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Kind::Min, 3, DimsArg::List),
    },
];
