//! A v2 top file in JSON: one action per line, as in a commit, and the sidecars.
//!
//! Such a file has no size limit, so it is read in pieces of whole lines.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::top_file::{STATED_ADDS, Sidecar, TopFile};
use super::{Part, ReadOptions};
use crate::actions::{FileBatch, RowIndices, SourceId};
use crate::commit::{CommitFile, may_have_key};
use crate::partition::PartitionInterner;
use crate::storage::{MAX_LINE_BYTES, Storage, StoredFile};
use crate::{Error, Result};

/// The number of bytes per read, if lines are shorter.
const PIECE_BYTES: usize = 1 << 20;

/// Lines of a file, and the row of the first one.
#[derive(Debug)]
pub(super) struct Piece {
    name: Arc<str>,
    first_row: u32,
    lines: Bytes,
}

/// The pieces of a file's lines. The iteration ends after an error.
#[derive(Debug)]
pub(super) struct JsonPieces {
    name: Arc<str>,
    file: StoredFile,
    /// The offset of the next read.
    position: u64,
    /// The start of a line that continues in the next piece.
    line_start: BytesMut,
    next_row: u32,
}

impl JsonPieces {
    pub(super) fn open(storage: &Storage, part: &Part) -> Result<Self> {
        let (name, file) = (Arc::clone(&part.name), part.stored(storage)?);
        Ok(Self { name, file, position: 0, line_start: BytesMut::new(), next_row: 0 })
    }

    /// Returns the bytes that are held between two pieces.
    pub(super) fn held_bytes(&self) -> usize {
        self.line_start.capacity()
    }

    /// Returns one or more whole lines, nothing at the end of the file.
    fn read_lines(&mut self) -> Result<Bytes> {
        loop {
            let left = self.file.size() - self.position;
            if left == 0 {
                return Ok(std::mem::take(&mut self.line_start).freeze());
            }
            let read = self.file.read_range(self.position, left.min(PIECE_BYTES as u64) as usize)?;
            self.position += read.len() as u64;
            if self.line_start.len() + read.len() > MAX_LINE_BYTES {
                return Err(Error::corrupt(&*self.name, "a line is too long"));
            }
            let Some(end) = memchr::memrchr(b'\n', &read) else {
                self.line_start.extend_from_slice(&read);
                continue;
            };
            let mut lines = std::mem::replace(&mut self.line_start, BytesMut::from(&read[end + 1..]));
            if lines.is_empty() {
                return Ok(read.slice(..=end));
            }
            lines.extend_from_slice(&read[..=end]);
            return Ok(lines.freeze());
        }
    }

    fn next_piece(&mut self) -> Result<Option<Piece>> {
        let lines = self.read_lines()?;
        if lines.is_empty() {
            return Ok(None);
        }
        let first_row = self.next_row;
        let rows = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        let next_row = u32::try_from(rows).ok().and_then(|rows| first_row.checked_add(rows));
        self.next_row = next_row.ok_or_else(|| Error::corrupt(&*self.name, "it has too many actions"))?;
        Ok(Some(Piece { name: Arc::clone(&self.name), first_row, lines }))
    }
}

impl Iterator for JsonPieces {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.next_piece();
        if piece.is_err() {
            self.position = self.file.size();
            self.line_start.clear();
        }
        piece.transpose()
    }
}

impl Piece {
    /// All actions.
    pub(super) fn parse(&self) -> Result<CommitFile> {
        CommitFile::parse_lines(&self.name, &self.lines)
    }
}

/// The adds of a piece that are wanted, as one batch.
pub(super) fn file_batch(
    piece: &Piece,
    source: SourceId,
    rows: &Range<u32>,
    options: &ReadOptions,
    interner: &mut PartitionInterner,
) -> Result<FileBatch> {
    let adds = piece.parse()?.adds;
    if !interner.log_names().is_empty() {
        adds.check_partition_values(&piece.name, 0..adds.len())?;
    }
    let batch = adds.batch(source, &piece.name, interner)?;
    let batch = FileBatch {
        row: batch.row.iter().map(|row| row + piece.first_row).collect(),
        stats: batch.stats.filter(|_| options.needs.stats),
        data_change: batch.data_change.filter(|_| options.needs.delta_fields),
        base_row_id: batch.base_row_id.filter(|_| options.needs.delta_fields),
        default_row_commit_version: batch.default_row_commit_version.filter(|_| options.needs.delta_fields),
        clustering_provider: batch.clustering_provider.filter(|_| options.needs.delta_fields),
        tags: batch.tags.filter(|_| options.needs.delta_fields),
        ..batch
    };
    let tuple = |file: usize| &batch.partitions.dictionary[batch.partitions.keys[file] as usize];
    let is_wanted = |file: usize| {
        rows.contains(&batch.row[file]) && options.keep_tuple.as_ref().is_none_or(|keep| keep(tuple(file)))
    };
    let wanted: RowIndices = (0..batch.len() as u32).filter(|file| is_wanted(*file as usize)).collect();
    Ok(if wanted.len() == batch.len() { batch } else { batch.only(&wanted) })
}

/// Reads the protocol, the metadata and the sidecars of a JSON top file.
pub(super) fn top_file(pieces: JsonPieces) -> Result<TopFile> {
    let mut top = TopFile::default();
    for piece in pieces {
        let piece = piece?;
        let file = piece.parse()?;
        top.adds += file.adds.len() as u64;
        top.protocol = file.protocol.or(top.protocol);
        top.metadata = file.metadata.or(top.metadata);
        top.take_v2_actions(&piece.name, &piece.lines)?;
    }
    Ok(top)
}

#[derive(serde::Deserialize)]
struct SidecarLine {
    sidecar: Option<Sidecar>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointMetadataLine {
    checkpoint_metadata: Option<CheckpointMetadata>,
}

#[derive(serde::Deserialize)]
struct CheckpointMetadata {
    tags: Option<HashMap<String, Option<String>>>,
}

impl TopFile {
    /// Takes the actions that commits do not have.
    fn take_v2_actions(&mut self, name: &str, content: &[u8]) -> Result<()> {
        for line in content.split(|byte| *byte == b'\n') {
            // Most lines are adds, or the one long metaData.
            if may_have_key(line, "\"sidecar\"") {
                let line: SidecarLine = serde_json::from_slice(line)
                    .map_err(|_| Error::corrupt(name, "a sidecar action is incomplete or mistyped"))?;
                self.sidecars.extend(line.sidecar);
            }
            if may_have_key(line, "\"checkpointMetadata\"")
                && let Ok(line) = serde_json::from_slice::<CheckpointMetadataLine>(line)
            {
                let tags = line.checkpoint_metadata.and_then(|action| action.tags).unwrap_or_default();
                let stated = tags.get(STATED_ADDS).and_then(|adds| adds.as_ref()?.parse().ok());
                self.stated_adds = stated.or(self.stated_adds);
            }
        }
        Ok(())
    }
}
