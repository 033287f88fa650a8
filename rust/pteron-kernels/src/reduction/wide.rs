//! sum, mean, prod, amax and amin of float64 and of integers over neighbouring dimensions, in loops that the compiler
//! vectorises. Sums and products of integers are int64 and wrap; amax and amin keep the dtype, NaN wins.
//!
//! Long sums of floats are made of blocks, so that rounding grows with the square root of the length; every output
//! element has one order of summation. Unsafe island (raw pointers).

use super::shape::{DimsArg, ReducedDims, Volumes};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    Args, BindArgs, Bool8, Bound, DType, Element, Error, Grid, Isa, PrepareContext, Prepared, Result,
    StaticKernel, WorkerScratch,
};
use std::marker::PhantomData;

/// Input elements of a chunk, about.
const CHUNK: usize = 16 << 10;
/// Columns that one unit reduces together.
const COLUMNS: usize = 64;
/// Accumulators of a row.
const LANES: usize = 16;
/// Elements that are folded before they join the rest of their row.
const BLOCK: usize = 4096;
/// Rows that are folded before they join the rest of their column.
const ROWS: usize = 256;

/// What is made of many elements of type `T`.
trait Fold<T: Element>: Send + Sync + 'static {
    /// While folding.
    type State: Copy + Send + Sync;
    type Out: Element;
    /// The state of no elements.
    const START: Self::State;
    /// Is there no result without elements?
    const NEEDS_ELEMENTS: bool = false;
    /// Is the result the same in any order? The compiler then takes the one it likes.
    const IS_EXACT: bool = false;
    fn step(state: Self::State, v: T) -> Self::State;
    fn join(a: Self::State, b: Self::State) -> Self::State;
    /// The result of `n` elements.
    fn finish(state: Self::State, n: usize) -> Self::Out;
}

struct Sum;
struct Mean;
struct Product;
struct Norm;
struct Largest;
struct Smallest;

macro_rules! floats {
    ($($fold:ident: $start:expr, $needs:literal, |$a:ident, $v:ident| $step:expr, |$s:ident, $n:ident| $finish:expr;)*) => { $(
        impl Fold<f64> for $fold {
            type State = f64;
            type Out = f64;
            const START: f64 = $start;
            const NEEDS_ELEMENTS: bool = $needs;
            #[inline(always)]
            fn step($a: f64, $v: f64) -> f64 {
                $step
            }
            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 {
                <Self as Fold<f64>>::step(a, b)
            }
            #[inline(always)]
            fn finish($s: f64, $n: usize) -> f64 {
                $finish
            }
        }
    )* };
}
floats! {
    Sum: 0.0, false, |a, v| a + v, |s, _n| s;
    Mean: 0.0, false, |a, v| a + v, |s, n| s / n as f64;
    Product: 1.0, false, |a, v| a * v, |s, _n| s;
    Largest: f64::NEG_INFINITY, true, |a, v| if v > a || v.is_nan() { v } else { a }, |s, _n| s;
    Smallest: f64::INFINITY, true, |a, v| if v < a || v.is_nan() { v } else { a }, |s, _n| s;
}

/// The Euclidean norm, squares added up in f64.
macro_rules! norms {
    ($($t:ty),*) => { $(
        impl Fold<$t> for Norm {
            type State = f64;
            type Out = $t;
            const START: f64 = 0.0;
            #[inline(always)]
            fn step(a: f64, v: $t) -> f64 {
                let v = v as f64;
                a + v * v
            }
            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn finish(s: f64, _: usize) -> $t {
                s.sqrt() as $t
            }
        }
    )* };
}
norms!(f32, f64);

macro_rules! totals {
    ($($t:ty, |$v:ident| $wide:expr;)*) => { $(
        impl Fold<$t> for Sum {
            type State = i64;
            type Out = i64;
            const IS_EXACT: bool = true;
            const START: i64 = 0;
            #[inline(always)]
            fn step(a: i64, $v: $t) -> i64 {
                a.wrapping_add($wide)
            }
            #[inline(always)]
            fn join(a: i64, b: i64) -> i64 {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn finish(s: i64, _: usize) -> i64 {
                s
            }
        }
        impl Fold<$t> for Product {
            type State = i64;
            type Out = i64;
            const IS_EXACT: bool = true;
            const START: i64 = 1;
            #[inline(always)]
            fn step(a: i64, $v: $t) -> i64 {
                a.wrapping_mul($wide)
            }
            #[inline(always)]
            fn join(a: i64, b: i64) -> i64 {
                a.wrapping_mul(b)
            }
            #[inline(always)]
            fn finish(s: i64, _: usize) -> i64 {
                s
            }
        }
    )* };
}
totals! {
    i64, |v| v;
    i32, |v| v.into();
    i16, |v| v.into();
    i8, |v| v.into();
    u8, |v| v.into();
    Bool8, |v| v.get().into();
}

macro_rules! extremes {
    ($($t:ty),*) => { $(
        impl Fold<$t> for Largest {
            type State = $t;
            type Out = $t;
            const IS_EXACT: bool = true;
            const START: $t = <$t>::MIN;
            const NEEDS_ELEMENTS: bool = true;
            #[inline(always)]
            fn step(a: $t, v: $t) -> $t {
                a.max(v)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                a.max(b)
            }
            #[inline(always)]
            fn finish(s: $t, _: usize) -> $t {
                s
            }
        }
        impl Fold<$t> for Smallest {
            type State = $t;
            type Out = $t;
            const IS_EXACT: bool = true;
            const START: $t = <$t>::MAX;
            const NEEDS_ELEMENTS: bool = true;
            #[inline(always)]
            fn step(a: $t, v: $t) -> $t {
                a.min(v)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                a.min(b)
            }
            #[inline(always)]
            fn finish(s: $t, _: usize) -> $t {
                s
            }
        }
    )* };
}
extremes!(i64, i32, i16, i8, u8);

struct Reduction<F, T> {
    level: SimdLevel,
    name: String,
    dims: ReducedDims,
    out: usize,
    types: PhantomData<(F, T)>,
}

/// Units of work: rows when the innermost dimension is reduced, else blocks of columns.
#[derive(Debug, Clone, Copy, Default)]
struct Units {
    volumes: Volumes,
    count: usize,
    per_chunk: usize,
}

type Preparation = Result<Option<Box<dyn Prepared>>>;

/// Prepares the fold `F` if input and output have its dtypes.
fn prepare<F: Fold<T>, T: Element>(
    ctx: &PrepareContext<'_>,
    operator: &str,
    out: usize,
    form: DimsArg,
) -> Preparation {
    let has = |i: usize, dtype: DType| ctx.tensor(i).is_some_and(|t| t.dtype == dtype);
    if !(has(0, T::DTYPE) && has(out, F::Out::DTYPE)) {
        return Ok(None);
    }
    let Some(dims) = ReducedDims::neighbours(ctx, out, form) else { return Ok(None) };
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let name = format!("{operator}.{}.{}", T::DTYPE.name(), level.isa().name());
    Ok(Some(Box::new(Reduction::<F, T> { level, name, dims, out, types: PhantomData })))
}

impl<F: Fold<T>, T: Element> Prepared for Reduction<F, T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let volumes = self.dims.bind(args, self.out)?;
        let outputs = volumes.outer * volumes.inner;
        if volumes.reduced == 0 && outputs > 0 && F::NEEDS_ELEMENTS {
            return Err(Error::kernel("the largest or smallest of no elements is not defined")
                .expected("a non-zero extent in every reduced dimension")
                .got(args.args().tensor(0)?.shape().to_string()));
        }
        if outputs == 0 {
            return Ok(Grid::EMPTY);
        }
        let (count, size) = volumes.units(COLUMNS);
        let per_chunk = CHUNK.div_ceil(size.max(1));
        *bound.get_mut::<Units>()? = Units { volumes, count, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * size / 4))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let Units { volumes, count, per_chunk } = *bound.get::<Units>()?;
        let first = chunk as usize * per_chunk;
        let range = first..(first + per_chunk).min(count);
        let (input, out) = (args.tensor(0)?.ptr::<T>()?, args.output(self.out)?.ptr::<F::Out>()?);
        self.level.dispatch_narrow(Fields::<F, T> { volumes, range, input, out });
        Ok(())
    }
}

/// Units of a chunk.
struct Fields<F: Fold<T>, T: Element> {
    volumes: Volumes,
    range: std::ops::Range<usize>,
    input: *const T,
    out: *mut F::Out,
}

impl<F: Fold<T>, T: Element> SimdTask for Fields<F, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let blocks = inner.div_ceil(COLUMNS);
        for unit in self.range.clone() {
            // SAFETY: units of the range lie inside input and output.
            unsafe {
                if inner == 1 {
                    let state = row::<F, T>(self.input.add(unit * reduced), reduced);
                    *self.out.add(unit) = F::finish(state, reduced);
                    continue;
                }
                let (outer, first) = (unit / blocks, unit % blocks * COLUMNS);
                let input = self.input.add(outer * reduced * inner + first);
                let out = self.out.add(outer * inner + first);
                match inner - first {
                    // A constant number lets the states stay in registers.
                    n if n >= COLUMNS => self.columns(input, out, COLUMNS),
                    n => self.columns(input, out, n),
                }
            }
        }
    }
}

/// Folds `n` neighbours.
///
/// # Safety
/// `n` elements behind `x`.
#[allow(clippy::needless_range_loop)] // Indexed loops are vectorised.
#[inline(always)]
unsafe fn row<F: Fold<T>, T: Element>(x: *const T, n: usize) -> F::State {
    let mut total = F::START;
    if F::IS_EXACT {
        for i in 0..n {
            // SAFETY: i < n.
            total = F::step(total, unsafe { *x.add(i) });
        }
        return total;
    }
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        let mut lanes = [F::START; LANES];
        let mut i = start;
        // SAFETY: i stays below `end`.
        unsafe {
            while i + LANES <= end {
                for k in 0..LANES {
                    lanes[k] = F::step(lanes[k], *x.add(i + k));
                }
                i += LANES;
            }
            for k in 0..end - i {
                lanes[k] = F::step(lanes[k], *x.add(i + k));
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for k in 0..width {
                lanes[k] = F::join(lanes[k], lanes[k + width]);
            }
            width /= 2;
        }
        total = F::join(total, lanes[0]);
        start = end;
    }
    total
}

impl<F: Fold<T>, T: Element> Fields<F, T> {
    /// Folds `n ≤ COLUMNS` neighbouring columns.
    ///
    /// # Safety
    /// `n` columns of all rows behind `x`, `n` elements behind `y`.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn columns(&self, x: *const T, y: *mut F::Out, n: usize) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let mut totals = [F::START; COLUMNS];
        for start in (0..reduced).step_by(ROWS) {
            let mut states = [F::START; COLUMNS];
            for r in start..reduced.min(start + ROWS) {
                for k in 0..n {
                    // SAFETY: rows are `inner` apart.
                    states[k] = F::step(states[k], unsafe { *x.add(r * inner + k) });
                }
            }
            for k in 0..n {
                totals[k] = F::join(totals[k], states[k]);
            }
        }
        for (k, total) in totals[..n].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *y.add(k) = F::finish(*total, reduced) };
        }
    }
}

fn norm(ctx: &PrepareContext<'_>) -> Preparation {
    if ctx.args.get(1).and_then(|order| order.number()) != Some(2.0) {
        return Ok(None);
    }
    match prepare::<Norm, f32>(ctx, "norm", 5, DimsArg::Second)? {
        None => prepare::<Norm, f64>(ctx, "norm", 5, DimsArg::Second),
        prepared => Ok(prepared),
    }
}

/// The first of the dtypes whose fold takes the call.
macro_rules! entry {
    ($schema:literal, $operator:literal, $out:literal, $form:expr, $fold:ident: $($t:ty),*) => {
        StaticKernel {
            schema: $schema,
            variant: "wide",
            prepare: |ctx| {
                $( if let Some(prepared) = prepare::<$fold, $t>(ctx, $operator, $out, $form)? {
                    return Ok(Some(prepared));
                } )*
                Ok(None)
            },
        }
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    entry!("aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "sum", 4, DimsArg::List, Sum: f64, i64, i32, i16, i8, u8, Bool8),
    entry!("aten::sum.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "sum", 2, DimsArg::All, Sum: f64, i64, i32, i16, i8, u8, Bool8),
    entry!("aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "mean", 4, DimsArg::List, Mean: f64),
    entry!("aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "mean", 2, DimsArg::All, Mean: f64),
    entry!("aten::prod.int_out(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "prod", 4, DimsArg::One, Product: f64, i64, i32, i16, i8, u8, Bool8),
    entry!("aten::prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        "prod", 2, DimsArg::All, Product: f64, i64, i32, i16, i8, u8, Bool8),
    entry!("aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        "amax", 3, DimsArg::List, Largest: f64, i64, i32, i16, i8, u8),
    entry!("aten::amin.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        "amin", 3, DimsArg::List, Smallest: f64, i64, i32, i16, i8, u8),
    entry!("aten::max.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "amax", 1, DimsArg::All, Largest: f64, i64, i32, i16, i8, u8),
    entry!("aten::min.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "amin", 1, DimsArg::All, Smallest: f64, i64, i32, i16, i8, u8),
    StaticKernel {
        schema: "aten::linalg_vector_norm.out(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        variant: "wide",
        prepare: norm,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};

    const SHAPES: [[usize; 3]; 8] =
        [[1, 7, 1], [3, 50, 1], [3, 5000, 1], [2, 9, 70], [2, 600, 64], [1, 300, 3], [4, 0, 2], [0, 5, 3]];

    fn call<A: Element, B: Element>(
        isa: Isa,
        kernel: usize,
        shape: [usize; 3],
        x: &[A],
    ) -> Option<Result<Vec<B>>> {
        let mut args = vec![
            CallArg::Tensor(HostTensor::new(&shape, x).unwrap()),
            CallArg::Ints(vec![1]),
            CallArg::bool(false),
        ];
        if kernel == 0 || kernel == 2 {
            args.push(CallArg::None);
        }
        let out = args.len();
        args.push(CallArg::Tensor(HostTensor::zeros(B::DTYPE, &[shape[0], shape[2]]).unwrap()));
        let mut call = SingleCall::new(KERNELS[kernel].prepare, &profile(isa)?, args).unwrap().unwrap();
        Some(call.call().map(|()| call.output::<B>(out).unwrap()))
    }

    /// The elements that make up every result.
    fn fields<T: Copy>([outer, n, inner]: [usize; 3], x: &[T]) -> Vec<Vec<T>> {
        let at = |o: usize, i: usize| (0..n).map(|r| x[(o * n + r) * inner + i]).collect();
        (0..outer * inner).map(|k| at(k / inner, k % inner)).collect()
    }

    #[test]
    fn doubles() {
        for (isa, shape) in
            [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().flat_map(|i| SHAPES.map(|s| (i, s)))
        {
            let count = shape.iter().product::<usize>();
            let mut x: Vec<f64> = (0..count).map(|i| (i * 7919 % 1013) as f64 / 100.0 - 5.0).collect();
            let want = fields(shape, &x);
            let Some(sums) = call::<f64, f64>(isa, 0, shape, &x) else { continue };
            for (y, v) in sums.unwrap().iter().zip(&want) {
                assert!((y - v.iter().sum::<f64>()).abs() < 1e-9, "{isa:?} {shape:?}");
            }
            let means = call::<f64, f64>(isa, 2, shape, &x).unwrap().unwrap();
            for (y, v) in means.iter().zip(&want) {
                assert!(
                    v.is_empty() && y.is_nan() || (y - v.iter().sum::<f64>() / v.len() as f64).abs() < 1e-12
                );
            }
            let Some(last) = x.last_mut() else { continue };
            *last = f64::NAN;
            let largest = call::<f64, f64>(isa, 6, shape, &x).unwrap().unwrap();
            for (y, v) in largest.iter().zip(fields(shape, &x)) {
                let wanted = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert!(
                    if v.iter().any(|v| v.is_nan()) { y.is_nan() } else { *y == wanted },
                    "{isa:?} {shape:?}"
                );
            }
        }
    }

    #[test]
    fn norms_of_large_numbers() {
        let cpu = profile(Isa::Portable).unwrap();
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[2, 2], &[3e30f32, 4e30, 0.0, f32::NAN]).unwrap()),
            CallArg::int(2),
            CallArg::Ints(vec![-1]),
            CallArg::bool(false),
            CallArg::None,
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[2]).unwrap()),
        ];
        let mut call = SingleCall::new(norm, &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let y = call.output::<f32>(5).unwrap();
        assert!(y[0] == 5e30 && y[1].is_nan(), "{y:?}");
    }

    #[test]
    fn integers_wrap_and_extremes_of_nothing_are_refused() {
        for (isa, shape) in
            [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().flat_map(|i| SHAPES.map(|s| (i, s)))
        {
            let count = shape.iter().product::<usize>();
            let x: Vec<i8> = (0..count).map(|i| (i * 7919 % 1013) as u8 as i8).collect();
            let Some(sums) = call::<i8, i64>(isa, 0, shape, &x) else { continue };
            let want: Vec<i64> =
                fields(shape, &x).iter().map(|v| v.iter().map(|v| i64::from(*v)).sum()).collect();
            assert_eq!(sums.unwrap(), want, "{isa:?} {shape:?}");
            let largest = call::<i8, i8>(isa, 7, shape, &x).unwrap();
            match shape {
                [4, 0, 2] => assert!(largest.unwrap_err().to_string().contains("no elements")),
                _ => {
                    let want: Vec<i8> =
                        fields(shape, &x).iter().filter_map(|v| v.iter().copied().min()).collect();
                    assert_eq!(largest.unwrap(), want, "{isa:?} {shape:?}");
                }
            }
        }
        let x = [i64::MAX, 2, 3];
        let sums = call::<i64, i64>(Isa::Portable, 0, [1, 3, 1], &x).unwrap().unwrap();
        assert_eq!(sums, [i64::MIN + 4]);
    }
}
