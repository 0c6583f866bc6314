//! Counts the pages of one row group while its batches are decoded.
//!
//! Strings are views into decompressed pages, so a batch holds every page that it touches. The sizes of pages are known
//! only after reading: the footer has the mean, and a few files with huge statistics may be among many with small
//! ones. A batch that exceeds its share fails, and is read again with fewer rows.
//!
//! What is held beyond `USUAL_BYTES` is admitted to the memory of all logs, as many readers may have such pages at once.
//!
//! Without it: one row with three texts of 60 MB, in a file of 17 kB, takes 180 MB, and a batch takes all pages of its
//! rows. And 20 tables with a checkpoint of 5 kB, in which a text of 50 MB is packed, take 3 GB.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::prefix_coded::{self, Levels};
use crate::lock::lock;
use crate::log_memory::{self, Admitted};

/// The most that the current pages of all columns of a row group may have together, beside what its statistics may.
/// Writers close a page at 1 MiB or 20,000 rows, but check only every 100 rows: a table of 5,000 columns has statistics of
/// 400 kB a file, and pages of 40 MB.
pub(crate) const MAX_HELD_BYTES: usize = 56 << 20;

/// What each column of typed statistics may have beyond that: a dictionary and a page, which writers close at 1 MiB. A
/// table has any number of them, and the bounds of 32 columns fill 64 dictionaries in a checkpoint of 150,000 files.
const TYPED_COLUMN_BYTES: usize = 9 << 18;
/// How many times their bytes in the file all typed columns may have, so that a small file takes little.
const TYPED_RATIO: u64 = 8;

/// What a page of texts of statistics may have beyond that. Old writers, such as deltalake 0.20 for Python, close a page
/// only after 1,024 texts, each with bounds of any length: 600 columns make pages of 65 MB.
const TEXT_BYTES: usize = 256 << 20;
/// How many times their bytes in the file the texts may have.
const TEXT_RATIO: u64 = 2;

/// The columns of statistics that are read from a row group.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatsColumns {
    pub(crate) typed: usize,
    /// The bytes of the typed columns in the file.
    pub(crate) typed_stored: u64,
    /// The bytes of the texts in the file.
    pub(crate) text_stored: u64,
}

impl StatsColumns {
    /// What the pages may have beyond [`MAX_HELD_BYTES`].
    fn more_bytes(self) -> usize {
        let times = |stored: u64, ratio| usize::try_from(stored.saturating_mul(ratio)).unwrap_or(usize::MAX);
        let typed = self.typed.saturating_mul(TYPED_COLUMN_BYTES).min(times(self.typed_stored, TYPED_RATIO));
        typed.saturating_add(TEXT_BYTES.min(times(self.text_stored, TEXT_RATIO)))
    }
}

/// Pages of a row group that are part of the memory of a stream.
const USUAL_BYTES: usize = 4 << 20;

/// The byte counts that all columns of an open row group share.
#[derive(Debug, Default)]
pub(crate) struct PageMeter {
    /// The number of the current batch, from one.
    batch: AtomicUsize,
    /// The pages of the current batch, without the first one of each column.
    batch_bytes: AtomicUsize,
    /// The current page of each column, and the dictionaries.
    held_bytes: AtomicUsize,
    has_exceeded: AtomicBool,
    /// What the columns may hold beyond [`MAX_HELD_BYTES`].
    more_bytes: usize,
    /// Memory for the most that was held, until the reader ends.
    admitted: Mutex<Option<Admitted>>,
}

impl PageMeter {
    /// Creates the meter of a row group.
    pub(crate) fn of(stats: StatsColumns) -> Self {
        Self { more_bytes: stats.more_bytes(), ..Self::default() }
    }

    /// Starts the count of the next batch.
    pub(crate) fn next_batch(&self) {
        self.batch.fetch_add(1, Ordering::Relaxed);
        self.batch_bytes.store(0, Ordering::Relaxed);
    }

    /// Returns whether the current batch failed because of its size.
    pub(crate) fn has_exceeded(&self) -> bool {
        self.has_exceeded.load(Ordering::Relaxed)
    }

    /// Replaces the bytes of a page by the bytes of the next page, before taking memory for it.
    fn replace(&self, bytes: &AtomicUsize, next: usize) -> std::io::Result<()> {
        let before = bytes.swap(next, Ordering::Relaxed);
        self.held_bytes.fetch_sub(before, Ordering::Relaxed);
        let held = self.held_bytes.fetch_add(next, Ordering::Relaxed).saturating_add(next);
        if held > MAX_HELD_BYTES.saturating_add(self.more_bytes) {
            return Err(std::io::Error::other("the pages of a row are too large"));
        }
        if held <= USUAL_BYTES { Ok(()) } else { self.admit(held as u64).map_err(std::io::Error::other) }
    }

    /// With the bytes of a page before it is decompressed, which are as many at most.
    fn admit(&self, held: u64) -> crate::Result<()> {
        let mut admitted = lock(&self.admitted);
        match &mut *admitted {
            Some(admitted) => admitted.grow((2 * held).saturating_sub(admitted.bytes()))?,
            none => *none = Some(log_memory::admit_decoded(2 * held)?),
        }
        Ok(())
    }

    /// Returns the bytes that the reader of the row group holds between two batches.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

/// The pages of one column chunk, by the sizes in their headers.
#[derive(Debug)]
pub(crate) struct ColumnMeter {
    meter: Arc<PageMeter>,
    page_bytes: AtomicUsize,
    dictionary_bytes: AtomicUsize,
}

impl ColumnMeter {
    pub(crate) fn new(meter: Arc<PageMeter>) -> Self {
        Self { meter, page_bytes: AtomicUsize::default(), dictionary_bytes: AtomicUsize::default() }
    }

    /// Counts the next page. Fails if all pages together are too large, or memory is short.
    pub(crate) fn begin(&self, bytes: usize, is_dictionary: bool) -> std::io::Result<()> {
        let counted = if is_dictionary { &self.dictionary_bytes } else { &self.page_bytes };
        self.meter.replace(counted, bytes)
    }
}

impl Drop for ColumnMeter {
    fn drop(&mut self) {
        let bytes = *self.page_bytes.get_mut() + *self.dictionary_bytes.get_mut();
        self.meter.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The pages of one column chunk.
pub(crate) struct MeteredPages<P> {
    inner: P,
    meter: Arc<PageMeter>,
    levels: Levels,
    /// Pages that a batch may begin; `None` for batches of one row, which cannot be made smaller.
    limit: Option<BatchLimit>,
    /// The batch that began a page of this column last.
    batch: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl<P> MeteredPages<P> {
    pub(crate) fn new(inner: P, meter: Arc<PageMeter>, levels: Levels, limit: Option<BatchLimit>) -> Self {
        Self { inner, meter, levels, limit, batch: 0 }
    }

    fn count(&mut self, page: &Page) -> Result<()> {
        if matches!(page, Page::DictionaryPage { .. }) {
            return Ok(());
        }
        let bytes = page.buffer().len();
        let batch = self.meter.batch.load(Ordering::Relaxed);
        let is_first = std::mem::replace(&mut self.batch, batch) != batch;
        let Some(limit) = self.limit else { return Ok(()) };
        let added = match page.encoding() {
            // Each value may repeat all that is in the page, and is copied.
            Encoding::DELTA_BYTE_ARRAY => prefix_coded::most_bytes(page, self.levels, limit.rows)
                .unwrap_or_else(|| bytes.saturating_mul(limit.rows.min(page.num_values() as usize))),
            _ if is_first => 0,
            _ => bytes,
        };
        let before = self.meter.batch_bytes.fetch_add(added, Ordering::Relaxed);
        if before.saturating_add(added) <= limit.bytes {
            return Ok(());
        }
        self.meter.has_exceeded.store(true, Ordering::Relaxed);
        Err(ParquetError::General("a batch holds too many pages".to_owned()))
    }
}

impl<P: PageReader> PageReader for MeteredPages<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.count(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.inner.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        let page = self.inner.take_deferred_dictionary()?;
        page.as_ref().map_or(Ok(()), |page| self.count(page))?;
        Ok(page)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

impl<P: PageReader> Iterator for MeteredPages<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
