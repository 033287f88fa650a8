//! complex64 tensors by blocks: numbers are read from complex or real tensors, computed with, and written.

use crate::compute::BLOCK;
use crate::elements::Reader;
use crate::strided::loops::Walk;
use pteron_core::{Complex64, DType, Error, Result, TensorMeta, TensorView};

/// A complex number.
pub const fn number(re: f32, im: f32) -> Complex64 {
    Complex64 { re, im }
}

/// Zero.
pub const ZERO: Complex64 = number(0.0, 0.0);

/// Product, each part in float32.
#[inline(always)]
pub fn times(a: Complex64, b: Complex64) -> Complex64 {
    number(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
}

/// Quotient by the scaled division that NumPy and PyTorch use (after R. L. Smith, "Algorithm 116", 1962).
#[inline(always)]
pub fn over(a: Complex64, b: Complex64) -> Complex64 {
    let (re, im) = (b.re.abs(), b.im.abs());
    if re == 0.0 && im == 0.0 {
        return number(a.re / re, a.im / im);
    }
    if re >= im {
        let ratio = b.im / b.re;
        let scale = 1.0 / (b.re + b.im * ratio);
        number((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale)
    } else {
        let ratio = b.re / b.im;
        let scale = 1.0 / (b.re * ratio + b.im);
        number((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale)
    }
}

/// Reads elements of a complex64 tensor, or of a real one as complex numbers.
pub enum ComplexReader<'a> {
    /// complex64.
    Complex(&'a [Complex64], &'a TensorMeta),
    /// Any real dtype.
    Real(Reader<'a, f32>),
}

#[cold]
fn outside(at: isize) -> Error {
    Error::internal("a kernel reached outside a tensor").got(format!("element {at}"))
}

impl<'a> ComplexReader<'a> {
    /// Reads `view`.
    pub fn new(view: TensorView<'a>) -> Result<Self> {
        Ok(match view.dtype() {
            DType::Complex64 => ComplexReader::Complex(view.as_slice()?, view.meta()),
            _ => ComplexReader::Real(Reader::new(view)?),
        })
    }

    /// The tensor's metadata.
    pub fn meta(&self) -> &'a TensorMeta {
        match self {
            ComplexReader::Complex(_, meta) => meta,
            ComplexReader::Real(reader) => reader.meta(),
        }
    }

    /// The element at `offset` in memory order.
    #[inline]
    pub fn get(&self, offset: isize) -> Result<Complex64> {
        match self {
            ComplexReader::Complex(slice, _) => usize::try_from(offset)
                .ok()
                .and_then(|i| slice.get(i))
                .copied()
                .ok_or_else(|| outside(offset)),
            ComplexReader::Real(reader) => {
                let mut one = [0f32];
                reader.read(offset, 1, &mut one)?;
                Ok(number(one[0], 0.0))
            }
        }
    }

    /// Fills `out` with the elements at the positions from `start` on of `walk`.
    pub fn gather(&self, walk: &Walk, start: usize, out: &mut [Complex64]) -> Result<()> {
        match self {
            ComplexReader::Complex(..) => walk.runs(start, out.len(), |done, offset, stride, len| {
                for i in 0..len {
                    let value = self.get(offset + i as isize * stride)?;
                    *out.get_mut(done + i).ok_or_else(|| outside(offset))? = value;
                }
                Ok(())
            }),
            ComplexReader::Real(reader) => {
                let mut real = [0f32; BLOCK];
                let mut done = 0;
                for part in out.chunks_mut(BLOCK) {
                    reader.gather(walk, 0, start + done, &mut real[..part.len()])?;
                    for (slot, re) in part.iter_mut().zip(&real) {
                        *slot = number(*re, 0.0);
                    }
                    done += part.len();
                }
                Ok(())
            }
        }
    }
}
