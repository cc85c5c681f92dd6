//! What `wordcount run` does with every kind of input: exact counts, or exit 1 with the place of the fault.
//! Stands on the built binary; counts are compared with an independent count of the same text.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn wordcount(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wordcount")).arg("run").args(args).stdin(Stdio::null()).output().unwrap()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Total and counts of a run with `--json` that must succeed.
fn counted(args: &[&str]) -> (u64, BTreeMap<String, u64>) {
    let out = wordcount(&[args, &["--json"]].concat());
    assert!(out.status.success(), "{}", text_of(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let counts = json["counts"].as_object().unwrap().iter().map(|(word, n)| (word.clone(), n.as_u64().unwrap())).collect();
    (json["total"].as_u64().unwrap(), counts)
}

fn independent(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut f = tempfile::NamedTempFile::new().unwrap();
    f.write_all(bytes).unwrap();
    f
}

fn refused(path: &Path, want: &[&str]) {
    let out = wordcount(&[path.to_str().unwrap()]);
    let stderr = text_of(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    for part in want {
        assert!(stderr.contains(part), "{stderr:?} should name {part:?}");
    }
}

#[test]
fn the_licence_is_counted_exactly_on_any_number_of_tasks() {
    let licence = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE")).unwrap();
    let want = independent(&licence);
    for tasks in ["1", "3"] {
        let (total, counts) = counted(&["--counters", tasks, "--splitters", tasks]);
        assert_eq!(total, want.values().sum::<u64>());
        assert_eq!(counts, want);
    }
}

#[test]
fn two_readers_share_a_text_and_every_line_of_a_tracked_one_is_acked() {
    let licence = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE")).unwrap();
    let want = independent(&licence);
    for options in [&["--acked"][..], &["--keyed"], &["--keyed", "--acked"], &["--keyed", "--acked", "--counters", "3", "--splitters", "2"]]
    {
        let out = wordcount(&[options, &["--json"]].concat());
        assert!(out.status.success(), "{options:?}: {}", text_of(&out.stderr));
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let counts: BTreeMap<String, u64> = serde_json::from_value(json["counts"].clone()).unwrap();
        assert_eq!(counts, want, "{options:?}");
        let lines = options.contains(&"--acked").then_some(licence.lines().count() as u64);
        assert_eq!(json["lines_acked"].as_u64(), lines, "{options:?}");
        assert_eq!(json["components"].get("read-1").is_some(), options.contains(&"--keyed"), "{options:?}");
    }
}

#[test]
fn halves_meet_wherever_the_middle_falls() {
    // The middle before, on and behind a line end; a line longer than half; no line end at all; nothing.
    for text in ["aa\nbb\n", "aa\nbbb\n", "aaa\nbb\n", "a\nbbbb bbbb bbbb bbbb\n", "bbbb bbbb bbbb\nc", "only one line", "\n\n\n", ""] {
        let f = file(text.as_bytes());
        let (total, counts) = counted(&["--keyed", f.path().to_str().unwrap()]);
        assert_eq!((total, counts), (text.split_whitespace().count() as u64, independent(text)), "{text:?}");
    }
    let long = "word ".repeat(600_000) + "\nlast line\n";
    let f = file(long.as_bytes());
    assert_eq!(
        counted(&["--keyed", f.path().to_str().unwrap()]).1,
        independent(&long),
        "a line of three pieces, the middle in one of them"
    );
}

#[test]
fn two_readers_of_standard_input_are_refused() {
    let out = wordcount(&["--keyed", "-"]);
    assert!(!out.status.success() && text_of(&out.stderr).contains("--keyed needs a file"), "{}", text_of(&out.stderr));
}

#[test]
fn the_table_shows_ten_words_total_rate_and_percentiles() {
    let out = text_of(&wordcount(&[]).stdout);
    let first = out.lines().next().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(first[1], "the");
    assert_eq!(out.lines().take_while(|l| !l.contains("total")).count(), 10);
    for part in ["tuples/s", "p50", "p99 ", "p99.9"] {
        assert!(out.contains(part), "{out}");
    }
}

#[test]
fn a_missing_file_and_a_directory_are_named() {
    refused(Path::new("/nowhere/at/all.txt"), &["/nowhere/at/all.txt"]);
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &[dir.path().to_str().unwrap(), "directory"]);
}

#[test]
fn bytes_that_are_not_utf8_are_named_by_their_offset() {
    let mut bytes = b"good words first\nand then ".repeat(1000);
    let offset = bytes.len();
    bytes.extend_from_slice(b"\xff and more\n");
    refused(file(&bytes).path(), &[&format!("byte offset {offset}"), "UTF-8"]);
    // A character cut off by the end of the file.
    refused(file(b"ab \xc3").path(), &["byte offset 3"]);
}

#[test]
fn an_empty_file_counts_nothing() {
    assert_eq!(counted(&[file(b"").path().to_str().unwrap()]), (0, BTreeMap::new()));
    assert_eq!(counted(&[file(b" \n\t \n").path().to_str().unwrap()]), (0, BTreeMap::new()));
}

#[test]
fn one_line_of_fifty_megabytes_is_cut_at_white_space_and_counted_exactly() {
    let mut text = String::new();
    let mut n = 0u32;
    while text.len() < 50 << 20 {
        text.push_str(if n.is_multiple_of(7) { "fülle" } else { "word" });
        text.push_str(&(n % 1000).to_string());
        text.push(' ');
        n += 1;
    }
    let f = file(text.as_bytes());
    let (total, counts) = counted(&[f.path().to_str().unwrap()]);
    assert_eq!(total, u64::from(n));
    assert_eq!(counts, independent(&text));
}

#[test]
fn a_word_of_more_than_a_megabyte_is_named_by_its_offset() {
    let mut text = "short words ".repeat(100);
    let offset = text.len();
    text.push_str(&"x".repeat((1 << 20) + 2));
    refused(file(text.as_bytes()).path(), &[&format!("byte offset {offset}"), "1 MiB"]);
}

#[test]
fn a_word_of_just_a_megabyte_is_a_word() {
    let word = "x".repeat(1 << 20);
    for text in [format!("aa {word} bb"), format!("{word}\nbb"), word.clone()] {
        let (_, counts) = counted(&[file(text.as_bytes()).path().to_str().unwrap()]);
        assert_eq!(counts, independent(&text));
    }
}

#[test]
fn counts_that_miss_something_end_with_an_error() {
    let f = file(format!("{}\n", "x".repeat(600_000)).repeat(20).as_bytes());
    let out =
        wordcount(&[f.path().to_str().unwrap(), "--json", "--set", "executor.outbox.bytes=4096", "--set", "executor.inbox.bytes=4096"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(json["total"].as_u64().unwrap() < 20, "so small an outbox takes no second line of this length");
    assert_eq!(out.status.code(), Some(1));
    let stderr = text_of(&out.stderr);
    assert!(stderr.contains("executor.outbox.bytes") && stderr.contains("missing from these counts"), "{stderr}");
}

#[test]
fn standard_input_is_read_where_a_dash_stands() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wordcount"))
        .args(["run", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a b a\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["counts"], serde_json::json!({"a": 2, "b": 1}));
}

#[test]
fn out_holds_every_count_of_every_task() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("counts");
    let (total, want) = counted(&["--counters", "3", "--out", out.to_str().unwrap()]);
    let mut found = BTreeMap::new();
    let mut files = 0;
    for entry in std::fs::read_dir(&out).unwrap() {
        files += 1;
        for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            let (word, n) = line.split_once('\t').unwrap();
            assert!(found.insert(word.to_owned(), n.parse::<u64>().unwrap()).is_none(), "{word} counted by two tasks");
        }
    }
    assert_eq!(files, 3);
    assert_eq!(found, want);
    assert_eq!(total, found.values().sum::<u64>());
}

#[test]
fn describe_opens_nothing_and_prints_the_topology() {
    let out = Command::new(env!("CARGO_BIN_EXE_wordcount")).args(["describe", "/nowhere/at/all.txt"]).output().unwrap();
    assert!(out.status.success(), "{}", text_of(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["spec"]["components"].as_array().unwrap().len(), 3);
}

#[test]
fn a_closed_pipe_ends_quietly_and_unknown_keys_are_refused() {
    let out = wordcount(&["--set", "topology.worker=2"]);
    assert_eq!(out.status.code(), Some(8));
    assert!(text_of(&out.stderr).contains("did you mean `topology.workers`?"));
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_wordcount")).args(["describe"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.stderr.is_empty(), "{}", text_of(&out.stderr));
}
