//! Which tasks of a subscriber get a tuple.
//!
//! Before: `emit.rs` has an archive and a subscription. After: `io.rs` turns task ids into lanes. Pure: no clock, no I/O; what a choice must
//! know of the outside it asks a [`Targets`]. No allocation after `new` (user code of a custom grouping aside). Rules: semantics section 3.
//!
//! By subject: `spread.rs` for groupings that look at no field, `keyed.rs` for those that hash one, `custom.rs` for user code.

mod custom;
mod keyed;
mod spread;
#[cfg(test)]
mod tests;

pub use custom::{CustomChoice, CustomFactory};

use crate::component::Fail;
use crate::program::Chooser;
use custom::Custom;
use keyed::{ByKey, PartialKey};
use saetta_model::name::Name;
use saetta_model::topology::Grouping;
use saetta_tuple::Emit;
use spread::{LoadAware, RoundRobin};

/// What a choice must know of the outside: answered by the emitter's loop.
pub(crate) trait Targets {
    /// The task's executor is in this worker.
    fn is_here(&self, task: u32) -> bool;
    /// Frames for the task can leave: it is in this worker, or its worker is reached.
    fn is_up(&self, task: u32) -> bool;
    /// Bytes that wait at the task's executor, as far as this loop knows.
    fn fill_bytes(&self, task: u32) -> u64;
}

/// One subscription as one emitter task sees it.
pub(crate) struct Subscription {
    /// The subscriber.
    pub(crate) component: Name,
    /// Its tasks, ascending.
    pub(crate) targets: Vec<u32>,
    /// The only task that is ever chosen, where it is so whatever the tuple.
    fixed: Option<u32>,
    choice: Choice,
}

enum Choice {
    Even(RoundRobin),
    /// As even, over the targets in this worker if there are any.
    Local(RoundRobin),
    LoadAware(LoadAware),
    Fields(ByKey),
    PartialKey(PartialKey),
    /// One copy each.
    All,
    /// Lowest task id; always fixed.
    Global,
    /// The emitter names the task.
    Direct,
    Custom(Custom),
}

/// Where one tuple goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// One task.
    One(u32),
    /// All targets.
    All,
    /// Any number of tasks, none included: see [`Subscription::tasks`].
    Some,
    /// Nowhere, and the emitter's input fails: see [`Subscription::refusal`].
    Refused(Refused),
}

/// Why a tuple goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A direct grouping, and the emitter named no task.
    NoTaskNamed,
    /// The task does not subscribe.
    Stranger(u32),
}

impl Subscription {
    /// `emitter` is the emitting task; it seeds what is random. `None` when the grouping's code is missing, a bug of whoever described it.
    pub(crate) fn new(component: &Name, grouping: &Grouping, chooser: Option<&Chooser>, targets: Vec<u32>, emitter: u32) -> Option<Self> {
        assert!(!targets.is_empty(), "a component has at least one task");
        assert!(targets.is_sorted(), "tasks of a component ascend");
        let choice = match (grouping, chooser) {
            (Grouping::Shuffle | Grouping::None, _) => Choice::Even(RoundRobin::new(&targets, emitter)),
            (Grouping::LocalOrShuffle, _) => Choice::Local(RoundRobin::new(&targets, emitter)),
            (Grouping::LoadAware, _) => Choice::LoadAware(LoadAware::new(emitter)),
            (Grouping::Fields(_), Some(Chooser::Key(key, fields))) => Choice::Fields(ByKey::new(key.clone(), fields.clone())),
            (Grouping::PartialKey(_), Some(Chooser::Key(key, _))) => Choice::PartialKey(PartialKey::new(key.clone(), targets.len())),
            (Grouping::All, _) => Choice::All,
            (Grouping::Global, _) => Choice::Global,
            (Grouping::Direct, _) => Choice::Direct,
            (Grouping::Custom(_), Some(Chooser::Custom(make))) => Choice::Custom(Custom::new(make, &targets)),
            (Grouping::Fields(_) | Grouping::PartialKey(_) | Grouping::Custom(_), _) => return None,
        };
        let fixed = match choice {
            Choice::Direct | Choice::Custom(_) => None,
            Choice::Global => Some(targets[0]),
            _ => (targets.len() == 1).then_some(targets[0]),
        };
        Some(Subscription { component: component.clone(), targets, fixed, choice })
    }

    /// The only task this subscription ever chooses, where it is so: nothing to ask and nothing to look up.
    pub(crate) fn fixed(&self) -> Option<u32> {
        self.fixed
    }

    /// Looks at the assignment. Call it once before the first choice and whenever the assignment changes.
    pub(crate) fn assignment_changed(&mut self, outside: &impl Targets, emitter: u32) {
        if let Choice::Local(round) = &mut self.choice {
            let here: Vec<u32> = self.targets.iter().copied().filter(|t| outside.is_here(*t)).collect();
            *round = RoundRobin::new(if here.is_empty() { &self.targets } else { &here }, emitter);
        }
    }

    /// True where the archive is looked at.
    #[inline(always)]
    pub(crate) fn reads_archive(&self) -> bool {
        self.fixed.is_none() && matches!(self.choice, Choice::Fields(_) | Choice::PartialKey(_) | Choice::Custom(_))
    }

    /// True where every choice is exactly one task, so that a frame may be written before it is chosen. Such a choice runs no user code
    /// that could panic half-way.
    #[inline(always)]
    pub(crate) fn picks_one(&self) -> bool {
        self.fixed.is_some() || !matches!(self.choice, Choice::All | Choice::Direct | Choice::Custom(_))
    }

    /// Chooses for one tuple. `archive` is looked at only where [`Self::reads_archive`].
    #[inline(always)]
    pub(crate) fn choose(&mut self, archive: &[u8], outside: &impl Targets) -> Chosen {
        match self.fixed {
            // Every grouping that has one target agrees on it.
            Some(only) => Chosen::One(only),
            None => self.choose_among(archive, outside),
        }
    }

    /// The task of a tuple not yet encoded, where its fields alone say it.
    #[inline(always)]
    pub(crate) fn choose_early<E: Emit>(&mut self, value: &E) -> Option<u32> {
        match &mut self.choice {
            Choice::Fields(by) => by.task_of(value, &self.targets),
            _ => None,
        }
    }

    fn choose_among(&mut self, archive: &[u8], outside: &impl Targets) -> Chosen {
        let targets = &self.targets[..];
        match &mut self.choice {
            Choice::Even(round) | Choice::Local(round) => Chosen::One(round.next(outside)),
            Choice::LoadAware(load) => Chosen::One(load.next(targets, outside)),
            Choice::Fields(by) => Chosen::One(by.task(archive, targets)),
            Choice::PartialKey(partial) => Chosen::One(partial.next(archive, targets, outside)),
            Choice::All => Chosen::All,
            Choice::Global => Chosen::One(targets[0]),
            Choice::Direct => Chosen::Refused(Refused::NoTaskNamed),
            Choice::Custom(custom) => custom.choose(archive, targets),
        }
    }

    /// The tasks of a choice just made.
    #[inline(always)]
    pub(crate) fn tasks<'a>(&'a self, chosen: &'a Chosen) -> &'a [u32] {
        match chosen {
            Chosen::One(task) => std::slice::from_ref(task),
            Chosen::All => &self.targets,
            Chosen::Some => match &self.choice {
                Choice::Custom(custom) => custom.tasks(),
                _ => unreachable!("only user code chooses some"),
            },
            Chosen::Refused(_) => &[],
        }
    }

    /// True for a direct grouping.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self.choice, Choice::Direct)
    }

    /// Whether the task is one of the subscriber's.
    pub(crate) fn subscribes(&self, task: u32) -> bool {
        self.targets.binary_search(&task).is_ok()
    }

    /// What the emitter is told.
    #[cold]
    pub(crate) fn refusal(&self, why: Refused) -> Fail {
        let (id, first, last) = (&self.component, self.targets[0], self.targets[self.targets.len() - 1]);
        Fail::Drop(match why {
            Refused::NoTaskNamed => format!("bolt `{id}` reads this stream by direct grouping; name the task with `emit_direct`"),
            Refused::Stranger(task) => {
                format!(
                    "a custom grouping chose task {task} for bolt `{id}`, whose tasks are {first} to {last}; choose among those that `prepare` was given"
                )
            }
        })
    }
}
