//! `fanout`: one spout, one to eight bolts on two cores, each tuple to one of them in turn or to all. Figures without targets: deliveries a second.
//!
//! Before: a spout that always has something. After: every bolt saw what was due to it, in the spout's order; the time is that of the whole run.

use std::sync::{Arc, Mutex};

use saetta::RunOptions;
use saetta::prelude::*;
use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, RowSpec};

use crate::parts::{ArchivedSmall, Numbers, Small, Source};
use crate::topologies::{check, run_waiting};

/// Bolts.
const WIDTHS: [u32; 4] = [1, 2, 4, 8];

/// Who gets a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// One bolt.
    One,
    /// Each of them.
    All,
}

/// How many numbers a bolt saw, and their sum.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Sums up rising numbers. Fails one that does not rise.
struct Branch {
    next: u64,
    n: u64,
    sum: u64,
    seen: Seen,
}

impl Bolt for Branch {
    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.seen.lock().map_err(|_| "another bolt panicked")?.push((self.n, self.sum));
        Ok(())
    }
}

impl Handle<Small> for Branch {
    #[inline]
    fn on(&mut self, tuple: &ArchivedSmall, _: &mut Cx<'_, Self>) -> Outcome {
        let number = tuple.number();
        if number < self.next {
            return Err(Fail::Fatal(format!("tuple {number} after {}", self.next - 1)));
        }
        self.next = number + 1;
        self.n += 1;
        self.sum = self.sum.wrapping_add(number);
        std::hint::black_box(tuple.text());
        Ok(())
    }
}

/// Million deliveries a second.
fn deliveries((near, far): (usize, usize), to: To, bolts: u32, tuples: u64) -> saetta_harness::Result<f64> {
    let seen = Seen::default();
    let out = seen.clone();
    let mut t = Topology::new();
    let stream = t.spout("numbers", Source::<Small>::of(&Numbers::of(tuples))).stream::<Small>();
    let branch = t.bolt("branch", move || Branch { next: 0, n: 0, sum: 0, seen: out.clone() }).executors(bolts);
    let _ = match to {
        To::One => branch.input(&stream, Shuffle),
        To::All => branch.input(&stream, All),
    };
    let summary = run_waiting(t, "spin", &[near, far], RunOptions::default())?;
    let emitted = Numbers::of(tuples).end;
    let copies = if to == To::All { u64::from(bolts) } else { 1 };
    check(&summary, "numbers", emitted, None)?;
    check(&summary, "branch", emitted * copies, None)?;
    let seen = seen.lock().map_err(|_| "a bolt panicked")?;
    let sum = emitted * (emitted - 1) / 2;
    let whole = (emitted, sum);
    let total = seen.iter().fold((0, 0), |total, one| (total.0 + one.0, total.1 + one.1));
    let right = seen.len() == bolts as usize
        && match to {
            To::One => total == whole,
            To::All => seen.iter().all(|one| *one == whole),
        };
    if !right {
        return Err(format!("{to:?} to {bolts}: of {whole:?} (how many, sum) the bolts saw {seen:?}").into());
    }
    Ok(summary.tuples as f64 / summary.elapsed_sec / 1e6)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let tuples = run.options().size(10_000_000, 50_000);
    for (to, name) in [(To::One, "shuffle"), (To::All, "all")] {
        for bolts in WIDTHS {
            let case = format!("{name} to {bolts}");
            // As many deliveries whatever the width.
            let tuples = if to == To::All { tuples / u64::from(bolts) } else { tuples };
            run.case(&case, move |o| Ok(Figures::from([("millions", deliveries(o.cores, to, bolts, tuples)?)])));
            run.row(RowSpec::new(&case, "M deliveries/s", Better::Higher, &case, "millions"));
        }
    }
    Ok(())
}
