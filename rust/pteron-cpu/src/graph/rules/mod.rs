//! The rewrite rules, one per file, in the order in which they run. Each has a switch.

mod channels_last;
mod drop_indices;
mod fold_affine;
mod fold_batch_norm;
mod fold_constants;
mod fold_padding;
mod fuse_attention;
mod fuse_chain;
mod fuse_clamp;
mod fuse_residual;
mod fuse_rms_norm;
mod fuse_rotary;
mod fuse_tail;
mod fuse_weight_only;
mod quantised;
mod remove_copies;
mod remove_dead;
mod rule;
mod sink_views;
mod winograd;

use super::{Graph, Host};
use crate::plan::RuleSwitches;
use pteron_core::Result;
pub use rule::Rule;

/// All rules in order.
pub const RULES: &[Rule] = &[
    drop_indices::RULE,
    // Before those that look at what a call that quantises reads.
    quantised::move_quantise::RULE,
    // Before weights are folded into floats.
    quantised::move_dequantise::RULE,
    quantised::fuse_integer::RULE,
    fuse_attention::RULE,
    // Before those that would take its calls into products and chains.
    fuse_rms_norm::RULE,
    fuse_rotary::RULE,
    remove_copies::RULE,
    // Before the one that would fold weights into floats.
    fuse_weight_only::RULE,
    // Behind the one that knows masks by how they are made.
    fold_constants::WEIGHTS,
    fold_constants::RULE,
    fold_batch_norm::RULE,
    fold_padding::RULE,
    sink_views::RULE,
    // Behind what leaves products and calls side by side.
    fold_affine::RULE,
    // Before those that fuse: they ask for tensors that lie alike.
    channels_last::RULE,
    fuse_residual::RULE,
    fuse_clamp::RULE,
    fuse_tail::RULE,
    // Behind those that look for convolutions.
    winograd::RULE,
    remove_dead::RULE,
    // Takes what no other rule found a better place for.
    fuse_chain::RULE,
];

/// The rule that may make a method need more memory: copies in another order stand beside what they copy.
pub const COPIES_IMAGES: &str = channels_last::RULE.name;

/// The rules that are switched on and can have something to do in a method with `operators`.
pub fn candidates<'a>(
    operators: &'a [String],
    switches: &'a RuleSwitches,
) -> impl Iterator<Item = &'static Rule> + use<'a> {
    let has = |group: &&[&str]| operators.iter().any(|o| group.contains(&o.as_str()));
    RULES.iter().filter(move |rule| switches.is_on(rule.name) && rule.needs.iter().all(has))
}

/// Applies `rules` in order; returns the number of rewrites.
pub fn rewrite(graph: &mut Graph, host: &mut dyn Host, rules: &[&'static Rule]) -> Result<usize> {
    let mut count = 0;
    for rule in rules {
        count += (rule.apply)(graph, host)?;
    }
    Ok(count)
}
