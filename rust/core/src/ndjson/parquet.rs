//! Lines of the parquet response format: `file`, `add`, `cdf` and `remove`.

use super::row::{FileAction, FileRow, append_member};
use crate::file_id::FileId;
use crate::partition::PartitionTimestamps;
use crate::sign::UrlStream;
use crate::{Error, Result};

/// Appends a file without the stamp and the expiration at the end of its line; returns the expiration of its URL.
pub(super) fn write_file(
    file: &FileRow<'_>,
    id: FileId<'_>,
    urls: &mut UrlStream,
    timestamps: Option<&PartitionTimestamps>,
    out: &mut Vec<u8>,
) -> Result<i64> {
    if file.batch.deletion_vector_at(file.row).is_some() {
        // A client of this format would read the deleted rows.
        return Err(Error::UnsupportedFeature("deletionVectors".to_owned()));
    }
    out.extend_from_slice(match file.action {
        FileAction::Live => b"{\"file\":{\"url\":\"".as_slice(),
        FileAction::Add => b"{\"add\":{\"url\":\"",
        FileAction::Remove => b"{\"remove\":{\"url\":\"",
        FileAction::Cdc => b"{\"cdf\":{\"url\":\"",
    });
    let expiration_ms = urls.append(file.path(), out)?;
    out.extend_from_slice(b"\",\"id\":\"");
    id.append(out);
    out.extend_from_slice(b"\",\"partitionValues\":");
    match timestamps {
        Some(timestamps) => timestamps.append(file.partitions()?, out),
        None => out.extend_from_slice(file.partition_values()?),
    }
    append_member(b",\"size\":", file.size(), out);
    if let (FileAction::Live | FileAction::Add, Some(stats)) = (file.action, file.stats()) {
        out.extend_from_slice(b",\"stats\":\"");
        stats.append_escaped(out);
        out.push(b'"');
    }
    Ok(expiration_ms)
}
