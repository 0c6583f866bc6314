//! From selected files to the bytes of an answer: header lines, a line a file, coded chunks.

mod delta;
mod header;
mod line;
mod parquet;
mod row;

pub use crate::file_id::{FileIds, IdScheme};
pub use header::{MetadataFacts, append_metadata, append_protocol};
pub use line::{LineCounts, LineWriter, ResponseFormat, Stamp};
pub use row::FileAction;
