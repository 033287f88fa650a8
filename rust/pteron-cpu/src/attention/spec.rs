//! What an attention step computes and where its arguments are: independent of shapes.

use std::fmt;

/// Which dimension of a tensor argument is what. A tensor without batch or heads has one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    /// The dimension that counts sequences.
    pub batch: Option<u8>,
    /// The dimension that counts heads.
    pub head: Option<u8>,
    /// The dimension of queries or keys.
    pub row: u8,
    /// The dimension that is summed over (queries, keys) or carried through (values, output).
    pub element: u8,
}

impl Axes {
    /// `[batch, head, row, element]`.
    pub const HEADS_FIRST: Axes = Axes { batch: Some(0), head: Some(1), row: 2, element: 3 };
    /// `[batch, row, head, element]`: how a linear layer leaves its heads.
    pub const ROWS_FIRST: Axes = Axes { batch: Some(0), head: Some(2), row: 1, element: 3 };

    /// All four, absent ones left out.
    pub fn present(&self) -> impl Iterator<Item = usize> + use<> {
        [self.batch, self.head, Some(self.row), Some(self.element)].into_iter().flatten().map(usize::from)
    }
}

/// A tensor argument and its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Position in the argument list.
    pub argument: usize,
    /// Its dimensions.
    pub axes: Axes,
}

/// Which keys a query sees beyond what the mask says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Causality {
    /// All.
    Everything,
    /// Query `i` sees keys `0..=i`.
    FromTopLeft,
    /// Query `i` sees keys `0..=i + start`; `start` is the integer argument at this position.
    FromPosition(usize),
}

/// The result of a query that sees nothing (every score is -inf).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyRow {
    /// Zero, as `scaled_dot_product_attention` has it.
    Zero,
    /// NaN, as a plain softmax has it.
    NaN,
}

/// An extent of attention, by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Sequences.
    Batch,
    /// Heads.
    Heads,
    /// Sequences times heads.
    Joined,
    /// Queries.
    Rows,
    /// Keys.
    Keys,
    /// Elements of queries and keys.
    Depth,
    /// Elements of values.
    Width,
}

/// A list of integers among the arguments that has to be these extents, whenever shapes are bound: the
/// shape that a view in the program asks for, which the fused step leaves out. -1 stands for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeCheck {
    /// Position of the list in the argument list.
    pub argument: usize,
    /// What its integers are.
    pub dims: Vec<Extent>,
}

/// `softmax(scale · Q Kᵀ + mask) V` per batch and head.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    /// L queries of D elements: f32, bfloat16 or float16, as the output is, and keys and values without factors.
    pub query: Operand,
    /// S keys of D elements; as many heads as the queries, or a divisor of that.
    pub key: Operand,
    /// S values of any number of elements; as many heads as the keys.
    pub value: Operand,
    /// A float (added) or bool (true: seen), broadcast to `[batch, head, L, S]`; `None` or an argument that is
    /// absent: no mask.
    pub mask: Option<usize>,
    /// L rows; its elements lie side by side.
    pub out: Operand,
    /// Factor of the scores.
    pub scale: f32,
    /// See [`Causality`].
    pub causality: Causality,
    /// Keys that count: `start + L` of the first ones, `start` at this position; `None`: all.
    pub keys_from: Option<usize>,
    /// See [`EmptyRow`].
    pub empty_row: EmptyRow,
    /// Keys and values are int8, and each of their rows has a factor: f32, with the axes of keys and of values, and one
    /// element in a row. `None`: they are of the queries' type.
    pub row_factors: Option<[Operand; 2]>,
    /// What must hold besides.
    pub checks: Vec<ShapeCheck>,
}

impl fmt::Display for AttentionSpec {
    /// `attention(scale 0.125, causal, mask)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention(scale {}", self.scale)?;
        if self.causality != Causality::Everything {
            f.write_str(", causal")?;
        }
        if self.mask.is_some() {
            f.write_str(", mask")?;
        }
        if self.empty_row == EmptyRow::NaN {
            f.write_str(", empty rows NaN")?;
        }
        if self.row_factors.is_some() {
            f.write_str(", int8 keys and values")?;
        }
        f.write_str(")")
    }
}
