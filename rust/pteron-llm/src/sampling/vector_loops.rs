//! The loops over all logits, compiled for the vectors that the processor has. Unsafe island (calls of these versions).
//!
//! Every version computes the same bits: comparisons and single operations of IEEE 754, in no other order.

#![allow(unsafe_code, reason = "a function for some processors is called where its features were found")]

use crate::sampling::logit::{BLOCK, Logit};
use crate::sampling::weights::weight;

/// Comparisons at a time.
const LANES: usize = 16;

/// Versions of a function for the instruction sets that are worth one.
macro_rules! for_each_processor {
    ($(#[doc = $doc:literal])* fn $name:ident<$T:ident: $bound:ident>($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block) => {
        $(#[doc = $doc])*
        pub(super) fn $name<$T: $bound>($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body<$T: $bound>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
                fn with_avx512<$T: $bound>($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn with_avx2<$T: $bound>($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the processor has the features that the function is compiled for.
                    return unsafe { with_avx512($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the features that the function is compiled for.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            body($($argument),*)
        }
    };
}

for_each_processor! {
    /// Writes the largest logit of each block; is a logit no number?
    fn block_maxima<T: Logit>(logits: &[T], maxima: &mut [f64]) -> bool {
        let mut broken = [T::Word::default(); LANES];
        let (blocks, rest) = logits.as_chunks::<BLOCK>();
        let mut maxima = maxima.iter_mut();
        for (block, out) in blocks.iter().zip(&mut maxima) {
            let mut most = [T::LOWEST; LANES];
            let (chunks, _) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for ((most, broken), x) in most.iter_mut().zip(&mut broken).zip(chunk) {
                    *most = if *x > *most { *x } else { *most };
                    *broken = *broken | T::Word::from(is_nan(*x));
                }
            }
            *out = largest_of_lanes(most).into();
        }
        let is_broken = rest.iter().any(|x| is_nan(*x)) || broken.iter().any(|word| *word != T::Word::default());
        if let Some(out) = maxima.next() {
            *out = largest_of(rest);
        }
        is_broken
    }
}

for_each_processor! {
    /// Writes the weight of each logit, where `most` is the largest.
    fn weigh<T: Logit>(logits: &[T], most: f64, temperature: f64, weights: &mut [u64]) {
        // A division by 1 changes nothing, and takes its time.
        if temperature == 1.0 {
            for (out, x) in weights.iter_mut().zip(logits) {
                *out = weight((*x).into() - most);
            }
        } else {
            for (out, x) in weights.iter_mut().zip(logits) {
                *out = weight(((*x).into() - most) / temperature);
            }
        }
    }
}

for_each_processor! {
    /// Adds the logits of a block that are at least `least`, with their tokens, of which the first is `first`.
    fn large<T: Logit>(block: &[T], first: u32, least: f64, found: &mut Vec<(f64, u32)>) {
        let mut keep = |chunk: &[T], tokens: u32| {
            let numbers = chunk.iter().map(|x| (*x).into()).zip(tokens..);
            found.extend(numbers.filter(|(x, _)| *x >= least));
        };
        let (chunks, rest) = block.as_chunks::<LANES>();
        let mut tokens = first;
        for chunk in chunks {
            // Few chunks have one: all lanes are asked at once.
            if chunk.iter().fold(false, |any, x| any | ((*x).into() >= least)) {
                keep(chunk, tokens);
            }
            tokens += LANES as u32;
        }
        keep(rest, tokens);
    }
}

/// By halves, so that no comparison waits for all before it.
#[inline(always)]
fn largest_of_lanes<T: Logit>(lanes: [T; LANES]) -> T {
    let mut lanes = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low = if *high > *low { *high } else { *low };
        }
        width /= 2;
    }
    lanes.first().copied().unwrap_or(T::LOWEST)
}

#[inline(always)]
fn largest_of<T: Logit>(logits: &[T]) -> f64 {
    logits.iter().fold(T::LOWEST, |most, x| if *x > most { *x } else { most }).into()
}

#[inline(always)]
#[allow(clippy::eq_op, reason = "what is no number differs from itself")]
fn is_nan<T: Copy + PartialEq>(x: T) -> bool {
    x != x
}
