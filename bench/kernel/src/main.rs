//! Lists a snapshot with `delta_kernel`: opens the table, replays its log, counts the files that are live.

use delta_kernel::{KernelResult, Snapshot, try_parse_uri};
use delta_kernel_default_engine::DefaultEngine;
use delta_kernel_default_engine::storage::store_from_url;

fn main() -> KernelResult<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let url = try_parse_uri(path)?;
    let engine = DefaultEngine::builder(store_from_url(&url)?).build();
    let snapshot = Snapshot::builder_for(url).build(&engine)?;
    let version = snapshot.version();
    let scan = snapshot.scan_builder().build()?;
    let mut files = 0;
    for batch in scan.scan_metadata(&engine)? {
        let batch = batch?;
        files += batch.scan_files.selection_vector().iter().filter(|live| **live).count();
    }
    println!("{{\"version\": {version}, \"files\": {files}}}");
    Ok(())
}
