//! Well-formed programs by construction: a chain of operators over `[rows, width]` tensors with a
//! memory plan that reuses bytes wherever lifetimes allow it.

mod attention;
mod elementwise;
mod heads;
mod loops;
mod norms;
mod pictures;
mod placement;
mod products;
mod quantised_activations;
mod quantised_products;
mod quantised_sums;
mod rows_as_images;
mod signals;
mod symmetric_products;
mod views;

use crate::pseudo_random::PseudoRandom;
use pteron_core::{DType, Result};
use pteron_format::write::{
    ChainDraft, InstructionDraft, MethodDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
    WriteOptions,
};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, Program, ProgramSource, Runtime, TensorInput,
};
use std::borrow::Cow;
use std::sync::Arc;

/// Upper bound of the dynamic first dimension.
pub const MAX_ROWS: usize = 7;
const WIDTHS: [usize; 4] = [1, 5, 16, 33];

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
    /// The file.
    pub bytes: Vec<u8>,
    /// Columns of the input `[rows, width]`, which is f32.
    pub width: usize,
    /// May calls have fewer rows than [`MAX_ROWS`]?
    pub is_dynamic: bool,
    seed: u64,
}

impl RandomProgram {
    /// The program of a seed, cut after `most` operators: shorter ones are beginnings of longer ones.
    pub fn new(seed: u64, most: usize) -> Self {
        let rng = &mut PseudoRandom::new(seed);
        let seed = rng.word();
        let is_dynamic = rng.one_in(2);
        let mut g = Generator::new(rng, is_dynamic);
        let width = g.nodes[0].width;
        let count = 3 + g.rng.below(10);
        for _ in 0..count.min(most) {
            if g.rng.one_in(8) {
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
        let mut rng = PseudoRandom::new(self.seed ^ call);
        let special = rng.one_in(3);
        (0..rows * self.width)
            .map(|_| match rng.below(24) {
                0 if special => f32::NAN,
                1 if special => f32::INFINITY,
                2 if special => -0.0,
                _ => rng.float() * 2.0,
            })
            .collect()
    }

    /// The program in `runtime`.
    ///
    /// Errors: it is refused, which no setting may do.
    pub fn load(&self, runtime: &Arc<Runtime>) -> Result<Arc<Program>> {
        let source = ProgramSource::Bytes(Arc::new(self.bytes.clone()));
        Program::load(runtime, source, Limits::default())
    }

    /// All outputs of a call for each of `rows`, one call behind the other in one session.
    ///
    /// Errors: the method is refused or a call fails, which no setting may do.
    pub fn results(&self, program: &Arc<Program>, rows: &[usize]) -> Result<Vec<Vec<f32>>> {
        let options = MethodOptions { num_threads: Some(1), ..Default::default() };
        let method = program.load_method("forward", options)?;
        let mut results = Vec::new();
        for (call, &rows) in rows.iter().enumerate() {
            let x = self.input(rows, call as u64);
            let shape = [rows, self.width];
            let input = TensorInput::from_slice(&shape, &x).map_or(InputValue::None, InputValue::Tensor);
            for output in &method.execute(&[input], ExecuteOptions::default())? {
                results.push(output.tensor()?.elements::<f32>()?.to_vec());
            }
        }
        Ok(results)
    }
}

struct Generator<'a> {
    rng: &'a mut PseudoRandom,
    is_dynamic: bool,
    method: MethodDraft,
    constants: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    outputs: Vec<usize>,
}

impl<'a> Generator<'a> {
    fn new(rng: &'a mut PseudoRandom, is_dynamic: bool) -> Self {
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
        self.constant_bytes(DType::Float32, shape, data)
    }

    /// A constant with the bytes `data`.
    fn constant_bytes(&mut self, dtype: DType, shape: &[usize], data: Vec<u8>) -> i32 {
        self.constants.push(data);
        let index = self.constants.len() as u32 - 1;
        self.value(TensorDraft::contiguous(dtype, shape).unwrap().constant(index).into())
    }

    /// A new activation, address to follow: `[rows, width]`, `[rows, 1, width]` or `[rows, 1, 1, width]`.
    fn node(&mut self, width: usize, rank: usize) -> usize {
        let mut shape = vec![1; rank];
        (shape[0], shape[rank - 1]) = (MAX_ROWS, width);
        self.shaped(&shape, None)
    }

    /// A new activation of any shape whose last extent is its width; `order`: its memory order.
    fn shaped(&mut self, shape: &[usize], order: Option<[u8; 4]>) -> usize {
        let mut tensor = TensorDraft::contiguous(DType::Float32, shape).unwrap();
        if let Some(order) = order {
            tensor.dim_order = order.to_vec();
        }
        self.tensor(tensor, shape[shape.len() - 1])
    }

    /// A new tensor, address to follow.
    fn tensor(&mut self, tensor: TensorDraft, width: usize) -> usize {
        let tensor = if self.is_dynamic { tensor.bounded() } else { tensor };
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

    /// A recent f32 activation of rank 2 (views included).
    fn pick(&mut self) -> usize {
        let recent: Vec<usize> =
            (0..self.nodes.len()).rev().filter(|i| self.is_activation(*i)).take(3).collect();
        recent[self.rng.below(recent.len())]
    }

    fn operator(&mut self) {
        let x = self.pick();
        match self.rng.below(31) {
            29 | 30 => self.signals(x),
            26..=28 => self.shown_product(x),
            25 => self.head(x),
            24 => self.rotary(x),
            23 => self.rms_norm(x),
            22 => self.quantised_layer(),
            21 => self.quantised_product(x),
            20 => self.scaled_by_known(x),
            14..=17 => self.pictures(x),
            18 => self.attention(x),
            19 => self.moved(x),
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
        if self.rng.one_in(6) {
            self.outputs.push(self.nodes.len() - 1);
        }
    }

    fn is_activation(&self, node: usize) -> bool {
        match &self.method.values[self.nodes[node].value as usize] {
            ValueDraft::Tensor(t) => {
                let is_float = t.scalar_type == DType::Float32.code();
                is_float && t.sizes.len() == 2 && t.sizes[0] == MAX_ROWS as i32
            }
            _ => false,
        }
    }

    /// Is the first extent the number of rows?
    fn is_made_of_rows(&self, node: usize) -> bool {
        match &self.method.values[self.nodes[node].value as usize] {
            ValueDraft::Tensor(t) => t.sizes.first() == Some(&(MAX_ROWS as i32)),
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
        outputs.retain(|o| self.nodes[*o].base.is_none() && self.is_made_of_rows(*o));
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
}
