//! What integer products ask of an instruction set.

/// How whole numbers become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::integer) struct Narrowing {
    /// Added to the numbers.
    pub zero: i16,
    /// Limits, as signed bytes.
    pub low: i8,
    pub high: i8,
    /// The bits that are flipped at the end: those that make bytes of the output's type of signed ones.
    pub flip: u8,
}

/// Lanes of the widest vectors.
const MOST_LANES: usize = 16;

/// The first `n` bytes, at most `N`, and zeros behind them.
///
/// # Safety
/// `n` bytes are readable.
#[inline(always)]
pub(super) unsafe fn padded<const N: usize>(p: *const u8, n: usize) -> [u8; N] {
    let mut bytes = [0u8; N];
    // SAFETY: the caller promises the bytes, and no more than there is room for are copied.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(p, n.min(N)) };
    bytes
}

/// Vectors of `LANES` columns.
///
/// Methods are unsafe since the processor has to have the instruction set; those that take pointers read or write what
/// their names and parameters say.
pub(in crate::integer) trait Dots: Copy + 'static {
    /// Columns of a vector.
    const LANES: usize;
    /// Sums that have to be under way at once, so that none waits for its own result.
    const CHAINS: usize;
    /// What is taken from activations before they are multiplied, so that their bytes are those that the instructions take:
    /// the sums are those of numbers this much lower.
    const SHIFT: i32 = 0;
    /// Parts of a quad that are multiplied one after another, so that fewer weights are in registers at a time.
    const PARTS: usize = 1;
    /// Are weights that few rows read once asked for ahead? Not where the processor does that better: asked for, they came 10 %
    /// later on one of the Zen 4 class.
    const FETCHES: bool = true;
    /// Bytes that [`Dots::broadcast`] reads of an activation: two where rows are [widened](Dots::widen) before they are multiplied,
    /// so that no tile does it.
    const WIDTH: usize = 1;
    /// Sums of `LANES` columns; may be in parts.
    type Sums: Copy;
    /// Quads of `LANES` columns of weights.
    type Weights: Copy;
    /// Quads of activations: one for all columns, or one for each.
    type Inputs: Copy;
    /// i32 lanes.
    type I: Copy;
    /// f32 lanes.
    type F: Copy;

    /// # Safety
    /// The processor has the instruction set.
    unsafe fn zero() -> Self::Sums;
    /// Part `PART` of the quads at `p`.
    /// # Safety
    /// The processor has the instruction set; `4 * LANES` bytes are readable.
    unsafe fn weights<const PART: usize>(p: *const i8) -> Self::Weights;
    /// Part `PART` of the quad at `p`, of activations of [`Dots::WIDTH`] bytes, for all columns.
    /// # Safety
    /// The processor has the instruction set; a quad is readable.
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> Self::Inputs;
    /// Adds the products of quads.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn dot(sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums;
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums;
    /// The sums, one per lane.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn lanes(sums: Self::Sums) -> Self::I;

    /// # Safety
    /// The processor has the instruction set.
    unsafe fn splat_i(v: i32) -> Self::I;
    /// # Safety
    /// The processor has the instruction set; `LANES` elements are readable.
    unsafe fn load_i(p: *const i32) -> Self::I;
    /// # Safety
    /// The processor has the instruction set; `LANES` elements are writable.
    unsafe fn store_i(p: *mut i32, v: Self::I);
    /// Wrapping.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    /// Rounded to the nearest.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn to_float(a: Self::I) -> Self::F;
    /// The nearest integers, ties to even, of numbers that have one in i32.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn nearest(a: Self::F) -> Self::I;
    /// The nearest whole numbers, ties to even.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn round(a: Self::F) -> Self::F;
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn splat(v: f32) -> Self::F;
    /// # Safety
    /// The processor has the instruction set; `LANES` elements are readable.
    unsafe fn load(p: *const f32) -> Self::F;
    /// The first `n` elements; other lanes hold any number.
    /// # Safety
    /// The processor has the instruction set; `n` elements are readable.
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self::F {
        let mut part = [0f32; MOST_LANES];
        // SAFETY: the caller promises the instruction set and `n` elements; a vector has room in the array.
        unsafe {
            if n >= Self::LANES {
                return Self::load(p);
            }
            part.as_mut_ptr().copy_from_nonoverlapping(p, n);
            Self::load(part.as_ptr())
        }
    }
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `x` between `low` and `high`; NaN in `x` stays.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn clamp(x: Self::F, low: Self::F, high: Self::F) -> Self::F;
    /// Stores the first `n` lanes.
    /// # Safety
    /// The processor has the instruction set; `n` elements are writable.
    unsafe fn store(p: *mut f32, v: Self::F, n: usize);
    /// Stores the lowest bytes of the first `n` lanes.
    /// # Safety
    /// The processor has the instruction set; `n` bytes are writable.
    unsafe fn store_bytes(p: *mut u8, v: Self::I, n: usize);

    /// The first `n` bytes, with the bits of `flip` flipped, as signed numbers; other lanes hold any.
    /// # Safety
    /// The processor has the instruction set; `n` bytes are readable.
    unsafe fn load_bytes(p: *const u8, n: usize, flip: u8) -> Self::I;

    /// Copies `n` bytes with the bits of `flip` flipped.
    /// # Safety
    /// The processor has the instruction set; `n` bytes are readable and writable, in memory that does not overlap.
    unsafe fn copy(from: *const u8, to: *mut u8, n: usize, flip: u8);

    /// Copies 16 bytes with the bits of `flip` flipped.
    /// # Safety
    /// The processor has the instruction set; 16 bytes are readable and writable, in memory that does not overlap.
    unsafe fn copy_16(from: *const u8, to: *mut u8, flip: u8);

    /// Makes four quads as [`Dots::broadcast`] reads them of four quads of unsigned bytes; for instruction sets whose
    /// [`Dots::WIDTH`] is two.
    /// # Safety
    /// The processor has the instruction set; 16 bytes are readable, 32 writable, in memory that does not overlap.
    #[inline(always)]
    unsafe fn widen(from: *const u8, to: *mut u8) {
        let _ = (from, to);
    }

    /// The channel, of `4 * LANES` in four vectors, in lane `lane` of vector `vector` where channels have taps of their own.
    fn channel_of(vector: usize, lane: usize) -> usize;
    /// Stores `4 * LANES` numbers as bytes in the order of channels.
    /// # Safety
    /// The processor has the instruction set; `4 * LANES` bytes are writable.
    unsafe fn store_channels(p: *mut u8, v: [Self::I; 4], narrowing: Narrowing);
    /// Stores `4 * LANES` numbers as bytes in their order: two vectors of them from each pointer on.
    /// # Safety
    /// The processor has the instruction set; `2 * LANES` bytes are writable at each.
    unsafe fn store_halves(to: [*mut u8; 2], v: [Self::I; 4], narrowing: Narrowing);
}

/// Instruction sets with dot products of quads of taps.
pub(in crate::integer) trait TapDots: Dots {
    /// Quads of `4 * LANES` channels from the bytes of four taps, flipped. Which channels are in which vector and lane
    /// is for [`Dots::channel_of`] to say.
    /// # Safety
    /// The processor has the instruction set; each pointer is to `4 * LANES` readable bytes.
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4];
}
