//! What the pointers of a caller point to, read once and checked. Unsafe island: that a pointer which is neither null nor
//! misaligned can be read is the caller's part of `pteron.h`.

use crate::abi::{
    Opaque, PteronBytes, PteronExecuteOptions, PteronLimits, PteronLoadOptions, PteronMethodOptions,
    PteronRuntimeOptions, PteronSource, PteronSpec,
};
use crate::failure::{Failure, Outcome, misuse};
use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, size_of};
use std::path::PathBuf;

/// A struct that begins with its size and may grow.
///
/// # Safety
/// `repr(C)`, the first field is the `u32` size, and any bytes are a legal value: numbers, raw pointers, functions that
/// may be null.
pub(crate) unsafe trait Versioned: Copy {}
// SAFETY: numbers and nullable pointers behind the size.
unsafe impl Versioned for PteronRuntimeOptions {}
// SAFETY: numbers behind the size.
unsafe impl Versioned for PteronLimits {}
// SAFETY: numbers, nullable pointers and a nullable function behind the size.
unsafe impl Versioned for PteronSource {}
// SAFETY: numbers and nullable pointers behind the size.
unsafe impl Versioned for PteronLoadOptions {}
// SAFETY: numbers and nullable pointers behind the size.
unsafe impl Versioned for PteronMethodOptions {}
// SAFETY: numbers, nullable pointers and a nullable function behind the size.
unsafe impl Versioned for PteronExecuteOptions {}
// SAFETY: numbers and nullable pointers behind the size.
unsafe impl Versioned for PteronSpec {}

/// No struct of any version is larger; a larger size was never set.
const LARGEST: usize = 4096;

#[cold]
fn null(name: &str) -> Failure {
    misuse(name, "the argument is NULL").hint("pteron.h says which arguments may be NULL")
}

fn usable<T>(pointer: *const T, name: &str) -> Outcome<()> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() {
        return Err(misuse(name, "the argument is no address of its type")
            .instead(format!("a multiple of {}", align_of::<T>()), format!("{:#x}", pointer.addr())));
    }
    Ok(())
}

/// The size that a struct at `pointer` states.
///
/// # Safety
/// `pointer` is usable, and a `u32` can be read there.
unsafe fn stated_size<T: Versioned>(pointer: *const T, name: &str) -> Outcome<usize> {
    // SAFETY: the caller's promise: four bytes can be read.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    if !(size_of::<u32>()..=LARGEST).contains(&size) {
        return Err(misuse(name, "struct_size is not set")
            .instead(format!("{} of this version", size_of::<T>()), size.to_string())
            .hint("PTERON_INIT(&options) sets it, and everything else to its default"));
    }
    Ok(size)
}

/// The struct at `pointer`, with zeros for what its maker did not know.
///
/// # Safety
/// `pointer` is null or points to a struct of the header, of any version, that can be read.
pub(crate) unsafe fn versioned<T: Versioned>(pointer: *const T, name: &str) -> Outcome<T> {
    usable(pointer, name)?;
    // SAFETY: usable, and it begins with the size.
    let size = unsafe { stated_size(pointer, name)? };
    let known = size.min(size_of::<T>());
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: the struct has `size` bytes by its own word, and the copy has at least `known`.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), known);
    }
    // SAFETY: the struct has `size` bytes by its own word, of which `known` are behind us.
    let rest = unsafe {
        std::slice::from_raw_parts(pointer.cast::<u8>().wrapping_add(known), size.saturating_sub(known))
    };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(misuse(name, "the struct asks for something that this library does not know")
            .instead(format!("zeros behind {} bytes", size_of::<T>()), format!("{size} bytes"))
            .hint("load a newer library, or leave the newer fields 0"));
    }
    // SAFETY: any bytes are a legal value, by the contract of the trait.
    Ok(unsafe { copy.assume_init() })
}

/// As [`versioned`]; all zeros for null.
///
/// # Safety
/// `pointer` is null or points to a struct of the header, of any version, that can be read.
pub(crate) unsafe fn optional<T: Versioned>(pointer: *const T, name: &str) -> Outcome<T> {
    match pointer.is_null() {
        // SAFETY: zeros are a legal value, by the contract of the trait.
        true => Ok(unsafe { MaybeUninit::zeroed().assume_init() }),
        // SAFETY: not null: a struct of the header, by the contract of this function.
        false => unsafe { versioned(pointer, name) },
    }
}

/// Writes as much of `value` as the caller has room for; the size stays as it is.
///
/// # Safety
/// `to` is null or points to a struct of the header, of any version, that can be read and written.
pub(crate) unsafe fn fill<T: Versioned>(to: *mut T, value: &T, name: &str) -> Outcome<()> {
    usable(to, name)?;
    // SAFETY: usable, and it begins with the size.
    let size = unsafe { stated_size(to, name)? };
    let (first, known) = (size_of::<u32>(), size.min(size_of::<T>()));
    // SAFETY: the struct has `size` bytes by its own word; those behind its size are written.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>().wrapping_add(first),
            to.cast::<u8>().wrapping_add(first),
            known.saturating_sub(first),
        );
        to.cast::<u8>().wrapping_add(known).write_bytes(0, size.saturating_sub(known));
    }
    Ok(())
}

/// Where a result goes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: whoever made this promises room for a `T` until the call ends, and `self` does not outlive it.
        unsafe { self.0.write(value) }
    }
}

/// The place of a result.
///
/// # Safety
/// `pointer` is null or has room for a `T` until the result is dropped, which is before the exported function returns.
pub(crate) unsafe fn out<T>(pointer: *mut T, name: &str) -> Outcome<Out<T>> {
    usable(pointer, name)?;
    Ok(Out(pointer))
}

/// The place of a handle, which is null until it is set.
///
/// # Safety
/// `pointer` is null or has room for a handle until the result is dropped, which is before the exported function
/// returns.
pub(crate) unsafe fn handle_out(pointer: *mut *mut Opaque, name: &str) -> Outcome<Out<*mut Opaque>> {
    usable(pointer, name)?;
    // SAFETY: not null, aligned, and room for a handle by the contract of this function.
    unsafe { pointer.write(std::ptr::null_mut()) };
    Ok(Out(pointer))
}

/// `count` elements at `pointer`, which may be null when there are none.
///
/// # Safety
/// `pointer` is null or `count` elements can be read there for as long as the result is used.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    usable(pointer, name)?;
    let nbytes = count.checked_mul(size_of::<T>()).filter(|n| isize::try_from(*n).is_ok());
    if nbytes.is_none() {
        return Err(misuse(name, "the count is beyond what memory can hold")
            .instead("the number of elements at the address", count.to_string()));
    }
    // SAFETY: not null, aligned, of a legal size, and readable by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// `count` places at `pointer` for handles, all of them null.
///
/// # Safety
/// `pointer` is null or has room for `count` handles, which nobody else looks at while the result is used.
pub(crate) unsafe fn handles_out<'a>(
    pointer: *mut *mut Opaque,
    count: usize,
    name: &str,
) -> Outcome<&'a mut [*mut Opaque]> {
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the contract of this function: room for `count` handles.
    unsafe { slice(pointer.cast_const(), count, name)? };
    // SAFETY: not null, aligned and of a legal size as was just checked; writable by the contract of this function.
    let places = unsafe {
        pointer.write_bytes(0, count);
        std::slice::from_raw_parts_mut(pointer, count)
    };
    Ok(places)
}

/// A string that ends in a zero byte.
///
/// # Safety
/// `pointer` is null or points to a string that ends in a zero byte, for as long as the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    usable(pointer, name)?;
    // SAFETY: not null; ends in a zero byte by the contract of this function.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|_| misuse(name, "the string is not UTF-8"))
}

/// The name of a file.
///
/// # Safety
/// `pointer` is null or points to a string that ends in a zero byte.
pub(crate) unsafe fn path(pointer: *const c_char, name: &str) -> Outcome<PathBuf> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        usable(pointer, name)?;
        // SAFETY: not null; ends in a zero byte by the contract of this function.
        let bytes = unsafe { CStr::from_ptr(pointer) };
        Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes.to_bytes())))
    }
    #[cfg(not(unix))]
    {
        // SAFETY: the contract of this function: null, or a string.
        Ok(PathBuf::from(unsafe { text(pointer, name)? }))
    }
}

/// The bytes of `b`, as text.
///
/// # Safety
/// `b.data` is null or `b.len` bytes can be read there for as long as the result is used.
pub(crate) unsafe fn string<'a>(b: &PteronBytes, name: &str) -> Outcome<&'a str> {
    // SAFETY: the contract of this function: null, or that many bytes.
    let bytes = unsafe { slice(b.data, b.len, name)? };
    std::str::from_utf8(bytes).map_err(|_| misuse(name, "the string is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    const SIZE: u32 = size_of::<PteronLimits>() as u32;

    fn zeros<T: Versioned>() -> T {
        // SAFETY: null is allowed.
        unsafe { optional(std::ptr::null(), "x") }.unwrap()
    }

    fn read(size: u32, words: [u64; 8]) -> Outcome<PteronLimits> {
        let mut raw = [0u64; 9];
        raw[1..].copy_from_slice(&words);
        raw[0] = u64::from_ne_bytes([size.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
        // SAFETY: 72 bytes, of which no test states more, aligned for the struct.
        unsafe { versioned(raw.as_ptr().cast::<PteronLimits>(), "limits") }
    }

    #[test]
    fn shorter_and_longer_structs_are_read() {
        assert_eq!(read(SIZE, [1, 2, 3, 4, 5, 6, 0, 0]).unwrap().rank, 6);
        let short = offset_of!(PteronLimits, instructions) as u32;
        let limits = read(short, [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!((limits.arena_bytes, limits.instructions, limits.rank), (1, 0, 0));
        assert_eq!(read(SIZE + 8, [1, 2, 3, 4, 5, 6, 0, 0]).unwrap().arena_bytes, 1);
        let text = |r: Outcome<PteronLimits>| r.err().unwrap().error.to_string();
        assert!(text(read(SIZE + 8, [1, 2, 3, 4, 5, 6, 7, 0])).contains("does not know"));
        assert!(text(read(0, [0; 8])).contains("struct_size is not set"));
        assert!(text(read(5000, [0; 8])).contains("struct_size is not set"));
    }

    #[test]
    fn as_much_is_written_as_there_is_room_for() {
        let mut to: PteronSpec = zeros();
        to.struct_size = offset_of!(PteronSpec, dtype) as u32;
        to.ndim = 77;
        let mut value: PteronSpec = zeros();
        (value.kind, value.ndim) = (3, 5);
        // SAFETY: a whole struct that states less.
        unsafe { fill(&mut to, &value, "spec") }.unwrap();
        assert_eq!((to.struct_size as usize, to.kind, to.ndim), (offset_of!(PteronSpec, dtype), 3, 77));
    }

    #[test]
    fn bad_pointers_are_named() {
        let odd = std::ptr::without_provenance::<u64>(0x1001);
        // SAFETY: neither of them is read: one is null, one is misaligned, one has too large a count.
        unsafe {
            assert!(slice::<u64>(std::ptr::null(), 1, "n").is_err());
            assert!(slice(odd, 1, "n").err().unwrap().error.to_string().contains("multiple of 8"));
            assert!(slice(&0u64, usize::MAX / 4, "n").is_err());
            assert!(slice::<u64>(std::ptr::null(), 0, "n").unwrap().is_empty());
            assert!(text(std::ptr::null(), "name").is_err());
            assert!(text(c"\xff".as_ptr(), "name").err().unwrap().error.to_string().contains("UTF-8"));
        }
    }
}
