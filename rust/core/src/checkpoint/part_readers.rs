//! Readers of the parts of a checkpoint, in the order of the parts.
//!
//! Readers share the dictionary of partition values and the footer, so several may read at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::json_file::{self, JsonPieces};
use super::known_tuples::KnownTuples;
use super::part_batches::PartBatches;
use super::shared_file::SharedFile;
use super::{Part, ReadOptions, most_adds};
use crate::Result;
use crate::actions::{FileBatch, SourceId};
use crate::lock::lock;
use crate::partition::PartitionInterner;
use crate::storage::Storage;

/// The readers of the parts that have wanted rows. Nothing is read before the first batch of a reader is requested.
#[derive(Debug)]
pub struct PartReaders {
    storage: Storage,
    parts: Arc<[Part]>,
    /// Shared by all readers.
    interner: Arc<Mutex<PartitionInterner>>,
    options: ReadOptions,
    tuples: KnownTuples,
    next_part: u32,
    /// The readers of the current part that are not yet returned.
    slices: VecDeque<PartReader>,
}

impl PartReaders {
    pub(super) fn new(
        storage: Storage,
        parts: Arc<[Part]>,
        interner: PartitionInterner,
        options: ReadOptions,
    ) -> Self {
        let tuples = KnownTuples::new(interner.names());
        let (interner, slices) = (Arc::new(Mutex::new(interner)), VecDeque::new());
        Self { storage, parts, interner, options, tuples, next_part: 0, slices }
    }

    /// Returns the wanted rows of a part, divided if it is to be read by several readers.
    fn slices(&self, index: u32, part: &Part) -> Vec<Range<u32>> {
        let wanted = self.options.span.map_or(0..u32::MAX, |span| span.rows_of(index));
        let ends = if self.options.by_slice { &*part.slice_ends } else { &[] };
        let Some((_, inner)) = ends.split_last() else { return vec![wanted] };
        let starts = std::iter::once(0).chain(inner.iter().copied());
        let ends = inner.iter().copied().chain([u32::MAX]);
        starts.zip(ends).map(|(start, end)| start.max(wanted.start)..end.min(wanted.end)).collect()
    }
}

impl Iterator for PartReaders {
    type Item = PartReader;

    fn next(&mut self) -> Option<PartReader> {
        loop {
            if let Some(reader) = self.slices.pop_front() {
                return Some(reader);
            }
            let index = self.next_part;
            let part = self.parts.get(index as usize)?;
            self.next_part += 1;
            let slices: Vec<_> =
                self.slices(index, part).into_iter().filter(|rows| !rows.is_empty()).collect();
            let file = Arc::default();
            self.slices.extend(slices.into_iter().map(|rows| PartReader {
                storage: self.storage.clone(),
                part: part.clone(),
                file: Arc::clone(&file),
                source: SourceId(self.options.first_source.0 + index),
                rows,
                interner: Arc::clone(&self.interner),
                tuples: self.tuples.clone(),
                options: self.options.clone(),
                state: State::Unopened,
            }));
        }
    }
}

/// An iterator over the adds of one part or of one of its slices, in their order. It ends after an error.
pub struct PartReader {
    storage: Storage,
    part: Part,
    file: Arc<SharedFile>,
    source: SourceId,
    /// The requested rows of the part.
    rows: Range<u32>,
    interner: Arc<Mutex<PartitionInterner>>,
    tuples: KnownTuples,
    options: ReadOptions,
    state: State,
}

enum State {
    Unopened,
    Open(Box<PartBatches>),
    Json(JsonPieces),
    Ended,
}

impl std::fmt::Debug for PartReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PartReader").field("source", &self.source).finish_non_exhaustive()
    }
}

impl PartReader {
    /// Returns the bytes of the part's file, which limit how many readers are open ahead. A reader of one slice
    /// holds decoded pages of all columns, so it counts as the whole file.
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
                    self.count_adds(self.part.most_adds.unwrap_or(0));
                    self.state = State::Json(JsonPieces::open(&self.storage, &self.part)?);
                }
                State::Json(pieces) => {
                    let Some(piece) = pieces.next().transpose()? else { return Ok(None) };
                    let batch = json_file::file_batch(
                        &piece,
                        self.source,
                        &self.rows,
                        &self.options,
                        &mut lock(&self.interner),
                    )?;
                    if !batch.is_empty() {
                        return Ok(Some(batch));
                    }
                }
                State::Unopened => {
                    let file = self.file.get(|| {
                        let file = self.part.open(&self.storage)?;
                        self.count_adds(self.part.most_adds.unwrap_or_else(|| most_adds(&file)));
                        Ok(file)
                    })?;
                    let (rows, options) = (self.rows.clone(), self.options.clone());
                    let (interner, tuples) = (&self.interner, &self.tuples);
                    let batches = PartBatches::new(file, self.source, rows, options, interner, tuples);
                    self.state = State::Open(Box::new(batches));
                }
                State::Open(batches) => {
                    let Some(batch) = batches.next()? else { return Ok(None) };
                    let batch = self.part.without_repeated(batch);
                    if !batch.is_empty() {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    fn count_adds(&self, most_adds: u64) {
        if let Some(all) = &self.options.most_adds {
            all.fetch_add(most_adds, Ordering::Relaxed);
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
