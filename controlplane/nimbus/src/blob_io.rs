//! Bytes of binaries between a socket and a file: through io_uring on a thread of its own where the kernel allows it, else through
//! tokio's pool of threads for files. One interface, two ways; which one is in use is said once, at start.
//!
//! Before and after: `home.rs` (an upload), `rest.rs` (a download by a supervisor). Only chunks pass here; names, checks and renames do not.

use axum::body::Bytes;
use std::fs::File;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tracing::info;

/// Transfers that may wait for the thread to take them.
const JOBS_MAX: usize = 64;
/// Chunks between a socket and a file; full = the socket is not read.
const CHUNKS_MAX: usize = 8;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Operations the ring holds.
const RING_ENTRIES: u32 = 64;

/// The way in use.
#[derive(Debug)]
pub(crate) struct BlobIo {
    /// `None` = io_uring is not allowed here.
    uring: Option<mpsc::Sender<Job>>,
}

#[derive(Debug)]
enum Job {
    Write { file: File, chunks: mpsc::Receiver<Bytes>, done: oneshot::Sender<io::Result<()>> },
    Read { file: File, chunks: mpsc::Sender<io::Result<Bytes>> },
}

/// An upload on its way to a file.
#[derive(Debug)]
pub(crate) struct Writer {
    chunks: mpsc::Sender<Bytes>,
    done: oneshot::Receiver<io::Result<()>>,
}

impl BlobIo {
    /// Starts the thread, or finds out that io_uring is refused. Blocking, milliseconds. The thread ends with this handle.
    pub(crate) fn start() -> Self {
        let (jobs, mut taken) = mpsc::channel::<Job>(JOBS_MAX);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("saetta-blobs".into()).spawn(move || {
            let runtime = match tokio_uring::Runtime::new(tokio_uring::builder().entries(RING_ENTRIES)) {
                Ok(runtime) => runtime,
                Err(e) => return drop(tell.send(Err(e))),
            };
            drop(tell.send(Ok(())));
            runtime.block_on(async {
                while let Some(job) = taken.recv().await {
                    tokio_uring::spawn(through_uring(job));
                }
            });
        });
        match thread.and_then(|_| told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))) {
            Ok(()) => BlobIo { uring: Some(jobs) },
            Err(e) => {
                info!(error = %e, "io_uring is not allowed here; binaries are written and read through threads");
                Self::plain()
            }
        }
    }

    /// Without io_uring.
    fn plain() -> Self {
        BlobIo { uring: None }
    }

    async fn run(&self, job: Job) {
        match &self.uring {
            // The thread lives as long as this sender.
            Some(jobs) => drop(jobs.send(job).await),
            None => drop(tokio::spawn(through_threads(job))),
        }
    }

    /// Writes from the file's beginning.
    pub(crate) async fn write(&self, file: File) -> Writer {
        let ((chunks, out), (set_done, done)) = (mpsc::channel(CHUNKS_MAX), oneshot::channel());
        self.run(Job::Write { file, chunks: out, done: set_done }).await;
        Writer { chunks, done }
    }

    /// Reads to the file's end. An error is the last item.
    pub(crate) async fn read(&self, file: File) -> mpsc::Receiver<io::Result<Bytes>> {
        let (chunks, out) = mpsc::channel(CHUNKS_MAX);
        self.run(Job::Read { file, chunks }).await;
        out
    }
}

impl Writer {
    /// Hands a chunk over; waits while the file is behind. An error of the file comes from `finish`.
    pub(crate) async fn push(&mut self, chunk: Bytes) -> Result<(), ()> {
        self.chunks.send(chunk).await.map_err(|_| ())
    }

    /// Returns once everything is on disk.
    pub(crate) async fn finish(self) -> io::Result<()> {
        drop(self.chunks);
        self.done.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes binaries ended")))
    }
}

async fn through_uring(job: Job) {
    match job {
        Job::Write { file, mut chunks, done } => {
            let file = tokio_uring::fs::File::from_std(file);
            let mut written = Ok(());
            let mut at = 0;
            while let (Ok(()), Some(chunk)) = (&written, chunks.recv().await) {
                let len = chunk.len() as u64;
                written = file.write_all_at(chunk, at).await.0;
                at += len;
            }
            // Refuses further chunks before the result is there to be asked for.
            drop(chunks);
            if written.is_ok() {
                written = file.sync_all().await;
            }
            let closed = file.close().await;
            let _ = done.send(written.and(closed));
        }
        Job::Read { file, chunks } => {
            let file = tokio_uring::fs::File::from_std(file);
            let mut at = 0;
            loop {
                let (read, mut chunk) = file.read_at(Vec::with_capacity(READ_BYTES), at).await;
                let item = read.map(|n| {
                    at += n as u64;
                    chunk.truncate(n);
                    Bytes::from(chunk)
                });
                let last = item.as_ref().map_or(true, Bytes::is_empty);
                // A reader that went away ends the transfer, as the end of the file does.
                if item.as_ref().is_ok_and(Bytes::is_empty) || chunks.send(item).await.is_err() || last {
                    break;
                }
            }
            let _ = file.close().await;
        }
    }
}

async fn through_threads(job: Job) {
    match job {
        Job::Write { file, mut chunks, done } => {
            let mut file = tokio::fs::File::from_std(file);
            let mut written = Ok(());
            while let (Ok(()), Some(chunk)) = (&written, chunks.recv().await) {
                written = file.write_all(&chunk).await;
            }
            drop(chunks);
            if written.is_ok() {
                written = file.flush().await;
            }
            if written.is_ok() {
                written = file.sync_all().await;
            }
            let _ = done.send(written);
        }
        Job::Read { file, chunks } => {
            let mut file = tokio::fs::File::from_std(file);
            loop {
                let mut chunk = vec![0; READ_BYTES];
                let item = file.read(&mut chunk).await.map(|n| {
                    chunk.truncate(n);
                    Bytes::from(chunk)
                });
                let last = item.as_ref().map_or(true, Bytes::is_empty);
                if item.as_ref().is_ok_and(Bytes::is_empty) || chunks.send(item).await.is_err() || last {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Both ways, where this machine allows both.
    fn ways() -> Vec<BlobIo> {
        vec![BlobIo::start(), BlobIo::plain()]
    }

    fn chunk(i: usize) -> Bytes {
        Bytes::from(vec![i as u8; 100_000 + i])
    }

    #[tokio::test]
    async fn what_was_written_is_read_back() {
        for way in ways() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = way.write(file.reopen().unwrap()).await;
            let mut expected = Vec::new();
            for i in 0..40 {
                writer.push(chunk(i)).await.unwrap();
                expected.extend_from_slice(&chunk(i));
            }
            writer.finish().await.unwrap();
            assert!(std::fs::read(file.path()).unwrap() == expected, "{way:?}: the file holds what was written");
            let mut chunks = way.read(file.reopen().unwrap()).await;
            let mut got = Vec::new();
            while let Some(chunk) = chunks.recv().await {
                got.extend_from_slice(&chunk.unwrap());
            }
            assert!(got == expected, "{way:?}: what was read is what was written");
        }
    }

    #[tokio::test]
    async fn an_empty_file_is_no_chunk() {
        for way in ways() {
            let file = tempfile::NamedTempFile::new().unwrap();
            way.write(file.reopen().unwrap()).await.finish().await.unwrap();
            assert!(way.read(file.reopen().unwrap()).await.recv().await.is_none(), "{way:?}");
        }
    }

    #[tokio::test]
    async fn an_error_of_the_file_comes_out_at_the_end() {
        for way in ways() {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(b"x").unwrap();
            let mut writer = way.write(File::open(file.path()).unwrap()).await;
            while writer.push(chunk(1)).await.is_ok() {}
            let e = writer.finish().await.unwrap_err();
            assert_eq!(e.raw_os_error(), Some(9), "{way:?}: a file that is open for reading only");
            let dir = File::open(std::env::temp_dir()).unwrap();
            let mut chunks = way.read(dir).await;
            assert_eq!(chunks.recv().await.unwrap().unwrap_err().kind(), io::ErrorKind::IsADirectory, "{way:?}");
            assert!(chunks.recv().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_stops_the_transfer_and_nothing_else() {
        for way in ways() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = way.write(file.reopen().unwrap()).await;
            for i in 0..50 {
                writer.push(chunk(i)).await.unwrap();
            }
            writer.finish().await.unwrap();
            let mut gone = way.read(file.reopen().unwrap()).await;
            gone.recv().await.unwrap().unwrap();
            drop(gone);
            let mut chunks = way.read(file.reopen().unwrap()).await;
            let mut n = 0;
            while let Some(chunk) = chunks.recv().await {
                n += chunk.unwrap().len() as u64;
            }
            assert_eq!(n, std::fs::metadata(file.path()).unwrap().len(), "{way:?}");
        }
    }
}
