//! view_as_real_copy: complex numbers as pairs of floats; their conjugates.
//!
//! Shape: that of `self` and a last dimension of two, for the real and the imaginary part. Dtype: float32
//! from complex64. Edge cases: none.

use crate::elements::Writer;
use crate::operator::{Operator, kernel};
use crate::ops::complex_elementwise;
use crate::ops::complex_lanes::ComplexConj;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, Complex64, DType, Error, PrepareContext, Result};

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let mut shape = *args.args().tensor(0)?.shape();
    shape.push(2)?;
    args.resize(1, &shape)
}

fn parts(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let numbers = x.as_slice::<Complex64>()?;
    let mut out = Writer::<f32>::new(args.output(1)?)?;
    if x.is_contiguous() && out.meta().is_contiguous() {
        return out.write(0, 1, bytemuck::cast_slice(numbers));
    }
    let (from, to) = (row_major(x.meta()), row_major(out.meta()));
    for i in 0..numbers.len() {
        let number = numbers[from.offset(i) as usize];
        out.put(to.offset(2 * i) as usize, number.re)?;
        out.put(to.offset(2 * i + 1) as usize, number.im)?;
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (x, out) = (dtype_of(ctx, 0)?, dtype_of(ctx, 1)?);
    if x != DType::Complex64 || out != DType::Float32 {
        return Err(Error::kernel("the operator does not support this dtype")
            .expected("complex64 to float32")
            .got(format!("{x} to {out}")));
    }
    Routine::prepare(bind, |args, _| parts(args))
}

/// view_as_real_copy, conjugates.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::view_as_real_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", prepare),
    kernel(
        "aten::conj_physical.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        complex_elementwise::conj,
    )
    .complexes::<ComplexConj, 1>(),
    kernel("aten::_conj_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", complex_elementwise::conj)
        .complexes::<ComplexConj, 1>(),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::{Complex64, DType};

    #[test]
    fn parts_stand_side_by_side_in_any_order_of_memory() {
        let numbers = [1.0, 3.0, 2.0, 4.0].map(|re| Complex64 { re, im: -re });
        let x = Tensor::of(&[2, 2], &numbers);
        let parts =
            |x: Tensor| run_out("aten::view_as_real_copy.out", &[x.into()], DType::Float32, &[2, 2, 2]);
        assert_eq!(parts(x.clone()).unwrap().values::<f32>(), [1.0, -1.0, 3.0, -3.0, 2.0, -2.0, 4.0, -4.0]);
        let y = parts(x.in_order(&[1, 0])).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]);
        assert!(error_text(parts(Tensor::of(&[2, 2], &[0f32; 4]))).contains("complex64"));
    }
}
