//! A payload as plain owned data. Once it exists, ids are indices in range, extents multiply without overflow, every value is
//! written before it is read and by one node at most, and parameters are numbers that can be meant. Shapes of operands are
//! checked against each other by the translation.

use crate::datatype::Datatype;
use crate::expansion::ConstantBytes;
use pteron_core::Dims;

/// The graph of a payload.
#[derive(Debug)]
pub(crate) struct Payload {
    /// What nodes read and write.
    pub values: Vec<Value>,
    /// The nodes, in the order in which they run.
    pub nodes: Vec<Node>,
}

/// One value.
#[derive(Debug)]
pub(crate) struct Value {
    /// Number in the payload.
    pub id: u32,
    /// Element type.
    pub datatype: Datatype,
    /// Extents, outermost first in memory; upper bounds of changing ones.
    pub dims: Dims,
    /// How numbers become elements.
    pub quantisation: Quantisation,
    /// Where it comes from.
    pub source: Source,
}

/// Where a value comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The argument of this index of the delegate call.
    Input(usize),
    /// A node of the payload.
    Node,
    /// A node of the payload; it goes to the argument of this index.
    Output(usize),
    /// Stored bytes, of which at least as many as the extents ask for exist.
    Constant(StoredBytes),
}

/// Stored bytes.
#[derive(Debug, Clone)]
pub(crate) struct StoredBytes {
    /// Where they are.
    pub bytes: ConstantBytes,
    /// How many.
    pub len: usize,
}

/// How real numbers become elements: `element = real / scale + zero_point`, rounded.
#[derive(Debug)]
pub(crate) enum Quantisation {
    /// Not at all.
    None,
    /// One scale for all.
    Tensor { scale: f32, zero_point: i32 },
    /// A scale for each index of dimension `axis`.
    Channel { scales: Scales, axis: usize },
    /// A scale for each group of `group_size` neighbours of a row, rows along dimension 0.
    Group { scales: Scales, group_size: usize },
    /// Scale and zero point of what the last `row_dims` dimensions hold, found when it runs.
    Dynamic { row_dims: usize },
}

/// Scales of channels or groups; as many as there are of these.
#[derive(Debug)]
pub(crate) enum Scales {
    /// In the graph itself.
    Listed(Vec<f32>),
    /// f32 numbers.
    Float32(StoredBytes),
    /// bf16 numbers.
    BFloat16(StoredBytes),
}

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    /// Tag of the node's kind in the schema.
    pub tag: u8,
    /// The exporter's number of what it was in the model.
    pub debug_handle: u32,
    /// Bounds to which the result is cut; infinite where there is none.
    pub limits: (f32, f32),
    /// What it does. Numbers are indices of values.
    pub operation: Operation,
}

/// What a node does.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "fields are named after what they are; axes count from the outermost dimension in memory"
)]
pub(crate) enum Operation {
    Unary {
        function: Unary,
        input: usize,
        output: usize,
    },
    Binary {
        function: Binary,
        inputs: [usize; 2],
        output: usize,
    },
    /// The product with a filter of `[outputs, inputs]`, or `[inputs, outputs]`.
    FullyConnected {
        input: usize,
        filter: usize,
        bias: Option<usize>,
        output: usize,
        is_inputs_first: bool,
    },
    BatchMatrixMultiply {
        inputs: [usize; 2],
        output: usize,
    },
    Convolution {
        kind: Convolution,
        window: Window,
        groups: Groups,
        input: usize,
        filter: usize,
        bias: Option<usize>,
        output: usize,
    },
    MaxPooling {
        window: Window,
        input: usize,
        output: usize,
    },
    AveragePooling {
        window: Window,
        input: usize,
        output: usize,
    },
    ArgMaxPooling {
        window: Window,
        input: usize,
        values: usize,
        indices: usize,
    },
    /// The mean over rows and columns.
    GlobalAveragePooling {
        input: usize,
        output: usize,
        keeps_dims: bool,
    },
    Transpose {
        order: Vec<usize>,
        input: usize,
        output: usize,
    },
    /// One extent at most is `None`: what is left.
    Reshape {
        shape: Vec<Option<usize>>,
        input: usize,
        output: usize,
    },
    Slice {
        offsets: Vec<usize>,
        sizes: Vec<usize>,
        input: usize,
        output: usize,
    },
    Pad {
        before: Vec<usize>,
        after: Vec<usize>,
        value: f32,
        input: usize,
        output: usize,
    },
    Concatenate {
        axis: usize,
        inputs: Vec<usize>,
        output: usize,
    },
    ResizeBilinear {
        height: usize,
        width: usize,
        aligns_corners: bool,
        input: usize,
        output: usize,
    },
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub(crate) enum Unary {
    Abs,
    Ceiling,
    Clamp,
    Convert,
    Copy,
    Cos,
    Elu { alpha: f32 },
    Exp,
    Floor,
    Gelu,
    Hardswish,
    LeakyRelu { slope: f32 },
    Log,
    Negate,
    ReciprocalSquareRoot,
    Sigmoid,
    Sin,
    Softmax,
    Square,
    SquareRoot,
    Tanh,
}

/// A function of two values that are broadcast to one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub(crate) enum Binary {
    Add,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    /// The first where it is not negative, else the product.
    Prelu,
    Subtract,
}

/// A kind of convolution, with the extents of its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convolution {
    /// `[outputs, height, width, inputs of a group]`
    Plain,
    /// `[1, height, width, outputs]`
    Depthwise,
    /// As `Plain`.
    Transposed { extra_height: usize, extra_width: usize },
}

/// Channels of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    /// How many groups.
    pub count: usize,
    /// Input channels of each.
    pub inputs: usize,
    /// Output channels of each.
    pub outputs: usize,
}

/// A window over rows and columns; pairs are height and width. Extents, strides and dilations are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Extents.
    pub kernel: [usize; 2],
    /// Steps.
    pub stride: [usize; 2],
    /// Steps within the window.
    pub dilation: [usize; 2],
    /// Padding above and to the left.
    pub before: [usize; 2],
    /// Padding below and to the right.
    pub after: [usize; 2],
}

/// Names of the kinds of nodes, by tag.
const KINDS: [&str; 48] = [
    "none",
    "Add",
    "FullyConnected",
    "Softmax",
    "Sigmoid",
    "StaticTranspose",
    "Clamp",
    "Conv2d",
    "Div",
    "StaticResizeBilinear2D",
    "StaticConstantPad",
    "AvgPooling2d",
    "Minimum",
    "DepthwiseConv2d",
    "MaxPooling2d",
    "Multiply",
    "Subtract",
    "Floor",
    "Convert",
    "GlobalAvgPooling2d",
    "StaticReshape",
    "ArgMaxPooling2d",
    "SquareRoot",
    "Ceiling",
    "Hardswish",
    "LeakyReLU",
    "Maximum",
    "Negate",
    "Square",
    "ELU",
    "Abs",
    "PReLU",
    "Concatenate2",
    "Concatenate3",
    "Concatenate4",
    "StaticSlice",
    "ScaledDotProductAttention",
    "BatchMatrixMultiply",
    "Concatenate5",
    "ConvTranspose2d",
    "ReciprocalSquareRoot",
    "Log",
    "Gelu",
    "Tanh",
    "Exp",
    "Sin",
    "Copy",
    "Cos",
];

/// The name of a kind of nodes.
pub(crate) fn kind_name(tag: u8) -> String {
    KINDS.get(usize::from(tag)).map_or_else(|| format!("of unknown kind {tag}"), |name| (*name).to_owned())
}
