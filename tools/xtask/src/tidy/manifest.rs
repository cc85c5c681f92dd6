//! The workspace's manifests as tidy needs them: members, their dependencies by kind, and the reason beside each line.
//!
//! Before: `Tree`. After: `imports` and `map` ask who depends on whom.
//! Reads the plain form our manifests have (one dependency a line), not all of TOML: a line it cannot read is a finding.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::{Finding, Tree};

/// When a dependency is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of the crate, build scripts included.
    Normal,
    /// Only its tests.
    Dev,
}

#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) line: usize,
    /// Takes version and features from the workspace.
    from_workspace: bool,
    /// The comment at the end of the line.
    reason: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Folder below the root.
    pub(crate) dir: String,
    pub(crate) package: String,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Member {
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }

    /// First folder: which part of the architecture it belongs to.
    pub(crate) fn area(&self) -> &str {
        self.dir.split('/').next().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) members: Vec<Member>,
    /// `[workspace.dependencies]`: what members may take.
    shared: BTreeMap<String, Dependency>,
}

impl Workspace {
    pub(crate) fn read(tree: &Tree) -> Result<Self> {
        let text = tree.text("Cargo.toml").context("reading the workspace: there is no Cargo.toml at the root")?;
        let mut members = Vec::new();
        for dir in members_in(text) {
            let path = format!("{dir}/Cargo.toml");
            let manifest = tree.text(&path).with_context(|| format!("reading the workspace: member {dir} has no Cargo.toml"))?;
            let package = value_of(manifest, "package", "name").with_context(|| format!("{path}: no package name"))?;
            members.push(Member { dir, package, dependencies: dependencies_in(manifest) });
        }
        let shared = dependencies_in(text).into_iter().map(|dependency| (dependency.name.clone(), dependency)).collect();
        Ok(Self { members, shared })
    }

    pub(crate) fn member(&self, package: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.package == package)
    }
}

/// The quoted words of `members = [ .. ]`.
fn members_in(text: &str) -> Vec<String> {
    let Some(list) = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')) else { return Vec::new() };
    let without_comments = list.0.lines().map(|line| split_comment(line).0).collect::<String>();
    without_comments.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// `key = "value"` of a section.
fn value_of(text: &str, section: &str, key: &str) -> Option<String> {
    let lines = text.lines().skip_while(|line| line.trim() != format!("[{section}]")).skip(1).take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim() == key)
        .and_then(|(_, value)| value.split('"').nth(1))
        .map(str::to_owned)
}

fn dependencies_in(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = None;
    for (index, line) in text.lines().enumerate() {
        let (code, reason) = split_comment(line);
        let code = code.trim();
        if let Some(name) = code.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = kind_of(name);
        } else if let (Some(kind), Some((key, value))) = (section, code.split_once('=')) {
            let (key, value) = (key.trim(), value.trim());
            let name = key.strip_suffix(".workspace").unwrap_or(key).trim_matches('"').to_owned();
            let from_workspace = key.ends_with(".workspace") || value.contains("workspace = true");
            let reason = reason.map(str::trim).filter(|reason| !reason.is_empty()).map(str::to_owned);
            found.push(Dependency { name, kind, line: index + 1, from_workspace, reason });
        }
    }
    found
}

fn kind_of(section: &str) -> Option<Kind> {
    match section.rsplit('.').next().unwrap_or(section) {
        "dependencies" | "build-dependencies" => Some(Kind::Normal),
        "dev-dependencies" => Some(Kind::Dev),
        _ => None,
    }
}

/// The line before its `#`, and the comment behind it; a `#` in quotes is text.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted => return (&line[..at], Some(&line[at + 1..])),
            _ => {}
        }
    }
    (line, None)
}

/// Every dependency that is not ours says why it is here, versions live in one place, and nothing stands there unused.
pub(crate) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for member in &workspace.members {
        for dependency in &member.dependencies {
            used.insert(dependency.name.as_str());
            let mut finding = |what: String| findings.push(Finding::new(&member.manifest(), dependency.line, what));
            // A crate's own tests may take it with other features, by path.
            if !dependency.from_workspace && dependency.name != member.package {
                finding(format!(
                    "`{}` has a version of its own; put it into [workspace.dependencies] and write `{0}.workspace = true`",
                    dependency.name
                ));
            }
            let ours = workspace.member(&dependency.name).is_some();
            let shared_reason = workspace.shared.get(&dependency.name).and_then(|shared| shared.reason.as_ref());
            if !ours && dependency.reason.is_none() && shared_reason.is_none() {
                finding(format!("`{}` gives no reason; end the line with `# what it is here for`", dependency.name));
            }
        }
    }
    for (name, shared) in &workspace.shared {
        if !used.contains(name.as_str()) {
            findings.push(Finding::new("Cargo.toml", shared.line, format!("no crate uses `{name}`; take the line out")));
        }
    }
    findings
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A workspace of crates given as (folder, package, lines of its manifest after the package section).
    pub(crate) fn workspace(shared: &str, crates: &[(&str, &str, &str)]) -> Workspace {
        let members: String = crates.iter().map(|(dir, ..)| format!("    \"{dir}\", # one \"of\" ours\n")).collect();
        let mut files =
            vec![("Cargo.toml".to_owned(), format!("[workspace]\nmembers = [\n{members}]\n\n[workspace.dependencies]\n{shared}"))];
        for (dir, package, rest) in crates {
            files.push((format!("{dir}/Cargo.toml"), format!("[package]\nname = \"{package}\"\nlicense = \"x\"\n\n{rest}\n")));
        }
        Workspace::read(&Tree { files: files.into_iter().collect() }).expect("fixture")
    }

    fn whats(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_reason_at_either_line_will_do_and_none_is_a_finding() {
        let shared = "hex = \"0.4\"\nserde = { version = \"1\", features = [\"derive\"] } # a # in the reason\n";
        let ws = workspace(shared, &[("a/x", "x", "[dependencies]\nhex.workspace = true\nserde.workspace = true\n")]);
        assert_eq!(whats(&check(&ws)), ["a/x/Cargo.toml:6: `hex` gives no reason; end the line with `# what it is here for`"]);
        let ws = workspace(shared, &[("a/x", "x", "[dev-dependencies]\nhex.workspace = true # names of blobs\nserde.workspace = true\n")]);
        assert_eq!(whats(&check(&ws)), Vec::<String>::new());
    }

    #[test]
    fn our_own_crates_need_no_reason_and_unused_or_private_versions_are_found() {
        let crates = [("a/x", "x", "[dependencies]\ny.workspace = true\nhex = \"0.4\" # names\n"), ("a/y", "y", "")];
        let ws = workspace("y = { path = \"a/y\" }\nhex = \"0.4\"\ntoml = \"1\"\n", &crates);
        let found = whats(&check(&ws));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a/x/Cargo.toml:7: `hex` has a version of its own"), "{found:?}");
        assert!(found[1].ends_with("no crate uses `toml`; take the line out"), "{found:?}");
    }

    #[test]
    fn dependencies_of_every_section_are_seen() {
        let text = "[target.'cfg(loom)'.dependencies]\nloom.workspace = true\n[build-dependencies]\ncc.workspace = true\n[lints]\nworkspace = true\n";
        let names: Vec<String> = dependencies_in(text).into_iter().map(|dependency| dependency.name).collect();
        assert_eq!(names, ["loom", "cc"]);
    }
}
