//! `move_quantise`: an image is quantised before zeros are put around it, the result of a product before it is viewed.
//!
//! *Before*: `p = quantise(constant_pad_nd(x, [0, 1, 0, 1]))`. *After*: `p = constant_pad_nd(quantise(x), [0, 1, 0, 1],
//! zero_point)`; padding by nothing goes altogether. *Before*: `q = quantise(view(linear(x, W)))`. *After*:
//! `q = view(quantise(linear(x, W)))`.
//!
//! Exact: zero becomes the zero point. Only the call that quantises may read the padded image, or the view. Saves three quarters of
//! the bytes that are copied; the call before may write integers, and a convolution behind may take over the padding
//! (`fuse_integer`).

use super::{QUANTISE, is_plain_call, moved_arguments, quantised};
use crate::epilogue::Epilogue;
use crate::graph::rules::fold_padding::{FILL, PAD, PADS, image_of};
use crate::graph::rules::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};
use smallvec::smallvec;

pub(in crate::graph::rules) const RULE: Rule = Rule {
    name: "move_quantise",
    about: "images are quantised before zeros are put around them, products before they are viewed",
    needs: &[&[QUANTISE]],
    apply,
};

/// A call that quantises what another one pads.
struct Found {
    pad: NodeId,
    image: TensorId,
    /// What the call that quantises gives.
    out: TensorId,
    zero: i32,
}

fn apply(graph: &mut Graph, _: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for quantising in graph.ids() {
        // Paddings of paddings.
        let mut id = quantising;
        while let Some(found) = find(graph, id)
            && let Some(moved) = swap(graph, id, &found)
        {
            count += 1;
            id = moved;
        }
        count += usize::from(swap_view(graph, id).is_some());
    }
    Ok(count)
}

/// Puts the call `id` before the view of a product that it quantises. `None`, with nothing changed, where there is none.
fn swap_view(graph: &mut Graph, id: NodeId) -> Option<NodeId> {
    let (_, shown, out) = quantised(graph, id)?;
    let view = graph.sole_producer(shown).filter(|view| graph.node(*view).op == Op::View)?;
    let y = graph.node(view).input(0)?;
    let product = graph.node(graph.sole_producer(y)?);
    let spec = graph.tensor(y).spec.clone();
    let is_fit = (product.op == Op::Linear || product.op.is_convolution()) && spec.dtype == DType::Float32;
    is_fit.then_some(())?;
    let integers = graph.new_tensor(TensorSpec { dtype: graph.tensor(out).spec.dtype, ..spec });
    let mut after = graph.node(view).draft();
    after.rename(y, integers);
    after.rename(shown, out);
    let draft = quantising(graph, id, [y, integers]);
    let inserted = graph.insert_before(view, draft);
    let moved = graph.replace(&[view, id], after);
    if moved.is_none() {
        graph.remove(inserted);
    }
    moved
}

/// The call `id` of `from`, into `to`.
fn quantising(graph: &Graph, id: NodeId, [from, to]: [TensorId; 2]) -> Draft {
    Draft {
        op: Op::Opaque,
        operator: QUANTISE.into(),
        args: moved_arguments(graph.node(id), from, to),
        outputs: smallvec![to],
        epilogue: Epilogue::NONE,
    }
}

fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let (scheme, padded, out) = quantised(graph, id)?;
    let pad = graph.sole_producer(padded)?;
    let node = graph.node(pad);
    let image = image_of(graph, node, 0.0)?;
    // Computed margins are values of the program, which change.
    let is_known = is_plain_call(node) && node.ints(PADS).is_some();
    let has_zero = (scheme.low..=scheme.high).contains(&scheme.zero);
    (is_known && has_zero).then_some(Found { pad, image, out, zero: scheme.zero })
}

/// Puts the call `id` before the one that pads; what it became. `None`, with nothing changed, where that cannot be.
fn swap(graph: &mut Graph, id: NodeId, found: &Found) -> Option<NodeId> {
    let Found { pad, image, out, zero } = *found;
    let pads = graph.node(pad).ints(PADS).unwrap_or_default().to_vec();
    if pads.iter().all(|n| *n == 0) {
        let draft = quantising(graph, id, [image, out]);
        return graph.replace(&[pad, id], draft);
    }
    let dtype = graph.tensor(out).spec.dtype;
    let integers = graph.new_tensor(TensorSpec { dtype, ..graph.tensor(image).spec.clone() });
    let mut args = graph.node(pad).draft().args;
    args[0] = Argument::Tensor(integers);
    args[FILL] = Argument::int(i64::from(zero));
    if let Some(last) = args.last_mut() {
        *last = Argument::Tensor(out);
    }
    // Padding has a kernel for every dtype.
    let padding = Draft {
        op: Op::Opaque,
        operator: PAD.into(),
        args,
        outputs: smallvec![out],
        epilogue: Epilogue::NONE,
    };
    let draft = quantising(graph, id, [image, integers]);
    let inserted = graph.insert_before(pad, draft);
    if graph.replace(&[pad, id], padding).is_none() {
        graph.remove(inserted);
        return None;
    }
    Some(inserted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ET_VIEW;
    use crate::graph::testing::{AnyKernel, Builder};

    /// x → padded by `pads` and `fill` → quantised; both results.
    fn padded(b: &mut Builder, x: TensorId, pads: &[i64], fill: f64) -> [TensorId; 2] {
        let mut shape = [1, 2, 8, 8];
        for (i, pair) in pads.chunks(2).enumerate() {
            shape[3 - i] = (shape[3 - i] as i64 + pair[0] + pair[1]) as usize;
        }
        let fill = Argument::Literal(crate::graph::Literal::Double(fill), None);
        let y = b.call_with(PAD, vec![Argument::Tensor(x), Argument::ints(pads), fill], &shape);
        let q = b.quantise(y, 0.5, &shape);
        // Not a call that goes where nobody reads its result.
        b.call("aten::multinomial.out", &[q], &shape);
        [y, q]
    }

    #[test]
    fn integers_are_padded_by_the_zero_point() {
        let mut b = Builder::new();
        let x = b.border(&[1, 2, 8, 8]);
        let [_, q] = padded(&mut b, x, &[0, 1, 2, 1], 0.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let pad = b.graph.node(b.graph.producer(q).unwrap());
        assert_eq!((pad.operator.as_str(), pad.number(FILL)), (PAD, Some(3.0)));
        assert_eq!(pad.ints(PADS), Some(&[0, 1, 2, 1][..]));
        let (scheme, from, to) =
            quantised(&b.graph, b.graph.producer(pad.input(0).unwrap()).unwrap()).unwrap();
        assert_eq!((from, Some(to), scheme.zero), (x, pad.input(0), 3));
        let spec = &b.graph.tensor(to).spec;
        assert_eq!((spec.dtype, &*spec.shape), (DType::Int8, &[1, 2, 8, 8][..]));
        assert_eq!(b.graph.live().count(), 3);
    }

    /// linear → view → quantised → read; all results.
    fn viewed_product(b: &mut Builder, operator: &str) -> [TensorId; 3] {
        let x = b.border(&[6, 8]);
        let w = b.constant(&[8, 16]);
        let y = b.call(operator, &[x, w], &[6, 16]);
        let sizes = Argument::ints(&[2, 3, 16]);
        let v = b.call_with(ET_VIEW, vec![Argument::Tensor(y), sizes], &[2, 3, 16]);
        let q = b.quantise(v, 0.5, &[2, 3, 16]);
        b.call("aten::multinomial.out", &[q], &[2, 3, 16]);
        [y, v, q]
    }

    #[test]
    fn products_are_quantised_before_they_are_viewed() {
        let mut b = Builder::new();
        let [y, _, q] = viewed_product(&mut b, "aten::mm.out");
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let view = b.graph.node(b.graph.producer(q).unwrap());
        assert_eq!((&view.op, view.ints(1)), (&Op::View, Some(&[2, 3, 16][..])));
        let (_, from, to) = quantised(&b.graph, b.graph.producer(view.input(0).unwrap()).unwrap()).unwrap();
        assert_eq!((from, Some(to)), (y, view.input(0)));
        let spec = &b.graph.tensor(to).spec;
        assert_eq!((spec.dtype, &*spec.shape), (DType::Int8, &[6, 16][..]));
        assert_eq!(b.graph.live().count(), 4);
        // Once is enough.
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn other_views_stay() {
        let mut b = Builder::new();
        viewed_product(&mut b, "aten::add.out");
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        let [_, v, _] = viewed_product(&mut b, "aten::mm.out");
        b.call("aten::multinomial.out", &[v], &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn padding_by_nothing_goes() {
        let mut b = Builder::new();
        let x = b.border(&[1, 2, 8, 8]);
        let [_, q] = padded(&mut b, x, &[0, 0, 0, 0], -0.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let (_, from, _) = quantised(&b.graph, b.graph.producer(q).unwrap()).unwrap();
        assert_eq!((from, b.graph.live().count()), (x, 2));
    }

    #[test]
    fn other_paddings_stay() {
        for (fill, is_read) in [(1.0, false), (0.0, true)] {
            let mut b = Builder::new();
            let x = b.border(&[1, 2, 8, 8]);
            let [y, _] = padded(&mut b, x, &[1, 1], fill);
            if is_read {
                b.call("aten::multinomial.out", &[y], &[1, 2, 8, 10]);
            }
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0, "{fill}");
        }
    }
}
