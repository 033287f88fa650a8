//! The vector interface that kernels of this crate's elementwise, norm, softmax, convolution and
//! pooling families are written against, once for all instruction sets.
//!
//! A value of a [`Simd`] type is proof that the processor has the instructions: only [`super::SimdLevel`]
//! makes them, after detection. A kernel is a [`SimdTask`], entered through a wrapper that has the target features;
//! everything below is `#[inline(always)]`.

/// Most lanes an instruction set has; sizes stack arrays.
pub const MAX_LANES: usize = 16;
/// Most lanes that a function may be given: those of several vectors ([`super::twice::Twice`]).
pub const MOST_LANES: usize = 4 * MAX_LANES;

/// Vectors of `LANES` f32 (`F`), i32 (`I`) and lane masks (`M`).
///
/// Partial loads and stores touch only the first `n ≤ LANES` elements; other lanes load as zero (false).
pub trait Simd: Copy + Send + Sync + 'static {
    /// f32 lanes.
    type F: Copy;
    /// i32 lanes.
    type I: Copy;
    /// One truth value per lane.
    type M: Copy;
    /// `LANES / 2` f64 lanes.
    type D: Copy;
    /// `LANES / 2` i64 lanes.
    type L: Copy;
    /// Number of lanes.
    const LANES: usize;
    /// Vectors that a long function is computed for at once: 1, 2 or 4.
    const AT_ONCE: usize = 1;
    /// Vectors of a block of neighbouring numbers ([`crate::elementwise::columns`]), at most 4: as many as registers hold.
    const BLOCK: usize = 4;
    /// Does [`Simd::fma_double`] round once?
    const FUSES_DOUBLE: bool = false;

    /// All lanes `v`.
    fn splat(self, v: f32) -> Self::F;
    /// Loads `LANES` elements.
    /// # Safety
    /// `p` is valid for reads of `LANES` elements.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Loads `n` elements.
    /// # Safety
    /// `p` is valid for reads of `n` elements.
    unsafe fn load_partial(self, p: *const f32, n: usize) -> Self::F;
    /// Loads `n` elements at stride 2: `p[0], p[2], ..`.
    /// # Safety
    /// `p` is valid for reads of `2 n - 1` elements (none when `n` is 0).
    unsafe fn load_even(self, p: *const f32, n: usize) -> Self::F;
    /// Stores `LANES` elements.
    /// # Safety
    /// `p` is valid for writes of `LANES` elements.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// Stores the first `n` lanes.
    /// # Safety
    /// `p` is valid for writes of `n` elements.
    unsafe fn store_partial(self, p: *mut f32, v: Self::F, n: usize);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the instruction set has it.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a < b ? a : b`: the second operand when either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: the second operand when either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Absolute value.
    fn abs(self, a: Self::F) -> Self::F;
    /// Sign flipped.
    fn neg(self, a: Self::F) -> Self::F;
    /// Correctly rounded square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// Nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `a * 2^n` for `a` in `1/64..=4` and integral `n` in `-151..=134`, with gradual underflow and overflow to
    /// infinity. NaN where both are.
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F;
    /// As [`Simd::scale2`] where the result is a normal number.
    #[inline(always)]
    fn scale2_normal(self, a: Self::F, n: Self::F) -> Self::F {
        self.scale2(a, n)
    }

    /// All lanes `v`.
    fn splat_d(self, v: f64) -> Self::D;
    /// Loads `LANES / 2` elements.
    /// # Safety
    /// `p` is valid for reads of as many elements.
    unsafe fn load_d(self, p: *const f64) -> Self::D;
    /// Stores `LANES / 2` elements.
    /// # Safety
    /// `p` is valid for writes of as many elements.
    unsafe fn store_d(self, p: *mut f64, v: Self::D);
    /// `a * b + c`, rounded once where the instruction set has it.
    fn fma_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;

    /// All lanes `v`.
    fn splat_l(self, v: i64) -> Self::L;
    /// Loads `LANES / 2` elements.
    /// # Safety
    /// `p` is valid for reads of as many elements.
    unsafe fn load_l(self, p: *const i64) -> Self::L;
    /// Stores `LANES / 2` elements.
    /// # Safety
    /// `p` is valid for writes of as many elements.
    unsafe fn store_l(self, p: *mut i64, v: Self::L);
    /// Wrapping `a + b`.
    fn add_l(self, a: Self::L, b: Self::L) -> Self::L;
    /// Wrapping `a * b`.
    fn mul_l(self, a: Self::L, b: Self::L) -> Self::L;

    /// `a < b`.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// `!m`.
    fn not(self, m: Self::M) -> Self::M;
    /// `a | b`.
    fn or(self, a: Self::M, b: Self::M) -> Self::M;
    /// Is there a lane with true?
    fn any(self, m: Self::M) -> bool;
    /// `m ? a : b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// True where `p[i] != 0`, for `n` bytes.
    /// # Safety
    /// `p` is valid for reads of `n` bytes.
    unsafe fn load_bools(self, p: *const u8, n: usize) -> Self::M;
    /// Writes 1 or 0 per lane, `n` bytes.
    /// # Safety
    /// `p` is valid for writes of `n` bytes.
    unsafe fn store_bools(self, p: *mut u8, m: Self::M, n: usize);

    /// Bits of the floats.
    fn to_bits(self, a: Self::F) -> Self::I;
    /// Floats of the bits.
    fn of_bits(self, a: Self::I) -> Self::F;
    /// All lanes `v`.
    fn splat_i(self, v: i32) -> Self::I;
    /// Wrapping `a + b`.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping `a * b`.
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping `a - b`.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a & b`.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a | b`.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shift left by `N`.
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// Arithmetic shift right by `N`.
    fn shr_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// As floats.
    fn to_float(self, a: Self::I) -> Self::F;
    /// Loads `LANES` bytes, as signed numbers.
    /// # Safety
    /// `p` is valid for reads of as many bytes.
    unsafe fn load_i8(self, p: *const i8) -> Self::I;
    /// Stores the lowest byte of each lane.
    /// # Safety
    /// `p` is valid for writes of as many bytes.
    unsafe fn store_i8(self, p: *mut i8, v: Self::I);
    /// The low and the high four bits of the lowest byte, as signed numbers.
    fn nibbles(self, a: Self::I) -> (Self::F, Self::F);

    /// `to[i] = table[from[i]]`.
    /// # Safety
    /// `from` is valid for reads and `to` for writes of `n` bytes; they do not overlap.
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller promises `n` bytes behind each.
        let (from, to) =
            unsafe { (std::slice::from_raw_parts(from, n), std::slice::from_raw_parts_mut(to, n)) };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = table[usize::from(*from)]);
    }

    /// Sum of all lanes, in an order fixed for the instruction set.
    fn reduce_add(self, a: Self::F) -> f32;
    /// Largest lane; unspecified among lanes when one is NaN.
    fn reduce_max(self, a: Self::F) -> f32;

    /// Transposes a block: `dst[c * dst_stride + r] = src[r * src_stride + c]` for `r < rows ≤ LANES`,
    /// `c < cols ≤ LANES`.
    /// # Safety
    /// Those elements are valid for reads and writes, and source and target do not overlap.
    unsafe fn transpose_block(
        self,
        src: *const f32,
        src_stride: usize,
        rows: usize,
        cols: usize,
        dst: *mut f32,
        dst_stride: usize,
    );

    /// `a * b + c` of single numbers, rounded once where the instruction set has it: for loops that the compiler
    /// vectorises.
    #[inline(always)]
    fn fma_double(self, a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
    /// x as 2^k m with m in [√½, √2): (k, m), for positive finite x; exact.
    #[inline(always)]
    fn split_power(self, x: Self::F) -> (Self::F, Self::F) {
        split_bits(self, x)
    }
    /// `a > b`.
    #[inline(always)]
    fn gt(self, a: Self::F, b: Self::F) -> Self::M {
        self.lt(b, a)
    }
    /// `a >= b`.
    #[inline(always)]
    fn ge(self, a: Self::F, b: Self::F) -> Self::M {
        self.le(b, a)
    }
    /// `c - a * b`.
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.fma(self.neg(a), b, c)
    }
    /// Zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// The larger operand; NaN when either is NaN.
    #[inline(always)]
    fn max_nan(self, a: Self::F, b: Self::F) -> Self::F {
        // `max` answers b when either is NaN; only a NaN in `a` is lost then.
        self.select(self.eq(a, a), self.max(a, b), a)
    }
    /// The smaller operand; NaN when either is NaN.
    #[inline(always)]
    fn min_nan(self, a: Self::F, b: Self::F) -> Self::F {
        self.select(self.eq(a, a), self.min(a, b), a)
    }
    /// `x` clamped to `[lo, hi]`; NaN in `x` stays.
    #[inline(always)]
    fn clamp(self, x: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        self.min(hi, self.max(lo, x))
    }
    /// Loads `LANES` float16 numbers; exact.
    /// # Safety
    /// `p` is valid for reads of `LANES` elements.
    unsafe fn load_binary16(self, p: *const u16) -> Self::F;
    /// Stores `LANES` numbers as float16, rounded to the nearest, ties to even.
    /// # Safety
    /// `p` is valid for writes of `LANES` elements.
    unsafe fn store_binary16(self, p: *mut u16, v: Self::F);
    /// Loads `LANES` bfloat16 numbers; exact.
    /// # Safety
    /// `p` is valid for reads of `LANES` elements.
    unsafe fn load_brain16(self, p: *const u16) -> Self::F;
    /// `c + a₁·b₁ + a₀·b₀` for the pair of bfloat16 numbers in each lane: the lower half of its bits is number 0. Products are
    /// exact, each addition rounds. With AVX-512 BF16 numbers and results below the smallest normal f32 count as zero.
    /// # Safety
    /// Of AVX-512: the processor has AVX-512 BF16 ([`super::avx512::has_brain16`]).
    #[inline(always)]
    unsafe fn dot_brain16(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let ((a0, a1), (b0, b1)) = (self.brain16_pair(a), self.brain16_pair(b));
        self.fma(a0, b0, self.fma(a1, b1, c))
    }
    /// The lower and the upper half of each lane's bits as bfloat16 numbers; exact.
    #[inline(always)]
    fn brain16_pair(self, pairs: Self::F) -> (Self::F, Self::F) {
        let bits = self.to_bits(pairs);
        let upper = self.and_i(bits, self.splat_i(!0xffff));
        (self.of_bits(self.shl_i::<16>(bits)), self.of_bits(upper))
    }
    /// Stores `LANES` numbers as bfloat16, rounded to the nearest, ties to even.
    /// # Safety
    /// `p` is valid for writes of `LANES` elements.
    unsafe fn store_brain16(self, p: *mut u16, v: Self::F);
    /// Loads `n ≤ LANES` elements, the full load when all are there.
    /// # Safety
    /// `p` is valid for reads of `n` elements.
    #[inline(always)]
    unsafe fn load_up_to(self, p: *const f32, n: usize) -> Self::F {
        // SAFETY: the caller promises that the elements at `p` are readable.
        unsafe { if n >= Self::LANES { self.load(p) } else { self.load_partial(p, n) } }
    }
    /// Loads `n ≤ LANES` elements at `step`: `p[0], p[step], ..`.
    /// # Safety
    /// Those elements are readable.
    #[inline(always)]
    unsafe fn load_strided(self, p: *const f32, step: usize, n: usize) -> Self::F {
        // SAFETY: the caller's promise; a block holds every lane.
        unsafe {
            match step {
                1 => self.load_up_to(p, n),
                2 => self.load_even(p, n),
                _ => {
                    let mut block = [0f32; MAX_LANES];
                    for (j, slot) in block.iter_mut().enumerate().take(n) {
                        *slot = *p.add(j * step);
                    }
                    self.load(block.as_ptr())
                }
            }
        }
    }
    /// Stores `n ≤ LANES` elements, the full store when all are wanted.
    /// # Safety
    /// `p` is valid for writes of `n` elements.
    #[inline(always)]
    unsafe fn store_up_to(self, p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { if n >= Self::LANES { self.store(p, v) } else { self.store_partial(p, v, n) } }
    }
}

/// Work written for any instruction set.
pub trait SimdTask {
    /// Result.
    type Output;
    /// Does the work. Mark the implementation `#[inline(always)]`: it must end up inside the wrapper
    /// that has the target features.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
const ONE_BITS: i32 = 0x3f80_0000;

/// [`Simd::split_power`] by integer arithmetic.
#[inline(always)]
fn split_bits<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(tiny, s.mul(x, s.splat(33_554_432.0)), x);
    let shifted = s.add_i(s.to_bits(scaled), s.splat_i(ONE_BITS - SQRT_HALF_BITS));
    let k = s.to_float(s.sub_i(s.shr_i::<23>(shifted), s.splat_i(127)));
    let k = s.select(tiny, s.sub(k, s.splat(25.0)), k);
    let mantissa = s.add_i(s.and_i(shifted, s.splat_i(0x007f_ffff)), s.splat_i(SQRT_HALF_BITS));
    (k, s.of_bits(mantissa))
}
