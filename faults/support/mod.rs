//! What every fault program stands on: an entry point without libc, the memory
//! intrinsics, and a few raw system calls.
//!
//! A fault calls `sc` directly and never corral's own wrappers, so that a bug in
//! those cannot hide itself. Every process of a fault arms an alarm of its own
//! ([`arm`]; alarms are not inherited), so that whatever corral gets wrong, the
//! machine is clean after [`LIFE`] seconds.

#![allow(dead_code, reason = "each fault uses its own part of this")]

#[path = "../../src/mem.rs"]
mod mem;

pub use sc::syscall;

/// Seconds that any process of a fault may live.
pub const LIFE: usize = 30;

/// Makes `fn main(args: Args) -> u8` the program.
#[macro_export]
macro_rules! fault {
    ($main:path) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            ".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16",
            "call {entry}", "ud2", entry = sym entry,
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            ".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp",
            "bl {entry}", "brk #1", entry = sym entry,
        );

        extern "C" fn entry(stack: *const usize) -> ! {
            support::arm();
            let status: u8 = $main(support::Args::new(stack));
            support::exit(status)
        }
    };
}

/// The command line.
#[derive(Clone, Copy)]
pub struct Args(*const usize);

impl Args {
    pub const fn new(stack: *const usize) -> Self {
        Self(stack)
    }

    /// Argument `index` (0 is the program), without its NUL.
    pub fn get(&self, index: usize) -> Option<&'static [u8]> {
        // SAFETY: the initial stack holds argc, then argc pointers to strings.
        unsafe {
            if index >= *self.0 {
                return None;
            }
            let text = *self.0.add(1 + index) as *const core::ffi::c_char;
            Some(core::ffi::CStr::from_ptr(text).to_bytes())
        }
    }

    /// Argument `index` as a number, or `or` where it is missing.
    pub fn number(&self, index: usize, or: usize) -> usize {
        let Some(text) = self.get(index) else {
            return or;
        };
        text.iter().fold(0, |sum, digit| {
            sum * 10 + usize::from(digit.wrapping_sub(b'0'))
        })
    }

    /// Address of the argument pointer `index`, for execve.
    pub fn pointer(&self, index: usize) -> usize {
        // SAFETY: as in `get`; at most the closing null.
        unsafe { self.0.add(1 + index) as usize }
    }

    /// Address of the environment's first pointer, for execve.
    pub fn environment(&self) -> usize {
        // SAFETY: the environment follows the null after the arguments.
        unsafe { self.0.add(2 + *self.0) as usize }
    }
}

/// Ends this process in [`LIFE`] seconds, whatever happens (setitimer's signal
/// is SIGALRM, at its default action).
pub fn arm() {
    let timer: [usize; 4] = [0, 0, LIFE, 0];
    // SAFETY: the kernel reads one struct itimerval.
    unsafe { syscall!(SETITIMER, 0, timer.as_ptr(), 0) };
}

/// Forks; the child is armed.
pub fn fork() -> isize {
    // SAFETY: a plain fork: SIGCHLD at exit, no shared memory.
    let pid = unsafe { syscall!(CLONE, 17, 0, 0, 0, 0) } as isize;
    if pid == 0 {
        arm();
    }
    pid
}

pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall!(EXIT_GROUP, status as usize) };
    }
}

pub fn write(fd: i32, bytes: &[u8]) -> isize {
    // SAFETY: the kernel reads `bytes`.
    unsafe { syscall!(WRITE, fd, bytes.as_ptr(), bytes.len()) as isize }
}

/// Says that the trap is set.
pub fn ready() {
    write(1, b"ready\n");
}

pub fn getpid() -> usize {
    // SAFETY: no arguments.
    unsafe { syscall!(GETPID) }
}

pub fn kill(pid: isize, signal: usize) -> isize {
    // SAFETY: two integers.
    unsafe { syscall!(KILL, pid, signal) as isize }
}

pub fn setsid() {
    // SAFETY: no arguments.
    unsafe { syscall!(SETSID) };
}

/// Sleeps, going on after signals that are handled or ignored.
pub fn sleep_ms(milliseconds: usize) {
    let mut left: [usize; 2] = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    // SAFETY: the kernel reads and writes one struct timespec.
    while unsafe { syscall!(NANOSLEEP, left.as_ptr(), left.as_mut_ptr()) } as isize == -4 {}
}

/// Sleeps until the alarm or a signal ends it.
pub fn sleep_forever() -> ! {
    loop {
        sleep_ms(1_000_000);
    }
}

#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Ignores a signal.
pub fn ignore(signal: usize) {
    let action = Action {
        handler: 1,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    // SAFETY: the kernel reads one struct sigaction.
    unsafe { syscall!(RT_SIGACTION, signal, &raw const action, 0, 8) };
}

/// Blocks the signals of a mask (bit N-1 for signal N).
pub fn block(mask: u64) {
    // SAFETY: the kernel reads eight bytes.
    unsafe { syscall!(RT_SIGPROCMASK, 0, &raw const mask, 0, 8) };
}

/// Waits for one of the blocked signals of `mask` and returns it.
pub fn sigwait(mask: u64) -> usize {
    loop {
        // SAFETY: the kernel reads eight bytes.
        let signal = unsafe { syscall!(RT_SIGTIMEDWAIT, &raw const mask, 0, 0, 8) };
        if (signal as isize) > 0 {
            return signal;
        }
    }
}

/// Waits for any child; returns its pid or a negative error.
pub fn wait() -> isize {
    // SAFETY: no status is asked for.
    unsafe { syscall!(WAIT4, -1isize, 0, 0x4000_0000, 0) as isize }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(99)
}

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
