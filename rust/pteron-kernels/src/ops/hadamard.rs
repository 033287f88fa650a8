//! The fast Hadamard transform of the last dimension: fast_hadamard_transform.
//!
//! Shape: that of the input; the last extent is 2^k, or 28 * 2^k. Dtype: float32, float16 or bfloat16, computed in float32. The product with the
//! Sylvester matrix of 2^k, in parts of 2^k, times 2^(-k/2); of 28 parts then with a Hadamard matrix of order 28, which is not
//! scaled: that is what files of ExecuTorch expect. Edge cases: an empty last dimension is refused. Source: ExecuTorch's
//! `extension/llm/custom_ops`; the matrix is J. Williamson's ("Hadamard's determinant theorem and the sum of four squares", 1944).

use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, WorkerScratch};

/// The first rows of the four circulant blocks of order 7, a bit for each minus, the first column lowest.
const BLOCKS: [u8; 4] = [0b111_1110, 0b011_1100, 0b101_1010, 0b110_0110];
const ORDER: usize = 28;

/// Is the element of the matrix of order 28 negative? Blocks `a b c d; -b a -d c; -c d a -b; -d -c b a`.
fn is_negative(row: usize, column: usize) -> bool {
    const ARRAY: [[(usize, bool); 4]; 4] = [
        [(0, false), (1, false), (2, false), (3, false)],
        [(1, true), (0, false), (3, true), (2, false)],
        [(2, true), (3, false), (0, false), (1, true)],
        [(3, true), (2, true), (1, false), (0, false)],
    ];
    let (block, is_turned) = ARRAY[row / 7 % 4][column / 7 % 4];
    let at = (column % 7 + 7 - row % 7) % 7;
    (BLOCKS[block] >> at & 1 == 1) != is_turned
}

/// (parts, elements of a part) of a line.
fn parts(extent: usize) -> Result<(usize, usize)> {
    let is_power = |n: usize| n.is_power_of_two();
    match extent {
        n if is_power(n) => Ok((1, n)),
        n if n.is_multiple_of(ORDER) && is_power(n / ORDER) => Ok((ORDER, n / ORDER)),
        _ => Err(Error::kernel("the Hadamard transform has no matrix of this size")
            .expected("a last extent of 2^k or 28 * 2^k")
            .got(extent.to_string())),
    }
}

/// The product of a part with the Sylvester matrix, divided by the root of its extent.
fn transform(part: &mut [f32]) {
    let n = part.len();
    let mut half = 1;
    while half < n {
        for pair in part.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let factor = 1.0 / (n as f32).sqrt();
    part.iter_mut().for_each(|v| *v *= factor);
}

fn transform_line(line: &mut [f32]) -> Result<()> {
    let (count, extent) = parts(line.len())?;
    line.chunks_exact_mut(extent).for_each(transform);
    if count == 1 {
        return Ok(());
    }
    for column in 0..extent {
        let mut mixed = [0f32; ORDER];
        for (row, sum) in mixed.iter_mut().enumerate() {
            for (i, v) in line.iter().skip(column).step_by(extent).enumerate() {
                *sum += if is_negative(row, i) { -v } else { *v };
            }
        }
        for (v, mixed) in line.iter_mut().skip(column).step_by(extent).zip(mixed) {
            *v = mixed;
        }
    }
    Ok(())
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    parts(shape.last().copied().unwrap_or(1))?;
    args.resize(1, &shape)
}

fn run(args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<()> {
    let x = Reader::<f32>::new(args.tensor(0)?)?;
    let mut out = Writer::<f32>::new(args.output(1)?)?;
    let (from, to) = (row_major(x.meta()), row_major(out.meta()));
    let extent = x.meta().shape().last().copied().unwrap_or(1);
    let bytes = extent.checked_mul(size_of::<f32>()).and_then(|n| scratch.worker.get_mut(..n));
    let line = bytes.and_then(|bytes| bytemuck::try_cast_slice_mut::<u8, f32>(bytes).ok());
    let line = line.ok_or_else(|| Error::internal("too little scratch for a line"))?;
    for start in (0..x.meta().numel()).step_by(extent) {
        x.gather(&from, 0, start, line)?;
        transform_line(line)?;
        out.scatter(&to, 0, start, line)?;
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 1)?;
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16) {
        return Err(Error::kernel("the Hadamard transform does not compute with this dtype")
            .expected("float32, float16 or bfloat16")
            .got(dtype.name()));
    }
    let extent = ctx.tensor(0).and_then(|t| t.shape.last().copied()).unwrap_or(1);
    let bytes = extent.checked_mul(size_of::<f32>());
    let bytes =
        bytes.ok_or_else(|| Error::limit("a line is too large to address").got(extent.to_string()))?;
    Routine::prepare_with_scratch(bytes, bind, run)
}

/// fast_hadamard_transform.
pub static OPERATORS: &[Operator] =
    &[kernel("llama::fast_hadamard_transform.out(Tensor mat, *, Tensor(a!) out) -> Tensor(a!)", prepare)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, error_text, numbers, run_out};

    fn transformed(shape: &[usize], values: &[f32]) -> Result<Vec<f32>> {
        let x = Tensor::of(shape, values);
        Ok(run_out("llama::fast_hadamard_transform.out", &[x.into()], DType::Float32, shape)?.values())
    }

    /// The element of the Sylvester matrix.
    fn sylvester(i: usize, j: usize) -> f64 {
        if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
    }

    #[test]
    fn powers_of_two_take_sylvesters_matrix() {
        for n in [1usize, 2, 8, 64] {
            let x = numbers(2 * n, 3);
            let y = transformed(&[2, n], &x).unwrap();
            for (line, got) in x.chunks(n).zip(y.chunks(n)) {
                for (i, got) in got.iter().enumerate() {
                    let sum: f64 =
                        line.iter().enumerate().map(|(j, v)| sylvester(i, j) * f64::from(*v)).sum();
                    assert!((f64::from(*got) - sum / (n as f64).sqrt()).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn the_matrix_of_order_28_is_one_of_hadamard() {
        let sign = |i, j| if is_negative(i, j) { -1 } else { 1 };
        for i in 0..ORDER {
            for j in 0..ORDER {
                let product: i32 = (0..ORDER).map(|k| sign(i, k) * sign(j, k)).sum();
                assert_eq!(product, if i == j { 28 } else { 0 });
            }
        }
    }

    #[test]
    fn twenty_eight_parts_are_mixed() {
        let x = numbers(56, 5);
        let y = transformed(&[56], &x).unwrap();
        for (i, got) in y.iter().enumerate() {
            let sum: f64 = x
                .iter()
                .enumerate()
                .map(|(j, v)| {
                    let sign = if is_negative(i / 2, j / 2) { -1.0 } else { 1.0 };
                    sign * sylvester(i % 2, j % 2) * f64::from(*v)
                })
                .sum();
            assert!((f64::from(*got) - sum / 2f64.sqrt()).abs() < 1e-4, "{i}");
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        for n in [0usize, 3, 12, 56 * 3] {
            assert!(error_text(transformed(&[1, n], &vec![0.0; n])).contains("2^k or 28 * 2^k"));
        }
    }
}
