//! Matrix products of every shape, layout and instruction set against sums in f64.
#![allow(unsafe_code, reason = "tests play the caller's part in the contracts of kernels")]
use super::*;
use crate::packed::f32_nr32_v1;
use pteron_core::{ConstantKey, ConstantView, DType, Dims, Isa};
use pteron_kernels::cpu_detect::available_isas;
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::testing::gelu_erf;
use pteron_kernels::vector_math::SimdLevel;

/// Numbers in [-1, 1] that depend on nothing but the seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Row-major A (m x k) times B (k x n) in f64, and the sum of the absolute products for the error bound.
pub(crate) fn reference(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
    for i in 0..m {
        for l in 0..k {
            for j in 0..n {
                let product = f64::from(a[i * k + l]) * f64::from(b[l * n + j]);
                sums[i * n + j] += product;
                sizes[i * n + j] += product.abs();
            }
        }
    }
    (sums, sizes)
}

fn pack(isa: Isa, b: &[f32], k: usize, n: usize) -> pteron_core::AlignedBuffer {
    let view = ConstantView {
        key: ConstantKey { origin: 0, offset: 0, nbytes: size_of_val(b) as u64 },
        data: bytemuck::cast_slice(b),
        dtype: DType::Float32,
        offset: 0,
        shape: Dims::new(&[k, n]).unwrap(),
        strides: Dims::new(&[n, 1]).unwrap(),
    };
    f32_nr32_v1::pack(isa, 1, &view).unwrap()
}

struct Case {
    m: usize,
    n: usize,
    k: usize,
    has_bias: bool,
    has_residual: bool,
    clamp: Option<(f32, f32)>,
    post: Option<Chain>,
    packs_a: bool,
}

impl Case {
    fn new(m: usize, n: usize, k: usize) -> Case {
        Case { m, n, k, has_bias: false, has_residual: false, clamp: None, post: None, packs_a: false }
    }

    /// C, written between guards that must not change.
    fn run(&self, isa: Isa, a: &[f32], b: &[f32], kind: RhsKind, chunks: bool) -> Vec<f32> {
        const GUARD: f32 = 1234.5;
        let (m, n, k) = (self.m, self.n, self.k);
        let packed = pack(isa, b, k, n);
        let transposed: Vec<f32> = (0..n * k).map(|i| b[(i % k) * n + i / k]).collect();
        let rhs = match kind {
            RhsKind::Packed => Rhs::Packed(packed.as_ptr().cast()),
            RhsKind::Rows => Rhs::Strided(b.as_ptr(), n, 1),
            RhsKind::Columns => Rhs::Strided(transposed.as_ptr(), 1, k),
        };
        let bias = noise(n, 77);
        let residual = noise(m * n, 78);
        // Rows of C are wider than they need to be: what lies beyond must survive.
        let c_stride = n + 3;
        let mut c = vec![GUARD; m * c_stride + 8];
        let tiles = TileSet::for_isa(isa);
        let row_tiles = tiles.row_tiles(m);
        let mut packed_a = vec![f32::NAN; m * k];
        let packs_a = self.packs_a && tiles.has_packed(m);
        if packs_a {
            let matrix = RowMatrix { first: a.as_ptr(), stride: k, m };
            // SAFETY: both have M x K elements.
            unsafe {
                matrix.pack(SimdLevel::at_most(isa), k, row_tiles, 0..row_tiles, packed_a.as_mut_ptr())
            };
        }
        let gemm = Gemm {
            m,
            n,
            k,
            a: if packs_a { Lhs::Packed(packed_a.as_ptr()) } else { Lhs::Rows(a.as_ptr(), k) },
            b: rhs,
            c: c.as_mut_ptr(),
            c_stride,
            bias: if self.has_bias { bias.as_ptr() } else { std::ptr::null() },
            residual: if self.has_residual { residual.as_ptr() } else { std::ptr::null() },
            residual_stride: n,
            clamp: self.clamp,
            post: self.post.as_ref(),
        };
        let is_packed = matches!(kind, RhsKind::Packed);
        let mut scratch = vec![f32::NAN; scratch_elements(k, false, is_packed, self.post.as_ref())];
        let tiling = Tiling::new(tiles, 1, m, n, k);
        let panels = f32_nr32_v1::panel_count(n);
        if chunks {
            for chunk in 0..tiling.grid(isa).chunk_count(0) {
                let r = tiling.chunk(chunk as usize);
                // SAFETY: all matrices are as large as stated, the instruction set is available.
                unsafe { gemm.run(tiles, r.row_tiles, r.panels, &mut scratch) };
            }
        } else {
            // SAFETY: all matrices are as large as stated, the instruction set is available.
            unsafe { gemm.run(tiles, 0..row_tiles, 0..panels, &mut scratch) };
        }
        let mut out = Vec::new();
        for row in c.chunks(c_stride).take(m) {
            out.extend_from_slice(&row[..n]);
            assert!(row[n..].iter().all(|x| *x == GUARD), "{isa:?}: wrote beyond a row");
        }
        assert!(c[m * c_stride..].iter().all(|x| *x == GUARD), "{isa:?}: wrote beyond the matrix");
        out
    }

    fn check(&self, isa: Isa, kind: RhsKind) {
        let (m, n, k) = (self.m, self.n, self.k);
        let (a, b) = (noise(m * k, 1), noise(k * n, 2));
        let (sums, sizes) = reference(&a, &b, m, n, k);
        let (bias, residual) = (noise(n, 77), noise(m * n, 78));
        let got = self.run(isa, &a, &b, kind, true);
        for (i, x) in got.iter().enumerate() {
            let mut expected = sums[i];
            let mut size = sizes[i];
            if self.has_bias {
                expected += f64::from(bias[i % n]);
                size += 1.0;
            }
            if self.has_residual {
                expected += f64::from(residual[i]);
                size += 1.0;
            }
            if let Some((low, high)) = self.clamp {
                expected = expected.clamp(f64::from(low), f64::from(high));
            }
            // Every term passes through at most K + 3 roundings; in practice far fewer matter.
            let bound = size * 6e-8 * (4.0 + (k.min(K_BLOCK) as f64).sqrt() * 2.0) + 1e-30;
            let error = (f64::from(*x) - expected).abs();
            assert!(error <= bound, "{isa:?} {kind:?} {m}x{n}x{k} at {i}: {x} for {expected}");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum RhsKind {
    Packed,
    Rows,
    Columns,
}

const KINDS: [RhsKind; 3] = [RhsKind::Packed, RhsKind::Rows, RhsKind::Columns];

#[test]
fn every_isa_agrees_with_f64_on_many_shapes() {
    for isa in available_isas() {
        for kind in KINDS {
            for m in [0, 1, 2, 3, 4, 5, 7, 12, 13, 14, 15, 29, 61] {
                for n in [0, 1, 15, 16, 17, 31, 32, 33, 64, 97, 130] {
                    for k in [0, 1, 3, 4, 9, 66] {
                        Case::new(m, n, k).check(isa, kind);
                    }
                }
            }
        }
    }
}

#[test]
fn long_sums_and_several_chunks() {
    for isa in available_isas() {
        for (m, n, k) in
            [(1, 300, 800), (5, 161, 385), (150, 70, 769), (290, 96, 400), (49, 33, 1153), (20, 70, 1024)]
        {
            for kind in KINDS {
                Case::new(m, n, k).check(isa, kind);
                Case { packs_a: true, ..Case::new(m, n, k) }.check(isa, kind);
            }
        }
    }
}

#[test]
fn bias_residual_and_clamp_come_after_the_last_k_block() {
    for isa in available_isas() {
        for (m, n, k) in [(1, 40, 20), (3, 130, 500), (17, 37, 900), (6, 32, 0), (31, 48, 40)] {
            for (has_bias, has_residual) in [(true, false), (false, true), (true, true)] {
                for clamp in [None, Some((0.0, f32::INFINITY)), Some((-0.25, 0.5))] {
                    for kind in KINDS {
                        Case { has_bias, has_residual, clamp, ..Case::new(m, n, k) }.check(isa, kind);
                    }
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_reach_their_elements_and_no_others() {
    let (m, n, k) = (15, 70, 40);
    for isa in available_isas() {
        for kind in KINDS {
            let (mut a, mut b) = (noise(m * k, 5), noise(k * n, 6));
            a[3 * k + 7] = f32::NAN;
            a[5 * k + 1] = f32::INFINITY;
            b[2 * n + 69] = f32::NAN;
            let case = Case { has_bias: true, clamp: Some((0.0, f32::INFINITY)), ..Case::new(m, n, k) };
            let got = case.run(isa, &a, &b, kind, true);
            for (i, x) in got.iter().enumerate() {
                let (row, column) = (i / n, i % n);
                if row == 3 || column == 69 {
                    assert!(x.is_nan(), "{isa:?} {kind:?}: NaN was lost at {row}, {column}");
                } else if row == 5 {
                    let expected = if b[n + column] > 0.0 { f32::INFINITY } else { 0.0 };
                    assert_eq!(*x, expected, "{isa:?} {kind:?} at {row}, {column}");
                } else {
                    assert!(x.is_finite());
                }
            }
        }
    }
}

#[test]
fn a_row_gives_the_same_bytes_alone_and_in_a_batch_and_in_chunks() {
    for (isa, k) in available_isas().into_iter().flat_map(|isa| [(isa, 800), (isa, 1024)]) {
        let (m, n) = (80, 100);
        let (a, b) = (noise(m * k, 8), noise(k * n, 9));
        let whole = Case::new(m, n, k).run(isa, &a, &b, RhsKind::Packed, false);
        for kind in KINDS {
            assert_eq!(Case::new(m, n, k).run(isa, &a, &b, kind, true), whole, "{isa:?} {kind:?}");
            let packed = Case { packs_a: true, ..Case::new(m, n, k) };
            assert_eq!(packed.run(isa, &a, &b, kind, true), whole, "{isa:?} {kind:?}, A packed");
            for rows in [1, 2, 4, 9] {
                let few = Case::new(rows, n, k).run(isa, &a[..rows * k], &b, kind, true);
                assert_eq!(few, whole[..rows * n], "{isa:?} {kind:?} {rows} rows");
            }
        }
    }
}

#[test]
fn post_ops_see_each_finished_element_once() {
    for isa in available_isas() {
        for (m, n, k) in [(1, 300, 800), (3, 200, 40), (33, 70, 1000)] {
            let (a, b) = (noise(m * k, 3), noise(k * n, 4));
            let plain = Case { has_bias: true, ..Case::new(m, n, k) }.run(isa, &a, &b, RhsKind::Packed, true);
            let gelu = Chain::unary(gelu_erf()).unwrap();
            let mut expected = plain.clone();
            // SAFETY: the block is all of `expected`.
            unsafe {
                let mut scratch = vec![0.0; gelu.scratch_floats()];
                gelu.apply(SimdLevel::at_most(isa), expected.as_mut_ptr(), n, [m, n], &mut scratch);
            }
            let case = Case { has_bias: true, post: Some(gelu), ..Case::new(m, n, k) };
            assert_eq!(case.run(isa, &a, &b, RhsKind::Packed, true), expected, "{isa:?}");
        }
    }
}
