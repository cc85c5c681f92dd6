//! The conformance suite: what `saetta scheduler validate` asks of a plugin.
//!
//! Before: an author has built a `.so`. After: one [`Report`] per check, with the reason in one line. Each check that runs code of the
//! plugin does so in a helper process of its own ([`run`]), the same executable with the same limits as nimbus's; inside of it the
//! checks are [`library`], [`host_calls`], [`instance`], [`snapshots`], [`plans`] and [`deadline`], on clusters of [`clusters`], by the rules of [`rules`].
//! Some checks are gates: when the process dies in the first round, the checks behind would all say the same and are skipped.

mod clusters;
mod deadline;
mod host_calls;
mod instance;
mod library;
mod plans;
mod rules;
mod run;
mod snapshots;

pub use run::{Options, Report, Status, selected, validate};

use crate::facts::Facts;
use crate::helper::check::Bench;

/// One check.
#[derive(Debug)]
pub struct Check {
    /// Its name, for `--only` and reports.
    pub id: &'static str,
    /// Library, instance, snapshot, plan or deadline.
    pub group: &'static str,
    /// What it asks, one line.
    pub about: &'static str,
    /// When it does not succeed, those of `needs` this or more are skipped.
    gate: Option<Needs>,
    needs: Needs,
    pub(crate) body: Body,
}

/// What must work for a check to say something of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    /// A file that may be loaded.
    File,
    /// An instance.
    Instance,
    /// Rounds that come back.
    Rounds,
}

/// How a check is run.
#[derive(Debug)]
pub(crate) enum Body {
    /// On the file; no code of it runs.
    File(fn(&Facts) -> Verdict),
    /// In a process of its own.
    Process(fn(&mut Bench) -> Verdict),
}

/// What a check found. `Err` = failed, with the reason.
pub(crate) type Verdict = Result<Fine, String>;

/// A check that did not fail.
#[derive(Debug)]
pub(crate) enum Fine {
    /// As it should be.
    Success,
    /// Works, and the author should know.
    Warning(String),
    /// Does not apply.
    Skipped(String),
}

/// The check whose process may die or run out of time without failing here: another check is about that.
pub(crate) const ENDS: &str = "ends-before-deadline";
/// The check about output.
pub(crate) const NO_OUTPUT: &str = "no-output";

const fn file(id: &'static str, about: &'static str, body: fn(&Facts) -> Verdict) -> Check {
    Check { id, group: "library", about, gate: None, needs: Needs::File, body: Body::File(body) }
}

const fn process(group: &'static str, id: &'static str, about: &'static str, needs: Needs, body: fn(&mut Bench) -> Verdict) -> Check {
    Check { id, group, about, gate: None, needs, body: Body::Process(body) }
}

const fn gate(check: Check, gate: Needs) -> Check {
    Check { gate: Some(gate), ..check }
}

use Needs::{File, Instance, Rounds};

/// All checks in the order they run.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    gate(Check { needs: Needs::Nothing, ..file("manifest", "the file may be loaded: ELF, entry, a manifest this host understands", library::manifest) }, File),
    file("exports-only-entry", "nothing but saetta_scheduler_v1 is exported, so that it binds to nobody else's symbols", library::exports),
    file("needed-libraries", "it needs libc and its relatives only", library::needed),
    file("glibc-floor", "the C library of this machine is new enough", library::glibc),
    file("no-writable-code", "no relocations in its code, no executable stack", library::writable_code),
    gate(process("library", "makes-an-instance", "it loads and makes an instance under the limits, in 100 ms", File, library::makes_an_instance), Instance),
    process("library", "entry-old-host", "with less room for its table it writes no more than that", Instance, library::old_host),
    process("library", "entry-new-host", "a host with a longer table is no reason to refuse", Instance, library::new_host),
    process("library", "unknown-extensions", "asked for extensions nobody has, it answers NULL", Instance, library::unknown_extensions),
    process("library", "fpu-mode-unchanged", "small numbers stay and rounding is to nearest after it was loaded (no -ffast-math)", Instance, library::fpu_mode),
    process("library", "no-threads", "it starts no thread, unless its manifest has the flag threads", Instance, library::no_threads),
    process("library", "no-open-files", "it leaves no file open", Instance, library::no_open_files),
    process("library", NO_OUTPUT, "it writes nothing to stdout and stderr", Instance, library::no_output),
    process("instance", "create-destroy", "100 instances made and destroyed leave nothing behind", Instance, instance::create_destroy),
    process("instance", "odd-config", "a configuration it does not understand is refused with a reason, or taken; never a crash", Instance, instance::odd_config),
    gate(process("deadline", ENDS, "a round ends before scheduler.deadline.secs", Instance, deadline::ends), Rounds),
    gate(process("snapshot", "snapshot-not-written", "it does not write into the snapshot", Instance, snapshots::not_written), Rounds),
    gate(process("plan", "survives-a-round", "its process lives on after a round: no crash, no exit, nothing thrown or panicked out of it", Instance, plans::survives), Rounds),
    gate(process("plan", "answers-without-error", "a plain round ends without an error code, twice", Instance, plans::answers), Rounds),
    process("library", "signal-dispositions-unchanged", "it handles, ignores and blocks no signal", Rounds, library::signals),
    process("library", "locale-cwd-umask-env-unchanged", "locale, working directory, umask and environment stay as they were", Rounds, library::surroundings),
    process("library", "host-without-extensions", "a host that has no extensions gets valid plans too", Rounds, host_calls::without_extensions),
    process("library", "same-thread", "it calls the host from the thread it was called on only", Rounds, host_calls::same_thread),
    process("library", "no-host-calls-after-destroy", "after destroy nothing of it calls the host", Rounds, host_calls::none_after_destroy),
    process("instance", "config-fuzz", "of 300 and more odd configurations each is refused with a reason, or gives a valid plan", Rounds, instance::config_fuzz),
    process("instance", "destroy-after-error", "an instance whose rounds ended in an error is destroyed, and the next one works", Rounds, instance::destroy_after_error),
    process("instance", "no-leak", "memory does not grow from round to round", Rounds, instance::no_leak),
    process("instance", "no-snapshot-kept", "nothing of a snapshot is read after its round", Rounds, instance::no_snapshot_kept),
    process("instance", "poison-after-panic", "an instance that panicked answers nothing but that (E_PANIC)", Rounds, instance::poisoned),
    process("snapshot", "stride", "longer rows of a newer host give the same plan", Rounds, snapshots::stride),
    process("snapshot", "unknown-tables", "tables it does not know change nothing", Rounds, snapshots::unknown_tables),
    process("snapshot", "unknown-incompat-bit", "a snapshot of features it does not know is refused", Rounds, snapshots::unknown_incompat_bit),
    process("snapshot", "unknown-enum-values", "kinds, groupings and flags of a newer host are no reason to fail", Rounds, snapshots::unknown_values),
    process("snapshot", "missing-tables", "tables a host may leave out may be missing", Rounds, snapshots::missing_tables),
    process("snapshot", "odd-clusters", "nothing at all, no topologies, no nodes, no slots, one slot, names beyond ASCII", Rounds, snapshots::odd_clusters),
    process("snapshot", "large-cluster", "200 nodes and 4,000 executors in 2 s", Rounds, snapshots::large_cluster),
    process("snapshot", "max-size", "2,000 nodes and 200,000 executors, in 5 s", Rounds, snapshots::largest_cluster),
    process("plan", "no-unknown-slot", "every slot it names exists", Rounds, plans::no_unknown_slot),
    process("plan", "no-double-slot", "one slot holds one topology", Rounds, plans::no_double_slot),
    process("plan", "only-assignable-slots", "nothing new on nodes that are gone or blacklisted", Rounds, plans::only_assignable),
    process("plan", "only-what-was-asked", "topologies that were not asked about stay", Rounds, plans::only_what_was_asked),
    process("plan", "workers-wanted", "no more slots than workers wanted", Rounds, plans::workers_wanted),
    process("plan", "frees-nobody", "nobody loses its slot where nothing may be preempted", Rounds, plans::frees_nobody),
    process("plan", "outcome-matches-plan", "what it says became of a topology is so", Rounds, plans::outcome_matches),
    process("plan", "respects-max-moves", "no more running executors move than may", Rounds, plans::respects_max_moves),
    process("plan", "schedules-what-fits", "with room for all, all are placed", Rounds, plans::schedules_what_fits),
    process("plan", "keeps-running-executors", "a new topology does not move another one", Rounds, plans::keeps_running),
    process("plan", "recovers-after-node-loss", "executors of a lost node are placed again", Rounds, plans::recovers),
    process("plan", "idempotent", "a second round without a change changes nothing", Rounds, plans::idempotent),
    process("plan", "deterministic", "the same snapshot gives the same plan, in the same and in another instance", Rounds, plans::deterministic),
    process("plan", "permuted-names", "other names that sort as before change nothing", Rounds, plans::permuted_names),
    process("plan", "valid-plan-on-random-clusters", "300 random clusters, every rule", Rounds, plans::random_clusters),
    process("deadline", "polls-should-stop", "it returns within a second of being told to stop", Rounds, deadline::should_stop),
    process("deadline", "partial-result-on-cancel", "told to stop, it leaves a valid plan or an error", Rounds, deadline::partial_result),
    process("deadline", "monotone-cpu", "four times the cluster takes less than 32 times the time", Rounds, deadline::monotone_cpu),
];

/// The check of this id.
pub fn find(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|c| c.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_an_id_of_its_own_and_a_group() {
        let mut ids: Vec<&str> = CHECKS.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), CHECKS.len());
        for c in CHECKS {
            assert!(["library", "instance", "snapshot", "plan", "deadline"].contains(&c.group), "{}", c.id);
            assert!(c.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()), "{}", c.id);
        }
    }
}
