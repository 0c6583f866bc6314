//! `gateway._native`: converts, maps errors, releases the GIL; decides nothing.

use pyo3::prelude::*;

#[pymodule]
fn _native(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
