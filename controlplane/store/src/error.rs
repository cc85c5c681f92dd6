//! What can go wrong with the store, by who must act.

/// Why a read or write of cluster state failed. Every variant names the node or the work it stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The environment: no session with the store now. A write that ends like this may or may not have happened: read again.
    #[error("store is unavailable: {why}; it reconnects by itself, try again")]
    Unavailable {
        /// What was seen: no connection, session expired, no answer in time.
        why: String,
    },
    /// Somebody else wrote first: read again and decide again.
    #[error("{path} was changed by someone else ({why}); read it again")]
    Conflict {
        /// Node.
        path: String,
        /// Which expectation failed.
        why: String,
    },
    /// The writer no longer holds the leader's lock: it must stop leading.
    #[error("{path} was not written: the leader's lock is lost; another nimbus may lead now")]
    Fenced {
        /// First node of the refused write.
        path: String,
    },
    /// Bytes that are no value of ours, or of a newer version of Saetta.
    #[error("{path} cannot be read: {why}")]
    Corrupt {
        /// Node.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such node.
    #[error("{path} does not exist")]
    NotFound {
        /// Node.
        path: String,
    },
    /// The store refuses for good: a value too large, no permission, a wrong address. Trying again does not help.
    #[error("{path}: {why}")]
    Refused {
        /// Node or address.
        path: String,
        /// What to do about it.
        why: String,
    },
}

impl StoreError {
    /// True when the same call may succeed later without any change by the caller.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }

    /// True when the node is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, StoreError::NotFound { .. })
    }

    /// True when somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, StoreError::Conflict { .. })
    }

    /// True when the leader's lock is lost.
    pub fn is_fenced(&self) -> bool {
        matches!(self, StoreError::Fenced { .. })
    }

    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        StoreError::Unavailable { why: why.into() }
    }
}
