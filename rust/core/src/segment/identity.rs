//! The identity of a segment, which fixes the order of a version's files, as a short text for page tokens.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{CheckpointFiles, CheckpointKind, LogSegment};
use crate::error::Error;
use crate::hashing::hex_text;
use crate::storage::{LogFileEntry, Storage};

/// A version, with the checkpoint that it is rebuilt from.
///
/// The newest commit after the checkpoint distinguishes the version from one of a later table in the same location, and
/// from one that was written after the log was restored to an earlier version. Where a catalog ratifies commits, the
/// in-commit timestamp does: the staged and the published file have the same, and the commit after a restore of the
/// catalog has another. As text: `12~0f8a3b1c5d7e9f02`, `10@10c4096.0f8a3b1c5d7e9f02`,
/// `12@10u80a083e8-7026-4e79-81be-64bd76c43a11~0f8a3b1c5d7e9f02`, `12@5m2.8192.0f8a3b1c5d7e9f02~0f8a3b1c5d7e9f02`.
/// Identities of earlier releases lack the digest of the store's properties; they can be parsed and match no files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIdentity {
    version: i64,
    checkpoint: Option<(i64, String)>,
    /// The digest of the newest commit, if there is one after the checkpoint, or its in-commit timestamp.
    commit: Option<String>,
}

impl LogIdentity {
    pub(super) fn of(segment: &LogSegment) -> Self {
        let newest = segment.commits.first();
        Self {
            version: segment.version,
            commit: segment
                .committed_ms
                .map(|ms| ms.to_string())
                .or_else(|| newest.map(|commit| digest_of([&commit.file]))),
            checkpoint: segment.checkpoint.as_ref().map(|checkpoint| (checkpoint.version, mark(checkpoint))),
        }
    }

    /// Returns whether both name the same order of files. Where a catalog ratifies commits, the newest one may be staged
    /// or published, and is compared once it is read.
    pub(super) fn is_same_order(&self, other: &Self, has_catalog: bool) -> bool {
        let is_same_commit = has_catalog || self.commit == other.commit;
        is_same_commit && (self.version, &self.checkpoint) == (other.version, &other.checkpoint)
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

    pub(super) fn is_checkpoint(&self, checkpoint: &CheckpointFiles) -> bool {
        self.checkpoint.as_ref().is_some_and(|(_, wanted)| *wanted == mark(checkpoint))
    }
}

/// Returns the identity of a checkpoint's files. Names with a UUID are never reused. Other files may be written again:
/// by a racing writer, with their rows in another order, or for a new table that replaces an old one. The size shows
/// most of these cases; the store's tag of the object shows all.
fn mark(checkpoint: &CheckpointFiles) -> String {
    let bytes: u64 = checkpoint.files.iter().map(|file| file.size).sum();
    let uuid = || checkpoint.files.first().and_then(|file| file.name.split('.').nth(2)).unwrap_or_default();
    match checkpoint.kind {
        CheckpointKind::Classic => format!("c{bytes}.{}", digest_of(&checkpoint.files)),
        CheckpointKind::MultiPart => {
            format!("m{}.{bytes}.{}", checkpoint.files.len(), digest_of(&checkpoint.files))
        }
        CheckpointKind::UuidParquet => format!("u{}", uuid()),
        CheckpointKind::UuidJson => format!("j{}", uuid()),
    }
}

/// Returns a text that distinguishes a commit from one that was written in its place. `None` if a catalog ratifies
/// commits: the staged and the published file differ.
pub(crate) fn commit_mark(storage: &Storage, commit: &LogFileEntry) -> Option<String> {
    storage.catalog().is_none().then(|| digest_of([commit]))
}

/// Returns a short digest of the tags or times of files in the store, the same on every replica.
fn digest_of<'a>(files: impl IntoIterator<Item = &'a LogFileEntry>) -> String {
    let mut digest = Sha256::new();
    for file in files {
        match &file.entity_tag {
            Some(tag) => digest.update(tag.as_bytes()),
            None => digest.update(file.modified_ms.to_le_bytes()),
        }
        digest.update([b'\n']);
    }
    hex_text(&<[u8; 32]>::from(digest.finalize()).as_chunks::<8>().0[0])
}

impl fmt::Display for LogIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.version)?;
        if let Some((version, mark)) = &self.checkpoint {
            write!(formatter, "@{version}{mark}")?;
        }
        match &self.commit {
            Some(commit) => write!(formatter, "~{commit}"),
            None => Ok(()),
        }
    }
}

impl FromStr for LogIdentity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or(Error::InvalidCursor)
    }
}

fn parse(text: &str) -> Option<LogIdentity> {
    let (head, commit) = match text.split_once('~') {
        None => (text, None),
        Some((head, commit)) => (head, Some(commit.to_owned())),
    };
    let (version, checkpoint) = match head.split_once('@') {
        None => (head, None),
        Some((version, checkpoint)) => {
            let digits = checkpoint.find(|c: char| !c.is_ascii_digit())?;
            let (number, mark) = checkpoint.split_at(digits);
            (version, Some((number.parse().ok()?, mark.to_owned())))
        }
    };
    let identity = LogIdentity { version: version.parse().ok()?, checkpoint, commit };
    (identity.version >= 0 && identity.to_string() == text).then_some(identity)
}
