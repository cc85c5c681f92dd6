//! Even: the baseline scheduler. Every worker of a topology holds the same number of executors, give or take one, and
//! as few running executors move as that allows.
//!
//! Before: `scheduler-api/host` packed the cluster and called through the C ABI. After: the plan holds one slot per
//! executor. The rule is section 2 of the semantics: S = min(workers, free + own alive slots); each of the S slots holds
//! floor(E/S) or ceil(E/S); of all such deals the one that moves fewest; new slots in interleaved order; the rest sorted by
//! first task, each to the slot with fewest. Nodes that are blacklisted, reserved or gone keep what they hold and get nothing new;
//! greylisted ones are used last. The deal is `saetta_sdk::deal`, which other plugins share.
//! Pure: no clock, no randomness, no state between rounds. O(executors log executors + slots + topologies x nodes).
//! Not here: resources. Only with `redistribute_idle` do workers move to nodes that run nothing.
#![forbid(unsafe_code)]

use saetta_sdk::config::{Config, Told};
use saetta_sdk::deal::{Board, Idle};
use saetta_sdk::{Configured, CreateCx, Extension, Plan, PluginError, Round, Scheduler, Verdict};

/// The scheduler. It keeps nothing between rounds.
pub struct Even {
    idle: Idle,
    told: Told,
}

saetta_sdk::export_scheduler!(Even, id = "even", claims = ["storm.even/1"]);

impl Even {
    fn read(config: &str) -> Result<Self, PluginError> {
        let mut config = Config::parse(config)?;
        Ok(Even { idle: Idle::read(&mut config)?, told: config.finish()? })
    }
}

impl Scheduler for Even {
    const EXTENSIONS: &'static [Extension] = &[Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let mut board = Board::new(round);
        self.idle.redistribute(&mut board, &[]);
        board.give_up(&[]);
        for share in 0..board.shares().len() {
            board.deal(share);
        }
        Ok(board.commit(round, plan))
    }
}

impl Configured for Even {
    fn schema() -> String {
        Self::read("{}").map(|even| even.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}
