//! What users test their topologies with.
//!
//! | | threads | time | for |
//! |---|---|---|---|
//! | [`TestBolt`] | none | moved by the test | one bolt, tuple by tuple |
//! | [`TestTopology`] | none | moved by the test | a topology whose spouts are replaced, one seed one run |
//! | [`LocalCluster`] | real | real | several topologies in this process, as on a cluster |
//!
//! All of them run the engine that runs in production; nothing here imitates it. In `TestBolt` and `TestTopology` the loops of a worker take
//! turns on the calling thread in an order that a seed chooses, so a failure comes back with its seed. A test reads and writes tuples as the
//! structs they are: put `#[derive(Debug, Clone, PartialEq)]` under `#[tuple]` to compare them.
//!
//! What is wrong with a test (a spout that is not there, a stream of another type) is a panic that says what there is.

mod bolt;
mod capture;
mod cluster;
mod feeder;
mod owned;
mod rig;
mod topology;

pub(crate) use bolt::Probed;
pub use bolt::{STREAMS_MAX, Sent, TestBolt};
pub use capture::CaptureBolt;
pub use cluster::{LocalCluster, LocalTopology, Metrics};
pub use feeder::{AckTracker, FeederSpout};
pub use owned::Owned;
pub use topology::{TestRun, TestTopology};

use saetta_model::name::Name;
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_tuple::FORMAT;
use std::collections::BTreeMap;
use std::ops::Range;

/// Calls `test` with each seed, and names the seed at which it panics.
///
/// ```should_panic
/// saetta::testing::seeds(0..100, |seed| assert!(seed != 7));
/// ```
pub fn seeds(range: Range<u64>, mut test: impl FnMut(u64)) {
    /// Tells the seed while a panic goes by.
    struct Tell(u64);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the test failed with seed {}", self.0);
            }
        }
    }
    for seed in range {
        let tell = Tell(seed);
        test(seed);
        drop(tell);
    }
}

/// The description of one component of the kit.
fn component(id: &str, kind: ComponentKind, outputs: Vec<StreamSpec>, inputs: Vec<InputSpec>) -> ComponentSpec {
    ComponentSpec {
        id: Name::new(id).expect("a valid name"),
        kind,
        executors: 1,
        tasks: None,
        resources: Resources::default(),
        outputs,
        inputs,
        config: BTreeMap::new(),
        tracked: kind == ComponentKind::Spout,
    }
}

/// The description of a topology of the kit.
fn describe(components: Vec<ComponentSpec>) -> TopologySpec {
    let (archive, endian, unaligned, pointer_bits) = FORMAT;
    let format = Format { archive: archive.into(), endian: endian.into(), unaligned, pointer_bits };
    TopologySpec { saetta: env!("CARGO_PKG_VERSION").to_owned(), format, components }
}
