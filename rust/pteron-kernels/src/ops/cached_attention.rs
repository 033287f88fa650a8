//! Attention over a cache of keys and values of which the first rows are filled: custom_sdpa, sdpa_with_kv_cache (which writes
//! keys and values into the caches before).
//!
//! Shape: queries and result [B, S, heads, D], caches [B, capacity, key heads, D]; key heads divide heads. Without a mask the
//! first `start_pos + S` keys count, of which query `i` sees `start_pos + i + 1` if the call is causal; with one, [S, capacity],
//! all do. Dtype: float32, float16 or bfloat16, the mask float32; computed in float32, the result rounded once. Edge cases: a
//! query that sees nothing gives NaN; what lies behind the keys that count is not read; dropout is refused. Source: ExecuTorch's
//! `extension/llm/custom_ops`.

use crate::elements::{Reader, Writer};
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared};
use crate::operator::{Operator, kernel};
use crate::ops::cache_update::{check_room, check_rows, checked_start, put_rows};
use crate::ops::layout::same_dtype;
use crate::routine::dtype_of;
use crate::shape::{check_rank, check_same};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Dims, Error, Grid, PrepareContext, Result, Scratch};

/// Where the arguments of an operator stand; those of the mask, dropout, causality and scale follow each other.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The keys, before the values.
    pub keys: usize,
    /// The position of the first query.
    pub start: usize,
    /// The mask.
    pub mask: usize,
    /// The result.
    pub out: usize,
    /// Which of the dimensions 1 and 2 counts rows; the other one counts heads.
    pub row_axis: usize,
    /// Are keys and values written to the caches before? They are arguments 1 and 2 then.
    pub updates: bool,
}

/// `custom_sdpa`.
pub const CUSTOM: Form = Form { keys: 1, start: 3, mask: 4, out: 8, row_axis: 1, updates: false };
/// `sdpa_with_kv_cache`.
pub const WITH_UPDATE: Form = Form { keys: 3, start: 5, mask: 7, out: 11, row_axis: 1, updates: true };
/// The number of queries, stated once more, of `sdpa_with_kv_cache`.
const LENGTH: usize = 6;

impl Form {
    const fn values(&self) -> usize {
        self.keys + 1
    }
    /// Whether query `i` sees nothing behind key `start_pos + i`.
    pub const fn causal(&self) -> usize {
        self.mask + 2
    }
    /// The factor of the scores.
    pub const fn scale(&self) -> usize {
        self.mask + 3
    }
}

/// What every kernel of these operators asks of a call when it is loaded.
///
/// Errors: ranks, a mask or settings that the operator does not take.
pub fn check_call(ctx: &PrepareContext<'_>, form: Form) -> Result<()> {
    let tensors = [(0, "query"), (form.keys, "the keys"), (form.values(), "the values"), (form.out, "out")];
    for (at, name) in tensors {
        if let Some(tensor) = ctx.tensor(at) {
            check_rank(name, 4, &tensor.shape)?;
        }
    }
    if ctx.args.get(form.mask + 1).and_then(ArgSpec::number).is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::kernel("attention with dropout does not run")
            .argument("drpout_p")
            .expected("0")
            .hint("export the model in evaluation mode"));
    }
    let Some(mask) = ctx.tensor(form.mask) else { return Ok(()) };
    check_rank("the mask", 2, &mask.shape).map_err(|e| e.argument("attn_mask"))?;
    if mask.dtype != DType::Float32 {
        return Err(Error::kernel("the mask has a dtype that attention over a cache does not take")
            .argument("attn_mask")
            .expected("float32, which is added to the scores")
            .got(mask.dtype.name())
            .hint("export torch.where(mask, 0.0, float('-inf')) instead of a mask of bool"));
    }
    if matches!(ctx.args.get(form.causal()), Some(ArgSpec::Bool(Some(true)))) {
        return Err(both_masks());
    }
    Ok(())
}

#[cold]
fn both_masks() -> Error {
    Error::kernel("attention takes a mask or is causal, not both")
        .argument("is_causal")
        .expected("False beside a mask")
        .got("True")
}

/// Shapes and numbers of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Problem {
    pub(crate) batch: usize,
    pub(crate) rows: usize,
    pub(crate) key_heads: usize,
    /// Query heads of a key head.
    pub(crate) group: usize,
    pub(crate) depth: usize,
    /// Keys that count.
    pub(crate) keys: usize,
    /// Keys that the first query sees; each following one sees one more.
    first_limit: Option<usize>,
    pub(crate) scale: f32,
}

impl Problem {
    /// The problem of a call.
    ///
    /// Errors: shapes that do not belong together, a position without room.
    pub fn of(args: &Args<'_>, form: Form) -> Result<Problem> {
        let shape = |i: usize| args.tensor(i).map(|t| t.shape());
        let (query, keys) = (shape(0)?, shape(form.keys)?);
        let (row, head) = (form.row_axis, 3 - form.row_axis);
        check_rank("query", 4, query)?;
        check_rank("the keys", 4, keys)?;
        check_same("the values", keys, shape(form.values())?)?;
        let fits = keys[0] == query[0]
            && keys[3] == query[3]
            && if keys[head] == 0 { query[head] == 0 } else { query[head].is_multiple_of(keys[head]) };
        if !fits {
            return Err(Error::kernel("queries and keys do not belong together")
                .expected("the same batch and depth, and key heads that divide the query heads")
                .got(format!("{query} and {keys}")));
        }
        let is_causal = args.bool(form.causal())?;
        let (rows, capacity) = (query[row], keys[row]);
        if args.double(form.mask + 1)? != 0.0 {
            return Err(Error::kernel("attention with dropout does not run")
                .argument("drpout_p")
                .expected("0"));
        }
        let (count, first_limit) = match args.optional_tensor(form.mask)? {
            Some(_) if is_causal => return Err(both_masks()),
            Some(mask) => {
                check_same("the mask", &[rows, capacity], mask.shape())
                    .map_err(|e| e.argument("attn_mask"))?;
                (capacity, None)
            }
            None => {
                let start = check_room(args.int(form.start)?, rows, capacity)?;
                (start.saturating_add(rows), is_causal.then_some(start.saturating_add(1)))
            }
        };
        let scale = args.optional_double(form.scale())?.unwrap_or(1.0 / (query[3] as f64).sqrt());
        Ok(Problem {
            batch: query[0],
            rows,
            key_heads: keys[head],
            group: query[head].checked_div(keys[head]).unwrap_or(0),
            depth: query[3],
            keys: count,
            first_limit,
            scale: scale as f32,
        })
    }

    /// Keys that query `row` sees.
    pub(crate) fn visible(&self, row: usize) -> usize {
        self.first_limit.map_or(self.keys, |limit| self.keys.min(limit.saturating_add(row)))
    }

    /// A chunk for each key head of each sequence.
    pub(crate) fn grid(&self) -> Grid {
        if self.group == 0 || self.rows == 0 || self.depth == 0 {
            return Grid::EMPTY;
        }
        let products =
            self.group.saturating_mul(self.rows).saturating_mul(self.keys).saturating_mul(self.depth);
        Grid::chunks(self.batch.saturating_mul(self.key_heads), products)
    }
}

/// What `sdpa_with_kv_cache` asks of what it writes.
///
/// Errors: rows that are none of the caches, a number of queries that is not theirs, a position without room.
pub fn check_update(args: &Args<'_>) -> Result<()> {
    let query = args.tensor(0)?;
    check_rank("query", 4, query.shape())?;
    let rows = query.shape()[1];
    let length = args.int(LENGTH)?;
    if usize::try_from(length) != Ok(rows) {
        return Err(Error::kernel("the number of queries is stated wrongly")
            .argument("seq_len")
            .expected(rows.to_string())
            .got(length.to_string()));
    }
    for new in [1, 2] {
        let (value, cache) = (args.tensor(new)?, args.tensor(new + 2)?);
        check_rows(value.shape(), cache.shape())?;
        check_room(args.int(WITH_UPDATE.start)?, value.shape()[1], cache.shape()[1])?;
    }
    Ok(())
}

/// Writes the keys and values of `sdpa_with_kv_cache` into the caches, after [`check_update`].
///
/// Errors: as that.
pub fn update_caches(args: &Args<'_>) -> Result<()> {
    let start = checked_start(args, WITH_UPDATE.start)?;
    for new in [1, 2] {
        put_rows(&args.tensor(new)?, &mut args.output(new + 2)?, start)?;
    }
    Ok(())
}

/// Scores become weights, which add up to one; all -inf become NaN.
pub(crate) fn soft_maximum(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|weight| *weight /= sum);
}

/// The sum of products, in eight lanes.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 8];
    let (left, right) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = left.remainder().iter().zip(right.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in left.zip(right) {
        lanes.iter_mut().zip(x.iter().zip(y)).for_each(|(lane, (x, y))| *lane += x * y);
    }
    lanes.iter().sum::<f32>() + rest
}

/// The number in memory order of the first element of a row of a head.
pub(crate) fn row_at(strides: &Dims, form: Form, [batch, head, row]: [usize; 3]) -> isize {
    let head_axis = 3 - form.row_axis;
    (batch * strides[0] + head * strides[head_axis] + row * strides[form.row_axis]) as isize
}

/// Scratch elements for a call: `lines` lines of the depth, and a score for each key.
pub(crate) fn scratch_elements(depth: usize, keys: usize, lines: usize) -> Result<usize> {
    let elements = depth.checked_mul(lines).and_then(|n| n.checked_add(keys));
    let fits =
        |n: &usize| n.checked_mul(size_of::<f32>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    elements.filter(fits).ok_or_else(|| Error::limit("the scores of a query are too large to address"))
}

struct CachedAttention {
    form: Form,
    scratch: usize,
}

impl CachedAttention {
    fn attend(&self, p: &Problem, part: &mut Part<'_>) -> Result<()> {
        let (args, form) = (part.args, self.form);
        let [query, key, value] =
            [0, form.keys, form.values()].map(|i| args.tensor(i).and_then(Reader::<f32>::new));
        let (query, key, value) = (query?, key?, value?);
        let mask = args.optional_tensor(form.mask)?.map(Reader::<f32>::new).transpose()?;
        let mut out = Writer::<f32>::new(args.output(form.out)?)?;
        let [(q_strides, q_step), (k_strides, k_step), (v_strides, v_step), (o_strides, o_step)] =
            [query.meta(), key.meta(), value.meta(), out.meta()]
                .map(|m| (m.strides(), m.strides()[3] as isize));
        let (scores, sum) = (part.take_scratch(p.keys)?, part.take_scratch::<f32>(p.depth)?);
        let [q_line, line] = [part.take_scratch(p.depth)?, part.take_scratch(p.depth)?];
        let (batch, key_head) = (part.chunk / p.key_heads, part.chunk % p.key_heads);
        for i in 0..p.group * p.rows {
            let (head, row) = (key_head * p.group + i / p.rows, i % p.rows);
            let q = query.block(row_at(q_strides, form, [batch, head, row]), q_step, p.depth, q_line)?;
            let weights =
                scores.get_mut(..p.visible(row)).ok_or_else(|| Error::internal("too few scores"))?;
            for (j, score) in weights.iter_mut().enumerate() {
                let k = key.block(row_at(k_strides, form, [batch, key_head, j]), k_step, p.depth, line)?;
                *score = dot(q, k) * p.scale;
                if let Some(mask) = &mask {
                    *score += mask.get(row * mask.meta().strides()[0] + j * mask.meta().strides()[1])?;
                }
            }
            soft_maximum(weights);
            sum.fill(0.0);
            for (j, weight) in weights.iter().enumerate() {
                let v = value.block(row_at(v_strides, form, [batch, key_head, j]), v_step, p.depth, line)?;
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += weight * v);
            }
            out.write(row_at(o_strides, form, [batch, head, row]), o_step, sum)?;
        }
        Ok(())
    }
}

impl GridKernel for CachedAttention {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch * size_of::<f32>(), shared: 0 }
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        let view = args.args();
        if self.form.updates {
            check_update(&view)?;
        }
        *problem = Problem::of(&view, self.form)?;
        let shape = *view.tensor(0)?.shape();
        args.resize(self.form.out, &shape)?;
        let grid = problem.grid();
        if self.form.updates {
            return Ok(Grid::phases(&[1, grid.chunk_count(0) as usize], grid.chunk_ns as usize));
        }
        Ok(grid)
    }

    fn run(&self, problem: &Problem, mut part: Part<'_>) -> Result<()> {
        if self.form.updates && part.phase == 0 {
            return update_caches(part.args);
        }
        self.attend(problem, &mut part)
    }
}

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    check_call(ctx, form)?;
    for at in [form.keys, form.values(), form.out] {
        same_dtype(ctx, 0, at)?;
    }
    if form.updates {
        same_dtype(ctx, 0, 1)?;
        same_dtype(ctx, 0, 2)?;
    }
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16) {
        return Err(Error::kernel("attention over a cache does not compute with this dtype")
            .expected("float32, float16 or bfloat16")
            .got(dtype.name()));
    }
    let (depth, keys) = ctx.tensor(form.keys).map_or((0, 0), |t| (t.shape[3], t.shape[form.row_axis]));
    prepared("reference", CachedAttention { form, scratch: scratch_elements(depth, keys, 3)? })
}

/// custom_sdpa, sdpa_with_kv_cache.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "llama::custom_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, CUSTOM),
    ),
    kernel(
        "llama::sdpa_with_kv_cache.out(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, SymInt start_pos, SymInt seq_len, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, *, Tensor(c!) out) -> Tensor(c!)",
        |ctx| prepare(ctx, WITH_UPDATE),
    ),
];

#[cfg(test)]
mod tests;
