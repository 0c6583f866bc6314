//! The version checksum file, `<version>.crc` (PROTOCOL, section Version Checksum File).
//!
//! It gives the protocol, the metadata and the totals of a version without reading the checkpoint. It is optional, so a
//! malformed one counts as absent.

use crate::actions::{Metadata, Protocol, Totals, lenient_i64, lenient_optional_i64};
use crate::commit::MetadataJson;

/// The content of a checksum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) totals: Totals,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) in_commit_timestamp_ms: Option<i64>,
    /// The `txnId` of its commit.
    pub(crate) transaction_id: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChecksumJson {
    #[serde(deserialize_with = "lenient_i64")]
    table_size_bytes: i64,
    #[serde(deserialize_with = "lenient_i64")]
    num_files: i64,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    num_metadata: Option<i64>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    num_protocol: Option<i64>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    in_commit_timestamp_opt: Option<i64>,
    txn_id: Option<String>,
    protocol: Option<Protocol>,
    metadata: Option<MetadataJson>,
}

impl Checksum {
    /// `None` if the file is malformed or contradicts itself.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let json: ChecksumJson = serde_json::from_slice(bytes).ok()?;
        let (files, size_bytes) =
            (u64::try_from(json.num_files).ok()?, u64::try_from(json.table_size_bytes).ok()?);
        let counts_one =
            [json.num_metadata, json.num_protocol].iter().all(|count| count.is_none_or(|count| count == 1));
        // A file may be empty, no file may not weigh something.
        let is_sound = counts_one && (files > 0 || size_bytes == 0);
        is_sound.then(|| Self {
            totals: Totals { files, size_bytes },
            protocol: json.protocol,
            metadata: json.metadata.map(Metadata::from),
            in_commit_timestamp_ms: json.in_commit_timestamp_opt,
            transaction_id: json.txn_id,
        })
    }

    /// Returns the protocol and the metadata, if it has both and does not contradict the commits.
    pub(crate) fn heads_beside(
        &self,
        protocol: Option<&Protocol>,
        metadata: Option<&Metadata>,
    ) -> Option<(Protocol, Metadata)> {
        let (own_protocol, own_metadata) = (self.protocol.as_ref()?, self.metadata.as_ref()?);
        let agrees = self.agrees(protocol.unwrap_or(own_protocol), metadata.unwrap_or(own_metadata));
        agrees.then(|| (own_protocol.clone(), own_metadata.clone()))
    }

    /// Returns whether the file describes the version with this protocol and metadata.
    pub(crate) fn agrees(&self, protocol: &Protocol, metadata: &Metadata) -> bool {
        self.protocol.as_ref().is_none_or(|own| own == protocol)
            && self.metadata.as_ref().is_none_or(|own| is_same(own, metadata))
    }
}

/// Writers order the properties of one metadata differently.
fn is_same(stated: &Metadata, metadata: &Metadata) -> bool {
    let sorted = |metadata: &Metadata| {
        let mut pairs = metadata.configuration.clone();
        pairs.sort();
        pairs
    };
    stated.id == metadata.id
        && stated.schema_string == metadata.schema_string
        && stated.partition_columns == metadata.partition_columns
        && sorted(stated) == sorted(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_checksum_file_gives_all_its_fields() {
        let checksum = Checksum::parse(
            br#"{"txnId":"x","tableSizeBytes":12,"numFiles":3,"numMetadata":1,"numProtocol":1,"inCommitTimestampOpt":77,"protocol":{"minReaderVersion":1.0,"minWriterVersion":"2"},"metadata":{"id":"i","schemaString":"{}"},"allFiles":[]}"#,
        )
        .unwrap();
        assert_eq!(checksum.totals, Totals { files: 3, size_bytes: 12 });
        assert_eq!(checksum.in_commit_timestamp_ms, Some(77));
        assert_eq!(checksum.transaction_id.as_deref(), Some("x"));
        assert_eq!(checksum.metadata.unwrap().id, "i");
        assert_eq!(checksum.protocol.unwrap().min_reader_version, 1);
    }

    #[test]
    fn a_malformed_or_contradictory_one_is_ignored() {
        for text in [
            "",
            "this is not json",
            "[]",
            "{}",
            r#"{"tableSizeBytes":1}"#,
            r#"{"tableSizeBytes":-1,"numFiles":1}"#,
            r#"{"tableSizeBytes":1,"numFiles":0}"#,
            r#"{"tableSizeBytes":1,"numFiles":1,"numMetadata":2}"#,
            r#"{"tableSizeBytes":1,"numFiles":1,"numProtocol":0}"#,
            r#"{"tableSizeBytes":1,"numFiles":1.5}"#,
        ] {
            assert_eq!(Checksum::parse(text.as_bytes()), None, "{text}");
        }
    }
}
