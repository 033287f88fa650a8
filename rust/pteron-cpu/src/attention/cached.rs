//! Attention over a cache of which the first rows are filled, in f32: what language models of ExecuTorch's export call
//! (`llama::custom_sdpa`, `llama::sdpa_with_kv_cache`). Checks are those of the operators' rows.

use super::kernel::Attention;
use super::prepare::attention_of;
use super::problem::Problem;
use super::spec::{AttentionSpec, Axes, Causality, EmptyRow, Operand};
use crate::engine_kernel::{EngineKernel, engine_kernel};
use pteron_core::{ArgSpec, BindArgs, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::ops::cached_attention::{
    CUSTOM, Form, Problem as Call, WITH_UPDATE, check_call, check_update, update_caches,
};

/// Attention of one of these operators; `updates`: keys and values are written into the caches first.
struct Cached {
    attention: Attention<f32>,
    form: Form,
}

impl GridKernel for Cached {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        self.attention.scratch()
    }

    fn new_problem(&self) -> Problem {
        self.attention.new_problem()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        Call::of(&args.args(), self.form)?;
        if !self.form.updates {
            return self.attention.bind(args, problem);
        }
        check_update(&args.args())?;
        let grid = self.attention.bind(args, problem)?;
        Ok(Grid::phases(&[1, grid.chunk_count(0) as usize], grid.chunk_ns as usize))
    }

    fn run(&self, problem: &Problem, part: Part<'_>) -> Result<()> {
        if self.form.updates && part.phase == 0 {
            return update_caches(part.args);
        }
        self.attention.run(problem, part)
    }
}

/// What a call computes; `None` where that is not known at load.
fn spec(ctx: &PrepareContext<'_>, form: Form) -> Option<AttentionSpec> {
    let operand = |argument| Operand { argument, axes: Axes::ROWS_FIRST };
    let depth = *ctx.tensor(0)?.shape.get(3)?;
    let scale = match ctx.args.get(form.scale())? {
        ArgSpec::None => 1.0 / (depth as f64).sqrt(),
        scale => scale.number()?,
    };
    let ArgSpec::Bool(Some(is_causal)) = ctx.args.get(form.causal())? else { return None };
    let is_masked = ctx.tensor(form.mask).is_some();
    Some(AttentionSpec {
        query: operand(0),
        key: operand(form.keys),
        value: operand(form.keys + 1),
        mask: is_masked.then_some(form.mask),
        out: operand(form.out),
        scale: scale as f32,
        causality: if *is_causal { Causality::FromPosition(form.start) } else { Causality::Everything },
        // A mask covers the whole cache.
        keys_from: (!is_masked).then_some(form.start),
        empty_row: EmptyRow::NaN,
        row_factors: None,
        checks: Vec::new(),
    })
}

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    check_call(ctx, form)?;
    let Some(spec) = spec(ctx, form) else {
        return ctx.decline("takes constant settings");
    };
    let Some((name, attention)) = attention_of::<f32, f32>(ctx, &spec)? else {
        return ctx.decline("takes float32");
    };
    prepared(name, Cached { attention, form })
}

/// custom_sdpa, sdpa_with_kv_cache.
pub(crate) static KERNELS: &[EngineKernel] = &[
    engine_kernel("llama::custom_sdpa.out", "attention", |ctx| prepare(ctx, CUSTOM)),
    engine_kernel("llama::sdpa_with_kv_cache.out", "attention", |ctx| prepare(ctx, WITH_UPDATE)),
];
