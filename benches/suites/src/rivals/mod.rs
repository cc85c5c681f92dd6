//! `rivals`: what a user would pick instead, on the same workloads, on the same two cores, in the same run.
//!
//! Before: `benches/rivals/workloads.toml` names workloads, rivals, settings to sweep and targets; adapters lie beside it. After: for each workload
//! and rival its figures, every point of a swept grid, and ours over the rival's best. A rival that cannot be had is noted with what was asked
//! and what answered; so is a sample that failed.
//! Absences: a rival's figure is never carried from one run to another.

mod definition;
mod process;
mod programs;
mod scheduling;
mod two_workers;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use saetta_harness::host::class_now;
use saetta_harness::noise::cpu_of_children;
use saetta_harness::suite::{Figures, Measured, Options, SuiteRun};
use saetta_harness::zipf::{self, Text};
use saetta_harness::{Better, HostClass, Notes, Result, RowSpec};

use self::definition::{Definition, Rival, Settings, Sizes, Workload, words};
use self::process::Order;
use self::programs::Built;
use crate::wordcount;

/// Ours, the first of the rivals.
const OURS: &str = "saetta";

/// What all cases share.
struct Common {
    sizes: Sizes,
    text: Text,
    /// Holds the text as `zipf.txt`.
    dir: tempfile::TempDir,
    notes: Notes,
}

impl Common {
    fn text_path(&self) -> PathBuf {
        self.dir.path().join("zipf.txt")
    }

    /// One sample of an adapter; without it a note, in a smoke run an error.
    fn sample(&self, o: &Options, case: &Case, settings: &Settings, is_point: bool) -> Result<Option<(HostClass, Measured)>> {
        let ours = case.rival == OURS;
        let sample = match (case.workload.shape.as_str(), case.workload.processes) {
            ("words", 1) if ours => self.without_adapter(o, || self.our_words()),
            ("words", 2) if ours => self.without_adapter(o, || two_workers::words(o, &self.sizes, &self.text_path())),
            ("null", 2) if ours => self.without_adapter(o, || two_workers::hop(o)),
            _ => self.adapter(o, &case.program, &case.workload, settings, is_point),
        };
        match sample {
            Err(error) if !o.smoke => {
                self.notes.add(format!("{} ({}): no sample: {error}", case.name(), words(settings)));
                Ok(None)
            }
            sample => sample.map(Some).map_err(|error| format!("{}: {error}", case.name()).into()),
        }
    }

    fn adapter(
        &self,
        o: &Options,
        program: &Built,
        workload: &Workload,
        settings: &Settings,
        is_point: bool,
    ) -> Result<(HostClass, Measured)> {
        let sizes = &self.sizes;
        let warm_up_ms = match (program.is_jvm(), is_point) {
            (true, true) => sizes.warm_up_point_ms,
            (true, false) => sizes.warm_up_jvm_ms,
            (false, _) => sizes.warm_up_native_ms,
        };
        let dir = tempfile::tempdir()?;
        let json = workload.json(&self.text_path(), warm_up_ms, sizes.window_ms, o.cores, settings);
        let command = program.command(&sizes.heap, dir.path());
        let latency = !workload.is_rate();
        process::measure(Order { command, workload: &json, latency, cores: o.cores, dir: dir.path(), windows_max: sizes.windows_max })
    }

    /// What starts processes by itself, again while it is disturbed or in another class than CCX.
    fn without_adapter(&self, o: &Options, run: impl Fn() -> Result<Figures>) -> Result<(HostClass, Measured)> {
        let mut taken = 1;
        loop {
            let before = class_now(o.cores)?;
            let figures = run()?;
            let after = class_now(o.cores)?;
            let class = if before == after { before } else { HostClass::Mixed };
            if class == HostClass::Ccx || taken >= self.sizes.windows_max {
                return Ok((class, Measured { figures, ..Measured::default() }));
            }
            taken += 1;
        }
    }

    /// The example as shipped, from the start of its process's own run to its end, all counts compared.
    fn our_words(&self) -> Result<Figures> {
        let (binary, cpu) = (wordcount::built()?, cpu_of_children());
        let millions = wordcount::run_once(&binary, &["--keyed"], &self.text_path(), &self.text)?;
        let cpu = cpu_of_children().zip(cpu).map(|(end, start)| end.saturating_sub(start)).ok_or("the kernel does not tell CPU times")?;
        Ok(Figures::from([("millions", millions), ("cpu_ns", cpu.as_nanos() as f64 / self.text.total() as f64)]))
    }
}

/// One workload on one rival.
struct Case {
    rival: String,
    workload: Workload,
    program: Built,
}

impl Case {
    fn name(&self) -> String {
        format!("{}: {}", self.workload.name, self.rival)
    }
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    let definition = Definition::read()?;
    let smoke = run.options().smoke;
    let sizes = if smoke { definition.smoke.clone() } else { definition.run.clone() };
    let (text, dir) = (zipf::text(sizes.text_bytes, wordcount::SEED), tempfile::tempdir()?);
    let common = Rc::new(Common { sizes, text, dir, notes: run.notes() });
    std::fs::write(common.text_path(), &common.text.bytes)?;
    if !smoke {
        machine(&common.notes, &common.sizes);
    }

    let workloads: Vec<&Workload> = definition.workloads.iter().filter(|workload| workload.smoke || !smoke).collect();
    let mut had = Vec::new();
    for rival in definition.rivals.iter().filter(|rival| workloads.iter().any(|workload| rival.runs(workload))) {
        if !run.options().only.as_deref().is_none_or(|only| is_asked_for(&definition, rival, only)) {
            continue;
        }
        eprintln!("        building {}", rival.name);
        match programs::build(&rival.program, smoke) {
            Ok(program) => {
                common.notes.add(format!(
                    "{} {}, acked: {}",
                    rival.name,
                    rival.version,
                    rival.acked.as_deref().unwrap_or("nothing like it")
                ));
                had.push((rival, program));
            }
            Err(error) if rival.name == OURS => return Err(error),
            Err(error) => common.notes.add(format!("{} {}: skipped: {error}", rival.name, rival.version)),
        }
        rival.note.iter().for_each(|note| common.notes.add(format!("{}: {note}", rival.name)));
    }

    for workload in workloads {
        for (rival, program) in had.iter().filter(|(rival, _)| rival.runs(workload)) {
            let case = Arc::new(Case { rival: rival.name.clone(), workload: workload.clone(), program: program.clone() });
            let mut points = rival.points(workload);
            if smoke {
                points.truncate(1);
            }
            declare_case(run, &common, &case, &points);
            figures(run, &case.name(), &case.name(), workload.is_rate());
            if rival.name != OURS {
                compare(run, workload, &rival.name, &definition);
            }
        }
    }
    match had.iter().find(|(rival, _)| rival.name == "storm") {
        Some((_, storm)) => scheduling::declare(run, &common, storm),
        None => Ok(()),
    }
}

/// Whether rows with `only` in their name may be about this rival. Ours is compared with whoever was asked for.
fn is_asked_for(definition: &Definition, rival: &Rival, only: &str) -> bool {
    let runs = definition.workloads.iter().filter(|workload| rival.runs(workload));
    let rows = runs.map(|workload| format!("{}: {OURS} over {}", workload.name, rival.name));
    rival.name == OURS || rows.chain([format!("scheduling: {}", rival.name)]).any(|row| row.contains(only))
}

/// A case for each point, and one that measures the best of them like everything else.
fn declare_case(run: &mut SuiteRun<'_>, common: &Rc<Common>, case: &Arc<Case>, points: &[Settings]) {
    // How good each point is; more is better.
    let found: Rc<RefCell<Vec<(f64, Settings)>>> = Rc::default();
    let mut names = Vec::new();
    for settings in points.iter().filter(|_| points.len() > 1) {
        let name = format!("{}, {}", case.name(), words(settings));
        let (common, of, settings, found) = (Rc::clone(common), Arc::clone(case), settings.clone(), Rc::clone(&found));
        run.case_of_own_class(&name, move |o| {
            let sample = common.sample(o, &of, &settings, true)?;
            if let Some((_, measured)) = &sample {
                let good = if of.workload.is_rate() { measured.figures["millions"] } else { -measured.figures["p50_ns"] };
                found.borrow_mut().push((good, settings.clone()));
            }
            Ok(sample)
        });
        run.once();
        figures(run, &name, &name, case.workload.is_rate());
        names.push(name);
    }
    let (common, of, only) = (Rc::clone(common), Arc::clone(case), points.first().cloned().unwrap_or_default());
    let is_swept = !names.is_empty();
    run.case_of_own_class(&case.name(), move |o| {
        if !is_swept {
            return common.sample(o, &of, &only, false);
        }
        let best = found.borrow().iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, settings)| settings.clone());
        let Some(best) = best else { return Ok(None) };
        common.notes.add(format!("{}: best of the grid is {}", of.name(), words(&best)));
        common.sample(o, &of, &best, false)
    });
    run.needs(&names);
}

/// The rows of a case's own figures.
fn figures(run: &mut SuiteRun<'_>, name: &str, case: &str, is_rate: bool) {
    if is_rate {
        run.row(RowSpec::new(name, "M tuples/s", Better::Higher, case, "millions"));
    } else {
        for (figure, what) in [("p50_ns", "p50"), ("p99_ns", "p99"), ("p99_9_ns", "p99.9")] {
            run.row(RowSpec::new(&format!("{name}, {what}"), "ns", Better::Lower, case, figure));
        }
        run.row(RowSpec::new(&format!("{name}, arrived"), "tuples/s", Better::Higher, case, "per_sec"));
        run.row(RowSpec::new(&format!("{name}, hiccups p99"), "ns", Better::Lower, case, "hiccups_p99_ns"));
    }
    run.row(RowSpec::new(&format!("{name}, CPU"), "ns/tuple", Better::Lower, case, "cpu_ns"));
}

/// Ours over the rival's, which stands as the floor.
fn compare(run: &mut SuiteRun<'_>, workload: &Workload, rival: &str, definition: &Definition) {
    let (ours, theirs) = (format!("{}: {OURS}", workload.name), format!("{}: {rival}", workload.name));
    let target = definition.target(&workload.name, rival);
    let mut row = |what: &str, unit: &str, better, figure, target: Option<f64>| {
        let row = RowSpec::new(&format!("{ours} over {rival}{what}"), unit, better, &ours, figure).over(&theirs, figure, 1.0);
        run.row(target.map_or(row.clone(), |target| row.target(target)));
    };
    if workload.is_rate() {
        row("", "M tuples/s", Better::Higher, "millions", target.and_then(|target| target.rate));
        row(", CPU", "ns/tuple", Better::Lower, "cpu_ns", target.and_then(|target| target.cpu));
    } else {
        row(", p50", "ns", Better::Lower, "p50_ns", target.and_then(|target| target.latency));
        row(", p99", "ns", Better::Lower, "p99_ns", target.and_then(|target| target.latency));
    }
}

/// Notes on what and how this run is made.
fn machine(notes: &Notes, sizes: &Sizes) {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().next().unwrap_or("not there").to_owned()
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")).map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    notes.add(format!("machine: {model}, {}", said("uname", &["-srm"])));
    notes.add(format!("date: {}; commit {}", said("date", &["-u", "+%Y-%m-%d"]), said("git", &["rev-parse", "--short=12", "HEAD"])));
    notes.add(format!("JVM: {}, heap fixed at {}, all else by default", said("java", &["-version"]), sizes.heap));
    notes.add(format!(
        "windows of {} ms after a warm-up of {} ms (JVM), {} ms (native), {} ms (points of a grid, which are measured once)",
        sizes.window_ms, sizes.warm_up_jvm_ms, sizes.warm_up_native_ms, sizes.warm_up_point_ms
    ));
}
