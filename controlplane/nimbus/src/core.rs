//! What the leader decides: lifecycle, loss of nodes, when to schedule, what to write. Pure: no clock, no randomness, no I/O.
//!
//! Before: `leader.rs` read the cluster from the store. After: `leader.rs` carries the actions out and reads again.
//! Level-triggered: every decision follows from the cluster as it is and from the little that is remembered here, so that an
//! action which failed is simply asked for again at the next step, and a new leader begins with nothing.

use crate::round::{self, Built};
use saetta_model::assignment::{Assignment, Placement};
use saetta_model::beat::{EdgeRate, SupervisorBeat, WorkerBeat};
use saetta_model::cluster::{SlotId, Supervisors};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::{Name, TopologyRecord, TopologyState};
use saetta_sched_host::{How, Reason, TopologyPlan};
use std::collections::{BTreeMap, BTreeSet};

/// The cluster as last read. What cannot be read is not here, except that its name may not be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// By id.
    pub topologies: BTreeMap<Name, TopologyRecord>,
    /// By topology id.
    pub assignments: BTreeMap<Name, Assignment>,
    /// Topologies whose assignment cannot be read: nothing is decided for them.
    pub unreadable: BTreeSet<Name>,
    /// Those that are here now.
    pub supervisors: Supervisors,
    /// By supervisor id; also of supervisors that are away.
    pub beats: BTreeMap<Name, SupervisorBeat>,
}

/// Fixed for a term of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Milliseconds between safety-net rounds (`nimbus.monitor.freq.secs`).
    pub monitor_every_ms: u64,
    /// A supervisor absent for this long is asked after: session timeout + one ZooKeeper tick + 1 s.
    pub absent_max_ms: u64,
    /// True where workers can be asked whether they live. False: absence alone means loss.
    pub probes: bool,
}

/// How long an answer of a worker on a node without supervisor counts.
pub const PROBE_EVERY_MS: u64 = 5_000;
/// Longest wait, after its assignment is gone, for the workers of a killed topology to be gone: for beats to stop naming it, and for
/// supervisors that are away to come back.
pub const WORKERS_GONE_MAX_MS: u64 = 30_000;
/// Beats, newer than the kill, that must call a worker drained before the wait ends early.
const DRAINED_BEATS: u32 = 2;

/// The moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds since this leader's term began. Every judgement about others uses this one.
    pub mono_ms: u64,
    /// Milliseconds since 1970. Only stored deadlines and start times use this one.
    pub wall_ms: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The cluster was read again, or time has passed.
    Look,
    /// Somebody wants a round.
    Round(Reason),
    /// The store was away and is back: nobody's absence before now counts.
    Reconnected,
    /// Workers of a node without supervisor were asked; these placements answered.
    Probed {
        /// Node.
        node: Name,
        /// Placement ids that proved to be alive.
        alive: BTreeSet<u64>,
    },
    /// A round came back.
    Planned {
        /// Its number.
        id: u64,
        /// By topology id.
        plans: Vec<(Name, TopologyPlan)>,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask the scheduler; answer with [`Event::Planned`].
    Round(Box<Round>),
    /// Write an assignment over the one in the cluster that was given to the step.
    Assign {
        /// Topology id.
        topology: Name,
        /// With its version already raised.
        assignment: Box<Assignment>,
    },
    /// Remove the assignment of a killed topology.
    Unassign {
        /// Topology id.
        topology: Name,
    },
    /// Remove record, key and, where no other topology uses it, the binary.
    Remove {
        /// Topology id.
        topology: Name,
        /// Nodes without supervisor on which a worker of it may still run, because the wait is over. It ends when its supervisor is back.
        may_run_on: BTreeSet<Name>,
    },
    /// Write `finished` into the record.
    Finish {
        /// Topology id.
        topology: Name,
    },
    /// Ask workers whether they live; answer with [`Event::Probed`].
    Probe {
        /// Their node.
        node: Name,
        /// Its workers.
        workers: Vec<ProbeTarget>,
    },
}

/// One worker to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// Topology id: says which key proves that we may ask.
    pub topology: Name,
    /// Address of its node.
    pub host: String,
    /// Port of the worker.
    pub port: u16,
    /// Placement id it must answer for.
    pub placement: u64,
}

/// Input of a scheduling round.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Rises with each round of the term.
    pub id: u64,
    /// Why now.
    pub reason: Reason,
    /// Machines.
    pub supervisors: Supervisors,
    /// Topologies that hold or want slots.
    pub topologies: Vec<Wanted>,
}

/// One topology of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What was submitted.
    pub record: TopologyRecord,
    /// Its executors.
    pub layout: Layout,
    /// Its placements that are alive or may be.
    pub current: Assignment,
    /// Of its executors that are not in `current`: where they were.
    pub former: BTreeMap<ExecutorId, SlotId>,
    /// What its workers measured on its subscriptions, all together.
    pub rates: Vec<EdgeRate>,
}

/// How a topology came to where it is, for `status`. Forgotten by a new leader until its first round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Who decided; `None` before the first round.
    pub how: Option<How>,
    /// What an operator should know: executors without a slot, refused plans, ignored wishes.
    pub notes: Vec<String>,
}

/// A leader's memory.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// Nodes that an assignment, or the last one of a killed topology, names and that have no supervisor now.
    absent: BTreeMap<Name, Absence>,
    /// Topologies on their way out.
    dying: BTreeMap<Name, Dying>,
    /// By topology id; only topologies that exist.
    explanations: BTreeMap<Name, Explanation>,
    /// What the last round looked at; `None` before the first.
    looked_at: Option<Inputs>,
    /// When the last round began.
    round_began_ms: u64,
    /// The round that is out.
    in_flight: Option<u64>,
    /// Somebody asked for a round while one was out, or before the next look.
    asked: Option<Reason>,
    rounds: u64,
}

#[derive(Debug, Clone)]
struct Absence {
    /// When this leader first missed it, connected ever since.
    since_ms: u64,
    /// Last answer to a probe: when, and who answered.
    answer: Option<(u64, BTreeSet<u64>)>,
    /// A probe is out.
    asking: bool,
}

#[derive(Debug, Default)]
struct Dying {
    /// By node and port: `at_ms` of the last beat that counted, and how many in a row called the worker drained.
    drained: BTreeMap<(Name, u16), (u64, u32)>,
    /// When the assignment was first seen gone.
    unassigned_ms: Option<u64>,
    /// The assignment as last seen; `None` where this leader never saw one.
    last: Option<Assignment>,
}

/// What a round depends on; when it differs from the last round's, there is reason for another.
#[derive(Debug, Clone, PartialEq)]
struct Inputs {
    supervisors: Supervisors,
    wanted: BTreeSet<Name>,
    killed: BTreeSet<Name>,
    lost: BTreeSet<u64>,
}

impl Core {
    /// A new term.
    pub fn new(settings: Settings) -> Self {
        Core {
            settings,
            absent: BTreeMap::new(),
            dying: BTreeMap::new(),
            explanations: BTreeMap::new(),
            looked_at: None,
            round_began_ms: 0,
            in_flight: None,
            asked: None,
            rounds: 0,
        }
    }

    /// How each topology came to where it is.
    pub fn explanations(&self) -> &BTreeMap<Name, Explanation> {
        &self.explanations
    }

    /// Decides. `random` gives placement ids.
    pub fn step(&mut self, cluster: &Cluster, event: Event, now: Now, random: &mut dyn FnMut() -> u64) -> Vec<Action> {
        match event {
            Event::Look => {}
            Event::Round(reason) => self.asked = Some(reason),
            Event::Reconnected => {
                self.absent.values_mut().for_each(|a| *a = Absence { since_ms: now.mono_ms, answer: None, asking: a.asking })
            }
            Event::Probed { node, alive } => {
                if let Some(absence) = self.absent.get_mut(&node) {
                    (absence.asking, absence.answer) = (false, Some((now.mono_ms, alive)));
                }
            }
            Event::Planned { id, plans } => {
                if self.in_flight != Some(id) {
                    return Vec::new();
                }
                self.in_flight = None;
                return self.adopt(cluster, plans, now, random);
            }
        }
        let mut actions = Vec::new();
        self.note_absence(cluster, now);
        self.ask_the_silent(cluster, now, &mut actions);
        self.end_the_killed(cluster, now, &mut actions);
        finish_the_ended(cluster, &mut actions);
        self.explanations.retain(|id, _| cluster.topologies.contains_key(id));
        self.begin_round(cluster, now, &mut actions);
        actions
    }

    /// When the next step is due although nothing happens, monotonic milliseconds.
    pub fn wake_ms(&self, cluster: &Cluster, now: Now) -> u64 {
        // While a round is out, its answer is what is waited for.
        let mut wake = if self.in_flight.is_some() { u64::MAX } else { self.round_began_ms + self.settings.monitor_every_ms };
        for absence in self.absent.values() {
            wake = wake.min(match &absence.answer {
                _ if absence.asking => u64::MAX,
                Some((at_ms, _)) => at_ms + PROBE_EVERY_MS,
                None if !self.overdue(absence, now) => absence.since_ms + self.settings.absent_max_ms,
                None => u64::MAX,
            });
        }
        for record in cluster.topologies.values() {
            if let TopologyState::Killed { deadline_ms } = record.state {
                wake = wake.min(match self.dying.get(&record.id).and_then(|d| d.unassigned_ms) {
                    Some(gone_ms) => gone_ms + WORKERS_GONE_MAX_MS,
                    None => now.mono_ms + deadline_ms.saturating_sub(now.wall_ms),
                });
            }
        }
        wake.max(now.mono_ms)
    }

    /// Keeps `absent` equal to the nodes that hold workers and have no supervisor.
    fn note_absence(&mut self, cluster: &Cluster, now: Now) {
        let named: BTreeSet<&Name> = holding(cluster, &self.dying).flat_map(|(_, a)| a.workers.iter().map(|w| &w.slot.node)).collect();
        self.absent.retain(|node, _| named.contains(node) && !cluster.supervisors.contains_key(node));
        for node in named.into_iter().filter(|n| !cluster.supervisors.contains_key(*n)) {
            self.absent.entry(node.clone()).or_insert(Absence { since_ms: now.mono_ms, answer: None, asking: false });
        }
    }

    fn overdue(&self, absence: &Absence, now: Now) -> bool {
        now.mono_ms >= absence.since_ms + self.settings.absent_max_ms
    }

    fn ask_the_silent(&mut self, cluster: &Cluster, now: Now, actions: &mut Vec<Action>) {
        if !self.settings.probes {
            return;
        }
        let absent_max_ms = self.settings.absent_max_ms;
        for (node, absence) in &mut self.absent {
            let fresh = absence.answer.as_ref().is_some_and(|(at_ms, _)| now.mono_ms < at_ms + PROBE_EVERY_MS);
            if absence.asking || fresh || now.mono_ms < absence.since_ms + absent_max_ms {
                continue;
            }
            let workers: Vec<ProbeTarget> = holding(cluster, &self.dying)
                .flat_map(|(topology, a)| a.on(node).map(move |p| (topology, a, p)))
                .map(|(topology, a, p)| ProbeTarget {
                    topology: topology.clone(),
                    host: a.hosts.get(node).cloned().unwrap_or_default(),
                    port: p.slot.port,
                    placement: p.id,
                })
                .collect();
            absence.asking = true;
            actions.push(Action::Probe { node: node.clone(), workers });
        }
    }

    /// True where a placement is known to be gone: its node has no supervisor for too long, and it does not answer.
    fn is_lost(&self, placement: &Placement, now: Now) -> bool {
        let Some(absence) = self.absent.get(&placement.slot.node) else { return false };
        self.overdue(absence, now)
            && match (&absence.answer, self.settings.probes) {
                (_, false) => true,
                (Some((_, alive)), true) => !alive.contains(&placement.id),
                (None, true) => false,
            }
    }

    /// Placements that stay in a round: those on live slots, and those whose loss is not certain.
    fn kept(&self, cluster: &Cluster, assignment: &Assignment, now: Now) -> Assignment {
        let mut kept = assignment.clone();
        kept.workers.retain(|p| match cluster.supervisors.get(&p.slot.node) {
            Some(supervisor) => supervisor.slots.iter().any(|s| s.port == p.slot.port),
            None => !self.is_lost(p, now),
        });
        kept
    }

    fn end_the_killed(&mut self, cluster: &Cluster, now: Now, actions: &mut Vec<Action>) {
        let killed = |id: &Name| cluster.topologies.get(id).is_some_and(|r| matches!(r.state, TopologyState::Killed { .. }));
        self.dying.retain(|id, _| killed(id));
        for (id, record) in &cluster.topologies {
            let TopologyState::Killed { deadline_ms } = record.state else { continue };
            let dying = self.dying.entry(id.clone()).or_default();
            if let Some(assignment) = cluster.assignments.get(id) {
                dying.unassigned_ms = None;
                if dying.last.as_ref() != Some(assignment) {
                    dying.last = Some(assignment.clone());
                }
                let drained = dying.drained(cluster, id, assignment);
                if now.wall_ms >= deadline_ms || drained {
                    actions.push(Action::Unassign { topology: id.clone() });
                }
                continue;
            }
            if cluster.unreadable.contains(id) {
                if now.wall_ms >= deadline_ms {
                    actions.push(Action::Unassign { topology: id.clone() });
                }
                continue;
            }
            let since_ms = *dying.unassigned_ms.get_or_insert(now.mono_ms);
            let named = cluster
                .supervisors
                .keys()
                .filter_map(|s| cluster.beats.get(s))
                .any(|b| b.workers.iter().any(|w| w.topology == id.as_str()));
            let may_run_on = dying.may_run_on(cluster, id, &self.absent);
            if !named && may_run_on.is_empty() || now.mono_ms >= since_ms + WORKERS_GONE_MAX_MS {
                actions.push(Action::Remove { topology: id.clone(), may_run_on });
            }
        }
    }

    fn begin_round(&mut self, cluster: &Cluster, now: Now, actions: &mut Vec<Action>) {
        if self.in_flight.is_some() {
            return;
        }
        let (killed, wanted) = cluster
            .topologies
            .iter()
            .filter(|(id, _)| !cluster.unreadable.contains(*id))
            .partition::<Vec<_>, _>(|(_, r)| matches!(r.state, TopologyState::Killed { .. }));
        let inputs = Inputs {
            supervisors: cluster.supervisors.clone(),
            wanted: wanted.iter().map(|(id, _)| (*id).clone()).collect(),
            killed: killed.iter().map(|(id, _)| (*id).clone()).filter(|id| cluster.assignments.contains_key(id)).collect(),
            lost: cluster.assignments.values().flat_map(|a| &a.workers).filter(|p| self.is_lost(p, now)).map(|p| p.id).collect(),
        };
        let due = now.mono_ms >= self.round_began_ms + self.settings.monitor_every_ms;
        let Some(reason) = self.asked.or_else(|| reason_between(self.looked_at.as_ref(), &inputs)).or(due.then_some(Reason::Periodic))
        else {
            return;
        };
        (self.asked, self.round_began_ms, self.looked_at) = (None, now.mono_ms, Some(inputs));
        let mut topologies = Vec::new();
        // A killed topology is in the round for the slots it still holds; its plan is not used.
        for (id, record) in wanted.into_iter().chain(killed.into_iter().filter(|(id, _)| cluster.assignments.contains_key(*id))) {
            let stored = cluster.assignments.get(id);
            let current = stored.map(|a| self.kept(cluster, a, now)).unwrap_or_default();
            let here = current.slots();
            let former = stored.map(Assignment::slots).unwrap_or_default().into_iter().filter(|(id, _)| !here.contains_key(id)).collect();
            match round::layout_of(record) {
                Ok(layout) => topologies.push(Wanted { record: record.clone(), layout, current, former, rates: rates(cluster, id) }),
                Err(why) => self.explain(id, None, vec![format!("cannot be scheduled: {why}")]),
            }
        }
        if topologies.is_empty() {
            return;
        }
        let mut supervisors = cluster.supervisors.clone();
        let held = held_unread(cluster);
        for (slot, _) in held.iter().filter(|(slot, _)| topologies.iter().all(|t| t.current.at(slot).is_none())) {
            if let Some(supervisor) = supervisors.get_mut(&slot.node) {
                supervisor.slots.retain(|s| s.port != slot.port);
            }
        }
        self.rounds += 1;
        self.in_flight = Some(self.rounds);
        actions.push(Action::Round(Box::new(Round { id: self.rounds, reason, supervisors, topologies })));
    }

    /// Checks a plan against the cluster as it is now, and turns it into what to write.
    fn adopt(&mut self, cluster: &Cluster, plans: Vec<(Name, TopologyPlan)>, now: Now, random: &mut dyn FnMut() -> u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let live: Vec<_> = plans
            .iter()
            .filter_map(|(id, plan)| {
                let record = cluster.topologies.get(id).filter(|r| !matches!(r.state, TopologyState::Killed { .. }))?;
                (!cluster.unreadable.contains(id)).then_some((id, record, plan))
            })
            .collect();
        // A slot is free only when no stored assignment names it: two topologies never stand in one slot, in whatever order
        // supervisors read their assignments. One that is given up in this round can be dealt out in the next.
        let mut taken = held_unread(cluster);
        for (id, assignment) in &cluster.assignments {
            taken.extend(self.kept(cluster, assignment, now).workers.into_iter().map(|p| (p.slot, id.clone())));
        }
        for (id, record, plan) in live {
            let previous = cluster.assignments.get(id);
            let kept = previous.map(|a| self.kept(cluster, a, now)).unwrap_or_default();
            let checked = round::layout_of(record).and_then(|layout| {
                round::check(id, plan, &layout, &cluster.supervisors, &kept, &taken)?;
                Ok(layout)
            });
            let layout = match checked {
                Ok(layout) => layout,
                Err(why) => {
                    self.explain(id, Some(plan.how.clone()), vec![format!("the plan was not used: {why}")]);
                    continue;
                }
            };
            taken.extend(plan.slots.values().map(|slot| (slot.clone(), id.clone())));
            let Built { assignment, mut notes } =
                round::build(record, &layout, plan, &kept, previous, &cluster.supervisors, now.wall_ms, random);
            if plan.unplaced > 0 {
                notes.push(format!("{} of {} executors have no slot; free slots or add a supervisor", plan.unplaced, layout.n_executors()));
            }
            notes.extend(plan.notes.iter().cloned());
            self.explain(id, Some(plan.how.clone()), notes);
            if let Some(assignment) = round::next_version(previous, assignment) {
                actions.push(Action::Assign { topology: id.clone(), assignment: Box::new(assignment) });
            }
        }
        actions
    }

    fn explain(&mut self, id: &Name, how: Option<How>, notes: Vec<String>) {
        let before = self.explanations.get(id).and_then(|e| e.how.as_ref());
        // That a round left everything as it is does not change who put it there.
        let how = match (how, before) {
            (Some(How::Kept { why }), Some(How::Fallback { .. })) => Some(How::Fallback { why }),
            (how, _) => how,
        };
        self.explanations.insert(id.clone(), Explanation { how, notes });
    }
}

impl Dying {
    /// True once every worker of the assignment is drained or none, by beats newer than the kill.
    fn drained(&mut self, cluster: &Cluster, id: &Name, assignment: &Assignment) -> bool {
        let mut all = true;
        for placement in &assignment.workers {
            let node = &placement.slot.node;
            let (true, Some(beat)) = (cluster.supervisors.contains_key(node), cluster.beats.get(node)) else {
                all = false;
                continue;
            };
            let worker =
                beat.workers.iter().find(|w| w.topology == id.as_str() && w.port == placement.slot.port && w.placement == placement.id);
            if worker.is_some_and(|w| w.ended) {
                // Its tasks have finished; that is final, whenever it was said.
                continue;
            }
            let quiet = worker.is_none_or(|w| w.pid == 0 || w.drained);
            // The beat that was there when the kill was first seen may be older than it: it starts the count at nought.
            let (at_ms, n) = self.drained.entry((node.clone(), placement.slot.port)).or_insert((beat.at_ms, 0));
            if *at_ms != beat.at_ms {
                (*at_ms, *n) = (beat.at_ms, if quiet { *n + 1 } else { 0 });
            }
            all &= *n >= DRAINED_BEATS;
        }
        all
    }

    /// Nodes without supervisor on which a worker may still run once the assignment is gone: nobody there ends it, and no answer to a
    /// probe says that it has gone. A leader that never saw the assignment goes by what the supervisors said last.
    fn may_run_on(&self, cluster: &Cluster, id: &Name, absent: &BTreeMap<Name, Absence>) -> BTreeSet<Name> {
        let away = |node: &Name| !cluster.supervisors.contains_key(node);
        let Some(last) = &self.last else {
            let names_it = |b: &SupervisorBeat| b.workers.iter().any(|w| w.topology == id.as_str() && w.pid != 0);
            return cluster.beats.iter().filter(|(node, b)| away(node) && names_it(b)).map(|(node, _)| node.clone()).collect();
        };
        let silent = |p: &Placement| {
            let answer = absent.get(&p.slot.node).and_then(|a| a.answer.as_ref());
            answer.is_some_and(|(_, alive)| !alive.contains(&p.id))
        };
        last.workers.iter().filter(|p| away(&p.slot.node) && !silent(p)).map(|p| p.slot.node.clone()).collect()
    }
}

/// What the workers of a topology measured on its subscriptions, all together.
fn rates(cluster: &Cluster, topology: &Name) -> Vec<EdgeRate> {
    let mut all: BTreeMap<(&Name, &Name, &Name), (u64, u64)> = BTreeMap::new();
    let workers = cluster.beats.values().flat_map(|b| &b.workers).filter(|w| w.topology == topology.as_str());
    for e in workers.flat_map(|w| &w.edges) {
        let sum = all.entry((&e.from, &e.to, &e.stream)).or_default();
        *sum = (sum.0.saturating_add(e.tuples_per_s), sum.1.saturating_add(e.bytes_per_s));
    }
    let rate = |((from, to, stream), (tuples_per_s, bytes_per_s)): ((&Name, &Name, &Name), (u64, u64))| EdgeRate {
        from: from.clone(),
        to: to.clone(),
        stream: stream.clone(),
        tuples_per_s,
        bytes_per_s,
    };
    all.into_iter().map(rate).collect()
}

/// Slots on which, by the beats, topologies run whose assignment cannot be read: nobody else may have them.
fn held_unread(cluster: &Cluster) -> BTreeMap<SlotId, Name> {
    let workers = cluster.beats.iter().flat_map(|(node, b)| b.workers.iter().map(move |w| (node, w)));
    let held = workers.filter_map(|(node, w)| {
        let topology = cluster.unreadable.get(w.topology.as_str())?;
        Some((SlotId { node: node.clone(), port: w.port }, topology.clone()))
    });
    held.collect()
}

/// Assignments whose workers may run: those that are stored, and the last ones of killed topologies that are not yet removed.
fn holding<'a>(cluster: &'a Cluster, dying: &'a BTreeMap<Name, Dying>) -> impl Iterator<Item = (&'a Name, &'a Assignment)> {
    let ending = dying.iter().filter(|(id, _)| cluster.topologies.contains_key(*id) && !cluster.assignments.contains_key(*id));
    cluster.assignments.iter().chain(ending.filter_map(|(id, d)| Some((id, d.last.as_ref()?))))
}

fn reason_between(before: Option<&Inputs>, now: &Inputs) -> Option<Reason> {
    let Some(before) = before else { return Some(Reason::Periodic) };
    if !now.wanted.is_subset(&before.wanted) {
        Some(Reason::Submit)
    } else if !now.lost.is_subset(&before.lost) || before.supervisors.keys().any(|s| !now.supervisors.contains_key(s)) {
        // Fewer lost placements than before are those that were placed elsewhere: no reason for another round.
        Some(Reason::NodeLost)
    } else if before.supervisors != now.supervisors {
        Some(Reason::NodeBack)
    } else if before.wanted != now.wanted || before.killed != now.killed {
        Some(Reason::Kill)
    } else {
        None
    }
}

/// A topology has finished when every executor is placed and every worker says that all of its tasks have ended.
fn finish_the_ended(cluster: &Cluster, actions: &mut Vec<Action>) {
    for (id, record) in cluster.topologies.iter().filter(|(_, r)| !r.finished) {
        let Some(assignment) = cluster.assignments.get(id).filter(|a| !a.workers.is_empty()) else { continue };
        let ended = assignment.workers.iter().all(|p| beat_of(cluster, id, p).is_some_and(|w| w.ended));
        let placed: usize = assignment.workers.iter().map(|p| p.executors.len()).sum();
        if ended && round::layout_of(record).is_ok_and(|l| l.n_executors() as usize == placed) {
            actions.push(Action::Finish { topology: id.clone() });
        }
    }
}

/// What the supervisor of a placement last said of its worker.
pub fn beat_of<'a>(cluster: &'a Cluster, topology: &Name, placement: &Placement) -> Option<&'a WorkerBeat> {
    let beat = cluster.beats.get(&placement.slot.node)?;
    beat.workers.iter().find(|w| w.topology == topology.as_str() && w.port == placement.slot.port && w.placement == placement.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_placed_a_topology_is_not_forgotten_when_a_later_round_moves_nothing() {
        let mut core = Core::new(Settings { monitor_every_ms: 10_000, absent_max_ms: 9_000, probes: false });
        let id = Name::new("wc-1-2").unwrap();
        let mut after = |how| {
            core.explain(&id, Some(how), Vec::new());
            core.explanations()[&id].how.clone().unwrap()
        };
        let (broken, worse) = (|| "plugin x: not loaded".to_owned(), || "plugin x: too slow".to_owned());
        after(How::Fallback { why: broken() });
        assert_eq!(after(How::Kept { why: worse() }), How::Fallback { why: worse() });
        after(How::Plugin("x".into()));
        assert_eq!(after(How::Kept { why: broken() }), How::Kept { why: broken() }, "a plugin that broke since is told");
    }

    #[test]
    fn a_round_is_told_where_executors_were_whose_slot_is_gone() {
        let name = |text: &str| Name::new(text).unwrap();
        let record: TopologyRecord = serde_json::from_value(serde_json::json!({
            "id": "t-1-1", "name": "t", "digest": "", "binary": "", "args": [], "config": {"topology.acker.executors": "0"}, "submitted_ms": 1,
            "state": {"is": "active"},
            "spec": {"saetta": "0", "format": {"archive": "", "endian": "little", "unaligned": true, "pointer_bits": 32},
                "components": [{"id": "s", "kind": "spout", "executors": 2}]},
        }))
        .unwrap();
        let supervisors: Supervisors = serde_json::from_value(serde_json::json!({"n": {
            "id": "n", "host": "h", "slots": [{"port": 1, "cores": [0], "share": 1}], "resources": {}, "incarnation": 1,
            "platform": {"machine": "x86_64", "glibc": null},
        }}))
        .unwrap();
        let executors: Vec<ExecutorId> = round::layout_of(&record).unwrap().executors().map(|(_, e)| e).collect();
        let slot = |port| SlotId { node: name("n"), port };
        let placement = |port: u16, e: ExecutorId| -> Placement {
            serde_json::from_value(serde_json::json!({
                "slot": slot(port), "id": 1, "index": 0, "cores": [0], "share": 1, "executors": [{"id": e, "core": 0, "started_ms": 1}],
            }))
            .unwrap()
        };
        let workers = vec![placement(1, executors[0]), placement(2, executors[1])];
        let assignment = Assignment { version: 1, workers, ..Assignment::default() };
        let cluster = Cluster {
            supervisors,
            topologies: [(record.id.clone(), record.clone())].into(),
            assignments: [(record.id.clone(), assignment)].into(),
            ..Cluster::default()
        };
        let mut core = Core::new(Settings { monitor_every_ms: 10_000, absent_max_ms: 9_000, probes: false });
        let actions = core.step(&cluster, Event::Look, Now { mono_ms: 1, wall_ms: 1 }, &mut || 1);
        let rounds: Vec<&Round> = actions.iter().filter_map(|a| if let Action::Round(round) = a { Some(&**round) } else { None }).collect();
        let wanted = &rounds[0].topologies[0];
        assert_eq!(wanted.current.slots(), [(executors[0], slot(1))].into());
        assert_eq!(wanted.former, [(executors[1], slot(2))].into());
    }

    #[test]
    fn rates_of_a_topologys_workers_are_added_up() {
        let name = |text: &str| Name::new(text).unwrap();
        let worker = |topology: &str, tuples_per_s: u64| -> WorkerBeat {
            serde_json::from_value(serde_json::json!({
                "topology": topology, "port": 1, "placement": 1, "start": 1, "pid": 1, "state": "running", "version": 1, "executors": [],
                "edges": [{"from": "a", "to": "b", "stream": "s", "tuples_per_s": tuples_per_s, "bytes_per_s": 8 * tuples_per_s}],
            }))
            .unwrap()
        };
        let beat = |workers: Vec<WorkerBeat>| SupervisorBeat { at_ms: 1, workers };
        let beats = [(name("n1"), beat(vec![worker("t", 3), worker("other", 100)])), (name("n2"), beat(vec![worker("t", 4)]))];
        let cluster = Cluster { beats: beats.into(), ..Cluster::default() };
        let all = EdgeRate { from: name("a"), to: name("b"), stream: name("s"), tuples_per_s: 7, bytes_per_s: 56 };
        assert_eq!(rates(&cluster, &name("t")), [all]);
        assert_eq!(rates(&cluster, &name("gone")), []);
    }
}
