//! The bytes of one column chunk, read ahead in windows and guarded.
//!
//! The Parquet reader asks for a page's header and then for its body; here both come from one window of the
//! chunk, so a page costs less than one read of the store. Before a body is decompressed its header's word on
//! the size is checked against a ceiling: a page is the unit of memory of everything above.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::Error;

/// What a page may decompress to. Writers close a page at 1 MiB or 20,000 rows, but look only every 100 rows:
/// a wide table's statistics of 1 MiB a file make honest pages of 100 MiB.
pub(super) const MAX_PAGE_BYTES: usize = 256 << 20;
/// What is read at once where pages are smaller: one or two pages of every common writer.
const WINDOW_BYTES: usize = 1 << 20;
/// A header with the page's minimum and maximum in it is longer than the usual 20 to 100 bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Where the store's own error is kept while the Parquet reader turns it into a string.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(Arc<Mutex<Option<Error>>>);

impl Faults {
    pub(super) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: &ParquetError) {
        if let Some(error) = store_error(error) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

/// The crate's error inside a Parquet error, if reading and not the format was at fault.
pub(super) fn store_error(error: &ParquetError) -> Option<Error> {
    match error {
        ParquetError::External(source) => match source.downcast_ref::<Error>() {
            Some(error) => Some(error.clone()),
            None => source
                .downcast_ref::<std::io::Error>()
                .and_then(|error| error.get_ref()?.downcast_ref::<Error>().cloned()),
        },
        _ => None,
    }
}

/// One column chunk of `R`.
pub(super) struct ColumnBytes<R> {
    source: Arc<R>,
    faults: Faults,
    chunk: Range<u64>,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl<R: ChunkReader> ColumnBytes<R> {
    /// `chunk`: the byte range that the footer gives for the column chunk.
    pub(super) fn new(source: Arc<R>, faults: Faults, chunk: Range<u64>) -> Self {
        let end = chunk.end.min(source.len());
        Self { source, faults, chunk: chunk.start..end, window: Mutex::default() }
    }

    /// At least `least` bytes from `start` on, more if the window has them.
    fn ahead(&self, start: u64, least: usize) -> Result<Bytes, ParquetError> {
        let left = self.chunk.end.saturating_sub(start);
        if start < self.chunk.start || least as u64 > left {
            return Err(ParquetError::EOF("the column chunk ends inside of a page".to_owned()));
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = start.checked_sub(window.start).map(|offset| offset as usize);
        if let Some(offset) = offset.filter(|offset| offset.saturating_add(least) <= window.bytes.len()) {
            return Ok(window.bytes.slice(offset..));
        }
        let length = (WINDOW_BYTES as u64).min(left).max(least as u64) as usize;
        let bytes = self.source.get_bytes(start, length).inspect_err(|error| self.faults.note(error))?;
        *window = Window { start, bytes: bytes.clone() };
        Ok(bytes)
    }
}

impl<R: ChunkReader> Length for ColumnBytes<R> {
    fn len(&self) -> u64 {
        self.source.len()
    }
}

impl<R: ChunkReader> ChunkReader for ColumnBytes<R> {
    type T = HeaderRead;

    fn get_read(&self, start: u64) -> Result<HeaderRead, ParquetError> {
        let left = self.chunk.end.saturating_sub(start).min(MAX_HEADER_BYTES as u64) as usize;
        Ok(HeaderRead { bytes: self.ahead(start, left)?, checked: false })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.ahead(start, length)?.slice(..length))
    }
}

/// A page header being read.
pub(super) struct HeaderRead {
    bytes: Bytes,
    checked: bool,
}

impl Read for HeaderRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // Not on creation: the Parquet reader also makes one where a page's body begins, and drops it unread.
        if !self.checked {
            check_page_header(&self.bytes).map_err(std::io::Error::other)?;
            self.checked = true;
        }
        let length = buffer.len().min(self.bytes.len());
        buffer[..length].copy_from_slice(&self.bytes.split_to(length));
        Ok(length)
    }
}

/// A page header begins with three required i32: its type and the sizes of the body, uncompressed and
/// compressed (parquet.thrift, `PageHeader`). Every writer's thrift puts them in this order.
fn check_page_header(header: &[u8]) -> Result<(), &'static str> {
    let mut rest = header;
    let mut field = || -> Option<i64> {
        rest = rest.strip_prefix(&[0x15])?;
        let (value, length) = zigzag_varint(rest)?;
        rest = rest.get(length..)?;
        Some(value)
    };
    let (Some(_type), Some(uncompressed), Some(compressed)) = (field(), field(), field()) else {
        return Err("a page header is malformed");
    };
    let fits = |size: i64| usize::try_from(size).is_ok_and(|size| size <= MAX_PAGE_BYTES);
    if fits(uncompressed) && fits(compressed) { Ok(()) } else { Err("a page is too large") }
}

fn zigzag_varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0_u64;
    for (position, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), position + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header_is_believed_up_to_the_ceiling_only() {
        // type 0, uncompressed 2000 = zigzag 4000, compressed 1000 = zigzag 2000
        let honest = [0x15, 0x00, 0x15, 0xa0, 0x1f, 0x15, 0xd0, 0x0f, 0x2c];
        assert_eq!(check_page_header(&honest), Ok(()));
        // uncompressed i32::MAX
        let huge = [0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0xd0, 0x0f];
        assert_eq!(check_page_header(&huge), Err("a page is too large"));
        let negative = [0x15, 0x00, 0x15, 0x01, 0x15, 0xd0, 0x0f];
        assert_eq!(check_page_header(&negative), Err("a page is too large"));
        for end in 0..8 {
            assert_eq!(check_page_header(&honest[..end]), Err("a page header is malformed"));
        }
    }

    #[test]
    fn reads_inside_of_a_window_touch_the_source_once() {
        struct Counting(Bytes, Mutex<Vec<(u64, usize)>>);
        impl Length for Counting {
            fn len(&self) -> u64 {
                self.0.len() as u64
            }
        }
        impl ChunkReader for Counting {
            type T = bytes::buf::Reader<Bytes>;
            fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
                self.0.get_read(start)
            }
            fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
                self.1.lock().unwrap().push((start, length));
                self.0.get_bytes(start, length)
            }
        }
        let data: Bytes = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        let source = Arc::new(Counting(data.clone(), Mutex::default()));
        let column = ColumnBytes::new(Arc::clone(&source), Faults::default(), 100..2_500_000);
        assert_eq!(column.get_bytes(100, 10).unwrap(), data[100..110]);
        assert_eq!(column.get_bytes(500_000, 500_000).unwrap(), data[500_000..1_000_000]);
        assert_eq!(column.get_bytes(1_048_000, 2_000_000 - 1_048_000).unwrap(), data[1_048_000..2_000_000]);
        assert!(column.get_bytes(2_499_999, 2).is_err());
        assert!(column.get_bytes(99, 1).is_err());
        assert_eq!(*source.1.lock().unwrap(), [(100, 1 << 20), (1_048_000, 1 << 20)]);
    }
}
