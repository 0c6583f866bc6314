//! Files that a condition must drop and files that it must keep, by name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::StringViewArray;
use deltalog::actions::{DeletionVectorDescriptor, FileBatch, PartitionColumn, PartitionTuple};
use deltalog::predicate::{
    HintProblem, Hints, Limit, PartitionVerdicts, Predicate, PruneCounts, Scope, StatsBudget, StatsCache,
};
use deltalog::schema::{ColumnMapping, StructType};
use proptest::prelude::*;
use serde_json::json;

/// A schema of `name type` lines; a type may be JSON.
fn schema(fields: &[(&str, &str)]) -> StructType {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, data_type)| {
            let parsed: serde_json::Value =
                serde_json::from_str(data_type).unwrap_or_else(|_| json!(data_type));
            json!({"name": name, "type": parsed, "nullable": true, "metadata": {}})
        })
        .collect();
    let text = json!({"type": "struct", "fields": fields}).to_string();
    StructType::parse(&text, ColumnMapping::None).unwrap()
}

pub(crate) fn one_file(stats: Option<&str>, partition: &[Option<&str>]) -> FileBatch {
    let values = partition.iter().map(|value| value.map(Box::from)).collect();
    FileBatch {
        path: StringViewArray::from(vec!["f"]),
        size: vec![1].into(),
        partitions: PartitionColumn {
            dictionary: Arc::new(vec![Arc::new(PartitionTuple {
                values,
                json: b"{}".as_slice().into(),
                logged_json: None,
            })]),
            keys: vec![0].into(),
        },
        ..FileBatch::of_stats(StringViewArray::from(vec![stats]))
    }
}

fn by_sql(sql: &str) -> Hints {
    Hints { sql: vec![sql.to_owned()], json: None }
}

fn by_json(tree: &serde_json::Value) -> Hints {
    Hints { sql: vec![], json: Some(tree.to_string()) }
}

/// A comparison of the column `c` with a literal, each of its type, as a JSON hint.
fn compared(op: &str, column_type: &str, value_type: &str, value: &str) -> serde_json::Value {
    json!({"op": op, "children": [
        {"op": "column", "name": "c", "valueType": column_type},
        {"op": "literal", "value": value, "valueType": value_type}]})
}

fn is_kept(predicate: &Predicate, batch: &FileBatch) -> bool {
    let mut counts = PruneCounts::default();
    let rows = vec![0];
    let stats = StatsCache::cached();
    !predicate.select(batch, &stats, rows, &mut PartitionVerdicts::default(), &mut counts).is_empty()
}

/// Whether a file is kept whose column `c` of this type has these bounds, as JSON.
fn keeps(data_type: &str, min: &str, max: &str, sql: &str) -> bool {
    let stats = format!(
        r#"{{"numRecords":9,"minValues":{{"c":{min}}},"maxValues":{{"c":{max}}},"nullCount":{{"c":0}}}}"#
    );
    let (predicate, problems) = Predicate::bind(&by_sql(sql), &schema(&[("c", data_type)]), &[]);
    assert_eq!(problems, [], "{sql}");
    is_kept(&predicate, &one_file(Some(&stats), &[]))
}

/// The same for a value of a partition column `c`.
fn keeps_partition(data_type: &str, value: Option<&str>, sql: &str) -> bool {
    let (predicate, problems) =
        Predicate::bind(&by_sql(sql), &schema(&[("c", data_type)]), &["c".to_owned()]);
    assert_eq!(problems, [], "{sql}");
    let batch = one_file(None, &[value]);
    let kept = is_kept(&predicate, &batch);
    assert_eq!(kept, predicate.keep_tuple(&batch.partitions.dictionary[0]), "{sql}");
    kept
}

fn problems(fields: &[(&str, &str)], sql: &[&str], json: Option<&str>) -> (Predicate, Vec<HintProblem>) {
    let hints = Hints { sql: sql.iter().map(ToString::to_string).collect(), json: json.map(str::to_owned) };
    Predicate::bind(&hints, &schema(fields), &[])
}

/// What a JSON hint does to a file with these statistics of a column `c`.
fn outcome(data_type: &str, hint: &str, stats: &str) -> &'static str {
    let (predicate, problems) = problems(&[("c", data_type)], &[], Some(hint));
    match (is_kept(&predicate, &one_file(Some(stats), &[])), problems.is_empty()) {
        (true, true) => "kept",
        (false, true) => "dropped",
        (true, false) => "unknown",
        (false, false) => "dropped and reported",
    }
}

#[test]
fn bounds_that_exclude_a_condition_drop_the_file_and_no_others() {
    for (data_type, min, max, kept, dropped) in [
        ("long", "10", "20", "c = 10", "c = 9"),
        ("long", "10", "20", "c > 19", "c > 20"),
        ("long", "10", "20", "c >= 20", "c >= 21"),
        ("long", "10", "20", "c < 11", "c < 10"),
        ("long", "10", "20", "c <= 10", "c <= 9"),
        ("long", "10", "10", "c <> 11", "c <> 10"),
        ("long", "10", "10", "NOT c = 9", "NOT c = 10"),
        ("long", "10", "10", "NOT (c <=> 9)", "NOT (c <=> 10)"),
        ("long", "10", "20", "c IN (1, 15, 99)", "c IN (1, 9, 21)"),
        ("long", "10", "10", "c NOT IN (11, NULL) OR c = 10", "c NOT IN (11, NULL)"),
        ("long", "10", "20", "c BETWEEN 20 AND 30", "c BETWEEN 21 AND 30"),
        ("long", "10", "20", "c NOT BETWEEN 11 AND 30", "c NOT BETWEEN 10 AND 30"),
        ("long", "10", "20", "c IS NOT NULL", "c IS NULL"),
        ("long", "10", "20", "c > 5 AND c < 15", "c > 15 AND c < 15"),
        ("long", "10", "20", "c > 1.5", "c < 9.5"),
        ("long", "10", "20", "c = 10.0", "c = 10.5"),
        ("long", "1E+1", "2e1", "c = 20", "c = 21"),
        ("long", "10", "20", "c < 1e300D", "c > 1e300D"),
        ("long", "10", "20", "c = CAST('15' AS INT)", "c = CAST('25' AS INT)"),
        ("long", "10", "20", "15 = c", "25 = c"),
        ("long", "10", "20", "c = '15'", "c = '25'"),
        ("long", "10", "20", "1 = 1 AND c = 15", "1 = 2"),
        ("short", "10", "20", "c = 9223372036854775807 OR c = 12", "c = 9223372036854775807"),
        ("decimal(10,2)", "1.50", "2.5", "c >= 2.5", "c > 2.50"),
        ("decimal(10,2)", "1.50", "2.5", "c < 1.501", "c <= 1.499"),
        ("decimal(38,0)", "9007199254740993", "12345678901234567890", "c = 9007199254740993", "c < 1"),
        ("decimal(20,2)", "1E+2", "1E+2", "c = 100", "c = 100.01"),
        ("double", "1.5", "2.5", "c <= 1.5", "c < 1.5"),
        ("double", "-0.0", "-0.0", "c = 0.0", "c < 0"),
        ("double", "1.5", "\"Infinity\"", "c = 1e308", "c <= 1"),
        ("double", "1.5", "2.5", "c >= 2.5 AND c < 9", "c > 2.5 AND c < 9"),
        ("double", "1.5", "2.5", "c BETWEEN 2 AND 3", "c BETWEEN 3 AND 4"),
        ("float", "0.1", "3.4", "c = 3.4F", "c = 3.5F"),
        ("date", "\"2021-01-01\"", "\"2021-01-31\"", "c = '2021-01-31'", "c = '2021-02-01'"),
        ("date", "\"2021-01-01\"", "\"2021-01-31\"", "c < DATE '2021-01-02'", "c < DATE '2021-01-01'"),
        ("date", "\"2021-01-01\"", "\"2021-01-31\"", "c > '+1970-1-1'", "c >= '+10000-01-01'"),
        (
            "timestamp",
            "\"2021-01-01T00:00:00.000Z\"",
            "\"2021-01-01T00:00:00.123Z\"",
            "c >= '2021-01-01T00:00:00.123999Z'",
            "c >= '2021-01-01T00:00:00.124Z'",
        ),
        (
            "timestamp",
            "\"2021-01-01T00:00:00.000+02:00\"",
            "\"2021-01-01T00:00:00.000+02:00\"",
            "c = '2020-12-31 22:00:00Z'",
            "c = '2021-01-01 00:00:00Z'",
        ),
        (
            "timestamp_ntz",
            "\"2021-01-01T00:00:00.000\"",
            "\"2021-01-01T01:00:00.000\"",
            "c = TIMESTAMP_NTZ '2021-01-01 01:00:00'",
            "c = TIMESTAMP_NTZ '2021-01-01 02:00:00'",
        ),
        ("timestamp_ntz", "\"2024-09-09\"", "\"2024-09-09\"", "c = '2024-09-09'", "c = '2024-09-10'"),
        ("string", "\"DE\"", "\"US\"", "c = 'FR'", "c = 'USA'"),
        ("string", "\"DE\"", "\"US\"", "c LIKE 'U%'", "c LIKE 'V%'"),
        ("string", "\"DE\"", "\"US\"", "c LIKE 'U%x'", "c LIKE 'V%x'"),
        ("string", "\"DEa\"", "\"DEz\"", "c NOT LIKE 'DEa%'", "c NOT LIKE 'DE%'"),
        ("string", "\"DE\"", "\"US\"", "c LIKE 'DE'", "c LIKE 'D'"),
        ("string", "\"é\"", "\"é\"", "c > 'z'", "c < 'z'"),
        ("string", "\"a\\\"b\"", "\"a\\u0062\"", "c = 'ab'", "c = 'ac'"),
        ("string", "\"a\"", "\"it's\"", "c = 'it''s'", "c = 'j'"),
        ("boolean", "false", "false", "NOT c", "c"),
        ("boolean", "true", "true", "c = true", "c = false"),
    ] {
        assert!(keeps(data_type, min, max, kept), "{data_type} {min}..{max} was dropped for {kept}");
        assert!(!keeps(data_type, min, max, dropped), "{data_type} {min}..{max} was kept for {dropped}");
    }
}

#[test]
fn bounds_that_prove_less_than_they_say_keep_the_file() {
    let long = "\"0123456789abcdefghijklmnopqrstuv\"";
    for (data_type, min, max, sql) in [
        // A maximum of 32 characters may be the beginning of the true one.
        ("string", "\"0\"", long, "c = '0123456789abcdefghijklmnopqrstuvwxyz'"),
        // Not every tie-breaker is greater than what was cut off.
        ("string", "\"0\"", "\"abc\\ufffd\"", "c = 'abc😀'"),
        // Half a surrogate pair became a question mark.
        (
            "string",
            "\"0\"",
            "\"123456789abcdefghijklmnopqrstuv?\\ufffd\"",
            "c = '123456789abcdefghijklmnopqrstuv😀'",
        ),
        // Statistics may leave NaN out.
        ("double", "1.5", "2.5", "c > 100"),
        ("float", "1.5", "2.5", "c <> 1.5 AND c > 3"),
        ("double", "1.5", "2.5", "c = CAST('NaN' AS DOUBLE)"),
        // A decimal that went through a double.
        ("decimal(38,20)", "0.3", "0.3", "c = 0.30000000000000000001"),
        // Spark compares a decimal with a string as doubles.
        ("decimal(38,20)", "0.30000000000000000009", "0.30000000000000000009", "c = '0.3'"),
        // Contradictory bounds are ignored.
        ("long", "20", "10", "c = 5"),
        ("string", "\"b\"", "\"a\"", "c = 'x'"),
        // A timestamp without a zone is one of the client's session: east of UTC these rows match.
        (
            "timestamp",
            "\"2024-03-04T23:30:00.000Z\"",
            "\"2024-03-04T23:30:00.000Z\"",
            "c >= '2024-03-05 13:00:00'",
        ),
        ("timestamp", "\"2021-01-01T08:00:00.000Z\"", "\"2021-01-01T08:00:00.000Z\"", "c = '2021-01-01'"),
        (
            "timestamp",
            "\"2021-01-01T08:00:00.000Z\"",
            "\"2021-01-01T08:00:00.000Z\"",
            "c = TIMESTAMP '2021-01-01 00:00:00'",
        ),
        (
            "timestamp",
            "\"2021-01-01T08:00:00.000Z\"",
            "\"2021-01-01T08:00:00.000Z\"",
            "c < DATE '2021-01-01'",
        ),
        // Spark cuts the nanoseconds of a constant off.
        (
            "timestamp",
            "\"2024-03-01T00:00:00.000Z\"",
            "\"2024-03-01T00:00:00.000Z\"",
            "c = '2024-03-01 00:00:00.000999500Z'",
        ),
        (
            "timestamp_ntz",
            "\"2024-03-01T00:00:00.000\"",
            "\"2024-03-01T00:00:00.000\"",
            "c >= TIMESTAMP_NTZ '2024-03-01 00:00:00.000999500'",
        ),
        // A float that was widened to double, or not.
        ("float", "3.4", "3.4", "c > 3.4"),
        ("float", "3.4", "3.4", "c = 3.4"),
        // The same long for several doubles.
        ("long", "9007199254740993", "9007199254740993", "c = 9007199254740992D"),
        // Unreadable bounds.
        ("long", "\"x\"", "[1]", "c = 5"),
        ("date", "18628", "18628", "c = '1970-01-01'"),
        ("string", "5", "5", "c = 'x'"),
        ("string", "\"\\ud800\"", "\"\\ud800\"", "c = 'x'"),
    ] {
        assert!(keeps(data_type, min, max, sql), "{data_type} {min}..{max} was dropped for {sql}");
    }
}

#[test]
fn partition_values_are_compared_in_the_type_of_their_column() {
    for (data_type, value, kept, dropped) in [
        ("string", "US", "c = 'US'", "c = 'us'"),
        ("string", "10", "c < '9'", "c > '9'"),
        ("integer", "10", "c > 9", "c < 9"),
        ("integer", "10", "c = 10", "c IS NULL"),
        ("long", "-5", "c IN (-5)", "c NOT IN (-5)"),
        ("date", "2021-04-29", "c = '2021-04-29'", "c < '2021-04-29'"),
        ("date", "2021-04-29", "c >= DATE '2021-4-29'", "c >= TIMESTAMP '2021-05-01 00:00:01'"),
        ("boolean", "true", "c", "NOT c"),
        ("double", "1.5", "c = 1.5", "c > 1.5"),
        ("double", "NaN", "c > 1e300", "c < 1e300"),
        ("double", "-0.0", "c = 0", "c < 0"),
        ("decimal(38,18)", "12.000000000000000000", "c = 12", "c = 12.000000000000000001"),
        (
            "timestamp",
            "1970-01-02T08:45:00.000000Z",
            "c = '1970-01-02T08:45:00Z'",
            "c > '1970-01-02 08:45:00Z'",
        ),
        ("timestamp", "1970-01-02 08:45:00", "c = '1970-01-02T10:45:00Z'", "c = '1970-01-04T00:00:00Z'"),
        (
            "timestamp_ntz",
            "2013-07-05 17:01:00.123456",
            "c > '2013-07-05 17:01:00'",
            "c > '2013-07-05 17:01:01'",
        ),
        (
            "timestamp_ntz",
            "2013-07-05 17:01:00.123456789",
            "c = '2013-07-05 17:01:00.123456'",
            "c > '2013-07-05 17:01:00.123457'",
        ),
        ("binary", "\u{1}", "c IS NOT NULL", "c IS NULL"),
    ] {
        assert!(keeps_partition(data_type, Some(value), kept), "{value} was dropped for {kept}");
        assert!(!keeps_partition(data_type, Some(value), dropped), "{value} was kept for {dropped}");
        for null in [None, Some("")] {
            assert!(keeps_partition(data_type, null, "c IS NULL"), "{data_type}");
            assert!(!keeps_partition(data_type, null, "c IS NOT NULL"), "{data_type}");
            if data_type != "binary" {
                assert!(!keeps_partition(data_type, null, kept), "{data_type}: null for {kept}");
            }
        }
    }
    assert!(keeps_partition("string", None, "c <=> NULL"));
    assert!(keeps_partition("integer", Some("not a number"), "c = 1 OR c IS NULL"));
}

#[test]
fn null_counts_prove_only_none_and_all() {
    let keeps = |data_type, stats: &str, sql: &str| {
        let (predicate, _) = Predicate::bind(&by_sql(sql), &schema(&[("c", data_type)]), &[]);
        is_kept(&predicate, &one_file(Some(stats), &[]))
    };
    for (stats, is_null, is_not_null, equal) in [
        (r#"{"numRecords":3,"nullCount":{"c":0}}"#, false, true, true),
        (r#"{"numRecords":3,"nullCount":{"c":3}}"#, true, false, false),
        (r#"{"numRecords":3,"nullCount":{"c":2},"tightBounds":false}"#, true, true, true),
        (r#"{"nullCount":{"c":3}}"#, true, true, true),
        (r#"{"numRecords":3}"#, true, true, true),
        (r#"{"numRecords":0,"nullCount":{"c":0}}"#, false, true, true),
        (r#"{"numRecords":3,"nullCount":{"c":4}}"#, true, true, true),
        // Converted tables have the counts of their data files, which some releases of Polars multiply.
        (r#"{"numRecords":3,"minValues":{"c":5},"nullCount":{"c":3}}"#, true, true, true),
        (r#"{"numRecords":3,"minValues":{"c":5},"maxValues":{"c":5},"nullCount":{"c":3}}"#, true, true, true),
        ("", true, true, true),
        ("{", true, true, true),
        (r#"{"numRecords":3,"nullCount":{"c":0}"#, true, true, true),
        ("null", true, true, true),
    ] {
        assert_eq!(keeps("long", stats, "c IS NULL"), is_null, "{stats}");
        assert_eq!(keeps("long", stats, "c IS NOT NULL"), is_not_null, "{stats}");
        assert_eq!(keeps("long", stats, "c = 5"), equal, "{stats}");
        assert_eq!(keeps("binary", stats, "c IS NULL"), is_null, "{stats}");
    }
    let array = r#"{"type":"array","elementType":"long","containsNull":true}"#;
    assert!(keeps(array, r#"{"numRecords":3,"nullCount":{"c":3}}"#, "c IS NOT NULL"));
}

#[test]
fn nested_and_renamed_columns_are_found_in_statistics() {
    let text = json!({"type": "struct", "fields": [{"name": "s", "nullable": true,
        "metadata": {"delta.columnMapping.physicalName": "col-1"},
        "type": {"type": "struct", "fields": [{"name": "Inner \"x\"", "type": "long", "nullable": true,
            "metadata": {"delta.columnMapping.physicalName": "col-\"2\""}}]}}]})
    .to_string();
    let schema = StructType::parse(&text, ColumnMapping::Name).unwrap();
    let stats = r#"{"numRecords":1,"minValues":{"s":{"z":1},"col-0":{"col-1":[{"}":1}]},"col-1":{"x":"}","col-\"2\"":10}},
        "maxValues":{"col-1":{"col-\u00222\"":20}}}"#;
    let keeps = |sql: &str| {
        let (predicate, problems) = Predicate::bind(&by_sql(sql), &schema, &[]);
        assert_eq!(problems, []);
        is_kept(&predicate, &one_file(Some(stats), &[]))
    };
    assert!(keeps("S.`inner \"X\"` = 20"));
    assert!(keeps("catalog.db.s.`Inner \"x\"` = 10"));
    assert!(!keeps("s.`Inner \"x\"` > 20"));
    assert!(!keeps("s.`Inner \"x\"` < 10"));
}

#[test]
fn doubles_that_were_floats_have_bounds_in_floats_spelling() {
    let text = json!({"type": "struct", "fields": [{"name": "c", "type": "double", "nullable": true,
        "metadata": {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}}]})
    .to_string();
    let schema = StructType::parse(&text, ColumnMapping::None).unwrap();
    let stats = r#"{"numRecords":1,"minValues":{"c":0.7},"maxValues":{"c":3.4},"nullCount":{"c":0}}"#;
    let keeps =
        |sql: &str| is_kept(&Predicate::bind(&by_sql(sql), &schema, &[]).0, &one_file(Some(stats), &[]));
    assert!(keeps(&format!("c = {:?}D", f64::from(3.4_f32))));
    assert!(keeps(&format!("c = {:?}D", f64::from(0.7_f32))));
    assert!(!keeps("c = 3.5D"));
}

#[test]
fn an_undecidable_condition_keeps_files_and_the_others_still_prune() {
    let fields = [("a", "long"), ("b", "long"), ("t", "string"), ("bin", "binary")];
    let stats = r#"{"numRecords":1,"minValues":{"a":1,"b":1},"maxValues":{"a":9,"b":9},"nullCount":{"a":0}}"#;
    for (sql, kept) in [
        ("abs(a) = 1", true),
        ("a = b", true),
        ("a + 1 = 99", true),
        ("nothere = 1", true),
        ("bin = 'x'", true),
        ("t = 5", true),
        ("CAST(a AS STRING) = '5'", true),
        ("CAST(a AS INT) = 99", true),
        ("CAST(a AS DECIMAL(18, 0)) IS NULL", true),
        ("abs(a) = 1 AND a = 99", false),
        ("abs(a) = 1 OR a = 99", true),
        ("NOT (abs(a) = 1 OR a < 99)", false),
        ("t = 5 AND b > 9", false),
    ] {
        let (predicate, problems) = problems(&fields, &[sql], None);
        assert_eq!(problems.len(), 1, "{sql}: {problems:?}");
        assert_eq!(is_kept(&predicate, &one_file(Some(stats), &[])), kept, "{sql}");
    }
}

#[test]
fn a_cast_that_holds_every_value_of_the_column_prunes() {
    let fields = [("a", "integer"), ("d", "decimal(10,2)")];
    let stats =
        r#"{"numRecords":1,"minValues":{"a":1,"d":1},"maxValues":{"a":9,"d":9},"nullCount":{"a":0,"d":0}}"#;
    for sql in [
        "CAST(a AS INT) = 99",
        "CAST(a AS BIGINT) = 99",
        "CAST(a AS DECIMAL(10, 0)) = 99",
        "CAST(a AS DOUBLE) = 99",
        "CAST(d AS DECIMAL(12, 4)) = 99",
        "CAST(d AS DECIMAL(12, 2)) IS NULL",
    ] {
        let (predicate, problems) = problems(&fields, &[sql], None);
        assert_eq!(problems, []);
        assert!(!is_kept(&predicate, &one_file(Some(stats), &[])), "{sql}");
    }
    let (predicate, found) = problems(&fields, &["CAST(d AS DECIMAL(10, 4)) IS NULL"], None);
    assert_eq!(found[0].reason, "a value of column 'd' may exceed decimal(10,4)");
    assert!(is_kept(&predicate, &one_file(Some(stats), &[])));
}

#[test]
fn a_text_that_may_be_a_name_or_null_as_a_time_is_not_tested_for_null() {
    let fields = [("c", "string")];
    let stats = r#"{"numRecords":1,"nullCount":{"c":1}}"#;
    for (sql, is_undecided) in [
        (r#""c" IS NULL"#, true),
        (r#""c" IS NOT NULL"#, true),
        (r#"isnull("c")"#, true),
        (r#"NOT ("c" IS NOT NULL)"#, true),
        ("CAST('soon' AS DATE) IS NULL", true),
        ("TIMESTAMP 'soon' IS NULL", true),
        ("5 IS NULL", false),
        ("NOT (NULL IS NULL)", false),
        ("c IS NOT NULL", false),
    ] {
        let (predicate, problems) = problems(&fields, &[sql], None);
        assert_eq!(problems.len(), usize::from(is_undecided), "{sql}: {problems:?}");
        assert_eq!(is_kept(&predicate, &one_file(Some(stats), &[])), is_undecided, "{sql}");
    }
}

#[test]
fn a_literal_of_json_that_may_be_null_is_not_tested_for_null() {
    let stats = r#"{"numRecords":1,"nullCount":{"c":1}}"#;
    for (value, value_type, expected) in [
        ("soon", "timestamp", "unknown"),
        ("2024-01-01T00:00:00Z", "timestamp", "dropped"),
        ("soon", "date", "unknown"),
        ("c", "string", "unknown"),
        ("soon", "double", "unknown"),
        ("soon", "decimal(5,2)", "unknown"),
        ("1.5", "double", "dropped"),
        ("1.50", "decimal(5,2)", "dropped"),
        ("5", "int", "dropped"),
        ("true", "bool", "dropped"),
    ] {
        let literal = json!({"op": "literal", "value": value, "valueType": value_type});
        let hint = json!({"op": "isNull", "children": [literal]}).to_string();
        assert_eq!(outcome("string", &hint, stats), expected, "{value} as {value_type}");
    }
}

#[test]
fn a_constant_that_is_rounded_to_a_value_keeps_its_files() {
    let fields = [("a", "long"), ("d", "decimal(20,19)")];
    let stats =
        r#"{"numRecords":1,"minValues":{"a":1,"d":0.12},"maxValues":{"a":1,"d":0.1234567890123456789}}"#;
    let file = one_file(Some(stats), &[]);
    for (sql, kept) in [
        // They are 1 as doubles, and as a float.
        ("a = 0.99999999999999999999D", true),
        ("a >= 1.00000000000000000001D", true),
        ("a = 1.0000000001F", true),
        ("a = 1.5D", false),
        ("a < 0.9D", false),
        ("a = 0.99999999999999999999BD", false),
    ] {
        assert_eq!(is_kept(&problems(&fields, &[sql], None).0, &file), kept, "{sql}");
    }
    // A number in JSON is a double: this one is read as 0.12345678901234568. So may the bound have been.
    let at_least = |value: &str| {
        let column = r#"{"op":"column","name":"d","valueType":"decimal(20,19)"}"#;
        let literal = format!(r#"{{"op":"literal","value":{value},"valueType":"decimal(20,19)"}}"#);
        format!(r#"{{"op":"greaterThanOrEqual","children":[{column},{literal}]}}"#)
    };
    for (value, kept) in [
        ("0.1234567890123456789", true),
        ("\"0.1234567890123456789\"", true),
        ("\"0.1234567890123456790\"", true),
        ("\"0.1234567890124\"", false),
        ("0.2", false),
    ] {
        assert_eq!(is_kept(&problems(&fields, &[], Some(&at_least(value))).0, &file), kept, "{value}");
    }
}

#[test]
fn a_failing_hint_is_skipped_alone_with_a_reason() {
    let fields = [("a", "long")];
    let stats = r#"{"numRecords":1,"minValues":{"a":1},"maxValues":{"a":9}}"#;
    let wrapped = r#"{"jsonPredicateHints":{"op":"equal","children":[]}}"#;
    let (predicate, found) = problems(&fields, &["a ==== 1", "a > 9", "b\n = 1"], Some(wrapped));
    let shown: Vec<(&str, &str)> = found.iter().map(|problem| (&*problem.hint, &*problem.reason)).collect();
    assert_eq!(
        shown,
        [
            ("predicateHints[0]", "unexpected '==' at 4"),
            ("predicateHints[2]", "no column 'b'"),
            (
                "jsonPredicateHints",
                "the tree is wrapped in an object 'jsonPredicateHints'; send the tree itself"
            ),
        ]
    );
    assert!(!is_kept(&predicate, &one_file(Some(stats), &[])));
    let (predicate, found) = problems(&fields, &["a = `\r\nX-Evil: 1`"], None);
    assert!(predicate.is_trivial());
    assert!(found.iter().all(|problem| problem.reason.bytes().all(|byte| (32..127).contains(&byte))));
}

#[test]
fn a_predicate_of_too_many_conditions_is_capped_with_a_problem() {
    let pairs: Vec<String> = (0..2000).map(|n| format!("(a = {n} OR b = {n})")).collect();
    let stats = r#"{"numRecords":1,"minValues":{"a":-9,"b":-9},"maxValues":{"a":-1,"b":-1}}"#;
    let (predicate, found) = problems(&[("a", "long"), ("b", "long")], &[&pairs.join(" AND ")], None);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].reason, "of more than 1000 conditions the last prune nothing");
    assert!(!is_kept(&predicate, &one_file(Some(stats), &[])));
    let (predicate, found) = problems(&[("a", "long"), ("b", "long")], &[&pairs.join(" OR ")], None);
    assert_eq!(found, []);
    assert!(!is_kept(&predicate, &one_file(Some(stats), &[])));
    let (_, found) = problems(&[], &vec!["?"; 10_000], None);
    assert_eq!(found.len(), 32);
}

#[test]
fn both_kinds_of_hints_must_hold() {
    let json = r#"{"op":"lessThan","children":[{"op":"column","name":"A","valueType":"int"},{"op":"literal","value":"9","valueType":"int"}]}"#;
    let hints = Hints { sql: vec!["a > 1".into()], json: Some(json.into()) };
    let (predicate, found, conjuncts) = Predicate::explained(&hints, &schema(&[("a", "long")]), &[]);
    assert_eq!(found, []);
    let texts: Vec<_> = conjuncts.iter().map(|conjunct| &*conjunct.text).collect();
    assert_eq!(texts, ["`a` > 1", "`A` < 9"]);
    for (bound, kept) in [(1, false), (2, true), (8, true), (9, false)] {
        let stats = json!({"numRecords": 1, "minValues": {"a": bound}, "maxValues": {"a": bound}});
        assert_eq!(is_kept(&predicate, &one_file(Some(&stats.to_string()), &[])), kept, "{bound}");
    }
}

#[test]
fn conjuncts_have_their_scope() {
    let hints = Hints {
        sql: vec!["p = 1 AND a > 5 AND (p = 2 OR a = 3) AND f(a) AND 1 = 1".into(), "s.b IS NULL".into()],
        json: None,
    };
    let inner =
        r#"{"type":"struct","fields":[{"name":"b","type":"decimal(10,2)","nullable":true,"metadata":{}}]}"#;
    let schema = schema(&[("p", "long"), ("a", "double"), ("s", inner)]);
    let (predicate, _, conjuncts) = Predicate::explained(&hints, &schema, &["p".to_owned()]);
    let conjuncts: Vec<_> = conjuncts.iter().map(|one| (one.scope, one.columns.join(", "))).collect();
    assert_eq!(
        conjuncts,
        [
            (Scope::Partition, "p long".to_owned()),
            (Scope::Statistics, "a double".to_owned()),
            (Scope::Both, "p long, a double".to_owned()),
            (Scope::Undecidable, String::new()),
            (Scope::Constant, String::new()),
            (Scope::Statistics, "s.b decimal(10,2)".to_owned()),
        ]
    );
    assert!(predicate.needs_stats() && !predicate.is_trivial());
    assert!(Predicate::keep_all().is_trivial());
}

#[test]
fn declared_types_need_not_be_those_of_the_schema() {
    for (data_type, min, max, column_type, value_type, value, expected) in [
        ("long", "1", "9", "int", "int", "99", "dropped"),
        // Without ANSI mode Spark wraps such a value when it casts the column, to 99 or any other.
        ("long", "1", "4294967395", "int", "int", "99", "kept"),
        ("integer", "1", "9", "int", "string", "99", "unknown"),
        ("integer", "1", "9", "Long", "LONG", "5", "kept"),
        ("integer", "1", "9", "int", "long", "99", "dropped"),
        // Of two casts of a column the inner one is stated: CAST(CAST(c AS DOUBLE) AS INT) matches 99.7.
        ("decimal(10,2)", "99.7", "99.7", "double", "int", "99", "unknown"),
        ("float", "99.5", "99.5", "double", "int", "99", "unknown"),
        ("double", "99.5", "99.5", "float", "long", "99", "unknown"),
        ("long", "1", "9000000000", "double", "int", "2147483647", "unknown"),
        (
            "timestamp_ntz",
            "\"2021-01-01T12:00:00\"",
            "\"2021-01-01T12:00:00\"",
            "timestamp",
            "date",
            "2021-01-01",
            "unknown",
        ),
        ("long", "1", "9", "double", "double", "99.5", "dropped"),
        ("double", "1", "9", "float", "float", "99.5", "dropped"),
        ("float", "1", "9", "double", "double", "99.5", "dropped"),
        ("decimal(10,2)", "1", "9", "double", "double", "9.01", "dropped"),
        ("decimal(10,2)", "1", "9", "int", "int", "99", "unknown"),
        ("long", "1", "9", "string", "string", "99", "unknown"),
        ("string", "\"1\"", "\"9\"", "int", "int", "99", "unknown"),
        ("date", "\"2021-01-01\"", "\"2021-01-02\"", "string", "string", "2022-01-01", "unknown"),
        (
            "timestamp",
            "\"2021-01-01T00:00:00Z\"",
            "\"2021-01-02T00:00:00Z\"",
            "timestamp",
            "timestamp",
            "2022-01-01T00:00:00Z",
            "dropped",
        ),
    ] {
        let stats = format!(
            r#"{{"numRecords":1,"minValues":{{"c":{min}}},"maxValues":{{"c":{max}}},"nullCount":{{"c":0}}}}"#
        );
        let found =
            outcome(data_type, &compared("equal", column_type, value_type, value).to_string(), &stats);
        assert_eq!(found, expected, "{data_type} as {column_type} = {value} {value_type}");
    }
}

#[test]
fn what_a_client_may_have_cast_to_null_is_kept() {
    let stats = r#"{"numRecords":1,"minValues":{"c":1},"maxValues":{"c":9},"nullCount":{"c":0}}"#;
    let is_null = |child: serde_json::Value| json!({"op": "isNull", "children": [child]});
    let column = |name: &str| json!({"op": "column", "name": "c", "valueType": name});
    let literal = |name: &str, value: &str| json!({"op": "literal", "value": value, "valueType": name});
    for (hint, expected) in [
        (is_null(column("long")), "dropped"),
        (json!({"op": "isNull", "children": [{"op": "column", "name": "c"}]}), "dropped"),
        // Spark's client states TRY_CAST(c AS INT) so.
        (is_null(column("int")), "unknown"),
        (json!({"op": "not", "children": [is_null(column("int"))]}), "unknown"),
        (is_null(column("double")), "unknown"),
        // It writes null as a text, and as the time zero.
        (is_null(literal("int", "5")), "dropped"),
        (is_null(literal("string", "null")), "unknown"),
        (is_null(literal("date", "null")), "unknown"),
        (is_null(literal("timestamp", "1970-01-01T00:00:00Z")), "unknown"),
        (is_null(literal("timestamp", "1970-01-01T00:00:01Z")), "dropped"),
    ] {
        assert_eq!(outcome("long", &hint.to_string(), stats), expected, "{hint}");
    }
}

#[test]
fn a_timestamp_that_a_client_cut_to_milliseconds_keeps_what_the_whole_one_matches() {
    for (row, op, cut, expected) in [
        ("2024-01-01T00:00:00.123456Z", "equal", "2024-01-01T00:00:00.123Z", true),
        ("2024-01-01T00:00:00.123456Z", "lessThanOrEqual", "2024-01-01T00:00:00.123Z", true),
        ("2024-01-01T00:00:00.123456Z", "lessThan", "2024-01-01T00:00:00.123Z", true),
        ("2024-01-01T00:00:00.123456Z", "equal", "2024-01-01T00:00:00.122Z", false),
        ("2024-01-01T00:00:00.123456Z", "equal", "2024-01-01T00:00:00.123457Z", false),
        ("2024-01-01T00:00:00.000456Z", "equal", "2024-01-01T00:00:00Z", true),
        ("1969-12-31T23:59:59.999999Z", "equal", "1970-01-01T00:00:00Z", true),
        ("1969-12-31T23:59:59.999999Z", "greaterThanOrEqual", "1970-01-01T00:00:00Z", true),
        ("1969-12-31T23:59:59.997501Z", "greaterThan", "1969-12-31T23:59:59.998Z", true),
        ("1969-12-31T23:59:59.997000Z", "equal", "1969-12-31T23:59:59.998Z", false),
    ] {
        let hints = by_json(&compared(op, "timestamp", "timestamp", cut));
        let schema = schema(&[("c", "timestamp")]);
        let (predicate, found) = Predicate::bind(&hints, &schema, &["c".to_owned()]);
        assert_eq!(found, []);
        let file = one_file(None, &[Some(row)]);
        assert_eq!(is_kept(&predicate, &file), expected, "{row} {op} {cut}");
    }
}

#[test]
fn a_partition_timestamp_that_lost_its_zone_is_kept_for_every_zone() {
    let hint = |value: &str| {
        let hints = by_json(&compared("equal", "timestamp", "timestamp", value));
        Predicate::bind(&hints, &schema(&[("c", "timestamp"), ("d", "timestamp")]), &["c".to_owned()]).0
    };
    let file = one_file(None, &[Some("2024-01-01T00:00:00.000000Z")]);
    // A client in Los Angeles gets `2024-01-01 00:00:00` and takes it for a time there.
    let there = hint("2024-01-01T08:00:00Z");
    assert!(!is_kept(&there, &file));
    let of_parquet = there.clone().on_local_partition_times();
    assert!(is_kept(&of_parquet, &file));
    assert_ne!(of_parquet.key(), there.key());
    assert!(!is_kept(&hint("2024-01-02T08:00:00Z").on_local_partition_times(), &file));
    let local = one_file(None, &[Some("2024-01-01 00:00:00")]);
    assert!(!is_kept(&hint("2024-01-02T08:00:00Z").on_local_partition_times(), &local));
    let condition = ["c", "d"].map(|name| format!("{name} > TIMESTAMP '2024-01-01T08:00:00Z'")).join(" AND ");
    let schema = schema(&[("c", "timestamp"), ("d", "timestamp")]);
    let (of_two, _) = Predicate::bind(&by_sql(&condition), &schema, &["c".to_owned(), "d".to_owned()]);
    assert_ne!(of_two.clone().on_local_partition_times().key(), of_two.key());
}

#[test]
fn a_comparison_by_a_collation_decides_nothing() {
    let stats = r#"{"numRecords":1,"minValues":{"c":"abc"},"maxValues":{"c":"abc"},"nullCount":{"c":0}}"#;
    for (collation, expected) in [
        (json!("spark.UTF8_LCASE.75.1"), true),
        (json!("icu.UNICODE_CI.75.1"), true),
        (json!(7), true),
        (json!("spark.UTF8_BINARY.1.0"), false),
        (json!(null), false),
    ] {
        let mut hint = compared("equal", "string", "string", "ABC");
        hint["exprCtx"] = json!({"collationIdentifier": collation});
        let (predicate, found) = problems(&[("c", "string")], &[], Some(&hint.to_string()));
        assert_eq!(is_kept(&predicate, &one_file(Some(stats), &[])), expected, "{collation}");
        assert_eq!(found.is_empty(), !expected, "{collation}");
    }
}

#[test]
fn many_long_names_take_no_longer_than_others_of_their_length() {
    let names: Vec<String> = (0..1000).map(|number| format!("column_{number}")).collect();
    let inner: Vec<_> =
        (0..2000).map(|number| json!({"name": format!("f{number}"), "type": "long"})).collect();
    let inner = json!({"type": "struct", "fields": inner}).to_string();
    let mut fields: Vec<_> = names.iter().map(|name| (name.as_str(), "long")).collect();
    fields.push(("s", &inner));
    let absent = format!("{} = 1", vec!["é"; 100].join("."));
    let nested = vec!["s.f1 = 1 AND s.F2 = 2"; 1000].join(" OR ");
    let began = Instant::now();
    let (_, found) = problems(&fields, &[absent.as_str(); 100], None);
    assert_eq!(found.len(), 32);
    assert_eq!(problems(&fields, &[&nested], None).1.len(), 1, "too many conditions");
    // Milliseconds, and minutes where each part is compared with all columns.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn many_files_and_columns_are_evaluated_in_pieces_as_at_once() {
    // More bounds than are read at a time.
    let (files, columns) = (2000, 300);
    let names: Vec<String> = (0..columns).map(|number| format!("c{number}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (name.as_str(), "long")).collect();
    let mut conditions: Vec<String> = names.iter().map(|name| format!("{name} IS NOT NULL")).collect();
    conditions.push("c7 > 1500 OR c299 = 3".into());
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    let (predicate, found) = problems(&fields, &conditions, None);
    assert_eq!(found, []);
    let stats = |file| {
        format!(
            r#"{{"numRecords":1,"minValues":{{"c7":{file},"c299":{file}}},"maxValues":{{"c7":{file},"c299":{file}}}}}"#
        )
    };
    let mut batch = one_file(None, &[]);
    batch.partitions.keys = vec![0; files].into();
    batch.row = (0..files as u32).collect();
    batch.path = (0..files).map(|file| Some(file.to_string())).collect();
    batch.stats = Some((0..files).map(|file| Some(stats(file))).collect::<StringViewArray>().into());
    let expected: Vec<u32> = std::iter::once(3).chain(1501..files as u32).collect();
    for stats in [
        StatsCache::cached(),
        StatsCache::transient(),
        StatsCache::cached_within(&Arc::new(StatsBudget::new(1 << 20))),
    ] {
        let (mut verdicts, mut counts) = (PartitionVerdicts::default(), PruneCounts::default());
        let rows = (0..files as u32).collect();
        assert_eq!(predicate.select(&batch, &stats, rows, &mut verdicts, &mut counts), expected);
    }
}

/// Returns how many of three files, each with three records, a limit selects.
fn files_for(sql: &[&str], limit: u64, stats: &str, deleted: i64) -> usize {
    let (predicate, _) = problems(&[("c", "timestamp"), ("n", "long")], sql, None);
    let mut batch = one_file(Some(stats), &[]);
    batch.row = vec![0, 1, 2].into();
    batch.partitions.keys = vec![0; 3].into();
    batch.stats = Some(StringViewArray::from(vec![stats; 3]).into());
    batch.deletion_vector = (deleted > 0).then(|| {
        let vector = DeletionVectorDescriptor {
            storage_type: b'i',
            path_or_inline: "x".into(),
            offset: None,
            size_in_bytes: 1,
            cardinality: deleted,
        };
        vec![Some(Box::new(vector)); 3]
    });
    let mut verdicts = PartitionVerdicts::default();
    let mut counter = Limit::new(Some(limit));
    counter.take(&predicate, &batch, &StatsCache::transient(), vec![0, 1, 2], &mut verdicts).len()
}

#[test]
fn a_limit_counts_only_records_that_are_certain_to_match() {
    let stats = r#"{"numRecords":3,"minValues":{"c":"2020-12-31T12:00:00.000Z","n":5},
        "maxValues":{"c":"2020-12-31T12:00:00.000Z","n":9},"nullCount":{"c":0,"n":0}}"#;
    for (sql, limit, deleted, files) in [
        (&[][..], 0, 0, 0),
        (&[], 3, 0, 1),
        (&[], 4, 0, 2),
        (&[], 3, 1, 2),
        (&[], 1, 3, 3),
        (&["n >= 5"], 3, 0, 1),
        (&["n > 5"], 3, 0, 3),
        (&["n IS NOT NULL AND c < '2021-01-01 00:00:00Z'"], 3, 0, 1),
        // The zone of these constants is unknown, so the file may match but is not certain to.
        (&["c < '2021-01-01 00:00:00'"], 3, 0, 3),
        (&["c < TIMESTAMP '2021-01-01 00:00:00'"], 3, 0, 3),
        // A hint that the server does not understand still filters at the client.
        (&["n >= 5", "no condition"], 3, 0, 3),
        (&["n >= 5", "f(n) = 1"], 3, 0, 3),
    ] {
        assert_eq!(files_for(sql, limit, stats, deleted), files, "{sql:?} limit {limit}");
    }
    assert_eq!(files_for(&[], 3, r#"{"minValues":{}}"#, 0), 3);
}

proptest! {
    #![proptest_config(crate::cases(3))]

    /// Kept if, and only if, some value within the bounds matches.
    #[test]
    fn exact_bounds_decide_exactly(
        min in -4_i32..5,
        length in 0_i32..4,
        nulls in 0_i32..3,
        operator in prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">=", "<=>"]),
        constant in -12_i32..13,
        negated in any::<bool>(),
    ) {
        let halves = f64::from(constant) / 2.0;
        let matches = |value: Option<i32>| {
            let order = value.map(|value| f64::from(value).total_cmp(&(halves + 0.0)));
            let truth = match (operator, order) {
                ("<=>", order) => Some(order.is_some_and(std::cmp::Ordering::is_eq)),
                (_, None) => None,
                ("=", Some(order)) => Some(order.is_eq()),
                ("<>", Some(order)) => Some(order.is_ne()),
                ("<", Some(order)) => Some(order.is_lt()),
                ("<=", Some(order)) => Some(order.is_le()),
                (">", Some(order)) => Some(order.is_gt()),
                (_, Some(order)) => Some(order.is_ge()),
            };
            truth.is_some_and(|truth| truth != negated)
        };
        let max = min + length;
        let expected = (min..=max).any(|value| matches(Some(value))) || (nulls > 0 && matches(None));
        let not = if negated { "NOT " } else { "" };
        let stats = json!({"numRecords": 10, "minValues": {"c": min}, "maxValues": {"c": max}, "nullCount": {"c": nulls}});
        let batch = one_file(Some(&stats.to_string()), &[]);
        for data_type in ["long", "byte", "decimal(5,0)", "decimal(30,0)"] {
            let (predicate, _) = problems(&[("c", data_type)], &[&format!("{not}c {operator} {halves:?}")], None);
            prop_assert_eq!(is_kept(&predicate, &batch), expected, "{}", data_type);
        }
    }

    #[test]
    fn no_hint_makes_binding_panic(sql in "\\PC{0,60}", json in "\\PC{0,60}", op in "(and|or|not|equal|isNull|column|literal|=)") {
        let tree = json!({"op": op, "name": sql, "value": json, "valueType": "timestamp",
            "children": [{"op": op, "children": [{"op": "column", "name": "c"}]}, {"op": "literal", "value": json}]});
        for json in [json.clone(), tree.to_string()] {
            let (predicate, _) = problems(&[("c", "timestamp")], &[&sql], Some(&json));
            let _ = is_kept(&predicate, &one_file(Some(&json), &[]));
        }
    }
}
