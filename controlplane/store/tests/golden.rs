//! The format of stored values: what this build writes is what the files of version 1 hold, and they can be read for ever.
//!
//! A difference here means that a running cluster's ZooKeeper would not be understood: raise the version byte and keep reading 1.

use saetta_model::beat::SupervisorBeat;
use saetta_model::{Assignment, SupervisorInfo, TopologyRecord};
use saetta_store::{BlobHolders, ErrorEntry, NimbusInfo, SchedulerChoice, SchedulerMemory, decode, encode};
use serde::{Serialize, de::DeserializeOwned};

/// Reads the golden value, writes it again, and compares bytes.
fn stays<T: Serialize + DeserializeOwned>(file: &str, golden: &str) {
    let mut bytes = vec![1];
    bytes.extend_from_slice(golden.trim_end().as_bytes());
    let value: T = decode(file, &bytes).unwrap_or_else(|e| panic!("{e}"));
    let written = encode(file, &value).unwrap();
    assert_eq!(String::from_utf8_lossy(&written[1..]), golden.trim_end(), "{file}");
    assert_eq!(written[0], 1, "{file}: version byte");
}

macro_rules! golden {
    ($($name:ident: $type:ty = $file:literal;)*) => { $(
        #[test]
        fn $name() {
            stays::<$type>($file, include_str!(concat!("golden/", $file)));
        }
    )* };
}

golden! {
    a_topology_record_keeps_its_form: TopologyRecord = "topology.v1.json";
    a_killed_record_keeps_its_form: TopologyRecord = "topology-killed.v1.json";
    an_assignment_keeps_its_form: Assignment = "assignment.v1.json";
    a_supervisor_keeps_its_form: SupervisorInfo = "supervisor.v1.json";
    a_beat_keeps_its_form: SupervisorBeat = "beat.v1.json";
    errors_keep_their_form: Vec<ErrorEntry> = "errors.v1.json";
    a_nimbus_keeps_its_form: NimbusInfo = "nimbus.v1.json";
    holders_keep_their_form: BlobHolders = "blob.v1.json";
    the_chosen_scheduler_keeps_its_form: SchedulerChoice = "scheduler.v1.json";
    the_memory_of_schedulers_keeps_its_form: SchedulerMemory = "scheduler-memory.v1.json";
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let e = decode::<NimbusInfo>("/saetta/nimbuses/n1", b"\x02{}").unwrap_err().to_string();
    assert_eq!(
        e,
        "/saetta/nimbuses/n1 cannot be read: it was written by a newer Saetta (value version 2, this one reads up to 1); upgrade this daemon"
    );
}
