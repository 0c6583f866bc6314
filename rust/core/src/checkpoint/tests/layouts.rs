//! Every layout a checkpoint may have.

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::schema::types::ColumnPath;

use arrow_schema::{DataType, Field};

use super::*;
use writer::{Log, UUID, add_fields, parquet, schema, schema_of, struct_of, with_column};

fn rows(count: usize) -> Vec<Value> {
    let mut rows: Vec<Value> = (0..count).map(add_row).collect();
    rows.insert(count / 2, metadata_row(&["day", "city"]));
    rows.insert(count / 3, protocol_row());
    rows.insert(0, json!({"txn": {"appId": "app", "version": 3}}));
    rows.push(json!({"remove": {"path": "gone", "deletionTimestamp": 1}}));
    rows
}

/// Returns the expected adds of a part.
fn expected(source: u32, rows: &[Value]) -> Vec<(u32, u32, Value)> {
    let adds = rows.iter().enumerate().filter(|(_, row)| row.get("add").is_some());
    adds.map(|(row, action)| (source, row as u32, action["add"].clone())).collect()
}

fn small_pages() -> WriterProperties {
    WriterProperties::builder()
        .set_max_row_group_row_count(Some(700))
        .set_data_page_row_count_limit(90)
        .set_write_batch_size(30)
        .set_compression(Compression::SNAPPY)
        .build()
}

#[test]
fn a_classic_checkpoint_gives_its_adds_by_their_rows_and_its_protocol_and_metadata() {
    let log = Log::new();
    let rows = rows(2000);
    let checkpoint = open_classic(&log, &schema(), &rows, small_pages()).unwrap();
    assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), expected(0, &rows));
    assert_eq!(checkpoint.version(), 7);
    let protocol = checkpoint.protocol().unwrap();
    assert_eq!((protocol.min_reader_version, protocol.min_writer_version), (1, 2));
    assert_eq!(protocol.reader_features, None);
    let metadata = checkpoint.metadata().unwrap();
    assert_eq!(metadata.id, "table-id");
    assert_eq!(metadata.name, None);
    assert_eq!(metadata.format_provider, "parquet");
    assert_eq!(metadata.schema_string.as_deref(), Some("{}"));
    assert_eq!(metadata.partition_columns, ["day", "city"]);
    assert_eq!(metadata.configuration, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(metadata.created_time_ms, Some(5));
}

fn stats_column() -> ColumnPath {
    vec!["add".to_owned(), "stats".to_owned()].into()
}

/// Reads a checkpoint of such statistics, and returns how many batches it has and the most text of one.
fn batches_of(stats: impl Iterator<Item = String>, properties: WriterProperties) -> (usize, usize) {
    let adds = stats.enumerate().map(|(number, stats)| {
        json!({"add": {
            "path": format!("part-{number:06}"), "partitionValues": {}, "size": number, "modificationTime": 1,
            "dataChange": true, "stats": stats,
        }})
    });
    let rows: Vec<_> = [protocol_row(), metadata_row(&[])].into_iter().chain(adds).collect();
    let log = Log::new();
    let batches = read(&open_classic(&log, &schema(), &rows, properties).unwrap(), everything()).unwrap();
    let text = |batch: &FileBatch| {
        let stats = batch.stats.clone().map(Stats::into_raw).unwrap();
        stats.lengths().map(|length| length as usize).sum::<usize>()
    };
    assert_eq!(batches.iter().map(FileBatch::len).sum::<usize>(), rows.len() - 2);
    (batches.len(), batches.iter().map(text).max().unwrap())
}

#[test]
fn prefix_coded_statistics_are_read_in_batches_of_as_much_text_as_others() {
    let stats = |number| format!(r#"{{"numRecords":{number},"minValues":"{}"}}"#, "x".repeat(300));
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_encoding(::parquet::basic::Encoding::PLAIN)
            .set_column_encoding(stats_column(), ::parquet::basic::Encoding::DELTA_BYTE_ARRAY)
            .build();
        let (batches, text) = batches_of((0..20_000).map(stats), properties);
        assert!(batches < 30 && text <= 2 * BATCH_BYTES, "{batches} batches, {text} bytes");
    }
}

#[test]
fn a_row_group_is_read_in_large_batches_again_behind_a_large_page() {
    for encoding in [::parquet::basic::Encoding::PLAIN, ::parquet::basic::Encoding::DELTA_BYTE_ARRAY] {
        let stats = |number: usize| {
            let bytes = if (3000..3030).contains(&number) { 500_000 } else { 30 };
            format!(r#"{{"numRecords":{number},"minValues":"{}"}}"#, "x".repeat(bytes))
        };
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(100)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_column_encoding(stats_column(), encoding)
            .build();
        let (batches, text) = batches_of((0..40_000).map(stats), properties);
        assert!(batches < 60 && text <= 4 * BATCH_BYTES, "{encoding}: {batches} batches, {text} bytes");
    }
}

#[test]
fn every_codec_and_page_version_gives_the_same_adds() {
    let rows = rows(300);
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(::parquet::basic::GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::BROTLI(::parquet::basic::BrotliLevel::default()),
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let log = Log::new();
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .build();
                let checkpoint = open_classic(&log, &schema(), &rows, properties).unwrap();
                assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), expected(0, &rows));
            }
        }
    }
}

#[test]
fn the_parts_of_a_multi_part_checkpoint_follow_each_other() {
    let log = Log::new();
    let parts = [
        vec![add_row(1), add_row(2)],
        vec![add_row(3), metadata_row(&["day", "city"]), protocol_row()],
        vec![add_row(4)],
    ];
    let files = parts.each_ref().map(|rows| parquet(&schema(), rows, small_pages()));
    let checkpoint = open(log.root(), &log.multi_part(&files)).unwrap();
    assert_eq!(checkpoint.parts(), 3);
    assert_eq!(checkpoint.metadata().unwrap().id, "table-id");
    let options = ReadOptions { first_source: SourceId(5), ..everything() };
    let expected: Vec<_> = (5..).zip(&parts).flat_map(|(source, rows)| expected(source, rows)).collect();
    assert_eq!(adds(&read(&checkpoint, options).unwrap()), expected);
}

#[test]
fn a_v2_top_file_refers_to_sidecars_by_name_or_by_uri_and_may_hold_adds_itself() {
    let sidecars = [vec![add_row(1), add_row(2)], vec![add_row(3)]];
    for name in [
        format!("00000000000000000007.checkpoint.{UUID}.parquet"),
        "00000000000000000007.checkpoint.parquet".to_owned(),
    ] {
        let log = Log::new();
        let sizes: Vec<_> = sidecars
            .iter()
            .zip(["a b.parquet", "c.parquet"])
            .map(|(rows, sidecar)| {
                log.write(&format!("_sidecars/{sidecar}"), &parquet(&schema(), rows, small_pages())).size
            })
            .collect();
        let top = [
            json!({"sidecar": {"path": "s3://bucket/table/_delta_log/_sidecars/a%20b.parquet", "sizeInBytes": sizes[0]}}),
            add_row(9),
            json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint", "appendOnly"]}}),
            metadata_row(&["day", "city"]),
            json!({"sidecar": {"path": "c.parquet", "sizeInBytes": sizes[1]}}),
        ];
        let files = vec![log.write(&name, &parquet(&schema(), &top, small_pages()))];
        let files = CheckpointFiles { version: 7, kind: CheckpointKind::UuidParquet, files };
        let checkpoint = open(log.root(), &files).unwrap();
        let protocol = checkpoint.protocol().unwrap();
        assert_eq!(protocol.reader_features.as_deref(), Some(&["v2Checkpoint".to_owned()][..]));
        assert_eq!(protocol.writer_features.as_ref().map(Vec::len), Some(2));
        let mut all = expected(0, &top);
        all.extend(expected(1, &sidecars[0]));
        all.extend(expected(2, &sidecars[1]));
        assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), all);
    }
}

#[test]
fn the_heads_and_all_sidecars_are_found_among_many_files() {
    let sidecar = |name: &str| json!({"sidecar": {"path": name, "sizeInBytes": 7}});
    for has_index in [true, false] {
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(900)
            .set_write_batch_size(100)
            .set_offset_index_disabled(!has_index)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let classic = rows(15_000);
        let mut top = classic.clone();
        top.insert(14_000, sidecar("late.parquet"));
        top.insert(6, sidecar("early.parquet"));
        for (rows, parts) in [(classic, vec![0]), (top, vec![0, 1, 2])] {
            let log = Log::new();
            let checkpoint = open_classic(&log, &schema(), &rows, properties.clone()).unwrap();
            assert_eq!((0..checkpoint.parts()).collect::<Vec<_>>(), parts);
            assert_eq!(checkpoint.protocol().unwrap().min_writer_version, 2);
            assert_eq!(checkpoint.metadata().unwrap().partition_columns, ["day", "city"]);
            assert_eq!(checkpoint.metadata().unwrap().configuration.len(), 1);
        }
    }
}

#[test]
fn a_span_begins_and_ends_at_any_row_of_any_part() {
    let log = Log::new();
    let parts = [rows(500), rows(300)];
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(200))
        .set_data_page_row_count_limit(20)
        .set_write_batch_size(10)
        .build();
    let files = parts.each_ref().map(|rows| parquet(&schema(), rows, properties.clone()));
    let checkpoint = open(log.root(), &log.multi_part(&files)).unwrap();
    let all: Vec<_> = (0..).zip(&parts).flat_map(|(source, rows)| expected(source, rows)).collect();
    for start in [0, 1, 19, 20, 21, 199, 200, 201, 333, 503, 504, 600] {
        for (part, row) in [(0, 0), (0, 200), (0, 391), (1, 0), (1, 1), (1, 250), (2, 0)] {
            let span = Span { start: Position { part: 0, row: start }, end: Some(Position { part, row }) };
            let options = ReadOptions { span: Some(span), ..everything() };
            let in_span = |position: &(u32, u32)| *position >= (0, start) && *position < (part, row);
            let expected: Vec<_> = all.iter().filter(|add| in_span(&(add.0, add.1))).cloned().collect();
            assert_eq!(adds(&read(&checkpoint, options).unwrap()), expected, "{start} to {part}/{row}");
        }
    }
    let span = Span { start: Position { part: 1, row: 100 }, end: None };
    let rest = read(&checkpoint, ReadOptions { span: Some(span), ..everything() }).unwrap();
    assert_eq!(adds(&rest), all.into_iter().filter(|add| (add.0, add.1) >= (1, 100)).collect::<Vec<_>>());
}

#[test]
fn unneeded_columns_are_absent() {
    let log = Log::new();
    let rows = rows(10);
    let checkpoint = open_classic(&log, &schema(), &rows, small_pages()).unwrap();
    let batches = read(&checkpoint, ReadOptions::default()).unwrap();
    assert!(batches.iter().all(|batch| batch.stats.is_none() && batch.base_row_id.is_none()));
    assert!(batches.iter().all(|batch| batch.data_change.is_none() && batch.clustering_provider.is_none()));
    assert!(batches.iter().any(|batch| batch.deletion_vector.is_some()));
}

#[test]
fn a_checkpoint_of_a_writer_that_knows_few_columns_is_read() {
    let log = Log::new();
    let known = ["path", "size", "modificationTime", "dataChange", "partitionValues"];
    let columns: Vec<_> = add_fields().into_iter().filter(|(name, _)| known.contains(name)).collect();
    let row = json!({"add": {"path": "p", "size": 1, "modificationTime": 2, "dataChange": false, "partitionValues": {}}});
    let rows = [protocol_row(), metadata_row(&[]), row];
    let batches =
        read(&open_classic(&log, &schema_of(&columns), &rows, small_pages()).unwrap(), everything()).unwrap();
    let found = adds(&batches);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].2["path"], "p");
    assert!(batches[0].stats.is_none() && batches[0].deletion_vector.is_none());
}

#[test]
fn whole_numbers_have_any_integer_type() {
    let rows = rows(20);
    let wanted = expected(0, &rows);
    for data_type in [DataType::Int32, DataType::UInt16, DataType::UInt32, DataType::UInt64, DataType::Int64]
    {
        let mut columns = writer::with_type(&data_type);
        // Times have 41 bits.
        if !matches!(data_type, DataType::UInt64 | DataType::Int64) {
            columns.retain(|(name, _)| *name != "modificationTime");
            columns.push(("modificationTime", DataType::UInt64));
        }
        let protocol =
            struct_of([("minReaderVersion", data_type.clone()), ("minWriterVersion", data_type.clone())]);
        let schema = with_column(&schema_of(&columns), "protocol", protocol);
        let log = Log::new();
        let checkpoint = open_classic(&log, &schema, &rows, small_pages()).unwrap();
        assert_eq!(checkpoint.protocol().unwrap().min_writer_version, 2, "{data_type}");
        assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), wanted, "{data_type}");
        let sizes = wanted.iter().map(|(_, _, add)| add["size"].as_u64().unwrap()).sum();
        let expected = Totals { files: wanted.len() as u64, size_bytes: sizes };
        assert_eq!(live(&checkpoint, None), expected, "{data_type}");
    }
}

#[test]
fn a_column_of_the_type_of_nulls_is_absent() {
    let optional = ["stats", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"];
    for with_statistics in [true, false] {
        let enabled = if with_statistics { EnabledStatistics::Chunk } else { EnabledStatistics::None };
        let properties = WriterProperties::builder().set_statistics_enabled(enabled).build();
        let mut row = add_row(1);
        let mut columns = add_fields();
        for (name, data_type) in columns.iter_mut().filter(|(name, _)| optional.contains(name)) {
            *data_type = DataType::Null;
            row["add"][*name] = Value::Null;
        }
        let metadata = struct_of([
            ("id", DataType::Utf8),
            ("name", DataType::Null),
            ("description", DataType::Null),
            ("schemaString", DataType::Utf8),
            ("partitionColumns", writer::string_list()),
            ("createdTime", DataType::Null),
        ]);
        let schema = with_column(&schema_of(&columns), "metaData", metadata);
        let log = Log::new();
        let checkpoint =
            open_classic(&log, &schema, &[protocol_row(), metadata_row(&[]), row], properties).unwrap();
        assert_eq!(checkpoint.metadata().unwrap().created_time_ms, None);
        let batches = read(&checkpoint, everything()).unwrap();
        assert_eq!(adds(&batches).len(), 1);
        let batch = &batches[0];
        assert!(batch.stats.is_none() && batch.deletion_vector.is_none() && batch.base_row_id.is_none());
    }
}

#[test]
fn an_empty_list_or_map_is_empty_and_not_absent() {
    let log = Log::new();
    let mut columns = writer::add_fields();
    columns.push(("tags", writer::string_map()));
    let features = json!({"protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [],
    }});
    // Row groups of their own: none has a value in a list or a map.
    for tags in [json!({}), json!({"k": null}), Value::Null] {
        let mut row = add_row(1);
        row["add"]["tags"] = tags.clone();
        let rows = [features.clone(), metadata_row(&[]), row];
        let checkpoint = open_classic(&log, &schema_of(&columns), &rows, small_pages()).unwrap();
        let protocol = checkpoint.protocol().unwrap();
        assert_eq!(protocol.reader_features, Some(Vec::new()));
        assert_eq!(protocol.writer_features, Some(Vec::new()));
        let found = read(&checkpoint, everything()).unwrap()[0].tags.clone();
        let found = found.map(|tags| serde_json::from_str::<Value>(tags.value(0)).unwrap());
        assert_eq!(found, Some(tags).filter(|tags| !tags.is_null()));
    }
}

#[test]
fn an_empty_list_may_have_items_of_any_type_and_other_items_are_a_corrupt_log() {
    let log = Log::new();
    let protocol = struct_of([
        ("minReaderVersion", DataType::Int32),
        ("minWriterVersion", DataType::Int32),
        ("readerFeatures", DataType::List(Arc::new(Field::new("element", DataType::Int32, true)))),
    ]);
    let schema = with_column(&schema(), "protocol", protocol);
    let opened = |features: Value| {
        let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features});
        let rows = [json!({"protocol": protocol}), metadata_row(&[])];
        open_classic(&log, &schema, &rows, small_pages())
    };
    assert_eq!(opened(json!([])).unwrap().protocol().unwrap().reader_features, Some(Vec::new()));
    assert_eq!(opened(Value::Null).unwrap().protocol().unwrap().reader_features, None);
    let error = opened(json!([7])).unwrap_err();
    assert!(matches!(&error, Error::CorruptLog { reason, .. } if reason.contains("protocol")), "{error:?}");
}

#[test]
fn a_deletion_vector_without_any_value_is_none_and_one_with_some_of_them_is_a_corrupt_log() {
    let log = Log::new();
    let read_with = |vector: &Value| {
        let mut row = add_row(1);
        row["add"]["deletionVector"] = vector.clone();
        // Its columns have values.
        let rows = [protocol_row(), metadata_row(&[]), row, add_row(4)];
        read(&open_classic(&log, &schema(), &rows, small_pages()).unwrap(), everything())
    };
    let empty =
        json!({"storageType": "", "pathOrInlineDv": "", "offset": 0, "sizeInBytes": 0, "cardinality": 0});
    for vector in [json!({}), empty.clone()] {
        let batches = read_with(&vector).unwrap();
        assert!(batches[0].deletion_vector_at(0).is_none() && batches[0].deletion_vector_at(1).is_some());
    }
    for (field, value) in
        [("pathOrInlineDv", json!("x")), ("cardinality", json!(3)), ("storageType", json!("u"))]
    {
        for mut vector in [json!({}), empty.clone()] {
            vector[field] = value.clone();
            // Without its storage type no vector can be read, and without its path neither.
            if field == "storageType" {
                vector["cardinality"] = Value::Null;
            }
            let error = read_with(&vector).unwrap_err().to_string();
            assert!(error.contains("the deletionVector of an add is incomplete"), "{vector}: {error}");
        }
    }
}

#[test]
fn files_of_partitions_that_are_not_kept_are_never_seen() {
    let log = Log::new();
    let mut rows = rows(1500);
    // One row group without adds, and one with adds only.
    for row in &mut rows[700..1400] {
        if row.get("add").is_some() {
            row["add"]["partitionValues"]["day"] = json!("2024-01-09");
        }
    }
    // A few rows far apart.
    for index in [37, 38, 660, 1450] {
        assert!(rows[index].get("add").is_some());
        rows[index]["add"]["partitionValues"]["day"] = json!("2024-01-07");
    }
    let checkpoint = open_classic(&log, &schema(), &rows, small_pages()).unwrap();
    let days = ["2024-01-00", "2024-01-01", "2024-01-07", "2024-01-09", "never", "2024-01"];
    for (kept, by_slice) in days.into_iter().flat_map(|day| [(day, false), (day, true)]) {
        let requested = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&requested);
        let keep = move |tuple: &PartitionTuple| {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tuple.values[0].as_deref().is_some_and(|day| day.starts_with(kept))
        };
        let options = ReadOptions { keep_tuple: Some(Arc::new(keep)), by_slice, ..everything() };
        let found = adds(&read(&checkpoint, options).unwrap());
        let is_kept = |add: &(u32, u32, Value)| {
            add.2["partitionValues"]["day"].as_str().is_some_and(|day| day.starts_with(kept))
        };
        let expected: Vec<_> = expected(0, &rows).into_iter().filter(is_kept).collect();
        assert_eq!(found, expected, "{kept}");
        assert_eq!(requested.load(std::sync::atomic::Ordering::Relaxed), 5, "each tuple is asked about once");
    }
}

#[test]
fn files_dropped_by_their_statistics_are_not_read_where_few_are_left() {
    let log = Log::new();
    let mut rows = rows(1500);
    for index in [90, 333, 1200] {
        rows[index]["add"]["stats"] = Value::Null;
    }
    let checkpoint = open_classic(&log, &schema(), &rows, small_pages()).unwrap();
    let all = expected(0, &rows);
    // Numbers of records that end like this, by a predicate that keeps files without statistics.
    for (end, are_few) in [("never}", true), ("77}", true), ("777}", true), ("7}", false), ("}", false)] {
        let is_kept = move |stats: Option<&str>| stats.is_none_or(|stats| stats.ends_with(end));
        let keep = move |stats: StringViewArray| -> RowIndices {
            let kept = stats.iter().enumerate().filter(|(_, stats)| is_kept(*stats));
            kept.map(|(position, _)| position as u32).collect()
        };
        let in_a_day = |tuple: &PartitionTuple| tuple.values[0].as_deref() == Some("2024-01-01");
        for (by_slice, day) in [(false, false), (true, false), (true, true)] {
            let options = ReadOptions {
                keep_stats: Some(Arc::new(keep)),
                keep_tuple: day.then(|| -> KeepTuple { Arc::new(in_a_day) }),
                by_slice,
                ..everything()
            };
            let mut found = adds(&read(&checkpoint, options).unwrap());
            // A file without statistics equals one whose statistics are empty.
            for (_, _, add) in found.iter_mut().filter(|(_, _, add)| add["stats"] == "") {
                add["stats"] = Value::Null;
            }
            let is_wanted = |(_, _, add): &(u32, u32, Value)| {
                is_kept(add["stats"].as_str())
                    && (!day || add["partitionValues"]["day"].as_str() == Some("2024-01-01"))
            };
            let wanted: Vec<_> = all.iter().filter(|add| is_wanted(add)).cloned().collect();
            assert!(!are_few || found.len() == wanted.len(), "{end} {by_slice} {day}");
            let left: Vec<_> = found.into_iter().filter(is_wanted).collect();
            assert_eq!(left, wanted, "{end} {by_slice} {day}");
        }
    }
}

#[test]
fn without_partition_values_the_filter_gets_nulls() {
    let add =
        json!({"path": "p", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true});
    for columns in [&["day"][..], &[]] {
        let rows = [protocol_row(), metadata_row(columns), json!({"add": add})];
        let log = Log::new();
        let checkpoint = open_classic(&log, &schema(), &rows, small_pages()).unwrap();
        for kept in [true, false] {
            let keep = move |tuple: &PartitionTuple| kept && tuple.values.iter().all(Option::is_none);
            let options = ReadOptions { keep_tuple: Some(Arc::new(keep)), ..everything() };
            assert_eq!(read(&checkpoint, options).unwrap().len(), usize::from(kept));
        }
    }
}

fn json_lines(rows: &[Value]) -> Vec<u8> {
    rows.iter().flat_map(|row| [row.to_string().into_bytes(), b"\n".to_vec()].concat()).collect()
}

#[test]
fn a_v2_top_file_may_be_json() {
    let log = Log::new();
    let sidecar = vec![add_row(1), json!({"remove": {"path": "gone"}}), add_row(2)];
    let sidecar_file = log.write("_sidecars/a.parquet", &parquet(&schema(), &sidecar, small_pages()));
    let top = [
        json!({"checkpointMetadata": {"version": 7}}),
        json!({"sidecar": {"path": "a.parquet", "sizeInBytes": sidecar_file.size, "modificationTime": 3}}),
        protocol_row(),
        add_row(4),
        metadata_row(&["day", "city"]),
        add_row(5),
        add_row(6),
    ];
    let checkpoint = open(log.root(), &log.in_json(&json_lines(&top))).unwrap();
    assert_eq!(checkpoint.metadata().unwrap().partition_columns, ["day", "city"]);
    assert_eq!(checkpoint.protocol().unwrap().min_reader_version, 1);
    let mut all = expected(0, &top);
    all.extend(expected(1, &sidecar));
    assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), all);

    let span = Span { start: Position { part: 0, row: 4 }, end: Some(Position { part: 1, row: 1 }) };
    let found = adds(&read(&checkpoint, ReadOptions { span: Some(span), ..everything() }).unwrap());
    assert_eq!(found, all[1..4]);

    let keep = |tuple: &PartitionTuple| tuple.values[0].as_deref() == Some("2024-01-01");
    let found = read(&checkpoint, ReadOptions { keep_tuple: Some(Arc::new(keep)), ..everything() }).unwrap();
    assert_eq!(adds(&found), [all[0].clone(), all[3].clone()]);

    let least = read(&checkpoint, ReadOptions::default()).unwrap();
    assert!(least.iter().all(|batch| batch.stats.is_none() && batch.base_row_id.is_none()));

    let dead: IsDead<'_> = &|path, _| path.ends_with("part-5.parquet");
    assert_eq!(
        checkpoint.totals(Some(dead), 2, &Stop::default()).unwrap(),
        Sums { live: Totals { files: 4, size_bytes: 130 }, adds: 5 }
    );
    assert_eq!(live(&checkpoint, None), Totals { files: 5, size_bytes: 180 });
}

#[test]
fn a_sidecar_action_in_json_may_have_escapes_and_its_size_any_notation() {
    let log = Log::new();
    let sidecar_file = log.write("_sidecars/a.parquet", &parquet(&schema(), &[add_row(1)], small_pages()));
    let size = sidecar_file.size;
    for action in [
        format!(r#"{{"\u0073idecar":{{"p\u0061th":"a.parquet","sizeInBytes":{size}}}}}"#),
        format!(r#"{{"sidecar":{{"path":"a.parquet","sizeInBytes":"{size}"}}}}"#),
        format!(r#"{{"sidecar":{{"path":"a.parquet","sizeInBytes":{size}.0}}}}"#),
    ] {
        // Of another action an escape says nothing, whatever it spells.
        let other = r#"{"txn":{"appId":"\ud800","version":1}}"#;
        let heads = json_lines(&[protocol_row(), metadata_row(&[])]);
        let content = [other.as_bytes(), b"\n", action.as_bytes(), b"\n", &heads].concat();
        let found = read(&open(log.root(), &log.in_json(&content)).unwrap(), everything()).unwrap();
        assert_eq!(adds(&found).len(), 1, "{action}");
    }
}

#[test]
fn a_broken_json_top_file_is_a_corrupt_log() {
    let log = Log::new();
    for broken in [&b"{\"sidecar\":{\"path\":\"a\"}}\n"[..], b"{\"add\":{}}\n", b"{", b"\xff\n"] {
        assert!(matches!(open(log.root(), &log.in_json(broken)), Err(Error::CorruptLog { .. })));
    }
}
