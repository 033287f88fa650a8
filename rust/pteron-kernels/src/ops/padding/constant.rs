//! constant_pad_nd of f32: zeros or another number around a tensor; negative paddings cut.
//!
//! Input and output lie in one memory order. What lies inside the innermost padded dimension is copied in one piece.

use super::paddings;
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use pteron_core::{ArgSpec, BindArgs, DType, Dims, MAX_RANK, PrepareContext, Result};

const OUT: usize = 3;

struct Pad;

/// A loop around the rows, outermost first.
#[derive(Debug, Clone, Copy, Default)]
struct Loop {
    /// Extent of the output.
    n: usize,
    /// Output indices that show the input: the first, and the one behind the last.
    shown: [usize; 2],
    /// Input index at the first of them.
    first: usize,
    /// Input elements from one index to the next.
    stride: usize,
}

/// A bound call: rows of elements, each filled, copied and filled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PaddedRows {
    rank: usize,
    loops: [Loop; MAX_RANK],
    /// Elements before the copied ones, copied, behind.
    parts: [usize; 3],
    /// First copied element of an input row.
    skipped: usize,
    count: usize,
}

pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_f32 = [input, out].iter().all(|t| t.dtype == DType::Float32);
    let is_alike = input.dim_order == out.dim_order && !input.shape.is_empty();
    let is_number = matches!(ctx.args.get(2), Some(ArgSpec::Int(_) | ArgSpec::Double(_)));
    if is_f32 && is_alike && is_number {
        framed("constant_pad_nd.rows", Pad)
    } else {
        ctx.decline("takes float32 in one memory order and a fill value")
    }
}

impl PaddedRows {
    fn new(order: &[u8], from: &Dims, to: &Dims, pads: &[[i64; 2]; MAX_RANK]) -> PaddedRows {
        let strides = pteron_core::DimOrder::new(order).map(|o| o.strides(from)).unwrap_or(*from);
        let loop_of = |d: usize| {
            let [before, after] = pads[d];
            let first = before.min(0).unsigned_abs() as usize;
            let last = from[d].saturating_sub(after.min(0).unsigned_abs() as usize);
            let shown = before.max(0) as usize;
            let count = last.saturating_sub(first);
            Loop { n: to[d], shown: [shown, shown + count], first, stride: strides[d] }
        };
        // The innermost padded dimension, and what lies inside it, make a row.
        let split = order.iter().rposition(|d| pads[*d as usize] != [0; 2]).unwrap_or(0);
        let row = loop_of(order[split] as usize);
        let inner: usize = order[split + 1..].iter().map(|d| to[*d as usize]).product();
        let mut rows = PaddedRows {
            rank: split,
            parts: [row.shown[0], row.shown[1] - row.shown[0], row.n - row.shown[1]].map(|n| n * inner),
            skipped: row.first * inner,
            count: 1,
            ..PaddedRows::default()
        };
        for (slot, d) in rows.loops.iter_mut().zip(&order[..split]) {
            *slot = loop_of(*d as usize);
            rows.count *= slot.n;
        }
        rows
    }

    fn length(&self) -> usize {
        self.parts.iter().sum()
    }

    /// Input element of the first copied one of row `row`; `None` for a row of fill alone.
    fn source(&self, row: usize) -> Option<usize> {
        let (mut rest, mut at) = (row, self.skipped);
        for l in self.loops[..self.rank].iter().rev() {
            let index = rest % l.n;
            rest /= l.n;
            if index < l.shown[0] || index >= l.shown[1] {
                return None;
            }
            at += (index - l.shown[0] + l.first) * l.stride;
        }
        (self.parts[1] > 0).then_some(at)
    }
}

impl UnitKernel for Pad {
    type Problem = PaddedRows;

    fn bind(&self, args: &mut BindArgs<'_>, rows: &mut PaddedRows) -> Result<Split> {
        let (pads, shape) = paddings(&args.args(), None)?;
        args.resize(OUT, &shape)?;
        let view = args.args();
        let out = view.output(OUT)?;
        if out.numel() == 0 {
            return Ok(Split::NONE);
        }
        *rows = PaddedRows::new(out.meta().dim_order().as_slice(), view.tensor(0)?.shape(), &shape, &pads);
        Ok(Split::sized(rows.count, rows.length(), CHUNK, 0.25))
    }

    fn run(&self, rows: &PaddedRows, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let fill = chunk.args().scalar(2)?.to_f64() as f32;
        let units = chunk.units.clone();
        let input = chunk.input::<f32>(0)?.as_slice()?;
        let out = chunk.output_units::<f32>(OUT, rows.length())?.into_slice()?;
        let [before, copied, _] = rows.parts;
        for (row, to) in units.zip(out.chunks_exact_mut(rows.length())) {
            let Some(from) = rows.source(row) else {
                to.fill(fill);
                continue;
            };
            to[..before].fill(fill);
            to[before..before + copied].copy_from_slice(&input[from..from + copied]);
            to[before + copied..].fill(fill);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::{DimOrder, Isa};

    /// The padded tensor, element by element, and the kernel's.
    fn check(shape: &[usize], order: &[u8], pads: &[i64]) {
        let (rank, order) = (shape.len(), DimOrder::new(order).unwrap());
        let mut padded = shape.to_vec();
        for (i, pair) in pads.chunks(2).enumerate() {
            padded[rank - 1 - i] = (shape[rank - 1 - i] as i64 + pair[0] + pair[1]) as usize;
        }
        let values: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32).collect();
        let args = vec![
            CallArg::Tensor(HostTensor::in_order(shape, order, &values).unwrap()),
            CallArg::Ints(pads.to_vec()),
            CallArg::double(-7.0),
            CallArg::Tensor(HostTensor::zeros_in_order(DType::Float32, &padded, order).unwrap()),
        ];
        let mut call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        let got = call.output::<f32>(OUT).unwrap();
        let (from, to) = (Dims::new(shape).unwrap(), Dims::new(&padded).unwrap());
        let (strides, out_strides) = (order.strides(&from), order.strides(&to));
        for flat in 0..got.len() {
            let (mut position, mut source) = (0, Some(0));
            let mut rest = flat;
            for d in (0..rank).rev() {
                let index = rest % padded[d];
                rest /= padded[d];
                position += index * out_strides[d];
                let before = pads.get(2 * (rank - 1 - d)).copied().unwrap_or(0);
                let at = usize::try_from(index as i64 - before).ok().filter(|i| *i < shape[d]);
                source = source.zip(at).map(|(s, i)| s + i * strides[d]);
            }
            let expected = source.map_or(-7.0, |s| values[s]);
            assert_eq!(got[position], expected, "{shape:?} {order:?} {pads:?} at {flat}");
        }
    }

    #[test]
    fn rows_are_filled_and_copied() {
        for order in [[0u8, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2]] {
            for pads in [
                &[][..],
                &[1, 2],
                &[0, 1, 0, 1],
                &[-1, 2, 3, -2],
                &[0, 0, 0, 0, 2, 1],
                &[1, 1, 0, 0, 1, 0, 2, 2],
                &[-1, -1, -1, -2],
            ] {
                check(&[2, 3, 5, 4], &order, pads);
            }
        }
        check(&[3], &[0], &[-3, 5]);
        check(&[300, 200], &[0, 1], &[1, 1]);
        check(&[0, 2], &[0, 1], &[1, 0, 2, 0]);
    }

    #[test]
    fn paddings_that_leave_nothing_valid_are_refused() {
        for pads in [vec![-9, 0], vec![1], vec![0; 6], vec![i64::MAX, i64::MAX]] {
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[2, 3], &[0f32; 6]).unwrap()),
                CallArg::Ints(pads),
                CallArg::double(0.0),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[2, 3]).unwrap()),
            ];
            let mut call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().unwrap();
            assert!(call.bind().is_err());
        }
    }
}
