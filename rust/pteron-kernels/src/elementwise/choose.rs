//! where: `condition ? self : other` with a bool condition, f32 operands, all three broadcasting.

use super::broadcast::{BroadcastPlan, CHUNK, Run};
use super::pointwise::{Parameters, Pointwise, Scalars, bind_broadcast};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AliasRule, Args, BindArgs, Bool8, Bound, DType, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

const OUT: usize = 3;
/// Operands with a stride other than one are gathered into blocks of this many elements.
const BLOCK: usize = 256;

struct Where {
    level: SimdLevel,
    name: String,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let is = |i: usize, dtype: DType| ctx.tensor(i).is_some_and(|t| t.dtype == dtype);
    if !(is(0, DType::Bool) && [1, 2, OUT].into_iter().all(|i| is(i, DType::Float32))) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(Where { level, name: format!("where.f32.{}", level.isa().name()) })))
}

impl Prepared for Where {
    fn name(&self) -> &str {
        &self.name
    }
    fn alias(&self) -> AliasRule {
        AliasRule::InPlace
    }
    fn new_bound(&self) -> Bound {
        Bound::of(BroadcastPlan::<3>::EMPTY)
    }
    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        bind_broadcast::<3>(args, bound, OUT)?;
        let plan = bound.get::<BroadcastPlan<3>>()?;
        if plan.numel() == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(plan.chunk_count(), plan.numel().min(CHUNK) / 4))
    }
    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let task = WhereTask {
            plan: bound.get::<BroadcastPlan<3>>()?,
            chunk: chunk as usize,
            condition: args.tensor(0)?.ptr::<Bool8>()?.cast(),
            a: args.tensor(1)?.ptr()?,
            b: args.tensor(2)?.ptr()?,
            out: args.output(OUT)?.ptr()?,
        };
        self.level.dispatch(task);
        Ok(())
    }
}

struct WhereTask<'a> {
    plan: &'a BroadcastPlan<3>,
    chunk: usize,
    condition: *const u8,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
}

/// The choice with the condition as a number, for programs.
#[derive(Clone, Copy)]
pub(super) struct Choose;

impl Pointwise<3> for Choose {
    const NAME: &'static str = "where";
    const OUT: usize = OUT;
    const COST: usize = 4;
    fn from_scalars<A: Scalars + ?Sized>(_: &A) -> Result<Self> {
        Ok(Choose)
    }
    fn from_parameters(_: Parameters) -> Self {
        Choose
    }
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, [c, a, b]: [S::F; 3]) -> S::F {
        s.select(s.eq(c, s.zero()), b, a)
    }
}

/// `len` elements of `source` from element `at` on: in place when dense, else copied into `block`.
///
/// # Safety
/// Elements `at * stride ..= (at + len - 1) * stride` are readable; `len ≤ BLOCK`.
#[inline(always)]
unsafe fn gather<T: Copy>(
    source: *const T,
    stride: usize,
    at: usize,
    len: usize,
    block: &mut [T; BLOCK],
) -> *const T {
    // SAFETY: the caller's promise.
    unsafe {
        match stride {
            1 => source.add(at),
            // Filled once: later blocks of a run are never longer than the first.
            0 => {
                if at == 0 {
                    block[..len].fill(*source);
                }
                block.as_ptr()
            }
            _ => {
                for (i, slot) in block[..len].iter_mut().enumerate() {
                    *slot = *source.add((at + i) * stride);
                }
                block.as_ptr()
            }
        }
    }
}

impl SimdTask for WhereTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [sc, sa, sb] = self.plan.inner_strides();
        let mut conditions = [0u8; BLOCK];
        let (mut left, mut right) = ([0f32; BLOCK], [0f32; BLOCK]);
        for Run { at: start, offsets: [oc, oa, ob], n } in self.plan.runs(self.chunk) {
            let mut at = 0;
            while at < n {
                let len = BLOCK.min(n - at);
                // SAFETY: the plan yields offsets inside the operands and runs inside the output;
                // i < len ≤ n - at.
                unsafe {
                    let c = gather(self.condition.add(oc), sc, at, len, &mut conditions);
                    let a = gather(self.a.add(oa), sa, at, len, &mut left);
                    let b = gather(self.b.add(ob), sb, at, len, &mut right);
                    let out = self.out.add(start + at);
                    let mut i = 0;
                    while i < len {
                        let m = S::LANES.min(len - i);
                        let mask = s.load_bools(c.add(i), m);
                        let v = s.select(mask, s.load_up_to(a.add(i), m), s.load_up_to(b.add(i), m));
                        s.store_up_to(out.add(i), v, m);
                        i += m;
                    }
                }
                at += len;
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
    variant: "f32",
    prepare,
}];
