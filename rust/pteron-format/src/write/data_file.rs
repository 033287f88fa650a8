//! Data files: names and tensors to bytes.

use super::container::{with_gap, write_header};
use super::file_layout::FileLayout;
use super::segment_layout::place_keyed;
use super::segments::{Segments, align_up, lcm, too_large};
use super::table_memory::{Builder, built};
use super::write_options::check_alignment;
use crate::generated::data_wire;
use crate::header::{DATA_HEADER_LEN, DATA_HEADER_MAGIC, DATA_IDENTIFIER};
use crate::read;
use pteron_core::memory_reserve::within_memory_limit;
use pteron_core::{Error, Result};
use std::borrow::Cow;

/// Alignment that readers give the table; the header is padded to it.
const TABLE_ALIGNMENT: usize = 16;

/// A data file to write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataFileDraft<'a> {
    /// Its entries, in this order.
    pub entries: Vec<DataEntryDraft<'a>>,
}

/// Named bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct DataEntryDraft<'a> {
    /// Name, unique in the file.
    pub key: String,
    /// The bytes.
    pub data: Cow<'a, [u8]>,
    /// The bytes start at a multiple of this in the file, besides the segment alignment.
    pub alignment: u32,
    /// The tensor that they are.
    pub layout: Option<LayoutDraft>,
}

/// Raw fields of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutDraft {
    /// dtype code of the format.
    pub scalar_type: i8,
    /// Extents.
    pub sizes: Vec<i32>,
    /// Memory order.
    pub dim_order: Vec<u8>,
}

impl DataFileDraft<'_> {
    /// Lays the file out without copying the data. Every distinct content is stored once, at a multiple of
    /// `segment_alignment`.
    ///
    /// # Errors
    /// `ErrorKind::ExternalData` when the draft is not a legal data file, `ErrorKind::Program` when an
    /// alignment cannot be kept, `ErrorKind::LimitExceeded` when it is too large.
    pub fn lay_out(&self, segment_alignment: u32) -> Result<FileLayout<'_>> {
        within_memory_limit(|| self.arranged(segment_alignment))
    }

    fn arranged(&self, segment_alignment: u32) -> Result<FileLayout<'_>> {
        check_alignment("segment_alignment", segment_alignment)?;
        let wanted = self.entries.iter().map(|e| (e.key.as_str(), e.data.as_ref(), e.alignment));
        let mut segments = Vec::new();
        let placed = place_keyed(wanted, u64::from(segment_alignment), &mut segments)?;
        let segments = Segments::arrange(segments)?;
        let table = built(|b| self.table(b, &segments, &placed))?;
        let inserted = DATA_HEADER_LEN.next_multiple_of(TABLE_ALIGNMENT);
        let mut head = with_gap(&table, inserted)?;
        // The base is aligned as if there were data, so that the layout of an empty file is no special case.
        let alignment = lcm(segments.base_alignment, u64::from(segment_alignment))?;
        let base = align_up(head.len() as u64, alignment)?;
        let numbers = [inserted as u64, table.len() as u64, base, segments.total];
        write_header(&mut head, DATA_HEADER_MAGIC, &numbers)?;
        let layout = segments.behind(head, base)?;
        let len = usize::try_from(layout.len).map_err(|_| too_large())?;
        read::data_file(&layout.head, len)
            .map_err(|e| e.hint("the data given to the writer is illegal; nothing was written"))?;
        Ok(layout)
    }

    fn table(&self, b: &mut Builder<'_>, segments: &Segments<'_>, placed: &[u32]) -> Result<()> {
        let extents: Vec<_> = segments
            .extents
            .iter()
            .map(|(offset, size)| {
                data_wire::DataSegment::create(
                    b,
                    &data_wire::DataSegmentArgs { offset: *offset, size_: *size },
                )
            })
            .collect();
        let mut named = Vec::new();
        for (entry, segment_index) in self.entries.iter().zip(placed) {
            let tensor_layout = entry.layout.as_ref().map(|l| {
                let args = data_wire::TensorLayoutArgs {
                    scalar_type: crate::generated::data_scalar_type(l.scalar_type),
                    sizes: Some(b.create_vector(&l.sizes)),
                    dim_order: Some(b.create_vector(&l.dim_order)),
                };
                data_wire::TensorLayout::create(b, &args)
            });
            let key = Some(b.create_string(&entry.key));
            let args = data_wire::NamedDataArgs { key, segment_index: *segment_index, tensor_layout };
            named.push(data_wire::NamedData::create(b, &args));
        }
        let args = data_wire::FlatTensorArgs {
            version: 0,
            segments: Some(b.create_vector(&extents)),
            named_data: Some(b.create_vector(&named)),
        };
        let root = data_wire::FlatTensor::create(b, &args);
        b.finish(root, Some(DATA_IDENTIFIER));
        Ok(())
    }
}

impl LayoutDraft {
    /// A contiguous tensor.
    ///
    /// # Errors
    /// When the rank or an extent does not fit the format.
    pub fn contiguous(dtype: pteron_core::DType, shape: &[usize]) -> Result<Self> {
        let too_large = || Error::program("a shape does not fit the format").got(format!("{shape:?}"));
        let sizes =
            shape.iter().map(|d| i32::try_from(*d)).collect::<Result<_, _>>().map_err(|_| too_large())?;
        let rank = u8::try_from(shape.len()).map_err(|_| too_large())?;
        Ok(LayoutDraft { scalar_type: dtype.code(), sizes, dim_order: (0..rank).collect() })
    }
}
