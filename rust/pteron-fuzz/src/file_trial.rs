//! What is done with one file: loaded, its methods built, executed and dropped, under settings that must agree. The
//! mutation test of `pteron-runtime` and the fuzz targets over whole files ask it.

use crate::file_run::{FileRun, Outcome, close_numbers, load, same_numbers};
use crate::mutation::Mutant;
use crate::oracles::ROUNDED;
use pteron_cpu::plan::RuleSwitches;
use pteron_runtime::{Limits, MethodOptions, Runtime, RuntimeOptions};
use std::sync::Arc;

/// The runtimes of the settings, warm.
pub struct FileTrial {
    all_rules: Arc<Runtime>,
    exact_rules: Arc<Runtime>,
    no_rules: Arc<Runtime>,
    fill: fn(u8),
}

/// What a mutant was, after all settings agreed.
#[derive(Debug)]
pub enum Verdict {
    /// Refused before anything could run; kind and text.
    RefusedAtLoad(String, String),
    /// All its methods were refused when they were built.
    RefusedAtBuild(String, String),
    /// At least one method was built, and no call succeeded.
    RefusedAtCall(String, String),
    /// At least one call gave results, with plans and without in this relation.
    Accepted(Agreement),
}

/// How the results with plans relate to those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// The same bytes.
    SameBytes,
    /// By a rule that may round in another order.
    Rounded,
    /// The file brings packed weights, which plans read in place of the plain ones that the mutant changed.
    OtherPacks,
    /// The file as it is breaks a rule in a call that plans leave out or write otherwise.
    RefusedWithoutPlans,
    /// A plan refuses shapes that come out otherwise than the bounds in the file say.
    RefusedByPlan,
}

impl FileTrial {
    /// Runtimes of one thread with the demo backends. `fill` is told the pattern that memory is to be filled with before
    /// anybody writes it, by an allocator that can.
    ///
    /// # Panics
    ///
    /// If the machine gives no runtime.
    pub fn new(fill: fn(u8)) -> Self {
        let exact = ROUNDED.iter().filter(|r| pteron_runtime::rule_names().any(|known| known == **r));
        FileTrial {
            all_rules: runtime(RuleSwitches::all_on()),
            exact_rules: runtime(exact.fold(RuleSwitches::all_on(), |s, r| s.without(r))),
            no_rules: runtime(RuleSwitches::all_off()),
            fill,
        }
    }

    /// The runtime with all rewrites.
    pub fn rewriting(&self) -> &Arc<Runtime> {
        &self.all_rules
    }

    /// The one without any.
    pub fn plain(&self) -> &Arc<Runtime> {
        &self.no_rules
    }

    /// Runs everything.
    ///
    /// Errors: a finding.
    pub fn verdict(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let filled = |pattern| {
            (self.fill)(pattern);
            let run = FileRun::new(&self.all_rules, mutant);
            (self.fill)(0);
            run
        };
        let (first, second) = (filled(0xa5), filled(0x5a));
        if let Some(at) = first.difference(&second, |a, b| a == b) {
            return Err(format!("uninitialised memory is read: under two fill patterns {at}"));
        }
        let plain = FileRun::new(&self.no_rules, mutant);
        let agreement = self.agreement(&plain, &first, mutant)?;
        for (place, outcome) in &first.0 {
            if let Outcome::Refused(kind, text) = outcome {
                check_refusal(kind, text).map_err(|e| format!("{place}: {e}: {kind}: {text}"))?;
            }
        }
        Ok(summary(first, agreement))
    }

    /// Loads, builds, calls and drops once, with all rules.
    pub fn once(&self, mutant: &Mutant) {
        drop(FileRun::new(&self.all_rules, mutant));
    }

    /// What each rule, on by itself, changes, and the plans with all rules that may not round.
    pub fn blame(&self, mutant: &Mutant) -> String {
        let plain = FileRun::new(&self.no_rules, mutant);
        let mut out = String::new();
        for rule in pteron_runtime::rule_names() {
            let alone = pteron_runtime::rule_names()
                .filter(|other| *other != rule)
                .fold(RuleSwitches::all_on(), |s, other| s.without(other));
            if let Some(at) = plain.difference(&FileRun::new(&runtime(alone), mutant), same_numbers) {
                out.push_str(&format!("{rule} alone: {at}\n"));
            }
        }
        for (title, runtime) in [("exact rules", &self.exact_rules), ("no rules", &self.no_rules)] {
            let Ok(loaded) = load(runtime, mutant, Limits::default()) else { continue };
            for name in loaded.methods() {
                if loaded.load_method(name, MethodOptions::default()).is_ok() {
                    let plans = loaded.plan_listing(name).unwrap_or_default();
                    out.push_str(&format!("{title}, {name}:\n{plans}"));
                }
            }
        }
        out
    }

    /// Compares what was done without plans with what was done with all of them, and where these differ with those that
    /// may not round.
    fn agreement(&self, plain: &FileRun, all: &FileRun, mutant: &Mutant) -> Result<Agreement, String> {
        let Some(at) = plain.difference(all, same_numbers) else { return Ok(Agreement::SameBytes) };
        if plain.has_packs() {
            return Ok(Agreement::OtherPacks);
        }
        if plain.is_refused_before(all) {
            return Ok(Agreement::RefusedWithoutPlans);
        }
        let exact = FileRun::new(&self.exact_rules, mutant);
        if plain.is_refused_before(&exact) {
            return Ok(Agreement::RefusedWithoutPlans);
        }
        if all.is_refused_by_plan() && exact.is_refused_by_plan() {
            return Ok(Agreement::RefusedByPlan);
        }
        if let Some(at) = plain.difference(&exact, same_numbers) {
            return Err(format!("plans change results: without and with exact rules {at}"));
        }
        match plain.difference(all, close_numbers) {
            Some(far) => Err(format!("plans round more than they may: {far}; at first {at}")),
            None => Ok(Agreement::Rounded),
        }
    }
}

fn runtime(rules: RuleSwitches) -> Arc<Runtime> {
    let runtime = Runtime::new(RuntimeOptions { rules, threads: Some(1), isa: None }).expect("a runtime");
    pteron_demo::register(&runtime).expect("the demo backends");
    runtime
}

/// A refusal must say something, in one clean line.
///
/// Errors: what is wrong with it.
pub(crate) fn check_refusal(kind: &str, text: &str) -> Result<(), &'static str> {
    if kind == "Internal" {
        return Err("a panic or a broken promise inside");
    }
    if text.len() > 4096 || text.chars().any(char::is_control) {
        return Err("not one clean line");
    }
    let mut words = text.split("0x").skip(1);
    if words.any(|w| w.bytes().take_while(u8::is_ascii_hexdigit).count() >= 8) {
        return Err("an address in a message");
    }
    // Each kind of error has a hint of its own in Python; what a text must have is what is wrong with what.
    let parts = ["; expected ", "; got ", "(hint: ", "[arguments: ", "argument '"];
    if text.len() < 20 || !parts.iter().any(|part| text.contains(part)) {
        return Err("an error that says too little");
    }
    Ok(())
}

fn summary(run: FileRun, agreement: Agreement) -> Verdict {
    if run.0.iter().any(|(place, o)| place.contains("call") && matches!(o, Outcome::Results(_))) {
        return Verdict::Accepted(agreement);
    }
    let was_built = run.0.iter().any(|(place, _)| place.contains("call"));
    let last = run.0.into_iter().rfind(|(_, o)| matches!(o, Outcome::Refused(..)));
    let Some((place, Outcome::Refused(kind, text))) = last else {
        // A program without methods has nothing to run.
        return Verdict::Accepted(agreement);
    };
    match (place.as_str(), was_built) {
        ("load", _) => Verdict::RefusedAtLoad(kind, text),
        (_, false) => Verdict::RefusedAtBuild(kind, text),
        _ => Verdict::RefusedAtCall(kind, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed_programs;

    #[test]
    fn written_programs_are_accepted_and_damage_is_refused() {
        let trial = FileTrial::new(|_| ());
        for seed in seed_programs::seeds() {
            let mutant = Mutant::unchanged(&seed);
            let verdict = trial.verdict(&mutant);
            assert!(matches!(verdict, Ok(Verdict::Accepted(_))), "{}: {verdict:?}", seed.name);
            let short = Arc::new(mutant.program[..40].to_vec());
            let verdict = trial.verdict(&Mutant { program: short, ..mutant });
            assert!(matches!(verdict, Ok(Verdict::RefusedAtLoad(..))), "{}: {verdict:?}", seed.name);
        }
    }

    #[test]
    fn a_refusal_says_what_was_expected_on_one_line() {
        assert_eq!(
            check_refusal("InvalidProgram", "the magic bytes differ; expected ET12; got abcd"),
            Ok(())
        );
        assert!(check_refusal("Internal", "a bug of the kernel; expected none; got one").is_err());
        assert!(check_refusal("Kernel", "two lines\n; expected one; got two").is_err());
        assert!(check_refusal("Kernel", "a buffer at 0x7fff00001234; expected one").is_err());
        assert!(check_refusal("Kernel", "something is wrong with it").is_err());
    }
}
