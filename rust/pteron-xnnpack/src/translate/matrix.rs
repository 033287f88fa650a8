//! Products of matrices.

use super::held::Held;
use super::translator::Translator;
use pteron_core::{DType, DimOrder, Error, Result};

/// A FullyConnected node.
pub(super) struct FullyConnected {
    pub input: usize,
    pub filter: usize,
    pub bias: Option<usize>,
    pub output: usize,
    /// Is the filter `[inputs, outputs]`?
    pub is_inputs_first: bool,
}

impl Translator<'_> {
    /// `input @ filter.T + bias` over the last dimension.
    pub(super) fn fully_connected(&mut self, node: &FullyConnected, limits: (f32, f32)) -> Result<()> {
        let dtype = self.dtype_of(node.output)?;
        let input = self.real(node.input, dtype)?;
        let input = self.in_rows(&input)?;
        let filter = self.filter_rows(node, dtype)?;
        let &[outputs, inputs] = &*filter.extents else {
            return Err(Error::program("the filter is no matrix").got(format!("extents {}", filter.extents)));
        };
        let mut extents = input.extents;
        match extents.last_mut() {
            Some(last) if *last == inputs || input.is_dynamic => *last = outputs,
            _ => {
                return Err(Error::program("the input does not have as many columns as the filter asks for")
                    .expected(format!("{inputs} columns"))
                    .got(format!("extents {}", input.extents)));
            }
        }
        let bias = match node.bias {
            Some(bias) => self.bias(bias, outputs, dtype)?.tensor,
            None => self.sheet.none(),
        };
        let out = self.sheet.intermediate(dtype, extents, input.order, input.is_dynamic)?;
        self.sheet.call("aten::linear.out", &[input.tensor, filter.tensor, bias], &[out.tensor]);
        self.finish(node.output, out, limits)
    }

    /// The filter as `[outputs, inputs]`: a view of a weight, a copy of what a node computed.
    fn filter_rows(&mut self, node: &FullyConnected, dtype: DType) -> Result<Held> {
        if dtype == DType::Float32
            && !node.is_inputs_first
            && let Some(filter) = self.nibble_filter(node.filter)?
        {
            return Ok(filter);
        }
        self.weight(node.filter, dtype, if node.is_inputs_first { &[1, 0] } else { &[0, 1] })
    }

    /// A bias of `outputs` numbers.
    pub(super) fn bias(&mut self, bias: usize, outputs: usize, dtype: DType) -> Result<Held> {
        let held = self.real(bias, dtype)?;
        if *held.extents != [outputs] {
            return Err(Error::program("the bias does not have one number for each output")
                .expected(format!("extents [{outputs}]"))
                .got(format!("{}", held.extents)));
        }
        Ok(held)
    }

    /// Products of matrices in pairs.
    pub(super) fn batch_matrix_multiply(
        &mut self,
        inputs: [usize; 2],
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let [a, b] = inputs;
        let (a, b) = (self.real(a, dtype)?, self.real(b, dtype)?);
        let (a, b) = (self.in_rows(&a)?, self.in_rows(&b)?);
        let (&[batch, rows, inner], &[other, same, columns]) = (&*a.extents, &*b.extents) else {
            return Err(Error::missing_operator("products of matrices in pairs have three dimensions")
                .expected("two operands of three dimensions, as ExecuTorch's exporter writes them")
                .got(format!("extents {} and {}", a.extents, b.extents)));
        };
        let is_dynamic = a.is_dynamic || b.is_dynamic;
        if (batch, inner) != (other, same) && !is_dynamic {
            return Err(Error::program("the matrices cannot be multiplied")
                .expected("as many matrices, and as many columns of the first as rows of the second")
                .got(format!("extents {} and {}", a.extents, b.extents)));
        }
        let extents = pteron_core::Dims::new(&[batch.max(other), rows, columns])?;
        let out = self.sheet.intermediate(dtype, extents, DimOrder::contiguous(3), is_dynamic)?;
        self.sheet.call("aten::bmm.out", &[a.tensor, b.tensor], &[out.tensor]);
        self.finish(output, out, limits)
    }
}
