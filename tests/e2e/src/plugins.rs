//! Scheduler plugins under test, built as their authors would build them: from the files of the host's tests, and from a template.

use crate::binaries::workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a file of `scheduler-api/host/tests/plugins` into `dir`, and returns the plugin's name.
pub fn broken_plugin(file: &str, dir: &Path) -> String {
    let source = workspace().join("scheduler-api/host/tests/plugins").join(file);
    let name = source.file_stem().and_then(|s| s.to_str()).expect("a file's name").to_owned();
    let out = dir.join(format!("libsaetta_{name}.so"));
    let mut command = match source.extension().and_then(|e| e.to_str()) {
        Some("rs") => rust(),
        Some("cpp") => c("g++", &["-std=c++17", "-static-libstdc++", "-static-libgcc"]),
        _ if name == "fast_math" => {
            // Newer compilers link this start code into programs only; a library that has it is as bad.
            let found = done(Command::new("gcc").arg("-print-file-name=crtfastmath.o"));
            c("gcc", &["-std=gnu11", "-ffast-math", found.trim()])
        }
        _ => c("gcc", &["-std=gnu11", "-pthread"]),
    };
    done(command.arg(source).arg("-o").arg(out));
    name
}

/// Builds the scheduler of the C template into `dir` under this name.
pub fn plugin_of_the_template(name: &str, dir: &Path) {
    let source = workspace().join("scheduler-api/templates/c/scheduler.c");
    done(c("gcc", &["-std=gnu11"]).arg(source).arg("-o").arg(dir.join(format!("libsaetta_{name}.so"))));
}

fn c(compiler: &str, more: &[&str]) -> Command {
    let mut command = Command::new(compiler);
    command.args(["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-I"]).arg(workspace().join("scheduler-api/include")).args(more);
    command.arg(format!("-Wl,--version-script={}", workspace().join("scheduler-api/templates/exports.map").display()));
    command
}

fn rust() -> Command {
    let mut command = Command::new(std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from));
    command.args(["--edition", "2024", "--crate-type", "cdylib"]);
    command
}

/// Runs it to its good end; what it printed.
fn done(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
