//! What a machine with nothing but Rust lacks, and installing it: asked for first, unless nobody is there to ask.
//!
//! Before: `ci`, `zookeeper` and `bench rivals`. After: rustup for components, apt for packages.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::must;

/// ZooKeeper's classes, as the Debian package lays them; the jar names the jars it needs.
pub(crate) const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";

/// Something missing, and the command that brings it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    what: &'static str,
    how: Vec<&'static str>,
}

fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn missing() -> Vec<Need> {
    let mut needs = Vec::new();
    if !runs("cargo", &["fmt", "--version"]) {
        needs.push(Need { what: "rustfmt", how: vec!["rustup", "component", "add", "rustfmt"] });
    }
    if !runs("cargo", &["clippy", "--version"]) {
        needs.push(Need { what: "clippy", how: vec!["rustup", "component", "add", "clippy"] });
    }
    needs.extend(missing_for_zookeeper());
    // A test has HdrHistogram's own code for Python read our logs, in an environment of its own.
    if !runs("python3", &["-c", "import venv, ensurepip"]) {
        needs.push(Need { what: "Python", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "python3-venv"] });
    }
    // A suite counts the system calls of each loop.
    if !runs("strace", &["-V"]) {
        needs.push(Need { what: "strace", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "strace"] });
    }
    // Tests of failing networks make hosts of network namespaces, and lose packets between them.
    if !runs("ip", &["-V"]) {
        needs.push(Need { what: "iproute2", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "iproute2"] });
    }
    if !runs("nft", &["--version"]) {
        needs.push(Need { what: "nftables", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "nftables"] });
    }
    needs
}

fn missing_for_zookeeper() -> Vec<Need> {
    if !Path::new(ZOOKEEPER_JAR).exists() {
        // Brings a Java runtime too.
        vec![Need { what: "ZooKeeper", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "zookeeper"] }]
    } else if !runs("java", &["-version"]) {
        vec![Need { what: "Java", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "default-jre-headless"] }]
    } else {
        Vec::new()
    }
}

/// Installs what the whole of `ci` needs.
pub(crate) fn install_for_ci(yes: bool) -> Result<()> {
    install(&missing(), yes)
}

/// Installs what a ZooKeeper on this machine needs.
pub(crate) fn install_for_zookeeper() -> Result<()> {
    install(&missing_for_zookeeper(), false)
}

/// Installs what adapters of rivals on the JVM are built and run by.
pub(crate) fn install_for_rivals() -> Result<()> {
    let mut needs = missing_for_zookeeper();
    if !runs("javac", &["-version"]) {
        needs.push(Need {
            what: "Java's compiler",
            how: vec!["apt-get", "install", "-y", "--no-install-recommends", "default-jdk-headless"],
        });
    }
    if !runs("mvn", &["-version"]) {
        needs.push(Need { what: "Maven", how: vec!["apt-get", "install", "-y", "--no-install-recommends", "maven"] });
    }
    install(&needs, false)
}

fn install(needs: &[Need], yes: bool) -> Result<()> {
    if needs.is_empty() {
        return Ok(());
    }
    let root = runs("sh", &["-c", "test \"$(id -u)\" = 0"]);
    let commands: Vec<Vec<&str>> = needs.iter().map(|need| as_typed(&need.how, root)).collect();
    eprintln!("this machine lacks:");
    for (need, command) in needs.iter().zip(&commands) {
        eprintln!("  {:<10} {}", need.what, command.join(" "));
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    if !may_install(yes || ci, io::stdin().is_terminal(), &mut io::stdin().lock())? {
        bail!("not installed; run the commands above by hand, or repeat with --yes");
    }
    if needs.iter().any(|need| need.how[0] == "apt-get") {
        if !runs("apt-get", &["--version"]) {
            bail!(
                "installing: there is no apt-get here; install the above by other means, ZooKeeper and Java so that {ZOOKEEPER_JAR} and `java` exist"
            );
        }
        must(&mut command_of(&as_typed(&["apt-get", "update", "-q"], root)))?;
    }
    commands.iter().try_for_each(|command| must(&mut command_of(command)))
}

fn as_typed<'a>(how: &[&'a str], root: bool) -> Vec<&'a str> {
    let sudo = (how[0] == "apt-get" && !root).then_some("sudo");
    sudo.into_iter().chain(how.iter().copied()).collect()
}

fn command_of(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Asked for in advance, or nobody there to ask (no terminal): yes. Else the person decides, and no is the default.
fn may_install(agreed: bool, terminal: bool, answer: &mut impl BufRead) -> Result<bool> {
    if agreed {
        return Ok(true);
    }
    if !terminal {
        eprintln!("no terminal to ask on: installing");
        return Ok(true);
    }
    eprint!("install it now? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    answer.read_line(&mut line).context("reading the answer")?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_asked_and_silence_is_no() {
        let ask = |agreed, terminal, typed: &str| may_install(agreed, terminal, &mut typed.as_bytes()).expect("answer");
        assert!(ask(true, true, ""), "--yes or CI=true");
        assert!(ask(false, false, ""), "nobody there");
        assert!(ask(false, true, "y\n") && ask(false, true, "YES\n"));
        assert!(!ask(false, true, "\n") && !ask(false, true, "no\n") && !ask(false, true, ""));
    }

    #[test]
    fn only_packages_need_another_user() {
        assert_eq!(as_typed(&["apt-get", "update"], false), ["sudo", "apt-get", "update"]);
        assert_eq!(as_typed(&["apt-get", "update"], true), ["apt-get", "update"]);
        assert_eq!(as_typed(&["rustup", "component", "add", "clippy"], false)[0], "rustup");
    }
}
