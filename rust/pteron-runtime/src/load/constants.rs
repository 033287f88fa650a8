//! Constants of a method as kernels see them at load.

use crate::ir::{ConstantRef, FoldedConstant, Placement, TensorIr};
use crate::load::program_data::ProgramData;
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, DimOrder, Dims, PackKey, PackStore, PackedBytes,
    Prepared, Result,
};
use pteron_cpu::packed::DENSE;
use pteron_kernels::strided::copy::copy_between;
use pteron_kernels::strided::views::View;
use std::sync::Arc;

/// Bytes of a constant whose pages are worth giving back: smaller ones share theirs with others.
const WORTH_RELEASING: usize = 4 << 10;

/// Where the constants of one method are.
#[derive(Clone, Copy)]
pub(crate) struct Constants<'a> {
    /// The program; `None` where there is none, and so no constants.
    pub data: Option<&'a ProgramData>,
    pub folded: &'a [FoldedConstant],
}

impl<'a> Constants<'a> {
    /// No constants at all.
    pub(crate) const NONE: Constants<'static> = Constants { data: None, folded: &[] };

    /// Stored bytes by key.
    pub(crate) fn bytes(&self, key: &ConstantKey) -> Option<&'a [u8]> {
        self.data?.constant(key)
    }

    /// Says that the bytes of a constant are not expected to be read again; small ones are not worth it.
    pub(crate) fn release(&self, view: &ConstantView<'_>) {
        if let Some(data) = self.data
            && view.data.len() >= WORTH_RELEASING
        {
            data.release(&view.key);
        }
    }

    /// Weights that the kernel has packed need not stay in memory beside their packed copy. Done kernel by
    /// kernel, so that the most that load ever holds is one copy of the weights and one weight.
    pub(crate) fn release_packed(&self, specs: &[ArgSpec<'_>], prepared: &dyn Prepared) {
        for (index, spec) in specs.iter().enumerate() {
            if let Some(view) = spec.constant()
                && !prepared.needs(index)
            {
                self.release(view);
            }
        }
    }

    /// The contents of a constant tensor; `None` for tensors that are not constant.
    pub(crate) fn view(&self, tensor: &TensorIr) -> Option<ConstantView<'a>> {
        let spec = &tensor.spec;
        match &tensor.placement {
            Placement::Constant(ConstantRef::Stored(key)) => Some(ConstantView {
                key: *key,
                data: self.bytes(key)?,
                dtype: spec.dtype,
                offset: 0,
                shape: spec.shape,
                strides: spec.dim_order.strides(&spec.shape),
            }),
            Placement::Constant(ConstantRef::Folded(index)) => {
                let f = self.folded.get(*index as usize)?;
                let data: &'a [u8] = match &f.data {
                    Some(computed) => computed.as_slice(),
                    None => self.bytes(&f.key)?,
                };
                Some(ConstantView {
                    key: f.key,
                    data,
                    dtype: spec.dtype,
                    offset: f.offset,
                    shape: f.shape,
                    strides: f.strides,
                })
            }
            Placement::Planned { .. } | Placement::Unplanned => None,
        }
    }
}

/// A dense copy of a constant view in the tensor's memory order, made once per program.
pub(crate) fn dense_copy(
    packs: &PackStore,
    view: &ConstantView<'_>,
    tensor: &TensorIr,
) -> Result<Arc<PackedBytes>> {
    // Seen through the memory order, the dense copy is row-major; so one key and one loop do.
    let ordered = in_memory_order(view, &tensor.spec.dim_order)?;
    packs.get_or_pack(PackKey::new(&ordered, DENSE.name), || gather(&ordered))
}

/// The elements of a constant view, dense in the memory order of a tensor that it stands for.
pub(crate) fn dense_bytes(view: &ConstantView<'_>, order: &DimOrder) -> Result<AlignedBuffer> {
    gather(&in_memory_order(view, order)?)
}

fn in_memory_order<'a>(view: &ConstantView<'a>, order: &DimOrder) -> Result<ConstantView<'a>> {
    let mut ordered = ConstantView { shape: Dims::EMPTY, strides: Dims::EMPTY, ..*view };
    for d in order.as_slice() {
        let d = usize::from(*d);
        ordered.shape.push(view.shape.get(d).copied().unwrap_or(1))?;
        ordered.strides.push(view.strides.get(d).copied().unwrap_or(0))?;
    }
    Ok(ordered)
}

fn gather(view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let mut out = AlignedBuffer::zeroed(pteron_core::sizes::checked_nbytes(&view.shape, view.dtype)?)?;
    let target = View::contiguous(view.shape).region;
    let source = View::new(view.offset, view.shape, &view.strides).region;
    copy_between(&view.shape, view.dtype, (view.data, source), (out.as_mut_slice(), target))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, Device, Dynamism, TensorSpec};

    #[test]
    fn a_transposed_view_becomes_dense_once() {
        let bytes: Vec<u8> = (0..6u8).collect();
        let view = ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: 6 },
            data: &bytes,
            dtype: DType::UInt8,
            offset: 0,
            shape: Dims::new(&[3, 2]).unwrap(),
            strides: Dims::new(&[1, 3]).unwrap(),
        };
        let mut tensor = TensorIr {
            spec: TensorSpec {
                dtype: DType::UInt8,
                shape: view.shape,
                dim_order: DimOrder::contiguous(2),
                dynamism: Dynamism::Static,
            },
            placement: Placement::Constant(ConstantRef::Folded(0)),
            device: Device::Cpu,
            name: None,
        };
        let packs = PackStore::new();
        let dense = dense_copy(&packs, &view, &tensor).unwrap();
        assert_eq!(dense.as_slice(), [0, 3, 1, 4, 2, 5]);
        dense_copy(&packs, &view, &tensor).unwrap();
        assert_eq!(packs.totals().made, (1, 6));
        tensor.spec.dim_order = DimOrder::new(&[1, 0]).unwrap();
        assert_eq!(dense_copy(&packs, &view, &tensor).unwrap().as_slice(), bytes);
    }
}
