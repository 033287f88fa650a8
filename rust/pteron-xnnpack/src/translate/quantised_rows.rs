//! Values that are quantised when they run, each row by what it holds.

use super::held::Held;
use super::translator::Translator;
use pteron_core::{DType, DimOrder, Error, Result};

impl Translator<'_> {
    /// Quantises each row of `input` by what it holds; the value is then what its elements mean, in f32.
    ///
    /// Rows are the last `row_dims` dimensions; the parameters are those of `choose_qparams_per_token_asymmetric`.
    pub(super) fn quantise_rows(&mut self, row_dims: usize, input: usize, output: usize) -> Result<()> {
        if let Some(known) = self.rows.get(&(input, row_dims)).copied() {
            self.set_real(output, known);
            return Ok(());
        }
        let x = self.real(input, DType::Float32)?;
        let rank = x.rank();
        let first = rank.checked_sub(row_dims).ok_or_else(|| {
            Error::program("rows that are quantised together have more dimensions than the input")
                .got(format!("extents {}", x.extents))
        })?;
        // What a row holds has no order: where a row is all but the first dimension, the tensor is taken as it lies.
        let is_whole = first == 1 && row_dims > 1 && x.axis(0)? == 0;
        let rows = if is_whole { Held { order: DimOrder::contiguous(rank), ..x } } else { self.in_rows(&x)? };
        let matrix = if row_dims == 1 { rows } else { self.flattened(&rows, first)? };
        let mut extents = matrix.extents;
        if let Some(last) = extents.last_mut() {
            *last = 1;
        }
        let parameter =
            |this: &mut Self, dtype| this.sheet.intermediate(dtype, extents, matrix.order, matrix.is_dynamic);
        let (scale, zero) = (parameter(self, DType::Float64)?, parameter(self, DType::Int64)?);
        let sheet = &mut self.sheet;
        let (int8, float) = (sheet.dtype(DType::Int8), sheet.dtype(DType::Float32));
        let (low, high) = (sheet.int(-128), sheet.int(127));
        let choose = "quantized_decomposed::choose_qparams_per_token_asymmetric.out";
        sheet.call(choose, &[matrix.tensor, int8], &[scale.tensor, zero.tensor]);
        let elements = sheet.intermediate(DType::Int8, matrix.extents, matrix.order, matrix.is_dynamic)?;
        let args = [matrix.tensor, scale.tensor, zero.tensor, low, high, int8];
        sheet.call("quantized_decomposed::quantize_per_token.out", &args, &[elements.tensor]);
        let real = sheet.like(&matrix)?;
        let args = [elements.tensor, scale.tensor, zero.tensor, low, high, int8, float];
        sheet.call("quantized_decomposed::dequantize_per_token.out", &args, &[real.tensor]);
        let real = if row_dims == 1 { real } else { self.unflattened(&real, &rows)? };
        let real = if is_whole { Held { order: x.order, ..real } } else { real };
        self.rows.insert((input, row_dims), real);
        self.set_real(output, real);
        Ok(())
    }

    /// The dimensions from `first` on as one.
    fn flattened(&mut self, x: &Held, first: usize) -> Result<Held> {
        let row: Vec<usize> = x.extents.iter().skip(first).copied().collect();
        let row = pteron_core::sizes::checked_numel(&row)?;
        let mut shape: Vec<Option<usize>> = x.extents.iter().take(first).map(|n| Some(*n)).collect();
        shape.push(Some(row));
        if x.is_dynamic
            && let Some(batch) = shape.first_mut()
        {
            // Batches are what changes where rows are images.
            *batch = None;
        }
        self.view(x, &shape)
    }

    /// The extents of `x` again.
    fn unflattened(&mut self, matrix: &Held, x: &Held) -> Result<Held> {
        let mut shape: Vec<Option<usize>> = x.extents.iter().map(|n| Some(*n)).collect();
        if x.is_dynamic
            && let Some(batch) = shape.first_mut()
        {
            *batch = None;
        }
        self.view(matrix, &shape)
    }
}
