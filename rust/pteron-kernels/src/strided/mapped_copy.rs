//! Copies in which every index along a dimension of the output names an index of the input: nearest
//! resampling, mirrored padding, index_select, roll, repeat. Unsafe island.
//!
//! A first phase lists the input's offsets once per dimension and checks them; a second one copies the
//! output in memory order. Rows move as blocks where the list runs on by ones, and a row that shows what the
//! row before it shows is a copy of that row. A vector has one row: every chunk lists its own part of it.

use crate::chunk::{CHUNK, part};
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared, take_scratch};
use crate::strided::copy::{by_size, copy_run};
use crate::strided::loops::signed;
use pteron_core::{Args, BindArgs, Dims, Error, Grid, MAX_RANK, PrepareContext, Result, Scratch, TensorView};

/// Which dimensions are listed, and the input as the output's dimensions see it.
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    /// Shape of the output.
    pub shape: Dims,
    /// Bit `d`: the indices along dimension `d` are listed; along the others they are the output's own.
    pub listed: u32,
    /// Extents of the input; an extent of one is repeated where its dimension is not listed.
    pub extents: [usize; MAX_RANK],
    /// Strides of the input, in elements.
    pub strides: [isize; MAX_RANK],
}

impl Mapping {
    /// Dimensions of `x` seen by an output of `shape` whose last dimensions are those of `x`.
    pub fn new(x: &TensorView<'_>, shape: Dims, listed: u32) -> Mapping {
        let lead = shape.len().saturating_sub(x.rank());
        let mut extents = [1; MAX_RANK];
        extents[lead..lead + x.rank()].copy_from_slice(x.shape());
        let mut strides = signed(x.strides());
        strides.rotate_right(lead);
        Mapping { shape, listed, extents, strides }
    }
}

/// Says which dimensions are listed; called when shapes are bound.
pub type MapFn = fn(&Args<'_>) -> Result<Mapping>;

/// Lists the input's index for the indices from `first` on along dimension `d` of the output.
pub type ListFn = fn(&Args<'_>, d: usize, first: usize, list: &mut [usize]) -> Result<()>;

/// One loop of the copy.
#[derive(Debug, Clone, Copy)]
struct Level {
    extent: usize,
    /// Input elements from index to index; of no use where the indices are listed.
    stride: usize,
    /// The output's dimension and where its list starts.
    list: Option<(usize, usize)>,
}

const POINT: Level = Level { extent: 1, stride: 0, list: None };

/// A bound call: loops in the memory order of the output, outermost first; there are two at least.
#[derive(Debug, Clone, Copy)]
struct MappedLoops {
    levels: [Level; MAX_RANK + 2],
    rank: usize,
    numel: usize,
    extents: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl MappedLoops {
    const EMPTY: MappedLoops = MappedLoops {
        levels: [POINT; MAX_RANK + 2],
        rank: 0,
        numel: 0,
        extents: [0; MAX_RANK],
        strides: [0; MAX_RANK],
    };

    fn new(map: &Mapping, x: &TensorView<'_>, order: &[u8]) -> Result<MappedLoops> {
        let mut plan = MappedLoops { rank: 2, numel: map.shape.numel()?, ..MappedLoops::EMPTY };
        (plan.extents, plan.strides) = (map.extents, map.strides);
        if plan.numel == 0 {
            return Ok(plan);
        }
        // The output has elements, so an input without any is empty along a listed dimension.
        let is_listed = |d: &usize| map.listed & 1 << d != 0;
        if let Some(d) = (0..map.shape.len()).filter(is_listed).find(|d| map.extents[*d] == 0) {
            return Err(Error::kernel("an index into a dimension without elements")
                .expected(format!("no indices along dimension {d}"))
                .got(format!("{} indices", map.shape[d])));
        }
        let mut reach = 0usize;
        for (extent, stride) in map.extents.iter().zip(&map.strides).take(map.shape.len().max(1)) {
            let far = usize::try_from(*stride).ok().and_then(|s| extent.checked_sub(1)?.checked_mul(s));
            reach = far
                .and_then(|far| reach.checked_add(far))
                .filter(|reach| *reach < x.numel())
                .ok_or_else(|| Error::internal("a mapped copy would leave its tensor"))?;
        }
        let mut used = 0;
        // A listed index of a tensor without dimensions is checked like any other.
        let dims =
            order.iter().map(|d| usize::from(*d)).chain((order.is_empty() && map.listed != 0).then_some(0));
        for d in dims {
            let extent = map.shape.get(d).copied().unwrap_or(1);
            let level = if map.listed & 1 << d != 0 {
                let list = Some((d, used));
                used += list_room(extent);
                Level { extent, stride: 0, list }
            } else if extent == 1 && map.extents[d] >= 1 {
                continue;
            } else if map.extents[d] == 1 {
                Level { extent, stride: 0, list: None }
            } else if extent <= map.extents[d] {
                Level { extent, stride: map.strides[d] as usize, list: None }
            } else {
                return Err(Error::internal("a mapped copy would leave its tensor"));
            };
            plan.push(level);
        }
        Ok(plan)
    }

    fn push(&mut self, level: Level) {
        let last = &mut self.levels[self.rank - 1];
        if last.list.is_none() && level.list.is_none() && last.stride == level.stride * level.extent {
            last.extent *= level.extent;
            last.stride = level.stride;
        } else {
            self.levels[self.rank] = level;
            self.rank += 1;
        }
    }
}

/// Words that the list of a dimension takes: its entries, the number of blocks and three words for each.
fn list_room(extent: usize) -> usize {
    extent.saturating_add(extent / 2).saturating_add(1)
}

/// Blocks are worth it for an eighth as many of them as entries.
fn most_blocks(extent: usize) -> usize {
    extent / 8
}

struct MappedCopy {
    map: MapFn,
    list: ListFn,
    out: usize,
    element: usize,
    /// Is the output a vector?
    is_vector: bool,
    scratch: Scratch,
}

/// Prepares a mapped copy of argument 0 to the output at `out`, which has the same dtype.
pub fn prepare(ctx: &PrepareContext<'_>, out: usize, map: MapFn, list: ListFn) -> Preparation {
    let spec = ctx.tensor(out).ok_or_else(|| Error::kernel(format!("argument {out} has the wrong kind")))?;
    let is_vector = spec.shape.len() == 1;
    let words = match is_vector {
        true => list_room(CHUNK),
        false => spec.shape.iter().fold(list_room(1), |sum, n| sum.saturating_add(list_room(*n))),
    };
    let bytes = words
        .checked_mul(size_of::<usize>())
        .ok_or_else(|| Error::limit("a dimension is too long").got(spec.shape.to_string()))?;
    let scratch = match is_vector {
        true => Scratch { per_worker: bytes, shared: 0 },
        false => Scratch { per_worker: 0, shared: bytes },
    };
    prepared(
        "reference.mapped_copy",
        MappedCopy { map, list, out, element: spec.dtype.size(), is_vector, scratch },
    )
}

impl MappedCopy {
    /// Fills the list of a level, as offsets, and finds its blocks.
    ///
    /// # Safety
    /// `lists` is writable for the room of all lists.
    unsafe fn fill(
        &self,
        args: &Args<'_>,
        plan: &MappedLoops,
        level: &Level,
        lists: *mut usize,
    ) -> Result<()> {
        let Some((d, start)) = level.list else { return Ok(()) };
        // SAFETY: the list lies in its room.
        let room = unsafe { std::slice::from_raw_parts_mut(lists.add(start), list_room(level.extent)) };
        self.fill_part(args, plan, (d, 0), room.split_at_mut(level.extent))
    }

    /// Lists the indices from `first` on along dimension `d`, as offsets, and finds the blocks.
    fn fill_part(
        &self,
        args: &Args<'_>,
        plan: &MappedLoops,
        (d, first): (usize, usize),
        (list, blocks): (&mut [usize], &mut [usize]),
    ) -> Result<()> {
        (self.list)(args, d, first, list)?;
        let (extent, stride) = (plan.extents[d], plan.strides[d] as usize);
        for entry in list.iter_mut() {
            if *entry >= extent {
                return Err(Error::internal("a mapped copy would leave its tensor").got(entry.to_string()));
            }
            *entry *= stride;
        }
        find_blocks(list, blocks);
        Ok(())
    }

    /// A part of a vector.
    fn copy_part(
        &self,
        args: &Args<'_>,
        plan: &MappedLoops,
        range: std::ops::Range<usize>,
        scratch: &mut [u8],
    ) -> Result<()> {
        let n = range.len();
        let room: &mut [usize] = take_scratch(&mut &mut *scratch, list_room(n))?;
        let (list, blocks) = room.split_at_mut(n);
        let level = if plan.levels[plan.rank - 1].list.is_some() {
            self.fill_part(args, plan, (0, range.start), (list, blocks))?;
            Level { extent: n, stride: 0, list: Some((0, 0)) }
        } else {
            plan.levels[plan.rank - 1]
        };
        let at = if level.list.is_some() { 0 } else { range.start };
        let (from, to) = (args.tensor(0)?.as_ptr(), args.output(self.out)?.as_ptr());
        let lists = room.as_ptr();
        // SAFETY: the list was checked just now, `Plan::new` checked everything else.
        unsafe {
            let to = to.add(range.start * self.element);
            by_size!(self.element, T => copy_row::<T>(&level, lists, from.cast(), to.cast(), at, n));
        }
        Ok(())
    }
}

/// Writes to `blocks` how many there are (0: too many to be of use), then start, length and offset of each.
fn find_blocks(list: &[usize], blocks: &mut [usize]) {
    let (most, mut count, mut start) = (most_blocks(list.len()), 0, 0);
    blocks[0] = 0;
    for i in 1..=list.len() {
        if i < list.len() && list[i] == list[i - 1] + 1 {
            continue;
        }
        if count == most {
            return;
        }
        blocks[1 + 3 * count..4 + 3 * count].copy_from_slice(&[start, i - start, list[start]]);
        (count, start) = (count + 1, i);
    }
    blocks[0] = count;
}

impl GridKernel for MappedCopy {
    type Problem = MappedLoops;

    fn scratch(&self) -> Scratch {
        self.scratch
    }

    fn new_problem(&self) -> MappedLoops {
        MappedLoops::EMPTY
    }

    fn bind(&self, args: &mut BindArgs<'_>, plan: &mut MappedLoops) -> Result<Grid> {
        let map = (self.map)(&args.args())?;
        args.resize(self.out, &map.shape)?;
        let view = args.args();
        let out = view.output(self.out)?;
        *plan = MappedLoops::new(&map, &view.tensor(0)?, out.meta().dim_order().as_slice())?;
        let chunk_ns = CHUNK.min(plan.numel) * self.element / 8;
        let lists = usize::from(!self.is_vector);
        Ok(Grid::phases(&[lists, plan.numel.div_ceil(CHUNK)], chunk_ns))
    }

    fn run(&self, plan: &MappedLoops, chunk: Part<'_>) -> Result<()> {
        let (args, lists) = (chunk.args, chunk.scratch.shared.cast::<usize>());
        if chunk.phase == 0 {
            // SAFETY: the shared scratch has room for the lists of the largest shape, as `prepare` asked for.
            return plan.levels[..plan.rank]
                .iter()
                .try_for_each(|level| unsafe { self.fill(args, plan, level, lists) });
        }
        let range = part(chunk.chunk, CHUNK, plan.numel);
        if self.is_vector {
            return self.copy_part(args, plan, range, chunk.scratch.worker);
        }
        let (from, to) = (args.tensor(0)?.as_ptr(), args.output(self.out)?.as_ptr());
        // SAFETY: the first phase checked every list, `Plan::new` everything else.
        unsafe {
            by_size!(self.element, T => copy::<T>(plan, lists, from.cast(), to.cast(), range));
        }
        Ok(())
    }
}

impl Level {
    /// Input offset of index `i`.
    ///
    /// # Safety
    /// `lists` holds the checked list of this level.
    #[inline(always)]
    unsafe fn offset(&self, lists: *const usize, i: usize) -> usize {
        match self.list {
            // SAFETY: `i` is an index of the list.
            Some((_, start)) => unsafe { *lists.add(start + i) },
            None => i * self.stride,
        }
    }
}

/// Copies the positions of `range`, in memory order of the output.
///
/// # Safety
/// `lists` holds the checked lists of `plan`; `from` and `to` are the tensors that it was made for.
unsafe fn copy<T: Copy>(
    plan: &MappedLoops,
    lists: *const usize,
    from: *const T,
    to: *mut T,
    range: std::ops::Range<usize>,
) {
    let (outer, middle, inner) = (plan.rank - 2, &plan.levels[plan.rank - 2], &plan.levels[plan.rank - 1]);
    let mut index = [0usize; MAX_RANK + 2];
    let mut rest = range.start / inner.extent;
    let mut at = range.start % inner.extent;
    for d in (0..=outer).rev() {
        index[d] = rest % plan.levels[d].extent;
        rest /= plan.levels[d].extent;
    }
    let mut position = range.start;
    let mut shown = None;
    // SAFETY: every offset is a sum of checked ones, and positions stay below the output's elements.
    unsafe {
        while position < range.end {
            let prefix: usize = (0..outer).map(|d| plan.levels[d].offset(lists, index[d])).sum();
            for i in index[outer]..middle.extent {
                let n = (inner.extent - at).min(range.end - position);
                let base = prefix + middle.offset(lists, i);
                let is_whole = n == inner.extent;
                if is_whole && shown == Some(base) {
                    std::ptr::copy_nonoverlapping(to.add(position - n), to.add(position), n);
                } else {
                    copy_row(inner, lists, from.add(base), to.add(position), at, n);
                }
                shown = (is_whole && inner.list.is_some()).then_some(base);
                at = 0;
                position += n;
                if position == range.end {
                    return;
                }
            }
            index[outer] = 0;
            for d in (0..outer).rev() {
                index[d] += 1;
                if index[d] < plan.levels[d].extent {
                    break;
                }
                index[d] = 0;
            }
        }
    }
}

/// Copies the indices `at..at + n` along the innermost level.
///
/// # Safety
/// As [`copy`]; `from` and `to` point to the row's first elements.
#[inline(always)]
unsafe fn copy_row<T: Copy>(
    level: &Level,
    lists: *const usize,
    from: *const T,
    to: *mut T,
    at: usize,
    n: usize,
) {
    // SAFETY: the caller's promise. Unaligned access, since complex elements are aligned to half their size.
    unsafe {
        let Some((_, start)) = level.list else {
            copy_run(from.add(at * level.stride), level.stride as isize, to, 1, n);
            return;
        };
        let (list, blocks) = (lists.add(start + at), lists.add(start + level.extent));
        if *blocks == 0 {
            (0..n).for_each(|i| to.add(i).write_unaligned(from.add(*list.add(i)).read_unaligned()));
            return;
        }
        for block in 0..*blocks {
            let [first, length, offset] = *blocks.add(1 + 3 * block).cast::<[usize; 3]>();
            let (low, high) = (first.max(at), (first + length).min(at + n));
            if low < high {
                copy_run(from.add(offset + low - first), 1, to.add(low - at), 1, high - low);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn vectors_of_many_chunks() {
        let n = 2 * CHUNK + 77;
        let data: Vec<i16> = (0..n).map(|i| i as i16).collect();
        let x = Tensor::of(&[n], &data);
        let rolled = run_out(
            "aten::roll.out",
            &[x.clone().into(), vec![-5].into(), vec![0].into()],
            DType::Int16,
            &[n],
        );
        let mut expected = data.clone();
        expected.rotate_left(5);
        assert_eq!(rolled.unwrap().values::<i16>(), expected);
        let twice = run_out("aten::repeat.out", &[x.clone().into(), vec![2].into()], DType::Int16, &[2 * n]);
        assert_eq!(twice.unwrap().values::<i16>(), [&data[..], &data[..]].concat());
        let once = run_out("aten::repeat.out", &[x.clone().into(), vec![1].into()], DType::Int16, &[n]);
        assert_eq!(once.unwrap().values::<i16>(), data);
        let mut index: Vec<i64> = (0..n as i64).map(|i| i * 7919 % n as i64).collect();
        let choose = |index: &[i64]| {
            let args = [x.clone().into(), 0i64.into(), Tensor::of(&[n], index).into()];
            run_out("aten::index_select.out", &args, DType::Int16, &[n])
        };
        let expected: Vec<i16> = index.iter().map(|i| data[*i as usize]).collect();
        assert_eq!(choose(&index).unwrap().values::<i16>(), expected);
        index[n - 1] = n as i64;
        assert!(error_text(choose(&index)).contains(&n.to_string()));
        let ones = run_out(
            "aten::repeat.out",
            &[Tensor::of(&[1], &[7i16]).into(), vec![n as i64].into()],
            DType::Int16,
            &[n],
        );
        assert_eq!(ones.unwrap().values::<i16>(), vec![7; n]);
    }
}
