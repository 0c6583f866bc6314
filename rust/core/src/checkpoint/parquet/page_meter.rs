//! Counts the pages of one row group while its batches are decoded.
//!
//! Strings are views into decompressed pages, so a batch holds every page that it touches. The sizes of pages are known
//! only after reading: the footer has the mean, and a few files with huge statistics may be among many with small
//! ones. A batch that exceeds its share fails, and is read again with fewer rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::prefix_coded::{self, Levels};

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
}

impl PageMeter {
    /// Starts the count of the next batch.
    pub(crate) fn next_batch(&self) {
        self.batch.fetch_add(1, Ordering::Relaxed);
        self.batch_bytes.store(0, Ordering::Relaxed);
    }

    /// Returns whether the current batch failed because of its size.
    pub(crate) fn has_exceeded(&self) -> bool {
        self.has_exceeded.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the reader of the row group holds between two batches.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

/// The pages of one column chunk.
pub(crate) struct MeteredPages<P> {
    inner: P,
    meter: Arc<PageMeter>,
    levels: Levels,
    /// Pages that a batch may begin; `None` for batches of one row, which cannot be made smaller.
    limit: Option<BatchLimit>,
    page_bytes: usize,
    dictionary_bytes: usize,
    /// The batch that began a page of this column last.
    batch: usize,
}

/// The limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl<P> MeteredPages<P> {
    pub(crate) fn new(inner: P, meter: Arc<PageMeter>, levels: Levels, limit: Option<BatchLimit>) -> Self {
        Self { inner, meter, levels, limit, page_bytes: 0, dictionary_bytes: 0, batch: 0 }
    }

    fn count(&mut self, page: &Page) -> Result<()> {
        let held = &self.meter.held_bytes;
        let bytes = page.buffer().len();
        if matches!(page, Page::DictionaryPage { .. }) {
            held.fetch_add(bytes, Ordering::Relaxed);
            self.dictionary_bytes += bytes;
            return Ok(());
        }
        held.fetch_sub(std::mem::replace(&mut self.page_bytes, bytes), Ordering::Relaxed);
        held.fetch_add(bytes, Ordering::Relaxed);
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

impl<P> Drop for MeteredPages<P> {
    fn drop(&mut self) {
        self.meter.held_bytes.fetch_sub(self.page_bytes + self.dictionary_bytes, Ordering::Relaxed);
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
