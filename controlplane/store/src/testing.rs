//! Real ZooKeeper servers on loopback, for tests and for `cargo xtask zookeeper`: start, pause, stop, restart on the same data.
//!
//! Needs Java and Debian's package `zookeeper` (the jar, no init script). Blocking: a test calls it from a plain thread or accepts
//! the wait. A tick is 500 ms, so the shortest session is 1 s. Layout of the directory, one folder per server:
//!
//! ```text
//! <dir>/<n>/zoo.cfg   configuration, also what marks the process as ours
//! <dir>/<n>/data/     its data and myid
//! <dir>/<n>/out       what it printed
//! <dir>/<n>/pid       process id
//! ```

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Where Debian's package puts the server.
pub const JAR: &str = "/usr/share/java/zookeeper.jar";
/// `tickTime` of the servers started here.
pub const TICK: Duration = Duration::from_millis(500);
/// Longest wait for a server to serve; a JVM on a busy machine needs seconds.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time a server has to end after SIGTERM before SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(20);

/// One or three servers. Dropping it stops them, unless [`ZooKeeper::detach`] was called.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<Server>,
    stop_on_drop: bool,
}

#[derive(Debug)]
struct Server {
    dir: PathBuf,
    client_port: u16,
    /// 0 = not running.
    pid: i32,
    /// Present where this process started it, so that it can be reaped.
    child: Option<Child>,
}

/// Says what is missing to run ZooKeeper here, if anything.
pub fn missing() -> Option<String> {
    let remedy = "run `cargo xtask zookeeper start`, which installs it, or `apt-get install -y zookeeper` (package zookeeper)";
    if !Path::new(JAR).exists() {
        return Some(format!("ZooKeeper is not installed: {JAR} does not exist; {remedy}"));
    }
    match Command::new("java").arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        other => Some(format!("`java -version` does not work ({other:?}), and ZooKeeper needs it; {remedy}")),
    }
}

impl ZooKeeper {
    /// Starts `n` servers (1 or 3) on free ports with their state in `dir`, and waits until all serve.
    pub fn start(dir: &Path, n: usize) -> Result<Self, String> {
        let ports = free_ports(n * if n == 1 { 1 } else { 3 })?;
        Self::start_on(dir, &ports[..n], &ports[n..])
    }

    /// As [`ZooKeeper::start`], with the clients' ports given (one per server) and two further ports per server where there are several.
    pub fn start_on(dir: &Path, client_ports: &[u16], peer_ports: &[u16]) -> Result<Self, String> {
        if let Some(why) = missing() {
            return Err(why);
        }
        let n = client_ports.len();
        assert!(n == 1 || (n == 3 && peer_ports.len() >= 2 * n), "one server, or three with two more ports each");
        let mut servers = Vec::new();
        for (i, client_port) in client_ports.iter().enumerate() {
            let home = dir.join((i + 1).to_string());
            let data = home.join("data");
            fs::create_dir_all(&data).map_err(|e| format!("cannot make {}: {e}", data.display()))?;
            let mut config = format!(
                "tickTime={}\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={client_port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\nminSessionTimeout=1000\n4lw.commands.whitelist=srvr,dump\n",
                TICK.as_millis(),
                data.display()
            );
            if n > 1 {
                for (j, pair) in peer_ports.chunks(2).take(n).enumerate() {
                    config += &format!("server.{}=127.0.0.1:{}:{}\n", j + 1, pair[0], pair[1]);
                }
            }
            write(&data.join("myid"), &(i + 1).to_string())?;
            write(&home.join("zoo.cfg"), &config)?;
            servers.push(Server { dir: home, client_port: *client_port, pid: 0, child: None });
        }
        let mut all = ZooKeeper { servers, stop_on_drop: true };
        for server in &mut all.servers {
            server.launch()?;
        }
        all.wait_ready()?;
        Ok(all)
    }

    /// Finds the servers a former call left running in `dir`.
    pub fn attach(dir: &Path) -> Result<Self, String> {
        let mut servers = Vec::new();
        for home in (1..=3).map(|i| dir.join(i.to_string())).filter(|h| h.join("zoo.cfg").exists()) {
            let config = fs::read_to_string(home.join("zoo.cfg")).map_err(|e| format!("cannot read {}/zoo.cfg: {e}", home.display()))?;
            let client_port = config.lines().find_map(|l| l.strip_prefix("clientPort=")).and_then(|p| p.parse().ok());
            let client_port = client_port.ok_or_else(|| format!("{}/zoo.cfg names no clientPort", home.display()))?;
            let pid = fs::read_to_string(home.join("pid")).ok().and_then(|p| p.trim().parse().ok()).unwrap_or(0);
            let mut server = Server { dir: home, client_port, pid, child: None };
            if !server.alive() {
                server.pid = 0;
            }
            servers.push(server);
        }
        if servers.is_empty() {
            return Err(format!("no ZooKeeper was started in {}", dir.display()));
        }
        Ok(ZooKeeper { servers, stop_on_drop: false })
    }

    /// Connect string.
    pub fn servers(&self) -> String {
        self.servers.iter().map(|s| format!("127.0.0.1:{}", s.client_port)).collect::<Vec<_>>().join(",")
    }

    /// Process ids; 0 = not running.
    pub fn pids(&self) -> Vec<i32> {
        self.servers.iter().map(|s| s.pid).collect()
    }

    /// Leaves the servers running when this is dropped.
    pub fn detach(mut self) {
        self.stop_on_drop = false;
    }

    /// Stops every server (SIGTERM, then SIGKILL). The data stays.
    pub fn stop(&mut self) {
        self.servers.iter_mut().for_each(Server::stop);
    }

    /// Starts stopped servers again on the same data and ports, and waits until all serve.
    pub fn restart(&mut self) -> Result<(), String> {
        for server in &mut self.servers {
            if server.pid == 0 {
                server.launch()?;
            }
        }
        self.wait_ready()
    }

    /// Stops one server, counted from 0.
    pub fn stop_one(&mut self, i: usize) {
        self.servers[i].stop();
    }

    /// Freezes every server (SIGSTOP): connections stay open and nothing answers.
    pub fn pause(&self) {
        self.servers.iter().for_each(|s| s.signal(Signal::STOP));
    }

    /// Ends a [`ZooKeeper::pause`].
    pub fn resume(&self) {
        self.servers.iter().for_each(|s| s.signal(Signal::CONT));
    }

    /// True while a server of these knows ephemeral nodes of this session.
    pub fn has_ephemerals(&self, session: i64) -> bool {
        let id = format!("{session:#x}:");
        self.servers.iter().any(|s| ask(s.client_port, "dump").is_ok_and(|answer| answer.contains(&id)))
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + READY_MAX;
        for server in &mut self.servers {
            while !serves(server.client_port) {
                if !server.alive() {
                    return Err(format!("ZooKeeper in {} ended while starting; it printed:\n{}", server.dir.display(), server.printed()));
                }
                if Instant::now() > deadline {
                    return Err(format!("ZooKeeper in {} does not serve after {} s", server.dir.display(), READY_MAX.as_secs()));
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        if self.stop_on_drop {
            self.stop();
        }
    }
}

/// A cable between one client and a server on loopback, which can be cut: the way to lose a session as it is lost in life.
#[derive(Debug)]
pub struct Cable {
    port: u16,
    state: Arc<Mutex<CableState>>,
}

#[derive(Debug, Default)]
struct CableState {
    cut: bool,
    ended: bool,
    /// Both ends of what runs through it.
    streams: Vec<TcpStream>,
}

impl Cable {
    /// Lays a cable to a port on loopback.
    pub fn to(target: u16) -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port on loopback: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let state = Arc::new(Mutex::new(CableState::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let mut state = lock(&shared);
                if state.ended {
                    return;
                }
                let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target));
                let (false, Ok(far)) = (state.cut, far) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
                    std::thread::spawn(move || {
                        // However it ends, both sides shall see it.
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
                state.streams.extend([near, far]);
            }
        });
        Ok(Cable { port, state })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts it: what runs through it ends, and nothing new gets through.
    pub fn cut(&self) {
        let mut state = lock(&self.state);
        state.cut = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Mends it.
    pub fn mend(&self) {
        lock(&self.state).cut = false;
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.cut();
        lock(&self.state).ended = true;
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock(state: &Mutex<CableState>) -> MutexGuard<'_, CableState> {
    state.lock().expect("nothing panics while it holds this")
}

impl Server {
    fn launch(&mut self) -> Result<(), String> {
        let open = |name: &str| {
            let path = self.dir.join(name);
            fs::OpenOptions::new().create(true).append(true).open(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        let (out, err) = (open("out")?, open("out")?);
        let child = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.root.logger=WARN,CONSOLE", "-cp"])
            .arg(format!("/etc/zookeeper/conf_example:{JAR}"))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.dir.join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| format!("cannot start java: {e}"))?;
        self.pid = child.id() as i32;
        self.child = Some(child);
        write(&self.dir.join("pid"), &self.pid.to_string())
    }

    fn alive(&mut self) -> bool {
        if let Some(child) = &mut self.child {
            return matches!(child.try_wait(), Ok(None));
        }
        // Not our child: a process id may be somebody else's by now, its command line is not.
        let command = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        self.pid > 0 && String::from_utf8_lossy(&command).contains(&*self.dir.join("zoo.cfg").to_string_lossy())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }

    fn stop(&mut self) {
        if self.pid > 0 && self.alive() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
            let deadline = Instant::now() + STOP_GRACE;
            while self.alive() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
            if self.alive() {
                self.signal(Signal::KILL);
            }
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        self.pid = 0;
        let _ = fs::remove_file(self.dir.join("pid"));
    }

    fn printed(&self) -> String {
        let text = fs::read_to_string(self.dir.join("out")).unwrap_or_default();
        let from = text.lines().count().saturating_sub(20);
        text.lines().skip(from).collect::<Vec<_>>().join("\n")
    }
}

/// True when the server answers as a member that serves.
fn serves(port: u16) -> bool {
    ask(port, "srvr").is_ok_and(|answer| answer.contains("Mode:"))
}

/// One of the server's four-letter commands.
fn ask(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(command.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn free_ports(n: usize) -> Result<Vec<u16>, String> {
    // All held at once, so that they differ.
    let held: Result<Vec<TcpListener>, _> = (0..n).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let held = held.map_err(|e| format!("no free port on loopback: {e}"))?;
    held.iter().map(|l| l.local_addr().map(|a| a.port()).map_err(|e| e.to_string())).collect()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}
