//! What every part of pteron shares: dtypes, shapes, checked sizes, tensor views, values, the
//! instruction IR, errors, and the traits `Kernel`, `Prepared`, `Backend` and `Delegate`.
//!
//! This crate executes nothing and knows neither file formats nor threads. Data flows
//! `pteron-format` (bytes → verified views) → `pteron-runtime` (values, instructions, steps) →
//! kernels, which see only the types defined here.
//!
//! Unsafe code lives in the islands [`storage`], [`tensor`], [`owned_tensor`], [`args`], [`memory_reserve`], [`function_kernel`],
//! `output_view` and `large_pages`, nowhere else: the compiler refuses it. ([`kernel`] declares unsafe functions for kernels to implement, and calls none.)

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "makes views of slots, which whoever made the arguments promises")]
pub mod args;
pub mod backend;
pub mod constant;
pub mod cpu_profile;
pub mod device;
pub mod dim_order;
pub mod dims;
pub mod dtype;
pub mod error;
mod error_kind;
#[allow(unsafe_code, reason = "plays the kernel's part in the contract of `Prepared::run`")]
pub mod function_kernel;
pub mod instruction;
#[allow(unsafe_code, reason = "`Prepared::run` is unsafe to call")]
pub mod kernel;
#[allow(unsafe_code, reason = "asks the system for a kind of page")]
mod large_pages;
#[allow(unsafe_code, reason = "an allocator")]
pub mod memory_reserve;
#[allow(unsafe_code, reason = "lends a slot to another language")]
mod output_view;
#[allow(unsafe_code, reason = "a slot points to memory that it owns")]
pub mod owned_tensor;
pub mod packs;
pub mod random;
pub mod region;
pub mod schema;
pub mod sizes;
#[allow(unsafe_code, reason = "owns raw memory, aligned")]
pub mod storage;
#[allow(unsafe_code, reason = "slots and views are pointers with metadata")]
pub mod tensor;
pub mod value;

pub use args::{Args, BindArgs, IntListView, Scalar, TensorListView};
pub use backend::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, Delegate, DelegateEvent, DelegateState,
    EventId, ExecuteContext, InitContext, NamedData,
};
pub use constant::{ConstantKey, ConstantView};
pub use cpu_profile::{CpuProfile, Isa};
pub use device::Device;
pub use dim_order::DimOrder;
pub use dims::Dims;
pub use dtype::{Bool8, Complex64, DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use function_kernel::{FunctionKernel, OperatorFunction, OperatorInput};
pub use instruction::Instruction;
pub use kernel::{
    AliasRule, ArgSpec, Bound, Grid, Kernel, PrepareContext, Prepared, Scratch, StaticKernel, WorkerScratch,
};
pub use output_view::OutputView;
pub use owned_tensor::OwnedTensor;
pub use packs::{DERIVED_ORIGIN, PackKey, PackStore, PackTotals};
pub use random::{RandomDraws, RandomStream};
pub use schema::{ArgKind, Schema, SchemaArg};
pub use storage::{AlignedBuffer, BufferHome, PackedBytes, StableBytes};
pub use tensor::{Dynamism, TensorMeta, TensorSlot, TensorSpec, TensorView, TensorViewMut};
pub use value::{Members, Value, ValueId, ValueKind};

/// Largest rank a tensor may have; the limit of the file format's reference reader.
pub const MAX_RANK: usize = 16;
