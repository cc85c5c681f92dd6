//! Executors that change place while tuples flow: what each loop waits for, and what it says to the others. Pure: time, and what its loop knows,
//! are arguments.
//!
//! Before: a newer assignment (`shift.rs`), or a word of another loop. After: actions for `shift.rs`: words, markers, and executors that wake or go.
//!
//! A loop plays up to three parts for an executor that moves:
//! - *upstream*, every loop: frames for it are held, until the old place is done and the new one ready, or one message timeout has passed;
//! - *old place*: it asks every loop for a marker behind its last frame, handles what lies before them, then asks that what it emitted be
//!   handled (a marker again, so that order holds when the emitter moves), and is done;
//! - *new place*: it asks the old one whether it is done, and every other loop in case it was there in between; it wakes only when all are, so no
//!   task is in two places.
//!
//! All of it is asked for, and an ask waits where it was heard until it can be answered: whoever knows the newer assignment first waits for the
//! others, and a link that comes again is asked again. A place that is passed by (moved on before it woke) still waits for the one before it,
//! so "done" always speaks for all places before.

#[cfg(test)]
mod model;

use saetta_tuple::frame::{Frame, HEADER_BYTES, Header, MARKER};
use std::collections::{BTreeMap, BTreeSet};

/// Another loop, as the loop numbers the ways frames come by: 0 = itself, then the others of its worker, then those of other workers.
pub(crate) type Lane = u16;
/// An executor, by its first task.
pub(crate) type Who = u32;
/// Version of an assignment.
pub(crate) type Version = u64;

/// The loop itself.
pub(crate) const OWN: Lane = 0;

/// What loops ask and answer, on the control road.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Word {
    /// Old place to all: mark the end of what you send me.
    Mark,
    /// To the old place: are you done?
    Done,
    /// To the new place: are you ready?
    Ready,
    /// Old place's answer.
    IsDone,
    /// New place's answer, with its first credit limit.
    IsReady,
    /// To the old place: what it emitted before its marker is handled.
    Handled,
    /// To the loop of a task that opens trees: have those ended that were opened before this assignment?
    Ended,
    /// Its answer.
    HaveEnded,
    /// The loop of a task that opens trees to all: do your acks go where its trees are now?
    Turned,
    /// Their answer.
    HasTurned,
}

/// A word about an executor, as of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) word: Word,
    pub(crate) who: Who,
    pub(crate) version: Version,
    /// Of `IsReady`: the first credit limit. Of `IsDone`: the assignment from which on it is true. Of `HaveEnded` and `HasTurned`: the newest
    /// assignment known to who says it.
    pub(crate) limit: u64,
}

/// Bytes of a word in a control frame.
pub(crate) const MOVE_BYTES: usize = 24;
/// Words that wait for one loop.
pub(crate) const WORDS_MAX: usize = 1 << 14;

impl Said {
    pub(crate) fn encode(&self) -> [u8; MOVE_BYTES] {
        let mut bytes = [0; MOVE_BYTES];
        bytes[..4].copy_from_slice(&(self.word as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.who.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..].copy_from_slice(&self.limit.to_le_bytes());
        bytes
    }

    /// `None` = only a broken peer says so.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Said> {
        let (word, rest) = bytes.split_first_chunk::<4>()?;
        let (who, rest) = rest.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let word = *Word::ALL.get(u32::from_le_bytes(*word) as usize)?;
        let limit = u64::from_le_bytes(*rest.first_chunk()?);
        Some(Said { word, who: u32::from_le_bytes(*who), version: u64::from_le_bytes(*version), limit })
    }
}

impl Word {
    const ALL: [Word; 10] = [
        Word::Mark,
        Word::Done,
        Word::Ready,
        Word::IsDone,
        Word::IsReady,
        Word::Handled,
        Word::Ended,
        Word::HaveEnded,
        Word::Turned,
        Word::HasTurned,
    ];
}

/// A frame of the data road that is no tuple: it lies behind what was sent before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Nothing more comes for the executor by this lane.
    Epoch,
    /// The executor has emitted its last frame; tell it when those before this are handled.
    Emitted,
}

/// Bytes of a marker frame.
pub(crate) const MARKER_BYTES: usize = HEADER_BYTES + 8;

impl Marker {
    pub(crate) fn frame(self, who: Who, version: Version) -> [u8; MARKER_BYTES] {
        let mut bytes = [0; MARKER_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&Header { len: 8, stream: self as u16, flags: MARKER, target: who, source: 0 }.encode());
        bytes[HEADER_BYTES..].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// What a marker frame says; `None` = only a broken peer says so.
    pub(crate) fn read(frame: &Frame<'_>) -> Option<(Marker, Who, Version)> {
        let marker = *[Marker::Epoch, Marker::Emitted].get(frame.header.stream as usize)?;
        let version = frame.bytes.get(HEADER_BYTES..)?.first_chunk()?;
        Some((marker, frame.header.target, u64::from_le_bytes(*version)))
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Say this to that loop.
    Say(Lane, Said),
    /// Say `IsReady` to that loop, with a credit that begins anew.
    SayReady(Lane, Who, Version),
    /// Write a marker behind what is staged for that loop.
    Mark(Lane, Marker, Who, Version),
    /// The executor's time here begins: make it.
    Wake { who: Who, version: Version, late: bool },
    /// It is never made: it moved on.
    Forget { who: Who, version: Version },
    /// Its time here is over. `late`: whatever it still holds fails.
    TakeOff { who: Who, late: bool },
    /// What is held for it goes to its new place. `limit`: its first credit there; `None` = none yet.
    Release { who: Who, limit: Option<u64>, late: bool },
    /// It went and came back, and this loop has heard only now that it did: as if it moved from where it is to where it is.
    HoldAgain { who: Who, at: Lane },
    /// The new place takes frames: it was late.
    Open { who: Who, by: Lane, limit: u64 },
    /// Acks for its trees go where these are now.
    Turn { who: Who },
    /// It opens no trees until all loops know where these are.
    CloseTrees { who: Who },
    /// It may open trees (again).
    OpenTrees { who: Who },
}

/// What the loop knows now.
pub(crate) trait Here {
    /// An instance of the executor is on this loop.
    fn runs(&self, who: Who) -> bool;
    /// Nothing waits in it, in front of it or behind it, held frames for its own cycle excepted.
    fn is_quiet(&self, who: Who) -> bool;
    /// As `is_quiet`, nothing excepted.
    fn is_empty(&self, who: Who) -> bool;
    /// Where frames for it go now; `None` = nowhere, or they are held.
    fn leads_to(&self, who: Who) -> Option<Lane>;
    /// All loops that frames reach, this one included.
    fn lanes(&self) -> BTreeSet<Lane>;
    /// Frames reach that loop.
    fn is_linked(&self, lane: Lane) -> bool;
    /// The assignment names that loop's worker.
    fn is_named(&self, lane: Lane) -> bool;
    /// No tree of it is open; also when it is not here.
    fn has_no_tree(&self, who: Who) -> bool;
    /// Frames for it are held here.
    fn is_holding(&self, who: Who) -> bool;
    /// Bytes of frames that came by `lane` for an executor of this loop and are handled; `None` = it is not here.
    fn handled(&self, lane: Lane, who: Who) -> Option<u64>;
}

/// How far another loop is with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It was not asked on the link there is now.
    ToAsk,
    Asked,
    /// It is there by a newer assignment than this loop knows: with that one, nothing is waited for.
    Until(Version),
}

/// Waits for other loops to say that something is over.
#[derive(Debug, Clone)]
struct Gate {
    /// Loops that have not said so.
    waits: BTreeMap<Lane, Wait>,
    /// The old place among them: the new one waits for it also while it is not linked, as long as it is named.
    patient: Option<Lane>,
    deadline_ns: u64,
}

/// The old place's part.
#[derive(Debug)]
struct Leaving {
    version: Version,
    deadline_ns: u64,
    /// Loops whose marker has not come.
    unmarked: BTreeSet<Lane>,
    /// Once those have come and all is quiet: loops that have not handled what it emitted.
    unhandled: Option<BTreeSet<Lane>>,
    done: bool,
}

/// The new place's part.
#[derive(Debug)]
struct Coming {
    gate: Gate,
    /// It moved on before it woke.
    passed_by: bool,
}

/// Upstream's part.
#[derive(Debug)]
struct Holding {
    version: Version,
    gate: Gate,
    to: Option<Lane>,
    /// The new place was asked on the link there is now.
    asked: bool,
    /// Its answer.
    limit: Option<u64>,
}

/// Somebody wants to know when what lies before its marker is handled.
#[derive(Debug)]
struct Unhandled {
    lane: Lane,
    who: Who,
    version: Version,
    /// Executors here, and how many bytes by that lane each has to handle.
    until: Vec<(Who, u64)>,
}

/// Asks that wait for one loop at most; beyond it they are not kept, and the asker's timeout ends its wait.
const ASKS_MAX: usize = 1 << 16;

/// See the head of this file. One per loop.
#[derive(Debug)]
pub(crate) struct Moves {
    version: Version,
    timeout_ns: u64,
    leaving: BTreeMap<Who, Leaving>,
    /// An executor may have been sent here and away several times before anything was settled.
    coming: BTreeMap<(Who, Version), Coming>,
    holding: BTreeMap<Who, Holding>,
    /// Executors that stay, and whose trees will be elsewhere when those that are open have ended.
    turning: BTreeMap<Who, Gate>,
    /// Executors that open no trees until all loops know where these are.
    opening: BTreeMap<Who, Gate>,
    /// Asks not answered yet, with the version each is about.
    asks: BTreeSet<(Lane, Word, Who, Version)>,
    unhandled: Vec<Unhandled>,
}

impl Moves {
    /// `version`: of the assignment the loop was built from. `timeout_ns`: nobody waits longer for another.
    pub(crate) fn new(version: Version, timeout_ns: u64) -> Self {
        Moves {
            version,
            timeout_ns,
            leaving: BTreeMap::new(),
            coming: BTreeMap::new(),
            holding: BTreeMap::new(),
            turning: BTreeMap::new(),
            opening: BTreeMap::new(),
            asks: BTreeSet::new(),
            unhandled: Vec::new(),
        }
    }

    /// True while nobody waits for anything.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.unsettled() == 0 && self.asks.is_empty() && self.unhandled.is_empty()
    }

    /// Moves that this loop has a part in and that are not settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.leaving.len() + self.coming.len() + self.holding.len() + self.turning.len() + self.opening.len()
    }

    /// Executors that will wake here.
    pub(crate) fn is_anybody_coming(&self) -> bool {
        !self.coming.is_empty()
    }

    /// True while an executor's instance here is about to go.
    pub(crate) fn is_leaving(&self, who: Who) -> bool {
        self.leaving.contains_key(&who)
    }

    /// True while it stays, and acks for its trees go where these were.
    pub(crate) fn is_turning(&self, who: Who) -> bool {
        self.turning.contains_key(&who)
    }

    /// True while acks for its trees go where these were.
    pub(crate) fn turns(&self, who: Who) -> bool {
        self.holding.contains_key(&who) || self.turning.contains_key(&who)
    }

    /// True while the number of that loop is used here.
    pub(crate) fn uses(&self, lane: Lane) -> bool {
        let gates = self.coming.values().map(|c| &c.gate).chain(self.holding.values().map(|h| &h.gate));
        let gates = gates.chain(self.turning.values()).chain(self.opening.values());
        gates.into_iter().any(|g| g.waits.contains_key(&lane)) || self.holding.values().any(|h| h.to == Some(lane))
    }

    /// When somebody's patience ends next.
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        let gates = self.coming.values().map(|c| c.gate.deadline_ns).chain(self.holding.values().map(|h| h.gate.deadline_ns));
        let gates = gates.chain(self.turning.values().chain(self.opening.values()).map(|gate| gate.deadline_ns));
        gates.chain(self.leaving.values().map(|l| l.deadline_ns)).min().unwrap_or(u64::MAX)
    }

    /// A newer assignment; what it changes follows by `leave`, `come` and `hold`. `lanes`: all that are linked. If assignments were skipped, an
    /// executor that is about to come may have been elsewhere by them: it comes anew. Whose arrival is another version's now: (who, of which).
    pub(crate) fn begin(&mut self, version: Version, lanes: &BTreeSet<Lane>, now_ns: u64) -> Vec<(Who, Version)> {
        let skipped = version > self.version + 1;
        self.version = self.version.max(version);
        // A new place that has seen the executor go and come meanwhile has forgotten who asked; if it was ready, it is so no more.
        self.holding.values_mut().for_each(|h| (h.asked, h.limit) = (false, None));
        // What others have said of trees was as of the assignment before: by one that was skipped here these may have been elsewhere.
        self.turning.values_mut().for_each(Gate::ask_again);
        for gate in self.opening.values_mut() {
            gate.waits = lanes.iter().map(|lane| (*lane, Wait::ToAsk)).collect();
        }
        let mut anew = Vec::new();
        if skipped {
            for ((who, of), coming) in self.coming.iter_mut().filter(|(_, c)| !c.passed_by) {
                coming.passed_by = true;
                anew.push((*who, *of, coming.gate.patient));
            }
        }
        for (who, _, patient) in &anew {
            self.come(*who, *patient, lanes.clone(), now_ns);
        }
        anew.into_iter().map(|(who, of, _)| (who, of)).collect()
    }

    /// The executor, which is here or about to come, goes elsewhere. `lanes`: the other loops that are linked.
    pub(crate) fn leave(&mut self, who: Who, lanes: impl Iterator<Item = Lane>, now_ns: u64) -> Vec<Action> {
        if let Some(((_, of), coming)) = self.coming.range_mut((who, 0)..=(who, Version::MAX)).find(|(_, c)| !c.passed_by) {
            let of = *of;
            coming.passed_by = true;
            if of < self.version {
                return Vec::new();
            }
            // It was to come anew by this very assignment; where it was before is waited for by the one it came anew of.
            self.coming.remove(&(who, of));
            return vec![Action::Forget { who, version: of }];
        }
        self.opening.remove(&who);
        let unmarked: BTreeSet<Lane> = lanes.collect();
        let asks = unmarked.iter().map(|lane| Action::Say(*lane, self.said(Word::Mark, who, self.version))).collect();
        let deadline_ns = now_ns.saturating_add(self.timeout_ns);
        self.leaving.insert(who, Leaving { version: self.version, deadline_ns, unmarked, unhandled: None, done: false });
        asks
    }

    /// The executor comes here from the loop at `from`; `None` = from nowhere.
    /// `lanes`: all that are linked. Each of them may have been a place in between that others know of and this loop does not.
    pub(crate) fn come(&mut self, who: Who, from: Option<Lane>, lanes: BTreeSet<Lane>, now_ns: u64) {
        let gate = Gate { patient: from, ..self.gate(lanes.into_iter().chain(from), now_ns) };
        self.coming.insert((who, self.version), Coming { gate, passed_by: false });
    }

    /// The executor goes from one loop to another: nothing is sent to it until that is settled.
    pub(crate) fn hold(&mut self, who: Who, from: Option<Lane>, to: Option<Lane>, now_ns: u64) {
        self.turning.remove(&who);
        let mut gate = self.gate(from, now_ns);
        // From nowhere: where it was before that, if that is not settled.
        if let (None, Some(before)) = (from, self.holding.get(&who)) {
            gate.waits = before.gate.waits.keys().map(|lane| (*lane, Wait::ToAsk)).collect();
        }
        self.holding.insert(who, Holding { version: self.version, gate, to, asked: false, limit: None });
    }

    /// The executor stays with the loop at `owner`, and the ledgers of its trees go elsewhere.
    pub(crate) fn turn(&mut self, who: Who, owner: Lane, now_ns: u64) {
        self.turning.insert(who, self.gate([owner], now_ns));
    }

    /// The executor of this loop opens no tree before all of `lanes` know where its trees are.
    pub(crate) fn open_trees(&mut self, who: Who, lanes: BTreeSet<Lane>, now_ns: u64) {
        self.opening.insert(who, self.gate(lanes, now_ns));
    }

    fn gate(&self, lanes: impl IntoIterator<Item = Lane>, now_ns: u64) -> Gate {
        let waits = lanes.into_iter().map(|lane| (lane, Wait::ToAsk)).collect();
        Gate { waits, patient: None, deadline_ns: now_ns.saturating_add(self.timeout_ns) }
    }

    fn said(&self, word: Word, who: Who, version: Version) -> Said {
        Said { word, who, version, limit: 0 }
    }

    /// A link is there: whoever is waited for at its other end is asked, again.
    pub(crate) fn linked(&mut self, lane: Lane) {
        self.forget_asked(lane);
    }

    /// A link is gone; `goodbye`: in order, all it carried having arrived, and its worker has handled what it had.
    pub(crate) fn unlinked(&mut self, lane: Lane, goodbye: bool) {
        self.forget_asked(lane);
        self.asks.retain(|(of, ..)| *of != lane);
        self.unhandled.retain(|u| u.lane != lane);
        for leaving in self.leaving.values_mut() {
            leaving.unmarked.remove(&lane);
            leaving.unhandled.iter_mut().for_each(|u| {
                u.remove(&lane);
            });
        }
        if goodbye {
            self.gates().for_each(|g| {
                g.waits.remove(&lane);
            });
        }
    }

    fn forget_asked(&mut self, lane: Lane) {
        self.gates().filter_map(|g| g.waits.get_mut(&lane)).for_each(|wait| *wait = Wait::ToAsk);
        self.holding.values_mut().filter(|h| h.to == Some(lane)).for_each(|h| h.asked = false);
    }

    fn gates(&mut self) -> impl Iterator<Item = &mut Gate> {
        let trees = self.turning.values_mut().chain(self.opening.values_mut());
        self.coming.values_mut().map(|c| &mut c.gate).chain(self.holding.values_mut().map(|h| &mut h.gate)).chain(trees)
    }

    /// A word came. What it leads to is said by `step`, an `Open` at once.
    pub(crate) fn hear(&mut self, lane: Lane, said: Said, here: &impl Here) -> Option<Action> {
        let Said { word, who, version, limit } = said;
        match word {
            Word::Mark | Word::Done | Word::Ready | Word::Ended | Word::Turned => {
                if word != Word::Done {
                    // One ask at a time: a newer one is in place of it. Of old places, several may be waited for.
                    let before = (lane, word, who, 0)..=(lane, word, who, Version::MAX);
                    let before: Vec<_> = self.asks.range(before).copied().collect();
                    for ask in before {
                        self.asks.remove(&ask);
                    }
                }
                if self.asks.len() < ASKS_MAX {
                    self.asks.insert((lane, word, who, version));
                }
                // Whatever it said before: it is about to turn.
                if let (Word::Ended, Some(gate)) = (word, self.opening.get_mut(&who)) {
                    gate.waits.insert(lane, Wait::ToAsk);
                }
            }
            Word::IsDone => {
                let comings = self.coming.iter_mut().filter(|((of, v), _)| (*of, *v) == (who, version)).map(|(_, c)| &mut c.gate);
                let holdings = self.holding.iter_mut().filter(|(of, h)| (**of, h.version) == (who, version)).map(|(_, h)| &mut h.gate);
                comings.chain(holdings).filter_map(|g| g.waits.get_mut(&lane)).for_each(|wait| *wait = Wait::Until(limit));
            }
            Word::IsReady => match self.holding.get_mut(&who) {
                Some(holding) if version >= self.version && holding.to == Some(lane) => holding.limit = Some(limit),
                Some(_) => {}
                None if here.leads_to(who) == Some(lane) => return Some(Action::Open { who, by: lane, limit }),
                None => {}
            },
            // As of another assignment, trees may be elsewhere.
            Word::HaveEnded | Word::HasTurned if limit != self.version => {}
            Word::HaveEnded => self.turning.get_mut(&who).into_iter().for_each(|gate| gate.pass(lane)),
            Word::HasTurned => self.opening.get_mut(&who).into_iter().for_each(|gate| gate.pass(lane)),
            Word::Handled => {
                if let Some(leaving) = self.leaving.get_mut(&who).filter(|l| l.version == version)
                    && let Some(unhandled) = &mut leaving.unhandled
                {
                    unhandled.remove(&lane);
                }
            }
        }
        None
    }

    /// A marker came, behind what came before it. `received`: by executor of this loop, the bytes that came for it by that lane so far.
    pub(crate) fn marked(&mut self, lane: Lane, marker: Marker, who: Who, version: Version, received: impl Iterator<Item = (Who, u64)>) {
        match marker {
            Marker::Epoch => {
                if let Some(leaving) = self.leaving.get_mut(&who).filter(|l| l.version == version) {
                    leaving.unmarked.remove(&lane);
                }
            }
            Marker::Emitted if self.unhandled.len() < ASKS_MAX => {
                self.unhandled.push(Unhandled { lane, who, version, until: received.collect() });
            }
            Marker::Emitted => {}
        }
    }

    /// What is to be done now. To be called again until it says nothing: an action may be what another waits for.
    pub(crate) fn step(&mut self, now_ns: u64, here: &impl Here) -> Vec<Action> {
        let mut actions = Vec::new();
        self.step_unhandled(here, &mut actions);
        self.step_leaving(now_ns, here, &mut actions);
        self.step_coming(now_ns, here, &mut actions);
        self.step_holding(now_ns, here, &mut actions);
        self.step_trees(now_ns, here, &mut actions);
        if actions.is_empty() {
            // What is to be done above changes what is here.
            self.answer(here, &mut actions);
        }
        actions
    }

    fn step_unhandled(&mut self, here: &impl Here, actions: &mut Vec<Action>) {
        self.unhandled.retain_mut(|u| {
            u.until.retain(|(who, bytes)| here.handled(u.lane, *who).is_some_and(|handled| handled < *bytes));
            if u.until.is_empty() {
                actions.push(Action::Say(u.lane, Said { word: Word::Handled, who: u.who, version: u.version, limit: 0 }));
            }
            !u.until.is_empty()
        });
    }

    fn step_leaving(&mut self, now_ns: u64, here: &impl Here, actions: &mut Vec<Action>) {
        self.leaving.retain(|who, leaving| {
            let late = now_ns >= leaving.deadline_ns;
            if leaving.unmarked.is_empty() && leaving.unhandled.is_none() && here.is_quiet(*who) {
                let lanes = here.lanes();
                actions.extend(lanes.iter().map(|lane| Action::Mark(*lane, Marker::Emitted, *who, leaving.version)));
                leaving.unhandled = Some(lanes);
            }
            leaving.done |= late || leaving.unhandled.as_ref().is_some_and(BTreeSet::is_empty);
            let over = late || (leaving.done && here.is_empty(*who));
            if over {
                actions.push(Action::TakeOff { who: *who, late });
            }
            !over
        });
    }

    fn step_coming(&mut self, now_ns: u64, here: &impl Here, actions: &mut Vec<Action>) {
        let newest = self.version;
        self.coming.retain(|(who, version), coming| {
            let late = now_ns >= coming.gate.deadline_ns;
            if !coming.gate.step(Word::Done, *who, *version, newest, here, actions) && !late {
                return true;
            }
            if coming.passed_by {
                actions.push(Action::Forget { who: *who, version: *version });
                return false;
            }
            if here.runs(*who) {
                return true;
            }
            actions.push(Action::Wake { who: *who, version: *version, late: !coming.gate.is_open() });
            false
        });
    }

    fn step_holding(&mut self, now_ns: u64, here: &impl Here, actions: &mut Vec<Action>) {
        let newest = self.version;
        self.holding.retain(|who, holding| {
            let settled = holding.gate.step(Word::Done, *who, holding.version, newest, here, actions);
            if let (Some(to), false) = (holding.to, holding.asked)
                && here.is_linked(to)
            {
                holding.asked = true;
                // As of the newest assignment known here: who knows an older one may not have it yet, or no more.
                actions.push(Action::Say(to, Said { word: Word::Ready, who: *who, version: newest, limit: 0 }));
            }
            let late = now_ns >= holding.gate.deadline_ns;
            // Where nothing waits and the new place is not linked, its first credit says as much as its answer would.
            let idle = holding.to.is_none_or(|to| !here.is_linked(to)) && !here.is_holding(*who);
            if late || (settled && (holding.limit.is_some() || idle)) {
                actions.push(Action::Release { who: *who, limit: holding.limit, late });
                return false;
            }
            true
        });
    }

    fn step_trees(&mut self, now_ns: u64, here: &impl Here, actions: &mut Vec<Action>) {
        let newest = self.version;
        let mut step = |gates: &mut BTreeMap<Who, Gate>, ask: Word, then: fn(Who) -> Action| {
            gates.retain(|who, gate| {
                let over = gate.step(ask, *who, newest, newest, here, actions) || now_ns >= gate.deadline_ns;
                if over {
                    actions.push(then(*who));
                }
                !over
            });
        };
        step(&mut self.turning, Word::Ended, |who| Action::Turn { who });
        step(&mut self.opening, Word::Turned, |who| Action::OpenTrees { who });
    }

    fn answer(&mut self, here: &impl Here, actions: &mut Vec<Action>) {
        let Moves { version, leaving, coming, holding, turning, opening, asks, .. } = self;
        asks.retain(|(lane, word, who, asked)| {
            if *asked > *version {
                return true;
            }
            let is_leaving = leaving.get(who);
            let comes = coming.range((*who, 0)..=(*who, Version::MAX)).any(|(_, c)| !c.passed_by);
            let waits_here = coming.range((*who, 0)..(*who, *asked)).next().is_some();
            match word {
                Word::Mark if here.leads_to(*who) != Some(*lane) => actions.push(Action::Mark(*lane, Marker::Epoch, *who, *asked)),
                Word::Mark => {
                    actions.push(Action::HoldAgain { who: *who, at: *lane });
                    return true;
                }
                Word::Done if !waits_here && (!here.runs(*who) || is_leaving.is_some_and(|l| l.done)) => {
                    actions.push(Action::Say(*lane, Said { word: Word::IsDone, who: *who, version: *asked, limit: *asked }));
                }
                // It was here all the time, by what was decided later.
                Word::Done if !waits_here && is_leaving.is_none() && *version > *asked => {
                    actions.push(Action::Say(*lane, Said { word: Word::IsDone, who: *who, version: *asked, limit: *version }));
                }
                Word::Ready if here.runs(*who) && is_leaving.is_none() => actions.push(Action::SayReady(*lane, *who, *asked)),
                // It went on: whoever asks will know.
                Word::Ready if asked < version && !here.runs(*who) && !comes => {}
                // Also where this loop has seen nothing change: the others have, and the trees that are open end where they began.
                Word::Ended if here.runs(*who) && is_leaving.is_none() && !opening.contains_key(who) => {
                    actions.push(Action::CloseTrees { who: *who });
                    return true;
                }
                Word::Ended if here.has_no_tree(*who) => {
                    actions.push(Action::Say(*lane, Said { word: Word::HaveEnded, who: *who, version: *asked, limit: *version }));
                }
                Word::Turned if !holding.contains_key(who) && !turning.contains_key(who) => {
                    actions.push(Action::Say(*lane, Said { word: Word::HasTurned, who: *who, version: *asked, limit: *version }));
                }
                _ => return true,
            }
            false
        });
    }
}

impl Gate {
    fn is_open(&self) -> bool {
        self.waits.is_empty()
    }

    /// The loop is waited for no more.
    fn pass(&mut self, lane: Lane) {
        self.waits.remove(&lane);
    }

    fn ask_again(&mut self) {
        self.waits.values_mut().for_each(|wait| *wait = Wait::ToAsk);
    }

    /// Asks whoever can be asked; true = the gate is open. Nobody waits for a loop that is not reached, the patient excepted: nothing of ours is
    /// on its way there.
    fn step(&mut self, ask: Word, who: Who, version: Version, newest: Version, here: &impl Here, actions: &mut Vec<Action>) -> bool {
        let patient = self.patient;
        self.waits.retain(|lane, wait| {
            let linked = here.is_linked(*lane);
            if let Wait::Until(version) = wait {
                return newest < *version;
            }
            if linked && *wait == Wait::ToAsk {
                *wait = Wait::Asked;
                actions.push(Action::Say(*lane, Said { word: ask, who, version, limit: 0 }));
            }
            linked || (patient == Some(*lane) && here.is_named(*lane))
        });
        self.is_open()
    }
}
