//! `BackendWithCompilerDemo`, run half: sin (as `x - x³/6`, so that a test sees who computed it), add
//! and mm in float32. Everything else fails when it is executed, with its debug handle.

use crate::blob::{Instruction, read_blob};
use crate::copy_tensor::copy_tensor;
use crate::wiring::{Argument, Wiring, read_wiring, wiring_from_operators, wiring_key};
use pteron_core::error::printable;
use pteron_core::{
    AlignedBuffer, ArgView, Backend, CompileSpec, DType, Delegate, Error, ExecuteContext, InitContext,
    OutputView, OwnedTensor, Result, TensorMeta, TensorView,
};

/// The backend.
pub struct CompilerDemoBackend;

/// Highest legal value of the compile spec `max_value`.
const HIGHEST_MAX_VALUE: u64 = 4;

impl Backend for CompilerDemoBackend {
    fn name(&self) -> &str {
        "BackendWithCompilerDemo"
    }

    fn init(
        &self,
        ctx: &InitContext<'_>,
        processed: &[u8],
        specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        for spec in specs.iter().filter(|s| s.key == "max_value") {
            check_max_value(&spec.value)?;
        }
        let instructions = read_blob(processed)?;
        let wiring = match ctx.named_data.get(&wiring_key(processed)) {
            Some(text) => read_wiring(text, &instructions)?,
            None => wiring_from_operators(&instructions)?,
        };
        let constants = wiring
            .constants
            .iter()
            .map(|c| {
                let data = ctx.named_data.get(&c.key).ok_or_else(|| {
                    Error::delegate("a constant of the wiring is not in the program's named data")
                        .got(printable(&c.key))
                })?;
                read_constant(&c.dtype, &c.shape, data)
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(CompilerDemoDelegate { instructions, wiring, constants }))
    }
}

fn check_max_value(value: &[u8]) -> Result<()> {
    let bad = || Error::delegate("the compile spec max_value is out of range");
    if value.is_empty() || value.len() > 8 {
        return Err(bad().expected("1 to 8 bytes").got(value.len().to_string()));
    }
    let number = value.iter().rev().fold(0u64, |n, byte| (n << 8) | u64::from(*byte));
    if number > HIGHEST_MAX_VALUE {
        return Err(bad().expected(format!("at most {HIGHEST_MAX_VALUE}")).got(number.to_string()));
    }
    Ok(())
}

fn read_constant(dtype: &str, shape: &[usize], data: &[u8]) -> Result<Array> {
    let dtype = DType::ALL.into_iter().find(|d| d.name() == dtype).ok_or_else(|| {
        Error::delegate("a constant of the wiring has an unknown dtype").got(printable(dtype))
    })?;
    let meta = TensorMeta::contiguous(dtype, shape)?;
    if meta.nbytes() != data.len() {
        return Err(Error::delegate("a constant of the wiring has another size than its shape")
            .expected(format!("{} bytes", meta.nbytes()))
            .got(data.len().to_string()));
    }
    Ok(Array(OwnedTensor { meta, data: AlignedBuffer::copy_of(data)? }))
}

/// A row-major tensor of the delegate's own.
struct Array(OwnedTensor);

impl Array {
    fn zeroed(dtype: DType, shape: &[usize]) -> Result<Self> {
        let meta = TensorMeta::contiguous(dtype, shape)?;
        let data = AlignedBuffer::zeroed(meta.nbytes())?;
        Ok(Array(OwnedTensor { meta, data }))
    }

    fn floats(shape: &[usize], values: impl IntoIterator<Item = f32>) -> Result<Self> {
        let mut out = Self::zeroed(DType::Float32, shape)?;
        for (slot, value) in out.0.data.as_mut_elements::<f32>().iter_mut().zip(values) {
            *slot = value;
        }
        Ok(out)
    }

    fn copy_of(view: TensorView<'_>) -> Result<Self> {
        let mut out = Self::zeroed(view.dtype(), view.shape())?;
        copy_tensor(view, out.0.view_mut()?)?;
        Ok(out)
    }

    fn of(input: &ArgView<'_>) -> Result<Self> {
        let scalar = |dtype, bytes: &[u8]| {
            let mut out = Self::zeroed(dtype, &[])?;
            if let Some(target) = out.0.data.as_mut_slice().get_mut(..bytes.len()) {
                target.copy_from_slice(bytes);
            }
            Ok(out)
        };
        match input {
            ArgView::Tensor(t) => Self::copy_of(*t),
            ArgView::Int(v) => scalar(DType::Int64, &v.to_ne_bytes()),
            ArgView::Double(v) => scalar(DType::Float64, &v.to_ne_bytes()),
            ArgView::Bool(v) => scalar(DType::Bool, &[u8::from(*v)]),
            ArgView::String(_) | ArgView::None => {
                Err(Error::delegate("an input of the demo delegate is neither a tensor nor a number"))
            }
        }
    }

    fn shape(&self) -> &[usize] {
        self.0.meta.shape()
    }

    fn elements(&self) -> &[f32] {
        self.0.data.as_elements::<f32>().get(..self.0.meta.numel()).unwrap_or_default()
    }
}

struct CompilerDemoDelegate {
    instructions: Vec<Instruction>,
    wiring: Wiring,
    constants: Vec<Array>,
}

impl Delegate for CompilerDemoDelegate {
    fn num_outputs(&self) -> usize {
        self.wiring.outputs.len()
    }

    fn execute(
        &mut self,
        _ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        if inputs.len() != self.wiring.inputs {
            return Err(Error::delegate("the call has another number of inputs than the wiring")
                .expected(self.wiring.inputs.to_string())
                .got(inputs.len().to_string()));
        }
        let inputs: Vec<Array> = inputs.iter().map(Array::of).collect::<Result<_>>()?;
        let mut results: Vec<Array> = Vec::new();
        for (instruction, operation) in self.instructions.iter().zip(&self.wiring.operations) {
            let numbers: Vec<Array> = operation
                .arguments
                .iter()
                .map(|a| match a {
                    Argument::Number(n) => Array::floats(&[], [*n]),
                    Argument::Value(_) => Array::floats(&[], []),
                })
                .collect::<Result<_>>()?;
            let arguments: Vec<&Array> = operation
                .arguments
                .iter()
                .zip(&numbers)
                .map(|(a, number)| match a {
                    Argument::Number(_) => Ok(number),
                    Argument::Value(v) => pick(*v, &inputs, &self.constants, &results),
                })
                .collect::<Result<_>>()?;
            results.push(compute(instruction, &arguments, operation.alpha)?);
        }
        // All results exist before the first output is written.
        for (number, output) in self.wiring.outputs.iter().zip(outputs) {
            let result = pick(*number, &inputs, &self.constants, &results)?;
            output.resize(result.shape())?;
            copy_tensor(result.0.view()?, output.view_mut())?;
        }
        Ok(())
    }
}

/// The value of that number: inputs, constants, results.
fn pick<'a>(
    number: usize,
    inputs: &'a [Array],
    constants: &'a [Array],
    results: &'a [Array],
) -> Result<&'a Array> {
    let all = inputs.iter().chain(constants).chain(results);
    all.into_iter().nth(number).ok_or_else(|| Error::internal("a checked value number is out of range"))
}

fn compute(instruction: &Instruction, arguments: &[&Array], alpha: f32) -> Result<Array> {
    let refused = |reason: String| {
        let handle = instruction.handle;
        let operator = printable(&instruction.operator);
        let e = Error::delegate(format!(
            "instruction demo::{operator}<debug_handle>{handle} is not supported, debug handle is: {handle}{reason}"
        ))
        .operator(operator)
        .hint("leave this operator out of what is delegated: the backend computes sin, mm and add in float32");
        if handle >= 0 { e.debug_handle(handle) } else { e }
    };
    let count = match instruction.operator.as_str() {
        "aten.sin.default" => 1,
        "aten.add.Tensor" | "aten.mm.default" => 2,
        _ => return Err(refused(String::new())),
    };
    let is_float = |a: &&Array| a.0.meta.dtype() == DType::Float32;
    if let Some(other) = arguments.iter().find(|a| !is_float(a)) {
        return Err(refused(format!(" (expected float32, got {})", other.0.meta.dtype())));
    }
    if instruction.dtype != "torch.float32" {
        return Err(refused(format!(" (expected a float32 result, got {})", printable(&instruction.dtype))));
    }
    if arguments.len() != count {
        return Err(Error::delegate("the wiring gives an instruction another number of arguments")
            .expected(count.to_string())
            .got(arguments.len().to_string()));
    }
    match arguments {
        [x] => Array::floats(x.shape(), x.elements().iter().map(|x| x - (x * x * x) / 6.0)),
        [a, b] if instruction.operator == "aten.add.Tensor" => add(a, b, alpha),
        [a, b] => matrix_product(a, b),
        _ => Err(Error::internal("an instruction of the demo has more than two arguments")),
    }
}

/// `a + alpha * b` with broadcasting.
fn add(a: &Array, b: &Array, alpha: f32) -> Result<Array> {
    let rank = a.shape().len().max(b.shape().len());
    let padded = |shape: &[usize]| {
        let mut out = vec![1; rank.saturating_sub(shape.len())];
        out.extend_from_slice(shape);
        out
    };
    let (sa, sb) = (padded(a.shape()), padded(b.shape()));
    let mut shape = Vec::with_capacity(rank);
    for (m, n) in sa.iter().zip(&sb) {
        shape.push(match (m, n) {
            (m, n) if m == n => *m,
            (1, n) => *n,
            (m, 1) => *m,
            _ => {
                return Err(Error::delegate("shapes of add do not broadcast").got(format!(
                    "{:?} and {:?}",
                    a.shape(),
                    b.shape()
                )));
            }
        });
    }
    let numel = pteron_core::sizes::checked_numel(&shape)?;
    let at = |linear: usize, own: &[usize]| {
        let (mut rest, mut stride, mut offset) = (linear, 1usize, 0usize);
        for (n, m) in shape.iter().zip(own).rev() {
            let i = rest.checked_rem(*n).unwrap_or(0);
            rest = rest.checked_div(*n).unwrap_or(0);
            if *m != 1 {
                offset = offset.saturating_add(i.saturating_mul(stride));
            }
            stride = stride.saturating_mul(*m);
        }
        offset
    };
    let element =
        |x: &Array, own: &[usize], i: usize| x.elements().get(at(i, own)).copied().unwrap_or(f32::NAN);
    Array::floats(
        &shape,
        (0..numel).map(|i| {
            let (x, y) = (element(a, &sa, i), element(b, &sb, i));
            // No multiplication when alpha is 1: infinities and rounding stay as they are.
            if alpha == 1.0 { x + y } else { x + alpha * y }
        }),
    )
}

/// The product of two matrices.
fn matrix_product(a: &Array, b: &Array) -> Result<Array> {
    let (&[m, k], &[k2, n]) = (a.shape(), b.shape()) else {
        return Err(Error::delegate("mm takes two matrices").got(format!(
            "{:?} and {:?}",
            a.shape(),
            b.shape()
        )));
    };
    if k != k2 {
        return Err(Error::delegate("inner extents of mm differ").got(format!("[{m}, {k}] and [{k2}, {n}]")));
    }
    let mut out = Array::zeroed(DType::Float32, &[m, n])?;
    let (left, right) = (a.elements(), b.elements());
    if n == 0 {
        return Ok(out);
    }
    for (row, target) in out.0.data.as_mut_elements::<f32>().chunks_exact_mut(n).enumerate().take(m) {
        let start = row.saturating_mul(k);
        for (x, line) in left.iter().skip(start).take(k).zip(right.chunks_exact(n)) {
            for (t, y) in target.iter_mut().zip(line) {
                *t += x * y;
            }
        }
    }
    Ok(out)
}
