//! `saetta scheduler new`: a project from the templates, complete and ready to be built.
//!
//! Before: a name. After: a folder of that name with scheduler, test, build file and, for C and C++, the headers it was made with.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::Output;
use clap::ValueEnum;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the scheduler: its file becomes libsaetta_NAME.so
    name: String,
    /// Language
    #[arg(long, value_enum)]
    lang: Lang,
    /// Where to make the folder NAME
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Rust only: the folder of the crate saetta-sdk; default: where this command was built
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lang {
    Rust,
    C,
    Cpp,
}

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

macro_rules! file {
    ($path:literal) => {
        include_str!(concat!("../../../../scheduler-api/", $path))
    };
}

/// Of C and C++ projects.
const SHARED: &[(&str, &str)] = &[
    ("exports.map", file!("templates/exports.map")),
    ("test.c", file!("templates/test.c")),
    ("include/saetta_sched.h", file!("include/saetta_sched.h")),
];
const C: &[(&str, &str)] = &[("scheduler.c", file!("templates/c/scheduler.c")), ("Makefile", file!("templates/c/Makefile"))];
const CPP: &[(&str, &str)] = &[
    ("scheduler.cpp", file!("templates/cpp/scheduler.cpp")),
    ("Makefile", file!("templates/cpp/Makefile")),
    ("include/saetta_sched.hpp", file!("include/saetta_sched.hpp")),
];
const RUST: &[(&str, &str)] = &[("Cargo.toml", file!("templates/rust/Cargo.toml.in")), ("src/lib.rs", file!("templates/rust/lib.rs"))];
const README: &str = file!("templates/README.md.in");

pub(super) fn run(args: &Args, out: Output) -> Outcome {
    let name = &args.name;
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !plain || !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.len() > NAME_BYTES_MAX {
        return Err(Failure::new(Exit::Usage, format!("{name:?} is no name for a scheduler"))
            .why("it becomes part of a file's and a crate's name")
            .hint("small letters, digits and _, a letter first"));
    }
    let dir = args.dir.join(name);
    if dir.exists() {
        return Err(Failure::new(Exit::Conflict, format!("{} is there already", dir.display())).hint("another name, or --dir"));
    }
    let sdk = if args.lang == Lang::Rust { sdk(args)? } else { String::new() };
    let file = if args.lang == Lang::Rust { format!("target/release/libsaetta_{name}.so") } else { format!("./libsaetta_{name}.so") };
    let (build, test) = if args.lang == Lang::Rust { ("cargo build --release", "cargo test") } else { ("make", "make test") };
    let fill = |text: &str| {
        text.replace("@NAME@", name).replace("@SDK@", &sdk).replace("@FILE@", &file).replace("@BUILD@", build).replace("@TEST@", test)
    };
    let files: Vec<&(&str, &str)> = match args.lang {
        Lang::Rust => RUST.iter().collect(),
        Lang::C => SHARED.iter().chain(C).collect(),
        Lang::Cpp => SHARED.iter().chain(CPP).collect(),
    };
    for (path, text) in files {
        write(&dir.join(path), &fill(text))?;
    }
    write(&dir.join("README.md"), &fill(README))?;
    let ignored = if args.lang == Lang::Rust { "/target\n" } else { "*.so\n*.o\n/unit_test\n" };
    write(&dir.join(".gitignore"), ignored)?;
    out.note(&format!("{} is made; next: cd {0} && {build} && saetta scheduler validate {file}", dir.display()));
    Ok(())
}

fn write(path: &Path, text: &str) -> Outcome {
    let parent = path.parent().unwrap_or(Path::new("."));
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, format!("writing {}", path.display())).why(e);
    std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, text)).map_err(failed)
}

/// The SDK's folder, absolute, as text of a TOML string.
fn sdk(args: &Args) -> Outcome<String> {
    let dir = args.sdk.clone().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scheduler-api/sdk"));
    if !dir.join("Cargo.toml").is_file() {
        return Err(Failure::new(Exit::NotFound, format!("{} is not the crate saetta-sdk", dir.display()))
            .hint("--sdk DIR with the folder scheduler-api/sdk of Saetta's sources"));
    }
    let dir = std::fs::canonicalize(&dir).map_err(|e| Failure::new(Exit::Failed, format!("looking for {}", dir.display())).why(e))?;
    Ok(dir.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}
