//! Compares the reader with a naive one that reads row by row through Parquet's record API.

use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use writer::{Log, parquet, schema};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,3}", "[a-z\"\\\\\u{2028}é😀]{0,40}", Just("x".repeat(300))]
}

fn maybe(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 2 => value].boxed()
}

fn add_action() -> impl Strategy<Value = Value> {
    let vector = (text(), prop::option::of(0..9_i32), 0..99_i32, 0..99_i64).prop_map(|(path, offset, size, rows)| {
        json!({"storageType": "u", "pathOrInlineDv": path, "offset": offset, "sizeInBytes": size, "cardinality": rows})
    });
    let values = prop::collection::btree_map("[abc]", maybe(text().prop_map(Value::from)), 0..4);
    let numbers = (0..i64::MAX, any::<i64>(), any::<bool>());
    let optional = (
        maybe(text().prop_map(Value::from)),
        prop_oneof![9 => Just(Value::Null), 1 => vector],
        maybe(any::<i64>().prop_map(Value::from)),
        maybe(text().prop_map(Value::from)),
    );
    (text(), values, numbers, optional).prop_map(
        |(path, values, numbers, (stats, vector, base, provider))| {
            json!({"add": {
                "path": path, "partitionValues": values, "size": numbers.0, "modificationTime": numbers.1,
                "dataChange": numbers.2, "stats": stats, "deletionVector": vector, "baseRowId": base,
                "defaultRowCommitVersion": base, "clusteringProvider": provider,
            }})
        },
    )
}

fn actions() -> impl Strategy<Value = Vec<Value>> {
    let other = Just(json!({"remove": {"path": "gone", "deletionTimestamp": 1}}));
    // Runs of one kind, so that whole pages and row groups have no adds.
    let run = prop_oneof![
        3 => prop::collection::vec(add_action(), 0..30),
        1 => prop::collection::vec(other, 0..30),
    ];
    prop::collection::vec(run, 0..6).prop_map(|runs| {
        let mut rows = vec![protocol_row(), metadata_row(&["b", "a"])];
        rows.extend(runs.into_iter().flatten());
        rows
    })
}

fn properties() -> impl Strategy<Value = WriterProperties> {
    let codec = prop_oneof![
        Just(Compression::UNCOMPRESSED),
        Just(Compression::SNAPPY),
        Just(Compression::ZSTD(ZstdLevel::default())),
    ];
    let version = prop_oneof![Just(WriterVersion::PARQUET_1_0), Just(WriterVersion::PARQUET_2_0)];
    (1..60_usize, 1..40_usize, codec, version, any::<bool>(), any::<bool>()).prop_map(
        |(group_rows, page_rows, codec, version, dictionary, statistics)| {
            use ::parquet::file::properties::EnabledStatistics;
            let level = if statistics { EnabledStatistics::Page } else { EnabledStatistics::None };
            WriterProperties::builder()
                .set_max_row_group_row_count(Some(group_rows))
                .set_data_page_row_count_limit(page_rows)
                .set_write_batch_size(page_rows)
                .set_compression(codec)
                .set_writer_version(version)
                .set_dictionary_enabled(dictionary)
                .set_statistics_enabled(level)
                .build()
        },
    )
}

/// Every add with its row, one record at a time.
fn naive(content: &[u8]) -> Vec<(u32, u32, Value)> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(content)).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap).zip(0..);
    rows.filter_map(|(row, number)| Some((0, number, naive_add(child(&row, "add")?)))).collect()
}

fn child<'a>(row: &'a Row, name: &str) -> Option<&'a Row> {
    row.get_column_iter().find(|(field, _)| *field == name).and_then(|(_, field)| match field {
        Field::Group(group) => Some(group),
        _ => None,
    })
}

fn naive_add(add: &Row) -> Value {
    let mut object = serde_json::Map::new();
    for (name, field) in add.get_column_iter() {
        object.insert(name.clone(), value(field));
    }
    let values = object["partitionValues"].take();
    let of = |column: &str| values.get(column).filter(|value| **value != "").cloned();
    object.insert("partitionValues".to_owned(), json!({"b": of("b"), "a": of("a")}));
    Value::Object(object)
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => json!(value),
        Field::Int(value) => json!(value),
        Field::Long(value) => json!(value),
        Field::Str(value) => json!(value),
        Field::Group(row) => {
            row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
        }
        Field::MapInternal(map) => {
            let key = |field: &Field| value(field).as_str().unwrap().to_owned();
            map.entries().iter().map(|(name, field)| (key(name), value(field))).collect()
        }
        other => unreachable!("{other:?}"),
    }
}

/// A file without statistics equals one whose statistics are empty.
fn without_empty_stats(mut adds: Vec<(u32, u32, Value)>) -> Vec<(u32, u32, Value)> {
    for (.., add) in adds.iter_mut().filter(|(.., add)| add["stats"] == "") {
        add["stats"] = Value::Null;
    }
    adds
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 10))]

    #[test]
    fn a_checkpoint_reads_as_by_a_naive_reader(
        rows in actions(), properties in properties(), start in 0..80_u32, length in 0..200_u32, kept in "[abc]?",
    ) {
        let content = parquet(&schema(), &rows, properties);
        let log = Log::new();
        let checkpoint = open(log.root(), &log.classic(&content)).unwrap();
        let expected = naive(&content);
        prop_assert_eq!(adds(&read(&checkpoint, everything()).unwrap()), &expected[..]);

        let span = Span { start: Position { part: 0, row: start }, end: Some(Position { part: 0, row: start + length }) };
        let prefix = kept.clone();
        let keep = move |tuple: &PartitionTuple| {
            tuple.values[0].as_deref().is_some_and(|value| value.starts_with(&prefix))
        };
        let options = ReadOptions { span: Some(span), keep_tuple: Some(Arc::new(keep)), ..everything() };
        let by_slice = ReadOptions { by_slice: true, ..options.clone() };
        let is_wanted = |add: &&(u32, u32, Value)| {
            let value = add.2["partitionValues"]["b"].as_str();
            (start..start + length).contains(&add.1) && value.is_some_and(|value| value.starts_with(&kept))
        };
        let wanted: Vec<_> = expected.iter().filter(is_wanted).cloned().collect();
        let wanted = without_empty_stats(wanted);
        for options in [options, by_slice] {
            prop_assert_eq!(without_empty_stats(adds(&read(&checkpoint, options).unwrap())), &wanted[..]);
        }

        let sizes = expected.iter().map(|add| add.2["size"].as_u64().unwrap());
        match sizes.clone().try_fold(0_u64, u64::checked_add) {
            Some(size_bytes) => prop_assert_eq!(
                checkpoint.totals(None, 2, &Stop::default()).unwrap().live,
                Totals { files: expected.len() as u64, size_bytes }
            ),
            None => prop_assert!(checkpoint.totals(None, 2, &Stop::default()).is_err()),
        }
    }
}
