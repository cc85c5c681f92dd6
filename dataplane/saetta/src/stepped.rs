//! Loops stepped by hand: the same engine without threads, for tests that choose every interleaving by seed.

use saetta_engine::{CoreLoop, Engine, EnginePlan, Links, Options, PlannedExecutor, Program, Shared};
use saetta_model::config::Config;
use saetta_model::parallelism::Layout;
use std::sync::Arc;

/// An engine whose loops run only when told.
pub struct Stepped {
    loops: Vec<CoreLoop>,
    shared: Arc<Shared>,
}

impl Stepped {
    /// `n_loops` loops; `place` says which loop a component's i-th executor runs on.
    pub fn new(program: &Program, config: &Config, n_loops: usize, place: &dyn Fn(&str, usize) -> usize) -> crate::Result<Self> {
        let layout = Layout::new(&program.spec, config)?;
        let executors = layout
            .components
            .iter()
            .flat_map(|c| {
                c.executors.iter().enumerate().map(|(i, id)| PlannedExecutor { id: *id, on_loop: place(c.id.as_str(), i) % n_loops })
            })
            .collect();
        let options = Options { pinned: false, ..Options::from_config(config)? };
        let plan = EnginePlan { layout, cores: (0..n_loops as u32).collect(), executors, remotes: Vec::new(), options };
        let mut engine = Engine::build(program, &plan, false)?;
        engine.handles().iter().for_each(|h| h.send(saetta_engine::Command::Activate(true)));
        Ok(Stepped { loops: std::mem::take(&mut engine.loops), shared: engine.shared })
    }

    /// One duty cycle of one loop; how much it did.
    pub fn step(&mut self, core_loop: usize) -> usize {
        self.loops[core_loop].turn(&mut Links::none())
    }

    /// How many loops.
    pub fn n_loops(&self) -> usize {
        self.loops.len()
    }

    /// True when every task has ended and nothing waits.
    pub fn ended(&self) -> bool {
        self.shared.ended()
    }

    /// Counters, reports, and why it cannot go on.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}
