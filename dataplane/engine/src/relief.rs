//! What a loop does about executors that wait for each other's room in a ring.
//!
//! Before: housekeeping looks at executors whose outbox does not empty, or the control road brought a probe. After: `cycle.rs` has decided,
//! and a probe is on its way, or what waits on one edge of the ring has failed and is reported. Costs a look per blocked executor in ten
//! milliseconds, and nothing per tuple.

use crate::ack::{Reason, Road};
use crate::component::Fail;
use crate::core_loop::CoreLoop;
use crate::cycle::{Probe, RELIEVED_NS, Verdict, Waits};
use crate::io::Via;
use std::sync::atomic::Ordering;

impl CoreLoop {
    /// Executors that were blocked for long send probes.
    pub(crate) fn look_for_rings(&mut self, now_ns: u64) {
        for place in 0..self.executors.len() {
            let waits = self.waits(place);
            let executor = &mut self.executors[place];
            if let Some(probe) = executor.watch.look(executor.id.first, waits, now_ns) {
                self.follow(probe, now_ns);
            }
        }
    }

    /// Handles the probes that came.
    #[cold]
    pub(crate) fn pass_probes(&mut self, now_ns: u64) {
        for probe in std::mem::take(&mut self.io.acks.probes) {
            self.follow(probe, now_ns);
        }
    }

    /// Takes a probe from executor to executor as long as they are of this loop. It ends: no executor is twice in one path, and one that is
    /// home goes once more at most.
    fn follow(&mut self, probe: Probe, now_ns: u64) {
        let mut probe = probe;
        loop {
            let Some(dest) = self.io.dests.get(probe.to as usize).copied() else { return };
            let place = match self.io.via(dest.at) {
                Via::Local(place) => place,
                Via::Lane(lane) => return self.io.acks.send_probe(Road::Lane(lane as u16), &probe),
                Via::Remote(remote) => return self.io.acks.send_probe(Road::Remote(remote as u16), &probe),
                Via::Nowhere => return,
            };
            let waits = self.waits(place);
            let executor = &mut self.executors[place];
            match executor.watch.hear(executor.id.first, waits, probe, now_ns) {
                Verdict::Pass(next) => probe = next,
                Verdict::Relieve(ring) => return self.relieve(place, &ring),
                Verdict::Drop => return,
            }
        }
    }

    fn waits(&mut self, place: usize) -> Option<Waits> {
        let (credit, progress) = self.executors[place].out.waits_for_credit(&mut self.io)?;
        Some(Waits { on: self.layout_executors[credit as usize].first, progress })
    }

    /// The ring begins with the executor at `place`, which gives up what waits for the next one.
    #[cold]
    fn relieve(&mut self, place: usize, ring: &[u32]) {
        let credit = self.io.dests[ring[1 % ring.len()] as usize].credit;
        let names = ring.iter().chain(&ring[..1]).map(|task| self.component(*task)).collect::<Vec<_>>().join(" -> ");
        let now_ns = self.io.turn_ns;
        self.rings_until_ns = now_ns + RELIEVED_NS;
        let executor = &mut self.executors[place];
        let n = executor.out.give_up(&mut self.io, credit, |io, marks| {
            marks.each().for_each(|(root, _)| io.acks.fail(root, Reason::Cycle, &names, now_ns));
        });
        self.stats.given_up.fetch_add(n, Ordering::Relaxed);
        let text = format!(
            "the cycle {names} is full: {n} tuples that waited in it failed; emit fewer tuples back into it, or raise executor.inbox.bytes"
        );
        executor.report(&self.io, Fail::Drop(text));
    }

    fn component(&self, task: u32) -> &str {
        let dest = self.io.dests.get(task as usize);
        dest.and_then(|dest| self.components.get(dest.credit as usize)).map_or("?", |name| name.as_str())
    }
}
