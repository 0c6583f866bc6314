//! Shredded variants of data files, for the Spark pipeline.

use arrow_array::cast::AsArray;
use arrow_ipc::reader::StreamReader;
use deltalog::variant::{Values, whole_values};
use deltalog::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::run;

/// The whole values of the variants in the first column of a stream's first batch.
#[pyfunction]
pub(crate) fn whole_variants<'py>(
    py: Python<'py>,
    stream: &[u8],
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let Values { offsets, data } = run(py, || read(stream))?;
    let offsets: Vec<u8> = offsets.into_iter().flat_map(i32::to_le_bytes).collect();
    Ok((PyBytes::new(py, &offsets), PyBytes::new(py, &data)))
}

fn read(stream: &[u8]) -> Result<Values> {
    let no_batch = || Error::InvalidArgument("there is no batch of variants".into());
    let mut batches = StreamReader::try_new(stream, None).map_err(|_| no_batch())?;
    let batch = batches.next().and_then(std::result::Result::ok).ok_or_else(no_batch)?;
    let column = batch.columns().first().and_then(|column| column.as_struct_opt()).ok_or_else(no_batch)?;
    whole_values(column)
}
