//! Programs: load, free. Unsafe island (exported functions).

use crate::abi::{Opaque, PteronLoadOptions, PteronSource};
use crate::failure::Outcome;
use crate::guard;
use crate::handles;
use crate::limits::limits;
use crate::loaded_program::LoadedProgram;
use crate::reading;
use crate::runtime::or_shared;
use crate::source::CheckedSource;
use pteron_runtime::{DataSource, Limits, Program, ProgramSource, Runtime};
use std::ffi::c_char;
use std::sync::Arc;

fn load(
    runtime: &Arc<Runtime>,
    source: ProgramSource,
    data: Vec<DataSource>,
    limits: Limits,
) -> Outcome<*mut Opaque> {
    let program = Program::load_with_data(runtime, source, data, limits)?;
    Ok(handles::insert(Arc::new(LoadedProgram::new(program)?)))
}

/// Loads a program.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_load(
    runtime: *mut Opaque,
    source: *const PteronSource,
    options: *const PteronLoadOptions,
    program: *mut *mut Opaque,
) -> i32 {
    guard::call(|| {
        // SAFETY: null, or room for a handle by the header.
        let program = unsafe { reading::handle_out(program, "program")? };
        let runtime = or_shared(runtime)?;
        // SAFETY: null, or options by the header.
        let options = unsafe { reading::optional(options, "options")? };
        // SAFETY: null, or limits by the header.
        let wanted = limits(&unsafe { reading::optional(options.limits, "options.limits")? });
        // SAFETY: null, or as many pointers as the options state, by the header.
        let files =
            unsafe { reading::slice(options.data_files, options.data_file_count, "options.data_files")? };
        // Everything is checked before anything is taken over: what is lent goes back only if it was taken.
        // SAFETY: null, or a source by the header.
        let source = unsafe { CheckedSource::read(source, "source")? };
        let mut checked = Vec::with_capacity(files.len());
        for (i, file) in files.iter().enumerate() {
            // SAFETY: null, or a source by the header.
            checked.push(unsafe { CheckedSource::read(*file, &format!("options.data_files[{i}]"))? });
        }
        // All of them are taken, also when one of them cannot be.
        let source = source.take();
        let data: Vec<_> = checked
            .into_iter()
            .enumerate()
            .map(|(i, file)| {
                let name = file.name(&format!("data_files[{i}]"));
                Ok(DataSource { source: file.take()?, name })
            })
            .collect();
        let data = data.into_iter().collect::<pteron_core::Result<Vec<_>>>()?;
        program.set(load(&runtime, source?, data, wanted)?);
        Ok(())
    })
}

/// Loads a program from a path.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_open(path: *const c_char, program: *mut *mut Opaque) -> i32 {
    guard::call(|| {
        // SAFETY: null, or room for a handle by the header.
        let program = unsafe { reading::handle_out(program, "program")? };
        // SAFETY: null, or a string by the header.
        let path = unsafe { reading::path(path, "path")? };
        let source = ProgramSource::File { path, is_mapped: true };
        program.set(load(&Runtime::shared()?, source, Vec::new(), Limits::default())?);
        Ok(())
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_program_free(program: *mut Opaque) -> i32 {
    guard::call(|| handles::remove::<LoadedProgram>(program))
}
