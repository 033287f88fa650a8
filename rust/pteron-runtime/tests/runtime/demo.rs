//! The demo backends in Rust.

use crate::{forward, run, run_one};
use pteron_core::{CompileSpec, ErrorKind};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{MethodOptions, Runtime};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const NAME: &str = "BackendWithCompilerDemo";

fn with_demo() -> Arc<Runtime> {
    let runtime = runtime();
    pteron_demo::register(&runtime).unwrap();
    assert_eq!(
        runtime.backend_names(),
        [NAME, "BackendWithDelegateMappingDemo", "ExecutorBackend", "XnnpackBackend"]
    );
    runtime
}

fn blob(operators: &[(&str, i64)]) -> String {
    let mut out = format!("{}version:0#", operators.len());
    for (operator, handle) in operators {
        out += &format!("op:demo::{operator}, numel:1, dtype:torch.float32<debug_handle>{handle}#");
    }
    out
}

fn program(blob: &str, shapes: &[&[usize]], out: &[usize]) -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let index = p.blob(blob.as_bytes());
    let mut m = MethodBuilder::new("forward");
    let mut args: Vec<i32> = shapes.iter().map(|s| m.unplanned(s)).collect();
    m.inputs(&args);
    let y = m.planned(out);
    m.outputs(&[y]);
    args.push(y);
    m.delegate(NAME, index, &args);
    p.with(m)
}

fn wire(p: &mut ProgramBuilder, blob: &str, wiring: &str) {
    let digest: String = Sha256::digest(blob.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    p.named(&format!("demo.wiring.{digest}"), wiring.as_bytes());
}

#[test]
fn blobs_without_wiring_sin_add_mm_and_mm_add() {
    let runtime = with_demo();
    let sin = forward(&program(&blob(&[("aten.sin.default", 1)]), &[&[1]], &[1]).load(&runtime));
    let out = run_one(&sin, &[(&[1], &[1.0])]);
    assert!((out[0] - 0.833_333_3).abs() < 1e-6, "{out:?}");
    let add = forward(&program(&blob(&[("aten.add.Tensor", 1)]), &[&[2], &[2]], &[2]).load(&runtime));
    assert_eq!(run_one(&add, &[(&[2], &[1.0, 2.0]), (&[2], &[10.0, 20.0])]), [11.0, 22.0]);
    let text = blob(&[("aten.mm.default", 1), ("aten.add.Tensor", 2)]);
    let both = forward(&program(&text, &[&[2, 3], &[3, 2], &[2]], &[2, 2]).load(&runtime));
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let out = run_one(&both, &[(&[2, 3], &a), (&[3, 2], &a), (&[2], &[100.0, 200.0])]);
    assert_eq!(out, [122.0, 228.0, 149.0, 264.0]);
}

#[test]
fn wiring_decides_where_the_blob_does_not() {
    // (x + y) + x and (x + y) + y are the same blob.
    let text = blob(&[("aten.add.Tensor", 1), ("aten.add.Tensor", 2)]);
    let runtime = with_demo();
    let bare = program(&text, &[&[1], &[1]], &[1]);
    let e = bare.load(&runtime).load_method("forward", MethodOptions::default()).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    assert!(e.to_string().contains("no wiring"), "{e}");
    for (second, expected) in [(0, 7.0), (1, 8.0)] {
        let mut p = program(&text, &[&[1], &[1]], &[1]);
        let wiring = format!(
            r#"{{"version":1,"inputs":2,"constants":[],"operations":[{{"arguments":[0,1]}},{{"arguments":[2,{second}]}}],"outputs":[3]}}"#
        );
        wire(&mut p, &text, &wiring);
        assert_eq!(run_one(&forward(&p.load(&runtime)), &[(&[1], &[2.0]), (&[1], &[3.0])]), [expected]);
    }
}

#[test]
fn constants_numbers_and_alpha() {
    let text = blob(&[("aten.add.Tensor", 1), ("aten.add.Tensor", 2)]);
    let mut p = program(&text, &[&[2]], &[2]);
    let wiring = r#"{"version":1,"inputs":1,"constants":[{"key":"demo.constant.c","dtype":"float32","shape":[2]}],
        "operations":[{"arguments":[0,1],"alpha":10},{"arguments":[2,{"number":0.5}]}],"outputs":[3]}"#;
    wire(&mut p, &text, wiring);
    p.named("demo.constant.c", bytemuck::cast_slice(&[1.0f32, 2.0]));
    assert_eq!(run_one(&forward(&p.load(&with_demo())), &[(&[2], &[100.0, 200.0])]), [110.5, 220.5]);
}

#[test]
fn tan_fails_with_its_handle_and_its_own_source_line() {
    let text = blob(&[("aten.tan.default", 1)]);
    let wiring = r#"{"version":1,"inputs":1,"constants":[],"operations":[{"arguments":[0]}],"outputs":[1]}"#;
    let mut p = program(&text, &[&[1]], &[1]);
    wire(&mut p, &text, wiring);
    p.named(
        "pteron.debug",
        br#"{"version":1,"files":["model.py"],"methods":{"forward":{"instructions":[[9]],
            "handles":{"9":{"operator":"call_delegate","file":0,"line":99}},
            "delegates":{"0":{"backend":"BackendWithCompilerDemo","handles":{"1":{"operator":"aten.tan.default","module":"body","file":0,"line":12}},"map":{}}}}}}"#,
    );
    let e = run(&forward(&p.load(&with_demo())), &[(&[1], &[1.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    for part in [
        "instruction demo::aten.tan.default<debug_handle>1 is not supported, debug handle is: 1",
        "backend BackendWithCompilerDemo",
        "model.py:12 (body)",
    ] {
        assert!(e.to_string().contains(part), "'{part}' is not in: {e}");
    }
    assert!(!e.to_string().contains("model.py:99"), "{e}");
    assert!(e.detail().hint.as_deref().is_some_and(|h| h.contains("out of what is delegated")), "{e}");
}

#[test]
fn max_value_is_checked_and_optional() {
    for (value, is_ok) in [(vec![4u8], true), (vec![5], false), (vec![], false), (vec![1, 1], false)] {
        let mut p = ProgramBuilder::new();
        let index = p.blob(blob(&[("aten.sin.default", 1)]).as_bytes());
        let mut m = MethodBuilder::new("forward");
        let (x, y) = (m.unplanned(&[1]), m.planned(&[1]));
        m.inputs(&[x]);
        m.outputs(&[y]);
        m.delegate_with(NAME, index, vec![CompileSpec { key: "max_value".into(), value }], &[x, y]);
        let loaded = p.with(m).load(&with_demo()).load_method("forward", MethodOptions::default());
        assert_eq!(loaded.is_ok(), is_ok, "{:?}", loaded.err());
    }
}

#[test]
fn a_whole_program_can_be_a_blob() {
    let runtime = with_demo();
    let inner = program(&blob(&[("aten.sin.default", 1)]), &[&[1]], &[1]).bytes();
    let mut p = ProgramBuilder::new();
    let index = p.blob(&inner);
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.unplanned(&[1]), m.planned(&[1]), m.planned(&[1]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("ExecutorBackend", index, &[x, t]);
    m.add(t, x, y);
    let method = forward(&p.with(m).load(&runtime));
    let out = run_one(&method, &[(&[1], &[1.0])]);
    assert!((out[0] - 1.833_333_3).abs() < 1e-6, "{out:?}");
}

#[test]
fn a_nested_error_keeps_its_text() {
    let runtime = with_demo();
    let text = blob(&[("aten.tan.default", 1)]);
    let mut nested = program(&text, &[&[1]], &[1]);
    wire(
        &mut nested,
        &text,
        r#"{"version":1,"inputs":1,"constants":[],"operations":[{"arguments":[0]}],"outputs":[1]}"#,
    );
    let mut p = ProgramBuilder::new();
    let index = p.blob(&nested.bytes());
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[1]), m.planned(&[1]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("ExecutorBackend", index, &[x, y]);
    let e = run(&forward(&p.with(m).load(&runtime)), &[(&[1], &[1.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    assert!(e.to_string().contains("backend ExecutorBackend"), "{e}");
    assert!(e.to_string().contains("demo::aten.tan.default<debug_handle>1 is not supported"), "{e}");
}
