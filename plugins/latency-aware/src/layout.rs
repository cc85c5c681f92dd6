//! Groups of executors over places, with distances between places and room in each: what a layout costs, and a bounded local improvement.
//!
//! Before: `traffic.rs` has weights; the caller has places and room, and `start.rs` a first layout. After: how many executors of each group
//! are in each place. The same code places executors in workers and a worker's executors on cores. Executors of a group are alike, so that
//! counts are the whole state and a step costs groups x places, whatever the number of executors. Integers only: the same on every machine.
//! Not here: who moves.

use crate::limits::Limits;
use crate::traffic::Matrix;
use saetta_sdk::NodeId;

/// Steps looked at in one improvement, each over at most all groups; what is found by then is taken.
const STEPS_MAX: u32 = 1 << 18;
/// Steps between two looks at the time.
const STEPS_PER_LOOK: u32 = 4096;

/// Where executors can be.
#[derive(Debug)]
pub(crate) struct Places {
    /// Of each two, row by row; 0 from a place to itself.
    pub(crate) distance: Vec<i128>,
    /// Node of each.
    pub(crate) node: Vec<NodeId>,
    /// The first so many take more; those after them keep what they hold.
    pub(crate) n_open: usize,
}

/// A state of the search.
#[derive(Clone)]
pub(crate) struct Layout<'a> {
    pub(super) weights: &'a Matrix,
    pub(super) places: &'a Places,
    /// What the topology asks for; then room is a wish.
    pub(super) limits: Option<&'a Limits>,
    pub(super) n_places: usize,
    /// Most executors, by place.
    pub(super) room: Vec<u32>,
    /// Executors, by place.
    pub(super) fill: Vec<u32>,
    /// Executors by place, then group.
    count: Vec<u32>,
    /// Those among them that stay.
    pub(super) fixed: Vec<u32>,
    /// By group, then place: what one executor of the group would pay there for all that are placed, one of itself not left out.
    pull: Vec<i128>,
    /// Executors for which there was no place.
    pub(super) n_left: u32,
}

impl<'a> Layout<'a> {
    /// Nothing placed.
    pub(crate) fn new(weights: &'a Matrix, places: &'a Places, limits: Option<&'a Limits>, room: Vec<u32>) -> Self {
        let (n_places, n_groups) = (room.len(), weights.n_groups());
        assert_eq!(places.distance.len(), n_places * n_places, "a distance for each two places");
        let size = n_groups * n_places;
        let (fill, count, fixed, pull) = (vec![0; n_places], vec![0; size], vec![0; size], vec![0; size]);
        Layout { weights, places, limits, n_places, room, fill, count, fixed, pull, n_left: 0 }
    }

    pub(super) fn at(&self, group: usize, place: usize) -> usize {
        place * self.weights.n_groups() + group
    }
    pub(super) fn far(&self, a: usize, b: usize) -> i128 {
        self.places.distance[a * self.n_places + b]
    }
    pub(super) fn pull(&self, group: usize, place: usize) -> i128 {
        self.pull[group * self.n_places + place]
    }
    /// Groups.
    pub(crate) fn n_groups(&self) -> usize {
        self.weights.n_groups()
    }
    /// Executors of a group in a place.
    pub(crate) fn count(&self, group: usize, place: usize) -> u32 {
        self.count[self.at(group, place)]
    }
    /// Executors for which there was no place.
    pub(crate) fn n_left(&self) -> u32 {
        self.n_left
    }
    /// Node and group of each executor that is placed.
    pub(crate) fn by_node(&self) -> impl Iterator<Item = (NodeId, usize, u32)> + '_ {
        let all = (0..self.n_groups()).flat_map(|g| (0..self.n_places).map(move |p| (g, p)));
        all.map(|(g, p)| (self.places.node[p], g, self.count(g, p))).filter(|(.., n)| *n > 0)
    }

    /// `n` executors more.
    pub(crate) fn add(&mut self, group: usize, place: usize, n: u32) {
        let at = self.at(group, place);
        self.count[at] += n;
        self.fill[place] += n;
        self.tell(group, place, i128::from(n));
    }
    fn remove(&mut self, group: usize, place: usize) {
        let at = self.at(group, place);
        self.count[at] -= 1;
        self.fill[place] -= 1;
        self.tell(group, place, -1);
    }
    fn tell(&mut self, group: usize, place: usize, n: i128) {
        let far = &self.places.distance[place * self.n_places..][..self.n_places];
        for other in 0..self.weights.n_groups() {
            let weight = n * self.weights.get(group, other);
            if weight != 0 {
                let pull = &mut self.pull[other * self.n_places..][..self.n_places];
                pull.iter_mut().zip(far).for_each(|(pull, far)| *pull += weight * far);
            }
        }
    }
    pub(super) fn relocate(&mut self, group: usize, from: usize, to: usize) {
        self.remove(group, from);
        self.add(group, to, 1);
    }

    /// What is placed stays, here and in copies.
    pub(crate) fn fix_all(&mut self) {
        self.fixed.copy_from_slice(&self.count);
    }
    /// Nothing stays but what is in places that take nothing new.
    pub(crate) fn unfix(&mut self) {
        let n_open = self.at(0, self.places.n_open);
        self.fixed[..n_open].fill(0);
    }

    /// Bytes times distance over all pairs.
    pub(crate) fn cost(&self) -> i128 {
        let all = (0..self.n_groups()).flat_map(|g| (0..self.n_places).map(move |p| (g, p)));
        all.map(|(g, p)| i128::from(self.count(g, p)) * self.pull(g, p)).sum::<i128>() / 2
    }

    /// True when one of a group, or several at once, may join those in a place.
    pub(super) fn may_join(&self, joining: &[usize], place: usize) -> bool {
        let Some(limits) = self.limits else { return true };
        let more = |g: usize| joining.iter().filter(|j| **j == g).count() as u32;
        limits.allow_worker(|g| self.count(g, place) + more(g))
            && joining.iter().all(|j| limits.allow_node(*j, |g| self.on_node_of(g, place) + more(g)))
    }
    /// True when those in a place, one of the group among them, may be there.
    fn is_allowed(&self, group: usize, place: usize) -> bool {
        self.limits
            .is_none_or(|limits| limits.allow_worker(|g| self.count(g, place)) && limits.allow_node(group, |g| self.on_node_of(g, place)))
    }
    fn on_node_of(&self, group: usize, place: usize) -> u32 {
        let node = &self.places.node;
        (0..self.n_places).filter(|p| node[*p] == node[place]).map(|p| self.count(group, p)).sum()
    }

    pub(super) fn change(&self, group: usize, from: usize, to: usize) -> i128 {
        self.pull(group, to) - self.weights.get(group, group) * self.far(from, to) - self.pull(group, from)
    }
    fn change_of_swap(&self, (g, s): (usize, usize), (h, t): (usize, usize)) -> i128 {
        let own = 2 * self.weights.get(g, h) - self.weights.get(g, g) - self.weights.get(h, h);
        self.pull(g, t) - self.pull(g, s) + self.pull(h, s) - self.pull(h, t) + own * self.far(s, t)
    }
    fn may_leave(&self, group: usize, place: usize) -> bool {
        let at = self.at(group, place);
        self.count[at] > self.fixed[at]
    }
    /// Moves an executor, and another one back. False, and nothing has changed, where limits do not allow it.
    fn step(&mut self, (g, s): (usize, usize), t: usize, back: Option<usize>) -> bool {
        self.relocate(g, s, t);
        back.into_iter().for_each(|h| self.relocate(h, t, s));
        let may = self.is_allowed(g, t) && back.is_none_or(|h| self.is_allowed(h, s));
        if !may {
            back.into_iter().for_each(|h| self.relocate(h, s, t));
            self.relocate(g, t, s);
        }
        may
    }

    /// Moves one executor, or where that gains nothing changes the places of two, as long as that makes it cheaper and steps are left.
    /// Everything taken makes it cheaper, so it ends; what it ends in is not improved by a second call.
    pub(crate) fn improve(&mut self, should_stop: &dyn Fn() -> bool) {
        let mut steps = 0;
        let mut may_go_on = || {
            steps += 1;
            steps < STEPS_MAX && (steps % STEPS_PER_LOOK != 0 || !should_stop())
        };
        while self.sweep(false, &mut may_go_on) || self.sweep(true, &mut may_go_on) {}
    }

    /// Looks at every step of one kind once. True = one was taken, and steps are left.
    fn sweep(&mut self, swaps: bool, may_go_on: &mut dyn FnMut() -> bool) -> bool {
        let (n_groups, n_places) = (self.weights.n_groups(), self.n_places);
        let mut taken = false;
        for g in 0..n_groups {
            for s in 0..n_places {
                for t in (0..n_places).filter(|t| s != *t) {
                    if !self.may_leave(g, s) || (!swaps && self.fill[s] == 1) {
                        break; // whatever t is
                    }
                    if !may_go_on() {
                        return false;
                    }
                    if !swaps && self.fill[t] < self.room[t] && self.change(g, s, t) < 0 {
                        taken |= self.step((g, s), t, None);
                    }
                    for h in if swaps { g + 1..n_groups } else { 0..0 } {
                        if self.may_leave(g, s) && self.may_leave(h, t) && self.change_of_swap((g, s), (h, t)) < 0 {
                            taken |= self.step((g, s), t, Some(h));
                        }
                    }
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> bool {
        false
    }

    /// Four groups with uneven weights over four places in two pairs.
    fn rig() -> (Matrix, Places) {
        let mut weights = Matrix::new(4);
        for (a, b, w) in [(0, 1, 7), (1, 2, 5), (2, 3, 11), (0, 3, 1), (1, 1, 3)] {
            weights.add(a, b, w);
        }
        let distance = (0..16).map(|i| [0, 2, 20][usize::from(i / 4 != i % 4) + usize::from(i / 8 != i % 4 / 2)]).collect();
        (weights, Places { distance, node: (0..4).map(|p| NodeId(p / 2)).collect(), n_open: 4 })
    }

    fn slow_cost(layout: &Layout<'_>) -> i128 {
        let execs: Vec<(usize, usize)> =
            (0..4).flat_map(|g| (0..4).flat_map(move |p| std::iter::repeat_n((g, p), layout.count(g, p) as usize))).collect();
        let mut cost = 0;
        for (i, (g, s)) in execs.iter().enumerate() {
            for (h, t) in &execs[i + 1..] {
                cost += layout.weights.get(*g, *h) * layout.far(*s, *t);
            }
        }
        cost
    }

    #[test]
    fn what_a_step_is_said_to_change_is_what_the_cost_changes() {
        let (weights, places) = rig();
        let mut layout = Layout::new(&weights, &places, None, vec![4; 4]);
        for (g, p, n) in [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 3, 1), (2, 1, 1), (3, 0, 1)] {
            layout.add(g, p, n);
        }
        assert_eq!(layout.cost(), slow_cost(&layout));
        for g in 0..4 {
            for (s, t) in (0..16).map(|i| (i / 4, i % 4)).filter(|(s, t)| s != t && layout.count(g, *s) > 0) {
                let mut next = layout.clone();
                next.relocate(g, s, t);
                assert_eq!(next.cost() - layout.cost(), layout.change(g, s, t), "{g}: {s} to {t}");
                assert_eq!(next.cost(), slow_cost(&next));
                for h in (0..4).filter(|h| *h != g && layout.count(*h, t) > 0) {
                    let mut next = next.clone();
                    next.relocate(h, t, s);
                    assert_eq!(next.cost() - layout.cost(), layout.change_of_swap((g, s), (h, t)), "{g} {s} with {h} {t}");
                }
            }
        }
    }

    #[test]
    fn a_start_fills_every_place_and_an_improvement_is_final() {
        let (weights, places) = rig();
        let mut layout = Layout::new(&weights, &places, None, vec![3; 4]);
        layout.greedy(vec![3, 3, 3, 1]);
        assert!(layout.fill.iter().all(|n| (1..=3).contains(n)), "{:?}", layout.fill);
        let start = layout.cost();
        layout.improve(&never);
        assert!(layout.cost() <= start);
        let (count, cost) = (layout.count.clone(), layout.cost());
        layout.improve(&never);
        assert_eq!((&layout.count, layout.cost()), (&count, cost));
    }

    #[test]
    fn what_is_fixed_stays_and_a_repair_moves_no_more_than_it_must() {
        let (weights, places) = rig();
        let mut layout = Layout::new(&weights, &places, None, vec![2; 4]);
        for (g, n) in [(0, 2), (1, 2), (2, 1)] {
            layout.add(g, 0, n);
        }
        layout.fix_all();
        layout.improve(&never);
        assert_eq!(layout.fill, [5, 0, 0, 0]);
        layout.repair();
        assert_eq!(layout.fill, [2, 1, 1, 1]);
    }
}
