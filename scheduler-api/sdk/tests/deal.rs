//! The deal against a search over all deals: balanced as the semantics say, and nothing moves that need not.

use proptest::prelude::*;
use saetta_sdk::deal::{Deal, Own, deal, interleave};
use saetta_sdk::{ExecId, SlotId};
use std::collections::BTreeMap;

/// A small case: executors by own slot (slot i holds `held[i]`), some that run nowhere, some free slots.
#[derive(Debug, Clone)]
struct Case {
    own: Vec<Own>,
    unplaced: Vec<ExecId>,
    new: Vec<SlotId>,
    workers: usize,
}

impl Case {
    fn n_execs(&self) -> usize {
        self.own.iter().map(|o| o.executors.len()).sum::<usize>() + self.unplaced.len()
    }
    fn before(&self) -> BTreeMap<ExecId, SlotId> {
        self.own.iter().flat_map(|o| o.executors.iter().map(|e| (*e, o.slot))).collect()
    }
}

/// `where_to[e]` says in which own slot executor e runs; beyond their number it runs nowhere.
fn case(n_own: usize, where_to: Vec<usize>, n_new: usize, workers: usize) -> Case {
    let mut own: Vec<Own> = (0..n_own).map(|i| Own { slot: SlotId(i as u32), executors: Vec::new() }).collect();
    let mut unplaced = Vec::new();
    for (e, to) in where_to.into_iter().enumerate() {
        match own.get_mut(to) {
            Some(o) => o.executors.push(ExecId(e as u32)),
            None => unplaced.push(ExecId(e as u32)),
        }
    }
    own.retain(|o| !o.executors.is_empty());
    Case { own, unplaced, new: (0..n_new).map(|i| SlotId((n_own + i) as u32)).collect(), workers }
}

fn small_case() -> impl Strategy<Value = Case> {
    (1usize..4, 0usize..4, 1usize..6).prop_flat_map(|(n_own, n_new, workers)| {
        // Leaning to slot 0, so that overfull slots are common.
        let place = prop_oneof![2 => Just(0), 3 => 0..n_own + 1];
        let made = prop::collection::vec(place, 1..8).prop_map(move |where_to| case(n_own, where_to, n_new, workers));
        made.prop_filter("no slot at all", |case| !case.own.is_empty() || !case.new.is_empty())
    })
}

/// Fewest running executors any balanced deal moves, by trying every assignment of executors to slots.
fn fewest_moves(case: &Case) -> u32 {
    let slots: Vec<SlotId> = case.own.iter().map(|o| o.slot).chain(case.new.iter().copied()).collect();
    let before = case.before();
    let n_slots = case.workers.min(slots.len());
    let n_execs = case.n_execs();
    let mut best = u32::MAX;
    let mut at = vec![0usize; n_execs];
    loop {
        let mut fill = vec![0; slots.len()];
        at.iter().for_each(|s| fill[*s] += 1);
        // S slots hold floor or ceil. With fewer executors than slots, that is 0 or 1.
        let (floor, ceil) = (n_execs / n_slots, n_execs.div_ceil(n_slots));
        let used: Vec<usize> = fill.iter().copied().filter(|n| *n > 0).collect();
        let balanced = used.iter().all(|n| (floor.max(1)..=ceil).contains(n)) && used.len() == n_slots.min(n_execs);
        if balanced {
            let moved = (0..n_execs).filter(|e| before.get(&ExecId(*e as u32)).is_some_and(|s| *s != slots[at[*e]])).count();
            best = best.min(moved as u32);
        }
        let Some(next) = at.iter().position(|s| s + 1 < slots.len()) else { return best };
        at[..next].fill(0);
        at[next] += 1;
    }
}

fn check_balanced(case: &Case, next: &Deal) -> Result<(), TestCaseError> {
    let n_slots = case.workers.min(case.own.len() + case.new.len());
    let n_execs = case.n_execs();
    let mut fill: BTreeMap<SlotId, usize> = BTreeMap::new();
    for (_, slot) in &next.places {
        *fill.entry(*slot).or_default() += 1;
    }
    let placed: Vec<ExecId> = next.places.iter().map(|(e, _)| *e).collect();
    prop_assert_eq!(placed, (0..n_execs as u32).map(ExecId).collect::<Vec<_>>(), "every executor once");
    prop_assert_eq!(fill.len(), n_slots.min(n_execs));
    let (floor, ceil) = (n_execs / n_slots, n_execs.div_ceil(n_slots));
    prop_assert!(fill.values().all(|n| (floor..=ceil).contains(n)), "{:?} is not {}..={}", fill, floor, ceil);
    Ok(())
}

fn moves(case: &Case, next: &Deal) -> u32 {
    let before = case.before();
    next.places.iter().filter(|(e, s)| before.get(e).is_some_and(|b| b != s)).count() as u32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_deal_is_balanced_and_moves_as_few_as_any_balanced_deal(case in small_case()) {
        let next = deal(&case.own, &case.unplaced, &case.new, case.workers, false);
        check_balanced(&case, &next)?;
        prop_assert_eq!(moves(&case, &next), next.n_moves);
        prop_assert_eq!(next.n_moves, fewest_moves(&case));
    }

    #[test]
    fn a_deal_of_a_deal_moves_nothing(case in small_case()) {
        let first = deal(&case.own, &case.unplaced, &case.new, case.workers, false);
        let mut own: BTreeMap<SlotId, Vec<ExecId>> = BTreeMap::new();
        for (e, s) in &first.places {
            own.entry(*s).or_default().push(*e);
        }
        let own: Vec<Own> = own.into_iter().map(|(slot, executors)| Own { slot, executors }).collect();
        let left: Vec<SlotId> =
            case.own.iter().map(|o| o.slot).chain(case.new.iter().copied()).filter(|s| own.iter().all(|o| o.slot != *s)).collect();
        let second = deal(&own, &[], &left, case.workers, false);
        prop_assert_eq!(second.n_moves, 0);
        prop_assert_eq!(second.places, first.places);
    }

    #[test]
    fn with_stay_nothing_moves_and_the_rest_fills_the_emptiest(case in small_case()) {
        let next = deal(&case.own, &case.unplaced, &case.new, case.workers, true);
        prop_assert_eq!(next.n_moves, 0);
        prop_assert_eq!(moves(&case, &next), 0);
        prop_assert_eq!(next.places.len(), case.n_execs());
        let used: std::collections::BTreeSet<SlotId> = next.places.iter().map(|(_, s)| *s).collect();
        prop_assert!(used.len() <= case.workers.max(case.own.len()));
    }
}

#[test]
fn new_slots_come_in_interleaved_order() {
    // The cases of Storm's testSortSlots: s1 {0,1}, s2 {0,1,2}; then s3 {0,1,2,3} besides.
    let slots = |slots: &[u32]| slots.iter().map(|s| SlotId(*s)).collect::<Vec<_>>();
    let (s1, s2, s3) = (slots(&[10, 11]), slots(&[20, 21, 22]), slots(&[30, 31, 32, 33]));
    let (one, two, three) = ((1, s1.as_slice()), (2, s2.as_slice()), (3, s3.as_slice()));
    let whole = slots(&[30, 20, 10, 31, 21, 11, 32, 22, 33]);
    assert_eq!(interleave([one, two], 9), slots(&[20, 10, 21, 11, 22]));
    // Cut anywhere, it is the beginning of the whole.
    for n in 0..=10 {
        assert_eq!(interleave([one, two, three], n), whole[..n.min(9)]);
    }
    assert_eq!(interleave([], 9), []);
}

#[test]
fn nine_executors_squeezed_into_one_slot_spread_again_with_fewest_moves() {
    // Storm's testReassignSqueezedTopology: [3,3,3] to four workers is [3,2,2,2] and the fourth gets the two that leave.
    let case = case(3, vec![0, 0, 0, 1, 1, 1, 2, 2, 2], 1, 4);
    let next = deal(&case.own, &case.unplaced, &case.new, 4, false);
    assert_eq!(next.n_moves, 2);
    assert_eq!(next.places.iter().filter(|(_, s)| s.0 == 0).count(), 3, "the first overfull slot keeps its three");
}

#[test]
fn what_leaves_an_overfull_slot_is_a_mix() {
    // All twelve in one slot, a second comes: every other executor leaves, as in a fresh deal over two.
    let case = case(1, vec![0; 12], 1, 2);
    let next = deal(&case.own, &case.unplaced, &case.new, 2, false);
    let left: Vec<u32> = next.places.iter().filter(|(_, s)| s.0 == 1).map(|(e, _)| e.0).collect();
    assert_eq!(left, [1, 3, 5, 7, 9, 11]);
}
