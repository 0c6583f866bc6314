//! The position of a file in the fixed order of a snapshot, as page tokens contain it.

use crate::actions::{SourceId, Totals};
use crate::checkpoint;
use crate::snapshot::CHECKPOINT_SOURCE;
use crate::{Error, Result};

/// The position of a file in the fixed order of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub(super) source: SourceId,
    pub(super) row: u32,
    /// Remaining rows of `limit_hint` after this file.
    pub(super) limit_left: Option<u64>,
    /// The files up to this one, if all pages together are the whole table.
    pub(super) passed: Option<Totals>,
}

impl Cursor {
    /// Formats the cursor for a page token.
    #[must_use]
    pub fn to_text(self) -> String {
        let limit = self.limit_left.map_or_else(String::new, |left| format!(".{left}"));
        let passed = self
            .passed
            .map_or_else(String::new, |Totals { files, size_bytes }| format!("+{files}.{size_bytes}"));
        format!("{}.{}{limit}{passed}", self.source.0, self.row)
    }

    /// Parses the result of [`Self::to_text`].
    pub fn parse(text: &str) -> Result<Self> {
        let (position, passed) = match text.split_once('+') {
            Some((position, passed)) => (position, Some(passed)),
            None => (text, None),
        };
        let mut numbers = position.split('.');
        let cursor = (|| {
            let totals = |text: &str| {
                let (files, size_bytes) = text.split_once('.')?;
                Some(Totals { files: files.parse().ok()?, size_bytes: size_bytes.parse().ok()? })
            };
            let passed = match passed {
                Some(passed) => Some(totals(passed)?),
                None => None,
            };
            let source = SourceId(numbers.next()?.parse().ok()?);
            let row = numbers.next()?.parse().ok()?;
            let limit_left = numbers.next().map(str::parse).transpose().ok()?;
            numbers.next().is_none().then_some(Self { source, row, limit_left, passed })
        })();
        cursor.ok_or(Error::InvalidCursor)
    }

    pub(super) fn is_before(self, source: SourceId, row: u32) -> bool {
        (self.source, self.row) < (source, row)
    }
}

pub(super) fn start_in(cursor: Cursor) -> checkpoint::Position {
    match cursor.source.0.checked_sub(CHECKPOINT_SOURCE.0) {
        Some(part) => checkpoint::Position { part, row: cursor.row.saturating_add(1) },
        // The previous page ended among the commits.
        None => checkpoint::Position::default(),
    }
}
