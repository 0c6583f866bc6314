//! Random tables: a schema, files with rows in them, and the statistics that one or another writer would keep.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::StringViewArray;
use deltalog::actions::{DeletionVectorDescriptor, FileBatch, PartitionColumn, PartitionTuple};
use deltalog::checkpoint::{RowGroupBounds, ValueBounds};
use deltalog::schema::{ColumnMapping, StructType};
use serde_json::{Map, Value as Json, json};

use crate::choices::Choices;
use crate::values::{TYPES, Type, Value, clock, date, decimal, draw, float};

#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// The name in predicates; one with a dot is inside a struct.
    pub(crate) name: &'static str,
    pub(crate) data_type: Type,
    pub(crate) is_partition: bool,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) files: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// One value for each column.
    pub(crate) rows: Vec<Vec<Option<Value>>>,
    /// Rows that the deletion vector leaves.
    pub(crate) live: Vec<bool>,
    partition_texts: Vec<Option<String>>,
    stats: Option<String>,
}

impl File {
    /// Returns the bounds in the footer of a checkpoint whose row group has only this file.
    pub(crate) fn as_row_group(&self, columns: &[Column]) -> RowGroupBounds {
        let bounds = |(column, text): (&Column, &Option<String>)| {
            let text = text.clone().filter(|text| !text.is_empty())?;
            // Bounds ignore NaN, and an instant's zone is unknown.
            let is_ordered = !matches!(column.data_type, Type::Float | Type::Double | Type::Timestamp);
            is_ordered.then(|| ValueBounds {
                min: text.clone(),
                max: text,
                has_nulls: false,
                is_text: matches!(column.data_type, Type::String),
            })
        };
        let partitions = columns.iter().filter(|column| column.is_partition);
        RowGroupBounds {
            partition_values: partitions.zip(&self.partition_texts).map(bounds).collect(),
            stats: self.stats.clone(),
        }
    }
}

pub(crate) fn draw_table(choices: &mut Choices<'_>) -> Table {
    let columns: Vec<Column> = ["p", "q", "a", "b", "s.c"]
        .into_iter()
        .enumerate()
        .map(|(index, name)| Column { name, data_type: *choices.of(&TYPES), is_partition: index < 2 })
        .collect();
    let files = (0..4 + choices.below(5)).map(|_| draw_file(choices, &columns)).collect();
    Table { columns, files }
}

fn draw_file(choices: &mut Choices<'_>, columns: &[Column]) -> File {
    let partition: Vec<Option<Value>> =
        columns.iter().map(|column| draw_partition_value(choices, column)).collect();
    let rows: Vec<Vec<Option<Value>>> = (0..=choices.below(4))
        .map(|_| {
            let value = |(column, own): (&Column, &Option<Value>)| {
                if column.is_partition {
                    return own.clone();
                }
                (!choices.one_in(4)).then(|| draw(choices, column.data_type))
            };
            columns.iter().zip(&partition).map(value).collect()
        })
        .collect();
    let has_vector = choices.one_in(3);
    let live = rows.iter().map(|_| !(has_vector && choices.one_in(2))).collect();
    let partition_texts = columns
        .iter()
        .zip(&partition)
        .filter(|(column, _)| column.is_partition)
        .map(|(column, value)| Some(partition_text(choices, column.data_type, value.as_ref()?)))
        .collect();
    let stats = (!choices.one_in(8)).then(|| draw_stats(choices, columns, &rows));
    File { rows, live, partition_texts, stats }
}

fn draw_partition_value(choices: &mut Choices<'_>, column: &Column) -> Option<Value> {
    (column.is_partition && !choices.one_in(5)).then(|| draw(choices, column.data_type))
}

fn partition_text(choices: &mut Choices<'_>, data_type: Type, value: &Value) -> String {
    match (data_type, value) {
        (Type::Timestamp, Value::Number(micros)) if choices.one_in(2) => clock(*micros, 'T', 6) + "Z",
        (Type::Timestamp, Value::Number(micros)) => {
            // In the local time of a writer.
            let hours = *choices.of(&[0, 14, -12, 2]);
            let micros = micros + hours * 3_600_000_000;
            clock(micros, ' ', if micros % 1_000_000 == 0 { 0 } else { 6 })
        }
        (Type::TimestampNtz, Value::Number(micros)) => clock(*micros, ' ', 6),
        (data_type, value) => plain_text(data_type, value),
    }
}

/// The text of a value that is no time.
pub(crate) fn plain_text(data_type: Type, value: &Value) -> String {
    match (data_type, value) {
        (Type::Boolean, Value::Number(value)) => (*value == 1).to_string(),
        (Type::Decimal(_, scale), Value::Number(value)) => decimal(*value, scale),
        (Type::Date, Value::Number(days)) => date(*days),
        (_, Value::Number(number)) => number.to_string(),
        (_, Value::Float(value)) => float(f64::from(*value), format!("{value:?}")),
        (_, Value::Double(value)) => float(*value, format!("{value:?}")),
        (_, Value::Text(text)) => text.clone(),
    }
}

fn draw_stats(choices: &mut Choices<'_>, columns: &[Column], rows: &[Vec<Option<Value>>]) -> String {
    let mut sections = [Map::new(), Map::new(), Map::new()];
    let is_wide = choices.one_in(4);
    for (index, column) in columns.iter().enumerate().filter(|(_, column)| !column.is_partition) {
        let values: Vec<&Value> = rows.iter().filter_map(|row| row[index].as_ref()).collect();
        let nulls = rows.len() - values.len();
        let (min, max) = bounds(choices, column.data_type, &values, is_wide);
        // A wide count may be any number except zero and all.
        let nulls = if is_wide && nulls > 0 && nulls < rows.len() { 1 } else { nulls };
        for (section, value) in sections.iter_mut().zip([min, max, Some(json!(nulls))]) {
            if let Some(value) = value.filter(|_| !choices.one_in(6)) {
                put(section, column.name, value);
            }
        }
    }
    let [min, max, nulls] = sections;
    let mut stats = format!(r#"{{"numRecords":{}"#, rows.len());
    for (name, section) in [("minValues", min), ("maxValues", max), ("nullCount", nulls)] {
        if !choices.one_in(12) {
            write!(stats, r#","{name}":{}"#, unquoted(&Json::Object(section))).unwrap();
        }
    }
    stats + &format!(r#","tightBounds":{}}}"#, !is_wide)
}

fn put(section: &mut Map<String, Json>, name: &str, value: Json) {
    match name.split_once('.') {
        None => drop(section.insert(name.to_owned(), value)),
        Some((outer, inner)) => {
            let nested = section.entry(outer).or_insert_with(|| json!({}));
            put(nested.as_object_mut().unwrap(), inner, value);
        }
    }
}

/// Numbers travel through `serde_json` as marked strings, so that no digit is lost.
fn raw(number: &str) -> Json {
    Json::String(format!("\u{1}{number}\u{1}"))
}

fn unquoted(json: &Json) -> String {
    json.to_string().replace("\"\\u0001", "").replace("\\u0001\"", "")
}

fn bounds(
    choices: &mut Choices<'_>,
    data_type: Type,
    values: &[&Value],
    is_wide: bool,
) -> (Option<Json>, Option<Json>) {
    // Spark counts NaN as the greatest, most others leave it out.
    let ignores_nan = choices.one_in(2);
    let mut ordered: Vec<&Value> =
        values.iter().filter(|value| !(ignores_nan && value.is_nan())).copied().collect();
    ordered.sort_by(|a, b| a.order(b));
    let (Some(min), Some(max)) = (ordered.first(), ordered.last()) else { return (None, None) };
    let (mut min, mut max) = ((*min).clone(), (*max).clone());
    if is_wide {
        let other = draw(choices, data_type);
        if other.order(&min).is_lt() {
            min = other;
        } else if other.order(&max).is_gt() {
            max = other;
        }
    }
    if data_type == Type::Boolean && choices.one_in(2) {
        return (None, None);
    }
    (Some(min_json(choices, data_type, &min)), Some(max_json(choices, data_type, &max)))
}

fn min_json(choices: &mut Choices<'_>, data_type: Type, min: &Value) -> Json {
    match min {
        Value::Text(text) => text.chars().take(32).collect::<String>().into(),
        _ => bound_json(choices, data_type, min),
    }
}

fn max_json(choices: &mut Choices<'_>, data_type: Type, max: &Value) -> Json {
    let Value::Text(text) = max else { return bound_json(choices, data_type, max) };
    let prefix: String = text.chars().take(32).collect();
    let units: Vec<u16> = text.encode_utf16().collect();
    if units.len() > 32 && choices.one_in(3) {
        return cut_in_utf16(&units).into();
    }
    if prefix == *text {
        return prefix.into();
    }
    match choices.below(3) {
        0 => prefix.into(),
        1 => (prefix + "\u{10ffff}").into(),
        _ => text.clone().into(),
    }
}

/// Cuts as Delta did when it counted in UTF-16: half a surrogate pair becomes a question mark.
fn cut_in_utf16(units: &[u16]) -> String {
    let (kept, cut) = units.split_at(32);
    let tied: Vec<u16> = cut.iter().copied().take_while(|unit| *unit >= 0xfffd).collect();
    let kept = String::from_utf16_lossy(kept).replace('\u{fffd}', "?");
    kept + &String::from_utf16_lossy(&tied) + "\u{fffd}"
}

fn bound_json(choices: &mut Choices<'_>, data_type: Type, bound: &Value) -> Json {
    match (data_type, bound) {
        (Type::Boolean, Value::Number(value)) => json!(*value == 1),
        (Type::Date, Value::Number(days)) => json!(date(*days)),
        (Type::Timestamp, Value::Number(micros)) => match choices.below(3) {
            0 => json!(clock(*micros, 'T', 3) + "Z"),
            1 => json!(clock(micros - 7 * 3_600_000_000, 'T', 3) + "-07:00"),
            _ => json!(clock(*micros, 'T', 6) + "Z"),
        },
        (Type::TimestampNtz, Value::Number(micros)) => json!(clock(*micros, 'T', 3)),
        (Type::Decimal(_, scale), Value::Number(unscaled)) => match choices.below(3) {
            0 => raw(&decimal(*unscaled, scale)),
            1 => raw(&format!("{unscaled}E-{scale}")),
            // Through a double, as some writers do.
            _ => raw(&format!("{:?}", decimal(*unscaled, scale).parse::<f64>().unwrap())),
        },
        (_, Value::Number(number)) => raw(&number.to_string()),
        (_, Value::Float(value)) if value.is_finite() => raw(&format!("{value:?}")),
        (_, Value::Double(value)) if value.is_finite() => raw(&format!("{value:?}")),
        (_, Value::Float(value)) => json!(float(f64::from(*value), String::new())),
        (_, Value::Double(value)) => json!(float(*value, String::new())),
        (_, Value::Text(_)) => unreachable!("strings are cut first"),
    }
}

impl Table {
    pub(crate) fn schema(&self) -> StructType {
        StructType::parse(&self.schema_string(), ColumnMapping::None).unwrap()
    }

    pub(crate) fn schema_string(&self) -> String {
        let field = |name: &str, data_type: Json| json!({"name": name, "type": data_type, "nullable": true, "metadata": {}});
        let fields: Vec<Json> = self
            .columns
            .iter()
            .map(|column| match column.name.split_once('.') {
                None => field(column.name, type_name(column.data_type).into()),
                Some((outer, inner)) => field(
                    outer,
                    json!({"type": "struct", "fields": [field(inner, type_name(column.data_type).into())]}),
                ),
            })
            .collect();
        json!({"type": "struct", "fields": fields}).to_string()
    }

    pub(crate) fn partition_columns(&self) -> Vec<String> {
        let partitions = self.columns.iter().filter(|column| column.is_partition);
        partitions.map(|column| column.name.to_owned()).collect()
    }

    pub(crate) fn batch(&self) -> FileBatch {
        let count = self.files.len();
        let tuple = |file: &File| {
            let values = file.partition_texts.iter().map(|text| text.as_deref().map(Box::from)).collect();
            Arc::new(PartitionTuple { values, json: b"{}".as_slice().into(), logged_json: None })
        };
        let vector = |file: &File| {
            let cardinality = file.live.iter().filter(|live| !**live).count() as i64;
            (cardinality > 0).then(|| {
                Box::new(DeletionVectorDescriptor {
                    storage_type: b'i',
                    path_or_inline: "x".into(),
                    offset: None,
                    size_in_bytes: 1,
                    cardinality,
                })
            })
        };
        FileBatch {
            path: StringViewArray::from_iter_values((0..count).map(|file| format!("{file}.parquet"))),
            size: vec![1; count].into(),
            partitions: PartitionColumn {
                dictionary: Arc::new(self.files.iter().map(tuple).collect()),
                keys: (0..count as u32).collect(),
            },
            deletion_vector: Some(self.files.iter().map(vector).collect()),
            ..FileBatch::of_stats(self.files.iter().map(|file| file.stats.as_deref()).collect())
        }
    }
}

pub(crate) fn type_name(data_type: Type) -> String {
    match data_type {
        Type::Boolean => "boolean".into(),
        Type::Long => "long".into(),
        Type::Integer => "integer".into(),
        Type::Decimal(digits, scale) => format!("decimal({digits},{scale})"),
        Type::Float => "float".into(),
        Type::Double => "double".into(),
        Type::Date => "date".into(),
        Type::Timestamp => "timestamp".into(),
        Type::TimestampNtz => "timestamp_ntz".into(),
        Type::String => "string".into(),
    }
}
