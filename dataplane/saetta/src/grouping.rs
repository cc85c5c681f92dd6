//! Groupings as values: `Shuffle`, `LocalOrShuffle`, `LoadAware`, `by!(Tuple.field)`, `partial!(Tuple.field)`, `All`, `Global`, `Direct`,
//! and user code as [`Custom`]. Their rules are in `saetta-engine`'s `grouping.rs`.

use crate::component::Archived;
use crate::dispatch::{custom_of, key_of};
use saetta_engine::Chooser;
use saetta_model::topology::Grouping;
use saetta_tuple::{Carries, Fields, StreamType, Tuple};

/// Even: round robin over a shuffled list per emitter task. Tasks whose worker is down are stepped over.
#[derive(Debug, Clone, Copy)]
pub struct Shuffle;
/// As [`Shuffle`], among the tasks in the emitter's worker if there are any, else among all.
#[derive(Debug, Clone, Copy)]
pub struct LocalOrShuffle;
/// Of two tasks drawn at random, the one with fewer bytes waiting: for tasks that are not equally fast.
#[derive(Debug, Clone, Copy)]
pub struct LoadAware;
/// One copy to each task.
#[derive(Debug, Clone, Copy)]
pub struct All;
/// Everything to the task with the lowest id.
#[derive(Debug, Clone, Copy)]
pub struct Global;
/// The emitter names the task: `cx.emit_direct(task, &tuple)`. All readers of such a stream group it so.
#[derive(Debug, Clone, Copy)]
pub struct Direct;
/// As `by!`, but each key has two tasks, and this emitter uses the one it sent less to: for keys of which a few make most of the tuples. Made by
/// [`partial!`](crate::partial).
pub struct Partial<T: Tuple>(pub Fields<T>);

impl<T: Tuple> Clone for Partial<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Tuple> Copy for Partial<T> {}

/// A grouping that is user code. One instance per emitter task and subscription, called on the emitter's thread.
///
/// ```
/// use saetta::prelude::*;
///
/// #[tuple]
/// pub struct Order {
///     pub urgent: bool,
/// }
///
/// /// Urgent orders to the first task, the others to the last.
/// #[derive(Default)]
/// struct ByUrgency(Vec<u32>);
/// impl CustomGrouping<Order> for ByUrgency {
///     fn prepare(&mut self, targets: &[u32]) {
///         self.0 = targets.to_vec();
///     }
///     fn choose(&mut self, order: &ArchivedOrder, tasks: &mut Vec<u32>) {
///         tasks.push(if order.urgent() { self.0[0] } else { self.0[self.0.len() - 1] });
///     }
/// }
/// // .input(&orders, Custom(ByUrgency::default))
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grouping for stream `{S}`",
    label = "chooses no tasks for tuples of `{S}`",
    note = "fix: write `impl CustomGrouping<{S}> for {Self} {{ fn prepare(&mut self, targets: &[u32]) {{ .. }} fn choose(&mut self, tuple: &Archived<{S}>, tasks: &mut Vec<u32>) {{ .. }} }}`"
)]
pub trait CustomGrouping<S: StreamType>: Send + 'static {
    /// The tasks there are to choose from, ascending. Before the first tuple.
    fn prepare(&mut self, targets: &[u32]);
    /// Adds to `tasks`, which is empty, the tasks that get a copy: none, some or all of those that `prepare` was given. Another task is an
    /// error to the emitter; so is a panic.
    fn choose(&mut self, tuple: &Archived<S>, tasks: &mut Vec<u32>);
}

/// User code as a grouping: `Custom(MyGrouping::default)`, where the function makes one instance per emitter task.
#[derive(Debug, Clone, Copy)]
pub struct Custom<F>(pub F);

/// A grouping that fits stream `S`.
#[diagnostic::on_unimplemented(
    message = "this grouping does not fit stream `{S}`",
    label = "`{Self}` is not for stream `{S}`",
    note = "fix: name fields of the tuple that `{S}` carries, as in `by!({S}.field)`, or use `Shuffle`, `All` or `Global`"
)]
pub trait GroupingFor<S: StreamType> {
    /// As described, with its code if it has any.
    #[doc(hidden)]
    fn grouping(self) -> (Grouping, Option<Chooser>);
}

macro_rules! without_code {
    ($($name:ident),*) => {$(
        impl<S: StreamType> GroupingFor<S> for $name {
            fn grouping(self) -> (Grouping, Option<Chooser>) {
                (Grouping::$name, None)
            }
        }
    )*};
}
without_code!(Shuffle, LocalOrShuffle, LoadAware, All, Global, Direct);

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

impl<T: Tuple, S: Carries<T>> GroupingFor<S> for Fields<T> {
    fn grouping(self) -> (Grouping, Option<Chooser>) {
        (Grouping::Fields(names(self.names)), Some(key_of(self)))
    }
}
impl<T: Tuple, S: Carries<T>> GroupingFor<S> for Partial<T> {
    fn grouping(self) -> (Grouping, Option<Chooser>) {
        (Grouping::PartialKey(names(self.0.names)), Some(key_of(self.0)))
    }
}
impl<S, G, F> GroupingFor<S> for Custom<F>
where
    S: StreamType,
    G: CustomGrouping<S>,
    F: Fn() -> G + Send + Sync + 'static,
{
    fn grouping(self) -> (Grouping, Option<Chooser>) {
        (Grouping::Custom(short_name::<G>()), Some(Chooser::Custom(custom_of::<S, G>(self.0))))
    }
}

/// Last part of a type's path: what a description calls a custom grouping.
fn short_name<G>() -> String {
    let path = std::any::type_name::<G>();
    let plain = path.split('<').next().unwrap_or(path);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}
