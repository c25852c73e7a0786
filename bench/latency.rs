//! How long does a wrapper take from its start to its return?
//!
//! Runs the same no-op command under each runner in turn, so that whatever the
//! machine does meets all of them, and prints medians and the ratios that the
//! README quotes. Peers that are not installed are named, not made up.
//!
//! `cargo bench --bench latency [-- ROUNDS]`

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Runner {
    name: &'static str,
    argv: Vec<String>,
    times: Vec<Duration>,
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') || std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(1000);
    let corral = env!("CARGO_BIN_EXE_corral");
    let fallback = "--cgroup-mode=fallback";
    let bare = env!("CARGO_BIN_EXE_bare");
    let noop = env!("CARGO_BIN_EXE_noop");
    let all: [(&'static str, &[&str]); 9] = [
        ("nothing", &[]),
        ("bare wrapper", &[bare]),
        ("corral", &[corral, fallback, "--wall", "10s", "--"]),
        ("corral --json", &[corral, fallback, "--wall", "10s", "--json", "/dev/null", "--"]),
        ("corral, group", &[corral, "--wall", "10s", "--"]),
        ("corral, namespace", &[corral, fallback, "--pid-namespace", "--wall", "10s", "--"]),
        ("timeout", &["timeout", "10"]),
        ("tini -s", &["tini", "-s", "--"]),
        ("tini-static -s", &["tini-static", "-s", "--"]),
    ];
    let mut runners = Vec::new();
    for (name, argv) in all {
        if argv.first().is_some_and(|program| !found(program)) {
            println!("{name}: not installed, not measured");
            continue;
        }
        let argv = argv.iter().map(|word| (*word).to_owned()).chain([noop.to_owned()]).collect();
        runners.push(Runner { name, argv, times: Vec::new() });
    }
    for round in 0..rounds + 20 {
        for runner in &mut runners {
            let mut command = Command::new(&runner.argv[0]);
            command.args(&runner.argv[1..]).stdin(Stdio::null());
            let began = Instant::now();
            let status = command.status().expect("it can be started");
            let took = began.elapsed();
            assert!(status.success(), "{} failed: {status}", runner.name);
            if round >= 20 {
                runner.times.push(took);
            }
        }
    }
    println!("start to return of a no-op command, {rounds} alternating runs, µs");
    println!("{:<18} {:>8} {:>8} {:>8}", "runner", "P50", "P95", "P99");
    let mut medians = Vec::new();
    for runner in &mut runners {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| percentile(&mut runner.times, percent));
        println!("{:<18} {p50:>8.0} {p95:>8.0} {p99:>8.0}", runner.name);
        medians.push((runner.name, p50));
    }
    let median = |name: &str| medians.iter().find(|(other, _)| *other == name).map(|(_, p50)| *p50);
    for against in ["bare wrapper", "timeout", "tini-static -s"] {
        for ours in ["corral", "corral, group", "corral, namespace"] {
            if let (Some(corral), Some(other)) = (median(ours), median(against)) {
                println!("{ours} / {against}: {:.2}", corral / other);
            }
        }
    }
}
