//! How two workers of one topology recognise each other: both prove the topology key, then say who they are.
//!
//! Before: `accept.rs` / `dial.rs` have a fresh connection. After: the socket goes to its core loop. No I/O: bytes in, bytes out.
//!
//! ```text
//!  dialer                                                      acceptor
//!    hello: magic, version, 0, nonce                  40 ->
//!                              <- 72   hello with its own nonce, proof(acceptor; both hellos)
//!    claim, proof(dialer; both hellos, claim)        288 ->
//!                             <- 288   verdict, proof(verdict; both hellos, claim, verdict)
//!
//!  proof(role; parts) = HMAC-SHA256(topology key, "saetta link 2 " role 0 parts)
//! ```
//!
//! Every message has a fixed size, so nothing is allocated and nothing but magic and version is looked at before the peer has
//! proven the key. The role in each proof stops reflection, the nonces stop replay. A reader takes at most [`Step::Read`] bytes, so
//! what follows the handshake stays in the socket.
//! Over TLS (`tls.rs`) all of it is said inside the session, and "both hellos" begins with the session's binding, 32 bytes that only its
//! two ends know: a proof made for one session is wrong in every other.
//! Not here: secrecy and integrity of what follows (segments have a CRC, not a MAC); both are TLS's.

use crate::carrier::Road;
use crate::tls::TlsError;
use crate::wire;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Version of the handshake and of all that follows it.
pub const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"SAET";
const NONCE_BYTES: usize = 32;
const BINDING_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
const HELLO_BYTES: usize = 8 + NONCE_BYTES;
const CLAIM_BYTES: usize = 256;
const VERDICT_BYTES: usize = 256;
/// All bytes an acceptor takes from a connection before it is proven, and its dialer is admitted. Under TLS: of plaintext; of ciphertext it is
/// [`TLS_HANDSHAKE_BYTES_MAX`](crate::TLS_HANDSHAKE_BYTES_MAX).
pub const HANDSHAKE_BYTES_MAX: usize = HELLO_BYTES + CLAIM_BYTES + PROOF_BYTES;
const NAME_BYTES_MAX: usize = 128;
const REFUSAL_BYTES_MAX: usize = 192;
const _: () = assert!(CLAIM_NAME + NAME_BYTES_MAX <= CLAIM_BYTES && VERDICT_TEXT + REFUSAL_BYTES_MAX <= VERDICT_BYTES);
const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(REFUSAL_BYTES_MAX <= u8::MAX as usize);

// Offsets in a claim.
const CLAIM_ROLE: usize = 0;
const CLAIM_NAME_BYTES: usize = 1;
const CLAIM_ROAD: usize = 2;
const CLAIM_INDEX: usize = 4;
const CLAIM_PLACEMENT: usize = 8;
const CLAIM_START: usize = 16;
const CLAIM_FROM_LOOP: usize = 24;
const CLAIM_TO_LOOP: usize = 28;
const CLAIM_TO_PLACEMENT: usize = 32;
const CLAIM_RING_BYTES: usize = 40;
const CLAIM_FORMAT: usize = 48;
const CLAIM_NAME: usize = 80;
// Offsets in a verdict.
const VERDICT_CODE: usize = 0;
const VERDICT_TEXT_BYTES: usize = 1;
const VERDICT_INDEX: usize = 4;
const VERDICT_PLACEMENT: usize = 8;
const VERDICT_START: usize = 16;
const VERDICT_RING_BYTES: usize = 24;
const VERDICT_EXECUTED: usize = 32;
const VERDICT_EMITTED: usize = 40;
const VERDICT_TEXT: usize = 48;

/// The topology key. Shown nowhere; compared in constant time.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; 32],
    /// True = stands for "no key": serves loopback addresses only.
    loopback_only: bool,
}

impl Key {
    /// The 32 random bytes made at submit. `None` when all are zero: that is a key nobody configured.
    pub fn new(bytes: [u8; 32]) -> Option<Self> {
        (bytes != [0; 32]).then_some(Key { bytes, loopback_only: false })
    }

    /// No authentication: binds and dials loopback addresses only.
    pub fn loopback_only() -> Self {
        Key { bytes: [0; 32], loopback_only: true }
    }

    /// False = only loopback addresses may be bound or dialled.
    pub fn authenticates(&self) -> bool {
        !self.loopback_only
    }

    fn mac(&self, role: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.bytes).expect("HMAC takes keys of any length");
        mac.update(b"saetta link 2 ");
        mac.update(role.as_bytes());
        mac.update(&[0]);
        // Parts have fixed sizes, so their concatenation is unambiguous.
        for part in parts {
            mac.update(part);
        }
        mac
    }

    fn prove(&self, role: &str, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.mac(role, parts).finalize().into_bytes().into()
    }

    fn proves(&self, role: &str, parts: &[&[u8]], proof: &[u8]) -> bool {
        // Constant time, by the crate's own comparison.
        self.mac(role, parts).verify_slice(proof).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Topology id, at most 128 bytes.
    pub topology: String,
    /// Its placement id.
    pub placement: u64,
    /// Its start number.
    pub start: u64,
    /// Its index in the assignment.
    pub index: u32,
    /// Digest of everything both must agree on to read each other's frames.
    pub format: [u8; 32],
    /// Receive ring of its links.
    pub ring_bytes: u32,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Frames between two core loops.
    Link,
    /// The leader asks whether the worker lives.
    Probe,
}

/// What a dialer says, after it has proven the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What for.
    pub role: Role,
    /// Who; for a probe only the topology counts.
    pub from: Identity,
    /// The dialer's core loop.
    pub from_loop: u32,
    /// The acceptor's core loop it wants to reach.
    pub to_loop: u32,
    /// What the connection is for.
    pub road: Road,
    /// Placement it believes to be talking to.
    pub to_placement: u64,
}

/// A claim was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The socket becomes a link.
    Link,
    /// Answer to a probe.
    Probe {
        /// Tuples executed since the worker's start.
        executed: u64,
        /// Tuples emitted since the worker's start.
        emitted: u64,
    },
}

/// A claim was refused; the text reaches the dialer, cut at 192 bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A worker's answer to the leader's probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReply {
    /// Topology id.
    pub topology: String,
    /// Placement id of the worker that answered.
    pub placement: u64,
    /// Its start number.
    pub start: u64,
    /// Tuples executed since its start.
    pub executed: u64,
    /// Tuples emitted since its start.
    pub emitted: u64,
}

/// What an admitted dialer learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The acceptor's placement id.
    pub placement: u64,
    /// Its start number.
    pub start: u64,
    /// Its index in the assignment.
    pub index: u32,
    /// Its receive ring; 0 in the answer to a probe.
    pub ring_bytes: u32,
    /// Probe only.
    pub executed: u64,
    /// Probe only.
    pub emitted: u64,
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Peer: not one of us at all.
    #[error("the other side does not speak this protocol")]
    Foreign,
    /// Peer: speaks TLS, and we do not.
    #[error("the other side speaks TLS and this one does not; set transport.tls alike on both")]
    Secured,
    /// Peer: the session under the handshake ended.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Peer: another build.
    #[error("the other side speaks version {0} of the link protocol, this build speaks {VERSION}")]
    Version(u16),
    /// Peer: does not hold the key, or the conversation was recorded.
    #[error("the other side does not hold the topology's key")]
    Proof,
    /// Peer: proven, but its message makes no sense.
    #[error("the other side is authenticated but its message is malformed: {0}")]
    Malformed(&'static str),
    /// Peer: refused us.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Peer: someone else lives at that address.
    #[error("placement {got:016x} answers where {want:016x} was expected")]
    WrongPlacement {
        /// Dialled.
        want: u64,
        /// Answered.
        got: u64,
    },
}

/// What a handshake wants next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<D> {
    /// Read up to so many bytes, not one more, and give them to `input`.
    Read(usize),
    /// It is over; what `take_output` gives is still to be written.
    Done(D),
}

/// Bytes of a message of known size, as they come.
struct Gather {
    bytes: Vec<u8>,
    want: usize,
}

impl Gather {
    fn new(want: usize) -> Self {
        Gather { bytes: Vec::with_capacity(HANDSHAKE_BYTES_MAX), want }
    }

    /// Takes `input`, which is no longer than what is missing. True = complete.
    fn add(&mut self, input: &[u8]) -> bool {
        assert!(input.len() <= self.missing(), "a reader takes no byte that belongs to what follows");
        self.bytes.extend_from_slice(input);
        self.missing() == 0
    }

    fn missing(&self) -> usize {
        self.want - self.bytes.len()
    }

    fn next(&mut self, want: usize) -> Vec<u8> {
        self.want = want;
        std::mem::replace(&mut self.bytes, Vec::with_capacity(want))
    }
}

/// The dialling side.
pub struct DialerHandshake {
    key: Key,
    claim: [u8; CLAIM_BYTES],
    to_placement: Option<u64>,
    hello: [u8; HELLO_BYTES],
    /// Of the session beneath; `None` = there is none.
    binding: Option<[u8; BINDING_BYTES]>,
    /// Binding and both hellos, once the acceptor's is known.
    hellos: Vec<u8>,
    gather: Gather,
    output: Vec<u8>,
}

impl DialerHandshake {
    /// Begins. `nonce` is fresh from the system's random source.
    pub fn new(key: Key, claim: &Claim, nonce: [u8; 32]) -> Self {
        let hello = hello_bytes(nonce);
        DialerHandshake {
            key,
            claim: claim_bytes(claim),
            to_placement: (claim.role == Role::Link).then_some(claim.to_placement),
            hello,
            binding: None,
            hellos: Vec::new(),
            gather: Gather::new(HELLO_BYTES + PROOF_BYTES),
            output: hello.to_vec(),
        }
    }

    /// Bytes to write.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// How many bytes to read now.
    pub fn wants(&self) -> usize {
        self.gather.missing()
    }

    /// Binds the proofs to the TLS session beneath. Before the first received byte, which that session brought.
    pub fn bind(&mut self, binding: Option<[u8; BINDING_BYTES]>) {
        assert!(self.hellos.is_empty() || self.binding == binding, "a handshake is over one session");
        self.binding = binding;
    }

    /// Takes received bytes, at most [`DialerHandshake::wants`].
    pub fn input(&mut self, bytes: &[u8]) -> Result<Step<Verdict>, HandshakeError> {
        if !self.gather.add(bytes) {
            // A door with TLS answers our hello with an alert, which is shorter than a hello.
            if self.hellos.is_empty() && is_tls(&self.gather.bytes) {
                return Err(HandshakeError::Secured);
            }
            return Ok(Step::Read(self.gather.missing()));
        }
        if self.hellos.is_empty() {
            let message = self.gather.next(VERDICT_BYTES + PROOF_BYTES);
            let (hello, proof) = message.split_at(HELLO_BYTES);
            check_hello(hello)?;
            self.hellos = [bound(&self.binding), &self.hello, hello].concat();
            if !self.key.proves("acceptor", &[&self.hellos], proof) {
                return Err(HandshakeError::Proof);
            }
            self.output.extend_from_slice(&self.claim);
            self.output.extend_from_slice(&self.key.prove("dialer", &[&self.hellos, &self.claim]));
            return Ok(Step::Read(self.gather.missing()));
        }
        let message = self.gather.next(0);
        let (verdict, proof) = message.split_at(VERDICT_BYTES);
        if !self.key.proves("verdict", &[&self.hellos, &self.claim, verdict], proof) {
            return Err(HandshakeError::Proof);
        }
        let verdict = read_verdict(verdict)?;
        match self.to_placement {
            Some(want) if want != verdict.placement => Err(HandshakeError::WrongPlacement { want, got: verdict.placement }),
            Some(_) if !wire::ring_bytes_valid(verdict.ring_bytes as usize) => Err(HandshakeError::Malformed("size of its receive ring")),
            _ => Ok(Step::Done(verdict)),
        }
    }
}

/// What the accepting side has after the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What the proven dialer said.
    pub claim: Claim,
    /// What it was answered.
    pub decision: Result<Admission, Refusal>,
}

/// The accepting side.
pub struct AcceptorHandshake {
    key: Key,
    hello: [u8; HELLO_BYTES],
    /// Of the session beneath; `None` = there is none.
    binding: Option<[u8; BINDING_BYTES]>,
    /// Binding and both hellos, once the dialer's is known.
    hellos: Vec<u8>,
    gather: Gather,
    output: Vec<u8>,
}

impl AcceptorHandshake {
    /// Waits for a hello. `nonce` is fresh from the system's random source.
    pub fn new(key: Key, nonce: [u8; 32]) -> Self {
        let (hello, gather) = (hello_bytes(nonce), Gather::new(HELLO_BYTES));
        AcceptorHandshake { key, hello, binding: None, hellos: Vec::new(), gather, output: Vec::new() }
    }

    /// Bytes to write.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// How many bytes to read now.
    pub fn wants(&self) -> usize {
        self.gather.missing()
    }

    /// Binds the proofs to the TLS session beneath. Before the first received byte, which that session brought.
    pub fn bind(&mut self, binding: Option<[u8; BINDING_BYTES]>) {
        assert!(self.hellos.is_empty() || self.binding == binding, "a handshake is over one session");
        self.binding = binding;
    }

    /// Takes received bytes, at most [`AcceptorHandshake::wants`]. `decide` is asked once, about a claim that is proven and meant for
    /// `own`.
    pub fn input(
        &mut self,
        bytes: &[u8],
        own: &Identity,
        decide: &mut dyn FnMut(&Claim) -> Result<Admission, Refusal>,
    ) -> Result<Step<Outcome>, HandshakeError> {
        if !self.gather.add(bytes) {
            // Foreign bytes are known by their first eight, however slowly the rest comes.
            if self.hellos.is_empty() && self.gather.bytes.len() >= 8 {
                check_hello(&self.gather.bytes)?;
            }
            return Ok(Step::Read(self.gather.missing()));
        }
        if self.hellos.is_empty() {
            let hello = self.gather.next(CLAIM_BYTES + PROOF_BYTES);
            check_hello(&hello)?;
            self.hellos = [bound(&self.binding), &hello, &self.hello].concat();
            self.output.extend_from_slice(&self.hello);
            self.output.extend_from_slice(&self.key.prove("acceptor", &[&self.hellos]));
            return Ok(Step::Read(self.gather.missing()));
        }
        let message = self.gather.next(0);
        let (claim_raw, proof) = message.split_at(CLAIM_BYTES);
        if !self.key.proves("dialer", &[&self.hellos, claim_raw], proof) {
            return Err(HandshakeError::Proof);
        }
        let claim = read_claim(claim_raw)?;
        let decision = meant_for(&claim, own).and_then(|()| decide(&claim));
        let role_fits = match decision {
            Ok(Admission::Link) => claim.role == Role::Link,
            Ok(Admission::Probe { .. }) => claim.role == Role::Probe,
            Err(_) => true,
        };
        assert!(role_fits, "the caller admits a link as a link and a probe as a probe");
        let verdict = verdict_bytes(own, &decision);
        self.output.extend_from_slice(&verdict);
        self.output.extend_from_slice(&self.key.prove("verdict", &[&self.hellos, claim_raw, &verdict]));
        Ok(Step::Done(Outcome { claim, decision }))
    }
}

/// Refuses what is wrong whatever the newest assignment says.
fn meant_for(claim: &Claim, own: &Identity) -> Result<(), Refusal> {
    if claim.from.topology != own.topology {
        return Err(Refusal(format!("this is a worker of topology {}, not of {}", own.topology, claim.from.topology)));
    }
    if claim.role == Role::Probe {
        return Ok(());
    }
    if claim.to_placement != own.placement {
        return Err(Refusal(format!("this is placement {:016x}, not {:016x}", own.placement, claim.to_placement)));
    }
    if claim.from.format != own.format {
        return Err(Refusal("the two workers' tuple formats differ: they are not of one build".into()));
    }
    Ok(())
}

fn hello_bytes(nonce: [u8; NONCE_BYTES]) -> [u8; HELLO_BYTES] {
    let mut b = [0; HELLO_BYTES];
    b[..4].copy_from_slice(&MAGIC);
    b[4..6].copy_from_slice(&VERSION.to_le_bytes());
    b[8..].copy_from_slice(&nonce);
    b
}

/// Part of every proof. With and without it all proven texts differ in length, so neither can be taken for the other.
fn bound(binding: &Option<[u8; BINDING_BYTES]>) -> &[u8] {
    binding.as_ref().map_or(&[], |b| b)
}

/// Begins like a record of TLS.
fn is_tls(b: &[u8]) -> bool {
    matches!(b, [0x14..=0x17, 3, 0..=4, ..])
}

fn check_hello(b: &[u8]) -> Result<(), HandshakeError> {
    if is_tls(b) {
        return Err(HandshakeError::Secured);
    }
    if b[..4] != MAGIC {
        return Err(HandshakeError::Foreign);
    }
    match u16::from_le_bytes([b[4], b[5]]) {
        VERSION if b[6..8] == [0; 2] => Ok(()),
        VERSION => Err(HandshakeError::Foreign),
        other => Err(HandshakeError::Version(other)),
    }
}

fn claim_bytes(claim: &Claim) -> [u8; CLAIM_BYTES] {
    let name = claim.from.topology.as_bytes();
    assert!(name.len() <= NAME_BYTES_MAX, "topology ids are names, and names are at most 128 bytes");
    let mut b = [0; CLAIM_BYTES];
    b[CLAIM_ROLE] = match claim.role {
        Role::Link => 1,
        Role::Probe => 2,
    };
    b[CLAIM_NAME_BYTES] = name.len() as u8;
    b[CLAIM_ROAD] = match claim.road {
        Road::Data => 0,
        Road::Control => 1,
    };
    put32(&mut b, CLAIM_INDEX, claim.from.index);
    put64(&mut b, CLAIM_PLACEMENT, claim.from.placement);
    put64(&mut b, CLAIM_START, claim.from.start);
    put32(&mut b, CLAIM_FROM_LOOP, claim.from_loop);
    put32(&mut b, CLAIM_TO_LOOP, claim.to_loop);
    put64(&mut b, CLAIM_TO_PLACEMENT, claim.to_placement);
    put32(&mut b, CLAIM_RING_BYTES, claim.from.ring_bytes);
    b[CLAIM_FORMAT..CLAIM_FORMAT + 32].copy_from_slice(&claim.from.format);
    b[CLAIM_NAME..CLAIM_NAME + name.len()].copy_from_slice(name);
    b
}

fn read_claim(b: &[u8]) -> Result<Claim, HandshakeError> {
    let role = match b[CLAIM_ROLE] {
        1 => Role::Link,
        2 => Role::Probe,
        _ => return Err(HandshakeError::Malformed("its role")),
    };
    let road = match b[CLAIM_ROAD] {
        0 => Road::Data,
        1 => Road::Control,
        _ => return Err(HandshakeError::Malformed("what the connection is for")),
    };
    let topology = text(b, CLAIM_NAME, b[CLAIM_NAME_BYTES], NAME_BYTES_MAX).ok_or(HandshakeError::Malformed("its topology id"))?;
    let ring_bytes = get32(b, CLAIM_RING_BYTES);
    if role == Role::Link && !wire::ring_bytes_valid(ring_bytes as usize) {
        return Err(HandshakeError::Malformed("size of its receive ring"));
    }
    Ok(Claim {
        role,
        from: Identity {
            topology,
            placement: get64(b, CLAIM_PLACEMENT),
            start: get64(b, CLAIM_START),
            index: get32(b, CLAIM_INDEX),
            format: b[CLAIM_FORMAT..CLAIM_FORMAT + 32].try_into().expect("32 bytes"),
            ring_bytes,
        },
        from_loop: get32(b, CLAIM_FROM_LOOP),
        road,
        to_loop: get32(b, CLAIM_TO_LOOP),
        to_placement: get64(b, CLAIM_TO_PLACEMENT),
    })
}

fn verdict_bytes(own: &Identity, decision: &Result<Admission, Refusal>) -> [u8; VERDICT_BYTES] {
    let mut b = [0; VERDICT_BYTES];
    put32(&mut b, VERDICT_INDEX, own.index);
    put64(&mut b, VERDICT_PLACEMENT, own.placement);
    put64(&mut b, VERDICT_START, own.start);
    match decision {
        Ok(Admission::Link) => {
            b[VERDICT_CODE] = 1;
            put32(&mut b, VERDICT_RING_BYTES, own.ring_bytes);
        }
        Ok(Admission::Probe { executed, emitted }) => {
            b[VERDICT_CODE] = 2;
            put64(&mut b, VERDICT_EXECUTED, *executed);
            put64(&mut b, VERDICT_EMITTED, *emitted);
        }
        Err(Refusal(why)) => {
            b[VERDICT_CODE] = 3;
            let why = &why.as_bytes()[..why.floor_char_boundary(REFUSAL_BYTES_MAX)];
            b[VERDICT_TEXT_BYTES] = why.len() as u8;
            b[VERDICT_TEXT..VERDICT_TEXT + why.len()].copy_from_slice(why);
        }
    }
    b
}

fn read_verdict(b: &[u8]) -> Result<Verdict, HandshakeError> {
    match b[VERDICT_CODE] {
        1 | 2 => Ok(Verdict {
            placement: get64(b, VERDICT_PLACEMENT),
            start: get64(b, VERDICT_START),
            index: get32(b, VERDICT_INDEX),
            ring_bytes: get32(b, VERDICT_RING_BYTES),
            executed: get64(b, VERDICT_EXECUTED),
            emitted: get64(b, VERDICT_EMITTED),
        }),
        3 => match text(b, VERDICT_TEXT, b[VERDICT_TEXT_BYTES], REFUSAL_BYTES_MAX) {
            Some(why) => Err(HandshakeError::Refused(Refusal(why))),
            None => Err(HandshakeError::Malformed("its reason to refuse")),
        },
        _ => Err(HandshakeError::Malformed("its verdict")),
    }
}

fn text(b: &[u8], at: usize, len: u8, max: usize) -> Option<String> {
    let len = usize::from(len);
    (len <= max).then(|| String::from_utf8(b[at..at + len].to_vec()).ok()).flatten()
}

fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

fn put64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_le_bytes());
}

fn get32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn get64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
