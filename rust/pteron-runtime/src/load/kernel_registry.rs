//! Which kernels implement an operator, in the order in which they are asked: registered by the
//! caller, fast, reference.

use pteron_core::error::printable;
use pteron_core::{Error, FunctionKernel, Kernel, OperatorFunction, Result, Schema, StaticKernel};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Namespaces of operators that rewrites at load know: a kernel of a caller would be passed over where they are fused.
const REWRITTEN: [&str; 5] = ["aten", "dim_order_ops", "et_copy", "executorch_prim", "quantized_decomposed"];

/// A kernel of the built-in tables, or what a caller registered.
#[derive(Clone)]
pub(crate) enum KernelEntry {
    BuiltIn(StaticKernel),
    Registered(Arc<dyn Kernel>),
    Function(Arc<FunctionKernel>),
}

impl KernelEntry {
    pub(crate) fn as_kernel(&self) -> &dyn Kernel {
        match self {
            KernelEntry::BuiltIn(k) => k,
            KernelEntry::Registered(k) => &**k,
            KernelEntry::Function(k) => &**k,
        }
    }
}

/// The kernels of one operator.
#[derive(Clone, Default)]
pub(crate) struct OperatorKernels {
    kernels: Vec<KernelEntry>,
    // Schemas are parsed when a program first uses the operator: most programs use few.
    schema: OnceLock<Arc<Schema>>,
}

impl OperatorKernels {
    /// The operator's schema; `None` for one that is known by the calls of programs alone.
    pub(crate) fn schema(&self) -> Result<Option<Arc<Schema>>> {
        if let Some(s) = self.schema.get() {
            return Ok(Some(s.clone()));
        }
        // The reference kernel, last in the list, is the one that owns the schema.
        let text = self.kernels.last().map(|k| k.as_kernel().schema()).unwrap_or_default();
        if !text.contains('(') {
            return Ok(None);
        }
        let parsed = Arc::new(Schema::parse(text)?);
        Ok(Some(self.schema.get_or_init(|| parsed).clone()))
    }

    /// The kernels in asking order.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &dyn Kernel> {
        self.kernels.iter().map(KernelEntry::as_kernel)
    }
}

/// Kernels by full operator name (`aten::add.out`).
#[derive(Clone, Default)]
pub struct KernelRegistry {
    operators: HashMap<String, Arc<OperatorKernels>>,
}

impl KernelRegistry {
    /// The built-in tables: fast kernels before reference kernels.
    pub(crate) fn built_in() -> Self {
        let mut lists: HashMap<String, OperatorKernels> = HashMap::new();
        for kernel in pteron_cpu::kernels() {
            let name = operator_name(kernel.schema);
            lists.entry(name.to_string()).or_default().kernels.push(KernelEntry::BuiltIn(kernel));
        }
        KernelRegistry { operators: lists.into_iter().map(|(n, l)| (n, Arc::new(l))).collect() }
    }

    /// The schema that a kernel of a caller states. Asked for before the registry is locked: the caller's code may
    /// panic.
    ///
    /// Errors: it does not parse.
    pub(crate) fn schema_of(kernel: &dyn Kernel) -> Result<Schema> {
        Schema::parse(kernel.schema()).map_err(|e| e.with_kind(pteron_core::ErrorKind::Kernel))
    }

    /// Makes `function` the first kernel of the operators that `name` stands for ([`called_names`]). It takes the place
    /// of an earlier function.
    ///
    /// Errors: there is a kernel already, unless `is_replacing`; the operator is one that rewrites at load compute.
    pub(crate) fn register_function(
        &mut self,
        name: &str,
        function: &Arc<dyn OperatorFunction>,
        is_replacing: bool,
    ) -> Result<()> {
        let names = called_names(name)?;
        for called in &names {
            self.check_free(called, is_replacing)?;
        }
        for called in names {
            let mut list = OperatorKernels::default();
            list.kernels
                .push(KernelEntry::Function(Arc::new(FunctionKernel::new(called.clone(), function.clone()))));
            if let Some(found) = self.operators.get(&called) {
                let others = found.kernels.iter().filter(|k| !matches!(k, KernelEntry::Function(_)));
                list.kernels.extend(others.cloned());
            }
            self.operators.insert(called, Arc::new(list));
        }
        Ok(())
    }

    fn check_free(&self, called: &str, is_replacing: bool) -> Result<()> {
        let Some(found) = self.operators.get(called) else { return Ok(()) };
        let is_built_in = found.kernels.iter().any(|k| matches!(k, KernelEntry::BuiltIn(_)));
        let namespace = called.split("::").next().unwrap_or_default();
        if is_built_in && REWRITTEN.contains(&namespace) {
            return Err(Error::kernel("an operator that the runtime computes itself takes no other kernel")
                .operator(called)
                .hint("call an operator of your own namespace in the model"));
        }
        match is_replacing {
            true => Ok(()),
            false => Err(Error::kernel("the operator has a kernel already")
                .operator(called)
                .hint("register it with replace=True, or in a runtime of its own")),
        }
    }

    /// Puts `kernel` before all others of its operator. Errors when `schema` has other argument kinds than the
    /// kernels that are there.
    pub(crate) fn register(&mut self, kernel: Arc<dyn Kernel>, schema: Schema) -> Result<()> {
        let mut list = OperatorKernels::default();
        list.kernels.push(KernelEntry::Registered(kernel));
        let found = self.operators.get(&schema.name);
        if let Some(found) = found {
            let known = found.schema()?.unwrap_or_else(|| Arc::new(schema.clone()));
            let kinds = |s: &Schema| s.args.iter().map(|a| (a.kind, a.is_output)).collect::<Vec<_>>();
            if kinds(&known) != kinds(&schema) || known.returns != schema.returns {
                return Err(Error::kernel(
                    "a kernel is registered with another schema than its operator has",
                )
                .operator(schema.name.as_str())
                .expected(format!("{} arguments as in the kernel table", known.args.len()))
                .got(format!("{} arguments", schema.args.len()))
                .hint("use the out-variant's schema of the operator, or another operator name"));
            }
            list.kernels.extend(found.kernels.iter().cloned());
        }
        let name = schema.name.clone();
        list.schema = OnceLock::from(Arc::new(schema));
        self.operators.insert(name, Arc::new(list));
        Ok(())
    }

    /// The kernels of an operator.
    pub(crate) fn get(&self, operator: &str) -> Option<Arc<OperatorKernels>> {
        self.operators.get(operator).cloned()
    }

    /// All operator names, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.operators.keys().cloned().collect();
        names.sort();
        names
    }
}

/// The operators of program files that `name` stands for: itself, and the out variant of a functional operator.
/// `my_ns::my_op`, with or without `.default`, is called `my_ns::my_op.out`, its overload `Tensor`
/// `my_ns::my_op.Tensor_out`.
///
/// Errors: no name of this form.
fn called_names(name: &str) -> Result<Vec<String>> {
    let is_word =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let Some((namespace, operator)) = name.split_once("::").filter(|(n, o)| is_word(n) && is_word(o)) else {
        return Err(Error::input("a kernel cannot be registered under this name")
            .argument("name")
            .expected("a namespace and an operator, such as \"my_ns::my_op\"")
            .got(printable(name))
            .hint("a program's operators(method) lists those that it calls"));
    };
    let own = name.to_string();
    Ok(match operator.split_once('.') {
        None => vec![format!("{name}.out"), own],
        Some((operator, "default")) => vec![format!("{namespace}::{operator}.out"), own],
        Some((_, overload)) if overload == "out" || overload.ends_with("_out") => vec![own],
        Some(_) => vec![format!("{name}_out"), own],
    })
}

/// The part of a schema before its arguments.
fn operator_name(schema: &str) -> &str {
    schema.split('(').next().unwrap_or(schema).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{ErrorKind, OperatorInput, OutputView};

    fn nothing() -> Arc<dyn OperatorFunction> {
        Arc::new(|_: &[OperatorInput<'_>], _: &mut [OutputView<'_>]| Ok(()))
    }

    #[test]
    fn a_functional_name_stands_for_what_programs_call() {
        let names = |name: &str| called_names(name).unwrap();
        assert_eq!(names("a::b"), ["a::b.out", "a::b"]);
        assert_eq!(names("a::b.default"), ["a::b.out", "a::b.default"]);
        assert_eq!(names("a::b.out"), ["a::b.out"]);
        assert_eq!(names("a::b.Tensor"), ["a::b.Tensor_out", "a::b.Tensor"]);
        assert_eq!(names("a::b.Tensor_out"), ["a::b.Tensor_out"]);
        for bad in ["", "b", "a::", "::b", "a::b(Tensor x) -> Tensor", "a b::c"] {
            assert_eq!(called_names(bad).unwrap_err().kind(), ErrorKind::Input, "{bad}");
        }
    }

    #[test]
    fn a_name_that_is_taken_is_an_error_unless_replacing() {
        let mut registry = KernelRegistry::built_in();
        registry.register_function("a::b", &nothing(), false).unwrap();
        let e = registry.register_function("a::b.out", &nothing(), false).unwrap_err();
        assert!(e.kind() == ErrorKind::Kernel && e.to_string().contains("a::b.out"), "{e}");
        registry.register_function("a::b", &nothing(), true).unwrap();
        let operator = registry.get("a::b.out").unwrap();
        assert_eq!((operator.kernels().count(), operator.schema().unwrap()), (1, None));
        for is_replacing in [false, true] {
            let e = registry.register_function("aten::add", &nothing(), is_replacing).unwrap_err();
            assert!(e.to_string().contains("computes itself"), "{e}");
        }
    }
}
