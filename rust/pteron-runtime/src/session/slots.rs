//! The memory and state of one session. Unsafe island: it points tensor slots at arenas, constants,
//! callers' inputs and fresh outputs.
//!
//! What makes the slots sound: arenas and own memory live as long as the session, constants as long as
//! the method's code, and an input's or fresh output's memory for the run in which it is set; every run
//! sets all inputs and fresh outputs, and puts all moving slots back, before its first step.

use crate::ir::{ConstantRef, Placement, TensorIr};
use crate::load::input_rule::RuleKind;
use crate::load::limits::{reached, take_arena};
use crate::load::method_code::MethodCode;
use crate::load::session_layout::FoldedMemory;
use crate::session::bound_outputs;
use crate::session::delegate_call::SessionDelegates;
use crate::session::input_check::check_inputs;
use crate::session::input_copy::{bring_in, copy_into};
use crate::session::memory::Memory;
use crate::session::shared_state::SharedState;
use crate::{Allocation, InputValue, LentTensor, Limits, OutputBuffer, TensorInput};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{
    AlignedBuffer, BindArgs, Bound, BufferHome, Error, Grid, RandomStream, Result, TensorSlot, Value, ValueId,
};
use pteron_cpu::SessionScratch;
use std::sync::Arc;

/// State of a kernel step.
pub(crate) struct BoundCall {
    pub bound: Bound,
    pub grid: Grid,
}

/// Planned memory.
struct Arena {
    // Lent outputs hold it too.
    memory: Arc<AlignedBuffer>,
    // Other sessions have it as well; they take turns.
    is_shared: bool,
}

/// Memory, values and delegates of one session, and the records that its kernels were bound with.
pub(crate) struct Session {
    pub values: Vec<Value>,
    pub calls: Vec<BoundCall>,
    pub scratch: SessionScratch,
    pub delegates: SessionDelegates,
    /// What random operators draw from.
    pub random: RandomStream,
    arenas: Vec<Arena>,
    // Outputs of the last call that callers look at where they are: index of the output, memory.
    loans: Vec<(usize, Arc<Memory>)>,
    own: Vec<AlignedBuffer>,
    // Copies of inputs that could not be used in place; kept for the next run.
    input_copies: Vec<Option<AlignedBuffer>>,
    // Memory made for inputs by the current run: position, bytes.
    input_allocations: Vec<(usize, usize)>,
    // Memory of unplanned outputs for the current run.
    fresh: Vec<Option<AlignedBuffer>>,
    // Memory of unplanned outputs that go to buffers of the caller which they cannot be computed in; kept, so
    // that calls with bound outputs allocate nothing.
    spare: Vec<Option<AlignedBuffer>>,
    // Memory of large planned outputs that no buffer is bound to, for the current run, and where it comes from.
    moved: Vec<(Arc<BufferHome>, Option<AlignedBuffer>)>,
    // Where moving tensors are before a run.
    bases: Vec<(ValueId, TensorSlot)>,
    // What written scalars are before a run.
    scalars: Vec<(ValueId, Value)>,
}

/// Scratch that is not counted: what kernels of small programs take.
const SMALL_SCRATCH: usize = 16 << 20;

/// Bytes from which on a planned output is computed in memory of its own: less is copied in no time. With assertions on,
/// all are, so that tests of small programs, random ones and mutants see it.
const LARGE_OUTPUT: usize = if cfg!(debug_assertions) { 1 } else { 64 << 10 };

/// Refuses a session that needs more memory than `limits` allow, before any is taken.
fn check_memory(code: &MethodCode, threads: usize, limits: &Limits) -> Result<()> {
    let limit = limits.arena_limit();
    if code.layout.nbytes > limit {
        return Err(reached("arena_bytes", "the method needs more memory than the limit allows")
            .expected(format!("at most {limit} bytes of planned memory"))
            .got(format!("{} bytes", code.layout.nbytes)));
    }
    if let Err(left) = take_arena(code.layout.nbytes) {
        return Err(reached(
            "arena_bytes",
            "the method and the programs around it need more memory than the limit allows",
        )
        .expected(format!("at most {left} bytes more of planned memory"))
        .got(format!("{} bytes", code.layout.nbytes)));
    }
    let scratch = code.scratch.per_worker.saturating_mul(threads).saturating_add(code.scratch.shared);
    if scratch > limit.max(SMALL_SCRATCH) {
        return Err(reached(
            "arena_bytes",
            "the kernels of the method need more scratch than the limit allows",
        )
        .expected(format!("at most {} bytes for {threads} threads", limit.max(SMALL_SCRATCH)))
        .got(format!("{scratch} bytes")));
    }
    Ok(())
}

impl Session {
    /// Allocates and fills everything but delegates, and binds what never changes. `shared`: memory that
    /// other sessions have too.
    pub(crate) fn new(
        code: &MethodCode,
        threads: usize,
        limits: &Limits,
        shared: Option<&SharedState>,
    ) -> Result<Session> {
        check_memory(code, threads, limits).map_err(|e| e.method(code.ir.name.as_str()))?;
        let buffers = |sizes: &mut dyn Iterator<Item = usize>| -> Result<Vec<AlignedBuffer>> {
            sizes.map(AlignedBuffer::zeroed).collect()
        };
        let mut session = Session {
            values: try_with_capacity(code.ir.values.len())?,
            calls: try_with_capacity(code.kernel_count)?,
            scratch: SessionScratch::new(threads, code.scratch)?,
            delegates: SessionDelegates::default(),
            random: RandomStream::from_system(),
            arenas: arenas(code, shared)?,
            loans: vec![],
            own: buffers(&mut code.layout.own.iter().map(|(_, n)| *n))?,
            input_copies: code.input_rules.rules.iter().map(|_| None).collect(),
            input_allocations: try_with_capacity(code.input_rules.rules.len())?,
            fresh: code.layout.fresh_outputs.iter().map(|_| None).collect(),
            spare: code.layout.fresh_outputs.iter().map(|_| None).collect(),
            moved: code.layout.movable_outputs.iter().map(|_| Default::default()).collect(),
            bases: vec![],
            scalars: vec![],
        };
        for (i, value) in code.ir.values.iter().enumerate() {
            let id = ValueId(u32::try_from(i).map_err(|_| Error::internal("too many values"))?);
            let value = match code.layout.is_used(id) {
                true => value.try_map(|tensor| session.initial_slot(code, id, tensor))?,
                false => Value::None,
            };
            session.values.push(value);
        }
        for (at, (id, nbytes)) in code.layout.own.iter().enumerate() {
            let data = session.own.get(at).map_or(std::ptr::null_mut(), AlignedBuffer::as_ptr);
            if let Some(slot) = session.slot_mut(*id) {
                // SAFETY: own memory of `nbytes` bytes that lives as long as the session.
                unsafe { slot.set_data(data, *nbytes) };
            }
        }
        session.copy_initial(code)?;
        session.remember_start(code);
        session.bind_fixed(code)?;
        Ok(session)
    }

    fn initial_slot(&self, code: &MethodCode, id: ValueId, tensor: &TensorIr) -> Result<TensorSlot> {
        let mut slot = TensorSlot::new(&tensor.spec)?;
        let nbytes = tensor.spec.nbytes()?;
        let lost = || Error::internal("a checked range lies outside its memory");
        let data: *mut u8 = match &tensor.placement {
            Placement::Planned { arena, offset, .. } => {
                let arena = &self.arenas.get(*arena as usize).ok_or_else(lost)?.memory;
                if offset.checked_add(nbytes).is_none_or(|end| end > arena.len()) {
                    return Err(lost());
                }
                arena.as_ptr().wrapping_add(*offset)
            }
            Placement::Constant(ConstantRef::Stored(key)) => {
                let small = code.layout.small.get(key);
                let bytes = small.or_else(|| code.data.constant(key)).ok_or_else(lost)?;
                if bytes.len() < nbytes {
                    return Err(lost());
                }
                bytes.as_ptr().cast_mut()
            }
            Placement::Constant(ConstantRef::Folded(_)) => match code.layout.folded.get(&id) {
                // Every kernel took it from a packed copy.
                None => return Ok(slot),
                Some(FoldedMemory::Copied(buffer)) if buffer.len() >= nbytes => buffer.as_ptr().cast_mut(),
                Some(FoldedMemory::Stored(key, offset)) => {
                    let bytes = code.data.constant(key).and_then(|b| b.get(*offset..)).ok_or_else(lost)?;
                    if bytes.len() < nbytes {
                        return Err(lost());
                    }
                    bytes.as_ptr().cast_mut()
                }
                Some(FoldedMemory::Copied(_)) => return Err(lost()),
            },
            // Set later: own memory, inputs, fresh outputs.
            Placement::Unplanned => return Ok(slot),
        };
        // SAFETY: `nbytes` bytes from `data` were just checked to lie within an arena of this session or a
        // constant of the code; format and loader checked the alignment. Load refuses or checks at run time
        // every instruction that could write to a constant.
        unsafe { slot.set_data(data, nbytes) };
        Ok(slot)
    }

    fn slot_mut(&mut self, id: ValueId) -> Option<&mut TensorSlot> {
        self.values.get_mut(id.index()).and_then(Value::as_tensor_mut)
    }

    /// The tensor `id`.
    pub(crate) fn slot(&self, id: ValueId) -> Result<&TensorSlot> {
        self.values
            .get(id.index())
            .and_then(Value::as_tensor)
            .ok_or_else(|| Error::internal("a value that was a tensor is none"))
    }

    /// Copies the initial contents of mutable buffers.
    fn copy_initial(&mut self, code: &MethodCode) -> Result<()> {
        for (_, tensor) in code.ir.tensors() {
            let Placement::Planned { arena, offset, initial: Some(initial) } = &tensor.placement else {
                continue;
            };
            let lost = || Error::internal("initial contents lie outside their memory");
            let ConstantRef::Stored(key) = initial else { return Err(lost()) };
            let bytes = code.data.constant(key).ok_or_else(lost)?;
            let arena = &self.arenas.get(*arena as usize).ok_or_else(lost)?.memory;
            if offset.checked_add(bytes.len()).is_none_or(|end| end > arena.len()) {
                return Err(lost());
            }
            // SAFETY: the range was just checked to lie within the arena, which nobody else looks at
            // meanwhile: it is this session's, or it is this session's turn.
            unsafe { arena.as_ptr().add(*offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    }

    fn remember_start(&mut self, code: &MethodCode) {
        for id in &code.layout.moving {
            if let Some(slot) = self.values.get(id.index()).and_then(Value::as_tensor)
                && !slot.data().is_null()
            {
                self.bases.push((*id, slot.clone()));
            }
        }
        for id in &code.layout.scalars {
            if let Some(value) = self.values.get(id.index()) {
                self.scalars.push((*id, value.clone()));
            }
        }
    }

    /// Binds the kernels whose arguments keep their shapes.
    fn bind_fixed(&mut self, code: &MethodCode) -> Result<()> {
        for step in &code.steps {
            let crate::load::step::Action::Kernel(kernel) = &step.action else { continue };
            let mut call = BoundCall { bound: kernel.prepared.new_bound(), grid: Grid::EMPTY };
            if !kernel.is_rebound {
                // SAFETY: every slot has its memory or, for inputs and fresh outputs, none yet; `bind`
                // reads shapes and scalars only.
                let mut args = unsafe { BindArgs::new(&mut self.values, &step.args) };
                call.grid = kernel
                    .prepared
                    .bind(&mut args, &mut call.bound)
                    .map_err(|e| crate::session::annotate::step_error(code, step, &self.values, e))?;
            }
            self.calls.push(call);
        }
        Ok(())
    }

    /// Checks what the caller gives, then brings it in. After an error of the checks everything is as it was.
    pub(crate) fn begin(
        &mut self,
        code: &MethodCode,
        inputs: &[InputValue<'_>],
        buffers: &[Option<OutputBuffer<'_>>],
        is_lending: bool,
    ) -> Result<()> {
        check_inputs(code, inputs)?;
        bound_outputs::check_buffers(code, buffers)?;
        self.end_loans(code)?;
        self.put_back();
        self.place_outputs(code, inputs, buffers)?;
        self.move_outputs(code, inputs, buffers, is_lending)?;
        self.input_allocations.clear();
        for (at, (rule, input)) in code.input_rules.rules.iter().zip(inputs).enumerate() {
            let Some(value) = self.values.get_mut(rule.id.index()) else { continue };
            match (&rule.kind, input) {
                (RuleKind::Tensor(rule), InputValue::Tensor(t)) => {
                    let Some(slot) = value.as_tensor_mut() else { continue };
                    let Some(copy) = self.input_copies.get_mut(at) else { continue };
                    let before = copy.as_ref().map_or(0, AlignedBuffer::len);
                    bring_in(slot, rule, t, copy)?;
                    let after = copy.as_ref().map_or(0, AlignedBuffer::len);
                    if after != before {
                        self.input_allocations.push((at, after));
                    }
                }
                (RuleKind::Int { .. }, InputValue::Int(v)) => *value = Value::Int(*v),
                // Other kinds equal what the file has, or were refused.
                _ => {}
            }
        }
        Ok(())
    }

    /// Puts moving tensors and written scalars back to where a run starts.
    fn put_back(&mut self) {
        for (id, base) in &self.bases {
            if let Some(slot) = self.values.get_mut(id.index()).and_then(Value::as_tensor_mut) {
                // SAFETY: memory of the session, see `initial_slot`. A view's or move's target never
                // exceeds its own bound, so its current shape fits.
                unsafe { slot.set_data(base.data(), base.capacity()) };
            }
        }
        for (id, start) in &self.scalars {
            if let Some(value) = self.values.get_mut(id.index()) {
                value.clone_from(start);
            }
        }
    }

    /// Gives unplanned outputs their memory.
    fn place_outputs(
        &mut self,
        code: &MethodCode,
        inputs: &[InputValue<'_>],
        buffers: &[Option<OutputBuffer<'_>>],
    ) -> Result<()> {
        for (at, id) in code.layout.fresh_outputs.iter().enumerate() {
            let Some(slot) = self.values.get_mut(id.index()).and_then(Value::as_tensor_mut) else { continue };
            let nbytes = pteron_core::sizes::checked_nbytes(slot.bound(), slot.meta().dtype())?;
            let direct = match code.layout.has_direct_outputs {
                true => bound_outputs::direct(*id, slot, &code.ir.outputs, buffers, inputs),
                false => None,
            };
            if let Some(buffer) = direct {
                // SAFETY: `nbytes` of the caller's memory, which is the output's alone until the call returns.
                unsafe { slot.set_data(buffer.data, nbytes) };
                continue;
            }
            let is_bound = code.ir.outputs.iter().zip(buffers).any(|(o, b)| o == id && b.is_some());
            let kept = if is_bound { &mut self.spare } else { &mut self.fresh };
            let Some(kept) = kept.get_mut(at) else { continue };
            match kept {
                // What no step writes is zero, as in fresh memory.
                Some(buffer) if !code.layout.has_direct_outputs => buffer.as_mut_slice().fill(0),
                Some(_) => {}
                None => *kept = Some(AlignedBuffer::zeroed(nbytes)?),
            }
            if let Some(buffer) = kept {
                // SAFETY: the session keeps the buffer until the run has ended.
                unsafe { slot.set_data(buffer.as_ptr(), nbytes) };
            }
        }
        Ok(())
    }

    /// Lets planned outputs be computed in buffers of the caller, where they can. Large ones that no buffer is bound to
    /// and that are not lent get memory that the caller takes over, which saves copying them.
    fn move_outputs(
        &mut self,
        code: &MethodCode,
        inputs: &[InputValue<'_>],
        buffers: &[Option<OutputBuffer<'_>>],
        is_lending: bool,
    ) -> Result<()> {
        for (id, (home, moved)) in code.layout.movable_outputs.iter().zip(&mut self.moved) {
            let Some(slot) = self.values.get_mut(id.index()).and_then(Value::as_tensor_mut) else { continue };
            let nbytes = slot.capacity();
            if let Some(buffer) = bound_outputs::direct(*id, slot, &code.ir.outputs, buffers, inputs) {
                // SAFETY: the buffer has the tensor's largest shape, so as many bytes as its place in the plan,
                // and is the output's alone until the call returns; the next run puts the pointer back.
                unsafe { slot.set_data(buffer.data, nbytes) };
                continue;
            }
            let is_bound = code.ir.outputs.iter().zip(buffers).any(|(o, b)| o == id && b.is_some());
            if is_bound || is_lending || nbytes < LARGE_OUTPUT {
                continue;
            }
            let own = moved.insert(home.take(nbytes)?);
            // SAFETY: as many bytes as its place in the plan, which the session keeps until the run has ended; the
            // next run puts the pointer back.
            unsafe { slot.set_data(own.as_ptr(), nbytes) };
        }
        Ok(())
    }

    /// The memory that an output got for this run, taken out of the session, if the output still lies there.
    pub(crate) fn take_fresh(&mut self, code: &MethodCode, id: ValueId) -> Option<AlignedBuffer> {
        let place = |list: &[ValueId]| list.iter().position(|v| *v == id);
        let data = self.slot(id).ok()?.data();
        let kept = match place(&code.layout.fresh_outputs) {
            Some(at) => self.fresh.get_mut(at)?,
            None => &mut self.moved.get_mut(place(&code.layout.movable_outputs)?)?.1,
        };
        kept.take_if(|buffer| buffer.as_ptr() == data)
    }

    /// Memory that `begin` has made for copies of inputs.
    pub(crate) fn input_allocations(&self, report: &mut dyn FnMut(Allocation)) {
        for (input, nbytes) in &self.input_allocations {
            report(Allocation::InputCopy { input: *input, nbytes: *nbytes });
        }
    }

    /// Lends output number `index` where it lies, if that is in memory of this session alone.
    pub(crate) fn lend(&mut self, id: ValueId, index: usize) -> Option<LentTensor> {
        let slot = self.slot(id).ok()?;
        let (start, nbytes) = (slot.data() as usize, slot.meta().nbytes());
        let arena = self.arenas.iter().find(|a| {
            let own = a.memory.as_ptr() as usize;
            let end = own.saturating_add(a.memory.len());
            !a.is_shared && start >= own && start.checked_add(nbytes).is_some_and(|e| e <= end)
        })?;
        let (meta, data) = (slot.meta().clone(), slot.data());
        let memory = Arc::new(Memory::of_arena(arena.memory.clone(), data));
        self.loans.push((index, memory.clone()));
        Some(LentTensor::new(meta, memory))
    }

    /// Takes back what the last call lent. An error, with nothing taken back, while somebody looks at it.
    pub(crate) fn end_loans(&mut self, code: &MethodCode) -> Result<()> {
        let is_used = |(_, memory): &&(usize, Arc<Memory>)| memory.exports() != 0;
        if let Some((index, _)) = self.loans.iter().find(is_used) {
            return Err(in_use(code, *index));
        }
        while let Some((index, memory)) = self.loans.last() {
            // Another thread may have begun to look just now.
            if !memory.take_back() {
                return Err(in_use(code, *index));
            }
            self.loans.pop();
        }
        Ok(())
    }

    /// Gives up all memory without freeing it, for a session that is never used again: something
    /// outside still looks at it.
    pub(crate) fn abandon_memory(&mut self) {
        let copies = std::mem::take(&mut self.input_copies);
        let fresh = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.spare));
        let moved = std::mem::take(&mut self.moved);
        std::mem::forget((
            std::mem::take(&mut self.arenas),
            std::mem::take(&mut self.own),
            copies,
            fresh,
            moved,
        ));
    }

    /// Lets go of the memory of outputs that nobody took.
    pub(crate) fn drop_fresh(&mut self) {
        self.fresh.iter_mut().for_each(|f| *f = None);
        self.moved.iter_mut().for_each(|(_, moved)| *moved = None);
    }

    /// Does this range lie in memory that instructions may write?
    pub(crate) fn is_writable(&self, data: *const u8, nbytes: usize) -> bool {
        let start = data as usize;
        let lies_in = |b: &AlignedBuffer| -> bool {
            let own = b.as_ptr() as usize;
            start >= own && start.checked_add(nbytes).is_some_and(|end| end <= own.saturating_add(b.len()))
        };
        self.arenas.iter().map(|a| &*a.memory).chain(&self.own).any(lies_in)
            || self.input_copies.iter().chain(&self.fresh).chain(&self.spare).flatten().any(lies_in)
            || self.moved.iter().filter_map(|(_, moved)| moved.as_ref()).any(lies_in)
    }

    /// Zeroes mutable buffers and the session's own memory and copies the initial contents again.
    pub(crate) fn reset_state(&mut self, code: &MethodCode) -> Result<()> {
        for (_, id) in &code.layout.state {
            let slot = self.slot(*id)?;
            if slot.meta().nbytes() > 0 {
                // SAFETY: planned memory of this session, whose turn it is, of as many bytes.
                unsafe { slot.data().write_bytes(0, slot.meta().nbytes()) };
            }
        }
        for arena in self.arenas.iter().filter(|a| !a.is_shared) {
            // SAFETY: this session's alone; nobody looks at what it lent (`end_loans`).
            unsafe { arena.memory.as_ptr().write_bytes(0, arena.memory.len()) };
        }
        self.copy_initial(code)
    }

    /// Overwrites a mutable buffer.
    pub(crate) fn set_tensor(&mut self, id: ValueId, input: &TensorInput<'_>) -> Result<()> {
        let slot = self.slot_mut(id).ok_or_else(|| Error::internal("a mutable buffer is no tensor"))?;
        slot.resize(input.shape)?;
        // SAFETY: planned memory of this session, large enough after `resize`; the input's own contract.
        unsafe { copy_into(slot.data(), slot, input) };
        Ok(())
    }
}

#[cold]
fn in_use(code: &MethodCode, index: usize) -> Error {
    let name = code.outputs.get(index).map_or("?", |spec| spec.name.as_str());
    Error::outputs_in_use("an output that an earlier call lent is still looked at")
        .method(code.ir.name.as_str())
        .argument(name)
        .expected("no array, buffer or capsule over lent outputs when the method is used again")
        .got(format!("exports of output {index} that are alive"))
        .hint("drop them, copy what is needed, or ask for outputs that own their memory (copy=True)")
}

/// Zeroed memory of the method's own, and memory that it shares.
fn arenas(code: &MethodCode, shared: Option<&SharedState>) -> Result<Vec<Arena>> {
    let arena = |(index, size): (usize, &usize)| match shared.and_then(|s| s.arena(index)) {
        Some(arena) if arena.len() >= *size => Ok(Arena { memory: arena.clone(), is_shared: true }),
        Some(_) => Err(Error::internal("a shared arena is too small")),
        None => Ok(Arena { memory: Arc::new(AlignedBuffer::zeroed(*size)?), is_shared: false }),
    };
    code.ir.arenas.iter().enumerate().map(arena).collect()
}
