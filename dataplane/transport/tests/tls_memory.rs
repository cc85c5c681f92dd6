//! What one TLS session may cost, weighed by this program's allocator: a stranger's, and a link's.

use saetta_transport::{TLS_HANDSHAKE_BYTES_MAX, TLS_MEMORY_MAX, TLS_UNPROVEN_MEMORY_MAX, Tls, TlsError, TlsSetup};
use std::alloc::System;
use std::cell::Cell;
use tracking_allocator::{AllocationGroupId, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::system();

thread_local! {
    /// Bytes this thread holds, and the most it ever held.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

struct Scales;

impl AllocationTracker for Scales {
    fn allocated(&self, _: usize, bytes: usize, _: usize, _: AllocationGroupId) {
        let (now, most) = HELD.get();
        let now = now + bytes as i64;
        HELD.set((now, most.max(now)));
    }

    fn deallocated(&self, _: usize, bytes: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {
        let (now, most) = HELD.get();
        HELD.set((now - bytes as i64, most));
    }
}

/// The most that was held during `f` above what was held before.
fn weighed(f: impl FnOnce()) -> usize {
    let before = HELD.get().0;
    HELD.set((before, before));
    f();
    (HELD.get().1 - before) as usize
}

fn give(to: &mut Tls, bytes: &[u8]) -> Result<usize, TlsError> {
    let room = to.cipher_room();
    let n = room.len().min(bytes.len());
    room[..n].copy_from_slice(&bytes[..n]);
    to.received(n).map(|()| n)
}

fn carry(a: &mut Tls, b: &mut Tls) {
    for _ in 0..3 {
        let n = give(b, a.outgoing()).unwrap();
        a.written(n);
        let n = give(a, b.outgoing()).unwrap();
        b.written(n);
    }
}

/// One test: the scales are the process's.
#[test]
fn a_session_costs_no_more_than_is_said_whoever_is_at_the_other_end() {
    AllocationRegistry::set_global_tracker(Scales).unwrap();
    let setup = TlsSetup::new().unwrap();
    let hello = setup.dial().unwrap().outgoing().to_vec();
    AllocationRegistry::enable_tracking();

    // A hello that never ends; half a true one; a true one, then a record that never ends; empty records, which are no error at first.
    let endless = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0][..], &[7; 5000]].concat();
    let trickle = [&hello[..], &[0x14, 3, 3, 0, 1, 1].repeat(1000)].concat();
    let half = [&hello[..], &[0x17, 3, 3, 0x40, 0], &[9; 5000]].concat();
    for bytes in [&endless[..], &hello[..hello.len() / 2], &half, &trickle] {
        for piece in [1, 100, 5000] {
            let cost = weighed(|| {
                let mut stranger = setup.accept().unwrap();
                let mut taken = 0;
                for piece in bytes.chunks(piece) {
                    match give(&mut stranger, piece) {
                        Ok(n) if n > 0 => taken += n,
                        _ => break,
                    }
                    let _ = stranger.read(&mut [0; 64]);
                }
                assert!(taken <= TLS_HANDSHAKE_BYTES_MAX);
            });
            println!("a stranger costs {cost} bytes");
            assert!((TLS_HANDSHAKE_BYTES_MAX..=TLS_UNPROVEN_MEMORY_MAX).contains(&cost), "{cost} bytes, in pieces of {piece}");
        }
    }

    // A link whose peer sends and never takes: full both ways.
    let mut peer = setup.dial().unwrap();
    let cost = weighed(|| {
        let mut link = setup.accept().unwrap();
        carry(&mut peer, &mut link);
        let unproven = HELD.get().1;
        println!("both ends, not yet open, and what they hold: {unproven} bytes");
        link.open();
        while link.seal(&[1; 4000]) > 0 {}
        peer.open();
        loop {
            peer.seal(&[2; 50_000]);
            let n = give(&mut link, peer.outgoing()).unwrap();
            if n == 0 {
                break;
            }
            peer.written(n);
        }
    });
    println!("both ends of a link, full, cost {cost} bytes");
    assert!((TLS_MEMORY_MAX / 2..=2 * TLS_MEMORY_MAX).contains(&cost), "{cost} bytes");
    AllocationRegistry::disable_tracking();
}
