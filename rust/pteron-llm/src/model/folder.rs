//! A folder with a language model, or a program alone: what it states, checked when it is opened.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::model::json_file::{Object, damaged, read_object};
use crate::model::signature::{METHOD, PROGRAM, Positions, Signature};
use pteron_core::{Error, Result};
use pteron_runtime::{DataSource, Extent, IoKind, IoSpec, Limits, Program, ProgramSource, Runtime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a folder, or a program alone, states.
pub struct ModelFolder {
    pub(crate) path: PathBuf,
    pub(crate) program: Arc<Program>,
    pub(crate) signature: Signature,
    pub(crate) generation_config: Object,
    pub(crate) tokenizer_config: Object,
    max_seq_len: usize,
    eos_ids: Vec<u32>,
    bos_id: Option<u32>,
    can_rewind: bool,
}

impl ModelFolder {
    /// Opens the folder `path`, or the program of this path with its `data` files: JSON files beside a program count only
    /// where the folder is what was named. Data files of a folder are all its `*.ptd`.
    ///
    /// Errors: `NotFound` without a program, `Program` where something is damaged.
    pub fn open(runtime: &Arc<Runtime>, path: &Path, data: &[PathBuf]) -> Result<ModelFolder> {
        let is_program = path.is_file();
        let folder = if is_program { path.parent().unwrap_or(path) } else { path };
        if !is_program && !folder.is_dir() {
            return Err(Error::not_found(format!("there is no folder {}", path.display())));
        }
        let file = if is_program { path.to_path_buf() } else { folder.join(PROGRAM) };
        let data = if data.is_empty() && !is_program { data_files(folder)? } else { data.to_vec() };
        let mapped = |path: PathBuf| ProgramSource::File { path, is_mapped: true };
        let program = Program::load_with_data(
            runtime,
            mapped(file),
            data.into_iter()
                .map(|path| DataSource { name: path.display().to_string(), source: mapped(path) })
                .collect(),
            Limits::default(),
        )?;
        let signature = Signature::of(&program)?;
        let stated = |name: &str| match is_program {
            true => Ok(Object::new()),
            false => read_object(&folder.join(name)),
        };
        let (config, generation_config) = (stated("config.json")?, stated("generation_config.json")?);
        let constants = constants(&program)?;
        let max_seq_len = max_seq_len(&constants, &generation_config, &signature)?;
        Ok(ModelFolder {
            path: folder.to_path_buf(),
            max_seq_len,
            eos_ids: ids(first_of(
                [constants.get("get_eos_ids"), constants.get("get_eos_id")],
                &generation_config,
                &config,
                "eos_token_id",
            ))?,
            bos_id: ids(first_of(
                [constants.get("get_bos_id"), None],
                &generation_config,
                &config,
                "bos_token_id",
            ))?
            .first()
            .copied(),
            can_rewind: can_rewind(&program, &constants, &signature, max_seq_len)?,
            tokenizer_config: stated("tokenizer_config.json")?,
            generation_config,
            program,
            signature,
        })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// How `forward` is called.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Tokens that the cache holds: those of prompt and text together.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// Tokens that end a text, as the program or the configurations state; empty where they do not.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The token that begins a text, from the same places.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    /// May tokens at the end of a cache be forgotten by going on at an earlier position?
    ///
    /// So it is where every buffer has a row for each position, or is a counter. States of recurrences and windows shorter
    /// than the cache hold sums of all tokens. Programs of ExecuTorch's tools name no buffers, so that nothing is known of
    /// them. The constant method `can_rewind` overrules.
    pub fn can_rewind(&self) -> bool {
        self.can_rewind
    }
}

fn data_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Error::not_found(format!("{}: {error}", folder.display())))?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "ptd"))
        .collect();
    found.sort();
    Ok(found)
}

/// What the methods give that take nothing and compute nothing, by name: a number, or a list.
fn constants(program: &Program) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for name in program.methods() {
        let outputs = program.outputs(name)?;
        if !program.inputs(name)?.is_empty() || outputs.is_empty() {
            continue;
        }
        let Some(mut values) = outputs.iter().map(constant).collect::<Option<Vec<Value>>>() else { continue };
        let is_list = values.len() > 1 || name.ends_with("ids");
        let value = if is_list { Value::Array(values) } else { values.pop().unwrap_or_default() };
        found.insert(name.to_string(), value);
    }
    Ok(found)
}

fn constant(spec: &IoSpec) -> Option<Value> {
    match &spec.kind {
        _ if spec.is_computed => None,
        IoKind::Int { traced, .. } => Some(Value::from(*traced)),
        IoKind::Bool { traced } => Some(Value::from(*traced)),
        IoKind::Double { traced } => Some(Value::from(*traced)),
        IoKind::String { traced } => Some(Value::from(traced.as_str())),
        IoKind::Tensor(_) | IoKind::None => None,
    }
}

fn max_seq_len(
    constants: &BTreeMap<String, Value>,
    generation_config: &Object,
    signature: &Signature,
) -> Result<usize> {
    let stated = constants
        .get("get_max_context_len")
        .or_else(|| constants.get("get_max_seq_len"))
        .or_else(|| generation_config.get("cache_config")?.get("max_cache_len"))
        .filter(|value| !value.is_null());
    let found = match stated {
        None if signature.positions == Positions::None => Some(signature.chunk),
        None => None,
        Some(value) => value.as_u64().and_then(|value| usize::try_from(value).ok()),
    };
    found
        .filter(|length| *length >= 1)
        .ok_or_else(|| damaged(PROGRAM, "no method get_max_seq_len states how long its cache is"))
}

/// The first that is stated: of the program, of generation_config.json, of config.json.
fn first_of<'a>(
    of_program: [Option<&'a Value>; 2],
    generation_config: &'a Object,
    config: &'a Object,
    name: &str,
) -> Option<&'a Value> {
    let is_stated = |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    of_program.into_iter().chain([generation_config.get(name), config.get(name)]).flatten().find(is_stated)
}

fn ids(value: Option<&Value>) -> Result<Vec<u32>> {
    let wrong =
        || damaged(PROGRAM, "tokens that begin or end a text are stated as something else than numbers");
    let list = match value {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let whole = list.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>().ok_or_else(wrong)?;
    // Some configurations state -1 for none.
    Ok(whole.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}

fn can_rewind(
    program: &Program,
    constants: &BTreeMap<String, Value>,
    signature: &Signature,
    length: usize,
) -> Result<bool> {
    if let Some(Value::Bool(stated)) = constants.get("can_rewind") {
        return Ok(*stated);
    }
    let buffers = program.buffers(METHOD)?;
    if buffers.is_empty() {
        return Ok(signature.positions == Positions::None);
    }
    Ok(buffers.iter().all(|buffer| has_rows(buffer, length)))
}

/// Has the buffer a row for each position, or is it a counter?
fn has_rows(buffer: &IoSpec, length: usize) -> bool {
    let IoKind::Tensor(found) = &buffer.kind else { return false };
    let elements = found.extents.iter().fold(1usize, |count, extent| count.saturating_mul(extent.range().1));
    let is_length = |extent: &Extent| matches!(extent, Extent::Static(found) if *found == length);
    elements <= 1 || (found.extents.len() >= 3 && found.extents.iter().skip(1).take(2).any(is_length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_that_end_a_text_are_numbers() {
        assert_eq!(ids(Some(&json!([3, 4]))).unwrap(), [3, 4]);
        assert_eq!(ids(Some(&json!(-1))).unwrap(), [0; 0]);
        assert_eq!(ids(None).unwrap(), [0; 0]);
        for wrong in [json!("x"), json!([1.5]), json!([null]), json!({})] {
            assert!(ids(Some(&wrong)).unwrap_err().to_string().contains("end a text"), "{wrong}");
        }
    }

    #[test]
    fn what_is_stated_first_counts() {
        let object = |value: serde_json::Value| value.as_object().cloned().unwrap_or_default();
        let (generation, config) = (object(json!({"x": 2, "y": null})), object(json!({"x": 3, "y": 4})));
        let (one, none) = (json!(1), json!([]));
        assert_eq!(first_of([Some(&none), Some(&one)], &generation, &config, "x"), Some(&one));
        assert_eq!(first_of([None, None], &generation, &config, "x"), Some(&json!(2)));
        assert_eq!(first_of([None, None], &generation, &config, "y"), Some(&json!(4)));
        assert_eq!(first_of([None, None], &generation, &config, "z"), None);
    }
}
