//! The wiring of `BackendWithCompilerDemo`: which value goes where. JSON in the program's named data
//! under `demo.wiring.<sha256 of the blob>`. Values are numbered: inputs, constants, one result per
//! instruction.

use crate::blob::Instruction;
use pteron_core::error::printable;
use pteron_core::{Error, Result};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// Where one instruction takes an argument from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Argument {
    Value(usize),
    Number(f32),
}

/// One instruction's arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operation {
    pub arguments: Vec<Argument>,
    /// Factor of the second argument of add.
    pub alpha: f32,
}

/// A constant in named data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constant {
    pub key: String,
    pub dtype: String,
    pub shape: Vec<usize>,
}

/// Everything the blob does not say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wiring {
    pub inputs: usize,
    pub constants: Vec<Constant>,
    pub operations: Vec<Operation>,
    pub outputs: Vec<usize>,
}

/// The named-data key of a blob's wiring.
pub(crate) fn wiring_key(blob: &[u8]) -> String {
    use std::fmt::Write;
    let mut key = String::from("demo.wiring.");
    for byte in Sha256::digest(blob) {
        // Writing to a String cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

/// The wiring of these instructions, checked: every value is there before it is used.
pub(crate) fn read_wiring(text: &[u8], instructions: &[Instruction]) -> Result<Wiring> {
    let json = pteron_runtime::json::parse(text, |why| damaged("it is not JSON").got(why))?;
    if json.get("version").and_then(Json::as_i64) != Some(1) {
        return Err(damaged("it has another version").expected("version 1"));
    }
    let wiring = parse(&json).ok_or_else(|| damaged("a field is missing or has another type"))?;
    check(&wiring, instructions)?;
    Ok(wiring)
}

fn parse(json: &Json) -> Option<Wiring> {
    let number = |j: &Json| j.as_u64().and_then(|n| usize::try_from(n).ok());
    let list = |key: &str| json.get(key).and_then(Json::as_array);
    let constants = list("constants")?.iter().map(|c| {
        Some(Constant {
            key: c.get("key")?.as_str()?.into(),
            dtype: c.get("dtype")?.as_str()?.into(),
            shape: c.get("shape")?.as_array()?.iter().map(number).collect::<Option<_>>()?,
        })
    });
    let operations = list("operations")?.iter().map(|o| {
        let arguments = o.get("arguments")?.as_array()?.iter().map(|a| match a.get("number") {
            Some(n) => Some(Argument::Number(n.as_f64()? as f32)),
            None => number(a).map(Argument::Value),
        });
        let alpha = match o.get("alpha") {
            None => 1.0,
            Some(alpha) => alpha.as_f64()? as f32,
        };
        Some(Operation { arguments: arguments.collect::<Option<_>>()?, alpha })
    });
    Some(Wiring {
        inputs: number(json.get("inputs")?)?,
        constants: constants.collect::<Option<_>>()?,
        operations: operations.collect::<Option<_>>()?,
        outputs: list("outputs")?.iter().map(number).collect::<Option<_>>()?,
    })
}

fn check(wiring: &Wiring, instructions: &[Instruction]) -> Result<()> {
    if wiring.operations.len() != instructions.len() {
        return Err(damaged("it has another number of operations than the blob")
            .expected(instructions.len().to_string())
            .got(wiring.operations.len().to_string()));
    }
    let mut known = wiring.inputs.saturating_add(wiring.constants.len());
    for operation in &wiring.operations {
        for argument in &operation.arguments {
            if let Argument::Value(v) = argument
                && *v >= known
            {
                return Err(damaged("an operation reads a value before it is there")
                    .expected(format!("a number below {known}"))
                    .got(v.to_string()));
            }
        }
        known = known.saturating_add(1);
    }
    match wiring.outputs.iter().find(|v| **v >= known) {
        Some(v) => {
            Err(damaged("an output is no value").expected(format!("below {known}")).got(v.to_string()))
        }
        None => Ok(()),
    }
}

/// The wiring of the four programs that need none: sin; add; mm; mm, then add.
pub(crate) fn wiring_from_operators(instructions: &[Instruction]) -> Result<Wiring> {
    let operation =
        |a: &[usize]| Operation { arguments: a.iter().map(|v| Argument::Value(*v)).collect(), alpha: 1.0 };
    let operators: Vec<&str> = instructions.iter().map(|i| i.operator.as_str()).collect();
    let (inputs, operations, output) = match operators.as_slice() {
        ["aten.sin.default"] => (1, vec![operation(&[0])], 1),
        ["aten.add.Tensor"] | ["aten.mm.default"] => (2, vec![operation(&[0, 1])], 2),
        ["aten.mm.default", "aten.add.Tensor"] => (3, vec![operation(&[0, 1]), operation(&[3, 2])], 4),
        other => {
            return Err(Error::delegate("the program has no wiring for this blob in its named data")
                .expected("wiring, or a blob of only sin, add, mm, or mm then add")
                .got(printable(&other.join(", ")))
                .hint("lower the model again with pteron"));
        }
    };
    Ok(Wiring { inputs, constants: vec![], operations, outputs: vec![output] })
}

#[cold]
fn damaged(what: &str) -> Error {
    Error::delegate(format!("the wiring in named data cannot be used: {what}")).hint("lower the model again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<Instruction> {
        ["aten.mm.default", "aten.add.Tensor"]
            .map(|operator| Instruction {
                operator: operator.into(),
                dtype: "torch.float32".into(),
                handle: 1,
            })
            .to_vec()
    }

    #[test]
    fn reads_values_numbers_and_alpha() {
        let text = br#"{"version":1,"inputs":2,"constants":[{"key":"k","dtype":"float32","shape":[3]}],
            "operations":[{"arguments":[0,1]},{"arguments":[3,{"number":2.5}],"alpha":2}],"outputs":[4]}"#;
        let w = read_wiring(text, &two()).unwrap();
        assert_eq!(w.operations[1].arguments, [Argument::Value(3), Argument::Number(2.5)]);
        assert_eq!((w.operations[1].alpha, w.constants[0].shape.as_slice()), (2.0, &[3][..]));
    }

    #[test]
    fn values_must_be_known_before_use() {
        for (operations, outputs) in [
            (r#"[{"arguments":[2]},{"arguments":[0,0]}]"#, "[2]"),
            (r#"[{"arguments":[0]},{"arguments":[0,0]}]"#, "[4]"),
            (r#"[{"arguments":[0]}]"#, "[2]"),
            (r#"[{"arguments":[-1]},{"arguments":[0,0]}]"#, "[2]"),
        ] {
            let text = format!(
                r#"{{"version":1,"inputs":2,"constants":[],"operations":{operations},"outputs":{outputs}}}"#
            );
            assert!(read_wiring(text.as_bytes(), &two()).is_err(), "{text}");
        }
        assert!(read_wiring(b"{}", &two()).is_err());
    }

    #[test]
    fn the_key_is_the_blobs_digest() {
        // SHA-256 of the empty string.
        assert_eq!(
            wiring_key(b""),
            "demo.wiring.e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
