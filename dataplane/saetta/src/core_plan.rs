//! Which executor of a local run is on which core and loop, and why.
//!
//! Before: a program, its configuration, and the cores this process may use. After: `run.rs` builds the engine from it; `plan` and
//! `run --plan` print it. The planner itself is `saetta_model::cores`.

use crate::run::RunOptions;
use saetta_engine::{EnginePlan, LOOPS_MAX, Options, PlanError, PlannedExecutor, Program, allowed_cores};
use saetta_model::config::Config;
use saetta_model::cores::{self, Hints, Reason};
use saetta_model::loops::{LoopRule, blocks};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::ComponentKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The plan of a local run: what the engine is built from, and the reasons.
pub(crate) struct CorePlan {
    pub(crate) engine: EnginePlan,
    lines: Vec<Line>,
}

struct Line {
    component: Name,
    id: ExecutorId,
    core: u32,
    on_loop: usize,
    why: Reason,
}

impl CorePlan {
    /// `executor.core` by hand, else the planner over the cores there are.
    pub(crate) fn new(program: &Program, config: &Config, options: &RunOptions) -> crate::Result<Self> {
        let layout = Layout::new(&program.spec, config)?;
        let allowed = if options.cores.is_empty() { allowed_cores() } else { options.cores.clone() };
        let mut by_hand = BTreeMap::new();
        for component in &program.spec.components {
            let text = component.config.get("executor.core").map(String::as_str).or(config.text("executor.core"));
            if let Some(core) = text.and_then(|t| t.parse::<u32>().ok()) {
                if !allowed.contains(&core) {
                    let id = &component.id;
                    let text = format!("component `{id}`: executor.core = {core}, and this process may run on {allowed:?} only");
                    return Err(PlanError(text).into());
                }
                by_hand.insert(component.id.to_string(), core);
            }
        }
        let rule = LoopRule::new(&program.spec, &layout, config);
        let blocking: BTreeSet<&str> = program.spec.components.iter().filter(|c| blocks(c, config)).map(|c| c.id.as_str()).collect();
        let cores = cores_for(&layout, &rule, &allowed, by_hand.values().copied());
        let all: Vec<ExecutorId> = layout.executors().map(|(_, e)| e).collect();
        let hints = Hints {
            planned: &|_| None,
            by_hand: &|id| by_hand.get(id).copied(),
            blocks: &|id| blocking.contains(id),
            busy: &|id| options.busy.get(id).copied(),
        };
        let placed = cores::plan(&program.spec, &layout, &all, &cores, &hints);
        let loops = rule.loops(&cores, placed.iter().map(|p| (p.id, p.core))).expect("every core is one of them");
        let lines = placed
            .into_iter()
            .map(|p| {
                let component = layout.component_of(p.id.first).expect("of the same layout").id.clone();
                Line { component, id: p.id, core: p.core, on_loop: loops.of[&p.id], why: p.reason }
            })
            .collect();
        let executors = loops.of.iter().map(|(id, on_loop)| PlannedExecutor { id: *id, on_loop: *on_loop }).collect();
        let bounds = Options { spout_rate_per_sec: options.rate_per_sec, blocking_loops: loops.blocking, ..Options::from_config(config)? };
        Ok(CorePlan { engine: EnginePlan { layout, cores: loops.cores, executors, remotes: Vec::new(), options: bounds }, lines })
    }
}

impl CorePlan {
    /// True when every executor is on the same core.
    pub(crate) fn same_places(&self, other: &CorePlan) -> bool {
        let places = |plan: &CorePlan| plan.lines.iter().map(|l| (l.id, l.core)).collect::<Vec<_>>();
        places(self) == places(other)
    }
}

/// As many of the allowed cores as there are executors that work, and those chosen by hand.
fn cores_for(layout: &Layout, rule: &LoopRule, allowed: &[u32], by_hand: impl Iterator<Item = u32>) -> Vec<u32> {
    let works = |e: &ExecutorId| !rule.blocking.contains(e);
    let working =
        layout.components.iter().filter(|c| c.kind != ComponentKind::Acker).flat_map(|c| &c.executors).filter(|e| works(e)).count();
    let mut cores: Vec<u32> = allowed.iter().copied().take(working.clamp(1, LOOPS_MAX)).collect();
    cores.extend(by_hand);
    cores.sort_unstable();
    cores.dedup();
    cores
}

impl fmt::Display for CorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = |core: u32| self.engine.cores.iter().filter(|c| **c == core).count();
        write!(f, "{:<16} {:>9} {:>5} {:>5}  why", "component", "tasks", "core", "loop")?;
        for l in &self.lines {
            write!(f, "\n{:<16} {:>9} {:>5} {:>5}  {}", l.component.as_str(), l.id.to_string(), l.core, l.on_loop, l.why)?;
            if shared(l.core) > 1 {
                write!(f, "; {} loops share the core", shared(l.core))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use saetta_model::config::{Owner, Source};

    #[tuple]
    struct N {
        n: u64,
    }
    struct Nothing;
    impl Emits<N> for Nothing {}
    impl Spout for Nothing {
        fn next(&mut self, _: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
            Ok(Done)
        }
    }
    struct Sink;
    impl Bolt for Sink {}
    impl Handle<N> for Sink {
        fn on(&mut self, _: &ArchivedN, _: &mut Cx<'_, Self>) -> Outcome {
            Ok(())
        }
    }

    struct Pass;
    impl Bolt for Pass {}
    impl Emits<N> for Pass {}
    impl Handle<N> for Pass {
        fn on(&mut self, t: &ArchivedN, cx: &mut Cx<'_, Self>) -> Outcome {
            cx.emit(&N { n: t.n() });
            Ok(())
        }
    }

    /// Spout `a`, bolts `b` and `db`, of which the second blocks; cores 3 and 5.
    fn told(pairs: &[(&str, &str)]) -> crate::Result<String> {
        let mut t = Topology::new();
        let numbers = t.spout("a", || Nothing).stream::<N>();
        let _ = t.bolt("b", || Sink).input(&numbers, Shuffle).core(5);
        let _ = t.bolt("db", || Sink).input(&numbers, Shuffle).blocking();
        let mut config = Config::new(Owner::Topology);
        config.set("topology.acker.executors", "0", Source::Set).unwrap();
        pairs.iter().for_each(|(k, v)| config.set(k, v, Source::Set).unwrap());
        let options = RunOptions { cores: vec![3, 5], ..RunOptions::default() };
        Ok(CorePlan::new(&t.build().unwrap(), &config, &options)?.to_string())
    }

    fn words(text: &str) -> Vec<String> {
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_plan_is_a_line_for_each_executor_with_its_loop_and_the_reason() {
        assert_eq!(
            words(&told(&[]).unwrap()),
            [
                "component tasks core loop why",
                "a [1] 3 0 load even: this core has 66 % of it",
                "b [2] 5 1 by hand: executor.core; 2 loops share the core",
                "db [3] 5 2 blocks: a thread of its own; 2 loops share the core",
            ]
        );
    }

    #[test]
    fn the_load_a_run_measured_is_what_the_next_plan_balances() {
        let mut t = Topology::new();
        let mut before = t.spout("a", || Nothing).stream::<N>();
        for id in ["b", "c"] {
            before = t.bolt(id, || Pass).input(&before, Shuffle).stream::<N>();
        }
        let _ = t.bolt("d", || Sink).input(&before, Shuffle);
        let program = t.build().unwrap();
        let plan = |busy: &[(&str, f64)]| {
            let busy = busy.iter().map(|(id, b)| ((*id).to_owned(), *b)).collect();
            let options = RunOptions { cores: vec![3, 5], busy, ..RunOptions::default() };
            CorePlan::new(&program, &Config::new(Owner::Topology), &options).unwrap()
        };
        let (guessed, measured) = (plan(&[]), plan(&[("a", 0.2), ("b", 0.2), ("c", 0.2), ("d", 0.9)]));
        let cores = |plan: &CorePlan| plan.lines.iter().filter(|l| !l.component.is_system()).map(|l| l.core).collect::<Vec<_>>();
        assert_eq!((cores(&guessed), cores(&measured)), (vec![3, 3, 5, 5], vec![3, 3, 3, 5]));
        assert!(guessed.same_places(&plan(&[])) && !guessed.same_places(&measured));
    }

    #[test]
    fn a_core_this_process_may_not_use_is_refused_with_its_component() {
        let error = told(&[("executor.core", "7")]).unwrap_err().to_string();
        assert!(error.contains("component `a`: executor.core = 7") && error.contains("[3, 5]"), "{error}");
    }
}
