//! Nodes that move elements: transposes, reshapes, slices, padding, concatenation.

use super::held::Held;
use super::translator::Translator;
use super::windows::too_large;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{DimOrder, Dims, Error, Result};

/// No bounds.
const UNLIMITED: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

impl Translator<'_> {
    /// Moves elements as they are where input and output mean the same by them, else the numbers that they mean.
    fn moved(
        &mut self,
        inputs: &[usize],
        output: usize,
        limits: (f32, f32),
        work: impl FnOnce(&mut Self, &[Held]) -> Result<Held>,
    ) -> Result<()> {
        let mut is_equal = limits == UNLIMITED;
        for input in inputs {
            is_equal = is_equal && self.have_equal_elements(*input, output)?;
        }
        let dtype = self.dtype_of(output)?;
        let mut operands = try_with_capacity(inputs.len())?;
        for input in inputs {
            operands.push(if is_equal { self.raw(*input)? } else { self.real(*input, dtype)? });
        }
        let result = work(self, &operands)?;
        if is_equal {
            self.finish_raw(output, result);
            return Ok(());
        }
        self.finish(output, result, limits)
    }

    /// No call: only the order changes in which XNNPACK sees the dimensions.
    pub(super) fn transpose(
        &mut self,
        order: &[usize],
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        self.moved(&[input], output, limits, |_, operands| {
            let [x] = operands else { return Err(lost()) };
            x.require_rank(order.len())?;
            let mut axes = Vec::with_capacity(order.len());
            for axis in order {
                // A dimension fits: rank is at most 16.
                axes.push(u8::try_from(x.axis(*axis)?).unwrap_or(u8::MAX));
            }
            Ok(Held { order: DimOrder::new(&axes)?, ..*x })
        })
    }

    pub(super) fn reshape(
        &mut self,
        shape: &[Option<usize>],
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        self.moved(&[input], output, limits, |this, operands| {
            let [x] = operands else { return Err(lost()) };
            this.view(x, shape)
        })
    }

    pub(super) fn slice(
        &mut self,
        (offsets, sizes): (&[usize], &[usize]),
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        self.moved(&[input], output, limits, |this, operands| {
            let [x] = operands else { return Err(lost()) };
            x.require_rank(offsets.len())?;
            x.require_rank(sizes.len())?;
            let mut x = *x;
            for (position, (offset, size)) in offsets.iter().zip(sizes).enumerate() {
                let axis = x.axis(position)?;
                x = this.sliced(&x, axis, *offset, *size)?;
            }
            Ok(x)
        })
    }

    /// `size` elements from `offset` on along a dimension of the tensor; a size of 0: all that are left.
    fn sliced(&mut self, x: &Held, axis: usize, offset: usize, size: usize) -> Result<Held> {
        let extent = x.extents.get(axis).copied().unwrap_or_default();
        let end = if size == 0 { Some(extent) } else { offset.checked_add(size) };
        let range = end.filter(|end| *end <= extent).and_then(|end| Some((end, end.checked_sub(offset)?)));
        let Some((end, length)) = range else {
            return Err(Error::program("a slice lies outside of the input")
                .expected(format!("a range within {extent} elements"))
                .got(format!("offset {offset}, size {size}")));
        };
        if length == extent {
            return Ok(*x);
        }
        let mut extents = x.extents;
        if let Some(slot) = extents.get_mut(axis) {
            *slot = length;
        }
        let out = self.sheet.intermediate(x.dtype, extents, x.order, x.is_dynamic)?;
        let (axis, one) = (self.sheet.extent(axis), self.sheet.int(1));
        let (start, end) = (self.sheet.extent(offset), self.sheet.extent(end));
        self.sheet.call("aten::slice_copy.Tensor_out", &[x.tensor, axis, start, end, one], &[out.tensor]);
        Ok(out)
    }

    pub(super) fn pad(
        &mut self,
        (before, after, value): (&[usize], &[usize], f32),
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let x = self.real(input, dtype)?;
        x.require_rank(before.len())?;
        x.require_rank(after.len())?;
        let mut extents = x.extents;
        // From the last dimension of the tensor outwards.
        let mut amounts = vec![0usize; before.len().saturating_mul(2)];
        for (position, (before, after)) in before.iter().zip(after).enumerate() {
            let axis = x.axis(position)?;
            if let Some(extent) = extents.get_mut(axis) {
                *extent =
                    extent.checked_add(*before).and_then(|n| n.checked_add(*after)).ok_or_else(too_large)?;
            }
            let place =
                x.rank().checked_sub(axis).and_then(|n| n.checked_sub(1)).map(|n| n.saturating_mul(2));
            if let Some([low, high]) = place.and_then(|p| amounts.get_mut(p..p.saturating_add(2))) {
                (*low, *high) = (*before, *after);
            }
        }
        let out = self.sheet.intermediate(dtype, extents, x.order, x.is_dynamic)?;
        let (amounts, value) = (self.sheet.extents(&amounts), self.sheet.double(f64::from(value)));
        self.sheet.call("aten::constant_pad_nd.out", &[x.tensor, amounts, value], &[out.tensor]);
        self.finish(output, out, limits)
    }

    pub(super) fn concatenate(
        &mut self,
        axis: usize,
        inputs: &[usize],
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        self.moved(inputs, output, limits, |this, operands| {
            // The order of the first tensor that is no weight.
            let lead = operands
                .iter()
                .find(|x| this.sheet.as_constant(x).is_none())
                .or(operands.first())
                .ok_or_else(lost)?;
            let (order, axis, dtype) = (lead.order, lead.axis(axis)?, lead.dtype);
            let (mut extents, mut total) = (Dims::EMPTY, 0usize);
            let mut tensors = try_with_capacity(operands.len())?;
            let is_dynamic = operands.iter().any(|x| x.is_dynamic);
            for x in operands {
                x.require_rank(order.rank())?;
                let x = this.ordered(x, order)?;
                total = total
                    .checked_add(x.extents.get(axis).copied().unwrap_or_default())
                    .ok_or_else(too_large)?;
                extents = if tensors.is_empty() {
                    x.extents
                } else {
                    joined(&extents, &x.extents, axis, is_dynamic)?
                };
                tensors.push(x.tensor);
            }
            if let Some(extent) = extents.get_mut(axis) {
                *extent = total;
            }
            let out = this.sheet.intermediate(dtype, extents, order, is_dynamic)?;
            let (tensors, axis) = (this.sheet.tensors(&tensors), this.sheet.extent(axis));
            this.sheet.call("aten::cat.out", &[tensors, axis], &[out.tensor]);
            Ok(out)
        })
    }
}

/// Extents of two operands beside each other.
fn joined(a: &Dims, b: &Dims, axis: usize, is_dynamic: bool) -> Result<Dims> {
    let mut out = *a;
    for (position, (slot, other)) in out.iter_mut().zip(b.iter()).enumerate() {
        if *slot != *other && position != axis && !is_dynamic {
            return Err(Error::program("the operands do not fit beside each other")
                .expected(format!("extents as {a} but for dimension {axis}"))
                .got(b.to_string()));
        }
        *slot = (*slot).max(*other);
    }
    Ok(out)
}

fn lost() -> Error {
    Error::internal("a node of an XNNPACK payload lost an operand")
}
