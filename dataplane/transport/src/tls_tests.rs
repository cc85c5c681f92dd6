//! Both ends on one thread, whoever may stand between them, and what strangers send.

use super::*;
use crate::handshake::{AcceptorHandshake, Admission, Claim, DialerHandshake, HandshakeError, Identity, Key, Outcome, Role, Step, Verdict};
use proptest::prelude::*;

/// One key pair for all tests of a run.
fn setup() -> &'static TlsSetup {
    static SETUP: std::sync::OnceLock<TlsSetup> = std::sync::OnceLock::new();
    SETUP.get_or_init(|| TlsSetup::new().unwrap())
}

type Proven = (Result<Verdict, HandshakeError>, Result<Outcome, HandshakeError>);

fn ends() -> (Tls, Tls) {
    (setup().dial().unwrap(), setup().accept().unwrap())
}

fn key(n: u8) -> Key {
    Key::new([n; 32]).unwrap()
}

fn identity(placement: u64) -> Identity {
    Identity { topology: "wc-1".into(), placement, start: 3, index: placement as u32, format: [9; 32], ring_bytes: 1 << 18 }
}

fn claim() -> Claim {
    Claim { role: Role::Link, from: identity(1), from_loop: 4, to_loop: 5, road: crate::carrier::Road::Data, to_placement: 2 }
}

/// Gives `to` as much of `bytes` as it takes; returns how much.
fn give(to: &mut Tls, bytes: &[u8]) -> Result<usize, TlsError> {
    let room = to.cipher_room();
    let n = room.len().min(bytes.len());
    room[..n].copy_from_slice(&bytes[..n]);
    to.received(n)?;
    Ok(n)
}

/// Carries ciphertext both ways, `cut` bytes at a time, until there is none.
fn carry(a: &mut Tls, b: &mut Tls, cut: usize) -> Result<(), TlsError> {
    loop {
        let mut moved = 0;
        for turn in [true, false] {
            let (from, to) = if turn { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            let some = from.outgoing()[..from.outgoing().len().min(cut)].to_vec();
            if !some.is_empty() {
                let n = give(to, &some)?;
                from.written(n);
                moved += n;
            }
        }
        if moved == 0 {
            return Ok(());
        }
    }
}

fn established() -> (Tls, Tls) {
    let (mut a, mut b) = ends();
    carry(&mut a, &mut b, usize::MAX).unwrap();
    assert!(a.binding().is_some() && a.binding() == b.binding());
    (a, b)
}

fn opened() -> (Tls, Tls) {
    let (mut a, mut b) = established();
    a.open();
    b.open();
    (a, b)
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn read_all(from: &mut Tls) -> Vec<u8> {
    let mut all = vec![];
    let mut buffer = [0; 1000];
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

fn prove(a: &mut Tls, b: &mut Tls, keys: (Key, Key), said: &mut Vec<u8>) -> Proven {
    prove_by(a, b, keys, true, said, &mut |a, b| carry(a, b, usize::MAX).unwrap())
}

/// The handshake of `handshake.rs` between the outer ends of one session, or of two with a man between who relays.
fn prove_by(
    a: &mut Tls,
    b: &mut Tls,
    keys: (Key, Key),
    bind: bool,
    said: &mut Vec<u8>,
    carry: &mut dyn FnMut(&mut Tls, &mut Tls),
) -> Proven {
    let mut dialer = DialerHandshake::new(keys.0, &claim(), [1; 32]);
    let mut acceptor = AcceptorHandshake::new(keys.1, [2; 32]);
    if bind {
        dialer.bind(a.binding());
        acceptor.bind(b.binding());
    }
    let mut outcome = None;
    let mut buffer = [0; 512];
    for _ in 0..100 {
        let out = dialer.take_output();
        said.extend_from_slice(&out);
        assert_eq!(a.seal(&out), out.len());
        let out = acceptor.take_output();
        assert_eq!(b.seal(&out), out.len());
        carry(a, b);
        if outcome.is_none() {
            let n = b.read(&mut buffer[..acceptor.wants()]).unwrap();
            match acceptor.input(&buffer[..n], &identity(2), &mut |_| Ok(Admission::Link)) {
                Ok(Step::Done(o)) => outcome = Some(o),
                Ok(Step::Read(_)) => {}
                Err(e) => return (Err(HandshakeError::Foreign), Err(e)),
            }
        }
        let n = a.read(&mut buffer[..dialer.wants()]).unwrap();
        match dialer.input(&buffer[..n]) {
            Ok(Step::Done(verdict)) => return (Ok(verdict), Ok(outcome.expect("a verdict has an outcome"))),
            Ok(Step::Read(_)) => {}
            Err(e) => return (Err(e), Err(HandshakeError::Foreign)),
        }
    }
    panic!("the handshake stands still")
}

#[test]
fn a_session_is_made_and_carries_both_ways_however_the_ciphertext_is_cut() {
    for cut in [1, 2, 5, 64, 1000, usize::MAX] {
        let (mut a, mut b) = ends();
        carry(&mut a, &mut b, cut).unwrap();
        assert!(a.binding().is_some() && a.binding() == b.binding(), "cut at {cut}");
        a.open();
        b.open();
        let (there, back) = (noise(1, 40_000), noise(2, 3));
        assert_eq!((a.seal(&there), b.seal(&back)), (40_000, 3));
        // The incoming buffer holds more than that.
        carry(&mut a, &mut b, cut).unwrap();
        assert!(read_all(&mut b) == there && read_all(&mut a) == back, "cut at {cut}");
        assert!(!a.closed() && !b.closed());
    }
}

#[test]
fn every_two_pieces_of_what_each_side_says_first_do() {
    // What the dialer says, its finish and a first message included, is cut in two at each byte; the same for the acceptor.
    let mut k = 1;
    loop {
        let (mut a, mut b) = ends();
        let mut longest = 0;
        for _ in 0..4 {
            for turn in [true, false] {
                let (from, to) = if turn { (&mut a, &mut b) } else { (&mut b, &mut a) };
                from.seal(b"first");
                let all = from.outgoing().to_vec();
                longest = longest.max(all.len());
                for piece in [&all[..k.min(all.len())], &all[k.min(all.len())..]] {
                    assert_eq!(give(to, piece), Ok(piece.len()));
                }
                from.written(all.len());
            }
        }
        assert!(a.binding().is_some() && a.binding() == b.binding(), "cut at {k}");
        assert!(read_all(&mut a).starts_with(b"first") && read_all(&mut b).starts_with(b"first"), "cut at {k}");
        k += 1;
        if k > longest {
            break;
        }
    }
    assert!(k > 200, "the hellos alone are longer: {k}");
}

#[test]
fn no_two_sessions_have_a_binding_in_common() {
    let (one, other) = (established(), established());
    assert_ne!(one.0.binding(), other.0.binding());
}

#[test]
fn the_key_is_proven_inside_and_what_follows_is_kept() {
    let (mut a, mut b) = established();
    let (verdict, outcome) = prove(&mut a, &mut b, (key(1), key(1)), &mut vec![]);
    assert_eq!((verdict.unwrap().placement, outcome.unwrap().claim), (2, claim()));
    let most = a.taken.max(b.taken);
    assert!(most * 3 < TLS_HANDSHAKE_BYTES_MAX, "{most} bytes came in");
    // The acceptor may speak before the dialer has opened.
    b.open();
    assert_eq!(b.seal(b"at once"), 7);
    carry(&mut a, &mut b, usize::MAX).unwrap();
    a.open();
    assert_eq!(read_all(&mut a), b"at once");
}

#[test]
fn a_wrong_key_is_refused_over_tls_as_well() {
    let (mut a, mut b) = established();
    assert_eq!(prove(&mut a, &mut b, (key(1), key(2)), &mut vec![]).0, Err(HandshakeError::Proof));
}

#[test]
fn a_man_in_the_middle_who_relays_every_word_is_refused() {
    // He is an acceptor to the dialer and a dialer to the acceptor, each of which has the right key.
    let ((mut a, mut to_a), (mut to_b, mut b)) = (established(), established());
    let mut relay = |a: &mut Tls, b: &mut Tls| {
        for _ in 0..3 {
            carry(a, &mut to_a, usize::MAX).unwrap();
            carry(&mut to_b, b, usize::MAX).unwrap();
            let (there, back) = (read_all(&mut to_a), read_all(&mut to_b));
            assert_eq!((to_b.seal(&there), to_a.seal(&back)), (there.len(), back.len()));
        }
    };
    let (verdict, _) = prove_by(&mut a, &mut b, (key(1), key(1)), true, &mut vec![], &mut relay);
    assert_eq!(verdict, Err(HandshakeError::Proof), "the dialer sees it first, before it says anything about itself");

    // It is the binding that tells: ends that leave it out would believe him.
    let (verdict, outcome) = prove_by(&mut a, &mut b, (key(1), key(1)), false, &mut vec![], &mut relay);
    assert!(verdict.is_ok() && outcome.is_ok());
}

#[test]
fn words_recorded_in_one_session_prove_nothing_in_another() {
    let (mut a, mut b) = established();
    let mut said = vec![];
    prove(&mut a, &mut b, (key(1), key(1)), &mut said).1.unwrap();
    // The same nonce at the acceptor, which chance never gives: the binding alone refuses.
    for (again, result) in [(b.binding(), true), (established().1.binding(), false), (None, false)] {
        let mut acceptor = AcceptorHandshake::new(key(1), [2; 32]);
        acceptor.bind(again);
        let (hello, rest) = said.split_at(acceptor.wants());
        acceptor.input(hello, &identity(2), &mut |_| Ok(Admission::Link)).unwrap();
        let end = acceptor.input(rest, &identity(2), &mut |_| Ok(Admission::Link));
        assert_eq!(end.is_ok(), result);
        assert!(result || end == Err(HandshakeError::Proof));
    }
}

#[test]
fn recorded_ciphertext_opens_no_session() {
    let (mut a, mut b) = ends();
    let mut recorded = vec![];
    for _ in 0..3 {
        recorded.extend_from_slice(a.outgoing());
        carry(&mut a, &mut b, usize::MAX).unwrap();
        a.seal(b"hello");
    }
    let mut again = setup().accept().unwrap();
    let end = give(&mut again, &recorded);
    assert!(matches!(end, Err(TlsError::Broken(_))), "{end:?}");
    assert!(again.binding().is_none());
}

#[test]
fn a_worker_without_tls_is_told_from_noise() {
    let hello = DialerHandshake::new(key(1), &claim(), [1; 32]).take_output();
    for (bytes, end) in [
        (&hello[..], TlsError::Plain),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", TlsError::Foreign),
        (b"SSH-2.0-OpenSSH_9.2\r\n", TlsError::Foreign),
        (&[0; 64], TlsError::Foreign),
    ] {
        for cut in [1, bytes.len()] {
            let mut b = setup().accept().unwrap();
            let got = bytes.chunks(cut).find_map(|piece| give(&mut b, piece).err());
            assert_eq!(got, Some(end.clone()), "in pieces of {cut}");
            assert!(b.outgoing().len() == 7 && b.outgoing()[..2] == [0x15, 3], "an alert for who understands it");
            assert_eq!(give(&mut b, b"more"), Err(end.clone()), "for good");
        }
    }
    // Its counterpart: a worker without TLS knows that alert.
    let mut b = setup().accept().unwrap();
    give(&mut b, &hello).unwrap_err();
    let mut dialer = DialerHandshake::new(key(1), &claim(), [1; 32]);
    assert_eq!(dialer.input(b.outgoing()), Err(HandshakeError::Secured));
}

#[test]
fn garbage_after_the_hello_ends_a_session_and_what_came_before_garbage_is_read() {
    let (a, mut b) = ends();
    give(&mut b, a.outgoing()).unwrap();
    let end = give(&mut b, &noise(3, 500));
    assert!(matches!(end, Err(TlsError::Broken(_))), "{end:?}");

    let (mut a, mut b) = opened();
    a.seal(b"good");
    let mut bytes = a.outgoing().to_vec();
    a.written(bytes.len());
    a.seal(b"changed on the way");
    bytes.extend_from_slice(a.outgoing());
    *bytes.last_mut().unwrap() ^= 1;
    let first = give(&mut b, &bytes);
    let mut buffer = [0; 100];
    assert_eq!(b.read(&mut buffer), Ok(4));
    assert_eq!(&buffer[..4], b"good");
    let end = first.and_then(|_| b.read(&mut buffer));
    assert!(matches!(end, Err(TlsError::Broken(_))), "{end:?}");
}

#[test]
fn a_stranger_says_four_kibibytes_and_no_more() {
    // A hello that claims to be long, in honest records.
    let mut b = setup().accept().unwrap();
    let mut record = vec![0x16, 3, 1, 0x10, 0];
    record.extend_from_slice(&[1, 0, 0xff, 0]);
    record.resize(5 + 0x1000, 0);
    let mut taken = 0;
    let end = loop {
        match give(&mut b, &record[taken..]) {
            Ok(0) => break b.read(&mut [0; 1]),
            Ok(n) => taken += n,
            Err(e) => break Err(e),
        }
    };
    assert_eq!((end, taken), (Err(TlsError::Long), TLS_HANDSHAKE_BYTES_MAX));
    assert!(b.cipher_room().is_empty());
    // One that has a session, and sends empty records for ever.
    let (mut a, mut b) = established();
    a.open();
    let end: Result<usize, _> = loop {
        assert_eq!(a.seal(&[0]), 1);
        let bytes = a.outgoing().to_vec();
        a.written(bytes.len());
        if let Err(e) = give(&mut b, &bytes) {
            break Err(e);
        }
        match b.read(&mut [0; 100]) {
            Ok(n) => assert!(n <= 1),
            Err(e) => break Err(e),
        }
    };
    assert_eq!(end, Err(TlsError::Long));
}

#[test]
fn a_full_buffer_takes_nothing_and_loses_nothing() {
    let (mut a, mut b) = opened();
    let all = noise(7, 1 << 20);
    let (mut sealed, mut got, mut full) = (0, vec![], 0);
    while got.len() < all.len() {
        let n = a.seal(&all[sealed..]);
        sealed += n;
        full += usize::from(n == 0 && sealed < all.len());
        assert!(a.outgoing.used <= TLS_OUTGOING_BYTES && b.incoming.used <= TLS_INCOMING_BYTES);
        // Carried without reading until nothing fits any more, then read a little.
        let some = a.outgoing().to_vec();
        let n = give(&mut b, &some).unwrap();
        a.written(n);
        if n == 0 {
            let mut buffer = [0; 30_000];
            let n = b.read(&mut buffer).unwrap();
            assert!(n > 0);
            got.extend_from_slice(&buffer[..n]);
        } else if sealed == all.len() && a.outgoing().is_empty() {
            got.extend_from_slice(&read_all(&mut b));
        }
    }
    assert!(got == all && full > 0, "full {full} times");
}

#[test]
fn bytes_under_way_stay_where_they_are() {
    let (mut a, mut b) = opened();
    a.seal(&noise(1, 5000));
    let (at, bytes) = (a.outgoing().as_ptr(), a.outgoing().to_vec());
    let room = b.cipher_room();
    let (room_at, room_len) = (room.as_ptr(), room.len());
    // A send and a receive are under way; meanwhile everything else goes on, until no room is left.
    b.seal(b"answer");
    while a.seal(&noise(2, 5000)) > 0 {}
    give(&mut a, b.outgoing()).unwrap();
    assert_eq!(read_all(&mut a), b"answer");
    assert_eq!(read_all(&mut b), b"");
    assert!(a.outgoing().as_ptr() == at && a.outgoing().starts_with(&bytes));
    // The kernel wrote where it was told to.
    let start = (room_at as usize, b.incoming.free().as_ptr() as usize);
    assert_eq!(start.0, start.1);
    assert!(room_len >= bytes.len());
    b.incoming.free()[..bytes.len()].copy_from_slice(&bytes);
    b.received(bytes.len()).unwrap();
    a.written(bytes.len());
    assert_eq!(read_all(&mut b), noise(1, 5000));
}

#[test]
fn an_end_that_was_said_is_told_from_one_that_was_not() {
    let (mut a, mut b) = opened();
    a.seal(b"last words");
    a.session.send_close_notify();
    carry(&mut a, &mut b, usize::MAX).unwrap();
    assert!(!b.closed(), "there is something to read");
    assert_eq!(read_all(&mut b), b"last words");
    assert!(b.closed() && !a.closed());
}

#[test]
fn keys_may_change_under_way() {
    let (mut a, mut b) = opened();
    let (mut sent, mut got) = (vec![], vec![]);
    for i in 0..20 {
        a.session.refresh_traffic_keys().unwrap();
        let bytes = noise(i, 1000);
        assert_eq!(a.seal(&bytes), bytes.len());
        sent.extend_from_slice(&bytes);
        carry(&mut a, &mut b, 700).unwrap();
        got.extend_from_slice(&read_all(&mut b));
        assert_eq!(b.seal(b"x"), 1);
        carry(&mut a, &mut b, 700).unwrap();
        assert_eq!(read_all(&mut a), b"x");
    }
    assert_eq!(got, sent);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes at whatever point of a session: an error or nothing, never a panic, never a byte of plaintext.
    #[test]
    fn foreign_ciphertext_is_never_believed(
        bytes in prop::collection::vec(any::<u8>(), 1..3000),
        header in prop::option::of((0x14u8..0x18, 0usize..3000)),
        stage in 0..4,
        cut in 1usize..4000,
    ) {
        let mut bytes = bytes;
        if let Some((kind, len)) = header {
            bytes.splice(0..0, [kind, 3, 3, (len >> 8) as u8, len as u8]);
        }
        let mut victim = match stage {
            0 => setup().dial().unwrap(),
            1 => setup().accept().unwrap(),
            2 => { let (a, mut b) = ends(); give(&mut b, a.outgoing()).unwrap(); b }
            _ => opened().1,
        };
        let mut buffer = [0; 64];
        for piece in bytes.chunks(cut) {
            if give(&mut victim, piece).is_err() {
                break;
            }
            prop_assert!(!matches!(victim.read(&mut buffer), Ok(1..)));
        }
        prop_assert_eq!(victim.binding().is_some(), stage == 3);
    }

    /// A circle is a queue, whatever is put and taken.
    #[test]
    fn a_circle_is_a_queue(steps in prop::collection::vec((0usize..40, 0usize..40), 1..200)) {
        let (mut circle, mut model, mut next) = (Circle::new(32), std::collections::VecDeque::new(), 0u8);
        for (put, take) in steps {
            let bytes: Vec<u8> = (0..put).map(|i| next.wrapping_add(i as u8)).collect();
            let n = circle.write_vectored(&[IoSlice::new(&bytes[..put / 2]), IoSlice::new(&bytes[put / 2..])]).unwrap();
            prop_assert_eq!(n, put.min(32 - model.len()));
            next = next.wrapping_add(n as u8);
            model.extend(&bytes[..n]);
            let n = take.min(circle.filled().len());
            let taken = circle.filled()[..n].to_vec();
            circle.take(n);
            prop_assert_eq!(taken, model.drain(..n).collect::<Vec<_>>());
            prop_assert!(circle.filled().len() <= model.len() && circle.filled().is_empty() == model.is_empty());
            let larger = circle.enlarged(64);
            prop_assert!(larger.filled().iter().eq(model.iter()));
        }
    }

    /// What is said to fit does, and room for a record is used.
    #[test]
    fn what_fits_is_taken_whole(plain in 0usize..200_000, room in 0usize..200_000) {
        let n = fits(plain, room);
        prop_assert!(n <= plain);
        let used = n + n.div_ceil(RECORD_PLAIN_MAX) * RECORD_OVERHEAD;
        prop_assert!(used <= room);
        prop_assert!(n == plain || room - used < RECORD_SCRAP + RECORD_OVERHEAD);
    }
}
