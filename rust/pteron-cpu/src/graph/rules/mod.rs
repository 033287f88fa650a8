//! The rewrite rules, one per file, in the order in which they run. Each has a switch.

mod channels_last;
mod convolve_before_resize;
mod drop_indices;
mod fold_affine;
mod fold_batch_norm;
mod fold_constants;
mod fold_padding;
mod fold_products;
mod fuse_attention;
mod fuse_chain;
mod fuse_clamp;
mod fuse_residual;
mod fuse_rms_norm;
mod fuse_rotary;
mod fuse_tail;
mod fuse_weight_only;
mod pointwise;
mod quantised;
mod remove_copies;
mod remove_dead;
mod rows_behind;
mod rule;
mod sink_views;
mod winograd;
mod write_as_shown;

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
    // Behind what it changes, before those that would make chains of what quantises rows.
    quantised::multiply_rows::RULE,
    // Behind the one that knows masks by how they are made.
    fold_constants::WEIGHTS,
    fold_constants::RULE,
    fold_batch_norm::RULE,
    fold_padding::RULE,
    sink_views::RULE,
    // Behind what leaves products and calls side by side.
    fold_affine::RULE,
    // Behind what goes into the weights of convolutions.
    convolve_before_resize::RULE,
    // Before those that fuse: they ask for tensors that lie alike.
    channels_last::RULE,
    // Behind the one by which rows and images are the same bytes.
    fold_products::RULE,
    quantised::fuse_sum::RULE,
    fuse_residual::RULE,
    fuse_clamp::RULE,
    fuse_tail::RULE,
    write_as_shown::RULE,
    // Behind those that look for convolutions.
    winograd::RULE,
    remove_dead::RULE,
    // Takes what no other rule found a better place for.
    fuse_chain::RULE,
];

/// The rules that may make a method need more memory, the one that is worth least first. A chain reads all its inputs
/// at once; maps that were convolved stand beside each other; copies in another order beside what they copy; floats whose rows are
/// quantised live as long as their bytes would.
pub const NEED_MEMORY: [&str; 4] = [
    fuse_chain::RULE.name,
    convolve_before_resize::RULE.name,
    channels_last::RULE.name,
    quantised::multiply_rows::RULE.name,
];

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
