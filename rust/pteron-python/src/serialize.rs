//! The writer for Python: a `pteron.exir.schema.Program` object to the bytes of a file, and the text
//! form of a file. Objects are read by attribute name; a union is told apart by the name of the class.

use crate::bytes::python_bytes;
use crate::call;
use crate::contents::Contents;
use crate::errors::{to_python, type_name};
use pteron_core::{CompileSpec, Value};
use pteron_format::ProgramFile;
use pteron_format::write::{
    AllocationDraft, BufferDeviceDraft, ChainDraft, DelegateDraft, ExtraTensorDraft, FileLayout, FrameDraft,
    InstructionDraft, LayoutDraft, MethodDraft, NamedDataDraft, OperatorDraft, ProgramDraft, TensorDraft,
    WriteOptions,
};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::borrow::Cow;
use std::collections::HashMap;

/// Lays a program out as the bytes of a `.pte` file and checks the result.
///
/// Equal constants, delegate blobs and named blobs are stored once. Raises ProgramError when the program
/// breaks a rule of the format, naming method, instruction or value, and TypeError when an object has
/// not the expected attributes.
#[pyfunction]
#[pyo3(signature = (program, *, extract_delegate_segments=true, segment_alignment=128,
                    constant_tensor_alignment=16, delegate_alignment=16))]
pub fn serialize_program<'py>(
    program: &Bound<'py, PyAny>,
    extract_delegate_segments: bool,
    segment_alignment: u32,
    constant_tensor_alignment: u32,
    delegate_alignment: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = program.py();
    let options = WriteOptions {
        extract_delegate_segments,
        segment_alignment,
        constant_tensor_alignment,
        delegate_alignment,
        verify: true,
    };
    let blobs = ProgramBlobs::of(program)?;
    let draft = blobs.draft(program)?;
    let bytes = call::detached(py, || draft.to_bytes(&options))?;
    python_bytes(py, &bytes)
}

/// As `serialize_program` without making the file: its first bytes, the buffers behind them as pairs of
/// offset and memoryview in file order, and its length. What lies between is zero. `strip`: without
/// `pteron.debug`.
#[pyfunction]
#[pyo3(signature = (program, *, extract_delegate_segments=true, segment_alignment=128,
                    constant_tensor_alignment=16, delegate_alignment=16, strip=false))]
pub fn layout_program<'py>(
    program: &Bound<'py, PyAny>,
    extract_delegate_segments: bool,
    segment_alignment: u32,
    constant_tensor_alignment: u32,
    delegate_alignment: u32,
    strip: bool,
) -> PyResult<PyLayout<'py>> {
    let py = program.py();
    let options = WriteOptions {
        extract_delegate_segments,
        segment_alignment,
        constant_tensor_alignment,
        delegate_alignment,
        verify: true,
    };
    let blobs = ProgramBlobs::of(program)?;
    let draft = blobs.draft(program)?;
    let layout = call::detached(py, || {
        let mut layout = draft.lay_out(&options)?;
        if strip {
            layout.strip()?;
        }
        Ok(layout)
    })?;
    python_layout(py, &layout, blobs.all())
}

/// Head, pieces and length of a file.
pub type PyLayout<'py> = (Bound<'py, PyBytes>, Vec<(u64, Py<PyMemoryView>)>, u64);

/// A layout whose pieces are `contents`, for Python.
pub fn python_layout<'py, 'a>(
    py: Python<'py>,
    layout: &FileLayout<'_>,
    contents: impl Iterator<Item = &'a Contents>,
) -> PyResult<PyLayout<'py>> {
    let place = |bytes: &[u8]| (bytes.as_ptr().addr(), bytes.len());
    let views: HashMap<(usize, usize), &Contents> = contents.map(|c| (place(c.bytes()), c)).collect();
    let mut pieces = Vec::with_capacity(layout.pieces.len());
    for (offset, piece) in &layout.pieces {
        let owner = views.get(&place(piece)).ok_or_else(|| {
            to_python(py, pteron_core::Error::internal("a piece of a file belongs to no buffer"))
        })?;
        pieces.push((*offset, owner.view().clone_ref(py)));
    }
    Ok((python_bytes(py, &layout.head)?, pieces, layout.len))
}

/// What an object says about a tensor's dtype, shape and memory order.
pub struct LayoutFields {
    scalar_type: i8,
    sizes: Vec<i32>,
    dim_order: Vec<u8>,
}

impl LayoutFields {
    /// Reads `scalar_type`, `sizes` and `dim_order`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(LayoutFields {
            scalar_type: field(object, "scalar_type")?,
            sizes: field(object, "sizes")?,
            dim_order: field(object, "dim_order")?,
        })
    }

    /// The same for the writer.
    pub fn draft(self) -> LayoutDraft {
        LayoutDraft { scalar_type: self.scalar_type, sizes: self.sizes, dim_order: self.dim_order }
    }
}

/// The program file `data` without `pteron.debug`; everything else stays as it is to the byte.
///
/// `data`: bytes or another buffer. Source lines are then missing from errors; nothing else changes. Raises
/// ProgramError when the file is damaged.
#[pyfunction]
pub fn strip<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = data.py();
    let contents = Contents::of(data)?;
    let bytes = contents.bytes();
    let stripped = call::detached(py, || pteron_format::strip(bytes))?;
    python_bytes(py, &stripped)
}

/// The large parts of a program, borrowed from its objects.
struct ProgramBlobs {
    constants: Vec<Contents>,
    mutable_data: Vec<Contents>,
    delegate_data: Vec<Contents>,
    named_data: Vec<Contents>,
}

impl ProgramBlobs {
    fn of(program: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(ProgramBlobs {
            constants: blobs(program, "constant_buffer", "storage")?,
            mutable_data: blobs(program, "mutable_data", "storage")?,
            delegate_data: blobs(program, "backend_delegate_data", "data")?,
            named_data: blobs(program, "named_data", "data")?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Contents> {
        self.constants.iter().chain(&self.mutable_data).chain(&self.delegate_data).chain(&self.named_data)
    }

    fn draft(&self, program: &Bound<'_, PyAny>) -> PyResult<ProgramDraft<'_>> {
        let named_data = items(program, "named_data")?
            .iter()
            .zip(&self.named_data)
            .map(|(named, data)| {
                let (key, alignment) = (field(named, "key")?, field(named, "alignment")?);
                Ok(NamedDataDraft { key, data: Cow::Borrowed(data.bytes()), alignment })
            })
            .collect::<PyResult<_>>()?;
        Ok(ProgramDraft {
            version: field(program, "version")?,
            methods: each(program, "execution_plan", method)?,
            constants: borrowed(&self.constants),
            mutable_data: borrowed(&self.mutable_data),
            delegate_data: borrowed(&self.delegate_data),
            named_data,
        })
    }
}

/// The text form of the program file `data`: methods, inputs and outputs, instructions, constants,
/// delegates, named data. Raises ProgramError when the file is damaged.
#[pyfunction]
pub fn listing(data: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = data.py();
    let contents = Contents::of(data)?;
    let bytes = contents.bytes();
    call::detached(py, || pteron_format::listing(&ProgramFile::parse(bytes)?))
}

fn blobs(program: &Bound<'_, PyAny>, list: &str, name: &str) -> PyResult<Vec<Contents>> {
    each(program, list, |item| {
        let data = item.getattr(name).map_err(|e| unreadable(item, name, e))?;
        Contents::of(&data).map_err(|e| unreadable(item, name, e))
    })
}

fn borrowed(blobs: &[Contents]) -> Vec<Cow<'_, [u8]>> {
    blobs.iter().map(|b| Cow::Borrowed(b.bytes())).collect()
}

/// The attribute `name` as a Rust value.
pub(crate) fn field<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    let value = object.getattr(name).map_err(|e| unreadable(object, name, e))?;
    value.extract::<T>().map_err(|e| unreadable(object, name, e.into()))
}

/// The attribute `name`, `None` when it is None.
fn optional<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = object.getattr(name).map_err(|e| unreadable(object, name, e))?;
    Ok((!value.is_none()).then_some(value))
}

fn child<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    object.getattr(name).map_err(|e| unreadable(object, name, e))
}

fn items<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    field(object, name)
}

/// Every element of the list `name` through `read`; an error says which element.
fn each<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &str,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let list = items(object, name)?;
    let mut out = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        out.push(read(item).map_err(|e| within(item.py(), &format!("{name}[{index}]"), e))?);
    }
    Ok(out)
}

fn unreadable(object: &Bound<'_, PyAny>, name: &str, cause: PyErr) -> PyErr {
    let py = object.py();
    let text = format!("{}.{name} cannot be written: {}", type_name(object), cause.value(py));
    let error = PyTypeError::new_err(text);
    error.set_cause(py, Some(cause));
    error
}

/// Puts a place in front of a TypeError made here.
fn within(py: Python<'_>, place: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let out = PyTypeError::new_err(format!("{place}: {}", error.value(py)));
    out.set_cause(py, error.cause(py));
    out
}

fn class_name(object: &Bound<'_, PyAny>) -> PyResult<String> {
    object.get_type().name().map(|n| n.to_string())
}

fn unknown_class<T>(object: &Bound<'_, PyAny>, what: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("{} is not {what} of the file format", type_name(object))))
}

fn method(plan: &Bound<'_, PyAny>) -> PyResult<MethodDraft> {
    let trees = child(plan, "container_meta_type")?;
    Ok(MethodDraft {
        name: field(plan, "name")?,
        input_tree: field(&trees, "encoded_inp_str")?,
        output_tree: field(&trees, "encoded_out_str")?,
        values: each(plan, "values", |v| value(&child(v, "val")?, tensor, Ok))?,
        inputs: field(plan, "inputs")?,
        outputs: field(plan, "outputs")?,
        chains: each(plan, "chains", chain)?,
        operators: each(plan, "operators", |o| {
            Ok(OperatorDraft { name: field(o, "name")?, overload: field(o, "overload")? })
        })?,
        delegates: each(plan, "delegates", delegate)?,
        non_const_buffer_sizes: field(plan, "non_const_buffer_sizes")?,
        non_const_buffer_device: match optional(plan, "non_const_buffer_device")? {
            Some(_) => each(plan, "non_const_buffer_device", buffer_device)?,
            None => Vec::new(),
        },
    })
}

/// A value of `exir.schema`, told apart by the name of its class. `tensor` reads one of its tensors and `index` a
/// member of its lists.
pub(crate) fn value<T, I>(
    val: &Bound<'_, PyAny>,
    tensor: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    index: impl Fn(i64) -> PyResult<I>,
) -> PyResult<Value<T, I>> {
    let members = |list: Vec<i32>| list.into_iter().map(|i| index(i64::from(i)));
    Ok(match class_name(val)?.as_str() {
        "Null" => Value::None,
        "Int" => Value::Int(field(val, "int_val")?),
        "Bool" => Value::Bool(field(val, "bool_val")?),
        "Double" => Value::Double(field(val, "double_val")?),
        "String" => Value::String(field::<String>(val, "string_val")?.into()),
        "Tensor" => Value::from(tensor(val)?),
        "IntList" => {
            let list: Vec<i64> = field(val, "items")?;
            Value::IntList(list.into_iter().map(index).collect::<PyResult<_>>()?)
        }
        "DoubleList" => Value::DoubleList(field::<Vec<f64>>(val, "items")?.into()),
        "BoolList" => Value::BoolList(field::<Vec<bool>>(val, "items")?.into()),
        "TensorList" => Value::TensorList(members(field(val, "items")?).collect::<PyResult<_>>()?),
        "OptionalTensorList" => {
            let list: Vec<i32> = field(val, "items")?;
            let member = |i: i32| (i != -1).then(|| index(i64::from(i))).transpose();
            Value::OptionalTensorList(list.into_iter().map(member).collect::<PyResult<_>>()?)
        }
        _ => return unknown_class(val, "a kind of value"),
    })
}

fn tensor(tensor: &Bound<'_, PyAny>) -> PyResult<TensorDraft> {
    let allocation = optional(tensor, "allocation_info")?.map(|a| allocation(&a)).transpose()?;
    let extra = optional(tensor, "extra_tensor_info")?.map(|e| extra(&e)).transpose()?;
    Ok(TensorDraft {
        scalar_type: field(tensor, "scalar_type")?,
        storage_offset: field(tensor, "storage_offset")?,
        sizes: field(tensor, "sizes")?,
        dim_order: field(tensor, "dim_order")?,
        requires_grad: field(tensor, "requires_grad")?,
        layout: field(tensor, "layout")?,
        data_buffer_idx: field(tensor, "data_buffer_idx")?,
        allocation,
        shape_dynamism: field(tensor, "shape_dynamism")?,
        extra,
    })
}

fn allocation(details: &Bound<'_, PyAny>) -> PyResult<AllocationDraft> {
    let (low, high): (u32, u32) =
        (field(details, "memory_offset_low")?, field(details, "memory_offset_high")?);
    Ok(AllocationDraft {
        memory_id: field(details, "memory_id")?,
        offset: u64::from(low) | u64::from(high) << 32,
    })
}

fn extra(info: &Bound<'_, PyAny>) -> PyResult<ExtraTensorDraft> {
    Ok(ExtraTensorDraft {
        mutable_data_segments_idx: field(info, "mutable_data_segments_idx")?,
        fully_qualified_name: field(info, "fully_qualified_name")?,
        location: field(info, "location")?,
        device_type: field(info, "device_type")?,
        device_index: field(info, "device_index")?,
    })
}

fn buffer_device(entry: &Bound<'_, PyAny>) -> PyResult<BufferDeviceDraft> {
    Ok(BufferDeviceDraft {
        buffer_idx: field(entry, "buffer_idx")?,
        device_type: field(entry, "device_type")?,
        device_index: field(entry, "device_index")?,
    })
}

fn chain(chain: &Bound<'_, PyAny>) -> PyResult<ChainDraft> {
    let stacktrace = match optional(chain, "stacktrace")? {
        Some(_) => each(chain, "stacktrace", |list| each(list, "items", frame))?,
        None => Vec::new(),
    };
    Ok(ChainDraft {
        stacktrace,
        inputs: field(chain, "inputs")?,
        outputs: field(chain, "outputs")?,
        instructions: each(chain, "instructions", |i| instruction(&child(i, "instr_args")?))?,
    })
}

fn frame(frame: &Bound<'_, PyAny>) -> PyResult<FrameDraft> {
    Ok(FrameDraft {
        filename: field(frame, "filename")?,
        lineno: field(frame, "lineno")?,
        name: field(frame, "name")?,
        context: field(frame, "context")?,
    })
}

fn instruction(call: &Bound<'_, PyAny>) -> PyResult<InstructionDraft> {
    Ok(match class_name(call)?.as_str() {
        "KernelCall" => {
            InstructionDraft::Kernel { operator: field(call, "op_index")?, args: field(call, "args")? }
        }
        "DelegateCall" => InstructionDraft::Delegate {
            delegate: field(call, "delegate_index")?,
            args: field(call, "args")?,
        },
        "MoveCall" => InstructionDraft::Move { from: field(call, "move_from")?, to: field(call, "move_to")? },
        "JumpFalseCall" => InstructionDraft::JumpFalse {
            condition: field(call, "cond_value_index")?,
            destination: field(call, "destination_instruction")?,
        },
        "FreeCall" => InstructionDraft::Free { value: field(call, "value_index")? },
        _ => return unknown_class(call, "a kind of instruction"),
    })
}

fn delegate(delegate: &Bound<'_, PyAny>) -> PyResult<DelegateDraft> {
    let place = child(delegate, "processed")?;
    let location: i64 = field(&place, "location")?;
    if location != 0 {
        return Err(PyTypeError::new_err(format!(
            "BackendDelegateDataReference.location must be 0 (an index into backend_delegate_data), got \
             {location}: the writer decides which blobs become segments"
        )));
    }
    let specs = each(delegate, "compile_specs", |s| {
        let bytes = child(s, "value")?;
        let value = Contents::of(&bytes).map_err(|e| unreadable(s, "value", e))?.bytes().to_vec();
        Ok(CompileSpec { key: field(s, "key")?, value })
    })?;
    Ok(DelegateDraft { id: field(delegate, "id")?, blob: field(&place, "index")?, specs })
}
