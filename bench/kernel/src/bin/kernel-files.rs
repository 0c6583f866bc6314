//! The files of table versions as `delta_kernel` finds them, for tests that compare.
//!
//! In: lines of a version, a blank and a table's directory. Out: for each a line of JSON, with the files that are
//! live or with the error that the kernel ended in.

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use delta_kernel::arrow::array::{BooleanArray, RecordBatch};
use delta_kernel::arrow::compute::filter_record_batch;
use delta_kernel::arrow::json::ArrayWriter;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::{Snapshot, try_parse_uri};
use delta_kernel_default_engine::DefaultEngine;
use delta_kernel_default_engine::storage::store_from_url;
use serde_json::{Value, json};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (version, directory) = line.split_once(' ').ok_or("no blank between version and directory")?;
        let version = version.parse()?;
        let answer = match catch_unwind(AssertUnwindSafe(|| files(directory, version))) {
            Ok(Ok(files)) => json!({"files": files}),
            Ok(Err(error)) => json!({"error": error.to_string()}),
            Err(_) => json!({"error": "panic"}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn files(directory: &str, version: u64) -> Result<Vec<Value>, Fault> {
    let url = try_parse_uri(directory)?;
    let engine = DefaultEngine::builder(store_from_url(&url)?).build();
    let snapshot = Snapshot::builder_for(url).at_version(version).build(&engine)?;
    let scan = snapshot.scan_builder().build()?;
    let mut files = Vec::new();
    for batch in scan.scan_metadata(&engine)? {
        let (data, mut live) = batch?.scan_files.into_parts();
        let data: RecordBatch = (*ArrowEngineData::try_from_engine_data(data)?).into();
        // What the selection does not reach is selected.
        live.resize(data.num_rows(), true);
        let mut rows = ArrayWriter::new(Vec::new());
        rows.write(&filter_record_batch(&data, &BooleanArray::from(live))?)?;
        rows.finish()?;
        files.append(&mut serde_json::from_slice(&rows.into_inner())?);
    }
    Ok(files)
}
