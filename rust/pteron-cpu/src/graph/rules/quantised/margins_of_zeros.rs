//! Zeros around a quantised image as the margins of the convolution that reads it.

use super::is_plain_call;
use crate::graph::rules::fold_padding::{PADS, added, image_of, margins};
use crate::graph::{Graph, TensorId};
use crate::integer::{IntegerInput, IntegerOperation};

/// The image behind a pad by the zero point, and the convolution with these margins.
pub(super) fn without_padding(
    graph: &Graph,
    input: &IntegerInput,
    x: TensorId,
    operation: &IntegerOperation,
) -> Option<(TensorId, IntegerOperation)> {
    let (&IntegerInput::PerTensor { zero_point, .. }, IntegerOperation::Convolution { padding, .. }) =
        (input, operation)
    else {
        return None;
    };
    let pad = graph.node(graph.producer(x)?);
    let image = is_plain_call(pad).then(|| image_of(graph, pad, f64::from(zero_point))).flatten()?;
    let margins = margins(pad.ints(PADS)?, graph.tensor(x).spec.shape.len())?;
    let spatial = margins[0].len();
    let own = match padding.as_slice() {
        &[one] => vec![one; spatial],
        list => list.to_vec(),
    };
    let [before, behind] = (own.len() == spatial).then(|| added(&margins, &[own.clone(), own]))??;
    let padding = if before == behind { before } else { [before, behind].concat() };
    let mut operation = operation.clone();
    if let IntegerOperation::Convolution { padding: own, .. } = &mut operation {
        *own = padding;
    }
    Some((image, operation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::rules::quantised::{DEQUANTISE, fuse_integer};
    use crate::graph::testing::{AnyKernel, Builder};
    use crate::graph::{Argument, Literal, Op};
    use pteron_core::DType;

    /// An int8 image, padded by `pads` and `fill`, dequantised by a zero point of 3 → convolution; the image.
    fn padded(pads: &[i64], fill: i64) -> (Builder, TensorId) {
        let mut b = Builder::new();
        let image = b.border(&[1, 2, 8, 8]);
        b.cast(image, DType::Int8);
        let mut shape = [1, 2, 8, 8];
        for (i, pair) in pads.chunks(2).enumerate() {
            shape[3 - i] = (shape[3 - i] as i64 + pair[0] + pair[1]) as usize;
        }
        let args = vec![Argument::Tensor(image), Argument::ints(pads), Argument::int(fill)];
        let y = b.call_with("aten::constant_pad_nd.out", args, &shape);
        b.cast(y, DType::Int8);
        let x = b.dequantise(y, 0.5, &shape);
        let w = b.constant(&[4, 2, 3, 3]);
        b.cast(w, DType::Int8);
        let mut args = vec![Argument::Tensor(w), Argument::Literal(Literal::Double(0.125), None)];
        args.extend([0, -127, 127, i64::from(DType::Int8.code())].map(Argument::int));
        args.push(Argument::none());
        let weights = b.call_with(DEQUANTISE, args, &[4, 2, 3, 3]);
        let args = vec![
            Argument::Tensor(x),
            Argument::Tensor(weights),
            Argument::none(),
            Argument::ints(&[1]),
            Argument::ints(&[1]),
            Argument::ints(&[1]),
            Argument::Literal(Literal::Bool(false), None),
            Argument::ints(&[0]),
            Argument::int(1),
        ];
        let z = b.call_with("aten::convolution.out", args, &[1, 4, shape[2], shape[3]]);
        // Not a call that goes where nobody reads its result.
        b.call("aten::multinomial.out", &[z], &[1, 4, shape[2], shape[3]]);
        (b, image)
    }

    /// What the integer convolution reads, and its padding.
    fn fused(b: &mut Builder) -> (Option<TensorId>, Vec<i64>) {
        assert_eq!((fuse_integer::RULE.apply)(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let found = b.graph.live().find_map(|(_, n)| match &n.op {
            Op::Integer(spec) => match &spec.operation {
                IntegerOperation::Convolution { padding, .. } => Some((n.input(0), padding.clone())),
                IntegerOperation::Linear { .. } => None,
            },
            _ => None,
        });
        found.unwrap()
    }

    #[test]
    fn margins_add_up() {
        for (pads, padding) in [(&[1, 1, 2, 2][..], &[3, 2][..]), (&[0, 1, 2, 0], &[3, 1, 1, 2])] {
            let (mut b, image) = padded(pads, 3);
            assert_eq!(fused(&mut b), (Some(image), padding.to_vec()));
            // The convolution and its reader.
            assert_eq!(b.graph.live().count(), 2);
        }
    }

    #[test]
    fn other_numbers_are_no_margins() {
        for (pads, fill) in [(&[1, 1][..], 0), (&[1, -1], 3)] {
            let (mut b, image) = padded(pads, fill);
            let (input, padding) = fused(&mut b);
            assert_eq!((input == Some(image), padding), (false, vec![1]), "{pads:?} {fill}");
        }
    }
}
