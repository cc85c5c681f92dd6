//! The shipped plugin as a real `.so` in a real helper process.

mod common;

use common::*;
use saetta_sched_host::{How, Scheduler};

#[test]
fn the_shipped_even_deals_the_worked_example_and_then_moves_nothing() {
    let mut world = worked_example();
    let scheduler = Scheduler::new(options("even", &shipped_dir()));
    let first = world.round(1, |input| scheduler.round(input));
    let (id, plan) = &first.topologies[0];
    assert_eq!((id.as_str(), &plan.how, plan.unplaced), ("example", &How::Plugin("even".into()), 0));
    let expected = [("s1:6700", "[1][3][5-6][9][11][13]"), ("s2:6700", "[2][4][7-8][10][12][14]")];
    assert_eq!(by_slot(plan), expected.map(|(slot, text)| (slot.to_owned(), text.to_owned())));

    world.apply(0, plan);
    assert_eq!(world.round(2, |input| scheduler.round(input)), first);
}
