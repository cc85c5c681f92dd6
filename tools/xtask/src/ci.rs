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

/// Runs every step.
pub(crate) fn run(yes: bool) -> Result<()> {
    needs::install_for_ci(yes)?;
    let start = Instant::now();
    let mut steps: Vec<(String, Tally, Duration)> = Vec::new();
    let mut step = |name: &str, body: &mut dyn FnMut() -> Result<Tally>| {
        println!("\n== {name}");
        let start = Instant::now();
        let tally = body().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Tally::check(false)
        });
        let took = start.elapsed();
        println!("== {name}: {} in {:.1} s", verdict(tally), took.as_secs_f64());
        steps.push((name.to_owned(), tally, took));
    };

    step("fmt", &mut || check(cargo(&["fmt", "--all", "--", "--check"])));
    step("tidy", &mut || tidy::run().map(|()| Tally::check(true)));
    step("clippy", &mut || check(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    // Binaries and plugins: the end-to-end tests start them.
    step("build release", &mut || check(cargo(&["build", "--release", "--workspace"])));
    // Binaries and plugins again, for the tests of single crates that start or load one.
    step("build", &mut || check(cargo(&["build", "--workspace"])));
    step("test", &mut || tests(cargo(&["test", "--workspace", "--exclude", "saetta-e2e", "--no-fail-fast"])));
    step("loom", &mut || {
        let mut command = cargo(&["test", "--package", "saetta-ring", "--release", "--lib"]);
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
        tests(command)
    });
    step("end to end", &mut || tests(cargo(&["test", "--package", "saetta-e2e", "--release", "--no-fail-fast"])));
    step("bench smoke", &mut || {
        let mut tally = Tally::default();
        for name in bench::names()? {
            let answer = bench::run(Some(&name), true);
            if let Err(error) = &answer {
                eprintln!("error: {error:#}");
            }
            tally.add(Tally::check(answer.is_ok()));
        }
        Ok(tally)
    });

    println!();
    let mut sum = Tally::default();
    for (name, tally, took) in &steps {
        println!("{name:<14} {:>7.1} s  {}", took.as_secs_f64(), verdict(*tally));
        sum.add(*tally);
    }
    println!("{:<14} {:>7.1} s", "all", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed > 0 {
        bail!("ci: {} failed", sum.failed);
    }
    Ok(())
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

/// A test run that ended badly without a failed test (it did not compile, a test binary crashed) is one failure; one that ran no test at
/// all shows nothing and is one too.
fn with_exit(mut tally: Tally, success: bool) -> Tally {
    if (!success && tally.failed == 0) || tally.passed + tally.failed == 0 {
        tally.failed += 1;
    }
    tally
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
}
