//! Typed access to a tensor's elements through a compute type, bounds-checked per block.
//! Unsafe island: the checks here make the raw loads and stores of `compute` safe to call.

use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::compute::{BLOCK, Compute, LoadFn, StoreFn, load_fn, store_fn, store_in_range_fn};
use crate::strided::loops::Walk;
use pteron_core::{DType, Error, Result, TensorMeta, TensorView, TensorViewMut};
use std::ops::Range;

#[cold]
#[inline(never)]
fn outside(offset: isize, numel: usize) -> Error {
    Error::internal("a kernel reached outside a tensor").got(format!("element {offset} of {numel}"))
}

#[cold]
fn unsupported(dtype: DType) -> Error {
    Error::kernel("the kernel does not compute with this dtype").got(dtype.name())
}

/// An error unless the `count` elements from `offset` by `stride` are among `numel`.
#[inline(always)]
fn check_run(offset: isize, stride: isize, count: usize, numel: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let last = (count as isize - 1).checked_mul(stride).and_then(|s| s.checked_add(offset));
    match last {
        Some(last) if offset >= 0 && last >= 0 && offset.max(last) < numel as isize => Ok(()),
        _ => Err(outside(offset, numel)),
    }
}

/// Elements of one dtype as numbers of the compute type, in the bytes of a chunk: for kernels whose output may be their
/// input, so that no slice of either can be had.
#[derive(Clone, Copy)]
pub(crate) struct Converter<C> {
    size: usize,
    load: LoadFn<C>,
    store: StoreFn<C>,
}

impl<C: Compute> Converter<C> {
    /// Converts from and to `dtype`; an error for dtypes that do not convert.
    pub(crate) fn of(dtype: DType) -> Result<Self> {
        match (load_fn(dtype), store_fn(dtype)) {
            (Some(load), Some(store)) => Ok(Converter { size: dtype.size(), load, store }),
            _ => Err(unsupported(dtype)),
        }
    }

    /// Bytes of an element.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Elements in so many bytes; sizes are powers of two, and runs may be too short for a division each.
    #[inline(always)]
    fn count(&self, nbytes: usize) -> usize {
        nbytes >> self.size.trailing_zeros()
    }

    /// Fills `out` with the elements from `offset` by `stride`.
    #[inline]
    pub(crate) fn read(
        &self,
        bytes: ChunkOf<'_, u8>,
        offset: isize,
        stride: isize,
        out: &mut [C],
    ) -> Result<()> {
        check_run(offset, stride, out.len(), self.count(bytes.len()))?;
        if !out.is_empty() {
            // SAFETY: `check_run` found all elements inside the chunk, whose bytes are readable (`ChunkOf`), and the function
            // is that of the dtype of this size.
            unsafe { (self.load)(bytes.as_ptr().offset(offset * self.size as isize), stride, out) };
        }
        Ok(())
    }

    /// Writes `values` from element `offset` on, side by side.
    #[inline]
    pub(crate) fn write(&self, values: &[C], bytes: &mut ChunkOfMut<'_, u8>, offset: usize) -> Result<()> {
        let offset = isize::try_from(offset).map_err(|_| outside(isize::MAX, self.count(bytes.len())))?;
        check_run(offset, 1, values.len(), self.count(bytes.len()))?;
        if !values.is_empty() {
            // SAFETY: `check_run` found all elements inside the chunk, whose bytes are writable (`ChunkOfMut`), and the function
            // is that of the dtype of this size.
            unsafe { (self.store)(values, bytes.as_ptr().offset(offset * self.size as isize), 1) };
        }
        Ok(())
    }

    /// Rounds numbers to what the dtype can hold.
    pub(crate) fn round(&self, values: &mut [C]) {
        let mut bytes = [0u64; BLOCK];
        for part in values.chunks_mut(BLOCK) {
            // SAFETY: dtypes that convert have at most eight bytes, so `bytes` has room for BLOCK elements, aligned for all
            // of them.
            unsafe {
                (self.store)(part, bytes.as_mut_ptr().cast(), 1);
                (self.load)(bytes.as_ptr().cast(), 1, part);
            }
        }
    }
}

/// Reads elements of a tensor that nothing writes meanwhile.
#[derive(Clone, Copy)]
pub struct Reader<'a, C: Compute> {
    data: *const u8,
    size: usize,
    numel: usize,
    load: LoadFn<C>,
    direct: Option<&'a [C]>,
    /// The elements of a float32 tensor.
    single: Option<&'a [f32]>,
    meta: &'a TensorMeta,
}

impl<'a, C: Compute> Reader<'a, C> {
    /// Reads `view`; an error for dtypes that do not convert (complex, eight-bit floats).
    pub fn new(view: TensorView<'a>) -> Result<Self> {
        let load = load_fn::<C>(view.dtype()).ok_or_else(|| unsupported(view.dtype()))?;
        let direct = match view.dtype() {
            DType::Float32 => C::same(view.as_slice::<f32>()?),
            DType::Float64 => C::same(view.as_slice::<f64>()?),
            DType::Int64 => C::same(view.as_slice::<i64>()?),
            _ => None,
        };
        Ok(Reader {
            data: view.as_ptr(),
            size: view.dtype().size(),
            numel: view.numel(),
            load,
            direct,
            single: if view.dtype() == DType::Float32 { Some(view.as_slice()?) } else { None },
            meta: view.meta(),
        })
    }

    /// The tensor's metadata.
    pub fn meta(&self) -> &'a TensorMeta {
        self.meta
    }

    /// The element at `offset` in memory order.
    #[inline(always)]
    pub fn get(&self, offset: usize) -> Result<C> {
        if let Some(slice) = self.direct {
            return slice.get(offset).copied().ok_or_else(|| outside(offset as isize, self.numel));
        }
        // The dtype of most tensors goes without a call through a pointer.
        if let Some(slice) = self.single {
            return slice
                .get(offset)
                .map(|v| C::read(*v))
                .ok_or_else(|| outside(offset as isize, self.numel));
        }
        let mut out = [C::ZERO];
        self.read(offset as isize, 1, &mut out)?;
        Ok(out[0])
    }

    /// Fills `out` with the elements from `offset` by `stride`.
    #[inline]
    pub fn read(&self, offset: isize, stride: isize, out: &mut [C]) -> Result<()> {
        check_run(offset, stride, out.len(), self.numel)?;
        if !out.is_empty() {
            // SAFETY: all elements are inside the tensor, and the function is the dtype's.
            unsafe { (self.load)(self.data.offset(offset * self.size as isize), stride, out) };
        }
        Ok(())
    }

    /// The `count` elements from `offset` by `stride`: in place if they lie side by side in the
    /// compute type already, else converted into `buffer`, which must be as long.
    #[inline]
    pub fn block<'b>(
        &self,
        offset: isize,
        stride: isize,
        count: usize,
        buffer: &'b mut [C],
    ) -> Result<&'b [C]>
    where
        'a: 'b,
    {
        if let (Some(slice), 1) = (self.direct, stride) {
            let start = usize::try_from(offset).map_err(|_| outside(offset, self.numel))?;
            return start
                .checked_add(count)
                .and_then(|end| slice.get(start..end))
                .ok_or_else(|| outside(offset, self.numel));
        }
        let out = buffer.get_mut(..count).ok_or_else(|| Error::internal("block buffer too short"))?;
        self.read(offset, stride, out)?;
        Ok(out)
    }

    /// Fills `out` with the elements at the positions from `start` on of `walk`, moved by `base`.
    #[inline]
    pub fn gather(&self, walk: &Walk, base: isize, start: usize, out: &mut [C]) -> Result<()> {
        walk.runs(start, out.len(), |done, offset, stride, len| {
            let part =
                out.get_mut(done..done + len).ok_or_else(|| Error::internal("gather buffer too short"))?;
            self.read(base + offset, stride, part)
        })
    }

    /// Visits all positions of `walk`, moved by `base` elements, in blocks of at most [`BLOCK`].
    #[inline]
    pub fn blocks(
        &self,
        walk: &Walk,
        base: isize,
        buffer: &mut [C; BLOCK],
        mut visit: impl FnMut(usize, &[C]) -> Result<()>,
    ) -> Result<()> {
        walk.runs(0, walk.numel(), |position, offset, stride, len| {
            let mut done = 0;
            while done < len {
                let n = (len - done).min(BLOCK);
                let at = base + offset + done as isize * stride;
                visit(position + done, self.block(at, stride, n, buffer)?)?;
                done += n;
            }
            Ok(())
        })
    }
}

/// Writes elements of a tensor that nothing else reads or writes meanwhile.
pub struct Writer<'a, C: Compute> {
    data: *mut u8,
    size: usize,
    numel: usize,
    store: StoreFn<C>,
    /// Are the elements of type C?
    is_same: bool,
    /// Are they f32?
    is_single: bool,
    meta: &'a TensorMeta,
}

impl<'a, C: Compute> Writer<'a, C> {
    /// Writes `view`; an error for dtypes that do not convert.
    pub fn new(view: TensorViewMut<'a>) -> Result<Self> {
        let is_same = match view.dtype() {
            DType::Float32 => C::same::<f32>(&[]).is_some(),
            DType::Float64 => C::same::<f64>(&[]).is_some(),
            DType::Int64 => C::same::<i64>(&[]).is_some(),
            _ => false,
        };
        Ok(Writer {
            is_same,
            is_single: view.dtype() == DType::Float32,
            data: view.as_ptr(),
            size: view.dtype().size(),
            numel: view.numel(),
            store: store_fn::<C>(view.dtype()).ok_or_else(|| unsupported(view.dtype()))?,
            meta: view.meta(),
        })
    }

    /// The tensor's metadata.
    pub fn meta(&self) -> &'a TensorMeta {
        self.meta
    }

    /// The elements `offset..offset + count` themselves, if they are of the compute type.
    pub fn place(&mut self, offset: isize, count: usize) -> Result<Option<&mut [C]>> {
        check_run(offset, 1, count, self.numel)?;
        if !self.is_same || count == 0 {
            return Ok(None);
        }
        // SAFETY: the elements are inside the tensor, of type C, and nothing else reads or writes them meanwhile.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(self.data.cast::<C>().offset(offset), count) }))
    }

    /// The same writer with another function, which must be one of the tensor's dtype.
    fn storing(self, store: Option<StoreFn<C>>) -> Self {
        Writer { store: store.unwrap_or(self.store), ..self }
    }

    /// Writes the element at `offset` in memory order.
    #[inline(always)]
    pub fn put(&mut self, offset: usize, value: C) -> Result<()> {
        if self.is_single && offset < self.numel {
            // SAFETY: the element is inside the tensor, whose elements are f32.
            unsafe { self.data.cast::<f32>().add(offset).write(value.write()) };
            return Ok(());
        }
        self.write(offset as isize, 1, &[value])
    }

    /// Writes `values` from `offset` on by `stride`.
    #[inline]
    pub fn write(&mut self, offset: isize, stride: isize, values: &[C]) -> Result<()> {
        check_run(offset, stride, values.len(), self.numel)?;
        if !values.is_empty() {
            // SAFETY: all elements are inside the tensor, and the function is the dtype's.
            unsafe { (self.store)(values, self.data.offset(offset * self.size as isize), stride) };
        }
        Ok(())
    }

    /// Writes `values` to the positions from `start` on of `walk`, moved by `base`.
    #[inline]
    pub fn scatter(&mut self, walk: &Walk, base: isize, start: usize, values: &[C]) -> Result<()> {
        walk.runs(start, values.len(), |done, offset, stride, len| {
            let part =
                values.get(done..done + len).ok_or_else(|| Error::internal("scatter buffer too short"))?;
            self.write(base + offset, stride, part)
        })
    }

    /// Writes `value` everywhere.
    pub fn fill(&mut self, value: C) -> Result<()> {
        self.fill_range(0..self.numel, value)
    }

    /// Writes `value` to the elements `range`, in memory order.
    pub fn fill_range(&mut self, range: Range<usize>, value: C) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if range.end > self.numel {
            return Err(outside(range.end as isize, self.numel));
        }
        let mut element = [0u64; 2];
        // SAFETY: an element of any dtype has at most 16 bytes, and the range lies inside the tensor.
        unsafe {
            (self.store)(&[value], element.as_mut_ptr().cast(), 1);
            let (from, to, n) = (element.as_ptr(), self.data.add(range.start * self.size), range.len());
            match self.size {
                1 => std::slice::from_raw_parts_mut(to, n).fill(from.cast::<u8>().read()),
                2 => std::slice::from_raw_parts_mut(to.cast(), n).fill(from.cast::<u16>().read()),
                4 => std::slice::from_raw_parts_mut(to.cast(), n).fill(from.cast::<u32>().read()),
                _ => std::slice::from_raw_parts_mut(to.cast(), n).fill(from.read()),
            }
        }
        Ok(())
    }
}

impl<'a> Writer<'a, f32> {
    /// As [`Writer::new`], for numbers within the range of an integer dtype.
    pub fn in_range(view: TensorViewMut<'a>) -> Result<Self> {
        let store = store_in_range_fn(view.dtype());
        Ok(Writer::new(view)?.storing(store))
    }
}

/// Reads and writes elements of one output tensor.
pub struct UpdateView<'a, C: Compute> {
    writer: Writer<'a, C>,
    load: LoadFn<C>,
    /// The tensor's metadata.
    pub meta: &'a TensorMeta,
}

impl<'a, C: Compute> UpdateView<'a, C> {
    /// Updates the output at position `i`; an error for dtypes that do not convert.
    pub fn new(args: &pteron_core::Args<'a>, i: usize) -> Result<Self> {
        let view = args.output(i)?;
        let load = load_fn::<C>(view.dtype()).ok_or_else(|| unsupported(view.dtype()))?;
        let writer = Writer::new(view)?;
        Ok(UpdateView { meta: writer.meta, writer, load })
    }

    /// Replaces the element at `offset` by a function of it.
    #[inline]
    pub fn update(&mut self, offset: usize, f: impl FnOnce(C) -> C) -> Result<()> {
        check_run(offset as isize, 1, 1, self.writer.numel)?;
        let mut value = [C::ZERO];
        // SAFETY: the element is inside the tensor, and the function is the dtype's.
        unsafe { (self.load)(self.writer.data.add(offset * self.writer.size), 1, &mut value) };
        self.writer.put(offset, f(value[0]))
    }

    /// Replaces the elements at the positions from `start` on of `walk`, moved by `base`, by a function of each and of the
    /// value for it; there are at most [`BLOCK`] values.
    #[inline]
    pub fn update_all(
        &mut self,
        walk: &Walk,
        base: isize,
        start: usize,
        values: &[C],
        f: impl Fn(C, C) -> C,
    ) -> Result<()> {
        let mut buffer = [C::ZERO; BLOCK];
        let short = || Error::internal("update buffer too short");
        let old = buffer.get_mut(..values.len()).ok_or_else(short)?;
        walk.runs(start, values.len(), |done, offset, stride, len| {
            let part = old.get_mut(done..done + len).ok_or_else(short)?;
            check_run(base + offset, stride, len, self.writer.numel)?;
            if len > 0 {
                // SAFETY: all elements are inside the tensor, and the function is the dtype's.
                unsafe {
                    let from = self.writer.data.offset((base + offset) * self.writer.size as isize);
                    (self.load)(from, stride, part);
                }
            }
            Ok(())
        })?;
        old.iter_mut().zip(values).for_each(|(old, value)| *old = f(*old, *value));
        self.writer.scatter(walk, base, start, old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converter_reaches_nothing_outside_of_its_chunk() {
        let data = [1f32, 2.0, 3.0];
        let meta = TensorMeta::contiguous(DType::Float32, &[3]).unwrap();
        // SAFETY: `data` lives long enough.
        let view = unsafe { TensorView::from_raw(data.as_ptr().cast(), &meta) };
        let (bytes, single) = (ChunkOf::bytes(view, true), Converter::<f64>::of(DType::Float32).unwrap());
        let mut out = [0.0; 2];
        single.read(bytes, 2, -1, &mut out).unwrap();
        assert_eq!(out, [3.0, 2.0]);
        for (offset, stride) in [(2, 1), (-1, 1), (0, -1), (1, isize::MAX), (0, 3)] {
            assert!(single.read(bytes, offset, stride, &mut out).is_err(), "{offset} {stride}");
        }
        let mut target = [0f32; 3];
        // SAFETY: `target` lives long enough, and nobody else has it meanwhile.
        let view = unsafe { TensorViewMut::from_raw(target.as_mut_ptr().cast(), &meta) };
        let mut chunk = ChunkOfMut::bytes(view, 4..12, true).unwrap();
        single.write(&out, &mut chunk, 0).unwrap();
        assert!(
            single.write(&out, &mut chunk, 1).is_err() && single.write(&out, &mut chunk, usize::MAX).is_err()
        );
        assert_eq!(target, [0.0, 3.0, 2.0]);
        assert!(Converter::<f64>::of(DType::Complex64).is_err());
        let mut value = [0.1f64];
        single.round(&mut value);
        assert_eq!(value, [f64::from(0.1f32)]);
    }

    #[test]
    fn nothing_outside_is_reachable() {
        let data = [1f32, 2.0, 3.0];
        let meta = TensorMeta::contiguous(DType::Float32, &[3]).unwrap();
        // SAFETY: `data` lives long enough.
        let view = unsafe { TensorView::from_raw(data.as_ptr().cast(), &meta) };
        let r = Reader::<f32>::new(view).unwrap();
        let mut out = [0.0; 2];
        assert!(r.read(1, 1, &mut out).is_ok());
        assert!(r.read(2, 1, &mut out).is_err());
        assert!(r.read(0, -1, &mut out).is_err());
        assert!(r.read(1, isize::MAX, &mut out).is_err());
        assert!(r.block(-1, 1, 2, &mut out).is_err());
        assert!(r.get(3).is_err());
        let r = Reader::<f64>::new(view).unwrap();
        assert!(r.get(3).is_err());
        assert_eq!(r.get(2).unwrap(), 3.0);
    }
}
