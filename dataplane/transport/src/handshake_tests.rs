//! Both sides on one thread, and everyone who should not get in.

use super::*;
use proptest::prelude::*;

fn key(n: u8) -> Key {
    Key::new([n; 32]).unwrap()
}

fn identity(placement: u64) -> Identity {
    Identity { topology: "wc-1".into(), placement, start: 3, index: placement as u32, format: [9; 32], ring_bytes: 1 << 18 }
}

fn claim() -> Claim {
    Claim { role: Role::Link, from: identity(1), from_loop: 4, to_loop: 5, road: crate::carrier::Road::Control, to_placement: 2 }
}

fn admit(_: &Claim) -> Result<Admission, Refusal> {
    Ok(Admission::Link)
}

type Ends = (Result<Verdict, HandshakeError>, Result<Outcome, HandshakeError>);

/// Plays a handshake to its end in steps of at most `cut` bytes; what is dialled is kept in `recorded`.
fn play(
    dialer: &mut DialerHandshake,
    acceptor: &mut AcceptorHandshake,
    own: &Identity,
    decide: &mut dyn FnMut(&Claim) -> Result<Admission, Refusal>,
    cut: usize,
    recorded: &mut Vec<u8>,
) -> Ends {
    let (mut to_acceptor, mut to_dialer) = (vec![], vec![]);
    let mut outcome = None;
    loop {
        let sent = dialer.take_output();
        recorded.extend_from_slice(&sent);
        to_acceptor.extend_from_slice(&sent);
        to_dialer.extend_from_slice(&acceptor.take_output());
        let n = to_acceptor.len().min(cut).min(acceptor.wants());
        if n > 0 && outcome.is_none() {
            match acceptor.input(&to_acceptor[..n], own, decide) {
                Ok(Step::Done(o)) => outcome = Some(Ok(o)),
                Ok(Step::Read(want)) => assert_eq!(want, acceptor.wants()),
                Err(e) => return (Err(HandshakeError::Foreign), Err(e)),
            }
            to_acceptor.drain(..n);
            continue;
        }
        let n = to_dialer.len().min(cut).min(dialer.wants());
        assert!(n > 0, "neither side has anything to say");
        match dialer.input(&to_dialer[..n]) {
            Ok(Step::Done(v)) => return (Ok(v), outcome.expect("a verdict has an outcome")),
            Ok(Step::Read(want)) => assert_eq!(want, dialer.wants()),
            Err(e) => return (Err(e), outcome.unwrap_or(Err(HandshakeError::Proof))),
        }
        to_dialer.drain(..n);
    }
}

fn meet(dialer_key: Key, claim: &Claim, acceptor_key: Key, own: &Identity) -> Ends {
    let (mut d, mut a) = (DialerHandshake::new(dialer_key, claim, [1; 32]), AcceptorHandshake::new(acceptor_key, [2; 32]));
    play(&mut d, &mut a, own, &mut admit, usize::MAX, &mut vec![])
}

#[test]
fn both_sides_learn_who_the_other_is_however_the_bytes_come() {
    for cut in [1, 7, 40, usize::MAX] {
        let (mut d, mut a) = (DialerHandshake::new(key(1), &claim(), [1; 32]), AcceptorHandshake::new(key(1), [2; 32]));
        let (verdict, outcome) = play(&mut d, &mut a, &identity(2), &mut admit, cut, &mut vec![]);
        let want = Verdict { placement: 2, start: 3, index: 2, ring_bytes: 1 << 18, executed: 0, emitted: 0 };
        assert_eq!(verdict, Ok(want), "in steps of {cut}");
        assert_eq!(outcome, Ok(Outcome { claim: claim(), decision: Ok(Admission::Link) }), "in steps of {cut}");
    }
}

#[test]
fn a_wrong_key_is_seen_by_the_dialer_before_it_says_anything_about_itself() {
    let (verdict, outcome) = meet(key(1), &claim(), key(2), &identity(2));
    assert_eq!(verdict, Err(HandshakeError::Proof));
    assert_eq!(outcome, Err(HandshakeError::Proof));
    // And a dialer that goes on regardless is not believed.
    let mut honest = AcceptorHandshake::new(key(2), [2; 32]);
    let mut liar = DialerHandshake::new(key(1), &claim(), [1; 32]);
    honest.input(&liar.take_output(), &identity(2), &mut admit).unwrap();
    let mut asked = false;
    let forged = [&claim_bytes(&claim())[..], &[0; 32]].concat();
    let end = honest.input(&forged, &identity(2), &mut |_| {
        asked = true;
        Ok(Admission::Link)
    });
    assert_eq!((end, asked), (Err(HandshakeError::Proof), false), "nothing was even looked at");
}

#[test]
fn a_recorded_handshake_does_not_open_the_door_again() {
    let (mut d, mut a) = (DialerHandshake::new(key(1), &claim(), [1; 32]), AcceptorHandshake::new(key(1), [2; 32]));
    let mut recorded = vec![];
    play(&mut d, &mut a, &identity(2), &mut admit, usize::MAX, &mut recorded).1.unwrap();
    let mut again = AcceptorHandshake::new(key(1), [3; 32]);
    again.input(&recorded[..again.wants()], &identity(2), &mut admit).unwrap();
    assert_eq!(again.input(&recorded[HELLO_BYTES..], &identity(2), &mut admit), Err(HandshakeError::Proof));
}

#[test]
fn a_proof_sent_back_to_its_maker_proves_nothing() {
    // The attacker dials and answers with the acceptor's own hello and proof.
    let mut a = AcceptorHandshake::new(key(1), [2; 32]);
    a.input(&hello_bytes([1; 32]), &identity(2), &mut admit).unwrap();
    let answer = a.take_output();
    let mut claim = claim_bytes(&claim()).to_vec();
    claim.extend_from_slice(&answer[HELLO_BYTES..]);
    assert_eq!(a.input(&claim, &identity(2), &mut admit), Err(HandshakeError::Proof));
    // The attacker accepts and mirrors a dialer's hello.
    let mut d = DialerHandshake::new(key(1), &claim_of_dialer(), [1; 32]);
    let mut mirrored = d.take_output();
    mirrored.extend_from_slice(&[0; PROOF_BYTES]);
    assert_eq!(d.input(&mirrored), Err(HandshakeError::Proof));
}

fn claim_of_dialer() -> Claim {
    claim()
}

#[test]
fn every_reason_to_refuse_reaches_the_dialer_as_text() {
    let other = |change: fn(&mut Claim)| {
        let mut c = claim();
        change(&mut c);
        c
    };
    let cases = [
        (other(|c| c.from.topology = "wc-2".into()), "this is a worker of topology wc-1, not of wc-2"),
        (other(|c| c.to_placement = 77), "this is placement 0000000000000002, not 000000000000004d"),
        (other(|c| c.from.format = [8; 32]), "the two workers' tuple formats differ: they are not of one build"),
    ];
    for (claim, text) in cases {
        let (verdict, outcome) = meet(key(1), &claim, key(1), &identity(2));
        assert_eq!(verdict, Err(HandshakeError::Refused(Refusal(text.into()))));
        assert_eq!(outcome.unwrap().decision, Err(Refusal(text.into())));
    }
    // The caller's reasons too, cut at a character.
    let long = "è".repeat(200);
    let (mut d, mut a) = (DialerHandshake::new(key(1), &claim(), [1; 32]), AcceptorHandshake::new(key(1), [2; 32]));
    let (verdict, _) = play(&mut d, &mut a, &identity(2), &mut |_| Err(Refusal(long.clone())), usize::MAX, &mut vec![]);
    assert_eq!(verdict, Err(HandshakeError::Refused(Refusal("è".repeat(96)))));
}

#[test]
fn a_probe_needs_no_placement_and_is_answered_with_counts() {
    let from = Identity { topology: "wc-1".into(), placement: 0, start: 0, index: 0, format: [0; 32], ring_bytes: 0 };
    let probe = Claim { role: Role::Probe, from, from_loop: 0, to_loop: 0, road: crate::carrier::Road::Data, to_placement: 0 };
    let (mut d, mut a) = (DialerHandshake::new(key(1), &probe, [1; 32]), AcceptorHandshake::new(key(1), [2; 32]));
    let mut decide = |_: &Claim| Ok(Admission::Probe { executed: 5, emitted: 6 });
    let (verdict, _) = play(&mut d, &mut a, &identity(2), &mut decide, usize::MAX, &mut vec![]);
    assert_eq!(verdict.unwrap(), Verdict { placement: 2, start: 3, index: 2, ring_bytes: 0, executed: 5, emitted: 6 });
}

#[test]
fn another_worker_at_the_address_is_noticed_by_the_dialer_as_well() {
    // An acceptor that does not check for itself whom the claim was meant for.
    let mut d = DialerHandshake::new(key(1), &claim(), [1; 32]);
    let hello = d.take_output();
    let own = hello_bytes([2; 32]);
    let hellos = [&hello[..], &own].concat();
    d.input(&[&own[..], &key(1).prove("acceptor", &[&hellos])].concat()).unwrap();
    let verdict = verdict_bytes(&identity(99), &Ok(Admission::Link));
    let proof = key(1).prove("verdict", &[&hellos, &claim_bytes(&claim()), &verdict]);
    assert_eq!(d.input(&[&verdict[..], &proof].concat()), Err(HandshakeError::WrongPlacement { want: 2, got: 99 }));
}

#[test]
fn foreign_protocols_are_known_by_their_first_eight_bytes() {
    for (bytes, end) in [
        (&b"GET / HTTP/1.1"[..8], HandshakeError::Foreign),
        (b"\x16\x03\x01\x02\0\x01\0\x01", HandshakeError::Secured),
        (b"SAET\x01\0\0\0", HandshakeError::Version(1)),
        (b"SAET\x02\0\0\x01", HandshakeError::Foreign),
    ] {
        assert_eq!(AcceptorHandshake::new(key(1), [2; 32]).input(bytes, &identity(2), &mut admit), Err(end));
    }
}

#[test]
fn a_key_of_zeros_is_no_key_and_no_key_is_ever_printed() {
    assert!(Key::new([0; 32]).is_none());
    assert!(key(1).authenticates() && !Key::loopback_only().authenticates());
    assert_eq!(format!("{:?}", key(0x41)), "Key(..)");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a stranger says, after any valid prefix: it is never admitted and nothing panics.
    #[test]
    fn strangers_are_never_admitted(bytes in prop::collection::vec(any::<u8>(), 0..400), hello in any::<bool>()) {
        let mut a = AcceptorHandshake::new(key(1), [2; 32]);
        let mut input = if hello { hello_bytes([1; 32]).to_vec() } else { vec![] };
        input.extend_from_slice(&bytes);
        while !input.is_empty() {
            let n = input.len().min(a.wants());
            match a.input(&input[..n], &identity(2), &mut admit) {
                Ok(Step::Done(_)) => prop_assert!(false, "admitted"),
                Ok(Step::Read(_)) => drop(input.drain(..n)),
                Err(_) => break,
            }
        }
    }

    /// A proven peer may still claim nonsense: it is an error, never a panic.
    #[test]
    fn proven_nonsense_is_an_error(bytes in prop::collection::vec(any::<u8>(), CLAIM_BYTES)) {
        match read_claim(&bytes) {
            Ok(claim) => prop_assert_eq!(read_claim(&claim_bytes(&claim)), Ok(claim)),
            Err(e) => prop_assert!(matches!(e, HandshakeError::Malformed(_))),
        }
        let _ = read_verdict(&bytes);
    }
}
