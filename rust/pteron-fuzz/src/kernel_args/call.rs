//! One kernel on given arguments, in memory that shows every byte written outside of it. Unsafe island (that memory).

use super::argument::{Argument, TensorArgument};
use pteron_core::{CpuProfile, Dims, Error, Kernel, PackStore, Result, Schema, TensorSlot, Value};
use pteron_kernels::single_call::{self, CallArg, HostTensor, Memory, SingleCall};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::rc::Rc;

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
        error: Error,
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
#[derive(Debug)]
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

/// A call's part of memory with guards.
#[derive(Debug)]
struct Shared(Rc<Guarded>);

// SAFETY: the block lives as long as its last owner, begins at a multiple of 64 (a tensor, by as many elements as it was asked
// for, behind one), and has `len` bytes between its guards. Contents are looked at while no call is running.
unsafe impl Memory for Shared {
    fn start(&self) -> *mut u8 {
        self.0.data()
    }
    fn len(&self) -> usize {
        self.0.len
    }
}

/// The memory of a call.
#[derive(Default)]
struct Watch {
    memory: Vec<Rc<Guarded>>,
    /// For each tensor: may the call write it?
    is_written: Vec<bool>,
}

impl Watch {
    fn allocate(&mut self, contents: &[u8], offset: usize) -> Box<Shared> {
        let memory = Rc::new(Guarded::new(contents, offset));
        self.memory.push(memory.clone());
        Box::new(Shared(memory))
    }

    fn tensor(&mut self, t: &TensorArgument, is_written: bool) -> Result<HostTensor> {
        assert_eq!(t.spec.nbytes()?, t.bytes.len(), "the generator gave {t:?} other bytes than it needs");
        let memory = self.allocate(&t.bytes, t.misalignment * t.spec.dtype.align());
        self.is_written.push(is_written);
        Ok(HostTensor::in_memory(t.spec.clone(), t.now, memory))
    }

    fn arguments(&mut self, schema: &Schema, args: &[Argument]) -> Result<Vec<CallArg>> {
        let declared = schema.args.iter().map(|a| a.is_output);
        args.iter().zip(declared).map(|(arg, is_output)| arg.given(|t| self.tensor(t, is_output))).collect()
    }

    /// Panics where bytes outside of outputs and scratch have changed.
    fn check(&self, args: &[Argument]) {
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
        let mut scratch = self.memory.iter().skip(self.is_written.len());
        assert!(scratch.all(|memory| memory.is_intact()), "bytes around scratch were written");
    }

    fn output(&self, slot: &TensorSlot) -> Output {
        let (start, nbytes) = (slot.data().addr(), slot.view().nbytes());
        let is_inside = self.memory[..self.is_written.len()].iter().any(|m| {
            let first = m.data().addr();
            start >= first && start + nbytes <= first + m.len
        });
        assert!(is_inside, "an output of {nbytes} bytes lies outside every tensor of the call");
        Output::Tensor(slot.meta().dtype(), *slot.meta().shape(), slot.view().as_bytes().to_vec())
    }

    fn outputs(&self, schema: &Schema, call: &SingleCall) -> Vec<Output> {
        let mut out = Vec::new();
        for position in schema.outputs() {
            match call.argument(position) {
                Some(Value::Tensor(slot)) => out.push(self.output(slot)),
                Some(Value::TensorList(ids)) => {
                    out.extend(ids.iter().filter_map(|id| call.member(*id)).map(|slot| self.output(slot)));
                }
                _ => {}
            }
        }
        if schema.has_scalar_return {
            out.push(Output::Number(match call.argument(schema.args.len()) {
                Some(Value::Int(v)) => *v as u64,
                Some(Value::Double(v)) => v.to_bits(),
                Some(Value::Bool(v)) => u64::from(*v),
                _ => u64::MAX,
            }));
        }
        out
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

impl Setting<'_> {
    fn with<'a>(&'a self, packs: &'a PackStore) -> single_call::Setting<'a> {
        single_call::Setting { cpu: self.cpu, packs, is_known: self.is_known }
    }
}

/// Prepares `kernel` only, for tensors that need no memory; its scratch and state are asked for.
pub fn prepare(kernel: &dyn Kernel, schema: &Schema, args: &[Argument], setting: Setting<'_>) -> Outcome {
    let mut nothing = Watch::default();
    let mut tensor = |t: &TensorArgument| {
        // Contents of constants are known; there is no memory for what is made larger.
        let contents = if t.is_constant { t.bytes.as_slice() } else { &[] };
        Ok(HostTensor::in_memory(t.spec.clone(), t.now, nothing.allocate(contents, 0)))
    };
    let given: Result<Vec<CallArg>> = args.iter().map(|arg| arg.given(&mut tensor)).collect();
    let packs = PackStore::new();
    match given.and_then(|args| single_call::prepare(kernel, schema, setting.with(&packs), &args)) {
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
    let mut watch = Watch::default();
    let (given, packs) = (watch.arguments(schema, args), PackStore::new());
    let setting = setting.with(&packs);
    let mut call = match given.and_then(|given| SingleCall::of_schema(kernel, schema, setting, given)) {
        Ok(None) => return Outcome::Declined,
        Err(error) => return Outcome::Refused { error, is_prepared: false },
        Ok(Some(call)) => call,
    };
    let scratch = call.prepared().scratch();
    if scratch.per_worker > LARGEST_SCRATCH || scratch.shared > LARGEST_SCRATCH {
        return Outcome::TooLarge;
    }
    let worker = watch.allocate(&vec![0xa5; scratch.per_worker], 0);
    let shared = watch.allocate(&vec![0x5a; scratch.shared], 0);
    let result = call
        .set_scratch(worker, shared)
        .and_then(|()| call.bind())
        .and_then(|grid| call.run(grid, is_reversed))
        .and_then(|()| call.finish());
    watch.check(args);
    match result {
        Ok(()) => Outcome::Done(watch.outputs(schema, &call)),
        Err(error) => Outcome::Refused { error, is_prepared: true },
    }
}
