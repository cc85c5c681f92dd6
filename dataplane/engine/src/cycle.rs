//! Rings of executors that wait for each other's room: how they are proven, and who gives way.
//!
//! Before: an executor's oldest waiting frame has had no credit for a while. After: its loop sends the probe this says on the control road,
//! or fails what waits on one edge of the ring. Pure: time, and what an executor waits for, come from its loop (`relief.rs`).
//!
//! An outbox is in order, so a blocked executor waits for exactly one other: the one its oldest frame is for. A probe follows these edges and
//! is passed on by blocked executors only, so one that comes home has found a ring. Its members may have been blocked one after the other, so
//! it is sent a second time: when both times each member was blocked and had sent nothing between, all were blocked at once, and for good.
//! Only the highest member's probe comes home: others are dropped on the way, the highest one's own comes along.

/// An executor blocked so long sends a probe, and again after as long.
pub(crate) const BLOCKED_NS: u64 = 500_000_000;
/// As `BLOCKED_NS`, for an executor of a ring that was relieved less than `RELIEVED_NS` ago: such a ring is likely to fill again at once, and
/// waiting is not what proves it.
pub(crate) const BLOCKED_AGAIN_NS: u64 = 1_000_000;
/// See [`BLOCKED_AGAIN_NS`].
pub(crate) const RELIEVED_NS: u64 = 10_000_000_000;
/// Longest ring that is looked for.
pub(crate) const RING_MAX: usize = 256;

/// Where a probe has been: an executor, by its first task, and which of its blocks it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) executor: u32,
    pub(crate) block: u32,
}

/// Follows who waits for whom. Its first hop sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The executor it goes to.
    pub(crate) to: u32,
    /// Never empty; at most `RING_MAX`.
    pub(crate) path: Vec<Hop>,
}

/// What a blocked executor waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The executor whose credit it lacks.
    pub(crate) on: u32,
    /// Stands still while it is blocked: what it has handled and sent so far.
    pub(crate) progress: [u64; 2],
}

/// What is to be done about a probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No ring, or not this executor's to break.
    Drop,
    /// Pass it on.
    Pass(Probe),
    /// A ring, from this executor on: what waits for the next one fails.
    Relieve(Vec<u32>),
}

struct Block {
    waits: Waits,
    number: u32,
    next_probe_ns: u64,
    /// The path of the last probe that came home.
    home: Option<Vec<Hop>>,
}

/// One executor's part in it.
#[derive(Default)]
pub(crate) struct Watch {
    block: Option<Block>,
    blocks: u32,
    /// It gave way at some time before.
    impatient_until_ns: u64,
}

impl Watch {
    /// Looks at what the executor `me` waits for. A probe, when it has waited long.
    pub(crate) fn look(&mut self, me: u32, waits: Option<Waits>, now_ns: u64) -> Option<Probe> {
        self.follow(waits, now_ns);
        let patience_ns = self.patience_ns(now_ns);
        let block = self.block.as_mut().filter(|b| now_ns >= b.next_probe_ns)?;
        block.next_probe_ns = now_ns + patience_ns;
        block.home = None;
        Some(Probe { to: block.waits.on, path: vec![Hop { executor: me, block: block.number }] })
    }

    /// A probe has come to the executor `me`.
    pub(crate) fn hear(&mut self, me: u32, waits: Option<Waits>, probe: Probe, now_ns: u64) -> Verdict {
        self.follow(waits, now_ns);
        let Some(block) = &mut self.block else { return Verdict::Drop };
        let Some(first) = probe.path.first().copied() else { return Verdict::Drop };
        let here = Hop { executor: me, block: block.number };
        if first.executor == me {
            let verdict = block.home(here, probe);
            if matches!(verdict, Verdict::Relieve(_)) {
                self.impatient_until_ns = now_ns + RELIEVED_NS;
            }
            return verdict;
        }
        // A ring that the sender is not part of; or one with a higher member, whose own probe finds it.
        if first.executor < me || probe.path.len() >= RING_MAX || probe.path.iter().any(|hop| hop.executor == me) {
            return Verdict::Drop;
        }
        let mut path = probe.path;
        path.push(here);
        Verdict::Pass(Probe { to: block.waits.on, path })
    }

    fn follow(&mut self, waits: Option<Waits>, now_ns: u64) {
        if self.block.as_ref().map(|b| b.waits) == waits {
            return;
        }
        self.blocks = self.blocks.wrapping_add(1);
        let (number, next_probe_ns) = (self.blocks, now_ns + self.patience_ns(now_ns));
        self.block = waits.map(|waits| Block { waits, number, next_probe_ns, home: None });
    }
}

impl Watch {
    fn patience_ns(&self, now_ns: u64) -> u64 {
        if now_ns < self.impatient_until_ns { BLOCKED_AGAIN_NS } else { BLOCKED_NS }
    }
}

impl Block {
    /// Its own probe came home.
    fn home(&mut self, here: Hop, probe: Probe) -> Verdict {
        if probe.path[0] != here {
            return Verdict::Drop;
        }
        match self.home.take() {
            Some(before) if before == probe.path => Verdict::Relieve(before.iter().map(|hop| hop.executor).collect()),
            // Something went on: its next probe begins anew.
            Some(_) => Verdict::Drop,
            None => {
                self.home = Some(probe.path);
                Verdict::Pass(Probe { to: self.waits.on, path: vec![here] })
            }
        }
    }
}

impl Verdict {
    /// A probe to be sent.
    #[cfg(test)]
    fn probe(self) -> Option<Probe> {
        match self {
            Verdict::Pass(probe) => Some(probe),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executors, each with what it waits for.
    struct World {
        watches: Vec<Watch>,
        waits: Vec<Option<Waits>>,
        now_ns: u64,
    }

    impl World {
        fn new(on: &[Option<u32>]) -> Self {
            let waits = on.iter().map(|on| on.map(|on| Waits { on, progress: [0; 2] })).collect();
            World { watches: on.iter().map(|_| Watch::default()).collect(), waits, now_ns: 1 }
        }
        /// All look; the probes they send.
        fn look(&mut self, after_ns: u64) -> Vec<Probe> {
            self.now_ns += after_ns;
            (0..self.watches.len()).filter_map(|me| self.watches[me].look(me as u32, self.waits[me], self.now_ns)).collect()
        }
        fn hear(&mut self, probe: Probe) -> Verdict {
            let me = probe.to as usize;
            self.watches[me].hear(probe.to, self.waits[me], probe, self.now_ns)
        }
        /// Follows probes to their ends. The rings found.
        fn follow(&mut self, probes: Vec<Probe>) -> Vec<Vec<u32>> {
            let mut rings = Vec::new();
            for mut probe in probes {
                for steps in 0.. {
                    assert!(steps < 4 * RING_MAX, "a probe goes on for ever");
                    match self.hear(probe) {
                        Verdict::Pass(next) => probe = next,
                        Verdict::Relieve(ring) => {
                            rings.push(ring);
                            break;
                        }
                        Verdict::Drop => break,
                    }
                }
            }
            rings
        }
        fn rings(&mut self) -> Vec<Vec<u32>> {
            assert_eq!(self.look(1), [], "not blocked for long");
            let probes = self.look(BLOCKED_NS);
            self.follow(probes)
        }
    }

    #[test]
    fn a_ring_is_found_by_its_highest_member_alone_and_by_nobody_that_only_waits_for_it() {
        // 0 -> 3 -> 1 -> 2 -> 3; 5 -> 3 waits from outside; 4 is free.
        let mut world = World::new(&[Some(3), Some(2), Some(3), Some(1), None, Some(3)]);
        assert_eq!(world.rings(), [[3, 1, 2]]);
    }

    #[test]
    fn a_self_loop_is_a_ring_of_one() {
        assert_eq!(World::new(&[None, Some(1)]).rings(), [[1]]);
    }

    #[test]
    fn a_ring_that_was_relieved_is_looked_at_again_soon_and_for_a_while() {
        let mut world = World::new(&[Some(1), Some(0)]);
        assert_eq!(world.rings(), [[1, 0]]);
        for round in 1..5 {
            world.waits[1] = Some(Waits { on: 0, progress: [round; 2] });
            assert_eq!(world.look(0), []);
            let probes = world.look(BLOCKED_AGAIN_NS);
            assert_eq!(world.follow(probes), [[1, 0]]);
        }
        world.look(RELIEVED_NS);
        world.waits[1] = Some(Waits { on: 0, progress: [9; 2] });
        assert_eq!(world.look(0), []);
        assert_eq!(world.look(BLOCKED_AGAIN_NS), []);
    }

    #[test]
    fn a_chain_however_long_it_is_blocked_is_none() {
        let mut world = World::new(&[Some(1), Some(2), Some(3), None]);
        for _ in 0..10 {
            let probes = world.look(BLOCKED_NS);
            assert_eq!(world.follow(probes), Vec::<Vec<u32>>::new());
        }
    }

    #[test]
    fn a_ring_whose_members_were_blocked_one_after_the_other_is_none() {
        let mut world = World::new(&[Some(1), Some(0)]);
        world.look(1);
        let mut probes = world.look(BLOCKED_NS);
        let probe = probes.pop().unwrap();
        assert_eq!((probe.path[0].executor, probe.to), (1, 0));
        let home = world.hear(probe).probe().unwrap();
        // 0 has sent something, and is blocked again, before its second visit.
        let again = world.hear(home).probe().unwrap();
        world.waits[0] = Some(Waits { on: 1, progress: [0, 1] });
        let home = world.hear(again).probe().unwrap();
        assert_eq!(world.hear(home), Verdict::Drop);
        let probes = world.look(BLOCKED_NS);
        assert_eq!(world.follow(probes), [[1, 0]], "it stays as it is");
    }

    #[test]
    fn a_ring_that_comes_loose_is_left_alone() {
        let mut world = World::new(&[Some(1), Some(0)]);
        world.look(1);
        let probe = world.look(BLOCKED_NS).pop().unwrap();
        world.waits[0] = None;
        assert_eq!(world.hear(probe), Verdict::Drop);
    }

    #[test]
    fn every_graph_of_five_is_judged_as_by_hand() {
        // Each waits for one of five, or for nobody.
        for graph in 0..6_u32.pow(5) {
            let on: Vec<Option<u32>> = (0..5).map(|i| Some(graph / 6_u32.pow(i) % 6).filter(|on| *on < 5)).collect();
            let mut expected = Vec::new();
            for start in 0..5_u32 {
                let mut ring = vec![start];
                let mut at = start;
                while let Some(next) = on[at as usize].filter(|next| *next < start && !ring.contains(next)) {
                    ring.push(next);
                    at = next;
                }
                if on[at as usize] == Some(start) {
                    expected.push(ring);
                }
            }
            assert_eq!(World::new(&on).rings(), expected, "{on:?}");
        }
    }
}
