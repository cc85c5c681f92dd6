//! The two sides together.

use super::*;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spout_and_bolt() -> Vec<ExecutorDesc> {
    let edge = |number, stream| EdgeDesc { number, component: name("feed"), stream: name(stream) };
    let desc = |first, component, edges: Vec<EdgeDesc>| ExecutorDesc {
        id: ExecutorId { first, last: first },
        component: name(component),
        is_spout: edges.is_empty(),
        is_sink: !edges.is_empty(),
        edges,
    };
    vec![desc(2, "sink", vec![edge(0, "early"), edge(3, "late")]), desc(1, "feed", vec![])]
}

#[test]
fn busy_idle_and_blocked_are_the_time_passed_whatever_the_snapshots() {
    let (mut metrics, mut reader) = loop_metrics(spout_and_bolt(), 4, 1_000);
    let mut now = 1_000;
    for step in 0..100u64 {
        now += step * 7 % 13;
        let activity = [Activity::Busy, Activity::Idle, Activity::Blocked][step as usize % 3];
        metrics.executor_is(step as usize & 1, activity, now);
        metrics.loop_is(activity, now + 1);
        if step % 5 == 0 {
            reader.ask();
        }
        if step % 3 == 0 {
            metrics.turn(now + 2);
            now += 2;
        }
        reader.collect();
    }
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, now + 10)]);
    let passed = now + 10 - 1_000;
    assert_eq!(snapshot.loops[0].sum_ns(), passed);
    assert!(snapshot.executors.iter().all(|e| e.times.sum_ns() == passed), "{snapshot:?}");
    assert!(snapshot.executors.iter().all(|e| e.times.busy_ns > 0 && e.times.idle_ns > 0 && e.times.blocked_ns > 0));
    assert_eq!(snapshot.executors.iter().map(|e| e.id.first).collect::<Vec<_>>(), [1, 2], "ascending");
}

#[test]
fn a_clock_that_goes_back_a_little_counts_nothing_twice() {
    let (mut metrics, reader) = loop_metrics(spout_and_bolt(), 4, 100);
    metrics.executor_is(0, Activity::Busy, 200);
    metrics.executor_is(0, Activity::Idle, 190);
    metrics.executor_is(0, Activity::Busy, 300);
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, 300)]);
    assert_eq!(snapshot.executors[1].times, Times { busy_ns: 0, idle_ns: 200, blocked_ns: 0 });
}

#[test]
fn times_and_counts_are_kept_per_edge() {
    let (metrics, reader) = loop_metrics(spout_and_bolt(), 4, 0);
    let (early, late) = (metrics.edge(0, 0).unwrap(), metrics.edge(0, 3).unwrap());
    assert_eq!(metrics.edge(0, 1), None, "a stream it does not read");
    assert_eq!(metrics.edge(1, 0), None, "a spout reads nothing");
    metrics.of(0).frames(early, 10);
    metrics.of(0).frames(late, 1);
    metrics.of(0).queue_wait(late, 5_000);
    metrics.of(0).execute(300);
    metrics.of(0).complete(1);
    metrics.of(0).end_to_end(9_000);
    metrics.of(0).queue(10);
    metrics.of(0).queue(30);
    metrics.of(1).complete(70_000);
    metrics.of(1).one_in(8);
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, 0)]);
    let [feed, sink] = &snapshot.executors[..] else { panic!("{snapshot:?}") };
    assert_eq!(
        sink.edges.iter().map(|e| (e.stream.as_str(), e.frames, e.queue_wait_ns.len())).collect::<Vec<_>>(),
        [("early", 10, 0), ("late", 1, 1)]
    );
    assert_eq!((sink.queue_bytes_mean, sink.queue_bytes_max), (20, 30));
    assert!(sink.complete_ns.is_none() && feed.end_to_end_ns.is_none());
    assert_eq!(feed.one_in, 8);
    let [feed, sink] = &snapshot.components()[..] else { panic!("{snapshot:?}") };
    assert_eq!((sink.queue_wait.n, sink.execute.n, sink.complete.n, feed.complete.n), (1, 1, 0, 1));
    assert!((5_000..5_100).contains(&sink.queue_wait.p50_ns) && (70_000..70_700).contains(&feed.complete.p99_ns));
    assert_eq!(snapshot.end_to_end_ns().len(), 1);
}

#[test]
fn a_snapshot_taken_while_the_loop_runs_loses_nothing() {
    const TURNS: u64 = 20_000;
    let (mut metrics, mut reader) = loop_metrics(spout_and_bolt(), 4, 0);
    let thread = std::thread::spawn(move || {
        for now in 1..=TURNS {
            metrics.executor_is(0, Activity::Busy, now);
            metrics.of(0).frames(0, 2);
            metrics.of(0).queue_wait(1, now);
            metrics.turn(now);
        }
        metrics
    });
    let mut answers = 0;
    while !thread.is_finished() {
        reader.ask();
        answers += u64::from(reader.collect());
    }
    let snapshot = MetricsSnapshot::of([&reader.finish(thread.join().unwrap(), TURNS)]);
    let sink = &snapshot.executors[1];
    assert_eq!((sink.edges[0].frames, sink.edges[1].queue_wait_ns.len()), (2 * TURNS, TURNS), "{answers} snapshots");
    assert_eq!(sink.times.sum_ns(), TURNS);
}

#[test]
fn its_memory_is_what_the_descriptions_say() {
    // sink: execute, two edges, end to end; feed: execute, complete.
    assert_eq!(metrics_bytes(&spout_and_bolt()), (6 * BUCKETS * 16) as u64);
}
