//! Bounds as each known writer writes them, read from every source: whatever a writer has cut, a file with a match stays,
//! and an answer never depends on whether columns are in memory.

use ::parquet::file::metadata::KeyValue;
use arrow_schema::TimeUnit;
use proptest::prelude::*;

use super::*;

/// The one column that a query is about, of one file in a checkpoint.
#[derive(Clone)]
struct Written {
    writer: &'static str,
    data_type: &'static str,
    place: Place,
    /// `add.stats` or `add.partitionValues`.
    text: Option<String>,
    /// The least and the greatest value in `stats_parsed`, or the value in `partitionValues_parsed`.
    typed: Option<(DataType, Value, Value)>,
    /// The key-value metadata of the checkpoint's footer.
    footer: &'static [(&'static str, &'static str)],
    /// Conditions that a row of the file meets.
    kept: Vec<String>,
    /// Conditions that bounds exclude.
    dropped: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Column,
    /// In a struct that may be null.
    Nested,
    Partition,
}

fn written(writer: &'static str, data_type: &'static str, kept: &str, dropped: &str) -> Written {
    let conditions =
        |text: &str| text.split(" | ").filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let (place, text, typed, footer) = (Place::Column, None, None, &[][..]);
    let (kept, dropped) = (conditions(kept), conditions(dropped));
    Written { writer, data_type, place, text, typed, footer, kept, dropped }
}

impl Written {
    /// With this least and greatest value, as JSON.
    fn bounds(self, both: &str) -> Self {
        let text = format!(
            r#"{{"numRecords":9,"minValues":{{"c":{both}}},"maxValues":{{"c":{both}}},"nullCount":{{"c":0}}}}"#
        );
        Self { text: Some(text), ..self }
    }

    fn typed(self, data_type: DataType, both: impl Into<Value>) -> Self {
        let both = both.into();
        Self { typed: Some((data_type, both.clone(), both)), ..self }
    }

    fn value(self, map: &str, data_type: DataType, typed: impl Into<Value>) -> Self {
        Self { place: Place::Partition, text: Some(map.to_owned()), ..self.typed(data_type, typed) }
    }

    fn footer(self, footer: &'static [(&'static str, &'static str)]) -> Self {
        Self { footer, ..self }
    }

    fn write(&self, log: &Log) {
        let is_partition = self.place == Place::Partition;
        let mut columns = add_fields();
        let mut row = json!({"path": "it", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true});
        if is_partition {
            row["partitionValues"] = json!({"c": self.text});
        } else {
            row["stats"] = json!(self.text);
        }
        if let Some((data_type, min, max)) = &self.typed {
            let leaf = struct_of([("c", data_type.clone())]);
            let nulls = struct_of([("c", DataType::Int64)]);
            let typed = struct_of([
                ("numRecords", DataType::Int64),
                ("minValues", leaf.clone()),
                ("maxValues", leaf.clone()),
                ("nullCount", nulls),
            ]);
            if is_partition {
                columns.push(("partitionValues_parsed", leaf));
                row["partitionValues_parsed"] = json!({"c": min});
            } else {
                columns.push(("stats_parsed", typed));
                row["stats_parsed"] = json!({"numRecords": 9, "minValues": {"c": min}, "maxValues": {"c": max}, "nullCount": {"c": 0}});
            }
        }
        let pair = |(key, value): &(&str, &str)| KeyValue::new((*key).to_owned(), (*value).to_owned());
        let footer: Vec<_> = self.footer.iter().map(pair).collect();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(1))
            .set_key_value_metadata(Some(footer).filter(|footer| !footer.is_empty()))
            .build();
        let metadata = self.metadata_row();
        let rows = [protocol_row(), metadata.clone(), json!({"add": row})];
        log.classic(&parquet(&schema_of(&columns), &rows, properties));
        log.write_commit(7, &[protocol_row(), metadata]);
    }

    fn metadata_row(&self) -> Value {
        let column = field("c", self.data_type);
        let column = match self.place {
            Place::Nested => field("s", json!({"type": "struct", "fields": [column]})),
            Place::Column | Place::Partition => column,
        };
        table_metadata(&[column], if self.place == Place::Partition { &["c"] } else { &[] })
    }
}

/// A table read cold, with columns in memory, and with columns kept in a file.
struct Sources {
    log: Log,
    cold: Arc<Table>,
    hot: Arc<Table>,
    _kept: tempfile::TempDir,
    mapped: Arc<Table>,
}

impl Sources {
    fn of(log: Log) -> Self {
        let (cold, hot) = (opened(&log, 0), opened(&log, 64 << 20));
        run(&hot, everything());
        let directory = tempfile::tempdir().unwrap();
        let on_disk = || with_disk(&log, &directory.path().join("columns"));
        let (written, cache) = on_disk();
        run(&written, everything());
        cache.disk().unwrap().wait_until_written();
        let (mapped, cache) = on_disk();
        run(&mapped, everything());
        assert_eq!(cache.disk().unwrap().counts().hits, 1);
        Self { cold, hot, mapped, _kept: directory, log }
    }

    /// The files of a query, which are the same from every source.
    fn files(&self, sql: &str) -> Vec<String> {
        // Its first query selects from the log, its second one from the selection.
        let warm = opened(&self.log, 64 << 20);
        let options = |table: &Arc<Table>| ScanOptions { predicate: by_sql(table, sql), ..everything() };
        let files = |table: &Arc<Table>| run(table, options(table)).0;
        let found = files(&self.cold);
        for (source, table) in [
            ("hot", &self.hot),
            ("hot again", &self.hot),
            ("mapped", &self.mapped),
            ("warm", &warm),
            ("selected", &warm),
        ] {
            assert_eq!(files(table), found, "{source}: {sql}");
        }
        found
    }
}

fn micros(zone: Option<&str>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
}

const LEGACY: &[(&str, &str)] = &[
    ("org.apache.spark.version", "3.5.3"),
    ("org.apache.spark.legacyDateTime", ""),
    ("org.apache.spark.timeZone", "America/Los_Angeles"),
];
const SPARK_2: &[(&str, &str)] = &[("org.apache.spark.version", "2.4.8")];
const LEGACY_INT96: &[(&str, &str)] =
    &[("org.apache.spark.version", "3.5.3"), ("org.apache.spark.legacyINT96", "")];

/// 1899-12-31T18:39:00Z, in microseconds.
const KOLKATA: i64 = -2_209_008_060_000_000;
/// 2024-01-01T00:00:00Z, in microseconds.
const NEW_YEAR: i64 = 1_704_067_200_000_000;

fn instant() -> DataType {
    micros(Some("UTC"))
}

fn times() -> Vec<Written> {
    let offset = "c = TIMESTAMP '1899-12-31T18:38:50Z'";
    let other_minute = "c = TIMESTAMP '1899-12-31T18:37:00Z'";
    let local = || micros(None);
    vec![
        written("Spark 3.2 and 3.3, offset without seconds", "timestamp", offset, other_minute)
            .bounds("\"1900-01-01T00:00:00.000+05:21\""),
        written(
            "Spark 3.2 and 3.3, west of Greenwich",
            "timestamp",
            "c = TIMESTAMP '1971-01-01T00:44:30Z'",
            "",
        )
        .bounds("\"1971-01-01T00:00:00.000-00:44\""),
        written("Spark 3.2 and 3.3, typed", "timestamp", offset, other_minute).typed(instant(), KOLKATA),
        written("Spark, cut towards zero", "timestamp", "c = TIMESTAMP '1969-12-31T23:59:59.998500Z'", "")
            .bounds("\"1969-12-31T23:59:59.999Z\""),
        written(
            "Spark, cut to milliseconds",
            "timestamp",
            "c = TIMESTAMP '2024-01-01T00:00:00.001999Z'",
            "c = TIMESTAMP '2024-01-01T00:00:00.002Z'",
        )
        .bounds("\"2024-01-01T00:00:00.001Z\""),
        written(
            "deltalake 0.18 to 0.25, partition values cut to milliseconds",
            "timestamp_ntz",
            "c = TIMESTAMP_NTZ '2024-01-01 00:00:00.123456'",
            "c = TIMESTAMP_NTZ '2024-01-01 00:00:00.123457'",
        )
        .value("2024-01-01 00:00:00.123456", local(), NEW_YEAR + 123_000),
        written(
            "deltalake 0.18 to 0.25, the same for instants",
            "timestamp",
            "c = TIMESTAMP '2024-01-01T00:00:00.123456Z'",
            "c = TIMESTAMP '2024-01-01T00:00:00.123457Z'",
        )
        .value("2024-01-01T00:00:00.123456Z", local(), NEW_YEAR + 123_000),
        written(
            "XTable, cut to the second",
            "timestamp_ntz",
            "c = TIMESTAMP_NTZ '2024-01-01 00:00:00.9'",
            "c = TIMESTAMP_NTZ '2024-01-01 00:00:01'",
        )
        .bounds("\"2024-01-01 00:00:00\""),
        written(
            "XTable, typed by another writer",
            "timestamp",
            "c = TIMESTAMP '2024-01-01T00:00:00.9Z'",
            "c = TIMESTAMP '2024-01-01T00:00:01Z'",
        )
        .typed(instant(), NEW_YEAR),
    ]
}

fn decimals() -> Vec<Written> {
    let saturated = "c = 100000000000000000000 | c > 99999999999999999999";
    vec![
        written(
            "deltalake, decimals of doubles",
            "decimal(17,1)",
            "c = 5000000000000000.3",
            "c = 5000000000001000",
        )
        .bounds("5000000000000000.0"),
        written(
            "deltalake, 19 digits",
            "decimal(38,0)",
            "c = 1234567890123456789",
            "c = 1234567890123556789",
        )
        .bounds("1234567890123456768"),
        written("deltalake, typed", "decimal(18,2)", "c = 1000000000000000.01", "")
            .typed(DataType::Decimal128(18, 2), "100000000000000000"),
        written("deltalake, beyond 64 bits", "decimal(38,0)", saturated, "c = 5")
            .bounds("9223372036854775807"),
        written("deltalake, below 64 bits", "decimal(38,0)", "c = -100000000000000000000", "c = 5")
            .bounds("-9223372036854775808"),
        written("deltalake, beyond 64 bits, as a double", "decimal(38,0)", saturated, "c = 5")
            .bounds("9.223372036854775807E18"),
        written("deltalake, beyond 64 bits, typed", "decimal(38,0)", saturated, "")
            .typed(DataType::Decimal128(38, 0), "9223372036854775807"),
    ]
}

fn nulls() -> [Written; 2] {
    let stats =
        r#"{"numRecords":9,"minValues":{"s":{"c":5}},"maxValues":{"s":{"c":5}},"nullCount":{"s":{"c":0}}}"#;
    [
        Written {
            place: Place::Nested,
            text: Some(stats.to_owned()),
            ..written("Iceberg and Delta Kernel", "long", "s.c IS NULL | s.c = 5", "")
        },
        written("every writer, a text that is no number", "integer", "c IS NULL", "").value(
            "seven",
            DataType::Int32,
            Value::Null,
        ),
    ]
}

fn calendars() -> Vec<Written> {
    let mut table = Vec::new();
    for footer in [LEGACY, SPARK_2] {
        // The day of the Julian calendar.
        let day = || written("Spark, LEGACY", "date", "c = DATE '0001-01-01'", "c = DATE '0001-01-03'");
        table.push(day().typed(DataType::Date32, -719_164).footer(footer));
        table.push(day().value("0001-01-01", DataType::Date32, -719_164).footer(footer));
        let late = written("Spark, LEGACY", "date", "c = DATE '2024-01-01'", "c = DATE '2024-01-02'");
        table.push(late.typed(DataType::Date32, 19_723).footer(footer));
    }
    for footer in [LEGACY, SPARK_2, LEGACY_INT96] {
        let time = |kept, dropped| written("Spark, LEGACY", "timestamp", kept, dropped);
        let typed = Some((instant(), json!(-62_135_740_022_000_000_i64), json!(0)));
        table.push(Written { typed, footer, ..time("c = TIMESTAMP '0001-01-01T07:52:58Z'", "") });
        let late = "c = TIMESTAMP '2024-01-01T00:00:00.5Z'";
        let other = "c = TIMESTAMP '2023-12-31T23:59:59Z'";
        table.push(time(late, other).typed(instant(), NEW_YEAR).footer(footer));
    }
    table
}

/// Types of which every bound is exact, by text, in `stats_parsed` and as a partition value.
fn exact() -> Vec<Written> {
    [
        ("long", "5", DataType::Int64, json!(5), "c = 5", "c = 6"),
        ("boolean", "true", DataType::Boolean, json!(true), "c", "NOT c"),
        ("string", "\"eu\"", DataType::Utf8, json!("eu"), "c = 'eu'", "c = 'eua'"),
        ("decimal(15,2)", "1.50", DataType::Decimal128(15, 2), json!("150"), "c = 1.5", "c = 1.51"),
        (
            "date",
            "\"2024-01-01\"",
            DataType::Date32,
            json!(19_723),
            "c = DATE '2024-01-01'",
            "c = DATE '2024-01-02'",
        ),
    ]
    .into_iter()
    .flat_map(|(data_type, text, typed, value, kept, dropped)| {
        let one = || written("every writer", data_type, kept, dropped);
        [
            one().bounds(text),
            one().typed(typed.clone(), value.clone()),
            one().value(text.trim_matches('"'), typed, value),
        ]
    })
    .collect()
}

#[test]
fn no_source_drops_a_file_whose_bounds_its_writer_has_cut() {
    for one in [times(), decimals(), nulls().into(), calendars(), exact()].into_iter().flatten() {
        let log = Log::new();
        one.write(&log);
        let sources = Sources::of(log);
        for sql in &one.kept {
            assert_eq!(sources.files(sql), ["it"], "{}: {} {sql}", one.writer, one.data_type);
        }
        for sql in &one.dropped {
            assert_eq!(sources.files(sql), [""; 0], "{}: {} {sql}", one.writer, one.data_type);
        }
    }
}

#[test]
fn what_is_read_of_an_old_calendar_is_right_or_left_out() {
    for one in calendars() {
        let log = Log::new();
        one.write(&log);
        let table = opened(&log, 0);
        if one.place == Place::Partition {
            let rule = Some(by_rule(&table, &one.kept[0]));
            assert_eq!(run(&table, ScanOptions { rule, ..everything() }).0, ["it"], "{:?}", one.kept);
            continue;
        }
        let (files, ..) = read_version(&table, 7, &everything());
        let stats = files[0]["stats"].as_str().unwrap();
        let days = |day: &str| {
            format!(
                r#"{{"numRecords":9,"minValues":{{"c":"{day}"}},"maxValues":{{"c":"{day}"}},"nullCount":{{"c":0}}}}"#
            )
        };
        let expected = match (one.data_type, &*one.kept[0]) {
            ("date", "c = DATE '0001-01-01'") => days("0001-01-01"),
            ("date", _) => days("2024-01-01"),
            (_, "c = TIMESTAMP '0001-01-01T07:52:58Z'") => {
                r#"{"numRecords":9,"maxValues":{"c":"1970-01-01T00:00:00.000Z"},"nullCount":{"c":0}}"#
                    .to_owned()
            }
            _ => days("2024-01-01T00:00:00.000Z"),
        };
        assert_eq!(stats, expected);
    }
}

/// Drawn files: one index for each partition value and each of the statistics.
type Drawn = Vec<(usize, usize, usize, usize, usize, bool, bool)>;

/// A text of a partition value, its typed value in the Gregorian calendar and in Spark's LEGACY one.
const DAYS: [(&str, Option<i32>, Option<i32>); 6] = [
    ("0001-01-01", Some(-719_162), Some(-719_164)),
    ("1500-03-01", Some(-171_605), Some(-171_595)),
    ("1969-12-31", Some(-1), Some(-1)),
    ("2024-01-01", Some(19_723), Some(19_723)),
    ("not a day", None, None),
    ("", None, None),
];
const NUMBERS: [(&str, Option<i32>); 5] =
    [("7", Some(7)), ("-1", Some(-1)), ("07", Some(7)), ("seven", None), ("", None)];
const WORDS: [&str; 6] =
    ["", "a", "b\u{7f}", "\u{e9}", "0123456789abcdefghijklmnopqrstuvwxyz", "__HIVE_DEFAULT_PARTITION__"];
const TIMES: [(&str, i64); 5] = [
    ("1900-01-01T00:00:00.000+05:21", KOLKATA),
    ("1969-12-31T23:59:59.999Z", -1_000),
    ("1970-01-01T00:00:00Z", 0),
    ("2024-01-01T00:00:00.000Z", NEW_YEAR),
    ("2024-01-01T00:00:00.123Z", NEW_YEAR + 123_000),
];
const WHOLE: [&str; 5] =
    ["0", "9223372036854775807", "-9223372036854775808", "1234567890123456789", "100000000000000000000"];
const LEAVES: [&str; 16] = [
    "d = DATE '0001-01-01'",
    "d < DATE '1500-03-01'",
    "d IS NULL",
    "n = 7",
    "n IS NOT NULL AND n < 7",
    "p = 'a'",
    "p > 'b'",
    "p IS NULL",
    "t = TIMESTAMP '1899-12-31T18:38:50Z'",
    "t >= TIMESTAMP '2024-01-01T00:00:00.2Z'",
    "t < TIMESTAMP '1970-01-01T00:00:00Z'",
    "x = 100000000000000000000",
    "x < 5",
    "w = 'a'",
    "w > 'c'",
    "w IS NULL",
];

fn drawn_log(files: &Drawn, is_legacy: bool, files_per_group: usize) -> Log {
    let leaves =
        struct_of([("t", micros(Some("UTC"))), ("x", DataType::Decimal128(38, 0)), ("w", DataType::Utf8)]);
    let stats =
        struct_of([("numRecords", DataType::Int64), ("minValues", leaves.clone()), ("maxValues", leaves)]);
    let partitions = struct_of([("d", DataType::Date32), ("n", DataType::Int32), ("p", DataType::Utf8)]);
    let mut columns = add_fields();
    columns.extend([("stats_parsed", stats), ("partitionValues_parsed", partitions)]);
    let fields = [
        field("d", "date"),
        field("n", "integer"),
        field("p", "string"),
        field("t", "timestamp"),
        field("x", "decimal(38,0)"),
        field("w", "string"),
    ];
    let metadata = table_metadata(&fields, &["d", "n", "p"]);
    let mut rows = vec![protocol_row(), metadata.clone()];
    rows.extend(files.iter().enumerate().map(|(number, (d, n, word, time, whole, has_text, has_typed))| {
        let (day, gregorian, hybrid) = DAYS[d % DAYS.len()];
        let (text, typed_number) = NUMBERS[n % NUMBERS.len()];
        let word = WORDS[word % WORDS.len()];
        let ((time, typed_time), whole) = (TIMES[time % TIMES.len()], WHOLE[whole % WHOLE.len()]);
        let typed = json!({"t": typed_time, "x": whole, "w": word});
        let bound = format!(r#"{{"t":"{time}","x":{whole},"w":{}}}"#, json!(word));
        let stats = format!(r#"{{"numRecords":9,"minValues":{bound},"maxValues":{bound}}}"#);
        json!({"add": {
            "path": format!("{number}"), "size": 1, "modificationTime": 1, "dataChange": true,
            "partitionValues": {"d": day, "n": text, "p": word},
            "partitionValues_parsed": {"d": if is_legacy { hybrid } else { gregorian }, "n": typed_number, "p": word},
            "stats": has_text.then_some(stats),
            "stats_parsed": has_typed.then(|| json!({"numRecords": 9, "minValues": typed, "maxValues": typed})),
        }})
    }));
    let pair = |(key, value): &(&str, &str)| KeyValue::new((*key).to_owned(), (*value).to_owned());
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(files_per_group))
        .set_key_value_metadata(is_legacy.then(|| LEGACY.iter().map(pair).collect()))
        .build();
    let log = Log::new();
    log.classic(&parquet(&schema_of(&columns), &rows, properties));
    log.write_commit(7, &[protocol_row(), metadata]);
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_answer_does_not_depend_on_the_columns_in_memory(
        files in prop::collection::vec(
            (0..64_usize, 0..64_usize, 0..64_usize, 0..64_usize, 0..64_usize, any::<bool>(), any::<bool>()), 1..12),
        is_legacy in any::<bool>(),
        files_per_group in 1..5_usize,
        queries in prop::collection::vec((0..LEAVES.len(), 0..LEAVES.len(), 0..4_usize), 1..6),
    ) {
        let sources = Sources::of(drawn_log(&files, is_legacy, files_per_group));
        for (one, other, form) in queries {
            let (one, other) = (LEAVES[one], LEAVES[other]);
            let sql = match form {
                0 => one.to_owned(),
                1 => format!("NOT ({one})"),
                2 => format!("({one}) AND ({other})"),
                _ => format!("({one}) OR NOT ({other})"),
            };
            sources.files(&sql);
        }
    }
}
