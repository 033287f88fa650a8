//! Elements as they are read and written, one by one and in blocks.

use super::*;

#[test]
fn floats_become_integers_by_truncation_and_low_bits() {
    assert_eq!(300.7f32.write::<u8>(), 44);
    assert_eq!((-1.0f32).write::<u8>(), 255);
    assert_eq!(f32::NAN.write::<i32>(), 0);
    assert_eq!(<f32 as Compute>::write::<Bool8>(f32::NAN), Bool8(1));
    assert_eq!((-129i64).write::<i8>(), 127);
}

#[test]
fn half_rounds_to_nearest_even() {
    assert_eq!(<f32 as Compute>::write::<f16>(2049.0).to_f32(), 2048.0);
    assert_eq!(<f32 as Compute>::write::<bf16>(257.0).to_f32(), 256.0);
}

#[test]
fn strided_blocks() {
    let data = [1i16, 2, 3, 4, 5, 6];
    let mut out = [0f32; 3];
    // SAFETY: elements 0, 2, 4 of six.
    unsafe { load_fn::<f32>(DType::Int16).unwrap()(data.as_ptr().cast(), 2, &mut out) };
    assert_eq!(out, [1.0, 3.0, 5.0]);
    // SAFETY: elements 5, 4, 3 of six.
    unsafe { load_fn::<f32>(DType::Int16).unwrap()(data.as_ptr().add(5).cast(), -1, &mut out) };
    assert_eq!(out, [6.0, 5.0, 4.0]);
    assert!(load_fn::<f32>(DType::Complex64).is_none());
}

/// Blocks of 16-bit floats against single elements, at lengths around those that are converted at once.
fn check_halves<T: Convert + Element + std::fmt::Debug, C: Compute>(dtype: DType) {
    let data: Vec<T> = (0..=u16::MAX).map(|v| bytemuck::cast(v)).collect();
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    for (first, count) in
        [(0, data.len()), (0x3c00, 7), (0x7bf0, 8), (0xfc01, 63), (0x03ff, 65), (5, 200), (9, 0)]
    {
        let elements = &data[first..first + count];
        let mut out = vec![C::default(); count];
        // SAFETY: as many elements as `out` has.
        unsafe { load_fn::<C>(dtype).unwrap()(elements.as_ptr().cast(), 1, &mut out) };
        for (got, element) in out.iter().zip(elements) {
            let want = C::read(*element);
            assert!(same(got.to_f64(), want.to_f64()), "{dtype} {element:?}: {got:?} for {want:?}");
        }
        // Numbers between those of the dtype.
        let numbers: Vec<C> = out
            .iter()
            .enumerate()
            .map(|(i, v)| C::from_f64(v.to_f64() * (1.0 + (i % 9) as f64 / 4096.0)))
            .collect();
        let mut stored = vec![data[1]; count + 1];
        // SAFETY: one element more than there are numbers.
        unsafe { store_fn::<C>(dtype).unwrap()(&numbers, stored.as_mut_ptr().cast(), 1) };
        for (got, number) in stored.iter().zip(&numbers) {
            let want: T = number.write();
            assert!(same(got.to_f64(), want.to_f64()), "{dtype} {number:?}: {got:?} for {want:?}");
        }
        assert!(same(stored[count].to_f64(), data[1].to_f64()), "one element too many was written");
    }
}

#[test]
fn halves_in_blocks_are_those_one_by_one() {
    check_halves::<f16, f32>(DType::Float16);
    check_halves::<f16, f64>(DType::Float16);
    check_halves::<f16, i64>(DType::Float16);
    check_halves::<bf16, f32>(DType::BFloat16);
    check_halves::<bf16, f64>(DType::BFloat16);
    check_halves::<bf16, i64>(DType::BFloat16);
}
