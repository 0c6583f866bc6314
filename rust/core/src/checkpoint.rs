//! A checkpoint as a stream of batches of adds.
//!
//! Takes the files that [`crate::segment`] selects: one classic Parquet file, the parts of a multi-part checkpoint, or
//! a v2 top file (Parquet or JSON) with its sidecars. Returns the protocol, the metadata and, in a fixed order, batches
//! of adds. Reads only the requested columns, page by page, so memory holds the pages being decoded for a checkpoint of
//! any size. A malformed file is an [`Error::CorruptLog`].

mod action_columns;
mod adds;
mod json_file;
mod kept_rows;
mod known_tuples;
mod parquet;
mod part_batches;
mod part_readers;
mod repeated;
mod shared_file;
#[cfg(test)]
pub(crate) mod tests;
mod top_file;
mod totals;
mod whole_numbers;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use parquet::row_group_bounds::{RowGroupBounds, ValueBounds};
pub use part_readers::{PartReader, PartReaders};
pub use totals::{IsDead, Sums};
pub(crate) use totals::{Sizes, sizes_overflow, sum_on_threads};

use crate::actions::{FileBatch, Metadata, PartitionTuple, Protocol, RowIndices, SourceId};
use crate::log_path::{self, DataPath, SIDECARS, log_file_path};
use crate::partition::PartitionInterner;
use crate::segment::{CheckpointFiles, CheckpointKind};
use crate::storage::{LogFileEntry, Storage, StoredFile};
use crate::{Error, Result};
use ::parquet::file::metadata::RowGroupMetaData;
use arrow_array::StringViewArray;
use json_file::JsonPieces;
use parquet::file::{Footer, ParquetFile, rows_without_add};
use top_file::{Sidecar, TopFile};

/// Maximum rows of a batch: its columns stay in the L2 cache until its lines are written.
const BATCH_ROWS: usize = 4096;

/// Maximum bytes of decoded text of a batch with more than one row. In addition it holds the rest of its rows'
/// pages.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// The rows of a slice of a row group, more or less. Its first and last pages are decompressed for two slices.
const SLICE_ROWS: u32 = if cfg!(test) { 100 } else { 128 << 10 };

/// Maximum number of parts whose footers are kept with an open checkpoint.
const KEPT_FOOTERS: usize = 4;

/// Fields that every add has.
const REQUIRED_FIELDS: [&str; 3] = ["path", "size", "modificationTime"];

/// The columns to read in addition to path, size, modification time, deletion vector and partition values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// `stats`; built from `stats_parsed` if the checkpoint has only that.
    pub stats: bool,
    /// `dataChange`, `baseRowId`, `defaultRowCommitVersion` and `clusteringProvider`. Otherwise they are `None` in a
    /// batch.
    pub delta_fields: bool,
}

/// Returns whether files with these partition values are needed.
pub type KeepTuple = Arc<dyn Fn(&PartitionTuple) -> bool + Send + Sync>;

/// Returns the positions of the files that are needed, ascending, given the statistics of some files.
pub type KeepStats = Arc<dyn Fn(StringViewArray) -> RowIndices + Send + Sync>;

/// Returns whether a row group with these bounds may hold a needed file.
pub type MayMatch = Arc<dyn Fn(&RowGroupBounds) -> bool + Send + Sync>;

/// Options for reading a checkpoint.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// The columns.
    pub needs: Needs,
    /// The source id of the checkpoint's first part; the other parts follow.
    pub first_source: SourceId,
    /// The rows to read; all of them if `None`.
    pub span: Option<Span>,
    /// Skips a file by its partition values before its other columns are decoded.
    pub keep_tuple: Option<KeepTuple>,
    /// Skips files by their statistics before their other columns are decoded, where few files are left. Batches may
    /// have files that it skips elsewhere.
    pub keep_stats: Option<KeepStats>,
    /// Skips a row group without reading it.
    pub may_match: Option<MayMatch>,
    /// Whether each slice of a part has a reader, if the footer is known: a filter leaves little to do for the consumer
    /// of the batches, so several slices are read at a time.
    pub by_slice: bool,
    /// Counts the rows of the row groups that are read.
    pub rows_read: Option<Arc<AtomicU64>>,
    /// Counts the adds of the opened parts at most, including skipped row groups.
    pub most_adds: Option<Arc<AtomicU64>>,
}

impl fmt::Debug for ReadOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadOptions")
            .field("needs", &self.needs)
            .field("first_source", &self.first_source)
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

/// The position of a row in a checkpoint: ordered by part and row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The index of the part in the checkpoint.
    pub part: u32,
    /// The row in the part.
    pub row: u32,
}

/// The rows between two positions, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first row.
    pub start: Position,
    /// The end; `None` is the end of the checkpoint.
    pub end: Option<Position>,
}

impl Span {
    /// Returns the rows of a part that are in the span.
    fn rows_of(&self, part: u32) -> Range<u32> {
        let start = match part.cmp(&self.start.part) {
            std::cmp::Ordering::Less => u32::MAX,
            std::cmp::Ordering::Equal => self.start.row,
            std::cmp::Ordering::Greater => 0,
        };
        let end = match self.end {
            Some(end) if part == end.part => end.row,
            Some(end) if part > end.part => 0,
            _ => u32::MAX,
        };
        start..end
    }
}

/// A checkpoint with known protocol, metadata and parts, before its file actions are read.
#[derive(Debug)]
pub struct Checkpoint {
    storage: Storage,
    version: i64,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    stated_adds: Option<u64>,
    parts: Arc<[Part]>,
}

/// A part: a file with add actions.
#[derive(Debug, Clone)]
struct Part {
    /// Without its directory.
    name: Arc<str>,
    /// The path for [`Storage::open`].
    path: String,
    size: u64,
    /// From the log's listing. Sidecars are not listed: their size comes from the action, and their names are never
    /// reused.
    listed: Option<LogFileEntry>,
    is_json: bool,
    /// The ends of the slices that have readers of their own, in rows; empty if the footer was not read.
    slice_ends: Arc<[u32]>,
    /// The number of its adds at most, if it was opened.
    most_adds: Option<u64>,
    /// The rows that are left out because a later row adds the same file, ascending.
    repeated: Arc<[u32]>,
    /// Kept for the parts of small number whose tag identifies the file.
    footer: Option<Footer>,
}

impl Checkpoint {
    /// Reads the protocol, the metadata and the sidecars of a checkpoint. `root` is the table's root in `storage`.
    pub fn open(storage: &Storage, root: &str, files: &CheckpointFiles) -> Result<Self> {
        let (mut top, mut may_repeat) = (TopFile::default(), false);
        let mut parts = Vec::with_capacity(files.files.len());
        for file in &files.files {
            let name = file.name.as_str();
            let mut part = Part {
                name: name.into(),
                path: log_file_path(root, name),
                size: file.size,
                listed: Some(file.clone()),
                is_json: files.kind == CheckpointKind::UuidJson,
                slice_ends: Arc::default(),
                most_adds: None,
                repeated: Arc::default(),
                footer: None,
            };
            let is_known = top.protocol.is_some() && top.metadata.is_some();
            if part.is_json {
                top = json_file::top_file(JsonPieces::open(storage, &part)?)?;
                part.most_adds = Some(top.adds);
            } else if !(is_known && files.kind == CheckpointKind::MultiPart) {
                // Parts of a multi-part checkpoint have no sidecars, and most have no protocol.
                let file = part.open(storage)?;
                top.read(&file)?;
                part.slice_ends = slice_ends(&file);
                part.most_adds = Some(most_adds(&file));
                may_repeat |= files.kind == CheckpointKind::Classic && repeated::is_possible(&file);
                let is_tagged = part.listed.as_ref().is_some_and(|listed| listed.entity_tag.is_some());
                let is_kept = is_tagged && files.files.len() <= KEPT_FOOTERS;
                part.footer = is_kept.then(|| file.footer());
            }
            parts.push(part);
        }
        // Also where newer commits or a checksum file have both: a part that another one has replaced shows so.
        if let (Some(part), true) = (parts.first(), top.protocol.is_none() || top.metadata.is_none()) {
            return Err(Error::corrupt(&*part.name, "the checkpoint has no protocol, or no metaData"));
        }
        let mut sidecars = HashSet::new();
        for sidecar in &top.sidecars {
            let part = Part::of_sidecar(root, sidecar)?;
            // A repeated action repeats no file.
            if sidecars.insert(part.name.clone()) {
                parts.push(part);
            }
        }
        let mut checkpoint = Self {
            storage: storage.clone(),
            version: files.version,
            protocol: top.protocol,
            metadata: top.metadata,
            stated_adds: top.stated_adds,
            parts: parts.into(),
        };
        if may_repeat {
            checkpoint.leave_out_repeated()?;
        }
        Ok(checkpoint)
    }

    /// Returns the version of the checkpoint.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns its `protocol` action, which every valid checkpoint has.
    #[must_use]
    pub fn protocol(&self) -> Option<&Protocol> {
        self.protocol.as_ref()
    }

    /// Returns its `metaData` action, which every valid checkpoint has.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Returns the number of adds that its `checkpointMetadata` states.
    pub(crate) fn stated_adds(&self) -> Option<u64> {
        self.stated_adds
    }

    /// Returns the number of adds that it has at most, of dead files too; `None` if a part was not opened.
    pub(crate) fn most_adds(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.most_adds).sum()
    }

    /// Returns the memory of the checkpoint in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| {
            let footer = part.footer.as_ref().map_or(0, Footer::memory_bytes);
            let texts = part.name.len() + part.path.len();
            let rows = size_of_val(&*part.slice_ends) + size_of_val(&*part.repeated);
            size_of::<Part>() + texts + rows + footer
        });
        parts.sum::<usize>() + self.metadata.as_ref().map_or(0, Metadata::memory_bytes)
    }

    /// Returns a number of actions of commits that the checkpoint has at least, by the footers that were read.
    pub(crate) fn actions(&self) -> u64 {
        let rows = self.parts.iter().filter_map(|part| part.slice_ends.last()).copied();
        let sidecars = self.parts.iter().filter(|part| part.listed.is_none()).count();
        // Rows of sidecars and of `checkpointMetadata` are of no commit.
        rows.map(u64::from).sum::<u64>().saturating_sub(sidecars as u64 + 1)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    /// Returns the names of the parts, without their directories.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| &*part.name)
    }

    /// Returns the number of parts: the top files, then the sidecars in the order of the top file.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// Returns readers of the adds, part by part. `interner` encodes their partition values.
    #[must_use]
    pub fn readers(&self, interner: PartitionInterner, options: ReadOptions) -> PartReaders {
        PartReaders::new(self.storage.clone(), Arc::clone(&self.parts), interner, options)
    }

    /// As [`Self::readers`], as one sequence of batches.
    pub fn batches(
        &self,
        interner: PartitionInterner,
        options: ReadOptions,
    ) -> impl Iterator<Item = Result<FileBatch>> + use<> {
        self.readers(interner, options).flatten()
    }
}

/// Divides the rows of a file: by row groups, and large ones further if a reader can begin inside of them.
fn slice_ends(file: &ParquetFile) -> Arc<[u32]> {
    let paths = file.leaves(|path| path == ["add", "path"]);
    let mut ends = Vec::new();
    let mut start = 0;
    for row_group in file.row_groups() {
        let rows = row_group.num_rows() as u32;
        let is_placed = paths.iter().any(|leaf| row_group.column(*leaf).offset_index_offset().is_some());
        let slices = if is_placed { (rows + SLICE_ROWS / 2) / SLICE_ROWS } else { 1 }.max(1);
        let end_of = |slice: u32| start + (u64::from(rows) * u64::from(slice) / u64::from(slices)) as u32;
        ends.extend((1..=slices).map(end_of));
        start += rows;
    }
    ends.into()
}

/// Returns the number of adds that a file has at most.
fn most_adds(file: &ParquetFile) -> u64 {
    let required = file.leaves_of_add(&REQUIRED_FIELDS);
    let adds = |row_group: &RowGroupMetaData| {
        row_group.num_rows().saturating_sub(rows_without_add(row_group, &required).unwrap_or(0)) as u64
    };
    if required.is_empty() { 0 } else { file.row_groups().iter().map(adds).sum() }
}

impl Part {
    /// Sidecars are in the table's directory by PROTOCOL, so only the name of a URI is used: a log cannot make this
    /// reader open other files.
    fn of_sidecar(root: &str, sidecar: &Sidecar) -> Result<Self> {
        let wrong =
            || Error::corrupt("_sidecars", "the checkpoint refers to a sidecar that has no valid name");
        let name = log_path::percent_decode(DataPath::parse(&sidecar.path).file_name()).ok_or_else(wrong)?;
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(wrong());
        }
        let path = log_file_path(root, &format!("{SIDECARS}/{name}"));
        Ok(Self {
            name: (*name).into(),
            path,
            size: sidecar.size_in_bytes,
            listed: None,
            is_json: false,
            slice_ends: Arc::default(),
            most_adds: None,
            repeated: Arc::default(),
            footer: None,
        })
    }

    fn stored(&self, storage: &Storage) -> Result<StoredFile> {
        match &self.listed {
            Some(listed) => storage.open_listed(&self.path, listed),
            None => storage.open_stated(&self.path, self.size),
        }
    }

    fn open(&self, storage: &Storage) -> Result<ParquetFile> {
        self.open_stored(self.stored(storage)?)
    }

    /// As [`Self::open`], for reads of a small share of the file.
    fn open_apart(&self, storage: &Storage) -> Result<ParquetFile> {
        self.open_stored(self.stored(storage)?.read_apart())
    }

    fn open_stored(&self, file: StoredFile) -> Result<ParquetFile> {
        if let Some(footer) = &self.footer {
            return Ok(ParquetFile::open_again(file, &self.name, footer));
        }
        let file = ParquetFile::open(file, &self.name)?;
        action_columns::check(&file)?;
        Ok(file)
    }
}
