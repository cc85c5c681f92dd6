//! Which peers there are, who of us dials, and who is let in. Pure: no clock, no I/O.
//!
//! Before: `place.rs` says which links an assignment wants. After: `watchdog.rs` dials, and asks here about every claim.
//! The worker with the lower index dials, so two workers never hold two links for the same pair of loops.

use crate::place;
use saetta_model::assignment::{Assignment, Placement};
use saetta_model::loops::LoopRule;
use saetta_transport::handshake::{Claim, Refusal};
use saetta_transport::{Road, TargetKey};
use std::collections::{BTreeMap, BTreeSet};

/// Another worker of the topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) index: u32,
    pub(crate) host: String,
    pub(crate) port: u16,
    n_loops: u32,
    /// For people.
    name: String,
}

/// An incarnation that is gone for good: every ledger is to fail its trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) placement: u64,
    pub(crate) start: u64,
    pub(crate) index: u32,
}

/// See the head of this file.
pub(crate) struct Peers {
    own_index: u32,
    own_loops: u32,
    /// How any worker of the topology numbers its loops.
    rule: LoopRule,
    /// By placement id: what the newest assignment known names.
    others: BTreeMap<u64, Other>,
    links: BTreeSet<TargetKey>,
    /// Highest start number seen, by placement id. A lower one is a process that was declared lost.
    starts: BTreeMap<u64, u64>,
    /// Not yet told to the loops. At most two for each placement and event.
    gone: Vec<Gone>,
    /// Of placements the newest assignment does not name: they may still hand over what they have, in order.
    parting: Vec<Gone>,
    /// Told to stop: nobody is let in any more.
    pub(crate) leaving: bool,
}

impl Peers {
    pub(crate) fn new(assignment: &Assignment, own: &Placement, rule: &LoopRule, links: BTreeSet<TargetKey>) -> Self {
        let mut peers = Peers {
            own_index: own.index,
            own_loops: n_loops(rule, own),
            rule: rule.clone(),
            others: BTreeMap::new(),
            links: BTreeSet::new(),
            starts: BTreeMap::new(),
            gone: Vec::new(),
            parting: Vec::new(),
            leaving: false,
        };
        peers.update(assignment, own, links);
        peers
    }

    /// A newer assignment. Placements it no longer names are about to part, and their start numbers forgotten: their ids are never used again.
    pub(crate) fn update(&mut self, assignment: &Assignment, own: &Placement, links: BTreeSet<TargetKey>) {
        let other = |w: &Placement| {
            let host = assignment.hosts.get(&w.slot.node).cloned().unwrap_or_default();
            let name = format!("{}:{}", w.slot.node, w.slot.port);
            Other { index: w.index, host, port: w.slot.port, n_loops: n_loops(&self.rule, w), name }
        };
        let named = assignment.workers.iter().filter(|w| w.id != own.id).map(|w| (w.id, other(w))).collect();
        let before = std::mem::replace(&mut self.others, named);
        for (placement, other) in before.into_iter().filter(|(placement, _)| !self.others.contains_key(placement)) {
            // There may have been later starts than the one seen here. Two in a row have all bits that any of them has.
            let seen = self.starts.get(&placement).copied().unwrap_or(0);
            self.parting.extend([seen, seen + 1].map(|start| Gone { placement, start, index: other.index }));
        }
        self.starts.retain(|id, _| self.others.contains_key(id));
        self.links = links;
    }

    /// Another set of links between the same workers.
    pub(crate) fn set_links(&mut self, links: BTreeSet<TargetKey>) {
        self.links = links;
    }

    /// The links there should be.
    pub(crate) fn links(&self) -> &BTreeSet<TargetKey> {
        &self.links
    }

    /// Whoever is about to part has gone, as far as `is` says so by its placement.
    pub(crate) fn part(&mut self, is: impl Fn(u64) -> bool) {
        let (gone, parting) = std::mem::take(&mut self.parting).into_iter().partition(|g: &Gone| is(g.placement));
        let gone: Vec<Gone> = gone;
        self.gone.extend(gone);
        self.parting = parting;
    }

    /// Links this side dials.
    pub(crate) fn dialled(&self) -> impl Iterator<Item = (TargetKey, &Other)> {
        let known = self.links.iter().filter_map(|key| Some((*key, self.others.get(&key.placement)?)));
        known.filter(|(_, other)| self.own_index < other.index)
    }

    /// How many links there should be.
    pub(crate) fn n_links(&self) -> usize {
        self.links.iter().filter(|key| key.road == Road::Data).count()
    }

    /// For people.
    pub(crate) fn name(&self, placement: u64) -> String {
        self.others.get(&placement).map_or_else(|| format!("placement {placement:016x}"), |o| o.name.clone())
    }

    /// Notes a start number; a higher one than before declares what came before it lost. False = it is below the highest seen: this process
    /// was declared lost.
    pub(crate) fn note_start(&mut self, placement: u64, start: u64) -> bool {
        let highest = self.starts.entry(placement).or_insert(start);
        let before = std::mem::replace(highest, start.max(*highest));
        if before < start
            && let Some(other) = self.others.get(&placement)
        {
            // Those between were never seen here, but others may have sent frames to them. Two in a row have all bits that any of them has.
            let first = before.max(start.saturating_sub(2));
            self.gone.extend((first..start).map(|start| Gone { placement, start, index: other.index }));
        }
        before <= start
    }

    /// Incarnations found lost since this was asked last.
    pub(crate) fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    /// Whether a proven claim for a link is admitted. The text reaches the dialer, who tries again: a claim refused for an assignment that
    /// is not known here yet is admitted once it is.
    pub(crate) fn admit(&mut self, claim: &Claim) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal(text));
        if self.leaving {
            return refuse("this worker is stopping".into());
        }
        let Some(other) = self.others.get(&claim.from.placement) else {
            return refuse(format!("placement {:016x} is not in the newest assignment known here", claim.from.placement));
        };
        if claim.from.index != other.index {
            return refuse(format!("that placement has index {}, not {}", other.index, claim.from.index));
        }
        if claim.from_loop >= other.n_loops || claim.to_loop >= self.own_loops {
            return refuse(format!("no such loops: {} there, {} here", claim.from_loop, claim.to_loop));
        }
        let key = TargetKey { placement: claim.from.placement, local_loop: claim.to_loop, remote_loop: claim.from_loop, road: claim.road };
        if !self.links.contains(&key) {
            return refuse("these two loops exchange nothing in the newest assignment known here".into());
        }
        if other.index > self.own_index {
            return refuse("the worker with the lower index dials, and that is this one".into());
        }
        if !self.note_start(claim.from.placement, claim.from.start) {
            return refuse(format!("start {} of that placement was followed by {}", claim.from.start, self.starts[&claim.from.placement]));
        }
        Ok(())
    }
}

/// An executor on a core its worker does not have leaves none; `place::links` has refused such an assignment before.
fn n_loops(rule: &LoopRule, worker: &Placement) -> u32 {
    place::loops(rule, worker).map_or(0, |l| l.cores.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_model::Name;
    use saetta_model::assignment::ExecutorPlace;
    use saetta_model::cluster::SlotId;
    use saetta_model::parallelism::{ExecutorId, Layout};
    use saetta_model::topology::TopologySpec;
    use saetta_transport::{Identity, Role};

    /// Spout `a` and bolt `b` reading it, two executors each: tasks a 1-2, b 3-4; without ackers.
    fn topology() -> (TopologySpec, Layout) {
        let spec = spec();
        let config = place::config(&[("topology.acker.executors".into(), "0".into())].into(), &BTreeMap::new()).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        (spec, layout)
    }

    fn spec() -> TopologySpec {
        use saetta_model::topology::{ComponentKind, ComponentSpec, FieldSpec, Format, Grouping, InputSpec, StreamSpec};
        let component = |id: &str, kind, outputs, inputs| ComponentSpec {
            id: Name::new(id).unwrap(),
            kind,
            executors: 2,
            tasks: None,
            resources: Default::default(),
            outputs,
            inputs,
            config: BTreeMap::new(),
            tracked: false,
        };
        let stream =
            StreamSpec { name: Name::new("S").unwrap(), schema: 1, fields: vec![FieldSpec { name: "n".into(), ty: "u64".into() }] };
        let input = InputSpec { from: Name::new("a").unwrap(), stream: Name::new("S").unwrap(), grouping: Grouping::Shuffle };
        TopologySpec {
            saetta: "0.1.0".into(),
            format: Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 },
            components: vec![
                component("a", ComponentKind::Spout, vec![stream], vec![]),
                component("b", ComponentKind::Bolt, vec![], vec![input]),
            ],
        }
    }

    /// Spout `a` -> bolt `b` -> bolt `c`, one executor each: tasks a 1, b 2, c 3, after the ackers.
    fn chain(tracked: bool, ackers: u32) -> (TopologySpec, Layout) {
        let mut spec = spec();
        spec.components[1].outputs = spec.components[0].outputs.clone();
        let mut last = spec.components[1].clone();
        last.id = Name::new("c").unwrap();
        last.outputs.clear();
        last.inputs[0].from = Name::new("b").unwrap();
        spec.components.push(last);
        spec.components.iter_mut().for_each(|c| c.executors = 1);
        spec.components[0].tracked = tracked;
        let config = place::config(&[("topology.acker.executors".into(), ackers.to_string())].into(), &BTreeMap::new()).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        (spec, layout)
    }

    fn worker(node: &str, id: u64, index: u32, cores: &[u32], executors: &[(u32, u32)]) -> Placement {
        Placement {
            slot: SlotId { node: Name::new(node).unwrap(), port: 6700 },
            id,
            index,
            cores: cores.to_vec(),
            share: 1,
            executors: executors
                .iter()
                .map(|(task, core)| ExecutorPlace {
                    id: ExecutorId { first: *task, last: *task },
                    core: *core,
                    started_ms: 0,
                    planned: false,
                })
                .collect(),
        }
    }

    fn assignment(workers: Vec<Placement>) -> Assignment {
        let hosts = workers.iter().map(|w| (w.slot.node.clone(), "127.0.0.1".to_owned())).collect();
        Assignment { version: 1, binary: String::new(), hosts, workers }
    }

    fn peers_of(assignment: &Assignment, id: u64) -> Peers {
        let (spec, layout) = topology();
        let own = place::placement(assignment, id).unwrap();
        let rule = LoopRule::default();
        Peers::new(assignment, own, &rule, place::links(&spec, &layout, &rule, assignment, own).unwrap())
    }

    fn claim(placement: u64, start: u64, index: u32, from_loop: u32, to_loop: u32) -> Claim {
        let from = Identity { topology: "t".into(), placement, start, index, format: [0; 32], ring_bytes: 1 << 18 };
        Claim { role: Role::Link, from, from_loop, to_loop, road: Road::Data, to_placement: 0 }
    }

    #[test]
    fn there_is_a_link_where_tuples_may_flow_and_the_lower_index_dials_it() {
        // x: a[1] on its loop 0, b[3] on its loop 1. y: a[2] on its loop 0, nothing on its loop 1.
        let all = assignment(vec![worker("x", 10, 0, &[4, 5], &[(1, 4), (3, 5)]), worker("y", 20, 1, &[6, 7], &[(2, 6)])]);
        let (x, y) = (peers_of(&all, 10), peers_of(&all, 20));
        let dialled: Vec<_> =
            x.dialled().map(|(key, other)| (key.placement, key.local_loop, key.remote_loop, key.road, other.port)).collect();
        let both = [Road::Data, Road::Control].map(|road| (20, 1, 0, road, 6700));
        assert_eq!(dialled, both, "spouts exchange nothing; y's spout reaches x's bolt");
        assert_eq!(y.dialled().count(), 0);
        assert_eq!(y.n_links(), 1);
    }

    /// Which of three workers that hold one of these executors each, on one core, are linked; each side says the same.
    fn linked((spec, layout): &(TopologySpec, Layout), tasks: [&[u32]; 3]) -> Vec<(u64, u64)> {
        let worker = |(n, tasks): (usize, &&[u32])| {
            let executors: Vec<(u32, u32)> = tasks.iter().map(|task| (*task, 4)).collect();
            worker(["x", "y", "z"][n], 10 * (1 + n as u64), n as u32, &[4], &executors)
        };
        let all = assignment(tasks.iter().enumerate().map(worker).collect());
        let mut seen: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        for own in &all.workers {
            for key in place::links(spec, layout, &LoopRule::default(), &all, own).unwrap() {
                assert_eq!((key.local_loop, key.remote_loop), (0, 0));
                *seen.entry((own.id.min(key.placement), own.id.max(key.placement))).or_insert(0) += 1;
            }
        }
        assert!(seen.values().all(|n| *n == 4), "two roads, and both sides say so: {seen:?}");
        seen.into_keys().collect()
    }

    #[test]
    fn acks_have_links_where_tuples_need_none_and_the_topology_tracks() {
        let chain_links = [(10, 20), (20, 30)];
        let triangle = [(10, 20), (10, 30), (20, 30)];
        assert_eq!(linked(&chain(false, 1), [&[1, 2], &[3], &[4]]), chain_links, "nothing is tracked");
        assert_eq!(linked(&chain(true, 0), [&[1], &[2], &[3]]), chain_links, "nothing is acked");
        assert_eq!(linked(&chain(true, 1), [&[1, 2], &[3], &[4]]), triangle, "c acks to the spout's loop");
        // The only acker is with b: the spout and c reach it as it is; but a timeout is begun anew at the spout.
        assert_eq!(linked(&chain(true, 1), [&[2], &[1, 3], &[4]]), triangle);
        // An acker elsewhere; a and b on one worker, c on another.
        assert_eq!(linked(&chain(true, 1), [&[2, 3], &[4], &[1]]), triangle, "who emits and who handles, both to the ledger");
        assert_eq!(linked(&chain(false, 1), [&[2, 3], &[4], &[1]]), [(10, 20)]);
    }

    #[test]
    fn a_claim_is_admitted_only_as_the_newest_assignment_says() {
        let all = assignment(vec![worker("x", 10, 0, &[4, 5], &[(1, 4), (3, 5)]), worker("y", 20, 1, &[6, 7], &[(2, 6)])]);
        let mut y = peers_of(&all, 20);
        let mut refused = |c: Claim| y.admit(&c).unwrap_err().0;
        assert!(refused(claim(99, 1, 0, 1, 0)).contains("not in the newest assignment"));
        assert!(refused(claim(10, 1, 3, 1, 0)).contains("index 0, not 3"));
        assert!(refused(claim(10, 1, 0, 2, 0)).contains("no such loops"));
        assert!(refused(claim(10, 1, 0, 1, 1)).contains("exchange nothing"));
        y.admit(&claim(10, 5, 0, 1, 0)).unwrap();
        assert!(y.admit(&claim(10, 4, 0, 1, 0)).unwrap_err().0.contains("followed by 5"));
        y.admit(&claim(10, 5, 0, 1, 0)).unwrap();
        y.admit(&claim(10, 6, 0, 1, 0)).unwrap();
        y.leaving = true;
        assert!(y.admit(&claim(10, 6, 0, 1, 0)).unwrap_err().0.contains("stopping"));
        let mut x = peers_of(&all, 10);
        assert!(x.admit(&claim(20, 1, 1, 0, 1)).unwrap_err().0.contains("lower index dials"));
    }

    #[test]
    fn a_later_start_declares_those_before_it_lost() {
        let all = assignment(vec![worker("x", 10, 0, &[4, 5], &[(1, 4), (3, 5)]), worker("y", 20, 1, &[6, 7], &[(2, 6)])]);
        let mut y = peers_of(&all, 20);
        let gone = |start| Gone { placement: 10, start, index: 0 };
        assert!(y.note_start(10, 3) && y.note_start(10, 3));
        assert_eq!(y.take_gone(), [], "one that is seen for the first time replaces nobody known here");
        assert!(y.note_start(10, 4));
        assert_eq!(y.take_gone(), [gone(3)]);
        assert!(!y.note_start(10, 3), "it was declared lost");
        assert!(y.note_start(10, 9));
        assert_eq!(y.take_gone(), [gone(7), gone(8)], "with the bits of 4, 5 and 6 among theirs");
        assert_eq!(y.take_gone(), []);
    }

    /// Three workers of so many loops each, every component with an executor on every loop.
    fn wide(n_loops: u32) -> (TopologySpec, Layout, Assignment) {
        let mut spec = spec();
        spec.components.iter_mut().for_each(|c| c.executors = 3 * n_loops);
        let config = place::config(&[("topology.acker.executors".into(), "0".into())].into(), &BTreeMap::new()).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        let cores: Vec<u32> = (0..n_loops).collect();
        let worker = |n: u32| {
            let tasks = (1..=6 * n_loops).filter(|task| task % 3 == n);
            let executors: Vec<(u32, u32)> = tasks.enumerate().map(|(i, task)| (task, i as u32 % n_loops)).collect();
            worker(["x", "y", "z"][n as usize], 10 * (1 + u64::from(n)), n, &cores, &executors)
        };
        let all = assignment((0..3).map(worker).collect());
        (spec, layout, all)
    }

    #[test]
    fn above_the_most_links_the_loops_of_two_workers_share_one_and_both_sides_say_so() {
        let (spec, layout, all) = wide(4);
        let linking = |own: usize, max| place::linking(&spec, &layout, &LoopRule::default(), &all, &all.workers[own], max).unwrap();
        let own = linking(0, 32);
        assert_eq!((own.shares.len(), own.links.len()), (0, 2 * 4 * 8), "4 loops here and 8 elsewhere are 32 links");
        let mut ends = BTreeSet::new();
        for (n, worker) in all.workers.iter().enumerate() {
            let own = linking(n, 31);
            assert_eq!((own.shares.len(), own.links.len()), (2, 4));
            for share in own.shares {
                let loops = ((worker.id, share.local_loop), (share.placement, share.remote_loop));
                ends.insert((loops.0.min(loops.1), loops.0.max(loops.1)));
                let key =
                    |road| TargetKey { placement: share.placement, local_loop: share.local_loop, remote_loop: share.remote_loop, road };
                assert!([Road::Data, Road::Control].iter().all(|road| own.links.contains(&key(*road))));
            }
        }
        assert_eq!(ends.len(), 3, "one for each two workers, the same at both ends");
        let held: BTreeSet<_> = ends.iter().flat_map(|(one, two)| [*one, *two]).collect();
        assert_eq!(held.len(), 6, "each is held by a loop of its own");
    }

    #[test]
    fn one_worker_that_needs_too_many_links_makes_all_share_and_a_loop_that_blocks_holds_none() {
        // x has four loops of its own, y and z have one executor each.
        let rule = LoopRule { mode: saetta_model::loops::Mode::Dedicated, ..LoopRule::default() };
        let all = assignment(vec![
            worker("x", 10, 0, &[4], &[(1, 4), (2, 4), (3, 4), (4, 4)]),
            worker("y", 20, 1, &[6], &[(5, 6)]),
            worker("z", 30, 2, &[6], &[(6, 6)]),
        ]);
        let mut spec = spec();
        spec.components.iter_mut().for_each(|c| c.executors = 3);
        let config = place::config(&[("topology.acker.executors".into(), "0".into())].into(), &BTreeMap::new()).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        // a is 1 to 3, b is 4 to 6: y and z are linked with three loops of x each.
        let shares = |own: usize, rule: &LoopRule, max| place::linking(&spec, &layout, rule, &all, &all.workers[own], max).unwrap().shares;
        let between = |placement, local_loop, remote_loop| saetta_engine::Share { placement, local_loop, remote_loop };
        assert_eq!(shares(1, &rule, 6), []);
        assert_eq!(shares(1, &rule, 5), [between(10, 0, 1)], "y alone needs three, x six; y and z exchange nothing");
        assert_eq!(shares(0, &rule, 5), [between(20, 1, 0), between(30, 2, 0)]);
        let blocking = [1, 2, 3].map(|task| ExecutorId { first: task, last: task }).into();
        assert_eq!(shares(0, &LoopRule { blocking, ..rule }, 5), [between(20, 3, 0), between(30, 3, 0)]);
    }

    #[test]
    fn with_a_loop_per_executor_both_sides_count_executors() {
        // x: a[1] and b[3] on one core, loops 0 and 1. y: a[2] and b[4], loops 0 and 1.
        let all = assignment(vec![worker("x", 10, 0, &[4], &[(1, 4), (3, 4)]), worker("y", 20, 1, &[6], &[(2, 6), (4, 6)])]);
        let (spec, layout) = topology();
        let rule = LoopRule { mode: saetta_model::loops::Mode::Dedicated, ..LoopRule::default() };
        let peers = |id| {
            let own = place::placement(&all, id).unwrap();
            Peers::new(&all, own, &rule, place::links(&spec, &layout, &rule, &all, own).unwrap())
        };
        let (x, mut y) = (peers(10), peers(20));
        let data = x.dialled().filter(|(key, _)| key.road == Road::Data);
        let dialled: Vec<_> = data.map(|(key, _)| (key.local_loop, key.remote_loop)).collect();
        assert_eq!(dialled, [(0, 1), (1, 0)]);
        y.admit(&claim(10, 1, 0, 0, 1)).unwrap();
        y.admit(&claim(10, 1, 0, 1, 0)).unwrap();
        assert!(y.admit(&claim(10, 1, 0, 0, 2)).unwrap_err().0.contains("no such loops"));
    }

    #[test]
    fn an_update_forgets_who_left_and_admits_who_came() {
        let before = assignment(vec![worker("x", 10, 0, &[4], &[(1, 4)]), worker("y", 20, 1, &[6], &[(3, 6)])]);
        let mut y = peers_of(&before, 20);
        y.admit(&claim(10, 7, 0, 0, 0)).unwrap();
        let after = assignment(vec![worker("x", 11, 0, &[4], &[(1, 4)]), worker("y", 20, 1, &[6], &[(3, 6)])]);
        let (spec, layout) = topology();
        let own = place::placement(&after, 20).unwrap();
        y.update(&after, own, place::links(&spec, &layout, &LoopRule::default(), &after, own).unwrap());
        let gone = |start| Gone { placement: 10, start, index: 0 };
        assert_eq!(y.take_gone(), [], "it may still hand over what it has");
        y.part(|placement| placement == 11);
        assert_eq!(y.take_gone(), [], "that is another");
        y.part(|placement| placement == 10);
        assert_eq!(y.take_gone(), [gone(7), gone(8)], "and whatever started after what was seen");
        y.admit(&claim(10, 8, 0, 0, 0)).unwrap_err();
        y.admit(&claim(11, 1, 0, 0, 0)).unwrap();
    }

    #[test]
    fn other_cores_or_loops_need_a_new_start_and_other_executors_do_not() {
        let own = worker("y", 20, 1, &[6, 7], &[(3, 6)]);
        let shared = LoopRule::default();
        assert_eq!(place::needs_restart(&shared, &own, &own.clone()), None);
        assert_eq!(place::needs_restart(&shared, &own, &worker("y", 20, 1, &[6, 7], &[(4, 6), (1, 7)])), None);
        assert!(place::needs_restart(&shared, &own, &worker("y", 20, 1, &[6], &[(3, 6)])).unwrap().contains("cores"));
        assert!(place::needs_restart(&shared, &own, &worker("y", 20, 2, &[6, 7], &[(3, 6)])).unwrap().contains("index"));
        let dedicated = LoopRule { mode: saetta_model::loops::Mode::Dedicated, ..LoopRule::default() };
        let text = place::needs_restart(&dedicated, &own, &worker("y", 20, 1, &[6, 7], &[(3, 6), (4, 7)])).unwrap();
        assert!(text.contains("[6] and are on [6, 7]"), "{text}");
        assert_eq!(place::needs_restart(&dedicated, &own, &worker("y", 20, 1, &[6, 7], &[(4, 6)])), None, "another in its loop");
    }

    #[test]
    fn the_old_and_the_new_loop_of_an_executor_that_moves_are_linked_on_both_sides() {
        // b[3] goes from x's loop 1 to z's loop 0; a[1] from y, which is not named any more.
        let before = assignment(vec![worker("x", 10, 0, &[4, 5], &[(3, 5)]), worker("y", 20, 1, &[6], &[(1, 6)])]);
        let after = assignment(vec![worker("x", 10, 0, &[4, 5], &[]), worker("z", 30, 2, &[8], &[(1, 8), (3, 8)])]);
        let of = |own| place::move_links(&LoopRule::default(), &before, &after, own).unwrap();
        let both = |placement, local_loop, remote_loop| {
            [Road::Data, Road::Control].map(|road| TargetKey { placement, local_loop, remote_loop, road }).into()
        };
        assert_eq!(of(10), both(30, 1, 0));
        assert_eq!(of(30), both(10, 0, 1));
    }

    #[test]
    fn an_assignment_that_names_what_does_not_exist_is_refused() {
        let (_, layout) = topology();
        let config = place::config(&BTreeMap::new(), &BTreeMap::new()).unwrap();
        let plan = |own: &Placement| {
            let options = saetta_engine::Options::from_config(&config).unwrap();
            place::plan(layout.clone(), options, &LoopRule::default(), &assignment(vec![own.clone()]), own).map(|_| ())
        };
        plan(&worker("y", 1, 0, &[6], &[(1, 6)])).unwrap();
        assert!(plan(&worker("y", 1, 0, &[6], &[(9, 6)])).unwrap_err().contains("executor [9]"));
        assert!(plan(&worker("y", 1, 0, &[6], &[(1, 7)])).unwrap_err().contains("executor [1]"));
    }
}
