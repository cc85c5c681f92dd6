//! Checks of the file, and of what loading it does to a process.
//!
//! Before: `helper::check` loaded it. After: a verdict. Rounds are run only where the check is about a whole life.

use super::clusters;
use super::{Fine, Verdict};
use crate::facts::Facts;
use crate::helper::check::{Bench, SIGNALS, ask, fine, locale, open_files, plain};
use saetta_sdk::abi::{self, Field};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

/// Loading and making an instance may take so long without a word.
const LOAD_TIME_MAX: Duration = Duration::from_millis(100);
/// Libraries a plugin may need: the C library and its parts, the compiler's own.
const LIBRARIES: &[&str] = &["libc.so.", "libm.so.", "libgcc_s.so.", "libpthread.so.", "libdl.so.", "librt.so.", "ld-linux"];

pub(super) fn manifest(facts: &Facts) -> Verdict {
    match &facts.manifest {
        Ok(_) => Ok(Fine::Success),
        Err(e) => Err(e.to_string()),
    }
}

pub(super) fn exports(facts: &Facts) -> Verdict {
    let others: Vec<&str> = facts.exports.iter().map(String::as_str).filter(|e| *e != abi::ENTRY_SYMBOL).collect();
    match others.split_first() {
        None => Ok(Fine::Success),
        Some((first, rest)) => {
            Err(format!("it exports {first} and {} more; link with a version script that leaves {} only", rest.len(), abi::ENTRY_SYMBOL))
        }
    }
}

pub(super) fn needed(facts: &Facts) -> Verdict {
    match facts.needed.iter().find(|n| !LIBRARIES.iter().any(|l| n.starts_with(l))) {
        None => Ok(Fine::Success),
        Some(other) => {
            Ok(Fine::Warning(format!("it needs {other}, which nimbus's machine may not have; link it in (C++: -static-libstdc++)")))
        }
    }
}

pub(super) fn glibc(facts: &Facts) -> Verdict {
    let have = own_glibc();
    match (facts.glibc, have) {
        (Some(wants), Some(have)) if wants > have => {
            Err(format!("it needs glibc {}.{}, this machine has {}.{}; build it on an older system", wants.0, wants.1, have.0, have.1))
        }
        _ => Ok(Fine::Success),
    }
}

/// The newest version that the C library of this process has; `None` = it is not loaded from a file that tells.
fn own_glibc() -> Option<(u32, u32)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|l| l.split_once('/'))
        .map(|(_, path)| format!("/{path}"))
        .find(|p| p.contains("/libc.so.6") || p.contains("/libc-2."))?;
    // A library names the versions it has where others name those they need.
    crate::facts::facts(std::path::Path::new(&path)).ok()?.glibc
}

pub(super) fn writable_code(facts: &Facts) -> Verdict {
    if facts.text_relocations {
        return Err("it has relocations in its code; build with -fPIC".to_owned());
    }
    if facts.executable_stack {
        return Err("it wants an executable stack; assembler files need a .note.GNU-stack section".to_owned());
    }
    Ok(Fine::Success)
}

pub(super) fn makes_an_instance(bench: &mut Bench) -> Verdict {
    let started = std::time::Instant::now();
    let instance = bench.start()?;
    let took = bench.load_time + started.elapsed();
    drop(instance);
    if took > LOAD_TIME_MAX {
        return Ok(Fine::Warning(format!("it took {} ms", took.as_millis())));
    }
    Ok(Fine::Success)
}

pub(super) fn old_host(bench: &mut Bench) -> Verdict {
    let whole = size_of::<abi::Plugin>();
    for room in [16, whole - 8, whole] {
        let (code, bytes, beyond) = bench.plugin.probe_entry(0, room);
        if beyond {
            return Err(format!("with room for {room} bytes it writes behind them; write at most the struct_size that it finds"));
        }
        if room == whole && code != abi::OK {
            return Err(format!("its entry refuses with {}", saetta_sdk::code_name(code)));
        }
        let wrote = u32::get(&bytes) as usize;
        if wrote > room {
            return Err(format!("with room for {room} bytes it says that it wrote {wrote}"));
        }
    }
    Ok(Fine::Success)
}

pub(super) fn new_host(bench: &mut Bench) -> Verdict {
    let room = size_of::<abi::Plugin>() + 64;
    let (code, bytes, beyond) = bench.plugin.probe_entry(64, room);
    if code != abi::OK {
        return Err(format!("it refuses a host whose table is 64 bytes longer: {}", saetta_sdk::code_name(code)));
    }
    if beyond || bytes[size_of::<abi::Plugin>()..].iter().any(|b| *b != 0) {
        return Err("it writes behind its table".to_owned());
    }
    Ok(Fine::Success)
}

pub(super) fn unknown_extensions(bench: &mut Bench) -> Verdict {
    let instance = bench.start()?;
    let known = [abi::EXT_CONFIG, abi::EXT_STATE, abi::EXT_NODE_HEALTH];
    let odd = (0..10)
        .map(|i| format!("saetta.nobody-{i}/1"))
        .chain(known.iter().flat_map(|id| [format!("{id}0"), format!("{id} "), id[..id.len() - 1].to_owned()]));
    for id in odd.chain([String::new()]) {
        if instance.has_extension(&id) {
            return Err(format!("it answers for the extension {id:?}, which nobody has; compare the whole id"));
        }
    }
    Ok(Fine::Success)
}

pub(super) fn fpu_mode(bench: &mut Bench) -> Verdict {
    let exact = |when: &str| {
        let tiny = black_box(f64::MIN_POSITIVE) / black_box(2.0);
        if tiny == 0.0 || black_box(tiny) * black_box(4.0) == 0.0 {
            return Err(format!("{when}, small numbers become zero in the whole process; build without -ffast-math and -Ofast"));
        }
        if (black_box(1.0_f64) / black_box(3.0)).to_bits() != 0x3FD5_5555_5555_5555
            || (black_box(2.0_f64) / black_box(3.0)).to_bits() != 0x3FE5_5555_5555_5555
        {
            return Err(format!("{when}, division rounds in another direction in the whole process; restore the mode"));
        }
        Ok(())
    };
    fine(|| {
        exact("once it is loaded")?;
        let mut instance = bench.start()?;
        exact("once it has an instance")?;
        let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
        exact("after a round")
    })
}

/// The settings that differ from those before it was loaded, after a round; `None` = the system does not tell.
fn changed(bench: &mut Bench) -> Result<Option<Vec<String>>, String> {
    let mut instance = bench.instance()?;
    let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
    drop(instance);
    let now = bench.look();
    Ok(bench
        .before
        .as_ref()
        .zip(now)
        .map(|(before, now)| before.settings.iter().filter(|(k, v)| now.settings.get(*k) != Some(v)).map(|(k, _)| k.clone()).collect()))
}

pub(super) fn signals(bench: &mut Bench) -> Verdict {
    let Some(changed) = changed(bench)? else { return Ok(Fine::Skipped("this system does not tell".to_owned())) };
    match changed.iter().find(|key| SIGNALS.contains(&key.as_str())) {
        Some(key) => Err(format!("it changes which signals are ignored, caught or blocked ({key})")),
        None => Ok(Fine::Success),
    }
}

pub(super) fn surroundings(bench: &mut Bench) -> Verdict {
    let changed = changed(bench)?;
    if std::env::current_dir().ok() != bench.cwd_before {
        return Err("it changes the working directory".to_owned());
    }
    if let Some((key, _)) = std::env::vars_os().next() {
        return Err(format!("it sets {} in the environment", key.to_string_lossy()));
    }
    if locale() != bench.locale_before {
        return Err("it changes the locale of the process".to_owned());
    }
    match changed {
        Some(changed) if changed.iter().any(|key| key == "Umask") => Err("it changes the umask of the process".to_owned()),
        _ => Ok(Fine::Success),
    }
}

pub(super) fn no_threads(bench: &mut Bench) -> Verdict {
    if bench.manifest.flags.iter().any(|f| f == "threads") {
        return Ok(Fine::Skipped("its manifest has the flag threads".to_owned()));
    }
    let mut instance = bench.instance()?;
    let made = bench.look();
    let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
    drop(instance);
    let after = bench.look();
    let (Some(before), Some(made), Some(after)) = (&bench.before, made, after) else {
        return Ok(Fine::Skipped("this system does not tell".to_owned()));
    };
    let most = made.threads.max(after.threads);
    if most > before.threads {
        return Err(format!(
            "it has started {} threads; a scheduler has none (or the flag threads in its manifest)",
            most - before.threads
        ));
    }
    Ok(Fine::Success)
}

pub(super) fn no_open_files(bench: &mut Bench) -> Verdict {
    let mut instance = bench.instance()?;
    let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
    let before: BTreeSet<&String> = bench.files_before.iter().collect();
    let open = open_files();
    drop(instance);
    match open.iter().find(|f| !before.contains(f)) {
        Some(file) => Err(format!("it holds {file} open")),
        None if open.len() > bench.files_before.len() => Err("it holds a file open".to_owned()),
        None => Ok(Fine::Success),
    }
}

/// The parent looks at the output of the process.
pub(super) fn no_output(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
    drop(instance);
    Ok(Fine::Success)
}
