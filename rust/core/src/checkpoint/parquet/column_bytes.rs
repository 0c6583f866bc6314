//! The bytes of one column chunk, prefetched in windows and validated.
//!
//! The Parquet reader requests the header of a page and then its body. Both come from one window of the chunk, so a
//! page costs less than one read of the store. Headers and bodies that decompress to more than the limit of a page are
//! rejected ([`super::page_guard`]).

use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::page_guard::{TOO_LARGE, check_page_header, inflates_to_a_page};
use super::page_meter::ColumnMeter;
use crate::Error;
use crate::lock::lock;
use crate::storage::StoredFile;

/// The size of one read where pages are smaller: one or two pages of every common writer. Less if there are many
/// columns, but never less than a fraction of a page.
const WINDOW_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;
/// A header with the page's minimum and maximum in it is longer than the usual 20 to 100 bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Keeps the store's error, because the Parquet reader turns it into a string.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstError(Arc<Mutex<Option<Error>>>);

impl FirstError {
    pub(crate) fn take(&self) -> Option<Error> {
        lock(&self.0).take()
    }

    pub(crate) fn record_error(&self, error: &ParquetError) {
        self.record(store_error(error));
    }

    fn record(&self, error: Option<Error>) {
        if error.is_some() {
            *lock(&self.0) = error;
        }
    }
}

/// The crate's error inside a Parquet error, if reading and not the format was at fault.
pub(crate) fn store_error(error: &ParquetError) -> Option<Error> {
    match error {
        ParquetError::External(source) => match source.downcast_ref::<Error>() {
            Some(error) => Some(error.clone()),
            None => source.downcast_ref().and_then(inner_error),
        },
        _ => None,
    }
}

fn inner_error(error: &std::io::Error) -> Option<Error> {
    error.get_ref()?.downcast_ref().cloned()
}

/// A file that is read in ranges.
pub(crate) trait Ranges: Send + Sync + 'static {
    fn size(&self) -> u64;

    fn read_range(&self, start: u64, length: usize) -> crate::Result<Bytes>;
}

impl Ranges for StoredFile {
    fn size(&self) -> u64 {
        self.size()
    }

    fn read_range(&self, start: u64, length: usize) -> crate::Result<Bytes> {
        Self::read_range(self, start, length)
    }
}

pub(super) fn get_bytes(source: &dyn Ranges, start: u64, length: usize) -> Result<Bytes, ParquetError> {
    source.read_range(start, length).map_err(|error| ParquetError::External(Box::new(error)))
}

/// One column chunk of a file.
pub(crate) struct ColumnBytes {
    source: Arc<dyn Ranges>,
    chunk: Range<u64>,
    window: Mutex<Window>,
    window_bytes: usize,
    codec: Compression,
    last_page: Arc<LastPage>,
}

/// What the page header says that was read last.
struct LastPage {
    meter: ColumnMeter,
    first_error: FirstError,
    /// The number of bytes before the compressed ones.
    levels: AtomicUsize,
}

/// The last read, and the end of the one before it, in which a page or its header began.
#[derive(Default)]
struct Window {
    tail: Bytes,
    start: u64,
    bytes: Bytes,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// At least `least` bytes from `start` on.
    fn find(&self, start: u64, least: usize) -> Option<Bytes> {
        if let Some(offset) = start.checked_sub(self.start) {
            let offset = usize::try_from(offset).ok().filter(|offset| *offset <= self.bytes.len())?;
            return Some(self.bytes.slice(offset..)).filter(|bytes| bytes.len() >= least);
        }
        let of_tail = self.tail.len().checked_sub(usize::try_from(self.start - start).ok()?)?;
        let begin = &self.tail[of_tail..];
        let rest = self.bytes.get(..least.saturating_sub(begin.len()))?;
        Some([begin, rest].concat().into())
    }
}

impl ColumnBytes {
    /// `chunk`: the byte range that the footer gives for the column chunk. `window_bytes`: the size of one read.
    pub(crate) fn new(
        source: Arc<dyn Ranges>,
        first_error: FirstError,
        chunk: Range<u64>,
        codec: Compression,
        window_bytes: usize,
        meter: ColumnMeter,
    ) -> Self {
        let window_bytes = window_bytes.clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        let end = chunk.end.min(source.size());
        let chunk = chunk.start..end;
        let window = Mutex::default();
        let last_page = Arc::new(LastPage { meter, first_error, levels: AtomicUsize::default() });
        Self { source, chunk, window, window_bytes, codec, last_page }
    }

    /// At least `least` bytes from `start` on, more if the window has them. The next window has `usual` bytes.
    fn ahead(&self, start: u64, least: usize, usual: usize) -> Result<Bytes, ParquetError> {
        let left = self.chunk.end.saturating_sub(start);
        if start < self.chunk.start || least as u64 > left {
            return Err(ParquetError::EOF("the column chunk ends inside of a page".to_owned()));
        }
        let mut window = lock(&self.window);
        if let Some(found) = window.find(start, least) {
            return Ok(found);
        }
        // What the window has of a page is not read again, unless the copy would cost more.
        let had = window.end().checked_sub(start).filter(|_| least <= self.window_bytes / 2);
        let tail = had.and_then(|had| window.find(start, had as usize)).unwrap_or_default();
        let from = start + tail.len() as u64;
        let length = (usual as u64).min(self.chunk.end - from).max((least - tail.len()) as u64) as usize;
        let read = get_bytes(&*self.source, from, length);
        let bytes = read.inspect_err(|error| self.last_page.first_error.record_error(error))?;
        *window = Window { tail: Bytes::copy_from_slice(&tail), start: from, bytes };
        window.find(start, least).ok_or_else(|| ParquetError::EOF("the column chunk is cut off".to_owned()))
    }
}

impl Length for ColumnBytes {
    fn len(&self) -> u64 {
        self.source.size()
    }
}

impl ChunkReader for ColumnBytes {
    type T = HeaderRead;

    fn get_read(&self, start: u64) -> Result<HeaderRead, ParquetError> {
        let left = self.chunk.end.saturating_sub(start).min(MAX_HEADER_BYTES as u64) as usize;
        let last_page = Arc::clone(&self.last_page);
        Ok(HeaderRead { bytes: self.ahead(start, left, self.window_bytes)?, checked: false, last_page })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // Of large pages a window holds one with the next header: a window that begins with a header ends inside of the
        // body, whose first bytes would be read again.
        let is_large = length > self.window_bytes / 2;
        let usual = if is_large { length.saturating_add(MAX_HEADER_BYTES) } else { self.window_bytes };
        let body = self.ahead(start, length, usual)?.slice(..length);
        // A dictionary is sometimes read after the header of the page behind it; it has no levels.
        let levels = [0, self.last_page.levels.load(Ordering::Relaxed)];
        let fits =
            |levels: &usize| body.get(*levels..).is_none_or(|body| inflates_to_a_page(self.codec, body));
        if levels.iter().all(fits) { Ok(body) } else { Err(ParquetError::General(TOO_LARGE.to_owned())) }
    }
}

pub(crate) struct HeaderRead {
    bytes: Bytes,
    checked: bool,
    last_page: Arc<LastPage>,
}

impl Read for HeaderRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // Not on creation: the Parquet reader also makes one where a page's body begins, and drops it unread.
        if !self.checked {
            let header = check_page_header(&self.bytes).map_err(std::io::Error::other)?;
            let counted = self.last_page.meter.begin(header.bytes, header.is_dictionary);
            counted.inspect_err(|error| self.last_page.first_error.record(inner_error(error)))?;
            self.last_page.levels.store(header.level_bytes, Ordering::Relaxed);
            self.checked = true;
        }
        let length = buffer.len().min(self.bytes.len());
        buffer[..length].copy_from_slice(&self.bytes.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ranges for Bytes {
        fn size(&self) -> u64 {
            self.len() as u64
        }

        fn read_range(&self, start: u64, length: usize) -> crate::Result<Bytes> {
            Ok(self.slice(start as usize..).slice(..length))
        }
    }

    struct Counting(Bytes, Mutex<Vec<(u64, usize)>>);

    impl Ranges for Counting {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_range(&self, start: u64, length: usize) -> crate::Result<Bytes> {
            self.1.lock().unwrap().push((start, length));
            self.0.read_range(start, length)
        }
    }

    fn counted(data: &Bytes, chunk: Range<u64>) -> (ColumnBytes, Arc<Counting>) {
        let source = Arc::new(Counting(data.clone(), Mutex::default()));
        let meter = ColumnMeter::new(Arc::default());
        let (reads, codec) = (Arc::clone(&source), Compression::SNAPPY);
        (ColumnBytes::new(source, FirstError::default(), chunk, codec, 1 << 20, meter), reads)
    }

    #[test]
    fn reads_inside_of_a_window_touch_the_source_once() {
        let data: Bytes = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        let (column, source) = counted(&data, 100..2_500_000);
        assert_eq!(column.get_bytes(100, 10).unwrap(), data[100..110]);
        assert_eq!(column.get_bytes(500_000, 500_000).unwrap(), data[500_000..1_000_000]);
        assert_eq!(column.get_bytes(1_048_000, 2_000_000 - 1_048_000).unwrap(), data[1_048_000..2_000_000]);
        assert!(column.get_bytes(2_499_999, 2).is_err());
        assert!(column.get_bytes(99, 1).is_err());
        let with_next_header = 2_000_000 - 1_048_000 + MAX_HEADER_BYTES;
        assert_eq!(*source.1.lock().unwrap(), [(100, 1 << 20), (1_048_000, with_next_header)]);
    }

    #[test]
    fn pages_that_begin_in_a_window_and_end_behind_it_are_read_once() {
        let (header, body, pages) = (40, 200_000, 40_u64);
        let size = pages * (header + body);
        let data: Bytes = (0..size as u32).map(|byte| (byte / 7) as u8).collect();
        let (column, source) = counted(&data, 0..size);
        for page in 0..pages {
            let start = page * (header + body);
            let least = MAX_HEADER_BYTES.min((size - start) as usize);
            assert!(
                column.ahead(start, least, 1 << 20).unwrap().starts_with(&data[start as usize..][..least])
            );
            let (from, to) = (start + header, start + header + body);
            assert_eq!(column.get_bytes(from, body as usize).unwrap(), data[from as usize..to as usize]);
        }
        let read: usize = source.1.lock().unwrap().iter().map(|(_, length)| length).sum();
        assert_eq!(read, size as usize);
    }

    #[test]
    fn large_pages_are_read_once() {
        let (header, body, pages) = (40, 1_100_000, 5_u64);
        let size = pages * (header + body);
        let data = Bytes::from(vec![0; size as usize]);
        let (column, source) = counted(&data, 0..size);
        for page in 0..pages {
            let start = page * (header + body);
            column.get_read(start).unwrap();
            column.get_bytes(start + header, body as usize).unwrap();
        }
        let read: usize = source.1.lock().unwrap().iter().map(|(_, length)| length).sum();
        let first_header = 1 << 20;
        assert!(read <= size as usize + first_header + pages as usize * MAX_HEADER_BYTES, "{read}");
    }
}
