//! Graphs for the tests of rules.

use super::{Argument, Draft, Graph, Host, Literal, Node, NodeId, Space, Tensor, TensorId, TensorMemory};
use pteron_core::{AlignedBuffer, ConstantKey, ConstantView, DType, Dims, Element, Result, TensorSpec};
use std::collections::HashMap;

/// A host that has a kernel for everything and no contents.
pub(crate) struct AnyKernel;

impl Host for AnyKernel {
    fn can_prepare(&mut self, _: &Graph, _: &Draft) -> Result<bool> {
        Ok(true)
    }
    fn constant(&self, _: &Graph, _: TensorId) -> Option<ConstantView<'_>> {
        None
    }
    fn add_constant(
        &mut self,
        graph: &mut Graph,
        _: &str,
        _: &[TensorId],
        spec: TensorSpec,
        _: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>> {
        Ok(Some(graph.push_tensor(Tensor {
            spec,
            place: TensorMemory::Constant,
            value: None,
            definition: None,
        })))
    }
    fn evaluate(&mut self, graph: &mut Graph, node: NodeId) -> Result<Option<TensorId>> {
        let Some(output) = graph.node(node).output() else { return Ok(None) };
        let spec = graph.tensor(output).spec.clone();
        Ok(Some(graph.push_tensor(Tensor {
            spec,
            place: TensorMemory::Constant,
            value: None,
            definition: None,
        })))
    }
}

/// A host with a kernel for everything, of whose constants each holds these numbers.
pub(crate) struct Holds<T>(pub Vec<T>);

impl<T: Element> Host for Holds<T> {
    fn can_prepare(&mut self, _: &Graph, _: &Draft) -> Result<bool> {
        Ok(true)
    }
    fn constant(&self, _: &Graph, _: TensorId) -> Option<ConstantView<'_>> {
        let data: &[u8] = bytemuck::cast_slice(&self.0);
        Some(ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
            data,
            dtype: T::DTYPE,
            offset: 0,
            shape: Dims::new(&[self.0.len()]).unwrap(),
            strides: Dims::new(&[1]).unwrap(),
        })
    }
    fn add_constant(
        &mut self,
        graph: &mut Graph,
        recipe: &str,
        sources: &[TensorId],
        spec: TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>> {
        AnyKernel.add_constant(graph, recipe, sources, spec, make)
    }
    fn evaluate(&mut self, graph: &mut Graph, node: NodeId) -> Result<Option<TensorId>> {
        AnyKernel.evaluate(graph, node)
    }
}

/// Writes a run one call at a time: f32, row-major, private unless pinned.
#[derive(Default)]
pub(crate) struct Builder {
    pub graph: Graph,
    names: HashMap<&'static str, TensorId>,
    calls: u32,
}

impl Builder {
    pub fn new() -> Self {
        Self::default()
    }
    fn tensor(&mut self, shape: &[usize], place: TensorMemory) -> TensorId {
        let spec = TensorSpec::contiguous(DType::Float32, shape).unwrap();
        let value = self.graph.tensor_count() as u32;
        self.graph.push_tensor(Tensor::new(spec, place, value))
    }
    /// Says that `tensor` has elements of `dtype`, before anything asks.
    pub fn cast(&mut self, tensor: TensorId, dtype: DType) -> TensorId {
        self.graph.tensors[tensor.index()].spec.dtype = dtype;
        tensor
    }
    /// Says that every tensor but those of `except` has elements of `dtype`.
    pub fn cast_all(&mut self, dtype: DType, except: &[TensorId]) {
        let kept = except.iter().map(|t| (*t, self.graph.tensor(*t).spec.dtype)).collect::<Vec<_>>();
        self.graph.tensors.iter_mut().for_each(|t| t.spec.dtype = dtype);
        for (tensor, dtype) in kept {
            self.cast(tensor, dtype);
        }
    }
    /// `q` dequantised by `scale` and a zero point of 3.
    pub fn dequantise(&mut self, q: TensorId, scale: f64, shape: &[usize]) -> TensorId {
        let mut args = vec![Argument::Tensor(q)];
        args.extend(scheme(scale));
        args.push(Argument::none());
        self.call_with("quantized_decomposed::dequantize_per_tensor.out", args, shape)
    }
    /// `x` quantised by `scale` and a zero point of 3.
    pub fn quantise(&mut self, x: TensorId, scale: f64, shape: &[usize]) -> TensorId {
        let mut args = vec![Argument::Tensor(x)];
        args.extend(scheme(scale));
        let q = self.call_with("quantized_decomposed::quantize_per_tensor.out", args, shape);
        self.cast(q, DType::Int8)
    }
    /// Two private tensors for the results of a call.
    pub fn results(&mut self, shape: &[usize]) -> [TensorId; 2] {
        [self.tensor(shape, TensorMemory::Private), self.tensor(shape, TensorMemory::Private)]
    }
    /// What the run finds, at the start of memory 0.
    pub fn border(&mut self, shape: &[usize]) -> TensorId {
        let end = shape.iter().product::<usize>() * 4;
        self.tensor(shape, TensorMemory::Bytes { space: Space::Arena(0), start: 0, end })
    }
    pub fn constant(&mut self, shape: &[usize]) -> TensorId {
        self.tensor(shape, TensorMemory::Constant)
    }
    /// A call of tensors alone; returns its result.
    pub fn call(&mut self, operator: &str, inputs: &[TensorId], shape: &[usize]) -> TensorId {
        let args: Vec<Argument> = inputs.iter().map(|t| Argument::Tensor(*t)).collect();
        self.call_with(operator, args, shape)
    }
    /// A call with any arguments; its result is appended to them.
    pub fn call_with(&mut self, operator: &str, mut args: Vec<Argument>, shape: &[usize]) -> TensorId {
        let out = self.tensor(shape, TensorMemory::Private);
        args.push(Argument::Tensor(out));
        let node = Node::call(operator, args, smallvec::smallvec![out], self.calls);
        self.calls += 1;
        self.graph.push(node);
        out
    }
    pub fn name(&mut self, name: &'static str, tensor: TensorId) -> &mut Self {
        self.names.insert(name, tensor);
        self
    }
    pub fn get(&self, name: &str) -> TensorId {
        self.names[name]
    }
    /// Lets every tensor change its extents.
    pub fn make_dynamic(&mut self) {
        self.graph.tensors.iter_mut().for_each(|t| t.spec.dynamism = pteron_core::Dynamism::Bounded);
    }
    /// Puts the tensor `name` at byte `start` of memory 0.
    pub fn pin(&mut self, name: &str, start: usize) {
        let tensor = self.get(name);
        let end = start + self.graph.tensor(tensor).spec.nbytes().unwrap();
        self.graph.pin(tensor, TensorMemory::Bytes { space: Space::Arena(0), start, end });
    }
}

/// Scale, zero point, range and dtype of int8.
fn scheme(scale: f64) -> [Argument; 5] {
    let code = i64::from(DType::Int8.code());
    let scale = Argument::Literal(Literal::Double(scale), None);
    [scale, Argument::int(3), Argument::int(-128), Argument::int(127), Argument::int(code)]
}

#[test]
fn a_moved_node_reads_what_it_would_have_read() {
    // y = mm(x, w); x is overwritten; z = relu(y).
    let mut b = Builder::new();
    let x = b.border(&[4, 8]);
    let w = b.constant(&[8, 16]);
    let y = b.call("aten::mm.out", &[x, w], &[4, 16]);
    let over = b.call("aten::neg.out", &[x], &[4, 8]);
    let z = b.call("aten::relu.out", &[y], &[4, 16]);
    b.name("over", over);
    let nodes: Vec<NodeId> = b.graph.ids().collect();
    let mut draft = b.graph.node(nodes[0]).draft();
    draft.rename(y, z);
    let mut spoiled = Builder { graph: b.graph.clone(), names: b.names.clone(), calls: b.calls };
    spoiled.pin("over", 0);
    assert!(spoiled.graph.replace(&[nodes[0], nodes[2]], draft.clone()).is_none());
    assert!(b.graph.replace(&[nodes[0], nodes[2]], draft).is_some());
    assert_eq!(b.graph.live().count(), 2);
    assert_eq!(b.graph.readers(x).len(), 2);
    assert!(b.graph.readers(y).is_empty());
}

#[test]
fn nodes_are_inserted_redirected_and_removed() {
    let mut b = Builder::new();
    let x = b.border(&[1, 2, 3, 4]);
    let y = b.call("aten::relu.out", &[x], &[1, 2, 3, 4]);
    let z = b.call("aten::neg.out", &[y], &[1, 2, 3, 4]);
    let reader = b.graph.producer(z).unwrap();
    let copy = b.graph.new_tensor(b.graph.tensor(y).spec.clone());
    let draft = Draft {
        op: super::Op::Opaque,
        operator: "aten::clone.out".into(),
        args: vec![Argument::Tensor(y), Argument::Literal(Literal::None, None), Argument::Tensor(copy)],
        outputs: smallvec::smallvec![copy],
        epilogue: crate::epilogue::Epilogue::NONE,
    };
    let inserted = b.graph.insert_before(reader, draft);
    assert!(b.graph.redirect(&[reader], y, copy));
    assert!(b.graph.is_before(inserted, reader));
    assert_eq!(b.graph.node(inserted).covers, b.graph.node(reader).covers);
    assert_eq!(b.graph.only_reader(copy), Some(reader));
    assert_eq!(b.graph.only_reader(y), Some(inserted));
    assert!(!b.graph.remove(inserted));
    assert!(b.graph.remove(reader));
    assert!(b.graph.remove(inserted));
    assert_eq!(b.graph.live().count(), 1);
}

#[test]
fn what_a_view_at_the_border_shows_stays_where_it_is() {
    for start in [None, Some(0)] {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let size = |shape: &[i64]| Argument::ints(shape);
        let inner = b.call_with(super::ET_VIEW, vec![Argument::Tensor(x), size(&[8, 4])], &[8, 4]);
        let outer = b.call_with(super::ET_VIEW, vec![Argument::Tensor(inner), size(&[32])], &[32]);
        b.name("outer", outer);
        start.into_iter().for_each(|start| b.pin("outer", start));
        let (first, last) = (b.graph.producer(inner).unwrap(), b.graph.producer(outer).unwrap());
        let draft = Draft {
            op: super::Op::Opaque,
            operator: "aten::view_copy.out".into(),
            args: vec![Argument::Tensor(x), size(&[8, 4]), Argument::Tensor(inner)],
            outputs: smallvec::smallvec![inner],
            epilogue: crate::epilogue::Epilogue::NONE,
        };
        assert_eq!(b.graph.can_replace(&[first], &draft), start.is_none());
        let copy = b.graph.new_tensor(b.graph.tensor(inner).spec.clone());
        assert_eq!(b.graph.redirect(&[last], inner, copy), start.is_none());
    }
}
