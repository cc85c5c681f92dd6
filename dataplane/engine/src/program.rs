//! A topology as code: the description, and what cannot be described - factories, checks and key functions.

use crate::component::Component;
use crate::grouping::CustomFactory;
use saetta_model::TopologySpec;
use saetta_model::name::Name;
use saetta_tuple::KeyBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes one instance of a component, one per task.
pub type ComponentFactory = Arc<dyn Fn() -> Box<dyn Component> + Send + Sync>;
/// Checks an archive that came from another process.
pub(crate) type Check = fn(&[u8]) -> bool;
/// Adds the canonical key bytes of an archive.
pub type KeyFn = Arc<dyn Fn(&[u8], &mut KeyBytes) + Send + Sync>;

/// The code of a grouping.
#[derive(Clone)]
pub enum Chooser {
    /// Of a fields or partial-key grouping: the key of an archive, and the places of its fields in the struct, for tuples that are asked for
    /// their key before they are encoded ([`saetta_tuple::Emit::key_hash`]); none = never asked.
    Key(KeyFn, Arc<[u16]>),
    /// Of a custom grouping.
    Custom(CustomFactory),
}

/// What a topology function builds.
pub struct Program {
    /// The description, components sorted by id.
    pub spec: TopologySpec,
    /// Configuration set in code.
    pub config: BTreeMap<String, String>,
    /// As `spec.components`.
    pub components: Vec<ProgramComponent>,
}

impl Program {
    /// Components that read, by whatever way, from this one and it from them; itself if it is in a cycle at all.
    pub(crate) fn in_cycle_with(&self, id: &Name) -> Vec<&Name> {
        let upstream_of = |id: &Name| {
            let mut found: Vec<&Name> = Vec::new();
            let mut next = self.reads(id);
            while let Some(from) = next.pop() {
                if !found.contains(&from) {
                    found.push(from);
                    next.extend(self.reads(from));
                }
            }
            found
        };
        upstream_of(id).into_iter().filter(|other| upstream_of(other).contains(&id)).collect()
    }

    /// The components a component reads from.
    pub(crate) fn reads(&self, id: &Name) -> Vec<&Name> {
        self.spec.component(id.as_str()).iter().flat_map(|c| c.inputs.iter().map(|i| &i.from)).collect()
    }
}

/// An input that failed for good, on its way to the dead-letter stream.
#[derive(Debug, Clone, Copy)]
pub struct DeadInput<'a> {
    /// The component that failed it.
    pub component: &'a str,
    /// The task of it.
    pub task: u32,
    /// Who emitted it.
    pub source: u32,
    /// Index of its stream in the topology.
    pub stream: u16,
    /// Why it failed.
    pub why: &'a str,
    /// Its archive.
    pub archive: &'a [u8],
}

/// Emits a dead input on the output it is given.
pub type DeadLetterFn = fn(&mut crate::context::Cx<'_>, usize, DeadInput<'_>);

/// The code of one component.
pub struct ProgramComponent {
    /// The output dead letters go to, and how they are emitted.
    pub dead_letters: Option<(usize, DeadLetterFn)>,
    /// Makes instances.
    pub factory: ComponentFactory,
    /// As the component's `outputs`: which Rust type names the stream, so that typed code finds it.
    pub tags: Vec<std::any::TypeId>,
    /// As the component's `outputs`: checks an archive that came from another process.
    pub checks: Vec<fn(&[u8]) -> bool>,
    /// As the component's `inputs`: the code of groupings that have some.
    pub choosers: Vec<Option<Chooser>>,
}
