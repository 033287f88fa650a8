//! Products and convolutions in integers: what was dequantise, operator, (clamp,) quantise.
//!
//! Layers: `spec` and `sum` (what is computed) → `columns` (factors, limits, biases) → `dots` (dot products of bytes per instruction
//! set) → `finish`, `tile` and `gather` (the epilogue, the micro-kernel, rows of bytes) → `kit` (what is compiled, and which of it a
//! processor gets) → `product` (blocks, chunk grid) → `linear`, `convolution`, `depthwise` (the kernels).
//! `nibbles` has the products of 4-bit weights.
//!
//! Sums are exact, and the floats behind them are computed in one order (`columns`), so every instruction set and any
//! number of threads give the same bytes. Weights are read from [`crate::packed::s8_nr32k4_v1`].

mod choose_rows;
mod columns;
mod convolution;
mod depthwise;
#[cfg(target_arch = "x86_64")]
mod depthwise_pairs;
mod depthwise_pixels;
mod dots;
mod finish;
mod gather;
mod kit;
mod linear;
#[cfg(target_arch = "aarch64")]
mod neon_tile;
mod nibbles;
mod planes;
mod product;
mod spec;
mod sum;
#[cfg(test)]
mod tests;
mod tile;
mod window;

pub use nibbles::{NibbleProduct, prepare_nibbles, takes_groups};
pub use spec::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec, RowScheme};
pub use sum::{IntegerSum, Summand};

use columns::Numbers;
use kit::Kit;
use pteron_core::PrepareContext;
use pteron_kernels::grid_kernel::Preparation;
use window::Call;

/// Prepares the kernel of `spec`; `None` when none takes these arguments: a weight, scale or bias that is no constant, tensors
/// of another type or memory order than [`IntegerSpec`] says, numbers that are not finite, sums that could leave i32.
pub fn prepare(ctx: &PrepareContext<'_>, spec: &IntegerSpec) -> Preparation {
    prepare_with(ctx, spec, |_| true)
}

/// As [`prepare`], with kits that `is_wanted` lets through.
fn prepare_with(
    ctx: &PrepareContext<'_>,
    spec: &IntegerSpec,
    is_wanted: impl Fn(&Kit) -> bool,
) -> Preparation {
    let allowed =
        || Kit::available().filter(|(isa, kit)| *isa <= ctx.cpu.isa && is_wanted(kit)).map(|(_, kit)| kit);
    let Some(best) = allowed().next() else {
        return Ok(None);
    };
    if let IntegerOperation::Linear { is_weight_transposed } = spec.operation {
        return linear::prepare(ctx, spec, is_weight_transposed, best);
    }
    if matches!(spec.input, IntegerInput::Rows { .. }) {
        return Ok(None);
    }
    let Some(call) = Call::of(ctx, spec) else {
        return Ok(None);
    };
    let geometry = &call.geometry;
    let Some(numbers) = Numbers::of(ctx, spec, geometry.total_out_channels(), geometry.depth())? else {
        return Ok(None);
    };
    if depthwise::takes(&call) {
        if call.summand.is_some() {
            return Ok(None);
        }
        return depthwise::prepare(ctx, call, numbers, &allowed().collect::<Vec<_>>());
    }
    convolution::prepare(ctx, call, numbers, best)
}
