//! Every bound of the engine that is not a config key, together, with how they relate.

/// Bytes in a lane's staging buffer at which they are copied into the ring and published. Fewer (128, 256) move lines that the reader is
/// fetching already; more (4096) leave it without work.
pub const WATERMARK_BYTES: usize = 1024;
/// Capacity a lane's staging begins with and falls back to: what a full ring part and one frame of its size take.
pub const STAGING_BYTES_KEPT: usize = 32 << 10;
/// Smallest credit window of an executor on a lane.
pub const WINDOW_BYTES_MIN: u64 = 4096;
/// A frame over this part of its ring crosses by handle.
pub const HANDLE_RING_PART: usize = 2;
/// Frames one executor handles from one window before the loop looks elsewhere.
pub const RUN_FRAMES_MAX: u32 = 256;
/// `next` calls of one spout task per turn.
pub const SPOUT_CALLS_MAX: u32 = 64;
/// One run of an executor takes about this long at most, by fewer calls or frames: what it emits waits in staging meanwhile.
pub const RUN_NS: u64 = 20_000;
/// Runs of one executor over a link's frames where they lie, before what is left is copied into its inbox: a largest segment of small tuples is
/// five for one that is quick, and 64 take it about a millisecond.
pub const LINK_RUNS_MAX: u32 = 64;
/// As long in a turn for one that is not: that takes a whole run for a single tuple.
pub const LINK_RUN_NS: u64 = 200_000;
/// Items pulled from one `emit_from` iterator per turn.
pub const PULL_ITEMS_MAX: u32 = 256;
/// Memory in which frames for one remote loop are staged: a largest segment, which it becomes with what is in it.
pub const REMOTE_STAGING_BYTES_KEPT: usize = saetta_transport::wire::segment_bytes_max(saetta_transport::RING_BYTES_DEFAULT);
/// Frame bytes at which its emitters keep their frames: a last one that is not large still fits, and so does a segment's credit. The larger a
/// segment, the less a link costs per tuple: at 64 KiB a stream of 4 KiB tuples over TCP has 0.78 M/s, at this 0.97 M/s.
pub const REMOTE_STAGING_BYTES_MAX: usize = REMOTE_STAGING_BYTES_KEPT - (10 << 10);
/// Bytes of frames in one envelope over a shared link, unless one frame is larger.
pub const RELAY_RUN_BYTES_MAX: usize = 4 << 10;
/// Bytes of acks that wait at the loop which holds shared links: for those links, the other loops keep theirs; for a loop that does not take
/// them, more are dropped, counted, and time out.
pub const RELAY_CONTROL_BYTES_MAX: usize = 1 << 20;
/// Commands waiting for one loop; a sender waits beyond it.
pub const COMMANDS_MAX: usize = 1024;
/// Bytes of a control ring between two loops of a worker: acks and the like, consumed before anything else.
pub const CONTROL_RING_BYTES: usize = 16 << 10;
/// Acks staged for another loop at which its emitters take no more input.
pub const CONTROL_STAGING_BYTES_MAX: usize = 64 << 10;
/// Bytes of fails owed to one loop of another worker, in place of acks that a connection which ended may not have delivered: 16 for each
/// tree. Beyond it they are counted: whoever holds the ledger took this worker for lost when the connection ended.
pub const OWED_BYTES_MAX: usize = 256 << 10;
/// Bytes of acks staged for another loop at which they are moved on.
pub const CONTROL_WATERMARK_BYTES: usize = 1024;
/// Trees of one owner looked at for a timeout per turn.
pub const EXPIRE_SLOTS_MAX: usize = 4096;
/// Bytes of text a failure carries to its spout.
pub const FAIL_TEXT_BYTES_MAX: usize = 512;
/// Probes for rings of blocked executors that wait for one loop; beyond it they are left out, and sent again.
pub const PROBES_MAX: usize = 64;
/// Deferred inputs of one executor; at it the executor takes no more input.
pub const DEFERRED_MAX: usize = 1024;
/// Pauses of an executor that panicked: the first, doubling up to the longest.
pub const PANIC_PAUSE_NS: (u64, u64) = (1_000_000, 1_000_000_000);
/// Error reports waiting for the watchdog; beyond it they are counted only.
pub const REPORTS_MAX: usize = 1024;
/// Ends of connections waiting for the watchdog, per loop: as many as a loop has, since each is dialled again only after its end was read.
pub const LINK_ENDS_MAX: usize = 2 * saetta_transport::SLOTS_MAX;
/// Core loops of one worker.
pub const LOOPS_MAX: usize = 64;
/// How long a hybrid loop that is alone on its core spins without work before it parks: about two wake-ups.
pub const SPIN_NS: u64 = 50_000;
/// Idle gaps longer than that, in a row, after which it spins half as long,
pub const LONG_GAPS_PER_HALF: u32 = 4;
/// and how often it is halved: down to about 3 us.
pub const SPIN_HALVES_MAX: u32 = 4;
/// Yields of a loop that shares its core before it parks.
pub const YIELDS: u32 = 8;
/// Longest park; housekeeping and a blocked output look around at least this often.
pub const PARK_NS_MAX: u64 = 100_000_000;
/// Longest park while something waits to go out or credit waits to be granted.
pub const PARK_BUSY_NS_MAX: u64 = 1_000_000;
/// Latencies of sampled tuples: shortest and longest that the histogram tells apart, and its digits.
pub const LATENCY_NS: (u64, u64, u8) = (1, 10_000_000_000, 2);
/// Sampled tuples a second and spout executor, about; all of them below it.
pub const SAMPLES_PER_SEC: u64 = 1000;

const _: () = assert!(WATERMARK_BYTES * HANDLE_RING_PART <= 4096, "the smallest ring holds several watermarks");
const _: () = assert!(RELAY_RUN_BYTES_MAX.is_multiple_of(16), "whole credit entries");
const _: () = assert!(PARK_BUSY_NS_MAX < PARK_NS_MAX);
