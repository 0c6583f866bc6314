//! The key of cached columns: a table, a checkpoint, and everything that decoding depends on.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::actions::Metadata;
use crate::schema::COLUMN_MAPPING_MODE;

/// The key of the columns of one checkpoint of one table, decoded by one metadata.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnsKey {
    /// The number of the table in this process.
    pub table: u64,
    /// The names of the checkpoint's files.
    pub checkpoint: Arc<str>,
    /// The parts of the metadata that decoding depends on.
    pub decoding: Decoding,
}

/// A digest of all metadata that decoded columns depend on: partition values are encoded by order and names of the
/// partition columns, statistics are typed by schema and column mapping. The table's id distinguishes a table from a
/// later one in the same location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decoding([u8; 32]);

impl Decoding {
    /// Computes the digest of a metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: Option<&str>| {
            // The length keeps ("ab","c") from ("a","bc").
            digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            digest.update(text.unwrap_or_default().as_bytes());
        };
        add(Some(&metadata.id));
        add(metadata.schema_string.as_deref());
        add(metadata.property(COLUMN_MAPPING_MODE));
        metadata.partition_columns.iter().for_each(|column| add(Some(column)));
        Self(digest.finalize().into())
    }
}
