//! The micro-kernel: a tile of `MR` rows by `W` vectors of columns stays in registers while K runs.
//! Unsafe island.
//!
//! Loops over rows and vectors are written out by macros: left to the compiler, whether they are unrolled
//! (and the sums live in registers, five times faster) depends on the optimisation settings of a build.
#![allow(unsafe_code, reason = "tiles read panels and write rows by address, and chunks share the result")]

use crate::packed::f32_nr32_v1::NR;
use pteron_kernels::vector_math::Simd;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

/// What a tile brings into the caches for itself and for those that follow. Tiles of several panels read
/// streams that the processor itself fetches well, and take no notice.
#[derive(Clone, Copy)]
pub(crate) struct Fetch {
    /// How far ahead of its use B is brought into the first-level cache, in elements.
    pub b_ahead: usize,
    /// What is brought into the second-level cache meanwhile: the line at `next` every few k, then
    /// `next_step` elements on.
    pub next: *const f32,
    pub next_step: usize,
    /// Are the rows that the tile writes, and adds to, brought into the first-level cache while its sums are made? They come
    /// from memory, one line for each row, which no processor foresees.
    pub results: bool,
}

impl Fetch {
    /// B is in the second-level cache. 2 KiB of a panel ahead gains 5 to 15 %; nothing is lost where B is
    /// in the first level.
    pub const NEAR: Fetch = Fetch { b_ahead: 16 * NR, next: std::ptr::null(), next_step: 0, results: false };
    /// B comes from farther away.
    pub const FAR: Fetch = Fetch { b_ahead: 64 * NR, ..Fetch::NEAR };
}

/// What one tile computes: `C = [C +] A * B`, and in the last K-block also bias, residual and clamp.
///
/// B is read as rows of columns: element (k, column) of panel p at
/// `b + p * b_panel_stride + k * b_stride + column`.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Length of this K-block.
    pub k: usize,
    /// First element of A, rows `a_stride` apart. For a packed A, the first of `MR` values for each k.
    pub a: *const f32,
    pub a_stride: usize,
    pub b: *const f32,
    pub b_stride: usize,
    pub b_panel_stride: usize,
    pub fetch: Fetch,
    /// First element of C, rows `c_stride` apart.
    pub c: *mut f32,
    pub c_stride: usize,
    /// Columns of C that exist; the tile's others are neither read nor written.
    pub columns: usize,
    /// First K-block: C is overwritten, not added to.
    pub is_first: bool,
    /// Last K-block: what follows is applied.
    pub is_last: bool,
    /// One value per column, or null.
    pub bias: *const f32,
    /// A matrix that is added, or null; rows `residual_stride` apart.
    pub residual: *const f32,
    pub residual_stride: usize,
    /// `[low, high]`; NaN passes.
    pub clamp: Option<(f32, f32)>,
}

/// A tile compiled for an instruction set, a number of rows and a number of columns.
pub(crate) type TileFn = unsafe fn(&Tile);

/// Rows share base pointers in groups of this many: base, base + stride, base + 2 * stride are all
/// addressing modes, so 14 rows need 5 pointer registers and not 14.
const ROWS_PER_BASE: usize = 3;
/// ⌈14 / 3⌉ bases cover the tallest tile.
const BASES: usize = 5;
type Bases = [*const f32; BASES];

/// Writes `$body` out for each index below `$n`, at most 14 rows or 8 vectors. The comparison is a constant, so that bodies
/// beyond `$n` are never handed to the optimiser: with them, this crate without optimisation took twelve times as long.
macro_rules! unrolled {
    (rows $i:ident < $n:ident $body:block) => {
        unrolled!(@ $i $n $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (vectors $i:ident < $n:ident $body:block) => { unrolled!(@ $i $n $body 0 1 2 3 4 5 6 7) };
    (bases $i:ident < $n:ident $body:block) => { unrolled!(@ $i $n $body 0 1 2 3 4) };
    (lanes $i:ident < $n:ident $body:block) => { unrolled!(@ $i $n $body 0 1 2 3) };
    (@ $i:ident $n:ident $body:block $($at:literal)*) => {
        $({
            const $i: usize = $at;
            if const { $i < $n } $body
        })*
    };
}
#[cfg(target_arch = "aarch64")]
pub(super) use unrolled;

/// The same pointer and number, of which the compiler knows nothing: it would else keep a pointer for each
/// row, on the stack, and load it for every multiplication. Costs no instruction.
#[allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "the pointer is passed through, no memory is read or written"
)]
#[inline(always)]
pub(crate) fn forget<T>(p: *const T, n: usize) -> (*const T, usize) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let (mut p, mut n) = (p, n);
        // SAFETY: an empty instruction sequence changes nothing.
        unsafe {
            std::arch::asm!("/* {0} {1} */", inout(reg) p, inout(reg) n,
                options(nomem, nostack, preserves_flags));
        }
        (p, n)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        (p, n)
    }
}

/// A hint that the line of `p` will be read; any pointer is allowed.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    // SAFETY: a hint reads nothing; the instruction is in the baseline of the target.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    // SAFETY: a hint reads nothing and cannot fault; the instruction is in the baseline. Its intrinsic is not stable.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) p, options(readonly, nostack, preserves_flags));
    }
    let _ = p;
}

/// As [`prefetch`], into the second-level cache.
#[inline(always)]
fn prefetch_level_2(p: *const f32) {
    // SAFETY: as in `prefetch`, a hint that reads nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    // SAFETY: as in `prefetch`, a hint that reads nothing.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{0}]", in(reg) p, options(readonly, nostack, preserves_flags));
    }
    let _ = p;
}

/// Steps of k between moves of the pointers: few sums leave more time for moves than for arithmetic.
const fn unroll(sums: usize) -> usize {
    if sums > 16 { 2 } else { 4 }
}

/// The sums of a tile.
pub(super) type Sums<V, const MR: usize, const W: usize> = [[V; W]; MR];

/// A tile of `MR` rows by `W` vectors, `VPP` of them in each panel of B. `PACKED`: A is packed. `PAIRS`: elements of A and
/// B are pairs of bfloat16.
///
/// # Safety
/// The caller is compiled for the instruction set of `s`; all pointers are valid for the elements that
/// `t` describes; C overlaps nothing else that is read, but may be the residual.
#[inline(always)]
pub(crate) unsafe fn tile<
    S: Simd,
    const MR: usize,
    const W: usize,
    const VPP: usize,
    const PACKED: bool,
    const PAIRS: bool,
>(
    s: S,
    t: &Tile,
) {
    const { assert!(MR <= 14 && W <= 8 && W.is_multiple_of(VPP)) };
    // SAFETY: the contract of this function.
    unsafe {
        if t.fetch.results {
            fetch_results::<S, MR, W>(t);
        }
        let sums = multiply::<S, MR, W, VPP, PACKED, PAIRS>(s, t);
        if t.columns >= W * S::LANES {
            finish::<S, MR, W, false>(s, t, sums);
        } else {
            finish::<S, MR, W, true>(s, t, sums);
        }
    }
}

/// Floats of a cache line.
const LINE: usize = 16;

/// See [`Fetch::results`].
#[inline(always)]
fn fetch_results<S: Simd, const MR: usize, const W: usize>(t: &Tile) {
    let has_residual = t.is_last && !t.residual.is_null();
    unrolled!(rows R < MR {
        for line in (0..W * S::LANES).step_by(LINE) {
            prefetch(t.c.wrapping_add(R * t.c_stride + line));
            if has_residual {
                prefetch(t.residual.wrapping_add(R * t.residual_stride + line));
            }
        }
    });
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn multiply<
    S: Simd,
    const MR: usize,
    const W: usize,
    const VPP: usize,
    const PACKED: bool,
    const PAIRS: bool,
>(
    s: S,
    t: &Tile,
) -> Sums<S::F, MR, W> {
    let unroll = const { unroll(MR * W) };
    let (a_step, used) = if PACKED { (MR, 1) } else { (1, MR.div_ceil(ROWS_PER_BASE)) };
    // SAFETY: rows 0..MR of A and rows 0..k of B's panels are readable; bases of groups that have no
    // row are never read and made with wrapping arithmetic.
    unsafe {
        let mut sums = [[s.zero(); W]; MR];
        let mut bases: Bases = [t.a; BASES];
        for (g, base) in bases.iter_mut().enumerate().take(used) {
            // Opaque, so that the compiler does not compute each row's address from the one before it
            // again in every step.
            *base = black_box(t.a.wrapping_add(g * ROWS_PER_BASE * t.a_stride));
        }
        // Asking for a page that is not there would cost a walk of the page table.
        let (mut b, mut next) = (t.b, if t.fetch.next.is_null() { t.b } else { t.fetch.next });
        let mut a_stride = t.a_stride;
        for _ in 0..t.k / unroll {
            if !PACKED {
                unrolled!(bases G < BASES {
                    if G < used {
                        (bases[G], a_stride) = forget(bases[G], a_stride);
                    }
                });
            }
            let a = (&bases, a_stride);
            step::<S, MR, W, VPP, PACKED, PAIRS>(s, t, a, 0, b, &mut sums);
            step::<S, MR, W, VPP, PACKED, PAIRS>(s, t, a, 1, b.wrapping_add(t.b_stride), &mut sums);
            if unroll == 4 {
                step::<S, MR, W, VPP, PACKED, PAIRS>(s, t, a, 2, b.wrapping_add(2 * t.b_stride), &mut sums);
                step::<S, MR, W, VPP, PACKED, PAIRS>(s, t, a, 3, b.wrapping_add(3 * t.b_stride), &mut sums);
            }
            b = b.wrapping_add(unroll * t.b_stride);
            unrolled!(bases G < BASES {
                if G < used {
                    bases[G] = bases[G].wrapping_add(unroll * a_step);
                }
            });
            if W == VPP {
                prefetch_level_2(next);
                next = next.wrapping_add(t.fetch.next_step);
            }
        }
        for ahead in 0..t.k % unroll {
            step::<S, MR, W, VPP, PACKED, PAIRS>(s, t, (&bases, a_stride), ahead, b, &mut sums);
            b = b.wrapping_add(t.b_stride);
        }
        sums
    }
}

/// One k: a row of B times a column of A. A function, not a closure: it must be inlined into the
/// function that enables the instruction set, whatever its size.
///
/// # Safety
/// As [`tile`]; `bases` (rows `a_stride` apart) plus `ahead` steps are at some k, `b` at the same.
#[inline(always)]
unsafe fn step<
    S: Simd,
    const MR: usize,
    const W: usize,
    const VPP: usize,
    const PACKED: bool,
    const PAIRS: bool,
>(
    s: S,
    t: &Tile,
    (bases, a_stride): (&Bases, usize),
    ahead: usize,
    b: *const f32,
    sums: &mut Sums<S::F, MR, W>,
) {
    // SAFETY: this k exists, so every row of A and every panel of B has it.
    unsafe {
        // Keeps the loads of one k together: the compiler would read the A values of all unrolled steps
        // first and spill them. Costs no instruction.
        compiler_fence(Ordering::SeqCst);
        // The streams of a wide tile are fetched well by the processor itself.
        if W == VPP {
            prefetch(b.wrapping_add(t.fetch.b_ahead));
            if W * S::LANES > 16 {
                prefetch(b.wrapping_add(t.fetch.b_ahead + 16));
            }
        }
        let mut columns = [s.zero(); W];
        unrolled!(vectors V < W {
            columns[V] = s.load(b.wrapping_add((V / VPP) * t.b_panel_stride + (V % VPP) * S::LANES));
        });
        unrolled!(rows R < MR {
            let a = if PACKED {
                bases[0].wrapping_add(ahead * MR + R)
            } else {
                bases[R / ROWS_PER_BASE].wrapping_add((R % ROWS_PER_BASE) * a_stride).wrapping_add(ahead)
            };
            let x = s.splat(*a);
            unrolled!(vectors V < W {
                sums[R][V] = match PAIRS {
                    true => s.dot_brain16(x, columns[V], sums[R][V]),
                    false => s.fma(x, columns[V], sums[R][V]),
                };
            });
        });
    }
}

/// Reads a vector of columns from `column` on; in an edge tile only those that exist.
///
/// # Safety
/// As [`tile`]; `p` points to the tile's first column.
#[inline(always)]
unsafe fn read<S: Simd, const EDGE: bool>(s: S, t: &Tile, p: *const f32, column: usize) -> S::F {
    let p = p.wrapping_add(column);
    // SAFETY: masked to the columns that exist, or all do.
    unsafe { if EDGE { s.load_partial(p, t.columns.saturating_sub(column)) } else { s.load(p) } }
}

/// Adds what is to be added, clamps, and writes C.
///
/// # Safety
/// As [`tile`]; `EDGE` when the tile is wider than C.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const MR: usize, const W: usize, const EDGE: bool>(
    s: S,
    t: &Tile,
    mut sums: Sums<S::F, MR, W>,
) {
    // SAFETY: masks keep every access inside `columns`; pointers past them are made with wrapping
    // arithmetic and not used.
    unsafe {
        if !t.is_first {
            unrolled!(rows R < MR {
                unrolled!(vectors V < W {
                    let before = read::<S, EDGE>(s, t, t.c.wrapping_add(R * t.c_stride), V * S::LANES);
                    sums[R][V] = s.add(before, sums[R][V]);
                });
            });
        }
        if t.is_last {
            if !t.bias.is_null() {
                unrolled!(vectors V < W {
                    let bias = read::<S, EDGE>(s, t, t.bias, V * S::LANES);
                    unrolled!(rows R < MR { sums[R][V] = s.add(sums[R][V], bias); });
                });
            }
            if !t.residual.is_null() {
                unrolled!(rows R < MR {
                    let row = t.residual.wrapping_add(R * t.residual_stride);
                    unrolled!(vectors V < W {
                        sums[R][V] = s.add(sums[R][V], read::<S, EDGE>(s, t, row, V * S::LANES));
                    });
                });
            }
            if let Some((low, high)) = t.clamp {
                let (low, high) = (s.splat(low), s.splat(high));
                unrolled!(rows R < MR {
                    unrolled!(vectors V < W { sums[R][V] = s.clamp(sums[R][V], low, high); });
                });
            }
        }
        unrolled!(rows R < MR {
            unrolled!(vectors V < W {
                let c = t.c.wrapping_add(R * t.c_stride + V * S::LANES);
                if EDGE {
                    s.store_partial(c, sums[R][V], t.columns.saturating_sub(V * S::LANES));
                } else {
                    s.store(c, sums[R][V]);
                }
            });
        });
    }
}
