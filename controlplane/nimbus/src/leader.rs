//! The daemon: stands for election, reads the cluster when something changed, lets `core.rs` decide, carries the decisions out.
//!
//! Before: the store's signals and REST's requests. After: writes fenced by the leader's lock. Thin: no rule stands here.

use crate::core::{Action, Cluster, Core, Event, Explanation, Now, ProbeTarget, Settings};
use crate::home::{Home, random};
use crate::options::{NimbusError, NimbusOptions, WorkerProbe, loopback};
use crate::plugins;
use crate::rest;
use crate::round::{PlacementEngine, ask};
use crate::submit::Limits;
use saetta_model::{Assignment, Name, TopologyRecord};
use saetta_sched_host::{Memory, Reason, Scheduler};
use saetta_store::{Corrupt, Family, Leadership, Listing, NimbusInfo, SchedulerChoice, Store, StoreError, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::{error, info, warn};

/// One ZooKeeper tick: the server ends a session up to one tick late. 2 s is the server's own default; it does not tell clients.
const ZOOKEEPER_TICK: Duration = Duration::from_secs(2);
/// Added to session timeout and tick before a supervisor counts as lost.
const LOSS_MARGIN: Duration = Duration::from_secs(1);
/// Time one worker has to answer a probe.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Pause after something failed that will be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Requests for a round that may wait; more of them say nothing new.
const POKES_MAX: usize = 16;
/// Beats are read at most this often: every supervisor writes its own, and together they come at any rate.
const BEATS_EVERY: Duration = Duration::from_millis(200);
/// Files no topology uses are looked for this often.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Time requests have to end at a stop.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Families a leader reads.
const READ: [Family; 4] = [Family::Topologies, Family::Assignments, Family::Supervisors, Family::Beats];

/// What REST and the leader share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) home: Home,
    pub(crate) limits: Limits,
    pub(crate) info: NimbusInfo,
    /// Present while this nimbus leads.
    pub(crate) term: watch::Sender<Option<Arc<Term>>>,
    /// Held by whoever changes records: name checks and sweeps see no half-made submission.
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) explanations: Mutex<BTreeMap<Name, Explanation>>,
    /// Number of the next submission, part of topology ids.
    pub(crate) submissions: AtomicU64,
    engine: Arc<dyn PlacementEngine>,
    /// The engine, where it is the one with plugins.
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    /// The choice of the store that is in force here.
    pub(crate) chosen: tokio::sync::Mutex<Option<SchedulerChoice>>,
    /// What scheduler plugins want to find again, as it stands in the store.
    pub(crate) memory: tokio::sync::Mutex<Memory>,
    probe: Option<Arc<dyn WorkerProbe>>,
    monitor_every: Duration,
}

/// A term of leadership.
pub(crate) struct Term {
    pub(crate) lead: Leadership,
    pokes: mpsc::Sender<Reason>,
}

impl Term {
    /// Asks for a round. Where many wait already, one more would change nothing.
    pub(crate) fn poke(&self, reason: Reason) {
        let _ = self.pokes.try_send(reason);
    }
}

/// Starts nimbuses.
pub struct Nimbus;

/// A running nimbus.
#[derive(Debug)]
pub struct NimbusHandle {
    addr: SocketAddr,
    id: Name,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Nimbus {
    /// Starts one: takes the directory, listens, stands for election. It serves at once and leads when the store lets it; a store that is
    /// away is waited for. Must be called inside a multi-threaded tokio runtime.
    pub async fn start(options: NimbusOptions, store: Arc<dyn Store>) -> Result<NimbusHandle, NimbusError> {
        let mut of = options.scheduler.clone();
        of.policy.copies = Some(options.dir.join("plugins"));
        of.policy.rounds = Some(options.dir.join("rounds"));
        let scheduler = Arc::new(Scheduler::new(of));
        Self::start_all(options, store, scheduler.clone(), Some(scheduler)).await
    }

    /// As [`Nimbus::start`] with another engine, for tests that are not about scheduling.
    pub async fn start_with(
        options: NimbusOptions,
        store: Arc<dyn Store>,
        engine: Arc<dyn PlacementEngine>,
    ) -> Result<NimbusHandle, NimbusError> {
        Self::start_all(options, store, engine, None).await
    }

    async fn start_all(
        options: NimbusOptions,
        store: Arc<dyn Store>,
        engine: Arc<dyn PlacementEngine>,
        scheduler: Option<Arc<Scheduler>>,
    ) -> Result<NimbusHandle, NimbusError> {
        let bind = loopback(&options.bind)?;
        let (dir, secret_file) = (options.dir.clone(), options.secret_file.clone());
        let home = tokio::task::spawn_blocking(move || Home::open(&dir, secret_file.as_deref()))
            .await
            .map_err(|e| NimbusError::Io { doing: "opening nimbus.dir".into(), error: std::io::Error::other(e) })??;
        let listener = tokio::net::TcpListener::bind(bind)
            .await
            .map_err(|e| NimbusError::Bind { bind: options.bind.clone(), why: format!("cannot listen there: {e}") })?;
        let addr = listener.local_addr().map_err(|error| NimbusError::Io { doing: "reading the own address".into(), error })?;
        let info = NimbusInfo { id: home.id().clone(), address: addr.to_string() };
        let id = info.id.clone();
        let shared = Arc::new(Shared {
            store,
            home,
            limits: Limits { slots_max: options.slots_per_topology_max, executors_max: options.executors_per_topology_max },
            info,
            term: watch::Sender::new(None),
            changing: tokio::sync::Mutex::new(()),
            explanations: Mutex::default(),
            // Ids hold this and the second: a restart within one second must not count from the same number.
            submissions: AtomicU64::new(u64::from(u16::from_le_bytes(random()) % 9000) + 1),
            engine,
            scheduler,
            chosen: tokio::sync::Mutex::default(),
            memory: tokio::sync::Mutex::default(),
            probe: options.probe,
            monitor_every: options.monitor_every,
        });
        let (stop, stopped) = watch::channel(false);
        let mut serve_stopped = stopped.clone();
        let serve = axum::serve(listener, rest::router(shared.clone())).with_graceful_shutdown(async move {
            let _ = serve_stopped.wait_for(|s| *s).await;
        });
        let serving = tokio::spawn(async move {
            if let Err(e) = serve.await {
                error!(error = %e, "REST ended");
            }
        });
        let following = tokio::spawn(plugins::follow(shared.clone(), stopped.clone()));
        let leading = tokio::spawn(stand(shared, stopped));
        info!(%addr, %id, "nimbus serves");
        Ok(NimbusHandle { addr, id, stop, tasks: vec![leading, following, serving] })
    }
}

impl NimbusHandle {
    /// Where REST listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Id of this nimbus in the store.
    pub fn id(&self) -> &Name {
        &self.id
    }

    /// Stands down, ends REST, and returns when both are done or after 3 s.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for mut task in std::mem::take(&mut self.tasks) {
            if tokio::time::timeout(STOP_GRACE, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

impl Drop for NimbusHandle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Stands for election for ever. The directory's lock says that a former process with this id is dead: its place in the line, which
/// would stand there until its session times out, is removed.
async fn stand(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    if let Err(e) = shared.store.keep_nimbus(&shared.info).await {
        warn!(error = %e, "nimbus starts while the store is away; it appears there when the store is back");
    }
    if let Err(e) = shared.store.bury_contender(&shared.info.id).await {
        warn!(error = %e, "the line of contenders cannot be read yet; if this nimbus was killed, its old session has to time out first");
    }
    loop {
        let won = tokio::select! {
            _ = stopped.wait_for(|s| *s) => return,
            won = shared.store.campaign(&shared.info) => won,
        };
        let lead = match won {
            Ok(lead) => lead,
            Err(e) => {
                warn!(error = %e, "cannot stand for election; trying again");
                tokio::select! {
                    _ = stopped.wait_for(|s| *s) => return,
                    () = tokio::time::sleep(RETRY_AFTER) => continue,
                }
            }
        };
        let (pokes, poked) = mpsc::channel(POKES_MAX);
        let term = Arc::new(Term { lead, pokes });
        shared.term.send_replace(Some(term.clone()));
        info!(id = %shared.info.id, "nimbus leads");
        let stop = tokio::select! {
            _ = stopped.wait_for(|s| *s) => true,
            () = term.lead.lost() => false,
            () = lead_on(&shared, &term, poked) => false,
        };
        shared.term.send_replace(None);
        if stop {
            return;
        }
        warn!(id = %shared.info.id, "nimbus does not lead any more; standing again");
    }
}

/// The cluster as read, with the versions that writes need.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) cluster: Cluster,
    pub(crate) corrupt: BTreeMap<Family, Vec<Corrupt>>,
    topologies: BTreeMap<Name, Version>,
    assignments: BTreeMap<Name, Version>,
}

/// Splits a listing into values and versions, keeping what could not be read.
fn split<T>(listing: Listing<T>) -> (BTreeMap<Name, T>, BTreeMap<Name, Version>, BTreeMap<String, Corrupt>) {
    let versions = listing.items.iter().map(|(id, v)| (id.clone(), v.version)).collect();
    (listing.items.into_iter().map(|(id, v)| (id, v.value)).collect(), versions, listing.corrupt)
}

impl Known {
    /// Reads everything.
    pub(crate) async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut known = Known::default();
        for family in READ {
            known.refresh(store, family).await?;
        }
        Ok(known)
    }

    async fn refresh(&mut self, store: &dyn Store, family: Family) -> Result<(), StoreError> {
        let corrupt = match family {
            Family::Topologies => {
                let (values, versions, corrupt) = split::<TopologyRecord>(store.topologies().await?);
                (self.cluster.topologies, self.topologies) = (values, versions);
                corrupt
            }
            Family::Assignments => {
                let (values, versions, corrupt) = split::<Assignment>(store.assignments().await?);
                (self.cluster.assignments, self.assignments) = (values, versions);
                self.cluster.unreadable = corrupt.keys().filter_map(|id| Name::new(id).ok()).collect();
                corrupt
            }
            Family::Supervisors => {
                let (values, _, corrupt) = split(store.supervisors().await?);
                self.cluster.supervisors = values;
                corrupt
            }
            Family::Beats => {
                let (values, _, corrupt) = split(store.beats().await?);
                self.cluster.beats = values;
                corrupt
            }
            Family::Leader | Family::Errors | Family::Nimbuses | Family::Blobs | Family::Scheduler => return Ok(()),
        };
        let corrupt: Vec<Corrupt> = corrupt.into_values().collect();
        if self.corrupt.get(&family).is_none_or(|before| *before != corrupt) {
            for c in &corrupt {
                error!(path = %c.path, why = %c.why, "a node of the store cannot be read; what it is about stays as it is");
            }
            self.corrupt.insert(family, corrupt);
        }
        Ok(())
    }
}

/// Leads until the lock is found lost.
async fn lead_on(shared: &Arc<Shared>, term: &Arc<Term>, mut poked: mpsc::Receiver<Reason>) {
    let store = &shared.store;
    // Before the first round, so that it is not another scheduler's.
    plugins::apply(shared).await;
    plugins::recall(shared).await;
    let began = Instant::now();
    let absent_max = store.session_timeout() + ZOOKEEPER_TICK + LOSS_MARGIN;
    let mut core = Core::new(Settings {
        monitor_every_ms: shared.monitor_every.as_millis() as u64,
        absent_max_ms: absent_max.as_millis() as u64,
        probes: shared.probe.is_some(),
    });
    let mut known = Known::default();
    let mut signals = READ.map(|family| store.watch(family));
    let mut connection = store.connection();
    let mut dirty: BTreeSet<Family> = READ.into();
    let mut events: VecDeque<Event> = VecDeque::new();
    let mut out: JoinSet<Event> = JoinSet::new();
    let mut was_up = true;
    let mut swept: Option<Instant> = None;
    let mut beats_due = began;
    loop {
        let mut failed = false;
        while let Some(family) = dirty.pop_first() {
            if family == Family::Beats {
                beats_due = Instant::now() + BEATS_EVERY;
            }
            if let Err(e) = known.refresh(&**store, family).await {
                warn!(family = family.dir(), error = %e, "the cluster cannot be read now; nothing is decided until it can");
                dirty.insert(family);
                failed = true;
                break;
            }
        }
        if !failed {
            let now = Now { mono_ms: began.elapsed().as_millis() as u64, wall_ms: wall_ms() };
            let event = events.pop_front().unwrap_or(Event::Look);
            let actions = core.step(&known.cluster, event, now, &mut || u64::from_le_bytes(random()));
            shared.explanations.lock().expect("nothing panics while it holds this").clone_from(core.explanations());
            for action in actions {
                match perform(shared, term, &known, action, &mut out).await {
                    Ok(changed) => dirty.extend(changed),
                    Err(StoreError::Fenced { .. }) => return,
                    Err(e) => {
                        warn!(error = %e, "a decision could not be carried out; the cluster is read again and decided anew");
                        dirty.extend(READ);
                        events.push_back(Event::Round(Reason::Periodic));
                        failed = true;
                    }
                }
            }
            if !failed && swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
                swept = Some(Instant::now());
                sweep(shared, term).await;
            }
            let more = !dirty.is_empty() || !events.is_empty();
            if more && !failed {
                continue;
            }
        }
        let now = Now { mono_ms: began.elapsed().as_millis() as u64, wall_ms: wall_ms() };
        let wake = if failed {
            Instant::now() + RETRY_AFTER
        } else {
            began + Duration::from_millis(core.wake_ms(&known.cluster, now).min(u64::from(u32::MAX)))
        };
        let beats_wait = beats_due > Instant::now();
        let wake = if beats_wait { wake.min(beats_due) } else { wake };
        let [topologies, assignments, supervisors, beats] = &mut signals;
        // After a failure only time and the connection count: signals would make a busy loop of it.
        tokio::select! {
            // A state is decided on with beats that are no older than it.
            _ = topologies.changed(), if !failed => dirty.extend(READ),
            _ = assignments.changed(), if !failed => drop(dirty.insert(Family::Assignments)),
            _ = supervisors.changed(), if !failed => drop(dirty.insert(Family::Supervisors)),
            _ = beats.changed(), if !failed && !beats_wait => drop(dirty.insert(Family::Beats)),
            Ok(()) = connection.changed() => {
                let up = connection.borrow_and_update().up;
                if up && !was_up {
                    events.push_back(Event::Reconnected);
                    dirty.extend(READ);
                }
                was_up = up;
            }
            Some(reason) = poked.recv() => {
                events.push_back(Event::Round(reason));
                // What an operator asked for is decided on the newest of everything.
                dirty.extend(READ);
            }
            Some(done) = out.join_next() => match done {
                // A plan is checked against the cluster as it is when the plan comes.
                Ok(event) => {
                    events.push_back(event);
                    dirty.extend(READ);
                }
                Err(e) => error!(error = %e, "a task of the leader failed"),
            },
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

/// Carries one decision out. Returns the families that changed by it.
async fn perform(
    shared: &Arc<Shared>,
    term: &Arc<Term>,
    known: &Known,
    action: Action,
    out: &mut JoinSet<Event>,
) -> Result<Vec<Family>, StoreError> {
    let (store, lead) = (&shared.store, &term.lead);
    match action {
        Action::Round(round) => {
            let engine = shared.engine.clone();
            let (shared, term, leader_term) = (shared.clone(), term.clone(), term.lead.number());
            out.spawn(async move {
                let id = round.id;
                let seed = u64::from_le_bytes(random());
                let asked = tokio::task::spawn_blocking(move || ask(&*engine, &round, seed, leader_term)).await;
                let plans = asked.map(|outcome| outcome.topologies).unwrap_or_else(|e| {
                    error!(error = %e, "the scheduler's host failed; everything stays where it is until the next round");
                    Vec::new()
                });
                // Beside the decision, which need not wait for it.
                tokio::spawn(plugins::keep_memory(shared, term));
                Event::Planned { id, plans }
            });
            Ok(vec![])
        }
        Action::Assign { topology, assignment } => {
            store.put_assignment(lead, &topology, &assignment, known.assignments.get(&topology).copied()).await?;
            let moves = known.cluster.assignments.get(&topology).cloned().unwrap_or_default().diff(&assignment);
            info!(%topology, version = assignment.version, workers = assignment.workers.len(), moves = moves.len(), "assigned");
            Ok(vec![Family::Assignments])
        }
        Action::Unassign { topology } => {
            store.delete_assignment(lead, &topology).await?;
            info!(%topology, "unassigned; its workers end");
            Ok(vec![Family::Assignments])
        }
        Action::Remove { topology, may_run_on } => {
            {
                let _one_at_a_time = shared.changing.lock().await;
                store.delete_topology(lead, &topology).await?;
            }
            if may_run_on.is_empty() {
                info!(%topology, "removed");
            } else {
                let nodes = may_run_on.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
                warn!(%topology, %nodes, "removed, but a worker of it may still run on nodes whose supervisor is away; it ends when its supervisor is back");
            }
            sweep(shared, term).await;
            Ok(vec![Family::Topologies, Family::Assignments])
        }
        Action::Finish { topology } => {
            if let (Some(record), Some(version)) = (known.cluster.topologies.get(&topology), known.topologies.get(&topology)) {
                store.update_topology(lead, &TopologyRecord { finished: true, ..record.clone() }, *version).await?;
                info!(%topology, "finished: every task has ended");
            }
            Ok(vec![Family::Topologies])
        }
        Action::Probe { node, workers } => {
            let shared = shared.clone();
            out.spawn(async move { Event::Probed { alive: ask_workers(&shared, &node, workers).await, node } });
            Ok(vec![])
        }
    }
}

/// Asks the workers of a node, all at once. One that cannot be asked, because its key is not here, counts as alive.
async fn ask_workers(shared: &Arc<Shared>, node: &Name, workers: Vec<ProbeTarget>) -> BTreeSet<u64> {
    let Some(probe) = &shared.probe else { return BTreeSet::new() };
    let answers = workers.into_iter().map(|w| {
        let (shared, probe) = (shared.clone(), probe.clone());
        async move {
            let reading = { let topology = w.topology.clone(); tokio::task::spawn_blocking(move || shared.home.key(&topology)).await };
            let key = match reading.map_err(std::io::Error::other).and_then(|key| key) {
                Ok(key) => key,
                Err(e) => {
                    error!(topology = %w.topology, error = %e, "its key is not here, so its workers cannot be asked; they stay where they are");
                    return Some(w.placement);
                }
            };
            let addr = if w.host.contains(':') { format!("[{}]:{}", w.host, w.port) } else { format!("{}:{}", w.host, w.port) };
            let asked = tokio::time::timeout(PROBE_MAX, probe.alive(&addr, &w.topology, &key, w.placement)).await;
            asked.unwrap_or(false).then_some(w.placement)
        }
    });
    let alive: BTreeSet<u64> = futures::future::join_all(answers).await.into_iter().flatten().collect();
    info!(%node, alive = alive.len(), "its supervisor is away; its workers were asked");
    alive
}

/// Removes what no topology uses: keys, binaries, and their entries in the store. Failing is harmless, the next one tries again.
async fn sweep(shared: &Arc<Shared>, term: &Arc<Term>) {
    let _one_at_a_time = shared.changing.lock().await;
    let records = match shared.store.topologies().await {
        // What cannot be read may use anything.
        Ok(records) if records.corrupt.is_empty() => records.items,
        Ok(_) => return,
        Err(e) => return warn!(error = %e, "no sweep now"),
    };
    let mut blobs: BTreeSet<String> = records.values().map(|r| r.value.binary.clone()).collect();
    match shared.store.scheduler().await {
        Ok(choice) => blobs.extend(choice.map(|c| c.sha256)),
        Err(e) => return warn!(error = %e, "no sweep now"),
    }
    let keys: BTreeSet<String> = records.keys().map(|id| id.as_str().to_owned()).collect();
    match shared.store.blobs().await {
        Ok(entries) => {
            for sha256 in entries.into_keys().filter(|sha256| !blobs.contains(sha256)) {
                if let Err(e) = shared.store.delete_blob(&term.lead, &sha256).await {
                    return warn!(error = %e, "no sweep now");
                }
            }
        }
        Err(e) => return warn!(error = %e, "no sweep now"),
    }
    let shared = shared.clone();
    let swept = tokio::task::spawn_blocking(move || shared.home.sweep(|sha256| blobs.contains(sha256), |id| keys.contains(id))).await;
    if let Err(e) = swept.map_err(std::io::Error::other).and_then(|s| s) {
        warn!(error = %e, "nimbus.dir could not be swept");
    }
}
