//! Elements of a tensor as f32 side by side: what elementwise kernels compute on, block by block.
//!
//! f32 that lies as the output does is read in place, and so is a block inside one row of an operand that
//! repeats its rows. Operands that repeat after few elements (one value per channel, channels last; a row of three) are laid
//! out once per chunk, a block and a period long, and read at any phase. Everything else is laid out block by
//! block. Unsafe island (raw pointers).

use super::broadcast::{BroadcastPlan, Run};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::Bool8;

/// Elements of a block.
pub const BLOCK: usize = 1024;
/// Floats that an operand needs: a block, and the period that a repeated one may have.
pub const SPACE: usize = 2 * BLOCK;

/// An element of memory that is computed with as f32.
pub trait Source: bytemuck::Zeroable + Copy + Send + Sync + 'static {
    /// May blocks be read where they lie?
    const IS_F32: bool = false;
    /// One element.
    fn number(self) -> f32;
    /// `LANES` elements.
    ///
    /// # Safety
    /// They are readable at `p`.
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F {
        let mut block = [0f32; MAX_LANES];
        for (i, slot) in block.iter_mut().enumerate().take(S::LANES) {
            // SAFETY: i < LANES, and the caller promises so many elements at `p`.
            *slot = unsafe { (*p.add(i)).number() };
        }
        // SAFETY: the block has every lane.
        unsafe { s.load(block.as_ptr()) }
    }
}

/// `n ≤ LANES` elements; the lanes behind them are zero.
///
/// # Safety
/// They are readable at `p`.
#[inline(always)]
pub unsafe fn load_up_to<S: Simd, A: Source>(s: S, p: *const A, n: usize) -> S::F {
    const { assert!(S::LANES <= MAX_LANES) };
    // SAFETY: the caller promises `n` elements at `p`, of which no more are read; a block has every lane.
    unsafe {
        if n >= S::LANES {
            return A::load(s, p);
        }
        if A::IS_F32 {
            return s.load_partial(p.cast(), n);
        }
        // Copied and converted as a whole: little code, of which kernels have much.
        let mut block = [A::zeroed(); MAX_LANES];
        p.copy_to_nonoverlapping(block.as_mut_ptr(), n);
        A::load(s, block.as_ptr())
    }
}

/// Stores the first `n ≤ LANES` numbers.
///
/// # Safety
/// `p` is writable for as many elements.
#[inline(always)]
pub unsafe fn store_up_to<S: Simd, B: Sink>(s: S, p: *mut B, v: S::F, n: usize) {
    const { assert!(S::LANES <= MAX_LANES) };
    // SAFETY: the caller promises room for `n` elements at `p`, and no more are stored; the block has every lane.
    unsafe {
        if n >= S::LANES {
            return B::store(s, p, v);
        }
        if B::AS_THEY_ARE {
            return s.store_partial(p.cast(), v, n);
        }
        let mut block = [B::zeroed(); MAX_LANES];
        B::store(s, block.as_mut_ptr(), v);
        p.copy_from_nonoverlapping(block.as_ptr(), n);
    }
}

/// An element that results in f32 are stored as.
pub trait Sink: bytemuck::Zeroable + Copy + Send + Sync + 'static {
    /// Are results stored as they are?
    const AS_THEY_ARE: bool = false;
    /// One number.
    fn of_number(v: f32) -> Self;
    /// `LANES` numbers.
    ///
    /// # Safety
    /// `p` is writable for as many elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::F);
}

impl Source for f32 {
    const IS_F32: bool = true;
    #[inline(always)]
    fn number(self) -> f32 {
        self
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32) -> S::F {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        unsafe { s.load(p) }
    }
}

impl Sink for f32 {
    const AS_THEY_ARE: bool = true;
    #[inline(always)]
    fn of_number(v: f32) -> f32 {
        v
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f32, v: S::F) {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        unsafe { s.store(p, v) }
    }
}

impl Source for Bool8 {
    #[inline(always)]
    fn number(self) -> f32 {
        f32::from(u8::from(self.get()))
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Bool8) -> S::F {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        s.select(unsafe { s.load_bools(p.cast(), S::LANES) }, s.splat(1.0), s.zero())
    }
}

impl Sink for Bool8 {
    #[inline(always)]
    fn of_number(v: f32) -> Bool8 {
        Bool8::from(v != 0.0)
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Bool8, v: S::F) {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        unsafe { s.store_bools(p.cast(), s.not(s.eq(v, s.zero())), S::LANES) }
    }
}

macro_rules! half {
    ($t:ty, $load:ident, $store:ident, $to:ident, $from:ident) => {
        impl Source for $t {
            #[inline(always)]
            fn number(self) -> f32 {
                crate::vector_math::half_bits::$to(self.to_bits())
            }
            #[inline(always)]
            unsafe fn load<S: Simd>(s: S, p: *const $t) -> S::F {
                // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
                unsafe { s.$load(p.cast()) }
            }
        }
        impl Sink for $t {
            #[inline(always)]
            fn of_number(v: f32) -> $t {
                <$t>::from_bits(crate::vector_math::half_bits::$from(v))
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(s: S, p: *mut $t, v: S::F) {
                // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
                unsafe { s.$store(p.cast(), v) }
            }
        }
    };
}
half!(half::f16, load_binary16, store_binary16, binary16_to, binary16_from);
half!(half::bf16, load_brain16, store_brain16, brain16_to, brain16_from);

/// Numbers of this size have fractions whose last place is worth one.
const LAST_PLACE_IS_ONE: f32 = 12_582_912.0;

macro_rules! quantised {
    ($t:ty, $load:item) => {
        impl Source for $t {
            #[inline(always)]
            fn number(self) -> f32 {
                f32::from(self)
            }
            #[inline(always)]
            $load
        }
        impl Sink for $t {
            // The number is an integer in the range of the type, or NaN: its lowest byte is the last of the fraction
            // where the last place is worth one. NaN has zeros there. Without a branch, so that loops vectorise.
            #[inline(always)]
            fn of_number(v: f32) -> $t {
                (v + LAST_PLACE_IS_ONE).to_bits() as $t
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(s: S, p: *mut $t, v: S::F) {
                let bits = s.to_bits(s.add(v, s.splat(LAST_PLACE_IS_ONE)));
                // SAFETY: the caller promises room for LANES elements at `p`.
                unsafe { s.store_i8(p.cast(), bits) }
            }
        }
    };
}
quantised!(
    i8,
    unsafe fn load<S: Simd>(s: S, p: *const i8) -> S::F {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        s.to_float(unsafe { s.load_i8(p) })
    }
);
quantised!(
    u8,
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        // SAFETY: the caller promises LANES elements at `p`, which is what this touches.
        s.to_float(s.and_i(unsafe { s.load_i8(p.cast()) }, s.splat_i(0xff)))
    }
);

/// A float of sixteen bits.
pub trait Half: Source + Sink + pteron_core::Element {}
impl Half for half::f16 {}
impl Half for half::bf16 {}

/// Converts `n` neighbouring elements.
pub struct Convert<A, B> {
    /// First element to read.
    pub from: *const A,
    /// First element to write.
    pub to: *mut B,
    /// Number of elements.
    pub n: usize,
}

impl<A: Source, B: Sink> SimdTask for Convert<A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        // SAFETY: whoever makes the task promises `n` elements on both sides, `convert` by its slices; i + LANES ≤ n, then i < n.
        unsafe {
            while i + S::LANES <= self.n {
                B::store(s, self.to.add(i), A::load(s, self.from.add(i)));
                i += S::LANES;
            }
            while i < self.n {
                *self.to.add(i) = B::of_number((*self.from.add(i)).number());
                i += 1;
            }
        }
    }
}

/// Converts every element of `from`; both are of one length, or the shorter one ends it.
pub fn convert<A: Source, B: Sink>(level: SimdLevel, from: &[A], to: &mut [B]) {
    let n = from.len().min(to.len());
    level.dispatch(Convert { from: from.as_ptr(), to: to.as_mut_ptr(), n });
}

/// Lays out the elements for output elements `at..at + n`.
struct LayOut<'a, T> {
    plan: &'a BroadcastPlan<1>,
    source: *const T,
    at: usize,
    n: usize,
    block: *mut f32,
}

impl<T: Source> SimdTask for LayOut<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [stride] = self.plan.inner_strides();
        let mut to = self.block;
        for Run { offsets: [offset], n, .. } in self.plan.runs_between(self.at, self.at + self.n) {
            // SAFETY: the plan's runs lie inside the operand, and the block has room for `n` elements altogether.
            unsafe {
                let from = self.source.add(offset);
                match stride {
                    1 => Convert { from, to, n }.run(s),
                    0 => {
                        let number = (*from).number();
                        let v = s.splat(number);
                        for i in (0..n).step_by(S::LANES) {
                            s.store_up_to(to.add(i), v, n - i);
                        }
                    }
                    _ => {
                        for i in 0..n {
                            *to.add(i) = (*from.add(i * stride)).number();
                        }
                    }
                }
                to = to.add(n);
            }
        }
    }
}

/// Is `block`, of [`SPACE`] floats, filled for a whole chunk?
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    /// Repeats with this period; laid out.
    Repeated(usize),
    /// Anything else.
    Other,
}

/// Prepares for the blocks of a chunk that begins at output element 0 of a period or inside one.
///
/// # Safety
/// `plan` is that of the operand at `source`; `block` has [`SPACE`] elements.
pub unsafe fn begin<T: Source>(
    level: SimdLevel,
    plan: &BroadcastPlan<1>,
    source: *const T,
    block: &mut [f32],
) -> Layout {
    let Some(period) = plan.period().filter(|p| *p <= BLOCK && block.len() >= SPACE) else {
        return Layout::Other;
    };
    let wanted = (BLOCK + period).min(plan.numel());
    level.dispatch(LayOut { plan, source, at: 0, n: period.min(wanted), block: block.as_mut_ptr() });
    let mut have = period;
    while have < wanted {
        let more = have.min(wanted - have);
        block.copy_within(0..more, have);
        have += more;
    }
    Layout::Repeated(period)
}

/// Where the elements for output elements `at..at + n` lie side by side, n ≤ [`BLOCK`].
///
/// # Safety
/// As for [`begin`], whose answer `layout` is; `at + n` is at most the output's element count.
#[inline(always)]
pub unsafe fn elements<T: Source>(
    level: SimdLevel,
    plan: &BroadcastPlan<1>,
    source: *const T,
    layout: Layout,
    [at, n]: [usize; 2],
    block: &mut [f32],
) -> *const f32 {
    if T::IS_F32 && plan.is_dense() {
        return source.cast::<f32>().wrapping_add(at);
    }
    if let Layout::Repeated(period) = layout {
        return block.as_ptr().wrapping_add(at % period);
    }
    if T::IS_F32 && plan.inner_strides() == [1] {
        let mut runs = plan.runs_between(at, at + n);
        if let Some(run) = runs.next()
            && run.n == n
        {
            return source.cast::<f32>().wrapping_add(run.offsets[0]);
        }
    }
    level.dispatch(LayOut { plan, source, at, n, block: block.as_mut_ptr() });
    block.as_ptr()
}
