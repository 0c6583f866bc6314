//! The places of the pages of a column chunk, from the offset index of the file (parquet-format, PageIndex.md).
//!
//! With them a reader of some rows begins at the page of the first one. Otherwise it reads the header of each page before
//! it, and the whole page where values repeat. Writers may leave the index out, and one whose pages do not fill their column
//! chunk is not used. Where a page has other rows than the index says, the file is read without it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::column_bytes::{ColumnBytes, Ranges, get_bytes};
use super::thrift::{Thrift, varint};
use crate::lock::lock;

/// A longer index is not used: it is of hundred times as many pages as a column chunk of a million rows has.
const MAX_INDEX_BYTES: usize = 256 << 10;
/// The places that are kept with a footer, as bytes in memory.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// What a column chunk takes beside its places, each of which has six bytes of the index at least and 16 in memory.
const ENTRY_BYTES: usize = 64;

/// The data pages of a column chunk, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PagePlaces {
    pages: Vec<PagePlace>,
    rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PagePlace {
    start: u64,
    first_row: usize,
}

impl PagePlaces {
    /// Returns `None` for an index that does not fit a column chunk of these bytes and rows.
    fn parse(index: &[u8], chunk: &Range<u64>, rows: usize) -> Option<Self> {
        const PAGE_LOCATIONS: (i64, u8) = (1, Thrift::LIST);
        let (mut thrift, mut id) = (Thrift::new(index), 0);
        let kind = thrift.field(&mut id)??;
        let count = (id, kind) == PAGE_LOCATIONS;
        let count = thrift.structs().filter(|length| count && *length <= index.len() as u64)?;
        let mut pages: Vec<PagePlace> = Vec::with_capacity(count as usize);
        let mut end = chunk.start;
        for _ in 0..count {
            let (page, bytes) = PagePlace::parse(&mut thrift)?;
            // Only a dictionary is before the first page.
            let is_next = match pages.last() {
                Some(last) => page.start == end && last.first_row < page.first_row,
                None => page.start >= end && page.first_row == 0,
            };
            end = page.start.checked_add(bytes)?;
            if !is_next || bytes == 0 || !chunk.contains(&page.start) || page.first_row >= rows {
                return None;
            }
            pages.push(page);
        }
        (!pages.is_empty() && end == chunk.end).then_some(Self { pages, rows })
    }

    fn rows_of(&self, page: usize) -> Option<usize> {
        let first = self.pages.get(page)?.first_row;
        Some(self.pages.get(page + 1).map_or(self.rows, |next| next.first_row) - first)
    }
}

impl PagePlace {
    /// Reads a `PageLocation` (parquet.thrift). Returns also the bytes of the page with its header.
    fn parse(thrift: &mut Thrift<'_>) -> Option<(Self, u64)> {
        let mut id = 0;
        let mut numbers = [0; 3];
        for (number, kind) in numbers.iter_mut().zip([Thrift::I64, Thrift::I32, Thrift::I64]) {
            let expected = id + 1;
            if (thrift.field(&mut id)??, id) != (kind, expected) {
                return None;
            }
            *number = thrift.zigzag()?;
        }
        let [start, bytes, first_row] = numbers;
        let is_end = thrift.field(&mut id)?.is_none();
        let place = Self { start: start.try_into().ok()?, first_row: first_row.try_into().ok()? };
        Some((place, bytes.try_into().ok()?)).filter(|_| is_end)
    }
}

/// The places that readers of a file have looked up, by row group and leaf.
#[derive(Debug, Default)]
pub(super) struct KnownPlaces {
    known: Mutex<Known>,
    /// Whether an index of the file was wrong.
    is_wrong: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    places: HashMap<(usize, usize), Option<Arc<PagePlaces>>>,
    bytes: usize,
}

impl KnownPlaces {
    /// Reads the file without its index from here on.
    pub(super) fn leave(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    /// Returns the places of the pages of a leaf in a row group, `None` if the file does not say them.
    pub(super) fn get(
        &self,
        source: &dyn Ranges,
        (row_group, leaf): (usize, usize),
        column: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<Option<Arc<PagePlaces>>> {
        let index = column.offset_index_offset().zip(column.offset_index_length());
        let Some((start, length)) = index else { return Ok(None) };
        // Of deeper lists the levels of a page do not tell its rows.
        let is_read = column.column_descr().max_rep_level() <= 1;
        let (Ok(start), Ok(length)) = (u64::try_from(start), usize::try_from(length)) else {
            return Ok(None);
        };
        let is_inside = start.checked_add(length as u64).is_some_and(|end| end <= source.size());
        let is_wrong = self.is_wrong.load(Ordering::Relaxed);
        if is_wrong || !is_read || !is_inside || length > MAX_INDEX_BYTES {
            return Ok(None);
        }
        if let Some(known) = lock(&self.known).places.get(&(row_group, leaf)) {
            return Ok(known.clone());
        }
        let (first, bytes) = column.byte_range();
        let chunk = first..first.saturating_add(bytes);
        let places = PagePlaces::parse(&get_bytes(source, start, length)?, &chunk, rows).map(Arc::new);
        let mut known = lock(&self.known);
        let more = ENTRY_BYTES + places.as_ref().map_or(0, |places| size_of_val(&*places.pages));
        if known.bytes + more <= MAX_KEPT_BYTES {
            known.bytes += more;
            known.places.insert((row_group, leaf), places.clone());
        }
        Ok(places)
    }

    /// The memory that the places of a file may take.
    pub(super) fn most_bytes(metadata: &ParquetMetaData) -> usize {
        let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
        let indexes = columns.filter_map(|column| usize::try_from(column.offset_index_length()?).ok());
        indexes.map(|length| ENTRY_BYTES + 3 * length).fold(0, usize::saturating_add).min(MAX_KEPT_BYTES)
    }
}

/// The pages of a column chunk, of which skipped ones are not read.
pub(super) struct PlacedPages {
    bytes: Arc<ColumnBytes>,
    column: ColumnChunkMetaData,
    places: Arc<PagePlaces>,
    /// Reads the dictionary, then pages from any place on.
    reader: SerializedPageReader<ColumnBytes>,
    /// The page that `reader` reads next; `None` is the dictionary.
    position: Option<usize>,
    /// Whether the dictionary is the next page.
    has_dictionary: bool,
    /// Whether the dictionary was skipped. Pages behind a large one do not need it.
    is_deferred: bool,
    next: usize,
}

impl PlacedPages {
    pub(super) fn new(
        bytes: Arc<ColumnBytes>,
        column: &ColumnChunkMetaData,
        places: Arc<PagePlaces>,
    ) -> Result<Self> {
        let reader = SerializedPageReader::new(Arc::clone(&bytes), column, places.rows, None)?;
        let has_dictionary = places.pages.first().is_some_and(|page| page.start > column.byte_range().0);
        let position = (!has_dictionary).then_some(0);
        let (column, is_deferred) = (column.clone(), false);
        Ok(Self { bytes, column, places, reader, position, has_dictionary, is_deferred, next: 0 })
    }

    fn dictionary(reader: &mut SerializedPageReader<ColumnBytes>) -> Result<Page> {
        let page = reader.get_next_page()?;
        page.filter(|page| matches!(page, Page::DictionaryPage { .. })).ok_or_else(wrong)
    }

    /// Lets the reader continue at a page.
    fn jump(&mut self, page: PagePlace) -> Result<()> {
        let (start, length) = self.column.byte_range();
        let left = start.saturating_add(length).saturating_sub(page.start);
        let rest = self.column.clone().into_builder().set_dictionary_page_offset(None);
        let rest = rest.set_data_page_offset(page.start as i64).set_total_compressed_size(left as i64);
        self.reader =
            SerializedPageReader::new(Arc::clone(&self.bytes), &rest.build()?, self.places.rows, None)?;
        Ok(())
    }
}

impl PageReader for PlacedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if self.has_dictionary {
            self.has_dictionary = false;
            self.position = Some(0);
            return Self::dictionary(&mut self.reader).map(Some);
        }
        let Some(place) = self.places.pages.get(self.next).copied() else { return Ok(None) };
        if self.position != Some(self.next) {
            self.jump(place)?;
        }
        let page = self.reader.get_next_page()?.ok_or_else(wrong)?;
        let rows = rows_of(&page, self.column.column_descr().max_rep_level() > 0);
        if rows.is_none() || rows != self.places.rows_of(self.next) {
            return Err(wrong());
        }
        self.next += 1;
        self.position = Some(self.next);
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        if self.has_dictionary {
            return Ok(Some(PageMetadata { num_rows: None, num_levels: None, is_dict: true }));
        }
        let rows = self.places.rows_of(self.next);
        Ok(rows.map(|rows| PageMetadata { num_rows: Some(rows), num_levels: None, is_dict: false }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if self.has_dictionary {
            (self.has_dictionary, self.is_deferred) = (false, true);
        } else {
            self.next += 1;
        }
        Ok(())
    }

    fn supports_deferred_dictionary(&self) -> bool {
        true
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        if !std::mem::take(&mut self.is_deferred) {
            return Ok(None);
        }
        let bytes = Arc::clone(&self.bytes);
        let mut reader = SerializedPageReader::new(bytes, &self.column, self.places.rows, None)?;
        Self::dictionary(&mut reader).map(Some)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        Ok(true)
    }
}

impl Iterator for PlacedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn wrong() -> ParquetError {
    ParquetError::General("its offset index has other pages than the file".to_owned())
}

/// Returns the rows of a data page, whose values repeat at one level at most.
fn rows_of(page: &Page, has_repetitions: bool) -> Option<usize> {
    match page {
        Page::DataPageV2 { num_rows, .. } => Some(*num_rows as usize),
        Page::DataPage { num_values, .. } if !has_repetitions => Some(*num_values as usize),
        Page::DataPage { rep_level_encoding: Encoding::RLE, buf, num_values, .. } => {
            let (length, levels) = buf.split_first_chunk()?;
            let levels = levels.get(..u32::from_le_bytes(*length) as usize)?;
            // A page without a row index may continue the last row of the page before it.
            let begins_row = *num_values == 0 || zeros(levels, 1)? == 1;
            zeros(levels, *num_values as usize).filter(|_| begins_row)
        }
        Page::DataPage { .. } | Page::DictionaryPage { .. } => None,
    }
}

/// Counts the zeros among the first `count` numbers of one bit, in the hybrid of runs and packed bits. A row begins at a
/// repetition level of zero.
fn zeros(mut levels: &[u8], count: usize) -> Option<usize> {
    let (mut zeros, mut left) = (0, count);
    while left > 0 {
        let header = varint(&mut levels)?;
        let length = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let (level, rest) = levels.split_first()?;
            let run = length.min(left);
            zeros += if *level == 0 { run } else { 0 };
            left -= run;
            levels = rest;
            continue;
        }
        // The last group is cut to the bytes that it needs by some writers.
        let bytes = length.min(left.div_ceil(8));
        for byte in levels.get(..bytes)? {
            let bits = left.min(8);
            let ones = byte & (0xff_u8 >> (8 - bits));
            zeros += bits - ones.count_ones() as usize;
            left -= bits;
        }
        levels = levels.get(length.min(levels.len())..)?;
    }
    Some(zeros)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    /// Returns an offset index of the pages (start, bytes, first row).
    fn index(pages: &[(u8, u8, u8)]) -> Vec<u8> {
        let mut index = vec![0x19, (pages.len() as u8) << 4 | 0xc];
        for (start, bytes, first_row) in pages {
            index.extend([0x16, 2 * start, 0x15, 2 * bytes, 0x16, 2 * first_row, 0]);
        }
        index.push(0);
        index
    }

    #[test]
    fn an_index_is_used_only_if_it_fits_its_column_chunk() {
        let parse = |pages: &[(u8, u8, u8)]| PagePlaces::parse(&index(pages), &(4..40), 30);
        let places = parse(&[(10, 10, 0), (20, 19, 10), (39, 1, 29)]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|page| places.rows_of(page)), [Some(10), Some(19), Some(1), None]);
        for wrong in [
            &[][..],
            &[(3, 37, 0)],
            &[(40, 0, 0)],
            &[(10, 30, 1)],
            &[(10, 0, 0), (10, 30, 5)],
            &[(10, 30, 0), (9, 31, 5)],
            &[(10, 10, 0), (20, 20, 0)],
            &[(10, 10, 0), (20, 20, 30)],
            &[(10, 9, 0), (20, 20, 10)],
            &[(10, 10, 0), (20, 19, 10)],
            &[(10, 10, 0), (20, 21, 10)],
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        let whole = index(&[(10, 10, 0), (20, 20, 10)]);
        for end in 0..whole.len() - 1 {
            assert_eq!(PagePlaces::parse(&whole[..end], &(4..40), 30), None, "{end} bytes");
        }
        assert_eq!(PagePlaces::parse(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f], &(4..40), 30), None);
    }

    #[test]
    fn a_page_of_maps_begins_a_row_at_each_level_of_zero() {
        let page = |levels: &[u8], num_values| Page::DataPage {
            buf: Bytes::from([&(levels.len() as u32).to_le_bytes()[..], levels, &[9, 9]].concat()),
            num_values,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        assert_eq!(rows_of(&page(&[20, 0], 10), true), Some(10));
        assert_eq!(rows_of(&page(&[20, 0, 6, 1], 13), true), Some(10));
        assert_eq!(rows_of(&page(&[2, 1, 20, 0], 11), true), None, "it begins inside of a row");
        assert_eq!(rows_of(&page(&[3, 0b1010_1010], 8), true), Some(4));
        assert_eq!(rows_of(&page(&[3, 0b1111_1010], 4), true), Some(2), "padding is no level");
        assert_eq!(rows_of(&page(&[3], 8), true), None, "a level is missing");
        assert_eq!(rows_of(&page(&[], 0), true), Some(0));
        assert_eq!(rows_of(&page(&[20, 1], 10), false), Some(10));
    }

    proptest! {
        #[test]
        fn no_index_and_no_levels_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), count in 0..99_usize) {
            _ = PagePlaces::parse(&bytes, &(0..1 << 40), 1 << 20);
            if let Some(zeros) = zeros(&bytes, count) {
                prop_assert!(zeros <= count);
            }
        }
    }
}
