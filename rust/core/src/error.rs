//! The error type of the crate.
//!
//! The message of every variant is one sentence that may be shown to a recipient: it names versions, features and log
//! files, never buckets, hosts, keys or directories. Details for the operator are in the field `detail`, which
//! `Display` omits.

/// What went wrong while a log was read or a stream was made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no `_delta_log` with a commit or a checkpoint in it.
    #[error("the table has no Delta log")]
    TableNotFound,
    /// A version outside of what the log still holds.
    #[error("version {requested} is not available, the table has versions {earliest} to {latest}")]
    VersionNotFound {
        /// The version asked for.
        requested: i64,
        /// The earliest version that can be rebuilt.
        earliest: i64,
        /// The latest version.
        latest: i64,
    },
    /// A timestamp before the first or after the last commit, in milliseconds since the epoch.
    #[error(
        "timestamp {requested_ms} ms is out of range, the table has commits from {earliest_ms} to {latest_ms} ms"
    )]
    TimestampOutOfRange {
        /// The timestamp asked for.
        requested_ms: i64,
        /// That of the earliest commit.
        earliest_ms: i64,
        /// That of the latest commit.
        latest_ms: i64,
    },
    /// The log breaks Delta's PROTOCOL: a missing commit, broken JSON or Parquet, no protocol or metadata.
    #[error("the table's log is corrupt at {file}: {reason}")]
    CorruptLog {
        /// The name of the log file, without its directory.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The table's metaData has no usable schema.
    #[error("the table's metadata has no schema")]
    MissingSchema,
    /// A reader version or reader feature that this crate does not know.
    #[error("the table needs the reader feature '{0}', which this server does not support")]
    UnsupportedFeature(String),
    /// Change data feed is not enabled at a version of the range.
    #[error("the change data feed is not enabled at version {0}")]
    ChangeDataFeedDisabled(i64),
    /// A remove says neither size nor partition values of its file, and the log no longer has the add that does.
    #[error(
        "version {0} removes a file of which the log no longer says size and partition values; start at a later \
         version, or read the delta response format"
    )]
    IncompleteRemove(i64),
    /// A file outside of the roots that the configuration allows.
    #[error("the table refers to a file outside of its allowed locations")]
    ForbiddenPath,
    /// A file of the log whose path names nothing that a store can hold.
    #[error("the table's log names a file by a path that {0}")]
    InvalidPath(&'static str),
    /// A place in an order of files that is gone, or was never there.
    #[error("the page cannot be continued, the log was cleaned up since; start again without pageToken")]
    InvalidCursor,
    /// The store answered that a file is not there.
    #[error("{file} is missing from the table's storage")]
    FileNotFound {
        /// The name of the file, without its directory.
        file: String,
    },
    /// The store refused the provider's credentials.
    #[error("the storage refused the provider's credentials; the provider must renew them")]
    StorageDenied {
        /// The store's own words, for the operator's log.
        detail: String,
    },
    /// The store could not be reached, timed out or throttled us.
    #[error("the table's storage is unavailable for now")]
    StorageUnavailable {
        /// The store's own words, for the operator's log.
        detail: String,
    },
    /// The stream was cancelled by its reader.
    #[error("the request was cancelled")]
    Cancelled,
    /// The request's deadline passed.
    #[error("the request took longer than its time limit")]
    DeadlineExceeded,
    /// A configuration value that this crate cannot work with.
    #[error("{0}")]
    InvalidArgument(String),
    /// A defect of this crate.
    #[error("internal error")]
    Internal {
        /// What was found, for the operator's log.
        detail: String,
    },
}

impl Error {
    /// Words for the operator's log only: they may name hosts and keys.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::StorageDenied { detail }
            | Self::StorageUnavailable { detail }
            | Self::Internal { detail } => Some(detail),
            _ => None,
        }
    }

    pub(crate) fn corrupt(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::CorruptLog { file: file.into(), reason: reason.into() }
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
