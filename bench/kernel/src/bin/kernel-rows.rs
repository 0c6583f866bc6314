//! The rows of a table's latest version as `delta_kernel` reads them, for tests that compare.
//!
//! In: a table's URL, and variables that begin with `AWS_` as options of the store. Out: a JSON array of the rows.

use std::sync::Arc;

use delta_kernel::arrow::array::RecordBatch;
use delta_kernel::arrow::json::ArrayWriter;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::{Snapshot, try_parse_uri};
use delta_kernel_default_engine::DefaultEngine;
use delta_kernel_default_engine::storage::store_from_url_opts;

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let url = try_parse_uri(std::env::args().nth(1).ok_or("no URL")?)?;
    let options = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
    let engine = Arc::new(DefaultEngine::builder(store_from_url_opts(&url, options)?).build());
    let snapshot = Snapshot::builder_for(url).build(engine.as_ref())?;
    let scan = snapshot.scan_builder().build()?;
    let mut rows = ArrayWriter::new(std::io::stdout().lock());
    for data in scan.execute(engine)? {
        let batch: RecordBatch = (*ArrowEngineData::try_from_engine_data(data?)?).into();
        rows.write(&batch)?;
    }
    rows.finish()?;
    Ok(())
}
