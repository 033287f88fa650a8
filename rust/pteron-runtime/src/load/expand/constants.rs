//! Weights of expanded delegates as constants of the method: views of stored bytes, wherever those are.

use crate::ir::{ConstantRef, FoldedConstant, Placement, TensorIr, ValueIr};
use crate::load::program_data::ProgramData;
use crate::load::source::file_key;
use pteron_core::error::printable;
use pteron_core::{
    AlignedBuffer, ConstantKey, DType, DimOrder, Dims, Dynamism, Error, PackStore, Result, TensorSpec,
    ValueId,
};
use pteron_format::DelegateDef;
use pteron_xnnpack::{ConstantBytes, ExpandedConstant};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// A view of stored bytes.
type ViewKey = (ConstantKey, DType, Dims, Dims);

/// Constants of all delegates of a method; one that several of them have is one value.
pub(super) struct DelegateConstants<'a> {
    data: &'a ProgramData,
    packs: &'a PackStore,
    known: HashMap<ViewKey, ValueId>,
    pub folded: Vec<FoldedConstant>,
}

/// A delegate, as far as its constants go.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub def: &'a DelegateDef,
    pub method: &'a str,
    pub index: usize,
}

impl<'a> DelegateConstants<'a> {
    pub(super) fn new(data: &'a ProgramData, packs: &'a PackStore) -> Self {
        DelegateConstants { data, packs, known: HashMap::new(), folded: Vec::new() }
    }

    /// The value of a constant: one that there is already, or one that was appended to `values`.
    pub(super) fn value(
        &mut self,
        constant: &ExpandedConstant,
        owner: Owner<'_>,
        values: &mut Vec<ValueIr>,
    ) -> Result<ValueId> {
        let (key, data) = self.bytes(constant, owner)?;
        let view = (key, constant.dtype, constant.shape, constant.strides);
        if let Some(known) = self.known.get(&view) {
            return Ok(*known);
        }
        let spec = TensorSpec {
            dtype: constant.dtype,
            shape: constant.shape,
            dim_order: DimOrder::contiguous(constant.shape.len()),
            dynamism: Dynamism::Static,
        };
        let is_as_stored = data.is_none() && spec.dim_order.is_dense(&spec.shape, &constant.strides);
        let place = if is_as_stored {
            ConstantRef::Stored(ConstantKey { nbytes: spec.nbytes()? as u64, ..key })
        } else {
            self.folded.push(FoldedConstant {
                key,
                offset: 0,
                shape: constant.shape,
                strides: constant.strides,
                data,
            });
            ConstantRef::Folded(index(self.folded.len().saturating_sub(1))?)
        };
        let id = ValueId(index(values.len())?);
        values.push(
            TensorIr {
                spec,
                placement: Placement::Constant(place),
                device: pteron_core::Device::Cpu,
                name: None,
            }
            .into(),
        );
        self.known.insert(view, id);
        Ok(id)
    }

    /// What the bytes are called, and where they are, unless that is where the key says.
    fn bytes(
        &self,
        constant: &ExpandedConstant,
        owner: Owner<'_>,
    ) -> Result<(ConstantKey, Option<Arc<AlignedBuffer>>)> {
        let key = match &constant.bytes {
            ConstantBytes::Named(name) => self.data.delegate_key(name, owner.method, owner.index),
            ConstantBytes::Payload(range) => part_of(&owner.def.blob, range),
            ConstantBytes::Computed(bytes) => {
                // Delegates, and methods, that compute the same share it: by its contents, for there is no other name.
                let mut contents = DefaultHasher::new();
                contents.write(bytes.as_slice());
                let recipe = format!("delegate's {:016x}", contents.finish());
                let spec = TensorSpec::contiguous(DType::UInt8, &[bytes.len()])?;
                let made = self.packs.derive(&recipe, &[], &spec, &mut |_| {
                    AlignedBuffer::copy_of(bytes.as_slice()).map(Some)
                })?;
                let same = made.filter(|(_, data)| data.as_slice() == bytes.as_slice());
                let (key, data) = same.ok_or_else(|| Error::internal("computed weights have one name"))?;
                return Ok((key, Some(data)));
            }
        };
        let stored = key.and_then(|key| Some((key, self.data.constant(&key)?)));
        let (key, bytes) = stored.ok_or_else(|| match &constant.bytes {
            ConstantBytes::Named(name) => Error::external_data("a weight of a delegate is not there")
                .got(printable(name))
                .hint("load the program with the .ptd files that were written with it: load(program, data=[...])"),
            _ => Error::program("a weight of a delegate lies outside its payload"),
        })?;
        if (bytes.as_ptr() as usize).is_multiple_of(constant.dtype.align()) {
            return Ok((key, None));
        }
        Ok((key, Some(Arc::new(AlignedBuffer::copy_of(bytes)?))))
    }
}

/// `n` as an index of the program.
pub(super) fn index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::limit("the method has too many values or instructions"))
}

/// The bytes `range` of a payload.
fn part_of(blob: &std::ops::Range<usize>, range: &std::ops::Range<usize>) -> Option<ConstantKey> {
    let start = blob.start.checked_add(range.start)?;
    let end = blob.start.checked_add(range.end)?;
    (start <= end && end <= blob.end).then(|| file_key(&(start..end)))
}
