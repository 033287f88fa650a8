//! col2im of row-major floats: a line of the image is the sum of lines of columns, which it finds for itself. Every pixel
//! adds up its elements in the order of the patch's elements, as the plain kernel does, and is rounded once.

use super::{Patches, bind_col2im, of_columns};
use crate::chunk::CHUNK;
use crate::compute::{BLOCK, Compute};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::{Float, by_float};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{BindArgs, Error, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

const OUT: usize = 6;

struct Lines<T> {
    level: SimdLevel,
    element: PhantomData<T>,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_alike =
        input.dtype == out.dtype && input.dim_order.is_contiguous() && out.dim_order.is_contiguous();
    if !is_alike {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    by_float!(ctx, input.dtype, lines(ctx))
}

fn lines<T: Float>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("col2im.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Lines::<T> { level, element: PhantomData })
}

impl<T: Float> UnitKernel for Lines<T> {
    /// Units are lines of all images.
    type Problem = Patches;

    fn bind(&self, args: &mut BindArgs<'_>, patches: &mut Patches) -> Result<Split> {
        bind_col2im(args)?;
        *patches = of_columns(&args.args())?;
        let (numel, width) = (args.args().output(OUT)?.numel(), patches.size[1] as usize);
        // Additions for each pixel, about.
        let work = args.args().tensor(0)?.numel() as f64 / numel.max(1) as f64;
        Ok(Split::sized(numel / width, width, CHUNK, 0.5 + 0.2 * work))
    }

    fn run(&self, patches: &Patches, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.level.dispatch_narrow(Task::<T> {
            patches: *patches,
            lines: chunk.units.clone(),
            columns: chunk.input(0)?.as_slice()?,
            out: chunk.output_units(OUT, patches.size[1] as usize)?.into_slice()?,
        })
    }
}

struct Task<'a, T> {
    patches: Patches,
    lines: Range<usize>,
    columns: &'a [T],
    out: &'a mut [T],
}

impl<T: Float> SimdTask for Task<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Result<()> {
        let outside = || Error::internal("columns would leave their tensor");
        let [height, width] = self.patches.size.map(|n| n as usize);
        let per_plane = self.columns.len() / (self.patches.batch * self.patches.channels).max(1);
        let mut sums = [T::Sum::ZERO; BLOCK];
        for (line, out) in self.lines.zip(self.out.chunks_exact_mut(width)) {
            let (plane, y) = (line / height, line % height);
            let columns = self.columns.get(plane * per_plane..(plane + 1) * per_plane).ok_or_else(outside)?;
            for (i, out) in out.chunks_mut(BLOCK).enumerate() {
                let sums = &mut sums[..out.len()];
                sums.fill(T::Sum::ZERO);
                add_lines(&self.patches, columns, [y as i64, (i * BLOCK) as i64], sums)
                    .ok_or_else(outside)?;
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = T::rounded(*sum);
                }
            }
        }
        Ok(())
    }
}

/// Adds what the patches of an image have for the pixels from (y, x) on.
#[inline(always)]
fn add_lines<T: Float>(
    patches: &Patches,
    columns: &[T],
    [y, x]: [i64; 2],
    sums: &mut [T::Sum],
) -> Option<()> {
    let Patches { kernel, dilation, padding, stride, count, .. } = *patches;
    for down in 0..kernel[0] {
        // The patches whose element `down` lies in this line.
        let from = y + padding[0] - down * dilation[0];
        let row = from / stride[0];
        if from < 0 || from % stride[0] != 0 || row >= count[0] {
            continue;
        }
        for across in 0..kernel[1] {
            let left = across * dilation[1] - padding[1] - x;
            // The patches whose element lies among the sums: left + i · stride is in 0..their number.
            let first_beyond = |x: i64| (x - left + stride[1] - 1).div_euclid(stride[1]).clamp(0, count[1]);
            let (first, end) = (first_beyond(0), first_beyond(sums.len() as i64));
            if first >= end {
                continue;
            }
            let at = ((down * kernel[1] + across) * count[0] + row) * count[1] + first;
            let from = columns.get(at as usize..)?.get(..(end - first) as usize)?;
            let to = sums.get_mut((left + first * stride[1]) as usize..)?;
            if stride[1] == 1 {
                to.iter_mut().zip(from).for_each(|(sum, v)| *sum += v.wide());
            } else {
                to.iter_mut().step_by(stride[1] as usize).zip(from).for_each(|(sum, v)| *sum += v.wide());
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use half::{bf16, f16};
    use pteron_core::{Element, Isa, TensorSpec};

    /// Batch, channels, height, width; kernel, dilation, padding, stride in both directions.
    type Case = ([usize; 4], [[i64; 2]; 4]);

    const CASES: [Case; 7] = [
        ([2, 3, 9, 13], [[3, 3], [1, 1], [1, 1], [1, 1]]),
        ([1, 2, 10, 17], [[3, 2], [2, 3], [2, 0], [2, 3]]),
        ([3, 1, 4, 5], [[4, 5], [1, 1], [0, 0], [1, 1]]),
        // Taps that see nothing but the margin.
        ([1, 2, 3, 2], [[2, 3], [4, 5], [5, 9], [1, 2]]),
        // More pixels in a line than are summed at once.
        ([1, 1, 2, 600], [[1, 4], [1, 1], [0, 3], [1, 1]]),
        ([1, 1, 1, 531], [[1, 3], [1, 2], [0, 1], [1, 2]]),
        ([0, 3, 6, 6], [[2, 2], [1, 1], [0, 0], [2, 2]]),
    ];

    fn shape_of((shape, lists): Case) -> [usize; 3] {
        let count = |d: usize| {
            let [kernel, dilation, padding, stride] = lists.map(|list| list[d]);
            (shape[2 + d] as i64 + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
        };
        [shape[0], shape[1] * (lists[0][0] * lists[0][1]) as usize, (count(0) * count(1)) as usize]
    }

    fn run<T: Element>(variant: &str, isa: Isa, is_batched: bool, case: Case, x: &[T]) -> Option<Vec<u8>> {
        let (shape, lists) = case;
        let from = usize::from(!is_batched);
        let mut args = vec![CallArg::Tensor(HostTensor::new(&shape_of(case)[from..], x).unwrap())];
        args.push(CallArg::Ints(vec![shape[2] as i64, shape[3] as i64]));
        args.extend(lists.map(|list| CallArg::Ints(list.to_vec())));
        // What is in the output before counts for nothing.
        let spec = TensorSpec::contiguous(T::DTYPE, &shape[from..]).unwrap();
        let ones = vec![1; spec.nbytes().unwrap()];
        args.push(CallArg::Tensor(HostTensor::of_bytes(&spec, &ones).unwrap()));
        let prepare = prepare_of("aten::col2im.out", variant);
        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        Some(call.output_bytes(6).unwrap().to_vec())
    }

    fn check<T: Element>(of: impl Fn(f32) -> T) {
        for case in CASES {
            let n: usize = shape_of(case).iter().product();
            let mut x: Vec<T> = numbers(n, 7).into_iter().map(&of).collect();
            for (slot, edge) in x.iter_mut().skip(3).step_by(11).zip([-0.0, f32::INFINITY, -0.0]) {
                *slot = of(edge);
            }
            for isa in Isa::ALL {
                for is_batched in [true, false] {
                    if !is_batched && case.0[0] != 1 {
                        continue;
                    }
                    let Some(got) = run("lines", isa, is_batched, case, &x) else { continue };
                    let want = run("reference", Isa::Portable, is_batched, case, &x).unwrap();
                    assert!(got == want, "{:?} {isa:?} {case:?}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn sums_of_every_float_as_the_plain_kernel_has_them() {
        check(|v| v);
        check(f64::from);
        check(f16::from_f32);
        check(bf16::from_f32);
    }

    #[test]
    fn sixteen_bits_are_rounded_once() {
        // The pixel in the middle is 256 + 1 + 1: each addition alone would lose the one.
        let x = [0.0, 0.0, 256.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0].map(bf16::from_f32);
        let case = ([1, 1, 1, 3], [[1, 3], [1, 1], [0, 1], [1, 1]]);
        let want: Vec<u8> =
            [0.0, 258.0, 0.0].iter().flat_map(|v| bf16::from_f32(*v).to_bits().to_le_bytes()).collect();
        for variant in ["lines", "reference"] {
            assert_eq!(run(variant, Isa::Portable, false, case, &x).unwrap(), want, "{variant}");
        }
    }
}
