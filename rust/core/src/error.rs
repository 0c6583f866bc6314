//! The error type of the crate.
//!
//! The message of every variant is one sentence that may be shown to a recipient: it names versions, features and log
//! files, never buckets, hosts, keys or directories. Details for the operator are in the field `detail`, which
//! `Display` omits.

/// An error of reading a log or of producing a stream.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No `_delta_log` with a commit or a checkpoint exists.
    #[error("the table has no Delta log")]
    TableNotFound {
        /// The reason, for the operator's log: the store's message about an absent bucket, or a location that no
        /// request can name.
        detail: Option<String>,
    },
    /// The log does not hold the version.
    #[error("version {requested} is not available, the table has versions {earliest} to {latest}")]
    VersionNotFound {
        /// The requested version.
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
        /// The requested timestamp.
        requested_ms: i64,
        /// The timestamp of the earliest commit.
        earliest_ms: i64,
        /// The timestamp of the latest commit.
        latest_ms: i64,
    },
    /// The log violates PROTOCOL: a missing commit, malformed JSON or Parquet, no protocol or metadata.
    #[error("the table's log is corrupt at {file}: {reason}")]
    CorruptLog {
        /// The name of the log file, without its directory.
        file: String,
        /// The reason.
        reason: String,
    },
    /// Two sources of one version count different files, so an answer may be short.
    #[error("the table's log contradicts itself: its counts of files differ")]
    Contradiction {
        /// The sources and their counts, for the operator's log: a recipient may read a part of the files only.
        detail: String,
    },
    /// The table's metaData has no usable schema.
    #[error("the table's metadata has no schema")]
    MissingSchema,
    /// An unknown reader version or reader feature.
    #[error("the table needs the reader feature '{0}', which this server does not support")]
    UnsupportedFeature(String),
    /// The catalog that manages the table is not configured.
    #[error("the table's latest commits are in a catalog, which the provider must configure")]
    CatalogNotConfigured,
    /// The change data feed is not enabled at a version of the range.
    #[error("the change data feed is not enabled at version {0}")]
    ChangeDataFeedDisabled(i64),
    /// A remove lacks size or partition values of its file, and the log no longer has the add with them.
    #[error(
        "version {0} removes a file whose size and partition values are not in the log; start at a later version, or \
         read the delta response format"
    )]
    IncompleteRemove(i64),
    /// The rule of a grant is not decided by the partition values of the table.
    #[error(
        "the table cannot be read by the rule of your grant, which its partition values do not decide; the provider \
         must correct the rule or the table"
    )]
    RuleRefused {
        /// The reason, for the operator's log: it names columns.
        detail: String,
    },
    /// A file outside of the allowed locations of the configuration.
    #[error("the table refers to a file outside of its allowed locations")]
    ForbiddenPath,
    /// A file whose path cannot be the name of an object or file.
    #[error("the table's log names a file by a path that {0}")]
    InvalidPath(&'static str),
    /// A cursor in an order of files that no longer exists, or never existed.
    #[error("the page cannot be continued, the log was cleaned up since; start again without pageToken")]
    InvalidCursor,
    /// The store reports that a file does not exist.
    #[error("{file} is missing from the table's storage")]
    FileNotFound {
        /// The name of the file, without its directory.
        file: String,
    },
    /// A log file is not the one that was listed, is not whole, or was deleted since.
    #[error("{file} was replaced or deleted while the table was read; try again")]
    FileReplaced {
        /// The name of the file, without its directory.
        file: String,
    },
    /// The store, or the file system, denies access with the configured credentials.
    #[error("the storage denies access; the provider must check the gateway's credentials and rights there")]
    StorageDenied {
        /// The store's message, for the operator's log.
        detail: String,
    },
    /// The store answers that it does not give the file, for a reason that is not in its credentials: an archived
    /// object, a key of an encryption, another region.
    #[error("the table's storage refuses to be read, which the provider must change")]
    StorageRefused {
        /// The store's message, for the operator's log.
        detail: String,
    },
    /// The store cannot be reached, times out or throttles.
    #[error("the table's storage is unavailable for now")]
    StorageUnavailable {
        /// The store's message, for the operator's log.
        detail: String,
    },
    /// What answers share is in use, or too small for this one.
    #[error("the server has no {lacks}; try again later")]
    Busy {
        /// What there is too little of.
        lacks: &'static str,
        /// How much it takes, for the operator's log.
        detail: String,
    },
    /// An answer with more URLs than the provider has signed by one request each.
    #[error(
        "the answer has more than {most} files, and each URL is signed by a request of its own; the provider must \
         configure an HMAC key to sign more"
    )]
    TooManySignatures {
        /// The configured maximum.
        most: u64,
    },
    /// The consumer cancelled the stream.
    #[error("the request was cancelled")]
    Cancelled,
    /// The deadline of the request passed.
    #[error("the request took longer than its time limit")]
    DeadlineExceeded,
    /// An invalid configuration value.
    #[error("{0}")]
    InvalidArgument(String),
    /// A defect of this crate.
    #[error("internal error")]
    Internal {
        /// Details for the operator's log.
        detail: String,
    },
}

impl Error {
    /// The error of a system that opens no more descriptors for this process.
    pub(crate) fn no_descriptors(error: impl std::fmt::Display) -> Self {
        Self::Busy { lacks: "descriptors left for the answer", detail: error.to_string() }
    }

    /// Returns whether the files of a log are at fault, as they were listed.
    pub(crate) fn is_of_log(&self) -> bool {
        use Error::{CorruptLog, FileNotFound, FileReplaced, TableNotFound, VersionNotFound};
        matches!(
            self,
            CorruptLog { .. }
                | FileNotFound { .. }
                | FileReplaced { .. }
                | TableNotFound { .. }
                | VersionNotFound { .. }
        )
    }

    /// Returns details for the operator's log only: they may name hosts and keys.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::TableNotFound { detail } => detail.as_deref(),
            Self::StorageDenied { detail }
            | Self::StorageRefused { detail }
            | Self::StorageUnavailable { detail }
            | Self::RuleRefused { detail }
            | Self::Contradiction { detail }
            | Self::Busy { detail, .. }
            | Self::Internal { detail } => Some(detail),
            _ => None,
        }
    }

    /// Returns whether a new listing may show other files: cleanup deletes some, and a table may be replaced.
    pub(crate) fn is_outdated_listing(&self) -> bool {
        matches!(self, Self::FileNotFound { .. } | Self::FileReplaced { .. })
    }

    /// The error of a log without a commit or a checkpoint.
    pub(crate) fn no_log() -> Self {
        Self::TableNotFound { detail: None }
    }

    pub(crate) fn corrupt(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::CorruptLog { file: file.into(), reason: reason.into() }
    }
}

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
