//! The C header: its middle is written from the Rust declarations, and C and C++ compilers agree with Rust about every field.

use saetta_abi as abi;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "/* Generated from scheduler-api/abi: begin.";
const END: &str = "/* Generated: end. */";

/// Functions of the tables: type in Rust, its C declaration, what it does.
const FUNCTIONS: &[(&str, &str, &str)] = &[
    (
        "LogFn",
        "void (*saetta_log_fn)(void *ctx, int32_t level, const char *target, uint64_t target_len, const char *msg, uint64_t msg_len)",
        "Writes one log line; text is UTF-8, not NUL-terminated. Thread-safe.",
    ),
    (
        "HostExtensionFn",
        "const void *(*saetta_host_extension_fn)(void *ctx, const char *id, uint64_t id_len)",
        "Looks up an extension of the host by its id; NULL = not there. Only inside entry and create.",
    ),
    ("NowFn", "uint64_t (*saetta_now_fn)(void *ctx)", "Monotonic nanoseconds; virtual during replay. Thread-safe."),
    (
        "CreateFn",
        "int32_t (*saetta_create_fn)(const saetta_create *args, void **instance, saetta_err *err)",
        "Makes an instance. 0 = done.",
    ),
    ("DestroyFn", "void (*saetta_destroy_fn)(void *instance)", "Ends an instance."),
    (
        "ScheduleFn",
        "int32_t (*saetta_schedule_fn)(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)",
        "One round. 0 = done, 1 = done and nothing changed, negative = error and the plan is discarded.",
    ),
    (
        "PluginExtensionFn",
        "const void *(*saetta_plugin_extension_fn)(const char *id, uint64_t id_len)",
        "Looks up an extension of the plugin by its id; NULL = not there.",
    ),
    (
        "ShouldStopFn",
        "int32_t (*saetta_should_stop_fn)(void *ctx)",
        "Non-zero when the plugin should return its best plan so far. Cheap. Thread-safe.",
    ),
    (
        "ExplainFn",
        "void (*saetta_explain_fn)(void *ctx, const saetta_explanation *explanation)",
        "Hands one reason to the host; ctx is the host's. Only inside a round; everything is copied.",
    ),
    (
        "SchemaFn",
        "int32_t (*saetta_schema_fn)(saetta_out *out)",
        "Writes the JSON schema of the configuration. 0 = done, E_NO_MEMORY = the room is too small, len says what it takes.",
    ),
    (
        "EffectiveFn",
        "int32_t (*saetta_effective_fn)(void *instance, saetta_out *out)",
        "Writes the configuration in force, defaults filled in, as JSON. Returns as saetta_schema_fn.",
    ),
    (
        "SaveFn",
        "int32_t (*saetta_save_fn)(void *instance, saetta_out *out)",
        "Writes what the instance wants to find again. Called after a round. Returns as saetta_schema_fn.",
    ),
    (
        "RestoreFn",
        "int32_t (*saetta_restore_fn)(void *instance, const uint8_t *bytes, uint64_t len, saetta_err *err)",
        "Gives it back, right after create; also what an older version of the plugin wrote.",
    ),
    (
        "HealthFn",
        "int32_t (*saetta_health_fn)(void *instance, const saetta_round *round, saetta_health *health, saetta_err *err)",
        "Judges the nodes before the round's scheduler sees them. Returns as saetta_schedule_fn.",
    ),
];

/// A field's type in C, up to its name.
fn c_type(ty: &str) -> String {
    let ty = ty.trim();
    if let Some(function) = ty.strip_prefix("Option<").and_then(|t| t.strip_suffix('>')) {
        let (_, declaration, _) = FUNCTIONS.iter().find(|f| f.0 == function).unwrap_or_else(|| panic!("{function} has no line above"));
        let (_, name) = declaration.split_once("(*").unwrap();
        return format!("{} ", name.split_once(')').unwrap().0);
    }
    for (pointer, c) in [("*const ", "const "), ("*mut ", "")] {
        if let Some(to) = ty.strip_prefix(pointer) {
            return format!("{c}{}*", c_type(to));
        }
    }
    let name = match ty {
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "i32" => "int32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "c_void" => "void",
        "c_char" => "char",
        "Str" => "saetta_str",
        other => c_name(other).unwrap_or_else(|| panic!("{other} has no C type")),
    };
    format!("{name} ")
}

fn c_name(rust: &str) -> Option<&'static str> {
    abi::STRUCTS.iter().find(|s| s.name == rust).map(|s| s.c_name)
}

/// A Rust doc text as a C comment: links become the names they have in C.
fn c_doc(doc: &str) -> String {
    let mut out = String::new();
    let mut rest = doc.trim();
    while let Some((before, after)) = rest.split_once("[`") {
        out.push_str(before);
        let (name, after) = after.split_once("`]").unwrap();
        rest = if after.starts_with('(') { after.split_once(')').unwrap().1 } else { after };
        match name.split_once("::") {
            Some((of, member)) => write!(out, "{}.{member}", c_name(of).unwrap()).unwrap(),
            None => match (c_name(name), FUNCTIONS.iter().find(|f| f.0 == name)) {
                (Some(c), _) => out.push_str(c),
                (None, Some((_, declaration, _))) => out.push_str(declaration.split_once("(*").unwrap().1.split_once(')').unwrap().0),
                (None, None) => write!(out, "SAETTA_{name}").unwrap(),
            },
        }
    }
    out.push_str(rest);
    out.replace('`', "")
}

fn number(value: i64, ty: &str) -> String {
    match ty {
        "u32" => format!("{value}u"),
        "i64" => format!("INT64_C({value})"),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    }
}

/// The generated middle of the header.
fn middle() -> String {
    let mut h = String::new();
    let define =
        |h: &mut String, name: &str, value: &str, doc: &str| writeln!(h, "#define SAETTA_{name} {value} /* {} */", c_doc(doc)).unwrap();
    define(&mut h, "ABI_MAJOR", &abi::ABI_MAJOR.to_string(), "Part of the exported symbol's name.");
    define(&mut h, "ABI_MINOR", &abi::ABI_MINOR.to_string(), "Which struct sizes and ids are known. Informative.");
    define(&mut h, "SNAPSHOT_MAGIC", &format!("{:#x}u", abi::SNAPSHOT_MAGIC), "First word of a snapshot.");
    define(&mut h, "NONE", &format!("{:#x}u", abi::NONE), "No row, no limit.");
    define(&mut h, "STATE_BYTES_MAX", &format!("UINT64_C({})", abi::STATE_BYTES_MAX), "Most bytes of a saved state.");
    define(&mut h, "EXPLAIN_TEXT_BYTES_MAX", &format!("UINT64_C({})", abi::EXPLAIN_TEXT_BYTES_MAX), "Most bytes of an explanation's text.");
    define(&mut h, "SCORE_PARTS_MAX", &format!("{}u", abi::SCORE_PARTS_MAX), "Most parts of a score.");
    let mut group = "";
    for c in abi::CONSTANTS.iter().filter(|c| c.name != "TABLE_NONE") {
        let prefix = c.name.split('_').next().unwrap();
        if prefix != group && !(group == "OK" && prefix == "E") {
            h.push('\n');
        }
        group = prefix;
        define(&mut h, c.name, &number(c.value, c.ty), c.doc);
    }
    h.push_str("\n/* Ids of extensions, for get_extension. */\n");
    for id in abi::EXTENSIONS {
        let name = id.trim_start_matches("saetta.").split('/').next().unwrap().to_uppercase();
        writeln!(h, "#define SAETTA_EXT_{name} \"{id}\"").unwrap();
    }
    h.push_str(
        "\n/* Reference into the string table: UTF-8, also NUL-terminated there. */\ntypedef struct saetta_str {\n    uint32_t off; /* from the start of the string table */\n    uint32_t len; /* without the NUL */\n} saetta_str;\n\n",
    );
    for s in abi::STRUCTS {
        writeln!(h, "typedef struct {} {0};", s.c_name).unwrap();
    }
    h.push('\n');
    for (_, declaration, doc) in FUNCTIONS {
        writeln!(h, "/* {doc} */\ntypedef {declaration};").unwrap();
    }
    for s in abi::STRUCTS {
        writeln!(h, "\n/* {} */\nstruct {} {{", c_doc(s.doc), s.c_name).unwrap();
        for f in s.fields {
            writeln!(h, "    {}{}; /* {} */", c_type(f.ty), f.name, c_doc(f.doc)).unwrap();
        }
        h.push_str("};\n");
    }
    h
}

fn header_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/saetta_sched.h")
}

#[test]
fn the_header_is_what_the_declarations_say() {
    let text = std::fs::read_to_string(header_file()).unwrap();
    let (start, rest) = text.split_at(text.find(BEGIN).unwrap());
    let (begin, rest) = rest.split_at(rest.find('\n').unwrap() + 1);
    let (on_file, end) = rest.split_at(rest.find(END).unwrap());
    let now = middle();
    if std::env::var_os("SAETTA_BLESS").is_some() {
        std::fs::write(header_file(), format!("{start}{begin}{now}{end}")).unwrap();
        return;
    }
    assert!(on_file == now, "include/saetta_sched.h differs from scheduler-api/abi; run with SAETTA_BLESS=1 and review the difference");
}

/// One assertion for each size, offset and number.
fn assertions() -> String {
    let mut c = String::from("#include <stddef.h>\n#include \"saetta_sched.h\"\n");
    c.push_str("#ifdef __cplusplus\n#define CHECK static_assert\n#else\n#define CHECK _Static_assert\n#endif\n");
    c.push_str("CHECK(sizeof(void *) == 8, \"64-bit only\");\n");
    for s in abi::STRUCTS {
        writeln!(c, "CHECK(sizeof({}) == {}, \"size of {0}\");", s.c_name, s.size).unwrap();
        for f in s.fields {
            writeln!(c, "CHECK(offsetof({}, {}) == {}, \"offset of {0}.{1}\");", s.c_name, f.name, f.offset).unwrap();
            writeln!(c, "CHECK(sizeof((({} *)0)->{}) == {}, \"size of {0}.{1}\");", s.c_name, f.name, f.size).unwrap();
        }
    }
    let own =
        [("NONE", i64::from(abi::NONE)), ("SNAPSHOT_MAGIC", i64::from(abi::SNAPSHOT_MAGIC)), ("ABI_MAJOR", i64::from(abi::ABI_MAJOR))];
    let listed = abi::CONSTANTS.iter().filter(|c| c.name != "TABLE_NONE").map(|c| (c.name, c.value));
    for (name, value) in own.into_iter().chain(listed) {
        writeln!(c, "CHECK(SAETTA_{name} == {value}, \"constant {name}\");").unwrap();
    }
    c
}

#[test]
fn c_and_cpp_compilers_agree_about_every_field_and_number() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, file, standard) in [("gcc", "layout.c", "-std=c11"), ("g++", "layout.cpp", "-std=c++17")] {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("no {compiler} here: the header is not compared with it");
            continue;
        }
        let file = dir.path().join(file);
        std::fs::write(&file, assertions()).unwrap();
        let out = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
            .arg(header_file().parent().unwrap())
            .arg(&file)
            .output()
            .unwrap();
        assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
