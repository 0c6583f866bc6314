//! `Completions`: results of native threads for an event loop.

use std::os::fd::RawFd;
use std::sync::Arc;

use deltalog::Result;
use deltalog::wakeup;
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::snapshot::Snapshot;

/// The result of [`deltalog::table::Table::start_probe`], with the number of the call and its table.
pub(crate) struct Probed {
    pub(crate) number: u64,
    pub(crate) table: Arc<deltalog::table::Table>,
    pub(crate) found: Result<Option<Arc<deltalog::snapshot::Snapshot>>>,
}

/// Results of native threads.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Completions(pub(crate) Arc<wakeup::Completions<Probed>>);

#[pymethods]
impl Completions {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        wakeup::Completions::new().map(|made| Self(Arc::new(made))).map_err(|error| to_python(py, &error))
    }

    fn fileno(&self) -> RawFd {
        self.0.fd()
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>)>> {
        // Takes a lock for nanoseconds: releasing the GIL costs more than it saves.
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
