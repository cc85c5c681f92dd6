//! A connection in memory, with the faults a test asks for, on the clock the carriers are given. No socket, no thread, no clock of its own.
//!
//! Before: a test, or the simulator, joins two carriers by [`pair`]. After: each gives its end to `Carrier::add`, as it would a socket.
//! Bytes arrive after the delay, in order, as a stream: the pieces they arrive in are not those they were written in.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes on their way in one direction before the writer must wait, unless a test says otherwise.
pub const BUFFER_BYTES: usize = 256 << 10;

/// What happens to the bytes of one direction. Positions count the bytes written in it.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Time a byte is on its way, nanoseconds.
    pub delay_ns: u64,
    /// Bytes on their way at most; 0 = [`BUFFER_BYTES`].
    pub buffer_bytes: usize,
    /// Most bytes that arrive at once; 0 = no limit.
    pub arrive_bytes_max: usize,
    /// The stream ends here: what was written before arrives, then nothing more, and the reader sees the end of the stream.
    pub cut_at: Option<u64>,
    /// As `cut_at`, but the reader sees a reset.
    pub reset_at: Option<u64>,
    /// From here on everything vanishes and nobody is told.
    pub black_hole_at: Option<u64>,
    /// One bit of this byte is changed.
    pub flip_at: Option<u64>,
    /// The reader reads nothing.
    pub reader_stopped: bool,
}

#[derive(Default)]
struct Direction {
    faults: Faults,
    /// Bytes and when they arrive.
    on_the_way: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    written: u64,
    /// The writer is gone: the reader sees the end after what is on the way.
    ended: bool,
    /// Bytes are lost from here on.
    broken: Option<io::ErrorKind>,
    /// The reader is gone.
    deaf: bool,
}

/// One end of a connection.
pub struct End {
    out: Arc<Mutex<Direction>>,
    inn: Arc<Mutex<Direction>>,
}

/// The two directions of a pair, for a test that changes its mind on the way.
#[derive(Clone)]
pub struct Wires {
    there: Arc<Mutex<Direction>>,
    back: Arc<Mutex<Direction>>,
}

/// Two ends, the faults from the first to the second and back, and the wires between them.
pub fn pair(there: Faults, back: Faults) -> (End, End, Wires) {
    let direction = |faults| Arc::new(Mutex::new(Direction { faults, ..Default::default() }));
    let wires = Wires { there: direction(there), back: direction(back) };
    let first = End { out: wires.there.clone(), inn: wires.back.clone() };
    let second = End { out: wires.back.clone(), inn: wires.there.clone() };
    (first, second, wires)
}

impl Wires {
    /// Other faults from now on: `there` = from the first end to the second.
    pub fn change(&self, there: impl FnOnce(&mut Faults), back: impl FnOnce(&mut Faults)) {
        there(&mut lock(&self.there).faults);
        back(&mut lock(&self.back).faults);
    }

    /// Ends both directions here and now; what is on the way still arrives.
    pub fn cut(&self) {
        let cut = |d: &Arc<Mutex<Direction>>| {
            let mut d = lock(d);
            d.faults.cut_at = Some(d.written);
        };
        cut(&self.there);
        cut(&self.back);
    }

    /// Bytes written so far from the first end to the second, and back.
    pub fn written(&self) -> (u64, u64) {
        (lock(&self.there).written, lock(&self.back).written)
    }

    /// Puts bytes of a test's own in the way from the first end to the second, as if the first had written them.
    pub fn inject(&self, bytes: &[u8]) {
        lock(&self.there).on_the_way.push_back((0, bytes.to_vec()));
    }
}

impl End {
    /// Writes what there is room for. 0 = none now. Errors: the other end is gone.
    pub fn write(&mut self, bytes: &[u8], now_ns: u64) -> io::Result<usize> {
        let mut d = lock(&self.out);
        let d = &mut *d;
        if d.deaf {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let most = if d.faults.buffer_bytes == 0 { BUFFER_BYTES } else { d.faults.buffer_bytes };
        let n = bytes.len().min(most.saturating_sub(d.waiting_bytes));
        let ends = [d.faults.cut_at, d.faults.reset_at, d.faults.black_hole_at].into_iter().flatten().min().unwrap_or(u64::MAX);
        let arrive = n.min(ends.saturating_sub(d.written) as usize);
        let mut sent = bytes[..arrive].to_vec();
        if let Some(at) = d.faults.flip_at.and_then(|at| at.checked_sub(d.written)).filter(|at| *at < arrive as u64) {
            sent[at as usize] ^= 1 << (at % 8);
        }
        d.written += n as u64;
        if !sent.is_empty() {
            d.waiting_bytes += sent.len();
            d.on_the_way.push_back((now_ns + d.faults.delay_ns, sent));
        }
        Ok(n)
    }

    /// Reads what has arrived. `None` = nothing now; 0 = the end of the stream. Errors: a reset.
    pub fn read(&mut self, into: &mut [u8], now_ns: u64) -> io::Result<Option<usize>> {
        let mut d = lock(&self.inn);
        let d = &mut *d;
        if d.faults.reader_stopped {
            return Ok(None);
        }
        let most = if d.faults.arrive_bytes_max == 0 { into.len() } else { into.len().min(d.faults.arrive_bytes_max) };
        let mut n = 0;
        while n < most
            && let Some((at_ns, bytes)) = d.on_the_way.front_mut()
            && *at_ns <= now_ns
        {
            let part = bytes.len().min(most - n);
            into[n..n + part].copy_from_slice(&bytes[..part]);
            n += part;
            if part == bytes.len() {
                d.on_the_way.pop_front();
            } else {
                bytes.drain(..part);
            }
        }
        d.waiting_bytes = d.waiting_bytes.saturating_sub(n);
        if n > 0 {
            return Ok(Some(n));
        }
        let black = d.faults.black_hole_at.is_some_and(|at| d.written >= at);
        let cut = d.faults.cut_at.is_some_and(|at| d.written >= at);
        if d.faults.reset_at.is_some_and(|at| d.written >= at) {
            d.broken = Some(io::ErrorKind::ConnectionReset);
        }
        match d.broken {
            Some(kind) if d.on_the_way.is_empty() => Err(kind.into()),
            None if !black && (d.ended || cut) && d.on_the_way.is_empty() => Ok(Some(0)),
            _ => Ok(None),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.out).ended = true;
        lock(&self.inn).deaf = true;
    }
}

fn lock(direction: &Arc<Mutex<Direction>>) -> MutexGuard<'_, Direction> {
    direction.lock().expect("no panic while it is held")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(end: &mut End, now_ns: u64) -> io::Result<Option<Vec<u8>>> {
        let mut into = [0; 64];
        Ok(end.read(&mut into, now_ns)?.map(|n| into[..n].to_vec()))
    }

    #[test]
    fn bytes_arrive_late_in_parts_and_in_order_and_the_end_after_them() {
        let (mut a, mut b, _) = pair(Faults { delay_ns: 10, arrive_bytes_max: 3, ..Default::default() }, Faults::default());
        assert_eq!(a.write(b"abcde", 5).unwrap(), 5);
        assert_eq!(read(&mut b, 14).unwrap(), None);
        assert_eq!(read(&mut b, 15).unwrap().unwrap(), b"abc");
        drop(a);
        assert_eq!(read(&mut b, 15).unwrap().unwrap(), b"de");
        assert_eq!(read(&mut b, 15).unwrap().unwrap(), b"");
        assert!(b.write(b"x", 15).is_err());
    }

    #[test]
    fn each_fault_does_what_it_says() {
        let (mut a, mut b, _) = pair(Faults { cut_at: Some(3), ..Default::default() }, Faults::default());
        assert_eq!(a.write(b"abcde", 0).unwrap(), 5);
        assert_eq!(read(&mut b, 0).unwrap().unwrap(), b"abc");
        assert_eq!(read(&mut b, 0).unwrap().unwrap(), b"");
        let (mut a, mut b, _) = pair(Faults { reset_at: Some(1), ..Default::default() }, Faults::default());
        a.write(b"abc", 0).unwrap();
        assert_eq!(read(&mut b, 0).unwrap().unwrap(), b"a");
        assert_eq!(read(&mut b, 0).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let (mut a, mut b, _) = pair(Faults { black_hole_at: Some(2), flip_at: Some(1), ..Default::default() }, Faults::default());
        a.write(b"aaa", 0).unwrap();
        assert_eq!(read(&mut b, 0).unwrap().unwrap(), [b'a', b'a' ^ 2]);
        drop(a);
        assert_eq!(read(&mut b, 0).unwrap(), None);
        let (mut a, mut b, wires) = pair(Faults { buffer_bytes: 2, reader_stopped: true, ..Default::default() }, Faults::default());
        assert_eq!((a.write(b"abc", 0).unwrap(), a.write(b"c", 0).unwrap()), (2, 0));
        assert_eq!(read(&mut b, 0).unwrap(), None);
        wires.change(|there| there.reader_stopped = false, |_| {});
        assert_eq!(read(&mut b, 0).unwrap().unwrap(), b"ab");
    }
}
