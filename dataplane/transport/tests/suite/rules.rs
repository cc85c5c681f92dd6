//! The ten rules of the transport for io_uring, each where it can be seen from outside; on every kind, since what they guard is the same.
//! Rule 9, the fallback, is `refused.rs`.

use crate::common::PATIENCE;
use crate::harness::*;
use saetta_transport::sim::Faults;
use saetta_transport::*;
use std::time::{Duration, Instant};

on_all! {
    c01_buffers_in_flight_belong_to_the_carrier_until_their_last_completion,
    c01_a_late_completion_never_reaches_the_next_link_of_a_place,
    c02_a_close_cancels_waits_and_then_closes,
    c03_every_completion_is_counted_and_every_place_freed,
    c04_what_is_not_written_at_once_is_written_later_and_once,
    c05_an_end_without_a_goodbye_is_a_loss,
    c05_a_goodbye_and_nothing_more_loses_what_was_not_counted,
    c06_five_hundred_operations_completing_at_once_are_all_seen,
    c07_a_link_takes_the_memory_it_is_said_to_and_pins_none,
    c08_a_carrier_stays_on_its_thread,
    c10_no_thread_of_the_kernel_polls_for_us,
}

on! { [uring Uring, epoll Epoll, simulated Simulated]
    c04_writes_cut_short_go_on_where_they_stopped,
    c05_a_goodbye_counts_though_nothing_can_be_sent_any_more,
}

/// Places are taken again at once, with sends and receives of their last links still at the kernel.
fn c01_buffers_in_flight_belong_to_the_carrier_until_their_last_completion(kind: Kind) {
    let mut w = World::new(kind, 2);
    let mut random = Random(5);
    let mut links: Vec<(At, At)> = (0..8).map(|_| w.join(0, 1)).collect();
    for _ in 0..300 {
        for &(a, b) in &links {
            w.offer(a, 4000);
            w.offer(b, 10);
        }
        // The peer reads little: sends wait in the kernel.
        w.turn_only(if random.below(4) == 0 { &[0, 1] } else { &[0] });
        let i = random.below(8) as usize;
        if random.below(2) == 0 {
            let (a, b) = links[i];
            w.of(a).close(a.link);
            links[i] = w.join(0, 1);
            w.both_end(a, b);
            w.account(a, b);
            w.account(b, a);
        }
    }
    // All that is left is whole: nobody wrote into a buffer that was another link's before.
    for (a, b) in links {
        w.settle(a, b);
    }
}

fn c01_a_late_completion_never_reaches_the_next_link_of_a_place(kind: Kind) {
    let mut w = World::new(kind, 2);
    for round in 0..200 {
        let (a, b) = w.join(0, 1);
        w.send(a, 1, round);
        w.send(b, 1, round);
        // Both have an operation at the kernel, and the peer's end makes both complete.
        w.until("both are there", |w| w.told(a).frames.len() == 1 && w.told(b).frames.len() == 1);
        w.of(b).close(b.link);
        let (next, its) = w.join(0, 1);
        w.send(next, 2, round);
        w.arrive(next, its);
        w.both_end(a, b);
        assert_eq!((w.told(a).how(), w.has_ended(next)), (How::Gone, false));
        w.of(next).close(next.link);
        w.both_end(next, its);
        w.account(next, its);
        w.until("all places are free", |w| w.of(a).idle() && w.of(b).idle());
    }
}

fn c02_a_close_cancels_waits_and_then_closes(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    // A send that cannot end by itself, and a receive that waits.
    while w.offer(a, 5000) {
        w.turn_only(&[0]);
    }
    w.turn_only(&[0]);
    w.of(a).close(a.link);
    let start = Instant::now();
    w.until_only(&[0], "its operations have ended, whatever the peer does", |w| w.has_ended(a) && w.of(a).idle());
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!((w.told(a).how(), w.carrier(0).links().count()), (How::ClosedHere, 0));
    w.until("the connection is closed", |w| w.has_ended(b));
    w.account(a, b);
    let (a, b) = w.join(0, 1);
    assert_eq!((a.link.place(), b.link.place()), (0, 0), "its place is free");
}

fn c03_every_completion_is_counted_and_every_place_freed(kind: Kind) {
    let mut w = World::new(kind, 2);
    let mut random = Random(9);
    for _ in 0..300 {
        let (a, b) = w.join(0, 1);
        assert_eq!((a.link.place(), b.link.place()), (0, 0), "the place of the last one is free");
        for _ in 0..random.below(5) {
            w.offer(a, 100);
            w.offer(b, 20_000);
            w.turn();
        }
        // Ended by one, by the other, by both at once; by word or by force.
        for at in [a, b] {
            match random.below(4) {
                0 => w.of(at).close(at.link),
                1 => w.of(at).say_goodbye(at.link),
                _ => {}
            }
        }
        w.turn();
        w.of(a).close(a.link);
        w.both_end(a, b);
        w.until("nothing is held", |w| w.of(a).idle() && w.of(b).idle());
        w.account(a, b);
        w.account(b, a);
    }
}

fn c04_what_is_not_written_at_once_is_written_later_and_once(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    assert!(w.offer(a, 2 << 20));
    w.settle(a, b);
    // Every other turn the peer takes nothing.
    for i in 0..400 {
        w.offer(a, 7000);
        w.turn_only(if i % 2 == 0 { &[0] } else { &[0, 1] });
    }
    w.settle(a, b);
}

fn c04_writes_cut_short_go_on_where_they_stopped(kind: Kind) {
    let narrow = Faults { buffer_bytes: 3000, arrive_bytes_max: 333, ..Default::default() };
    let (mut w, a, b, _) = World::wired(kind, narrow.clone(), narrow);
    for i in 0..200 {
        w.send(a, 1, 7000 + i % 100);
    }
    w.settle(a, b);
    // io_uring is asked to write all and does.
    if w.carrier(0).kind() == "epoll" || kind == Kind::Simulated {
        assert!(w.counters(0).sends_short > 0, "{:?}", w.counters(0));
    }
    assert_eq!((w.counters(1).crc_errors, w.counters(1).protocol_errors), (0, 0), "no byte twice, none left out");
}

fn c05_an_end_without_a_goodbye_is_a_loss(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(b, 1, 10);
    w.settle(a, b);
    w.kill(1);
    w.until("it is told", |w| w.has_ended(a));
    assert_eq!(w.told(a).how(), How::Gone, "though all was counted and the stream ended in good order");
    assert_eq!((w.counters(0).links_goodbye, w.counters(0).links_lost), (0, 1));
}

/// A goodbye does not make good what its sender never counted.
fn c05_a_goodbye_and_nothing_more_loses_what_was_not_counted(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 3, 100);
    w.settle(a, b);
    w.of(b).say_goodbye(b.link);
    w.flush(1);
    for _ in 0..4 {
        assert!(w.offer(a, 100));
    }
    w.kill(1);
    w.until("it is told", |w| w.has_ended(a));
    assert_eq!(w.told(a).how(), How::Gone);
    assert_eq!(w.told(a).lost, w.sent(a)[3..]);
    w.account(a, b);
}

fn c05_a_goodbye_counts_though_nothing_can_be_sent_any_more(kind: Kind) {
    for with_grant in [false, true] {
        let (mut w, at, mut hand) = World::by_hand(kind);
        let frames = some_frames(3, 50);
        hand.write(&segments(&frames, true).concat());
        drop(hand);
        if with_grant {
            // The first send after the other end is closed may be answered by a reset.
            w.of(at).grant(at.link, 1, 1);
            w.flush(0);
        }
        w.until("it is told", |w| w.has_ended(at));
        assert_eq!(w.told(at).how(), How::Goodbye, "with_grant {with_grant}");
        assert!(w.told(at).frames == frames);
    }
}

fn c06_five_hundred_operations_completing_at_once_are_all_seen(kind: Kind) {
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..250).map(|_| w.join(0, 1)).collect();
    w.turn();
    for round in 1..=5 {
        for &(a, b) in &links {
            assert!(w.offer(a, 200) && w.offer(b, 200));
        }
        // Sent on both sides before either looks.
        w.flush(0);
        w.flush(1);
        w.until("all are there", |w| links.iter().all(|l| w.told(l.0).frames.len() == round && w.told(l.1).frames.len() == round));
    }
    // And all their ends in one.
    w.kill(1);
    w.until("all ends are told", |w| links.iter().all(|l| w.has_ended(l.0)));
    for &(a, b) in &links {
        w.account(a, b);
    }
}

fn c07_a_link_takes_the_memory_it_is_said_to_and_pins_none(kind: Kind) {
    let (mut w, a, _) = World::pair(kind);
    let mut refusals = 0;
    while refusals < 100 {
        refusals = if w.offer(a, 100) { 0 } else { refusals + 1 };
        w.turn_only(&[0]);
    }
    let kept = link_memory_bytes(RING as usize, RING as usize) - RING as usize;
    assert!(w.sent_bytes(a) <= kept as u64, "what the peer has not counted: {} of {kept} bytes", w.sent_bytes(a));
    // Registered buffers would count here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let pinned = status.lines().find_map(|l| l.strip_prefix("VmPin:")).unwrap();
    assert_eq!(pinned.split_whitespace().next(), Some("0"));
}

fn c08_a_carrier_stays_on_its_thread(kind: Kind) {
    // Compiles only as long as `Carrier` is not `Send`: else there are two that could be meant.
    trait Meant<Which> {
        fn meant(&self) {}
    }
    struct IfSend;
    impl<T: ?Sized> Meant<()> for T {}
    impl<T: ?Sized + Send> Meant<IfSend> for T {}
    let mut w = World::new(kind, 1);
    Meant::meant(w.carrier(0));
}

fn c10_no_thread_of_the_kernel_polls_for_us(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 10, 10);
    w.settle(a, b);
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // A thread that has ended meanwhile is none of the kernel's.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    let polling: Vec<_> = names.filter(|name| name.starts_with("iou-sqp")).collect();
    assert!(polling.is_empty(), "{polling:?}");
}

/// Errors that pass, of every call that epoll makes on a socket: the link is neither lost nor spun on, and the other one goes on. Under io_uring
/// the kernel keeps these to itself; the reaction to them is the same lines.
#[test]
fn c06_errors_that_pass_end_no_link() {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
    for errno in [libc::EAGAIN, libc::EINTR, libc::ENOMEM, libc::ENOBUFS] {
        std::thread::spawn(move || {
            let mut w = World::new(Kind::Epoll, 2);
            let [connection, peer_end] = w.connections([0, 1], [RING, RING]);
            let Connection::Socket(socket) = &connection else { unreachable!() };
            let fd = std::os::fd::AsRawFd::as_raw_fd(socket) as u64;
            let now_ns = w.now_ns;
            let link = w.carrier(0).add(connection, peer(RING, RING), now_ns).unwrap();
            let there = w.carrier(1).add(peer_end, peer(RING, RING), now_ns).unwrap();
            let (a, b) = w.join(0, 1);
            w.turn();
            let on = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, fd).unwrap();
            let rule = SeccompRule::new(vec![on]).unwrap();
            let rules = [libc::SYS_sendto, libc::SYS_recvfrom].map(|call| (call, vec![rule.clone()]));
            crate::traced::filter(rules.into(), SeccompAction::Allow, SeccompAction::Errno(errno as u32));
            let frame = &some_frames(1, 100)[0];
            assert_eq!(w.carrier(1).stage(there, frame), frame.len());
            assert_eq!(w.carrier(0).stage(link, frame), frame.len());
            let start = Instant::now();
            for i in 0..50 {
                assert!(start.elapsed() < PATIENCE);
                w.send(a, 1, i);
                w.arrive(a, b);
                w.now_ns += MS;
            }
            assert_eq!(w.carrier(0).links().count(), 2, "errno {errno}");
            assert!(w.carrier(0).positions(link).is_some_and(|(staged, counted)| staged == 120 && counted == 0));
            assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [0, 0]);
        })
        .join()
        .unwrap();
    }
}
