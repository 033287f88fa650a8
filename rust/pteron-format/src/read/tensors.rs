//! Tensor values: dtype, shape, memory order, and where their bytes are.

use super::place;
use super::stored_data::StoredData;
use super::tensor_layout::{layout_spec, unknown_code};
use crate::generated::wire;
use crate::{Placement, StoredBytes, TensorDef};
use pteron_core::{DType, Device, Dynamism, Error, Result, TensorSpec};

/// What a tensor's fields refer to.
pub(super) struct TensorContext<'a> {
    /// Constants of the program.
    pub constants: &'a StoredData,
    /// First contents of mutable buffers.
    pub initial: &'a StoredData,
    /// Bytes of each arena of the method.
    pub arenas: &'a [usize],
}

impl TensorContext<'_> {
    /// Checks every field of `tensor`.
    pub fn read(&self, tensor: &wire::Tensor<'_>) -> Result<TensorDef> {
        let spec = spec(tensor)?;
        check_fixed_fields(tensor)?;
        let nbytes = spec.nbytes()?;
        let extra = tensor.extra_tensor_info();
        let device = extra.as_ref().map_or(Ok(Device::Cpu), |e| device(e.device_type(), e.device_index()))?;
        let name = extra.as_ref().and_then(|e| e.fully_qualified_name()).map(place::name).transpose()?;
        let is_external = match extra.as_ref().map(|e| e.location()) {
            None | Some(wire::TensorDataLocation::SEGMENT) => false,
            Some(wire::TensorDataLocation::EXTERNAL) => true,
            Some(other) => return Err(unknown_code("data location", other.0)),
        };
        let external_name = match (is_external, &name) {
            (false, _) => None,
            (true, Some(name)) => Some(name.clone()),
            (true, None) => {
                return Err(Error::program(
                    "the tensor's data is in a data file, but the tensor has no name",
                )
                .expected("a fully_qualified_name"));
            }
        };
        let stored = tensor.data_buffer_idx();
        let placement = match tensor.allocation_info() {
            Some(allocation) => {
                let initial = match external_name {
                    Some(name) => Some(StoredBytes::External(name)),
                    None if stored == 0 => None,
                    None => Some(StoredBytes::InFile(self.initial.range(stored, nbytes, "initial data")?)),
                };
                self.planned(&allocation, spec.dtype, nbytes, initial)?
            }
            None => match external_name {
                Some(name) => Placement::Constant(StoredBytes::External(name)),
                None if stored == 0 => Placement::Unplanned,
                None => self.constant(stored, spec.dtype, nbytes)?,
            },
        };
        Ok(TensorDef { spec, placement, device, name })
    }

    fn constant(&self, index: u32, dtype: DType, nbytes: usize) -> Result<Placement> {
        let range = self.constants.range(index, nbytes, "constant")?;
        check_aligned("the constant", range.start, dtype)?;
        Ok(Placement::Constant(StoredBytes::InFile(range)))
    }

    fn planned(
        &self,
        allocation: &wire::AllocationDetails<'_>,
        dtype: DType,
        nbytes: usize,
        initial: Option<StoredBytes>,
    ) -> Result<Placement> {
        let id = allocation.memory_id();
        let arena = id.checked_sub(1).filter(|a| (*a as usize) < self.arenas.len()).ok_or_else(|| {
            Error::program("the tensor is planned in an arena that does not exist")
                .expected(format!("a memory_id from 1 to {}", self.arenas.len()))
                .got(id.to_string())
        })?;
        let size = self.arenas.get(arena as usize).copied().unwrap_or(0);
        let offset =
            u64::from(allocation.memory_offset_low()) | u64::from(allocation.memory_offset_high()) << 32;
        let offset = usize::try_from(offset)
            .ok()
            .filter(|o| o.checked_add(nbytes).is_some_and(|end| end <= size))
            .ok_or_else(|| {
                Error::program("the tensor does not fit its arena")
                    .expected(format!("a range within the {size} bytes of arena {id}"))
                    .got(format!("offset {offset}, {nbytes} bytes"))
            })?;
        check_aligned("the planned memory", offset, dtype)?;
        Ok(Placement::Planned { arena, offset, initial })
    }
}

fn spec(tensor: &wire::Tensor<'_>) -> Result<TensorSpec> {
    let mut spec = layout_spec(tensor.scalar_type().0, tensor.sizes(), tensor.dim_order())?;
    spec.dynamism = match tensor.shape_dynamism() {
        wire::TensorShapeDynamism::STATIC => Dynamism::Static,
        wire::TensorShapeDynamism::DYNAMIC_BOUND => Dynamism::Bounded,
        wire::TensorShapeDynamism::DYNAMIC_UNBOUND => {
            return Err(Error::program("the tensor has a shape without upper bound")
                .expected("static or bounded extents")
                .got("DYNAMIC_UNBOUND")
                .hint("export with an upper bound for every dynamic dimension: torch.export.Dim(max=...)"));
        }
        other => return Err(unknown_code("shape dynamism", other.0)),
    };
    Ok(spec)
}

fn check_fixed_fields(tensor: &wire::Tensor<'_>) -> Result<()> {
    if tensor.storage_offset() != 0 {
        return Err(Error::program("the tensor begins inside its storage")
            .expected("storage_offset 0")
            .got(tensor.storage_offset().to_string()));
    }
    if tensor.layout() != 0 {
        return Err(Error::program("the tensor is not dense")
            .expected("layout 0 (strided)")
            .got(format!("layout {}", tensor.layout()))
            .hint("sparse tensors cannot be run; convert them with to_dense() before export"));
    }
    Ok(())
}

/// The device of a type and an index; that of the CPU means nothing.
pub(super) fn device(kind: wire::DeviceType, index: i8) -> Result<Device> {
    match kind {
        wire::DeviceType::CPU => Ok(Device::Cpu),
        wire::DeviceType::CUDA => u8::try_from(index).map(Device::Cuda).map_err(|_| {
            Error::program("the index of a device is negative")
                .expected("an index from 0 to 127")
                .got(index.to_string())
        }),
        other => Err(unknown_code("device type", other.0)),
    }
}

fn check_aligned(what: &str, offset: usize, dtype: DType) -> Result<()> {
    let align = dtype.align();
    if offset.is_multiple_of(align) {
        return Ok(());
    }
    Err(Error::program(format!("{what} is misaligned for its dtype"))
        .expected(format!("an offset that is a multiple of {align} for {}", dtype.name()))
        .got(offset.to_string()))
}
