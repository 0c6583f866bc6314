//! The position of a file in the fixed order of a snapshot, as page tokens contain it.

use crate::actions::SourceId;
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
}

impl Cursor {
    /// Formats the cursor for a page token.
    #[must_use]
    pub fn to_text(self) -> String {
        match self.limit_left {
            Some(left) => format!("{}.{}.{left}", self.source.0, self.row),
            None => format!("{}.{}", self.source.0, self.row),
        }
    }

    /// Parses the result of [`Self::to_text`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut numbers = text.split('.');
        let cursor = (|| {
            let source = SourceId(numbers.next()?.parse().ok()?);
            let row = numbers.next()?.parse().ok()?;
            let limit_left = numbers.next().map(str::parse).transpose().ok()?;
            numbers.next().is_none().then_some(Self { source, row, limit_left })
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
