//! Does: forks as fast as it can up to 500 (second argument; 1500 at most) processes
//! of its user: `tree`: everyone forks and lives; `comets`: everyone forks, exits,
//! and the child makes a session of its own. Root becomes `nobody` first, since
//! RLIMIT_NPROC does not bind root.
//! corral must: end the storm; killing alone frees places that are filled at once.
//! Exists: the one shape that defeats "kill every child until none is left".

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let most = args.number(2, 500).min(1500);
    if getuid() == 0 {
        become_user(65534);
    }
    let limit = [most, most];
    // SAFETY: the kernel reads one struct rlimit.
    unsafe { syscall!(PRLIMIT64, 0, RLIMIT_NPROC, limit.as_ptr(), 0) };
    // Forks renew the alarm, so the storm as a whole has an end of its own.
    let end = now() + LIFE;
    let comets = args.get(1) == Some(b"comets");
    // Nobody waits: the dead must not fill the limit as zombies.
    ignore(SIGCHLD);
    ready();
    for _ in 0..if comets { most / 2 } else { 1 } {
        if fork() == 0 {
            storm(comets, end);
        }
    }
    sleep_forever()
}

fn storm(comets: bool, end: usize) -> ! {
    while now() < end {
        match fork() {
            0 if comets => setsid(),
            0 => {}
            pid if pid > 0 && comets => exit(0),
            pid if pid > 0 => {}
            _ => sleep_ms(1),
        }
    }
    exit(0)
}
