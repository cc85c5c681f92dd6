//! Which tasks of a subscriber get a tuple.
//!
//! Before: `emit.rs` has an archive and a subscription. After: `io.rs` turns task ids into lanes. Pure: no clock, no I/O, no allocation
//! after `new`. Rules: semantics section 3.

use crate::program::KeyFn;
use saetta_model::topology::Grouping;
use saetta_tuple::KeyBytes;

/// One subscription as one emitter task sees it.
pub(crate) struct Subscription {
    /// Tasks of the subscriber, ascending.
    pub(crate) targets: Vec<u32>,
    choice: Choice,
}

enum Choice {
    /// Round robin over a list shuffled per emitter task, so that emitters do not march in step.
    Shuffle { order: Vec<u32>, next: usize },
    /// xxh3-64 of the key modulo the number of tasks; the hash is skipped when there is one.
    Fields { key: KeyFn, bytes: KeyBytes },
    /// One copy each.
    All,
    /// Lowest task id.
    Global,
}

/// Where one tuple goes.
pub(crate) enum Chosen {
    /// One task.
    One(u32),
    /// All targets.
    All,
}

impl Subscription {
    /// `emitter` is the emitting task; it seeds the shuffle. `None` for a grouping that this version does not run.
    pub(crate) fn new(grouping: &Grouping, key: Option<KeyFn>, targets: Vec<u32>, emitter: u32) -> Option<Self> {
        assert!(!targets.is_empty(), "a component has at least one task");
        let choice = match grouping {
            Grouping::Shuffle | Grouping::None => Choice::Shuffle { order: shuffled(&targets, emitter), next: 0 },
            Grouping::Fields(_) => Choice::Fields { key: key?, bytes: KeyBytes::default() },
            Grouping::All => Choice::All,
            Grouping::Global => Choice::Global,
            _ => return None,
        };
        Some(Subscription { targets, choice })
    }

    /// True where the archive is looked at.
    #[inline(always)]
    pub(crate) fn reads_archive(&self) -> bool {
        matches!(self.choice, Choice::Fields { .. }) && self.targets.len() > 1
    }

    /// Chooses for one tuple. `archive` is looked at only where [`Self::reads_archive`].
    #[inline(always)]
    pub(crate) fn choose(&mut self, archive: &[u8]) -> Chosen {
        match self.targets[..] {
            // Every grouping agrees on it.
            [only] => Chosen::One(only),
            _ => self.choose_among(archive),
        }
    }

    fn choose_among(&mut self, archive: &[u8]) -> Chosen {
        match &mut self.choice {
            Choice::Shuffle { order, next } => {
                let task = order[*next];
                *next += 1;
                if *next == order.len() {
                    *next = 0;
                }
                Chosen::One(task)
            }
            Choice::Fields { key, bytes } => {
                bytes.clear();
                key(archive, bytes);
                Chosen::One(self.targets[(bytes.hash() % self.targets.len() as u64) as usize])
            }
            Choice::All => Chosen::All,
            Choice::Global => Chosen::One(self.targets[0]),
        }
    }
}

/// Fisher-Yates over splitmix64, seeded by the emitter: the same list on every run of the same layout.
fn shuffled(targets: &[u32], emitter: u32) -> Vec<u32> {
    let mut order = targets.to_vec();
    let mut state = u64::from(emitter);
    for i in (1..order.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn spread(grouping: &Grouping, key: Option<KeyFn>, tuples: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u32>> {
        let mut s = Subscription::new(grouping, key, vec![5, 6, 7], 1).unwrap();
        tuples
            .map(|t| match s.choose(&t) {
                Chosen::One(task) => vec![task],
                Chosen::All => s.targets.clone(),
            })
            .collect()
    }

    #[test]
    fn shuffle_is_even_to_the_tuple() {
        let all = spread(&Grouping::Shuffle, None, (0..300).map(|_| vec![]));
        for task in [5, 6, 7] {
            assert_eq!(all.iter().filter(|c| c[0] == task).count(), 100);
        }
    }

    #[test]
    fn emitters_do_not_march_in_step() {
        let orders: std::collections::BTreeSet<_> = (0..50).map(|e| shuffled(&[1, 2, 3, 4], e)).collect();
        assert!(orders.len() > 5);
    }

    #[test]
    fn equal_keys_meet_in_one_task_and_keys_spread() {
        let key: KeyFn = Arc::new(|archive, out| out.raw(archive));
        let all = spread(&Grouping::Fields(vec!["k".into()]), Some(key), (0..3000u32).map(|i| (i % 1000).to_le_bytes().to_vec()));
        for i in 0..1000 {
            assert!(all[i] == all[i + 1000] && all[i] == all[i + 2000]);
        }
        for task in [5, 6, 7] {
            let n = all.iter().filter(|c| c[0] == task).count();
            assert!((800..1200).contains(&n), "task {task} got {n} of 3000");
        }
    }

    #[test]
    fn all_copies_and_global_takes_the_lowest() {
        assert_eq!(spread(&Grouping::All, None, std::iter::once(vec![])), [[5, 6, 7]]);
        assert_eq!(spread(&Grouping::Global, None, std::iter::once(vec![])), [[5]]);
    }
}
