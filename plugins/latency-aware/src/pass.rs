//! One pass over the topologies: what runs stays where that is not much dearer, the rest goes where it is cheapest.
//!
//! Before: a board. After: another one; one that comes out of a pass as it went in is the plan. For each topology: its workers first
//! (as many as it wants and can get, each with room for its part of the executors), with what runs in place; then two ways to do better -
//! a search from there, and a fresh start - which are taken only where the gain is larger than the threshold and nothing more crosses
//! nodes. At last what `even` does with the same state is looked at: where less crosses nodes in it, it is taken. `even` knows no limits,
//! so that topologies that ask for some are placed as here.

use crate::choose::{Wanted, choose};
use crate::layout::{Layout, Places};
use crate::limits::Limits;
use crate::machines::Machines;
use crate::traffic::{Traffic, traffic};
use saetta_sdk::deal::{Board, Own, Share};
use saetta_sdk::{ExecId, NodeId, SlotId, Snapshot};
use std::collections::BTreeMap;

/// A topology that the round asks about; in the order of the board's shares.
pub(crate) struct Topo {
    pub(crate) traffic: Traffic,
    pub(crate) limits: Option<Limits>,
}

/// How a pass decides.
pub(crate) struct Pass<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) topologies: &'a [Topo],
    /// Least gain for which running executors move, percent of the cost.
    pub(crate) gain_pct: i128,
    pub(crate) should_stop: &'a dyn Fn() -> bool,
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

impl Topo {
    pub(crate) fn new(snapshot: &Snapshot<'_>, share: &Share) -> Self {
        let traffic = traffic(snapshot, share.topology);
        let limits = Limits::new(snapshot, share.topology, &traffic);
        Topo { traffic, limits }
    }
    /// Group of one of its executors.
    pub(crate) fn group(&self, share: &Share, exec: ExecId) -> usize {
        self.traffic.group[(exec.0 - share.row.first_exec) as usize]
    }
}

impl Pass<'_> {
    /// A pass from a placement.
    pub(crate) fn run<'b>(&self, mut board: Board<'b>) -> Board<'b> {
        let mut even = board.clone();
        board.give_up(&[]);
        for share in 0..self.topologies.len() {
            // Out of time: what waits is still placed, what runs stays.
            if !(self.should_stop)() || !board.shares()[share].unplaced.is_empty() {
                self.place(&mut board, share);
            }
        }
        let crossing = self.crossing(&board);
        if crossing == 0 || (self.should_stop)() {
            return board;
        }
        even.give_up(&[]);
        for (share, topo) in self.topologies.iter().enumerate() {
            match topo.limits {
                None => even.deal(share),
                Some(_) => self.place(&mut even, share),
            }
        }
        let n_unplaced = |board: &Board<'_>| board.shares().iter().map(|s| s.unplaced.len()).sum::<usize>();
        if n_unplaced(&even) <= n_unplaced(&board) && self.crossing(&even) < crossing { even } else { board }
    }

    /// Thousandths of bytes per second between nodes, of all topologies.
    fn crossing(&self, board: &Board<'_>) -> i128 {
        let of = |(i, topo): (usize, &Topo)| {
            let (share, pinned) = (&board.shares()[i], board.pinned(i));
            let places = share.own.iter().chain(&pinned).flat_map(|own| own.executors.iter().map(|e| (board.node_of(own.slot), *e)));
            topo.crossing(places.map(|(node, exec)| (node, topo.group(share, exec), 1)))
        };
        self.topologies.iter().enumerate().map(of).sum()
    }

    fn place(&self, board: &mut Board<'_>, share: usize) {
        let places = self.places_of(board, share);
        board.settle(share, places);
    }

    /// Where a topology's executors should be, but for those in pinned slots.
    fn places_of(&self, board: &Board<'_>, index: usize) -> Vec<(ExecId, SlotId)> {
        let (share, topo) = (&board.shares()[index], &self.topologies[index]);
        let n_execs = share.n_execs as usize;
        let n_workers = share.workers().min(n_execs);
        let pinned = board.pinned(index);
        let own: Vec<SlotId> = share.own.iter().map(|o| o.slot).collect();
        let pinned_slots: Vec<SlotId> = pinned.iter().map(|o| o.slot).collect();
        let anchors: Vec<SlotId> = own.iter().chain(&pinned_slots).copied().collect();
        let nodes_min = topo.limits.as_ref().map_or(0, |l| l.nodes_min);
        let wanted = Wanted { anchors: &anchors, also: &[], n: n_workers.saturating_sub(own.len()), nodes_min };
        let new = choose(self.machines, board, &wanted);
        if own.is_empty() && new.is_empty() {
            return Vec::new();
        }
        let job = Job { pass: self, topo, share, pinned: &pinned, n_execs };
        if own.is_empty() {
            let places = job.places(&new);
            return job.realize(&job.fresh(&places, &new), &new);
        }

        // What runs stays as far as workers wanted and room allow.
        let with = |n_new: usize| -> Vec<SlotId> { own.iter().chain(&new[..n_new]).copied().collect() };
        let slots = with(new.len());
        let places = job.places(&slots);
        let mut kept = job.start(&places, &slots, Start::Staying);
        kept.repair();
        kept.improve(self.should_stop);
        let mut chosen = job.realize(&kept, &slots);
        if !board.may_move(board.n_moves(index, &chosen)) {
            // No move is left for that: only what waits is placed.
            let slots = with(new.len().min(share.unplaced.len()));
            let places = job.places(&slots);
            let mut still = job.start(&places, &slots, Start::Staying);
            still.improve(self.should_stop);
            return job.realize(&still, &slots);
        }

        let (mut cost, mut n_left, mut crossing) = (kept.cost(), kept.n_left(), topo.crossing(kept.by_node()));
        let mut take = |layout: &Layout<'_>, slots: &[SlotId]| {
            let is_cheaper = layout.n_left() == n_left && layout.cost() * 100 < cost * (100 - self.gain_pct);
            let crosses = topo.crossing(layout.by_node());
            if layout.n_left() < n_left || (is_cheaper && crosses <= crossing) {
                let next = job.realize(layout, slots);
                if board.may_move(board.n_moves(index, &next)) {
                    (cost, n_left, crossing, chosen) = (layout.cost(), layout.n_left(), crosses, next);
                }
            }
        };
        let is_best = |layout: &Layout<'_>| (layout.cost() == 0 && layout.n_left() == 0) || (self.should_stop)();
        if !is_best(&kept) {
            kept.unfix();
            kept.improve(self.should_stop);
            take(&kept, &slots);
        }
        if !is_best(&kept) {
            let slots = choose(self.machines, board, &Wanted { anchors: &pinned_slots, also: &own, n: slots.len(), nodes_min });
            let places = job.places(&slots);
            take(&job.fresh(&places, &slots), &slots);
        }
        chosen
    }
}

impl Topo {
    /// Thousandths of bytes per second between nodes, of so many executors of groups on nodes.
    fn crossing(&self, placed: impl Iterator<Item = (NodeId, usize, u32)>) -> i128 {
        let mut on: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for (node, group, n) in placed {
            on.entry(node).or_insert_with(|| vec![0; self.traffic.comp.len()])[group] += n;
        }
        self.traffic.crossing(&on)
    }
}

/// One topology to be placed. Its slots come first among the places of a layout, then those that are pinned.
struct Job<'a> {
    pass: &'a Pass<'a>,
    topo: &'a Topo,
    share: &'a Share,
    pinned: &'a [Own],
    /// That are not pinned.
    n_execs: usize,
}

impl Job<'_> {
    fn places(&self, slots: &[SlotId]) -> Places {
        let all: Vec<SlotId> = slots.iter().copied().chain(self.pinned.iter().map(|o| o.slot)).collect();
        let machines = self.pass.machines;
        Places { distance: machines.matrix(&all), node: all.iter().map(|s| machines.seat(*s).node).collect(), n_open: slots.len() }
    }

    /// The cheaper of two ways to place all executors that are not pinned, wherever they run.
    fn fresh<'l>(&'l self, places: &'l Places, slots: &[SlotId]) -> Layout<'l> {
        let begin = |how: Start| {
            let mut layout = self.start(places, slots, how);
            layout.repair();
            layout.improve(self.pass.should_stop);
            layout
        };
        let one_by_one = begin(Start::OneByOne);
        if one_by_one.cost() == 0 && one_by_one.n_left() == 0 {
            return one_by_one;
        }
        let in_bunches = begin(Start::InBunches);
        let key = |layout: &Layout<'_>| (layout.n_left(), layout.cost());
        if key(&in_bunches) < key(&one_by_one) { in_bunches } else { one_by_one }
    }

    /// Executors in slots. Each slot has room for an even part of the executors, and for as much as its part of all the cores.
    fn start<'l>(&'l self, places: &'l Places, slots: &[SlotId], how: Start) -> Layout<'l> {
        let power = |s: &SlotId| u64::from(self.pass.machines.seat(*s).power);
        let all: u64 = slots.iter().map(power).sum();
        let even = self.n_execs.div_ceil(slots.len().max(1)) as u64;
        let part = |s: &SlotId| (self.n_execs as u64 * power(s)).div_ceil(all.max(1)).max(even);
        let room = slots.iter().map(|s| part(s) as u32).chain(self.pinned.iter().map(|o| o.executors.len() as u32)).collect();
        let weights = &self.topo.traffic.weights;
        let mut layout = Layout::new(weights, places, self.topo.limits.as_ref(), room);
        let mut todo = vec![0; weights.n_groups()];
        let count = |execs: &[ExecId], of: &mut [u32]| execs.iter().for_each(|e| of[self.topo.group(self.share, *e)] += 1);
        count(&self.share.unplaced, &mut todo);
        let place: BTreeMap<SlotId, usize> = slots.iter().enumerate().map(|(p, s)| (*s, p)).collect();
        let own = self.share.own.iter().map(|o| (o, place.get(&o.slot).copied().filter(|_| how == Start::Staying)));
        let pinned = self.pinned.iter().enumerate().map(|(p, o)| (o, Some(slots.len() + p)));
        for (own, place) in own.chain(pinned) {
            let mut here = vec![0; todo.len()];
            count(&own.executors, if place.is_some() { &mut here } else { &mut todo });
            for (group, n) in here.into_iter().enumerate().filter(|(_, n)| *n > 0) {
                place.into_iter().for_each(|p| layout.add(group, p, n));
            }
        }
        layout.fix_all();
        match how {
            Start::InBunches => layout.bunches(todo),
            Start::Staying | Start::OneByOne => layout.greedy(todo),
        }
        layout
    }

    /// The places that a layout stands for: of each group, those stay that are where some should be.
    fn realize(&self, layout: &Layout<'_>, slots: &[SlotId]) -> Vec<(ExecId, SlotId)> {
        let n_groups = layout.n_groups();
        let mut left: Vec<Vec<u32>> = (0..n_groups).map(|g| (0..slots.len()).map(|p| layout.count(g, p)).collect()).collect();
        let mut loose: Vec<Vec<ExecId>> = vec![Vec::new(); n_groups];
        let mut places = Vec::with_capacity(self.n_execs);
        for own in &self.share.own {
            let place = slots.iter().position(|s| *s == own.slot);
            for exec in &own.executors {
                let group = self.topo.group(self.share, *exec);
                match place.filter(|p| left[group][*p] > 0) {
                    Some(p) => {
                        left[group][p] -= 1;
                        places.push((*exec, own.slot));
                    }
                    None => loose[group].push(*exec),
                }
            }
        }
        self.share.unplaced.iter().for_each(|e| loose[self.topo.group(self.share, *e)].push(*e));
        for (left, mut execs) in left.into_iter().zip(loose) {
            execs.sort_unstable();
            let seats = slots.iter().zip(left).flat_map(|(slot, n)| std::iter::repeat_n(*slot, n as usize));
            places.extend(execs.into_iter().zip(seats));
        }
        places.sort_unstable();
        places
    }
}
