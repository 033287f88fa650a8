//! Images cut into patches by two permutes with a view between them, and put together again.
//!
//! MobileViT goes from `[n, c, h, w]` to tokens `[n, place in the patch, patch, c]`: a view as `[n · c · rows, ph, columns,
//! pw]`, a permute of the middle dimensions, a view, and a permute that brings the channels to the end. Both permutes move
//! single numbers. The channels move first instead, which costs nothing where the image is channels-last, and what is left
//! of both permutes is one that moves whole pixels.

use super::rows_of_images::{
    is_image_rank, is_plain, only_maker, permute, permuted, replace_by, row_major, to_image, to_rows, view,
};
use crate::graph::{Graph, NodeId, Op, TensorId};
use pteron_core::MAX_RANK;
use smallvec::SmallVec;
use std::ops::Range;

type Extents = SmallVec<[usize; 8]>;

/// Several permutes as one: dimension `i` of the result is dimension `order[i]` of a view of the source with `factors` as
/// its extents.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Merged {
    factors: Extents,
    order: Extents,
}

/// The extents of the coarsest view that both shapes have neighbouring dimensions of; none of them is 1.
fn common_factors(a: &[usize], b: &[usize]) -> Option<Extents> {
    let mut factors = Extents::new();
    let (mut a, mut b) = (a.iter().copied().filter(|n| *n != 1), b.iter().copied().filter(|n| *n != 1));
    let (mut x, mut y) = (a.next(), b.next());
    loop {
        let (m, n) = match (x, y) {
            (None, None) => return Some(factors),
            (Some(m), Some(n)) => (m, n),
            _ => return None,
        };
        let factor = m.min(n);
        if factor == 0 || !m.is_multiple_of(factor) || !n.is_multiple_of(factor) {
            return None;
        }
        factors.push(factor);
        x = if m == factor { a.next() } else { Some(m / factor) };
        y = if n == factor { b.next() } else { Some(n / factor) };
    }
}

/// Which of the factors each dimension of a shape is made of.
fn groups(shape: &[usize], factors: &[usize]) -> Option<SmallVec<[Range<usize>; 8]>> {
    let mut at = 0;
    let group = |extent: &usize| {
        let (start, mut left) = (at, *extent);
        while left != 1 {
            left = left.checked_div(*factors.get(at)?)?;
            at += 1;
        }
        Some(start..at)
    };
    shape.iter().map(group).collect()
}

impl Merged {
    /// A permute of what has the shape `source` by `first`, seen as `between`, permuted by `second`. `None` where they have no
    /// factors in common, or where the file's dimensions are no permutation.
    fn new(source: &[usize], first: &[i64], between: &[usize], second: &[i64]) -> Option<Merged> {
        let shape: Option<Extents> = first.iter().map(|d| source.get(*d as usize).copied()).collect();
        let shape = shape?;
        let middle = common_factors(&shape, between)?;
        let (of_first, of_second) = (groups(&shape, &middle)?, groups(between, &middle)?);
        let mut factors = Extents::new();
        let mut place = Extents::from_elem(0, middle.len());
        for d in 0..source.len() {
            for k in of_first.get(first.iter().position(|from| *from == d as i64)?)?.clone() {
                place[k] = factors.len();
                factors.push(middle[k]);
            }
        }
        let mut order = Extents::new();
        for d in second {
            order.extend(of_second.get(*d as usize)?.clone().map(|k| place[k]));
        }
        let is_permutation = order.len() == factors.len() && (0..factors.len()).all(|k| order.contains(&k));
        is_permutation.then_some(Merged { factors, order })
    }

    /// From the result to the source.
    fn inverse(&self) -> Merged {
        let factors = self.order.iter().map(|k| self.factors[*k]).collect();
        let mut order = Extents::from_elem(0, self.order.len());
        for (i, k) in self.order.iter().enumerate() {
            order[*k] = i;
        }
        Merged { factors, order }
    }

    /// With factors that the dimensions of a shape of the source are made of.
    fn split(&self, shape: &[usize]) -> Option<Merged> {
        let factors = common_factors(&self.factors, shape)?;
        let parts = groups(&self.factors, &factors)?;
        let order = self.order.iter().flat_map(|k| parts[*k].clone()).collect();
        Some(Merged { factors, order })
    }
}

/// What is left of the permutes of an image when its channels have moved to the end.
#[derive(Debug, PartialEq, Eq)]
struct Patches {
    /// The pixels, `[n, h, w, c]`, seen with more dimensions; the channels are one.
    pixels: Extents,
    /// The dimensions that are asked of them for the patches.
    order: SmallVec<[i64; 5]>,
}

impl Patches {
    /// Of a permute whose source is an image of this shape; `None` where the channels do not come last as they are, or nothing
    /// else moves.
    fn new(merged: &Merged, image: &[usize]) -> Option<Patches> {
        let Merged { factors, order } = merged.split(image)?;
        let channels = groups(image, &factors)?.get(1)?.clone();
        let (rest, last) = order.split_at_checked(order.len().checked_sub(channels.len())?)?;
        if channels.is_empty() || !last.iter().copied().eq(channels.clone()) {
            return None;
        }
        let mut pixels: Extents =
            (0..factors.len()).filter(|k| !channels.contains(k)).map(|k| factors[k]).collect();
        pixels.push(*image.get(1)?);
        let place = |k: usize| if k >= channels.end { k - channels.len() } else { k } as i64;
        let mut order: SmallVec<[i64; 5]> = rest.iter().map(|k| place(*k)).collect();
        order.push(order.len() as i64);
        let is_moved = order.iter().enumerate().any(|(i, d)| *d != i as i64);
        (is_moved && pixels.len() <= MAX_RANK).then_some(Patches { pixels, order })
    }

    /// The shape of the patches, one dimension for each factor.
    fn cut(&self) -> Extents {
        self.order.iter().map(|d| self.pixels[*d as usize]).collect()
    }

    /// The dimensions that are asked of the patches for the pixels.
    fn back(&self) -> SmallVec<[i64; 5]> {
        let mut back: SmallVec<[i64; 5]> = SmallVec::from_elem(0, self.order.len());
        for (i, d) in self.order.iter().enumerate() {
            back[*d as usize] = i as i64;
        }
        back
    }
}

/// A permute of the file and what it reads, row-major and of the same shape in every call, as is what it makes.
fn plain_permute(graph: &Graph, id: NodeId) -> Option<(TensorId, SmallVec<[i64; 5]>)> {
    let node = graph.node(id);
    let dims = permuted(graph, node)?;
    let (input, output) = (node.input(0)?, node.output()?);
    [input, output].iter().all(|t| is_plain(&graph.tensor(*t).spec)).then_some((input, dims))
}

/// Lets permutes of patches move whole pixels; returns how many do that now.
pub(super) fn by_pixels(graph: &mut Graph) -> usize {
    let ids: Vec<NodeId> = graph.ids().collect();
    let mut count = 0;
    for id in ids {
        count += usize::from(graph.is_live(id) && (cut(graph, id) || put_together(graph, id)));
    }
    count
}

/// Permutes by whole pixels if `id` is the second permute of an image that is cut into patches; says whether it did.
fn cut(graph: &mut Graph, id: NodeId) -> bool {
    let Some((between, second)) = plain_permute(graph, id) else { return false };
    let Some(patches) = graph.node(id).output().filter(|t| graph.tensor(*t).is_private()) else {
        return false;
    };
    let Some((seen, first)) = only_maker(graph, between).and_then(|maker| plain_permute(graph, maker)) else {
        return false;
    };
    let image = graph.through_views(seen);
    let (spec, shape) = (graph.tensor(patches).spec.clone(), graph.tensor(image).spec.shape);
    let is_image = is_image_rank(shape.len()) && is_plain(&graph.tensor(image).spec);
    if !is_image || !graph.lasts_until(image, &[id]) {
        return false;
    }
    let merged =
        Merged::new(&graph.tensor(seen).spec.shape, &first, &graph.tensor(between).spec.shape, &second);
    let Some(found) = merged.and_then(|m| Patches::new(&m, &shape)) else { return false };
    // What the file says of the result may be wrong, which its own permute finds out.
    if common_factors(&found.cut(), &spec.shape).is_none() {
        return false;
    }
    let dims = to_rows(shape.len());
    let rows = dims.iter().filter_map(|d| shape.get(*d as usize)).copied();
    let (Some(rows), Some(pixels), Some(moved)) = (
        row_major(&spec, rows),
        row_major(&spec, found.pixels.iter().copied()),
        row_major(&spec, found.cut().iter().copied()),
    ) else {
        return false;
    };
    let [a, b, c] = [rows, pixels.clone(), moved].map(|spec| graph.new_tensor(spec));
    let before = [permute(image, &dims, a), view(a, &pixels, b), permute(b, &found.order, c)];
    replace_by(graph, id, before, view(c, &spec, patches))
}

/// Permutes by whole pixels if `id` shows an image that two permutes put together from patches; says whether it did.
fn put_together(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let (Some(flat), Some(image)) = (node.input(0), node.output()) else { return false };
    let spec = graph.tensor(image).spec.clone();
    if node.op != Op::View || !is_image_rank(spec.shape.len()) || !is_plain(&spec) {
        return false;
    }
    if !graph.tensor(image).is_private() {
        return false;
    }
    let permute_behind = |tensor: TensorId| only_maker(graph, tensor).and_then(|p| plain_permute(graph, p));
    let Some((between, second)) = permute_behind(flat) else { return false };
    let Some((patches, first)) = permute_behind(between) else { return false };
    if !graph.lasts_until(patches, &[id]) {
        return false;
    }
    let merged =
        Merged::new(&graph.tensor(patches).spec.shape, &first, &graph.tensor(between).spec.shape, &second);
    let Some(found) = merged.and_then(|m| Patches::new(&m.inverse(), &spec.shape)) else { return false };
    let rows = to_rows(spec.shape.len()).into_iter().filter_map(|d| spec.shape.get(d as usize).copied());
    let (Some(cut), Some(pixels), Some(rows)) = (
        row_major(&spec, found.cut().iter().copied()),
        row_major(&spec, found.pixels.iter().copied()),
        row_major(&spec, rows),
    ) else {
        return false;
    };
    let [a, b, c] = [cut.clone(), pixels, rows.clone()].map(|spec| graph.new_tensor(spec));
    let before = [view(patches, &cut, a), permute(a, &found.back(), b), view(b, &rows, c)];
    replace_by(graph, id, before, permute(c, &to_image(spec.shape.len()), image))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(source: &[usize], first: &[i64], between: &[usize], second: &[i64]) -> Merged {
        Merged::new(source, first, between, second).unwrap()
    }

    #[test]
    fn two_permutes_are_one_of_more_dimensions() {
        // MobileViT: 2 x 2 patches of 32 x 32 pixels, 144 channels.
        let found = merged(&[2304, 2, 16, 2], &[0, 2, 1, 3], &[1, 144, 256, 4], &[0, 3, 2, 1]);
        assert_eq!(*found.factors, [144, 16, 2, 16, 2]);
        assert_eq!(*found.order, [2, 4, 1, 3, 0]);
        assert_eq!(found.inverse().inverse(), found);
        let patches = Patches::new(&found, &[1, 144, 32, 32]).unwrap();
        assert_eq!((&*patches.pixels, &*patches.order), (&[16, 2, 16, 2, 144][..], &[1, 3, 0, 2, 4][..]));
        assert_eq!((&*patches.cut(), &*patches.back()), (&[2, 2, 16, 16, 144][..], &[2, 0, 3, 1, 4][..]));
    }

    #[test]
    fn what_is_merged_moves_every_number_as_the_permutes_do() {
        let permute = |x: &[usize], shape: &[usize], dims: &[i64]| -> Vec<usize> {
            let strides: Vec<usize> = (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect();
            let out: Vec<usize> = dims.iter().map(|d| shape[*d as usize]).collect();
            (0..x.len())
                .map(|i| {
                    let mut rest = i;
                    let at: Vec<usize> = out
                        .iter()
                        .rev()
                        .map(|n| {
                            let place = rest % n;
                            rest /= n;
                            place
                        })
                        .collect();
                    x[dims.iter().zip(at.iter().rev()).map(|(d, p)| p * strides[*d as usize]).sum::<usize>()]
                })
                .collect()
        };
        for (source, first, between, second) in [
            (&[12, 2, 3, 2][..], &[0, 2, 1, 3][..], &[2, 6, 3, 4][..], &[0, 3, 2, 1][..]),
            (&[4, 9, 5], &[1, 0, 2], &[3, 3, 20], &[2, 0, 1]),
            (&[6, 1, 4], &[2, 1, 0], &[2, 2, 6], &[1, 2, 0]),
        ] {
            let x: Vec<usize> = (0..source.iter().product()).collect();
            let want = permute(&permute(&x, source, first), between, second);
            let found = merged(source, first, between, second);
            let order: Vec<i64> = found.order.iter().map(|k| *k as i64).collect();
            assert_eq!(permute(&x, &found.factors, &order), want, "{source:?}");
        }
    }

    #[test]
    fn dimensions_of_a_file_that_are_no_permutation_stay() {
        for (first, second) in [
            (&[0, 2, 1, 3][..], &[0, 3, 3, 1][..]),
            (&[0, 2, 1, 3], &[0, 3]),
            (&[0, 2, 1, 3], &[0, 3, 2, 1, 1]),
            (&[0, 2, 1, 3], &[0, 3, 2, -7]),
            (&[0, 2, 2, 3], &[0, 3, 2, 1]),
            (&[0, 2, 1, 9], &[0, 3, 2, 1]),
        ] {
            let found = Merged::new(&[2304, 2, 16, 2], first, &[1, 144, 256, 4], second);
            assert_eq!(found, None, "{first:?} {second:?}");
        }
    }

    #[test]
    fn shapes_without_common_factors_stay() {
        assert_eq!(common_factors(&[6, 4], &[4, 6]), None);
        assert_eq!(common_factors(&[6, 0], &[0, 6]), None);
        assert_eq!(common_factors(&[1, 6, 1], &[2, 1, 3]).as_deref(), Some(&[2, 3][..]));
        // Channels that do not come last, and a permute of whole images.
        let found = merged(&[4, 6, 8], &[0, 2, 1], &[4, 8, 6], &[1, 0, 2]);
        assert_eq!(Patches::new(&found, &[1, 4, 6, 8]), None);
        let rows = merged(&[4, 6, 8], &[1, 0, 2], &[6, 4, 8], &[0, 2, 1]);
        assert_eq!(Patches::new(&rows, &[1, 4, 6, 8]), None);
    }
}
