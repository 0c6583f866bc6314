//! Totals are those of the stream, whatever is dead and however many threads sum up.

use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::schema::types::ColumnPath;

use super::*;
use writer::{Log, parquet, schema};

/// Three parts of several row groups, with removes and deletion vectors among them.
fn checkpoint(log: &Log) -> Checkpoint {
    let files = (1..=3_usize).map(|part| {
        let mut rows: Vec<Value> = (0..part * 400).map(|row| add_row(part * 10_000 + row)).collect();
        rows.insert(3, json!({"remove": {"path": "gone", "deletionTimestamp": 1}}));
        rows.insert(90, protocol_row());
        rows.push(metadata_row(&["day", "city"]));
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(170))
            .set_data_page_row_count_limit(50)
            .set_write_batch_size(10);
        parquet(&schema(), &rows, properties.build())
    });
    open(log.root(), &log.multi_part(&files.collect::<Vec<_>>())).unwrap()
}

fn of_stream(checkpoint: &Checkpoint, is_dead: IsDead<'_>) -> Totals {
    let mut totals = Totals::default();
    for batch in read(checkpoint, everything()).unwrap() {
        for file in 0..batch.len() {
            if !is_dead(batch.path.value(file), batch.deletion_vector_at(file)) {
                totals.files += 1;
                totals.size_bytes += batch.size[file] as u64;
            }
        }
    }
    totals
}

#[test]
fn totals_are_those_of_the_stream() {
    let log = Log::new();
    let checkpoint = checkpoint(&log);
    let all = of_stream(&checkpoint, &|_, _| false);
    assert_eq!(all.files, 400 + 800 + 1200);
    let by_path: IsDead<'_> = &|path, _| path.ends_with("7.parquet");
    let by_vector: IsDead<'_> = &|_, vector| vector.is_some_and(|vector| vector.cardinality % 8 == 0);
    for threads in [0, 1, 2, 3, 16] {
        assert_eq!(checkpoint.totals(None, threads, &Stop::default()).unwrap().live, all);
        for is_dead in [by_path, by_vector] {
            let expected = of_stream(&checkpoint, is_dead);
            assert!(expected.files < all.files);
            assert_eq!(checkpoint.totals(Some(is_dead), threads, &Stop::default()).unwrap().live, expected);
            let sizes: Vec<i64> = (0..400_000).collect();
            let by_size = checkpoint.totals_without(is_dead, &sizes[..], threads, &Stop::default());
            assert_eq!(by_size.unwrap().live, expected, "where every add has one of the sizes");
        }
    }
}

#[test]
fn only_adds_of_the_given_sizes_are_probed() {
    let log = Log::new();
    let checkpoint = checkpoint(&log);
    let all = of_stream(&checkpoint, &|_, _| false);
    for sizes in [&[][..], &[1], &[100_000], &[99, 100_000, 103_990, 203_990, 305_550]] {
        let probed = std::sync::Mutex::new(Vec::new());
        let is_dead: IsDead<'_> = &|path, vector| {
            probed.lock().unwrap().push((path.to_owned(), vector.map(|vector| vector.cardinality)));
            true
        };
        let totals = checkpoint.totals_without(is_dead, sizes, 2, &Stop::default()).unwrap();
        let batches = read(&checkpoint, everything()).unwrap();
        let mut expected = Vec::new();
        let mut live = all;
        for (batch, file) in batches.iter().flat_map(|batch| (0..batch.len()).map(move |file| (batch, file)))
        {
            if sizes.contains(&batch.size[file]) {
                let vector = batch.deletion_vector_at(file).map(|vector| vector.cardinality);
                expected.push((batch.path.value(file).to_owned(), vector));
                live = live.minus(Totals { files: 1, size_bytes: batch.size[file] as u64 });
            }
        }
        let mut probed = probed.into_inner().unwrap();
        probed.sort();
        expected.sort();
        assert_eq!(probed, expected);
        assert_eq!(totals.live, live);
    }
}

#[test]
fn a_checkpoint_without_adds_sums_up_to_nothing() {
    let log = Log::new();
    let checkpoint =
        open_classic(&log, &schema(), &[protocol_row(), metadata_row(&[])], WriterProperties::default())
            .unwrap();
    assert_eq!(live(&checkpoint, None), Totals::default());
    assert_eq!(live(&checkpoint, Some(&|_, _| true)), Totals::default());
    assert!(read(&checkpoint, everything()).unwrap().is_empty());
}

#[test]
fn row_groups_without_adds_are_none_whatever_columns_have_statistics() {
    for without in ["path", "size"] {
        let log = Log::new();
        let column = ColumnPath::from(vec!["add".to_owned(), without.to_owned()]);
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(2))
            .set_column_statistics_enabled(column, EnabledStatistics::None);
        let checkpoint = open_classic(&log, &schema(), &rows_of(6), properties.build()).unwrap();
        let is_dead: IsDead<'_> = &|path, _| path.ends_with("3.parquet");
        let expected = of_stream(&checkpoint, is_dead);
        assert_eq!(expected.files, 5);
        assert_eq!(live(&checkpoint, Some(is_dead)), expected, "{without}");
        let sizes: Vec<i64> = (0..400_000).collect();
        let by_size = checkpoint.totals_without(is_dead, &sizes, 2, &Stop::default());
        assert_eq!(by_size.unwrap().live, expected, "{without}");
    }
}

#[test]
fn sums_end_at_the_deadline_and_when_the_caller_leaves() {
    let log = Log::new();
    let rows = rows_of(6);
    let content = parquet(&schema(), &rows, WriterProperties::default());
    let lines = rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    for files in [log.classic(&content), log.in_json(lines.as_bytes())] {
        let checkpoint = open(log.root(), &files).unwrap();
        let late = Stop::at(Some(std::time::Instant::now()));
        assert!(matches!(checkpoint.totals(None, 2, &late), Err(Error::DeadlineExceeded)));
        let stop = Stop::at(Some(std::time::Instant::now() + std::time::Duration::from_secs(3600)));
        assert_eq!(checkpoint.totals(None, 2, &stop).unwrap().live.files, 6);
        stop.clone().cancel();
        assert!(matches!(checkpoint.totals(None, 2, &stop), Err(Error::Cancelled)));
    }
}

#[test]
fn sizes_that_cannot_be_are_a_corrupt_log() {
    for sizes in [[1, -1], [i64::MAX, i64::MAX]] {
        let log = Log::new();
        let mut rows = rows_of(6);
        for row in 0..6 {
            rows[2 + row]["add"]["size"] = json!(sizes[row % 2]);
        }
        let checkpoint = open_classic(&log, &schema(), &rows, WriterProperties::default()).unwrap();
        for is_dead in [None, Some::<IsDead<'_>>(&|_, _| false)] {
            let error = checkpoint.totals(is_dead, 2, &Stop::default()).unwrap_err();
            assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
        }
    }
}
