//! How the command ends: its exit codes, and failures as three lines (what, why, what to try).

use std::fmt;

/// Exit codes. Scripts depend on them: they never change meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed = 1,
    /// Wrong usage; clap's own code.
    Usage = 2,
    /// No such topology.
    NotFound = 3,
    /// The name is taken.
    Conflict = 4,
    /// Not authenticated or not allowed.
    Denied = 5,
    /// The cluster is not reachable or has no leader.
    Unreachable = 6,
    /// `--wait` ran out of time.
    TimedOut = 7,
    /// Topology or configuration invalid.
    Invalid = 8,
}

/// What `saetta help exit-codes` prints.
pub(crate) const TABLE: &str = "\
Exit codes of saetta:

   0  done, or nothing to change
   1  the operation failed
   2  wrong usage
   3  no such topology, component or node
   4  conflict: the name is taken
   5  not authenticated or not allowed
   6  cluster not reachable, or no leader
   7  --wait ran out of time; what was asked for goes on
   8  topology or configuration invalid
";

/// A failure for people: what, why, what to try. Each is one line.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    what: String,
    why: Option<String>,
    hint: Option<String>,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, what: what.into(), why: None, hint: None }
    }

    pub(crate) fn why(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(why) = &self.why {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  try: {hint}")?;
        }
        Ok(())
    }
}
