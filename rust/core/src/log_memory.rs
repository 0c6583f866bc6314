//! The memory of log files that are read whole, commits and checksums, and of the footers and large pages of checkpoints.
//!
//! Texts of a commit are views into its file, beside columns of its actions. Both stay in memory while a snapshot or a
//! stream uses one of them, so a file is counted with its columns for as long as its bytes live. What the files of one
//! read may take is admitted by their listed sizes before the first of them is read: reads beyond the limit free cached
//! snapshots, wait, and fail with [`Error::Busy`].

use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memchr_iter;

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::pool;

/// Memory of the columns and keys of one action, beside its text.
const ACTION_BYTES: u64 = 320;
/// Memory of the arrays and buffers of one file, beside its text and its actions: most of a commit of one line.
const FILE_BYTES: u64 = 2048;
/// The part of the limit that is left to small logs: a few large ones do not stop all other tables.
const PART_OF_SMALL: u64 = 8;
/// How long a read waits for the memory of others.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How often snapshots that were cached meanwhile are freed.
const PAUSE: Duration = Duration::from_millis(100);

static SHARED: LogMemory = LogMemory::new(u64::MAX);

type Relieve = Box<dyn Fn(u64) + Send + Sync>;

/// Limits the memory of all log files of the process. `relieve` frees cached snapshots of about so many bytes; that
/// of the first call is kept.
pub fn bound(limit_bytes: u64, relieve: impl Fn(u64) + Send + Sync + 'static) {
    lock(&SHARED.ledger).limit_bytes = limit_bytes;
    SHARED.relieve.get_or_init(|| Box::new(relieve));
    SHARED.freed.notify_all();
}

/// Admits files of these sizes. Waits for others if that is necessary.
pub(crate) fn admit(file_sizes: impl Iterator<Item = u64>) -> Result<Admitted> {
    SHARED.admit(expected_bytes(file_sizes), MAX_WAIT)
}

/// Admits what decoding a part of a checkpoint takes.
pub(crate) fn admit_decoded(bytes: u64) -> Result<Admitted> {
    SHARED.admit(bytes, MAX_WAIT)
}

/// As [`admit`], without a wait.
pub(crate) fn try_admit(file_sizes: impl Iterator<Item = u64>) -> Option<Admitted> {
    SHARED.take(expected_bytes(file_sizes)).ok()
}

/// With columns. Files of shorter lines are counted by these once they are read.
fn expected_bytes(file_sizes: impl Iterator<Item = u64>) -> u64 {
    file_sizes.map(|size| size.saturating_mul(2).saturating_add(FILE_BYTES)).fold(0, u64::saturating_add)
}

/// The ledger of the process.
struct LogMemory {
    ledger: Mutex<Ledger>,
    freed: Condvar,
    relieve: OnceLock<Relieve>,
}

struct Ledger {
    limit_bytes: u64,
    used_bytes: u64,
}

impl Ledger {
    /// What all may have together for a read of `bytes` to be admitted.
    fn limit_of(&self, bytes: u64) -> u64 {
        let of_small = self.limit_bytes / PART_OF_SMALL;
        if bytes > of_small { self.limit_bytes - of_small } else { self.limit_bytes }
    }
}

impl LogMemory {
    const fn new(limit_bytes: u64) -> Self {
        let ledger = Mutex::new(Ledger { limit_bytes, used_bytes: 0 });
        Self { ledger, freed: Condvar::new(), relieve: OnceLock::new() }
    }

    fn admit(&'static self, bytes: u64, most_wait: Duration) -> Result<Admitted> {
        self.take(bytes).or_else(|_| pool::block_in_place(|| self.wait(bytes, Instant::now() + most_wait)))
    }

    fn wait(&'static self, bytes: u64, until: Instant) -> Result<Admitted> {
        loop {
            if let Some(relieve) = self.relieve.get() {
                relieve(bytes);
            }
            let refused = match self.take(bytes) {
                Ok(admitted) => return Ok(admitted),
                Err(refused) => refused,
            };
            let ledger = lock(&self.ledger);
            if Instant::now() >= until || bytes > ledger.limit_of(bytes) {
                return Err(refused);
            }
            drop(self.freed.wait_timeout(ledger, PAUSE));
        }
    }

    /// Counts bytes if they fit.
    fn take(&'static self, bytes: u64) -> Result<Admitted> {
        let mut ledger = lock(&self.ledger);
        let (used_bytes, most) = (ledger.used_bytes, ledger.limit_of(bytes));
        if used_bytes.saturating_add(bytes) > most {
            let detail = format!(
                "its log takes {bytes} bytes of memory, others {used_bytes}, and all may have {most}"
            );
            return Err(Error::Busy { detail });
        }
        ledger.used_bytes += bytes;
        Ok(Admitted { memory: self, bytes })
    }
}

/// Memory that was admitted. Dropping it returns it.
pub(crate) struct Admitted {
    memory: &'static LogMemory,
    bytes: u64,
}

impl Admitted {
    /// Returns files that were read, each of which keeps its part as long as its bytes are used.
    pub(crate) fn hold(mut self, contents: Vec<Result<Bytes>>) -> Vec<Result<Bytes>> {
        contents.into_iter().map(|content| self.hold_one(content?)).collect()
    }

    fn hold_one(&mut self, content: Bytes) -> Result<Bytes> {
        let actions = memchr_iter(b'\n', &content).count() as u64 + 1;
        let bytes = content.len() as u64 + actions * ACTION_BYTES + FILE_BYTES;
        self.grow(bytes.saturating_sub(self.bytes))?;
        self.bytes -= bytes;
        let share = Self { memory: self.memory, bytes };
        Ok(Bytes::from_owner(Held { content, _own: share }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes, if they fit: to wait for others with what they wait for could be for ever.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        let mut more = self.memory.admit(bytes, Duration::ZERO)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }

    /// Returns what is more than so many bytes.
    pub(crate) fn keep(&mut self, bytes: u64) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        drop(Self { memory: self.memory, bytes: rest });
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.memory.ledger).used_bytes -= self.bytes;
        self.memory.freed.notify_all();
    }
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Admitted").field(&self.bytes).finish()
    }
}

/// A file with its memory.
struct Held {
    content: Bytes,
    _own: Admitted,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn memory(limit_bytes: u64) -> &'static LogMemory {
        Box::leak(Box::new(LogMemory::new(limit_bytes)))
    }

    fn used(memory: &LogMemory) -> u64 {
        lock(&memory.ledger).used_bytes
    }

    #[test]
    fn a_read_waits_until_what_others_hold_is_dropped() {
        let memory = memory(8000);
        let held = memory.admit(5000, LONG).unwrap();
        let waiting = std::thread::spawn(move || memory.admit(5000, LONG));
        assert!(matches!(memory.admit(5000, Duration::ZERO), Err(Error::Busy { .. })));
        // A small log is read beside large ones.
        drop(memory.admit(1000, Duration::ZERO).unwrap());
        assert!(!waiting.is_finished());
        drop(held);
        drop(waiting.join().unwrap().unwrap());
        assert_eq!(used(memory), 0);
    }

    #[test]
    fn a_log_that_never_fits_does_not_wait() {
        let began = Instant::now();
        let error = memory(8000).admit(7001, LONG).unwrap_err();
        assert!(began.elapsed() < LONG / 2);
        assert!(
            error.detail().unwrap().contains("takes 7001 bytes of memory, others 0, and all may have 7000")
        );
    }

    #[test]
    fn cached_logs_are_freed_for_a_read() {
        let memory = memory(8000);
        let cached = Mutex::new(Some(memory.admit(6000, LONG).unwrap()));
        memory.relieve.get_or_init(|| {
            Box::new(move |bytes| {
                assert_eq!(bytes, 2000);
                drop(lock(&cached).take());
            })
        });
        let second = memory.admit(2000, LONG).unwrap();
        assert_eq!(used(memory), 2000);
        drop(second);
    }

    #[test]
    fn a_footer_takes_more_while_it_is_decoded_than_it_keeps() {
        let memory = memory(8000);
        let mut footer = memory.admit(3000, LONG).unwrap();
        footer.grow(1000).unwrap();
        assert!(matches!(footer.grow(4000), Err(Error::Busy { .. })));
        assert_eq!(used(memory), 4000);
        for (kept, expected) in [(5000, 4000), (500, 500)] {
            footer.keep(kept);
            assert_eq!(used(memory), expected);
        }
        drop(footer);
        assert_eq!(used(memory), 0);
    }

    #[test]
    fn files_keep_their_memory_while_a_part_of_them_is_used() {
        let memory = memory(1 << 20);
        let contents = [vec![b'x'; 2000], b"{}\n{}\n".to_vec()].map(|content| Ok(Bytes::from(content)));
        let error = Err(Error::FileNotFound { file: "f".into() });
        let read = memory.admit(8000, LONG).unwrap().hold(contents.into_iter().chain([error]).collect());
        assert!(read[2].is_err());
        let expected = [2000 + ACTION_BYTES, 6 + 3 * ACTION_BYTES].map(|bytes| bytes + FILE_BYTES);
        assert_eq!(used(memory), expected[0] + expected[1]);
        let part = read[1].as_ref().unwrap().slice(3..5);
        drop(read);
        assert_eq!((used(memory), &part[..]), (expected[1], &b"{}"[..]));
        drop(Arc::new(part));
        assert_eq!(used(memory), 0);
    }

    #[test]
    fn many_small_files_are_admitted_by_their_number_too() {
        assert_eq!(expected_bytes([100; 10].into_iter()), 10 * (200 + FILE_BYTES));
        assert_eq!(expected_bytes([u64::MAX; 2].into_iter()), u64::MAX);
    }

    #[test]
    fn a_file_of_many_short_lines_counts_by_its_lines() {
        let memory = memory(100 * ACTION_BYTES + FILE_BYTES);
        let content = Bytes::from("\n".repeat(90));
        let read = memory.admit(180, LONG).unwrap().hold(vec![Ok(content.clone())]);
        assert!(matches!(read[0], Err(Error::Busy { .. })), "{read:?}");
        assert_eq!(used(memory), 0);
        let read = memory.admit(180, LONG).unwrap().hold(vec![Ok(content.slice(..60))]);
        assert_eq!((read[0].is_ok(), used(memory)), (true, 60 + 61 * ACTION_BYTES + FILE_BYTES));
    }
}
