//! The mapped file as words.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

/// A file that is mapped for reading and writing, shared with every process that maps it.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapRaw,
    words: usize,
}

impl Memory {
    pub(crate) fn map(file: &File, words: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(words * 8).map_raw(file)?, words })
    }

    #[allow(unsafe_code, clippy::cast_ptr_alignment)] // a map starts at a page
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the map is at least this long for as long as `self` lives, starts at a page, and is only ever used
        // as atomic words, by every process. The file has no name and its size never changes: its maker sets the size
        // before it hands the descriptor on.
        unsafe {
            std::slice::from_raw_parts(self.map.as_mut_ptr().cast_const().cast::<AtomicU64>(), self.words)
        }
    }
}
