//! The tensors of a call as the kernels of this family see them. Unsafe island (raw pointers only).
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::geometry::{BIAS, Extents, Geometry, INPUT, OUT, WEIGHT};
use crate::epilogue::Epilogue;
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, TensorSpec};
use pteron_kernels::vector_math::SimdLevel;

/// Addresses of a call's tensors.
#[derive(Clone, Copy)]
pub struct Operands {
    /// First element of the input.
    pub input: *const f32,
    /// One element per output channel; null when absent.
    pub bias: *const f32,
    /// A tensor like the output that is added; null when absent.
    pub residual: *const f32,
    /// First element of the output.
    pub out: *mut f32,
}

impl Operands {
    /// The tensors of `args`.
    pub fn of(args: &Args<'_>, epilogue: &Epilogue) -> Result<Self> {
        let residual = match epilogue.residual {
            Some(i) => args.tensor(i)?.ptr()?,
            None => std::ptr::null(),
        };
        Ok(Operands {
            input: args.tensor(INPUT)?.ptr()?,
            bias: args.optional_tensor(BIAS)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<f32>())?,
            residual,
            out: args.output(OUT)?.ptr()?,
        })
    }
}

/// What `bind` begins with in every kernel of this family: the output gets its shape, bias and residual are
/// checked. Returns the extents of the call.
pub fn bind_shapes(args: &mut BindArgs<'_>, geometry: &Geometry, epilogue: &Epilogue) -> Result<Extents> {
    let extents = geometry.extents(args.args().tensor(INPUT)?.shape())?;
    let shape = geometry.output_shape(&extents)?;
    args.resize(OUT, &shape)?;
    check_bias(&args.args(), geometry)?;
    check_residual(&args.args(), epilogue, &shape)?;
    Ok(extents)
}

/// An error when the bias does not have one element per output channel.
pub(super) fn check_bias(args: &Args<'_>, geometry: &Geometry) -> Result<()> {
    match args.optional_tensor(BIAS)? {
        Some(bias) if bias.numel() != geometry.total_out_channels() => {
            Err(Error::kernel("the bias of a convolution does not have one element per output channel")
                .argument("bias")
                .expected(format!("[{}]", geometry.total_out_channels()))
                .got(bias.shape().to_string()))
        }
        _ => Ok(()),
    }
}

/// An error when the residual does not have the output's shape.
fn check_residual(args: &Args<'_>, epilogue: &Epilogue, out: &Dims) -> Result<()> {
    let Some(i) = epilogue.residual else { return Ok(()) };
    let residual = args.tensor(i)?;
    if residual.shape() != out {
        return Err(Error::kernel("what is added to a convolution does not have the shape of its result")
            .expected(out.to_string())
            .got(residual.shape().to_string()));
    }
    Ok(())
}

/// Can the kernels of this family apply `epilogue` when they write a tensor like `out`?
pub fn is_supported(epilogue: &Epilogue, ctx: &PrepareContext<'_>, out: &TensorSpec) -> bool {
    let is_residual = |i: usize| {
        let is_alike = |t: &TensorSpec| {
            t.dtype == DType::Float32 && t.shape.len() == out.shape.len() && t.dim_order == out.dim_order
        };
        ![INPUT, WEIGHT, BIAS, OUT].contains(&i) && ctx.tensor(i).is_some_and(is_alike)
    };
    epilogue.residual.is_none_or(is_residual) && epilogue.post.as_ref().is_none_or(|p| p.inputs() == 1)
}

/// Runs the program of `epilogue`, if there is one, in place on a block of the output that is finished but for
/// it.
///
/// # Safety
/// Rows of the block, `stride` apart, are writable.
pub unsafe fn apply_post(
    epilogue: &Epilogue,
    level: SimdLevel,
    block: *mut f32,
    stride: usize,
    extents: [usize; 2],
    scratch: &mut [f32],
) {
    if let Some(post) = &epilogue.post {
        // SAFETY: the caller's promise; programs of other than one input are refused in `prepare`.
        unsafe { post.apply(level, block, stride, extents, scratch) };
    }
}

/// Floats of worker scratch that [`apply_post`] needs.
pub fn post_floats(epilogue: &Epilogue) -> usize {
    epilogue.post.as_ref().map_or(0, |p| p.scratch_floats())
}
