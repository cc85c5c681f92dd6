//! One pass over the topologies: what runs stays where that is not much dearer, the rest goes where it is cheapest.
//!
//! Before: a placement. After: another one; one that comes out of a pass as it went in is the plan. For each topology: its workers first
//! (as many as it wants and can get, each with room for its part of the executors), with what runs in place; then two ways to do better -
//! a search from there, and a fresh start - which are taken only where the gain is larger than the threshold and nothing more crosses
//! nodes. At last `even`'s plan for the same state is looked at: where less crosses nodes in it, it is taken.

use crate::layout::Layout;
use crate::state::{Share, State, Topo, World};
use saetta_sdk::deal::{Own, deal, interleave};
use saetta_sdk::{ExecId, SlotId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How a pass decides.
pub(crate) struct Pass<'a> {
    pub(crate) world: &'a World,
    /// Least gain for which running executors move, percent of the cost.
    pub(crate) gain_pct: i128,
    pub(crate) should_stop: &'a dyn Fn() -> bool,
}

/// A layout with the slots its places are.
struct Candidate<'a> {
    layout: Layout<'a>,
    slots: Vec<SlotId>,
}

/// How a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// What runs where it runs, the rest around it.
    Staying,
    /// All anew.
    OneByOne,
    /// All anew, in bunches.
    InBunches,
}

impl Pass<'_> {
    /// A pass from a placement.
    pub(crate) fn run(&self, start: &State) -> State {
        let mut state = start.clone();
        self.give_up(&mut state);
        for topo in &self.world.topologies {
            // Out of time: what waits is still placed, what runs stays.
            if (self.should_stop)() && self.world.share(topo, &state).unplaced.is_empty() {
                continue;
            }
            state = self.place(topo, &state);
        }
        if (self.should_stop)() {
            return state;
        }
        let even = self.even(start);
        let (world, is_whole) = (self.world, self.world.n_unplaced(&even) <= self.world.n_unplaced(&state));
        if is_whole && world.may(&even) && world.crossing(&even) < world.crossing(&state) { even } else { state }
    }

    /// Workers beyond those wanted, the ones that hold fewest, lose their slots, for every topology before any is placed.
    fn give_up(&self, state: &mut State) {
        if self.world.max_moves.is_some() {
            return;
        }
        for topo in &self.world.topologies {
            let share = self.world.share(topo, state);
            let mut by_fill: Vec<&(SlotId, Vec<usize>)> = share.own.iter().collect();
            by_fill.sort_by_key(|(_, execs)| Reverse(execs.len()));
            let kept = &by_fill[..by_fill.len().min(topo.workers(&share))];
            let places = kept.iter().flat_map(|(slot, execs)| execs.iter().map(|i| (topo.exec(*i), *slot)));
            state.settle(topo, &share, places);
        }
    }

    fn place(&self, topo: &Topo, state: &State) -> State {
        let world = self.world;
        let share = world.share(topo, state);
        let free = world.free(state);
        let own: Vec<SlotId> = share.own.iter().map(|(slot, _)| *slot).collect();
        let pinned: Vec<SlotId> = share.pinned.iter().map(|(slot, _)| *slot).collect();
        let n_execs = share.own.iter().map(|(_, e)| e.len()).sum::<usize>() + share.unplaced.len();
        let n_slots = topo.workers(&share).min(own.len() + free.len()).min(n_execs);
        if n_execs == 0 || (n_slots == 0 && own.is_empty()) {
            return state.clone();
        }
        let anchors: Vec<SlotId> = own.iter().chain(&pinned).copied().collect();
        let new = world.machines.choose(&anchors, &free, n_slots.saturating_sub(own.len()));

        if own.is_empty() {
            let slots = new;
            let distance = self.distances(&slots, &pinned);
            return self.realize(topo, &share, &self.fresh(topo, &share, &distance, slots, n_execs), state);
        }

        // What runs stays as far as workers wanted and room allow.
        let with = |n_new: usize| -> Vec<SlotId> { own.iter().chain(&new[..n_new]).copied().collect() };
        let slots = with(new.len());
        let distance = self.distances(&slots, &pinned);
        let mut kept = self.start(topo, &share, &distance, slots, n_execs, Start::Staying);
        kept.layout.repair();
        kept.layout.improve(self.should_stop);
        let mut chosen = self.realize(topo, &share, &kept, state);
        if !world.may(&chosen) {
            // No move is left for that: only what waits is placed.
            let slots = with(new.len().min(share.unplaced.len()));
            let distance = self.distances(&slots, &pinned);
            let mut still = self.start(topo, &share, &distance, slots, n_execs, Start::Staying);
            still.layout.improve(self.should_stop);
            return self.realize(topo, &share, &still, state);
        }

        if (self.should_stop)() {
            return chosen;
        }
        let mut cost = kept.layout.cost();
        let mut take = |candidate: &Candidate<'_>| {
            if candidate.layout.cost() * 100 < cost * (100 - self.gain_pct) {
                let next = self.realize(topo, &share, candidate, state);
                if world.may(&next) && world.crossing_of(topo, &next) <= world.crossing_of(topo, &chosen) {
                    (cost, chosen) = (candidate.layout.cost(), next);
                }
            }
        };
        let n_kept = kept.slots.len();
        kept.layout.unfix_except(n_kept..n_kept + pinned.len());
        kept.layout.improve(self.should_stop);
        take(&kept);
        let mut all: Vec<SlotId> = own.iter().chain(&free).copied().collect();
        all.sort_unstable();
        let slots = world.machines.choose(&pinned, &all, n_slots);
        let distance = self.distances(&slots, &pinned);
        take(&self.fresh(topo, &share, &distance, slots, n_execs));
        chosen
    }

    /// The cheaper of two ways to place all executors that are not pinned, wherever they run.
    fn fresh<'l>(&self, topo: &'l Topo, share: &Share, distance: &'l [i128], slots: Vec<SlotId>, n_execs: usize) -> Candidate<'l> {
        let mut one_by_one = self.start(topo, share, distance, slots.clone(), n_execs, Start::OneByOne);
        let mut in_bunches = self.start(topo, share, distance, slots, n_execs, Start::InBunches);
        for candidate in [&mut one_by_one, &mut in_bunches] {
            candidate.layout.repair();
            candidate.layout.improve(self.should_stop);
        }
        if in_bunches.layout.cost() < one_by_one.layout.cost() { in_bunches } else { one_by_one }
    }

    /// Between the slots and the pinned ones after them.
    fn distances(&self, slots: &[SlotId], pinned: &[SlotId]) -> Vec<i128> {
        let all: Vec<SlotId> = slots.iter().chain(pinned).copied().collect();
        self.world.machines.matrix(&all)
    }

    /// Executors in slots, the pinned ones after them. Each slot has room for an even part of the executors, and for as much as its part
    /// of all the cores.
    fn start<'l>(
        &self,
        topo: &'l Topo,
        share: &Share,
        distance: &'l [i128],
        slots: Vec<SlotId>,
        n_execs: usize,
        how: Start,
    ) -> Candidate<'l> {
        let power = |s: &SlotId| u64::from(self.world.machines.seat(*s).power);
        let all: u64 = slots.iter().map(power).sum();
        let even = n_execs.div_ceil(slots.len().max(1)) as u64;
        let part = |s: &SlotId| (n_execs as u64 * power(s)).div_ceil(all.max(1)).max(even);
        let room = slots.iter().map(|s| part(s) as u32).chain(share.pinned.iter().map(|(_, e)| e.len() as u32)).collect();
        let mut layout = Layout::new(&topo.traffic.weights, distance, room);
        let mut todo = vec![0; topo.traffic.weights.n_groups()];
        share.unplaced.iter().for_each(|i| todo[topo.traffic.group[*i]] += 1);
        let place: BTreeMap<SlotId, usize> = slots.iter().enumerate().map(|(p, s)| (*s, p)).collect();
        for (slot, execs) in &share.own {
            for group in execs.iter().map(|i| topo.traffic.group[*i]) {
                match place.get(slot).filter(|_| how == Start::Staying) {
                    Some(p) => layout.add(group, *p),
                    None => todo[group] += 1,
                }
            }
        }
        for (p, (_, execs)) in share.pinned.iter().enumerate() {
            execs.iter().for_each(|i| layout.add(topo.traffic.group[*i], slots.len() + p));
        }
        layout.fix_all();
        match how {
            Start::InBunches => layout.bunches(todo),
            Start::Staying | Start::OneByOne => layout.greedy(todo),
        }
        Candidate { layout, slots }
    }

    /// The placement that a layout stands for: of each group, those stay that are where some should be.
    fn realize(&self, topo: &Topo, share: &Share, candidate: &Candidate<'_>, state: &State) -> State {
        let Candidate { layout, slots } = candidate;
        let groups = &topo.traffic.group;
        let n_groups = layout.n_groups();
        let mut left: Vec<Vec<u32>> = (0..n_groups).map(|g| (0..slots.len()).map(|p| layout.count(g, p)).collect()).collect();
        let mut loose: Vec<Vec<usize>> = vec![Vec::new(); n_groups];
        let mut places = Vec::new();
        for (slot, execs) in &share.own {
            let place = slots.iter().position(|s| s == slot);
            for i in execs {
                match place.filter(|p| left[groups[*i]][*p] > 0) {
                    Some(p) => {
                        left[groups[*i]][p] -= 1;
                        places.push((topo.exec(*i), *slot));
                    }
                    None => loose[groups[*i]].push(*i),
                }
            }
        }
        share.unplaced.iter().for_each(|i| loose[groups[*i]].push(*i));
        for (group, mut execs) in loose.into_iter().enumerate() {
            execs.sort_unstable();
            let seats = (0..slots.len()).flat_map(|p| std::iter::repeat_n(slots[p], left[group][p] as usize));
            places.extend(execs.into_iter().zip(seats).map(|(i, slot)| (topo.exec(i), slot)));
        }
        let mut next = state.clone();
        next.settle(topo, share, places);
        next
    }

    /// What `even` does with a placement.
    fn even(&self, start: &State) -> State {
        let (world, mut state) = (self.world, start.clone());
        self.give_up(&mut state);
        for topo in &world.topologies {
            let share = world.share(topo, &state);
            let index = |i: &usize| topo.exec(*i);
            let own: Vec<Own> = share.own.iter().map(|(slot, e)| Own { slot: *slot, executors: e.iter().map(index).collect() }).collect();
            let unplaced: Vec<ExecId> = share.unplaced.iter().map(index).collect();
            let workers = topo.workers(&share);
            let n_new = workers.saturating_sub(own.len());
            let mut new = Vec::new();
            for grey in [false, true] {
                let mut by_node: BTreeMap<u32, (u32, Vec<SlotId>)> = BTreeMap::new();
                for slot in world.free(&state).into_iter().filter(|s| world.machines.seat(*s).grey == grey) {
                    let seat = world.machines.seat(slot);
                    by_node.entry(seat.node.0).or_insert((seat.rank, Vec::new())).1.push(slot);
                }
                new.extend(interleave(by_node.values().map(|(rank, s)| (*rank, s.as_slice())), n_new - new.len()));
            }
            let places = deal(&own, &unplaced, &new, workers, false).places;
            state.settle(topo, &share, places);
        }
        state
    }
}
