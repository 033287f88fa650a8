//! What a file should hold, in the terms of the schema: raw indices, nothing resolved, nothing checked.

use pteron_core::{Error, Result, Value};
use std::borrow::Cow;

/// A program to write. Blobs may be borrowed, so weights need not be copied before they are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgramDraft<'a> {
    /// Format version; 0.
    pub version: u32,
    /// Methods.
    pub methods: Vec<MethodDraft>,
    /// Constants; `TensorDraft::data_buffer_idx` indexes them. Entry 0 is an empty placeholder.
    pub constants: Vec<Cow<'a, [u8]>>,
    /// First contents of mutable buffers; entry 0 is an empty placeholder.
    pub mutable_data: Vec<Cow<'a, [u8]>>,
    /// Delegate blobs; `DelegateDraft::blob` indexes them.
    pub delegate_data: Vec<Cow<'a, [u8]>>,
    /// Named blobs.
    pub named_data: Vec<NamedDataDraft<'a>>,
}

/// A named blob.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedDataDraft<'a> {
    /// Its name, unique.
    pub key: String,
    /// Its bytes.
    pub data: Cow<'a, [u8]>,
    /// Its bytes start at a multiple of this in the file; 1 for any place.
    pub alignment: u32,
}

/// A method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodDraft {
    /// Name.
    pub name: String,
    /// Pytree spec of the inputs in JSON.
    pub input_tree: String,
    /// Pytree spec of the outputs in JSON.
    pub output_tree: String,
    /// Value table.
    pub values: Vec<ValueDraft>,
    /// Value indices of the inputs.
    pub inputs: Vec<i32>,
    /// Value indices of the outputs.
    pub outputs: Vec<i32>,
    /// Chains of instructions; readers accept exactly one.
    pub chains: Vec<ChainDraft>,
    /// Operators that kernel calls index.
    pub operators: Vec<OperatorDraft>,
    /// Delegates that delegate calls index.
    pub delegates: Vec<DelegateDraft>,
    /// Bytes per arena. Entry 0 is unused and 0; entry n is arena `memory_id` n.
    pub non_const_buffer_sizes: Vec<i64>,
    /// Arenas that are not in the CPU's memory; empty where the file says nothing.
    pub non_const_buffer_device: Vec<BufferDeviceDraft>,
}

/// The device of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferDeviceDraft {
    /// Arena, counted from 1.
    pub buffer_idx: i32,
    /// 0 CPU, 1 CUDA.
    pub device_type: i8,
    /// Which of the devices of this type.
    pub device_index: i8,
}

/// A chain of instructions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainDraft {
    /// Always empty in practice.
    pub inputs: Vec<i32>,
    /// Always empty in practice.
    pub outputs: Vec<i32>,
    /// The instructions.
    pub instructions: Vec<InstructionDraft>,
    /// The frames of each instruction, outermost first; empty where the file holds none.
    pub stacktrace: Vec<Vec<FrameDraft>>,
}

/// A frame of the Python stack at which an operator of the model was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameDraft {
    /// Source file.
    pub filename: String,
    /// Line in it, from 1.
    pub lineno: i32,
    /// Function.
    pub name: String,
    /// Text of the line.
    pub context: String,
}

/// An operator: `aten::add` and `out`, or an empty overload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorDraft {
    /// Namespace and name.
    pub name: String,
    /// Overload.
    pub overload: String,
}

/// A delegate.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateDraft {
    /// Name of the backend.
    pub id: String,
    /// Index into [`ProgramDraft::delegate_data`].
    pub blob: u32,
    /// Key and bytes of each compile spec, in order.
    pub specs: Vec<pteron_core::CompileSpec>,
}

/// An instruction; numbers are value, operator, delegate and instruction indices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub enum InstructionDraft {
    Kernel { operator: i32, args: Vec<i32> },
    Delegate { delegate: i32, args: Vec<i32> },
    Move { from: i32, to: i32 },
    JumpFalse { condition: i32, destination: i32 },
    Free { value: i32 },
}

/// A value. Lists name their members by index, which nobody has checked; `OptionalTensorList` has `None` for an
/// absent one.
pub type ValueDraft = Value<TensorDraft, i64>;

/// A tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TensorDraft {
    /// dtype code of the format.
    pub scalar_type: i8,
    /// 0.
    pub storage_offset: i32,
    /// Extents (upper bounds when dynamic).
    pub sizes: Vec<i32>,
    /// Memory order.
    pub dim_order: Vec<u8>,
    /// Means nothing at run time.
    pub requires_grad: bool,
    /// 0, dense.
    pub layout: i8,
    /// Index into the constants, or into the mutable data when `allocation` is set; 0 for none.
    pub data_buffer_idx: u32,
    /// Place in planned memory.
    pub allocation: Option<AllocationDraft>,
    /// 0 static, 1 bounded, 2 unbounded.
    pub shape_dynamism: i8,
    /// Name, location and device.
    pub extra: Option<ExtraTensorDraft>,
}

/// A place in planned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationDraft {
    /// Arena, counted from 1.
    pub memory_id: u32,
    /// First byte.
    pub offset: u64,
}

/// Name, location and device of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtraTensorDraft {
    /// 0.
    pub mutable_data_segments_idx: u64,
    /// Name of the parameter or buffer in the model.
    pub fully_qualified_name: Option<String>,
    /// 0 this file, 1 a data file.
    pub location: i8,
    /// 0 CPU, 1 CUDA.
    pub device_type: i8,
    /// Which of the devices of this type.
    pub device_index: i8,
}

impl TensorDraft {
    /// A static, contiguous, unplanned tensor.
    ///
    /// # Errors
    /// When the rank or an extent does not fit the format.
    pub fn contiguous(dtype: pteron_core::DType, shape: &[usize]) -> Result<Self> {
        let too_large = || Error::program("a shape does not fit the format").got(format!("{shape:?}"));
        let sizes =
            shape.iter().map(|d| i32::try_from(*d)).collect::<Result<_, _>>().map_err(|_| too_large())?;
        let rank = u8::try_from(shape.len()).map_err(|_| too_large())?;
        Ok(TensorDraft {
            scalar_type: dtype.code(),
            sizes,
            dim_order: (0..rank).collect(),
            ..TensorDraft::default()
        })
    }

    /// The same tensor as constant `index` of [`ProgramDraft::constants`].
    #[must_use]
    pub fn constant(mut self, index: u32) -> Self {
        self.data_buffer_idx = index;
        self.allocation = None;
        self
    }

    /// The same tensor in planned memory.
    #[must_use]
    pub fn planned(mut self, memory_id: u32, offset: u64) -> Self {
        self.allocation = Some(AllocationDraft { memory_id, offset });
        self
    }

    /// The same tensor with extents that may shrink.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.shape_dynamism = 1;
        self
    }
}
