//! Sessions: load, run, outputs, stop, free. Unsafe island (exported functions).

use crate::abi::{
    Opaque, PteronArg, PteronBackendOption, PteronExecuteOptions, PteronMethodOptions, PteronOption,
};
use crate::arguments::{self, CheckedValue};
use crate::failure::{Outcome, misuse};
use crate::guard;
use crate::handles;
use crate::limits::{limits, set};
use crate::loaded_program::LoadedProgram;
use crate::reading;
use crate::results::Results;
use crate::session::Session;
use pteron_core::BackendOption;
use pteron_runtime::{ExecuteOptions, InputValue, MethodOptions, Outputs};
use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// # Safety
/// The option points to what the header says.
unsafe fn option_value(option: &PteronOption, name: &str) -> Outcome<BackendOption> {
    match option.kind {
        0 => Ok(BackendOption::Bool(option.number != 0)),
        1 => Ok(BackendOption::Int(option.number)),
        // SAFETY: null, or bytes, by the contract of this function.
        2 => Ok(BackendOption::String(unsafe { reading::string(&option.text, name)? }.to_string())),
        other => Err(misuse(name, "there is no such kind of option")
            .instead("0 (bool), 1 (int) or 2 (string)", other.to_string())),
    }
}

/// # Safety
/// The options point to what the header says.
unsafe fn backend_options(
    given: &[PteronBackendOption],
) -> Outcome<HashMap<String, Vec<(String, BackendOption)>>> {
    let mut out: HashMap<String, Vec<(String, BackendOption)>> = HashMap::new();
    for (i, entry) in given.iter().enumerate() {
        let name = format!("options.backend_options[{i}]");
        // SAFETY: null, or a string, by the contract of this function.
        let backend = unsafe { reading::text(entry.backend, &name)? };
        // SAFETY: null, or bytes, by the contract of this function.
        let key = unsafe { reading::string(&entry.option.key, &name)? };
        // SAFETY: what a string option points to is as the header says, by the contract of this function.
        let value = unsafe { option_value(&entry.option, &name)? };
        out.entry(backend.to_string()).or_default().push((key.to_string(), value));
    }
    Ok(out)
}

/// # Safety
/// `options` is null or options as the header says.
unsafe fn method_options(options: *const PteronMethodOptions) -> Outcome<MethodOptions> {
    // SAFETY: null, or options, by the contract of this function.
    let options = unsafe { reading::optional(options, "options")? };
    // SAFETY: null, or limits, by the contract of this function.
    let wanted = unsafe { reading::optional(options.limits, "options.limits")? };
    // SAFETY: null, or as many options as it states, by the contract of this function.
    let given = unsafe {
        reading::slice(options.backend_options, options.backend_option_count, "options.backend_options")?
    };
    Ok(MethodOptions {
        num_threads: set(options.num_threads),
        // SAFETY: what they point to is as the header says, by the contract of this function.
        backend_options: unsafe { backend_options(given)? },
        limits: limits(&wanted),
        seed: (options.has_seed != 0).then_some(options.seed),
    })
}

/// Makes a session.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_load(
    program: *mut Opaque,
    name: *const c_char,
    options: *const PteronMethodOptions,
    method: *mut *mut Opaque,
) -> i32 {
    guard::call(|| {
        // SAFETY: null, or room for a handle by the header.
        let method = unsafe { reading::handle_out(method, "method")? };
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or a string by the header.
        let name = unsafe { reading::text(name, "name")? };
        // SAFETY: null, or options by the header.
        let options = unsafe { method_options(options)? };
        let session = program.program.load_method(name, options)?;
        method.set(handles::insert(Arc::new(Session::new(session, program))));
        Ok(())
    })
}

/// Makes sessions that share mutable buffers.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_methods_load(
    program: *mut Opaque,
    names: *const *const c_char,
    count: usize,
    options: *const PteronMethodOptions,
    methods: *mut *mut Opaque,
) -> i32 {
    guard::call(|| {
        // SAFETY: null, or room for that many handles by the header.
        let methods = unsafe { reading::handles_out(methods, count, "methods")? };
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or that many pointers by the header.
        let given = unsafe { reading::slice(names, count, "names")? };
        let mut names = Vec::with_capacity(given.len());
        for (i, name) in given.iter().enumerate() {
            // SAFETY: null, or a string by the header.
            names.push(unsafe { reading::text(*name, &format!("names[{i}]"))? });
        }
        // SAFETY: null, or options by the header.
        let options = unsafe { method_options(options)? };
        let sessions = program.program.load_methods(&names, &options)?;
        for (place, session) in methods.iter_mut().zip(sessions) {
            *place = handles::insert(Arc::new(Session::new(session, program.clone())));
        }
        Ok(())
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_method_free(method: *mut Opaque) -> i32 {
    guard::call(|| handles::remove::<Session>(method))
}

/// Runs a method.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_execute(
    method: *mut Opaque,
    inputs: *const PteronArg,
    input_count: usize,
    options: *const PteronExecuteOptions,
) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        let mut results = session.enter()?;
        // Others find the method in use from here on, so from here on they can cancel the call.
        let _call = session.cancel.begin_call();
        let ending = results.take();
        // SAFETY: null, or that many values by the header.
        let args = unsafe { reading::slice(inputs, input_count, "inputs")? };
        // SAFETY: null, or options by the header.
        let options = unsafe { reading::optional(options, "options")? };
        // SAFETY: what they point to is as the header says, and stays so during the call.
        let values = unsafe { arguments::inputs(args, ending.as_ref())? };
        // SAFETY: null, or that many tensors by the header.
        let wanted = unsafe { reading::slice(options.outputs, options.output_count, "options.outputs")? };
        // SAFETY: their shapes are as the header says.
        let wanted = unsafe { arguments::outputs(wanted, ending.as_ref())? };
        // SAFETY: the header has callers leave this memory to the call.
        let bound = unsafe { arguments::buffers(&wanted) };
        // Inputs that lay in it are copied: the session may have its memory back.
        drop(ending);
        let values: Vec<InputValue<'_>> = values.iter().map(CheckedValue::as_input).collect();
        let mut outputs = Outputs::new();
        let call = ExecuteOptions {
            outputs: &bound.buffers,
            lend_outputs: true,
            // A deadline beyond what the clock can count is none.
            deadline: set(options.deadline_ns)
                .and_then(|wait| Instant::now().checked_add(Duration::from_nanos(wait))),
            num_threads: set(options.num_threads),
            ..Default::default()
        };
        session.method.execute_into(&values, call, &mut outputs)?;
        *results = Some(Results::new(outputs, &bound.addresses)?);
        Ok(())
    })
}

#[cold]
fn not_run(session: &Session) -> crate::failure::Failure {
    let mut failure = misuse("method", "there are no outputs")
        .instead("a call that has succeeded", "none since the method was loaded, or since its outputs ended")
        .hint("call pteron_method_execute, and look at what it returns");
    failure.error = failure.error.method(session.method.name());
    failure
}

/// How many outputs the last call has given.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_output_count(method: *mut Opaque, count: *mut usize) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // SAFETY: null, or room for a number by the header.
        let count = unsafe { reading::out(count, "count")? };
        let results = session.enter()?;
        count.set(results.as_ref().ok_or_else(|| not_run(&session))?.len());
        Ok(())
    })
}

/// An output of the last call.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_output(
    method: *mut Opaque,
    index: usize,
    output: *mut PteronArg,
) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // SAFETY: null, or room for a value by the header.
        let output = unsafe { reading::out(output, "output")? };
        let results = session.enter()?;
        let results = results.as_ref().ok_or_else(|| not_run(&session))?;
        let found = results.get(index).ok_or_else(|| {
            misuse("index", "there are not so many outputs")
                .instead(format!("less than {}", results.len()), index.to_string())
        })?;
        output.set(found);
        Ok(())
    })
}

/// Stops the call in progress.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_method_cancel(method: *mut Opaque) -> i32 {
    guard::call(|| {
        handles::get::<Session>(method)?.cancel.cancel();
        Ok(())
    })
}
