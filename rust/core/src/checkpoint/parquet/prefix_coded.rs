//! The decoded size of the values of a prefix-coded page (`DELTA_BYTE_ARRAY`).
//!
//! Each value repeats a prefix of the previous one, so a small page may decode to much text. The lengths of all values
//! precede the text (parquet-format, Encodings.md) and are read without decoding a value.
//!
//! Without it: a thousand equal texts of 1 MB, in a file of 21 kB, take 954 MB.

use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::thrift::{varint, zigzag};

/// Pages of more values are not measured: a page may claim any number of them.
const MAX_VALUES: usize = 1 << 22;

/// The levels that a column's values have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels {
    pub(crate) has_definitions: bool,
    pub(crate) has_repetitions: bool,
}

/// Bytes that any `rows` consecutive rows of a prefix-coded page decode to at most; `None` if the page is malformed
/// or has an encoding of levels that is not read here.
pub(crate) fn most_bytes(page: &Page, levels: Levels, rows: usize) -> Option<usize> {
    let count = page.num_values() as usize;
    // A row has any number of repeated values.
    let window = if levels.has_repetitions { count } else { rows.min(count) };
    longest_window(values_of(page, levels)?, count, window)
}

fn values_of(page: &Page, levels: Levels) -> Option<&[u8]> {
    match page {
        Page::DataPage { buf, def_level_encoding, rep_level_encoding, .. } => {
            let mut values: &[u8] = buf;
            let kinds =
                [(levels.has_repetitions, rep_level_encoding), (levels.has_definitions, def_level_encoding)];
            for (_, encoding) in kinds.into_iter().filter(|(is_there, _)| *is_there) {
                let (length, rest) = values.split_first_chunk()?;
                values = rest.get(u32::from_le_bytes(*length) as usize..)?;
                if *encoding != Encoding::RLE {
                    return None;
                }
            }
            Some(values)
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..)
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// The most bytes of any `window` consecutive values.
fn longest_window(values: &[u8], most_values: usize, window: usize) -> Option<usize> {
    let prefixes = Lengths::parse(values)?;
    let suffixes = Lengths::parse(prefixes.clone().skip_all()?)?;
    let count = prefixes.left;
    if count != suffixes.left || count > most_values || count > MAX_VALUES {
        return None;
    }
    let mut entering = (prefixes.clone(), suffixes.clone());
    let mut leaving = (prefixes, suffixes);
    let length = |(prefixes, suffixes): &mut (Lengths<'_>, Lengths<'_>)| {
        let length = i64::from(prefixes.next()?) + i64::from(suffixes.next()?);
        usize::try_from(length).ok()
    };
    let (mut bytes, mut most) = (0_usize, 0);
    for position in 0..count {
        bytes = bytes.checked_add(length(&mut entering)?)?;
        if position >= window {
            bytes = bytes.checked_sub(length(&mut leaving)?)?;
        }
        most = most.max(bytes);
    }
    Some(most)
}

/// 32-bit numbers in `DELTA_BINARY_PACKED`.
#[derive(Debug, Clone)]
struct Lengths<'a> {
    rest: &'a [u8],
    /// Numbers that were not returned yet.
    left: usize,
    miniblocks: usize,
    miniblock_values: usize,
    is_first: bool,
    last: i32,
    min_delta: i32,
    /// The bit widths of the block's next miniblocks.
    widths: &'a [u8],
    /// The current miniblock, its bit width and the position of the next number in it.
    miniblock: &'a [u8],
    width: usize,
    position: usize,
}

impl<'a> Lengths<'a> {
    fn parse(mut rest: &'a [u8]) -> Option<Self> {
        let block_values = usize::try_from(varint(&mut rest)?).ok()?;
        let miniblocks = usize::try_from(varint(&mut rest)?).ok()?;
        let left = usize::try_from(varint(&mut rest)?).ok()?;
        let last = zigzag(varint(&mut rest)?) as i32;
        let miniblock_values = block_values.checked_div(miniblocks)?;
        let is_valid = miniblock_values > 0 && miniblock_values.is_multiple_of(8);
        is_valid.then_some(Self {
            rest,
            left,
            miniblocks,
            miniblock_values,
            is_first: true,
            last,
            min_delta: 0,
            widths: &[],
            miniblock: &[],
            width: 0,
            position: miniblock_values,
        })
    }

    fn next(&mut self) -> Option<i32> {
        self.left = self.left.checked_sub(1)?;
        if std::mem::take(&mut self.is_first) {
            return Some(self.last);
        }
        if self.position == self.miniblock_values {
            self.begin_miniblock()?;
        }
        let bit = self.position * self.width;
        let bytes = self.miniblock.get(bit / 8..).unwrap_or_default();
        let mut word = [0; 8];
        let length = bytes.len().min(word.len());
        word[..length].copy_from_slice(&bytes[..length]);
        let delta = u64::from_le_bytes(word) >> (bit % 8) & ((1 << self.width) - 1);
        self.position += 1;
        self.last = self.last.wrapping_add(self.min_delta).wrapping_add(delta as i32);
        Some(self.last)
    }

    /// Returns the bytes after all numbers.
    fn skip_all(mut self) -> Option<&'a [u8]> {
        let mut left = self.left.saturating_sub(1);
        while left > 0 {
            self.begin_miniblock()?;
            left = left.saturating_sub(self.miniblock_values);
        }
        Some(self.rest)
    }

    fn begin_miniblock(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.min_delta = zigzag(varint(&mut self.rest)?) as i32;
            (self.widths, self.rest) = self.rest.split_at_checked(self.miniblocks)?;
        }
        let (width, widths) = self.widths.split_first()?;
        (self.width, self.widths) = (usize::from(*width), widths);
        if self.width > 32 {
            return None;
        }
        let bytes = self.miniblock_values.checked_mul(self.width)? / 8;
        // Some writers leave out the padding of the last one.
        (self.miniblock, self.rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.position = 0;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;

    use super::*;

    /// The prefix-coded pages of a column of optional texts.
    fn pages(texts: &[Option<String>], version: WriterVersion) -> Vec<Page> {
        let schema = Arc::new(parse_message_type("message m { optional binary text; }").unwrap());
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_data_page_size_limit(2000)
            .set_write_batch_size(10)
            .build();
        let mut file = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(properties)).unwrap();
        let mut row_group = writer.next_row_group().unwrap();
        let mut column = row_group.next_column().unwrap().unwrap();
        let values: Vec<_> = texts.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
        let levels: Vec<_> = texts.iter().map(|text| i16::from(text.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        row_group.close().unwrap();
        writer.close().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
        let row_group = reader.get_row_group(0).unwrap();
        row_group.get_column_page_reader(0).unwrap().map(Result::unwrap).collect()
    }

    const LEVELS: Levels = Levels { has_definitions: true, has_repetitions: false };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_largest_window_of_each_page_is_found_from_its_lengths(
            texts in proptest::collection::vec(
                proptest::option::weighted(0.8, ("[ab]{0,3}", 0_usize..300).prop_map(|(tail, length)| "x".repeat(length) + &tail)),
                1..700,
            ),
            rows in 1_usize..50,
            is_second in proptest::bool::ANY,
        ) {
            let version = if is_second { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
            let mut left = &texts[..];
            for page in pages(&texts, version) {
                let (own, behind) = left.split_at(page.num_values() as usize);
                left = behind;
                let lengths: Vec<_> = own.iter().flatten().map(String::len).collect();
                let window = rows.min(own.len());
                let expected = if lengths.len() <= window {
                    lengths.iter().sum()
                } else {
                    lengths.windows(window).map(|window| window.iter().sum()).max().unwrap_or(0)
                };
                prop_assert_eq!(most_bytes(&page, LEVELS, rows), Some(expected));
            }
            prop_assert!(left.is_empty());
        }

        #[test]
        fn damaged_lengths_are_refused_or_measured_but_do_not_panic(
            bytes in proptest::collection::vec(0_u8..=255, 0..200),
            rows in 1_usize..50,
        ) {
            let _ = longest_window(&bytes, 1 << 30, rows);
        }
    }
}
