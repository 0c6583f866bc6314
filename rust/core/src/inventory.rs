//! Counts the files and rows of a version, and its files by their sizes.

use std::sync::Arc;

use crate::Result;
use crate::scan::{Scan, ScanOptions, Selected};
use crate::snapshot::Snapshot;
use crate::stop::Stop;

/// What the files of a version amount to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Number of live files.
    pub files: u64,
    /// Number of live files with a deletion vector.
    pub files_with_deletion_vector: u64,
    /// Number of live files whose statistics have no `numRecords`; their rows are not in `rows`.
    pub files_without_records: u64,
    /// Number of rows by the statistics, without deleted ones.
    pub rows: u64,
    /// Number of files by size: one count for each bound, of sizes below it that no earlier bound counts, and a last
    /// one for all others.
    pub files_by_size: Vec<u64>,
}

/// Reads every live file of a version. `bounds` are sizes in bytes, ascending. Ends with an error at `stop`.
pub fn inventory(snapshot: &Arc<Snapshot>, bounds: &[u64], stop: &Stop) -> Result<Inventory> {
    let mut counted = Inventory { files_by_size: vec![0; bounds.len() + 1], ..Inventory::default() };
    // Without the column cache: the columns of a table that nobody queries would evict columns of other tables.
    let mut scan = Scan::new(Arc::clone(snapshot), None, ScanOptions::everything())?;
    while let Some(Selected { batch, rows }) = scan.next_files()? {
        stop.check()?;
        let records = batch.stats.records(&batch.files, &rows);
        for (position, &row) in rows.iter().enumerate() {
            let size = u64::try_from(batch.files.size[row as usize]).unwrap_or(0);
            counted.files += 1;
            counted.files_by_size[bounds.partition_point(|bound| *bound <= size)] += 1;
            let vector = batch.files.deletion_vector_at(row as usize);
            counted.files_with_deletion_vector += u64::from(vector.is_some());
            let deleted = vector.map_or(0, |vector| u64::try_from(vector.cardinality).unwrap_or(0));
            match records.at(position, row) {
                Some(written) => counted.rows = counted.rows.saturating_add(written.saturating_sub(deleted)),
                None => counted.files_without_records += 1,
            }
        }
    }
    Ok(counted)
}
