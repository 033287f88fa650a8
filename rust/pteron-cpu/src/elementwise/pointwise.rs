//! The machinery shared by elementwise kernels on f32: a [`Pointwise`] function of `N` operands is all
//! that an operator has to supply. Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, Run, broadcast_shape};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, Bound, DType, Dims, Element, Error, Grid, PrepareContext, Prepared,
    Result, TensorMeta, WorkerScratch,
};
use std::marker::PhantomData;

/// Operands whose innermost stride is not one are gathered into blocks of this many elements.
const BLOCK: usize = 256;

/// Where a function's numbers come from: the arguments of a bound call, or what load knows of them.
pub trait Scalars {
    /// The number at position `i`.
    fn double(&self, i: usize) -> Result<f64>;
    /// The number at position `i`, or `None`.
    fn optional_double(&self, i: usize) -> Result<Option<f64>>;
}

impl Scalars for Args<'_> {
    fn double(&self, i: usize) -> Result<f64> {
        Args::double(self, i)
    }
    fn optional_double(&self, i: usize) -> Result<Option<f64>> {
        Args::optional_double(self, i)
    }
}

impl Scalars for [ArgSpec<'_>] {
    fn double(&self, i: usize) -> Result<f64> {
        self.get(i).and_then(ArgSpec::number).ok_or_else(|| {
            Error::kernel(format!("argument {i} is not known at load"))
                .expected("a number that nothing writes")
        })
    }
    fn optional_double(&self, i: usize) -> Result<Option<f64>> {
        match self.get(i) {
            Some(ArgSpec::None) => Ok(None),
            _ => self.double(i).map(Some),
        }
    }
}

/// An elementwise function of `N` f32 operands, which are arguments `0..N` of the operator.
pub trait Pointwise<const N: usize>: Copy + Send + Sync + 'static {
    /// Element type of the output.
    type Out: Element;
    /// Name of the operator.
    const NAME: &'static str;
    /// Position of the output among the arguments.
    const OUT: usize;
    /// Rough cost of 16 elements in nanoseconds.
    const COST: usize;

    /// Does the kernel do what the other arguments ask for? Asked once, at load.
    fn accepts(_args: &[ArgSpec<'_>]) -> bool {
        true
    }

    /// The function with its scalar arguments.
    fn from_scalars<A: Scalars + ?Sized>(args: &A) -> Result<Self>;

    /// Its numbers, in an order that [`Pointwise::from_parameters`] knows.
    fn parameters(self) -> [f32; 2] {
        [0.0; 2]
    }

    /// The function with its numbers.
    fn from_parameters(parameters: [f32; 2]) -> Self;

    /// Computes `n ≤ LANES` elements and stores them at `out`.
    ///
    /// # Safety
    /// `out` is valid for writes of `n` elements.
    unsafe fn emit<S: Simd>(self, s: S, v: [S::F; N], out: *mut Self::Out, n: usize);
}

/// A [`Pointwise`] function prepared for one instruction set.
struct PointwiseKernel<P, const N: usize> {
    level: SimdLevel,
    name: String,
    function: PhantomData<P>,
}

/// Prepares `P` when all operands are f32 tensors and the output has its dtype.
pub fn prepare<P: Pointwise<N>, const N: usize>(
    ctx: &PrepareContext<'_>,
) -> Result<Option<Box<dyn Prepared>>> {
    let fits = (0..N).all(|i| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32))
        && ctx.tensor(P::OUT).is_some_and(|t| t.dtype == P::Out::DTYPE)
        && P::accepts(ctx.args);
    if !fits {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("{}.f32.{}", P::NAME, level.isa().name());
    Ok(Some(Box::new(PointwiseKernel::<P, N> { level, name, function: PhantomData })))
}

/// Takes the shapes of operands `0..N`, resizes output `out` to their broadcast shape and plans the
/// walk.
pub fn bind_broadcast<const N: usize>(args: &mut BindArgs<'_>, bound: &mut Bound, out: usize) -> Result<()> {
    let mut shapes = [Dims::EMPTY; N];
    for (i, shape) in shapes.iter_mut().enumerate() {
        *shape = *args.args().tensor(i)?.shape();
    }
    let shape = if shapes.iter().all(|s| *s == shapes[0]) {
        shapes[0]
    } else {
        let mut refs = [&shapes[0]; N];
        for (r, s) in refs.iter_mut().zip(&shapes) {
            *r = s;
        }
        broadcast_shape(&refs)?
    };
    args.resize(out, &shape)?;
    let args = args.args();
    let target = args.output(out)?;
    let mut metas: [&TensorMeta; N] = [target.meta(); N];
    for (i, meta) in metas.iter_mut().enumerate() {
        *meta = args.tensor(i)?.meta();
    }
    *bound.get_mut::<BroadcastPlan<N>>()? = BroadcastPlan::new(target.meta(), metas);
    Ok(())
}

impl<P: Pointwise<N>, const N: usize> Prepared for PointwiseKernel<P, N> {
    fn name(&self) -> &str {
        &self.name
    }

    fn alias(&self) -> AliasRule {
        if P::Out::DTYPE == DType::Float32 { AliasRule::InPlace } else { AliasRule::None }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(BroadcastPlan::<N>::EMPTY)
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        bind_broadcast::<N>(args, bound, P::OUT)?;
        let plan = bound.get::<BroadcastPlan<N>>()?;
        if plan.numel() == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(plan.chunk_count(), plan.numel().min(CHUNK) / 16 * P::COST))
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
        let mut operands = [std::ptr::null::<f32>(); N];
        for (i, p) in operands.iter_mut().enumerate() {
            *p = args.tensor(i)?.ptr::<f32>()?;
        }
        let out = args.output(P::OUT)?.ptr::<P::Out>()?;
        let function = P::from_scalars(args)?;
        self.level.dispatch(ChunkTask { function, plan, chunk: chunk as usize, operands, out });
        Ok(())
    }
}

struct ChunkTask<'a, P: Pointwise<N>, const N: usize> {
    function: P,
    plan: &'a BroadcastPlan<N>,
    chunk: usize,
    operands: [*const f32; N],
    out: *mut P::Out,
}

impl<P: Pointwise<N>, const N: usize> SimdTask for ChunkTask<'_, P, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let strides = self.plan.inner_strides();
        let is_dense = strides.iter().all(|s| *s == 1);
        for Run { at, offsets, n } in self.plan.runs(self.chunk) {
            let mut operands = self.operands;
            // SAFETY: the plan yields offsets inside the operands, runs inside the output.
            unsafe {
                for k in 0..N {
                    operands[k] = operands[k].add(offsets[k]);
                }
                let out = self.out.add(at);
                if is_dense {
                    dense_run(s, self.function, operands, out, n);
                } else {
                    strided_run(s, self.function, operands, strides, out, n);
                }
            }
        }
    }
}

/// # Safety
/// Operands are valid for reads and `out` for writes of `n` elements.
#[inline(always)]
pub(super) unsafe fn dense_run<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    function: P,
    operands: [*const f32; N],
    out: *mut P::Out,
    n: usize,
) {
    // Indexed loops: iterators over arrays by value are not unrolled, and cost more than the function.
    let mut i = 0;
    // SAFETY: i + LANES ≤ n in the loop; the tail touches n - i elements.
    unsafe {
        while i + S::LANES <= n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load(operands[k].add(i));
            }
            function.emit(s, v, out.add(i), S::LANES);
            i += S::LANES;
        }
        if i < n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load_partial(operands[k].add(i), n - i);
            }
            function.emit(s, v, out.add(i), n - i);
        }
    }
}

/// Gathers operands with a stride other than one block by block; repeated elements only once.
///
/// # Safety
/// Operand `k` is valid for reads at `i * strides[k]`, `out` for writes at `i`, for `i < n`.
#[inline(always)]
unsafe fn strided_run<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    function: P,
    operands: [*const f32; N],
    strides: [usize; N],
    out: *mut P::Out,
    n: usize,
) {
    let mut blocks = [[0f32; BLOCK]; N];
    for k in 0..N {
        if strides[k] == 0 {
            // SAFETY: n ≥ 1, so element 0 exists.
            let value = unsafe { *operands[k] };
            blocks[k][..n.min(BLOCK).next_multiple_of(MAX_LANES)].fill(value);
        }
    }
    let mut at = 0;
    while at < n {
        let len = BLOCK.min(n - at);
        let mut sources = operands;
        for k in 0..N {
            match strides[k] {
                // SAFETY: at < n.
                1 => sources[k] = unsafe { operands[k].add(at) },
                0 => sources[k] = blocks[k].as_ptr(),
                stride => {
                    for (i, slot) in blocks[k][..len].iter_mut().enumerate() {
                        // SAFETY: at + i < n.
                        *slot = unsafe { *operands[k].add((at + i) * stride) };
                    }
                    sources[k] = blocks[k].as_ptr();
                }
            }
        }
        // SAFETY: every source holds `len` elements; at + len ≤ n.
        unsafe { dense_run(s, function, sources, out.add(at), len) };
        at += len;
    }
}
