//! The footer of a Parquet file, validated before it is decoded.
//!
//! Readers build the schema recursively, so a footer with unbounded nesting overflows the stack, which no error handling
//! catches. A valid checkpoint nests as deep as the statistics of the table's schema. They reserve memory for as many
//! children as an element states.
//!
//! A footer is far smaller than what is decoded from it, so its memory is admitted by its length and by its schema: the
//! path of a column repeats the names of all groups around it.
//!
//! Without it: 1.6 MB of groups with one child each end the process, 30 bytes reserve 16 GiB, and a group with a name of
//! 1 MB takes that for each of its columns.

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::column_bytes::{Ranges, get_bytes};
use super::thrift::{Shape, Thrift};
use crate::log_memory::{self, Admitted};

/// The maximum nesting. Spark supports far fewer levels.
const MAX_SCHEMA_DEPTH: usize = 200;

/// The most memory of a decoded byte of the footer, with the byte: a column of a row group has 17 bytes at least, and
/// takes 430.
const DECODED_FACTOR: u64 = 32;
/// The memory of an element of the schema beside its names, as several types and fields.
const ELEMENT_BYTES: u64 = 1024;
/// The memory of a name in the path of a column, beside its text.
const NAME_BYTES: u64 = 64;

/// Reads and decodes the footer. The memory is more than it takes.
pub(crate) fn read(source: &dyn Ranges) -> Result<(ParquetMetaData, Admitted), ParquetError> {
    let busy = |error| ParquetError::External(Box::new(error));
    let (start, length) = place(source)?;
    let mut memory = log_memory::admit_decoded(length as u64 * DECODED_FACTOR).map_err(busy)?;
    let footer = get_bytes(source, start, length)?;
    match Schema::of(&footer) {
        Some(schema) if schema.depth <= MAX_SCHEMA_DEPTH => {
            memory.grow(schema.decoded_bytes).map_err(busy)?;
            Ok((ParquetMetaDataReader::decode_metadata(&footer)?, memory))
        }
        Some(_) => Err(ParquetError::General("its schema is nested too deeply".to_owned())),
        None => Err(ParquetError::General("its footer is malformed".to_owned())),
    }
}

/// Returns the start and the length of the footer. The length and a magic number follow it.
fn place(source: &dyn Ranges) -> Result<(u64, usize), ParquetError> {
    const TAIL_BYTES: u64 = 8;
    let cut = || ParquetError::General("it does not end as a Parquet file does".to_owned());
    let end = source.size().checked_sub(TAIL_BYTES).ok_or_else(cut)?;
    let tail = get_bytes(source, end, TAIL_BYTES as usize)?;
    let (length, magic) = tail.split_first_chunk().ok_or_else(cut)?;
    let length = u32::from_le_bytes(*length);
    let start = end.checked_sub(u64::from(length)).filter(|_| magic == b"PAR1").ok_or_else(cut)?;
    Ok((start, length as usize))
}

/// The fields of `SchemaElement` (parquet.thrift).
const ELEMENT: &[(i64, Shape)] = &[
    (1, Shape::I32),
    (2, Shape::I32),
    (3, Shape::I32),
    (NAME, Shape::Binary),
    (NUM_CHILDREN, Shape::I32),
    (6, Shape::I32),
    (7, Shape::I32),
    (8, Shape::I32),
    (9, Shape::I32),
    (10, Shape::Struct(LOGICAL_TYPE)),
];
const NAME: i64 = 4;
const NUM_CHILDREN: i64 = 5;
/// The fields of `LogicalType`, of which one is there.
const LOGICAL_TYPE: &[(i64, Shape)] = &[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Shape::Struct(&[(1, Shape::I32), (2, Shape::I32)])),
    (6, EMPTY),
    (7, Shape::Struct(TIME)),
    (8, Shape::Struct(TIME)),
    (10, Shape::Struct(&[(1, Shape::Byte), (2, Shape::Boolean)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Shape::Struct(&[(1, Shape::Byte)])),
    (17, Shape::Struct(&[(1, Shape::Binary)])),
    (18, Shape::Struct(&[(1, Shape::Binary), (2, Shape::I32)])),
    (19, EMPTY),
];
const EMPTY: Shape = Shape::Struct(&[]);
const TIME: &[(i64, Shape)] =
    &[(1, Shape::Boolean), (2, Shape::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))];

/// `FileMetaData.schema` (parquet.thrift): a list of elements in depth-first order, each with the number of its children.
/// All writers write it behind the version.
#[derive(Debug, Default, PartialEq, Eq)]
struct Schema {
    depth: usize,
    /// The memory of its types and paths.
    decoded_bytes: u64,
}

impl Schema {
    fn of(footer: &[u8]) -> Option<Self> {
        const SCHEMA: (i64, u8) = (2, Thrift::LIST);
        let mut thrift = Thrift::new(footer);
        let mut id = 0;
        let _version = thrift.next_i32(&mut id)?;
        let kind = thrift.field(&mut id)??;
        if (id, kind) != SCHEMA {
            return None;
        }
        let elements = thrift.structs()?;
        let mut schema = Self::default();
        // The children that are left of each open group, and the memory of the names up to it.
        let mut open: Vec<(i32, u64)> = Vec::new();
        let mut all_children = 0_u64;
        for _ in 0..elements {
            let (mut children, mut name) = (0, NAME_BYTES);
            thrift.known(ELEMENT, &mut |id, number| match id {
                NUM_CHILDREN => children = number,
                NAME => name += u64::from(number.unsigned_abs()),
                _ => {}
            })?;
            all_children = all_children.saturating_add(u64::try_from(children).ok()?);
            if all_children >= elements {
                return None;
            }
            while open.last().is_some_and(|(left, _)| *left == 0) {
                open.pop();
            }
            let mut path = name;
            if let Some((left, names)) = open.last_mut() {
                *left -= 1;
                path += *names;
            }
            if children > 0 {
                open.push((children, path));
                schema.depth = schema.depth.max(open.len());
                path = name;
            }
            // Also the name in each of its types and fields.
            schema.decoded_bytes = schema.decoded_bytes.saturating_add(ELEMENT_BYTES + 2 * path + 4 * name);
        }
        Some(schema)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

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
            let (metadata, _memory) = read(&nested(depth)).unwrap();
            assert_eq!(metadata.file_metadata().schema_descr().column(0).path().parts().len(), depth);
        }
        for depth in [MAX_SCHEMA_DEPTH + 1, 1_000_000] {
            let error = read(&nested(depth)).unwrap_err();
            assert!(error.to_string().contains("nested too deeply"), "{error}");
        }
    }

    /// Returns a footer with groups of one child each, behind `begin`, with the fields of `group`.
    fn disguised(begin: &[u8], group: &[u8]) -> Bytes {
        // More than fit on the stack of a thread, in a list with a length of three bytes.
        let groups = 200_000_u32;
        let mut footer = begin.to_vec();
        footer.extend([groups as u8 | 0x80, (groups >> 7) as u8 | 0x80, (groups >> 14) as u8]);
        footer.extend([0x48, 1, b'r', 0x15, 0x02, 0x00]);
        (1..groups).for_each(|_| footer.extend(group));
        let length = (footer.len() as u32).to_le_bytes();
        [b"PAR1", &footer[..], &length, b"PAR1"].concat().into()
    }

    #[test]
    fn a_nested_schema_is_not_hidden_by_the_types_and_the_order_of_fields() {
        let list: &[u8] = &[0x15, 0x02, 0x19, 0xfc];
        let one_child: &[u8] = &[0x35, 0x02, 0x18, 1, b'g', 0x15, 0x02, 0x00];
        for (begin, group) in [
            // The number of children as a number of 64 bits, of 32 bits after a cut, and under an id that is cut.
            (list, &[0x35, 0x02, 0x18, 1, b'g', 0x16, 0x02, 0x00][..]),
            (list, &[0x35, 0x02, 0x18, 1, b'g', 0x15, 0xfd, 0xff, 0xff, 0xff, 0x1f, 0x00]),
            (list, &[0x35, 0x02, 0x18, 1, b'g', 0x05, 0x8a, 0x80, 0x08, 0x02, 0x00]),
            // With a logical type that is a text here and a struct there.
            (list, &[0x35, 0x02, 0x18, 1, b'g', 0x15, 0x02, 0x58, 3, 0x1c, 0x00, 0x00, 0x00]),
            // The schema as a set, before a plain one.
            (&[0x15, 0x02, 0x1a, 0xfc], one_child),
        ] {
            let error = read(&disguised(begin, group)).unwrap_err();
            assert!(error.to_string().contains("its footer is malformed"), "{error}");
        }
    }

    #[test]
    fn elements_have_no_more_children_than_there_are_elements() {
        for children in [&[0x04][..], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &[0x03]] {
            let leaf: &[u8] = &[0x15, 0x02, 0x25, 0x02, 0x18, 1, b'l', 0x00];
            let end: &[u8] = &[0x00];
            let footer = [&[0x15, 0x02, 0x19, 0x2c, 0x48, 1, b'r', 0x15], children, end, leaf].concat();
            assert_eq!(Schema::of(&footer), None, "{children:x?}");
        }
    }

    #[test]
    fn a_footer_that_is_cut_is_malformed() {
        let whole = nested(3);
        let (start, length) = place(&whole).unwrap();
        let footer = whole.slice(start as usize..).slice(..length);
        assert_eq!(Schema::of(&footer).map(|schema| schema.depth), Some(3));
        for length in 0..24 {
            assert_eq!(Schema::of(&footer[..length]), None, "{length}");
        }
        for length in 0..whole.len() {
            assert!(read(&whole.slice(..length)).is_err());
        }
    }
}
