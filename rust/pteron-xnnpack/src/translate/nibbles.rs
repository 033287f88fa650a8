//! Filters of four bits: they stay two numbers in a byte, with scales, which a rule at load makes a product of integers.

use super::constants;
use super::held::Held;
use super::translator::Translator;
use crate::payload::Source;
use pteron_core::{DType, DimOrder, Dims, Result};

impl Translator<'_> {
    /// The filter `value`, [outputs, inputs], as f32, by a call that dequantises all of it as one row of a table of pairs. `None` for
    /// one that is not of four bits with scales by output or by groups of inputs, and for an odd number of inputs.
    pub(super) fn nibble_filter(&mut self, value: usize) -> Result<Option<Held>> {
        let definition = self.value(value)?;
        let Source::Constant(stored) = &definition.source else { return Ok(None) };
        let Some(group) = constants::group_of_pairs(definition) else { return Ok(None) };
        if let Some(known) = self.nibbles.get(&value) {
            return Ok(Some(*known));
        }
        // What becomes of it where it is dequantised.
        let count = definition.dims.numel()?;
        self.expand(count.saturating_mul(size_of::<f32>()))?;
        let named = |e: pteron_core::Error| e.argument(format!("value {}", definition.id));
        let table = constants::pairs(definition, stored, self.bytes, self.named).map_err(named)?;
        let scales = constants::group_scales(definition, group, self.bytes, self.named).map_err(named)?;
        let table = self.sheet.constant(table).tensor;
        let scales = self.sheet.constant(scales).tensor;
        let first = self.sheet.constant(constants::first_row()?).tensor;
        let row = Dims::new(&[1, count])?;
        let all = self.sheet.intermediate(DType::Float32, row, DimOrder::contiguous(2), false)?;
        let (none, low, high) = (self.sheet.none(), self.sheet.int(-8), self.sheet.int(7));
        let args = [table, scales, none, low, high, first];
        self.sheet.call("quantized_decomposed::embedding_4bit.out", &args, &[all.tensor]);
        let shape: Vec<Option<usize>> = definition.dims.iter().map(|n| Some(*n)).collect();
        let held = self.view(&all, &shape)?;
        self.nibbles.insert(value, held);
        Ok(Some(held))
    }
}
