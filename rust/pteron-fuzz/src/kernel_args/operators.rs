//! Every operator of the kernel table with its kernels in the order in which load asks them.

use pteron_core::{Schema, StaticKernel};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// An operator.
pub struct Operator {
    /// Its schema, that of the reference kernel.
    pub schema: Schema,
    /// Fast kernels, then kernels on complex numbers, then the reference kernel.
    pub kernels: Vec<StaticKernel>,
}

/// All operators, by name.
pub static OPERATORS: LazyLock<Vec<Operator>> = LazyLock::new(|| {
    let mut found: BTreeMap<String, Operator> = BTreeMap::new();
    for kernel in pteron_cpu::kernels() {
        let Ok(schema) = Schema::parse(kernel.schema) else { continue };
        let entry = found
            .entry(schema.name.clone())
            .or_insert_with(|| Operator { schema: schema.clone(), kernels: vec![] });
        entry.schema = schema;
        entry.kernels.push(kernel);
    }
    found.into_values().collect()
});
