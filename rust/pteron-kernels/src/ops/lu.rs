//! LU factorisation with row exchanges, and what follows from it: inverse, solution, determinant.
//!
//! P·A = L·U, with the largest element of a column as its pivot. Shape: batches of matrices; those of two
//! operands broadcast. Dtype: float32 and float64, computed in float64 or, block by block, in their own
//! dtype. Edge cases: a zero pivot is reported in `info` (its place from 1) and divides as IEEE does, unless
//! `check_errors` makes it an error; empty matrices have determinant 1. Source: Golub & Van Loan, Matrix
//! Computations, 3.4.

use crate::compute::Compute;
use crate::grid_kernel::take_scratch;
use crate::operator::{Operator, kernel};
use crate::ops::dense::plain::exchange;
use crate::ops::dense::{Dense, Method, Plain, blocked, of_blocks, tenth};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, check_exactly, check_items, common_batch, items, joined, largest, load, rooms,
    split, split_square, store, transpose,
};
use crate::routine::{BindItemsFn, Preparation, Routine};
use crate::shape::check_index;
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result};
use std::cmp::Ordering;

fn check_info(is_checked: bool, info: i64) -> Result<()> {
    if !is_checked || info == 0 {
        return Ok(());
    }
    Err(Error::kernel("the matrix is singular").argument("A").got(format!("a zero pivot in place {info}")))
}

fn check_pivoting(args: &Args<'_>, i: usize) -> Result<()> {
    if args.bool(i)? {
        return Ok(());
    }
    Err(Error::kernel("a factorisation without row exchanges is not offered")
        .argument("pivot")
        .expected("true"))
}

/// Pivots count from 1 in tensors, from 0 here.
fn store_pivots(args: &Args<'_>, i: usize, batch: &[usize], n: usize, pivots: &mut [f64]) -> Result<()> {
    pivots.iter_mut().for_each(|p| *p += 1.0);
    store::<f64>(args, (i, 1), batch, n, pivots)?;
    pivots.iter_mut().for_each(|p| *p -= 1.0);
    Ok(())
}

fn load_pivots(
    args: &Args<'_>,
    i: usize,
    batch: &[usize],
    n: usize,
    rows: usize,
    out: &mut [f64],
) -> Result<()> {
    load::<f64>(args, (i, 1), batch, n, out)?;
    for (k, pivot) in out.iter_mut().enumerate() {
        let row = check_index(*pivot as i64 - 1, rows).map_err(|e| e.argument("pivots"))?;
        if row < k {
            return Err(Error::kernel("a row is exchanged with one before it").argument("pivots"));
        }
        *pivot = row as f64;
    }
    Ok(())
}

fn bind_factor(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    check_pivoting(&view, 1)?;
    let (batch, [rows, columns]) = split(&shape, "A")?;
    args.resize(3, &shape)?;
    args.resize(4, &joined(&batch, &[rows.min(columns)])?)?;
    args.resize(5, &batch)?;
    items(&batch, &[rows, columns, rows.min(columns)])
}

fn run_factor<M: Method>(method: M, args: &Args<'_>, n: usize, mut memory: &mut [u8]) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "A")?;
    let pivots = take_scratch(&mut memory, extents[0].min(extents[1]))?;
    let [room, a] = rooms(memory, [M::room(extents[0].max(extents[1])), extents[0] * extents[1]])?;
    load::<M::Number>(args, (0, 2), &batch, n, a)?;
    let info = method.factor(a, extents, pivots, room);
    check_info(args.bool(2)?, info)?;
    store(args, (3, 2), &batch, n, a)?;
    store_pivots(args, 4, &batch, n, pivots)?;
    store(args, (5, 0), &batch, n, &[info as f64])
}

fn factor_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 3])?;
    check_exactly(ctx, &[4, 5], DType::Int32)?;
    let [rows, columns] = largest(ctx, 0);
    bytes_for(&[&[rows, columns], &[rows.min(columns)]])
}

fn prepare_factor(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(factor_bytes(ctx)?, bind_factor, |args, n, s| run_factor(Plain, args, n, s.worker))
}

fn blocks_factor(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, factor_bytes(ctx), |args| bind_factor(args).map(tenth), blocked!(run_factor, 0))
}

fn bind_inverse(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = *args.args().tensor(0)?.shape();
    let (batch, n) = split_square(&shape, "A")?;
    args.resize(2, &shape)?;
    args.resize(3, &batch)?;
    items(&batch, &[n, n, n])
}

fn run_inverse<M: Method>(method: M, args: &Args<'_>, item: usize, mut memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "A")?;
    let pivots = take_scratch(&mut memory, n)?;
    let [room, a, x] = rooms(memory, [M::room(n), n * n, n * n])?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    let info = method.factor(a, [n, n], pivots, room);
    check_info(args.bool(1)?, info)?;
    method.invert(a, pivots, x, room);
    store(args, (2, 2), &batch, item, x)?;
    store(args, (3, 0), &batch, item, &[info as f64])
}

fn inverse_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 2])?;
    check_exactly(ctx, &[3], DType::Int32)?;
    let [n, _] = largest(ctx, 0);
    bytes_for(&[&[2, n, n], &[n]])
}

fn prepare_inverse(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(inverse_bytes(ctx)?, bind_inverse, |args, n, s| run_inverse(Plain, args, n, s.worker))
}

fn blocks_inverse(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, inverse_bytes(ctx), |args| bind_inverse(args).map(tenth), blocked!(run_inverse, 0))
}

/// The right side of a system: its batch, extents, and whether it is a vector per matrix.
struct RightSide {
    batch: Dims,
    extents: [usize; 2],
    is_vector: bool,
}

fn right_side(a: &Dims, b: &Dims, is_left: bool) -> Result<RightSide> {
    let (a_batch, n) = split_square(a, "A")?;
    let is_vector = b.len() == 1 || (b.len() + 1 == a.len() && b[..] == a[..b.len()]);
    let (b_batch, extents) =
        if is_vector { (Dims::new(&b[..b.len() - 1])?, [b[b.len() - 1], 1]) } else { split(b, "B")? };
    if is_vector && !is_left {
        return Err(Error::kernel("a vector can only be solved for from the left").argument("left"));
    }
    if extents[usize::from(!is_left)] != n {
        return Err(Error::kernel("the right side does not fit the matrix")
            .argument("B")
            .got(format!("{b} for matrices {a}")));
    }
    Ok(RightSide { batch: common_batch(&a_batch, &b_batch)?, extents, is_vector })
}

fn bind_solve(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let a = *view.tensor(0)?.shape();
    let side = right_side(&a, view.tensor(1)?.shape(), view.bool(2)?)?;
    let (batch, n) = split_square(&a, "A")?;
    let item = if side.is_vector { &side.extents[..1] } else { &side.extents[..] };
    args.resize(4, &joined(&side.batch, item)?)?;
    args.resize(5, &a)?;
    args.resize(6, &joined(&batch, &[n])?)?;
    args.resize(7, &batch)
}

/// One chunk: where B has more matrices than A, items share the factors that are written.
fn run_solve<M: Method>(method: M, args: &Args<'_>, _: usize, mut memory: &mut [u8]) -> Result<()> {
    let (shape, is_left) = (*args.tensor(0)?.shape(), args.bool(2)?);
    let side = right_side(&shape, args.tensor(1)?.shape(), is_left)?;
    let (own, n) = split_square(&shape, "A")?;
    let width = side.extents[usize::from(is_left)];
    let pivots = take_scratch(&mut memory, n)?;
    let [room, a, b, turned] = rooms(memory, [M::room(n), n * n, n * width, n * width])?;
    let count = own.numel()?;
    for item in 0..count {
        load::<M::Number>(args, (0, 2), &own, item, a)?;
        let info = method.factor(a, [n, n], pivots, room);
        check_info(args.bool(3)?, info)?;
        store(args, (5, 2), &own, item, a)?;
        store_pivots(args, 6, &own, item, pivots)?;
        store(args, (7, 0), &own, item, &[info as f64])?;
    }
    let dims = if side.is_vector { 1 } else { 2 };
    for item in 0..side.batch.numel()? {
        // The factors of a single matrix are still there.
        if count > 1 {
            load(args, (0, 2), &side.batch, item, a)?;
            method.factor(a, [n, n], pivots, room);
        }
        load(args, (1, dims), &side.batch, item, b)?;
        if is_left {
            method.solve(a, pivots, (&mut *b, width), false, room);
        } else {
            transpose(b, side.extents, turned);
            method.solve(a, pivots, (&mut *turned, width), true, room);
            transpose(turned, [n, width], b);
        }
        store(args, (4, dims), &side.batch, item, b)?;
    }
    Ok(())
}

fn solve_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 4, 5])?;
    check_exactly(ctx, &[6, 7], DType::Int32)?;
    let ([n, _], [rows, columns]) = (largest(ctx, 0), largest(ctx, 1));
    bytes_for(&[&[n, n], &[2, n, rows.max(columns)], &[n]])
}

fn prepare_solve(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::prepare_with_scratch(solve_bytes(ctx)?, bind_solve, |args, s| {
        run_solve(Plain, args, 0, s.worker)
    })
}

fn blocks_solve(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, solve_bytes(ctx), |args| bind_solve(args).map(|()| (1, 0)), blocked!(run_solve, 0))
}

/// Determinants: `NUMBERS` results of one number per matrix, then the factors and pivots.
fn bind_determinant<const NUMBERS: usize>(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = *args.args().tensor(0)?.shape();
    let (batch, n) = split_square(&shape, "A")?;
    (1..=NUMBERS).try_for_each(|i| args.resize(i, &batch))?;
    args.resize(NUMBERS + 1, &shape)?;
    args.resize(NUMBERS + 2, &joined(&batch, &[n])?)?;
    items(&batch, &[n, n, n])
}

/// Factors the matrix, or its transposed if it is contiguous (as PyTorch does: the determinant is the same),
/// and gives the diagonal of U and the sign of the exchanges.
fn run_determinant<M: Method, const NUMBERS: usize>(
    method: M,
    args: &Args<'_>,
    item: usize,
    mut memory: &mut [u8],
    numbers: fn(&mut dyn Iterator<Item = f64>, f64) -> [f64; 2],
) -> Result<()> {
    let x = args.tensor(0)?;
    let (batch, n) = split_square(x.shape(), "A")?;
    let pivots = take_scratch(&mut memory, n)?;
    let [room, a, turned] = rooms(memory, [M::room(n), n * n, n * n])?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    if x.is_contiguous() {
        transpose(a, [n, n], turned);
        a.copy_from_slice(turned);
    }
    method.factor(a, [n, n], pivots, room);
    let exchanges = pivots.iter().enumerate().filter(|(k, p)| *k != **p as usize).count();
    let sign = if exchanges % 2 == 0 { 1.0 } else { -1.0 };
    let results = numbers(&mut a.iter().step_by(n + 1).map(|v| v.to_f64()), sign);
    for (i, value) in results.iter().enumerate().take(NUMBERS) {
        store(args, (1 + i, 0), &batch, item, &[*value])?;
    }
    store(args, (NUMBERS + 1, 2), &batch, item, a)?;
    store_pivots(args, NUMBERS + 2, &batch, item, pivots)
}

fn determinant(diagonal: &mut dyn Iterator<Item = f64>, sign: f64) -> [f64; 2] {
    [diagonal.product::<f64>() * sign, 0.0]
}

fn sign_and_logarithm(diagonal: &mut dyn Iterator<Item = f64>, sign: f64) -> [f64; 2] {
    diagonal.fold([sign, 0.0], |[sign, log], d| {
        let own = if d > 0.0 {
            1.0
        } else if d < 0.0 {
            -1.0
        } else {
            d.abs()
        };
        [sign * own, log + d.abs().ln()]
    })
}

fn run_det<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    run_determinant::<M, 1>(method, args, item, memory, determinant)
}

fn run_slogdet<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    run_determinant::<M, 2>(method, args, item, memory, sign_and_logarithm)
}

fn determinant_bytes<const NUMBERS: usize>(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, NUMBERS, NUMBERS + 1])?;
    check_exactly(ctx, &[NUMBERS + 2], DType::Int32)?;
    let [n, _] = largest(ctx, 0);
    bytes_for(&[&[2, n, n], &[n]])
}

fn prepare_det(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(determinant_bytes::<1>(ctx)?, bind_determinant::<1>, |args, n, s| {
        run_det(Plain, args, n, s.worker)
    })
}

fn prepare_slogdet(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(determinant_bytes::<2>(ctx)?, bind_determinant::<2>, |args, n, s| {
        run_slogdet(Plain, args, n, s.worker)
    })
}

fn blocks_det(ctx: &PrepareContext<'_>) -> Preparation {
    let bind: BindItemsFn = |args| bind_determinant::<1>(args).map(tenth);
    of_blocks(ctx, 0, determinant_bytes::<1>(ctx), bind, blocked!(run_det, 0))
}

fn blocks_slogdet(ctx: &PrepareContext<'_>) -> Preparation {
    let bind: BindItemsFn = |args| bind_determinant::<2>(args).map(tenth);
    of_blocks(ctx, 0, determinant_bytes::<2>(ctx), bind, blocked!(run_slogdet, 0))
}

fn bind_lu_solve(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, n) = split_square(view.tensor(0)?.shape(), "LU")?;
    check_items(&view, 1, "pivots", &batch, &[n])?;
    let (b_batch, extents) = split(view.tensor(2)?.shape(), "B")?;
    if extents[usize::from(!view.bool(3)?)] != n {
        return Err(Error::kernel("the right side does not fit the factors")
            .argument("B")
            .got(format!("{extents:?}")));
    }
    let batch = common_batch(&batch, &b_batch)?;
    args.resize(5, &joined(&batch, &extents)?)?;
    items(&batch, &[n, extents[0], extents[1]])
}

fn run_lu_solve<M: Method>(method: M, args: &Args<'_>, item: usize, mut memory: &mut [u8]) -> Result<()> {
    let (is_left, is_adjoint) = (args.bool(3)?, args.bool(4)?);
    let (_, n) = split_square(args.tensor(0)?.shape(), "LU")?;
    let (batch, extents) = split(args.tensor(5)?.shape(), "out")?;
    let width = extents[usize::from(is_left)];
    let pivots = take_scratch(&mut memory, n)?;
    let [room, lu, b, turned] = rooms(memory, [M::room(n), n * n, n * width, n * width])?;
    load::<M::Number>(args, (0, 2), &batch, item, lu)?;
    load_pivots(args, 1, &batch, item, n, pivots)?;
    load(args, (2, 2), &batch, item, b)?;
    if is_left {
        method.solve(lu, pivots, (&mut *b, width), is_adjoint, room);
    } else {
        transpose(b, extents, turned);
        method.solve(lu, pivots, (&mut *turned, width), !is_adjoint, room);
        transpose(turned, [n, width], b);
    }
    store(args, (5, 2), &batch, item, b)
}

fn lu_solve_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 2, 5])?;
    check_exactly(ctx, &[1], DType::Int32)?;
    let ([n, _], [rows, columns]) = (largest(ctx, 0), largest(ctx, 2));
    bytes_for(&[&[n, n], &[2, n, rows.max(columns)], &[n]])
}

fn prepare_lu_solve(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(lu_solve_bytes(ctx)?, bind_lu_solve, |args, n, s| {
        run_lu_solve(Plain, args, n, s.worker)
    })
}

fn blocks_lu_solve(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, lu_solve_bytes(ctx), |args| bind_lu_solve(args).map(tenth), blocked!(run_lu_solve, 0))
}

/// Where the parts of an item go: the outputs from `first` on, L and U and P as `asked`.
struct Parts<'a> {
    first: usize,
    batch: &'a Dims,
    item: usize,
    extents: [usize; 2],
    asked: [bool; 2],
}

/// Writes the permutation of P·A = L·U as the matrix P of A = P·L·U, and L and U.
fn store_parts<T: Dense>(
    args: &Args<'_>,
    to: &Parts<'_>,
    [lu, part]: [&mut [T]; 2],
    [pivots, order]: [&mut [f64]; 2],
) -> Result<()> {
    let Parts { first, batch, item, extents: [rows, columns], asked } = *to;
    let inner = rows.min(columns);
    if asked[1] {
        order.iter_mut().enumerate().for_each(|(i, o)| *o = i as f64);
        exchange(pivots, order, 1, false);
        let part = &mut part[..rows * rows];
        part.fill(T::ZERO);
        order.iter().enumerate().for_each(|(column, row)| part[*row as usize * rows + column] = T::ONE);
        store(args, (first, 2), batch, item, part)?;
    }
    if asked[0] {
        let lower = &mut part[..rows * inner];
        for i in 0..rows {
            for j in 0..inner {
                lower[i * inner + j] = match j.cmp(&i) {
                    Ordering::Less => lu[i * columns + j],
                    Ordering::Equal => T::ONE,
                    Ordering::Greater => T::ZERO,
                };
            }
        }
        store(args, (first + 1, 2), batch, item, lower)?;
        let upper = &mut part[..inner * columns];
        for i in 0..inner {
            for j in 0..columns {
                upper[i * columns + j] = if j >= i { lu[i * columns + j] } else { T::ZERO };
            }
        }
        store(args, (first + 2, 2), batch, item, upper)?;
    }
    Ok(())
}

fn resize_parts(
    args: &mut BindArgs<'_>,
    first: usize,
    batch: &Dims,
    [rows, columns]: [usize; 2],
    asked: [bool; 2],
) -> Result<(usize, usize)> {
    let inner = rows.min(columns);
    args.resize(first, if asked[1] { joined(batch, &[rows, rows])? } else { Dims::new(&[0])? }.as_ref())?;
    for (i, item) in [[rows, inner], [inner, columns]].iter().enumerate() {
        args.resize(first + 1 + i, if asked[0] { joined(batch, item)? } else { Dims::new(&[0])? }.as_ref())?;
    }
    items(batch, &[rows, columns, inner])
}

fn bytes_for_parts(ctx: &PrepareContext<'_>) -> Result<usize> {
    let [rows, columns] = largest(ctx, 0);
    let side = rows.max(columns);
    bytes_for(&[&[rows, columns], &[rows.min(columns)], &[side, side], &[rows]])
}

fn bind_lu(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    check_pivoting(&view, 1)?;
    let (batch, extents) = split(view.tensor(0)?.shape(), "A")?;
    resize_parts(args, 2, &batch, extents, [true; 2])
}

fn run_lu<M: Method>(method: M, args: &Args<'_>, item: usize, mut memory: &mut [u8]) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "A")?;
    let [rows, columns] = extents;
    let side = rows.max(columns);
    let pivots = take_scratch(&mut memory, rows.min(columns))?;
    let order = take_scratch(&mut memory, rows)?;
    let [room, lu, part] = rooms(memory, [M::room(side), rows * columns, side * side])?;
    load::<M::Number>(args, (0, 2), &batch, item, lu)?;
    method.factor(lu, extents, pivots, room);
    let to = Parts { first: 2, batch: &batch, item, extents, asked: [true; 2] };
    store_parts(args, &to, [lu, part], [pivots, order])
}

fn prepare_lu(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 2, 3, 4])?;
    Routine::per_item(bytes_for_parts(ctx)?, bind_lu, |args, item, s| run_lu(Plain, args, item, s.worker))
}

fn blocks_lu(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 2, 3, 4])?;
    of_blocks(ctx, 0, bytes_for_parts(ctx), |args| bind_lu(args).map(tenth), blocked!(run_lu, 0))
}

fn prepare_unpack(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 4, 5, 6])?;
    check_exactly(ctx, &[1], DType::Int32)?;
    Routine::per_item(
        bytes_for_parts(ctx)?,
        |args| {
            let view = args.args();
            let (batch, extents) = split(view.tensor(0)?.shape(), "LU_data")?;
            check_items(&view, 1, "LU_pivots", &batch, &[extents[0].min(extents[1])])?;
            let asked = [view.bool(2)?, view.bool(3)?];
            resize_parts(args, 4, &batch, extents, asked)
        },
        |args, item, s| {
            let (batch, extents) = split(args.tensor(0)?.shape(), "LU_data")?;
            let asked = [args.bool(2)?, args.bool(3)?];
            let [rows, columns] = extents;
            let side = rows.max(columns);
            let [pivots, order, lu, part] =
                rooms::<f64, 4>(s.worker, [rows.min(columns), rows, rows * columns, side * side])?;
            load(args, (0, 2), &batch, item, lu)?;
            if asked[1] {
                load_pivots(args, 1, &batch, item, extents[0], pivots)?;
            }
            let to = Parts { first: 4, batch: &batch, item, extents, asked };
            store_parts(args, &to, [lu, part], [pivots, order])
        },
    )
}

/// LU and its uses.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_lu_factor_ex.out(Tensor A, *, bool pivot=True, bool check_errors=False, Tensor(a!) LU, Tensor(b!) pivots, Tensor(c!) info) -> (Tensor(a!) LU, Tensor(b!) pivots, Tensor(c!) info)",
        prepare_factor,
    )
    .fast("blocks", blocks_factor),
    kernel(
        "aten::linalg_lu.out(Tensor A, *, bool pivot=True, Tensor(a!) P, Tensor(b!) L, Tensor(c!) U) -> (Tensor(a!) P, Tensor(b!) L, Tensor(c!) U)",
        prepare_lu,
    )
    .fast("blocks", blocks_lu),
    kernel(
        "aten::lu_unpack.out(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True, *, Tensor(a!) P, Tensor(b!) L, Tensor(c!) U) -> (Tensor(a!) P, Tensor(b!) L, Tensor(c!) U)",
        prepare_unpack,
    ),
    kernel(
        "aten::linalg_lu_solve.out(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False, Tensor(a!) out) -> Tensor(a!)",
        prepare_lu_solve,
    )
    .fast("blocks", blocks_lu_solve),
    kernel(
        "aten::linalg_inv_ex.inverse(Tensor A, *, bool check_errors=False, Tensor(a!) inverse, Tensor(b!) info) -> (Tensor(a!) inverse, Tensor(b!) info)",
        prepare_inverse,
    )
    .fast("blocks", blocks_inverse),
    kernel(
        "aten::_linalg_solve_ex.result(Tensor A, Tensor B, *, bool left=True, bool check_errors=False, Tensor(a!) result, Tensor(b!) LU, Tensor(c!) pivots, Tensor(d!) info) -> (Tensor(a!) result, Tensor(b!) LU, Tensor(c!) pivots, Tensor(d!) info)",
        prepare_solve,
    )
    .fast("blocks", blocks_solve),
    kernel(
        "aten::_linalg_det.result(Tensor A, *, Tensor(a!) result, Tensor(b!) LU, Tensor(c!) pivots) -> (Tensor(a!) result, Tensor(b!) LU, Tensor(c!) pivots)",
        prepare_det,
    )
    .fast("blocks", blocks_det),
    kernel(
        "aten::_linalg_slogdet.sign(Tensor A, *, Tensor(a!) sign, Tensor(b!) logabsdet, Tensor(c!) LU, Tensor(d!) pivots) -> (Tensor(a!) sign, Tensor(b!) logabsdet, Tensor(c!) LU, Tensor(d!) pivots)",
        prepare_slogdet,
    )
    .fast("blocks", blocks_slogdet),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    fn inverse(a: &[f64; 4], is_checked: bool) -> pteron_core::Result<Vec<f64>> {
        let args = [
            Tensor::of(&[2, 2], a).into(),
            is_checked.into(),
            Tensor::output(DType::Float64, &[2, 2]).into(),
            Tensor::output(DType::Int32, &[]).into(),
        ];
        match &call("aten::linalg_inv_ex.inverse", &args)?[2] {
            Arg::Tensor(t) => Ok(t.values()),
            _ => panic!("no tensor"),
        }
    }

    #[test]
    fn rows_are_exchanged_and_singular_matrices_refused_if_asked() {
        assert_eq!(inverse(&[0.0, 2.0, 4.0, 0.0], true).unwrap(), [0.0, 0.25, 0.5, 0.0]);
        assert!(error_text(inverse(&[1.0, 2.0, 2.0, 4.0], true)).contains("singular"));
        assert!(inverse(&[1.0, 2.0, 2.0, 4.0], false).is_ok());
    }

    #[test]
    fn pivots_from_outside_are_checked() {
        let run = |pivots: [i32; 2]| {
            let args = [
                Tensor::of(&[2, 2], &[1f64, 0.0, 0.0, 1.0]).into(),
                Tensor::of(&[2], &pivots).into(),
                Tensor::of(&[2, 1], &[3f64, 5.0]).into(),
                true.into(),
                false.into(),
                Tensor::output(DType::Float64, &[2, 1]).into(),
            ];
            call("aten::linalg_lu_solve.out", &args)
        };
        assert!(run([2, 2]).is_ok());
        assert!(error_text(run([3, 2])).contains("index out of range"));
        assert!(error_text(run([1, 1])).contains("before it"));
    }
}
