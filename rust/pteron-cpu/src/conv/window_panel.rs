//! One panel of 32 output channels out of a convolution's weight, [KH, KW, I, 32]. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use crate::packed::pack_block;
use pteron_core::{ConstantView, Dims, Error, Isa, Result};

/// Output channels of a panel.
pub const PANEL: usize = 32;
/// Most rows of 32 that pass through the first-level cache on their way.
const MOST_ROWS: usize = 128;

/// Rows of windows on their way: 16 KiB, half of the first-level cache.
pub(super) type Rows = [[f32; PANEL]; MOST_ROWS];

/// Nothing yet.
pub(super) const NO_ROWS: Rows = [[0f32; PANEL]; MOST_ROWS];

/// How windows lie in [`Rows`]: rows from a tap to the next, and from a channel to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSteps {
    pub tap: usize,
    pub channel: usize,
}

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

    fn taps(&self) -> usize {
        self.shape[3] * self.shape[4]
    }

    /// Do rows of a window lie one behind the other, and windows of neighbours too, as one long matrix?
    fn is_dense(&self) -> bool {
        let [_, _, _, height, width] = self.shape;
        let [_, _, input, down, across] = self.strides;
        input == self.taps() && (height == 1 || down == width) && (width == 1 || across == 1)
    }

    /// The first element of panel `p` of group `g`, and its output channels that there are.
    fn panel(&self, g: usize, p: usize) -> (&[f32], usize) {
        assert!(g < self.shape[0] && p < self.count());
        let [group, output, ..] = self.strides;
        let columns = PANEL.min(self.shape[1] - p * PANEL);
        (&self.data[self.offset + g * group + p * PANEL * output..], columns)
    }

    /// Most input channels at once of [`WindowPanels::windows`]: none where a window has more taps than fit.
    pub fn most_windows(&self) -> usize {
        MOST_ROWS.checked_div(self.taps()).unwrap_or_default()
    }

    /// The windows of panel `p` of group `g` for `count` input channels from `start` on, outputs beyond the last as
    /// zeros, and how they lie. There are at most [`WindowPanels::most_windows`] of them.
    pub fn windows(&self, g: usize, p: usize, start: usize, count: usize, rows: &mut Rows) -> RowSteps {
        let taps = self.taps();
        assert!(count <= self.most_windows() && start + count <= self.shape[2]);
        let (first, columns) = self.panel(g, p);
        let [_, output, input, ..] = self.strides;
        if count == 0 {
            return RowSteps { tap: 1, channel: taps };
        }
        if self.is_dense() {
            let from = first[start * taps..].as_ptr();
            // SAFETY: the view lies in `data` (checked in `new`), so all elements of this panel do; element
            // (channel, tap) is at `channel * taps + tap`, and `rows` has room for them (asserted); `isa` is this
            // processor's.
            unsafe {
                pack_block(self.isa, from, (1, output), count * taps, columns, rows.as_mut_ptr().cast())
            };
            return RowSteps { tap: 1, channel: taps };
        }
        for (tap, rows) in rows.chunks_exact_mut(count).take(taps).enumerate() {
            let from = first[self.tap_at(tap) + start * input..].as_ptr();
            // SAFETY: as above; a tap of `count` channels is `count` rows.
            unsafe {
                pack_block(self.isa, from, (input, output), count, columns, rows.as_mut_ptr().cast());
            }
        }
        RowSteps { tap: count, channel: 1 }
    }

    /// Where a tap is from the first of its window, in elements.
    fn tap_at(&self, tap: usize) -> usize {
        let ([.., width], [.., down, across]) = (self.shape, self.strides);
        tap / width * down + tap % width * across
    }

    /// Panel `p` of group `g`, outputs beyond the last as zeros. `to` has [`WindowPanels::panel_floats`].
    pub fn copy(&self, g: usize, p: usize, to: &mut [f32]) {
        let (inputs, taps) = (self.shape[2], self.taps());
        assert!(to.len() == taps * inputs * PANEL);
        if to.is_empty() {
            return;
        }
        if taps == 1 || !self.is_dense() || taps > MOST_ROWS {
            let ((first, columns), [_, output, input, ..]) = (self.panel(g, p), self.strides);
            for (tap, rows) in to.chunks_exact_mut(inputs * PANEL).enumerate() {
                // SAFETY: the view lies in `data` (checked in `new`), so all elements of this panel do; `rows` has
                // 32 elements for each of them; `isa` is this processor's.
                unsafe {
                    let from = first[self.tap_at(tap)..].as_ptr();
                    pack_block(self.isa, from, (input, output), inputs, columns, rows.as_mut_ptr());
                }
            }
            return;
        }
        let mut rows = NO_ROWS;
        let most = self.most_windows();
        for start in (0..inputs).step_by(most) {
            let count = most.min(inputs - start);
            self.windows(g, p, start, count, &mut rows);
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
