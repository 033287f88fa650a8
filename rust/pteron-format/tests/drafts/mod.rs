//! Small legal programs for the tests.

#![allow(dead_code, reason = "every test binary uses some of them")]

use pteron_core::{CompileSpec, DType};
use pteron_format::write::{
    ChainDraft, DelegateDraft, ExtraTensorDraft, InstructionDraft, MethodDraft, NamedDataDraft,
    OperatorDraft, ProgramDraft, TensorDraft, ValueDraft, WriteOptions,
};
use std::borrow::Cow;

/// A contiguous float32 tensor.
pub fn f32s(shape: &[usize]) -> TensorDraft {
    TensorDraft::contiguous(DType::Float32, shape).unwrap()
}

/// An operator.
pub fn operator(name: &str, overload: &str) -> OperatorDraft {
    OperatorDraft { name: name.to_owned(), overload: overload.to_owned() }
}

/// A blob.
pub fn blob(bytes: impl Into<Vec<u8>>) -> Cow<'static, [u8]> {
    Cow::Owned(bytes.into())
}

/// The bytes of floats.
pub fn floats(values: &[f32]) -> Cow<'static, [u8]> {
    Cow::Owned(values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// One method that has every kind of value and every kind of instruction.
pub fn everything() -> ProgramDraft<'static> {
    let boolean = TensorDraft::contiguous(DType::Bool, &[]).unwrap();
    let named = |name: &str, location| {
        Some(ExtraTensorDraft {
            fully_qualified_name: Some(name.to_owned()),
            location,
            ..ExtraTensorDraft::default()
        })
    };
    let values = vec![
        /* 0 */ f32s(&[2, 3]).planned(1, 0).bounded().into(),
        /* 1 */ TensorDraft { extra: named("layer.weight", 0), ..f32s(&[3]).constant(1) }.into(),
        /* 2 */
        TensorDraft { extra: named("cache", 0), data_buffer_idx: 1, ..f32s(&[2]).planned(2, 64) }.into(),
        /* 3 */ TensorDraft { dim_order: vec![1, 0], ..f32s(&[2, 3]).planned(1, 64) }.into(),
        /* 4 */ f32s(&[2, 3]).into(),
        /* 5 */ boolean.planned(1, 128).into(),
        /* 6 */ ValueDraft::None,
        /* 7 */ ValueDraft::Int(-7),
        /* 8 */ ValueDraft::Bool(true),
        /* 9 */ ValueDraft::Double(f64::NEG_INFINITY),
        /* 10 */ ValueDraft::String("floor".into()),
        /* 11 */ ValueDraft::IntList([7, 7].into()),
        /* 12 */ ValueDraft::DoubleList([0.5, -1.0].into()),
        /* 13 */ ValueDraft::BoolList([true, false].into()),
        /* 14 */ ValueDraft::TensorList([0, 15].into()),
        /* 15 */ f32s(&[2, 3]).planned(1, 160).into(),
        /* 16 */ ValueDraft::OptionalTensorList([None, Some(1), Some(6)].into()),
        /* 17 */ TensorDraft { extra: named("head.bias", 1), ..f32s(&[4]) }.into(),
        /* 18 */ TensorDraft { extra: named("state", 1), ..f32s(&[2]).planned(2, 0) }.into(),
    ];
    let instructions = vec![
        InstructionDraft::Kernel { operator: 0, args: vec![0, 1, 7, 3, 3] },
        InstructionDraft::JumpFalse { condition: 8, destination: 4 },
        InstructionDraft::Delegate { delegate: 0, args: vec![3, 15] },
        InstructionDraft::Move { from: 15, to: 4 },
        InstructionDraft::Kernel { operator: 1, args: vec![11, 12, 13, 14, 16, 10, 9, 6, 17, 18, 2] },
        InstructionDraft::JumpFalse { condition: 5, destination: 7 },
        InstructionDraft::Free { value: 4 },
    ];
    let method = MethodDraft {
        name: "forward".to_owned(),
        input_tree: "[1, {}]".to_owned(),
        output_tree: "[1, {\"type\": null}]".to_owned(),
        values,
        inputs: vec![0, 7, 6],
        outputs: vec![4, 8],
        chains: vec![ChainDraft { instructions, ..ChainDraft::default() }],
        operators: vec![operator("aten::add", "out"), operator("my::op", "")],
        delegates: vec![DelegateDraft {
            id: "BackendWithCompilerDemo".to_owned(),
            blob: 0,
            specs: vec![CompileSpec { key: "max_value".to_owned(), value: vec![4] }],
        }],
        non_const_buffer_sizes: vec![0, 256, 128],
        non_const_buffer_device: vec![],
    };
    ProgramDraft {
        version: 0,
        methods: vec![method],
        constants: vec![blob([]), floats(&[1.0, 2.0, 3.0])],
        mutable_data: vec![blob([]), floats(&[8.0, 9.0])],
        delegate_data: vec![blob(*b"1version:0#op:demo::aten.sin.default")],
        named_data: vec![
            NamedDataDraft {
                key: "pteron.interface".to_owned(),
                data: blob(*br#"{"version":1,"methods":{}}"#),
                alignment: 1,
            },
            NamedDataDraft { key: "weights".to_owned(), data: blob([5; 40]), alignment: 64 },
        ],
    }
}

/// The bytes of `draft` without the writer's own check.
pub fn unchecked(draft: &ProgramDraft<'_>) -> Vec<u8> {
    draft.to_bytes(&WriteOptions { verify: false, ..WriteOptions::default() }).unwrap()
}
