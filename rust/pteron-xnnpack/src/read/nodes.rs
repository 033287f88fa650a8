//! The nodes of a graph as operations on values.

use super::fields::{INVALID, counted, index, numbers, required};
use super::values::Ids;
use crate::generated::wire::{self, NodeUnion as Kind};
use crate::node_place::of_kind;
use crate::payload::{Binary, Convolution, Groups, Node, Operation, Unary, Window};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, MAX_RANK, Result};

/// Flags of nodes that have a translation.
const TRANSPOSED_FILTER: u32 = 0x1;
const ALIGN_CORNERS: u32 = 0x8;
const KEEP_DIMS: u32 = 0x40;

/// Reads all nodes of `graph`, whose values are known by `ids`.
pub(super) fn read(graph: &wire::Graph<'_>, ids: &Ids) -> Result<Vec<Node>> {
    let table = graph.nodes().unwrap_or_default();
    let mut nodes = try_with_capacity(table.len())?;
    for (number, node) in table.iter().enumerate() {
        let (tag, debug_handle) = (node.node_type().0, node.debug_handle());
        let read = || {
            let operation = Reader { ids }.operation(&node)?;
            Ok(Node { tag, debug_handle, limits: limits(&node)?, operation })
        };
        nodes.push(read().map_err(|e| of_kind(e, number, tag, debug_handle))?);
    }
    Ok(nodes)
}

fn limits(node: &wire::Node<'_>) -> Result<(f32, f32)> {
    let Some(bounds) = node.output_min_max() else { return Ok((f32::NEG_INFINITY, f32::INFINITY)) };
    let (low, high) = (bounds.output_min(), bounds.output_max());
    if low <= high {
        return Ok((low, high));
    }
    Err(Error::program("the bounds of the result are no interval")
        .expected("output_min at most output_max")
        .got(format!("{low} and {high}")))
}

/// What the flags may be.
fn flags(found: u32, known: u32) -> Result<u32> {
    if found & !known == 0 {
        return Ok(found);
    }
    Err(Error::missing_operator("the node has a flag without translation")
        .expected(if known == 0 { "no flags".to_owned() } else { format!("no flags but {known:#x}") })
        .got(format!("{found:#x}"))
        .hint("ExecuTorch's exporter does not write it: the file comes from a newer one, or was damaged"))
}

/// A member of the union that its tag promises.
fn member<T>(table: Option<T>) -> Result<T> {
    required(table, "node")
}

struct Reader<'a> {
    ids: &'a Ids,
}

impl Reader<'_> {
    fn value(&self, id: u32, what: &str) -> Result<usize> {
        self.ids.get(&id).copied().ok_or_else(|| {
            Error::program(format!("the node's {what} is a value that the payload does not have"))
                .expected("the id of a value")
                .got(id.to_string())
        })
    }

    fn operation(&self, node: &wire::Node<'_>) -> Result<Operation> {
        match node.node_type() {
            Kind::Add
            | Kind::Div
            | Kind::Maximum
            | Kind::Minimum
            | Kind::Multiply
            | Kind::PReLU
            | Kind::Subtract => self.binary(node),
            Kind::BatchMatrixMultiply => self.batch_matrix_multiply(node),
            Kind::FullyConnected => self.fully_connected(node),
            Kind::Conv2d | Kind::DepthwiseConv2d | Kind::ConvTranspose2d => self.convolution(node),
            Kind::AvgPooling2d | Kind::MaxPooling2d => self.pooling(node),
            Kind::ArgMaxPooling2d => self.arg_max_pooling(node),
            Kind::GlobalAvgPooling2d => self.global_average_pooling(node),
            Kind::StaticTranspose => self.transpose(node),
            Kind::StaticReshape => self.reshape(node),
            Kind::StaticSlice => self.slice(node),
            Kind::StaticConstantPad => self.pad(node),
            Kind::StaticResizeBilinear2D => self.resize(node),
            Kind::Concatenate2 | Kind::Concatenate3 | Kind::Concatenate4 | Kind::Concatenate5 => {
                self.concatenate(node)
            }
            Kind::ELU => {
                let n = member(node.node_as_elu())?;
                self.unary(
                    Unary::Elu { alpha: finite(n.alpha(), "alpha")? },
                    n.input_id(),
                    n.output_id(),
                    n.flags(),
                )
            }
            Kind::LeakyReLU => {
                let n = member(node.node_as_leaky_re_lu())?;
                let slope = finite(n.negative_slope(), "negative_slope")?;
                self.unary(Unary::LeakyRelu { slope }, n.input_id(), n.output_id(), n.flags())
            }
            _ => self.plain_unary(node),
        }
    }

    fn plain_unary(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let (function, table) = match node.node_type() {
            Kind::Abs => (Unary::Abs, node.node_as_abs()),
            Kind::Ceiling => (Unary::Ceiling, node.node_as_ceiling()),
            Kind::Clamp => (Unary::Clamp, node.node_as_clamp()),
            Kind::Convert => (Unary::Convert, node.node_as_convert()),
            Kind::Copy => (Unary::Copy, node.node_as_copy()),
            Kind::Cos => (Unary::Cos, node.node_as_cos()),
            Kind::Exp => (Unary::Exp, node.node_as_exp()),
            Kind::Floor => (Unary::Floor, node.node_as_floor()),
            Kind::Gelu => (Unary::Gelu, node.node_as_gelu()),
            Kind::Hardswish => (Unary::Hardswish, node.node_as_hardswish()),
            Kind::Log => (Unary::Log, node.node_as_log()),
            Kind::Negate => (Unary::Negate, node.node_as_negate()),
            Kind::ReciprocalSquareRoot => {
                (Unary::ReciprocalSquareRoot, node.node_as_reciprocal_square_root())
            }
            Kind::Sigmoid => (Unary::Sigmoid, node.node_as_sigmoid()),
            Kind::Sin => (Unary::Sin, node.node_as_sin()),
            Kind::Softmax => (Unary::Softmax, node.node_as_softmax()),
            Kind::Square => (Unary::Square, node.node_as_square()),
            Kind::SquareRoot => (Unary::SquareRoot, node.node_as_square_root()),
            Kind::Tanh => (Unary::Tanh, node.node_as_tanh()),
            // Among them ScaledDotProductAttention: it is in the schema, and ExecuTorch does not run it either.
            _ => {
                return Err(Error::missing_operator("the node's kind has no translation")
                    .got(format!("tag {}", node.node_type().0))
                    .hint("the file comes from a newer ExecuTorch, or was damaged: export the model with ExecuTorch 1.5"));
            }
        };
        let n = member(table)?;
        self.unary(function, n.input_id(), n.output_id(), n.flags())
    }

    fn unary(&self, function: Unary, input: u32, output: u32, found: u32) -> Result<Operation> {
        flags(found, 0)?;
        Ok(Operation::Unary {
            function,
            input: self.value(input, "input")?,
            output: self.value(output, "output")?,
        })
    }

    fn binary(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let (function, table) = match node.node_type() {
            Kind::Add => (Binary::Add, node.node_as_add()),
            Kind::Div => (Binary::Divide, node.node_as_div()),
            Kind::Maximum => (Binary::Maximum, node.node_as_maximum()),
            Kind::Minimum => (Binary::Minimum, node.node_as_minimum()),
            Kind::Multiply => (Binary::Multiply, node.node_as_multiply()),
            Kind::PReLU => (Binary::Prelu, node.node_as_pre_lu()),
            _ => (Binary::Subtract, node.node_as_subtract()),
        };
        let n = member(table)?;
        flags(n.flags(), 0)?;
        let inputs = [self.value(n.input1_id(), "first input")?, self.value(n.input2_id(), "second input")?];
        Ok(Operation::Binary { function, inputs, output: self.value(n.output_id(), "output")? })
    }

    fn batch_matrix_multiply(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_batch_matrix_multiply())?;
        flags(n.flags(), 0)?;
        let inputs = [self.value(n.input1_id(), "first input")?, self.value(n.input2_id(), "second input")?];
        Ok(Operation::BatchMatrixMultiply { inputs, output: self.value(n.output_id(), "output")? })
    }

    fn fully_connected(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_fully_connected())?;
        Ok(Operation::FullyConnected {
            input: self.value(n.input1_id(), "input")?,
            filter: self.value(n.filter_id(), "filter")?,
            bias: self.bias(n.bias_id())?,
            output: self.value(n.output_id(), "output")?,
            is_inputs_first: flags(n.flags(), TRANSPOSED_FILTER)? != 0,
        })
    }

    fn bias(&self, id: u32) -> Result<Option<usize>> {
        if id == INVALID { Ok(None) } else { self.value(id, "bias").map(Some) }
    }

    fn convolution(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let (kind, table) = match node.node_type() {
            Kind::Conv2d => (Convolution::Plain, node.node_as_conv_2d()),
            Kind::DepthwiseConv2d => (Convolution::Depthwise, node.node_as_depthwise_conv_2d()),
            _ => (
                Convolution::Transposed { extra_height: 0, extra_width: 0 },
                node.node_as_conv_transpose_2d(),
            ),
        };
        let n = member(table)?;
        flags(n.flags(), 0)?;
        let (extra_height, extra_width) = (index(n.adjustment_height()), index(n.adjustment_width()));
        let kind = match kind {
            Convolution::Transposed { .. } => Convolution::Transposed { extra_height, extra_width },
            other => other,
        };
        let window = window(
            [n.kernel_height(), n.kernel_width()],
            [n.subsampling_height(), n.subsampling_width()],
            [n.dilation_height(), n.dilation_width()],
            [n.padding_top(), n.padding_left()],
            [n.padding_bottom(), n.padding_right()],
        )?;
        let groups = Groups {
            count: positive(n.groups(), "groups")?,
            inputs: positive(n.group_input_channels(), "group_input_channels")?,
            outputs: positive(n.group_output_channels(), "group_output_channels")?,
        };
        Ok(Operation::Convolution {
            kind,
            window,
            groups,
            input: self.value(n.input1_id(), "input")?,
            filter: self.value(n.filter_id(), "filter")?,
            bias: self.bias(n.bias_id())?,
            output: self.value(n.output_id(), "output")?,
        })
    }

    fn pooling(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let is_average = node.node_type() == Kind::AvgPooling2d;
        let n =
            member(if is_average { node.node_as_avg_pooling_2d() } else { node.node_as_max_pooling_2d() })?;
        flags(n.flags(), KEEP_DIMS)?;
        // An average has no dilation; exporters write 0.
        let dilation = if is_average { [1, 1] } else { [n.dilation_height(), n.dilation_width()] };
        let window = window(
            [n.pooling_height(), n.pooling_width()],
            [n.stride_height(), n.stride_width()],
            dilation,
            [n.padding_top(), n.padding_left()],
            [n.padding_bottom(), n.padding_right()],
        )?;
        let (input, output) = (self.value(n.input_id(), "input")?, self.value(n.output_id(), "output")?);
        Ok(if is_average {
            Operation::AveragePooling { window, input, output }
        } else {
            Operation::MaxPooling { window, input, output }
        })
    }

    fn arg_max_pooling(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_arg_max_pooling_2d())?;
        flags(n.flags(), KEEP_DIMS)?;
        let kernel = [n.pooling_height(), n.pooling_width()];
        // Windows lie side by side.
        let window = window(
            kernel,
            kernel,
            [1, 1],
            [n.padding_top(), n.padding_left()],
            [n.padding_bottom(), n.padding_right()],
        )?;
        Ok(Operation::ArgMaxPooling {
            window,
            input: self.value(n.input_id(), "input")?,
            values: self.value(n.output_value_id(), "output of values")?,
            indices: self.value(n.output_index_id(), "output of indices")?,
        })
    }

    fn global_average_pooling(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_global_avg_pooling_2d())?;
        Ok(Operation::GlobalAveragePooling {
            input: self.value(n.input_id(), "input")?,
            output: self.value(n.output_id(), "output")?,
            keeps_dims: flags(n.flags(), KEEP_DIMS)? != 0,
        })
    }

    fn transpose(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_static_transpose())?;
        flags(n.flags(), 0)?;
        let order = counted(n.perm(), n.num_dims(), "perm")?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if order.len() > MAX_RANK || !sorted.iter().enumerate().all(|(i, d)| i == *d) {
            return Err(Error::program("the order of dimensions is no permutation").got(format!("{order:?}")));
        }
        let (input, output) = (self.value(n.input_id(), "input")?, self.value(n.output_id(), "output")?);
        Ok(Operation::Transpose { order, input, output })
    }

    fn reshape(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_static_reshape())?;
        flags(n.flags(), 0)?;
        let shape = counted(n.new_shape(), n.num_dims(), "new_shape")?;
        let open = shape.iter().filter(|extent| **extent == 0).count();
        if open > 1 || shape.len() > MAX_RANK {
            return Err(Error::program(
                "a new shape has more than one extent that is what is left, or too many",
            )
            .expected(format!("at most {MAX_RANK} extents and one 0"))
            .got(format!("{shape:?}")));
        }
        let shape = shape.into_iter().map(|extent| Some(extent).filter(|e| *e != 0)).collect();
        let (input, output) = (self.value(n.input_id(), "input")?, self.value(n.output_id(), "output")?);
        Ok(Operation::Reshape { shape, input, output })
    }

    fn slice(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_static_slice())?;
        flags(n.flags(), 0)?;
        Ok(Operation::Slice {
            offsets: counted(n.offsets(), n.num_dims(), "offsets")?,
            sizes: counted(n.sizes(), n.num_dims(), "sizes")?,
            input: self.value(n.input_id(), "input")?,
            output: self.value(n.output_id(), "output")?,
        })
    }

    fn pad(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_static_constant_pad())?;
        flags(n.flags(), 0)?;
        Ok(Operation::Pad {
            before: numbers(n.pre_paddings())?,
            after: numbers(n.post_paddings())?,
            value: n.padding_value(),
            input: self.value(n.input_id(), "input")?,
            output: self.value(n.output_id(), "output")?,
        })
    }

    fn resize(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let n = member(node.node_as_static_resize_bilinear_2_d())?;
        Ok(Operation::ResizeBilinear {
            height: positive(n.new_height(), "new_height")?,
            width: positive(n.new_width(), "new_width")?,
            aligns_corners: flags(n.flags(), ALIGN_CORNERS)? != 0,
            input: self.value(n.input_id(), "input")?,
            output: self.value(n.output_id(), "output")?,
        })
    }

    fn concatenate(&self, node: &wire::Node<'_>) -> Result<Operation> {
        let (count, table) = match node.node_type() {
            Kind::Concatenate2 => (2, node.node_as_concatenate_2()),
            Kind::Concatenate3 => (3, node.node_as_concatenate_3()),
            Kind::Concatenate4 => (4, node.node_as_concatenate_4()),
            _ => (5, node.node_as_concatenate_5()),
        };
        let n = member(table)?;
        flags(n.flags(), 0)?;
        let all = [n.input1_id(), n.input2_id(), n.input3_id(), n.input4_id(), n.input5_id()];
        let inputs = all.into_iter().take(count).map(|id| self.value(id, "input")).collect::<Result<_>>()?;
        Ok(Operation::Concatenate {
            axis: index(n.axis()),
            inputs,
            output: self.value(n.output_id(), "output")?,
        })
    }
}

fn window(
    kernel: [u32; 2],
    stride: [u32; 2],
    dilation: [u32; 2],
    before: [u32; 2],
    after: [u32; 2],
) -> Result<Window> {
    let all_positive = |pair: [u32; 2], what: &str| {
        let [height, width] = pair;
        Ok::<_, Error>([positive(height, what)?, positive(width, what)?])
    };
    Ok(Window {
        kernel: all_positive(kernel, "an extent of the window")?,
        stride: all_positive(stride, "a step of the window")?,
        dilation: all_positive(dilation, "the dilation")?,
        before: before.map(index),
        after: after.map(index),
    })
}

fn positive(number: u32, what: &str) -> Result<usize> {
    if number == 0 {
        return Err(Error::program(format!("{what} is zero")).expected("at least 1"));
    }
    Ok(index(number))
}

fn finite(number: f32, what: &str) -> Result<f32> {
    if number.is_finite() {
        return Ok(number);
    }
    Err(Error::program(format!("{what} is not a finite number")).got(number.to_string()))
}
