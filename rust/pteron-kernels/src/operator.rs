//! A row of the operator table: all that the house knows about one operator. The registry, the table of functions
//! for chains, the list of features and the documents about operators are made of these rows.

use crate::elementwise::function::RecogniseFn;
use pteron_core::{StaticKernel, kernel::PrepareFn};

/// Most kernels of one operator.
const MOST_KERNELS: usize = 8;
/// Most elementwise functions of one operator.
const MOST_FUNCTIONS: usize = 6;

/// One operator.
#[derive(Clone, Copy)]
pub struct Operator {
    /// The out-variant's schema in PyTorch's syntax.
    pub schema: &'static str,
    kernels: [Option<(&'static str, PrepareFn)>; MOST_KERNELS],
    functions: [Option<RecogniseFn>; MOST_FUNCTIONS],
}

/// A row without kernels. Methods add them in the order in which they are asked, from fast to plain.
pub const fn operator(schema: &'static str) -> Operator {
    Operator { schema, kernels: [None; MOST_KERNELS], functions: [None; MOST_FUNCTIONS] }
}

/// A row with a plain kernel alone.
pub const fn kernel(schema: &'static str, prepare: PrepareFn) -> Operator {
    operator(schema).plain(prepare)
}

impl Operator {
    /// Adds a kernel behind those that are there.
    pub const fn fast(mut self, variant: &'static str, prepare: PrepareFn) -> Operator {
        let mut i = 0;
        while self.kernels[i].is_some() {
            i += 1;
        }
        self.kernels[i] = Some((variant, prepare));
        self
    }

    /// Adds the plain kernel, which takes every call that the operator has; it comes last.
    pub const fn plain(self, prepare: PrepareFn) -> Operator {
        self.fast("reference", prepare)
    }

    /// Adds an elementwise f32 function that a call may be in a chain; the first that recognises the call is taken.
    pub const fn function(mut self, recognise: RecogniseFn) -> Operator {
        let mut i = 0;
        while self.functions[i].is_some() {
            i += 1;
        }
        self.functions[i] = Some(recognise);
        self
    }

    /// The name with its overload: `aten::add.out`.
    pub fn name(&self) -> &'static str {
        self.schema.split('(').next().unwrap_or(self.schema)
    }

    /// The kernels, in the order in which they are asked.
    pub fn kernels(&self) -> impl Iterator<Item = StaticKernel> {
        let schema = self.schema;
        self.kernels.into_iter().flatten().map(move |(variant, prepare)| StaticKernel {
            schema,
            variant,
            prepare,
        })
    }

    /// All but the plain kernel, in the order in which they are asked.
    pub fn fast_kernels(&self) -> impl Iterator<Item = StaticKernel> {
        self.kernels().take(self.kernels().count().saturating_sub(1))
    }

    /// The plain kernel, the last one.
    pub fn plain_kernel(&self) -> Option<StaticKernel> {
        self.kernels().last()
    }

    /// The elementwise functions, in the order in which they are asked.
    pub fn functions(&self) -> impl Iterator<Item = RecogniseFn> {
        self.functions.into_iter().flatten()
    }
}
