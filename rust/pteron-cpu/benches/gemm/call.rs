//! One multiplication with its tensors, run by the executor as a program's step would be.

use crate::convolutions::Convolution;
use pteron_core::Isa;
use pteron_core::{
    AlignedBuffer, ArgSpec, Args, BindArgs, Bound, ConstantKey, ConstantView, DType, DimOrder, Dims, Grid,
    PackStore, PrepareContext, Prepared, TensorSlot, TensorSpec, Value, ValueId,
};
use pteron_cpu::epilogue::Epilogue;
use pteron_cpu::executor::{Executor, SessionScratch};
use pteron_cpu::{Pool, stop_word};
use pteron_kernels::cpu_detect;
use std::sync::atomic::AtomicU32;

/// A constant matrix over the start of `data`.
pub fn constant(data: &AlignedBuffer, shape: [usize; 2], strides: [usize; 2]) -> ConstantView<'_> {
    ConstantView {
        key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
        data: data.as_slice(),
        dtype: DType::Float32,
        offset: 0,
        shape: Dims::new(&shape).expect("rank 2"),
        strides: Dims::new(&strides).expect("rank 2"),
    }
}

/// A way to compute a convolution.
pub type Prepare = fn(&PrepareContext<'_>, &Epilogue) -> pteron_core::Result<Option<Box<dyn Prepared>>>;

pub struct Call {
    prepared: Box<dyn Prepared>,
    bound: Bound,
    grid: Grid,
    values: Vec<Value>,
    ids: Vec<ValueId>,
    scratch: SessionScratch,
    // Where the slots point.
    _tensors: Vec<AlignedBuffer>,
}

impl Call {
    /// `x (M x K) · W^T + b` with a constant weight of N x K.
    pub fn linear(isa: Isa, m: usize, n: usize, k: usize) -> Call {
        let (x, w, b, out) = (spec(&[m, k]), spec(&[n, k]), spec(&[n]), spec(&[m, n]));
        let weight = filled(&w);
        let view = constant(&weight, [n, k], [k, 1]);
        let args = [
            ArgSpec::Tensor(x.clone(), None),
            ArgSpec::Tensor(w.clone(), Some(view)),
            ArgSpec::Tensor(b.clone(), None),
            ArgSpec::Tensor(out.clone(), None),
        ];
        Call::new(isa, "aten::linear.out", &args, &[x, w, b, out])
    }

    /// A batch of products with nothing constant; `is_transposed`: the right-hand side lies as N x K.
    pub fn bmm(isa: Isa, batch: usize, m: usize, n: usize, k: usize, is_transposed: bool) -> Call {
        let mut specs = [spec(&[batch, m, k]), spec(&[batch, k, n]), spec(&[batch, m, n])];
        if is_transposed {
            specs[1].dim_order = DimOrder::new(&[0, 2, 1]).expect("a permutation");
        }
        let args = specs.clone().map(|s| ArgSpec::Tensor(s, None));
        Call::new(isa, "aten::bmm.out", &args, &specs)
    }

    fn new(isa: Isa, operator: &str, args: &[ArgSpec<'_>], specs: &[TensorSpec]) -> Call {
        let cpu = cpu_detect::profile_for(isa).expect("available");
        let packs = PackStore::new();
        let ctx = PrepareContext::new(args, &packs, &cpu);
        let prepared = pteron_cpu::linear::prepare_linear_like(&ctx, operator, &Default::default())
            .expect("prepares")
            .expect("is taken by the fast kernel");
        Call::of(prepared, &specs.iter().collect::<Vec<_>>(), &[])
    }

    /// A convolution of one image with a constant weight and a bias, as `prepare` computes it; `None` where it
    /// does not.
    pub fn convolution(isa: Isa, c: &Convolution, is_last: bool, prepare: Prepare) -> Option<Call> {
        let ([from, to], size) = (c.channels, c.output());
        let mut x = spec(&[1, from, c.size, c.size]);
        let w = spec(&[to, from / c.groups, c.kernel, c.kernel]);
        let mut out = spec(&[1, to, size, size]);
        if is_last {
            x.dim_order = DimOrder::new(&[0, 2, 3, 1]).expect("a permutation");
            out.dim_order = x.dim_order;
        }
        let (b, weight) = (spec(&[to]), filled(&w));
        let view = ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: weight.len() as u64 },
            data: weight.as_slice(),
            dtype: DType::Float32,
            offset: 0,
            shape: w.shape,
            strides: w.dim_order.strides(&w.shape),
        };
        let pair = |v: usize| ArgSpec::IntList(vec![Some(v as i64); 2]);
        let args = [
            ArgSpec::Tensor(x.clone(), None),
            ArgSpec::Tensor(w.clone(), Some(view)),
            ArgSpec::Tensor(b.clone(), None),
            pair(c.stride),
            pair(c.padding),
            pair(1),
            ArgSpec::Bool(Some(false)),
            pair(0),
            ArgSpec::Int(Some(c.groups as i64)),
            ArgSpec::Tensor(out.clone(), None),
        ];
        let cpu = cpu_detect::profile_for(isa).expect("available");
        let packs = PackStore::new();
        let ctx = PrepareContext::new(&args, &packs, &cpu);
        let prepared = prepare(&ctx, &Default::default()).expect("prepares")?;
        Some(Call::of(prepared, &[&x, &w, &b, &out], &[3, 4, 5, 6, 7, 8]))
    }

    /// A bound call over tensors of its own; arguments at `numbers` are no tensors and were known at load.
    fn of(prepared: Box<dyn Prepared>, specs: &[&TensorSpec], numbers: &[usize]) -> Call {
        let tensors: Vec<AlignedBuffer> = specs.iter().map(|s| filled(s)).collect();
        let mut values = Vec::new();
        for (spec, data) in specs.iter().zip(&tensors) {
            let mut slot = TensorSlot::new(spec).expect("slot");
            // SAFETY: the buffer lives as long as the slot, in the same struct.
            unsafe { slot.set_data(data.as_ptr(), data.len()) };
            while numbers.contains(&values.len()) {
                values.push(Value::None);
            }
            values.push(Value::Tensor(Box::new(slot)));
        }
        let ids = (0..values.len() as u32).map(ValueId).collect();
        let bound = prepared.new_bound();
        let scratch = SessionScratch::new(2, prepared.scratch()).expect("scratch");
        let mut call = Call { prepared, bound, grid: Grid::EMPTY, values, ids, scratch, _tensors: tensors };
        call.bind();
        call
    }

    pub fn bind(&mut self) {
        // SAFETY: every slot points to memory of its size, none overlap.
        let mut args = unsafe { BindArgs::new(&mut self.values, &self.ids) };
        self.grid = self.prepared.bind(&mut args, &mut self.bound).expect("binds");
    }

    pub fn run(&mut self, pool: &Pool, max_threads: usize) {
        let stop = AtomicU32::new(stop_word::RUNNING);
        let executor = Executor { pool, max_threads, stop: &stop, watch: None, workers: None };
        // SAFETY: as in `bind`, and the grid and scratch belong to this call.
        unsafe {
            let args = Args::new(&self.values, &self.ids);
            executor
                .run_bound(&*self.prepared, &self.bound, &args, &self.grid, &mut self.scratch)
                .expect("runs");
        }
    }
}

fn spec(shape: &[usize]) -> TensorSpec {
    TensorSpec::contiguous(DType::Float32, shape).expect("spec")
}

fn filled(spec: &TensorSpec) -> AlignedBuffer {
    let mut data = AlignedBuffer::zeroed(spec.nbytes().expect("size")).expect("memory");
    for (i, x) in data.as_mut_elements::<f32>().iter_mut().enumerate() {
        *x = (i % 31) as f32 / 31.0 - 0.5;
    }
    data
}
