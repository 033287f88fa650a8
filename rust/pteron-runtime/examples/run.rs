//! Runs a method of a `.pte` file with zero-filled or pseudo-random inputs and prints what comes out.
//!
//! `cargo run --release --example run -- model.pte [--method forward] [--random] [--repeat 10]`

use pteron_core::{AlignedBuffer, DType, Result};
use pteron_runtime::{
    ExecuteOptions, InputValue, IoKind, IoSpec, Limits, MethodOptions, OutputValue, Program, ProgramSource,
    Runtime, TensorInput,
};
use std::process::ExitCode;
use std::time::Instant;

struct Options {
    path: String,
    method: String,
    is_random: bool,
    repeat: u32,
}

fn parse() -> std::result::Result<Options, String> {
    let mut options = Options { path: String::new(), method: "forward".into(), is_random: false, repeat: 1 };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--method" => options.method = value()?,
            "--repeat" => options.repeat = value()?.parse().map_err(|e| format!("--repeat: {e}"))?,
            "--random" => options.is_random = true,
            path if !path.starts_with('-') && options.path.is_empty() => options.path = path.into(),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if options.path.is_empty() {
        return Err("usage: run MODEL.pte [--method NAME] [--random] [--repeat N]".into());
    }
    Ok(options)
}

/// The memory behind one input: the largest legal shape.
struct Owned {
    shape: Vec<usize>,
    dtype: DType,
    data: AlignedBuffer,
}

fn make(spec: &IoSpec, is_random: bool) -> Result<Option<Owned>> {
    let IoKind::Tensor(t) = &spec.kind else { return Ok(None) };
    let shape: Vec<usize> = t.extents.iter().map(|e| e.range().1).collect();
    let mut data = AlignedBuffer::zeroed(pteron_core::sizes::checked_nbytes(&shape, t.dtype)?)?;
    if is_random && t.dtype == DType::Float32 {
        // A linear congruential generator is random enough to look at.
        let mut state = 1u32;
        for v in data.as_mut_elements::<f32>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *v = (state >> 8) as f32 / (1u32 << 24) as f32 * 2.0 - 1.0;
        }
    }
    Ok(Some(Owned { shape, dtype: t.dtype, data }))
}

fn run(options: &Options) -> Result<()> {
    let runtime = Runtime::shared()?;
    pteron_demo::register(&runtime)?;
    let start = Instant::now();
    let source = ProgramSource::File { path: options.path.clone().into(), is_mapped: true };
    let program = Program::load(&runtime, source, Limits::default())?;
    let method = program.load_method(&options.method, MethodOptions::default())?;
    let (packs, packed) = program.pack_stats();
    println!("loaded in {:?}; {packs} packed weights of {packed} bytes", start.elapsed());
    let owned: Vec<Option<Owned>> =
        method.inputs().iter().map(|s| make(s, options.is_random)).collect::<Result<_>>()?;
    let mut inputs = Vec::new();
    for (spec, owned) in method.inputs().iter().zip(&owned) {
        println!("  {}: {}", spec.name, spec.description());
        inputs.push(match (&spec.kind, owned) {
            (_, Some(o)) => {
                // SAFETY: `o` holds a dense row-major tensor of this shape and outlives the calls.
                InputValue::Tensor(unsafe { TensorInput::new(o.dtype, &o.shape, None, o.data.as_ptr()) })
            }
            (IoKind::Int { traced, range, .. }, _) => {
                InputValue::Int(range.map_or(*traced, |(min, max)| (*traced).clamp(min, max)))
            }
            (IoKind::Bool { traced }, _) => InputValue::Bool(*traced),
            (IoKind::Double { traced }, _) => InputValue::Double(*traced),
            (IoKind::String { traced }, _) => InputValue::String(traced),
            _ => InputValue::None,
        });
    }
    for _ in 0..options.repeat {
        let start = Instant::now();
        let outputs = method.execute(&inputs, ExecuteOptions::default())?;
        println!("ran in {:?}", start.elapsed());
        for (spec, output) in method.outputs().iter().zip(&outputs) {
            match output {
                OutputValue::Tensor(t) if t.meta.dtype() == DType::Float32 => {
                    let head: Vec<f32> = t.elements::<f32>()?.iter().take(8).copied().collect();
                    println!("  {}: float32{} {head:?}", spec.name, t.meta.shape());
                }
                OutputValue::Tensor(t) => println!("  {}: {}{}", spec.name, t.meta.dtype(), t.meta.shape()),
                other => println!("  {}: {other:?}", spec.name),
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let result = parse().and_then(|options| run(&options).map_err(|e| e.to_string()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
