//! One round: topology by topology, in a few manners, of which the first that leaves nobody out counts.
//!
//! Before: the order in which topologies are served. After: where every executor is, and what to say of it. Who is served first matters only
//! where somebody is left out: where all fit, the largest go first, which keeps them together, and ackers last of all, since they fit into
//! any gap. Eviction is here; how one topology is placed is in `placing`.

use crate::config::{Config, Strategy};
use crate::nodes::Places;
use crate::order;
use crate::reasons::Said;
use crate::search::Failure;
use saetta_sdk::model::{Model, max_colocation};
use saetta_sdk::{ExecId, Outcome, Round, SlotId, TopoId, abi};

/// Pairs of executors that are looked at for an exchange, for each that waits.
const PAIRS_PER_EXECUTOR: u64 = 8;

/// What a round gave.
pub(crate) struct Placed {
    /// By executor.
    pub(crate) slots: Vec<Option<SlotId>>,
    pub(crate) outcomes: Vec<(TopoId, Outcome)>,
    pub(crate) said: Vec<Said>,
}

/// How topologies are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The ackers of all after the rest of all, nobody evicted. Counts only if it leaves nobody out.
    Together,
    /// Each as a whole, in the order of serving; eviction where the round allows it.
    InTurn,
    /// The same, with Storm's order of executors alone.
    Storm,
}

/// A topology the round asks for.
pub(crate) struct Ask {
    pub(crate) topology: TopoId,
    pub(crate) row: abi::TopologyRow,
    /// Or what keeps it from ever being placed.
    strategy: Result<Strategy, String>,
}

/// One round.
pub(crate) struct Pass<'a, 'r> {
    pub(crate) round: &'a Round<'r>,
    config: &'a Config,
    pub(crate) model: Model,
    pub(crate) places: Places,
    pub(crate) manner: Manner,
    pub(crate) said: Vec<Said>,
    /// Running executors that may still be moved or freed.
    moves_left: u64,
}

/// Places what waits of all topologies the round asks for.
pub(crate) fn place(round: &Round<'_>, config: &Config) -> Placed {
    let snapshot = &round.snapshot;
    let ask = |topology| {
        let row = snapshot.topologies().at(topology);
        let has_spout = snapshot.components_of(&row).any(|(_, c)| c.kind == abi::KIND_SPOUT);
        let strategy =
            config.strategy(snapshot.text(row.strategy)).and_then(|s| if has_spout { Ok(s) } else { Err("it has no spout".into()) });
        Ask { topology, row, strategy }
    };
    let asks: Vec<Ask> = order::order(snapshot, config.fairness).into_iter().map(ask).collect();
    let mut pass = Pass {
        round,
        config,
        model: Model::new(snapshot),
        places: Places::new(snapshot),
        manner: Manner::Storm,
        said: Vec::new(),
        moves_left: 0,
    };
    let begin = pass.model.checkpoint();
    if config.compare_orders {
        for largest_first in [true, false] {
            if let Some(placed) = pass.together(&asks, largest_first) {
                return placed;
            }
            pass.model.rollback(begin);
        }
    }
    let manners: &[Manner] = if config.compare_orders { &[Manner::InTurn, Manner::Storm] } else { &[Manner::Storm] };
    let mut best: Option<(usize, Placed)> = None;
    for manner in manners {
        pass.model.rollback(begin);
        let (n_out, placed) = pass.in_turn(&asks, *manner);
        if best.as_ref().is_none_or(|(n, _)| n_out < *n) {
            best = Some((n_out, placed));
        }
        if n_out == 0 || round.should_stop() {
            break;
        }
    }
    best.expect("there is at least one manner").1
}

impl Pass<'_, '_> {
    /// All of them, or `None`.
    fn together(&mut self, asks: &[Ask], largest_first: bool) -> Option<Placed> {
        self.manner = Manner::Together;
        self.said.clear();
        let mut outcomes: Vec<(TopoId, Outcome)> = Vec::with_capacity(asks.len());
        let mut waiting: Vec<(f64, &Ask, Strategy)> = Vec::new();
        for ask in asks {
            match &ask.strategy {
                _ if self.is_done(ask) => outcomes.push((ask.topology, Outcome::Scheduled)),
                Ok(strategy) => waiting.push((self.share(ask.topology), ask, *strategy)),
                Err(text) => outcomes.push(self.refuse(ask.topology, text)),
            }
        }
        if largest_first {
            waiting.sort_by(|a, b| b.0.total_cmp(&a.0));
        }
        let mut n_placed = 0;
        for (_, ask, strategy) in &waiting {
            let begin = self.model.checkpoint();
            self.free_for_rebalance(ask);
            match self.place_one(ask, *strategy) {
                Ok(()) => n_placed += 1,
                // What is placed so far counts: the next round goes on from there.
                Err(Failure::Stopped) => {
                    self.model.rollback(begin);
                    break;
                }
                Err(_) => return None,
            }
        }
        let mut pairs_left = PAIRS_PER_EXECUTOR * waiting.iter().map(|(_, ask, _)| u64::from(ask.row.n_execs)).sum::<u64>();
        for (_, ask, strategy) in &waiting[..n_placed] {
            self.improve(ask, *strategy, &mut pairs_left);
        }
        for (i, (_, ask, strategy)) in waiting.iter().enumerate() {
            if i < n_placed {
                self.place_ackers(ask, *strategy).ok()?;
            }
            outcomes.push((ask.topology, if i < n_placed { Outcome::Scheduled } else { Outcome::Waiting }));
        }
        Some(self.placed(outcomes))
    }

    /// One after the other; also how many are left out.
    fn in_turn(&mut self, asks: &[Ask], manner: Manner) -> (usize, Placed) {
        self.manner = manner;
        self.moves_left = self.round.max_moves.map_or(u64::MAX, u64::from);
        self.said.clear();
        let mut outcomes = Vec::with_capacity(asks.len());
        for (at, ask) in asks.iter().enumerate() {
            if self.round.should_stop() {
                break;
            }
            outcomes.push(match &ask.strategy {
                _ if self.is_done(ask) => (ask.topology, Outcome::Scheduled),
                Ok(strategy) => (ask.topology, self.place_or_evict(asks, at, *strategy)),
                Err(text) => self.refuse(ask.topology, text),
            });
        }
        let n_out = asks.len() - outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Scheduled | Outcome::Invalid)).count();
        (n_out, self.placed(outcomes))
    }

    fn placed(&mut self, outcomes: Vec<(TopoId, Outcome)>) -> Placed {
        let n_execs = self.round.snapshot.executors().len() as u32;
        let slots = (0..n_execs).map(|e| self.model.slot_of(ExecId(e))).collect();
        Placed { slots, outcomes, said: std::mem::take(&mut self.said) }
    }

    fn refuse(&mut self, topology: TopoId, text: &str) -> (TopoId, Outcome) {
        self.said.push(Said::refused(&self.round.snapshot, topology, text));
        (topology, Outcome::Invalid)
    }

    /// All is placed, and nobody asked for another placement.
    fn is_done(&self, ask: &Ask) -> bool {
        ask.row.flags & abi::TOPO_REBALANCE == 0 && self.n_waiting(ask) == 0
    }

    fn n_waiting(&self, ask: &Ask) -> usize {
        self.round.snapshot.executors_of(&ask.row).filter(|(e, _)| self.model.slot_of(*e).is_none()).count()
    }

    /// What a topology asks for of the kind it takes most of, as a share of all nodes; 1 = everything.
    fn share(&self, topology: TopoId) -> f64 {
        let request = order::request(&self.round.snapshot, topology);
        request.iter().zip(&self.places.total).filter(|(_, t)| **t > 0).map(|(r, t)| *r as f64 / *t as f64).fold(0.0, f64::max)
    }

    fn free_for_rebalance(&mut self, ask: &Ask) {
        if ask.row.flags & abi::TOPO_REBALANCE != 0 {
            self.free(&ask.row);
        }
    }

    /// Places what waits of the `at`th topology, with evictions if need be.
    fn place_or_evict(&mut self, asks: &[Ask], at: usize, strategy: Strategy) -> Outcome {
        let ask = &asks[at];
        let begin = self.model.checkpoint();
        self.free_for_rebalance(ask);
        let (mut n_freed, mut failure) = (0, Failure::NoRoom(ExecId(ask.row.first_exec)));
        for _ in 0..self.config.attempts {
            if self.covers(ask) {
                match self.place_one(ask, strategy) {
                    Ok(()) => {
                        self.moves_left -= n_freed;
                        return Outcome::Scheduled;
                    }
                    Err(other) => failure = other,
                }
                if !matches!(failure, Failure::NoRoom(_)) {
                    break;
                }
            }
            let Some(n) = self.evict(asks, at, self.moves_left - n_freed) else { break };
            n_freed += n;
        }
        self.model.rollback(begin);
        if self.round.wants_reasons() {
            self.said.push(Said::left(&self.round.snapshot, &self.model, ask.topology, failure));
        }
        match self.n_waiting(ask) {
            // A rebalance that found no place: it stays where it is.
            0 => Outcome::Scheduled,
            _ if failure == Failure::Stopped => Outcome::Waiting,
            n if n < ask.row.n_execs as usize => Outcome::Partial,
            _ => Outcome::Unschedulable,
        }
    }

    /// Frees all executors of a topology; returns how many of them run.
    fn free(&mut self, row: &abi::TopologyRow) -> u64 {
        let mut n = 0;
        for (exec, e) in self.round.snapshot.executors_of(row) {
            // What was placed in this very round moves nothing.
            n += u64::from(self.model.slot_of(exec).is_some() && e.slot != abi::NONE);
            self.model.free(exec);
        }
        n
    }

    /// Evicts from the end of the order until what is asked for could be there, at least one topology. Returns the running executors freed;
    /// `None` = there is no one left to evict.
    fn evict(&mut self, asks: &[Ask], at: usize, moves_left: u64) -> Option<u64> {
        if !self.round.may_preempt {
            return None;
        }
        let (mut n_freed, mut any) = (0, false);
        for victim in asks[at + 1..].iter().rev() {
            let placed = u64::from(victim.row.n_execs) - self.n_waiting(victim) as u64;
            // Equal priorities do not evict each other: the ABI allows it for a lower one only, whoever is above its guarantee.
            if placed == 0 || victim.row.priority <= asks[at].row.priority || n_freed + placed > moves_left {
                continue;
            }
            n_freed += self.free(&victim.row);
            any = true;
            if self.covers(&asks[at]) {
                break;
            }
        }
        any.then_some(n_freed)
    }

    /// The open nodes together have what the topology's waiting executors ask for.
    fn covers(&self, ask: &Ask) -> bool {
        let snapshot = &self.round.snapshot;
        let mut needs = vec![0i64; self.model.n_kinds()];
        for (_, e) in snapshot.executors_of(&ask.row).filter(|(e, _)| self.model.slot_of(*e).is_none()) {
            let request = self.model.request(saetta_sdk::CompId(e.component));
            needs.iter_mut().zip(request).for_each(|(n, r)| *n = n.saturating_add(*r));
        }
        for node in self.places.open_nodes() {
            needs.iter_mut().zip(self.model.avail(node)).for_each(|(n, a)| *n = n.saturating_sub((*a).max(0)));
        }
        needs.iter().all(|n| *n <= 0) && self.is_feasible(&ask.row)
    }

    /// No component has more executors than may be on all open nodes together.
    fn is_feasible(&self, row: &abi::TopologyRow) -> bool {
        let n_open = self.places.open_nodes().count() as u64;
        self.round.snapshot.components_of(row).all(|(_, c)| match max_colocation(&c) {
            0 => true,
            most => u64::from(c.n_execs) <= n_open * u64::from(most),
        })
    }
}
