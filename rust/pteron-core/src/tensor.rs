//! Tensors: [`TensorSpec`] (metadata known at load), [`TensorSlot`] (one tensor value of a session),
//! [`TensorView`] and [`TensorViewMut`] (raw pointer plus metadata borrowed from a slot).
//! Unsafe island.
//!
//! The contract that makes the safe accessors sound: whoever makes a slot or view (the executor, a
//! delegate call, a test) guarantees that the pointer is valid for `meta.nbytes()` bytes while the
//! borrow lives, and that memory reachable through a `TensorViewMut` is not read or written through
//! any other view at the same time, except by kernels whose alias rule allows it; those kernels use
//! the raw pointers only.

use crate::{DType, DimOrder, Dims, Element, Error, Result, sizes};

/// How the extents of a tensor may change between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamism {
    /// Never.
    Static,
    /// Up to the extents of the spec.
    Bounded,
}

/// What load knows about a tensor value.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorSpec {
    /// Element type.
    pub dtype: DType,
    /// Extents; upper bounds when the tensor is dynamic.
    pub shape: Dims,
    /// Memory order.
    pub dim_order: DimOrder,
    /// May the extents change?
    pub dynamism: Dynamism,
}

impl TensorSpec {
    /// A static contiguous tensor.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<Self> {
        Ok(TensorSpec {
            dtype,
            shape: Dims::new(shape)?,
            dim_order: DimOrder::contiguous(shape.len()),
            dynamism: Dynamism::Static,
        })
    }

    /// Bytes for the largest shape.
    pub fn nbytes(&self) -> Result<usize> {
        sizes::checked_nbytes(&self.shape, self.dtype)
    }

    /// May the extents change?
    pub fn is_dynamic(&self) -> bool {
        self.dynamism == Dynamism::Bounded
    }
}

/// Shape, strides and dtype of a tensor as it is now. Always dense in `dim_order`.
#[derive(Debug, Clone)]
pub struct TensorMeta {
    dtype: DType,
    numel: usize,
    shape: Dims,
    strides: Dims,
    dim_order: DimOrder,
}

impl TensorMeta {
    /// Metadata of a dense tensor; errors when the size cannot be addressed or ranks differ.
    pub fn new(dtype: DType, shape: Dims, dim_order: DimOrder) -> Result<Self> {
        if shape.len() != dim_order.rank() {
            return Err(Error::program("shape and dim_order differ in rank")
                .got(format!("shape {shape}, dim_order {dim_order:?}")));
        }
        sizes::checked_nbytes(&shape, dtype)?;
        Ok(TensorMeta { dtype, numel: shape.numel()?, strides: dim_order.strides(&shape), shape, dim_order })
    }

    /// Row-major metadata.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::new(dtype, Dims::new(shape)?, DimOrder::contiguous(shape.len()))
    }

    /// Element type.
    #[inline(always)]
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Extents.
    #[inline(always)]
    pub fn shape(&self) -> &Dims {
        &self.shape
    }
    /// Strides in elements.
    #[inline(always)]
    pub fn strides(&self) -> &Dims {
        &self.strides
    }
    /// Memory order.
    #[inline(always)]
    pub fn dim_order(&self) -> &DimOrder {
        &self.dim_order
    }
    /// Number of elements.
    #[inline(always)]
    pub fn numel(&self) -> usize {
        self.numel
    }
    /// Number of dimensions.
    #[inline(always)]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// Bytes; cannot overflow, the constructor checked it.
    #[inline(always)]
    pub fn nbytes(&self) -> usize {
        self.numel.wrapping_mul(self.dtype.size())
    }
    /// Row-major?
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.dim_order.is_contiguous()
    }

    /// Takes new extents of the same rank and recomputes strides.
    pub fn set_shape(&mut self, shape: &[usize]) -> Result<()> {
        if *shape == *self.shape {
            return Ok(());
        }
        let shape = Dims::new(shape)?;
        sizes::checked_nbytes(&shape, self.dtype)?;
        self.numel = shape.numel()?;
        self.strides = self.dim_order.strides(&shape);
        self.shape = shape;
        Ok(())
    }
}

/// One tensor value of a session: where its bytes are now and what shape they have now.
#[derive(Debug, Clone)]
pub struct TensorSlot {
    data: *mut u8,
    capacity: usize,
    // The largest extents; a static tensor keeps those it has.
    bound: Option<Box<Dims>>,
    meta: TensorMeta,
}

// SAFETY: a slot is a pointer with its metadata; the executor that owns the memory decides which
// thread may touch it (see the module contract).
unsafe impl Send for TensorSlot {}
// SAFETY: a shared slot gives out its pointer and metadata; who may use the pointer is the executor's to
// decide (module contract).
unsafe impl Sync for TensorSlot {}

impl TensorSlot {
    /// A slot with no memory yet, at its largest shape.
    pub fn new(spec: &TensorSpec) -> Result<Self> {
        Ok(TensorSlot {
            data: std::ptr::null_mut(),
            capacity: 0,
            bound: spec.is_dynamic().then(|| Box::new(spec.shape)),
            meta: TensorMeta::new(spec.dtype, spec.shape, spec.dim_order)?,
        })
    }

    /// Points the slot at memory.
    ///
    /// # Safety
    /// `data` must be valid for reads (and, if anything writes this value, writes) of `capacity` bytes
    /// and aligned for the dtype for as long as the slot may be used with it.
    pub unsafe fn set_data(&mut self, data: *mut u8, capacity: usize) {
        self.data = data;
        self.capacity = capacity;
    }

    /// Start of the bytes; null while there is no memory.
    #[inline(always)]
    pub fn data(&self) -> *mut u8 {
        self.data
    }
    /// Bytes that may be used from `data` on.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
    /// Current shape, strides and dtype.
    #[inline(always)]
    pub fn meta(&self) -> &TensorMeta {
        &self.meta
    }
    /// Largest extents.
    pub fn bound(&self) -> &Dims {
        self.bound.as_deref().unwrap_or(&self.meta.shape)
    }
    /// Never changes its extents?
    pub fn is_static(&self) -> bool {
        self.bound.is_none()
    }

    /// Gives the value new extents: same rank, element count within the bound, and equal to the
    /// spec when the tensor is static. (The bound is on the element count, as the format has it;
    /// per-dimension ranges are checked on inputs.)
    pub fn resize(&mut self, shape: &[usize]) -> Result<()> {
        if *shape == **self.meta.shape() {
            return Ok(());
        }
        self.resize_slow(shape)
    }

    fn check_shape(&self, shape: &[usize], numel: usize) -> Result<()> {
        let bound = self.bound();
        let limit = bound.numel()?;
        if shape.len() != bound.len() || numel > limit || (self.is_static() && *shape != **bound) {
            return Err(Error::kernel("a tensor cannot take the shape that was computed for it")
                .expected(if self.is_static() {
                    format!("exactly {bound}")
                } else {
                    format!("rank {} and at most {limit} elements (bound {bound})", bound.len())
                })
                .got(format!("{shape:?}")));
        }
        Ok(())
    }

    fn resize_slow(&mut self, shape: &[usize]) -> Result<()> {
        let numel = sizes::checked_numel(shape)?;
        if shape.len() != self.meta.rank() || self.is_static() {
            self.check_shape(shape, numel)?;
        }
        let nbytes = sizes::checked_nbytes(shape, self.meta.dtype)?;
        if (!self.data.is_null() && nbytes > self.capacity)
            || (self.data.is_null() && numel > self.bound().numel()?)
        {
            self.check_shape(shape, numel)?;
            return Err(Error::kernel("a tensor outgrew its planned memory")
                .expected(format!("at most {} bytes", self.capacity))
                .got(format!("{nbytes} bytes for shape {shape:?}")));
        }
        self.meta.set_shape(shape)
    }

    /// Makes this slot a view of `from`'s bytes (a move, or `et_view`): pointer and capacity are
    /// taken over, dtype and dim order must agree, the shape becomes `shape`.
    pub fn alias(&mut self, from: &TensorSlot, shape: &[usize]) -> Result<()> {
        if self.meta.dtype != from.meta.dtype {
            return Err(Error::kernel("a view would change the dtype")
                .expected(self.meta.dtype.name())
                .got(from.meta.dtype.name()));
        }
        let nbytes = sizes::checked_nbytes(shape, self.meta.dtype)?;
        if nbytes > from.capacity && !from.data.is_null() {
            return Err(Error::kernel("a view is larger than the tensor it looks at")
                .expected(format!("at most {} bytes", from.capacity))
                .got(format!("{nbytes} bytes for shape {shape:?}")));
        }
        if *shape != **self.meta.shape() {
            // Kernels are prepared for the bound: a view may not exceed it, nor change a static shape.
            self.check_shape(shape, sizes::checked_numel(shape)?)?;
        }
        self.data = from.data;
        self.capacity = from.capacity;
        self.meta.set_shape(shape)
    }

    /// A read-only view under the module contract.
    #[inline(always)]
    pub fn view(&self) -> TensorView<'_> {
        TensorView { data: self.data, meta: &self.meta }
    }

    /// A writable view under the module contract.
    #[inline(always)]
    pub fn view_mut(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { data: self.data, meta: &self.meta }
    }
}

/// A borrowed tensor for reading.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    data: *const u8,
    meta: &'a TensorMeta,
}

/// A borrowed tensor for writing.
pub struct TensorViewMut<'a> {
    data: *mut u8,
    meta: &'a TensorMeta,
}

// SAFETY: views are shared between workers of one kernel call, which write disjoint chunks.
unsafe impl Send for TensorView<'_> {}
// SAFETY: a view only reads, and what it reads is written by nobody meanwhile (module contract).
unsafe impl Sync for TensorView<'_> {}
// SAFETY: the elements behind a writable view are its holder's alone, on whichever thread (module contract).
unsafe impl Send for TensorViewMut<'_> {}

#[cold]
fn wrong_dtype(expected: DType, got: DType) -> Error {
    Error::kernel("a tensor has another dtype than the kernel was prepared for")
        .expected(expected.name())
        .got(got.name())
}

macro_rules! shared_accessors {
    () => {
        /// Element type.
        #[inline(always)]
        pub fn dtype(&self) -> DType {
            self.meta.dtype()
        }
        /// Extents.
        #[inline(always)]
        pub fn shape(&self) -> &'a Dims {
            self.meta.shape()
        }
        /// Strides in elements.
        #[inline(always)]
        pub fn strides(&self) -> &'a Dims {
            self.meta.strides()
        }
        /// Number of dimensions.
        #[inline(always)]
        pub fn rank(&self) -> usize {
            self.meta.rank()
        }
        /// Number of elements.
        #[inline(always)]
        pub fn numel(&self) -> usize {
            self.meta.numel()
        }
        /// Number of bytes.
        #[inline(always)]
        pub fn nbytes(&self) -> usize {
            self.meta.nbytes()
        }
        /// All metadata.
        #[inline(always)]
        pub fn meta(&self) -> &'a TensorMeta {
            self.meta
        }
        /// Row-major?
        pub fn is_contiguous(&self) -> bool {
            self.meta.is_contiguous()
        }
    };
}

impl<'a> TensorView<'a> {
    shared_accessors!();

    /// A view of memory that is not in a slot.
    ///
    /// # Safety
    /// `data` must be aligned for the dtype and valid for reads of `meta.nbytes()` bytes during `'a`.
    pub unsafe fn from_raw(data: *const u8, meta: &'a TensorMeta) -> Self {
        TensorView { data, meta }
    }

    /// Start of the bytes.
    #[inline(always)]
    pub fn as_ptr(&self) -> *const u8 {
        self.data
    }

    /// Start of the elements; an error when the dtype is another.
    #[inline(always)]
    pub fn ptr<T: Element>(&self) -> Result<*const T> {
        if self.meta.dtype() != T::DTYPE {
            return Err(wrong_dtype(T::DTYPE, self.meta.dtype()));
        }
        Ok(self.data.cast())
    }

    /// All elements in memory order, none for a slot that has no memory yet. For kernels without aliasing (see the
    /// module contract).
    #[inline(always)]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        let ptr = self.ptr::<T>()?;
        if self.numel() == 0 || self.data.is_null() {
            return Ok(&[]);
        }
        // SAFETY: module contract; Element types accept every bit pattern.
        Ok(unsafe { std::slice::from_raw_parts(ptr, self.numel()) })
    }

    /// All bytes in memory order. For kernels without aliasing.
    #[inline(always)]
    pub fn as_bytes(&self) -> &'a [u8] {
        if self.numel() == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: whoever made the view promised `nbytes` readable bytes for its lifetime (module contract).
        unsafe { std::slice::from_raw_parts(self.data, self.nbytes()) }
    }
}

impl<'a> TensorViewMut<'a> {
    shared_accessors!();

    /// A view of memory that is not in a slot.
    ///
    /// # Safety
    /// `data` must be aligned for the dtype, valid for reads and writes of `meta.nbytes()` bytes
    /// during `'a`, and reachable through no other view that is used meanwhile.
    pub unsafe fn from_raw(data: *mut u8, meta: &'a TensorMeta) -> Self {
        TensorViewMut { data, meta }
    }

    /// Start of the bytes.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.data
    }

    /// Start of the elements; an error when the dtype is another.
    #[inline(always)]
    pub fn ptr<T: Element>(&self) -> Result<*mut T> {
        if self.meta.dtype() != T::DTYPE {
            return Err(wrong_dtype(T::DTYPE, self.meta.dtype()));
        }
        Ok(self.data.cast())
    }

    /// All elements in memory order, consumed so that two slices of one view cannot coexist. For
    /// kernels without aliasing that run in one chunk; chunked kernels split by [`Self::ptr`].
    #[inline(always)]
    pub fn into_slice<T: Element>(self) -> Result<&'a mut [T]> {
        let ptr = self.ptr::<T>()?;
        if self.numel() == 0 || self.data.is_null() {
            return Ok(&mut []);
        }
        // SAFETY: module contract; the view is consumed.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr, self.numel()) })
    }

    /// All bytes in memory order; as [`Self::into_slice`].
    #[inline(always)]
    pub fn into_bytes(self) -> &'a mut [u8] {
        if self.numel() == 0 || self.data.is_null() {
            return &mut [];
        }
        // SAFETY: module contract; the view is consumed.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.nbytes()) }
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype(), self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic(shape: &[usize]) -> TensorSlot {
        let mut spec = TensorSpec::contiguous(DType::Float32, shape).unwrap();
        spec.dynamism = Dynamism::Bounded;
        TensorSlot::new(&spec).unwrap()
    }

    #[test]
    fn static_slots_keep_their_shape() {
        let mut s = TensorSlot::new(&TensorSpec::contiguous(DType::Float32, &[2, 3]).unwrap()).unwrap();
        assert!(s.resize(&[2, 3]).is_ok());
        assert!(s.resize(&[3, 2]).is_err());
    }

    #[test]
    fn dynamic_slots_stay_within_rank_and_elements() {
        let mut s = dynamic(&[4, 8]);
        s.resize(&[2, 8]).unwrap();
        assert_eq!(&**s.meta().strides(), &[8, 1]);
        assert!(s.resize(&[33, 1]).is_err());
        assert!(s.resize(&[8]).is_err());
        assert!(s.resize(&[usize::MAX, 2]).is_err());
    }

    #[test]
    fn memory_limits_growth() {
        let mut s = dynamic(&[4]);
        let mut block = [0u8; 8];
        // SAFETY: `block` outlives the slot's use.
        unsafe { s.set_data(block.as_mut_ptr(), 8) };
        assert!(s.resize(&[2]).is_ok());
        assert!(s.resize(&[3]).is_err());
    }

    #[test]
    fn views_stay_within_their_own_bound() {
        let mut block = [0u8; 64];
        let mut base = dynamic(&[16]);
        // SAFETY: `block` outlives the slots' use.
        unsafe { base.set_data(block.as_mut_ptr(), 64) };
        let mut fixed = TensorSlot::new(&TensorSpec::contiguous(DType::Float32, &[4]).unwrap()).unwrap();
        fixed.alias(&base, &[4]).unwrap();
        assert_eq!(fixed.data(), base.data());
        assert!(fixed.alias(&base, &[3]).is_err());
        let mut bounded = dynamic(&[2, 4]);
        bounded.alias(&base, &[1, 8]).unwrap();
        assert!(bounded.alias(&base, &[2, 8]).is_err());
    }
}
