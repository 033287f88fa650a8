//! Checks a call's inputs before anything is touched.

use crate::load::input_rule::{InputRule, Relation, RuleKind, TensorRule};
use crate::load::method_code::MethodCode;
use crate::{InputValue, IoSpec, TensorInput};
use pteron_core::error::printable;
use pteron_core::{Error, Result};
use smallvec::SmallVec;

/// Checks count, kinds, dtypes, ranks, extents and relations. The error names the input.
pub(crate) fn check_inputs(code: &MethodCode, inputs: &[InputValue<'_>]) -> Result<()> {
    let rules = &code.input_rules;
    if inputs.len() != rules.rules.len() {
        return Err(wrong_count(code, inputs.len()));
    }
    let mut symbols: Symbols = SmallVec::from_elem(None, rules.symbol_count);
    for (i, (rule, input)) in rules.rules.iter().zip(inputs).enumerate() {
        if let Err(e) = check_input(code, rule, input, i, &mut symbols) {
            let name = code.inputs.get(i).map_or("?", |s| s.name.as_str());
            return Err(e.method(code.ir.name.as_str()).argument(name).hint(
                "inputs(method) of the program tells what each input must be; other kinds or shapes need another \
                 export",
            ));
        }
    }
    for relation in &rules.relations {
        check_relation(code, relation, inputs, &mut symbols)?;
    }
    Ok(())
}

/// Checks an extent against the expression that it was exported as.
fn check_relation(
    code: &MethodCode,
    relation: &Relation,
    inputs: &[InputValue<'_>],
    symbols: &mut Symbols,
) -> Result<()> {
    let Some(InputValue::Tensor(input)) = inputs.get(relation.input) else { return Ok(()) };
    let Some(extent) = input.shape.get(relation.dim).and_then(|n| i64::try_from(*n).ok()) else {
        return Ok(());
    };
    if let Some(linear) = &relation.solves {
        let solved = linear.solve(extent).and_then(|v| u64::try_from(v).ok());
        let (Some(value), Some(slot)) = (solved, symbols.get_mut(linear.symbol)) else {
            return Err(broken_relation(
                code,
                relation,
                input,
                "a multiple that gives its symbol a value".into(),
            ));
        };
        *slot = Some((value, relation.input));
        return Ok(());
    }
    let known = |s: usize| symbols.get(s).copied().flatten();
    match relation.expression.value(|s| known(s).and_then(|(v, _)| i64::try_from(v).ok())) {
        Some(value) if value == extent => Ok(()),
        value => {
            let from = relation.expression.symbols().find_map(known).map(|(_, input)| input);
            let name = from.and_then(|i| code.inputs.get(i)).map_or("?", |s| s.name.as_str());
            let expected = match value {
                Some(n) => format!("{n}, from the extents of input '{}'", printable(name)),
                None => "a number of 64 bits".into(),
            };
            Err(broken_relation(code, relation, input, expected))
        }
    }
}

#[cold]
fn broken_relation(
    code: &MethodCode,
    relation: &Relation,
    input: &TensorInput<'_>,
    expected: String,
) -> Error {
    let spec = code.inputs.get(relation.input);
    let text = match spec.map(|s| &s.kind) {
        Some(crate::IoKind::Tensor(t)) => t.extents.get(relation.dim).map(|e| e.to_string()),
        _ => None,
    };
    let text = text.unwrap_or_default();
    Error::input(format!("dimension {} of an input breaks the relation {text}", relation.dim))
        .method(code.ir.name.as_str())
        .argument(spec.map_or("?", |s| s.name.as_str()))
        .expected(expected)
        .got(format!("{}{:?}", input.dtype, input.shape))
        .hint("the model was exported with this relation between extents: pass inputs that keep it")
}

/// The value of each symbol once an input has set it, and which input that was.
type Symbols = SmallVec<[Option<(u64, usize)>; 8]>;

fn check_input(
    code: &MethodCode,
    rule: &InputRule,
    input: &InputValue<'_>,
    position: usize,
    symbols: &mut Symbols,
) -> Result<()> {
    match (&rule.kind, input) {
        (RuleKind::Tensor(rule), InputValue::Tensor(t)) => check_tensor(code, rule, t, position, symbols),
        (RuleKind::Int { traced, range, symbol }, InputValue::Int(v)) => {
            match range {
                None if v == traced => {}
                None => return Err(traced_value(&traced.to_string(), &v.to_string())),
                Some((min, max)) if v < min || v > max => {
                    return Err(Error::input("an integer input is outside its range")
                        .expected(format!("{min} to {max}"))
                        .got(v.to_string())
                        .hint("export with a wider range for this integer if other values must work"));
                }
                Some(_) => {}
            }
            match (symbol, u64::try_from(*v)) {
                (Some(s), Ok(v)) => check_symbol(code, *s, v, position, symbols, "value"),
                _ => Ok(()),
            }
        }
        (RuleKind::Bool(traced), InputValue::Bool(v)) => match v == traced {
            true => Ok(()),
            false => Err(traced_value(&traced.to_string(), &v.to_string())),
        },
        (RuleKind::Double(traced), InputValue::Double(v)) => check_double(*traced, *v),
        (RuleKind::Double(traced), InputValue::Int(v)) => check_double(*traced, *v as f64),
        (RuleKind::String, InputValue::String(v)) => check_string(code.inputs.get(position), v),
        (RuleKind::None, InputValue::None) => Ok(()),
        _ => Err(wrong_kind(code.inputs.get(position), input)),
    }
}

fn check_tensor(
    code: &MethodCode,
    rule: &TensorRule,
    input: &TensorInput<'_>,
    position: usize,
    symbols: &mut Symbols,
) -> Result<()> {
    if input.dtype != rule.dtype {
        return Err(Error::input_type("an input tensor has another dtype than the method takes")
            .expected(rule.dtype.name())
            .got(input.dtype.name())
            .hint("convert the input; the runtime never converts dtypes by itself"));
    }
    if input.shape.len() != rule.extents.len() || input.strides.is_some_and(|s| s.len() != input.shape.len())
    {
        return Err(wrong_shape(
            code,
            position,
            input,
            "an input tensor has another rank than the method takes",
        ));
    }
    for (d, (n, extent)) in input.shape.iter().zip(&rule.extents).enumerate() {
        if *n < extent.min || *n > extent.max {
            let what = format!("dimension {d} of an input tensor is outside what the method takes");
            return Err(wrong_shape(code, position, input, &what));
        }
        if let Some(s) = extent.symbol {
            check_symbol(code, s, *n as u64, position, symbols, &format_args!("dimension {d}"))?;
        }
    }
    Ok(())
}

fn check_symbol(
    code: &MethodCode,
    symbol: usize,
    value: u64,
    position: usize,
    symbols: &mut Symbols,
    what: &(impl std::fmt::Display + ?Sized),
) -> Result<()> {
    let Some(slot) = symbols.get_mut(symbol) else {
        return Err(Error::internal("a symbol is out of range"));
    };
    match slot {
        None => *slot = Some((value, position)),
        Some((known, first)) if *known != value => {
            let name = code.inputs.get(*first).map_or("?", |s| s.name.as_str());
            return Err(Error::input(format!("{what} of an input disagrees with another input"))
                .expected(format!("{known}, as in input '{}' (the same symbol)", printable(name)))
                .got(value.to_string())
                .hint(
                    "both were exported with one symbol for this extent: pass inputs in which it is equal",
                ));
        }
        Some(_) => {}
    }
    Ok(())
}

fn check_double(traced: f64, got: f64) -> Result<()> {
    // ExecuTorch's tolerances: a float that was baked in may differ by rounding only.
    const ABSOLUTE: f64 = 1e-4;
    const RELATIVE: f64 = 1e-5;
    let is_same = got == traced
        || (got.is_nan() && traced.is_nan())
        || (got - traced).abs() <= ABSOLUTE + RELATIVE * traced.abs();
    if is_same { Ok(()) } else { Err(traced_value(&traced.to_string(), &got.to_string())) }
}

fn check_string(spec: Option<&IoSpec>, got: &str) -> Result<()> {
    match spec.map(|s| &s.kind) {
        Some(crate::IoKind::String { traced }) if traced == got => Ok(()),
        Some(crate::IoKind::String { traced }) => Err(traced_value(&printable(traced), &printable(got))),
        _ => Err(Error::internal("an input rule and its spec differ")),
    }
}

#[cold]
fn traced_value(traced: &str, got: &str) -> Error {
    Error::input("an input that is fixed in the program has another value").expected(traced).got(got).hint(
        "the value was baked in at export; export again with the one you need, or as a symbolic integer",
    )
}

#[cold]
fn wrong_kind(spec: Option<&IoSpec>, input: &InputValue<'_>) -> Error {
    Error::input_type("an input has the wrong type")
        .expected(spec.map_or("?".into(), |s| s.kind.to_string()))
        .got(input.kind_name())
}

#[cold]
fn wrong_shape(code: &MethodCode, position: usize, input: &TensorInput<'_>, what: &str) -> Error {
    Error::input(what)
        .expected(code.inputs.get(position).map_or("?".into(), |s| s.kind.to_string()))
        .got(format!("{}{:?}", input.dtype, input.shape))
        .hint("reshape or pad the input, or export with dynamic shapes that cover it")
}

#[cold]
fn wrong_count(code: &MethodCode, got: usize) -> Error {
    let names: Vec<String> = code.inputs.iter().map(|s| printable(&s.name)).collect();
    Error::input("wrong number of inputs")
        .method(code.ir.name.as_str())
        .expected(format!("{} ({})", names.len(), names.join(", ")))
        .got(got.to_string())
        .hint("pass one value for each, in this order")
}
