//! Single elements by positions along one dimension: gather, scatter, scatter_add, scatter_reduce.
//!
//! Shape: gather has that of its index, the scatters that of `self`. Dtype: data keeps its dtype; positions
//! are int32 or int64, and every one is checked: a negative one, or one outside the dimension, is an error
//! that names it. Edge cases: of values for one place the last replaces, the others meet in the order of the
//! index; NaN wins every extreme; means of integers round down.

use crate::chunked::{CHUNK, in_ranges, part};
use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::{Reader, UpdateView};
use crate::frame::Split;
use crate::grid_kernel::{GridKernel, Part, prepared, take_scratch};
use crate::indexed::{self, Meet, Named, Row, Scatter, check_positions as check_range, with_number};
use crate::operator::{Operator, kernel};
use crate::ops::indexing::check_positions;
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, dtype_of};
use crate::shape::wrap_dim;
use crate::strided::copy::{RegionCopy, StridedRegion};
use crate::strided::loops::signed;
use crate::strided::loops::{Loops, memory_order};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, DType, Dims, Error, Grid, MAX_RANK, PrepareContext, Result, Scalar,
    Scratch, TensorView,
};
use std::ops::Range;

/// Checks that an index tensor has the rank of the data and stays within it, save along `dim`.
fn check_index_shape(index: &TensorView<'_>, data: &Dims, dim: usize) -> Result<()> {
    let fits = index.rank().max(1) == data.len().max(1)
        && index.shape().iter().zip(data.iter()).enumerate().all(|(d, (i, n))| d == dim || i <= n);
    if index.numel() > 0 && !fits {
        return Err(Error::kernel("the index must lie within the tensor in every other dimension")
            .argument("index")
            .expected(format!("at most {data}, any extent in dimension {dim}"))
            .got(index.shape().to_string()));
    }
    Ok(())
}

/// Extent and stride of a dimension; those of a single element for a 0-d tensor.
fn along(shape: &Dims, strides: &[isize; MAX_RANK], dim: usize) -> (usize, isize) {
    (shape.get(dim).copied().unwrap_or(1), strides[dim])
}

/// Strides with those along `dim` set to zero.
fn beside(strides: &Dims, dim: usize) -> [isize; MAX_RANK] {
    let mut strides = signed(strides);
    strides[dim] = 0;
    strides
}

#[cold]
fn names_index(e: Error) -> Error {
    e.argument("index")
}

struct Gather {
    /// Operands: index, input, output.
    loops: Loops<3>,
    extent: usize,
    stride: isize,
}

impl Default for Gather {
    fn default() -> Self {
        Gather { loops: Loops::EMPTY, extent: 0, stride: 0 }
    }
}

impl Gather {
    fn bind(&mut self, args: &mut BindArgs<'_>) -> Result<Split> {
        let view = args.args();
        let (x, index) = (view.tensor(0)?, view.tensor(2)?);
        let dim = wrap_dim(view.int(1)?, x.rank())?;
        check_index_shape(&index, x.shape(), dim)?;
        let shape = *index.shape();
        args.resize(4, &shape)?;
        let view = args.args();
        let (x, index, out) = (view.tensor(0)?, view.tensor(2)?, view.output(4)?);
        (self.extent, self.stride) = along(x.shape(), &signed(x.strides()), dim);
        let (positions, to) = (signed(index.strides()), signed(out.strides()));
        let order = memory_order(shape.len(), &to);
        let order = order[..shape.len()].iter().copied();
        self.loops = Loops::over(order, &shape, [&positions, &beside(x.strides(), dim), &to]);
        Ok(Split::new(self.loops.numel(), CHUNK, CHUNK.min(self.loops.numel())))
    }

    fn run(&self, args: &Args<'_>, range: Range<usize>) -> Result<()> {
        let (x, index, mut out) = (args.tensor(0)?, Reader::<i64>::new(args.tensor(2)?)?, args.output(4)?);
        let [index_step, step, to_step] = self.loops.inner_strides();
        let mut buffer = [0; BLOCK];
        self.loops.each_run(range.start, range.len(), |_, [at, from, to], n| {
            for i in (0..n).step_by(BLOCK) {
                let m = (n - i).min(BLOCK);
                let i = i as isize;
                let positions = index.block(at + i * index_step, index_step, m, &mut buffer)?;
                let row = Row { start: from + i * step, step };
                let named = Named { row, stride: self.stride, extent: self.extent };
                indexed::gather(
                    &x,
                    named,
                    positions,
                    &mut out,
                    Row { start: to + i * to_step, step: to_step },
                )
                .map_err(names_index)?;
            }
            Ok(())
        })
    }
}

/// What a scatter does to its output, one phase each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The input, unless that is the output's own memory.
    Copy,
    /// What is scattered meets what is there.
    Meet(Meet),
    /// Every place that is named takes this number.
    Set(i64),
    /// Every place that is named is divided by how many values meet there.
    Divide { includes_self: bool },
}

/// Where what is scattered comes from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Tensor(usize),
    Number(usize),
}

#[derive(Clone, Copy)]
struct Scattering {
    source: Source,
    out: usize,
    steps: [Step; Grid::MAX_PHASES],
    count: usize,
    copy: RegionCopy,
    /// The lines along the dimension: operands index, output, source.
    lines: Loops<3>,
    /// Along a line: how many positions, the strides of the operands, and the output's extent.
    length: usize,
    strides: [isize; 3],
    extent: usize,
    lines_per_chunk: usize,
    scratch: usize,
    alias: AliasRule,
}

impl Scattering {
    fn prepared(source: Source, out: usize, steps: &[Step], scratch: usize, alias: AliasRule) -> Preparation {
        let mut all = [Step::Copy; Grid::MAX_PHASES];
        let count = steps.len().min(all.len() - 1) + 1;
        all[1..count].copy_from_slice(&steps[..count - 1]);
        let kernel = Scattering {
            source,
            out,
            steps: all,
            count,
            copy: RegionCopy::EMPTY,
            lines: Loops::EMPTY,
            length: 0,
            strides: [0; 3],
            extent: 0,
            lines_per_chunk: 1,
            scratch,
            alias,
        };
        prepared("reference", kernel)
    }

    fn check_shapes(&self, args: &Args<'_>) -> Result<usize> {
        let (x, index) = (args.tensor(0)?, args.tensor(2)?);
        let dim = wrap_dim(args.int(1)?, x.rank())?;
        check_index_shape(&index, x.shape(), dim)?;
        if let Source::Tensor(i) = self.source {
            let src = args.tensor(i)?;
            let fits = src.rank().max(1) == index.rank().max(1)
                && index.shape().iter().zip(src.shape().iter()).all(|(i, s)| i <= s);
            if index.numel() > 0 && !fits {
                return Err(Error::kernel("there must be a value for every position")
                    .argument("src")
                    .expected(format!("at least {}", index.shape()))
                    .got(src.shape().to_string()));
            }
        }
        Ok(dim)
    }

    /// Calls `visit` with the positions and where output and source rows lie, for blocks that write disjoint
    /// places or come in the order of the index.
    fn for_each_row(
        &self,
        args: &Args<'_>,
        chunk: usize,
        mut visit: impl FnMut(&[i64], Named, Row) -> Result<()>,
    ) -> Result<()> {
        let index = Reader::<i64>::new(args.tensor(2)?)?;
        let mut buffer = [0; BLOCK];
        let range = part(chunk, self.lines_per_chunk, self.lines.numel());
        let beside = self.lines.inner_strides();
        // Rows run along the lines where those are dense, else from line to line.
        let runs_along = self.strides[1].unsigned_abs() <= beside[1].unsigned_abs() || range.len() == 1;
        // Where an element of a line goes its position says alone.
        let along = [self.strides[0], 0, self.strides[2]];
        self.lines.each_run(range.start, range.len(), |_, base, count| {
            let (rows, n) = if runs_along { (count, self.length) } else { (self.length, count) };
            let (step, next) = if runs_along { (along, beside) } else { (beside, along) };
            for r in 0..rows as isize {
                for i in (0..n).step_by(BLOCK) {
                    let m = (n - i).min(BLOCK);
                    let [at, to, from]: [isize; 3] =
                        std::array::from_fn(|k| base[k] + r * next[k] + i as isize * step[k]);
                    let positions = index.block(at, step[0], m, &mut buffer)?;
                    let row = Row { start: to, step: step[1] };
                    let named = Named { row, stride: self.strides[1], extent: self.extent };
                    visit(positions, named, Row { start: from, step: step[2] }).map_err(names_index)?;
                }
            }
            Ok(())
        })
    }

    fn meet(&self, args: &Args<'_>, chunk: usize, meet: Meet) -> Result<()> {
        match self.source {
            Source::Tensor(i) => {
                let source = args.tensor(i)?;
                let mut scatter = Scatter::new(args.output(self.out)?, meet)?;
                self.for_each_row(args, chunk, |positions, named, row| {
                    scatter.row(&source, row, named, positions)
                })
            }
            Source::Number(i) => self.set(args, chunk, args.scalar(i)?),
        }
    }

    fn set(&self, args: &Args<'_>, chunk: usize, value: Scalar) -> Result<()> {
        let out = args.output(self.out)?;
        with_number(out.dtype(), value, |source| {
            let mut scatter = Scatter::new(out, Meet::Replace)?;
            let row = Row { start: 0, step: 0 };
            self.for_each_row(args, chunk, |positions, named, _| scatter.row(source, row, named, positions))
        })
    }

    /// Counts the positions of every line, then divides each place once.
    fn divide<C: Compute>(
        &self,
        args: &Args<'_>,
        chunk: usize,
        (includes_self, divide): (bool, fn(C, i64) -> C),
        scratch: &mut [u8],
    ) -> Result<()> {
        let counts: &mut [u64] = take_scratch(&mut &mut *scratch, self.extent)?;
        let index = Reader::<i64>::new(args.tensor(2)?)?;
        let mut out = UpdateView::<C>::new(args, self.out)?;
        let range = part(chunk, self.lines_per_chunk, self.lines.numel());
        let beside = self.lines.inner_strides();
        let mut buffer = [0; BLOCK];
        counts.fill(0);
        self.lines.each_run(range.start, range.len(), |_, base, lines| {
            for line in 0..lines as isize {
                let [at, to] = [0, 1].map(|k| base[k] + line * beside[k]);
                for is_counting in [true, false] {
                    for i in (0..self.length).step_by(BLOCK) {
                        let (m, from) = ((self.length - i).min(BLOCK), at + i as isize * self.strides[0]);
                        let positions = index.block(from, self.strides[0], m, &mut buffer)?;
                        check_range(positions, self.extent)?;
                        for p in positions {
                            let count = &mut counts[*p as usize];
                            if is_counting {
                                *count += 1;
                            } else if *count > 0 {
                                let by = std::mem::take(count) as i64 + i64::from(includes_self);
                                out.update((to + *p as isize * self.strides[1]) as usize, |sum| {
                                    divide(sum, by)
                                })?;
                            }
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn bind_lines(&mut self, args: &mut BindArgs<'_>) -> Result<Grid> {
        let view = args.args();
        let dim = self.check_shapes(&view)?;
        let shape = *view.tensor(0)?.shape();
        args.resize(self.out, &shape)?;
        let view = args.args();
        let (x, index, out) = (view.tensor(0)?, view.tensor(2)?, view.output(self.out)?);
        self.copy = RegionCopy::new(
            &shape,
            StridedRegion::of(x.strides()),
            x.numel(),
            StridedRegion::of(out.strides()),
            out.numel(),
        )?;
        let from = match self.source {
            Source::Tensor(i) => *view.tensor(i)?.strides(),
            Source::Number(_) => Dims::EMPTY,
        };
        let mut lines = *index.shape();
        if let Some(extent) = lines.get_mut(dim) {
            *extent = 1;
        }
        let all = [signed(index.strides()), signed(out.strides()), signed(&from)];
        self.strides = all.map(|s| s[dim]);
        self.extent = shape.get(dim).copied().unwrap_or(1);
        self.length = index.shape().get(dim).copied().unwrap_or(1);
        let order = memory_order(lines.len(), &all[1]);
        self.lines = Loops::over(order[..lines.len()].iter().copied(), &lines, [&all[0], &all[1], &all[2]]);
        // Rows from line to line should not be too short.
        self.lines_per_chunk = (CHUNK / self.length.max(1)).max(64);
        let mut chunks = [self.lines.numel().div_ceil(self.lines_per_chunk); Grid::MAX_PHASES];
        chunks[0] = self.copy.numel().div_ceil(CHUNK);
        Ok(Grid::phases(&chunks[..self.count], CHUNK))
    }

    fn run_step(&self, args: &Args<'_>, phase: u32, chunk: usize, scratch: &mut [u8]) -> Result<()> {
        match self.steps.get(phase as usize).copied().unwrap_or(Step::Copy) {
            Step::Copy => {
                let (x, mut out) = (args.tensor(0)?, args.output(self.out)?);
                if x.as_ptr() == out.as_ptr().cast_const() {
                    return Ok(());
                }
                self.copy.run(&x, &mut out, part(chunk, CHUNK, self.copy.numel()))
            }
            Step::Meet(meet) => self.meet(args, chunk, meet),
            Step::Set(value) => self.set(args, chunk, Scalar::Int(value)),
            Step::Divide { includes_self }
                if Class::of(args.output(self.out)?.dtype()) == Some(Class::I64) =>
            {
                // Integers round down; the divisor is positive.
                self.divide::<i64>(args, chunk, (includes_self, i64::div_euclid), scratch)
            }
            Step::Divide { includes_self } => {
                self.divide::<f64>(args, chunk, (includes_self, |sum, count| sum / count as f64), scratch)
            }
        }
    }
}

impl GridKernel for Scattering {
    /// The kernel with the lines of the call.
    type Problem = Scattering;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        self.alias
    }

    fn new_problem(&self) -> Scattering {
        *self
    }

    fn bind(&self, args: &mut BindArgs<'_>, call: &mut Scattering) -> Result<Grid> {
        call.bind_lines(args)
    }

    fn run(&self, call: &Scattering, part: Part<'_>) -> Result<()> {
        call.run_step(part.args, part.phase, part.chunk, part.scratch.worker)
    }
}

fn check_scatter(ctx: &PrepareContext<'_>, has_source: bool, out: usize) -> Result<()> {
    same_dtype(ctx, 0, out)?;
    check_positions(ctx, 2)?;
    if has_source {
        same_dtype(ctx, 3, out)?;
    }
    Ok(())
}

/// Numbers of every kind, and complex ones where they are not compared.
fn check_dtype(ctx: &PrepareContext<'_>, takes_complex: bool) -> Result<()> {
    let dtype = dtype_of(ctx, 0)?;
    if Class::of(dtype).is_some() || (takes_complex && dtype == DType::Complex64) {
        return Ok(());
    }
    Err(unsupported(dtype))
}

fn scatter(ctx: &PrepareContext<'_>, source: Source, meet: Meet) -> Preparation {
    let has_source = matches!(source, Source::Tensor(_));
    check_scatter(ctx, has_source, 4)?;
    check_dtype(ctx, true)?;
    Scattering::prepared(source, 4, &[Step::Meet(meet)], 0, AliasRule::Update)
}

/// Where the output of `scatter_reduce` stands.
const REDUCED: usize = 6;

fn scatter_reduce(ctx: &PrepareContext<'_>) -> Preparation {
    check_scatter(ctx, true, REDUCED)?;
    check_dtype(ctx, false)?;
    let (Some(ArgSpec::String(name)), Some(ArgSpec::Bool(Some(includes_self)))) =
        (ctx.args.get(4), ctx.args.get(5))
    else {
        return Err(Error::kernel("the reduction and include_self must be constants"));
    };
    let (meet, start, is_mean) = match *name {
        "sum" => (Meet::Add, Step::Set(0), false),
        "mean" => (Meet::Add, Step::Set(0), true),
        "prod" => (Meet::Multiply, Step::Set(1), false),
        // Any of the values that compete: meeting it again changes nothing.
        "amax" => (Meet::Maximum, Step::Meet(Meet::Replace), false),
        "amin" => (Meet::Minimum, Step::Meet(Meet::Replace), false),
        other => {
            return Err(Error::kernel("unknown reduction")
                .argument("reduce")
                .expected("sum, prod, mean, amax or amin")
                .got(other.to_string()));
        }
    };
    let divide = Step::Divide { includes_self: *includes_self };
    let steps: &[Step] = match (*includes_self, is_mean) {
        (true, false) => &[Step::Meet(meet)],
        (true, true) => &[Step::Meet(meet), divide],
        (false, false) => &[start, Step::Meet(meet)],
        (false, true) => &[start, Step::Meet(meet), divide],
    };
    let longest = ctx.tensor(0).and_then(|t| t.shape.iter().copied().max()).unwrap_or(1).max(1);
    let scratch = if is_mean { longest.checked_mul(size_of::<u64>()) } else { Some(0) };
    let scratch = scratch.ok_or_else(|| Error::limit("a dimension is too long").got(longest.to_string()))?;
    Scattering::prepared(Source::Tensor(3), REDUCED, steps, scratch, AliasRule::None)
}

/// gather, scatter.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 4)?;
            check_positions(ctx, 2)?;
            check_dtype(ctx, true)?;
            in_ranges(
                0,
                |args, gather: &mut Gather| gather.bind(args),
                |gather, args, range, _| gather.run(args, range),
            )
        },
    ),
    kernel(
        "aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| scatter(ctx, Source::Tensor(3), Meet::Replace),
    ),
    kernel(
        "aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| scatter(ctx, Source::Number(3), Meet::Replace),
    ),
    kernel(
        "aten::scatter_add.out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| scatter(ctx, Source::Tensor(3), Meet::Add),
    ),
    kernel(
        "aten::scatter_reduce.two_out(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True, Tensor(a!) out) -> Tensor(a!)",
        scatter_reduce,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, run_out};
    use proptest::prelude::*;
    use pteron_core::DType;

    fn table() -> Tensor {
        Tensor::of(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    #[test]
    fn gather_and_scatter() {
        let i = Tensor::of(&[1, 2], &[2i64, 0]);
        let args = [table().into(), 0i64.into(), i.clone().into(), false.into()];
        let y = run_out("aten::gather.out", &args, DType::Float32, &[1, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [5.0, 2.0]);
        let args = [table().into(), 0i64.into(), i.clone().into(), Arg::Int(9)];
        let y = run_out("aten::scatter.value_out", &args, DType::Float32, &[3, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 9.0, 3.0, 4.0, 9.0, 6.0]);
        let args = [table().into(), 0i64.into(), i.into(), table().into(), "amax".into(), true.into()];
        let y = run_out("aten::scatter_reduce.two_out", &args, DType::Float32, &[3, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    /// Every place of a scatter by hand, for both ways to walk it and more lines than a chunk has.
    #[test]
    fn sums_and_means_along_either_dimension() {
        let (rows, columns) = (70, 90);
        let x: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32).collect();
        let src: Vec<f32> = (0..rows * columns).map(|i| (i % 7) as f32 - 3.0).collect();
        for (dim, includes_self) in [(0, true), (0, false), (1, true), (1, false)] {
            let extent = if dim == 0 { rows } else { columns };
            let index: Vec<i64> = (0..rows * columns).map(|i| ((i * 31) % extent) as i64 / 3).collect();
            let place = |i: usize| {
                if dim == 0 {
                    index[i] as usize * columns + i % columns
                } else {
                    i / columns * columns + index[i] as usize
                }
            };
            let (mut sums, mut counts) = (x.clone(), vec![0; x.len()]);
            for i in 0..src.len() {
                if counts[place(i)] == 0 && !includes_self {
                    sums[place(i)] = 0.0;
                }
                sums[place(i)] += src[i];
                counts[place(i)] += 1;
            }
            let means: Vec<f32> = sums
                .iter()
                .zip(&counts)
                .map(|(s, n)| if *n == 0 { *s } else { s / (*n as f32 + f32::from(includes_self)) })
                .collect();
            for (name, expected) in [("sum", sums), ("mean", means)] {
                let args = [
                    Tensor::of(&[rows, columns], &x).into(),
                    (dim as i64).into(),
                    Tensor::of(&[rows, columns], &index).into(),
                    Tensor::of(&[rows, columns], &src).into(),
                    name.into(),
                    includes_self.into(),
                ];
                let y =
                    run_out("aten::scatter_reduce.two_out", &args, DType::Float32, &[rows, columns]).unwrap();
                assert_eq!(y.values::<f32>(), expected, "{name} along {dim}, {includes_self}");
            }
        }
    }

    proptest! {
        // Hostile positions are refused or used, never followed outside.
        #[test]
        fn positions_outside_are_refused(i in prop_oneof![any::<i64>(), -4i64..5], j in -4i64..5) {
            let inside = |v: i64| (0..3).contains(&v);
            let index = Tensor::of(&[2, 1], &[i, j]);
            let args = [table().into(), 0i64.into(), index.clone().into(), false.into()];
            let got = run_out("aten::gather.out", &args, DType::Float32, &[2, 1]);
            prop_assert_eq!(got.is_ok(), inside(i) && inside(j));
            let args = [table().into(), 1i64.into(), index.into(), Arg::Int(0)];
            let got = run_out("aten::scatter.value_out", &args, DType::Float32, &[3, 2]);
            prop_assert_eq!(got.is_ok(), (0..2).contains(&i) && (0..2).contains(&j));
            for (operator, reduce) in [("aten::scatter_add.out", None), ("aten::scatter_reduce.two_out", Some("mean"))] {
                let index = Tensor::of(&[2, 1], &[i, j]);
                let mut args = vec![table().into(), 0i64.into(), index.into(), table().into()];
                if let Some(name) = reduce {
                    args.extend([name.into(), false.into()]);
                }
                args.push(Arg::Tensor(Tensor::output(DType::Float32, &[3, 2])));
                prop_assert_eq!(call(operator, &args).is_ok(), inside(i) && inside(j));
            }
        }
    }
}
