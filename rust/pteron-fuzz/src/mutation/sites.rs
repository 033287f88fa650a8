//! A walk over the FlatBuffers table of a program or data file: where each number, length, offset and vtable is.

use super::schema::{Field, find};
use std::collections::HashSet;

/// What lies at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A number, or an element of a list.
    Number,
    /// A float of 8 bytes.
    Double,
    /// A code of an enumeration with so many members.
    Code(u8),
    /// The length of a list or text.
    Length,
    /// A reference to something of this type.
    Offset(&'static str),
    /// An entry of a vtable, or one of its two lengths.
    VtableEntry,
    /// Where the vtable of a table is.
    VtableOffset,
    /// A byte of a text.
    Letter,
}

/// A place in a file that means something.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The first byte.
    pub at: usize,
    /// Bytes.
    pub width: usize,
    /// What they are.
    pub what: What,
    /// The field that it belongs to.
    pub field: &'static str,
}

/// The walked file.
#[derive(Default)]
pub struct Sites {
    /// All places, in the order of the file.
    pub list: Vec<Site>,
    /// Where objects of each type are, for references that point at another of them.
    pub objects: Vec<(&'static str, usize)>,
    seen: HashSet<(&'static str, usize)>,
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(width)?)?;
    Some(part.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

impl Sites {
    /// All sites of a whole program or data file.
    pub fn of(bytes: &[u8]) -> Sites {
        let mut out = Sites::default();
        let root = match bytes.get(4..8) {
            Some(b"FT01") => "FlatTensor",
            Some(b"ET12") => "Program",
            // A bundled program: its bytes alone are changed.
            _ => return out,
        };
        out.header(bytes, root);
        let _ = out.reference(bytes, 0, root, "root");
        out.list.sort_by_key(|s| s.at);
        out
    }

    fn add(&mut self, at: usize, width: usize, what: What, field: &'static str) {
        self.list.push(Site { at, width, what, field });
    }

    /// The extended header behind the identifier, if there is one.
    fn header(&mut self, bytes: &[u8], root: &str) {
        let count = match (bytes.get(8..12), root) {
            (Some(b"eh00"), _) => 3,
            (Some(b"FH01"), _) => 4,
            _ => return,
        };
        self.add(12, 4, What::Number, "header_length");
        for i in 0..count {
            self.add(16 + 8 * i, 8, What::Number, "header_place");
        }
    }

    fn reference(&mut self, bytes: &[u8], at: usize, to: &'static str, field: &'static str) -> Option<usize> {
        self.add(at, 4, What::Offset(to), field);
        let target = at.checked_add(usize::try_from(number(bytes, at, 4)?).ok()?)?;
        self.objects.push((to, target));
        if !matches!(to, "text" | "numbers" | "tables") {
            self.table(bytes, target, to)?;
        }
        Some(target)
    }

    fn table(&mut self, bytes: &[u8], at: usize, name: &'static str) -> Option<()> {
        if !self.seen.insert((name, at)) {
            return Some(());
        }
        let schema = find(name);
        self.add(at, 4, What::VtableOffset, name);
        let back = number(bytes, at, 4)? as u32 as i32;
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let len = number(bytes, vtable, 2)? as usize;
        if self.seen.insert(("vtable", vtable)) {
            (0..len / 2).for_each(|i| self.add(vtable + 2 * i, 2, What::VtableEntry, name));
        }
        let mut code = 0;
        for (slot, (field, kind)) in schema.fields.iter().enumerate() {
            let entry = 4 + 2 * slot;
            let place = if entry + 2 <= len { number(bytes, vtable + entry, 2)? as usize } else { 0 };
            if place != 0 {
                code = self.field(bytes, at + place, (field, *kind), code)?;
            }
        }
        Some(())
    }

    /// A field that is there; returns the kind that the union behind it has.
    fn field(&mut self, bytes: &[u8], at: usize, field: (&'static str, Field), code: u64) -> Option<u64> {
        let (name, kind) = field;
        match kind {
            Field::Number(width) => self.add(at, width, What::Number, name),
            Field::Double => self.add(at, 8, What::Double, name),
            Field::Code(count) => {
                self.add(at, 1, What::Code(count), name);
                return number(bytes, at, 1);
            }
            Field::Text => self.numbers(bytes, at, (name, "text"), 1)?,
            Field::Numbers(width) => self.numbers(bytes, at, (name, "numbers"), width)?,
            Field::Table(to) => drop(self.reference(bytes, at, to, name)?),
            Field::Union(kinds) => {
                if let Some(to) = (code as usize).checked_sub(1).and_then(|i| kinds.get(i)) {
                    self.reference(bytes, at, to, name)?;
                }
            }
            Field::Tables(to) => {
                let list = self.reference(bytes, at, "tables", name)?;
                self.add(list, 4, What::Length, name);
                for i in 0..number(bytes, list, 4)? as usize {
                    self.reference(bytes, list + 4 + 4 * i, to, name)?;
                }
            }
            Field::Other => {}
        }
        Some(0)
    }

    fn numbers(
        &mut self,
        bytes: &[u8],
        at: usize,
        what: (&'static str, &'static str),
        width: usize,
    ) -> Option<()> {
        // Bytes of blobs are changed by the plain mutators; the first few stand for all.
        const SHOWN: usize = 64;
        let (field, to) = what;
        let list = self.reference(bytes, at, to, field)?;
        if !self.seen.insert((to, list)) {
            return Some(());
        }
        self.add(list, 4, What::Length, field);
        let element = match (to, field) {
            ("text", _) => What::Letter,
            (_, "double_items") => What::Double,
            _ => What::Number,
        };
        for i in 0..(number(bytes, list, 4)? as usize).min(SHOWN) {
            self.add(list + 4 + width * i, width, element, field);
        }
        Some(())
    }
}
