//! Files that are cut, flipped or of other types.

use ::parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, Type, ZstdLevel};
use ::parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use ::parquet::file::statistics::Statistics;
use ::parquet::schema::types::ColumnPath;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;

use super::*;
use writer::{Log, add_fields, parquet, schema, schema_of, struct_of, with_type};

fn properties() -> WriterProperties {
    WriterProperties::builder().set_compression(Compression::SNAPPY).build()
}

fn rows() -> Vec<Value> {
    rows_of(40)
}

/// Reads all of a classic checkpoint of these bytes.
fn outcome(content: &[u8]) -> Result<usize> {
    let log = Log::new();
    let checkpoint = open(log.root(), &log.classic(content))?;
    Ok(read(&checkpoint, everything())?.iter().map(FileBatch::len).sum())
}

#[test]
fn a_file_that_is_cut_anywhere_is_a_corrupt_log() {
    let content = parquet(&schema(), &rows(), properties());
    assert_eq!(outcome(&content).unwrap(), 40);
    for length in (0..content.len()).step_by(97) {
        let error = outcome(&content[..length]).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{length}: {error:?}");
    }
}

#[test]
fn a_flipped_bit_gives_a_corrupt_log_or_other_values_but_never_a_panic() {
    let content = parquet(&schema(), &rows(), properties());
    let outcomes: Vec<_> = (0..content.len())
        .step_by(23)
        .map(|position| {
            let mut damaged = content.clone();
            damaged[position] ^= 1 << (position % 8);
            outcome(&damaged)
        })
        .collect();
    for outcome in &outcomes {
        assert!(matches!(outcome, Ok(_) | Err(Error::CorruptLog { .. })), "{outcome:?}");
    }
    assert!(outcomes.iter().filter(|outcome| outcome.is_err()).count() > 10);
}

#[test]
fn a_required_field_that_is_null_is_a_corrupt_log() {
    for field in ["path", "size", "modificationTime", "dataChange"] {
        let mut rows = rows();
        rows[9]["add"][field] = Value::Null;
        let error = outcome(&parquet(&schema(), &rows, properties())).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let mut rows = rows();
    rows[6]["add"]["deletionVector"]["sizeInBytes"] = Value::Null;
    let error = outcome(&parquet(&schema(), &rows, properties())).unwrap_err();
    assert!(error.to_string().contains("deletionVector"), "{error}");
}

#[test]
fn a_column_of_another_type_is_a_corrupt_log() {
    for (column, wrong) in [
        ("path", DataType::Int64),
        ("partitionValues", DataType::Utf8),
        ("size", DataType::Utf8),
        ("modificationTime", DataType::Boolean),
        ("dataChange", DataType::Int64),
        ("stats", DataType::Int32),
        ("deletionVector", DataType::Utf8),
        ("baseRowId", DataType::Boolean),
    ] {
        let mut columns = add_fields();
        for (name, data_type) in &mut columns {
            if *name == column {
                *data_type = wrong.clone();
            }
        }
        let value = match wrong {
            DataType::Utf8 => json!("x"),
            DataType::Boolean => json!(true),
            _ => json!(7),
        };
        let mut rows = rows();
        for row in &mut rows {
            if row.get("add").is_some() {
                row["add"][column] = value.clone();
            }
        }
        let error = outcome(&parquet(&schema_of(&columns), &rows, properties())).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{column}: {error:?}");
    }
}

#[test]
fn a_column_that_another_reader_would_take_for_a_file_action_is_a_corrupt_log() {
    let column = |name: &str, data_type: &DataType| Field::new(name, data_type.clone(), true);
    let with_children = |more: &[&'static str]| {
        let children = add_fields().into_iter().chain(more.iter().map(|name| (*name, DataType::Utf8)));
        DataType::Struct(children.map(|(name, of)| Field::new(name, of, true)).collect())
    };
    let add = with_children(&[]);
    let list = DataType::List(Arc::new(Field::new("element", add.clone(), true)));
    let sidecar = struct_of([("PATH", DataType::Utf8), ("sizeInBytes", DataType::Int64)]);
    for (columns, reason) in [
        (vec![column("Add", &add)], Some("no single column of the name add")),
        (vec![column("add", &add), column("ADD", &add)], Some("no single column of the name add")),
        (vec![column("add", &add), column("add", &DataType::Null)], Some("no single column of the name add")),
        (vec![column("add", &list)], Some("its column add has no path")),
        (vec![column("add", &DataType::Utf8)], Some("its column add has no path")),
        (vec![column("add", &with_children(&["Path"]))], Some("of the name path")),
        (vec![column("add", &with_children(&["deletionvector"]))], Some("of the name deletionVector")),
        (vec![column("add", &add), column("sidecar", &sidecar)], Some("of the name path")),
        (vec![column("add", &DataType::Null), column("sidecar", &DataType::Null)], None),
        (vec![column("address", &DataType::Utf8)], None),
    ] {
        let heads = ["protocol", "metaData"].map(|name| schema().field_with_name(name).unwrap().clone());
        let all: Vec<_> = heads.into_iter().chain(columns).collect();
        let log = Log::new();
        let rows = [protocol_row(), metadata_row(&[])];
        match (open_classic(&log, &Schema::new(all), &rows, properties()), reason) {
            (Ok(checkpoint), None) => assert!(read(&checkpoint, everything()).unwrap().is_empty()),
            (Err(error), Some(reason)) => assert!(error.to_string().contains(reason), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_whole_number_that_does_not_fit_is_a_corrupt_log() {
    for (column, field) in [("size", None), ("deletionVector", Some("cardinality"))] {
        let (columns, mut rows) = (with_type(&DataType::UInt64), rows());
        let mut values = rows.iter_mut().filter_map(|row| row.get_mut("add")?.get_mut(column));
        let value = values.rfind(|value| !value.is_null()).unwrap();
        match field {
            Some(field) => value[field] = json!(u64::MAX),
            None => *value = json!(u64::MAX),
        }
        let error = outcome(&parquet(&schema_of(&columns), &rows, properties())).unwrap_err();
        assert!(error.to_string().contains(&format!("add.{column} has a wrong type")), "{error}");
    }
}

#[test]
fn a_file_of_a_partitioned_table_without_partition_values_is_a_corrupt_log() {
    let file = |partition_values: Value| {
        let mut row = add_row(1);
        row["add"]["partitionValues"] = partition_values;
        row
    };
    let without: Vec<_> = add_fields().into_iter().filter(|(name, _)| *name != "partitionValues").collect();
    for (columns, values) in [(add_fields(), json!({})), (add_fields(), Value::Null), (without, Value::Null)]
    {
        for others in [vec![], vec![file(json!({"day": "2024-01-01"}))]] {
            let is_map = columns.iter().any(|(name, _)| *name == "partitionValues");
            let rows = [vec![protocol_row(), metadata_row(&["day"]), file(values.clone())], others].concat();
            let log = Log::new();
            let checkpoint = open_classic(&log, &schema_of(&columns), &rows, properties()).unwrap();
            for keep_tuple in [None, Some(Arc::new(|_: &_| true) as KeepTuple)] {
                let found = read(&checkpoint, ReadOptions { keep_tuple, ..everything() });
                match found {
                    // An absent key is null, as for other readers.
                    Ok(batches) => assert!(is_map && values.is_object() && !batches.is_empty()),
                    Err(error) => {
                        assert!(values.is_null(), "{error}");
                        assert!(error.to_string().contains("an add has no partitionValues"), "{error}");
                    }
                }
            }
            // A table without partitions needs none.
            let rows = [&[protocol_row(), metadata_row(&[])][..], &rows[2..]].concat();
            let checkpoint = open_classic(&log, &schema_of(&columns), &rows, properties()).unwrap();
            assert!(read(&checkpoint, everything()).is_ok());
        }
    }
}

#[test]
fn a_missing_sidecar_is_named_without_its_directory_and_one_elsewhere_is_not_opened() {
    let log = Log::new();
    for (path, expected) in [
        ("gone.parquet", "gone.parquet"),
        ("../../../etc/gone.parquet", "gone.parquet"),
        ("s3://other/_delta_log/_sidecars/gone.parquet", "gone.parquet"),
    ] {
        let rows = [protocol_row(), metadata_row(&[]), json!({"sidecar": {"path": path, "sizeInBytes": 9}})];
        let error =
            read(&open_classic(&log, &schema(), &rows, properties()).unwrap(), everything()).unwrap_err();
        assert!(matches!(&error, Error::FileNotFound { file } if file == expected), "{error:?}");
    }
    for path in ["", "a/..", "%2e%2e", "a%2f..%2f..%2fb", "dir/"] {
        let rows = [protocol_row(), metadata_row(&[]), json!({"sidecar": {"path": path, "sizeInBytes": 9}})];
        assert!(
            matches!(open_classic(&log, &schema(), &rows, properties()), Err(Error::CorruptLog { .. })),
            "{path}"
        );
    }
}

/// Returns a file whose footer states other row groups, and perhaps another number of all rows, below 64.
fn with_footer(
    content: &[u8],
    alter: impl Fn(usize, RowGroupMetaData) -> Option<RowGroupMetaData>,
    rows: Option<u8>,
) -> Vec<u8> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::copy_from_slice(content)).unwrap();
    let row_groups = metadata.row_groups().iter().cloned().enumerate();
    let row_groups = row_groups.filter_map(|(index, row_group)| alter(index, row_group)).collect::<Vec<_>>();
    let own_rows: i64 = row_groups.iter().map(RowGroupMetaData::num_rows).sum();
    let (data, length) = content[..content.len() - 4].split_last_chunk().unwrap();
    let data = &data[..data.len() - u32::from_le_bytes(*length) as usize];
    let mut altered = data.to_vec();
    let metadata = ParquetMetaData::new(metadata.file_metadata().clone(), row_groups);
    ParquetMetaDataWriter::new(&mut altered, &metadata).finish().unwrap();
    if let Some(rows) = rows {
        // The number of all rows stands before the list of row groups, and the writer sums it up.
        let stated = [0x16, 2 * own_rows as u8, 0x19];
        let at = memchr::memmem::find(&altered[data.len()..], &stated).unwrap();
        altered[data.len() + at + 1] = 2 * rows;
    }
    altered
}

#[test]
fn row_groups_of_fewer_rows_than_the_footer_states_are_a_corrupt_log() {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(20)).build();
    let content = parquet(&schema(), &rows(), properties);
    for rows in [None, Some(20)] {
        assert_eq!(outcome(&with_footer(&content, |_, row_group| Some(row_group), rows)).unwrap(), 40);
    }
    let in_second = |rows: i64| {
        move |index: usize, row_group: RowGroupMetaData| match index {
            1 => row_group.into_builder().set_num_rows(rows).build().ok(),
            _ => Some(row_group),
        }
    };
    for content in [
        // A reader of some rows would not see the end of the row group.
        with_footer(&content, in_second(0), None),
        with_footer(&content, in_second(19), None),
        with_footer(&content, |index, row_group| (index != 1).then_some(row_group), Some(42)),
        with_footer(&content, |_, row_group| Some(row_group), Some(43)),
    ] {
        let error = outcome(&content).unwrap_err();
        assert!(error.to_string().contains("fewer rows than its footer states"), "{error}");
    }
}

#[test]
fn a_row_group_has_adds_and_vectors_unless_all_of_their_fields_are_null() {
    let content = parquet(&schema(), &rows(), properties());
    let log = Log::new();
    let right = adds(&read(&open(log.root(), &log.classic(&content)).unwrap(), everything()).unwrap());
    assert!(right.len() == 40 && right.iter().any(|(_, _, add)| add["deletionVector"].is_object()));
    for field in ["path", "size", "modificationTime", "deletionVector.storageType"] {
        let without = |_, row_group: RowGroupMetaData| {
            let columns = row_group.columns().iter().cloned().map(|column| {
                if column.column_path().string() != format!("add.{field}") {
                    return column;
                }
                let nulls = Some(column.num_values() as u64);
                let statistics = match column.column_type() {
                    Type::BYTE_ARRAY => Statistics::byte_array(None, None, None, nulls, false),
                    _ => Statistics::int64(None, None, None, nulls, false),
                };
                column.into_builder().set_statistics(statistics).build().unwrap()
            });
            let columns = columns.collect();
            row_group.into_builder().set_column_metadata(columns).build().ok()
        };
        let files = log.classic(&with_footer(&content, without, None));
        let checkpoint = open(log.root(), &files).unwrap();
        assert_eq!(checkpoint.most_adds(), Some(40), "{field}");
        assert_eq!(live(&checkpoint, None).files, 40, "{field}");
        let keep_all = ReadOptions { keep_tuple: Some(Arc::new(|_: &_| true)), ..everything() };
        for options in [everything(), keep_all] {
            assert_eq!(adds(&read(&checkpoint, options).unwrap()), right, "{field}");
        }
    }
}

#[test]
fn a_page_that_would_fill_the_memory_is_a_corrupt_log() {
    // Honest by its header, and larger than any page of a checkpoint has to be.
    let error = outcome(&with_large_page(properties())).unwrap_err();
    assert!(matches!(&error, Error::CorruptLog { reason, .. } if reason.contains("too large")), "{error:?}");
}

/// A checkpoint with statistics of more bytes than a page may have.
fn with_large_page(properties: WriterProperties) -> Vec<u8> {
    let mut rows = rows();
    rows[2]["add"]["stats"] = json!("x".repeat(65 << 20));
    parquet(&schema(), &rows, properties)
}

#[test]
fn a_page_that_inflates_to_more_than_it_says_is_a_corrupt_log() {
    let codecs = [
        Compression::GZIP(GzipLevel::try_new(1).unwrap()),
        Compression::BROTLI(BrotliLevel::try_new(1).unwrap()),
    ];
    for (codec, version) in codecs
        .into_iter()
        .flat_map(|codec| [(codec, WriterVersion::PARQUET_1_0), (codec, WriterVersion::PARQUET_2_0)])
    {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_writer_version(version)
            .set_encoding(Encoding::PLAIN)
            .set_dictionary_enabled(false);
        let mut content = with_large_page(properties.build());
        let footer = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(content.clone())).unwrap();
        let columns = footer.row_group(0).columns();
        let stats = columns.iter().find(|column| column.column_path().string() == "add.stats").unwrap();
        // The header begins with the type and the decompressed size, each behind a byte for the field.
        let size = &mut content[stats.data_page_offset() as usize + 3..][..4];
        assert!(size[0] & 0x80 != 0 && size[3] & 0x80 == 0, "a number of four bytes");
        size.copy_from_slice(&[0x80, 0x88, 0x80, 0x00]);
        let error = outcome(&content).unwrap_err();
        assert!(error.to_string().contains("a page is too large"), "{codec:?} {version:?}: {error}");
    }
}

#[test]
fn a_batch_whose_pages_or_prefix_coded_texts_are_large_is_too_large() {
    let rows: Vec<_> = (0..64)
        .map(|number| {
            let mut row = add_row(number);
            row["add"]["stats"] = json!("x".repeat(1 << 20));
            row
        })
        .collect();
    for encoding in [Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY] {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_write_batch_size(1)
            .set_column_encoding(ColumnPath::new(vec!["add".to_owned(), "stats".to_owned()]), encoding)
            .build();
        let content = Bytes::from(parquet(&schema(), &rows, properties));
        let file = ParquetFile::open(content, "checkpoint").unwrap();
        let projection = file.project(&file.leaves(|path| path == ["add", "stats"])).unwrap();
        for (batch_rows, is_read) in [(64, false), (4, true)] {
            let mut reader = file.read_bounded(0, &projection, batch_rows, None).unwrap();
            assert_eq!(reader.by_ref().all(|batch| batch.is_ok()), is_read, "{encoding}");
            assert_eq!(reader.is_too_large(), !is_read, "{encoding}");
        }
    }
}

#[test]
fn pages_that_are_large_together_and_texts_of_an_add_that_are_too_long_are_a_corrupt_log() {
    let refused = |fields: &[(&str, usize)]| {
        let mut rows = rows();
        for (field, mebibytes) in fields {
            rows[2]["add"][*field] = json!("x".repeat(mebibytes << 20));
        }
        outcome(&parquet(&schema(), &rows, properties())).map_err(|error| error.to_string())
    };
    assert_eq!(refused(&[("stats", 7)]).unwrap(), 40);
    assert!(refused(&[("stats", 9)]).unwrap_err().contains("the texts of an action are too long"));
    let together = refused(&[("stats", 30), ("clusteringProvider", 30), ("path", 30)]);
    assert!(together.unwrap_err().contains("the pages of a row are too large"));
}

#[test]
fn statistics_may_hold_more_than_other_columns_if_they_are_as_long_in_the_file() {
    let names: Vec<String> = (0..60).map(|column| format!("c{column}")).collect();
    let columns = names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    let mut add = add_fields();
    add.push(("stats_parsed", struct_of([("minValues", DataType::Struct(columns))])));
    let read = |rows: &[Value], codec| {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1 << 30);
        outcome(&parquet(&schema_of(&add), rows, properties.build()))
    };
    // 60 pages of 1 MiB, and a page of 60 MiB.
    let [mut typed, mut texts] = [rows(), rows()];
    for (typed, texts) in typed.iter_mut().zip(&mut texts).skip(2).take(10) {
        let values = names.iter().map(|name| (name.clone(), json!("x".repeat(100 << 10))));
        typed["add"]["stats"] = Value::Null;
        typed["add"]["stats_parsed"] = json!({"minValues": values.collect::<serde_json::Map<_, _>>()});
        texts["add"]["stats"] = json!("x".repeat(6 << 20));
    }
    for rows in [typed, texts] {
        assert_eq!(read(&rows, Compression::UNCOMPRESSED).unwrap(), 40);
        let packed = read(&rows, Compression::ZSTD(ZstdLevel::default())).unwrap_err().to_string();
        assert!(packed.contains("the pages of a row are too large"), "{packed}");
    }
}
