//! A run of elementwise calls as one kernel: a [`Program`] over whole tensors, whose inputs may broadcast.
//!
//! Arguments are the program's inputs in order (f32, or bool where a truth value is meant), then the output
//! (f32, or bool when the last step is a predicate). Inputs that lie as the output does are read in place;
//! others (a row, one value per channel, a single number, another memory order) are laid out block by
//! block in scratch memory. Unsafe island (raw pointers, since the output may be an input).

use super::broadcast::{BroadcastPlan, CHUNK, broadcast_shape};
use super::operand::{BLOCK, Convert, Layout, SPACE, begin, elements};
use super::program::{Input, Program};
use crate::vector_math::SimdLevel;
use pteron_core::{
    AliasRule, Args, BindArgs, Bool8, Bound, DType, Dims, Error, Grid, PrepareContext, Prepared, Result,
    Scratch, WorkerScratch,
};
use std::sync::Arc;

const _: () = assert!(BLOCK == Program::BLOCK);
const MAX_INPUTS: usize = Program::MAX_INPUTS;

struct Chain {
    program: Arc<Program>,
    level: SimdLevel,
    name: String,
    /// For each input: bool?
    is_bool: [bool; MAX_INPUTS],
    is_predicate: bool,
}

/// One for each input.
type Plans = Box<[BroadcastPlan<1>]>;

/// Prepares `program` on the tensors of `ctx`; `None` when their number or dtypes are others.
pub fn prepare(ctx: &PrepareContext<'_>, program: &Arc<Program>) -> Result<Option<Box<dyn Prepared>>> {
    let inputs = program.inputs();
    let dtype = |i: usize| ctx.tensor(i).map(|t| t.dtype);
    let is_value = |d: Option<DType>| matches!(d, Some(DType::Float32 | DType::Bool));
    if inputs == 0 || ctx.args.len() != inputs + 1 || !(0..=inputs).all(|i| is_value(dtype(i))) {
        return Ok(None);
    }
    let mut is_bool = [false; MAX_INPUTS];
    for (i, slot) in is_bool.iter_mut().enumerate().take(inputs) {
        *slot = dtype(i) == Some(DType::Bool);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(Chain {
        name: format!("elementwise[{program}].{}", level.isa().name()),
        program: program.clone(),
        level,
        is_bool,
        is_predicate: dtype(inputs) == Some(DType::Bool),
    })))
}

impl Chain {
    /// Registers of the program, then a block for every input, then one for a bool result.
    fn scratch_floats(&self) -> usize {
        self.program.scratch_floats() + self.program.inputs() * SPACE + BLOCK
    }
}

impl Prepared for Chain {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch_floats() * size_of::<f32>(), shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        if self.is_predicate { AliasRule::None } else { AliasRule::InPlace }
    }

    fn new_bound(&self) -> Bound {
        Bound::of::<Plans>((0..self.program.inputs()).map(|_| BroadcastPlan::EMPTY).collect())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let inputs = self.program.inputs();
        let mut shapes = [Dims::EMPTY; MAX_INPUTS];
        for (i, shape) in shapes.iter_mut().enumerate().take(inputs) {
            *shape = *args.args().tensor(i)?.shape();
        }
        let refs: [&Dims; MAX_INPUTS] = std::array::from_fn(|i| &shapes[i]);
        args.resize(inputs, &broadcast_shape(&refs[..inputs])?)?;
        let args = args.args();
        let out = args.output(inputs)?;
        let plans = bound.get_mut::<Plans>()?;
        for (i, plan) in plans.iter_mut().enumerate() {
            *plan = BroadcastPlan::new(out.meta(), [args.tensor(i)?.meta()]);
        }
        let numel = out.meta().numel();
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(numel.div_ceil(CHUNK), numel.min(CHUNK) / 16 * self.program.cost()))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let too_small = || Error::internal("worker scratch is too small");
        let floats: &mut [f32] = bytemuck::try_cast_slice_mut(scratch.worker).map_err(|_| too_small())?;
        if floats.len() < self.scratch_floats() {
            return Err(too_small());
        }
        let (registers, blocks) = floats.split_at_mut(self.program.scratch_floats());
        let inputs = self.program.inputs();
        let plans = bound.get::<Plans>()?;
        let mut sources = [std::ptr::null::<u8>(); MAX_INPUTS];
        for (i, source) in sources.iter_mut().enumerate().take(inputs) {
            *source = args.tensor(i)?.as_ptr();
        }
        let out = args.output(inputs)?.as_ptr();
        let numel = args.output(inputs)?.meta().numel();
        let first = chunk as usize * CHUNK;
        let last = (first + CHUNK).min(numel);
        let mut layouts = [Layout::Other; MAX_INPUTS];
        for (i, layout) in layouts.iter_mut().enumerate().take(inputs) {
            let block = &mut blocks[i * SPACE..(i + 1) * SPACE];
            // SAFETY: the plan was bound to this input and the output.
            *layout = unsafe {
                match self.is_bool[i] {
                    true => begin(self.level, &plans[i], sources[i].cast::<Bool8>(), block),
                    false => begin(self.level, &plans[i], sources[i].cast::<f32>(), block),
                }
            };
        }
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            let mut given = [Input { data: std::ptr::null(), row_stride: 0 }; MAX_INPUTS];
            for (i, slot) in given.iter_mut().enumerate().take(inputs) {
                let block = &mut blocks[i * SPACE..(i + 1) * SPACE];
                let (plan, layout) = (&plans[i], layouts[i]);
                // SAFETY: as above, and `at + n ≤ numel`.
                slot.data = unsafe {
                    match self.is_bool[i] {
                        true => {
                            elements(self.level, plan, sources[i].cast::<Bool8>(), layout, [at, n], block)
                        }
                        false => elements(self.level, plan, sources[i].cast::<f32>(), layout, [at, n], block),
                    }
                };
            }
            let result = blocks[inputs * SPACE..].as_mut_ptr();
            // SAFETY: inputs hold `n` elements each, the output has `n` left at `at`; it and an input are the
            // same elements or disjoint (the alias rule).
            unsafe {
                let target = if self.is_predicate { result } else { out.cast::<f32>().add(at) };
                self.program.run(self.level, &given[..inputs], target, n, [1, n], registers);
                if self.is_predicate {
                    self.level.dispatch(Convert {
                        from: result.cast_const(),
                        to: out.add(at).cast::<Bool8>(),
                        n,
                    });
                }
            }
        }
        Ok(())
    }
}
