//! index_reduce of row-major floats along an outer dimension: a row of the output, the elements of a slice that lie side by
//! side, meets whole rows of the source. Every row is a unit of its own; numbers are those of the plain kernel, which
//! computes in float64 and rounds to the dtype after every meeting.

use super::joins::{Join, Largest, Mean, Product, Smallest, Wide};
use super::{Meet, Meeting, REDUCED, bind_index_reduce};
use crate::chunk::CHUNK;
use crate::elements::Reader;
use crate::elementwise::operand::{Convert, Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::shape::{check_index, wrap_dim};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{
    ArgSpec, BindArgs, DType, Dims, Element, Error, Isa, PrepareContext, Result, Scratch, sizes,
};
use std::marker::PhantomData;

/// Fewest elements that a row must be able to have; shorter ones gain nothing.
const SHORTEST: usize = 8;

/// Elements of a row that meet a term before the next one comes.
const BLOCK: usize = 256;

/// Elements that are computed at once: some vectors.
const GROUP: usize = 16;

/// Most chunks of a call: each looks through all positions.
pub(super) const MOST_CHUNKS: usize = 16;

struct Rows<T> {
    level: SimdLevel,
    /// Positions at most.
    most: usize,
    /// Bytes for a meeting of each.
    scratch: usize,
    element: PhantomData<T>,
}

/// Extents of a call.
#[derive(Clone, Copy, Default)]
struct Extents {
    /// Slices of the output.
    slices: usize,
    /// Positions, which are slices of the source.
    positions: usize,
    /// Elements of a row.
    length: usize,
    is_empty: bool,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(x), Some(index), Some(source), Some(out)) =
        (ctx.tensor(0), ctx.tensor(2), ctx.tensor(3), ctx.tensor(REDUCED))
    else {
        return ctx.decline("an argument is no tensor");
    };
    let is_alike = [x, source, out].iter().all(|t| t.dtype == x.dtype && t.dim_order.is_contiguous());
    if !is_alike || !matches!(index.dtype, DType::Int64 | DType::Int32) {
        return ctx.decline("takes row-major tensors of one dtype, positions of int32 or int64");
    }
    let Some(ArgSpec::Int(Some(dim))) = ctx.args.get(1) else {
        return ctx.decline("the dimension is not known at load");
    };
    let behind = wrap_dim(*dim, x.shape.len()).ok().and_then(|dim| x.shape.get(dim + 1..));
    if behind.is_none_or(|behind| behind.iter().fold(1, |n: usize, e| n.saturating_mul(*e)) < SHORTEST) {
        return ctx.decline("takes a dimension with at least 8 elements behind it");
    }
    let most = index.shape.numel()?;
    match x.dtype {
        DType::Float16 => rows::<f16>(ctx, most),
        DType::BFloat16 => rows::<bf16>(ctx, most),
        DType::Float32 => rows::<f32>(ctx, most),
        DType::Float64 => rows::<f64>(ctx, most),
        _ => ctx.decline("takes floats"),
    }
}

fn rows<T: Term>(ctx: &PrepareContext<'_>, most: usize) -> Preparation {
    let scratch = sizes::checked_nbytes(&Dims::new(&[most, 2])?, DType::Int64)?;
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let name = format!("index_reduce.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Rows::<T> { level, most, scratch, element: PhantomData })
}

impl<T: Term> UnitKernel for Rows<T> {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        bind_index_reduce(args)?;
        let view = args.args();
        let (out, positions) = (view.output(REDUCED)?, view.tensor(2)?.numel());
        let dim = wrap_dim(view.int(1)?, out.rank())?;
        let slices = out.shape().get(dim).copied().unwrap_or(1);
        let length = out.shape().iter().skip(dim + 1).product();
        if positions > self.most {
            return Err(Error::internal("there are more positions than the upper bound of their number"));
        }
        let is_empty = out.numel() == 0;
        *extents = Extents { slices, positions, length, is_empty };
        if is_empty {
            // Positions are checked all the same.
            return Ok(Split::new(1, 1, positions));
        }
        let rows = out.numel() / length;
        let size = length.saturating_mul(1 + positions.div_ceil(slices));
        let per_chunk = CHUNK.div_ceil(size).max(rows.div_ceil(MOST_CHUNKS));
        Ok(Split::new(rows, per_chunk, per_chunk.min(rows).saturating_mul(size) / 2))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (meet, includes_self) = (Meet::of(chunk.args())?, chunk.args().bool(5)?);
        let index = Reader::<i64>::new(chunk.args().tensor(2)?)?;
        let meetings = chunk.take_scratch(extents.positions)?;
        let (first, rows) = (chunk.units.start, chunk.units.len());
        let meetings = meetings_of(&index, extents.slices, first, rows, meetings)?;
        if extents.is_empty {
            return Ok(());
        }
        let task = RowsTask::<T> {
            meet,
            includes_self,
            extents: *extents,
            first,
            meetings,
            source: chunk.input(3)?.as_slice()?,
            x: chunk.input_units(0, extents.length)?.as_slice()?,
            out: chunk.output_units(REDUCED, extents.length)?.into_slice()?,
        };
        self.level.dispatch_narrow(task)
    }
}

/// The positions that name slices of the rows `first..first + rows`, by these and then in their own order; all positions
/// are checked.
fn meetings_of<'a>(
    index: &Reader<'_, i64>,
    slices: usize,
    first: usize,
    rows: usize,
    meetings: &'a mut [Meeting],
) -> Result<&'a [Meeting]> {
    let start = first.checked_rem(slices).unwrap_or(0);
    let (mut block, mut n) = ([0; BLOCK], 0);
    for from in (0..meetings.len()).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(meetings.len() - from)];
        index.read(from as isize, 1, block)?;
        for (i, slice) in block.iter().enumerate() {
            let slice = check_index(*slice, slices).map_err(|e| e.argument("index"))?;
            // Rows of all slices follow each other, so that those of the chunk may begin anew.
            let distance = if slice >= start { slice - start } else { slice + slices - start };
            if distance < rows {
                meetings[n] = Meeting { slice: slice as u64, position: (from + i) as u64 };
                n += 1;
            }
        }
    }
    let meetings = &mut meetings[..n];
    meetings.sort_unstable();
    Ok(meetings)
}

/// A number that meets others.
trait Term: Element {
    /// What is computed in: sums and products are those of float64 once they are rounded to the element.
    type Wide: Wide;
    /// Are sums and products rounded to something shorter?
    const IS_HALF: bool = false;
    /// The numbers of elements.
    fn widened<S: Simd>(s: S, from: &[Self; GROUP]) -> [Self::Wide; GROUP];
    /// Rounded to elements.
    fn rounded<S: Simd>(s: S, from: &[Self::Wide; GROUP]) -> [Self; GROUP];
    /// Numbers of float64, rounded the way the plain kernel does it.
    fn of_doubles<S: Simd>(s: S, from: [f64; GROUP]) -> [Self; GROUP];
}

macro_rules! whole {
    ($t:ty) => {
        impl Term for $t {
            type Wide = $t;
            #[inline(always)]
            fn widened<S: Simd>(_: S, from: &[$t; GROUP]) -> [$t; GROUP] {
                *from
            }
            #[inline(always)]
            fn rounded<S: Simd>(_: S, from: &[$t; GROUP]) -> [$t; GROUP] {
                *from
            }
            #[inline(always)]
            fn of_doubles<S: Simd>(_: S, from: [f64; GROUP]) -> [$t; GROUP] {
                let mut to = [0.0; GROUP];
                to.iter_mut().zip(from).for_each(|(to, v)| *to = v as $t);
                to
            }
        }
    };
}
whole!(f32);
whole!(f64);

/// Converts a group.
#[inline(always)]
fn converted<S: Simd, A: Source, B: Sink>(s: S, from: &[A; GROUP], zero: B) -> [B; GROUP] {
    let mut to = [zero; GROUP];
    Convert { from: from.as_ptr(), to: to.as_mut_ptr(), n: GROUP }.run(s);
    to
}

macro_rules! halves {
    ($t:ty) => {
        impl Term for $t {
            type Wide = f32;
            const IS_HALF: bool = true;
            #[inline(always)]
            fn widened<S: Simd>(s: S, from: &[$t; GROUP]) -> [f32; GROUP] {
                converted(s, from, 0.0)
            }
            #[inline(always)]
            fn rounded<S: Simd>(s: S, from: &[f32; GROUP]) -> [$t; GROUP] {
                converted(s, from, <$t>::ZERO)
            }
            #[inline(always)]
            fn of_doubles<S: Simd>(s: S, from: [f64; GROUP]) -> [$t; GROUP] {
                converted(s, &<f32 as Term>::of_doubles(s, from), <$t>::ZERO)
            }
        }
    };
}
halves!(f16);
halves!(bf16);

/// The rows of a chunk.
struct RowsTask<'a, T> {
    meet: Meet,
    includes_self: bool,
    extents: Extents,
    /// The first row.
    first: usize,
    /// By slices.
    meetings: &'a [Meeting],
    /// Of all rows.
    source: &'a [T],
    x: &'a [T],
    out: &'a mut [T],
}

impl<T: Term> SimdTask for RowsTask<'_, T> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Extents { slices, positions, length, .. } = self.extents;
        let rows = self.x.chunks_exact(length).zip(self.out.chunks_exact_mut(length));
        for (row, (x, out)) in (self.first..).zip(rows) {
            let (outer, slice) = (row / slices, (row % slices) as u64);
            let start = self.meetings.partition_point(|m| m.slice < slice);
            let behind = self.meetings.partition_point(|m| m.slice <= slice);
            let met = self.meetings.get(start..behind).unwrap_or_default();
            if met.is_empty() {
                out.copy_from_slice(x);
                continue;
            }
            let source = self.source.get(outer * positions * length..).unwrap_or_default();
            for (block, (x, out)) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
                let at = |m: &Meeting| m.position as usize * length + block * BLOCK;
                let terms = met.iter().map(|m| source.get(at(m)..at(m) + x.len()).unwrap_or_default());
                if self.includes_self {
                    joined(s, self.meet, std::iter::once(x).chain(terms), out);
                } else {
                    joined(s, self.meet, terms, out);
                }
            }
        }
        Ok(())
    }
}

/// The terms of a block, one after the other.
#[inline(always)]
fn joined<'a, S: Simd, T: Term>(
    s: S,
    meet: Meet,
    terms: impl Iterator<Item = &'a [T]> + Clone,
    out: &mut [T],
) {
    match meet {
        Meet::Multiply => folded::<S, T, Product>(s, terms, out),
        Meet::Mean => folded::<S, T, Mean>(s, terms, out),
        Meet::Maximum => folded::<S, T, Largest>(s, terms, out),
        Meet::Minimum => folded::<S, T, Smallest>(s, terms, out),
    }
}

/// Joins all terms.
#[inline(always)]
fn folded<'a, S: Simd, T: Term, J: Join>(s: S, terms: impl Iterator<Item = &'a [T]> + Clone, out: &mut [T]) {
    let mut sum = [T::Wide::ZERO; BLOCK];
    let count = terms.clone().count();
    for (i, term) in terms.enumerate() {
        let step = Step { is_first: i == 0, is_last: i + 1 == count, count: count as f64 };
        if step.is_first && step.is_last {
            out.copy_from_slice(term);
            continue;
        }
        let ((terms, term), (outs, out)) = (term.as_chunks(), out.as_chunks_mut());
        let mut sums = sum.as_chunks_mut().0.iter_mut();
        for ((term, out), sum) in terms.iter().zip(outs).zip(&mut sums) {
            group::<S, T, J>(s, step, sum, term, out);
        }
        if let (Some(sum), false) = (sums.next(), term.is_empty()) {
            let (mut whole_term, mut whole_out) = ([T::zeroed(); GROUP], [T::zeroed(); GROUP]);
            whole_term.iter_mut().zip(term).for_each(|(to, v)| *to = *v);
            group::<S, T, J>(s, step, sum, &whole_term, &mut whole_out);
            out.iter_mut().zip(whole_out).for_each(|(to, v)| *to = v);
        }
    }
}

/// Which term of several meets those before it.
#[derive(Clone, Copy)]
struct Step {
    is_first: bool,
    is_last: bool,
    /// All terms.
    count: f64,
}

/// A group of a term meets the sums of those before it; the last gives results.
#[inline(always)]
fn group<S: Simd, T: Term, J: Join>(
    s: S,
    step: Step,
    sum: &mut [T::Wide; GROUP],
    term: &[T; GROUP],
    out: &mut [T; GROUP],
) {
    let term = T::widened(s, term);
    if step.is_first {
        *sum = term;
        return;
    }
    if J::DIVIDES && step.is_last {
        let mut means = [0.0; GROUP];
        for i in 0..GROUP {
            let (a, b): (f64, f64) = (sum[i].into(), term[i].into());
            means[i] = (a + b) / step.count;
        }
        *out = T::of_doubles(s, means);
        return;
    }
    let mut result = *sum;
    for i in 0..GROUP {
        result[i] = J::join(result[i], term[i]);
    }
    if step.is_last {
        *out = T::rounded(s, &result);
    } else if T::IS_HALF && J::ROUNDS {
        *sum = T::widened(s, &T::rounded(s, &result));
    } else {
        *sum = result;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};

    const OPERATOR: &str = "aten::index_reduce.out";

    fn call<T: Element>(
        variant: &str,
        isa: Isa,
        (shape, dim): (&[usize], usize),
        x: &[T],
        (index, is_short): (&[i64], bool),
        source: &[T],
        (reduce, includes_self): (&'static str, bool),
    ) -> Option<Result<Vec<T>>> {
        let mut of_source = shape.to_vec();
        of_source[dim] = index.len();
        let index = match is_short {
            true => HostTensor::new(&[index.len()], &index.iter().map(|i| *i as i32).collect::<Vec<_>>()),
            false => HostTensor::new(&[index.len()], index),
        };
        let args = vec![
            CallArg::Tensor(HostTensor::new(shape, x).unwrap()),
            CallArg::int(dim as i64),
            CallArg::Tensor(index.unwrap()),
            CallArg::Tensor(HostTensor::new(&of_source, source).unwrap()),
            CallArg::String(reduce.into()),
            CallArg::bool(includes_self),
            CallArg::Tensor(HostTensor::zeros(T::DTYPE, shape).unwrap()),
        ];
        let mut call = SingleCall::new(prepare_of(OPERATOR, variant), &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        Some(call.run(grid, true).and_then(|()| call.output::<T>(6)))
    }

    fn check<T: Element>(of: impl Fn(f64) -> T, wide: impl Fn(T) -> f64) {
        let edges =
            [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 60000.0, 1e-7, -6e-5, 1e30];
        // Positions for one chunk or for many, all slices or few of them.
        for (shape, dim, count) in [
            (&[5, 37][..], 0, 11),
            (&[3, 4, 300], 1, 9),
            (&[2, 300, 5, 13], 1, 40),
            (&[1, 9], 0, 6),
            (&[7, 8], 0, 0),
        ] {
            let (slices, n) = (shape[dim] as i64, shape.iter().product::<usize>());
            let index: Vec<i64> = (0..count as i64).map(|i| (i * i + 3 * i) % slices).collect();
            let values = |n: usize, seed| -> Vec<T> {
                let edge = |i: usize, v: f32| if i % 7 == 3 { edges[i / 7 % edges.len()] } else { v.into() };
                numbers(n, seed).iter().enumerate().map(|(i, v)| of(edge(i, *v))).collect()
            };
            let (x, source) = (values(n, 3), values(n / shape[dim] * count, 4));
            for (reduce, includes_self) in
                ["prod", "mean", "amax", "amin"].iter().flat_map(|r| [(*r, false), (*r, true)])
            {
                let all = ((shape, dim), (reduce, includes_self));
                let want = call("reference", Isa::Portable, all.0, &x, (&index, false), &source, all.1);
                let want = want.unwrap().unwrap();
                for (isa, is_short) in Isa::ALL.into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
                    let Some(got) = call("rows", isa, all.0, &x, (&index, is_short), &source, all.1) else {
                        continue;
                    };
                    for (i, (got, want)) in got.unwrap().iter().zip(&want).enumerate() {
                        let (got, want) = (wide(*got), wide(*want));
                        assert!(
                            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                            "{:?} {isa:?} {all:?} {i}: {got} instead of {want}",
                            T::DTYPE
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_every_float_as_the_plain_kernel_has_them() {
        check(|v| v, |v| v);
        check(|v| v as f32, f64::from);
        check(|v| f16::of_number(v as f32), |v| v.number().into());
        check(|v| bf16::of_number(v as f32), |v| v.number().into());
    }

    #[test]
    fn positions_outside_are_refused_even_where_nothing_is_computed() {
        for shape in [[3, 8], [0, 8], [3, 0]] {
            for position in [3, -1] {
                let x = vec![1f32; shape[0] * shape[1]];
                let source = vec![1f32; shape[1]];
                let args = ((&shape[..], 0), ("prod", true));
                let args = vec![
                    CallArg::Tensor(HostTensor::new(args.0.0, &x).unwrap()),
                    CallArg::int(0),
                    CallArg::Tensor(HostTensor::new(&[1], &[position]).unwrap()),
                    CallArg::Tensor(HostTensor::new(&[1, shape[1]], &source).unwrap()),
                    CallArg::String(args.1.0.into()),
                    CallArg::bool(args.1.1),
                    CallArg::Tensor(HostTensor::zeros(DType::Float32, &shape).unwrap()),
                ];
                let prepare = prepare_of(OPERATOR, "rows");
                let cpu = profile(Isa::Portable).unwrap();
                let Some(mut call) = SingleCall::new(prepare, &cpu, args).unwrap() else {
                    assert_eq!(shape[1], 0);
                    continue;
                };
                assert!(call.call().unwrap_err().to_string().contains("out of range"), "{shape:?}");
            }
        }
    }
}
