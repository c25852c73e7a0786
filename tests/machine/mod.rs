//! How is corral tried on another kernel?
//!
//! A real one is booted, as user-mode Linux or in an emulator (no virtualization
//! of the host is needed, and none used), on an initramfs that is made for it.
//! The guest's init is a shell script; what it prints on the console is all that
//! comes back. The machine itself is started like any other run of the tests: in
//! a cgroup of its own and with a hard limit, so nothing of it stays.
//!
//! The kernels are fetched beforehand by `.ci/kernels`; a test never does that.

#![allow(dead_code, reason = "each test file uses its own part of this")]

mod cross;
mod initramfs;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use cross::Cross;
pub use initramfs::Initramfs;

use super::common::{Run, corral, fault_in, skip};
use super::expect::ROWS;

/// One guest at a time: two of them on two processors stop each other's in the
/// middle of a step, and a fork storm then outruns whoever ends it.
static MACHINE: Mutex<()> = Mutex::new(());

/// No guest runs while this lives.
pub fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The script that a guest usually starts with.
pub const INIT: &str = "rdinit=/init";

/// A guest's end, as its init says it.
const OVER: &str = "@@ over";

/// What the guests' scripts use of busybox.
const APPLETS: &[&str] = &[
    "cat", "date", "echo", "env", "false", "grep", "kill", "ls", "mkdir", "mount", "poweroff",
    "printf", "readlink", "rm", "setsid", "sh", "sleep", "test", "timeout", "true", "umount",
    "uname", "wc",
];

/// One kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its name for `.ci/kernels`.
    pub name: &'static str,
    /// Rows that cannot be run on it, in the order of the alphabet.
    pub without: &'static [&'static str],
}

/// What came of a guest.
#[derive(Debug)]
pub struct Console {
    pub text: String,
    pub elapsed: Duration,
}

impl Kernel {
    /// The image; says `skip` where it is not in the cache.
    fn image(&self) -> Option<PathBuf> {
        let image = cache()?.join("kernels").join(self.name).join("vmlinuz");
        if !image.exists() {
            skip(&format!("no kernel {}: fetch it with .ci/kernels", self.name));
            return None;
        }
        Some(image)
    }

    /// Boots it with `script` as its init, behind [`PREPARE`]; `None` skips.
    pub fn boot(&self, programs: &[PathBuf], script: &str, limit: Duration) -> Option<Console> {
        self.boot_with(BASE.clone()?, programs, script, limit)
    }

    /// The same on another architecture.
    pub fn boot_foreign(
        &self,
        built: &Cross,
        programs: &[PathBuf],
        script: &str,
        limit: Duration,
    ) -> Option<Console> {
        let busybox = self.image()?.with_file_name("busybox");
        let root = base(&busybox, &built.corral, built.home());
        self.boot_with(root, programs, script, limit)
    }

    fn boot_with(
        &self,
        mut root: Initramfs,
        programs: &[PathBuf],
        script: &str,
        limit: Duration,
    ) -> Option<Console> {
        for program in programs {
            root.program(program);
        }
        root.file("/init", 0o755, format!("{PREPARE}\n{script}\n{END}").as_bytes());
        self.boot_on(&root.finish(), INIT, limit)
    }

    /// Boots it on this root; `init` is what its command line says of its init.
    pub fn boot_on(&self, root: &[u8], init: &str, limit: Duration) -> Option<Console> {
        let image = self.image()?;
        let directory = tempfile::tempdir().unwrap();
        let initrd = directory.path().join("initrd");
        fs::write(&initrd, root).unwrap();

        let argv = match self.name {
            "uml" => user_mode(&image, &initrd, directory.path(), init),
            "arm64" => {
                emulator(ARM64, &image, &initrd, &format!("console=ttyAMA0 kpti=off {init}"))
            }
            _ => emulator(X86_64, &image, &initrd, &format!("console=ttyS0 {init}")),
        };
        let _alone = alone();
        let start = Instant::now();
        let mut run = Run::argv(argv).limit(limit).start();
        run.wait_until("the guest's end", |run| run.has_line(OVER) || run.has_ended());
        let elapsed = start.elapsed();
        let outcome = run.wait();
        let text = String::from_utf8_lossy(&outcome.stdout).replace('\r', "");
        assert!(text.contains(OVER), "{} came to no end: {outcome:#?}", self.name);
        Some(Console { text, elapsed })
    }
}

impl Console {
    /// What follows on the first line that begins with `@@ WORD`.
    pub fn said(&self, word: &str) -> &str {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("@@ ")?.strip_prefix(word))
            .find(|rest| rest.is_empty() || rest.starts_with(' '))
            .unwrap_or_else(|| panic!("no {word:?} in {}", self.text))
            .trim()
    }

    /// What was printed between `@@ begin WHAT` and `@@ WHAT …`.
    fn part(&self, what: &str) -> &str {
        let (_, part) = self.text.split_once(&format!("@@ begin {what}\n")).unwrap_or_default();
        part.split_once(&format!("@@ {what} ")).unwrap_or_default().0
    }

    /// The tests of a part that passed, or did not run, without their modules.
    pub fn passed(&self, what: &str) -> BTreeSet<&str> {
        self.ended(what, " ... ok")
    }

    /// The tests of a part that failed.
    pub fn failed(&self, what: &str) -> BTreeSet<&str> {
        self.ended(what, " ... FAILED")
    }

    fn ended(&self, what: &str, how: &str) -> BTreeSet<&str> {
        let lines = self.part(what).lines();
        let names = lines.filter_map(|line| line.strip_prefix("test ")?.strip_suffix(how));
        names.filter_map(|name| name.rsplit("::").next()).collect()
    }

    /// The tests of a part that did not run, sorted.
    pub fn skipped(&self, what: &str) -> Vec<&str> {
        let lines = self.part(what).lines();
        let names = lines.filter_map(|line| Some(line.strip_prefix("SKIP ")?.split_once(": ")?.0));
        let names = names.filter_map(|name| name.rsplit("::").next());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Where `.ci/kernels` and `.ci/systemd-image` put what they fetch.
pub fn cache() -> Option<PathBuf> {
    let cache = std::env::var_os("CORRAL_CACHE").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/corral"));
    cache.or_else(home)
}

/// Everything that all guests of this architecture have.
pub static BASE: LazyLock<Option<Initramfs>> = LazyLock::new(|| {
    let busybox = Path::new("/bin/busybox");
    if !busybox.exists() {
        skip("no /bin/busybox: install busybox-static");
        return None;
    }
    Some(base(busybox, &corral(), corral().parent().unwrap()))
});

/// A root with this shell and the faults of a directory, and there this corral.
fn base(busybox: &Path, corral: &Path, home: &Path) -> Initramfs {
    let mut root = Initramfs::default();
    for directory in ["/proc", "/sys", "/dev", "/tmp", "/freezer"] {
        root.directory(directory);
    }
    root.device("/dev/console", 5, 1);
    root.device("/dev/null", 1, 3);
    root.program_at(busybox, "/bin/busybox");
    for applet in APPLETS {
        root.link(format!("/bin/{applet}"), "busybox");
    }
    root.program_at(corral, home.join("corral"));
    for row in ROWS {
        root.program(&fault_in(home, row.fault));
    }
    root
}

/// The first lines of an init. `C` is corral, `F` where the faults are.
const PREPARE: &str = "#!/bin/sh
export PATH=/bin HOME=/ TMPDIR=/tmp LC_ALL=C
say() { printf '\\n@@ %s\\n' \"$*\"; }
";

/// The last lines: what is alive and does not belong to the kernel (which has no
/// executable), this shell left out.
const END: &str = "
test -e /proc/self || mount -t proc none /proc
left=
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    test $pid != 1 && test $pid != $$ && exe=$(readlink $process/exe) && left=\"$left $pid:$exe\"
done
say survivors $left
say over
poweroff -f
";

/// The kernel as a process of this machine.
fn user_mode(image: &Path, initrd: &Path, directory: &Path, init: &str) -> Vec<OsString> {
    let with = |name: &str, path: &Path| {
        let mut word = OsString::from(name);
        word.push(path);
        word
    };
    let mut argv = vec![image.into(), with("initrd=", initrd), with("uml_dir=", directory)];
    let words = "mem=2048M con=null con0=null,fd:1 ssl=null quiet panic=-1";
    argv.extend(words.split(' ').chain(init.split(' ')).map(OsString::from));
    argv
}

/// The two processors take turns on one thread: on two, the emulator may run a
/// breakpoint that the kernel set in its own text after it was taken away
/// (`Oops: int3`).
const X86_64: &str = "qemu-system-x86_64 -accel tcg,thread=single";

/// A processor without pointer authentication, which the emulator is slow at. So it
/// is at two page tables (`kpti`), which a kernel at a random address has here and
/// `mitigations=off` leaves on: without them a system call takes a tenth.
const ARM64: &str = "qemu-system-aarch64 -accel tcg,thread=single -M virt -cpu cortex-a72";

/// A whole machine, emulated: its clock is slow, its races are real. With one
/// processor they would not be: a fork storm is over before it has begun.
fn emulator(machine: &str, image: &Path, initrd: &Path, line: &str) -> Vec<OsString> {
    let words =
        "-nodefaults -no-user-config -display none -serial stdio -no-reboot -m 2048M -smp 2";
    let words = machine.split_whitespace().chain(words.split(' '));
    let mut argv: Vec<OsString> = words.map(OsString::from).collect();
    argv.extend(["-kernel".into(), image.into(), "-initrd".into(), initrd.into()]);
    argv.extend(["-append".into(), format!("quiet panic=-1 mitigations=off {line}").into()]);
    argv
}
