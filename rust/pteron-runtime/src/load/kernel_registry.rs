//! Which kernels implement an operator, in the order in which they are asked: registered by the
//! caller, fast, reference.

use pteron_core::{Error, Kernel, Result, Schema, StaticKernel};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A kernel of the built-in tables or one that a caller registered.
#[derive(Clone)]
pub(crate) enum KernelEntry {
    BuiltIn(StaticKernel),
    Registered(Arc<dyn Kernel>),
}

impl KernelEntry {
    pub(crate) fn as_kernel(&self) -> &dyn Kernel {
        match self {
            KernelEntry::BuiltIn(k) => k,
            KernelEntry::Registered(k) => &**k,
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
    /// The operator's schema.
    pub(crate) fn schema(&self) -> Result<Arc<Schema>> {
        if let Some(s) = self.schema.get() {
            return Ok(s.clone());
        }
        // The reference kernel, last in the list, is the one that owns the schema.
        let text = self.kernels.last().map(|k| k.as_kernel().schema()).unwrap_or_default();
        let parsed = Arc::new(Schema::parse(text)?);
        Ok(self.schema.get_or_init(|| parsed).clone())
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

    /// Puts `kernel` before all others of its operator. Errors when `schema` has other argument kinds than the
    /// kernels that are there.
    pub(crate) fn register(&mut self, kernel: Arc<dyn Kernel>, schema: Schema) -> Result<()> {
        let mut list = OperatorKernels::default();
        list.kernels.push(KernelEntry::Registered(kernel));
        if let Some(found) = self.operators.get(&schema.name) {
            let known = found.schema()?;
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

/// The part of a schema before its arguments.
fn operator_name(schema: &str) -> &str {
    schema.split('(').next().unwrap_or(schema).trim()
}
