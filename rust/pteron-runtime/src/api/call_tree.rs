//! The argument and result structures that a program stores (`encoded_inp_str`, `encoded_out_str`): PyTorch's tree
//! specifications in JSON, protocol 1. What is taken apart and put together are values of the caller's language, seen
//! through [`Objects`].

use crate::load::json;
use pteron_core::{Error, Result};
use serde_json::Value as Json;
use smallvec::SmallVec;

/// The leaves of a structure, in order.
pub type Leaves<V> = SmallVec<[V; 8]>;

/// Nesting that is accepted; deeper trees are damaged ones. (JSON parsing has a limit of its own.)
const MAX_DEPTH: usize = 64;

/// A key of a stored dict, or the name of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoredKey<'a> {
    /// Text.
    String(&'a str),
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Double(f64),
    /// `None`.
    None,
}

/// Values of a language that programs are called from, as far as the structure of a call is made of them.
pub trait Objects {
    /// Any value.
    type Value;
    /// A key of a dict or the name of a field, made once at load.
    type Key;
    /// What the language raises.
    type Raised: Into<Box<dyn std::error::Error + Send + Sync>>;

    /// The key that a program stores; `None` where the language cannot have it.
    fn key(&self, stored: StoredKey<'_>) -> Option<Self::Key>;
    /// A key in messages.
    fn key_name(&self, key: &Self::Key) -> String;
    /// The type of a value in messages.
    fn type_name(&self, value: &Self::Value) -> String;

    /// Number of elements of a tuple or list; `None` for everything else.
    fn sequence_len(&self, value: &Self::Value) -> Result<Option<usize>, Self::Raised>;
    /// An element of a tuple or list.
    fn element(&self, sequence: &Self::Value, index: usize) -> Result<Self::Value, Self::Raised>;
    /// Number of entries of a mapping; `None` for everything else.
    fn mapping_len(&self, value: &Self::Value) -> Result<Option<usize>, Self::Raised>;
    /// The entry of a mapping under `key`, if it has one.
    fn entry(&self, mapping: &Self::Value, key: &Self::Key) -> Option<Self::Value>;
    /// The keys of a mapping in messages.
    fn entry_names(&self, mapping: &Self::Value) -> Vec<String>;
    /// The entry of a mapping, or the attribute of another value, of that name.
    fn field(&self, value: &Self::Value, name: &Self::Key) -> Option<Self::Value>;

    /// No value.
    fn none(&self) -> Self::Value;
    /// A tuple.
    fn tuple(&self, elements: Leaves<Self::Value>) -> Result<Self::Value, Self::Raised>;
    /// A list.
    fn list(&self, elements: Leaves<Self::Value>) -> Result<Self::Value, Self::Raised>;
    /// A dict.
    fn dict<'k>(
        &self,
        entries: impl Iterator<Item = (&'k Self::Key, Self::Value)>,
    ) -> Result<Self::Value, Self::Raised>
    where
        Self::Key: 'k;
}

/// A stored structure, with keys of the caller's language.
#[derive(Debug)]
pub enum Tree<K> {
    /// A value.
    Leaf,
    /// A container.
    Node(Node<K>),
}

/// A container of a stored structure.
#[derive(Debug)]
pub struct Node<K> {
    kind: NodeKind<K>,
    children: Vec<Tree<K>>,
}

#[derive(Debug)]
enum NodeKind<K> {
    Tuple,
    List,
    /// Keys in the order of the children.
    Dict(Vec<K>),
    /// A class of the exporter's side that names its fields (dataclass, model output); `absent` fields
    /// were None when the program was exported.
    Fields {
        class: String,
        names: Vec<K>,
        absent: Vec<K>,
    },
    /// A class of the exporter's side without field names; seen here as a tuple.
    Opaque(String),
}

fn damaged(what: impl Into<String>) -> Error {
    Error::program("the stored argument structure cannot be read").got(what)
}

/// What is raised while an argument is taken apart is the cause of an input error.
fn unreadable(path: &str, raised: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::input_type("an argument could not be taken apart").argument(path).cause(raised)
}

impl<K> Tree<K> {
    /// Reads a stored tree.
    ///
    /// Errors: `Program` for text that is none.
    pub fn parse<O: Objects<Key = K>>(objects: &O, text: &str) -> Result<Self> {
        let json = json::parse(text.as_bytes(), damaged)?;
        match json.as_array().map(Vec::as_slice) {
            Some([version, root]) if version.as_u64() == Some(1) => Self::of_json(objects, root, 0),
            Some([version, _]) => Err(damaged(format!("protocol {version}")).expected("protocol 1")),
            _ => Err(damaged("JSON of another form").expected("[1, {tree}]")),
        }
    }

    fn of_json<O: Objects<Key = K>>(objects: &O, json: &Json, depth: usize) -> Result<Self> {
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
            .map(|child| Self::of_json(objects, child, depth.saturating_add(1)))
            .collect::<Result<Vec<_>>>()?;
        let kind = NodeKind::of_json(objects, class, json.get("context"), children.len())?;
        Ok(Tree::Node(Node { kind, children }))
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        match self {
            Tree::Leaf => 1,
            Tree::Node(node) => node.child_leaf_counts().fold(0, usize::saturating_add),
        }
    }

    /// The (positional, keyword) halves of an input tree.
    pub fn call_halves(&self) -> Option<(&Node<K>, &Node<K>)> {
        let Tree::Node(Node { kind: NodeKind::Tuple, children }) = self else { return None };
        let [Tree::Node(args), Tree::Node(kwargs)] = children.as_slice() else { return None };
        let is_call =
            matches!(args.kind, NodeKind::Tuple | NodeKind::List) && matches!(kwargs.kind, NodeKind::Dict(_));
        is_call.then_some((args, kwargs))
    }

    /// Puts `leaves` into this structure; what is missing of them is none.
    ///
    /// Errors: what the language raises while it makes a container.
    pub fn build<O: Objects<Key = K>>(
        &self,
        objects: &O,
        leaves: &mut impl Iterator<Item = O::Value>,
    ) -> Result<O::Value, O::Raised> {
        let node = match self {
            Tree::Leaf => return Ok(leaves.next().unwrap_or_else(|| objects.none())),
            Tree::Node(node) => node,
        };
        let mut children: Leaves<O::Value> = SmallVec::new();
        for child in &node.children {
            children.push(child.build(objects, leaves)?);
        }
        match &node.kind {
            NodeKind::Tuple | NodeKind::Opaque(_) => objects.tuple(children),
            NodeKind::List => objects.list(children),
            NodeKind::Dict(keys) => objects.dict(keys.iter().zip(children)),
            NodeKind::Fields { names, absent, .. } => {
                let absent = absent.iter().map(|name| (name, objects.none()));
                objects.dict(names.iter().zip(children).chain(absent))
            }
        }
    }

    /// Takes `value`, which must have this structure, apart. `path` says where it stands, for errors.
    fn flatten<O: Objects<Key = K>>(
        &self,
        objects: &O,
        value: O::Value,
        path: &dyn Fn() -> String,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        match self {
            Tree::Leaf => {
                leaves.push(value);
                Ok(())
            }
            Tree::Node(node) => node.flatten(objects, &value, path, leaves),
        }
    }
}

impl<K> NodeKind<K> {
    fn of_json<O: Objects<Key = K>>(
        objects: &O,
        class: &str,
        context: Option<&Json>,
        children: usize,
    ) -> Result<Self> {
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
                let keys = keys.iter().map(|k| stored_key(k).and_then(|k| objects.key(k)));
                let keys: Option<Vec<K>> = keys.collect();
                keys.map(NodeKind::Dict)
                    .ok_or_else(|| damaged("a dict key that is neither a string nor a number"))
            }
            _ => {
                let (names, absent) = match context.as_array().map(Vec::as_slice) {
                    // A dataclass: fields that are there, fields that were None.
                    Some([Json::Array(names), Json::Array(absent)]) => {
                        (texts(objects, names), texts(objects, absent))
                    }
                    Some(names) => (texts(objects, names), Some(Vec::new())),
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

fn texts<O: Objects>(objects: &O, items: &[Json]) -> Option<Vec<O::Key>> {
    items.iter().map(|item| objects.key(StoredKey::String(item.as_str()?))).collect()
}

fn stored_key(key: &Json) -> Option<StoredKey<'_>> {
    match key {
        Json::String(text) => Some(StoredKey::String(text)),
        Json::Bool(b) => Some(StoredKey::Bool(*b)),
        Json::Number(n) => n.as_i64().map(StoredKey::Int).or_else(|| n.as_f64().map(StoredKey::Double)),
        Json::Null => Some(StoredKey::None),
        _ => None,
    }
}

impl<K> Node<K> {
    /// Number of children.
    pub fn child_count(&self) -> usize {
        self.children.len()
    }

    /// The keys of a dict in messages.
    pub fn key_names<O: Objects<Key = K>>(&self, objects: &O) -> Vec<String> {
        match &self.kind {
            NodeKind::Dict(keys) => keys.iter().map(|key| objects.key_name(key)).collect(),
            _ => Vec::new(),
        }
    }

    /// Number of leaves below each child.
    pub fn child_leaf_counts(&self) -> impl Iterator<Item = usize> + '_ {
        self.children.iter().map(Tree::leaf_count)
    }

    /// Takes as many positional arguments as the program has apart.
    ///
    /// Errors: one has another structure.
    pub fn flatten_args<O: Objects<Key = K>>(
        &self,
        objects: &O,
        args: impl Iterator<Item = O::Value>,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        for (i, (child, value)) in self.children.iter().zip(args).enumerate() {
            child.flatten(objects, value, &|| format!("args[{i}]"), leaves)?;
        }
        Ok(())
    }

    /// Takes the entries of `kwargs`, a mapping, apart; false where one that the program has is not among them.
    ///
    /// Errors: one has another structure.
    pub fn flatten_kwargs<O: Objects<Key = K>>(
        &self,
        objects: &O,
        kwargs: &O::Value,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<bool> {
        let NodeKind::Dict(keys) = &self.kind else { return Ok(true) };
        for (key, child) in keys.iter().zip(&self.children) {
            let Some(value) = objects.entry(kwargs, key) else { return Ok(false) };
            child.flatten(objects, value, &|| objects.key_name(key), leaves)?;
        }
        Ok(true)
    }

    fn flatten<O: Objects<Key = K>>(
        &self,
        objects: &O,
        value: &O::Value,
        path: &dyn Fn() -> String,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        match &self.kind {
            NodeKind::Tuple | NodeKind::List | NodeKind::Opaque(_) => {
                self.flatten_sequence(objects, value, path, leaves)
            }
            NodeKind::Dict(keys) => self.flatten_mapping(objects, value, path, keys, leaves),
            NodeKind::Fields { names, .. } => {
                for (name, child) in names.iter().zip(&self.children) {
                    let path = || format!("{}.{}", path(), objects.key_name(name));
                    let field = objects.field(value, name);
                    let field = field.ok_or_else(|| self.mismatch(objects, value, &path()))?;
                    child.flatten(objects, field, &path, leaves)?;
                }
                Ok(())
            }
        }
    }

    fn flatten_sequence<O: Objects<Key = K>>(
        &self,
        objects: &O,
        value: &O::Value,
        path: &dyn Fn() -> String,
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        let len = objects.sequence_len(value).map_err(|e| unreadable(&path(), e))?;
        let len = len.ok_or_else(|| self.mismatch(objects, value, &path()))?;
        if len != self.children.len() {
            return Err(Error::input("an argument has the wrong number of elements")
                .argument(path())
                .expected(format!("{} elements", self.children.len()))
                .got(format!("{len} elements")));
        }
        for (i, child) in self.children.iter().enumerate() {
            let element = objects.element(value, i).map_err(|e| unreadable(&path(), e))?;
            child.flatten(objects, element, &|| format!("{}[{i}]", path()), leaves)?;
        }
        Ok(())
    }

    fn flatten_mapping<O: Objects<Key = K>>(
        &self,
        objects: &O,
        value: &O::Value,
        path: &dyn Fn() -> String,
        keys: &[K],
        leaves: &mut Leaves<O::Value>,
    ) -> Result<()> {
        let len = objects.mapping_len(value).map_err(|e| unreadable(&path(), e))?;
        let len = len.ok_or_else(|| self.mismatch(objects, value, &path()))?;
        let wrong_keys = || {
            Error::input("an argument has other keys than the program was exported with")
                .argument(path())
                .expected(format!("keys {}", self.key_names(objects).join(", ")))
                .got(format!("keys {}", objects.entry_names(value).join(", ")))
        };
        if len != keys.len() {
            return Err(wrong_keys());
        }
        for (key, child) in keys.iter().zip(&self.children) {
            let entry = objects.entry(value, key).ok_or_else(wrong_keys)?;
            child.flatten(objects, entry, &|| format!("{}[{}]", path(), objects.key_name(key)), leaves)?;
        }
        Ok(())
    }

    #[cold]
    fn mismatch<O: Objects<Key = K>>(&self, objects: &O, value: &O::Value, path: &str) -> Error {
        let expected = match &self.kind {
            NodeKind::Tuple => format!("a tuple of {} elements", self.children.len()),
            NodeKind::List => format!("a list of {} elements", self.children.len()),
            NodeKind::Dict(_) => format!("a dict with keys {}", self.key_names(objects).join(", ")),
            NodeKind::Fields { class, names, .. } => format!(
                "a mapping or object with the fields {} (exported as {class})",
                names.iter().map(|name| objects.key_name(name)).collect::<Vec<_>>().join(", ")
            ),
            NodeKind::Opaque(class) => {
                format!("a tuple of {} elements (exported as {class})", self.children.len())
            }
        };
        Error::input_type("an argument does not have the structure that the program was exported with")
            .argument(path)
            .expected(expected)
            .got(objects.type_name(value))
            .hint("nest the argument as in torch.export.export, or pass flat values to method.execute([...])")
    }
}
