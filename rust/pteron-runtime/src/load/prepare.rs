//! Chooses a kernel for each call and prepares it: the first of the operator's ordered list that
//! accepts the arguments.

use crate::ir::{MethodIr, ValueIr};
use crate::load::call_check::ResolvedOperator;
use crate::load::constants::Constants;
use pteron_core::{ArgSpec, CpuProfile, Error, PackStore, PrepareContext, Prepared, Result, ValueId};
use pteron_cpu::plan::PlanSpec;
use std::collections::HashSet;

/// The kernel of a call.
pub(crate) struct Chosen {
    pub prepared: Box<dyn Prepared>,
    /// The kernels that were asked before it, in order.
    pub declined: Box<[Declined]>,
}

/// A kernel that left a call to the next one.
pub(crate) struct Declined {
    pub variant: Box<str>,
    /// What it says about that: static text of the kernel.
    pub why: Option<&'static str>,
}

/// What preparing a call needs to know about its method.
#[derive(Clone, Copy)]
pub(crate) struct Preparer<'a> {
    pub ir: &'a MethodIr,
    pub constants: Constants<'a>,
    /// Values that callers, instructions or moves write: their contents are not constant.
    pub written: &'a HashSet<ValueId>,
    pub packs: &'a PackStore,
    pub cpu: &'a CpuProfile,
}

impl<'a> Preparer<'a> {
    /// The kernel for a call of an operator. An error when none takes the arguments.
    pub(crate) fn call(&self, operator: &ResolvedOperator, args: &[ValueId]) -> Result<Chosen> {
        let specs = self.arg_specs(args);
        let ctx = PrepareContext::new(&specs, self.packs, self.cpu);
        let mut declined = vec![];
        for kernel in operator.kernels.kernels() {
            if let Some(prepared) = kernel.prepare_call(&ctx, &operator.schema)? {
                self.constants.release_packed(&specs, &*prepared);
                return Ok(Chosen { prepared, declined: declined.into() });
            }
            declined.push(Declined { variant: kernel.variant().into(), why: ctx.take_declined() });
        }
        Err(Error::kernel("no kernel takes these arguments").got(self.describe(&specs)).hint(
            match is_complex(&specs) && !pteron_kernels::features::is_on("complex") {
                true => {
                    "this binary was built without the cargo feature of pteron-runtime that has them: complex"
                }
                false => "another dtype or memory order may have a kernel; see the operator table",
            },
        ))
    }

    /// The kernel of a plan, if there is one for these arguments.
    pub(crate) fn plan(&self, plan: &PlanSpec, args: &[ValueId]) -> Result<Option<Box<dyn Prepared>>> {
        let specs = self.arg_specs(args);
        let prepared = plan.prepare(&PrepareContext::new(&specs, self.packs, self.cpu))?;
        if let Some(prepared) = &prepared {
            self.constants.release_packed(&specs, &**prepared);
        }
        Ok(prepared)
    }

    fn arg_specs(&self, args: &[ValueId]) -> Vec<ArgSpec<'a>> {
        args.iter().map(|id| self.arg_spec(*id)).collect()
    }

    pub(crate) fn arg_spec(&self, id: ValueId) -> ArgSpec<'a> {
        let is_known = !self.written.contains(&id);
        match self.ir.value(id) {
            None | Some(ValueIr::None) => ArgSpec::None,
            Some(ValueIr::Int(v)) => ArgSpec::Int(is_known.then_some(*v)),
            Some(ValueIr::Bool(v)) => ArgSpec::Bool(is_known.then_some(*v)),
            Some(ValueIr::Double(v)) => ArgSpec::Double(is_known.then_some(*v)),
            Some(ValueIr::String(s)) => ArgSpec::String(s),
            Some(ValueIr::Tensor(t)) => ArgSpec::Tensor(t.spec.clone(), self.constants.view(t)),
            Some(ValueIr::IntList(ids)) => ArgSpec::IntList(
                ids.iter()
                    .map(|v| match self.ir.value(*v) {
                        Some(ValueIr::Int(n)) if !self.written.contains(v) => Some(*n),
                        _ => None,
                    })
                    .collect(),
            ),
            Some(ValueIr::DoubleList(l)) => ArgSpec::DoubleList(l),
            Some(ValueIr::BoolList(l)) => ArgSpec::BoolList(l),
            Some(list @ (ValueIr::TensorList(_) | ValueIr::OptionalTensorList(_))) => ArgSpec::TensorList(
                list.members()
                    .positions()
                    .map(|v| v.and_then(|v| Some(self.ir.tensor(v)?.spec.clone())))
                    .collect(),
            ),
        }
    }

    fn describe(&self, specs: &[ArgSpec<'_>]) -> String {
        let list: Vec<String> = specs
            .iter()
            .map(|s| match s {
                ArgSpec::Tensor(t, constant) => {
                    format!("{}{}{}", if constant.is_some() { "constant " } else { "" }, t.dtype, t.shape)
                }
                ArgSpec::None => "None".into(),
                ArgSpec::Int(v) => v.map_or("int".into(), |v| v.to_string()),
                ArgSpec::Double(v) => v.map_or("float".into(), |v| v.to_string()),
                ArgSpec::Bool(v) => v.map_or("bool".into(), |v| v.to_string()),
                ArgSpec::String(s) => format!("'{}'", pteron_core::error::printable(s)),
                ArgSpec::IntList(l) => format!("int[{}]", l.len()),
                ArgSpec::DoubleList(l) => format!("float[{}]", l.len()),
                ArgSpec::BoolList(l) => format!("bool[{}]", l.len()),
                ArgSpec::TensorList(l) => format!("Tensor[{}]", l.len()),
            })
            .collect();
        format!("({})", list.join(", "))
    }
}

/// Is there a complex tensor among the arguments?
fn is_complex(specs: &[ArgSpec<'_>]) -> bool {
    specs.iter().any(|s| matches!(s, ArgSpec::Tensor(t, _) if t.dtype.is_complex()))
}
