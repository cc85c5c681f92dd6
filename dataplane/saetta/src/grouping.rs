//! Groupings as values: `Shuffle`, `All`, `Global`, and `by!(Tuple.field)`.

use crate::dispatch::key_of;
use saetta_engine::KeyFn;
use saetta_model::topology::Grouping;
use saetta_tuple::{Carries, Fields, StreamType, Tuple};

/// Even: round robin over a shuffled list per emitter task.
#[derive(Debug, Clone, Copy)]
pub struct Shuffle;
/// One copy to each task.
#[derive(Debug, Clone, Copy)]
pub struct All;
/// Everything to the task with the lowest id.
#[derive(Debug, Clone, Copy)]
pub struct Global;

/// A grouping that fits stream `S`.
#[diagnostic::on_unimplemented(
    message = "this grouping does not fit stream `{S}`",
    label = "`{Self}` is not for stream `{S}`",
    note = "fix: name fields of the tuple that `{S}` carries, as in `by!({S}.field)`, or use `Shuffle`, `All` or `Global`"
)]
pub trait GroupingFor<S: StreamType> {
    /// As described, with the key function of a fields grouping.
    #[doc(hidden)]
    fn grouping(self) -> (Grouping, Option<KeyFn>);
}

impl<S: StreamType> GroupingFor<S> for Shuffle {
    fn grouping(self) -> (Grouping, Option<KeyFn>) {
        (Grouping::Shuffle, None)
    }
}
impl<S: StreamType> GroupingFor<S> for All {
    fn grouping(self) -> (Grouping, Option<KeyFn>) {
        (Grouping::All, None)
    }
}
impl<S: StreamType> GroupingFor<S> for Global {
    fn grouping(self) -> (Grouping, Option<KeyFn>) {
        (Grouping::Global, None)
    }
}
impl<T: Tuple, S: Carries<T>> GroupingFor<S> for Fields<T> {
    fn grouping(self) -> (Grouping, Option<KeyFn>) {
        (Grouping::Fields(self.names.iter().map(|n| (*n).to_owned()).collect()), Some(key_of(self)))
    }
}
