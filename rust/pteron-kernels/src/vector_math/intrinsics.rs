//! How the methods of [`super::simd::Simd`] are written with a processor's intrinsics: a line each. Unsafe island.

/// A method whose body is intrinsics without memory access.
macro_rules! pure {
    ($name:ident($($a:ident: $t:ty),*) -> $r:ty, $body:expr) => {
        #[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: `self` proves the features.
            unsafe { $body }
        }
    };
}

/// A method whose body is intrinsics that read or write.
macro_rules! memory {
    ($name:ident($($a:ident: $t:ty),*) $(-> $r:ty)?, $body:expr) => {
        /// # Safety
        /// As in [`super::simd::Simd`]: the elements that the method reads or writes are there.
        #[inline(always)]
        unsafe fn $name(self, $($a: $t),*) $(-> $r)? {
            // SAFETY: the caller promises the elements that the trait's `# Safety` names; masked lanes are neither read nor
            // written. `self` proves the features.
            unsafe { $body }
        }
    };
}

pub(super) use {memory, pure};
