//! How a file is changed. Each mutator is one way in which files get damaged or forged.

use super::seed::{Seed, SeedFile};
use super::sites::{Site, Sites, What};
use crate::pseudo_random::PseudoRandom;

/// A mutator: its name, how often it is drawn, and what it does.
pub struct Mutator {
    /// The name.
    pub name: &'static str,
    weight: usize,
    change: fn(&mut Mutation<'_>),
}

/// A file being changed.
struct Mutation<'a> {
    bytes: Vec<u8>,
    sites: &'a Sites,
    others: &'a [Seed],
    random: &'a mut PseudoRandom,
}

static MUTATORS: &[Mutator] = &[
    Mutator { name: "bits", weight: 2, change: bits },
    Mutator { name: "bytes", weight: 2, change: bytes },
    Mutator { name: "words", weight: 3, change: words },
    Mutator { name: "truncation", weight: 1, change: truncation },
    Mutator { name: "splice", weight: 2, change: splice },
    Mutator { name: "values", weight: 8, change: values },
    Mutator { name: "field", weight: 4, change: whole_field },
    Mutator { name: "offsets", weight: 3, change: offsets },
    Mutator { name: "vtables", weight: 2, change: vtables },
    Mutator { name: "lengths", weight: 2, change: lengths },
    Mutator { name: "text", weight: 2, change: text },
    Mutator { name: "mixed", weight: 2, change: mixed },
];

/// The mutator that is drawn.
pub fn draw(random: &mut PseudoRandom) -> &'static Mutator {
    let total: usize = MUTATORS.iter().map(|m| m.weight).sum();
    let mut left = random.below(total);
    MUTATORS
        .iter()
        .find(|m| {
            let is_it = left < m.weight;
            left = left.saturating_sub(m.weight);
            is_it
        })
        .expect("weights add up")
}

impl Mutator {
    /// `file` changed, with parts of `others` now and then; there may be nothing in it that this mutator changes.
    pub fn apply(&self, file: &SeedFile, others: &[Seed], random: &mut PseudoRandom) -> Vec<u8> {
        let mut mutation = Mutation { bytes: file.bytes.to_vec(), sites: &file.sites, others, random };
        (self.change)(&mut mutation);
        mutation.bytes
    }
}

/// Numbers at which code goes wrong.
pub const BOUNDARIES: [u64; 30] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    31,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
];

impl Mutation<'_> {
    fn place(&mut self) -> Option<usize> {
        match self.bytes.len() {
            0 => None,
            // Half of all changes hit the table, which most bytes of a file with weights are not in.
            n if self.random.one_in(2) => Some(self.random.below(n)),
            n => Some(self.random.below(n.min(self.table_end()).max(1))),
        }
    }

    fn table_end(&self) -> usize {
        self.sites.list.last().map_or(self.bytes.len(), |s| s.at + s.width)
    }

    fn read(&self, at: usize, width: usize) -> u64 {
        let part = self.bytes.get(at..at + width).unwrap_or_default();
        part.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    fn write(&mut self, at: usize, width: usize, value: u64) {
        if let Some(part) = self.bytes.get_mut(at..at + width) {
            part.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    /// A site of one of these kinds.
    fn site(&mut self, is_wanted: impl Fn(&Site) -> bool) -> Option<Site> {
        let found: Vec<&Site> = self.sites.list.iter().filter(|s| is_wanted(s)).collect();
        if found.is_empty() { None } else { Some(**self.random.pick(&found)) }
    }

    /// Another number for a site: a boundary, a neighbour, or what the same field has elsewhere.
    fn other_value(&mut self, site: &Site) -> u64 {
        let old = self.read(site.at, site.width);
        if let What::Code(count) = site.what {
            return self.random.below(usize::from(count)) as u64;
        }
        if site.what == What::Double {
            const DOUBLES: [f64; 12] =
                [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 1e18, -1e18, f64::NAN, f64::INFINITY, f64::MIN];
            return self.random.pick(&DOUBLES).to_bits();
        }
        match self.random.below(6) {
            0 => *self.random.pick(&BOUNDARIES),
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old.wrapping_mul(2),
            4 => self.random.below(24) as u64,
            _ => match self.site(|s| s.field == site.field && s.what == site.what) {
                Some(donor) => self.read(donor.at, donor.width),
                None => old.wrapping_neg(),
            },
        }
    }

    fn times(&mut self) -> usize {
        1 + if self.random.one_in(2) { 0 } else { self.random.below(4) }
    }
}

fn bits(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(at) = m.place() else { return };
        m.bytes[at] ^= 1 << m.random.below(8);
    }
}

fn bytes(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(at) = m.place() else { return };
        m.bytes[at] = match m.random.below(3) {
            0 => m.random.word() as u8,
            1 => *m.random.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff]),
            _ => m.bytes[at].wrapping_add(if m.random.one_in(2) { 1 } else { 255 }),
        };
    }
}

fn words(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(at) = m.place() else { return };
        let width = *m.random.pick(&[2, 4, 4, 8]);
        let at = if m.random.one_in(4) { at } else { at / width * width };
        let value = match m.random.below(3) {
            0 => m.bytes.len() as u64,
            _ => *m.random.pick(&BOUNDARIES),
        };
        m.write(at, width, value);
    }
}

fn truncation(m: &mut Mutation<'_>) {
    let len = m.bytes.len();
    match m.random.below(3) {
        0 => m.bytes.truncate(m.random.below(len + 1)),
        1 => m.bytes.truncate(len - m.random.below(len.min(64) + 1)),
        // Cut out of the middle.
        _ => {
            let from = m.random.below(len + 1);
            let to = (from + m.random.below(128)).min(len);
            m.bytes.drain(from..to);
        }
    }
}

fn splice(m: &mut Mutation<'_>) {
    let donor: &[u8] = match !m.others.is_empty() && m.random.one_in(2) {
        true => &m.random.pick(m.others).program.bytes,
        false => &m.bytes.clone(),
    };
    if donor.is_empty() || m.bytes.is_empty() {
        return;
    }
    let from = m.random.below(donor.len()) / 4 * 4;
    let len = (1 + m.random.below(256)).min(donor.len() - from);
    let part = donor[from..from + len].to_vec();
    let at = m.place().unwrap_or(0) / 4 * 4;
    if m.random.one_in(4) {
        // Everything behind moves.
        m.bytes.splice(at..at, part);
    } else {
        let len = len.min(m.bytes.len() - at);
        m.bytes[at..at + len].copy_from_slice(&part[..len]);
    }
}

fn is_value(site: &Site) -> bool {
    matches!(site.what, What::Number | What::Double | What::Code(_))
}

/// Numbers that the schema allows: the structure stays sound.
fn values(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        // A field first and then one of its sites, so that rare fields come up as often as arguments.
        let Some(one) = m.site(is_value) else { return };
        let mut fields: Vec<&str> = m.sites.list.iter().filter(|s| is_value(s)).map(|s| s.field).collect();
        fields.dedup();
        let field = if m.random.one_in(3) { one.field } else { *m.random.pick(&fields) };
        let Some(site) = m.site(|s| is_value(s) && s.field == field) else { return };
        let value = m.other_value(&site);
        m.write(site.at, site.width, value);
    }
}

/// One number in all, or in many, places of a field: every argument is value 0, every tensor lies at 0, ...
fn whole_field(m: &mut Mutation<'_>) {
    let Some(one) = m.site(is_value) else { return };
    let value = m.other_value(&one);
    let share = *m.random.pick(&[1, 1, 2, 4]);
    for i in 0..m.sites.list.len() {
        let site = m.sites.list[i];
        if is_value(&site) && site.field == one.field && m.random.one_in(share) {
            m.write(site.at, site.width, value);
        }
    }
}

/// References that point at another object, mostly one of the same type.
fn offsets(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(site) = m.site(|s| matches!(s.what, What::Offset(_))) else { return };
        let What::Offset(to) = site.what else { return };
        let targets: Vec<usize> = m
            .sites
            .objects
            .iter()
            .filter(|(name, at)| *at > site.at && (*name == to || m.bytes[*at] == 1))
            .map(|(_, at)| *at - site.at)
            .collect();
        let value = match targets.is_empty() || m.random.one_in(4) {
            false => *m.random.pick(&targets) as u64,
            true => m.other_value(&site),
        };
        m.write(site.at, 4, value);
    }
}

fn vtables(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(site) = m.site(|s| matches!(s.what, What::VtableEntry | What::VtableOffset)) else { return };
        let value = match (site.what, m.random.below(3)) {
            // The field is absent: its default, or nothing.
            (What::VtableEntry, 0) => 0,
            (_, 1) => match m.site(|s| s.what == site.what && s.at.abs_diff(site.at) < 64) {
                Some(donor) => m.read(donor.at, donor.width),
                None => 0,
            },
            _ => m.other_value(&site),
        };
        m.write(site.at, site.width, value);
    }
}

fn lengths(m: &mut Mutation<'_>) {
    for _ in 0..m.times() {
        let Some(site) = m.site(|s| s.what == What::Length) else { return };
        let old = m.read(site.at, 4);
        let value = match m.random.below(4) {
            0 => *m.random.pick(&BOUNDARIES),
            1 => old.wrapping_add(1 + m.random.below(4) as u64),
            _ => m.random.below(old as usize + 1) as u64,
        };
        m.write(site.at, 4, value);
    }
}

/// Letters of names, and of the JSON and blobs behind the table.
fn text(m: &mut Mutation<'_>) {
    const LETTERS: &[u8] = b"0123456789-+.eE\"\\{}[]:,nulltruefalse aAzZ_*/\0\x1b\n\xff\xc3";
    if m.random.one_in(3) {
        for _ in 0..m.times() {
            let Some(site) = m.site(|s| s.what == What::Letter) else { return };
            m.bytes[site.at] = *m.random.pick(LETTERS);
        }
        return;
    }
    // Digits and braces anywhere else are mostly JSON.
    let found: Vec<usize> = (m.table_end().min(m.bytes.len())..m.bytes.len())
        .filter(|at| m.bytes[*at].is_ascii_digit() || b"{}[]\",:-".contains(&m.bytes[*at]))
        .collect();
    for _ in 0..m.times() {
        if found.is_empty() {
            return;
        }
        let at = *m.random.pick(&found);
        m.bytes[at] = *m.random.pick(LETTERS);
    }
}

/// Several kinds of change in one file.
fn mixed(m: &mut Mutation<'_>) {
    for _ in 0..2 + m.random.below(3) {
        let change = *m.random.pick(&[
            bits,
            bytes,
            words,
            values,
            values,
            whole_field,
            offsets,
            vtables,
            lengths,
            text,
        ]);
        change(m);
    }
}
