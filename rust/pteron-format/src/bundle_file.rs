//! A bundled program (`.bpte`), checked.

use crate::read;
use pteron_core::{AlignedBuffer, Result, TensorSpec};
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

impl BundleFile {
    /// Does a file that begins like this claim to be a bundled program?
    pub fn is_bundle(head: &[u8]) -> bool {
        read::is_bundle(head)
    }

    /// Copies, then reads and checks a whole file.
    ///
    /// # Errors
    /// `ErrorKind::Program` when anything in it breaks a rule of the format; `ErrorKind::LimitExceeded` when
    /// memory for the copy cannot be had.
    pub fn parse(bytes: &[u8]) -> Result<BundleFile> {
        read::bundle(AlignedBuffer::copy_of(bytes)?)
    }
}
