//! Which input pixels a resampled pixel lies between, rounded to float32 step by step as PyTorch does it.

use pteron_core::{Args, Error, Result};

/// Where the arguments of an overload stand; the input is argument 0, the output size argument 1.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Do corner pixels keep their places?
    pub align: usize,
    /// A list of scale factors, or the first of two single ones.
    pub factors: usize,
    /// Are the factors a list?
    pub is_list: bool,
    /// The output.
    pub out: usize,
}

/// Extents and scales of one call; (vertical, horizontal) pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampling {
    /// Input extents, not zero.
    pub input: [usize; 2],
    /// Output extents, not zero.
    pub output: [usize; 2],
    steps: [f32; 2],
    is_aligned: bool,
}

/// Two neighbouring input positions and the weight of the second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Neighbours {
    /// The position at or before.
    pub first: usize,
    /// The one after it, or the last one.
    pub second: usize,
    /// From 0 to 1.
    pub weight: f32,
}

impl Sampling {
    /// The extents and scales that the arguments of a call ask for; an error when sizes or factors do not
    /// make sense.
    pub fn of(args: &Args<'_>, form: Form) -> Result<Self> {
        let shape = args.tensor(0)?.shape();
        let [h, w] = match shape[..] {
            [_, c, h, w] if c.min(h).min(w) > 0 => [h, w],
            _ => {
                return Err(Error::kernel("the input must be [N, C, H, W] with pixels")
                    .argument("input")
                    .got(shape.to_string()));
            }
        };
        let wrong =
            |name: &str| Error::kernel("two extents or two positive factors are needed").argument(name);
        let factors = if form.is_list {
            match args.optional_double_list(form.factors)? {
                Some(&[h, w]) => [Some(h), Some(w)],
                Some(_) => return Err(wrong("scale_factors")),
                None => [None, None],
            }
        } else {
            [args.optional_double(form.factors)?, args.optional_double(form.factors + 1)?]
        };
        if factors.iter().flatten().any(|f| !(f.is_finite() && *f > 0.0)) {
            return Err(wrong("scale_factors"));
        }
        let output = match (args.optional_int_list(1)?, factors) {
            (Some(list), _) => match *list.to_dims()? {
                [h, w] => [h, w],
                _ => return Err(wrong("output_size")),
            },
            (None, [Some(fh), Some(fw)]) => [(h as f64 * fh) as usize, (w as f64 * fw) as usize],
            _ => return Err(wrong("output_size")),
        };
        if output.contains(&0) {
            return Err(Error::kernel("the output would be empty")
                .argument("output_size")
                .got(format!("{output:?}")));
        }
        let (input, is_aligned) = ([h, w], args.bool(form.align)?);
        let step = |d: usize| match (is_aligned, factors[d]) {
            (true, _) if output[d] > 1 => ((input[d] as f64 - 1.0) / (output[d] as f64 - 1.0)) as f32,
            (true, _) => 0.0,
            (false, Some(factor)) => (1.0 / factor) as f32,
            (false, None) => input[d] as f32 / output[d] as f32,
        };
        Ok(Sampling { input, output, steps: [step(0), step(1)], is_aligned })
    }

    /// The input positions around output `o` along dimension `d`.
    #[inline]
    pub fn neighbours(&self, d: usize, o: usize) -> Neighbours {
        let step = self.steps[d];
        let at = match self.is_aligned {
            true => step * o as f32,
            // Rounded once, as PyTorch's compilers fuse it.
            false => ((f64::from(step) * (o as f64 + 0.5) - 0.5) as f32).max(0.0),
        };
        let last = self.input[d].saturating_sub(1);
        let first = (at as usize).min(last);
        let weight = (at - first as f32).clamp(0.0, 1.0);
        Neighbours { first, second: (first + 1).min(last), weight }
    }
}
