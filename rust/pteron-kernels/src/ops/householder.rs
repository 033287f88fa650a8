//! Orthogonal factors as products of reflections: QR factorisation and what works with its reflectors.
//!
//! H = I − τ·v·vᵀ with v₁ = 1 turns a column into a multiple of the first unit vector; the vectors lie below
//! the diagonal of R. Signs are LAPACK's: the diagonal of R has the sign opposite to the column's first
//! element, and a column that is done already is left alone. Shape: batches of matrices. Dtype: float32 and
//! float64, computed in float64 or, block by block, in their own dtype. Source: Golub & Van Loan, Matrix
//! Computations, 5.1 and 5.2.

use crate::operator::{Operator, kernel};
use crate::ops::dense::plain::Reflectors;
use crate::ops::dense::{Method, Plain, blocked, of_blocks, tenth};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, check_items, items, joined, largest, load, rooms, split, store, transpose,
};
use crate::routine::{BindItemsFn, Preparation, Routine};
use pteron_core::{ArgSpec, Args, BindArgs, Dims, Error, PrepareContext, Result};

/// What `mode` of `linalg_qr` asks for: Q at all, and all of its columns.
fn mode(ctx: &PrepareContext<'_>) -> Result<(bool, bool)> {
    match ctx.args.get(1) {
        Some(ArgSpec::String("reduced")) => Ok((true, false)),
        Some(ArgSpec::String("complete")) => Ok((true, true)),
        Some(ArgSpec::String("r")) => Ok((false, false)),
        _ => Err(Error::kernel("unknown mode").argument("mode").expected("'reduced', 'complete' or 'r'")),
    }
}

/// Columns of Q, which are the rows of R.
fn inner([rows, columns]: [usize; 2], is_complete: bool) -> usize {
    if is_complete { rows } else { rows.min(columns) }
}

fn bind_qr<const HAS_Q: bool, const COMPLETE: bool>(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let (batch, extents) = split(args.args().tensor(0)?.shape(), "A")?;
    let inner = inner(extents, COMPLETE);
    let q = if HAS_Q { joined(&batch, &[extents[0], inner])? } else { Dims::new(&[0])? };
    args.resize(2, &q)?;
    args.resize(3, &joined(&batch, &[inner, extents[1]])?)?;
    items(&batch, &[2, extents[0], extents[1], inner])
}

fn run_qr<M: Method, const HAS_Q: bool, const COMPLETE: bool>(
    method: M,
    args: &Args<'_>,
    item: usize,
    memory: &mut [u8],
) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "A")?;
    let [rows, columns] = extents;
    let (inner, side) = (inner(extents, COMPLETE), rows.max(columns));
    let sizes = [M::room(side), rows * columns, rows * columns, rows.min(columns), rows * side];
    let [room, a, copy, taus, q] = rooms(memory, sizes)?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    method.reflect(a, extents, taus, copy, room);
    if HAS_Q {
        let q = &mut q[..rows * inner];
        method.reflections(a, extents, taus, (&mut *q, inner), room);
        store(args, (2, 2), &batch, item, q)?;
    }
    for i in 0..inner.min(rows) {
        let below = i.min(columns);
        a[i * columns..i * columns + below].fill(M::Number::default());
    }
    store(args, (3, 2), &batch, item, &a[..inner * columns])
}

fn run_reduced<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    run_qr::<M, true, false>(method, args, item, memory)
}

fn run_complete<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    run_qr::<M, true, true>(method, args, item, memory)
}

fn run_r<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    run_qr::<M, false, false>(method, args, item, memory)
}

fn qr_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 2, 3])?;
    let [rows, columns] = largest(ctx, 0);
    bytes_for(&[&[2, rows, columns], &[rows.min(columns)], &[rows, rows.max(columns)]])
}

fn prepare_qr(ctx: &PrepareContext<'_>) -> Preparation {
    let bytes = qr_bytes(ctx)?;
    match mode(ctx)? {
        (true, false) => Routine::per_item(bytes, bind_qr::<true, false>, |args, n, s| {
            run_reduced(Plain, args, n, s.worker)
        }),
        (true, true) => Routine::per_item(bytes, bind_qr::<true, true>, |args, n, s| {
            run_complete(Plain, args, n, s.worker)
        }),
        _ => Routine::per_item(bytes, bind_qr::<false, false>, |args, n, s| run_r(Plain, args, n, s.worker)),
    }
}

fn blocks_qr(ctx: &PrepareContext<'_>) -> Preparation {
    let bytes = qr_bytes(ctx);
    match mode(ctx)? {
        (true, false) => {
            let bind: BindItemsFn = |args| bind_qr::<true, false>(args).map(tenth);
            of_blocks(ctx, 0, bytes, bind, blocked!(run_reduced, 0))
        }
        (true, true) => {
            let bind: BindItemsFn = |args| bind_qr::<true, true>(args).map(tenth);
            of_blocks(ctx, 0, bytes, bind, blocked!(run_complete, 0))
        }
        _ => {
            let bind: BindItemsFn = |args| bind_qr::<false, false>(args).map(tenth);
            of_blocks(ctx, 0, bytes, bind, blocked!(run_r, 0))
        }
    }
}

fn bind_geqrf(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = *args.args().tensor(0)?.shape();
    let (batch, [rows, columns]) = split(&shape, "self")?;
    args.resize(1, &shape)?;
    args.resize(2, &joined(&batch, &[rows.min(columns)])?)?;
    items(&batch, &[2, rows, columns, rows.min(columns)])
}

fn run_geqrf<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "self")?;
    let [rows, columns] = extents;
    let area = rows * columns;
    let sizes = [M::room(rows.max(columns)), area, area, rows.min(columns)];
    let [room, a, copy, taus] = rooms(memory, sizes)?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    method.reflect(a, extents, taus, copy, room);
    store(args, (1, 2), &batch, item, a)?;
    store(args, (2, 1), &batch, item, taus)
}

fn geqrf_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 2])?;
    let [rows, columns] = largest(ctx, 0);
    bytes_for(&[&[2, rows, columns], &[rows.min(columns)]])
}

fn prepare_geqrf(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(geqrf_bytes(ctx)?, bind_geqrf, |args, n, s| run_geqrf(Plain, args, n, s.worker))
}

fn blocks_geqrf(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, geqrf_bytes(ctx), |args| bind_geqrf(args).map(tenth), blocked!(run_geqrf, 0))
}

/// Number of reflectors of argument 0, whose factors are argument 1.
fn reflectors(args: &Args<'_>) -> Result<(Dims, [usize; 2], usize)> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "input")?;
    let count = args.tensor(1)?.shape().last().copied().unwrap_or(0);
    check_items(args, 1, "tau", &batch, &[count])?;
    if count > extents[1] || extents[1] > extents[0] {
        return Err(Error::kernel("there must be at most as many reflectors as columns, and those as rows")
            .argument("input")
            .got(format!("{extents:?} with {count} factors")));
    }
    Ok((batch, extents, count))
}

fn bind_product(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, extents, count) = reflectors(&view)?;
    args.resize(2, &joined(&batch, &extents)?)?;
    items(&batch, &[2, extents[0], extents[1], count])
}

fn run_product<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, extents, count) = reflectors(args)?;
    let area = extents[0] * extents[1];
    let [room, a, q, taus] = rooms(memory, [M::room(extents[0].max(extents[1])), area, area, count])?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    load(args, (1, 1), &batch, item, taus)?;
    method.reflections(a, extents, taus, (&mut *q, extents[1]), room);
    store(args, (2, 2), &batch, item, q)
}

fn product_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 2])?;
    let [rows, columns] = largest(ctx, 0);
    bytes_for(&[&[2, rows, columns], &[columns]])
}

fn prepare_product(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(product_bytes(ctx)?, bind_product, |args, n, s| run_product(Plain, args, n, s.worker))
}

fn blocks_product(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, product_bytes(ctx), |args| bind_product(args).map(tenth), blocked!(run_product, 0))
}

/// Product of the reflections (or its transposed) with a matrix, from the left or from the right.
fn bind_ormqr(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, [rows, columns]) = split(view.tensor(0)?.shape(), "self")?;
    let count = view.tensor(1)?.shape().last().copied().unwrap_or(0);
    check_items(&view, 1, "input2", &batch, &[count])?;
    let shape = *view.tensor(2)?.shape();
    let (other, extents) = split(&shape, "input3")?;
    let is_left = view.bool(3)?;
    if other != batch || extents[usize::from(!is_left)] != rows || count > columns.min(rows) {
        return Err(Error::kernel("the reflectors do not fit the matrix")
            .argument("input3")
            .got(format!("{shape} for {count} reflectors of {rows} rows")));
    }
    args.resize(5, &shape)?;
    items(&batch, &[4, extents[0], extents[1], count])
}

fn run_ormqr(args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, [rows, columns]) = split(args.tensor(0)?.shape(), "self")?;
    let (_, extents) = split(args.tensor(2)?.shape(), "input3")?;
    let (is_left, is_transposed) = (args.bool(3)?, args.bool(4)?);
    let count = args.tensor(1)?.shape().last().copied().unwrap_or(0);
    let area = extents[0] * extents[1];
    let [a, taus, c, turned] = rooms::<f64, 4>(memory, [rows * columns, count, area, area])?;
    load(args, (0, 2), &batch, item, a)?;
    load(args, (1, 1), &batch, item, taus)?;
    load(args, (2, 2), &batch, item, c)?;
    // C·Q is (Qᵀ·Cᵀ)ᵀ, and Qᵀ applies the reflections in the other order.
    let is_forward = is_left == is_transposed;
    let width = extents[usize::from(is_left)];
    if !is_left {
        transpose(c, extents, turned);
        c.copy_from_slice(turned);
    }
    for step in 0..count {
        let k = if is_forward { step } else { count - 1 - step };
        Reflectors { vectors: a, extents: [rows, columns] }.apply((k, taus[k]), c, width, 0);
    }
    if !is_left {
        transpose(c, [rows, width], turned);
        c.copy_from_slice(turned);
    }
    store(args, (5, 2), &batch, item, c)
}

fn prepare_ormqr(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 2, 5])?;
    let ([rows, columns], [a, b]) = (largest(ctx, 0), largest(ctx, 2));
    let bytes = bytes_for(&[&[rows, columns], &[columns], &[2, a, b]])?;
    Routine::per_item(bytes, bind_ormqr, |args, n, s| run_ormqr(args, n, s.worker))
}

/// QR and its reflectors.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_qr.out(Tensor A, str mode=\"reduced\", *, Tensor(a!) Q, Tensor(b!) R) -> (Tensor(a!) Q, Tensor(b!) R)",
        prepare_qr,
    )
    .fast("blocks", blocks_qr),
    kernel(
        "aten::geqrf.a(Tensor self, *, Tensor(a!) a, Tensor(b!) tau) -> (Tensor(a!) a, Tensor(b!) tau)",
        prepare_geqrf,
    )
    .fast("blocks", blocks_geqrf),
    kernel(
        "aten::linalg_householder_product.out(Tensor input, Tensor tau, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_product,
    )
    .fast("blocks", blocks_product),
    kernel(
        "aten::ormqr.out(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_ormqr,
    ),
];

#[cfg(test)]
mod tests {
    use crate::ops::dense::plain::{reflect, reflections};

    #[test]
    fn factors_multiply_to_the_matrix() {
        let extents = [4, 3];
        let a: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7) - 3.0).collect();
        let (mut r, mut copy, mut taus, mut q) = (a.clone(), vec![0.0; 12], vec![0.0; 3], vec![0.0; 12]);
        reflect(&mut r, extents, &mut taus, &mut copy);
        reflections(&r, extents, &taus, &mut q, 3);
        for i in 0..4 {
            for j in 0..3 {
                let sum: f64 = (0..=j).map(|k| q[i * 3 + k] * r[k * 3 + j]).sum();
                assert!((sum - a[i * 3 + j]).abs() < 1e-12);
            }
        }
    }
}
