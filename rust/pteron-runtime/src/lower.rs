//! From what the file says to the loader's own IR.

use crate::ir::{ConstantRef, DelegateIr, MethodIr, Place, TensorIr, ValueIr};
use crate::program_data::FILE_ORIGIN;
use pteron_core::error::printable;
use pteron_core::{ConstantKey, Error, Result};
use pteron_format::{InitialData, MethodDef, Placement, TensorDef, ValueDef};
use std::ops::Range;

/// The IR of a method. Errors with `ExternalData` when it needs tensors of a data file.
pub(crate) fn lower(method: &MethodDef) -> Result<MethodIr> {
    refuse_external(method)?;
    Ok(MethodIr {
        name: method.name.clone(),
        values: method.values.iter().map(value).collect(),
        inputs: method.inputs.clone(),
        outputs: method.outputs.clone(),
        operators: method.operators.clone(),
        delegates: method
            .delegates
            .iter()
            .map(|d| DelegateIr {
                backend: d.backend.clone(),
                blob: constant(&d.blob),
                specs: d.specs.clone(),
            })
            .collect(),
        instructions: method.instructions.clone(),
        arenas: method.arenas.clone(),
    })
}

fn refuse_external(method: &MethodDef) -> Result<()> {
    let mut keys: Vec<String> = Vec::new();
    for tensor in method.values.iter().filter_map(ValueDef::as_tensor) {
        match &tensor.placement {
            Placement::External(key)
            | Placement::Planned { initial: Some(InitialData::External(key)), .. } => {
                keys.push(printable(key));
            }
            _ => {}
        }
    }
    if keys.is_empty() {
        return Ok(());
    }
    const SHOWN: usize = 8;
    let count = keys.len();
    keys.truncate(SHOWN);
    let more = if count > SHOWN { ", ..." } else { "" };
    Err(Error::external_data(
        "the program keeps tensors in a data file (.ptd), which this version cannot read",
    )
    .method(method.name.as_str())
    .expected("all constants inside the program file")
    .got(format!("{count} external tensors: {}{more}", keys.join(", ")))
    .hint("export without external constants"))
}

fn value(def: &ValueDef) -> ValueIr {
    match def {
        ValueDef::None => ValueIr::None,
        ValueDef::Int(v) => ValueIr::Int(*v),
        ValueDef::Bool(v) => ValueIr::Bool(*v),
        ValueDef::Double(v) => ValueIr::Double(*v),
        ValueDef::String(s) => ValueIr::String(s.clone()),
        ValueDef::Tensor(t) => ValueIr::Tensor(tensor(t)),
        ValueDef::IntList(l) => ValueIr::IntList(l.clone()),
        ValueDef::DoubleList(l) => ValueIr::DoubleList(l.clone()),
        ValueDef::BoolList(l) => ValueIr::BoolList(l.clone()),
        ValueDef::TensorList(l) => ValueIr::TensorList(l.clone()),
        ValueDef::OptionalTensorList(l) => ValueIr::OptionalTensorList(l.clone()),
    }
}

fn tensor(def: &TensorDef) -> TensorIr {
    let place = match &def.placement {
        Placement::Constant(range) => Place::Constant(constant(range)),
        Placement::Planned { arena, offset, initial } => Place::Planned {
            arena: *arena,
            offset: *offset,
            initial: match initial {
                Some(InitialData::Stored(range)) => Some(constant(range)),
                Some(InitialData::External(_)) | None => None,
            },
        },
        // External constants were refused above.
        Placement::External(_) | Placement::Unplanned => Place::Unplanned,
    };
    TensorIr { spec: def.spec.clone(), place, name: def.name.clone() }
}

fn constant(range: &Range<usize>) -> ConstantRef {
    ConstantRef {
        key: ConstantKey { origin: FILE_ORIGIN, offset: range.start as u64, nbytes: range.len() as u64 },
    }
}
