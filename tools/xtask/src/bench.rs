//! `cargo xtask bench SUITE [--smoke] [--only TEXT]`: the suites' binary, built for release, started in the workspace root.
//!
//! Before: a person or `ci`. After: `benches/suites` prints the table and writes target/bench/SUITE.json and .md.

use anyhow::Result;

use crate::needs;
use crate::process::{cargo, must, output};

/// The arguments every start of the suites' binary shares. Not by its package: that has other features of its dependencies than the workspace,
/// which `ci` and some suites build, and either would be built anew after the other.
const SUITES: [&str; 6] = ["run", "--quiet", "--release", "--bin", "saetta-suites", "--"];

/// The suite that runs programs of others.
const RIVALS: &str = "rivals";

/// Runs one suite; without a name, lists them.
pub(crate) fn run(suite: Option<&str>, smoke: bool, only: Option<&str>) -> Result<()> {
    // A smoke run takes what is there, and says what is not.
    if suite == Some(RIVALS) && !smoke {
        needs::install_for_rivals()?;
    }
    let mut args = SUITES.to_vec();
    args.push(suite.unwrap_or("--list"));
    if smoke {
        args.push("--smoke");
    }
    if let Some(text) = only {
        args.extend(["--only", text]);
    }
    must(&mut cargo(&args))
}

/// The names of all suites, in their own order.
pub(crate) fn names() -> Result<Vec<String>> {
    let mut args = SUITES.to_vec();
    args.push("--list");
    Ok(names_in(&output(&mut cargo(&args))?))
}

fn names_in(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_word_of_a_line_is_a_suite() {
        assert_eq!(super::names_in("hop          one tuple, two cores\npipeline     rate\n\n"), ["hop", "pipeline"]);
    }
}
