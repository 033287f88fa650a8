//! The builder of elementwise kernels: up to three broadcast inputs and three numbers make one
//! output element. Blocks of every input are converted to the compute type, an operator's closure
//! works on them, the result is converted to the output's dtype.
//! Inputs and output may be the same bytes: a block is read completely before it is written.

use crate::chunk::CHUNK;
use crate::complex_number::Number;
use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::Converter;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::promotion::{Promotion, check_cast};
use crate::routine::{Preparation, dtype_of};
use crate::shape::{broadcast, check_expandable};
use crate::strided::loops::Walk;
use pteron_core::{AliasRule, Args, BindArgs, DType, Dims, Error, PrepareContext, Result};

/// Which argument is what.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    /// Tensors, in the order the closure takes them.
    pub inputs: &'static [usize],
    /// Numbers, in the order [`Scalars`] has them; they may be absent.
    pub scalars: &'static [usize],
    /// The output.
    pub out: usize,
    /// The argument that gives the output its shape; the inputs then broadcast to it. Without one
    /// they broadcast to each other.
    pub shape_of: Option<usize>,
}

impl Positions {
    /// `(self, out)`.
    pub const UNARY: Positions = Positions { inputs: &[0], scalars: &[], out: 1, shape_of: None };
    /// `(self, other, out)`.
    pub const BINARY: Positions = Positions { inputs: &[0, 1], scalars: &[], out: 2, shape_of: None };
    /// `(self, number, out)`.
    pub const UNARY_SCALAR: Positions = Positions { inputs: &[0], scalars: &[1], out: 2, shape_of: None };

    /// The dtype that inputs and numbers promote to.
    pub fn promoted(&self, ctx: &PrepareContext<'_>) -> Result<DType> {
        let mut promotion = Promotion::default();
        for i in self.inputs.iter().chain(self.scalars) {
            promotion.argument(ctx, *i)?;
        }
        promotion.result()
    }

    /// As [`Positions::promoted`], integers and bool becoming float32.
    pub fn promoted_to_float(&self, ctx: &PrepareContext<'_>) -> Result<DType> {
        let dtype = self.promoted(ctx)?;
        Ok(if dtype.is_float() { dtype } else { DType::Float32 })
    }
}

/// The number arguments of a call, in the compute type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scalars<C> {
    values: [Option<C>; 3],
}

impl<C: Compute> Scalars<C> {
    /// Number `i`; zero when absent.
    #[inline(always)]
    pub fn get(&self, i: usize) -> C {
        self.values[i].unwrap_or(C::ZERO)
    }
    /// Number `i`.
    #[inline(always)]
    pub fn optional(&self, i: usize) -> Option<C> {
        self.values[i]
    }
}

/// Replaces the first block by the results.
type BlockOp<C> =
    Box<dyn Fn(&mut [C; BLOCK], &[C; BLOCK], &[C; BLOCK], usize, &Scalars<C>) -> Result<()> + Send + Sync>;

#[derive(Clone, Copy)]
struct Input<C> {
    position: usize,
    elements: Converter<C>,
    round: Option<Converter<C>>,
}

struct Elementwise<C: Compute> {
    inputs: [Option<Input<C>>; 3],
    positions: Positions,
    out: Converter<C>,
    round_result: Option<Converter<C>>,
    round_scalars: Option<Converter<C>>,
    op: BlockOp<C>,
    alias: AliasRule,
}

/// How the inputs of a call lie, and its numbers.
struct State<C> {
    walks: [Walk; 3],
    scalars: Scalars<C>,
}

impl<C: Compute> Default for State<C> {
    fn default() -> Self {
        State { walks: [Walk::EMPTY; 3], scalars: Scalars { values: [None; 3] } }
    }
}

/// Common dtype of the inputs and dtype of the result before it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Dtypes {
    /// Inputs are rounded to this before computing.
    pub common: DType,
    /// The result is rounded to this before storing.
    pub result: DType,
}

impl Dtypes {
    /// Result in the common dtype.
    pub fn same(common: DType) -> Self {
        Dtypes { common, result: common }
    }
    /// Comparisons: 1 for true and 0 for false, which are bool.
    pub fn predicate(common: DType) -> Self {
        Dtypes { common, result: DType::Bool }
    }
}

fn build<C: Compute>(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    dtypes: Dtypes,
    op: BlockOp<C>,
) -> Preparation {
    let out = dtype_of(ctx, positions.out)?;
    check_cast(dtypes.result, out)?;
    // float16 and narrow integers are computed in a wider type; what they cannot hold is rounded away
    // where PyTorch would have rounded it.
    let is_narrow = !matches!(dtypes.common, DType::Float32 | DType::Float64 | DType::Int64);
    let round = |is_needed: bool, dtype| Converter::of(dtype).ok().filter(|_| is_needed);
    let mut inputs = [None; 3];
    let mut same_size = true;
    for (slot, &position) in inputs.iter_mut().zip(positions.inputs) {
        let Some(spec) = ctx.tensor(position) else {
            continue;
        };
        same_size &= spec.dtype.size() == out.size();
        let needs_round = is_narrow && spec.dtype != dtypes.common && spec.dtype != DType::Bool;
        *slot = Some(Input {
            position,
            elements: Converter::of(spec.dtype)?,
            round: round(needs_round, dtypes.common),
        });
    }
    framed(
        "reference",
        Elementwise {
            inputs,
            positions,
            out: Converter::of(out)?,
            round_result: round(
                is_narrow && dtypes.result == dtypes.common && out != dtypes.result,
                dtypes.common,
            ),
            round_scalars: round(
                is_narrow && (dtypes.result == DType::Bool || !dtypes.common.is_float()),
                dtypes.common,
            ),
            op,
            alias: if same_size { AliasRule::InPlace } else { AliasRule::None },
        },
    )
}

fn block_op<C: Compute>(f: impl Fn(C, C, C, &Scalars<C>) -> C + Send + Sync + 'static) -> BlockOp<C> {
    Box::new(move |a, b, c, n, s| {
        let s = *s;
        for i in 0..n.min(BLOCK) {
            a[i] = f(a[i], b[i], c[i], &s);
        }
        Ok(())
    })
}

fn fallible_block_op<C: Compute>(
    f: impl Fn(C, C, C, &Scalars<C>) -> Result<C> + Send + Sync + 'static,
) -> BlockOp<C> {
    Box::new(move |a, b, c, n, s| {
        for i in 0..n.min(BLOCK) {
            a[i] = f(a[i], b[i], c[i], s)?;
        }
        Ok(())
    })
}

#[cold]
fn no_integers(dtype: DType) -> Error {
    unsupported(dtype).expected("a floating-point dtype")
}

#[cold]
fn no_floats(dtype: DType) -> Error {
    unsupported(dtype).expected("an integer dtype or bool")
}

/// A kernel for floats only: one closure per compute type. Inputs the operator has fewer of are zero.
pub fn float(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    dtypes: Dtypes,
    single: impl Fn(f32, f32, f32, &Scalars<f32>) -> f32 + Send + Sync + 'static,
    double: impl Fn(f64, f64, f64, &Scalars<f64>) -> f64 + Send + Sync + 'static,
) -> Preparation {
    match Class::of(dtypes.common) {
        Some(Class::F32) => build(ctx, positions, dtypes, block_op(single)),
        Some(Class::F64) => build(ctx, positions, dtypes, block_op(double)),
        _ => Err(no_integers(dtypes.common)),
    }
}

/// A kernel for integers and bool only.
pub fn integer(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    dtypes: Dtypes,
    int: impl Fn(i64, i64, i64, &Scalars<i64>) -> Result<i64> + Send + Sync + 'static,
) -> Preparation {
    match Class::of(dtypes.common) {
        Some(Class::I64) => build(ctx, positions, dtypes, fallible_block_op(int)),
        _ => Err(no_floats(dtypes.common)),
    }
}

/// A kernel for complex64.
pub fn complex(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    dtypes: Dtypes,
    f: impl Fn(Number, Number, Number, &Scalars<Number>) -> Number + Send + Sync + 'static,
) -> Preparation {
    build(ctx, positions, dtypes, block_op(f))
}

/// A kernel for every real dtype.
pub fn number(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    dtypes: Dtypes,
    single: impl Fn(f32, f32, f32, &Scalars<f32>) -> f32 + Send + Sync + 'static,
    double: impl Fn(f64, f64, f64, &Scalars<f64>) -> f64 + Send + Sync + 'static,
    int: impl Fn(i64, i64, i64, &Scalars<i64>) -> Result<i64> + Send + Sync + 'static,
) -> Preparation {
    match Class::required(dtypes.common)? {
        Class::F32 => build(ctx, positions, dtypes, block_op(single)),
        Class::F64 => build(ctx, positions, dtypes, block_op(double)),
        Class::I64 => build(ctx, positions, dtypes, fallible_block_op(int)),
    }
}

/// A kernel whose function reads the same in float32 and float64, of floats alone or with another one of integers:
/// `both_floats!(ctx, positions, dtypes, |a, b, c, s| function, int function)`.
macro_rules! both_floats {
    ($ctx:expr, $positions:expr, $dtypes:expr, |$($p:pat_param),*| $f:expr) => {
        $crate::elementwise::plain::float($ctx, $positions, $dtypes, |$($p),*| $f, |$($p),*| $f)
    };
    ($ctx:expr, $positions:expr, $dtypes:expr, |$($p:pat_param),*| $f:expr, int $i:expr) => {
        $crate::elementwise::plain::number(
            $ctx, $positions, $dtypes, |$($p),*| $f, |$($p),*| $f, |$($p),*| Ok($i),
        )
    };
}
pub(crate) use both_floats;

impl<C: Compute> Elementwise<C> {
    fn read_scalars(&self, args: &Args<'_>) -> Result<Scalars<C>> {
        let mut scalars = Scalars { values: [None; 3] };
        for (slot, &position) in scalars.values.iter_mut().zip(self.positions.scalars) {
            *slot = args.optional_scalar(position)?.map(C::from_scalar);
            if let (Some(value), Some(round)) = (slot.as_mut(), &self.round_scalars) {
                round.round(std::slice::from_mut(value));
            }
        }
        Ok(scalars)
    }

    fn out_shape(&self, args: &Args<'_>) -> Result<Dims> {
        if let Some(position) = self.positions.shape_of {
            let shape = *args.tensor(position)?.shape();
            for input in self.inputs.iter().flatten() {
                check_expandable(args.tensor(input.position)?.shape(), &shape)?;
            }
            return Ok(shape);
        }
        let mut shape = Dims::EMPTY;
        for (i, input) in self.inputs.iter().flatten().enumerate() {
            let tensor = args.tensor(input.position)?;
            shape = if i == 0 { *tensor.shape() } else { broadcast(&shape, tensor.shape())? };
        }
        Ok(shape)
    }
}

impl<C: Compute> UnitKernel for Elementwise<C> {
    type Problem = State<C>;

    fn alias(&self) -> AliasRule {
        self.alias
    }

    fn bind(&self, args: &mut BindArgs<'_>, state: &mut State<C>) -> Result<Split> {
        let shape = self.out_shape(&args.args())?;
        args.resize(self.positions.out, &shape)?;
        let args = args.args();
        state.scalars = self.read_scalars(&args)?;
        let out = args.tensor(self.positions.out)?;
        for (walk, input) in state.walks.iter_mut().zip(&self.inputs) {
            let Some(input) = input else { continue };
            *walk = Walk::broadcast(out.meta(), [args.tensor(input.position)?.meta()]);
        }
        Ok(Split::new(out.numel(), CHUNK, CHUNK))
    }

    fn run(&self, state: &State<C>, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let mut sources = [None; 3];
        for (source, input) in sources.iter_mut().zip(&self.inputs) {
            if let Some(input) = input {
                *source = Some(chunk.input_bytes(input.position)?);
            }
        }
        let mut out = chunk.output_bytes(self.positions.out, self.out.size())?;
        let mut blocks = [[C::ZERO; BLOCK]; 3];
        for at in chunk.units.clone().step_by(BLOCK) {
            let n = (chunk.units.end - at).min(BLOCK);
            for (((block, input), walk), source) in
                blocks.iter_mut().zip(&self.inputs).zip(&state.walks).zip(sources)
            {
                let (Some(input), Some(source)) = (input, source) else { continue };
                walk.runs(at, n, |done, offset, stride, len| {
                    input.elements.read(source, offset, stride, &mut block[done..done + len])
                })?;
                if let Some(round) = &input.round {
                    round.round(&mut block[..n]);
                }
            }
            let [a, b, c] = &mut blocks;
            (self.op)(a, b, c, n, &state.scalars)?;
            if let Some(round) = &self.round_result {
                round.round(&mut a[..n]);
            }
            // The output is dense in its dim order, which is the order of positions.
            self.out.write(&a[..n], &mut out, at - chunk.units.start)?;
        }
        Ok(())
    }
}
