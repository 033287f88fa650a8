//! The frame of a kernel whose work is a number of equal units, each independent of the others: rows, blocks of
//! columns, planes, stretches of elements. The kernel says how many units a call has and computes a range of them;
//! the chunks, and the memory that a chunk may touch, are the frame's.

use crate::chunk::{ChunkOf, ChunkOfMut, SharedMemory, part};
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared, take_scratch};
use pteron_core::{AliasRule, Args, BindArgs, Element, Error, Grid, Result, Scratch};
use std::borrow::Cow;
use std::ops::Range;

/// How a bound call splits: units of work, handed out in chunks of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Split {
    units: usize,
    per_chunk: usize,
    chunk_ns: usize,
    is_joined: bool,
}

impl Split {
    /// Nothing to compute.
    pub const NONE: Split = Split { units: 0, per_chunk: 1, chunk_ns: 0, is_joined: false };

    /// `units` in chunks of `per_chunk`, each of which takes about `chunk_ns` nanoseconds.
    pub fn new(units: usize, per_chunk: usize, chunk_ns: usize) -> Split {
        Split { units, per_chunk: per_chunk.max(1), chunk_ns, is_joined: false }
    }

    /// `units` of `size` elements each, in chunks of at least `chunk` elements; a chunk of so many elements takes about
    /// `ns_per_element` nanoseconds for each of them.
    pub fn sized(units: usize, size: usize, chunk: usize, ns_per_element: f64) -> Split {
        let per_chunk = chunk.div_ceil(size.max(1)).max(1);
        let elements = per_chunk.min(units).saturating_mul(size);
        Split { units, per_chunk, chunk_ns: (elements as f64 * ns_per_element) as usize, is_joined: false }
    }

    /// `units` of `size` elements each, in chunks of at most `chunk` elements; an element takes `ns_per_element`
    /// nanoseconds.
    pub fn within(units: usize, size: usize, chunk: usize, ns_per_element: usize) -> Split {
        let per_chunk = (chunk / size.max(1)).max(1);
        let elements = per_chunk.min(units).saturating_mul(size);
        Split { units, per_chunk, chunk_ns: elements.saturating_mul(ns_per_element), is_joined: false }
    }

    /// The same; when every unit is computed, [`UnitKernel::join`] makes the results of what they left in shared memory.
    pub fn then_join(self) -> Split {
        Split { is_joined: true, ..self }
    }

    /// The units of chunk number `chunk`.
    #[inline(always)]
    pub(crate) fn units_of(&self, chunk: usize) -> Range<usize> {
        part(chunk, self.per_chunk, self.units)
    }

    fn chunks(&self) -> usize {
        self.units.div_ceil(self.per_chunk)
    }

    pub(crate) fn grid(&self) -> Grid {
        match self.units {
            0 => Grid::EMPTY,
            _ => Grid::chunks(self.chunks(), self.chunk_ns),
        }
    }
}

/// A kernel of units; [`framed`] makes a [`pteron_core::Prepared`] of it.
pub trait UnitKernel: Send + Sync + 'static {
    /// What `bind` finds out about the shapes of a call.
    type Problem: Default + Send + Sync + 'static;

    /// A problem with room for what `bind` finds out, which must not allocate.
    fn new_problem(&self) -> Self::Problem {
        Self::Problem::default()
    }

    /// See [`GridKernel::scratch`].
    fn scratch(&self) -> Scratch {
        Scratch::NONE
    }

    /// See [`GridKernel::alias`].
    fn alias(&self) -> AliasRule {
        AliasRule::None
    }

    /// See [`GridKernel::needs`].
    fn needs(&self, _index: usize) -> bool {
        true
    }

    /// Takes the shapes, resizes outputs, fills the problem; see [`GridKernel::bind`].
    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Self::Problem) -> Result<Split>;

    /// Does [`UnitKernel::check`] have to be called?
    const CHECKS: bool = false;

    /// Looks at the whole call before any unit is computed, of which there may be none.
    fn check(&self, _args: &Args<'_>) -> Result<()> {
        Ok(())
    }

    /// Computes the units of a chunk.
    fn run(&self, problem: &Self::Problem, chunk: &mut Chunk<'_, '_>) -> Result<()>;

    /// Makes the results of what all units left in shared memory, where `bind` asked for it ([`Split::then_join`]). The one
    /// chunk has all units.
    fn join(&self, _problem: &Self::Problem, _chunk: &mut Chunk<'_, '_>) -> Result<()> {
        Ok(())
    }
}

/// One chunk of a call: its units, and the memory that they may touch.
pub struct Chunk<'a, 's> {
    /// The units to compute; never empty.
    pub units: Range<usize>,
    args: &'a Args<'a>,
    scratch: &'s mut [u8],
    shared: Option<SharedMemory<'s>>,
    is_exclusive: bool,
    // Arguments that were asked for, by position: an output is handed out once, and never as an input too.
    read: u64,
    written: u64,
}

impl<'a, 's> Chunk<'a, 's> {
    /// The arguments, for numbers and metadata.
    #[inline(always)]
    pub fn args(&self) -> &'a Args<'a> {
        self.args
    }

    /// All elements of input `i`, in memory order.
    ///
    /// Errors: the argument is no tensor of this dtype; it was asked for as an output.
    #[inline(always)]
    pub fn input<T: Element>(&mut self, i: usize) -> Result<ChunkOf<'a, T>> {
        self.mark_read(i)?;
        ChunkOf::of(self.args.tensor(i)?, self.is_exclusive)
    }

    /// All bytes of input `i`, in memory order.
    ///
    /// Errors: the argument is no tensor; it was asked for as an output.
    #[inline(always)]
    pub fn input_bytes(&mut self, i: usize) -> Result<ChunkOf<'a, u8>> {
        self.mark_read(i)?;
        Ok(ChunkOf::bytes(self.args.tensor(i)?, self.is_exclusive))
    }

    /// All bytes of tensor `j` of the list of inputs at `i`, in memory order.
    ///
    /// Errors: the argument is no such list; it was asked for as an output.
    #[inline(always)]
    pub fn list_bytes(&mut self, i: usize, j: usize) -> Result<ChunkOf<'a, u8>> {
        self.mark_read(i)?;
        Ok(ChunkOf::bytes(self.args.tensor_list(i)?.get(j)?, self.is_exclusive))
    }

    /// As [`Chunk::input`]; `None` where the argument is absent.
    #[inline(always)]
    pub fn optional_input<T: Element>(&mut self, i: usize) -> Result<Option<ChunkOf<'a, T>>> {
        match self.args.optional_tensor(i)? {
            Some(_) => self.input(i).map(Some),
            None => Ok(None),
        }
    }

    /// The elements of input `i` that belong to the units, `per_unit` each, one unit behind the other in memory.
    ///
    /// Errors: as for [`Chunk::input`]; the tensor has fewer elements.
    #[inline(always)]
    pub fn input_units<T: Element>(&mut self, i: usize, per_unit: usize) -> Result<ChunkOf<'a, T>> {
        let range = self.elements(per_unit)?;
        self.input(i)?.part(range)
    }

    /// The elements of output `i` that belong to the units, `per_unit` each, one unit behind the other in memory.
    ///
    /// Errors: the argument is no tensor of this dtype, has fewer elements, or was asked for before.
    #[inline(always)]
    pub fn output_units<T: Element>(&mut self, i: usize, per_unit: usize) -> Result<ChunkOfMut<'a, T>> {
        self.take_output(i)?;
        ChunkOfMut::of(self.args.output(i)?, self.elements(per_unit)?, self.is_exclusive)
    }

    /// All bytes of output `i`, with the contract of [`Chunk::output_shared`].
    ///
    /// Errors: the argument is no tensor, or was asked for before.
    #[inline(always)]
    pub fn output_shared_bytes(&mut self, i: usize) -> Result<ChunkOfMut<'a, u8>> {
        self.take_output(i)?;
        let out = self.args.output(i)?;
        let nbytes = if out.as_ptr().is_null() { 0 } else { out.nbytes() };
        ChunkOfMut::bytes(out, 0..nbytes, false)
    }

    /// The elements `range` of output `i`, in memory order, for kernels of which no two chunks ask for the same element.
    ///
    /// Errors: the argument is no tensor of this dtype, has fewer elements, or was asked for before.
    #[inline(always)]
    pub(crate) fn output_part<T: Element>(
        &mut self,
        i: usize,
        range: Range<usize>,
    ) -> Result<ChunkOfMut<'a, T>> {
        self.take_output(i)?;
        ChunkOfMut::of(self.args.output(i)?, range, self.is_exclusive)
    }

    /// The bytes of output `i` that belong to the units, `per_unit` each, one unit behind the other in memory.
    ///
    /// Errors: the argument is no tensor, has fewer bytes, or was asked for before.
    #[inline(always)]
    pub fn output_bytes(&mut self, i: usize, per_unit: usize) -> Result<ChunkOfMut<'a, u8>> {
        self.take_output(i)?;
        ChunkOfMut::bytes(self.args.output(i)?, self.elements(per_unit)?, self.is_exclusive)
    }

    /// Output `i` as a whole, for units whose elements do not lie side by side: vector tasks write those of the units
    /// alone. It has no slice.
    ///
    /// Errors: the argument is no tensor of this dtype, or was asked for before.
    #[inline(always)]
    pub fn output_shared<T: Element>(&mut self, i: usize) -> Result<ChunkOfMut<'a, T>> {
        self.take_output(i)?;
        let out = self.args.output(i)?;
        let numel = if out.as_ptr().is_null() { 0 } else { out.numel() };
        ChunkOfMut::of(out, 0..numel, false)
    }

    /// `n` elements of this worker's scratch memory, with undefined contents; what is left can be taken later.
    ///
    /// Errors: the kernel asked for less in [`UnitKernel::scratch`].
    #[inline(always)]
    pub fn take_scratch<T: bytemuck::Pod>(&mut self, n: usize) -> Result<&'s mut [T]> {
        take_scratch(&mut self.scratch, n)
    }

    /// The elements of the shared scratch memory that belong to the units, `per_unit` each, for calls that are joined. What
    /// the units wrote is there when they are joined.
    ///
    /// Errors: the call is not joined; the kernel asked for less in [`UnitKernel::scratch`]; they were asked for before.
    #[inline(always)]
    pub fn shared_units<T: bytemuck::Pod>(&mut self, per_unit: usize) -> Result<&'s mut [T]> {
        let range = self.elements(per_unit)?;
        let shared = self.shared.take();
        shared.ok_or_else(|| Error::internal("a chunk has no shared memory"))?.into_part(range)
    }

    #[inline(always)]
    fn mark_read(&mut self, i: usize) -> Result<()> {
        let bit = 1u64.checked_shl(i as u32).unwrap_or(0);
        if bit == 0 || self.written & bit != 0 {
            return Err(asked_twice(i));
        }
        self.read |= bit;
        Ok(())
    }

    #[inline(always)]
    fn take_output(&mut self, i: usize) -> Result<()> {
        let bit = 1u64.checked_shl(i as u32).unwrap_or(0);
        if bit == 0 || (self.read | self.written) & bit != 0 {
            return Err(asked_twice(i));
        }
        self.written |= bit;
        Ok(())
    }

    #[inline(always)]
    fn elements(&self, per_unit: usize) -> Result<Range<usize>> {
        let too_many = || Error::internal("a chunk has more elements than can be addressed");
        let first = self.units.start.checked_mul(per_unit).ok_or_else(too_many)?;
        Ok(first..self.units.end.checked_mul(per_unit).ok_or_else(too_many)?)
    }
}

#[cold]
fn asked_twice(i: usize) -> Error {
    Error::internal(format!("a kernel asks twice for argument {i}, which it writes"))
}

struct UnitFrame<K>(K);

/// The problem of a call, and how it splits.
struct State<P> {
    problem: P,
    split: Split,
}

/// The kernel in its frame, with its name in listings.
pub fn framed<K: UnitKernel>(name: impl Into<Cow<'static, str>>, kernel: K) -> Preparation {
    prepared(name, UnitFrame(kernel))
}

impl<K: UnitKernel> GridKernel for UnitFrame<K> {
    type Problem = State<K::Problem>;

    fn scratch(&self) -> Scratch {
        self.0.scratch()
    }

    fn alias(&self) -> AliasRule {
        self.0.alias()
    }

    fn needs(&self, index: usize) -> bool {
        self.0.needs(index)
    }

    fn new_problem(&self) -> State<K::Problem> {
        State { problem: self.0.new_problem(), split: Split::NONE }
    }

    fn bind(&self, args: &mut BindArgs<'_>, state: &mut State<K::Problem>) -> Result<Grid> {
        state.split = self.0.bind(args, &mut state.problem)?;
        let Split { units, chunk_ns, is_joined, .. } = state.split;
        let chunks = state.split.chunks();
        Ok(match K::CHECKS {
            true if is_joined && units > 0 => Grid::phases(&[1, chunks, 1], chunk_ns),
            true => Grid::phases(&[1, chunks], chunk_ns),
            false if is_joined && units > 0 => Grid::phases(&[chunks, 1], chunk_ns),
            false => state.split.grid(),
        })
    }

    #[inline]
    fn run(&self, state: &State<K::Problem>, chunk: Part<'_>) -> Result<()> {
        if K::CHECKS && chunk.phase == 0 {
            return self.0.check(chunk.args);
        }
        let is_exclusive = self.0.alias() == AliasRule::None;
        let is_join = chunk.phase > u32::from(K::CHECKS);
        let units = if is_join { 0..state.split.units } else { state.split.units_of(chunk.chunk) };
        let shared = state.split.is_joined.then(|| SharedMemory::of(&chunk.scratch, self.0.scratch().shared));
        let (args, scratch) = (chunk.args, chunk.scratch.worker);
        let mut chunk = Chunk { units, args, scratch, shared, is_exclusive, read: 0, written: 0 };
        match is_join {
            true => self.0.join(&state.problem, &mut chunk),
            false => self.0.run(&state.problem, &mut chunk),
        }
    }
}
