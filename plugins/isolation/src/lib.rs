//! Isolation: topologies that the operator names get machines to themselves; the others share the rest by `even`'s deal.
//!
//! Before: the configuration says `machines`, topology name to number of machines. After: a named topology's workers are on that many hosts,
//! `hosts` says which, as evenly as whole workers allow, and nobody else is there. A host is reserved for the round only: the next
//! one starts from who is where. Within its hosts a topology is dealt as `even` deals, with fewest moves; so are the others outside.
//!
//! Where Storm differs. It frees a worker whose executors are not exactly those of a fresh deal; here what runs stays as long as shares are
//! even. Where machines are short, it stops everybody and places nobody else; here a topology gets the machines there are. Others
//! leave a machine only if they find room elsewhere, or if the round permits to free them and their priority is lower.
//!
//! Pure; no state between rounds. O(whole round of `even` + isolated topologies x hosts log hosts); where not all get what they want, that
//! times isolated topologies x log machines.
#![forbid(unsafe_code)]

mod hosts;

use hosts::{Way, give_machines, stand_in};
use saetta_sdk::config::{Config, Told};
use saetta_sdk::deal::{Board, Idle, Share};
use saetta_sdk::{Configured, CreateCx, Extension, Plan, PluginError, Round, Scheduler, Verdict, abi};
use std::collections::BTreeMap;

/// Most machines of one topology.
const MACHINES_MAX: u64 = 100_000;

/// The scheduler. It keeps nothing between rounds.
pub struct Isolation {
    /// By topology name.
    machines: BTreeMap<String, u64>,
    idle: Idle,
    told: Told,
}

saetta_sdk::export_scheduler!(Isolation, id = "isolation", claims = ["storm.isolation/1"]);

/// A topology that the round asks about and that wants machines for itself.
#[derive(Debug, Clone, Copy)]
struct Isolated {
    share: usize,
    machines: usize,
}

impl Isolation {
    fn read(config: &str) -> Result<Self, PluginError> {
        let mut config = Config::parse(config)?;
        Ok(Isolation {
            machines: config.numbers("machines", 1..=MACHINES_MAX, "machines that a topology has to itself, by its name")?,
            idle: Idle::read(&mut config)?,
            told: config.finish()?,
        })
    }

    /// Everybody gets machines and others leave them; where that is not permitted, as far as it is.
    fn pass<'a>(&self, mut start: Board<'a>, round: &Round<'a>, isolated: &[Isolated]) -> Board<'a> {
        let snapshot = round.snapshot;
        for (topology, row) in snapshot.topologies().with_ids() {
            if start.share_of(topology).is_none() && self.machines.contains_key(snapshot.text(row.name)) {
                stand_in(&mut start, topology);
            }
        }
        let board = self.plan(&start, isolated, &vec![Way::Evict; isolated.len()]);
        if is_allowed(&board, round, isolated) { board } else { self.one_by_one(&start, round, isolated.to_vec()) }
    }

    /// Nothing that is isolated moves; then one topology after another gets what the round permits: as many machines as it wants, or as others
    /// can leave, or those where nobody is.
    fn one_by_one<'a>(&self, start: &Board<'a>, round: &Round<'a>, mut isolated: Vec<Isolated>) -> Board<'a> {
        let mut ways = vec![Way::Stay; isolated.len()];
        let mut board = self.plan(start, &isolated, &ways);
        for i in 0..isolated.len() {
            if round.should_stop() {
                break; // what there is by now is permitted
            }
            let wanted = isolated[i].machines;
            let mut attempt = |way: Way, machines: usize, best: &mut Board<'a>| {
                let before = (std::mem::replace(&mut ways[i], way), std::mem::replace(&mut isolated[i].machines, machines));
                let next = self.plan(start, &isolated, &ways);
                let allowed = is_allowed(&next, round, &isolated);
                if allowed && n_nodes(&next, isolated[i].share) >= n_nodes(best, isolated[i].share) {
                    *best = next;
                } else {
                    (ways[i], isolated[i].machines) = before;
                }
                allowed
            };
            attempt(Way::Empty, wanted, &mut board);
            // The most machines that others can leave.
            let (mut can, mut cannot) = (0, wanted.min(start.snapshot().hosts().len()) + 1);
            while can + 1 < cannot && !round.should_stop() {
                let middle = can + (cannot - can) / 2;
                if attempt(Way::Evict, middle, &mut board) { can = middle } else { cannot = middle }
            }
        }
        board
    }

    /// A pass with each isolated topology placed in its way.
    fn plan<'a>(&self, start: &Board<'a>, isolated: &[Isolated], ways: &[Way]) -> Board<'a> {
        let mut board = start.clone();
        let but: Vec<usize> = isolated.iter().map(|t| t.share).collect();
        // First, since a machine may become free by it.
        board.give_up(&but);
        for (topology, way) in isolated.iter().zip(ways) {
            give_machines(&mut board, topology.share, topology.machines, *way);
        }
        self.idle.redistribute(&mut board, &but);
        for share in (0..board.shares().len()).filter(|s| !but.contains(s)) {
            board.deal(share);
        }
        board
    }
}

fn n_nodes(board: &Board<'_>, share: usize) -> usize {
    let own = &board.shares()[share].own;
    own.chunk_by(|a, b| board.node_of(a.slot) == board.node_of(b.slot)).count()
}

/// True when a plan moves no more than the round permits, and frees nobody who may not be freed.
fn is_allowed(board: &Board<'_>, round: &Round<'_>, isolated: &[Isolated]) -> bool {
    let shares = board.shares();
    let best = isolated.iter().map(|t| shares[t.share].row.priority).min();
    let may_free = |share: usize| round.may_preempt && best.is_some_and(|best| best < shares[share].row.priority);
    round.max_moves.is_none_or(|max| board.n_moved() <= max) && (0..shares.len()).all(|s| board.n_freed(s) == 0 || may_free(s))
}

impl Scheduler for Isolation {
    const EXTENSIONS: &'static [Extension] = &[Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let snapshot = round.snapshot;
        let machines = |share: &Share| self.machines.get(snapshot.text(share.row.name)).map(|m| *m as usize);
        let mut isolated = Vec::new();
        let mut board = Board::settled(round, |start| {
            let shares = start.shares().iter().enumerate();
            isolated = shares.filter_map(|(share, s)| Some(Isolated { share, machines: machines(s)? })).collect();
            self.pass(start, round, &isolated)
        });
        for topology in &isolated {
            board.why_none(topology.share, abi::WHY_ISOLATION_QUOTA);
        }
        Ok(board.commit(round, plan))
    }
}

impl Configured for Isolation {
    fn schema() -> String {
        Self::read("{}").map(|isolation| isolation.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}
