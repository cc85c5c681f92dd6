//! Write stream-processing topologies that count microseconds.
//!
//! A topology is an ordinary Rust program: tuples under [`#[tuple]`](macro@tuple), spouts and bolts as structs, a function that wires them, and
//! [`main!`], which gives the binary its lives: `describe`, `run`, `bench`, `worker`. See `examples/wordcount`.
//!
//! This crate is the typed surface. Frames, loops and lanes are in `saetta-engine`; what a supervisor starts is in `saetta-worker`.
//!
//! A spout that is told what became of each message, and a bolt that fails some:
//!
//! ```
//! use saetta::prelude::*;
//!
//! #[tuple]
//! pub struct Order {
//!     id: u64,
//!     symbol: String,
//! }
//!
//! struct Feed {
//!     next: u64,
//! }
//! impl Emits<Order> for Feed {}
//! impl Spout for Feed {
//!     const TRACKED: bool = true;
//!     fn next(&mut self, cx: &mut Cx<'_, Self>) -> Result<Progress, Fail> {
//!         if self.next == 100 {
//!             return Ok(Done);
//!         }
//!         cx.emit_tracked(self.next, &OrderRef { id: self.next, symbol: "SAET" });
//!         self.next += 1;
//!         Ok(Busy)
//!     }
//!     fn ack(&mut self, id: u64) {
//!         // Every tuple that came of message `id` was handled.
//!         let _ = id;
//!     }
//!     fn fail(&mut self, id: u64, why: &TreeFail) {
//!         // Failed, timed out, or lost: send it again, or write it down.
//!         assert_eq!((id, why.text.as_str()), (13, "check: an unlucky order"));
//!     }
//! }
//!
//! struct Check;
//! impl Bolt for Check {}
//! impl Handle<Order> for Check {
//!     fn on(&mut self, order: &ArchivedOrder, _: &mut Cx<'_, Self>) -> Outcome {
//!         // `Ok` acks the order, an error fails its tree.
//!         if order.id() == 13 { Err("an unlucky order".into()) } else { Ok(()) }
//!     }
//! }
//!
//! let mut t = Topology::new();
//! let orders = t.spout("feed", || Feed { next: 0 }).stream::<Order>();
//! let _ = t.bolt("check", || Check).executors(2).input(&orders, by!(Order.symbol));
//! let program = t.build().unwrap();
//! let config = saetta::Config::topology(&program.config, saetta::ConfigSource::Code).unwrap();
//! let summary = saetta::run(&program, &config, &saetta::RunOptions { quiet: true, ..Default::default() }).unwrap();
//! assert_eq!(summary.components["check"].failed, 1);
//! ```

extern crate self as saetta;

mod bench;
mod component;
mod core_plan;
mod dead_letter;
mod direct;
#[expect(unsafe_code, reason = "hands frames of a known stream to typed code: archives are viewed in place")]
mod dispatch;
mod dynamic;
mod grouping;
mod lives;
mod resource;
mod run;
mod stepped;
pub mod testing;
mod topology;

pub use component::{Anchor, Archived, Bolt, Complete, Cx, Emits, Handle, Outcome, Progress, Spout};
pub use dead_letter::{ArchivedDeadLetter, DeadLetter, DeadLetterRef};
pub use dynamic::{DynGrouping, HandleDyn};
pub use grouping::{All, Custom, CustomGrouping, Direct, Global, GroupingFor, LoadAware, LocalOrShuffle, Partial, Shuffle};
pub use resource::Resource;
pub use run::{ComponentSummary, Latency, RunOptions, Summary, Trees, run};
pub use saetta_engine::{Fail, Reason, TreeFail};
pub use saetta_model::config::{Config, ConfigError, Source as ConfigSource};
pub use saetta_tuple::{Dyn, Emit, Fields, KeyField, List, Schema, StreamType, Tuple, Value, WireType, tuple};
pub use stepped::Stepped;
pub use topology::{BoltBuilder, SpoutBuilder, Stream, Topology};

/// What a topology function returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
/// Any error with a text; `?` takes every error type and every string.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// One import for topologies.
pub mod prelude {
    pub use crate::component::Progress::{self, Busy, Done, Idle};
    pub use crate::{
        All, Anchor, Archived, Bolt, Complete, Custom, CustomGrouping, Cx, Direct, Dyn, Emits, Fail, Global, Handle, HandleDyn, LoadAware,
        LocalOrShuffle, Outcome, Reason, Result, Shuffle, Spout, Summary, Topology, TreeFail, by, partial, stream, tuple,
    };
}

/// For the macros' output only.
#[doc(hidden)]
pub mod __rt {
    pub use crate::component::NoStream;
    pub use crate::lives::main;
    pub use saetta_tuple::rt::*;
}

/// Groups by fields of a tuple: `by!(Word.word)`, `by!(Quote.symbol, Quote.venue)`. Equal keys meet in one task.
#[macro_export]
macro_rules! by {
    ($t:ident . $f:ident $(, $t2:ident . $f2:ident)* $(,)?) => {
        $crate::Fields::<$t> {
            names: &[stringify!($f) $(, stringify!($f2))*],
            key: |tuple: &$crate::Archived<$t>, out| {
                $crate::__rt::KeyField::key(&tuple.$f, out);
                $( $crate::__rt::KeyField::key(&tuple.$f2, out); )*
            },
        }
    };
}

/// Groups by fields with two tasks for each key: `partial!(Word.word)`. See [`Partial`].
#[macro_export]
macro_rules! partial {
    ($($field:tt)*) => {
        $crate::Partial($crate::by!($($field)*))
    };
}

/// Declares a second stream of a tuple type: `stream!(pub Late: Quote);`. Emit on it with [`Cx::emit_on`], read it with `impl Handle<Late>`.
#[macro_export]
macro_rules! stream {
    ($(#[$attr:meta])* $vis:vis $name:ident : $tuple:ty) => {
        $(#[$attr])*
        $vis struct $name;
        impl $crate::StreamType for $name {
            type Tuple = $tuple;
            const NAME: &'static str = stringify!($name);
        }
        impl $crate::__rt::Carries<$tuple> for $name {}
    };
}

/// Makes `fn topology(t: &mut Topology, args: Args) -> Result<()>` a program. `Args` derives `clap::Args`.
#[macro_export]
macro_rules! main {
    ($topology:path) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!("saetta::main! needs unwinding: a panic in user code fails one tuple and restarts one task; remove `panic = \"abort\"` from the profile");

        fn main() -> ::std::process::ExitCode {
            $crate::__rt::main(env!("CARGO_PKG_NAME"), $topology)
        }
    };
}
