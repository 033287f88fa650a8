//! Payloads for tests, written value by value and node by node.

use crate::expansion::Expansion;
use crate::generated::wire::{self, NodeUnion};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use pteron_core::{DType, NamedData, Result, TensorSpec};
use std::collections::HashMap;

/// No value, no argument.
pub(crate) const NONE: u32 = u32::MAX;

/// How a value is quantised.
#[derive(Clone, Copy)]
pub(crate) enum Quant {
    None,
    Tensor(f32, i32),
    /// Axis, constant of scales, number of scales.
    Channel(i32, u32, u32),
    /// Group size, constant of scales, number of scales.
    Group(i32, u32, u32),
    Token(i32),
}

/// A value; fields are those of the schema.
#[derive(Clone)]
pub(crate) struct ValueDraft {
    pub datatype: i16,
    pub dims: Vec<u32>,
    pub num_dims: u32,
    pub constant: u32,
    pub external: u32,
    pub flags: u32,
    pub id: u32,
    pub quant: Quant,
}

/// Named data of a test.
#[derive(Default)]
pub(crate) struct Weights(pub HashMap<String, Vec<u8>>);

impl NamedData for Weights {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }
}

/// A payload while it is written.
pub(crate) struct Draft {
    pub builder: FlatBufferBuilder<'static>,
    values: Vec<WIPOffset<wire::Value<'static>>>,
    nodes: Vec<WIPOffset<wire::Node<'static>>>,
    constants: Vec<(u64, u64, String)>,
    pub weights: Weights,
    pub arguments: Vec<Option<TensorSpec>>,
}

impl Draft {
    pub(crate) fn new() -> Self {
        Draft {
            builder: FlatBufferBuilder::new(),
            values: vec![],
            nodes: vec![],
            constants: vec![(0, 0, String::new())],
            weights: Weights::default(),
            arguments: vec![],
        }
    }

    /// A value that is as the next one would be, to be changed.
    pub(crate) fn blank(&self, datatype: i16, dims: &[u32]) -> ValueDraft {
        ValueDraft {
            datatype,
            dims: dims.to_vec(),
            num_dims: u32::try_from(dims.len()).unwrap(),
            constant: 0,
            external: NONE,
            flags: 0,
            id: u32::try_from(self.values.len()).unwrap(),
            quant: Quant::None,
        }
    }

    pub(crate) fn value(&mut self, draft: &ValueDraft) -> u32 {
        let b = &mut self.builder;
        let dims = Some(b.create_vector(&draft.dims));
        let tensor = wire::TensorValue::create(
            b,
            &wire::TensorValueArgs {
                datatype: wire::Datatype(draft.datatype),
                num_dims: draft.num_dims,
                dims,
                constant_buffer_idx: draft.constant,
                external_id: draft.external,
                flags: draft.flags,
                id_out: draft.id,
                dq_datatype: wire::Datatype::INVALID,
            },
        );
        let (value_type, value) = match quant_params(b, draft.quant) {
            None => (wire::ValueUnion::TensorValue, tensor.as_union_value()),
            Some((quant_params_type, params)) => {
                let args = wire::QuantizedTensorValueArgs {
                    tensor_value: Some(tensor),
                    quant_params_type,
                    quant_params: Some(params),
                };
                let quantised = wire::QuantizedTensorValue::create(b, &args);
                (wire::ValueUnion::QuantizedTensorValue, quantised.as_union_value())
            }
        };
        self.values.push(wire::Value::create(b, &wire::ValueArgs { value_type, value: Some(value) }));
        draft.id
    }

    fn external(&mut self, datatype: i16, dims: &[u32], quant: Quant, flags: u32) -> u32 {
        let dtype = match datatype {
            2 => DType::Float16,
            3 => DType::Int8,
            12 => DType::Int32,
            14 => DType::BFloat16,
            _ => DType::Float32,
        };
        let external = u32::try_from(self.arguments.len()).unwrap();
        let shape: Vec<usize> = dims.iter().map(|d| *d as usize).collect();
        self.arguments.push(Some(TensorSpec::contiguous(dtype, &shape).unwrap()));
        let blank = self.blank(datatype, dims);
        self.value(&ValueDraft { external, flags, quant, ..blank })
    }

    /// An fp32 argument that is read.
    pub(crate) fn input(&mut self, dims: &[u32]) -> u32 {
        self.external(1, dims, Quant::None, 1)
    }

    /// An fp32 argument that is written.
    pub(crate) fn output(&mut self, dims: &[u32]) -> u32 {
        self.external(1, dims, Quant::None, 2)
    }

    /// A qint8 argument.
    pub(crate) fn quantised(&mut self, dims: &[u32], scale: f32, zero: i32, flags: u32) -> u32 {
        self.external(3, dims, Quant::Tensor(scale, zero), flags)
    }

    /// An fp32 intermediate.
    pub(crate) fn inner(&mut self, dims: &[u32]) -> u32 {
        let blank = self.blank(1, dims);
        self.value(&blank)
    }

    /// Bytes under the name `constantN`.
    pub(crate) fn constant(&mut self, bytes: Vec<u8>) -> u32 {
        let number = u32::try_from(self.constants.len()).unwrap();
        let key = format!("constant{number}");
        self.constants.push((u64::MAX, bytes.len() as u64, key.clone()));
        self.weights.0.insert(key, bytes);
        number
    }

    /// A line of the table of constants as it is said.
    pub(crate) fn raw_constant(&mut self, offset: u64, size: u64, key: &str) -> u32 {
        self.constants.push((offset, size, key.to_owned()));
        u32::try_from(self.constants.len() - 1).unwrap()
    }

    /// An fp32 weight.
    pub(crate) fn weight(&mut self, dims: &[u32]) -> u32 {
        let count: u32 = dims.iter().product();
        let constant = self.constant((0..count).flat_map(|i| (i as f32).to_le_bytes()).collect());
        let blank = self.blank(1, dims);
        self.value(&ValueDraft { constant, ..blank })
    }

    /// A node with a table of its own, and bounds.
    pub(crate) fn node(
        &mut self,
        kind: NodeUnion,
        table: WIPOffset<UnionWIPOffset>,
        limits: Option<(f32, f32)>,
    ) {
        let b = &mut self.builder;
        let output_min_max = limits.map(|(output_min, output_max)| {
            wire::OutputMinMax::create(b, &wire::OutputMinMaxArgs { output_min, output_max })
        });
        let debug_handle = 100 + u32::try_from(self.nodes.len()).unwrap();
        let args = wire::NodeArgs { node_type: kind, node: Some(table), debug_handle, output_min_max };
        self.nodes.push(wire::Node::create(b, &args));
    }

    pub(crate) fn unary(&mut self, kind: NodeUnion, input_id: u32, output_id: u32) {
        let table =
            wire::Unary::create(&mut self.builder, &wire::UnaryArgs { input_id, output_id, flags: 0 });
        self.node(kind, table.as_union_value(), None);
    }

    pub(crate) fn binary(&mut self, kind: NodeUnion, inputs: [u32; 2], output_id: u32) {
        let args = wire::BinaryArgs { input1_id: inputs[0], input2_id: inputs[1], output_id, flags: 0 };
        let table = wire::Binary::create(&mut self.builder, &args);
        self.node(kind, table.as_union_value(), None);
    }

    pub(crate) fn transpose(&mut self, perm: &[u32], input_id: u32, output_id: u32) {
        let perm_vector = Some(self.builder.create_vector(perm));
        let num_dims = u32::try_from(perm.len()).unwrap();
        let args = wire::StaticTransposeArgs { num_dims, perm: perm_vector, input_id, output_id, flags: 0 };
        let table = wire::StaticTranspose::create(&mut self.builder, &args);
        self.node(NodeUnion::StaticTranspose, table.as_union_value(), None);
    }

    pub(crate) fn reshape(&mut self, shape: &[u32], input_id: u32, output_id: u32) {
        let new_shape = Some(self.builder.create_vector(shape));
        let num_dims = u32::try_from(shape.len()).unwrap();
        let args = wire::StaticReshapeArgs { num_dims, new_shape, input_id, output_id, flags: 0 };
        let table = wire::StaticReshape::create(&mut self.builder, &args);
        self.node(NodeUnion::StaticReshape, table.as_union_value(), None);
    }

    pub(crate) fn fully_connected(&mut self, ids: [u32; 4], flags: u32, limits: Option<(f32, f32)>) {
        let [input1_id, filter_id, bias_id, output_id] = ids;
        let args = wire::FullyConnectedArgs { input1_id, filter_id, bias_id, output_id, flags };
        let table = wire::FullyConnected::create(&mut self.builder, &args);
        self.node(NodeUnion::FullyConnected, table.as_union_value(), limits);
    }

    /// A node of one of the kinds of convolutions; padding is top, right, bottom, left.
    pub(crate) fn convolution(
        &mut self,
        kind: NodeUnion,
        args: &wire::ConvolutionArgs,
        limits: Option<(f32, f32)>,
    ) {
        let table = wire::Convolution::create(&mut self.builder, args);
        self.node(kind, table.as_union_value(), limits);
    }

    pub(crate) fn pooling(&mut self, kind: NodeUnion, args: &wire::PoolingArgs) {
        let table = wire::Pooling::create(&mut self.builder, args);
        self.node(kind, table.as_union_value(), None);
    }

    /// The whole payload, with the header of today.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.finish_with(&[])
    }

    /// The same with bytes of constants behind the graph.
    pub(crate) fn finish_with(&mut self, data: &[u8]) -> Vec<u8> {
        let b = &mut self.builder;
        let constants: Vec<_> = self
            .constants
            .iter()
            .map(|(offset, size, key)| {
                let named_key = Some(b.create_string(key));
                wire::ConstantData::create(
                    b,
                    &wire::ConstantDataArgs { offset: *offset, size_: *size, named_key },
                )
            })
            .collect();
        let constant_data = Some(b.create_vector(&constants));
        let (nodes, values) = (Some(b.create_vector(&self.nodes)), Some(b.create_vector(&self.values)));
        let version = Some(b.create_string("0"));
        let args = wire::GraphArgs { version, nodes, values, constant_data, ..Default::default() };
        let graph = wire::Graph::create(b, &args);
        b.finish(graph, Some("XN01"));
        let graph = b.finished_data();
        let padded = graph.len().next_multiple_of(16);
        let mut bytes = vec![0; 4];
        bytes.extend(b"XH00");
        bytes.extend(30u16.to_le_bytes());
        bytes.extend(32u32.to_le_bytes());
        bytes.extend(u32::try_from(graph.len()).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(32 + padded).unwrap().to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        bytes.resize(32, 0);
        bytes.extend(graph);
        bytes.resize(32 + padded, 0);
        bytes.extend(data);
        bytes
    }

    /// What the payload becomes.
    pub(crate) fn expand(&mut self) -> Result<Expansion> {
        let payload = self.finish();
        crate::expand(&payload, &self.arguments, &self.weights)
    }

    /// The text of the error that the payload ends in.
    pub(crate) fn error(&mut self) -> String {
        self.expand().expect_err("the payload is refused").to_string()
    }
}

fn quant_params(
    b: &mut FlatBufferBuilder<'static>,
    quant: Quant,
) -> Option<(wire::QuantParams, WIPOffset<UnionWIPOffset>)> {
    Some(match quant {
        Quant::None => return None,
        Quant::Tensor(scale, zero_point) => {
            let params = wire::PerTensorQuant::create(b, &wire::PerTensorQuantArgs { scale, zero_point });
            (wire::QuantParams::PerTensorQuant, params.as_union_value())
        }
        Quant::Channel(channel_dim, scale_buffer_idx, num_scales) => {
            let args = wire::PerChannelQuantArgs { scale: None, channel_dim, scale_buffer_idx, num_scales };
            (wire::QuantParams::PerChannelQuant, wire::PerChannelQuant::create(b, &args).as_union_value())
        }
        Quant::Group(group_size, scale_buffer_idx, num_scales) => {
            let args = wire::PerChannelGroupQuantArgs {
                scale: None,
                channel_dim: 0,
                group_size,
                scale_buffer_idx,
                num_scales,
            };
            (
                wire::QuantParams::PerChannelGroupQuant,
                wire::PerChannelGroupQuant::create(b, &args).as_union_value(),
            )
        }
        Quant::Token(num_nonbatch_dims) => {
            let params =
                wire::PerTokenDynamicQuant::create(b, &wire::PerTokenDynamicQuantArgs { num_nonbatch_dims });
            (wire::QuantParams::PerTokenDynamicQuant, params.as_union_value())
        }
    })
}
