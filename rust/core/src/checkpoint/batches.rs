//! The adds of a whole checkpoint, part after part.

use std::ops::Range;
use std::sync::Arc;

use super::json_file;
use super::part_batches::PartBatches;
use super::{Part, ReadOptions};
use crate::Result;
use crate::actions::{FileBatch, SourceId};
use crate::partition::PartitionInterner;
use crate::storage::{Storage, StoredFile};

/// An iterator over the adds of a checkpoint, in their fixed order. It reads only when asked for the next
/// batch, and ends after an error.
pub struct Batches {
    storage: Storage,
    parts: Arc<[Part]>,
    interner: PartitionInterner,
    options: ReadOptions,
    next_part: u32,
    current: Option<Box<PartBatches<StoredFile>>>,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batches").field("next_part", &self.next_part).finish_non_exhaustive()
    }
}

impl Batches {
    pub(super) fn new(
        storage: Storage,
        parts: Arc<[Part]>,
        interner: PartitionInterner,
        options: ReadOptions,
    ) -> Self {
        Self { storage, parts, interner, options, next_part: 0, current: None }
    }

    fn next_batch(&mut self) -> Result<Option<FileBatch>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(batch) = current.next(&mut self.interner)? {
                    return Ok(Some(batch));
                }
                self.current = None;
            }
            match self.open_next()? {
                Some(Opened::Parquet(batches)) => self.current = Some(batches),
                Some(Opened::Json(batch)) if batch.is_empty() => {}
                Some(Opened::Json(batch)) => return Ok(Some(*batch)),
                None => return Ok(None),
            }
        }
    }

    /// Opens the next part with rows in the span.
    fn open_next(&mut self) -> Result<Option<Opened>> {
        while let Some(part) = self.parts.get(self.next_part as usize) {
            let index = self.next_part;
            self.next_part += 1;
            let rows = self.options.span.map_or(0..u32::MAX, |span| span.rows_of(index));
            if !rows.is_empty() {
                return self.open(&part.clone(), index, rows).map(Some);
            }
        }
        Ok(None)
    }

    fn open(&mut self, part: &Part, index: u32, rows: Range<u32>) -> Result<Opened> {
        let source = SourceId(self.options.first_source.0 + index);
        if part.is_json {
            let content = self.storage.read(&part.path)?;
            let interner = &mut self.interner;
            let batch = json_file::file_batch(&part.name, &content, source, &rows, &self.options, interner)?;
            return Ok(Opened::Json(Box::new(batch)));
        }
        let file = part.open(&self.storage)?;
        let names = self.interner.log_names();
        let batches = PartBatches::new(file, source, rows, self.options.clone(), names);
        Ok(Opened::Parquet(Box::new(batches)))
    }
}

/// A part, or all of it.
enum Opened {
    Parquet(Box<PartBatches<StoredFile>>),
    Json(Box<FileBatch>),
}

impl Iterator for Batches {
    type Item = Result<FileBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.current = None;
            self.next_part = self.parts.len() as u32;
        }
        batch
    }
}
