//! A packed quantised weight as kernels read it: its panels back in f32. Unsafe island.
#![allow(unsafe_code, reason = "panels are read and written by address")]

use super::few_rows::FewRowsTask;
use super::panels::Width;
use crate::gemm::{FewRows, PanelSource};
use crate::packed::f32_nr32_v1::NR;
use pteron_core::PackedBytes;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;
use std::sync::Arc;

/// A weight of K rows and N columns.
pub(super) struct Weights {
    pub width: Width,
    /// Panels of [`super::panels`].
    pub quantised: Arc<PackedBytes>,
    /// [groups, N] in panels of f32.
    pub scales: Arc<PackedBytes>,
    /// Like the scales.
    pub zeros: Option<Arc<PackedBytes>>,
    pub k: usize,
    pub n: usize,
    /// k that share a scale.
    pub group: usize,
}

/// Where the parts of a panel begin.
#[derive(Clone, Copy)]
pub(super) struct PanelAt {
    pub quantised: *const i8,
    pub scales: *const f32,
    /// Null for none.
    pub zeros: *const f32,
}

impl Weights {
    /// Panel `p`.
    pub fn panel(&self, p: usize) -> PanelAt {
        let parameters = p * self.k.div_ceil(self.group) * NR;
        PanelAt {
            quantised: self
                .quantised
                .as_ptr()
                .cast::<i8>()
                .wrapping_add(p * self.width.byte_rows(self.k) * NR),
            scales: self.scales.as_ptr().cast::<f32>().wrapping_add(parameters),
            zeros: self
                .zeros
                .as_ref()
                .map_or(std::ptr::null(), |zeros| zeros.as_ptr().cast::<f32>().wrapping_add(parameters)),
        }
    }
}

impl PanelSource for Weights {
    fn format(&self) -> &'static str {
        self.width.format().name
    }

    unsafe fn unpack(&self, level: SimdLevel, panel: usize, k: Range<usize>, to: *mut f32) {
        level.dispatch(Unpack { panel: self.panel(panel), width: self.width, group: self.group, k, to });
    }

    unsafe fn multiply_few(&self, level: SimdLevel, rows: &FewRows, panels: Range<usize>) {
        level.dispatch(FewRowsTask { weights: self, rows, panels });
    }
}

/// Rows `k` of a panel, each `(q - zero point) * scale`.
struct Unpack {
    panel: PanelAt,
    width: Width,
    group: usize,
    k: Range<usize>,
    to: *mut f32,
}

impl SimdTask for Unpack {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut k = self.k.start;
        while k < self.k.end {
            let group = k / self.group;
            let end = self.k.end.min((group + 1) * self.group);
            for lane in (0..NR).step_by(S::LANES) {
                // SAFETY: group and rows are inside the panel, 32 values for each row from `k.start` on may be written: the
                // caller of `PanelSource::unpack` promises the rows, and packs have the size for K and N.
                unsafe {
                    let at = group * NR + lane;
                    let scale = s.load(self.panel.scales.add(at));
                    let zero =
                        if self.panel.zeros.is_null() { s.zero() } else { s.load(self.panel.zeros.add(at)) };
                    self.rows(s, k..end, lane, (scale, zero));
                }
            }
            k = end;
        }
    }
}

impl Unpack {
    /// One vector of columns, from `lane` on, of rows of a group.
    ///
    /// # Safety
    /// The rows are inside the panel and those to be written.
    #[inline(always)]
    unsafe fn rows<S: Simd>(&self, s: S, rows: Range<usize>, lane: usize, (scale, zero): (S::F, S::F)) {
        let from = self.panel.quantised.wrapping_add(lane);
        let to = self.to.wrapping_add(lane);
        let first = self.k.start;
        let put = |row: usize, x: S::F| {
            // SAFETY: row `row` is one of those that are written, the caller's promise.
            unsafe { s.store(to.add((row - first) * NR), s.mul(s.sub(x, zero), scale)) }
        };
        // SAFETY: rows of bytes of the panel, the caller's promise.
        unsafe {
            match self.width {
                Width::Byte => {
                    for row in rows {
                        put(row, s.to_float(s.load_i8(from.add(row * NR))));
                    }
                }
                Width::Nibble => {
                    for pair in rows.start / 2..rows.end.div_ceil(2) {
                        let (low, high) = s.nibbles(s.load_i8(from.add(pair * NR)));
                        if 2 * pair >= rows.start {
                            put(2 * pair, low);
                        }
                        if 2 * pair + 1 < rows.end {
                            put(2 * pair + 1, high);
                        }
                    }
                }
            }
        }
    }
}
