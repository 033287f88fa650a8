//! Programs that keep tensors in data files.

use crate::{forward, run_one};
use pteron_core::{DType, Error, ErrorKind};
use pteron_format::write::{DataEntryDraft, DataFileDraft, ExtraTensorDraft, LayoutDraft, ValueDraft};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{DataSource, Limits, MethodOptions, Program, ProgramSource};
use std::sync::Arc;

fn external(m: &mut MethodBuilder, id: i32, name: &str) {
    let ValueDraft::Tensor(t) = &mut m.draft.values[id as usize] else { unreachable!() };
    let name = Some(name.to_owned());
    t.extra = Some(ExtraTensorDraft { fully_qualified_name: name, location: 1, ..Default::default() });
}

/// state += x; y = state + w, with the first state and w outside; and a method that needs nothing.
fn program() -> Vec<u8> {
    let mut m = MethodBuilder::new("forward");
    let (x, w, y) = (m.unplanned(&[2]), m.unplanned(&[2]), m.planned(&[2]));
    let state = m.planned(&[2]);
    external(&mut m, w, "w");
    external(&mut m, state, "state");
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(state, x, state);
    m.add(state, w, y);
    let mut plain = MethodBuilder::new("plain");
    let (a, b) = (plain.unplanned(&[2]), plain.planned(&[2]));
    plain.inputs(&[a]);
    plain.outputs(&[b]);
    plain.add(a, a, b);
    let mut program = ProgramBuilder::of(m).with(plain);
    program.named("shared", b"beside");
    program.bytes()
}

fn tensor(key: &str, data: &[f32]) -> DataEntryDraft<'static> {
    let layout = Some(LayoutDraft::contiguous(DType::Float32, &[data.len()]).unwrap());
    DataEntryDraft { key: key.into(), data: bytemuck::cast_slice(data).to_vec().into(), alignment: 1, layout }
}

fn blob(key: &str, data: &'static [u8]) -> DataEntryDraft<'static> {
    DataEntryDraft { key: key.into(), data: data.into(), alignment: 1, layout: None }
}

fn file(name: &str, entries: Vec<DataEntryDraft<'_>>) -> DataSource {
    let bytes = DataFileDraft { entries }.lay_out(128).unwrap().to_bytes().unwrap();
    DataSource { source: ProgramSource::Bytes(Arc::new(bytes)), name: name.into() }
}

fn load(data: Vec<DataSource>) -> pteron_core::Result<Arc<Program>> {
    let source = ProgramSource::Bytes(Arc::new(program()));
    Program::load_with_data(&runtime(), source, data, Limits::default())
}

/// What the first use of `forward` says.
fn refused(data: Vec<DataSource>) -> Error {
    let program = load(data).unwrap();
    assert!(program.load_method("plain", MethodOptions::default()).is_ok(), "it needs no data");
    let error = program.load_method("forward", MethodOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ExternalData);
    error
}

#[test]
fn tensors_come_from_several_files_by_name() {
    let data = vec![
        file("a.ptd", vec![tensor("w", &[10.0, 20.0])]),
        file("b.ptd", vec![tensor("state", &[1.0, 2.0])]),
    ];
    let method = forward(&load(data).unwrap());
    let x: (&[usize], &[f32]) = (&[2], &[1.0, 1.0]);
    assert_eq!(run_one(&method, &[x]), [12.0, 23.0]);
    assert_eq!(run_one(&method, &[x]), [13.0, 24.0]);
    method.reset_state().unwrap();
    assert_eq!(run_one(&method, &[x]), [12.0, 23.0]);
}

#[test]
fn what_is_missing_is_named() {
    let text = refused(vec![]).to_string();
    for part in ["'state', 'w'", "got no data file", "load(program, data=[...])", "method 'forward'"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = refused(vec![file("a.ptd", vec![tensor("w", &[1.0, 2.0])])]).to_string();
    assert!(text.contains("expected 1 tensors: 'state'; got 'a.ptd' (1 entries)"), "{text}");
}

#[test]
fn another_tensor_is_refused() {
    let state = || tensor("state", &[0.0, 0.0]);
    let text = refused(vec![file("a.ptd", vec![tensor("w", &[1.0, 2.0, 3.0]), state()])]).to_string();
    for part in ["'a.ptd'", "'w'", "expected float32[2]", "got float32[3]", "written together"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut integers = tensor("w", &[1.0, 2.0]);
    integers.layout = Some(LayoutDraft::contiguous(DType::Int32, &[2]).unwrap());
    let text = refused(vec![file("a.ptd", vec![integers, state()])]).to_string();
    assert!(text.contains("got int32[2]"), "{text}");
    let text = refused(vec![file("a.ptd", vec![blob("w", b"12345678"), state()])]).to_string();
    assert!(text.contains("no tensor under the key") && text.contains("8 plain bytes"), "{text}");
}

#[test]
fn a_key_stands_for_one_thing() {
    let w = || tensor("w", &[1.0, 2.0]);
    let again = vec![file("a.ptd", vec![w()]), file("b.ptd", vec![w(), tensor("state", &[0.0, 0.0])])];
    assert_eq!(run_one(&forward(&load(again).unwrap()), &[(&[2], &[0.0, 0.0])]), [1.0, 2.0]);
    let error = load(vec![file("a.ptd", vec![w()]), file("b.ptd", vec![tensor("w", &[1.0, 3.0])])]);
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ExternalData);
    assert!(error.to_string().contains("'w' in 'a.ptd' and in 'b.ptd'"), "{error}");
    let error = load(vec![file("a.ptd", vec![blob("shared", b"other!")])]).err().unwrap();
    assert!(error.to_string().contains("'shared' in the program and in 'a.ptd'"), "{error}");
}

#[test]
fn named_data_of_all_files_are_one() {
    let data = vec![file("a.ptd", vec![blob("extra", b"outside"), blob("shared", b"beside")])];
    let program = load(data).unwrap();
    assert_eq!(program.named_data_keys(), ["extra", "shared"]);
    assert_eq!(program.named_data("extra"), Some(&b"outside"[..]));
    assert_eq!(program.named_data("shared"), Some(&b"beside"[..]));
}

#[test]
fn damaged_and_missing_files_say_which() {
    let broken = DataSource { source: ProgramSource::Bytes(Arc::new(program())), name: "x.ptd".into() };
    let error = load(vec![broken]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ExternalData);
    assert!(error.to_string().contains("data file 'x.ptd'"), "{error}");
    let path = "no/such/weights.ptd";
    let missing =
        DataSource { source: ProgramSource::File { path: path.into(), is_mapped: true }, name: path.into() };
    let error = load(vec![missing]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(path), "{error}");
}

#[test]
fn a_mapped_file_is_used_in_place() {
    let entries = vec![tensor("w", &[10.0, 20.0]), tensor("state", &[1.0, 2.0])];
    let bytes = DataFileDraft { entries }.lay_out(4096).unwrap().to_bytes().unwrap();
    let path = std::env::temp_dir().join(format!("pteron-data-{}.ptd", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    for is_mapped in [true, false] {
        let source = ProgramSource::File { path: path.clone(), is_mapped };
        let data = vec![DataSource { source, name: "w.ptd".into() }];
        assert_eq!(run_one(&forward(&load(data).unwrap()), &[(&[2], &[1.0, 1.0])]), [12.0, 23.0]);
    }
    std::fs::remove_file(path).unwrap();
}
