//! The target `xnnpack_payload`: payloads of XNNPACK's delegate in the place of those that ExecuTorch wrote.

use pteron_core::{ErrorKind, Instruction, NamedData, TensorSpec, Value};
use pteron_format::ProgramFile;
use pteron_xnnpack::{ConstantBytes, ExpandedConstant, ExpandedTensor, Expansion, expand};
use std::sync::LazyLock;

/// Programs whose delegate calls the payloads are for.
const PROGRAMS: [&[u8]; 5] = [
    include_bytes!("../../pteron-xnnpack/tests/programs/residual_dynamic.pte"),
    include_bytes!("../../pteron-xnnpack/tests/programs/residual_int8.pte"),
    include_bytes!("../../pteron-xnnpack/tests/programs/upscale.pte"),
    include_bytes!("../../pteron-xnnpack/tests/programs/block_dynamic_int8.pte"),
    include_bytes!("../../pteron-xnnpack/tests/programs/linear_four_bits.pte"),
];

/// A delegate call of a program.
struct Site {
    payload: Vec<u8>,
    arguments: Vec<Option<TensorSpec>>,
    named: Named,
}

/// Named data of a program.
#[derive(Clone)]
struct Named(Vec<(String, &'static [u8])>);

impl NamedData for Named {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, bytes)| *bytes)
    }
}

static SITES: LazyLock<Vec<Site>> = LazyLock::new(|| PROGRAMS.iter().flat_map(|file| sites(file)).collect());

fn sites(file: &'static [u8]) -> Vec<Site> {
    let program = ProgramFile::parse(file).unwrap_or_else(|e| panic!("a program of the tests: {e}"));
    let named = program.named_data.iter().filter_map(|n| Some((n.key.clone(), file.get(n.range.clone())?)));
    let named = Named(named.collect());
    let mut found = vec![];
    for method in &program.methods {
        for instruction in &method.instructions {
            let Instruction::Delegate { delegate, args } = instruction else { continue };
            let blob = method.delegates.get(*delegate as usize).and_then(|d| file.get(d.blob.clone()));
            let arguments =
                args.iter().map(|arg| method.tensor(*arg).map(|tensor| tensor.spec.clone())).collect();
            found.push(Site { payload: blob.unwrap_or_default().to_vec(), arguments, named: named.clone() });
        }
    }
    found
}

/// A payload that is right, and the byte that says for which delegate call: those of all programs in turn.
pub fn right(number: u64) -> (u8, Vec<u8>) {
    let sites = u64::try_from(SITES.len()).unwrap_or(1);
    let site = u8::try_from(number % sites).unwrap_or_default();
    (site, SITES[usize::from(site)].payload.clone())
}

/// Expands the payload behind the first byte, which says for which delegate call. An error is one that says what to do; an
/// expansion keeps what it promises.
pub fn xnnpack_payload(data: &[u8]) {
    let Some((number, payload)) = data.split_first() else { return };
    let site = &SITES[usize::from(*number) % SITES.len()];
    match expand(payload, &site.arguments, &site.named) {
        Ok(expansion) => check(&expansion, site, payload),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Internal, "{error}");
            assert!(error.to_string().len() < 20_000, "a long message");
        }
    }
}

/// The promises of [`Expansion`].
fn check(expansion: &Expansion, site: &Site, payload: &[u8]) {
    let mut seen = vec![false; site.arguments.len()];
    let mut written = vec![false; expansion.values.len()];
    for (slot, value) in written.iter_mut().zip(&expansion.values) {
        *slot = match value.as_tensor() {
            Some(ExpandedTensor::Intermediate(spec)) => {
                assert!(spec.nbytes().is_ok() && spec.shape.len() == spec.dim_order.rank());
                false
            }
            Some(ExpandedTensor::Argument(argument)) => {
                assert!(!std::mem::replace(&mut seen[*argument], true), "argument {argument} stands twice");
                true
            }
            Some(ExpandedTensor::Constant(constant)) => {
                check_constant(constant, site, payload);
                true
            }
            None => true,
        };
    }
    for call in &expansion.calls {
        assert!(!call.outputs.is_empty());
        for input in &call.inputs {
            let members: Vec<usize> = match &expansion.values[*input] {
                Value::TensorList(list) | Value::IntList(list) => list.to_vec(),
                _ => vec![*input],
            };
            assert!(members.iter().all(|member| written[*member]), "{call:?} reads what is not there");
        }
        for output in &call.outputs {
            written[*output] = true;
        }
    }
    assert!(!expansion.to_string().is_empty() || expansion.calls.is_empty());
}

/// All elements lie within the bytes.
fn check_constant(constant: &ExpandedConstant, site: &Site, payload: &[u8]) {
    let len = match &constant.bytes {
        ConstantBytes::Named(key) => {
            site.named.get(key).unwrap_or_else(|| panic!("named data that is not there")).len()
        }
        ConstantBytes::Payload(range) => payload[range.clone()].len(),
        ConstantBytes::Computed(bytes) => bytes.as_slice().len(),
    };
    assert_eq!(constant.shape.len(), constant.strides.len());
    if constant.shape.contains(&0) {
        return;
    }
    let last: usize =
        constant.shape.iter().zip(constant.strides.iter()).map(|(n, stride)| (n - 1) * stride).sum();
    assert!((last + 1) * constant.dtype.size() <= len, "a weight leaves its bytes");
}
