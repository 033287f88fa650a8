//! What a rewrite rule is.

use crate::graph::{Graph, Host};
use pteron_core::Result;

/// A rewrite.
pub struct Rule {
    /// The name of its switch.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// It has nothing to do in methods that lack all operators of one of these groups.
    pub needs: &'static [&'static [&'static str]],
    /// Applies it everywhere in the graph and returns how often it did.
    pub apply: fn(&mut Graph, &mut dyn Host) -> Result<usize>,
}

/// What can take an epilogue, or becomes what can.
pub(crate) const WEIGHTED: &[&str] = &[
    "aten::addmm.out",
    "aten::mm.out",
    "aten::linear.out",
    "aten::bmm.out",
    "aten::baddbmm.out",
    "aten::convolution.out",
    "aten::_int_mm.out",
];
