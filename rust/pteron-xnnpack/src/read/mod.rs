//! Bytes to a checked payload: header, structure, values, nodes, and the order in which these write and read.

mod constants;
mod container;
mod fields;
mod nodes;
mod order;
mod quantisation;
mod table;
mod values;

use crate::payload::Payload;
use constants::Constants;
use container::Container;
use pteron_core::{NamedData, Result, TensorSpec};
use table::GraphTable;

/// Reads and checks a payload for a delegate call with `arguments`.
///
/// # Errors
/// As [`crate::expand`].
pub(crate) fn read(
    payload: &[u8],
    arguments: &[Option<TensorSpec>],
    named: &dyn NamedData,
) -> Result<Payload> {
    let container = Container::read(payload)?;
    let table = GraphTable::copy_of(payload, &container.graph)?;
    let graph = table.verified_root()?;
    let constants = Constants::new(&graph, container.data, named)?;
    let (values, ids) = values::read(&graph, &constants, arguments)?;
    let nodes = nodes::read(&graph, &ids)?;
    order::check(&values, &nodes)?;
    Ok(Payload { values, nodes })
}

#[cfg(test)]
mod tests;
