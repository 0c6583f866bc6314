//! The key of cached columns: a table, a checkpoint, and everything that decoding depends on.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::actions::Metadata;
use crate::schema::COLUMN_MAPPING_MODE;

/// Names the columns of one checkpoint of one table, as one metadata decodes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnsKey {
    /// A number that tells tables apart.
    pub table: u64,
    /// The checkpoint, by its files.
    pub checkpoint: Arc<str>,
    /// What decoding depends on.
    pub decoding: Decoding,
}

/// All of a version's metadata that decoded columns depend on: partition values are coded in the order and by the
/// names of its partition columns, statistics typed by its schema and column mapping. The table's id tells a table
/// from another one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decoding([u8; 32]);

impl Decoding {
    /// That of versions with this metadata.
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
