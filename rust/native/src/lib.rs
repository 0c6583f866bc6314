//! `gateway._native`: converts values, maps errors and releases the GIL. It contains no decisions.
//!
//! `gateway/_native.pyi` documents the Python interface; stubtest compares its signatures with this crate.

mod build;
mod changes;
mod completions;
mod deletion_vector;
mod errors;
mod explain;
mod inventory;
mod limits;
mod options;
mod row_group_filter;
mod rule;
mod shared;
mod signers;
mod snapshot;
mod stop;
mod storage;
mod stream;
mod table;
mod variant;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add_class::<storage::Storage>()?;
    module.add_class::<signers::DelegationKey>()?;
    module.add_class::<signers::Signer>()?;
    module.add_class::<signers::Signers>()?;
    module.add_class::<rule::Rule>()?;
    module.add_class::<row_group_filter::RowGroupFilter>()?;
    module.add_class::<options::AnswerOptions>()?;
    module.add_class::<limits::SharedLimits>()?;
    module.add_class::<limits::SharedBucket>()?;
    module.add_class::<limits::SharedStreams>()?;
    module.add_class::<stop::Stop>()?;
    module.add_class::<stream::Chunk>()?;
    module.add_class::<stream::NdjsonChunks>()?;
    module.add_class::<stream::PruneCounts>()?;
    module.add_class::<stream::StreamSummary>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<completions::Completions>()?;
    module.add_class::<explain::Conjunct>()?;
    module.add_class::<explain::Explanation>()?;
    module.add_class::<inventory::Inventory>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(shared::configure, module)?)?;
    module.add_function(wrap_pyfunction!(shared::bound_logs, module)?)?;
    module.add_function(wrap_pyfunction!(shared::configure_cache_directory, module)?)?;
    module.add_function(wrap_pyfunction!(shared::cache_directory_counts, module)?)?;
    module.add_function(wrap_pyfunction!(shared::log_faults, module)?)?;
    module.add_function(wrap_pyfunction!(shared::wait_for_cache_directory, module)?)?;
    module.add_function(wrap_pyfunction!(shared::cache_bytes_by_table, module)?)?;
    module.add_function(wrap_pyfunction!(shared::cache_used_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(shared::release_spare_buffers, module)?)?;
    module.add_function(wrap_pyfunction!(shared::shrink_cache, module)?)?;
    module.add_function(wrap_pyfunction!(deletion_vector::deletion_vector_rows, module)?)?;
    module.add_function(wrap_pyfunction!(deletion_vector::inline_deletion_vector_rows, module)?)?;
    module.add_function(wrap_pyfunction!(deletion_vector::encode_deletion_vector, module)?)?;
    module.add_function(wrap_pyfunction!(variant::whole_variants, module)?)?;
    module.add_function(wrap_pyfunction!(signers::verify_local_url, module)?)?;
    module.add_function(wrap_pyfunction!(build::build, module)?)?;
    module.add_function(wrap_pyfunction!(build::is_debug_build, module)?)?;
    Ok(())
}
