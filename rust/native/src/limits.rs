//! `SharedLimits`: limits that the workers of a server share.

use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shared_limits::{Bucket, Key, Kind, Terms};

const SECOND_NS: f64 = 1e9;

/// The limits of a server, in a file that its workers map.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct SharedLimits(Arc<shared_limits::SharedLimits>);

#[pymethods]
impl SharedLimits {
    #[new]
    #[pyo3(signature = (descriptor, *, workers, worker))]
    #[allow(unsafe_code)]
    fn new(descriptor: RawFd, workers: usize, worker: usize) -> PyResult<Self> {
        // SAFETY: the caller's file is open during the call, which keeps no copy of the descriptor.
        let file = File::from(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?);
        Ok(Self(Arc::new(shared_limits::SharedLimits::map(&file, workers, worker)?)))
    }

    #[staticmethod]
    fn size_bytes(workers: usize) -> usize {
        shared_limits::SharedLimits::size_bytes(workers)
    }

    #[getter]
    fn seed<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.seed())
    }

    #[pyo3(signature = (recipient, kind, *, rate, capacity, now_seconds))]
    fn bucket(
        &self,
        recipient: [u8; 16],
        kind: &str,
        rate: f64,
        capacity: u64,
        now_seconds: f64,
    ) -> PyResult<SharedBucket> {
        let kind = match kind {
            "requests" => Kind::Requests,
            "files" => Kind::Files,
            "credentials" => Kind::Credentials,
            _ => return Err(PyValueError::new_err("no kind of bucket")),
        };
        let place = self.0.recipient(key(recipient));
        let terms = Terms { interval_ns: interval_ns(1.0 / rate), capacity };
        self.0.bucket(place, kind).set_terms(terms, nanoseconds(now_seconds));
        Ok(SharedBucket { limits: Arc::clone(&self.0), place, kind, terms })
    }

    fn streams(&self, recipient: [u8; 16]) -> SharedStreams {
        SharedStreams { limits: Arc::clone(&self.0), place: self.0.recipient(key(recipient)) }
    }

    #[pyo3(signature = (attempt, *, failures, seconds, now_seconds))]
    fn failures_wait_seconds(&self, attempt: [u8; 16], failures: u64, seconds: f64, now_seconds: f64) -> f64 {
        let terms = Terms { interval_ns: interval_ns(seconds), capacity: failures };
        seconds_of(self.0.failures_wait_ns(key(attempt), terms, nanoseconds(now_seconds)))
    }

    #[pyo3(signature = (attempt, *, failures, seconds, now_seconds))]
    fn charge_failure(&self, attempt: [u8; 16], failures: u64, seconds: f64, now_seconds: f64) {
        let terms = Terms { interval_ns: interval_ns(seconds), capacity: failures };
        self.0.charge_failure(key(attempt), terms, nanoseconds(now_seconds));
    }

    fn clear_worker(&self, worker: usize) {
        self.0.clear_worker(worker);
    }
}

/// A token bucket of a recipient.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct SharedBucket {
    limits: Arc<shared_limits::SharedLimits>,
    place: usize,
    kind: Kind,
    terms: Terms,
}

impl SharedBucket {
    fn bucket(&self) -> Bucket<'_> {
        self.limits.bucket(self.place, self.kind)
    }
}

#[pymethods]
impl SharedBucket {
    fn wait_seconds(&self, tokens: u64, now_seconds: f64) -> f64 {
        seconds_of(self.bucket().wait_ns(tokens, self.terms, nanoseconds(now_seconds)))
    }

    #[pyo3(signature = (tokens, now_seconds, *, patience_seconds))]
    fn take(&self, tokens: u64, now_seconds: f64, patience_seconds: f64) -> (bool, f64) {
        let patience_ns = nanoseconds(patience_seconds);
        let wait_ns = self.bucket().take(tokens, self.terms, nanoseconds(now_seconds), patience_ns);
        (wait_ns <= patience_ns, seconds_of(wait_ns))
    }

    fn charge(&self, tokens: u64, now_seconds: f64) {
        self.bucket().charge(tokens, self.terms, nanoseconds(now_seconds));
    }
}

/// The running streams of a recipient.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct SharedStreams {
    limits: Arc<shared_limits::SharedLimits>,
    place: usize,
}

#[pymethods]
impl SharedStreams {
    fn enter(&self, limit: u64) -> bool {
        self.limits.enter_stream(self.place, limit)
    }

    fn leave(&self) {
        self.limits.leave_stream(self.place);
    }

    fn set(&self, streams: u64) {
        self.limits.set_streams(self.place, streams);
    }
}

fn key(bytes: [u8; 16]) -> Key {
    let number = u128::from_le_bytes(bytes);
    [number as u64, (number >> 64) as u64]
}

fn interval_ns(seconds: f64) -> u64 {
    nanoseconds(seconds).max(1)
}

/// Times before zero and none at all are zero, times beyond the range its end.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * SECOND_NS).round() as u64
}

#[allow(clippy::cast_precision_loss)] // a wait that long is refused
fn seconds_of(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND_NS
}
