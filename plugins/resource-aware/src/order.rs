//! Which topology is served first: users below their guarantee before those above it.
//!
//! Before: the topologies of a round. After: `lib` places them in this order, and evicts from its end. Each user's topologies come by priority,
//! then oldest first; again and again the user goes first whose next topology would leave it least above its guarantee. Storm skips a
//! topology without an owner for ever; here those without one are one more user, without a guarantee.

use saetta_sdk::{KindId, Snapshot, TopoId, abi};
use std::collections::VecDeque;

/// How users are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fairness {
    /// By CPU and memory.
    Standard,
    /// By every kind that somebody asks for.
    Generic,
    /// By CPU and memory up to the guarantees, beyond them oldest first.
    Fifo,
}

struct User {
    /// Row, or `NONE` at the end.
    row: u32,
    topologies: VecDeque<TopoId>,
    guarantee: Vec<i64>,
    served: Vec<i64>,
}

/// What all executors of a topology ask for, kind by kind; each shared block once.
pub fn request(snapshot: &Snapshot<'_>, topology: TopoId) -> Vec<i64> {
    let mut sum = vec![0i64; snapshot.kinds().len()];
    let row = snapshot.topologies().at(topology);
    let mut blocks: Vec<u32> = Vec::new();
    for (id, c) in snapshot.components_of(&row) {
        for (sum, amount) in sum.iter_mut().zip(snapshot.request(id).iter()) {
            *sum = sum.saturating_add(amount.saturating_mul(i64::from(c.n_execs)));
        }
        if c.n_execs > 0 {
            blocks.extend(snapshot.blocks_of(id).map(|(b, _)| b.0));
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let b = snapshot.blocks().get(block as usize);
        if let Some(memory) = sum.get_mut(KindId::MEMORY.index()) {
            *memory = memory.saturating_add(b.on_heap).saturating_add(b.off_heap_worker).saturating_add(b.off_heap_node);
        }
    }
    sum
}

/// All topologies the round asks for, first served first.
pub fn order(snapshot: &Snapshot<'_>, fairness: Fairness) -> Vec<TopoId> {
    let n_kinds = snapshot.kinds().len();
    let asked = snapshot.topologies().with_ids().filter(|(_, t)| t.flags & abi::TOPO_SCHEDULE != 0);
    let mut users: Vec<User> = Vec::new();
    let mut requests: Vec<Vec<i64>> = vec![Vec::new(); snapshot.topologies().len()];
    let mut wanted = vec![false; n_kinds];
    for (id, t) in asked {
        let request = request(snapshot, id);
        wanted.iter_mut().zip(&request).for_each(|(w, r)| *w |= *r > 0);
        requests[id.index()] = request;
        match users.iter_mut().find(|u| u.row == t.user) {
            Some(user) => user.topologies.push_back(id),
            None => {
                let mut guarantee = vec![0; n_kinds];
                if let Some(user) = saetta_sdk::UserId::some(t.user) {
                    guarantee.iter_mut().zip(snapshot.guarantee(user).iter()).for_each(|(g, amount)| *g = amount);
                }
                users.push(User { row: t.user, topologies: VecDeque::from([id]), guarantee, served: vec![0; n_kinds] });
            }
        }
    }
    users.sort_by_key(|u| u.row);
    for user in &mut users {
        user.topologies.make_contiguous().sort_by_key(|t| (snapshot.topologies().at(*t).priority, *t));
    }
    let mut left = vec![0i64; n_kinds];
    for node in 0..snapshot.nodes().len() {
        let total = snapshot.node_total(saetta_sdk::NodeId(node as u32));
        left.iter_mut().zip(total.iter()).for_each(|(l, t)| *l = l.saturating_add(t));
    }
    let counts: Vec<usize> = (0..n_kinds).filter(|k| *k < 2 || (fairness == Fairness::Generic && wanted[*k])).collect();
    let score = |user: &User, left: &[i64]| {
        let Some(next) = user.topologies.front() else { return f64::INFINITY };
        counts.iter().fold(f64::NEG_INFINITY, |worst, k| {
            if left[*k] <= 0 {
                return f64::INFINITY;
            }
            let above = user.served[*k].saturating_add(requests[next.index()][*k]).saturating_sub(user.guarantee[*k]);
            worst.max(above as f64 / left[*k] as f64)
        })
    };
    let n = users.iter().map(|u| u.topologies.len()).sum();
    let mut order = Vec::with_capacity(n);
    while order.len() < n {
        let mut best: Option<(f64, usize)> = None;
        for (i, user) in users.iter_mut().enumerate().filter(|(_, u)| !u.topologies.is_empty()) {
            let mut score = score(user, &left);
            if fairness == Fairness::Fifo && score >= 0.0 {
                user.topologies.make_contiguous().sort_unstable();
                // Oldest first, and all of them after those below their guarantee.
                score = f64::from(user.topologies[0].0);
            }
            if best.is_none_or(|(s, _)| score < s) {
                best = Some((score, i));
            }
        }
        let (_, i) = best.expect("some user has a topology left");
        let user = &mut users[i];
        let next = user.topologies.pop_front().expect("it has one");
        for (k, request) in requests[next.index()].iter().enumerate() {
            user.served[k] = user.served[k].saturating_add(*request);
            left[k] = left[k].saturating_sub(*request);
        }
        order.push(next);
    }
    order
}
