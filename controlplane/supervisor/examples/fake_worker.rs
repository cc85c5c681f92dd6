//! A worker without an engine, for the tests of the supervisor: takes the command line, the key and the local protocol
//! seriously and does what the topology's first argument says.
//!
//! Called with `describe` it describes a topology, so that a whole cluster can be tried with it by hand.
//!
//! `beat`: lives as it should. `crash`: exits with 3 after `Boot`. `mute`: never beats. `hang`: beats three times, then no more.
//! `deaf`: beats and does not listen to `Stop`.

use saetta_model::Name;
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, VERSION_MIN, decode, encode};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const BEAT_EVERY: Duration = Duration::from_millis(50);

/// What it says of itself when asked: a spout that emits nothing.
const DESCRIPTION: &str = r#"{"spec":{"saetta":"0.1.0","format":{"archive":"rkyv 0.8","endian":"little","unaligned":true,"pointer_bits":32},
"components":[{"id":"nothing","kind":"spout","executors":2}]},"config":{"topology.acker.executors":"0"}}"#;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("describe") {
        return println!("{}", DESCRIPTION);
    }
    assert_eq!(args.get(1).map(String::as_str), Some("worker"), "usage: worker --socket PATH ...");
    let value = |name: &str| args[args.iter().position(|a| a == name).unwrap_or_else(|| panic!("no {name}")) + 1].clone();
    let (socket, topology) = (value("--socket"), Name::new(&value("--topology")).unwrap());
    let placement = u64::from_str_radix(&value("--placement"), 16).unwrap();
    let (port, start): (u16, u64) = (value("--port").parse().unwrap(), value("--start").parse().unwrap());
    assert_eq!(value("--key-fd"), "3");
    let mut key = Vec::new();
    std::fs::File::open("/proc/self/fd/3").unwrap().read_to_end(&mut key).unwrap();

    let mut environment: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    environment.sort();
    let sid = rustix::process::getsid(None).unwrap().as_raw_nonzero();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // One line of facts for the test to read in the log.
    println!(
        "start={start} pid={} sid={sid} key={} env={} cwd={} fds={descriptors}",
        std::process::id(),
        hex::encode(key),
        environment.join(","),
        std::env::current_dir().unwrap().display()
    );
    let mut version = 0;
    loop {
        if let Ok(stream) = UnixStream::connect(&socket) {
            live(stream, &topology, port, placement, start, &mut version);
        }
        if !std::path::Path::new(&socket).parent().unwrap().exists() {
            // The test is over and took its directory along.
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One connection, until it ends.
fn live(mut stream: UnixStream, topology: &Name, port: u16, placement: u64, start: u64, version: &mut u64) {
    let hello = FromWorker::Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        topology: topology.clone(),
        port,
        placement,
        start,
        pid: std::process::id(),
        version: *version,
    };
    if stream.write_all(&encode(&hello)).is_err() {
        return;
    }
    stream.set_read_timeout(Some(BEAT_EVERY)).unwrap();
    let (mut buffer, mut piece, mut mode, mut beats) = (Vec::new(), [0u8; 64 << 10], String::new(), 0);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(n) => buffer.extend_from_slice(&piece[..n]),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        while let Some((message, bytes)) = decode::<ToWorker>(&buffer).unwrap() {
            buffer.drain(..bytes);
            match message {
                ToWorker::Boot { record, assignment, .. } => {
                    *version = assignment.version;
                    mode = record.args[0].clone();
                    println!("boot version={version}");
                    if mode == "crash" {
                        std::process::exit(3);
                    }
                    let error = FromWorker::Error { component: Name::system("__system"), text: "a word to operators".into() };
                    stream.write_all(&encode(&error)).unwrap();
                }
                ToWorker::Update { record, assignment } => {
                    *version = assignment.version;
                    println!("update version={version} state={}", record.state.word());
                }
                ToWorker::Stop if mode == "deaf" => println!("stop? no"),
                ToWorker::Stop => {
                    println!("stop");
                    std::process::exit(0);
                }
                ToWorker::Refused { why } => {
                    println!("refused: {why}");
                    std::process::exit(4);
                }
            }
        }
        let quiet = mode.is_empty() || mode == "mute" || (mode == "hang" && beats >= 3);
        if !quiet {
            beats += 1;
            let beat = FromWorker::Beat {
                version: *version,
                ended: false,
                drained: false,
                carrier: String::new(),
                executors: vec![],
                edges: vec![],
            };
            if stream.write_all(&encode(&beat)).is_err() {
                return;
            }
        }
    }
}
