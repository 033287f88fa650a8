//! A block of tiles × a group of panels: inputs are transformed, multiplied, transformed back. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::weights::POINTS;
use super::{Split, Winograd};
use crate::conv::f32_conv_nr32_v1::PANEL;
use crate::conv::operands::{Operands, apply_post};
use crate::gemm::{Fetch, Tile, k_blocks, part};
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Tiles of a block at most: four of the tallest tiles of the product.
pub const MOST_TILES: usize = 56;
/// Panels of a group at most, so that their products stay in the second-level cache beside the inputs.
pub const MOST_PANELS: usize = 4;
/// Rows are this much longer than their channels, so that they do not all fall into the same lines of the
/// first-level cache.
const PADDING: usize = 16;

/// Floats from the transformed channels of a tile to those of the next.
const fn row_length(channels: usize) -> usize {
    channels.next_multiple_of(16) + PADDING
}

/// Floats of the transformed inputs: [16, tile, channel].
pub const fn transformed_floats(channels: usize) -> usize {
    POINTS * MOST_TILES * row_length(channels)
}

/// Floats of the products: [panel, 16, tile, 32].
pub const fn product_floats() -> usize {
    MOST_PANELS * POINTS * MOST_TILES * PANEL
}

/// Addresses of the pixels of a tile.
pub const fn table_entries() -> usize {
    POINTS
}

/// A chunk.
pub(super) struct BlockTask<'a> {
    pub convolution: &'a Winograd,
    pub split: Split,
    /// Counted over all images.
    pub tiles: Range<usize>,
    /// Of channels.
    pub group: usize,
    /// Counted over all groups.
    pub panels: Range<usize>,
    pub operands: Operands,
    /// [`table_entries`].
    pub table: &'a mut [usize],
    /// One per input channel, whole vectors.
    pub zeros: &'a [f32],
    /// [`transformed_floats`].
    pub transformed: *mut f32,
    /// [`product_floats`].
    pub products: *mut f32,
    pub post: &'a mut [f32],
}

/// Where a tile lies.
#[derive(Clone, Copy)]
struct OutputTile {
    image: usize,
    /// First output row and column.
    y: usize,
    x: usize,
}

impl SimdTask for BlockTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // SAFETY: the tiles exist in input and output, whose sizes `bind` checked; scratch has the floats of a
        // whole block.
        unsafe {
            for t in 0..self.tiles.len() {
                self.fill_table(t);
                self.transform(s, t);
            }
            self.multiply();
            for j in 0..self.panels.len() {
                for t in 0..self.tiles.len() {
                    self.transform_back(s, j, t);
                }
            }
            self.finish();
        }
    }
}

/// Bᵀ·d for one line: d0 - d2, d1 + d2, d2 - d1, d1 - d3.
#[inline(always)]
fn spread<S: Simd>(s: S, d: [S::F; 4]) -> [S::F; 4] {
    [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[1], d[3])]
}

/// Aᵀ·m for one line: m0 + m1 + m2, m1 - m2 - m3.
#[inline(always)]
fn gather<S: Simd>(s: S, m: [S::F; 4]) -> [S::F; 2] {
    [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3])]
}

impl BlockTask<'_> {
    fn place(&self, t: usize) -> OutputTile {
        let [down, across] = self.split.grid;
        let tile = self.tiles.start + t;
        let (rest, column) = (tile / across, tile % across);
        OutputTile { image: rest / down, y: rest % down * 2, x: column * 2 }
    }

    /// The addresses of the 4 × 4 pixels that tile `t` of the block reads.
    fn fill_table(&mut self, t: usize) {
        let OutputTile { image, y, x } = self.place(t);
        let geometry = &self.convolution.geometry;
        let ([_, height, width], [_, down, across]) = (self.split.extents.input, geometry.padding);
        let channels = geometry.total_in_channels();
        let first = self.group * geometry.in_channels;
        for (i, slot) in self.table.iter_mut().enumerate().take(POINTS) {
            let (row, column) = ((y + i / 4).wrapping_sub(down), (x + i % 4).wrapping_sub(across));
            *slot = match row < height && column < width {
                true => {
                    let pixel = (image * height + row) * width + column;
                    self.operands.input.wrapping_add(pixel * channels + first) as usize
                }
                false => self.zeros.as_ptr() as usize,
            };
        }
    }

    /// Bᵀ·d·B of tile `t`, whose addresses are in the table.
    ///
    /// # Safety
    /// The channels exist at every address; the scratch has room for the tile.
    #[inline(always)]
    unsafe fn transform<S: Simd>(&self, s: S, t: usize) {
        let channels = self.convolution.geometry.in_channels;
        let length = row_length(channels);
        let between = self.tiles.len() * length;
        for c in (0..channels).step_by(S::LANES) {
            let lanes = S::LANES.min(channels - c);
            // SAFETY: the caller's promise; rows of the scratch have whole vectors.
            unsafe {
                let to = self.transformed.add(t * length + c);
                let a = spread_columns(s, self.table, 0, c, lanes);
                let b = spread_columns(s, self.table, 1, c, lanes);
                let d = spread_columns(s, self.table, 2, c, lanes);
                let e = spread_columns(s, self.table, 3, c, lanes);
                put(s, spread(s, [a[0], b[0], d[0], e[0]]), to, between);
                put(s, spread(s, [a[1], b[1], d[1], e[1]]), to.add(4 * between), between);
                put(s, spread(s, [a[2], b[2], d[2], e[2]]), to.add(8 * between), between);
                put(s, spread(s, [a[3], b[3], d[3], e[3]]), to.add(12 * between), between);
            }
        }
    }

    /// The products over channels, point by point.
    ///
    /// # Safety
    /// The transformed inputs are there.
    unsafe fn multiply(&self) {
        let geometry = &self.convolution.geometry;
        let (channels, tiles) = (geometry.in_channels, self.tiles.len());
        let length = row_length(channels);
        let weights = self.convolution.weights.as_ptr().cast::<f32>();
        let parts = k_blocks(channels);
        let all = geometry.groups * self.convolution.panels();
        for point in 0..POINTS {
            for (j, panel) in self.panels.clone().enumerate() {
                let columns = PANEL.min(geometry.total_out_channels() - panel * PANEL);
                for i in 0..parts {
                    let k = part(channels, parts, i);
                    let tile = Tile {
                        k: k.len(),
                        a: self.transformed.wrapping_add(point * tiles * length + k.start),
                        a_stride: length,
                        b: weights.wrapping_add(((point * all + panel) * channels + k.start) * PANEL),
                        b_stride: PANEL,
                        b_panel_stride: 0,
                        fetch: Fetch::FAR,
                        c: self.products.wrapping_add((j * POINTS + point) * tiles * PANEL),
                        c_stride: PANEL,
                        columns,
                        is_first: i == 0,
                        is_last: false,
                        bias: std::ptr::null(),
                        residual: std::ptr::null(),
                        residual_stride: 0,
                        clamp: None,
                    };
                    // SAFETY: the tile's rows and columns are those of the block whose panels and sums the
                    // caller promises.
                    unsafe { self.multiply_rows(&tile, columns) };
                }
            }
        }
    }

    /// All tiles of the block as the rows of `first`, which is their first row and column.
    ///
    /// # Safety
    /// Rows and columns exist in transformed inputs, weights and products; the tiles are for this processor.
    unsafe fn multiply_rows(&self, first: &Tile, columns: usize) {
        let set = self.convolution.tiles;
        let count = set.row_tiles(self.tiles.len());
        for i in 0..count {
            let rows = part(self.tiles.len(), count, i);
            let mut column = 0;
            while column < columns {
                let Some(variant) = set.within_panel(rows.len(), columns - column, false) else {
                    unreachable!("no tile for {} rows", rows.len());
                };
                let tile = Tile {
                    a: first.a.wrapping_add(rows.start * first.a_stride),
                    b: first.b.wrapping_add(column),
                    c: first.c.wrapping_add(rows.start * PANEL + column),
                    columns: columns - column,
                    // The first rows bring the panel in from afar, the others find it there.
                    fetch: if i == 0 { Fetch::FAR } else { Fetch::NEAR },
                    ..*first
                };
                // SAFETY: `within_panel` gives a tile of at most the rows and columns that are left of the
                // block that the caller promises.
                unsafe { (variant.run)(&tile) };
                column += variant.columns;
            }
        }
    }

    /// Aᵀ·m·A of tile `t` for the channels of panel `j` of the block, and what follows it.
    ///
    /// # Safety
    /// The products are there; the tile lies inside the output.
    #[inline(always)]
    unsafe fn transform_back<S: Simd>(&self, s: S, j: usize, t: usize) {
        let geometry = &self.convolution.geometry;
        let [_, height, width] = self.split.extents.output;
        let OutputTile { image, y, x } = self.place(t);
        let channel = (self.panels.start + j) * PANEL;
        let total = geometry.total_out_channels();
        let between = self.tiles.len() * PANEL;
        let first = ((image * height + y) * width + x) * total + channel;
        for c in (0..PANEL.min(total - channel)).step_by(S::LANES) {
            let lanes = S::LANES.min(total - channel - c);
            // SAFETY: the caller's promise; rows of products have whole panels.
            unsafe {
                let from = self.products.add((j * POINTS * self.tiles.len() + t) * PANEL + c).cast_const();
                let a = gather(s, get(s, from, between));
                let b = gather(s, get(s, from.add(4 * between), between));
                let d = gather(s, get(s, from.add(8 * between), between));
                let e = gather(s, get(s, from.add(12 * between), between));
                let left = gather(s, [a[0], b[0], d[0], e[0]]);
                let right = gather(s, [a[1], b[1], d[1], e[1]]);
                let bias = match self.operands.bias.is_null() {
                    true => s.zero(),
                    false => s.load_up_to(self.operands.bias.add(channel + c), lanes),
                };
                self.write(s, s.add(left[0], bias), first + c, lanes);
                if x + 1 < width {
                    self.write(s, s.add(right[0], bias), first + c + total, lanes);
                }
                if y + 1 < height {
                    self.write(s, s.add(left[1], bias), first + c + width * total, lanes);
                    if x + 1 < width {
                        self.write(s, s.add(right[1], bias), first + c + (width + 1) * total, lanes);
                    }
                }
            }
        }
    }

    /// # Safety
    /// `lanes` elements exist in the output from `at` on.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, mut v: S::F, at: usize, lanes: usize) {
        // SAFETY: the caller promises `lanes` elements of the output from `at` on; a residual has the
        // output's shape.
        unsafe {
            if !self.operands.residual.is_null() {
                v = s.add(v, s.load_up_to(self.operands.residual.add(at), lanes));
            }
            if let Some((low, high)) = self.convolution.epilogue.clamp {
                v = s.clamp(v, s.splat(low), s.splat(high));
            }
            s.store_up_to(self.operands.out.add(at), v, lanes);
        }
    }

    /// Runs the program behind the convolution on what the block wrote.
    ///
    /// # Safety
    /// It lies inside the output.
    unsafe fn finish(&mut self) {
        let (epilogue, level) = (&self.convolution.epilogue, self.convolution.level);
        if epilogue.post.is_none() {
            return;
        }
        let [_, height, width] = self.split.extents.output;
        let total = self.convolution.geometry.total_out_channels();
        let channel = self.panels.start * PANEL;
        let channels = (self.panels.len() * PANEL).min(total - channel);
        for t in 0..self.tiles.len() {
            let OutputTile { image, y, x } = self.place(t);
            for row in y..height.min(y + 2) {
                let at = ((image * height + row) * width + x) * total + channel;
                let extents = [2.min(width - x), channels];
                // SAFETY: rows and columns are cut at the height and width of the output, which the caller
                // promises to be valid.
                unsafe {
                    apply_post(epilogue, level, self.operands.out.add(at), total, extents, self.post);
                }
            }
        }
    }
}

/// Column `x` of the pixels of a tile, transformed.
///
/// # Safety
/// `lanes` channels from `c` on exist at every address.
#[inline(always)]
unsafe fn spread_columns<S: Simd>(s: S, table: &[usize], x: usize, c: usize, lanes: usize) -> [S::F; 4] {
    // SAFETY: every address of the table has `lanes` channels from `c` on, as the caller promises.
    unsafe {
        let d = [
            s.load_up_to((table[x] as *const f32).add(c), lanes),
            s.load_up_to((table[4 + x] as *const f32).add(c), lanes),
            s.load_up_to((table[8 + x] as *const f32).add(c), lanes),
            s.load_up_to((table[12 + x] as *const f32).add(c), lanes),
        ];
        spread(s, d)
    }
}

/// # Safety
/// Four whole vectors, `between` apart, are readable.
#[inline(always)]
unsafe fn get<S: Simd>(s: S, from: *const f32, between: usize) -> [S::F; 4] {
    // SAFETY: the four vectors are those that the caller promises to be readable.
    unsafe {
        [
            s.load(from),
            s.load(from.add(between)),
            s.load(from.add(2 * between)),
            s.load(from.add(3 * between)),
        ]
    }
}

/// # Safety
/// Four whole vectors, `between` apart, are writable.
#[inline(always)]
unsafe fn put<S: Simd>(s: S, v: [S::F; 4], to: *mut f32, between: usize) {
    // SAFETY: the four vectors are those that the caller promises to be writable.
    unsafe {
        s.store(to, v[0]);
        s.store(to.add(between), v[1]);
        s.store(to.add(2 * between), v[2]);
        s.store(to.add(3 * between), v[3]);
    }
}
