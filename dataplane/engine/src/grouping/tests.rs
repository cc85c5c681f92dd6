//! Distributions, against the formulas of semantics section 3.

use super::keyed::candidates;
use super::spread::shuffled;
use super::*;
use crate::program::KeyFn;
use saetta_tuple::KeyBytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An outside that a test writes down.
#[derive(Default)]
struct Outside {
    here: BTreeSet<u32>,
    down: BTreeSet<u32>,
    fill: RefCell<BTreeMap<u32, u64>>,
}

impl Targets for Outside {
    fn is_here(&self, task: u32) -> bool {
        self.here.contains(&task)
    }
    fn is_up(&self, task: u32) -> bool {
        !self.down.contains(&task)
    }
    fn fill_bytes(&self, task: u32) -> u64 {
        self.fill.borrow().get(&task).copied().unwrap_or(0)
    }
}

/// The archive itself is the key.
fn whole() -> Chooser {
    let key: KeyFn = Arc::new(|archive, out| out.raw(archive));
    Chooser::Key(key, Arc::default())
}

fn subscription(grouping: Grouping, chooser: Option<Chooser>, targets: Vec<u32>) -> Subscription {
    Subscription::new(&Name::new("to").unwrap(), &grouping, chooser.as_ref(), targets, 1).unwrap()
}

fn fields() -> Grouping {
    Grouping::Fields(vec!["k".into()])
}

fn partial() -> Grouping {
    Grouping::PartialKey(vec!["k".into()])
}

/// Tasks each tuple went to.
fn spread(s: &mut Subscription, outside: &Outside, tuples: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u32>> {
    tuples
        .map(|t| {
            let chosen = s.choose(&t, outside);
            s.tasks(&chosen).to_vec()
        })
        .collect()
}

fn counts(all: &[Vec<u32>]) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    all.iter().flatten().for_each(|t| *counts.entry(*t).or_default() += 1);
    counts
}

fn blanks(n: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(|_| vec![])
}

/// Keys as a Zipf law of exponent 1 over `n_keys` gives them, by inverse transform over a fixed sequence.
fn zipf(n_keys: u32, n: usize) -> impl Iterator<Item = Vec<u8>> {
    let weights: Vec<f64> = (1..=n_keys).map(|k| 1.0 / f64::from(k)).collect();
    let total: f64 = weights.iter().sum();
    let cumulated: Vec<f64> = weights
        .iter()
        .scan(0.0, |sum, w| {
            *sum += w / total;
            Some(*sum)
        })
        .collect();
    // Multiples of the golden ratio modulo 1 fill the unit interval evenly.
    (0..n).map(move |i| {
        let u = (i as f64 * 0.618_033_988_749_894_9).fract();
        (cumulated.partition_point(|c| *c < u) as u32).to_le_bytes().to_vec()
    })
}

/// Chi-square of counts against an even spread.
fn chi_square(counts: &BTreeMap<u32, u64>, n_targets: u64) -> f64 {
    let total: u64 = counts.values().sum();
    let even = total as f64 / n_targets as f64;
    let missing = n_targets - counts.len() as u64;
    counts.values().map(|c| (*c as f64 - even).powi(2) / even).sum::<f64>() + missing as f64 * even
}

#[test]
fn shuffle_and_none_are_even_to_the_tuple() {
    for grouping in [Grouping::Shuffle, Grouping::None] {
        let mut s = subscription(grouping, None, vec![5, 6, 7]);
        for n in [1, 2, 3, 7, 300, 301] {
            let mut s = subscription(Grouping::Shuffle, None, vec![5, 6, 7]);
            let counts = counts(&spread(&mut s, &Outside::default(), blanks(n)));
            let (low, high) = (n as u64 / 3, (n as u64).div_ceil(3));
            assert!([5, 6, 7].iter().all(|t| (low..=high).contains(&counts.get(t).copied().unwrap_or(0))), "{n}: {counts:?}");
        }
        assert_eq!(counts(&spread(&mut s, &Outside::default(), blanks(300))), BTreeMap::from([(5, 100), (6, 100), (7, 100)]));
    }
}

#[test]
fn emitters_do_not_march_in_step() {
    let orders: BTreeSet<_> = (0..50).map(|e| shuffled(&[1, 2, 3, 4], e)).collect();
    assert!(orders.len() > 5);
}

#[test]
fn shuffle_steps_over_targets_that_are_down_and_stays_even_among_the_rest() {
    let mut s = subscription(Grouping::Shuffle, None, vec![5, 6, 7, 8]);
    let mut outside = Outside { down: [6].into(), ..Outside::default() };
    assert_eq!(counts(&spread(&mut s, &outside, blanks(300))), BTreeMap::from([(5, 100), (7, 100), (8, 100)]));
    outside.down = [5, 7, 8].into();
    assert_eq!(counts(&spread(&mut s, &outside, blanks(300))), BTreeMap::from([(6, 300)]));
    outside.down.clear();
    assert_eq!(counts(&spread(&mut s, &outside, blanks(400))).values().collect::<Vec<_>>(), [&100; 4]);
    // All down: their frames wait, and they wait evenly.
    outside.down = [5, 6, 7, 8].into();
    assert_eq!(counts(&spread(&mut s, &outside, blanks(400))).values().collect::<Vec<_>>(), [&100; 4]);
}

#[test]
fn local_or_shuffle_keeps_to_this_worker_while_it_has_a_target_here() {
    let mut s = subscription(Grouping::LocalOrShuffle, None, vec![5, 6, 7, 8]);
    let mut outside = Outside { here: [6, 8].into(), ..Outside::default() };
    s.assignment_changed(&outside, 1);
    assert_eq!(counts(&spread(&mut s, &outside, blanks(200))), BTreeMap::from([(6, 100), (8, 100)]));
    outside.here.clear();
    s.assignment_changed(&outside, 1);
    assert_eq!(counts(&spread(&mut s, &outside, blanks(400))).values().collect::<Vec<_>>(), [&100; 4]);
    outside.here = [7].into();
    s.assignment_changed(&outside, 1);
    assert_eq!(counts(&spread(&mut s, &outside, blanks(100))), BTreeMap::from([(7, 100)]));
}

#[test]
fn load_aware_is_even_under_even_load_and_steers_around_a_slow_target() {
    let mut s = subscription(Grouping::LoadAware, None, vec![5, 6, 7, 8]);
    let outside = Outside::default();
    let all = counts(&spread(&mut s, &outside, blanks(40_000)));
    // 3 degrees of freedom, one in a thousand above 16.3.
    assert!(chi_square(&all, 4) < 16.3, "{all:?}");

    // Four targets that take one tuple a step, 7 one in ten; each sees what is outstanding.
    let mut s = subscription(Grouping::LoadAware, None, vec![5, 6, 7, 8]);
    let mut sent = BTreeMap::<u32, u64>::new();
    for step in 0..40_000u64 {
        let Chosen::One(task) = s.choose(&[], &outside) else { panic!("one task") };
        *sent.entry(task).or_default() += 1;
        let mut fill = outside.fill.borrow_mut();
        *fill.entry(task).or_default() += 1;
        for target in [5, 6, 7, 8] {
            if target != 7 || step % 10 == 0 {
                let left = fill.entry(target).or_default();
                *left = left.saturating_sub(1);
            }
        }
    }
    // It handles 4,000 and holds a few; round robin would have given it 10,000.
    assert!((3000..4100).contains(&sent[&7]), "{sent:?}");
    assert!(outside.fill_bytes(7) < 50, "what waits at the slow one stays bounded: {}", outside.fill_bytes(7));
    for fast in [5, 6, 8] {
        assert!((11_000..13_000).contains(&sent[&fast]), "{sent:?}");
    }
}

#[test]
fn load_aware_and_partial_key_step_over_targets_that_are_down() {
    let mut outside = Outside { down: [5, 6].into(), ..Outside::default() };
    let mut load = subscription(Grouping::LoadAware, None, vec![5, 6, 7]);
    assert_eq!(counts(&spread(&mut load, &outside, blanks(100))), BTreeMap::from([(7, 100)]));
    let mut keyed = subscription(partial(), Some(whole()), vec![5, 6, 7]);
    let before = spread(&mut keyed, &Outside::default(), zipf(100, 2000));
    outside.down = [6].into();
    let after = spread(&mut keyed, &outside, zipf(100, 2000));
    assert!(counts(&before).contains_key(&6) && !counts(&after).contains_key(&6));
    // All down: still a candidate of the key.
    outside.down = [5, 6, 7].into();
    assert_eq!(counts(&spread(&mut keyed, &outside, zipf(100, 2000))).values().sum::<u64>(), 2000);
}

#[test]
fn equal_keys_meet_in_one_task_and_keys_spread() {
    for n_targets in [2u32, 3, 7, 16] {
        let mut s = subscription(fields(), Some(whole()), (10..10 + n_targets).collect());
        let all = spread(&mut s, &Outside::default(), (0..30_000u32).map(|i| (i % 10_000).to_le_bytes().to_vec()));
        for i in 0..10_000 {
            assert!(all[i] == all[i + 10_000] && all[i] == all[i + 20_000]);
        }
        let counts = counts(&all[..10_000]);
        // One in a thousand above: 10.8, 13.8, 22.5, 37.7 for 1, 2, 6, 15 degrees of freedom.
        let bound = BTreeMap::from([(2, 10.8), (3, 13.8), (7, 22.5), (16, 37.7)])[&n_targets];
        let chi = chi_square(&counts, u64::from(n_targets));
        assert!(chi < bound, "{n_targets} targets: {chi} {counts:?}");
    }
}

#[test]
fn fields_are_never_moved_by_a_target_that_is_down() {
    let mut s = subscription(fields(), Some(whole()), vec![5, 6, 7]);
    let up = spread(&mut s, &Outside::default(), zipf(100, 300));
    assert_eq!(up, spread(&mut s, &Outside { down: [5, 6].into(), ..Outside::default() }, zipf(100, 300)));
}

#[test]
fn partial_key_balances_what_fields_cannot_and_keeps_a_key_to_two_tasks() {
    let targets: Vec<u32> = (10..15).collect();
    let mut by_fields = subscription(fields(), Some(whole()), targets.clone());
    let mut by_partial = subscription(partial(), Some(whole()), targets);
    let outside = Outside::default();
    let (one, two) = (spread(&mut by_fields, &outside, zipf(1000, 50_000)), spread(&mut by_partial, &outside, zipf(1000, 50_000)));
    let largest = |all: &[Vec<u32>]| *counts(all).values().max().unwrap() as f64 / (50_000.0 / 5.0);
    // The commonest of a thousand Zipf keys alone is 13 % of the tuples, two thirds of a fair share.
    assert!(largest(&one) > 1.2, "fields: {}", largest(&one));
    assert!(largest(&two) < 1.02, "partial key: {}", largest(&two));
    let mut tasks_of = BTreeMap::<Vec<u8>, BTreeSet<u32>>::new();
    for (key, tasks) in zipf(1000, 50_000).zip(&two) {
        tasks_of.entry(key).or_default().extend(tasks);
    }
    assert!(tasks_of.values().all(|t| t.len() <= 2));
    assert!(tasks_of.values().filter(|t| t.len() == 2).count() > 500);
}

/// Canonical bytes of a key, its xxh3-64 with seeds 0 and 1, its candidates of seven tasks.
type Golden = (&'static [u8], u64, u64, (usize, usize));

/// Golden vectors, computed with the reference implementation of xxh3.
/// A fields grouping is a promise to whoever keeps state by key, over restarts and versions.
const GOLDEN: [Golden; 6] = [
    (b"", 0x2d06_8005_38d3_94c2, 0x4dc5_b0cc_826f_6703, (4, 6)),
    (b"\x07\0\0\0", 0x57ae_4481_1628_c14c, 0x0f67_5c48_8bd1_afc2, (3, 0)),
    (b"\x06\0\0\0saetta", 0xfaa7_d8a0_ce90_7cc6, 0x2123_152c_3cd9_1ba5, (4, 6)),
    (b"\x01\x01", 0x070d_80d6_a768_65f3, 0xbd33_4733_2906_dc27, (5, 6)),
    (b"\x01\x02\x03\x04\x05\x06\x07\x08", 0x16f2_17ea_1623_2297, 0x7585_1f08_2ada_ad5a, (4, 2)),
    (b"\x28\0\0\0a symbol that is longer than sixteen byte", 0x5234_8435_9446_d85b, 0x00d3_fe9d_30f5_da66, (6, 2)),
];

#[test]
fn the_task_of_a_key_is_fixed() {
    let key = |bytes: &[u8]| {
        let mut key = KeyBytes::default();
        key.raw(bytes);
        key
    };
    for (bytes, first, second, places) in GOLDEN {
        assert_eq!((key(bytes).hash(), key(bytes).hash_seeded(1)), (first, second), "{bytes:?}");
        assert_eq!(candidates(&key(bytes), 7), places, "{bytes:?}");
        let mut s = subscription(fields(), Some(whole()), (20..27).collect());
        assert_eq!(s.choose(bytes, &Outside::default()), Chosen::One(20 + places.0 as u32));
    }
    let of_two: BTreeSet<_> = (0..100u8).map(|k| candidates(&key(&[k]), 2)).collect();
    assert_eq!(of_two, [(0, 1), (1, 0)].into());
}

#[test]
fn all_copies_and_global_takes_the_lowest() {
    let outside = Outside::default();
    assert_eq!(spread(&mut subscription(Grouping::All, None, vec![5, 6, 7]), &outside, blanks(1)), [[5, 6, 7]]);
    let mut global = subscription(Grouping::Global, None, vec![5, 6, 7]);
    assert_eq!(spread(&mut global, &outside, blanks(1)), [[5]]);
    assert_eq!(global.fixed(), Some(5));
}

#[test]
fn one_target_is_fixed_for_every_grouping_but_those_that_may_choose_none() {
    for grouping in [Grouping::Shuffle, Grouping::LocalOrShuffle, Grouping::LoadAware, Grouping::All, Grouping::Global, Grouping::None] {
        assert_eq!(subscription(grouping, None, vec![9]).fixed(), Some(9));
    }
    for grouping in [fields(), partial()] {
        let s = subscription(grouping, Some(whole()), vec![9]);
        assert!(s.fixed() == Some(9) && !s.reads_archive() && s.picks_one());
    }
    assert_eq!(subscription(Grouping::Direct, None, vec![9]).fixed(), None);
    let missing = Subscription::new(&Name::new("to").unwrap(), &fields(), None, vec![9], 1);
    assert!(missing.is_none(), "a fields grouping without its key");
}

#[test]
fn a_direct_grouping_wants_the_task_named_and_knows_who_subscribes() {
    let mut s = subscription(Grouping::Direct, None, vec![5, 6]);
    let chosen = s.choose(&[], &Outside::default());
    assert_eq!(chosen, Chosen::Refused(Refused::NoTaskNamed));
    assert!(s.tasks(&chosen).is_empty() && s.refusal(Refused::NoTaskNamed).to_string().contains("emit_direct"));
    assert!(s.is_direct() && s.subscribes(6) && !s.subscribes(7) && !s.picks_one());
}

/// Sends to as many tasks, from the first on, as the tuple's first byte says; a byte of 99 names a stranger.
#[derive(Default)]
struct FirstN(Vec<u32>);
impl CustomChoice for FirstN {
    fn prepare(&mut self, targets: &[u32]) {
        self.0 = targets.to_vec();
    }
    fn choose(&mut self, archive: &[u8], tasks: &mut Vec<u32>) {
        match archive[0] {
            99 => tasks.push(99),
            n => tasks.extend(&self.0[..usize::from(n)]),
        }
    }
}

#[test]
fn user_code_chooses_any_number_of_tasks_of_the_subscriber() {
    for targets in [vec![5], vec![5, 6, 7]] {
        let make: CustomFactory = Arc::new(|| Box::new(FirstN::default()));
        let mut s = subscription(Grouping::Custom("FirstN".into()), Some(Chooser::Custom(make)), targets.clone());
        assert!(s.fixed().is_none() && s.reads_archive() && !s.picks_one());
        for n in 0..=targets.len() {
            assert_eq!(spread(&mut s, &Outside::default(), std::iter::once(vec![n as u8])), [&targets[..n]]);
        }
        let chosen = s.choose(&[99], &Outside::default());
        assert_eq!(chosen, Chosen::Refused(Refused::Stranger(99)));
        assert!(s.tasks(&chosen).is_empty(), "not even to those that do subscribe");
        assert!(s.refusal(Refused::Stranger(99)).to_string().contains("task 99 for bolt `to`"));
    }
}
