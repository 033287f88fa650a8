//! Kernels that are plain functions of an operator's arguments: what callers register in Python, in C, or in Rust without a
//! kernel type of their own. Unsafe island (it plays the kernel's part in the contract of [`Prepared::run`]).

use crate::{
    ArgView, Args, BindArgs, Bound, Dims, Error, Grid, Kernel, OutputView, PrepareContext, Prepared, Result,
    Schema, TensorSlot, TensorView, ValueKind, WorkerScratch,
};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// One argument of a call.
pub enum OperatorInput<'a> {
    /// A tensor to read, a number, a string, or nothing.
    Single(ArgView<'a>),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Doubles(&'a [f64]),
    /// Bools.
    Bools(&'a [bool]),
    /// Tensors, `None` for absent ones.
    Tensors(Vec<Option<TensorView<'a>>>),
}

impl<'a> OperatorInput<'a> {
    /// The tensor; an error when this is something else.
    pub fn tensor(&self) -> Result<TensorView<'a>> {
        match self {
            OperatorInput::Single(ArgView::Tensor(view)) => Ok(*view),
            _ => Err(Error::kernel("an argument of a custom operator is not a tensor")),
        }
    }
}

/// Computes an operator: `inputs` are the schema's arguments without the outputs, in order; `outputs` are the tensors to
/// write, those of a list one by one, each at its largest shape until it is resized.
///
/// It runs on the thread of the call; calls of several sessions may run at the same time.
pub trait OperatorFunction: Send + Sync {
    /// One call. An error ends the run; it may say that lent memory is still looked at ([`Error::memory_kept`]).
    fn call(&self, inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()>;
}

impl<F> OperatorFunction for F
where
    F: Fn(&[OperatorInput<'_>], &mut [OutputView<'_>]) -> Result<()> + Send + Sync,
{
    fn call(&self, inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()> {
        self(inputs, outputs)
    }
}

/// A function as a kernel. It takes arguments of any kinds: which of them are outputs is read from the program's calls.
pub struct FunctionKernel {
    operator: String,
    function: Arc<dyn OperatorFunction>,
}

impl FunctionKernel {
    /// A kernel for `operator`, as programs call it: `my_ns::my_op.out`.
    pub fn new(operator: String, function: Arc<dyn OperatorFunction>) -> Self {
        FunctionKernel { operator, function }
    }
}

impl Kernel for FunctionKernel {
    fn schema(&self) -> &str {
        &self.operator
    }

    fn variant(&self) -> &str {
        "function"
    }

    fn prepare(&self, _: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
        // Without a schema nobody knows what to write.
        Ok(None)
    }

    fn prepare_call(&self, _: &PrepareContext<'_>, schema: &Schema) -> Result<Option<Box<dyn Prepared>>> {
        let is_output = |at: &usize| schema.args.get(*at).is_some_and(|arg| arg.is_output);
        let (outputs, inputs) = (0..schema.args.len()).partition(is_output);
        Ok(Some(Box::new(FunctionCall {
            name: format!("function.{}", self.operator),
            function: self.function.clone(),
            inputs,
            outputs,
        })))
    }
}

/// A function at one call site.
struct FunctionCall {
    name: String,
    function: Arc<dyn OperatorFunction>,
    /// Positions of the arguments that are read.
    inputs: Vec<usize>,
    /// Positions of those that are written, tensors or lists of tensors.
    outputs: Vec<usize>,
}

/// The shapes that a call gave its outputs, in order; `finish` passes them on. Chunks see the bound state shared.
type Shapes = Mutex<SmallVec<[Dims; 4]>>;

impl Prepared for FunctionCall {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Shapes::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, _: &mut Bound) -> Result<Grid> {
        for at in &self.outputs {
            // Not as an earlier call left them.
            args.each_output(*at, &mut |slot| {
                let bound = *slot.bound();
                slot.resize(&bound)
            })?;
        }
        Ok(Grid::SINGLE)
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _: u32,
        _: u32,
        _: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let inputs = self.inputs.iter().map(|at| input(args, *at)).collect::<Result<Vec<_>>>()?;
        let mut slots: SmallVec<[TensorSlot; 4]> = SmallVec::new();
        for at in &self.outputs {
            for slot in args.slots(*at)? {
                slots.push(slot?.clone());
            }
        }
        let mut outputs: SmallVec<[OutputView<'_>; 4]> = slots.iter_mut().map(OutputView::new).collect();
        self.function.call(&inputs, &mut outputs)?;
        let mut shapes = bound.get::<Shapes>()?.lock().unwrap_or_else(PoisonError::into_inner);
        *shapes = outputs.iter().map(|output| *output.shape()).collect();
        Ok(())
    }

    fn has_finish(&self) -> bool {
        true
    }

    fn finish(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<()> {
        let shapes = bound.get_mut::<Shapes>()?.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut shapes = shapes.iter();
        for at in &self.outputs {
            args.each_output(*at, &mut |slot| match shapes.next() {
                Some(shape) => slot.resize(shape),
                None => Err(Error::internal("a call of a function has more outputs than it had")),
            })?;
        }
        Ok(())
    }
}

/// The argument at position `at`.
fn input<'a>(args: &Args<'a>, at: usize) -> Result<OperatorInput<'a>> {
    use OperatorInput as I;
    Ok(match args.kind(at) {
        Some(ValueKind::Tensor) => I::Single(ArgView::Tensor(args.tensor(at)?)),
        Some(ValueKind::Int) => I::Single(ArgView::Int(args.int(at)?)),
        Some(ValueKind::Double) => I::Single(ArgView::Double(args.double(at)?)),
        Some(ValueKind::Bool) => I::Single(ArgView::Bool(args.bool(at)?)),
        Some(ValueKind::String) => {
            I::Single(args.optional_string(at)?.map_or(ArgView::None, ArgView::String))
        }
        Some(ValueKind::IntList) => I::Ints(args.int_list(at)?.iter().collect::<Result<_>>()?),
        Some(ValueKind::DoubleList) => I::Doubles(args.optional_double_list(at)?.unwrap_or_default()),
        Some(ValueKind::BoolList) => I::Bools(args.bool_list(at)?),
        Some(ValueKind::TensorList | ValueKind::OptionalTensorList) => {
            let list = args.tensor_list(at)?;
            I::Tensors((0..list.len()).map(|j| list.get_optional(j)).collect::<Result<_>>()?)
        }
        Some(ValueKind::None) | None => I::Single(ArgView::None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Dynamism, TensorSpec, Value, ValueId};

    fn slot(numel: usize, memory: &mut [f32], is_dynamic: bool) -> Value {
        let spec = TensorSpec {
            dynamism: if is_dynamic { Dynamism::Bounded } else { Dynamism::Static },
            ..TensorSpec::contiguous(DType::Float32, &[numel]).unwrap()
        };
        let mut slot = TensorSlot::new(&spec).unwrap();
        // SAFETY: the test keeps the memory while it uses the slot.
        unsafe { slot.set_data(memory.as_mut_ptr().cast(), size_of_val(memory)) };
        Value::from(slot)
    }

    fn kept_elements(inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()> {
        let x = inputs[0].tensor()?.as_slice::<f32>()?;
        let OperatorInput::Single(ArgView::Double(least)) = inputs[1] else {
            return Err(Error::kernel("no least number"));
        };
        let kept: Vec<f32> = x.iter().copied().filter(|x| f64::from(*x) >= least).collect();
        outputs[0].resize(&[kept.len()])?;
        outputs[0].view_mut().into_slice::<f32>()?.copy_from_slice(&kept);
        Ok(())
    }

    #[test]
    fn a_function_gives_its_output_the_shape_of_the_call() {
        let (mut x, mut y) = ([1.0f32, 5.0, 3.0], [0.0f32; 3]);
        let mut values = [slot(3, &mut x, false), Value::Double(2.0), slot(3, &mut y, true)];
        let ids = [ValueId(0), ValueId(1), ValueId(2), ValueId(2)];
        let schema = Schema::parse("t::kept.out(Tensor x, float least, *, Tensor(a!) out) -> Tensor(a!)");
        let kernel = FunctionKernel::new("t::kept.out".to_string(), Arc::new(kept_elements));
        let (packs, cpu) = (
            crate::PackStore::new(),
            crate::CpuProfile {
                isa: crate::Isa::Portable,
                l1_bytes: 32768,
                l2_bytes: 1 << 20,
                load_threads: 1,
            },
        );
        let ctx = PrepareContext::new(&[], &packs, &cpu);
        assert!(kernel.prepare(&ctx).unwrap().is_none());
        let prepared = kernel.prepare_call(&ctx, &schema.unwrap()).unwrap().unwrap();
        let mut bound = prepared.new_bound();
        for expected in [2usize, 2] {
            // SAFETY: every tensor has memory for its shape.
            let mut args = unsafe { BindArgs::new(&mut values, &ids) };
            assert_eq!(prepared.bind(&mut args, &mut bound).unwrap(), Grid::SINGLE);
            assert_eq!(**args.args().tensor(2).unwrap().shape(), [3]);
            let mut scratch = WorkerScratch { worker: &mut [], shared: std::ptr::null_mut() };
            // SAFETY: of the bind just now; the output is apart from the input.
            unsafe { prepared.run(&bound, &args.args(), 0, 0, &mut scratch).unwrap() };
            prepared.finish(&mut args, &mut bound).unwrap();
            assert_eq!(**args.args().tensor(2).unwrap().shape(), [expected]);
        }
        assert_eq!(y[..2], [5.0, 3.0]);
    }
}
