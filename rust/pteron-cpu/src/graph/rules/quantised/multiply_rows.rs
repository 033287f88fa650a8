//! `multiply_quantised_rows`: a product of rows that are quantised at run time with a weight that stays quantised is computed in integers.
//!
//! *Before*: `y = weight-only linear(dequantise(quantise(x)), Q, s)`. *After*: `y = integer linear of rows(x, Q, s)` of 8-bit weights with
//! one scale for each column, `y = weight-only linear of rows(x, Q, s, sums)` of 4-bit ones ([`crate::integer`]), where `sums` are
//! those of s · Q over each column. Or *before*: `y = float(_int_mm(quantise(x), Q)) * sx * s + b` with rows that are quantised
//! symmetrically by scales sx. *After*: `y = integer linear of rows(x, Q, s, b)`.
//!
//! Applies where the weight is symmetric. Sums of products are exact within a column or a block of 32 of its numbers, where the
//! separate calls round every sum. Saves the conversions of rows and weights, and multiplies bytes.

use super::rows::{BY_TOKEN, QuantisedRows, viewed};
use super::symmetric_product::{self, INT_MM};
use crate::epilogue::Epilogue;
use crate::graph::rules::remove_dead::remove_dead;
use crate::graph::rules::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use crate::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec, takes_groups};
use crate::weight_only::{WeightOnlySpec, sums_of_columns};
use pteron_core::{ConstantView, DType, Result, TensorSpec};

pub(in crate::graph::rules) const RULE: Rule = Rule {
    name: "multiply_quantised_rows",
    about: "products of rows that are quantised at run time with quantised weights in integers",
    needs: &[
        &["aten::addmm.out", "aten::mm.out", "aten::linear.out", INT_MM],
        &[BY_TOKEN[0], "aten::amin.out"],
    ],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        count += usize::from(replace(graph, host, id)? || symmetric_product::replace(graph, host, id)?);
    }
    if count > 0 {
        // Or chains would be made of what quantises rows that nobody reads.
        remove_dead(graph);
    }
    Ok(count)
}

/// Replaces the product at `id`, if it is one.
fn replace(graph: &mut Graph, host: &mut dyn Host, id: NodeId) -> Result<bool> {
    let node = graph.node(id);
    let Op::WeightOnly(spec) = &node.op else { return Ok(false) };
    let is_plain = graph.is_live(id) && node.epilogue.is_none() && spec.rows.is_none() && !spec.has_zeros;
    let (Some(x), true) = (node.input(0), is_plain) else { return Ok(false) };
    let Some(rows) = QuantisedRows::find(graph, host, x) else { return Ok(false) };
    let (node, spec) = (node.clone(), (**spec).clone());
    for with_bytes in [true, false] {
        let draft = match with_bytes {
            true => bytes(&node, &spec, &rows),
            false => nibbles(graph, host, &node, &spec, &rows)?,
        };
        let Some(mut draft) = draft else { continue };
        // Of x as it is now, which is as long and of the same type.
        if !host.can_prepare(graph, &draft)? {
            continue;
        }
        // Or a view would be left behind where the floats are not what they were.
        draft.args[0] = Argument::Tensor(rows.floats);
        if !graph.can_replace(&[id], &draft) {
            return Ok(false);
        }
        let x = match rows.view {
            Some(view) => viewed(graph, view, rows.floats),
            None => rows.floats,
        };
        draft.args[0] = Argument::Tensor(x);
        return Ok(graph.replace(&[id], draft).is_some());
    }
    Ok(false)
}

/// The product in the engine's form, its arguments but for x.
fn draft(node: &Node, op: Op, inputs: impl IntoIterator<Item = Option<TensorId>>) -> Option<Draft> {
    let (x, y) = (node.input(0)?, node.output()?);
    let args = [x].into_iter().chain(inputs.into_iter().flatten()).chain([y]);
    Some(Draft {
        op,
        operator: String::new(),
        args: args.map(Argument::Tensor).collect(),
        outputs: node.outputs.clone(),
        epilogue: Epilogue::NONE,
    })
}

/// Of a byte for each number of the weight, and one scale for each column.
fn bytes(node: &Node, spec: &WeightOnlySpec, rows: &QuantisedRows) -> Option<Draft> {
    if spec.has_pairs || spec.group != spec.k {
        return None;
    }
    let op = IntegerSpec {
        operation: IntegerOperation::Linear { is_weight_transposed: !spec.is_row_per_output },
        input: IntegerInput::Rows { scheme: rows.scheme },
        has_bias: spec.has_bias,
        clamp: None,
        output: IntegerOutput::Float,
        sum: None,
    };
    let bias = if spec.has_bias { Some(node.input(3)?) } else { None };
    draft(node, Op::Integer(Box::new(op)), [Some(node.input(1)?), Some(node.input(2)?), bias])
}

/// Of four bits for each number.
fn nibbles(
    graph: &mut Graph,
    host: &mut dyn Host,
    node: &Node,
    spec: &WeightOnlySpec,
    rows: &QuantisedRows,
) -> Result<Option<Draft>> {
    let (Some(weight), Some(scales)) = (node.input(1), node.input(2)) else { return Ok(None) };
    if !takes_groups(spec.k, spec.group) || !(spec.has_pairs || are_nibbles(graph, host, weight)?) {
        return Ok(None);
    }
    let mut make = |views: &[ConstantView<'_>]| match views {
        [weight, scales] => sums_of_columns(spec, weight, scales),
        _ => Ok(None),
    };
    let recipe =
        format!("weight_sums.{}.{}.{}.{}", spec.group, spec.k, spec.has_pairs, spec.is_row_per_output);
    let of_sums = TensorSpec::contiguous(DType::Float32, &[spec.n])?;
    let Some(sums) = host.add_constant(graph, &recipe, &[weight, scales], of_sums, &mut make)? else {
        return Ok(None);
    };
    let bias = if spec.has_bias { node.input(3) } else { None };
    if spec.has_bias != bias.is_some() {
        return Ok(None);
    }
    let op = WeightOnlySpec { rows: Some(rows.scheme), ..spec.clone() };
    Ok(draft(node, Op::WeightOnly(Box::new(op)), [Some(weight), Some(scales), Some(sums), bias]))
}

fn are_nibbles(graph: &Graph, host: &dyn Host, weight: TensorId) -> Result<bool> {
    match host.constant(graph, weight) {
        Some(view) if view.dtype == DType::Int8 => {
            Ok(view.row_major::<i8>()?.iter().all(|x| (-8..8).contains(x)))
        }
        _ => Ok(false),
    }
}
