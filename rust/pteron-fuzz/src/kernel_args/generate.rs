//! Calls out of decisions: arguments for any schema, with shapes that belong together more often than not.

use super::argument::{Argument, TensorArgument};
use super::contents::{Contents, elements};
use crate::choices::Choices;
use pteron_core::{ArgKind, DType, DimOrder, Dims, Dynamism, SchemaArg, TensorSpec};

/// Most elements of a tensor.
const LARGEST: usize = 4096;
const EXTENTS: [usize; 16] = [2, 3, 4, 1, 5, 8, 2, 7, 16, 3, 17, 33, 0, 6, 4, 64];
const NUMBERS: [i64; 24] = [
    1,
    0,
    2,
    -1,
    3,
    1,
    2,
    4,
    -2,
    5,
    1,
    0,
    7,
    8,
    -3,
    16,
    100,
    i64::MAX,
    i64::MIN,
    1 << 31,
    -(1 << 31),
    1 << 40,
    i64::MAX / 2,
    -(1 << 62),
];
const FLOATS: [f64; 16] = [
    1.0,
    0.5,
    0.0,
    2.0,
    1e-5,
    -1.0,
    0.1,
    3.0,
    1.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e300,
    -0.0,
    1e-300,
    -7.5,
];
const STRINGS: [&str; 14] = [
    "none",
    "tanh",
    "floor",
    "trunc",
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "reflect",
    "left",
    "right",
    "",
    "\u{1b}[2Jx",
];
const COMMON: [DType; 10] = [
    DType::Float32,
    DType::Float32,
    DType::Float32,
    DType::Int64,
    DType::Int32,
    DType::Float64,
    DType::Float16,
    DType::BFloat16,
    DType::Bool,
    DType::UInt8,
];

/// A call under construction.
pub struct Generator<'c, 'b> {
    /// Decisions.
    pub choices: &'c mut Choices<'b>,
    /// Extents that most tensors have.
    pub base: Dims,
    /// Their element type.
    pub dtype: DType,
    /// What they hold.
    pub contents: Contents,
    is_ordered: bool,
    is_dynamic: bool,
    /// Is this call as hostile as can be: numbers and ranks without regard to each other?
    pub is_wild: bool,
}

impl<'c, 'b> Generator<'c, 'b> {
    /// The common part of a call.
    pub fn new(choices: &'c mut Choices<'b>) -> Self {
        let dtype = match choices.chance(12) {
            true => choices.pick(&DType::ALL),
            false => choices.pick(&COMMON),
        };
        let contents = match choices.below(8) {
            0..4 => Contents::Small,
            4 => Contents::Indices,
            5 => Contents::Fractions,
            6 => Contents::Edges,
            _ => Contents::Bits,
        };
        let (is_ordered, is_dynamic) = (choices.chance(20), choices.chance(15));
        let is_wild = choices.chance(10);
        let mut out =
            Generator { choices, base: Dims::EMPTY, dtype, contents, is_ordered, is_dynamic, is_wild };
        let rank = out.choices.pick(&[2, 3, 4, 1, 2, 3, 4, 0, 5]);
        out.base = out.shape(rank);
        out
    }

    /// Random extents, few elements.
    pub fn shape(&mut self, rank: usize) -> Dims {
        let mut out = Dims::EMPTY;
        for _ in 0..rank {
            let extent = self.choices.pick(&EXTENTS);
            let fits = out.iter().product::<usize>().max(1) * extent.max(1) <= LARGEST;
            let _ = out.push(if fits { extent } else { 1 });
        }
        // An empty tensor may have any other extents.
        if self.choices.chance(2) && out.contains(&0) {
            let huge = self.choices.pick(&[1usize << 20, 1 << 40, 1 << 62, u32::MAX as usize + 1]);
            let at = self.choices.below(out.len());
            if let Some(extent) = out.get_mut(at).filter(|e| **e != 0) {
                *extent = huge;
            }
        }
        out
    }

    /// Extents that go with the base.
    fn related(&mut self) -> Dims {
        let mut shape = self.base;
        match self.choices.below(20) {
            0..13 => {}
            13 | 14 => {
                if let Some(extent) = shape.get_mut(0) {
                    *extent = 1;
                }
            }
            15 => {
                let last = shape.len().saturating_sub(1);
                if let Some(extent) = shape.get_mut(last) {
                    *extent = 1;
                }
            }
            16 => {
                let _ = shape.remove(0);
            }
            17 => shape.reverse(),
            18 => shape = shape.last().map_or(Dims::EMPTY, |n| Dims::filled(1, *n).unwrap_or(Dims::EMPTY)),
            _ => {
                let rank = self.choices.below(6);
                shape = self.shape(rank);
            }
        }
        shape
    }

    /// A tensor of `shape`.
    pub fn tensor(&mut self, dtype: DType, shape: Dims, contents: Contents) -> TensorArgument {
        // What has elements has few.
        let is_huge = shape.numel().map_or(true, |n| n > 64 * LARGEST);
        let shape = if is_huge { Dims::filled(shape.len(), 0).unwrap_or(Dims::EMPTY) } else { shape };
        let rank = shape.len();
        let mut order: Vec<u8> = (0..rank as u8).collect();
        if self.is_ordered && rank >= 2 {
            match self.choices.below(3) {
                0 => order[1..].rotate_left(1),
                1 => order.reverse(),
                _ => order.swap(0, rank - 1),
            }
        }
        let dim_order = DimOrder::new(&order).unwrap_or_else(|_| DimOrder::contiguous(rank));
        let mut spec = TensorSpec { dtype, shape, dim_order, dynamism: Dynamism::Static };
        let mut now = shape;
        if self.is_dynamic && rank > 0 && self.choices.chance(70) {
            spec.dynamism = Dynamism::Bounded;
            let at = self.choices.below(rank);
            if self.choices.chance(50) {
                now[at] = now[at].saturating_sub(1);
            }
        }
        let numel = spec.shape.numel().unwrap_or(0);
        let bytes = elements(self.choices.word(), contents, dtype, numel);
        let misalignment = if self.choices.chance(10) { 1 + self.choices.below(3) } else { 0 };
        TensorArgument { spec, now, bytes, is_constant: false, misalignment }
    }

    fn input(&mut self, name: &str) -> TensorArgument {
        let mut shape = self.related();
        let (mut dtype, mut contents) = (self.dtype, self.contents);
        if name.contains("ind") || name == "offsets" || name == "target" || name == "repeats" {
            (dtype, contents) = (DType::Int64, Contents::Indices);
            if self.choices.chance(20) {
                dtype = DType::Int32;
            }
            if self.choices.chance(15) {
                contents = Contents::Edges;
            }
            if self.choices.chance(40) {
                shape = self.shape(1);
            }
        } else if name.contains("mask") || name == "condition" {
            dtype = if self.choices.chance(80) { DType::Bool } else { dtype };
        } else if self.choices.chance(10) {
            dtype = self.choices.pick(&DType::ALL);
        }
        let mut t = self.tensor(dtype, shape, contents);
        // Constants are static and whole.
        if !t.spec.is_dynamic() && self.choices.chance(20) {
            t.is_constant = true;
        }
        t
    }

    /// An output that has room for `shape`.
    pub fn output(&mut self, dtype: DType, shape: Dims) -> TensorArgument {
        let mut t = self.tensor(dtype, shape, Contents::Small);
        t.now = shape;
        t
    }

    /// An integer.
    pub fn int(&mut self, name: &str) -> i64 {
        let rank = self.base.len() as i64;
        let is_wild = self.is_wild && self.choices.chance(50);
        match name {
            _ if is_wild => self.choices.pick(&NUMBERS),
            "dim" | "axis" | "dim0" | "dim1" | "start_dim" | "end_dim" | "source" | "destination" => {
                self.choices.below(2 * self.base.len() + 2) as i64 - rank - 1
            }
            "groups" | "correction" | "N" | "C" | "HxW" => self.choices.pick(&[1, 2, 4, 0, 3, -1]),
            _ => {
                let nth = self.choices.below(NUMBERS.len());
                // Mostly the reasonable ones.
                let nth = if self.choices.chance(90) { nth % 15 } else { nth };
                NUMBERS[nth]
            }
        }
    }

    fn ints(&mut self, name: &str) -> Vec<i64> {
        let rank = self.base.len();
        let base: Vec<i64> = self.base.iter().map(|e| *e as i64).collect();
        let is_extents =
            ["size", "sizes", "shape", "output_size", "normalized_shape", "repeats"].contains(&name);
        if is_extents && !self.is_wild {
            let mut list = base;
            match self.choices.below(6) {
                0 => list.reverse(),
                1 => list = list.split_off(rank.min(1)),
                2 => list.insert(0, 2),
                3 => list = vec![-1],
                _ => {}
            }
            return list;
        }
        if (name == "dim" || name == "dims") && !self.is_wild {
            let count = self.choices.below(rank + 1);
            let mut list: Vec<i64> = (0..rank as i64).collect();
            let turn = self.choices.below(rank.max(1));
            list.rotate_left(turn.min(rank));
            if name == "dim" || self.choices.chance(20) {
                list.truncate(count);
            }
            return list;
        }
        let count = match self.choices.chance(80) {
            true => self.choices.pick(&[2, 1, 2, 4, rank]),
            false => self.choices.below(8),
        };
        (0..count).map(|_| self.int("")).collect()
    }

    fn double(&mut self) -> f64 {
        let nth = self.choices.below(FLOATS.len());
        FLOATS[if self.is_wild { nth } else { nth % 9 }]
    }

    fn scalar(&mut self) -> Argument {
        match self.choices.below(3) {
            0 => Argument::Double(self.double()),
            1 => Argument::Int(self.int("")),
            _ => Argument::Bool(self.choices.chance(50)),
        }
    }

    fn is_absent(&mut self) -> bool {
        self.choices.chance(50)
    }

    pub(super) fn argument(&mut self, declared: &SchemaArg) -> Argument {
        let name = declared.name.as_str();
        match declared.kind {
            ArgKind::Tensor if declared.is_output => {
                let dtype = if self.choices.chance(5) { self.choices.pick(&DType::ALL) } else { self.dtype };
                Argument::Tensor(self.output(dtype, self.base))
            }
            ArgKind::OptionalTensor if self.is_absent() => Argument::None,
            ArgKind::Tensor | ArgKind::OptionalTensor | ArgKind::Any => Argument::Tensor(self.input(name)),
            ArgKind::TensorList | ArgKind::OptionalTensorList => {
                let count = self.choices.below(5);
                let is_optional = declared.kind == ArgKind::OptionalTensorList;
                let mut list = Vec::new();
                for _ in 0..count {
                    let is_none = is_optional && self.choices.chance(30);
                    let name = if is_optional { "indices" } else { name };
                    list.push((!is_none).then(|| match declared.is_output {
                        true => self.output(self.dtype, self.base),
                        false => TensorArgument { is_constant: false, ..self.input(name) },
                    }));
                }
                Argument::Tensors(list)
            }
            ArgKind::OptionalInt
            | ArgKind::OptionalDouble
            | ArgKind::OptionalBool
            | ArgKind::OptionalScalar
            | ArgKind::OptionalString
            | ArgKind::OptionalIntList
            | ArgKind::OptionalDoubleList
                if self.is_absent() =>
            {
                Argument::None
            }
            ArgKind::Int | ArgKind::OptionalInt => Argument::Int(self.int(name)),
            ArgKind::Double | ArgKind::OptionalDouble => Argument::Double(self.double()),
            ArgKind::Bool | ArgKind::OptionalBool => Argument::Bool(self.choices.chance(50)),
            ArgKind::Scalar | ArgKind::OptionalScalar => self.scalar(),
            ArgKind::String | ArgKind::OptionalString => Argument::String(self.choices.pick(&STRINGS)),
            ArgKind::IntList | ArgKind::OptionalIntList => Argument::Ints(self.ints(name)),
            ArgKind::DoubleList | ArgKind::OptionalDoubleList => {
                let count = self.choices.below(5);
                Argument::Doubles((0..count).map(|_| self.double()).collect())
            }
            ArgKind::BoolList => {
                let count = self.choices.pick(&[3, 2, 4, 0]);
                Argument::Bools((0..count).map(|_| self.choices.chance(50)).collect())
            }
            ArgKind::OptionalEnum if self.choices.chance(60) => Argument::None,
            ArgKind::OptionalEnum => match self.choices.chance(85) {
                true => Argument::Int(i64::from(self.choices.pick(&COMMON).code())),
                false => Argument::Int(self.int("")),
            },
        }
    }
}
