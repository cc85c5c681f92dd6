//! Wrong wiring does not compile, and the message names the fix.

/// Each file holds one mistake; its `.stderr` holds the whole message, and the remedy line in it is asserted here by name, so that a new
/// compiler's wording cannot be blessed without it.
const CASES: &[(&str, &str)] = &[
    ("wrong_wiring", "fix: write `impl Handle<Halt> for Gate"),
    ("unknown_field", "help: a field with a similar name exists"),
    ("undeclared_stream", "fix: write `impl Emits<Halt> for Gate {}`"),
    ("wrong_type", "fix: name fields of the tuple that `Quote` carries"),
    ("wrong_custom_grouping", "fix: write `impl CustomGrouping<Quote> for ByReason"),
    ("not_dynamic", "fix: write `impl HandleDyn for Gate"),
];

#[test]
fn wrong_wiring_does_not_compile_and_names_the_fix() {
    let tests = trybuild::TestCases::new();
    for (case, remedy) in CASES {
        tests.compile_fail(format!("tests/ui/{case}.rs"));
        if std::env::var_os("TRYBUILD").is_some() {
            // The messages are being written anew; the remedies are asserted on the next run.
            continue;
        }
        let stderr = std::fs::read_to_string(format!("tests/ui/{case}.stderr")).unwrap_or_default();
        assert!(stderr.contains(remedy), "tests/ui/{case}.stderr does not name the fix {remedy:?}");
    }
}
