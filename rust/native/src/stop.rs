//! `Stop`: a deadline and cancellation of blocking calls.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// A deadline and cancellation of blocking calls.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Stop(pub(crate) deltalog::stop::Stop);

#[pymethods]
impl Stop {
    #[new]
    #[pyo3(signature = (*, seconds=None))]
    fn new(seconds: Option<f64>) -> Self {
        let wait = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self(deltalog::stop::Stop::at(wait.and_then(|wait| Instant::now().checked_add(wait))))
    }

    fn cancel(&self) {
        self.0.cancel();
    }
}

pub(crate) fn or_never(stop: Option<&Stop>) -> deltalog::stop::Stop {
    stop.map(|stop| stop.0.clone()).unwrap_or_default()
}
