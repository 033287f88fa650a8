//! What a token costs beside the model: the choice by logits of a large vocabulary, and the loop around a program that
//! computes almost nothing.
//!
//! `cargo bench -p pteron-llm --bench sampling`

use criterion::{Criterion, criterion_group, criterion_main};
use pteron_llm::{GenerationConfig, Generator, GeneratorOptions, Prompt, Sampler, SamplingParameters};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const VOCABULARY: usize = 150_000;

/// Logits around 0 with this spread: the larger, the fewer tokens count.
fn logits(spread: f32) -> Vec<f32> {
    let mut state = 1u32;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 24) as f32
    };
    (0..VOCABULARY).map(|_| ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * spread).collect()
}

fn choices(criterion: &mut Criterion) {
    let plain = SamplingParameters::default;
    let settings = [
        ("greedy", SamplingParameters { temperature: 0.0, ..plain() }),
        ("top_k 50, top_p 0.95", SamplingParameters { temperature: 0.8, top_k: 50, top_p: 0.95, ..plain() }),
        ("min_p 0.05", SamplingParameters { min_p: 0.05, ..plain() }),
        ("top_p 0.95", SamplingParameters { top_p: 0.95, ..plain() }),
        ("plain", plain()),
        ("temperature 0.8", SamplingParameters { temperature: 0.8, ..plain() }),
        ("top_k 50, penalty", SamplingParameters { top_k: 50, repetition_penalty: 1.1, ..plain() }),
    ];
    for (shape, spread) in [("peaked", 8.0), ("flat", 2.0)] {
        let row = logits(spread);
        let mut group = criterion.benchmark_group(format!("choice of {VOCABULARY}, {shape}"));
        for (name, settings) in &settings {
            let mut sampler = Sampler::new(settings.clone(), &[1, 2, 3]).expect("the settings are right");
            group.bench_function(*name, |bencher| {
                bencher
                    .iter(|| black_box(sampler.next(black_box(&row), &[]).expect("the logits are numbers")))
            });
        }
    }
}

/// The loop with text, stop strings and a cache, around the tiny model of the tests; the time of a token.
fn whole(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/folder");
    let options = GeneratorOptions { threads: Some(1), idle_caches: 1, ..GeneratorOptions::default() };
    let generator = Generator::open(folder, options).expect("the folder of the tests is whole");
    let config = GenerationConfig {
        ignore_eos: true,
        seed: Some(1),
        stop_strings: vec!["no such text".into()],
        ..GenerationConfig::default()
    };
    criterion.bench_function("a token of the tiny model, loop and text", |bencher| {
        bencher.iter_custom(|count| {
            let mut tokens = 0;
            let begin = Instant::now();
            while tokens < count {
                let found = generator.generate(Prompt::Tokens(&[5, 6]), &config).expect("it generates");
                tokens += found.tokens.len() as u64;
            }
            begin.elapsed().mul_f64(count as f64 / tokens.max(1) as f64)
        })
    });
}

criterion_group!(benches, choices, whole);
criterion_main!(benches);
