//! The argument and result structures that a program stores (`encoded_inp_str`, `encoded_out_str`):
//! PyTorch's tree specifications in JSON, protocol 1.

use crate::errors::type_name;
use pteron_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PySequence, PyString, PyTuple};
use serde_json::Value as Json;
use smallvec::SmallVec;

/// The leaves of a structure, in order.
pub type Leaves<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// Nesting that is accepted; deeper trees are damaged ones. (JSON parsing has a limit of its own.)
const MAX_DEPTH: usize = 64;

/// A stored structure.
#[derive(Debug)]
pub enum Tree {
    /// A value.
    Leaf,
    /// A container.
    Node(Node),
}

/// A container of a stored structure.
#[derive(Debug)]
pub struct Node {
    kind: NodeKind,
    children: Vec<Tree>,
}

#[derive(Debug)]
enum NodeKind {
    Tuple,
    List,
    /// Keys in the order of the children.
    Dict(Vec<Py<PyAny>>),
    /// A class of the exporter's side that names its fields (dataclass, model output); `absent` fields
    /// were None when the program was exported.
    Fields {
        class: String,
        names: Vec<Py<PyString>>,
        absent: Vec<Py<PyString>>,
    },
    /// A class of the exporter's side without field names; seen here as a tuple.
    Opaque(String),
}

/// Why keyword arguments could not be taken apart.
#[derive(Debug)]
pub enum KeywordError {
    /// A name that the program was exported with is not among them.
    Missing,
    /// The value of one could not be taken apart.
    Value(Error),
}

impl From<Error> for KeywordError {
    fn from(error: Error) -> Self {
        KeywordError::Value(error)
    }
}

fn damaged(what: impl Into<String>) -> Error {
    Error::program("the stored argument structure cannot be read").got(what)
}

impl Tree {
    /// Reads a stored tree.
    pub fn parse(py: Python<'_>, text: &str) -> Result<Tree> {
        let json = pteron_runtime::json::parse(text.as_bytes(), damaged)?;
        match json.as_array().map(Vec::as_slice) {
            Some([version, root]) if version.as_u64() == Some(1) => Self::node(py, root, 0),
            Some([version, _]) => Err(damaged(format!("protocol {version}")).expected("protocol 1")),
            _ => Err(damaged("JSON of another form").expected("[1, {tree}]")),
        }
    }

    fn node(py: Python<'_>, json: &Json, depth: usize) -> Result<Tree> {
        if depth > MAX_DEPTH {
            return Err(damaged(format!("nesting deeper than {MAX_DEPTH}")));
        }
        let class = match json.get("type") {
            Some(Json::Null) => return Ok(Tree::Leaf),
            Some(Json::String(class)) => class.as_str(),
            _ => return Err(damaged("a node without a type")),
        };
        let children = json.get("children_spec").and_then(Json::as_array);
        let children = children
            .ok_or_else(|| damaged(format!("a node {class} without children_spec")))?
            .iter()
            .map(|child| Self::node(py, child, depth + 1))
            .collect::<Result<Vec<_>>>()?;
        let kind = NodeKind::parse(py, class, json.get("context"), children.len())?;
        Ok(Tree::Node(Node { kind, children }))
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        match self {
            Tree::Leaf => 1,
            Tree::Node(node) => node.children.iter().map(Tree::leaf_count).sum(),
        }
    }

    /// The (positional, keyword) halves of an input tree.
    pub fn call_halves(&self) -> Option<(&Node, &Node)> {
        match self {
            Tree::Node(Node { kind: NodeKind::Tuple, children }) => match children.as_slice() {
                [Tree::Node(args), Tree::Node(kwargs)]
                    if matches!(args.kind, NodeKind::Tuple | NodeKind::List)
                        && matches!(kwargs.kind, NodeKind::Dict(_)) =>
                {
                    Some((args, kwargs))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts `leaves` into this structure. There must be as many as [`Tree::leaf_count`] says.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = match self {
            Tree::Leaf => return Ok(leaves.next().unwrap_or_else(|| py.None().into_bound(py))),
            Tree::Node(node) => node,
        };
        let mut children: Leaves<'py> = SmallVec::new();
        for child in &node.children {
            children.push(child.build(py, leaves)?);
        }
        Ok(match &node.kind {
            NodeKind::Tuple | NodeKind::Opaque(_) => PyTuple::new(py, children)?.into_any(),
            NodeKind::List => PyList::new(py, children)?.into_any(),
            NodeKind::Dict(keys) => {
                let dict = PyDict::new(py);
                for (key, value) in keys.iter().zip(children) {
                    dict.set_item(key, value)?;
                }
                dict.into_any()
            }
            NodeKind::Fields { names, absent, .. } => {
                let dict = PyDict::new(py);
                for (key, value) in names.iter().zip(children) {
                    dict.set_item(key, value)?;
                }
                for key in absent {
                    dict.set_item(key, py.None())?;
                }
                dict.into_any()
            }
        })
    }

    /// Takes `object`, which must have this structure, apart. `path` says where it stands, for errors.
    pub fn flatten<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        path: &str,
        leaves: &mut Leaves<'py>,
    ) -> Result<()> {
        match self {
            Tree::Leaf => {
                leaves.push(object.clone());
                Ok(())
            }
            Tree::Node(node) => node.flatten(object, path, leaves),
        }
    }
}

impl NodeKind {
    fn parse(py: Python<'_>, class: &str, context: Option<&Json>, children: usize) -> Result<NodeKind> {
        // A context is JSON inside a JSON string; some node types store a plain object instead.
        let context = match context {
            Some(Json::String(text)) => serde_json::from_str(text).unwrap_or(Json::Null),
            Some(other) => other.clone(),
            None => Json::Null,
        };
        match class {
            "builtins.tuple" | "torch.Size" => Ok(NodeKind::Tuple),
            "builtins.list" | "collections.deque" => Ok(NodeKind::List),
            "builtins.dict" | "collections.OrderedDict" | "collections.defaultdict" => {
                let keys = context.get("dict_context").unwrap_or(&context);
                let keys = keys.as_array().filter(|k| k.len() == children);
                let keys = keys.ok_or_else(|| damaged(format!("a {class} without a key for each value")))?;
                keys.iter().map(|k| dict_key(py, k)).collect::<Result<_>>().map(NodeKind::Dict)
            }
            _ => {
                let (names, absent) = match context.as_array().map(Vec::as_slice) {
                    // A dataclass: fields that are there, fields that were None.
                    Some([Json::Array(names), Json::Array(absent)]) => {
                        (strings(py, names), strings(py, absent))
                    }
                    Some(names) => (strings(py, names), Some(Vec::new())),
                    None => (None, None),
                };
                match (names, absent) {
                    (Some(names), Some(absent)) if names.len() == children => {
                        Ok(NodeKind::Fields { class: class.to_string(), names, absent })
                    }
                    _ => Ok(NodeKind::Opaque(class.to_string())),
                }
            }
        }
    }
}

fn strings(py: Python<'_>, items: &[Json]) -> Option<Vec<Py<PyString>>> {
    items.iter().map(|i| i.as_str().map(|s| PyString::intern(py, s).unbind())).collect()
}

fn dict_key(py: Python<'_>, key: &Json) -> Result<Py<PyAny>> {
    let object = match key {
        Json::String(s) => Some(PyString::intern(py, s).into_any().unbind()),
        Json::Bool(b) => b.into_pyobject(py).ok().map(|o| o.to_owned().into_any().unbind()),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(i), _) => i.into_pyobject(py).ok().map(|o| o.into_any().unbind()),
            (None, Some(f)) => f.into_pyobject(py).ok().map(|o| o.into_any().unbind()),
            (None, None) => None,
        },
        Json::Null => Some(py.None()),
        _ => None,
    };
    object.ok_or_else(|| damaged("a dict key that is neither a string nor a number"))
}

/// Turns a Python error met while an argument is taken apart into an input error with that cause.
fn unreadable(path: &str, error: PyErr) -> Error {
    Error::input_type("an argument could not be taken apart").argument(path).cause(error)
}

impl Node {
    /// Number of children.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Names of the keys of a dict.
    pub fn key_names(&self, py: Python<'_>) -> Vec<String> {
        match &self.kind {
            NodeKind::Dict(keys) => keys.iter().map(|k| k.bind(py).to_string()).collect(),
            _ => Vec::new(),
        }
    }

    /// Number of leaves below each child.
    pub fn child_leaf_counts(&self) -> impl Iterator<Item = usize> + '_ {
        self.children.iter().map(Tree::leaf_count)
    }

    /// Takes positional arguments apart.
    pub fn flatten_args<'py>(&self, args: &Bound<'py, PyTuple>, leaves: &mut Leaves<'py>) -> Result<()> {
        for (i, (child, value)) in self.children.iter().zip(args.iter_borrowed()).enumerate() {
            match child {
                Tree::Leaf => leaves.push(value.to_owned()),
                Tree::Node(node) => node.flatten(&value, &format!("args[{i}]"), leaves)?,
            }
        }
        Ok(())
    }

    /// Takes as many keyword arguments as the program has apart.
    pub fn flatten_kwargs<'py>(
        &self,
        kwargs: &Bound<'py, PyDict>,
        leaves: &mut Leaves<'py>,
    ) -> Result<(), KeywordError> {
        let NodeKind::Dict(keys) = &self.kind else { return Ok(()) };
        for (key, child) in keys.iter().zip(&self.children) {
            let name = key.bind(kwargs.py());
            match kwargs.get_item(name).map_err(|e| unreadable(&name.to_string(), e))? {
                Some(value) => child.flatten(&value, &name.to_string(), leaves)?,
                None => return Err(KeywordError::Missing),
            }
        }
        Ok(())
    }

    fn flatten<'py>(&self, object: &Bound<'py, PyAny>, path: &str, leaves: &mut Leaves<'py>) -> Result<()> {
        match &self.kind {
            NodeKind::Tuple | NodeKind::List => self.flatten_sequence(object, path, leaves),
            NodeKind::Dict(keys) => self.flatten_mapping(object, path, keys, leaves),
            NodeKind::Fields { names, .. } => {
                for (name, child) in names.iter().zip(&self.children) {
                    let name = name.bind(object.py());
                    let value = match object.cast::<PyMapping>() {
                        Ok(mapping) => mapping.get_item(name),
                        Err(_) => object.getattr(name),
                    };
                    let path = format!("{path}.{name}");
                    child.flatten(&value.map_err(|_| self.mismatch(object, &path))?, &path, leaves)?;
                }
                Ok(())
            }
            NodeKind::Opaque(_) => self.flatten_sequence(object, path, leaves),
        }
    }

    fn flatten_sequence<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        path: &str,
        leaves: &mut Leaves<'py>,
    ) -> Result<()> {
        if !(object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>()) {
            return Err(self.mismatch(object, path));
        }
        let items = object.cast::<PySequence>().map_err(|_| self.mismatch(object, path))?;
        let len = items.len().map_err(|e| unreadable(path, e))?;
        if len != self.children.len() {
            return Err(Error::input("an argument has the wrong number of elements")
                .argument(path)
                .expected(format!("{} elements", self.children.len()))
                .got(format!("{len} elements")));
        }
        for (i, child) in self.children.iter().enumerate() {
            let value = items.get_item(i).map_err(|e| unreadable(path, e))?;
            child.flatten(&value, &format!("{path}[{i}]"), leaves)?;
        }
        Ok(())
    }

    fn flatten_mapping<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        path: &str,
        keys: &[Py<PyAny>],
        leaves: &mut Leaves<'py>,
    ) -> Result<()> {
        let py = object.py();
        let mapping = object.cast::<PyMapping>().map_err(|_| self.mismatch(object, path))?;
        let wrong_keys = || {
            let got = mapping.keys().map(|k| k.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(", "));
            Error::input("an argument has other keys than the program was exported with")
                .argument(path)
                .expected(format!("keys {}", self.key_names(py).join(", ")))
                .got(format!("keys {}", got.unwrap_or_default()))
        };
        if mapping.len().map_err(|e| unreadable(path, e))? != keys.len() {
            return Err(wrong_keys());
        }
        for (key, child) in keys.iter().zip(&self.children) {
            let value = mapping.get_item(key).map_err(|_| wrong_keys())?;
            child.flatten(&value, &format!("{path}[{}]", key.bind(py)), leaves)?;
        }
        Ok(())
    }

    fn mismatch(&self, object: &Bound<'_, PyAny>, path: &str) -> Error {
        let expected = match &self.kind {
            NodeKind::Tuple => format!("a tuple of {} elements", self.children.len()),
            NodeKind::List => format!("a list of {} elements", self.children.len()),
            NodeKind::Dict(_) => format!("a dict with keys {}", self.key_names(object.py()).join(", ")),
            NodeKind::Fields { class, names, .. } => format!(
                "a mapping or object with the fields {} (exported as {class})",
                names.iter().map(|n| n.bind(object.py()).to_string()).collect::<Vec<_>>().join(", ")
            ),
            NodeKind::Opaque(class) => {
                format!("a tuple of {} elements (exported as {class})", self.children.len())
            }
        };
        Error::input_type("an argument does not have the structure that the program was exported with")
            .argument(path)
            .expected(expected)
            .got(type_name(object))
            .hint("nest the argument as in torch.export.export, or pass flat values to method.execute([...])")
    }
}
