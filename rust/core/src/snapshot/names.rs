//! What a table's `partitionValues` are keyed by.

use std::borrow::Cow;

use crate::actions::Metadata;

#[derive(serde::Deserialize)]
struct SchemaJson<'a> {
    #[serde(borrow)]
    fields: Vec<FieldJson<'a>>,
}

#[derive(serde::Deserialize)]
struct FieldJson<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    metadata: FieldMetadataJson,
}

#[derive(Default, serde::Deserialize)]
struct FieldMetadataJson {
    #[serde(rename = "delta.columnMapping.physicalName")]
    physical_name: Option<String>,
}

/// The physical names of the partition columns, in the order of `partitionColumns`: the logical ones unless
/// column mapping is on. A schema that cannot be read leaves the logical names, so that files can be listed.
pub(crate) fn partition_names(metadata: &Metadata) -> Box<[Box<str>]> {
    let mode = metadata.property("delta.columnMapping.mode");
    let is_mapped = mode.is_some_and(|mode| !mode.eq_ignore_ascii_case("none"));
    let schema =
        metadata.schema_string.as_deref().filter(|_| is_mapped && !metadata.partition_columns.is_empty());
    let fields = schema.and_then(|schema| serde_json::from_str::<SchemaJson<'_>>(schema).ok());
    let fields = fields.map(|schema| schema.fields).unwrap_or_default();
    let physical = |column: &String| {
        let field = fields.iter().find(|field| field.name == *column);
        Box::from(field.and_then(|field| field.metadata.physical_name.as_deref()).unwrap_or(column))
    };
    metadata.partition_columns.iter().map(physical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(mode: &str, schema: Option<&str>) -> Vec<String> {
        let metadata = Metadata {
            schema_string: schema.map(str::to_owned),
            partition_columns: vec!["b".into(), "a".into()],
            configuration: vec![("delta.columnMapping.mode".into(), mode.into())],
            ..Metadata::default()
        };
        partition_names(&metadata).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn column_mapping_keys_partition_values_by_physical_names() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"a","type":{"type":"array","elementType":"x"},"nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}},
            {"name":"b","type":"string","nullable":true,"metadata":{}}]}"#;
        assert_eq!(names("name", Some(schema)), ["b", "col-1"]);
        assert_eq!(names("id", Some(schema)), ["b", "col-1"]);
        assert_eq!(names("none", Some(schema)), ["b", "a"]);
        assert_eq!(names("name", Some("nonsense")), ["b", "a"]);
        assert_eq!(names("name", None), ["b", "a"]);
    }
}
