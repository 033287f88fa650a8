//! A whole program file, checked.

use crate::MethodDef;
use std::ops::Range;

/// What a `.pte` file says, as owned plain data. Byte ranges are positions in the file: whoever uses
/// them keeps the file and checks nothing again.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramFile {
    /// Methods, in file order; names are unique.
    pub methods: Vec<MethodDef>,
    /// Named blobs, sorted by key; keys are unique.
    pub named_data: Vec<NamedDataDef>,
    /// The segment with the constants; empty when the file has none, or keeps them in the program table.
    pub constants: Range<usize>,
    /// Every segment of the file, in file order.
    pub segments: Vec<Range<usize>>,
    /// Length of the program table with headers: bytes `0..program_size` of the file.
    pub program_size: usize,
}

/// A named blob of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDataDef {
    /// Its name. Names that start with `pteron.` are ours.
    pub key: String,
    /// Its bytes in the file.
    pub range: Range<usize>,
}

impl ProgramFile {
    /// The method called `name`.
    pub fn method(&self, name: &str) -> Option<&MethodDef> {
        self.methods.iter().find(|m| m.name == name)
    }

    /// The byte range of the named blob `key`.
    pub fn named(&self, key: &str) -> Option<Range<usize>> {
        let at = self.named_data.binary_search_by(|n| n.key.as_str().cmp(key)).ok()?;
        self.named_data.get(at).map(|n| n.range.clone())
    }
}
