//! Groups of executors over places, with distances between places and room in each: a greedy start and a bounded local improvement.
//!
//! Before: `traffic.rs` has weights; the caller has distances and room. After: how many executors of each group are in each place. The same
//! code places executors in workers and a worker's executors on cores. Executors of a group are alike, so that counts are the whole state
//! and a step costs groups x places, whatever the number of executors. Integers only: the same on every machine. Not here: who moves.

use crate::traffic::Matrix;

/// Steps looked at in one improvement, each over at most all groups; what is found by then is taken.
const STEPS_MAX: u32 = 4_000_000;
/// Steps between two looks at the time.
const STEPS_PER_LOOK: u32 = 4096;

/// A state of the search.
#[derive(Clone)]
pub(crate) struct Layout<'a> {
    weights: &'a Matrix,
    /// Distance of each two places, row by row; 0 from a place to itself.
    distance: &'a [i128],
    n_places: usize,
    /// Most executors, by place.
    room: Vec<u32>,
    /// Executors, by place.
    fill: Vec<u32>,
    /// Executors by group, then place.
    count: Vec<u32>,
    /// Those among them that stay.
    fixed: Vec<u32>,
    /// By group, then place: what one executor of the group would pay there for all that are placed, one of itself not left out.
    pull: Vec<i128>,
}

impl<'a> Layout<'a> {
    /// Nothing placed.
    pub(crate) fn new(weights: &'a Matrix, distance: &'a [i128], room: Vec<u32>) -> Self {
        let (n_places, n_groups) = (room.len(), weights.n_groups());
        assert_eq!(distance.len(), n_places * n_places, "a distance for each two places");
        let size = n_groups * n_places;
        let (fill, count, fixed, pull) = (vec![0; n_places], vec![0; size], vec![0; size], vec![0; size]);
        Layout { weights, distance, n_places, room, fill, count, fixed, pull }
    }

    fn at(&self, group: usize, place: usize) -> usize {
        group * self.n_places + place
    }
    fn far(&self, a: usize, b: usize) -> i128 {
        self.distance[a * self.n_places + b]
    }
    fn pull(&self, group: usize, place: usize) -> i128 {
        self.pull[self.at(group, place)]
    }
    /// Groups.
    pub(crate) fn n_groups(&self) -> usize {
        self.weights.n_groups()
    }
    /// Executors of a group in a place.
    pub(crate) fn count(&self, group: usize, place: usize) -> u32 {
        self.count[self.at(group, place)]
    }

    /// One executor more.
    pub(crate) fn add(&mut self, group: usize, place: usize) {
        let at = self.at(group, place);
        self.count[at] += 1;
        self.fill[place] += 1;
        self.tell(group, place, 1);
    }
    fn remove(&mut self, group: usize, place: usize) {
        let at = self.at(group, place);
        self.count[at] -= 1;
        self.fill[place] -= 1;
        self.tell(group, place, -1);
    }
    fn tell(&mut self, group: usize, place: usize, n: i128) {
        for other in 0..self.weights.n_groups() {
            let weight = n * self.weights.get(group, other);
            if weight != 0 {
                for to in 0..self.n_places {
                    self.pull[other * self.n_places + to] += weight * self.distance[place * self.n_places + to];
                }
            }
        }
    }
    fn relocate(&mut self, group: usize, from: usize, to: usize) {
        self.remove(group, from);
        self.add(group, to);
    }

    /// What is placed stays, here and in copies.
    pub(crate) fn fix_all(&mut self) {
        self.fixed.copy_from_slice(&self.count);
    }
    /// Nothing stays but what is in the places named.
    pub(crate) fn unfix_except(&mut self, places: std::ops::Range<usize>) {
        for at in 0..self.fixed.len() {
            if !places.contains(&(at % self.n_places)) {
                self.fixed[at] = 0;
            }
        }
    }

    /// Bytes times distance over all pairs.
    pub(crate) fn cost(&self) -> i128 {
        self.count.iter().zip(&self.pull).map(|(n, pull)| i128::from(*n) * pull).sum::<i128>() / 2
    }

    /// Places so many executors of each group, the one with the heaviest ties to those placed first, each where it is cheapest. No place
    /// stays empty while there are executors for it.
    pub(crate) fn greedy(&mut self, mut todo: Vec<u32>) {
        let n_groups = self.weights.n_groups();
        // Of one executor of a group to all that are placed. Where nothing is, the heaviest edge begins.
        let tie = |g: usize| (0..n_groups).map(|h| self.weights.get(g, h) * i128::from(self.n_placed(h))).sum();
        let mut ties: Vec<i128> = (0..n_groups).map(tie).collect();
        let heaviest: Vec<i128> = (0..n_groups).map(|g| (0..n_groups).map(|h| self.weights.get(g, h)).max().unwrap_or(0)).collect();
        let mut left: u32 = todo.iter().sum();
        while left > 0 {
            let next = (0..n_groups).filter(|g| todo[*g] > 0).max_by_key(|g| (ties[*g], heaviest[*g], std::cmp::Reverse(*g)));
            let group = next.expect("some are left");
            let n_empty = self.fill.iter().zip(&self.room).filter(|(fill, room)| **fill == 0 && **room > 0).count() as u32;
            let may = |p: &usize| if left <= n_empty { self.fill[*p] == 0 && self.room[*p] > 0 } else { self.fill[*p] < self.room[*p] };
            let best = (0..self.n_places).filter(may).min_by_key(|p| (self.pull(group, *p), self.fill[*p], *p));
            let Some(place) = best else { return };
            self.add(group, place);
            todo[group] -= 1;
            left -= 1;
            for (h, tie) in ties.iter_mut().enumerate() {
                *tie += self.weights.get(group, h);
            }
        }
    }
    /// Another start: executors are tied together, heaviest edges first, into bunches that a place has room for; the largest bunch is placed
    /// first, each where it is cheapest. Better than [`Layout::greedy`] where cutting one light edge is enough; of two groups, each
    /// executor is tied to its counterpart only.
    pub(crate) fn bunches(&mut self, mut todo: Vec<u32>) {
        let n_groups = self.weights.n_groups();
        let first: Vec<usize> = (0..n_groups).map(|g| todo[..g].iter().sum::<u32>() as usize).collect();
        let group: Vec<usize> = (0..n_groups).flat_map(|g| std::iter::repeat_n(g, todo[g] as usize)).collect();
        let mut bunch: Vec<Vec<usize>> = (0..group.len()).map(|i| vec![i]).collect();
        let mut bunch_of: Vec<usize> = (0..group.len()).collect();
        let pairs = (0..n_groups).flat_map(|g| (g + 1..n_groups).map(move |h| (g, h)));
        let mut edges: Vec<(usize, usize)> = pairs.filter(|(g, h)| self.weights.get(*g, *h) > 0).collect();
        edges.sort_by_key(|(g, h)| (std::cmp::Reverse(self.weights.get(*g, *h)), *g, *h));
        let largest = self.room.iter().zip(&self.fill).map(|(room, fill)| room.saturating_sub(*fill) as usize).max().unwrap_or(0);
        for (g, h) in edges {
            let (n_g, n_h) = (todo[g] as usize, todo[h] as usize);
            for i in 0..n_g.max(n_h) {
                if n_g == 0 || n_h == 0 {
                    break;
                }
                let of = |first: usize, n: usize| first + i * n / n_g.max(n_h);
                let (a, b) = (bunch_of[of(first[g], n_g)], bunch_of[of(first[h], n_h)]);
                if a != b && bunch[a].len() + bunch[b].len() <= largest {
                    let (small, large) = if bunch[a].len() < bunch[b].len() { (a, b) } else { (b, a) };
                    let moved = std::mem::take(&mut bunch[small]);
                    moved.iter().for_each(|i| bunch_of[*i] = large);
                    bunch[large].extend(moved);
                }
            }
        }
        bunch.sort_by_key(|b| std::cmp::Reverse(b.len()));
        for members in bunch.iter().filter(|b| !b.is_empty()) {
            let members: Vec<usize> = members.iter().map(|i| group[*i]).collect();
            let fits = |p: &usize| self.fill[*p] as usize + members.len() <= self.room[*p] as usize;
            let price = |p: &usize| members.iter().map(|g| self.pull(*g, *p)).sum::<i128>();
            if let Some(place) = (0..self.n_places).filter(fits).min_by_key(|p| (price(p), self.fill[*p], *p)) {
                for g in members {
                    self.add(g, place);
                    todo[g] -= 1;
                }
            }
        }
        // What fits nowhere as a whole goes one by one.
        self.greedy(todo);
    }
    fn n_placed(&self, group: usize) -> u32 {
        (0..self.n_places).map(|p| self.count(group, p)).sum()
    }

    /// Where a place is empty or holds more than it has room for, the executors that lose least by it move, as few as that takes.
    pub(crate) fn repair(&mut self) {
        loop {
            let over = (0..self.n_places).filter(|p| self.fill[*p] > self.room[*p]).max_by_key(|p| (self.fill[*p], std::cmp::Reverse(*p)));
            let empty = (0..self.n_places).find(|p| self.fill[*p] == 0 && self.room[*p] > 0);
            let fullest = (0..self.n_places).filter(|p| self.fill[*p] > 1).max_by_key(|p| (self.fill[*p], std::cmp::Reverse(*p)));
            let Some(from) = over.or(empty.and(fullest)) else { return };
            let groups = (0..self.weights.n_groups()).filter(|g| self.count(*g, from) > 0);
            let step = |group: usize| {
                let to = match empty {
                    Some(to) => Some(to),
                    None => (0..self.n_places).filter(|p| self.fill[*p] < self.room[*p]).min_by_key(|p| (self.pull(group, *p), *p)),
                }?;
                Some((self.change(group, from, to), group, to))
            };
            let Some((_, group, to)) = groups.filter_map(step).min() else { return };
            let at = self.at(group, from);
            self.fixed[at] = self.fixed[at].min(self.count[at] - 1);
            self.relocate(group, from, to);
        }
    }

    fn change(&self, group: usize, from: usize, to: usize) -> i128 {
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
            for (s, t) in (0..n_places).flat_map(|s| (0..n_places).map(move |t| (s, t))) {
                if !may_go_on() {
                    return false;
                }
                if s == t || !self.may_leave(g, s) {
                    continue;
                }
                if !swaps && self.fill[s] > 1 && self.fill[t] < self.room[t] && self.change(g, s, t) < 0 {
                    self.relocate(g, s, t);
                    taken = true;
                }
                for h in if swaps { g + 1..n_groups } else { 0..0 } {
                    if self.may_leave(g, s) && self.may_leave(h, t) && self.change_of_swap((g, s), (h, t)) < 0 {
                        self.relocate(g, s, t);
                        self.relocate(h, t, s);
                        taken = true;
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
    fn rig() -> (Matrix, Vec<i128>) {
        let mut weights = Matrix::new(4);
        for (a, b, w) in [(0, 1, 7), (1, 2, 5), (2, 3, 11), (0, 3, 1), (1, 1, 3)] {
            weights.add(a, b, w);
        }
        let distance = (0..16).map(|i| [0, 2, 20][usize::from(i / 4 != i % 4) + usize::from(i / 8 != i % 4 / 2)]).collect();
        (weights, distance)
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
        let (weights, distance) = rig();
        let mut layout = Layout::new(&weights, &distance, vec![4; 4]);
        for (g, p) in [(0, 0), (0, 1), (1, 0), (1, 2), (1, 2), (2, 3), (2, 1), (3, 0)] {
            layout.add(g, p);
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
        let (weights, distance) = rig();
        let mut layout = Layout::new(&weights, &distance, vec![3; 4]);
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
        let (weights, distance) = rig();
        let mut layout = Layout::new(&weights, &distance, vec![2; 4]);
        for (g, n) in [(0, 2), (1, 2), (2, 1)] {
            (0..n).for_each(|_| layout.add(g, 0));
        }
        layout.fix_all();
        layout.improve(&never);
        assert_eq!(layout.fill, [5, 0, 0, 0]);
        layout.repair();
        assert_eq!(layout.fill, [2, 1, 1, 1]);
    }
}
