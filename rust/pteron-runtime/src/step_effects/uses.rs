//! When values are named.

use pteron_core::ValueId;

/// The span of a value that nothing names.
const NOWHERE: (usize, usize) = (usize::MAX, 0);

/// First and last step that names each value.
pub(crate) struct Uses {
    spans: Vec<(usize, usize)>,
}

impl Uses {
    /// Nothing is named yet, of `count` values.
    pub fn new(count: usize) -> Self {
        Uses { spans: vec![NOWHERE; count] }
    }

    /// Step `at` names `value`.
    pub fn add(&mut self, value: ValueId, at: usize) {
        if let Some((first, last)) = self.spans.get_mut(value.index()) {
            (*first, *last) = (at.min(*first), at.max(*last));
        }
    }

    /// First and last step that names `value`.
    pub fn span(&self, value: ValueId) -> Option<(usize, usize)> {
        self.spans.get(value.index()).copied().filter(|span| *span != NOWHERE)
    }
}
