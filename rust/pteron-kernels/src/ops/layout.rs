//! Copies that rearrange one tensor: permute, transpose, view, expand, squeeze, select, slice, flip,
//! roll, repeat, unfold, diagonal, pixel shuffles.
//!
//! Shape: stated by the arguments. Dtype: kept, every dtype is moved. Edge cases: wrapped
//! dimensions, clamped slices, empty tensors, any dim order on both sides.

use crate::chunked;
use crate::operator::{Operator, kernel, operator};
use crate::routine::{Preparation, dtype_of};
use crate::shape::{dim_set, wrap_dim};
use crate::strided::copy::{RegionCopy, copy_reshaped_part};
use crate::strided::view_copy::{self, ViewOf, bind_copy};
use crate::strided::views::{View, view_shape};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result, TensorView};

/// An error unless input and output have the same dtype.
pub(crate) fn same_dtype(ctx: &PrepareContext<'_>, input: usize, out: usize) -> Result<()> {
    let (from, to) = (dtype_of(ctx, input)?, dtype_of(ctx, out)?);
    if from != to {
        return Err(Error::kernel("the output must have the dtype of the input")
            .argument("out")
            .expected(from.name())
            .got(to.name()));
    }
    Ok(())
}

/// Prepares a copy of argument 0 to the output at `out`, which has its dtype; `bind` gives the output its shape
/// and says what is copied.
pub(crate) fn copy_in_chunks(
    ctx: &PrepareContext<'_>,
    out: usize,
    bind: impl Fn(&mut BindArgs<'_>) -> Result<RegionCopy> + Send + Sync + 'static,
) -> Preparation {
    same_dtype(ctx, 0, out)?;
    let bind = move |args: &mut BindArgs<'_>, copy: &mut Option<RegionCopy>| {
        let plan = bind(args)?;
        *copy = Some(plan);
        Ok(plan.numel())
    };
    chunked::prepare(bind, move |copy, args, range| match copy {
        Some(copy) => copy.run(&args.tensor(0)?, &mut args.output(out)?, range),
        None => Err(Error::internal("a copy ran before it was bound")),
    })
}

/// The plain kernel of a view: argument 0 as `view_of` shows it, copied to the output at `out`.
pub(crate) fn copy_of_view(ctx: &PrepareContext<'_>, out: usize, view_of: ViewOf) -> Preparation {
    copy_in_chunks(ctx, out, move |args| Ok(bind_copy(args, out, view_of)?.with_long_inner()))
}

/// A row whose kernels copy what a function shows of argument 0 to the output at a position.
macro_rules! view_row {
    ($schema:literal, $name:literal, $out:literal, $view:expr) => {
        operator($schema)
            .fast("strided", |ctx| view_copy::prepare(ctx, $name, $out, $view))
            .plain(|ctx| copy_of_view(ctx, $out, $view))
    };
    ($schema:literal, $out:literal, $view:expr) => {
        kernel($schema, |ctx| copy_of_view(ctx, $out, $view))
    };
}

fn squeeze_dims(args: &Args<'_>, x: &TensorView<'_>) -> Result<View> {
    View::of(x).squeeze(dim_set(&args.int_list(1)?, x.rank())?)
}

fn slice(args: &Args<'_>, x: &TensorView<'_>) -> Result<View> {
    View::of(x).slice(args.int(1)?, args.optional_int(2)?, args.optional_int(3)?, args.int(4)?)
}

fn as_strided(args: &Args<'_>, x: &TensorView<'_>) -> Result<View> {
    let offset = args.optional_int(3)?.unwrap_or(0);
    View::strided(x.numel(), args.int_list(1)?.to_dims()?, &args.int_list(2)?, offset)
}

/// A view of a row-major tensor.
fn reshape(args: &Args<'_>, x: &TensorView<'_>) -> Result<View> {
    Ok(View::contiguous(view_shape(x.numel(), &args.int_list(1)?)?))
}

fn prepare_reshape(ctx: &PrepareContext<'_>) -> Preparation {
    // In another memory order the elements depend on the logical order, which the plain kernel walks.
    match ctx.tensor(0).is_some_and(|t| t.dim_order.is_contiguous()) {
        true => view_copy::prepare(ctx, "view_copy", 2, reshape),
        false => ctx.decline("takes a row-major input"),
    }
}

fn bind_view(args: &mut BindArgs<'_>, _: &mut ()) -> Result<usize> {
    let numel = args.args().tensor(0)?.numel();
    let shape = view_shape(numel, &args.args().int_list(1)?)?;
    args.resize(2, &shape)?;
    Ok(numel)
}

fn view(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    chunked::prepare(bind_view, |_, args, range| {
        copy_reshaped_part(&args.tensor(0)?, &mut args.output(2)?, range)
    })
}

/// Rearrangements of one tensor.
pub static OPERATORS: &[Operator] = &[
    view_row!(
        "aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)",
        "permute_copy",
        2,
        |args, x| View::of(x).permute(args.int_list(1)?.iter())
    ),
    view_row!(
        "aten::transpose_copy.int_out(Tensor self, int dim0, int dim1, *, Tensor(a!) out) -> Tensor(a!)",
        "transpose_copy",
        3,
        |args, x| View::of(x).transpose(args.int(1)?, args.int(2)?)
    ),
    view_row!("aten::t_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "t_copy", 1, |_, x| {
        View::of(x).transpose_matrix()
    }),
    view_row!(
        "aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out) -> Tensor(a!)",
        "expand_copy",
        3,
        |args, x| View::of(x).expand(&args.int_list(1)?)
    ),
    view_row!(
        "aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)",
        "unsqueeze_copy",
        2,
        |args, x| View::of(x).unsqueeze(args.int(1)?)
    ),
    view_row!("aten::squeeze_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", 1, |_, x| {
        View::of(x).squeeze(u32::MAX)
    }),
    view_row!(
        "aten::squeeze_copy.dim_out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)",
        "squeeze_copy",
        2,
        |args, x| View::of(x).squeeze(1 << wrap_dim(args.int(1)?, x.rank())?)
    ),
    view_row!(
        "aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out) -> Tensor(a!)",
        "squeeze_copy",
        2,
        squeeze_dims
    ),
    view_row!(
        "aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)",
        "select_copy",
        3,
        |args, x| View::of(x).select(args.int(1)?, args.int(2)?)
    ),
    view_row!(
        "aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, Tensor(a!) out) -> Tensor(a!)",
        "slice_copy",
        5,
        slice
    ),
    view_row!(
        "aten::narrow_copy.out(Tensor self, int dim, SymInt start, SymInt length, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        |args, x| View::of(x).narrow(args.int(1)?, args.int(2)?, args.int(3)?)
    ),
    view_row!("aten::flip.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)", 2, |args, x| {
        View::of(x).flip(&args.int_list(1)?)
    }),
    view_row!(
        "aten::unfold_copy.out(Tensor self, int dimension, int size, int step, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        |args, x| View::of(x).unfold(args.int(1)?, args.int(2)?, args.int(3)?)
    ),
    view_row!(
        "aten::diagonal_copy.out(Tensor self, int offset=0, int dim1=0, int dim2=1, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        |args, x| View::of(x).diagonal(args.int(1)?, args.int(2)?, args.int(3)?)
    ),
    view_row!(
        "aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        as_strided
    ),
    operator("aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("strided", prepare_reshape)
        .plain(view),
];

#[cfg(test)]
#[path = "layout/tests.rs"]
mod fast_tests;

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    fn x() -> Tensor {
        Tensor::of(&[2, 3], &[1i16, 2, 3, 4, 5, 6])
    }

    fn run(operator: &str, extra: &[Arg], bound: &[usize]) -> pteron_core::Result<Tensor> {
        let mut args = vec![x().into()];
        args.extend_from_slice(extra);
        run_out(operator, &args, DType::Int16, bound)
    }

    #[test]
    fn rearrangements() {
        let t = run("aten::permute_copy.out", &[vec![-1, 0].into()], &[3, 2]).unwrap();
        assert_eq!((t.shape(), t.values::<i16>()), (&[3usize, 2][..], vec![1, 4, 2, 5, 3, 6]));
        assert_eq!(run("aten::t_copy.out", &[], &[3, 2]).unwrap().values::<i16>(), [1, 4, 2, 5, 3, 6]);
        let f = run("aten::flip.out", &[vec![0, 1].into()], &[2, 3]).unwrap();
        assert_eq!(f.values::<i16>(), [6, 5, 4, 3, 2, 1]);
        let s = run("aten::select_copy.int_out", &[1i64.into(), (-1i64).into()], &[2]).unwrap();
        assert_eq!(s.values::<i16>(), [3, 6]);
        let d = run("aten::diagonal_copy.out", &[1i64.into(), 0i64.into(), 1i64.into()], &[2]).unwrap();
        assert_eq!(d.values::<i16>(), [2, 6]);
        let e = run("aten::expand_copy.out", &[vec![2, -1, 3].into(), false.into()], &[2, 2, 3]).unwrap();
        assert_eq!(e.values::<i16>(), [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]);
        let u = run("aten::unfold_copy.out", &[1i64.into(), 2i64.into(), 1i64.into()], &[2, 2, 2]).unwrap();
        assert_eq!(u.values::<i16>(), [1, 2, 2, 3, 4, 5, 5, 6]);
    }

    #[test]
    fn slices_clamp_and_may_be_empty() {
        let slice = |start: Arg, end: Arg, step: i64| {
            run("aten::slice_copy.Tensor_out", &[1i64.into(), start, end, step.into()], &[2, 3])
        };
        assert_eq!(slice(Arg::Int(1), Arg::Int(i64::MAX), 1).unwrap().values::<i16>(), [2, 3, 5, 6]);
        assert_eq!(slice(Arg::None, Arg::None, 2).unwrap().values::<i16>(), [1, 3, 4, 6]);
        assert_eq!(slice(Arg::Int(5), Arg::None, 1).unwrap().shape(), &[2, 0]);
        assert!(error_text(slice(Arg::None, Arg::None, 0)).contains("step"));
    }

    #[test]
    fn views_are_row_major_whatever_the_memory_order() {
        let x = Tensor::of(&[1, 2, 1, 2], &[1i16, 2, 3, 4]).in_order(&[0, 2, 3, 1]);
        let y = run_out("aten::view_copy.out", &[x.into(), vec![-1].into()], DType::Int16, &[4]).unwrap();
        assert_eq!(y.values::<i16>(), [1, 3, 2, 4]);
    }

    #[test]
    fn bad_arguments_are_refused() {
        assert!(
            error_text(run("aten::permute_copy.out", &[vec![0, 0].into()], &[2, 3]))
                .contains("names a dimension twice")
        );
        assert!(
            error_text(run("aten::select_copy.int_out", &[0i64.into(), 2i64.into()], &[3])).contains("index")
        );
        assert!(
            error_text(run("aten::expand_copy.out", &[vec![4, 3].into(), false.into()], &[4, 3]))
                .contains("expand")
        );
        let strided = [vec![2, 2].into(), vec![4, 1].into(), Arg::Int(1)];
        assert!(error_text(run("aten::as_strided_copy.out", &strided, &[2, 2])).contains("leaves"));
        let huge = [vec![2, 2].into(), vec![i64::MAX, 1].into(), Arg::Int(i64::MAX)];
        assert!(error_text(run("aten::as_strided_copy.out", &huge, &[2, 2])).contains("leaves"));
    }
}
