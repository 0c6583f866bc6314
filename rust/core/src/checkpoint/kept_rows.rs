//! Which rows of a row group a filter on partition values keeps, found from the partition columns alone.

use std::ops::Range;
use std::sync::Arc;

use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

use super::KeepTuple;
use crate::actions::{PartitionColumn, PartitionTuple};

/// Rows of a part that are to be read, all in one row group.
pub(super) enum RowNumbers {
    Range(Range<u32>),
    List(std::vec::IntoIter<u32>),
}

impl RowNumbers {
    /// `kept` are rows of `wanted`, ascending.
    pub(super) fn of(kept: Vec<u32>, wanted: Range<u32>) -> Self {
        if kept.len() == wanted.len() { Self::Range(wanted) } else { Self::List(kept.into_iter()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Range(rows) => rows.is_empty(),
            Self::List(rows) => rows.len() == 0,
        }
    }

    /// The next `count`, or as many as there are.
    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        match self {
            Self::Range(rows) => rows.by_ref().take(count).collect(),
            Self::List(rows) => rows.by_ref().take(count).collect(),
        }
    }

    /// What the Parquet reader must select; `None` where it is the whole row group.
    pub(super) fn selection(&self, row_group: &Range<u32>) -> Option<RowSelection> {
        let offset = |row: u32| (row - row_group.start) as usize;
        match self {
            Self::Range(rows) if rows == row_group => None,
            Self::Range(rows) => {
                let skipped = RowSelector::skip(offset(rows.start));
                Some(RowSelection::from(vec![skipped, RowSelector::select(rows.len())]))
            }
            Self::List(rows) => {
                let runs = rows.as_slice().chunk_by(|row, next| row + 1 == *next);
                let ranges = runs.map(|run| offset(run[0])..offset(run[0]) + run.len());
                Some(RowSelection::from_consecutive_ranges(ranges, row_group.len()))
            }
        }
    }
}

/// What the filter said of the tuples of a dictionary, each asked once.
#[derive(Default)]
pub(super) struct Verdicts {
    first: Option<Arc<PartitionTuple>>,
    kept: Vec<Option<bool>>,
}

impl Verdicts {
    /// Drops from `rows` those whose tuple `keep` does not want.
    pub(super) fn retain(&mut self, rows: &mut Vec<u32>, column: &PartitionColumn, keep: &KeepTuple) {
        let is_same = match (&self.first, column.dictionary.first()) {
            (Some(known), Some(first)) => Arc::ptr_eq(known, first),
            _ => false,
        };
        if !is_same {
            // The dictionary was begun anew.
            self.kept.clear();
            self.first = column.dictionary.first().cloned();
        }
        self.kept.resize(column.dictionary.len(), None);
        let mut keys = column.keys.iter();
        rows.retain(|_| {
            keys.next().is_some_and(|key| {
                let place = *key as usize;
                *self.kept[place].get_or_insert_with(|| keep(&column.dictionary[place]))
            })
        });
    }
}
