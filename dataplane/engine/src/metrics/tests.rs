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
    let (mut metrics, mut reader) = loop_metrics(spout_and_bolt(), 4);
    let mut now = 1_000;
    for step in 0..100u64 {
        metrics.turn_begins(now);
        let began = now;
        now += step * 7 % 13;
        match step % 3 {
            0 => metrics.ran(step as usize & 1, began, now, step % 4 == 0),
            1 => metrics.waits(step as usize & 1, step % 4 == 1, now),
            _ => {}
        }
        if step % 5 == 0 {
            reader.ask();
        }
        if step % 4 == 0 {
            now += 2;
            metrics.turn(now);
        }
        now += 1;
        reader.collect();
    }
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, now + 10)]);
    let passed = now + 10 - 1_000;
    let own = snapshot.loops[0];
    assert_eq!((own.times.sum_ns(), own.wall_ns), (passed, passed));
    assert!(own.times.busy_ns > 0 && own.times.idle_ns > 0 && own.times.blocked_ns > 0, "{own:?}");
    assert!(snapshot.executors.iter().all(|e| e.times.sum_ns() == passed), "{snapshot:?}");
    assert!(snapshot.executors.iter().all(|e| e.times.busy_ns > 0 && e.times.idle_ns > 0 && e.times.blocked_ns > 0));
    assert_eq!(snapshot.executors.iter().map(|e| e.id.first).collect::<Vec<_>>(), [1, 2], "ascending");
}

#[test]
fn a_clock_that_goes_back_a_little_counts_nothing_twice() {
    let (mut metrics, reader) = loop_metrics(spout_and_bolt(), 4);
    metrics.turn_begins(100);
    metrics.ran(0, 200, 190, false);
    metrics.ran(0, 300, 310, true);
    assert_eq!(metrics.times(0), Times { busy_ns: 10, idle_ns: 200, blocked_ns: 0 });
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, 305)]);
    assert_eq!(snapshot.executors[1].times, Times { busy_ns: 10, idle_ns: 200, blocked_ns: 0 });
}

#[test]
fn a_loop_is_blocked_while_nothing_ran_and_an_executor_is() {
    let (mut metrics, reader) = loop_metrics(spout_and_bolt(), 4);
    metrics.turn_begins(0);
    metrics.ran(0, 0, 10, true);
    metrics.turn_begins(20);
    metrics.turn_begins(50);
    metrics.waits(0, false, 60);
    metrics.turn_begins(70);
    let snapshot = MetricsSnapshot::of([&reader.finish(metrics, 100)]);
    assert_eq!(snapshot.loops[0].times, Times { busy_ns: 20, idle_ns: 50, blocked_ns: 30 });
    assert_eq!(snapshot.executors[1].times, Times { busy_ns: 10, idle_ns: 40, blocked_ns: 50 });
}

#[test]
fn times_and_counts_are_kept_per_edge() {
    let (metrics, reader) = loop_metrics(spout_and_bolt(), 4);
    let (early, late) = (metrics.edge(0, 0).unwrap(), metrics.edge(0, 3).unwrap());
    assert_eq!(metrics.edge(0, 1), None, "a stream it does not read");
    assert_eq!(metrics.edge(1, 0), None, "a spout reads nothing");
    metrics.of(0).frames(early, 10, 640);
    metrics.of(0).frames(late, 1, 64);
    metrics.of(0).queue_wait(late, 5_000);
    metrics.of(0).execute(300);
    metrics.of(0).complete(1);
    metrics.of(0).end_to_end(9_000);
    metrics.of(0).queue(10);
    metrics.of(0).queue(30);
    metrics.of(1).complete(70_000);
    metrics.of(1).one_in(8);
    let reader = reader.finish(metrics, 0);
    let mut counts = edge_counts([&reader]);
    counts.sort_by(|a, b| a.stream.cmp(&b.stream));
    assert_eq!(counts.iter().map(|c| (c.to.as_str(), c.tuples, c.bytes)).collect::<Vec<_>>(), [("sink", 10, 640), ("sink", 1, 64)]);
    let snapshot = MetricsSnapshot::of([&reader]);
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
    let (mut metrics, mut reader) = loop_metrics(spout_and_bolt(), 4);
    let thread = std::thread::spawn(move || {
        for now in 1..=TURNS {
            metrics.turn_begins(now - 1);
            metrics.ran(0, now - 1, now, false);
            metrics.of(0).frames(0, 2, 128);
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
