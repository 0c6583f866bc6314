//! The footer of a Parquet file, validated before it is decoded.
//!
//! Readers build the schema recursively, so a footer with unbounded nesting overflows the stack, which no error handling
//! catches. A valid checkpoint nests as deep as the statistics of the table's schema.

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::ChunkReader;

use super::thrift::Thrift;

/// The maximum nesting. Spark supports far fewer levels.
const MAX_SCHEMA_DEPTH: usize = 200;

/// Reads and decodes the footer.
pub(crate) fn read<R: ChunkReader>(source: &R) -> Result<ParquetMetaData, ParquetError> {
    let footer = bytes(source)?;
    match schema_depth(&footer) {
        Some(depth) if depth <= MAX_SCHEMA_DEPTH => ParquetMetaDataReader::decode_metadata(&footer),
        Some(_) => Err(ParquetError::General("its schema is nested too deeply".to_owned())),
        None => Err(ParquetError::General("its footer is malformed".to_owned())),
    }
}

/// Returns the footer's bytes. Its length and a magic number follow it.
fn bytes<R: ChunkReader>(source: &R) -> Result<Bytes, ParquetError> {
    const TAIL_BYTES: u64 = 8;
    let cut = || ParquetError::General("it does not end as a Parquet file does".to_owned());
    let end = source.len().checked_sub(TAIL_BYTES).ok_or_else(cut)?;
    let tail = source.get_bytes(end, TAIL_BYTES as usize)?;
    let (length, magic) = tail.split_first_chunk().ok_or_else(cut)?;
    let length = u32::from_le_bytes(*length);
    let start = end.checked_sub(u64::from(length)).filter(|_| magic == b"PAR1").ok_or_else(cut)?;
    source.get_bytes(start, length as usize)
}

/// Returns the depth of `FileMetaData.schema` (parquet.thrift): a list of elements in depth-first order, each with the
/// number of its children.
fn schema_depth(footer: &[u8]) -> Option<usize> {
    const SCHEMA: i64 = 2;
    const NUM_CHILDREN: i64 = 5;
    let mut thrift = Thrift::new(footer);
    let mut id = 0;
    while let Some(kind) = thrift.field(&mut id)? {
        if (id, kind) != (SCHEMA, Thrift::LIST) {
            thrift.skip(kind)?;
            continue;
        }
        let (elements, element_kind) = thrift.list()?;
        if element_kind != Thrift::STRUCT {
            return None;
        }
        let mut open: Vec<i64> = Vec::new();
        let mut depth = 0;
        for _ in 0..elements {
            let mut children = 0;
            let mut id = 0;
            while let Some(kind) = thrift.field(&mut id)? {
                if (id, kind) == (NUM_CHILDREN, Thrift::I32) {
                    children = thrift.zigzag()?;
                } else {
                    thrift.skip(kind)?;
                }
            }
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
                depth = depth.max(open.len());
            }
        }
        return Some(depth);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a footer with nested groups: `version`, then `schema` with a name and one child each.
    fn nested(depth: usize) -> Bytes {
        let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
        let mut length = depth + 1;
        while length > 0x7f {
            footer.push(length as u8 | 0x80);
            length >>= 7;
        }
        footer.push(length as u8);
        footer.extend([0x48, 1, b'r', 0x15, 0x02, 0x00]);
        for _ in 1..depth {
            footer.extend([0x35, 0x02, 0x18, 1, b'g', 0x15, 0x02, 0x00]);
        }
        footer.extend([0x15, 0x02, 0x25, 0x02, 0x18, 1, b'l', 0x00]);
        // num_rows, row_groups
        footer.extend([0x16, 0x00, 0x19, 0x0c, 0x00]);
        let length = (footer.len() as u32).to_le_bytes();
        [b"PAR1", &footer[..], &length, b"PAR1"].concat().into()
    }

    #[test]
    fn a_schema_that_nests_without_end_is_refused_before_the_stack_overflows() {
        for depth in [1, 2, 100, MAX_SCHEMA_DEPTH] {
            let metadata = read(&nested(depth)).unwrap();
            assert_eq!(metadata.file_metadata().schema_descr().column(0).path().parts().len(), depth);
        }
        for depth in [MAX_SCHEMA_DEPTH + 1, 1_000_000] {
            let error = read(&nested(depth)).unwrap_err();
            assert!(error.to_string().contains("nested too deeply"), "{error}");
        }
    }

    #[test]
    fn a_footer_that_is_cut_is_malformed() {
        let whole = nested(3);
        let footer = bytes(&whole).unwrap();
        assert_eq!(schema_depth(&footer), Some(3));
        for length in 0..24 {
            assert_eq!(schema_depth(&footer[..length]), None, "{length}");
        }
        for length in 0..whole.len() {
            assert!(read(&whole.slice(..length)).is_err());
        }
    }
}
