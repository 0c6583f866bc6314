//! The lines of an answer: the header lines and one line per file, in both response formats.

mod delta;
mod header;
mod line;
mod parquet;
mod row;

pub use crate::file_id::{FileIds, IdScheme};
pub use header::{MetadataFacts, append_metadata, append_protocol};
pub use line::{LineCounts, LineWriter, ResponseFormat, Stamp};
pub use row::FileAction;
