//! softmax and log_softmax of float tensors along any dimension.
//!
//! softmax: x → e^(x - max) / Σ e^(x - max). A stretch with NaN, or with nothing but -inf, becomes NaN, as in
//! eager. float16 and bfloat16 along the innermost dimension are computed in f32, in scratch memory, and rounded once.

use super::Kind;
use super::columns::{COLUMNS, ColumnsTask};
use super::rows::RowsTask;
use crate::elementwise::operand::Convert;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, Scratch,
    StaticKernel, WorkerScratch,
};

const OUT: usize = 3;
/// Elements that a chunk holds at least.
const CHUNK: usize = 8 << 10;

struct Softmax {
    kind: Kind,
    level: SimdLevel,
    name: String,
    dim: usize,
    dtype: DType,
    /// Floats of scratch memory: for sixteen bits the rows of a chunk.
    scratch: usize,
}

/// Units of work: rows, or blocks of neighbouring columns.
#[derive(Debug, Clone, Copy, Default)]
struct Units {
    count: usize,
    per_chunk: usize,
    length: usize,
    inner: usize,
}

fn prepare(ctx: &PrepareContext<'_>, kind: Kind) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else { return Ok(None) };
    let Some(ArgSpec::Int(Some(dim))) = ctx.args.get(1) else { return Ok(None) };
    // PyTorch refuses it on the CPU, and so does the reference kernel.
    if !matches!(ctx.args.get(2), Some(ArgSpec::Bool(Some(false)))) {
        return Ok(None);
    }
    let rank = input.shape.len();
    let dim = if *dim < 0 { dim + rank as i64 } else { *dim };
    let Some(dim) = usize::try_from(dim).ok().filter(|d| *d < rank) else { return Ok(None) };
    let is_innermost = input.dim_order.as_slice().last().is_some_and(|d| usize::from(*d) == dim);
    let fits = match input.dtype {
        DType::Float32 => true,
        DType::Float16 | DType::BFloat16 => is_innermost,
        _ => false,
    };
    if !fits || out.dtype != input.dtype || input.dim_order != out.dim_order {
        return Ok(None);
    }
    let length = input.shape[dim];
    let scratch = if input.dtype == DType::Float32 { 0 } else { CHUNK.saturating_add(length) };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = if kind == Kind::Softmax { "softmax" } else { "log_softmax" };
    let dtype = if input.dtype == DType::Float32 { "f32" } else { input.dtype.name() };
    let name = format!("{operator}.{dtype}.{}", level.isa().name());
    Ok(Some(Box::new(Softmax { kind, level, name, dim, dtype: input.dtype, scratch })))
}

impl Prepared for Softmax {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch.saturating_mul(size_of::<f32>()), shared: 0 }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let input = args.args().tensor(0)?;
        let (shape, numel, order) = (*input.shape(), input.numel(), *input.meta().dim_order());
        args.resize(OUT, &shape)?;
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let length = shape.get(self.dim).copied().unwrap_or(1);
        let behind = order.as_slice().iter().map(|d| *d as usize).skip_while(|d| *d != self.dim).skip(1);
        let inner: usize = behind.map(|d| shape.get(d).copied().unwrap_or(1)).product();
        let outer = numel / (length * inner);
        let (count, size) = match inner {
            1 => (outer, length),
            _ => (outer * inner.div_ceil(COLUMNS), length * inner.min(COLUMNS)),
        };
        let per_chunk = CHUNK.div_ceil(size);
        *bound.get_mut::<Units>()? = Units { count, per_chunk, length, inner };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * size))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let units = *bound.get::<Units>()?;
        let first = chunk as usize * units.per_chunk;
        let count = units.per_chunk.min(units.count - first);
        let at = first * units.length;
        // SAFETY: both tensors have as many elements as units and their lengths say, of dtype `self.dtype`; the rows of a
        // chunk begin at `at` and lie inside.
        unsafe {
            match self.dtype {
                DType::Float16 => self.halves::<f16>(args, [at, count, units.length], scratch),
                DType::BFloat16 => self.halves::<bf16>(args, [at, count, units.length], scratch),
                _ => {
                    let input = args.tensor(0)?.ptr::<f32>()?;
                    let out = args.output(OUT)?.ptr::<f32>()?;
                    if units.inner == 1 {
                        self.rows(input.add(at), out.add(at), count, units.length);
                    } else {
                        self.columns(&units, input, out, first..first + count);
                    }
                    Ok(())
                }
            }
        }
    }
}

impl Softmax {
    /// # Safety
    /// `count` rows of `length` elements behind both pointers.
    unsafe fn rows(&self, input: *const f32, out: *mut f32, count: usize, length: usize) {
        self.level.dispatch(RowsTask { kind: self.kind, input, out, count, length });
    }

    /// # Safety
    /// The units' elements lie behind both pointers.
    unsafe fn columns(&self, units: &Units, input: *const f32, out: *mut f32, range: std::ops::Range<usize>) {
        let &Units { length, inner, .. } = units;
        let blocks = inner.div_ceil(COLUMNS);
        for unit in range {
            let column = unit % blocks * COLUMNS;
            let at = unit / blocks * length * inner + column;
            self.level.dispatch(ColumnsTask {
                kind: self.kind,
                input: input.wrapping_add(at),
                out: out.wrapping_add(at),
                length,
                step: inner,
                columns: COLUMNS.min(inner - column),
            });
        }
    }

    /// # Safety
    /// `count` rows of `length` elements of type `T` from element `at` on in input and output.
    unsafe fn halves<T: crate::elementwise::operand::Half>(
        &self,
        args: &Args<'_>,
        [at, count, length]: [usize; 3],
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let n = count * length;
        let block: &mut [f32] = bytemuck::try_cast_slice_mut(scratch.worker).unwrap_or_default();
        let Some(block) = block.get_mut(..n) else {
            return Err(Error::internal("worker scratch is too small"));
        };
        let numbers = block.as_mut_ptr();
        // SAFETY: the caller's promise, and `block` has `n` elements.
        unsafe {
            let from = args.tensor(0)?.ptr::<T>()?.add(at);
            let to = args.output(OUT)?.ptr::<T>()?.add(at);
            self.level.dispatch(Convert { from, to: numbers, n });
            self.rows(numbers, numbers, count, length);
            self.level.dispatch(Convert { from: numbers.cast_const(), to, n });
        }
        Ok(())
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::Softmax),
    },
    StaticKernel {
        schema: "aten::_log_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "float",
        prepare: |ctx| prepare(ctx, Kind::LogSoftmax),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::tests::numbers;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::Isa;

    #[test]
    fn columns_give_what_rows_give() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            for [outer, length, inner] in [[1, 5, 1], [2, 7, 3], [1, 300, 65], [3, 2, 200], [2, 33, 16]] {
                let x: Vec<f32> = numbers(outer * length * inner, 5).iter().map(|v| v * 10.0).collect();
                let mut turned = vec![0.0; x.len()];
                for (i, v) in x.iter().enumerate() {
                    let (o, l, c) = (i / (length * inner), i / inner % length, i % inner);
                    turned[(o * inner + c) * length + l] = *v;
                }
                for kernel in [0, 1] {
                    let Some(rows) = run(kernel, isa, &[outer * inner, length], &turned) else { continue };
                    let y = run_along(kernel, isa, &[outer, length, inner], &x, 1).unwrap();
                    for (i, got) in y.iter().enumerate() {
                        let (o, l, c) = (i / (length * inner), i / inner % length, i % inner);
                        let want = rows[(o * inner + c) * length + l];
                        assert!(
                            (got - want).abs() <= 3e-6 * want.abs().max(0.1),
                            "{isa:?} {kernel}: {got} {want}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sixteen_bits_are_rounded_once() {
        let x: Vec<bf16> = numbers(40 * 33, 3).iter().map(|v| bf16::from_f32(*v)).collect();
        let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            let Some(cpu) = profile(isa) else { continue };
            let want = run(0, isa, &[40, 33], &wide).unwrap();
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[40, 33], &x).unwrap()),
                CallArg::int(1),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::BFloat16, &[40, 33]).unwrap()),
            ];
            let mut call = SingleCall::new(KERNELS[0].prepare, &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            for (got, want) in call.output::<bf16>(OUT).unwrap().iter().zip(want) {
                assert_eq!(got.to_bits(), bf16::from_f32(want).to_bits());
            }
        }
    }

    fn run(kernel: usize, isa: Isa, shape: &[usize], x: &[f32]) -> Option<Vec<f32>> {
        run_along(kernel, isa, shape, x, -1)
    }

    fn run_along(kernel: usize, isa: Isa, shape: &[usize], x: &[f32], dim: i64) -> Option<Vec<f32>> {
        let args = vec![
            CallArg::Tensor(HostTensor::new(shape, x).unwrap()),
            CallArg::int(dim),
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
