//! Sums over rows of float64, in loops that the compiler vectorises inside a [`crate::vector_math::SimdTask`]. Products are
//! rounded and sums have a fixed order: the same bits on every instruction set.

/// Numbers that are added apart from each other.
const LANES: usize = 16;

/// The sum of the products.
#[inline(always)]
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len().min(y.len());
    let (xs, ys) = (x[..n].chunks_exact(LANES), y[..n].chunks_exact(LANES));
    let mut rest = 0.0;
    for (x, y) in xs.remainder().iter().zip(ys.remainder()) {
        rest += x * y;
    }
    let mut sums = [0.0; LANES];
    for (x, y) in xs.zip(ys) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum += x * y;
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0] + rest
}

/// Adds `factor` times `x` to `y`.
#[inline(always)]
pub(crate) fn add_scaled(y: &mut [f64], factor: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// The sum of rows of `width`, their numbers from column `from` on, times a factor each.
#[inline(always)]
pub(crate) fn combine(rows: &[f64], [width, from]: [usize; 2], factors: &[f64], sum: &mut [f64]) {
    sum.fill(0.0);
    let (mut four, mut fours) = (rows.chunks_exact(4 * width), factors.chunks_exact(4));
    // Together, so that sums are read and written once for all four.
    for (rows, v) in four.by_ref().zip(fours.by_ref()) {
        let row = |i: usize| &rows[i * width + from..(i + 1) * width];
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        for ((((sum, a), b), c), d) in sum.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *sum += (v[0] * a + v[1] * b) + (v[2] * c + v[3] * d);
        }
    }
    for (row, v) in four.remainder().chunks_exact(width).zip(fours.remainder()) {
        add_scaled(sum, *v, &row[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_products() {
        for n in [0usize, 1, 15, 16, 17, 50] {
            let x: Vec<f64> = (0..n).map(|i| i as f64 - 3.0).collect();
            let y: Vec<f64> = (0..n).map(|i| (i * i % 7) as f64).collect();
            assert_eq!(dot(&x, &y), x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>(), "{n}");
        }
        for rows in 1..10 {
            let all: Vec<f64> = (0..rows * 7).map(|i| (i * i % 11) as f64).collect();
            let factors: Vec<f64> = (0..rows).map(|i| i as f64 - 2.0).collect();
            let mut sum = [9.0; 5];
            combine(&all, [7, 2], &factors, &mut sum);
            for (j, sum) in sum.iter().enumerate() {
                assert_eq!(*sum, (0..rows).map(|i| factors[i] * all[i * 7 + 2 + j]).sum::<f64>(), "{rows}");
            }
        }
    }
}
