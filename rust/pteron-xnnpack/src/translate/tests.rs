//! What each kind of node becomes, as a reviewed text (`tests/nodes.txt`), and what layout and quantisation ask for.

use crate::generated::wire::{self, NodeUnion as Kind};
use crate::testing::{Draft, NONE, Quant, ValueDraft};
use std::fmt::Write;

/// A convolution of a 3x3 window with padding 1.
fn convolution(
    input1_id: u32,
    filter_id: u32,
    bias_id: u32,
    output_id: u32,
    groups: [u32; 3],
) -> wire::ConvolutionArgs {
    let [groups, group_input_channels, group_output_channels] = groups;
    wire::ConvolutionArgs {
        padding_top: 1,
        padding_right: 1,
        padding_bottom: 1,
        padding_left: 1,
        kernel_height: 3,
        kernel_width: 3,
        subsampling_height: 1,
        subsampling_width: 1,
        dilation_height: 1,
        dilation_width: 1,
        group_input_channels,
        group_output_channels,
        groups,
        adjustment_height: 0,
        adjustment_width: 0,
        input1_id,
        filter_id,
        bias_id,
        output_id,
        flags: 0,
    }
}

/// A 2x2 window with steps of 2.
fn pooling(input_id: u32, output_id: u32) -> wire::PoolingArgs {
    wire::PoolingArgs {
        pooling_height: 2,
        pooling_width: 2,
        stride_height: 2,
        stride_width: 2,
        dilation_height: 1,
        dilation_width: 1,
        input_id,
        output_id,
        ..Default::default()
    }
}

/// A node between a transpose to channels last and one back: an image of `from` becomes one of `to` (both channels last).
fn image(from: [u32; 4], to: [u32; 4], node: impl FnOnce(&mut Draft, u32, u32)) -> Draft {
    let mut draft = Draft::new();
    let first = |[n, h, w, c]: [u32; 4]| [n, c, h, w];
    let (input, output) = (draft.input(&first(from)), draft.output(&first(to)));
    let (x, y) = (draft.inner(&from), draft.inner(&to));
    draft.transpose(&[0, 2, 3, 1], input, x);
    node(&mut draft, x, y);
    draft.transpose(&[0, 3, 1, 2], y, output);
    draft
}

fn unaries(text: &mut String) {
    for kind in [
        Kind::Softmax,
        Kind::Sigmoid,
        Kind::Clamp,
        Kind::Floor,
        Kind::Convert,
        Kind::SquareRoot,
        Kind::Ceiling,
        Kind::Hardswish,
        Kind::Negate,
        Kind::Square,
        Kind::Abs,
        Kind::ReciprocalSquareRoot,
        Kind::Log,
        Kind::Gelu,
        Kind::Tanh,
        Kind::Exp,
        Kind::Sin,
        Kind::Copy,
        Kind::Cos,
    ] {
        let draft = image([1, 2, 3, 4], [1, 2, 3, 4], |draft, x, y| {
            let table = wire::Unary::create(
                &mut draft.builder,
                &wire::UnaryArgs { input_id: x, output_id: y, flags: 0 },
            );
            let limits = (kind == Kind::Clamp).then_some((-1.0, 6.5));
            draft.node(kind, table.as_union_value(), limits);
        });
        listed(text, kind.variant_name().unwrap(), draft);
    }
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[3]), draft.output(&[3]));
    let args = wire::EluArgs { alpha: 0.5, input_id: x, output_id: y, flags: 0 };
    let table = wire::Elu::create(&mut draft.builder, &args);
    draft.node(Kind::ELU, table.as_union_value(), None);
    listed(text, "ELU", draft);
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[3]), draft.output(&[3]));
    let args = wire::LeakyReluArgs { negative_slope: 0.25, input_id: x, output_id: y, flags: 0 };
    let table = wire::LeakyRelu::create(&mut draft.builder, &args);
    draft.node(Kind::LeakyReLU, table.as_union_value(), None);
    listed(text, "LeakyReLU", draft);
}

fn binaries(text: &mut String) {
    for kind in
        [Kind::Add, Kind::Div, Kind::Minimum, Kind::Multiply, Kind::Subtract, Kind::Maximum, Kind::PReLU]
    {
        // The second operand is a weight of one number for each channel.
        let draft = image([1, 2, 3, 4], [1, 2, 3, 4], |draft, x, y| {
            let weight = draft.weight(&[4]);
            let args = wire::BinaryArgs { input1_id: x, input2_id: weight, output_id: y, flags: 0 };
            let table = wire::Binary::create(&mut draft.builder, &args);
            draft.node(kind, table.as_union_value(), (kind == Kind::Add).then_some((0.0, f32::INFINITY)));
        });
        listed(text, kind.variant_name().unwrap(), draft);
    }
    let mut draft = Draft::new();
    let (a, b, out) = (draft.input(&[2, 3, 4]), draft.input(&[2, 4, 5]), draft.output(&[2, 3, 5]));
    draft.binary(Kind::BatchMatrixMultiply, [a, b], out);
    listed(text, "BatchMatrixMultiply", draft);
}

fn products(text: &mut String) {
    for (name, flags, extents) in [("FullyConnected", 0, [3, 4]), ("FullyConnected, inputs first", 1, [4, 3])]
    {
        let mut draft = Draft::new();
        let (x, y) = (draft.input(&[2, 5, 4]), draft.output(&[2, 5, 3]));
        let (filter, bias) = (draft.weight(&extents), draft.weight(&[3]));
        draft.fully_connected([x, filter, bias, y], flags, Some((0.0, 6.0)));
        listed(text, name, draft);
    }
    let draft = image([1, 4, 4, 2], [1, 4, 4, 5], |draft, x, y| {
        let (filter, bias) = (draft.weight(&[5, 3, 3, 2]), draft.weight(&[5]));
        draft.convolution(
            Kind::Conv2d,
            &convolution(x, filter, bias, y, [1, 2, 5]),
            Some((0.0, f32::INFINITY)),
        );
    });
    listed(text, "Conv2d", draft);
    let draft = image([1, 4, 4, 2], [1, 5, 4, 5], |draft, x, y| {
        let filter = draft.weight(&[5, 3, 3, 2]);
        let args = convolution(x, filter, NONE, y, [1, 2, 5]);
        draft.convolution(Kind::Conv2d, &wire::ConvolutionArgs { padding_bottom: 2, ..args }, None);
    });
    listed(text, "Conv2d, uneven padding", draft);
    let draft = image([1, 4, 4, 2], [1, 4, 4, 4], |draft, x, y| {
        let filter = draft.weight(&[1, 3, 3, 4]);
        draft.convolution(Kind::DepthwiseConv2d, &convolution(x, filter, NONE, y, [2, 1, 2]), None);
    });
    listed(text, "DepthwiseConv2d", draft);
    for (groups, filter) in [([1, 2, 4], [4, 3, 3, 2]), ([2, 1, 2], [4, 3, 3, 1])] {
        let draft = image([1, 4, 4, 2], [1, 8, 8, 4], |draft, x, y| {
            let filter = draft.weight(&filter);
            let args = wire::ConvolutionArgs {
                subsampling_height: 2,
                subsampling_width: 2,
                adjustment_height: 1,
                adjustment_width: 1,
                ..convolution(x, filter, NONE, y, groups)
            };
            draft.convolution(Kind::ConvTranspose2d, &args, None);
        });
        listed(text, &format!("ConvTranspose2d, {} groups", groups[0]), draft);
    }
}

fn poolings(text: &mut String) {
    let draft = image([1, 4, 6, 2], [1, 2, 3, 2], |d, x, y| d.pooling(Kind::AvgPooling2d, &pooling(x, y)));
    listed(text, "AvgPooling2d", draft);
    let draft = image([1, 4, 6, 2], [1, 2, 3, 2], |d, x, y| d.pooling(Kind::MaxPooling2d, &pooling(x, y)));
    listed(text, "MaxPooling2d", draft);
    let draft = image([1, 5, 7, 2], [1, 3, 4, 2], |draft, x, y| {
        draft.pooling(
            Kind::MaxPooling2d,
            &wire::PoolingArgs { padding_bottom: 1, padding_right: 1, ..pooling(x, y) },
        );
    });
    listed(text, "MaxPooling2d, rounded up", draft);
    let draft = image([1, 4, 4, 2], [1, 3, 2, 2], |draft, x, y| {
        draft.pooling(Kind::MaxPooling2d, &wire::PoolingArgs { padding_top: 2, ..pooling(x, y) });
    });
    listed(text, "MaxPooling2d, uneven padding", draft);
    let draft = image([1, 4, 6, 2], [1, 1, 1, 2], |draft, x, y| {
        let args = wire::UnaryArgs { input_id: x, output_id: y, flags: 0x40 };
        let table = wire::Unary::create(&mut draft.builder, &args);
        draft.node(Kind::GlobalAvgPooling2d, table.as_union_value(), None);
    });
    listed(text, "GlobalAvgPooling2d", draft);
    let mut draft = Draft::new();
    let x = draft.input(&[1, 4, 6, 2]);
    let (values, indices) = (draft.output(&[1, 1, 6, 2]), draft.output(&[1, 1, 6, 2]));
    draft.arguments[2].as_mut().unwrap().dtype = pteron_core::DType::Int64;
    let args = wire::ArgMaxPoolingArgs {
        pooling_height: 4,
        pooling_width: 1,
        input_id: x,
        output_value_id: values,
        output_index_id: indices,
        ..Default::default()
    };
    let table = wire::ArgMaxPooling::create(&mut draft.builder, &args);
    draft.node(Kind::ArgMaxPooling2d, table.as_union_value(), None);
    listed(text, "ArgMaxPooling2d", draft);
    for (flags, name) in [(0, "StaticResizeBilinear2D"), (8, "StaticResizeBilinear2D, corners aligned")] {
        let draft = image([1, 4, 6, 2], [1, 8, 9, 2], |draft, x, y| {
            let args = wire::StaticResizeBilinearArgs {
                new_height: 8,
                new_width: 9,
                input_id: x,
                output_id: y,
                flags,
            };
            let table = wire::StaticResizeBilinear::create(&mut draft.builder, &args);
            draft.node(Kind::StaticResizeBilinear2D, table.as_union_value(), None);
        });
        listed(text, name, draft);
    }
}

fn moves(text: &mut String) {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 3, 4]), draft.output(&[4, 2, 3]));
    draft.transpose(&[2, 0, 1], x, y);
    listed(text, "StaticTranspose", draft);
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 3, 4]), draft.output(&[6, 4]));
    draft.reshape(&[0, 4], x, y);
    listed(text, "StaticReshape", draft);
    let draft = image([1, 4, 6, 3], [1, 2, 6, 1], |draft, x, y| {
        let offsets = Some(draft.builder.create_vector(&[0u32, 1, 0, 2]));
        let sizes = Some(draft.builder.create_vector(&[1u32, 2, 6, 0]));
        let args = wire::StaticSliceArgs { num_dims: 4, offsets, sizes, input_id: x, output_id: y, flags: 0 };
        let table = wire::StaticSlice::create(&mut draft.builder, &args);
        draft.node(Kind::StaticSlice, table.as_union_value(), None);
    });
    listed(text, "StaticSlice", draft);
    let draft = image([1, 4, 6, 3], [1, 7, 6, 4], |draft, x, y| {
        let before = Some(draft.builder.create_vector(&[0u32, 1, 0, 0]));
        let after = Some(draft.builder.create_vector(&[0u32, 2, 0, 1]));
        let args = wire::StaticConstantPadArgs {
            pre_paddings: before,
            post_paddings: after,
            padding_value: 0.5,
            input_id: x,
            output_id: y,
            flags: 0,
        };
        let table = wire::StaticConstantPad::create(&mut draft.builder, &args);
        draft.node(Kind::StaticConstantPad, table.as_union_value(), None);
    });
    listed(text, "StaticConstantPad", draft);
    for (count, kind) in [
        (2u32, Kind::Concatenate2),
        (3, Kind::Concatenate3),
        (4, Kind::Concatenate4),
        (5, Kind::Concatenate5),
    ] {
        let draft = image([1, 2, 2, 3], [1, 2, 2, 3 * count], |draft, x, y| {
            let id = |n: u32| if n < count { x } else { NONE };
            let args = wire::ConcatenateArgs {
                axis: 3,
                input1_id: id(0),
                input2_id: id(1),
                input3_id: id(2),
                input4_id: id(3),
                input5_id: id(4),
                output_id: y,
                flags: 0,
            };
            let table = wire::Concatenate::create(&mut draft.builder, &args);
            draft.node(kind, table.as_union_value(), None);
        });
        listed(text, kind.variant_name().unwrap(), draft);
    }
}

fn quantised(text: &mut String) {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 4]), draft.quantised(&[2, 4], 0.5, -3, 2));
    draft.unary(Kind::Convert, x, y);
    listed(text, "Convert to qint8", draft);
    let mut draft = Draft::new();
    let (a, b, out) = (
        draft.quantised(&[2], 0.5, 1, 1),
        draft.quantised(&[2], 0.25, 2, 1),
        draft.quantised(&[2], 1.5, 3, 2),
    );
    draft.binary(Kind::Add, [a, b], out);
    listed(text, "Add of qint8", draft);
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2, 4]), draft.output(&[2, 3]));
    let token = draft.blank(9, &[2, 4]);
    let rows = draft.value(&ValueDraft { quant: Quant::Token(1), ..token });
    let (bytes, scales) =
        (draft.constant(vec![1; 12]), draft.constant([1.0f32, 2.0, 3.0].map(f32::to_le_bytes).concat()));
    let blank = draft.blank(6, &[3, 4]);
    let filter = draft.value(&ValueDraft { constant: bytes, quant: Quant::Channel(0, scales, 3), ..blank });
    draft.unary(Kind::Convert, x, rows);
    draft.fully_connected([rows, filter, NONE, y], 0, None);
    listed(text, "FullyConnected of rows quantised when it runs", draft);
}

/// Two products of one activation, and a convolution of rows that are images.
fn quantised_rows(text: &mut String) {
    let mut draft = Draft::new();
    let (x, y, z) = (draft.input(&[2, 4]), draft.output(&[2, 3]), draft.output(&[2, 3]));
    let filter = draft.weight(&[3, 4]);
    for output in [y, z] {
        let token = draft.blank(9, &[2, 4]);
        let rows = draft.value(&ValueDraft { quant: Quant::Token(1), ..token });
        draft.unary(Kind::Convert, x, rows);
        draft.fully_connected([rows, filter, NONE, output], 0, None);
    }
    listed(text, "Convert of one value for two products", draft);
    let draft = image([1, 4, 4, 2], [1, 4, 4, 5], |draft, x, y| {
        let token = draft.blank(9, &[1, 4, 4, 2]);
        let rows = draft.value(&ValueDraft { quant: Quant::Token(3), ..token });
        draft.unary(Kind::Convert, x, rows);
        let filter = draft.weight(&[5, 3, 3, 2]);
        draft.convolution(Kind::Conv2d, &convolution(rows, filter, NONE, y, [1, 2, 5]), None);
    });
    listed(text, "Convert of images for a convolution", draft);
}

fn listed(text: &mut String, name: &str, mut draft: Draft) {
    let expansion = draft.expand().unwrap_or_else(|e| panic!("{name}: {e}"));
    writeln!(text, "## {name}\n{expansion}").unwrap();
}

#[test]
fn every_kind_of_node_becomes_the_reviewed_calls() {
    let mut text = String::new();
    for part in [unaries, binaries, products, poolings, moves, quantised, quantised_rows] {
        part(&mut text);
    }
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nodes.txt");
    if std::env::var("PTERON_BLESS").as_deref() == Ok("1") {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == expected, "calls changed; `make bless` accepts them:\n{text}");
}

#[test]
fn an_output_that_is_an_input_is_copied() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[2]), draft.output(&[2]));
    draft.unary(Kind::Copy, x, y);
    assert_eq!(
        draft.expand().unwrap().to_string(),
        "arg1 = aten::clone.out(arg0, none)  # node 0, debug handle 100\n"
    );
}

#[test]
fn arguments_with_channels_last_in_memory_are_taken_as_they_lie() {
    // XNNPACK sees extents in the order of memory.
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[1, 2, 3, 4]), draft.output(&[1, 2, 3, 4]));
    draft.unary(Kind::Abs, x, y);
    for argument in draft.arguments.iter_mut().flatten() {
        argument.shape = pteron_core::Dims::new(&[1, 4, 2, 3]).unwrap();
        argument.dim_order = pteron_core::DimOrder::new(&[0, 2, 3, 1]).unwrap();
    }
    let text = draft.expand().unwrap().to_string();
    let expected = "t1: float32 [1, 4, 2, 3] = aten::abs.out(arg0)  # node 0, debug handle 100\n\
                    arg1 = aten::permute_copy.out(t1, [0, 1, 2, 3])  # node 0, debug handle 100\n";
    assert_eq!(text, expected);
}

#[test]
fn a_dynamic_batch_is_what_is_left() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[4, 2, 3]), draft.output(&[4, 6]));
    for argument in draft.arguments.iter_mut().flatten() {
        argument.dynamism = pteron_core::Dynamism::Bounded;
    }
    draft.reshape(&[0, 6], x, y);
    let text = draft.expand().unwrap().to_string();
    assert_eq!(text, "arg1 = aten::view_copy.out(arg0, [-1, 6])  # node 0, debug handle 100\n");
}

/// The bytes of computed constants, in order.
fn computed(expansion: &crate::Expansion) -> Vec<Vec<u8>> {
    let constants = expansion.values.iter().filter_map(|value| match value.as_tensor() {
        Some(crate::ExpandedTensor::Constant(constant)) => Some(&constant.bytes),
        _ => None,
    });
    let bytes = constants.filter_map(|bytes| match bytes {
        crate::ConstantBytes::Computed(bytes) => Some(bytes.as_slice().to_vec()),
        _ => None,
    });
    bytes.collect()
}

#[test]
fn four_bit_weights_stay_pairs_with_scales_of_groups() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[1, 4]), draft.output(&[1, 2]));
    // Rows 0..4 and 4..8 less 8; groups of two; scales 1, 2, 3, 0.5 as bf16.
    let bytes = draft.constant(vec![0x10, 0x32, 0x54, 0x76]);
    let scales =
        draft.constant([1.0f32, 2.0, 3.0, 0.5].map(|s| half::bf16::from_f32(s).to_le_bytes()).concat());
    let blank = draft.blank(10, &[2, 4]);
    let filter = draft.value(&ValueDraft { constant: bytes, quant: Quant::Group(2, scales, 4), ..blank });
    draft.fully_connected([x, filter, NONE, y], 0, None);
    let expansion = draft.expand().unwrap();
    let scales = [1.0f32, 2.0, 3.0, 0.5].map(f32::to_le_bytes).concat();
    assert_eq!(computed(&expansion), [vec![0x01, 0x23, 0x45, 0x67], scales, vec![0; 8]]);
    let text = expansion.to_string();
    assert!(text.contains("embedding_4bit"), "{text}");
}

#[test]
fn four_bit_weights_of_odd_rows_are_unpacked() {
    let mut draft = Draft::new();
    let (x, y) = (draft.input(&[1, 3]), draft.output(&[1, 2]));
    // Rows 0, 1, 2 and 4, 5, 6 less 8; scales 1 and 0.5.
    let bytes = draft.constant(vec![0x10, 0x02, 0x54, 0x06]);
    let scales = draft.constant([1.0f32, 0.5].map(f32::to_le_bytes).concat());
    let blank = draft.blank(8, &[2, 3]);
    let filter = draft.value(&ValueDraft { constant: bytes, quant: Quant::Channel(0, scales, 2), ..blank });
    draft.fully_connected([x, filter, NONE, y], 0, None);
    let expansion = draft.expand().unwrap();
    let floats = [-8.0f32, -7.0, -6.0, -2.0, -1.5, -1.0].map(f32::to_le_bytes).concat();
    assert_eq!(computed(&expansion), [floats]);
}

#[test]
fn few_bytes_do_not_become_many_weights() {
    let mut draft = Draft::new();
    let x = draft.input(&[1, 64]);
    let (bytes, scales) = (draft.constant(vec![1; 4096]), draft.constant(1.0f32.to_le_bytes().repeat(64)));
    // Sixty values of the same bytes, each 16 KiB as f32.
    for _ in 0..60 {
        let blank = draft.blank(6, &[64, 64]);
        let filter =
            draft.value(&ValueDraft { constant: bytes, quant: Quant::Channel(0, scales, 64), ..blank });
        let y = draft.inner(&[1, 64]);
        draft.fully_connected([x, filter, NONE, y], 0, None);
    }
    let error = draft.expand().unwrap_err();
    assert_eq!(error.kind(), pteron_core::ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("become larger than their bytes explain"), "{error}");
}
