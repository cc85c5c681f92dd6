//! The store over ZooKeeper. One task supervises the session; everything else borrows the client it publishes.
//!
//! The task connects, makes the directories, makes kept nodes again, arms one persistent recursive watch per family that somebody
//! watches, publishes the client, and does all of that again after a session is lost. A watch event only fires the family's
//! signal. Events may be lost while a connection is replaced (ZOOKEEPER-4698), so a reconnect fires every signal, and so does
//! a ticker every 10 s.

use crate::error::StoreError;
use crate::paths::{Family, Paths};
use crate::tree::{Connection, Grant, Leadership, Node, SAFETY_SIGNAL_EVERY, Signals, Tree, Write, lease_over};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};
use zookeeper_client as zk;
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, EventType, LockOptions, LockPrefix, SessionState};

/// Longest time one call takes, as the trait promises.
const CALL_MAX: Duration = Duration::from_secs(5);
/// A call made while the store has been away for longer than this fails at once; a shorter absence is waited out within `CALL_MAX`.
const AWAY_PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a session to end at `close`.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Pause before a session is asked for again; doubles up to `CONNECT_PAUSE_MAX`.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Children read at once; each is a request of its own, all on their way together.
const READS_TOGETHER: usize = 256;

const PERSISTENT: zk::CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: zk::CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// How to reach ZooKeeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZkOptions {
    /// `zookeeper.servers`: host:port by comma.
    pub servers: String,
    /// `zookeeper.root`.
    pub root: String,
    /// `zookeeper.session.timeout.secs`; the server may agree to another one.
    pub session_timeout: Duration,
}

/// A session with ZooKeeper that is renewed for as long as the handle lives.
#[derive(Debug)]
pub struct ZkStore {
    inner: Arc<Inner>,
    /// Ends by itself after `closed`; aborted when the handle is dropped.
    session: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Inner {
    options: ZkOptions,
    paths: Paths,
    signals: Signals,
    /// The client of the session in force; `None` while there is none.
    client: watch::Sender<Option<Client>>,
    connection: watch::Sender<Connection>,
    session_timeout: Mutex<Duration>,
    kept: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Families somebody watches.
    wanted: Mutex<BTreeSet<Family>>,
    wanted_more: Notify,
    /// Lock nodes held or asked for through this handle.
    locks: Mutex<BTreeSet<String>>,
    closed: watch::Sender<bool>,
}

impl ZkStore {
    /// Begins to connect and returns at once: ZooKeeper may come later. Fails (`Refused`) only on options that can never work.
    /// Must be called inside a tokio runtime.
    pub fn open(options: ZkOptions) -> Result<Self, StoreError> {
        let refused = |why: String| StoreError::Refused { path: options.servers.clone(), why };
        for server in options.servers.split(',') {
            let port = server.trim().rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, p)| p.parse::<u16>().ok());
            if port.is_none_or(|p| p == 0) || server.contains('/') {
                return Err(refused(format!("zookeeper.servers: {server:?} is not HOST:PORT; write as 127.0.0.1:2181,10.0.0.2:2181")));
            }
        }
        let paths = Paths::new(&options.root).map_err(refused)?;
        let inner = Arc::new(Inner {
            session_timeout: Mutex::new(options.session_timeout),
            options,
            paths,
            signals: Signals::new(),
            client: watch::Sender::new(None),
            connection: watch::Sender::new(Connection { up: false, since: Instant::now() }),
            kept: Mutex::default(),
            wanted: Mutex::default(),
            wanted_more: Notify::new(),
            locks: Mutex::default(),
            closed: watch::Sender::new(false),
        });
        let session = tokio::spawn(run(inner.clone()));
        Ok(ZkStore { inner, session })
    }

    /// Id of the session in force, as the server prints it in hex; `None` while there is none.
    pub fn session_id(&self) -> Option<i64> {
        self.inner.client.borrow().as_ref().map(|client| client.session_id().0)
    }
}

impl Drop for ZkStore {
    fn drop(&mut self) {
        self.inner.closed.send_replace(true);
        self.inner.client.send_replace(None);
        self.session.abort();
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this")
}

/// True for errors that end a session for good.
fn is_over(error: &zk::Error) -> bool {
    matches!(
        error,
        zk::Error::SessionExpired | zk::Error::ClientClosed | zk::Error::AuthFailed | zk::Error::NoHosts | zk::Error::SessionMoved
    )
}

/// True where the connection, not the request, is at fault. The client library reports a silent server and a broken socket as
/// errors of its own kind (`Custom`), so the list holds everything that is not an answer of the server.
fn is_away(error: &zk::Error) -> bool {
    use zk::Error::{ConnectionLoss, Custom, NotReadOnly, Throttled, Timeout, UnexpectedError, UnmarshalError};
    is_over(error)
        || matches!(error, ConnectionLoss | Timeout | Throttled | NotReadOnly | Custom(_) | UnexpectedError(_) | UnmarshalError { .. })
}

fn store_error(path: &str, error: zk::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        e if is_away(&e) => StoreError::unavailable(e.to_string()),
        zk::Error::NoNode => StoreError::NotFound { path },
        zk::Error::NodeExists => StoreError::Conflict { path, why: "it exists already".into() },
        zk::Error::BadVersion => StoreError::Conflict { path, why: "its version differs".into() },
        zk::Error::NotEmpty => StoreError::Conflict { path, why: "something is below it".into() },
        zk::Error::NoAuth => StoreError::Refused { path, why: "ZooKeeper denies access; check the ACL of this node".into() },
        e => StoreError::Refused { path, why: format!("ZooKeeper refuses: {e}") },
    }
}

impl Inner {
    /// The client of a session that is up, waiting for one as the constants above allow.
    async fn client(&self, deadline: Instant) -> Result<Client, StoreError> {
        let mut connection = self.connection.subscribe();
        loop {
            if *self.closed.borrow() {
                return Err(StoreError::unavailable("the session was closed"));
            }
            let now = *connection.borrow_and_update();
            let client = self.client.borrow().clone();
            if let (true, Some(client)) = (now.up, client) {
                return Ok(client);
            }
            let patience = deadline.min(now.since + AWAY_PATIENCE);
            if timeout_at(patience, connection.changed()).await.is_err() {
                return Err(StoreError::unavailable(format!(
                    "no connection to ZooKeeper at {} for {} ms",
                    self.options.servers,
                    now.since.elapsed().as_millis()
                )));
            }
        }
    }

    /// Does a read, again where the connection was lost under it, within `CALL_MAX`.
    async fn reading<R, F: Future<Output = Result<R, zk::Error>>>(&self, path: &str, read: impl Fn(Client) -> F) -> Result<R, StoreError> {
        let deadline = Instant::now() + CALL_MAX;
        loop {
            let client = self.client(deadline).await?;
            match timeout_at(deadline, read(client)).await {
                Err(_) => return Err(StoreError::unavailable(format!("no answer within {} s", CALL_MAX.as_secs()))),
                Ok(Err(e)) if is_away(&e) => {
                    debug!(path, error = %e, "read interrupted");
                    // The session task sees the same loss a moment later; do not spin until it does.
                    sleep(Duration::from_millis(20)).await;
                }
                Ok(Err(e)) => return Err(store_error(path, e)),
                Ok(Ok(value)) => return Ok(value),
            }
        }
    }

    fn set_up(&self, up: bool) {
        self.connection.send_if_modified(|c| {
            let changed = c.up != up;
            if changed {
                *c = Connection { up, since: Instant::now() };
            }
            changed
        });
    }
}

/// The session task.
async fn run(inner: Arc<Inner>) {
    let mut closed = inner.closed.subscribe();
    tokio::select! {
        biased;
        _ = closed.wait_for(|c| *c) => {}
        () = sessions(&inner) => {}
    }
    inner.client.send_replace(None);
    inner.set_up(false);
}

/// One session after the other, for ever.
async fn sessions(inner: &Arc<Inner>) {
    let mut pause = CONNECT_PAUSE;
    let mut complained = false;
    loop {
        let started = connect(inner).await;
        match started {
            Ok(client) => {
                info!(session = %client.session_id(), timeout_ms = client.session_timeout().as_millis() as u64, "ZooKeeper session begins");
                (pause, complained) = (CONNECT_PAUSE, false);
                serve(inner, client).await;
                inner.client.send_replace(None);
                inner.set_up(false);
                warn!("ZooKeeper session ended; asking for a new one");
            }
            Err(e) => {
                if !complained {
                    warn!(servers = %inner.options.servers, error = %e, "no ZooKeeper session yet; trying again until there is one");
                    complained = true;
                }
                sleep(pause).await;
                pause = (pause * 2).min(CONNECT_PAUSE_MAX);
            }
        }
    }
}

async fn connect(inner: &Inner) -> Result<Client, StoreError> {
    let connector = Client::connector().with_session_timeout(inner.options.session_timeout).with_fail_eagerly();
    let client = timeout(CALL_MAX, connector.connect(&inner.options.servers))
        .await
        .map_err(|_| StoreError::unavailable("no session within 5 s"))?
        .map_err(|e| store_error(&inner.options.servers, e))?;
    *held(&inner.session_timeout) = client.session_timeout();
    let prepared = async {
        for family in Family::ALL {
            let dir = inner.paths.dir(family);
            client.mkdir(&dir, &PERSISTENT).await.map_err(|e| store_error(&dir, e))?;
        }
        keep_all(inner, &client, true).await
    };
    timeout(CALL_MAX, prepared).await.map_err(|_| StoreError::unavailable("the session was made, and then no answer within 5 s"))??;
    Ok(client)
}

/// From the session's begin to its end.
async fn serve(inner: &Arc<Inner>, client: Client) {
    let mut state = client.state_watcher();
    let mut watchers = JoinSet::new();
    let mut armed = BTreeSet::new();
    inner.client.send_replace(Some(client.clone()));
    inner.set_up(true);
    inner.signals.fire_all();
    let mut ticker = tokio::time::interval_at(Instant::now() + SAFETY_SIGNAL_EVERY, SAFETY_SIGNAL_EVERY);
    loop {
        // Between the last look and here the state may have changed: look first, then wait.
        let now = client.state();
        if now.is_terminated() {
            return;
        }
        let up = now == SessionState::SyncConnected;
        if up {
            arm(inner, &client, &mut armed, &mut watchers).await;
        }
        tokio::select! {
            new = state.changed() => match new {
                s if s.is_terminated() => return,
                SessionState::SyncConnected => {
                    info!("ZooKeeper connection is back");
                    inner.set_up(true);
                    inner.signals.fire_all();
                    keep_again(inner, &client).await;
                }
                _ => {
                    info!("ZooKeeper connection is lost; the session may survive");
                    inner.set_up(false);
                }
            },
            () = inner.wanted_more.notified() => {}
            _ = ticker.tick() => if up {
                inner.signals.fire_all();
                keep_again(inner, &client).await;
            },
        }
    }
}

/// Arms the watches of families that are wanted and not armed. What fails stays unarmed and is tried at the next turn.
async fn arm(inner: &Arc<Inner>, client: &Client, armed: &mut BTreeSet<Family>, watchers: &mut JoinSet<()>) {
    let missing: Vec<Family> = held(&inner.wanted).difference(armed).copied().collect();
    for family in missing {
        let dir = inner.paths.dir(family);
        match timeout(CALL_MAX, client.watch(&dir, AddWatchMode::PersistentRecursive)).await {
            Ok(Ok(mut watcher)) => {
                armed.insert(family);
                let inner = inner.clone();
                watchers.spawn(async move {
                    // A change between the caller's read and the watch: say so once.
                    inner.signals.fire(family);
                    loop {
                        let event = watcher.changed().await;
                        inner.signals.fire(family);
                        if event.event_type == EventType::Session && event.session_state.is_terminated() {
                            return;
                        }
                    }
                });
            }
            Ok(Err(e)) => warn!(%dir, error = %e, "cannot watch; the 10 s signal stands in until it works"),
            Err(_) => warn!(%dir, "no answer to a watch; the 10 s signal stands in until it works"),
        }
    }
}

async fn keep_again(inner: &Inner, client: &Client) {
    match timeout(CALL_MAX, keep_all(inner, client, false)).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => warn!(error = %e, "a kept node could not be made again; next try within 10 s"),
        Err(_) => warn!("no answer while kept nodes were looked at; next try within 10 s"),
    }
}

async fn keep_all(inner: &Inner, client: &Client, replace: bool) -> Result<(), StoreError> {
    let kept: Vec<(String, Vec<u8>)> = held(&inner.kept).iter().map(|(p, b)| (p.clone(), b.clone())).collect();
    for (path, bytes) in kept {
        keep_one(client, &path, &bytes, replace).await.map_err(|e| store_error(&path, e))?;
    }
    Ok(())
}

/// Makes one ephemeral node. `replace`: what another session left goes first; else such a node is another process with the same id,
/// and two of them must not take turns in removing each other.
async fn keep_one(client: &Client, path: &str, bytes: &[u8], replace: bool) -> Result<(), zk::Error> {
    loop {
        // Read first: this runs every 10 s, and in the ordinary case nothing is to be written.
        match client.get_data(path).await {
            Err(zk::Error::NoNode) => match client.create(path, bytes, &EPHEMERAL).await {
                Err(zk::Error::NodeExists) => continue,
                other => return other.map(drop),
            },
            Err(e) => return Err(e),
            Ok((now, stat)) if stat.ephemeral_owner == client.session_id().0 => {
                return if now == bytes { Ok(()) } else { client.set_data(path, bytes, None).await.map(drop) };
            }
            Ok(_) if !replace => {
                warn!(path, "another process holds this node: two daemons run with the same id; stop one of them");
                return Ok(());
            }
            Ok(_) => match client.delete(path, None).await {
                Ok(()) | Err(zk::Error::NoNode) => {}
                Err(e) => return Err(e),
            },
        }
    }
}

/// Removes an ephemeral node of this session; another session's node of that name stays.
async fn remove_own(client: &Client, path: &str) -> Result<(), zk::Error> {
    match client.check_stat(path).await? {
        Some(stat) if stat.ephemeral_owner == client.session_id().0 => match client.delete(path, None).await {
            Err(zk::Error::NoNode) => Ok(()),
            other => other,
        },
        _ => Ok(()),
    }
}

fn add(writer: &mut zk::MultiWriter<'_>, write: &Write) -> Result<(), zk::Error> {
    match write {
        Write::Create { path, bytes } => writer.add_create(path, bytes, &PERSISTENT),
        Write::Set { path, bytes, version } => writer.add_set_data(path, bytes, *version),
        Write::Delete { path } => writer.add_delete(path, None),
        Write::Check { path } => writer.add_check_version(path, -1),
    }
}

fn add_checked(writer: &mut zk::CheckWriter<'_>, write: &Write) -> Result<(), zk::Error> {
    match write {
        Write::Create { path, bytes } => writer.add_create(path, bytes, &PERSISTENT),
        Write::Set { path, bytes, version } => writer.add_set_data(path, bytes, *version),
        Write::Delete { path } => writer.add_delete(path, None),
        Write::Check { path } => writer.add_check_version(path, -1),
    }
}

#[async_trait]
impl Tree for ZkStore {
    fn paths(&self) -> &Paths {
        &self.inner.paths
    }

    fn signal(&self, family: Family) -> watch::Receiver<u64> {
        if held(&self.inner.wanted).insert(family) {
            self.inner.wanted_more.notify_one();
        }
        self.inner.signals.of(family).subscribe()
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.inner.connection.subscribe()
    }

    fn session_timeout(&self) -> Duration {
        *held(&self.inner.session_timeout)
    }

    async fn read(&self, path: &str) -> Result<Option<Node>, StoreError> {
        self.inner
            .reading(path, |client| async move {
                match client.get_data(path).await {
                    Ok((bytes, stat)) => Ok(Some(Node { bytes, version: stat.version })),
                    Err(zk::Error::NoNode) => Ok(None),
                    Err(e) => Err(e),
                }
            })
            .await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, StoreError> {
        self.inner
            .reading(path, |client| async move {
                match client.list_children(path).await {
                    Err(zk::Error::NoNode) => Ok(Vec::new()),
                    other => other,
                }
            })
            .await
    }

    async fn read_children(&self, path: &str) -> Result<Vec<(String, Node)>, StoreError> {
        self.inner
            .reading(path, |client| async move {
                let mut names = match client.list_children(path).await {
                    Err(zk::Error::NoNode) => return Ok(Vec::new()),
                    other => other?,
                };
                names.sort_unstable();
                let mut all = Vec::with_capacity(names.len());
                for chunk in names.chunks(READS_TOGETHER) {
                    let paths: Vec<String> = chunk.iter().map(|name| format!("{path}/{name}")).collect();
                    let reads = futures::future::join_all(paths.iter().map(|p| client.get_data(p))).await;
                    for (name, read) in chunk.iter().zip(reads) {
                        match read {
                            Ok((bytes, stat)) => all.push((name.clone(), Node { bytes, version: stat.version })),
                            Err(zk::Error::NoNode) => {}
                            Err(e) => return Err(e),
                        }
                    }
                }
                Ok(all)
            })
            .await
    }

    async fn commit(&self, fence: Option<&Leadership>, writes: Vec<Write>) -> Result<(), StoreError> {
        let path_of = |i: usize| writes.get(i).map_or("", |w| w.path());
        let fenced = || StoreError::Fenced { path: path_of(0).to_owned() };
        if fence.is_some_and(|lead| !lead.is_held()) {
            return Err(fenced());
        }
        let deadline = Instant::now() + CALL_MAX;
        let client = self.inner.client(deadline).await?;
        let late = |_| StoreError::unavailable(format!("no answer within {} s; the write may have happened", CALL_MAX.as_secs()));
        let Some(lead) = fence else {
            let mut writer = client.new_multi_writer();
            for write in &writes {
                add(&mut writer, write).map_err(|e| store_error(write.path(), e))?;
            }
            return match timeout_at(deadline, writer.commit()).await.map_err(late)? {
                Ok(_) => Ok(()),
                Err(zk::MultiWriteError::OperationFailed { index, source }) => Err(store_error(path_of(index), source)),
                Err(zk::MultiWriteError::RequestFailed { source }) => Err(store_error(path_of(0), source)),
            };
        };
        // The lock's own client: a lock and the session it lives in cannot be taken apart.
        let Grant::Zk(lock) = &lead.grant else { return Err(fenced()) };
        let mut writer = lock.new_check_writer();
        for write in &writes {
            add_checked(&mut writer, write).map_err(|e| store_error(write.path(), e))?;
        }
        match timeout_at(deadline, writer.commit()).await.map_err(late)? {
            Ok(_) => Ok(()),
            Err(zk::CheckWriteError::CheckFailed { .. }) => Err(fenced()),
            Err(zk::CheckWriteError::RequestFailed { source }) if is_over(&source) => Err(fenced()),
            Err(zk::CheckWriteError::OperationFailed { index, source }) => Err(store_error(path_of(index), source)),
            Err(zk::CheckWriteError::RequestFailed { source }) => Err(store_error(path_of(0), source)),
        }
    }

    async fn keep(&self, path: String, bytes: Vec<u8>) -> Result<(), StoreError> {
        held(&self.inner.kept).insert(path.clone(), bytes.clone());
        let deadline = Instant::now() + CALL_MAX;
        let client = self.inner.client(deadline).await?;
        match timeout_at(deadline, keep_one(&client, &path, &bytes, true)).await {
            Ok(done) => done.map_err(|e| store_error(&path, e)),
            Err(_) => Err(StoreError::unavailable("no answer within 5 s; the node is made as soon as ZooKeeper answers")),
        }
    }

    async fn unkeep(&self, path: &str) -> Result<(), StoreError> {
        held(&self.inner.kept).remove(path);
        let deadline = Instant::now() + CALL_MAX;
        let client = self.inner.client(deadline).await?;
        match timeout_at(deadline, remove_own(&client, path)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(store_error(path, e)),
            Err(_) => Err(StoreError::unavailable("no answer within 5 s; the node goes with the session")),
        }
    }

    async fn lock(&self, bytes: Vec<u8>) -> Result<Leadership, StoreError> {
        let dir = self.inner.paths.dir(Family::Leader);
        let mut closed = self.inner.closed.subscribe();
        let mut current = self.inner.client.subscribe();
        loop {
            let client = tokio::select! {
                _ = closed.wait_for(|c| *c) => return Err(StoreError::unavailable("the session was closed")),
                client = current.wait_for(Option::is_some) => match client {
                    Ok(client) => client.clone().expect("waited for it"),
                    Err(_) => return Err(StoreError::unavailable("the session was closed")),
                },
            };
            let prefix = LockPrefix::new_curator(&dir, "latch-").map_err(|e| store_error(&dir, e))?;
            let options =
                LockOptions::new(Acls::anyone_all()).with_ancestor_options(PERSISTENT.clone()).map_err(|e| store_error(&dir, e))?;
            let contention = tokio::select! {
                _ = closed.wait_for(|c| *c) => return Err(StoreError::unavailable("the session was closed")),
                got = client.lock(prefix, &bytes, options) => got,
            };
            let failed = match contention {
                Ok(lock) => match client.check_and_watch_stat(lock.lock_path()).await {
                    Ok((Some(_), gone)) => return Ok(grant(&self.inner, lock.into_owned(), gone)),
                    Ok((None, _)) => zk::Error::RuntimeInconsistent,
                    Err(e) => e,
                },
                Err(e) => e,
            };
            if !(is_away(&failed) || matches!(failed, zk::Error::RuntimeInconsistent | zk::Error::NoNode)) {
                return Err(store_error(&dir, failed));
            }
            debug!(error = %failed, "election interrupted; standing again");
            sleep(CONNECT_PAUSE).await;
        }
    }

    async fn close(&self) {
        let current = self.inner.client.borrow().clone();
        if let Some(client) = current {
            let kept: Vec<String> = std::mem::take(&mut *held(&self.inner.kept)).into_keys().collect();
            let locks: Vec<String> = std::mem::take(&mut *held(&self.inner.locks)).into_iter().collect();
            // Best effort: the session ends right after, and with it whatever is left.
            let removal = futures::future::join_all(kept.iter().chain(&locks).map(|path| remove_own(&client, path)));
            let _ = timeout(AWAY_PATIENCE, removal).await;
        }
        let state = self.inner.client.borrow().as_ref().map(Client::state_watcher);
        self.inner.closed.send_replace(true);
        self.inner.client.send_replace(None);
        self.inner.set_up(false);
        if let Some(mut state) = state {
            // The last client is gone, unless a leadership still holds one; give the goodbye time to reach the server, as a process
            // that ends right after this would cut it off.
            let _ = timeout(GOODBYE_MAX, async { while !state.changed().await.is_terminated() {} }).await;
        }
    }
}

fn grant(inner: &Arc<Inner>, lock: zk::OwnedLockClient, gone: zk::OneshotWatcher) -> Leadership {
    let path = lock.lock_path().to_owned();
    held(&inner.locks).insert(path.clone());
    let (set_lost, lost) = watch::channel(false);
    let (connection, session_timeout) = (inner.connection.subscribe(), lock.client().session_timeout());
    let mut closed = inner.closed.subscribe();
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        tokio::select! {
            _ = gone.changed() => {}
            () = lease_over(connection, session_timeout) => {}
            _ = closed.wait_for(|c| *c) => {}
            () = set_lost.closed() => {}
        }
        set_lost.send_replace(true);
        if let Some(inner) = inner.upgrade() {
            held(&inner.locks).remove(&path);
        }
    });
    Leadership { lost, grant: Grant::Zk(lock) }
}
