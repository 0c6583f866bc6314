//! The build of this module.

use pyo3::prelude::*;

/// Whether this module was built without optimisation, so that benches can refuse it.
#[pyfunction]
pub(crate) fn is_debug_build() -> bool {
    cfg!(debug_assertions)
}

/// The version, the commit, and the vector instructions of this CPU that signing uses.
#[pyfunction]
pub(crate) fn build() -> (&'static str, &'static str, &'static str) {
    (env!("CARGO_PKG_VERSION"), env!("DELTA_GATEWAY_COMMIT"), deltalog::cpu::simd_level())
}
