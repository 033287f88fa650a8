//! Calls that are right, of every operator: shapes, types and numbers that belong together are rarely found
//! by chance. `tests/ops/right_calls.py` writes them from the operator cases.

use super::argument::{Argument, TensorArgument};
use super::contents::filled;
use super::generate::Generator;
use pteron_core::{ArgKind, DType, Dims, Schema, SchemaArg};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Argument lists by operator.
static CALLS: LazyLock<BTreeMap<String, Vec<Vec<Json>>>> = LazyLock::new(|| {
    let mut out: BTreeMap<String, Vec<Vec<Json>>> = BTreeMap::new();
    let all: Vec<(String, Vec<Json>)> = match serde_json::from_str(include_str!("right_calls.json")) {
        Ok(all) => all,
        Err(e) => panic!("right_calls.json: {e}"),
    };
    for (operator, args) in all {
        out.entry(operator).or_default().push(args);
    }
    out
});

/// A call that is right, if one is known.
pub fn any(g: &mut Generator<'_, '_>, schema: &Schema) -> Option<Vec<Argument>> {
    let calls = CALLS.get(&schema.name)?;
    let call = &calls[g.choices.below(calls.len())];
    assert_eq!(call.len(), schema.args.len(), "right_calls.json: {}: write it anew", schema.name);
    schema.args.iter().zip(call).map(|(declared, json)| argument(g, declared, json)).collect()
}

fn argument(g: &mut Generator<'_, '_>, declared: &SchemaArg, json: &'static Json) -> Option<Argument> {
    Some(match (declared.kind, json) {
        (_, Json::Null) => Argument::None,
        (ArgKind::Tensor | ArgKind::OptionalTensor, _) => Argument::Tensor(tensor(g, json)?),
        (ArgKind::TensorList | ArgKind::OptionalTensorList, _) => {
            let list = json.get("list")?.as_array()?;
            Argument::Tensors(list.iter().map(|t| tensor(g, t)).collect())
        }
        (ArgKind::Double | ArgKind::OptionalDouble, Json::Number(n)) => Argument::Double(n.as_f64()?),
        (ArgKind::DoubleList | ArgKind::OptionalDoubleList, Json::Array(list)) => {
            Argument::Doubles(list.iter().map(Json::as_f64).collect::<Option<_>>()?)
        }
        (ArgKind::BoolList, Json::Array(list)) => {
            Argument::Bools(list.iter().map(Json::as_bool).collect::<Option<_>>()?)
        }
        (_, Json::Array(list)) => Argument::Ints(list.iter().map(Json::as_i64).collect::<Option<_>>()?),
        (_, Json::Bool(v)) => Argument::Bool(*v),
        (_, Json::String(v)) => Argument::String(v),
        (_, Json::Number(n)) => {
            n.as_i64().map_or_else(|| n.as_f64().map(Argument::Double), |v| Some(Argument::Int(v)))?
        }
        _ => return None,
    })
}

/// A tensor; an absent one is `None` too.
fn tensor(g: &mut Generator<'_, '_>, json: &Json) -> Option<TensorArgument> {
    let name = json.get("in").or(json.get("out"))?.as_str()?;
    let dtype = DType::ALL.into_iter().find(|d| d.name() == name)?;
    let shape: Option<Vec<usize>> =
        json.get("shape")?.as_array()?.iter().map(|n| usize::try_from(n.as_u64()?).ok()).collect();
    let shape = Dims::new(&shape?).ok()?;
    if json.get("out").is_some() {
        return Some(g.output(dtype, shape));
    }
    let mut t = g.tensor(dtype, shape, g.contents);
    // Integers are positions, lengths and the like; other numbers may mostly be anything.
    let is_kept = g.choices.chance(if dtype.is_integer() { 80 } else { 30 });
    if is_kept && let Some(fill) = json.get("fill").and_then(Json::as_f64) {
        t.bytes = filled(dtype, fill, t.bytes.len() / dtype.size());
    }
    Some(t)
}
