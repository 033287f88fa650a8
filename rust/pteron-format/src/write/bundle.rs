//! Bundled programs: a program file and test cases to bytes.

use super::LayoutDraft;
use super::container::with_gap;
use super::table::aligned_bytes;
use super::table_memory::{Builder, built};
use crate::BundleFile;
use crate::generated::bundle_wire;
use crate::header::{BUNDLE_IDENTIFIER, BUNDLE_VERSION};
use flatbuffers::{UnionWIPOffset, WIPOffset};
use pteron_core::memory_reserve::within_memory_limit;
use pteron_core::{Error, Result};
use std::borrow::Cow;

/// Alignment of the program in the file.
const PROGRAM_ALIGNMENT: usize = 32;
/// Alignment of the elements of a tensor.
const TENSOR_ALIGNMENT: usize = 16;
/// Most bytes of program and tensors together: FlatBuffers offsets address 2 GiB, and the tables need room.
const MAX_BYTES: usize = (1 << 31) - (1 << 26);

/// A bundled program to write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BundleDraft<'a> {
    /// A whole program file.
    pub program: Cow<'a, [u8]>,
    /// Test cases by method.
    pub suites: Vec<TestSuiteDraft<'a>>,
}

/// Test cases of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSuiteDraft<'a> {
    /// Name of the method.
    pub method: String,
    /// The cases.
    pub cases: Vec<TestCaseDraft<'a>>,
}

/// One call, flat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TestCaseDraft<'a> {
    /// What goes in.
    pub inputs: Vec<BundledValueDraft<'a>>,
    /// What should come out; empty for nothing to compare with.
    pub expected_outputs: Vec<BundledValueDraft<'a>>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum BundledValueDraft<'a> {
    /// A tensor and its elements in memory order.
    Tensor(LayoutDraft, Cow<'a, [u8]>),
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
}

impl BundleDraft<'_> {
    /// The bytes of the file, read back and checked. The program in it is not looked at.
    ///
    /// # Errors
    /// `ErrorKind::LimitExceeded` when program and tensors are too large together; `ErrorKind::Program`
    /// when a tensor is illegal.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let nbytes = self.values().fold(self.program.len(), |n, v| match v {
            BundledValueDraft::Tensor(_, data) => n.saturating_add(data.len()),
            _ => n,
        });
        if nbytes > MAX_BYTES {
            return Err(Error::limit("the program and its test cases are too large to be bundled")
                .expected(format!("at most {MAX_BYTES} bytes"))
                .got(format!("{nbytes} bytes"))
                .hint("keep the weights in a data file: ExecutorchBackendConfig(external_constants=True)"));
        }
        within_memory_limit(|| self.checked_bytes())
    }

    fn checked_bytes(&self) -> Result<Vec<u8>> {
        let table = built(|b| self.table(b))?;
        // Blobs are aligned from the end; a length that is a multiple of the alignment makes it so from the
        // start too.
        let gap = table.len().next_multiple_of(PROGRAM_ALIGNMENT).saturating_sub(table.len());
        let bytes = with_gap(&table, gap)?;
        BundleFile::parse(&bytes)
            .map_err(|e| e.hint("the test cases given to the writer are illegal; nothing was written"))?;
        Ok(bytes)
    }

    fn values(&self) -> impl Iterator<Item = &BundledValueDraft<'_>> {
        self.suites.iter().flat_map(|s| &s.cases).flat_map(|c| c.inputs.iter().chain(&c.expected_outputs))
    }

    fn table(&self, b: &mut Builder<'_>) -> Result<()> {
        let suites: Vec<_> = self.suites.iter().map(|s| suite(b, s)).collect();
        let args = bundle_wire::BundledProgramArgs {
            version: BUNDLE_VERSION,
            method_test_suites: Some(b.create_vector(&suites)),
            program: Some(aligned_bytes(b, &self.program, PROGRAM_ALIGNMENT)),
        };
        let root = bundle_wire::BundledProgram::create(b, &args);
        b.finish(root, Some(BUNDLE_IDENTIFIER));
        Ok(())
    }
}

fn suite<'b>(
    b: &mut Builder<'b>,
    suite: &TestSuiteDraft<'_>,
) -> WIPOffset<bundle_wire::BundledMethodTestSuite<'b>> {
    let mut cases = Vec::new();
    for case in &suite.cases {
        let inputs: Vec<_> = case.inputs.iter().map(|v| value(b, v)).collect();
        let outputs: Vec<_> = case.expected_outputs.iter().map(|v| value(b, v)).collect();
        let args = bundle_wire::BundledMethodTestCaseArgs {
            inputs: Some(b.create_vector(&inputs)),
            expected_outputs: Some(b.create_vector(&outputs)),
        };
        cases.push(bundle_wire::BundledMethodTestCase::create(b, &args));
    }
    let args = bundle_wire::BundledMethodTestSuiteArgs {
        method_name: Some(b.create_string(&suite.method)),
        test_cases: Some(b.create_vector(&cases)),
    };
    bundle_wire::BundledMethodTestSuite::create(b, &args)
}

fn value<'b>(b: &mut Builder<'b>, value: &BundledValueDraft<'_>) -> WIPOffset<bundle_wire::Value<'b>> {
    use bundle_wire::ValueUnion as Kind;
    let (val_type, val): (Kind, WIPOffset<UnionWIPOffset>) = match value {
        BundledValueDraft::Tensor(layout, data) => {
            let args = bundle_wire::TensorArgs {
                scalar_type: crate::generated::bundle_scalar_type(layout.scalar_type),
                sizes: Some(b.create_vector(&layout.sizes)),
                data: Some(aligned_bytes(b, data, TENSOR_ALIGNMENT)),
                dim_order: Some(b.create_vector(&layout.dim_order)),
            };
            (Kind::Tensor, bundle_wire::Tensor::create(b, &args).as_union_value())
        }
        BundledValueDraft::Int(v) => {
            (Kind::Int, bundle_wire::Int::create(b, &bundle_wire::IntArgs { int_val: *v }).as_union_value())
        }
        BundledValueDraft::Bool(v) => (
            Kind::Bool,
            bundle_wire::Bool::create(b, &bundle_wire::BoolArgs { bool_val: *v }).as_union_value(),
        ),
        BundledValueDraft::Double(v) => {
            let args = bundle_wire::DoubleArgs { double_val: *v };
            (Kind::Double, bundle_wire::Double::create(b, &args).as_union_value())
        }
    };
    bundle_wire::Value::create(b, &bundle_wire::ValueArgs { val_type, val: Some(val) })
}
