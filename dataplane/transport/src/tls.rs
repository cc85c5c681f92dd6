//! TLS 1.3 under a link, without I/O: ciphertext in and out by buffers that stay where they are, plaintext in and out by copies.
//!
//! Before: `line.rs` runs the handshakes over it, the TLS one first and `handshake.rs` inside. After: it stands between a link and its
//! socket. rustls does the protocol; here are its settings, the buffers and their bounds.
//!
//! There are no certificates to manage. A process makes one key pair at its start and shows the bare public key (RFC 7250); the dialer
//! takes any key, though the signature over the handshake must fit it. By itself that stops only those who listen. Who is at the other
//! end is proven by the topology key, inside: each proof of `handshake.rs` covers [`Tls::binding`], a value both ends export from the
//! session (RFC 5705, as RFC 9266 uses it). A man in the middle has two sessions with two different values, so the proofs he relays
//! are wrong on both sides, and he cannot make right ones without the key. This is as strong as the topology key, which both ends have
//! anyway; a certificate authority would add a second secret to keep and no second proof.
//!
//! Forward secrecy: the keys of a session come from fresh X25519 shares, so who learns the topology key later cannot read what was
//! recorded before. No resumption, no tickets, no early data: none of a session outlives it, nothing can be replayed into another.
//!
//! Not here: sockets, clocks, who is admitted, names of hosts (there is nothing to compare them with).

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme, version};
use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Read as _, Write};
use std::sync::Arc;

/// All ciphertext taken before [`Tls::open`]. An honest peer needs less than a third; whoever needs more is refused.
pub const TLS_HANDSHAKE_BYTES_MAX: usize = 4096;
/// Memory of a session before [`Tls::open`], in all, whoever is at the other end: a test weighs it.
pub const TLS_UNPROVEN_MEMORY_MAX: usize = 32 << 10;
/// Ciphertext to be written that an open session holds: one send of 64 KiB under way and one being sealed.
pub const TLS_OUTGOING_BYTES: usize = 128 << 10;
/// Ciphertext received and not yet opened that an open session holds.
pub const TLS_INCOMING_BYTES: usize = 64 << 10;
/// Memory of an open session, in all: the buffers, and what rustls keeps of a message of the largest size it takes.
pub const TLS_MEMORY_MAX: usize = TLS_OUTGOING_BYTES + TLS_INCOMING_BYTES + TLS_UNPROVEN_MEMORY_MAX + (64 << 10);
/// A record as it is sent: as much as rustls reads at once. One of 16 KiB, which it must put together, takes twice as long to open.
const RECORD_BYTES_MAX: usize = 4096;
/// What sealing adds to a record: header, the inner type, the tag of the cipher.
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
const RECORD_PLAIN_MAX: usize = RECORD_BYTES_MAX - RECORD_OVERHEAD;
/// A record this small is made only when it holds all there is: scraps of room are left for later.
const RECORD_SCRAP: usize = 1024;
const BINDING_LABEL: &[u8] = b"EXPORTER-saetta-link";
const _: () = assert!(TLS_HANDSHAKE_BYTES_MAX >= RECORD_SCRAP + RECORD_OVERHEAD && TLS_OUTGOING_BYTES > 2 * RECORD_BYTES_MAX);

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// Peer: a worker without TLS.
    #[error("this side speaks TLS and the other does not; set transport.tls alike on both")]
    Plain,
    /// Peer: neither TLS nor one of us.
    #[error("the other side speaks neither TLS nor this protocol")]
    Foreign,
    /// Peer: used up [`TLS_HANDSHAKE_BYTES_MAX`] before it was admitted.
    #[error("the other side sent {TLS_HANDSHAKE_BYTES_MAX} bytes without proving the topology's key")]
    Long,
    /// Peer: left before it answered our first message.
    #[error("the other side hung up at the TLS hello: its transport.tls is false, or its door is full")]
    HungUp,
    /// Peer, or someone between: rustls says what.
    #[error("TLS: {0}")]
    Broken(String),
    /// Environment: no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// A circle of bytes that never move.
struct Circle {
    bytes: Box<[u8]>,
    /// First byte in use.
    head: usize,
    /// Bytes in use, from `head` on and around the end.
    used: usize,
}

impl Circle {
    fn new(bytes: usize) -> Self {
        Circle { bytes: vec![0; bytes].into_boxed_slice(), head: 0, used: 0 }
    }

    /// The oldest bytes, up to the end of the memory; all of them if they do not go around it.
    fn filled(&self) -> &[u8] {
        &self.bytes[self.head..(self.head + self.used).min(self.bytes.len())]
    }

    /// Room after the newest byte, up to the end of the memory.
    fn free(&mut self) -> &mut [u8] {
        let (size, end) = (self.bytes.len(), self.head + self.used);
        let (from, to) = if end >= size { (end - size, self.head) } else { (end, size) };
        &mut self.bytes[from..to]
    }

    fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    fn put(&mut self, n: usize) {
        assert!(n <= self.room(), "what was given is no longer than the room");
        self.used += n;
    }

    fn take(&mut self, n: usize) {
        assert!(n <= self.used, "what is taken was there");
        self.head = (self.head + n) % self.bytes.len();
        self.used -= n;
    }

    /// The same bytes in a larger memory.
    fn enlarged(&self, bytes: usize) -> Self {
        let mut larger = Circle::new(bytes);
        let first = self.filled();
        let second = &self.bytes[..self.used - first.len()];
        larger.bytes[..first.len()].copy_from_slice(first);
        larger.bytes[first.len()..self.used].copy_from_slice(second);
        larger.used = self.used;
        larger
    }
}

impl Write for Circle {
    fn write(&mut self, mut from: &[u8]) -> io::Result<usize> {
        let all = from.len().min(self.room());
        from = &from[..all];
        while !from.is_empty() {
            let free = self.free();
            let n = free.len().min(from.len());
            free[..n].copy_from_slice(&from[..n]);
            self.put(n);
            from = &from[n..];
        }
        Ok(all)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut all = 0;
        for slice in from {
            let n = self.write(slice)?;
            all += n;
            if n < slice.len() {
                break;
            }
        }
        Ok(all)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Settings and key pair of a process; cheap to clone.
#[derive(Clone)]
pub struct TlsSetup {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl TlsSetup {
    /// Makes a key pair. Once per process: its only secret stays in memory and ends with it. Error: no random bytes.
    pub fn new() -> Result<Self, TlsError> {
        let own = ring::default_provider();
        let suites = [ring::cipher_suite::TLS13_AES_128_GCM_SHA256, ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
        let provider = Arc::new(CryptoProvider { cipher_suites: suites.into(), kx_groups: vec![ring::kx_group::X25519], ..own });
        let algorithms = provider.signature_verification_algorithms;
        let fits = "TLS 1.3 with these suites is what the provider has";

        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| TlsError::Random)?;
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8(seed))).expect("any 32 bytes are a key of Ed25519");
        let public = CertificateDer::from(key.public_key().expect("a key of Ed25519 has a public one").to_vec());
        let shown = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(vec![public], key))));
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .expect(fits)
            .with_no_client_auth()
            .with_cert_resolver(shown);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .expect(fits)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey(algorithms)))
            .with_no_client_auth();
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        Ok(TlsSetup { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The dialling end of a session; its hello is in [`Tls::outgoing`]. Error: no random bytes.
    pub fn dial(&self) -> Result<Tls, TlsError> {
        let name = ServerName::try_from("saetta").expect("a name").to_owned();
        let session = ClientConnection::new(self.client.clone(), name).map_err(broken)?;
        Ok(Tls::new(session.into()))
    }

    /// The accepting end of a session. Error: no random bytes.
    pub fn accept(&self) -> Result<Tls, TlsError> {
        Ok(Tls::new(ServerConnection::new(self.server.clone()).map_err(broken)?.into()))
    }
}

impl fmt::Debug for TlsSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSetup(..)")
    }
}

/// A private key of Ed25519 in the form rustls reads (RFC 8410).
fn pkcs8(seed: [u8; 32]) -> Vec<u8> {
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend_from_slice(&seed);
    der
}

/// Takes whatever key the other end shows, if the handshake is signed with it; see the head of this file for why that is enough.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(shown.as_ref()), signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// One end of a session.
///
/// An operation of the kernel may be reading [`Tls::outgoing`] and another writing [`Tls::cipher_room`] while any other function is
/// called: those bytes stay where they are, unchanged, until [`Tls::written`] and [`Tls::received`] say that the operation is over. The
/// memory is allocated twice, in [`TlsSetup::dial`] or [`TlsSetup::accept`] and in [`Tls::open`], which comes before any link.
pub struct Tls {
    session: Connection,
    /// Received and not yet given to rustls.
    incoming: Circle,
    /// Sealed and not yet written.
    outgoing: Circle,
    /// rustls holds plaintext for `read`.
    readable: bool,
    /// Ciphertext taken before `open`; then no longer counted.
    taken: usize,
    /// First bytes that came, to tell a worker without TLS from noise.
    first: [u8; 4],
    opened: bool,
    /// The other end has said that it sends no more.
    ended: bool,
    /// `Some` = established.
    binding: Option<[u8; 32]>,
    /// Nothing is taken after this.
    failed: Option<TlsError>,
}

impl Tls {
    fn new(session: Connection) -> Self {
        let mut tls = Tls {
            session,
            incoming: Circle::new(TLS_HANDSHAKE_BYTES_MAX),
            outgoing: Circle::new(TLS_HANDSHAKE_BYTES_MAX),
            readable: false,
            taken: 0,
            first: [0; 4],
            opened: false,
            ended: false,
            binding: None,
            failed: None,
        };
        tls.drain();
        tls
    }

    /// What both ends of this session, and nobody else, have in common: goes into every proof. `None` = not established yet.
    pub fn binding(&self) -> Option<[u8; 32]> {
        self.binding
    }

    /// The peer is admitted: buffers of a link instead of a stranger's. What was received with the last proof is kept: [`Tls::read`]
    /// before the first receive. No operation may be under way.
    pub fn open(&mut self) {
        assert!(self.binding.is_some(), "a peer is admitted over an established session");
        self.opened = true;
        self.incoming = self.incoming.enlarged(TLS_INCOMING_BYTES);
        self.outgoing = self.outgoing.enlarged(TLS_OUTGOING_BYTES);
        self.drain();
    }

    /// Seals as much of `plain` as there is room for; that much need not be kept. 0 = no room now, or not established. Costs the cipher,
    /// and for each record of 4 KiB two allocations of rustls.
    pub fn seal(&mut self, plain: &[u8]) -> usize {
        self.drain();
        // A message of the protocol itself goes first.
        if self.binding.is_none() || self.session.wants_write() {
            return 0;
        }
        let fits = fits(plain.len(), self.outgoing.room());
        let mut done = 0;
        while done < fits {
            let record = &plain[done..fits.min(done + RECORD_PLAIN_MAX)];
            match self.session.writer().write(record) {
                Ok(n) if n > 0 => done += n,
                _ => break,
            }
            self.drain();
        }
        done
    }

    /// Ciphertext to be written next. Stays in place until [`Tls::written`]; may be the first part of it only.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.filled()
    }

    /// The first `n` bytes of [`Tls::outgoing`] are on their way.
    pub fn written(&mut self, n: usize) {
        self.outgoing.take(n);
        if self.outgoing.used == 0 {
            self.outgoing.head = 0;
        }
        self.drain();
    }

    /// Where to receive ciphertext. Empty = [`Tls::read`] first. One receive at a time.
    pub fn cipher_room(&mut self) -> &mut [u8] {
        if self.incoming.used == 0 {
            // Nothing is under way, since a new place is asked for: begin anew, for the longest receive.
            self.incoming.head = 0;
        }
        let most = if self.opened { usize::MAX } else { TLS_HANDSHAKE_BYTES_MAX - self.taken };
        let free = self.incoming.free();
        let most = most.min(free.len());
        &mut free[..most]
    }

    /// True = the dialling end has heard nothing yet.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.taken == 0 && matches!(self.session, Connection::Client(_))
    }

    /// `n` bytes are in [`Tls::cipher_room`]. Fails for good at the first record that is wrong; what came before can still be read, and
    /// [`Tls::outgoing`] has the alert to send. Costs the opening of one record, or a step of the handshake.
    pub fn received(&mut self, n: usize) -> Result<(), TlsError> {
        if !self.opened {
            let new = &self.incoming.free()[..n];
            let seen = self.taken.min(4);
            let more = new.len().min(4 - seen);
            self.first[seen..seen + more].copy_from_slice(&new[..more]);
            self.taken += n;
        }
        self.incoming.put(n);
        self.advance()
    }

    /// Copies plaintext to `into`. 0 = none now. Fails where [`Tls::received`] would, once all before is read; and when a stranger has
    /// used up [`TLS_HANDSHAKE_BYTES_MAX`] and more is wanted.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, TlsError> {
        let mut done = 0;
        while done < into.len() {
            if !self.readable {
                match self.advance() {
                    Err(_) if done > 0 => return Ok(done),
                    Err(e) => return Err(e),
                    Ok(()) if self.readable => {}
                    Ok(()) if !self.opened && self.taken == TLS_HANDSHAKE_BYTES_MAX && done == 0 => return Err(self.fail(TlsError::Long)),
                    Ok(()) => return Ok(done),
                }
            }
            done += self.session.reader().read(&mut into[done..]).expect("rustls said that there is plaintext");
            self.look();
        }
        Ok(done)
    }

    /// The other end has ended its stream properly, and everything before was read.
    pub fn closed(&self) -> bool {
        self.ended && !self.readable
    }

    /// Gives rustls what was received, until it has plaintext.
    fn advance(&mut self) -> Result<(), TlsError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        if !self.opened && self.taken < self.first.len() {
            // Too little to say who it is.
            return Ok(());
        }
        loop {
            self.drain();
            if self.incoming.used == 0 || !self.session.wants_read() {
                return Ok(());
            }
            let took = self.session.read_tls(&mut self.incoming.filled());
            match took {
                Ok(n) if n > 0 => self.incoming.take(n),
                // It has no room for what claims to be one message.
                _ => return Err(self.fail(TlsError::Broken("a message is too long".into()))),
            }
            let state = self.session.process_new_packets();
            self.look();
            match state {
                Ok(state) => self.ended = state.peer_has_closed(),
                Err(e) => {
                    self.drain();
                    let e = match e {
                        _ if self.first == *b"SAET" => TlsError::Plain,
                        rustls::Error::InvalidMessage(_) if self.session.protocol_version().is_none() => TlsError::Foreign,
                        e => broken(e),
                    };
                    return Err(self.fail(e));
                }
            }
            if self.binding.is_none() && !self.session.is_handshaking() {
                let binding = self.session.export_keying_material([0; 32], BINDING_LABEL, None);
                self.binding = Some(binding.map_err(|e| self.fail(broken(e)))?);
            }
        }
    }

    fn look(&mut self) {
        self.readable = self.session.reader().fill_buf().is_ok_and(|plain| !plain.is_empty());
    }

    /// Moves what rustls wants to send to where it is sent from, as far as there is room.
    fn drain(&mut self) {
        while self.session.wants_write() {
            let Ok(1..) = self.session.write_tls(&mut self.outgoing) else { break };
        }
    }

    fn fail(&mut self, e: TlsError) -> TlsError {
        self.failed = Some(e.clone());
        e
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("established", &self.binding.is_some()).finish_non_exhaustive()
    }
}

fn broken(e: rustls::Error) -> TlsError {
    match e {
        rustls::Error::FailedToGetRandomBytes => TlsError::Random,
        e => TlsError::Broken(e.to_string()),
    }
}

/// How much of `plain` bytes fits, sealed, in `room`.
fn fits(plain: usize, room: usize) -> usize {
    let whole = room / RECORD_BYTES_MAX * RECORD_PLAIN_MAX;
    let rest = (room % RECORD_BYTES_MAX).saturating_sub(RECORD_OVERHEAD);
    if plain <= whole + rest || rest >= RECORD_SCRAP { plain.min(whole + rest) } else { whole }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
