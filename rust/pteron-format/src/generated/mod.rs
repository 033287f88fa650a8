//! Code that `cargo xtask gen` makes from the schemas in `schema/` with flatc. Not edited by hand; no type
//! of it leaves this crate.

#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all, clippy::pedantic, clippy::restriction)]
#[rustfmt::skip]
mod bundled_program_generated;
#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all, clippy::pedantic, clippy::restriction)]
#[rustfmt::skip]
mod flat_tensor_generated;
#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all, clippy::pedantic, clippy::restriction)]
#[rustfmt::skip]
mod program_generated;

pub(crate) use bundled_program_generated::bundled_program_flatbuffer as bundle_wire;
pub(crate) use flat_tensor_generated::flat_tensor_flatbuffer as data_wire;
pub(crate) use program_generated::executorch_flatbuffer as wire;

/// A dtype code as the type that data files have for it.
pub(crate) fn data_scalar_type(code: i8) -> flat_tensor_generated::executorch_flatbuffer::ScalarType {
    flat_tensor_generated::executorch_flatbuffer::ScalarType(code)
}

/// A dtype code as the type that bundled programs have for it.
pub(crate) fn bundle_scalar_type(code: i8) -> bundled_program_generated::executorch_flatbuffer::ScalarType {
    bundled_program_generated::executorch_flatbuffer::ScalarType(code)
}
