//! Attention over a cache of int8: custom_quantized_sdpa.
//!
//! Shape: as `custom_sdpa`, or with heads before rows (`is_seq_at_dim_2`); scales and zero points have those of their tensor with
//! a last extent of 1. Dtype: queries, keys and values int8, scales float32, zero points int8, the result float32. Edge cases:
//! as `custom_sdpa`. Scores are exact products of integers, scaled once; values are dequantised before they are weighted.
//! Source: ExecuTorch's `extension/llm/custom_ops`.

use crate::elements::Writer;
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared};
use crate::operator::{Operator, kernel};
use crate::ops::cached_attention::{Form, Problem, check_call, row_at, scratch_elements, soft_maximum};
use crate::shape::check_same;
use pteron_core::{ArgSpec, Args, BindArgs, DType, Dims, Error, Grid, PrepareContext, Result, Scratch};

const FORM: Form = Form { keys: 1, start: 3, mask: 4, out: 15, row_axis: 1, updates: false };
/// Zero points of queries, keys and values; the scales of each stand behind its zero points.
const ZERO_POINTS: [usize; 3] = [8, 10, 12];
const HEADS_FIRST: usize = 14;
/// Products of two numbers of nine bits that a sum in 32 bits has room for.
const EXACT: usize = 8192;

/// One of the quantised tensors: its numbers and what they stand for.
struct Quantized<'a> {
    numbers: &'a [i8],
    scales: &'a [f32],
    zero_points: &'a [i8],
    strides: &'a Dims,
    depth: usize,
}

/// A row of it.
struct Line<'a> {
    numbers: &'a [i8],
    scale: f32,
    zero_point: i32,
}

impl<'a> Quantized<'a> {
    /// The tensor `index` of the three.
    fn of(args: &Args<'a>, index: usize) -> Result<Self> {
        let tensor = args.tensor(index)?;
        let zero_points = ZERO_POINTS.get(index).copied().unwrap_or_default();
        Ok(Quantized {
            numbers: tensor.as_slice()?,
            scales: args.tensor(zero_points + 1)?.as_slice()?,
            zero_points: args.tensor(zero_points)?.as_slice()?,
            strides: tensor.strides(),
            depth: tensor.shape()[3],
        })
    }

    fn line(&self, form: Form, place: [usize; 3]) -> Result<Line<'a>> {
        let missing = || Error::internal("a row of quantised attention is missing");
        let at = usize::try_from(row_at(self.strides, form, place)).map_err(|_| missing())?;
        let parameter = at.checked_div(self.depth).unwrap_or(0);
        Ok(Line {
            numbers: self.numbers.get(at..at.saturating_add(self.depth)).ok_or_else(missing)?,
            scale: *self.scales.get(parameter).ok_or_else(missing)?,
            zero_point: i32::from(*self.zero_points.get(parameter).ok_or_else(missing)?),
        })
    }
}

impl Line<'_> {
    /// The product of two rows of numbers, as what they stand for.
    fn dot(&self, other: &Line<'_>) -> f32 {
        let parts = self.numbers.chunks(EXACT).zip(other.numbers.chunks(EXACT));
        let sum: i64 = parts
            .map(|(a, b)| {
                let pairs = a.iter().zip(b);
                let product = |(x, y): (&i8, &i8)| {
                    (i32::from(*x) - self.zero_point) * (i32::from(*y) - other.zero_point)
                };
                i64::from(pairs.map(product).sum::<i32>())
            })
            .sum();
        sum as f32 * (self.scale * other.scale)
    }

    /// Adds the row's values, weighted.
    fn add_to(&self, sum: &mut [f32], weight: f32) {
        let factor = weight * self.scale;
        for (sum, v) in sum.iter_mut().zip(self.numbers) {
            *sum += factor * (i32::from(*v) - self.zero_point) as f32;
        }
    }
}

struct QuantizedAttention {
    form: Form,
    scratch: usize,
}

impl QuantizedAttention {
    fn attend(&self, p: &Problem, part: &mut Part<'_>) -> Result<()> {
        let (args, form) = (part.args, self.form);
        let (query, key) = (Quantized::of(args, 0)?, Quantized::of(args, 1)?);
        let value = Quantized::of(args, 2)?;
        let mask = args.optional_tensor(form.mask)?.map(|mask| mask.as_slice::<f32>()).transpose()?;
        let mut out = Writer::<f32>::new(args.output(form.out)?)?;
        let o_strides = out.meta().strides();
        let (scores, sum) = (part.take_scratch::<f32>(p.keys)?, part.take_scratch::<f32>(p.depth)?);
        let (batch, key_head) = (part.chunk / p.key_heads, part.chunk % p.key_heads);
        for i in 0..p.group * p.rows {
            let (head, row) = (key_head * p.group + i / p.rows, i % p.rows);
            let q = query.line(form, [batch, head, row])?;
            let weights =
                scores.get_mut(..p.visible(row)).ok_or_else(|| Error::internal("too few scores"))?;
            let hides = mask.map(|mask| mask.get(row * p.keys..).unwrap_or_default());
            for (j, score) in weights.iter_mut().enumerate() {
                *score = q.dot(&key.line(form, [batch, key_head, j])?) * p.scale;
                if let Some(more) = hides.and_then(|hides| hides.get(j)) {
                    *score += more;
                }
            }
            soft_maximum(weights);
            sum.fill(0.0);
            for (j, weight) in weights.iter().enumerate() {
                value.line(form, [batch, key_head, j])?.add_to(sum, *weight);
            }
            out.write(row_at(o_strides, form, [batch, head, row]), 1, sum)?;
        }
        Ok(())
    }
}

impl GridKernel for QuantizedAttention {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch * size_of::<f32>(), shared: 0 }
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        let view = args.args();
        *problem = Problem::of(&view, self.form)?;
        for (tensor, zero_points) in ZERO_POINTS.into_iter().enumerate() {
            let shape = view.tensor(tensor)?.shape();
            let expected = [shape[0], shape[1], shape[2], 1];
            check_same("the zero points", &expected, view.tensor(zero_points)?.shape())?;
            check_same("the scales", &expected, view.tensor(zero_points + 1)?.shape())?;
        }
        let shape = *view.tensor(0)?.shape();
        args.resize(self.form.out, &shape)?;
        Ok(problem.grid())
    }

    fn run(&self, problem: &Problem, mut part: Part<'_>) -> Result<()> {
        self.attend(problem, &mut part)
    }
}

/// An error unless every tensor is there, with its dtype, and dense.
fn check_tensors(ctx: &PrepareContext<'_>) -> Result<()> {
    let parameters = ZERO_POINTS.into_iter().flat_map(|i| [(i, DType::Int8), (i + 1, DType::Float32)]);
    let tensors = (0..3).map(|i| (i, DType::Int8)).chain(parameters).chain([(FORM.out, DType::Float32)]);
    for (at, dtype) in tensors {
        let is_dense = |t: &&pteron_core::TensorSpec| t.dtype == dtype && t.dim_order.is_contiguous();
        if ctx.tensor(at).filter(is_dense).is_none() {
            return Err(Error::kernel("quantised attention does not take these tensors")
                .argument(at.to_string())
                .expected(format!("a contiguous tensor of {dtype}"))
                .got(ctx.tensor(at).map_or_else(|| "None".to_string(), |t| t.dtype.to_string()))
                .hint(
                    "quantise queries, keys and values to int8 with a scale and a zero point for each row",
                ));
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_call(ctx, FORM)?;
    check_tensors(ctx)?;
    let form = match ctx.args.get(HEADS_FIRST) {
        Some(ArgSpec::Bool(Some(is_heads_first))) => {
            Form { row_axis: 1 + usize::from(*is_heads_first), ..FORM }
        }
        _ => {
            return Err(Error::kernel("the order of rows and heads must be known")
                .argument("is_seq_at_dim_2")
                .expected("a constant"));
        }
    };
    let (depth, keys) = ctx.tensor(form.keys).map_or((0, 0), |t| (t.shape[3], t.shape[form.row_axis]));
    prepared("reference", QuantizedAttention { form, scratch: scratch_elements(depth, keys, 1)? })
}

/// custom_quantized_sdpa.
pub static OPERATORS: &[Operator] = &[kernel(
    "llama::custom_quantized_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, Tensor? q_zero_points=None, Tensor? q_scales=None, Tensor? k_zero_points=None, Tensor? k_scales=None, Tensor? v_zero_points=None, Tensor? v_scales=None, bool is_seq_at_dim_2=False, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, numbers};
    use pteron_core::{DType, Result};

    const QUANTISED: &str = "llama::custom_quantized_sdpa.out";

    /// Numbers, scales and zero points, and what they stand for; one sequence of `rows` rows of `heads` heads of 6.
    struct Drawn {
        numbers: Tensor,
        scales: Tensor,
        zero_points: Tensor,
        values: Tensor,
    }

    fn drawn(rows: usize, heads: usize, seed: u64, heads_first: bool) -> Drawn {
        let [first, second] = if heads_first { [heads, rows] } else { [rows, heads] };
        let stored: Vec<i8> = numbers(6 * rows * heads, seed).iter().map(|v| (v * 31.0) as i8).collect();
        let scales: Vec<f32> =
            numbers(rows * heads, seed + 1).iter().map(|v| v.abs() / 400.0 + 0.005).collect();
        let zeros: Vec<i8> = numbers(rows * heads, seed + 2).iter().map(|v| (v * 8.0) as i8).collect();
        let meaning = |i: usize| (f32::from(stored[i]) - f32::from(zeros[i / 6])) * scales[i / 6];
        let values: Vec<f32> = (0..stored.len()).map(meaning).collect();
        Drawn {
            numbers: Tensor::of(&[1, first, second, 6], &stored),
            scales: Tensor::of(&[1, first, second, 1], &scales),
            zero_points: Tensor::of(&[1, first, second, 1], &zeros),
            values: Tensor::of(&[1, first, second, 6], &values),
        }
    }

    fn quantised(
        parts: &[Drawn; 3],
        start: i64,
        mask: Option<&Tensor>,
        heads_first: bool,
    ) -> Result<Vec<f32>> {
        let tensor = |t: &Tensor| Arg::Tensor(t.clone());
        let mut args: Vec<Arg> = parts.iter().map(|p| tensor(&p.numbers)).collect();
        args.extend([start.into(), mask.map_or(Arg::None, tensor)]);
        args.extend([0.0.into(), mask.is_none().into(), Arg::None]);
        args.extend(parts.iter().flat_map(|p| [tensor(&p.zero_points), tensor(&p.scales)]));
        args.push(heads_first.into());
        args.push(Tensor::output(DType::Float32, parts[0].numbers.shape()).into());
        match call(QUANTISED, &args)?.pop() {
            Some(Arg::Tensor(out)) => Ok(out.values()),
            _ => panic!("no tensor"),
        }
    }

    fn float(parts: &[Drawn; 3], start: i64, mask: Option<&Tensor>) -> Vec<f32> {
        let mut args: Vec<Arg> = parts.iter().map(|p| Arg::Tensor(p.values.clone())).collect();
        args.extend([start.into(), mask.map_or(Arg::None, |mask| Arg::Tensor(mask.clone()))]);
        args.extend([0.0.into(), mask.is_none().into(), Arg::None]);
        args.push(Tensor::output(DType::Float32, parts[0].values.shape()).into());
        match call("llama::custom_sdpa.out", &args).unwrap().pop() {
            Some(Arg::Tensor(out)) => out.values(),
            _ => panic!("no tensor"),
        }
    }

    fn assert_near(got: &[f32], expected: &[f32]) {
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
        assert_eq!(got.len(), expected.len());
    }

    #[test]
    fn numbers_stand_for_what_their_rows_say() {
        let parts = [drawn(3, 4, 1, false), drawn(7, 2, 5, false), drawn(7, 2, 9, false)];
        for start in [0, 2, 4] {
            assert_near(&quantised(&parts, start, None, false).unwrap(), &float(&parts, start, None));
        }
        let mask = Tensor::of(&[3, 7], &numbers(21, 3));
        assert_near(&quantised(&parts, 0, Some(&mask), false).unwrap(), &float(&parts, 0, Some(&mask)));
    }

    #[test]
    fn heads_may_stand_before_rows() {
        // One row: both orders are the same bytes.
        let parts = |first: bool| [drawn(1, 4, 1, first), drawn(1, 2, 5, first), drawn(1, 2, 9, first)];
        let expected = quantised(&parts(false), 0, None, false).unwrap();
        assert_eq!(quantised(&parts(true), 0, None, true).unwrap(), expected);
        // One head: likewise.
        let parts = |first: bool| [drawn(3, 1, 1, first), drawn(7, 1, 5, first), drawn(7, 1, 9, first)];
        let expected = quantised(&parts(false), 2, None, false).unwrap();
        assert_eq!(quantised(&parts(true), 2, None, true).unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut parts = [drawn(3, 4, 1, false), drawn(7, 2, 5, false), drawn(7, 2, 9, false)];
        assert!(error_text(quantised(&parts, 5, None, false)).contains("no room"));
        parts[1].scales = drawn(6, 2, 5, false).scales;
        assert!(error_text(quantised(&parts, 0, None, false)).contains("the scales"));
        parts[1].scales = Tensor::of(&[1, 7, 2, 1], &[0f64; 14]);
        assert!(error_text(quantised(&parts, 0, None, false)).contains("float32"));
    }
}
