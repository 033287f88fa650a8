//! From what the file says to the loader's own IR.

use crate::ir::{ConstantRef, DelegateIr, MethodIr, Place, TensorIr, ValueIr};
use crate::load::external_tensors::resolve;
use crate::load::program_data::{FILE_ORIGIN, ProgramData};
use pteron_core::memory_reserve::collected;
use pteron_core::{ConstantKey, Result};
use pteron_format::{InitialData, MethodDef, Placement, TensorDef, ValueDef};
use std::collections::HashMap;
use std::ops::Range;

/// The IR of a method; tensors of data files are looked up. Errors with `ExternalData` where that fails.
pub(crate) fn lower(method: &MethodDef, data: &ProgramData) -> Result<MethodIr> {
    let external = resolve(method, data)?;
    Ok(MethodIr {
        name: method.name.clone(),
        values: collected(method.values.iter().map(|v| value(v, &external)))?,
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

/// Places of external tensors by name.
type External = HashMap<String, ConstantRef>;

fn value(def: &ValueDef, external: &External) -> ValueIr {
    match def {
        ValueDef::None => ValueIr::None,
        ValueDef::Int(v) => ValueIr::Int(*v),
        ValueDef::Bool(v) => ValueIr::Bool(*v),
        ValueDef::Double(v) => ValueIr::Double(*v),
        ValueDef::String(s) => ValueIr::String(s.clone()),
        ValueDef::Tensor(t) => ValueIr::Tensor(tensor(t, external)),
        ValueDef::IntList(l) => ValueIr::IntList(l.clone()),
        ValueDef::DoubleList(l) => ValueIr::DoubleList(l.clone()),
        ValueDef::BoolList(l) => ValueIr::BoolList(l.clone()),
        ValueDef::TensorList(l) => ValueIr::TensorList(l.clone()),
        ValueDef::OptionalTensorList(l) => ValueIr::OptionalTensorList(l.clone()),
    }
}

fn tensor(def: &TensorDef, external: &External) -> TensorIr {
    let place = match &def.placement {
        Placement::Constant(range) => Place::Constant(constant(range)),
        Placement::Planned { arena, offset, initial } => Place::Planned {
            arena: *arena,
            offset: *offset,
            initial: match initial {
                Some(InitialData::Stored(range)) => Some(constant(range)),
                Some(InitialData::External(key)) => external.get(key).copied(),
                None => None,
            },
        },
        // `resolve` found every key, or there would be no IR.
        Placement::External(key) => external.get(key).map_or(Place::Unplanned, |c| Place::Constant(*c)),
        Placement::Unplanned => Place::Unplanned,
    };
    TensorIr { spec: def.spec.clone(), place, name: def.name.clone() }
}

fn constant(range: &Range<usize>) -> ConstantRef {
    ConstantRef {
        key: ConstantKey { origin: FILE_ORIGIN, offset: range.start as u64, nbytes: range.len() as u64 },
    }
}
