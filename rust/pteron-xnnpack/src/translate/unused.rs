//! Values that no call names are left out: weights as they are stored, where calls read a view of them.

use crate::expansion::{ExpandedValue, Expansion, OperatorCall};
use pteron_core::memory_reserve::{filled, try_with_capacity};
use pteron_core::{Error, Result, Value};
use std::sync::Arc;

/// The same calls over the values that they name.
pub(super) fn without_unused(expansion: Expansion) -> Result<Expansion> {
    let Expansion { values, mut calls } = expansion;
    let mut places = filled(None, values.len())?;
    let mut is_used = |index: usize| places.get_mut(index).map(|slot| *slot = Some(0usize));
    for arg in calls.iter().flat_map(OperatorCall::args) {
        is_used(arg);
        for member in values.get(arg).into_iter().flat_map(|value| value.members().iter()) {
            is_used(member);
        }
    }
    for (place, slot) in places.iter_mut().flatten().enumerate() {
        *slot = place;
    }
    let moved = |index: &usize| {
        places
            .get(*index)
            .copied()
            .flatten()
            .ok_or_else(|| Error::internal("a used value of an XNNPACK payload was left out"))
    };
    let mut kept: Vec<ExpandedValue> = try_with_capacity(values.len())?;
    for (value, _) in values.into_iter().zip(&places).filter(|(_, place)| place.is_some()) {
        let members = |list: &Arc<[usize]>| list.iter().map(moved).collect::<Result<Arc<[usize]>>>();
        kept.push(match &value {
            Value::IntList(list) => Value::IntList(members(list)?),
            Value::TensorList(list) => Value::TensorList(members(list)?),
            _ => value,
        });
    }
    for arg in calls.iter_mut().flat_map(|call| call.inputs.iter_mut().chain(&mut call.outputs)) {
        *arg = moved(arg)?;
    }
    Ok(Expansion { values: kept, calls })
}
