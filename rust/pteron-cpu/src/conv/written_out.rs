//! Loops that are written out: the compiler leaves some loops over nested arrays as loops, and sums that
//! belong in registers then live in memory.

/// Writes `$body` out for each index below the constant `$n`, at most 14. Indices into arrays of known length are taken modulo
/// that length, which changes nothing: the compiler refuses constants beyond it even where they are not reached.
macro_rules! written_out {
    ($i:ident < $n:expr, $body:block) => {
        written_out!(@ $i $n, $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (@ $i:ident $n:expr, $body:block $($at:literal)*) => {
        $({
            const $i: usize = $at;
            if const { $i < $n } $body
        })*
    };
}
pub(super) use written_out;
