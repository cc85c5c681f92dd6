//! Which crate may import which: the arrows of the architecture, as a function.
//!
//! Before: `manifest`. After: a finding names the arrow and the rule it breaks.
//!
//! ```text
//! plugins -> scheduler-api <- dataplane <- controlplane <- tools, benches, tests        examples -> saetta
//! ```

use std::collections::BTreeSet;

use super::Finding;
use super::manifest::{Kind, Member, Workspace};

/// The crate users depend on; its tree is what a worker is made of.
pub(crate) const WORKER_CRATE: &str = "saetta";
/// Never part of a worker: an async runtime, ZooKeeper, HTTP.
const NOT_IN_A_WORKER: &[&str] =
    &["tokio", "tokio-util", "tokio-uring", "async-std", "smol", "zookeeper-client", "hyper", "axum", "reqwest"];
/// The one arrow against the rule, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The last resort is linked into the helper process, behind the same table of functions as any plugin.
    ("saetta-sched-host", "saetta-even"),
];
/// What runs tuples; the daemons know its messages, not its parts.
const RUNS_TUPLES: &[&str] = &["saetta-engine", "saetta-worker", "saetta"];

/// All arrows of the workspace.
pub(crate) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &workspace.members {
        for dependency in &member.dependencies {
            let refusal = match workspace.member(&dependency.name) {
                Some(to) => refusal(member, to, dependency.kind),
                None => external_refusal(member, &dependency.name, dependency.kind),
            };
            if let Some(why) = refusal {
                findings.push(Finding::new(
                    &member.manifest(),
                    dependency.line,
                    format!("{} -> {}: {why}", member.package, dependency.name),
                ));
            }
        }
    }
    for daemon in ["saetta-nimbus", "saetta-supervisor"] {
        let Some(member) = workspace.member(daemon) else { continue };
        for reached in closure(workspace, member).iter().filter(|name| RUNS_TUPLES.contains(name)) {
            let what = format!("{daemon} reaches {reached} through its dependencies; a daemon never holds the engine");
            findings.push(Finding::new(&member.manifest(), 0, what));
        }
    }
    findings
}

fn refusal(from: &Member, to: &Member, kind: Kind) -> Option<&'static str> {
    if EXCEPTIONS.contains(&(from.package.as_str(), to.package.as_str())) {
        return None;
    }
    let allowed: &[&str] = match from.area() {
        "scheduler-api" if kind == Kind::Dev => &["scheduler-api", "plugins"],
        "scheduler-api" | "plugins" => &["scheduler-api"],
        "dataplane" => &["scheduler-api", "dataplane"],
        "controlplane" => &["scheduler-api", "dataplane", "controlplane"],
        "examples" => &["dataplane"],
        "tools" if from.package == "xtask" => &[],
        _ => return None,
    };
    if !allowed.contains(&to.area()) {
        return Some(match from.area() {
            "scheduler-api" => "the language of placement depends on nothing that speaks it",
            "plugins" => "a scheduler imports scheduler-api and nothing else of ours",
            "dataplane" => "the line a tuple travels never imports the line a decision travels",
            "controlplane" => "the daemons import scheduler-api and the data plane's messages only",
            "examples" => "an example imports what a user imports: saetta",
            _ => "xtask builds on a bare machine in seconds: no crate of ours",
        });
    }
    if from.area() == "controlplane" && RUNS_TUPLES.contains(&to.package.as_str()) {
        return Some("the control plane never touches a tuple");
    }
    if from.area() == "examples" && to.package != WORKER_CRATE {
        return Some("an example imports what a user imports: saetta");
    }
    None
}

/// Crates that are not ours and that an area does not take.
fn external_refusal(from: &Member, name: &str, kind: Kind) -> Option<&'static str> {
    match (from.area(), kind) {
        ("plugins", Kind::Normal) => Some("a scheduler imports scheduler-api and nothing else"),
        ("dataplane", Kind::Normal) if NOT_IN_A_WORKER.contains(&name) => Some("the data plane knows no async runtime and no ZooKeeper"),
        _ => None,
    }
}

/// Our crates reachable over normal dependencies.
fn closure<'a>(workspace: &'a Workspace, from: &'a Member) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(member) = todo.pop() {
        for dependency in member.dependencies.iter().filter(|dependency| dependency.kind == Kind::Normal) {
            if let Some(next) = workspace.member(&dependency.name)
                && seen.insert(next.package.as_str())
            {
                todo.push(next);
            }
        }
    }
    seen
}

/// `listing` is `cargo tree --edges normal --prefix none` of [`WORKER_CRATE`]: all a worker is made of, other people's crates included.
pub(crate) fn check_worker_tree(listing: &str) -> Vec<Finding> {
    let names: BTreeSet<&str> = listing.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let refused = NOT_IN_A_WORKER.iter().filter(|name| names.contains(**name));
    let what =
        |name: &&str| format!("a worker's dependencies hold {name}; `cargo tree -e normal -p {WORKER_CRATE} -i {name}` shows through whom");
    refused.map(|name| Finding::new("dataplane/saetta/Cargo.toml", 0, what(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::manifest::tests::workspace;

    const ALL: &[(&str, &str)] = &[
        ("scheduler-api/model", "saetta-model"),
        ("scheduler-api/host", "saetta-sched-host"),
        ("plugins/even", "saetta-even"),
        ("dataplane/engine", "saetta-engine"),
        ("dataplane/transport", "saetta-transport"),
        ("dataplane/saetta", "saetta"),
        ("controlplane/store", "saetta-store"),
        ("controlplane/nimbus", "saetta-nimbus"),
        ("examples/wordcount", "wordcount"),
        ("tools/cli", "saetta-cli"),
        ("tools/xtask", "xtask"),
    ];

    /// The findings of the workspace above with only these arrows.
    fn with(arrows: &[(&str, &str)], section: &str) -> Vec<String> {
        let manifests: Vec<String> = ALL
            .iter()
            .map(|(_, package)| {
                let lines: String =
                    arrows.iter().filter(|(from, _)| from == package).map(|(_, to)| format!("{to}.workspace = true\n")).collect();
                format!("[{section}]\n{lines}")
            })
            .collect();
        let crates: Vec<(&str, &str, &str)> =
            ALL.iter().zip(&manifests).map(|((dir, package), text)| (*dir, *package, text.as_str())).collect();
        check(&workspace("", &crates)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_of_the_architecture_pass() {
        let good = [
            ("saetta-even", "saetta-model"),
            ("saetta-sched-host", "saetta-even"),
            ("saetta-engine", "saetta-model"),
            ("saetta-nimbus", "saetta-store"),
            ("saetta-nimbus", "saetta-transport"),
            ("saetta-cli", "saetta-nimbus"),
            ("wordcount", "saetta"),
        ];
        assert_eq!(with(&good, "dependencies"), Vec::<String>::new());
    }

    #[test]
    fn every_arrow_against_the_architecture_is_found() {
        let bad = [
            ("saetta-engine", "saetta-store"),
            ("saetta-even", "saetta-engine"),
            ("saetta-model", "saetta-even"),
            ("saetta-nimbus", "saetta"),
            ("wordcount", "saetta-engine"),
            ("xtask", "saetta-model"),
        ];
        for arrow in bad {
            let found = with(&[arrow], "dependencies");
            assert!(!found.is_empty(), "{arrow:?}");
            assert!(found.iter().any(|finding| finding.contains(&format!("{} -> {}", arrow.0, arrow.1))), "{found:?}");
        }
        assert!(!with(&[("saetta-engine", "saetta-store")], "dev-dependencies").is_empty(), "not in tests either");
    }

    #[test]
    fn the_engine_is_found_behind_another_crate() {
        let found = with(&[("saetta-nimbus", "saetta-transport"), ("saetta-transport", "saetta-engine")], "dependencies");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("saetta-nimbus reaches saetta-engine"), "{found:?}");
    }

    #[test]
    fn a_plugin_takes_no_other_crate_and_the_data_plane_no_runtime() {
        assert_eq!(with(&[("saetta-even", "hex")], "dependencies").len(), 1);
        assert_eq!(with(&[("saetta-even", "proptest")], "dev-dependencies").len(), 0);
        assert_eq!(with(&[("saetta-engine", "tokio")], "dependencies").len(), 1);
    }

    #[test]
    fn a_runtime_deep_in_the_worker_s_tree_is_found() {
        assert_eq!(check_worker_tree("saetta v0.1.0 (/x)\nrkyv v0.8.18\ntokio-macros v2\n"), []);
        let found = check_worker_tree("saetta v0.1.0\ntokio v1.54.1\nzookeeper-client v0.11.2 (*)\n");
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
