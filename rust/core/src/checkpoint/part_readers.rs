//! Readers of the parts of a checkpoint, in the order of the parts.
//!
//! Readers share only the dictionary of partition values, so several may read at a time.

use std::ops::Range;
use std::sync::Arc;

use super::json_file::{self, JsonPieces};
use super::part_batches::PartBatches;
use super::shared_interner::SharedInterner;
use super::{Part, ReadOptions};
use crate::Result;
use crate::actions::{FileBatch, SourceId};
use crate::partition::PartitionInterner;
use crate::storage::{Storage, StoredFile};

/// The readers of the parts that have wanted rows. Nothing is read before the first batch of a reader is requested.
#[derive(Debug)]
pub struct PartReaders {
    storage: Storage,
    parts: Arc<[Part]>,
    interner: SharedInterner,
    options: ReadOptions,
    next_part: u32,
}

impl PartReaders {
    pub(super) fn new(
        storage: Storage,
        parts: Arc<[Part]>,
        interner: PartitionInterner,
        options: ReadOptions,
    ) -> Self {
        Self { storage, parts, interner: SharedInterner::new(interner), options, next_part: 0 }
    }
}

impl Iterator for PartReaders {
    type Item = PartReader;

    fn next(&mut self) -> Option<PartReader> {
        loop {
            let index = self.next_part;
            let part = self.parts.get(index as usize)?;
            self.next_part += 1;
            let rows = self.options.span.map_or(0..u32::MAX, |span| span.rows_of(index));
            if !rows.is_empty() {
                return Some(PartReader {
                    storage: self.storage.clone(),
                    part: part.clone(),
                    source: SourceId(self.options.first_source.0 + index),
                    rows,
                    interner: self.interner.clone(),
                    options: self.options.clone(),
                    state: State::Unopened,
                });
            }
        }
    }
}

/// An iterator over the adds of one part, in their order. It ends after an error.
pub struct PartReader {
    storage: Storage,
    part: Part,
    source: SourceId,
    /// The requested rows of the part.
    rows: Range<u32>,
    interner: SharedInterner,
    options: ReadOptions,
    state: State,
}

enum State {
    Unopened,
    Open(Box<PartBatches<StoredFile>>),
    Json(JsonPieces),
    Ended,
}

impl std::fmt::Debug for PartReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PartReader").field("source", &self.source).finish_non_exhaustive()
    }
}

impl PartReader {
    /// Returns the size of the part's file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.part.size
    }

    /// Returns the bytes that it holds between two batches: the pages of the next rows.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Open(batches) => batches.held_bytes(),
            State::Json(pieces) => pieces.held_bytes(),
            State::Unopened | State::Ended => 0,
        }
    }

    fn next_batch(&mut self) -> Result<Option<FileBatch>> {
        loop {
            match &mut self.state {
                State::Ended => return Ok(None),
                State::Unopened if self.part.is_json => {
                    self.state = State::Json(JsonPieces::open(&self.storage, &self.part)?);
                }
                State::Json(pieces) => {
                    let Some(piece) = pieces.next().transpose()? else { return Ok(None) };
                    let batch = json_file::file_batch(
                        &piece,
                        self.source,
                        &self.rows,
                        &self.options,
                        &mut self.interner.lock(),
                    )?;
                    if !batch.is_empty() {
                        return Ok(Some(batch));
                    }
                }
                State::Unopened => {
                    let file = self.part.open(&self.storage)?;
                    let (rows, options) = (self.rows.clone(), self.options.clone());
                    let batches = PartBatches::new(file, self.source, rows, options, &self.interner);
                    self.state = State::Open(Box::new(batches));
                }
                State::Open(batches) => return batches.next(),
            }
        }
    }
}

impl Iterator for PartReader {
    type Item = Result<FileBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.state = State::Ended;
        }
        batch
    }
}
