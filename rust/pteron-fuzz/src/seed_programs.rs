//! Programs that targets put mutated parts into.

use crate::builder::{MethodBuilder, ProgramBuilder};
use crate::choices::Choices;
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

/// One of the programs of this module, a data file, or a program of several random operators.
pub fn any(choices: &mut Choices<'_>) -> Vec<u8> {
    match choices.below(8) {
        0 => mlp().bytes(),
        1 => stateful(),
        2 => with_delegate("ExecutorBackend", &sum()),
        3 => with_external_tensors(),
        4 => data_file(),
        5 => sum(),
        _ => RandomProgram::new(choices.word(), 1 + choices.below(8)).bytes,
    }
}

/// One to six edits: bytes, words of small, large and negative numbers, blocks moved, the end cut off.
pub fn damage(file: &mut Vec<u8>, choices: &mut Choices<'_>) {
    const WORDS: [u32; 10] = [0, 1, 2, 3, 7, 16, 255, 1 << 20, i32::MAX as u32, u32::MAX];
    for _ in 0..1 + choices.below(6) {
        let place = usize::from(u16::from_le_bytes([choices.byte(), choices.byte()]));
        let at = place % file.len().max(1);
        match choices.below(8) {
            0 => file.truncate(at),
            1 | 2 => {
                let bit = 1u8 << choices.below(8);
                file.get_mut(at).into_iter().for_each(|b| *b ^= bit);
            }
            3 => {
                let value = choices.byte();
                file.get_mut(at).into_iter().for_each(|b| *b = value);
            }
            4 => {
                let from = choices.below(file.len().max(1));
                let block: Vec<u8> = file.iter().skip(from).take(16).copied().collect();
                for (to, byte) in file.iter_mut().skip(at).zip(block) {
                    *to = byte;
                }
            }
            _ => {
                let word = choices.pick(&WORDS).to_le_bytes();
                for (to, byte) in file.iter_mut().skip(at & !3).zip(word) {
                    *to = byte;
                }
            }
        }
    }
}
