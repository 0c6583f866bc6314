//! The rows of a row group that a filter on partition values keeps, found from the partition columns alone.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow_buffer::BooleanBuffer;
use parquet::arrow::arrow_reader::RowSelection;

use super::KeepTuple;
use crate::actions::{PartitionColumn, PartitionTuple};

/// The number of rows that are read together if one of them is kept. Between rows that lie close together, skipping costs
/// as much as reading.
const BLOCK_ROWS: u32 = 1024;

/// Up to one kept row in this many, single rows are read. The reader skips such distances faster than it decodes them.
const SPARSE_ROWS: usize = 64;

/// The rows of a row group to read, numbered in the part.
#[derive(Clone)]
pub(super) enum RowNumbers {
    Range(Range<u32>),
    /// Blocks of rows, and the kept rows of the blocks.
    Blocks {
        blocks: VecDeque<Range<u32>>,
        kept: Peekable<IntoIter<u32>>,
    },
}

/// Row numbers in the order of the reader.
pub(super) struct Taken {
    pub(super) rows: Vec<u32>,
    /// `None` if all are kept.
    pub(super) kept: Option<BooleanBuffer>,
}

impl RowNumbers {
    /// Selects the rows `kept` of `wanted`, which are ascending.
    pub(super) fn of(kept: Vec<u32>, wanted: Range<u32>) -> Self {
        if kept.len() == wanted.len() {
            return Self::Range(wanted);
        }
        let block_rows = if kept.len() * SPARSE_ROWS <= wanted.len() { 1 } else { BLOCK_ROWS };
        let mut blocks: VecDeque<Range<u32>> = VecDeque::new();
        for row in &kept {
            let start = row - (row - wanted.start) % block_rows;
            let end = start.saturating_add(block_rows).min(wanted.end);
            match blocks.back_mut() {
                Some(last) if start <= last.end => last.end = end,
                _ => blocks.push_back(start..end),
            }
        }
        Self::Blocks { blocks, kept: kept.into_iter().peekable() }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Range(rows) => rows.is_empty(),
            Self::Blocks { blocks, .. } => blocks.is_empty(),
        }
    }

    /// Returns the rows of a batch that lie in about `rows` rows of the file. A batch holds each page that it has a row
    /// of, so fewer rows are read at a time if they are far apart.
    pub(super) fn batch_rows(&self, rows: usize) -> usize {
        let Self::Blocks { blocks, .. } = self else { return rows };
        let (Some(first), Some(last)) = (blocks.front(), blocks.back()) else { return rows };
        let selected: usize = blocks.iter().map(ExactSizeIterator::len).sum();
        (rows * selected).div_ceil((first.start..last.end).len()).clamp(1, rows)
    }

    /// Returns the next `count` rows, or the rest.
    pub(super) fn take(&mut self, count: usize) -> Taken {
        let (blocks, kept) = match self {
            Self::Range(rows) => return Taken { rows: rows.by_ref().take(count).collect(), kept: None },
            Self::Blocks { blocks, kept } => (blocks, kept),
        };
        let mut rows = Vec::with_capacity(count);
        while let Some(block) = blocks.front_mut() {
            rows.extend(block.by_ref().take(count - rows.len()));
            if block.start < block.end {
                break;
            }
            blocks.pop_front();
        }
        let is_kept = rows.iter().map(|row| kept.next_if_eq(row).is_some()).collect();
        Taken { rows, kept: Some(is_kept) }
    }

    /// Returns the selection for the Parquet reader, `None` for the whole row group.
    pub(super) fn selection(&self, row_group: &Range<u32>) -> Option<RowSelection> {
        let offset = |row: u32| (row - row_group.start) as usize;
        let range = |rows: &Range<u32>| offset(rows.start)..offset(rows.end);
        let length = row_group.len();
        match self {
            Self::Range(rows) if rows == row_group => None,
            Self::Range(rows) => {
                Some(RowSelection::from_consecutive_ranges(std::iter::once(range(rows)), length))
            }
            Self::Blocks { blocks, .. } => {
                Some(RowSelection::from_consecutive_ranges(blocks.iter().map(range), length))
            }
        }
    }
}

/// The filter's verdicts on the tuples of a dictionary. The filter sees each tuple once.
#[derive(Default)]
pub(super) struct Verdicts {
    first: Option<Arc<PartitionTuple>>,
    kept: Vec<Option<bool>>,
}

impl Verdicts {
    /// Drops the rows whose tuple `keep` rejects.
    pub(super) fn retain(&mut self, rows: &mut Vec<u32>, column: &PartitionColumn, keep: &KeepTuple) {
        if !column.continues(self.first.as_ref()) {
            // The dictionary was replaced.
            self.kept.clear();
            self.first = column.dictionary.first().cloned();
        }
        self.kept.resize(column.dictionary.len(), None);
        let mut keys = column.keys.iter();
        rows.retain(|_| {
            keys.next().is_some_and(|key| {
                let position = *key as usize;
                *self.kept[position].get_or_insert_with(|| keep(&column.dictionary[position]))
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_selected_rows_are_those_of_a_row_by_row_selection(
            group in 0..9000_u32, skipped in 0..3000_u32, length in 1..9000_u32, batch in 1..5000_usize,
            kept in prop_oneof![prop::collection::btree_set(0..9000_u32, 0..20), prop::collection::btree_set(0..9000_u32, 0..900)],
        ) {
            let row_group = group..group + skipped + length + 7;
            let wanted = group + skipped..group + skipped + length;
            let kept: Vec<u32> = kept.into_iter().map(|row| wanted.start + row).filter(|row| wanted.contains(row)).collect();
            let mut numbers = RowNumbers::of(kept.clone(), wanted.clone());
            let selection = numbers.selection(&row_group).unwrap();
            let mut selected = Vec::new();
            let mut next = row_group.start;
            for selector in selection.iter() {
                let end = next + selector.row_count as u32;
                if !selector.skip {
                    selected.extend(next..end);
                }
                next = end;
            }
            let (mut read, mut found) = (Vec::new(), Vec::new());
            while !numbers.is_empty() {
                let taken = numbers.take(batch);
                prop_assert!(!taken.rows.is_empty() && taken.rows.len() <= batch);
                let is_kept = |index: usize| taken.kept.as_ref().is_none_or(|kept| kept.value(index));
                found.extend((0..taken.rows.len()).filter(|index| is_kept(*index)).map(|index| taken.rows[index]));
                read.extend(taken.rows);
            }
            prop_assert_eq!(&found, &kept);
            prop_assert_eq!(&read, &selected);
            prop_assert!(read.iter().all(|row| wanted.contains(row)));
            prop_assert!(read.len() <= kept.len() * BLOCK_ROWS as usize);
            prop_assert!(kept.len() * SPARSE_ROWS > wanted.len() || read == kept);
        }
    }
}
