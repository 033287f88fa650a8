//! _native_batch_norm_legit_no_training on f32: y = x · scale + shift per channel (dimension 1), with
//! scale = weight / sqrt(running_var + eps) and shift = bias - running_mean · scale.

use super::moments::affine;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, Scratch,
    StaticKernel, WorkerScratch,
};

const INPUT: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const RUNNING_MEAN: usize = 3;
const RUNNING_VAR: usize = 4;
const EPS: usize = 6;
const OUT: usize = 7;
const SAVED: [usize; 2] = [8, 9];
/// Elements of a chunk, about.
const CHUNK: usize = 16 << 10;

struct BatchNorm {
    level: SimdLevel,
    name: String,
    /// Channels at most.
    channels: usize,
    /// Is the channel the innermost dimension in memory?
    is_channels_last: bool,
}

/// The tensor in memory order: `outer` × channels × `inner`, `inner` = 1 for channels-last.
#[derive(Debug, Clone, Copy, Default)]
struct Planes {
    count: usize,
    inner: usize,
    channels: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let is_f32 = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32);
    let is_f32_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_f32(i);
    let fits = [INPUT, RUNNING_MEAN, RUNNING_VAR, OUT].into_iter().all(is_f32)
        && [WEIGHT, BIAS].into_iter().all(is_f32_or_absent);
    let (Some(input), Some(out)) = (ctx.tensor(INPUT), ctx.tensor(OUT)) else { return Ok(None) };
    let order = input.dim_order.as_slice();
    let is_channels_last = order.len() > 2 && order.last() == Some(&1) && order.first() == Some(&0);
    if !fits || order.len() < 2 || input.dim_order != out.dim_order {
        return Ok(None);
    }
    if !(input.dim_order.is_contiguous() || is_channels_last) {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("batch_norm.f32.{}", level.isa().name());
    Ok(Some(Box::new(BatchNorm { level, name, channels: input.shape[1], is_channels_last })))
}

impl Prepared for BatchNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        let rows = if self.is_channels_last { 2 } else { 0 };
        Scratch { per_worker: rows * self.channels * size_of::<f32>(), shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        AliasRule::InPlace
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Planes::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let input = args.args().tensor(INPUT)?;
        let (shape, numel) = (*input.shape(), input.numel());
        let channels = shape[1];
        for (i, name) in
            [(WEIGHT, "weight"), (BIAS, "bias"), (RUNNING_MEAN, "running_mean"), (RUNNING_VAR, "running_var")]
        {
            if let Some(t) = args.args().optional_tensor(i)?
                && t.numel() != channels
            {
                return Err(Error::kernel("a batch norm parameter does not have one element per channel")
                    .argument(name)
                    .expected(format!("[{channels}] for an input of shape {shape}"))
                    .got(t.shape().to_string()));
            }
        }
        args.resize(OUT, &shape)?;
        for i in SAVED {
            args.resize(i, &[0])?;
        }
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let inner = if self.is_channels_last { channels } else { numel / (shape[0] * channels) };
        let count = numel / inner;
        let per_chunk = CHUNK.div_ceil(inner);
        *bound.get_mut::<Planes>()? = Planes { count, inner, channels, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * inner / 5))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let planes = *bound.get::<Planes>()?;
        let first = chunk as usize * planes.per_chunk;
        let parameter = |i: usize| -> Result<*const f32> {
            args.optional_tensor(i)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<f32>())
        };
        let parameters = Parameters {
            weight: parameter(WEIGHT)?,
            bias: parameter(BIAS)?,
            mean: parameter(RUNNING_MEAN)?,
            var: parameter(RUNNING_VAR)?,
            eps: args.double(EPS)?,
        };
        let task = PlanesTask {
            input: args.tensor(INPUT)?.ptr()?,
            out: args.output(OUT)?.ptr()?,
            parameters,
            planes,
            range: first..(first + planes.per_chunk).min(planes.count),
            table: self.is_channels_last.then_some(scratch.worker.as_mut_ptr().cast()),
        };
        self.level.dispatch(task);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Parameters {
    weight: *const f32,
    bias: *const f32,
    mean: *const f32,
    var: *const f32,
    eps: f64,
}

impl Parameters {
    /// (scale, shift) of a channel.
    ///
    /// # Safety
    /// `c` is a channel.
    #[inline(always)]
    unsafe fn of_channel(&self, c: usize) -> (f32, f32) {
        // SAFETY: one element per channel behind every pointer that is not null.
        unsafe {
            let invstd = (1.0 / (f64::from(*self.var.add(c)) + self.eps).sqrt()) as f32;
            let scale = if self.weight.is_null() { invstd } else { invstd * *self.weight.add(c) };
            let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(c) };
            (scale, bias - *self.mean.add(c) * scale)
        }
    }
}

struct PlanesTask {
    input: *const f32,
    out: *mut f32,
    parameters: Parameters,
    planes: Planes,
    range: std::ops::Range<usize>,
    /// Channels-last: room for scales and shifts of all channels.
    table: Option<*mut f32>,
}

impl SimdTask for PlanesTask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Planes { inner, channels, .. } = self.planes;
        // SAFETY: planes of `range` lie inside both tensors; the table holds 2 · channels elements.
        unsafe {
            let Some(table) = self.table else {
                for plane in self.range {
                    let (scale, shift) = self.parameters.of_channel(plane % channels);
                    affine(
                        s,
                        self.input.add(plane * inner),
                        self.out.add(plane * inner),
                        inner,
                        scale,
                        shift,
                    );
                }
                return;
            };
            for c in 0..channels {
                let (scale, shift) = self.parameters.of_channel(c);
                *table.add(c) = scale;
                *table.add(channels + c) = shift;
            }
            for pixel in self.range {
                let (x, y) = (self.input.add(pixel * channels), self.out.add(pixel * channels));
                let mut i = 0;
                while i < channels {
                    let m = S::LANES.min(channels - i);
                    let scale = s.load_up_to(table.add(i), m);
                    let shift = s.load_up_to(table.add(channels + i), m);
                    s.store_up_to(y.add(i), s.fma(s.load_up_to(x.add(i), m), scale, shift), m);
                    i += m;
                }
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::_native_batch_norm_legit_no_training.out(Tensor input, Tensor? weight, Tensor? bias, \
             Tensor running_mean, Tensor running_var, float momentum, float eps, *, Tensor(a!) out0, Tensor(b!) out1, \
             Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    variant: "f32",
    prepare,
}];
