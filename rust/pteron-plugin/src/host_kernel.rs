//! The host's side of kernels: a function of an operator behind a table. Unsafe island.

use crate::abi::{
    ABI_MAJOR, KIND_BOOLS, KIND_DOUBLES, KIND_INTS, KIND_TENSORS, OK, PteronArg, PteronCall, PteronKernel,
    PteronValue,
};
use crate::host::{Failure, argument};
use crate::host_outputs::{output_hosts, results};
use crate::layout::Layout;
use pteron_core::{ArgView, Error, ErrorKind, OperatorFunction, OperatorInput, OutputView, Result};
use std::ffi::{CStr, c_void};

/// A kernel that somebody else compiled.
pub struct PluginKernel {
    table: &'static PteronKernel,
    name: String,
}

// SAFETY: the interface says that the function of a kernel may be called from any thread.
unsafe impl Send for PluginKernel {}
// SAFETY: the interface says that the function of a kernel may be called by several threads at once.
unsafe impl Sync for PluginKernel {}

impl PluginKernel {
    /// The kernel behind `table`.
    ///
    /// Errors: another major version, a table that lacks its function, a name that is no text.
    ///
    /// # Safety
    /// `table` must be null or point to a table as `pteron_backend.h` describes it, at least its first two fields, that
    /// stays as it is until the process ends; its function must keep the contract of the header.
    pub unsafe fn from_table(table: *const PteronKernel) -> Result<PluginKernel> {
        let wrong = |what: &str| {
            Error::input(format!("a plugin gave a kernel {what}"))
                .hint("pteron_backend.h says what struct pteron_kernel has to hold")
        };
        if table.is_null() || !table.is_aligned() {
            return Err(wrong("without a table"));
        }
        // SAFETY: the first two fields are there in every version; the rest is read after they were checked.
        let (major, size) = unsafe { ((*table).abi_major, (*table).struct_size as usize) };
        if major != ABI_MAJOR {
            return Err(wrong("of another major version")
                .expected(ABI_MAJOR.to_string())
                .got(major.to_string()));
        }
        if size < std::mem::size_of::<PteronKernel>() {
            return Err(wrong("whose table is too short")
                .expected(format!("at least {} bytes", std::mem::size_of::<PteronKernel>()))
                .got(format!("{size} bytes")));
        }
        // SAFETY: the caller's contract, now that version and size are known: it stays until the process ends.
        let table: &'static PteronKernel = unsafe { &*table };
        if table.call.is_none() || table.name.is_null() {
            return Err(wrong("without name or function"));
        }
        // SAFETY: the contract of the header: null-terminated.
        let name = unsafe { CStr::from_ptr(table.name) };
        let name = name.to_str().map_err(|_| wrong("whose name is not UTF-8"))?;
        Ok(PluginKernel { table, name: name.to_string() })
    }

    /// The operator, as the table names it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl OperatorFunction for PluginKernel {
    fn call(&self, inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()> {
        let views: Vec<Vec<ArgView<'_>>> = inputs.iter().map(tensors_of).collect();
        let layouts: Vec<Vec<Layout>> =
            views.iter().map(|list| list.iter().map(Layout::of_argument).collect()).collect();
        let members: Vec<Vec<PteronArg>> = views
            .iter()
            .zip(&layouts)
            .map(|(views, layouts)| views.iter().zip(layouts).map(|(v, l)| argument(v, l)).collect())
            .collect();
        let bools: Vec<Vec<u8>> = inputs.iter().map(bytes_of_bools).collect();
        let values: Vec<PteronValue> = inputs
            .iter()
            .zip(&layouts)
            .zip(members.iter().zip(&bools))
            .map(|((input, layouts), (members, bools))| value(input, layouts, members, bools))
            .collect::<Result<_>>()?;
        let mut hosts = output_hosts(outputs);
        let mut results = results(&mut hosts);
        let context = PteronCall { struct_size: std::mem::size_of::<PteronCall>() as u32 };
        let call = self.table.call.ok_or_else(|| Error::internal("a checked table has lost a function"))?;
        let mut failure = Failure::default();
        // SAFETY: everything lent lives until the call returns, and nothing of it is touched meanwhile but by the
        // functions that the plugin calls; the table's own function and data.
        let status = unsafe {
            call(
                self.table.plugin,
                &context,
                values.as_ptr(),
                values.len(),
                results.as_mut_ptr(),
                results.len(),
                &mut failure.slot(),
            )
        };
        match status {
            OK => Ok(()),
            _ => Err(failure
                .or_of_outputs(&mut hosts, "the plugin's kernel failed")
                .with_kind(ErrorKind::Kernel)),
        }
    }
}

/// The tensors of an argument, single or in a list.
fn tensors_of<'a>(input: &OperatorInput<'a>) -> Vec<ArgView<'a>> {
    match input {
        OperatorInput::Single(view) => vec![*view],
        OperatorInput::Tensors(list) => {
            list.iter().map(|view| view.map_or(ArgView::None, ArgView::Tensor)).collect()
        }
        _ => vec![],
    }
}

fn bytes_of_bools(input: &OperatorInput<'_>) -> Vec<u8> {
    match input {
        OperatorInput::Bools(list) => list.iter().map(|b| u8::from(*b)).collect(),
        _ => vec![],
    }
}

/// An argument for the other side. `members`: of a list of tensors, or the single argument.
fn value(
    input: &OperatorInput<'_>,
    layouts: &[Layout],
    members: &[PteronArg],
    bools: &[u8],
) -> Result<PteronValue> {
    let list = |kind: i32, items: *const c_void, item_count: usize| {
        let nothing = ArgView::None;
        let mut arg = argument(&nothing, &Layout::of_argument(&nothing));
        arg.kind = kind;
        PteronValue { arg, items, item_count }
    };
    Ok(match input {
        OperatorInput::Single(view) => {
            let layout = layouts.first().ok_or_else(|| Error::internal("an argument has no layout"))?;
            PteronValue { arg: argument(view, layout), items: std::ptr::null(), item_count: 0 }
        }
        OperatorInput::Ints(ints) => list(KIND_INTS, ints.as_ptr().cast(), ints.len()),
        OperatorInput::Doubles(doubles) => list(KIND_DOUBLES, doubles.as_ptr().cast(), doubles.len()),
        OperatorInput::Bools(_) => list(KIND_BOOLS, bools.as_ptr().cast(), bools.len()),
        OperatorInput::Tensors(_) => list(KIND_TENSORS, members.as_ptr().cast(), members.len()),
    })
}
