//! Tensors that are lent to Python code for one call, of a delegate or of a kernel. Unsafe island (memory of the session).

use crate::tensor::Tensor;
use crate::tensor_memory::TensorMemory;
use pteron_core::{DType, Error, OutputView, Result, TensorView};
use pyo3::prelude::*;
use smallvec::SmallVec;

/// Who borrows, for errors.
#[derive(Clone, Copy)]
pub enum Borrower {
    /// A delegate.
    Delegate,
    /// A kernel of a custom operator.
    Kernel,
}

/// The tensors lent to one call; [`Loan::end`] takes them back.
#[derive(Default)]
pub struct Loan<'py> {
    tensors: SmallVec<[(&'static str, usize, Bound<'py, Tensor>); 8]>,
}

impl<'py> Loan<'py> {
    /// Lends an input, number `index` of the call's, to be read.
    ///
    /// # Safety
    /// The loan must be ended before the memory of `view` is written or goes.
    pub unsafe fn input(
        &mut self,
        py: Python<'py>,
        view: &TensorView<'_>,
        index: usize,
    ) -> PyResult<Bound<'py, Tensor>> {
        // SAFETY: the caller promises that the memory outlives the loan.
        let memory = unsafe { TensorMemory::lent_input(view.meta().clone(), view.as_ptr()) };
        self.add(py, "input", index, memory)
    }

    /// Lends an output, number `index` of the call's, to be written.
    ///
    /// # Safety
    /// The loan must be ended before `output` ends or is used.
    pub unsafe fn output(
        &mut self,
        py: Python<'py>,
        output: &mut OutputView<'_>,
        index: usize,
    ) -> PyResult<Bound<'py, Tensor>> {
        // SAFETY: the caller promises that the slot outlives the loan; it is lent, not exchanged.
        let memory = unsafe { TensorMemory::lent_output(output.slot()) };
        self.add(py, "output", index, memory)
    }

    fn add(
        &mut self,
        py: Python<'py>,
        what: &'static str,
        index: usize,
        memory: TensorMemory,
    ) -> PyResult<Bound<'py, Tensor>> {
        let tensor = Bound::new(py, Tensor::from(memory))?;
        self.tensors.push((what, index, tensor.clone()));
        Ok(tensor)
    }

    fn is_referenced(&self) -> bool {
        self.tensors.iter().any(|(_, _, tensor)| is_referenced(tensor))
    }

    /// Lets go of what the frames of an exception hold: the arguments of the call, and views of them.
    pub fn clear_frames(&self, py: Python<'_>, error: &PyErr) {
        if self.is_referenced() {
            clear_frames(py, error);
        }
    }

    /// Takes the tensors back; `outcome` is the call's. A tensor that something still refers to is an error, which also
    /// tells the owners of the memory never to reuse or free it.
    pub fn end(self, py: Python<'_>, outcome: Result<()>, borrower: Borrower) -> Result<()> {
        if self.is_referenced() {
            self.collect_cycles(py);
        }
        let mut kept = Ok(());
        for (what, index, tensor) in self.tensors {
            tensor.get().revoke();
            if kept.is_ok() && is_referenced(&tensor) {
                let dtype = tensor.get().with_meta(|meta| meta.dtype());
                kept = Err(still_referenced(borrower, what, index, dtype));
            }
        }
        match outcome {
            Ok(()) => kept,
            Err(error) if kept.is_err() => Err(error.memory_kept()),
            Err(error) => Err(error),
        }
    }

    /// Frees what only circles of references hold: a nested function that calls itself, an exception that was kept in a
    /// variable of its own frame. The young objects first, which are most likely all that there are.
    #[cold]
    fn collect_cycles(&self, py: Python<'_>) {
        let Ok(collect) = py.import("gc").and_then(|gc| gc.getattr("collect")) else { return };
        for generation in 0..3 {
            // What cannot be collected keeps its references, which `end` sees.
            let _ = collect.call1((generation,));
            if !self.is_referenced() {
                return;
            }
        }
    }
}

/// Does anything but `tensor` itself refer to the tensor or its memory?
fn is_referenced(tensor: &Bound<'_, Tensor>) -> bool {
    // SAFETY: `tensor` is a reference to a live object, and this thread is attached.
    let references = unsafe { pyo3::ffi::Py_REFCNT(tensor.as_ptr()) };
    references != 1 || tensor.get().has_exports()
}

/// Clears the local variables of all frames of an exception's traceback, and of the exceptions it came
/// from. The lines that a traceback shows stay.
#[cold]
fn clear_frames(py: Python<'_>, error: &PyErr) {
    const LONGEST_CHAIN: usize = 100;
    let Ok(clear) = py.import("traceback").and_then(|t| t.getattr("clear_frames")) else { return };
    // A frame that cannot be cleared keeps its references, which `Loan::end` sees.
    if let Some(traceback) = error.traceback(py) {
        let _ = clear.call1((traceback,));
    }
    let mut at = error.value(py).clone().into_any();
    for _ in 0..LONGEST_CHAIN {
        let cause = at.getattr("__cause__").ok().filter(|c| !c.is_none());
        let Some(from) = cause.or_else(|| at.getattr("__context__").ok()).filter(|c| !c.is_none()) else {
            return;
        };
        let _ = from.getattr("__traceback__").and_then(|tb| clear.call1((tb,)));
        at = from;
    }
}

/// The error for an argument of a call that something still refers to after it.
#[cold]
fn still_referenced(borrower: Borrower, what: &str, index: usize, dtype: DType) -> Error {
    match borrower {
        Borrower::Delegate => Error::delegate("a delegate kept an argument beyond its execute"),
        Borrower::Kernel => Error::kernel("a kernel kept an argument beyond its call"),
    }
    .argument(format!("{what} {index}"))
    .got(format!("a reference to a {dtype} tensor, or to a view of it, that is still alive"))
    .hint("copy what is needed, for example with numpy.array(tensor), and drop views before returning")
    .memory_kept()
}
