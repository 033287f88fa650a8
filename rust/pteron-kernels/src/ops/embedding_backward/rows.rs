//! Gradients of tables of float32 and float64, row-major: whole rows are added up in the order of the indices, as the plain
//! kernel does it. A unit is a row of the table; every chunk looks through all indices for its rows.

use super::{OUT, bind};
use crate::chunk::CHUNK;
use crate::compute::BLOCK;
use crate::elements::Reader;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::Real;
use crate::routine::Preparation;
use crate::shape::check_index;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, BindArgs, DType, Element, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

/// Most chunks of a call.
const MOST_CHUNKS: usize = 8;

struct Rows<T> {
    level: SimdLevel,
    element: PhantomData<T>,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(grad), Some(indices), Some(out)) = (ctx.tensor(0), ctx.tensor(1), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = [grad, indices, out].iter().all(|t| t.dim_order.is_contiguous());
    if !is_plain || grad.dtype != out.dtype || !matches!(indices.dtype, DType::Int64 | DType::Int32) {
        return ctx.decline("takes row-major tensors of one dtype, positions of int32 or int64");
    }
    if !matches!(ctx.args.get(4), Some(ArgSpec::Bool(Some(false)))) {
        return ctx.decline("takes calls that do not scale by how often a row is named");
    }
    match out.dtype {
        DType::Float32 => rows::<f32>(ctx),
        DType::Float64 => rows::<f64>(ctx),
        _ => ctx.decline("takes float32 and float64"),
    }
}

fn rows<T: Real + Element>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("embedding_backward.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Rows::<T> { level, element: PhantomData })
}

impl<T: Real + Element> UnitKernel for Rows<T> {
    /// Elements of a row.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, width: &mut usize) -> Result<Split> {
        bind(args)?;
        let view = args.args();
        let shape = *view.output(OUT)?.shape();
        let (rows, indices) = (shape[0], view.tensor(1)?.numel());
        *width = shape[1];
        if rows.saturating_mul(*width) == 0 {
            // Indices are checked all the same.
            return Ok(Split::new(1, 1, indices));
        }
        let size = width.saturating_mul(1 + indices.div_ceil(rows));
        let per_chunk = CHUNK.div_ceil(size).max(rows.div_ceil(MOST_CHUNKS));
        Ok(Split::new(rows, per_chunk, per_chunk.min(rows).saturating_mul(size) / 4))
    }

    fn run(&self, width: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (args, width) = (chunk.args(), *width);
        let table = args.output(OUT)?.shape()[0];
        let is_empty = table.saturating_mul(width) == 0;
        let task = Task::<T> {
            indices: Reader::new(args.tensor(1)?)?,
            padding: args.int(3)?,
            table,
            rows: if is_empty { 0..0 } else { chunk.units.clone() },
            width,
            grad: chunk.input(0)?.as_slice()?,
            out: if is_empty { &mut [] } else { chunk.output_units(OUT, width)?.into_slice()? },
        };
        self.level.dispatch_narrow(task)
    }
}

struct Task<'a, T> {
    indices: Reader<'a, i64>,
    padding: i64,
    /// Rows of the whole table.
    table: usize,
    /// Those of the chunk.
    rows: Range<usize>,
    width: usize,
    grad: &'a [T],
    out: &'a mut [T],
}

impl<T: Real + Element> SimdTask for Task<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Result<()> {
        let Task { indices, padding, table, rows, width, grad, out } = self;
        out.fill(T::ZERO);
        let (mut block, count) = ([0; BLOCK], indices.meta().numel());
        for from in (0..count).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(count - from)];
            indices.read(from as isize, 1, block)?;
            for (i, index) in block.iter().enumerate() {
                let row = (*index as u64).wrapping_sub(rows.start as u64);
                if row >= rows.len() as u64 {
                    // The first chunk looks at the indices of all.
                    if rows.start == 0 && *index != padding {
                        check_index(*index, table).map_err(|e| e.argument("indices"))?;
                    }
                    continue;
                }
                if *index == padding {
                    continue;
                }
                let (at, to) = ((from + i) * width, row as usize * width);
                let grad = &grad[at..at + width];
                out[to..to + width].iter_mut().zip(grad).for_each(|(sum, v)| *sum += *v);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{Element, Isa, Result};

    /// The gradient of a table of `rows` from rows of `width` elements for `indices`, of which 3 is padding.
    fn run<T: Element, I: Element>(
        variant: &str,
        isa: Isa,
        [rows, width]: [usize; 2],
        indices: &[I],
        of: impl Fn(f32) -> T,
    ) -> Option<Result<Vec<u8>>> {
        let mut grad: Vec<T> = numbers(indices.len() * width, 3).into_iter().map(&of).collect();
        grad.iter_mut().step_by(5).zip([-0.0, f32::NAN, f32::INFINITY]).for_each(|(v, edge)| *v = of(edge));
        let ones: Vec<T> = (0..rows * width).map(|_| of(1.0)).collect();
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[indices.len(), width], &grad).unwrap()),
            CallArg::Tensor(HostTensor::new(&[indices.len()], indices).unwrap()),
            CallArg::int(rows as i64),
            CallArg::int(3),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::new(&[rows, width], &ones).unwrap()),
        ];
        let prepare = prepare_of("aten::embedding_dense_backward.out", variant);
        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().expect("taken");
        Some((|| {
            let grid = call.bind()?;
            call.run(grid, true)?;
            Ok(call.output_bytes(5)?.to_vec())
        })())
    }

    fn check<T: Element>(of: impl Fn(f32) -> T) {
        for [rows, width, count] in [[7, 5, 40], [40, 300, 90], [1, 1, 9], [9, 0, 4], [6, 3, 0]] {
            let indices: Vec<i64> = (0..count).map(|i| (i * i % rows) as i64).collect();
            let narrow: Vec<i32> = indices.iter().map(|i| *i as i32).collect();
            let want = run("reference", Isa::Portable, [rows, width], &indices, &of).unwrap().unwrap();
            for isa in Isa::ALL {
                let Some(got) = run("rows", isa, [rows, width], &indices, &of) else { continue };
                assert!(got.unwrap() == want, "{:?} {isa:?} {rows} {width}", T::DTYPE);
                let got = run("rows", isa, [rows, width], &narrow, &of).unwrap().unwrap();
                assert!(got == want, "{:?} {isa:?} {rows} {width} int32", T::DTYPE);
            }
        }
    }

    #[test]
    fn rows_add_up_as_in_the_plain_kernel() {
        check(|v| v);
        check(f64::from);
    }

    #[test]
    fn indices_outside_of_the_table_are_refused() {
        for [rows, width] in [[4, 2], [4, 0], [0, 2]] {
            for bad in [4i64, -1, i64::MAX] {
                let error = run("rows", Isa::Portable, [rows, width], &[bad], |v| v).unwrap().unwrap_err();
                assert!(error.to_string().contains("index out of range"), "{rows} {width}: {error}");
            }
        }
    }
}
