//! The kernel that takes the way by tridiagonal matrices. It takes every call; its errors are relative to the largest
//! eigenvalue.

use super::tridiagonal::{ROOMS, Rooms, eigen};
use super::{bind, is_lower, load_symmetric, store_not_finite, store_results};
use crate::ops::matrix_batch::{ItemKernel, bytes_for, check_dtypes, largest, rooms, split_square};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, Args, Error, PrepareContext, Result};

struct Eigen<'a> {
    a: &'a mut [f64],
    n: usize,
    values: &'a mut [f64],
    vectors: Option<&'a mut [f64]>,
    memory: &'a mut [f64],
}

impl SimdTask for Eigen<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let Eigen { a, n, values, vectors, memory } = self;
        eigen(a, n, values, vectors, Rooms::of(memory, n))
    }
}

fn run(level: SimdLevel, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "A")?;
    let [a, vectors, values, sorted, order, memory] = rooms(memory, [n * n, n * n, n, n * n, n, ROOMS * n])?;
    let scale = load_symmetric(args, &batch, item, n, is_lower(args.optional_string(1)?)?, a)?;
    if scale.is_nan() {
        return store_not_finite(args, &batch, item, a, values, sorted);
    }
    let has_vectors = args.bool(2)?;
    let wanted = has_vectors.then_some(&mut *vectors);
    if !level.dispatch_narrow(Eigen { a, n, values, vectors: wanted, memory: &mut *memory }) {
        return Err(Error::kernel("the eigenvalues did not converge").argument("A"));
    }
    order.iter_mut().enumerate().for_each(|(i, o)| *o = i as f64);
    order.sort_unstable_by(|i, j| values[*i as usize].total_cmp(&values[*j as usize]));
    let in_order = &mut memory[..n];
    for (to, from) in order.iter().enumerate() {
        let from = *from as usize;
        in_order[to] = values[from] * scale;
        if has_vectors {
            let column = sorted[to..].iter_mut().step_by(n);
            column.zip(&vectors[from * n..]).for_each(|(x, v)| *x = *v);
        }
    }
    store_results(args, &batch, item, in_order, sorted)
}

/// _linalg_eigh.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 3, 4])?;
    if let Some(ArgSpec::String(uplo)) = ctx.args.get(1) {
        is_lower(Some(uplo))?;
    }
    let [n, _] = largest(ctx, 0);
    let bytes = bytes_for(&[&[3, n, n], &[2 + ROOMS, n]])?;
    // The plain kernel takes about eight times as long.
    ItemKernel::prepare("eigh.tridiagonal", ctx, bytes, |args| bind(args).map(|(n, ns)| (n, ns / 8)), run)
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{DType, Isa, Result};

    /// Eigenvalues and eigenvectors of a batch of matrices.
    fn eigh(variant: &str, isa: Isa, a: &[f64], n: usize, lower: bool) -> Result<(Vec<f64>, Vec<f64>)> {
        let batch = a.len() / (n * n).max(1);
        let tensor = |shape: &[usize]| HostTensor::zeros(DType::Float64, shape).map(CallArg::Tensor);
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[batch, n, n], a)?),
            CallArg::String(if lower { "L" } else { "U" }.into()),
            CallArg::bool(true),
            tensor(&[batch, n])?,
            tensor(&[batch, n, n])?,
        ];
        let cpu = profile(isa).expect("the processor has it");
        let mut call = SingleCall::new(prepare_of("aten::_linalg_eigh.eigenvalues", variant), &cpu, args)?
            .expect("taken");
        call.call()?;
        Ok((call.output(3)?, call.output(4)?))
    }

    fn check(a: &[f64], n: usize, lower: bool) {
        let (want, _) = eigh("reference", Isa::Portable, a, n, lower).unwrap();
        let mut first = None;
        for isa in Isa::ALL.into_iter().filter(|isa| profile(*isa).is_some()) {
            let (values, vectors) = eigh("tridiagonal", isa, a, n, lower).unwrap();
            for (item, a) in a.chunks_exact(n * n).enumerate() {
                let at = |i: usize, j: usize| if (i > j) == lower { a[i * n + j] } else { a[j * n + i] };
                let (w, v) = (&values[item * n..][..n], &vectors[item * n * n..][..n * n]);
                let largest = w.iter().fold(0f64, |m, x| m.max(x.abs()));
                assert!(w.is_sorted());
                for (found, want) in w.iter().zip(&want[item * n..]) {
                    assert!((found - want).abs() <= 1e-14 * largest, "{n}: {found} {want}");
                }
                for i in 0..n {
                    for j in 0..n {
                        let sum: f64 = (0..n).map(|k| v[i * n + k] * w[k] * v[j * n + k]).sum();
                        assert!((sum - at(i, j)).abs() <= 1e-14 * largest, "{n} {isa:?}");
                        let dot: f64 = (0..n).map(|k| v[k * n + i] * v[k * n + j]).sum();
                        assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-14, "{n} {isa:?}");
                    }
                }
            }
            // Instruction sets do not differ.
            let all = [values, vectors].concat();
            assert_eq!(*first.get_or_insert_with(|| all.clone()), all, "{n} {isa:?}");
        }
    }

    #[test]
    fn as_the_plain_kernel_for_every_size() {
        for n in [1usize, 2, 3, 4, 7, 16, 18, 33] {
            let random =
                |scale: f64| numbers(2 * n * n, 11).iter().map(|v| f64::from(*v) * scale).collect::<Vec<_>>();
            check(&random(1.0), n, true);
            check(&random(1e-200), n, false);
            check(&random(1e200), n, true);
        }
        let n = 9;
        let diagonal: Vec<f64> =
            (0..n * n).map(|i| if i % (n + 1) == 0 { (i % 4) as f64 } else { 0.0 }).collect();
        // Equal eigenvalues, matrices of rank one, blocks, and one with elements that underflow beside others.
        check(&diagonal, n, true);
        check(&vec![1.0; n * n], n, true);
        check(
            &(0..n * n).map(|i| if i / n / 3 == i % n / 3 { 2.0 } else { 0.0 }).collect::<Vec<_>>(),
            n,
            false,
        );
        check(&(0..n * n).map(|i| 10f64.powi(-40 * (i / n + i % n) as i32)).collect::<Vec<_>>(), n, true);
    }

    #[test]
    fn zeros_and_what_is_not_finite() {
        for a in [vec![0.0; 16], vec![], vec![f64::NAN; 4], vec![f64::INFINITY; 1]] {
            let n = a.len().isqrt();
            let of = |variant| eigh(variant, Isa::Portable, &a, n, true).unwrap();
            let ((found, v), (want, _)) = (of("tridiagonal"), of("reference"));
            let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&want));
            assert_eq!(v.len(), n * n);
        }
        let bad = eigh("tridiagonal", Isa::Portable, &[f64::NAN; 9], 3, true);
        assert!(bad.unwrap_err().to_string().contains("not finite"));
    }
}
