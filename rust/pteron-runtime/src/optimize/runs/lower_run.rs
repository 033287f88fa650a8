//! A run of steps as a graph of the engine.
//!
//! Which tensor a read sees is what the flow analysis says about its bytes. Where it is not sure, the
//! bytes stay where the file has them: the read is one of the border, and what it may see is pinned.

use super::super::effects::{Effects, Location, kernel_call};
use super::super::flow::{Flow, Reach, Use};
use super::super::{Chain, Loader};
use super::Analysis;
use super::literals::literal;
use super::uses::FileUses;
use crate::ir::{MethodIr, TensorIr, ValueIr};
use crate::step_effects::{ByteRegion, Space};
use pteron_core::{Instruction, Schema, ValueId};
use pteron_cpu::graph::{self, Argument, ET_VIEW, Graph, Literal, Node, Op, Tensor, TensorId, TensorMemory};
use smallvec::SmallVec;
use std::collections::HashMap;

/// What a step wrote: the program's value and its version in the graph.
type Outputs = SmallVec<[(ValueId, TensorId); 1]>;

/// Lowers one run.
pub(super) struct Lowering<'a> {
    ir: &'a MethodIr,
    chain: &'a Chain,
    effects: &'a Effects,
    flow: &'a Flow,
    uses: &'a FileUses,
    loader: &'a dyn Loader,
    span: (usize, usize),
    graph: Graph,
    outputs: HashMap<usize, Outputs>,
    /// Results of views in the run.
    views: HashMap<ValueId, TensorId>,
    /// What the run finds, by value and by what its bytes are.
    borders: HashMap<(ValueId, Reach), TensorId>,
    reach_of: HashMap<TensorId, Reach>,
    constants: HashMap<ValueId, TensorId>,
    /// Views that no instruction makes: two values at the same bytes.
    implicit_views: HashMap<(TensorId, ValueId), TensorId>,
}

/// The uses of one step, handed out in the order of its reads.
struct Reads<'a> {
    left: std::slice::Iter<'a, Use>,
}

impl Reads<'_> {
    fn next(&mut self) -> Reach {
        self.left.next().map_or(Reach::Mixed, |u| u.reach)
    }
}

fn place_of(region: &ByteRegion) -> TensorMemory {
    let space = match region.space {
        Space::Arena(arena) => graph::Space::Arena(arena),
        Space::Value(value) => graph::Space::Value(value),
        Space::Constant => return TensorMemory::Constant,
    };
    TensorMemory::Bytes { space, start: region.start, end: region.end }
}

impl<'a> Lowering<'a> {
    pub fn new(ir: &'a MethodIr, known: Analysis<'a>, uses: &'a FileUses) -> Self {
        let Analysis { chain, effects, flow, loader } = known;
        Lowering {
            ir,
            chain,
            effects,
            flow,
            uses,
            loader,
            span: (0, 0),
            graph: Graph::new(),
            outputs: HashMap::new(),
            views: HashMap::new(),
            borders: HashMap::new(),
            reach_of: HashMap::new(),
            constants: HashMap::new(),
            implicit_views: HashMap::new(),
        }
    }

    /// The run of steps `start..end`.
    pub fn run(mut self, start: usize, end: usize) -> Graph {
        self.span = (start, end);
        for i in start..end {
            if let Some(call @ Some(_)) = self.chain.get(i) {
                self.step(i, kernel_call(self.ir, call));
            }
        }
        self.graph
    }

    fn step(&mut self, i: usize, call: Option<(&'a str, &'a [ValueId])>) {
        let is_known = self.flow.uses_of(i).len() == self.effects.step(i).reads.len();
        let Some((name, args)) = call.filter(|_| is_known) else {
            return self.fixed(i);
        };
        if name == ET_VIEW {
            return match args {
                &[base, size, out, ..] if self.is_view(base, out) => self.view(i, args, base, size, out),
                _ => self.fixed(i),
            };
        }
        match self.loader.schema(name) {
            Some(schema) if self.is_plain(i, schema) => self.call(i, name, args, schema),
            _ => self.fixed(i),
        }
    }

    /// Does the call write its outputs and nothing else, at places that are known?
    fn is_plain(&self, i: usize, schema: &Schema) -> bool {
        let is_known = |value: ValueId| matches!(self.effects.location(value), Location::At(_));
        !schema.updates() && self.effects.step(i).writes.iter().all(|w| is_known(w.value))
    }

    fn is_view(&self, base: ValueId, out: ValueId) -> bool {
        let is_known = |v: ValueId| matches!(self.effects.location(v), Location::At(_) | Location::Constant);
        self.tensor(base).is_some() && self.tensor(out).is_some() && is_known(base) && is_known(out)
    }

    fn tensor(&self, value: ValueId) -> Option<&'a TensorIr> {
        self.ir.tensor(value)
    }

    fn elements(&self, value: ValueId) -> Option<SmallVec<[Option<ValueId>; 4]>> {
        Some(self.ir.value(value)?.as_list()?.positions().collect())
    }

    /// A step that stays as the file has it: everything it names stays there too.
    fn fixed(&mut self, i: usize) {
        let mut reads = Reads { left: self.flow.uses_of(i).iter() };
        let mut node = Node::call("", Vec::new(), SmallVec::new(), to_u32(i));
        node.op = Op::Fixed;
        for access in &self.effects.step(i).reads {
            let reach = reads.next();
            if self.tensor(access.value).is_some() {
                let tensor = self.read(access.value, reach);
                self.keep(tensor);
                node.args.push(Argument::Tensor(tensor));
            } else {
                node.read_values.push(access.value.0);
            }
        }
        let mut outputs: Outputs = SmallVec::new();
        for access in &self.effects.step(i).writes {
            match self.tensor(access.value) {
                Some(t) => {
                    let place = self.file_place(access.value);
                    let written = Tensor::new(t.spec.clone(), place, access.value.0);
                    let id = self.graph.push_tensor(written);
                    node.outputs.push(id);
                    outputs.push((access.value, id));
                }
                None => node.written_values.push(access.value.0),
            }
        }
        self.outputs.insert(i, outputs);
        // Whoever reads the value that is pointed elsewhere has to do so on this side.
        if let Some(to) = self.pointed(i)
            && let Some(t) = self.tensor(to)
        {
            let slot = TensorMemory::Bytes { space: graph::Space::Slot(to.0), start: 0, end: 1 };
            let spec = t.spec.clone();
            node.outputs.push(self.graph.push_tensor(Tensor::new(spec, slot, to.0)));
        }
        self.graph.push(node);
    }

    /// The value that a move or view points at other bytes.
    fn pointed(&self, i: usize) -> Option<ValueId> {
        let instruction = self.chain.get(i)?;
        match (instruction, kernel_call(self.ir, instruction)) {
            (Some(Instruction::Move { to, .. }), _) => Some(*to),
            (_, Some((ET_VIEW, &[_, _, out, ..]))) => Some(out),
            _ => None,
        }
    }

    /// Lets a tensor, and what it looks at, stay where the file has it.
    fn keep(&mut self, tensor: TensorId) {
        for id in [tensor, self.graph.through_views(tensor)] {
            if self.graph.tensor(id).is_private()
                && let Some(value) = self.graph.tensor(id).value
            {
                let place = self.file_place(ValueId(value));
                self.graph.pin(id, place);
            }
        }
    }

    fn file_place(&self, value: ValueId) -> TensorMemory {
        match self.effects.location(value) {
            Location::Constant => TensorMemory::Constant,
            Location::At(region) => place_of(&region),
            Location::Among(_) | Location::Unknown => TensorMemory::Unknown,
        }
    }

    fn view(&mut self, i: usize, args: &[ValueId], base: ValueId, size: ValueId, out: ValueId) {
        let mut reads = Reads { left: self.flow.uses_of(i).iter() };
        let input = self.read(base, reads.next());
        let Some(t) = self.tensor(out) else { return };
        let (start, end) = self.span;
        let place =
            if self.uses.is_within(out, start, end) { TensorMemory::Private } else { self.file_place(out) };
        let result = self.graph.push_tensor(Tensor::new(t.spec.clone(), place, out.0));
        if !self.graph.tensor(result).is_private() {
            self.keep(input);
        }
        self.views.insert(out, result);
        let list = [Argument::Tensor(input), self.plain(size), Argument::Tensor(result)];
        let mut node = Node::call(ET_VIEW, list.into(), SmallVec::from_slice(&[result]), to_u32(i));
        node.returned = args.get(3).map(|_| Argument::Tensor(result));
        node.read_values = self.values_read(i);
        self.graph.push(node);
    }

    fn values_read(&self, i: usize) -> SmallVec<[u32; 2]> {
        let reads = self.effects.step(i).reads.iter().map(|a| a.value);
        reads.filter(|v| self.tensor(*v).is_none() && self.effects.is_written(*v)).map(|v| v.0).collect()
    }

    fn call(&mut self, i: usize, name: &str, args: &[ValueId], schema: &Schema) {
        let mut reads = Reads { left: self.flow.uses_of(i).iter() };
        let mut list: Vec<Argument> = Vec::with_capacity(schema.args.len());
        for (_, value) in schema.args.iter().zip(args).filter(|(a, _)| !a.is_output) {
            list.push(self.input(*value, &mut reads));
        }
        let in_place_of = self.in_place_of(args, schema, &list);
        // Inputs first: an output at the bytes of an input is another version of them.
        let mut outputs: Outputs = SmallVec::new();
        let mut inputs = list.into_iter();
        let mut all: Vec<Argument> = Vec::with_capacity(schema.args.len());
        for (arg, value) in schema.args.iter().zip(args) {
            if arg.is_output {
                all.push(self.output(i, *value, &mut outputs));
            } else {
                all.extend(inputs.next());
            }
        }
        let written: SmallVec<[TensorId; 1]> = outputs.iter().map(|(_, t)| *t).collect();
        let mut node = Node::call(name, all, written, to_u32(i));
        node.in_place_of = in_place_of;
        if let Some(returned) = args.get(schema.args.len()) {
            if schema.has_scalar_return {
                node.written_values.push(returned.0);
                node.returned = Some(Argument::Value(returned.0));
            } else {
                node.returned = Some(self.output(i, *returned, &mut outputs));
            }
        }
        node.read_values = self.values_read(i);
        self.outputs.insert(i, outputs);
        self.graph.push(node);
    }

    /// The input whose very bytes the output takes over.
    fn in_place_of(&self, args: &[ValueId], schema: &Schema, inputs: &[Argument]) -> Option<TensorId> {
        let mut outputs = schema.outputs();
        let (Some(out), None) = (outputs.next(), outputs.next()) else { return None };
        let out = *args.get(out)?;
        let place = self.file_place(out);
        let spec = &self.tensor(out)?.spec;
        inputs.iter().filter_map(Argument::tensor).find(|t| {
            let t = self.graph.tensor(*t);
            t.spec == *spec && t.value.is_some_and(|v| self.file_place(ValueId(v)) == place)
        })
    }

    fn input(&mut self, value: ValueId, reads: &mut Reads<'_>) -> Argument {
        if self.tensor(value).is_some() {
            return Argument::Tensor(self.read(value, reads.next()));
        }
        let Some(elements) = self.elements(value) else {
            reads.next();
            return self.plain(value);
        };
        if matches!(self.ir.values.get(value.index()), Some(ValueIr::IntList(_))) {
            elements.iter().for_each(|_| {
                reads.next();
            });
            return self.plain(value);
        }
        let list = elements.iter().map(|e| e.map(|v| self.read(v, reads.next()))).collect();
        Argument::Tensors(list)
    }

    fn plain(&self, value: ValueId) -> Argument {
        match literal(self.ir, self.effects, value) {
            Some(literal) => Argument::Literal(literal, Some(value.0)),
            None => Argument::Value(value.0),
        }
    }

    fn output(&mut self, i: usize, value: ValueId, outputs: &mut Outputs) -> Argument {
        match self.elements(value) {
            Some(elements) => {
                let list = elements.iter().map(|e| e.map(|v| self.written(i, v, outputs))).collect();
                Argument::Tensors(list)
            }
            None if self.tensor(value).is_some() => Argument::Tensor(self.written(i, value, outputs)),
            None => Argument::Literal(Literal::None, Some(value.0)),
        }
    }

    fn written(&mut self, i: usize, value: ValueId, outputs: &mut Outputs) -> TensorId {
        if let Some((_, known)) = outputs.iter().find(|(v, _)| *v == value) {
            return *known;
        }
        let place = if self.is_private(i, value) { TensorMemory::Private } else { self.file_place(value) };
        // Lists of outputs hold tensors only; load has checked that.
        let spec = self.tensor(value).map(|t| t.spec.clone()).unwrap_or_else(empty);
        let id = self.graph.push_tensor(Tensor::new(spec, place, value.0));
        outputs.push((value, id));
        id
    }

    /// Is what step `i` writes to `value` seen by steps of this run alone?
    fn is_private(&self, i: usize, value: ValueId) -> bool {
        let (start, end) = self.span;
        let is_planned = self.tensor(value).is_some_and(TensorIr::is_temporary);
        let is_pinned = self.flow.is_pinned.get(i).copied().unwrap_or(true);
        // A shape that the call sets outlasts its bytes: whoever names the value sees it, the caller and the
        // next call too.
        let is_shape_seen = self.tensor(value).is_some_and(|t| t.spec.is_dynamic())
            && (!self.uses.is_within(value, start, end) || self.uses.is_read_first(value));
        let mut readers = self.flow.readers.get(i).into_iter().flatten();
        is_planned
            && !is_pinned
            && !is_shape_seen
            && !self.ir.inputs.contains(&value)
            && matches!(self.effects.location(value), Location::At(_))
            && readers.all(|u| {
                self.flow.uses.get(*u as usize).is_some_and(|u| (start..end).contains(&(u.step as usize)))
            })
    }

    /// The tensor that a read of `value` sees.
    fn read(&mut self, value: ValueId, reach: Reach) -> TensorId {
        match self.effects.location(value) {
            Location::Constant => match self.views.get(&value) {
                Some(view) => *view,
                None => self.constant(value),
            },
            Location::Among(_) | Location::Unknown => self.border(value, Reach::Mixed),
            Location::At(region) => match reach {
                Reach::Step(d) if self.outputs.contains_key(&(d as usize)) => {
                    self.read_of(value, d as usize, &region)
                }
                _ => self.read_at_border(value, reach),
            },
        }
    }

    /// A read of what step `d` of this run wrote.
    fn read_of(&mut self, value: ValueId, d: usize, region: &ByteRegion) -> TensorId {
        let written = self.outputs.get(&d).and_then(|outputs| {
            outputs.iter().find(|(w, _)| self.effects.location(*w) == Location::At(*region)).copied()
        });
        let Some((by, tensor)) = written else { return self.border(value, Reach::Mixed) };
        if by == value {
            return tensor;
        }
        if let Some(view) = self.views.get(&value).copied()
            && self.graph.through_views(view) == tensor
        {
            return view;
        }
        if let Some(view) = self.implicit_view(tensor, value) {
            return view;
        }
        self.keep(tensor);
        self.border(value, Reach::Mixed)
    }

    /// `value` as another view of the bytes of `tensor`; `None` where shapes can change, since nothing
    /// then says what the value's shape is.
    fn implicit_view(&mut self, tensor: TensorId, value: ValueId) -> Option<TensorId> {
        if let Some(known) = self.implicit_views.get(&(tensor, value)) {
            return Some(*known);
        }
        let spec = &self.tensor(value)?.spec;
        let base = &self.graph.tensor(tensor).spec;
        if spec.is_dynamic() || base.is_dynamic() || spec.dtype != base.dtype {
            return None;
        }
        let is_named_elsewhere = self.tensor(value).is_some_and(|t| t.name.is_some());
        if is_named_elsewhere || spec.nbytes().ok() != base.nbytes().ok() {
            return None;
        }
        let id = self.graph.push_tensor(Tensor::new(spec.clone(), TensorMemory::Private, value.0));
        let args = vec![Argument::Tensor(tensor), Argument::none(), Argument::Tensor(id)];
        let mut node = Node::call(ET_VIEW, args, SmallVec::from_slice(&[id]), 0);
        (node.instruction, node.covers) = (None, SmallVec::new());
        self.graph.push(node);
        self.implicit_views.insert((tensor, value), id);
        Some(id)
    }

    fn read_at_border(&mut self, value: ValueId, reach: Reach) -> TensorId {
        if let Some(view) = self.views.get(&value).copied() {
            let root = self.graph.through_views(view);
            if self.reach_of.get(&root) == Some(&reach) {
                return view;
            }
            self.keep(view);
        }
        self.border(value, reach)
    }

    /// What the run finds of `value`. Two reads that are not sure what they see may see different bytes.
    fn border(&mut self, value: ValueId, reach: Reach) -> TensorId {
        if let Some(known) = self.borders.get(&(value, reach)) {
            return *known;
        }
        let place = self.file_place(value);
        let spec = self.tensor(value).map(|t| t.spec.clone()).unwrap_or_else(empty);
        let id = self.graph.push_tensor(Tensor::new(spec, place, value.0));
        if reach != Reach::Mixed {
            self.borders.insert((value, reach), id);
            self.reach_of.insert(id, reach);
        }
        id
    }

    fn constant(&mut self, value: ValueId) -> TensorId {
        if let Some(known) = self.constants.get(&value) {
            return *known;
        }
        let id = self.border(value, Reach::Mixed);
        self.constants.insert(value, id);
        id
    }
}

fn empty() -> pteron_core::TensorSpec {
    pteron_core::TensorSpec {
        dtype: pteron_core::DType::UInt8,
        shape: pteron_core::Dims::EMPTY,
        dim_order: pteron_core::DimOrder::contiguous(0),
        dynamism: pteron_core::Dynamism::Static,
    }
}

fn to_u32(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}
