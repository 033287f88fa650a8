//! Finds products whose weight is dequantised from a constant.

use crate::graph::rules::rows_behind::{BiasBehind, Tail, is_row, row_call};
use crate::graph::{Graph, Node, NodeId, Op, TensorId};
use pteron_core::DType;

const TO_F32: &[&str] = &["dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"];
const PER_CHANNEL: &str = "quantized_decomposed::dequantize_per_channel.out";

/// Rows of a table of two numbers in a byte.
const PAIRS: &str = "quantized_decomposed::embedding_4bit.out";

/// What makes floats of a quantised constant.
pub(super) const SOURCES: &[&str] = &[TO_F32[0], TO_F32[1], PER_CHANNEL, PAIRS];

/// A product with a weight that is dequantised, and what goes into it.
pub(super) struct Found {
    /// What is replaced, in execution order.
    pub nodes: Vec<NodeId>,
    pub x: TensorId,
    pub weight: Weight,
    pub bias: Option<TensorId>,
    /// The result.
    pub y: TensorId,
    /// A view of the result and a sum with the bias behind it.
    pub tail: Option<Tail>,
}

/// A quantised weight.
pub(super) struct Weight {
    pub quantised: TensorId,
    /// Constants.
    pub scales: Option<TensorId>,
    pub zeros: Option<TensorId>,
    pub k: usize,
    pub n: usize,
    pub group: usize,
    /// Does it lie as [N, K]?
    pub is_row_per_output: bool,
    /// Two numbers in a byte: the rows of the table that the weight has, a constant.
    pub rows_of_pairs: Option<TensorId>,
    /// What makes floats of it, from the product on.
    chain: Vec<NodeId>,
}

/// The product at `id`, if its weight is a dequantised constant.
pub(super) fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    if !graph.is_live(id) || node.op != Op::Linear || !node.epilogue.is_none() {
        return None;
    }
    let (x, weight, bias, is_row_per_output) = match node.operator.as_str() {
        "aten::mm.out" => (0, 1, None, false),
        "aten::addmm.out" if node.number(3) == Some(1.0) && node.number(4) == Some(1.0) => {
            (1, 2, Some(0), false)
        }
        "aten::linear.out" => (0, 1, Some(2).filter(|at| !node.is_none(*at)), true),
        _ => return None,
    };
    let weight = weight_of(graph, node.input(weight)?, is_row_per_output)?;
    let bias = match bias {
        Some(at) => Some(node.input(at).filter(|t| is_row(graph, *t, weight.n))?),
        None => None,
    };
    let y = node.output()?;
    let is_plain = |t: TensorId| {
        let spec = &graph.tensor(t).spec;
        spec.dtype == DType::Float32 && spec.dim_order.is_contiguous()
    };
    let x = node.input(x).filter(|x| is_plain(*x) && is_plain(y))?;
    let mut found = Found { nodes: vec![id], x, weight, bias, y, tail: None };
    if found.weight.scales.is_none() {
        found.scale_behind(graph);
        found.bias_behind(graph);
    }
    found.nodes.extend(chain_nodes(graph, id, &found.weight.chain));
    found.nodes = in_order(graph, found.nodes);
    Some(found)
}

/// Those of `chain` whose results nobody reads but `product` and each other.
fn chain_nodes(graph: &Graph, product: NodeId, chain: &[NodeId]) -> Vec<NodeId> {
    let mut nodes = vec![];
    for node in chain {
        let is_unseen = graph.node(*node).outputs.iter().all(|t| {
            let goes = |r: &NodeId| *r == product || nodes.contains(r);
            graph.tensor(*t).is_private() && graph.readers(*t).iter().all(goes)
        });
        if is_unseen {
            nodes.push(*node);
        }
    }
    nodes
}

impl Found {
    /// Takes in `mul(y, s)` with a constant row s.
    fn scale_behind(&mut self, graph: &Graph) {
        let Some(call) = row_call(graph, self.y, "aten::mul.out", self.weight.n) else { return };
        self.nodes.push(call.node);
        (self.weight.scales, self.y) = (Some(call.row), call.result);
    }

    /// Takes in `add(y, b)` or `add(view(y), b)` with a constant row b.
    fn bias_behind(&mut self, graph: &Graph) {
        if self.bias.is_some() {
            return;
        }
        match BiasBehind::find(graph, self.y, self.weight.n) {
            Some(BiasBehind::Sum(call)) => {
                self.nodes.push(call.node);
                (self.bias, self.y) = (Some(call.row), call.result);
            }
            Some(BiasBehind::View(bias, tail)) => (self.bias, self.tail) = (Some(bias), Some(tail)),
            None => {}
        }
    }
}

/// From the weight of a product back to the constant; `is_row_per_output` says how the product reads it.
fn weight_of(graph: &Graph, mut tensor: TensorId, mut is_row_per_output: bool) -> Option<Weight> {
    let mut chain = vec![];
    while let Some(id) = graph.producer(tensor).filter(|id| is_transposition(graph.node(*id))) {
        is_row_per_output = !is_row_per_output;
        chain.push(id);
        tensor = graph.node(id).input(0)?;
    }
    let &[rows, columns] = &*graph.tensor(tensor).spec.shape else { return None };
    if let Some(id) = graph.producer(tensor).filter(|id| is_view(graph.node(*id))) {
        chain.push(id);
        tensor = graph.node(id).input(0)?;
    }
    let id = graph.producer(tensor)?;
    let node = graph.node(id);
    chain.push(id);
    let (k, n) = if is_row_per_output { (columns, rows) } else { (rows, columns) };
    let matrix = Matrix { graph, shape: &graph.tensor(tensor).spec.shape, rows, columns, is_row_per_output };
    let mut weight = Weight {
        quantised: tensor,
        scales: None,
        zeros: None,
        k,
        n,
        group: k,
        is_row_per_output,
        rows_of_pairs: None,
        chain,
    };
    match node.operator.as_str() {
        PAIRS => return matrix.pairs(node, &mut weight).map(|()| weight),
        PER_CHANNEL => matrix.per_channel(node, &mut weight)?,
        "aten::mul.out" => {
            let scale_at =
                (0..2).find(|at| node.input(*at).is_some_and(|t| graph.tensor(t).is_constant()))?;
            let scales = node.input(scale_at)?;
            weight.group = matrix.group(scales)?;
            weight.scales = Some(scales).filter(|t| graph.tensor(*t).spec.dtype == DType::Float32);
            weight.scales?;
            matrix.difference(node.input(1 - scale_at)?, &mut weight)?;
        }
        _ => weight.quantised = converted(graph, id)?,
    }
    let q = &graph.tensor(weight.quantised);
    let is_seen_by_rows = match is_row_per_output {
        true => matrix.shape.first() == Some(&rows),
        false => *matrix.shape == [rows, columns],
    };
    let fits = q.is_constant()
        && is_seen_by_rows
        && q.spec.dtype == DType::Int8
        && q.spec.dim_order.is_contiguous()
        && q.spec.shape == graph.tensor(tensor).spec.shape
        && graph.tensor(tensor).spec.dtype == DType::Float32
        && k > 0
        && n > 0;
    fits.then_some(weight)
}

/// The shape of a dequantised weight, and what its dimensions mean.
struct Matrix<'a> {
    graph: &'a Graph,
    /// [rows, columns], or [rows, groups, k of a group].
    shape: &'a [usize],
    rows: usize,
    columns: usize,
    is_row_per_output: bool,
}

impl Matrix<'_> {
    /// k that share one of these parameters, which are dense; `None` if they are not for columns of the product.
    fn group(&self, parameters: TensorId) -> Option<usize> {
        let tensor = self.graph.tensor(parameters);
        if !tensor.spec.dim_order.is_contiguous() {
            return None;
        }
        match (self.is_row_per_output, self.shape, &*tensor.spec.shape) {
            (true, &[rows, columns], &[r, 1]) if r == rows => Some(columns),
            (true, &[rows, groups, _], &[r, 1, 1]) if r == rows && groups > 0 => Some(self.columns),
            (true, &[rows, groups, each], &[r, g, 1]) if (r, g) == (rows, groups) => Some(each),
            (false, &[_, columns], &[c] | &[1, c]) if c == columns => Some(self.rows),
            _ => None,
        }
    }

    /// `quantised - zeros`, or `quantised`, in f32.
    fn difference(&self, tensor: TensorId, weight: &mut Weight) -> Option<()> {
        let id = self.graph.producer(tensor)?;
        let node = self.graph.node(id);
        weight.chain.push(id);
        if node.operator != "aten::sub.out" {
            weight.quantised = converted(self.graph, id)?;
            return Some(());
        }
        let (from, zeros) = (node.input(0)?, node.input(1)?);
        let from = self.graph.producer(from)?;
        weight.chain.push(from);
        weight.quantised = converted(self.graph, from)?;
        let zeros = match self.graph.producer(zeros) {
            Some(made) => {
                weight.chain.push(made);
                converted(self.graph, made)?
            }
            None => zeros,
        };
        let is_known =
            self.graph.tensor(zeros).is_constant() && is_parameter(self.graph.tensor(zeros).spec.dtype);
        weight.zeros = Some(zeros);
        (is_known && node.number(2) == Some(1.0) && self.group(zeros)? == weight.group).then_some(())
    }

    /// The arguments of `dequantize_per_channel`: quantised, scales, zero points, axis.
    fn per_channel(&self, node: &Node, weight: &mut Weight) -> Option<()> {
        let axis = node.number(3)?;
        let is_by_column = if self.is_row_per_output { [0.0, -2.0] } else { [1.0, -1.0] };
        let parameters = |at: usize| {
            let t = node.input(at)?;
            let tensor = self.graph.tensor(t);
            let fits =
                tensor.is_constant() && *tensor.spec.shape == [weight.n] && is_parameter(tensor.spec.dtype);
            fits.then_some(t)
        };
        let (scales, zeros) = (parameters(1)?, if node.is_none(2) { None } else { Some(parameters(2)?) });
        weight.quantised = node.input(0)?;
        (weight.scales, weight.zeros) = (Some(scales), zeros);
        (is_by_column.contains(&axis) && self.shape.len() == 2).then_some(())
    }

    /// The arguments of `embedding_4bit`: table, scales, zero points, least and greatest number, rows. The weight is the
    /// whole table, in rows of its own.
    fn pairs(&self, node: &Node, weight: &mut Weight) -> Option<()> {
        let constant = |at: usize, dtype: DType| {
            let t = node.input(at)?;
            let tensor = self.graph.tensor(t);
            let fits =
                tensor.is_constant() && tensor.spec.dtype == dtype && tensor.spec.dim_order.is_contiguous();
            fits.then_some((t, &*tensor.spec.shape))
        };
        let (table, &[table_rows, bytes]) = constant(0, DType::UInt8)? else { return None };
        let (scales, of_scales) = constant(1, DType::Float32)?;
        let zeros = if node.is_none(2) { None } else { Some(constant(2, DType::Float32)?) };
        let (rows, of_rows) = constant(5, DType::Int64)?;
        let (&[scaled] | &[scaled, _]) = of_scales else { return None };
        let (groups, numbers) = (of_scales.get(1).copied().unwrap_or(1), bytes.checked_mul(2)?);
        let group = numbers.checked_div(groups).filter(|group| *group > 0)?;
        let is_fitting = self.is_row_per_output
            && *self.shape == [table_rows, numbers]
            && *of_rows == [table_rows]
            && scaled == table_rows
            && zeros.is_none_or(|(_, of_zeros)| of_zeros == of_scales)
            && [node.number(3), node.number(4)] == [Some(-8.0), Some(7.0)]
            && group * groups == numbers
            // Groups are within rows of the weight, and begin with a byte.
            && self.columns.is_multiple_of(group)
            && group.is_multiple_of(2)
            && node.output().is_some_and(|t| self.graph.tensor(t).spec.dtype == DType::Float32);
        (weight.quantised, weight.group) = (table, group);
        (weight.scales, weight.zeros) = (Some(scales), zeros.map(|(zeros, _)| zeros));
        weight.rows_of_pairs = Some(rows);
        is_fitting.then_some(())
    }
}

/// Numbers that become f32 without loss, or scales in f64.
fn is_parameter(dtype: DType) -> bool {
    matches!(dtype, DType::Float32 | DType::Float64 | DType::Int8 | DType::Int32 | DType::Int64)
}

/// The constant that a node makes f32 of, element by element.
fn converted(graph: &Graph, id: NodeId) -> Option<TensorId> {
    let node = graph.node(id);
    let (from, to) = (node.input(0)?, node.output()?);
    let (from_spec, to_spec) = (&graph.tensor(from).spec, &graph.tensor(to).spec);
    (TO_F32.contains(&node.operator.as_str())
        && graph.tensor(from).is_constant()
        && to_spec.dtype == DType::Float32
        && from_spec.dtype != DType::Float64
        && from_spec.dim_order.is_contiguous()
        && to_spec.dim_order.is_contiguous())
    .then_some(from)
}

/// Does the node swap the two dimensions of a matrix?
fn is_transposition(node: &Node) -> bool {
    match node.operator.as_str() {
        "aten::permute_copy.out" => matches!(node.ints(1), Some(&[1, 0] | &[-1, -2] | &[-1, 0] | &[1, -2])),
        "aten::transpose_copy.int_out" => {
            let dims = [1, 2].map(|at| node.number(at).map(|d| d as i64 & 1));
            dims[0].is_some() && dims[1].is_some() && dims[0] != dims[1]
        }
        "aten::t_copy.out" => true,
        _ => false,
    }
}

fn is_view(node: &Node) -> bool {
    node.op == Op::View || node.operator == "aten::view_copy.out"
}

/// Nodes in execution order, once each.
fn in_order(graph: &Graph, mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    nodes.sort_by(|a, b| match (a == b, graph.is_before(*a, *b)) {
        (true, _) => std::cmp::Ordering::Equal,
        (_, true) => std::cmp::Ordering::Less,
        (_, false) => std::cmp::Ordering::Greater,
    });
    nodes.dedup();
    nodes
}
