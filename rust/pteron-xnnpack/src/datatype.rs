//! Element types of XNNPACK.

use pteron_core::DType;

/// The type of a value's elements; how it is quantised stands beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named after what they are in the schema")]
pub(crate) enum Datatype {
    Fp32,
    Fp16,
    Bf16,
    Int32,
    /// One scale and zero point.
    Qint8,
    Quint8,
    Qint32,
    /// A scale for each channel.
    Qcint8,
    Qcint32,
    Qcint4,
    /// A scale for each group of a channel.
    Qbint4,
    /// Scale and zero point of each row found when it runs.
    Qdint8,
}

/// Names by code, as XNNPACK has them.
const NAMES: [&str; 15] = [
    "invalid", "fp32", "fp16", "qint8", "quint8", "qint32", "qcint8", "qcint32", "qcint4", "qdint8",
    "qbint4", "qpint8", "int32", "pfp32", "bf16",
];

impl Datatype {
    /// The type of a code; `None` for one that no exporter writes.
    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Some(match code {
            1 => Datatype::Fp32,
            2 => Datatype::Fp16,
            3 => Datatype::Qint8,
            4 => Datatype::Quint8,
            5 => Datatype::Qint32,
            6 => Datatype::Qcint8,
            7 => Datatype::Qcint32,
            8 => Datatype::Qcint4,
            9 => Datatype::Qdint8,
            10 => Datatype::Qbint4,
            12 => Datatype::Int32,
            14 => Datatype::Bf16,
            _ => return None,
        })
    }

    /// The name of a code, for messages.
    pub(crate) fn code_name(code: i16) -> String {
        let name = usize::try_from(code).ok().and_then(|c| NAMES.get(c));
        name.map_or_else(|| format!("code {code}"), |name| (*name).to_owned())
    }

    /// The name, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Datatype::Fp32 => "fp32",
            Datatype::Fp16 => "fp16",
            Datatype::Bf16 => "bf16",
            Datatype::Int32 => "int32",
            Datatype::Qint8 => "qint8",
            Datatype::Quint8 => "quint8",
            Datatype::Qint32 => "qint32",
            Datatype::Qcint8 => "qcint8",
            Datatype::Qcint32 => "qcint32",
            Datatype::Qcint4 => "qcint4",
            Datatype::Qbint4 => "qbint4",
            Datatype::Qdint8 => "qdint8",
        }
    }

    /// The dtype of a tensor that stores such elements, one each; 4-bit ones after they are unpacked.
    pub(crate) fn stored(self) -> DType {
        match self {
            Datatype::Fp32 => DType::Float32,
            Datatype::Fp16 => DType::Float16,
            Datatype::Bf16 => DType::BFloat16,
            Datatype::Int32 | Datatype::Qint32 | Datatype::Qcint32 => DType::Int32,
            Datatype::Quint8 => DType::UInt8,
            Datatype::Qint8 | Datatype::Qcint8 | Datatype::Qcint4 | Datatype::Qbint4 | Datatype::Qdint8 => {
                DType::Int8
            }
        }
    }

    /// The dtype of the numbers that are meant.
    pub(crate) fn real(self) -> DType {
        match self {
            Datatype::Fp16 => DType::Float16,
            Datatype::Bf16 => DType::BFloat16,
            Datatype::Int32 => DType::Int32,
            _ => DType::Float32,
        }
    }

    /// Two elements in a byte, the first in the low half?
    pub(crate) fn is_nibbles(self) -> bool {
        matches!(self, Datatype::Qcint4 | Datatype::Qbint4)
    }

    /// Do the elements need quantisation parameters?
    pub(crate) fn is_quantised(self) -> bool {
        !matches!(self, Datatype::Fp32 | Datatype::Fp16 | Datatype::Bf16 | Datatype::Int32)
    }
}
