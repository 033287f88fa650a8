//! `bf16_nr32k2_v1` and `f16_nr32_v1`: packed forms of a right-hand matrix B of 16-bit floats with K rows (input features)
//! and N columns (output features).
//!
//! - The columns are cut into ⌈N / 32⌉ *panels* of 32, in order. Columns beyond N, in the last panel, are zero.
//! - `bf16_nr32k2_v1`: a panel is ⌈K / 2⌉ rows of 32 pairs: row i holds `B[2i, column]` and `B[2i + 1, column]` side by
//!   side, as AVX-512 BF16 multiplies them; zero beyond K.
//! - `f16_nr32_v1`: a panel is K rows of 32 values: row k holds `B[k, 32p .. 32p + 32]`.
//! - Panels follow one another without gaps or header. The start is 64-byte aligned.
//!
//! Unsafe island.
#![allow(unsafe_code, reason = "panels are read and written by address")]

use super::few_rows::FewRowsTask;
use crate::gemm::{FewRows, PanelSource};
use crate::packed::f32_nr32_v1::{NR, panel_count};
use crate::packed::{PackedFormat, in_parts, pack_block};
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Error, PackKey, PackStore, PackedBytes, Result,
};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;
use std::sync::Arc;

/// Pairs of bfloat16.
pub const BRAIN: PackedFormat = PackedFormat {
    name: "bf16_nr32k2_v1",
    dtype: Some(DType::BFloat16),
    elements: |shape| matrix_elements(Form::Brain, shape),
};

/// Rows of float16.
pub const BINARY: PackedFormat = PackedFormat {
    name: "f16_nr32_v1",
    dtype: Some(DType::Float16),
    elements: |shape| matrix_elements(Form::Binary, shape),
};

/// How a matrix is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// [`BRAIN`].
    Brain,
    /// [`BINARY`].
    Binary,
}

impl Form {
    /// That of matrices of `dtype`.
    pub fn of(dtype: DType) -> Option<Form> {
        match dtype {
            DType::BFloat16 => Some(Form::Brain),
            DType::Float16 => Some(Form::Binary),
            _ => None,
        }
    }

    /// The format.
    pub fn format(self) -> &'static PackedFormat {
        match self {
            Form::Brain => &BRAIN,
            Form::Binary => &BINARY,
        }
    }

    /// Numbers of a panel of `k` rows.
    fn panel_elements(self, k: usize) -> Option<usize> {
        let rows = match self {
            Form::Brain => k.checked_next_multiple_of(2)?,
            Form::Binary => k,
        };
        rows.checked_mul(NR)
    }
}

fn matrix_elements(form: Form, shape: &[usize]) -> Option<usize> {
    let &[k, n] = shape else { return None };
    panel_count(n).checked_mul(form.panel_elements(k)?)
}

/// A packed matrix of K rows and N columns.
pub(super) struct Panels {
    pub form: Form,
    packed: Arc<PackedBytes>,
    pub k: usize,
    pub n: usize,
}

impl Panels {
    /// The shared packed copy of `view` (K x N, any strides).
    ///
    /// Errors: rank other than 2, a view that leaves its storage, no memory.
    pub fn get_or_pack(
        packs: &PackStore,
        cpu: &CpuProfile,
        view: &ConstantView<'_>,
        form: Form,
    ) -> Result<Panels> {
        let packed = packs.get_or_pack(PackKey::new(view, form.format().name), || pack(cpu, view, form))?;
        let &[k, n] = &*view.shape else { return Err(no_matrix(view)) };
        Ok(Panels { form, packed, k, n })
    }

    /// The first number of panel `p`.
    pub fn panel(&self, p: usize) -> *const u16 {
        let elements = self.form.panel_elements(self.k).unwrap_or(0);
        self.packed.as_ptr().cast::<u16>().wrapping_add(p * elements)
    }
}

impl PanelSource for Panels {
    fn format(&self) -> &'static str {
        self.form.format().name
    }

    unsafe fn unpack(&self, level: SimdLevel, panel: usize, k: Range<usize>, to: *mut f32) {
        level.dispatch(Unpack { panel: self.panel(panel), form: self.form, k, to });
    }

    unsafe fn multiply_few(&self, level: SimdLevel, rows: &FewRows, panels: Range<usize>) {
        level.dispatch(FewRowsTask { matrix: self, rows, panels });
    }
}

/// Rows `k` of a panel in f32.
struct Unpack {
    panel: *const u16,
    form: Form,
    k: Range<usize>,
    to: *mut f32,
}

impl SimdTask for Unpack {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Range { start, end } = self.k;
        for lane in (0..NR).step_by(S::LANES) {
            let put = |row: usize, v: S::F| {
                // SAFETY: row `row` is one of those that the caller of `PanelSource::unpack` has room for.
                unsafe { s.store(self.to.wrapping_add((row - start) * NR + lane), v) }
            };
            // SAFETY: rows `start..end` of the panel exist, as the caller of `PanelSource::unpack` promises.
            unsafe {
                match self.form {
                    Form::Brain => {
                        let first = self.panel.cast::<f32>().wrapping_add(lane);
                        for pair in start / 2..end.div_ceil(2) {
                            let (low, high) = s.brain16_pair(s.load(first.add(pair * NR)));
                            if 2 * pair >= start {
                                put(2 * pair, low);
                            }
                            if 2 * pair + 1 < end {
                                put(2 * pair + 1, high);
                            }
                        }
                    }
                    Form::Binary => {
                        let first = self.panel.wrapping_add(lane);
                        for row in start..end {
                            put(row, s.load_binary16(first.add(row * NR)));
                        }
                    }
                }
            }
        }
    }
}

#[cold]
fn no_matrix(view: &ConstantView<'_>) -> Error {
    Error::internal("only a matrix can be packed").got(format!("shape {}", view.shape))
}

/// Rows that are packed together: what is written of them stays in the first-level cache.
const ROWS: usize = 128;

fn pack(cpu: &CpuProfile, view: &ConstantView<'_>, form: Form) -> Result<AlignedBuffer> {
    let (&[k, n], &[stride_k, stride_n]) = (&*view.shape, &*view.strides) else {
        return Err(no_matrix(view));
    };
    // Bytes, whatever the element type: both are 16 bits wide.
    let elements: &[u16] = bytemuck::try_cast_slice(view.data)
        .map_err(|_| Error::program("a constant of 16-bit floats is not aligned to them"))?;
    let nbytes = form.format().nbytes(view.dtype, &view.shape)?;
    let mut packed = AlignedBuffer::zeroed_to_keep(nbytes)?;
    let Some(panel_elements) = form.panel_elements(k).filter(|n| *n > 0 && nbytes > 0) else {
        return Ok(packed);
    };
    let last = |extent: usize, stride: usize| extent.saturating_sub(1).checked_mul(stride);
    let last = last(k, stride_k)
        .zip(last(n, stride_n))
        .and_then(|(a, b)| a.checked_add(b)?.checked_add(view.offset));
    if last.is_none_or(|last| last >= elements.len()) {
        return Err(Error::program("a constant's view leaves its storage")
            .expected(format!("at most {} elements", elements.len()))
            .got(format!("shape {}, strides {}, first element {}", view.shape, view.strides, view.offset)));
    }
    let elements = elements.get(view.offset..).unwrap_or_default();
    // Columns whose neighbours along k are pairs already are moved pair by pair.
    let are_pairs = form == Form::Brain
        && (stride_k, k % 2, stride_n % 2) == (1, 0, 0)
        && elements.as_ptr().cast::<f32>().is_aligned();
    in_parts(cpu.load_threads, packed.as_mut_elements::<u16>(), panel_elements, &|p, panel| {
        let columns = p * NR..n.min(p * NR + NR);
        if are_pairs {
            let from = elements.as_ptr().wrapping_add(columns.start * stride_n).cast::<f32>();
            // SAFETY: the last element of the view is inside `elements` (checked above), aligned to pairs, and so are all
            // of this panel; `panel` has ⌈k / 2⌉ rows of 32 pairs in memory aligned to 64; `isa` is of this processor's profile.
            unsafe {
                let to = panel.as_mut_ptr().cast::<f32>();
                pack_block(cpu.isa, from, (1, stride_n / 2), k / 2, columns.len(), to);
            }
            return;
        }
        for first in (0..k).step_by(ROWS) {
            for (lane, column) in columns.clone().enumerate() {
                for row in first..k.min(first + ROWS) {
                    let at = match form {
                        Form::Brain => (row / 2 * NR + lane) * 2 + row % 2,
                        Form::Binary => row * NR + lane,
                    };
                    panel[at] = elements[row * stride_k + column * stride_n];
                }
            }
        }
    });
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{ConstantKey, Dims};
    use pteron_kernels::cpu_detect::{available_isas, profile_for};

    fn view<'a>(
        data: &'a [u16],
        dtype: DType,
        offset: usize,
        shape: &[usize],
        strides: &[usize],
    ) -> ConstantView<'a> {
        ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: size_of_val(data) as u64 },
            data: bytemuck::cast_slice(data),
            dtype,
            offset,
            shape: Dims::new(shape).unwrap(),
            strides: Dims::new(strides).unwrap(),
        }
    }

    #[test]
    fn every_number_is_where_the_format_says() {
        for (form, dtype) in [(Form::Brain, DType::BFloat16), (Form::Binary, DType::Float16)] {
            for [k, n, offset] in
                [[1, 1, 0], [7, 33, 1], [300, 64, 2], [34, 40, 0], [257, 31, 1], [0, 5, 0], [5, 0, 0]]
            {
                // Every bit pattern must survive, NaN payloads too.
                let len = offset + (k + 6) * (n + 6);
                let data: Vec<u16> = (0..len as u32).map(|i| i.wrapping_mul(40503) as u16).collect();
                for strides in [[n, 1], [1, k], [1, k + 4], [n + 3, 1]] {
                    let view = view(&data, dtype, offset, &[k, n], &strides);
                    for isa in available_isas() {
                        let cpu = CpuProfile { load_threads: 1 + k % 3, ..profile_for(isa).unwrap() };
                        let packed = pack(&cpu, &view, form).unwrap();
                        let rows = if form == Form::Brain { k.next_multiple_of(2) } else { k };
                        let got = packed.as_elements::<u16>();
                        assert_eq!(got.len(), n.div_ceil(32) * 32 * rows);
                        for (row, column) in
                            (0..rows).flat_map(|r| (0..n.next_multiple_of(32)).map(move |c| (r, c)))
                        {
                            let want = match row < k && column < n {
                                true => data[offset + row * strides[0] + column * strides[1]],
                                false => 0,
                            };
                            let (panel, lane) = (column / 32 * 32 * rows, column % 32);
                            let at = match form {
                                Form::Brain => row / 2 * 64 + 2 * lane + row % 2,
                                Form::Binary => row * 32 + lane,
                            };
                            assert_eq!(got[panel + at], want, "{form:?} {isa:?} {k}x{n} {row} {column}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error() {
        let data = vec![0u16; 12];
        let cpu = profile_for(pteron_core::Isa::Portable).unwrap();
        for strides in [[4, 2], [usize::MAX, 1]] {
            let e = pack(&cpu, &view(&data, DType::BFloat16, 0, &[3, 4], &strides), Form::Brain).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
        assert!(pack(&cpu, &view(&data, DType::BFloat16, 0, &[12], &[1]), Form::Brain).is_err());
        assert!(pack(&cpu, &view(&data, DType::Float16, 0, &[3, 4], &[4, 1]), Form::Brain).is_err());
    }
}
