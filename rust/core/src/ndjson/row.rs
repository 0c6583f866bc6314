//! The fields of one file that both formats write: its columns, its ids and its URLs.

use crate::actions::{FileBatch, PartitionTuple, RemoveFields, StatsText};
use crate::file_id::{FileId, IdHasher};
use crate::sign::UrlStream;
use crate::{Error, Result};

/// The kind of the files of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// A live file of a snapshot: `file` in the parquet format, an add in the delta format.
    Live,
    /// An added file.
    Add,
    /// A removed file; the modification times of the batch are deletion timestamps.
    Remove,
    /// A change data file of a commit.
    Cdc,
}

pub(super) struct FileRow<'batch> {
    pub(super) batch: &'batch FileBatch,
    pub(super) row: usize,
    pub(super) action: FileAction,
}

impl<'batch> FileRow<'batch> {
    pub(super) fn path(&self) -> &'batch str {
        self.batch.path.value(self.row)
    }

    pub(super) fn size(&self) -> i64 {
        self.batch.size[self.row]
    }

    /// Encoded JSON.
    pub(super) fn partition_values(&self) -> Result<&'batch [u8]> {
        self.partitions().map(|tuple| &*tuple.json)
    }

    /// Encoded JSON, as in the log.
    pub(super) fn logged_partition_values(&self) -> Result<&'batch [u8]> {
        self.partitions().map(|tuple| tuple.logged_json.as_deref().unwrap_or(&tuple.json))
    }

    pub(super) fn partitions(&self) -> Result<&'batch PartitionTuple> {
        let partitions = &self.batch.partitions;
        let tuple = partitions.keys.get(self.row).and_then(|key| partitions.dictionary.get(*key as usize));
        tuple
            .map(|tuple| &**tuple)
            .ok_or_else(|| Error::Internal { detail: "a partition key without a tuple".to_owned() })
    }

    /// The present fields of a remove; other actions are complete.
    pub(super) fn remove_fields(&self) -> RemoveFields {
        let fields = self.batch.remove_fields.as_ref().and_then(|fields| fields.get(self.row));
        fields.copied().unwrap_or_default()
    }

    pub(super) fn stats(&self) -> Option<StatsText<'batch>> {
        self.batch.stats.as_ref()?.get(self.row)
    }
}

/// Computes ids and URLs of files. One per thread.
#[derive(Debug)]
pub(super) struct FileNames {
    pub(super) ids: IdHasher,
    pub(super) urls: UrlStream,
    /// A path or id that is not in the batch.
    pub(super) name: String,
}

impl FileNames {
    /// The id of a name that is not in the batch: `self.name`.
    pub(super) fn append_name_id(&mut self, out: &mut Vec<u8>) {
        let digests = self.ids.digests(std::iter::once(self.name.as_str()));
        FileId { scheme: self.ids.scheme(), digest: &digests[0] }.append(out);
    }
}

impl Clone for FileNames {
    fn clone(&self) -> Self {
        Self { ids: IdHasher::new(self.ids.scheme()), urls: self.urls.clone(), name: String::new() }
    }
}

/// Appends a number after the text that introduces it.
pub(super) fn append_member(name: &[u8], value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
