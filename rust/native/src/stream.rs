//! `NdjsonChunks`, `Chunk`, `StreamSummary` and `PruneCounts`: an answer in progress, for the event loop.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use deltalog::scan::{Outcome, Precount};
use deltalog::stream::{self, NdjsonStream, Next, Summary};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_python;

/// A chunk of whole lines.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Chunk(stream::Chunk);

#[pymethods]
impl Chunk {
    fn __len__(&self) -> usize {
        self.0.bytes().len()
    }

    #[allow(unsafe_code)] // the buffer protocol is a C interface
    #[allow(clippy::needless_pass_by_value)] // the signature that PyO3 asks for
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let bytes = slf.get().0.bytes();
        let (start, length) = (bytes.as_ptr().cast::<c_void>().cast_mut(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the view keeps a reference to `slf`, whose bytes never move or change while it lives; the
        // buffer is declared read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The result of a stream.
#[pyclass(frozen, get_all, module = "gateway._native")]
pub(crate) struct StreamSummary {
    files: u64,
    file_bytes: u64,
    next_cursor: Option<String>,
    min_url_expiration_ms: Option<i64>,
    pruning: PruneCounts,
}

/// The number of files of an answer, before and after pruning.
#[pyclass(frozen, get_all, module = "gateway._native")]
#[derive(Clone, Copy)]
pub(crate) struct PruneCounts {
    considered: u64,
    pruned_by_partition: u64,
    pruned_by_stats: u64,
    pruned_by_limit: u64,
    returned: u64,
}

impl PruneCounts {
    fn of(returned: u64, outcome: &Outcome) -> Self {
        Self {
            considered: outcome.considered,
            pruned_by_partition: outcome.pruned_by_partition,
            pruned_by_stats: outcome.pruned_by_stats,
            pruned_by_limit: outcome.pruned_by_limit,
            returned,
        }
    }
}

/// The body of an answer.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct NdjsonChunks {
    /// Taken only on the event loop; the lock is never contended.
    stream: Mutex<NdjsonStream>,
}

impl NdjsonChunks {
    pub(crate) fn new(stream: NdjsonStream) -> Self {
        Self { stream: Mutex::new(stream) }
    }

    fn with<T>(&self, use_stream: impl FnOnce(&mut NdjsonStream) -> T) -> T {
        use_stream(&mut self.stream.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl NdjsonChunks {
    fn fileno(&self) -> PyResult<RawFd> {
        self.with(|stream| stream.wakeup_fd())
            .ok_or_else(|| PyValueError::new_err("the answer is ready: there is nothing to wait for"))
    }

    fn next_chunk(&self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        // Takes a lock for nanoseconds: releasing the GIL costs more than it saves.
        match self.with(NdjsonStream::take) {
            Ok(Next::Chunk(chunk)) => Ok(Some(Chunk(chunk))),
            Ok(Next::Pending | Next::Done) => Ok(None),
            Err(error) => Err(to_python(py, &error)),
        }
    }

    #[getter]
    fn seconds_left(&self) -> Option<f64> {
        self.with(|stream| stream.time_left()).map(|left| left.as_secs_f64())
    }

    #[getter]
    fn done(&self) -> bool {
        self.with(|stream| stream.is_done())
    }

    #[getter]
    fn summary(&self) -> StreamSummary {
        let Summary { written, outcome, .. } = self.with(|stream| stream.summary());
        StreamSummary {
            files: written.files,
            file_bytes: written.file_bytes,
            pruning: PruneCounts::of(written.files, &outcome),
            next_cursor: outcome.next_cursor,
            min_url_expiration_ms: written.min_expiration_ms,
        }
    }

    #[getter]
    fn precount(&self) -> Option<PruneCounts> {
        let Precount { files, outcome } = self.with(|stream| stream.summary()).precount?;
        Some(PruneCounts::of(files, &outcome))
    }

    fn finish<'py>(&self, py: Python<'py>, last_line: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        // One line: releasing the GIL costs more than encoding it.
        let tail = self.with(|stream| stream.finish(last_line)).map_err(|error| to_python(py, &error))?;
        Ok(PyBytes::new(py, &tail))
    }

    fn cancel(&self) {
        self.with(|stream| stream.cancel());
    }
}
