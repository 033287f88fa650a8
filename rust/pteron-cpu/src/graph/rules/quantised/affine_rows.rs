//! torchao's `choose_qparams_affine`, `quantize_affine` and `dequantize_affine` of rows as a file has them: decomposed.
//!
//! *Before*, of floats x, with l and h the least and the largest of a row and of zero: `s = clamp((h - l) / 255, least)`,
//! `z = int8(clamp(-128 - round(l / s), -128, 127))`, `q = int8(clamp(round(x * (1 / s)) + z, -128, 127))`, `y = (q - z) * s`.
//! Symmetric, without y: `s = clamp(max(-l, h) / 127.5, least)`, `z = 0`.

use super::affine_reader::{Quantised, Reader};
use crate::graph::{Graph, Host, TensorId};
use crate::integer::RowScheme;
use pteron_core::DType;

/// The floats that `y` is made of so, and the scheme.
pub(super) fn rows_by_affine(graph: &Graph, host: &dyn Host, y: TensorId) -> Option<(RowScheme, TensorId)> {
    let g = Reader { graph, host };
    let [difference, scale] = g.call(y, "aten::mul.out")?;
    let [q, zero] = g.plain(difference, "aten::sub.out")?;
    let q = g.cast(q, |from, to| from == DType::Int8 && to == DType::Float32)?;
    let Quantised { floats, scale: again, zero: added } = g.quantised(q)?;
    let chosen_zero = g.unseen(g.cast(zero, |from, to| is_whole(from) && to == DType::Float32)?);
    let chosen_scale = g.unseen(scale);
    let is_alike = added == zero && again == scale;

    let (ends, least_scale) = g.at_least(chosen_scale)?;
    let [spread, steps] = g.call(ends, "aten::div.out")?;
    let [high, low] = g.plain(spread, "aten::sub.out")?;
    let limited = g.cast(chosen_zero, |from, to| from == DType::Float32 && is_whole(to))?;
    let [lowest, moved] = g.plain(g.limits(limited)?, "aten::sub.out")?;
    let divided = g.call(g.only(moved, "aten::round.out")?, "aten::div.out")?;
    let is_chosen = divided == [low, chosen_scale]
        && g.is_number(steps, 255.0)
        && g.is_number(lowest, -128.0)
        && g.is_least(low, floats)
        && g.is_largest(high, floats);

    let are_rows = graph.tensor(y).spec == graph.tensor(floats).spec
        && g.are_rows(floats)
        && [zero, scale].iter().all(|t| g.is_by_row(*t, floats));
    (is_alike && is_chosen && are_rows && is_scale(least_scale))
        .then_some((RowScheme::PerRow { least_scale }, floats))
}

/// Floats whose rows are quantised symmetrically.
pub(super) struct SymmetricRows {
    pub floats: TensorId,
    /// One number for each row.
    pub scale: TensorId,
    pub scheme: RowScheme,
}

/// The floats that the bytes `q` are made of so.
pub(super) fn symmetric_rows(graph: &Graph, host: &dyn Host, q: TensorId) -> Option<SymmetricRows> {
    let g = Reader { graph, host };
    let Quantised { floats, scale, zero } = g.quantised(q)?;
    let zeros = g.unseen(g.cast(zero, |from, to| is_whole(from) && to == DType::Float32)?);
    let zeros = g.cast(zeros, |from, to| from == DType::Float32 && is_whole(to))?;

    let scale = g.unseen(scale);
    let (ends, least_scale) = g.at_least(scale)?;
    let [most, steps] = g.call(ends, "aten::div.out")?;
    let [negated, high] = g.call(most, "aten::maximum.out")?;
    let is_chosen = g.is_number(steps, 127.5)
        && g.is_least(g.only(negated, "aten::neg.out")?, floats)
        && g.is_largest(high, floats)
        && g.are_zeros(zeros);
    let are_rows = g.are_rows(floats)
        && graph.tensor(q).spec.shape == graph.tensor(floats).spec.shape
        && [zero, scale].iter().all(|t| g.is_by_row(*t, floats));
    (is_chosen && are_rows && is_scale(least_scale)).then_some(SymmetricRows {
        floats,
        scale,
        scheme: RowScheme::Symmetric { least_scale },
    })
}

fn is_whole(dtype: DType) -> bool {
    matches!(dtype, DType::Int8 | DType::Int32 | DType::Int64)
}

/// Is a scale of nothing but zeros a number, and its inverse?
fn is_scale(least: f32) -> bool {
    (f32::MIN_POSITIVE..1e30).contains(&least)
}

#[cfg(test)]
mod tests;
