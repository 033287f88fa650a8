//! sum, mean, prod, amax and amin of floats over neighbouring dimensions, computed in f32.
//!
//! Long sums are made of blocks, so that rounding grows with the square root of the length rather than with
//! the length; every output element has one order of summation. amax and amin answer NaN when there is one.

use super::shape::{DimsArg, ReducedDims, Volumes};
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::norm::moments::sum_of;
use crate::vector_math::exp::exp;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{
    Args, BindArgs, Bound, DType, Element, Error, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
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
    Product,
    Max,
    Min,
    /// ln Σ e^x; rows only.
    LogSumExp,
}

struct Reduction {
    kind: Kind,
    level: SimdLevel,
    name: String,
    dtype: DType,
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
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else { return Ok(None) };
    let is_float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
    if !is_float || ctx.tensor(out).is_none_or(|t| t.dtype != dtype) {
        return Ok(None);
    }
    let Some(dims) = ReducedDims::neighbours(ctx, out, form) else { return Ok(None) };
    if kind == Kind::LogSumExp && !dims.is_innermost(ctx) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = match kind {
        Kind::Sum => "sum",
        Kind::Mean => "mean",
        Kind::Product => "prod",
        Kind::Max => "amax",
        Kind::Min => "amin",
        Kind::LogSumExp => "logsumexp",
    };
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    let name = format!("{operator}.{text}.{}", level.isa().name());
    Ok(Some(Box::new(Reduction { kind, level, name, dtype, dims, out })))
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
        if self.kind == Kind::LogSumExp && volumes.inner != 1 {
            return Err(Error::internal("logsumexp of rows was bound to columns"));
        }
        let (count, size) = volumes.units(COLUMNS);
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
        let range = first..(first + units.per_chunk).min(units.count);
        match self.dtype {
            DType::Float16 => self.units::<f16>(args, units.volumes, range),
            DType::BFloat16 => self.units::<bf16>(args, units.volumes, range),
            _ => self.units::<f32>(args, units.volumes, range),
        }
    }
}

impl Reduction {
    fn units<T: Source + Sink + Element>(
        &self,
        args: &Args<'_>,
        volumes: Volumes,
        range: std::ops::Range<usize>,
    ) -> Result<()> {
        let (input, out) = (args.tensor(0)?.ptr::<T>()?, args.output(self.out)?.ptr::<T>()?);
        self.level.dispatch(UnitsTask { kind: self.kind, volumes, range, input, out });
        Ok(())
    }
}

struct UnitsTask<T> {
    kind: Kind,
    volumes: Volumes,
    range: std::ops::Range<usize>,
    input: *const T,
    out: *mut T,
}

impl<T: Source + Sink> SimdTask for UnitsTask<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let blocks = inner.div_ceil(COLUMNS);
        for unit in self.range.clone() {
            // SAFETY: units of the range lie inside input and output.
            unsafe {
                if inner == 1 {
                    *self.out.add(unit) = T::of_number(self.row(s, self.input.add(unit * reduced), reduced));
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

/// Σ e^(x - shift). No closure for [`sum_of`]: one of this size is not inlined, and has no vector instructions then.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn sum_of_powers<S: Simd, T: Source>(s: S, x: *const T, n: usize, shift: f32) -> f64 {
    /// Elements that are summed in f32 before they are added to an f64 total.
    const BLOCK: usize = 4096;
    let center = s.splat(shift);
    let mut total = 0.0;
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        let mut sum = s.zero();
        let mut i = start;
        // SAFETY: i stays below `end`.
        unsafe {
            while i + S::LANES <= end {
                sum = s.add(sum, exp(s, s.sub(T::load(s, x.add(i)), center)));
                i += S::LANES;
            }
            total += f64::from(s.reduce_add(sum));
            if i < end {
                let mut lanes = [0f32; crate::vector_math::simd::MAX_LANES];
                s.store(lanes.as_mut_ptr(), exp(s, s.sub(load_up_to(s, x.add(i), end - i), center)));
                total += f64::from(lanes[..end - i].iter().sum::<f32>());
            }
        }
        start = end;
    }
    total
}

impl<T: Source + Sink> UnitsTask<T> {
    /// # Safety
    /// `n` elements behind `x`.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const T, n: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                Kind::Sum => sum_of(s, x, n, |v| v) as f32,
                Kind::Mean => (sum_of(s, x, n, |v| v) / n as f64) as f32,
                Kind::Product => self.folded(s, x, n, 1.0),
                Kind::LogSumExp if n == 0 => f32::NEG_INFINITY,
                Kind::LogSumExp => {
                    let top = self.folded(s, x, n, (*x).number());
                    // Infinite maxima are their own result; subtracting them would give NaN.
                    let shift = if top.is_infinite() { 0.0 } else { top };
                    (sum_of_powers(s, x, n, shift).ln() + f64::from(shift)) as f32
                }
                // Starting from the first element needs no neutral one.
                Kind::Max | Kind::Min => self.folded(s, x, n, (*x).number()),
            }
        }
    }

    /// Combines all elements with `start` in four accumulators, so that they need not wait for each other.
    ///
    /// # Safety
    /// `n` elements behind `x`.
    #[inline(always)]
    unsafe fn folded<S: Simd>(&self, s: S, x: *const T, n: usize, start: f32) -> f32 {
        let mut all = [s.splat(start); 4];
        let mut i = 0;
        // SAFETY: i + 4 LANES ≤ n, then i + LANES ≤ n; what is left is read by element.
        unsafe {
            while i + 4 * S::LANES <= n {
                for (k, each) in all.iter_mut().enumerate() {
                    *each = self.combined(s, *each, T::load(s, x.add(i + k * S::LANES)));
                }
                i += 4 * S::LANES;
            }
            while i + S::LANES <= n {
                all[0] = self.combined(s, all[0], T::load(s, x.add(i)));
                i += S::LANES;
            }
            let mut lanes = [0f32; 4 * crate::vector_math::simd::MAX_LANES];
            if self.kind == Kind::Product {
                for (k, each) in all.iter().enumerate() {
                    s.store(lanes.as_mut_ptr().add(k * S::LANES), *each);
                }
                // In f64, whose range is larger: products of many numbers soon are subnormal in f32, which is slow.
                let mut parts = [1.0; 8];
                for group in lanes[..4 * S::LANES].chunks_exact(8) {
                    for (part, v) in parts.iter_mut().zip(group) {
                        *part *= f64::from(*v);
                    }
                }
                let mut result = parts.iter().fold(f64::from(start), |all, part| all * part);
                while i < n {
                    result *= f64::from((*x.add(i)).number());
                    i += 1;
                }
                return result as f32;
            }
            let pairs = [self.better(s, all[0], all[1]), self.better(s, all[2], all[3])];
            s.store(lanes.as_mut_ptr(), self.better(s, pairs[0], pairs[1]));
            let mut result = start;
            for v in &lanes[..S::LANES] {
                result = self.better_of(result, *v);
            }
            while i < n {
                result = self.better_of(result, (*x.add(i)).number());
                i += 1;
            }
            result
        }
    }

    #[inline(always)]
    fn combined<S: Simd>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if self.kind == Kind::Product { s.mul(a, b) } else { self.better(s, a, b) }
    }

    #[inline(always)]
    fn better<S: Simd>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if self.kind == Kind::Min { s.min_nan(a, b) } else { s.max_nan(a, b) }
    }

    #[inline(always)]
    fn better_of(&self, a: f32, b: f32) -> f32 {
        let is_first = if self.kind == Kind::Min { a < b } else { a > b };
        if is_first || a.is_nan() { a } else { b }
    }

    /// Reduces up to two vectors of neighbouring columns.
    ///
    /// # Safety
    /// `n ≤ 2 LANES` columns of all rows behind `x`, `n` elements behind `y`.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, x: *const T, y: *mut T, n: usize) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let (n0, n1) = (n.min(S::LANES), n.saturating_sub(S::LANES));
        // SAFETY: rows are `inner` apart; partial loads and stores touch n0 and n1 elements.
        unsafe {
            let load = |row: usize| {
                let p = x.add(row * inner);
                let second = if n1 > 0 { load_up_to(s, p.add(S::LANES), n1) } else { s.zero() };
                (load_up_to(s, p, n0), second)
            };
            let (mut a, mut b) = (s.zero(), s.zero());
            if matches!(self.kind, Kind::Max | Kind::Min) {
                (a, b) = load(0);
                for row in 1..reduced {
                    let (v, w) = load(row);
                    (a, b) = (self.better(s, a, v), self.better(s, b, w));
                }
            } else if self.kind == Kind::Product {
                (a, b) = (s.splat(1.0), s.splat(1.0));
                for row in 0..reduced {
                    let (v, w) = load(row);
                    (a, b) = (s.mul(a, v), s.mul(b, w));
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
            store_up_to(s, y, a, n0);
            if n1 > 0 {
                store_up_to(s, y.add(S::LANES), b, n1);
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, \
                 Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Mean, 4, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Mean, 2, DimsArg::All),
    },
    StaticKernel {
        schema: "aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, \
                 Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Sum, 4, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Max, 3, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::amin.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Min, 3, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::sum.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Sum, 2, DimsArg::All),
    },
    StaticKernel {
        schema: "aten::prod.int_out(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None, \
                 Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Product, 4, DimsArg::One),
    },
    StaticKernel {
        schema: "aten::prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Product, 2, DimsArg::All),
    },
    StaticKernel {
        schema: "aten::logsumexp.out(Tensor self, int[1] dim, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::LogSumExp, 3, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::max.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Max, 1, DimsArg::All),
    },
    StaticKernel {
        schema: "aten::min.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Min, 1, DimsArg::All),
    },
];
