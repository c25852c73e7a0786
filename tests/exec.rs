//! Does the command start as execvp would start it, and does its own status
//! come through?
//!
//! Found in PATH, read by /bin/sh where it has no `#!`, refused with 126 or 127
//! where it cannot be executed or is not there (with a record), and every
//! status and signal of its own passed on as a shell would.

mod common;
mod kit;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::{NOBODY, Run, root_or_skip};
use kit::{assert_record, have, only_line};

/// A file with this text and mode.
fn file(place: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = place.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs words that must fail to start, with this status.
#[track_caller]
fn fails(run: Run, statuses: &[i32]) {
    let outcome = run.run();
    let status = outcome.status.unwrap_or(-1);
    assert!(statuses.contains(&status), "{status}, not one of {statuses:?}: {outcome:#?}");
    outcome.assert_nothing_left();
    assert_record(&outcome, "exec", u64::try_from(status).unwrap());
    assert!(outcome.record("/command_status").is_null());
    assert!(!outcome.record("/cause_detail").is_null());
    assert!(outcome.record("/steps_us/executed").is_null());
    assert!(only_line(&outcome).starts_with("corral: cannot "), "{outcome:#?}");
    assert!(outcome.stdout.is_empty());
}

#[test]
fn every_exit_status_passes() {
    for status in 0..=255 {
        let outcome = Run::corral(&[]).command(["sh", "-c", &format!("exit {status}")]).run();
        outcome.assert_status(status);
        assert_eq!(outcome.record("/cause"), "exited");
        assert_eq!(outcome.record("/exit_status"), status);
        assert_eq!(outcome.record("/command_status/code"), status);
        assert!(outcome.record("/command_status/signal").is_null());
        assert_eq!(outcome.stderr, "", "{status} needs no words");
    }
}

#[test]
fn every_signal_becomes_a_status() {
    // Those that end a process: not the ones ignored or stopping by default.
    let stops = [17, 18, 19, 20, 21, 22, 23, 28];
    for signal in (1..=64).filter(|signal| !stops.contains(signal) && !(32..34).contains(signal)) {
        let text = format!("ulimit -c 0; kill -{signal} $$; exit 99");
        let outcome = Run::corral(&[]).command(["sh", "-c", &text]).run();
        outcome.assert_status(128 + signal);
        assert_eq!(outcome.record("/cause"), "exited");
        assert_eq!(outcome.record("/command_status/signal"), signal);
        assert!(outcome.record("/command_status/code").is_null());
        assert_eq!(outcome.record("/command_status/core_dumped"), false);
    }
}

#[test]
fn what_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    let plain = file(place.path(), "plain", "x", 0o755);
    symlink("nowhere", place.path().join("dangling")).unwrap();
    for name in ["/no/such/command", "no-such-command-anywhere", "", "./none"] {
        fails(Run::corral(&[]).command([name]), &[127]);
    }
    let dangling = place.path().join("dangling");
    fails(Run::corral(&[]).command([dangling.to_str().unwrap()]), &[127]);
    // Its directory is a file: there, but nothing that could be executed.
    fails(Run::corral(&[]).command([format!("{plain}/x").as_str()]), &[126, 127]);
    fails(Run::corral(&["--quiet"]).command(["/no/such/command"]), &[127]);
}

#[test]
fn what_cannot_be_executed() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let noexec = file(place, "noexec", "echo ran\n", 0o644);
    symlink("loop", place.join("loop")).unwrap();
    let truncated = {
        let elf = fs::read(common::corral()).unwrap();
        let path = place.join("truncated");
        fs::write(&path, &elf[..20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    for name in [
        noexec.as_str(),
        place.to_str().unwrap(),
        "/",
        place.join("loop").to_str().unwrap(),
        "/dev/null",
    ] {
        fails(Run::corral(&[]).command([name]), &[126]);
    }
    // The kernel says ENOENT of the interpreter, as it would of the file.
    let interpreter = file(place, "badinterp", "#!/no/such/interpreter\n", 0o755);
    fails(Run::corral(&[]).command([interpreter.as_str()]), &[126, 127]);
    // No program (ENOEXEC), so /bin/sh reads it, and finds no program either.
    let outcome = Run::corral(&[]).command([truncated.to_str().unwrap()]).run();
    assert!(outcome.status.is_some_and(|status| status != 0), "{outcome:#?}");
    outcome.assert_nothing_left();
}

#[test]
fn what_others_may_not_execute() {
    if !root_or_skip() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mine = file(place.path(), "mine", "#!/bin/sh\n", 0o700);
    fails(Run::corral(&[]).command([mine.as_str()]).uid(NOBODY), &[126]);
    let hidden = file(place.path(), "hidden/tool", "#!/bin/sh\n", 0o755);
    let closed = place.path().join("hidden");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    fails(Run::corral(&[]).command([hidden.as_str()]).uid(NOBODY), &[126]);
    // A program need not be readable.
    let secret = place.path().join("secret");
    common::install(&kit::find("true").unwrap(), &secret, 0o711);
    let outcome = Run::corral(&[]).command([secret.to_str().unwrap()]).uid(NOBODY).run();
    outcome.assert_status(0);
}

#[test]
fn a_mount_that_forbids_it() {
    if !root_or_skip() || !have(&["unshare", "mount"]) {
        return;
    }
    let text = "mount --make-rprivate / && d=$(mktemp -d) && mount -t tmpfs -o noexec none $d && \
                cp \"$T\" $d/tool || exit 77; $C $d/tool; s=$?; \
                umount $d; rmdir $d; exit $s";
    let outcome =
        Run::argv(["unshare", "-m", "sh", "-c", text]).env("T", kit::find("true").unwrap()).run();
    outcome.assert_status(126);
    assert!(only_line(&outcome).contains("EACCES"), "{outcome:#?}");
}

#[test]
fn the_error_is_named() {
    let outcome = Run::corral(&[]).command(["/no/such/command"]).run();
    let line = only_line(&outcome);
    assert!(line.contains("/no/such/command") && line.contains("ENOENT"), "{line}");
    let outcome = Run::corral(&[]).command(["/"]).run();
    assert!(only_line(&outcome).contains("EACCES"), "{outcome:#?}");
}

#[test]
fn a_script_without_an_interpreter() {
    let place = tempfile::tempdir().unwrap();
    let text = "echo \"$0|$1|$2|$#\"; exit 3\n";
    let script = file(place.path(), "bin/script", text, 0o755);
    let outcome = Run::corral(&[]).command([script.as_str(), "a b", ""]).run();
    outcome.assert_status(3);
    assert_eq!(outcome.stdout, format!("{script}|a b||2\n").into_bytes(), "{outcome:#?}");
    assert_record(&outcome, "exited", 3);
    // The record shows what was asked for.
    assert_eq!(outcome.record("/command/0"), script.as_str());
    // Found in PATH, the shell is given the path that was found.
    let outcome = Run::corral(&[]).command(["script"]).env("PATH", place.path().join("bin")).run();
    outcome.assert_status(3);
    assert_eq!(outcome.stdout, format!("{script}|||0\n").into_bytes());
    // Without an argument, with very many, and without any text.
    let arguments = vec!["x"; 20_000];
    let outcome = Run::corral(&[]).command([script.as_str()]).args(&arguments).run();
    outcome.assert_status(3);
    assert_eq!(outcome.stdout, format!("{script}|x|x|20000\n").into_bytes());
    let empty = file(place.path(), "empty", "", 0o755);
    let outcome = Run::corral(&[]).command([empty.as_str()]).run();
    outcome.assert_status(0);
}

#[test]
fn the_search_path() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let tool = |directory: &str, status: i32, mode| {
        let text = format!("#!/bin/sh\nexit {status}\n");
        file(place.path(), &format!("{directory}/tool"), &text, mode);
    };
    tool("one", 11, 0o755);
    tool("two", 22, 0o755);
    tool("denied", 33, 0o644);
    fs::create_dir_all(place.path().join("folder/tool")).unwrap();
    file(place.path(), "afile", "", 0o644);
    let (one, two, denied, folder, afile) =
        (at("one"), at("two"), at("denied"), at("folder"), at("afile"));
    let rest = std::env::var("PATH").unwrap();
    let search = |path: &str| Run::corral(&[]).command(["tool"]).env("PATH", path);
    for (path, status) in [
        (format!("{one}:{two}"), 11),
        (format!("{two}:{one}"), 22),
        (format!("/no/such/place:{two}"), 22),
        // One that cannot be executed does not end the search.
        (format!("{denied}:{two}"), 22),
        (format!("{folder}:{two}"), 22),
        (format!("{afile}:{two}"), 22),
        (format!("{one}/:{rest}"), 11),
        (format!("::{one}:"), 11),
    ] {
        let outcome = search(&path).run();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
    }
    fails(search(&format!("{denied}:{rest}")), &[126]);
    fails(search(&format!("{denied}:/no/such/place")), &[126]);
    fails(search(&format!("{folder}:/no/such/place")), &[126]);
    fails(search(&afile), &[126, 127]);
    fails(search("/no/such/place"), &[127]);
    let long = format!("/{}", "x".repeat(4090));
    fails(search(&long), &[126, 127]);
    let outcome = search(&format!("{long}:{one}")).run();
    outcome.assert_status(11);
}

#[test]
fn an_empty_element_is_the_current_directory() {
    let place = tempfile::tempdir().unwrap();
    file(place.path(), "tool", "#!/bin/sh\nexit 11\n", 0o755);
    for path in ["", ":", ":/no/such/place", "/no/such/place:", "/no::/such", "."] {
        let outcome = Run::shell("cd \"$D\"; PATH=$P exec \"$C\" tool")
            .env("D", place.path())
            .env("P", path)
            .run();
        assert_eq!(outcome.status, Some(11), "PATH={path:?}: {outcome:#?}");
    }
}

#[test]
fn no_search_path_at_all() {
    let outcome = Run::corral(&[]).command(["sh", "-c", "exit 12"]).env_remove("PATH").run();
    outcome.assert_status(12);
    fails(Run::corral(&[]).command(["no-such-command-anywhere"]).env_remove("PATH"), &[127]);
}

#[test]
fn a_name_with_a_slash_is_not_searched() {
    let place = tempfile::tempdir().unwrap();
    file(place.path(), "sub/tool", "#!/bin/sh\nexit 11\n", 0o755);
    for (directory, name, status) in [
        ("", "sub/tool", 11),
        ("sub", "./tool", 11),
        ("sub", "tool", 127),
        ("sub", "../sub/tool", 11),
    ] {
        let outcome = Run::shell("cd \"$D\"; exec \"$C\" \"$N\"")
            .env("D", place.path().join(directory))
            .env("N", name)
            .run();
        outcome.assert_status(status);
    }
}

#[test]
fn a_name_too_long() {
    fails(Run::corral(&[]).command(["n".repeat(300)]), &[126, 127]);
    fails(Run::corral(&[]).command([format!("/{}", "n".repeat(5000))]), &[126, 127]);
}

#[test]
fn very_many_words() {
    // 1.6 MB of words: near what the kernel takes for a stack of 8 MB.
    let word = "w".repeat(90);
    let words = vec![word.as_str(); 16_000];
    let outcome = Run::corral(&[]).command(["sh", "-c", "echo $#", "sh"]).args(&words).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"16000\n");
    assert_record(&outcome, "exited", 0);
    let recorded = outcome.record("/command").as_array().unwrap();
    assert_eq!(recorded.len(), 16_004);
    assert!(recorded[4..].iter().all(|one| *one == word.as_str()));
    // One word as long as the kernel takes them.
    let long = "l".repeat((128 << 10) - 1);
    let outcome =
        Run::corral(&["--no-new-privs"]).command(["sh", "-c", "echo ${#1}", "sh", &long]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"131071\n");
    assert_eq!(outcome.record("/command/4"), long.as_str());
}

#[test]
fn words_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"a\xff\x1b[31m\n\"\\\x01\xc3\xa4");
    let outcome = Run::corral(&[]).command(["printf", "%s"]).args([odd]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, odd.as_bytes());
    assert_eq!(outcome.record("/command/2"), "a\u{fffd}\u{1b}[31m\n\"\\\u{1}\u{e4}");
}

#[test]
fn a_working_directory_that_is_gone() {
    let text = "d=$(mktemp -d); cd $d; rmdir $d; exec \"$C\" --json \"$J\" -- sh -c 'exit 8'";
    let place = tempfile::tempdir().unwrap();
    let record = place.path().join("record.json");
    let outcome = Run::shell(text).env("J", &record).run();
    outcome.assert_status(8);
    assert!(fs::read_to_string(record).unwrap().contains("\"exited\""));
}

#[test]
fn one_word_too_many() {
    if !have(&["bash"]) {
        return;
    }
    // Words that just fit for corral, but not beside CORRAL_RUN_ID. A stack of
    // 512 KiB makes 128 KiB the most that exec takes.
    let place = tempfile::tempdir().unwrap();
    symlink(common::corral(), place.path().join("c")).unwrap();
    let text = "cd \"$D\"; unset $(compgen -e); ulimit -s 512; printf -v half '%*s' 65000 x; \
                for n in {65000..66100..20}; do printf -v rest '%*s' $n x; \
                ./c /bin/true \"$half\" \"$rest\"; echo $?; done";
    let outcome = Run::argv(["bash", "-c", text]).env("D", place.path()).run();
    outcome.assert_nothing_left();
    let statuses = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(statuses.lines().all(|status| status == "0" || status == "126"), "{outcome:#?}");
    let said =
        |who: &str| outcome.stderr.lines().filter(|line| line.starts_with(who)).collect::<Vec<_>>();
    assert!(!said("bash: ").is_empty(), "the limit was not reached: {outcome:#?}");
    let ours = said("corral: ");
    assert!(!ours.is_empty() && ours.iter().all(|line| line.contains("E2BIG")), "{outcome:#?}");
}
