//! What a component emits becomes a frame: routed, stamped, anchored, and put into a place's staging or the executor's outbox.
//!
//! Before: user code in `handle`, `next` or `finish`. After: `io.rs`. With one subscription the archive is written straight into the
//! private staging of the place; only a tuple with several receivers is written aside and copied.

use crate::component::Fail;
use crate::context::Cx;
use crate::grouping::{Chosen, Subscription};
use crate::io::{Io, NOWHERE};
use crate::limits::PULL_ITEMS_MAX;
use crate::marks::ONE_ANCHOR;
use crate::out::Out;
use saetta_tuple::Emit;
use saetta_tuple::frame::{ANCHORS_MAX, BLOCK_BYTES, Block, HEADER_BYTES, Header, WARM};

/// One output stream of one task.
pub(crate) struct Output {
    /// Names the stream's Rust type.
    pub(crate) tag: std::any::TypeId,
    /// Index in the topology.
    pub(crate) stream: u16,
    /// The only place behind all targets of the only subscription, if that is in this worker; else `NOWHERE`.
    pub(crate) single: u16,
    /// To the only task of the only subscription, wherever it is: nothing to choose and nothing to look up.
    pub(crate) fixed: Route,
    pub(crate) subscriptions: Vec<Subscription>,
}

/// Where a frame goes. `at` is `NOWHERE` when there is none.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) at: u16,
    pub(crate) target: u32,
    pub(crate) credit: u32,
}

impl Route {
    pub(crate) const NONE: Route = Route { at: NOWHERE, target: 0, credit: 0 };
}

impl Output {
    /// Looks what never changes while executors stay where they are.
    #[cold]
    pub(crate) fn settle_places(&mut self, io: &Io) {
        let here = |at: u16| (at as usize) < io.first_lane + io.lanes.len();
        (self.single, self.fixed) = (NOWHERE, Route::NONE);
        let [only] = &self.subscriptions[..] else { return };
        let first = io.dests[only.targets[0] as usize].at;
        if here(first) && only.targets.iter().all(|t| io.dests[*t as usize].at == first) {
            self.single = first;
        }
        if let Some(target) = only.fixed() {
            let dest = io.dests[target as usize];
            self.fixed = Route { at: dest.at, target, credit: dest.credit };
        }
    }

    /// Where the value goes, if that is known before it is encoded and one task gets it.
    #[inline(always)]
    fn route<E: Emit>(&mut self, value: &E, io: &Io) -> Option<Route> {
        if self.fixed.at != NOWHERE {
            return Some(self.fixed);
        }
        let [only] = &mut self.subscriptions[..] else { return None };
        let target = only.fixed().or_else(|| only.choose_early(value))?;
        let dest = io.dests[target as usize];
        Some(Route { at: dest.at, target, credit: dest.credit })
    }
}

impl<'a> Cx<'a> {
    /// Place of the output stream that this Rust type names; `None` where the wiring never declared it, so nobody can read it.
    #[inline(always)]
    pub fn output(&self, tag: std::any::TypeId) -> Option<usize> {
        let declared = &self.out.outputs[self.first_output..];
        match declared.first() {
            Some(first) if first.tag == tag && self.out.outputs_per_task > 0 => Some(0),
            _ => self.out.outputs[self.first_output..self.first_output + self.out.outputs_per_task].iter().position(|o| o.tag == tag),
        }
    }

    /// Emits on the component's `output`-th stream. What cannot go now waits in the outbox; a value that is too large or a full outbox fails
    /// the input.
    #[inline(always)]
    pub fn emit<E: Emit>(&mut self, output: usize, value: &E) {
        let (io, out) = (&mut *self.io, &mut *self.out);
        out.emitted += 1;
        if out.emitted == out.sample_at {
            return self.emit_sampled(output, value);
        }
        let declared = &out.outputs[self.first_output + output];
        let (stream, route) = (declared.stream, declared.fixed);
        if self.marks.flags | self.kind != 0 || out.attention || !io.has_room_now(route.at) {
            return self.emit_anchored(output, value);
        }
        self.write_to::<E, 0>(stream, route, value);
    }

    /// As `emit`, where there are marks: a single anchor is as quick.
    #[inline(never)]
    fn emit_anchored<E: Emit>(&mut self, output: usize, value: &E) {
        let declared = &self.out.outputs[self.first_output + output];
        let (stream, route) = (declared.stream, declared.fixed);
        if self.marks.flags != ONE_ANCHOR || self.out.attention || !self.io.has_room_now(route.at) {
            return self.emit_by_key(output, value);
        }
        self.write_to::<E, ONE_ANCHOR>(stream, route, value);
    }

    /// As `emit`, where the value says where it goes; or the general way.
    #[inline(never)]
    fn emit_by_key<E: Emit>(&mut self, output: usize, value: &E) {
        let (io, out) = (&mut *self.io, &mut *self.out);
        let declared = &mut out.outputs[self.first_output + output];
        if !out.attention
            && let Some(route) = declared.route(value, io)
            && io.has_room_now(route.at)
        {
            if self.kind != 0 && io.staged_here(route.at).is_none() {
                // Another worker's caches are its own affair.
                return;
            }
            let stream = declared.stream;
            match self.marks.flags | self.kind {
                0 => return self.write_to::<E, 0>(stream, route, value),
                ONE_ANCHOR => return self.write_to::<E, ONE_ANCHOR>(stream, route, value),
                WARM => return self.write_to::<E, WARM>(stream, route, value),
                _ => {}
            }
        }
        self.emit_marked(output, value);
    }

    /// Writes a frame to a place that has room, with these flags: none, a single anchor and its block, or WARM.
    #[inline(always)]
    fn write_to<E: Emit, const FLAGS: u16>(&mut self, stream: u16, to: Route, value: &E) {
        let (io, out) = (&mut *self.io, &mut *self.out);
        let staging = &mut io.staging[to.at as usize];
        let start = staging.frames.len();
        let edge = if FLAGS == ONE_ANCHOR { io.acks.edges.edge() } else { 0 };
        let block = [self.marks.only_block(edge)];
        let header = Header { len: 0, stream, flags: FLAGS, target: to.target, source: self.task };
        if let Err(e) = io.encoder.append_frame(header, if FLAGS == ONE_ANCHOR { &block } else { &[] }, value, &mut staging.frames) {
            return self.fail(Fail::Drop(e.to_string()));
        }
        let n = staging.frames.len() - start;
        let bit = staging.worker_bit;
        if !io.credits[to.credit as usize].admits(n) {
            if FLAGS == WARM {
                return io.staging[to.at as usize].frames.truncate(start);
            }
            let kept = out.take_back(io, to.at, start);
            if FLAGS == ONE_ANCHOR && kept.is_ok() {
                self.marks.sent_only(edge, 0);
            }
            return self.note(kept);
        }
        io.credits[to.credit as usize].spend(n);
        out.transferred += 1;
        if FLAGS == ONE_ANCHOR {
            self.marks.sent_only(edge, bit);
            self.marks.lies_at(to.at, start + HEADER_BYTES, start + n);
        }
        if !io.written(to.at, start) {
            out.wait_for_room(to.at);
        }
    }

    /// The sampler's turn: this emit carries when it was made.
    #[cold]
    #[inline(never)]
    fn emit_sampled<E: Emit>(&mut self, output: usize, value: &E) {
        let sampled = self.sample_emit();
        self.emit_marked(output, value);
        if sampled {
            self.marks.unsample();
        }
    }

    /// True when the marks are sampled now and are to be unsampled after the emit.
    #[cold]
    fn sample_emit(&mut self) -> bool {
        self.out.sample_at += self.out.sample_every;
        // A paced spout's tuples carry the time they were meant to be emitted already.
        let paced = self.marks.is_sampled();
        if !paced {
            self.marks.sample(self.io.now_ns());
        }
        if let (Some(birth_ns), Some((root, _))) = (self.marks.birth_ns(), self.marks.each().next()) {
            self.io.acks.sample(self.out.trackers[self.index], root, birth_ns);
        }
        !paced
    }

    /// As `emit`, with blocks in front of the archive, or where a target has to be chosen or refuses: with one subscription the frame is
    /// written straight to where it goes, if that is known or the same for all targets.
    #[inline(never)]
    fn emit_marked<E: Emit>(&mut self, output: usize, value: &E) {
        let (io, out) = (&mut *self.io, &mut *self.out);
        let Output { stream, single, subscriptions, .. } = &mut out.outputs[self.first_output + output];
        let (stream, single) = (*stream, *single);
        let only = match &mut subscriptions[..] {
            [] => return,
            [only] if out.outbox_bytes == 0 && only.picks_one() => only,
            _ if self.kind != 0 => return,
            _ => return self.emit_aside(output, value, None),
        };
        let early = match only.reads_archive() {
            true => only.choose_early(value).map(Chosen::One),
            false => Some(only.choose(&[], io)),
        };
        let at = match early {
            Some(Chosen::One(task)) => io.dests[task as usize].at,
            Some(_) => NOWHERE,
            // Written for the first of the places; moved when the tuple is another's.
            None if single == NOWHERE => io.dests[only.targets[0] as usize].at,
            None => single,
        };
        // One way for both kinds: what a warm call passes by would be cold.
        if !io.has_room(at) || (self.kind != 0 && (early.is_none() || io.staged_here(at).is_none())) {
            return if self.kind == 0 {
                self.emit_aside(output, value, early)
            };
        }
        if self.marks.is_sampled() {
            self.marks.stamp_sent(io.now_ns());
        }
        let edges = self.marks.new_edges(&mut io.acks.edges);
        let (blocks, n_blocks) = self.marks.blocks(&edges);
        let header = Header { len: 0, stream, flags: self.marks.flags | self.kind, target: 0, source: self.task };
        let staged = &mut io.staging[at as usize].frames;
        let start = staged.len();
        let archive = match io.encoder.append_frame(header, &blocks[..n_blocks], value, staged) {
            Ok(archive) => archive,
            Err(e) => return self.fail(Fail::Drop(e.to_string())),
        };
        let Chosen::One(target) = early.unwrap_or_else(|| only.choose(archive_of(&io.staging[at as usize].frames, start, archive), io))
        else {
            unreachable!("it picks one")
        };
        let staged = &mut io.staging[at as usize].frames;
        staged[start + 8..start + 12].copy_from_slice(&target.to_le_bytes());
        let n = staged.len() - start;
        let dest = io.dests[target as usize];
        let (at, start) = if dest.at == at || !io.has_room(dest.at) { (at, start) } else { (dest.at, io.move_staged(at, start, dest.at)) };
        let credit = &mut io.credits[dest.credit as usize];
        // Not where it is to go: that place takes nothing now.
        if dest.at == at && credit.admits(n) {
            credit.spend(n);
            out.transferred += 1;
            self.marks.sent(edges, io.staging[at as usize].worker_bit);
            if !io.written(at, start) {
                out.wait_for_room(at);
            }
            return;
        }
        if self.kind != 0 {
            return io.staging[at as usize].frames.truncate(start);
        }
        let kept = out.take_back(io, at, start);
        if kept.is_ok() {
            self.marks.sent(edges, 0);
        }
        self.note(kept);
    }

    /// The general way: write the frame aside, copy it to each receiver. `early` = a choice already made for the only subscription.
    #[inline(never)]
    fn emit_aside<E: Emit>(&mut self, output: usize, value: &E, early: Option<Chosen>) {
        let mut early = early;
        let mut result = Ok(());
        match self.write_aside(output, value) {
            Err(e) => result = Err(e),
            Ok((mut frame, archive)) => {
                for n in 0..self.out.outputs[self.first_output + output].subscriptions.len() {
                    // A choice may panic: nothing is taken out of the output meanwhile.
                    let subscription = &mut self.out.outputs[self.first_output + output].subscriptions[n];
                    let chosen = early.take().unwrap_or_else(|| subscription.choose(archive_of(&frame, 0, archive), self.io));
                    if let Chosen::Refused(why) = chosen {
                        result = Err(subscription.refusal(why));
                    }
                    let mut tasks = std::mem::take(&mut self.io.chosen);
                    tasks.clear();
                    tasks.extend_from_slice(subscription.tasks(&chosen));
                    for target in &tasks {
                        if let Err(why) = self.send_copy(&mut frame, *target) {
                            result = Err(why);
                        }
                    }
                    self.io.chosen = tasks;
                }
                self.io.scratch = frame;
            }
        }
        self.note(result);
    }

    /// Emits on the component's `output`-th stream to one task, whatever the groupings.
    pub(crate) fn emit_to<E: Emit>(&mut self, output: usize, target: u32, value: &E) -> Result<(), Fail> {
        if self.is_warming() {
            return Ok(());
        }
        self.out.emitted += 1;
        let sampled = self.out.emitted == self.out.sample_at && self.sample_emit();
        let result = self.write_aside(output, value).and_then(|(mut frame, _)| {
            let result = self.send_copy(&mut frame, target);
            self.io.scratch = frame;
            result
        });
        if sampled {
            self.marks.unsample();
        }
        result
    }

    /// Writes the frame into the loop's scratch, which the caller puts back. Returns where the archive begins.
    fn write_aside<E: Emit>(&mut self, output: usize, value: &E) -> Result<(Vec<u8>, usize), Fail> {
        let (io, out) = (&mut *self.io, &mut *self.out);
        if self.marks.is_sampled() {
            self.marks.stamp_sent(io.now_ns());
        }
        let stream = out.outputs[self.first_output + output].stream;
        let header = Header { len: 0, stream, flags: self.marks.flags, target: 0, source: self.task };
        let mut frame = std::mem::take(&mut io.scratch);
        frame.clear();
        let (blocks, n_blocks) = self.marks.blocks(&[0; ANCHORS_MAX]);
        match io.encoder.append_frame(header, &blocks[..n_blocks], value, &mut frame) {
            Ok(archive) => Ok((frame, archive)),
            Err(e) => {
                io.scratch = frame;
                Err(Fail::Drop(e.to_string()))
            }
        }
    }

    /// Sends a copy of a frame written aside. Each copy is an edge of its own.
    #[inline]
    fn send_copy(&mut self, frame: &mut [u8], target: u32) -> Result<(), Fail> {
        frame[8..12].copy_from_slice(&target.to_le_bytes());
        let edges = self.marks.new_edges(&mut self.io.acks.edges);
        let (blocks, n_blocks) = self.marks.blocks(&edges);
        write_blocks(frame, &blocks[..n_blocks]);
        let bit = self.out.send(self.io, target, frame, true)?;
        self.marks.sent(edges, bit);
        Ok(())
    }

    /// Emits on a spout's stream with a message id: the tree that begins is told of by `acked` or `failed`.
    #[inline(always)]
    pub fn emit_tracked<E: Emit>(&mut self, output: Option<usize>, id: u64, value: &E) {
        let (io, out) = (&mut *self.io, &mut *self.out);
        let Some(declared) = output.and_then(|output| out.outputs.get(self.first_output + output)) else {
            return self.emit_tracked_marked(output, id, value);
        };
        let fixed = declared.fixed;
        let staging = &mut io.staging[fixed.at as usize];
        let start = staging.frames.len();
        let marked = self.marks.flags | self.kind != 0 || out.attention || out.emitted + 1 == out.sample_at;
        if marked || start >= staging.room || !io.acks.on {
            return self.emit_tracked_marked(output, id, value);
        }
        let tracker = out.trackers[self.index];
        let Some((root, edge, full)) = io.acks.begin_only(tracker, id, staging.worker_bit, io.turn_ns) else {
            return self.refuse_tracked(tracker, id);
        };
        out.emitted += 1;
        let header = Header { len: 0, stream: declared.stream, flags: ONE_ANCHOR, target: fixed.target, source: self.task };
        if let Err(e) = io.encoder.append_frame(header, &[[root.to_bits(), edge]], value, &mut staging.frames) {
            self.fail(Fail::Drop(e.to_string()));
            return self.fail_tree(tracker, root);
        }
        let n = staging.frames.len() - start;
        out.attention |= full;
        if !io.credits[fixed.credit as usize].admits(n) {
            return self.take_tree_back(fixed.at, start, tracker, root);
        }
        io.credits[fixed.credit as usize].spend(n);
        out.transferred += 1;
        if !io.written(fixed.at, start) {
            out.wait_for_room(fixed.at);
        }
    }

    /// The only frame of a tree has no credit: it waits in the outbox.
    #[cold]
    #[inline(never)]
    fn take_tree_back(&mut self, at: u16, start: usize, tracker: u16, root: crate::ledger::Root) {
        let kept = self.out.take_back(self.io, at, start);
        let lost = kept.is_err();
        self.note(kept);
        if lost {
            self.fail_tree(tracker, root);
        }
    }

    /// As `emit_tracked`, the general way: any number of frames, sampled or not.
    #[inline(never)]
    fn emit_tracked_marked<E: Emit>(&mut self, output: Option<usize>, id: u64, value: &E) {
        self.tracked(id, |cx| {
            if let Some(output) = output {
                cx.emit(output, value);
            }
        });
    }

    /// Runs `emit` in a tree of its own.
    #[inline(always)]
    pub(crate) fn tracked(&mut self, id: u64, emit: impl FnOnce(&mut Self)) {
        if self.is_warming() {
            return emit(self);
        }
        let tracker = self.out.trackers[self.index];
        if !self.io.acks.on {
            emit(self);
            self.io.acks.trackers[tracker as usize].acked.push(id);
            return;
        }
        let now_ns = self.io.turn_ns;
        let Some(root) = self.io.acks.open(tracker, id, now_ns) else { return self.refuse_tracked(tracker, id) };
        self.marks.begin_tree(root);
        emit(self);
        let (xor, mask) = self.marks.end_tree();
        // A tree without a frame is complete, unless it has none because they were refused.
        if xor != 0 || self.failure.is_none() {
            self.out.begin(self.io, tracker, root, xor, mask);
        }
        if self.failure.is_some() {
            self.fail_tree(tracker, root);
        }
        self.out.attention |= self.io.acks.trackers[tracker as usize].full();
    }

    #[cold]
    fn fail_tree(&mut self, tracker: u16, root: crate::ledger::Root) {
        let text = self.failure.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format!("{}: {text}", self.out.component);
        self.io.acks.fail_own(tracker, root, crate::ack::TreeFail { reason: crate::ack::Reason::Bolt, text }, self.io.turn_ns);
    }

    #[cold]
    fn refuse_tracked(&mut self, tracker: u16, id: u64) {
        let t = &mut self.io.acks.trackers[tracker as usize];
        let text = format!(
            "one call of `next` opened more trees than may be pending ({}); emit fewer per call, or raise topology.max.spout.pending or worker.pending.max",
            t.pending_max
        );
        t.failed.push((id, crate::ack::TreeFail { reason: crate::ack::Reason::Discarded, text }));
        self.out.attention = true;
    }

    /// Emits what `items` gives, at the pace of the receivers: as much as finds room now, the rest as the outbox drains. Until it is used up
    /// the executor takes no input, and the input is not handled. Items keep their order; call it last, since a later `emit` of the same
    /// call may overtake the rest. Allocates once if not everything could go at once.
    pub fn emit_from<E, I>(&mut self, output: usize, items: I)
    where
        E: Emit,
        I: Iterator<Item = E> + Send + 'static,
    {
        let mut items = items;
        self.emit_while(move |cx| match items.next() {
            Some(value) => {
                cx.emit(output, &value);
                true
            }
            None => false,
        });
    }

    /// Calls `next` for as long as it says true and there is room, now and as room comes: the way to emit many borrowed values. Otherwise as
    /// [`Self::emit_from`].
    pub fn emit_while(&mut self, next: impl FnMut(&mut Cx<'_>) -> bool + Send + 'static) {
        let mut next = next;
        if self.is_warming() {
            next(self);
            return;
        }
        let mut pull = move |cx: &mut Cx<'_>| {
            for _ in 0..PULL_ITEMS_MAX {
                // Other pulls wait for this one, not this one for them.
                if cx.out.is_blocked() {
                    return false;
                }
                if !next(cx) {
                    return true;
                }
            }
            false
        };
        if !self.out.pulls.is_empty() || !pull(self) {
            let marks = self.marks.split(&mut self.io.acks.edges);
            self.out.leave_pull(self.index, marks, Box::new(pull));
            self.left_pulls += 1;
        }
    }

    /// A frame that was refused for good fails the input.
    #[inline]
    pub(crate) fn note(&mut self, kept: Result<(), Fail>) {
        if let Err(why) = kept {
            self.fail(why);
        }
    }
}

/// The archive of the frame at `start`, which begins at `archive`.
#[inline(always)]
fn archive_of(frames: &[u8], start: usize, archive: usize) -> &[u8] {
    let len = u32::from_le_bytes(*frames[start..].first_chunk::<4>().expect("a whole frame"));
    &frames[archive..start + HEADER_BYTES + len as usize]
}

/// Writes blocks over those of `frame`.
fn write_blocks(frame: &mut [u8], blocks: &[Block]) {
    for (n, [first, second]) in blocks.iter().enumerate() {
        let block = u128::from(*first) | u128::from(*second) << 64;
        frame[HEADER_BYTES + n * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block.to_le_bytes());
    }
}

/// What an executor sends without a component: see `out.rs`.
impl Out {
    /// Tells every task downstream that `source` has ended, behind its frames.
    pub(crate) fn send_end(&mut self, io: &mut Io, source: u32) {
        self.ends_sent[(source - self.first_task) as usize] = true;
        self.send_end_to(io, source, |_| true);
    }

    /// Tells tasks whose credit has just opened what was told before: the link it went over may have taken it along, or the task is new.
    #[cold]
    pub(crate) fn send_ends_again(&mut self, io: &mut Io, to: impl Fn(u32) -> bool) {
        for index in 0..self.ends_sent.len() {
            if self.ends_sent[index] {
                self.send_end_to(io, self.first_task + index as u32, &to);
            }
        }
    }

    fn send_end_to(&mut self, io: &mut Io, source: u32, to: impl Fn(u32) -> bool) {
        let first = (source - self.first_task) as usize * self.outputs_per_task;
        let mut targets: Vec<u32> = self.outputs[first..first + self.outputs_per_task]
            .iter()
            .flat_map(|o| o.subscriptions.iter().flat_map(|s| s.targets.iter().copied()))
            .collect();
        targets.retain(|t| to(*t));
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            let frame = Header { len: 0, stream: 0, flags: saetta_tuple::frame::END, target, source }.encode();
            // One small frame per target, so not bounded: an end must not be lost.
            self.send(io, target, &frame, false).expect("unbounded");
        }
    }
}
