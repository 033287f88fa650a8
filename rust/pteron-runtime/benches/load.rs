//! What load costs when rewrites apply: a chain of permute, addmm and relu over small weights, as
//! exporters write linear layers.
//!
//! `cargo bench -p pteron-runtime --bench load`

use criterion::{Criterion, criterion_group, criterion_main};
use pteron_core::DType;
use pteron_cpu::plan::RuleSwitches;
use pteron_format::write::{
    ChainDraft, InstructionDraft, MethodDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
    WriteOptions,
};
use pteron_runtime::{Limits, MethodOptions, Program, ProgramSource, Runtime, RuntimeOptions};
use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;

const LAYERS: usize = 333;
const WIDTH: usize = 8;

/// `LAYERS` times `relu(addmm(bias, x, permute(weight)))`, two activations taking turns.
fn chain() -> Vec<u8> {
    let mut values: Vec<ValueDraft> = Vec::new();
    let mut add = |v: ValueDraft| {
        values.push(v);
        values.len() as i32 - 1
    };
    let tensor = |offset: u64| {
        TensorDraft::contiguous(DType::Float32, &[WIDTH, WIDTH]).unwrap().planned(1, offset).into()
    };
    let bytes = (WIDTH * WIDTH * 4) as u64;
    let mut x = add(tensor(0));
    let (first, one, zero) = (x, add(ValueDraft::Int(1)), add(ValueDraft::Int(0)));
    let order = add(ValueDraft::IntList([one.into(), zero.into()].into()));
    let mut constants: Vec<Cow<'_, [u8]>> = vec![Cow::Owned(vec![])];
    let mut instructions = Vec::new();
    for layer in 0..LAYERS {
        let mut constant = |shape: &[usize]| {
            let n: usize = shape.iter().product();
            constants.push(Cow::Owned((0..n).flat_map(|i| ((i + layer) as f32).to_le_bytes()).collect()));
            let index = constants.len() as u32 - 1;
            TensorDraft::contiguous(DType::Float32, shape).unwrap().constant(index).into()
        };
        let (weight, bias) = (add(constant(&[WIDTH, WIDTH])), add(constant(&[WIDTH])));
        let permuted = add(tensor(2 * bytes));
        let y = add(tensor(3 * bytes));
        let z = add(tensor(((layer as u64 + 1) % 2) * bytes));
        instructions
            .push(InstructionDraft::Kernel { operator: 0, args: vec![weight, order, permuted, permuted] });
        instructions
            .push(InstructionDraft::Kernel { operator: 1, args: vec![bias, x, permuted, one, one, y, y] });
        instructions.push(InstructionDraft::Kernel { operator: 2, args: vec![y, z, z] });
        x = z;
    }
    let operator = |name: &str| OperatorDraft { name: name.into(), overload: "out".into() };
    let method = MethodDraft {
        name: "forward".into(),
        values,
        inputs: vec![first],
        outputs: vec![x],
        chains: vec![ChainDraft { instructions, ..ChainDraft::default() }],
        operators: vec![operator("aten::permute_copy"), operator("aten::addmm"), operator("aten::relu")],
        non_const_buffer_sizes: vec![0, 4 * bytes as i64],
        ..MethodDraft::default()
    };
    let draft = ProgramDraft { methods: vec![method], constants, ..ProgramDraft::default() };
    draft.to_bytes(&WriteOptions::default()).unwrap()
}

fn load(c: &mut Criterion) {
    let bytes = Arc::new(chain());
    let mut group = c.benchmark_group("load");
    group.throughput(criterion::Throughput::Elements(3 * LAYERS as u64));
    for (name, rules) in [("rewrites on", RuleSwitches::all_on()), ("rewrites off", RuleSwitches::all_off())]
    {
        let runtime = Runtime::new(RuntimeOptions { rules, ..RuntimeOptions::default() }).unwrap();
        group.bench_function(name, |b| {
            b.iter(|| {
                let source = ProgramSource::Bytes(bytes.clone());
                let program = Program::load(&runtime, source, Limits::default()).unwrap();
                black_box(program.load_method("forward", MethodOptions::default()).unwrap());
            });
        });
    }
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
