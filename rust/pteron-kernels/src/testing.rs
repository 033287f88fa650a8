//! The reference kernel of an operator on arguments as tests write them down. For tests only.

use crate::elementwise::function::Function;
use crate::elementwise::pointwise::NO_PARAMETERS;
use crate::ops::activation::GeluErf;
use crate::single_call::{CallArg, HostTensor, Setting, SingleCall};
use pteron_core::{
    AlignedBuffer, CpuProfile, DType, DimOrder, Dims, Dynamism, Element, Error, Isa, PackStore, Result,
    Schema, TensorSlot, TensorSpec, Value, kernel::PrepareFn,
};

/// GELU by the error function: a long function for chains.
pub fn gelu_erf() -> Function {
    Function::of::<GeluErf, 1>(NO_PARAMETERS)
}

/// A tensor with its bytes in memory order.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Metadata; upper bounds if `spec.dynamism` says so.
    pub spec: TensorSpec,
    /// Elements in memory order.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A contiguous tensor of `values`.
    pub fn of<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
        let spec = TensorSpec::contiguous(T::DTYPE, shape).unwrap();
        assert_eq!(spec.shape.numel().unwrap(), values.len());
        Tensor { spec, bytes: bytemuck::cast_slice(values).to_vec() }
    }

    /// A tensor of zeros that may shrink: the place for an output.
    pub fn output(dtype: DType, shape: &[usize]) -> Tensor {
        let mut spec = TensorSpec::contiguous(dtype, shape).unwrap();
        spec.dynamism = Dynamism::Bounded;
        Tensor { bytes: vec![0; spec.nbytes().unwrap()], spec }
    }

    /// The same bytes in another dim order (the shape stays).
    pub fn in_order(mut self, order: &[u8]) -> Tensor {
        self.spec.dim_order = DimOrder::new(order).unwrap();
        self
    }

    /// Elements in memory order.
    pub fn values<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.spec.dtype, T::DTYPE);
        self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.spec.shape
    }
}

/// One argument of a call; outputs are tensors too.
#[derive(Debug, Clone)]
pub enum Arg {
    /// Absent.
    None,
    /// Integer.
    Int(i64),
    /// Float.
    Double(f64),
    /// Bool.
    Bool(bool),
    /// String.
    String(String),
    /// Tensor.
    Tensor(Tensor),
    /// Integers.
    IntList(Vec<i64>),
    /// Floats.
    DoubleList(Vec<f64>),
    /// Bools.
    BoolList(Vec<bool>),
    /// Tensors, some possibly absent.
    TensorList(Vec<Option<Tensor>>),
}

macro_rules! from { ($($t:ty => $v:ident),*) => { $( impl From<$t> for Arg { fn from(x: $t) -> Arg { Arg::$v(x) } } )* } }
from!(i64 => Int, f64 => Double, bool => Bool, Tensor => Tensor, Vec<i64> => IntList);
impl From<&str> for Arg {
    fn from(s: &str) -> Arg {
        Arg::String(s.to_string())
    }
}

fn host_tensor(tensor: &Tensor) -> Result<HostTensor> {
    let memory = AlignedBuffer::copy_of(&tensor.bytes)?;
    Ok(HostTensor::in_memory(tensor.spec.clone(), tensor.spec.shape, Box::new(memory)))
}

fn call_arg(arg: &Arg) -> Result<CallArg> {
    Ok(match arg {
        Arg::None => CallArg::None,
        Arg::Int(v) => CallArg::int(*v),
        Arg::Double(v) => CallArg::double(*v),
        Arg::Bool(v) => CallArg::bool(*v),
        Arg::String(v) => CallArg::String(v.clone().into()),
        Arg::Tensor(t) => CallArg::Tensor(host_tensor(t)?),
        Arg::IntList(v) => CallArg::Ints(v.clone()),
        Arg::DoubleList(v) => CallArg::Doubles(v.clone()),
        Arg::BoolList(v) => CallArg::Bools(v.clone()),
        Arg::TensorList(v) => {
            let tensors = v.iter().map(|t| t.as_ref().map(host_tensor).transpose());
            CallArg::OptionalTensors(tensors.collect::<Result<_>>()?)
        }
    })
}

/// What became of an argument of `call`.
fn back(call: &SingleCall, value: &Value, like: &Arg) -> Arg {
    let tensor = |slot: &TensorSlot, like: &Tensor| {
        let view = slot.view();
        let spec = TensorSpec { shape: *view.shape(), ..like.spec.clone() };
        Tensor { spec, bytes: view.as_bytes().to_vec() }
    };
    match (value, like) {
        (Value::Tensor(slot), Arg::Tensor(t)) => Arg::Tensor(tensor(slot, t)),
        (Value::TensorList(ids), Arg::TensorList(list)) => {
            let members = ids.iter().zip(list);
            Arg::TensorList(members.map(|(id, t)| Some(tensor(call.member(*id)?, t.as_ref()?))).collect())
        }
        (Value::Int(v), _) => Arg::Int(*v),
        (Value::Bool(v), _) => Arg::Bool(*v),
        (Value::Double(v), _) => Arg::Double(*v),
        _ => like.clone(),
    }
}

/// Runs the reference kernel of `operator` on `args` (every schema argument, outputs included) and
/// gives the arguments back as they are afterwards; a scalar result is appended. Chunks run in reverse
/// order, since the order within a phase must not matter.
pub fn call(operator: &str, args: &[Arg]) -> Result<Vec<Arg>> {
    let cpu = CpuProfile { isa: Isa::Portable, l1_bytes: 32 << 10, l2_bytes: 1 << 20, load_threads: 1 };
    let setting = Setting { cpu: &cpu, packs: &PackStore::new(), is_known: true };
    for kernel in crate::plain_kernels() {
        let schema = Schema::parse(kernel.schema)?;
        if schema.name != operator {
            continue;
        }
        let given = args.iter().map(call_arg).collect::<Result<_>>()?;
        let Some(mut call) = SingleCall::of_schema(&kernel, &schema, setting, given)? else { continue };
        let grid = call.bind()?;
        call.run(grid, true)?;
        call.finish()?;
        let mut done = args.to_vec();
        if schema.has_scalar_return {
            done.push(Arg::None);
        }
        for (i, arg) in done.iter_mut().enumerate() {
            if let Some(value) = call.argument(i) {
                *arg = back(&call, value, arg);
            }
        }
        return Ok(done);
    }
    Err(Error::missing_operator("no reference kernel").operator(operator))
}

/// How the kernel `variant` of an operator in the table is prepared.
pub fn prepare_of(operator: &str, variant: &str) -> PrepareFn {
    let row = crate::operators().find(|row| row.name() == operator).expect("the operator is in the table");
    row.kernels().find(|kernel| kernel.variant == variant).expect("the operator has the kernel").prepare
}

/// Runs `operator` on `inputs` with one output of `dtype` and at most `shape` extents; the output.
pub fn run_out(operator: &str, inputs: &[Arg], dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let mut args = inputs.to_vec();
    args.push(Arg::Tensor(Tensor::output(dtype, shape)));
    match call(operator, &args)?.pop() {
        Some(Arg::Tensor(t)) => Ok(t),
        _ => Err(Error::internal("the last argument is not a tensor")),
    }
}

/// An error's text, or a panic when there is none.
pub fn error_text<T>(result: Result<T>) -> String {
    match result {
        Err(e) => e.to_string(),
        Ok(_) => panic!("an error was expected"),
    }
}

/// Extents as [`Dims`].
pub fn dims(shape: &[usize]) -> Dims {
    Dims::new(shape).unwrap()
}

/// Numbers of mixed sign and size, reproducible.
pub fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 8.0
        })
        .collect()
}
