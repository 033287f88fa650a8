//! Functions of complex64 numbers that lie as their result does, or repeat along it: loops that the compiler vectorises.
//! The formulas are those of `complex_elementwise`, whose kernels take what is left.

use crate::complex_blocks::{number, times};
use crate::elementwise::lanewise::lanes;
use pteron_core::{ArgSpec, Complex64};

lanes! {
    /// a + b.
    ComplexAdd: [] Complex64 => Complex64 = "add", 8, |_s, [a, b]| number(a.re + b.re, a.im + b.im), if is_plain_sum;
    /// a - b.
    ComplexSub: [] Complex64 => Complex64 = "sub", 8, |_s, [a, b]| number(a.re - b.re, a.im - b.im), if is_plain_sum;
    /// a b, each part in float32.
    ComplexMul: [] Complex64 => Complex64 = "mul", 8, |_s, [a, b]| times(a, b);
    /// -z.
    ComplexNeg: [] Complex64 => Complex64 = "neg", 8, |_s, [z]| number(-z.re, -z.im);
    /// The conjugate.
    ComplexConj: [] Complex64 => Complex64 = "conj", 8, |_s, [z]| number(z.re, -z.im);
}

/// Is `alpha`, argument 2, the number 1?
fn is_plain_sum(args: &[ArgSpec<'_>]) -> bool {
    args.get(2).is_some_and(|alpha| alpha.number() == Some(1.0))
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{Tensor, numbers, prepare_of, run_out};
    use bytemuck::cast_slice;
    use pteron_core::{Complex64, DType, Isa};

    #[test]
    fn the_same_bytes_as_the_plain_kernels() {
        let values: Vec<Complex64> = (numbers(3 * 17 * 2, 3).chunks_exact(2))
            .zip([f32::NAN, f32::INFINITY, -0.0, 1e30, 1e-30].into_iter().cycle())
            .enumerate()
            .map(|(i, (p, special))| Complex64 { re: p[0], im: if i % 4 == 0 { special } else { p[1] } })
            .collect();
        let shape = [3, 17];
        for (op, operands, alpha) in [
            ("aten::add.out", 2, Some(1i64)),
            ("aten::sub.out", 2, Some(1)),
            ("aten::mul.out", 2, None),
            ("aten::neg.out", 1, None),
            ("aten::conj_physical.out", 1, None),
        ] {
            // The second operand: of the shape of the first, or one row of it.
            for rows in [3, 1] {
                let right = &values[values.len() - rows * 17..];
                let mut plain = vec![Tensor::of(&shape, &values).into()];
                if operands == 2 {
                    plain.push(Tensor::of(&[rows, 17], right).into());
                }
                plain.extend(alpha.map(Into::into));
                let want = run_out(op, &plain, DType::Complex64, &shape).unwrap().values::<Complex64>();
                for isa in Isa::ALL {
                    let Some(cpu) = profile(isa) else { continue };
                    let mut args = vec![CallArg::Tensor(HostTensor::new(&shape, &values).unwrap())];
                    if operands == 2 {
                        args.push(CallArg::Tensor(HostTensor::new(&[rows, 17], right).unwrap()));
                    }
                    args.extend(alpha.map(CallArg::int));
                    args.push(CallArg::Tensor(HostTensor::zeros(DType::Complex64, &shape).unwrap()));
                    let out = args.len() - 1;
                    let prepare = prepare_of(op, "complex");
                    let mut call = SingleCall::new(prepare, &cpu, args).unwrap().expect("taken");
                    call.call().unwrap();
                    let got = call.output::<Complex64>(out).unwrap();
                    let (got, want): (&[f32], &[f32]) = (cast_slice(&got), cast_slice(&want));
                    for (i, (a, b)) in got.iter().zip(want).enumerate() {
                        assert!(
                            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                            "{op} {isa:?} {i}: {a} {b}"
                        );
                    }
                }
            }
        }
    }
}
