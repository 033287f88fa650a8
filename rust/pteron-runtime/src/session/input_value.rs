//! What callers pass in. Unsafe island (construction only).

use pteron_core::{DType, Error, Result, TensorView};

/// One input of a call.
#[derive(Debug, Clone, Copy)]
pub enum InputValue<'a> {
    /// A tensor in the caller's memory.
    Tensor(TensorInput<'a>),
    /// An integer.
    Int(i64),
    /// A float.
    Double(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    String(&'a str),
    /// `None`.
    None,
}

impl InputValue<'_> {
    /// What this is, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            InputValue::Tensor(_) => "a tensor",
            InputValue::Int(_) => "int",
            InputValue::Double(_) => "float",
            InputValue::Bool(_) => "bool",
            InputValue::String(_) => "str",
            InputValue::None => "None",
        }
    }
}

/// A tensor in the caller's memory, with any strides. Never written to.
#[derive(Debug, Clone, Copy)]
pub struct TensorInput<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
    pub(crate) strides: Option<&'a [isize]>,
    pub(crate) data: *const u8,
}

impl<'a> TensorInput<'a> {
    /// A tensor at `data`. `strides` are in elements and may be zero or negative (`data` is the
    /// element at index 0 of every dimension); `None` means row-major and dense.
    ///
    /// # Safety
    /// Every element that `shape` and `strides` reach from `data` must be readable, and written by
    /// nobody, until the call that the input is passed to returns. `data` may be null or dangling when
    /// the tensor has no elements. It need not be aligned.
    pub unsafe fn new(
        dtype: DType,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        data: *const u8,
    ) -> Self {
        TensorInput { dtype, shape, strides, data }
    }

    /// A dense row-major tensor over `elements`; `None` where `shape` asks for another number of them.
    pub fn from_slice<T: pteron_core::Element>(shape: &'a [usize], elements: &'a [T]) -> Option<Self> {
        let numel = pteron_core::sizes::checked_numel(shape).ok()?;
        (numel == elements.len()).then_some(TensorInput {
            dtype: T::DTYPE,
            shape,
            strides: None,
            data: elements.as_ptr().cast(),
        })
    }

    /// A tensor over `bytes`, which are dense in some order of the dimensions; `None` when they are too few or
    /// a stride is negative.
    pub(crate) fn from_bytes(
        dtype: DType,
        shape: &'a [usize],
        strides: &'a [isize],
        bytes: &'a [u8],
    ) -> Option<Self> {
        let mut last = 0usize;
        for (n, stride) in shape.iter().zip(strides) {
            let stride = usize::try_from(*stride).ok()?;
            last = last.checked_add(n.checked_sub(1).unwrap_or(0).checked_mul(stride)?)?;
        }
        let needed = match shape.contains(&0) {
            true => 0,
            false => last.checked_add(1)?.checked_mul(dtype.size())?,
        };
        (shape.len() == strides.len() && needed <= bytes.len()).then_some(TensorInput {
            dtype,
            shape,
            strides: Some(strides),
            data: bytes.as_ptr(),
        })
    }

    /// A tensor of another program's call, for backends whose delegates run programs. `strides` must be the
    /// view's own, in elements; `None` where they are those of a row-major tensor. An error when they are not.
    pub fn from_view(view: TensorView<'a>, strides: Option<&'a [isize]>) -> Result<Self> {
        let is_own = match strides {
            None => view.is_contiguous(),
            Some(s) => {
                s.len() == view.rank()
                    && s.iter().zip(view.strides().iter()).all(|(a, b)| usize::try_from(*a) == Ok(*b))
            }
        };
        if !is_own {
            return Err(Error::internal("strides of a nested input are not those of its tensor"));
        }
        Ok(TensorInput { dtype: view.dtype(), shape: view.shape(), strides, data: view.as_ptr() })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
}
