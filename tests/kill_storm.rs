//! What lives on where corral's own processes are killed, whenever that is?
//!
//! Random moments from the exec of corral on to after its return: before the
//! command's exec, while it runs, in the grace, in the proof. Killed is the
//! monitor, the supervisor, or both at once in a PID namespace, which is where that
//! leaves nothing. What is then alive on the run's ground is a survivor, and what is
//! there of its groups is left. Only where all of corral is killed, both at once or
//! the monitor before there is a supervisor, is nobody left who could remove one.

mod common;

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use common::{Ground, Run, Running, Signal, children, skip};

const RUNS: u32 = 1000;
/// Few enough at once to meet one another's load, and too few to be a burden.
const WORKERS: u64 = 4;
/// The promise is 200 ms on a quiet machine.
const GONE: Duration = Duration::from_secs(5);

/// The start is where most can go wrong: half of the moments are in it.
const START: u64 = 4_000;
/// The whole run, in microseconds: the command's end comes at half of it.
const WHOLE: u64 = 90_000;
const LIMITS: [&str; 3] = ["--wall=45ms", "--grace=30ms", "--linger=20ms"];

/// Runs that wait, detach, fork on, ignore SIGTERM, or are over at once.
const FAULTS: [(&str, &[&str]); 7] = [
    ("exit_clean", &[]),
    ("sleep_forever", &[]),
    ("ignore_term", &[]),
    ("setsid_double_fork", &["stay"]),
    ("fork_on_term", &[]),
    ("crowd", &["40"]),
    ("own_pid_namespace", &[]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    Monitor,
    Supervisor,
    Both,
}

/// What the runs came to.
#[derive(Default)]
struct Tally {
    /// Runs in which somebody was there to be killed.
    hits: AtomicU32,
    survivors: AtomicU32,
    groups: AtomicU32,
    /// Empty groups that nobody was left to remove.
    orphaned: AtomicU32,
    slowest: Mutex<Duration>,
}

/// One run, whose outcome goes to the tally.
fn strike(random: &mut Rng, modes: &[&str], tally: &Tally) {
    let mode = random.choice(modes).unwrap();
    let (fault, arguments) = *random.choice(&FAULTS).unwrap();
    let namespaced = random.bool();
    let whom = match random.u8(..if namespaced { 3 } else { 2 }) {
        0 => Whom::Monitor,
        1 => Whom::Supervisor,
        _ => Whom::Both,
    };
    let until = random.choice([START, WHOLE]).unwrap();
    let moment = Duration::from_micros(random.u64(..until));

    let mode = format!("--cgroup-mode={mode}");
    let mut options = vec![mode.as_str()];
    options.extend(LIMITS);
    options.extend(namespaced.then_some("--pid-namespace"));
    let run = Run::corral(&options).fault(fault, arguments).start();
    std::thread::sleep(moment);
    let doomed: Vec<OwnedFd> = match whom {
        Whom::Monitor => Vec::from_iter(monitor(&run)),
        Whom::Supervisor => Vec::from_iter(supervisor(&run)),
        Whom::Both => supervisor(&run).into_iter().chain(monitor(&run)).collect(),
    };
    let alone = children(run.pid()).is_empty();
    let hits = doomed.iter().filter(|fd| pidfd_send_signal(fd, Signal::KILL).is_ok()).count();
    let killed = Instant::now();
    let outcome = run.wait();
    let empty = outcome.ground.wait_empty(GONE);
    let what = || format!("{options:?} {fault} {moment:?} {hits} killed: {outcome:#?}");
    if hits > 0 {
        tally.hits.fetch_add(1, Ordering::Relaxed);
        let mut slowest = tally.slowest.lock().unwrap();
        *slowest = (*slowest).max(killed.elapsed());
    }
    if !empty {
        println!("alive {:#?} after {}", outcome.ground.members(), what());
        let alive = outcome.ground.members().len();
        tally.survivors.fetch_add(u32::try_from(alive).unwrap(), Ordering::Relaxed);
    }
    let groups = u32::try_from(outcome.ground.groups().len()).unwrap();
    if hits == 2 || (alone && hits == 1) {
        tally.orphaned.fetch_add(groups, Ordering::Relaxed);
    } else {
        if groups > 0 {
            println!("left {:?} by {}", outcome.ground.groups(), what());
        }
        tally.groups.fetch_add(groups, Ordering::Relaxed);
        // Whoever is left of the two has proved the end.
        assert_ne!(outcome.status, Some(120), "{}", what());
    }
}

fn monitor(run: &Running) -> Option<OwnedFd> {
    (!run.has_ended()).then(|| open(run.pid()))?
}

/// `None` where it is not there yet, or no more.
fn supervisor(run: &Running) -> Option<OwnedFd> {
    let pid = *children(run.pid()).last()?;
    let fd = open(pid)?;
    // Still its child with the pidfd open: the pid was not reused meanwhile.
    children(run.pid()).contains(&pid).then_some(fd)
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

#[test]
fn nothing_lives_on_whoever_is_killed_whenever() {
    let (ground, _entry) = Ground::new(false);
    let modes = if ground.group().is_some() {
        &["fallback", "enforced"][..]
    } else {
        skip("no cgroup2 is writable: fallback mode alone");
        &["fallback"]
    };
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let tally = &tally;
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker);
                for _ in 0..u64::from(RUNS) / WORKERS {
                    strike(&mut random, modes, tally);
                }
            });
        }
    });
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let (hits, survivors, groups) =
        (read(&tally.hits), read(&tally.survivors), read(&tally.groups));
    println!(
        "storm: runs {RUNS}, survivors {survivors}, groups left {groups} ({hits} met somebody; \
         gone within {:?}; {} empty groups where all of corral was killed)",
        tally.slowest.lock().unwrap(),
        read(&tally.orphaned)
    );
    assert_eq!((survivors, groups), (0, 0));
    assert!(hits > RUNS / 2, "too few were met: {hits}");
}
