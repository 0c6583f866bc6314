//! The JSON shapes of the actions. Strings without escapes borrow from the line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::may_have_key;
use crate::actions::{
    DeletionVectorDescriptor, IncompleteVector, Metadata, Protocol, VectorFields, lenient_i64,
    lenient_optional_i32, lenient_optional_i64,
};

/// One line. By PROTOCOL it has one key; some writers write the others as null.
#[derive(serde::Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) add: Option<Box<FileJson<'a>>>,
    #[serde(borrow)]
    pub(super) remove: Option<Box<FileJson<'a>>>,
    #[serde(borrow)]
    pub(super) cdc: Option<Box<FileJson<'a>>>,
    pub(super) protocol: Option<Protocol>,
    #[serde(rename = "metaData")]
    pub(super) meta_data: Option<Box<MetadataJson>>,
    #[serde(rename = "commitInfo")]
    /// Any JSON by PROTOCOL.
    #[serde(borrow)]
    pub(super) commit_info: Option<&'a RawValue>,
}

/// An `add`, `remove` or `cdc`. Each has a part of these fields.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileJson<'a> {
    #[serde(borrow)]
    pub(super) path: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) partition_values: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    pub(super) size: Option<i64>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    pub(super) modification_time: Option<i64>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    pub(super) deletion_timestamp: Option<i64>,
    pub(super) data_change: Option<bool>,
    #[serde(borrow)]
    pub(super) stats: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "deletion_vector")]
    pub(super) deletion_vector: Option<Box<DeletionVectorDescriptor>>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    pub(super) base_row_id: Option<i64>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    pub(super) default_row_commit_version: Option<i64>,
    pub(super) clustering_provider: Option<String>,
    #[serde(borrow)]
    pub(super) tags: Option<&'a RawValue>,
    pub(super) extended_file_metadata: Option<bool>,
}

fn deletion_vector<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<DeletionVectorDescriptor>>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DeletionVectorJson {
        storage_type: Option<String>,
        path_or_inline_dv: Option<String>,
        #[serde(default, deserialize_with = "lenient_optional_i32")]
        offset: Option<i32>,
        #[serde(default, deserialize_with = "lenient_optional_i32")]
        size_in_bytes: Option<i32>,
        #[serde(default, deserialize_with = "lenient_optional_i64")]
        cardinality: Option<i64>,
    }
    let Some(json) = Option::<DeletionVectorJson>::deserialize(deserializer)? else { return Ok(None) };
    let fields = VectorFields {
        storage_type: json.storage_type.as_deref(),
        path_or_inline: json.path_or_inline_dv.as_deref(),
        offset: json.offset,
        size_in_bytes: json.size_in_bytes,
        cardinality: json.cardinality,
    };
    let vector = fields.vector();
    Ok(vector.map_err(|IncompleteVector| de::Error::custom("a deletionVector is incomplete"))?.map(Box::new))
}

/// Returns the in-commit timestamp of a `commitInfo`, if it is an object with one.
pub(super) fn in_commit_timestamp_ms(commit_info: &RawValue) -> Option<i64> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CommitInfoJson {
        #[serde(deserialize_with = "lenient_i64")]
        in_commit_timestamp: i64,
    }
    let info = commit_info.get();
    if !may_have_key(info.as_bytes(), "\"inCommitTimestamp\"") {
        return None;
    }
    serde_json::from_str::<CommitInfoJson>(info).ok().map(|info| info.in_commit_timestamp)
}

/// Returns whether a `commitInfo` is of a merge that inserted, updated and deleted no row. Spark may have written files
/// again all the same, which its own change data feed leaves out.
pub(super) fn is_merge_without_changes(commit_info: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CommitInfoJson<'a> {
        #[serde(borrow)]
        operation: Cow<'a, str>,
        operation_metrics: MetricsJson,
    }
    #[derive(serde::Deserialize)]
    struct MetricsJson {
        #[serde(rename = "numTargetRowsInserted", deserialize_with = "lenient_i64")]
        inserted: i64,
        #[serde(rename = "numTargetRowsUpdated", deserialize_with = "lenient_i64")]
        updated: i64,
        #[serde(rename = "numTargetRowsDeleted", deserialize_with = "lenient_i64")]
        deleted: i64,
    }
    let info = commit_info.get();
    if !info.contains("\"MERGE\"") {
        return false;
    }
    serde_json::from_str(info).is_ok_and(|CommitInfoJson { operation, operation_metrics }| {
        let MetricsJson { inserted, updated, deleted } = operation_metrics;
        operation == "MERGE" && [inserted, updated, deleted] == [0; 3]
    })
}

/// `metaData`, of a commit or of a checksum file.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetadataJson {
    #[serde(default)]
    id: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    format: FormatJson,
    schema_string: Option<String>,
    partition_columns: Option<Vec<String>>,
    #[serde(default, deserialize_with = "pairs")]
    configuration: Vec<(String, String)>,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    created_time: Option<i64>,
}

#[derive(Default, serde::Deserialize)]
struct FormatJson {
    provider: Option<String>,
    #[serde(default, deserialize_with = "pairs")]
    options: Vec<(String, String)>,
}

impl From<MetadataJson> for Metadata {
    fn from(json: MetadataJson) -> Self {
        Self {
            id: json.id,
            name: json.name,
            description: json.description,
            format_provider: json.format.provider.unwrap_or_else(|| "parquet".to_owned()),
            format_options: json.format.options,
            schema_string: json.schema_string.filter(|schema| !schema.is_empty()),
            partition_columns: json.partition_columns.unwrap_or_default(),
            configuration: json.configuration,
            created_time_ms: json.created_time,
        }
    }
}

/// Reads a map of strings in the log's order. A null map is empty, and a null value is skipped.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let entries = string_entries(raw.get()).map_err(de::Error::custom)?.unwrap_or_default();
    let present =
        entries.into_iter().filter_map(|(key, value)| Some((key.into_owned(), value?.into_owned())));
    Ok(present.collect())
}

/// A key and its value, `None` for null.
pub(super) type StringEntry<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

/// Returns the entries of a `partitionValues` or `tags` object with their values as text; `None` for null.
pub(super) fn string_entries(raw: &str) -> serde_json::Result<Option<Vec<StringEntry<'_>>>> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Option<Vec<StringEntry<'de>>>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map of strings")
        }
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some((key, value)) = map.next_entry::<BorrowedText<'de>, &'de RawValue>()? {
                entries.push((key.0, scalar_text(value.get()).map_err(de::Error::custom)?));
            }
            Ok(Some(entries))
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    let entries = deserializer.deserialize_any(Entries)?;
    deserializer.end()?;
    Ok(entries)
}

/// Returns the text of a value in a map of strings; `None` for null. Some writers write numbers and booleans without
/// quotes.
fn scalar_text(raw: &str) -> serde_json::Result<Option<Cow<'_, str>>> {
    match raw.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => Ok(Some(serde_json::from_str::<BorrowedText<'_>>(raw)?.0)),
        Some(b'{' | b'[') | None => Err(de::Error::custom("a value is no string")),
        Some(_) => Ok(Some(Cow::Borrowed(raw))),
    }
}

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);
