//! Limits, as C sets them.

use crate::abi::PteronLimits;
use pteron_runtime::Limits;
use std::time::Duration;

/// What is not 0.
pub(crate) fn set<T>(value: T) -> Option<T>
where
    T: PartialEq + Default,
{
    (value != T::default()).then_some(value)
}

fn size(value: u64) -> Option<usize> {
    set(value).map(|value| usize::try_from(value).unwrap_or(usize::MAX))
}

/// The limits of the runtime.
pub(crate) fn limits(c: &PteronLimits) -> Limits {
    Limits {
        arena_bytes: size(c.arena_bytes),
        instructions: set(c.instructions),
        time: set(c.time_ns).map(Duration::from_nanos),
        nesting: size(c.nesting),
        values: size(c.values),
        rank: size(c.rank),
    }
}
