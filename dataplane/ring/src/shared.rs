//! A ring each way between two processes of one host, and the words that let both sleep: one sealed memory file, mapped by both.
//!
//! Before: one side makes the file ([`create`]) and hands its descriptor to the other ([`open`]), over a Unix socket. After: each has a
//! producer, a consumer and a sleep word, and no system call is left but the one that wakes a sleeper, which is the caller's.
//! Not here: the handing over, who may be handed it, the end of the other process (its socket tells), frames.
//!
//! ```text
//!  page 0: for each way head and tail, for each side a sleep word; every one on lines of its own
//!  capacity bytes: from the creator to the opener, mapped twice, so that no slice straddles the end
//!  capacity bytes: from the opener to the creator, likewise
//! ```
//! The indices are those of `cursor.rs`, with its orderings and its model; the words are those of `sleeper.rs` with a fence on either side,
//! since `membarrier` does not reach another process.
//!
//! Trust: the two sides are one domain. Who holds the file can write any byte of it at any time, so it is given only to a process of our own
//! user that has proven the topology's key, and what it writes is believed as another thread's is. But it may die at any instruction, and a
//! bug of it must not become ours: the file cannot shrink (else a load would kill us), and its indices are checked whenever they are read:
//! one that goes back or beyond the ring ends the ring with [`Corrupt`], for good.

use crate::cursor::{ConsumerCursor, Indices, ProducerCursor, plausible};
use crate::mirror::{Mirror, valid};
use crate::sleeper::{fall_asleep, take_duty, wake_up};
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::Cell;
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes of one way, at most.
pub const SHARED_CAPACITY_MAX: usize = 1 << 30;
/// What `open` insists on: nobody can take mapped bytes away, or the seals. GROW keeps the size what it was checked to be.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The smallest page there is.
const PAGE_BYTES_MIN: usize = 4096;
const _: () = assert!(size_of::<Header>() <= PAGE_BYTES_MIN, "the header is page 0");

/// The first page. Zeroed is: both ways empty, both sides awake.
#[repr(C)]
struct Header {
    /// From the creator, from the opener.
    ways: [Way; 2],
    /// Of the creator, of the opener.
    sleep: [CachePadded<AtomicU32>; 2],
}

#[repr(C)]
struct Way {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

/// Which of the two a process is: index into the arrays of [`Header`].
#[derive(Clone, Copy)]
enum Side {
    Creator = 0,
    Opener = 1,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Creator => Side::Opener,
            Side::Opener => Side::Creator,
        }
    }
}

/// The whole file, mapped.
struct Map {
    /// A page that holds a [`Header`].
    header: NonNull<Header>,
    /// In the order of `Header::ways`.
    data: [Mirror; 2],
}

// SAFETY: the mapping belongs to no thread, and through `header` only atomics are reached.
unsafe impl Send for Map {}
// SAFETY: as above; `data` is a `Mirror`, which is `Sync`.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `file`, which has [`file_bytes`] of `capacity` and keeps them.
    fn new(file: BorrowedFd<'_>, capacity: usize) -> Result<Self> {
        let page = rustix::param::page_size();
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        let data = [Mirror::of_file(file, page as u64, capacity)?, Mirror::of_file(file, (page + capacity) as u64, capacity)?];
        // SAFETY: a mapping at an address of the kernel's choice aliases nothing of this process.
        let header = unsafe { mmap(std::ptr::null_mut(), page, rw, MapFlags::SHARED | MapFlags::POPULATE, file, 0)? };
        Ok(Map { header: NonNull::new(header.cast()).expect("mmap never returns null"), data })
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: a page is mapped there as long as `self` lives, aligned to itself and so to a line; atomics are valid whatever bytes they
        // hold, and the file cannot shrink under them (`open` insists on the seal, `create` sets it).
        unsafe { self.header.as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; references into it borrow `self`.
        unsafe { munmap(self.header.as_ptr().cast(), rustix::param::page_size()).ok() };
    }
}

/// The other side left an index that cannot be: it goes back, or beyond the ring. The ring is over, and every further call says so again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt {
    /// What it reads.
    pub read: u64,
    /// What it was before, and so at least must be.
    pub seen: u64,
    /// What it can be at most.
    pub most: u64,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corrupt { read, seen, most } = self;
        write!(f, "shared ring: an index of the other process went from {seen} to {read}, where at most {most} can be; connect to it anew")
    }
}

impl std::error::Error for Corrupt {}

/// Indices in the file, and whether the other side's are still believed.
struct SharedIndices {
    map: Arc<Map>,
    way: Side,
    corrupt: Cell<Option<Corrupt>>,
}

impl SharedIndices {
    #[inline]
    fn sound(&self) -> std::result::Result<(), Corrupt> {
        self.corrupt.get().map_or(Ok(()), Err)
    }

    #[cold]
    fn doubt(&self, corrupt: Corrupt) {
        if self.corrupt.get().is_none() {
            self.corrupt.set(Some(corrupt));
        }
    }
}

impl Indices for SharedIndices {
    #[inline]
    fn head(&self) -> &AtomicU64 {
        &self.map.header().ways[self.way as usize].head
    }
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        &self.map.header().ways[self.way as usize].tail
    }
    #[inline]
    fn believe(&self, read: u64, seen: u64, most: u64) -> u64 {
        if plausible(read, seen, most) {
            return read;
        }
        self.doubt(Corrupt { read, seen, most });
        seen
    }
}

/// What one side has. One thread's at a time.
pub struct SharedPair {
    /// To the other side.
    pub out: SharedProducer,
    /// From the other side.
    pub inn: SharedConsumer,
    /// Both sides' words.
    pub sleep: SharedSleep,
}

/// Writing end of one way.
pub struct SharedProducer {
    cursor: ProducerCursor<SharedIndices>,
}

/// Reading end of one way.
pub struct SharedConsumer {
    cursor: ConsumerCursor<SharedIndices>,
}

/// Our word, and the other side's.
pub struct SharedSleep {
    map: Arc<Map>,
    side: Side,
}

/// A file of two empty ways of `capacity` bytes each (power of two, at least a page, at most [`SHARED_CAPACITY_MAX`]), all its pages there;
/// and the creator's side. Hand the descriptor to one other process, then close it: the mappings stay.
/// Errors: `InvalidInput` for the capacity; no memory, no descriptor.
pub fn create(capacity: usize) -> Result<(OwnedFd, SharedPair)> {
    let bytes = file_bytes(capacity)?;
    let file = memfd_create(c"saetta-shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    // Memory that is not there is an error now, not a SIGBUS at the first touch.
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    let pair = SharedPair::new(file.as_fd(), capacity, Side::Creator)?;
    Ok((file, pair))
}

/// The opener's side of a file that another process has made with [`create`] of the same `capacity`. Once per file.
/// Errors: `InvalidInput` for the capacity; `InvalidData` when the file is not such a one (nothing of it is mapped then); no memory.
pub fn open(file: OwnedFd, capacity: usize) -> Result<SharedPair> {
    let bytes = file_bytes(capacity)?;
    let refuse = |what: String| Err(Error::new(ErrorKind::InvalidData, format!("shared ring: {what}; is the other side of this build?")));
    let seals = match fcntl_get_seals(&file) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => return refuse("what was handed over is no memory file".into()),
        Err(e) => return Err(e.into()),
    };
    if !seals.contains(SEALS) {
        return refuse(format!("the memory handed over is not sealed ({:#x} of {:#x})", (seals & SEALS).bits(), SEALS.bits()));
    }
    // After the seals: from here on the size stays.
    let size = fstat(&file)?.st_size;
    if u64::try_from(size) != Ok(bytes) {
        return refuse(format!("the memory handed over has {size} bytes, {bytes} are needed for rings of {capacity}"));
    }
    SharedPair::new(file.as_fd(), capacity, Side::Opener)
}

/// Bytes of the file.
fn file_bytes(capacity: usize) -> Result<u64> {
    valid(capacity)?;
    if capacity > SHARED_CAPACITY_MAX {
        let text = format!("a shared ring of {capacity} bytes: use at most {SHARED_CAPACITY_MAX}");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    Ok((rustix::param::page_size() + 2 * capacity) as u64)
}

impl SharedPair {
    fn new(file: BorrowedFd<'_>, capacity: usize, side: Side) -> Result<Self> {
        let map = Arc::new(Map::new(file, capacity)?);
        let indices = |way| SharedIndices { map: map.clone(), way, corrupt: Cell::new(None) };
        Ok(SharedPair {
            out: SharedProducer { cursor: ProducerCursor::new(indices(side), capacity as u64) },
            inn: SharedConsumer { cursor: ConsumerCursor::new(indices(side.other()), capacity as u64) },
            sleep: SharedSleep { map: map.clone(), side },
        })
    }
}

impl SharedProducer {
    fn memory(&self) -> &Mirror {
        let indices = self.cursor.indices();
        &indices.map.data[indices.way as usize]
    }

    /// Bytes of the whole way.
    pub fn capacity(&self) -> usize {
        self.memory().capacity()
    }

    /// Bytes that can be written now. Cheap when at least `want` are known to be free.
    #[inline]
    pub fn free(&mut self, want: usize) -> std::result::Result<usize, Corrupt> {
        let free = self.cursor.free(want as u64) as usize;
        self.cursor.indices().sound().map(|()| free)
    }

    /// Bytes written that the other side has not released, exact for this moment.
    pub fn unread(&mut self) -> std::result::Result<usize, Corrupt> {
        let unread = self.cursor.unread() as usize;
        self.cursor.indices().sound().map(|()| unread)
    }

    /// Copies in as much of `bytes` as fits and publishes it at once. Returns how much that was. Then ask [`SharedSleep::peer_sleeps`],
    /// once per batch.
    #[inline]
    pub fn write_some(&mut self, bytes: &[u8]) -> std::result::Result<usize, Corrupt> {
        let n = self.free(bytes.len())?.min(bytes.len());
        if n > 0 {
            // SAFETY: `free` says that `n` bytes from `tail` on are the producer's until `publish`, and it is at most `capacity`: the index
            // of the other side was checked before it was believed. `bytes` is a live slice of this process; nobody here is lent the
            // writable part of this way.
            unsafe { self.memory().write(self.cursor.tail(), &bytes[..n]) };
            self.cursor.publish(n as u64);
        }
        Ok(n)
    }
}

impl SharedConsumer {
    /// Bytes of the whole way.
    pub fn capacity(&self) -> usize {
        self.memory().capacity()
    }

    fn memory(&self) -> &Mirror {
        let indices = self.cursor.indices();
        &indices.map.data[indices.way as usize]
    }

    /// Everything readable, as one slice. Empty = nothing there. Stays valid until `release`, which needs the borrow back.
    #[inline]
    pub fn readable(&mut self) -> std::result::Result<&[u8], Corrupt> {
        let n = self.cursor.available() as usize;
        self.cursor.indices().sound()?;
        // The other side wrote `n` bytes (at most `capacity`: checked) from `head` on and published them; it does not touch them before
        // `release` moves `head`, which needs `&mut self` and so ends this borrow.
        Ok(self.memory().slice(self.cursor.head(), n))
    }

    /// Bytes of the last [`SharedConsumer::readable`] that were not released. Does not look at the other side's index, so what came since is not
    /// among them.
    #[inline]
    pub fn seen(&self) -> usize {
        self.cursor.known() as usize
    }

    /// True when nothing is readable, looking at the other side's index in any case: for the last look before sleeping.
    #[inline]
    pub fn is_empty(&mut self) -> std::result::Result<bool, Corrupt> {
        let empty = self.cursor.refresh() == 0;
        self.cursor.indices().sound().map(|()| empty)
    }

    /// Gives the first `n` bytes of what `readable` said back to the other side.
    #[inline]
    pub fn release(&mut self, n: usize) {
        self.cursor.release(n as u64);
    }
}

impl SharedSleep {
    /// From here on the other side will wake. Look at everything it may have written (and released) once more before waiting.
    #[inline]
    pub fn about_to_sleep(&self) {
        fall_asleep(&self.map.header().sleep[self.side as usize]);
    }

    /// Awake again, for whatever reason.
    #[inline]
    pub fn awake(&self) {
        wake_up(&self.map.header().sleep[self.side as usize]);
    }

    /// After writing (or releasing, if the other side waits for room), once per batch: true = the other side sleeps, and it is now ours to
    /// wake it. Costs a fence: what was published has left the store buffer when it returns.
    #[inline]
    pub fn peer_sleeps(&self) -> bool {
        // Pairs with the fence in `fall_asleep`: this side sees the word, or the other one's last look sees what was published.
        fence(Ordering::SeqCst);
        take_duty(&self.map.header().sleep[self.side.other() as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn pair(capacity: usize) -> (SharedPair, SharedPair) {
        let (file, a) = create(capacity).unwrap();
        (a, open(file, capacity).unwrap())
    }

    proptest! {
        /// Random writes and releases in both directions against two queues of bytes: same bytes, same order, as much as fits.
        #[test]
        fn both_ways_behave_like_bounded_queues(ops in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..5000), 1..200)) {
            let (mut a, mut b) = pair(4096);
            let mut models: [VecDeque<u8>; 2] = Default::default();
            let mut next = 0u8;
            for (from_a, write, n) in ops {
                let model = &mut models[usize::from(from_a)];
                let (from, to) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
                if write {
                    let bytes: Vec<u8> = (0..n).map(|i| next.wrapping_add(i as u8)).collect();
                    let fits = n.min(4096 - model.len());
                    prop_assert_eq!(from.out.write_some(&bytes), Ok(fits));
                    model.extend(&bytes[..fits]);
                    next = next.wrapping_add(fits as u8);
                    prop_assert_eq!(from.out.unread(), Ok(model.len()));
                } else {
                    prop_assert_eq!(to.inn.is_empty(), Ok(model.is_empty()));
                    let seen = to.inn.readable().unwrap();
                    prop_assert!(seen == model.make_contiguous());
                    let n = n.min(model.len());
                    to.inn.release(n);
                    model.drain(..n);
                }
            }
        }

        /// Whatever a dying peer leaves in the indices: an error or bytes within the ring, for good, and no panic.
        #[test]
        fn no_index_of_the_peer_reaches_beyond_the_ring(
            written in 0usize..=4096, released in 0usize..=4096,
            indices in prop::collection::vec((any::<bool>(), prop_oneof![0u64..10_000, any::<u64>(), u64::MAX - 10_000..=u64::MAX]), 1..20),
        ) {
            let (mut a, mut b) = pair(4096);
            b.out.write_some(&vec![1; written]).unwrap();
            a.inn.is_empty().unwrap();
            a.inn.release(released.min(written));
            a.out.write_some(&vec![2; written]).unwrap();
            let mut over = [false, false];
            let (mut head, mut tail) = (0, written as u64);
            for (of_head, index) in indices {
                let mine = a.sleep.map.header();
                if of_head {
                    mine.ways[Side::Creator as usize].head.store(index, Ordering::Relaxed);
                    // The other side can have released what we wrote, not more, and takes nothing back.
                    let sound = !over[0] && (head..=written as u64).contains(&index);
                    over[0] |= !sound;
                    head = index;
                    prop_assert_eq!(a.out.unread().is_ok(), sound);
                    prop_assert_eq!(a.out.free(4096).is_ok(), sound);
                    prop_assert_eq!(a.out.write_some(b"").is_ok(), sound);
                } else {
                    mine.ways[Side::Opener as usize].tail.store(index, Ordering::Relaxed);
                    let most = released.min(written) as u64 + 4096;
                    let sound = !over[1] && (tail..=most).contains(&index);
                    over[1] |= !sound;
                    tail = index;
                    prop_assert_eq!(a.inn.is_empty().is_ok(), sound);
                    prop_assert_eq!(a.inn.readable().map(<[u8]>::len).ok(), sound.then(|| (index - released.min(written) as u64) as usize));
                }
            }
        }
    }

    #[test]
    fn an_impossible_index_is_named_and_never_forgiven() {
        let (mut a, mut b) = pair(4096);
        let tail = &b.sleep.map.header().ways[Side::Opener as usize].tail;
        tail.store(4097, Ordering::Relaxed);
        let corrupt = Corrupt { read: 4097, seen: 0, most: 4096 };
        assert_eq!(a.inn.readable(), Err(corrupt));
        tail.store(1, Ordering::Relaxed);
        assert_eq!(a.inn.readable(), Err(corrupt));
        assert_eq!(a.inn.is_empty(), Err(corrupt));
        let text = "shared ring: an index of the other process went from 0 to 4097, where at most 4096 can be; connect to it anew";
        assert_eq!(corrupt.to_string(), text);
        // The other way is another ring.
        assert_eq!(a.out.write_some(b"x"), Ok(1));
        assert_eq!(b.inn.readable(), Ok(&b"x"[..]));
    }

    #[test]
    fn the_duty_to_wake_is_taken_once_and_only_from_a_sleeper() {
        let (a, b) = pair(4096);
        assert!(!a.sleep.peer_sleeps() && !b.sleep.peer_sleeps(), "both begin awake");
        b.sleep.about_to_sleep();
        assert!(!b.sleep.peer_sleeps(), "the words are two");
        assert_eq!((a.sleep.peer_sleeps(), a.sleep.peer_sleeps()), (true, false));
        b.sleep.about_to_sleep();
        b.sleep.awake();
        assert!(!a.sleep.peer_sleeps());
    }

    /// The moment the two sides cross, again and again: either the last look sees what was written, or the writer finds us asleep. Without
    /// the writer's fence neither does, in some of the rounds when each has a core to itself.
    #[test]
    fn one_of_the_two_sides_always_sees_the_other() {
        const ROUNDS: u64 = 50_000;
        let (mut a, mut b) = pair(4096);
        let words = || Arc::new(CachePadded::new(AtomicU64::new(0)));
        let (go, payload, woke) = (words(), words(), words());
        let writer = {
            let (go, payload, woke) = (go.clone(), payload.clone(), woke.clone());
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    until(&go, |go| go >= round);
                    // The other core holds this line, so what is published waits behind it for some hundred cycles.
                    payload.store(round, Ordering::Relaxed);
                    assert_eq!(b.out.write_some(&[1]), Ok(1));
                    let taken = b.sleep.peer_sleeps();
                    woke.store(round << 1 | u64::from(taken), Ordering::Release);
                }
            })
        };
        let mut lost = 0;
        for round in 1..=ROUNDS {
            payload.store(0, Ordering::Relaxed);
            go.store(round, Ordering::Release);
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            a.sleep.about_to_sleep();
            let seen = !a.inn.is_empty().unwrap();
            let taken = until(&woke, |woke| woke >> 1 == round) & 1 == 1;
            lost += u64::from(!seen && !taken);
            a.sleep.awake();
            assert_eq!(a.inn.readable(), Ok(&[1][..]));
            a.inn.release(1);
        }
        writer.join().unwrap();
        assert_eq!(lost, 0, "wake-ups lost in {ROUNDS} rounds");
    }

    /// Spins, and yields now and then: the other thread may need this core.
    fn until(word: &AtomicU64, holds: impl Fn(u64) -> bool) -> u64 {
        let start = std::time::Instant::now();
        loop {
            for _ in 0..200 {
                let value = word.load(Ordering::Acquire);
                if holds(value) {
                    return value;
                }
                std::hint::spin_loop();
            }
            assert!(start.elapsed().as_secs() < 60, "the peer of this test is gone");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_side_reads_on_what_the_other_left_when_it_went() {
        let (a, mut b) = pair(4096);
        let SharedPair { mut out, .. } = a;
        out.write_some(b"last words").unwrap();
        drop(out);
        assert_eq!(b.inn.readable(), Ok(&b"last words"[..]));
    }

    fn refusal(file: OwnedFd, capacity: usize) -> String {
        let error = open(file, capacity).err().expect("is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        error.to_string()
    }

    fn memory(bytes: usize, seals: SealFlags) -> OwnedFd {
        let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn memory_that_could_shrink_or_has_the_wrong_size_is_refused_before_it_is_mapped() {
        let bytes = file_bytes(8192).unwrap() as usize;
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let text = refusal(memory(bytes, SEALS.difference(missing)), 8192);
            assert!(text.contains("is not sealed"), "{text}");
        }
        for wrong in [0, 1, bytes - 1, bytes + 1, file_bytes(4096).unwrap() as usize, file_bytes(16384).unwrap() as usize] {
            let text = refusal(memory(wrong, SEALS), 8192);
            assert!(text.contains(&format!("has {wrong} bytes, {bytes} are needed")), "{text}");
        }
        assert!(open(memory(bytes, SEALS), 8192).is_ok(), "else this test refuses for another reason");
    }

    #[test]
    fn what_is_no_memory_file_is_refused() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(refusal(event, 4096).contains("no memory file"));
        let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
        assert!(refusal(socket.into(), 4096).contains("no memory file"));
        // Sealed against writing as well: mapping it is what fails.
        let bytes = file_bytes(4096).unwrap() as usize;
        assert!(open(memory(bytes, SEALS | SealFlags::WRITE), 4096).is_err());
    }

    #[test]
    fn odd_capacities_are_refused_on_both_sides() {
        for bad in [0, 1, 2048, 5000, 12288, 2 * SHARED_CAPACITY_MAX, 1 << 63] {
            assert_eq!(create(bad).err().expect("is refused").kind(), ErrorKind::InvalidInput, "{bad}");
            assert_eq!(open(memory(4096, SEALS), bad).err().expect("is refused").kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn what_was_created_can_no_longer_change_its_size() {
        let (file, _a) = create(4096).unwrap();
        assert!(ftruncate(&file, 4096).is_err() && ftruncate(&file, 1 << 20).is_err());
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }
}
