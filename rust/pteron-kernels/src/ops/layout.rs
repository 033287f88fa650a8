//! Copies that rearrange one tensor: permute, transpose, view, expand, squeeze, select, slice, flip,
//! roll, repeat, unfold, diagonal, pixel shuffles.
//!
//! Shape: stated by the arguments. Dtype: kept, every dtype is moved. Edge cases: wrapped
//! dimensions, clamped slices, empty tensors, any dim order on both sides.

use crate::operator::{Operator, kernel};
use crate::chunked;
use crate::ops::tensor_prim::view_shape;
use crate::region::{Region, RegionCopy, copy_reshaped_part};
use crate::routine::{Preparation, dtype_of};
use crate::shape::{dim_set, slice_range, wrap_dim, wrap_index};
use crate::walk::broadcast_strides;
use pteron_core::{Args, BindArgs, Dims, Error, MAX_RANK, PrepareContext, Result, TensorView};

/// The shape of the result and where in `self` its elements are.
pub(crate) struct Selection {
    pub shape: Dims,
    pub from: Region,
}

type SelectFn = fn(&Args<'_>, &TensorView<'_>) -> Result<Selection>;

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

/// Prepares the copy of a strided selection of argument 0 to the output at `out`.
fn copy_selection(ctx: &PrepareContext<'_>, out: usize, select: SelectFn) -> Preparation {
    copy_in_chunks(ctx, out, move |args| {
        let view = args.args();
        let chosen = select(&view, &view.tensor(0)?)?;
        args.resize(out, &chosen.shape)?;
        let view = args.args();
        let (x, y) = (view.tensor(0)?, view.output(out)?);
        RegionCopy::new(&chosen.shape, chosen.from, x.numel(), Region::of(y.strides()), y.numel())
    })
}

/// A kernel that copies a strided selection of argument 0 to the output at `OUT`.
macro_rules! selecting {
    ($schema:literal, $out:literal, $select:expr) => {
        kernel($schema, |ctx| copy_selection(ctx, $out, $select))
    };
}

/// Everything, unchanged: what the functions below start from.
fn whole(x: &TensorView<'_>) -> Selection {
    Selection { shape: *x.shape(), from: Region::of(x.strides()) }
}

impl Selection {
    fn swap(&mut self, a: usize, b: usize) {
        if a < self.shape.len() && b < self.shape.len() {
            self.shape.swap(a, b);
            self.from.strides.swap(a, b);
        }
    }

    /// Removes dimension `d`.
    fn remove(&mut self, d: usize) -> Result<()> {
        self.shape.remove(d)?;
        self.from.strides[d..].rotate_left(1);
        Ok(())
    }

    /// Keeps `length` elements of dimension `d`, `step` apart, from `start` on.
    pub(crate) fn narrow(&mut self, d: usize, start: usize, length: usize, step: usize) {
        self.from.offset += start as isize * self.from.strides[d];
        self.from.strides[d] *= step as isize;
        self.shape[d] = length;
    }
}

fn permute(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let dims = args.int_list(1)?;
    let mut out = whole(x);
    if dims.len() != x.rank() || dim_set(&dims, x.rank()).is_err() && x.rank() > 0 {
        return Err(Error::kernel("not a permutation of the dimensions")
            .argument("dims")
            .expected(format!("each of {} dimensions once", x.rank())));
    }
    for (d, dim) in dims.iter().enumerate() {
        let from = wrap_dim(dim?, x.rank())?;
        out.shape[d] = x.shape()[from];
        out.from.strides[d] = x.strides()[from] as isize;
    }
    Ok(out)
}

fn transpose(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let mut out = whole(x);
    out.swap(wrap_dim(args.int(1)?, x.rank())?, wrap_dim(args.int(2)?, x.rank())?);
    Ok(out)
}

fn transpose_matrix(_args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    if x.rank() > 2 {
        return Err(Error::kernel("t takes at most two dimensions").argument("self").got(x.shape().to_string()));
    }
    let mut out = whole(x);
    out.swap(0, 1);
    Ok(out)
}

fn expand(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let size = args.int_list(1)?;
    let lead = size.len().checked_sub(x.rank()).ok_or_else(|| {
        Error::kernel("a tensor does not expand to fewer dimensions").argument("size").got(x.shape().to_string())
    })?;
    let mut shape = Dims::EMPTY;
    for (d, extent) in size.iter().enumerate() {
        let extent = extent?;
        let own = d.checked_sub(lead).map(|d| x.shape()[d]);
        shape.push(match (extent, own) {
            (-1, Some(own)) => own,
            (extent, None | Some(1)) if extent >= 0 => extent as usize,
            (extent, Some(own)) if extent == own as i64 => own,
            _ => {
                return Err(Error::kernel("a tensor does not expand to these extents")
                    .argument("size")
                    .expected("extents equal to those of self, or any where self has 1")
                    .got(format!("{extent} in dimension {d} for shape {}", x.shape())));
            }
        })?;
    }
    let strides = broadcast_strides(x.shape(), x.strides(), shape.len());
    Ok(Selection { shape, from: Region { offset: 0, strides } })
}

fn unsqueeze(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let at = wrap_dim(args.int(1)?, x.rank() + 1)?;
    let mut out = whole(x);
    out.shape.insert(at, 1)?;
    out.from.strides[at..].rotate_right(1);
    out.from.strides[at] = 0;
    Ok(out)
}

fn squeeze_set(x: &TensorView<'_>, set: u32) -> Result<Selection> {
    let mut out = whole(x);
    for d in (0..x.rank()).rev() {
        if set & (1 << d) != 0 && x.shape()[d] == 1 {
            out.remove(d)?;
        }
    }
    Ok(out)
}

fn select(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let mut out = whole(x);
    if x.rank() == 0 {
        return Err(Error::kernel("a tensor without dimensions cannot be selected from").argument("self"));
    }
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    let index = wrap_index(args.int(2)?, x.shape()[dim]).map_err(|e| e.argument("index"))?;
    out.narrow(dim, index, 1, 1);
    out.remove(dim)?;
    Ok(out)
}

fn slice(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let mut out = whole(x);
    if x.rank() == 0 {
        return Err(Error::kernel("a tensor without dimensions cannot be sliced").argument("self"));
    }
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    let step = args.int(4)?;
    let (start, length) = slice_range(args.optional_int(2)?, args.optional_int(3)?, step, x.shape()[dim])?;
    out.narrow(dim, start, length, if length > 1 { step as usize } else { 1 });
    Ok(out)
}

fn narrow(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let mut out = whole(x);
    if x.rank() == 0 {
        return Err(Error::kernel("a tensor without dimensions cannot be narrowed").argument("self"));
    }
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    let (start, length, extent) = (args.int(2)?, args.int(3)?, x.shape()[dim] as i64);
    let start = if start < 0 { start.saturating_add(extent) } else { start };
    if length < 0 || start < 0 || start > extent || length > extent - start {
        return Err(Error::kernel("the range leaves the dimension")
            .expected(format!("within 0..{extent}"))
            .got(format!("start {start}, length {length}")));
    }
    out.narrow(dim, start as usize, length as usize, 1);
    Ok(out)
}

fn flip(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let set = dim_set(&args.int_list(1)?, x.rank())?;
    let mut out = whole(x);
    for d in 0..x.rank() {
        if set & (1 << d) != 0 && x.shape()[d] > 0 {
            out.from.offset += (x.shape()[d] as isize - 1) * out.from.strides[d];
            out.from.strides[d] = -out.from.strides[d];
        }
    }
    Ok(out)
}

fn unfold(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let mut out = whole(x);
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    let (size, step) = (args.int(2)?, args.int(3)?);
    let extent = x.shape().get(dim).copied().unwrap_or(1) as i64;
    if size < 0 || size > extent || step <= 0 {
        return Err(Error::kernel("windows do not fit the dimension")
            .expected(format!("0 ≤ size ≤ {extent} and step > 0"))
            .got(format!("size {size}, step {step}")));
    }
    let stride = x.strides().get(dim).map_or(1, |s| *s as isize);
    if x.rank() > 0 {
        let windows = ((extent - size) / step + 1) as usize;
        out.narrow(dim, 0, windows, if windows > 1 { step as usize } else { 1 });
    }
    out.from.strides[out.shape.len().min(MAX_RANK - 1)] = stride;
    out.shape.push(size as usize)?;
    Ok(out)
}

fn diagonal(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let (a, b) = (wrap_dim(args.int(2)?, x.rank())?, wrap_dim(args.int(3)?, x.rank())?);
    if a == b || x.rank() < 2 {
        return Err(Error::kernel("a diagonal needs two different dimensions").got(format!("{a} and {b}")));
    }
    let (rows, columns) = (x.shape()[a] as i64, x.shape()[b] as i64);
    let offset = args.int(1)?.clamp(-rows, columns);
    let length = if offset >= 0 { rows.min(columns - offset) } else { (rows + offset).min(columns) }.max(0);
    let mut out = whole(x);
    let stride = out.from.strides[a] + out.from.strides[b];
    if length > 0 {
        out.from.offset += if offset >= 0 { offset as isize * out.from.strides[b] } else { -offset as isize * out.from.strides[a] };
    }
    out.remove(a.max(b))?;
    out.remove(a.min(b))?;
    out.from.strides[out.shape.len()] = stride;
    out.shape.push(length as usize)?;
    Ok(out)
}

fn as_strided(args: &Args<'_>, x: &TensorView<'_>) -> Result<Selection> {
    let shape = args.int_list(1)?.to_dims()?;
    let strides = args.int_list(2)?;
    let offset = args.optional_int(3)?.unwrap_or(0);
    if strides.len() != shape.len() {
        return Err(Error::kernel("size and stride must have the same length").argument("stride"));
    }
    let mut from = Region { offset: 0, strides: [0; MAX_RANK] };
    let mut last = usize::try_from(offset).ok();
    for (d, stride) in strides.iter().enumerate() {
        let stride = usize::try_from(stride?)
            .map_err(|_| Error::kernel("strides must not be negative").argument("stride"))?;
        from.strides[d] = stride as isize;
        last = shape[d].saturating_sub(1).checked_mul(stride).and_then(|reach| last?.checked_add(reach));
    }
    if !shape.contains(&0) && last.is_none_or(|last| last >= x.numel()) {
        return Err(Error::kernel("the strided view leaves the tensor")
            .expected(format!("elements within 0..{}", x.numel())));
    }
    from.offset = offset as isize;
    Ok(Selection { shape, from })
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
    selecting!("aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)", 2, permute),
    selecting!(
        "aten::transpose_copy.int_out(Tensor self, int dim0, int dim1, *, Tensor(a!) out) -> Tensor(a!)",
        3,
        transpose
    ),
    selecting!("aten::t_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", 1, transpose_matrix),
    selecting!(
        "aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out) -> Tensor(a!)",
        3,
        expand
    ),
    selecting!("aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)", 2, unsqueeze),
    selecting!("aten::squeeze_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", 1, |_, x| {
        squeeze_set(x, u32::MAX)
    }),
    selecting!(
        "aten::squeeze_copy.dim_out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)",
        2,
        |args, x| squeeze_set(x, 1 << wrap_dim(args.int(1)?, x.rank())?)
    ),
    selecting!(
        "aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out) -> Tensor(a!)",
        2,
        |args, x| squeeze_set(x, dim_set(&args.int_list(1)?, x.rank())?)
    ),
    selecting!(
        "aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)",
        3,
        select
    ),
    selecting!(
        "aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, Tensor(a!) out) -> Tensor(a!)",
        5,
        slice
    ),
    selecting!(
        "aten::narrow_copy.out(Tensor self, int dim, SymInt start, SymInt length, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        narrow
    ),
    selecting!("aten::flip.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)", 2, flip),
    selecting!(
        "aten::unfold_copy.out(Tensor self, int dimension, int size, int step, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        unfold
    ),
    selecting!(
        "aten::diagonal_copy.out(Tensor self, int offset=0, int dim1=0, int dim2=1, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        diagonal
    ),
    selecting!(
        "aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None, *, Tensor(a!) out) -> Tensor(a!)",
        4,
        as_strided
    ),
    kernel("aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", view),
];

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
        assert!(error_text(run("aten::permute_copy.out", &[vec![0, 0].into()], &[2, 3])).contains("permutation"));
        assert!(error_text(run("aten::select_copy.int_out", &[0i64.into(), 2i64.into()], &[3])).contains("index"));
        assert!(
            error_text(run("aten::expand_copy.out", &[vec![4, 3].into(), false.into()], &[4, 3])).contains("expand")
        );
        let strided = [vec![2, 2].into(), vec![4, 1].into(), Arg::Int(1)];
        assert!(error_text(run("aten::as_strided_copy.out", &strided, &[2, 2])).contains("leaves"));
        let huge = [vec![2, 2].into(), vec![i64::MAX, 1].into(), Arg::Int(i64::MAX)];
        assert!(error_text(run("aten::as_strided_copy.out", &huge, &[2, 2])).contains("leaves"));
    }
}
