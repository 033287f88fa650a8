//! softmax and log_softmax of f32 over the dimension that is innermost in memory.
//!
//! softmax: x → e^(x - max) / Σ e^(x - max). A row with NaN, or with nothing but -inf, becomes NaN, as in
//! eager. Each row has one summation order, fixed by its length and the instruction set.

use crate::vector_math::exp::exp;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, DType, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

const OUT: usize = 3;
/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 8 << 10;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Softmax,
    LogSoftmax,
}

struct SoftmaxRows {
    kind: Kind,
    level: SimdLevel,
    name: String,
}

/// Rows of the current shape.
#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    count: usize,
    length: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>, kind: Kind) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else { return Ok(None) };
    let Some(ArgSpec::Int(Some(dim))) = ctx.args.get(1) else { return Ok(None) };
    let rank = input.shape.len();
    let dim = if *dim < 0 { dim + rank as i64 } else { *dim };
    let is_innermost = input.dim_order.as_slice().last().is_some_and(|d| i64::from(*d) == dim);
    let is_f32 = input.dtype == DType::Float32 && out.dtype == DType::Float32;
    if !(is_f32 && is_innermost && input.dim_order == out.dim_order) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = if kind == Kind::Softmax { "softmax" } else { "log_softmax" };
    Ok(Some(Box::new(SoftmaxRows { kind, level, name: format!("{operator}.f32.{}", level.isa().name()) })))
}

impl Prepared for SoftmaxRows {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let input = args.args().tensor(0)?;
        let (shape, numel) = (*input.shape(), input.numel());
        let innermost = input.meta().dim_order().as_slice().last().map_or(0, |d| *d as usize);
        args.resize(OUT, &shape)?;
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let length = shape.get(innermost).copied().unwrap_or(1);
        let count = numel / length;
        let per_chunk = CHUNK.div_ceil(length);
        *bound.get_mut::<Rows>()? = Rows { count, length, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * length))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let rows = *bound.get::<Rows>()?;
        let first = chunk as usize * rows.per_chunk;
        let count = rows.per_chunk.min(rows.count - first);
        // SAFETY: both tensors have rows.count · rows.length elements; rows of a chunk are inside.
        let (input, out) = unsafe {
            let offset = first * rows.length;
            (args.tensor(0)?.ptr::<f32>()?.add(offset), args.output(OUT)?.ptr::<f32>()?.add(offset))
        };
        self.level.dispatch(RowsTask { kind: self.kind, input, out, count, length: rows.length });
        Ok(())
    }
}

struct RowsTask {
    kind: Kind,
    input: *const f32,
    out: *mut f32,
    count: usize,
    length: usize,
}

impl SimdTask for RowsTask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.count {
            // SAFETY: `count` rows of `length` elements behind both pointers.
            unsafe {
                let x = self.input.add(row * self.length);
                let y = self.out.add(row * self.length);
                let max = row_max(s, x, self.length);
                match self.kind {
                    Kind::Softmax => {
                        let sum = exp_sum::<S, true>(s, x, y, self.length, max);
                        scale(s, y, self.length, 1.0 / sum);
                    }
                    Kind::LogSoftmax => {
                        let sum = exp_sum::<S, false>(s, x, y, self.length, max);
                        shift(s, x, y, self.length, max, sum.ln());
                    }
                }
            }
        }
    }
}

/// The elements from `i` on, fewer than `LANES`, followed by -inf: neutral for max and for sums of
/// exponentials.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn tail<S: Simd>(s: S, x: *const f32, n: usize) -> S::F {
    let mut block = [f32::NEG_INFINITY; MAX_LANES];
    // SAFETY: n < LANES ≤ MAX_LANES.
    unsafe {
        std::ptr::copy_nonoverlapping(x, block.as_mut_ptr(), n);
        s.load(block.as_ptr())
    }
}

/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn row_max<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    let mut max = s.splat(f32::NEG_INFINITY);
    let mut i = 0;
    // SAFETY: i + LANES ≤ n.
    unsafe {
        while i + S::LANES <= n {
            max = s.max(max, s.load(x.add(i)));
            i += S::LANES;
        }
        if i < n {
            max = s.max(max, tail(s, x.add(i), n - i));
        }
    }
    s.reduce_max(max)
}

/// Σ e^(x - max); the terms go to `y` when `STORE`.
///
/// # Safety
/// `n` elements behind `x` and `y`.
#[inline(always)]
unsafe fn exp_sum<S: Simd, const STORE: bool>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32) -> f32 {
    let shift = s.splat(max);
    let (mut even, mut odd) = (s.zero(), s.zero());
    let mut i = 0;
    // SAFETY: i + LANES ≤ n in the loops, the tail touches n - i elements.
    unsafe {
        while i + 2 * S::LANES <= n {
            let a = exp(s, s.sub(s.load(x.add(i)), shift));
            let b = exp(s, s.sub(s.load(x.add(i + S::LANES)), shift));
            if STORE {
                s.store(y.add(i), a);
                s.store(y.add(i + S::LANES), b);
            }
            even = s.add(even, a);
            odd = s.add(odd, b);
            i += 2 * S::LANES;
        }
        while i < n {
            let m = S::LANES.min(n - i);
            let v = if m == S::LANES { s.load(x.add(i)) } else { tail(s, x.add(i), m) };
            let a = exp(s, s.sub(v, shift));
            if STORE {
                s.store_up_to(y.add(i), a, m);
            }
            even = s.add(even, a);
            i += m;
        }
    }
    s.reduce_add(s.add(even, odd))
}

/// # Safety
/// `n` elements behind `y`.
#[inline(always)]
unsafe fn scale<S: Simd>(s: S, y: *mut f32, n: usize, factor: f32) {
    let factor = s.splat(factor);
    let mut i = 0;
    while i < n {
        let m = S::LANES.min(n - i);
        // SAFETY: i + m ≤ n.
        unsafe { s.store_up_to(y.add(i), s.mul(s.load_up_to(y.add(i), m), factor), m) };
        i += m;
    }
}

/// y = (x - max) - log_sum.
///
/// # Safety
/// `n` elements behind `x` and `y`.
#[inline(always)]
unsafe fn shift<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32, log_sum: f32) {
    let (max, log_sum) = (s.splat(max), s.splat(log_sum));
    let mut i = 0;
    while i < n {
        let m = S::LANES.min(n - i);
        // SAFETY: i + m ≤ n.
        unsafe { s.store_up_to(y.add(i), s.sub(s.sub(s.load_up_to(x.add(i), m), max), log_sum), m) };
        i += m;
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_rows",
        prepare: |ctx| prepare(ctx, Kind::Softmax),
    },
    StaticKernel {
        schema: "aten::_log_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_rows",
        prepare: |ctx| prepare(ctx, Kind::LogSoftmax),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::tests::numbers;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::Isa;

    fn run(kernel: usize, isa: Isa, shape: &[usize], x: &[f32]) -> Option<Vec<f32>> {
        let args = vec![
            CallArg::Tensor(HostTensor::new(shape, x).unwrap()),
            CallArg::int(-1),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, shape).unwrap()),
        ];
        let mut call = SingleCall::new(KERNELS[kernel].prepare, &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        Some(call.output::<f32>(OUT).unwrap())
    }

    #[test]
    fn rows_agree_with_f64() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            for (rows, n) in [(1, 1), (3, 5), (2, 16), (700, 33), (4, 128), (2, 5000), (0, 4)] {
                let x: Vec<f32> = numbers(rows * n, 5).iter().map(|v| v * 10.0).collect();
                for kernel in [0, 1] {
                    let Some(y) = run(kernel, isa, &[rows, n], &x) else { continue };
                    for (x, y) in x.chunks(n).zip(y.chunks(n)) {
                        let max = x.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
                        let sum: f64 = x.iter().map(|v| f64::from(v - max).exp()).sum();
                        for (x, y) in x.iter().zip(y) {
                            let shifted = f64::from(x - max);
                            let (want, size) = match kernel {
                                0 => (shifted.exp() / sum, 0.0),
                                _ => (shifted - sum.ln(), 1.0),
                            };
                            let tolerance = 4e-6 * want.abs().max(size) + 1e-38;
                            assert!(
                                (f64::from(*y) - want).abs() <= tolerance,
                                "{isa:?} {kernel} n={n}: {y} {want}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn infinities_and_nan_as_in_eager() {
        let inf = f32::INFINITY;
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            let Some(y) = run(0, isa, &[3, 3], &[-inf, 0.0, 0.0, -inf, -inf, -inf, f32::NAN, 1.0, 2.0])
            else {
                continue;
            };
            assert_eq!(&y[..3], &[0.0, 0.5, 0.5]);
            assert!(y[3..].iter().all(|v| v.is_nan()), "{y:?}");
        }
    }
}
