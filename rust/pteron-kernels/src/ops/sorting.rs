//! sort and topk along a dimension.
//!
//! Shape: that of `self`, the dimension cut to `k` for topk. Dtype: values keep theirs, positions are
//! int64. Edge cases: NaN is larger than every number; equal elements keep their order.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::reduction::Reduction;
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use crate::shape::wrap_dim;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, StaticKernel, WorkerScratch};

/// A compute type whose order is that of unsigned integers.
pub(crate) trait Key: Compute {
    /// The place in that order; NaN comes last.
    fn key(self) -> u64;
}

impl Key for f64 {
    fn key(self) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        // Both zeros are equal.
        let bits = (self + 0.0).to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }
}

impl Key for i64 {
    fn key(self) -> u64 {
        self as u64 ^ 1 << 63
    }
}

/// Where the arguments of an operator stand.
#[derive(Clone, Copy)]
struct Form {
    dim: usize,
    /// The argument that says whether the largest come first.
    descending: usize,
    count: Option<usize>,
    values: usize,
}

const SORT: Form = Form { dim: 1, descending: 2, count: None, values: 3 };
const STABLE: Form = Form { dim: 2, descending: 3, count: None, values: 4 };
const TOP: Form = Form { dim: 2, descending: 3, count: Some(1), values: 5 };

/// Bytes of scratch that ordering `count` elements needs.
pub(crate) fn entry_bytes(count: usize) -> Result<usize> {
    count
        .max(1)
        .checked_mul(size_of::<[u64; 2]>())
        .ok_or_else(|| Error::limit("a dimension is too long to sort").got(count.to_string()))
}

/// Room in the scratch for `count` pairs of key and position.
pub(crate) fn entries<'a>(scratch: &'a mut WorkerScratch<'_>, count: usize) -> Result<&'a mut [[u64; 2]]> {
    bytemuck::try_cast_slice_mut::<u8, [u64; 2]>(scratch.worker)
        .map_err(|_| Error::internal("scratch is misaligned"))?
        .get_mut(..count)
        .ok_or_else(|| Error::internal("scratch is too small"))
}

fn bind(args: &mut BindArgs<'_>, form: Form) -> Result<()> {
    let view = args.args();
    let mut shape = *view.tensor(0)?.shape();
    let dim = wrap_dim(view.int(form.dim)?, shape.len())?;
    if let Some(i) = form.count {
        let (k, extent) = (view.int(i)?, shape.get(dim).copied().unwrap_or(1));
        if k < 0 || k > extent as i64 {
            return Err(Error::kernel("k is out of range")
                .argument("k")
                .expected(format!("between 0 and {extent}"))
                .got(k.to_string()));
        }
        if let Some(slot) = shape.get_mut(dim) {
            *slot = k as usize;
        } else if k == 0 {
            return Err(Error::kernel("a tensor without dimensions has one element to choose").argument("k"));
        }
    }
    args.resize(form.values, &shape)?;
    args.resize(form.values + 1, &shape)
}

fn order<C: Key>(args: &Args<'_>, scratch: &mut WorkerScratch<'_>, form: Form) -> Result<()> {
    let x = args.tensor(0)?;
    let dim = wrap_dim(args.int(form.dim)?, x.rank())?;
    let descending = args.bool(form.descending)?;
    let x = Reader::<C>::new(x)?;
    let mut values = Writer::<C>::new(args.output(form.values)?)?;
    let mut positions = Writer::<i64>::new(args.output(form.values + 1)?)?;
    let from = Reduction::new(x.meta(), 1 << dim);
    let (to, to_positions) = (Reduction::new(values.meta(), 1 << dim), Reduction::new(positions.meta(), 1 << dim));
    let entries = entries(scratch, from.count())?;
    let take = to.count();
    from.for_each(|position, base| {
        let mut buffer = [C::ZERO; crate::compute::BLOCK];
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (i, v) in block.iter().enumerate() {
                entries[at + i] = [if descending { !v.key() } else { v.key() }, (at + i) as u64];
            }
            Ok(())
        })?;
        entries.sort_unstable();
        for (rank, [_, index]) in entries.iter().take(take).enumerate() {
            let value = x.get((base + from.inner().offset(*index as usize)) as usize)?;
            values.put((to.outer.offset(position) + to.inner().offset(rank)) as usize, value)?;
            let at = to_positions.outer.offset(position) + to_positions.inner().offset(rank);
            positions.put(at as usize, *index as i64)?;
        }
        Ok(())
    })
}

fn prepare(
    ctx: &PrepareContext<'_>,
    form: Form,
    bind: crate::routine::BindFn,
    float: crate::routine::RunFn,
    int: crate::routine::RunFn,
) -> Preparation {
    same_dtype(ctx, 0, form.values)?;
    if dtype_of(ctx, form.values + 1)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices"));
    }
    let longest = ctx.tensor(0).and_then(|t| t.shape.iter().copied().max()).unwrap_or(1);
    let bytes = entry_bytes(longest)?;
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::I64) => Routine::prepare_with_scratch(bytes, bind, int),
        Some(_) => Routine::prepare_with_scratch(bytes, bind, float),
        None => Err(Error::kernel("the operator does not support this dtype").got(dtype_of(ctx, 0)?.name())),
    }
}

/// sort, topk.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::sort.values(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| prepare(ctx, SORT, |a| bind(a, SORT), |a, s| order::<f64>(a, s, SORT), |a, s| order::<i64>(a, s, SORT)),
    ),
    kernel(
        "aten::sort.values_stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| {
            prepare(ctx, STABLE, |a| bind(a, STABLE), |a, s| order::<f64>(a, s, STABLE), |a, s| order::<i64>(a, s, STABLE))
        },
    ),
    kernel(
        "aten::topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| prepare(ctx, TOP, |a| bind(a, TOP), |a, s| order::<f64>(a, s, TOP), |a, s| order::<i64>(a, s, TOP)),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Arg, Tensor, call, error_text};

    #[test]
    fn keys_order_like_numbers() {
        let sorted = [f64::NEG_INFINITY, -2.5, -1e-300, 0.0, 1e-300, 7.0, f64::INFINITY, f64::NAN];
        assert!(sorted.windows(2).all(|w| w[0].key() < w[1].key()));
        assert_eq!((-0.0f64).key(), 0.0f64.key());
        assert!(i64::MIN.key() < (-1i64).key() && (-1i64).key() < 0i64.key());
    }

    #[test]
    fn equal_elements_keep_their_order_and_k_is_checked() {
        let x = Tensor::of(&[4], &[3f32, 1.0, 3.0, f32::NAN]);
        let top = |k: i64| {
            let n = k.clamp(0, 4) as usize;
            let args = [
                x.clone().into(), k.into(), (-1i64).into(), true.into(), true.into(),
                Tensor::output(DType::Float32, &[n]).into(), Tensor::output(DType::Int64, &[n]).into(),
            ];
            call("aten::topk.values", &args)
        };
        let r = top(3).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[5], &r[6]) else { panic!("no tensors") };
        assert_eq!((i.values::<i64>(), v.values::<f32>()[1..].to_vec()), (vec![3, 0, 2], vec![3.0, 3.0]));
        assert!(error_text(top(5)).contains("between 0 and 4"));
    }
}
