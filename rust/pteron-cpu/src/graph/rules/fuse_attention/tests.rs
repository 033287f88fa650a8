use super::*;
use crate::attention::Axes;
use crate::graph::Literal;
use crate::graph::testing::{AnyKernel, Builder, Holds};
use pteron_core::TensorSpec;

const CAST: &str = "dim_order_ops::_to_dim_order_copy.out";
const VIEW: &str = "executorch_prim::et_view.default";

/// Attention of 2 heads over 5 queries and 7 keys, step by step.
struct Steps {
    b: Builder,
    mask: bool,
    safe: bool,
    late_scale: bool,
    joined: bool,
    batch: usize,
    dtype: DType,
    /// Keys and values are int8 with factors of these rows: [keys, values].
    factors: Option<[usize; 2]>,
}

fn permute(b: &mut Builder, t: TensorId, order: [i64; 4]) -> TensorId {
    let from = b.graph.tensor(t).spec.shape;
    let shape = order.map(|d| from[d as usize]);
    b.call_with("aten::permute_copy.out", vec![Argument::Tensor(t), Argument::ints(&order)], &shape)
}

fn view(b: &mut Builder, t: TensorId, shape: &[usize]) -> TensorId {
    let size: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
    b.call_with(VIEW, vec![Argument::Tensor(t), Argument::ints(&size)], shape)
}

fn scaled(b: &mut Builder, t: TensorId, factor: f64) -> TensorId {
    let shape = b.graph.tensor(t).spec.shape;
    let factor = Argument::Literal(Literal::Double(factor), None);
    b.call_with("aten::mul.Scalar_out", vec![Argument::Tensor(t), factor], &shape)
}

fn flags(t: TensorId, dim: i64, flag: bool) -> Vec<Argument> {
    vec![Argument::Tensor(t), Argument::int(dim), Argument::Literal(Literal::Bool(flag), None)]
}

impl Steps {
    fn new() -> Self {
        Steps {
            b: Builder::new(),
            mask: true,
            safe: true,
            late_scale: false,
            joined: false,
            batch: 3,
            dtype: DType::Float32,
            factors: None,
        }
    }

    /// Writes the run; names what the tests look at.
    fn write(mut self) -> Builder {
        let (n, h, l, s, d) = (self.batch, 2, 5, 7, 8);
        let b = &mut self.b;
        let [q, k, v] = [l, s, s].map(|rows| b.border(&[n, rows, h, d]));
        b.name("q", q).name("k", k).name("v", v);
        let stored = [k, v];
        let [k, v] = match self.factors {
            None => [k, v],
            Some(rows) => [(k, rows[0]), (v, rows[1])].map(|(stored, rows)| widened(b, stored, rows)),
        };
        let mut first = permute(b, q, [0, 2, 1, 3]);
        let mut second = permute(b, k, [0, 2, 3, 1]);
        b.name("keys", second);
        if !self.late_scale {
            (first, second) = (scaled(b, first, 0.5), scaled(b, second, 0.25));
        }
        let (first, second) = (view(b, first, &[n * h, l, d]), view(b, second, &[n * h, d, s]));
        let mut x = b.call("aten::bmm.out", &[first, second], &[n * h, l, s]);
        let scores = if self.joined { vec![n * h, l, s] } else { vec![n, h, l, s] };
        if !self.joined {
            x = view(b, x, &scores);
        }
        if self.late_scale {
            x = scaled(b, x, 0.125);
        }
        if self.mask {
            let mask = b.border(&[1, 1, l, s]);
            b.name("mask", mask);
            let args = vec![Argument::Tensor(x), Argument::Tensor(mask), Argument::int(1)];
            x = b.call_with("aten::add.out", args, &scores);
        }
        let is_half = self.dtype != DType::Float32;
        let wide = if is_half { b.call(CAST, &[x], &scores) } else { x };
        let softmax = b.call_with("aten::_softmax.out", flags(wide, -1, false), &scores);
        let mut w = if is_half { b.call(CAST, &[softmax], &scores) } else { softmax };
        b.name("scores", x).name("weights", w);
        if self.safe {
            w = safe(b, x, w, &scores);
        }
        if !self.joined {
            w = view(b, w, &[n * h, l, s]);
        }
        let values = permute(b, v, [0, 2, 1, 3]);
        let values = view(b, values, &[n * h, s, d]);
        let mut y = b.call("aten::bmm.out", &[w, values], &[n * h, l, d]);
        y = view(b, y, &[n, h, l, d]);
        y = permute(b, y, [0, 2, 1, 3]);
        b.name("y", y);
        let mut others = if is_half { vec![wide, softmax] } else { Vec::new() };
        if self.factors.is_some() {
            for tensor in stored {
                b.cast(tensor, DType::Int8);
            }
            others.extend(stored);
        }
        b.cast_all(self.dtype, &others);
        self.b
    }
}

/// `cast(stored) * factors`, with factors of so many rows.
fn widened(b: &mut Builder, stored: TensorId, rows: usize) -> TensorId {
    let shape = b.graph.tensor(stored).spec.shape;
    let mut of_rows = shape;
    (of_rows[1], of_rows[3]) = (rows, 1);
    let factors = b.border(&of_rows);
    let wide = b.call(CAST, &[stored], &shape);
    b.call("aten::mul.out", &[factors, wide], &shape)
}

/// `where(¬any(¬(x == -inf)), 0, w)`.
fn safe(b: &mut Builder, x: TensorId, w: TensorId, scores: &[usize]) -> TensorId {
    let mut row = scores.to_vec();
    *row.last_mut().unwrap() = 1;
    let lowest = Argument::Literal(Literal::Double(f64::NEG_INFINITY), None);
    let hidden = b.call_with("aten::eq.Scalar_out", vec![Argument::Tensor(x), lowest], scores);
    let seen = b.call("aten::logical_not.out", &[hidden], scores);
    let any = b.call_with("aten::any.out", flags(seen, -1, true), &row);
    let none = b.call("aten::logical_not.out", &[any], &row);
    let zero = vec![Argument::Tensor(w), Argument::int(0), Argument::none()];
    let zero = b.call_with("aten::full_like.out", zero, scores);
    b.call("aten::where.self_out", &[none, zero, w], scores)
}

fn fused(b: &mut Builder) -> Vec<(AttentionSpec, Node)> {
    apply(&mut b.graph, &mut AnyKernel).unwrap();
    b.graph
        .live()
        .filter_map(|(_, n)| match &n.op {
            Op::Attention(spec) => Some(((**spec).clone(), n.clone())),
            _ => None,
        })
        .collect()
}

fn inputs(node: &Node) -> Vec<TensorId> {
    node.inputs().collect()
}

#[test]
fn the_whole_decomposition_is_one_step() {
    let mut b = Steps::new().write();
    let found = fused(&mut b);
    let [(spec, node)] = found.as_slice() else { panic!("one step: {found:?}") };
    assert_eq!(b.graph.live().count(), 1);
    assert_eq!(inputs(node), ["q", "k", "v", "mask"].map(|n| b.get(n)));
    assert_eq!(node.output(), Some(b.get("y")));
    assert_eq!((spec.scale, spec.empty_row, spec.mask), (0.125, EmptyRow::Zero, Some(3)));
    for operand in [&spec.query, &spec.key, &spec.value, &spec.out] {
        assert_eq!(operand.axes, Axes::ROWS_FIRST);
    }
    assert!(spec.checks.is_empty());
    assert_eq!(node.covers.len(), 22);
}

#[test]
fn keys_and_values_of_int8_are_read_as_they_are_stored() {
    let stored = |rows| Steps { factors: Some(rows), ..Steps::new() };
    let mut b = stored([7, 7]).write();
    let found = fused(&mut b);
    let [(spec, node)] = found.as_slice() else { panic!("one step: {found:?}") };
    assert_eq!(b.graph.live().count(), 1);
    assert_eq!(inputs(node)[..4], ["q", "k", "v", "mask"].map(|n| b.get(n)));
    let factors = spec.row_factors.unwrap();
    assert_eq!(factors.map(|factor| factor.argument), [4, 5]);
    assert_eq!(factors.map(|factor| factor.axes), [Axes::ROWS_FIRST; 2]);
    assert_eq!(inputs(node).len(), 6);

    // Factors that rows share are another computation: the product stays in front of attention.
    let mut b = stored([1, 1]).write();
    let found = fused(&mut b);
    assert_eq!(found.len(), 1);
    assert!(found[0].0.row_factors.is_none() && b.graph.live().count() == 5);
    assert!(fused(&mut stored([7, 1]).write()).iter().all(|(spec, _)| spec.row_factors.is_none()));
    // A cast to bools loses the numbers.
    let mut b = stored([7, 7]).write();
    let casts: Vec<TensorId> =
        b.graph.live().filter(|(_, n)| n.operator == CAST).filter_map(|(_, n)| n.output()).collect();
    assert_eq!(casts.len(), 2);
    for wide in casts {
        b.cast(wide, DType::Bool);
    }
    assert!(fused(&mut b).iter().all(|(spec, _)| spec.row_factors.is_none()));
    // Of 16 bits the product is rounded.
    let mut b = Steps { dtype: DType::BFloat16, safe: false, ..stored([7, 7]) }.write();
    assert!(fused(&mut b).iter().all(|(spec, _)| spec.row_factors.is_none()));
}

#[test]
fn floats_of_16_bits_lose_the_casts_around_the_softmax() {
    for dtype in [DType::BFloat16, DType::Float16] {
        for safe in [false, true] {
            let mut b = Steps { dtype, safe, ..Steps::new() }.write();
            let found = fused(&mut b);
            let [(spec, node)] = found.as_slice() else { panic!("one step: {found:?}") };
            assert_eq!(b.graph.live().count(), 1);
            assert_eq!(inputs(node), ["q", "k", "v", "mask"].map(|n| b.get(n)));
            assert_eq!(node.output(), Some(b.get("y")));
            assert_eq!(spec.empty_row, if safe { EmptyRow::Zero } else { EmptyRow::NaN });
        }
    }
    // A softmax in 16 bits, or one whose weights stay f32, is another computation.
    let mut b = Steps { dtype: DType::BFloat16, safe: false, ..Steps::new() }.write();
    let weights = b.get("weights");
    b.cast(weights, DType::Float32);
    assert!(fused(&mut b).is_empty());
}

#[test]
fn variations() {
    let plain = Steps { mask: false, safe: false, late_scale: true, ..Steps::new() };
    let found = fused(&mut plain.write());
    assert_eq!(found.len(), 1);
    let spec = &found[0].0;
    assert_eq!((spec.scale, spec.empty_row, spec.mask), (0.125, EmptyRow::NaN, None));
    // A mask on [batch · heads, ..] has no place for heads when there are several batches.
    let joined = || Steps { mask: false, joined: true, ..Steps::new() };
    assert_eq!(fused(&mut joined().write()).len(), 1);
}

/// The scale of attention whose scores go through `operator` with a constant of this shape, first or second.
fn scale_by_constant(operator: &str, number: f32, shape: &[usize], is_first: bool) -> Option<f32> {
    let mut b = Steps { mask: false, safe: false, late_scale: true, ..Steps::new() }.write();
    let scaled = b.graph.live().find(|(_, n)| n.operator == "aten::mul.Scalar_out").map(|(id, _)| id)?;
    let (x, out) = (b.graph.node(scaled).input(0)?, b.graph.node(scaled).output()?);
    let mut args = [x, b.constant(shape)].map(Argument::Tensor).to_vec();
    if is_first {
        args.reverse();
    }
    args.push(Argument::Tensor(out));
    let epilogue = Epilogue::NONE;
    let draft = Draft { op: Op::Opaque, operator: operator.into(), args, outputs: smallvec![out], epilogue };
    b.graph.replace(&[scaled], draft)?;
    let numbers = vec![number; shape.iter().product()];
    apply(&mut b.graph, &mut Holds(numbers)).unwrap();
    b.graph.live().find_map(|(_, n)| match &n.op {
        Op::Attention(spec) => Some(spec.scale),
        _ => None,
    })
}

#[test]
fn a_factor_may_be_a_constant_of_one_element() {
    assert_eq!(scale_by_constant("aten::div.out", 4.0, &[], false), Some(0.25));
    assert_eq!(scale_by_constant("aten::mul.out", 4.0, &[1, 1], false), Some(4.0));
    assert_eq!(scale_by_constant("aten::mul.out", 4.0, &[1], true), Some(4.0));
    // A quotient by the scores, one by nothing, and more numbers than one.
    assert_eq!(scale_by_constant("aten::div.out", 4.0, &[], true), None);
    assert_eq!(scale_by_constant("aten::div.out", 0.0, &[], false), None);
    assert_eq!(scale_by_constant("aten::mul.out", 4.0, &[7], false), None);
}

#[test]
fn a_softmax_written_out_counts_too() {
    let mut b = Steps { safe: false, ..Steps::new() }.write();
    // Replaces the softmax by its parts.
    let (x, w) = (b.get("scores"), b.get("weights"));
    let shape = b.graph.tensor(w).spec.shape;
    let row = [shape[0], shape[1], shape[2], 1];
    let at = b.graph.producer(w).unwrap();
    let spec = |s: &[usize]| TensorSpec::contiguous(DType::Float32, s).unwrap();
    let mut part = |operator: &str, mut args: Vec<Argument>, shape: &[usize]| {
        let out = b.graph.new_tensor(spec(shape));
        args.push(Argument::Tensor(out));
        let (operator, outputs) = (operator.to_string(), smallvec![out]);
        b.graph
            .insert_before(at, Draft { op: Op::Opaque, operator, args, outputs, epilogue: Epilogue::NONE });
        out
    };
    let last = |t, flag| {
        vec![Argument::Tensor(t), Argument::ints(&[-1]), Argument::Literal(Literal::Bool(flag), None)]
    };
    let max = part("aten::amax.out", last(x, true), &row);
    let args = vec![Argument::Tensor(x), Argument::Tensor(max), Argument::int(1)];
    let shifted = part("aten::sub.out", args, &shape);
    let exp = part("aten::exp.out", vec![Argument::Tensor(shifted)], &shape);
    let mut args = last(exp, true);
    args.push(Argument::none());
    let sum = part("aten::sum.IntList_out", args, &row);
    let div = part("aten::div.out", vec![Argument::Tensor(exp), Argument::Tensor(sum)], &shape);
    let reader = b.graph.only_reader(w).unwrap();
    assert!(b.graph.redirect(&[reader], w, div));
    assert!(b.graph.remove(at));
    let found = fused(&mut b);
    assert_eq!(found.len(), 1);
    assert_eq!(b.graph.live().count(), 1);
}

#[test]
fn results_that_others_read_keep_their_steps() {
    // The weights are an output of the model: nothing can be fused.
    let mut b = Steps::new().write();
    let w = b.get("weights");
    b.call("aten::neg.out", &[w], &[3, 2, 5, 7]);
    assert!(fused(&mut b).is_empty());
    // The transposed keys are: their permute stays, the step reads what is in front of it.
    let mut b = Steps::new().write();
    let keys = b.get("keys");
    b.call("aten::neg.out", &[keys], &[3, 2, 8, 7]);
    let found = fused(&mut b);
    assert_eq!(found.len(), 1);
    assert_eq!(inputs(&found[0].1)[1], b.get("k"));
    assert_eq!(b.graph.live().count(), 3);
}

#[test]
fn an_operand_that_is_overwritten_is_read_where_it_still_is() {
    // The attention's own result lies over the values, which the permute has copied by then.
    let mut b = Steps::new().write();
    b.pin("v", 4096);
    b.pin("y", 4096);
    let found = fused(&mut b);
    let [(spec, node)] = found.as_slice() else { panic!("one step: {found:?}") };
    assert_eq!(spec.value.axes, Axes { batch: None, head: Some(0), row: 1, element: 2 });
    assert_ne!(inputs(node)[2], b.get("v"));
}

#[test]
fn where_zero_or_minus_infinity_is_read_as_its_condition() {
    let mut b = Steps { mask: false, ..Steps::new() }.write();
    // Written in front: scores + where(seen, 0, -inf).
    let x = b.get("scores");
    let mut spec = TensorSpec::contiguous(DType::Bool, &[1, 1, 5, 7]).unwrap();
    let seen = b.graph.new_tensor(spec.clone());
    let softmax = b.graph.producer(b.get("weights")).unwrap();
    spec.dtype = DType::Float32;
    let scalar = TensorSpec::contiguous(DType::Float32, &[]).unwrap();
    let sum = b.graph.tensor(x).spec.clone();
    let mut put = |operator: &str, mut args: Vec<Argument>, spec: &TensorSpec| {
        let out = b.graph.new_tensor(spec.clone());
        args.push(Argument::Tensor(out));
        let (operator, outputs) = (operator.to_string(), smallvec![out]);
        b.graph.insert_before(
            softmax,
            Draft { op: Op::Opaque, operator, args, outputs, epilogue: Epilogue::NONE },
        );
        out
    };
    let number = |v| vec![Argument::Literal(Literal::Double(v), None)];
    let zero = put("aten::scalar_tensor.out", number(0.0), &scalar);
    let lowest = put("aten::scalar_tensor.out", number(f64::NEG_INFINITY), &scalar);
    let mask = put("aten::where.self_out", [seen, zero, lowest].map(Argument::Tensor).into(), &spec);
    let args = vec![Argument::Tensor(x), Argument::Tensor(mask), Argument::int(1)];
    let added = put("aten::add.out", args, &sum);
    for reader in b.graph.readers(x).to_vec() {
        if b.graph.node(reader).operator != "aten::add.out" {
            assert!(b.graph.redirect(&[reader], x, added));
        }
    }
    let found = fused(&mut b);
    assert_eq!(found.len(), 1);
    assert_eq!(inputs(&found[0].1)[3], seen);
}

#[test]
fn shapes_that_can_change_are_checked_when_bound() {
    let mut b = Steps::new().write();
    b.make_dynamic();
    let found = fused(&mut b);
    let [(spec, node)] = found.as_slice() else { panic!("one step: {found:?}") };
    let dims: Vec<_> = spec.checks.iter().map(|c| c.dims.clone()).collect();
    use Extent::*;
    for wanted in [
        vec![Joined, Rows, Depth],
        vec![Joined, Depth, Keys],
        vec![Batch, Heads, Rows, Keys],
        vec![Joined, Rows, Keys],
        vec![Joined, Keys, Width],
        vec![Batch, Heads, Rows, Width],
    ] {
        assert!(dims.contains(&wanted), "{wanted:?} in {dims:?}");
    }
    for check in &spec.checks {
        assert_eq!(node.ints(check.argument).map(<[i64]>::len), Some(check.dims.len()));
    }
}

#[test]
fn other_products_are_left_alone() {
    // Softmax over another dimension.
    let mut b = Steps { safe: false, ..Steps::new() }.write();
    let softmax = b.graph.producer(b.get("weights")).unwrap();
    let mut draft = b.graph.node(softmax).draft();
    draft.args[1] = Argument::int(2);
    b.graph.replace(&[softmax], draft).unwrap();
    assert!(fused(&mut b).is_empty());
    // Heads joined in another way than they were split.
    let mut b = Builder::new();
    let q = b.border(&[6, 5, 8]);
    let k = b.border(&[6, 8, 6]);
    let x = b.call("aten::bmm.out", &[q, k], &[6, 5, 6]);
    let x = view(&mut b, x, &[5, 6, 6]);
    let w = b.call_with("aten::_softmax.out", flags(x, -1, false), &[5, 6, 6]);
    let w = view(&mut b, w, &[6, 5, 6]);
    let v = b.border(&[6, 6, 8]);
    b.call("aten::bmm.out", &[w, v], &[6, 5, 8]);
    assert!(fused(&mut b).is_empty());
}
