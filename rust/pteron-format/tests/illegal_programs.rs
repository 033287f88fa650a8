//! One attack per check of the reader: the error names the place, what was expected and what was found.

mod drafts;
mod wire_tree;

use drafts::{everything, unchecked};
use pteron_core::{Device, ErrorKind};
use pteron_format::ProgramFile;
use pteron_format::write::{
    BufferDeviceDraft, ExtraTensorDraft, InstructionDraft, ProgramDraft, TensorDraft, ValueDraft,
};
use wire_tree::Node;

/// The text of the error that `bytes` give, which must say all of `parts`.
fn refused(what: &str, bytes: &[u8], parts: &[&str]) {
    let error = match ProgramFile::parse(bytes) {
        Ok(_) => panic!("{what}: accepted"),
        Err(e) => e,
    };
    assert_eq!(error.kind(), ErrorKind::Program, "{what}: {error}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{what}: several lines: {text}");
    for part in parts {
        assert!(text.contains(part), "{what}: '{part}' is missing in: {text}");
    }
}

fn attack(what: &str, change: impl Fn(&mut ProgramDraft<'static>), parts: &[&str]) {
    let mut draft = everything();
    change(&mut draft);
    refused(what, &unchecked(&draft), parts);
}

fn attack_tensor(what: &str, index: usize, change: impl Fn(&mut TensorDraft), parts: &[&str]) {
    let place = format!("method 'forward': value {index}: ");
    let parts: Vec<&str> = parts.iter().copied().chain([place.as_str()]).collect();
    attack(
        what,
        |draft| match &mut draft.methods[0].values[index] {
            ValueDraft::Tensor(t) => change(t),
            other => panic!("{other:?}"),
        },
        &parts,
    );
}

fn attack_instruction(what: &str, index: usize, instruction: InstructionDraft, parts: &[&str]) {
    let place = format!("method 'forward', instruction {index}");
    let parts: Vec<&str> = parts.iter().copied().chain([place.as_str()]).collect();
    attack(what, |d| d.methods[0].chains[0].instructions[index] = instruction.clone(), &parts);
}

fn attack_value(what: &str, index: usize, value: ValueDraft, parts: &[&str]) {
    let place = format!("method 'forward': value {index}: ");
    let parts: Vec<&str> = parts.iter().copied().chain([place.as_str()]).collect();
    attack(what, |d| d.methods[0].values[index] = value.clone(), &parts);
}

fn attack_tree(what: &str, change: impl Fn(&mut Node), parts: &[&str]) {
    let mut tree = wire_tree::old_style_add();
    change(&mut tree);
    refused(what, &tree.to_file(), parts);
}

#[test]
fn tensors() {
    attack_tensor("rank", 0, |t| (t.sizes, t.dim_order) = (vec![1; 17], (0..17).collect()), &["dimensions"]);
    attack_tensor("negative", 0, |t| t.sizes[1] = -3, &["negative extent", "got -3"]);
    attack_tensor(
        "overflow",
        0,
        |t| (t.sizes, t.dim_order) = (vec![i32::MAX; 3], vec![0, 1, 2]),
        &["too large"],
    );
    attack_tensor("permutation", 0, |t| t.dim_order = vec![0, 0], &["permutation", "[0, 0]"]);
    attack_tensor("order length", 0, |t| t.dim_order = vec![0], &["dim_order and sizes", "2 entries"]);
    attack_tensor("order rank", 0, |t| t.dim_order = (0..200).collect(), &["permutation"]);
    attack_tensor("offset", 0, |t| t.storage_offset = 4, &["storage_offset 0", "got 4"]);
    attack_tensor("layout", 0, |t| t.layout = 1, &["not dense", "layout 1"]);
    attack_tensor("unbounded", 0, |t| t.shape_dynamism = 2, &["without upper bound", "Dim(max="]);
    attack_tensor("dynamism", 0, |t| t.shape_dynamism = 3, &["unknown shape dynamism", "code 3"]);
    attack_tensor("location", 1, |t| t.extra.as_mut().unwrap().location = 2, &["unknown data location"]);
    attack_tensor(
        "no name",
        17,
        |t| t.extra.as_mut().unwrap().fully_qualified_name = None,
        &["in a data file", "fully_qualified_name"],
    );
}

#[test]
fn every_code_of_every_enumeration() {
    for code in i8::MIN..=i8::MAX {
        let mut draft = everything();
        // A tensor that no memory and no other value ties to its dtype.
        let ValueDraft::Tensor(t) = &mut draft.methods[0].values[17] else { panic!() };
        t.scalar_type = code;
        let is_legal = pteron_core::DType::from_code(code).is_some();
        assert_eq!(ProgramFile::parse(&unchecked(&draft)).is_ok(), is_legal, "dtype {code}");
        dynamism_and_location(code);
    }
}

/// Codes of dynamism and location: legal ones read, others are refused.
fn dynamism_and_location(code: i8) {
    let mut draft = everything();
    let ValueDraft::Tensor(t) = &mut draft.methods[0].values[4] else { panic!() };
    t.shape_dynamism = code;
    assert_eq!(ProgramFile::parse(&unchecked(&draft)).is_ok(), matches!(code, 0 | 1), "dynamism {code}");
    let mut draft = everything();
    let ValueDraft::Tensor(t) = &mut draft.methods[0].values[1] else { panic!() };
    t.extra.as_mut().unwrap().location = code;
    assert_eq!(ProgramFile::parse(&unchecked(&draft)).is_ok(), matches!(code, 0 | 1), "location {code}");
}

#[test]
fn planned_memory() {
    let id = |id| move |t: &mut TensorDraft| t.allocation.as_mut().unwrap().memory_id = id;
    let offset = |offset| move |t: &mut TensorDraft| t.allocation.as_mut().unwrap().offset = offset;
    attack_tensor("memory id 0", 0, id(0), &["arena that does not exist", "1 to 2", "got 0"]);
    attack_tensor("memory id", 0, id(3), &["arena that does not exist", "got 3"]);
    attack_tensor(
        "beyond",
        0,
        offset(236),
        &["does not fit its arena", "256 bytes of arena 1", "offset 236, 24"],
    );
    attack_tensor("wraps", 0, offset(u64::MAX - 3), &["does not fit its arena"]);
    attack_tensor("misaligned", 0, offset(2), &["misaligned", "multiple of 4"]);
    attack("negative arena", |d| d.methods[0].non_const_buffer_sizes[2] = -1, &["arena 2", "got -1"]);
    attack("no arenas", |d| d.methods[0].non_const_buffer_sizes = vec![0], &["arena that does not exist"]);
}

#[test]
fn stored_data() {
    attack_tensor(
        "no such constant",
        1,
        |t| t.data_buffer_idx = 2,
        &["no such constant", "below 2", "got 2"],
    );
    attack_tensor(
        "short constant",
        1,
        |t| t.sizes = vec![4],
        &["larger than its stored data", "16 bytes", "12"],
    );
    attack_tensor("no such initial data", 2, |t| t.data_buffer_idx = 9, &["no such initial data", "got 9"]);
    attack_tensor("short initial data", 2, |t| t.sizes = vec![3], &["larger than its stored data"]);
    attack("no initial data", |d| d.mutable_data.clear(), &["no such initial data", "there is none"]);
}

#[test]
fn lists() {
    attack_value(
        "int list range",
        11,
        ValueDraft::IntList([7, 19].into()),
        &["no such value", "below 19", "got 19"],
    );
    attack_value("int list negative", 11, ValueDraft::IntList([-1].into()), &["no such value", "got -1"]);
    attack_value("int list wide", 11, ValueDraft::IntList([(1 << 32) + 7].into()), &["no such value"]);
    attack_value(
        "int list kind",
        11,
        ValueDraft::IntList([7, 0].into()),
        &["element 1", "value 0 to be int", "Tensor"],
    );
    attack_value("tensor list range", 14, ValueDraft::TensorList([99].into()), &["no such value"]);
    attack_value(
        "tensor list kind",
        14,
        ValueDraft::TensorList([14].into()),
        &["value 14 to be Tensor", "Tensor[]"],
    );
    attack_value(
        "optional range",
        16,
        ValueDraft::OptionalTensorList([Some(-2)].into()),
        &["no such value", "got -2"],
    );
    attack_value(
        "optional kind",
        16,
        ValueDraft::OptionalTensorList([Some(7)].into()),
        &["element 0", "got int"],
    );
}

#[test]
fn instructions() {
    use InstructionDraft::{Delegate, Free, JumpFalse, Kernel, Move};
    attack_instruction("operator", 0, Kernel { operator: 2, args: vec![] }, &["no such operator", "below 2"]);
    attack_instruction("operator -1", 0, Kernel { operator: -1, args: vec![] }, &["no such operator"]);
    attack_instruction(
        "argument",
        0,
        Kernel { operator: 0, args: vec![0, 19] },
        &["aten::add.out", "argument 1"],
    );
    attack_instruction("argument -1", 0, Kernel { operator: 0, args: vec![-1] }, &["argument 0", "got -1"]);
    attack_instruction(
        "delegate",
        2,
        Delegate { delegate: 1, args: vec![] },
        &["no such delegate", "below 1"],
    );
    attack_instruction(
        "delegate argument",
        2,
        Delegate { delegate: 0, args: vec![50] },
        &["argument 0", "50"],
    );
    attack_instruction("move from", 3, Move { from: 19, to: 4 }, &["move, source", "no such value"]);
    attack_instruction("move to", 3, Move { from: 15, to: -4 }, &["move, target", "got -4"]);
    attack_instruction(
        "move kind",
        3,
        Move { from: 7, to: 4 },
        &["move of value 7 into value 4", "Tensor", "int"],
    );
    attack_instruction("move dtype", 3, Move { from: 5, to: 17 }, &["float32", "bool"]);
    attack_instruction("move rank", 3, Move { from: 17, to: 4 }, &["2 dimensions", "1 dimensions"]);
    attack_instruction(
        "condition",
        1,
        JumpFalse { condition: 19, destination: 0 },
        &["condition", "no such value"],
    );
    attack_instruction(
        "condition kind",
        1,
        JumpFalse { condition: 7, destination: 0 },
        &["a bool", "got int"],
    );
    attack_instruction(
        "condition dtype",
        1,
        JumpFalse { condition: 4, destination: 0 },
        &["Tensor of float32"],
    );
    attack_instruction("jump", 1, JumpFalse { condition: 8, destination: 8 }, &["0 to 7", "got 8"]);
    attack_instruction("jump back", 1, JumpFalse { condition: 8, destination: -1 }, &["got -1"]);
    attack_instruction("free", 6, Free { value: 77 }, &["free", "no such value"]);
    attack_instruction("free kind", 6, Free { value: 7 }, &["no memory", "got int"]);
}

#[test]
fn methods() {
    attack("input", |d| d.methods[0].inputs[1] = 19, &["method 'forward'", "input 1", "no such value"]);
    attack("output", |d| d.methods[0].outputs[0] = -1, &["output 0", "no such value"]);
    attack("list as input", |d| d.methods[0].inputs[0] = 14, &["input 0 is a list", "value 14", "Tensor[]"]);
    attack("list as output", |d| d.methods[0].outputs[0] = 12, &["output 0 is a list", "float[]"]);
    attack("no chain", |d| d.methods[0].chains.clear(), &["number of chains", "exactly 1", "got 0"]);
    attack("two chains", |d| d.methods[0].chains.push(Default::default()), &["exactly 1", "got 2"]);
    attack("twice", |d| d.methods.push(d.methods[0].clone()), &["same name", "forward"]);
    attack("version", |d| d.version = 1, &["version", "expected 0", "got 1"]);
    attack("named twice", |d| d.named_data[1].key = "pteron.interface".to_owned(), &["same key"]);
    attack(
        "escapes",
        |d| (d.methods[0].name, d.methods[0].inputs[0]) = ("a\u{1b}[31m\u{202e}".to_owned(), 99),
        &["a\\u{1b}[31m\\u{202e}"],
    );
}

#[test]
fn missing_fields() {
    for (path, id, name) in [
        (&[][..], 1, "execution_plan"),
        (&[1, 0], 0, "name"),
        (&[1, 0], 2, "values"),
        (&[1, 0], 3, "inputs"),
        (&[1, 0], 4, "outputs"),
        (&[1, 0], 5, "chains"),
        (&[1, 0], 8, "non_const_buffer_sizes"),
        (&[1, 0, 2, 0, 1], 2, "sizes"),
        (&[1, 0, 2, 0, 1], 3, "dim_order"),
        (&[1, 0, 5, 0], 2, "instructions"),
        (&[1, 0, 5, 0, 2, 0, 1], 1, "args"),
        (&[1, 0, 6, 0], 0, "name"),
    ] {
        attack_tree(name, |t| t.at(path).remove(id), &["required field", &format!("'{name}'"), "missing"]);
    }
    // Lists and strings without which a value has no meaning.
    for (kind, name) in
        [(6, "string_val"), (7, "items"), (8, "items"), (9, "items"), (10, "items"), (11, "items")]
    {
        attack_tree(
            name,
            |t| *t.at(&[1, 0, 2, 2]) = wire_tree::value(kind, vec![]),
            &["value 2", name, "missing"],
        );
    }
    // A union whose type is there and whose table is not, which the structure check already refuses.
    attack_tree("no value", |t| t.at(&[1, 0, 2, 2]).remove(1), &["damaged"]);
    attack_tree("no kind", |t| *t.at(&[1, 0, 2, 2]) = Node::Table(vec![]), &["value 2", "no kind"]);
    attack_tree(
        "no call",
        |t| *t.at(&[1, 0, 5, 0, 2, 0]) = Node::Table(vec![]),
        &["instruction 0", "no kind"],
    );
}

#[test]
fn unknown_kinds() {
    for code in 12..=255 {
        attack_tree(
            "kind of value",
            |t| *t.at(&[1, 0, 2, 2, 0]) = Node::U8(code),
            &["value 2", "unknown kind"],
        );
    }
    for code in 6..=255 {
        let parts = ["instruction 0", "unknown kind"];
        attack_tree("kind of instruction", |t| *t.at(&[1, 0, 5, 0, 2, 0, 0]) = Node::U8(code), &parts);
    }
    let tensor = [1, 0, 2, 0, 1];
    let extra = |id, code| (9, Node::Table(vec![(id, Node::I8(code))]));
    let add = |t: &mut Node, (id, node): (u16, Node)| t.at(&tensor).insert(id, node);
    attack_tree("device", |t| add(t, extra(3, 5)), &["value 0", "unknown device type", "code 5"]);
}

#[test]
fn devices() {
    let extra = |device_type, device_index| {
        move |t: &mut TensorDraft| {
            t.extra = Some(ExtraTensorDraft { device_type, device_index, ..ExtraTensorDraft::default() });
        }
    };
    attack_tensor("type", 0, extra(2, 0), &["unknown device type", "code 2"]);
    attack_tensor("type", 0, extra(-1, 0), &["unknown device type", "code -1"]);
    attack_tensor("index", 0, extra(1, -1), &["index of a device is negative", "0 to 127", "got -1"]);
    let arenas = |devices: &[(i32, i8, i8)]| {
        let entries: Vec<_> = devices
            .iter()
            .map(|(buffer_idx, device_type, device_index)| BufferDeviceDraft {
                buffer_idx: *buffer_idx,
                device_type: *device_type,
                device_index: *device_index,
            })
            .collect();
        move |d: &mut ProgramDraft<'static>| d.methods[0].non_const_buffer_device = entries.clone()
    };
    let entry = |n: usize| format!("method 'forward': entry {n} of non_const_buffer_device: ");
    attack("type", arenas(&[(1, 1, 0), (2, 7, 0)]), &[&entry(1), "unknown device type", "code 7"]);
    attack("index", arenas(&[(1, 1, -128)]), &[&entry(0), "index of a device is negative", "got -128"]);
    for id in [0, 3, -1, i32::MIN, i32::MAX] {
        let got = format!("got {id}");
        attack("arena", arenas(&[(id, 1, 0)]), &[&entry(0), "no such arena", "from 1 to 2", &got]);
    }
    attack("CPU", arenas(&[(3, 0, 0)]), &[&entry(0), "no such arena"]);
    attack("twice", arenas(&[(2, 1, 0), (1, 1, 0), (2, 1, 1)]), &["several entries", "buffer_idx 2 again"]);
    attack("twice", arenas(&[(1, 0, 0), (1, 0, 0)]), &["several entries", "buffer_idx 1 again"]);
    let none = |d: &mut ProgramDraft<'static>| {
        d.methods[0].values = vec![ValueDraft::None];
        d.methods[0].non_const_buffer_sizes = vec![0];
        arenas(&[(1, 1, 0)])(d);
    };
    attack("no arena", none, &[&entry(0), "no such arena", "there is no arena"]);
}

#[test]
fn entry_0_of_the_devices_may_say_that_it_is_the_cpu() {
    let mut draft = everything();
    let entry = |buffer_idx, device_type| BufferDeviceDraft { buffer_idx, device_type, device_index: 1 };
    draft.methods[0].non_const_buffer_device = vec![entry(0, 0), entry(1, 0), entry(2, 1)];
    let file = ProgramFile::parse(&unchecked(&draft)).unwrap();
    assert_eq!(file.methods[0].arena_devices, [(1, Device::Cuda(1))]);
}

#[test]
fn delegates() {
    let delegate = |location: i8, index: u32| {
        let place = Node::Table(vec![(0, Node::I8(location)), (1, Node::U32(index))]);
        Node::Table(vec![(0, Node::Text("X")), (1, place)])
    };
    let set = |t: &mut Node, node: Node| *t.at(&[1, 0, 7]) = Node::Tables(vec![node]);
    attack_tree("inline", |t| set(t, delegate(0, 0)), &["delegate 0", "no such inline blob"]);
    attack_tree("segment", |t| set(t, delegate(1, 3)), &["delegate 0", "no such segment", "got 3"]);
    attack_tree("location", |t| set(t, delegate(7, 0)), &["delegate 0", "unknown location", "code 7"]);
    attack_tree(
        "no place",
        |t| set(t, Node::Table(vec![(0, Node::Text("X"))])),
        &["delegate 0", "'processed'"],
    );
    attack_tree("no id", |t| set(t, Node::Table(vec![])), &["delegate 0", "'id'"]);
}

#[test]
fn segments_without_header() {
    let segment = |size| Node::Tables(vec![Node::Table(vec![(0, Node::U64(0)), (1, Node::U64(size))])]);
    attack_tree("no header", |t| t.insert(4, segment(4)), &["segment 0", "no header"]);
    let place = |segment, offsets: &[u64]| {
        Node::Table(vec![(0, Node::U32(segment)), (1, Node::U64s(offsets.to_vec()))])
    };
    attack_tree("two ways", |t| t.insert(5, place(0, &[0, 0])), &["two ways", "constant_buffer"]);
    attack_tree(
        "no segment",
        |t| {
            t.remove(2);
            t.insert(5, place(4, &[0, 0]));
        },
        &["constant_segment", "no such segment", "got 4"],
    );
    attack_tree(
        "beyond",
        |t| {
            t.remove(2);
            t.insert(4, segment(0));
            t.insert(5, place(0, &[0, 1]));
        },
        &["constant_segment", "entry 1 begins outside", "at most 0", "got 1"],
    );
    attack_tree(
        "several",
        |t| t.insert(6, Node::Tables(vec![place(0, &[0]), place(0, &[0])])),
        &["mutable_data_segments", "several"],
    );
    let named = Node::Tables(vec![Node::Table(vec![(0, Node::Text("k")), (1, Node::U32(2))])]);
    attack_tree("named", |t| t.insert(7, named.clone()), &["named data 'k'", "no such segment"]);
    let named = Node::Tables(vec![Node::Table(vec![(1, Node::U32(0))])]);
    attack_tree("no key", |t| t.insert(7, named.clone()), &["named data 0", "'key'"]);
}

/// Byte positions of the extended header's fields.
const LENGTH: usize = 12;
const PROGRAM_SIZE: usize = 16;
const SEGMENT_BASE: usize = 24;
const SEGMENT_SIZE: usize = 32;

#[test]
fn extended_header() {
    let legal = unchecked(&everything());
    let attack = |what: &str, at: usize, value: u64, parts: &[&str]| {
        let mut bytes = legal.clone();
        let width = if at == LENGTH { 4 } else { 8 };
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        refused(what, &bytes, parts);
    };
    let len = legal.len() as u64;
    let base = u64::from_le_bytes(legal[SEGMENT_BASE..SEGMENT_SIZE].try_into().unwrap());
    attack("short header", LENGTH, 23, &["header is too short", "24 bytes", "23 bytes"]);
    attack("program beyond", PROGRAM_SIZE, len + 1, &["program table", "beyond the end of the file"]);
    attack("program huge", PROGRAM_SIZE, u64::MAX, &["program table", "beyond"]);
    attack("program small", PROGRAM_SIZE, 12, &["damaged"]);
    attack("base beyond", SEGMENT_BASE, len + 1, &["segment base", "beyond"]);
    attack("base inside", SEGMENT_BASE, 64, &["overlap the program table"]);
    attack("base shifted", SEGMENT_BASE, base + 128, &["segment data", "beyond"]);
    attack("no base", SEGMENT_BASE, 0, &["no place for it"]);
    attack("size beyond", SEGMENT_SIZE, len, &["segment data", "beyond"]);
    attack("size huge", SEGMENT_SIZE, u64::MAX, &["segment data", "beyond"]);
    attack("size small", SEGMENT_SIZE, 1, &["segment 0", "range within 1 bytes"]);
}

/// Headers of old writers have no segment size; each segment is still checked against the file.
#[test]
fn a_header_without_segment_size() {
    let mut bytes = unchecked(&everything());
    bytes[LENGTH..LENGTH + 4].copy_from_slice(&24u32.to_le_bytes());
    bytes[SEGMENT_SIZE..SEGMENT_SIZE + 8].fill(0);
    assert!(ProgramFile::parse(&bytes).is_ok());
    bytes.truncate(bytes.len() - 1);
    refused("cut", &bytes, &["segment", "a range within"]);
}

#[test]
fn strings_that_are_not_utf8() {
    let legal = wire_tree::old_style_add().to_file();
    let at = legal.windows(9).position(|w| w == b"aten::add").unwrap();
    let mut bytes = legal;
    bytes[at] = 0xff;
    refused("not UTF-8", &bytes, &["damaged"]);
}

#[test]
fn misaligned_constants() {
    let mut draft = everything();
    draft.constants.insert(1, drafts::blob([1]));
    let ValueDraft::Tensor(t) = &mut draft.methods[0].values[1] else { panic!() };
    t.data_buffer_idx = 2;
    let options = pteron_format::write::WriteOptions {
        constant_tensor_alignment: 1,
        verify: false,
        ..Default::default()
    };
    refused("misaligned", &draft.to_bytes(&options).unwrap(), &["value 1", "misaligned", "multiple of 4"]);
}
