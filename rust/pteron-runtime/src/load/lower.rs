//! From what the file says to the loader's own IR.

use crate::ir::{ConstantRef, MethodIr};
use crate::load::external_tensors::resolve;
use crate::load::program_data::ProgramData;
use crate::load::source::file_key;
use pteron_core::{Error, Result};
use pteron_format::{MethodDef, StoredBytes};

/// The IR of a method; tensors of data files are looked up. Errors with `ExternalData` where that fails.
pub(crate) fn lower(method: &MethodDef, data: &ProgramData) -> Result<MethodIr> {
    let external = resolve(method, data)?;
    method.try_map(|stored| match stored {
        StoredBytes::InFile(range) => Ok(ConstantRef::Stored(file_key(range))),
        StoredBytes::External(name) => {
            let key = external.get(name.as_str()).copied();
            key.map(ConstantRef::Stored)
                .ok_or_else(|| Error::internal("a tensor of a data file was not resolved"))
        }
    })
}
