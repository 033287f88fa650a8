//! Type promotion as PyTorch defines it: tensors with dimensions decide before 0-d tensors, 0-d
//! tensors before numbers, within each group the larger dtype of the larger category wins.

use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

#[cold]
fn refuse(a: DType, b: DType) -> Error {
    Error::kernel("these dtypes do not promote to a common one").got(format!("{a} and {b}"))
}

/// The dtype two dtypes promote to.
pub fn promote(a: DType, b: DType) -> Result<DType> {
    use DType as D;
    if a == b {
        return Ok(a);
    }
    let odd = |d: DType| d.is_complex() || d == D::Bits16 || (d.is_float() && d.size() == 1);
    if odd(a) || odd(b) {
        return Err(refuse(a, b));
    }
    if a == D::Bool {
        return Ok(b);
    }
    if b == D::Bool {
        return Ok(a);
    }
    match (a.is_float(), b.is_float()) {
        (true, false) => return Ok(a),
        (false, true) => return Ok(b),
        (true, true) => {
            // float16 and bfloat16 meet in float32.
            return Ok(if a == D::Float64 || b == D::Float64 { D::Float64 } else { D::Float32 });
        }
        (false, false) => {}
    }
    let wide = |d: DType| matches!(d, D::UInt16 | D::UInt32 | D::UInt64);
    if wide(a) || wide(b) {
        return Err(refuse(a, b));
    }
    Ok(match (a, b) {
        (D::UInt8, D::Int8) | (D::Int8, D::UInt8) => D::Int16,
        (D::UInt8, other) | (other, D::UInt8) => other,
        (a, b) => {
            if a.size() >= b.size() {
                a
            } else {
                b
            }
        }
    })
}

/// Collects operands and gives the dtype they are computed in.
#[derive(Debug, Default, Clone, Copy)]
pub struct Promotion {
    dimensioned: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
}

fn join(slot: &mut Option<DType>, dtype: DType) -> Result<()> {
    *slot = Some(match *slot {
        Some(old) => promote(old, dtype)?,
        None => dtype,
    });
    Ok(())
}

fn combine(higher: Option<DType>, lower: Option<DType>) -> Result<Option<DType>> {
    Ok(match (higher, lower) {
        (Some(h), Some(l)) if !h.is_float() && (h == DType::Bool || l.is_float()) => Some(promote(h, l)?),
        (Some(h), _) => Some(h),
        (None, l) => l,
    })
}

impl Promotion {
    /// Adds a tensor.
    pub fn tensor(&mut self, dtype: DType, rank: usize) -> Result<()> {
        join(if rank > 0 { &mut self.dimensioned } else { &mut self.zero_dim }, dtype)
    }

    /// Adds argument `i` of a call: a tensor, a number, or an absent optional.
    pub fn argument(&mut self, ctx: &PrepareContext<'_>, i: usize) -> Result<()> {
        match ctx.args.get(i) {
            Some(ArgSpec::Tensor(spec, _)) => self.tensor(spec.dtype, spec.shape.len()),
            Some(ArgSpec::Double(_)) => join(&mut self.number, DType::Float32),
            Some(ArgSpec::Int(_)) => join(&mut self.number, DType::Int64),
            Some(ArgSpec::Bool(_)) => join(&mut self.number, DType::Bool),
            _ => Ok(()),
        }
    }

    /// The common dtype.
    pub fn result(&self) -> Result<DType> {
        combine(combine(self.dimensioned, self.zero_dim)?, self.number)?
            .ok_or_else(|| Error::internal("type promotion without operands"))
    }
}

/// May a result of dtype `from` be written to a tensor of dtype `to`? Not float to integer, and
/// nothing but bool to bool.
pub fn can_cast(from: DType, to: DType) -> bool {
    (!from.is_complex() || to.is_complex())
        && !(from.is_float() && (to.is_integer() || to == DType::Bool))
        && !(from != DType::Bool && to == DType::Bool)
}

/// An error unless [`can_cast`].
pub fn check_cast(from: DType, to: DType) -> Result<()> {
    if can_cast(from, to) {
        return Ok(());
    }
    Err(Error::kernel("the result cannot be stored in the output's dtype")
        .argument("out")
        .expected(format!("a dtype that {from} converts to without loss of kind"))
        .got(to.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        use DType::*;
        for (a, b, want) in [
            (UInt8, Int8, Int16),
            (UInt8, Int64, Int64),
            (Int16, Int32, Int32),
            (Bool, UInt8, UInt8),
            (Int64, Float16, Float16),
            (Float16, BFloat16, Float32),
            (Float32, Float64, Float64),
            (UInt32, Float16, Float16),
        ] {
            assert_eq!(promote(a, b).unwrap(), want);
            assert_eq!(promote(b, a).unwrap(), want);
        }
        assert!(promote(UInt16, Int8).is_err());
        assert!(promote(Complex64, Float32).is_err());
    }

    #[test]
    fn zero_dim_tensors_count_less() {
        let mut p = Promotion::default();
        p.tensor(DType::Float32, 2).unwrap();
        p.tensor(DType::Float64, 0).unwrap();
        assert_eq!(p.result().unwrap(), DType::Float32);
        let mut p = Promotion::default();
        p.tensor(DType::Int32, 1).unwrap();
        p.tensor(DType::Float64, 0).unwrap();
        assert_eq!(p.result().unwrap(), DType::Float64);
        let mut p = Promotion::default();
        p.tensor(DType::UInt8, 1).unwrap();
        p.tensor(DType::Int64, 0).unwrap();
        assert_eq!(p.result().unwrap(), DType::UInt8);
    }

    #[test]
    fn casts() {
        assert!(!can_cast(DType::Float32, DType::Int64));
        assert!(!can_cast(DType::Int8, DType::Bool));
        assert!(can_cast(DType::Int64, DType::Float16));
        assert!(can_cast(DType::Bool, DType::UInt8));
    }
}
