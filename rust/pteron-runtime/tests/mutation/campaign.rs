//! Many mutants, one after the other, by number: the same number is the same mutant for ever (while the seeds and
//! mutators stay).

use crate::child::{Ending, Server};
use pteron_fuzz::file_trial::{Agreement, FileTrial, Verdict};
use pteron_fuzz::mutation::{Mutant, Seed};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// What came of many mutants.
#[derive(Default)]
pub struct Tally {
    pub counts: BTreeMap<String, u64>,
    /// Text of refusals without their numbers, how often, and one of the mutants.
    pub texts: BTreeMap<String, (u64, String, String)>,
    pub findings: Vec<String>,
}

impl Tally {
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// One line per outcome.
    pub fn summary(&self, took: Duration) -> String {
        let mut out = String::new();
        for (outcome, count) in &self.counts {
            let _ = writeln!(out, "{count:9} {outcome}");
        }
        let per_mutant = took.as_secs_f64() * 1e3 / self.total().max(1) as f64;
        let _ = writeln!(
            out,
            "{:9} mutants, {per_mutant:.2} ms each, {} findings",
            self.total(),
            self.findings.len()
        );
        out
    }
}

/// Runs one mutant in a child; `None` where nothing is wrong.
pub fn judge(server: &Server, trial: &FileTrial, mutant: &Mutant, tally: &mut Tally) -> Option<String> {
    let ending = server.run(|| match trial.verdict(mutant) {
        Ok(Verdict::RefusedAtLoad(kind, text)) => format!("refused at load\t{kind}\t{text}"),
        Ok(Verdict::RefusedAtBuild(kind, text)) => format!("refused when built\t{kind}\t{text}"),
        Ok(Verdict::RefusedAtCall(kind, text)) => format!("refused when called\t{kind}\t{text}"),
        Ok(Verdict::Accepted(agreement)) => format!("accepted\t{}\t", words_of(agreement)),
        Err(text) => format!("finding\t{text}"),
    });
    let problem = match ending {
        Ending::Said(text) => match text.strip_prefix("finding\t") {
            Some(finding) => finding.to_string(),
            None => {
                let mut parts = text.splitn(3, '\t');
                let outcome = format!("{}: {}", parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                *tally.counts.entry(outcome.clone()).or_default() += 1;
                let text = parts.next().unwrap_or("").to_string();
                let entry = tally.texts.entry(outcome + ": " + &without_numbers(&text));
                entry.or_insert_with(|| (0, mutant.name.clone(), text)).0 += 1;
                return None;
            }
        },
        other => format!("{other:?}"),
    };
    *tally.counts.entry("FINDING".into()).or_default() += 1;
    tally.findings.push(format!("{}: {problem}", mutant.name));
    Some(problem)
}

fn words_of(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::SameBytes => "same bytes with and without plans",
        Agreement::Rounded => "sums in another order with plans",
        Agreement::OtherPacks => "packed weights of the file are others than its plain ones",
        Agreement::RefusedByPlan => "shapes are others than the file's bounds, which a plan refuses",
        Agreement::RefusedWithoutPlans => "breaks a rule in a call that plans leave out",
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out.chars().take(160).collect()
}

/// Mutants `from..from + count`, until `most` has passed. Findings are written to `folder`.
pub fn run(
    server: &Server,
    trial: &FileTrial,
    seeds: &[Seed],
    numbers: std::ops::Range<u64>,
    most: Duration,
    folder: Option<&Path>,
) -> Tally {
    let start = Instant::now();
    let mut tally = Tally::default();
    let first = numbers.start;
    for number in numbers {
        if start.elapsed() > most {
            break;
        }
        let mutant = Mutant::of_number(seeds, number);
        if let (Some(problem), Some(folder)) = (judge(server, trial, &mutant, &mut tally), folder) {
            keep(folder, &mutant, &problem);
            eprintln!("{}: {:.300}", mutant.name, problem.replace('\n', " "));
        }
        if let Some(folder) = folder
            && (number + 1 - first).is_multiple_of(1000)
        {
            eprintln!("{}..{}", first, number + 1);
            report(folder, &tally, start.elapsed());
        }
    }
    if let Some(folder) = folder {
        report(folder, &tally, start.elapsed());
    }
    tally
}

pub fn keep(folder: &Path, mutant: &Mutant, problem: &str) {
    let path = folder.join(&mutant.name);
    let write = |suffix: &str, bytes: &[u8]| {
        let path = path.with_extension(suffix);
        std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    };
    write("pte", &mutant.program);
    if let Some(data) = &mutant.data {
        write("ptd", data);
    }
    write("txt", problem.as_bytes());
}

/// The summary so far, and all texts of refusals, for reading.
fn report(folder: &Path, tally: &Tally, took: Duration) {
    let mut texts = String::new();
    for (text, (count, example, whole)) in &tally.texts {
        let _ = writeln!(texts, "{count}\t{text}\t{example}\t{whole}");
    }
    let write =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the folder is writable");
    write("refusals.tsv", &texts);
    write("summary.txt", &tally.summary(took));
}
