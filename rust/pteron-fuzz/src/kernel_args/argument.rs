//! Arguments of a generated call.

use pteron_core::{ArgSpec, ConstantKey, ConstantView, Dims, TensorSpec};

/// One argument.
#[allow(clippy::large_enum_variant, reason = "a call has a dozen of them")]
#[derive(Clone)]
pub enum Argument {
    /// `None`.
    None,
    /// Integer.
    Int(i64),
    /// Float.
    Double(f64),
    /// Bool.
    Bool(bool),
    /// String.
    String(&'static str),
    /// Tensor, input or output.
    Tensor(TensorArgument),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Doubles(Vec<f64>),
    /// Bools.
    Bools(Vec<bool>),
    /// Tensors, some absent.
    Tensors(Vec<Option<TensorArgument>>),
}

/// A tensor of a generated call.
#[derive(Clone)]
pub struct TensorArgument {
    /// What load knows.
    pub spec: TensorSpec,
    /// Extents when the kernel is bound.
    pub now: Dims,
    /// Contents, as many bytes as `spec` asks for.
    pub bytes: Vec<u8>,
    /// Does load know the contents?
    pub is_constant: bool,
    /// Elements between an address that is a multiple of 64 and the tensor.
    pub misalignment: usize,
}

impl Argument {
    /// What `prepare` learns. `is_known`: numbers are known at load.
    pub fn spec(&self, position: usize, is_known: bool) -> ArgSpec<'_> {
        match self {
            Argument::None => ArgSpec::None,
            Argument::Int(v) => ArgSpec::Int(is_known.then_some(*v)),
            Argument::Double(v) => ArgSpec::Double(is_known.then_some(*v)),
            Argument::Bool(v) => ArgSpec::Bool(is_known.then_some(*v)),
            Argument::String(v) => ArgSpec::String(v),
            Argument::Tensor(t) => ArgSpec::Tensor(t.spec.clone(), t.constant(position)),
            Argument::Ints(v) => ArgSpec::IntList(v.iter().map(|v| is_known.then_some(*v)).collect()),
            Argument::Doubles(v) => ArgSpec::DoubleList(v),
            Argument::Bools(v) => ArgSpec::BoolList(v),
            Argument::Tensors(v) => {
                ArgSpec::TensorList(v.iter().map(|t| t.as_ref().map(|t| t.spec.clone())).collect())
            }
        }
    }
}

impl TensorArgument {
    fn constant(&self, position: usize) -> Option<ConstantView<'_>> {
        self.is_constant.then(|| ConstantView {
            key: ConstantKey { origin: 0, offset: position as u64, nbytes: self.bytes.len() as u64 },
            data: &self.bytes,
            dtype: self.spec.dtype,
            offset: 0,
            shape: self.spec.shape,
            strides: self.spec.dim_order.strides(&self.spec.shape),
        })
    }
}

impl std::fmt::Debug for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Argument::None => write!(f, "None"),
            Argument::Int(v) => write!(f, "{v}"),
            Argument::Double(v) => write!(f, "{v:?}"),
            Argument::Bool(v) => write!(f, "{v}"),
            Argument::String(v) => write!(f, "{v:?}"),
            Argument::Tensor(t) => write!(f, "{t:?}"),
            Argument::Ints(v) => write!(f, "{v:?}"),
            Argument::Doubles(v) => write!(f, "{v:?}"),
            Argument::Bools(v) => write!(f, "{v:?}"),
            Argument::Tensors(v) => write!(f, "{v:?}"),
        }
    }
}

impl std::fmt::Debug for TensorArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let constant = if self.is_constant { "constant " } else { "" };
        write!(f, "{constant}{}{}", self.spec.dtype, self.now)?;
        if !self.spec.dim_order.is_contiguous() {
            write!(f, " in order {:?}", self.spec.dim_order.as_slice())?;
        }
        if self.spec.is_dynamic() {
            write!(f, " of at most {}", self.spec.shape)?;
        }
        Ok(())
    }
}
