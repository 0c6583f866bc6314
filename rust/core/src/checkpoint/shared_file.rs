//! An open part for all its readers.

use std::sync::Mutex;

use super::parquet::file::ParquetFile;
use crate::{Result, pool};

/// The file of a part, which its first reader opens and all of them share with its footer.
#[derive(Default)]
pub(super) struct SharedFile(Mutex<Option<ParquetFile>>);

impl SharedFile {
    /// Returns the file, and calls `open` if no reader has opened it.
    pub(super) fn get(&self, open: impl FnOnce() -> Result<ParquetFile>) -> Result<ParquetFile> {
        // The first reader may wait for storage.
        let mut opened = pool::lock_in_place(&self.0);
        if let Some(file) = &*opened {
            return Ok(file.clone());
        }
        let file = open()?;
        *opened = Some(file.clone());
        Ok(file)
    }
}
