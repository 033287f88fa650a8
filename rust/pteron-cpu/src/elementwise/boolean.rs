//! logical_not, logical_and and logical_or on bool tensors (any non-zero byte is true).

use super::broadcast::{BroadcastPlan, CHUNK, Run};
use super::pointwise::bind_broadcast;
use pteron_core::{
    AliasRule, Args, BindArgs, Bool8, Bound, DType, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

/// A function of `N` bools. Plain byte loops: the compiler vectorises them for any target.
struct Logic<const N: usize> {
    name: &'static str,
    function: fn([u8; N]) -> u8,
    run: RunFn<N>,
}

/// `(operands, strides, out, n)`.
type RunFn<const N: usize> = unsafe fn([*const u8; N], [usize; N], *mut u8, usize);

impl<const N: usize> Prepared for Logic<N> {
    fn name(&self) -> &str {
        self.name
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
        let strides = plan.inner_strides();
        for Run { at, offsets, n } in plan.runs(chunk as usize) {
            let mut from = operands;
            // SAFETY: the plan yields offsets inside the operands and runs inside the output.
            unsafe {
                for (p, offset) in from.iter_mut().zip(offsets) {
                    *p = p.add(offset);
                }
                if strides == [1; N] {
                    (self.run)(from, strides, out.add(at), n);
                } else {
                    for i in 0..n {
                        let mut v = [0u8; N];
                        for k in 0..N {
                            v[k] = *from[k].add(i * strides[k]);
                        }
                        *out.add(at + i) = (self.function)(v);
                    }
                }
            }
        }
        Ok(())
    }
}

macro_rules! logic {
    ($($module:ident, $n:literal, $name:literal, |$v:ident| $body:expr;)*) => { $(
        mod $module {
            use super::*;

            fn function($v: [u8; $n]) -> u8 {
                $body
            }

            /// # Safety
            /// Dense operands and output of `n` bytes.
            unsafe fn run(operands: [*const u8; $n], _strides: [usize; $n], out: *mut u8, n: usize) {
                for i in 0..n {
                    // SAFETY: i < n.
                    unsafe { *out.add(i) = function(operands.map(|p| *p.add(i))) };
                }
            }

            pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
                if !(0..=$n).all(|i| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Bool)) {
                    return Ok(None);
                }
                Ok(Some(Box::new(Logic::<$n> { name: $name, function, run })))
            }
        }
    )* };
}

logic! {
    not, 1, "logical_not.bool", |v| u8::from(v[0] == 0);
    and, 2, "logical_and.bool", |v| u8::from(v[0] != 0) & u8::from(v[1] != 0);
    or, 2, "logical_or.bool", |v| u8::from(v[0] | v[1] != 0);
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::logical_not.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: not::prepare,
    },
    StaticKernel {
        schema: "aten::logical_and.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: and::prepare,
    },
    StaticKernel {
        schema: "aten::logical_or.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: or::prepare,
    },
];
