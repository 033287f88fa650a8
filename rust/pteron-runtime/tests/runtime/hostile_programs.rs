//! Programs that are built to exhaust the stack or the memory of whoever reads them.

use pteron_core::ErrorKind;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{Limits, Program, ProgramSource};
use std::sync::Arc;

fn with_named(key: &str, text: &str) -> pteron_core::Result<Arc<Program>> {
    let mut m = MethodBuilder::new("forward");
    let t = m.planned(&[2]);
    m.inputs(&[t]);
    m.outputs(&[t]);
    let mut p = ProgramBuilder::of(m);
    p.named(key, text.as_bytes());
    Program::load(&runtime(), ProgramSource::Bytes(Arc::new(p.bytes())), Limits::default())
}

#[test]
fn deeply_nested_structures_are_refused() {
    let depth = 200_000;
    let list = "[".repeat(depth) + &"]".repeat(depth);
    let object = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    let sum = format!(
        r#"{{"version":1,"methods":{{"forward":{{"inputs":[{{"name":"x","shape":[{{"min":0,"max":2,"expression":"{}s0{}"}}]}}],"outputs":[{{"name":"y","shape":[2]}}]}}}}}}"#,
        "(".repeat(2000),
        ")".repeat(2000)
    );
    for text in [&list, &object, &sum] {
        let e = with_named("pteron.interface", text).err().expect("refused");
        assert_eq!(e.kind(), ErrorKind::Program, "{e}");
    }
    for key in ["pteron.packed", "pteron.debug"] {
        // Refused, or not looked at: both are fine, and the process is still there.
        for text in [&list, &object] {
            if let Ok(program) = with_named(key, text) {
                assert!(program.check_methods().is_empty());
            }
        }
    }
}
