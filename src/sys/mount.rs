//! How is a file system mounted?
//!
//! Sources: mount(2), mount_namespaces(7), proc(5). May use: `errno`.

use core::ffi::CStr;

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Result};

/// What is mounted on `path` from now on is seen in this mount namespace alone
/// (MS_SLAVE).
///
/// # Errors
/// EINVAL: nothing is mounted there; ENOENT, EPERM.
pub fn keep_to_ourselves(path: &CStr) -> Result<()> {
    let flags = raw::MS_SLAVE | raw::MS_REC;
    // SAFETY: the path ends in NUL; no other string is read with these flags.
    errno::check_unit(unsafe { syscall!(MOUNT, 0, path.as_ptr(), 0, flags, 0) })
}

/// Mounts the /proc of our PID namespace.
///
/// # Errors
/// EPERM: also where parts of the one that is there are covered, and we are
/// privileged in our own user namespace only; ENODEV, ENOENT.
pub fn proc(path: &CStr) -> Result<()> {
    let flags = raw::MS_NOSUID | raw::MS_NODEV | raw::MS_NOEXEC;
    let name = c"proc".as_ptr();
    // SAFETY: three strings that end in NUL, and no data.
    errno::check_unit(unsafe { syscall!(MOUNT, name, path.as_ptr(), name, flags, 0) })
}
