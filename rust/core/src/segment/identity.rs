//! What fixes the order of a version's files, as a short text for page cursors.

use std::fmt;
use std::str::FromStr;

use super::{CheckpointFiles, CheckpointKind, LogSegment};
use crate::error::Error;

/// A version, the checkpoint and the compaction files that it was rebuilt from.
///
/// Commits need no mention: they are all that the others leave over, and they never change. As text:
/// `12`, `12@10c4096`, `12@10u80a083e8-7026-4e79-81be-64bd76c43a11`, `12@5m2.8192+6-9`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIdentity {
    version: i64,
    checkpoint: Option<(i64, String)>,
    compactions: Vec<(i64, i64)>,
}

impl LogIdentity {
    pub(super) fn of(segment: &LogSegment) -> Self {
        let compactions = segment.commits.iter().filter(|commit| commit.is_compaction());
        Self {
            version: segment.version,
            checkpoint: segment.checkpoint.as_ref().map(|checkpoint| (checkpoint.version, mark(checkpoint))),
            compactions: compactions.map(|compaction| (compaction.start, compaction.end)).collect(),
        }
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The checkpoint's version, if there is a checkpoint.
    #[must_use]
    pub fn checkpoint_version(&self) -> Option<i64> {
        self.checkpoint.as_ref().map(|(version, _)| *version)
    }

    /// Names the checkpoint among those of its table.
    #[must_use]
    pub fn checkpoint_name(&self) -> Option<String> {
        self.checkpoint.as_ref().map(|(version, mark)| format!("{version}{mark}"))
    }

    pub(super) fn is_checkpoint(&self, checkpoint: &CheckpointFiles) -> bool {
        self.checkpoint.as_ref().is_some_and(|(_, wanted)| *wanted == mark(checkpoint))
    }

    pub(super) fn has_compaction(&self, start: i64, end: i64) -> bool {
        self.compactions.contains(&(start, end))
    }
}

/// Names with a UUID never come again. The others may be written anew by a racing writer, with their rows in
/// another order: their size tells most of these cases.
fn mark(checkpoint: &CheckpointFiles) -> String {
    let bytes: u64 = checkpoint.files.iter().map(|file| file.size).sum();
    let uuid = || checkpoint.files.first().and_then(|file| file.name.split('.').nth(2)).unwrap_or_default();
    match checkpoint.kind {
        CheckpointKind::Classic => format!("c{bytes}"),
        CheckpointKind::MultiPart => format!("m{}.{bytes}", checkpoint.files.len()),
        CheckpointKind::UuidParquet => format!("u{}", uuid()),
        CheckpointKind::UuidJson => format!("j{}", uuid()),
    }
}

impl fmt::Display for LogIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.version)?;
        if let Some((version, mark)) = &self.checkpoint {
            write!(formatter, "@{version}{mark}")?;
        }
        self.compactions.iter().try_for_each(|(start, end)| write!(formatter, "+{start}-{end}"))
    }
}

impl FromStr for LogIdentity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or(Error::InvalidCursor)
    }
}

fn parse(text: &str) -> Option<LogIdentity> {
    let mut pieces = text.split('+');
    let head = pieces.next()?;
    let (version, checkpoint) = match head.split_once('@') {
        None => (head, None),
        Some((version, checkpoint)) => {
            let digits = checkpoint.find(|c: char| !c.is_ascii_digit())?;
            let (number, mark) = checkpoint.split_at(digits);
            (version, Some((number.parse().ok()?, mark.to_owned())))
        }
    };
    let compactions = pieces.map(|piece| {
        let (start, end) = piece.split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()?))
    });
    let identity = LogIdentity {
        version: version.parse().ok()?,
        checkpoint,
        compactions: compactions.collect::<Option<_>>()?,
    };
    (identity.version >= 0 && identity.to_string() == text).then_some(identity)
}
