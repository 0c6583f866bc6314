//! `Table`, `Snapshot` and the process-wide pool and cache behind them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use deltalog::Result;
use deltalog::answer::{self, FilesRequest};
use deltalog::explain::explain;
use deltalog::hot::HotCache;
use deltalog::ndjson::chunk::{Buffers, LineSource, NdjsonStream, StreamOptions};
use deltalog::pool::Pool;
use deltalog::predicate::{Hints, Predicate};
use deltalog::scan::Place;
use deltalog::snapshot::At;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::changes::Changes;
use crate::errors::{run, to_python};
use crate::explain::Explanation;
use crate::options::{AnswerOptions, response_format_of};
use crate::storage::Storage;
use crate::stream::NdjsonChunks;

/// Columns of hot tables unless `configure` says otherwise.
const DEFAULT_CACHE_BYTES: usize = 512 << 20;

/// Up to so many files an answer from memory is made on the thread that asks: about 30 µs of work.
const FILES_OF_SMALL_TABLE: u64 = 64;

/// What all tables of the process share.
struct Shared {
    threads: Option<usize>,
    pool: OnceLock<Result<Pool>>,
    hot: Arc<HotCache>,
    buffers: Arc<Buffers>,
}

fn shared() -> &'static Mutex<Shared> {
    static SHARED: OnceLock<Mutex<Shared>> = OnceLock::new();
    SHARED.get_or_init(|| {
        Mutex::new(Shared {
            threads: None,
            pool: OnceLock::new(),
            hot: Arc::new(HotCache::new(DEFAULT_CACHE_BYTES)),
            buffers: Arc::default(),
        })
    })
}

fn with_shared<T>(use_shared: impl FnOnce(&mut Shared) -> T) -> T {
    use_shared(&mut shared().lock().unwrap_or_else(PoisonError::into_inner))
}

impl Shared {
    fn pool(&self) -> Result<Pool> {
        let threads = || self.threads.unwrap_or_else(available_threads);
        self.pool.get_or_init(|| Pool::new(threads())).clone()
    }
}

fn pool() -> Result<Pool> {
    with_shared(|shared| shared.pool())
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Starts the stream of an answer on the shared pool.
pub(crate) fn start(source: Box<dyn LineSource>, options: StreamOptions) -> Result<NdjsonChunks> {
    let (pool, buffers) = with_shared(|shared| (shared.pool(), Arc::clone(&shared.buffers)));
    NdjsonStream::start(&pool?, &buffers, source, options).map(NdjsonChunks::new)
}

/// Sets the size of the native pool, before the first stream, and the budget of hot columns.
#[pyfunction]
#[pyo3(signature = (*, threads=None, cache_bytes=None))]
pub(crate) fn configure(threads: Option<usize>, cache_bytes: Option<usize>) {
    with_shared(|shared| {
        shared.threads = threads.or(shared.threads);
        if let Some(bytes) = cache_bytes {
            shared.hot.set_budget(bytes);
        }
    });
}

/// Bytes of hot columns held.
#[pyfunction]
pub(crate) fn cache_used_bytes() -> usize {
    with_shared(|shared| shared.hot.used_bytes())
}

/// Drops hot columns until at most `bytes` are held.
#[pyfunction]
pub(crate) fn shrink_cache(py: Python<'_>, bytes: usize) {
    let hot = with_shared(|shared| Arc::clone(&shared.hot));
    py.detach(|| hot.shrink(bytes));
}

/// One Delta table.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Table(Arc<deltalog::table::Table>);

#[pymethods]
impl Table {
    #[new]
    fn new(storage: &Storage, root: String) -> Self {
        let hot = with_shared(|shared| Arc::clone(&shared.hot));
        Self(Arc::new(deltalog::table::Table::new(storage.0.clone(), root, hot)))
    }

    #[pyo3(signature = (*, version=None, timestamp_ms=None, identity=None, max_staleness_ms=0))]
    fn snapshot(
        &self,
        py: Python<'_>,
        version: Option<i64>,
        timestamp_ms: Option<i64>,
        identity: Option<&str>,
        max_staleness_ms: u64,
    ) -> PyResult<Snapshot> {
        let snapshot = run(py, || match (identity, version, timestamp_ms) {
            (Some(identity), ..) => self.0.snapshot_with_identity(identity),
            (None, Some(version), _) => self.0.snapshot_at(At::Version(version)),
            (None, None, Some(timestamp_ms)) => self.0.snapshot_at(At::Timestamp(timestamp_ms)),
            (None, None, None) => self.0.latest(Duration::from_millis(max_staleness_ms), &pool()?),
        })?;
        Ok(Snapshot { table: Arc::clone(&self.0), snapshot })
    }

    #[pyo3(signature = (*, max_staleness_ms))]
    fn latest_if_fresh(&self, py: Python<'_>, max_staleness_ms: u64) -> PyResult<Option<Snapshot>> {
        // Takes two locks for nanoseconds: giving the GIL away would cost more than it saves.
        let found = pool().map(|pool| self.0.latest_if_fresh(Duration::from_millis(max_staleness_ms), &pool));
        match found {
            Ok(found) => Ok(found.map(|snapshot| Snapshot::new(Arc::clone(&self.0), snapshot))),
            Err(error) => Err(to_python(py, &error)),
        }
    }

    fn version_at_or_after(&self, py: Python<'_>, timestamp_ms: i64) -> PyResult<i64> {
        run(py, || self.0.history(&pool()?)?.version_at_or_after(timestamp_ms))
    }

    fn version_at_or_before(&self, py: Python<'_>, timestamp_ms: i64) -> PyResult<i64> {
        run(py, || self.0.history(&pool()?)?.version_at_or_before(timestamp_ms))
    }

    #[pyo3(signature = (*, starting_version, ending_version=None, change_data_feed))]
    fn changes(
        &self,
        py: Python<'_>,
        starting_version: i64,
        ending_version: Option<i64>,
        change_data_feed: bool,
    ) -> PyResult<Changes> {
        run(py, || Changes::open(&self.0, starting_version, ending_version, change_data_feed))
    }
}

/// One version of a table.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Snapshot {
    table: Arc<deltalog::table::Table>,
    snapshot: Arc<deltalog::snapshot::Snapshot>,
}

impl Snapshot {
    pub(crate) fn new(
        table: Arc<deltalog::table::Table>,
        snapshot: Arc<deltalog::snapshot::Snapshot>,
    ) -> Self {
        Self { table, snapshot }
    }
}

#[pymethods]
impl Snapshot {
    #[getter]
    fn version(&self) -> i64 {
        self.snapshot.version()
    }

    #[getter]
    fn timestamp_ms(&self) -> i64 {
        self.snapshot.timestamp_ms()
    }

    #[getter]
    fn table_id(&self) -> &str {
        &self.snapshot.metadata().id
    }

    #[getter]
    fn min_reader_version(&self) -> i32 {
        self.snapshot.protocol().min_reader_version
    }

    #[getter]
    fn client_reader_features(&self) -> Vec<String> {
        self.snapshot.client_reader_features()
    }

    #[getter]
    fn needs_delta_format(&self) -> bool {
        self.snapshot.needs_delta_format()
    }

    #[getter]
    fn change_data_feed(&self) -> bool {
        self.snapshot.change_data_feed()
    }

    #[getter]
    fn partition_columns(&self) -> Vec<String> {
        self.snapshot.metadata().partition_columns.clone()
    }

    #[getter]
    fn schema_string(&self) -> Option<&str> {
        self.snapshot.metadata().schema_string.as_deref()
    }

    #[getter]
    fn is_in_memory(&self) -> bool {
        self.table.is_in_memory(&self.snapshot)
    }

    #[getter]
    fn has_bad_hint(&self) -> bool {
        self.snapshot.segment().has_bad_hint
    }

    #[getter]
    fn identity(&self) -> String {
        self.snapshot.identity().to_string()
    }

    #[pyo3(signature = (response_format, *, with_version))]
    fn header<'py>(
        &self,
        py: Python<'py>,
        response_format: &str,
        with_version: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let head = run(py, || {
            answer::header(&self.table, &self.snapshot, response_format_of(response_format)?, with_version)
        })?;
        Ok(PyBytes::new(py, &head))
    }

    fn totals(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        run(py, || self.table.totals(&self.snapshot).map(|totals| (totals.files, totals.size_bytes)))
    }

    #[pyo3(signature = (options, *, limit_hint=None, with_version=false))]
    fn files(
        &self,
        py: Python<'_>,
        options: &AnswerOptions,
        limit_hint: Option<u64>,
        with_version: bool,
    ) -> PyResult<NdjsonChunks> {
        run(py, || {
            let request = FilesRequest {
                hints: options.hints.clone(),
                limit_hint,
                max_files: options.max_files,
                after: options.place.as_deref().map(Place::parse).transpose()?,
                with_version,
            };
            let source = answer::files(
                &self.table,
                &self.snapshot,
                &request,
                &options.signers,
                options.lines,
                &pool()?,
            )?;
            let is_small =
                self.snapshot.known_totals().is_some_and(|totals| totals.files <= FILES_OF_SMALL_TABLE);
            let here = is_small && self.table.is_in_memory(&self.snapshot);
            start(Box::new(source), options.stream(here))
        })
    }

    fn hint_problems(
        &self,
        py: Python<'_>,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
    ) -> Vec<(String, String)> {
        let hints = Hints { sql: predicate_hints, json: json_predicate_hint };
        py.detach(|| {
            let (_, problems) = Predicate::of_table(self.snapshot.metadata(), &hints);
            problems.into_iter().map(|problem| (problem.hint, problem.reason)).collect()
        })
    }

    #[pyo3(signature = (predicate_hints, json_predicate_hint))]
    fn explain(
        &self,
        py: Python<'_>,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
    ) -> PyResult<Explanation> {
        let hints = Hints { sql: predicate_hints, json: json_predicate_hint };
        let explained = run(py, || explain(&self.snapshot, &hints))?;
        Explanation::new(py, explained)
    }
}
