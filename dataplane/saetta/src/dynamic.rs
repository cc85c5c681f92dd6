//! Bolts that take any stream: a tuple is read by field name or number, over the same bytes typed code reads.
//!
//! Before: `topology.rs` wires a stream to a bolt that is [`HandleDyn`]. After: the engine hands frames to [`run`], as it hands those of typed
//! inputs to `dispatch.rs`. Names are checked when the topology is built; values when they are read.

use crate::component::{Bolt, Cx, Outcome};
use crate::grouping::{All, Direct, Global, GroupingFor, LoadAware, LocalOrShuffle, Partial, Shuffle};
use crate::topology::{BoltBuilder, Stream};
use saetta_engine::{Chooser, Cx as RawCx, Fail, KeyFn};
use saetta_model::topology::Grouping;
use saetta_tuple::{Carries, Dyn, DynKey, Fields, StreamType, Tuple};
use std::sync::Arc;

/// A bolt reads any stream it is wired to with [`BoltBuilder::input_dyn`]. One bolt may read some streams so and others by
/// [`Handle`](crate::Handle).
///
/// ```
/// use saetta::prelude::*;
///
/// /// Counts tuples in which a numeric field reaches a bound, whatever else they hold.
/// struct Threshold {
///     field: String,
///     min: f64,
///     seen: u64,
/// }
/// impl Bolt for Threshold {}
/// impl HandleDyn for Threshold {
///     fn on_dyn(&mut self, t: Dyn<'_>, _: &mut Cx<'_, Self>) -> Outcome {
///         let Some(value) = t.get(&self.field).and_then(|v| v.as_f64()) else {
///             return Err(format!("`{}` has no number `{}`", t.schema().name, self.field).into());
///         };
///         self.seen += u64::from(value >= self.min);
///         Ok(())
///     }
/// }
/// // t.bolt("big", || Threshold { field: "vwap".into(), min: 100.0, seen: 0 }).input_dyn(&vwap, &["symbol"]);
/// ```
#[diagnostic::on_unimplemented(
    message = "bolt `{Self}` does not read streams dynamically",
    label = "no `HandleDyn`",
    note = "fix: write `impl HandleDyn for {Self} {{ fn on_dyn(&mut self, tuple: Dyn<'_>, cx: &mut Cx<'_, Self>) -> Outcome {{ .. }} }}`, or wire it with `.input`"
)]
pub trait HandleDyn: Bolt {
    /// Handles one tuple. `Ok` acks it, `Err` fails it.
    fn on_dyn(&mut self, tuple: Dyn<'_>, cx: &mut Cx<'_, Self>) -> Outcome;
}

/// A grouping of a dynamic input: field names (`&["symbol"]`), or any grouping that fits stream `S`.
#[diagnostic::on_unimplemented(
    message = "this is no grouping for a dynamic input of stream `{S}`",
    label = "`{Self}` is not for stream `{S}`",
    note = "fix: name fields, as in `&[\"symbol\"]`, or use `Shuffle`, `LocalOrShuffle`, `LoadAware`, `All`, `Global`, `Direct`, `by!` or `partial!`"
)]
pub trait DynGrouping<S: StreamType> {
    /// As described, with its code if it has any; the error names what is wrong with the fields.
    #[doc(hidden)]
    fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String>;
}

impl<S: StreamType> DynGrouping<S> for &[&str] {
    fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String> {
        let key = DynKey::new(<S::Tuple as Tuple>::schema(), self)?;
        let key: KeyFn = Arc::new(move |archive, out| {
            let whole = key.add(archive, out);
            debug_assert!(whole.is_some(), "an archive that this process has just encoded");
        });
        Ok((Grouping::Fields(self.iter().map(|n| (*n).to_owned()).collect()), Some(Chooser::Key(key, Arc::default()))))
    }
}
impl<S: StreamType, const N: usize> DynGrouping<S> for &[&str; N] {
    fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String> {
        DynGrouping::<S>::dyn_grouping(&self[..])
    }
}

macro_rules! as_typed {
    ($($name:ident),*) => {$(
        impl<S: StreamType> DynGrouping<S> for $name {
            fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String> {
                Ok(GroupingFor::<S>::grouping(self))
            }
        }
    )*};
}
as_typed!(Shuffle, LocalOrShuffle, LoadAware, All, Global, Direct);

impl<T: Tuple, S: Carries<T>> DynGrouping<S> for Fields<T> {
    fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String> {
        Ok(GroupingFor::<S>::grouping(self))
    }
}
impl<T: Tuple, S: Carries<T>> DynGrouping<S> for Partial<T> {
    fn dyn_grouping(self) -> Result<(Grouping, Option<Chooser>), String> {
        Ok(GroupingFor::<S>::grouping(self))
    }
}

impl<B: Bolt> BoltBuilder<'_, B> {
    /// Reads a stream dynamically: the bolt's [`HandleDyn`] gets its tuples. `grouping`: field names, as `&["symbol"]`, or a grouping value. A
    /// name the stream has not is an error of `build`, which names those it has.
    #[must_use]
    pub fn input_dyn<S: StreamType>(self, from: &Stream<S>, grouping: impl DynGrouping<S>) -> Self
    where
        B: HandleDyn,
    {
        self.read(from, grouping.dyn_grouping(), run::<B, S>)
    }
}

/// Handles frames of stream `S` from the front of `window`.
fn run<B: HandleDyn, S: StreamType>(bolt: &mut B, stream: u16, window: &[u8], raw: &mut RawCx<'_>) {
    let schema = <S::Tuple as Tuple>::schema();
    let cx = Cx::<B>::wrap(raw);
    while let Some(frame) = cx.0.next_frame(stream, window) {
        let outcome = match Dyn::new(frame.archive(), schema) {
            Some(tuple) => bolt.on_dyn(tuple, cx),
            // Unreachable for what this process encoded or checked.
            None => Err(Fail::Drop(format!("a tuple of stream `{}` that is cut", S::NAME))),
        };
        if let Err(why) = outcome {
            cx.0.fail(why);
        }
    }
}
