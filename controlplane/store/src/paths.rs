//! The znode tree, drawn. Layout is a file of its own: whoever looks at a live cluster with `zkCli` reads this page.
//!
//! ```text
//! /saetta                          zookeeper.root
//!   leader/_c_<uuid>-latch-<seq>   ephemeral, one per nimbus that would lead; lowest sequence leads; value NimbusInfo
//!   topologies/<id>                TopologyRecord; written by the leader only
//!   assignments/<id>               Assignment; written by the leader only
//!   supervisors/<id>               ephemeral; SupervisorInfo
//!   beats/<supervisor>             SupervisorBeat; one small value covering the workers of one supervisor
//!   errors/<id>/<component>        [ErrorEntry], the last 10; errors/<id> is made and removed with topologies/<id>
//!   nimbuses/<id>                  ephemeral; NimbusInfo
//!   blobs/<sha256>                 BlobHolders: which nimbuses hold this binary; written by the leader only
//!   scheduler/current              SchedulerChoice: the plugin an operator chose; written by the leader only
//!   scheduler/memory               SchedulerMemory: what scheduler plugins want to find again; written by the leader only
//! ```
//!
//! Every value is one version byte, now 1, and JSON (`value.rs`). Directories hold no value.

use saetta_model::Name;

/// One directory of the tree; change signals are per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `leader/`
    Leader,
    /// `topologies/`
    Topologies,
    /// `assignments/`
    Assignments,
    /// `supervisors/`
    Supervisors,
    /// `beats/`
    Beats,
    /// `errors/`
    Errors,
    /// `nimbuses/`
    Nimbuses,
    /// `blobs/`
    Blobs,
    /// `scheduler/`
    Scheduler,
}

impl Family {
    /// All of them, in the order drawn above.
    pub const ALL: [Family; 9] = [
        Family::Leader,
        Family::Topologies,
        Family::Assignments,
        Family::Supervisors,
        Family::Beats,
        Family::Errors,
        Family::Nimbuses,
        Family::Blobs,
        Family::Scheduler,
    ];

    /// Name of the directory.
    pub fn dir(self) -> &'static str {
        match self {
            Family::Leader => "leader",
            Family::Topologies => "topologies",
            Family::Assignments => "assignments",
            Family::Supervisors => "supervisors",
            Family::Beats => "beats",
            Family::Errors => "errors",
            Family::Nimbuses => "nimbuses",
            Family::Blobs => "blobs",
            Family::Scheduler => "scheduler",
        }
    }
}

/// Paths under one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Absolute, without a slash at the end.
    root: String,
}

impl Paths {
    /// Checks the root (`zookeeper.root`): absolute, no empty, `.` or `..` part, not `/` itself.
    pub fn new(root: &str) -> Result<Self, String> {
        let trimmed = root.strip_suffix('/').unwrap_or(root);
        let parts_fine = trimmed.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|p| !p.is_empty() && p != "." && p != ".." && !p.chars().any(|c| c.is_control() || c.is_whitespace()))
        });
        if !parts_fine || trimmed == "/zookeeper" {
            return Err(format!("zookeeper.root = {root:?} is not usable; write an absolute path below /, as /saetta"));
        }
        Ok(Paths { root: trimmed.to_owned() })
    }

    /// The root.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Directory of a family.
    pub fn dir(&self, family: Family) -> String {
        format!("{}/{}", self.root, family.dir())
    }

    /// A node of a family that is named by a checked name.
    pub fn node(&self, family: Family, id: &Name) -> String {
        format!("{}/{}/{id}", self.root, family.dir())
    }

    /// Directory of the errors of one topology.
    pub fn errors_of(&self, topology: &Name) -> String {
        self.node(Family::Errors, topology)
    }

    /// Errors of one component.
    pub fn errors(&self, topology: &Name, component: &Name) -> String {
        format!("{}/{component}", self.errors_of(topology))
    }

    /// A binary by its SHA-256; the caller has checked that it is 64 hex digits.
    pub fn blob(&self, sha256: &str) -> String {
        debug_assert!(is_sha256(sha256), "{sha256:?} is not a checked SHA-256");
        format!("{}/{}/{sha256}", self.root, Family::Blobs.dir())
    }

    /// The plugin in use.
    pub fn scheduler(&self) -> String {
        format!("{}/{}/current", self.root, Family::Scheduler.dir())
    }

    /// What scheduler plugins saved.
    pub fn scheduler_memory(&self) -> String {
        format!("{}/{}/memory", self.root, Family::Scheduler.dir())
    }

    /// The family a path belongs to; `None` for the root and strangers.
    pub fn family_of(&self, path: &str) -> Option<Family> {
        let rest = path.strip_prefix(&self.root)?.strip_prefix('/')?;
        let dir = rest.split('/').next()?;
        Family::ALL.into_iter().find(|f| f.dir() == dir)
    }
}

/// True for 64 lower-case hex digits.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_absolute_and_below_the_root_of_the_server() {
        for good in ["/saetta", "/a/b", "/saetta/"] {
            assert!(Paths::new(good).is_ok(), "{good}");
        }
        for bad in ["", "/", "saetta", "//a", "/a//b", "/a/../b", "/a b", "/zookeeper"] {
            assert!(Paths::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_knows_its_family() {
        let paths = Paths::new("/saetta").unwrap();
        let wc = Name::new("wc-1-2").unwrap();
        assert_eq!(paths.node(Family::Topologies, &wc), "/saetta/topologies/wc-1-2");
        assert_eq!(paths.family_of("/saetta/errors/wc-1-2/split"), Some(Family::Errors));
        assert_eq!(paths.family_of("/saetta"), None);
        assert_eq!(paths.family_of("/other/errors/x"), None);
    }
}
