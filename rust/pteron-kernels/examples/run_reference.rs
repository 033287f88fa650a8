//! Runs reference kernels for tests in other languages: one call per line of standard input as JSON,
//! one result per line of standard output.
//!
//! A call is `{"operator": "aten::add.out", "args": [...]}` with every schema argument, outputs
//! included; an argument is null, a bool, a number (integers and floats are told apart by their
//! spelling), `{"string": ..}`, `{"ints": [..]}`, `{"doubles": [..]}`, `{"bools": [..]}`,
//! `{"tensor": {"dtype": code, "shape": [..], "order": [..], "bytes": hex}}` or `{"tensors": [..]}`. The
//! result is `{"args": [...]}` with the arguments as they are afterwards, or `{"error": text}`.

use pteron_core::{DType, DimOrder, Dims, Dynamism, TensorSpec};
use pteron_kernels::testing::{Arg, Tensor, call};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()).collect()
}

fn numbers<T>(value: &Value, get: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(get).collect()
}

fn tensor(value: &Value) -> Option<Tensor> {
    let spec = TensorSpec {
        dtype: DType::from_code(value.get("dtype")?.as_i64()? as i8)?,
        shape: Dims::from_i64(numbers(value.get("shape")?, Value::as_i64)?).ok()?,
        dim_order: DimOrder::new(&numbers(value.get("order")?, |v| v.as_u64().map(|v| v as u8))?).ok()?,
        dynamism: Dynamism::Bounded,
    };
    Some(Tensor { spec, bytes: unhex(value.get("bytes")?.as_str()?)? })
}

fn argument(value: &Value) -> Option<Arg> {
    Some(match value {
        Value::Null => Arg::None,
        Value::Bool(b) => Arg::Bool(*b),
        Value::Number(n) => n.as_i64().map(Arg::Int).or_else(|| n.as_f64().map(Arg::Double))?,
        Value::Object(o) => {
            let (key, value) = o.iter().next()?;
            match key.as_str() {
                "double" => Arg::Double(value.as_str()?.parse().ok()?),
                "string" => Arg::String(value.as_str()?.to_string()),
                "ints" => Arg::IntList(numbers(value, Value::as_i64)?),
                "doubles" => Arg::DoubleList(numbers(value, Value::as_f64)?),
                "bools" => Arg::BoolList(numbers(value, Value::as_bool)?),
                "tensor" => Arg::Tensor(tensor(value)?),
                "tensors" => Arg::TensorList(
                    value
                        .as_array()?
                        .iter()
                        .map(|v| if v.is_null() { Some(None) } else { tensor(v).map(Some) })
                        .collect::<Option<_>>()?,
                ),
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn shown_tensor(t: &Tensor) -> Value {
    json!({"dtype": t.spec.dtype.code(), "shape": t.shape(), "order": t.spec.dim_order.as_slice(), "bytes": hex(&t.bytes)})
}

fn shown(arg: &Arg) -> Value {
    match arg {
        Arg::Tensor(t) => json!({"tensor": shown_tensor(t)}),
        Arg::TensorList(list) => {
            json!({"tensors": list.iter().map(|t| t.as_ref().map(shown_tensor)).collect::<Vec<_>>()})
        }
        Arg::Int(v) => json!(v),
        Arg::Bool(v) => json!(v),
        Arg::Double(v) => json!({"double": v.to_string()}),
        _ => Value::Null,
    }
}

fn answer(line: &str) -> Value {
    let parsed: Option<(String, Vec<Arg>)> = serde_json::from_str::<Value>(line).ok().and_then(|v| {
        let args = numbers(v.get("args")?, argument)?;
        Some((v.get("operator")?.as_str()?.to_string(), args))
    });
    match parsed {
        None => json!({"error": "the call is not understood"}),
        Some((operator, args)) => match call(&operator, &args) {
            Ok(args) => json!({"args": args.iter().map(shown).collect::<Vec<_>>()}),
            Err(e) => json!({"error": e.to_string()}),
        },
    }
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", answer(&line?))?;
        out.flush()?;
    }
    Ok(())
}
