//! Products of rows that are quantised symmetrically, in the steps that torchao leaves.

use super::{Generator, MAX_ROWS, WIDTHS};
use pteron_core::DType;
use pteron_format::write::{TensorDraft, ValueDraft};

impl Generator<'_> {
    /// `float(_int_mm(quantise(x), Q)) * scale * s` of the method's input, whose numbers do not lie between two integers by turns.
    pub(super) fn symmetric_product(&mut self) {
        let (k, n) = (self.nodes[0].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        let rank = 2 + self.rng.below(2);
        let x = if rank == 2 { 0 } else { self.view(0, 3, &[-1, 1, k as i64]) };
        let scale = self.symmetric_scale(x, rank);
        let mut q = self.symmetric_bytes(x, scale, rank);
        let mut factors = scale;
        if rank == 3 {
            q = self.flat(q, DType::Int8);
            factors = self.flat(scale, DType::Float32);
        }
        let data: Vec<u8> = (0..k * n).map(|_| (self.rng.below(200) as i32 - 100) as u8).collect();
        let weight = self.constant_bytes(DType::Int8, &[k, n], data.clone());
        let is_raised = self.rng.one_in(2);
        if is_raised {
            q = self.raised(q, k);
        }
        let mut sums =
            self.row_step("aten::_int_mm", &[q], (DType::Int32, 2, n), |i, out| vec![i[0], weight, out]);
        if is_raised {
            sums = self.lowered(sums, &data, n);
        }
        let mut y = self.converted(sums, (DType::Float32, 2, n));
        let row = self.small_scales(&[n], k);
        let is_row_first = self.rng.one_in(3);
        for by_row in [is_row_first, !is_row_first] {
            y = match by_row {
                true => {
                    self.row_step("aten::mul", &[y], (DType::Float32, 2, n), |i, out| vec![i[0], row, out])
                }
                false => {
                    let both = |i: &[i32], out| vec![i[0], i[1], out];
                    self.row_step("aten::mul", &[y, factors], (DType::Float32, 2, n), both)
                }
            };
        }
        if rank == 3 && self.rng.one_in(2) {
            y = self.view(y, 3, &[-1, 1, n as i64]);
        }
        if self.rng.one_in(2) {
            let (bias, one) = (self.constant(&[n]), self.value(ValueDraft::Int(1)));
            let rank = if self.is_activation(y) { 2 } else { 3 };
            let sum = |i: &[i32], out| vec![i[0], bias, one, out];
            y = self.row_step("aten::add", &[y], (DType::Float32, rank, n), sum);
        }
        if self.is_activation(y) && self.rng.one_in(2) {
            self.unary("aten::relu", y);
        }
    }

    /// The bytes `q` as unsigned ones, 128 higher.
    fn raised(&mut self, q: usize, k: usize) -> usize {
        let words = self.converted(q, (DType::Int32, 2, k));
        let by = self.constant_bytes(DType::Int32, &[], 128i32.to_le_bytes().to_vec());
        let one = self.value(ValueDraft::Int(1));
        let sum = |i: &[i32], out| vec![i[0], by, one, out];
        let raised = self.row_step("aten::add", &[words], (DType::Int32, 2, k), sum);
        self.converted(raised, (DType::UInt8, 2, k))
    }

    /// Sums of raised bytes without the share of 128; at times another share.
    fn lowered(&mut self, sums: usize, weights: &[u8], n: usize) -> usize {
        let share = if self.rng.one_in(4) { 127 } else { 128 };
        let mut shares = vec![0i32; n];
        for row in weights.chunks_exact(n) {
            shares.iter_mut().zip(row).for_each(|(sum, w)| *sum += share * i32::from(*w as i8));
        }
        let data = shares.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let shares = self.constant_bytes(DType::Int32, &[1, n], data);
        let one = self.value(ValueDraft::Int(1));
        let difference = |i: &[i32], out| vec![i[0], shares, one, out];
        self.row_step("aten::sub", &[sums], (DType::Int32, 2, n), difference)
    }

    /// The scale of each row of `x`.
    fn symmetric_scale(&mut self, x: usize, rank: usize) -> usize {
        let ends = (DType::Float32, rank, 1);
        let [low, high] =
            [("aten::amin", "aten::minimum"), ("aten::amax", "aten::maximum")].map(|(reducing, operator)| {
                let (dims, keeps) = (self.ints(&[-1]), self.value(ValueDraft::Bool(true)));
                let end = self.row_step(reducing, &[x], ends, |i, out| vec![i[0], dims, keeps, out]);
                let nothing = self.zeros_like(end, rank);
                self.row_step(operator, &[end, nothing], ends, |i, out| vec![i[0], i[1], out])
            });
        let negated = self.row_step("aten::neg", &[low], ends, |i, out| vec![i[0], out]);
        let most = self.row_step("aten::maximum", &[negated, high], ends, |i, out| vec![i[0], i[1], out]);
        let steps = self.constant_bytes(DType::Float32, &[], 127.5f32.to_le_bytes().to_vec());
        let scale = self.row_step("aten::div", &[most], ends, |i, out| vec![i[0], steps, out]);
        let (least, none) = (self.value(ValueDraft::Double(1e-7)), self.value(ValueDraft::None));
        self.row_step("aten::clamp", &[scale], ends, |i, out| vec![i[0], least, none, out])
    }

    /// The rows of `x` as bytes.
    fn symmetric_bytes(&mut self, x: usize, scale: usize, rank: usize) -> usize {
        let (width, ends) = (self.nodes[x].width, (DType::Float32, rank, 1));
        let rows = (DType::Float32, rank, width);
        let zeros = self.zeros_like(scale, rank);
        let zeros = self.converted(zeros, (DType::Int8, rank, 1));
        let inverse = self.row_step("aten::reciprocal", &[scale], ends, |i, out| vec![i[0], out]);
        let scaled = self.row_step("aten::mul", &[x, inverse], rows, |i, out| vec![i[0], i[1], out]);
        let rounded = self.row_step("aten::round", &[scaled], rows, |i, out| vec![i[0], out]);
        let zeros = self.converted(zeros, ends);
        let one = self.value(ValueDraft::Int(1));
        let moved = self.row_step("aten::add", &[rounded, zeros], rows, |i, out| vec![i[0], i[1], one, out]);
        let [low, high] = [-128.0, 127.0].map(|v| self.value(ValueDraft::Double(v)));
        let limited = self.row_step("aten::clamp", &[moved], rows, |i, out| vec![i[0], low, high, out]);
        self.converted(limited, (DType::Int8, rank, width))
    }

    fn zeros_like(&mut self, x: usize, rank: usize) -> usize {
        let (nothing, none) = (self.value(ValueDraft::Double(0.0)), self.value(ValueDraft::None));
        let kind = (DType::Float32, rank, self.nodes[x].width);
        self.row_step("aten::full_like", &[x], kind, |i, out| vec![i[0], nothing, none, out])
    }

    /// `x` in another type, as rows of this rank and length.
    fn converted(&mut self, x: usize, kind: (DType, usize, usize)) -> usize {
        let order: Vec<i64> = (0..kind.1 as i64).collect();
        let (flag, order) = (self.value(ValueDraft::Bool(false)), self.ints(&order));
        let convert = |i: &[i32], out| vec![i[0], flag, order, out];
        self.row_step("dim_order_ops::_to_dim_order_copy", &[x], kind, convert)
    }

    /// Rows of rank 3 as rows of rank 2.
    fn flat(&mut self, x: usize, dtype: DType) -> usize {
        let width = self.nodes[x].width;
        let sizes = self.ints(&[-1, width as i64]);
        self.touch(x);
        let out = self.rows(dtype, 2, width);
        self.nodes[out].base = Some(x);
        let args = vec![self.nodes[x].value, sizes, self.nodes[out].value];
        self.call("executorch_prim::et_view", "default", args);
        out
    }

    fn rows(&mut self, dtype: DType, rank: usize, width: usize) -> usize {
        let mut shape = vec![1; rank];
        (shape[0], shape[rank - 1]) = (MAX_ROWS, width);
        self.tensor(TensorDraft::contiguous(dtype, &shape).unwrap(), width)
    }

    /// What `name` makes of `inputs`: rows of this type, rank and length.
    fn row_step(
        &mut self,
        name: &str,
        inputs: &[usize],
        (dtype, rank, width): (DType, usize, usize),
        args: impl Fn(&[i32], i32) -> Vec<i32>,
    ) -> usize {
        inputs.iter().for_each(|node| self.touch(*node));
        let out = self.rows(dtype, rank, width);
        let inputs: Vec<i32> = inputs.iter().map(|node| self.nodes[*node].value).collect();
        let args = args(&inputs, self.nodes[out].value);
        self.call(name, "out", args);
        out
    }
}
