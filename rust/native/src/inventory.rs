//! `Inventory`: the files and rows of a version, and its files by their sizes.

use pyo3::prelude::*;

/// What the files of a version amount to.
#[pyclass(frozen, get_all, module = "gateway._native")]
pub(crate) struct Inventory {
    files: u64,
    files_with_deletion_vector: u64,
    files_without_records: u64,
    rows: u64,
    files_by_size: Vec<u64>,
}

impl From<deltalog::inventory::Inventory> for Inventory {
    fn from(found: deltalog::inventory::Inventory) -> Self {
        Self {
            files: found.files,
            files_with_deletion_vector: found.files_with_deletion_vector,
            files_without_records: found.files_without_records,
            rows: found.rows,
            files_by_size: found.files_by_size,
        }
    }
}
