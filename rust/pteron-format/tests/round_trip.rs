//! Whatever legal program is written reads back as it was meant.

mod drafts;

use drafts::{f32s, operator};
use proptest::prelude::*;
use pteron_core::{Device, Instruction, ValueId};
use pteron_format::write::{
    BufferDeviceDraft, ChainDraft, DelegateDraft, ExtraTensorDraft, InstructionDraft, MethodDraft,
    NamedDataDraft, ProgramDraft, TensorDraft, ValueDraft, WriteOptions,
};
use pteron_format::{MethodDef, Placement, ProgramFile, StoredBytes, TensorDef, ValueDef};
use std::borrow::Cow;

const ARENA: u64 = 1 << 16;
/// Values at the start of every table that lists and conditions can refer to.
const INT: i32 = 0;
const BOOL: i32 = 1;
const TENSOR: i32 = 2;

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..5, 0..5)
}

/// A float tensor of any placement; constants and initial data are made to measure afterwards.
fn tensor() -> impl Strategy<Value = TensorDraft> {
    let allocation = prop::option::of((1u32..3, 0u64..100));
    let extra = prop::option::of(("[a-z.]{1,8}", 0i8..2, 0i8..2, 0i8..=127));
    (shape(), any::<bool>(), any::<bool>(), allocation, any::<bool>(), extra).prop_map(
        |(shape, is_reversed, is_bounded, allocation, has_data, extra)| {
            let mut t = f32s(&shape);
            if is_reversed {
                t.dim_order.reverse();
            }
            t.shape_dynamism = i8::from(is_bounded);
            if let Some((id, at)) = allocation {
                t = t.planned(id, at * 4);
            }
            t.data_buffer_idx = u32::from(has_data);
            t.extra = extra.map(|(name, location, device_type, device_index)| ExtraTensorDraft {
                fully_qualified_name: Some(name),
                location,
                device_type,
                device_index,
                ..ExtraTensorDraft::default()
            });
            t
        },
    )
}

fn value() -> impl Strategy<Value = ValueDraft> {
    prop_oneof![
        Just(ValueDraft::None),
        any::<i64>().prop_map(ValueDraft::Int),
        any::<bool>().prop_map(ValueDraft::Bool),
        (-1e300..1e300f64).prop_map(ValueDraft::Double),
        ".{0,12}".prop_map(|s| ValueDraft::String(s.into())),
        prop::collection::vec(Just(i64::from(INT)), 0..4).prop_map(|v| ValueDraft::IntList(v.into())),
        prop::collection::vec(-1e3..1e3f64, 0..4).prop_map(|v| ValueDraft::DoubleList(v.into())),
        prop::collection::vec(any::<bool>(), 0..4).prop_map(|v| ValueDraft::BoolList(v.into())),
        prop::collection::vec(Just(i64::from(TENSOR)), 0..4).prop_map(|v| ValueDraft::TensorList(v.into())),
        prop::collection::vec(prop::option::of(Just(i64::from(TENSOR))), 0..4)
            .prop_map(|v| ValueDraft::OptionalTensorList(v.into())),
        tensor().prop_map(ValueDraft::from),
        tensor().prop_map(ValueDraft::from),
    ]
}

fn instruction(values: i32, count: i32) -> impl Strategy<Value = InstructionDraft> {
    let args = || prop::collection::vec(0..values, 0..6);
    prop_oneof![
        (0..2, args()).prop_map(|(operator, args)| InstructionDraft::Kernel { operator, args }),
        args().prop_map(|args| InstructionDraft::Delegate { delegate: 0, args }),
        Just(InstructionDraft::Move { from: TENSOR, to: TENSOR }),
        (0..=count).prop_map(|destination| InstructionDraft::JumpFalse { condition: BOOL, destination }),
        Just(InstructionDraft::Free { value: TENSOR }),
    ]
}

/// Some of the arenas, each at most once, in any order.
fn arena_devices() -> impl Strategy<Value = Vec<BufferDeviceDraft>> {
    let device = |buffer_idx| {
        (0i8..2, 0i8..=127).prop_map(move |(device_type, device_index)| BufferDeviceDraft {
            buffer_idx,
            device_type,
            device_index,
        })
    };
    prop_oneof![
        Just(vec![]),
        device(2).prop_map(|d| vec![d]),
        (device(2), device(1)).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn device(device_type: i8, device_index: i8) -> Device {
    if device_type == 0 { Device::Cpu } else { Device::Cuda(device_index as u8) }
}

fn method() -> impl Strategy<Value = MethodDraft> {
    let start = || vec![ValueDraft::Int(3), ValueDraft::Bool(true), f32s(&[2]).into()];
    (prop::collection::vec(value(), 0..12), 0..8i32).prop_flat_map(move |(more, count)| {
        let values: Vec<_> = start().into_iter().chain(more).collect();
        let total = values.len() as i32;
        let borders = prop::collection::vec(prop_oneof![Just(INT), Just(BOOL), Just(TENSOR)], 0..4);
        let instructions = prop::collection::vec(instruction(total, count), count as usize);
        (Just(values), instructions, borders.clone(), borders, ".{0,9}", arena_devices()).prop_map(
            |(values, instructions, inputs, outputs, tree, devices)| MethodDraft {
                name: "forward".to_owned(),
                input_tree: tree.clone(),
                output_tree: tree,
                values,
                inputs,
                outputs,
                chains: vec![ChainDraft { instructions, ..ChainDraft::default() }],
                operators: vec![operator("aten::add", "out"), operator("a::b", "")],
                delegates: vec![DelegateDraft { id: "B".to_owned(), blob: 0, specs: vec![] }],
                non_const_buffer_sizes: vec![0, ARENA as i64, ARENA as i64],
                non_const_buffer_device: devices,
            },
        )
    })
}

fn program() -> impl Strategy<Value = ProgramDraft<'static>> {
    let blob = || prop::collection::vec(any::<u8>(), 0..40);
    let named = prop::collection::btree_map(
        "[a-z]{1,6}",
        (blob(), prop::sample::select(vec![1u32, 2, 16, 24, 64, 512])),
        0..4,
    );
    (prop::collection::vec(method(), 1..3), blob(), named).prop_map(|(mut methods, delegate, named)| {
        let (mut constants, mut mutable_data): (Vec<Cow<'_, [u8]>>, Vec<_>) =
            (vec![Cow::Borrowed(&[])], vec![Cow::Borrowed(&[][..])]);
        for (number, method) in methods.iter_mut().enumerate() {
            method.name = format!("method{number}");
            for value in &mut method.values {
                let ValueDraft::Tensor(t) = value else { continue };
                if t.data_buffer_idx == 0 {
                    continue;
                }
                let store = if t.allocation.is_some() { &mut mutable_data } else { &mut constants };
                t.data_buffer_idx = store.len() as u32;
                let nbytes = t.sizes.iter().product::<i32>() * 4;
                store.push(Cow::Owned((0..nbytes).map(|n| (n % 3) as u8).collect()));
            }
        }
        let named_data = named
            .into_iter()
            .map(|(key, (data, alignment))| NamedDataDraft { key, data: data.into(), alignment })
            .collect();
        ProgramDraft {
            version: 0,
            methods,
            constants,
            mutable_data,
            delegate_data: vec![delegate.into()],
            named_data,
        }
    })
}

fn ids(indices: &[i32]) -> Vec<ValueId> {
    indices.iter().map(|i| ValueId(*i as u32)).collect()
}

/// What a value should read back as, tensors apart.
fn expected(value: &ValueDraft) -> ValueDef {
    match value {
        ValueDraft::None => ValueDef::None,
        ValueDraft::Int(v) => ValueDef::Int(*v),
        ValueDraft::Bool(v) => ValueDef::Bool(*v),
        ValueDraft::Double(v) => ValueDef::Double(*v),
        ValueDraft::String(v) => ValueDef::String(v.clone()),
        ValueDraft::IntList(v) => ValueDef::IntList(v.iter().map(|i| ValueId(*i as u32)).collect()),
        ValueDraft::DoubleList(v) => ValueDef::DoubleList(v.clone()),
        ValueDraft::BoolList(v) => ValueDef::BoolList(v.clone()),
        ValueDraft::TensorList(v) => ValueDef::TensorList(v.iter().map(|i| ValueId(*i as u32)).collect()),
        ValueDraft::OptionalTensorList(v) => {
            ValueDef::OptionalTensorList(v.iter().map(|i| i.map(|i| ValueId(i as u32))).collect())
        }
        ValueDraft::Tensor(_) => panic!("compared by check_tensor"),
    }
}

fn check_tensor(file: &[u8], draft: &ProgramDraft<'_>, t: &TensorDraft, found: &TensorDef) {
    let shape: Vec<usize> = t.sizes.iter().map(|s| *s as usize).collect();
    assert_eq!(*found.spec.shape, shape);
    assert_eq!(found.spec.dim_order.as_slice(), t.dim_order);
    assert_eq!(found.spec.is_dynamic(), t.shape_dynamism == 1);
    let name = t.extra.as_ref().and_then(|e| e.fully_qualified_name.clone());
    assert_eq!(found.name, name);
    let stated = t.extra.as_ref().map(|e| device(e.device_type, e.device_index));
    assert_eq!(found.device, stated.unwrap_or_default());
    let is_external = t.extra.as_ref().is_some_and(|e| e.location == 1);
    let index = t.data_buffer_idx as usize;
    match (&found.placement, t.allocation) {
        (Placement::Constant(StoredBytes::External(n)), None) => {
            assert_eq!((is_external, Some(n)), (true, name.as_ref()))
        }
        (Placement::Constant(StoredBytes::InFile(range)), None) => {
            assert!(!is_external);
            assert_eq!(file[range.clone()], *draft.constants[index]);
        }
        (Placement::Unplanned, None) => assert!(!is_external && index == 0),
        (Placement::Planned { arena, offset, initial }, Some(a)) => {
            assert_eq!((*arena + 1, *offset as u64), (a.memory_id, a.offset));
            match initial {
                None => assert!(!is_external && index == 0),
                Some(StoredBytes::External(n)) => assert_eq!((is_external, Some(n)), (true, name.as_ref())),
                Some(StoredBytes::InFile(range)) => {
                    assert!(!is_external);
                    assert_eq!(file[range.clone()], *draft.mutable_data[index]);
                }
            }
        }
        other => panic!("{other:?}"),
    }
}

fn check_instructions(draft: &[InstructionDraft], found: &[Instruction]) {
    assert_eq!(draft.len(), found.len());
    for (d, f) in draft.iter().zip(found) {
        let same = match (d, f) {
            (InstructionDraft::Kernel { operator: o, args: a }, Instruction::Kernel { operator, args }) => {
                *o as u32 == *operator && ids(a) == args[..]
            }
            (
                InstructionDraft::Delegate { delegate: o, args: a },
                Instruction::Delegate { delegate, args },
            ) => *o as u32 == *delegate && ids(a) == args[..],
            (InstructionDraft::Move { from: a, to: b }, Instruction::Move { from, to }) => {
                (*a as u32, *b as u32) == (from.0, to.0)
            }
            (
                InstructionDraft::JumpFalse { condition: a, destination: b },
                Instruction::JumpFalse { condition, destination },
            ) => (*a as u32, *b as u32) == (condition.0, *destination),
            (InstructionDraft::Free { value: a }, Instruction::Free { value }) => *a as u32 == value.0,
            _ => false,
        };
        assert!(same, "{d:?} became {f:?}");
    }
}

fn check_method(file: &[u8], draft: &ProgramDraft<'_>, method: &MethodDraft, found: &MethodDef) {
    assert_eq!(
        (&found.name, &found.input_tree, &found.output_tree),
        (&method.name, &method.input_tree, &method.output_tree)
    );
    assert_eq!((found.inputs.clone(), found.outputs.clone()), (ids(&method.inputs), ids(&method.outputs)));
    assert_eq!(found.operators, ["aten::add.out", "a::b"]);
    assert_eq!(found.arenas, [ARENA as usize; 2]);
    for arena in 0..2u32 {
        let entries = &method.non_const_buffer_device;
        let entry = entries.iter().find(|d| d.buffer_idx as u32 == arena + 1);
        let stated = entry.map(|d| device(d.device_type, d.device_index));
        assert_eq!(found.arena_device(arena), stated.unwrap_or_default());
    }
    assert_eq!(found.values.len(), method.values.len());
    for (value, found) in method.values.iter().zip(&found.values) {
        match (value, found.as_tensor()) {
            (ValueDraft::Tensor(t), Some(found)) => check_tensor(file, draft, t, found),
            _ => assert_eq!(&expected(value), found),
        }
    }
    check_instructions(&method.chains[0].instructions, &found.instructions);
    assert_eq!(file[found.delegates[0].blob.clone()], *draft.delegate_data[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_written_reads_back(draft in program(), extract_delegate_segments in any::<bool>()) {
        let options = WriteOptions { extract_delegate_segments, ..WriteOptions::default() };
        let file = draft.to_bytes(&options).unwrap();
        let found = ProgramFile::parse(&file).unwrap();
        prop_assert_eq!(found.methods.len(), draft.methods.len());
        for (method, found) in draft.methods.iter().zip(&found.methods) {
            check_method(&file, &draft, method, found);
        }
        prop_assert_eq!(found.named_data.len(), draft.named_data.len());
        for named in &draft.named_data {
            let range = found.named(&named.key).unwrap();
            prop_assert_eq!(&file[range.clone()], &*named.data);
            prop_assert!(named.data.is_empty() || range.start.is_multiple_of(named.alignment as usize));
        }
        prop_assert_eq!(file, draft.to_bytes(&options).unwrap());
    }
}
