//! What a user wrote: components, streams, groupings, resources. The text form is what `describe` prints.
//!
//! Before: `saetta::Topology` (the builder) or JSON from a submit request. After: [`TopologySpec::check`] has passed and
//! `parallelism` turns hints into tasks and executors.

use crate::name::{Name, nearest};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Id of the acker component that every acked topology gets.
pub const ACKER: &str = "__acker";
/// Most components in one topology.
pub const COMPONENTS_MAX: usize = 4096;
/// Most tasks in one topology: a root id holds its owner task in 20 bits.
pub const TASKS_MAX: u32 = (1 << 20) - 1;

/// A whole topology as its binary describes it. Components are sorted by id (byte order) and ids are unique.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    /// Version of the Saetta crate the binary was built with.
    pub saetta: String,
    /// How tuples are laid out as bytes; two workers must agree.
    pub format: Format,
    /// Components, sorted by id.
    pub components: Vec<ComponentSpec>,
}

/// How tuples are laid out as bytes. Cargo unifies features over a build, so it is stated and compared, never assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Format {
    /// Crate and version that made the layout, as `rkyv 0.8`.
    pub archive: String,
    /// `little` or `big`.
    pub endian: String,
    /// True where archived integers need no alignment.
    pub unaligned: bool,
    /// Bits of a relative pointer.
    pub pointer_bits: u32,
}

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// Emits from outside.
    Spout,
    /// Handles tuples.
    Bolt,
    /// Tracks tuple trees; added by Saetta, never written by a user.
    Acker,
}

/// One spout or bolt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentSpec {
    /// Unique in the topology.
    pub id: Name,
    /// Spout, bolt or acker.
    pub kind: ComponentKind,
    /// Parallelism hint: executors at submit. At least 1.
    pub executors: u32,
    /// `topology.tasks` of this component; `None` means as many as executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// What one executor asks for.
    #[serde(default)]
    pub resources: Resources,
    /// Streams it may emit on; names are unique here.
    #[serde(default)]
    pub outputs: Vec<StreamSpec>,
    /// Streams it reads.
    #[serde(default)]
    pub inputs: Vec<InputSpec>,
    /// Component configuration, text form by key; wins over the topology's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// True for a spout that emits with message ids, and for a bolt that opens trees of its own for wide joins.
    #[serde(default)]
    pub tracked: bool,
}

/// Resources one executor asks for. Fixed point, so that every plugin language sees the same sums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// CPU in thousandths of a percent of one core (100 % of a core = 100_000). 0 = not stated.
    #[serde(default)]
    pub cpu_milli_pct: i64,
    /// Memory in bytes. 0 = not stated.
    #[serde(default)]
    pub memory_bytes: i64,
    /// The part of that memory which does not count against `topology.worker.max.heap.size.mb`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off_heap_bytes: i64,
    /// Generic resources in thousandths, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generic_milli: BTreeMap<String, i64>,
    /// Memory that its executors share with each other, and with those of other components that name the same block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedMemory>,
}

/// A block of memory that counts once, however many executors use it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// Unique in the topology: who names the same block states the same sizes.
    pub name: String,
    /// Bytes once in each worker, counting against `topology.worker.max.heap.size.mb`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub on_heap_bytes: i64,
    /// Other bytes once in each worker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off_heap_worker_bytes: i64,
    /// Other bytes once on each node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off_heap_node_bytes: i64,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// Thousandths of a request: rounded up, so that what is promised is enough. Noise of binary fractions below a millionth is none.
pub fn request_milli(amount: f64) -> i64 {
    ((amount * 1e6).round() / 1e3).ceil() as i64
}

/// Thousandths of an offer: rounded down, so that what is promised is there.
pub fn offer_milli(amount: f64) -> i64 {
    ((amount * 1e6).round() / 1e3).floor() as i64
}

/// A stream a component may emit on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Unique within the component.
    pub name: Name,
    /// Schema id of its tuples: equal schemas have equal ids in every build.
    pub schema: u64,
    /// Fields in declaration order.
    pub fields: Vec<FieldSpec>,
}

/// One field of a tuple.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSpec {
    /// Field name as written in the struct.
    pub name: String,
    /// Type text as written: `u64`, `String`, ...
    pub ty: String,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// Emitting component.
    pub from: Name,
    /// Its stream.
    pub stream: Name,
    /// How its tuples are spread over the tasks of the subscriber.
    pub grouping: Grouping,
}

/// How a stream is spread over the tasks of a subscriber. Semantics section 3 has the rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// Even: round robin over a shuffled list per emitter task.
    Shuffle,
    /// Tasks in this worker if there are any, else all.
    LocalOrShuffle,
    /// Power of two choices on queue fill.
    LoadAware,
    /// By hash of the named fields.
    Fields(Vec<String>),
    /// Two candidates by hash, the less used wins.
    PartialKey(Vec<String>),
    /// One copy to each task.
    All,
    /// Lowest task id.
    Global,
    /// Same as shuffle.
    None,
    /// The emitter names the task.
    Direct,
    /// User code, by name.
    Custom(String),
}

/// What is wrong with a description. One line: which component, what, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("topology is invalid: {0}")]
pub struct SpecError(pub String);

fn bad(text: String) -> Result<(), SpecError> {
    Err(SpecError(text))
}

impl TopologySpec {
    /// The component with this id.
    pub fn component(&self, id: &str) -> Option<&ComponentSpec> {
        self.components.iter().find(|c| c.id.as_str() == id)
    }

    /// SHA-256 over the canonical JSON: what a worker compares before it starts. Hex.
    pub fn digest(&self) -> String {
        hex::encode(Sha256::digest(serde_json::to_vec(self).expect("a description is always JSON")))
    }

    /// Checks everything that can be known without a cluster.
    pub fn check(&self) -> Result<(), SpecError> {
        let n = self.components.len();
        if n > COMPONENTS_MAX {
            return bad(format!("{n} components, at most {COMPONENTS_MAX} are allowed"));
        }
        if !self.components.iter().any(|c| c.kind == ComponentKind::Spout) {
            return bad("it has no spout, so nothing would ever flow; add one with `t.spout(..)`".into());
        }
        for pair in self.components.windows(2) {
            if pair[0].id >= pair[1].id {
                return bad(format!("component `{}` appears twice or out of order; ids are unique and sorted", pair[1].id));
            }
        }
        for c in &self.components {
            self.check_component(c)?;
        }
        Ok(())
    }

    fn check_component(&self, c: &ComponentSpec) -> Result<(), SpecError> {
        let id = &c.id;
        if c.id.is_system() || c.kind == ComponentKind::Acker {
            return bad(format!("component `{id}` is Saetta's own and cannot be described by a binary"));
        }
        if c.executors == 0 {
            return bad(format!("component `{id}` asks for 0 executors; ask for at least 1"));
        }
        if c.executors > TASKS_MAX || c.tasks.is_some_and(|t| t > TASKS_MAX) {
            return bad(format!("component `{id}` asks for more than {TASKS_MAX} executors or tasks"));
        }
        if c.tasks == Some(0) {
            return bad(format!("component `{id}` asks for 0 tasks; ask for at least 1"));
        }
        let r = &c.resources;
        let shared = |s: &SharedMemory| s.on_heap_bytes < 0 || s.off_heap_worker_bytes < 0 || s.off_heap_node_bytes < 0;
        if r.cpu_milli_pct < 0 || r.memory_bytes < 0 || r.generic_milli.values().any(|v| *v < 0) || r.shared.iter().any(shared) {
            return bad(format!("component `{id}` asks for a negative resource"));
        }
        if !(0..=r.memory_bytes).contains(&r.off_heap_bytes) {
            return bad(format!("component `{id}` asks for {} bytes off heap, and for {} in all", r.off_heap_bytes, r.memory_bytes));
        }
        for block in &r.shared {
            let same = |o: &&SharedMemory| o.name == block.name && *o != block;
            if let Some(other) = self.components.iter().flat_map(|o| &o.resources.shared).find(same) {
                return bad(format!(
                    "shared memory `{}` of `{id}` is {block:?} here and {other:?} elsewhere; one block has one size",
                    block.name
                ));
            }
        }
        if c.kind == ComponentKind::Spout && !c.inputs.is_empty() {
            return bad(format!("spout `{id}` has an input; only bolts read streams"));
        }
        if c.kind == ComponentKind::Bolt && c.inputs.is_empty() {
            return bad(format!("bolt `{id}` reads no stream, so it would never run; add `.input(..)`"));
        }
        let mut seen = BTreeSet::new();
        for s in &c.outputs {
            if !seen.insert(&s.name) {
                return bad(format!("component `{id}` declares stream `{}` twice", s.name));
            }
        }
        for input in &c.inputs {
            self.check_input(c, input)?;
        }
        Ok(())
    }

    fn check_input(&self, c: &ComponentSpec, input: &InputSpec) -> Result<(), SpecError> {
        let Some(from) = self.component(input.from.as_str()) else {
            let hint = nearest(input.from.as_str(), self.components.iter().map(|c| c.id.as_str()));
            let hint = hint.map(|h| format!("; did you mean `{h}`?")).unwrap_or_default();
            return bad(format!("bolt `{}` reads from component `{}`, which does not exist{hint}", c.id, input.from));
        };
        let Some(stream) = from.outputs.iter().find(|s| s.name == input.stream) else {
            let has = from.outputs.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
            return bad(format!(
                "bolt `{}` reads stream `{}` of `{}`, which it does not declare; it has: {has}",
                c.id, input.stream, input.from
            ));
        };
        let direct = |i: &&InputSpec| i.grouping == Grouping::Direct;
        let reads = |r: &&ComponentSpec| r.inputs.iter().any(|i| i.from == input.from && i.stream == input.stream && !direct(&i));
        if input.grouping == Grouping::Direct
            && let Some(other) = self.components.iter().find(reads)
        {
            return bad(format!(
                "bolt `{}` reads stream `{}` of `{}` by direct grouping and bolt `{}` by another; a tuple emitted to one task reaches nobody else, so give `{}` a stream of its own with `stream!`",
                c.id, stream.name, input.from, other.id, other.id
            ));
        }
        if let Grouping::Fields(keys) | Grouping::PartialKey(keys) = &input.grouping {
            if keys.is_empty() {
                return bad(format!("bolt `{}` groups stream `{}` by no field; name at least one", c.id, stream.name));
            }
            for key in keys {
                if !stream.fields.iter().any(|f| f.name == *key) {
                    let has = stream.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ");
                    return bad(format!("bolt `{}`: stream `{}` has no field `{key}`; it has: {has}", c.id, stream.name));
                }
            }
        }
        Ok(())
    }

    /// Components in an order where a component comes after what it reads from, as far as cycles allow.
    /// Ties by id, so every process gets the same order.
    pub fn topological(&self) -> Vec<&ComponentSpec> {
        let mut left: Vec<&ComponentSpec> = self.components.iter().collect();
        let mut done: Vec<&ComponentSpec> = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let ready = left.iter().position(|c| {
                c.inputs.iter().all(|i| i.from == c.id || done.iter().any(|d| d.id == i.from) || !left.iter().any(|l| l.id == i.from))
            });
            // A cycle has no ready component: break it at the one with the smallest id.
            done.push(left.remove(ready.unwrap_or(0)));
        }
        done
    }
}
