//! The JSON shapes of the actions. Strings without escapes borrow from the line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::may_have_key;
use crate::actions::{DeletionVectorDescriptor, IncompleteVector, Metadata, Protocol, VectorFields};

/// One line. By PROTOCOL it has one key; some writers write the others as null.
#[derive(serde::Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) add: Option<Box<FileJson<'a>>>,
    #[serde(borrow)]
    pub(super) remove: Option<Box<FileJson<'a>>>,
    #[serde(borrow)]
    pub(super) cdc: Option<Box<FileJson<'a>>>,
    pub(super) protocol: Option<ProtocolJson>,
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

/// `protocol` of a commit.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProtocolJson {
    #[serde(deserialize_with = "lenient_i32")]
    min_reader_version: i32,
    #[serde(deserialize_with = "lenient_i32")]
    min_writer_version: i32,
    reader_features: Option<Vec<String>>,
    writer_features: Option<Vec<String>>,
}

impl From<ProtocolJson> for Protocol {
    fn from(json: ProtocolJson) -> Self {
        Self {
            min_reader_version: json.min_reader_version,
            min_writer_version: json.min_writer_version,
            reader_features: json.reader_features,
            writer_features: json.writer_features,
        }
    }
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
    #[serde(default)]
    configuration: Pairs,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    created_time: Option<i64>,
}

#[derive(Default, serde::Deserialize)]
struct FormatJson {
    provider: Option<String>,
    #[serde(default)]
    options: Pairs,
}

/// A map of strings in the log's order. A null map is empty, and a null value is skipped.
#[derive(Default)]
struct Pairs(Vec<(String, String)>);

impl From<MetadataJson> for Metadata {
    fn from(json: MetadataJson) -> Self {
        Self {
            id: json.id,
            name: json.name,
            description: json.description,
            format_provider: json.format.provider.unwrap_or_else(|| "parquet".to_owned()),
            format_options: json.format.options.0,
            schema_string: json.schema_string.filter(|schema| !schema.is_empty()),
            partition_columns: json.partition_columns.unwrap_or_default(),
            configuration: json.configuration.0,
            created_time_ms: json.created_time,
        }
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    let value = scalar_text(value.get()).map_err(de::Error::custom)?;
                    pairs.extend(value.map(|value| (key, value.into_owned())));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(PairsVisitor)
    }
}

/// Parses an integer in any notation: `12`, `12.0`, `1.2E1`, `"12"`.
pub(crate) fn lenient_i64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    deserializer.deserialize_any(WholeNumber)
}

/// Parses the same as [`lenient_i64`], and null as `None`.
pub(crate) fn lenient_optional_i64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i64>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Whole(#[serde(deserialize_with = "lenient_i64")] i64);
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|Whole(number)| number))
}

/// Parses the same as [`lenient_i64`], if it fits.
fn lenient_i32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    narrow(lenient_i64(deserializer)?)
}

fn lenient_optional_i32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    lenient_optional_i64(deserializer)?.map(narrow).transpose()
}

fn narrow<E: de::Error>(value: i64) -> Result<i32, E> {
    let unexpected = de::Unexpected::Signed(value);
    i32::try_from(value).map_err(|_| E::invalid_value(unexpected, &"a whole number of 32 bits"))
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number of 64 bits")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<i64, E> {
        // Doubles represent every integer up to 2^53 only.
        let is_exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        if is_exact { Ok(value as i64) } else { Err(E::invalid_value(de::Unexpected::Float(value), &self)) }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<i64, E> {
        value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
    }
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
