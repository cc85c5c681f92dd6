//! `hostile`: strangers at the port of a worker at work, and what it does meanwhile beside what it does while they knock somewhere else.
//!
//! Before: `transport` has started two workers, a stream of 100-byte tuples from one to the other over io_uring TCP. After: tuples a second in
//! windows in which the same generator knocked at a listener that does nothing, and in windows in which it knocked at the second worker's port.
//! Both are in one sample, in turn, and the generator costs the same in both: whatever the host does, it does to both.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saetta::prelude::*;
use saetta_harness::suite::{Figures, Options, SuiteRun};
use saetta_harness::{Better, Result, RowSpec};

use crate::transport::{Carrier, start};
use crate::transport_peers::{Counted, Taker, now_ns};
use crate::transport_topology::{Args, BEGAN, FIGURES, Hundred, Load};

/// Connections a second.
const RATE: u64 = 500;
/// Of them, those that are left open; the oldest makes room.
const HELD_MAX: usize = 300;
/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_millis(500);

/// What each of them says, in turn.
fn words() -> Vec<Vec<u8>> {
    let random = |bytes: usize| (0..bytes as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect::<Vec<u8>>();
    vec![
        random(4096),
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n".to_vec(),
        [&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &random(180)].concat(),
        // A hello as it should be, and a claim that proves nothing.
        [b"SAET\x02\0\0\0", &random(32 + 288)[..]].concat(),
        b"S".to_vec(),
        Vec::new(),
    ]
}

/// Spout `counted`, bolt `taker`.
pub(crate) fn wire(t: &mut Topology, args: Args) {
    let counted = t.spout("counted", move || Counted::new(&args)).stream::<Hundred>();
    let _ = t.bolt("taker", || Taker).input(&counted, Shuffle);
}

/// Takes connections and drops them, until one comes after `over`.
fn do_nothing(listener: &TcpListener, over: &AtomicU64) {
    while over.load(Ordering::Relaxed) == 0 {
        drop(listener.accept());
    }
}

/// Knocks at the door that `which` says, or the first where nothing is counted yet, at a steady rate, until `over`; how many connections it
/// made at each.
fn knock(doors: [SocketAddr; 2], which: impl Fn() -> Option<usize>, over: &AtomicU64) -> [u64; 2] {
    let words = words();
    let (began, mut made, mut held) = (Instant::now(), [0; 2], VecDeque::new());
    for n in 0.. {
        let due = began + Duration::from_micros(n * 1_000_000 / RATE);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if over.load(Ordering::Relaxed) != 0 {
            break;
        }
        let which = which();
        let Ok(mut stream) = TcpStream::connect_timeout(&doors[which.unwrap_or(0)], CONNECT_TIME) else { continue };
        if let Some(which) = which {
            made[which] += 1;
        }
        // It may have hung up.
        let _ = stream.write_all(&words[n as usize % words.len()]);
        held.push_back(stream);
        if held.len() > HELD_MAX {
            held.pop_front();
        }
    }
    made
}

fn run_one(o: &Options) -> Result<Figures> {
    let (window, windows) = (Duration::from_millis(o.size(1000, 200)), o.size(10, 4));
    let length_ns = u64::try_from(window.as_nanos())?;
    let mut workers = start(o, Carrier::Uring, None, Load::Hostile, &[("measured-ms", length_ns / 1_000_000), ("windows", windows)])?;
    let port = *workers.ports().get(1).ok_or("no second worker")?;
    let start_ns: u64 = workers.file(BEGAN)?.parse()?;

    let elsewhere = TcpListener::bind("127.0.0.1:0")?;
    let doors = [elsewhere.local_addr()?, SocketAddr::from(([127, 0, 0, 1], port))];
    let over = Arc::new(AtomicU64::new(0));
    let (over_too, over_also) = (over.clone(), over.clone());
    let idle = std::thread::spawn(move || do_nothing(&elsewhere, &over_too));
    let which = move || now_ns().checked_sub(start_ns).map(|since| (since / length_ns % 2) as usize);
    let knocking = std::thread::spawn(move || knock(doors, which, &over_also));
    let text = workers.until(FIGURES, |dir: &Path| Ok(std::fs::read_to_string(dir.join(FIGURES)).ok()));
    over.store(1, Ordering::Relaxed);
    let [there, here] = knocking.join().map_err(|_| "the generator panicked")?;
    // It waits for one more.
    drop(TcpStream::connect(doors[0]));
    idle.join().map_err(|_| "the idle listener panicked")?;
    let text = text?;
    workers.stop()?;
    let figures = text.split(' ').map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    let [elsewhere, knocked] = figures[..] else { return Err(format!("two figures, not {text:?}").into()) };
    let seconds = window.as_secs_f64() * windows as f64 / 2.0;
    Ok(Figures::from([
        ("elsewhere", elsewhere),
        ("knocked", knocked),
        ("connections_there", there as f64 / seconds),
        ("connections_here", here as f64 / seconds),
    ]))
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    run.case_of_any_class("strangers", run_one);
    let rate = RowSpec::new("stream of 100 bytes while strangers knock", "M tuples/s", Better::Higher, "strangers", "knocked");
    run.row(rate.over("strangers", "elsewhere", 1.0).target(0.9));
    let made = RowSpec::new("connections they made", "a second", Better::Higher, "strangers", "connections_here");
    run.row(made.over("strangers", "connections_there", 1.0));
    Ok(())
}
