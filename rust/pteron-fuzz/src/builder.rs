//! Small programs for tests, written with the format crate's writer.

use pteron_core::{CompileSpec, DType};
use pteron_format::write::{
    ChainDraft, DelegateDraft, ExtraTensorDraft, InstructionDraft, MethodDraft, NamedDataDraft,
    OperatorDraft, ProgramDraft, TensorDraft, ValueDraft, WriteOptions,
};
use pteron_runtime::{Limits, Program, ProgramSource, Runtime, RuntimeOptions};
use std::sync::Arc;

/// A method under construction. Functions that add something return its index.
pub struct MethodBuilder {
    /// What will be written.
    pub draft: MethodDraft,
    arena: u64,
}

impl MethodBuilder {
    /// A method without inputs, outputs, values or instructions.
    pub fn new(name: &str) -> Self {
        let draft =
            MethodDraft { name: name.into(), chains: vec![ChainDraft::default()], ..Default::default() };
        MethodBuilder { draft, arena: 0 }
    }

    /// Any value.
    pub fn value(&mut self, value: impl Into<ValueDraft>) -> i32 {
        self.draft.values.push(value.into());
        self.draft.values.len() as i32 - 1
    }

    /// An integer.
    pub fn int(&mut self, v: i64) -> i32 {
        self.value(ValueDraft::Int(v))
    }

    /// A bool.
    pub fn bool(&mut self, v: bool) -> i32 {
        self.value(ValueDraft::Bool(v))
    }

    /// A list of integers.
    pub fn ints(&mut self, list: &[i64]) -> i32 {
        let ids: Vec<i64> = list.iter().map(|v| i64::from(self.int(*v))).collect();
        self.value(ValueDraft::IntList(ids.into()))
    }

    /// A row-major tensor without a place, which is no value yet.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> TensorDraft {
        TensorDraft::contiguous(dtype, shape).unwrap()
    }

    /// f32 without planned memory: an input or output of its own.
    pub fn unplanned(&mut self, shape: &[usize]) -> i32 {
        let t = self.tensor(DType::Float32, shape);
        self.value(t)
    }

    /// f32 in planned memory of its own.
    pub fn planned(&mut self, shape: &[usize]) -> i32 {
        let at = self.arena;
        self.arena += (shape.iter().product::<usize>() as u64 * 4).next_multiple_of(64);
        self.planned_at(shape, at)
    }

    /// f32 in planned memory at a given place.
    pub fn planned_at(&mut self, shape: &[usize], offset: u64) -> i32 {
        self.arena = self.arena.max(offset + shape.iter().product::<usize>() as u64 * 4);
        let t = self.tensor(DType::Float32, shape).planned(1, offset);
        self.value(t)
    }

    /// f32 of changing shape in planned memory of its own.
    pub fn bounded(&mut self, shape: &[usize]) -> i32 {
        let id = self.planned(shape);
        self.set_bounded(id)
    }

    /// f32 of changing shape in planned memory at a given place.
    pub fn bounded_at(&mut self, shape: &[usize], offset: u64) -> i32 {
        let id = self.planned_at(shape, offset);
        self.set_bounded(id)
    }

    fn set_bounded(&mut self, id: i32) -> i32 {
        let ValueDraft::Tensor(t) = &mut self.draft.values[id as usize] else { unreachable!() };
        t.shape_dynamism = 1;
        id
    }

    /// f32 with the contents `index` of the program's constants.
    pub fn constant(&mut self, shape: &[usize], index: u32) -> i32 {
        let t = self.tensor(DType::Float32, shape).constant(index);
        self.value(t)
    }

    /// A mutable buffer with first contents `index` of the program's mutable data (0: none).
    pub fn buffer(&mut self, name: &str, shape: &[usize], index: u32) -> i32 {
        let id = self.planned(shape);
        let ValueDraft::Tensor(t) = &mut self.draft.values[id as usize] else { unreachable!() };
        t.data_buffer_idx = index;
        t.extra = Some(ExtraTensorDraft { fully_qualified_name: Some(name.into()), ..Default::default() });
        id
    }

    /// More inputs.
    pub fn inputs(&mut self, ids: &[i32]) {
        self.draft.inputs.extend(ids);
    }

    /// More outputs.
    pub fn outputs(&mut self, ids: &[i32]) {
        self.draft.outputs.extend(ids);
    }

    fn push(&mut self, instruction: InstructionDraft) -> i32 {
        let list = &mut self.draft.chains[0].instructions;
        list.push(instruction);
        list.len() as i32 - 1
    }

    /// Where the next instruction will be.
    pub fn here(&self) -> i32 {
        self.draft.chains[0].instructions.len() as i32
    }

    /// A kernel call: `aten::relu.out`, with all arguments that the file states.
    pub fn call(&mut self, operator: &str, args: &[i32]) -> i32 {
        let (name, overload) = match operator.rsplit_once('.') {
            Some((n, o)) => (n, o),
            None => (operator, ""),
        };
        let wanted = OperatorDraft { name: name.into(), overload: overload.into() };
        let found = self.draft.operators.iter().position(|o| *o == wanted);
        let index = found.unwrap_or_else(|| {
            self.draft.operators.push(wanted);
            self.draft.operators.len() - 1
        });
        self.push(InstructionDraft::Kernel { operator: index as i32, args: args.to_vec() })
    }

    /// `aten::add.out` with alpha 1.
    pub fn add(&mut self, a: i32, b: i32, out: i32) -> i32 {
        let one = self.int(1);
        self.call("aten::add.out", &[a, b, one, out, out])
    }

    /// A call of a delegate of its own, whose blob is `blob` of the program's.
    pub fn delegate(&mut self, backend: &str, blob: u32, args: &[i32]) -> i32 {
        self.delegate_with(backend, blob, vec![], args)
    }

    /// As [`MethodBuilder::delegate`], with compile specs.
    pub fn delegate_with(&mut self, backend: &str, blob: u32, specs: Vec<CompileSpec>, args: &[i32]) -> i32 {
        self.draft.delegates.push(DelegateDraft { id: backend.into(), blob, specs });
        let delegate = self.draft.delegates.len() as i32 - 1;
        self.push(InstructionDraft::Delegate { delegate, args: args.to_vec() })
    }

    /// A move of one value to another.
    pub fn mv(&mut self, from: i32, to: i32) -> i32 {
        self.push(InstructionDraft::Move { from, to })
    }

    /// The release of a tensor's memory.
    pub fn free(&mut self, value: i32) -> i32 {
        self.push(InstructionDraft::Free { value })
    }

    /// A jump to an instruction where the bool `condition` is false.
    pub fn jump_false(&mut self, condition: i32, destination: i32) -> i32 {
        self.push(InstructionDraft::JumpFalse { condition, destination })
    }

    /// Sets the destination of a jump made earlier.
    pub fn land(&mut self, jump: i32, destination: i32) {
        let InstructionDraft::JumpFalse { destination: d, .. } =
            &mut self.draft.chains[0].instructions[jump as usize]
        else {
            unreachable!()
        };
        *d = destination;
    }

    fn finish(mut self) -> MethodDraft {
        self.draft.non_const_buffer_sizes = vec![0, self.arena.next_multiple_of(64) as i64];
        self.draft
    }
}

/// A program under construction. Functions that add something return its index.
pub struct ProgramBuilder {
    /// What will be written.
    pub draft: ProgramDraft<'static>,
}

impl Default for ProgramBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgramBuilder {
    /// A program without methods.
    pub fn new() -> Self {
        let mut draft = ProgramDraft::default();
        draft.constants.push(Vec::new().into());
        draft.mutable_data.push(Vec::new().into());
        ProgramBuilder { draft }
    }

    /// A program of one method.
    pub fn of(method: MethodBuilder) -> Self {
        Self::new().with(method)
    }

    /// The program with one more method.
    pub fn with(mut self, method: MethodBuilder) -> Self {
        self.draft.methods.push(method.finish());
        self
    }

    /// Contents of a constant; their index.
    pub fn constant(&mut self, data: &[f32]) -> u32 {
        self.draft.constants.push(bytemuck::cast_slice(data).to_vec().into());
        self.draft.constants.len() as u32 - 1
    }

    /// First contents of a mutable buffer; their index.
    pub fn mutable(&mut self, data: &[f32]) -> u32 {
        self.draft.mutable_data.push(bytemuck::cast_slice(data).to_vec().into());
        self.draft.mutable_data.len() as u32 - 1
    }

    /// The blob of a delegate; its index.
    pub fn blob(&mut self, data: &[u8]) -> u32 {
        self.draft.delegate_data.push(data.to_vec().into());
        self.draft.delegate_data.len() as u32 - 1
    }

    /// Named data.
    pub fn named(&mut self, key: &str, data: &[u8]) {
        self.draft.named_data.push(NamedDataDraft {
            key: key.into(),
            data: data.to_vec().into(),
            alignment: 1,
        });
    }

    /// The file. Panics where it breaks a rule of the format.
    pub fn bytes(&self) -> Vec<u8> {
        self.draft.to_bytes(&WriteOptions::default()).unwrap()
    }

    /// Bytes of a program that may break rules of the format.
    pub fn illegal_bytes(&self) -> Vec<u8> {
        self.draft.to_bytes(&WriteOptions { verify: false, ..Default::default() }).unwrap()
    }

    /// The program, loaded. Panics where it is refused.
    pub fn load(&self, runtime: &Arc<Runtime>) -> Arc<Program> {
        self.try_load(runtime).unwrap()
    }

    /// The program, loaded; the refusal otherwise.
    pub fn try_load(&self, runtime: &Arc<Runtime>) -> pteron_core::Result<Arc<Program>> {
        load_bytes(runtime, self.bytes())
    }
}

/// A file, loaded with default limits.
pub fn load_bytes(runtime: &Arc<Runtime>, bytes: Vec<u8>) -> pteron_core::Result<Arc<Program>> {
    Program::load(runtime, ProgramSource::Bytes(Arc::new(bytes)), Limits::default())
}

/// A runtime of one thread, all else by default.
pub fn runtime() -> Arc<Runtime> {
    Runtime::new(RuntimeOptions { threads: Some(1), ..Default::default() }).unwrap()
}
