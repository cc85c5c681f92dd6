//! First layouts: one executor after the other, or in bunches that talk; and the repair of one that came from elsewhere.
//!
//! Before: a layout with what stays in its places. After: all executors have places, as far as there are such; [`Layout::improve`] goes on
//! from there. Room is kept; where the topology asks for limits, these are, and room only while there is another place.

use crate::layout::Layout;
use std::cmp::Reverse;

impl Layout<'_> {
    /// Places so many executors of each group, the one with the heaviest ties to those placed first, each where it is cheapest. Where limits
    /// are asked for, one of each group comes before the others, and those hardest to place first. No place stays empty while there are executors for it.
    pub(crate) fn greedy(&mut self, mut todo: Vec<u32>) {
        let n_groups = self.weights.n_groups();
        // Of one executor of a group to all that are placed. Where nothing is, the heaviest edge begins.
        let mut placed: Vec<u32> = (0..n_groups).map(|g| (0..self.n_places).map(|p| self.count(g, p)).sum()).collect();
        let tie = |g: usize| (0..n_groups).map(|h| self.weights.get(g, h) * i128::from(placed[h])).sum();
        let mut ties: Vec<i128> = (0..n_groups).map(tie).collect();
        let heaviest: Vec<i128> = (0..n_groups).map(|g| (0..n_groups).map(|h| self.weights.get(g, h)).max().unwrap_or(0)).collect();
        let rank: Vec<_> = (0..n_groups).map(|g| self.limits.map(|limits| limits.rank(g))).collect();
        let mut left: u32 = todo.iter().sum();
        while left > 0 {
            let next = (0..n_groups).filter(|g| todo[*g] > 0).max_by_key(|g| {
                let is_first = self.limits.is_some() && placed[*g] == 0;
                (is_first, rank[*g], ties[*g], heaviest[*g], Reverse(*g))
            });
            let group = next.expect("some are left");
            let n_empty = (0..self.n_places).filter(|p| self.is_empty(*p)).count() as u32;
            let has_room = |p: &usize| if left <= n_empty { self.is_empty(*p) } else { self.fill[*p] < self.room[*p] };
            let price = |p: &usize| (self.pull(group, *p), self.fill[*p], *p);
            let fits = |p: &usize| self.may_join(&[group], *p);
            let wished = (0..self.n_places).filter(has_room).filter(fits).min_by_key(price);
            let Some(place) = wished.or_else(|| self.limits.and((0..self.places.n_open).filter(fits).min_by_key(price))) else {
                self.n_left += todo[group];
                left -= std::mem::take(&mut todo[group]);
                continue;
            };
            self.add(group, place, 1);
            (placed[group], todo[group], left) = (placed[group] + 1, todo[group] - 1, left - 1);
            for (h, tie) in ties.iter_mut().enumerate() {
                *tie += self.weights.get(group, h);
            }
        }
    }
    fn is_empty(&self, place: usize) -> bool {
        self.fill[place] == 0 && self.room[place] > 0
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
        edges.sort_by_key(|(g, h)| (Reverse(self.weights.get(*g, *h)), *g, *h));
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
        bunch.sort_by_key(|b| Reverse(b.len()));
        for members in bunch.iter().filter(|b| !b.is_empty()) {
            let members: Vec<usize> = members.iter().map(|i| group[*i]).collect();
            let fits = |p: &usize| self.fill[*p] as usize + members.len() <= self.room[*p] as usize && self.may_join(&members, *p);
            let price = |p: &usize| members.iter().map(|g| self.pull(*g, *p)).sum::<i128>();
            if let Some(place) = (0..self.n_places).filter(fits).min_by_key(|p| (price(p), self.fill[*p], *p)) {
                for g in members {
                    self.add(g, place, 1);
                    todo[g] -= 1;
                }
            }
        }
        // What fits nowhere as a whole goes one by one.
        self.greedy(todo);
    }

    /// Where a place is empty or holds more than it has room for, the executors that lose least by it move, as few as that takes.
    pub(crate) fn repair(&mut self) {
        loop {
            let open = 0..self.places.n_open;
            let over = open.clone().filter(|p| self.fill[*p] > self.room[*p]).max_by_key(|p| (self.fill[*p], Reverse(*p)));
            let empty = open.clone().find(|p| self.is_empty(*p));
            let fullest = open.filter(|p| self.fill[*p] > 1).max_by_key(|p| (self.fill[*p], Reverse(*p)));
            let Some(from) = over.or(empty.and(fullest)) else { return };
            let step = |group: usize| {
                let has_room = |p: &usize| empty.map_or(self.fill[*p] < self.room[*p], |empty| empty == *p);
                let free = (0..self.n_places).filter(has_room).filter(|p| self.may_join(&[group], *p));
                let to = free.min_by_key(|p| (self.pull(group, *p), *p))?;
                Some((self.change(group, from, to), group, to))
            };
            let groups = (0..self.weights.n_groups()).filter(|g| self.count(*g, from) > 0);
            let Some((_, group, to)) = groups.filter_map(step).min() else { return };
            let at = self.at(group, from);
            self.fixed[at] = self.fixed[at].min(self.count(group, from) - 1);
            self.relocate(group, from, to);
        }
    }
}
