//! The page indexes of a file may be wrong where its pages are not.

use std::path::PathBuf;

use ::parquet::basic::Compression;
use ::parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use ::parquet::file::reader::{FileReader, SerializedFileReader};

use super::*;
use crate::known_tables::{answers, golden};
use writer::{Log, parquet, schema};

fn metadata(content: &[u8]) -> Arc<::parquet::file::metadata::ParquetMetaData> {
    let bytes = bytes::Bytes::copy_from_slice(content);
    Arc::new(SerializedFileReader::new(bytes).unwrap().metadata().clone())
}

/// The bytes of the indexes of a file.
fn indexes(content: &[u8]) -> Vec<usize> {
    let range = |start: Option<i64>, length: Option<i32>| {
        let start = start.unwrap_or(0) as usize;
        start..start + length.unwrap_or(0) as usize
    };
    let of_column = |column: &ColumnChunkMetaData| {
        let offsets = range(column.offset_index_offset(), column.offset_index_length());
        offsets.chain(range(column.column_index_offset(), column.column_index_length()))
    };
    metadata(content).row_groups().iter().flat_map(RowGroupMetaData::columns).flat_map(of_column).collect()
}

/// Reads all adds, those of some rows, and those of a partition by slices.
fn answers_of(log: &Log, content: &[u8]) -> Vec<Vec<(u32, u32, Value)>> {
    let checkpoint = open(log.root(), &log.classic(content)).unwrap();
    let rows = metadata(content).file_metadata().num_rows() as u32;
    let position = |row| Position { part: 0, row };
    let spans = [(rows / 3, Some(rows / 3 + 2)), (rows / 2, None)];
    let spans = spans.map(|(start, end)| ReadOptions {
        span: Some(Span { start: position(start), end: end.map(position) }),
        ..everything()
    });
    // Distant rows skip pages, and a few of all rows skip most.
    let of_partition = |ends: &'static [&str]| ReadOptions {
        keep_tuple: Some(Arc::new(move |tuple: &PartitionTuple| {
            tuple.values.iter().flatten().any(|value| ends.iter().any(|end| value.ends_with(end)))
        })),
        by_slice: true,
        ..everything()
    };
    let filters = [of_partition(&["1"]), of_partition(&["7", "rare"])];
    let reads = spans.into_iter().chain(filters);
    reads.map(|options| adds(&read(&checkpoint, options).unwrap())).collect()
}

fn assert_indexes_decide_nothing(content: &[u8], masks: &[u8], step: usize) -> usize {
    let log = Log::new();
    let expected = answers_of(&log, content);
    let altered = indexes(content);
    for (number, position) in altered.iter().enumerate().step_by(step) {
        let mut content = content.to_vec();
        content[*position] ^= masks[number / step % masks.len()];
        assert_eq!(answers_of(&log, &content), expected, "byte {position}");
    }
    let mut torn = content.to_vec();
    for position in &altered {
        torn[*position] = 0;
    }
    assert_eq!(answers_of(&log, &torn), expected);
    altered.len()
}

const MASKS: [u8; 6] = [0x02, 0x80, 0xff, 0x04, 0x01, 0x10];

#[test]
fn an_altered_index_of_an_arrow_writer_changes_no_answer() {
    alter_indexes_of_an_arrow_writer(389);
}

#[test]
#[ignore = "of the part `nightly`"]
fn four_times_as_many_altered_indexes_of_an_arrow_writer_change_no_answer() {
    alter_indexes_of_an_arrow_writer(97);
}

fn alter_indexes_of_an_arrow_writer(step: usize) {
    let mut rows: Vec<Value> = (0..420).map(add_row).collect();
    rows.insert(0, metadata_row(&["day", "city"]));
    rows.insert(200, protocol_row());
    for index in [37, 260, 410] {
        rows[index]["add"]["partitionValues"]["city"] = json!("rare");
    }
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(300))
            .set_data_page_row_count_limit(40)
            .set_write_batch_size(20)
            .set_writer_version(version)
            .set_compression(Compression::SNAPPY)
            .build();
        let altered = assert_indexes_decide_nothing(&parquet(&schema(), &rows, properties), &MASKS, step);
        assert!(altered > 2000, "{altered}");
    }
}

#[test]
fn an_altered_index_of_spark_changes_no_answer() {
    // The project's own tables have no checkpoint of Spark.
    let Some(golden) = golden() else { return };
    let is_classic = |path: &PathBuf| path.to_string_lossy().ends_with(".checkpoint.parquet");
    let mut altered = 0;
    for (root, _) in answers(&golden) {
        let Ok(names) = std::fs::read_dir(root.join("_delta_log")) else { continue };
        let Some(path) = names.map(|name| name.unwrap().path()).find(is_classic) else { continue };
        let content = std::fs::read(path).unwrap();
        let is_of_spark =
            metadata(&content).file_metadata().created_by().is_some_and(|by| by.starts_with("parquet-mr"));
        if is_of_spark && altered < 4000 && content.len() < 40_000 {
            altered += assert_indexes_decide_nothing(&content, &MASKS, 11);
        }
    }
    assert!(altered > 1000, "{altered}");
}
