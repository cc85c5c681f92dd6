//! Every table through its accessor, on a cluster as tests write it down; and what a scheduler may have beyond scheduling.

use saetta_sdk::call::Instance;
use saetta_sdk::extension::{Configured, Fitness};
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use saetta_sdk::{
    CompId, CoreId, CreateCx, EdgeId, ExecId, Explanation, Extension, Health, KindId, Memory, NodeHealth, NodeId, Outcome, Plan,
    PluginError, Rate, Round, Scheduler, SlotId, Snapshot, SnapshotError, TopoId, UserId, Verdict, abi,
};

const MB: i64 = 1 << 20;

fn cluster() -> Cluster {
    let gpu = Node::new("b").rack("r2").ports([2, 1]).cpu(400).memory_mb(1024).resource("gpu", 1.5).cores(4, 2).siblings(0, 1).isolated(3);
    let words = Topology::new("words")
        .workers(2)
        .owner("ann")
        .worker_heap_mb(768)
        .shared_mb("dictionary", 10, 20, 40)
        .favors(&["host-b", "host-a"])
        .avoids(&["host-a"])
        .with(Component::spout("lines", 1).cpu(50).memory_mb(128, 0).at(0, "a", 6700))
        .with(
            Component::bolt("split", 3).cpu(10).memory_mb(64, 36).reads("lines").measured(1000, 64_000).shares("dictionary").at(0, "b", 1),
        )
        .with(Component::bolt("count", 1).resource("gpu", 0.5).reads_by("split", "words", abi::GROUP_FIELDS).incompatible_with("lines"));
    Cluster::new().node(gpu).node(Node::new("a").rack("r1").slots(1).cpu(100).memory_mb(512)).topology(words).user("ann", 200, 2048)
}

#[test]
fn every_table_is_read_back_as_it_was_written_at_any_row_length() {
    for noise in [0, 8, 24] {
        let bytes = cluster().with_stats().min_worker_cpu(60).row_noise(noise).pack();
        let s = Snapshot::new(&bytes).unwrap();
        assert_eq!(s.kinds().iter().map(|k| s.text(k.name)).collect::<Vec<_>>(), ["cpu", "memory", "gpu"]);
        let gpu = s.kind("gpu").unwrap();
        let (a, b) = (NodeId(0), NodeId(1));
        assert_eq!((s.text(s.nodes().at(b).id), s.node_total(b).get(gpu), s.node_total(a).get(gpu)), ("b", 1500, 0));
        assert_eq!(s.node_total(b).get(KindId(9)), 0, "noise after a row is no amount");

        let (topology, row) = s.topologies().with_ids().next().unwrap();
        assert_eq!((s.text(s.users().at(UserId(row.user)).name), row.max_worker_heap), ("ann", 768 * MB));
        assert_eq!((s.guarantee(UserId(0)).cpu(), s.guarantee(UserId(0)).memory()), (200_000, 2048 * MB));
        let comps: Vec<(CompId, &str)> = s.components_of(&row).map(|(id, c)| (id, s.text(c.name))).collect();
        assert_eq!(comps, [(CompId(0), "count"), (CompId(1), "lines"), (CompId(2), "split")]);
        let (count, lines, split) = (CompId(0), CompId(1), CompId(2));
        assert_eq!((s.request(split).cpu(), s.request(split).memory(), s.request(count).get(gpu)), (10_000, 100 * MB, 500));
        assert_eq!((s.components().at(split).on_heap, s.components().at(split).off_heap), (64 * MB, 36 * MB));
        assert_eq!(s.incompatible_with(lines).chain(s.incompatible_with(count)).collect::<Vec<_>>(), [count, lines], "both directions");
        assert_eq!(s.blocks_of(split).map(|(_, b)| b.off_heap_node).collect::<Vec<_>>(), [40 * MB]);
        assert_eq!(s.blocks_of(lines).len(), 0);
        assert_eq!(s.favored(topology).map(|h| s.text(s.hosts().at(h).name)).collect::<Vec<_>>(), ["host-b", "host-a"]);
        assert_eq!(s.unfavored(topology).map(|h| s.text(s.hosts().at(h).name)).collect::<Vec<_>>(), ["host-a"]);
        let (edge, e) = s.edges_from(lines).next().unwrap();
        assert_eq!((e.to, s.rate(edge)), (2, Some(Rate { tuples_per_s: 1000, bytes_per_s: 64_000 })));
        assert_eq!(s.rate(EdgeId(1)), None, "not measured");

        assert_eq!(s.cores_on(b).map(|(_, c)| (c.os_id, c.l3, c.flags)).collect::<Vec<_>>(), [(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 1)]);
        assert_eq!((s.cores().at(CoreId(0)).sibling, s.cores().at(CoreId(2)).sibling), (1, abi::NONE));
        assert_eq!(s.cores_of(SlotId(2)).collect::<Vec<_>>(), [CoreId(2), CoreId(3)]);
        assert_eq!(s.cores_of(SlotId(0)).len(), 0, "node a states no cores");

        // a: the spout's 50 % counts as 60; b: one split with its shared memory.
        assert_eq!((s.node_avail(a).cpu(), s.node_avail(a).memory()), (40_000, (512 - 128) * MB));
        assert_eq!((s.node_avail(b).cpu(), s.node_avail(b).memory()), (340_000, (1024 - 100 - 10 - 20 - 40) * MB));
        assert_eq!(s.node_avail(b).get(gpu), 1500, "the one that wants it is not placed");
    }
}

#[test]
fn a_table_whose_rows_point_nowhere_or_are_out_of_order_is_refused() {
    let refused = |change: fn(&mut saetta_sdk::snapshot::Writer)| {
        let mut w = saetta_sdk::snapshot::Writer::default();
        change(&mut w);
        Snapshot::new(&w.finish(1)).err()
    };
    let bad = |what| Some(SnapshotError::Malformed(what));
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|w| _ = w.row(&abi::SlotCoreRow { slot: 0, core: 0 })), bad("cores of slots"));
    assert_eq!(refused(|w| _ = w.row(&abi::StatEdgeRow::default())), bad("measured edges"));
    assert_eq!(refused(|w| _ = w.row(&abi::TopologyRow::default())), bad("a topology's rows"), "user 0 does not exist");
    assert_eq!(
        refused(|w| {
            let name = w.text("x");
            w.row(&abi::Rack { id: name, first_host: 0, n_hosts: 1 });
            w.row(&abi::HostRow { name, n_nodes: 2, ..Default::default() });
            w.row(&abi::NodeRow { id: name, ..Default::default() });
            w.row(&abi::NodeRow { id: name, ..Default::default() });
            for node in [1, 0] {
                w.row(&abi::CoreRow { node, sibling: abi::NONE, ..Default::default() });
            }
        }),
        bad("the order of cores")
    );
}

/// Remembers how many rounds it ran; marks a node that has no slot; puts everything on the last core of the last slot.
struct Rich {
    rounds: u8,
}

impl Scheduler for Rich {
    const EXTENSIONS: &'static [Extension] = &[Extension::memory::<Self>(), Extension::node_health::<Self>(), Extension::config::<Self>()];

    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Rich { rounds: 0 })
    }
    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        self.rounds += 1;
        let s = &round.snapshot;
        let last = SlotId(s.slots().len() as u32 - 1);
        for (exec, _) in s.executors().with_ids() {
            plan.place(exec, last);
            if let Some(core) = s.cores_of(last).last() {
                plan.core(exec, core);
            }
        }
        round.explain(&Explanation {
            score: 7,
            parts: &[("near", 5), ("free", 2)],
            ..Explanation::new(ExecId(0), Some(last), abi::WHY_BEST_SCORE)
        });
        round.explain(&Explanation { text: &"é".repeat(300), ..Explanation::new(ExecId(1), None, abi::WHY_NO_CPU) });
        plan.outcome(TopoId(0), Outcome::Scheduled);
        Ok(Verdict::Done)
    }
}

impl Memory for Rich {
    fn save(&self) -> Vec<u8> {
        vec![self.rounds; 5000]
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<(), PluginError> {
        self.rounds = *bytes.first().ok_or_else(|| PluginError::internal("nothing to restore"))?;
        Ok(())
    }
}

impl NodeHealth for Rich {
    fn judge(&mut self, round: &Round<'_>, health: &mut Health<'_>) -> Result<Verdict, PluginError> {
        for (node, row) in round.snapshot.nodes().with_ids().filter(|(_, n)| n.n_slots == 0) {
            assert_eq!((health.of(node), row.flags), (Fitness::Greylisted, abi::NODE_GREYLISTED));
            health.mark(node, Fitness::Blacklisted);
        }
        Ok(Verdict::Done)
    }
}

impl Configured for Rich {
    fn schema() -> String {
        "{\"type\":\"object\"}".into()
    }
    fn effective(&self) -> String {
        "{}".into()
    }
}

mod exported {
    use super::Rich;
    saetta_sdk::export_scheduler!(Rich, id = "rich", claims = ["a/1", "b/1"], needs = [], wants = ["saetta.stats/1"], flags = ["threads"]);
}

#[test]
fn an_executor_is_put_on_a_core_and_the_choice_is_in_the_next_snapshot() {
    let cluster = cluster();
    let done = cluster.run(exported::BUILTIN);
    assert_eq!((done.slot("words", "lines", 0).as_deref(), done.core("words", "split", 2)), (Some("b:2"), Some(3)));
    assert_eq!((done.moved, done.unplaced("words"), done.outcome("words")), (2, 0, abi::OUT_SCHEDULED));
    let bytes = cluster.after(&done).pack();
    assert!(Snapshot::new(&bytes).unwrap().executors().iter().all(|e| (e.slot, e.core) == (2, 3)));
    let done = cluster.ask().without_cores().run(exported::BUILTIN).unwrap();
    assert_eq!((done.core("words", "split", 2), done.unplaced("words")), (None, 0), "a host without cores takes none");
}

#[test]
fn reasons_cross_only_in_a_round_that_wants_them() {
    let cluster = cluster();
    assert_eq!(cluster.run(exported::BUILTIN).reasons, []);
    let reasons = cluster.ask().with_reasons().run(exported::BUILTIN).unwrap().reasons;
    assert_eq!((reasons[0].exec, reasons[0].slot, reasons[0].code, reasons[0].score), (0, 2, abi::WHY_BEST_SCORE, 7));
    assert_eq!(reasons[0].parts, [("near".to_owned(), 5), ("free".to_owned(), 2)]);
    assert_eq!((reasons[1].slot, reasons[1].arg, reasons[1].text.as_str()), (abi::NONE, abi::NONE, "é".repeat(128).as_str()));
}

#[test]
fn a_memory_a_judgement_and_a_configuration_cross_the_table() {
    let cluster = cluster().node(Node::new("c").flags(abi::NODE_GREYLISTED));
    let mut rig = cluster.ask().instance(exported::BUILTIN).unwrap();
    cluster.ask().run_on(&mut rig).unwrap();
    let saved = rig.instance.save().unwrap().unwrap();
    assert_eq!(saved, vec![1; 5000], "more than the room of the first call");
    let mut other = cluster.ask().instance(exported::BUILTIN).unwrap();
    other.instance.restore(&saved).unwrap();
    cluster.ask().run_on(&mut other).unwrap();
    assert_eq!(other.instance.save().unwrap().unwrap()[0], 2);
    assert_eq!(other.instance.restore(&[]).unwrap_err().text, "nothing to restore");
    assert_eq!(rig.instance.config().unwrap().unwrap(), ("{\"type\":\"object\"}".to_owned(), "{}".to_owned()));

    let judged = cluster.ask().judged_by(&mut rig).unwrap().pack();
    let s = Snapshot::new(&judged).unwrap();
    assert_eq!(s.nodes().iter().map(|n| n.flags).collect::<Vec<_>>(), [abi::NODE_BLACKLISTED, 0, 0], "c has no rack, so it sorts first");
}

#[test]
fn a_scheduler_without_extensions_answers_that_it_has_none() {
    struct Plain;
    impl Scheduler for Plain {
        fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
            Ok(Plain)
        }
        fn schedule(&mut self, _: &Round<'_>, _: &mut Plan<'_>) -> Result<Verdict, PluginError> {
            Ok(Verdict::NoChange)
        }
    }
    let builtin = saetta_sdk::entry::builtin::<Plain>("plain");
    let mut plain = Instance::builtin(builtin, "{}", saetta_sdk::call::Services::new(|_, _| {})).unwrap();
    assert!(plain.save().is_none() && plain.config().is_none() && plain.restore(b"x").is_ok());
}
