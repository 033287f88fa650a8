//! How a method is called: specs and stored structures, read once per program.

use crate::input::{Argument, Arguments};
use crate::output::{self, TensorForm};
use crate::tree::{KeywordError, Leaves, Node, Tree};
use pteron_core::error::printable;
use pteron_core::{Error, Result};
use pteron_runtime::{IoSpec, Outputs, Program};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The calling convention of one method.
pub struct MethodInterface {
    /// Name of the method.
    pub name: String,
    /// Flat inputs.
    pub inputs: Vec<IoSpec>,
    /// Flat outputs.
    pub outputs: Vec<IoSpec>,
    input_tree: Stored,
    output_tree: Stored,
}

/// What a program says about a structure.
enum Stored {
    /// Nothing: values are passed flat.
    Flat,
    /// This one.
    Tree(Tree),
    /// One that cannot be used, and why. Flat execution still works.
    Damaged(String),
}

impl MethodInterface {
    /// Reads the interface of `method`.
    pub fn new(py: Python<'_>, program: &Program, method: &str) -> Result<Self> {
        let inputs = program.inputs(method)?.to_vec();
        let outputs = program.outputs(method)?.to_vec();
        let (input_text, output_text) = program.trees(method)?;
        let input_tree = match Stored::read(py, input_text, inputs.len()) {
            Stored::Tree(tree) if tree.call_halves().is_none() => {
                Stored::Damaged("not a tuple of positional arguments and a dict of keyword arguments".into())
            }
            other => other,
        };
        Ok(MethodInterface {
            name: method.into(),
            input_tree,
            output_tree: Stored::read(py, output_text, outputs.len()),
            inputs,
            outputs,
        })
    }

    /// Reads the arguments of a call with the exported structure, into `arguments` (which is large: it is not moved).
    pub fn read_call(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        arguments: &mut Arguments,
    ) -> Result<()> {
        let kwargs = kwargs.filter(|k| !k.is_empty());
        let mut leaves = Leaves::new();
        match &self.input_tree {
            Stored::Tree(tree) => {
                let Some((positional, keyword)) = tree.call_halves() else {
                    return Err(Error::internal("an input structure without halves"));
                };
                if args.len() != positional.len() || kwargs.map_or(0, |k| k.len()) != keyword.len() {
                    return Err(self.wrong_arguments(args, kwargs, positional, keyword));
                }
                positional.flatten_args(args, &mut leaves).map_err(|e| e.method(&*self.name))?;
                if let Some(kwargs) = kwargs {
                    keyword.flatten_kwargs(kwargs, &mut leaves).map_err(|e| match e {
                        // There are as many as there should be: another name is not known.
                        KeywordError::Missing => {
                            self.wrong_arguments(args, Some(kwargs), positional, keyword)
                        }
                        KeywordError::Value(error) => error.method(&*self.name),
                    })?;
                }
            }
            Stored::Flat if kwargs.is_none() => leaves.extend(args.iter()),
            Stored::Flat => {
                return Err(Error::input("this program stores no names of keyword arguments")
                    .method(&*self.name)
                    .expected(format!("{} positional arguments", self.inputs.len()))
                    .hint("pass all inputs by position"));
            }
            Stored::Damaged(why) => {
                return Err(Error::program("the structure of the arguments cannot be used")
                    .method(&*self.name)
                    .got(why.clone())
                    .hint("pass a flat list to method.execute([...])"));
            }
        }
        self.read_inputs(leaves.iter(), arguments)
    }

    #[cold]
    fn wrong_arguments(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        positional: &Node,
        keyword: &Node,
    ) -> Error {
        let py = args.py();
        let mut names = Vec::new();
        let mut at = 0;
        for count in positional.child_leaf_counts() {
            names.push(match (count, self.inputs.get(at)) {
                (1, Some(spec)) => printable(&spec.name),
                _ => format!("({count} values)"),
            });
            at += count;
        }
        let keys = keyword.key_names(py);
        let given: Vec<String> =
            kwargs.map(|k| k.keys().iter().map(|k| printable(&k.to_string())).collect()).unwrap_or_default();
        let describe = |count: usize, names: &[String], keys: &[String]| {
            let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let keys = if keys.is_empty() {
                "no keyword arguments".to_string()
            } else {
                format!("keyword arguments {}", keys.join(", "))
            };
            format!("{count} positional arguments{list} and {keys}")
        };
        Error::input("the call does not have the arguments that the method was exported with")
            .method(&*self.name)
            .expected(describe(positional.len(), &names, &keys))
            .got(describe(args.len(), &[], &given))
            .hint("arguments keep the position or the name that they had in torch.export.export")
    }

    /// Reads flat values as the inputs of a call. A wrong number of them is the runtime's to refuse: none is read then.
    pub fn read_inputs<'a, 'py: 'a>(
        &self,
        values: impl ExactSizeIterator<Item = &'a Bound<'py, PyAny>>,
        arguments: &mut Arguments,
    ) -> Result<()> {
        if values.len() != self.inputs.len() {
            arguments.extend(values.map(|_| Argument::None));
            return Ok(());
        }
        for (value, spec) in values.zip(&self.inputs) {
            arguments.push(Argument::read(value, spec).map_err(|e| e.method(&*self.name))?);
        }
        Ok(())
    }

    /// Outputs in the exported structure; a tuple (or the one value) where the program stores none.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        outputs: &mut Outputs,
        form: TensorForm,
    ) -> PyResult<Bound<'py, PyAny>> {
        if outputs.len() == 1
            && matches!(self.output_tree, Stored::Tree(Tree::Leaf) | Stored::Flat | Stored::Damaged(_))
            && let Some(value) = outputs.pop()
        {
            return output::to_object(py, value, form, None);
        }
        let mut failure = None;
        let mut values =
            outputs.drain(..).map_while(|value| match output::to_object(py, value, form, None) {
                Ok(object) => Some(object),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            });
        let built = match &self.output_tree {
            Stored::Tree(tree) => tree.build(py, &mut values),
            Stored::Flat | Stored::Damaged(_) => {
                PyTuple::new(py, values.by_ref().collect::<Vec<_>>()).map(Bound::into_any)
            }
        };
        drop(values);
        match failure {
            Some(error) => Err(error),
            None => built,
        }
    }
}

impl Stored {
    fn read(py: Python<'_>, text: &str, leaves: usize) -> Stored {
        if text.is_empty() {
            return Stored::Flat;
        }
        match Tree::parse(py, text) {
            Ok(tree) if tree.leaf_count() == leaves => Stored::Tree(tree),
            Ok(tree) => Stored::Damaged(format!(
                "{} values in the structure, {leaves} in the method",
                tree.leaf_count()
            )),
            Err(error) => Stored::Damaged(error.detail().got.clone().unwrap_or_else(|| error.to_string())),
        }
    }
}
