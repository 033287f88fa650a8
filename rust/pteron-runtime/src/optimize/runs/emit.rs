//! Steps from graphs: names every tensor that only a run sees anew, leaves the others where the file
//! has them, and places what is new.

use super::super::{Chain, Optimized};
use super::Analysis;
use super::host::plan_of;
use super::place::{ArenaPlan, Blocks};
use crate::ir::{ConstantRef, FoldedConstant, MethodIr, Placement, StepIr, StepKind, TensorIr, ValueIr};
use pteron_core::{Device, Instruction, Result, TensorSpec, ValueId};
use pteron_cpu::graph::{Argument, ET_VIEW, Graph, Literal, Node, NodeId, Op, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory that the method may need at most with plans, in percent of what the file plans.
const MOST_MEMORY_PERCENT: usize = 105;

/// The emitted steps; `None`, with `ir` as it was, where they would need too much memory.
pub(super) fn emit(
    ir: &mut MethodIr,
    folded: &mut Vec<FoldedConstant>,
    known: Analysis<'_>,
    graphs: &[(usize, Graph)],
) -> Result<Option<Optimized>> {
    let chain = known.chain;
    let mut emitter = Emitter {
        ir,
        file: chain,
        steps: Vec::with_capacity(chain.len()),
        entries: vec![u32::MAX; chain.len().saturating_add(1)],
        made: Vec::new(),
        lists: HashMap::new(),
        literals: HashMap::new(),
        blocks: Blocks::default(),
    };
    for (start, graph) in graphs {
        emitter.enter(*start);
        RunEmitter { ids: vec![None; graph.tensor_count()], graph, out: &mut emitter }.run();
    }
    emitter.enter(chain.len());
    let Emitter { steps, entries, made, blocks, .. } = emitter;
    let Some(plan) = ArenaPlan::new(ir, &steps, &made, known, blocks, MOST_MEMORY_PERCENT) else {
        return Ok(None);
    };
    plan.apply(ir, made);
    Ok(Some(Optimized { steps, entries, folded: std::mem::take(folded) }))
}

/// What all runs of a method share.
struct Emitter<'a> {
    ir: &'a MethodIr,
    file: &'a Chain,
    steps: Vec<StepIr>,
    /// Where each instruction that can be jumped to begins.
    entries: Vec<u32>,
    /// Values to append to the method's.
    made: Vec<ValueIr>,
    lists: HashMap<Vec<Option<ValueId>>, ValueId>,
    /// By their text, which tells -0.0 from 0.0.
    literals: HashMap<String, ValueId>,
    blocks: Blocks,
}

impl Emitter<'_> {
    fn enter(&mut self, start: usize) {
        let at = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        if let Some(entry) = self.entries.get_mut(start) {
            *entry = at;
        }
    }

    fn value(&mut self, value: ValueIr) -> ValueId {
        let id = self.ir.values.len().saturating_add(self.made.len());
        self.made.push(value);
        ValueId(u32::try_from(id).unwrap_or(u32::MAX))
    }

    fn tensor(&mut self, spec: TensorSpec, placement: Placement<ConstantRef>) -> ValueId {
        self.value(TensorIr { spec, placement, device: Device::Cpu, name: None }.into())
    }

    fn list(&mut self, items: Vec<Option<ValueId>>, is_optional: bool) -> ValueId {
        if let Some(known) = self.lists.get(&items) {
            return *known;
        }
        let all: Option<Arc<[ValueId]>> = items.iter().copied().collect();
        let id = self.value(match all {
            Some(all) if !is_optional => ValueIr::TensorList(all),
            _ => ValueIr::OptionalTensorList(items.iter().copied().collect()),
        });
        self.lists.insert(items, id);
        id
    }

    fn literal(&mut self, literal: &Literal) -> ValueId {
        let key = format!("{literal:?}");
        if let Some(known) = self.literals.get(&key) {
            return *known;
        }
        let value = match literal {
            Literal::None => ValueIr::None,
            Literal::Int(v) => ValueIr::Int(*v),
            Literal::Double(v) => ValueIr::Double(*v),
            Literal::Bool(v) => ValueIr::Bool(*v),
            Literal::String(v) => ValueIr::String(v.clone()),
            Literal::Ints(items) => {
                ValueIr::IntList(items.iter().map(|v| self.literal(&Literal::Int(*v))).collect())
            }
        };
        let id = self.value(value);
        self.literals.insert(key, id);
        id
    }

    fn now(&self) -> usize {
        self.steps.len()
    }
}

/// One run.
struct RunEmitter<'a, 'b, 'c> {
    graph: &'a Graph,
    /// The program's value of each tensor, once it is known.
    ids: Vec<Option<ValueId>>,
    out: &'b mut Emitter<'c>,
}

impl RunEmitter<'_, '_, '_> {
    fn run(&mut self) {
        let nodes: Vec<NodeId> = self.graph.live().map(|(id, _)| id).collect();
        for id in nodes {
            let node = self.graph.node(id);
            match &node.op {
                Op::Fixed => self.fixed(node),
                Op::View => self.view(node),
                _ => self.kernel(node),
            }
        }
    }

    fn fixed(&mut self, node: &Node) {
        let Some(at) = node.instruction else { return };
        if let Some(Some(instruction)) = self.out.file.get(at as usize) {
            self.out.steps.push(StepIr::of(at, instruction.clone()));
        }
    }

    fn kernel(&mut self, node: &Node) {
        self.place_outputs(node);
        let args = self.arguments(node);
        let kind = match self.file_call(node) {
            Some(operator) => self.call_again(node, operator, args),
            None => StepKind::Plan { args: args.into(), plan: plan_of(&node.draft()) },
        };
        self.out.steps.push(StepIr { kind, covers: node.covers.to_vec() });
    }

    /// The operator of a node that is still a call of the file.
    fn file_call(&self, node: &Node) -> Option<u32> {
        match self.out.file.get(node.instruction? as usize)? {
            Some(Instruction::Kernel { operator, .. }) => Some(*operator),
            _ => None,
        }
    }

    fn arguments(&mut self, node: &Node) -> Vec<ValueId> {
        node.args.iter().enumerate().map(|(i, a)| self.argument(node, i, a)).collect()
    }

    fn argument(&mut self, node: &Node, position: usize, argument: &Argument) -> ValueId {
        match argument {
            Argument::Tensor(t) => self.read(*t),
            Argument::Tensors(list) => {
                let items: Vec<Option<ValueId>> = list.iter().map(|t| t.map(|t| self.read(t))).collect();
                let is_optional = self.is_optional_list(node, position);
                self.out.list(items, is_optional)
            }
            Argument::Literal(_, Some(value)) | Argument::Value(value) => ValueId(*value),
            Argument::Literal(literal, None) => self.out.literal(literal),
        }
    }

    fn is_optional_list(&self, node: &Node, position: usize) -> bool {
        let file = node.instruction.and_then(|i| self.out.file.get(i as usize));
        let Some(Some(Instruction::Kernel { args, .. })) = file else { return false };
        let value = args.get(position).and_then(|v| self.out.ir.values.get(v.index()));
        matches!(value, Some(ValueIr::OptionalTensorList(_)))
    }

    /// The value of a tensor that is read (or written) now.
    fn read(&mut self, tensor: TensorId) -> ValueId {
        let id = self.id(tensor);
        self.out.blocks.touch(id, self.out.now());
        id
    }

    fn id(&mut self, tensor: TensorId) -> ValueId {
        if let Some(Some(known)) = self.ids.get(tensor.0 as usize) {
            return *known;
        }
        let t = self.graph.tensor(tensor);
        let id = match t.value {
            Some(value) if !t.is_private() => ValueId(value),
            // Written by nobody: a rule's mistake would surface as a missing block.
            _ => self.new_block(tensor),
        };
        self.name(tensor, id);
        id
    }

    fn name(&mut self, tensor: TensorId, id: ValueId) {
        if let Some(slot) = self.ids.get_mut(tensor.0 as usize) {
            *slot = Some(id);
        }
    }

    fn new_block(&mut self, tensor: TensorId) -> ValueId {
        let spec = self.graph.tensor(tensor).spec.clone();
        let nbytes = spec.nbytes().unwrap_or(usize::MAX);
        let id = self.out.tensor(spec, Placement::Unplanned);
        self.out.blocks.add(id, nbytes, self.out.now());
        id
    }

    /// New memory for what a node writes, at the bytes of an input where the file has it so.
    fn place_outputs(&mut self, node: &Node) {
        for output in &node.outputs {
            if !self.graph.tensor(*output).is_private() {
                continue;
            }
            let id = self.id(*output);
            let reused = node.in_place_of.map(|t| self.graph.through_views(t));
            if let Some(input) = reused.filter(|t| self.graph.tensor(*t).is_private()) {
                let input = self.id(input);
                self.out.blocks.prefer(id, input);
            }
        }
    }

    fn view(&mut self, node: &Node) {
        let (Some(base), Some(out)) = (node.input(0), node.output()) else { return };
        let (from, to) = (self.graph.tensor(base), self.graph.tensor(out));
        if !to.is_private() {
            // At the file's place: made by an instruction, or implicit.
            if node.instruction.is_some() {
                self.view_step(node);
            }
            return;
        }
        let root = self.id(self.graph.through_views(base));
        let root_tensor = self.out.ir.tensor(root);
        let is_static = !to.spec.is_dynamic() && !from.spec.is_dynamic();
        let nbytes = to.spec.nbytes().unwrap_or(usize::MAX);
        let (id, is_placed) = match root_tensor.map(|t| &t.placement) {
            // Made here.
            None => {
                let id = self.out.tensor(to.spec.clone(), Placement::Unplanned);
                self.out.blocks.add_view(id, root, nbytes);
                (id, self.out.blocks.is_placed(id))
            }
            Some(Placement::Planned { arena, offset, .. })
                if root_tensor.and_then(|t| t.spec.nbytes().ok()).is_some_and(|n| nbytes <= n) =>
            {
                let place = Placement::Planned { arena: *arena, offset: *offset, initial: None };
                (self.out.tensor(to.spec.clone(), place), true)
            }
            Some(_) => match to.value {
                Some(value) => (ValueId(value), false),
                None => (self.out.tensor(to.spec.clone(), Placement::Unplanned), false),
            },
        };
        self.name(out, id);
        if !(is_static && is_placed) {
            self.view_step(node);
        }
    }

    fn view_step(&mut self, node: &Node) {
        let args = self.arguments(node);
        let kind = match self.file_call(node) {
            Some(operator) => self.call_again(node, operator, args),
            None => {
                let mut draft = node.draft();
                (draft.op, draft.operator) = (Op::Opaque, ET_VIEW.to_string());
                StepKind::Plan { args: args.into(), plan: plan_of(&draft) }
            }
        };
        self.out.steps.push(StepIr { kind, covers: node.covers.to_vec() });
    }

    /// The call as the file has it, with the arguments it has now.
    fn call_again(&mut self, node: &Node, operator: u32, mut args: Vec<ValueId>) -> StepKind {
        if let Some(returned) = &node.returned {
            args.push(self.argument(node, node.args.len(), returned));
        }
        StepKind::Instruction(Instruction::Kernel { operator, args: args.into() })
    }
}
