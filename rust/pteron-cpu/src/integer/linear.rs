//! The linear kernel: rows of the input's last dimension times packed weights. Integer rows are brought together by each
//! chunk for itself; rows of floats are quantised in a phase of their own. Unsafe island.
#![allow(unsafe_code, reason = "rows are addressed by stride, and chunks share the result")]

use super::choose_rows::{ChooseRows, FindRange, QuantiseRows, choose_for_all, joined};
use super::columns::Numbers;
use super::gather::{Gather, Source};
use super::kit::Kit;
use super::product::{Group, Product, Rows, Split, Target, row_stride};
use super::spec::{IntegerInput, IntegerSpec, RowScheme};
use super::window::{check_summand, summand_of};
use crate::packed::s8_nr32k4_v1::{FORMAT, Panels};
use pteron_core::{Args, BindArgs, DType, Error, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;

/// Numbers that a chunk of the quantising phase takes, about.
const CHOSEN: usize = 64 << 10;

struct Linear {
    product: Product,
    level: SimdLevel,
    /// Position of the summand, where there is one.
    summand: Option<usize>,
    /// Position of the output.
    out: usize,
    /// Rows at most, where they are quantised at run time.
    most_rows: usize,
    /// How rows that are quantised at run time become integers.
    scheme: Option<RowScheme>,
    /// Where all rows have the scale that their range gives: what it is at least.
    least_scale: Option<f32>,
}

/// Prepares a linear layer; `None` where the kernel does not take the arguments.
pub(super) fn prepare(
    ctx: &PrepareContext<'_>,
    spec: &IntegerSpec,
    is_transposed: bool,
    kit: &'static Kit,
) -> Preparation {
    let (summand, out) = (spec.summand(), spec.out());
    let (Some(input), Some(output)) = (ctx.tensor(0), ctx.tensor(out)) else {
        return Ok(None);
    };
    let Some(weight) = ctx.args.get(1).and_then(|a| a.constant()) else {
        return Ok(None);
    };
    let are_rows = input.dim_order.is_contiguous() && output.dim_order.is_contiguous();
    if weight.dtype != DType::Int8 || weight.shape.len() != 2 || !are_rows {
        return Ok(None);
    }
    let mut view = *weight;
    if !is_transposed {
        view.shape.reverse();
        view.strides.reverse();
    }
    let (k, n) = (view.shape[0], view.shape[1]);
    if input.shape.last() != Some(&k) || output.shape.len() != input.shape.len() {
        return Ok(None);
    }
    let Some(numbers) = Numbers::of(ctx, spec, n, k)? else {
        return Ok(None);
    };
    let panels = Panels::get_or_pack(ctx.packs, ctx.cpu, &view)?;
    let columns = numbers.columns(0..n, kit.shift, |c| panels.sum(c))?;
    let most_rows = match numbers.has_rows {
        true => input.shape[..input.shape.len() - 1].iter().fold(1, |m: usize, d| m.saturating_mul(*d)),
        false => 0,
    };
    let scheme = match spec.input {
        IntegerInput::Rows { scheme } => Some(scheme),
        IntegerInput::PerTensor { .. } => None,
    };
    let least_scale = match scheme {
        Some(RowScheme::PerTensor { least_scale }) => Some(least_scale),
        _ => None,
    };
    let kind = match scheme {
        Some(RowScheme::PerToken) => "rows.",
        Some(RowScheme::PerRow { .. }) => "rounded_rows.",
        Some(RowScheme::Symmetric { .. }) => "symmetric_rows.",
        Some(RowScheme::PerTensor { .. }) => "one_scale.",
        None => "",
    };
    let behind = if summand.is_some() { "+residual" } else { "" };
    let name = format!("integer.linear.{FORMAT}.{kind}{}{behind}", kit.name);
    let product = Product { kit, numbers, groups: vec![Group { panels, columns }], n, k };
    prepared(
        name,
        Linear {
            product,
            level: SimdLevel::at_most(ctx.cpu.isa),
            summand,
            out,
            most_rows,
            scheme,
            least_scale,
        },
    )
}

impl Linear {
    fn stride(&self) -> usize {
        row_stride(self.product.k)
    }

    /// Bytes of a worker's block of rows; none where rows that an earlier phase made are read where they are.
    fn block_bytes(&self) -> usize {
        let is_needed = !self.product.numbers.has_rows || self.product.kit.width > 1;
        if is_needed { self.product.block_bytes() } else { 0 }
    }

    /// Rows of a chunk of the quantising phase.
    fn chosen_rows(&self) -> usize {
        CHOSEN.div_ceil(self.product.k.max(1))
    }

    /// Bytes of quantised rows before their zero points, before their scales, and before the ranges of chunks.
    fn shared_parts(&self) -> [usize; 3] {
        let bytes = self.most_rows.saturating_mul(self.stride());
        let words = self.most_rows.saturating_mul(size_of::<i32>());
        [bytes, bytes.saturating_add(words), bytes.saturating_add(words).saturating_add(words)]
    }

    /// Chunks of a quantising phase.
    fn choosing_chunks(&self, rows: usize) -> usize {
        if self.product.numbers.has_rows { rows.div_ceil(self.chosen_rows()) } else { 0 }
    }

    /// Phases before the product.
    fn phases_before(&self) -> u32 {
        u32::from(self.product.numbers.has_rows) + u32::from(self.least_scale.is_some())
    }

    /// Finds the range of rows `range`, those of chunk `chunk`.
    fn find_range(&self, args: &Args<'_>, range: Range<usize>, chunk: usize, shared: *mut u8) -> Result<()> {
        let k = self.product.k;
        let input = args.tensor(0)?.ptr::<f32>()?;
        let [.., ranges] = self.shared_parts();
        // SAFETY: the rows exist in the input (`bind` counted them).
        let rows = unsafe { std::slice::from_raw_parts(input.add(range.start * k), range.len() * k) };
        let found = self.level.dispatch(FindRange(rows));
        // SAFETY: the shared scratch has a range for each chunk (`scratch`), at a multiple of four; no other chunk writes it.
        unsafe { shared.wrapping_add(ranges).cast::<[f32; 2]>().add(chunk).write(found) };
        Ok(())
    }

    /// Quantises rows `range`, of `total` in all, by the range of all.
    fn quantise(
        &self,
        args: &Args<'_>,
        range: Range<usize>,
        (least_scale, total): (f32, usize),
        shared: *mut u8,
    ) -> Result<()> {
        let (k, stride, n) = (self.product.k, self.stride(), range.len());
        let input = args.tensor(0)?.ptr::<f32>()?;
        let [zeros, scales, ranges] = self.shared_parts().map(|at| shared.wrapping_add(at));
        // SAFETY: the phase before wrote a range for each chunk, and none is written in this one.
        let ranges =
            unsafe { std::slice::from_raw_parts(ranges.cast::<[f32; 2]>(), self.choosing_chunks(total)) };
        let (scale, zero) = choose_for_all(joined(ranges), least_scale);
        // SAFETY: the rows exist in the input (`bind` counted them); the shared scratch has bytes, a zero point and a scale
        // for each row (`scratch`), and no other chunk writes those of these rows.
        let (task, zeros, scales) = unsafe {
            let task = QuantiseRows {
                rows: std::slice::from_raw_parts(input.add(range.start * k), n * k),
                length: k,
                bytes: std::slice::from_raw_parts_mut(shared.add(range.start * stride), n * stride),
                stride,
                scale,
                zero,
            };
            let zeros = std::slice::from_raw_parts_mut(zeros.cast::<i32>().add(range.start), n);
            (task, zeros, std::slice::from_raw_parts_mut(scales.cast::<f32>().add(range.start), n))
        };
        self.level.dispatch(task);
        zeros.fill(zero + 128);
        scales.fill(scale);
        Ok(())
    }

    /// Quantises rows `range` into the shared scratch.
    fn choose(&self, args: &Args<'_>, range: Range<usize>, shared: *mut u8) -> Result<()> {
        let scheme = self.scheme.ok_or_else(|| Error::internal("rows of integers are quantised"))?;
        let (k, stride) = (self.product.k, self.stride());
        let input = args.tensor(0)?.ptr::<f32>()?;
        let [zeros, scales, _] = self.shared_parts().map(|at| shared.wrapping_add(at));
        let n = range.len();
        // SAFETY: the rows exist in the input (`bind` counted them) and in the shared scratch, which has room for
        // `most_rows`; no other chunk has these rows; parts of the scratch begin at multiples of four.
        let task = unsafe {
            ChooseRows {
                rows: std::slice::from_raw_parts(input.add(range.start * k), n * k),
                length: k,
                scheme,
                bytes: std::slice::from_raw_parts_mut(shared.add(range.start * stride), n * stride),
                stride,
                zeros: std::slice::from_raw_parts_mut(zeros.cast::<i32>().add(range.start), n),
                scales: std::slice::from_raw_parts_mut(scales.cast::<f32>().add(range.start), n),
            }
        };
        self.level.dispatch(task);
        Ok(())
    }
}

impl GridKernel for Linear {
    type Problem = Split;

    fn scratch(&self) -> Scratch {
        let product = &self.product;
        if product.numbers.has_rows {
            let [.., ranges] = self.shared_parts();
            let chunks = if self.least_scale.is_some() { self.choosing_chunks(self.most_rows) } else { 0 };
            let shared = ranges.saturating_add(chunks.saturating_mul(size_of::<[f32; 2]>()));
            return Scratch { per_worker: self.block_bytes(), shared };
        }
        Scratch { per_worker: self.block_bytes(), shared: 0 }
    }

    fn needs(&self, index: usize) -> bool {
        index == 0 || index == self.out || Some(index) == self.summand
    }

    fn new_problem(&self) -> Split {
        Split::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, split: &mut Split) -> Result<Grid> {
        let mut shape = *args.args().tensor(0)?.shape();
        let expected = self.product.k;
        let last = shape.last_mut().filter(|last| **last == expected).ok_or_else(|| {
            Error::kernel("the input of a linear layer has another length than its weight")
                .expected(format!("rows of {expected}"))
        })?;
        *last = self.product.n;
        let rows: usize = shape[..shape.len() - 1].iter().product();
        args.resize(self.out, &shape)?;
        check_summand(&args.args(), self.summand, &shape)?;
        if self.product.numbers.has_rows && rows > self.most_rows {
            return Err(Error::kernel("the input of a linear layer is larger than its upper bound")
                .expected(format!("at most {} rows", self.most_rows))
                .got(rows.to_string()));
        }
        if self.least_scale.is_some() && rows * self.product.k == 0 {
            return Err(Error::kernel("a tensor without elements has no range to quantise").argument("input"));
        }
        *split = Split::new(&self.product, rows);
        let before = self.choosing_chunks(rows);
        Ok(if self.least_scale.is_some() { split.grid_behind_two(before) } else { split.grid(before, 0) })
    }

    fn run(&self, split: &Split, mut part: Part<'_>) -> Result<()> {
        let product = &self.product;
        let stride = self.stride();
        if part.phase < self.phases_before() {
            let rows = self.chosen_rows();
            let first = part.chunk * rows;
            let (here, shared) = (first..(first + rows).min(split.rows), part.scratch.shared);
            return match self.least_scale {
                Some(_) if part.phase == 0 => self.find_range(part.args, here, part.chunk, shared),
                Some(least) => self.quantise(part.args, here, (least, split.rows), shared),
                None => self.choose(part.args, here, shared),
            };
        }
        let chunk = split.chunk(part.chunk);
        let out_stride = product.n * product.numbers.out_bytes();
        let out = part.args.output(self.out)?.as_ptr();
        let summand = summand_of(part.args, self.summand)?;
        let input = part.args.tensor(0)?.as_ptr();
        let block = part.take_scratch::<u8>(self.block_bytes())?.as_mut_ptr();
        for rows in split.blocks(&chunk.tiles) {
            let at = rows.start * out_stride;
            let target =
                Target { out: out.wrapping_add(at), stride: out_stride, summand: summand.wrapping_add(at) };
            let (first, parameters) = if product.numbers.has_rows {
                let shared = part.scratch.shared;
                let [zeros, scales, _] = self.shared_parts().map(|at| shared.wrapping_add(at));
                let zeros = zeros.cast::<i32>().wrapping_add(rows.start).cast_const();
                let scales = scales.cast::<f32>().wrapping_add(rows.start).cast_const();
                (shared.wrapping_add(rows.start * stride).cast_const(), Some((zeros, scales)))
            } else {
                let gather = Gather {
                    source: Source::Rows(product.k),
                    input,
                    readable: split.rows * product.k,
                    length: product.k,
                    flip: product.numbers.flip,
                    zero: 0,
                    first: rows.start,
                    count: rows.len(),
                    to: product.bytes_of(block),
                    stride,
                };
                // SAFETY: the input is dense and has these rows of `k` bytes (`bind` counted them); the scratch has room
                // for a block of rows; the kit is one of this processor.
                unsafe { (product.kit.gather)(&gather) };
                (gather.to.cast_const(), None)
            };
            let rows = Rows { first, stride, count: rows.len(), parameters };
            // SAFETY: the rows were just brought together, or quantised in the phase before, whole quads of them since
            // rows are multiples of a cache line apart; the output is dense, has a row for each, and overlaps nothing
            // (alias rule `None`); a summand is dense, too, and has its shape (`bind`).
            unsafe {
                let rows = product.widened(rows, block);
                product.run(chunk.group, rows, chunk.panels.clone(), target);
            }
        }
        Ok(())
    }
}
