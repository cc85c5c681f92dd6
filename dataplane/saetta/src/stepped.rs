//! Loops stepped by hand: the same engine without threads, for tests that choose every interleaving by seed.

use saetta_engine::{
    Clock, Command, CoreLoop, DrainWatch, Engine, EnginePlan, Links, LoopHandle, Options, PlannedExecutor, Program, Shared,
};
use saetta_model::config::Config;
use saetta_model::parallelism::Layout;
use std::sync::Arc;

/// An engine whose loops run only when told.
pub struct Stepped {
    loops: Vec<CoreLoop>,
    shared: Arc<Shared>,
    memory: Vec<(&'static str, u64)>,
    handles: Vec<LoopHandle>,
    drain: DrainWatch,
    looks: u64,
}

impl Stepped {
    /// `n_loops` loops; `place` says which loop a component's i-th executor runs on.
    pub fn new(program: &Program, config: &Config, n_loops: usize, place: &dyn Fn(&str, usize) -> usize) -> crate::Result<Self> {
        let options = Options::from_config(config)?;
        Self::with_options(program, config, n_loops, place, options)
    }

    /// As [`Stepped::new`], by another clock than the machine's and with the random numbers of a seed: one run is like the other.
    pub fn seeded(
        program: &Program,
        config: &Config,
        n_loops: usize,
        place: &dyn Fn(&str, usize) -> usize,
        clock: Clock,
        seed: u64,
    ) -> crate::Result<Self> {
        let options = Options { clock, seed, ..Options::from_config(config)? };
        Self::with_options(program, config, n_loops, place, options)
    }

    fn with_options(
        program: &Program,
        config: &Config,
        n_loops: usize,
        place: &dyn Fn(&str, usize) -> usize,
        options: Options,
    ) -> crate::Result<Self> {
        let layout = Layout::new(&program.spec, config)?;
        let executors = layout
            .components
            .iter()
            .flat_map(|c| {
                c.executors.iter().enumerate().map(|(i, id)| PlannedExecutor { id: *id, on_loop: place(c.id.as_str(), i) % n_loops })
            })
            .collect();
        let options = Options { pinned: false, ..options };
        let plan = EnginePlan { layout, cores: (0..n_loops as u32).collect(), executors, remotes: Vec::new(), options };
        let engine = Engine::build(program, &plan, false)?;
        let (handles, memory) = (engine.handles().to_vec(), engine.memory().to_vec());
        handles.iter().for_each(|h| h.send(Command::Activate(true)));
        let Engine { loops, shared, drain, .. } = engine;
        Ok(Stepped { loops, shared, memory, handles, drain, looks: 0 })
    }

    /// One duty cycle of one loop; how much it did.
    pub fn step(&mut self, core_loop: usize) -> usize {
        self.loops[core_loop].turn(&mut Links::none())
    }

    /// Brings counters, and whether the loops have ended, up to now.
    pub fn publish(&mut self) {
        self.loops.iter_mut().for_each(CoreLoop::publish);
    }

    /// Ends cycles in which nothing goes on any more, when nothing does: their loops hear of it in their next turn.
    pub fn end_cycles(&mut self) {
        self.publish();
        for _ in 0..2 {
            // Time does not matter: nobody goes on between two looks.
            self.looks += 1;
            if let Some(components) = self.drain.look(&self.shared, self.looks << 32) {
                self.handles.iter().for_each(|h| h.send(Command::Drained(components.clone())));
            }
        }
    }

    /// Closes every component: the worker ends in order. After the last step.
    pub fn close(&mut self) {
        self.loops.iter_mut().for_each(CoreLoop::close);
    }

    /// How many loops.
    pub fn n_loops(&self) -> usize {
        self.loops.len()
    }

    /// A loop, to look at.
    pub(crate) fn core_loop(&self, core_loop: usize) -> &CoreLoop {
        &self.loops[core_loop]
    }

    /// True when every task has ended and nothing waits.
    pub fn ended(&self) -> bool {
        self.shared.ended()
    }

    /// Bytes the engine may take, by kind.
    pub fn memory(&self) -> &[(&'static str, u64)] {
        &self.memory
    }

    /// Counters, reports, and why it cannot go on.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}
