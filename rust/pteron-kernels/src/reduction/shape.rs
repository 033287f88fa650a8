//! Which elements a reduction combines: the reduced dimensions must be neighbours in memory, so that every
//! reduction is `outer × reduced × inner`.

use crate::shape::wrap_dim;
use pteron_core::{ArgSpec, Args, BindArgs, DimOrder, Dims, MAX_RANK, PrepareContext, Result, TensorSpec};

/// Dimensions that are reduced, as a bit per dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReducedDims {
    mask: u32,
    keepdim: bool,
}

/// Extents of a reduction in memory order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Independent stretches.
    pub outer: usize,
    /// Elements combined into one.
    pub reduced: usize,
    /// Neighbouring independent elements.
    pub inner: usize,
}

impl Volumes {
    /// How many units of work there are and the elements of one: a stretch whose elements are neighbours, else
    /// `columns` neighbouring results of a stretch.
    pub fn units(&self, columns: usize) -> (usize, usize) {
        match self.inner {
            1 => (self.outer, self.reduced),
            inner => (self.outer * inner.div_ceil(columns), self.reduced * inner.min(columns)),
        }
    }
}

/// Where an operator keeps its dimensions and `keepdim`.
#[derive(Debug, Clone, Copy)]
pub enum DimsArg {
    /// Everything is reduced.
    All,
    /// One dimension at 1, `keepdim` at 2.
    One,
    /// A list at 1 (absent or empty: all), `keepdim` at 2.
    List,
    /// The same behind another argument: a list at 2, `keepdim` at 3.
    Second,
    /// The same with an argument between them: a list at 1, `keepdim` at 3.
    Apart,
}

impl ReducedDims {
    /// What the operator's arguments say, when they are known.
    fn of(ctx: &PrepareContext<'_>, input: &TensorSpec, form: DimsArg) -> Option<Self> {
        let rank = input.shape.len();
        let all = ((1u64 << rank) - 1) as u32;
        if matches!(form, DimsArg::All) {
            return Some(ReducedDims { mask: all, keepdim: false });
        }
        let at = if matches!(form, DimsArg::Second) { 2 } else { 1 };
        let keepdim_at = if matches!(form, DimsArg::Apart) { 3 } else { at + 1 };
        let keepdim = match ctx.args.get(keepdim_at)? {
            ArgSpec::Bool(known) => (*known)?,
            _ => return None,
        };
        let dims = match (form, ctx.args.get(at)?) {
            (DimsArg::One, ArgSpec::Int(known)) => vec![(*known)?],
            (_, ArgSpec::None) => vec![],
            (_, list) => list.ints()?,
        };
        let mut mask = 0;
        for dim in &dims {
            let bit = 1u32 << wrap_dim(*dim, rank).ok()?;
            // The plain kernel says what is wrong with a dimension that is listed twice.
            if mask & bit != 0 {
                return None;
            }
            mask |= bit;
        }
        Some(ReducedDims { mask: if dims.is_empty() { all } else { mask }, keepdim })
    }

    /// The dimensions that `ctx` reduces, if they are neighbours in the memory of argument 0 and output
    /// `out` keeps the order of the others.
    pub fn neighbours(ctx: &PrepareContext<'_>, out: usize, form: DimsArg) -> Option<Self> {
        let (input, output) = (ctx.tensor(0)?, ctx.tensor(out)?);
        let dims = Self::of(ctx, input, form)?;
        let order = input.dim_order.as_slice();
        let is_reduced = |d: &u8| dims.mask & (1 << d) != 0;
        let first = order.iter().position(is_reduced).unwrap_or(0);
        let count = order.iter().filter(|d| is_reduced(d)).count();
        let is_adjacent = order.iter().skip(first).take(count).all(is_reduced);
        // The kept dimensions in memory order, renumbered as in the output.
        let renumber = |d: u8| (0..d).filter(|k| dims.keepdim || !is_reduced(k)).count() as u8;
        let kept = order.iter().filter(|d| !is_reduced(d)).map(|d| renumber(*d));
        let rank_out = if dims.keepdim { order.len() } else { order.len() - count };
        let is_reduced_out = |d: &u8| dims.keepdim && is_reduced(d);
        let have = output.dim_order.as_slice().iter().filter(|d| !is_reduced_out(d)).copied();
        (is_adjacent && output.shape.len() == rank_out && kept.eq(have)).then_some(dims)
    }

    /// Volumes for the input as it is now; gives the output its shape.
    pub fn bind(&self, args: &mut BindArgs<'_>, out: usize) -> Result<Volumes> {
        let (shape, volumes) = self.measure(&args.args())?;
        args.resize(out, &shape)?;
        Ok(volumes)
    }

    fn measure(&self, args: &Args<'_>) -> Result<(Dims, Volumes)> {
        let input = args.tensor(0)?;
        let is_reduced = |d: usize| self.mask & (1 << d) != 0;
        let mut shape = Dims::EMPTY;
        for (d, n) in input.shape().iter().enumerate() {
            if !is_reduced(d) {
                shape.push(*n)?;
            } else if self.keepdim {
                shape.push(1)?;
            }
        }
        Ok((shape, self.volumes(input.shape(), input.meta().dim_order())))
    }

    /// The volumes of the largest input that `ctx` allows.
    pub fn most(&self, ctx: &PrepareContext<'_>) -> Volumes {
        ctx.tensor(0).map_or(Volumes::default(), |input| self.volumes(&input.shape, &input.dim_order))
    }

    /// Extents of no tensor that fits into memory, which has to be known before they are used, saturate.
    fn volumes(&self, shape: &[usize], order: &DimOrder) -> Volumes {
        let is_reduced = |d: usize| self.mask & (1 << d) != 0;
        let mut volumes = Volumes { outer: 1, reduced: 1, inner: 1 };
        let mut is_past = false;
        for d in order.as_slice().iter().map(|d| (*d as usize).min(MAX_RANK)) {
            let n = shape[d];
            let volume = if is_reduced(d) {
                is_past = true;
                &mut volumes.reduced
            } else if is_past {
                &mut volumes.inner
            } else {
                &mut volumes.outer
            };
            *volume = volume.saturating_mul(n);
        }
        volumes
    }
}
