//! `pteron.Runtime`: kernels, backends and threads; `pteron.Limits`.

use crate::backend::PyBackend;
use crate::call;
use crate::errors::OrRaise;
use crate::kernel::PyKernel;
use crate::parameter;
use crate::plugin;
use pteron_core::{Availability, Isa};
use pteron_core::{Backend, OperatorFunction};
use pteron_runtime::{RuleSwitches, Runtime as Inner, RuntimeOptions};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// Kernels, backends and threads. Programs are loaded into one; most use the process-wide default.
///
/// `isa`: best instruction set that kernels may use ("portable", "avx2", "avx512"); None: what the
/// processor has. `num_threads`: threads of a pool of its own; None: the process-wide pool, with a thread for
/// each processor that the process may use, at most `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`.
/// `disabled_rules`: names of load-time rewrites to leave out; "all" leaves out every one, and a name
/// that there is none of is an InputError.
#[pyclass(frozen, weakref, module = "pteron")]
pub struct Runtime {
    runtime: Arc<Inner>,
}

impl Runtime {
    /// The given runtime, or the process-wide default.
    pub fn or_shared(py: Python<'_>, runtime: Option<&Bound<'_, PyAny>>) -> PyResult<Arc<Inner>> {
        match parameter::instance::<Runtime>(runtime, "runtime", "Runtime")? {
            Some(runtime) => Ok(runtime.get().runtime.clone()),
            None => Inner::shared().or_raise(py),
        }
    }
}

fn rule_list(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    object.extract().map_err(|_| {
        let hint = "one name needs a list too: disabled_rules=[\"all\"]";
        parameter::wrong_type(object, "disabled_rules", "a list of names", hint)
    })
}

#[pymethods]
impl Runtime {
    #[new]
    #[pyo3(signature = (*, isa=None, num_threads=None, disabled_rules=Vec::new()))]
    fn new(
        py: Python<'_>,
        isa: Option<&Bound<'_, PyAny>>,
        num_threads: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = rule_list)] disabled_rules: Vec<String>,
    ) -> PyResult<Self> {
        const ISAS: &str = "'portable', 'neon', 'avx2' or 'avx512'";
        let isa = match isa {
            None => None,
            Some(name) => {
                let found = Isa::from_name(parameter::text(name, "isa", ISAS)?);
                Some(found.ok_or_else(|| parameter::out_of_range(name, "isa", ISAS))?)
            }
        };
        let num_threads = parameter::size(num_threads, "num_threads", 1)?;
        let rules = if disabled_rules.iter().any(|r| r == "all") {
            RuleSwitches::all_off()
        } else {
            disabled_rules.iter().fold(RuleSwitches::all_on(), |rules, name| rules.without(name))
        };
        let options = RuntimeOptions { isa, threads: num_threads, rules };
        Ok(Runtime { runtime: call::detached(py, || Inner::new(options))? })
    }

    /// The process-wide default.
    #[staticmethod]
    fn shared(py: Python<'_>) -> PyResult<Self> {
        Ok(Runtime { runtime: Inner::shared().or_raise(py)? })
    }

    /// Names of the registered backends, sorted.
    #[getter]
    fn backends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.runtime.backend_names())
    }

    /// True when the backend can be used here, else False.
    fn is_available(&self, backend: &str) -> bool {
        self.runtime.backend_availability(backend) == Some(Availability::Available)
    }

    /// Why the backend cannot be used here; None when it can.
    fn unavailable_reason(&self, backend: &str) -> Option<String> {
        match self.runtime.backend_availability(backend) {
            None => Some("no backend of this name is registered".to_string()),
            Some(Availability::Unavailable(reason)) => Some(reason),
            Some(Availability::Available) => None,
        }
    }

    /// Full names of all operators that have a kernel, such as "aten::add.out", sorted.
    #[getter]
    fn operators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.runtime.operator_names())
    }

    /// Threads that kernels of one call use at most.
    #[getter]
    fn num_threads(&self) -> usize {
        self.runtime.num_threads()
    }

    /// Name of the instruction set that kernels use.
    #[getter]
    fn isa(&self) -> &'static str {
        self.runtime.cpu().isa.name()
    }

    fn __repr__(&self) -> String {
        let names = self.runtime.backend_names();
        format!("pteron.Runtime(isa={}, backends=[{}])", self.isa(), names.join(", "))
    }
}

/// What a program may use; None stands for the default.
///
/// `arena_bytes`: most bytes of planned memory of one session, and of its kernels' scratch where that is more
/// than 16 MiB (default: half of the machine's memory or of the control group's limit). `instructions`: most instructions of one
/// call (default: no limit). Programs inside, which delegates run, count for both. `time`: most seconds of one call (default: no limit). `nesting`: most programs
/// inside each other (default: 8). `values`: most values, and most instructions, of a method in its file
/// (default: 1,048,576). `rank`: most dimensions of a tensor (default, and never more: 16).
#[pyclass(frozen, eq, module = "pteron")]
#[derive(PartialEq, Eq)]
pub struct Limits {
    limits: pteron_runtime::Limits,
}

impl Limits {
    /// What the parameter `limits` sets, as the runtime takes it.
    pub fn of_parameter(limits: Option<&Bound<'_, PyAny>>) -> PyResult<pteron_runtime::Limits> {
        let limits = parameter::instance::<Limits>(limits, "limits", "Limits")?;
        Ok(limits.map(|l| l.get().limits).unwrap_or_default())
    }
}

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, arena_bytes=None, instructions=None, time=None, nesting=None, values=None, rank=None))]
    fn new(
        arena_bytes: Option<&Bound<'_, PyAny>>,
        instructions: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        nesting: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        rank: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Limits {
            limits: pteron_runtime::Limits {
                arena_bytes: parameter::size(arena_bytes, "arena_bytes", 0)?,
                instructions: parameter::count(instructions, "instructions", 0)?,
                time: parameter::seconds(time, "time", "a number of seconds, at least 0")?,
                nesting: parameter::size(nesting, "nesting", 1)?,
                values: parameter::size(values, "values", 0)?,
                rank: parameter::size(rank, "rank", 0)?,
            },
        })
    }

    #[getter]
    /// Most bytes of planned memory of one session; None for the default.
    fn arena_bytes(&self) -> Option<usize> {
        self.limits.arena_bytes
    }

    #[getter]
    /// Most instructions of one run; None for the default.
    fn instructions(&self) -> Option<u64> {
        self.limits.instructions
    }

    #[getter]
    /// Most seconds of one run; None for the default.
    fn time(&self) -> Option<f64> {
        self.limits.time.map(|t| t.as_secs_f64())
    }

    #[getter]
    /// Most programs inside each other; None for the default.
    fn nesting(&self) -> Option<usize> {
        self.limits.nesting
    }

    #[getter]
    /// Most values of a method; None for the default.
    fn values(&self) -> Option<usize> {
        self.limits.values
    }

    #[getter]
    /// Most dimensions of a tensor; None for the default.
    fn rank(&self) -> Option<usize> {
        self.limits.rank
    }

    fn __repr__(&self) -> String {
        let l = &self.limits;
        let fields = [
            ("arena_bytes", l.arena_bytes.map(|v| v.to_string())),
            ("instructions", l.instructions.map(|v| v.to_string())),
            ("time", l.time.map(|v| v.as_secs_f64().to_string())),
            ("nesting", l.nesting.map(|v| v.to_string())),
            ("values", l.values.map(|v| v.to_string())),
            ("rank", l.rank.map(|v| v.to_string())),
        ];
        let set = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        format!("pteron.Limits({})", set.collect::<Vec<_>>().join(", "))
    }
}

/// Processors that this process may use, as its affinity mask and the quotas of its control groups say.
#[pyfunction]
pub fn available_processors() -> usize {
    pteron_runtime::available_processors()
}

/// `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, as the environment has them now; None where neither says. InputError
/// where the first is not a number of at least 1.
#[pyfunction]
pub fn threads_of_environment(py: Python<'_>) -> PyResult<Option<usize>> {
    pteron_runtime::threads_of_environment().or_raise(py)
}

/// Makes a backend known to programs of `runtime` (None: the process-wide default): an object written in
/// Python, or the capsule of one that another package has compiled (`pteron_backend.h`).
///
/// `backend.init(ctx, processed, compile_specs)` makes a delegate from a blob; `backend.is_available()`,
/// when there is one, gives True or the reason why not. A name that is taken is an error unless
/// `replace`.
///
/// A delegate lives as long as the Method that it belongs to. One that refers to its Method (or to what
/// holds it) is therefore never collected: the reference from the session is not visible to Python's cycle
/// collector. Hold a `weakref.ref` of the Method instead.
#[pyfunction]
#[pyo3(signature = (name, backend, *, runtime=None, replace=false))]
pub fn register_backend(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    backend: &Bound<'_, PyAny>,
    runtime: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = replace_flag)] replace: bool,
) -> PyResult<()> {
    let runtime = Runtime::or_shared(py, runtime)?;
    let name = parameter::text(name, "name", "the backend id that programs carry comes first")?;
    let backend: Arc<dyn Backend> = match plugin::backend_in(backend, name)? {
        Some(compiled) => Arc::new(compiled),
        None => Arc::new(PyBackend::new(name.to_string(), backend)?),
    };
    // The lock of the registry may be held by a thread that waits for the interpreter.
    call::detached(py, || runtime.register_backend(backend, replace))
}

/// Makes a kernel of a custom operator known to programs of `runtime` (None: the process-wide default): a function
/// written in Python, or the capsule of one that another package has compiled (`pteron_backend.h`).
///
/// `name`: the operator as the model has it, "my_ns::my_op", or as programs call it, "my_ns::my_op.out".
/// `kernel` is called with the operator's arguments in the order of its schema, tensors as read-only NumPy arrays (as
/// `pteron.Tensor` where NumPy lacks the element type), and returns the result: an array, or a list or tuple of arrays, of
/// the element types and within the shapes that the program states. With `writes_outputs` it gets the outputs behind the
/// inputs instead, as `pteron.Tensor`, to write to, and returns None.
///
/// Methods that are loaded keep the kernels they were loaded with. A name that is taken is an error unless `replace`;
/// operators that pteron computes itself take no other kernel.
#[pyfunction]
#[pyo3(signature = (name, kernel, *, writes_outputs=false, runtime=None, replace=false))]
pub fn register_kernel(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    kernel: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = writes_outputs_flag)] writes_outputs: bool,
    runtime: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = replace_flag)] replace: bool,
) -> PyResult<()> {
    let runtime = Runtime::or_shared(py, runtime)?;
    let name =
        parameter::text(name, "name", "the name of the operator comes first, such as \"my_ns::my_op\"")?;
    let kernel: Arc<dyn OperatorFunction> = match plugin::kernel_in(kernel, name)? {
        Some(compiled) => Arc::new(compiled),
        None => Arc::new(PyKernel::new(kernel, writes_outputs)?),
    };
    // The lock of the registry may be held by a thread that waits for the interpreter.
    call::detached(py, || runtime.register_function(name, kernel, replace))
}

fn writes_outputs_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    parameter::flag(object, "writes_outputs")
}

/// True when the operator, as programs call it ("aten::add.out"), has a kernel in the default runtime.
#[pyfunction]
pub fn has_kernel(py: Python<'_>, operator: &str) -> PyResult<bool> {
    Ok(Inner::shared().or_raise(py)?.has_kernel(operator))
}

fn replace_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    parameter::flag(object, "replace")
}

/// Registers the demo backends `BackendWithCompilerDemo` and `ExecutorBackend`, written in Rust.
#[pyfunction]
#[pyo3(signature = (runtime=None))]
pub fn register_demo_backends(py: Python<'_>, runtime: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let runtime = Runtime::or_shared(py, runtime)?;
    call::detached(py, || pteron_demo::register(&runtime))
}

/// Names of the rewrites that `Runtime(disabled_rules=...)` can switch off, in the order of the pass.
#[pyfunction]
pub fn rule_names() -> Vec<&'static str> {
    pteron_runtime::rule_names().collect()
}

/// Full names of all operators with a kernel in the default runtime, sorted.
#[pyfunction]
pub fn operator_names(py: Python<'_>) -> PyResult<Vec<String>> {
    Ok(Inner::shared().or_raise(py)?.operator_names())
}
