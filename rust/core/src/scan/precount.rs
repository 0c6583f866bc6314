//! The counts of a scan before its first file.
//!
//! The header of an answer states how many files predicates pruned and is sent before the answer exists. If the files
//! are in memory, the scan runs ahead within a time limit, and its results are kept for the answer. A scan that reads
//! the log has no counts before it has read it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{Outcome, Scan};
use crate::Result;

/// Selected files that are kept: 256 KiB of row indices. Selecting more of them twice costs little compared with
/// signing.
const KEPT_FILES: u64 = 65_536;

/// The final counts of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precount {
    /// Selected files.
    pub files: u64,
    /// Counts of all files.
    pub outcome: Outcome,
}

impl Scan {
    /// Counts before the first file is returned. Returns `None` if the log has to be read or the time `until` passes
    /// before the end.
    pub fn precount(&mut self, until: Instant) -> Result<Option<Precount>> {
        if self.options.reads_all() {
            let all = self.known_totals().map(|totals| totals.files);
            return Ok(all.map(|files| Precount {
                files,
                outcome: Outcome { considered: files, ..Outcome::default() },
            }));
        }
        let precount = if self.is_in_memory() { self.look_ahead(until, KEPT_FILES) } else { Ok(None) };
        precount.map_err(|error| self.explain(error))
    }

    fn is_in_memory(&self) -> bool {
        let is_cached = || self.cache.as_ref().is_some_and(|(cache, key)| cache.get(key).is_some());
        let is_selected = || self.selection_key().is_some_and(|(cache, key)| cache.has(&key));
        self.snapshot.segment().checkpoint.is_none() || is_cached() || is_selected()
    }

    pub(super) fn look_ahead(&mut self, until: Instant, most_kept: u64) -> Result<Option<Precount>> {
        let mut scan = Self::new(Arc::clone(&self.snapshot), self.cache.clone(), self.options.clone())?;
        let (mut files, mut found) = (0, VecDeque::new());
        let is_whole = loop {
            if Instant::now() >= until {
                break false;
            }
            let Some(mut selected) = scan.next_batch()? else { break true };
            files += selected.rows.len() as u64;
            if files <= most_kept && !selected.rows.is_empty() {
                selected.rows.shrink_to_fit();
                found.push_back(selected);
            }
        };
        let precount = is_whole.then(|| Precount { files, outcome: scan.outcome() });
        if files <= most_kept {
            scan.ahead = found;
            *self = scan;
        }
        Ok(precount)
    }
}
