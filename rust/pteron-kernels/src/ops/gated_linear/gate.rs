//! Values times the logistic function of gates, for every float type. Unsafe island (vector loads).

use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::vector_math::{Simd, SimdTask, double, sigmoid::sigmoid};
use half::{bf16, f16};
use pteron_core::Element;

/// `out[i] = values[i] · sigmoid(gates[i])`; all are of one length.
pub struct GateTask<'a, A> {
    pub values: &'a [A],
    pub gates: &'a [A],
    pub out: &'a mut [A],
}

impl<A: Gate> SimdTask for GateTask<'_, A> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        A::gate(s, self.values, self.gates, self.out);
    }
}

/// An element type with the loop over it.
pub trait Gate: Element {
    /// Rough time of an element.
    const PICOSECONDS: usize;
    /// See [`GateTask`].
    fn gate<S: Simd>(s: S, values: &[Self], gates: &[Self], out: &mut [Self]);
}

impl Gate for f64 {
    const PICOSECONDS: usize = 2000;
    #[inline(always)]
    fn gate<S: Simd>(s: S, values: &[f64], gates: &[f64], out: &mut [f64]) {
        for ((y, a), b) in out.iter_mut().zip(values).zip(gates) {
            *y = a * double::sigmoid(s, *b);
        }
    }
}

macro_rules! singles {
    ($($t:ty),*) => { $(
        impl Gate for $t {
            const PICOSECONDS: usize = 700;
            #[inline(always)]
            fn gate<S: Simd>(s: S, values: &[$t], gates: &[$t], out: &mut [$t]) {
                vectors(s, values, gates, out);
            }
        }
    )* };
}
singles!(f32, f16, bf16);

#[inline(always)]
fn vectors<S: Simd, A: Source + Sink>(s: S, values: &[A], gates: &[A], out: &mut [A]) {
    let n = out.len().min(values.len()).min(gates.len());
    let mut i = 0;
    while i < n {
        let count = S::LANES.min(n - i);
        // SAFETY: i + count ≤ n, the least length of the three.
        unsafe {
            let a = load_up_to(s, values.as_ptr().add(i), count);
            let b = load_up_to(s, gates.as_ptr().add(i), count);
            store_up_to(s, out.as_mut_ptr().add(i), s.mul(a, sigmoid(s, b)), count);
        }
        i += count;
    }
}
