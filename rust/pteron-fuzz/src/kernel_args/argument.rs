//! Arguments of a generated call.

use pteron_core::{Dims, Result, TensorSpec};
use pteron_kernels::single_call::{CallArg, HostTensor};

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
    /// As a call is given it, with tensors that `tensor` makes.
    ///
    /// Errors: those of `tensor`.
    pub fn given(&self, mut tensor: impl FnMut(&TensorArgument) -> Result<HostTensor>) -> Result<CallArg> {
        Ok(match self {
            Argument::None => CallArg::None,
            Argument::Int(v) => CallArg::int(*v),
            Argument::Double(v) => CallArg::double(*v),
            Argument::Bool(v) => CallArg::bool(*v),
            Argument::String(v) => CallArg::String((*v).into()),
            Argument::Tensor(t) if t.is_constant => CallArg::Constant(tensor(t)?),
            Argument::Tensor(t) => CallArg::Tensor(tensor(t)?),
            Argument::Ints(v) => CallArg::Ints(v.clone()),
            Argument::Doubles(v) => CallArg::Doubles(v.clone()),
            Argument::Bools(v) => CallArg::Bools(v.clone()),
            Argument::Tensors(list) => {
                let list = list.iter().map(|t| t.as_ref().map(&mut tensor).transpose());
                CallArg::OptionalTensors(list.collect::<Result<_>>()?)
            }
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
