//! The state that all tables of the process share: the pool, the column cache, the buffers of chunks.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use deltalog::Result;
use deltalog::column_cache::{ColumnCache, DEFAULT_CACHE_BYTES};
use deltalog::pool::Pool;
use deltalog::stream::{Buffers, LineSource, NdjsonStream, StreamOptions};
use pyo3::prelude::*;

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

/// Returns the bytes of cached columns and snapshots.
#[pyfunction]
pub(crate) fn cache_used_bytes() -> usize {
    with_shared(|shared| shared.cache.used_bytes())
}

/// Frees the spare buffers of chunks.
#[pyfunction]
pub(crate) fn release_spare_buffers(py: Python<'_>) {
    let buffers = with_shared(|shared| Arc::clone(&shared.buffers));
    py.detach(|| buffers.release());
}

/// Evicts entries of the cache down to `bytes`.
#[pyfunction]
pub(crate) fn shrink_cache(py: Python<'_>, bytes: usize) {
    let cache = column_cache();
    py.detach(|| cache.shrink(bytes));
}
