//! What the library is, and its element types. Unsafe island (exported functions).

use crate::abi::{API_MAJOR, API_MINOR};
use pteron_core::DType;
use std::ffi::{CStr, c_char};

/// Version of the interface: major * 65536 + minor.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_api_version() -> u32 {
    (API_MAJOR << 16) | API_MINOR
}

/// Version of pteron.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

fn dtype_of(number: i32) -> Option<DType> {
    DType::from_code(i8::try_from(number).ok()?)
}

/// Bytes of an element, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_dtype_size(dtype: i32) -> usize {
    dtype_of(dtype).map_or(0, DType::size)
}

/// Name of an element type, or null.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_dtype_name(dtype: i32) -> *const c_char {
    let Some(dtype) = dtype_of(dtype) else { return std::ptr::null() };
    let name = match dtype {
        DType::UInt8 => c"uint8",
        DType::Int8 => c"int8",
        DType::Int16 => c"int16",
        DType::Int32 => c"int32",
        DType::Int64 => c"int64",
        DType::Float16 => c"float16",
        DType::Float32 => c"float32",
        DType::Float64 => c"float64",
        DType::Complex32 => c"complex32",
        DType::Complex64 => c"complex64",
        DType::Complex128 => c"complex128",
        DType::Bool => c"bool",
        DType::BFloat16 => c"bfloat16",
        DType::Bits16 => c"bits16",
        DType::Float8E5M2 => c"float8_e5m2",
        DType::Float8E4M3FN => c"float8_e4m3fn",
        DType::Float8E5M2FNUZ => c"float8_e5m2fnuz",
        DType::Float8E4M3FNUZ => c"float8_e4m3fnuz",
        DType::UInt16 => c"uint16",
        DType::UInt32 => c"uint32",
        DType::UInt64 => c"uint64",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_types() {
        for dtype in DType::ALL {
            let code = i32::from(dtype.code());
            // SAFETY: a name of the table above, which ends in a zero byte and stays.
            let name = unsafe { CStr::from_ptr(pteron_dtype_name(code)) };
            assert_eq!(name.to_str().unwrap(), dtype.name());
            assert_eq!(pteron_dtype_size(code), dtype.size());
        }
        assert!(pteron_dtype_name(12).is_null() && pteron_dtype_name(300).is_null());
        assert_eq!(pteron_dtype_size(-1), 0);
    }
}
