//! Well-formed programs by construction: a chain of operators over `[rows, width]` tensors with a
//! memory plan that reuses bytes wherever lifetimes allow it.

use pteron_core::DType;
use pteron_format::write::{
    ChainDraft, InstructionDraft, MethodDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
    WriteOptions,
};
use std::borrow::Cow;

/// Upper bound of the dynamic first dimension.
pub const MAX_ROWS: usize = 7;
const WIDTHS: [usize; 4] = [1, 5, 16, 33];

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough to pick shapes.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A tensor of the chain before it has an address.
struct Node {
    width: usize,
    /// Value index in the draft.
    value: i32,
    defined_at: usize,
    last_use: usize,
    /// For views: the node whose bytes they are.
    base: Option<usize>,
    /// A view that no instruction makes: the plan puts it at the bytes of its base.
    is_unsaid: bool,
    /// May share the bytes of this dying input (elementwise in place).
    in_place_of: Option<usize>,
}

/// A program and what is needed to call it.
pub struct RandomProgram {
    pub bytes: Vec<u8>,
    pub width: usize,
    pub is_dynamic: bool,
    seed: u64,
}

impl RandomProgram {
    /// The program of a seed, cut after `most` operators: shorter ones are beginnings of longer ones.
    pub fn new(seed: u64, most: usize) -> Self {
        let rng = &mut Rng::new(seed);
        let seed = rng.next();
        let is_dynamic = rng.chance(2);
        let mut g = Generator::new(rng, is_dynamic);
        let width = g.nodes[0].width;
        let count = 3 + g.rng.below(10);
        for _ in 0..count.min(most) {
            if g.rng.chance(8) {
                g.repeated();
            } else {
                g.operator();
            }
        }
        let bytes = g.finish();
        RandomProgram { bytes, width, is_dynamic, seed }
    }

    /// An input of `rows` rows, NaN and infinities now and then.
    pub fn input(&self, rows: usize, call: u64) -> Vec<f32> {
        let mut rng = Rng::new(self.seed ^ call);
        let special = rng.chance(3);
        (0..rows * self.width)
            .map(|_| match rng.below(24) {
                0 if special => f32::NAN,
                1 if special => f32::INFINITY,
                2 if special => -0.0,
                _ => rng.float() * 2.0,
            })
            .collect()
    }
}

struct Generator<'a> {
    rng: &'a mut Rng,
    is_dynamic: bool,
    method: MethodDraft,
    constants: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    outputs: Vec<usize>,
}

impl<'a> Generator<'a> {
    fn new(rng: &'a mut Rng, is_dynamic: bool) -> Self {
        let method = MethodDraft { name: "forward".into(), ..MethodDraft::default() };
        let mut g =
            Generator { rng, is_dynamic, method, constants: vec![vec![]], nodes: vec![], outputs: vec![] };
        let width = WIDTHS[g.rng.below(WIDTHS.len())];
        g.node(width, 2);
        let input = g.nodes[0].value;
        g.method.inputs.push(input);
        g
    }

    fn value(&mut self, value: ValueDraft) -> i32 {
        self.method.values.push(value);
        self.method.values.len() as i32 - 1
    }

    fn ints(&mut self, items: &[i64]) -> i32 {
        let ids = items.iter().map(|i| i64::from(self.value(ValueDraft::Int(*i)))).collect();
        self.value(ValueDraft::IntList(ids))
    }

    /// A constant f32 tensor with random contents.
    fn constant(&mut self, shape: &[usize]) -> i32 {
        let n: usize = shape.iter().product();
        let scale = 1.0 / (shape[shape.len() - 1] as f32).sqrt();
        let data: Vec<u8> = (0..n).flat_map(|_| (self.rng.float() * scale).to_le_bytes()).collect();
        self.constants.push(data);
        let index = self.constants.len() as u32 - 1;
        self.value(TensorDraft::contiguous(DType::Float32, shape).unwrap().constant(index).into())
    }

    /// A new activation, address to follow: `[rows, width]`, `[rows, 1, width]` or `[rows, 1, 1, width]`.
    fn node(&mut self, width: usize, rank: usize) -> usize {
        let mut shape = vec![1; rank];
        (shape[0], shape[rank - 1]) = (MAX_ROWS, width);
        self.shaped(&shape, None)
    }

    /// A new activation of any shape whose last extent is its width; `order`: its memory order.
    fn shaped(&mut self, shape: &[usize], order: Option<[u8; 4]>) -> usize {
        let width = shape[shape.len() - 1];
        let mut tensor = TensorDraft::contiguous(DType::Float32, shape).unwrap();
        if let Some(order) = order {
            tensor.dim_order = order.to_vec();
        }
        if self.is_dynamic {
            tensor = tensor.bounded();
        }
        let value = self.value(tensor.into());
        let at = self.now();
        self.nodes.push(Node {
            width,
            value,
            defined_at: at,
            last_use: at,
            base: None,
            is_unsaid: false,
            in_place_of: None,
        });
        self.nodes.len() - 1
    }

    fn now(&self) -> usize {
        self.method.chains.first().map_or(0, |c| c.instructions.len())
    }

    fn call(&mut self, name: &str, overload: &str, mut args: Vec<i32>) {
        // Out-variants carry their return once more; `et_view` has its result as return only.
        if overload != "default" {
            args.push(args[args.len() - 1]);
        }
        self.kernel(name, overload, args);
    }

    fn kernel(&mut self, name: &str, overload: &str, args: Vec<i32>) {
        let operator = OperatorDraft { name: name.into(), overload: overload.into() };
        let index = self.method.operators.iter().position(|o| *o == operator).unwrap_or_else(|| {
            self.method.operators.push(operator);
            self.method.operators.len() - 1
        });
        self.instruction(InstructionDraft::Kernel { operator: index as i32, args });
    }

    fn instruction(&mut self, instruction: InstructionDraft) {
        if self.method.chains.is_empty() {
            self.method.chains.push(ChainDraft::default());
        }
        self.method.chains[0].instructions.push(instruction);
    }

    /// A few operators, run one to three times over a value that each iteration makes anew.
    fn repeated(&mut self) {
        let x = self.pick();
        let carried = self.relu_of(x);
        let (index, one) = (self.value(ValueDraft::Int(0)), self.value(ValueDraft::Int(1)));
        let count = 1 + self.rng.below(3) as i64;
        let (count, is_done) = (self.value(ValueDraft::Int(count)), self.value(ValueDraft::Bool(false)));
        let (top, outer) = (self.now(), self.nodes.len());
        for _ in 0..1 + self.rng.below(4) {
            self.operator();
        }
        // What was made last, where it fits; else the value itself once more.
        let width = self.nodes[carried].width;
        let last = (outer..self.nodes.len())
            .rev()
            .find(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .unwrap_or(carried);
        self.touch(last);
        self.touch(carried);
        let name = if last == carried { "aten::neg" } else { "aten::relu" };
        let (from, to) = (self.nodes[last].value, self.nodes[carried].value);
        self.call(name, "out", vec![from, to]);
        self.kernel("executorch_prim::add", "Scalar", vec![index, one, index]);
        self.kernel("executorch_prim::ge", "Scalar", vec![index, count, is_done]);
        let end = self.now();
        self.instruction(InstructionDraft::JumpFalse { condition: is_done, destination: top as i32 });
        // What an iteration reads from before the loop, the next one reads again.
        for node in self.nodes.iter_mut().take(outer).filter(|n| n.last_use >= top) {
            node.last_use = node.last_use.max(end);
        }
    }

    fn relu_of(&mut self, x: usize) -> usize {
        self.unary("aten::relu", x);
        self.nodes.len() - 1
    }

    fn touch(&mut self, node: usize) {
        let now = self.now();
        self.nodes[node].last_use = now;
        if let Some(base) = self.nodes[node].base {
            self.touch(base);
        }
    }

    /// A recent activation of rank 2 (views included).
    fn pick(&mut self) -> usize {
        let recent: Vec<usize> =
            (0..self.nodes.len()).rev().filter(|i| self.is_activation(*i)).take(3).collect();
        recent[self.rng.below(recent.len())]
    }

    fn operator(&mut self) {
        let x = self.pick();
        match self.rng.below(14) {
            9 => self.gated(x),
            10 => self.viewed_product(x),
            11 | 12 => self.images(x),
            13 => self.scores(x),
            0..=2 => self.linear(x),
            3 => self.unary("aten::relu", x),
            4 => {
                let name = ["aten::neg", "aten::sigmoid", "aten::relu"][self.rng.below(3)];
                self.unary(name, x);
            }
            5 => self.hardtanh(x),
            6 => self.add(x),
            7 => self.convolution(x),
            _ => self.views(x),
        }
        if self.rng.chance(6) {
            self.outputs.push(self.nodes.len() - 1);
        }
    }

    /// `addmm` or `mm` with a weight that reaches it through a permute, as exporters write it.
    fn linear(&mut self, x: usize) {
        let (k, n) = (self.nodes[x].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        let weight = self.constant(&[n, k]);
        let permuted = self.planned_permute(weight, k, n);
        let one = self.value(ValueDraft::Int(1));
        self.touch(x);
        let with_bias = self.rng.chance(2);
        let bias = self.constant(&[n]);
        let out = self.node(n, 2);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.nodes[permuted].last_use = self.now();
        let weight = self.nodes[permuted].value;
        if with_bias {
            self.call("aten::addmm", "out", vec![bias, xv, weight, one, one, ov]);
        } else {
            self.call("aten::mm", "out", vec![xv, weight, ov]);
        }
        if self.rng.chance(2) {
            self.unary("aten::relu", out);
        }
    }

    /// The permuted weight is an activation like any other as far as the memory plan goes.
    fn planned_permute(&mut self, weight: i32, k: usize, n: usize) -> usize {
        let order = self.ints(&[1, 0]);
        let value = self.value(TensorDraft::contiguous(DType::Float32, &[k, n]).unwrap().into());
        let at = self.now();
        self.nodes.push(Node {
            width: n,
            value,
            defined_at: at,
            last_use: at,
            base: None,
            is_unsaid: false,
            in_place_of: None,
        });
        let id = self.nodes.len() - 1;
        self.call("aten::permute_copy", "out", vec![weight, order, value]);
        id
    }

    fn unary(&mut self, name: &str, x: usize) {
        self.elementwise(x, |g, xv, ov| g.call(name, "out", vec![xv, ov]));
    }

    fn hardtanh(&mut self, x: usize) {
        let min = self.value(ValueDraft::Double(-0.5));
        let max = self.value(ValueDraft::Int(1));
        self.elementwise(x, |g, xv, ov| g.call("aten::hardtanh", "out", vec![xv, min, max, ov]));
    }

    fn elementwise(&mut self, x: usize, call: impl FnOnce(&mut Self, i32, i32)) {
        self.touch(x);
        let out = self.node(self.nodes[x].width, 2);
        self.nodes[out].in_place_of = Some(x);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        call(self, xv, ov);
    }

    fn add(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let same: Vec<usize> = (0..self.nodes.len())
            .filter(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .collect();
        let y = same[self.rng.below(same.len())];
        self.touch(x);
        self.touch(y);
        let alpha = self.value(ValueDraft::Int(1));
        let out = self.node(width, 2);
        let (xv, yv, ov) = (self.nodes[x].value, self.nodes[y].value, self.nodes[out].value);
        self.call("aten::add", "out", vec![xv, yv, alpha, ov]);
    }

    /// `y * sigmoid(y)` of a product, at times with the product read by somebody else too.
    fn gated(&mut self, x: usize) {
        let y = self.plain_product(x);
        self.unary("aten::sigmoid", y);
        let s = self.nodes.len() - 1;
        self.touch(y);
        self.touch(s);
        let out = self.node(self.nodes[y].width, 2);
        let (yv, sv, ov) = (self.nodes[y].value, self.nodes[s].value, self.nodes[out].value);
        self.call("aten::mul", "out", vec![yv, sv, ov]);
        if self.rng.chance(4) {
            self.outputs.push([y, s][self.rng.below(2)]);
        }
    }

    /// A product, seen as `[rows, 1, width]`, GELU or a sum on that, and back.
    fn viewed_product(&mut self, x: usize) {
        let y = self.plain_product(x);
        let width = self.nodes[y].width;
        let there = self.view(y, 3, &[-1, 1, width as i64]);
        let out = if self.rng.chance(2) {
            self.touch(there);
            let kind = self.value(ValueDraft::String("none".into()));
            let out = self.node(width, 3);
            let (tv, ov) = (self.nodes[there].value, self.nodes[out].value);
            self.call("aten::gelu", "out", vec![tv, kind, ov]);
            out
        } else {
            self.viewed_sum(there, width)
        };
        if !self.is_dynamic && self.rng.chance(2) {
            self.unsaid_view(out);
        } else {
            self.view(out, 2, &[-1, width as i64]);
        }
    }

    fn viewed_sum(&mut self, there: usize, width: usize) -> usize {
        let same: Vec<usize> = (0..self.nodes.len())
            .filter(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .collect();
        let other = same[self.rng.below(same.len())];
        let other = self.view(other, 3, &[-1, 1, width as i64]);
        self.touch(there);
        self.touch(other);
        let alpha = self.value(ValueDraft::Int(1));
        let out = self.node(width, 3);
        let mut args = [self.nodes[there].value, self.nodes[other].value];
        if self.rng.chance(2) {
            args.reverse();
        }
        let ov = self.nodes[out].value;
        self.call("aten::add", "out", vec![args[0], args[1], alpha, ov]);
        out
    }

    /// `[rows, width]` at the bytes of a tensor of another rank, which no instruction says.
    fn unsaid_view(&mut self, x: usize) {
        let out = self.node(self.nodes[x].width, 2);
        (self.nodes[out].base, self.nodes[out].is_unsaid) = (Some(x), true);
        self.touch(out);
    }

    /// Softmax of one product, times another weight: what attention is made of.
    fn scores(&mut self, x: usize) {
        let y = self.plain_product(x);
        let (dim, half) = (self.value(ValueDraft::Int(-1)), self.value(ValueDraft::Bool(false)));
        self.touch(y);
        let out = self.node(self.nodes[y].width, 2);
        let (yv, ov) = (self.nodes[y].value, self.nodes[out].value);
        self.call("aten::_softmax", "out", vec![yv, dim, half, ov]);
        self.plain_product(out);
    }

    /// `mm` with a constant weight.
    fn plain_product(&mut self, x: usize) -> usize {
        let (k, n) = (self.nodes[x].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        let weight = self.constant(&[k, n]);
        self.touch(x);
        let out = self.node(n, 2);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.call("aten::mm", "out", vec![xv, weight, ov]);
        out
    }

    /// Rows as images: convolutions to a few channels and back with batch norm, sums and activations between
    /// them, in either memory order.
    fn images(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let channels = [2, 3, 8][self.rng.below(3)];
        let order = self.rng.chance(2).then_some([0, 2, 3, 1]);
        let image = self.view(x, 4, &[-1, 1, 1, width as i64]);
        let mut y = self.branch(image, channels, order);
        if self.rng.chance(2) {
            let other = self.branch(image, channels, order);
            self.touch(y);
            self.touch(other);
            let alpha = self.value(ValueDraft::Int(1));
            let sum = self.shaped(&[MAX_ROWS, channels, 1, width], order);
            let args = [y, other, sum].map(|n| self.nodes[n].value);
            self.call("aten::add", "out", vec![args[0], args[1], alpha, args[2]]);
            y = sum;
        }
        for name in ["aten::relu", "aten::sigmoid"] {
            if self.rng.chance(2) {
                self.touch(y);
                let out = self.shaped(&[MAX_ROWS, channels, 1, width], order);
                let args = [y, out].map(|n| self.nodes[n].value);
                self.call(name, "out", args.to_vec());
                y = out;
            }
        }
        let flat = self.filtered(y, [channels, 1], None);
        self.view(flat, 2, &[-1, width as i64]);
    }

    /// A convolution, at times with batch norm behind it.
    fn branch(&mut self, image: usize, channels: usize, order: Option<[u8; 4]>) -> usize {
        let y = self.filtered(image, [1, channels], order);
        if self.rng.chance(2) { self.normalised(y, channels, order) } else { y }
    }

    fn filtered(&mut self, x: usize, [from, to]: [usize; 2], order: Option<[u8; 4]>) -> usize {
        let width = self.nodes[x].width;
        let weight = self.constant(&[to, from, 1, 3]);
        let bias = if self.rng.chance(2) { self.constant(&[to]) } else { self.value(ValueDraft::Null) };
        let (stride, padding, dilation) = (self.ints(&[1, 1]), self.ints(&[0, 1]), self.ints(&[1, 1]));
        let output_padding = self.ints(&[0, 0]);
        let (transposed, groups) = (self.value(ValueDraft::Bool(false)), self.value(ValueDraft::Int(1)));
        self.touch(x);
        let out = self.shaped(&[MAX_ROWS, to, 1, width], order);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        let args = vec![xv, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ov];
        self.call("aten::convolution", "out", args);
        out
    }

    fn normalised(&mut self, x: usize, channels: usize, order: Option<[u8; 4]>) -> usize {
        let (scale, shift) = (self.constant(&[channels]), self.constant(&[channels]));
        let mean = self.constant(&[channels]);
        let variance: Vec<u8> =
            (0..channels).flat_map(|_| (self.rng.float().abs() + 0.1).to_le_bytes()).collect();
        self.constants.push(variance);
        let index = self.constants.len() as u32 - 1;
        let variance =
            self.value(TensorDraft::contiguous(DType::Float32, &[channels]).unwrap().constant(index).into());
        let (momentum, epsilon) = (self.value(ValueDraft::Double(0.1)), self.value(ValueDraft::Double(1e-5)));
        self.touch(x);
        let out = self.shaped(&[MAX_ROWS, channels, 1, self.nodes[x].width], order);
        let unused = [0, 1].map(|_| {
            let value = self.value(TensorDraft::contiguous(DType::Float32, &[0]).unwrap().into());
            let at = self.now();
            self.nodes.push(Node {
                width: 0,
                value,
                defined_at: at,
                last_use: at,
                base: None,
                is_unsaid: false,
                in_place_of: None,
            });
            value
        });
        let results = [self.nodes[out].value, unused[0], unused[1]];
        let list = self.value(ValueDraft::TensorList(results.to_vec()));
        let mut args = vec![self.nodes[x].value, scale, shift, mean, variance, momentum, epsilon];
        args.extend(results);
        args.push(list);
        self.kernel("aten::_native_batch_norm_legit_no_training", "out", args);
        out
    }

    /// To `[rows, 1, width]`, something on it, and back.
    fn views(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let there = self.view(x, 3, &[-1, 1, width as i64]);
        self.touch(there);
        let middle = self.node(width, 3);
        let (tv, mv) = (self.nodes[there].value, self.nodes[middle].value);
        self.call("aten::relu", "out", vec![tv, mv]);
        self.view(middle, 2, &[-1, width as i64]);
    }

    /// A row as an image of one channel, a kernel of three columns, and back.
    fn convolution(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let weight = self.constant(&[1, 1, 1, 3]);
        let bias = if self.rng.chance(2) { self.constant(&[1]) } else { self.value(ValueDraft::Null) };
        let (stride, padding, dilation) = (self.ints(&[1, 1]), self.ints(&[0, 1]), self.ints(&[1, 1]));
        let output_padding = self.ints(&[0, 0]);
        let (transposed, groups) = (self.value(ValueDraft::Bool(false)), self.value(ValueDraft::Int(1)));
        let image = self.view(x, 4, &[-1, 1, 1, width as i64]);
        self.touch(image);
        let out = self.node(width, 4);
        let (iv, ov) = (self.nodes[image].value, self.nodes[out].value);
        let args = vec![iv, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ov];
        self.call("aten::convolution", "out", args);
        self.touch(out);
        let clamped = self.node(width, 4);
        let cv = self.nodes[clamped].value;
        self.call("aten::relu", "out", vec![ov, cv]);
        self.view(clamped, 2, &[-1, width as i64]);
    }

    fn view(&mut self, x: usize, rank: usize, size: &[i64]) -> usize {
        let size = self.ints(size);
        self.touch(x);
        let out = self.node(self.nodes[x].width, rank);
        self.nodes[out].base = Some(x);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.call("executorch_prim::et_view", "default", vec![xv, size, ov]);
        out
    }

    fn is_activation(&self, node: usize) -> bool {
        match &self.method.values[self.nodes[node].value as usize] {
            ValueDraft::Tensor(t) => t.sizes.len() == 2 && t.sizes[0] == MAX_ROWS as i32,
            _ => false,
        }
    }

    fn finish(mut self) -> Vec<u8> {
        // The program ends in a relu copy so that the output is no view, as exporters have it.
        let last = (0..self.nodes.len()).rev().find(|i| self.is_activation(*i)).unwrap();
        self.unary("aten::relu", last);
        self.outputs.push(self.nodes.len() - 1);
        let end = self.now();
        let mut outputs: Vec<usize> = std::mem::take(&mut self.outputs);
        outputs.retain(|o| self.nodes[*o].base.is_none() && self.is_activation(*o));
        outputs.dedup();
        for o in &outputs {
            self.nodes[*o].last_use = end;
        }
        self.method.outputs = outputs.iter().map(|o| self.nodes[*o].value).collect();
        let size = self.place();
        self.method.non_const_buffer_sizes = vec![0, size as i64];
        let draft = ProgramDraft {
            constants: self.constants.into_iter().map(Cow::Owned).collect(),
            mutable_data: vec![Cow::Owned(vec![])],
            methods: vec![self.method],
            ..ProgramDraft::default()
        };
        draft.to_bytes(&WriteOptions::default()).unwrap()
    }

    /// Addresses: the lowest offset that no live tensor holds, or the bytes of a dying input.
    fn place(&mut self) -> usize {
        let mut placed: Vec<(usize, usize, usize, usize)> = Vec::new(); // start, end, from, to
        let mut address = vec![0usize; self.nodes.len()];
        let mut top = 0;
        for i in 0..self.nodes.len() {
            if let Some(base) = self.nodes[i].base {
                if self.nodes[i].is_unsaid
                    && let ValueDraft::Tensor(t) = &mut self.method.values[self.nodes[i].value as usize]
                {
                    **t = t.clone().planned(1, address[base] as u64);
                }
                continue;
            }
            let bytes = self.bytes_of(i).next_multiple_of(16);
            let (from, to) = (self.nodes[i].defined_at, self.nodes[i].last_use);
            let dying = self.nodes[i].in_place_of.filter(|x| {
                let root =
                    self.nodes[*x].base.is_none() && !self.method.outputs.contains(&self.nodes[*x].value);
                root && self.nodes[*x].last_use == from && self.bytes_of(*x) == self.bytes_of(i)
            });
            let start = match dying {
                Some(x) if self.rng.chance(2) => address[x],
                _ => {
                    let is_free = |start: usize| {
                        placed
                            .iter()
                            .all(|(s, e, f, t)| start + bytes <= *s || *e <= start || to < *f || *t < from)
                    };
                    let mut candidates: Vec<usize> = std::iter::once(0)
                        .chain(placed.iter().map(|p| p.1))
                        .filter(|c| is_free(*c))
                        .collect();
                    candidates.sort_unstable();
                    candidates[self.rng.below(candidates.len().min(2))]
                }
            };
            address[i] = start;
            top = top.max(start + bytes);
            placed.push((start, start + bytes, from, to));
            if let ValueDraft::Tensor(t) = &mut self.method.values[self.nodes[i].value as usize] {
                **t = t.clone().planned(1, start as u64);
            }
        }
        top
    }

    fn bytes_of(&self, node: usize) -> usize {
        match &self.method.values[self.nodes[node].value as usize] {
            ValueDraft::Tensor(t) => t.sizes.iter().map(|s| *s as usize).product::<usize>() * 4,
            _ => 0,
        }
    }
}
