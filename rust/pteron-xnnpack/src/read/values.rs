//! The values of a graph: type, extents, parameters, and where each comes from.

use super::constants::Constants;
use super::fields::{INVALID, counted, index, required};
use super::quantisation;
use crate::datatype::Datatype;
use crate::generated::wire;
use crate::payload::{Quantisation, Source, StoredBytes, Value};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Dims, Error, Result, TensorSpec, sizes};
use std::collections::{HashMap, HashSet};

/// Flags of a value.
const INPUT: u32 = 1;
const OUTPUT: u32 = 2;

/// Index of a value by its number in the payload.
pub(super) type Ids = HashMap<u32, usize>;

/// Reads all values of `graph`.
pub(super) fn read(
    graph: &wire::Graph<'_>,
    constants: &Constants<'_>,
    arguments: &[Option<TensorSpec>],
) -> Result<(Vec<Value>, Ids)> {
    let table = graph.values().unwrap_or_default();
    let mut values: Vec<Value> = try_with_capacity(table.len())?;
    let mut ids = Ids::new();
    for (position, entry) in table.iter().enumerate() {
        let value = read_value(&entry, constants, arguments)
            .map_err(|e| in_value(e, &format!("value {position} of the XNNPACK payload")))?;
        if ids.insert(value.id, position).is_some() {
            return Err(
                Error::program("two values of the XNNPACK payload have one id").got(value.id.to_string())
            );
        }
        values.push(value);
    }
    check_arguments(&values)?;
    Ok((values, ids))
}

fn in_value(error: Error, place: &str) -> Error {
    let message = format!("{place}: {}", error.detail().message);
    error.with_message(message)
}

fn read_value(
    entry: &wire::Value<'_>,
    constants: &Constants<'_>,
    arguments: &[Option<TensorSpec>],
) -> Result<Value> {
    let quantised = entry.value_as_quantized_tensor_value();
    let tensor = match &quantised {
        Some(q) => required(q.tensor_value(), "tensor_value")?,
        None => entry.value_as_tensor_value().ok_or_else(|| {
            Error::program("the value is of an unknown kind")
                .expected("a tensor")
                .got(format!("tag {}", entry.value_type().0))
        })?,
    };
    let datatype = datatype(&tensor)?;
    let dims = Dims::new(&counted(tensor.dims(), tensor.num_dims(), "dims")?)?;
    sizes::checked_nbytes(&dims, datatype.real())?;
    let quantisation = match &quantised {
        Some(q) => quantisation::read(q, datatype, &dims, constants)?,
        None if datatype.is_quantised() => {
            return Err(
                Error::program("a quantised value has no quantisation parameters").got(datatype.name())
            );
        }
        None => Quantisation::None,
    };
    let source = source(&tensor, datatype, &dims, constants, arguments)?;
    Ok(Value { id: tensor.id_out(), datatype, dims, quantisation, source })
}

fn datatype(tensor: &wire::TensorValue<'_>) -> Result<Datatype> {
    let code = tensor.datatype().0;
    if tensor.dq_datatype().0 != 0 {
        return Err(Error::missing_operator(
            "the value is quantised when it is read, as exporters before 2024 wrote it",
        )
        .expected("a Convert node")
        .got(Datatype::code_name(tensor.dq_datatype().0))
        .hint("export the model again"));
    }
    Datatype::from_code(code).ok_or_else(|| {
        Error::missing_operator("the value is of a type that has no translation")
            .expected(
                "fp32, fp16, bf16, int32, qint8, quint8, qint32, qcint8, qcint32, qcint4, qbint4 or qdint8",
            )
            .got(Datatype::code_name(code))
    })
}

fn source(
    tensor: &wire::TensorValue<'_>,
    datatype: Datatype,
    dims: &Dims,
    constants: &Constants<'_>,
    arguments: &[Option<TensorSpec>],
) -> Result<Source> {
    let (number, external, flags) = (tensor.constant_buffer_idx(), tensor.external_id(), tensor.flags());
    let source = match (number, external, flags) {
        (0, INVALID, 0) => Source::Node,
        (0, external, INPUT) if external != INVALID => {
            Source::Input(argument(external, datatype, arguments)?)
        }
        (0, external, OUTPUT) if external != INVALID => {
            Source::Output(argument(external, datatype, arguments)?)
        }
        (number, INVALID, 0) => {
            return Ok(Source::Constant(constant(number, datatype, dims, constants)?));
        }
        _ => {
            return Err(Error::program("the value is not one of input, output, constant and intermediate")
                .got(format!("constant {number}, external id {external}, flags {flags}")));
        }
    };
    if !matches!(
        datatype,
        Datatype::Fp32
            | Datatype::Fp16
            | Datatype::Bf16
            | Datatype::Int32
            | Datatype::Qint8
            | Datatype::Quint8
            | Datatype::Qdint8
    ) {
        return Err(Error::program("only weights are of this type").got(datatype.name()));
    }
    if datatype == Datatype::Qdint8 && !matches!(source, Source::Node) {
        return Err(Error::program("a value that is quantised when it runs does not leave the delegate")
            .expected("an intermediate value")
            .got("an argument"));
    }
    Ok(source)
}

fn constant(number: u32, datatype: Datatype, dims: &Dims, constants: &Constants<'_>) -> Result<StoredBytes> {
    if datatype == Datatype::Qdint8 {
        return Err(Error::program("a constant is not quantised when it runs").got(datatype.name()));
    }
    let stored = constants.stored(number, datatype.stored().align())?;
    let needed = if datatype.is_nibbles() {
        let &[rows, columns] = &**dims else {
            return Err(Error::program("weights of four bits are a matrix").got(format!("extents {dims}")));
        };
        sizes::checked_nbytes(&[rows, columns.div_ceil(2)], datatype.stored())?
    } else {
        sizes::checked_nbytes(dims, datatype.stored())?
    };
    if stored.len < needed {
        return Err(Error::program("a constant has fewer bytes than its extents ask for")
            .expected(format!("{needed} bytes for {dims} of {}", datatype.name()))
            .got(format!("{} bytes", stored.len)));
    }
    Ok(stored)
}

/// The argument `external`, which must be a tensor of the call.
fn argument(external: u32, datatype: Datatype, arguments: &[Option<TensorSpec>]) -> Result<usize> {
    let position = index(external);
    match arguments.get(position) {
        Some(Some(_)) => Ok(position),
        Some(None) => Err(Error::program("an argument of the delegate call is not a tensor")
            .expected(format!("a tensor of {} as argument {external}", datatype.name()))),
        None => Err(Error::program("the value is an argument that the delegate call does not have")
            .expected(format!("an external id below {}", arguments.len()))
            .got(external.to_string())),
    }
}

/// No argument is written twice, or read and written.
fn check_arguments(values: &[Value]) -> Result<()> {
    let inputs: HashSet<usize> =
        values.iter().filter_map(|v| if let Source::Input(a) = v.source { Some(a) } else { None }).collect();
    let mut outputs = HashSet::new();
    for value in values {
        let Source::Output(argument) = value.source else { continue };
        if inputs.contains(&argument) || !outputs.insert(argument) {
            return Err(Error::program(
                "an output of the XNNPACK payload is an argument of another value, too",
            )
            .got(format!("argument {argument}, value {}", value.id)));
        }
    }
    Ok(())
}
