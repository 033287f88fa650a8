//! The shapes of one call: checked, as extents and strides.

use super::chunk_grid::ChunkGrid;
use super::spec::{AttentionSpec, Axes, Causality, Extent, Operand, ShapeCheck};
use pteron_core::{Args, DType, Dims, Error, Result, TensorView};

/// Strides of a tensor in elements, zero for dimensions it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Strides {
    pub batch: usize,
    pub head: usize,
    pub row: usize,
    pub element: usize,
}

/// What is added to the scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum MaskKind {
    #[default]
    None,
    /// f32.
    Added,
    /// bfloat16.
    AddedBrain,
    /// float16.
    AddedBinary,
    /// bool, true: seen.
    Kept,
}

/// Bound shapes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Problem {
    pub batch: usize,
    pub key_heads: usize,
    /// Query heads per key head.
    pub group: usize,
    /// L.
    pub rows: usize,
    /// S.
    pub keys: usize,
    /// D.
    pub depth: usize,
    /// Elements of a value.
    pub width: usize,
    pub query: Strides,
    pub key: Strides,
    pub value: Strides,
    /// Of the factors of int8 keys and values.
    pub factors: [Strides; 2],
    pub out: Strides,
    pub mask_kind: MaskKind,
    /// `element` is the stride from key to key: 0 or 1.
    pub mask: Strides,
    /// Keys that the first query sees; each following one sees one more.
    pub first_limit: Option<usize>,
    pub grid: ChunkGrid,
}

/// Extents of a tensor by meaning.
#[derive(Debug, Clone, Copy)]
struct Extents {
    batch: usize,
    heads: usize,
    rows: usize,
    elements: usize,
}

const WHAT: &str = "shapes do not fit for attention";

fn extents(tensor: &TensorView<'_>, axes: &Axes) -> Result<(Extents, Strides)> {
    if axes.present().count() != tensor.rank() {
        return Err(Error::kernel(WHAT)
            .expected(format!("a tensor of rank {}", axes.present().count()))
            .got(format!("{tensor:?}")));
    }
    let at = |dims: &Dims, axis: Option<u8>, absent: usize| match axis {
        None => Ok(absent),
        Some(axis) => dims
            .get(usize::from(axis))
            .copied()
            .ok_or_else(|| Error::internal("an attention axis is outside its tensor")),
    };
    let (shape, strides) = (tensor.shape(), tensor.strides());
    Ok((
        Extents {
            batch: at(shape, axes.batch, 1)?,
            heads: at(shape, axes.head, 1)?,
            rows: at(shape, Some(axes.row), 1)?,
            elements: at(shape, Some(axes.element), 1)?,
        },
        Strides {
            batch: at(strides, axes.batch, 0)?,
            head: at(strides, axes.head, 0)?,
            row: at(strides, Some(axes.row), 0)?,
            element: at(strides, Some(axes.element), 0)?,
        },
    ))
}

#[cold]
fn mismatch(expected: String, got: &TensorView<'_>) -> Error {
    Error::kernel(WHAT).expected(expected).got(format!("{got:?}"))
}

impl Problem {
    /// The problem of a call, and the shape its output has to take.
    ///
    /// Errors: ranks or extents that do not belong together, query heads that are no multiple of the
    /// key heads, a mask that cannot be broadcast, a negative position or one beyond the keys.
    pub(super) fn of(spec: &AttentionSpec, args: &Args<'_>) -> Result<(Problem, Dims)> {
        let operand = |o: &Operand| {
            let tensor = args.tensor(o.argument)?;
            let (extents, strides) = extents(&tensor, &o.axes)?;
            Ok::<_, Error>((tensor, extents, strides))
        };
        let (_, q, query) = operand(&spec.query)?;
        let (key_tensor, k, key) = operand(&spec.key)?;
        let (value_tensor, v, value) = operand(&spec.value)?;
        if k.batch != q.batch || k.elements != q.elements {
            return Err(mismatch(
                format!("keys of batch {} with {} elements", q.batch, q.elements),
                &key_tensor,
            ));
        }
        if v.batch != k.batch || v.heads != k.heads || v.rows != k.rows {
            return Err(mismatch(
                format!("{} values in batch {} with {} heads", k.rows, k.batch, k.heads),
                &value_tensor,
            ));
        }
        if k.heads == 0 && q.heads != 0 || k.heads != 0 && !q.heads.is_multiple_of(k.heads) {
            return Err(mismatch(
                format!("a number of key heads that divides the {} query heads", q.heads),
                &key_tensor,
            ));
        }
        let mut factors = [Strides::default(); 2];
        if let Some(operands) = &spec.row_factors {
            for ((operand_of, of), strides) in operands.iter().zip([&k, &v]).zip(&mut factors) {
                let (tensor, found, of_rows) = operand(operand_of)?;
                if [found.batch, found.heads, found.rows, found.elements] != [of.batch, of.heads, of.rows, 1]
                {
                    return Err(mismatch(format!("a factor for each of {} rows", of.rows), &tensor));
                }
                *strides = of_rows;
            }
        }
        let keys = keys(spec, args, q.rows, k.rows)?;
        let mut problem = Problem {
            batch: q.batch,
            key_heads: k.heads,
            group: q.heads.checked_div(k.heads).unwrap_or(0),
            rows: q.rows,
            keys,
            depth: q.elements,
            width: v.elements,
            query,
            key,
            value,
            factors,
            first_limit: first_limit(spec, args)?,
            ..Problem::default()
        };
        (problem.mask_kind, problem.mask) = mask(spec, args, [q.batch, q.heads, q.rows, keys])?;
        for check in &spec.checks {
            problem.check(spec, check, args)?;
        }
        problem.grid = ChunkGrid::new(&problem);
        let out = problem.out_shape(spec, &q)?;
        Ok((problem, out))
    }

    /// Errors: the list differs from the extents that it has to be. Where operands count batches and heads
    /// together, only the product of the two is known, and only it matters.
    fn check(&self, spec: &AttentionSpec, check: &ShapeCheck, args: &Args<'_>) -> Result<()> {
        let list = args.int_list(check.argument)?;
        let has = |extent| check.dims.contains(&extent);
        let are_joined = spec.query.axes.batch.is_none() && has(Extent::Batch) && has(Extent::Heads);
        let is_part = |extent: &Extent| are_joined && matches!(extent, Extent::Batch | Extent::Heads);
        let mut fits = list.len() == check.dims.len();
        // The product of the parts; `None` where the view infers one of them.
        let mut joined = Some(1usize);
        for (value, extent) in list.iter().zip(&check.dims) {
            let known = match value? {
                -1 => None,
                value => Some(usize::try_from(value).unwrap_or(usize::MAX)),
            };
            if is_part(extent) {
                joined = joined.zip(known).map(|(a, b)| a.saturating_mul(b));
            } else {
                fits &= known.is_none_or(|v| v == self.extent(*extent));
            }
        }
        fits &= !are_joined || joined.is_none_or(|joined| joined == self.extent(Extent::Joined));
        if fits {
            return Ok(());
        }
        let expected: Dims =
            check.dims.iter().try_fold(Dims::EMPTY, |mut d, e| d.push(self.extent(*e)).map(|()| d))?;
        Err(Error::kernel(WHAT)
            .expected(format!("a view of shape {expected}, {:?}", check.dims))
            .got(format!("argument {}: {:?}", check.argument, list.to_dims()))
            .hint("load the program with the rule fuse_attention switched off"))
    }

    fn extent(&self, extent: Extent) -> usize {
        let heads = self.key_heads.saturating_mul(self.group);
        match extent {
            Extent::Batch => self.batch,
            Extent::Heads => heads,
            Extent::Joined => self.batch.saturating_mul(heads),
            Extent::Rows => self.rows,
            Extent::Keys => self.keys,
            Extent::Depth => self.depth,
            Extent::Width => self.width,
        }
    }

    fn out_shape(&self, spec: &AttentionSpec, q: &Extents) -> Result<Dims> {
        let axes = &spec.out.axes;
        let mut out = Dims::EMPTY;
        for _ in axes.present() {
            out.push(1)?;
        }
        let pairs = [
            (axes.batch, q.batch),
            (axes.head, q.heads),
            (Some(axes.row), q.rows),
            (Some(axes.element), self.width),
        ];
        for (axis, extent) in pairs {
            match axis {
                None if extent != 1 => {
                    return Err(Error::internal("an attention output lacks a dimension"));
                }
                None => {}
                Some(axis) => {
                    let slot = out.get_mut(usize::from(axis));
                    *slot.ok_or_else(|| Error::internal("an attention axis is outside its tensor"))? = extent;
                }
            }
        }
        Ok(out)
    }

    /// Takes the strides of the output, which `bind` has resized.
    pub(super) fn set_out(&mut self, spec: &AttentionSpec, args: &Args<'_>) -> Result<()> {
        let out = args.tensor(spec.out.argument)?;
        self.out = extents(&out, &spec.out.axes)?.1;
        if self.out.element != 1 && self.width > 1 {
            return Err(mismatch("an output whose elements lie side by side".into(), &out));
        }
        Ok(())
    }

    /// Rows per key head: those of all its query heads, one head after the other.
    pub(super) fn unit_rows(&self) -> usize {
        self.group.saturating_mul(self.rows)
    }

    /// Keys that query `row` sees.
    pub(super) fn visible(&self, row: usize) -> usize {
        self.first_limit.map_or(self.keys, |limit| self.keys.min(limit.saturating_add(row)))
    }

    /// Are keys and values read as they lie, vector by vector?
    pub(super) fn is_direct(&self) -> bool {
        self.unit_rows() <= super::DIRECT_ROWS && self.has_rows()
    }

    /// May they be, as far as shapes tell?
    pub(super) fn is_direct_or_scattered(&self) -> bool {
        self.is_direct() || self.may_be_scattered(self.unit_rows())
    }

    /// May a mask show so many rows of a chunk little of the keys in front of the last one that they see?
    pub(super) fn may_be_scattered(&self, rows: usize) -> bool {
        rows <= super::SCATTERED_ROWS
            && self.mask.element == 1
            && self.first_limit.is_none()
            && self.has_rows()
    }

    /// Do the elements of keys and values lie side by side?
    fn has_rows(&self) -> bool {
        (self.key.element == 1 || self.depth <= 1) && (self.value.element == 1 || self.width <= 1)
    }
}

/// The integer argument `at`, not negative.
fn position(args: &Args<'_>, at: usize) -> Result<usize> {
    let start = args.int(at)?;
    usize::try_from(start).map_err(|_| {
        Error::kernel("attention starts at a negative position").expected("0 or more").got(start.to_string())
    })
}

fn keys(spec: &AttentionSpec, args: &Args<'_>, rows: usize, all: usize) -> Result<usize> {
    let Some(at) = spec.keys_from else { return Ok(all) };
    let start = position(args, at)?;
    start.checked_add(rows).filter(|n| *n <= all).ok_or_else(|| {
        Error::kernel("attention starts at a position beyond the keys")
            .expected(format!("a position at which {rows} of {all} keys fit"))
            .got(start.to_string())
    })
}

fn first_limit(spec: &AttentionSpec, args: &Args<'_>) -> Result<Option<usize>> {
    Ok(match spec.causality {
        Causality::Everything => None,
        Causality::FromTopLeft => Some(1),
        Causality::FromPosition(at) => Some(position(args, at)?.saturating_add(1)),
    })
}

/// Kind and strides of the mask when it is broadcast to `to`, [batch, head, query, key]. Of keys, more
/// than are attended to may be masked: a cache is masked whole.
fn mask(spec: &AttentionSpec, args: &Args<'_>, to: [usize; 4]) -> Result<(MaskKind, Strides)> {
    let Some(at) = spec.mask else { return Ok((MaskKind::None, Strides::default())) };
    let Some(tensor) = args.optional_tensor(at)? else {
        return Ok((MaskKind::None, Strides::default()));
    };
    let kind = match tensor.dtype() {
        DType::Bool => MaskKind::Kept,
        DType::BFloat16 => MaskKind::AddedBrain,
        DType::Float16 => MaskKind::AddedBinary,
        _ => MaskKind::Added,
    };
    let (shape, rank) = (tensor.shape(), tensor.rank());
    let fits = |i: usize, extent: usize| {
        extent == 1 || extent == to[i] || (i == 3 && spec.keys_from.is_some() && extent > to[i])
    };
    if rank > 4 || !shape.iter().zip(4 - rank..).all(|(extent, i)| fits(i, *extent)) {
        return Err(mismatch(format!("a mask that can be broadcast to {to:?}"), &tensor));
    }
    let mut strides = [0; 4];
    for (i, (extent, stride)) in (4 - rank..).zip(shape.iter().zip(tensor.strides().iter())) {
        strides[i] = if *extent == 1 { 0 } else { *stride };
    }
    let [batch, head, row, element] = strides;
    if element > 1 {
        return Err(mismatch("a mask whose keys lie side by side".into(), &tensor));
    }
    Ok((kind, Strides { batch, head, row, element }))
}
