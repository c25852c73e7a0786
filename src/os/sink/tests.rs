//! Does a sink leave what it promises, in every kind of place?
//!
//! Each test has a directory of its own. What needs another user or a mount is
//! done in a thread: fsuid and mount namespace belong to a thread, so nothing
//! else notices, and nothing has to be undone.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, mkfifo, setfsgid, setfsuid};

use super::*;
use crate::policy::time::Span;

/// A directory that goes away.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("corral-sink-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn prepare(path: &Path) -> Result<Sink> {
    prepare_path(&CString::new(path.as_os_str().as_bytes()).unwrap())
}

fn in_20s() -> Instant {
    Instant(now(Clock::Monotonic)).plus(Span::from_secs(20))
}

fn fill(sink: Sink, text: &[u8]) -> Result<()> {
    sink.fill(in_20s(), &mut |out| text.chunks(7).for_each(&mut *out))
}

/// Prepares and fills.
fn write(path: &Path, text: &[u8]) -> Result<()> {
    let sink = prepare(path)?;
    fill(sink, text)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Whether this test can run; CI says that it must.
fn as_root() -> bool {
    let root = Uid::effective().is_root();
    assert!(root || std::env::var_os("CORRAL_MUST_WORK").is_none(), "this needs root");
    root
}

/// Runs `test` as another user, as far as files are concerned.
fn as_nobody<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setfsgid(Gid::from_raw(65534));
            setfsuid(Uid::from_raw(65534));
            test()
        });
        thread.join().unwrap()
    })
}

/// Runs `test` where mounts are its own; `false` where that is forbidden.
fn with_own_mounts(test: impl FnOnce() + Send) -> bool {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            let own = unshare(CloneFlags::CLONE_NEWNS)
                .and_then(|()| mount(None::<&str>, "/", None::<&str>, private, None::<&str>));
            assert!(
                own.is_ok() || std::env::var_os("CORRAL_MUST_WORK").is_none(),
                "this needs a mount namespace: {own:?}"
            );
            own.map(|()| test()).is_ok()
        });
        thread.join().unwrap()
    })
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

#[test]
fn a_new_file_appears_whole_and_private() {
    let place = Place::new();
    let path = place.at("record");
    let sink = prepare(&path).unwrap();
    assert_eq!(place.names(), [""; 0], "preparing leaves nothing");
    let text: Vec<u8> = (0..20_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut seen = Vec::new();
    sink.fill(in_20s(), &mut |out| {
        for piece in text.chunks(999) {
            out(piece);
            seen.push(path.exists());
        }
    })
    .unwrap();
    assert!(!seen.contains(&true), "nobody sees half of it");
    assert_eq!(fs::read(&path).unwrap(), text);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(place.names(), ["record"]);
}

#[test]
fn an_empty_text_and_one_of_exactly_a_buffer() {
    let place = Place::new();
    for text in [vec![], vec![b'x'; 4096], vec![b'y'; 8192]] {
        write(&place.at("record"), &text).unwrap();
        assert_eq!(fs::read(place.at("record")).unwrap(), text);
    }
}

#[test]
fn a_dropped_sink_changes_nothing() {
    let place = Place::new();
    fs::write(place.at("old"), "old").unwrap();
    drop(prepare(&place.at("old")).unwrap());
    drop(prepare(&place.at("new")).unwrap());
    assert_eq!(place.names(), ["old"]);
    assert_eq!(fs::read(place.at("old")).unwrap(), b"old");
}

#[test]
fn an_existing_file_is_replaced_and_keeps_its_mode_and_owner() {
    let place = Place::new();
    let path = place.at("record");
    fs::write(&path, "a much longer text than the new one").unwrap();
    let owned = as_root() && std::os::unix::fs::chown(&path, Some(1234), Some(4321)).is_ok();
    for bits in [0o644, 0o660, 0o600] {
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        let before = fs::metadata(&path).unwrap();
        write(&path, b"new").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(mode(&path), bits);
        assert_ne!(before.ino(), after.ino(), "replaced, not rewritten");
        assert!(!owned || (after.uid(), after.gid()) == (1234, 4321));
    }
    assert_eq!(place.names(), ["record"]);
}

#[test]
fn a_group_that_cannot_be_kept_gets_no_access() {
    if !as_root() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).unwrap();
    let path = place.at("record");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    as_nobody(|| write(&path, b"new").unwrap());
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid(), mode(&path)), (65534, 65534, 0o606));
}

#[test]
fn the_longest_name() {
    let place = Place::new();
    let longest = "n".repeat(255);
    write(&place.at(&longest), b"text").unwrap();
    assert_eq!(place.names(), [longest]);
    let longer = prepare(&place.at(&"n".repeat(256)));
    assert_eq!(longer.err(), Some(Errno::ENAMETOOLONG));
}

#[test]
fn temporary_names() {
    let name = Name::new(b"record.json").unwrap();
    let temporary = name.temporary(233, 0x0123_4567_89ab_cdef);
    assert_eq!(temporary.as_c(), c".record.json.0123456789abcdef.tmp");
    assert_eq!(name.temporary(0, 0).as_c(), c"..0000000000000000.tmp");
    let longest = Name::new(&[b'n'; 255]).unwrap();
    let temporary = longest.temporary(NAME_MAX - AROUND, u64::MAX);
    assert_eq!(temporary.length, 255);
    assert!(temporary.as_c().to_bytes().ends_with(b"n.ffffffffffffffff.tmp"));
}

#[test]
fn links_are_followed_and_stay() {
    let place = Place::new();
    fs::create_dir_all(place.at("a/b")).unwrap();
    fs::write(place.at("a/target"), "old").unwrap();
    symlink("../target", place.at("a/b/relative")).unwrap();
    symlink("a/b/relative", place.at("chain")).unwrap();
    symlink(place.at("a/fresh"), place.at("dangling")).unwrap();
    for (link, target) in [("chain", "a/target"), ("dangling", "a/fresh")] {
        write(&place.at(link), link.as_bytes()).unwrap();
        assert!(fs::symlink_metadata(place.at(link)).unwrap().is_symlink());
        let target = fs::symlink_metadata(place.at(target)).unwrap();
        assert!(target.is_file());
        assert_eq!(fs::read(place.at(link)).unwrap(), link.as_bytes());
    }
    assert_eq!(place.names(), ["a", "chain", "dangling"]);
    assert_eq!(fs::read_dir(place.at("a")).unwrap().count(), 3);
}

#[test]
fn links_that_lead_nowhere() {
    let place = Place::new();
    symlink("loop", place.at("loop")).unwrap();
    symlink("missing/target", place.at("lost")).unwrap();
    symlink(".", place.at("here")).unwrap();
    assert_eq!(prepare(&place.at("loop")).err(), Some(Errno::ELOOP));
    assert_eq!(prepare(&place.at("lost")).err(), Some(Errno::ENOENT));
    assert_eq!(prepare(&place.at("here")).err(), Some(Errno::EISDIR));
}

#[test]
fn what_cannot_be_written_is_known_at_once() {
    let place = Place::new();
    fs::write(place.at("file"), "").unwrap();
    let refused = |name: &str| prepare(&place.at(name)).err();
    assert_eq!(refused("missing/record"), Some(Errno::ENOENT));
    assert_eq!(refused("file/record"), Some(Errno::ENOTDIR));
    assert_eq!(refused(""), Some(Errno::EISDIR));
    assert_eq!(refused("."), Some(Errno::EISDIR));
    assert_eq!(prepare(Path::new("")).err(), Some(Errno::ENOENT));
    assert_eq!(prepare(Path::new("/")).err(), Some(Errno::EISDIR));
    let long = place.at(&"x/".repeat(2100));
    assert_eq!(prepare(&long).err(), Some(Errno::ENAMETOOLONG));
    assert_eq!(place.names(), ["file"]);
}

#[test]
fn without_permission() {
    if !as_root() {
        return;
    }
    let place = Place::new();
    fs::write(place.at("closed"), "old").unwrap();
    fs::write(place.at("open"), "a longer old text").unwrap();
    fs::set_permissions(place.at("open"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let before = fs::metadata(place.at("open")).unwrap().ino();
    as_nobody(|| {
        assert_eq!(prepare(&place.at("new")).err(), Some(Errno::EACCES));
        assert_eq!(prepare(&place.at("closed")).err(), Some(Errno::EACCES));
        // The directory is closed, the file is not: rewritten in place.
        assert_eq!(write(&place.at("open"), b"new"), Ok(()));
    });
    assert_eq!(fs::read(place.at("open")).unwrap(), b"new");
    assert_eq!(fs::metadata(place.at("open")).unwrap().ino(), before);
    assert_eq!(place.names(), ["closed", "open"]);
}

#[test]
fn anothers_file_in_a_sticky_directory_is_rewritten() {
    if !as_root() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(place.at("record"), "a longer old text").unwrap();
    fs::set_permissions(place.at("record"), fs::Permissions::from_mode(0o666)).unwrap();
    as_nobody(|| assert_eq!(write(&place.at("record"), b"new"), Ok(())));
    assert_eq!(fs::read(place.at("record")).unwrap(), b"new");
    assert_eq!(fs::metadata(place.at("record")).unwrap().uid(), 0);
    assert_eq!(place.names(), ["record"]);
}

#[test]
fn a_bind_mounted_file_is_rewritten() {
    let place = Place::new();
    fs::write(place.at("outside"), "a longer old text").unwrap();
    fs::write(place.at("inside"), "hidden").unwrap();
    let done = with_own_mounts(|| {
        bind(&place.at("outside"), &place.at("inside"));
        assert_eq!(write(&place.at("inside"), b"new"), Ok(()));
    });
    if done {
        assert_eq!(fs::read(place.at("outside")).unwrap(), b"new");
        assert_eq!(fs::read(place.at("inside")).unwrap(), b"hidden");
        assert_eq!(place.names(), ["inside", "outside"]);
    }
}

#[test]
fn a_read_only_file_system() {
    let place = Place::new();
    with_own_mounts(|| {
        bind(&place.0, &place.0);
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &place.0, None::<&str>, read_only, None::<&str>).unwrap();
        assert_eq!(prepare(&place.at("record")).err(), Some(Errno::EROFS));
    });
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let place = Place::new();
    with_own_mounts(|| {
        let none = MsFlags::empty();
        mount(Some("corral"), &place.0, Some("tmpfs"), none, Some("size=16k")).unwrap();
        fs::write(place.at("record"), "old").unwrap();
        assert_eq!(write(&place.at("record"), &[b'x'; 65536]), Err(Errno::ENOSPC));
        assert_eq!(fs::read(place.at("record")).unwrap(), b"old");
        assert_eq!(place.names(), ["record"]);
        // In place there is no old file to go back to, but no half record either.
        let path = place.at("open");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
        as_nobody(|| assert_eq!(write(&path, &[b'x'; 65536]), Err(Errno::ENOSPC)));
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(place.names(), ["open", "record"]);
    });
}

#[test]
fn a_directory_that_the_command_removed_or_moved() {
    let place = Place::new();
    fs::create_dir(place.at("gone")).unwrap();
    fs::create_dir(place.at("moved")).unwrap();
    let gone = prepare(&place.at("gone/record")).unwrap();
    let moved = prepare(&place.at("moved/record")).unwrap();
    fs::remove_dir(place.at("gone")).unwrap();
    fs::rename(place.at("moved"), place.at("elsewhere")).unwrap();
    assert_eq!(fill(gone, b"text"), Err(Errno::ENOENT));
    assert_eq!(fill(moved, b"text"), Ok(()));
    assert_eq!(fs::read(place.at("elsewhere/record")).unwrap(), b"text");
    assert_eq!(place.names(), ["elsewhere"]);
}

#[test]
fn a_directory_in_the_records_place() {
    let place = Place::new();
    let sink = prepare(&place.at("record")).unwrap();
    fs::create_dir(place.at("record")).unwrap();
    assert_eq!(fill(sink, b"text"), Err(Errno::EISDIR));
    assert_eq!(place.names(), ["record"]);
}

#[test]
fn a_link_put_in_the_records_place_is_replaced_not_followed() {
    let place = Place::new();
    fs::write(place.at("victim"), "precious").unwrap();
    let sink = prepare(&place.at("record")).unwrap();
    symlink("victim", place.at("record")).unwrap();
    assert_eq!(fill(sink, b"text"), Ok(()));
    assert_eq!(fs::read(place.at("victim")).unwrap(), b"precious");
    assert!(fs::symlink_metadata(place.at("record")).unwrap().is_file());
}

#[test]
fn a_fifo_needs_a_reader() {
    let place = Place::new();
    let path = place.at("fifo");
    mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(prepare(&path).err(), Some(Errno::ENXIO));
    // Opening for both never waits.
    let mut reader = fs::File::options().read(true).write(true).open(&path).unwrap();
    write(&path, b"text").unwrap();
    let mut got = [0; 4];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"text");
    // A reader that takes nothing: the pipe's room is less than the text.
    let sink = prepare(&path).unwrap();
    let soon = Instant(now(Clock::Monotonic)).plus(Span::from_millis(100));
    let filled = sink.fill(soon, &mut |out| out(&[b'x'; 1 << 20]));
    assert_eq!(filled, Err(Errno::ETIMEDOUT));
    // A reader that has gone since.
    let sink = prepare(&path).unwrap();
    drop(reader);
    assert_eq!(fill(sink, b"text"), Err(Errno::EPIPE));
    assert_eq!(place.names(), ["fifo"]);
}

#[test]
fn devices_are_written_to() {
    assert_eq!(write(Path::new("/dev/null"), b"text"), Ok(()));
    assert_eq!(write(Path::new("/dev/full"), b"text"), Err(Errno::ENOSPC));
}

#[test]
fn a_descriptor_goes_on_where_it_stands_and_is_kept_from_the_command() {
    let place = Place::new();
    let mut file = fs::File::create(place.at("log")).unwrap();
    file.write_all(b"before ").unwrap();
    let number = file.as_raw_fd();
    fd::set_cloexec(Fd::inherited(number), false).unwrap();
    let sink = prepare_descriptor(number).unwrap();
    let flags = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFD).unwrap();
    assert_eq!(flags, nix::libc::FD_CLOEXEC);
    fill(sink, b"text").unwrap();
    file.write_all(b" after").unwrap();
    assert_eq!(fs::read(place.at("log")).unwrap(), b"before text after");
}

#[test]
fn an_appending_descriptor() {
    let place = Place::new();
    fs::write(place.at("log"), "before ").unwrap();
    let file = fs::File::options().append(true).open(place.at("log")).unwrap();
    fill(prepare_descriptor(file.as_raw_fd()).unwrap(), b"text").unwrap();
    assert_eq!(fs::read(place.at("log")).unwrap(), b"before text");
}

#[test]
fn a_descriptor_must_be_open_for_writing() {
    let place = Place::new();
    let file = fs::File::open(&place.0).unwrap();
    assert_eq!(prepare_descriptor(file.as_raw_fd()).err(), Some(Errno::EBADF));
    let here = file::open(file::CWD, c".", Open::Place).unwrap();
    assert_eq!(prepare_descriptor(here.fd().number()).err(), Some(Errno::EBADF));
    assert_eq!(prepare_descriptor(1_000_000).err(), Some(Errno::EBADF));
}

#[test]
fn paths_that_mean_a_descriptor() {
    let place = Place::new();
    let file = fs::File::create(place.at("log")).unwrap();
    let number = file.as_raw_fd();
    symlink("/dev/fd", place.at("table")).unwrap();
    symlink(format!("/proc/self/fd/{number}"), place.at("link")).unwrap();
    let paths = [
        format!("/dev/fd/{number}").into(),
        format!("/proc/self/fd/{number}").into(),
        format!("/proc//self/fd/./{number}").into(),
        place.at(&format!("table/{number}")),
        place.at("link"),
    ];
    for path in &paths {
        // Opened anew, each would write over the one before.
        assert_eq!(write(path, b"text "), Ok(()), "{path:?}");
    }
    assert_eq!(fs::read(place.at("log")).unwrap(), b"text ".repeat(paths.len()));
    assert!(matches!(resolve(c"/dev/stdout"), Ok(Found::Descriptor(1))));
    assert!(matches!(resolve(c"/dev/stderr"), Ok(Found::Descriptor(2))));
    // A socket cannot be opened by such a path at all, only meant.
    let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
    let path = format!("/dev/fd/{}", near.as_raw_fd());
    assert_eq!(write(Path::new(&path), b"text"), Ok(()));
    let mut got = [0; 4];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"text");
}

#[test]
fn descriptor_numbers() {
    assert_eq!(descriptor_number(b"0"), Some(0));
    assert_eq!(descriptor_number(b"2147483647"), Some(i32::MAX));
    for bad in [&b""[..], b"01", b"+1", b"-1", b"1x", b"2147483648", b"99999999999999999999"] {
        assert_eq!(descriptor_number(bad), None, "{bad:?}");
    }
}
