//! Factorisations of dense matrices and systems with them, by two methods: loop by loop in float64 ([`plain`]), and block
//! by block with vectors. Operators are written once for either.
//!
//! Blocks halve a matrix until a part is small, so that nearly all work is in products of blocks ([`update`]). Source:
//! S. Toledo, Locality of Reference in LU Decomposition with Partial Pivoting, 1997.

mod cholesky;
mod lu;
mod number;
pub(crate) mod plain;
mod reflections;
mod substitution;
#[cfg(test)]
mod tests;
pub(crate) mod update;

use crate::ops::matrix_batch::{ItemKernel, RunAtLevel, bytes_for, largest};
use crate::routine::{BindItemsFn, Preparation};
use crate::vector_math::SimdLevel;
pub(crate) use number::Dense;
use plain::Triangle;
use pteron_core::{Args, DType, Error, PrepareContext, Result};
use std::marker::PhantomData;
use substitution::System;
use update::{How, Place, Update};

/// Largest order of float32 matrices that are computed in float64: those cost little, and errors show in few numbers.
const SMALL: usize = 32;

/// How matrices are factored and solved with. Matrices are row-major; memory is of [`Method::room`] numbers.
pub(crate) trait Method: Copy {
    type Number: Dense;

    /// Numbers of memory for matrices of which no extent is above `side`.
    fn room(side: usize) -> usize;

    /// See [`plain::factor`].
    fn factor(
        self,
        a: &mut [Self::Number],
        extents: [usize; 2],
        pivots: &mut [f64],
        room: &mut [Self::Number],
    ) -> i64;

    /// See [`plain::substitute`].
    fn substitute(
        self,
        matrix: &[Self::Number],
        n: usize,
        b: (&mut [Self::Number], usize),
        triangle: Triangle,
        room: &mut [Self::Number],
    );

    /// See [`plain::cholesky`]; `copy` is as large as `a`.
    fn cholesky(
        self,
        a: &mut [Self::Number],
        n: usize,
        copy: &mut [Self::Number],
        room: &mut [Self::Number],
    ) -> usize;

    /// See [`plain::reflect`]; `copy` is as large as `a`.
    fn reflect(
        self,
        a: &mut [Self::Number],
        extents: [usize; 2],
        taus: &mut [Self::Number],
        copy: &mut [Self::Number],
        room: &mut [Self::Number],
    );

    /// See [`plain::reflections`].
    fn reflections(
        self,
        a: &[Self::Number],
        extents: [usize; 2],
        taus: &[Self::Number],
        q: (&mut [Self::Number], usize),
        room: &mut [Self::Number],
    );

    /// Solves A·X = B, or Aᵀ·X = B, with the factors of A; `b`, rows of `width`, becomes X.
    fn solve(
        self,
        lu: &[Self::Number],
        pivots: &[f64],
        (b, width): (&mut [Self::Number], usize),
        is_transposed: bool,
        room: &mut [Self::Number],
    ) {
        let n = pivots.len();
        let lower = Triangle { is_upper: false, is_unit: true, is_transposed };
        let upper = Triangle { is_upper: true, is_unit: false, is_transposed };
        if is_transposed {
            self.substitute(lu, n, (b, width), upper, room);
            self.substitute(lu, n, (b, width), lower, room);
            plain::exchange(pivots, b, width, true);
        } else {
            plain::exchange(pivots, b, width, false);
            self.substitute(lu, n, (b, width), lower, room);
            self.substitute(lu, n, (b, width), upper, room);
        }
    }

    /// Solves A·X = B with the Cholesky factor of A.
    fn solve_definite(
        self,
        factor: &[Self::Number],
        n: usize,
        (b, width): (&mut [Self::Number], usize),
        is_upper: bool,
        room: &mut [Self::Number],
    ) {
        for is_transposed in [is_upper, !is_upper] {
            let triangle = Triangle { is_upper, is_unit: false, is_transposed };
            self.substitute(factor, n, (b, width), triangle, room);
        }
    }

    /// The inverse of the matrix that has these factors.
    fn invert(self, lu: &[Self::Number], pivots: &[f64], x: &mut [Self::Number], room: &mut [Self::Number]) {
        identity(x, pivots.len());
        self.solve(lu, pivots, (x, pivots.len()), false, room);
    }

    /// The inverse of the matrix that has this Cholesky factor; `copy` is as large.
    fn invert_definite(
        self,
        factor: &[Self::Number],
        n: usize,
        is_upper: bool,
        [x, _copy]: [&mut [Self::Number]; 2],
        room: &mut [Self::Number],
    ) {
        identity(x, n);
        self.solve_definite(factor, n, (x, n), is_upper, room);
    }
}

fn identity<T: Dense>(x: &mut [T], n: usize) {
    x.fill(T::ZERO);
    x.iter_mut().step_by(n + 1).for_each(|v| *v = T::ONE);
}

/// Loop by loop.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Method for Plain {
    type Number = f64;

    fn room(_side: usize) -> usize {
        0
    }

    fn factor(self, a: &mut [f64], extents: [usize; 2], pivots: &mut [f64], _room: &mut [f64]) -> i64 {
        plain::factor(a, extents, pivots)
    }

    fn substitute(
        self,
        matrix: &[f64],
        n: usize,
        (b, width): (&mut [f64], usize),
        triangle: Triangle,
        _room: &mut [f64],
    ) {
        plain::substitute(matrix, n, b, width, triangle);
    }

    fn cholesky(self, a: &mut [f64], n: usize, _copy: &mut [f64], _room: &mut [f64]) -> usize {
        plain::cholesky(a, n)
    }

    fn reflect(
        self,
        a: &mut [f64],
        extents: [usize; 2],
        taus: &mut [f64],
        copy: &mut [f64],
        _room: &mut [f64],
    ) {
        plain::reflect(a, extents, taus, copy);
    }

    fn reflections(
        self,
        a: &[f64],
        extents: [usize; 2],
        taus: &[f64],
        (q, width): (&mut [f64], usize),
        _room: &mut [f64],
    ) {
        plain::reflections(a, extents, taus, q, width);
    }
}

/// Block by block.
pub(crate) struct Blocked<T> {
    level: SimdLevel,
    number: PhantomData<T>,
}

impl<T> Clone for Blocked<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Blocked<T> {}

impl<T: Dense> Blocked<T> {
    pub(crate) fn new(level: SimdLevel) -> Self {
        Blocked { level, number: PhantomData }
    }

    /// Sets `out` to the product of two square matrices, or adds that to it.
    pub(crate) fn multiply(self, [a, b]: [&[T]; 2], n: usize, how: How, out: &mut [T], room: &mut [T]) {
        let whole = Place::rows(0, n);
        self.level.dispatch(Update {
            target: (out, whole),
            left: (Some(a), whole),
            right: (Some(b), whole),
            extents: [n, n, n],
            how,
            room,
        });
    }
}

impl<T: Dense> Method for Blocked<T> {
    type Number = T;

    fn room(side: usize) -> usize {
        reflections::room(side).max(update::room(side).saturating_add(side.saturating_mul(lu::LEAF)))
    }

    fn factor(self, a: &mut [T], extents: [usize; 2], pivots: &mut [f64], room: &mut [T]) -> i64 {
        lu::factor(self.level, a, extents, pivots, room)
    }

    fn substitute(
        self,
        matrix: &[T],
        n: usize,
        (b, width): (&mut [T], usize),
        triangle: Triangle,
        room: &mut [T],
    ) {
        let system = System { level: self.level, matrix: Some(matrix), corner: 0, stride: n, triangle };
        system.solve(b, Place::rows(0, width), n, width, room);
    }

    fn cholesky(self, a: &mut [T], n: usize, copy: &mut [T], room: &mut [T]) -> usize {
        cholesky::factor(self.level, a, n, copy, room)
    }

    fn reflect(self, a: &mut [T], extents: [usize; 2], taus: &mut [T], _copy: &mut [T], room: &mut [T]) {
        reflections::factor(self.level, a, extents, taus, room);
    }

    fn reflections(self, a: &[T], extents: [usize; 2], taus: &[T], q: (&mut [T], usize), room: &mut [T]) {
        reflections::product(self.level, a, extents, taus, q, room);
    }

    fn invert(self, lu: &[T], pivots: &[f64], x: &mut [T], room: &mut [T]) {
        let n = pivots.len();
        // The inverse of P·A = L·U is U⁻¹·L⁻¹·P: half of L⁻¹ is zeros.
        let lower = Triangle { is_upper: false, is_unit: true, is_transposed: false };
        let upper = Triangle { is_upper: true, is_unit: false, is_transposed: false };
        identity(x, n);
        let system = System { level: self.level, matrix: Some(lu), corner: 0, stride: n, triangle: lower };
        system.invert(x, n, room);
        self.substitute(lu, n, (x, n), upper, room);
        for row in x.chunks_exact_mut(n.max(1)) {
            pivots.iter().enumerate().rev().for_each(|(k, other)| row.swap(k, *other as usize));
        }
    }

    fn invert_definite(self, factor: &[T], n: usize, is_upper: bool, rooms: [&mut [T]; 2], room: &mut [T]) {
        let [x, inverse] = rooms;
        let triangle = Triangle { is_upper, is_unit: false, is_transposed: is_upper };
        identity(inverse, n);
        let system = System { level: self.level, matrix: Some(factor), corner: 0, stride: n, triangle };
        system.invert(inverse, n, room);
        cholesky::square(self.level, inverse, n, x, room);
    }
}

/// The kernel of blocks, with the `bytes` that the plain kernel needs and memory for the matrices of argument `i`.
pub(crate) fn of_blocks(
    ctx: &PrepareContext<'_>,
    i: usize,
    bytes: Result<usize>,
    bind: BindItemsFn,
    run: RunAtLevel,
) -> Preparation {
    let [rows, columns] = largest(ctx, i);
    let room = bytes_for(&[&[Blocked::<f64>::room(rows.max(columns))]])?;
    let bytes = bytes?.checked_add(room).filter(|n| isize::try_from(*n).is_ok());
    let bytes = bytes.ok_or_else(|| Error::kernel("the matrices are too large"))?;
    ItemKernel::prepare("blocks", ctx, bytes, bind, run)
}

/// The number of items and the nanoseconds of one, of which blocks take about a tenth.
pub(crate) fn tenth((items, nanoseconds): (usize, usize)) -> (usize, usize) {
    (items, nanoseconds / 10)
}

/// Are the matrices of an argument to be computed in float32?
pub(crate) fn is_single(args: &Args<'_>, i: usize) -> Result<bool> {
    let tensor = args.tensor(i)?;
    let side = tensor.shape().iter().rev().take(2).max().copied().unwrap_or(0);
    Ok(tensor.dtype() != DType::Float64 && side > SMALL)
}

/// A function of an item that is generic over the method, run block by block for the matrices of argument `$i`.
macro_rules! blocked {
    ($run:ident, $i:expr) => {
        |level, args, item, memory| match $crate::ops::dense::is_single(args, $i)? {
            true => $run($crate::ops::dense::Blocked::<f32>::new(level), args, item, memory),
            false => $run($crate::ops::dense::Blocked::<f64>::new(level), args, item, memory),
        }
    };
}
pub(crate) use blocked;
