//! torchao's products of rows that are quantised symmetrically, with weights of 8 bits: `_int_mm`, and what is behind it. On
//! processors with AVX-512 VNNI it raises the bytes to unsigned ones (`raised_bytes`).

use super::affine_reader::CASTS;
use super::affine_rows::{SymmetricRows, symmetric_rows};
use super::is_plain_call;
use super::raised_bytes::{lowered, unraised};
use super::rows::viewed;
use crate::epilogue::Epilogue;
use crate::graph::rules::rows_behind::{BiasBehind, Product, Tail, row_call};
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId};
use crate::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec};
use pteron_core::{DType, Result, TensorSpec};

pub(super) const INT_MM: &str = "aten::_int_mm.out";

/// `y = float(_int_mm(view(q), weight)) * view(scale) * scales + bias`.
struct Found {
    /// The product and what scales its sums, in execution order.
    nodes: Vec<NodeId>,
    rows: SymmetricRows,
    /// Between the rows and the product.
    view: Option<NodeId>,
    /// The rows as the product reads them, in f32.
    seen: TensorSpec,
    weight: TensorId,
    /// One for each column.
    scales: TensorId,
    bias: Option<TensorId>,
    y: TensorId,
    tail: Option<Tail>,
}

/// Replaces the product at `id`, if it is one.
pub(super) fn replace(graph: &mut Graph, host: &mut dyn Host, id: NodeId) -> Result<bool> {
    let Some(found) = find(graph, host, id) else { return Ok(false) };
    let floats = found.rows.floats;
    let x = match found.view {
        // A tensor of nobody's, for the trial.
        Some(_) => graph.new_tensor(found.seen.clone()),
        None => floats,
    };
    let mut draft = found.draft(x);
    if !host.can_prepare(graph, &draft)? {
        return Ok(false);
    }
    draft.args[0] = Argument::Tensor(floats);
    let mut product = Product { nodes: &found.nodes, draft, y: found.y, tail: found.tail.as_ref() };
    // Or a view would be left behind where the floats are not what they were.
    if !product.fits(graph) {
        return Ok(false);
    }
    if let Some(view) = found.view {
        product.draft.args[0] = Argument::Tensor(viewed(graph, view, floats));
    }
    Ok(product.put(graph))
}

impl Found {
    /// The product in the engine's form.
    fn draft(&self, x: TensorId) -> Draft {
        let op = IntegerSpec {
            operation: IntegerOperation::Linear { is_weight_transposed: true },
            input: IntegerInput::Rows { scheme: self.rows.scheme },
            has_bias: self.bias.is_some(),
            clamp: None,
            output: IntegerOutput::Float,
            sum: None,
        };
        let inputs = [x, self.weight, self.scales].into_iter().chain(self.bias);
        Draft {
            op: Op::Integer(Box::new(op)),
            operator: String::new(),
            args: inputs.chain([self.y]).map(Argument::Tensor).collect(),
            outputs: [self.y].into_iter().collect(),
            epilogue: Epilogue::NONE,
        }
    }
}

fn find(graph: &Graph, host: &dyn Host, id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    (graph.is_live(id) && node.operator == INT_MM && is_plain_call(node)).then_some(())?;
    let (multiplied, weight, mut sums) = (node.input(0)?, node.input(1)?, node.output()?);
    let x = unraised(graph, host, multiplied)?;
    let of_weight = graph.tensor(weight);
    let &[k, n] = &*of_weight.spec.shape else { return None };
    let (q, view) = match graph.producer(x) {
        Some(view) if graph.node(view).op == Op::View => (graph.node(view).input(0)?, Some(view)),
        _ => (x, None),
    };
    let rows = symmetric_rows(graph, host, q)?;
    let is_long = |t: TensorId| graph.tensor(t).spec.shape.last() == Some(&k);
    let is_fitting = is_long(x)
        && is_long(q)
        && graph.tensor(x).spec.dim_order.is_contiguous()
        && of_weight.is_constant()
        && of_weight.spec.dtype == DType::Int8;
    is_fitting.then_some(())?;

    let mut nodes = vec![id];
    if x != multiplied {
        let lowered = lowered(graph, host, sums, weight)?;
        nodes.push(lowered);
        sums = graph.node(lowered).output()?;
    }
    let converted = graph.only_reader(sums)?;
    let cast = graph.node(converted);
    let mut y = cast.output()?;
    let spec = &graph.tensor(y).spec;
    let is_f32 = spec.dtype == DType::Float32 && spec.dim_order.is_contiguous();
    (CASTS.contains(&cast.operator.as_str()) && is_plain_call(cast) && is_f32).then_some(())?;
    nodes.push(converted);
    let (mut scales, mut is_scaled) = (None, false);
    for _ in 0..2 {
        if scales.is_none()
            && let Some(call) = row_call(graph, y, "aten::mul.out", n)
        {
            nodes.push(call.node);
            (scales, y) = (Some(call.row), call.result);
            continue;
        }
        let scaling = graph.only_reader(y)?;
        y = scaled(graph, scaling, y, rows.scale).filter(|_| !is_scaled)?;
        nodes.push(scaling);
        is_scaled = true;
    }
    let (mut bias, mut tail) = (None, None);
    match BiasBehind::find(graph, y, n) {
        Some(BiasBehind::Sum(call)) => {
            nodes.push(call.node);
            (bias, y) = (Some(call.row), call.result);
        }
        Some(BiasBehind::View(row, view)) => (bias, tail) = (Some(row), Some(view)),
        None => {}
    }
    let seen = TensorSpec { dtype: DType::Float32, ..graph.tensor(x).spec.clone() };
    Some(Found { nodes, rows, view, seen, weight, scales: scales?, bias, y, tail })
}

/// `y` with a factor for each row, which `node` computes.
fn scaled(graph: &Graph, id: NodeId, y: TensorId, factors: TensorId) -> Option<TensorId> {
    let node = graph.node(id);
    let other = (0..2).find(|at| node.input(*at) == Some(y)).and_then(|at| node.input(1 - at))?;
    let result = node.output()?;
    let (spec, of_factors) = (&graph.tensor(y).spec, &graph.tensor(other).spec.shape);
    (node.operator == "aten::mul.out"
        && is_plain_call(node)
        && graph.through_views(other) == graph.through_views(factors)
        && matches!((&**of_factors, &*spec.shape), (&[f, 1], &[rows, _]) if f == rows)
        && graph.tensor(result).spec == *spec)
        .then_some(result)
}

#[cfg(test)]
mod tests;
