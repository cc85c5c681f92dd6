//! The suites behind `cargo xtask bench SUITE`: each declares cases (ours and its floors) and the rows over them.
//!
//! Before: `cargo xtask bench`. After: `saetta_harness` prints the table and writes target/bench/SUITE.json.
//! One file per suite; a new one is a line in `SUITES`. Everything goes through the public interface, the way a user's topology does.
#![forbid(unsafe_code)]

mod ack;
mod any;
mod fanout;
mod hop;
mod hostile;
mod idle;
mod parts;
mod pipeline;
mod recovery;
mod release;
mod rivals;
mod scheduling;
mod topologies;
mod transport;
mod transport_peers;
mod transport_topology;
mod veth;
mod wordcount;
mod workers;

use saetta_harness::suite::Suite;

/// In the order of the list. A row without a target is a figure, not a threshold.
const SUITES: &[Suite] = &[
    Suite { name: "hop", about: "one tuple, spout to bolt, one in flight: other core and same core", declare: hop::declare },
    Suite { name: "pipeline", about: "tuples a second over a core boundary, beside a raw ring; open loop", declare: pipeline::declare },
    Suite { name: "ack", about: "what tracking costs: rate, emit to ack, one tree held open", declare: ack::declare },
    Suite { name: "wordcount", about: "words a second of examples/wordcount, beside a word count by hand", declare: wordcount::declare },
    Suite { name: "idle", about: "the first tuple after a quiet second, beside a bare wake", declare: idle::declare },
    Suite { name: "fanout", about: "one spout to one, two, four, eight bolts: deliveries a second", declare: fanout::declare },
    Suite { name: "any", about: "allocations and system calls of saturated loops", declare: any::declare },
    Suite { name: "hostile", about: "strangers at a worker's port: its rate, beside that with them elsewhere", declare: hostile::declare },
    Suite { name: "transport", about: "tuples to another worker, by each carrier, beside the raw one", declare: transport::declare },
    Suite {
        name: "recovery",
        about: "a worker killed with -9: until its process is back, until it counts again",
        declare: recovery::declare,
    },
    Suite {
        name: "scheduling",
        about: "rounds of schedulers on recorded clusters, and what placements cost",
        declare: scheduling::declare,
    },
    Suite { name: "rivals", about: "Storm, Flink, timely and renoir on the same workloads, beside Saetta", declare: rivals::declare },
];

fn main() -> std::process::ExitCode {
    // This program is started again: as a floor's other process, as a worker of `transport`, and by `any`, to be watched.
    let other = saetta_floors::far_process().or_else(transport_topology::worker).or_else(any::watched);
    other.unwrap_or_else(|| saetta_harness::main(SUITES))
}
