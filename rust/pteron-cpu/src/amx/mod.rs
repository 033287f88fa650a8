//! Tile registers (AMX): does this processor have them, does the system let this process use them, and their shapes.
//! Unsafe island.
//!
//! Facts: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1 chapter 18; the kernel's
//! Documentation/arch/x86/xstate.rst. Shapes and contents of tiles are nobody's across calls: each kernel loads its own
//! shapes and gives the tiles back before it returns.
#![allow(unsafe_code, reason = "a system call, and instructions that Rust has no function for")]

mod tile;

pub(crate) use tile::{MOST_ROWS, Tile, TileFn, bytes, floats, leave};

use std::sync::OnceLock;

/// Rows of a tile register at most.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile register.
pub(crate) const TILE_BYTES: usize = 64;

/// Shapes of the eight tile registers, as `ldtilecfg` reads them: byte 0 is the palette, 16-bit numbers from byte 16 on are
/// the bytes of rows, bytes from 48 on the rows.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Shapes(pub(crate) [u8; 64]);

impl Shapes {
    /// Of no tile.
    pub(crate) const NONE: Shapes = {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        Shapes(bytes)
    };

    /// As these, and tile `tile` has `rows` rows (1 to 16) of `bytes` bytes (a multiple of four, to 64).
    pub(crate) const fn with(mut self, tile: usize, rows: usize, bytes: usize) -> Shapes {
        assert!(tile < 8 && 0 < rows && rows <= TILE_ROWS);
        assert!(0 < bytes && bytes <= TILE_BYTES && bytes.is_multiple_of(4));
        self.0[16 + 2 * tile] = bytes as u8;
        self.0[48 + tile] = rows as u8;
        self
    }
}

/// What tile registers are set to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    rows: usize,
    /// Cells of a step for which they are set.
    cells: usize,
    /// Cells of the steps of this run.
    step: usize,
}

/// Can this process multiply bytes in tile registers? Asks the system for them the first time.
pub(crate) fn has_bytes() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| has_tiles_of(INT8) && is_permitted())
}

/// Can this process multiply bfloat16 in tile registers? Asks the system for them the first time.
pub(crate) fn has_floats() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| has_tiles_of(BF16) && is_permitted())
}

/// Bits of CPUID leaf 7, register EDX.
const TILES: u32 = 1 << 24;
const INT8: u32 = 1 << 25;
const BF16: u32 = 1 << 22;

/// Does the processor have tiles of the shape that kernels count on, and the instructions of `bit`?
fn has_tiles_of(bit: u32) -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const TILE_LEAF: u32 = 0x1d;
    if __cpuid(0).eax < TILE_LEAF || __cpuid_count(7, 0).edx & (TILES | bit) != TILES | bit {
        return false;
    }
    let palette = __cpuid_count(TILE_LEAF, 1);
    let (bytes, names, rows) = (palette.ebx & 0xffff, palette.ebx >> 16, palette.ecx & 0xffff);
    names >= 8 && bytes as usize == TILE_BYTES && rows as usize == TILE_ROWS
}

/// Does the system save tiles when threads change? It asks that a process says beforehand that it uses them.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and no address; it changes which registers this process may use, nothing else.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_lie_as_the_processor_reads_them() {
        let Shapes(bytes) = Shapes::NONE.with(3, 5, 12);
        assert_eq!((align_of::<Shapes>(), bytes[0]), (64, 1));
        let set: Vec<usize> = (1..64).filter(|i| bytes[*i] != 0).collect();
        assert_eq!((set, bytes[16 + 6], bytes[48 + 3]), (vec![16 + 6, 48 + 3], 12, 5));
    }
}
