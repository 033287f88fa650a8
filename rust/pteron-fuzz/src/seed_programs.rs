//! Programs that targets put mutated parts into, and that mutations begin with.

use crate::builder::{MethodBuilder, ProgramBuilder};
use crate::mutation::{Seed, SeedFile};
use crate::random_program::RandomProgram;
use pteron_core::DType;
use pteron_format::write::{
    DataEntryDraft, DataFileDraft, ExtraTensorDraft, LayoutDraft, NamedDataDraft, ValueDraft,
};
use pteron_runtime::{Limits, Program, ProgramSource, Runtime};
use std::sync::Arc;

/// Rows of inputs.
pub const ROWS: usize = 3;
/// Columns of inputs.
pub const WIDTH: usize = 20;

fn weights(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 7) as f32 - 3.0).collect()
}

/// A product with bias, an activation, another product.
pub fn mlp() -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[ROWS, WIDTH]);
    m.inputs(&[x]);
    let mut last = x;
    for _ in 0..2 {
        let (w, b) = (p.constant(&weights(WIDTH * WIDTH)), p.constant(&weights(WIDTH)));
        let (w, b) = (m.constant(&[WIDTH, WIDTH], w), m.constant(&[WIDTH], b));
        let (product, active) = (m.planned(&[ROWS, WIDTH]), m.planned(&[ROWS, WIDTH]));
        let one = m.int(1);
        m.call("aten::addmm.out", &[b, last, w, one, one, product, product]);
        m.call("aten::relu.out", &[product, active, active]);
        last = active;
    }
    m.outputs(&[last]);
    p.with(m)
}

/// An index of packed weights, and the packs by name.
pub type StoredPacks = (Vec<u8>, Vec<(String, Vec<u8>)>);

/// The MLP's index of packed weights, and the packs.
pub fn mlp_packs(runtime: &Arc<Runtime>) -> pteron_core::Result<StoredPacks> {
    let source = ProgramSource::Bytes(Arc::new(mlp().bytes()));
    let packs = Program::load(runtime, source, Limits::default())?.pack_all()?;
    let list = packs.packs().map(|(name, pack)| (name.to_string(), pack.as_slice().to_vec())).collect();
    Ok((packs.index().1.to_vec(), list))
}

/// The MLP with such an index and such packs, which need not be true.
pub fn packed_mlp(index: &[u8], packs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut p = mlp();
    p.named("pteron.packed", index);
    for (key, pack) in packs {
        let data = pack.clone().into();
        p.draft.named_data.push(NamedDataDraft { key: key.clone(), data, alignment: 64 });
    }
    p.illegal_bytes()
}

fn external(m: &mut MethodBuilder, id: i32, name: &str) {
    if let Some(ValueDraft::Tensor(t)) = m.draft.values.get_mut(id as usize) {
        let name = Some(name.to_owned());
        t.extra = Some(ExtraTensorDraft { fully_qualified_name: name, location: 1, ..Default::default() });
    }
}

/// A program whose weight and first state lie in a data file.
pub fn with_external_tensors() -> Vec<u8> {
    let mut m = MethodBuilder::new("forward");
    let (x, w, y, state) = (m.unplanned(&[2]), m.unplanned(&[2]), m.planned(&[2]), m.planned(&[2]));
    external(&mut m, w, "w");
    external(&mut m, state, "state");
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(state, x, state);
    m.add(state, w, y);
    ProgramBuilder::of(m).bytes()
}

/// Its data file.
pub fn data_file() -> Vec<u8> {
    let entry = |key: &str| DataEntryDraft {
        key: key.to_string(),
        data: bytemuck::cast_slice(&[1.0f32, 2.0]).to_vec().into(),
        alignment: 16,
        layout: LayoutDraft::contiguous(DType::Float32, &[2]).ok(),
    };
    let draft = DataFileDraft { entries: vec![entry("w"), entry("state")] };
    draft.lay_out(64).and_then(|l| l.to_bytes()).unwrap_or_default()
}

/// A program with one delegate of `backend` whose blob is `blob`: two inputs, one output.
pub fn with_delegate(backend: &str, blob: &[u8]) -> Vec<u8> {
    let mut p = ProgramBuilder::new();
    let blob = p.blob(blob);
    let mut m = MethodBuilder::new("forward");
    let (x, y, out) = (m.unplanned(&[2]), m.unplanned(&[2]), m.planned(&[2]));
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.delegate(backend, blob, &[x, y, out]);
    p.with(m).bytes()
}

/// `x + y` as a program, for a delegate that runs programs.
pub fn sum() -> Vec<u8> {
    let mut m = MethodBuilder::new("forward");
    let (x, y, out) = (m.unplanned(&[2]), m.unplanned(&[2]), m.planned(&[2]));
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.add(x, y, out);
    ProgramBuilder::of(m).bytes()
}

/// The blob of the compiling demo backend for `x + y`.
pub const DEMO_BLOB: &[u8] =
    b"1version:0#op:demo::aten.add.Tensor, numel:2, dtype:torch.float32<debug_handle>1#";

/// Two methods that share a buffer, with a loop in one of them.
pub fn stateful() -> Vec<u8> {
    let mut p = ProgramBuilder::new();
    let index = p.mutable(&[1.0, 2.0]);
    for name in ["forward", "other"] {
        let mut m = MethodBuilder::new(name);
        let x = m.unplanned(&[2]);
        let (buffer, sum) = (m.buffer("sum", &[2], index), m.planned(&[2]));
        let (i, one, limit, done, no) = (m.int(0), m.int(1), m.int(3), m.bool(false), m.bool(false));
        m.inputs(&[x]);
        m.outputs(&[sum]);
        let top = m.add(buffer, x, sum);
        m.call("aten::copy_", &[buffer, sum, no, buffer]);
        m.call("executorch_prim::add.Scalar", &[i, one, i]);
        m.call("executorch_prim::eq.Scalar", &[i, limit, done]);
        m.jump_false(done, top);
        p = p.with(m);
    }
    p.bytes()
}

/// Random programs among the seeds.
const RANDOM: u64 = 12;
/// Most operators of each.
const OPERATORS: usize = 8;

/// The programs of this module, and random ones.
pub fn seeds() -> Vec<Seed> {
    let mut out = vec![
        Seed::new("written_mlp", mlp().bytes()),
        Seed::new("written_state", stateful()),
        Seed::new("written_program_inside", with_delegate("ExecutorBackend", &sum())),
        Seed::new("written_blob", with_delegate("BackendWithCompilerDemo", DEMO_BLOB)),
        Seed::new("written_sum", sum()),
    ];
    let data = Some(SeedFile::new(data_file()));
    out.push(Seed { data, ..Seed::new("written_external", with_external_tensors()) });
    out.extend((0..RANDOM).map(|seed| {
        let program = RandomProgram::new(seed, OPERATORS);
        Seed::new(format!("random_program_{seed}"), program.bytes)
    }));
    out
}
