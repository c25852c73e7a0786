//! The table of the tree, without processes.

use super::reach::bit;
use super::*;

fn empty() -> Tree {
    Tree::new(0)
}

fn stat(pid: i32, start: u64) -> Stat {
    Stat { state: b'S', start, ..unknown(pid, 1) }
}

#[test]
fn ten_thousand_members_are_found_again() {
    let mut tree = empty();
    let mut found = Found::default();
    for pid in 1..10_000 {
        tree.see(stat(pid * 3, 7), &mut found).expect("memory for a test");
    }
    assert_eq!((found.alive, found.fresh, found.running), (9999, 9999, 9999));
    for pid in 1..10_000 {
        let index = tree.position(pid * 3).expect("it was inserted");
        assert_eq!(tree.members[index].stat.pid, pid * 3);
        assert_eq!(tree.position(pid * 3 + 1), None);
    }
    assert_eq!(tree.found().count(), 9999);
}

#[test]
fn seen_twice_in_a_walk_counts_once() {
    let mut tree = empty();
    let mut found = Found::default();
    tree.see(stat(5, 1), &mut found).expect("memory for a test");
    tree.see(stat(5, 1), &mut found).expect("memory for a test");
    assert_eq!(found, Found { alive: 1, fresh: 1, running: 1 });
}

#[test]
fn a_reused_number_is_somebody_new() {
    let mut tree = empty();
    let mut found = Found::default();
    tree.see(stat(5, 1), &mut found).expect("memory for a test");
    tree.members[0].sent = bit(15);
    tree.walk += 1;
    tree.see(stat(5, 2), &mut found).expect("memory for a test");
    assert_eq!((found.fresh, tree.members[0].sent), (2, 0));
    tree.reaped(5);
    tree.walk += 1;
    tree.see(stat(5, 2), &mut found).expect("memory for a test");
    assert_eq!(found.fresh, 3, "reaped, so the same start time is another process");
}

#[test]
fn zombies_are_not_alive() {
    let mut tree = empty();
    let mut found = Found::default();
    let zombie = Stat { state: b'Z', ..stat(5, 1) };
    tree.see(zombie, &mut found).expect("memory for a test");
    assert_eq!(found, Found::default());
    tree.see(Stat { threads: 2, ..zombie }, &mut found).expect("memory for a test");
    assert_eq!(found.alive, 1, "its first thread is gone, another is not");
}

#[test]
fn what_is_gone_or_unknown_is_never_signalled() {
    let mut tree = empty();
    let mut found = Found::default();
    tree.see(stat(process::getpid(), 1), &mut found).expect("memory for a test");
    // Our own pid with a wrong start time and a foreign parent.
    assert_eq!(tree.signal_found(process::SIGKILL, Nested::Enter, None), 0);
    tree.reaped(process::getpid());
    assert_eq!(tree.found().count(), 0);
}
