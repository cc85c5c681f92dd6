//! ARCHITECTURE.md against the tree: a heading per crate, the rooms of unsafe, the models of the lock-free parts, the signposts of the walks.
//!
//! Before: `Tree`. After: a finding on whichever side drifted.
//!
//! The map's forms, one fact a line:
//! - a crate: `### saetta-ring`
//! - a room of unsafe: a table line whose first cell is the file, below a heading that begins with "Rooms of unsafe"
//! - a model: a table line, the lock-free file in the first cell, in the second ``` `file`: `test` ``` or `argued: why`, below "Models"
//! - a signpost: ``` `path`: `marker` ``` below a heading that begins with "Walk": the file exists and holds the marker

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::Workspace;
use super::sources::is_compile_case;
use super::{Finding, Tree};

const MAP: &str = "ARCHITECTURE.md";
/// Written in pieces, so that this file does not find itself.
const EXPECT: &str = concat!("#[expect(", "unsafe_code");
const ALLOW: &str = concat!("[allow(", "unsafe_code");
const EXPECT_FILE: &str = concat!("#![expect(", "unsafe_code");
const FORBID: &str = concat!("#![forbid(", "unsafe_code)]");
/// Tests below this are loom models: by convention the last in a file.
const LOOM_TESTS: &str = "#[cfg(all(test, loom))]";
/// A file that orders memory between threads.
const ORDERINGS: &[&str] = &["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst", "fence("];

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else { return vec![Finding::new(MAP, 0, "the workspace has no map; write one heading per crate")] };
    let mut findings = headings(map, workspace);
    findings.extend(rooms(tree, map, workspace));
    findings.extend(models(tree, map));
    findings.extend(signposts(tree, map));
    findings
}

fn headings(map: &str, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut described = BTreeMap::new();
    for (index, line) in map.lines().enumerate() {
        let Some(name) = line.strip_prefix("### ").map(|rest| rest.trim_matches('`')) else { continue };
        if workspace.member(name).is_none() {
            findings.push(Finding::new(
                MAP,
                index + 1,
                format!("`### {name}`: no crate of the workspace has this name; level-three headings are crates"),
            ));
        } else if described.insert(name, index + 1).is_some() {
            findings.push(Finding::new(MAP, index + 1, format!("`### {name}` stands here a second time")));
        }
    }
    for member in workspace.members.iter().filter(|member| !described.contains_key(member.package.as_str())) {
        findings.push(Finding::new(
            MAP,
            0,
            format!("no heading `### {}`; say what the crate ({}) keeps and what it never holds", member.package, member.dir),
        ));
    }
    findings
}

/// Files that hold unsafe code, as the code says: `#[expect(..)] mod name;`, or the same on a whole file.
fn rooms(tree: &Tree, map: &str, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut crates_with_rooms = BTreeSet::new();
    for (path, text) in sources(tree, workspace) {
        let mut in_tests = path.ends_with("tests.rs");
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().map(|line| line.trim()).enumerate() {
            // What stands below belongs to tests: by convention they are last in a file.
            in_tests |= line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") || line.starts_with("#[cfg(any(test");
            if line.contains(ALLOW) && !line.starts_with("//") {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    "unsafe is allowed here; write `#[expect(.., reason = \"..\")] mod room;` and list the room",
                ));
            }
            let room = if line.starts_with(EXPECT_FILE) {
                Some(path.to_owned())
            } else if line.starts_with(EXPECT) && !in_tests {
                let module = lines[index..].iter().find_map(|line| module_of(line));
                let room = module.and_then(|module| file_of_module(tree, path, module));
                if room.is_none() {
                    findings.push(Finding::new(
                        path,
                        index + 1,
                        "unsafe outside a room; move it to a module of its own: `#[expect(..)] mod room;`",
                    ));
                }
                room
            } else {
                None
            };
            if let Some(room) = room {
                crates_with_rooms.extend(
                    workspace.members.iter().filter(|member| room.starts_with(&format!("{}/", member.dir))).map(|member| &member.package),
                );
                if !room.contains("/tests/") {
                    in_code.insert(room, (path.to_owned(), index + 1));
                }
            }
        }
    }
    let listed: BTreeMap<String, usize> =
        table_below(map, "Rooms of unsafe").into_iter().map(|(line, cells)| (unquoted(&cells[0]), line)).collect();
    for (room, (path, line)) in &in_code {
        if !listed.contains_key(room) {
            findings.push(Finding::new(
                path,
                *line,
                format!("`{room}` is a room of unsafe that {MAP} does not list; add it to the table with its reason"),
            ));
        }
    }
    for (room, line) in &listed {
        if !in_code.contains_key(room) {
            findings.push(Finding::new(MAP, *line, format!("`{room}` is listed as a room of unsafe and the code names no such room")));
        }
    }
    for member in workspace.members.iter().filter(|member| !crates_with_rooms.contains(&member.package)) {
        for root in ["src/lib.rs", "src/main.rs"].map(|file| format!("{}/{file}", member.dir)) {
            if tree.text(&root).is_some_and(|text| !text.contains(FORBID)) {
                findings.push(Finding::new(&root, 0, format!("the crate has no room of unsafe; say so: `{FORBID}`")));
            }
        }
    }
    findings
}

/// `mod name;` with any visibility, when the line is that and not an attribute or a comment.
fn module_of(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default().trim();
    // The attribute may stand on the same line as the module.
    let item = code.rsplit_once(")] ").map_or(code, |(_, item)| item);
    let item =
        item.strip_prefix("pub(crate) ").or_else(|| item.strip_prefix("pub(super) ")).or_else(|| item.strip_prefix("pub ")).unwrap_or(item);
    item.strip_prefix("mod ")?.strip_suffix(';')
}

/// Where the module `name`, declared in `path`, is written.
fn file_of_module(tree: &Tree, path: &str, name: &str) -> Option<String> {
    let (dir, file) = path.rsplit_once('/')?;
    let dir =
        if ["lib.rs", "main.rs", "mod.rs"].contains(&file) { dir.to_owned() } else { format!("{dir}/{}", file.trim_end_matches(".rs")) };
    [format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")].into_iter().find(|path| tree.text(path).is_some())
}

/// Every file of the data plane that orders memory between threads has a model, or an argument why it needs none.
fn models(tree: &Tree, map: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = table_below(map, "Models");
    let listed: BTreeSet<String> = table.iter().map(|(_, cells)| unquoted(&cells[0])).collect();
    for (path, text) in
        tree.files.iter().filter(|(path, _)| path.starts_with("dataplane/") && path.contains("/src/") && path.ends_with(".rs"))
    {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let orders = |line: &str| !line.trim_start().starts_with("//") && ORDERINGS.iter().any(|ordering| line.contains(ordering));
        if let Some(index) = code.lines().position(orders)
            && !listed.contains(path.as_str())
        {
            let what =
                format!("orders memory between threads and has no line in the table of models in {MAP}; name its loom test, or argue");
            findings.push(Finding::new(path, index + 1, what));
        }
    }
    for (line, cells) in &table {
        let (module, model) = (unquoted(&cells[0]), cells.get(1).map(String::as_str).unwrap_or_default());
        let mut finding = |what: String| findings.push(Finding::new(MAP, *line, what));
        if tree.text(&module).is_none() {
            finding(format!("`{module}` has a model and is not there"));
        }
        if model.starts_with("argued: ") {
            continue;
        }
        match signpost_in(model) {
            Some((path, test)) if tree.text(path).is_some_and(|text| text.contains(&format!("fn {test}"))) => {
                if !tree.text(path).is_some_and(|text| is_under_loom(text, test)) {
                    finding(format!("`{module}`: `{test}` is no model: it does not stand below `{LOOM_TESTS}`"));
                }
            }
            _ => finding(format!("`{module}`: its model is not there; write ``{}`` or `argued: why`", "`file`: `name of the test`")),
        }
    }
    findings
}

/// True when this test runs under the model checker only.
fn is_under_loom(text: &str, test: &str) -> bool {
    let models = text.split_once(LOOM_TESTS).map_or("", |(_, below)| below);
    models.contains(&format!("fn {test}"))
}

fn signposts(tree: &Tree, map: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = 0;
    for (line, text) in lines_below(map, "Walk") {
        let Some((path, marker)) = signpost_in(text) else { continue };
        seen += 1;
        match tree.text(path) {
            None => findings.push(Finding::new(MAP, line, format!("the walk passes `{path}`, which is not there"))),
            Some(text) if !text.contains(marker) => {
                findings.push(Finding::new(
                    MAP,
                    line,
                    format!("the walk looks for `{marker}` in `{path}` and it is not there; follow the tuple or the submission again"),
                ));
            }
            Some(_) => {}
        }
    }
    if seen == 0 {
        findings.push(Finding::new(MAP, 0, "no signposts; below `## Walk of ..` write lines with `path`: `marker`"));
    }
    findings
}

/// The first ``` `path`: `marker` ``` of a line.
fn signpost_in(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once("`: `")?;
    let path = before.rsplit_once('`').map_or(before, |(_, path)| path);
    Some((path, after.split_once('`')?.0))
}

/// Lines with their numbers below headings that begin so, up to the next heading of any level.
fn lines_below<'a>(map: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let mut below = false;
    let mut lines = Vec::new();
    for (index, line) in map.lines().enumerate() {
        if line.starts_with('#') {
            below = line.trim_start_matches('#').trim().starts_with(heading);
        } else if below {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// Cells of the table lines below a heading, without the head and the rule under it.
fn table_below(map: &str, heading: &str) -> Vec<(usize, Vec<String>)> {
    let rows = lines_below(map, heading).into_iter().filter(|(_, line)| line.starts_with('|'));
    rows.skip(2).map(|(number, line)| (number, line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())).collect()
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

fn sources<'a>(tree: &'a Tree, workspace: &'a Workspace) -> impl Iterator<Item = (&'a str, &'a str)> {
    let of_a_member = |path: &str| workspace.members.iter().any(|member| path.starts_with(&format!("{}/", member.dir)));
    tree.files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .filter(move |(path, _)| path.ends_with(".rs") && of_a_member(path) && !is_compile_case(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::manifest::tests::workspace;

    const LIB: &str = concat!(
        "//! X.\n",
        "mod plain;\n",
        "// why\n",
        "#[cfg(not(loom))]\n",
        "#[expect(",
        "unsafe_code, reason = \"maps memory\")]\n",
        "#[rustfmt::skip]\n",
        "pub(crate) mod room;\n"
    );
    const GOOD: &str = "# Map\n### x\nkeeps\n## Rooms of unsafe\n| room | why |\n|---|---|\n| `dataplane/x/src/room.rs` | maps memory |\n\
        ## Models\n| file | model |\n|---|---|\n| `dataplane/x/src/plain.rs` | `dataplane/x/src/plain.rs`: `wraps` |\n\
        ## Walk of a tuple\n1. `dataplane/x/src/plain.rs`: `fn push` takes it\n";
    const PLAIN: &str = "//! P.\nfn push() { a.store(1, Ordering::Release) }\n#[cfg(all(test, loom))]\nmod tests { fn wraps() {} }\n";

    fn found(map: &str, lib: &str, plain: &str) -> Vec<String> {
        let ws = workspace("", &[("dataplane/x", "x", "")]);
        let tree = Tree::of(&[
            (MAP, map),
            ("dataplane/x/src/lib.rs", lib),
            ("dataplane/x/src/plain.rs", plain),
            ("dataplane/x/src/room.rs", "//! R.\n"),
        ]);
        let mut findings = check(&tree, &ws);
        findings.sort();
        findings.iter().map(ToString::to_string).collect()
    }

    /// The one finding of a change, which holds these words.
    fn one(found: &[String], words: &str) {
        assert!(found.len() == 1 && found[0].contains(words), "{words:?} in {found:?}");
    }

    #[test]
    fn a_map_that_matches_passes() {
        assert_eq!(found(GOOD, LIB, PLAIN), Vec::<String>::new());
    }

    #[test]
    fn a_heading_too_few_or_too_many_is_found() {
        one(&found(&GOOD.replace("### x", "text"), LIB, PLAIN), "no heading `### x`");
        one(&found(&GOOD.replace("### x", "### x\n### y"), LIB, PLAIN), "no crate of the workspace");
    }

    #[test]
    fn rooms_are_compared_in_both_directions() {
        one(
            &found(&GOOD.replace("| `dataplane/x/src/room.rs` | maps memory |\n", ""), LIB, PLAIN),
            "a room of unsafe that ARCHITECTURE.md does not list",
        );
        let no_room = concat!("//! X.\n#![forbid(", "unsafe_code)]\nmod plain;\nmod room;\n");
        one(&found(GOOD, no_room, PLAIN), "the code names no such room");
    }

    #[test]
    fn a_crate_without_rooms_forbids_unsafe() {
        let map = GOOD.replace("| `dataplane/x/src/room.rs` | maps memory |\n", "");
        one(&found(&map, "//! X.\nmod plain;\n", PLAIN), "the crate has no room of unsafe; say so");
    }

    #[test]
    fn unsafe_on_an_item_is_found_and_in_tests_it_is_not() {
        let on_fn = format!("{LIB}{}", concat!("#[expect(", "unsafe_code, reason = \"x\")]\nfn f() {}\n"));
        one(&found(GOOD, &on_fn, PLAIN), "unsafe outside a room");
        let in_tests =
            format!("{LIB}{}", concat!("#[cfg(test)]\nmod tests {\n    #[expect(", "unsafe_code, reason = \"x\")]\n    fn f() {}\n}\n"));
        assert_eq!(found(GOOD, &in_tests, PLAIN), Vec::<String>::new());
        let allowed = format!("{LIB}{}", concat!("#[allow(", "unsafe_code)]\nfn f() {}\n"));
        one(&found(GOOD, &allowed, PLAIN), "unsafe is allowed here");
    }

    #[test]
    fn a_file_that_orders_memory_needs_a_model_that_is_there() {
        let row = "| `dataplane/x/src/plain.rs` | `dataplane/x/src/plain.rs`: `wraps` |\n";
        one(&found(&GOOD.replace(row, ""), LIB, PLAIN), "orders memory between threads");
        one(&found(&GOOD.replace("`wraps`", "`parks`"), LIB, PLAIN), "its model is not there");
        one(&found(GOOD, LIB, &PLAIN.replace("all(test, loom)", "test")), "is no model");
        let argued = GOOD.replace("`dataplane/x/src/plain.rs`: `wraps`", "argued: one writer, and readers only count");
        assert_eq!(found(&argued, LIB, PLAIN), Vec::<String>::new());
    }

    #[test]
    fn a_signpost_points_at_something() {
        one(&found(&GOOD.replace("`fn push`", "`fn pull`"), LIB, PLAIN), "looks for `fn pull`");
        one(
            &found(&GOOD.replace("1. `dataplane/x/src/plain.rs`: `fn", "1. `dataplane/x/src/gone.rs`: `fn"), LIB, PLAIN),
            "which is not there",
        );
        one(&found(&GOOD.replace("## Walk of a tuple", "## Something"), LIB, PLAIN), "no signposts");
    }

    #[test]
    fn a_module_is_found_under_a_file_s_own_folder_too() {
        let tree = Tree::of(&[("a/src/uring.rs", ""), ("a/src/uring/sys.rs", ""), ("a/src/os/mod.rs", "")]);
        assert_eq!(file_of_module(&tree, "a/src/uring.rs", "sys").as_deref(), Some("a/src/uring/sys.rs"));
        assert_eq!(file_of_module(&tree, "a/src/lib.rs", "os").as_deref(), Some("a/src/os/mod.rs"));
        assert_eq!(module_of("#[expect(x)] pub mod os;"), Some("os"));
        assert_eq!(module_of("mod tests {"), None);
    }
}
