//! Every method of [`Simd`] gives the same bits at every instruction set, for numbers of all kinds: subnormal ones, infinities,
//! NaN, halves, both zeros. (Fused multiply-adds are left out, and sums of lanes: they round as the instruction set has it.)
//! Unsafe island.

use super::{Simd, SimdLevel, SimdTask};
use pteron_core::Isa;
use std::collections::BTreeMap;

/// Numbers of each operand: whole vectors of every instruction set.
const COUNT: usize = 480;
const SPECIAL: [f32; 18] = [
    0.0,
    -0.0,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    1e-40,
    -1e-40,
    f32::MAX,
    f32::MIN_POSITIVE,
    65504.0,
    65520.0,
    1e-7,
    0.5,
    1.5,
    2.5,
    -0.5,
    8_388_609.0,
    -3.0,
];

/// A third special numbers, a third any bits, a third small numbers.
fn numbers(mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 11
    };
    (0..COUNT)
        .map(|i| match i % 3 {
            0 => SPECIAL[next() as usize % SPECIAL.len()],
            1 => f32::from_bits(next() as u32),
            _ => (next() % 4096) as f32 / 128.0 - 16.0,
        })
        .collect()
}

/// What each method makes of all vectors of two operands: bits lane by lane, NaN alike whatever its own bits are.
struct Methods<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

type Results = BTreeMap<&'static str, Vec<u32>>;

impl SimdTask for Methods<'_> {
    type Output = Results;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Results {
        let mut out = Results::new();
        let mut put = |name, bits: &[u32]| out.entry(name).or_default().extend_from_slice(bits);
        let floats = |v: S::F| {
            let mut lanes = vec![0f32; S::LANES];
            // SAFETY: there is room for a vector.
            unsafe { s.store(lanes.as_mut_ptr(), v) };
            lanes
                .iter()
                .map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
                .collect::<Vec<_>>()
        };
        let truths = |m: S::M| {
            let mut bytes = vec![9u8; S::LANES];
            // SAFETY: there is room for a byte for each lane.
            unsafe { s.store_bools(bytes.as_mut_ptr(), m, S::LANES) };
            bytes.iter().map(|b| u32::from(*b)).collect::<Vec<_>>()
        };
        let pairs = self.a.chunks_exact(S::LANES).zip(self.b.chunks_exact(S::LANES));
        for (first, (a, b)) in pairs.enumerate().map(|(i, pair)| (i * S::LANES, pair)) {
            // SAFETY: a chunk has a whole vector; all numbers have the bytes of as many narrower ones from any of these on.
            let (x, y, half, brain, bytes) = unsafe {
                let (words, bytes) =
                    (self.a.as_ptr().cast::<u16>().add(first), self.a.as_ptr().cast::<i8>().add(first));
                let (half, brain) = (s.load_binary16(words), s.load_brain16(words));
                (s.load(a.as_ptr()), s.load(b.as_ptr()), half, brain, s.load_i8(bytes))
            };
            for (name, v) in [
                ("add", s.add(x, y)),
                ("sub", s.sub(x, y)),
                ("mul", s.mul(x, y)),
                ("div", s.div(x, y)),
                ("min", s.min(x, y)),
                ("max", s.max(x, y)),
                ("abs", s.abs(x)),
                ("neg", s.neg(x)),
                ("sqrt", s.sqrt(x)),
                ("round", s.round(x)),
                ("clamp", s.clamp(x, s.splat(-1.0), s.splat(2.0))),
                ("select", s.select(s.lt(x, y), x, y)),
                ("load_binary16", half),
                ("load_brain16", brain),
                ("load_i8", s.to_float(bytes)),
                ("low nibbles", s.nibbles(bytes).0),
                ("high nibbles", s.nibbles(bytes).1),
            ] {
                put(name, &floats(v));
            }
            let (i, j) = (s.to_bits(x), s.to_bits(y));
            let mut lowest = vec![0i8; S::LANES];
            // SAFETY: there is room for a byte of each lane.
            unsafe { s.store_i8(lowest.as_mut_ptr(), i) };
            put("store_i8", &lowest.iter().map(|b| *b as u32).collect::<Vec<_>>());
            for (name, v) in [
                ("add_i", s.add_i(i, j)),
                ("sub_i", s.sub_i(i, j)),
                ("mul_i", s.mul_i(i, j)),
                ("and_i", s.and_i(i, j)),
                ("or_i", s.or_i(i, j)),
                ("shl_i", s.shl_i::<5>(i)),
                ("shr_i", s.shr_i::<9>(i)),
            ] {
                put(name, &floats(s.of_bits(v)));
            }
            put("to_float", &floats(s.to_float(i)));
            for (name, m) in [
                ("lt", s.lt(x, y)),
                ("le", s.le(x, y)),
                ("eq", s.eq(x, y)),
                ("not", s.not(s.le(x, y))),
                ("or", s.or(s.lt(x, y), s.eq(x, y))),
            ] {
                put(name, &truths(m));
            }
            let between = |v: S::F, low: f32, high: f32| {
                s.clamp(s.select(s.eq(v, v), v, s.splat(1.0)), s.splat(low), s.splat(high))
            };
            let scaled = s.scale2(between(x, 1.0 / 64.0, 4.0), s.round(between(y, -151.0, 134.0)));
            put("scale2", &floats(scaled));
            let near_one = between(x, 0.25, 4.0);
            put("scale2_normal", &floats(s.scale2_normal(near_one, s.round(between(y, -124.0, 125.0)))));
            let nan = s.splat(f32::NAN);
            put("scale2 of NaN", &floats(s.scale2(nan, nan)));
            put("scale2_normal of NaN", &floats(s.scale2_normal(nan, nan)));
            let mut words = vec![0u16; 2 * S::LANES];
            let (halves, brains) = words.split_at_mut(S::LANES);
            // SAFETY: there is room for both.
            unsafe {
                s.store_binary16(halves.as_mut_ptr(), x);
                s.store_brain16(brains.as_mut_ptr(), x);
            }
            let is_nan = |word: u16, infinity: u16| word & 0x7fff > infinity;
            put(
                "store_binary16",
                &halves
                    .iter()
                    .map(|w| if is_nan(*w, 0x7c00) { 1 } else { u32::from(*w) })
                    .collect::<Vec<_>>(),
            );
            put(
                "store_brain16",
                &brains
                    .iter()
                    .map(|w| if is_nan(*w, 0x7f80) { 1 } else { u32::from(*w) })
                    .collect::<Vec<_>>(),
            );
            // 64-bit lanes over the same bytes: half as many in a vector, twice as wide.
            let mut longs = vec![0i64; S::LANES];
            let (sums, products) = longs.split_at_mut(S::LANES / 2);
            // SAFETY: the bytes of a vector are those of half as many 64-bit numbers, unaligned loads are allowed, and there
            // is room for both results.
            unsafe {
                let (k, l) = (s.load_l(a.as_ptr().cast()), s.load_l(b.as_ptr().cast()));
                s.store_l(sums.as_mut_ptr(), s.add_l(k, l));
                s.store_l(products.as_mut_ptr(), s.mul_l(k, l));
            }
            let words = |v: &[i64]| v.iter().flat_map(|v| [*v as u32, (*v >> 32) as u32]).collect::<Vec<_>>();
            put("add_l", &words(sums));
            put("mul_l", &words(products));
        }
        out
    }
}

#[test]
fn methods_give_the_same_bits_everywhere() {
    let (a, b) = (numbers(88_172_645_463_325_252), numbers(7_046_029_254_386_353_131));
    let expected = SimdLevel::at_most(Isa::Portable).dispatch(Methods { a: &a, b: &b });
    assert_eq!(expected.len(), 39);
    for isa in Isa::ALL {
        let found = SimdLevel::at_most(isa).dispatch(Methods { a: &a, b: &b });
        for (name, bits) in &expected {
            assert_eq!(&found[name], bits, "{name} with {isa:?}");
        }
    }
}

/// Partial loads and stores, and transposes of every size.
struct Parts<'a>(&'a [f32]);

impl SimdTask for Parts<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lanes = |v: S::F| {
            let mut lanes = vec![0f32; S::LANES];
            // SAFETY: there is room for a vector.
            unsafe { s.store(lanes.as_mut_ptr(), v) };
            lanes
        };
        for n in 0..=S::LANES {
            // Memory of exactly the elements that may be read.
            let (some, even) = (self.0[..n].to_vec(), self.0[..(2 * n).saturating_sub(1)].to_vec());
            let bytes: Vec<u8> = (0..n).map(|i| if i % 3 == 0 { 0 } else { 7 }).collect();
            let mut stored = vec![-1f32; S::LANES + 1];
            let mut truths = vec![9u8; S::LANES + 1];
            // SAFETY: `n` elements, or the even ones of `2 n - 1`, are there, and more room than is written.
            let (loaded, loaded_even) = unsafe {
                s.store_partial(stored.as_mut_ptr(), s.load(self.0.as_ptr()), n);
                s.store_bools(truths.as_mut_ptr(), s.load_bools(bytes.as_ptr(), n), n);
                (lanes(s.load_partial(some.as_ptr(), n)), lanes(s.load_even(even.as_ptr(), n)))
            };
            for i in 0..S::LANES {
                assert_eq!(loaded[i], if i < n { self.0[i] } else { 0.0 }, "load_partial {n}");
                assert_eq!(loaded_even[i], if i < n { self.0[2 * i] } else { 0.0 }, "load_even {n}");
            }
            for i in 0..=S::LANES {
                assert_eq!(stored[i], if i < n { self.0[i] } else { -1.0 }, "store_partial {n}");
                assert_eq!(truths[i], if i < n { u8::from(i % 3 != 0) } else { 9 }, "bools {n}");
            }
        }
        for (rows, cols) in (0..=S::LANES).flat_map(|r| (0..=S::LANES).map(move |c| (r, c))) {
            let mut out = vec![-1f32; 17 * 17];
            // SAFETY: the numbers have rows of 17, and so has what is written.
            unsafe { s.transpose_block(self.0.as_ptr(), 17, rows, cols, out.as_mut_ptr(), 17) };
            for (c, r) in (0..17).flat_map(|c| (0..17).map(move |r| (c, r))) {
                let expected = if r < rows && c < cols { self.0[r * 17 + c] } else { -1.0 };
                assert_eq!(out[c * 17 + r], expected, "transpose {rows} x {cols} at {r}, {c}");
            }
        }
    }
}

#[test]
fn parts_of_vectors_touch_nothing_else() {
    let numbers: Vec<f32> = (0..17 * 17).map(|i| i as f32 + 1.0).collect();
    for isa in Isa::ALL {
        SimdLevel::at_most(isa).dispatch(Parts(&numbers));
    }
}

/// What a table has for the first so many bytes, with a byte behind that stays.
struct LookUps<'a>(&'a [u8; 256], &'a [u8]);

impl SimdTask for LookUps<'_> {
    type Output = Vec<Vec<u8>>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let LookUps(table, from) = self;
        let look_up = |n: usize| {
            let mut to = vec![99u8; n + 1];
            // SAFETY: there are `n` bytes, and room for as many.
            unsafe { s.look_up(table, from.as_ptr(), to.as_mut_ptr(), n) };
            to
        };
        (0..=from.len()).map(look_up).collect()
    }
}

#[test]
fn tables_are_looked_up_byte_by_byte() {
    let table: [u8; 256] = std::array::from_fn(|i| (i * 167 + 13) as u8);
    // Every byte, in another order than the table's.
    let from: Vec<u8> = (0..300).map(|i| (i * 59 + 7) as u8).collect();
    for isa in Isa::ALL {
        let found = SimdLevel::at_most(isa).dispatch(LookUps(&table, &from));
        for (n, to) in found.iter().enumerate() {
            let expected = from[..n].iter().map(|byte| table[usize::from(*byte)]).chain([99]);
            assert!(to.iter().copied().eq(expected), "{n} bytes with {isa:?}");
        }
    }
}
