//! No file can hurt: mutated seed programs, each loaded, executed and dropped in a forked child of this warm
//! server, and what came up before, replayed.
//!
//! By itself this runs in seconds. `make fuzz-files FROM=0 COUNT=100000` runs mutants by number and appends what
//! came of them to `target/mutation/runs.txt`; findings are kept beside it. The process has one thread, as forking
//! demands, so this is no collection of `#[test]`s: it takes parts of names and `--ignored` as those do.

mod attacks;
mod campaign;
mod child;
mod cycles;
mod exhaustive;
mod filling_allocator;

use child::Server;
use pteron_fuzz::file_trial::{FileTrial, Verdict};
use pteron_fuzz::mutation::{Mutant, Seed, read_all};
use pteron_fuzz::seed_programs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the parts work with.
struct Tools {
    server: Server,
    trial: FileTrial,
    seeds: Vec<Seed>,
}

/// A part of the test: its name, and what it finds wrong.
type Part = (&'static str, fn(&Tools) -> Vec<String>);

const PARTS: [Part; 9] = [
    ("every_seed_gives_results", every_seed_gives_results),
    ("every_file_that_was_found_is_harmless", found_files),
    ("every_truncation_and_every_bit_of_the_smallest_program", exhaustive::program),
    ("every_truncation_and_every_bit_of_the_smallest_data_file", exhaustive::data_file),
    ("every_argument_replaced_by_every_value", attacks::every_argument),
    ("every_number_of_every_program_at_its_bounds", attacks::every_boundary),
    ("every_tensor_at_one_place", attacks::every_overlap),
    ("nothing_leaks", nothing_leaks),
    ("a_slice_of_mutants", slice),
];

/// Mutants of the slice, at most, and the time for it.
const SLICE: u64 = 1500;
const SLICE_TIME: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tools =
        Tools { server: Server::new(), trial: FileTrial::new(filling_allocator::fill_with), seeds: seeds() };
    warm(&tools);
    if let Some(path) = value_of(&arguments, "--file") {
        return one_file(&tools, Path::new(&path));
    }
    if let Some(count) = value_of(&arguments, "--count") {
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|e| panic!("{text}: {e}"));
        let from = value_of(&arguments, "--from").map_or(0, |text| number(&text));
        return many(&tools, from, number(&count));
    }
    if let Some(count) = value_of(&arguments, "--cycles") {
        return cycles::run(&tools, count.parse().unwrap_or_else(|e| panic!("{count}: {e}")));
    }
    if arguments.iter().any(|a| a == "--attacks") {
        return attacks::all(&tools);
    }
    if arguments.iter().any(|a| a == "--ignored") {
        return many(&tools, 0, 20_000);
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut is_good = true;
    for (name, part) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            let start = Instant::now();
            let problems = part(&tools);
            println!("mutation::{name}: {} problems, {:.1?}", problems.len(), start.elapsed());
            problems.iter().take(20).for_each(|p| println!("  {p}"));
            is_good &= problems.is_empty();
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `tests/corpus`.
fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

/// Exported programs, those that ExecuTorch lowered to XNNPACK, those that tests write, random ones among them, and three that
/// are older or come from elsewhere.
fn seeds() -> Vec<Seed> {
    let mut list = read_all(&corpus().join("seeds"));
    list.extend(seed_programs::seeds());
    list.extend(read_all(&corpus().join("../../rust/pteron-xnnpack/tests/programs")));
    let samples = corpus().join("../../schema/samples");
    list.extend(
        ["add-inline-constants.pte", "linear_relu.pte", "executorch_bundle.bpte"]
            .iter()
            .map(|name| Seed::read(&samples.join(name))),
    );
    list
}

fn value_of(arguments: &[String], name: &str) -> Option<String> {
    let at = arguments.iter().position(|a| a == name)?;
    arguments.get(at + 1).cloned()
}

/// Everything that the first use of something makes for the whole process.
fn warm(tools: &Tools) {
    for seed in &tools.seeds {
        // What is wrong with a seed says `every_seed_gives_results`.
        drop(tools.trial.verdict(&Mutant::unchanged(seed)));
    }
}

/// The seeds are sound: they run, and plans change none of their results but for rounding.
fn every_seed_gives_results(tools: &Tools) -> Vec<String> {
    let mut problems = Vec::new();
    for seed in &tools.seeds {
        match tools.trial.verdict(&Mutant::unchanged(seed)) {
            Ok(Verdict::Accepted(_)) => {}
            other => problems.push(format!("{}: {other:?}", seed.name)),
        }
    }
    if tools.seeds.len() < 10 {
        problems.push("fewer than ten seeds".into());
    }
    problems
}

/// Files that once did harm, each minimised and kept.
fn found_files(tools: &Tools) -> Vec<String> {
    let mut tally = campaign::Tally::default();
    for seed in read_all(&corpus().join("found")) {
        campaign::judge(&tools.server, &tools.trial, &Mutant::unchanged(&seed), &mut tally);
    }
    tally.findings
}

/// What is loaded, called, refused and dropped again and again leaves no byte and no open file.
fn nothing_leaks(tools: &Tools) -> Vec<String> {
    let seeds = tools.seeds.iter().map(Mutant::unchanged);
    let mutants = (0..30).map(|n| Mutant::of_number(&tools.seeds, (1 << 41) + n));
    let open_files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut problems = Vec::new();
    for mutant in seeds.chain(mutants) {
        let ending = tools.server.run(|| {
            let state = || (filling_allocator::live_bytes(), open_files());
            let rounds = || {
                (0..2).for_each(|_| drop(tools.trial.verdict(&mutant)));
                state()
            };
            // The first rounds make what the process keeps; what leaks grows with each round after them.
            let after = [rounds(), rounds(), rounds()];
            let grows = |of: fn(&(usize, usize)) -> usize| {
                of(&after[0]) < of(&after[1]) && of(&after[1]) < of(&after[2])
            };
            match grows(|s| s.0) || grows(|s| s.1) {
                false => "nothing".into(),
                true => format!("live bytes and open files after each two rounds: {after:?}"),
            }
        });
        if ending != child::Ending::Said("nothing".into()) {
            problems.push(format!("{}: {ending:?}", mutant.name));
        }
    }
    problems
}

/// Mutants by number; these numbers are no others' (`make fuzz-files` counts from 0).
fn slice(tools: &Tools) -> Vec<String> {
    let first = 1 << 40;
    let tally =
        campaign::run(&tools.server, &tools.trial, &tools.seeds, first..first + SLICE, SLICE_TIME, None);
    print!("{}", tally.summary(SLICE_TIME));
    tally.findings
}

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mutation");
    std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

fn many(tools: &Tools, from: u64, count: u64) -> ExitCode {
    let folder = folder();
    let start = Instant::now();
    let numbers = from..from + count;
    let text = format!("mutants {}..{} of {} seeds", numbers.start, numbers.end, tools.seeds.len());
    let tally =
        campaign::run(&tools.server, &tools.trial, &tools.seeds, numbers, Duration::MAX, Some(&folder));
    let mut lines = format!("{text}\n{}", tally.summary(start.elapsed()));
    tally.findings.iter().for_each(|f| lines.push_str(&format!("  {}\n", f.replace('\n', " "))));
    print!("{lines}");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("runs.txt"));
    log.and_then(|mut log| log.write_all(lines.as_bytes())).expect("the folder is writable");
    if tally.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One file, in this very process, for a debugger; and which rule is to blame.
fn one_file(tools: &Tools, path: &Path) -> ExitCode {
    let mutant = Mutant::unchanged(&Seed::read(path));
    println!("{:?}", tools.trial.verdict(&mutant));
    print!("{}", tools.trial.blame(&mutant));
    ExitCode::SUCCESS
}
