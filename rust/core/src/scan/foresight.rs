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
pub struct Foreseen {
    /// Files of the answer.
    pub files: u64,
    /// What will have become of the others.
    pub outcome: Outcome,
}

impl Scan {
    /// Looks ahead, before the first file: to the end if that is reached `until` then, and nothing has to be read.
    pub fn foresee(&mut self, until: Instant) -> Result<Option<Foreseen>> {
        if self.options.reads_all() {
            let all = self.snapshot.known_totals().map(|totals| totals.files);
            return Ok(all.map(|files| Foreseen {
                files,
                outcome: Outcome { considered: files, ..Outcome::default() },
            }));
        }
        let foreseen = if self.is_in_memory()? { self.look_ahead(until, KEPT_FILES) } else { Ok(None) };
        foreseen.map_err(|error| self.explained(error))
    }

    fn is_in_memory(&self) -> Result<bool> {
        let is_hot = || self.hot.as_ref().is_some_and(|(cache, key)| cache.get(key).is_some());
        Ok(self.snapshot.checkpoint()?.is_none() || is_hot())
    }

    pub(super) fn look_ahead(&mut self, until: Instant, most_kept: u64) -> Result<Option<Foreseen>> {
        let mut scan = Self::new(Arc::clone(&self.snapshot), self.hot.clone(), self.options.clone())?;
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
        let foreseen = is_whole.then(|| Foreseen { files, outcome: scan.outcome() });
        if files <= most_kept {
            scan.ahead = found;
            *self = scan;
        }
        Ok(foreseen)
    }
}
