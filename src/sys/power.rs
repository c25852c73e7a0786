//! How does a machine end?
//!
//! Sources: reboot(2), sync(2). May use: `errno`.

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Errno};

/// What becomes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its power is turned off.
    PowerOff,
    /// It starts again.
    Restart,
    /// It stands still.
    Halt,
}

/// Writes back what file systems hold in memory; that can take as long as a disk.
pub fn sync() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall!(SYNC) };
}

/// Ends the machine at once. In a PID namespace that is not the machine's first
/// the kernel kills its init instead (reboot(2)). Returns only on failure.
#[must_use]
pub fn end(how: End) -> Errno {
    let command = match how {
        End::PowerOff => raw::LINUX_REBOOT_CMD_POWER_OFF,
        End::Restart => raw::LINUX_REBOOT_CMD_RESTART,
        End::Halt => raw::LINUX_REBOOT_CMD_HALT,
    };
    let (first, second) = (raw::LINUX_REBOOT_MAGIC1, raw::LINUX_REBOOT_MAGIC2);
    // SAFETY: three integers; the fourth argument is read with another command.
    let failed = unsafe { syscall!(REBOOT, first, second, command, 0) };
    errno::check(failed).err().unwrap_or(Errno::EINVAL)
}
