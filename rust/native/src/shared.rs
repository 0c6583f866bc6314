//! The state that all tables of the process share: the pool, the column cache, the buffers of chunks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use deltalog::Result;
use deltalog::column_cache::{ColumnCache, DEFAULT_CACHE_BYTES, DiskCache, DiskCounts};
use deltalog::log_faults::LogFault;
use deltalog::log_memory;
use deltalog::pool::Pool;
use deltalog::snapshot::{forget_rule_totals, rule_totals_bytes};
use deltalog::stream::{Buffers, LineSource, NdjsonStream, StreamOptions};
use pyo3::prelude::*;

use crate::errors::run;
use crate::stream::NdjsonChunks;

struct Shared {
    threads: Option<usize>,
    pool: OnceLock<Result<Pool>>,
    cache: Arc<ColumnCache>,
    buffers: Arc<Buffers>,
}

fn shared() -> &'static Mutex<Shared> {
    static SHARED: OnceLock<Mutex<Shared>> = OnceLock::new();
    SHARED.get_or_init(|| {
        Mutex::new(Shared {
            threads: None,
            pool: OnceLock::new(),
            cache: Arc::new(ColumnCache::new(DEFAULT_CACHE_BYTES)),
            buffers: Arc::default(),
        })
    })
}

fn with_shared<T>(use_shared: impl FnOnce(&mut Shared) -> T) -> T {
    use_shared(&mut shared().lock().unwrap_or_else(PoisonError::into_inner))
}

impl Shared {
    fn pool(&self) -> Result<Pool> {
        let threads = || self.threads.unwrap_or_else(Pool::default_threads);
        self.pool.get_or_init(|| Pool::new(threads())).clone()
    }
}

pub(crate) fn pool() -> Result<Pool> {
    with_shared(|shared| shared.pool())
}

pub(crate) fn column_cache() -> Arc<ColumnCache> {
    with_shared(|shared| Arc::clone(&shared.cache))
}

/// Starts the stream of an answer on the shared pool.
pub(crate) fn start(source: Box<dyn LineSource>, options: StreamOptions) -> Result<NdjsonChunks> {
    let (pool, buffers) = with_shared(|shared| (shared.pool(), Arc::clone(&shared.buffers)));
    NdjsonStream::start(&pool?, &buffers, source, options).map(NdjsonChunks::new)
}

/// Sets the size of the native pool, before the first stream, and the budget of the cache.
#[pyfunction]
#[pyo3(signature = (*, threads=None, cache_bytes=None))]
pub(crate) fn configure(threads: Option<usize>, cache_bytes: Option<usize>) {
    with_shared(|shared| {
        shared.threads = threads.or(shared.threads);
        if let Some(bytes) = cache_bytes {
            shared.cache.set_budget(bytes);
        }
    });
}

/// Limits what the log files of all tables take in memory together, beside all else in the process.
#[pyfunction]
pub(crate) fn bound_logs(bytes: u64) {
    let cache = column_cache();
    log_memory::bound(bytes, move |shortage| {
        cache.shrink_logs(shortage.log_bytes);
        if let wanted @ 1.. = usize::try_from(shortage.process_bytes).unwrap_or(usize::MAX) {
            cache.shrink(cache.used_bytes().saturating_sub(wanted));
        }
    });
}

/// Keeps columns in files of a directory, of at most `disk_bytes` together. Without a directory, in memory.
#[pyfunction]
#[pyo3(signature = (directory, *, disk_bytes))]
pub(crate) fn configure_cache_directory(
    py: Python<'_>,
    directory: Option<PathBuf>,
    disk_bytes: u64,
) -> PyResult<()> {
    let cache = column_cache();
    run(py, || {
        let disk = directory.map(|directory| DiskCache::open(&directory, disk_bytes)).transpose()?;
        cache.set_disk(disk.map(Arc::new));
        Ok(())
    })
}

/// Returns the faults of logs that were found since the start, by name.
#[pyfunction]
pub(crate) fn log_faults() -> Vec<(&'static str, u64)> {
    LogFault::NAMES.map(|(fault, name)| (name, fault.total())).to_vec()
}

/// Returns the events of the cache directory, by name.
#[pyfunction]
pub(crate) fn cache_directory_counts() -> Vec<(&'static str, u64)> {
    let DiskCounts { hits, misses, invalid, written, failed, too_large, evicted } =
        column_cache().disk().map(|disk| disk.counts()).unwrap_or_default();
    vec![
        ("hit", hits),
        ("miss", misses),
        ("invalid", invalid),
        ("written", written),
        ("failed", failed),
        ("too_large", too_large),
        ("evicted", evicted),
    ]
}

/// Waits until the columns of all answers so far are in files.
#[pyfunction]
pub(crate) fn wait_for_cache_directory(py: Python<'_>) {
    let disk = column_cache().disk();
    py.detach(|| disk.map_or((), |disk| disk.wait_until_written()));
}

/// Returns the bytes of cached columns, snapshots and sums of rules.
#[pyfunction]
pub(crate) fn cache_used_bytes() -> usize {
    with_shared(|shared| shared.cache.used_bytes()) + rule_totals_bytes()
}

/// Returns the bytes of cached columns and snapshots of each table, by its number.
#[pyfunction]
pub(crate) fn cache_bytes_by_table() -> HashMap<u64, usize> {
    with_shared(|shared| shared.cache.bytes_by_table())
}

/// Frees the spare buffers of chunks.
#[pyfunction]
pub(crate) fn release_spare_buffers(py: Python<'_>) {
    let buffers = with_shared(|shared| Arc::clone(&shared.buffers));
    py.detach(|| buffers.release());
}

/// Evicts entries of the cache down to `bytes`, and all sums of rules.
#[pyfunction]
pub(crate) fn shrink_cache(py: Python<'_>, bytes: usize) {
    let cache = column_cache();
    py.detach(|| {
        cache.shrink(bytes);
        forget_rule_totals();
    });
}
