//! Named data as one delegate sees it.

use pteron_core::NamedData;
use std::sync::Arc;

/// Lookups of one delegate: data that the file holds for it alone come before the program's.
///
/// A backend may give the same key with different bytes for two delegates of a program. The file then holds
/// each under `pteron.delegate.<key>@<method>/<index of the delegate>`, and nothing under the key itself.
pub(crate) struct DelegateData {
    shared: Arc<dyn NamedData>,
    place: String,
}

impl DelegateData {
    /// The view of delegate `index` of `method`.
    pub(crate) fn new(shared: Arc<dyn NamedData>, method: &str, index: usize) -> Self {
        DelegateData { shared, place: place(method, index) }
    }
}

impl NamedData for DelegateData {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.shared.get(&own(key, &self.place)).or_else(|| self.shared.get(key))
    }
}

/// The key of what the file holds for delegate `index` of `method` alone under `key`.
pub(crate) fn own_key(key: &str, method: &str, index: usize) -> String {
    own(key, &place(method, index))
}

fn own(key: &str, place: &str) -> String {
    format!("pteron.delegate.{key}{place}")
}

fn place(method: &str, index: usize) -> String {
    format!("@{method}/{index}")
}

#[cfg(test)]
mod tests {
    use super::DelegateData;
    use pteron_core::NamedData;
    use std::collections::HashMap;
    use std::sync::Arc;

    struct Table(HashMap<&'static str, &'static [u8]>);

    impl NamedData for Table {
        fn get(&self, key: &str) -> Option<&[u8]> {
            self.0.get(key).copied()
        }
    }

    #[test]
    fn its_own_data_come_first() {
        let table: Arc<dyn NamedData> = Arc::new(Table(HashMap::from([
            ("k", b"all".as_slice()),
            ("pteron.delegate.k@forward/1", b"one".as_slice()),
        ])));
        let seen =
            |method, index| DelegateData::new(table.clone(), method, index).get("k").map(<[u8]>::to_vec);
        assert_eq!(seen("forward", 0).as_deref(), Some(b"all".as_slice()));
        assert_eq!(seen("forward", 1).as_deref(), Some(b"one".as_slice()));
        assert_eq!(seen("other", 1).as_deref(), Some(b"all".as_slice()));
        assert_eq!(DelegateData::new(table.clone(), "forward", 1).get("unknown"), None);
    }
}
