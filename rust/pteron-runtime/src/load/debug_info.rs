//! `pteron.debug`: from instructions and delegate handles to operators, modules and source lines of
//! the model. Never needed to run and easily stripped, so nothing in it can make a load fail: what is
//! missing or damaged is simply not known.

use pteron_core::Error;
use pteron_core::error::printable;
use serde_json::Value as Json;

/// The parsed named data, or nothing.
#[derive(Debug, Default)]
pub(crate) struct DebugInfo(Option<Json>);

/// What a handle stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandleSource {
    /// Operator as the exporter names it, `aten.linear.default`.
    pub operator: Option<String>,
    /// `encoder.py:12 (encoder.layer.0)`.
    pub source_line: Option<String>,
}

impl DebugInfo {
    /// Reads the JSON text of version 1; anything else counts as absent.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let json = crate::load::json::parse(text, Error::program).ok();
        DebugInfo(json.filter(|j| j.get("version").and_then(Json::as_i64) == Some(1)))
    }

    fn method(&self, method: &str) -> Option<&Json> {
        self.0.as_ref()?.get("methods")?.get(method)
    }

    /// Handles of one instruction of the file.
    pub(crate) fn handles(&self, method: &str, instruction: u32) -> Vec<i64> {
        let list =
            || self.method(method)?.get("instructions")?.as_array()?.get(instruction as usize)?.as_array();
        list().map(|l| l.iter().filter_map(Json::as_i64).collect()).unwrap_or_default()
    }

    /// What a handle of the method's own number space stands for.
    pub(crate) fn source(&self, method: &str, handle: i64) -> Option<HandleSource> {
        self.describe(self.method(method)?.get("handles")?.get(handle.to_string())?)
    }

    /// The line of the model that an instruction of the file comes from.
    pub(crate) fn line_of(&self, method: &str, instruction: usize) -> Option<String> {
        let handles = self.handles(method, u32::try_from(instruction).ok()?);
        handles.into_iter().find_map(|handle| self.source(method, handle)?.source_line)
    }

    /// What a handle of a delegate's number space stands for.
    pub(crate) fn delegate_source(&self, method: &str, delegate: u32, handle: i64) -> Option<HandleSource> {
        let table = self.method(method)?.get("delegates")?.get(delegate.to_string())?;
        self.describe(table.get("handles")?.get(handle.to_string())?)
    }

    fn describe(&self, entry: &Json) -> Option<HandleSource> {
        let text = |key: &str| entry.get(key).and_then(Json::as_str).map(printable);
        let file = entry.get("file").and_then(|f| match f {
            Json::String(name) => Some(printable(name)),
            number => {
                let at = usize::try_from(number.as_u64()?).ok()?;
                Some(printable(self.0.as_ref()?.get("files")?.as_array()?.get(at)?.as_str()?))
            }
        });
        let line = entry.get("line").and_then(Json::as_i64);
        let place = match (file, line) {
            (Some(file), Some(line)) => Some(format!("{file}:{line}")),
            (file, _) => file,
        };
        let module = text("module").filter(|m| !m.is_empty());
        let source_line = match (place, module) {
            (Some(place), Some(module)) => Some(format!("{place} ({module})")),
            (Some(place), None) => Some(place),
            (None, Some(module)) => Some(format!("module {module}")),
            (None, None) => None,
        };
        Some(HandleSource { operator: text("operator"), source_line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"version":1,"files":["m.py","n.py"],"methods":{"forward":{
        "instructions":[[1],[2,3],[]],
        "handles":{"1":{"operator":"aten.add.Tensor","module":"enc.0","file":0,"line":12},"2":{"module":"x"}},
        "delegates":{"0":{"backend":"B","handles":{"1":{"operator":"aten.tan.default","file":1,"line":7}},"map":{}}}}}}"#;

    #[test]
    fn handles_of_caller_and_delegate_are_separate() {
        let d = DebugInfo::parse(TEXT.as_bytes());
        assert_eq!(d.handles("forward", 1), [2, 3]);
        assert_eq!(d.handles("forward", 9), [0i64; 0]);
        assert_eq!(d.source("forward", 1).unwrap().source_line.unwrap(), "m.py:12 (enc.0)");
        assert_eq!(d.source("forward", 2).unwrap().source_line.unwrap(), "module x");
        let inner = d.delegate_source("forward", 0, 1).unwrap();
        assert_eq!(
            (inner.operator.unwrap().as_str(), inner.source_line.unwrap().as_str()),
            ("aten.tan.default", "n.py:7")
        );
        assert!(d.delegate_source("forward", 1, 1).is_none());
    }

    #[test]
    fn damage_counts_as_absent() {
        for text in ["", "[]", "{\"version\":2}", "{\"version\":1,\"methods\":7}"] {
            let d = DebugInfo::parse(text.as_bytes());
            assert!(d.handles("forward", 0).is_empty() && d.source("forward", 1).is_none());
        }
    }
}
