//! The program table: drafts to FlatBuffers tables.

use super::segment_layout::{DelegatePlace, SegmentLayout};
use super::table_memory::{Builder, built};
use super::{
    BufferDeviceDraft, ChainDraft, DelegateDraft, FrameDraft, InstructionDraft, MethodDraft, ProgramDraft,
    TensorDraft, ValueDraft,
};
use crate::generated::wire;
use crate::header::FILE_IDENTIFIER;
use flatbuffers::{ForwardsUOffset, Push, UnionWIPOffset, Vector, WIPOffset};
use pteron_core::{Error, Result};

type TableVector<'b, T> = WIPOffset<Vector<'b, ForwardsUOffset<T>>>;

/// Largest table that FlatBuffers offsets can address, less room for everything but blobs.
const MAX_INLINE_BYTES: usize = 1 << 30;
/// As above, for compile specs.
const MAX_SPEC_BYTES: usize = 1 << 29;

/// The plain FlatBuffers buffer of `draft`: root offset, identifier, tables. Inline blobs end at
/// multiples of `inline_alignment` counted from the end, so they are aligned in any buffer whose length
/// is such a multiple.
pub(super) fn build(
    draft: &ProgramDraft<'_>,
    layout: &SegmentLayout<'_>,
    inline_alignment: usize,
) -> Result<Vec<u8>> {
    let inline_bytes = layout.inline_delegates.iter().fold(0usize, |n, b| n.saturating_add(b.len()));
    check_specs(draft)?;
    if inline_bytes > MAX_INLINE_BYTES {
        return Err(Error::limit("delegate blobs are too large to be stored inside the program table")
            .expected(format!("at most {MAX_INLINE_BYTES} bytes"))
            .got(format!("{inline_bytes} bytes"))
            .hint("write with extract_delegate_segments=True"));
    }
    built(|b| program(b, draft, layout, inline_alignment))
}

fn program<'b>(
    b: &mut Builder<'b>,
    draft: &ProgramDraft<'_>,
    layout: &SegmentLayout<'_>,
    inline_alignment: usize,
) -> Result<()> {
    let mut inline = Vec::new();
    for blob in &layout.inline_delegates {
        let data = Some(aligned_bytes(b, blob, inline_alignment));
        inline
            .push(wire::BackendDelegateInlineData::create(b, &wire::BackendDelegateInlineDataArgs { data }));
    }
    let mut plans = Vec::new();
    for method in &draft.methods {
        plans.push(plan(b, method, layout)?);
    }
    let args = wire::ProgramArgs {
        version: draft.version,
        execution_plan: Some(b.create_vector(&plans)),
        constant_buffer: Some(b.create_vector::<WIPOffset<wire::Buffer<'_>>>(&[])),
        backend_delegate_data: Some(b.create_vector(&inline)),
        segments: Some(segments(b, layout)),
        constant_segment: Some(offsets(b, 0, &layout.constant_offsets)),
        mutable_data_segments: layout.mutable.as_ref().map(|(segment, at)| {
            let table = offsets(b, *segment, at);
            b.create_vector(&[table])
        }),
        named_data: (!draft.named_data.is_empty()).then(|| named_data(b, draft, layout)),
    };
    let root = wire::Program::create(b, &args);
    b.finish(root, Some(FILE_IDENTIFIER));
    Ok(())
}

/// Compile specs are stored in the table too.
fn check_specs(draft: &ProgramDraft<'_>) -> Result<()> {
    let specs = draft.methods.iter().flat_map(|m| &m.delegates).flat_map(|d| &d.specs);
    let nbytes = specs.fold(0usize, |n, s| n.saturating_add(s.value.len()));
    if nbytes <= MAX_SPEC_BYTES {
        return Ok(());
    }
    Err(Error::limit("the compile specs of delegates are too large for the program table")
        .expected(format!("at most {MAX_SPEC_BYTES} bytes"))
        .got(format!("{nbytes} bytes"))
        .hint("a backend should put large data into its blob or into named data"))
}

/// A byte vector whose data lies at a multiple of `alignment` (a power of two, at least 4), counted from
/// the end of the buffer.
pub(super) fn aligned_bytes<'b>(
    b: &mut Builder<'b>,
    data: &[u8],
    alignment: usize,
) -> WIPOffset<Vector<'b, u8>> {
    let end = b.unfinished_data().len().saturating_add(data.len());
    let padding = end.next_multiple_of(alignment).saturating_sub(end);
    for _ in 0..padding {
        b.push(0u8);
    }
    b.create_vector(data)
}

fn scalars<'b, T: Push + Copy + 'b>(
    b: &mut Builder<'b>,
    items: &[T],
) -> Option<WIPOffset<Vector<'b, T::Output>>> {
    Some(b.create_vector(items))
}

fn segments<'b>(b: &mut Builder<'b>, layout: &SegmentLayout<'_>) -> TableVector<'b, wire::DataSegment<'b>> {
    let tables: Vec<_> = layout
        .segments
        .extents
        .iter()
        .map(|(offset, size)| {
            wire::DataSegment::create(b, &wire::DataSegmentArgs { offset: *offset, size_: *size })
        })
        .collect();
    b.create_vector(&tables)
}

fn offsets<'b>(
    b: &mut Builder<'b>,
    segment_index: u32,
    at: &[u64],
) -> WIPOffset<wire::SubsegmentOffsets<'b>> {
    let offsets = scalars(b, at);
    wire::SubsegmentOffsets::create(b, &wire::SubsegmentOffsetsArgs { segment_index, offsets })
}

fn named_data<'b>(
    b: &mut Builder<'b>,
    draft: &ProgramDraft<'_>,
    layout: &SegmentLayout<'_>,
) -> TableVector<'b, wire::NamedData<'b>> {
    let mut tables = Vec::new();
    for (named, segment_index) in draft.named_data.iter().zip(&layout.named_segment) {
        let key = Some(b.create_string(&named.key));
        tables.push(wire::NamedData::create(b, &wire::NamedDataArgs { key, segment_index: *segment_index }));
    }
    b.create_vector(&tables)
}

fn plan<'b>(
    b: &mut Builder<'b>,
    method: &MethodDraft,
    layout: &SegmentLayout<'_>,
) -> Result<WIPOffset<wire::ExecutionPlan<'b>>> {
    let mut values = Vec::with_capacity(method.values.len());
    for (index, draft) in method.values.iter().enumerate() {
        let value = value(b, draft, layout).map_err(|e| e.argument(format!("value {index}")));
        values.push(value.map_err(|e| e.method(&method.name))?);
    }
    let chains: Vec<_> = method.chains.iter().map(|c| chain(b, c)).collect();
    let operators: Vec<_> = method
        .operators
        .iter()
        .map(|o| {
            let (name, overload) = (Some(b.create_string(&o.name)), Some(b.create_string(&o.overload)));
            wire::Operator::create(b, &wire::OperatorArgs { name, overload })
        })
        .collect();
    let mut delegates = Vec::new();
    for (index, draft) in method.delegates.iter().enumerate() {
        delegates.push(
            delegate(b, draft, layout)
                .map_err(|e| e.method(&method.name))
                .map_err(|e| e.argument(format!("delegate {index}")))?,
        );
    }
    let trees = wire::ContainerMetadataArgs {
        encoded_inp_str: Some(b.create_string(&method.input_tree)),
        encoded_out_str: Some(b.create_string(&method.output_tree)),
    };
    let args = wire::ExecutionPlanArgs {
        name: Some(b.create_string(&method.name)),
        container_meta_type: Some(wire::ContainerMetadata::create(b, &trees)),
        values: Some(b.create_vector(&values)),
        inputs: scalars(b, &method.inputs),
        outputs: scalars(b, &method.outputs),
        chains: Some(b.create_vector(&chains)),
        operators: Some(b.create_vector(&operators)),
        delegates: Some(b.create_vector(&delegates)),
        non_const_buffer_sizes: scalars(b, &method.non_const_buffer_sizes),
        non_const_buffer_device: (!method.non_const_buffer_device.is_empty())
            .then(|| buffer_devices(b, &method.non_const_buffer_device)),
    };
    Ok(wire::ExecutionPlan::create(b, &args))
}

fn buffer_devices<'b>(
    b: &mut Builder<'b>,
    devices: &[BufferDeviceDraft],
) -> TableVector<'b, wire::NonConstBufferDevice<'b>> {
    let tables: Vec<_> = devices
        .iter()
        .map(|d| {
            let args = wire::NonConstBufferDeviceArgs {
                buffer_idx: d.buffer_idx,
                device_type: wire::DeviceType(d.device_type),
                device_index: d.device_index,
            };
            wire::NonConstBufferDevice::create(b, &args)
        })
        .collect();
    b.create_vector(&tables)
}

fn value<'b>(
    b: &mut Builder<'b>,
    value: &ValueDraft,
    layout: &SegmentLayout<'_>,
) -> Result<WIPOffset<wire::EValue<'b>>> {
    use wire::KernelTypes as Kind;
    let (val_type, val): (Kind, WIPOffset<UnionWIPOffset>) = match value {
        ValueDraft::None => (Kind::Null, wire::Null::create(b, &wire::NullArgs {}).as_union_value()),
        ValueDraft::Int(v) => {
            (Kind::Int, wire::Int::create(b, &wire::IntArgs { int_val: *v }).as_union_value())
        }
        ValueDraft::Bool(v) => {
            (Kind::Bool, wire::Bool::create(b, &wire::BoolArgs { bool_val: *v }).as_union_value())
        }
        ValueDraft::Double(v) => {
            // A field that equals its default is left out, and -0.0 equals 0.0.
            b.force_defaults(v.is_sign_negative());
            let value = wire::Double::create(b, &wire::DoubleArgs { double_val: *v }).as_union_value();
            b.force_defaults(false);
            (Kind::Double, value)
        }
        ValueDraft::String(v) => {
            let string_val = Some(b.create_string(v));
            (Kind::String, wire::String::create(b, &wire::StringArgs { string_val }).as_union_value())
        }
        ValueDraft::Tensor(t) => (Kind::Tensor, tensor(b, t, layout).as_union_value()),
        ValueDraft::IntList(v) => {
            let items = scalars(b, v);
            (Kind::IntList, wire::IntList::create(b, &wire::IntListArgs { items }).as_union_value())
        }
        ValueDraft::DoubleList(v) => {
            let items = scalars(b, v);
            (Kind::DoubleList, wire::DoubleList::create(b, &wire::DoubleListArgs { items }).as_union_value())
        }
        ValueDraft::BoolList(v) => {
            let items = scalars(b, v);
            (Kind::BoolList, wire::BoolList::create(b, &wire::BoolListArgs { items }).as_union_value())
        }
        ValueDraft::TensorList(v) => {
            let items = scalars(b, &v.iter().map(|i| narrow(*i)).collect::<Result<Vec<i32>>>()?);
            (Kind::TensorList, wire::TensorList::create(b, &wire::TensorListArgs { items }).as_union_value())
        }
        ValueDraft::OptionalTensorList(v) => {
            let items = scalars(b, &v.iter().map(|i| narrow(i.unwrap_or(-1))).collect::<Result<Vec<i32>>>()?);
            let list = wire::OptionalTensorList::create(b, &wire::OptionalTensorListArgs { items });
            (Kind::OptionalTensorList, list.as_union_value())
        }
    };
    Ok(wire::EValue::create(b, &wire::EValueArgs { val_type, val: Some(val) }))
}

/// An index as lists of tensors hold it.
fn narrow(index: i64) -> Result<i32> {
    i32::try_from(index).map_err(|_| {
        Error::program("an index of a list does not fit the format")
            .expected("a 32-bit number")
            .got(index.to_string())
    })
}

fn tensor<'b>(
    b: &mut Builder<'b>,
    tensor: &TensorDraft,
    layout: &SegmentLayout<'_>,
) -> WIPOffset<wire::Tensor<'b>> {
    let allocation_info = tensor.allocation.map(|a| {
        let args = wire::AllocationDetailsArgs {
            memory_id: a.memory_id,
            memory_offset_low: (a.offset & u64::from(u32::MAX)) as u32,
            memory_offset_high: (a.offset >> 32) as u32,
        };
        wire::AllocationDetails::create(b, &args)
    });
    let extra_tensor_info = tensor.extra.as_ref().map(|e| {
        let fully_qualified_name = e.fully_qualified_name.as_ref().map(|n| b.create_string(n));
        let args = wire::ExtraTensorInfoArgs {
            mutable_data_segments_idx: e.mutable_data_segments_idx,
            fully_qualified_name,
            location: wire::TensorDataLocation(e.location),
            device_type: wire::DeviceType(e.device_type),
            device_index: e.device_index,
        };
        wire::ExtraTensorInfo::create(b, &args)
    });
    let args = wire::TensorArgs {
        scalar_type: wire::ScalarType(tensor.scalar_type),
        storage_offset: tensor.storage_offset,
        sizes: scalars(b, &tensor.sizes),
        dim_order: scalars(b, &tensor.dim_order),
        requires_grad: tensor.requires_grad,
        data_buffer_idx: stored_index(tensor, layout),
        allocation_info,
        layout: tensor.layout,
        shape_dynamism: wire::TensorShapeDynamism(tensor.shape_dynamism),
        extra_tensor_info,
    };
    wire::Tensor::create(b, &args)
}

/// The index that a tensor's data has after deduplication. An index that the draft has no data for stays
/// as it is, for the check of the finished file to name.
fn stored_index(tensor: &TensorDraft, layout: &SegmentLayout<'_>) -> u32 {
    let index = tensor.data_buffer_idx;
    let table = if tensor.allocation.is_some() { &layout.mutable_index } else { &layout.constant_index };
    let stored = usize::try_from(index).ok().and_then(|i| table.get(i)).and_then(|i| u32::try_from(*i).ok());
    stored.unwrap_or(index)
}

fn delegate<'b>(
    b: &mut Builder<'b>,
    delegate: &DelegateDraft,
    layout: &SegmentLayout<'_>,
) -> Result<WIPOffset<wire::BackendDelegate<'b>>> {
    let place = usize::try_from(delegate.blob).ok().and_then(|i| layout.delegate_place.get(i));
    let (location, index) = match place {
        Some(DelegatePlace::Inline(i)) => (wire::DataLocation::INLINE, *i),
        Some(DelegatePlace::Segment(i)) => (wire::DataLocation::SEGMENT, *i),
        None => {
            return Err(Error::program("a delegate refers to a blob that does not exist")
                .expected(format!("an index below {}", layout.delegate_place.len()))
                .got(delegate.blob.to_string()));
        }
    };
    let specs: Vec<_> = delegate
        .specs
        .iter()
        .map(|s| {
            let (key, value) = (Some(b.create_string(&s.key)), scalars(b, &s.value));
            wire::CompileSpec::create(b, &wire::CompileSpecArgs { key, value })
        })
        .collect();
    let reference = wire::BackendDelegateDataReferenceArgs { location, index };
    let args = wire::BackendDelegateArgs {
        id: Some(b.create_string(&delegate.id)),
        processed: Some(wire::BackendDelegateDataReference::create(b, &reference)),
        compile_specs: Some(b.create_vector(&specs)),
    };
    Ok(wire::BackendDelegate::create(b, &args))
}

fn chain<'b>(b: &mut Builder<'b>, chain: &ChainDraft) -> WIPOffset<wire::Chain<'b>> {
    let instructions: Vec<_> = chain.instructions.iter().map(|i| instruction(b, i)).collect();
    let args = wire::ChainArgs {
        inputs: scalars(b, &chain.inputs),
        outputs: scalars(b, &chain.outputs),
        instructions: Some(b.create_vector(&instructions)),
        stacktrace: (!chain.stacktrace.is_empty()).then(|| stacktrace(b, &chain.stacktrace)),
    };
    wire::Chain::create(b, &args)
}

type FrameLists<'b> = WIPOffset<flatbuffers::Vector<'b, flatbuffers::ForwardsUOffset<wire::FrameList<'b>>>>;

/// The same frames stand at many instructions, so their texts are stored once.
fn stacktrace<'b>(b: &mut Builder<'b>, lists: &[Vec<FrameDraft>]) -> FrameLists<'b> {
    let lists: Vec<_> = lists
        .iter()
        .map(|frames| {
            let frames: Vec<_> = frames
                .iter()
                .map(|frame| {
                    let args = wire::FrameArgs {
                        filename: Some(b.create_shared_string(&frame.filename)),
                        lineno: frame.lineno,
                        name: Some(b.create_shared_string(&frame.name)),
                        context: Some(b.create_shared_string(&frame.context)),
                    };
                    wire::Frame::create(b, &args)
                })
                .collect();
            let items = Some(b.create_vector(&frames));
            wire::FrameList::create(b, &wire::FrameListArgs { items })
        })
        .collect();
    b.create_vector(&lists)
}

fn instruction<'b>(b: &mut Builder<'b>, instruction: &InstructionDraft) -> WIPOffset<wire::Instruction<'b>> {
    use wire::InstructionArguments as Kind;
    let (instr_args_type, args): (Kind, WIPOffset<UnionWIPOffset>) = match instruction {
        InstructionDraft::Kernel { operator, args } => {
            let args = scalars(b, args);
            let call = wire::KernelCall::create(b, &wire::KernelCallArgs { op_index: *operator, args });
            (Kind::KernelCall, call.as_union_value())
        }
        InstructionDraft::Delegate { delegate, args } => {
            let args = scalars(b, args);
            let call =
                wire::DelegateCall::create(b, &wire::DelegateCallArgs { delegate_index: *delegate, args });
            (Kind::DelegateCall, call.as_union_value())
        }
        InstructionDraft::Move { from, to } => {
            let call = wire::MoveCall::create(b, &wire::MoveCallArgs { move_from: *from, move_to: *to });
            (Kind::MoveCall, call.as_union_value())
        }
        InstructionDraft::JumpFalse { condition, destination } => {
            let args = wire::JumpFalseCallArgs {
                cond_value_index: *condition,
                destination_instruction: *destination,
            };
            (Kind::JumpFalseCall, wire::JumpFalseCall::create(b, &args).as_union_value())
        }
        InstructionDraft::Free { value } => {
            let call = wire::FreeCall::create(b, &wire::FreeCallArgs { value_index: *value });
            (Kind::FreeCall, call.as_union_value())
        }
    };
    wire::Instruction::create(b, &wire::InstructionArgs { instr_args_type, instr_args: Some(args) })
}
