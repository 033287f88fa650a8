//! native_group_norm on row-major f32: each group of channels of each image is normalised by its own mean
//! and deviation, then scaled and shifted per channel.

use super::moments::{affine, moments};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

const INPUT: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const IMAGES: usize = 3;
const CHANNELS: usize = 4;
const PIXELS: usize = 5;
const GROUPS: usize = 6;
const EPS: usize = 7;
const OUT: usize = 8;
const MEAN: usize = 9;
const RSTD: usize = 10;

struct GroupNorm {
    level: SimdLevel,
    name: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Groups {
    groups: usize,
    channels_per_group: usize,
    pixels: usize,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let is_plain =
        |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32 && t.dim_order.is_contiguous());
    let is_plain_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_plain(i);
    let fits = [INPUT, OUT, MEAN, RSTD].into_iter().all(is_plain)
        && [WEIGHT, BIAS].into_iter().all(is_plain_or_absent);
    if !fits {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(GroupNorm { level, name: format!("group_norm.f32.{}", level.isa().name()) })))
}

impl Prepared for GroupNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Groups::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let a = args.args();
        let input = a.tensor(INPUT)?;
        let (shape, numel) = (*input.shape(), input.numel());
        let size = |i: usize| -> Result<usize> {
            let v = a.int(i)?;
            usize::try_from(v).map_err(|_| Error::kernel("negative extent").got(v.to_string()))
        };
        let (images, channels, pixels, groups) =
            (size(IMAGES)?, size(CHANNELS)?, size(PIXELS)?, size(GROUPS)?);
        let volume = images.checked_mul(channels).and_then(|v| v.checked_mul(pixels));
        if volume != Some(numel) || groups == 0 || channels % groups != 0 {
            return Err(Error::kernel("group norm sizes do not fit the input")
                .expected(format!("N · C · HxW elements of {shape} and C divisible by the groups"))
                .got(format!("N {images}, C {channels}, HxW {pixels}, {groups} groups")));
        }
        for i in [WEIGHT, BIAS] {
            if let Some(t) = a.optional_tensor(i)?
                && t.numel() != channels
            {
                return Err(Error::kernel("a group norm parameter does not have one element per channel")
                    .argument(if i == WEIGHT { "weight" } else { "bias" })
                    .expected(format!("[{channels}]"))
                    .got(t.shape().to_string()));
            }
        }
        args.resize(OUT, &shape)?;
        args.resize(MEAN, &[images, groups])?;
        args.resize(RSTD, &[images, groups])?;
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let channels_per_group = channels / groups;
        *bound.get_mut::<Groups>()? = Groups { groups, channels_per_group, pixels };
        Ok(Grid::chunks(images * groups, channels_per_group * pixels / 3))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let groups = *bound.get::<Groups>()?;
        let parameter = |i: usize| -> Result<*const f32> {
            args.optional_tensor(i)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<f32>())
        };
        let row = chunk as usize;
        let offset = row * groups.channels_per_group * groups.pixels;
        // SAFETY: `row` is a group of an image, so all four pointers stay inside their tensors.
        let task = unsafe {
            GroupTask {
                input: args.tensor(INPUT)?.ptr::<f32>()?.add(offset),
                out: args.output(OUT)?.ptr::<f32>()?.add(offset),
                mean: args.output(MEAN)?.ptr::<f32>()?.add(row),
                rstd: args.output(RSTD)?.ptr::<f32>()?.add(row),
                weight: parameter(WEIGHT)?,
                bias: parameter(BIAS)?,
                first_channel: row % groups.groups * groups.channels_per_group,
                eps: args.double(EPS)?,
                groups,
            }
        };
        self.level.dispatch(task);
        Ok(())
    }
}

struct GroupTask {
    input: *const f32,
    out: *mut f32,
    mean: *mut f32,
    rstd: *mut f32,
    weight: *const f32,
    bias: *const f32,
    first_channel: usize,
    eps: f64,
    groups: Groups,
}

impl SimdTask for GroupTask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Groups { channels_per_group, pixels, .. } = self.groups;
        // SAFETY: channels_per_group · pixels elements behind input and out, one behind mean and rstd,
        // one per channel behind weight and bias where they are not null.
        unsafe {
            let (mean, rstd) = moments(s, self.input, channels_per_group * pixels, self.eps);
            *self.mean = mean;
            *self.rstd = rstd;
            for c in 0..channels_per_group {
                let channel = self.first_channel + c;
                let scale = if self.weight.is_null() { rstd } else { rstd * *self.weight.add(channel) };
                let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(channel) };
                let at = c * pixels;
                affine(s, self.input.add(at), self.out.add(at), pixels, scale, bias - mean * scale);
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, \
             int group, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) \
             -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    variant: "f32_rows",
    prepare,
}];
