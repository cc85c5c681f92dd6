//! The adapters as programs: fetched and built by each rival's ordinary client, Cargo or Maven, into the target folder.
//!
//! Before: the sources and pinned versions below `benches/rivals`. After: a command to start, or what was asked for and what answered.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use saetta_harness::Result;

use super::definition::Program;

/// Relative to the workspace root, where the suites are started.
const SOURCES: &str = "benches/rivals";
/// What a JVM must let libraries look into that still reach for its inside.
const OPENS: [&str; 2] = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED"];
/// Lines of a client's answer that are kept.
const ANSWER_LINES: usize = 3;

/// An adapter that can be started.
#[derive(Debug, Clone)]
pub(super) enum Built {
    Native(PathBuf),
    Jvm { class_path: String, class: String },
}

impl Built {
    /// Whether it warms up for long.
    pub(super) fn is_jvm(&self) -> bool {
        matches!(self, Built::Jvm { .. })
    }

    /// Another main class of the same.
    pub(super) fn with_class(&self, class: &str) -> Self {
        match self {
            Built::Native(path) => Built::Native(path.clone()),
            Built::Jvm { class_path, .. } => Built::Jvm { class_path: class_path.clone(), class: class.to_owned() },
        }
    }

    /// The command, without the workload. It keeps its files in `dir`.
    pub(super) fn command(&self, heap: &str, dir: &Path) -> Command {
        let mut command = match self {
            Built::Native(path) => Command::new(path),
            Built::Jvm { class_path, class } => {
                let mut java = Command::new("java");
                java.args([&format!("-Xms{heap}"), &format!("-Xmx{heap}"), &format!("-Djava.io.tmpdir={}", dir.display())]);
                // For JVMs that this one starts.
                java.arg(format!("-Dsaetta.heap={heap}"));
                java.args(OPENS).args(["-cp", class_path, class]);
                java
            }
        };
        command.current_dir(dir);
        command
    }
}

/// Where everything of the rivals is built.
fn target() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    Ok(exe.parent().and_then(Path::parent).ok_or("this program lies in no target folder")?.join("rivals"))
}

/// Fetches and builds an adapter; in a smoke run without optimisation.
///
/// # Errors
/// What was asked for, and what answered.
pub(super) fn build(program: &Program, smoke: bool) -> Result<Built> {
    let target = target()?;
    match program {
        Program::Cargo { package, bin } => {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(Path::new(SOURCES).join("Cargo.toml"));
            cargo.args(["--package", package, "--bin", bin]).env("CARGO_TARGET_DIR", &target);
            if !smoke {
                cargo.arg("--release");
            }
            asked(&mut cargo)?;
            Ok(Built::Native(target.join(if smoke { "debug" } else { "release" }).join(bin)))
        }
        Program::Maven { module, class } => {
            let out = target.join("jvm");
            let lib = out.join(format!("{module}-lib"));
            let mvn = |offline: bool| {
                let mut mvn = Command::new("mvn");
                mvn.args(["-B", "-q", "-f"]).arg(Path::new(SOURCES).join("pom.xml")).args(["-pl", module, "-am"]);
                mvn.args(["package", "dependency:copy-dependencies"]);
                mvn.args([format!("-Dout={}", out.display()), format!("-DoutputDirectory={}", lib.display())]);
                if offline {
                    mvn.arg("-o");
                }
                asked(&mut mvn)
            };
            // What was fetched before is not asked for again.
            mvn(true).or_else(|_| mvn(false))?;
            let jar = out.join(format!("rivals-{module}/rivals-{module}.jar"));
            Ok(Built::Jvm { class_path: format!("{}:{}/*", jar.display(), lib.display()), class: class.clone() })
        }
    }
}

/// Runs a client to its end.
fn asked(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("asked `{line}`: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().filter(|line| line.to_lowercase().contains("error")).take(ANSWER_LINES).collect();
    Err(format!("asked `{line}`; the answer was {}: {}", output.status, lines.join(" / ")).into())
}
