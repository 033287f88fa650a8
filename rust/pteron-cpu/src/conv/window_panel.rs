//! One panel of 32 output channels out of a convolution's weight, [KH, KW, I, 32]. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use crate::packed::pack_block;
use pteron_core::{ConstantView, Dims, Error, Isa, Result};

/// Output channels of a panel.
pub const PANEL: usize = 32;
/// Most rows of 32 that pass through the first-level cache on their way.
const MOST_ROWS: usize = 128;

/// A weight seen as [G, O, I, KH, KW] whose every element is known to be there.
pub(super) struct WindowPanels<'a> {
    isa: Isa,
    data: &'a [f32],
    offset: usize,
    shape: [usize; 5],
    strides: [usize; 5],
}

impl<'a> WindowPanels<'a> {
    /// Checks `view`, five-dimensional. `isa` is this processor's, and only decides how fast it goes.
    ///
    /// Errors: another rank or element type, a view that leaves its storage.
    pub fn new(isa: Isa, view: &ConstantView<'a>) -> Result<Self> {
        let data = view.elements::<f32>()?;
        let (Ok(shape), Ok(strides)) = (<[usize; 5]>::try_from(&*view.shape), (&*view.strides).try_into())
        else {
            return Err(Error::internal("a convolution weight has five dimensions")
                .got(format!("shape {}", view.shape)));
        };
        let windows = WindowPanels { isa, data, offset: view.offset, shape, strides };
        match windows.is_inside() {
            true => Ok(windows),
            false => Err(Error::program("convolution weight leaves its storage")
                .expected(format!("at most {} elements", data.len()))
                .got(format!(
                    "shape {}, strides {}, first element {}",
                    view.shape, view.strides, view.offset
                ))),
        }
    }

    fn is_inside(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let last = self
            .shape
            .iter()
            .zip(self.strides)
            .try_fold(self.offset, |at, (n, stride)| at.checked_add((n - 1).checked_mul(stride)?));
        last.is_some_and(|last| last < self.data.len())
    }

    /// Panels of a group.
    pub fn count(&self) -> usize {
        self.shape[1].div_ceil(PANEL)
    }

    /// Floats of a panel.
    ///
    /// Errors: more than can be addressed.
    pub fn panel_floats(&self) -> Result<usize> {
        let [_, _, inputs, height, width] = self.shape;
        Dims::new(&[inputs, height, width, PANEL])?.numel()
    }

    /// Panel `p` of group `g`, outputs beyond the last as zeros. `to` has [`WindowPanels::panel_floats`].
    pub fn copy(&self, g: usize, p: usize, to: &mut [f32]) {
        let [groups, outputs, inputs, height, width] = self.shape;
        let taps = height * width;
        assert!(g < groups && p < self.count() && to.len() == taps * inputs * PANEL);
        if to.is_empty() {
            return;
        }
        let [group, output, input, down, across] = self.strides;
        let columns = PANEL.min(outputs - p * PANEL);
        let first = &self.data[self.offset + g * group + p * PANEL * output..];
        // Rows of a window one behind the other, windows of neighbours too: one long matrix.
        let is_dense = input == taps && (height == 1 || down == width) && (width == 1 || across == 1);
        if taps == 1 || !is_dense || taps > MOST_ROWS {
            for (tap, rows) in to.chunks_exact_mut(inputs * PANEL).enumerate() {
                let at = tap / width * down + tap % width * across;
                // SAFETY: the view lies in `data` (checked in `new`), so all elements of this panel do; `rows` has
                // 32 elements for each of them; `isa` is this processor's.
                unsafe {
                    let strides = (input, output);
                    pack_block(self.isa, first[at..].as_ptr(), strides, inputs, columns, rows.as_mut_ptr());
                }
            }
            return;
        }
        let mut rows = [[0f32; PANEL]; MOST_ROWS];
        let most = MOST_ROWS / taps;
        for start in (0..inputs).step_by(most) {
            let count = most.min(inputs - start);
            let from = first[start * taps..].as_ptr();
            // SAFETY: as above; element (channel, tap) is at `channel * taps + tap`, and there are at most
            // `MOST_ROWS` of them.
            unsafe {
                pack_block(self.isa, from, (1, output), count * taps, columns, rows.as_mut_ptr().cast())
            };
            for (i, window) in rows.chunks_exact(taps).take(count).enumerate() {
                for (tap, row) in window.iter().enumerate() {
                    let at = (tap * inputs + start + i) * PANEL;
                    to[at..at + PANEL].copy_from_slice(row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::testing::view;
    use pteron_kernels::cpu_detect::available_isas;

    /// Strides of [G, O, I, KH, KW] whose dimensions lie in memory in the order `outermost_first`, with `gap`
    /// elements behind each innermost line.
    fn strides(shape: [usize; 5], outermost_first: [usize; 5], gap: usize) -> [usize; 5] {
        let (mut strides, mut step) = ([0; 5], 1);
        for (i, d) in outermost_first.into_iter().rev().enumerate() {
            strides[d] = step;
            step = step * shape[d].max(1) + if i == 0 { gap } else { 0 };
        }
        strides
    }

    #[test]
    fn every_layout_gives_the_elements_in_their_places() {
        let shapes =
            [[1, 40, 35, 3, 3], [2, 33, 17, 1, 1], [1, 32, 5, 7, 7], [1, 3, 4, 12, 13], [1, 64, 16, 1, 3]];
        let orders = [[0, 1, 2, 3, 4], [0, 1, 3, 4, 2], [0, 2, 1, 3, 4], [0, 1, 2, 4, 3], [4, 3, 2, 1, 0]];
        for (shape, order) in shapes.iter().flat_map(|s| orders.iter().map(move |o| (*s, *o))) {
            for (gap, offset) in [(0, 0), (2, 3)] {
                let strides = strides(shape, order, gap);
                let last: usize = shape.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum();
                // Exactly as long as it has to be.
                let data: Vec<f32> = (0..=offset + last).map(|i| i as f32).collect();
                let view = view(&data, offset, &shape, &strides);
                for isa in available_isas() {
                    let windows = WindowPanels::new(isa, &view).unwrap();
                    let [groups, outputs, inputs, height, width] = shape;
                    for (g, p) in (0..groups).flat_map(|g| (0..windows.count()).map(move |p| (g, p))) {
                        let mut panel = vec![f32::NAN; windows.panel_floats().unwrap()];
                        windows.copy(g, p, &mut panel);
                        for (at, x) in panel.iter().enumerate() {
                            let (o, rest) = (p * PANEL + at % PANEL, at / PANEL);
                            let (i, tap) = (rest % inputs, rest / inputs);
                            assert!(tap < height * width);
                            let want = match o < outputs {
                                true => data[view.position(&[g, o, i, tap / width, tap % width])],
                                false => 0.0,
                            };
                            assert!(
                                *x == want,
                                "{shape:?} {strides:?} {isa:?} {g} {p} {at}: {x}, not {want}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error_and_an_empty_one_is_not() {
        let data = vec![0.0; 36];
        let new = |view: &ConstantView<'_>| WindowPanels::new(Isa::Portable, view).map(|w| w.panel_floats());
        assert!(new(&view(&data, 0, &[1, 2, 2, 3, 3], &[36, 18, 9, 3, 1])).is_ok());
        for bad in [
            view(&data, 1, &[1, 2, 2, 3, 3], &[36, 18, 9, 3, 1]),
            view(&data, 0, &[1, 2, 2, 3, 3], &[36, 19, 9, 3, 1]),
            view(&data, 0, &[2, 2, 2, 3, 3], &[usize::MAX, 18, 9, 3, 1]),
            view(&data, usize::MAX, &[1, 2, 2, 3, 3], &[36, 18, 9, 3, 1]),
        ] {
            let e = new(&bad).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
        let empty = view(&data, 90, &[1, 2, 0, 3, 3], &[36, 18, 9, 3, 1]);
        let windows = WindowPanels::new(Isa::Portable, &empty).unwrap();
        windows.copy(0, 0, &mut []);
    }
}
