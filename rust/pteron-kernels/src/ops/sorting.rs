//! sort and topk along a dimension.
//!
//! Shape: that of `self`, the dimension cut to `k` for topk. Dtype: values keep theirs, positions are
//! int64. Edge cases: NaN is larger than every number; equal elements keep their order.

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::{BLOCK, Class};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ordering::{Entries, Key, Line, is_narrow, scratch_bytes};
use crate::reduction::plain::Reduction;
use crate::routine::{Preparation, dtype_of};
use crate::shape::wrap_dim;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

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

fn bind_lines(args: &mut BindArgs<'_>, form: Form) -> Result<Split> {
    bind(args, form)?;
    let view = args.args();
    let x = view.tensor(0)?;
    let reduction = Reduction::new(x.meta(), 1 << wrap_dim(view.int(form.dim)?, x.rank())?);
    let lines = if view.tensor(form.values)?.numel() == 0 { 0 } else { reduction.outer.numel() };
    Ok(Split::within(lines, reduction.count(), CHUNK, 8))
}

/// Orders the lines of a range.
fn order<C: Key>(args: &Args<'_>, form: Form, lines: Range<usize>, scratch: &mut [u8]) -> Result<()> {
    let x = args.tensor(0)?;
    let (dim, is_narrow) = (wrap_dim(args.int(form.dim)?, x.rank())?, is_narrow(x.dtype()));
    let descending = args.bool(form.descending)?;
    let x = Reader::<C>::new(x)?;
    let mut values = Writer::<C>::new(args.output(form.values)?)?;
    let mut positions = Writer::<i64>::new(args.output(form.values + 1)?)?;
    let from = Reduction::new(x.meta(), 1 << dim);
    let (to, to_positions) =
        (Reduction::new(values.meta(), 1 << dim), Reduction::new(positions.meta(), 1 << dim));
    let (mut chosen, mut places) = ([C::ZERO; BLOCK], [0i64; BLOCK]);
    for number in lines {
        let base = from.outer.offset(number);
        let line = Line { walk: from.inner(), base, is_narrow, descending };
        let entries = Entries::first(&x, line, to.count(), scratch)?;
        let (target, target_position) = (to.outer.offset(number), to_positions.outer.offset(number));
        for start in (0..to.count()).step_by(BLOCK) {
            let n = (to.count() - start).min(BLOCK);
            for i in 0..n {
                let position = entries.position(start + i);
                places[i] = position as i64;
                chosen[i] = x.get((base + from.inner().offset(position)) as usize)?;
            }
            values.scatter(to.inner(), target, start, &chosen[..n])?;
            positions.scatter(to_positions.inner(), target_position, start, &places[..n])?;
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    same_dtype(ctx, 0, form.values)?;
    if dtype_of(ctx, form.values + 1)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices"));
    }
    let longest = ctx.tensor(0).and_then(|t| t.shape.iter().copied().max()).unwrap_or(1);
    let class = Class::required(dtype_of(ctx, 0)?)?;
    let scratch = scratch_bytes(longest)?;
    in_ranges(
        scratch,
        move |args, _: &mut ()| bind_lines(args, form),
        move |_, args, lines, scratch| match class {
            Class::F32 => order::<f32>(args, form, lines, scratch),
            Class::F64 => order::<f64>(args, form, lines, scratch),
            Class::I64 => order::<i64>(args, form, lines, scratch),
        },
    )
}

/// sort, topk.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::sort.values(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| prepare(ctx, SORT),
    ),
    kernel(
        "aten::sort.values_stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| prepare(ctx, STABLE),
    ),
    kernel(
        "aten::topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        |ctx| prepare(ctx, TOP),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    #[test]
    fn equal_elements_keep_their_order_and_k_is_checked() {
        let x = Tensor::of(&[4], &[3f32, 1.0, 3.0, f32::NAN]);
        let top = |k: i64| {
            let n = k.clamp(0, 4) as usize;
            let args = [
                x.clone().into(),
                k.into(),
                (-1i64).into(),
                true.into(),
                true.into(),
                Tensor::output(DType::Float32, &[n]).into(),
                Tensor::output(DType::Int64, &[n]).into(),
            ];
            call("aten::topk.values", &args)
        };
        let r = top(3).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[5], &r[6]) else { panic!("no tensors") };
        assert_eq!((i.values::<i64>(), v.values::<f32>()[1..].to_vec()), (vec![3, 0, 2], vec![3.0, 3.0]));
        assert!(error_text(top(5)).contains("between 0 and 4"));
    }
}
