//! How are processes made, waited for, and told apart?
//!
//! Two ways to make one: [`fork`] copies, [`clone_sharing_memory`] starts a
//! newborn on a stack of its own inside our memory, so that nothing is copied
//! before its exec. Both ask clone3(2) (5.3) with CLONE_PIDFD first and fall
//! back to clone(2) where a kernel or a seccomp filter refuses it.
//!
//! Sources: clone(2), execve(2), wait(2), pidfd_open(2) (5.3), prctl(2),
//! sched(7). May use: `errno`, `fd`, `start`.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::{align_of, size_of};
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::{general as raw, prctl};
use sc::syscall;

use super::errno::{self, Errno, Result};
use super::fd::OwnedFd;
use super::start::{Args, Environment};

macro_rules! signals {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("The signal ", stringify!($name), " (signal(7)).")]
            pub const $name: i32 = raw::$name.cast_signed();
        )*
    };
}

signals! {
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGSEGV SIGPIPE SIGTERM
    SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGXFSZ SIGSYS
}

/// Ends this process (exit_group(2)).
pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: an integer; the call does not return.
        unsafe { syscall!(EXIT_GROUP, status) };
    }
}

macro_rules! id_calls {
    ($($(#[$doc:meta])* $name:ident $call:ident $type:ty;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            #[expect(clippy::cast_possible_truncation, reason = "the kernel returns 32 bits")]
            pub fn $name() -> $type {
                // SAFETY: no arguments, and it cannot fail.
                unsafe { syscall!($call) as $type }
            }
        )*
    };
}

id_calls! {
    /// This process's pid.
    getpid GETPID i32;
    /// The parent's pid, 0 when it is outside our PID namespace.
    getppid GETPPID i32;
    /// The real user.
    getuid GETUID u32;
    /// The effective user.
    geteuid GETEUID u32;
    /// The effective group.
    getegid GETEGID u32;
}

/// This process's session.
#[must_use]
pub fn session() -> i32 {
    // SAFETY: an integer; getsid(0) cannot fail.
    errno::check_i32(unsafe { syscall!(GETSID, 0) }).unwrap_or(0)
}

/// Whether a process exists and is in no session that has a number here: as the
/// kernel's threads are, or one that came from another PID namespace.
#[must_use]
pub fn has_no_session(pid: i32) -> bool {
    // SAFETY: an integer.
    errno::check_i32(unsafe { syscall!(GETSID, pid) }) == Ok(0)
}

/// This process's group.
#[must_use]
pub fn group() -> i32 {
    // SAFETY: an integer; getpgid(0) cannot fail.
    errno::check_i32(unsafe { syscall!(GETPGID, 0) }).unwrap_or(0)
}

/// Makes this process the leader of a new group in its session (setpgid(2)).
///
/// # Errors
/// EPERM: it leads a session.
pub fn lead_group() -> Result<()> {
    // SAFETY: two integers.
    errno::check_unit(unsafe { syscall!(SETPGID, 0, 0) })
}

/// Makes this process the leader of a new session (setsid(2)). Only newborns
/// call it, which lead no group, so it cannot fail.
pub fn setsid() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall!(SETSID) };
}

fn set(option: u32, value: usize) -> Result<()> {
    // SAFETY: only options whose argument is an integer, or a string that ends
    // in NUL, are passed here.
    errno::check_unit(unsafe { syscall!(PRCTL, option, value, 0, 0, 0) })
}

/// Orphans below this process become its children (PR_SET_CHILD_SUBREAPER, 3.4).
///
/// # Errors
/// EPERM under a seccomp filter.
pub fn set_child_subreaper() -> Result<()> {
    set(prctl::PR_SET_CHILD_SUBREAPER, 1)
}

/// The name in /proc/PID/comm (PR_SET_NAME), cut at 15 bytes.
pub fn set_name(name: &CStr) {
    // The name is for people and for `killall`; without it corral still works.
    let _ = set(prctl::PR_SET_NAME, name.as_ptr() as usize);
}

/// `signal` comes when the parent (the thread that made us) ends
/// (PR_SET_PDEATHSIG).
///
/// # Errors
/// EPERM under a seccomp filter.
pub fn set_parent_death_signal(signal: i32) -> Result<()> {
    set(prctl::PR_SET_PDEATHSIG, signal.cast_unsigned() as usize)
}

/// No exec of this process or its children raises privileges
/// (PR_SET_NO_NEW_PRIVS, 3.5).
///
/// # Errors
/// EPERM under a seccomp filter.
pub fn set_no_new_privs() -> Result<()> {
    set(prctl::PR_SET_NO_NEW_PRIVS, 1)
}

/// Whether this process leaves a core file, and others than root may trace it and
/// open what is its own in /proc (PR_SET_DUMPABLE, ptrace(2)); its children
/// inherit that until they exec.
pub fn set_dumpable(dumpable: bool) {
    let _ = set(prctl::PR_SET_DUMPABLE, usize::from(dumpable));
}

/// Runs this process before all ordinary ones, if it may (SCHED_FIFO, sched(7)),
/// without its children inheriting that.
///
/// # Errors
/// EPERM without CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn set_realtime() -> Result<()> {
    let priority = 1i32;
    let policy = raw::SCHED_FIFO | raw::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `struct sched_param`, an int.
    errno::check_unit(unsafe { syscall!(SCHED_SETSCHEDULER, 0, policy, &raw const priority) })
}

/// How many processors this process may use (sched_getaffinity(2)).
#[must_use]
pub fn processors() -> u32 {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel writes as many bytes as it is told to at most.
    let _ = unsafe { syscall!(SCHED_GETAFFINITY, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    mask.iter().map(|bits| bits.count_ones()).sum::<u32>().max(1)
}

/// How many descriptors this process may have (prlimit(2), RLIMIT_NOFILE).
#[must_use]
pub fn most_descriptors() -> i32 {
    let mut limits = [0u64; 2];
    // SAFETY: no new limit is given; the kernel writes one `struct rlimit64`.
    let _ = unsafe { syscall!(PRLIMIT64, 0, raw::RLIMIT_NOFILE, 0, limits.as_mut_ptr()) };
    i32::try_from(limits[0]).unwrap_or(i32::MAX)
}

/// CPU time and memory of the children that were waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time in µs.
    pub user_us: u64,
    /// System time in µs.
    pub system_us: u64,
    /// Largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
}

/// What all waited-for descendants have used (getrusage(2), RUSAGE_CHILDREN).
#[must_use]
pub fn usage_of_children() -> Usage {
    let mut usage = core::mem::MaybeUninit::<raw::rusage>::zeroed();
    // SAFETY: the kernel fills one `struct rusage`.
    let asked = unsafe { syscall!(GETRUSAGE, raw::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    if errno::check(asked).is_err() {
        return Usage::default();
    }
    // SAFETY: zeroed integers are a value, and the kernel has filled them.
    let usage = unsafe { usage.assume_init() };
    let micros = |seconds: i64, micros: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(micros).unwrap_or(0))
    };
    Usage {
        user_us: micros(usage.ru_utime.tv_sec, usage.ru_utime.tv_usec),
        system_us: micros(usage.ru_stime.tv_sec, usage.ru_stime.tv_usec),
        max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Forked {
    /// The parent: the child's pid, and its pidfd where the kernel gives one.
    Parent(i32, Option<OwnedFd>),
    /// The child.
    Child,
}

/// Which namespaces a copy of this process is the first in (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// None: it stays in ours.
    Ours,
    /// PID and mount.
    Pid,
    /// PID and mount, owned by a new user namespace.
    PidAndUser,
}

/// Makes a copy of this process.
///
/// # Errors
/// EAGAIN, ENOMEM (also: our PID namespace for children has lost its init).
pub fn fork() -> Result<Forked> {
    fork_into(Namespaces::Ours)
}

/// Makes a copy of this process that is the init of new namespaces.
///
/// # Errors
/// As [`fork`]; EPERM, ENOSPC (too many of them), EINVAL (unknown to this kernel,
/// or our children are in another PID namespace than we are).
pub fn fork_into(namespaces: Namespaces) -> Result<Forked> {
    let flags = raw::CLONE_PIDFD
        | match namespaces {
            Namespaces::Ours => 0,
            Namespaces::Pid => raw::CLONE_NEWPID | raw::CLONE_NEWNS,
            Namespaces::PidAndUser => raw::CLONE_NEWPID | raw::CLONE_NEWNS | raw::CLONE_NEWUSER,
        };
    let mut pidfd = -1i32;
    let mut args = clone_args(flags.into(), &raw mut pidfd);
    let size = size_of::<raw::clone_args>();
    // SAFETY: clone3 reads one clone_args and writes the pidfd; without
    // CLONE_VM the child goes on with a copy of everything.
    let mut made = errno::check_i32(unsafe { syscall!(CLONE3, &raw mut args, size) });
    if made.is_err_and(Errno::is_refused) {
        let flags = flags | raw::SIGCHLD;
        // SAFETY: as above; the pidfd is written through the parent_tid slot.
        made = errno::check_i32(unsafe { syscall!(CLONE, flags, 0, &raw mut pidfd, 0, 0) });
    }
    let pid = made?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    Ok(Forked::Parent(pid, (pidfd >= 0).then(|| OwnedFd::new(pidfd))))
}

fn clone_args(flags: u64, pidfd: *mut i32) -> raw::clone_args {
    raw::clone_args {
        flags,
        pidfd: pidfd as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: raw::SIGCHLD.into(),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    }
}

/// The newborn's stack. Only its touched pages exist.
const STACK_BYTES: usize = 32 * 1024;

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: used by one newborn, once; `STACK_TAKEN` sees to it.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));
static STACK_TAKEN: AtomicBool = AtomicBool::new(false);

/// What the newborn finds at the top of its stack.
#[repr(C, align(16))]
struct Cradle<T: 'static> {
    body: fn(&'static T) -> !,
    context: T,
}

/// Starts a newborn that shares our memory until its exec, and does not stop us
/// meanwhile (no CLONE_VFORK: an exec can hang). `body` runs on a stack of its
/// own with a copy of `context` and never returns; it must leave everything else
/// in memory as it is. Once in a process's life.
///
/// # Errors
/// EAGAIN, ENOMEM; EBUSY the second time.
pub fn clone_sharing_memory<T: Copy + 'static>(
    context: T,
    body: fn(&'static T) -> !,
) -> Result<(i32, Option<OwnedFd>)> {
    const { assert!(size_of::<Cradle<T>>() < STACK_BYTES / 2 && align_of::<T>() <= 16) };
    if STACK_TAKEN.load(Ordering::Relaxed) {
        return Err(Errno::EBUSY);
    }
    STACK_TAKEN.store(true, Ordering::Relaxed);
    let base = STACK.0.get().cast::<u8>();
    // SAFETY: the cradle is smaller than the stack, by the assertion above.
    let top = unsafe { base.add(STACK_BYTES - size_of::<Cradle<T>>()) };
    let cradle = top.cast::<Cradle<T>>();
    // SAFETY: inside the stack, which nobody else uses; 16-aligned, since the
    // stack and the cradle's size are.
    unsafe { cradle.write(Cradle { body, context }) };

    let mut pidfd = -1i32;
    let flags = raw::CLONE_VM | raw::CLONE_PIDFD;
    let mut args = clone_args(flags.into(), &raw mut pidfd);
    args.stack = base as u64;
    args.stack_size = (top as u64) - (base as u64);
    let size = size_of::<raw::clone_args>();
    let arguments = [&raw mut args as usize, size, 0, 0, 0];
    // SAFETY: clone3 with a fresh stack; the child goes to `cradle_entry` and
    // never returns here.
    let mut made =
        unsafe { enter_newborn(sc::nr::CLONE3, arguments, cradle_entry::<T>, cradle.cast()) };
    if errno::check(made).is_err_and(Errno::is_refused) {
        let flags = (flags | raw::SIGCHLD) as usize;
        let arguments = [flags, top as usize, &raw mut pidfd as usize, 0, 0];
        // SAFETY: as above; clone takes the stack's top and writes the pidfd
        // through the parent_tid slot. The last two arguments, whose order
        // differs between architectures, are both zero.
        made = unsafe { enter_newborn(sc::nr::CLONE, arguments, cradle_entry::<T>, cradle.cast()) };
    }
    let pid = errno::check_i32(made)?;
    Ok((pid, (pidfd >= 0).then(|| OwnedFd::new(pidfd))))
}

/// Where the newborn begins.
///
/// # Safety
/// `cradle` is the `Cradle<T>` that `clone_sharing_memory` wrote.
unsafe extern "C" fn cradle_entry<T: 'static>(cradle: *const u8) -> ! {
    // SAFETY: by the caller's promise; it lies in a static, so it lives for ever.
    let cradle: &'static Cradle<T> = unsafe { &*cradle.cast::<Cradle<T>>() };
    (cradle.body)(&cradle.context)
}

/// Makes the system call; in the child, whose stack is fresh, calls `entry`.
///
/// # Safety
/// The call is a clone whose child has a stack of its own, and `entry` never
/// returns.
#[cfg(target_arch = "x86_64")]
unsafe fn enter_newborn(
    number: usize,
    arguments: [usize; 5],
    entry: unsafe extern "C" fn(*const u8) -> !,
    cradle: *const u8,
) -> usize {
    let [a1, a2, a3, a4, a5] = arguments;
    let result;
    // SAFETY: the kernel keeps every register but rax, rcx and r11, in the
    // child too, so `entry` and `cradle` are still there on the new stack.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") number => result,
            in("rdi") a1, in("rsi") a2, in("rdx") a3, in("r10") a4, in("r8") a5,
            in("r12") entry, in("r13") cradle,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// As on x86-64.
///
/// # Safety
/// The call is a clone whose child has a stack of its own, and `entry` never
/// returns.
#[cfg(target_arch = "aarch64")]
unsafe fn enter_newborn(
    number: usize,
    arguments: [usize; 5],
    entry: unsafe extern "C" fn(*const u8) -> !,
    cradle: *const u8,
) -> usize {
    let [a1, a2, a3, a4, a5] = arguments;
    let result;
    // SAFETY: the kernel keeps every register but x0, in the child too, so
    // `entry` and `cradle` are still there on the new stack.
    unsafe {
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x10",
            "blr x9",
            "brk #1",
            "2:",
            in("x8") number,
            inlateout("x0") a1 => result,
            in("x1") a2, in("x2") a3, in("x3") a4, in("x4") a5,
            in("x9") entry, in("x10") cradle,
        );
    }
    result
}

/// Replaces this process (execve(2)); returns only on failure.
#[must_use]
pub fn execve(path: &CStr, args: &Args, environment: &Environment) -> Errno {
    let (argv, envp) = (args.pointer(), environment.pointer());
    // SAFETY: the path ends in NUL; both lists end in null and hold strings that
    // end in NUL, as the kernel handed them to us.
    let failed = unsafe { syscall!(EXECVE, path.as_ptr(), argv, envp) };
    errno::check(failed).err().unwrap_or(Errno::EINVAL)
}

/// As [`execve`], with words of our own.
#[must_use]
pub fn execve_words(
    path: &CStr,
    words: &mut dyn Iterator<Item = &CStr>,
    environment: &Environment,
) -> Errno {
    let mut list = super::memory::List::new();
    for pointer in words.map(CStr::as_ptr).chain([core::ptr::null()]) {
        if let Err(errno) = list.push(pointer) {
            return errno;
        }
    }
    let (argv, envp) = (list.as_ptr(), environment.pointer());
    // SAFETY: as in `execve`; the list above ends in null.
    let failed = unsafe { syscall!(EXECVE, path.as_ptr(), argv, envp) };
    errno::check(failed).err().unwrap_or(Errno::EINVAL)
}

/// How a process ended (wait(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(u8),
    /// It died of this signal; whether it dumped core.
    Signal(i32, bool),
}

/// What a wait for children found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// No child is left at all (ECHILD).
    NoChild,
    /// There are children, and none has ended.
    Nothing,
    /// This one ended and is reaped.
    Reaped(i32, Ended),
    /// A traced child stopped: not an end.
    Stopped,
}

/// Reaps one ended child of any kind without waiting (wait4(2), WNOHANG|__WALL).
#[must_use]
pub fn reap_any() -> Waited {
    reap(-1)
}

/// Waits until a child of ours has ended that ends by itself at once.
pub fn wait_for(pid: i32) -> Waited {
    loop {
        match wait(pid, 0) {
            Waited::Nothing | Waited::Stopped => {}
            ended => return ended,
        }
    }
}

/// As [`reap_any`], for one child alone.
#[must_use]
pub fn reap(pid: i32) -> Waited {
    wait(pid, raw::WNOHANG)
}

fn wait(pid: i32, options: u32) -> Waited {
    let mut status = 0i32;
    let options = options | raw::__WALL;
    // SAFETY: the kernel writes one int; no usage is asked for.
    match errno::check_i32(unsafe { syscall!(WAIT4, pid, &raw mut status, options, 0) }) {
        Err(Errno::ECHILD) => Waited::NoChild,
        Err(_) | Ok(0) => Waited::Nothing,
        Ok(pid) => decode(status).map_or(Waited::Stopped, |ended| Waited::Reaped(pid, ended)),
    }
}

/// The wait status of wait(2): low seven bits the signal (0: exited, 127:
/// stopped), bit 7 the core flag, the next byte the code.
const fn decode(status: i32) -> Option<Ended> {
    let [low, code, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => Some(Ended::Code(code)),
        0x7f => None,
        signal => Some(Ended::Signal(signal as i32, low & 0x80 != 0)),
    }
}

/// What is known of a number without /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No child of ours.
    Stranger,
    /// A child that has not ended.
    Alive,
    /// A child that can be reaped.
    Dead,
}

/// Whether `pid` is a child of ours (waitid(2), WNOHANG|WNOWAIT|__WALL: looks,
/// takes nothing).
#[must_use]
pub fn probe(pid: i32) -> Probe {
    look(raw::P_PID, pid).0
}

/// Whether this process has any child.
#[must_use]
pub fn has_children() -> bool {
    look(raw::P_ALL, 0).0 != Probe::Stranger
}

/// A child that can be reaped; 0: none.
#[must_use]
pub fn ended_child() -> i32 {
    look(raw::P_ALL, 0).1
}

/// And its pid, if it can be reaped.
fn look(kind: u32, id: i32) -> (Probe, i32) {
    let mut info = [0i32; 32];
    let options = raw::WEXITED | raw::WNOHANG | raw::WNOWAIT | raw::__WALL;
    // SAFETY: the kernel writes one siginfo_t of 128 bytes, field by field.
    match errno::check(unsafe { syscall!(WAITID, kind, id, info.as_mut_ptr(), options, 0) }) {
        Err(_) => (Probe::Stranger, 0),
        // si_signo stays 0 when nothing has ended; si_pid comes after si_errno, si_code
        // and the padding of a union.
        Ok(_) if info[0] == 0 => (Probe::Alive, 0),
        Ok(_) => (Probe::Dead, info[4]),
    }
}

/// A descriptor of the process `pid`, close-on-exec (pidfd_open(2), 5.3).
///
/// # Errors
/// ESRCH, EINVAL (not a process's first thread), ENOSYS, EPERM.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: two integers.
    errno::check_i32(unsafe { syscall!(PIDFD_OPEN, pid, 0) }).map(OwnedFd::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses() {
        assert_eq!(decode(0x0000), Some(Ended::Code(0)));
        assert_eq!(decode(0x7c00), Some(Ended::Code(124)));
        assert_eq!(decode(0x0009), Some(Ended::Signal(9, false)));
        assert_eq!(decode(0x008b), Some(Ended::Signal(11, true)));
        assert_eq!(decode(0x137f), None);
    }
}
