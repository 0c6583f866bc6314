//! A v2 top file in JSON: actions a line, as in a commit, and the sidecars.

use std::ops::Range;

use bytes::Bytes;

use super::ReadOptions;
use super::top_file::{Sidecar, TopFile};
use crate::actions::{FileBatch, Rows, SourceId};
use crate::commit::CommitFile;
use crate::partition::PartitionInterner;
use crate::{Error, Result};

/// The adds of a JSON top file that are wanted, as one batch: such a file is read whole.
pub(super) fn file_batch(
    name: &str,
    content: &Bytes,
    source: SourceId,
    rows: &Range<u32>,
    options: &ReadOptions,
    interner: &mut PartitionInterner,
) -> Result<FileBatch> {
    let batch = CommitFile::parse(name, content)?.adds.batch(source, name, interner)?;
    let batch = FileBatch {
        stats: batch.stats.filter(|_| options.needs.stats),
        data_change: batch.data_change.filter(|_| options.needs.delta_fields),
        base_row_id: batch.base_row_id.filter(|_| options.needs.delta_fields),
        default_row_commit_version: batch.default_row_commit_version.filter(|_| options.needs.delta_fields),
        clustering_provider: batch.clustering_provider.filter(|_| options.needs.delta_fields),
        ..batch
    };
    let tuple = |file: usize| &batch.partitions.dictionary[batch.partitions.keys[file] as usize];
    let is_wanted = |file: usize| {
        rows.contains(&batch.row[file]) && options.keep_tuple.as_ref().is_none_or(|keep| keep(tuple(file)))
    };
    let wanted: Rows = (0..batch.len() as u32).filter(|file| is_wanted(*file as usize)).collect();
    Ok(if wanted.len() == batch.len() { batch } else { batch.only(&wanted) })
}

/// What a JSON top file says once.
pub(super) fn top_file(name: &str, content: &Bytes) -> Result<TopFile> {
    let file = CommitFile::parse(name, content)?;
    Ok(TopFile { protocol: file.protocol, metadata: file.metadata, sidecars: sidecars(name, content)? })
}

/// The action that commits do not have.
fn sidecars(name: &str, content: &[u8]) -> Result<Vec<Sidecar>> {
    #[derive(serde::Deserialize)]
    struct Line {
        sidecar: Option<Sidecar>,
    }
    let mut sidecars = Vec::new();
    for line in content.split(|byte| *byte == b'\n') {
        // Most lines are adds, or the one long metaData.
        if memchr::memmem::find(line, b"\"sidecar\"").is_some() {
            let line: Line = serde_json::from_slice(line)
                .map_err(|_| Error::corrupt(name, "a sidecar action is incomplete or mistyped"))?;
            sidecars.extend(line.sidecar);
        }
    }
    Ok(sidecars)
}
