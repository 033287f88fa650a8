//! Tensors and values in the caller's memory. Unsafe island: that `nbytes` bytes are at `data` is the caller's part of
//! `pteron.h`; that dtype, shape and strides ask for no others is checked here.

use crate::abi::{
    KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_STRING, KIND_TENSOR, PteronArg, PteronTensor,
};
use crate::failure::{Outcome, misuse};
use crate::reading;
use crate::results::{Buffers, Results};
use pteron_core::sizes::checked_nbytes;
use pteron_core::{DType, Error, MAX_RANK};
use pteron_runtime::{InputValue, OutputBuffer, TensorInput};

/// A tensor of the caller whose fields fit together.
pub(crate) struct CheckedTensor {
    dtype: DType,
    rank: usize,
    shape: [usize; MAX_RANK],
    strides: Option<[isize; MAX_RANK]>,
    data: *mut u8,
    nbytes: usize,
    /// In place of the caller's bytes, where those would not stay.
    copy: Vec<u8>,
}

impl CheckedTensor {
    /// The tensor at `tensor`.
    ///
    /// # Safety
    /// Shape and strides are null or have as many numbers as the tensor has dimensions.
    unsafe fn read(tensor: &PteronTensor, name: &str) -> Outcome<CheckedTensor> {
        let dtype = i8::try_from(tensor.dtype).ok().and_then(DType::from_code).ok_or_else(|| {
            misuse(name, "there is no such element type")
                .instead("a number such as PTERON_FLOAT32", tensor.dtype.to_string())
        })?;
        let rank = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MAX_RANK).ok_or_else(|| {
            misuse(name, "a tensor cannot have this number of dimensions")
                .instead(format!("0 to {MAX_RANK}"), tensor.ndim.to_string())
        })?;
        // SAFETY: null, or `rank` numbers, by the contract of this function.
        let extents = unsafe { reading::slice(tensor.shape, rank, &format!("{name}.shape"))? };
        let mut shape = [0; MAX_RANK];
        for (to, n) in shape.iter_mut().zip(extents) {
            *to = usize::try_from(*n).map_err(|_| {
                misuse(name, "an extent of the shape is negative").instead("at least 0", n.to_string())
            })?;
        }
        let own = shape.get(..rank).unwrap_or_default();
        let dense = checked_nbytes(own, dtype)?;
        let mut strides = None;
        if !tensor.strides.is_null() {
            // SAFETY: not null: `rank` numbers, by the contract of this function.
            let given = unsafe { reading::slice(tensor.strides, rank, &format!("{name}.strides"))? };
            let mut steps = [0; MAX_RANK];
            for (to, n) in steps.iter_mut().zip(given) {
                *to = isize::try_from(*n).ok().filter(|n| *n >= 0).ok_or_else(|| {
                    misuse(name, "a stride is negative").instead("at least 0", n.to_string())
                })?;
            }
            strides = Some(steps);
        }
        let needed = match &strides {
            None => Some(dense),
            Some(steps) => reach(own, steps, dtype),
        };
        let is_right = match &strides {
            None => tensor.nbytes == dense,
            Some(_) => needed.is_some_and(|needed| needed <= tensor.nbytes),
        };
        if !is_right {
            let expected = needed.map_or("less than memory can hold".to_string(), |n| {
                format!("{n} bytes for {dtype} of shape {own:?}")
            });
            return Err(misuse(
                name,
                "the number of bytes is not what element type, shape and strides ask for",
            )
            .instead(expected, format!("{} bytes", tensor.nbytes))
            .hint("nbytes is the size of the memory at data: sizeof the array"));
        }
        if tensor.data.is_null() && dense != 0 {
            return Err(misuse(name, "data is NULL").instead(format!("{dense} bytes"), "none"));
        }
        let data = tensor.data.cast();
        Ok(CheckedTensor { dtype, rank, shape, strides, data, nbytes: tensor.nbytes, copy: Vec::new() })
    }

    fn shape(&self) -> &[usize] {
        self.shape.get(..self.rank).unwrap_or_default()
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.data.addr()..self.data.addr().saturating_add(self.nbytes)
    }

    /// The input. The bytes have to stay as they are for the call.
    fn as_input(&self) -> TensorInput<'_> {
        let strides = self.strides.as_ref().and_then(|s| s.get(..self.rank));
        let data = match self.copy.is_empty() {
            true => self.data.cast_const(),
            false => self.copy.as_ptr(),
        };
        // SAFETY: shape and strides reach no byte beyond `nbytes`, which the copy has, and which the header has callers
        // leave as they are during the call.
        unsafe { TensorInput::new(self.dtype, self.shape(), strides, data) }
    }

    /// Copies the bytes where they lie in outputs that end before the call begins.
    fn save_from(&mut self, ending: Option<&Results>, name: &str) -> Outcome<()> {
        if !ending.is_some_and(|results| results.overlaps(&self.range())) {
            return Ok(());
        }
        self.copy.try_reserve_exact(self.nbytes).map_err(|_| {
            Error::limit("there is no memory for a copy of an input that is an output of the last call")
                .argument(name)
                .got(format!("{} bytes", self.nbytes))
                .hint("have that output computed into memory of your own: pteron_execute_options.outputs")
        })?;
        // SAFETY: not null, as it shares bytes with an output; `nbytes` bytes can be read there by the header.
        self.copy.extend_from_slice(unsafe { std::slice::from_raw_parts(self.data, self.nbytes) });
        Ok(())
    }
}

/// Bytes that a tensor with strides reaches from its first element on; `None` beyond what can be counted.
fn reach(shape: &[usize], strides: &[isize; MAX_RANK], dtype: DType) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let mut last = 0usize;
    for (n, stride) in shape.iter().zip(strides) {
        let stride = usize::try_from(*stride).ok()?;
        last = last.checked_add(n.checked_sub(1)?.checked_mul(stride)?)?;
    }
    let nbytes = last.checked_add(1)?.checked_mul(dtype.size())?;
    isize::try_from(nbytes).ok().map(|_| nbytes)
}

/// An input whose fields fit together.
pub(crate) enum CheckedValue<'a> {
    Tensor(Box<CheckedTensor>),
    Plain(InputValue<'a>),
}

impl CheckedValue<'_> {
    /// The input of the runtime.
    pub(crate) fn as_input(&self) -> InputValue<'_> {
        match self {
            CheckedValue::Tensor(tensor) => InputValue::Tensor(tensor.as_input()),
            CheckedValue::Plain(value) => *value,
        }
    }
}

/// The inputs of a call, safe from the end of the outputs of the last one.
///
/// # Safety
/// What the arguments point to is as the header says, and stays so while the result is used.
pub(crate) unsafe fn inputs<'a>(
    args: &'a [PteronArg],
    ending: Option<&Results>,
) -> Outcome<Vec<CheckedValue<'a>>> {
    let mut out = Vec::with_capacity(args.len());
    for (i, arg) in args.iter().enumerate() {
        let name = || format!("inputs[{i}]");
        out.push(match arg.kind {
            KIND_TENSOR => {
                // SAFETY: shape and strides are as the header says.
                let mut tensor = unsafe { CheckedTensor::read(&arg.tensor, &name())? };
                tensor.save_from(ending, &name())?;
                CheckedValue::Tensor(Box::new(tensor))
            }
            KIND_INT => CheckedValue::Plain(InputValue::Int(arg.number)),
            KIND_DOUBLE => CheckedValue::Plain(InputValue::Double(arg.real)),
            KIND_BOOL => CheckedValue::Plain(InputValue::Bool(arg.number != 0)),
            KIND_STRING => {
                // SAFETY: the text is as the header says.
                CheckedValue::Plain(InputValue::String(unsafe { reading::string(&arg.text, &name())? }))
            }
            KIND_NONE => CheckedValue::Plain(InputValue::None),
            other => {
                return Err(misuse(&name(), "there is no such kind of input")
                    .instead("PTERON_KIND_NONE to PTERON_KIND_STRING", other.to_string()));
            }
        });
    }
    Ok(out)
}

/// The named tensors of a state, which are inputs all of them.
///
/// # Safety
/// What the tensors point to is as the header says, and stays so while the result is used.
pub(crate) unsafe fn state(
    tensors: &[PteronTensor],
    ending: Option<&Results>,
) -> Outcome<Vec<CheckedTensor>> {
    let mut out = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let name = format!("tensors[{i}]");
        // SAFETY: shape and strides are as the header says.
        let mut checked = unsafe { CheckedTensor::read(tensor, &name)? };
        checked.save_from(ending, &name)?;
        out.push(checked);
    }
    Ok(out)
}

/// The value of a checked tensor.
pub(crate) fn value_of(tensor: &CheckedTensor) -> InputValue<'_> {
    InputValue::Tensor(tensor.as_input())
}

/// Memory for outputs whose fields fit together; `None` where the method's own is wanted.
///
/// # Safety
/// Shapes are as the header says.
pub(crate) unsafe fn outputs(
    tensors: &[PteronTensor],
    ending: Option<&Results>,
) -> Outcome<Vec<Option<CheckedTensor>>> {
    let mut out = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let name = format!("options.outputs[{i}]");
        if tensor.data.is_null() && tensor.nbytes == 0 {
            out.push(None);
            continue;
        }
        // SAFETY: shape and strides are as the header says.
        let mut checked = unsafe { CheckedTensor::read(tensor, &name)? };
        if let Some(steps) = checked.strides.take()
            && !is_row_major(checked.shape(), &steps)
        {
            return Err(misuse(&name, "memory for an output is not dense and row-major")
                .hint("leave strides NULL, or have the method's own memory and copy from it"));
        }
        if ending.is_some_and(|results| results.overlaps(&checked.range())) {
            return Err(misuse(&name, "memory for an output lies in an output of the last call")
                .hint("give memory of your own"));
        }
        out.push(Some(checked));
    }
    Ok(out)
}

fn is_row_major(shape: &[usize], strides: &[isize; MAX_RANK]) -> bool {
    let mut step = 1usize;
    for (n, stride) in shape.iter().zip(strides).rev() {
        if *n != 1 && usize::try_from(*stride) != Ok(step) {
            return shape.contains(&0);
        }
        step = step.saturating_mul(*n);
    }
    true
}

/// The buffers of the runtime.
///
/// # Safety
/// The memory can be written, and nobody else reads or writes it until the call that gets the buffers returns.
pub(crate) unsafe fn buffers<'a>(checked: &'a [Option<CheckedTensor>]) -> Buffers<'a> {
    let address = |tensor: &Option<CheckedTensor>| tensor.as_ref().map_or(std::ptr::null_mut(), |t| t.data);
    let buffer = |tensor: &'a Option<CheckedTensor>| {
        let tensor = tensor.as_ref()?;
        // SAFETY: dense, of as many bytes as dtype and shape ask for, and writable by the contract of this function.
        Some(unsafe { OutputBuffer::new(tensor.dtype, tensor.shape(), tensor.data) })
    };
    Buffers {
        addresses: checked.iter().map(address).collect(),
        buffers: checked.iter().map(buffer).collect(),
    }
}
