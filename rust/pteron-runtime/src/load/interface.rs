//! `pteron.interface`: names of inputs and outputs, ranges and relations of their extents. Part of the
//! program's contract, so what is wrong in it is an error at load.

use crate::step_effects::Operation;
use crate::{Extent, IoKind, IoSpec, TensorIo};
use pteron_core::error::printable;
use pteron_core::{Error, Result, ValueId};
use pteron_format::{MethodDef, Placement, TensorDef, ValueDef};
use serde_json::Value as Json;
use std::collections::HashSet;

/// Named data that holds the interface.
pub(crate) const INTERFACE_KEY: &str = "pteron.interface";

/// The parsed named data; empty for files without it.
pub(crate) struct Interface(Option<Json>);

impl Interface {
    /// Reads the JSON text; an error when it is not JSON of version 1.
    pub(crate) fn parse(text: Option<&[u8]>) -> Result<Interface> {
        let Some(text) = text else { return Ok(Interface(None)) };
        let json = crate::load::json::parse(text, |why| bad("is not JSON").got(why))?;
        if json.get("version").and_then(Json::as_i64) != Some(1) {
            return Err(bad("has a version that this runtime does not know")
                .expected("version 1")
                .got(json.get("version").map_or("none".into(), |v| printable(&v.to_string())))
                .hint("use a newer pteron, or export the model again with this one"));
        }
        Ok(Interface(Some(json)))
    }

    /// Inputs of a method.
    pub(crate) fn inputs(&self, method: &MethodDef) -> Result<Vec<IoSpec>> {
        self.side(method, "inputs", "input", &method.inputs)
    }

    /// Outputs of a method.
    pub(crate) fn outputs(&self, method: &MethodDef) -> Result<Vec<IoSpec>> {
        let mut specs = self.side(method, "outputs", "output", &method.outputs)?;
        let is_plain = |spec: &IoSpec| !matches!(spec.kind, IoKind::Tensor(_) | IoKind::None);
        if specs.iter().any(is_plain) {
            let operations = method.instructions.iter().map(|i| Operation::of(i, None, false));
            let written: HashSet<ValueId> = operations.flat_map(Operation::may_write).collect();
            for (spec, id) in specs.iter_mut().zip(&method.outputs) {
                spec.is_computed = is_plain(spec) && written.contains(id);
            }
        }
        Ok(specs)
    }

    /// Names of the positional parameters of a method, as its model calls them; empty where the file has none.
    pub(crate) fn parameters(&self, method: &MethodDef) -> Result<Vec<String>> {
        let Some(stored) =
            self.0.as_ref().and_then(|j| j.get("methods")?.get(&method.name)?.get("parameters"))
        else {
            return Ok(vec![]);
        };
        let names = stored.as_array().map(|l| l.iter().map(|n| n.as_str().map(str::to_string)).collect());
        names.flatten().ok_or_else(|| {
            bad("names parameters in another form")
                .method(method.name.as_str())
                .expected("a list of names")
                .got(printable(&stored.to_string()))
        })
    }

    /// Names of the mutable buffers that delegates own, by index of the delegate.
    pub(crate) fn delegate_buffers(&self, method: &MethodDef) -> Result<Vec<(usize, Vec<String>)>> {
        let wrong = || bad("names buffers of delegates in another form");
        self.of_delegates(method, "delegate_buffers", "a list of names", wrong, |names| {
            names.as_array()?.iter().map(|n| n.as_str().map(str::to_string)).collect()
        })
    }

    /// Number of outputs of the calls of delegates, by index of the delegate.
    pub(crate) fn delegate_outputs(&self, method: &MethodDef) -> Result<Vec<(usize, usize)>> {
        let wrong = || bad("counts outputs of delegates in another form");
        self.of_delegates(method, "delegate_outputs", "a number", wrong, |count| {
            usize::try_from(count.as_u64()?).ok()
        })
    }

    /// What the object `key` of a method says of each of its delegates, in their order; `wrong` where that is not
    /// `noun` each.
    fn of_delegates<T: Ord>(
        &self,
        method: &MethodDef,
        key: &str,
        noun: &str,
        wrong: impl Fn() -> Error,
        read: impl Fn(&Json) -> Option<T>,
    ) -> Result<Vec<(usize, T)>> {
        let stored = self.0.as_ref().and_then(|j| j.get("methods")?.get(&method.name)?.get(key));
        let Some(stored) = stored else { return Ok(vec![]) };
        let delegates = method.delegates.len();
        let refusal = || {
            let expected = format!("an object from a delegate's index, below {delegates}, to {noun}");
            wrong().method(method.name.as_str()).expected(expected).got(printable(&stored.to_string()))
        };
        let mut out = Vec::new();
        for (index, given) in stored.as_object().ok_or_else(refusal)? {
            let at = index.parse::<usize>().ok().filter(|i| *i < delegates);
            match (at, read(given)) {
                (Some(at), Some(given)) => out.push((at, given)),
                _ => return Err(refusal()),
            }
        }
        out.sort_unstable();
        Ok(out)
    }

    fn side(&self, method: &MethodDef, list: &str, noun: &str, ids: &[ValueId]) -> Result<Vec<IoSpec>> {
        let place = |e: Error| e.method(method.name.as_str());
        let stored = self.0.as_ref().and_then(|j| j.get("methods")?.get(&method.name)?.get(list));
        let stored: Option<&Vec<Json>> = match stored {
            None => None,
            Some(j) => Some(j.as_array().ok_or_else(|| place(bad("has no list")).argument(list))?),
        };
        if let Some(stored) = stored
            && stored.len() != ids.len()
        {
            return Err(place(bad(&format!("and the program disagree about the {list}")))
                .expected(format!("{} {list}", ids.len()))
                .got(stored.len().to_string()));
        }
        let mut out = Vec::new();
        for (i, id) in ids.iter().enumerate() {
            let entry = stored.and_then(|s| s.get(i));
            let name = match entry.and_then(|e| e.get("name")).and_then(Json::as_str) {
                Some(name) => name.to_string(),
                None => format!("{noun}{i}"),
            };
            let value = method.values.get(id.index()).ok_or_else(|| Error::internal("value out of range"))?;
            let kind = io_kind(value, entry).map_err(|e| place(e).argument(name.as_str()))?;
            out.push(IoSpec { name, kind, is_computed: false });
        }
        Ok(out)
    }
}

fn io_kind(value: &ValueDef, entry: Option<&Json>) -> Result<IoKind> {
    Ok(match value {
        ValueDef::Tensor(t) => IoKind::Tensor(tensor_io(t, entry)?),
        ValueDef::Int(v) => {
            let symbol = entry.and_then(|e| e.get("symbol")).and_then(Json::as_str).map(str::to_string);
            let range = match entry.and_then(|e| e.get("range")) {
                Some(r) => Some(int_range(r)?),
                None => symbol.is_some().then_some((i64::MIN, i64::MAX)),
            };
            IoKind::Int { traced: *v, range, symbol }
        }
        ValueDef::Bool(v) => IoKind::Bool { traced: *v },
        ValueDef::Double(v) => IoKind::Double { traced: *v },
        ValueDef::String(v) => IoKind::String { traced: v.to_string() },
        ValueDef::None => IoKind::None,
        other => {
            return Err(Error::program("an input or output has a kind that cannot cross the border")
                .expected("a tensor, int, bool, float, str or None")
                .got(other.kind().to_string()));
        }
    })
}

fn int_range(range: &Json) -> Result<(i64, i64)> {
    let pair = range.as_array().map(Vec::as_slice);
    match pair {
        Some([min, max]) => match (min.as_i64(), max.as_i64()) {
            (Some(min), Some(max)) if min <= max => Ok((min, max)),
            _ => Err(bad("has an illegal range").got(printable(&range.to_string()))),
        },
        _ => Err(bad("has an illegal range").got(printable(&range.to_string()))),
    }
}

fn tensor_io(t: &TensorDef, entry: Option<&Json>) -> Result<TensorIo> {
    let spec = &t.spec;
    let stored = entry.and_then(|e| e.get("shape"));
    let extents = match stored {
        None => spec
            .shape
            .iter()
            .map(|n| {
                if spec.is_dynamic() {
                    // A file of another exporter: it states the largest extents only.
                    Extent::Range { min: 0, max: *n, symbol: None, expression: None }
                } else {
                    Extent::Static(*n)
                }
            })
            .collect(),
        Some(stored) => {
            let dims = stored.as_array().ok_or_else(|| bad("has a shape that is no list"))?;
            if dims.len() != spec.shape.len() {
                return Err(bad("and the program disagree about a rank")
                    .expected(spec.shape.len().to_string())
                    .got(dims.len().to_string()));
            }
            dims.iter()
                .zip(spec.shape.iter())
                .map(|(d, bound)| extent(d, *bound, spec.is_dynamic()))
                .collect::<Result<Vec<_>>>()?
        }
    };
    Ok(TensorIo {
        dtype: spec.dtype,
        extents,
        dim_order: spec.dim_order,
        bound: spec.shape,
        is_planned: !matches!(t.placement, Placement::Unplanned),
    })
}

fn extent(stored: &Json, bound: usize, is_dynamic: bool) -> Result<Extent> {
    let wrong = || {
        bad("and the program disagree about an extent")
            .expected(if is_dynamic { format!("at most {bound}") } else { bound.to_string() })
            .got(printable(&stored.to_string()))
    };
    let size = |j: Option<&Json>| j.and_then(Json::as_u64).and_then(|v| usize::try_from(v).ok());
    if let Some(n) = size(Some(stored)) {
        let is_legal = if is_dynamic { n <= bound } else { n == bound };
        return if is_legal { Ok(Extent::Static(n)) } else { Err(wrong()) };
    }
    let (Some(min), Some(max)) = (size(stored.get("min")), size(stored.get("max"))) else {
        return Err(wrong());
    };
    if min > max || max > bound || (!is_dynamic && min != bound) {
        return Err(wrong());
    }
    let text = |key: &str| stored.get(key).and_then(Json::as_str).map(str::to_string);
    Ok(Extent::Range { min, max, symbol: text("symbol"), expression: text("expr") })
}

#[cold]
fn bad(what: &str) -> Error {
    Error::program(format!("the named data '{INTERFACE_KEY}' {what}"))
}
