//! Reads that run in the background.

use std::sync::mpsc::Receiver;

use bytes::Bytes;

use super::{LogFileEntry, Storage};
use crate::error::{Error, Result};
use crate::log_memory::Admitted;
use crate::pool;

/// Pending reads of whole files.
#[derive(Debug)]
pub struct PendingReads(Reads);

#[derive(Debug)]
enum Reads {
    /// Files that are read when they are needed: local ones, and those without memory before.
    Later {
        storage: Storage,
        root: String,
        files: Vec<LogFileEntry>,
    },
    Remote {
        results: Receiver<Vec<Result<Bytes>>>,
        count: usize,
        admitted: Admitted,
    },
}

impl PendingReads {
    pub(super) fn later(storage: &Storage, root: &str, files: Vec<LogFileEntry>) -> Self {
        Self(Reads::Later { storage: storage.clone(), root: root.to_owned(), files })
    }

    pub(super) fn remote(results: Receiver<Vec<Result<Bytes>>>, count: usize, admitted: Admitted) -> Self {
        Self(Reads::Remote { results, count, admitted })
    }

    /// Waits for all reads and returns them in the order of the request.
    #[must_use]
    pub fn wait(self) -> Vec<Result<Bytes>> {
        match self.0 {
            Reads::Later { storage, root, files } => {
                storage.read_log_files(&root, &files.iter().collect::<Vec<_>>())
            }
            Reads::Remote { results, count, admitted } => {
                let contents = pool::block_in_place(|| results.recv()).unwrap_or_else(|_| {
                    let lost = Error::StorageUnavailable { detail: "a batch of reads was dropped".into() };
                    vec![Err(lost); count]
                });
                admitted.hold(contents)
            }
        }
    }
}
