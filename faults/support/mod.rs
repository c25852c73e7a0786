//! What every fault program stands on: an entry point without libc, the memory
//! intrinsics, and a few raw system calls.
//!
//! A fault calls `sc` directly and never corral's own wrappers, so that a bug in
//! those cannot hide itself. Every process of a fault arms an alarm of its own
//! ([`arm`]; alarms are not inherited), so that whatever corral gets wrong, the
//! machine is clean after [`LIFE`] seconds.

#![allow(dead_code, unused_imports, reason = "each fault uses its own part of this")]

#[path = "../../src/mem.rs"]
mod mem;

pub mod group;

use core::arch::asm;

pub use linux_raw_sys::general::*;
pub use linux_raw_sys::prctl::*;
pub use sc::syscall;

/// Seconds that any process of a fault may live.
pub const LIFE: usize = 30;

/// Exit status of a fault that this host does not let happen: a test skips.
pub const CANNOT: u8 = 77;

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
        text.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit.wrapping_sub(b'0')))
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

/// Ends this process in [`LIFE`] seconds, unless it is stopped (setitimer's
/// signal is SIGALRM, at its default action).
pub fn arm() {
    alarm(LIFE);
}

/// Takes the alarm off again, which would outlive an execve.
pub fn disarm() {
    alarm(0);
}

fn alarm(seconds: usize) {
    let timer: [usize; 4] = [0, 0, seconds, 0];
    // SAFETY: the kernel reads one struct itimerval.
    unsafe { syscall!(SETITIMER, ITIMER_REAL, timer.as_ptr(), 0) };
}

/// Ends this process in [`LIFE`] seconds even when it is stopped then: a POSIX
/// timer may send SIGKILL. For whoever stops itself, or others.
pub fn arm_even_stopped() {
    // struct sigevent: value, signal and notification (SIGEV_SIGNAL = 0), rest.
    let event: [u64; 8] = [0, SIGKILL as u64, 0, 0, 0, 0, 0, 0];
    let mut timer = 0i32;
    // SAFETY: the kernel reads one struct sigevent and writes one timer id.
    unsafe { syscall!(TIMER_CREATE, CLOCK_MONOTONIC, event.as_ptr(), &raw mut timer) };
    let when: [usize; 4] = [0, 0, LIFE, 0];
    // SAFETY: the kernel reads one struct itimerspec.
    unsafe { syscall!(TIMER_SETTIME, timer, 0, when.as_ptr(), 0) };
}

/// Forks; the child is armed.
pub fn fork() -> isize {
    clone(SIGCHLD)
}

/// Forks with these CLONE_ flags and this exit signal; the child is armed. Not
/// for CLONE_VM.
pub fn clone(flags: u32) -> isize {
    // SAFETY: no shared memory, so the child goes on with a stack of its own.
    let pid = unsafe { syscall!(CLONE, flags, 0, 0, 0, 0) } as isize;
    if pid == 0 {
        arm();
    }
    pid
}

/// Bytes of a stack for [`clone_vm`].
pub const STACK: usize = 1 << 16;

/// Starts `run` in this memory, on a new stack that is never given back. A
/// thread shares the alarm of its process, anything else has to arm itself.
pub fn clone_vm(flags: u32, run: extern "C" fn() -> !) -> isize {
    let top = map(STACK) + STACK;
    let result: isize;
    // SAFETY: the child leaves this frame at once, for a stack of its own (its
    // top is page-aligned), and `run` does not return. The argument order
    // differs between the two architectures only in zeros.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "call r9", "ud2", "2:",
            inlateout("rax") 56isize => result,
            in("rdi") (flags | CLONE_VM) as usize, in("rsi") top,
            in("rdx") 0, in("r10") 0, in("r8") 0, in("r9") run,
            out("rcx") _, out("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0", "cbnz x0, 2f", "mov x29, xzr", "blr x9", "brk #1", "2:",
            inlateout("x0") (flags | CLONE_VM) as usize => result,
            in("x1") top, in("x2") 0, in("x3") 0, in("x4") 0,
            in("x8") 220, in("x9") run,
        );
    }
    result
}

/// New zeroed memory; its address.
pub fn map(bytes: usize) -> usize {
    let (access, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    // SAFETY: an anonymous mapping where the kernel likes.
    let at = unsafe { syscall!(MMAP, 0, bytes, access, kind, -1isize, 0) };
    if (at as isize) < 0 && (at as isize) > -4096 {
        exit(CANNOT);
    }
    at
}

/// Forks a child that does `then`, in a session of its own and without parent:
/// its parent has exited and is reaped when this returns.
pub fn detach(then: fn() -> !) {
    if fork() == 0 {
        setsid();
        if fork() == 0 {
            then();
        }
        exit(0);
    }
    wait();
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

pub fn read(fd: i32, bytes: &mut [u8]) -> isize {
    // SAFETY: the kernel writes into `bytes`.
    unsafe { syscall!(READ, fd, bytes.as_mut_ptr(), bytes.len()) as isize }
}

/// Says that the trap is set.
pub fn ready() {
    write(1, b"ready\n");
}

/// Writes a word, a number and a newline to stdout in one piece.
pub fn say(word: &[u8], number: usize) {
    let mut line = [0; 64];
    let mut at = line.len();
    let mut left = number;
    let mut put = |byte| {
        at -= 1;
        line[at] = byte;
    };
    put(b'\n');
    loop {
        put(b'0' + (left % 10) as u8);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    put(b' ');
    word.iter().rev().for_each(|byte| put(*byte));
    write(1, &line[at..]);
}

pub fn close(fd: i32) {
    // SAFETY: nothing here rests on the descriptor.
    unsafe { syscall!(CLOSE, fd) };
}

/// Opens a path that ends in NUL for reading and writing or for writing alone.
pub fn open(path: &[u8], flags: u32) -> isize {
    // SAFETY: the path ends in NUL.
    unsafe { syscall!(OPENAT, AT_FDCWD, path.as_ptr(), flags | O_CLOEXEC, 0o600) as isize }
}

/// A pipe: its read and its write end.
pub fn pipe() -> (i32, i32) {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two descriptors.
    unsafe { syscall!(PIPE2, ends.as_mut_ptr(), 0) };
    (ends[0], ends[1])
}

pub fn getpid() -> usize {
    // SAFETY: no arguments.
    unsafe { syscall!(GETPID) }
}

pub fn getppid() -> usize {
    // SAFETY: no arguments.
    unsafe { syscall!(GETPPID) }
}

pub fn getuid() -> usize {
    // SAFETY: no arguments.
    unsafe { syscall!(GETUID) }
}

/// Becomes this user and group, with no other groups.
pub fn become_user(uid: usize) {
    // SAFETY: numbers alone.
    unsafe {
        syscall!(SETGROUPS, 0, 0);
        syscall!(SETRESGID, uid, uid, uid);
        syscall!(SETRESUID, uid, uid, uid);
    }
}

pub fn prctl(option: u32, argument: usize) -> isize {
    // SAFETY: the options used here take a number, or the address of 16 bytes.
    unsafe { syscall!(PRCTL, option, argument, 0, 0, 0) as isize }
}

pub fn kill(pid: isize, signal: u32) -> isize {
    // SAFETY: two integers.
    unsafe { syscall!(KILL, pid, signal) as isize }
}

/// Stops this process, and again whenever it is continued.
pub fn stop_forever() -> ! {
    loop {
        kill(getpid() as isize, SIGSTOP);
    }
}

pub fn setsid() {
    // SAFETY: no arguments.
    unsafe { syscall!(SETSID) };
}

/// Seconds on the monotonic clock.
pub fn now() -> usize {
    let mut time = [0usize; 2];
    // SAFETY: the kernel writes one struct timespec.
    unsafe { syscall!(CLOCK_GETTIME, CLOCK_MONOTONIC, time.as_mut_ptr()) };
    time[0]
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

fn act(signal: u32, handler: usize) {
    let action = Action { handler, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: the kernel reads one struct sigaction.
    unsafe { syscall!(RT_SIGACTION, signal, &raw const action, 0, 8) };
}

/// Ignores a signal.
pub fn ignore(signal: u32) {
    act(signal, 1);
}

/// Lets a signal do what it does by default.
pub fn heed(signal: u32) {
    act(signal, 0);
}

/// A set of signals.
pub const fn mask(signals: &[u32]) -> u64 {
    let mut mask = 0;
    let mut left = signals;
    while let [signal, rest @ ..] = left {
        mask |= 1 << (*signal - 1);
        left = rest;
    }
    mask
}

/// Blocks the signals of a mask.
pub fn block(mask: u64) {
    // SAFETY: the kernel reads eight bytes.
    unsafe { syscall!(RT_SIGPROCMASK, SIG_BLOCK, &raw const mask, 0, 8) };
}

/// Waits for one of the blocked signals of `mask` and returns it.
pub fn sigwait(mask: u64) -> u32 {
    loop {
        // SAFETY: the kernel reads eight bytes.
        let signal = unsafe { syscall!(RT_SIGTIMEDWAIT, &raw const mask, 0, 0, 8) };
        if (signal as isize) > 0 {
            return signal as u32;
        }
    }
}

/// Waits for any child's end; returns its pid or a negative error.
pub fn wait() -> isize {
    // SAFETY: no status is asked for.
    unsafe { syscall!(WAIT4, -1isize, 0, __WALL, 0) as isize }
}

/// Waits until this child is in a state (`WSTOPPED`, `WEXITED`), and leaves it
/// waitable.
pub fn watch(pid: isize, state: u32) {
    // SAFETY: no information is asked for.
    unsafe { syscall!(WAITID, P_PID, pid, 0, state | WNOWAIT, 0) };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(99)
}

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
