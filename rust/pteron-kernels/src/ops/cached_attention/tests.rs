use super::*;
use crate::testing::{Arg, Tensor, call, error_text, numbers};
use half::bf16;

const SDPA: &str = "llama::custom_sdpa.out";
const WITH_CACHES: &str = "llama::sdpa_with_kv_cache.out";

/// Of one sequence: queries, keys, heads, key heads, depth.
#[derive(Clone, Copy)]
struct Case {
    rows: usize,
    capacity: usize,
    heads: usize,
    key_heads: usize,
    depth: usize,
    start: i64,
    is_causal: bool,
}

const CASE: Case = Case { rows: 3, capacity: 8, heads: 4, key_heads: 2, depth: 5, start: 2, is_causal: true };

impl Case {
    fn values(&self, rows: usize, heads: usize, seed: u64) -> Vec<f32> {
        numbers(rows * heads * self.depth, seed).iter().map(|v| v / 4.0).collect()
    }

    fn tensors(&self) -> [Tensor; 3] {
        let tensor =
            |rows, heads, seed| Tensor::of(&[1, rows, heads, self.depth], &self.values(rows, heads, seed));
        [
            tensor(self.rows, self.heads, 1),
            tensor(self.capacity, self.key_heads, 2),
            tensor(self.capacity, self.key_heads, 3),
        ]
    }

    fn settings(&self, mask: Option<Tensor>) -> [Arg; 4] {
        [mask.map_or(Arg::None, Arg::Tensor), 0.0.into(), self.is_causal.into(), Arg::None]
    }

    fn call(&self, tensors: [Tensor; 3], mask: Option<Tensor>) -> Result<Tensor> {
        let out = Tensor::output(tensors[0].spec.dtype, tensors[0].shape());
        let mut args: Vec<Arg> = tensors.into_iter().map(Arg::Tensor).collect();
        args.push(self.start.into());
        args.extend(self.settings(mask));
        args.push(out.into());
        match call(SDPA, &args)?.pop() {
            Some(Arg::Tensor(out)) => Ok(out),
            _ => panic!("no tensor"),
        }
    }

    /// In f64, over the first `keys` keys.
    fn expected(&self, keys: usize, mask: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let [q, k, v] = self.tensors().map(|t| t.values::<f32>());
        let line = |of: &[f32], row: usize, heads: usize, head: usize| -> Vec<f64> {
            of[(row * heads + head) * self.depth..][..self.depth].iter().map(|x| f64::from(*x)).collect()
        };
        let mut out = Vec::new();
        for row in 0..self.rows {
            for head in 0..self.heads {
                let (q, key_head) = (line(&q, row, self.heads, head), head / (self.heads / self.key_heads));
                let weights: Vec<f64> = (0..keys)
                    .map(|j| {
                        let k = line(&k, j, self.key_heads, key_head);
                        let score: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
                        (score / (self.depth as f64).sqrt() + mask(row, j)).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..self.depth).map(|d| {
                    let at = |j: usize| line(&v, j, self.key_heads, key_head)[d];
                    weights.iter().enumerate().map(|(j, w)| w / sum * at(j)).sum::<f64>()
                }));
            }
        }
        out
    }
}

fn assert_near(got: &[f32], expected: &[f64], within: f64) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((f64::from(*got) - expected).abs() <= within, "{got} {expected}");
    }
}

#[test]
fn keys_behind_the_filled_part_do_not_count() {
    for start in [0, 2, 5] {
        let case = Case { start, ..CASE };
        let hidden = |row: usize, key: usize| match key > row + start as usize {
            true => f64::NEG_INFINITY,
            false => 0.0,
        };
        let [query, mut key, mut value] = case.tensors();
        let filled = (start as usize + case.rows) * case.key_heads * case.depth * 4;
        // NaN: what is not filled is not read.
        key.bytes[filled..].fill(0xff);
        value.bytes[filled..].fill(0xff);
        let got = case.call([query, key, value], None).unwrap().values::<f32>();
        assert_near(&got, &case.expected(case.rows + start as usize, hidden), 1e-5);
    }
}

#[test]
fn all_filled_keys_count_where_a_call_is_not_causal() {
    let case = Case { is_causal: false, heads: 2, ..CASE };
    let got = case.call(case.tensors(), None).unwrap().values::<f32>();
    assert_near(&got, &case.expected(5, |_, _| 0.0), 1e-5);
}

#[test]
fn a_mask_covers_the_whole_cache() {
    let case = Case { is_causal: false, start: 0, ..CASE };
    let mask = numbers(case.rows * case.capacity, 9);
    let at = |row: usize, key: usize| f64::from(mask[row * case.capacity + key]);
    let tensor = Tensor::of(&[case.rows, case.capacity], &mask);
    let got = case.call(case.tensors(), Some(tensor)).unwrap().values::<f32>();
    assert_near(&got, &case.expected(case.capacity, at), 1e-5);
    let nothing = Tensor::of(&[case.rows, case.capacity], &[f32::NEG_INFINITY; 24]);
    assert!(case.call(case.tensors(), Some(nothing)).unwrap().values::<f32>().iter().all(|v| v.is_nan()));
}

#[test]
fn halves_are_computed_in_float32() {
    let rounded = CASE.tensors().map(|t| {
        let values: Vec<bf16> = t.values::<f32>().into_iter().map(bf16::from_f32).collect();
        Tensor::of(t.shape(), &values)
    });
    let got: Vec<f32> =
        CASE.call(rounded, None).unwrap().values::<bf16>().iter().map(|v| v.to_f32()).collect();
    let hidden = |row: usize, key: usize| if key > row + 2 { f64::NEG_INFINITY } else { 0.0 };
    assert_near(&got, &CASE.expected(5, hidden), 2e-2);
}

#[test]
fn calls_that_the_operator_does_not_have_are_refused() {
    let refused = |case: Case, mask: Option<Tensor>, text: &str| {
        let got = error_text(case.call(case.tensors(), mask));
        assert!(got.contains(text), "{got}");
    };
    for start in [-1, 6, i64::MAX] {
        refused(Case { start, ..CASE }, None, "no room");
    }
    refused(Case { heads: 3, ..CASE }, None, "belong together");
    refused(CASE, Some(Tensor::of(&[3, 8], &[0f32; 24])), "not both");
    let case = Case { is_causal: false, ..CASE };
    refused(case, Some(Tensor::of(&[3, 5], &[0f32; 15])), "the mask has a wrong shape");
    refused(case, Some(Tensor::of(&[3, 8], &[0f64; 24])), "dtype");
    refused(case, Some(Tensor::of(&[1, 3, 8], &[0f32; 24])), "rank");
    let doubles = CASE.tensors().map(|t| Tensor::of(t.shape(), &vec![0f64; t.values::<f32>().len()]));
    assert!(error_text(CASE.call(doubles, None)).contains("float32, float16 or bfloat16"));
}

#[test]
fn caches_are_written_before_they_are_read() {
    let [query, key, value] = CASE.tensors();
    let new = |seed| Tensor::of(&[1, 3, 2, 5], &CASE.values(3, 2, seed));
    let with_caches = |length: i64| {
        let mut args: Vec<Arg> = [query.clone(), new(7), new(8), key.clone(), value.clone()]
            .into_iter()
            .map(Arg::Tensor)
            .collect();
        args.extend([CASE.start.into(), length.into()]);
        args.extend(CASE.settings(None));
        args.push(Tensor::output(DType::Float32, query.shape()).into());
        call(WITH_CACHES, &args)
    };
    let tensor = |args: &[Arg], i: usize| match &args[i] {
        Arg::Tensor(t) => t.clone(),
        _ => panic!("no tensor"),
    };
    let done = with_caches(3).unwrap();
    for (cache, before, seed) in [(3, &key, 7), (4, &value, 8)] {
        let mut expected = before.values::<f32>();
        expected[20..50].copy_from_slice(&CASE.values(3, 2, seed));
        assert_eq!(tensor(&done, cache).values::<f32>(), expected);
    }
    let separate = CASE.call([query.clone(), tensor(&done, 3), tensor(&done, 4)], None).unwrap();
    assert_eq!(tensor(&done, 11).values::<f32>(), separate.values::<f32>());
    assert!(error_text(with_caches(2)).contains("seq_len"));
}
