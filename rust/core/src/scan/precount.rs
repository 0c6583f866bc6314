//! What will become of a version's files, told before the first of them.
//!
//! An answer's header is to say how many files predicates pruned, and leaves before the answer is made. Where the
//! files are in memory a scan is run ahead within a time; what it finds is kept, so the work is not done twice.
//! Of a scan that reads the log nothing can be told before it has read it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{Outcome, Scan};
use crate::Result;

/// Files found ahead that are kept: 256 KiB of row numbers. Finding more again is nothing beside signing them.
const KEPT_FILES: u64 = 65_536;

/// What a scan will have done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precount {
    /// Files of the answer.
    pub files: u64,
    /// What will have become of the others.
    pub outcome: Outcome,
}

impl Scan {
    /// Looks ahead, before the first file: to the end if that is reached `until` then, and nothing has to be read.
    pub fn precount(&mut self, until: Instant) -> Result<Option<Precount>> {
        if self.options.reads_all() {
            let all = self.snapshot.known_totals().map(|totals| totals.files);
            return Ok(all.map(|files| Precount {
                files,
                outcome: Outcome { considered: files, ..Outcome::default() },
            }));
        }
        let precount = if self.is_in_memory()? { self.look_ahead(until, KEPT_FILES) } else { Ok(None) };
        precount.map_err(|error| self.explain(error))
    }

    fn is_in_memory(&self) -> Result<bool> {
        let is_cached = || self.cache.as_ref().is_some_and(|(cache, key)| cache.get(key).is_some());
        Ok(self.snapshot.checkpoint()?.is_none() || is_cached())
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
