//! A bundled program (`.bpte`), checked.

use pteron_core::{AlignedBuffer, TensorSpec};
use std::ops::Range;

/// A program with test cases. The file is held as it was copied before it was checked.
pub struct BundleFile {
    /// The bytes of the file.
    pub bytes: AlignedBuffer,
    /// The program file in it: a range of `bytes`. Not checked; that is for
    /// [`crate::ProgramFile::parse`].
    pub program: Range<usize>,
    /// Test cases by method, in file order; a method may occur several times.
    pub suites: Vec<TestSuiteDef>,
}

/// Test cases of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSuiteDef {
    /// Name of the method. Whether the program has it is not checked here.
    pub method: String,
    /// The cases.
    pub cases: Vec<TestCaseDef>,
}

/// One call of a method, flat.
#[derive(Debug, Clone, PartialEq)]
pub struct TestCaseDef {
    /// What goes in.
    pub inputs: Vec<BundledValue>,
    /// What should come out; empty where nothing is expected.
    pub expected_outputs: Vec<BundledValue>,
}

/// A value of a test case.
#[derive(Debug, Clone, PartialEq)]
pub enum BundledValue {
    /// A tensor: dtype, shape and memory order, and its elements as a range of the file, exactly as long.
    Tensor(Box<TensorSpec>, Range<usize>),
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
}
