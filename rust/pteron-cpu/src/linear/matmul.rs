//! The prepared multiplication: checks shapes in `bind`, packs what pays to be packed in a first phase,
//! computes one chunk of the grid per `run`. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use super::combine::Combine;
use super::problem::{Limits, Problem};
use super::signature::Signature;
use crate::epilogue::Epilogue;
use crate::gemm::{
    FEW_ROWS, FewRows, Gemm, Lhs, PanelSource, Rhs, RowMatrix, TileSet, part, scratch_elements,
};
use crate::packed::f32_nr32_v1::{FORMAT, NR};
use crate::packed::pack_block;
use pteron_core::{Args, BindArgs, Dims, Grid, PackedBytes, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part};
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;
use std::sync::Arc;

/// B.
pub(super) enum RightHand {
    /// A constant, packed.
    Packed { packed: Arc<PackedBytes>, k: usize, n: usize },
    /// An argument that is read as it lies or packed in each call.
    Computed { k_bound: usize },
    /// Constants in a form of their own, made of the arguments `constants`.
    Source { source: Box<dyn PanelSource>, k: usize, n: usize, constants: Range<usize> },
}

pub(super) struct MatMul {
    pub signature: Signature,
    /// Position of what is added.
    pub addend: Option<usize>,
    /// `alpha` and `beta`, when one of them is not 1.
    pub factors: Option<(f32, f32)>,
    pub right: RightHand,
    pub tiles: &'static TileSet,
    pub epilogue: Epilogue,
    pub limits: Limits,
}

/// The name of a kernel in listings.
pub(super) fn name(right: &RightHand, tiles: &TileSet, epilogue: &Epilogue) -> String {
    let format = match right {
        RightHand::Packed { .. } => FORMAT,
        RightHand::Computed { .. } => "f32",
        RightHand::Source { source, .. } => source.format(),
    };
    let residual = if epilogue.residual.is_some() { "+residual" } else { "" };
    let clamp = if epilogue.clamp.is_some() { "+clamp" } else { "" };
    let post = if epilogue.post.is_some() { "+post" } else { "" };
    format!("gemm.{format}.{}{residual}{clamp}{post}", tiles.isa.name())
}

impl MatMul {
    /// Scratch of a worker, in elements.
    fn worker_floats(&self) -> usize {
        let post = self.epilogue.post.as_deref();
        match self.right {
            RightHand::Packed { k, .. } => scratch_elements(k, false, true, post),
            RightHand::Computed { k_bound } => scratch_elements(k_bound, true, false, post),
            RightHand::Source { k, .. } => scratch_elements(k, false, false, post),
        }
    }

    /// Shapes and strides of this call; `out` is the shape of the result.
    fn problem(&self, args: &Args<'_>) -> Result<(Problem, Dims)> {
        let s = &self.signature;
        let left = args.tensor(s.left)?;
        let mut out = *left.shape();
        let (Some(&k), Some(last)) = (left.shape().last(), out.len().checked_sub(1)) else {
            return Err(self.signature.mismatch("a left-hand side with at least one dimension", &left));
        };
        let (right_k, n, strides) = match &self.right {
            RightHand::Packed { k, n, .. } | RightHand::Source { k, n, .. } => (*k, *n, [0; 3]),
            RightHand::Computed { .. } => self.computed_right(args)?,
        };
        if k != right_k {
            return Err(self.signature.mismatch(&format!("{right_k} columns on the left-hand side"), &left));
        }
        let is_batched = s.rank == Some(3);
        let batch = if is_batched { out[0] } else { 1 };
        if is_batched && args.tensor(s.right)?.shape()[0] != batch {
            return Err(self
                .signature
                .mismatch(&format!("{} products", args.tensor(s.right)?.shape()[0]), &left));
        }
        let m = out[usize::from(is_batched)..last].iter().product();
        out[last] = n;
        if let Some(residual) = self.epilogue.residual {
            let residual = args.tensor(residual)?;
            if *residual.shape() != out {
                return Err(self.signature.mismatch(&format!("a residual of {out}"), &residual));
            }
        }
        let mut problem = Problem::new(self.tiles, batch, [m, n, k], strides, &self.limits);
        if let Some(i) = self.addend {
            let strides = s.addend_strides(&args.tensor(i)?, &out)?;
            problem.addend = strides;
            let is_matrix = strides[1] != 0;
            problem.is_combined = strides[2] != 1 && n > 1 || is_matrix && self.epilogue.residual.is_some();
        } else {
            s.check_uncounted_addend(args, &out)?;
        }
        problem.is_combined |= self.factors.is_some() || self.is_few(&problem);
        Ok((problem, out))
    }

    /// Is the product one of few rows, read straight from panels of their own form?
    fn is_few(&self, p: &Problem) -> bool {
        matches!(self.right, RightHand::Source { .. }) && p.m <= FEW_ROWS
    }

    /// K, N and strides of a right-hand side that is an argument.
    fn computed_right(&self, args: &Args<'_>) -> Result<(usize, usize, [usize; 3])> {
        let right = args.tensor(self.signature.right)?;
        let (shape, strides) = (right.shape(), right.strides());
        let rank = self.signature.rank.unwrap_or(2);
        if shape.len() != rank {
            return Err(self.signature.mismatch(&format!("a right-hand side of rank {rank}"), &right));
        }
        let (row, column) =
            if self.signature.is_right_transposed { (rank - 1, rank - 2) } else { (rank - 2, rank - 1) };
        let batch_stride = if rank == 3 { strides[0] } else { 0 };
        Ok((shape[row], shape[column], [batch_stride, strides[row], strides[column]]))
    }

    /// The product number `batch` with pointers from `args`.
    fn gemm(&self, args: &Args<'_>, p: &Problem, batch: usize, shared: *mut f32) -> Result<Gemm<'_>> {
        let s = &self.signature;
        let left = args.tensor(s.left)?.ptr::<f32>()?;
        let out = args.output(s.out)?.ptr::<f32>()?;
        let b = match &self.right {
            RightHand::Packed { packed, .. } => Rhs::Packed(packed.as_ptr().cast()),
            RightHand::Source { source, .. } => Rhs::Source(&**source),
            RightHand::Computed { .. } if p.packs_b => {
                Rhs::Packed(shared.wrapping_add(p.packed_b_at(batch)).cast_const())
            }
            RightHand::Computed { .. } => {
                let right = args.tensor(s.right)?.ptr::<f32>()?;
                Rhs::Strided(right.wrapping_add(batch * p.right[0]), p.right[1], p.right[2])
            }
        };
        let a = match p.packs_a {
            true => Lhs::Packed(shared.cast_const()),
            false => Lhs::Rows(left.wrapping_add(batch * p.m * p.k), p.k),
        };
        let mut gemm = Gemm {
            m: p.m,
            n: p.n,
            k: p.k,
            a,
            b,
            c: out.wrapping_add(batch * p.m * p.n),
            c_stride: p.n,
            bias: std::ptr::null(),
            residual: std::ptr::null(),
            residual_stride: p.n,
            clamp: None,
            post: None,
        };
        if p.is_combined {
            return Ok(gemm);
        }
        if let Some(i) = self.epilogue.residual {
            gemm.residual = args.tensor(i)?.ptr::<f32>()?.wrapping_add(batch * p.m * p.n);
        }
        if let Some(i) = self.addend {
            let addend = args.tensor(i)?.ptr::<f32>()?.wrapping_add(batch * p.addend[0]);
            match p.addend[1] {
                0 => gemm.bias = addend,
                stride => (gemm.residual, gemm.residual_stride) = (addend, stride),
            }
        }
        gemm.clamp = self.epilogue.clamp;
        gemm.post = self.epilogue.post.as_deref();
        Ok(gemm)
    }

    /// What remains to be done with a product that the tiles leave plain.
    fn combine(&self, args: &Args<'_>, p: &Problem, batch: usize) -> Result<Combine<'_>> {
        let (alpha, beta) = self.factors.unwrap_or((1.0, 1.0));
        let pointer = |i: Option<usize>, offset: usize| {
            i.map_or(Ok(std::ptr::null()), |i| Ok(args.tensor(i)?.ptr::<f32>()?.wrapping_add(offset)))
        };
        Ok(Combine {
            c: args.output(self.signature.out)?.ptr::<f32>()?.wrapping_add(batch * p.m * p.n),
            stride: p.n,
            alpha,
            beta,
            addend: pointer(self.addend, batch * p.addend[0])?,
            addend_strides: [p.addend[1], p.addend[2]],
            residual: pointer(self.epilogue.residual, batch * p.m * p.n)?,
            clamp: self.epilogue.clamp,
            post: self.epilogue.post.as_deref(),
        })
    }

    /// A chunk of the packing phase: first those of A, then those of B.
    ///
    /// # Safety
    /// `args` and `p` are those of the last bind; `shared` has the size that [`GridKernel::scratch`] states.
    unsafe fn pack(&self, args: &Args<'_>, p: &Problem, chunk: usize, shared: *mut f32) -> Result<()> {
        if chunk < p.a_chunks {
            let row_tiles = self.tiles.row_tiles(p.m);
            let a = args.tensor(self.signature.left)?.ptr::<f32>()?;
            let matrix = RowMatrix { first: a, stride: p.k, m: p.m };
            let level = SimdLevel::at_most(self.tiles.isa);
            let tiles = part(row_tiles, p.a_chunks, chunk);
            // SAFETY: A is dense (checked in `prepare`) and has M rows of K; its packed form comes first
            // in the shared scratch, which has room for it (checked in `bind`).
            unsafe { matrix.pack(level, p.k, row_tiles, tiles, shared) };
            return Ok(());
        }
        let b = args.tensor(self.signature.right)?.ptr::<f32>()?;
        for panel in part(p.batch * p.panels(), p.b_chunks, chunk - p.a_chunks) {
            let (batch, in_batch) = (panel / p.panels(), panel % p.panels());
            let column = in_batch * NR;
            let from = b.wrapping_add(batch * p.right[0] + column * p.right[2]);
            let to = shared.wrapping_add(p.packed_b_at(batch) + column * p.k);
            // SAFETY: the panel's columns exist in B; its packed form lies behind A's in the shared
            // scratch, which has room for it (checked in `bind`).
            unsafe {
                let columns = NR.min(p.n - column);
                pack_block(self.tiles.isa, from, (p.right[1], p.right[2]), p.k, columns, to);
            }
        }
        Ok(())
    }
}

impl GridKernel for MatMul {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        let shared = self.limits.packed_a + self.limits.packed_b;
        Scratch { per_worker: self.worker_floats() * size_of::<f32>(), shared: shared * size_of::<f32>() }
    }

    /// A packed weight is read from its pack, never from its own bytes (its shape was known at load).
    fn needs(&self, index: usize) -> bool {
        let is_packed = match &self.right {
            RightHand::Packed { .. } => index == self.signature.right,
            RightHand::Source { constants, .. } => constants.contains(&index),
            RightHand::Computed { .. } => false,
        };
        let is_ignored = self.signature.addend == Some(index) && self.addend.is_none();
        !(is_packed || is_ignored)
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        let (found, out) = self.problem(&args.args())?;
        args.resize(self.signature.out, &out)?;
        *problem = found;
        Ok(problem.grid(self.tiles.isa))
    }

    fn run(&self, problem: &Problem, mut part: Part<'_>) -> Result<()> {
        let (args, shared) = (part.args, part.scratch.shared.cast::<f32>());
        if problem.is_packing() && part.phase == 0 {
            // SAFETY: `args` and `problem` are those of the last bind, as the frame promises; its scratch has room for
            // all packed rows.
            return unsafe { self.pack(args, problem, part.chunk, shared) };
        }
        let range = problem.tiling.chunk(part.chunk);
        let scratch = part.take_scratch(self.worker_floats())?;
        for batch in range.batches {
            let gemm = self.gemm(args, problem, batch, shared)?;
            // SAFETY: `bind` checked that the shapes fit; tensors point to memory for their shapes and the
            // output overlaps no input (alias rule `None`); packed blocks have
            // the size for their K and N; the tiles come from the profile of this processor.
            unsafe {
                match (&self.right, gemm.a) {
                    (RightHand::Source { source, .. }, Lhs::Rows(a, a_stride)) if self.is_few(problem) => {
                        let (m, c, c_stride) = (problem.m, gemm.c, gemm.c_stride);
                        let rows = FewRows { m, a, a_stride, c, c_stride };
                        let level = SimdLevel::at_most(self.tiles.isa);
                        source.multiply_few(level, &rows, range.panels.clone());
                    }
                    _ => gemm.run(self.tiles, range.row_tiles.clone(), range.panels.clone(), scratch),
                }
            }
            if problem.is_combined {
                let (rows, columns) = problem.elements(self.tiles, &range.row_tiles, &range.panels);
                let combine = self.combine(args, problem, batch)?;
                // SAFETY: the block was just written; what is added spans it (checked in `bind`).
                unsafe { combine.run(SimdLevel::at_most(self.tiles.isa), rows, columns, scratch) };
            }
        }
        Ok(())
    }
}
