//! Ranges of versions of a table, whose changes a request reads.

use std::sync::Arc;
use std::time::Duration;

use super::{Table, find_kept, keep};
use crate::Result;
use crate::changes::{ChangeKind, Changes};
use crate::lock::lock;
use crate::snapshot::{Snapshot, TimeTravel, list_again};
use crate::stop::Stop;

/// The version whose metadata precedes the changes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// The first version of the range.
    Start,
    /// The latest version of the table.
    Latest,
    /// A version that was the latest one at an earlier page.
    Version(i64),
}

/// The range of versions and the options of a request for changes.
#[derive(Debug, Clone, Copy)]
pub struct ChangesRequest {
    /// The kind of changes.
    pub kind: ChangeKind,
    /// The first version.
    pub start: i64,
    /// The last version; the latest one if `None` or if it is greater than the latest.
    pub end: Option<i64>,
    /// The version whose metadata heads the answer.
    pub heading: Heading,
    /// Maximum age of the refresh that finds the latest version.
    pub max_staleness: Duration,
}

impl Table {
    /// Returns a range of versions whose requirements for clients are known. Ends with an error at `stop`.
    ///
    /// [`Heading::Latest`] requires a readable latest version: one with an unsupported feature is an error, also for
    /// a range of earlier versions without the feature.
    pub fn changes(&self, request: ChangesRequest, stop: &Stop) -> Result<Arc<Changes>> {
        let ChangesRequest { kind, start, end, heading, max_staleness } = request;
        let (end, heading) = match heading {
            Heading::Start => {
                self.refresh_if_stale()?;
                (end, start)
            }
            // A later page continues the heading of the first one.
            Heading::Version(version) => (end, version),
            Heading::Latest => {
                let latest = self.latest_covering(start.max(end.unwrap_or(start)), max_staleness)?.max(start);
                (Some(end.map_or(latest, |end| end.min(latest))), latest)
            }
        };
        let surveyed = |end: i64| {
            let is_wanted = |range: &Changes| {
                range.kind() == kind
                    && range.starting_version() == start
                    && range.ending_version() == end
                    && range.heading_version() == heading
                    && !range.is_lost()
            };
            find_kept(&self.ranges, is_wanted, Changes::parts)
        };
        if let Some(known) = end.and_then(surveyed) {
            return Ok(known);
        }
        let read = |known: Option<&Arc<Snapshot>>| {
            let latest = lock(&self.latest).clone();
            let opened = Changes::open(&self.storage, &self.root, kind, start, end, known);
            let mut changes = self.if_listed(opened)?;
            let last = changes.ending_version();
            if let Some(latest) = latest.filter(|_| end.is_none_or(|end| last < end)) {
                latest.check_listed(self, last)?;
            }
            // An open end, or one after the latest version, is known only here.
            if let Some(known) = surveyed(last) {
                return Ok(known);
            }
            changes.survey(stop)?;
            if heading != start {
                changes.head_by(self.snapshot_at(TimeTravel::Version(heading))?);
            }
            Ok(Arc::new(changes))
        };
        let head = self.snapshot_at(TimeTravel::Version(start))?;
        let changes = list_again(read(Some(&head)), || read(None))?;
        keep(&self.ranges, &changes, Changes::parts);
        Ok(changes)
    }
}
