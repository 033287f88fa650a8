//! Backends compiled elsewhere: the C interface (`include/pteron_backend.h`) and both of its sides.
//!
//! A package with a backend in Rust implements [`pteron_core::Backend`] and hands out what [`table`] makes of
//! it; one in another language fills a `PteronBackend` of the header. A host makes a [`pteron_core::Backend`]
//! of any table with [`PluginBackend::from_table`]. From Python, the table travels in a capsule
//! called [`abi::CAPSULE`], which `pteron.register_backend` takes in place of a Python object.
//!
//! Kernels of custom operators travel the same way, as a `PteronKernel` in a capsule called [`abi::KERNEL_CAPSULE`].
//!
//! No Rust type and no panic crosses the border; strings and errors are copied by whoever receives them. A
//! table is never freed: code that might still run cannot be unloaded.
//!
//! Unsafe code lives in the islands `guest`, `guest_data`, `guest_state`, `host`, `host_kernel`, `host_outputs` and
//! `host_state`; `abi` only declares.

#![deny(unsafe_code)]

pub mod abi;
#[allow(unsafe_code, reason = "the C interface")]
mod guest;
#[allow(unsafe_code, reason = "the C interface")]
mod guest_data;
#[allow(unsafe_code, reason = "the C interface")]
mod guest_state;
mod guest_table;
#[allow(unsafe_code, reason = "the C interface")]
mod host;
#[allow(unsafe_code, reason = "the C interface")]
mod host_kernel;
#[allow(unsafe_code, reason = "the C interface")]
mod host_outputs;
#[allow(unsafe_code, reason = "the C interface")]
mod host_state;
mod layout;

pub use guest_table::table;
pub use host::PluginBackend;
pub use host_kernel::PluginKernel;
