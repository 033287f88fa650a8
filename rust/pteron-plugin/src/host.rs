//! The host's side: a backend and its delegates behind a table of functions. Unsafe island.

use crate::abi::{
    ABI_MAJOR, FAILED, KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_STRING, KIND_TENSOR, OK, PteronArg,
    PteronBackend, PteronBytes, PteronCompileSpec, PteronError, PteronEvent, PteronExecute, PteronInit,
    PteronOption, PteronTensor,
};
use crate::host_outputs::{OutputHost, output_hosts, results};
use crate::layout::Layout;
use pteron_core::error::printable;
use pteron_core::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, Delegate, DelegateEvent, DelegateState,
    Error, EventId, ExecuteContext, InitContext, NamedData, OutputView, Result,
};
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Longest text of an error that is kept.
const LONGEST_TEXT: usize = 4096;

/// A copy of a table; what its maker did not know is not set.
#[derive(Clone)]
pub(crate) struct Table(pub(crate) Arc<PteronBackend>);

// SAFETY: the interface says that functions of a backend may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: the interface says that a backend's functions may be called by several threads at once.
unsafe impl Sync for Table {}

/// A backend that somebody else compiled.
pub struct PluginBackend {
    table: Table,
    name: String,
}

impl PluginBackend {
    /// The backend behind `table`.
    ///
    /// Errors: another major version, a table that lacks functions, a name that is no text.
    ///
    /// # Safety
    /// `table` must be null or point to a table as `pteron_backend.h` describes it, at least its first two
    /// fields, that stays as it is until the process ends; its functions must keep the contract of the header.
    pub unsafe fn from_table(table: *const PteronBackend) -> Result<PluginBackend> {
        if table.is_null() || !table.is_aligned() {
            return Err(Error::input("a plugin gave no table of functions")
                .hint("pteron_backend.h says what a table has to hold"));
        }
        // SAFETY: the first two fields are there in every version; the rest is read after they were checked.
        let (major, size) = unsafe { ((*table).abi_major, (*table).struct_size as usize) };
        if major != ABI_MAJOR {
            return Err(Error::input("a plugin was built for another version of the backend interface")
                .expected(format!("major version {ABI_MAJOR}"))
                .got(format!("major version {major}"))
                .hint("install versions of the plugin and of pteron that fit together"));
        }
        if size < PteronBackend::FIRST_SIZE {
            return Err(Error::input("a plugin's table of functions is too short")
                .expected(format!("at least {} bytes", PteronBackend::FIRST_SIZE))
                .got(format!("{size} bytes"))
                .hint("set struct_size to sizeof(struct pteron_backend)"));
        }
        let mut copy = Box::new(PteronBackend::EMPTY);
        // SAFETY: the caller's contract, now that version and size are known. Every field is a number or a
        // pointer that may be null, so what is not copied stays "not set".
        unsafe {
            let known = size.min(std::mem::size_of::<PteronBackend>());
            std::ptr::copy_nonoverlapping(table.cast::<u8>(), std::ptr::from_mut(&mut *copy).cast(), known);
        }
        let table = copy;
        if table.init.is_none() || table.execute.is_none() || table.name.is_null() {
            return Err(Error::input("a plugin's table lacks its name, init or execute")
                .hint("pteron_backend.h says what a table has to hold"));
        }
        if table.get_state.is_some() && (table.set_state.is_none() || table.reset_state.is_none()) {
            return Err(Error::input("a plugin's table has get_state, but lacks set_state or reset_state")
                .hint("pteron_backend.h says what a table has to hold"));
        }
        // SAFETY: the contract of the header: null-terminated.
        let name = unsafe { CStr::from_ptr(table.name) };
        let name = name.to_str().map_err(|_| {
            Error::input("the name of a plugin's backend is not UTF-8")
                .hint("pteron_backend.h says what a table has to hold")
        })?;
        Ok(PluginBackend { table: Table(Arc::from(table)), name: name.to_string() })
    }
}

/// What a plugin said about a failure.
#[derive(Default)]
pub(crate) struct Failure {
    text: Option<String>,
    debug_handle: Option<i64>,
}

impl Failure {
    pub(crate) fn slot(&mut self) -> PteronError {
        PteronError { host: std::ptr::from_mut(self).cast(), set: Some(set_failure) }
    }

    /// The error of a call that failed: the plugin's text, else why an output was refused its extents.
    pub(crate) fn or_of_outputs(self, hosts: &mut [OutputHost<'_, '_>], what: &str) -> Error {
        let refused = match self.text {
            None => hosts.iter_mut().find_map(OutputHost::take_failure),
            Some(_) => None,
        };
        refused.unwrap_or_else(|| self.into_error(what))
    }

    pub(crate) fn into_error(self, what: &str) -> Error {
        let error = match self.text {
            Some(text) => Error::delegate(format!("{what}: {}", printable(&text))),
            None => Error::delegate(format!("{what}, and did not say why")),
        };
        match self.debug_handle {
            Some(handle) => error.debug_handle(handle),
            None => error,
        }
    }
}

/// # Safety
/// `host` is the `CallHost` of the call in progress; `text` is valid as the header says.
unsafe extern "C" fn set_failure(host: *mut c_void, text: PteronBytes, debug_handle: i64) {
    // SAFETY: `host` is the `Failure` of the call in progress, which nobody else looks at meanwhile.
    let failure = unsafe { &mut *host.cast::<Failure>() };
    // SAFETY: the contract of the header.
    let text = unsafe { bytes(&text) };
    let text = text.get(..text.len().min(LONGEST_TEXT)).unwrap_or_default();
    failure.text = Some(String::from_utf8_lossy(text).into_owned());
    failure.debug_handle = (debug_handle >= 0).then_some(debug_handle);
}

/// # Safety
/// `b` must be valid as the header says for as long as the result is used.
pub(crate) unsafe fn bytes(b: &PteronBytes) -> &[u8] {
    if b.data.is_null() || b.len == 0 {
        return &[];
    }
    // SAFETY: not null; the caller promises `len` bytes at `data` for as long as the result is used.
    unsafe { std::slice::from_raw_parts(b.data, b.len) }
}

/// A view of bytes for the other side.
pub(crate) fn lend(b: &[u8]) -> PteronBytes {
    PteronBytes { data: b.as_ptr(), len: b.len() }
}

/// # Safety
/// `host` is that of a delegate that lives, or what [`keep_data`] gave and nobody released; `key` and the place for the
/// result are valid during the call.
unsafe extern "C" fn named_data(host: *mut c_void, key: PteronBytes, out: *mut PteronBytes) -> i32 {
    // SAFETY: the header lets plugins pass the host of a delegate that lives, or one that they keep; both point to
    // named data. The key is valid during the call by the same header.
    let (data, key) = unsafe { (&*host.cast::<Arc<dyn NamedData>>(), bytes(&key)) };
    let found = std::str::from_utf8(key).ok().and_then(|key| data.get(key));
    match found {
        Some(found) if !out.is_null() => {
            // SAFETY: not null, and writable by contract.
            unsafe { *out = lend(found) };
            OK
        }
        _ => FAILED,
    }
}

/// # Safety
/// `host` is that of a delegate that lives, or what this function gave and nobody released.
unsafe extern "C" fn keep_data(host: *mut c_void) -> *mut c_void {
    // SAFETY: the header lets plugins pass the host of a delegate that lives, which points to its named data.
    let data = unsafe { &*host.cast::<Arc<dyn NamedData>>() };
    Box::into_raw(Box::new(data.clone())).cast()
}

/// # Safety
/// `kept` is what [`keep_data`] gave, not released before and not used afterwards.
unsafe extern "C" fn release_data(kept: *mut c_void) {
    // SAFETY: the header has plugins release each result of `keep_data` once.
    drop(unsafe { Box::from_raw(kept.cast::<Arc<dyn NamedData>>()) });
}

impl Backend for PluginBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_available(&self) -> Availability {
        let Some(ask) = self.table.0.is_available else { return Availability::Available };
        let mut failure = Failure::default();
        // SAFETY: the table's own function and data.
        match unsafe { ask(self.table.0.plugin, &mut failure.slot()) } {
            OK => Availability::Available,
            _ => {
                Availability::Unavailable(failure.text.unwrap_or_else(|| "the plugin gives no reason".into()))
            }
        }
    }

    fn init(
        &self,
        ctx: &InitContext<'_>,
        processed: &[u8],
        specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        let specs: Vec<PteronCompileSpec> = specs
            .iter()
            .map(|s| PteronCompileSpec { key: lend(s.key.as_bytes()), value: lend(&s.value) })
            .collect();
        let options: Vec<PteronOption> = ctx.options.iter().map(|(key, value)| option(key, value)).collect();
        let named = Box::new(ctx.named_data.clone());
        let init = PteronInit {
            struct_size: std::mem::size_of::<PteronInit>() as u32,
            method: lend(ctx.method.as_bytes()),
            processed: lend(processed),
            specs: specs.as_ptr(),
            spec_count: specs.len(),
            options: options.as_ptr(),
            option_count: options.len(),
            host: std::ptr::from_ref(&*named).cast_mut().cast(),
            named_data: Some(named_data),
            keep_data: Some(keep_data),
            release_data: Some(release_data),
            num_threads: ctx.num_threads,
        };
        let make = self.table.0.init.ok_or_else(|| Error::internal("a checked table has lost a function"))?;
        let (mut delegate, mut num_outputs) = (std::ptr::null_mut(), usize::MAX);
        let mut failure = Failure::default();
        // SAFETY: everything lent lives until the call returns; the table's own function and data.
        let status =
            unsafe { make(self.table.0.plugin, &init, &mut delegate, &mut num_outputs, &mut failure.slot()) };
        if status != OK {
            return Err(failure.into_error("the plugin's init failed"));
        }
        if num_outputs == usize::MAX {
            // SAFETY: made by this plugin just now, and given to nobody.
            drop(PluginDelegate { table: self.table.clone(), delegate, num_outputs: 0, _named: named });
            return Err(Error::delegate("the plugin's init did not set the number of outputs")
                .hint("set *num_outputs: how many of a call's last arguments are outputs"));
        }
        Ok(Box::new(PluginDelegate { table: self.table.clone(), delegate, num_outputs, _named: named }))
    }
}

fn option(key: &str, value: &BackendOption) -> PteronOption {
    let (kind, number, text) = match value {
        BackendOption::Bool(v) => (0, i64::from(*v), lend(&[])),
        BackendOption::Int(v) => (1, *v, lend(&[])),
        BackendOption::String(v) => (2, 0, lend(v.as_bytes())),
    };
    PteronOption { key: lend(key.as_bytes()), kind, number, text }
}

/// A delegate behind a table.
pub(crate) struct PluginDelegate {
    pub(crate) table: Table,
    pub(crate) delegate: *mut c_void,
    num_outputs: usize,
    // Where the `host` of `named_data` points.
    _named: Box<Arc<dyn NamedData>>,
}

// SAFETY: the interface says that a delegate is used by one thread at a time, whichever it is.
unsafe impl Send for PluginDelegate {}

impl Drop for PluginDelegate {
    fn drop(&mut self) {
        if let Some(destroy) = self.table.0.destroy {
            // SAFETY: made by `init` of the same table, and destroyed once.
            unsafe { destroy(self.delegate) };
        }
    }
}

const NO_TENSOR: PteronTensor = PteronTensor {
    data: std::ptr::null_mut(),
    dtype: 0,
    ndim: 0,
    shape: std::ptr::null(),
    strides: std::ptr::null(),
    nbytes: 0,
};

pub(crate) fn argument(input: &ArgView<'_>, layout: &Layout) -> PteronArg {
    let mut arg = PteronArg { kind: KIND_NONE, tensor: NO_TENSOR, number: 0, real: 0.0, text: lend(&[]) };
    match input {
        ArgView::Tensor(view) => {
            arg.kind = KIND_TENSOR;
            arg.tensor = layout.tensor(view.meta(), view.as_ptr().cast_mut());
        }
        ArgView::Int(v) => (arg.kind, arg.number) = (KIND_INT, *v),
        ArgView::Double(v) => (arg.kind, arg.real) = (KIND_DOUBLE, *v),
        ArgView::Bool(v) => (arg.kind, arg.number) = (KIND_BOOL, i64::from(*v)),
        ArgView::String(v) => (arg.kind, arg.text) = (KIND_STRING, lend(v.as_bytes())),
        ArgView::None => {}
    }
    arg
}

type Events<'a> = Option<&'a mut (dyn FnMut(DelegateEvent<'_>) + 'a)>;

/// The same receiver with a shorter life, which the compiler gives what is behind `&mut` only at such a coercion.
fn shortened<'a>(events: &'a mut Option<&mut (dyn FnMut(DelegateEvent<'_>) + '_)>) -> Events<'a> {
    match events {
        Some(events) => Some(&mut **events),
        None => None,
    }
}

/// What the `host` of a call points to.
struct CallHost<'a> {
    is_cancelled: &'a dyn Fn() -> bool,
    events: RefCell<Events<'a>>,
}

/// # Safety
/// `host` is the `CallHost` of the call in progress.
unsafe extern "C" fn is_cancelled(host: *mut c_void) -> i32 {
    // SAFETY: `host` is that of the call in progress; the question reads an atomic, and nothing else of the
    // host is touched here, so that any thread may ask.
    let ask = unsafe { (*host.cast::<CallHost<'_>>()).is_cancelled };
    i32::from(ask())
}

/// # Safety
/// `host` is the `CallHost` of the call in progress; `event` is null or valid during the call.
unsafe extern "C" fn take_event(host: *mut c_void, event: *const PteronEvent) {
    // SAFETY: `host` is that of the call in progress, on whose thread this is; the event is valid during the
    // call by contract.
    let (host, event) = unsafe { (&*host.cast::<CallHost<'_>>(), event.as_ref()) };
    let Some(event) = event.filter(|e| e.struct_size as usize >= std::mem::size_of::<PteronEvent>()) else {
        return;
    };
    // SAFETY: the name and the metadata of an event are valid during the call, by the contract of
    // `take_event`.
    let (name, metadata) = unsafe { (bytes(&event.name), bytes(&event.metadata)) };
    let name = String::from_utf8_lossy(name);
    let id = if event.name.data.is_null() { EventId::Int(event.id) } else { EventId::Name(&name) };
    let event = DelegateEvent { id, start_ns: event.start_ns, end_ns: event.end_ns, metadata };
    // Held already only if the receiver came back here, which it does not.
    if let Ok(mut events) = host.events.try_borrow_mut()
        && let Some(report) = events.as_mut()
    {
        report(event);
    }
}

impl Delegate for PluginDelegate {
    fn state(&mut self) -> Option<&mut dyn DelegateState> {
        self.has_state().then_some(self)
    }

    fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        let layouts: Vec<Layout> = inputs.iter().map(Layout::of_argument).collect();
        let arguments: Vec<PteronArg> =
            inputs.iter().zip(&layouts).map(|(input, layout)| argument(input, layout)).collect();
        let mut hosts = output_hosts(outputs);
        let mut results = results(&mut hosts);
        let is_traced = ctx.events.is_some();
        let host =
            CallHost { is_cancelled: ctx.is_cancelled, events: RefCell::new(shortened(&mut ctx.events)) };
        let execute = PteronExecute {
            struct_size: std::mem::size_of::<PteronExecute>() as u32,
            instruction: ctx.instruction as u64,
            method: lend(ctx.method.as_bytes()),
            host: std::ptr::from_ref(&host).cast_mut().cast(),
            is_cancelled: Some(is_cancelled),
            event: is_traced.then_some(take_event),
        };
        let run =
            self.table.0.execute.ok_or_else(|| Error::internal("a checked table has lost a function"))?;
        let mut failure = Failure::default();
        // SAFETY: everything lent lives until the call returns, and nothing of it is touched meanwhile but by
        // the functions that the plugin calls.
        let status = unsafe {
            run(
                self.delegate,
                &execute,
                arguments.as_ptr(),
                arguments.len(),
                results.as_mut_ptr(),
                results.len(),
                &mut failure.slot(),
            )
        };
        if status == OK {
            return Ok(());
        }
        Err(failure.or_of_outputs(&mut hosts, "the plugin's execute failed"))
    }
}
