//! put into dense tensors by typed slices, where it replaces elements. Sums, other dim orders and other dtypes are left to the
//! plain kernel.

use super::bind;
use crate::routine::{Preparation, Routine};
use crate::shape::wrap_index;
use crate::strided::copy::copy_to_update;
use pteron_core::{ArgSpec, Args, DType, Element, PrepareContext, Result};

fn put<T: Element>(args: &Args<'_>) -> Result<()> {
    copy_to_update(&args.tensor(0)?, &mut args.output(4)?)?;
    let (positions, source) = (args.tensor(1)?.as_slice::<i64>()?, args.tensor(2)?.as_slice::<T>()?);
    let out = args.output(4)?.into_slice::<T>()?;
    let extent = out.len();
    for (position, value) in positions.iter().zip(source) {
        let wrapped = if *position < 0 { position.wrapping_add(extent as i64) } else { *position };
        match usize::try_from(wrapped).ok().and_then(|i| out.get_mut(i)) {
            Some(slot) => *slot = *value,
            // The error of what is outside.
            None => wrap_index(*position, extent).map(|_| ())?,
        }
    }
    Ok(())
}

/// The kernel of slices.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = ctx.tensor(0).map(|t| t.dtype);
    let is_dense = |i: usize, dtype| {
        ctx.tensor(i)
            .is_some_and(|t| Some(t.dtype) == dtype && (t.dim_order.is_contiguous() || t.shape.len() < 2))
    };
    let fits = is_dense(0, dtype)
        && is_dense(1, Some(DType::Int64))
        && is_dense(2, dtype)
        && is_dense(4, dtype)
        && matches!(ctx.args.get(3), Some(ArgSpec::Bool(Some(false))));
    match dtype.filter(|_| fits) {
        Some(DType::Float32) => Routine::named_update("put.f32", bind, |args, _| put::<f32>(args)),
        Some(DType::Float64) => Routine::named_update("put.f64", bind, |args, _| put::<f64>(args)),
        Some(DType::Int64) => Routine::named_update("put.i64", bind, |args, _| put::<i64>(args)),
        Some(DType::Int32) => Routine::named_update("put.i32", bind, |args, _| put::<i32>(args)),
        _ => ctx.decline("takes dense float32, float64, int32 and int64, and replaces elements"),
    }
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use pteron_core::{Element, Isa, Result};

    fn put<T: Element>(variant: &str, positions: &[i64], x: &[T], source: &[T]) -> Result<Vec<u8>> {
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[2, x.len() / 2], x)?),
            CallArg::Tensor(HostTensor::new(&[positions.len()], positions)?),
            CallArg::Tensor(HostTensor::new(&[source.len()], source)?),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros(T::DTYPE, &[2, x.len() / 2])?),
        ];
        let cpu = profile(Isa::Portable).expect("every processor");
        let mut call = SingleCall::new(prepare_of("aten::put.out", variant), &cpu, args)?.expect("taken");
        call.call()?;
        Ok(call.output_bytes(4)?.to_vec())
    }

    #[test]
    fn as_the_plain_kernel() {
        fn check<T: Element>(of: impl Fn(i64) -> T) {
            let x: Vec<T> = (0..10).map(&of).collect();
            let source: Vec<T> = (100..107).map(&of).collect();
            let positions = [3, -1, 0, 3, -10, 9, 5];
            let [found, want] = ["slices", "reference"].map(|v| put(v, &positions, &x, &source).unwrap());
            assert_eq!(found, want);
            for bad in [10, -11, i64::MIN, i64::MAX] {
                let [found, want] = ["slices", "reference"]
                    .map(|v| put(v, &[1, bad], &x, &source[..2]).unwrap_err().to_string());
                assert_eq!(found, want);
            }
        }
        check(|i| i as f32);
        check(|i| if i == 101 { f64::NAN } else { -(i as f64) });
        check(|i| i);
        check(|i| i as i32);
        let empty = put::<i64>("slices", &[], &[], &[]).unwrap();
        assert!(empty.is_empty() && put::<i64>("slices", &[0], &[], &[1]).is_err());
    }
}
