//! The handshake's decoders, one side at a time: the script plays the other, with the key or without it.
//!
//! Before: any bytes. After: `AcceptorHandshake` and `DialerHandshake`. What a proof covers is tweaked before it is made, so that a proven peer's
//! nonsense is reached; then, if the script says so, bytes are damaged or the proof is one of another conversation.
//! The oracle reads claims and verdicts by offsets of its own and makes its own HMACs.

use super::Reached;
use super::input::Input;
use hmac::{Hmac, KeyInit, Mac};
use saetta_transport::handshake::{AcceptorHandshake, DialerHandshake, HANDSHAKE_BYTES_MAX, HandshakeError, Outcome, Step, Verdict};
use saetta_transport::{Admission, Claim, Identity, Key, Refusal, Road, Role};
use sha2::Sha256;

/// See [`super::Target`].
pub const MARKS: &[&str] = &[
    "acceptor: foreign",
    "acceptor: version",
    "acceptor: proof",
    "acceptor: malformed",
    "acceptor: link",
    "acceptor: probe",
    "acceptor: refused before deciding",
    "acceptor: refused by the caller",
    "acceptor: refusal cut",
    "dialer: foreign",
    "dialer: version",
    "dialer: proof of the hello",
    "dialer: proof of the verdict",
    "dialer: malformed",
    "dialer: refused",
    "dialer: wrong placement",
    "dialer: done",
    "acceptor: TLS",
    "dialer: TLS",
    "acceptor: link over TLS",
    "dialer: done over TLS",
    "acceptor: proof of another session",
    "dialer: proof of another session",
];

const HELLO: usize = 40;
const BODY: usize = 256;
const PROOF: usize = 32;
const KEY: [u8; 32] = [7; 32];
const DIALER_NONCE: [u8; 32] = [1; 32];
const ACCEPTOR_NONCE: [u8; 32] = [2; 32];

// What a script's first byte chooses.
const SIDE: u8 = 1;
const NO_KEY: u8 = 2;
const THEIR_KEY_DIFFERS: u8 = 4;
const RAW_HELLO: u8 = 8;
const PROBE: u8 = 16;
const REPLAY: u8 = 32;
const DAMAGE: u8 = 64;
const DATA_ROAD: u8 = 128;

// And its second: the session beneath.
const BOUND: u8 = 1;
const THEY_ARE_UNBOUND: u8 = 2;
const THEIR_SESSION_DIFFERS: u8 = 4;

/// One execution.
pub fn run(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let style = input.u8();
    let session = Session::new(input.u8());
    if style & SIDE == 0 {
        acceptor(style, &session, &mut input, &mut reached)
    } else {
        dialer(style, &session, &mut input, &mut reached)
    }
    reached
}

/// The TLS session beneath, as each side knows it.
struct Session {
    ours: Option<[u8; 32]>,
    theirs: Option<[u8; 32]>,
}

impl Session {
    fn new(choice: u8) -> Self {
        let ours = (choice & BOUND != 0).then_some([3; 32]);
        let theirs = match choice & (THEY_ARE_UNBOUND | THEIR_SESSION_DIFFERS) {
            0 => ours,
            THEIR_SESSION_DIFFERS => Some([4; 32]),
            _ => None,
        };
        Session { ours, theirs }
    }

    /// What begins each proof, as we and as they have it.
    fn hellos(&self, dialer: &[u8], acceptor: &[u8]) -> [Vec<u8>; 2] {
        [self.ours, self.theirs].map(|binding| [binding.as_ref().map_or(&[][..], |b| b), dialer, acceptor].concat())
    }
}

fn acceptor(style: u8, session: &Session, input: &mut Input<'_>, reached: &mut Reached) {
    let (key, ours) = key(style);
    let theirs = their_key(style, ours);
    let own = identity(2);
    let mut side = AcceptorHandshake::new(key, ACCEPTOR_NONCE);
    side.bind(session.ours);
    let mut undecided = |_: &Claim| -> Result<Admission, Refusal> { panic!("asked about a claim that did not come") };

    let mut first = hello(DIALER_NONCE);
    shape_hello(style, input, &mut first);
    let cut = input.u8();
    assert_eq!(side.wants(), HELLO);
    let answer = feed(&first, cut, |bytes| side.input(bytes, &own, &mut undecided));
    let sent = side.take_output();
    match (hello_wrong(&first), answer) {
        (Some(wrong), Err(error)) => {
            assert_eq!(error, wrong);
            assert!(sent.is_empty(), "nothing is said to who does not speak the protocol");
            return reached.mark(mark_of(&wrong, [0, 1, 17]));
        }
        (None, Ok(Step::Read(want))) => assert_eq!(want, BODY + PROOF),
        (wrong, answer) => panic!("hello that is {wrong:?} was answered {answer:?}"),
    }
    let [hellos, their_hellos] = session.hellos(&first, &hello(ACCEPTOR_NONCE));
    assert_eq!(sent, [&hello(ACCEPTOR_NONCE)[..], &proof(&ours, "acceptor", &[&hellos])].concat());

    let mut claim = claim_bytes(style);
    tweak(input, &mut claim);
    let message = sealed(style, input, &theirs, "dialer", &their_hellos, &claim, &[]);
    let (claim, its_proof) = message.split_at(BODY);
    let proven = its_proof == proof(&ours, "dialer", &[&hellos, claim]);
    let read = read_claim(claim);

    let cut = input.u8();
    let choice = input.u8();
    let refusal = String::from_utf8_lossy(input.take(usize::from(choice))).into_owned();
    let mut decided = None;
    let answer = feed(&message, cut, |bytes| {
        side.input(bytes, &own, &mut |asked| {
            assert!(proven && Some(asked) == read.as_ref(), "asked about {asked:?}");
            let decision = match (choice, asked.role) {
                (1.., _) => Err(Refusal(refusal.clone())),
                (0, Role::Link) => Ok(Admission::Link),
                (0, Role::Probe) => Ok(Admission::Probe { executed: 11, emitted: 12 }),
            };
            assert!(decided.replace(decision.clone()).is_none(), "asked twice");
            decision
        })
    });
    let sent = side.take_output();
    assert!(first.len() + message.len() <= HANDSHAKE_BYTES_MAX);
    let read = match (proven, read) {
        (false, _) => {
            assert_eq!(answer, Err(HandshakeError::Proof));
            assert!(sent.is_empty() && decided.is_none());
            if session.ours != session.theirs && style & (THEIR_KEY_DIFFERS | REPLAY | DAMAGE) == 0 {
                reached.mark(21);
            }
            return reached.mark(2);
        }
        (true, None) => {
            assert!(matches!(answer, Err(HandshakeError::Malformed(_))), "{answer:?}");
            assert!(sent.is_empty() && decided.is_none());
            return reached.mark(3);
        }
        (true, Some(read)) => read,
    };
    let Ok(Step::Done(Outcome { claim: told, decision })) = answer else { panic!("a proven claim was answered {answer:?}") };
    assert_eq!(told, read);
    let link = read.role == Role::Link;
    let misled = read.from.topology != own.topology || (link && (read.to_placement != own.placement || read.from.format != own.format));
    assert_eq!(decided.is_none(), misled, "the caller is asked about claims meant for this worker");
    if let Some(decided) = decided {
        assert_eq!(decision, decided);
    }
    reached.mark(match &decision {
        Ok(Admission::Link) if session.ours.is_some() => 19,
        Ok(Admission::Link) => 4,
        Ok(Admission::Probe { .. }) => 5,
        Err(_) if misled => 6,
        Err(_) => 7,
    });

    assert_eq!(sent.len(), BODY + PROOF);
    let (verdict, its_proof) = sent.split_at(BODY);
    assert_eq!(its_proof, proof(&ours, "verdict", &[&hellos, claim, verdict]));
    assert_eq!((get32(verdict, 4), get64(verdict, 8), get64(verdict, 16)), (own.index, own.placement, own.start));
    match decision {
        Ok(Admission::Link) => assert_eq!((verdict[0], get32(verdict, 24)), (1, own.ring_bytes)),
        Ok(Admission::Probe { executed, emitted }) => {
            assert_eq!((verdict[0], get32(verdict, 24), get64(verdict, 32), get64(verdict, 40)), (2, 0, executed, emitted));
        }
        Err(Refusal(why)) => {
            let said = std::str::from_utf8(&verdict[48..48 + usize::from(verdict[1])]).expect("cut between characters");
            assert!(verdict[0] == 3 && why.starts_with(said));
            assert!(said.len() <= 192 && (said == why || said.len() > 192 - 4));
            if said != why {
                reached.mark(8);
            }
        }
    }
}

fn dialer(style: u8, session: &Session, input: &mut Input<'_>, reached: &mut Reached) {
    let (key, ours) = key(style);
    let theirs = their_key(style, ours);
    let raw_claim = claim_bytes(style);
    let claim = read_claim(&raw_claim).expect("ours");
    let mut side = DialerHandshake::new(key, &claim, DIALER_NONCE);
    side.bind(session.ours);
    assert_eq!(side.take_output(), hello(DIALER_NONCE));
    assert_eq!(side.wants(), HELLO + PROOF);

    let mut first = hello(ACCEPTOR_NONCE);
    shape_hello(style, input, &mut first);
    let [hellos, their_hellos] = session.hellos(&hello(DIALER_NONCE), &first);
    let mut its_proof = proof(&theirs, "acceptor", &[&their_hellos]);
    // A bit more than damage: anything in the place of the proof.
    if input.u8() != 0 {
        tweak(input, &mut its_proof);
    }
    let proven = its_proof == proof(&ours, "acceptor", &[&hellos]);
    let answer = feed(&[&first[..], &its_proof].concat(), input.u8(), |bytes| side.input(bytes));
    let sent = side.take_output();
    match (hello_wrong(&first), proven, answer) {
        (Some(wrong), _, Err(error)) => {
            assert_eq!(error, wrong);
            assert!(sent.is_empty());
            return reached.mark(mark_of(&wrong, [9, 10, 18]));
        }
        (None, false, Err(HandshakeError::Proof)) => {
            assert!(sent.is_empty(), "nothing is said about us to who does not hold the key");
            if session.ours != session.theirs && style & THEIR_KEY_DIFFERS == 0 {
                reached.mark(22);
            }
            return reached.mark(11);
        }
        (None, true, Ok(Step::Read(want))) => assert_eq!(want, BODY + PROOF),
        (wrong, proven, answer) => panic!("hello that is {wrong:?}, proven {proven}, was answered {answer:?}"),
    }
    assert_eq!(sent, [&raw_claim[..], &proof(&ours, "dialer", &[&hellos, &raw_claim])].concat());

    let mut verdict = verdict_bytes(input.u8());
    tweak(input, &mut verdict);
    let message = sealed(style, input, &theirs, "verdict", &their_hellos, &verdict, &raw_claim);
    let (verdict, its_proof) = message.split_at(BODY);
    let answer = feed(&message, input.u8(), |bytes| side.input(bytes));
    assert!(side.take_output().is_empty());
    if its_proof != proof(&ours, "verdict", &[&hellos, &raw_claim, verdict]) {
        assert_eq!(answer, Err(HandshakeError::Proof));
        return reached.mark(12);
    }
    let (placement, ring_bytes) = (get64(verdict, 8), get32(verdict, 24));
    let link = claim.role == Role::Link;
    let text = usize::from(verdict[1]);
    let refusal = (verdict[0] == 3 && text <= 192).then(|| std::str::from_utf8(&verdict[48..48 + text]).ok()).flatten();
    reached.mark(match answer {
        Err(HandshakeError::Refused(Refusal(why))) => {
            assert_eq!(Some(&why[..]), refusal);
            14
        }
        Err(HandshakeError::WrongPlacement { want, got }) => {
            assert!(link && matches!(verdict[0], 1 | 2) && want == claim.to_placement && got == placement && want != got);
            15
        }
        Err(HandshakeError::Malformed(_)) => {
            let ring_wrong = link && matches!(verdict[0], 1 | 2) && placement == claim.to_placement && !ring_valid(ring_bytes);
            assert!(ring_wrong || !matches!(verdict[0], 1..=3) || (verdict[0] == 3 && refusal.is_none()));
            13
        }
        Ok(Step::Done(told)) => {
            assert!(matches!(verdict[0], 1 | 2) && (!link || (placement == claim.to_placement && ring_valid(ring_bytes))));
            let (executed, emitted) = (get64(verdict, 32), get64(verdict, 40));
            assert_eq!(told, Verdict { placement, start: get64(verdict, 16), index: get32(verdict, 4), ring_bytes, executed, emitted });
            if session.ours.is_some() { 20 } else { 16 }
        }
        other => panic!("a proven verdict was answered {other:?}"),
    });
}

/// Gives a message in pieces of `cut` bytes (0 = whole) and returns the answer to the last, or the error before it.
fn feed<D: std::fmt::Debug + PartialEq>(
    message: &[u8],
    cut: u8,
    mut input: impl FnMut(&[u8]) -> Result<Step<D>, HandshakeError>,
) -> Result<Step<D>, HandshakeError> {
    let cut = if cut == 0 { message.len() } else { usize::from(cut) };
    let mut fed = 0;
    for piece in message.chunks(cut) {
        fed += piece.len();
        let answer = input(piece)?;
        if fed == message.len() {
            return Ok(answer);
        }
        assert_eq!(answer, Step::Read(message.len() - fed), "in the middle of a message");
    }
    panic!("a message without bytes");
}

fn key(style: u8) -> (Key, [u8; 32]) {
    if style & NO_KEY == 0 { (Key::new(KEY).expect("a key"), KEY) } else { (Key::loopback_only(), [0; 32]) }
}

fn their_key(style: u8, ours: [u8; 32]) -> [u8; 32] {
    if style & THEIR_KEY_DIFFERS == 0 { ours } else { [8; 32] }
}

fn identity(placement: u64) -> Identity {
    Identity { topology: "wc-1".into(), placement, start: 3, index: placement as u32, format: [9; 32], ring_bytes: 1 << 18 }
}

fn proof(key: &[u8; 32], role: &str, parts: &[&[u8]]) -> [u8; PROOF] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(b"saetta link 2 ");
    mac.update(role.as_bytes());
    mac.update(&[0]);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn hello(nonce: [u8; 32]) -> [u8; HELLO] {
    let mut b = [0; HELLO];
    b[..6].copy_from_slice(b"SAET\x02\0");
    b[8..].copy_from_slice(&nonce);
    b
}

fn shape_hello(style: u8, input: &mut Input<'_>, hello: &mut [u8]) {
    if style & RAW_HELLO == 0 {
        tweak(input, hello);
    } else {
        let raw = input.take(HELLO);
        hello[..raw.len()].copy_from_slice(raw);
    }
}

fn hello_wrong(b: &[u8]) -> Option<HandshakeError> {
    // A record of TLS: alert, handshake or data, of any version.
    if (20..=23).contains(&b[0]) && b[1] == 3 && b[2] <= 4 {
        return Some(HandshakeError::Secured);
    }
    match (&b[..4], u16::from_le_bytes([b[4], b[5]]), &b[6..8]) {
        (b"SAET", 2, [0, 0]) => None,
        (b"SAET", 2, _) => Some(HandshakeError::Foreign),
        (b"SAET", version, _) => Some(HandshakeError::Version(version)),
        _ => Some(HandshakeError::Foreign),
    }
}

fn mark_of(error: &HandshakeError, [foreign, version, tls]: [u32; 3]) -> u32 {
    match error {
        HandshakeError::Foreign => foreign,
        HandshakeError::Secured => tls,
        _ => version,
    }
}

/// Writes up to three runs of up to eight bytes of the script over the message.
fn tweak(input: &mut Input<'_>, message: &mut [u8]) {
    for _ in 0..input.u8() & 3 {
        let at = usize::from(input.u8()) % message.len();
        let n = 1 + usize::from(input.u8() & 7);
        let bytes = input.take(n.min(message.len() - at));
        message[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// `body` and its proof: with the other side's key, over this conversation or a recorded one, damaged or not.
fn sealed(style: u8, input: &mut Input<'_>, key: &[u8; 32], role: &str, hellos: &[u8], body: &[u8], before: &[u8]) -> Vec<u8> {
    let mut seen = hellos.to_vec();
    if style & REPLAY != 0 {
        *seen.last_mut().expect("two hellos") ^= 1;
    }
    let mut message = [body, &proof(key, role, &[&seen, before, body])].concat();
    if style & DAMAGE != 0 {
        let at = usize::from(input.u16()) % message.len();
        message[at] ^= input.u8();
    }
    message
}

fn claim_bytes(style: u8) -> [u8; BODY] {
    let mut b = [0; BODY];
    let probe = style & PROBE != 0;
    let from = identity(1);
    (b[0], b[1], b[2]) = (if probe { 2 } else { 1 }, from.topology.len() as u8, u8::from(style & DATA_ROAD == 0));
    b[4..8].copy_from_slice(&from.index.to_le_bytes());
    b[8..16].copy_from_slice(&from.placement.to_le_bytes());
    b[16..24].copy_from_slice(&from.start.to_le_bytes());
    b[24..28].copy_from_slice(&4u32.to_le_bytes());
    b[28..32].copy_from_slice(&5u32.to_le_bytes());
    b[32..40].copy_from_slice(&2u64.to_le_bytes());
    b[40..44].copy_from_slice(&from.ring_bytes.to_le_bytes());
    b[48..80].copy_from_slice(&from.format);
    b[80..80 + from.topology.len()].copy_from_slice(from.topology.as_bytes());
    b
}

fn read_claim(b: &[u8]) -> Option<Claim> {
    let name = usize::from(b[1]);
    let ring_bytes = get32(b, 40);
    let claim = Claim {
        role: [None, Some(Role::Link), Some(Role::Probe)].get(usize::from(b[0])).copied().flatten()?,
        from: Identity {
            topology: (name <= 128).then(|| std::str::from_utf8(&b[80..80 + name]).ok()).flatten()?.to_owned(),
            placement: get64(b, 8),
            start: get64(b, 16),
            index: get32(b, 4),
            format: *b[48..].first_chunk()?,
            ring_bytes,
        },
        from_loop: get32(b, 24),
        to_loop: get32(b, 28),
        road: *[Road::Data, Road::Control].get(usize::from(b[2]))?,
        to_placement: get64(b, 32),
    };
    (claim.role == Role::Probe || ring_valid(ring_bytes)).then_some(claim)
}

fn verdict_bytes(choice: u8) -> [u8; BODY] {
    let own = identity(2);
    let mut b = [0; BODY];
    b[0] = 1 + choice % 3;
    b[4..8].copy_from_slice(&own.index.to_le_bytes());
    b[8..16].copy_from_slice(&own.placement.to_le_bytes());
    b[16..24].copy_from_slice(&own.start.to_le_bytes());
    b[24..28].copy_from_slice(&own.ring_bytes.to_le_bytes());
    if b[0] == 3 {
        b[1] = 6;
        b[48..54].copy_from_slice("né la".as_bytes());
    }
    b
}

fn ring_valid(bytes: u32) -> bool {
    (14..=22).any(|power| bytes == 1 << power)
}

fn get32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn get64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}
