//! An answer of a whole table, or of all its pages, has the files that the sources of counts state.

use super::*;
use crate::checkpoint::tests::writer::UUID;
use crate::log_faults::LogFault;

fn checksum(log: &Log, version: i64, files: u64, size_bytes: u64) {
    let content =
        json!({"tableSizeBytes": size_bytes, "numFiles": files, "numMetadata": 1, "numProtocol": 1});
    log.write(&format!("{version:020}.crc"), content.to_string().as_bytes());
}

/// Scans to the end, page by page if they have a size.
fn scanned(table: &Arc<Table>, options: &ScanOptions) -> Result<u64> {
    let (mut files, mut after) = (0, None);
    let snapshot = snapshot(table);
    loop {
        let options = ScanOptions { after, ..options.clone() };
        let mut scan = Scan::new(Arc::clone(&snapshot), table.column_cache(&snapshot), options)?;
        while let Some(selected) = scan.next_files()? {
            files += selected.rows.len() as u64;
        }
        match scan.outcome().next_cursor {
            Some(cursor) => after = Some(Cursor::parse(&cursor)?),
            None => return Ok(files),
        }
    }
}

fn pages(size: u64) -> ScanOptions {
    ScanOptions { max_files: Some(size), ..everything() }
}

#[test]
fn a_checksum_file_with_other_counts_ends_a_whole_answer_and_the_last_page_with_an_error() {
    for cache_bytes in [0, 64 << 20] {
        let log = Log::new();
        let table = table(&log, cache_bytes);
        let right = snapshot(&table).totals().unwrap();
        assert_eq!(right.files, 60);
        for (files, size_bytes) in
            [(57, right.size_bytes), (61, right.size_bytes), (60, right.size_bytes - 1)]
        {
            let reread = opened(&log, cache_bytes);
            checksum(&log, 10, files, size_bytes);
            for options in [everything(), pages(7), pages(60), pages(1000)] {
                let ended = scanned(&reread, &options);
                assert!(matches!(ended, Err(Error::Contradiction { .. })), "{ended:?} {options:?}");
                assert!(snapshot(&reread).known_totals().is_some());
            }
            let key = reread.column_cache(&snapshot(&reread)).unwrap();
            assert!(key.0.get(&key.1).is_none(), "columns that contradict the checksum file are not used");
            let some = ScanOptions { limit_hint: Some(3), ..everything() };
            assert!(scanned(&reread, &some).is_ok(), "a part of the files is not compared");
        }
        checksum(&log, 10, right.files, right.size_bytes);
        let reread = opened(&log, cache_bytes);
        for options in [everything(), pages(7), everything()] {
            assert_eq!(scanned(&reread, &options).unwrap(), 60);
        }
    }
}

#[test]
fn an_answer_of_some_files_finds_a_checkpoint_that_is_too_short_for_the_checksum_file() {
    for cache_bytes in [0, 64 << 20] {
        for (files, is_right) in [(63, true), (64, false)] {
            let log = Log::new();
            let table = table(&log, cache_bytes);
            assert_eq!(scanned(&table, &everything()).unwrap(), 60);
            checksum(&log, 10, files, 1 << 20);
            let later = Arc::new(Table::new(
                Storage::local(),
                log.root().to_owned(),
                Arc::clone(&table.column_cache(&snapshot(&table)).unwrap().0),
            ));
            let options = ScanOptions { predicate: by_sql(&later, "city = 'x'"), ..everything() };
            for table in [&table, &later] {
                log.write_commit(11, &[json!({"commitInfo": {}})]);
                checksum(&log, 11, files, 1 << 20);
                let ended = scanned(table, &options);
                assert_eq!(ended.is_ok(), is_right, "{files} {ended:?}");
            }
        }
    }
}

#[test]
fn a_file_that_is_added_again_with_another_size_is_counted_once_with_columns_on_disk() {
    let (log, directory) = (Log::new(), tempfile::tempdir().unwrap());
    in_small_groups(&log, &schema(), (0..40).map(dated_row));
    let columns = directory.path().join("columns");
    let (table, cache) = with_disk(&log, &columns);
    assert_eq!(scanned(&table, &everything()).unwrap(), 40);
    cache.disk().unwrap().wait_until_written();
    let mut again = dated_row(5);
    again["add"]["size"] = json!(1 << 20);
    log.write_commit(8, &[again]);
    let stop = Stop::default();
    let without = opened(&log, 0);
    let right = without.totals(&snapshot(&without), &stop).unwrap();
    let (table, cache) = with_disk(&log, &columns);
    assert_eq!(table.totals(&snapshot(&table), &stop).unwrap(), right);
    assert_eq!((right.files, cache.disk().unwrap().counts().hits), (40, 1));
    assert_eq!(scanned(&table, &everything()).unwrap(), 40);
}

#[test]
fn the_detail_of_a_contradiction_names_both_sources() {
    let log = Log::new();
    let table = table(&log, 0);
    checksum(&log, 10, 7, 1);
    let error = scanned(&table, &everything()).unwrap_err();
    let detail = error.detail().unwrap().to_owned();
    assert!(detail.contains("version 10 has 60 files of"), "{detail}");
    assert!(detail.contains("00000000000000000010.crc counts 7 files of 1 bytes"), "{detail}");
    assert!(!error.to_string().contains('7'), "a recipient may read a part of the files only: {error}");
}

#[test]
fn a_checkpoint_with_other_adds_than_the_hint_states_is_left_out() {
    for (adds, is_right) in [(60, true), (61, false), (59, false)] {
        let log = Log::new();
        let table = table(&log, 64 << 20);
        let hint = json!({"version": 7, "size": 62, "numOfAddFiles": adds});
        log.write("_last_checkpoint", &hint.to_string());
        let ended = scanned(&table, &everything());
        assert_eq!(ended.is_ok(), is_right, "{adds}: {ended:?}");
        if !is_right {
            let error = scanned(&table, &everything()).unwrap_err();
            let named = "00000000000000000007.checkpoint.parquet";
            assert!(matches!(&error, Error::CorruptLog { file, .. } if file == named), "{error:?}");
        }
    }
}

#[test]
fn a_checkpoint_with_other_adds_than_its_own_metadata_states_is_left_out() {
    for (stated, is_right) in [("10", true), ("11", false), ("9", false), ("many", true)] {
        for extension in ["parquet", "json"] {
            let top = json!({"checkpointMetadata": {"version": 7, "tags": {"numOfAddFiles": stated}}});
            let mut rows = vec![top, protocol_row(), metadata_row()];
            rows.extend((0..10).map(dated_row));
            let log = Log::new();
            let name = format!("00000000000000000007.checkpoint.{UUID}.{extension}");
            let lines = rows.iter().map(|row| row.to_string() + "\n").collect::<String>();
            let parquet = parquet(&schema(), &rows, WriterProperties::default());
            log.write(&name, if extension == "json" { lines.as_bytes() } else { &parquet });
            let table = opened(&log, 64 << 20);
            for _ in 0..2 {
                match scanned(&table, &everything()) {
                    Ok(files) => assert!(is_right && files == 10, "{stated} {extension}"),
                    Err(Error::CorruptLog { file, .. }) => {
                        assert!(!is_right && file == name, "{stated} {extension}");
                    }
                    error => panic!("{error:?}"),
                }
            }
        }
    }
}

#[test]
fn a_cursor_survives_its_text() {
    for text in ["1.2", "1.2.3", "1.2+3.4", "1.2.3+4.5"] {
        assert_eq!(Cursor::parse(text).unwrap().to_text(), text);
    }
    for text in ["", "1", "1.2+", "1.2+3", "1.2+3.4.5", "1.2+3.-4", "+1.2"] {
        assert!(Cursor::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_checksum_file_of_version_0_gives_way_to_the_only_commit() {
    let log = Log::new();
    log.write_commit(0, &[protocol_row(), metadata_row(), dated_row(1)]);
    checksum(&log, 0, 10, 5259);
    let faults = LogFault::Checksum.total();
    for cache_bytes in [0, 64 << 20] {
        let table = opened(&log, cache_bytes);
        for options in [everything(), pages(1), everything()] {
            assert_eq!(scanned(&table, &options).unwrap(), 1);
        }
        assert_eq!(snapshot(&table).known_totals().unwrap().files, 1);
    }
    assert!(LogFault::Checksum.total() > faults);
}
