//! One line per file: the part of an answer that grows with the table.
//!
//! Takes batches of file actions and selected rows; writes whole NDJSON lines with signed URLs. The parts that the lines
//! of a stream share are prepared once, ids and signatures are hashed in groups, and no memory is allocated per file.

use std::sync::Arc;

use super::row::{FileAction, FileNames, FileRow, append_member};
use super::{delta, parquet};
use crate::Result;
use crate::actions::FileBatch;
use crate::file_id::{Digest, FileId, FileIds, IdHasher, IdScheme};
use crate::hashing::GROUP;
use crate::partition::PartitionTimestamps;
use crate::sign::UrlStream;
use crate::stop::Stop;

/// The two response formats of Delta Sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFormat {
    /// `file`, `add`, `cdf` and `remove` lines.
    Parquet,
    /// Delta actions, wrapped.
    Delta,
}

impl ResponseFormat {
    /// Returns the default id scheme of the format.
    #[must_use]
    pub fn id_scheme(self) -> IdScheme {
        match self {
            Self::Parquet => IdScheme::Parquet,
            Self::Delta => IdScheme::Delta,
        }
    }
}

/// The version and the timestamp of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The version of the table or of the commit.
    pub version: i64,
    /// The timestamp of the version, in milliseconds since the epoch; omitted if unknown.
    pub timestamp_ms: Option<i64>,
}

/// Counts of written lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Number of lines with a URL.
    pub files: u64,
    /// Total size of these files, by the log.
    pub file_bytes: u64,
    /// The earliest expiration of all URLs, in milliseconds since the epoch; `None` without URLs.
    pub min_expiration_ms: Option<i64>,
}

impl LineCounts {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let min_expiration_ms = match (self.min_expiration_ms, other.min_expiration_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            files: self.files + other.files,
            file_bytes: self.file_bytes.saturating_add(other.file_bytes),
            min_expiration_ms,
        }
    }
}

/// Writes lines. One per thread: clones share the prepared parts.
#[derive(Debug, Clone)]
pub struct LineWriter {
    format: ResponseFormat,
    action: FileAction,
    stamp: Option<Stamp>,
    names: FileNames,
    timestamps: Option<Arc<PartitionTimestamps>>,
    /// The end of lines whose URLs expire at the same time.
    tail: Vec<u8>,
    tail_expiration_ms: Option<i64>,
}

impl LineWriter {
    /// Creates a writer for lines of live files, without a stamp.
    #[must_use]
    pub fn new(format: ResponseFormat, scheme: IdScheme, urls: UrlStream) -> Self {
        Self {
            format,
            action: FileAction::Live,
            stamp: None,
            names: FileNames { ids: IdHasher::new(scheme), urls, name: String::new() },
            timestamps: None,
            tail: Vec::new(),
            tail_expiration_ms: None,
        }
    }

    /// Sets the action and the stamp of the following lines. Changes require a stamp.
    pub fn set_action(&mut self, action: FileAction, stamp: Option<Stamp>) {
        self.action = action;
        self.stamp = stamp;
        self.tail_expiration_ms = None;
    }

    /// Sets the timestamp columns of the following lines.
    pub(crate) fn set_timestamps(&mut self, timestamps: Option<Arc<PartitionTimestamps>>) {
        self.timestamps = timestamps;
    }

    /// Appends a line for each of `rows` to `out`. After an error `out` ends with the last whole line. Signatures of a
    /// service are pending until [`Self::finish`].
    pub fn write(&mut self, batch: &FileBatch, rows: &[u32], out: &mut Vec<u8>) -> Result<LineCounts> {
        self.write_with_ids(batch, None, rows, out)
    }

    /// Writes the signatures of a service into `out`, to which lines were only appended since. Blocks if there are any.
    pub fn finish(&mut self, out: &mut [u8]) -> Result<()> {
        self.names.urls.finish_by_service(out)
    }

    /// Returns an error if the URLs of an answer of `files` cannot be signed, see [`UrlStream::check_files`].
    pub(crate) fn check_files(&self, files: u64) -> Result<()> {
        self.names.urls.check_files(files)
    }

    /// Returns the stop of the requests of a service that signs.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.names.urls.stop()
    }

    /// Returns the scheme of the ids.
    #[must_use]
    pub fn id_scheme(&self) -> IdScheme {
        self.names.ids.scheme()
    }

    /// Writes a line as [`Self::write`] does, with the batch's ids if they exist in the same scheme.
    pub fn write_with_ids(
        &mut self,
        batch: &FileBatch,
        ids: Option<&FileIds>,
        rows: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<LineCounts> {
        let ids = ids.filter(|ids| ids.scheme() == self.id_scheme());
        let mut counts = LineCounts::default();
        let mut written = Ok(());
        'groups: for group in rows.chunks(GROUP) {
            let digests = self.digests(batch, ids, group);
            for (row, digest) in group.iter().zip(&digests) {
                let start = out.len();
                match self.write_line(batch, *row as usize, digest, out) {
                    Ok(expiration_ms) => {
                        let file_bytes = u64::try_from(batch.size[*row as usize]).unwrap_or(0);
                        let min_expiration_ms = Some(expiration_ms);
                        counts = counts.plus(LineCounts { files: 1, file_bytes, min_expiration_ms });
                    }
                    Err(error) => {
                        self.names.urls.truncate(start, out);
                        written = Err(error);
                        break 'groups;
                    }
                }
            }
        }
        self.names.urls.finish(out);
        written.map(|()| counts)
    }

    fn digests(&mut self, batch: &FileBatch, ids: Option<&FileIds>, rows: &[u32]) -> [Digest; GROUP] {
        let Some(ids) = ids else {
            return self.names.ids.digests(rows.iter().map(|row| batch.path.value(*row as usize)));
        };
        let mut digests = [[0; 32]; GROUP];
        for (digest, row) in digests.iter_mut().zip(rows) {
            *digest = ids.digest(*row as usize);
        }
        digests
    }

    fn write_line(
        &mut self,
        batch: &FileBatch,
        row: usize,
        digest: &Digest,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        let id = FileId { scheme: self.id_scheme(), digest };
        let file = FileRow { batch, row, action: self.action };
        let expiration_ms = match self.format {
            ResponseFormat::Parquet => {
                parquet::write_file(&file, id, &mut self.names.urls, self.timestamps.as_deref(), out)?
            }
            ResponseFormat::Delta => delta::write_file(&file, id, &mut self.names, out)?,
        };
        self.write_tail(expiration_ms, out);
        Ok(expiration_ms)
    }

    /// The stamp and the expiration are at the end in both formats, when the expiration of every URL of the line is
    /// known.
    fn write_tail(&mut self, expiration_ms: i64, out: &mut Vec<u8>) {
        if self.tail_expiration_ms != Some(expiration_ms) {
            self.tail.clear();
            if let Some(stamp) = self.stamp {
                append_member(b",\"version\":", stamp.version, &mut self.tail);
                if let Some(timestamp_ms) = stamp.timestamp_ms {
                    append_member(b",\"timestamp\":", timestamp_ms, &mut self.tail);
                }
            }
            append_member(b",\"expirationTimestamp\":", expiration_ms, &mut self.tail);
            self.tail.extend_from_slice(b"}}\n");
            self.tail_expiration_ms = Some(expiration_ms);
        }
        out.extend_from_slice(&self.tail);
    }
}

#[cfg(test)]
mod tests;
