//! The kernel that rotates rows by vectors ([`super::rows`]). It takes every call.

use super::rows::{Memory, decompose};
use super::{bind, not_converged, own_sizes, tall};
use crate::ops::matrix_batch::{ItemKernel, bytes_for, check_dtypes, largest, rooms};
use crate::ops::symmetric_eigen::tridiagonal::ROOMS;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, PrepareContext, Result};

struct Decompose<'a, 'm> {
    a: &'a [f64],
    extents: [usize; 2],
    memory: &'a mut Memory<'m>,
}

impl SimdTask for Decompose<'_, '_> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        decompose(self.a, self.extents, self.memory)
    }
}

/// As the plain kernel's `orthogonalize`.
fn turn(
    level: SimdLevel,
    a: &mut [f64],
    [count, length]: [usize; 2],
    v: &mut [f64],
    memory: &mut [u8],
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let width = length + count;
    let [rows, products, vectors, squares, room] =
        rooms(memory, [count * width, count * count, count * count, count, ROOMS * count])?;
    let mut memory = Memory { rows, products, vectors, squares, rooms: room };
    if !level.dispatch_narrow(Decompose { a, extents: [count, length], memory: &mut memory }) {
        return Err(not_converged());
    }
    let (columns, beside) = (a.chunks_exact_mut(length), v.chunks_exact_mut(count));
    for ((row, column), v) in memory.rows.chunks_exact(width).zip(columns).zip(beside) {
        let (turned, rotated) = row.split_at(length);
        column.copy_from_slice(turned);
        v.copy_from_slice(rotated);
    }
    Ok(())
}

fn run(level: SimdLevel, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    super::run(args, item, memory, |a, extents, v, rest| turn(level, a, extents, v, rest))
}

/// _linalg_svd.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 4, 5, 6])?;
    let (extents, _) = tall(largest(ctx, 0));
    let [high, wide] = extents;
    let own = own_sizes(extents);
    let [a, b, c, d] = own.each_ref().map(|s| &s[..]);
    let bytes = bytes_for(&[a, b, c, d, &[wide, high], &[3, wide, wide], &[1 + ROOMS, wide]])?;
    // The plain kernel takes about eight times as long.
    ItemKernel::prepare("svd.rows", ctx, bytes, |args| bind(args).map(|(n, ns)| (n, ns / 8)), run)
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{DType, Isa, Result};

    type Parts = (Vec<f64>, Vec<f64>, Vec<f64>);

    fn svd(variant: &str, isa: Isa, a: &[f64], [m, n]: [usize; 2], is_full: bool) -> Result<Parts> {
        let inner = m.min(n);
        let (left, right) = if is_full { (m, n) } else { (inner, inner) };
        let tensor = |shape: &[usize]| HostTensor::zeros(DType::Float64, shape).map(CallArg::Tensor);
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[m, n], a)?),
            CallArg::bool(is_full),
            CallArg::bool(true),
            CallArg::None,
            tensor(&[m, left])?,
            tensor(&[inner])?,
            tensor(&[right, n])?,
        ];
        let cpu = profile(isa).expect("the processor has it");
        let mut call =
            SingleCall::new(prepare_of("aten::_linalg_svd.U", variant), &cpu, args)?.expect("taken");
        call.call()?;
        Ok((call.output(4)?, call.output(5)?, call.output(6)?))
    }

    fn check(a: &[f64], [m, n]: [usize; 2]) {
        let (_, want, _) = svd("reference", Isa::Portable, a, [m, n], false).unwrap();
        for isa in Isa::ALL.into_iter().filter(|isa| profile(*isa).is_some()) {
            for is_full in [false, true] {
                let (u, s, v) = svd("rows", isa, a, [m, n], is_full).unwrap();
                let (left, right, largest) = (u.len() / m, v.len() / n, s[0]);
                assert!(s.iter().rev().is_sorted());
                for (found, want) in s.iter().zip(&want) {
                    assert!((found - want).abs() <= 1e-14 * largest, "{m} {n}: {found} {want}");
                }
                let near = |found: f64, want: f64| {
                    assert!((found - want).abs() < 2e-14, "{m} {n} {isa:?} {is_full}: {found} {want}");
                };
                let one = |i, j| f64::from(u8::from(i == j));
                for i in 0..left {
                    (0..left).for_each(|j| {
                        near((0..m).map(|k| u[k * left + i] * u[k * left + j]).sum(), one(i, j))
                    });
                }
                for i in 0..right {
                    (0..right)
                        .for_each(|j| near((0..n).map(|k| v[i * n + k] * v[j * n + k]).sum(), one(i, j)));
                }
                for i in 0..m {
                    for j in 0..n {
                        let sum: f64 = (0..s.len()).map(|k| u[i * left + k] * s[k] * v[k * n + j]).sum();
                        near(
                            sum / largest.max(f64::MIN_POSITIVE),
                            a[i * n + j] / largest.max(f64::MIN_POSITIVE),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn as_the_plain_kernel_for_every_shape() {
        for [m, n] in [[1, 1], [2, 2], [5, 3], [3, 8], [18, 17], [20, 1]] {
            let a: Vec<f64> = numbers(m * n, 3).iter().map(|v| f64::from(*v)).collect();
            check(&a, [m, n]);
        }
        let (m, n) = (8, 6);
        // Two columns alike and a row of zeros: what rounding leaves of the difference has no direction.
        for [m, n] in [[5, 5], [9, 6], [6, 9]] {
            let mut a: Vec<f64> = numbers(m * n, 8).iter().map(|v| f64::from(*v)).collect();
            (0..m).for_each(|i| a[i * n] = a[i * n + n - 1]);
            a[(m - 1) * n..].fill(0.0);
            check(&a, [m, n]);
        }
        // Rank one, no rank, and columns of sizes so far apart that their products say nothing about the small ones.
        check(&vec![1.0; m * n], [m, n]);
        check(&vec![0.0; m * n], [m, n]);
        let graded: Vec<f64> = numbers(m * n, 5)
            .iter()
            .enumerate()
            .map(|(i, v)| f64::from(*v) * 10f64.powi(-3 * (i % n) as i32))
            .collect();
        check(&graded, [m, n]);
        assert!(svd("rows", Isa::Portable, &[f64::NAN; 4], [2, 2], false).is_err());
        assert!(svd("rows", Isa::Portable, &[], [3, 0], true).unwrap().1.is_empty());
    }
}
