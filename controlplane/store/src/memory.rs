//! The store in memory: the twin of ZooKeeper for `saetta dev` and for tests. Same bytes, same rules, no server.
//!
//! A [`MemoryCluster`] stands for the servers, a [`MemoryStore`] for one session with them. Sessions end by `close`, by dropping
//! the handle, or by [`MemoryStore::expire_session`]; [`MemoryStore::set_away`] cuts one session off without ending it.

use crate::error::StoreError;
use crate::paths::{Family, Paths};
use crate::tree::{Connection, Grant, Leadership, Node, SAFETY_SIGNAL_EVERY, Signals, Tree, Write, lease_over};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Session timeout a memory store states where none was asked for; nothing in memory times out by it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// What the servers would hold.
#[derive(Debug)]
pub struct MemoryCluster {
    paths: Paths,
    state: Mutex<State>,
    signals: Signals,
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<String, Held>,
    /// Sessions ever opened; the newest number is the newest session.
    sessions: u64,
    /// Places in the leader's line ever given.
    sequence: u64,
}

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    version: i32,
    /// Session that an ephemeral node ends with.
    owner: Option<u64>,
}

impl MemoryCluster {
    /// An empty cluster under `/saetta`.
    pub fn new() -> Arc<Self> {
        let paths = Paths::new("/saetta").expect("the built-in root is fine");
        let node = || Held { bytes: Vec::new(), version: 0, owner: None };
        let mut nodes = BTreeMap::from([(paths.root().to_owned(), node())]);
        nodes.extend(Family::ALL.map(|f| (paths.dir(f), node())));
        Arc::new(MemoryCluster { paths, state: Mutex::new(State { nodes, sessions: 0, sequence: 0 }), signals: Signals::new() })
    }

    /// Every path with its bytes, ascending: what a test compares.
    pub fn dump(&self) -> Vec<(String, Vec<u8>)> {
        self.lock().nodes.iter().map(|(p, h)| (p.clone(), h.bytes.clone())).collect()
    }

    /// Puts raw bytes at a path, as an operator with a shell would.
    pub fn plant(&self, path: &str, bytes: &[u8]) {
        self.lock().nodes.insert(path.into(), Held { bytes: bytes.into(), version: 0, owner: None });
        self.fire(path);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    fn fire(&self, path: &str) {
        if let Some(family) = self.paths.family_of(path) {
            self.signals.fire(family);
        }
    }

    fn remove_owned(&self, owner: u64) {
        let gone: Vec<String> = {
            let mut state = self.lock();
            let gone = state.nodes.iter().filter(|(_, h)| h.owner == Some(owner)).map(|(p, _)| p.clone()).collect();
            state.nodes.retain(|_, h| h.owner != Some(owner));
            gone
        };
        gone.iter().for_each(|p| self.fire(p));
    }
}

/// One session with a [`MemoryCluster`].
#[derive(Debug)]
pub struct MemoryStore {
    cluster: Arc<MemoryCluster>,
    session_timeout: Duration,
    mine: Arc<Mutex<Mine>>,
    connection: watch::Sender<Connection>,
    /// Counts sessions of this handle that ended; a lock belongs to one of them.
    ended: watch::Sender<u64>,
    ticker: Option<tokio::task::JoinHandle<()>>,
}

#[derive(Debug)]
struct Mine {
    session: u64,
    away: bool,
    closed: bool,
    /// Ephemeral nodes to make again.
    kept: BTreeMap<String, Vec<u8>>,
}

/// A place in the leader's line; dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct MemoryLock {
    cluster: Arc<MemoryCluster>,
    path: String,
}

impl MemoryLock {
    /// Of the place in the line.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.cluster.lock().nodes.remove(&self.path);
        self.cluster.fire(&self.path);
    }
}

impl MemoryStore {
    /// A store of its own.
    pub fn new() -> Self {
        Self::open(&MemoryCluster::new())
    }

    /// A session with `cluster`. Inside a tokio runtime the signals also rise every 10 s, as with ZooKeeper.
    pub fn open(cluster: &Arc<MemoryCluster>) -> Self {
        Self::open_with(cluster, SESSION_TIMEOUT)
    }

    /// As [`MemoryStore::open`], stating a session timeout.
    pub fn open_with(cluster: &Arc<MemoryCluster>, session_timeout: Duration) -> Self {
        let session = {
            let mut state = cluster.lock();
            state.sessions += 1;
            state.sessions
        };
        let weak = Arc::downgrade(cluster);
        let ticker = tokio::runtime::Handle::try_current().ok().map(|runtime| {
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(SAFETY_SIGNAL_EVERY).await;
                    let Some(cluster) = weak.upgrade() else { return };
                    cluster.signals.fire_all();
                }
            })
        });
        MemoryStore {
            cluster: cluster.clone(),
            session_timeout,
            mine: Arc::new(Mutex::new(Mine { session, away: false, closed: false, kept: BTreeMap::new() })),
            connection: watch::Sender::new(Connection { up: true, since: Instant::now() }),
            ended: watch::Sender::new(0),
            ticker,
        }
    }

    /// The servers of this session.
    pub fn cluster(&self) -> &Arc<MemoryCluster> {
        &self.cluster
    }

    /// Cuts this session off (`true`): every call answers `Unavailable`, and others still see its ephemeral nodes; or connects it again.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
        self.connection.send_replace(Connection { up: !away, since: Instant::now() });
        if !away {
            self.keep_again();
            self.cluster.signals.fire_all();
        }
    }

    /// Ends the session as a server would that heard nothing for too long. Where connected, a new one begins at once.
    pub fn expire_session(&self) {
        let (old, away) = {
            let mut mine = self.lock();
            let old = mine.session;
            let mut state = self.cluster.lock();
            state.sessions += 1;
            mine.session = state.sessions;
            (old, mine.away)
        };
        self.cluster.remove_owned(old);
        self.ended.send_modify(|n| *n += 1);
        if !away {
            self.keep_again();
            self.cluster.signals.fire_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mine> {
        self.mine.lock().expect("nothing panics while it holds the session")
    }

    fn keep_again(&self) {
        let (session, kept) = {
            let mine = self.lock();
            (mine.session, mine.kept.clone())
        };
        for (path, bytes) in kept {
            self.cluster.lock().nodes.entry(path.clone()).or_insert(Held { bytes, version: 0, owner: Some(session) });
            self.cluster.fire(&path);
        }
    }

    fn here(&self) -> Result<u64, StoreError> {
        let mine = self.lock();
        match (mine.closed, mine.away) {
            (true, _) => Err(StoreError::unavailable("the session was closed")),
            (_, true) => Err(StoreError::unavailable("no connection")),
            _ => Ok(mine.session),
        }
    }

    fn end(&self) {
        let session = {
            let mut mine = self.lock();
            mine.closed = true;
            mine.kept.clear();
            mine.session
        };
        self.cluster.remove_owned(session);
        self.ended.send_modify(|n| *n += 1);
        self.connection.send_replace(Connection { up: false, since: Instant::now() });
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.end();
        if let Some(ticker) = &self.ticker {
            ticker.abort();
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(p, _)| p)
}

fn has_children(nodes: &BTreeMap<String, Held>, path: &str) -> bool {
    let prefix = format!("{path}/");
    nodes.range(prefix.clone()..).next().is_some_and(|(p, _)| p.starts_with(&prefix))
}

/// Applies one write or says why not.
fn apply(nodes: &mut BTreeMap<String, Held>, write: &Write) -> Result<(), StoreError> {
    let not_found = |path: &str| Err(StoreError::NotFound { path: path.into() });
    let conflict = |path: &str, why: &str| Err(StoreError::Conflict { path: path.into(), why: why.into() });
    match write {
        Write::Create { path, .. } if nodes.contains_key(path) => conflict(path, "it exists already"),
        Write::Create { path, .. } if !nodes.contains_key(parent(path)) => not_found(path),
        Write::Create { path, bytes } => {
            nodes.insert(path.clone(), Held { bytes: bytes.clone(), version: 0, owner: None });
            Ok(())
        }
        Write::Set { path, bytes, version } => match nodes.get_mut(path) {
            None => not_found(path),
            Some(held) if version.is_some_and(|v| v != held.version) => conflict(path, "its version differs"),
            Some(held) => {
                held.bytes = bytes.clone();
                held.version += 1;
                Ok(())
            }
        },
        Write::Delete { path } if !nodes.contains_key(path) => not_found(path),
        Write::Delete { path } if has_children(nodes, path) => conflict(path, "something is below it"),
        Write::Delete { path } => {
            nodes.remove(path);
            Ok(())
        }
        Write::Check { path } if !nodes.contains_key(path) => not_found(path),
        Write::Check { .. } => Ok(()),
    }
}

#[async_trait]
impl Tree for MemoryStore {
    fn paths(&self) -> &Paths {
        &self.cluster.paths
    }

    fn signal(&self, family: Family) -> watch::Receiver<u64> {
        self.cluster.signals.of(family).subscribe()
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.connection.subscribe()
    }

    fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    async fn read(&self, path: &str) -> Result<Option<Node>, StoreError> {
        self.here()?;
        Ok(self.cluster.lock().nodes.get(path).map(|h| Node { bytes: h.bytes.clone(), version: h.version }))
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, StoreError> {
        Ok(self.read_children(path).await?.into_iter().map(|(name, _)| name).collect())
    }

    async fn read_children(&self, path: &str) -> Result<Vec<(String, Node)>, StoreError> {
        self.here()?;
        let prefix = format!("{path}/");
        let state = self.cluster.lock();
        Ok(state
            .nodes
            .range(prefix.clone()..)
            .take_while(|(p, _)| p.starts_with(&prefix))
            .filter(|(p, _)| !p[prefix.len()..].contains('/'))
            .map(|(p, h)| (p[prefix.len()..].to_owned(), Node { bytes: h.bytes.clone(), version: h.version }))
            .collect())
    }

    async fn commit(&self, fence: Option<&Leadership>, writes: Vec<Write>) -> Result<(), StoreError> {
        let first = writes.first().map_or_else(String::new, |w| w.path().to_owned());
        if fence.is_some_and(|lead| !lead.is_held()) {
            return Err(StoreError::Fenced { path: first });
        }
        self.here()?;
        {
            let mut state = self.cluster.lock();
            if let Some(lead) = fence {
                let Grant::Memory(lock) = &lead.grant else { return Err(StoreError::Fenced { path: first }) };
                if !state.nodes.contains_key(&lock.path) {
                    return Err(StoreError::Fenced { path: first });
                }
            }
            // Few writes, few nodes: undo by keeping what each touched node was.
            let mut before: Vec<(String, Option<Held>)> = Vec::new();
            for write in &writes {
                let was = state.nodes.get(write.path()).map(|h| Held { bytes: h.bytes.clone(), version: h.version, owner: h.owner });
                if let Err(e) = apply(&mut state.nodes, write) {
                    for (path, held) in before.into_iter().rev() {
                        match held {
                            Some(held) => drop(state.nodes.insert(path, held)),
                            None => drop(state.nodes.remove(&path)),
                        }
                    }
                    return Err(e);
                }
                before.push((write.path().to_owned(), was));
            }
        }
        writes.iter().filter(|w| !matches!(w, Write::Check { .. })).for_each(|w| self.cluster.fire(w.path()));
        Ok(())
    }

    async fn keep(&self, path: String, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.lock().kept.insert(path.clone(), bytes.clone());
        let session = self.here()?;
        {
            let mut state = self.cluster.lock();
            let version = state.nodes.get(&path).filter(|h| h.owner == Some(session)).map_or(0, |h| h.version + 1);
            state.nodes.insert(path.clone(), Held { bytes, version, owner: Some(session) });
        }
        self.cluster.fire(&path);
        Ok(())
    }

    async fn unkeep(&self, path: &str) -> Result<(), StoreError> {
        self.lock().kept.remove(path);
        let session = self.here()?;
        let removed = {
            let mut state = self.cluster.lock();
            let own = state.nodes.get(path).is_some_and(|h| h.owner == Some(session));
            own && state.nodes.remove(path).is_some()
        };
        if removed {
            self.cluster.fire(path);
        }
        Ok(())
    }

    async fn lock(&self, bytes: Vec<u8>) -> Result<Leadership, StoreError> {
        let dir = self.cluster.paths.dir(Family::Leader);
        let mut changed = self.cluster.signals.of(Family::Leader).subscribe();
        let mut connection = self.connection.subscribe();
        'stand: loop {
            if self.lock().closed {
                return Err(StoreError::unavailable("the session was closed"));
            }
            let mut ended = self.ended.subscribe();
            let Ok(session) = self.here() else {
                let _ = connection.wait_for(|c| c.up).await;
                continue;
            };
            let place = {
                let mut state = self.cluster.lock();
                state.sequence += 1;
                let path = format!("{dir}/_c_memory-latch-{:010}", state.sequence);
                state.nodes.insert(path.clone(), Held { bytes: bytes.clone(), version: 0, owner: Some(session) });
                MemoryLock { cluster: self.cluster.clone(), path }
            };
            self.cluster.fire(&place.path);
            loop {
                changed.borrow_and_update();
                let first = {
                    let state = self.cluster.lock();
                    if !state.nodes.contains_key(&place.path) {
                        continue 'stand;
                    }
                    let prefix = format!("{dir}/");
                    state.nodes.range(prefix..).next().is_some_and(|(p, _)| *p == place.path)
                };
                if first {
                    let (set_lost, lost) = watch::channel(false);
                    let (connection, timeout) = (self.connection.subscribe(), self.session_timeout);
                    let (cluster, path) = (Arc::downgrade(&self.cluster), place.path.clone());
                    tokio::spawn(async move {
                        let taken_away = async {
                            while cluster.upgrade().is_some_and(|c| c.lock().nodes.contains_key(&path)) {
                                let _ = changed.changed().await;
                            }
                        };
                        tokio::select! {
                            () = taken_away => {}
                            _ = ended.changed() => {}
                            () = lease_over(connection, timeout) => {}
                            () = set_lost.closed() => {}
                        }
                        set_lost.send_replace(true);
                    });
                    return Ok(Leadership { lost, grant: Grant::Memory(place) });
                }
                let _ = changed.changed().await;
            }
        }
    }

    async fn close(&self) {
        self.end();
    }
}
