//! Cost of verifying and reading a program, per instruction. Weights are not in it: they are mapped.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pteron_core::DType;
use pteron_format::ProgramFile;
use pteron_format::write::{
    ChainDraft, InstructionDraft, MethodDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
    WriteOptions,
};
use std::borrow::Cow;
use std::hint::black_box;

const INSTRUCTIONS: usize = 1000;
const EXTENTS: [usize; 3] = [1, 128, 384];
const NBYTES: u64 = 128 * 384 * 4;

/// A chain of additions as an exporter writes it: per instruction one new tensor in planned memory, one
/// scalar of its own, five arguments; every fourth adds a constant.
fn program() -> ProgramDraft<'static> {
    let tensor = || TensorDraft::contiguous(DType::Float32, &EXTENTS).unwrap();
    let mut values: Vec<ValueDraft> = vec![tensor().planned(1, 0).into()];
    let mut constants: Vec<Cow<'static, [u8]>> = vec![Cow::Borrowed(&[])];
    let mut instructions = Vec::new();
    let mut last = 0;
    for step in 0..INSTRUCTIONS {
        let mut other = last;
        if step % 4 == 0 {
            other = values.len() as i32;
            let weight = TensorDraft::contiguous(DType::Float32, &[384]).unwrap();
            values.push(weight.constant(constants.len() as u32).into());
            constants
                .push(Cow::Owned((0..384).flat_map(|n| (step as f32 + n as f32).to_le_bytes()).collect()));
        }
        let alpha = values.len() as i32;
        values.push(ValueDraft::Int(1));
        let out = values.len() as i32;
        values.push(tensor().planned(1, (step as u64 + 1) % 2 * NBYTES).into());
        instructions.push(InstructionDraft::Kernel { operator: 0, args: vec![last, other, alpha, out, out] });
        last = out;
    }
    let method = MethodDraft {
        name: "forward".to_owned(),
        values,
        inputs: vec![0],
        outputs: vec![last],
        chains: vec![ChainDraft { instructions, ..ChainDraft::default() }],
        operators: vec![OperatorDraft { name: "aten::add".to_owned(), overload: "out".to_owned() }],
        non_const_buffer_sizes: vec![0, 2 * NBYTES as i64],
        ..MethodDraft::default()
    };
    ProgramDraft { methods: vec![method], constants, ..ProgramDraft::default() }
}

fn load(c: &mut Criterion) {
    let draft = program();
    let bytes = draft.to_bytes(&WriteOptions::default()).unwrap();
    let mut group = c.benchmark_group("format");
    group.throughput(Throughput::Elements(INSTRUCTIONS as u64));
    group.bench_function("parse_1000_instructions", |b| {
        b.iter_batched(|| (), |()| ProgramFile::parse(black_box(&bytes)).unwrap(), BatchSize::LargeInput)
    });
    group.bench_function("write_1000_instructions", |b| {
        b.iter_batched(|| (), |()| draft.to_bytes(&WriteOptions::default()).unwrap(), BatchSize::LargeInput)
    });
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
