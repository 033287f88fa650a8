//! The operators that multiply matrices: where their arguments are, and which shapes fit together.

use pteron_core::{Args, Dims, Error, Result, TensorView};

/// Where an operator has its arguments, and what they mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signature {
    pub operator: &'static str,
    /// A.
    pub left: usize,
    /// B.
    pub right: usize,
    /// What is added, possibly absent.
    pub addend: Option<usize>,
    /// `beta` and `alpha`.
    pub factors: Option<(usize, usize)>,
    pub out: usize,
    /// B is given as N x K.
    pub is_right_transposed: bool,
    /// Rank of both matrices; `None`: B has two dimensions and A any number of leading ones.
    pub rank: Option<usize>,
}

impl Signature {
    /// What a `beta` of zero keeps out of the sum has to fit nevertheless, as in PyTorch.
    pub fn check_uncounted_addend(&self, args: &Args<'_>, out: &Dims) -> Result<()> {
        let Some(i) = self.addend else { return Ok(()) };
        args.optional_tensor(i)?.map_or(Ok(()), |t| self.addend_strides(&t, out).map(drop))
    }

    /// Strides of what is added along batch, row and column of the result; 0 where it is repeated.
    pub fn addend_strides(&self, tensor: &TensorView<'_>, out: &Dims) -> Result<[usize; 3]> {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        // A bias may span the rows of any number of leading dimensions, other tensors the result's.
        let rank = if self.rank.is_some() { out.len() } else { 1 };
        let mut found = [0; 3];
        let fits = shape.len() <= rank
            && (0..shape.len()).all(|i| {
                let (extent, of) = (shape[shape.len() - 1 - i], out[out.len() - 1 - i]);
                if extent == of && extent != 1 {
                    found[2 - i] = strides[shape.len() - 1 - i];
                }
                extent == of || extent == 1
            });
        match fits {
            true => Ok(found),
            false => Err(self.mismatch(&format!("an added tensor that expands to {out}"), tensor)),
        }
    }

    #[cold]
    pub fn mismatch(&self, expected: &str, got: &TensorView<'_>) -> Error {
        Error::kernel("shapes do not fit for a matrix multiplication")
            .operator(self.operator)
            .expected(expected)
            .got(format!("{got:?}"))
    }
}

pub(super) const ADDMM: Signature = Signature {
    operator: "aten::addmm.out",
    left: 1,
    right: 2,
    addend: Some(0),
    factors: Some((3, 4)),
    out: 5,
    is_right_transposed: false,
    rank: Some(2),
};
pub(super) const MM: Signature = Signature {
    operator: "aten::mm.out",
    left: 0,
    right: 1,
    addend: None,
    factors: None,
    out: 2,
    is_right_transposed: false,
    rank: Some(2),
};
/// [`MM`] of int8 in int32.
pub(super) const INT_MM: Signature = Signature { operator: "aten::_int_mm.out", ..MM };
pub(super) const LINEAR: Signature = Signature {
    operator: "aten::linear.out",
    left: 0,
    right: 1,
    addend: Some(2),
    factors: None,
    out: 3,
    is_right_transposed: true,
    rank: None,
};
/// A product in a plan: as [`LINEAR`], with B as K x N. What is added and the output are where a call has them.
pub(super) const ROWS: Signature =
    Signature { operator: "row product", is_right_transposed: false, ..LINEAR };
pub(super) const BMM: Signature = Signature { operator: "aten::bmm.out", rank: Some(3), ..MM };
pub(super) const BADDBMM: Signature = Signature { operator: "aten::baddbmm.out", rank: Some(3), ..ADDMM };
