//! Deletion vectors for readers of data files: the Spark pipeline, the demo, tests.

use deltalog::deletion_vector::{MAX_ROWS, RoaringTreemap, decode_file, decode_inline, encode_file, rows};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::run;

/// Row indexes of a vector in a deletion vector file.
#[pyfunction]
#[pyo3(signature = (data, *, offset, size_in_bytes))]
pub(crate) fn deletion_vector_rows(
    py: Python<'_>,
    data: &[u8],
    offset: usize,
    size_in_bytes: usize,
) -> PyResult<Vec<u64>> {
    run(py, || rows(&decode_file(data, offset, size_in_bytes)?, MAX_ROWS))
}

/// Row indexes of an inline vector.
#[pyfunction]
pub(crate) fn inline_deletion_vector_rows(py: Python<'_>, z85: &str) -> PyResult<Vec<u64>> {
    run(py, || rows(&decode_inline(z85)?, MAX_ROWS))
}

/// A deletion vector file that holds one vector, at offset 1.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // Python hands over a sequence
pub(crate) fn encode_deletion_vector(py: Python<'_>, rows: Vec<u64>) -> PyResult<Bound<'_, PyBytes>> {
    let file = run(py, || encode_file(&rows.iter().copied().collect::<RoaringTreemap>()))?;
    Ok(PyBytes::new(py, &file))
}
