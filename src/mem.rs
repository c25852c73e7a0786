//! Where do memcpy and friends come from?
//!
//! The compiler emits calls to these six symbols for copies, fills, lengths and
//! comparisons, and without a libc nobody else provides them. They are written
//! so that the compiler cannot turn them back into calls of themselves: the
//! x86-64 copies are string instructions, everything else moves single bytes
//! through volatile accesses. corral copies little, so small beats fast here.
//!
//! May use: nothing.

#![expect(unsafe_code, reason = "the memory intrinsics are defined here")]

/// Copies `n` bytes from `src` to `dest`; the two do not overlap.
///
/// # Safety
/// As C's `memcpy`: both regions are valid for `n` bytes and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise is what `rep movsb` needs; the direction
    // flag is clear on entry by the System V ABI.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") n => _,
            inout("rdi") dest => _,
            inout("rsi") src => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise covers a forward copy.
    unsafe {
        forward(dest, src, n);
    }
    dest
}

/// Copies `n` bytes from `src` to `dest`, which may overlap.
///
/// # Safety
/// As C's `memmove`: both regions are valid for `n` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if (dest as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: dest is below src or past its end, so a forward copy never
        // overwrites a byte that is still to be read.
        unsafe { forward(dest, src, n) };
    } else {
        let mut left = n;
        while left > 0 {
            left -= 1;
            // SAFETY: left < n, inside both regions by the caller's promise.
            let from = unsafe { src.add(left) };
            // SAFETY: as above, for dest.
            let to = unsafe { dest.add(left) };
            // SAFETY: `from` is readable by the caller's promise.
            let byte = unsafe { from.read_volatile() };
            // SAFETY: `to` is writable by the caller's promise.
            unsafe { to.write_volatile(byte) };
        }
    }
    dest
}

/// Copies forward, byte by byte.
///
/// # Safety
/// Both regions are valid for `n` bytes, and `dest` does not lie inside `src`.
unsafe fn forward(dest: *mut u8, src: *const u8, n: usize) {
    let mut done = 0;
    while done < n {
        // SAFETY: done < n, inside both regions by the caller's promise.
        let from = unsafe { src.add(done) };
        // SAFETY: as above, for dest.
        let to = unsafe { dest.add(done) };
        // SAFETY: `from` is readable by the caller's promise.
        let byte = unsafe { from.read_volatile() };
        // SAFETY: `to` is writable by the caller's promise.
        unsafe { to.write_volatile(byte) };
        done += 1;
    }
}

/// Fills `n` bytes at `dest` with the low byte of `c`.
///
/// # Safety
/// As C's `memset`: the region is valid for writes of `n` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(dest: *mut u8, c: i32, n: usize) -> *mut u8 {
    let byte = c.to_ne_bytes()[if cfg!(target_endian = "little") { 0 } else { 3 }];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise is what `rep stosb` needs; the direction
    // flag is clear on entry by the System V ABI.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") n => _,
            inout("rdi") dest => _,
            in("al") byte,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut done = 0;
        while done < n {
            // SAFETY: done < n, inside the region by the caller's promise.
            let to = unsafe { dest.add(done) };
            // SAFETY: writable by the caller's promise.
            unsafe { to.write_volatile(byte) };
            done += 1;
        }
    }
    dest
}

/// Compares `n` bytes; negative, zero or positive as `a` is below, equal to or
/// above `b`.
///
/// # Safety
/// As C's `memcmp`: both regions are valid for `n` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut at = 0;
    while at < n {
        // SAFETY: at < n, inside both regions by the caller's promise.
        let left = unsafe { a.add(at) };
        // SAFETY: as above, for b.
        let right = unsafe { b.add(at) };
        // SAFETY: readable by the caller's promise.
        let left = unsafe { left.read_volatile() };
        // SAFETY: readable by the caller's promise.
        let right = unsafe { right.read_volatile() };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
        at += 1;
    }
    0
}

/// Compares `n` bytes for equality; zero when equal.
///
/// # Safety
/// As C's `bcmp`: both regions are valid for `n` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the same promise.
    unsafe { memcmp(a, b, n) }
}

/// Counts the bytes before the NUL.
///
/// # Safety
/// As C's `strlen`: `text` ends in NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    loop {
        // SAFETY: nothing up to here was NUL, so this byte is in the string.
        let at = unsafe { text.add(length) };
        // SAFETY: readable by the caller's promise.
        if unsafe { at.read_volatile() } == 0 {
            return length;
        }
        length += 1;
    }
}
