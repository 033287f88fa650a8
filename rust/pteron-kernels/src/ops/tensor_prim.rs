//! What programs do between numbers and tensors: sizes, the value of a one-element tensor, views,
//! and the append step of a map or scan.
//!
//! `et_view` makes its output a view of `self`: no bytes move. `et_copy_index` writes one slice of
//! an output that grows along its first dimension; slices written earlier stay.

use crate::compute::Compute;
use crate::elements::Reader;
use crate::operator::{Operator, kernel};
use crate::routine::Routine;
use crate::shape::{check_same, wrap_dim};
use crate::strided::copy::{StridedRegion, copy_region};
use crate::strided::views::view_shape;
use pteron_core::{Args, BindArgs, DType, Error, Result, Scalar};

fn sym_size(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let tensor = view.tensor(0)?;
    let dim = wrap_dim(view.int(1)?, tensor.rank())?;
    let extent = tensor
        .shape()
        .get(dim)
        .copied()
        .ok_or_else(|| Error::kernel("a tensor without dimensions has no sizes").argument("self"))?;
    args.set(2, Scalar::Int(extent as i64))
}

fn sym_numel(args: &mut BindArgs<'_>) -> Result<()> {
    let numel = args.args().tensor(0)?.numel();
    args.set(1, Scalar::Int(numel as i64))
}

fn check_one_element(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    if shape.numel()? != 1 {
        return Err(Error::kernel("only a tensor with one element converts to a number")
            .argument("self")
            .got(format!("shape {shape}")));
    }
    Ok(())
}

/// Reads the element; done after the step runs, when the tensor has been computed.
fn local_scalar_dense(args: &mut BindArgs<'_>) -> Result<()> {
    check_one_element(args)?;
    let tensor = args.args().tensor(0)?;
    let value = match tensor.dtype() {
        DType::Bool => Scalar::Bool(Reader::<i64>::new(tensor)?.get(0)?.is_true()),
        d if d.is_integer() => Scalar::Int(Reader::<i64>::new(tensor)?.get(0)?),
        _ => Scalar::Double(Reader::<f64>::new(tensor)?.get(0)?),
    };
    args.set(1, value)
}

fn et_view(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = view_shape(view.tensor(0)?.numel(), &view.int_list(1)?)?;
    args.alias(2, 0, &shape)
}

fn bind_copy_index(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (to, from, index) = (view.tensor(0)?, view.tensor(1)?, view.int(2)?);
    if to.dtype() != from.dtype() {
        return Err(Error::kernel("both tensors must have the same dtype")
            .argument("copy_from")
            .expected(to.dtype().name())
            .got(from.dtype().name()));
    }
    if !to.is_contiguous() {
        return Err(Error::kernel("the output must be row-major").argument("copy_to"));
    }
    let mut shape = *to.shape();
    if shape.is_empty() || shape.len() != from.rank() + 1 {
        return Err(Error::kernel("the output must have one dimension more than its slices")
            .argument("copy_to")
            .got(format!("{shape} and {}", from.shape())));
    }
    check_same("the slice", &shape[1..], from.shape())?;
    let index = usize::try_from(index)
        .ok()
        .and_then(|i| i.checked_add(1))
        .ok_or_else(|| Error::kernel("index out of range").argument("index").got(index.to_string()))?;
    let room = shape[0];
    shape[0] = index;
    // The output ends after the newest slice; one of fixed extents has room for every slice already.
    args.resize(0, &shape).or_else(|e| if index <= room { Ok(()) } else { Err(e) })
}

fn copy_index(args: &Args<'_>) -> Result<()> {
    let from = args.tensor(1)?;
    let mut to = args.output(0)?;
    let mut region = StridedRegion::of(&to.strides()[1..]);
    region.offset = args.int(2)? as isize * from.numel() as isize;
    copy_region(from.shape(), &from, StridedRegion::of(from.strides()), &mut to, region)
}

/// Sizes, items, views.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::sym_size.int(Tensor self, int dim) -> SymInt", |_| Routine::scalar(sym_size)),
    kernel("aten::sym_numel(Tensor self) -> SymInt", |_| Routine::scalar(sym_numel)),
    kernel("aten::_local_scalar_dense(Tensor self) -> Scalar", |_| {
        Routine::prepare_with_finish(check_one_element, |_, _| Ok(()), local_scalar_dense)
    }),
    kernel("executorch_prim::et_view.default(Tensor self, int[] size, *, Tensor(a!) out) -> ()", |_| {
        Routine::view(et_view)
    }),
    kernel(
        "executorch_prim::et_copy_index.tensor(Tensor(a!) copy_to, Tensor copy_from, SymInt index) -> ()",
        |_| Routine::prepare(bind_copy_index, |args, _| copy_index(args)),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    #[test]
    fn sizes_and_items() {
        let x = Tensor::of(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        let size = call("aten::sym_size.int", &[x.clone().into(), Arg::Int(-1)]).unwrap().pop();
        assert!(matches!(size, Some(Arg::Int(3))));
        assert!(
            error_text(call("aten::sym_size.int", &[x.clone().into(), Arg::Int(2)])).contains("out of range")
        );
        assert!(matches!(call("aten::sym_numel", &[x.clone().into()]).unwrap().pop(), Some(Arg::Int(6))));
        assert!(error_text(call("aten::_local_scalar_dense", &[x.into()])).contains("one element"));
        let half = Tensor::of(&[1], &[0.5f32]);
        assert!(matches!(
            call("aten::_local_scalar_dense", &[half.into()]).unwrap().pop(),
            Some(Arg::Double(0.5))
        ));
    }

    #[test]
    fn views_infer_one_extent_and_move_nothing() {
        let x = Tensor::of(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let view = |size: Vec<i64>, bound: &[usize]| {
            let out = Tensor::output(DType::Float32, bound);
            match call("executorch_prim::et_view.default", &[x.clone().into(), size.into(), out.into()])?
                .pop()
            {
                Some(Arg::Tensor(t)) => Ok(t),
                _ => panic!("no tensor"),
            }
        };
        let y = view(vec![3, -1], &[3, 2]).unwrap();
        assert_eq!((y.shape(), y.values::<f32>()), (&[3usize, 2][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        for bad in [vec![4, -1], vec![-1, -1], vec![5], vec![0, -1], vec![i64::MAX, i64::MAX]] {
            assert!(error_text(view(bad, &[6, 1])).contains("view cannot make this shape"));
        }
    }

    #[test]
    fn copy_index_appends() {
        let to = Tensor::of(&[2, 2], &[1i64, 2, 0, 0]);
        let from = Tensor::of(&[2], &[7i64, 8]);
        let args = [to.into(), from.into(), Arg::Int(1)];
        let Arg::Tensor(y) = call("executorch_prim::et_copy_index.tensor", &args).unwrap().remove(0) else {
            panic!("no tensor")
        };
        assert_eq!(y.values::<i64>(), [1, 2, 7, 8]);
    }
}
