//! The key of cached columns: a table, a checkpoint, and everything that decoding depends on.

use sha2::{Digest, Sha256};

use crate::actions::Metadata;
use crate::hashing::{SequenceDigest, hex_text};
use crate::predicate::{PredicateKey, RuleKey};
use crate::schema::COLUMN_MAPPING_MODE;
use crate::segment::CheckpointFiles;

/// The key of the columns of one checkpoint of one table, decoded by one metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnsKey {
    /// The number of the table in this process.
    pub table: u64,
    /// A digest of the location, the files and the decoding: see [`columns_digest`].
    pub digest: [u8; 32],
}

impl ColumnsKey {
    /// The key of the files that a predicate, and a rule, select from these columns. `delta_fields`: whether the fields
    /// are decoded that only the delta format has. The key of the columns has the metadata that both are bound to.
    #[must_use]
    pub fn of_selection(&self, predicate: PredicateKey, rule: Option<RuleKey>, delta_fields: bool) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"selection");
        digest.update(self.digest);
        digest.update(predicate);
        digest.update(rule.unwrap_or_default());
        digest.update([u8::from(rule.is_some()), u8::from(delta_fields)]);
        Self { table: self.table, digest: digest.finalize().into() }
    }

    /// The name of the file with the columns, which says nothing of the table.
    pub(super) fn file_name(&self) -> String {
        hex_text(&self.digest)
    }
}

/// Computes a digest that is equal in all processes for equal columns, and for no others: of this program's version,
/// the location of the table, the name, size, entity tag (or modification time) and local identity of each file of the
/// checkpoint, and the metadata that decoding depends on. Sidecars have names that never come again, which the top file contains.
#[must_use]
pub fn columns_digest(location: &[&str], checkpoint: &CheckpointFiles, decoding: &Decoding) -> [u8; 32] {
    let mut digest = SequenceDigest::default();
    digest.add(env!("CARGO_PKG_VERSION"));
    digest.add((location.len() as u64).to_le_bytes());
    for part in location {
        digest.add(part);
    }
    digest.add(checkpoint.version.to_le_bytes());
    for file in &checkpoint.files {
        digest.add(&file.name);
        digest.add(file.size.to_le_bytes());
        match &file.entity_tag {
            Some(tag) => digest.add(tag.as_bytes()),
            None => digest.add(file.modified_ms.to_le_bytes()),
        }
        // A local table may be written again in place with equal times and sizes, as from an archive.
        digest.add(file.identity.to_le_bytes());
    }
    digest.add(decoding.0);
    digest.finish()
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
