//! A row of the operator table: all that the house knows about one operator. The registry, the table of functions
//! for chains, the list of features and the documents about operators are made of these rows.

use crate::elementwise::function::{RecogniseFn, recognise_as};
use crate::elementwise::lanewise::{self, OfHalves, OfIntegers, OfNumbers};
use crate::elementwise::{floats, lanewise::Lanewise, pointwise::Pointwise};
use pteron_core::{ArgSpec, Bool8, Complex64, StaticKernel, kernel::PrepareFn};

/// Most fast kernels of one operator.
const MOST_KERNELS: usize = 8;
/// Most elementwise functions of one operator.
const MOST_FUNCTIONS: usize = 6;

/// One operator.
#[derive(Clone, Copy)]
pub struct Operator {
    /// The out-variant's schema in PyTorch's syntax.
    pub schema: &'static str,
    fast: [Option<(&'static str, PrepareFn)>; MOST_KERNELS],
    complex: Option<PrepareFn>,
    plain: Option<PrepareFn>,
    functions: [Option<ElementwiseFunction>; MOST_FUNCTIONS],
    max_ulps: Option<f64>,
}

/// An elementwise f32 function that a call of an operator may be.
#[derive(Clone, Copy)]
pub struct ElementwiseFunction {
    /// Name in listings.
    pub name: &'static str,
    /// Its largest error, if it has one operand and states it: in units in the last place, for all f32 inputs.
    pub max_ulps: Option<f64>,
    /// Is a call this function?
    pub recognise: RecogniseFn,
}

/// A row without kernels. Methods add them; fast ones are asked in the order in which they were added, the one for complex
/// numbers behind them, the plain one last.
pub const fn operator(schema: &'static str) -> Operator {
    Operator {
        schema,
        fast: [None; MOST_KERNELS],
        complex: None,
        plain: None,
        functions: [None; MOST_FUNCTIONS],
        max_ulps: None,
    }
}

/// A row with a plain kernel.
pub const fn kernel(schema: &'static str, prepare: PrepareFn) -> Operator {
    operator(schema).plain(prepare)
}

impl Operator {
    /// Adds a fast kernel.
    pub const fn fast(mut self, variant: &'static str, prepare: PrepareFn) -> Operator {
        let mut i = 0;
        while self.fast[i].is_some() {
            i += 1;
        }
        self.fast[i] = Some((variant, prepare));
        self
    }

    /// Adds the kernel for complex numbers, if the crate was built with them.
    pub const fn complex64(mut self, prepare: PrepareFn) -> Operator {
        if cfg!(feature = "complex") {
            self.complex = Some(prepare);
        }
        self
    }

    /// Adds the plain kernel, which takes every call that the operator has.
    pub const fn plain(mut self, prepare: PrepareFn) -> Operator {
        self.plain = Some(prepare);
        self
    }

    /// Adds a function of floats: a fast kernel, and what a call may be in a chain.
    pub const fn float<F: Pointwise<N>, const N: usize>(self) -> Operator {
        let function =
            ElementwiseFunction { name: F::NAME, max_ulps: F::MAX_ULPS, recognise: recognise_as::<F, N> };
        self.fast("float", floats::prepare::<F, N>).function(function)
    }

    /// Adds a function of one operand that `recognise` knows, with its kernel.
    pub(crate) const fn unary(
        self,
        name: &'static str,
        recognise: RecogniseFn,
        prepare: PrepareFn,
    ) -> Operator {
        self.fast("float", prepare).function(ElementwiseFunction { name, max_ulps: None, recognise })
    }

    /// Adds a fast kernel on integers and float64.
    pub const fn numbers<F: OfNumbers<N>, const N: usize>(self) -> Operator {
        self.fast("vectorised", lanewise::numbers::<F, N>)
    }

    /// Adds a fast kernel on integers.
    pub const fn integers<F: OfIntegers<N>, const N: usize>(self) -> Operator {
        self.fast("vectorised", lanewise::integers::<F, N>)
    }

    /// Adds a fast kernel on float64.
    pub const fn doubles<F: Lanewise<f64, N>, const N: usize>(self) -> Operator {
        self.fast("vectorised", lanewise::prepare::<F, f64, N>)
    }

    /// Adds a fast kernel on bool.
    pub const fn bools<F: Lanewise<Bool8, N>, const N: usize>(self) -> Operator {
        self.fast("bool", lanewise::prepare::<F, Bool8, N>)
    }

    /// Adds a fast kernel on complex64, if the crate was built with complex numbers.
    pub const fn complexes<F: Lanewise<Complex64, N>, const N: usize>(self) -> Operator {
        if cfg!(feature = "complex") {
            return self.fast("complex", lanewise::prepare::<F, Complex64, N>);
        }
        self
    }

    /// Adds a fast kernel on the bits of floats of sixteen.
    pub const fn halves<F: OfHalves<N>, const N: usize>(self) -> Operator {
        self.fast("sixteen_bits", lanewise::halves::<F, N>)
    }

    /// Adds a function that a call may be in a chain; the first that recognises the call is taken.
    const fn function(mut self, function: ElementwiseFunction) -> Operator {
        let mut i = 0;
        while self.functions[i].is_some() {
            i += 1;
        }
        self.functions[i] = Some(function);
        self
    }

    /// States the largest error of a function of one f32 tensor that no fast kernel states: in units in the last place,
    /// for all inputs.
    pub const fn within_ulps(mut self, max_ulps: f64) -> Operator {
        self.max_ulps = Some(max_ulps);
        self
    }

    /// The name with its overload: `aten::add.out`.
    pub fn name(&self) -> &'static str {
        self.schema.split('(').next().unwrap_or(self.schema)
    }

    /// The kernels, in the order in which they are asked.
    pub fn kernels(&self) -> impl Iterator<Item = StaticKernel> {
        self.fast_kernels().chain(self.plain_kernels())
    }

    /// The fast kernels, in the order in which they are asked.
    pub fn fast_kernels(&self) -> impl Iterator<Item = StaticKernel> {
        let schema = self.schema;
        self.fast.into_iter().flatten().map(move |(variant, prepare)| StaticKernel {
            schema,
            variant,
            prepare,
        })
    }

    /// The kernel for complex numbers and the plain kernel, which are asked last.
    pub fn plain_kernels(&self) -> impl Iterator<Item = StaticKernel> {
        let schema = self.schema;
        let kernels = [("complex64", self.complex), ("reference", self.plain)];
        kernels
            .into_iter()
            .filter_map(move |(variant, prepare)| Some(StaticKernel { schema, variant, prepare: prepare? }))
    }

    /// The elementwise functions, in the order in which they are asked.
    pub fn functions(&self) -> impl Iterator<Item = ElementwiseFunction> {
        self.functions.into_iter().flatten()
    }

    /// The largest error of a call with these arguments, if it is a function of one f32 tensor whose error is stated: in
    /// units in the last place, for all inputs, of every kernel.
    pub fn max_ulps(&self, args: &[ArgSpec<'_>]) -> Option<f64> {
        match self.functions().find(|function| (function.recognise)(args).is_some()) {
            Some(function) => function.max_ulps,
            None => self.max_ulps,
        }
    }

    /// The names of the functions of this row whose errors are stated, that of the operator where the row states it.
    pub fn functions_with_bounds(&self) -> impl Iterator<Item = &'static str> {
        let own = self.max_ulps.map(|_| self.name());
        self.functions().filter_map(|f| f.max_ulps.map(|_| f.name)).chain(own)
    }
}
