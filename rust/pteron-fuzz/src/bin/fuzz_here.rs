//! `fuzz_here TARGET SECONDS [FIRST_SEED]`: runs a target on inputs of seeds in this process, without a fuzzer.
//! `fuzz_here --write TARGET COUNT FOLDER` writes the inputs of the first seeds to files, for a fuzzer to start from.
//!
//! Findings are printed once per text. The seed of the case that runs is in the file that `PTERON_FUZZ_SEED`
//! names, for what ends the process; `0` seconds print the case of a seed.

use pteron_fuzz::kernel_args::{self, Reach};
use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// What came out, by operator (or by target).
#[derive(Default)]
struct Report {
    findings: BTreeMap<String, usize>,
    // Cases, cases that ran, and the last refusal.
    reached: BTreeMap<&'static str, (usize, usize, String)>,
}

impl Report {
    fn count(&mut self, name: &'static str, reach: Reach) {
        let entry = self.reached.entry(name).or_default();
        entry.0 += 1;
        match reach {
            Reach::Ran => entry.1 += 1,
            Reach::Refused(text) => entry.2 = text,
            Reach::TooLarge => {}
        }
    }

    fn finding(&mut self, seed: u64, described: &str) {
        let text = LAST_PANIC.lock().map(|t| t.clone()).unwrap_or_default();
        let operator = described.split(' ').next().unwrap_or_default();
        // Numbers differ from case to case.
        let key: String = text.chars().filter(|c| !c.is_ascii_digit()).take(120).collect();
        let key = format!("{operator} {}", key.split(": element").next().unwrap_or_default());
        let count = self.findings.entry(key).or_default();
        *count += 1;
        if *count == 1 {
            let text: String = text.chars().take(500).collect();
            let described: String = described.chars().take(1500).collect();
            println!("seed {seed}: {described}\n    {text}");
        }
    }

    fn print(&self, cases: u64) {
        let ran = self.reached.values().filter(|r| r.1 > 0).count();
        println!("{cases} cases, {} findings, {ran} of {} ran", self.findings.len(), self.reached.len());
        for (name, (cases, _, last)) in self.reached.iter().filter(|(_, r)| r.1 == 0) {
            let last: String = last.chars().take(200).collect();
            println!("never ran: {name} ({cases} cases): {last}");
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, write, target, count, folder] = args.as_slice()
        && write == "--write"
    {
        if let Err(e) = write_inputs(target, count, Path::new(folder)) {
            eprintln!("{e}");
            std::process::exit(1);
        }
        return;
    }
    let [_, target, seconds, rest @ ..] = args.as_slice() else {
        eprintln!("fuzz_here TARGET SECONDS [FIRST_SEED], or fuzz_here --write TARGET COUNT FOLDER");
        std::process::exit(2);
    };
    let seconds: u64 = seconds.parse().unwrap_or(10);
    let first: u64 = rest.first().and_then(|s| s.parse().ok()).unwrap_or(0);
    let is_kernels = target == "kernel_args";
    let Some(run) = pteron_fuzz::target(target) else {
        eprintln!("no such target; there are {}", pteron_fuzz::TARGETS.join(", "));
        std::process::exit(2);
    };
    limit_memory();
    let describe = |data: &[u8]| if is_kernels { kernel_args::describe(data) } else { target.clone() };
    if seconds == 0 {
        println!("seed {first}: {}", describe(&pteron_fuzz::input(target, first)));
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = format!("{place}: {}", info.payload_as_str().unwrap_or("a panic without text"));
        }
    }));
    let mut file = std::env::var("PTERON_FUZZ_SEED").ok().and_then(|p| std::fs::File::create(p).ok());
    let start = Instant::now();
    let mut report = Report::default();
    let mut seed = first;
    while start.elapsed() < Duration::from_secs(seconds) {
        if let Some(file) = &mut file {
            let _ = file.rewind().and_then(|()| writeln!(file, "{seed:>20}"));
        }
        let data = pteron_fuzz::input(target, seed);
        let begun = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| {
            if is_kernels {
                return kernel_args::run(&data);
            }
            run(&data);
            ("all", Reach::Ran)
        }));
        if begun.elapsed() > Duration::from_secs(3) {
            println!("slow: seed {seed}: {:?} {}", begun.elapsed(), describe(&data));
        }
        match result {
            Ok((name, reach)) => report.count(name, reach),
            Err(_) => report.finding(seed, &catch_unwind(|| describe(&data)).unwrap_or_default()),
        }
        seed += 1;
    }
    report.print(seed - first);
    std::process::exit(i32::from(!report.findings.is_empty()));
}

/// Writes to a folder that appears when it is complete.
fn write_inputs(target: &str, count: &str, folder: &Path) -> Result<(), String> {
    if !pteron_fuzz::TARGETS.contains(&target) {
        return Err(format!("no such target; there are {}", pteron_fuzz::TARGETS.join(", ")));
    }
    let count: u64 = count.parse().map_err(|e| format!("{count}: {e}"))?;
    let unfinished = folder.with_extension("unfinished");
    let write = || {
        std::fs::create_dir_all(&unfinished)?;
        for seed in 0..count {
            std::fs::write(unfinished.join(format!("{seed:06}")), pteron_fuzz::input(target, seed))?;
        }
        std::fs::rename(&unfinished, folder)
    };
    write().map_err(|e| format!("{}: {e}", folder.display()))
}

/// Requests without bounds fail instead of filling the machine.
fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: 3 << 30, rlim_max: 3 << 30 };
    // SAFETY: sets a limit of this process from a value on the stack.
    unsafe {
        libc::setrlimit(libc::RLIMIT_AS, &limit);
    }
}
