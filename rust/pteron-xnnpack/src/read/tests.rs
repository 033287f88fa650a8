//! Payloads that break a rule are refused with an error that names the place.

use crate::generated::wire::{self, NodeUnion as Kind};
use crate::testing::{Draft, NONE, Quant, ValueDraft};
use pteron_core::ErrorKind;

/// `abs` of two numbers.
fn plain() -> Draft {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2]), draft.output(&[2]));
    draft.unary(Kind::Abs, x, y);
    draft
}

/// The error of a payload with one more value.
fn value_error(value: impl FnOnce(&mut Draft) -> ValueDraft) -> String {
    let mut draft = plain();
    let value = value(&mut draft);
    draft.value(&value);
    let error = draft.error();
    assert!(
        error.starts_with("value 2 of the XNNPACK payload: ")
            || error.contains("argument")
            || error.contains("one id"),
        "{error}"
    );
    error
}

#[test]
fn a_plain_payload_expands_with_and_without_header() {
    let mut draft = plain();
    let payload = draft.finish();
    let with = crate::expand(&payload, &draft.arguments, &draft.weights).unwrap().to_string();
    let without = crate::expand(&payload[32..], &draft.arguments, &draft.weights).unwrap().to_string();
    assert_eq!(with, "arg1 = aten::abs.out(arg0)  # node 0, debug handle 100\n");
    assert_eq!(with, without);
}

#[test]
fn other_formats_are_refused() {
    let mut draft = plain();
    let mut payload = draft.finish();
    payload[36..40].copy_from_slice(b"XN02");
    let error = crate::expand(&payload, &draft.arguments, &draft.weights).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Program);
    assert!(error.to_string().contains("expected file identifier XN00 or XN01; got 'XN02'"), "{error}");
}

#[test]
fn every_truncation_and_flipped_bit_is_an_error_or_an_expansion() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 4]), draft.output(&[2, 3]));
    let (filter, bias) = (draft.weight(&[3, 4]), draft.weight(&[3]));
    draft.fully_connected([x, filter, bias, y], 0, Some((0.0, 6.0)));
    let payload = draft.finish();
    for end in 0..payload.len() {
        drop(crate::expand(&payload[..end], &draft.arguments, &draft.weights));
    }
    for bit in 0..payload.len() * 8 {
        let mut damaged = payload.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = crate::expand(&damaged, &draft.arguments, &draft.weights) {
            assert_ne!(error.kind(), ErrorKind::Internal, "bit {bit}: {error}");
        }
    }
}

#[test]
fn values_state_extents_and_types_that_can_be() {
    let error = value_error(|d| ValueDraft { num_dims: 3, ..d.blank(1, &[2]) });
    assert!(
        error.contains("dims: the list and its stated length differ; expected 3 numbers; got 1 numbers"),
        "{error}"
    );
    let error = value_error(|d| d.blank(1, &[u32::MAX, u32::MAX, u32::MAX]));
    assert!(error.contains("too large to address"), "{error}");
    let error = value_error(|d| d.blank(1, &[1; 17]));
    assert!(error.contains("too many dimensions"), "{error}");
    for (code, name) in [(0, "invalid"), (11, "qpint8"), (13, "pfp32"), (15, "code 15"), (-1, "code -1")] {
        let mut draft = plain();
        let value = draft.blank(code, &[2]);
        draft.value(&value);
        let error = draft.expand().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingOperator);
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = value_error(|d| ValueDraft { id: 0, ..d.blank(1, &[2]) });
    assert!(error.contains("have one id"), "{error}");
}

#[test]
fn values_come_from_one_place() {
    let error = value_error(|d| ValueDraft { external: 7, flags: 1, ..d.blank(1, &[2]) });
    assert!(
        error.contains(
            "an argument that the delegate call does not have; expected an external id below 2; got 7"
        ),
        "{error}"
    );
    for (external, flags, constant) in [(0, 0, 0), (0, 3, 0), (NONE, 1, 0), (0, 1, 1), (NONE, 4, 0)] {
        let error = value_error(|d| ValueDraft { external, flags, constant, ..d.blank(1, &[2]) });
        assert!(error.contains("not one of input, output, constant and intermediate"), "{error}");
    }
    let error = value_error(|d| ValueDraft { external: 1, flags: 1, ..d.blank(1, &[2]) });
    assert!(error.contains("an argument of another value, too"), "{error}");
    let error = value_error(|d| ValueDraft { external: 1, flags: 2, ..d.blank(1, &[2]) });
    assert!(error.contains("an argument of another value, too"), "{error}");
    let mut draft = plain();
    draft.arguments[0] = None;
    assert!(draft.error().contains("an argument of the delegate call is not a tensor"));
}

#[test]
fn constants_have_the_bytes_that_their_extents_ask_for() {
    let error = value_error(|d| ValueDraft { constant: d.constant(vec![0; 7]), ..d.blank(1, &[2]) });
    assert!(
        error.contains("fewer bytes than its extents ask for; expected 8 bytes for [2] of fp32; got 7 bytes"),
        "{error}"
    );
    let error = value_error(|d| ValueDraft { constant: 9, ..d.blank(1, &[2]) });
    assert!(error.contains("constant 9 of the XNNPACK payload is not in the table of constants"), "{error}");
    let error =
        value_error(|d| ValueDraft { constant: d.raw_constant(u64::MAX, 8, "absent"), ..d.blank(1, &[2]) });
    assert!(error.contains("a weight of the XNNPACK payload is not there"), "{error}");
    let error = value_error(|d| ValueDraft { constant: d.raw_constant(u64::MAX, 8, ""), ..d.blank(1, &[2]) });
    assert!(error.contains("named_key"), "{error}");
    let error = value_error(|d| ValueDraft { constant: d.raw_constant(0, 8, "both"), ..d.blank(1, &[2]) });
    assert!(error.contains("has both an offset and a name"), "{error}");
    for (offset, size) in [(0, 8), (u64::MAX - 1, 8), (1, u64::MAX)] {
        let error =
            value_error(|d| ValueDraft { constant: d.raw_constant(offset, size, ""), ..d.blank(1, &[2]) });
        assert!(error.contains("lies outside of the payload"), "{error}");
    }
    let mut draft = plain();
    draft.weights.0.insert("short".into(), vec![0; 4]);
    let value = ValueDraft { constant: draft.raw_constant(u64::MAX, 8, "short"), ..draft.blank(1, &[2]) };
    draft.value(&value);
    let error = draft.expand().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExternalData);
    assert!(error.to_string().contains("expected at least 8 bytes of 'short'; got 4 bytes"), "{error}");
}

#[test]
fn constants_behind_the_graph_are_ranges_of_the_payload() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2]), draft.output(&[2]));
    let value = ValueDraft { constant: draft.raw_constant(4, 8, ""), ..draft.blank(1, &[2]) };
    let weight = draft.value(&value);
    draft.binary(Kind::Add, [x, weight], y);
    let payload = draft.finish_with(&[0; 12]);
    let text = crate::expand(&payload, &draft.arguments, &draft.weights).unwrap().to_string();
    let (start, end) = (payload.len() - 8, payload.len());
    assert!(text.contains(&format!("float32 [2] strides [1], payload bytes {start}..{end}")), "{text}");
}

#[test]
fn quantisation_parameters_fit_the_value() {
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = value_error(|d| ValueDraft { quant: Quant::Tensor(scale, 0), ..d.blank(3, &[2]) });
        assert!(error.contains("a scale is not a positive number"), "{error}");
    }
    for (datatype, zero) in [(3, -129), (3, 128), (4, -1), (4, 256), (5, 1)] {
        let error =
            value_error(|d| ValueDraft { quant: Quant::Tensor(1.0, zero), ..d.blank(datatype, &[2]) });
        assert!(error.contains("a zero point is outside of the type's range"), "{error}");
    }
    let error = value_error(|d| ValueDraft { quant: Quant::Token(1), ..d.blank(3, &[2]) });
    assert!(error.contains("expected PerTensorQuant for qint8; got PerTokenDynamicQuant"), "{error}");
    let error = value_error(|d| d.blank(3, &[2]));
    assert!(error.contains("has no quantisation parameters"), "{error}");
    for rows in [0, 2, -1] {
        let error = value_error(|d| ValueDraft { quant: Quant::Token(rows), ..d.blank(9, &[2]) });
        assert!(error.contains("expected num_nonbatch_dims from 1 to 1"), "{error}");
    }
    for (axis, count, expected) in [
        (1, 3, "channel_dim below 1"),
        (-1, 3, "channel_dim below 1"),
        (0, 2, "the number of scales is wrong; expected 3; got 2"),
    ] {
        let error = value_error(|d| {
            let (constant, scales) = (d.constant(vec![0; 3]), d.constant(vec![0; 12]));
            ValueDraft { constant, quant: Quant::Channel(axis, scales, count), ..d.blank(6, &[3]) }
        });
        assert!(error.contains(expected), "{error}");
    }
    for (group, count, expected) in [
        (0, 2, "expected a positive divisor of 4; got 0"),
        (3, 2, "expected a positive divisor of 4; got 3"),
        (-4, 2, "expected a positive divisor of 4"),
        (2, 2, "the number of scales is wrong; expected 4; got 2"),
        (4, 2, "the bytes of scales are too few"),
    ] {
        let error = value_error(|d| {
            let (constant, scales) = (d.constant(vec![0; 4]), d.constant(vec![0; 3]));
            ValueDraft { constant, quant: Quant::Group(group, scales, count), ..d.blank(10, &[2, 4]) }
        });
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn nodes_read_what_was_written_and_write_once() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2]), draft.output(&[2]));
    let inner = draft.inner(&[2]);
    draft.unary(Kind::Abs, inner, y);
    draft.unary(Kind::Abs, x, inner);
    let error = draft.error();
    assert!(
        error.starts_with(
            "node 0 (Abs) of the XNNPACK payload: the node reads a value that no node before it writes"
        ),
        "{error}"
    );
    assert!(error.contains("got value 2; debug handle is: 100"), "{error}");

    let mut draft = plain();
    draft.unary(Kind::Abs, 0, 1);
    assert!(draft.error().contains(
        "node 1 (Abs) of the XNNPACK payload: the node writes a value that is an input, a constant"
    ));

    let mut draft = Draft::new();
    let x = draft.input(&[2]);
    draft.unary(Kind::Abs, x, x);
    assert!(draft.error().contains("the node writes a value that is an input"));

    let mut draft = Draft::new();
    let (x, _) = (draft.input(&[2]), draft.output(&[2]));
    let inner = draft.inner(&[2]);
    draft.unary(Kind::Abs, x, inner);
    assert!(
        draft.error().contains("no node of the XNNPACK payload writes an output; got value 1, argument 1")
    );

    let mut draft = plain();
    draft.unary(Kind::Abs, 77, 1);
    assert!(draft.error().contains(
        "the node's input is a value that the payload does not have; expected the id of a value; got 77"
    ));
}

#[test]
fn unknown_kinds_flags_and_numbers_are_refused() {
    for (tag, name) in
        [(36, "ScaledDotProductAttention"), (48, "of unknown kind 48"), (255, "of unknown kind 255")]
    {
        let mut draft = Draft::new();
        let (x, y) = (draft.input(&[2]), draft.output(&[2]));
        draft.unary(Kind(tag), x, y);
        let error = draft.expand().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingOperator, "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!(
                "node 0 ({name}) of the XNNPACK payload: the node's kind has no translation"
            )),
            "{text}"
        );
    }
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 4]), draft.output(&[2, 3]));
    let filter = draft.weight(&[3, 4]);
    draft.fully_connected([x, filter, NONE, y], 2, None);
    assert!(
        draft.error().contains("the node has a flag without translation; expected no flags but 0x1; got 0x2")
    );
    for limits in [(1.0, 0.0), (f32::NAN, 1.0), (0.0, f32::NAN)] {
        let mut draft = Draft::new();
        let (x, y) = (draft.input(&[2]), draft.output(&[2]));
        let table =
            wire::Unary::create(&mut draft.builder, &wire::UnaryArgs { input_id: x, output_id: y, flags: 0 });
        draft.node(Kind::Clamp, table.as_union_value(), Some(limits));
        assert!(draft.error().contains("the bounds of the result are no interval"));
    }
    for perm in [[0, 0], [1, 2]] {
        let mut draft = Draft::new();
        let (x, y) = (draft.input(&[2, 3]), draft.output(&[3, 2]));
        draft.transpose(&perm, x, y);
        assert!(draft.error().contains("the order of dimensions is no permutation"));
    }
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 3]), draft.output(&[3, 2]));
    draft.reshape(&[0, 0], x, y);
    assert!(draft.error().contains("more than one extent that is what is left"));
}

#[test]
fn operands_fit_each_other_and_the_arguments() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 3]), draft.output(&[2, 4]));
    draft.unary(Kind::Abs, x, y);
    let error = draft.error();
    assert!(
        error.contains(
            "an output has other extents than its argument; expected [2, 4] for argument 1; got [2, 3]"
        ),
        "{error}"
    );

    let mut draft = Draft::new();
    let (x, y, z) = (draft.input(&[2, 3]), draft.input(&[2, 4]), draft.output(&[2, 4]));
    draft.binary(Kind::Add, [x, y], z);
    assert!(
        draft.error().contains("the operands do not broadcast to one shape; got extents [2, 3] and [2, 4]")
    );

    let mut draft = plain();
    draft.arguments[0].as_mut().unwrap().dtype = pteron_core::DType::Int64;
    assert!(
        draft.error().contains("an argument of the delegate call is of another type than the payload says")
    );

    let mut draft = plain();
    draft.arguments[0] =
        Some(pteron_core::TensorSpec::contiguous(pteron_core::DType::Float32, &[2, 1]).unwrap());
    assert!(draft.error().contains("an argument of the delegate call has another number of dimensions"));
}
