//! Splicing, with a translator of the tests' own: the payload says what becomes of it.

use super::{ExpandInput, Expanded, Translate, expand};
use crate::Limits;
use crate::ir::{ConstantRef, MethodIr, Placement};
use crate::load::external_file::ExternalFiles;
use crate::load::lower::lower;
use crate::load::program_data::ProgramData;
use crate::load::storage::Storage;
use crate::step_effects::ByteRegion;
use pteron_core::{
    AlignedBuffer, DType, Dims, Error, ErrorKind, Instruction, NamedData, PackStore, Result, TensorSpec,
    Value, ValueId,
};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder};
use pteron_xnnpack::{ConstantBytes, ExpandedConstant, ExpandedTensor, Expansion, OperatorCall};
use std::sync::Arc;

const BACKEND: &str = "Test";

/// `relus`: three of them, through two tensors within. `weight` or `across`: adds the named weight `w`, as it is or
/// transposed. `@`: adds the bytes behind it. `computed`: adds a computed weight. `cat`: the argument twice, in a list. `views`: reshapes within, and to
/// the output. `two`: a call of two outputs.
fn translate(payload: &[u8], args: &[Option<TensorSpec>], named: &dyn NamedData) -> Result<Expansion> {
    let mut made = Expansion::default();
    let mut value = |v: Value<ExpandedTensor, usize>| {
        made.values.push(v);
        made.values.len() - 1
    };
    let [Some(spec), Some(_)] = args else { return Err(Error::program("two tensors").debug_handle(7)) };
    let (x, y) = (value(ExpandedTensor::Argument(0).into()), value(ExpandedTensor::Argument(1).into()));
    let mut calls: Vec<(&'static str, Vec<usize>, Vec<usize>)> = vec![];
    let constant = |strides: &[usize], bytes: ConstantBytes| {
        let (shape, strides) = (spec.shape, Dims::new(strides).unwrap());
        ExpandedTensor::Constant(ExpandedConstant { dtype: DType::Float32, shape, strides, bytes })
    };
    let mut add = |w: ExpandedTensor| {
        let (w, one) = (value(w.into()), value(Value::Int(1)));
        vec![("aten::add.out", vec![x, w, one], vec![y])]
    };
    match payload {
        b"relus" => {
            let [a, b] = [0, 1].map(|_| value(ExpandedTensor::Intermediate(spec.clone()).into()));
            calls.extend([(x, a), (a, b), (b, y)].map(|(from, to)| ("aten::relu.out", vec![from], vec![to])));
        }
        b"weight" | b"across" => {
            let key = if named.get("w").is_some() { "w" } else { "missing" };
            let strides = if payload == b"weight" { [2, 1] } else { [1, 2] };
            calls = add(constant(&strides, ConstantBytes::Named(key.into())));
        }
        [b'@', ..] => calls = add(constant(&[2, 1], ConstantBytes::Payload(1..17))),
        b"computed" => {
            let bytes = Arc::new(AlignedBuffer::copy_of(&[1; 16]).unwrap());
            calls = add(constant(&[2, 1], ConstantBytes::Computed(bytes)));
        }
        b"views" => {
            let row = TensorSpec::contiguous(DType::Float32, &[4]).unwrap();
            let [a, b, c] =
                [spec.clone(), row.clone(), row].map(|s| value(ExpandedTensor::Intermediate(s).into()));
            let four = value(Value::Int(4));
            let sizes = value(Value::IntList(Arc::from([four])));
            calls.push(("aten::relu.out", vec![x], vec![a]));
            calls.push(("aten::view_copy.out", vec![a, sizes], vec![b]));
            calls.push(("aten::relu.out", vec![b], vec![c]));
            calls.push(("aten::view_copy.out", vec![c, sizes], vec![y]));
        }
        b"two" => {
            let index = TensorSpec { dtype: DType::Int64, ..spec.clone() };
            let [k, at, no] = [Value::Int(1), ExpandedTensor::Intermediate(index).into(), Value::Bool(true)]
                .map(&mut value);
            calls.push(("aten::max.dim_max", vec![x, k, no], vec![y, at]));
        }
        b"cat" => {
            // The list stands before its member.
            let members = Arc::from([0, 0]);
            let (list, dim) = (value(Value::TensorList(members)), value(Value::Int(0)));
            calls.push(("aten::cat.out", vec![list, dim], vec![y]));
        }
        _ => return Err(Error::program("node 3: a kind that nobody knows").debug_handle(7)),
    }
    for (node, (operator, inputs, outputs)) in calls.into_iter().enumerate() {
        made.calls.push(OperatorCall { operator, inputs, outputs, node, debug_handle: 40 + node as u32 });
    }
    Ok(made)
}

/// A method of delegate calls, one payload each, `x` to `y` and back.
fn program(payloads: &[&str]) -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.planned(&[2, 2]), m.planned(&[2, 2]));
    for at in 0..payloads.len() {
        let args = if at % 2 == 0 { [x, y] } else { [y, x] };
        m.delegate(BACKEND, at as u32, &args);
    }
    m.inputs(&[x]);
    m.outputs(&[y]);
    let mut p = ProgramBuilder::of(m);
    payloads.iter().for_each(|payload| {
        p.blob(payload.as_bytes());
    });
    p
}

struct Spliced {
    ir: MethodIr,
    expanded: Expanded,
    data: Arc<ProgramData>,
}

fn try_splice(p: &ProgramBuilder, limits: Limits) -> Result<Spliced> {
    let storage = Storage::borrow(Arc::new(p.bytes())).unwrap();
    let data = Arc::new(ProgramData::new(storage, ExternalFiles::default()).unwrap());
    let mut ir = lower(&data.file().methods[0], &data).unwrap();
    let packs = PackStore::new();
    let translator = |backend: &str| (backend == BACKEND).then_some(translate as Translate);
    let input = ExpandInput { data: &data, packs: &packs, limits: &limits, translator: &translator };
    let expanded = expand(&mut ir, input)?;
    Ok(Spliced { ir, expanded, data })
}

fn splice(p: &ProgramBuilder) -> Spliced {
    try_splice(p, Limits::default()).unwrap()
}

impl Spliced {
    fn args(&self, instruction: usize) -> &[ValueId] {
        let Instruction::Kernel { args, .. } = &self.ir.instructions[instruction] else {
            panic!("no kernel call")
        };
        args
    }

    /// Where the constant that argument 1 of an instruction is has its bytes.
    fn weight(&self, instruction: usize) -> ConstantRef {
        match &self.ir.tensor(self.args(instruction)[1]).unwrap().placement {
            Placement::Constant(place) => *place,
            other => panic!("no constant: {other:?}"),
        }
    }

    fn names(&self) -> Vec<String> {
        (0..=self.ir.instructions.len() as u32).map(|i| self.expanded.origins.of(i).to_string()).collect()
    }
}

#[test]
fn calls_take_the_place_of_the_instruction_and_know_where_they_come_from() {
    let s = splice(&program(&["relus", "cat"]));
    assert_eq!(s.names(), ["0.0", "0.1", "0.2", "1.0", "2"]);
    assert_eq!(s.ir.operators, ["aten::relu.out", "aten::cat.out"]);
    assert!(s.expanded.has(0) && s.expanded.has(1) && !s.expanded.has(2));
    let (x, y) = (ValueId(0), ValueId(1));
    assert_eq!((s.args(0)[0], s.args(2)[1], s.args(3)[2]), (x, y, x));
    let Value::TensorList(members) = s.ir.value(s.args(3)[0]).unwrap() else { panic!("no list") };
    assert_eq!(**members, [y, y]);
    let part = s.expanded.origins.of(1).part.unwrap();
    assert_eq!((part.delegate, part.node, part.handle), (0, 1, 41));
}

#[test]
fn jumps_lead_where_they_led() {
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.planned(&[2, 2]), m.planned(&[2, 2]));
    let no = m.bool(false);
    let over = m.jump_false(no, 0);
    m.delegate(BACKEND, 0, &[x, y]);
    let back = m.jump_false(no, 0);
    m.delegate(BACKEND, 0, &[x, y]);
    let end = m.jump_false(no, 0);
    [(over, 3), (back, 1), (end, 5)].into_iter().for_each(|(jump, to)| m.land(jump, to));
    let mut p = ProgramBuilder::of(m);
    p.blob(b"relus");
    let s = splice(&p);
    let jumps = s.ir.instructions.iter().filter_map(|i| match i {
        Instruction::JumpFalse { destination, .. } => Some(*destination),
        _ => None,
    });
    assert_eq!(jumps.collect::<Vec<_>>(), [5, 1, 9]);
    assert_eq!(s.names(), ["0", "1.0", "1.1", "1.2", "2", "3.0", "3.1", "3.2", "4", "5"]);
}

#[test]
fn delegates_work_in_turn_in_one_place_behind_the_files() {
    let s = splice(&program(&["relus", "relus"]));
    let place = |instruction, argument| ByteRegion::of(&s.ir, s.args(instruction)[argument]).unwrap();
    let (a, b) = (place(0, 1), place(1, 1));
    assert!(a.start >= 128 && b.start >= 128 && !a.overlaps(&b), "{a:?} {b:?}");
    assert_eq!((place(3, 1), place(4, 1)), (a, b));
    assert_eq!(s.ir.arenas, [128 + 2 * 64]);
}

#[test]
fn reshapes_within_are_views_and_lie_where_their_base_does() {
    let s = splice(&program(&["views"]));
    let operators = s.ir.instructions.iter().map(|i| match i {
        Instruction::Kernel { operator, .. } => s.ir.operators[*operator as usize].as_str(),
        _ => "",
    });
    let view = pteron_cpu::graph::ET_VIEW;
    assert_eq!(
        operators.collect::<Vec<_>>(),
        ["aten::relu.out", view, "aten::relu.out", "aten::view_copy.out"]
    );
    assert_eq!(s.args(1).len(), 3);
    let place = |instruction, argument| ByteRegion::of(&s.ir, s.args(instruction)[argument]).unwrap();
    assert_eq!(place(0, 1), place(1, 2));
    assert!(!place(2, 1).overlaps(&place(2, 0)), "the view is read when its base is long written");
}

#[test]
fn two_outputs_are_returned_in_a_list() {
    let s = splice(&program(&["two"]));
    let (y, at, list) = (s.args(0)[3], s.args(0)[4], s.args(0)[5]);
    let Some(Value::TensorList(members)) = s.ir.value(list) else { panic!("no list") };
    assert_eq!((s.args(0).len(), &**members), (6, &[y, at][..]));
}

#[test]
fn weights_are_views_of_the_file_and_one_value_for_all_who_have_them() {
    let mut p = program(&["weight", "across", "weight"]);
    let bytes: Vec<u8> = (0..16).collect();
    p.draft.named_data.push(pteron_format::write::NamedDataDraft {
        key: "w".into(),
        data: bytes.clone().into(),
        alignment: 16,
    });
    let s = splice(&p);
    assert_eq!(s.args(0)[1], s.args(2)[1]);
    let ConstantRef::Stored(key) = s.weight(0) else { panic!("not as stored") };
    assert_eq!(s.data.constant(&key).unwrap(), bytes);
    let ConstantRef::Folded(index) = s.weight(1) else { panic!("as stored") };
    let view = &s.expanded.folded[index as usize];
    assert_eq!((view.key, &*view.strides, view.data.is_none()), (key, &[1usize, 2][..], true));
    assert!(s.expanded.origins.of(0).part.is_some());
}

#[test]
fn computed_weights_and_those_at_odd_places_have_bytes_of_their_own() {
    let p = program(&["@2222222222222222", "computed"]);
    let s = splice(&p);
    let bytes = |instruction| match s.weight(instruction) {
        ConstantRef::Folded(index) => {
            s.expanded.folded[index as usize].data.as_ref().map(|data| data.as_slice().to_vec())
        }
        ConstantRef::Stored(_) => None,
    };
    assert_eq!((bytes(0), bytes(1)), (Some(vec![b'2'; 16]), Some(vec![1; 16])));
}

#[test]
fn refusals_say_which_delegate_and_which_line_of_the_model() {
    let debug = r#"{"version":1,"files":["m.py"],"methods":{"forward":{"instructions":[],"handles":{},
        "delegates":{"1":{"handles":{"7":{"operator":"aten.tan.default","module":"head","file":0,"line":9}}}}}}}"#;
    let mut p = program(&["relus", "nonsense"]);
    p.named(pteron_format::DEBUG_KEY, debug.as_bytes());
    let e = try_splice(&p, Limits::default()).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Program);
    let text = e.to_string();
    for part in [
        "method 'forward', instruction 1",
        "backend Test",
        "aten.tan.default",
        "m.py:9 (head)",
        "delegate 1 of the method: node 3",
        "debug handle is: 7",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let e = try_splice(&program(&["weight"]), Limits::default()).err().unwrap();
    assert!(e.kind() == ErrorKind::ExternalData && e.to_string().contains("missing"), "{e}");
}

#[test]
fn an_output_in_the_memory_of_another_argument_is_refused() {
    let one_call = |places: [u64; 2]| {
        let mut m = MethodBuilder::new("forward");
        let [x, y] = places.map(|place| m.planned_at(&[2, 2], place));
        m.delegate(BACKEND, 0, &[x, y]);
        m.inputs(&[x]);
        m.outputs(&[y]);
        let mut p = ProgramBuilder::of(m);
        p.blob(b"relus");
        try_splice(&p, Limits::default())
    };
    for places in [[0, 0], [0, 8], [8, 0]] {
        let e = one_call(places).err().unwrap();
        let text = e.to_string();
        assert_eq!(e.kind(), ErrorKind::Program);
        assert!(text.contains("lets an output overlap an input") && text.contains("backend Test"), "{text}");
        assert!(text.contains("values 0 and 1") || text.contains("values 1 and 0"), "{text}");
    }
    assert!(one_call([16, 0]).is_ok());
}

#[test]
fn values_and_calls_of_delegates_count() {
    let most = |n| Limits { values: Some(n), ..Limits::default() };
    let p = program(&["relus"]);
    assert_eq!(try_splice(&p, most(4)).unwrap().expanded.counts, Some((4, 3)));
    let e = try_splice(&p, most(3)).err().unwrap();
    assert!(e.kind() == ErrorKind::LimitExceeded && e.to_string().contains("limits.values"), "{e}");
}
