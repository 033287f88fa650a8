//! What very many loads, calls, refusals and drops leave behind: `--cycles COUNT`.

use crate::child::Ending;
use crate::{Tools, filling_allocator};
use pteron_fuzz::file_trial::Verdict;
use pteron_fuzz::mutation::Mutant;
use std::process::ExitCode;
use std::time::Instant;

/// Files of these sizes are quick to load.
const MOST_BYTES: usize = 6000;
/// Numbers of mutants that no other part uses.
const FIRST: u64 = 1 << 42;
/// Cycles before the first look: all that a process keeps is made by then.
const WARM: u64 = 1000;
/// What malloc keeps may move by this much.
const MOST_GROWTH: usize = 1 << 20;

/// Bytes asked for and not given back, resident bytes, open files.
type Held = [usize; 3];

/// Loads, builds, calls and drops files that are accepted and files that each stage refuses, in turn.
pub fn run(tools: &Tools, count: u64) -> ExitCode {
    let files = files(tools);
    let cycle = |n: u64| {
        let at = usize::try_from(n).unwrap_or(0) % files.len();
        tools.trial.once(&files[at].1);
    };
    (0..WARM).for_each(cycle);
    let (before, start) = (held(), Instant::now());
    (0..count).for_each(cycle);
    let after = held();
    files.iter().for_each(|(kind, file)| println!("  {kind}: {}", file.name));
    println!(
        "{count} cycles, {:.1?}: live bytes, resident bytes, open files {before:?}, then {after:?}",
        start.elapsed()
    );
    let grown = |i: usize| after[i].saturating_sub(before[i]);
    let is_flat = grown(0) <= MOST_GROWTH && grown(1) <= MOST_GROWTH && grown(2) == 0;
    if is_flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One small file of each kind.
fn files(tools: &Tools) -> Vec<(String, Mutant)> {
    let mut found: Vec<(String, Mutant)> = Vec::new();
    for number in FIRST..FIRST + 2000 {
        let mutant = Mutant::of_number(&tools.seeds, number);
        if mutant.program.len() > MOST_BYTES || found.len() == 4 {
            continue;
        }
        let kind = || match tools.trial.verdict(&mutant) {
            Ok(Verdict::Accepted(_)) => "accepted".into(),
            Ok(Verdict::RefusedAtLoad(..)) => "refused at load".into(),
            Ok(Verdict::RefusedAtBuild(..)) => "refused when built".into(),
            Ok(Verdict::RefusedAtCall(..)) => "refused when called".into(),
            Err(problem) => panic!("{}: {problem}", mutant.name),
        };
        let Ending::Said(kind) = tools.server.run(kind) else { continue };
        if !found.iter().any(|(known, _)| *known == kind) {
            found.push((kind, mutant));
        }
    }
    assert_eq!(found.len(), 4, "a file of each kind");
    found
}

fn held() -> Held {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    [filling_allocator::live_bytes(), pages * 4096, open_files]
}
