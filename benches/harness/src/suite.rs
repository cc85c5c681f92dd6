//! Runs the cases of one suite interleaved, keeps the samples that may be put together, and makes the rows.
//!
//! Before: `benches/suites` declares cases and rows. After: `row` prints and writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::hdr::Latency;
use crate::hdr_files::{self, Interval};
use crate::hiccup::HiccupMeter;
use crate::host::{self, HostClass};
use crate::noise::{self, CpuReading, NOISE_MAX};
use crate::pin;
use crate::row::{self, Better, Judgement, NoVerdict, Row, SAMPLES_MIN};

/// Any error of a case: it ends the suite, and its text says what to do.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Result of a case or a suite.
pub type Result<T> = std::result::Result<T, Error>;
/// The figures of one sample by name, e.g. `p50_ns`.
pub type Figures = BTreeMap<&'static str, f64>;

/// Where results go, below the folder the bench was started in (`cargo xtask bench` starts it in the workspace root).
const RESULTS: &str = "target/bench";
/// A disturbed sample is taken again at most this often; then it stands, since the floor beside it was disturbed alike or is void.
const DISTURBED_MAX: u32 = 3;

/// How a suite is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tiny sizes, one repetition, no waiting, no verdicts: proof that the bench works, in seconds.
    pub smoke: bool,
    /// Samples per case. At least [`SAMPLES_MIN`] outside smoke.
    pub repetitions: usize,
    /// The two cores every two-thread case pins to.
    pub cores: (usize, usize),
    /// Only rows whose name contains this, and the cases they need.
    pub only: Option<String>,
}

impl Options {
    /// The real size of something, or the tiny one in smoke.
    #[must_use]
    pub fn size(&self, real: u64, smoke: u64) -> u64 {
        if self.smoke { smoke } else { real }
    }
}

/// What one run of a case gives.
#[derive(Debug, Default)]
pub struct Measured {
    /// By name.
    pub figures: Figures,
    /// The histogram that the figures are of, for the files.
    pub latency: Option<Latency>,
    /// By how much a thread that only sleeps woke late meanwhile.
    pub hiccups: Option<Latency>,
}

impl Measured {
    /// The percentiles of these latencies.
    #[must_use]
    pub fn of(latency: Latency) -> Self {
        let figures = [("p50_ns", latency.p50_ns()), ("p99_ns", latency.p99_ns()), ("p99_9_ns", latency.p99_9_ns())];
        Self { figures: figures.map(|(name, ns)| (name, ns as f64)).into(), latency: Some(latency), hiccups: None }
    }
}

/// `None`: there is no sample this time, and a note says why.
type CaseFn<'a> = Box<dyn FnMut(&Options) -> Result<Option<(HostClass, Measured)>> + 'a>;

/// Lines below the table: what a run met that no figure says. A copy notes in the same place.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Notes a line, once.
    ///
    /// # Panics
    /// When another thread panicked in here.
    pub fn add(&self, line: impl Into<String>) {
        let (line, mut lines) = (line.into(), self.0.lock().expect("no panic while locked"));
        if !lines.contains(&line) {
            eprintln!("        {line}");
            lines.push(line);
        }
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic while locked").clone()
    }
}

struct Sample {
    class: HostClass,
    start: SystemTime,
    took: Duration,
    measured: Measured,
}

struct Case<'a> {
    name: String,
    run: CaseFn<'a>,
    samples: Vec<Sample>,
    class: Class,
    /// Taken in the first repetition only.
    once: bool,
    /// Cases it asks for what they found.
    needs: Vec<String>,
}

/// How a case stands to the host class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Probed around each sample, which is taken again in another class.
    Probed,
    /// It probes for itself, around what it measures.
    Own,
    /// It does not matter.
    Any,
}

/// Cases of one load at rising rates.
struct Curve {
    name: String,
    /// Rate a second, and the case.
    points: Vec<(u64, String)>,
}

/// A figure of a case.
#[derive(Debug, Clone)]
struct FigureOf {
    case: String,
    figure: &'static str,
    scale: f64,
}

/// What one row shows, and what it is judged by.
#[derive(Debug, Clone)]
pub struct RowSpec {
    name: String,
    unit: String,
    better: Better,
    value: FigureOf,
    floor: Option<FigureOf>,
    on_record: fn(HostClass) -> Option<f64>,
    target: Option<f64>,
}

impl RowSpec {
    /// A row that shows `figure` of `case`, in `unit`.
    #[must_use]
    pub fn new(name: &str, unit: &str, better: Better, case: impl Into<String>, figure: &'static str) -> Self {
        let value = FigureOf { case: case.into(), figure, scale: 1.0 };
        Self { name: name.to_owned(), unit: unit.to_owned(), better, value, floor: None, on_record: |_| None, target: None }
    }

    /// Its floor: `figure` of `case`, times `scale` (0.5 makes a one-way time of a round trip).
    #[must_use]
    pub fn over(mut self, case: impl Into<String>, figure: &'static str, scale: f64) -> Self {
        self.floor = Some(FigureOf { case: case.into(), figure, scale });
        self
    }

    /// The floor on record for a host class, in the unit of the floor's case before scaling: what makes a run void.
    #[must_use]
    pub fn on_record(mut self, on_record: fn(HostClass) -> Option<f64>) -> Self {
        self.on_record = on_record;
        self
    }

    /// The ratio to the floor to reach; without a floor, the value.
    #[must_use]
    pub fn target(mut self, target: f64) -> Self {
        self.target = Some(target);
        self
    }
}

/// One suite being declared, then run.
pub struct SuiteRun<'a> {
    options: Options,
    cases: Vec<Case<'a>>,
    rows: Vec<RowSpec>,
    curves: Vec<Curve>,
    notes: Notes,
}

/// What a suite came to.
pub struct Finished {
    /// Each row, with the reason why it has no verdict.
    pub rows: Vec<(Row, Option<NoVerdict>)>,
    /// The curves as text, empty when there are none.
    pub curves: String,
    /// Per case that gives latencies: its name, the tag its figures are of, and what goes to the log.
    pub latencies: Vec<(String, String, Vec<Interval>)>,
    /// What was noted on the way.
    pub notes: Vec<String>,
}

impl<'a> SuiteRun<'a> {
    /// An empty suite.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, cases: Vec::new(), rows: Vec::new(), curves: Vec::new(), notes: Notes::default() }
    }

    /// Where to note what no figure says.
    #[must_use]
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// How this run is made.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A case whose figures depend on how near the two cores are: ours and its floor are both cases. Run once per repetition.
    pub fn case(&mut self, name: &str, mut run: impl FnMut(&Options) -> Result<Figures> + 'a) {
        self.add(name, Class::Probed, move |options| Ok(Measured { figures: run(options)?, ..Measured::default() }));
    }

    /// A case whose figures are percentiles: `p50_ns`, `p99_ns` and `p99_9_ns`. Its histograms are written as `.hgrm` and `.hlog`.
    pub fn latency_case(&mut self, name: &str, mut run: impl FnMut(&Options) -> Result<Latency> + 'a) {
        self.add(name, Class::Probed, move |options| Ok(Measured::of(run(options)?)));
    }

    /// A case that does not care where the cores are, e.g. how long a restart takes. Not waited for, not taken again.
    pub fn case_of_any_class(&mut self, name: &str, mut run: impl FnMut(&Options) -> Result<Figures> + 'a) {
        self.add(name, Class::Any, move |options| Ok(Measured { figures: run(options)?, ..Measured::default() }));
    }

    /// A case that warms up for longer than the host leaves cores where they are: it says in which class it measured, having probed around that
    /// alone, or that there is no sample this time.
    pub fn case_of_own_class(&mut self, name: &str, run: impl FnMut(&Options) -> Result<Option<(HostClass, Measured)>> + 'a) {
        self.push(name, Class::Own, Box::new(run));
    }

    /// The case added last is a point of a sweep: it is measured once, in the first repetition.
    pub fn once(&mut self) {
        if let Some(case) = self.cases.last_mut() {
            case.once = true;
        }
    }

    /// The case added last asks `cases`, which are added before it, for what they found: they are measured, and their rows shown, with it.
    pub fn needs(&mut self, cases: &[String]) {
        if let Some(case) = self.cases.last_mut() {
            case.needs.extend_from_slice(cases);
        }
    }

    /// An open loop at rising rates, a case each: `run(options, rate)` issues `rate` a second at times fixed beforehand and counts every
    /// latency from the time it was meant to begin, so that a stall shows in all it delayed. A hiccup meter runs beside it. Gives a row per rate
    /// (p50, no target) and a curve with the tails, which on a shared machine are as much the machine's as ours.
    pub fn open_loop(&mut self, name: &str, rates: &[u64], run: impl FnMut(&Options, u64) -> Result<Latency> + Clone + 'a) {
        let mut points = Vec::new();
        for &rate in rates {
            let (case, mut run) = (format!("{name}, {rate}/s"), run.clone());
            self.add(&case, Class::Probed, move |options| {
                let meter = HiccupMeter::start(None);
                let latency = run(options, rate)?;
                Ok(Measured { hiccups: Some(meter.stop()?), ..Measured::of(latency) })
            });
            self.row(RowSpec::new(&format!("{case}, p50"), "ns", Better::Lower, &case, "p50_ns"));
            points.push((rate, case));
        }
        self.curves.push(Curve { name: name.to_owned(), points });
    }

    fn add(&mut self, name: &str, class: Class, mut run: impl FnMut(&Options) -> Result<Measured> + 'a) {
        self.push(name, class, Box::new(move |options| Ok(Some((HostClass::Any, run(options)?)))));
    }

    fn push(&mut self, name: &str, class: Class, run: CaseFn<'a>) {
        self.cases.push(Case { name: name.to_owned(), run, samples: Vec::new(), class, once: false, needs: Vec::new() });
    }

    /// A row of the result.
    pub fn row(&mut self, spec: RowSpec) {
        self.rows.push(spec);
    }

    /// Takes all samples and makes the rows, each with the reason why it has no verdict.
    ///
    /// # Errors
    /// What a case answered, or a row that names a case or figure that is not there.
    pub fn finish(mut self) -> Result<Finished> {
        self.leave_out();
        let wait_until = Instant::now() + if self.options.smoke { Duration::ZERO } else { host::CCX_WAIT_MAX };
        let options = &self.options;
        for repetition in 1..=options.repetitions {
            for case in self.cases.iter_mut().filter(|case| repetition == 1 || !case.once) {
                eprintln!("  {repetition}/{}  {}", options.repetitions, case.name);
                let sample = take(case, options, wait_until)?;
                case.samples.extend(sample);
            }
        }
        let rows = self.rows.iter().map(|spec| self.judge(spec)).collect::<Result<_>>()?;
        let latencies = self.cases.iter().filter_map(Case::intervals).collect();
        let curves = self.curves.iter().map(|curve| self.drawn(curve)).collect();
        Ok(Finished { rows, curves, latencies, notes: self.notes.lines() })
    }

    /// Drops what was not asked for.
    fn leave_out(&mut self) {
        let Some(only) = &self.options.only else { return };
        let asks_for = |row: &RowSpec, name: &str| row.value.case == name || row.floor.as_ref().is_some_and(|of| of.case == name);
        let wanted = |row: &RowSpec| row.name.contains(only.as_str());
        let asked: Vec<&Case<'_>> =
            self.cases.iter().filter(|case| self.rows.iter().any(|row| wanted(row) && asks_for(row, &case.name))).collect();
        let points: Vec<String> = asked.iter().flat_map(|case| case.needs.clone()).collect();
        self.rows.retain(|row| wanted(row) || points.contains(&row.value.case));
        let needed = |name: &str| self.rows.iter().any(|row| asks_for(row, name)) || points.iter().any(|point| point == name);
        self.cases.retain(|case| needed(&case.name));
        for curve in &mut self.curves {
            curve.points.retain(|(_, case)| needed(case));
        }
        self.curves.retain(|curve| !curve.points.is_empty());
    }

    /// A table of rate and tails; what the hiccup meter saw meanwhile at the end of each line. Each figure is the median of the samples'.
    fn drawn(&self, curve: &Curve) -> String {
        let head = ["per second", "p50 us", "p99 us", "p99.9 us", "", "hiccups p50 us", "p99 us", "p99.9 us"];
        let line = |cells: [String; 8]| cells.map(|cell| format!("{cell:>12}")).concat().trim_end().to_owned() + "\n";
        let us = |ns: Vec<f64>| format!("{:.2}", row::median(&ns) / 1e3);
        let mut text = format!("\n{}, open loop, from the time each was meant to begin\n{}", curve.name, line(head.map(str::to_owned)));
        for (rate, name) in &curve.points {
            let Some(case) = self.cases.iter().find(|case| case.name == *name) else { continue };
            let of = |which: fn(&Measured) -> Option<&Latency>, ns: fn(&Latency) -> u64| {
                us(case.samples.iter().filter_map(|sample| which(&sample.measured).map(ns)).map(|ns| ns as f64).collect())
            };
            let ours: fn(&Measured) -> Option<&Latency> = |measured| measured.latency.as_ref();
            let machine: fn(&Measured) -> Option<&Latency> = |measured| measured.hiccups.as_ref();
            let percentiles: [fn(&Latency) -> u64; 3] = [Latency::p50_ns, Latency::p99_ns, Latency::p99_9_ns];
            let [p50, p99, p999] = percentiles.map(|ns| of(ours, ns));
            let [h50, h99, h999] = percentiles.map(|ns| of(machine, ns));
            text += &line([rate.to_string(), p50, p99, p999, String::new(), h50, h99, h999]);
        }
        text
    }

    fn judge(&self, spec: &RowSpec) -> Result<(Row, Option<NoVerdict>)> {
        let ours = self.samples(&spec.name, &spec.value)?;
        let floors = spec.floor.as_ref().map(|floor| self.samples(&spec.name, floor)).transpose()?;
        let across = self.case_named(&spec.name, &spec.value.case)?.class != Class::Any;
        let (class, ours, floors) = comparable(ours, floors, across);
        let rules = Judgement {
            better: spec.better,
            target: spec.target,
            floor_on_record: (spec.on_record)(class).map(|value| value * spec.floor.as_ref().map_or(1.0, |floor| floor.scale)),
            class,
            smoke: self.options.smoke,
        };
        Ok(Row::judged(&spec.name, &spec.unit, ours, floors.as_deref(), &rules))
    }

    fn case_named(&self, row: &str, name: &str) -> Result<&Case<'a>> {
        let known = || self.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>().join(", ");
        self.cases
            .iter()
            .find(|case| case.name == name)
            .ok_or_else(|| format!("row {row:?} names case {name:?}; the cases are: {}", known()).into())
    }

    fn samples(&self, row: &str, of: &FigureOf) -> Result<Vec<(HostClass, f64)>> {
        let case = self.case_named(row, &of.case)?;
        let figure = |sample: &Sample| {
            let figures = &sample.measured.figures;
            let known = || figures.keys().copied().collect::<Vec<_>>().join(", ");
            let value = figures
                .get(of.figure)
                .ok_or_else(|| format!("row {row:?} names figure {:?} of case {:?}; it gives: {}", of.figure, of.case, known()))?;
            Ok((sample.class, value * of.scale))
        };
        case.samples.iter().map(figure).collect()
    }
}

/// One sample of one case: in class CCX and undisturbed if that can be had before `wait_until`, else as it comes.
fn take(case: &mut Case<'_>, options: &Options, wait_until: Instant) -> Result<Option<Sample>> {
    let mut run = || -> Result<Option<Sample>> {
        let (start, clock) = (SystemTime::now(), Instant::now());
        let measured = (case.run)(options)?;
        Ok(measured.map(|(class, measured)| Sample { class, start, took: clock.elapsed(), measured }))
    };
    if case.class != Class::Probed {
        return run();
    }
    let mut disturbed = 0;
    loop {
        let before = host::wait_for_ccx(options.cores, wait_until)?;
        let cpu = CpuReading::now();
        let Some(sample) = run()? else { return Ok(None) };
        let others = cpu.and_then(|start| CpuReading::now()?.others_since(&start));
        let after = host::class_now(options.cores)?;
        let class = if before == after { before } else { HostClass::Mixed };
        let may_wait = Instant::now() < wait_until;
        if class != HostClass::Ccx && may_wait {
            eprintln!("        again: the class was {before} before and is {after}");
            continue;
        }
        if let Some(others) = others.filter(|&share| share > NOISE_MAX) {
            disturbed += 1;
            if may_wait && disturbed <= DISTURBED_MAX {
                eprintln!("        again: others took {:.0} % of the machine", others * 100.0);
                continue;
            }
            if !options.smoke {
                eprintln!("        kept, though others took {:.0} % of the machine", others * 100.0);
            }
        }
        return Ok(Some(Sample { class, ..sample }));
    }
}

impl Case<'_> {
    /// Its latencies by sample, tagged with their class, and the class that its table is made of: CCX when it has any. `None` for a case of
    /// another kind.
    fn intervals(&self) -> Option<(String, String, Vec<Interval>)> {
        let near = self.samples.iter().any(|sample| sample.class == HostClass::Ccx);
        let of = if near { HostClass::Ccx } else { self.samples.first()?.class };
        let interval = |sample: &Sample, tag: String, latency: &Option<Latency>| {
            latency.as_ref().map(|latency| Interval { start: sample.start, took: sample.took, tag, latency: latency.clone() })
        };
        let mut intervals: Vec<Interval> = Vec::new();
        for sample in &self.samples {
            let class = sample.class.to_string();
            intervals.extend(interval(sample, class.clone(), &sample.measured.latency));
            intervals.extend(interval(sample, format!("{class}-hiccups"), &sample.measured.hiccups));
        }
        (!intervals.is_empty()).then(|| (self.name.clone(), of.to_string(), intervals))
    }
}

/// The samples of ours and of the floor that may stand in one ratio: those of class CCX when there are enough of both, else all of them under
/// the class they share, else all of them as mixed.
fn comparable(
    ours: Vec<(HostClass, f64)>,
    floors: Option<Vec<(HostClass, f64)>>,
    across_cores: bool,
) -> (HostClass, Vec<f64>, Option<Vec<f64>>) {
    let values = |samples: &[(HostClass, f64)]| samples.iter().map(|&(_, value)| value).collect::<Vec<_>>();
    let in_ccx = |samples: &[(HostClass, f64)]| {
        samples.iter().filter(|(class, _)| *class == HostClass::Ccx).map(|&(_, value)| value).collect::<Vec<_>>()
    };
    let (near, near_floors) = (in_ccx(&ours), floors.as_deref().map(in_ccx));
    let enough = |samples: &Vec<f64>| samples.len() >= SAMPLES_MIN;
    if !across_cores {
        return (HostClass::Any, values(&ours), floors.as_deref().map(values));
    }
    if enough(&near) && near_floors.as_ref().is_none_or(enough) {
        return (HostClass::Ccx, near, near_floors);
    }
    let classes = || ours.iter().chain(floors.iter().flatten()).map(|&(class, _)| class);
    let first = classes().next().unwrap_or(HostClass::Mixed);
    let class = if classes().all(|class| class == first) { first } else { HostClass::Mixed };
    (class, values(&ours), floors.as_deref().map(values))
}

/// A suite by name. `declare` puts its cases and rows into the run.
#[derive(Clone, Copy)]
pub struct Suite {
    /// What `cargo xtask bench` calls it, and the name of its JSON file.
    pub name: &'static str,
    /// One line for the list.
    pub about: &'static str,
    /// Declares cases and rows.
    pub declare: fn(&mut SuiteRun<'_>) -> Result<()>,
}

/// The main function of the suites' binary: `[--list] | SUITE [--smoke] [--only TEXT]`.
///
/// Exit codes: 0 done (a missed target is a figure, not a failure), 1 a case failed, 2 wrong usage.
#[must_use]
pub fn main(suites: &[Suite]) -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let only = match arguments.iter().position(|argument| argument == "--only") {
        None => None,
        Some(at) if at + 1 < arguments.len() => arguments.drain(at..at + 2).next_back(),
        Some(_) => {
            eprintln!("error: --only needs a part of a row's name");
            return ExitCode::from(2);
        }
    };
    let (flags, names): (Vec<&str>, Vec<&str>) = arguments.iter().map(String::as_str).partition(|argument| argument.starts_with('-'));
    let list = || suites.iter().map(|suite| format!("{:<12} {}\n", suite.name, suite.about)).collect::<String>();
    if let Some(unknown) = flags.iter().find(|flag| !["--list", "--smoke"].contains(flag)) {
        eprintln!("error: unknown option {unknown}; known are --list, --smoke, --only TEXT");
        return ExitCode::from(2);
    }
    if flags.contains(&"--list") {
        print!("{}", list());
        return ExitCode::SUCCESS;
    }
    let Some(suite) = names.first().and_then(|name| suites.iter().find(|suite| suite.name == *name)) else {
        eprintln!("error: name a suite; there are:\n{}", list());
        return ExitCode::from(2);
    };
    match run(suite, flags.contains(&"--smoke"), only, Path::new(RESULTS)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: bench {}: {error}", suite.name);
            ExitCode::FAILURE
        }
    }
}

fn run(suite: &Suite, smoke: bool, only: Option<String>, results: &Path) -> Result<Vec<Row>> {
    let results: PathBuf = std::env::current_dir()?.join(results);
    let cores = pin::two_cores()?;
    let is_part = only.is_some();
    let options = Options { smoke, repetitions: if smoke { 1 } else { SAMPLES_MIN }, cores, only };
    let priority = if smoke { "smoke".to_owned() } else { noise::quieten() };
    eprintln!("bench {}: cores {} and {}, {priority}", suite.name, cores.0, cores.1);
    let mut run = SuiteRun::new(options);
    (suite.declare)(&mut run)?;
    let Finished { rows, curves, latencies, notes } = run.finish()?;
    if rows.is_empty() && is_part {
        return Err("no row has that in its name; leave --only out to see all".into());
    }
    print!("{}{curves}", row::table(&rows));
    notes.iter().for_each(|note| println!("{note}"));
    let page = row::markdown(&rows) + &notes.iter().map(|note| format!("\n- {note}")).collect::<String>() + "\n";
    let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    for (case, of, intervals) in &latencies {
        println!("wrote {} and .hlog", hdr_files::write(&results, suite.name, case, of, intervals)?.display());
    }
    let path = row::write_json(&results, suite.name, &rows)?;
    std::fs::write(path.with_extension("md"), page)?;
    println!("wrote {} and .md", path.display());
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn smoke(repetitions: usize) -> Options {
        Options { smoke: true, repetitions, cores: pin::two_cores().unwrap_or((0, 0)), only: None }
    }

    #[test]
    fn cases_are_interleaved_and_rows_divide_by_the_floor_of_the_same_run() {
        let order = RefCell::new(String::new());
        let mut run = SuiteRun::new(smoke(3));
        run.case_of_any_class("ours", |_| {
            order.borrow_mut().push('A');
            Ok(Figures::from([("ns", 176.0)]))
        });
        run.case_of_any_class("floor", |_| {
            order.borrow_mut().push('B');
            Ok(Figures::from([("ns", 160.0)]))
        });
        run.row(RowSpec::new("hop", "ns", Better::Lower, "ours", "ns").over("floor", "ns", 0.5).target(2.2));
        let rows = run.finish().expect("both cases answer").rows;
        assert_eq!(*order.borrow(), "ABABAB");
        assert_eq!((rows[0].0.floor, rows[0].0.ratio, rows[0].0.samples.len()), (Some(80.0), Some(2.2), 3));
    }

    #[test]
    fn only_what_was_asked_for_is_run_and_shown() {
        let mut run = SuiteRun::new(Options { only: Some("hop".into()), ..smoke(1) });
        run.case_of_any_class("ours", |_| Ok(Figures::from([("ns", 3.0)])));
        run.case_of_any_class("floor", |_| Ok(Figures::from([("ns", 2.0)])));
        run.case_of_any_class("other", |_| Err("not to be run".into()));
        run.row(RowSpec::new("a hop, p50", "ns", Better::Lower, "ours", "ns").over("floor", "ns", 1.0));
        run.row(RowSpec::new("a stream", "ns", Better::Lower, "other", "ns"));
        let rows = run.finish().expect("the two that are needed answer").rows;
        assert_eq!((rows.len(), rows[0].0.ratio), (1, Some(1.5)));
    }

    #[test]
    fn a_sweep_is_taken_once_and_comes_with_the_case_that_asks_for_it() {
        let taken = RefCell::new(Vec::new());
        let mut run = SuiteRun::new(Options { only: Some("best".into()), ..smoke(3) });
        let mut own = |name: &'static str| {
            let taken = &taken;
            run.case_of_own_class(name, move |_| {
                taken.borrow_mut().push(name);
                let measured = Measured { figures: Figures::from([("ns", 1.0)]), ..Measured::default() };
                Ok((taken.borrow().len() < 4).then_some((HostClass::Smt, measured)))
            });
            run.row(RowSpec::new(name, "ns", Better::Lower, name, "ns"));
            run.once();
        };
        own("point");
        own("other");
        run.case_of_own_class("found", |_| {
            taken.borrow_mut().push("found");
            Ok((taken.borrow().len() < 4)
                .then(|| (HostClass::Smt, Measured { figures: Figures::from([("ns", 1.0)]), ..Measured::default() })))
        });
        run.needs(&["point".to_owned()]);
        run.row(RowSpec::new("the best", "ns", Better::Lower, "found", "ns"));
        let (first, again) = (run.notes(), run.notes());
        first.add("seen");
        again.add("seen");
        let finished = run.finish().expect("all of them answer");
        let rows: Vec<(&str, usize, &str)> =
            finished.rows.iter().map(|(row, _)| (row.name.as_str(), row.samples.len(), row.class.as_str())).collect();
        assert_eq!(*taken.borrow(), ["point", "found", "found", "found"]);
        assert_eq!(rows, [("point", 1, "SMT"), ("the best", 2, "SMT")], "no sample the third time");
        assert_eq!(finished.notes, ["seen"]);
    }

    #[test]
    fn an_open_loop_is_a_case_per_rate_with_the_machine_s_hiccups_beside_it() {
        let mut run = SuiteRun::new(smoke(2));
        run.open_loop("feed", &[1000, 2000], |_, rate| {
            let mut latency = Latency::new();
            latency.record_ns(1_000_000_000 / rate);
            std::thread::sleep(Duration::from_millis(3));
            Ok(latency)
        });
        let Finished { rows, curves, latencies, .. } = run.finish().expect("both rates answer");
        let names: Vec<&str> = rows.iter().map(|(row, _)| row.name.as_str()).collect();
        assert_eq!(names, ["feed, 1000/s, p50", "feed, 2000/s, p50"]);
        assert!(rows.iter().all(|(row, _)| row.target.is_none() && row.samples.len() == 2));
        let lines: Vec<&str> = curves.lines().collect();
        assert!(lines[3].trim_start().starts_with("1000") && lines[3].contains("1000."), "{curves}");
        assert!(lines[4].trim_start().starts_with("2000") && lines[4].split_whitespace().count() == 7, "{curves}");
        let (name, of, intervals) = &latencies[0];
        assert_eq!((name.as_str(), intervals.len()), ("feed, 1000/s", 4));
        assert!(intervals.iter().any(|i| i.tag == format!("{of}-hiccups") && i.latency.count() > 0));
    }

    #[test]
    fn a_row_that_names_nothing_is_an_error_that_lists_what_there_is() {
        let mut run = SuiteRun::new(smoke(1));
        run.case_of_any_class("ours", |_| Ok(Figures::from([("ns", 1.0)])));
        run.row(RowSpec::new("hop", "ns", Better::Lower, "ours", "us"));
        let text = run.finish().err().expect("no such figure").to_string();
        assert!(text.contains("it gives: ns"), "{text}");
    }

    #[test]
    fn samples_of_two_classes_are_never_one_verdict() {
        let of = |class: HostClass, n: usize| vec![(class, 1.0); n];
        let (class, ours, _) = comparable(of(HostClass::Ccx, 5), Some(of(HostClass::CrossCcx, 5)), true);
        assert_eq!((class, ours.len()), (HostClass::Mixed, 5));
        let mut six = of(HostClass::Ccx, 5);
        six.push((HostClass::CrossCcx, 9.0));
        let (class, ours, _) = comparable(six, None, true);
        assert_eq!((class, ours), (HostClass::Ccx, vec![1.0; 5]));
        assert_eq!(comparable(of(HostClass::CrossCcx, 5), None, true).0, HostClass::CrossCcx);
    }
}
