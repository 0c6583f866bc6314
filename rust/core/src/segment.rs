//! The files of a log that rebuild a version.

use crate::storage::LogFileEntry;

/// A complete checkpoint (PROTOCOL, section Checkpoints).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// The version that it rebuilds.
    pub version: i64,
    /// How it is laid out.
    pub kind: CheckpointKind,
    /// Its files in `_delta_log/`, without sidecars: all parts in their order, or the one top file.
    pub files: Vec<LogFileEntry>,
}

/// What the name of a checkpoint says of its layout. Whether it refers to sidecars only its content says:
/// a classic name may hold v2 content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// `<version>.checkpoint.parquet`
    Classic,
    /// `<version>.checkpoint.<part>.<of>.parquet`
    MultiPart,
    /// `<version>.checkpoint.<uuid>.parquet`
    UuidParquet,
    /// `<version>.checkpoint.<uuid>.json`
    UuidJson,
}
