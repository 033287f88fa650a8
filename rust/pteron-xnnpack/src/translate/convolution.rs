//! Convolutions. Filters are views of stored weights with the channels in front of rows and columns.

use super::held::Held;
use super::translator::Translator;
use super::windows::{too_large, windows};
use crate::payload::{Convolution, Groups, Window};
use pteron_core::{DType, Error, Result};

/// A node of one of the three kinds.
pub(super) struct ConvolutionNode {
    pub kind: Convolution,
    pub window: Window,
    pub groups: Groups,
    pub input: usize,
    pub filter: usize,
    pub bias: Option<usize>,
    pub output: usize,
}

impl Translator<'_> {
    pub(super) fn convolution(&mut self, node: &ConvolutionNode, limits: (f32, f32)) -> Result<()> {
        let dtype = self.dtype_of(node.output)?;
        let input = self.real(node.input, dtype)?;
        let outputs = node.groups.count.checked_mul(node.groups.outputs).ok_or_else(too_large)?;
        let filter = self.filter(node, dtype)?;
        let bias = match node.bias {
            Some(bias) => self.bias(bias, outputs, dtype)?.tensor,
            None => self.sheet.none(),
        };
        let is_transposed = matches!(node.kind, Convolution::Transposed { .. });
        let extra = match node.kind {
            Convolution::Transposed { extra_height, extra_width } => [extra_height, extra_width],
            _ => [0, 0],
        };
        let window = &node.window;
        let is_even = window.before == window.after;
        if is_transposed && !is_even {
            return Err(Error::missing_operator(
                "a transposed convolution has another padding before than after",
            )
            .expected("equal padding, as ExecuTorch's exporter writes it")
            .got(format!("{:?} and {:?}", window.before, window.after)));
        }
        let (held, [number, channels, height, width]) = if is_even {
            self.image(&input)?
        } else {
            self.padded(&input, window.before, window.after, 0.0)?
        };
        check_channels(channels, &node.groups)?;
        let window = if is_even { *window } else { Window { before: [0, 0], after: [0, 0], ..*window } };
        let [extra_height, extra_width] = extra;
        let (height, width) = if is_transposed {
            (spread(height, &window, 0, extra_height)?, spread(width, &window, 1, extra_width)?)
        } else {
            (windows(height, &window, 0)?, windows(width, &window, 1)?)
        };
        let out = self.image_like(&held, [number, outputs, height, width])?;
        let (stride, padding, dilation) =
            (self.pair(window.stride), self.pair(window.before), self.pair(window.dilation));
        let (transposed, extra) = (self.sheet.bool(is_transposed), self.pair(extra));
        let groups = self.sheet.extent(node.groups.count);
        let args = [held.tensor, filter.tensor, bias, stride, padding, dilation, transposed, extra, groups];
        self.sheet.call("aten::convolution.out", &args, &[out.tensor]);
        self.finish(node.output, out, limits)
    }

    /// The filter as the operator takes it: `[outputs, inputs of a group, height, width]`, of a transposed one `[inputs,
    /// outputs of a group, height, width]`.
    fn filter(&mut self, node: &ConvolutionNode, dtype: DType) -> Result<Held> {
        let extents = self.value(node.filter)?.dims;
        let [height, width] = node.window.kernel;
        let Groups { count, inputs, outputs } = node.groups;
        let all = count.checked_mul(outputs).ok_or_else(too_large)?;
        let expected = match node.kind {
            Convolution::Depthwise => [1, height, width, all],
            Convolution::Plain | Convolution::Transposed { .. } => [all, height, width, inputs],
        };
        if *extents != expected {
            return Err(Error::program("the filter has other extents than the node says")
                .expected(format!("{expected:?}"))
                .got(extents.to_string()));
        }
        match node.kind {
            Convolution::Plain => self.weight(node.filter, dtype, &[0, 3, 1, 2]),
            Convolution::Depthwise if inputs == 1 => self.weight(node.filter, dtype, &[3, 0, 1, 2]),
            Convolution::Depthwise => {
                Err(Error::program("a depthwise convolution has one input channel in a group")
                    .got(format!("{inputs} channels")))
            }
            Convolution::Transposed { .. } if count == 1 => self.weight(node.filter, dtype, &[3, 0, 1, 2]),
            Convolution::Transposed { .. } => {
                let filter = self.real(node.filter, dtype)?;
                let filter = self.in_rows(&filter)?;
                // Inputs of all groups in front: no strides say that of [groups * outputs, ...].
                let split = self.view(&filter, &[count, outputs, height, width, inputs].map(Some))?;
                let turned = self.permuted(&split, &[0, 4, 1, 2, 3])?;
                let all = count.checked_mul(inputs).ok_or_else(too_large)?;
                self.view(&turned, &[all, outputs, height, width].map(Some))
            }
        }
    }
}

fn check_channels(channels: usize, groups: &Groups) -> Result<()> {
    let expected = groups.count.checked_mul(groups.inputs).ok_or_else(too_large)?;
    if channels == expected {
        return Ok(());
    }
    Err(Error::program("the input has other channels than the node says")
        .expected(expected.to_string())
        .got(channels.to_string()))
}

/// Extent of a transposed convolution's result.
fn spread(extent: usize, window: &Window, axis: usize, extra: usize) -> Result<usize> {
    let pick = |pair: [usize; 2]| pair.get(axis).copied().unwrap_or_default();
    let (kernel, stride, dilation) = (pick(window.kernel), pick(window.stride), pick(window.dilation));
    let padding = pick(window.before).checked_add(pick(window.after)).ok_or_else(too_large)?;
    let steps = extent.checked_sub(1).and_then(|n| n.checked_mul(stride));
    let span = kernel.checked_sub(1).and_then(|k| k.checked_mul(dilation));
    let whole = steps
        .zip(span)
        .and_then(|(a, b)| a.checked_add(b))
        .and_then(|n| n.checked_add(extra))
        .and_then(|n| n.checked_add(1));
    whole.and_then(|n| n.checked_sub(padding)).ok_or_else(|| {
        Error::program("the padding of a transposed convolution is larger than its result")
            .got(format!("{padding} for {extent} elements"))
    })
}
