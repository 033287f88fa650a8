//! The value table of a method.

use super::place::{self, InPlace, index_below, required};
use super::tensors::TensorContext;
use crate::ValueDef;
use crate::generated::wire;
use flatbuffers::{ForwardsUOffset, Vector};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result, ValueId, ValueKind};
use std::sync::Arc;

/// Reads all values, then checks what lists point at (they may point forward).
pub(super) fn values(
    table: Vector<'_, ForwardsUOffset<wire::EValue<'_>>>,
    context: &TensorContext<'_>,
) -> Result<Vec<ValueDef>> {
    let count = table.len();
    if u32::try_from(count).is_err() || i32::try_from(count).is_err() {
        return Err(Error::program("the value table is too long").got(count.to_string()));
    }
    let mut out = try_with_capacity(count)?;
    for (index, entry) in table.iter().enumerate() {
        out.push(value(&entry, count, context).in_place(|| format!("value {index}"))?);
    }
    for (index, value) in out.iter().enumerate() {
        check_list(value, &out).in_place(|| format!("value {index}"))?;
    }
    resolve_absent(&mut out);
    Ok(out)
}

fn value(entry: &wire::EValue<'_>, count: usize, context: &TensorContext<'_>) -> Result<ValueDef> {
    use wire::KernelTypes as Kind;
    match entry.val_type() {
        Kind::Null => Ok(ValueDef::None),
        Kind::Int => Ok(ValueDef::Int(required(entry.val_as_int(), "val")?.int_val())),
        Kind::Bool => Ok(ValueDef::Bool(required(entry.val_as_bool(), "val")?.bool_val())),
        Kind::Double => Ok(ValueDef::Double(required(entry.val_as_double(), "val")?.double_val())),
        Kind::String => {
            let string = required(entry.val_as_string(), "val")?;
            Ok(ValueDef::String(place::name(required(string.string_val(), "string_val")?)?.into()))
        }
        Kind::Tensor => {
            let tensor = required(entry.val_as_tensor(), "val")?;
            Ok(ValueDef::Tensor(Box::new(context.read(&tensor)?)))
        }
        Kind::IntList => {
            let items = required(required(entry.val_as_int_list(), "val")?.items(), "items")?;
            Ok(ValueDef::IntList(ids(items.iter(), items.len(), count)?))
        }
        Kind::DoubleList => {
            let items = required(required(entry.val_as_double_list(), "val")?.items(), "items")?;
            Ok(ValueDef::DoubleList(collect(items.iter(), items.len())?.into()))
        }
        Kind::BoolList => {
            // The bytes and not the bools: a byte other than 0 and 1 is no Rust bool.
            let items = required(required(entry.val_as_bool_list(), "val")?.items(), "items")?;
            let bools = items.bytes().iter().map(|b| *b != 0);
            Ok(ValueDef::BoolList(collect(bools, items.len())?.into()))
        }
        Kind::TensorList => {
            let items = required(required(entry.val_as_tensor_list(), "val")?.items(), "items")?;
            Ok(ValueDef::TensorList(ids(items.iter().map(i64::from), items.len(), count)?))
        }
        Kind::OptionalTensorList => {
            let items = required(required(entry.val_as_optional_tensor_list(), "val")?.items(), "items")?;
            place::check_items(items.len())?;
            let mut out = try_with_capacity(items.len())?;
            for item in items.iter() {
                out.push(match item {
                    -1 => None,
                    i => Some(ValueId(index_below(i64::from(i), count, "value")?)),
                });
            }
            Ok(ValueDef::OptionalTensorList(out.into()))
        }
        Kind::NONE => Err(Error::program("the value has no kind")),
        other => Err(Error::program("unknown kind of value")
            .got(format!("code {}", other.0))
            .hint("the file may come from a newer exporter")),
    }
}

fn collect<T>(items: impl Iterator<Item = T>, len: usize) -> Result<Vec<T>> {
    place::check_items(len)?;
    let mut out = try_with_capacity(len)?;
    out.extend(items);
    Ok(out)
}

fn ids(items: impl Iterator<Item = i64>, len: usize, count: usize) -> Result<Arc<[ValueId]>> {
    place::check_items(len)?;
    let mut out = try_with_capacity(len)?;
    for item in items {
        out.push(ValueId(index_below(item, count, "value")?));
    }
    Ok(out.into())
}

/// Elements of a list must be of the list's element kind.
fn check_list(value: &ValueDef, all: &[ValueDef]) -> Result<()> {
    let kind = |id: ValueId| all.get(id.index()).map(ValueDef::kind);
    let wrong = |at: usize, id: ValueId, expected: ValueKind| {
        Error::program(format!("element {at} of the list is of a wrong kind"))
            .expected(format!("value {} to be {expected}", id.0))
            .got(kind(id).map_or_else(String::new, |k| k.to_string()))
    };
    let (expected, may_be_none) = match value.kind() {
        ValueKind::IntList => (ValueKind::Int, false),
        kind => (ValueKind::Tensor, kind == ValueKind::OptionalTensorList),
    };
    let is_right =
        |found: Option<ValueKind>| found == Some(expected) || (may_be_none && found == Some(ValueKind::None));
    for (at, id) in value.members().positions().enumerate() {
        if let Some(id) = id.filter(|id| !is_right(kind(*id))) {
            return Err(wrong(at, id, expected));
        }
    }
    Ok(())
}

/// An element of an optional list that points at a `None` value is absent, like one that is -1.
fn resolve_absent(values: &mut [ValueDef]) {
    let is_none: Vec<bool> = values.iter().map(|v| matches!(v, ValueDef::None)).collect();
    for value in values {
        if let ValueDef::OptionalTensorList(items) = value {
            let absent = |id: &ValueId| is_none.get(id.index()).copied().unwrap_or(true);
            if items.iter().flatten().any(absent) {
                *items = items.iter().map(|i| i.filter(|id| !absent(id))).collect();
            }
        }
    }
}
