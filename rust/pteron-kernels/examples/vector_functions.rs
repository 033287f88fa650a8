//! Elementwise functions over numbers that lie side by side, a function each: `tests/aarch64/instruction_counts.py` counts the
//! instructions of their loops. Unsafe island.

use pteron_core::Isa;
use pteron_kernels::vector_math::twice::Twice;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask, erf, exp, log, sigmoid, tanh, trigonometric};

/// A function by its number, over as many whole vectors as there are.
struct Function<'a, const NUMBER: usize> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl<const NUMBER: usize> SimdTask for Function<'_, NUMBER> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // As long functions are computed: vectors two at a time.
        let (s, lanes) = (Twice(s), Twice::<S>::LANES);
        for (from, to) in self.from.chunks_exact(lanes).zip(self.to.chunks_exact_mut(lanes)) {
            // SAFETY: a chunk has a whole vector.
            let x = unsafe { s.load(from.as_ptr()) };
            let y = match NUMBER {
                0 => exp::exp(s, x),
                1 => tanh::tanh(s, x),
                2 => erf::erf(s, x),
                3 => sigmoid::sigmoid(s, x),
                4 => log::log(s, x),
                5 => trigonometric::sin(s, x),
                _ => s.clamp(x, s.splat(0.0), s.splat(6.0)),
            };
            // SAFETY: a chunk has a whole vector.
            unsafe { s.store(to.as_mut_ptr(), y) };
        }
    }
}

macro_rules! functions {
    ($($name:ident $number:literal)*) => {
        $(
            #[inline(never)]
            fn $name(level: SimdLevel, from: &[f32], to: &mut [f32]) {
                level.dispatch(Function::<$number> { from, to });
            }
        )*
        /// All of them.
        const ALL: &[fn(SimdLevel, &[f32], &mut [f32])] = &[$($name),*];
    };
}
functions!(each_exp 0 each_tanh 1 each_erf 2 each_sigmoid 3 each_log 4 each_sin 5 each_clamp 6);

fn main() {
    let from: Vec<f32> = (1..=4096).map(|i| i as f32 / 512.0).collect();
    let mut to = vec![0.0; from.len()];
    for function in ALL {
        function(SimdLevel::at_most(Isa::Avx512), &from, &mut to);
        println!("{}", to.iter().sum::<f32>());
    }
}
