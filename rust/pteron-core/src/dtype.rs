//! Element types: the codes of the file format (`ScalarType`) and the Rust types behind them.

use std::fmt;

/// Element type of a tensor. The discriminants are the codes of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub enum DType {
    UInt8 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    Float16 = 5,
    Float32 = 6,
    Float64 = 7,
    Complex32 = 8,
    Complex64 = 9,
    Complex128 = 10,
    Bool = 11,
    BFloat16 = 15,
    Bits16 = 22,
    Float8E5M2 = 23,
    Float8E4M3FN = 24,
    Float8E5M2FNUZ = 25,
    Float8E4M3FNUZ = 26,
    UInt16 = 27,
    UInt32 = 28,
    UInt64 = 29,
}

impl DType {
    /// Every dtype, in code order.
    pub const ALL: [DType; 21] = [
        DType::UInt8,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::Float16,
        DType::Float32,
        DType::Float64,
        DType::Complex32,
        DType::Complex64,
        DType::Complex128,
        DType::Bool,
        DType::BFloat16,
        DType::Bits16,
        DType::Float8E5M2,
        DType::Float8E4M3FN,
        DType::Float8E5M2FNUZ,
        DType::Float8E4M3FNUZ,
        DType::UInt16,
        DType::UInt32,
        DType::UInt64,
    ];

    /// The dtype of a file code; `None` for codes without one (quantised legacy types included).
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.code() == code)
    }

    /// The code of the file format.
    pub fn code(self) -> i8 {
        self as u8 as i8
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::UInt8
            | DType::Int8
            | DType::Bool
            | DType::Float8E5M2
            | DType::Float8E4M3FN
            | DType::Float8E5M2FNUZ
            | DType::Float8E4M3FNUZ => 1,
            DType::Int16 | DType::Float16 | DType::BFloat16 | DType::Bits16 | DType::UInt16 => 2,
            DType::Int32 | DType::Float32 | DType::UInt32 | DType::Complex32 => 4,
            DType::Int64 | DType::Float64 | DType::UInt64 | DType::Complex64 => 8,
            DType::Complex128 => 16,
        }
    }

    /// Alignment an element needs in memory, in bytes: its size up to 8, as kernels that only move elements
    /// take them for integers of that size. (PyTorch's complex numbers are aligned like this too.)
    pub const fn align(self) -> usize {
        let size = self.size();
        if size < 8 { size } else { 8 }
    }

    /// The name PyTorch and NumPy users know (`float32`, `int64`, `bool`, ...).
    pub const fn name(self) -> &'static str {
        match self {
            DType::UInt8 => "uint8",
            DType::Int8 => "int8",
            DType::Int16 => "int16",
            DType::Int32 => "int32",
            DType::Int64 => "int64",
            DType::Float16 => "float16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::Complex32 => "complex32",
            DType::Complex64 => "complex64",
            DType::Complex128 => "complex128",
            DType::Bool => "bool",
            DType::BFloat16 => "bfloat16",
            DType::Bits16 => "bits16",
            DType::Float8E5M2 => "float8_e5m2",
            DType::Float8E4M3FN => "float8_e4m3fn",
            DType::Float8E5M2FNUZ => "float8_e5m2fnuz",
            DType::Float8E4M3FNUZ => "float8_e4m3fnuz",
            DType::UInt16 => "uint16",
            DType::UInt32 => "uint32",
            DType::UInt64 => "uint64",
        }
    }

    /// Real floating point (not complex).
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            DType::Float16
                | DType::Float32
                | DType::Float64
                | DType::BFloat16
                | DType::Float8E5M2
                | DType::Float8E4M3FN
                | DType::Float8E5M2FNUZ
                | DType::Float8E4M3FNUZ
        )
    }

    /// Complex.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::Complex32 | DType::Complex64 | DType::Complex128)
    }

    /// Integer, bool not included.
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            DType::UInt8
                | DType::Int8
                | DType::Int16
                | DType::Int32
                | DType::Int64
                | DType::UInt16
                | DType::UInt32
                | DType::UInt64
        )
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A bool as stored in a tensor: any non-zero byte is true, so no bit pattern is illegal.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool8(pub u8);

impl Bool8 {
    /// The logical value.
    #[inline(always)]
    pub fn get(self) -> bool {
        self.0 != 0
    }
}
impl From<bool> for Bool8 {
    #[inline(always)]
    fn from(b: bool) -> Self {
        Bool8(b as u8)
    }
}
impl PartialEq for Bool8 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}
impl fmt::Debug for Bool8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Two f32: real and imaginary part.
#[derive(Debug, Clone, Copy, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Complex64 {
    /// Real part.
    pub re: f32,
    /// Imaginary part.
    pub im: f32,
}

/// A Rust type that is the element of a tensor of [`Element::DTYPE`]. The types are these: a wrong size would read
/// beyond a tensor.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The dtype of tensors with this element.
    const DTYPE: DType;
}
mod sealed {
    pub trait Sealed {}
}
macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => { $(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )* }
}
elements! {
    u8 => UInt8, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    half::f16 => Float16, f32 => Float32, f64 => Float64, Complex64 => Complex64, Bool8 => Bool,
    half::bf16 => BFloat16, u16 => UInt16, u32 => UInt32, u64 => UInt64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_and_all_others_are_refused() {
        let legal: Vec<i8> = DType::ALL.iter().map(|d| d.code()).collect();
        for code in i8::MIN..=i8::MAX {
            assert_eq!(DType::from_code(code).map(DType::code), legal.contains(&code).then_some(code));
        }
    }
}
