//! `Table`: one Delta table over time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deltalog::changes::ChangeKind;
use deltalog::snapshot::TimeTravel;
use deltalog::storage::{Ratified, RatifiedCommit};
use deltalog::table::{ChangesRequest, Heading};
use pyo3::prelude::*;

use crate::changes::{Changes, HeadingArgument};
use crate::completions::Completions;
use crate::errors::{run, to_python};
use crate::shared::{column_cache, pool};
use crate::snapshot::Snapshot;
use crate::stop::{Stop, or_never};
use crate::storage::Storage;

/// One Delta table.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Table(Arc<deltalog::table::Table>);

#[pymethods]
impl Table {
    #[new]
    #[pyo3(signature = (storage, root, *, has_catalog=false))]
    fn new(storage: &Storage, root: String, has_catalog: bool) -> Self {
        let storage = storage.0.of_table(has_catalog.then(Arc::default));
        Self(Arc::new(deltalog::table::Table::new(storage, root, column_cache())))
    }

    #[pyo3(signature = (latest, staged, inline, *, age_ms))]
    fn ratify(
        &self,
        py: Python<'_>,
        latest: Option<i64>,
        staged: Vec<(i64, String, u64, i64)>,
        inline: Vec<(i64, Vec<u8>, i64)>,
        age_ms: u64,
    ) -> PyResult<()> {
        let staged = staged.into_iter().map(|(version, name, size, modified_ms)| {
            RatifiedCommit::staged(version, &name, size, modified_ms)
        });
        let inline = inline.into_iter().map(|(version, content, modified_ms)| {
            RatifiedCommit::inline(version, content.into(), modified_ms)
        });
        let answer = Ratified::new(latest, staged.chain(inline).collect());
        let answer = answer.map_err(|error| to_python(py, &error))?;
        let asked_at = Instant::now().checked_sub(Duration::from_millis(age_ms));
        if let Some((catalog, asked_at)) = self.0.storage().catalog().zip(asked_at) {
            catalog.ratify(answer, asked_at);
        }
        Ok(())
    }

    #[pyo3(signature = (*, max_age_ms))]
    fn is_ratified(&self, max_age_ms: u64) -> bool {
        self.0.is_ratified(Duration::from_millis(max_age_ms))
    }

    #[getter]
    fn has_answer(&self) -> bool {
        self.0.storage().catalog().is_some_and(|catalog| catalog.asked_at().is_some())
    }

    #[getter]
    fn number(&self) -> u64 {
        self.0.number()
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
            (None, Some(version), _) => self.0.snapshot_at(TimeTravel::Version(version)),
            (None, None, Some(timestamp_ms)) => self.0.snapshot_at(TimeTravel::Timestamp(timestamp_ms)),
            (None, None, None) => self.0.latest(Duration::from_millis(max_staleness_ms), &pool()?),
        })?;
        Ok(Snapshot::new(Arc::clone(&self.0), snapshot))
    }

    #[pyo3(signature = (*, max_staleness_ms))]
    fn latest_if_fresh(&self, py: Python<'_>, max_staleness_ms: u64) -> PyResult<Option<Snapshot>> {
        // Takes two locks for nanoseconds: releasing the GIL costs more than it saves.
        let latest =
            pool().map(|pool| self.0.latest_if_fresh(Duration::from_millis(max_staleness_ms), &pool));
        match latest {
            Ok(latest) => Ok(latest.map(|snapshot| Snapshot::new(Arc::clone(&self.0), snapshot))),
            Err(error) => Err(to_python(py, &error)),
        }
    }

    fn start_probe(&self, py: Python<'_>, number: u64, completions: &Completions) -> PyResult<bool> {
        // Starts a task or writes to sockets without blocking: releasing the GIL costs more than it saves.
        completions.0.start(number, &self.0).map_err(|error| to_python(py, &error))
    }

    #[pyo3(signature = (*, max_age_ms))]
    fn latest_known(&self, max_age_ms: u64) -> Option<Snapshot> {
        let latest = self.0.latest_known(Duration::from_millis(max_age_ms));
        latest.map(|snapshot| Snapshot::new(Arc::clone(&self.0), snapshot))
    }

    fn known_metadata_bytes(&self) -> Option<usize> {
        self.0.latest_known(Duration::MAX).map(|snapshot| snapshot.metadata().memory_bytes())
    }

    fn version_at_or_after(&self, py: Python<'_>, timestamp_ms: i64) -> PyResult<i64> {
        run(py, || self.0.version_by_time(&pool()?, |history| history.version_at_or_after(timestamp_ms)))
    }

    fn version_at_or_before(&self, py: Python<'_>, timestamp_ms: i64) -> PyResult<i64> {
        run(py, || self.0.version_by_time(&pool()?, |history| history.version_at_or_before(timestamp_ms)))
    }

    #[pyo3(signature = (
        *, starting_version, ending_version=None, change_data_feed, heading=None, max_staleness_ms=0, stop=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn changes(
        &self,
        py: Python<'_>,
        starting_version: i64,
        ending_version: Option<i64>,
        change_data_feed: bool,
        heading: Option<HeadingArgument>,
        max_staleness_ms: u64,
        stop: Option<&Stop>,
    ) -> PyResult<Changes> {
        let stop = or_never(stop);
        run(py, || {
            let request = ChangesRequest {
                kind: if change_data_feed { ChangeKind::ChangeDataFeed } else { ChangeKind::Files },
                start: starting_version,
                end: ending_version,
                heading: heading.map_or(Ok(Heading::Start), HeadingArgument::heading)?,
                max_staleness: Duration::from_millis(max_staleness_ms),
            };
            Changes::open(&self.0, request, &stop)
        })
    }
}
