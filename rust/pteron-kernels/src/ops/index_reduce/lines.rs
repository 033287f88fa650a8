//! index_reduce of row-major float32 and float64 along the last dimension: the elements of a line of the source meet those
//! of a line of the output, one after the other. Every line is a unit of its own.

use super::joins::{Join, Largest, Mean, Product, Smallest, Wide};
use super::rows::MOST_CHUNKS;
use super::{Meet, REDUCED, bind_index_reduce};
use crate::chunk::CHUNK;
use crate::elements::Reader;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::shape::{check_index, wrap_dim};
use pteron_core::{ArgSpec, BindArgs, DType, Dims, Element, Error, PrepareContext, Result, Scratch, sizes};
use std::marker::PhantomData;

/// Positions that are read at once.
const BLOCK: usize = 256;

struct Lines<T> {
    /// Positions and elements of a line, at most.
    most: [usize; 2],
    /// Bytes for them.
    scratch: usize,
    element: PhantomData<T>,
}

/// Extents of a call.
#[derive(Clone, Copy, Default)]
struct Extents {
    lines: usize,
    /// Elements of a line of the output, and of the source.
    length: usize,
    positions: usize,
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
    let rank = x.shape.len();
    let is_last = matches!(ctx.args.get(1), Some(ArgSpec::Int(Some(dim)))
        if wrap_dim(*dim, rank).is_ok_and(|dim| dim + 1 == rank));
    if !is_last {
        return ctx.decline("takes the last dimension, known at load");
    }
    let most = [index.shape.numel()?, x.shape.last().copied().unwrap_or(1)];
    match x.dtype {
        DType::Float32 => lines::<f32>(most),
        DType::Float64 => lines::<f64>(most),
        _ => ctx.decline("takes float32 and float64"),
    }
}

fn lines<T: Element + Wide>(most: [usize; 2]) -> Preparation {
    // A position and a divisor for each, and a count for each element of a line.
    let positions = sizes::checked_nbytes(&Dims::new(&[most[0], 2])?, DType::Int64)?;
    let counts = sizes::checked_nbytes(&Dims::new(&[most[1]])?, DType::Int64)?;
    let scratch = positions
        .checked_add(counts)
        .ok_or_else(|| Error::kernel("the positions are too many").argument("index"))?;
    framed(
        format!("index_reduce_lines.{}", T::DTYPE.name()),
        Lines::<T> { most, scratch, element: PhantomData },
    )
}

impl<T: Element + Wide> UnitKernel for Lines<T> {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        bind_index_reduce(args)?;
        let view = args.args();
        let (out, positions) = (view.output(REDUCED)?, view.tensor(2)?.numel());
        let length = out.shape().last().copied().unwrap_or(1);
        if positions > self.most[0] || length > self.most[1] {
            return Err(Error::internal("there are more positions than the upper bound of their number"));
        }
        let lines = out.numel().checked_div(length).unwrap_or(0);
        *extents = Extents { lines, length, positions };
        // Without a line, the positions are checked all the same.
        let size = length.saturating_add(positions).max(1);
        let per_chunk = CHUNK.div_ceil(size).max(lines.div_ceil(MOST_CHUNKS));
        Ok(Split::new(lines.max(1), per_chunk, per_chunk.min(lines.max(1)).saturating_mul(size)))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let Extents { lines, length, positions } = *extents;
        let (meet, includes_self) = (Meet::of(chunk.args())?, chunk.args().bool(5)?);
        let index = Reader::<i64>::new(chunk.args().tensor(2)?)?;
        let (places, divisors) = (chunk.take_scratch(positions)?, chunk.take_scratch(positions)?);
        let counts = chunk.take_scratch(length)?;
        read_places(&index, places, length)?;
        if lines == 0 {
            return Ok(());
        }
        if meet == Meet::Mean {
            find_divisors(places, includes_self, counts, divisors);
        }
        let x = chunk.input_units::<T>(0, length)?.as_slice()?;
        let source = chunk.input_units::<T>(3, positions)?.as_slice()?;
        let out = chunk.output_units::<T>(REDUCED, length)?.into_slice()?;
        out.copy_from_slice(x);
        for (i, out) in out.chunks_exact_mut(length).enumerate() {
            let line = Line {
                places,
                includes_self,
                source: source.get(i * positions..(i + 1) * positions).unwrap_or_default(),
                out,
            };
            match meet {
                Meet::Multiply => line.join::<Product>(),
                Meet::Maximum => line.join::<Largest>(),
                Meet::Minimum => line.join::<Smallest>(),
                Meet::Mean => line.average(divisors),
            }
        }
        Ok(())
    }
}

/// All positions, checked.
fn read_places(index: &Reader<'_, i64>, places: &mut [u64], length: usize) -> Result<()> {
    let mut block = [0; BLOCK];
    for (i, places) in places.chunks_mut(BLOCK).enumerate() {
        let block = &mut block[..places.len()];
        index.read((i * BLOCK) as isize, 1, block)?;
        for (place, v) in places.iter_mut().zip(block) {
            *place = check_index(*v, length).map_err(|e| e.argument("index"))? as u64;
        }
    }
    Ok(())
}

/// For every position the number of terms of its element if it is the last of them, otherwise 1.
fn find_divisors(places: &[u64], includes_self: bool, counts: &mut [u64], divisors: &mut [f64]) {
    counts.fill(u64::from(includes_self));
    for place in places {
        counts[*place as usize] += 1;
    }
    for (place, divisor) in places.iter().zip(divisors).rev() {
        *divisor = counts[*place as usize].max(1) as f64;
        counts[*place as usize] = 0;
    }
}

/// The terms of a line and the elements that they meet.
struct Line<'a, T> {
    places: &'a [u64],
    includes_self: bool,
    source: &'a [T],
    out: &'a mut [T],
}

impl<T: Element + Wide> Line<'_, T> {
    #[inline(always)]
    fn begin<J: Join>(&mut self) {
        if !self.includes_self {
            for place in self.places {
                self.out[*place as usize] = J::neutral();
            }
        }
    }

    fn join<J: Join>(mut self) {
        self.begin::<J>();
        for (place, term) in self.places.iter().zip(self.source) {
            let met = &mut self.out[*place as usize];
            *met = J::join(*met, *term);
        }
    }

    /// Sums are rounded after every term but the last, behind which comes the division.
    fn average(mut self, divisors: &[f64]) {
        self.begin::<Mean>();
        for ((place, term), divisor) in self.places.iter().zip(self.source).zip(divisors) {
            let met = &mut self.out[*place as usize];
            let (a, b): (f64, f64) = ((*met).into(), (*term).into());
            *met = T::of_double((a + b) / divisor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::Isa;

    fn call<T: Element>(
        variant: &str,
        shape: &[usize],
        x: &[T],
        index: &[i64],
        source: &[T],
        (reduce, includes_self): (&'static str, bool),
    ) -> Result<Vec<T>> {
        let mut of_source = shape.to_vec();
        of_source[shape.len() - 1] = index.len();
        let args = vec![
            CallArg::Tensor(HostTensor::new(shape, x).unwrap()),
            CallArg::int(-1),
            CallArg::Tensor(HostTensor::new(&[index.len()], index).unwrap()),
            CallArg::Tensor(HostTensor::new(&of_source, source).unwrap()),
            CallArg::String(reduce.into()),
            CallArg::bool(includes_self),
            CallArg::Tensor(HostTensor::zeros(T::DTYPE, shape).unwrap()),
        ];
        let cpu = profile(Isa::Portable).unwrap();
        let mut call = SingleCall::new(prepare_of("aten::index_reduce.out", variant), &cpu, args)
            .unwrap()
            .expect("taken");
        call.call().and_then(|()| call.output::<T>(REDUCED))
    }

    fn check<T: Element + Wide>() {
        let edges = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 60000.0, 1e-30, 1e30];
        let values = |n: usize, seed| -> Vec<T> {
            let edge = |i: usize, v: f32| if i % 5 == 3 { edges[i / 5 % edges.len()] } else { v.into() };
            numbers(n, seed).iter().enumerate().map(|(i, v)| T::of_double(edge(i, *v))).collect()
        };
        for (shape, count) in
            [(&[7][..], 12), (&[40, 9], 30), (&[3, 50, 6], 0), (&[2, 11], 300), (&[0, 4], 3), (&[5, 1], 4)]
        {
            let (length, n) = (shape[shape.len() - 1], shape.iter().product::<usize>());
            let index: Vec<i64> =
                (0..count as i64).map(|i| (i * i + 3 * i) % 5 * 7 % length as i64).collect();
            let (x, source) = (values(n, 3), values(n / length * count, 4));
            for all in ["prod", "mean", "amax", "amin"].iter().flat_map(|r| [(*r, false), (*r, true)]) {
                let want = call("reference", shape, &x, &index, &source, all).unwrap();
                let got = call("lines", shape, &x, &index, &source, all).unwrap();
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let (got, want): (f64, f64) = ((*got).into(), (*want).into());
                    assert!(
                        got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                        "{:?} {shape:?} {all:?} {i}: {got} instead of {want}",
                        T::DTYPE
                    );
                }
            }
        }
    }

    #[test]
    fn lines_are_those_of_the_plain_kernel() {
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn positions_outside_are_refused_even_where_nothing_is_computed() {
        for (shape, position) in [([2, 3], 3), ([2, 3], -1), ([0, 3], 3), ([2, 0], 0)] {
            let (x, source) = (vec![1f32; shape[0] * shape[1]], vec![1f32; shape[0]]);
            let got = call("lines", &shape, &x, &[position], &source, ("prod", true));
            assert!(got.unwrap_err().to_string().contains("out of range"), "{shape:?} {position}");
        }
    }
}
