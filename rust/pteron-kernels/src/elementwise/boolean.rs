//! The logical functions (and the bitwise ones, which are the same there) on bool tensors. Any byte but zero is
//! true.

use super::broadcast::{BroadcastPlan, CHUNK, Run};
use super::pointwise::bind_broadcast;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AliasRule, Args, BindArgs, Bool8, Bound, DType, Grid, Isa, PrepareContext, Prepared, Result,
    StaticKernel, WorkerScratch,
};
use std::marker::PhantomData;

/// A function of `N` bools. Plain byte loops: the compiler vectorises them for any instruction set.
struct Logic<P, const N: usize> {
    level: SimdLevel,
    name: String,
    function: PhantomData<P>,
}

/// What is computed from the bytes of `N` bools.
trait Connective<const N: usize>: Send + Sync + 'static {
    const NAME: &'static str;
    fn of(v: [u8; N]) -> u8;
}

struct Not;
impl Connective<1> for Not {
    const NAME: &'static str = "logical_not";
    #[inline(always)]
    fn of([a]: [u8; 1]) -> u8 {
        u8::from(a == 0)
    }
}

struct And;
impl Connective<2> for And {
    const NAME: &'static str = "logical_and";
    #[inline(always)]
    fn of([a, b]: [u8; 2]) -> u8 {
        u8::from(a != 0) & u8::from(b != 0)
    }
}

struct Or;
impl Connective<2> for Or {
    const NAME: &'static str = "logical_or";
    #[inline(always)]
    fn of([a, b]: [u8; 2]) -> u8 {
        u8::from(a | b != 0)
    }
}

struct Xor;
impl Connective<2> for Xor {
    const NAME: &'static str = "logical_xor";
    #[inline(always)]
    fn of([a, b]: [u8; 2]) -> u8 {
        u8::from((a != 0) != (b != 0))
    }
}

impl<P: Connective<N>, const N: usize> Prepared for Logic<P, N> {
    fn name(&self) -> &str {
        &self.name
    }
    fn alias(&self) -> AliasRule {
        AliasRule::InPlace
    }
    fn new_bound(&self) -> Bound {
        Bound::of(BroadcastPlan::<N>::EMPTY)
    }
    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        bind_broadcast::<N>(args, bound, N)?;
        let plan = bound.get::<BroadcastPlan<N>>()?;
        if plan.numel() == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(plan.chunk_count(), plan.numel().min(CHUNK) / 16))
    }
    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let plan = bound.get::<BroadcastPlan<N>>()?;
        let mut operands = [std::ptr::null::<u8>(); N];
        for (i, p) in operands.iter_mut().enumerate() {
            *p = args.tensor(i)?.ptr::<Bool8>()?.cast();
        }
        let out: *mut u8 = args.output(N)?.ptr::<Bool8>()?.cast();
        self.level.dispatch_narrow(LogicTask::<P, N> {
            plan,
            chunk: chunk as usize,
            operands,
            out,
            function: PhantomData,
        });
        Ok(())
    }
}

struct LogicTask<'a, P, const N: usize> {
    plan: &'a BroadcastPlan<N>,
    chunk: usize,
    operands: [*const u8; N],
    out: *mut u8,
    function: PhantomData<P>,
}

impl<P: Connective<N>, const N: usize> SimdTask for LogicTask<'_, P, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let strides = self.plan.inner_strides();
        for Run { at, offsets, n } in self.plan.runs(self.chunk) {
            let mut from = self.operands;
            // SAFETY: the plan yields offsets inside the operands and runs inside the output.
            unsafe {
                for k in 0..N {
                    from[k] = from[k].add(offsets[k]);
                }
                let out = self.out.add(at);
                // Constant strides in the dense case, so that the loop is vectorised.
                if strides == [1; N] {
                    apply::<P, N>(from, [1; N], out, n);
                } else {
                    apply::<P, N>(from, strides, out, n);
                }
            }
        }
    }
}

/// # Safety
/// Operand `k` is readable at `i * strides[k]`, `out` writable at `i`, for `i < n`.
#[inline(always)]
unsafe fn apply<P: Connective<N>, const N: usize>(
    from: [*const u8; N],
    strides: [usize; N],
    out: *mut u8,
    n: usize,
) {
    for i in 0..n {
        let mut v = [0u8; N];
        for k in 0..N {
            // SAFETY: the caller's promise.
            v[k] = unsafe { *from[k].add(i * strides[k]) };
        }
        // SAFETY: the caller's promise.
        unsafe { *out.add(i) = P::of(v) };
    }
}

fn prepare<P: Connective<N>, const N: usize>(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    if !(0..=N).all(|i| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Bool)) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let name = format!("{}.bool.{}", P::NAME, level.isa().name());
    Ok(Some(Box::new(Logic::<P, N> { level, name, function: PhantomData })))
}

macro_rules! kernel {
    ($schema:literal, $p:ident, $n:literal) => {
        StaticKernel { schema: $schema, variant: "bool", prepare: prepare::<$p, $n> }
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    kernel!("aten::logical_not.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Not, 1),
    kernel!("aten::logical_and.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", And, 2),
    kernel!("aten::logical_or.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Or, 2),
    kernel!("aten::logical_xor.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Xor, 2),
    kernel!("aten::bitwise_not.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Not, 1),
    kernel!(
        "aten::bitwise_and.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        And,
        2
    ),
    kernel!("aten::bitwise_or.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Or, 2),
    kernel!(
        "aten::bitwise_xor.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        Xor,
        2
    ),
];
