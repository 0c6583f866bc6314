//! `Completions`: results of probes for an event loop.

use std::os::fd::RawFd;
use std::sync::Arc;

use deltalog::Result;
use deltalog::table::{LoopProbes, Probed};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::snapshot::Snapshot;

/// The probes of an event loop.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Completions(pub(crate) LoopProbes);

#[pymethods]
impl Completions {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        LoopProbes::new().map(Self).map_err(|error| to_python(py, &error))
    }

    fn fileno(&self) -> RawFd {
        self.0.fd()
    }

    fn sent_by_loop(&self) -> u64 {
        self.0.sent_by_loop()
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>)>> {
        // Reads what has arrived and never waits: releasing the GIL costs more than it saves.
        let results = self.0.take();
        results
            .into_iter()
            .map(|Probed { number, table, found }| Ok((number, python(py, table, found)?)))
            .collect()
    }
}

/// The snapshot, None, or the exception.
fn python(
    py: Python<'_>,
    table: Arc<deltalog::table::Table>,
    found: Result<Option<Arc<deltalog::snapshot::Snapshot>>>,
) -> PyResult<Option<Py<PyAny>>> {
    match found {
        Ok(None) => Ok(None),
        Ok(Some(snapshot)) => Ok(Some(Py::new(py, Snapshot::new(table, snapshot))?.into_any())),
        Err(error) => Ok(Some(to_python(py, &error).into_value(py).into_any())),
    }
}
