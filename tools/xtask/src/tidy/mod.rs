//! `cargo xtask tidy`: what no compiler sees, checked over the text of the tree, in a second.
//!
//! Before: a person, `ci`. After: one line per finding, `path:line: what is wrong; what to do`.
//! Each check is a pure function of the [`Tree`], tested on a small one; only loading the tree and the worker's dependency tree (asked of
//! cargo) touch the machine.

mod imports;
mod manifest;
mod map;
mod sources;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, output, root};

/// Text files by path relative to the workspace root, with `/` between folders.
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1; 0 when it is about the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl Tree {
    /// What git knows or would know of (not what it ignores), or every file where git refuses the folder; text only.
    fn load(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
        let paths = match output(&mut git) {
            Ok(listing) => listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
            Err(_) => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        let mut files = BTreeMap::new();
        for path in paths {
            // Deleted and not yet committed, or not text: nothing to read.
            let Ok(bytes) = fs::read(root.join(&path)) else { continue };
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(path, text);
            }
        }
        Ok(Self { files })
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }
}

/// Files below `root/below`, without what is built and what git keeps.
fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(below)).with_context(|| format!("listing {below}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        match entry.file_type()? {
            kind if kind.is_dir() && !["target", ".git"].contains(&name.as_str()) => walk(root, &path, paths)?,
            kind if kind.is_file() => paths.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// Every check that needs only the text.
fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let workspace = manifest::Workspace::read(tree)?;
    let mut findings = imports::check(&workspace);
    findings.extend(manifest::check(&workspace));
    findings.extend(sources::check(tree, &workspace));
    findings.extend(map::check(tree, &workspace));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Runs every check; findings are printed and are an error.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::load(&root())?;
    let mut findings = check(&tree)?;
    let worker = output(&mut cargo(&["tree", "--quiet", "--edges", "normal", "--prefix", "none", "--package", imports::WORKER_CRATE]))?;
    findings.extend(imports::check_worker_tree(&worker));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("tidy: {} files, nothing found", tree.files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_same_with_and_without_git() {
        let mut walked = Vec::new();
        walk(&root(), "", &mut walked).expect("the workspace is readable");
        for path in ["Cargo.toml", "tools/xtask/src/main.rs"] {
            assert!(walked.iter().any(|walked| walked == path), "{path}");
            assert!(Tree::load(&root()).expect("loaded").text(path).is_some(), "{path}");
        }
        assert!(!walked.iter().any(|path| path.starts_with(".git/") || path.contains("target/")), "built and kept files stay out");
    }
}
