//! Which rewrites are switched on. Every rewrite has a name; all are on by default.

use std::collections::BTreeSet;

/// A set of rules that are off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSwitches {
    off: BTreeSet<String>,
    is_all_off: bool,
}

impl RuleSwitches {
    /// Everything on.
    pub fn all_on() -> Self {
        Self::default()
    }

    /// Everything off: the program runs as the file says.
    pub fn all_off() -> Self {
        RuleSwitches { off: BTreeSet::new(), is_all_off: true }
    }

    /// The same with `rule` off.
    #[must_use]
    pub fn without(mut self, rule: &str) -> Self {
        self.off.insert(rule.to_string());
        self
    }

    /// Rules that were switched off by name.
    pub fn off(&self) -> impl Iterator<Item = &str> {
        self.off.iter().map(String::as_str)
    }

    /// Is `rule` on?
    pub fn is_on(&self, rule: &str) -> bool {
        !self.is_all_off && !self.off.contains(rule)
    }
}
