//! Every word arrives once with three and once with six exclamation marks.

#[test]
fn both_paths_arrive() {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_exclamation")).args(["run", "--words", "10", "--quiet"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    for word in ["nathan", "mike", "jackson", "golda", "bertels"] {
        for marks in ["!!!", "!!!!!!"] {
            assert_eq!(text.lines().filter(|l| *l == format!("{word}{marks}")).count(), 2, "{text}");
        }
    }
}
