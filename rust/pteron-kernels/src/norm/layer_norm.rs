//! native_layer_norm of floats, computed in f32: y = (x - mean) · rstd · weight + bias over the trailing dimensions, with mean
//! and rstd as further outputs. Rows are independent; each is read three times from the nearest cache.

use super::moments::moments;
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, DType, Dims, Element, Error, Grid, PrepareContext, Prepared, Result,
    StaticKernel, WorkerScratch,
};

const INPUT: usize = 0;
const NORMALIZED_SHAPE: usize = 1;
const WEIGHT: usize = 2;
const BIAS: usize = 3;
const EPS: usize = 4;
const OUT: usize = 5;
const MEAN: usize = 6;
const RSTD: usize = 7;
/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 8 << 10;

struct LayerNorm {
    level: SimdLevel,
    name: String,
    dtype: DType,
    normalized_rank: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    count: usize,
    length: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let Some(dtype) = ctx.tensor(INPUT).map(|t| t.dtype) else { return Ok(None) };
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    let is_plain_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_plain(i);
    let fits = [INPUT, OUT, MEAN, RSTD].into_iter().all(is_plain)
        && [WEIGHT, BIAS].into_iter().all(is_plain_or_absent);
    let Some(ArgSpec::IntList(normalized)) = ctx.args.get(NORMALIZED_SHAPE) else { return Ok(None) };
    let is_float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
    // Rows of nothing have a mean that is not a number.
    let shape = ctx.tensor(INPUT).map(|t| t.shape).unwrap_or(Dims::EMPTY);
    let is_nothing = shape.iter().rev().take(normalized.len()).any(|e| *e == 0);
    if !fits || !is_float || normalized.is_empty() || is_nothing {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    let name = format!("layer_norm.{text}.{}", level.isa().name());
    Ok(Some(Box::new(LayerNorm { level, name, dtype, normalized_rank: normalized.len() })))
}

impl LayerNorm {
    fn row_length(&self, args: &Args<'_>) -> Result<usize> {
        let shape = *args.tensor(INPUT)?.shape();
        let normalized = args.int_list(NORMALIZED_SHAPE)?.to_dims()?;
        let outer = shape.len().checked_sub(self.normalized_rank);
        if outer.is_none_or(|outer| shape[outer..] != *normalized) {
            return Err(Error::kernel("normalized_shape does not match the input")
                .expected(format!("the last dimensions of {shape}"))
                .got(normalized.to_string()));
        }
        let length = normalized.numel()?;
        for i in [WEIGHT, BIAS] {
            if let Some(t) = args.optional_tensor(i)?
                && *t.shape() != normalized
            {
                return Err(Error::kernel("weight or bias has another shape than normalized_shape")
                    .argument(if i == WEIGHT { "weight" } else { "bias" })
                    .expected(normalized.to_string())
                    .got(t.shape().to_string()));
            }
        }
        Ok(length)
    }
}

impl Prepared for LayerNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let length = self.row_length(&args.args())?;
        let input = args.args().tensor(INPUT)?;
        let (shape, numel): (Dims, usize) = (*input.shape(), input.numel());
        let mut reduced = shape;
        let outer = shape.len() - self.normalized_rank;
        reduced[outer..].fill(1);
        args.resize(OUT, &shape)?;
        args.resize(MEAN, &reduced)?;
        args.resize(RSTD, &reduced)?;
        if length == 0 && reduced.numel()? > 0 {
            return Err(Error::kernel("layer norm over no elements").got(format!("input {shape}")));
        }
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let count = numel / length;
        let per_chunk = CHUNK.div_ceil(length);
        *bound.get_mut::<Rows>()? = Rows { count, length, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * length / 3))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let rows = *bound.get::<Rows>()?;
        match self.dtype {
            DType::Float16 => self.chunk::<f16>(&rows, args, chunk as usize),
            DType::BFloat16 => self.chunk::<bf16>(&rows, args, chunk as usize),
            _ => self.chunk::<f32>(&rows, args, chunk as usize),
        }
    }
}

impl LayerNorm {
    /// The rows of a chunk, of tensors whose elements are `T`.
    fn chunk<T: Source + Sink + Element>(&self, rows: &Rows, args: &Args<'_>, chunk: usize) -> Result<()> {
        let first = chunk * rows.per_chunk;
        let parameter = |i: usize| -> Result<*const T> {
            args.optional_tensor(i)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<T>())
        };
        let at = first * rows.length;
        self.level.dispatch(RowsTask::<T> {
            input: args.tensor(INPUT)?.ptr::<T>()?.wrapping_add(at),
            weight: parameter(WEIGHT)?,
            bias: parameter(BIAS)?,
            eps: args.double(EPS)?,
            out: args.output(OUT)?.ptr::<T>()?.wrapping_add(at),
            mean: args.output(MEAN)?.ptr::<T>()?.wrapping_add(first),
            rstd: args.output(RSTD)?.ptr::<T>()?.wrapping_add(first),
            count: rows.per_chunk.min(rows.count - first),
            length: rows.length,
        });
        Ok(())
    }
}

struct RowsTask<T> {
    input: *const T,
    /// Null when absent.
    weight: *const T,
    /// Null when absent.
    bias: *const T,
    eps: f64,
    out: *mut T,
    mean: *mut T,
    rstd: *mut T,
    count: usize,
    length: usize,
}

impl<T: Source + Sink> SimdTask for RowsTask<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.count {
            // SAFETY: `count` rows of `length` elements behind input and out, `count` elements behind
            // mean and rstd, `length` behind weight and bias where they are not null.
            unsafe {
                let x = self.input.add(row * self.length);
                let y = self.out.add(row * self.length);
                let (mean, rstd) = moments(s, x, self.length, self.eps);
                *self.mean.add(row) = T::of_number(mean);
                *self.rstd.add(row) = T::of_number(rstd);
                let (mean, rstd) = (s.splat(mean), s.splat(rstd));
                let mut i = 0;
                while i < self.length {
                    let m = S::LANES.min(self.length - i);
                    let mut v = s.mul(s.sub(load_up_to(s, x.add(i), m), mean), rstd);
                    let b = if self.bias.is_null() { s.zero() } else { load_up_to(s, self.bias.add(i), m) };
                    v = if self.weight.is_null() {
                        s.add(v, b)
                    } else {
                        s.fma(v, load_up_to(s, self.weight.add(i), m), b)
                    };
                    store_up_to(s, y.add(i), v, m);
                    i += m;
                }
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, \
             float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    variant: "rows",
    prepare,
}];
