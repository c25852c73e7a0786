//! What does the kernel put on the stack, and how does a process end?
//!
//! At exec the stack holds `argc`, the argument pointers and a null, the
//! environment pointers and a null, and the auxiliary vector (x86-64 and AArch64
//! ELF psABI; getauxval(3)). [`Start`] reads them in place: nothing is copied.
//! One more environment variable is added without memory of its own: once the
//! auxiliary vector has been read, its first entry is given to the environment,
//! which it follows (the kernel keeps its own copy for /proc/PID/auxv).
//!
//! May use: `errno`, `fd`, `process`, `signal`.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::auxvec as raw;

use super::{fd, process, signal};

/// The words of the command line, as the kernel put them there.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    first: *const *const c_char,
    count: usize,
}

impl Args {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none, as a careless exec can bring about.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Word `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'static CStr> {
        if index >= self.count {
            return None;
        }
        // SAFETY: index < count pointers that the kernel placed there.
        let slot = unsafe { self.first.add(index) };
        // SAFETY: the slot lies on the initial stack, which lives for ever.
        let word = unsafe { slot.read() };
        // SAFETY: the kernel ends each argument with NUL, and nothing of ours
        // writes there.
        Some(unsafe { CStr::from_ptr(word) })
    }

    /// The words from `index` on.
    #[must_use]
    pub fn from(&self, index: usize) -> Self {
        let skip = index.min(self.count);
        // SAFETY: skip <= count, so the result is at most the closing null.
        Self { first: unsafe { self.first.add(skip) }, count: self.count - skip }
    }

    /// As execve(2) takes them.
    pub(super) const fn pointer(&self) -> *const *const c_char {
        self.first
    }
}

/// The environment.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    first: *mut *const c_char,
    count: usize,
}

impl Environment {
    /// The value of `name`, the first one if it is there twice.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'static CStr> {
        let index = self.position(name)?;
        let text = self.entry(index)?;
        text.to_bytes_with_nul()
            .get(name.len() + 1..)
            .and_then(|value| CStr::from_bytes_with_nul(value).ok())
    }

    fn entry(&self, index: usize) -> Option<&'static CStr> {
        let words = Args { first: self.first, count: self.count };
        words.get(index)
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        (0..self.count).find(|&index| {
            self.entry(index)
                .and_then(|text| text.to_bytes().strip_prefix(name))
                .is_some_and(|rest| rest.first() == Some(&b'='))
        })
    }

    /// As execve(2) takes it.
    pub(super) const fn pointer(&self) -> *const *const c_char {
        self.first
    }
}

/// Everything that a process is given at exec.
#[derive(Debug)]
pub struct Start {
    /// The command line, `argv[0]` first.
    pub args: Args,
    /// The environment.
    pub environment: Environment,
    /// AT_SECURE: raised privileges.
    pub secure: bool,
    /// AT_CLKTCK: ticks a second in /proc/PID/stat.
    pub ticks_per_second: u64,
    /// AT_RANDOM: 16 random bytes, fresh for this exec.
    pub random: [u8; 16],
}

impl Start {
    /// Reads the initial stack.
    ///
    /// # Safety
    /// `stack` is the stack pointer as the kernel left it at exec, and this is
    /// called once.
    #[must_use]
    pub unsafe fn from_stack(stack: *mut usize) -> Self {
        // SAFETY: the first word is argc.
        let count = unsafe { stack.read() };
        // SAFETY: the pointers follow argc.
        let first = unsafe { stack.add(1) }.cast::<*const c_char>();
        let args = Args { first, count };
        // SAFETY: the environment follows the null that ends the arguments.
        let first = unsafe { first.add(count + 1) };
        let mut count = 0;
        loop {
            // SAFETY: the environment is ended by a null, where this stops.
            let slot = unsafe { first.add(count) };
            // SAFETY: the slot lies on the initial stack.
            if unsafe { slot.read() }.is_null() {
                break;
            }
            count += 1;
        }
        let mut start = Self {
            args,
            environment: Environment { first, count },
            secure: false,
            ticks_per_second: 100,
            random: [0; 16],
        };
        // SAFETY: the auxiliary vector follows the null that ends the
        // environment.
        let mut entry = unsafe { first.add(count + 1) }.cast::<[usize; 2]>();
        loop {
            // SAFETY: pairs up to and with AT_NULL, where this stops.
            let [key, value] = unsafe { entry.read() };
            match u32::try_from(key) {
                Ok(raw::AT_NULL) => return start,
                Ok(raw::AT_SECURE) => start.secure = value != 0,
                Ok(raw::AT_CLKTCK) => start.ticks_per_second = (value as u64).max(1),
                Ok(raw::AT_RANDOM) => {
                    let random = core::ptr::with_exposed_provenance::<[u8; 16]>(value);
                    // SAFETY: AT_RANDOM points to 16 bytes on the stack.
                    start.random = unsafe { random.read_unaligned() };
                }
                _ => {}
            }
            // SAFETY: not yet AT_NULL, so there is another pair.
            entry = unsafe { entry.add(1) };
        }
    }

    /// Puts `CORRAL_RUN_ID=id` into the environment that the command will get:
    /// over the one that is there, or in the first slot after it. Once; the id is
    /// cut at [`RUN_ID_BYTES`].
    pub fn export_run_id(&mut self, id: &[u8]) {
        const NAME: &[u8] = b"CORRAL_RUN_ID";
        if RUN_ID_TAKEN.load(Ordering::Relaxed) {
            return;
        }
        RUN_ID_TAKEN.store(true, Ordering::Relaxed);
        let text = RUN_ID.0.get().cast::<u8>();
        let mut offset = 0;
        for part in [NAME, b"=", id.get(..RUN_ID_BYTES).unwrap_or(id)] {
            for byte in part {
                // SAFETY: name, `=` and id fit with their NUL, by the static's size.
                let place = unsafe { text.add(offset) };
                // SAFETY: only this call, once, touches the static.
                unsafe { place.write(*byte) };
                offset += 1;
            }
        }
        let environment = &mut self.environment;
        let index = environment.position(NAME).unwrap_or(environment.count);
        // SAFETY: at most the closing null, on the initial stack.
        let slot = unsafe { environment.first.add(index) };
        // SAFETY: ours to write: the pointers belong to this process.
        unsafe { slot.write(text.cast::<c_char>()) };
        if index == environment.count {
            environment.count += 1;
            // SAFETY: the word after the closing null is the first of the
            // auxiliary vector, which `from_stack` has read already.
            let end = unsafe { environment.first.add(environment.count) };
            // SAFETY: as above.
            unsafe { end.write(core::ptr::null()) };
        }
    }
}

/// Longest run id that the environment takes.
pub const RUN_ID_BYTES: usize = 64;

/// Where the variable's text lives; zero-filled, so it ends in NUL.
struct RunId(UnsafeCell<[u8; 13 + 1 + RUN_ID_BYTES + 1]>);

// SAFETY: written once, before there is a second process that shares memory;
// `RUN_ID_TAKEN` sees to it.
unsafe impl Sync for RunId {}

static RUN_ID: RunId = RunId(UnsafeCell::new([0; 13 + 1 + RUN_ID_BYTES + 1]));
static RUN_ID_TAKEN: AtomicBool = AtomicBool::new(false);

/// Ends this process as a bug does: by a signal, so that the other of corral's
/// processes takes it for the loss that it is.
pub fn die_of_a_bug() -> ! {
    let _ = fd::write(fd::STDERR, b"corral: internal error: please report it\n");
    let _ = signal::kill(process::getpid(), process::SIGKILL);
    // Still here: we are the init of a PID namespace, which no signal of its
    // own ends. Leaving ends everything in it as surely.
    process::exit(125)
}
