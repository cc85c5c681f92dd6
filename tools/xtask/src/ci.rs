//! `cargo xtask ci`: every check in order, each with its time, one line of sum at the end.
//!
//! Before: a person, or `.ci/run` on a clean checkout. After: exit code 0 only when nothing failed.
//! A failed step does not stop the next: one run shows all that is wrong.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, line_of, target};
use crate::{bench, needs, tidy};

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// One check that is not a collection of tests.
    fn check(ok: bool) -> Self {
        Tally { passed: u32::from(ok), failed: u32::from(!ok), ignored: 0 }
    }
}

type Step = (&'static str, fn() -> Result<Tally>);

/// In the order they run: what is quick to fail first, what needs the binaries of a former step after it.
const STEPS: &[Step] = &[
    ("fmt", || check(cargo(&["fmt", "--all", "--", "--check"]))),
    ("tidy", || tidy::run().map(|()| Tally::check(true))),
    ("clippy", || check(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    // Binaries and plugins: the end-to-end tests start them.
    ("release", || check(cargo(&["build", "--release", "--workspace"]))),
    // Binaries and plugins again, for the tests of single crates that start or load one.
    ("debug", || check(cargo(&["build", "--workspace"]))),
    ("test", || tests(cargo(&["test", "--workspace", "--exclude", "saetta-e2e", "--no-fail-fast"]))),
    ("loom", || {
        let mut command = cargo(&["test", "--package", "saetta-ring", "--release", "--lib"]);
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
        tests(command)
    }),
    ("e2e", || tests(cargo(&["test", "--package", "saetta-e2e", "--release", "--no-fail-fast"]))),
    ("bench", || {
        let mut tally = Tally::default();
        // Building the rivals takes longer than all the rest.
        for name in bench::names()?.into_iter().filter(|name| name != "rivals") {
            let answer = bench::run(Some(&name), true, None);
            if let Err(error) = &answer {
                eprintln!("error: {error:#}");
            }
            tally.add(Tally::check(answer.is_ok()));
        }
        Ok(at_least_one(tally))
    }),
];

/// Runs every step, or only those named.
pub(crate) fn run(yes: bool, only: &[String]) -> Result<()> {
    let chosen = chosen(only)?;
    needs::install_for_ci(yes)?;
    let start = Instant::now();
    let mut done: Vec<(&str, Tally, Duration)> = Vec::new();
    for (name, body) in chosen {
        println!("\n== {name}");
        let start = Instant::now();
        let tally = body().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Tally::check(false)
        });
        println!("== {name}: {} in {:.1} s", verdict(tally), start.elapsed().as_secs_f64());
        done.push((name, tally, start.elapsed()));
    }

    println!();
    let mut sum = Tally::default();
    for (name, tally, took) in &done {
        println!("{name:<8} {:>7.1} s  {}", took.as_secs_f64(), verdict(*tally));
        sum.add(*tally);
    }
    println!("{:<8} {:>7.1} s", "all", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed > 0 {
        bail!("ci: {} failed", sum.failed);
    }
    Ok(())
}

/// The steps with these names, in their own order; all when none is named.
fn chosen(only: &[String]) -> Result<Vec<Step>> {
    let known = STEPS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = only.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        bail!("ci: no step is called {unknown:?}; the steps are {known}");
    }
    Ok(STEPS.iter().copied().filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name)).collect())
}

fn verdict(tally: Tally) -> String {
    let ignored = if tally.ignored > 0 { format!(", {} ignored", tally.ignored) } else { String::new() };
    match tally {
        Tally { failed: 0, passed: 1, .. } => format!("ok{ignored}"),
        Tally { failed: 0, passed, .. } => format!("ok, {passed} passed{ignored}"),
        Tally { failed, passed, .. } => format!("FAILED, {failed} of {}{ignored}", failed + passed),
    }
}

fn check(mut command: Command) -> Result<Tally> {
    let status = command.status().with_context(|| format!("starting {}", line_of(&command)))?;
    Ok(Tally::check(status.success()))
}

/// Runs `cargo test ..`, shows what it prints, and adds up the sums of all its test binaries.
fn tests(mut command: Command) -> Result<Tally> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {}", line_of(&command)))?;
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().context("stdout is a pipe")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        tally.add(sum_in(&line).unwrap_or_default());
    }
    let status = child.wait()?;
    Ok(with_exit(tally, status.success()))
}

/// A test run that ended badly without a failed test (it did not compile, a test binary crashed) is one failure.
fn with_exit(mut tally: Tally, success: bool) -> Tally {
    if !success && tally.failed == 0 {
        tally.failed = 1;
    }
    at_least_one(tally)
}

/// A step that ran nothing shows nothing, and has failed.
fn at_least_one(tally: Tally) -> Tally {
    if tally.passed + tally.failed == 0 { Tally::check(false) } else { tally }
}

/// `test result: ok. 20 passed; 0 failed; 1 ignored; ..`
fn sum_in(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some(Tally { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_test_binary_is_read() {
        let line = "test result: FAILED. 20 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.05s";
        assert_eq!(sum_in(line), Some(Tally { passed: 20, failed: 2, ignored: 1 }));
        assert_eq!(sum_in("test ring::wraps ... ok"), None);
    }

    #[test]
    fn a_run_that_shows_nothing_has_failed() {
        assert_eq!(with_exit(Tally { passed: 3, ..Tally::default() }, true).failed, 0);
        assert_eq!(with_exit(Tally { passed: 3, ..Tally::default() }, false).failed, 1, "crashed");
        assert_eq!(with_exit(Tally { passed: 3, failed: 2, ignored: 0 }, false).failed, 2);
        assert_eq!(with_exit(Tally::default(), true).failed, 1, "ran nothing");
    }

    #[test]
    fn steps_keep_their_order_and_an_unknown_one_is_refused_with_the_list() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(&only).map(|steps| steps.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["loom", "fmt"]).expect("both are steps"), ["fmt", "loom"]);
        assert_eq!(names(&[]).expect("all").len(), STEPS.len());
        assert!(names(&["lint"]).expect_err("unknown").to_string().contains("the steps are fmt, tidy, clippy"));
    }
}
