//! A file that is read in ranges, as Parquet requires.
//!
//! Threads share a local file by positional reads. A remote file is read in windows with the next window prefetched
//! ([`super::window`]), so decoding a row group never holds all of its bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::local::OpenFile;
use super::remote::Remote;
use super::window::{WINDOW_BYTES, Windows};
use super::{LogFileEntry, local, replaced};
use crate::error::{Error, Result};
use crate::log_path;

/// An open file. Cheap to clone and shared by threads.
#[derive(Debug, Clone)]
pub struct StoredFile {
    source: Source,
    size: u64,
    name: Arc<str>,
    /// Whether to request just the ranges that are read from a remote file.
    is_apart: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Local(Arc<OpenFile>),
    Remote(Arc<Windows>),
}

impl StoredFile {
    pub(super) fn local(path: &str, listed: Option<&LogFileEntry>) -> Result<Self> {
        let file = local::open(path, listed)?;
        let size = file.size;
        let source = Source::Local(Arc::new(file));
        Ok(Self { source, size, name: log_path::file_name(path).into(), is_apart: false })
    }

    /// The listed file, or one of which a log states the size.
    pub(super) fn remote(remote: &Arc<Remote>, path: &str, size: u64, listed: Option<&LogFileEntry>) -> Self {
        let source = Source::Remote(Arc::new(Windows::of(remote, path, size, listed)));
        Self { source, size, name: log_path::file_name(path).into(), is_apart: false }
    }

    /// Requests just the ranges that are read: for readers of few columns, whose windows would hold the others too. A file
    /// of one window is read at once: its requests cost more than its bytes.
    #[must_use]
    pub fn read_apart(self) -> Self {
        Self { is_apart: self.size > WINDOW_BYTES, ..self }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads `length` bytes from `start` on. A range past the end means that the file is truncated or its offsets
    /// are wrong.
    pub fn read_range(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(Error::corrupt(&*self.name, "it refers to bytes behind its own end"));
        }
        match &self.source {
            Source::Local(file) => {
                let failed = |error: std::io::Error| local::store_error(&self.name, &error);
                let mut buffer = vec![0; length];
                let read = local::read_exact_at(&file.file, &mut buffer, start);
                // A writer that does not know of Delta may have written over the file.
                if !file.is_unchanged().map_err(failed)? {
                    return Err(replaced(&self.name));
                }
                read.map_err(failed)?;
                Ok(buffer.into())
            }
            Source::Remote(windows) if self.is_apart => windows.read_apart(start, length),
            Source::Remote(windows) => windows.read(start, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(content: &[u8]) -> (tempfile::TempDir, StoredFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        std::fs::write(&path, content).unwrap();
        let file = StoredFile::local(path.to_str().unwrap(), None).unwrap();
        (directory, file)
    }

    #[test]
    fn pieces_equal_the_file() {
        let content: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let (_directory, file) = stored(&content);
        assert_eq!(file.size(), content.len() as u64);
        for (start, length) in [(100, 50), (5, content.len() - 5), (0, content.len())] {
            assert_eq!(file.read_range(start as u64, length).unwrap(), content[start..start + length]);
        }
    }

    #[test]
    fn a_range_behind_the_end_is_a_corrupt_file_and_reserves_no_memory() {
        let (_directory, file) = stored(b"short");
        for (start, length) in [(0, usize::MAX), (u64::MAX, 2), (4, 2), (6, 0)] {
            assert!(matches!(file.read_range(start, length), Err(Error::CorruptLog { .. })));
        }
        assert_eq!(file.read_range(5, 0).unwrap(), Bytes::new());
    }
}
