//! What every source file keeps: it says where it stands, nothing is left over from debugging, no path of somebody's machine.
//!
//! Before: `Tree`. After: findings with the line.

use super::manifest::Workspace;
use super::{Finding, Tree};

/// Written in pieces, so that this file does not find itself.
const LEFT_OVER: &[(&str, &str)] = &[
    (concat!("dbg", "!("), "take it out; what is worth seeing is a counter or a log line"),
    (concat!("todo", "!("), "finish it, or return an error that says what is missing"),
    (concat!("unimplemented", "!("), "finish it, or return an error that says what is missing"),
];
/// Folders of a developer's machine, as absolute paths.
const MACHINE_PATHS: &[&str] = &[concat!("/", "home/"), concat!("/", "work/"), concat!("/", "root/"), concat!("/", "Users/")];
/// The header of a crate that was laid and not built.
const NOT_BUILT: &str = concat!("//! Not ", "built yet");

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        machine_paths(path, text, &mut findings);
        if is_source(path, workspace) {
            header(path, text, &mut findings);
            left_over(path, text, &mut findings);
        }
    }
    findings
}

/// A Rust file of a member. Not the programs that a compile-fail test feeds to the compiler: they are shown to users as they stand.
fn is_source(path: &str, workspace: &Workspace) -> bool {
    let of_a_member =
        workspace.members.iter().any(|member| path.strip_prefix(member.dir.as_str()).is_some_and(|rest| rest.starts_with('/')));
    of_a_member && path.ends_with(".rs") && !is_compile_case(path)
}

pub(crate) fn is_compile_case(path: &str) -> bool {
    path.split_once("/tests/")
        .is_some_and(|(_, below)| ["ui/", "compile_fail/", "compile-fail/", "cases/"].iter().any(|dir| below.starts_with(dir)))
}

fn header(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.starts_with("//! ") {
        findings.push(Finding::new(
            path,
            1,
            "the file does not say where it stands; begin with `//! What it does.`, then Before and After",
        ));
    } else if text.starts_with(NOT_BUILT) {
        findings.push(Finding::new(path, 1, "laid and not built; build it, or take the crate out of the workspace"));
    }
}

fn left_over(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        for (word, remedy) in LEFT_OVER {
            if code.contains(word) {
                findings.push(Finding::new(path, index + 1, format!("`{}` is left over; {remedy}", word.trim_end_matches('('))));
            }
        }
    }
}

fn machine_paths(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        for folder in MACHINE_PATHS {
            let begins_a_path = |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-/}>*".contains(before));
            if line.match_indices(folder).any(|(at, _)| begins_a_path(at)) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("`{folder}` is a folder of one machine; name it from the workspace root"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::manifest::tests::workspace;

    fn found(path: &str, text: &str) -> Vec<String> {
        let ws = workspace("", &[("a/x", "x", "")]);
        check(&Tree::of(&[(path, text)]), &ws).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_without_a_header_is_found_and_a_compile_case_is_not() {
        assert_eq!(found("a/x/src/lib.rs", "//! Adds.\n").len(), 0);
        assert_eq!(found("a/x/src/lib.rs", "use std::fmt;\n").len(), 1);
        assert_eq!(found("a/x/src/lib.rs", concat!("//! Not ", "built yet.\n")).len(), 1);
        assert_eq!(found("a/x/tests/ui/wrong_field.rs", "use saetta::*;\n").len(), 0);
        assert_eq!(found("docs/example.rs", "use std::fmt;\n").len(), 0, "not a member's");
    }

    #[test]
    fn what_is_left_over_is_found_in_code_and_not_in_comments() {
        let text = concat!("//! X.\n// no dbg", "!(x) here\nfn f() { todo", "!(\"later\") }\n");
        let found = found("a/x/src/lib.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/x/src/lib.rs:3: `todo!` is left over"), "{found:?}");
    }

    #[test]
    fn a_folder_of_a_machine_is_found_in_any_text_and_a_path_that_only_looks_alike_is_not() {
        assert_eq!(found("README.md", concat!("run /", "home/me/bin\n")).len(), 1);
        assert_eq!(found("README.md", concat!("see \"/", "work/main\"\n")).len(), 1);
        assert_eq!(found("README.md", concat!("see target/", "work/x and {dir}/", "work/x\n")).len(), 0);
    }
}
