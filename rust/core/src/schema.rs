//! A table's schema: the `schemaString` of its metadata as typed columns.
//!
//! Takes the JSON of a struct type (PROTOCOL, section Schema Serialization Format) and the column mapping mode. Returns
//! fields with logical and physical names, and [`Column`]s resolved by the names that clients use. An unknown type
//! becomes [`DataType::Unknown`] and never fails a query. Nesting is bounded; deeper types are unknown as well.

mod column_metadata;
mod names;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::actions::Metadata;
use crate::error::{Error, Result};
pub(crate) use column_metadata::ColumnMetadata;
pub(crate) use names::Names;

/// Maximum nesting; deeper types are [`DataType::Unknown`].
const MAX_DEPTH: usize = 64;

/// The table property of the [`ColumnMapping`].
pub(crate) const COLUMN_MAPPING_MODE: &str = "delta.columnMapping.mode";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// How logical column names map to those in the data files (PROTOCOL, section Column Mapping).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColumnMapping {
    /// Physical names are the logical ones.
    #[default]
    None,
    /// By field id; partition values and statistics still use physical names.
    Id,
    /// By physical name.
    Name,
}

impl ColumnMapping {
    /// Returns the mode in the table's properties.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        match metadata.property(COLUMN_MAPPING_MODE) {
            Some(mode) if mode.eq_ignore_ascii_case("id") => Self::Id,
            Some(mode) if mode.eq_ignore_ascii_case("name") => Self::Name,
            _ => Self::None,
        }
    }
}

/// A type without children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum PrimitiveType {
    Boolean,
    Byte,
    Short,
    Integer,
    Long,
    Float,
    Double,
    /// Exact numbers with at most 38 digits, `scale` of them after the point.
    Decimal {
        precision: u8,
        scale: u8,
    },
    String,
    Binary,
    Date,
    /// An instant, in microseconds.
    Timestamp,
    /// A local date and time, in microseconds.
    TimestampNtz,
    Variant,
    Void,
}

impl PrimitiveType {
    /// Parses a type name: `long`, `decimal(10,2)`, `timestamp_ntz`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" => Self::Boolean,
            "byte" => Self::Byte,
            "short" => Self::Short,
            "integer" => Self::Integer,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "string" => Self::String,
            "binary" => Self::Binary,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp,
            "timestamp_ntz" => Self::TimestampNtz,
            "variant" => Self::Variant,
            "void" | "null" => Self::Void,
            "decimal" => Self::Decimal { precision: 10, scale: 0 },
            _ => return Self::parse_decimal(name),
        })
    }

    fn parse_decimal(name: &str) -> Option<Self> {
        let inner = name.strip_prefix("decimal(")?.strip_suffix(')')?;
        let (precision, scale) = inner.split_once(',').unwrap_or((inner, "0"));
        let precision: u8 = precision.trim().parse().ok()?;
        let scale: u8 = scale.trim().parse().ok()?;
        (precision <= 38 && scale <= precision).then_some(Self::Decimal { precision, scale })
    }
}

impl std::fmt::Display for PrimitiveType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Boolean => "boolean",
            Self::Byte => "byte",
            Self::Short => "short",
            Self::Integer => "integer",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Decimal { precision, scale } => return write!(formatter, "decimal({precision},{scale})"),
            Self::String => "string",
            Self::Binary => "binary",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::TimestampNtz => "timestamp_ntz",
            Self::Variant => "variant",
            Self::Void => "void",
        };
        formatter.write_str(name)
    }
}

/// The type of a field, an element, a key or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// A type without children.
    Primitive(PrimitiveType),
    /// Named fields, shared by the columns that are resolved.
    Struct(Arc<StructType>),
    /// The element's type.
    Array(Box<DataType>),
    /// The key's and the value's type.
    Map(Box<(DataType, DataType)>),
    /// An unknown type, by its name if any.
    Unknown(String),
}

/// A named column, at the top or inside a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructField {
    /// The logical name.
    pub name: String,
    /// The physical name in partition values, statistics and data files.
    pub physical_name: String,
    /// The type.
    pub data_type: DataType,
    /// Whether it may be null.
    pub nullable: bool,
    /// Whether strings compare as their bytes do: false with a collation or blank-padded `char(n)`, of a struct also
    /// if one of its fields has it.
    pub binary_order: bool,
    /// Whether the type was widened from `float`: statistics of older files are printed as floats.
    pub widened_from_float: bool,
}

/// The fields of a struct, in order; the whole schema is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StructType {
    /// In the schema's order.
    pub fields: Vec<StructField>,
}

/// A resolved column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Logical names from the top, spelled as in the schema.
    pub logical: Vec<String>,
    /// The same path in partition values and statistics.
    pub physical: Vec<String>,
    /// Its type.
    pub data_type: DataType,
    /// [`StructField::binary_order`] of all fields of the path.
    pub binary_order: bool,
    /// [`StructField::widened_from_float`] of the last field.
    pub widened_from_float: bool,
    /// Whether a struct around it may be null.
    pub in_nullable_struct: bool,
}

/// The reason why a name resolves to no column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    /// No column has this name.
    Missing,
    /// Several columns match the name.
    Ambiguous,
}

impl StructType {
    /// Parses the schema of a metaData action.
    pub fn of(metadata: &Metadata) -> Result<Self> {
        let schema = metadata.schema_string.as_deref().ok_or(Error::MissingSchema)?;
        Self::parse(schema, ColumnMapping::of(metadata))
    }

    /// Parses a `schemaString`.
    pub fn parse(schema_string: &str, mapping: ColumnMapping) -> Result<Self> {
        let raw: &RawValue = serde_json::from_str(schema_string).map_err(|_| malformed())?;
        match parse_type(raw, mapping, MAX_DEPTH)? {
            DataType::Struct(schema) => Ok(Arc::unwrap_or_clone(schema)),
            _ => Err(malformed()),
        }
    }

    /// Returns the column at a path. Each part is the exact name of a field, or matches only one field when
    /// case is ignored.
    pub fn resolve(&self, parts: &[impl AsRef<str>]) -> Result<Column, Unresolved> {
        find_path(&self.fields, parts, find)
    }

    /// Returns the column of a name: a field with exactly this name (which may contain dots), or a path of fields.
    pub fn resolve_dotted(&self, name: &str) -> Result<Column, Unresolved> {
        resolve_dotted(name, |parts| self.resolve(parts))
    }
}

/// As [`StructType::resolve`], by a function that finds the field of a struct.
fn find_path<'a>(
    fields: &'a [StructField],
    parts: &[impl AsRef<str>],
    mut find: impl FnMut(&'a [StructField], &str) -> Result<&'a StructField, Unresolved>,
) -> Result<Column, Unresolved> {
    let mut fields = fields;
    let mut path = Vec::new();
    for part in parts {
        let field = find(fields, part.as_ref())?;
        path.push(field);
        fields = match &field.data_type {
            DataType::Struct(inner) => &inner.fields,
            _ => &[],
        };
    }
    let last = path.last().ok_or(Unresolved::Missing)?;
    Ok(Column {
        logical: path.iter().map(|field| field.name.clone()).collect(),
        physical: path.iter().map(|field| field.physical_name.clone()).collect(),
        data_type: last.data_type.clone(),
        binary_order: path.iter().all(|field| field.binary_order),
        widened_from_float: last.widened_from_float,
        in_nullable_struct: path.iter().rev().skip(1).any(|field| field.nullable),
    })
}

/// As [`StructType::resolve_dotted`], by a function that resolves a path.
fn resolve_dotted(
    name: &str,
    mut resolve: impl FnMut(&[String]) -> Result<Column, Unresolved>,
) -> Result<Column, Unresolved> {
    let whole = resolve(&[name.to_owned()]);
    if !name.contains('.') {
        return whole;
    }
    let path = resolve(&split_dotted(name));
    match (whole, path) {
        (Ok(_), Ok(_)) | (Err(Unresolved::Ambiguous), _) | (_, Err(Unresolved::Ambiguous)) => {
            Err(Unresolved::Ambiguous)
        }
        (Ok(column), Err(_)) | (Err(_), Ok(column)) => Ok(column),
        (Err(_), Err(_)) => Err(Unresolved::Missing),
    }
}

/// Returns an error if a partition column is not in the schema: no reader would know its values. A schema that cannot be
/// parsed or has no columns decides nothing.
pub(crate) fn check_partition_columns(metadata: &Metadata) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Schema<'a> {
        #[serde(borrow)]
        fields: Vec<Field<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct Field<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let schema = metadata.schema_string.as_deref().filter(|_| !metadata.partition_columns.is_empty());
    let Some(Ok(Schema { fields })) = schema.map(serde_json::from_str) else { return Ok(()) };
    let is_missing = |column: &&String| fields.iter().all(|field| field.name != **column);
    match metadata.partition_columns.iter().find(is_missing) {
        Some(column) if !fields.is_empty() => {
            Err(Error::corrupt("metaData", format!("its schema lacks the partition column '{column}'")))
        }
        _ => Ok(()),
    }
}

/// The keys of `partitionValues`, in the order of `partitionColumns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionNames {
    /// The columns' physical names.
    pub(crate) columns: Arc<[Box<str>]>,
    /// The physical names that are in the schema although column mapping is off; empty if there are none.
    pub(crate) left_behind: Arc<[Box<str>]>,
}

impl PartitionNames {
    /// Returns all names by which a value may be found.
    pub(crate) fn all(&self) -> Arc<[Box<str>]> {
        if self.left_behind.is_empty() {
            return Arc::clone(&self.columns);
        }
        self.columns.iter().chain(self.left_behind.iter()).cloned().collect()
    }

    /// Returns the names of a version. If the schema cannot be parsed, these are the logical names, so that files can
    /// still be listed.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let is_mapped = ColumnMapping::of(metadata) != ColumnMapping::None;
        let columns = if is_mapped { physical_partition_names(metadata) } else { None };
        let logical = || metadata.partition_columns.iter().map(|column| Box::from(column.as_str())).collect();
        Self {
            columns: columns.unwrap_or_else(logical).into(),
            left_behind: names_left_behind(metadata).into(),
        }
    }
}

/// Returns the physical names of the partition columns if column mapping is off and one of them has another name.
fn names_left_behind(metadata: &Metadata) -> Box<[Box<str>]> {
    // The text is searched first: few schemas have these names, and parsing takes its time.
    let may_have_names = ColumnMapping::of(metadata) == ColumnMapping::None
        && metadata.schema_string.as_deref().is_some_and(|schema| schema.contains(PHYSICAL_NAME));
    let names = if may_have_names { physical_partition_names(metadata) } else { None };
    let is_other = |names: &[Box<str>]| {
        names.iter().zip(&metadata.partition_columns).any(|(name, column)| **name != **column)
    };
    names.filter(|names| is_other(names)).unwrap_or_default()
}

/// Returns the physical names in the schema, whatever the mode of column mapping is.
fn physical_partition_names(metadata: &Metadata) -> Option<Box<[Box<str>]>> {
    let schema = metadata.schema_string.as_deref().filter(|_| !metadata.partition_columns.is_empty())?;
    let fields = StructType::parse(schema, ColumnMapping::Name).ok()?.fields;
    let physical = |column: &String| {
        let field = fields.iter().find(|field| field.name == *column);
        Box::from(field.map_or(column.as_str(), |field| &field.physical_name))
    };
    Some(metadata.partition_columns.iter().map(physical).collect())
}

fn find<'a>(fields: &'a [StructField], name: &str) -> Result<&'a StructField, Unresolved> {
    if let Some(field) = fields.iter().find(|field| field.name == name) {
        return Ok(field);
    }
    let mut alike = fields.iter().filter(|field| differs_in_case(&field.name, name));
    match (alike.next(), alike.next()) {
        (Some(field), None) => Ok(field),
        (Some(_), Some(_)) => Err(Unresolved::Ambiguous),
        (None, _) => Err(Unresolved::Missing),
    }
}

fn differs_in_case(name: &str, other: &str) -> bool {
    if name.is_ascii() && other.is_ascii() {
        return name.eq_ignore_ascii_case(other);
    }
    may_be_alike(name, other) && name.to_lowercase() == other.to_lowercase()
}

/// Returns whether texts of these lengths may be equal in lower case, in which a character has a third of its bytes to
/// one and a half times as many.
fn may_be_alike(name: &str, other: &str) -> bool {
    name.len().max(other.len()) / 5 <= name.len().min(other.len())
}

/// Splits at dots outside of back quotes. Inside, a doubled back quote is an escaped one.
fn split_dotted(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(last) = parts.last_mut() else { break };
        match character {
            '`' if quoted && characters.peek() == Some(&'`') => {
                characters.next();
                last.push('`');
            }
            '`' if quoted || last.is_empty() => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => last.push(other),
        }
    }
    parts
}

fn malformed() -> Error {
    Error::corrupt("metaData", "the schema is not the JSON of a struct type")
}

#[derive(Deserialize)]
struct RawType<'a> {
    #[serde(borrow, rename = "type")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields: Option<Vec<RawField<'a>>>,
    #[serde(borrow, default, rename = "elementType")]
    element: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "keyType")]
    key: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "valueType")]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawField<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    data_type: &'a RawValue,
    #[serde(default)]
    nullable: Option<bool>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct RawMetadata<'a> {
    #[serde(borrow, default, rename = "delta.columnMapping.physicalName")]
    physical_name: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "delta.typeChanges")]
    type_changes: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "__CHAR_VARCHAR_TYPE_STRING")]
    char_or_varchar: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "__COLLATIONS")]
    collations: Option<&'a RawValue>,
}

fn parse_type(raw: &RawValue, mapping: ColumnMapping, depth_left: usize) -> Result<DataType> {
    let text = raw.get();
    if text.starts_with('"') {
        let name: Cow<'_, str> = serde_json::from_str(text).map_err(|_| malformed())?;
        return Ok(PrimitiveType::parse(&name)
            .map_or_else(|| DataType::Unknown(name.into_owned()), DataType::Primitive));
    }
    if depth_left == 0 {
        return Ok(DataType::Unknown("nested too deep".into()));
    }
    let Ok(raw) = serde_json::from_str::<RawType<'_>>(text) else {
        return Ok(DataType::Unknown(String::new()));
    };
    let child = |raw: &RawValue| parse_type(raw, mapping, depth_left - 1);
    let name = raw.name.unwrap_or_default();
    Ok(match (&*name, raw.fields, raw.element, raw.key, raw.value) {
        ("struct", Some(fields), ..) => {
            let fields = fields.into_iter().map(|field| parse_field(field, mapping, depth_left - 1));
            DataType::Struct(Arc::new(StructType { fields: fields.collect::<Result<_>>()? }))
        }
        ("array", _, Some(element), ..) => DataType::Array(Box::new(child(element)?)),
        ("map", _, _, Some(key), Some(value)) => DataType::Map(Box::new((child(key)?, child(value)?))),
        _ => DataType::Unknown(name.into_owned()),
    })
}

/// Returns whether a type such as `struct<a:char(5),b:varchar(9)>` has a `char(n)`. Spark states the types of all fields
/// of a struct at the top column.
fn has_char(data_type: &str) -> bool {
    data_type.match_indices("char(").any(|(at, _)| !data_type[..at].ends_with("var"))
}

fn parse_field(raw: RawField<'_>, mapping: ColumnMapping, depth_left: usize) -> Result<StructField> {
    let metadata: RawMetadata<'_> =
        raw.metadata.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let name = raw.name.into_owned();
    let physical_name = match (mapping, metadata.physical_name) {
        (ColumnMapping::Id | ColumnMapping::Name, Some(physical)) => physical.into_owned(),
        _ => name.clone(),
    };
    let padded = metadata.char_or_varchar.is_some_and(|raw| has_char(raw.get()));
    Ok(StructField {
        name,
        physical_name,
        data_type: parse_type(raw.data_type, mapping, depth_left)?,
        nullable: raw.nullable.unwrap_or(true),
        binary_order: !padded && metadata.collations.is_none(),
        widened_from_float: metadata.type_changes.is_some_and(|raw| raw.get().contains("\"float\"")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(fields: &str) -> StructType {
        StructType::parse(&format!(r#"{{"type":"struct","fields":[{fields}]}}"#), ColumnMapping::None)
            .unwrap()
    }

    fn field(name: &str, data_type: &str) -> String {
        format!(r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":{{}}}}"#)
    }

    #[test]
    fn every_primitive_has_a_name_that_reads_back() {
        for name in
            "boolean byte short integer long float double decimal(38,18) string binary date timestamp timestamp_ntz variant void"
                .split(' ')
        {
            let schema = parse(&field("c", &format!("\"{name}\"")));
            let DataType::Primitive(primitive) = &schema.fields[0].data_type else { panic!("{name}") };
            assert_eq!(primitive.to_string(), name);
        }
    }

    #[test]
    fn unknown_types_are_kept_and_do_not_fail() {
        for name in [r#""geometry(4326)""#, r#"{"type":"udt","sqlType":{}}"#, "7", r#""decimal(99,1)""#] {
            let schema = parse(&field("c", name));
            assert!(matches!(schema.fields[0].data_type, DataType::Unknown(_)), "{name}");
        }
    }

    #[test]
    fn nesting_without_end_is_bounded() {
        let mut data_type = "\"long\"".to_owned();
        for _ in 0..10_000 {
            data_type = format!(r#"{{"type":"array","elementType":{data_type},"containsNull":true}}"#);
        }
        let schema = parse(&field("c", &data_type));
        assert!(matches!(schema.fields[0].data_type, DataType::Array(_)));
    }

    #[test]
    fn names_resolve_exactly_first_and_then_in_any_case() {
        let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, field("Zip", "\"string\""));
        let schema =
            parse(&[field("Id", "\"long\""), field("address", &inner), field("x.y", "\"date\"")].join(","));
        assert_eq!(schema.resolve_dotted("ID").unwrap().logical, ["Id"]);
        assert_eq!(schema.resolve_dotted("ADDRESS.zip").unwrap().physical, ["address", "Zip"]);
        assert_eq!(schema.resolve_dotted("X.y").unwrap().logical, ["x.y"]);
        assert_eq!(schema.resolve_dotted("`address`.`zip`").unwrap().logical, ["address", "Zip"]);
        assert_eq!(schema.resolve_dotted("address.city"), Err(Unresolved::Missing));
        assert_eq!(schema.resolve_dotted("id.zip"), Err(Unresolved::Missing));
        let twins = parse(&[field("a", "\"long\""), field("A", "\"string\"")].join(","));
        assert_eq!(twins.resolve_dotted("A").unwrap().logical, ["A"]);
        let three = parse(&[field("aB", "\"long\""), field("AB", "\"string\"")].join(","));
        assert_eq!(three.resolve_dotted("ab"), Err(Unresolved::Ambiguous));
    }

    #[test]
    fn physical_names_count_only_with_column_mapping() {
        let json = r#"{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,
            "metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}}]}"#;
        let mapped = StructType::parse(json, ColumnMapping::Name).unwrap();
        assert_eq!(mapped.resolve(&["A"]).unwrap().physical, ["col-1"]);
        let plain = StructType::parse(json, ColumnMapping::None).unwrap();
        assert_eq!(plain.resolve(&["A"]).unwrap().physical, ["a"]);
    }

    #[test]
    fn padded_and_collated_strings_do_not_compare_as_bytes() {
        let json = r#"{"type":"struct","fields":[
            {"name":"a","type":"string","nullable":true,"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"char(5)"}},
            {"name":"b","type":"string","nullable":true,"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(5)"}},
            {"name":"c","type":"string","nullable":true,"metadata":{"__COLLATIONS":{"c":"spark.UTF8_LCASE"}}}]}"#;
        let schema = StructType::parse(json, ColumnMapping::None).unwrap();
        assert_eq!(schema.fields.iter().map(|f| f.binary_order).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn padded_strings_of_a_struct_do_not_compare_as_bytes() {
        for (types, is_binary) in [("c:char(5),v:varchar(9)", false), ("c:varchar(5),v:varchar(9)", true)] {
            let json = format!(
                r#"{{"type":"struct","fields":[{{"name":"s","type":{{"type":"struct","fields":[
                {{"name":"c","type":"string","nullable":true,"metadata":{{}}}}]}},"nullable":true,
                "metadata":{{"__CHAR_VARCHAR_TYPE_STRING":"struct<{types}>"}}}}]}}"#
            );
            let schema = StructType::parse(&json, ColumnMapping::None).unwrap();
            assert_eq!(schema.resolve(&["s", "c"]).unwrap().binary_order, is_binary, "{types}");
        }
    }

    #[test]
    fn a_schema_that_is_no_struct_is_an_error() {
        for text in ["", "null", "[]", "\"long\"", "{\"type\":\"array\",\"elementType\":\"long\"}"] {
            assert!(StructType::parse(text, ColumnMapping::None).is_err(), "{text}");
        }
    }

    #[test]
    fn a_partition_column_that_is_not_in_the_schema_is_an_error() {
        let schema = "{\"type\":\"struct\",\"fields\":[{\"name\":\"\\u0061\",\"type\":\"long\"}]}";
        for (columns, is_known) in
            [(vec!["a"], true), (vec!["A"], false), (vec!["a", "z"], false), (vec![], true)]
        {
            let partition_columns: Vec<_> = columns.into_iter().map(str::to_owned).collect();
            let schema_string = Some(schema.to_owned());
            let metadata = Metadata { schema_string, partition_columns, ..Metadata::default() };
            assert_eq!(check_partition_columns(&metadata).is_ok(), is_known, "{metadata:?}");
        }
    }

    fn names(mode: &str, schema: Option<&str>) -> Vec<String> {
        let metadata = Metadata {
            schema_string: schema.map(str::to_owned),
            partition_columns: vec!["b".into(), "a".into()],
            configuration: vec![("delta.columnMapping.mode".into(), mode.into())],
            ..Metadata::default()
        };
        let PartitionNames { columns, left_behind } = PartitionNames::of(&metadata);
        columns.iter().chain(left_behind.iter()).map(ToString::to_string).collect()
    }

    #[test]
    fn column_mapping_keys_partition_values_by_physical_names() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"a","type":{"type":"array","elementType":"x"},"nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}},
            {"name":"b","type":"string","nullable":true,"metadata":{}}]}"#;
        assert_eq!(names("name", Some(schema)), ["b", "col-1"]);
        assert_eq!(names("id", Some(schema)), ["b", "col-1"]);
        assert_eq!(names("none", Some(schema)), ["b", "a", "b", "col-1"]);
        assert_eq!(names("none", Some(&schema.replace("col-1", "a"))), ["b", "a"]);
        assert_eq!(names("name", Some("nonsense")), ["b", "a"]);
        assert_eq!(names("name", None), ["b", "a"]);
    }
}
