//! Groupings by the canonical bytes of fields: equal keys meet in one task, or in one of two.

use super::Targets;
use crate::program::KeyFn;
use saetta_tuple::{Emit, KeyBytes};
use std::sync::Arc;

/// Seed of the second candidate of a partial key. The first one's is 0, so it is the task a fields grouping takes.
const SECOND_SEED: u64 = 1;

/// xxh3-64 of the key modulo the number of tasks.
pub(super) struct ByKey {
    key: KeyFn,
    /// As [`crate::program::Chooser::Key`] has them.
    fields: Arc<[u16]>,
    bytes: KeyBytes,
}

impl ByKey {
    pub(super) fn new(key: KeyFn, fields: Arc<[u16]>) -> Self {
        ByKey { key, fields, bytes: KeyBytes::default() }
    }

    /// The task of a tuple not yet encoded: known before it is written, it is written where it goes.
    #[inline(always)]
    pub(super) fn task_of<E: Emit>(&mut self, value: &E, targets: &[u32]) -> Option<u32> {
        Some(targets[modulo(value.key_hash(&self.fields, &mut self.bytes)?, targets.len())])
    }

    #[inline]
    fn read(&mut self, archive: &[u8]) {
        self.bytes.clear();
        (self.key)(archive, &mut self.bytes);
    }

    #[inline]
    pub(super) fn task(&mut self, archive: &[u8], targets: &[u32]) -> u32 {
        self.read(archive);
        targets[modulo(self.bytes.hash(), targets.len())]
    }
}

#[inline]
fn modulo(hash: u64, n: usize) -> usize {
    // The same by mask where it can be: a division takes as long as the hash.
    if n.is_power_of_two() { hash as usize & (n - 1) } else { (hash % n as u64) as usize }
}

/// Two candidates per key; the one that this emitter sent less to.
pub(super) struct PartialKey {
    by: ByKey,
    /// Tuples sent, as the targets.
    sent: Vec<u64>,
}

impl PartialKey {
    pub(super) fn new(key: KeyFn, n_targets: usize) -> Self {
        PartialKey { by: ByKey::new(key, Arc::default()), sent: vec![0; n_targets] }
    }

    #[inline]
    pub(super) fn next(&mut self, archive: &[u8], targets: &[u32], outside: &impl Targets) -> u32 {
        self.by.read(archive);
        let (first, second) = candidates(&self.by.bytes, targets.len());
        let chosen = match (outside.is_up(targets[first]), outside.is_up(targets[second])) {
            (true, false) => first,
            (false, true) => second,
            _ if self.sent[second] < self.sent[first] => second,
            _ => first,
        };
        self.sent[chosen] += 1;
        targets[chosen]
    }
}

/// Two different places of `n` (at least 2): by the first seed among all, by the second among the others.
#[inline]
pub(super) fn candidates(key: &KeyBytes, n: usize) -> (usize, usize) {
    let first = modulo(key.hash(), n);
    let second = modulo(key.hash_seeded(SECOND_SEED), n - 1);
    (first, second + usize::from(second >= first))
}
