//! The answer to a query for changes as work items: the header lines, then per version its protocol and metadata (if
//! requested), its cdc files, adds and removes.

use std::sync::Arc;

use super::files::{CHUNK_BYTES, Writers};
use crate::actions::{Metadata, PartitionTuple, RowIndices};
use crate::changes::{ChangeBatch, ChangeBatches, ChangedFiles};
use crate::ndjson::{
    FileAction, LineCounts, LineWriter, MetadataFacts, ResponseFormat, Stamp, append_metadata,
    append_protocol,
};
use crate::partition::PartitionTimestamps;
use crate::predicate::{BoundRule, Hints, NamedRule, Predicate, RuleVerdicts};
use crate::scan::Outcome;
use crate::stop::Stop;
use crate::stream::{LineSource, Turn};
use crate::{Error, Result};

const CHUNK_LINES: usize = 256;

/// The options of a query for changes.
#[derive(Debug, Clone)]
pub struct ChangeOptions {
    /// The response format.
    pub format: ResponseFormat,
    /// Whether to include the metadata of later versions.
    pub include_historical_metadata: bool,
    /// Whether to include the protocols of later versions.
    pub include_historical_protocol: bool,
    /// The rule of the grant, for files of every kind.
    pub rule: Option<NamedRule>,
    /// Predicates; those on partition columns prune.
    pub hints: Hints,
    /// Maximum number of files of a page.
    pub max_files: Option<u64>,
    /// As [`MetadataFacts::access`].
    pub access: Arc<str>,
}

/// The position of a file in a range: its version and the index in the answer of that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeCursor {
    /// The version in which the page starts.
    pub version: i64,
    /// Files of that version on earlier pages.
    pub skip: u64,
}

impl ChangeCursor {
    /// Formats the cursor for a page token.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{}.{}", self.version, self.skip)
    }

    /// Parses the result of [`Self::to_text`].
    pub fn parse(text: &str) -> Result<Self> {
        let numbers = text.split_once('.').and_then(|(version, skip)| {
            Some(Self { version: version.parse().ok()?, skip: skip.parse().ok()? })
        });
        numbers.ok_or(Error::InvalidCursor)
    }
}

/// Divides a range of changes into chunks.
#[derive(Debug)]
pub struct ChangeLines {
    head: Option<Vec<u8>>,
    batches: ChangeBatches,
    options: ChangeOptions,
    /// By the columns of the metadata in the head of the answer, which the client means.
    meant: Predicate,
    writers: Writers,
    in_force: Option<InForce>,
    /// Remaining pieces of the current version, the next one last.
    pieces: Vec<Piece>,
    /// The current version and the number of its returned files.
    cursor: ChangeCursor,
    files_left: u64,
    outcome: Outcome,
}

/// Values derived from the metadata of a version.
#[derive(Debug)]
struct InForce {
    metadata: Arc<Metadata>,
    predicate: Predicate,
    timestamps: Option<Arc<PartitionTimestamps>>,
    rule: Option<Arc<BoundRule>>,
}

/// Lines of one kind of one version.
#[derive(Debug)]
enum Piece {
    Header(Vec<u8>),
    Files(Files),
}

#[derive(Debug)]
struct Files {
    batch: Arc<ChangeBatch>,
    action: FileAction,
    rows: RowIndices,
    timestamps: Option<Arc<PartitionTimestamps>>,
}

impl Files {
    fn take(&mut self, count: usize) -> Self {
        let rest = self.rows.split_off(self.rows.len().min(count));
        Self {
            batch: Arc::clone(&self.batch),
            action: self.action,
            rows: std::mem::replace(&mut self.rows, rest),
            timestamps: self.timestamps.clone(),
        }
    }

    fn changed(&self) -> &ChangedFiles {
        match self.action {
            FileAction::Cdc => &self.batch.cdc,
            FileAction::Remove => &self.batch.removes,
            FileAction::Add | FileAction::Live => &self.batch.adds,
        }
    }
}

impl ChangeLines {
    /// `batches` start at `from.version`; `head` is written first, and has the metadata `heading`.
    #[must_use]
    pub fn new(
        head: Vec<u8>,
        heading: &Metadata,
        batches: ChangeBatches,
        from: ChangeCursor,
        options: ChangeOptions,
        writer: LineWriter,
    ) -> Self {
        Self {
            head: Some(head),
            batches,
            files_left: options.max_files.unwrap_or(u64::MAX),
            meant: super::predicate(heading, &options.hints, options.format),
            options,
            writers: Writers::new(writer),
            in_force: None,
            pieces: Vec::new(),
            cursor: from,
            outcome: Outcome::default(),
        }
    }

    /// Returns the next lines of the page, at most `count` and about the given bytes.
    fn next_pieces(&mut self, mut count: usize, mut bytes: usize) -> Result<Vec<Piece>> {
        let mut taken = Vec::new();
        while count > 0 && bytes > 0 && self.files_left > 0 {
            match self.pieces.pop() {
                None if !self.next_version()? => break,
                None => {}
                Some(Piece::Header(header)) => {
                    bytes = bytes.saturating_sub(header.len());
                    taken.push(Piece::Header(header));
                    count -= 1;
                }
                Some(Piece::Files(mut files)) => {
                    let mut free = usize::try_from(self.files_left).unwrap_or(usize::MAX).min(count);
                    let lines = files.changed().batch.first_lines(&files.rows, &mut free, &mut bytes).len();
                    let first = files.take(lines);
                    count -= lines;
                    self.files_left -= first.rows.len() as u64;
                    self.cursor.skip += first.rows.len() as u64;
                    if !files.rows.is_empty() {
                        self.pieces.push(Piece::Files(files));
                        bytes = 0;
                    }
                    taken.push(Piece::Files(first));
                }
            }
        }
        if self.files_left == 0 && self.outcome.next_cursor.is_none() && self.has_more()? {
            self.outcome.next_cursor = Some(self.cursor.to_text());
        }
        Ok(taken)
    }

    /// Returns whether more lines follow.
    fn has_more(&mut self) -> Result<bool> {
        while self.pieces.is_empty() {
            if !self.next_version()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Prepares the pieces of the next version; returns false after the last one.
    fn next_version(&mut self) -> Result<bool> {
        let batch = self.batches.next_version().map_err(|error| match error {
            Error::IncompleteRemove(version) if self.options.rule.is_some() => undecided_rule(version),
            other => other,
        })?;
        let Some(batch) = batch else { return Ok(false) };
        let skip = if batch.version == self.cursor.version { self.cursor.skip } else { 0 };
        self.cursor = ChangeCursor { version: batch.version, skip };
        let mut pieces = Vec::new();
        if skip == 0 {
            let header = self.inline_header(&batch)?;
            if !header.is_empty() {
                pieces.push(Piece::Header(header));
            }
        }
        let batch = Arc::new(batch);
        let mut to_skip = usize::try_from(skip).unwrap_or(usize::MAX);
        for (files, action) in [
            (&batch.cdc, FileAction::Cdc),
            (&batch.adds, FileAction::Add),
            (&batch.removes, FileAction::Remove),
        ] {
            let mut rows = self.kept_rows(batch.version, &batch.metadata_in_force, files, action)?;
            let skipped = to_skip.min(rows.len());
            to_skip -= skipped;
            rows.drain(..skipped);
            if !rows.is_empty() {
                let timestamps = self.in_force(&batch.metadata_in_force)?.timestamps.clone();
                pieces.push(Piece::Files(Files { batch: Arc::clone(&batch), action, rows, timestamps }));
            }
        }
        pieces.reverse();
        self.pieces = pieces;
        Ok(true)
    }

    fn inline_header(&self, batch: &ChangeBatch) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        if let Some(protocol) = batch.protocol.as_ref().filter(|_| self.options.include_historical_protocol) {
            append_protocol(self.options.format, protocol, Some(batch.version), &mut header);
        }
        if let Some(metadata) = batch.metadata.as_ref().filter(|_| self.options.include_historical_metadata) {
            let facts = MetadataFacts {
                change_data_feed: metadata.is_change_data_feed_on(),
                version: Some(batch.version),
                totals: None,
                access: &self.options.access,
            };
            append_metadata(self.options.format, metadata, facts, &mut header)?;
        }
        Ok(header)
    }

    /// Returns the files within the rule that the predicates on partition columns keep.
    fn kept_rows(
        &mut self,
        version: i64,
        metadata: &Arc<Metadata>,
        files: &ChangedFiles,
        action: FileAction,
    ) -> Result<RowIndices> {
        let InForce { rule, .. } = self.in_force(metadata)?;
        let mut rows = files.rows.clone();
        if let Some(rule) = rule {
            // An absent value of an added file is null, as in a snapshot of its version. A removed file may be of a
            // time with other partition columns: its absent values are unknown.
            if action == FileAction::Remove && !files.without_partition_values.is_empty() {
                return Err(undecided_rule(version));
            }
            rows = rule.select(&files.batch.partitions, rows, &mut RuleVerdicts::default())?;
        }
        self.outcome.considered += rows.len() as u64;
        let predicate = &self.in_force(metadata)?.predicate;
        if !predicate.asks_partitions() {
            return Ok(rows);
        }
        let partitions = &files.batch.partitions;
        let keeps: Vec<bool> = partitions
            .dictionary
            .iter()
            .map(|tuple: &Arc<PartitionTuple>| predicate.keep_tuple(tuple))
            .collect();
        let is_kept = |row: &u32| {
            files.without_partition_values.binary_search(row).is_ok()
                || keeps[partitions.keys[*row as usize] as usize]
        };
        let before = rows.len();
        rows.retain(is_kept);
        self.outcome.pruned_by_partition += (before - rows.len()) as u64;
        Ok(rows)
    }

    /// Binds hints, the rule and partition values to the columns of a version.
    fn in_force(&mut self, metadata: &Arc<Metadata>) -> Result<&InForce> {
        let known = self.in_force.take().filter(|known| Arc::ptr_eq(&known.metadata, metadata));
        let bound = match known {
            Some(known) => known,
            None => self.bind(metadata)?,
        };
        Ok(self.in_force.insert(bound))
    }

    fn bind(&self, metadata: &Arc<Metadata>) -> Result<InForce> {
        let ChangeOptions { hints, format, rule, .. } = &self.options;
        let predicate = super::predicate(metadata, hints, *format);
        // A column may have had the name of another one, or another type.
        let is_meant = predicate.has_columns_of(&self.meant);
        Ok(InForce {
            metadata: Arc::clone(metadata),
            predicate: if is_meant { predicate } else { Predicate::keep_all() },
            timestamps: match format {
                ResponseFormat::Parquet => PartitionTimestamps::of(metadata),
                ResponseFormat::Delta => None,
            },
            rule: rule.as_ref().map(|rule| rule.bind(metadata)).transpose()?,
        })
    }
}

/// The error of a version with files whose values of the current partition columns are unknown.
fn undecided_rule(version: i64) -> Error {
    Error::RuleRefused {
        detail: format!("version {version} has a file without the values of its partition columns"),
    }
}

impl LineSource for ChangeLines {
    fn next_turn(&mut self) -> Result<Turn> {
        let head = self.head.take();
        let pieces = self.next_pieces(CHUNK_LINES, CHUNK_BYTES)?;
        Ok(self.writers.turn(head, pieces, Piece::write))
    }

    fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }

    fn stop(&self) -> Option<Stop> {
        self.writers.stop()
    }
}

impl Piece {
    fn write(&self, writer: &mut LineWriter, out: &mut Vec<u8>) -> Result<LineCounts> {
        match self {
            Self::Header(header) => {
                out.extend_from_slice(header);
                Ok(LineCounts::default())
            }
            Self::Files(files) => {
                let stamp = Stamp { version: files.batch.version, timestamp_ms: files.batch.timestamp_ms };
                writer.set_action(files.action, Some(stamp));
                writer.set_timestamps(files.timestamps.clone());
                writer.write(&files.changed().batch, &files.rows, out)
            }
        }
    }
}

#[cfg(test)]
mod tests;
