//! How dtypes are spelled elsewhere: buffer protocol format strings, DLPack type codes, NumPy dtypes.

use pteron_core::DType;
use std::ffi::CStr;

/// The dtype of a buffer with this format string and item size; `None` for what tensors cannot hold
/// (records, strings, other byte orders, extended precision).
pub fn from_buffer_format(format: &[u8], itemsize: usize) -> Option<DType> {
    let code = match format {
        [b'@' | b'=', rest @ ..] => rest,
        #[cfg(target_endian = "little")]
        [b'<', rest @ ..] => rest,
        #[cfg(target_endian = "big")]
        [b'>' | b'!', rest @ ..] => rest,
        whole => whole,
    };
    let signed = |n| match n {
        1 => Some(DType::Int8),
        2 => Some(DType::Int16),
        4 => Some(DType::Int32),
        8 => Some(DType::Int64),
        _ => None,
    };
    let unsigned = |n| match n {
        1 => Some(DType::UInt8),
        2 => Some(DType::UInt16),
        4 => Some(DType::UInt32),
        8 => Some(DType::UInt64),
        _ => None,
    };
    match code {
        b"f" => Some(DType::Float32),
        b"d" => Some(DType::Float64),
        b"e" => Some(DType::Float16),
        b"?" => Some(DType::Bool),
        b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => signed(itemsize),
        b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" => unsigned(itemsize),
        b"Zf" => Some(DType::Complex64),
        b"Zd" => Some(DType::Complex128),
        _ => None,
    }
    .filter(|d| d.size() == itemsize)
}

/// The format string for exported buffers; `None` where the buffer protocol has no code.
pub fn buffer_format(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::UInt8 => c"B",
        DType::Int8 => c"b",
        DType::Int16 => c"h",
        DType::Int32 => c"i",
        DType::Int64 => c"q",
        DType::Float16 => c"e",
        DType::Float32 => c"f",
        DType::Float64 => c"d",
        DType::Complex64 => c"Zf",
        DType::Complex128 => c"Zd",
        DType::Bool => c"?",
        DType::UInt16 | DType::Bits16 => c"H",
        DType::UInt32 => c"I",
        DType::UInt64 => c"Q",
        DType::Complex32
        | DType::BFloat16
        | DType::Float8E5M2
        | DType::Float8E4M3FN
        | DType::Float8E5M2FNUZ
        | DType::Float8E4M3FNUZ => return None,
    })
}

/// An element type of DLPack: code, bits, lanes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// Kind of number.
    pub code: u8,
    /// Bits per lane.
    pub bits: u8,
    /// Lanes of a vector type; 1 for scalars.
    pub lanes: u16,
}

/// DLPack's type codes (dlpack.h 1.1).
const CODES: [(DType, u8, u8); 20] = [
    (DType::Float32, 2, 32),
    (DType::Int64, 0, 64),
    (DType::Int32, 0, 32),
    (DType::Int16, 0, 16),
    (DType::Int8, 0, 8),
    (DType::UInt8, 1, 8),
    (DType::UInt16, 1, 16),
    (DType::UInt32, 1, 32),
    (DType::UInt64, 1, 64),
    (DType::Float16, 2, 16),
    (DType::Float64, 2, 64),
    (DType::BFloat16, 4, 16),
    (DType::Complex32, 5, 32),
    (DType::Complex64, 5, 64),
    (DType::Complex128, 5, 128),
    (DType::Bool, 6, 8),
    (DType::Float8E4M3FN, 10, 8),
    (DType::Float8E4M3FNUZ, 11, 8),
    (DType::Float8E5M2, 12, 8),
    (DType::Float8E5M2FNUZ, 13, 8),
];

/// The DLPack type of `dtype`; `None` where DLPack has none.
pub fn to_dlpack(dtype: DType) -> Option<DLDataType> {
    CODES.iter().find(|(d, ..)| *d == dtype).map(|&(_, code, bits)| DLDataType { code, bits, lanes: 1 })
}

/// The dtype of a DLPack type; `None` for what tensors cannot hold.
pub fn from_dlpack(ty: DLDataType) -> Option<DType> {
    CODES
        .iter()
        .find(|&&(_, code, bits)| ty.lanes == 1 && ty.code == code && ty.bits == bits)
        .map(|(d, ..)| *d)
}

/// The dtype that PyTorch and NumPy users call `name`.
pub fn from_name(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| d.name() == name)
}

/// Does NumPy have this dtype only through the `ml_dtypes` package?
pub fn needs_ml_dtypes(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::BFloat16
            | DType::Float8E5M2
            | DType::Float8E4M3FN
            | DType::Float8E5M2FNUZ
            | DType::Float8E4M3FNUZ
    )
}
