//! Where does memory come from when a count has no bound?
//!
//! [`List`] is a growing array in anonymous pages (mmap(2)), the only thing that
//! corral has for an allocator: the process table of a large tree, the tail of
//! an output. It moves when it grows, costs nothing while empty and gives its
//! pages back when dropped.
//!
//! May use: `errno`.

use core::mem::size_of;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Errno, Result};

/// Plain data for which all bytes zero is a value.
///
/// # Safety
/// The type has no invalid all-zero value and needs no drop.
pub unsafe trait Zeroed: Copy {}

// SAFETY: integers are valid when zero.
unsafe impl Zeroed for u8 {}
// SAFETY: integers are valid when zero.
unsafe impl Zeroed for u32 {}
// SAFETY: integers are valid when zero.
unsafe impl Zeroed for i32 {}
// SAFETY: integers are valid when zero.
unsafe impl Zeroed for u64 {}

/// A growing array of plain data.
#[derive(Debug)]
pub struct List<T: Copy> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
}

impl<T: Copy> List<T> {
    /// An empty one; nothing is mapped yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: NonNull::dangling(), length: 0, capacity: 0 }
    }

    /// `length` zeros.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn zeros(length: usize) -> Result<Self>
    where
        T: Zeroed,
    {
        let mut list = Self::new();
        list.grow(length)?;
        list.length = length;
        Ok(list)
    }

    /// Appends one.
    ///
    /// # Errors
    /// ENOMEM; the list is then as it was.
    pub fn push(&mut self, value: T) -> Result<()> {
        if self.length == self.capacity {
            self.grow(self.capacity.saturating_mul(2).max(4096 / size_of::<T>().max(1)))?;
        }
        // SAFETY: length < capacity, so the slot is inside the mapping.
        let slot = unsafe { self.start.add(self.length) };
        // SAFETY: the slot is mapped, aligned (a page is, and T divides the
        // offset) and owned by this list.
        unsafe { slot.write(value) };
        self.length += 1;
        Ok(())
    }

    /// Makes it `length` long; what is new is zero.
    ///
    /// # Errors
    /// ENOMEM; the list is then as it was.
    pub fn resize(&mut self, length: usize) -> Result<()>
    where
        T: Zeroed,
    {
        if length > self.capacity {
            // Fresh pages are zero, and only the old elements are copied there.
            self.grow(length)?;
        } else if let Some(more) = length.checked_sub(self.length) {
            // SAFETY: length <= capacity, so the elements are inside the mapping.
            let new = unsafe { self.start.add(self.length) };
            // SAFETY: mapped, owned by this list, and zero is a value.
            unsafe { new.write_bytes(0, more) };
        }
        self.length = length;
        Ok(())
    }

    /// Forgets all behind the first `length`, keeps the memory.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Forgets the contents, keeps the memory.
    pub const fn clear(&mut self) {
        self.length = 0;
    }

    fn grow(&mut self, capacity: usize) -> Result<()> {
        let used = self.length * size_of::<T>();
        let old = (self.start.cast(), self.capacity * size_of::<T>());
        let wanted = capacity.checked_mul(size_of::<T>()).ok_or(Errno::ENOMEM)?;
        // SAFETY: `old` is what is mapped, `used` of it is initialised, and nothing
        // borrows it, since `self` is being changed.
        self.start = unsafe { remap(old, used, wanted.max(1)) }?.cast();
        self.capacity = capacity;
        Ok(())
    }
}

/// Moves the first `used` bytes of the mapping `old`, none if it is of 0 bytes,
/// to a new one of `wanted` bytes. One function for lists of any type.
///
/// # Safety
/// `old` came from here, `used` bytes of it are initialised and fit into both, and
/// nobody uses it from then on, unless there is an error.
#[inline(never)]
unsafe fn remap(old: (NonNull<u8>, usize), used: usize, wanted: usize) -> Result<NonNull<u8>> {
    let protection = raw::PROT_READ | raw::PROT_WRITE;
    let flags = raw::MAP_PRIVATE | raw::MAP_ANONYMOUS | raw::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping, chosen by the kernel, touches no memory
    // that exists.
    let mapped = unsafe { syscall!(MMAP, 0, wanted, protection, flags, -1isize, 0) };
    let address = errno::check(mapped)?;
    let fresh = NonNull::new(core::ptr::with_exposed_provenance_mut(address));
    let fresh = fresh.ok_or(Errno::ENOMEM)?;
    let (start, size) = old;
    // SAFETY: by the caller's word, and a fresh mapping overlaps nothing.
    unsafe { fresh.copy_from_nonoverlapping(start, used) };
    // SAFETY: by the caller's word nobody uses it any more.
    unsafe { unmap(start, size) };
    Ok(fresh)
}

/// Gives a mapping of [`remap`] back, if it is of more than 0 bytes.
///
/// # Safety
/// Nobody uses it from then on.
#[inline(never)]
unsafe fn unmap(start: NonNull<u8>, size: usize) {
    if size > 0 {
        // SAFETY: exactly what `remap` mapped, and by the caller's word unused.
        let _ = unsafe { syscall!(MUNMAP, start.as_ptr(), size) };
    }
}

impl<T: Copy> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Drop for List<T> {
    fn drop(&mut self) {
        // SAFETY: what `grow` mapped; the list is gone, and with it all borrows.
        unsafe { unmap(self.start.cast(), self.capacity * size_of::<T>()) };
    }
}

impl<T: Copy> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `length` elements are initialised: pushed, or zeros that
        // `Zeroed` declares to be values; dangling is fine for an empty slice.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Copy> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_over_many_pages_and_keeps_its_contents() {
        let mut list = List::new();
        for value in 0..100_000u64 {
            list.push(value).expect("memory for a test");
        }
        assert!(list.iter().copied().eq(0..100_000));
        list.clear();
        assert!(list.is_empty());
    }

    #[test]
    fn zeros_are_zero_and_writable() {
        let mut list = List::<u32>::zeros(5000).expect("memory for a test");
        assert!(list.iter().all(|&value| value == 0));
        list[4999] = 7;
        assert_eq!(list[4999], 7);
    }

    #[test]
    fn what_is_new_after_resizing_is_zero() {
        let mut list = List::<u8>::zeros(10).expect("memory for a test");
        list.fill(7);
        list.resize(5000).expect("memory for a test");
        assert!(list[..10].iter().all(|&value| value == 7));
        assert!(list[10..].iter().all(|&value| value == 0));
        list.fill(7);
        list.resize(3).expect("smaller");
        list.resize(5000).expect("within what is mapped");
        assert_eq!((list[2], list[3], list[4999]), (7, 0, 0));
        assert!(list.resize(usize::MAX / 2).is_err());
        assert_eq!(list.len(), 5000);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(List::<u64>::zeros(usize::MAX / 4).is_err());
    }
}
