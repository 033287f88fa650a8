//! One kernel on given arguments, in memory that shows every byte written outside of it. Unsafe island: it
//! plays the executor's part.

use super::argument::{Argument, TensorArgument};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, Bound, CpuProfile, Dims, Kernel, PackStore, PrepareContext, Prepared,
    RandomStream, Result, Schema, TensorSlot, Value, ValueId, WorkerScratch,
};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes before and behind each buffer. Under a fuzzer the sanitizer watches, which also sees reads.
const GUARD: usize = if cfg!(fuzzing) { 0 } else { 64 };
const GUARD_BYTE: u8 = 0xc5;
/// Calls that need more scratch than this are not run: sessions check it against their limit on memory.
const LARGEST_SCRATCH: usize = 64 << 20;

/// How a call ended.
pub enum Outcome {
    /// Not this kernel's case.
    Declined,
    /// An error; `is_prepared`: not at load.
    Refused {
        /// The error.
        error: pteron_core::Error,
        /// Did the kernel accept the call at load?
        is_prepared: bool,
    },
    /// It needs more memory than this test gives.
    TooLarge,
    /// The outputs.
    Done(Vec<Output>),
}

/// An output.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A tensor: element type, extents, bytes in memory order.
    Tensor(pteron_core::DType, Dims, Vec<u8>),
    /// A number.
    Number(u64),
}

/// Memory with guards, which begins at a multiple of 64 and ends where its last guard ends.
struct Guarded {
    base: NonNull<u8>,
    layout: Layout,
    start: usize,
    len: usize,
}

impl Guarded {
    fn new(contents: &[u8], offset: usize) -> Self {
        let start = GUARD + offset;
        let size = (start + contents.len() + GUARD).max(1);
        let Ok(layout) = Layout::from_size_align(size, 64) else { panic!("{size} bytes") };
        // SAFETY: the size is not zero.
        let base = unsafe { std::alloc::alloc(layout) };
        let Some(base) = NonNull::new(base) else { std::alloc::handle_alloc_error(layout) };
        // SAFETY: the block has `size` bytes.
        let all = unsafe {
            base.as_ptr().write_bytes(GUARD_BYTE, size);
            std::slice::from_raw_parts_mut(base.as_ptr(), size)
        };
        all[start..start + contents.len()].copy_from_slice(contents);
        Guarded { base, layout, start, len: contents.len() }
    }

    fn data(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(self.start)
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the block has this size and was written as a whole; no call is running.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.layout.size()) }
    }

    fn contents(&self) -> &[u8] {
        &self.all()[self.start..self.start + self.len]
    }

    fn is_intact(&self) -> bool {
        let (before, rest) = self.all().split_at(self.start);
        let guards = before.iter().chain(&rest[self.len..]);
        guards.copied().all(|b| b == GUARD_BYTE)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Values of a call and their memory.
struct Frame {
    values: Vec<Value>,
    ids: Vec<ValueId>,
    memory: Vec<Guarded>,
    /// For each buffer: may the call write it?
    is_written: Vec<bool>,
}

impl Frame {
    fn of(schema: &Schema, args: &[Argument]) -> Result<Frame> {
        let mut frame = Frame { values: vec![], ids: vec![], memory: vec![], is_written: vec![] };
        for (declared, arg) in schema.args.iter().zip(args) {
            let id = frame.add(arg, declared.is_output)?;
            frame.ids.push(id);
        }
        if schema.has_scalar_return {
            let id = frame.push(Value::None);
            frame.ids.push(id);
        } else if let Some(first) = schema.outputs().next()
            && schema.returns > 0
        {
            let id = frame.ids[first];
            frame.ids.push(id);
        }
        Ok(frame)
    }

    fn push(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    fn tensor(&mut self, t: &TensorArgument, is_written: bool) -> Result<ValueId> {
        let memory = Guarded::new(&t.bytes, t.misalignment * t.spec.dtype.align());
        let mut slot = TensorSlot::new(&t.spec)?;
        assert_eq!(t.spec.nbytes()?, t.bytes.len(), "the generator gave {t:?} other bytes than it needs");
        // SAFETY: the frame keeps the memory, whose heap block does not move, for as long as the slot.
        unsafe { slot.set_data(memory.data(), t.bytes.len()) };
        slot.resize(&t.now)?;
        self.memory.push(memory);
        self.is_written.push(is_written);
        Ok(self.push(Value::Tensor(Box::new(slot))))
    }

    fn add(&mut self, arg: &Argument, is_written: bool) -> Result<ValueId> {
        Ok(match arg {
            Argument::None => self.push(Value::None),
            Argument::Int(v) => self.push(Value::Int(*v)),
            Argument::Double(v) => self.push(Value::Double(*v)),
            Argument::Bool(v) => self.push(Value::Bool(*v)),
            Argument::String(v) => self.push(Value::String(Arc::from(*v))),
            Argument::Tensor(t) => self.tensor(t, is_written)?,
            Argument::Ints(v) => {
                let ids: Vec<ValueId> = v.iter().map(|v| self.push(Value::Int(*v))).collect();
                self.push(Value::IntList(ids.into()))
            }
            Argument::Doubles(v) => self.push(Value::DoubleList(v.as_slice().into())),
            Argument::Bools(v) => self.push(Value::BoolList(v.as_slice().into())),
            Argument::Tensors(list) => {
                let mut ids = Vec::new();
                for t in list {
                    ids.push(t.as_ref().map(|t| self.tensor(t, is_written)).transpose()?);
                }
                match ids.iter().copied().collect::<Option<Vec<ValueId>>>() {
                    Some(ids) => self.push(Value::TensorList(ids.into())),
                    None => self.push(Value::OptionalTensorList(ids.into())),
                }
            }
        })
    }

    /// Panics where bytes outside of outputs have changed.
    fn check_memory(&self, args: &[Argument]) {
        let tensors = args.iter().flat_map(|a| match a {
            Argument::Tensor(t) => vec![t],
            Argument::Tensors(list) => list.iter().flatten().collect(),
            _ => vec![],
        });
        for (i, ((memory, is_written), t)) in
            self.memory.iter().zip(&self.is_written).zip(tensors).enumerate()
        {
            assert!(memory.is_intact(), "bytes around tensor {i} were written");
            assert!(*is_written || memory.contents() == t.bytes, "input tensor {i} was written");
        }
    }

    fn outputs(&self, schema: &Schema) -> Vec<Output> {
        let mut out = Vec::new();
        for position in schema.outputs() {
            match &self.values[self.ids[position].index()] {
                Value::Tensor(slot) => out.push(self.output(slot)),
                Value::TensorList(ids) => {
                    let slots = ids.iter().filter_map(|id| self.values[id.index()].as_tensor());
                    out.extend(slots.map(|slot| self.output(slot)));
                }
                _ => {}
            }
        }
        if schema.has_scalar_return
            && let Some(id) = self.ids.last()
        {
            out.push(Output::Number(match &self.values[id.index()] {
                Value::Int(v) => *v as u64,
                Value::Double(v) => v.to_bits(),
                Value::Bool(v) => u64::from(*v),
                _ => u64::MAX,
            }));
        }
        out
    }

    fn output(&self, slot: &TensorSlot) -> Output {
        let nbytes = slot.view().nbytes();
        let start = slot.data().addr();
        let is_inside = self.memory.iter().any(|m| {
            let first = m.data().addr();
            start >= first && start + nbytes <= first + m.len
        });
        assert!(is_inside, "an output of {nbytes} bytes lies outside every tensor of the call");
        // SAFETY: inside one of the frame's buffers, as checked.
        let bytes = unsafe { std::slice::from_raw_parts(slot.data(), nbytes) };
        Output::Tensor(slot.meta().dtype(), *slot.meta().shape(), bytes.to_vec())
    }
}

/// What a call is given beside its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The processor.
    pub cpu: &'a CpuProfile,
    /// Are numbers known at load?
    pub is_known: bool,
}

/// Specs as load gives them, the return's included.
fn specs<'a>(schema: &Schema, args: &'a [Argument], setting: Setting<'_>) -> Vec<ArgSpec<'a>> {
    let mut specs: Vec<ArgSpec<'a>> =
        args.iter().enumerate().map(|(i, a)| a.spec(i, setting.is_known)).collect();
    if schema.has_scalar_return {
        specs.push(ArgSpec::None);
    } else if let Some(first) = schema.outputs().next()
        && schema.returns > 0
    {
        specs.push(specs[first].clone());
    }
    specs
}

/// Prepares `kernel` only, for tensors that need no memory; its scratch and state are asked for.
pub fn prepare(kernel: &dyn Kernel, schema: &Schema, args: &[Argument], setting: Setting<'_>) -> Outcome {
    let specs = specs(schema, args, setting);
    let packs = PackStore::new();
    match kernel.prepare(&PrepareContext { args: &specs, packs: &packs, cpu: setting.cpu }) {
        Ok(None) => Outcome::Declined,
        Err(error) => Outcome::Refused { error, is_prepared: false },
        Ok(Some(prepared)) => {
            if prepared.scratch().per_worker <= LARGEST_SCRATCH {
                drop(prepared.new_bound());
            }
            Outcome::TooLarge
        }
    }
}

/// Runs `kernel`; chunks backwards within their phase if `is_reversed`.
pub fn run(
    kernel: &dyn Kernel,
    schema: &Schema,
    args: &[Argument],
    setting: Setting<'_>,
    is_reversed: bool,
) -> Outcome {
    let specs = specs(schema, args, setting);
    let packs = PackStore::new();
    let prepared = match kernel.prepare(&PrepareContext { args: &specs, packs: &packs, cpu: setting.cpu }) {
        Ok(None) => return Outcome::Declined,
        Err(error) => return Outcome::Refused { error, is_prepared: false },
        Ok(Some(prepared)) => prepared,
    };
    let mut frame = match Frame::of(schema, args) {
        Ok(frame) => frame,
        Err(error) => return Outcome::Refused { error, is_prepared: false },
    };
    let scratch = prepared.scratch();
    if scratch.per_worker > LARGEST_SCRATCH || scratch.shared > LARGEST_SCRATCH {
        return Outcome::TooLarge;
    }
    let mut bound = prepared.new_bound();
    let result = run_bound(&*prepared, &mut frame, &mut bound, is_reversed);
    frame.check_memory(args);
    match result {
        Ok(()) => Outcome::Done(frame.outputs(schema)),
        Err(error) => Outcome::Refused { error, is_prepared: true },
    }
}

fn run_bound(prepared: &dyn Prepared, frame: &mut Frame, bound: &mut Bound, is_reversed: bool) -> Result<()> {
    let mut random = RandomStream::new(7);
    // SAFETY: every tensor of the frame has memory of its own.
    let mut bind_args = unsafe { BindArgs::new(&mut frame.values, &frame.ids) }.with_random(&mut random);
    let grid = prepared.bind(&mut bind_args, bound)?;
    assert!(prepared.alias() != AliasRule::View || grid.phase_count() == 0, "a view has something to run");
    let scratch = prepared.scratch();
    let worker = Guarded::new(&vec![0xa5; scratch.per_worker], 0);
    let shared = Guarded::new(&vec![0x5a; scratch.shared], 0);
    for phase in 0..grid.phase_count() {
        let chunks = grid.chunk_count(phase);
        for i in 0..chunks {
            let chunk = if is_reversed { chunks - 1 - i } else { i };
            let shared = if scratch.shared == 0 { std::ptr::null_mut() } else { shared.data() };
            // SAFETY: bound just now; each chunk once, phases in order; memory as above. Nobody else looks at
            // the worker's bytes.
            unsafe {
                let worker = std::slice::from_raw_parts_mut(worker.data(), scratch.per_worker);
                let mut given = WorkerScratch { worker, shared };
                let args = Args::new(&frame.values, &frame.ids);
                prepared.run(bound, &args, phase, chunk, &mut given)?;
            }
        }
    }
    assert!(worker.is_intact() && shared.is_intact(), "bytes around scratch were written");
    if prepared.has_finish() {
        // SAFETY: the frame's slots point to its own memory, and nothing else uses them.
        prepared.finish(&mut unsafe { BindArgs::new(&mut frame.values, &frame.ids) }, bound)?;
    }
    Ok(())
}
