use super::unit::Number;
use super::*;
use pteron_core::{Bool8, Isa};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

/// A tensor of logical [batch, head, row, element] and its order in memory.
#[derive(Clone)]
struct Logical {
    shape: [usize; 4],
    axes: Axes,
    values: Vec<f32>,
}

impl Logical {
    fn new(shape: [usize; 4], axes: Axes, seed: u64) -> Self {
        // Scores stay near 1, so that an error of a weight is one of rounding.
        let values = numbers(shape.iter().product(), seed).iter().map(|v| v / 3.0).collect();
        Logical { shape, axes, values }
    }

    fn order(&self) -> [usize; 4] {
        let axes = &self.axes;
        let mut order = [0; 4];
        let places = [axes.batch.unwrap(), axes.head.unwrap(), axes.row, axes.element];
        for (logical, place) in places.into_iter().enumerate() {
            order[usize::from(place)] = logical;
        }
        order
    }

    /// As it lies, and the place of every logical element.
    fn stored(&self) -> (Vec<usize>, Vec<usize>) {
        let order = self.order();
        let dims: Vec<usize> = order.iter().map(|d| self.shape[*d]).collect();
        let places = (0..self.values.len())
            .map(|mut i| {
                let mut index = [0; 4];
                for d in (0..4).rev() {
                    index[d] = i % self.shape[d];
                    i /= self.shape[d];
                }
                order.iter().zip(&dims).fold(0, |at, (d, extent)| at * extent + index[*d])
            })
            .collect();
        (dims, places)
    }

    fn tensor<T: Number>(&self) -> CallArg {
        let (dims, places) = self.stored();
        let mut data = vec![T::of_number(0.0); self.values.len()];
        places.iter().zip(&self.values).for_each(|(at, v)| data[*at] = T::of_number(*v));
        CallArg::Tensor(HostTensor::new(&dims, &data).unwrap())
    }
}

#[derive(Clone)]
enum Mask {
    None,
    Added([usize; 4], Vec<f32>),
    Kept([usize; 4], Vec<bool>),
}

#[derive(Clone)]
struct Case {
    query: Logical,
    key: Logical,
    value: Logical,
    out: Axes,
    mask: Mask,
    causality: Causality,
    empty_row: EmptyRow,
    scale: f32,
}

impl Case {
    fn new(batch: usize, heads: usize, key_heads: usize, [l, s, d, e]: [usize; 4]) -> Case {
        Case {
            query: Logical::new([batch, heads, l, d], Axes::HEADS_FIRST, 3),
            key: Logical::new([batch, key_heads, s, d], Axes::HEADS_FIRST, 5),
            value: Logical::new([batch, key_heads, s, e], Axes::HEADS_FIRST, 7),
            out: Axes::HEADS_FIRST,
            mask: Mask::None,
            causality: Causality::Everything,
            empty_row: EmptyRow::Zero,
            scale: 1.0 / (d.max(1) as f32).sqrt(),
        }
    }

    fn mask_at(&self, b: usize, h: usize, i: usize, j: usize) -> f64 {
        let at = |s: &[usize; 4]| {
            [b, h, i, j].iter().zip(s).fold(0, |at, (i, extent)| at * extent + i.min(&(extent - 1)))
        };
        match &self.mask {
            Mask::None => 0.0,
            Mask::Added(shape, values) => f64::from(values[at(shape)]),
            Mask::Kept(shape, values) => {
                if values[at(shape)] {
                    0.0
                } else {
                    f64::NEG_INFINITY
                }
            }
        }
    }

    /// In f64, [batch, head, row, element].
    fn expected(&self) -> Vec<f64> {
        let [batch, heads, l, d] = self.query.shape;
        let [_, key_heads, s, e] = self.value.shape;
        let mut out = vec![0.0; batch * heads * l * e];
        for b in 0..batch {
            for h in 0..heads {
                let kh = b * key_heads + h / (heads / key_heads);
                for i in 0..l {
                    let q = &self.query.values[((b * heads + h) * l + i) * d..][..d];
                    let scores: Vec<f64> = (0..s)
                        .map(|j| {
                            let k = &self.key.values[(kh * s + j) * d..][..d];
                            let dot: f64 = q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                            let hidden = self.causality == Causality::FromTopLeft && j > i;
                            let hidden = if hidden { f64::NEG_INFINITY } else { 0.0 };
                            dot * f64::from(self.scale) + self.mask_at(b, h, i, j) + hidden
                        })
                        .collect();
                    let is_empty = scores.iter().all(|x| *x == f64::NEG_INFINITY);
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    if is_empty && self.empty_row == EmptyRow::Zero {
                        continue;
                    }
                    let weights: Vec<f64> = scores.iter().map(|x| (x - max).exp()).collect();
                    let sum: f64 = weights.iter().sum();
                    let row = &mut out[((b * heads + h) * l + i) * e..][..e];
                    for (j, weight) in weights.iter().enumerate() {
                        let value = &self.value.values[(kh * s + j) * e..][..e];
                        row.iter_mut().zip(value).for_each(|(slot, v)| *slot += weight / sum * f64::from(*v));
                    }
                }
            }
        }
        out
    }

    fn spec(&self) -> AttentionSpec {
        let operand = |argument, axes| Operand { argument, axes };
        AttentionSpec {
            query: operand(0, self.query.axes),
            key: operand(1, self.key.axes),
            value: operand(2, self.value.axes),
            mask: Some(3),
            out: operand(4, self.out),
            scale: self.scale,
            causality: self.causality,
            keys_from: None,
            empty_row: self.empty_row,
            row_factors: None,
            checks: Vec::new(),
        }
    }

    fn out(&self) -> Logical {
        let [batch, heads, l, _] = self.query.shape;
        Logical::new([batch, heads, l, self.value.shape[3]], self.out, 1)
    }

    /// With the numbers that `T` has.
    fn rounded<T: Number>(&self) -> Case {
        let mut case = self.clone();
        let round = |values: &mut Vec<f32>| values.iter_mut().for_each(|v| *v = T::of_number(*v).number());
        [&mut case.query, &mut case.key, &mut case.value].into_iter().for_each(|t| round(&mut t.values));
        if let Mask::Added(_, values) = &mut case.mask {
            round(values);
        }
        case
    }

    fn call(&self, isa: Isa) -> Option<SingleCall> {
        self.call_as::<f32>(isa)
    }

    fn call_as<T: Number>(&self, isa: Isa) -> Option<SingleCall> {
        let (args, spec) = (self.args::<T>(), self.spec());
        let prepare = |ctx: &pteron_core::PrepareContext<'_>| prepare_attention(ctx, &spec);
        Some(SingleCall::of(prepare, &profile(isa)?, args).unwrap().unwrap())
    }

    fn args<T: Number>(&self) -> Vec<CallArg> {
        let mask = match &self.mask {
            Mask::None => CallArg::None,
            Mask::Added(shape, values) => {
                let values: Vec<T> = values.iter().map(|v| T::of_number(*v)).collect();
                CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
            }
            Mask::Kept(shape, values) => {
                let values: Vec<Bool8> = values.iter().map(|v| Bool8::from(*v)).collect();
                CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
            }
        };
        let (dims, _) = self.out().stored();
        vec![
            self.query.tensor::<T>(),
            self.key.tensor::<T>(),
            self.value.tensor::<T>(),
            mask,
            CallArg::Tensor(HostTensor::zeros(T::DTYPE, &dims).unwrap()),
        ]
    }

    fn run(&self, isa: Isa, is_reversed: bool) -> Option<Vec<f32>> {
        self.run_as::<f32>(isa, is_reversed)
    }

    fn run_as<T: Number>(&self, isa: Isa, is_reversed: bool) -> Option<Vec<f32>> {
        let mut call = self.call_as::<T>(isa)?;
        let grid = call.bind().unwrap();
        call.run(grid, is_reversed).unwrap();
        let stored = call.output::<T>(4).unwrap();
        let (_, places) = self.out().stored();
        Some(places.iter().map(|at| stored[*at].number()).collect())
    }

    /// Against f64 over the numbers that `T` has: within `rounding` of a result, half a unit of its last place.
    fn check_as<T: Number>(&self, rounding: f64, what: &str) {
        let case = self.rounded::<T>();
        let run = |isa, is_reversed| case.run_as::<T>(isa, is_reversed);
        agrees(&case.expected(), rounding, what, run);
    }

    fn check_halves(&self, what: &str) {
        self.check_as::<half::bf16>(0.003_92, what);
        self.check_as::<half::f16>(0.000_489, what);
    }

    fn check(&self, what: &str) {
        agrees(&self.expected(), 0.0, what, |isa, is_reversed| self.run(isa, is_reversed));
    }
}

/// Runs on every instruction set of this machine, with chunks in either order: the same bits, within `rounding` of a result
/// of what is expected.
fn agrees(want: &[f64], rounding: f64, what: &str, run: impl Fn(Isa, bool) -> Option<Vec<f32>>) {
    for isa in Isa::ALL {
        let Some(got) = run(isa, false) else { continue };
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            let is_close =
                if w.is_nan() { g.is_nan() } else { (f64::from(*g) - w).abs() <= 4e-6 + rounding * w.abs() };
            assert!(is_close, "{what} {isa:?} element {i}: {g}, expected {w}");
        }
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(got), bits(run(isa, true).unwrap()), "{what} {isa:?}: chunks in another order");
    }
}

/// Keys and values as int8 with a factor for each row; the case then has the numbers that these stand for.
struct Stored {
    case: Case,
    /// The integers of keys and values, and their factors.
    rows: [(Logical, Vec<f32>); 2],
}

impl Stored {
    fn new(mut case: Case) -> Stored {
        let rows = [&mut case.key, &mut case.value].map(|tensor| {
            let mut integers = tensor.clone();
            let width = tensor.shape[3].max(1);
            integers.values.iter_mut().for_each(|v| *v = (*v * 300.0).round().clamp(-128.0, 127.0));
            let count = tensor.shape[..3].iter().product();
            let factors: Vec<f32> = numbers(count, 17).iter().map(|v| v.abs() / 200.0).collect();
            for (at, (value, integer)) in tensor.values.iter_mut().zip(&integers.values).enumerate() {
                *value = integer * factors[at / width];
            }
            (integers, factors)
        });
        Stored { case, rows }
    }

    fn run(&self, isa: Isa, is_reversed: bool) -> Option<Vec<f32>> {
        let mut args = self.case.args::<f32>();
        let mut spec = self.case.spec();
        let mut factor_operands = [spec.key, spec.value];
        for (which, (integers, factors)) in self.rows.iter().enumerate() {
            let (dims, places) = integers.stored();
            let mut data = vec![0i8; integers.values.len()];
            places.iter().zip(&integers.values).for_each(|(at, v)| data[*at] = *v as i8);
            args[1 + which] = CallArg::Tensor(HostTensor::new(&dims, &data).unwrap());
            let [batch, heads, count, _] = integers.shape;
            let factors =
                Logical { shape: [batch, heads, count, 1], axes: integers.axes, values: factors.clone() };
            factor_operands[which].argument = args.len();
            args.push(factors.tensor::<f32>());
        }
        spec.row_factors = Some(factor_operands);
        let prepare = |ctx: &pteron_core::PrepareContext<'_>| prepare_attention(ctx, &spec);
        let mut call = SingleCall::of(prepare, &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, is_reversed).unwrap();
        let stored = call.output::<f32>(4).unwrap();
        let (_, places) = self.case.out().stored();
        Some(places.iter().map(|at| stored[*at]).collect())
    }

    fn check(&self, what: &str) {
        agrees(&self.case.expected(), 0.0, what, |isa, is_reversed| self.run(isa, is_reversed));
    }
}

#[test]
fn keys_and_values_of_int8_have_a_factor_for_each_row() {
    for shape in SHAPES {
        Stored::new(Case::new(1, 2, 2, shape)).check(&format!("{shape:?}"));
        let [l, s, ..] = shape;
        let batch = if l * s < 3000 { 2 } else { 1 };
        let mut case = Case::new(batch, 4, 2, shape);
        case.mask = Mask::Kept([1, 1, l, s], numbers(l * s, 11).iter().map(|v| *v > -0.3).collect());
        case.empty_row = EmptyRow::NaN;
        Stored::new(case.clone()).check(&format!("grouped, masked {shape:?}"));
        (case.query.axes, case.key.axes, case.value.axes) =
            (Axes::ROWS_FIRST, Axes::ROWS_FIRST, Axes::HEADS_FIRST);
        Stored::new(case).check(&format!("rows first {shape:?}"));
    }
    for shape in [[0, 4, 8, 8], [4, 0, 8, 8], [4, 4, 0, 8], [4, 4, 8, 0]] {
        Stored::new(Case::new(1, 2, 2, shape)).check(&format!("{shape:?}"));
    }
}

const SHAPES: [[usize; 4]; 12] = [
    [1, 1, 1, 1],
    [8, 8, 32, 32],
    [9, 20, 64, 64],
    [100, 130, 32, 32],
    [41, 385, 24, 40],
    [3, 800, 64, 64],
    [6, 1200, 16, 40],
    [70, 31, 5, 3],
    [1, 500, 128, 128],
    [530, 9, 80, 80],
    [5, 7, 33, 65],
    [15, 769, 1, 1],
];

#[test]
fn agrees_with_f64_for_all_shapes() {
    for shape in SHAPES {
        Case::new(1, 2, 2, shape).check(&format!("{shape:?}"));
    }
}

#[test]
fn halves_are_widened_and_results_rounded_once() {
    let keys_transposed = Axes { batch: Some(0), head: Some(1), row: 3, element: 2 };
    for shape in SHAPES {
        Case::new(1, 2, 2, shape).check_halves(&format!("{shape:?}"));
        let mut case = Case::new(1, 4, 2, shape);
        case.causality = Causality::FromTopLeft;
        case.check_halves(&format!("grouped, causal {shape:?}"));
        (case.query.axes, case.key.axes, case.value.axes) =
            (Axes::ROWS_FIRST, keys_transposed, Axes::ROWS_FIRST);
        case.out = Axes::ROWS_FIRST;
        case.check_halves(&format!("other orders {shape:?}"));
    }
    for shape in [[0, 4, 8, 8], [4, 0, 8, 8], [4, 4, 0, 8], [4, 4, 8, 0]] {
        Case::new(1, 2, 2, shape).check_halves(&format!("{shape:?}"));
    }
}

#[test]
fn halves_have_masks_of_their_type_and_of_bools() {
    for [l, s, d, e] in [[1, 700, 16, 16], [30, 500, 16, 16], [2, 40, 16, 16]] {
        for mask in [[1, 1, l, s], [1, 1, 1, s], [1, 2, l, 1], [1, 1, 1, 1]] {
            let n = mask.iter().product();
            let mut case = Case { empty_row: EmptyRow::NaN, ..Case::new(1, 2, 2, [l, s, d, e]) };
            let added = numbers(n, 11);
            case.mask = Mask::Kept(mask, added.iter().map(|v| *v > -0.3).collect());
            case.check_halves(&format!("kept {mask:?}"));
            let hidden = |v: &f32| if *v > 0.3 { f32::NEG_INFINITY } else { *v };
            case.mask = Mask::Added(mask, added.iter().map(hidden).collect());
            case.check_halves(&format!("added {mask:?}"));
        }
    }
}

#[test]
fn causal_masks_hide_later_keys() {
    for shape in SHAPES {
        let causality = Causality::FromTopLeft;
        Case { causality, ..Case::new(1, 2, 2, shape) }.check(&format!("causal {shape:?}"));
    }
}

#[test]
fn heads_share_keys() {
    for shape in SHAPES {
        Case::new(1, 4, 2, shape).check(&format!("grouped {shape:?}"));
        let causality = Causality::FromTopLeft;
        Case { causality, ..Case::new(1, 4, 1, shape) }.check(&format!("grouped, causal {shape:?}"));
    }
}

#[test]
fn any_order_of_dimensions() {
    let keys_transposed = Axes { batch: Some(0), head: Some(1), row: 3, element: 2 };
    let heads_outside = Axes { batch: Some(1), head: Some(0), row: 2, element: 3 };
    let element_outside = Axes { batch: Some(3), head: Some(1), row: 2, element: 0 };
    for shape in [[8, 9, 32, 32], [60, 400, 20, 33], [2, 40, 64, 64]] {
        for axes in [Axes::ROWS_FIRST, keys_transposed, heads_outside, element_outside] {
            let mut case = Case::new(2, 3, 3, shape);
            (case.query.axes, case.key.axes, case.value.axes) = (axes, axes, axes);
            case.out = if axes == heads_outside { axes } else { Axes::ROWS_FIRST };
            case.check(&format!("{axes:?} {shape:?}"));
        }
    }
}

#[test]
fn masks_are_broadcast() {
    let (batch, heads) = (2, 3);
    for [l, s, d, e] in [[8, 8, 16, 16], [30, 500, 16, 16], [2, 700, 16, 16]] {
        for mask in [[1, 1, 1, s], [2, 1, 1, s], [2, 3, l, s], [1, 1, l, 1], [1, 3, 1, 1], [1, 1, l, s]] {
            let n = mask.iter().product();
            let mut case = Case::new(batch, heads, heads, [l, s, d, e]);
            let added = numbers(n, 11);
            case.mask = Mask::Kept(mask, added.iter().map(|v| *v > -0.3).collect());
            case.check(&format!("kept {mask:?}"));
            case.mask = Mask::Added(mask, added);
            case.check(&format!("added {mask:?}"));
        }
    }
}

#[test]
fn rows_that_see_nothing() {
    let inf = f32::INFINITY;
    for [l, s] in [[4, 6], [20, 500], [20, 1000]] {
        // Row 1 sees nothing, row 2 only keys of the last block, row 3 none of the last.
        let hidden = |i: usize, j: usize| match i {
            1 => true,
            2 => j + 2 < s,
            3 => j >= 3,
            _ => false,
        };
        let mask: Vec<f32> = (0..l * s).map(|at| if hidden(at / s, at % s) { -inf } else { 0.5 }).collect();
        for empty_row in [EmptyRow::Zero, EmptyRow::NaN] {
            let mut case = Case { empty_row, ..Case::new(1, 2, 2, [l, s, 32, 32]) };
            case.mask = Mask::Kept([1, 1, l, s], mask.iter().map(|v| *v > -inf).collect());
            case.check("kept");
            case.mask = Mask::Added([1, 1, l, s], mask.clone());
            case.check("added");
        }
    }
}

#[test]
fn keys_that_nobody_sees_are_not_read() {
    // The first keys behind which nothing is seen, and in front of which: a cache, and one with a window.
    for ([l, s], seen) in
        [([1, 700], 0..130), ([3, 512], 0..33), ([40, 1500], 0..700), ([5, 1500], 1100..1203)]
    {
        let shows = |i: usize, j: usize| seen.contains(&j) && (j + l < seen.end + i + 1 || i + 1 == l);
        let kept: Vec<bool> = (0..l * s).map(|at| shows(at / s, at % s)).collect();
        let added = kept.iter().map(|k| if *k { 0.25 } else { f32::NEG_INFINITY }).collect();
        for mask in [Mask::Kept([1, 1, l, s], kept), Mask::Added([1, 1, l, s], added)] {
            let case = Case { mask, ..Case::new(1, 2, 2, [l, s, 48, 48]) };
            case.check("hidden");
            let mut strange = case.clone();
            // Whole blocks in front of what is seen, and everything behind it.
            let hidden = |j: usize| j >= seen.end || j + 600 < seen.start;
            for (j, (k, v)) in
                strange.key.values.chunks_mut(48).zip(strange.value.values.chunks_mut(48)).enumerate()
            {
                if hidden(j % s) {
                    (k[1], v[2]) = (f32::NAN, f32::INFINITY);
                }
            }
            for isa in Isa::ALL {
                let bits =
                    |c: &Case| c.run(isa, false).map(|v| v.into_iter().map(f32::to_bits).collect::<Vec<_>>());
                assert_eq!(bits(&case), bits(&strange), "{isa:?} {l} of {s}");
            }
        }
    }
}

#[test]
fn few_rows_meet_what_they_see_one_by_one() {
    // Texts that share a cache in pages, a token of each text in turn; a window; rows that see nothing, or all.
    for [l, s] in [[4, 100], [12, 515], [33, 130]] {
        let pages = |i: usize, j: usize| j / 24 % 4 == i % 4 && j < s - 5;
        let window = |i: usize, j: usize| j + 40 > s - l + i && j <= s - l + i;
        let some = |i: usize, j: usize| match i % 5 {
            0 => false,
            1 => j == s - 1,
            _ => j / 100 % 3 == i % 3,
        };
        let shows: [&dyn Fn(usize, usize) -> bool; 3] = [&pages, &window, &some];
        for shows in shows {
            let kept: Vec<bool> = (0..l * s).map(|at| shows(at / s, at % s)).collect();
            let added: Vec<f32> = kept.iter().map(|k| if *k { 0.25 } else { f32::NEG_INFINITY }).collect();
            for (mask, heads) in [(Mask::Kept([1, 1, l, s], kept), 1), (Mask::Added([1, 1, l, s], added), 3)]
            {
                let case = Case { mask, ..Case::new(1, heads, 1, [l, s, 20, 40]) };
                case.check("little");
                case.check_halves("little");
                Stored::new(case).check("little");
            }
        }
    }
}

#[test]
fn few_rows_do_not_read_what_nobody_sees() {
    let [l, s, width] = [4, 600, 32];
    let shows = |i: usize, j: usize| j / 50 % 6 == i % 4 && !(500..516).contains(&j);
    let kept = (0..l * s).map(|at| shows(at / s, at % s)).collect();
    let case = Case { mask: Mask::Kept([1, 1, l, s], kept), ..Case::new(1, 1, 1, [l, s, width, width]) };
    let mut strange = case.clone();
    for j in
        (0..s).filter(|j| (j / 16 * 16..j / 16 * 16 + 16).all(|j| (0..l).all(|i| j >= s || !shows(i, j))))
    {
        strange.key.values[j * width] = f32::NAN;
        strange.value.values[j * width + 1] = f32::INFINITY;
    }
    for isa in Isa::ALL {
        assert_eq!(case.run(isa, false), strange.run(isa, false), "{isa:?}");
    }
}

#[test]
fn nan_and_infinity_reach_exactly_their_rows() {
    for [l, s] in [[4, 6], [20, 500]] {
        for (special, in_query) in [(f32::NAN, true), (f32::NAN, false), (f32::INFINITY, true)] {
            let mut case = Case::new(1, 1, 1, [l, s, 16, 16]);
            let tensor = if in_query { &mut case.query } else { &mut case.value };
            tensor.values[16 + 3] = special;
            for isa in Isa::ALL {
                let Some(out) = case.run(isa, false) else { continue };
                for (i, v) in out.iter().enumerate() {
                    let hit = if in_query { i / 16 == 1 } else { i % 16 == 3 };
                    assert_eq!(v.is_nan(), hit, "{isa:?} {special} {in_query} element {i}: {v}");
                }
            }
        }
    }
}

#[test]
fn nothing_to_do() {
    for shape in [[0, 4, 8, 8], [4, 0, 8, 8], [4, 4, 0, 8], [4, 4, 8, 0]] {
        Case::new(1, 2, 2, shape).check(&format!("{shape:?}"));
    }
    Case::new(0, 2, 2, [3, 3, 8, 8]).check("no batch");
    Case::new(3, 2, 1, [2, 3, 8, 8]).check("more than one batch");
}

#[test]
fn dynamic_shapes_are_bound_again() {
    for isa in Isa::ALL {
        let large = Case::new(1, 2, 2, [64, 900, 32, 32]);
        let Some(mut call) = large.call(isa) else { continue };
        let small = Case::new(1, 2, 2, [7, 33, 32, 32]);
        call.call().unwrap();
        call.resize(0, &small.query.shape).unwrap();
        call.resize(1, &small.key.shape).unwrap();
        call.resize(2, &small.value.shape).unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, false).unwrap();
        assert_eq!(&*call.shape(4).unwrap(), &[1, 2, 7, 32]);
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let base = Case::new(2, 4, 4, [6, 7, 8, 9]);
    let error = |change: &dyn Fn(&mut Case)| {
        let mut case = base.clone();
        change(&mut case);
        case.call(Isa::Portable).unwrap().bind().unwrap_err().to_string()
    };
    let other = |shape| Logical::new(shape, Axes::HEADS_FIRST, 2);
    assert!(error(&|c| c.key = other([2, 4, 7, 5])).contains("keys of batch 2 with 8 elements"));
    assert!(error(&|c| c.key = other([1, 4, 7, 8])).contains("keys of batch 2"));
    assert!(error(&|c| c.value = other([2, 4, 6, 9])).contains("7 values"));
    let e = error(&|c| {
        c.key = other([2, 3, 7, 8]);
        c.value = other([2, 3, 7, 9]);
    });
    assert!(e.contains("divides the 4 query heads"), "{e}");
    let e = error(&|c| c.mask = Mask::Added([1, 1, 6, 6], vec![0.0; 36]));
    assert!(e.contains("broadcast to [2, 4, 6, 7]"), "{e}");
}
