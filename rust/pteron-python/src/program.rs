//! `pteron.Program` and `pteron.load`.

use crate::bundle;
use crate::call::{self, CallLimits, Callee};
use crate::errors::OrRaise;
use crate::flat_call::FlatCall;
use crate::interface::MethodInterface;
use crate::method::{self, Method};
use crate::parameter;
use crate::runtime::{Limits, Runtime};
use crate::source::{data_sources, file_source};
use crate::spec::ValueSpec;
use pteron_core::error::printable;
use pteron_core::{BackendOption, Error, Result};
use pteron_runtime::{MethodOptions, Program as Loaded};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A loaded program: immutable, and shared by all methods loaded from it. Made by `pteron.load`.
#[pyclass(frozen, weakref, module = "pteron")]
pub struct Program {
    program: Arc<Loaded>,
    interfaces: Vec<Arc<MethodInterface>>,
    /// The file that it was loaded from, if it was one.
    path: Option<PathBuf>,
}

/// Loads a program.
///
/// `source`: path of a `.pte` file, its bytes (exact `bytes` are borrowed, any other buffer is copied), or
/// a binary file that is read to its end. A bundled program (`.bpte`) is loaded as the program in it.
/// `data`: the data files (`.ptd`) that the program keeps tensors in: one of what `source` can be, a list of
/// them, or a dict from name to them. `mmap`: map the weights of files instead of reading them; pass False
/// for files that may change or shrink while they are used. `runtime`: whose kernels and backends
/// to use; None for the process-wide default. `limits`: what the program may use.
///
/// Raises FileNotFoundError, ProgramError (damaged file), ExternalDataError (damaged data file, or one key
/// for two things; that a tensor is missing or another one is noticed when its method is first used),
/// LimitExceeded.
#[pyfunction]
#[pyo3(signature = (source, *, data=None, mmap=true, runtime=None, limits=None))]
pub fn load(
    source: &Bound<'_, PyAny>,
    data: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = mmap_flag)] mmap: bool,
    runtime: Option<&Bound<'_, PyAny>>,
    limits: Option<&Bound<'_, PyAny>>,
) -> PyResult<Program> {
    let py = source.py();
    let runtime = Runtime::or_shared(py, runtime)?;
    let limits = Limits::of_parameter(limits)?;
    let (source, path) = file_source(source, mmap, "source", ".pte")?;
    let data = data_sources(data, mmap)?;
    let program = call::detached_result(py, || Loaded::load_with_data(&runtime, source, data, limits))?;
    let program = program.or_raise(py)?;
    let file = path.as_ref().and_then(|path| path.file_name());
    let of = file.map_or("program".into(), |name| name.to_string_lossy());
    let interfaces = program
        .methods()
        .into_iter()
        .map(|name| MethodInterface::new(py, &program, &of, name).map(Arc::new))
        .collect::<Result<Vec<_>>>()
        .or_raise(py)?;
    Ok(Program { program, interfaces, path })
}

/// The method that is meant where none is named.
fn forward() -> String {
    "forward".to_string()
}

fn owned_method_name(object: &Bound<'_, PyAny>) -> PyResult<String> {
    parameter::method_name(object).map(str::to_string)
}

fn mmap_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    parameter::flag(object, "mmap")
}

impl Program {
    fn interface(&self, name: &str) -> Result<&Arc<MethodInterface>> {
        self.interfaces.iter().find(|i| &*i.name == name).ok_or_else(|| self.no_such_method(name))
    }

    /// The runtime's refusal of a name that no interface has.
    #[cold]
    fn no_such_method(&self, name: &str) -> Error {
        match self.program.inputs(name) {
            Err(error) => error,
            Ok(_) => Error::internal("a method without an interface").method(name),
        }
    }
}

#[pymethods]
impl Program {
    /// Names of the methods, in file order.
    #[getter]
    fn methods<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.interfaces.iter().map(|i| &*i.name))
    }

    /// What a method takes, flat: a tuple of ValueSpec.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn inputs<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        ValueSpec::tuple(py, &self.interface(&method).or_raise(py)?.inputs)
    }

    /// What a method gives, flat: a tuple of ValueSpec.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn outputs<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        ValueSpec::tuple(py, &self.interface(&method).or_raise(py)?.outputs)
    }

    /// Runs a stateless method with its exported arguments, in a session from a pool; any number of
    /// threads may do so at once. A method that keeps state between calls is refused: load it.
    #[pyo3(signature = (method, /, *args, **kwargs))]
    fn run<'py>(
        &self,
        method: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let method = parameter::method_name(method)?;
        let interface = self.interface(method).or_raise(py)?;
        let callee = Callee::Pool(&self.program, method);
        method::call_with_structure(py, interface, &callee, args, kwargs, CallLimits::default())
    }

    /// As `run`, with its arguments in a tuple and a dict, beside which others have room.
    #[pyo3(signature = (method, args, kwargs, *, cancel=None, num_threads=None))]
    fn _run<'py>(
        &self,
        method: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        cancel: Option<&Bound<'py, PyAny>>,
        num_threads: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let method = parameter::method_name(method)?;
        let interface = self.interface(method).or_raise(py)?;
        let limits = CallLimits::new(None, None, num_threads, cancel)?;
        let callee = Callee::Pool(&self.program, method);
        method::call_with_structure(py, interface, &callee, args, Some(kwargs), limits)
    }

    /// Sessions of a method that `run` and `execute` keep for calls to come: at most as many as the runtime has threads, and
    /// two. More calls at once have sessions of their own, whose memory goes back when they end.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn idle_sessions(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<usize> {
        self.interface(&method).or_raise(py)?;
        self.program.idle_sessions(&method).or_raise(py)
    }

    /// As `run`, with a flat list of inputs and of outputs. `outputs`, `deadline`, `budget`, `num_threads`, `tracer` and
    /// `cancel` are those of `Method.execute`; outputs always own their memory, or are the caller's.
    #[pyo3(signature = (method, inputs, *, outputs=None, deadline=None, budget=None, num_threads=None, tracer=None, cancel=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of the Python method")]
    fn execute<'py>(
        &self,
        method: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
        budget: Option<&Bound<'py, PyAny>>,
        num_threads: Option<&Bound<'py, PyAny>>,
        tracer: Option<Py<PyAny>>,
        cancel: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = method.py();
        let method = parameter::method_name(method)?;
        let interface = self.interface(method).or_raise(py)?;
        let limits = CallLimits::new(deadline, budget, num_threads, cancel)?;
        let flat = FlatCall { outputs, limits, tracer: tracer.as_ref() };
        flat.run(py, interface, &Callee::Pool(&self.program, method), inputs)
    }

    /// Mutable buffers that a method itself keeps between calls, in order: a tuple of ValueSpec. Those of its
    /// delegates are not among them.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn buffers<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.interface(&method).or_raise(py)?;
        ValueSpec::tuple(py, &self.program.buffers(&method).or_raise(py)?)
    }

    /// A session of a method, with memory, state and delegates of its own.
    ///
    /// `num_threads`: most threads that its kernels use, at least 1; None: all of the runtime's pool.
    /// `backend_options`: for each backend name a dict of options (bool, int or str) that its `init` gets; a
    /// name that the method does not use (`program.backends(method)`) is an InputError.
    /// `limits`: replace the program's where they are set.
    /// `seed`: where random operators start; None: at a place of the operating system's choice.
    #[pyo3(
        signature = (method=forward(), *, num_threads=None, backend_options=None, limits=None, seed=None),
        text_signature = "($self, method='forward', *, num_threads=None, backend_options=None, limits=None, seed=None)"
    )]
    fn load_method(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
        num_threads: Option<&Bound<'_, PyAny>>,
        backend_options: Option<&Bound<'_, PyAny>>,
        limits: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Method> {
        let interface = self.interface(&method).or_raise(py)?.clone();
        let options = MethodOptions {
            num_threads: parameter::size(num_threads, "num_threads", 1)?,
            backend_options: backend_options.map(read_options).transpose()?.unwrap_or_default(),
            limits: Limits::of_parameter(limits)?,
            seed: parameter::count(seed, "seed", 0)?,
        };
        let program = &self.program;
        let session = call::detached(py, || program.load_method(&interface.name, options))?;
        Ok(Method::new(session, interface))
    }

    /// Sessions of several methods that have one copy of the mutable buffers which the program shares
    /// between them (`MemoryPlanningPass(share_mutable_buffers=True)`); no other session sees it.
    ///
    /// `methods`: their names, None: all. The result is a dict by name. They run one
    /// at a time: a call while another of them runs raises MethodBusy. InputError where the methods share no
    /// buffers. The other arguments are those of `load_method`.
    #[pyo3(
        signature = (methods=None, *, num_threads=None, backend_options=None, limits=None, seed=None),
        text_signature = "($self, methods=None, *, num_threads=None, backend_options=None, limits=None, seed=None)"
    )]
    fn load_methods<'py>(
        &self,
        py: Python<'py>,
        methods: Option<&Bound<'py, PyAny>>,
        num_threads: Option<&Bound<'_, PyAny>>,
        backend_options: Option<&Bound<'_, PyAny>>,
        limits: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let names = match methods {
            None => self.interfaces.iter().map(|i| i.name.to_string()).collect(),
            Some(given) => method_names(given)?,
        };
        let interfaces = names
            .iter()
            .map(|name| self.interface(name).cloned())
            .collect::<Result<Vec<_>>>()
            .or_raise(py)?;
        let options = MethodOptions {
            num_threads: parameter::size(num_threads, "num_threads", 1)?,
            backend_options: backend_options.map(read_options).transpose()?.unwrap_or_default(),
            limits: Limits::of_parameter(limits)?,
            seed: parameter::count(seed, "seed", 0)?,
        };
        let program = &self.program;
        let sessions = call::detached(py, || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            program.load_methods(&names, &options)
        })?;
        let dict = PyDict::new(py);
        for (session, interface) in sessions.into_iter().zip(interfaces) {
            let name = interface.name.to_string();
            dict.set_item(name, Bound::new(py, Method::new(session, interface))?)?;
        }
        Ok(dict)
    }

    /// The program as text: methods, values, instructions, constants, delegates, named data.
    fn listing(&self, py: Python<'_>) -> PyResult<String> {
        call::detached(py, || self.program.listing())
    }

    /// What runs, as text: one line per step of a method, after folding and fusion.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn plan_listing(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<String> {
        let program = &self.program;
        call::detached(py, || program.plan_listing(&method))
    }

    /// The file as JSON, for tools: sizes, byte ranges, values, instructions.
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        call::detached(py, || self.program.description())
    }

    /// What runs, as JSON, for tools: values, calls with delegates opened, steps with kernels and the bytes that they
    /// move at the largest shapes. Builds the method.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn plan_description(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<String> {
        let program = &self.program;
        call::detached(py, || program.plan_description(&method))
    }

    /// Names of the backends that a method's delegates need.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn backends<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.interface(&method).or_raise(py)?;
        PyTuple::new(py, self.program.backends(&method).or_raise(py)?)
    }

    /// Full names of the operators that a method uses, such as "aten::add.out".
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn operators<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.interface(&method).or_raise(py)?;
        PyTuple::new(py, self.program.operators(&method).or_raise(py)?)
    }

    /// The kernel of every step of a method, in order: "reference", or the name of a fast one such as
    /// "exp.f32.avx2"; of a step that calls none what it does. Builds the method.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn kernels<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.interface(&method).or_raise(py)?;
        let names = call::detached(py, || self.program.kernels(&method))?;
        PyTuple::new(py, names)
    }

    /// Blobs that travel with the program, by key. Values are read-only memory of the program.
    #[getter]
    fn named_data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let dict = PyDict::new(py);
        let program = &slf.get().program;
        for key in program.named_data_keys() {
            if let Some(bytes) = program.named_data(key) {
                dict.set_item(key, crate::blob::Blob::of_program(py, program.clone(), bytes)?)?;
            }
        }
        Ok(dict)
    }

    /// The test cases that a bundled program has for a method: a list of `pteron.bundled.TestCase`, empty where
    /// there are none and for a program that is not bundled.
    #[pyo3(signature = (method=forward()), text_signature = "($self, method='forward')")]
    fn test_cases<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
    ) -> PyResult<Bound<'py, PyList>> {
        self.interface(&method).or_raise(py)?;
        match self.program.bundle() {
            Some(bundle) => bundle::test_cases(py, bundle, &method),
            None => Ok(PyList::empty(py)),
        }
    }

    /// Runs a bundled test case in a new session of its method and compares what comes out with what the case
    /// expects: floats and complex numbers within `atol + rtol * abs(expected)`, NaN equal to NaN, everything
    /// else exactly. Returns a `pteron.bundled.CaseResult`, which is true where everything agrees. InputError
    /// where there is no such case, or it expects nothing.
    #[pyo3(
        signature = (method=forward(), case=0, *, rtol=1e-5, atol=1e-8),
        text_signature = "($self, method='forward', case=0, *, rtol=1e-5, atol=1e-8)"
    )]
    fn verify<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = owned_method_name)] method: String,
        case: i64,
        rtol: f64,
        atol: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().interface(&method).or_raise(py)?;
        py.import("pteron.bundled")?.call_method1("verify", (slf, method, case, rtol, atol))
    }

    /// Number of packed weights that load made and methods of this program share, and their bytes.
    #[getter]
    fn pack_stats(&self) -> (usize, usize) {
        self.program.pack_stats()
    }

    /// Number of packed weights in use that the file brought along, and their bytes.
    #[getter]
    fn stored_pack_stats(&self) -> (usize, usize) {
        self.program.stored_pack_stats()
    }

    fn __repr__(&self) -> String {
        let path = self.path.as_ref().map(|path| printable(&path.to_string_lossy()));
        let of = path.map_or(String::new(), |path| format!(" of {path}"));
        let methods = self.interfaces.iter().map(|i| format!("\n  {}", i.signature()));
        format!("pteron.Program{of}, {} bytes{}", self.program.file_bytes(), methods.collect::<String>())
    }

    /// The same for notebooks, as tables.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let program = slf.get();
        let path = program.path.as_ref().map(|path| path.to_string_lossy());
        let page = slf.py().import("pteron.devtools.interface_html")?;
        page.call_method1("program_html", (slf, path, program.program.file_bytes()))
    }
}

/// A list or tuple of method names.
fn method_names(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if given.is_instance_of::<PyString>() {
        return Ok(vec![owned_method_name(given)?]);
    }
    let wrong = || {
        parameter::wrong_type(given, "methods", "a list of method names", "program.methods lists the methods")
    };
    let names = given.try_iter().map_err(|_| wrong())?;
    names.map(|name| owned_method_name(&name?)).collect()
}

/// Options per backend, checked.
fn read_options(options: &Bound<'_, PyAny>) -> PyResult<HashMap<String, Vec<(String, BackendOption)>>> {
    const FORM: &str = "the form is {\"MyBackend\": {\"option\": value}}";
    const NAME: &str = "backend_options";
    let mut all = HashMap::new();
    let options = parameter::mapping(options, NAME, "a dict of dicts", FORM)?;
    for (backend, values) in options.iter() {
        let backend = parameter::text(&backend, NAME, FORM)?.to_string();
        let name = format!("{NAME}['{}']", printable(&backend));
        let values = parameter::mapping(&values, &name, "a dict of options", FORM)?;
        let mut list = Vec::with_capacity(values.len());
        for (key, value) in values.iter() {
            let key = parameter::text(&key, &name, FORM)?.to_string();
            let value = if value.is_instance_of::<PyBool>() {
                BackendOption::Bool(value.extract()?)
            } else if let Ok(v) = value.extract::<i64>() {
                BackendOption::Int(v)
            } else if let Ok(v) = value.extract::<String>() {
                BackendOption::String(v)
            } else {
                let name = format!("{name}['{}']", printable(&key));
                return Err(parameter::wrong_type(&value, &name, "a bool, an int of 64 bits or a str", FORM));
            };
            list.push((key, value));
        }
        all.insert(backend, list);
    }
    Ok(all)
}
