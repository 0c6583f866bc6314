//! Checkpoints with typed columns instead of text.

use ::parquet::file::properties::WriterProperties;
use arrow_schema::{DataType, TimeUnit};

use super::*;
use writer::{Log, add_fields, schema_of, struct_of};

fn every_type() -> [(&'static str, DataType); 14] {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    [
        ("boolean", DataType::Boolean),
        ("byte", DataType::Int8),
        ("short", DataType::Int16),
        ("int", DataType::Int32),
        ("long", DataType::Int64),
        ("float", DataType::Float32),
        ("double", DataType::Float64),
        ("decimal", DataType::Decimal128(38, 5)),
        ("whole", DataType::Decimal128(9, 0)),
        ("date", DataType::Date32),
        ("timestamp", micros(Some("UTC"))),
        ("ntz", micros(None)),
        ("text", DataType::Utf8),
        ("binary", DataType::Binary),
    ]
}

fn low() -> Value {
    json!({
        "boolean": false, "byte": -128, "short": -32768, "int": -2_147_483_648, "long": i64::MIN, "float": 0.1,
        "double": -1.5e300, "decimal": "-123456789012345678901234567890123", "whole": "-7", "date": -1,
        "timestamp": -1000, "ntz": 0, "text": "a\"\\\n", "binary": "b\u{1}",
    })
}

fn high() -> Value {
    json!({
        "boolean": true, "byte": 127, "short": 32767, "int": 2_147_483_647, "long": i64::MAX, "float": 3.0,
        "double": "NaN", "decimal": "5", "whole": "0", "date": 19_782, "timestamp": 1_709_210_096_789_000_i64,
        "ntz": 1_709_210_096_789_123_i64, "text": "é", "binary": "",
    })
}

/// A checkpoint with one add a row, `stats` and `stats_parsed` as given.
fn stats_of(rows: &[(Value, Value)]) -> Vec<Option<String>> {
    let stats = struct_of([
        ("numRecords", DataType::Int64),
        ("minValues", struct_of(every_type())),
        ("maxValues", struct_of(every_type())),
        (
            "nullCount",
            struct_of([("nested", struct_of([("a\"b", DataType::Int64), ("c", DataType::Int64)]))]),
        ),
        ("tightBounds", DataType::Boolean),
    ]);
    let mut columns = add_fields();
    columns.push(("stats_parsed", stats));
    let mut actions = vec![protocol_row(), metadata_row(&[])];
    actions.extend(rows.iter().map(|(text, parsed)| {
        json!({"add": {"path": "p", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": false,
            "stats": text, "stats_parsed": parsed}})
    }));
    let log = Log::new();
    let batches = read(
        &open_classic(&log, &schema_of(&columns), &actions, WriterProperties::default()).unwrap(),
        everything(),
    )
    .unwrap();
    adds(&batches).iter().map(|add| add.2["stats"].as_str().map(str::to_owned)).collect()
}

#[test]
fn stats_are_written_from_their_typed_columns() {
    let parsed = json!({
        "numRecords": 3, "minValues": low(), "maxValues": high(),
        "nullCount": {"nested": {"a\"b": 0, "c": null}}, "tightBounds": true,
    });
    let expected = concat!(
        r#"{"numRecords":3,"minValues":{"boolean":false,"byte":-128,"short":-32768,"int":-2147483648,"#,
        r#""long":-9223372036854775808,"float":0.1,"double":-1.5e300,"#,
        r#""decimal":-1234567890123456789012345678.90123,"whole":-7,"date":"1969-12-31","#,
        r#""timestamp":"1969-12-31T23:59:59.999Z","ntz":"1970-01-01T00:00:00.000","text":"a\"\\\n","#,
        r#""binary":"b\u0001"},"#,
        r#""maxValues":{"boolean":true,"byte":127,"short":32767,"int":2147483647,"#,
        r#""long":9223372036854775807,"float":3.0,"double":"NaN","decimal":0.00005,"whole":0,"#,
        r#""date":"2024-02-29","timestamp":"2024-02-29T12:34:56.789Z","ntz":"2024-02-29T12:34:56.789123","#,
        r#""text":"é","binary":""},"nullCount":{"nested":{"a\"b":0}},"tightBounds":true}"#,
    );
    assert_eq!(stats_of(&[(Value::Null, parsed)]), [Some(expected.to_owned())]);
}

#[test]
fn null_leaves_and_structs_of_them_are_left_out_and_a_file_without_stats_has_none() {
    let parsed = [
        json!({"numRecords": 3, "minValues": {"int": null}, "maxValues": {"int": 1}, "nullCount": null}),
        json!({"minValues": {"text": "x"}, "nullCount": {"nested": {}}}),
        json!({"minValues": {}, "nullCount": {"nested": {"c": null}}}),
        Value::Null,
    ];
    let expected = [
        Some(r#"{"numRecords":3,"maxValues":{"int":1}}"#.to_owned()),
        Some(r#"{"minValues":{"text":"x"}}"#.to_owned()),
        None,
        None,
    ];
    let rows = parsed.map(|parsed| (Value::Null, parsed));
    assert_eq!(stats_of(&rows), expected);
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(stats_of(std::slice::from_ref(row)), std::slice::from_ref(expected));
    }
}

#[test]
fn where_a_file_has_its_stats_as_text_they_win() {
    let parsed = json!({"numRecords": 3});
    let rows = [
        (json!("{\"numRecords\":1}"), parsed.clone()),
        (Value::Null, parsed.clone()),
        (json!("not even json"), Value::Null),
        (Value::Null, Value::Null),
    ];
    let expected = [Some("{\"numRecords\":1}"), Some("{\"numRecords\":3}"), Some("not even json"), None];
    assert_eq!(stats_of(&rows), expected.map(|text| text.map(str::to_owned)));
    assert_eq!(stats_of(&rows[..1]), [Some("{\"numRecords\":1}".to_owned())]);
}

#[test]
fn partition_values_are_serialized_from_their_typed_columns() {
    let columns: Vec<_> = add_fields()
        .into_iter()
        .filter(|(name, _)| *name != "partitionValues")
        .chain([("partitionValues_parsed", struct_of(every_type()))])
        .collect();
    let names = every_type().map(|(name, _)| name);
    let add = |values: Value| {
        json!({"add": {"path": "p", "size": 1, "modificationTime": 1, "dataChange": false,
            "partitionValues_parsed": values}})
    };
    let actions = [protocol_row(), metadata_row(&names), add(low()), add(high()), add(json!({"text": ""}))];
    let log = Log::new();
    let checkpoint = open_classic(&log, &schema_of(&columns), &actions, WriterProperties::default()).unwrap();
    let found = adds(&read(&checkpoint, everything()).unwrap());
    let expected_low = json!({
        "boolean": "false", "byte": "-128", "short": "-32768", "int": "-2147483648",
        "long": "-9223372036854775808", "float": "0.1", "double": "-1.5e300",
        "decimal": "-1234567890123456789012345678.90123", "whole": "-7", "date": "1969-12-31",
        "timestamp": "1969-12-31T23:59:59.999000Z", "ntz": "1970-01-01 00:00:00", "text": "a\"\\\n",
        "binary": "b\u{1}",
    });
    let expected_high = json!({
        "boolean": "true", "byte": "127", "short": "32767", "int": "2147483647", "long": "9223372036854775807",
        "float": "3.0", "double": "NaN", "decimal": "0.00005", "whole": "0", "date": "2024-02-29",
        "timestamp": "2024-02-29T12:34:56.789000Z", "ntz": "2024-02-29 12:34:56.789123", "text": "é",
        "binary": null,
    });
    assert_eq!(found[0].2["partitionValues"], expected_low);
    assert_eq!(found[1].2["partitionValues"], expected_high);
    assert!(found[2].2["partitionValues"].as_object().unwrap().values().all(Value::is_null));

    let keep = |tuple: &PartitionTuple| tuple.values[3].as_deref() == Some("2147483647");
    let options = ReadOptions { keep_tuple: Some(Arc::new(keep)), ..everything() };
    assert_eq!(adds(&read(&checkpoint, options).unwrap()), found[1..2]);
}

#[test]
fn typed_partition_values_that_lack_a_column_are_a_corrupt_log() {
    let columns: Vec<_> = add_fields()
        .into_iter()
        .filter(|(name, _)| *name != "partitionValues")
        .chain([("partitionValues_parsed", struct_of([("p", DataType::Utf8)]))])
        .collect();
    let add = json!({"add": {"path": "a", "size": 1, "modificationTime": 1, "dataChange": false,
        "partitionValues_parsed": {"p": "x"}}});
    let keep = |tuple: &PartitionTuple| tuple.values.iter().any(Option::is_some);
    let filtered = ReadOptions { keep_tuple: Some(Arc::new(keep)), ..everything() };
    for (names, is_read) in [(&["p"][..], true), (&["p", "q"], false), (&["q"], false)] {
        let log = Log::new();
        let actions = [protocol_row(), metadata_row(names), add.clone()];
        let checkpoint = open_classic(&log, &schema_of(&columns), &actions, WriterProperties::default());
        for options in [everything(), filtered.clone()] {
            let found = read(checkpoint.as_ref().unwrap(), options);
            let is_corrupt = matches!(&found, Err(Error::CorruptLog { .. }));
            assert_eq!((found.is_ok(), is_corrupt), (is_read, !is_read), "{names:?}");
        }
    }
}

/// A part whose row groups hold two adds each, with all columns typed; `None` is an action that is no add.
fn bounded(rows: &[Option<(Value, Value)>]) -> (Log, Checkpoint) {
    let values = struct_of(every_type());
    let stats = struct_of([
        ("numRecords", DataType::Int64),
        ("minValues", struct_of([("nested", values.clone())])),
        ("maxValues", struct_of([("nested", values.clone())])),
        (
            "nullCount",
            struct_of([("nested", struct_of([("int", DataType::Int64), ("text", DataType::Int64)]))]),
        ),
    ]);
    let mut columns = add_fields();
    columns.extend([("stats_parsed", stats), ("partitionValues_parsed", values)]);
    let mut actions = vec![protocol_row(), metadata_row(&["date", "text", "decimal", "double"])];
    actions.extend(rows.iter().map(|row| match row {
        Some((partition, stats)) => json!({"add": {
            "path": "p", "partitionValues": {"date": "text wins"}, "size": 1, "modificationTime": 1,
            "dataChange": false, "stats": null, "stats_parsed": stats, "partitionValues_parsed": partition,
        }}),
        None => json!({"remove": {"path": "p"}}),
    }));
    let log = Log::new();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(2)).build();
    let checkpoint = open_classic(&log, &schema_of(&columns), &actions, properties).unwrap();
    (log, checkpoint)
}

#[test]
fn a_row_group_is_bounded_by_its_typed_columns_and_skipped_where_they_cannot_match() {
    let file = |date: i32, text: &str, decimal: &str| {
        let values = json!({"date": date, "text": text, "decimal": decimal, "double": 1.0, "int": date,
            "timestamp": 1_709_210_096_789_000_i64});
        let stats = json!({"numRecords": 3, "minValues": {"nested": values}, "maxValues": {"nested": values},
            "nullCount": {"nested": {"int": 0, "text": date}}});
        Some((values, stats))
    };
    let without_stats = |date: i32| Some((json!({"date": date, "text": null}), Value::Null));
    let rows = [
        file(19_782, "b", "-5"),
        file(19_783, "a", "1200000"),
        file(3, "x", "7"),
        None,
        file(4, "y", "7"),
        without_stats(5),
    ];
    let (_log, checkpoint) = bounded(&rows);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log_of_bounds = Arc::clone(&seen);
    let may_match = move |bounds: &RowGroupBounds| {
        let mut seen = log_of_bounds.lock().unwrap();
        seen.push(bounds.clone());
        seen.len() != 2
    };
    let options = ReadOptions { may_match: Some(Arc::new(may_match)), ..everything() };
    let found = adds(&read(&checkpoint, options).unwrap());
    assert_eq!(found.iter().map(|add| add.1).collect::<Vec<_>>(), [2, 3, 6, 7]);

    let bound = |min: &str, max: &str, has_nulls| {
        let is_text = min.bytes().all(|byte| byte.is_ascii_lowercase());
        Some(ValueBounds { min: min.to_owned(), max: max.to_owned(), has_nulls, is_text })
    };
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3, "the row group without adds is not asked about");
    let expected = [
        bound("2024-02-29", "2024-03-01", false),
        bound("a", "b", false),
        bound("-0.00005", "12.00000", false),
        None,
    ];
    assert_eq!(seen[0].partition_values, expected);
    let stats = seen[0].stats.as_deref().unwrap();
    assert_eq!(
        stats,
        concat!(
            r#"{"minValues":{"nested":{"int":19782,"decimal":-0.00005,"date":"2024-02-29","#,
            r#""timestamp":"2024-02-29T12:34:56.789Z","text":"a"}},"#,
            r#""maxValues":{"nested":{"int":19783,"decimal":12.00000,"date":"2024-03-01","#,
            r#""timestamp":"2024-02-29T12:34:56.789Z","text":"b"}},"nullCount":{"nested":{"int":0}}}"#,
        )
    );
    // The remove beside it has no values either.
    assert_eq!(seen[1].partition_values[0], bound("1970-01-04", "1970-01-04", false));
    assert!(seen[1].stats.is_some());
    assert_eq!(seen[2].partition_values[0], bound("1970-01-05", "1970-01-06", false));
    assert_eq!(seen[2].partition_values[1], bound("y", "y", true));
    assert_eq!(seen[2].stats, None, "a file without stats has no bounds");
}
