//! What a loop does about executors that change place while it runs: it installs them, takes them off, and sends its own frames the new way.
//!
//! Before: the watchdog has a newer assignment and says `Command::Move`. After: `moves.rs` has decided what is waited for, and executors, routes and
//! credit are as the assignment says. Costs nothing while nobody moves but three looks a turn; while frames are held, the place they are
//! for looks closed.

use crate::core_loop::{CoreLoop, NOT_HERE};
use crate::credit::{CreditIn, CreditOut, SharedLimit, grant};
use crate::engine::Parts;
use crate::executor::Executor;
use crate::io::{Dest, NOWHERE, Via};
use crate::links::Links;
use crate::metrics::ExecutorDesc;
use crate::moves::{Action, Here, Lane, Marker, Moves, OWN, Said, Version, Who, Word};
use crate::plan::LoopAt;
use crate::receive::discard;
use saetta_transport::Road;
use saetta_tuple::frame::{END, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A newer assignment, as one loop is told of it: see [`crate::Running::adopt`].
pub struct Moved {
    pub(crate) version: Version,
    /// By executor, in the layout's order.
    pub(crate) places: Arc<[Option<LoopAt>]>,
    /// Whose trees are where.
    pub(crate) trees: Arc<[TreesAt]>,
    /// Executors that come to this loop.
    pub(crate) arrivals: Vec<Arrival>,
}

/// Where the trees of a task that opens some are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreesAt {
    pub(crate) task: u32,
    pub(crate) is_spout: bool,
    pub(crate) owner: Option<LoopAt>,
    pub(crate) ledger: Option<LoopAt>,
}

/// An executor that comes, before it is made.
pub(crate) struct Arrival {
    pub(crate) ordinal: usize,
    /// On lanes, and on links.
    pub(crate) windows: (u64, u64),
    pub(crate) parts: Parts,
    pub(crate) desc: ExecutorDesc,
}

/// What a loop keeps so that executors can change place.
pub(crate) struct Shift {
    pub(crate) moves: Moves,
    /// Where each executor is, in the layout's order.
    pub(crate) places: Vec<Option<LoopAt>>,
    /// See [`TreesAt`].
    pub(crate) trees: Arc<[TreesAt]>,
    /// Limits between the loops of this worker: by sending loop, by executor.
    pub(crate) limits: Arc<[Vec<SharedLimit>]>,
    /// Of the loop's executors, in their order.
    pub(crate) descs: Vec<ExecutorDesc>,
    pub(crate) n_streams: usize,
    pub(crate) arrivals: BTreeMap<(Who, Version), Arrival>,
    /// Trackers of tasks that are, or were, on this loop; the same for ledgers.
    pub(crate) tracker_of: BTreeMap<u32, u16>,
    pub(crate) ledger_of: BTreeMap<u32, u16>,
    /// Executors that have come to their new place while acks of their trees still go where these were: their ledgers begin anew.
    pub(crate) renewed: BTreeSet<Who>,
    /// From then on loops that the assignment does not name are said goodbye to.
    tidy_ns: Option<u64>,
}

impl Shift {
    pub(crate) fn new(
        version: Version,
        timeout_ns: u64,
        places: Vec<Option<LoopAt>>,
        trees: Arc<[TreesAt]>,
        limits: Arc<[Vec<SharedLimit>]>,
        descs: Vec<ExecutorDesc>,
        n_streams: usize,
    ) -> Self {
        let moves = Moves::new(version, timeout_ns);
        let (arrivals, tracker_of, ledger_of) = Default::default();
        Shift { moves, places, trees, limits, descs, n_streams, arrivals, tracker_of, ledger_of, renewed: BTreeSet::new(), tidy_ns: None }
    }
}

impl Here for CoreLoop {
    fn runs(&self, who: Who) -> bool {
        self.place_of(who).is_some()
    }
    fn is_quiet(&self, who: Who) -> bool {
        self.place_of(who).is_none_or(|place| self.io.inbox_is_empty(place) && self.executors[place].is_quiet(&self.io, false))
    }
    fn is_empty(&self, who: Who) -> bool {
        self.place_of(who).is_none_or(|place| self.io.inbox_is_empty(place) && self.executors[place].is_quiet(&self.io, true))
    }
    fn leads_to(&self, who: Who) -> Option<Lane> {
        self.io.lane_at(self.io.dests[who as usize].at)
    }
    fn lanes(&self) -> BTreeSet<Lane> {
        (0..(1 + self.io.lanes.len() + self.io.remotes.len()) as Lane).filter(|lane| self.is_linked(*lane)).collect()
    }
    fn is_linked(&self, lane: Lane) -> bool {
        self.remote_of_lane(lane).is_none_or(|number| self.io.remotes.get(number).is_some_and(|r| r.is_open() && !r.leaving))
    }
    fn is_named(&self, lane: Lane) -> bool {
        let Some(remote) = self.remote_of_lane(lane).map(|number| &self.io.remotes[number]) else { return true };
        self.shift.places.iter().flatten().any(|at| matches!(at, LoopAt::There(placement, _) if *placement == remote.placement))
    }
    fn handled(&self, lane: Lane, who: Who) -> Option<u64> {
        self.place_of(who).map(|place| self.credit_in[place][lane as usize].handled())
    }
    fn has_no_tree(&self, who: Who) -> bool {
        let place = self.place_of(who).map(|place| &self.executors[place].out.trackers[..]).unwrap_or_default();
        place.iter().all(|t| self.io.acks.trackers[*t as usize].slots.pending() == 0)
    }
    fn is_holding(&self, who: Who) -> bool {
        let credit = self.io.dests[who as usize].credit;
        self.executors.iter().any(|e| !e.out.holds.is_empty_of(|of| of == credit))
    }
}

impl CoreLoop {
    /// What moves wait for, in the words of the loop: for tests that wait in vain.
    #[doc(hidden)]
    pub fn moves(&self) -> String {
        let acks = &self.io.acks;
        let trees: Vec<_> = acks.trackers.iter().map(|t| t.slots.pending()).collect();
        let stale: Vec<_> = acks.ledgers.iter().map(|t| t.stale()).collect();
        format!(
            "{:?}; ledgers {:?}, owners {:?}, open {trees:?} stale {stale:?}, {} lost",
            self.shift.moves, acks.ledger_of, acks.owner_at, acks.lost
        )
    }

    fn place_of(&self, who: Who) -> Option<usize> {
        let place = self.local_of_task.get(who as usize).copied().unwrap_or(NOT_HERE);
        (place != NOT_HERE).then_some(place as usize)
    }

    fn remote_of_lane(&self, lane: Lane) -> Option<usize> {
        (lane as usize).checked_sub(1 + self.io.lanes.len())
    }

    /// The lane by which frames go to, and come from, a loop.
    pub(crate) fn lane_of(&mut self, at: LoopAt) -> Lane {
        let own = self.index;
        let lane = match at {
            LoopAt::Here(l) if l == own => 0,
            LoopAt::Here(l) => 1 + l - usize::from(l > own),
            LoopAt::There(placement, on_loop) => 1 + self.io.lanes.len() + self.remote_number(placement, on_loop),
        };
        lane as Lane
    }

    /// Takes on a newer assignment: holds frames for whoever moves, and begins to see those off that go and to expect those that come.
    #[cold]
    pub(crate) fn take_on(&mut self, links: &mut Links, moved: Moved) {
        let now_ns = self.io.turn_ns;
        let lanes = self.lanes();
        for (who, of) in self.shift.moves.begin(moved.version, &lanes, now_ns) {
            if let Some(arrival) = self.shift.arrivals.remove(&(who, of)) {
                self.shift.arrivals.insert((who, moved.version), arrival);
            }
        }
        let trees = std::mem::replace(&mut self.shift.trees, moved.trees);
        self.shift.tidy_ns = Some(now_ns.saturating_add(self.options.message_timeout_ns));
        for arrival in moved.arrivals {
            self.shift.arrivals.insert((self.layout_executors[arrival.ordinal].first, moved.version), arrival);
        }
        for ordinal in 0..self.layout_executors.len() {
            let (old, new) = (self.shift.places[ordinal], moved.places[ordinal]);
            if old != new {
                self.shift.places[ordinal] = new;
                self.begin_move(links, ordinal, old, new);
            }
        }
        self.turn_trees(&trees, now_ns);
        self.places_changed();
        self.step_moves(links, now_ns);
        // Release: pairs with the Acquire in `Shared::settled`; what moves is counted.
        self.stats.version.store(moved.version, Ordering::Release);
    }

    fn begin_move(&mut self, links: &mut Links, ordinal: usize, old: Option<LoopAt>, new: Option<LoopAt>) {
        let (id, now_ns, here) = (self.layout_executors[ordinal], self.io.turn_ns, Some(LoopAt::Here(self.index)));
        let who = id.first;
        let (from, to) = (old.map(|at| self.lane_of(at)), new.map(|at| self.lane_of(at)));
        self.hold_frames(ordinal);
        if old == here {
            let others = self.lanes().into_iter().filter(|lane| *lane != OWN);
            let asks = self.shift.moves.leave(who, others, now_ns);
            if self.shift.moves.is_leaving(who)
                && let Some(place) = self.place_of(who)
            {
                self.executors[place].leave();
                self.credit_in[place].iter_mut().for_each(CreditIn::stop);
            }
            asks.into_iter().for_each(|action| self.act(links, action));
        }
        self.shift.moves.hold(who, from, to, now_ns);
        if new == here {
            let lanes = self.lanes();
            self.shift.moves.come(who, from, lanes, now_ns);
        }
    }

    /// From now on frames for the executor are held.
    fn hold_frames(&mut self, ordinal: usize) {
        for executor in &mut self.executors {
            executor.out.hold_waiting(&mut self.io, ordinal as u32);
        }
        self.layout_executors[ordinal].tasks().for_each(|task| self.io.dests[task as usize].at = NOWHERE);
        self.io.credits[ordinal].void();
        if !self.io.held.contains(&(ordinal as u32)) {
            self.io.held.push(ordinal as u32);
        }
    }

    /// What moves wait for may have come. Cheap when nobody moves. Returns how much was done.
    #[inline]
    pub(crate) fn move_on(&mut self, links: &mut Links, now_ns: u64) -> usize {
        if self.shift.moves.is_idle() && self.io.markers.is_empty() && self.io.acks.said.is_empty() {
            return 0;
        }
        self.step_moves(links, now_ns)
    }

    #[cold]
    fn step_moves(&mut self, links: &mut Links, now_ns: u64) -> usize {
        let mut work = 0;
        for came in std::mem::take(&mut self.io.markers) {
            work += 1;
            self.shift.moves.marked(came.lane, came.marker, came.who, came.version, came.received.into_iter());
        }
        for (lane, said) in std::mem::take(&mut self.io.acks.said) {
            work += 1;
            self.hear(links, lane, said);
        }
        loop {
            let actions = self.with_moves(|moves, here| moves.step(now_ns, here));
            if actions.is_empty() {
                break;
            }
            work += actions.len();
            actions.into_iter().for_each(|action| self.act(links, action));
        }
        self.io.flush_lanes();
        self.stats.moves.store(self.shift.moves.unsettled() as u64, Ordering::Relaxed);
        work
    }

    fn with_moves<R>(&mut self, with: impl FnOnce(&mut Moves, &Self) -> R) -> R {
        let mut moves = std::mem::replace(&mut self.shift.moves, Moves::new(0, 0));
        let result = with(&mut moves, self);
        self.shift.moves = moves;
        result
    }

    fn hear(&mut self, links: &mut Links, lane: Lane, said: Said) {
        // Of an executor the topology does not have: only a broken peer says so.
        if self.layout_executors.binary_search_by_key(&said.who, |id| id.first).is_err() {
            return;
        }
        if let Some(action) = self.with_moves(|moves, here| moves.hear(lane, said, here)) {
            self.act(links, action);
        }
    }

    pub(crate) fn act(&mut self, links: &mut Links, action: Action) {
        match action {
            Action::Say(lane, said) => self.say(links, lane, said),
            Action::SayReady(lane, who, version) => {
                let limit = self.begin_credit(links, lane, who);
                self.say(links, lane, Said { word: Word::IsReady, who, version, limit });
            }
            Action::Mark(OWN, marker, who, version) => {
                let received = (0..self.executors.len())
                    .map(|place| (self.executors[place].id.first, self.credit_in[place][0].received(self.own_bytes(place))))
                    .collect::<Vec<_>>();
                self.shift.moves.marked(OWN, marker, who, version, received.into_iter());
            }
            Action::Mark(lane, marker, who, version) => {
                let at = self.io.place_of_lane(lane);
                self.io.staging[at].frames.extend_from_slice(&marker.frame(who, version));
            }
            Action::Wake { who, version, late } => {
                self.count_late(late);
                let arrival = self.shift.arrivals.remove(&(who, version)).expect("it came with the assignment that names it");
                self.install(links, arrival);
            }
            Action::Forget { who, version } => drop(self.shift.arrivals.remove(&(who, version))),
            Action::TakeOff { who, late } => self.take_off(who, late),
            Action::Release { who, limit, late } => self.release(who, limit, late),
            Action::HoldAgain { who, at } => {
                let ordinal = self.io.dests[who as usize].credit as usize;
                self.hold_frames(ordinal);
                self.shift.moves.hold(who, None, Some(at), self.io.turn_ns);
                self.places_changed();
            }
            Action::Turn { .. } => self.trees_changed(),
            Action::CloseTrees { who } => self.close_trees(who),
            Action::OpenTrees { who } => self.open_trees(who),
            Action::Open { who, limit, .. } => {
                let ordinal = self.io.dests[who as usize].credit as usize;
                if !self.io.credits[ordinal].is_open() {
                    self.send_to_place(ordinal, Some(limit));
                }
            }
        }
    }

    fn say(&mut self, links: &mut Links, lane: Lane, said: Said) {
        match self.remote_of_lane(lane) {
            _ if lane == OWN => self.hear(links, OWN, said),
            None => self.io.acks.send_word(crate::ack::Road::Lane(lane - 1), &said),
            Some(remote) => self.io.acks.send_word(crate::ack::Road::Remote(remote as u16), &said),
        }
    }

    /// Bytes that this loop itself has for one of its executors.
    fn own_bytes(&self, place: usize) -> usize {
        self.io.staging[1 + place].frames.len() + self.io.inboxes[place].lanes[0].bytes()
    }

    /// The loop behind `lane` begins to send to an executor of this one: its first limit.
    fn begin_credit(&mut self, links: &mut Links, lane: Lane, who: Who) -> u64 {
        let place = self.place_of(who).expect("ready");
        let queued = if lane == OWN { self.own_bytes(place) } else { self.io.inboxes[place].lanes[lane as usize].bytes() };
        let limit = self.credit_in[place][lane as usize].begin(queued);
        match self.remote_of_lane(lane) {
            _ if lane == OWN => {}
            None => self.lanes_in[lane as usize - 1].limits[place].iter().for_each(|shared| grant(shared, limit)),
            // In place of one that is still to be sent, of an instance before.
            Some(number) => self.grant(links, number, who, limit),
        }
        limit
    }

    fn grant(&mut self, links: &mut Links, number: usize, who: Who, limit: u64) {
        self.io.remotes[number].grant(&mut links.0, who, limit);
    }

    fn count_late(&self, late: bool) {
        self.stats.moves_late.fetch_add(u64::from(late), Ordering::Relaxed);
    }

    /// What was held for an executor goes to its new place.
    fn release(&mut self, who: Who, limit: Option<u64>, late: bool) {
        let ordinal = self.io.dests[who as usize].credit as usize;
        self.io.held.retain(|held| *held as usize != ordinal);
        let mut bytes = 0;
        for executor in &mut self.executors {
            bytes += executor.out.release_hold(&mut self.io, ordinal as u32);
        }
        self.count_late(late && bytes > 0);
        self.trees_arrived(who);
        self.send_to_place(ordinal, limit);
    }

    /// Frames for an executor go where it is; `limit`: with this credit, `None` = none yet.
    fn send_to_place(&mut self, ordinal: usize, limit: Option<u64>) {
        let id = self.layout_executors[ordinal];
        let at = match self.shift.places[ordinal] {
            None => NOWHERE,
            Some(LoopAt::Here(l)) if l == self.index => self.place_of(id.first).map_or(NOWHERE, |place| 1 + place as u16),
            Some(at) => {
                let lane = self.lane_of(at);
                self.io.place_of_lane(lane) as u16
            }
        };
        id.tasks().for_each(|task| self.io.dests[task as usize] = Dest { at, credit: ordinal as u32 });
        self.io.credits[ordinal] = match (self.io.via(at), limit) {
            (Via::Local(_), Some(limit)) => CreditOut::local(limit),
            (Via::Lane(_), Some(limit)) => CreditOut::shared(limit, self.shift.limits[self.index][ordinal].clone()),
            _ => CreditOut::remote(),
        };
        if let (Via::Remote(number), limit) = (self.io.via(at), limit) {
            self.io.remotes[number].early.remove(&id.first);
            limit.into_iter().for_each(|limit| self.io.credits[ordinal].raise(limit));
        }
        self.places_changed();
        if limit.is_some() {
            // The task there may be a new one.
            for executor in &mut self.executors {
                executor.out.send_ends_again(&mut self.io, |task| id.tasks().contains(&task));
            }
        }
    }

    /// Routes have changed: what was looked up is looked up again.
    fn places_changed(&mut self) {
        self.executors.iter_mut().for_each(|e| {
            e.out.forget_room();
            e.out.assignment_changed(&self.io);
        });
        self.trees_changed();
    }

    /// Makes an executor that comes.
    fn install(&mut self, links: &mut Links, arrival: Arrival) {
        let Arrival { ordinal, windows, parts, desc } = arrival;
        let Parts { making, mut out, trackers } = parts;
        let (id, place) = (making.id, self.executors.len());
        self.io.insert_local(windows, self.options.worker_bit);
        let near = (0..1 + self.lanes_in.len()).map(|_| CreditIn::new(windows.0));
        self.credit_in.push(near.chain(self.io.remotes.iter().map(|_| CreditIn::new(windows.1))).collect());
        self.windows.push(windows.1);
        self.ordinals.push(ordinal as u32);
        for (number, from) in self.lanes_in.iter_mut().enumerate() {
            let other = number + usize::from(number >= self.index);
            from.limits.push(Some(self.shift.limits[other][ordinal].clone()));
        }
        id.tasks().for_each(|task| self.local_of_task[task as usize] = place as u16);
        out.trackers = trackers.into_iter().map(|(task, tracker)| self.add_tracker(task, tracker)).collect();
        out.place = place;
        let opens_trees = !out.trackers.is_empty();
        self.executors.push(Executor::new(making, out));
        self.shift.descs.push(desc);
        self.metrics_changed((0..place).map(Some).chain([None]));
        for number in 0..self.io.remotes.len() {
            self.grant(links, number, id.first, windows.1);
        }
        if self.io.held.contains(&(ordinal as u32)) {
            self.places_changed();
        } else {
            self.send_to_place(ordinal, Some(windows.0));
        }
        if opens_trees {
            self.close_trees(id.first);
        }
    }

    /// Takes an executor off that has gone.
    fn take_off(&mut self, who: Who, late: bool) {
        let place = self.place_of(who).expect("it is here until now");
        // Also when it had nothing left: counted as taken away from its old place too soon.
        self.count_late(late);
        let mut lost = self.executors[place].take_off(&mut self.io);
        for lane in 0..self.io.inboxes[place].lanes.len() {
            let mut taken = if lane == 0 { self.io.take_own(place) } else { self.io.inboxes[place].lanes[lane].take() };
            while !taken.frames().is_empty() {
                let mut run = taken.frames();
                while let Some(frame) = Frame::first(run) {
                    if frame.header.flags & END == 0 {
                        lost += 1;
                        discard(&mut self.io, &frame);
                    }
                    run = &run[frame.bytes.len()..];
                }
                taken.consume(taken.frames().len());
                self.io.inboxes[place].lanes[lane].put(taken);
                taken = if lane == 0 { self.io.take_own(place) } else { self.io.inboxes[place].lanes[lane].take() };
            }
            self.io.inboxes[place].lanes[lane].put(taken);
        }
        self.stats.moves_lost.fetch_add(lost, Ordering::Relaxed);
        let gone = self.executors.remove(place);
        gone.gone();
        self.io.remove_local(place);
        self.credit_in.remove(place);
        self.windows.remove(place);
        self.ordinals.remove(place);
        self.lanes_in.iter_mut().for_each(|from| drop(from.limits.remove(place)));
        self.shift.descs.remove(place);
        self.local_of_task.iter_mut().for_each(|at| {
            if *at == place as u16 {
                *at = NOT_HERE;
            } else if *at != NOT_HERE && *at as usize > place {
                *at -= 1;
            }
        });
        for (place, executor) in self.executors.iter_mut().enumerate() {
            executor.out.place = place;
        }
        let n = self.executors.len();
        self.metrics_changed((0..n).map(|now| Some(now + usize::from(now >= place))));
        self.places_changed();
    }

    /// The loop's executors are others now; `kept`: the place each had before.
    fn metrics_changed(&mut self, kept: impl Iterator<Item = Option<usize>>) {
        let now_ns = self.io.now_ns();
        let kept: Vec<Option<usize>> = kept.collect();
        let (metrics, reader) = self.io.metrics.succeed(&self.shift.descs, self.shift.n_streams, &kept, now_ns);
        let before = std::mem::replace(&mut self.io.metrics, metrics);
        // Whoever reads a loop seldom has the newest; one that never does costs one set.
        drop(self.stats.metrics.force_push((before, now_ns, reader)));
    }

    /// The lane to, and from, a loop of another worker.
    pub(crate) fn lane_of_remote(&self, number: usize) -> Lane {
        (1 + self.io.lanes.len() + number) as Lane
    }

    /// A link to a remote loop is there.
    pub(crate) fn lane_linked(&mut self, number: usize) {
        self.shift.moves.linked((1 + self.io.lanes.len() + number) as Lane);
    }

    /// It is gone; `goodbye`: in order.
    pub(crate) fn lane_unlinked(&mut self, number: usize, goodbye: bool) {
        self.shift.moves.unlinked((1 + self.io.lanes.len() + number) as Lane, goodbye);
    }

    /// True while something of a move refers to a remote loop by its number.
    pub(crate) fn lane_is_used(&self, number: usize) -> bool {
        self.shift.moves.uses((1 + self.io.lanes.len() + number) as Lane)
    }

    /// Says goodbye to loops that the assignment does not name, a message timeout after it came: nothing goes to them any more, and what came
    /// from them has arrived.
    #[cold]
    pub(crate) fn tidy_links(&mut self, links: &mut Links, now_ns: u64) {
        if self.shift.tidy_ns.is_none_or(|at| now_ns < at) || self.shift.moves.unsettled() > 0 {
            return;
        }
        self.shift.tidy_ns = None;
        for number in 0..self.io.remotes.len() {
            let remote = &self.io.remotes[number];
            let at = LoopAt::There(remote.placement, remote.on_loop);
            // A link that loops share ends with the worker.
            if remote.through.is_some() || self.shift.places.iter().flatten().any(|named| *named == at) {
                continue;
            }
            let roads = [Road::Data, Road::Control].map(|road| self.io.remotes[number].link(road));
            if let Some(carrier) = &mut links.0 {
                self.io.remotes[number].leaving = true;
                roads.into_iter().flatten().for_each(|link| carrier.say_goodbye(link));
            }
        }
    }
}

const _: () = assert!(std::mem::size_of::<Marker>() == 1);
