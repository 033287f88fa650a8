//! The rewrite rules, one per file, in the order in which they run. Each has a switch.

mod fuse_clamp;

use super::Graph;
use crate::plan::RuleSwitches;

/// A rewrite.
pub struct Rule {
    /// The name of its switch.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Applies it everywhere in the graph and returns how often it did.
    pub apply: fn(&mut Graph) -> usize,
}

/// All rules in order.
pub const RULES: &[Rule] = &[fuse_clamp::RULE];

/// Applies every rule that is switched on; returns the number of rewrites.
pub fn rewrite(graph: &mut Graph, switches: &RuleSwitches) -> usize {
    RULES.iter().filter(|rule| switches.is_on(rule.name)).map(|rule| (rule.apply)(graph)).sum()
}
