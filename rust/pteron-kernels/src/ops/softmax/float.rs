//! softmax and log_softmax of float tensors along any dimension.
//!
//! softmax: x → e^(x - max) / Σ e^(x - max). A stretch with NaN, or with nothing but -inf, becomes NaN, as in
//! eager. float16 and bfloat16 are computed in f32, along the innermost dimension in scratch memory, and rounded once.

use super::Kind;
use super::columns::{COLUMNS, ColumnsTask};
use super::doubles::DoubleRowsTask;
use super::rows::RowsTask;
use crate::elementwise::columns::Columns;
use crate::elementwise::operand::{Half, convert};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, PrepareContext, Result, Scratch};

const OUT: usize = 3;
/// Elements that a chunk holds at least.
const CHUNK: usize = 8 << 10;

struct Softmax {
    kind: Kind,
    level: SimdLevel,
    dim: usize,
    dtype: DType,
    /// Floats of scratch memory: for sixteen bits the rows of a chunk.
    scratch: usize,
}

/// Units are rows, or blocks of neighbouring columns.
#[derive(Debug, Clone, Copy, Default)]
struct Problem {
    /// Elements along the dimension.
    length: usize,
    /// Elements from one to the next along the dimension; 1 for rows.
    inner: usize,
}

/// The kernel for floats, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, kind: Kind) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(ArgSpec::Int(Some(dim))) = ctx.args.get(1) else {
        return ctx.decline("the dimension is not known at load");
    };
    // PyTorch refuses it on the CPU, and so does the plain kernel.
    if !matches!(ctx.args.get(2), Some(ArgSpec::Bool(Some(false)))) {
        return ctx.decline("`half_to_float` is not false");
    }
    let rank = input.shape.len();
    let dim = if *dim < 0 { dim + rank as i64 } else { *dim };
    let Some(dim) = usize::try_from(dim).ok().filter(|d| *d < rank) else {
        return ctx.decline("the dimension is out of range");
    };
    let is_half = matches!(input.dtype, DType::Float16 | DType::BFloat16);
    let fits = is_half || matches!(input.dtype, DType::Float32 | DType::Float64);
    if !fits || out.dtype != input.dtype || input.dim_order != out.dim_order {
        return ctx.decline("takes floats of at least 16 bits in one memory order");
    }
    let length = input.shape[dim];
    // For rows alone, which a call may have along any dimension: extents behind it may be 1.
    let scratch = if is_half { CHUNK.saturating_add(length) } else { 0 };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = if kind == Kind::Softmax { "softmax" } else { "log_softmax" };
    let dtype = if input.dtype == DType::Float32 { "f32" } else { input.dtype.name() };
    let name = format!("{operator}.{dtype}.{}", level.isa().name());
    framed(name, Softmax { kind, level, dim, dtype: input.dtype, scratch })
}

impl UnitKernel for Softmax {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch.saturating_mul(size_of::<f32>()), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        let input = args.args().tensor(0)?;
        let (shape, numel, order) = (*input.shape(), input.numel(), *input.meta().dim_order());
        args.resize(OUT, &shape)?;
        if numel == 0 {
            return Ok(Split::NONE);
        }
        let length = shape.get(self.dim).copied().unwrap_or(1);
        let behind = order.as_slice().iter().map(|d| *d as usize).skip_while(|d| *d != self.dim).skip(1);
        let inner: usize = behind.map(|d| shape.get(d).copied().unwrap_or(1)).product();
        let outer = numel / (length * inner);
        let (units, size) = match inner {
            1 => (outer, length),
            _ => (outer * inner.div_ceil(COLUMNS), length * inner.min(COLUMNS)),
        };
        *problem = Problem { length, inner };
        Ok(Split::sized(units, size, CHUNK, 1.0))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match (self.dtype, problem.inner) {
            (DType::Float16, 1) => self.halves::<f16>(problem.length, chunk),
            (DType::Float16, _) => self.columns::<f16>(problem, chunk),
            (DType::BFloat16, 1) => self.halves::<bf16>(problem.length, chunk),
            (DType::BFloat16, _) => self.columns::<bf16>(problem, chunk),
            (DType::Float64, 1) => {
                let (kind, length) = (self.kind, problem.length);
                let input = chunk.input_units(0, length)?.as_slice()?;
                let out = chunk.output_units(OUT, length)?.into_slice()?;
                self.level.dispatch(DoubleRowsTask { kind, input, out, length });
                Ok(())
            }
            (_, 1) => {
                let (kind, length) = (self.kind, problem.length);
                let input = Some(chunk.input_units(0, length)?.as_slice()?);
                let out = chunk.output_units(OUT, length)?.into_slice()?;
                self.level.dispatch(RowsTask { kind, input, out, length });
                Ok(())
            }
            (DType::Float64, _) => self.columns::<f64>(problem, chunk),
            _ => self.columns::<f32>(problem, chunk),
        }
    }
}

impl Softmax {
    fn columns<A: Columns>(
        &self,
        &Problem { length, inner }: &Problem,
        chunk: &mut Chunk<'_, '_>,
    ) -> Result<()> {
        let blocks = inner.div_ceil(COLUMNS);
        let (input, mut out) = (chunk.input::<A>(0)?, chunk.output_shared::<A>(OUT)?);
        for unit in chunk.units.clone() {
            let column = unit % blocks * COLUMNS;
            let columns = COLUMNS.min(inner - column);
            let first = unit / blocks * length * inner + column;
            let range = first..first + (length - 1) * inner + columns;
            let (input, out) = (input.part(range.clone())?, out.part(range)?);
            self.level.dispatch(ColumnsTask { kind: self.kind, input, out, length, step: inner, columns });
        }
        Ok(())
    }

    /// Rows of `length` elements of type `T`.
    fn halves<T: Half>(&self, length: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let numbers = chunk.take_scratch::<f32>(chunk.units.len() * length)?;
        convert(self.level, chunk.input_units::<T>(0, length)?.as_slice()?, numbers);
        self.level.dispatch(RowsTask { kind: self.kind, input: None, out: numbers, length });
        convert(self.level, numbers, chunk.output_units::<T>(OUT, length)?.into_slice()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::numbers;
    use pteron_core::{Isa, kernel::PrepareFn};

    const PREPARE: [PrepareFn; 2] = [|ctx| prepare(ctx, Kind::Softmax), |ctx| prepare(ctx, Kind::LogSoftmax)];

    #[test]
    fn columns_give_what_rows_give() {
        for isa in Isa::ALL {
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
        for isa in Isa::ALL {
            let Some(cpu) = profile(isa) else { continue };
            let want = run(0, isa, &[40, 33], &wide).unwrap();
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[40, 33], &x).unwrap()),
                CallArg::int(1),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::BFloat16, &[40, 33]).unwrap()),
            ];
            let mut call = SingleCall::new(|ctx| prepare(ctx, Kind::Softmax), &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            for (got, want) in call.output::<bf16>(OUT).unwrap().iter().zip(want) {
                assert_eq!(got.to_bits(), bf16::from_f32(want).to_bits());
            }
        }
    }

    #[test]
    fn columns_of_sixteen_bits_are_rounded_once() {
        let shape = [2, 40, 33];
        let x: Vec<f16> = numbers(shape.iter().product(), 3).iter().map(|v| f16::from_f32(v * 4.0)).collect();
        let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
        for (isa, kernel) in Isa::ALL.into_iter().flat_map(|isa| [(isa, 0), (isa, 1)]) {
            let Some(want) = run_along(kernel, isa, &shape, &wide, 1) else { continue };
            let args = vec![
                CallArg::Tensor(HostTensor::new(&shape, &x).unwrap()),
                CallArg::int(1),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::Float16, &shape).unwrap()),
            ];
            let mut call = SingleCall::new(PREPARE[kernel], &profile(isa).unwrap(), args).unwrap().unwrap();
            call.call().unwrap();
            for (got, want) in call.output::<f16>(OUT).unwrap().iter().zip(want) {
                assert_eq!(got.to_bits(), f16::from_f32(want).to_bits(), "{isa:?} {kernel}");
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
        let mut call = SingleCall::new(PREPARE[kernel], &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        Some(call.output::<f32>(OUT).unwrap())
    }

    #[test]
    fn rows_agree_with_f64() {
        for isa in Isa::ALL {
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
        for isa in Isa::ALL {
            let Some(y) = run(0, isa, &[3, 3], &[-inf, 0.0, 0.0, -inf, -inf, -inf, f32::NAN, 1.0, 2.0])
            else {
                continue;
            };
            assert_eq!(&y[..3], &[0.0, 0.5, 0.5]);
            assert!(y[3..].iter().all(|v| v.is_nan()), "{y:?}");
        }
    }
}
