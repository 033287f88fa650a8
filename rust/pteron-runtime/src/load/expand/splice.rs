//! Calls of operators in the place of a delegate's instruction.

use super::constants::{DelegateConstants, Owner, index};
use super::intermediates::{Workspace, behind};
use super::origins::{DelegatePart, Origin, Origins, delegate_place};
use super::overlap::check_disjoint;
use super::views::Views;
use crate::ir::{ConstantRef, FoldedConstant, MethodIr, Placement, TensorIr, ValueIr};
use crate::load::delegate_data::DelegateData;
use crate::load::limits::Limits;
use crate::load::program_data::ProgramData;
use crate::load::source::file_key;
use pteron_core::{
    Error, Instruction, NamedData, PackStore, Result, TensorSpec, Value, ValueId, memory_reserve,
};
use pteron_cpu::graph::ET_VIEW;
use pteron_format::DelegateDef;
use pteron_xnnpack::{ExpandedTensor, ExpandedValue, Expansion, OperatorCall};
use std::collections::HashMap;
use std::sync::Arc;

/// The arena in which delegates work: no other method ever shares it.
const ARENA: u32 = 0;
/// Most bytes of payloads that the expansion of a method reads. A payload counts again for each call of it with other
/// arguments, so that a small file cannot ask for any amount of work.
const MOST_PAYLOAD_BYTES: usize = 1 << 30;

/// What the expansion of a method needs beside the method.
#[derive(Clone, Copy)]
pub(crate) struct ExpandInput<'a> {
    pub data: &'a Arc<ProgramData>,
    pub packs: &'a PackStore,
    pub limits: &'a Limits,
    /// What translates the payloads of a backend; `None` for one whose delegates stay.
    pub translator: &'a dyn Fn(&str) -> Option<Translate>,
}

/// Translates a payload to operators: its bytes, what is known of the arguments of the call, its weights.
pub(crate) type Translate = fn(&[u8], &[Option<TensorSpec>], &dyn NamedData) -> Result<Expansion>;

/// What expansion made beside the method itself.
#[derive(Default)]
pub(crate) struct Expanded {
    pub origins: Origins,
    /// Constants that `ConstantRef::Folded` of the method's values stands for.
    pub folded: Vec<FoldedConstant>,
    /// Is the delegate of this index gone? Empty where none is.
    pub delegates: Box<[bool]>,
    /// Number of values and of instructions of the expanded method, where anything was expanded.
    pub counts: Option<(usize, usize)>,
}

impl Expanded {
    /// Was delegate `index` expanded?
    pub(crate) fn has(&self, index: usize) -> bool {
        self.delegates.get(index).copied().unwrap_or(false)
    }
}

/// Replaces every call of a delegate that can be expanded.
///
/// Errors: those of its payload, with the place of the delegate in method and model; `LimitExceeded` where the expanded
/// method exceeds the limits.
pub(crate) fn expand(ir: &mut MethodIr, input: ExpandInput<'_>) -> Result<Expanded> {
    let translators: Vec<Option<Translate>> =
        ir.delegates.iter().map(|d| (input.translator)(&d.backend)).collect();
    if translators.iter().all(Option::is_none) {
        return Ok(Expanded::default());
    }
    let old = std::mem::take(&mut ir.instructions);
    let mut splicer = Splicer {
        arena: ir.arenas.get(ARENA as usize).copied().unwrap_or(0),
        most_arena: ir.arenas.get(ARENA as usize).copied().unwrap_or(0),
        operators: ir.operators.iter().cloned().zip(0..).collect(),
        constants: DelegateConstants::new(input.data, input.packs),
        ir,
        input,
        origins: memory_reserve::try_with_capacity(old.len())?,
        payloads: HashMap::new(),
        payload_bytes: 0,
    };
    let mut starts: Vec<u32> = memory_reserve::try_with_capacity(old.len().saturating_add(1))?;
    for (at, instruction) in old.into_iter().enumerate() {
        memory_reserve::check()?;
        starts.push(index(splicer.ir.instructions.len())?);
        let at = index(at)?;
        let translator = match &instruction {
            Instruction::Delegate { delegate, .. } => translators.get(*delegate as usize).copied().flatten(),
            _ => None,
        };
        match (&instruction, translator) {
            (Instruction::Delegate { delegate, args }, Some(translate)) => {
                let done = splicer.delegate(at, *delegate, args, translate);
                done.map_err(|e| splicer.place(e, at, *delegate))?;
            }
            _ => {
                splicer.ir.instructions.push(instruction);
                splicer.origins.push(Origin { instruction: at, part: None });
            }
        }
    }
    let end = index(starts.len())?;
    starts.push(index(splicer.ir.instructions.len())?);
    splicer.origins.push(Origin { instruction: end, part: None });
    for instruction in &mut splicer.ir.instructions {
        if let Instruction::JumpFalse { destination, .. } = instruction {
            let start = starts.get(*destination as usize).copied();
            *destination = start.ok_or_else(|| Error::internal("a jump leads to no instruction"))?;
        }
    }
    Ok(splicer.finish(translators.iter().map(Option::is_some).collect()))
}

/// Where the intermediates of one delegate lie.
struct Memory<'a> {
    views: &'a Views,
    workspace: &'a Workspace,
    /// Where the workspace begins in the arena.
    start: usize,
}

impl Memory<'_> {
    /// The place of the intermediate that is value `at`.
    fn placement(
        &self,
        at: usize,
        expansion: &Expansion,
        ir: &MethodIr,
        args: &[ValueId],
    ) -> Placement<ConstantRef> {
        let root = self.views.root(at).unwrap_or(at);
        if let Some(Value::Tensor(tensor)) = expansion.values.get(root)
            && let ExpandedTensor::Argument(argument) = &**tensor
            && let Some(of) = args.get(*argument).and_then(|id| ir.tensor(*id))
        {
            return of.placement.clone();
        }
        let offset = self.start.saturating_add(self.workspace.offset(root));
        Placement::Planned { arena: ARENA, offset, initial: None }
    }
}

struct Splicer<'a, 'i> {
    ir: &'a mut MethodIr,
    input: ExpandInput<'i>,
    /// Bytes that the file plans in the arena, and that it has with the delegates' in turn behind them.
    arena: usize,
    most_arena: usize,
    operators: HashMap<String, u32>,
    constants: DelegateConstants<'i>,
    origins: Vec<Origin>,
    /// What became of the last call of each delegate, with the arguments of that.
    payloads: HashMap<u32, (Vec<Option<TensorSpec>>, Arc<Expansion>)>,
    payload_bytes: usize,
}

impl Splicer<'_, '_> {
    /// Replaces instruction `at`, a call of `delegate`.
    fn delegate(&mut self, at: u32, delegate: u32, args: &[ValueId], translate: Translate) -> Result<()> {
        let expansion = self.expansion(delegate, args, translate)?;
        check_disjoint(self.ir, args, &expansion)?;
        let is_new = |v: &&ExpandedValue| !matches!(v.as_tensor(), Some(ExpandedTensor::Argument(_)));
        let values = self.ir.values.len().saturating_add(expansion.values.iter().filter(is_new).count());
        let calls = self.ir.instructions.len().saturating_add(expansion.calls.len());
        self.input.limits.check_counts(values, calls)?;
        let views = Views::new(&expansion, self.ir, args);
        let workspace = Workspace::new(&expansion, &views)?;
        let (start, end) = behind(self.arena, workspace.nbytes)?;
        if workspace.nbytes > 0 {
            self.most_arena = self.most_arena.max(end);
        }
        let memory = Memory { views: &views, workspace: &workspace, start };
        let ids = self.values(&expansion, &memory, args, delegate)?;
        for call in &expansion.calls {
            let is_view = views.is_view(call);
            let operator = self.operator(if is_view { ET_VIEW } else { call.operator })?;
            let args = self.arguments(call, is_view, &ids)?;
            self.ir.instructions.push(Instruction::Kernel { operator, args });
            let part = DelegatePart { delegate, node: index(call.node)?, handle: call.debug_handle };
            self.origins.push(Origin { instruction: at, part: Some(part) });
        }
        Ok(())
    }

    fn def(&self, delegate: u32) -> Result<&DelegateDef> {
        let def = self.ir.delegates.get(delegate as usize);
        def.ok_or_else(|| Error::internal("a checked delegate index is out of range"))
    }

    fn expansion(&mut self, delegate: u32, args: &[ValueId], translate: Translate) -> Result<Arc<Expansion>> {
        let specs: Vec<Option<TensorSpec>> =
            args.iter().map(|id| self.ir.tensor(*id).map(|t| t.spec.clone())).collect();
        if let Some((known, expansion)) = self.payloads.get(&delegate)
            && *known == specs
        {
            return Ok(expansion.clone());
        }
        let payload = self.input.data.constant(&file_key(&self.def(delegate)?.blob));
        let payload = payload.ok_or_else(|| Error::internal("a checked blob lies outside the file"))?;
        self.payload_bytes = self.payload_bytes.saturating_add(payload.len());
        if self.payload_bytes > MOST_PAYLOAD_BYTES {
            return Err(Error::limit("the payloads of the method's delegates take too long to read")
                .expected(format!("at most {MOST_PAYLOAD_BYTES} bytes, counted for each call"))
                .got(format!("{} bytes", self.payload_bytes)));
        }
        let named = DelegateData::new(self.input.data.clone(), &self.ir.name, delegate as usize);
        let expansion = Arc::new(translate(payload, &specs, &named)?);
        self.payloads.insert(delegate, (specs, expansion.clone()));
        Ok(expansion)
    }

    /// The method's value for each value of the expansion. Members of lists come before the lists, whatever their order.
    fn values(
        &mut self,
        expansion: &Expansion,
        memory: &Memory<'_>,
        args: &[ValueId],
        delegate: u32,
    ) -> Result<Vec<ValueId>> {
        let mut ids: Vec<Option<ValueId>> = Vec::with_capacity(expansion.values.len());
        for (at, value) in expansion.values.iter().enumerate() {
            ids.push(match value {
                Value::Tensor(tensor) => Some(match &**tensor {
                    ExpandedTensor::Argument(argument) => *args
                        .get(*argument)
                        .ok_or_else(|| Error::internal("an argument that the call does not have"))?,
                    ExpandedTensor::Constant(constant) => {
                        let def = self.ir.delegates.get(delegate as usize);
                        let def =
                            def.ok_or_else(|| Error::internal("a checked delegate index is out of range"))?;
                        let owner = Owner { def, method: &self.ir.name, index: delegate as usize };
                        self.constants.value(constant, owner, &mut self.ir.values)?
                    }
                    ExpandedTensor::Intermediate(spec) => {
                        let placement = memory.placement(at, expansion, self.ir, args);
                        self.push(
                            TensorIr {
                                spec: spec.clone(),
                                placement,
                                device: pteron_core::Device::Cpu,
                                name: None,
                            }
                            .into(),
                        )?
                    }
                }),
                value => match plain(value) {
                    Some(plain) => Some(self.push(plain)?),
                    None => None,
                },
            });
        }
        let lists = expansion.values.iter().enumerate().filter(|(_, value)| value.as_list().is_some());
        for (at, list) in lists {
            let made = list_of(list, &ids).ok_or_else(|| Error::internal("a list of unknown values"))?;
            let id = self.push(made)?;
            if let Some(slot) = ids.get_mut(at) {
                *slot = Some(id);
            }
        }
        let all: Option<Vec<ValueId>> = ids.into_iter().collect();
        all.ok_or_else(|| Error::internal("a value of a delegate was left out"))
    }

    /// The arguments of an instruction as in files: what it returns stands behind them, several outputs in one list. A
    /// view returns nothing.
    fn arguments(&mut self, call: &OperatorCall, is_view: bool, ids: &[ValueId]) -> Result<Box<[ValueId]>> {
        let found = |i: usize| {
            ids.get(i).copied().ok_or_else(|| Error::internal("a call names a value that there is not"))
        };
        let mut args: Vec<ValueId> = call.args().map(found).collect::<Result<_>>()?;
        match call.outputs.as_slice() {
            _ if is_view => {}
            [output] => args.push(found(*output)?),
            outputs => {
                let all: Arc<[ValueId]> = outputs.iter().map(|i| found(*i)).collect::<Result<_>>()?;
                args.push(self.push(Value::TensorList(all))?);
            }
        }
        Ok(args.into())
    }

    fn push(&mut self, value: ValueIr) -> Result<ValueId> {
        let id = ValueId(index(self.ir.values.len())?);
        self.ir.values.push(value);
        Ok(id)
    }

    fn operator(&mut self, name: &str) -> Result<u32> {
        if let Some(known) = self.operators.get(name) {
            return Ok(*known);
        }
        let new = index(self.ir.operators.len())?;
        self.ir.operators.push(name.to_string());
        self.operators.insert(name.to_string(), new);
        Ok(new)
    }

    /// Says which delegate of the file an error is about.
    fn place(&self, error: Error, at: u32, delegate: u32) -> Error {
        let message = format!("delegate {delegate} of the method: {}", error.detail().message);
        let (name, debug) = (self.ir.name.as_str(), self.input.data.debug());
        let error = error.with_message(message).method(name).instruction(at as usize);
        delegate_place(error, &self.ir.delegates, debug, name, delegate)
    }

    fn finish(self, delegates: Box<[bool]>) -> Expanded {
        match self.ir.arenas.get_mut(ARENA as usize) {
            Some(size) => *size = self.most_arena,
            None if self.most_arena > 0 => self.ir.arenas.push(self.most_arena),
            None => {}
        }
        Expanded {
            origins: Origins::new(self.origins),
            folded: self.constants.folded,
            delegates,
            counts: Some((self.ir.values.len(), self.ir.instructions.len())),
        }
    }
}

/// A value that is neither a tensor nor a list of values.
fn plain(value: &ExpandedValue) -> Option<ValueIr> {
    Some(match value {
        Value::None => Value::None,
        Value::Int(v) => Value::Int(*v),
        Value::Bool(v) => Value::Bool(*v),
        Value::Double(v) => Value::Double(*v),
        Value::String(v) => Value::String(v.clone()),
        Value::DoubleList(v) => Value::DoubleList(v.clone()),
        Value::BoolList(v) => Value::BoolList(v.clone()),
        Value::Tensor(_) | Value::IntList(_) | Value::TensorList(_) | Value::OptionalTensorList(_) => {
            return None;
        }
    })
}

/// A list of values, of the members that `ids` has for them.
fn list_of(list: &ExpandedValue, ids: &[Option<ValueId>]) -> Option<ValueIr> {
    let id = |member: &usize| ids.get(*member).copied().flatten();
    Some(match list {
        Value::IntList(members) => Value::IntList(members.iter().map(id).collect::<Option<_>>()?),
        Value::TensorList(members) => Value::TensorList(members.iter().map(id).collect::<Option<_>>()?),
        Value::OptionalTensorList(members) => {
            let member = |m: &Option<usize>| match m {
                Some(m) => id(m).map(Some),
                None => Some(None),
            };
            Value::OptionalTensorList(members.iter().map(member).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
