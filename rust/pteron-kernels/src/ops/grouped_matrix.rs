//! Matrix products of groups, whose sizes are data: _grouped_mm, and grouped_mm_fallback of transformers.
//!
//! Shape: `offs` `[G]` says where each group ends. Rows of the first in groups, `[S, K] x [G, K, N]` gives `[S, N]`; columns of the
//! second in groups, `[G, M, K] x [K, S]` gives `[M, S]`; sums in groups, `[M, S] x [S, N]` gives `[G, M, N]`; without `offs`,
//! `[G, M, K] x [G, K, N]` gives `[G, M, N]`. Dtype: float32, float16, bfloat16 (the fallback takes float64 and integers
//! too), operands alike; 16-bit floats accumulate in float32. Edge cases: rows and columns behind the last group, which
//! PyTorch leaves undefined, are zero. Offsets that fall or leave the matrix are an error.

use crate::compute::{Class, Compute, Kind};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::matrix::{Matrix, matrix, multiply};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_rank;
use pteron_core::{ArgSpec, Args, BindArgs, DType, Dims, Error, PrepareContext, Result};
use std::ops::Range;

/// Position of the offsets in the arguments of both operators.
const OFFSETS: usize = 2;

/// What `offs` cuts into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Rows of the first operand: `[S, K] x [G, K, N]`.
    Rows,
    /// Columns of the second: `[G, M, K] x [K, S]`.
    Columns,
    /// The sums: `[M, S] x [S, N]`.
    Sums,
    /// Nothing: `[G, M, K] x [G, K, N]`.
    Batches,
}

/// The layout of a call and the shape of its result.
///
/// Errors: operands that do not fit together, offsets that are missing or have no place.
pub fn layout(args: &Args<'_>) -> Result<(Layout, Dims)> {
    let (a, b) = (args.tensor(0)?, args.tensor(1)?);
    let (x, y) = (a.shape(), b.shape());
    let offsets = args.optional_tensor(OFFSETS)?;
    if let Some(offsets) = offsets {
        check_rank("the list of offsets", 1, offsets.shape()).map_err(|e| e.argument("offs"))?;
    }
    let groups = offsets.map(|t| t.numel());
    let misfit = |expected: &str| {
        Error::kernel("the operands of a product in groups do not fit together")
            .expected(expected)
            .got(format!("{x} and {y}, {} groups", groups.map_or("no".into(), |g| g.to_string())))
    };
    let (layout, shape, fits, expected) = match (&**x, &**y, groups) {
        (&[s, k], &[g, k2, n], Some(groups)) => {
            (Layout::Rows, Dims::new(&[s, n])?, k == k2 && g == groups, "[S, K] and [G, K, N], G offsets")
        }
        (&[g, m, k], &[k2, s], Some(groups)) => {
            (Layout::Columns, Dims::new(&[m, s])?, k == k2 && g == groups, "[G, M, K] and [K, S], G offsets")
        }
        (&[m, s], &[s2, n], Some(groups)) => {
            (Layout::Sums, Dims::new(&[groups, m, n])?, s == s2, "[M, S] and [S, N]")
        }
        (&[g, m, k], &[g2, k2, n], None) => {
            (Layout::Batches, Dims::new(&[g, m, n])?, k == k2 && g == g2, "[G, M, K] and [G, K, N]")
        }
        _ => return Err(misfit("matrices or batches of them, and offsets unless both are batches")),
    };
    if !fits {
        return Err(misfit(expected));
    }
    Ok((layout, shape))
}

/// Where each group lies, in order.
pub struct Groups<'a> {
    offsets: Option<Reader<'a, i64>>,
    /// Where the group before ended.
    start: usize,
    extent: usize,
    next: usize,
}

impl<'a> Groups<'a> {
    /// The groups of a call in this layout.
    ///
    /// Errors: `offs` does not convert.
    pub fn of(args: &Args<'a>, layout: Layout) -> Result<Self> {
        let offsets = args.optional_tensor(OFFSETS)?.map(Reader::new).transpose()?;
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        let extent = match layout {
            Layout::Rows => x.shape()[0],
            Layout::Columns | Layout::Sums => y.shape()[if layout == Layout::Sums { 0 } else { 1 }],
            Layout::Batches => 0,
        };
        Ok(Groups { offsets, start: 0, extent, next: 0 })
    }

    /// The rows, columns or sums of the next group; what is behind the last one when there is none.
    ///
    /// Errors: the offset lies before the one before it, or outside.
    pub fn advance(&mut self) -> Result<Range<usize>> {
        let Some(offsets) = self.offsets.filter(|o| self.next < o.meta().numel()) else {
            return Ok(self.start..self.extent);
        };
        let (end, group) = (offsets.get(self.next)?, self.next);
        let Some(end) = usize::try_from(end).ok().filter(|e| (self.start..=self.extent).contains(e)) else {
            return Err(Error::kernel("an offset is no end of a group")
                .argument("offs")
                .expected(format!("between {} and {}", self.start, self.extent))
                .got(format!("{end} at position {group}")));
        };
        self.next += 1;
        Ok(std::mem::replace(&mut self.start, end)..end)
    }
}

fn products<C: Compute>(args: &Args<'_>, out: usize) -> Result<()> {
    let (layout, shape) = layout(args)?;
    let (a, b) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<C>::new(args.tensor(1)?)?);
    let mut y = Writer::<C>::new(args.output(out)?)?;
    let (steps, steps_b, steps_y) = (*a.meta().strides(), *b.meta().strides(), *y.meta().strides());
    let of = |strides: &[usize], at: usize| matrix(strides, at);
    let [k, n] = [a.meta().shape()[a.meta().rank() - 1], b.meta().shape()[b.meta().rank() - 1]];
    let rows = shape[shape.len() - 2];
    let mut groups = Groups::of(args, layout)?;
    let (rank, count) = (
        shape.len(),
        match layout {
            Layout::Rows => b.meta().shape()[0],
            Layout::Columns => a.meta().shape()[0],
            Layout::Sums | Layout::Batches => shape[0],
        },
    );
    let mut product = |am: Matrix, bm: Matrix, ym: Matrix, size: [usize; 3]| {
        multiply((&a, am), (&b, bm), size, |row, column, values| {
            y.write(ym.offset + row as isize * ym.row + column as isize * ym.column, ym.column, values)
        })
    };
    for g in 0..count {
        let part = groups.advance()?;
        let (start, len) = (part.start, part.len());
        match layout {
            Layout::Rows => product(
                of(&steps, start * steps[0]),
                of(&steps_b, g * steps_b[0]),
                of(&steps_y, start * steps_y[0]),
                [len, n, k],
            )?,
            Layout::Columns => product(
                of(&steps, g * steps[0]),
                of(&steps_b, start * steps_b[1]),
                of(&steps_y, start * steps_y[1]),
                [rows, len, k],
            )?,
            Layout::Sums => product(
                of(&steps, start * steps[1]),
                of(&steps_b, start * steps_b[0]),
                of(&steps_y, g * steps_y[0]),
                [rows, n, len],
            )?,
            Layout::Batches => product(
                of(&steps, g * steps[0]),
                of(&steps_b, g * steps_b[0]),
                of(&steps_y, g * steps_y[rank - 3]),
                [rows, n, k],
            )?,
        }
    }
    let rest = groups.advance()?;
    if matches!(layout, Layout::Rows | Layout::Columns) && !rest.is_empty() {
        // A product over no sums is zero.
        let at = rest.start * steps_y[if layout == Layout::Rows { 0 } else { 1 }];
        let size = if layout == Layout::Rows { [rest.len(), n, 0] } else { [rows, rest.len(), 0] };
        product(of(&steps, 0), of(&steps_b, 0), of(&steps_y, at), size)?;
    }
    Ok(())
}

/// Prepares a product in groups with its result at `out`.
fn prepare(ctx: &PrepareContext<'_>, out: usize) -> Preparation {
    let dtype = dtype_of(ctx, 0)?;
    for i in [1, out] {
        if dtype_of(ctx, i)? != dtype {
            return Err(Error::kernel("matrix products need operands of one dtype")
                .expected(dtype.name())
                .got(dtype_of(ctx, i)?.name()));
        }
    }
    if let Some(offsets) = ctx.tensor(OFFSETS)
        && !matches!(offsets.dtype, DType::Int32 | DType::Int64)
    {
        return Err(Error::kernel("offsets are int32 or int64").argument("offs").got(offsets.dtype.name()));
    }
    Kind::of(dtype)?;
    if out == FALLBACK_OUT {
        return Routine::prepare(|args| bind(args, FALLBACK_OUT), |args, _| by_class(args, FALLBACK_OUT));
    }
    Routine::prepare(|args| bind(args, GROUPED_OUT), |args, _| by_class(args, GROUPED_OUT))
}

/// Positions of the results of the two operators.
pub const GROUPED_OUT: usize = 5;
/// See [`GROUPED_OUT`].
pub const FALLBACK_OUT: usize = 3;

fn bind(args: &mut BindArgs<'_>, out: usize) -> Result<()> {
    let (_, shape) = layout(&args.args())?;
    args.resize(out, &shape)
}

fn by_class(args: &Args<'_>, out: usize) -> Result<()> {
    match Class::of(args.tensor(0)?.dtype()) {
        Some(Class::F64) => products::<f64>(args, out),
        Some(Class::I64) => products::<i64>(args, out),
        _ => products::<f32>(args, out),
    }
}

/// An error for what PyTorch's operator does not take, though its schema has it.
///
/// Errors: a bias, another dtype of the result, other operands than floats of at most 32 bits.
pub fn check_grouped(ctx: &PrepareContext<'_>) -> Result<()> {
    if ctx.tensor(3).is_some() {
        return Err(Error::kernel("a product in groups takes no bias").argument("bias").expected("None"));
    }
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16) {
        return Err(Error::kernel("a product in groups is one of float32, float16 or bfloat16")
            .argument("self")
            .got(dtype.name()));
    }
    if let Some(ArgSpec::Int(Some(code))) = ctx.args.get(4)
        && *code != dtype.code().into()
    {
        return Err(Error::kernel("the result of a product in groups has the dtype of its operands")
            .argument("out_dtype")
            .expected(dtype.name())
            .got(code.to_string()));
    }
    Ok(())
}

/// Products in groups.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::_grouped_mm.out(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_grouped(ctx)?;
            prepare(ctx, GROUPED_OUT)
        },
    ),
    kernel(
        "transformers::grouped_mm_fallback.out(Tensor input, Tensor weight, Tensor offs, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, FALLBACK_OUT),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{DType, Result};

    fn call(shapes: [&[usize]; 2], offsets: Option<&[i32]>, out: &[usize]) -> Result<Vec<f32>> {
        let numbers = |shape: &[usize]| -> Arg {
            let n = shape.iter().product::<usize>();
            Tensor::of(shape, &(0..n).map(|i| i as f32 + 1.0).collect::<Vec<f32>>()).into()
        };
        let offsets = offsets.map_or(Arg::None, |o| Tensor::of(&[o.len()], o).into());
        let args = [numbers(shapes[0]), numbers(shapes[1]), offsets, Arg::None, Arg::None];
        Ok(run_out("aten::_grouped_mm.out", &args, DType::Float32, out)?.values())
    }

    #[test]
    fn each_group_has_its_matrix() {
        let rows = call([&[4, 1], &[2, 1, 2]], Some(&[1, 3]), &[4, 2]).unwrap();
        assert_eq!(rows, [1., 2., 6., 8., 9., 12., 0., 0.]);
        let columns = call([&[2, 1, 1], &[1, 3]], Some(&[0, 2]), &[1, 3]).unwrap();
        assert_eq!(columns, [2., 4., 0.]);
        let sums = call([&[1, 3], &[3, 1]], Some(&[2, 2, 3]), &[3, 1, 1]).unwrap();
        assert_eq!(sums, [5., 0., 9.]);
        assert_eq!(call([&[2, 1, 1], &[2, 1, 1]], None, &[2, 1, 1]).unwrap(), [1., 4.]);
    }

    #[test]
    fn offsets_that_cut_nothing_are_refused() {
        for (offsets, text) in [
            (&[2, 1][..], "between 2 and 4; got 1 at position 1"),
            (&[2, 5], "between 2 and 4; got 5"),
            (&[-1, 4], "between 0 and 4; got -1"),
            (&[4], "1 groups"),
        ] {
            let error = error_text(call([&[4, 1], &[2, 1, 2]], Some(offsets), &[4, 2]));
            assert!(error.contains(text), "{error}");
        }
        assert!(error_text(call([&[4, 1], &[2, 1, 2]], None, &[4, 2])).contains("and offsets unless"));
        assert!(error_text(call([&[2, 1, 1], &[2, 1, 1]], Some(&[1, 2]), &[2, 1, 1])).contains("unless"));
    }
}
