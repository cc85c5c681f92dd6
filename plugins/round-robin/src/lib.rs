//! Round-robin: every node of a topology holds the same number of its executors, give or take one; `even` says that of workers.
//!
//! Before: a round. After: executors by first task went to one node after another, and on each node to one of its workers after another; what
//! runs stays as far as the shares allow. A topology uses at most as many nodes as it wants workers, and a worker on each before a second
//! on any. One that wants machines for itself (`topology.isolate.machines`) takes at most so many, and only such where nobody else is.
//! Of new nodes, those with most free slots come first, ties by node id; those that are used last at the end.
//!
//! Where Storm's round-robin strategy differs: it takes only nodes where nobody else is even for those that do not ask for it; it starts
//! again at the first node for each executor of the same component, so that one component fills one node; it counts a topology as
//! placed when its last executor has no room.
//!
//! Pure; no state between rounds. Per topology O(nodes log nodes + its executors log executors). Not here: resources;
//! for these `resource-aware` has a strategy of this name.
#![forbid(unsafe_code)]

use saetta_sdk::config::{Config, Told};
use saetta_sdk::deal::{Board, Own, deal};
use saetta_sdk::{Configured, CreateCx, ExecId, Extension, NodeId, Plan, PluginError, Round, Scheduler, SlotId, Verdict, abi};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler. It keeps nothing between rounds.
pub struct RoundRobin {
    told: Told,
}

saetta_sdk::export_scheduler!(RoundRobin, id = "round-robin");

impl RoundRobin {
    fn read(config: &str) -> Result<Self, PluginError> {
        Ok(RoundRobin { told: Config::parse(config)?.finish()? })
    }
}

impl Scheduler for RoundRobin {
    const EXTENSIONS: &'static [Extension] = &[Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        Ok(Board::settled(round, pass).commit(round, plan))
    }
}

impl Configured for RoundRobin {
    fn schema() -> String {
        Self::read("{}").map(|rr| rr.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}

fn pass(mut board: Board<'_>) -> Board<'_> {
    board.give_up(&[]);
    let wants_alone: Vec<bool> = board.shares().iter().map(|s| s.row.isolate_machines > 0).collect();
    let mut kept = Kept::new();
    for share in (0..wants_alone.len()).filter(|s| wants_alone[*s]) {
        keep(&mut board, share, &mut kept);
    }
    for (share, alone) in wants_alone.into_iter().enumerate() {
        let mut places = place(&board, share, &kept, false);
        if !board.may_move(board.n_moves(share, &places)) {
            places = place(&board, share, &kept, true);
        }
        board.settle(share, places);
        if alone {
            board.why_none(share, abi::WHY_ISOLATION_QUOTA);
            keep(&mut board, share, &mut kept);
        }
    }
    board
}

/// Nodes that a topology has to itself, with their free slots: nobody else gets them in this round.
type Kept = BTreeMap<NodeId, (usize, Vec<SlotId>)>;

fn keep(board: &mut Board<'_>, share: usize, kept: &mut Kept) {
    let mut nodes: Vec<NodeId> = board.shares()[share].own.iter().map(|o| board.node_of(o.slot)).collect();
    nodes.dedup();
    for node in nodes {
        if !kept.contains_key(&node) && is_alone(board, share, node) {
            kept.insert(node, (share, board.free_on(node).to_vec()));
            board.reserve(node);
        }
    }
}

/// True when nobody but this topology has a slot of a node.
fn is_alone(board: &Board<'_>, share: usize, node: NodeId) -> bool {
    let (snapshot, topology) = (board.snapshot(), board.shares()[share].topology);
    let row = snapshot.nodes().at(node);
    snapshot.slots_of(&row).all(|(slot, _)| board.holder(slot).is_none_or(|h| h == topology))
}

/// A node as one topology sees it.
struct Node {
    id: NodeId,
    /// Its own slots there, in slot order.
    own: Vec<Own>,
    free: Vec<SlotId>,
    /// Slots it uses by the plan.
    n_slots: usize,
}

impl Node {
    fn n_execs(&self) -> usize {
        self.own.iter().map(|o| o.executors.len()).sum()
    }
    /// Stands for the node in the deal over nodes.
    fn first_slot(&self) -> SlotId {
        self.own.iter().map(|o| o.slot).chain(self.free.first().copied()).next().expect("a node with slots")
    }
}

/// Places of one topology. With `stay`, nothing that runs moves.
fn place(board: &Board<'_>, share: usize, kept: &Kept, stay: bool) -> Vec<(ExecId, SlotId)> {
    let state = &board.shares()[share];
    let n_workers = state.workers().max(if stay { state.own.len() } else { 0 }).min(state.n_execs as usize);
    let mut nodes = see(board, share, kept);
    let n_own = nodes.iter().filter(|n| !n.own.is_empty()).count();
    let machines = match state.row.isolate_machines {
        0 => n_workers,
        wanted => (wanted as usize).min(n_workers),
    };
    // When nothing moves, its own slots count first, and a new node takes one that is left.
    nodes.truncate(if stay { machines.min(n_own + n_workers - state.own.len()).max(n_own) } else { machines });
    if nodes.is_empty() {
        return Vec::new();
    }

    // Over nodes.
    nodes.sort_by_key(|n| board.key(n.first_slot()));
    let held: Vec<Own> = (nodes.iter().filter(|n| !n.own.is_empty()))
        .map(|n| {
            let mut executors: Vec<ExecId> = n.own.iter().flat_map(|o| o.executors.iter().copied()).collect();
            executors.sort_unstable();
            Own { slot: n.first_slot(), executors }
        })
        .collect();
    let mut loose = state.unplaced.clone();
    let used: BTreeSet<NodeId> = nodes.iter().map(|n| n.id).collect();
    let is_left = |o: &&Own| !used.contains(&board.node_of(o.slot));
    loose.extend(state.own.iter().filter(is_left).flat_map(|o| o.executors.iter().copied()));
    loose.sort_unstable();
    let new: Vec<SlotId> = new_first(&nodes).map(|n| n.first_slot()).collect();
    let over_nodes = deal(&held, &loose, &new, nodes.len(), stay);
    let mut of_node: BTreeMap<SlotId, Vec<ExecId>> = BTreeMap::new();
    for (exec, slot) in over_nodes.places {
        of_node.entry(slot).or_default().push(exec);
    }

    // Workers of each node: one, then one more where it is fewest, own ones first.
    let most = |n: &Node| (n.own.len() + n.free.len()).min(of_node.get(&n.first_slot()).map_or(0, Vec::len));
    if stay {
        nodes.iter_mut().for_each(|n| n.n_slots = n.own.len());
    }
    let mut n_left = n_workers - nodes.iter().map(|n| n.n_slots).sum::<usize>();
    while n_left > 0
        && let Some(node) = nodes.iter_mut().filter(|n| n.n_slots < most(n)).min_by_key(|n| (n.n_slots, n.n_slots >= n.own.len()))
    {
        node.n_slots += 1;
        n_left -= 1;
    }

    // Over the workers of a node.
    let mut places = Vec::new();
    for node in nodes {
        let mut newcomers = of_node.remove(&node.first_slot()).unwrap_or_default();
        let mut own = node.own;
        for o in &mut own {
            o.executors.retain(|e| newcomers.binary_search(e).is_ok());
            newcomers.retain(|e| o.executors.binary_search(e).is_err());
        }
        let mut free = node.free;
        free.extend(own.iter().filter(|o| o.executors.is_empty()).map(|o| o.slot));
        free.sort_by_key(|slot| board.key(*slot));
        own.retain(|o| !o.executors.is_empty());
        places.extend(deal(&own, &newcomers, &free, node.n_slots, stay).places);
    }
    places.sort_unstable();
    places
}

/// Nodes without executors of the topology, in the order new ones are taken.
fn new_first(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    let mut new: Vec<&Node> = nodes.iter().filter(|n| n.own.is_empty()).collect();
    new.sort_by_key(|n| Reverse(n.free.len()));
    new.into_iter()
}

/// Nodes a topology may use, best first: those where it has most executors, then those with most free slots.
fn see(board: &Board<'_>, share: usize, kept: &Kept) -> Vec<Node> {
    let state = &board.shares()[share];
    let wants_alone = state.row.isolate_machines > 0;
    let mut own_of: BTreeMap<NodeId, Vec<Own>> = BTreeMap::new();
    for own in &state.own {
        own_of.entry(board.node_of(own.slot)).or_default().push(own.clone());
    }
    let mut nodes = Vec::new();
    for (id, _) in board.snapshot().nodes().with_ids() {
        let own = own_of.remove(&id).unwrap_or_default();
        let free = match kept.get(&id) {
            Some((of, free)) if *of == share => free.iter().filter(|slot| board.holder(**slot).is_none()).copied().collect(),
            _ => board.free_on(id).to_vec(),
        };
        if (!own.is_empty() || !free.is_empty()) && (!wants_alone || !own.is_empty() || is_alone(board, share, id)) {
            nodes.push(Node { id, own, free, n_slots: 0 });
        }
    }
    nodes.sort_by_key(|n| (Reverse(n.n_execs()), board.is_grey(n.id), Reverse(n.free.len()), board.key(n.first_slot())));
    nodes
}
