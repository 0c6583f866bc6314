//! The protocol and metaData lines at the start of an answer.
//!
//! Their keys have a fixed order, so the bytes are equal on every page and on every replica: clients compare them.

use super::line::ResponseFormat;
use super::row::append_member;
use crate::actions::{Metadata, Protocol, Totals};
use crate::escape::{append_string, object_text};
use crate::features::is_column_mapping_on;
use crate::log_path::LOG_DIRECTORY;
use crate::schema::ColumnMetadata;
use crate::{Error, Result};

/// Fields of a metaData line that the log's metadata lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataFacts<'text> {
    /// Whether the change data feed can be read.
    pub change_data_feed: bool,
    /// The version of the metadata, if the line includes it.
    pub version: Option<i64>,
    /// Absent only in metadata of later versions in an answer of changes.
    pub totals: Option<Totals>,
    /// Members in JSON, without braces, about access to the table's directory; empty without such access.
    pub access: &'text str,
}

/// Appends the protocol line; `version` only for clients that request historical protocols.
pub fn append_protocol(format: ResponseFormat, protocol: &Protocol, version: Option<i64>, out: &mut Vec<u8>) {
    match format {
        // A table that needs more of its readers is not answered in the parquet format at all.
        ResponseFormat::Parquet => out.extend_from_slice(b"{\"protocol\":{\"minReaderVersion\":1"),
        ResponseFormat::Delta => {
            out.extend_from_slice(b"{\"protocol\":{\"deltaProtocol\":");
            append_delta_protocol(protocol, out);
        }
    }
    if let Some(version) = version {
        append_member(b",\"version\":", version, out);
    }
    out.extend_from_slice(b"}}\n");
}

/// Appends the metaData line. Returns [`Error::MissingSchema`] for metadata without a schema.
pub fn append_metadata(
    format: ResponseFormat,
    metadata: &Metadata,
    facts: MetadataFacts<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let schema_string = metadata.schema_string.as_deref().ok_or(Error::MissingSchema)?;
    match format {
        ResponseFormat::Parquet => {
            append_parquet_metadata(metadata, schema_string, facts.change_data_feed, out);
        }
        ResponseFormat::Delta => append_delta_metadata(metadata, schema_string, out),
    }
    if !facts.access.is_empty() {
        out.push(b',');
        out.extend_from_slice(facts.access.as_bytes());
    }
    if let Some(version) = facts.version {
        append_member(b",\"version\":", version, out);
    }
    if let Some(totals) = facts.totals {
        let size_bytes = i64::try_from(totals.size_bytes)
            .map_err(|_| Error::corrupt(LOG_DIRECTORY, "the sum of the files' sizes overflows"))?;
        append_member(b",\"size\":", size_bytes, out);
        append_member(b",\"numFiles\":", totals.files as i64, out);
    }
    out.extend_from_slice(b"}}\n");
    Ok(())
}

fn append_delta_protocol(protocol: &Protocol, out: &mut Vec<u8>) {
    append_member(b"{\"minReaderVersion\":", i64::from(protocol.min_reader_version), out);
    append_member(b",\"minWriterVersion\":", i64::from(protocol.min_writer_version), out);
    for (name, features) in [
        (b",\"readerFeatures\":", protocol.answered_reader_features()),
        (b",\"writerFeatures\":", protocol.answered_writer_features()),
    ] {
        // An empty list stays: reader version 3 and writer version 7 demand one.
        if let Some(features) = features {
            out.extend_from_slice(name);
            append_strings(features.into_iter(), out);
        }
    }
    out.push(b'}');
}

fn append_parquet_metadata(
    metadata: &Metadata,
    schema_string: &str,
    change_data_feed: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"metaData\":{\"id\":");
    append_string(&metadata.id, out);
    append_names(metadata, out);
    out.extend_from_slice(b",\"format\":{\"provider\":\"parquet\"},\"schemaString\":");
    append_string(&ColumnMetadata::CommentsAndLengths.of(schema_string), out);
    out.extend_from_slice(b",\"partitionColumns\":");
    append_strings(metadata.partition_columns.iter(), out);
    out.extend_from_slice(b",\"configuration\":{");
    if change_data_feed {
        out.extend_from_slice(b"\"enableChangeDataFeed\":\"true\"");
    }
    out.push(b'}');
}

fn append_delta_metadata(metadata: &Metadata, schema_string: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metaData\":{\"deltaMetadata\":{\"id\":");
    append_string(&metadata.id, out);
    append_names(metadata, out);
    out.extend_from_slice(b",\"format\":{\"provider\":");
    append_string(&metadata.format_provider, out);
    out.extend_from_slice(b",\"options\":");
    append_map(metadata.format_options.iter(), out);
    out.extend_from_slice(b"},\"schemaString\":");
    let column_metadata = if is_column_mapping_on(metadata) {
        ColumnMetadata::MappedReaderFeatures
    } else {
        ColumnMetadata::ReaderFeatures
    };
    append_string(&column_metadata.of(schema_string), out);
    out.extend_from_slice(b",\"partitionColumns\":");
    append_strings(metadata.partition_columns.iter(), out);
    out.extend_from_slice(b",\"configuration\":");
    append_map(metadata.answered_configuration(), out);
    if let Some(created_time_ms) = metadata.created_time_ms {
        append_member(b",\"createdTime\":", created_time_ms, out);
    }
    out.push(b'}');
}

fn append_names(metadata: &Metadata, out: &mut Vec<u8>) {
    for (name, value) in
        [(b",\"name\":".as_slice(), &metadata.name), (b",\"description\":".as_slice(), &metadata.description)]
    {
        if let Some(value) = value {
            out.extend_from_slice(name);
            append_string(value, out);
        }
    }
}

fn append_strings<'text>(values: impl Iterator<Item = &'text String>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append_string(value, out);
    }
    out.push(b']');
}

fn append_map<'text>(entries: impl Iterator<Item = &'text (String, String)>, out: &mut Vec<u8>) {
    let entries = entries.map(|(key, value)| (key.as_str(), Some(value.as_str())));
    out.extend_from_slice(object_text(entries).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: MetadataFacts<'_> = MetadataFacts {
        change_data_feed: true,
        version: Some(7),
        totals: Some(Totals { files: 2, size_bytes: 300 }),
        access: "",
    };

    fn metadata() -> Metadata {
        Metadata {
            id: "t-1".to_owned(),
            name: Some("n\u{2028}".to_owned()),
            description: None,
            format_provider: "parquet".to_owned(),
            format_options: vec![],
            schema_string: Some("{\"type\":\"struct\",\"fields\":[]} ".to_owned()),
            partition_columns: vec!["a".to_owned(), "b\"".to_owned()],
            configuration: vec![("z".to_owned(), "1".to_owned()), ("delta.x".to_owned(), "true".to_owned())],
            created_time_ms: Some(5),
        }
    }

    fn protocol_line(format: ResponseFormat, protocol: &Protocol, version: Option<i64>) -> String {
        let mut out = Vec::new();
        append_protocol(format, protocol, version, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn metadata_line(format: ResponseFormat, metadata: &Metadata, facts: MetadataFacts<'_>) -> String {
        let mut out = Vec::new();
        append_metadata(format, metadata, facts, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_parquet_format_has_no_table_property_except_the_change_data_feed() {
        assert_eq!(
            metadata_line(ResponseFormat::Parquet, &metadata(), FACTS),
            "{\"metaData\":{\"id\":\"t-1\",\"name\":\"n\\u2028\",\"format\":{\"provider\":\"parquet\"},\
             \"schemaString\":\"{\\\"type\\\":\\\"struct\\\",\\\"fields\\\":[]} \",\"partitionColumns\":[\"a\",\"b\\\"\"],\
             \"configuration\":{\"enableChangeDataFeed\":\"true\"},\"version\":7,\"size\":300,\"numFiles\":2}}\n"
        );
        let facts = MetadataFacts { change_data_feed: false, version: None, totals: None, access: "" };
        let line = metadata_line(ResponseFormat::Parquet, &metadata(), facts);
        assert!(line.ends_with("\"configuration\":{}}}\n"), "{line}");
    }

    #[test]
    fn the_delta_format_carries_the_logs_metadata_without_properties_of_the_log_itself() {
        let of_log = ["checkpointPolicy", "enableInCommitTimestamps", "inCommitTimestampEnablementVersion"];
        let mut metadata = metadata();
        metadata.configuration.splice(1..1, of_log.map(|name| (format!("delta.{name}"), "1".to_owned())));
        assert_eq!(
            metadata_line(ResponseFormat::Delta, &metadata, FACTS),
            "{\"metaData\":{\"deltaMetadata\":{\"id\":\"t-1\",\"name\":\"n\\u2028\",\"format\":{\"provider\":\"parquet\",\
             \"options\":{}},\"schemaString\":\"{\\\"type\\\":\\\"struct\\\",\\\"fields\\\":[]} \",\
             \"partitionColumns\":[\"a\",\"b\\\"\"],\"configuration\":{\"z\":\"1\",\"delta.x\":\"true\"},\
             \"createdTime\":5},\"version\":7,\"size\":300,\"numFiles\":2}}\n"
        );
    }

    #[test]
    fn the_delta_format_has_the_names_of_a_mapping_that_is_on() {
        let schema = |metadata: &str| {
            let metadata = if metadata.is_empty() { String::new() } else { format!("\"{metadata}\":\"x\"") };
            format!(
                "{{\"type\":\"struct\",\"fields\":[{{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{{{metadata}}}}}]}}"
            )
        };
        let name = "delta.columnMapping.physicalName";
        for (mode, kept) in [(None, ""), (Some("none"), ""), (Some("NAME"), name), (Some("id"), name)] {
            let mode = mode.map(|mode| ("delta.columnMapping.mode".to_owned(), mode.to_owned()));
            let configuration = mode.into_iter().collect();
            let metadata = Metadata { schema_string: Some(schema(name)), configuration, ..metadata() };
            let line: serde_json::Value =
                serde_json::from_str(&metadata_line(ResponseFormat::Delta, &metadata, FACTS)).unwrap();
            assert_eq!(line["metaData"]["deltaMetadata"]["schemaString"], schema(kept));
        }
    }

    #[test]
    fn access_to_the_directory_stands_beside_the_metadata_of_the_log() {
        let access = "\"location\":\"s3://b/t\",\"accessModes\":[\"url\",\"dir\"]";
        let facts = MetadataFacts { access, ..FACTS };
        let after = format!(",{access},\"version\":7,\"size\":300,\"numFiles\":2}}}}\n");
        let parquet = metadata_line(ResponseFormat::Parquet, &metadata(), facts);
        assert!(
            parquet.ends_with(&format!("\"configuration\":{{\"enableChangeDataFeed\":\"true\"}}{after}"))
        );
        let delta = metadata_line(ResponseFormat::Delta, &metadata(), facts);
        assert!(delta.ends_with(&format!("\"createdTime\":5}}{after}")), "{delta}");
    }

    #[test]
    fn sizes_beyond_the_numbers_of_clients_are_an_error() {
        let facts = |size_bytes| MetadataFacts { totals: Some(Totals { files: 2, size_bytes }), ..FACTS };
        let most = i64::MAX as u64;
        for format in [ResponseFormat::Parquet, ResponseFormat::Delta] {
            assert!(append_metadata(format, &metadata(), facts(most), &mut Vec::new()).is_ok());
            let refused = append_metadata(format, &metadata(), facts(most + 1), &mut Vec::new());
            assert!(matches!(refused, Err(Error::CorruptLog { .. })));
        }
    }

    #[test]
    fn metadata_without_a_schema_is_an_error() {
        for format in [ResponseFormat::Parquet, ResponseFormat::Delta] {
            let metadata = Metadata { schema_string: None, ..metadata() };
            let refused = append_metadata(format, &metadata, FACTS, &mut Vec::new());
            assert!(matches!(refused, Err(Error::MissingSchema)));
        }
    }

    #[test]
    fn features_of_the_log_alone_leave_both_lists_of_the_protocol() {
        let features = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let protocol = Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: features(&["v2Checkpoint", "deletionVectors", "vacuumProtocolCheck"]),
            writer_features: features(&[
                "v2Checkpoint",
                "appendOnly",
                "deletionVectors",
                "vacuumProtocolCheck",
            ]),
        };
        assert_eq!(
            protocol_line(ResponseFormat::Delta, &protocol, Some(4)),
            "{\"protocol\":{\"deltaProtocol\":{\"minReaderVersion\":3,\"minWriterVersion\":7,\
             \"readerFeatures\":[\"deletionVectors\"],\"writerFeatures\":[\"appendOnly\",\"deletionVectors\"]},\
             \"version\":4}}\n"
        );
        assert_eq!(
            protocol_line(ResponseFormat::Parquet, &protocol, None),
            "{\"protocol\":{\"minReaderVersion\":1}}\n"
        );
    }

    #[test]
    fn a_protocol_without_features_has_no_lists_and_one_whose_features_all_left_has_empty_ones() {
        let old = Protocol { min_reader_version: 1, min_writer_version: 2, ..Protocol::default() };
        assert_eq!(
            protocol_line(ResponseFormat::Delta, &old, None),
            "{\"protocol\":{\"deltaProtocol\":{\"minReaderVersion\":1,\"minWriterVersion\":2}}}\n"
        );
        let features = Some(vec!["v2Checkpoint".to_owned()]);
        let new = Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: features.clone(),
            writer_features: features,
        };
        assert_eq!(
            protocol_line(ResponseFormat::Delta, &new, None),
            "{\"protocol\":{\"deltaProtocol\":{\"minReaderVersion\":3,\"minWriterVersion\":7,\
             \"readerFeatures\":[],\"writerFeatures\":[]}}}\n"
        );
    }
}
