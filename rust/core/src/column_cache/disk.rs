//! Columns of checkpoints in files that are mapped into memory without decoding.
//!
//! One native thread writes the files, batch by batch from a queue that is bounded in bytes, so an answer never waits
//! for the disk. All processes of a user share a directory: they map the same files, and the page cache has one copy. A
//! file is used only if its header has the wanted key and its checksums are right; otherwise it is removed and the log
//! is read.

mod directory;
mod writer;

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::directory::Directory;
use self::writer::{Failure, FileWriter};
use super::batch::{CachedBatch, CachedColumns};
use super::columns_file::{MappedFile, OpenError};
use super::state::KeptBatches;
use super::{ColumnCache, ColumnsKey};
use crate::lock::lock;
use crate::predicate::StatsBudget;
use crate::{Error, Result, pool};

/// Maximum bytes of batches that wait to be written.
const QUEUE_BYTES: usize = 32 << 20;
/// Time after a failed write in which columns are kept in memory only.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of keys that are known not to fit.
const KNOWN_TOO_LARGE: usize = 4096;
/// Time after which a file in use is marked as used again, for the order of eviction.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// Events since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Files that were opened.
    pub hits: u64,
    /// Columns without a file.
    pub misses: u64,
    /// Files that were torn, altered, of another version or not private.
    pub invalid: u64,
    /// Written files.
    pub written: u64,
    /// Files whose writing failed.
    pub failed: u64,
    /// Columns that exceed the bound.
    pub too_large: u64,
    /// Files removed for others.
    pub evicted: u64,
}

/// A directory of columns files and the thread that writes them.
#[derive(Debug)]
pub struct DiskCache {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: Arc<Directory>,
    most_bytes: u64,
    counts: Mutex<DiskCounts>,
    queue: Mutex<Queue>,
    /// A job was added.
    added: Condvar,
    /// A job was taken or has ended.
    taken: Condvar,
    paused_until: Mutex<Option<Instant>>,
    too_large: Mutex<HashSet<[u8; 32]>>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Of the batches.
    bytes: usize,
    is_working: bool,
    is_closed: bool,
}

#[derive(Debug)]
enum Job {
    Batch { file: Arc<PendingFile>, batch: Arc<CachedBatch>, bytes: usize },
    Finish { file: Arc<PendingFile>, cache: Weak<ColumnCache>, key: ColumnsKey, kept: Arc<KeptBatches> },
    Touch { cache: Weak<ColumnCache>, key: ColumnsKey },
}

/// A file whose batches are in the queue.
#[derive(Debug)]
struct PendingFile {
    /// `None` after a failure.
    writer: Mutex<Option<FileWriter>>,
    /// Whether the rest of the file is no longer wanted or possible.
    is_over: AtomicBool,
}

/// Takes the batches of one file. Dropping it before [`DiskBuild::finish`] ends the file without a trace.
#[derive(Debug)]
pub(super) struct DiskBuild {
    shared: Arc<Shared>,
    file: Arc<PendingFile>,
    is_finished: bool,
}

/// The result of [`DiskBuild::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    Yes,
    /// The queue is full; the batch can be given again.
    Full,
    /// The file cannot be written.
    Failed,
}

/// The result of [`DiskCache::begin`].
#[derive(Debug)]
pub(super) enum Begun {
    Build(DiskBuild),
    /// Another process writes the file.
    Elsewhere,
    /// The columns do not fit, or the disk has failed.
    No,
}

impl DiskCache {
    /// Opens or makes the directory and starts the writer. The directory has to belong to the user of this process,
    /// and nobody else may be able to write to it.
    pub fn open(directory: &Path, most_bytes: u64) -> Result<Self> {
        let unusable = |reason: &dyn std::fmt::Display| {
            Error::InvalidArgument(format!("the directory of the column cache cannot be used: {reason}"))
        };
        let directory = Arc::new(Directory::open(directory).map_err(|reason| unusable(&reason))?);
        let evicted = directory.shrink(most_bytes).map_err(|reason| unusable(&reason))?;
        let shared = Arc::new(Shared {
            directory,
            most_bytes,
            counts: Mutex::new(DiskCounts { evicted, ..DiskCounts::default() }),
            queue: Mutex::default(),
            added: Condvar::new(),
            taken: Condvar::new(),
            paused_until: Mutex::default(),
            too_large: Mutex::default(),
        });
        let working = Arc::clone(&shared);
        let thread = thread::Builder::new().name("deltalog-columns".to_owned()).spawn(move || working.work());
        Ok(Self { shared, thread: Some(thread.map_err(|reason| unusable(&reason))?) })
    }

    /// Returns the events so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        *lock(&self.shared.counts)
    }

    /// Returns the bytes of all files of the directory; zero if it cannot be listed. Blocks.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shared.directory.used_bytes().unwrap_or(0)
    }

    /// Waits until all columns given so far are written.
    pub fn wait_until_written(&self) {
        let mut queue = lock(&self.shared.queue);
        while !queue.jobs.is_empty() || queue.is_working {
            queue = self.shared.taken.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens the file of a key, if there is a valid one.
    pub(super) fn find(&self, key: &ColumnsKey, stats: &Arc<StatsBudget>) -> Option<CachedColumns> {
        let columns = self.shared.open(key, stats)?;
        lock(&self.shared.counts).hits += 1;
        self.shared.directory.touch(&key.file_name());
        Some(columns)
    }

    /// Begins the file of a key, for about `files` files.
    pub(super) fn begin(&self, key: &ColumnsKey, files: Option<u64>) -> Begun {
        let shared = &self.shared;
        let is_paused = lock(&shared.paused_until).is_some_and(|until| Instant::now() < until);
        if is_paused || lock(&shared.too_large).contains(&key.digest) {
            return Begun::No;
        }
        let begun =
            FileWriter::begin(&shared.directory, key.digest, key.file_name(), shared.most_bytes, files);
        match begun {
            Ok(Some(writer)) => {
                let writer = Mutex::new(Some(writer));
                let file = Arc::new(PendingFile { writer, is_over: AtomicBool::new(false) });
                Begun::Build(DiskBuild { shared: Arc::clone(shared), file, is_finished: false })
            }
            Ok(None) => Begun::Elsewhere,
            Err(_) => {
                shared.count_failure(&key.digest, &Failure::Disk);
                Begun::No
            }
        }
    }

    /// Counts and removes an invalid file.
    pub(super) fn discard(&self, key: &ColumnsKey) {
        self.shared.discard(key);
    }

    /// Marks the file of a key as used, later.
    pub(super) fn touch(&self, cache: &Arc<ColumnCache>, key: &ColumnsKey) {
        let _ = self.shared.add(Job::Touch { cache: Arc::downgrade(cache), key: *key }, 0);
    }

    /// Whether a file that was last marked at `touched_at` is to be marked again.
    pub(super) fn is_due(touched_at: Instant) -> bool {
        touched_at.elapsed() > TOUCH_EVERY
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.added.notify_all();
        self.shared.taken.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic of the writer has ended its file and has no further effect.
            let _ = thread.join();
        }
    }
}

impl DiskBuild {
    /// Queues a batch. With `waits`, waits for space in the queue.
    pub(super) fn push(&self, batch: &Arc<CachedBatch>, waits: bool) -> Queued {
        let bytes = batch.files.memory_bytes();
        let mut queue = lock(&self.shared.queue);
        loop {
            if self.file.is_over.load(Ordering::Acquire) || queue.is_closed {
                return Queued::Failed;
            }
            // A batch that is larger than the whole queue goes alone.
            if queue.bytes == 0 || queue.bytes + bytes <= QUEUE_BYTES {
                break;
            }
            if !waits {
                return Queued::Full;
            }
            queue = pool::block_in_place(|| {
                self.shared.taken.wait(queue).unwrap_or_else(PoisonError::into_inner)
            });
        }
        drop(queue);
        let (file, batch) = (Arc::clone(&self.file), Arc::clone(batch));
        if self.shared.add(Job::Batch { file, batch, bytes }, bytes) { Queued::Yes } else { Queued::Failed }
    }

    /// Completes the file after the batches that are queued, and then lets `cache` use it.
    pub(super) fn finish(mut self, cache: &Arc<ColumnCache>, key: &ColumnsKey, kept: &Arc<KeptBatches>) {
        let (file, kept_by_job) = (Arc::clone(&self.file), Arc::clone(kept));
        let job = Job::Finish { file, cache: Arc::downgrade(cache), key: *key, kept: kept_by_job };
        self.is_finished = self.shared.add(job, 0);
        if !self.is_finished {
            cache.end_build(key, kept);
        }
    }
}

impl Drop for DiskBuild {
    fn drop(&mut self) {
        if !self.is_finished {
            self.file.is_over.store(true, Ordering::Release);
        }
    }
}

impl Shared {
    /// Returns false if the writer has ended, or is about to.
    fn add(&self, job: Job, bytes: usize) -> bool {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return false;
        }
        queue.bytes += bytes;
        queue.jobs.push_back(job);
        drop(queue);
        self.added.notify_one();
        true
    }

    fn work(&self) {
        pool::lower_priority();
        let mut queue = lock(&self.queue);
        loop {
            queue.is_working = false;
            self.taken.notify_all();
            let Some(job) = queue.jobs.pop_front() else {
                if queue.is_closed {
                    return;
                }
                queue = self.added.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.is_working = true;
            drop(queue);
            let bytes = if let Job::Batch { bytes, .. } = &job { *bytes } else { 0 };
            // A panic ends one file and not the thread.
            drop(catch_unwind(AssertUnwindSafe(|| self.run(job))));
            queue = lock(&self.queue);
            queue.bytes -= bytes;
        }
    }

    fn run(&self, job: Job) {
        match job {
            Job::Batch { file, batch, .. } => {
                let mut writer = lock(&file.writer);
                if file.is_over.load(Ordering::Acquire) {
                    *writer = None;
                } else if let Some(current) = writer.as_mut()
                    && let Err(failure) = current.push(&batch)
                {
                    let key = current.key();
                    *writer = None;
                    file.is_over.store(true, Ordering::Release);
                    self.count_failure(&key, &failure);
                }
            }
            Job::Finish { file, cache, key, kept } => {
                let cache = cache.upgrade();
                let written = lock(&file.writer).take().map(FileWriter::finish);
                let columns = match written {
                    Some(Ok(evicted)) => {
                        let mut counts = lock(&self.counts);
                        counts.written += 1;
                        counts.evicted += evicted;
                        drop(counts);
                        cache.as_ref().and_then(|cache| self.open(&key, cache.stats_budget()))
                    }
                    Some(Err(failure)) => {
                        self.count_failure(&key.digest, &failure);
                        None
                    }
                    None => None,
                };
                if let Some(cache) = cache {
                    cache.end_disk_build(&key, &kept, columns);
                }
            }
            Job::Touch { cache, key } => {
                // Another process has evicted the file: the mapping would keep its bytes.
                if !self.directory.touch(&key.file_name())
                    && let Some(cache) = cache.upgrade()
                {
                    cache.drop_mapped(&key);
                }
            }
        }
    }

    fn open(&self, key: &ColumnsKey, stats: &Arc<StatsBudget>) -> Option<CachedColumns> {
        let opened = match self.directory.open_finished(&key.file_name()) {
            Ok(file) => MappedFile::open(&file, &key.digest),
            Err(error) if directory::is_foreign(&error) => Err(OpenError::Invalid),
            // There is no file, or the system refuses to open it.
            Err(_) => Err(OpenError::Unreadable),
        };
        match opened {
            Ok(mapped) => Some(CachedColumns::mapped(mapped, Arc::clone(stats))),
            Err(OpenError::Invalid) => {
                self.discard(key);
                None
            }
            Err(OpenError::Unreadable) => {
                lock(&self.counts).misses += 1;
                None
            }
        }
    }

    fn discard(&self, key: &ColumnsKey) {
        lock(&self.counts).invalid += 1;
        self.directory.remove_finished(&key.file_name());
    }

    fn count_failure(&self, key: &[u8; 32], failure: &Failure) {
        match failure {
            Failure::Disk => {
                lock(&self.counts).failed += 1;
                *lock(&self.paused_until) = Some(Instant::now() + PAUSE);
            }
            Failure::TooLarge | Failure::Unsupported => {
                lock(&self.counts).too_large += 1;
                let mut too_large = lock(&self.too_large);
                if too_large.len() >= KNOWN_TOO_LARGE {
                    too_large.clear();
                }
                too_large.insert(*key);
            }
        }
    }
}
