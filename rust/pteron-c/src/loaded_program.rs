//! A program with the texts about it that C reads.

use crate::failure::{Outcome, misuse};
use crate::specs::Spec;
use crate::text::c_string;
use pteron_core::memory_reserve::within_memory_limit;
use pteron_core::{Error, Result};
use pteron_runtime::Program;
use std::ffi::CString;
use std::sync::Arc;

/// What is known of a method before it is loaded.
pub(crate) struct MethodTexts {
    pub inputs: Vec<Spec>,
    pub outputs: Vec<Spec>,
    pub buffers: Vec<Spec>,
    pub backends: Vec<CString>,
    pub operators: Vec<CString>,
}

/// A program.
pub(crate) struct LoadedProgram {
    pub program: Arc<Program>,
    pub methods: Vec<CString>,
    pub named_data: Vec<CString>,
    texts: Vec<MethodTexts>,
}

fn all(texts: &[&str]) -> Result<Vec<CString>> {
    texts.iter().map(|text| c_string(text)).collect()
}

impl LoadedProgram {
    pub(crate) fn new(program: Arc<Program>) -> Result<LoadedProgram> {
        within_memory_limit(|| {
            let names = program.methods();
            let texts = names.iter().map(|name| {
                Ok(MethodTexts {
                    inputs: Spec::all(program.inputs(name)?)?,
                    outputs: Spec::all(program.outputs(name)?)?,
                    buffers: Spec::all(&program.buffers(name)?)?,
                    backends: all(&program.backends(name)?)?,
                    operators: all(&program.operators(name)?)?,
                })
            });
            Ok(LoadedProgram {
                texts: texts.collect::<Result<Vec<_>>>()?,
                methods: all(&names)?,
                named_data: all(&program.named_data_keys())?,
                program: program.clone(),
            })
        })
    }

    /// What is known of a method.
    pub(crate) fn texts(&self, method: &str) -> Outcome<&MethodTexts> {
        let at = self.program.methods().iter().position(|name| *name == method);
        if let Some(texts) = at.and_then(|at| self.texts.get(at)) {
            return Ok(texts);
        }
        // The runtime's own refusal, which lists those that there are.
        self.program.inputs(method)?;
        Err(Error::internal("a method without texts").method(method).into())
    }
}

/// The item at `index` of a list that is called `what`.
pub(crate) fn item<'a, T>(list: &'a [T], index: usize, what: &str) -> Outcome<&'a T> {
    list.get(index).ok_or_else(|| {
        misuse("index", format!("there are not so many {what}"))
            .instead(format!("less than {}", list.len()), index.to_string())
    })
}
