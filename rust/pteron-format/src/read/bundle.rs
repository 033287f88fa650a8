//! A bundled program: where the program is, and its test cases.

use super::foreign;
use super::place::{InPlace, explained, name, required};
use super::table::FileTable;
use super::tensor_layout::{layout_spec, unknown_code};
use crate::generated::bundle_wire;
use crate::header::{BUNDLE_IDENTIFIER, BUNDLE_VERSION, IDENTIFIER_OFFSET};
use crate::{BundleFile, BundledValue, TestCaseDef, TestSuiteDef};
use flatbuffers::{ForwardsUOffset, Vector};
use pteron_core::error::printable;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{AlignedBuffer, Error, Result};

impl BundleFile {
    /// Does a file that begins like this claim to be a bundled program?
    pub fn is_bundle(head: &[u8]) -> bool {
        head.get(IDENTIFIER_OFFSET..).is_some_and(|rest| rest.starts_with(BUNDLE_IDENTIFIER.as_bytes()))
    }

    /// Copies, then reads and checks a whole file.
    ///
    /// # Errors
    /// `ErrorKind::Program` when anything in it breaks a rule of the format; `ErrorKind::LimitExceeded` when
    /// memory for the copy cannot be had.
    pub fn parse(bytes: &[u8]) -> Result<BundleFile> {
        checked(AlignedBuffer::copy_of(bytes)?).map_err(explained)
    }
}

fn checked(bytes: AlignedBuffer) -> Result<BundleFile> {
    if !BundleFile::is_bundle(bytes.as_slice()) {
        let error = Error::program("the file is not a bundled program of a known format")
            .expected(format!("file identifier {BUNDLE_IDENTIFIER}"));
        return Err(foreign::refusal(error, bytes.as_slice(), ".bpte"));
    }
    let table = FileTable::of_copy(bytes);
    let root = table.verified_root::<bundle_wire::BundledProgram<'_>>()?;
    if root.version() > BUNDLE_VERSION {
        return Err(Error::program("unknown version of the bundled program")
            .expected(format!("at most {BUNDLE_VERSION}"))
            .got(root.version().to_string())
            .hint("the file comes from a newer exporter"));
    }
    let program = table.range_of(required(root.program(), "program")?.bytes());
    let entries = root.method_test_suites().unwrap_or_default();
    let mut suites = try_with_capacity(entries.len())?;
    for (index, entry) in entries.iter().enumerate() {
        suites.push(suite(&entry, &table).in_place(|| format!("test suite {index}"))?);
    }
    Ok(BundleFile { bytes: table.into_bytes(), program, suites })
}

fn suite(entry: &bundle_wire::BundledMethodTestSuite<'_>, table: &FileTable) -> Result<TestSuiteDef> {
    let method = required(entry.method_name(), "method_name")?;
    let list = entry.test_cases().unwrap_or_default();
    let mut cases = try_with_capacity(list.len())?;
    for (index, case) in list.iter().enumerate() {
        let place = || format!("method '{}', test case {index}", printable(method));
        cases.push(test_case(&case, table).in_place(place)?);
    }
    Ok(TestSuiteDef { method: name(method)?, cases })
}

fn test_case(case: &bundle_wire::BundledMethodTestCase<'_>, table: &FileTable) -> Result<TestCaseDef> {
    Ok(TestCaseDef {
        inputs: values(case.inputs(), table, "input")?,
        expected_outputs: values(case.expected_outputs(), table, "expected output")?,
    })
}

type Values<'a> = Vector<'a, ForwardsUOffset<bundle_wire::Value<'a>>>;

fn values(list: Option<Values<'_>>, table: &FileTable, what: &str) -> Result<Vec<BundledValue>> {
    let list = list.unwrap_or_default();
    let mut out = try_with_capacity(list.len())?;
    for (index, entry) in list.iter().enumerate() {
        out.push(value(&entry, table).in_place(|| format!("{what} {index}"))?);
    }
    Ok(out)
}

fn value(entry: &bundle_wire::Value<'_>, table: &FileTable) -> Result<BundledValue> {
    use bundle_wire::ValueUnion as Kind;
    match entry.val_type() {
        Kind::Tensor => tensor(&required(entry.val_as_tensor(), "val")?, table),
        Kind::Int => Ok(BundledValue::Int(required(entry.val_as_int(), "val")?.int_val())),
        Kind::Bool => Ok(BundledValue::Bool(required(entry.val_as_bool(), "val")?.bool_val())),
        Kind::Double => Ok(BundledValue::Double(required(entry.val_as_double(), "val")?.double_val())),
        Kind::NONE => Err(Error::program("the value has no kind")),
        other => Err(unknown_code("kind of value", i8::try_from(other.0).unwrap_or(i8::MAX))),
    }
}

fn tensor(tensor: &bundle_wire::Tensor<'_>, table: &FileTable) -> Result<BundledValue> {
    let spec = layout_spec(tensor.scalar_type().0, tensor.sizes(), tensor.dim_order())?;
    let nbytes = spec.nbytes()?;
    let range = match tensor.data() {
        Some(data) => table.range_of(data.bytes()),
        None => 0..0,
    };
    // ExecuTorch stores all of a view's storage; what follows the tensor means nothing.
    if range.len() < nbytes {
        return Err(Error::program("the tensor is larger than its stored data")
            .expected(format!("{nbytes} bytes"))
            .got(format!("{} bytes", range.len())));
    }
    let range = range.start..range.start.saturating_add(nbytes);
    Ok(BundledValue::Tensor(Box::new(spec), range))
}
