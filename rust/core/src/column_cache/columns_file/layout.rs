//! The layout of a columns file, which is mapped into memory without decoding.
//!
//! ```text
//! header      128 bytes: magic, format version, key, lengths, totals, place of the footer, checksum
//! blocks      each at a multiple of 64 bytes: columns of batches, dictionaries of partition values
//! footer      the place and the checksum of every block, with its own checksum in the header
//! ```
//!
//! Numbers are little-endian. A block is one column of one batch, in its form in memory: an array of numbers, the views
//! of strings, their text. Every byte but the padding is covered by a CRC-32: of the header and the footer when the
//! file is opened, of a batch's blocks when the batch is used for the first time in a process.

use std::io::Write;

use crate::actions::{DeletionVectorDescriptor, PartitionTuple, Totals};

/// Changes with the layout, and with any change of how columns are decoded.
pub(in crate::column_cache) const FORMAT_VERSION: u32 = 2;
pub(in crate::column_cache) const ALIGNMENT: usize = 64;
pub(in crate::column_cache) const HEADER_BYTES: usize = 128;
/// The number of blocks of a batch, one for each [`Column`].
pub(in crate::column_cache) const COLUMNS: usize = 23;

const MAGIC: [u8; 8] = *b"DGCOLS\r\n";
const CHECKED_HEADER_BYTES: usize = HEADER_BYTES - 4;
const BLOCK_BYTES: usize = 20;
const DICTIONARY_BYTES: usize = BLOCK_BYTES;
const BATCH_BYTES: usize = 20 + COLUMNS * BLOCK_BYTES;
const NULL: u32 = u32::MAX;

/// The blocks of a batch. The order is part of the format.
#[derive(Debug, Clone, Copy)]
pub(in crate::column_cache) enum Column {
    Row,
    Size,
    ModificationTime,
    PartitionKeys,
    PathViews,
    PathText,
    StatsStarts,
    StatsRecords,
    StatsForms,
    ParquetIds,
    DeltaIds,
    DataChange,
    DeletionVectors,
    BaseRowIds,
    BaseRowIdNulls,
    CommitVersions,
    CommitVersionNulls,
    ClusteringViews,
    ClusteringText,
    ClusteringNulls,
    TagViews,
    TagText,
    TagNulls,
}

/// A span of the file with its checksum. An absent one starts at zero.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::column_cache) struct Block {
    pub(in crate::column_cache) start: u64,
    pub(in crate::column_cache) bytes: u64,
    pub(in crate::column_cache) crc: u32,
}

#[derive(Debug, Clone)]
pub(in crate::column_cache) struct BatchEntry {
    pub(in crate::column_cache) source: u32,
    pub(in crate::column_cache) files: u32,
    pub(in crate::column_cache) first_row: u32,
    pub(in crate::column_cache) last_row: u32,
    /// The index of the dictionary of its partition values.
    pub(in crate::column_cache) dictionary: u32,
    pub(in crate::column_cache) blocks: [Block; COLUMNS],
}

#[derive(Debug, Default)]
pub(in crate::column_cache) struct Footer {
    pub(in crate::column_cache) dictionaries: Vec<Block>,
    pub(in crate::column_cache) batches: Vec<BatchEntry>,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::column_cache) struct Header {
    pub(in crate::column_cache) key: [u8; 32],
    pub(in crate::column_cache) file_bytes: u64,
    pub(in crate::column_cache) totals: Totals,
    pub(in crate::column_cache) footer: Block,
}

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::column_cache) struct Invalid;

impl Header {
    pub(in crate::column_cache) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT_VERSION.to_le_bytes());
        bytes.extend((HEADER_BYTES as u32).to_le_bytes());
        bytes.extend(self.key);
        for number in [self.file_bytes, self.totals.files, self.totals.size_bytes] {
            bytes.extend(number.to_le_bytes());
        }
        self.footer.encode(&mut bytes);
        let mut header = [0; HEADER_BYTES];
        header[..bytes.len()].copy_from_slice(&bytes);
        let crc = crc32fast::hash(&header[..CHECKED_HEADER_BYTES]);
        header[CHECKED_HEADER_BYTES..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Another magic, format version or checksum is invalid.
    pub(in crate::column_cache) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Invalid> {
        let mut fields = Fields(bytes);
        let mut parsed = || {
            let is_ours = fields.take(MAGIC.len())? == MAGIC
                && fields.u32()? == FORMAT_VERSION
                && fields.u32()? as usize == HEADER_BYTES;
            let key = fields.take(32)?.try_into().ok()?;
            let file_bytes = fields.u64()?;
            let totals = Totals { files: fields.u64()?, size_bytes: fields.u64()? };
            let footer = Block::parse(&mut fields)?;
            is_ours.then_some(Self { key, file_bytes, totals, footer })
        };
        let header = parsed().ok_or(Invalid)?;
        let crc = crc32fast::hash(&bytes[..CHECKED_HEADER_BYTES]).to_le_bytes();
        if bytes[CHECKED_HEADER_BYTES..] == crc { Ok(header) } else { Err(Invalid) }
    }
}

impl Block {
    pub(in crate::column_cache) fn is_present(&self) -> bool {
        self.start != 0
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.start.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.crc.to_le_bytes());
    }

    fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { start: fields.u64()?, bytes: fields.u64()?, crc: fields.u32()? })
    }
}

impl Footer {
    pub(in crate::column_cache) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(
            8 + self.dictionaries.len() * DICTIONARY_BYTES + self.batches.len() * BATCH_BYTES,
        );
        out.extend((self.dictionaries.len() as u32).to_le_bytes());
        out.extend((self.batches.len() as u32).to_le_bytes());
        self.dictionaries.iter().for_each(|block| block.encode(&mut out));
        for batch in &self.batches {
            for number in [batch.source, batch.files, batch.first_row, batch.last_row, batch.dictionary] {
                out.extend(number.to_le_bytes());
            }
            batch.blocks.iter().for_each(|block| block.encode(&mut out));
        }
        out
    }

    /// Parses bytes whose checksum was verified.
    pub(in crate::column_cache) fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut fields = Fields(bytes);
        let mut parsed = || {
            let (dictionaries, batches) = (fields.u32()? as usize, fields.u32()? as usize);
            if fields.0.len() != dictionaries * DICTIONARY_BYTES + batches * BATCH_BYTES {
                return None;
            }
            let mut footer =
                Self { dictionaries: Vec::with_capacity(dictionaries), batches: Vec::with_capacity(batches) };
            for _ in 0..dictionaries {
                footer.dictionaries.push(Block::parse(&mut fields)?);
            }
            for _ in 0..batches {
                let mut batch = BatchEntry {
                    source: fields.u32()?,
                    files: fields.u32()?,
                    first_row: fields.u32()?,
                    last_row: fields.u32()?,
                    dictionary: fields.u32()?,
                    blocks: [Block::default(); COLUMNS],
                };
                for block in &mut batch.blocks {
                    *block = Block::parse(&mut fields)?;
                }
                footer.batches.push(batch);
            }
            Some(footer)
        };
        parsed().ok_or(Invalid)
    }
}

pub(in crate::column_cache) fn encode_tuples<'a>(
    tuples: impl Iterator<Item = &'a PartitionTuple>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for tuple in tuples {
        out.extend((tuple.values.len() as u32).to_le_bytes());
        for value in &tuple.values {
            push_bytes(value.as_ref().map(|value| value.as_bytes()), &mut out);
        }
        push_bytes(Some(&tuple.json), &mut out);
        push_bytes(tuple.logged_json.as_deref(), &mut out);
    }
    out
}

pub(in crate::column_cache) fn parse_tuples(bytes: &[u8]) -> Result<Vec<PartitionTuple>, Invalid> {
    let mut fields = Fields(bytes);
    let mut tuples = Vec::new();
    while !fields.0.is_empty() {
        tuples.push(fields.tuple().ok_or(Invalid)?);
    }
    Ok(tuples)
}

/// The deletion vector of each file of a batch.
pub(in crate::column_cache) type DeletionVectors = Vec<Option<Box<DeletionVectorDescriptor>>>;

pub(in crate::column_cache) fn encode_vectors(vectors: &[Option<Box<DeletionVectorDescriptor>>]) -> Vec<u8> {
    let mut out = Vec::new();
    let present = vectors.iter().enumerate().filter_map(|(row, vector)| Some((row, vector.as_deref()?)));
    for (row, vector) in present {
        out.extend((row as u32).to_le_bytes());
        out.extend(u32::from(vector.storage_type).to_le_bytes());
        out.extend(u32::from(vector.offset.is_some()).to_le_bytes());
        out.extend(vector.offset.unwrap_or_default().to_le_bytes());
        out.extend(vector.size_in_bytes.to_le_bytes());
        out.extend(vector.cardinality.to_le_bytes());
        push_bytes(Some(vector.path_or_inline.as_bytes()), &mut out);
    }
    out
}

pub(in crate::column_cache) fn parse_vectors(bytes: &[u8], files: usize) -> Result<DeletionVectors, Invalid> {
    let mut vectors = vec![None; files];
    let mut fields = Fields(bytes);
    while !fields.0.is_empty() {
        let (row, vector) = fields.vector().ok_or(Invalid)?;
        *vectors.get_mut(row).ok_or(Invalid)? = Some(Box::new(vector));
    }
    Ok(vectors)
}

fn push_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend(bytes.map_or(NULL, |bytes| bytes.len() as u32).to_le_bytes());
    // Writing to a vector cannot fail.
    let _ = out.write_all(bytes.unwrap_or_default());
}

/// The unread rest of an encoded record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Returns `None` for null.
    fn bytes(&mut self) -> Result<Option<&'a [u8]>, Invalid> {
        match self.u32().ok_or(Invalid)? {
            NULL => Ok(None),
            count => self.take(count as usize).map(Some).ok_or(Invalid),
        }
    }

    fn tuple(&mut self) -> Option<PartitionTuple> {
        let count = self.u32()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match self.bytes().ok()? {
                Some(value) => Some(std::str::from_utf8(value).ok()?.into()),
                None => None,
            });
        }
        let json = self.bytes().ok()??;
        std::str::from_utf8(json).ok()?;
        let logged_json = self.bytes().ok()?.map(Box::from);
        Some(PartitionTuple { values: values.into(), json: json.into(), logged_json })
    }

    /// Returns the vector of a file with the file's row.
    fn vector(&mut self) -> Option<(usize, DeletionVectorDescriptor)> {
        let row = self.u32()? as usize;
        let storage_type = u8::try_from(self.u32()?).ok()?;
        let has_offset = self.u32()? != 0;
        let offset = Some(self.u32()?.cast_signed()).filter(|_| has_offset);
        let size_in_bytes = self.u32()?.cast_signed();
        let cardinality = self.u64()?.cast_signed();
        let path_or_inline = std::str::from_utf8(self.bytes().ok()??).ok()?.to_owned();
        let vector =
            DeletionVectorDescriptor { storage_type, path_or_inline, offset, size_in_bytes, cardinality };
        Some((row, vector))
    }
}
