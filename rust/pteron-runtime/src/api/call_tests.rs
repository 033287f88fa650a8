//! Structures of calls, with values of a small language in place of Python's.

use super::call_tree::{Leaves, Objects, StoredKey, Tree};
use super::calling_convention::CallingConvention;
use crate::load::io_spec::{IoKind, IoSpec};
use pteron_core::{Error, ErrorKind};

/// A value; a record has named fields and is no mapping.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    None,
    Number(i64),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(String, Value)>),
    Record(Vec<(String, Value)>),
    /// A list that raises when it is looked at.
    Raising,
}

use Value::{Dict, List, Number, Raising, Record, Tuple};

fn dict<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Dict(entries.map(|(k, v)| (k.to_string(), v)).into())
}

struct Language;

impl Objects for Language {
    type Value = Value;
    type Key = String;
    type Raised = std::fmt::Error;

    fn key(&self, stored: StoredKey<'_>) -> Option<String> {
        match stored {
            StoredKey::String(text) => Some(text.to_string()),
            StoredKey::Int(i) => Some(i.to_string()),
            StoredKey::Double(f) => Some(f.to_string()),
            StoredKey::Bool(b) => Some(b.to_string()),
            // The language has no such key.
            StoredKey::None => None,
        }
    }
    fn key_name(&self, key: &String) -> String {
        key.clone()
    }
    fn type_name(&self, value: &Value) -> String {
        format!("{value:?}").split(['(', ' ']).next().unwrap().to_lowercase()
    }
    fn sequence_len(&self, value: &Value) -> Result<Option<usize>, std::fmt::Error> {
        match value {
            Tuple(items) | List(items) => Ok(Some(items.len())),
            Raising => Err(std::fmt::Error),
            _ => Ok(None),
        }
    }
    fn element(&self, sequence: &Value, index: usize) -> Result<Value, std::fmt::Error> {
        match sequence {
            Tuple(items) | List(items) => items.get(index).cloned().ok_or(std::fmt::Error),
            _ => Err(std::fmt::Error),
        }
    }
    fn mapping_len(&self, value: &Value) -> Result<Option<usize>, std::fmt::Error> {
        match value {
            Dict(entries) => Ok(Some(entries.len())),
            Raising => Err(std::fmt::Error),
            _ => Ok(None),
        }
    }
    fn entry(&self, mapping: &Value, key: &String) -> Option<Value> {
        let (Dict(entries) | Record(entries)) = mapping else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
    }
    fn entry_names(&self, mapping: &Value) -> Vec<String> {
        let Dict(entries) = mapping else { return vec![] };
        entries.iter().map(|(k, _)| k.clone()).collect()
    }
    fn field(&self, value: &Value, name: &String) -> Option<Value> {
        self.entry(value, name)
    }
    fn none(&self) -> Value {
        Value::None
    }
    fn tuple(&self, elements: Leaves<Value>) -> Result<Value, std::fmt::Error> {
        Ok(Tuple(elements.into_vec()))
    }
    fn list(&self, elements: Leaves<Value>) -> Result<Value, std::fmt::Error> {
        Ok(List(elements.into_vec()))
    }
    fn dict<'k>(&self, entries: impl Iterator<Item = (&'k String, Value)>) -> Result<Value, std::fmt::Error> {
        Ok(Dict(entries.map(|(k, v)| (k.clone(), v)).collect()))
    }
}

const LEAF: &str = r#"{"type":null,"context":null,"children_spec":[]}"#;

fn node(class: &str, context: &str, children: &[&str]) -> String {
    let class = format!(r#""type":"{class}","context":{context}"#);
    format!(r#"{{{class},"children_spec":[{}]}}"#, children.join(","))
}

fn tuple(children: &[&str]) -> String {
    node("builtins.tuple", r#""null""#, children)
}

fn dict_of(keys: &str, children: &[&str]) -> String {
    node("builtins.dict", &format!("{:?}", format!("[{keys}]")), children)
}

/// The stored text of a tree.
fn stored(root: &str) -> String {
    format!("[1,{root}]")
}

fn tree(root: &str) -> Tree<String> {
    Tree::parse(&Language, &stored(root)).unwrap()
}

fn spec(name: &str) -> IoSpec {
    IoSpec { name: name.into(), kind: IoKind::Bool { traced: true }, is_computed: true }
}

/// A method `forward` of flat inputs `x0`, `x1`, and so on, whose call has this structure.
fn convention(inputs: usize, call: &str) -> CallingConvention<String> {
    with_parameters(inputs, call, &[])
}

/// As [`convention`], with names of the positional parameters.
fn with_parameters(inputs: usize, call: &str, parameters: &[&str]) -> CallingConvention<String> {
    let parameters: Vec<String> = parameters.iter().map(|name| name.to_string()).collect();
    let inputs = (0..inputs).map(|i| spec(&format!("x{i}"))).collect();
    let output = stored(&tuple(&[LEAF, LEAF]));
    CallingConvention::of_texts(
        &Language,
        "forward",
        (inputs, vec![spec("y"), spec("z")]),
        (call, &output),
        &parameters,
    )
}

/// One positional argument that is a tuple of a number and a dict, and a keyword argument `scale`.
fn nested() -> CallingConvention<String> {
    let argument = tuple(&[LEAF, &dict_of(r#""a","b""#, &[LEAF, LEAF])]);
    convention(4, &stored(&tuple(&[&tuple(&[&argument]), &dict_of(r#""scale""#, &[LEAF])])))
}

fn flatten(
    convention: &CallingConvention<String>,
    args: Vec<Value>,
    kwargs: Option<Value>,
) -> Result<Vec<Value>, Error> {
    let mut leaves = Leaves::new();
    let kwargs = kwargs.as_ref().map(|k| (Language.entry_names(k).len(), k));
    convention.flatten_call(&Language, args.into_iter(), kwargs, &mut leaves)?;
    Ok(leaves.into_vec())
}

fn text(result: Result<Vec<Value>, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_call_is_taken_apart_in_the_order_of_the_structure() {
    let argument = |inner: Value| Tuple(vec![Number(1), inner]);
    let scale = || Some(dict([("scale", Number(4))]));
    let expected = [1, 2, 3, 4].map(Number);
    let in_order = argument(dict([("a", Number(2)), ("b", Number(3))]));
    assert_eq!(flatten(&nested(), vec![in_order.clone()], scale()).unwrap(), expected);
    // Dicts in another order, and a list for a tuple.
    let other = List(vec![Number(1), dict([("b", Number(3)), ("a", Number(2))])]);
    assert_eq!(flatten(&nested(), vec![other], scale()).unwrap(), expected);
}

#[test]
fn positional_parameters_may_be_named() {
    let call = stored(&tuple(&[&tuple(&[LEAF, &tuple(&[LEAF, LEAF])]), &dict_of(r#""scale""#, &[LEAF])]));
    let named = with_parameters(4, &call, &["x", "pair"]);
    let pair = || Tuple(vec![Number(2), Number(3)]);
    let expected = [1, 2, 3, 4].map(Number);
    for (args, kwargs) in [
        (vec![Number(1)], dict([("scale", Number(4)), ("pair", pair())])),
        (vec![], dict([("pair", pair()), ("scale", Number(4)), ("x", Number(1))])),
        (vec![Number(1), pair()], dict([("scale", Number(4))])),
    ] {
        assert_eq!(flatten(&named, args, Some(kwargs)).unwrap(), expected);
    }
    for (args, kwargs) in [
        // Twice, of another name, one too few, and one that comes before those by position.
        (vec![Number(1), pair()], dict([("scale", Number(4)), ("x", Number(1))])),
        (vec![Number(1)], dict([("scale", Number(4)), ("couple", pair())])),
        (vec![Number(1)], dict([("scale", Number(4))])),
        (vec![pair()], dict([("scale", Number(4)), ("x", Number(1))])),
    ] {
        let text = text(flatten(&named, args, Some(kwargs)));
        assert!(
            text.contains("2 positional arguments (x, pair (2 values)) and keyword arguments scale"),
            "{text}"
        );
    }
    // A file that names too many, or none.
    let kwargs = || Some(dict([("scale", Number(4)), ("pair", pair())]));
    for names in [&["x", "pair", "other"][..], &["x"], &[]] {
        assert!(flatten(&with_parameters(4, &call, names), vec![Number(1)], kwargs()).is_err());
    }
}

#[test]
fn flat_inputs_may_be_named() {
    let flat = convention(2, "");
    let named = |entries: Value| {
        let mut leaves = Leaves::new();
        let count = Language.entry_names(&entries).len();
        flat.flatten_named(&Language, (count, &entries), &mut leaves).map(|()| leaves.into_vec())
    };
    assert_eq!(named(dict([("x1", Number(2)), ("x0", Number(1))])).unwrap(), [1, 2].map(Number));
    for wrong in [dict([("x0", Number(1))]), dict([("x0", Number(1)), ("y", Number(2))])] {
        let text = text(named(wrong));
        assert!(text.contains("expected x0, x1; got x0"), "{text}");
    }
    assert!(named(dict([("x0", Number(1)), ("x1", Number(2)), ("x2", Number(3))])).is_err());
}

#[test]
fn other_arguments_are_refused_with_both_sides_in_words() {
    let e = flatten(&nested(), vec![], Some(dict([("scale", Number(4))]))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Input);
    let detail = e.detail();
    assert_eq!(detail.method.as_deref(), Some("forward"));
    assert_eq!(
        detail.expected.as_deref(),
        Some("1 positional arguments ((3 values)) and keyword arguments scale")
    );
    assert_eq!(detail.got.as_deref(), Some("0 positional arguments and keyword arguments scale"));
    let argument = Tuple(vec![Number(1), dict([("a", Number(2)), ("b", Number(3))])]);
    // As many keyword arguments, of another name; none at all.
    let e = flatten(&nested(), vec![argument.clone()], Some(dict([("shift", Number(4))]))).unwrap_err();
    assert_eq!(e.detail().got.as_deref(), Some("1 positional arguments and keyword arguments shift"));
    let e = flatten(&nested(), vec![argument], None).unwrap_err();
    assert_eq!(e.detail().got.as_deref(), Some("1 positional arguments and no keyword arguments"));
}

#[test]
fn a_wrong_structure_is_refused_at_its_place() {
    let call = |argument: Value| flatten(&nested(), vec![argument], Some(dict([("scale", Number(4))])));
    let e = text(call(Number(1)));
    assert!(e.contains("args[0]") && e.contains("a tuple of 2 elements") && e.contains("number"), "{e}");
    let e = text(call(Tuple(vec![Number(1)])));
    assert!(e.contains("wrong number of elements") && e.contains("got 1 elements"), "{e}");
    let e = text(call(Tuple(vec![Number(1), Number(2)])));
    assert!(e.contains("args[0][1]") && e.contains("a dict with keys a, b"), "{e}");
    let e = text(call(Tuple(vec![Number(1), dict([("a", Number(2)), ("c", Number(3))])])));
    assert!(e.contains("expected keys a, b; got keys a, c"), "{e}");
    let e = text(call(Tuple(vec![Number(1), dict([("a", Number(2))])])));
    assert!(e.contains("expected keys a, b; got keys a"), "{e}");
    let e = call(Raising).unwrap_err();
    assert!(e.detail().cause.is_some() && e.to_string().contains("could not be taken apart"), "{e}");
    assert_eq!(e.kind(), Error::input_type("").kind());
}

#[test]
fn classes_with_fields_are_mappings_or_objects() {
    let class = node("my.Pair", r#""[[\"left\",\"right\"],[\"note\"]]""#, &[LEAF, LEAF]);
    let convention = convention(2, &stored(&tuple(&[&tuple(&[&class]), &dict_of("", &[])])));
    let fields = || vec![("left".to_string(), Number(1)), ("right".to_string(), Number(2))];
    for value in [Dict(fields()), Record(fields())] {
        assert_eq!(flatten(&convention, vec![value], None).unwrap(), [Number(1), Number(2)]);
    }
    let e = text(flatten(&convention, vec![Record(vec![("left".into(), Number(1))])], None));
    assert!(e.contains("args[0].right") && e.contains("left, right (exported as my.Pair)"), "{e}");
    // A result has the fields that were None, too.
    let built = tree(&class).build(&Language, &mut [Number(1), Number(2)].into_iter()).unwrap();
    assert_eq!(built, dict([("left", Number(1)), ("right", Number(2)), ("note", Value::None)]));
    // Fields without names are a tuple.
    let opaque = tree(&node("my.Opaque", r#""7""#, &[LEAF]));
    assert_eq!(opaque.build(&Language, &mut [Number(1)].into_iter()).unwrap(), Tuple(vec![Number(1)]));
}

#[test]
fn results_are_put_together() {
    let root =
        tuple(&[LEAF, &node("builtins.list", r#""null""#, &[LEAF]), &dict_of(r#""k",7"#, &[LEAF, LEAF])]);
    let tree = tree(&root);
    assert_eq!(tree.leaf_count(), 4);
    let built = tree.build(&Language, &mut [1, 2, 3, 4].map(Number).into_iter()).unwrap();
    let expected = [Number(1), List(vec![Number(2)]), dict([("k", Number(3)), ("7", Number(4))])];
    assert_eq!(built, Tuple(expected.into()));
    let convention = convention(1, "");
    assert!(!convention.gives_one_value());
    let built = convention.build(&Language, &mut [1, 2].map(Number).into_iter()).unwrap();
    assert_eq!(built, Tuple([1, 2].map(Number).into()));
    assert_eq!(convention.signature(), "forward(x0: bool (always true)) -> bool, bool");
}

#[test]
fn programs_without_a_structure_take_values_by_position() {
    let flat = convention(2, "");
    assert_eq!(flatten(&flat, vec![Number(1), Number(2)], None).unwrap(), [Number(1), Number(2)]);
    // No keyword arguments are none, however they are given.
    assert!(flatten(&flat, vec![Number(1)], Some(dict([]))).is_ok());
    let e = text(flatten(&flat, vec![Number(1)], Some(dict([("x1", Number(2))]))));
    assert!(e.contains("stores no names") && e.contains("2 positional arguments"), "{e}");
}

#[test]
fn a_damaged_structure_is_named_when_it_is_needed() {
    let halves = stored(&tuple(&[LEAF, LEAF]));
    let deep = (0..70).fold(LEAF.to_string(), |inner, _| tuple(&[&inner]));
    for (call, why) in [
        (halves.as_str(), "not a tuple of positional arguments"),
        ("{}", "JSON of another form"),
        ("[2,{}]", "protocol 2"),
        ("[1,{}]", "a node without a type"),
        (r#"[1,{"type":"builtins.tuple"}]"#, "without children_spec"),
        (&stored(&dict_of("", &[LEAF])), "without a key for each value"),
        (&stored(&dict_of("null", &[LEAF])), "neither a string nor a number"),
        (&stored(&deep), "recursion limit exceeded"),
        (
            &stored(&tuple(&[&tuple(&[LEAF]), &dict_of("", &[])])),
            "1 values in the structure, 2 in the method",
        ),
    ] {
        let e = flatten(&convention(2, call), vec![Number(1), Number(2)], None).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Program);
        assert!(e.to_string().contains(why), "{e}");
    }
}

#[test]
fn buffers_are_one_for_each_output() {
    let convention = convention(1, "");
    assert!(convention.check_buffer_count(2).is_ok());
    let e = convention.check_buffer_count(1).unwrap_err().to_string();
    assert!(e.contains("expected 2 (None where the method") && e.contains("got 1"), "{e}");
}
