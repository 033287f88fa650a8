//! How a method is called: its flat inputs and outputs, and the structures that its arguments and results had when it was
//! exported.

use super::call_tree::{Leaves, Node, Objects, StoredKey, Tree};
use super::program::Program;
use crate::load::io_spec::IoSpec;
use pteron_core::error::printable;
use pteron_core::{Error, Result};

/// The calling convention of one method, with keys of the caller's language.
pub struct CallingConvention<K> {
    /// Name of the method.
    pub name: String,
    /// Flat inputs.
    pub inputs: Vec<IoSpec>,
    /// Flat outputs.
    pub outputs: Vec<IoSpec>,
    /// Names of the flat inputs.
    input_keys: Vec<Option<K>>,
    /// Names of the positional parameters, in order; empty where the program stores none.
    parameters: Vec<K>,
    input_tree: Stored<K>,
    output_tree: Stored<K>,
}

/// What a program says about a structure.
enum Stored<K> {
    /// Nothing: values are passed flat.
    Flat,
    /// This one.
    Tree(Tree<K>),
    /// One that cannot be used, and why. Flat execution still works.
    Damaged(String),
}

impl<K> Stored<K> {
    fn read<O: Objects<Key = K>>(objects: &O, text: &str, leaves: usize) -> Self {
        if text.is_empty() {
            return Stored::Flat;
        }
        match Tree::parse(objects, text) {
            Ok(tree) if tree.leaf_count() == leaves => Stored::Tree(tree),
            Ok(tree) => Stored::Damaged(format!(
                "{} values in the structure, {leaves} in the method",
                tree.leaf_count()
            )),
            Err(error) => Stored::Damaged(error.detail().got.clone().unwrap_or_else(|| error.to_string())),
        }
    }
}

impl<K> CallingConvention<K> {
    /// Reads that of `method`.
    ///
    /// Errors: the program has no such method.
    pub fn new<O: Objects<Key = K>>(objects: &O, program: &Program, method: &str) -> Result<Self> {
        let (inputs, outputs) = (program.inputs(method)?.to_vec(), program.outputs(method)?.to_vec());
        let parameters = program.parameters(method)?;
        Ok(Self::of_texts(objects, method, (inputs, outputs), program.trees(method)?, parameters))
    }

    pub(super) fn of_texts<O: Objects<Key = K>>(
        objects: &O,
        method: &str,
        (inputs, outputs): (Vec<IoSpec>, Vec<IoSpec>),
        (input_text, output_text): (&str, &str),
        parameters: &[String],
    ) -> Self {
        let key = |name: &String| objects.key(StoredKey::String(name));
        let input_tree = match Stored::read(objects, input_text, inputs.len()) {
            Stored::Tree(tree) if tree.call_halves().is_none() => {
                Stored::Damaged("not a tuple of positional arguments and a dict of keyword arguments".into())
            }
            other => other,
        };
        CallingConvention {
            name: method.into(),
            input_keys: inputs.iter().map(|input| key(&input.name)).collect(),
            // A language that lacks one of the keys passes them by position.
            parameters: parameters.iter().map(key).collect::<Option<_>>().unwrap_or_default(),
            input_tree,
            output_tree: Stored::read(objects, output_text, outputs.len()),
            inputs,
            outputs,
        }
    }

    /// Takes the arguments of a call apart, into the flat values that the method takes. `kwargs`: how many there are, and a
    /// mapping of them; parameters that were positional at export may be among them.
    ///
    /// Errors: other arguments than the method was exported with, or of another structure.
    pub fn flatten_call<O: Objects<Key = K>>(
        &self,
        objects: &O,
        args: impl ExactSizeIterator<Item = O::Value>,
        kwargs: Option<(usize, &O::Value)>,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        let kwargs = kwargs.filter(|(count, _)| *count > 0);
        match &self.input_tree {
            Stored::Tree(tree) => {
                let Some((positional, keyword)) = tree.call_halves() else {
                    return Err(Error::internal("an input structure without halves"));
                };
                let count = args.len();
                let wrong = || self.wrong_arguments(objects, count, kwargs.map(|k| k.1), positional, keyword);
                let named = |e: Error| e.method(&*self.name);
                let by_name = positional.child_count().saturating_sub(count);
                if count > positional.child_count()
                    || kwargs.map_or(0, |k| k.0) != keyword.child_count().saturating_add(by_name)
                {
                    return Err(wrong());
                }
                if by_name == 0 {
                    positional.flatten_args(objects, args, leaves).map_err(named)?;
                } else {
                    let keys = self.parameters.get(count..).filter(|keys| keys.len() == by_name);
                    let value = |key: &K| kwargs.and_then(|(_, kwargs)| objects.entry(kwargs, key));
                    let rest: Option<Vec<O::Value>> = keys.and_then(|keys| keys.iter().map(value).collect());
                    let args = args.chain(rest.ok_or_else(wrong)?);
                    positional.flatten_args(objects, args, leaves).map_err(named)?;
                }
                if let Some((_, kwargs)) = kwargs
                    // There are as many as there should be: another name is not known.
                    && !keyword.flatten_kwargs(objects, kwargs, leaves).map_err(named)?
                {
                    return Err(wrong());
                }
            }
            Stored::Flat if kwargs.is_none() => leaves.extend(args),
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
        Ok(())
    }

    /// The flat inputs of a mapping from their names, in the method's order.
    ///
    /// Errors: `given`, a mapping of `count` entries, has other names than the inputs.
    pub fn flatten_named<O: Objects<Key = K>>(
        &self,
        objects: &O,
        (count, given): (usize, &O::Value),
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        let value = |key: &Option<K>| objects.entry(given, key.as_ref()?);
        let found: Option<Leaves<O::Value>> = self.input_keys.iter().map(value).collect();
        match found.filter(|found| found.len() == count) {
            Some(found) => leaves.extend(found),
            None => {
                let names =
                    |names: Vec<String>| names.iter().map(|n| printable(n)).collect::<Vec<_>>().join(", ");
                return Err(Error::input("the inputs by name are not those of the method")
                    .method(&*self.name)
                    .argument("inputs")
                    .expected(names(self.inputs.iter().map(|input| input.name.clone()).collect()))
                    .got(names(objects.entry_names(given)))
                    .hint("program.inputs(method) lists names and types; a list in their order works too"));
            }
        }
        Ok(())
    }

    #[cold]
    fn wrong_arguments<O: Objects<Key = K>>(
        &self,
        objects: &O,
        count: usize,
        kwargs: Option<&O::Value>,
        positional: &Node<K>,
        keyword: &Node<K>,
    ) -> Error {
        let mut names = Vec::new();
        let mut at = 0usize;
        for (i, leaves) in positional.child_leaf_counts().enumerate() {
            names.push(match (self.parameters.get(i), leaves, self.inputs.get(at)) {
                (Some(key), 1, _) => printable(&objects.key_name(key)),
                (Some(key), ..) => format!("{} ({leaves} values)", printable(&objects.key_name(key))),
                (None, 1, Some(spec)) => printable(&spec.name),
                _ => format!("({leaves} values)"),
            });
            at = at.saturating_add(leaves);
        }
        let given = kwargs.map(|kwargs| objects.entry_names(kwargs)).unwrap_or_default();
        let given: Vec<String> = given.iter().map(|name| printable(name)).collect();
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
            .expected(describe(positional.child_count(), &names, &keyword.key_names(objects)))
            .got(describe(count, &[], &given))
            .hint("arguments keep the position or the name that they have in the model")
    }

    /// Is the result of a method with one output that output itself?
    pub fn gives_one_value(&self) -> bool {
        matches!(self.output_tree, Stored::Tree(Tree::Leaf) | Stored::Flat | Stored::Damaged(_))
    }

    /// Outputs in the exported structure; a tuple where the program stores none.
    ///
    /// Errors: what the language raises while it makes a container.
    pub fn build<O: Objects<Key = K>>(
        &self,
        objects: &O,
        outputs: &mut impl Iterator<Item = O::Value>,
    ) -> Result<O::Value, O::Raised> {
        match &self.output_tree {
            Stored::Tree(tree) => tree.build(objects, outputs),
            Stored::Flat | Stored::Damaged(_) => objects.tuple(outputs.collect()),
        }
    }

    /// Refuses output buffers that are not one for each output.
    ///
    /// Errors: `count` is another number.
    pub fn check_buffer_count(&self, count: usize) -> Result<()> {
        if count == self.outputs.len() {
            return Ok(());
        }
        Err(Error::input("wrong number of output buffers")
            .method(&*self.name)
            .argument("outputs")
            .expected(format!("{} (None where the method is to make the memory)", self.outputs.len()))
            .got(count.to_string())
            .hint("leave outputs out where the method is to make all memory"))
    }

    /// `forward(x: float32[2, 3]) -> float32[2, 3]`
    pub fn signature(&self) -> String {
        let inputs = self.inputs.iter().map(|i| format!("{}: {}", printable(&i.name), i.kind));
        let outputs = self.outputs.iter().map(IoSpec::description);
        format!(
            "{}({}) -> {}",
            printable(&self.name),
            inputs.collect::<Vec<_>>().join(", "),
            outputs.collect::<Vec<_>>().join(", ")
        )
    }
}
