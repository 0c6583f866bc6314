//! `limitHint`: selects enough files for a number of records.

use super::Predicate;
use super::eval::PartitionVerdicts;
use super::stats::StatsCache;
use crate::actions::{FileBatch, RowIndices};

/// Counts down the records that the selected files certainly contain.
///
/// A record is certain if `numRecords` is known, minus deleted rows, and if the predicate holds for every row of the
/// file. Other files count nothing.
#[derive(Debug, Clone)]
pub struct Limit {
    records_left: Option<u64>,
}

impl Limit {
    /// Creates a limit of `limit` records; `None` selects every file.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Self { records_left: limit }
    }

    /// Returns the remaining records.
    #[must_use]
    pub fn records_left(&self) -> Option<u64> {
        self.records_left
    }

    /// Returns whether no further file is needed.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.records_left == Some(0)
    }

    /// Returns the first of `rows` that are needed. All of them passed the predicate.
    #[must_use]
    pub fn take(
        &mut self,
        predicate: &Predicate,
        batch: &FileBatch,
        stats: &StatsCache,
        mut rows: RowIndices,
        partitions: &mut PartitionVerdicts,
    ) -> RowIndices {
        let Some(mut left) = self.records_left else { return rows };
        let mut needed = 0;
        // Split into pieces, because the first few files of a large batch usually reach the limit.
        for piece in rows.chunks(1024) {
            if left == 0 {
                break;
            }
            let sure = predicate.certain(batch, stats, piece, partitions);
            let records = stats.records(batch, piece);
            for (position, (&row, sure)) in piece.iter().zip(sure).enumerate() {
                if left == 0 {
                    break;
                }
                needed += 1;
                let written = if sure { records.at(position, row).unwrap_or(0) } else { 0 };
                let deleted = batch.deletion_vector_at(row as usize).map_or(0, |vector| vector.cardinality);
                left = left.saturating_sub(written.saturating_sub(u64::try_from(deleted).unwrap_or(0)));
            }
        }
        self.records_left = Some(left);
        rows.truncate(needed);
        rows
    }
}
