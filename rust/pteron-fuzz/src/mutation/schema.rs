//! The tables of `schema/program.fbs` and `schema/flat_tensor.fbs`, as far as a walk over them needs.

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number of so many bytes.
    Number(usize),
    /// A float of 8 bytes.
    Double,
    /// A code of an enumeration with so many members.
    Code(u8),
    /// A text.
    Text,
    /// A list of numbers of so many bytes.
    Numbers(usize),
    /// Another table.
    Table(&'static str),
    /// A list of tables.
    Tables(&'static str),
    /// The field before it says which of these it is, counted from 1.
    Union(&'static [&'static str]),
    /// Nothing that a walk has to see.
    Other,
}

use Field::{Code, Double, Number, Numbers, Other, Table, Tables, Text, Union};

/// The fields of a table.
pub struct TableSchema {
    name: &'static str,
    /// In the order of their slots.
    pub fields: &'static [(&'static str, Field)],
}

const fn table(name: &'static str, fields: &'static [(&'static str, Field)]) -> TableSchema {
    TableSchema { name, fields }
}

const VALUES: Field = Union(&[
    "Null",
    "Int",
    "Bool",
    "Double",
    "Tensor",
    "String",
    "IntList",
    "DoubleList",
    "BoolList",
    "TensorList",
    "OptionalTensorList",
]);

const INSTRUCTIONS: Field = Union(&["KernelCall", "DelegateCall", "MoveCall", "JumpFalseCall", "FreeCall"]);

static TABLES: &[TableSchema] = &[
    table(
        "Program",
        &[
            ("version", Number(4)),
            ("execution_plan", Tables("ExecutionPlan")),
            ("constant_buffer", Tables("Buffer")),
            ("backend_delegate_data", Tables("InlineData")),
            ("segments", Tables("DataSegment")),
            ("constant_segment", Table("SubsegmentOffsets")),
            ("mutable_data_segments", Tables("SubsegmentOffsets")),
            ("named_data", Tables("NamedData")),
        ],
    ),
    table(
        "ExecutionPlan",
        &[
            ("name", Text),
            ("container_meta_type", Table("ContainerMetadata")),
            ("values", Tables("EValue")),
            ("inputs", Numbers(4)),
            ("outputs", Numbers(4)),
            ("chains", Tables("Chain")),
            ("operators", Tables("Operator")),
            ("delegates", Tables("BackendDelegate")),
            ("non_const_buffer_sizes", Numbers(8)),
            ("non_const_buffer_device", Tables("NonConstBufferDevice")),
        ],
    ),
    table("ContainerMetadata", &[("encoded_inp_str", Text), ("encoded_out_str", Text)]),
    table("EValue", &[("val_type", Code(12)), ("val", VALUES)]),
    table("Null", &[]),
    table("Int", &[("int_val", Number(8))]),
    table("Bool", &[("bool_val", Number(1))]),
    table("Double", &[("double_val", Double)]),
    table("String", &[("string_val", Text)]),
    table("IntList", &[("int_items", Numbers(8))]),
    table("DoubleList", &[("double_items", Numbers(8))]),
    table("BoolList", &[("bool_items", Numbers(1))]),
    table("TensorList", &[("tensor_items", Numbers(4))]),
    table("OptionalTensorList", &[("optional_items", Numbers(4))]),
    table(
        "Tensor",
        &[
            ("scalar_type", Code(48)),
            ("storage_offset", Number(4)),
            ("sizes", Numbers(4)),
            ("dim_order", Numbers(1)),
            ("requires_grad", Number(1)),
            ("data_buffer_idx", Number(4)),
            ("allocation_info", Table("AllocationDetails")),
            ("layout", Code(2)),
            ("shape_dynamism", Code(3)),
            ("extra_tensor_info", Table("ExtraTensorInfo")),
        ],
    ),
    table(
        "AllocationDetails",
        &[("memory_id", Number(4)), ("memory_offset_low", Number(4)), ("memory_offset_high", Number(4))],
    ),
    table(
        "ExtraTensorInfo",
        &[
            ("mutable_data_segments_idx", Number(8)),
            ("fully_qualified_name", Text),
            ("location", Code(2)),
            ("device_type", Code(2)),
            ("device_index", Number(1)),
        ],
    ),
    table(
        "Chain",
        &[
            ("chain_inputs", Numbers(4)),
            ("chain_outputs", Numbers(4)),
            ("instructions", Tables("Instruction")),
            ("stacktrace", Other),
        ],
    ),
    table("Instruction", &[("instr_args_type", Code(6)), ("instr_args", INSTRUCTIONS)]),
    table("KernelCall", &[("op_index", Number(4)), ("args", Numbers(4))]),
    table("DelegateCall", &[("delegate_index", Number(4)), ("delegate_args", Numbers(4))]),
    table("MoveCall", &[("move_from", Number(4)), ("move_to", Number(4))]),
    table("JumpFalseCall", &[("cond_value_index", Number(4)), ("destination_instruction", Number(4))]),
    table("FreeCall", &[("free_value_index", Number(4))]),
    table("Operator", &[("operator_name", Text), ("overload", Text)]),
    table(
        "BackendDelegate",
        &[
            ("backend_id", Text),
            ("processed", Table("DataReference")),
            ("compile_specs", Tables("CompileSpec")),
        ],
    ),
    table("DataReference", &[("data_location", Code(2)), ("data_index", Number(4))]),
    table("CompileSpec", &[("spec_key", Text), ("spec_value", Numbers(1))]),
    table(
        "NonConstBufferDevice",
        &[("buffer_idx", Number(4)), ("arena_device_type", Code(2)), ("arena_device_index", Number(1))],
    ),
    table("Buffer", &[("storage", Numbers(1))]),
    table("InlineData", &[("inline_data", Numbers(1))]),
    table("DataSegment", &[("segment_offset", Number(8)), ("segment_size", Number(8))]),
    table("SubsegmentOffsets", &[("subsegment_index", Number(4)), ("subsegment_offsets", Numbers(8))]),
    table("NamedData", &[("key", Text), ("segment_index", Number(4))]),
    table(
        "FlatTensor",
        &[("data_version", Number(4)), ("segments", Tables("DataSegment")), ("entries", Tables("DataEntry"))],
    ),
    table(
        "DataEntry",
        &[("entry_key", Text), ("entry_segment", Number(4)), ("tensor_layout", Table("TensorLayout"))],
    ),
    table(
        "TensorLayout",
        &[("layout_scalar_type", Code(48)), ("layout_sizes", Numbers(4)), ("layout_dim_order", Numbers(1))],
    ),
];

/// The table of that name.
pub fn find(name: &str) -> &'static TableSchema {
    TABLES.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no table {name}"))
}
