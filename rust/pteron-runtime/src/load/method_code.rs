//! A method made executable: checked, optimised, prepared. Immutable, built once per method, shared by
//! all its sessions.

use crate::ir::{FoldedConstant, MethodIr, StepIr};
use crate::load::build_progress::Watch;
use crate::load::call_check::{ResolvedOperator, ResolvedOperators, check_instructions, resolve_operators};
use crate::load::code_builder::{BuiltCode, CodeBuilder};
use crate::load::constants::Constants;
use crate::load::custom_operators::CustomOperators;
use crate::load::device_check::check_devices;
use crate::load::expand::{DelegatePart, ExpandInput, Expanded, expand};
use crate::load::input_rule::{InputRules, input_rules};
use crate::load::lower::lower;
use crate::load::prepare::Preparer;
use crate::load::program_data::ProgramData;
use crate::load::session_layout::SessionLayout;
use crate::load::step::Step;
use crate::optimize::{self, Loader, Optimized};
use crate::step_effects::{Operation, written_scalars};
use crate::{IoSpec, Limits, Runtime};
use pteron_core::region::side_by_side;
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, CpuProfile, Error, ErrorKind, Instruction, PackStore,
    PrepareContext, Result, Schema, Scratch, TensorSpec, ValueId,
};
use pteron_cpu::plan::PlanSpec;
use pteron_format::MethodDef;
use pteron_kernels::single_call::{CallArg, SingleCall};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Everything about a method that does not change between sessions.
pub(crate) struct MethodCode {
    pub runtime: Arc<Runtime>,
    pub data: Arc<ProgramData>,
    pub ir: MethodIr,
    pub steps: Vec<Step>,
    pub layout: SessionLayout,
    pub inputs: Arc<[IoSpec]>,
    pub outputs: Arc<[IoSpec]>,
    pub input_rules: InputRules,
    /// Names of the mutable buffers that delegates own, by index of the delegate, where the file says so.
    pub delegate_buffers: Arc<[(usize, Vec<String>)]>,
    /// Number of outputs of the calls of a delegate, by its index, where the file says so.
    pub delegate_outputs: Arc<[(usize, usize)]>,
    /// Number of kernel steps, each with a state per session.
    pub kernel_count: usize,
    /// The largest scratch that any kernel needs.
    pub scratch: Scratch,
    /// (from, to) of every move and view.
    pub links: Vec<(ValueId, ValueId)>,
    /// What became of delegates whose payload load understands.
    pub expanded: Expanded,
    // Kept for the listing: what the optimiser left of each instruction.
    optimized: Vec<StepIr>,
    // Per step, looked up when a tracer first asks.
    places: OnceLock<Vec<StepPlace>>,
}

/// What a step stands for in the file.
pub(crate) struct StepPlace {
    /// Instructions in order.
    pub instructions: Vec<u32>,
    /// Debug handles of those.
    pub handles: Vec<i64>,
    /// Parts of delegates that load expanded.
    pub parts: Vec<DelegatePart>,
}

/// What the build of a method takes from its program.
pub(crate) struct BuildInput<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub data: &'a Arc<ProgramData>,
    pub packs: &'a PackStore,
    pub method: &'a MethodDef,
    pub inputs: Arc<[IoSpec]>,
    pub outputs: Arc<[IoSpec]>,
    pub delegate_buffers: Arc<[(usize, Vec<String>)]>,
    pub delegate_outputs: Arc<[(usize, usize)]>,
    pub limits: &'a Limits,
    /// Who is told how far the preparation of steps is.
    pub watch: Option<Watch<'a>>,
}

impl MethodCode {
    /// Is the method within limits that may be tighter than those of its program?
    pub(crate) fn check_limits(&self, limits: &Limits) -> Result<()> {
        if let Some((values, instructions)) = self.expanded.counts {
            limits.check_counts(values, instructions)?;
        }
        match self.data.file().method(&self.ir.name) {
            Some(method) => limits.check_method(method),
            None => Ok(()),
        }
    }

    /// Expands, checks, optimises and prepares a method.
    pub(crate) fn build(input: BuildInput<'_>) -> Result<MethodCode> {
        check_devices(input.method)?;
        let mut ir = lower(input.method, input.data)?;
        let translator = |backend: &str| input.runtime.translator(backend);
        let (data, packs, limits) = (input.data, input.packs, input.limits);
        let mut expanded = expand(&mut ir, ExpandInput { data, packs, limits, translator: &translator })?;
        let folded = std::mem::take(&mut expanded.folded);
        let bytes = input.data.file_bytes();
        let made = side_by_side(bytes, || Made::new(&input, &mut ir, folded)).map_err(|e| {
            let e = e.method(ir.name.as_str());
            input.with_line(expanded.origins.locate(e, &ir.delegates, input.data.debug()))
        });
        let Made { built, optimized, layout, input_rules } = made?;
        input.data.release_again();
        Ok(MethodCode {
            runtime: input.runtime.clone(),
            data: input.data.clone(),
            steps: built.steps,
            kernel_count: built.kernel_count,
            scratch: built.scratch,
            layout,
            ir,
            inputs: input.inputs,
            outputs: input.outputs,
            delegate_buffers: input.delegate_buffers,
            delegate_outputs: input.delegate_outputs,
            input_rules,
            links: built.links,
            expanded,
            optimized,
            places: OnceLock::new(),
        })
    }

    /// The optimised steps as text.
    pub(crate) fn listing(&self) -> Result<String> {
        let name = |index: u32| self.expanded.origins.of(index).to_string();
        optimize::listing(&self.ir, &self.optimized, &name)
    }

    /// The file's instruction that a step is, or begins with.
    pub(crate) fn instruction(&self, step: &Step) -> usize {
        let first = step.covers.first().copied().unwrap_or_default();
        self.expanded.origins.instruction(first) as usize
    }

    /// What a step stands for.
    pub(crate) fn place(&self, step: usize) -> &StepPlace {
        static NONE: StepPlace =
            StepPlace { instructions: Vec::new(), handles: Vec::new(), parts: Vec::new() };
        let all = self.places.get_or_init(|| self.steps.iter().map(|s| self.place_of(s)).collect());
        all.get(step).unwrap_or(&NONE)
    }

    fn place_of(&self, step: &Step) -> StepPlace {
        let origins = || step.covers.iter().map(|index| self.expanded.origins.of(*index));
        let mut instructions: Vec<u32> = origins().map(|origin| origin.instruction).collect();
        instructions.dedup();
        let debug = self.data.debug();
        let mut handles: Vec<i64> =
            instructions.iter().flat_map(|i| debug.handles(&self.ir.name, *i)).collect();
        handles.dedup();
        let mut parts: Vec<DelegatePart> = origins().filter_map(|origin| origin.part).collect();
        parts.dedup();
        StepPlace { instructions, handles, parts }
    }
}

impl BuildInput<'_> {
    /// The error of an instruction with its line of the model, where the file tells.
    fn with_line(&self, error: Error) -> Error {
        let line = error.detail().instruction.and_then(|at| self.data.debug().line_of(&self.method.name, at));
        match line {
            Some(line) => error.source_line(line),
            None => error,
        }
    }
}

/// What is made of a method once its delegates are expanded.
struct Made {
    built: BuiltCode,
    optimized: Vec<StepIr>,
    layout: SessionLayout,
    input_rules: InputRules,
}

impl Made {
    /// Checks, optimises and prepares. `folded`: the constants that values of `ir` refer to.
    fn new(input: &BuildInput<'_>, ir: &mut MethodIr, folded: Vec<FoldedConstant>) -> Result<Made> {
        let registry = input.runtime.kernels()?;
        let operators = resolve_operators(ir, &registry, &CustomOperators::of(input.data))?;
        check_instructions(ir, &operators)?;
        let written = written(ir, &operators);
        let loader = BuildLoader::new(&operators, input, &written);
        let Optimized { steps: optimized, entries, mut folded } =
            optimize::optimize(ir, folded, &loader, input.runtime.rules())?;
        let preparer = Preparer {
            ir,
            constants: Constants { data: Some(input.data), folded: &[] },
            written: &written,
            packs: input.packs,
            cpu: input.runtime.cpu(),
        };
        let mut builder = CodeBuilder::new(preparer, &mut folded, &operators, &registry);
        builder.add_steps(&optimized, &entries, input.watch)?;
        let built = builder.finish()?;
        let input_rules = input_rules(ir, &input.inputs, &built.copied_inputs)?;
        let constants = Constants { folded: &folded, ..preparer.constants };
        let layout = SessionLayout::new(ir, &built, &written, Preparer { constants, ..preparer })?;
        Ok(Made { built, optimized, layout, input_rules })
    }
}

/// Scalars whose contents are not those of the file.
fn written(ir: &MethodIr, operators: &ResolvedOperators) -> HashSet<ValueId> {
    let schema = |instruction: &Instruction| match instruction {
        Instruction::Kernel { operator, .. } => Some(&*operators.get(*operator as usize)?.as_ref()?.schema),
        _ => None,
    };
    written_scalars(ir, ir.instructions.iter().map(|i| Operation::of(i, schema(i), false)))
}

/// The optimiser's view of kernels and constants.
struct BuildLoader<'a> {
    schemas: HashMap<&'a str, &'a Schema>,
    operators: &'a ResolvedOperators,
    data: &'a ProgramData,
    packs: &'a PackStore,
    trial: PackStore,
    cpu: &'a CpuProfile,
    written: &'a HashSet<ValueId>,
}

impl<'a> BuildLoader<'a> {
    fn new(
        operators: &'a ResolvedOperators,
        input: &'a BuildInput<'_>,
        written: &'a HashSet<ValueId>,
    ) -> Self {
        let schemas = operators
            .iter()
            .flatten()
            .map(|op: &ResolvedOperator| (op.schema.name.as_str(), &*op.schema))
            .collect();
        BuildLoader {
            schemas,
            operators,
            data: input.data,
            packs: input.packs,
            trial: PackStore::trial(),
            cpu: input.runtime.cpu(),
            written,
        }
    }

    /// Constants as the file has them.
    fn stored(&self) -> Constants<'a> {
        Constants { data: Some(self.data), folded: &[] }
    }
}

impl Loader for BuildLoader<'_> {
    fn schema(&self, operator: &str) -> Option<&Schema> {
        self.schemas.get(operator).copied()
    }

    fn can_prepare(&self, plan: &PlanSpec, args: &[ArgSpec<'_>]) -> Result<bool> {
        // A pack is made when the plan is settled: rules that come later may want another one.
        Ok(plan.prepare(&PrepareContext::new(args, &self.trial, self.cpu))?.is_some())
    }

    fn arg_spec<'s>(&'s self, ir: &'s MethodIr, folded: &'s [FoldedConstant], value: ValueId) -> ArgSpec<'s> {
        Preparer {
            ir,
            constants: Constants { data: Some(self.data), folded },
            written: self.written,
            packs: self.packs,
            cpu: self.cpu,
        }
        .arg_spec(value)
    }

    fn derive(
        &self,
        recipe: &str,
        sources: &[ConstantView<'_>],
        spec: &TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<(ConstantKey, Arc<AlignedBuffer>)>> {
        let derived = self.packs.derive(recipe, sources, spec, make)?;
        if derived.is_some() {
            sources.iter().for_each(|source| self.stored().release(source));
        }
        Ok(derived)
    }

    fn evaluate(&self, operator: &str, args: Vec<CallArg>, out: usize) -> Result<Option<AlignedBuffer>> {
        let Some(op) = self.operators.iter().flatten().find(|op| op.schema.name == operator) else {
            return Ok(None);
        };
        let prepare = |ctx: &PrepareContext<'_>| {
            for kernel in op.kernels.kernels() {
                if let Some(prepared) = kernel.prepare(ctx)? {
                    return Ok(Some(prepared));
                }
            }
            Ok(None)
        };
        let evaluate = || -> Result<Option<AlignedBuffer>> {
            let Some(mut call) = SingleCall::of(prepare, self.cpu, args)? else { return Ok(None) };
            let expected = call.shape(out)?;
            if call.prepared().has_finish() || call.prepared().takes_random() {
                return Ok(None);
            }
            call.call()?;
            if call.shape(out)? != expected {
                return Ok(None);
            }
            AlignedBuffer::copy_of(call.output_bytes(out)?).map(Some)
        };
        match evaluate() {
            // What else fails here fails where it is executed, with the place in the program.
            Err(e) if e.kind() != ErrorKind::LimitExceeded => Ok(None),
            other => other,
        }
    }
}
