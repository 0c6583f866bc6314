//! The columns of a checkpoint in a mapped file, batch by batch.
//!
//! A batch is verified when it is used for the first time: its pages are read, its checksums compared, its strings
//! validated. Its columns then are parts of the mapping. Only dictionaries and deletion vectors are copied.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, Int64Array, StringViewArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use memmap2::Mmap;

use super::layout::{
    ALIGNMENT, BatchEntry, Block, Column, DeletionVectors, Footer, HEADER_BYTES, Header, Invalid,
    parse_tuples, parse_vectors,
};
use crate::actions::{CodedStats, FileBatch, PartitionColumn, PartitionTuple, SourceId, Stats, Totals};
use crate::file_id::{FileIds, IdScheme};

/// Smaller files are read: they need no mapping, and no page of theirs has to be read again later.
const MAPPED_FROM_BYTES: u64 = 256 << 10;
/// Memory of the kernel for a mapping, and of this process for its description.
const MAPPING_BYTES: usize = 16 << 10;

type Dictionary = Arc<Vec<Arc<PartitionTuple>>>;

#[derive(Debug)]
pub(in crate::column_cache) struct MappedFile {
    content: Buffer,
    map: Option<Arc<Mmap>>,
    totals: Totals,
    dictionaries: Vec<(Block, OnceLock<Result<Dictionary, Invalid>>)>,
    batches: Vec<BatchEntry>,
}

#[derive(Debug)]
pub(in crate::column_cache) struct MappedBatch {
    pub(in crate::column_cache) files: FileBatch,
    pub(in crate::column_cache) ids: [FileIds; 2],
    /// Bytes outside of the mapping.
    pub(in crate::column_cache) own_bytes: usize,
}

/// What identifies the files of a batch.
#[derive(Debug)]
pub(in crate::column_cache) struct FileKeys {
    pub(in crate::column_cache) path: StringViewArray,
    pub(in crate::column_cache) deletion_vector: Option<DeletionVectors>,
}

/// Why a file cannot be opened.
#[derive(Debug)]
pub(in crate::column_cache) enum OpenError {
    /// The file is not a complete columns file with the key.
    Invalid,
    /// The file may be valid: the system refused to read or to map it.
    Unreadable,
}

impl From<Invalid> for OpenError {
    fn from(Invalid: Invalid) -> Self {
        Self::Invalid
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        // The file is shorter than its header says.
        let is_torn = error.kind() == std::io::ErrorKind::UnexpectedEof;
        if is_torn { Self::Invalid } else { Self::Unreadable }
    }
}

struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    /// Maps a file that has `key` and verifies its header and footer.
    #[allow(unsafe_code)]
    pub(in crate::column_cache) fn open(file: &File, key: &[u8; 32]) -> Result<Self, OpenError> {
        let file_bytes = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let header = Header::parse(&header)?;
        let footer_end = header.footer.start.checked_add(header.footer.bytes);
        if header.key != *key || header.file_bytes != file_bytes || footer_end != Some(file_bytes) {
            return Err(OpenError::Invalid);
        }
        let mut footer = vec![0; header.footer.bytes as usize];
        file.read_exact_at(&mut footer, header.footer.start)?;
        if crc32fast::hash(&footer) != header.footer.crc {
            return Err(OpenError::Invalid);
        }
        let Footer { dictionaries, batches } = Footer::parse(&footer)?;
        let (content, map) = if file_bytes < MAPPED_FROM_BYTES {
            let mut content = MutableBuffer::from_len_zeroed(file_bytes as usize);
            file.read_exact_at(content.as_slice_mut(), 0)?;
            (content.into(), None)
        } else {
            // SAFETY: only this service's user can write to the directory, and files under their final names are
            // replaced and removed but never changed. The docs name this as a condition of the key.
            let map = Arc::new(unsafe { Mmap::map(file)? });
            (bytes::Bytes::from_owner(Owner(Arc::clone(&map))).into(), Some(map))
        };
        let dictionaries = dictionaries.into_iter().map(|block| (block, OnceLock::new())).collect();
        Ok(Self { content, map, totals: header.totals, dictionaries, batches })
    }

    /// The number and total size of all files.
    pub(in crate::column_cache) fn totals(&self) -> Totals {
        self.totals
    }

    pub(in crate::column_cache) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// The positions of the first and the last file of a batch.
    pub(in crate::column_cache) fn positions(&self, index: usize) -> Option<[(SourceId, u32); 2]> {
        let entry = self.batches.get(index)?;
        let source = SourceId(entry.source);
        Some([(source, entry.first_row), (source, entry.last_row)])
    }

    /// The size of the file.
    pub(in crate::column_cache) fn content_bytes(&self) -> usize {
        self.content.len()
    }

    /// Bytes of memory outside of the mapping, without loaded batches.
    pub(in crate::column_cache) fn own_bytes(&self) -> usize {
        let content = if self.map.is_some() { 0 } else { self.content.len() };
        let known = self.dictionaries.iter().filter_map(|(_, dictionary)| dictionary.get()?.as_ref().ok());
        let tuples = known.flat_map(|dictionary| dictionary.iter());
        MAPPING_BYTES
            + content
            + self.batches.capacity() * size_of::<BatchEntry>()
            + tuples.map(|tuple| tuple.memory_bytes()).sum::<usize>()
    }

    /// Verifies a batch and returns its columns.
    pub(in crate::column_cache) fn batch(&self, index: usize) -> Result<MappedBatch, Invalid> {
        let entry = self.batches.get(index).ok_or(Invalid)?;
        self.read_pages(&entry.blocks)?;
        let files = entry.files as usize;
        let column = |column: Column| self.block(&entry.blocks[column as usize]);
        let path = self.strings(entry, [Column::PathViews, Column::PathText], None)?.ok_or(Invalid)?;
        let row = numbers::<u32>(column(Column::Row)?, files)?;
        if row.first() != Some(&entry.first_row) || row.last() != Some(&entry.last_row) {
            return Err(Invalid);
        }
        let dictionary = self.dictionary(entry.dictionary)?;
        let keys = numbers::<u32>(column(Column::PartitionKeys)?, files)?;
        let [stats_records, stats_starts, stats_forms] =
            [Column::StatsRecords, Column::StatsStarts, Column::StatsForms].map(column);
        let stats = match (stats_records?, stats_starts?, stats_forms?) {
            (Some(records), starts @ Some(_), Some(forms)) => {
                let starts = numbers::<u32>(starts, files + 1)?;
                Some(Stats::Coded(CodedStats::of_parts(&records, starts, &forms).ok_or(Invalid)?))
            }
            (None, None, None) => None,
            _ => return Err(Invalid),
        };
        let data_change = column(Column::DataChange)?;
        let data_change = data_change.map(|flags| flags.iter().map(|flag| *flag != 0).collect::<Vec<_>>());
        let deletion_vector = self.vectors(entry)?;
        let ids = |block: Column, scheme: IdScheme| {
            let bytes = column(block)?.ok_or(Invalid)?;
            if bytes.len() == files * scheme.id_bytes() {
                Ok(FileIds::of_bytes(scheme, bytes))
            } else {
                Err(Invalid)
            }
        };
        let ids = [ids(Column::ParquetIds, IdScheme::Parquet)?, ids(Column::DeltaIds, IdScheme::Delta)?];
        let is_of_length = data_change.as_ref().is_none_or(|flags| flags.len() == files);
        let is_in_dictionary = keys.iter().all(|key| (*key as usize) < dictionary.len());
        if path.len() != files || !is_of_length || !is_in_dictionary {
            return Err(Invalid);
        }
        let vector_bytes = deletion_vector.iter().flatten().map(|vector| {
            size_of_val(vector)
                + vector.as_ref().map_or(0, |vector| size_of_val(&**vector) + vector.path_or_inline.len())
        });
        let coded =
            stats.as_ref().and_then(|stats| if let Stats::Coded(coded) = stats { Some(coded) } else { None });
        let own_bytes = size_of::<Self>()
            + size_of::<FileBatch>()
            + data_change.as_ref().map_or(0, Vec::len)
            + coded.map_or(0, CodedStats::form_bytes)
            + vector_bytes.sum::<usize>();
        let files = FileBatch {
            source: SourceId(entry.source),
            row,
            path,
            size: numbers(column(Column::Size)?, files)?,
            modification_time_ms: numbers(column(Column::ModificationTime)?, files)?,
            data_change,
            partitions: PartitionColumn { dictionary, keys },
            stats,
            deletion_vector,
            base_row_id: self.longs(entry, Column::BaseRowIds, Column::BaseRowIdNulls)?,
            default_row_commit_version: self.longs(
                entry,
                Column::CommitVersions,
                Column::CommitVersionNulls,
            )?,
            clustering_provider: self.strings(
                entry,
                [Column::ClusteringViews, Column::ClusteringText],
                Some(Column::ClusteringNulls),
            )?,
            tags: self.strings(entry, [Column::TagViews, Column::TagText], Some(Column::TagNulls))?,
            remove_fields: None,
        };
        Ok(MappedBatch { files, ids, own_bytes })
    }

    /// Verifies the sizes of a batch and returns them.
    pub(in crate::column_cache) fn sizes(&self, index: usize) -> Result<ScalarBuffer<i64>, Invalid> {
        let entry = self.batches.get(index).ok_or(Invalid)?;
        let sizes = &entry.blocks[Column::Size as usize];
        self.read_pages(std::slice::from_ref(sizes))?;
        numbers(self.block(sizes)?, entry.files as usize)
    }

    /// Verifies the paths and deletion vectors of a batch and returns them.
    pub(in crate::column_cache) fn keys(&self, index: usize) -> Result<FileKeys, Invalid> {
        let entry = self.batches.get(index).ok_or(Invalid)?;
        let columns = [Column::PathViews, Column::PathText, Column::DeletionVectors];
        for column in columns {
            self.read_pages(std::slice::from_ref(&entry.blocks[column as usize]))?;
        }
        let path = self.strings(entry, [Column::PathViews, Column::PathText], None)?.ok_or(Invalid)?;
        if path.len() != entry.files as usize {
            return Err(Invalid);
        }
        Ok(FileKeys { path, deletion_vector: self.vectors(entry)? })
    }

    /// Reads the pages of blocks, so that an error of the disk is found here and not by an access to the mapping.
    fn read_pages(&self, blocks: &[Block]) -> Result<(), Invalid> {
        let Some(map) = &self.map else { return Ok(()) };
        let present = blocks.iter().filter(|block| block.is_present());
        let start = present.clone().map(|block| block.start).min().unwrap_or(0) as usize;
        let end =
            present.filter_map(|block| block.start.checked_add(block.bytes)).max().unwrap_or(0) as usize;
        if end > map.len() || start > end {
            return Err(Invalid);
        }
        populate(map, start, end - start)
    }

    fn dictionary(&self, index: u32) -> Result<Dictionary, Invalid> {
        let (block, parsed) = self.dictionaries.get(index as usize).ok_or(Invalid)?;
        let parse = || {
            let bytes = self.block(block)?.ok_or(Invalid)?;
            Ok(Arc::new(parse_tuples(&bytes)?.into_iter().map(Arc::new).collect()))
        };
        parsed.get_or_init(parse).clone()
    }

    /// Returns a block after a check of its checksum; `None` if it is absent.
    fn block(&self, block: &Block) -> Result<Option<Buffer>, Invalid> {
        if !block.is_present() {
            return Ok(None);
        }
        let end = block.start.checked_add(block.bytes).ok_or(Invalid)?;
        if end > self.content.len() as u64 || !(block.start as usize).is_multiple_of(ALIGNMENT) {
            return Err(Invalid);
        }
        let content = self.content.slice_with_length(block.start as usize, block.bytes as usize);
        if crc32fast::hash(&content) == block.crc { Ok(Some(content)) } else { Err(Invalid) }
    }

    fn vectors(&self, entry: &BatchEntry) -> Result<Option<DeletionVectors>, Invalid> {
        let block = self.block(&entry.blocks[Column::DeletionVectors as usize])?;
        block.map(|bytes| parse_vectors(&bytes, entry.files as usize)).transpose()
    }

    fn nulls(&self, entry: &BatchEntry, column: Column) -> Result<Option<NullBuffer>, Invalid> {
        let files = entry.files as usize;
        let Some(bits) = self.block(&entry.blocks[column as usize])? else { return Ok(None) };
        if bits.len() < files.div_ceil(8) {
            return Err(Invalid);
        }
        Ok(Some(NullBuffer::new(BooleanBuffer::new(bits, 0, files))))
    }

    fn longs(
        &self,
        entry: &BatchEntry,
        values: Column,
        nulls: Column,
    ) -> Result<Option<Int64Array>, Invalid> {
        let Some(values) = self.block(&entry.blocks[values as usize])? else { return Ok(None) };
        let values = numbers(Some(values), entry.files as usize)?;
        Int64Array::try_new(values, self.nulls(entry, nulls)?).map(Some).map_err(|_| Invalid)
    }

    fn strings(
        &self,
        entry: &BatchEntry,
        [views, text]: [Column; 2],
        nulls: Option<Column>,
    ) -> Result<Option<StringViewArray>, Invalid> {
        let Some(views) = self.block(&entry.blocks[views as usize])? else { return Ok(None) };
        let views = numbers::<u128>(Some(views), entry.files as usize)?;
        let text = self.block(&entry.blocks[text as usize])?.ok_or(Invalid)?;
        let nulls = match nulls {
            Some(nulls) => self.nulls(entry, nulls)?,
            None => None,
        };
        StringViewArray::try_new(views, [text], nulls).map(Some).map_err(|_| Invalid)
    }
}

/// The number of values and the alignment are checked, since Arrow panics where they are wrong.
fn numbers<T: ArrowNativeType>(bytes: Option<Buffer>, count: usize) -> Result<ScalarBuffer<T>, Invalid> {
    let bytes = bytes.ok_or(Invalid)?;
    let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<T>());
    if bytes.len() == count * size_of::<T>() && is_aligned {
        Ok(ScalarBuffer::new(bytes, 0, count))
    } else {
        Err(Invalid)
    }
}

#[cfg(target_os = "linux")]
fn populate(map: &Mmap, start: usize, bytes: usize) -> Result<(), Invalid> {
    match map.advise_range(memmap2::Advice::PopulateRead, start, bytes) {
        // Kernels before 5.14 do not have the advice.
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INVAL.raw_os_error()) => Err(Invalid),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn populate(_: &Mmap, _: usize, _: usize) -> Result<(), Invalid> {
    Ok(())
}
