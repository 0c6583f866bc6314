//! A checkpoint as a stream of batches of adds.
//!
//! Takes the files that [`crate::segment`] selects: one classic Parquet file, the parts of a multi-part checkpoint, or
//! a v2 top file (Parquet or JSON) with its sidecars. Returns the protocol, the metadata and, in a fixed order, batches
//! of adds. Reads only the requested columns, page by page, so memory holds the pages being decoded for a checkpoint of
//! any size. A malformed file is an [`Error::CorruptLog`].

mod adds;
mod json_file;
mod kept_rows;
mod parquet;
mod part_batches;
mod part_readers;
mod shared_interner;
#[cfg(test)]
pub(crate) mod tests;
mod top_file;
mod totals;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use parquet::row_group_bounds::{RowGroupBounds, ValueBounds};
pub use part_readers::{PartReader, PartReaders};
pub use totals::IsDead;
pub(crate) use totals::sizes_overflow;

use crate::actions::{FileBatch, Metadata, PartitionTuple, Protocol, SourceId};
use crate::log_path::{self, DataPath};
use crate::partition::PartitionInterner;
use crate::segment::{CheckpointFiles, CheckpointKind};
use crate::storage::{Listed, Storage, StoredFile};
use crate::{Error, Result};
use json_file::JsonPieces;
use parquet::file::ParquetFile;
use top_file::{Sidecar, TopFile};

/// Rows a batch has at most: its columns stay in the second-level cache until its lines are written.
const BATCH_ROWS: usize = 4096;

/// Bytes of decoded text that a batch has at most, where it has more than one row. Beside them it holds the rest of
/// the pages that its rows are in.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// What of an add is read beside its path, size, modification time, deletion vector and partition values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// `stats`; rebuilt from `stats_parsed` where a checkpoint has nothing else.
    pub stats: bool,
    /// `dataChange`, `baseRowId`, `defaultRowCommitVersion` and `clusteringProvider`. Without them they are
    /// `None` in a batch.
    pub delta_fields: bool,
}

/// Whether files with these partition values may be wanted.
pub type KeepTuple = Arc<dyn Fn(&PartitionTuple) -> bool + Send + Sync>;

/// Whether a row group may hold a wanted file, all of whose files are within these bounds.
pub type MayMatch = Arc<dyn Fn(&RowGroupBounds) -> bool + Send + Sync>;

/// What to read of a checkpoint, and how.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// The columns.
    pub needs: Needs,
    /// The source of the checkpoint's first part; the others follow.
    pub first_source: SourceId,
    /// The rows; all of them if `None`.
    pub span: Option<Span>,
    /// Drops a file by its partition values before its other columns are decoded.
    pub keep_tuple: Option<KeepTuple>,
    /// Skips a row group without reading it.
    pub may_match: Option<MayMatch>,
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

/// A place in a checkpoint: a row of a part. Ordered as the checkpoint's files are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The part's index in the checkpoint.
    pub part: u32,
    /// The row in it.
    pub row: u32,
}

/// The rows from one place up to, not including, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first row.
    pub start: Position,
    /// Behind the last row; `None` is the end of the checkpoint.
    pub end: Option<Position>,
}

impl Span {
    /// All rows of the part that are in the span.
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

/// A checkpoint whose protocol, metadata and parts are known; its file actions are not read yet.
#[derive(Debug)]
pub struct Checkpoint {
    storage: Storage,
    version: i64,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    parts: Arc<[Part]>,
}

/// A file with add actions.
#[derive(Debug, Clone)]
struct Part {
    /// Without its directory.
    name: Arc<str>,
    /// As [`Storage::open`] takes it.
    path: String,
    size: u64,
    /// As the log's listing has it, which has no sidecars: their names never come again.
    entity_tag: Option<Box<str>>,
    modified_ms: i64,
    is_json: bool,
}

impl Checkpoint {
    /// Reads what is not a file action: the protocol, the metadata and the sidecars of a v2 checkpoint.
    ///
    /// `root` is the table's root in `storage`.
    pub fn open(storage: &Storage, root: &str, files: &CheckpointFiles) -> Result<Self> {
        let mut top = TopFile::default();
        let mut parts = Vec::with_capacity(files.files.len());
        for file in &files.files {
            let name = file.name.as_str();
            let part = Part {
                name: name.into(),
                path: log_path::join(root, &format!("{}/{name}", log_path::LOG_DIRECTORY)),
                size: file.size,
                entity_tag: file.entity_tag.clone(),
                modified_ms: file.modified_ms,
                is_json: files.kind == CheckpointKind::UuidJson,
            };
            let is_known = top.protocol.is_some() && top.metadata.is_some();
            if part.is_json {
                top = json_file::top_file(JsonPieces::open(storage, &part)?)?;
            } else if !(is_known && files.kind == CheckpointKind::MultiPart) {
                // Parts of a multi-part checkpoint have no sidecars, and most have no protocol.
                top.read(&part.open(storage)?)?;
            }
            parts.push(part);
        }
        for sidecar in &top.sidecars {
            parts.push(Part::of_sidecar(root, sidecar)?);
        }
        Ok(Self {
            storage: storage.clone(),
            version: files.version,
            protocol: top.protocol,
            metadata: top.metadata,
            parts: parts.into(),
        })
    }

    /// The version that the checkpoint rebuilds.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Its `protocol` action; every valid checkpoint has one.
    #[must_use]
    pub fn protocol(&self) -> Option<&Protocol> {
        self.protocol.as_ref()
    }

    /// Its `metaData` action; every valid checkpoint has one.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// What is known of it in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| size_of::<Part>() + part.name.len() + part.path.len());
        parts.sum::<usize>() + self.metadata.as_ref().map_or(0, Metadata::memory_bytes)
    }

    /// How many parts there are: the top files in their order, then the sidecars in that of the top file.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// The adds, part by part in their order. `interner` codes their partition values.
    #[must_use]
    pub fn readers(&self, interner: PartitionInterner, options: ReadOptions) -> PartReaders {
        PartReaders::new(self.storage.clone(), Arc::clone(&self.parts), interner, options)
    }

    /// The same, one part after another.
    pub fn batches(
        &self,
        interner: PartitionInterner,
        options: ReadOptions,
    ) -> impl Iterator<Item = Result<FileBatch>> + use<> {
        self.readers(interner, options).flatten()
    }
}

impl Part {
    /// Sidecars lie in the table's own directory by PROTOCOL, so of a URI only the name counts: a log cannot
    /// make this reader open anything else.
    fn of_sidecar(root: &str, sidecar: &Sidecar) -> Result<Self> {
        let wrong =
            || Error::corrupt("_sidecars", "the checkpoint refers to a sidecar that has no valid name");
        let name = log_path::percent_decode(DataPath::parse(&sidecar.path).file_name()).ok_or_else(wrong)?;
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(wrong());
        }
        let path = log_path::join(root, &format!("{}/{name}", log_path::SIDECAR_DIRECTORY));
        Ok(Self {
            name: (*name).into(),
            path,
            size: sidecar.size_in_bytes,
            entity_tag: None,
            modified_ms: 0,
            is_json: false,
        })
    }

    fn stored(&self, storage: &Storage) -> Result<StoredFile> {
        let entity_tag = self.entity_tag.as_deref();
        let listed = entity_tag.map(|entity_tag| Listed { entity_tag, modified_ms: self.modified_ms });
        storage.open(&self.path, Some(self.size), listed)
    }

    fn open(&self, storage: &Storage) -> Result<ParquetFile<StoredFile>> {
        ParquetFile::open(self.stored(storage)?, &self.name)
    }
}
