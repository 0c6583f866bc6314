//! Writes one columns file, batch by batch.

use std::fs::File;
use std::io::Error as IoError;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_array::{Array, Int64Array, StringViewArray};
use arrow_buffer::NullBuffer;

use super::directory::Directory;
use crate::actions::{PartitionColumn, PartitionTuple, RowIndices, Stats, Totals};
use crate::column_cache::CachedBatch;
use crate::column_cache::columns_file::layout::{
    ALIGNMENT, BatchEntry, Block, COLUMNS, Column, Footer, HEADER_BYTES, Header, encode_tuples,
    encode_vectors,
};
use crate::file_id::{FileIds, IdScheme};

/// Maximum bytes that a file reserves ahead.
const MOST_RESERVED_BYTES: u64 = 32 << 20;
/// Dictionaries that may still grow. Batches of parts that are read ahead of each other return to an older one.
const OPEN_DICTIONARIES: usize = 4;
/// Strings up to this length are part of their view.
const INLINE_BYTES: usize = 12;

/// Why a file is not written.
#[derive(Debug)]
pub(super) enum Failure {
    /// The disk is full or failed.
    Disk,
    /// The columns exceed the bound of the directory.
    TooLarge,
    /// A batch that the layout does not represent.
    Unsupported,
}

impl From<IoError> for Failure {
    fn from(_: IoError) -> Self {
        Self::Disk
    }
}

/// A file that is being written. Dropping it before [`FileWriter::finish`] removes it.
#[derive(Debug)]
pub(super) struct FileWriter {
    directory: Arc<Directory>,
    file: File,
    key: [u8; 32],
    name: String,
    most_bytes: u64,
    /// The number of files, if known.
    expected_files: Option<u64>,
    position: u64,
    reserved: u64,
    footer: Footer,
    dictionaries: Vec<Dictionary>,
    totals: Totals,
    buffer: Vec<u8>,
    is_finished: bool,
    pub(super) evicted: u64,
}

/// A dictionary that may still grow.
#[derive(Debug)]
struct Dictionary {
    tuples: Arc<Vec<Arc<PartitionTuple>>>,
    index: u32,
}

impl FileWriter {
    /// Begins the file of a key; `None` while another process writes it.
    pub(super) fn begin(
        directory: &Arc<Directory>,
        key: [u8; 32],
        name: String,
        most_bytes: u64,
        expected_files: Option<u64>,
    ) -> Result<Option<Self>, IoError> {
        let Some(file) = directory.create_partial(&name)? else { return Ok(None) };
        Ok(Some(Self {
            directory: Arc::clone(directory),
            file,
            key,
            name,
            most_bytes,
            expected_files,
            position: HEADER_BYTES as u64,
            reserved: 0,
            footer: Footer::default(),
            dictionaries: Vec::new(),
            totals: Totals::default(),
            buffer: Vec::new(),
            is_finished: false,
            evicted: 0,
        }))
    }

    /// Writes the next batch.
    pub(super) fn push(&mut self, batch: &CachedBatch) -> Result<(), Failure> {
        let files = &batch.files;
        let (Some(first_row), Some(last_row)) = (files.row.first(), files.row.last()) else { return Ok(()) };
        if files.remove_fields.is_some() {
            return Err(Failure::Unsupported);
        }
        let mut entry = BatchEntry {
            source: files.source.0,
            files: files.len() as u32,
            first_row: *first_row,
            last_row: *last_row,
            dictionary: self.dictionary(&files.partitions)?,
            blocks: [Block::default(); COLUMNS],
        };
        let mut blocks =
            Blocks { start: self.position, out: std::mem::take(&mut self.buffer), entry: &mut entry };
        blocks.out.clear();
        blocks.push(Column::Row, files.row.inner());
        blocks.push(Column::Size, files.size.inner());
        blocks.push(Column::ModificationTime, files.modification_time_ms.inner());
        blocks.push(Column::PartitionKeys, files.partitions.keys.inner());
        blocks.push_strings(&files.path, Column::PathViews, Column::PathText)?;
        match &files.stats {
            None => {}
            Some(Stats::Coded(coded)) => {
                let (records, starts, forms) = coded.parts();
                blocks.push(Column::StatsStarts, starts.inner());
                blocks.push(Column::StatsRecords, records);
                blocks.push(Column::StatsForms, &forms);
            }
            Some(Stats::Raw(_) | Stats::EscapedViews(_)) => return Err(Failure::Unsupported),
        }
        for (scheme, column) in [(IdScheme::Parquet, Column::ParquetIds), (IdScheme::Delta, Column::DeltaIds)]
        {
            match batch.ids(scheme, files.len()) {
                Some(ids) => blocks.push(column, ids.bytes()),
                None => blocks.push(column, FileIds::of(scheme, &files.path).bytes()),
            }
        }
        if let Some(flags) = &files.data_change {
            blocks.push(Column::DataChange, &flags.iter().map(|flag| u8::from(*flag)).collect::<Vec<_>>());
        }
        if let Some(vectors) = &files.deletion_vector {
            blocks.push(Column::DeletionVectors, &encode_vectors(vectors));
        }
        blocks.push_longs(files.base_row_id.as_ref(), Column::BaseRowIds, Column::BaseRowIdNulls);
        blocks.push_longs(
            files.default_row_commit_version.as_ref(),
            Column::CommitVersions,
            Column::CommitVersionNulls,
        );
        for (strings, [views, text, nulls]) in [
            (
                &files.clustering_provider,
                [Column::ClusteringViews, Column::ClusteringText, Column::ClusteringNulls],
            ),
            (&files.tags, [Column::TagViews, Column::TagText, Column::TagNulls]),
        ] {
            if let Some(strings) = strings {
                blocks.push_strings(strings, views, text)?;
                blocks.push_nulls(strings.nulls(), nulls);
            }
        }
        self.buffer = blocks.out;
        self.totals.add(files, &(0..files.len() as u32).collect::<RowIndices>());
        self.footer.batches.push(entry);
        self.write_buffer()
    }

    pub(super) fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Completes the file under its final name.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        for dictionary in std::mem::take(&mut self.dictionaries) {
            self.write_dictionary(&dictionary)?;
        }
        let footer = self.footer.encode();
        let block = Block { start: self.position, bytes: footer.len() as u64, crc: crc32fast::hash(&footer) };
        self.buffer.clear();
        self.buffer.extend(footer);
        self.write_buffer()?;
        let file_bytes = block.start + block.bytes;
        let header = Header { key: self.key, file_bytes, totals: self.totals, footer: block };
        self.file.write_all_at(&header.encode(), 0)?;
        self.file.set_len(file_bytes)?;
        self.file.sync_all()?;
        self.directory.finish(&self.name)?;
        self.is_finished = true;
        Ok(self.evicted)
    }

    /// Returns the index of a dictionary, which grows from batch to batch and is written once.
    fn dictionary(&mut self, partitions: &PartitionColumn) -> Result<u32, Failure> {
        let tuples = &partitions.dictionary;
        if tuples.is_empty() {
            return Err(Failure::Unsupported);
        }
        let is_same = |known: &&mut Dictionary| partitions.continues(known.tuples.first());
        if let Some(known) = self.dictionaries.iter_mut().find(is_same) {
            if known.tuples.len() < tuples.len() {
                known.tuples = Arc::clone(tuples);
            }
            return Ok(known.index);
        }
        if self.dictionaries.len() == OPEN_DICTIONARIES {
            let oldest = self.dictionaries.remove(0);
            self.write_dictionary(&oldest)?;
        }
        let index = self.footer.dictionaries.len() as u32;
        self.footer.dictionaries.push(Block::default());
        self.dictionaries.push(Dictionary { tuples: Arc::clone(tuples), index });
        Ok(index)
    }

    fn write_dictionary(&mut self, dictionary: &Dictionary) -> Result<(), Failure> {
        let bytes = encode_tuples(dictionary.tuples.iter().map(|tuple| &**tuple));
        let block = Block { start: self.position, bytes: bytes.len() as u64, crc: crc32fast::hash(&bytes) };
        if let Some(entry) = self.footer.dictionaries.get_mut(dictionary.index as usize) {
            *entry = block;
        }
        self.buffer.clear();
        self.buffer.extend(bytes);
        self.write_buffer()
    }

    /// Writes the buffer at the current position and moves to the next block.
    fn write_buffer(&mut self) -> Result<(), Failure> {
        let end = self.position + self.buffer.len() as u64;
        if end > self.reserved {
            self.reserve(end)?;
        }
        self.file.write_all_at(&self.buffer, self.position)?;
        self.position = end.next_multiple_of(ALIGNMENT as u64);
        Ok(())
    }

    fn reserve(&mut self, end: u64) -> Result<(), Failure> {
        let files = self.totals.files.max(1);
        let expected = self.expected_files.map_or(end, |expected| {
            let bytes = u128::from(end) * u128::from(expected.max(files)) / u128::from(files);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        });
        if expected > self.most_bytes {
            return Err(Failure::TooLarge);
        }
        let more = if self.expected_files.is_some() { expected - end } else { end / 4 };
        let bytes = (end + more.min(MOST_RESERVED_BYTES)).min(self.most_bytes.max(end));
        match self.directory.reserve(&self.file, bytes, self.most_bytes)? {
            Some(evicted) => self.evicted += evicted,
            None => return Err(Failure::TooLarge),
        }
        self.reserved = bytes;
        Ok(())
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            self.directory.remove_partial(&self.name);
        }
    }
}

/// The blocks of one batch, one after the other in `out`.
struct Blocks<'a> {
    /// The position of `out` in the file.
    start: u64,
    out: Vec<u8>,
    entry: &'a mut BatchEntry,
}

impl Blocks<'_> {
    fn push(&mut self, column: Column, bytes: &[u8]) {
        self.out.resize(self.out.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.start + self.out.len() as u64;
        self.entry.blocks[column as usize] =
            Block { start, bytes: bytes.len() as u64, crc: crc32fast::hash(bytes) };
        self.out.extend_from_slice(bytes);
    }

    fn push_longs(&mut self, numbers: Option<&Int64Array>, values: Column, nulls: Column) {
        if let Some(numbers) = numbers {
            self.push(values, numbers.values().inner());
            self.push_nulls(numbers.nulls(), nulls);
        }
    }

    fn push_nulls(&mut self, nulls: Option<&NullBuffer>, column: Column) {
        if let Some(nulls) = nulls {
            self.push(column, nulls.inner().sliced().as_slice());
        }
    }

    /// Writes strings as views into one text.
    fn push_strings(
        &mut self,
        strings: &StringViewArray,
        views: Column,
        text: Column,
    ) -> Result<(), Failure> {
        let mut all = Vec::new();
        let mut encoded = Vec::with_capacity(strings.len() * size_of::<u128>());
        for row in 0..strings.len() {
            let value = if strings.is_valid(row) { strings.value(row).as_bytes() } else { &[] };
            let length = u32::try_from(value.len()).map_err(|_| Failure::Unsupported)?;
            encoded.extend(length.to_le_bytes());
            if value.len() <= INLINE_BYTES {
                encoded.extend(value);
                encoded.resize(encoded.len() + INLINE_BYTES - value.len(), 0);
            } else {
                let start = u32::try_from(all.len()).map_err(|_| Failure::Unsupported)?;
                encoded.extend(&value[..4]);
                encoded.extend(0_u32.to_le_bytes());
                encoded.extend(start.to_le_bytes());
                all.extend_from_slice(value);
            }
        }
        self.push(views, &encoded);
        self.push(text, &all);
        Ok(())
    }
}
