//! The memory of log files that are read whole, commits and checksums, and of the footers and large pages of checkpoints.
//!
//! Texts of a commit are views into its file, beside columns of its actions. Both stay in memory while a snapshot or a
//! stream uses one of them, so a file is counted with its columns for as long as its bytes live. What the files of one
//! read may take is admitted by their listed sizes before the first of them is read: reads beyond the limit free cached
//! snapshots, wait, and fail with [`Error::Busy`].
//!
//! Streams and columns have the same limit. So a large read counts all private memory of the process, too, and one that
//! does not fit beside it is admitted after its wait, if it is the only large one. Otherwise logs bring the process to
//! its limit, where queries of all tables run one at a time.

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
/// A read from this size on counts the memory of the process: to ask for it costs a hundredth of the read.
const LARGE_BYTES: u64 = 1 << 20;

static SHARED: LogMemory = LogMemory::new(u64::MAX, private_bytes);

type Relieve = Box<dyn Fn(Shortage) + Send + Sync>;

/// What a read lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What it takes itself, of the memory of logs.
    pub log_bytes: u64,
    /// What the process is to give back for it, of any kind.
    pub process_bytes: u64,
}

/// Limits the memory of all log files of the process. `relieve` frees cached snapshots and columns of about so many
/// bytes; that of the first call is kept.
pub fn bound(limit_bytes: u64, relieve: impl Fn(Shortage) + Send + Sync + 'static) {
    lock(&SHARED.ledger).limit = limit_bytes;
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

/// The memory of the process without pages of files, which the system takes back; 0 where it does not tell.
fn private_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|words| words.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes.saturating_mul(1024))
}

/// The ledger of the process.
struct LogMemory {
    ledger: Mutex<Ledger>,
    freed: Condvar,
    relieve: OnceLock<Relieve>,
    process_bytes: fn() -> u64,
}

/// In bytes.
struct Ledger {
    limit: u64,
    /// Of all reads, and of what they have read.
    used: u64,
    /// Of it, what is admitted and may not be in the memory of the process yet.
    pending: u64,
}

impl Ledger {
    /// What all may have together for a read of `bytes` to be admitted.
    fn limit_of(&self, bytes: u64) -> u64 {
        let of_small = self.limit / PART_OF_SMALL;
        if bytes > of_small { self.limit - of_small } else { self.limit }
    }

    /// What there is beside a read, in a process of that size.
    fn others(&self, process_bytes: u64) -> u64 {
        let expected = if process_bytes == 0 { 0 } else { process_bytes.saturating_add(self.pending) };
        self.used.max(expected)
    }

    /// Whether the other logs are small ones, and the read fits beside them.
    fn is_only_large(&self, bytes: u64, own_bytes: u64) -> bool {
        let others = self.used.saturating_sub(own_bytes);
        others <= self.limit / PART_OF_SMALL && self.used.saturating_add(bytes) <= self.limit_of(bytes)
    }
}

impl LogMemory {
    const fn new(limit_bytes: u64, process_bytes: fn() -> u64) -> Self {
        let ledger = Mutex::new(Ledger { limit: limit_bytes, used: 0, pending: 0 });
        Self { ledger, freed: Condvar::new(), relieve: OnceLock::new(), process_bytes }
    }

    fn admit(&'static self, bytes: u64, most_wait: Duration) -> Result<Admitted> {
        self.admit_beside(bytes, 0, most_wait)
    }

    /// Admits more for a read that has `own_bytes`.
    fn admit_beside(&'static self, bytes: u64, own_bytes: u64, most_wait: Duration) -> Result<Admitted> {
        let wait = |_| pool::block_in_place(|| self.wait(bytes, own_bytes, Instant::now() + most_wait));
        self.take(bytes).or_else(wait)
    }

    fn wait(&'static self, bytes: u64, own_bytes: u64, until: Instant) -> Result<Admitted> {
        loop {
            if let Some(relieve) = self.relieve.get() {
                relieve(self.shortage(bytes));
            }
            let refused = match self.take(bytes) {
                Ok(admitted) => return Ok(admitted),
                Err(refused) => refused,
            };
            let mut ledger = lock(&self.ledger);
            if bytes > ledger.limit_of(bytes) {
                return Err(refused);
            }
            if Instant::now() >= until {
                return if ledger.is_only_large(bytes, own_bytes) {
                    Ok(self.count(&mut ledger, bytes))
                } else {
                    Err(refused)
                };
            }
            drop(self.freed.wait_timeout(ledger, PAUSE));
        }
    }

    /// Counts bytes if they fit beside all else.
    fn take(&'static self, bytes: u64) -> Result<Admitted> {
        let process_bytes = self.process_bytes_for(bytes);
        let mut ledger = lock(&self.ledger);
        let (others, most) = (ledger.others(process_bytes), ledger.limit_of(bytes));
        if others.saturating_add(bytes) > most {
            let detail =
                format!("its log takes {bytes} bytes of memory, others {others}, and all may have {most}");
            return Err(Error::Busy { lacks: "memory left for the table's log", detail });
        }
        Ok(self.count(&mut ledger, bytes))
    }

    fn count(&'static self, ledger: &mut Ledger, bytes: u64) -> Admitted {
        ledger.used += bytes;
        ledger.pending += bytes;
        Admitted { memory: self, bytes, is_pending: true }
    }

    fn shortage(&self, bytes: u64) -> Shortage {
        let process_bytes = self.process_bytes_for(bytes);
        let ledger = lock(&self.ledger);
        let wanted = ledger.pending.saturating_add(process_bytes).saturating_add(bytes);
        let process_bytes = match process_bytes {
            0 => 0,
            _ => wanted.saturating_sub(ledger.limit_of(bytes)),
        };
        Shortage { log_bytes: bytes, process_bytes }
    }

    /// The memory of the process, of which a small read takes no account.
    fn process_bytes_for(&self, bytes: u64) -> u64 {
        if bytes < LARGE_BYTES { 0 } else { (self.process_bytes)() }
    }
}

/// Memory that was admitted. Dropping it returns it.
pub(crate) struct Admitted {
    memory: &'static LogMemory,
    bytes: u64,
    is_pending: bool,
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
        let mut share = self.part(bytes);
        share.settle();
        Ok(Bytes::from_owner(Held { content, _own: share }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes, if they fit: to wait for others with what they wait for could be for ever.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        let mut more = self.memory.admit_beside(bytes, self.bytes, Duration::ZERO)?;
        if !self.is_pending {
            more.settle();
        }
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }

    /// Returns what is more than so many bytes. The rest is in memory.
    pub(crate) fn keep(&mut self, bytes: u64) {
        drop(self.part(self.bytes.saturating_sub(bytes)));
        self.settle();
    }

    fn part(&mut self, bytes: u64) -> Self {
        self.bytes -= bytes;
        Self { memory: self.memory, bytes, is_pending: self.is_pending }
    }

    /// From now on the memory of the process has it.
    fn settle(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            lock(&self.memory.ledger).pending -= self.bytes;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.settle();
        lock(&self.memory.ledger).used -= self.bytes;
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
        of_process(limit_bytes, || 0)
    }

    fn of_process(limit_bytes: u64, process_bytes: fn() -> u64) -> &'static LogMemory {
        Box::leak(Box::new(LogMemory::new(limit_bytes, process_bytes)))
    }

    fn used(memory: &LogMemory) -> u64 {
        lock(&memory.ledger).used
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
            Box::new(move |shortage| {
                assert_eq!(shortage, Shortage { log_bytes: 2000, process_bytes: 0 });
                drop(lock(&cached).take());
            })
        });
        let second = memory.admit(2000, LONG).unwrap();
        assert_eq!(used(memory), 2000);
        drop(second);
    }

    #[test]
    fn a_large_log_fits_beside_all_memory_of_the_process() {
        const MIB: u64 = 1 << 20;
        let memory = of_process(80 * MIB, || 30 * MIB);
        let first = memory.admit(20 * MIB, Duration::ZERO).unwrap();
        let error = memory.admit(21 * MIB, Duration::ZERO).unwrap_err();
        let detail = format!("takes {} bytes of memory, others {}", 21 * MIB, 50 * MIB);
        assert!(error.detail().unwrap().contains(&detail), "{error:?}");
        let wanted = memory.shortage(21 * MIB);
        assert_eq!(wanted, Shortage { log_bytes: 21 * MIB, process_bytes: MIB });
        // What was read is a part of the process.
        let content = Bytes::from(vec![b'x'; 12 * MIB as usize]);
        let read = first.hold(vec![Ok(content)]);
        drop(memory.admit(21 * MIB, Duration::ZERO).unwrap());
        drop(memory.admit(LARGE_BYTES - 1, Duration::ZERO).unwrap());
        drop(read);
        assert_eq!((used(memory), lock(&memory.ledger).pending), (0, 0));
    }

    #[test]
    fn the_only_large_log_is_read_in_a_full_process() {
        const MIB: u64 = 1 << 20;
        let memory = of_process(80 * MIB, || 90 * MIB);
        let small = memory.admit(10 * MIB, Duration::ZERO).unwrap();
        let mut only = memory.admit(40 * MIB, Duration::ZERO).unwrap();
        assert!(matches!(memory.admit(5 * MIB, Duration::ZERO), Err(Error::Busy { .. })));
        only.grow(10 * MIB).unwrap();
        assert!(matches!(only.grow(20 * MIB), Err(Error::Busy { .. })));
        drop((small, only));
        assert_eq!((used(memory), lock(&memory.ledger).pending), (0, 0));
    }

    #[test]
    fn the_system_tells_the_memory_of_this_process() {
        assert!(!cfg!(target_os = "linux") || private_bytes() > 1 << 16);
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
