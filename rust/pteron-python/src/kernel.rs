//! Kernels of custom operators written in Python. Unsafe island (the loan of arguments).

use crate::backend::shorten;
use crate::errors::type_name;
use crate::input::Argument;
use crate::loan::{Borrower, Loan};
use crate::python_call;
use crate::tensor::Tensor;
use pteron_core::{ArgView, Error, OperatorFunction, OperatorInput, OutputView, Result, TensorView};
use pteron_runtime::InputValue;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// A Python function registered as a kernel.
pub struct PyKernel {
    function: Py<PyAny>,
    writes_outputs: bool,
}

impl PyKernel {
    /// Checks that `object` can be one. `writes_outputs`: it gets its outputs behind the inputs, to write to.
    pub fn new(object: &Bound<'_, PyAny>, writes_outputs: bool) -> PyResult<Self> {
        match object.is_callable() {
            true => Ok(PyKernel { function: object.clone().unbind(), writes_outputs }),
            false => Err(PyTypeError::new_err(format!(
                "a kernel is a function of the operator's arguments; {} cannot be called",
                type_name(object)
            ))),
        }
    }
}

impl OperatorFunction for PyKernel {
    fn call(&self, inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()> {
        let called = Python::try_attach(|py| {
            let mut loan = Loan::default();
            // SAFETY: the loan ends on every path, before the arguments do.
            let outcome = unsafe { self.call_with(py, inputs, outputs, &mut loan) };
            loan.end(py, outcome, Borrower::Kernel)
        });
        called.unwrap_or_else(|| {
            Err(Error::kernel("a kernel written in Python cannot run while the interpreter shuts down"))
        })
    }
}

impl PyKernel {
    /// Calls the function, and brings what it returns into the outputs.
    ///
    /// # Safety
    /// `loan` must be ended before the arguments end.
    unsafe fn call_with<'py>(
        &self,
        py: Python<'py>,
        inputs: &[OperatorInput<'_>],
        outputs: &mut [OutputView<'_>],
        loan: &mut Loan<'py>,
    ) -> Result<()> {
        let given = {
            // SAFETY: the caller ends the loan in time.
            let arguments =
                unsafe { self.arguments(py, inputs, outputs, loan) }.map_err(|e| raised(py, e))?;
            python_call::call(self.function.bind(py), &arguments)
        };
        let given = given.map_err(|error| {
            loan.clear_frames(py, &error);
            raised(py, error)
        })?;
        match self.writes_outputs {
            false => take_results(&given, outputs),
            true if given.is_none() => Ok(()),
            true => Err(Error::kernel("a kernel that writes its outputs gave a value back")
                .expected("None, with the results written to the outputs")
                .got(type_name(&given))
                .hint("register it without writes_outputs=True to return results")),
        }
    }

    /// # Safety
    /// As [`PyKernel::call_with`].
    unsafe fn arguments<'py>(
        &self,
        py: Python<'py>,
        inputs: &[OperatorInput<'_>],
        outputs: &mut [OutputView<'_>],
        loan: &mut Loan<'py>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut arguments: Vec<Bound<'py, PyAny>> = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            arguments.push(match input {
                // SAFETY: the caller ends the loan in time.
                OperatorInput::Single(ArgView::Tensor(view)) => unsafe { lend(py, view, i, loan)? },
                OperatorInput::Single(ArgView::Int(v)) => v.into_pyobject(py)?.into_any(),
                OperatorInput::Single(ArgView::Double(v)) => v.into_pyobject(py)?.into_any(),
                OperatorInput::Single(ArgView::Bool(v)) => v.into_pyobject(py)?.to_owned().into_any(),
                OperatorInput::Single(ArgView::String(v)) => v.into_pyobject(py)?.into_any(),
                OperatorInput::Single(ArgView::None) => py.None().into_bound(py),
                OperatorInput::Ints(list) => PyList::new(py, list)?.into_any(),
                OperatorInput::Doubles(list) => PyList::new(py, *list)?.into_any(),
                OperatorInput::Bools(list) => PyList::new(py, *list)?.into_any(),
                OperatorInput::Tensors(list) => {
                    let lent = list.iter().map(|view| match view {
                        // SAFETY: the caller ends the loan in time.
                        Some(view) => unsafe { lend(py, view, i, loan) },
                        None => Ok(py.None().into_bound(py)),
                    });
                    PyList::new(py, lent.collect::<PyResult<Vec<_>>>()?)?.into_any()
                }
            });
        }
        if self.writes_outputs {
            for (i, output) in outputs.iter_mut().enumerate() {
                // SAFETY: the caller ends the loan in time.
                arguments.push(unsafe { loan.output(py, output, i)? }.into_any());
            }
        }
        PyTuple::new(py, arguments)
    }
}

/// An input as a read-only array; as a `pteron.Tensor` where NumPy lacks its element type.
///
/// # Safety
/// `loan` must be ended before the memory of `view` is written or goes.
unsafe fn lend<'py>(
    py: Python<'py>,
    view: &TensorView<'_>,
    index: usize,
    loan: &mut Loan<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the caller's promise is that of this function.
    let tensor = unsafe { loan.input(py, view, index)? };
    Ok(Tensor::array(&tensor)?.unwrap_or_else(|| tensor.into_any()))
}

/// Copies what a kernel returned into the outputs: one array, or a list or tuple with one for each.
fn take_results(given: &Bound<'_, PyAny>, outputs: &mut [OutputView<'_>]) -> Result<()> {
    let is_sequence = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    if !is_sequence && let [output] = outputs {
        return take_result(given, output, 0);
    }
    let count = |got: String| {
        Error::kernel("a kernel returned another number of results than its operator has")
            .expected(format!("a list or tuple of {} arrays", outputs.len()))
            .got(got)
    };
    let items: Vec<Bound<'_, PyAny>> = match is_sequence {
        true => given.try_iter().and_then(|items| items.collect()).map_err(|e| raised(given.py(), e))?,
        false => return Err(count(type_name(given))),
    };
    if items.len() != outputs.len() {
        return Err(count(format!("{} of {}", type_name(given), items.len())));
    }
    items.iter().zip(outputs).enumerate().try_for_each(|(i, (item, output))| take_result(item, output, i))
}

fn take_result(given: &Bound<'_, PyAny>, output: &mut OutputView<'_>, index: usize) -> Result<()> {
    let name = format!("result {index}");
    let expected = format!("an array, {}{}", output.dtype(), output.bound());
    let read = Argument::read_state(given, &name).map_err(|e| {
        let got = e.detail().got.clone().unwrap_or_else(|| type_name(given));
        let error = Error::kernel("a kernel returned something that is no array");
        error.argument(name.as_str()).expected(expected).got(got).cause(e)
    })?;
    let InputValue::Tensor(tensor) = read.as_input() else {
        return Err(Error::internal("a result was read as something else than a tensor"));
    };
    tensor.copy_into_output(output).map_err(|e| {
        e.argument(name).hint("return what the operator's fake implementation promised at export")
    })
}

/// The error for what a kernel raised; it travels as the cause.
#[cold]
fn raised(py: Python<'_>, error: PyErr) -> Error {
    let class = type_name(error.value(py).as_any());
    let text = error.value(py).to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let message = match text.is_empty() {
        true => format!("the kernel raised {class}"),
        false => format!("the kernel raised {class}: {}", shorten(&text)),
    };
    Error::kernel(message)
        .hint("what the kernel raised, with its traceback, is the __cause__ of this exception")
        .cause(error)
}
