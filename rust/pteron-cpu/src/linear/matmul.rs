//! The prepared multiplication: checks shapes in `bind`, computes one chunk of the grid in `run`.
//! Unsafe island.

use super::accept::Signature;
use crate::epilogue::Epilogue;
use crate::gemm::{Gemm, Rhs, TileSet, Tiling, scratch_elements};
use crate::packed::f32_nr32_v1::FORMAT;
use pteron_core::{
    Args, BindArgs, Bound, Dims, Error, Grid, PackedBytes, Prepared, Result, Scratch, TensorView,
    WorkerScratch,
};
use std::sync::Arc;

/// B.
pub(super) enum RightHand {
    /// A constant, packed.
    Packed { packed: Arc<PackedBytes>, k: usize, n: usize },
    /// An argument that is read as it lies.
    Computed { k_bound: usize },
}

pub(super) struct MatMul {
    name: String,
    signature: Signature,
    addend: Option<usize>,
    right: RightHand,
    tiles: &'static TileSet,
    epilogue: Epilogue,
}

/// What is added to the product.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Added {
    Nothing,
    /// One value per column.
    Row,
    /// A matrix like C.
    Matrix,
}

/// The bound shapes.
struct Problem {
    m: usize,
    n: usize,
    k: usize,
    /// Strides of B in elements: batch, row, column.
    right: [usize; 3],
    added: Added,
    tiling: Tiling,
}

impl MatMul {
    pub(super) fn new(
        signature: Signature,
        addend: Option<usize>,
        right: RightHand,
        tiles: &'static TileSet,
        epilogue: Epilogue,
    ) -> Self {
        let format = match &right {
            RightHand::Packed { .. } => FORMAT,
            RightHand::Computed { .. } => "f32",
        };
        let clamp = if epilogue.clamp.is_some() { "+clamp" } else { "" };
        let name = format!("gemm.{format}.{}{clamp}", tiles.isa.name());
        MatMul { name, signature, addend, right, tiles, epilogue }
    }

    /// Shapes and strides of this call; `out` is the shape of the result.
    fn problem(&self, args: &Args<'_>) -> Result<(Problem, Dims)> {
        let s = &self.signature;
        let left = args.tensor(s.left)?;
        let mut out = *left.shape();
        let (Some(&k), Some(last)) = (left.shape().last(), out.len().checked_sub(1)) else {
            return Err(self.mismatch("a left-hand side with at least one dimension", &left));
        };
        let (right_k, n, strides) = match &self.right {
            RightHand::Packed { k, n, .. } => (*k, *n, [0; 3]),
            RightHand::Computed { .. } => self.computed_right(args)?,
        };
        if k != right_k {
            return Err(self.mismatch(&format!("{right_k} columns on the left-hand side"), &left));
        }
        let is_batched = s.rank == Some(3);
        let batch = if is_batched { out[0] } else { 1 };
        if is_batched && args.tensor(s.right)?.shape()[0] != batch {
            return Err(self.mismatch(&format!("{} products", args.tensor(s.right)?.shape()[0]), &left));
        }
        let m = out[usize::from(is_batched)..last].iter().product();
        out[last] = n;
        let added = match self.addend {
            Some(i) => self.added(&args.tensor(i)?, &out)?,
            None => Added::Nothing,
        };
        Ok((Problem { m, n, k, right: strides, added, tiling: Tiling::new(batch, m, n, k) }, out))
    }

    /// K, N and strides of a right-hand side that is an argument.
    fn computed_right(&self, args: &Args<'_>) -> Result<(usize, usize, [usize; 3])> {
        let right = args.tensor(self.signature.right)?;
        let (shape, strides) = (right.shape(), right.strides());
        let rank = self.signature.rank.unwrap_or(2);
        if shape.len() != rank {
            return Err(self.mismatch(&format!("a right-hand side of rank {rank}"), &right));
        }
        let (row, column) =
            if self.signature.is_right_transposed { (rank - 1, rank - 2) } else { (rank - 2, rank - 1) };
        let batch_stride = if rank == 3 { strides[0] } else { 0 };
        Ok((shape[row], shape[column], [batch_stride, strides[row], strides[column]]))
    }

    fn added(&self, tensor: &TensorView<'_>, out: &Dims) -> Result<Added> {
        let shape = tensor.shape();
        if shape == out {
            return Ok(Added::Matrix);
        }
        if shape.last() == out.last() && shape.iter().rev().skip(1).all(|d| *d == 1) {
            return Ok(Added::Row);
        }
        Err(self.mismatch(&format!("an added tensor of {out} or one value per column"), tensor))
    }

    #[cold]
    fn mismatch(&self, expected: &str, got: &TensorView<'_>) -> Error {
        Error::kernel("shapes do not fit for a matrix multiplication")
            .operator(self.signature.operator)
            .expected(expected)
            .got(format!("{got:?}"))
    }

    /// The product number `batch` with pointers from `args`.
    fn gemm(&self, args: &Args<'_>, p: &Problem, batch: usize) -> Result<Gemm> {
        let s = &self.signature;
        let left = args.tensor(s.left)?.ptr::<f32>()?;
        let out = args.output(s.out)?.ptr::<f32>()?;
        let b = match &self.right {
            RightHand::Packed { packed, .. } => Rhs::Packed(packed.as_ptr().cast()),
            RightHand::Computed { .. } => {
                let right = args.tensor(s.right)?.ptr::<f32>()?;
                Rhs::Strided(right.wrapping_add(batch * p.right[0]), p.right[1], p.right[2])
            }
        };
        let addend = match self.addend {
            Some(i) => args.tensor(i)?.ptr::<f32>()?,
            None => std::ptr::null(),
        };
        let (bias, residual) = match p.added {
            Added::Nothing => (std::ptr::null(), std::ptr::null()),
            Added::Row => (addend, std::ptr::null()),
            Added::Matrix => (std::ptr::null(), addend.wrapping_add(batch * p.m * p.n)),
        };
        Ok(Gemm {
            n: p.n,
            k: p.k,
            a: left.wrapping_add(batch * p.m * p.k),
            a_stride: p.k,
            b,
            c: out.wrapping_add(batch * p.m * p.n),
            c_stride: p.n,
            bias,
            residual,
            residual_stride: p.n,
            clamp: self.epilogue.clamp,
            post: None,
        })
    }
}

impl Prepared for MatMul {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        let elements = match self.right {
            RightHand::Packed { k, .. } => scratch_elements(k, false, true),
            RightHand::Computed { k_bound } => scratch_elements(k_bound, true, false),
        };
        Scratch { per_worker: elements * size_of::<f32>(), shared: 0 }
    }

    /// A packed weight is read from its pack, never from its own bytes (its shape was known at load).
    fn needs(&self, index: usize) -> bool {
        let is_packed = matches!(self.right, RightHand::Packed { .. });
        let is_ignored = self.signature.addend == Some(index) && self.addend.is_none();
        !(is_packed && index == self.signature.right || is_ignored)
    }

    fn new_bound(&self) -> Bound {
        let tiling = Tiling::new(0, 0, 0, 0);
        Bound::of(Problem { m: 0, n: 0, k: 0, right: [0; 3], added: Added::Nothing, tiling })
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let (problem, out) = self.problem(&args.args())?;
        args.resize(self.signature.out, &out)?;
        let grid = problem.tiling.grid(self.tiles.isa);
        *bound.get_mut::<Problem>()? = problem;
        Ok(grid)
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let problem = bound.get::<Problem>()?;
        let range = problem.tiling.chunk(chunk);
        // Another kernel of the session may have asked for an odd number of bytes.
        let whole = scratch.worker.len() & !3;
        let scratch = bytemuck::try_cast_slice_mut(&mut scratch.worker[..whole])
            .map_err(|e| Error::internal("worker scratch is misaligned").got(e.to_string()))?;
        for batch in range.batches {
            let gemm = self.gemm(args, problem, batch)?;
            // SAFETY: `bind` checked that the shapes fit; tensors point to memory for their shapes and the
            // output overlaps no input (contract of `run`, alias rule `None`); the packed block has
            // the size for its K and N; the tiles come from the profile of this processor.
            unsafe { gemm.run(self.tiles, range.rows.clone(), range.panels.clone(), scratch) };
        }
        Ok(())
    }
}
