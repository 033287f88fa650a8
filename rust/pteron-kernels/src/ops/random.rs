//! Random numbers, element by element: rand, randn, randint, uniform, normal, exponential, log_normal,
//! cauchy, geometric, random, bernoulli, dropout.
//!
//! Shape: stated by the arguments, or that of the first tensor; tensors of parameters broadcast. Dtype: that
//! of the output. Values: a function of the session's seed, the number of the call and the element's place
//! in memory ([`pteron_core::random`]), the same for every number of threads; distributed as PyTorch's, not
//! the same numbers. Plain and fast kernels draw the same bits ([`ways`]). Edge cases: parameters outside a
//! distribution's domain are errors, as in PyTorch.

use crate::chunked::{self, CHUNK};
use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::draws::Draws;
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::operator::{Operator, kernel};
use crate::routine::{Preparation, dtype_of};
use crate::shape::broadcast;
use crate::strided::loops::Walk;
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, RandomDraws, Result, TensorView};
use std::ops::Range;

mod masks;
mod ways;

use masks::{bernoulli, dropout};
use ways::Way;

/// A bound call: what it draws, and walks over up to two parameter tensors in the output's order.
pub(crate) struct Call {
    pub(crate) draws: RandomDraws,
    pub(crate) walks: [Walk; 2],
    numbers: [f64; 2],
    whole: [i64; 2],
}

impl Default for Call {
    fn default() -> Self {
        Call { draws: RandomDraws::default(), walks: [Walk::EMPTY; 2], numbers: [0.0; 2], whole: [0; 2] }
    }
}

pub(crate) fn domain(what: &str, expected: &str, got: impl std::fmt::Debug) -> Error {
    Error::kernel("a parameter of the distribution is out of its domain")
        .argument(what)
        .expected(expected)
        .got(format!("{got:?}"))
}

/// Random bits that a uniform number of this dtype has: as many as it holds below one.
fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::Float64 => 53,
        DType::Float16 => 11,
        DType::BFloat16 => 8,
        _ => 24,
    }
}

/// A kernel that draws in one of the ways: `bind` as in [`chunked::prepare_random`], `run` of a range of places.
fn drawing(
    way: Way,
    bind: impl Fn(&mut BindArgs<'_>, &mut Call) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&Call, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    // Chunks of an even number of places: neighbours share the bits that the generator makes at once.
    let split = move |count| Split::new(count, CHUNK, CHUNK * way.cost());
    let bind = move |args: &mut BindArgs<'_>, call: &mut Call| bind(args, call).map(split);
    chunked::random_in_ranges(way.name(), 0, bind, move |call, args, places, _| run(call, args, places))
}

/// Writes blocks of numbers, which `fill` gives for the places from one on, to every place of a range.
fn write<C: Compute>(
    args: &Args<'_>,
    out: usize,
    places: Range<usize>,
    mut fill: impl FnMut(usize, &mut [C]) -> Result<()>,
) -> Result<()> {
    let (mut writer, mut block) = (Writer::<C>::new(args.output(out)?)?, [C::ZERO; BLOCK]);
    for at in places.clone().step_by(BLOCK) {
        let block = &mut block[..(places.end - at).min(BLOCK)];
        fill(at, block)?;
        // The output is dense in its dim order, which is the order of places.
        writer.write(at as isize, 1, block)?;
    }
    Ok(())
}

/// Where the output's shape comes from.
#[derive(Clone, Copy)]
enum Shape {
    /// The list at this argument.
    List(usize),
    /// Argument 0.
    Like,
}

impl Shape {
    fn of(self, args: &Args<'_>) -> Result<Dims> {
        match self {
            Shape::List(i) => args.int_list(i)?.to_dims(),
            Shape::Like => Ok(*args.tensor(0)?.shape()),
        }
    }
}

/// Distributions with up to two numbers as parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Standard,
    Uniform,
    Normal,
    LogNormal,
    Exponential,
    Cauchy,
    Geometric,
}

impl Distribution {
    fn check(self, [a, b]: [f64; 2]) -> Result<()> {
        match self {
            Distribution::Uniform if a > b || !(b - a).is_finite() => {
                Err(domain("to", "finite, not below `from`", b))
            }
            Distribution::Normal | Distribution::LogNormal if b < 0.0 || b.is_nan() => {
                Err(domain("std", "0 or more", b))
            }
            Distribution::Exponential if a <= 0.0 || a.is_nan() => Err(domain("lambd", "above 0", a)),
            Distribution::Cauchy if b <= 0.0 || b.is_nan() => Err(domain("sigma", "above 0", b)),
            Distribution::Geometric if !(a > 0.0 && a < 1.0) => Err(domain("p", "between 0 and 1", a)),
            _ => Ok(()),
        }
    }

    #[inline]
    fn number(self, draws: &mut Draws, place: u64, numbers: [f64; 2], bits: u32) -> f64 {
        let [a, b] = numbers;
        match self {
            Distribution::Standard => draws.uniform(place, bits),
            Distribution::Uniform => Self::between(numbers, draws.uniform(place, bits)),
            Distribution::Normal => a + b * draws.normal(place),
            Distribution::LogNormal => (a + b * draws.normal(place)).exp(),
            Distribution::Exponential => -draws.log_of_uniform(place) / a,
            Distribution::Cauchy => Self::cauchy(numbers, draws.uniform(place, 53)),
            Distribution::Geometric => Self::tries(draws.log_of_uniform(place), Self::log_of_failure(a)),
        }
    }

    #[inline(always)]
    fn between([from, to]: [f64; 2], share: f64) -> f64 {
        let x = from + share * (to - from);
        // Rounding may reach the end, which is not in the interval.
        if x >= to { from } else { x }
    }

    #[inline(always)]
    fn cauchy([median, sigma]: [f64; 2], share: f64) -> f64 {
        median + sigma * (std::f64::consts::PI * (share - 0.5)).tan()
    }

    fn log_of_failure(p: f64) -> f64 {
        (-p).ln_1p()
    }

    /// Tries until the first success.
    #[inline(always)]
    fn tries(log_of_uniform: f64, log_of_failure: f64) -> f64 {
        (log_of_uniform / log_of_failure).ceil().max(1.0)
    }
}

/// A float tensor (integers too for geometric) of one distribution with numbers as parameters.
fn distributed(
    ctx: &PrepareContext<'_>,
    way: Way,
    distribution: Distribution,
    shape: Shape,
    numbers: &'static [usize],
    out: usize,
) -> Preparation {
    let dtype = dtype_of(ctx, out)?;
    let takes_integers = distribution == Distribution::Geometric && dtype != DType::Bool;
    if Class::of(dtype).is_none() || !(dtype.is_float() || takes_integers) {
        return Err(unsupported(dtype).expected("a floating-point dtype"));
    }
    // Without numbers, normal ones have mean 0 and deviation 1.
    let bits = digits(dtype);
    drawing(
        way,
        move |args, call| {
            let extents = shape.of(&args.args())?;
            args.resize(out, &extents)?;
            call.numbers = [0.0, 1.0];
            for (slot, i) in call.numbers.iter_mut().zip(numbers) {
                *slot = args.args().double(*i)?;
            }
            distribution.check(call.numbers)?;
            call.draws = args.random_draws()?;
            extents.numel()
        },
        move |call, args, places| {
            write::<f64>(args, out, places, |at, block| {
                way.fill(call.draws, distribution, call.numbers, bits, at, block);
                Ok(())
            })
        },
    )
}

/// Least and greatest integer that a dtype holds without a gap.
fn whole_limits(dtype: DType) -> Result<(i64, i64)> {
    Ok(match dtype {
        DType::Bool => (0, 1),
        DType::UInt8 => (0, 255),
        DType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DType::UInt16 => (0, u16::MAX.into()),
        DType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DType::UInt32 => (0, u32::MAX.into()),
        DType::Int64 => (i64::MIN, i64::MAX),
        DType::Float64 => (-(1 << 53), 1 << 53),
        DType::Float32 => (-(1 << 24), 1 << 24),
        DType::Float16 => (-(1 << 11), 1 << 11),
        DType::BFloat16 => (-(1 << 8), 1 << 8),
        other => return Err(unsupported(other)),
    })
}

/// The ends of a range of integers, the upper one not in it; `None` for the dtype's own.
type Ends = fn(&Args<'_>) -> Result<(Option<i64>, Option<i64>)>;

fn whole(ctx: &PrepareContext<'_>, way: Way, shape: Shape, ends: Ends, out: usize) -> Preparation {
    let dtype = dtype_of(ctx, out)?;
    let limits = whole_limits(dtype)?;
    let is_float = dtype.is_float();
    drawing(
        way,
        move |args, call| {
            let extents = shape.of(&args.args())?;
            args.resize(out, &extents)?;
            let (low, high) = ends(&args.args())?;
            let last = match high {
                Some(high) => {
                    high.checked_sub(1).ok_or_else(|| domain("high", "above the least integer", high))?
                }
                None => limits.1,
            };
            let low = low.unwrap_or(limits.0);
            if low > last {
                return Err(domain("high", "above `low`", (low, high)));
            }
            if !is_float && (low < limits.0 || last > limits.1) {
                return Err(domain("high", "a range that the output's dtype holds", (low, high)));
            }
            call.whole = [low, last];
            call.draws = args.random_draws()?;
            extents.numel()
        },
        move |call, args, places| {
            let [low, last] = call.whole;
            // 0 stands for all of 64 bits.
            let count = (last.wrapping_sub(low) as u64).wrapping_add(1);
            write::<i64>(args, out, places, |at, block| {
                way.below(call.draws, low, count, at, block);
                Ok(())
            })
        },
    )
}

/// A parameter: a number or a tensor that broadcasts.
#[derive(Clone, Copy)]
enum Parameter {
    Number(usize),
    Tensor(usize),
}

impl Parameter {
    fn tensor<'a>(self, args: &Args<'a>) -> Result<Option<TensorView<'a>>> {
        match self {
            Parameter::Number(_) => Ok(None),
            Parameter::Tensor(i) => args.tensor(i).map(Some),
        }
    }
}

/// normal with tensors: `mean + std * z`.
fn normal(ctx: &PrepareContext<'_>, way: Way, parameters: [Parameter; 2], out: usize) -> Preparation {
    if !dtype_of(ctx, out)?.is_float() || Class::of(dtype_of(ctx, out)?).is_none() {
        return Err(unsupported(dtype_of(ctx, out)?));
    }
    drawing(
        way,
        move |args, call| {
            let view = args.args();
            let mut shape = Dims::EMPTY;
            for parameter in parameters {
                if let Some(x) = parameter.tensor(&view)? {
                    shape = broadcast(&shape, x.shape())?;
                }
            }
            args.resize(out, &shape)?;
            let view = args.args();
            for (i, parameter) in parameters.into_iter().enumerate() {
                match parameter {
                    Parameter::Number(at) => call.numbers[i] = view.double(at)?,
                    Parameter::Tensor(at) => {
                        call.walks[i] = Walk::broadcast(view.tensor(out)?.meta(), [view.tensor(at)?.meta()])
                    }
                }
            }
            if matches!(parameters[1], Parameter::Number(_)) {
                Distribution::Normal.check(call.numbers)?;
            }
            call.draws = args.random_draws()?;
            shape.numel()
        },
        move |call, args, places| {
            let reader = |p: Parameter| p.tensor(args)?.map(Reader::<f64>::new).transpose();
            let readers = [reader(parameters[0])?, reader(parameters[1])?];
            let mut blocks = [[call.numbers[0]; BLOCK], [call.numbers[1]; BLOCK]];
            write::<f64>(args, out, places, |at, results| {
                for ((block, reader), walk) in blocks.iter_mut().zip(&readers).zip(&call.walks) {
                    if let Some(reader) = reader {
                        reader.gather(walk, 0, at, &mut block[..results.len()])?;
                    }
                }
                way.fill(call.draws, Distribution::Normal, [0.0, 1.0], 53, at, results);
                let [means, deviations] = &blocks;
                let mut first_bad = None;
                for ((z, mean), std) in results.iter_mut().zip(means).zip(deviations) {
                    if *std < 0.0 || std.is_nan() {
                        first_bad = first_bad.or(Some(*std));
                    }
                    *z = mean + std * *z;
                }
                first_bad.map_or(Ok(()), |std| Err(domain("std", "0 or more", std)))
            })
        },
    )
}

use Distribution as D;
use Parameter::{Number, Tensor};

/// A row with a kernel for either way to draw.
macro_rules! drawn {
    ($schema:literal, |$ctx:ident, $way:ident| $prepare:expr $(,)?) => {
        kernel($schema, |$ctx| {
            let $way = Way::OneByOne;
            $prepare
        })
        .fast("blocks", |$ctx| {
            let $way = Way::blocks($ctx);
            $prepare
        })
    };
}

/// Random numbers.
pub static OPERATORS: &[Operator] = &[
    drawn!("aten::rand.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", |ctx, way| {
        distributed(ctx, way, D::Standard, Shape::List(0), &[], 1)
    }),
    drawn!(
        "aten::rand_like.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Standard, Shape::Like, &[], 2),
    ),
    drawn!("aten::randn.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", |ctx, way| {
        distributed(ctx, way, D::Normal, Shape::List(0), &[], 1)
    }),
    drawn!(
        "aten::randn_like.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Normal, Shape::Like, &[], 2),
    ),
    drawn!(
        "aten::uniform.out(Tensor self, float from=0., float to=1., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Uniform, Shape::Like, &[1, 2], 4),
    ),
    drawn!(
        "aten::normal.out(Tensor self, float mean=0., float std=1., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Normal, Shape::Like, &[1, 2], 4),
    ),
    drawn!(
        "aten::normal.float_float_out(float mean, float std, SymInt[] size, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Normal, Shape::List(2), &[0, 1], 4),
    ),
    drawn!(
        "aten::log_normal.out(Tensor self, float mean=1., float std=2., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::LogNormal, Shape::Like, &[1, 2], 4),
    ),
    drawn!(
        "aten::exponential.out(Tensor self, float lambd=1., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Exponential, Shape::Like, &[1], 3),
    ),
    drawn!(
        "aten::cauchy.out(Tensor self, float median=0., float sigma=1., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Cauchy, Shape::Like, &[1, 2], 4),
    ),
    drawn!(
        "aten::geometric.out(Tensor self, float p, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| distributed(ctx, way, D::Geometric, Shape::Like, &[1], 3),
    ),
    drawn!("aten::randint.out(SymInt high, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", |ctx, way| {
        whole(ctx, way, Shape::List(1), |args| Ok((Some(0), Some(args.int(0)?))), 2)
    }),
    drawn!(
        "aten::randint.low_out(SymInt low, SymInt high, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::List(2), |args| Ok((Some(args.int(0)?), Some(args.int(1)?))), 3),
    ),
    drawn!(
        "aten::randint_like.out(Tensor self, SymInt high, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::Like, |args| Ok((Some(0), Some(args.int(1)?))), 3),
    ),
    drawn!(
        "aten::randint_like.low_dtype_out(Tensor self, SymInt low, SymInt high, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::Like, |args| Ok((Some(args.int(1)?), Some(args.int(2)?))), 4),
    ),
    drawn!(
        "aten::random.from_out(Tensor self, int from, int? to, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::Like, |args| Ok((Some(args.int(1)?), args.optional_int(2)?)), 4),
    ),
    drawn!(
        "aten::random.to_out(Tensor self, int to, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::Like, |args| Ok((Some(0), Some(args.int(1)?))), 3),
    ),
    drawn!(
        "aten::random.out(Tensor self, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| whole(ctx, way, Shape::Like, |_| Ok((Some(0), None)), 2),
    ),
    drawn!(
        "aten::normal.Tensor_float_out(Tensor mean, float std=1., *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| normal(ctx, way, [Tensor(0), Number(1)], 3),
    ),
    drawn!(
        "aten::normal.float_Tensor_out(float mean, Tensor std, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| normal(ctx, way, [Number(0), Tensor(1)], 3),
    ),
    drawn!(
        "aten::normal.Tensor_Tensor_out(Tensor mean, Tensor std, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx, way| normal(ctx, way, [Tensor(0), Tensor(1)], 3),
    ),
    kernel(
        "aten::bernoulli.out(Tensor self, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| bernoulli(ctx, Tensor(0), 2),
    ),
    kernel(
        "aten::bernoulli.float_out(Tensor self, float p=0.5, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| bernoulli(ctx, Number(1), 3),
    ),
    kernel(
        "aten::bernoulli.Tensor_out(Tensor self, Tensor p, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| bernoulli(ctx, Tensor(1), 3),
    ),
    kernel(
        "aten::native_dropout.out(Tensor input, float p, bool? train, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))",
        dropout,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn every_chunk_draws_its_own_numbers() {
        let y = run_out("aten::rand.out", &[vec![100_000].into()], DType::Float64, &[100_000]).unwrap();
        let mut y = y.values::<f64>();
        assert!(y.iter().all(|v| (0.0..1.0).contains(v)));
        y.sort_by(f64::total_cmp);
        y.dedup();
        assert_eq!(y.len(), 100_000);
    }

    #[test]
    fn parameters_have_domains() {
        let x: Arg = Tensor::of(&[2], &[0.5f32, 1.5]).into();
        let run = |name: &str, args: &[Arg]| {
            let given = [std::slice::from_ref(&x), args, &[Arg::None]].concat();
            error_text(run_out(name, &given, DType::Float32, &[2]))
        };
        assert!(run("aten::uniform.out", &[1.0.into(), 0.0.into()]).contains("not below"));
        assert!(run("aten::normal.out", &[0.0.into(), (-1.0).into()]).contains("0 or more"));
        assert!(run("aten::exponential.out", &[0.0.into()]).contains("above 0"));
        assert!(run("aten::geometric.out", &[1.0.into()]).contains("between"));
        assert!(run("aten::bernoulli.float_out", &[f64::NAN.into()]).contains("between"));
        assert!(run("aten::bernoulli.out", &[]).contains("between"));
        let e =
            run_out("aten::randint.low_out", &[3i64.into(), 3i64.into(), vec![2].into()], DType::Int64, &[2]);
        assert!(error_text(e).contains("above `low`"));
        let e = run_out("aten::randint.out", &[300i64.into(), vec![2].into()], DType::UInt8, &[2]);
        assert!(error_text(e).contains("holds"));
        let all = run_out(
            "aten::random.from_out",
            &[x.clone(), i64::MIN.into(), Arg::None, Arg::None],
            DType::Int64,
            &[2],
        );
        assert_eq!(all.unwrap().values::<i64>().len(), 2);
    }
}
