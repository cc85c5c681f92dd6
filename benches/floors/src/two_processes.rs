//! A floor between two processes: this one, on the first core, and this program started again, on the second.
//!
//! Before: a floor gives the far side its order and one descriptor, a memory file or a socket. After: the far side has told its figures in one
//! line, and has ended. Who holds such floors in a program calls [`far_process`] first thing in `main`.

use std::io::{Write as _, stdin, stdout};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use saetta_harness::pin::pin_to_core;
use saetta_harness::{Error, Result};

use crate::{shared_memory, spin_tcp, uring_tcp};

/// Tells a process that it is a far side: `NAME CORE NUMBER..`.
const FAR: &str = "SAETTA_FLOORS_FAR";
/// Fruitless looks between two looks at whether the other process lives: a few milliseconds.
const LOOKS: u32 = 1 << 20;

/// What runs over there: its descriptor and its numbers in, its figures out. Pinned when called.
type FarSide = fn(OwnedFd, &[u64]) -> Result<Vec<f64>>;

const FAR_SIDES: &[(&str, FarSide)] = &[
    ("shared-ping", shared_memory::far_ping),
    ("shared-stream", shared_memory::far_stream),
    ("uring-ping", uring_tcp::far_ping),
    ("uring-stream", uring_tcp::far_stream),
    ("spin-ping", spin_tcp::far_ping),
];

/// `main` of a far side; `None` in any other process.
#[must_use]
pub fn far_process() -> Option<ExitCode> {
    let order = std::env::var(FAR).ok()?;
    let told = || -> Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let figures = obey(&order, stdin().as_fd().try_clone_to_owned()?)?;
        stdout().write_all(figures.as_bytes())?;
        Ok(())
    };
    Some(match told() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {FAR}={order:?}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn obey(order: &str, fd: OwnedFd) -> Result<String> {
    let mut words = order.split(' ');
    let name = words.next().unwrap_or_default();
    let (_, side) = FAR_SIDES.iter().find(|(known, _)| *known == name).ok_or("no such floor")?;
    let numbers = words.map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let (core, numbers) = numbers.split_first().ok_or("no core")?;
    pin_to_core(usize::try_from(*core)?)?;
    Ok(side(fd, numbers)?.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
}

/// The other process, as the near side sees it. Dropping it ends it.
pub(crate) struct Far {
    #[cfg(not(test))]
    process: std::process::Child,
    /// A test program cannot be started again as a far side: there it is a thread.
    #[cfg(test)]
    thread: Option<std::thread::JoinHandle<std::result::Result<String, String>>>,
}

#[cfg(not(test))]
impl Far {
    fn start(order: String, fd: OwnedFd) -> Result<Self> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.env(FAR, order).stdin(fd).stdout(std::process::Stdio::piped());
        Ok(Far { process: command.spawn()? })
    }

    /// Fails when the far side has ended.
    fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the far side has ended: {status}").into()),
        }
    }

    fn told(&mut self) -> Result<String> {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.process.stdout.take().ok_or("told already")?, &mut text)?;
        let status = self.process.wait()?;
        if status.success() { Ok(text) } else { Err(format!("the far side ended with {status}").into()) }
    }
}

#[cfg(not(test))]
impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
impl Far {
    fn start(order: String, fd: OwnedFd) -> Result<Self> {
        Ok(Far { thread: Some(std::thread::spawn(move || obey(&order, fd).map_err(|e| e.to_string()))) })
    }

    fn check(&mut self) -> Result<()> {
        let over = self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished);
        if over { Err("the far side has ended".into()) } else { Ok(()) }
    }

    fn told(&mut self) -> Result<String> {
        Ok(self.thread.take().ok_or("told already")?.join().map_err(|_| "the far side panicked")??)
    }
}

/// Starts `name` with `fd` and `numbers` on the second core, runs `near` on the first, and returns what both came to.
pub(crate) fn between<T: Send>(
    cores: (usize, usize),
    name: &str,
    fd: OwnedFd,
    numbers: &[u64],
    near: impl FnOnce(&mut Patience<'_>) -> Result<T> + Send,
) -> Result<(T, Vec<f64>)> {
    let numbers: String = numbers.iter().map(|n| format!(" {n}")).collect();
    let mut far = Far::start(format!("{name} {}{numbers}", cores.1), fd)?;
    // A thread of its own: the caller stays unpinned, and lives as long as the far side, which ends with the thread that started it.
    let near = std::thread::scope(|scope| {
        let near = scope.spawn(|| {
            pin_to_core(cores.0)?;
            near(&mut Patience { looks: 0, far: Some(&mut far) })
        });
        near.join().map_err(|_| Error::from("the near side panicked"))?
    });
    let told = far.told();
    // What went wrong over there explains what went wrong here.
    let told = told?.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok((near?, told))
}

/// Spins, and looks now and then whether there is anybody to spin for.
pub(crate) struct Patience<'a> {
    looks: u32,
    far: Option<&'a mut Far>,
}

impl Patience<'_> {
    /// Of a far side: it ends with the process that started it.
    pub(crate) fn endless() -> Self {
        Patience { looks: 0, far: None }
    }

    /// One fruitless look.
    ///
    /// # Errors
    /// The far side has ended.
    #[inline]
    pub(crate) fn wait(&mut self) -> Result<()> {
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks < LOOKS {
            return Ok(());
        }
        self.looks = 0;
        self.far.as_mut().map_or(Ok(()), |far| far.check())
    }
}

/// How long a stream is measured, after how long a beginning.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Caches, buffers and the far side's pages are warm then.
    pub warm_up: Duration,
    /// Of the figure.
    pub measured: Duration,
}

impl Window {
    pub(crate) fn numbers(self) -> [u64; 2] {
        [self.warm_up, self.measured].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn of(numbers: &[u64]) -> Result<Self> {
        let [warm_up, measured, ..] = *numbers else { return Err("a stream needs two times".into()) };
        Ok(Window { warm_up: Duration::from_nanos(warm_up), measured: Duration::from_nanos(measured) })
    }
}

/// What a stream came to.
#[derive(Debug, Clone, Copy)]
pub struct Streamed {
    /// Million messages a second, at the receiver.
    pub millions: f64,
    /// Processor time of both ends for one message.
    pub cpu_ns: f64,
}

impl Streamed {
    /// Of the shares of a core that the sender took, and what the receiver told: rate and share.
    pub(crate) fn new(sender: f64, told: &[f64]) -> Result<Self> {
        let [a_second, receiver] = *told else { return Err(format!("the receiver told {told:?}").into()) };
        Ok(Streamed { millions: a_second / 1e6, cpu_ns: (sender + receiver) * 1e9 / a_second })
    }
}

/// The receiver's clock: when the warm-up is over, when the window is.
pub(crate) struct Meter {
    window: Window,
    start: Instant,
    /// When and after how many messages the window began.
    began: Option<(Instant, u64)>,
    cpu: CpuShare,
}

impl Meter {
    /// Starts with the first message.
    pub(crate) fn start(window: Window) -> Self {
        Meter { window, start: Instant::now(), began: None, cpu: CpuShare::start() }
    }

    /// Told every few thousand messages how many there were. Messages a second and the share of a core, when the window is over.
    pub(crate) fn look(&mut self, messages: u64) -> Option<Vec<f64>> {
        match self.began {
            None if self.start.elapsed() >= self.window.warm_up => {
                self.began = Some((Instant::now(), messages));
                self.cpu = CpuShare::start();
                None
            }
            Some((began, before)) if began.elapsed() >= self.window.measured => {
                Some(vec![(messages - before) as f64 / began.elapsed().as_secs_f64(), self.cpu.share()])
            }
            _ => None,
        }
    }
}

/// Share of a core that the calling thread takes, the kernel's work on its behalf with it.
pub(crate) struct CpuShare {
    wall: Instant,
    cpu: Duration,
}

impl CpuShare {
    pub(crate) fn start() -> Self {
        CpuShare { wall: Instant::now(), cpu: thread_cpu() }
    }

    pub(crate) fn share(&self) -> f64 {
        (thread_cpu() - self.cpu).as_secs_f64() / self.wall.elapsed().as_secs_f64()
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Two ends of one TCP connection over loopback, with nothing held back.
pub(crate) fn tcp_pair() -> Result<(OwnedFd, OwnedFd)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let near = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near.into(), far.into()))
}
