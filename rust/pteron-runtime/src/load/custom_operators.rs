//! Operators that are not PyTorch's: their schema as the calls of a program show it, and what the file says about where
//! a kernel comes from.

use crate::ir::{MethodIr, ValueIr};
use crate::load::interface::INTERFACE_KEY;
use crate::load::program_data::ProgramData;
use pteron_core::error::printable;
use pteron_core::{ArgKind, Error, Result, Schema, SchemaArg, ValueId, ValueKind};
use serde_json::Value as Json;

/// Namespaces of operators that come with PyTorch or with this package: nobody else brings kernels for them.
const KNOWN: [&str; 6] =
    ["aten", "prims", "dim_order_ops", "et_copy", "executorch_prim", "quantized_decomposed"];

/// What to do about an operator of PyTorch that nobody has.
const NO_KERNEL: &str = "delegate these operators, or decompose them before export; the runtime's operators list \
    what it has (in Python pteron.Runtime().operators), and exporting with \
    ExecutorchBackendConfig(kernels='pteron') reports this at export";

/// What a file says about custom operators. Read only where one has no kernel, so nothing in it makes a load fail.
#[derive(Default, Clone, Copy)]
pub(crate) struct CustomOperators<'a>(Option<&'a [u8]>);

impl<'a> CustomOperators<'a> {
    /// Those of a program.
    pub(crate) fn of(data: &'a ProgramData) -> Self {
        CustomOperators(data.own(INTERFACE_KEY))
    }

    /// The module, package and version that `operator` was defined by: `package shapes 1.2 (module shapes.ops)`.
    fn origin(&self, all: Option<&Json>, operator: &str) -> Option<String> {
        let entry = all?.get(operator)?;
        let text = |key: &str| entry.get(key).and_then(Json::as_str).map(printable);
        let module = text("module").map(|module| format!("module {module}"));
        let package = text("package").map(|package| match text("version") {
            Some(version) => format!("package {package} {version}"),
            None => format!("package {package}"),
        });
        match (package, module) {
            (Some(package), Some(module)) => Some(format!("{package} ({module})")),
            (package, module) => package.or(module),
        }
    }

    fn all(&self) -> Option<Json> {
        let mut json = crate::load::json::parse(self.0?, Error::program).ok()?;
        Some(json.get_mut("operators")?.take())
    }
}

/// The error for operators without kernel: `missing` has them with the first instruction that calls each.
#[cold]
pub(crate) fn missing_kernels(missing: &[(usize, &str)], custom: &CustomOperators<'_>) -> Error {
    let names = missing.iter().map(|(i, n)| format!("{} (instruction {i})", printable(n)));
    let names = names.collect::<Vec<_>>().join(", ");
    let error = Error::missing_operator("the program calls operators that this runtime has no kernel for")
        .expected("operators that the runtime has kernels for")
        .got(format!("{} missing: {names}", missing.len()))
        .hint(hint(missing, custom));
    match missing.first() {
        Some((first, name)) => error.instruction(*first).operator(*name),
        None => error,
    }
}

fn hint(missing: &[(usize, &str)], custom: &CustomOperators<'_>) -> String {
    let mut left_out: Vec<&str> =
        missing.iter().filter_map(|(_, n)| pteron_kernels::features::missing_feature(n)).collect();
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        return format!(
            "this binary was built without the cargo features of pteron-runtime that have them: {}",
            left_out.join(", ")
        );
    }
    let is_custom = |name: &str| !KNOWN.contains(&name.split("::").next().unwrap_or_default());
    let Some((_, first)) = missing.iter().find(|(_, name)| is_custom(name)) else {
        return NO_KERNEL.to_string();
    };
    let all = custom.all();
    let mut origins: Vec<String> = missing
        .iter()
        .filter(|(_, name)| is_custom(name))
        .filter_map(|(_, name)| {
            Some(format!("{} is of {}", printable(name), custom.origin(all.as_ref(), name)?))
        })
        .collect();
    origins.dedup();
    let origins = match origins.is_empty() {
        true => String::new(),
        false => format!("; {}", origins.join(", ")),
    };
    let others = match missing.iter().all(|(_, name)| is_custom(name)) {
        true => String::new(),
        false => format!("; those of PyTorch: {NO_KERNEL}"),
    };
    format!(
        "register a kernel for each custom operator before the method is loaded: in Python \
         pteron.register_kernel('{}', function), in Rust Runtime::register_function, in C pteron_kernel of \
         pteron_backend.h{origins}{others}",
        printable(first.strip_suffix(".out").unwrap_or(first))
    )
}

/// The schema of an operator of which only a call is known: arguments of any kinds, and as outputs those that the return,
/// last among the call's arguments, names once more.
///
/// Errors: `Program` where the last argument names none of the others before it.
pub(crate) fn schema_of_call(ir: &MethodIr, operator: &str, args: &[ValueId]) -> Result<Schema> {
    let unknown = |got: String| {
        Error::program("a call of a custom operator does not say what it writes")
            .expected("its outputs once more as the last argument: a tensor, or a list of all of them")
            .got(got)
    };
    let kind = |id: &ValueId| ir.value(*id).map(ValueIr::kind);
    let Some((last, rest)) = args.split_last() else { return Err(unknown("no arguments".into())) };
    let returned: Vec<ValueId> = ir.leaves(*last).collect();
    let before = rest.last();
    let is_list = |id: &&ValueId| kind(id) == Some(ValueKind::TensorList);
    let outputs = match kind(last) {
        Some(ValueKind::Tensor) if before == Some(last) => 1,
        Some(ValueKind::TensorList)
            if before.filter(is_list).is_some_and(|b| ir.leaves(*b).eq(returned.iter().copied())) =>
        {
            1
        }
        Some(ValueKind::TensorList) if !returned.is_empty() && rest.ends_with(&returned) => returned.len(),
        other => {
            return Err(unknown(other.map_or("nothing".into(), |kind| format!("a return of kind {kind}"))));
        }
    };
    let first_output = rest.len().saturating_sub(outputs);
    let arg = |(at, id): (usize, &ValueId)| {
        let is_output = at >= first_output;
        let kind = match kind(id) {
            Some(ValueKind::TensorList) if is_output => ArgKind::TensorList,
            _ if is_output => ArgKind::Tensor,
            _ => ArgKind::Any,
        };
        let name = match (is_output, outputs) {
            (false, _) => format!("arg{at}"),
            (true, 1) => "out".to_string(),
            (true, _) => format!("out{}", at.saturating_sub(first_output)),
        };
        SchemaArg { name, kind, is_output, is_updated: false }
    };
    Ok(Schema {
        name: operator.to_string(),
        args: rest.iter().enumerate().map(arg).collect(),
        returns: outputs,
        has_scalar_return: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Placement, TensorIr};
    use pteron_core::{DType, Device, ErrorKind, TensorSpec, Value};

    fn tensor() -> ValueIr {
        Value::from(TensorIr {
            spec: TensorSpec::contiguous(DType::Float32, &[2]).unwrap(),
            placement: Placement::Unplanned,
            device: Device::Cpu,
            name: None,
        })
    }

    fn list(ids: &[u32]) -> ValueIr {
        Value::TensorList(ids.iter().map(|id| ValueId(*id)).collect::<Vec<_>>().into())
    }

    fn schema(values: Vec<ValueIr>, args: &[u32]) -> Result<Schema> {
        let ir = MethodIr { values, ..MethodIr::default() };
        let args: Vec<ValueId> = args.iter().map(|id| ValueId(*id)).collect();
        schema_of_call(&ir, "a::b.out", &args)
    }

    #[test]
    fn outputs_are_what_the_return_names_again() {
        let outputs = |values, args: &[u32]| schema(values, args).unwrap().outputs().collect::<Vec<_>>();
        assert_eq!(outputs(vec![tensor(), Value::Int(3), tensor()], &[0, 1, 2, 2]), [2]);
        let two = vec![tensor(), tensor(), tensor(), list(&[1, 2])];
        assert_eq!(outputs(two, &[0, 1, 2, 3]), [1, 2]);
        let listed = vec![tensor(), tensor(), tensor(), list(&[1, 2]), list(&[1, 2])];
        assert_eq!(outputs(listed, &[0, 3, 4]), [1]);
    }

    #[test]
    fn a_call_that_names_no_output_is_refused() {
        let cases = [
            (vec![], &[] as &[u32]),
            (vec![tensor()], &[0]),
            (vec![tensor(), tensor()], &[0, 1]),
            (vec![tensor(), Value::Int(1)], &[0, 1]),
            (vec![tensor(), list(&[])], &[0, 1]),
            (vec![tensor(), tensor(), list(&[0, 0])], &[0, 1, 2]),
        ];
        for (values, args) in cases {
            let e = schema(values, args).unwrap_err();
            assert!(e.kind() == ErrorKind::Program && e.to_string().contains("what it writes"), "{e}");
        }
    }

    #[test]
    fn a_missing_kernel_names_the_package_that_the_file_names() {
        let text = br#"{"version":1,"operators":{"a::b.out":{"module":"shapes.ops","package":"shapes","version":"1.2"}}}"#;
        let e = missing_kernels(&[(4, "a::b.out"), (6, "c::d.out")], &CustomOperators(Some(text)));
        let text = e.to_string();
        for part in [
            "pteron.register_kernel('a::b'",
            "a::b.out is of package shapes 1.2 (module shapes.ops)",
            "instruction 4",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("PyTorch"), "{text}");
        for damaged in [&b"["[..], b"{}", br#"{"operators":[]}"#, br#"{"operators":{"a::b.out":7}}"#] {
            let e = missing_kernels(&[(4, "a::b.out"), (5, "aten::x.out")], &CustomOperators(Some(damaged)));
            let text = e.to_string();
            assert!(text.contains("register_kernel") && text.contains("those of PyTorch"), "{text}");
        }
        let e = missing_kernels(&[(4, "aten::x.out")], &CustomOperators::default());
        assert!(!e.to_string().contains("register_kernel"), "{e}");
    }
}
