//! `s8_nr32k4_v1`: the packed form of int8 weights for dot products of bytes.
//!
//! The weight is seen with its output channels N last; the dimensions before, in order, count K products.
//!
//! - The columns are cut into ⌈N / 32⌉ *panels* of 32, in order.
//! - A panel is ⌈K / 4⌉ *quads* of 128 bytes: byte 4 c + j of quad q is `B[4 q + j, 32 p + c]`; behind them 32 sums, int32,
//!   little-endian: the sum of column 32 p + c over all of K, wrapping.
//! - Rows beyond K and columns beyond N are zero.
//! - Panels follow one another without gaps or header: ⌈N / 32⌉ · (⌈K / 4⌉ + 1) · 128 bytes. The start is 64-byte aligned.

use super::PackedFormat;
pub use super::block::NR;
use super::in_parts;
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Error, PackKey, PackStore, PackedBytes, Result,
};
use std::sync::Arc;

/// The name of the format in keys, files and listings.
pub const FORMAT: &str = "s8_nr32k4_v1";
/// Products that a dot product adds.
pub const QUAD: usize = 4;
/// Bytes of a quad of all columns of a panel, and of its sums.
const LINE: usize = NR * QUAD;

/// The format as a table entry: any shape of at least two dimensions, output channels last.
pub const PACKED: PackedFormat = PackedFormat {
    name: FORMAT,
    dtype: Some(DType::Int8),
    elements: |shape| {
        let (n, inner) = shape.split_last().filter(|(_, inner)| !inner.is_empty())?;
        let k = inner.iter().try_fold(1, |k: usize, d| k.checked_mul(*d))?;
        panel_bytes(k)?.checked_mul(n.div_ceil(NR))
    },
};

/// Bytes of a panel; `None` when they cannot be counted.
fn panel_bytes(k: usize) -> Option<usize> {
    k.div_ceil(QUAD).checked_add(1)?.checked_mul(LINE)
}

/// Panels of a packed weight, with their sums.
#[derive(Clone)]
pub struct Panels {
    bytes: Arc<PackedBytes>,
    /// Products of an output element.
    pub k: usize,
}

impl Panels {
    /// The shared packed copy of `view` from `packs`, made when it is the first use.
    ///
    /// Errors: rank below 2, dtype other than int8, a view that leaves its storage, no memory.
    pub fn get_or_pack(packs: &PackStore, cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<Panels> {
        let bytes = packs.get_or_pack(PackKey::new(view, FORMAT), || pack(cpu.load_threads, view))?;
        Ok(Panels { bytes, k: rows(view)?.iter().product() })
    }

    /// Bytes from a panel to the next.
    pub fn stride(&self) -> usize {
        (self.k.div_ceil(QUAD) + 1) * LINE
    }

    /// The first panel.
    pub fn as_ptr(&self) -> *const i8 {
        self.bytes.as_ptr().cast()
    }

    /// The sum of column `column`; zero of one that is not there.
    pub fn sum(&self, column: usize) -> i32 {
        let at = (column / NR + 1) * self.stride() - LINE + column % NR * size_of::<i32>();
        let bytes = self.bytes.as_elements::<u8>().get(at..at + size_of::<i32>());
        bytes.and_then(|b| b.try_into().ok()).map_or(0, i32::from_le_bytes)
    }
}

/// Extents of the dimensions that count products.
fn rows<'a>(view: &'a ConstantView<'_>) -> Result<&'a [usize]> {
    view.shape.split_last().map(|(_, inner)| inner).filter(|inner| !inner.is_empty()).ok_or_else(|| {
        Error::internal("a weight to pack has at least two dimensions").got(format!("shape {}", view.shape))
    })
}

/// Packs `view`, whose output channels are last. `threads` only decides how fast it goes.
///
/// Errors as [`Panels::get_or_pack`].
pub fn pack(threads: usize, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let data = view.elements::<i8>()?;
    let inner = rows(view)?;
    let mut packed = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Int8, &view.shape)?)?;
    let (Some(n), Some(column_step)) = (view.shape.last(), view.strides.last()) else { return Ok(packed) };
    // Where each product of column 0 lies.
    let mut places = vec![view.offset];
    for (extent, stride) in inner.iter().zip(view.strides.iter()) {
        let steps = (0..*extent).map(|i| i.saturating_mul(*stride)).collect::<Vec<_>>();
        places = places.iter().flat_map(|at| steps.iter().map(move |s| at.saturating_add(*s))).collect();
    }
    let last =
        places.iter().max().map(|at| at.saturating_add(n.saturating_sub(1).saturating_mul(*column_step)));
    if *n == 0 || last.is_none_or(|last| last >= data.len()) {
        return match *n == 0 || places.is_empty() {
            true => Ok(packed),
            false => Err(Error::program("a constant's view leaves its storage")
                .expected(format!("at most {} elements", data.len()))
                .got(format!(
                    "shape {}, strides {}, first element {}",
                    view.shape, view.strides, view.offset
                ))),
        };
    }
    let panel = (places.len().div_ceil(QUAD) + 1) * LINE / size_of::<f32>();
    in_parts(threads, packed.as_mut_elements::<f32>(), panel, &|p, panel| {
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(panel);
        let quads = bytes.len() - LINE;
        let (quads, sums) = bytes.split_at_mut(quads);
        let mut totals = [0i32; NR];
        for (quad, places) in quads.chunks_exact_mut(LINE).zip(places.chunks(QUAD)) {
            for (c, (slots, total)) in quad.chunks_exact_mut(QUAD).zip(&mut totals).enumerate() {
                let column = p * NR + c;
                if column >= *n {
                    break;
                }
                for (slot, place) in slots.iter_mut().zip(places) {
                    // Every place of the last column is inside, as was checked.
                    *slot = data[place + column * column_step];
                    *total = total.wrapping_add(i32::from(*slot));
                }
            }
        }
        let sums: &mut [u8] = bytemuck::cast_slice_mut(sums);
        for (bytes, total) in sums.chunks_exact_mut(size_of::<i32>()).zip(totals) {
            bytes.copy_from_slice(&total.to_le_bytes());
        }
    });
    Ok(packed)
}

/// The exact weight again: K x N values, row-major.
///
/// Errors when `packed` has another size than K and N ask for.
pub fn unpack(packed: &PackedBytes, k: usize, n: usize) -> Result<Vec<i8>> {
    let stride = panel_bytes(k).unwrap_or(usize::MAX);
    if Some(packed.len()) != stride.checked_mul(n.div_ceil(NR)) {
        return Err(Error::program("a packed weight has the wrong size")
            .expected(format!("{FORMAT} for {k} rows of {n} columns"))
            .got(format!("{} bytes", packed.len())));
    }
    let bytes = packed.as_elements::<i8>();
    let at = |row: usize, column: usize| {
        column / NR * stride + row / QUAD * LINE + column % NR * QUAD + row % QUAD
    };
    let place = |i: usize| bytes[at(i / n, i % n)];
    Ok((0..k * n).map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pteron_core::{ConstantKey, Dims};

    fn view<'a>(data: &'a [i8], offset: usize, shape: &[usize], strides: &[usize]) -> ConstantView<'a> {
        ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
            data: bytemuck::cast_slice(data),
            dtype: DType::Int8,
            offset,
            shape: Dims::new(shape).unwrap(),
            strides: Dims::new(strides).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn unpacking_gives_the_weights_back(k in 0usize..40, n in 0usize..100, kind in 0..3, offset in 0usize..3) {
            let strides = match kind { 0 => [n, 1], 1 => [1, k], _ => [n + 5, 1] };
            let len = offset + (k * strides[0] + n * strides[1]) + 1;
            let data: Vec<i8> = (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as i8).collect();
            let v = view(&data, offset, &[k, n], &strides);
            let packed: PackedBytes = pack(1 + k % 3, &v).unwrap().into();
            prop_assert_eq!(packed.len(), n.div_ceil(32) * (k.div_ceil(4) + 1) * 128);
            let back = unpack(&packed, k, n).unwrap();
            prop_assert_eq!(&back, &v.to_vec::<i8>().unwrap());
            let panels = Panels { bytes: Arc::new(packed), k };
            for c in 0..n {
                let sum: i32 = (0..k).map(|r| i32::from(back[r * n + c])).sum();
                prop_assert_eq!(panels.sum(c), sum);
            }
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        // [O, I, KH, KW] with its outputs last.
        let (o, i, kh, kw) = (40, 3, 2, 2);
        let data: Vec<i8> = (0..o * i * kh * kw).map(|v| v as i8).collect();
        let v = view(&data, 0, &[kh, kw, i, o], &[kw, 1, kh * kw, i * kh * kw]);
        let packed = pack(1, &v).unwrap();
        let bytes = packed.as_elements::<i8>();
        // Product (1, 0, 2) of output 33: number 8, so quad 2.
        let at = (3 + 1) * 128 + 2 * 128 + 4;
        assert_eq!(bytes[at], data[33 * 12 + 2 * 4 + 2]);
        assert!(bytes[(3 + 1) * 128 + 8 * 4..(3 + 1) * 128 + 128].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error() {
        let data = vec![0; 12];
        assert!(pack(1, &view(&data, 0, &[3, 4], &[4, 1])).is_ok());
        for bad in [view(&data, 1, &[3, 4], &[4, 1]), view(&data, 0, &[3, 4], &[usize::MAX, 1])] {
            let e = pack(1, &bad).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
        assert!(pack(1, &view(&data, 0, &[12], &[1])).is_err());
        assert!(unpack(&AlignedBuffer::zeroed(64).unwrap().into(), 3, 4).is_err());
        assert_eq!((PACKED.elements)(&[usize::MAX, 2, 33]), None);
    }
}
