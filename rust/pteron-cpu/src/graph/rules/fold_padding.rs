//! `fold_padding`: zeros that are put around an image become the padding of the convolution that reads it.
//!
//! *Before*: `y = constant_pad_nd(x, [1, 1, 1, 1]); z = convolution(y, W, padding=[0, 0])`. *After*:
//! `z = convolution(x, W, padding=[1, 1])`; padding by nothing goes altogether.
//!
//! Applies to zeros, none around channels and images, and to convolutions that are not transposed and read nothing
//! else of `y`. Where there are more zeros on one side of a dimension than on the other, the convolution becomes
//! [`Op::PaddedConvolution`], which only kernels of the engine take. The products with zeros are left out of the
//! sums, which other kernels may add up in another order: results differ by rounding. Saves a copy of the image.

use super::rule::Rule;
use crate::graph::{Argument, Graph, Host, Node, NodeId, Op, TensorId};
use pteron_core::Result;

pub(super) const RULE: Rule = Rule {
    name: "fold_padding",
    about: "zeros around an image into the padding of the convolution that reads it",
    needs: &[&["aten::convolution.out"], &[PAD]],
    apply,
};

pub(super) const PAD: &str = "aten::constant_pad_nd.out";

// Positions among the arguments of the pad.
pub(super) const PADS: usize = 1;
pub(super) const FILL: usize = 2;
// And of the convolution.
const PADDING: usize = 4;
const TRANSPOSED: usize = 6;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for convolution in graph.ids() {
        // Paddings of paddings.
        let mut reader = convolution;
        while let Some((pad, draft)) = find(graph, reader)
            && (draft.op == Op::Convolution || host.can_prepare(graph, &draft)?)
            && let Some(id) = graph.replace(&[pad, reader], draft)
        {
            count += 1;
            reader = id;
        }
    }
    Ok(count)
}

fn find(graph: &Graph, convolution: NodeId) -> Option<(NodeId, crate::graph::Draft)> {
    let node = graph.node(convolution);
    let is_plain = graph.is_live(convolution)
        && node.op.is_convolution()
        && node.epilogue.is_none()
        && node.number(TRANSPOSED) == Some(0.0);
    if !is_plain {
        return None;
    }
    let padded = node.input(0)?;
    let pad = graph.sole_producer(padded)?;
    let image = image_of(graph, graph.node(pad), 0.0)?;
    let margins = margins(graph.node(pad).ints(PADS)?, graph.tensor(padded).spec.shape.len())?;
    let [before, behind] = added(&margins, &own_margins(node, margins[0].len())?)?;
    let mut draft = node.draft();
    draft.args[0] = Argument::Tensor(image);
    (draft.op, draft.args[PADDING]) = if before == behind {
        (Op::Convolution, Argument::ints(&before))
    } else {
        (Op::PaddedConvolution, Argument::ints(&[before, behind].concat()))
    };
    Some((pad, draft))
}

/// What the convolution has before and behind each of `spatial` dimensions.
fn own_margins(node: &Node, spatial: usize) -> Option<[Vec<i64>; 2]> {
    let list = node.ints(PADDING)?;
    match (&node.op, list) {
        (Op::PaddedConvolution, _) => {
            let (before, behind) = list.split_at_checked(spatial)?;
            Some([before.to_vec(), behind.to_vec()])
        }
        (_, &[one]) => Some([vec![one; spatial], vec![one; spatial]]),
        _ => (list.len() == spatial).then(|| [list.to_vec(), list.to_vec()]),
    }
}

/// The sums of margins; `None` where one cannot be counted.
pub(super) fn added(margins: &[Vec<i64>; 2], own: &[Vec<i64>; 2]) -> Option<[Vec<i64>; 2]> {
    let side =
        |i: usize| margins[i].iter().zip(&own[i]).map(|(a, b)| a.checked_add(*b)).collect::<Option<_>>();
    Some([side(0)?, side(1)?])
}

/// What a pad by `fill` pads.
pub(super) fn image_of(graph: &Graph, pad: &Node, fill: f64) -> Option<TensorId> {
    let image = pad.input(0)?;
    let is_alike = graph.tensor(image).spec.dim_order == graph.tensor(pad.output()?).spec.dim_order;
    (pad.operator == PAD && pad.number(FILL) == Some(fill) && is_alike).then_some(image)
}

/// The margins before and behind each spatial dimension, outermost first, of a list that has them in pairs, innermost
/// first.
pub(super) fn margins(pads: &[i64], rank: usize) -> Option<[Vec<i64>; 2]> {
    let spatial = rank.checked_sub(2)?;
    if !pads.len().is_multiple_of(2) {
        return None;
    }
    let mut margins = [vec![0; spatial], vec![0; spatial]];
    for (i, pair) in pads.chunks_exact(2).enumerate() {
        let &[before, after] = pair else { return None };
        match spatial.checked_sub(i + 1) {
            Some(d) if before >= 0 && after >= 0 => (margins[0][d], margins[1][d]) = (before, after),
            None if before == 0 && after == 0 => {}
            _ => return None,
        }
    }
    Some(margins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Literal;
    use crate::graph::testing::{AnyKernel, Builder};

    fn padded(pads: &[i64], fill: f64) -> Builder {
        let mut b = Builder::new();
        let (x, w) = (b.border(&[1, 2, 8, 8]), b.constant(&[4, 2, 3, 3]));
        let mut shape = [1, 2, 8, 8];
        for (i, pair) in pads.chunks(2).enumerate() {
            shape[3 - i] = (shape[3 - i] as i64 + pair[0] + pair[1]) as usize;
        }
        let fill = Argument::Literal(Literal::Double(fill), None);
        let y = b.call_with(PAD, vec![Argument::Tensor(x), Argument::ints(pads), fill], &shape);
        let ints = |v: &[i64]| Argument::ints(v);
        let args = vec![
            Argument::Tensor(y),
            Argument::Tensor(w),
            Argument::none(),
            ints(&[1, 1]),
            ints(&[0, 1]),
            ints(&[1, 1]),
            Argument::Literal(Literal::Bool(false), None),
            ints(&[0, 0]),
            Argument::int(1),
        ];
        let z = b.call_with("aten::convolution.out", args, &[1, 4, shape[2] - 2, shape[3]]);
        b.name("x", x).name("y", y).name("z", z);
        b
    }

    fn padding(b: &mut Builder) -> Option<Vec<i64>> {
        let count = apply(&mut b.graph, &mut AnyKernel).unwrap();
        let node = b.graph.node(b.graph.producer(b.get("z")).unwrap());
        (count > 0).then(|| {
            assert_eq!((node.input(0), b.graph.live().count()), (Some(b.get("x")), 1));
            node.ints(PADDING).unwrap().to_vec()
        })
    }

    #[test]
    fn margins_add_up() {
        assert_eq!(padding(&mut padded(&[1, 1, 2, 2], 0.0)), Some(vec![2, 2]));
        assert_eq!(padding(&mut padded(&[0, 0, 0, 0], 0.0)), Some(vec![0, 1]));
        assert_eq!(padding(&mut padded(&[3, 3], -0.0)), Some(vec![0, 4]));
        // More behind than before: all before, then all behind.
        assert_eq!(padding(&mut padded(&[0, 1, 2, 0], 0.0)), Some(vec![2, 1, 0, 2]));
    }

    #[test]
    fn other_paddings_stay() {
        for (pads, fill) in
            [(&[1i64, -1][..], 0.0), (&[1, 1, 1, 1], 1.0), (&[-1, -1], 0.0), (&[0, 0, 0, 0, 1, 1], 0.0)]
        {
            assert_eq!(padding(&mut padded(pads, fill)), None, "{pads:?}");
        }
    }

    #[test]
    fn a_padded_image_that_others_read_stays() {
        let mut b = padded(&[1, 1, 1, 1], 0.0);
        let y = b.get("y");
        b.call("aten::neg.out", &[y], &[1, 2, 10, 10]);
        assert_eq!(padding(&mut b), None);
    }
}
