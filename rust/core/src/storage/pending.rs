//! Reads that run in the background.

use std::sync::mpsc::Receiver;

use bytes::Bytes;

use super::{LogFileEntry, local, log_file_path};
use crate::error::{Error, Result};
use crate::pool;

/// Pending reads of whole files.
#[derive(Debug)]
pub struct PendingReads(Reads);

#[derive(Debug)]
enum Reads {
    /// Local files are read when they are needed.
    Local {
        root: String,
        files: Vec<LogFileEntry>,
    },
    Remote {
        results: Receiver<Vec<Result<Bytes>>>,
        count: usize,
    },
}

impl PendingReads {
    pub(super) fn local(root: &str, files: Vec<LogFileEntry>) -> Self {
        Self(Reads::Local { root: root.to_owned(), files })
    }

    pub(super) fn remote(results: Receiver<Vec<Result<Bytes>>>, count: usize) -> Self {
        Self(Reads::Remote { results, count })
    }

    /// Waits for all reads and returns them in the order of the request.
    #[must_use]
    pub fn wait(self) -> Vec<Result<Bytes>> {
        match self.0 {
            Reads::Local { root, files } => {
                let read = |file: &LogFileEntry| local::read(&log_file_path(&root, &file.name), Some(file));
                files.iter().map(read).collect()
            }
            Reads::Remote { results, count } => {
                pool::block_in_place(|| results.recv()).unwrap_or_else(|_| {
                    let lost = Error::StorageUnavailable { detail: "a batch of reads was dropped".into() };
                    vec![Err(lost); count]
                })
            }
        }
    }
}
