//! Scans of small logs, from every source.

mod written_bounds;

use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::StringViewArray;
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Schema};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use super::*;
use crate::changes::{ChangeKind, Changes};
use crate::checkpoint::tests::writer::{Log, add_fields, parquet, schema, schema_of, struct_of};
use crate::checkpoint::tests::{add, add_row, protocol_row};
use crate::column_cache::DiskCache;
use crate::log_path::{commit_name, log_file_path};
use crate::pool::Pool;
use crate::predicate::{Hints, Rule};
use crate::snapshot::{CHECKPOINT_SOURCE, TimeTravel};
use crate::stop::Stop;
use crate::storage::Storage;
use crate::table::{ChangesRequest, Heading, Table};

mod counts;
mod short;

const CHECKPOINT_FILES: usize = 60;

fn field(name: &str, kind: impl Into<Value>) -> Value {
    json!({"name": name, "type": kind.into(), "nullable": true, "metadata": {}})
}

fn table_metadata(fields: &[Value], partition_columns: &[&str]) -> Value {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    json!({"metaData": {
        "id": "table-id", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": partition_columns, "configuration": {}, "createdTime": 5,
    }})
}

fn metadata_row() -> Value {
    table_metadata(&[field("day", "date"), field("city", "string"), field("id", "long")], &["day", "city"])
}

/// A checkpoint of sixty files; later commits remove three of them, add four, and remove one of these.
fn table(log: &Log, cache_bytes: usize) -> Arc<Table> {
    table_of(log, cache_bytes, add_row)
}

/// As [`add_row`], with a day that exists.
fn dated_row(number: usize) -> Value {
    let mut row = add_row(number);
    row["add"]["partitionValues"]["day"] = format!("2024-01-0{}", 1 + number % 3).into();
    row
}

fn table_of(log: &Log, cache_bytes: usize, add_row: fn(usize) -> Value) -> Arc<Table> {
    in_small_groups(log, &schema(), (0..CHECKPOINT_FILES).map(add_row));
    let removal = |number: usize| {
        let mut remove = add_row(number)["add"].clone();
        remove
            .as_object_mut()
            .unwrap()
            .retain(|key, _| ["path", "deletionVector", "dataChange"].contains(&key.as_str()));
        json!({"remove": remove})
    };
    log.write_commit(8, &[add_row(100), add_row(101), removal(4), removal(7)]);
    log.write_commit(9, &[removal(59), add_row(102)]);
    log.write_commit(10, &[add_row(103), removal(101)]);
    opened(log, cache_bytes)
}

/// Writes a checkpoint of these adds with few files in a row group, and its commit.
fn in_small_groups(log: &Log, schema: &Schema, adds: impl Iterator<Item = Value>) {
    let rows: Vec<_> = [protocol_row(), metadata_row()].into_iter().chain(adds).collect();
    let small_groups = WriterProperties::builder().set_max_row_group_row_count(Some(16)).build();
    log.classic(&parquet(schema, &rows, small_groups));
    log.write_commit(7, &rows[..2]);
}

/// A table whose columns are kept in a directory.
fn with_disk(log: &Log, columns: &Path) -> (Arc<Table>, Arc<ColumnCache>) {
    let cache = Arc::new(ColumnCache::new(64 << 20));
    cache.set_disk(Some(Arc::new(DiskCache::open(columns, 1 << 30).unwrap())));
    (Arc::new(Table::new(Storage::local(), log.root().to_owned(), Arc::clone(&cache))), cache)
}

fn opened(log: &Log, cache_bytes: usize) -> Arc<Table> {
    Arc::new(Table::new(Storage::local(), log.root().to_owned(), Arc::new(ColumnCache::new(cache_bytes))))
}

fn snapshot(table: &Arc<Table>) -> Arc<Snapshot> {
    table.latest(Duration::ZERO, &Pool::new(1).unwrap()).unwrap()
}

fn everything() -> ScanOptions {
    ScanOptions::everything()
}

fn run(table: &Arc<Table>, options: ScanOptions) -> (Vec<String>, Outcome) {
    let mut scan = scan_of(table, &snapshot(table), options);
    (paths_of(&mut scan), scan.outcome())
}

fn scan_of(table: &Table, snapshot: &Arc<Snapshot>, options: ScanOptions) -> Scan {
    Scan::new(Arc::clone(snapshot), table.column_cache(snapshot), options).unwrap()
}

fn paths_of(scan: &mut Scan) -> Vec<String> {
    let mut paths = Vec::new();
    while let Some(Selected { batch, rows }) = scan.next_files().unwrap() {
        assert!(!rows.is_empty());
        paths.extend(rows.iter().map(|row| batch.files.path.value(*row as usize).to_owned()));
    }
    paths
}

/// The files of a scan that has looked ahead, and what it said of them then.
fn run_foreseen(
    table: &Arc<Table>,
    options: ScanOptions,
    precount: impl Fn(&mut Scan) -> Result<Option<Precount>>,
) -> (Vec<String>, Option<Precount>) {
    let mut scan = scan_of(table, &snapshot(table), options);
    let precount = precount(&mut scan).unwrap();
    (paths_of(&mut scan), precount)
}

fn by_sql(table: &Arc<Table>, sql: &str) -> Arc<Predicate> {
    let hints = Hints { sql: vec![sql.to_owned()], json: None };
    let (predicate, problems) = Predicate::of_table(snapshot(table).metadata(), &hints);
    assert_eq!(problems, []);
    Arc::new(predicate)
}

fn number(path: &str) -> usize {
    path.split(['-', '.']).rev().nth(1).unwrap().parse().unwrap()
}

#[test]
fn live_files_come_newest_commit_first_then_in_the_checkpoints_order() {
    let log = Log::new();
    let (paths, outcome) = run(&table(&log, 0), everything());
    let numbers: Vec<usize> = paths.iter().map(|path| number(path)).collect();
    let kept = (0..CHECKPOINT_FILES).filter(|number| ![4, 7, 59].contains(number));
    assert_eq!(numbers, [103, 102, 100].into_iter().chain(kept).collect::<Vec<_>>());
    assert_eq!(outcome, Outcome { considered: 60, ..Outcome::default() });
}

/// The files of each page of an answer.
fn paged(table: &Arc<Table>, size: u64, options: &ScanOptions) -> Vec<Vec<String>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let (page, outcome) = run(table, ScanOptions { max_files: Some(size), after, ..options.clone() });
        pages.push(page);
        match outcome.next_cursor {
            Some(cursor) => after = Some(Cursor::parse(&cursor).unwrap()),
            None => return pages,
        }
    }
}

#[test]
fn pages_of_any_size_concatenate_to_the_whole_from_the_log_and_from_hot_columns() {
    for cache_bytes in [0, 64 << 20] {
        let log = Log::new();
        let table = table(&log, cache_bytes);
        let (whole, _) = run(&table, everything());
        let key = table.column_cache(&snapshot(&table)).unwrap();
        assert_eq!(key.0.get(&key.1).is_some(), cache_bytes > 0);
        for size in [1, 2, 3, 7, 16, 59, 60, 61] {
            let pages = paged(&table, size, &everything());
            assert!(pages.iter().all(|page| page.len() as u64 <= size && !page.is_empty()));
            assert_eq!(pages.concat(), whole, "pages of {size}");
        }
    }
}

#[test]
fn a_predicate_finds_the_same_files_in_the_log_and_in_hot_columns_and_counts_all() {
    let log = Log::new();
    let (cold, warm) = (table(&log, 0), table(&log, 64 << 20));
    run(&warm, everything());
    for sql in ["day = DATE '2024-01-01'", "day > DATE '2024-01-01' OR city = 'x'", "city IS NOT NULL"] {
        let options = |table| ScanOptions { predicate: by_sql(table, sql), ..everything() };
        let (from_log, outcome) = run(&cold, ScanOptions { ..options(&cold) });
        let (from_columns, warm_outcome) = run(&warm, options(&warm));
        assert_eq!(from_log, from_columns, "{sql}");
        snapshot(&cold).totals().unwrap();
        assert_eq!(warm_outcome.considered, 60);
        assert_eq!(warm_outcome.considered - warm_outcome.pruned_by_partition, from_log.len() as u64);
        assert!(outcome.pruned_by_partition <= warm_outcome.pruned_by_partition);
    }
}

/// The files and counts of all pages of a version, and the number of rows of the checkpoint that were read for them.
fn read_version(table: &Arc<Table>, version: i64, options: &ScanOptions) -> (Vec<Value>, Vec<Outcome>, u64) {
    let snapshot = table.snapshot_at(TimeTravel::Version(version)).unwrap();
    snapshot.totals_within(options.rule.as_ref(), &Stop::default()).unwrap();
    let (mut files, mut outcomes, mut rows_read) = (Vec::new(), Vec::new(), 0);
    let mut options = options.clone();
    loop {
        let mut scan = scan_of(table, &snapshot, options.clone());
        while let Some(Selected { batch, rows }) = scan.next_files().unwrap() {
            files.extend(rows.iter().map(|row| add(&batch.files, *row as usize).2));
        }
        rows_read += scan.rows_read.load(std::sync::atomic::Ordering::Relaxed);
        outcomes.push(scan.outcome());
        match &outcomes[outcomes.len() - 1].next_cursor {
            Some(cursor) => options.after = Some(Cursor::parse(cursor).unwrap()),
            None => return (files, outcomes, rows_read),
        }
    }
}

#[test]
fn a_repeated_predicate_reads_nothing_of_the_checkpoint_again_and_finds_the_same() {
    let log = Log::new();
    let (cold, warm) = (table_of(&log, 0, dated_row), table_of(&log, 64 << 20, dated_row));
    let rule = |condition: &str| {
        let rule = Rule::parse(&[condition.to_owned()], &[]).unwrap();
        rule.bind(snapshot(&cold).metadata()).unwrap()
    };
    let rules = [None, Some(rule("day < DATE '2024-01-03'")), Some(rule("day = DATE '2024-01-03'"))];
    // The first look at the latest version forgets what was read of a table with another id.
    assert_eq!(snapshot(&warm).version(), 10);
    let mut selections = 0;
    for rule in rules {
        for sql in ["day = DATE '2024-01-01'", "day > DATE '2024-01-01' AND id > 20", "id = 30", "id < 0"] {
            for delta_fields in [false, true] {
                let whole = ScanOptions {
                    predicate: by_sql(&cold, sql),
                    rule: rule.clone(),
                    delta_fields,
                    ..everything()
                };
                assert!(read_version(&warm, 10, &whole).2 > 0, "{sql}: no other selection is taken for it");
                selections += 1;
                // The versions have the same checkpoint and other dead files.
                for version in [10, 7, 9, 8] {
                    let page = ScanOptions { max_files: Some(3), ..whole.clone() };
                    let limit = ScanOptions { limit_hint: Some(300), ..whole.clone() };
                    let limited_page = ScanOptions { limit_hint: Some(300), ..page.clone() };
                    for options in [&whole, &page, &limit, &limited_page] {
                        let (files, outcomes, rows_read) = read_version(&warm, version, options);
                        let expected = read_version(&cold, version, options);
                        assert_eq!(
                            (files, outcomes),
                            (expected.0, expected.1),
                            "{sql}, {version}, {options:?}"
                        );
                        assert_eq!(rows_read, 0, "{sql}, {version}, {options:?}");
                    }
                }
            }
        }
    }
    assert_eq!(selections, 24);
}

#[test]
fn counts_of_selected_files_are_known_before_the_first() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    table.totals(&snapshot(&table), &Stop::default()).unwrap();
    let later = Instant::now() + Duration::from_secs(60);
    let day = || ScanOptions { predicate: by_sql(&table, "day = DATE '2024-01-01'"), ..everything() };
    let precount = |scan: &mut Scan| scan.precount(later);
    assert_eq!(run_foreseen(&table, day(), precount).1, None);
    let (files, outcome) = run(&table, day());
    let expected = Precount { files: files.len() as u64, outcome };
    assert_eq!(run_foreseen(&table, day(), precount), (files, Some(expected)));
}

#[test]
fn a_scan_that_is_not_read_to_its_end_leaves_no_selection() {
    let log = Log::new();
    let table = table_of(&log, 64 << 20, dated_row);
    let options = ScanOptions { predicate: by_sql(&table, "day = DATE '2024-01-01'"), ..everything() };
    let snapshot = snapshot(&table);
    let (cache, _) = table.column_cache(&snapshot).unwrap();
    let before = cache.used_bytes();
    let mut scan = scan_of(&table, &snapshot, options.clone());
    while scan.next_files().unwrap().is_some_and(|found| found.batch.files.source < CHECKPOINT_SOURCE) {}
    assert!(cache.used_bytes() > before, "the files so far count");
    drop(scan);
    assert_eq!(cache.used_bytes(), before);
    for cut in [
        ScanOptions { limit_hint: Some(1), ..options.clone() },
        ScanOptions { max_files: Some(4), ..options },
    ] {
        run(&table, cut);
        assert_eq!(cache.used_bytes(), before);
    }
}

#[test]
fn few_files_of_a_batch_keep_nothing_of_the_others_in_memory() {
    let log = Log::new();
    let (cold, warm) = (table(&log, 0), table(&log, 64 << 20));
    run(&warm, everything());
    for sql in ["day = DATE '2024-01-01'", "id = 30"] {
        let [from_log, from_columns] = [&cold, &warm].map(|table| {
            let options = ScanOptions { predicate: by_sql(table, sql), ..everything() };
            let mut scan = scan_of(table, &snapshot(table), options);
            std::iter::from_fn(|| scan.next_files().unwrap()).collect::<Vec<_>>()
        });
        let files = |selected: &[Selected]| -> Vec<_> {
            let rows = selected.iter().flat_map(|one| one.rows.iter().map(|row| (&one.batch, *row as usize)));
            rows.map(|(batch, row)| add(&batch.files, row)).collect()
        };
        assert_eq!(files(&from_log), files(&from_columns), "{sql}");
        let in_checkpoint = from_log.iter().filter(|one| one.batch.files.source >= CHECKPOINT_SOURCE);
        let held = |column: &StringViewArray| column.data_buffers().iter().map(Buffer::len).sum::<usize>();
        assert!(in_checkpoint.clone().count() > 0, "{sql}");
        for Selected { batch, rows } in in_checkpoint {
            assert_eq!(batch.files.len(), rows.len());
            let stats = batch.files.stats.clone().unwrap().into_raw();
            for column in [&batch.files.path, &stats] {
                assert!(held(column) <= column.iter().flatten().map(str::len).sum(), "{sql}");
            }
        }
    }
}

#[test]
fn a_scan_of_one_batch_finds_its_files_or_reports_possible_others() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    run(&table, everything());
    for (sql, most) in [("city IS NULL AND city IS NOT NULL", 0), ("day = DATE '2024-01-01'", 60)] {
        let options = ScanOptions { predicate: by_sql(&table, sql), ..everything() };
        let mut scan = scan_of(&table, &snapshot(&table), options.clone());
        let (mut paths, mut looks) = (Vec::new(), 0);
        loop {
            looks += 1;
            match scan.step(&mut 1).unwrap() {
                ScanStep::Files(Selected { batch, rows }) => {
                    paths.extend(rows.iter().map(|row| batch.files.path.value(*row as usize).to_owned()));
                }
                ScanStep::Pending => {}
                ScanStep::End => break,
            }
        }
        assert!(paths.len() <= most && looks > CHECKPOINT_FILES / 16, "{sql}: {looks}");
        assert_eq!(paths, run(&table, options).0);
    }
}

#[test]
fn counts_of_files_in_memory_are_known_before_the_first() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    run(&table, everything());
    let day = || ScanOptions { predicate: by_sql(&table, "day = DATE '2024-01-01'"), ..everything() };
    let page = ScanOptions { max_files: Some(2), ..day() };
    let second = Cursor::parse(&run(&table, page.clone()).1.next_cursor.unwrap()).unwrap();
    let later = Instant::now() + Duration::from_secs(60);
    for options in [
        day(),
        ScanOptions { predicate: by_sql(&table, "city IS NULL AND city IS NOT NULL"), ..everything() },
        ScanOptions { limit_hint: Some(300), ..everything() },
        ScanOptions { limit_hint: Some(0), ..everything() },
        page.clone(),
        ScanOptions { after: Some(second), ..page },
        ScanOptions { max_files: Some(1000), ..everything() },
    ] {
        let (files, outcome) = run(&table, options.clone());
        let expected = Precount { files: files.len() as u64, outcome };
        for most_kept in [0, 1, 1000] {
            let ahead = |scan: &mut Scan| scan.look_ahead(later, most_kept);
            assert_eq!(run_foreseen(&table, options.clone(), ahead), (files.clone(), Some(expected.clone())));
        }
        let begun = Instant::now();
        let too_late = |scan: &mut Scan| scan.precount(begun);
        assert_eq!(run_foreseen(&table, options, too_late), (files, None));
    }
}

#[test]
fn counts_of_files_in_the_log_are_known_before_only_if_all_are_selected() {
    let log = Log::new();
    let table = table(&log, 0);
    table.totals(&snapshot(&table), &Stop::default()).unwrap();
    let later = Instant::now() + Duration::from_secs(60);
    let precount = |scan: &mut Scan| scan.precount(later);
    let day = ScanOptions { predicate: by_sql(&table, "day = DATE '2024-01-01'"), ..everything() };
    let files = run(&table, day.clone()).0;
    assert_eq!(run_foreseen(&table, day, precount), (files, None));
    let outcome = Outcome { considered: 60, ..Outcome::default() };
    assert_eq!(run_foreseen(&table, everything(), precount).1, Some(Precount { files: 60, outcome }));
}

#[test]
fn statistics_that_a_page_or_a_limit_needs_count_in_the_cache() {
    for (max_files, limit_hint) in [(Some(1), None), (None, Some(3))] {
        let log = Log::new();
        let table = table(&log, 64 << 20);
        run(&table, everything());
        let snapshot = snapshot(&table);
        let (cache, key) = table.column_cache(&snapshot).unwrap();
        assert!(cache.has(&key));
        let before = cache.used_bytes();
        let predicate = by_sql(&table, "id IS NOT NULL OR id IS NULL AND city = 'x'");
        let after = Some(Cursor { source: CHECKPOINT_SOURCE, row: 2, limit_left: limit_hint, passed: None });
        let options = ScanOptions { predicate, limit_hint, max_files, after, ..everything() };
        assert!(!run(&table, options).0.is_empty());
        assert!(cache.used_bytes() > before, "{max_files:?}");
    }
}

#[test]
fn a_limit_continues_through_pages() {
    let log = Log::new();
    let table = table(&log, 0);
    let options = || ScanOptions { limit_hint: Some(300), ..everything() };
    let (whole, outcome) = run(&table, options());
    assert_eq!(whole.len() as u64 + outcome.pruned_by_limit, 60);
    assert_eq!(outcome.next_cursor, None);
    assert_eq!(paged(&table, 1, &options()).concat(), whole);
    assert_eq!(run(&table, ScanOptions { limit_hint: Some(0), ..everything() }).0, [""; 0]);
}

#[test]
fn a_place_of_nowhere_is_an_invalid_cursor() {
    let log = Log::new();
    let table = table(&log, 0);
    for text in ["", "1", "a.b", "1.2.3.4", "-1.0", "1.99999999999"] {
        assert!(matches!(Cursor::parse(text), Err(Error::InvalidCursor)), "{text}");
    }
    let snapshot = snapshot(&table);
    let options = ScanOptions { after: Some(Cursor::parse("7.0").unwrap()), ..everything() };
    assert!(matches!(Scan::new(snapshot, None, options), Err(Error::InvalidCursor)));
}

fn range_of(table: &Table, end: Option<i64>, heading: Heading) -> Arc<Changes> {
    let request =
        ChangesRequest { kind: ChangeKind::Files, start: 8, end, heading, max_staleness: Duration::ZERO };
    table.changes(request, &Stop::default()).unwrap()
}

#[test]
fn a_range_of_changes_is_surveyed_once_for_all_its_pages() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let first = range_of(&table, None, Heading::Start);
    assert_eq!(first.ending_version(), 10);
    assert!(Arc::ptr_eq(&first, &range_of(&table, Some(10), Heading::Start)));
    for end in [None, Some(99)] {
        assert!(Arc::ptr_eq(&first, &range_of(&table, end, Heading::Start)));
    }
    log.write_commit(11, &[add_row(104)]);
    assert!(Arc::ptr_eq(&first, &range_of(&table, Some(10), Heading::Start)));
    assert_eq!(range_of(&table, None, Heading::Start).ending_version(), 11);
}

#[test]
fn a_range_headed_by_the_latest_version_keeps_to_it_on_its_later_pages() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let of = |end, heading| range_of(&table, end, heading);
    let first = of(Some(9), Heading::Latest);
    assert_eq!((first.ending_version(), first.heading_version()), (9, 10));
    assert!(Arc::ptr_eq(&first, &of(Some(9), Heading::Latest)));
    log.write_commit(11, &[add_row(104)]);
    let later = of(Some(9), Heading::Latest);
    assert_eq!((later.ending_version(), later.heading_version()), (9, 11));
    assert_ne!(later.identity(), first.identity());
    assert!(Arc::ptr_eq(&first, &of(Some(9), Heading::Version(10))));
    assert_eq!(of(Some(9), Heading::Start).heading_version(), 8);
    assert_eq!(of(None, Heading::Latest).ending_version(), 11);
}

#[test]
fn a_range_keeps_the_latest_version_that_heads_it_after_its_log_was_cleaned_up() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let first = range_of(&table, Some(9), Heading::Latest);
    assert_eq!(first.heading().version(), 10);
    let totals = table.totals(first.heading(), &Stop::default()).unwrap();
    drop(first);
    log.write_commit(11, &[add_row(104)]);
    assert_eq!(snapshot(&table).version(), 11);
    std::fs::remove_dir_all(log.path("")).unwrap();
    let later = range_of(&table, Some(9), Heading::Version(10));
    assert_eq!(table.totals(later.heading(), &Stop::default()).unwrap(), totals);
    assert_eq!(later.batches(9).unwrap().next_version().unwrap().unwrap().adds.rows, [0]);
}

#[test]
fn a_scan_that_failed_fails_again_and_leaves_no_columns_behind() {
    let log = Log::new();
    let mut rows: Vec<_> = (0..CHECKPOINT_FILES).map(add_row).collect();
    rows.last_mut().unwrap()["add"]["size"] = Value::Null;
    in_small_groups(&log, &schema(), rows.into_iter());
    let table = opened(&log, 1 << 30);
    let snapshot = snapshot(&table);
    let (cache, key) = table.column_cache(&snapshot).unwrap();
    let mut scan = Scan::new(snapshot, Some((Arc::clone(&cache), key)), everything()).unwrap();
    assert!(scan.next_files().unwrap().is_some());
    while scan.next_files().is_ok_and(|found| found.is_some()) {}
    for _ in 0..2 {
        assert!(matches!(scan.next_files(), Err(Error::CorruptLog { .. })));
        assert!(cache.get(&key).is_none());
    }
}

/// The partition values of a version's files, from page after page.
fn partition_values(table: &Arc<Table>, version: i64, page_files: u64) -> Vec<Value> {
    let options = ScanOptions { max_files: Some(page_files), ..everything() };
    let (files, ..) = read_version(table, version, &options);
    files.into_iter().map(|mut file| file["partitionValues"].take()).collect()
}

#[test]
fn versions_with_other_partition_columns_share_no_columns_of_one_checkpoint() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let mut metadata = metadata_row();
    metadata["metaData"]["partitionColumns"] = json!(["id"]);
    log.write_commit(11, &[metadata]);
    let expected = partition_values(&table, 10, u64::MAX);
    assert_eq!(expected.len(), 60);
    assert!(expected.iter().all(|values| values["day"].is_string() && values.get("id").is_none()));
    let older = table.snapshot_at(TimeTravel::Version(10)).unwrap();
    let hints = Hints { sql: vec!["day = DATE '2024-01-01'".to_owned()], json: None };
    let predicate = Arc::new(Predicate::of_table(older.metadata(), &hints).0);
    let kept_of_older = || {
        let options = ScanOptions { predicate: Arc::clone(&predicate), ..everything() };
        let mut scan = scan_of(&table, &older, options);
        std::iter::from_fn(|| scan.next_files().unwrap()).map(|found| found.rows.len()).sum::<usize>()
    };
    let kept = kept_of_older();
    assert!(0 < kept && kept < 60, "{kept}");
    // The whole scan of the newer version builds columns.
    assert_eq!(run(&table, everything()).0.len(), 60);
    assert_eq!(partition_values(&table, 10, u64::MAX), expected);
    assert_eq!(partition_values(&table, 10, 7), expected);
    let of_newer = partition_values(&table, 11, 7);
    assert!(of_newer.iter().all(|values| *values == json!({"id": null})), "{of_newer:?}");
    assert_eq!(kept_of_older(), kept);
}

/// A table of one checkpoint with one file, whose name and partition value are as long as those of others.
fn small_table(log: &Log, id: &str, name: &str, modified_ns: u64) {
    let mut metadata = metadata_row();
    metadata["metaData"]["id"] = json!(id);
    let mut row = add_row(1);
    row["add"]["path"] = json!(name);
    let uncompressed = WriterProperties::builder().build();
    let content = parquet(&schema(), &[protocol_row(), metadata.clone(), row], uncompressed);
    let files = log.classic(&content);
    log.write_commit(7, &[protocol_row(), metadata]);
    for name in [files.files[0].name.as_str(), &commit_name(7)] {
        let file = std::fs::File::open(log_file_path(log.root(), name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_nanos(modified_ns)).unwrap();
    }
}

#[test]
fn a_table_created_again_in_its_place_is_never_served_from_the_old_ones_columns() {
    // With another id, and by a copy that has kept the id: then the store alone can tell.
    for second_id in ["id-2", "id-1"] {
        let log = Log::new();
        small_table(&log, "id-1", "a.parquet", 1_700_000_000_000_000_000);
        let table = opened(&log, 64 << 20);
        let first = snapshot(&table);
        let old_checkpoint = first.segment().checkpoint.clone().unwrap();
        assert_eq!(run(&table, everything()).0, ["a.parquet"]);
        let (cache, key) = table.column_cache(&first).unwrap();
        assert!(cache.get(&key).is_some());
        small_table(&log, second_id, "b.parquet", 1_700_000_000_000_000_001);
        let second = snapshot(&table);
        let new_checkpoint = second.segment().checkpoint.clone().unwrap();
        assert_eq!(new_checkpoint.files[0].size, old_checkpoint.files[0].size, "the lengths are equal");
        assert_eq!(run(&table, everything()).0, ["b.parquet"]);
        assert_eq!(second.metadata().id, second_id);
        assert_ne!(first.identity(), second.identity());
        assert_eq!(cache.get(&key).is_none(), second_id != "id-1", "what is forgotten");
        // A snapshot of the old table does not read the checkpoint of the new one.
        cache.shrink(0);
        let mut scan = Scan::new(Arc::clone(&first), None, everything()).unwrap();
        assert!(matches!(scan.next_files(), Err(Error::FileReplaced { .. })));
    }
}

#[test]
fn columns_are_built_behind_scans_that_never_read_everything() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let (pool, snapshot) = (Pool::new(1).unwrap(), snapshot(&table));
    let (cache, key) = table.column_cache(&snapshot).unwrap();
    let page = || {
        let options = ScanOptions { max_files: Some(10), ..everything() };
        let mut scan = scan_of(&table, &snapshot, options);
        scan.prepare(&pool);
        scan.record_miss().unwrap();
    };
    page();
    assert!(!has_built(&pool, &cache, &key));
    page();
    assert!(has_built(&pool, &cache, &key));
    assert_eq!(run(&table, everything()).0.len(), 60);
}

#[test]
fn a_scan_that_reads_most_of_the_checkpoint_is_followed_by_a_build_of_columns() {
    for (is_ordered, is_built) in [(false, true), (true, false)] {
        let log = Log::new();
        let table = if is_ordered { ordered_table(&log) } else { table(&log, 64 << 20) };
        let (pool, snapshot) = (Pool::new(1).unwrap(), snapshot(&table));
        snapshot.totals().unwrap();
        let (cache, key) = table.column_cache(&snapshot).unwrap();
        let options = ScanOptions { predicate: by_sql(&table, "day = DATE '2024-01-01'"), ..everything() };
        let mut scan = scan_of(&table, &snapshot, options);
        scan.prepare(&pool);
        scan.record_miss().unwrap();
        let mut files = 0;
        while let Some(selected) = scan.next_files().unwrap() {
            files += selected.rows.len();
        }
        assert!(files > 10);
        assert_eq!(has_built(&pool, &cache, &key), is_built, "ordered: {is_ordered}");
    }
}

/// A table of sixty files with another day in each row group, which the typed partition values show.
fn ordered_table(log: &Log) -> Arc<Table> {
    let mut fields = add_fields();
    fields.push(("partitionValues_parsed", struct_of([("day", DataType::Date32), ("city", DataType::Utf8)])));
    let adds = (0..CHECKPOINT_FILES).map(|number| {
        let day = (number + 2) / 16;
        let mut row = add_row(number);
        row["add"]["partitionValues"]["day"] = json!(format!("2024-01-0{}", day + 1));
        row["add"]["partitionValues_parsed"] = json!({"day": 19_723 + day, "city": null});
        row
    });
    in_small_groups(log, &schema_of(&fields), adds);
    opened(log, 64 << 20)
}

/// Whether columns are cached once the pool has done all that it was given.
fn has_built(pool: &Pool, cache: &Arc<ColumnCache>, key: &ColumnsKey) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !pool.is_idle() {
        assert!(Instant::now() < end, "the pool still works");
        std::thread::sleep(Duration::from_millis(1));
    }
    cache.has(key)
}

#[test]
fn an_older_checkpoint_is_kept_for_its_hot_columns_only() {
    let newer = |log: &Log| {
        let mut rows = vec![protocol_row(), metadata_row()];
        rows.extend((0..5).map(add_row));
        let content = parquet(&schema(), &rows, WriterProperties::builder().build());
        log.write("00000000000000000010.checkpoint.parquet", &content);
        log.write_commit(11, &[add_row(105)]);
        log.remove("00000000000000000007.checkpoint.parquet");
    };
    for (cache_bytes, files) in [(0, 6), (64 << 20, 61)] {
        let log = Log::new();
        let table = table(&log, cache_bytes);
        run(&table, everything());
        newer(&log);
        let snapshot = snapshot(&table);
        assert_eq!(table.totals(&snapshot, &Stop::default()).unwrap().files, files);
        assert_eq!(run(&table, everything()).0.len() as u64, files);
    }
}

/// The first page of two files, and the place behind it.
fn first_page(table: &Arc<Table>) -> (Arc<Snapshot>, Vec<String>, Cursor) {
    let (paths, outcome) = run(table, ScanOptions { max_files: Some(10), ..everything() });
    let snapshot = snapshot(table);
    table.remember(&snapshot);
    (snapshot, paths, Cursor::parse(&outcome.next_cursor.unwrap()).unwrap())
}

fn continued(
    table: &Arc<Table>,
    snapshot: &Arc<Snapshot>,
    page: (Vec<String>, Cursor),
) -> Result<Vec<String>> {
    let (mut paths, after) = page;
    let options = ScanOptions { after: Some(after), ..everything() };
    let mut scan = Scan::new(Arc::clone(snapshot), table.column_cache(snapshot), options)?;
    while let Some(Selected { batch, rows }) = scan.next_files()? {
        paths.extend(rows.iter().map(|row| batch.files.path.value(*row as usize).to_owned()));
    }
    Ok(paths)
}

/// A newer checkpoint, and log cleanup up to it.
fn clean_up(log: &Log) {
    let rows = [protocol_row(), metadata_row(), add_row(200)];
    log.write_commit(11, &[add_row(104)]);
    let content = parquet(&schema(), &rows, WriterProperties::builder().build());
    log.write("00000000000000000011.checkpoint.parquet", &content);
    for name in ["00000000000000000007.checkpoint.parquet", &commit_name(7), &commit_name(8), &commit_name(9)]
    {
        log.remove(name);
    }
}

#[test]
fn pages_go_on_in_memory_where_the_log_was_cleaned_up() {
    let log = Log::new();
    let table = table(&log, 64 << 20);
    let (whole, _) = run(&table, everything());
    let (first, paths, cursor) = first_page(&table);
    clean_up(&log);
    assert_eq!(snapshot(&table).version(), 11);
    let again = table.snapshot_with_identity(&first.identity().to_string()).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(continued(&table, &again, (paths, cursor)).unwrap(), whole);
}

#[test]
fn the_error_of_a_page_of_a_cleaned_up_version_names_available_versions() {
    let log = Log::new();
    let table = table(&log, 0);
    let (first, paths, cursor) = first_page(&table);
    clean_up(&log);
    let is_version_lost =
        |error| matches!(error, Error::VersionNotFound { requested: 10, earliest: 11, latest: 11 });
    let again = table.snapshot_with_identity(&first.identity().to_string()).unwrap();
    assert!(is_version_lost(continued(&table, &again, (paths, cursor)).unwrap_err()));
    assert!(
        is_version_lost(table.snapshot_with_identity(&first.identity().to_string()).unwrap_err()),
        "it is lost"
    );
    assert!(
        is_version_lost(table.snapshot_at(TimeTravel::Version(10)).unwrap_err()),
        "nor found by its number"
    );
    assert_eq!(snapshot(&table).version(), 11);
}

#[test]
fn a_scan_over_a_file_of_columns_that_was_altered_continues_with_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let columns = directory.path().join("columns");
    let log = Log::new();
    let first = table(&log, 64 << 20);
    let (expected, _) = run(&first, everything());
    let by_city = || ScanOptions { max_files: Some(7), ..everything() };
    let (expected_page, _) = run(&first, by_city());
    let (built, cache) = with_disk(&log, &columns);
    assert_eq!(run(&built, everything()).0, expected);
    cache.disk().unwrap().wait_until_written();
    assert_eq!(cache.disk().unwrap().counts().written, 1);
    let file = columns_file(&columns);
    let content = std::fs::read(&file).unwrap();
    for position in (128..content.len()).step_by(content.len() / 40) {
        let mut altered = content.clone();
        altered[position] ^= 4;
        std::fs::write(&file, altered).unwrap();
        let (table, cache) = with_disk(&log, &columns);
        assert_eq!(run(&table, by_city()).0, expected_page);
        assert_eq!(run(&table, everything()).0, expected);
        let snapshot = snapshot(&table);
        assert_eq!(table.totals(&snapshot, &Stop::default()).unwrap().files, expected.len() as u64);
        cache.disk().unwrap().wait_until_written();
        let counts = cache.disk().unwrap().counts();
        assert!(counts.invalid <= 1 && counts.hits <= 1, "{counts:?}");
        assert_eq!(run(&table, everything()).0, expected);
        cache.disk().unwrap().wait_until_written();
    }
    std::fs::write(&file, &content).unwrap();
    let (table, cache) = with_disk(&log, &columns);
    assert_eq!(run(&table, everything()).0, expected);
    assert_eq!((cache.disk().unwrap().counts().hits, cache.disk().unwrap().counts().invalid), (1, 0));
}

#[test]
fn totals_from_a_file_of_columns_read_the_sizes_of_batches_without_superseded_files() {
    let directory = tempfile::tempdir().unwrap();
    let columns = directory.path().join("columns");
    let remove = |number: usize, size: Option<usize>| {
        let add = &add_row(number)["add"];
        json!({"remove": {
            "path": add["path"], "deletionVector": add["deletionVector"], "dataChange": true, "size": size,
        }})
    };
    let all: usize = (0..CHECKPOINT_FILES).map(|number| number * 10).sum();
    // The file, the size that its remove states, and whether the sizes suffice.
    for (removed, stated, is_by_size) in [(50, Some(500), true), (50, Some(10), false), (50, None, false)] {
        let log = Log::new();
        in_small_groups(&log, &schema(), (0..CHECKPOINT_FILES).map(add_row));
        log.write_commit(8, &[add_row(100), remove(removed, stated)]);
        let (built, cache) = with_disk(&log, &columns);
        run(&built, everything());
        cache.disk().unwrap().wait_until_written();
        // The text of the first path, in a batch without the removed file.
        let file = columns_file(&columns);
        let mut content = std::fs::read(&file).unwrap();
        let path = b"part-0.parquet";
        let place = content.windows(path.len()).position(|window| window == path).unwrap();
        content[place] ^= 1;
        std::fs::write(&file, &content).unwrap();
        let copy = directory.path().join("copy");
        std::fs::copy(&file, &copy).unwrap();
        let expected =
            Totals { files: CHECKPOINT_FILES as u64, size_bytes: (all + 1000 - removed * 10) as u64 };
        let (table, cache) = with_disk(&log, &columns);
        assert_eq!(table.totals(&snapshot(&table), &Stop::default()).unwrap(), expected, "{stated:?}");
        assert_eq!(run(&table, everything()).0.len(), CHECKPOINT_FILES);
        let disk = cache.disk().unwrap();
        disk.wait_until_written();
        assert_eq!(disk.counts().invalid, 1);
        std::fs::rename(&copy, &file).unwrap();
        let (table, _) = with_disk(&log, &columns);
        let snapshot = snapshot(&table);
        log.remove("00000000000000000007.checkpoint.parquet");
        let without_the_log = table.totals(&snapshot, &Stop::default());
        assert_eq!(without_the_log.is_ok(), is_by_size, "{stated:?}: {without_the_log:?}");
        std::fs::remove_dir_all(&columns).unwrap();
    }
}

/// The columns file of a directory.
fn columns_file(columns: &Path) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(columns).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "columns")).unwrap()
}

fn by_rule(table: &Arc<Table>, sql: &str) -> Arc<BoundRule> {
    let rule = crate::predicate::Rule::parse(&[sql.to_owned()], &[]).unwrap();
    rule.bind(snapshot(table).metadata()).unwrap()
}

#[test]
fn a_rule_hides_the_other_files_from_scans_counts_pages_limits_and_totals_of_every_source() {
    let log = Log::new();
    let (cold, warm) = (table_of(&log, 0, dated_row), table_of(&log, 64 << 20, dated_row));
    for sql in ["day = DATE '2024-01-01'", "NOT day = DATE '2024-01-01'", "city IS NULL", "false", "true"] {
        let expected = run(&cold, ScanOptions { predicate: by_sql(&cold, sql), ..everything() }).0;
        // The columns are built by the first scan of the second table, by a rule that hides most of them.
        for table in [&cold, &warm, &warm] {
            let rule = by_rule(table, sql);
            let options = || ScanOptions { rule: Some(Arc::clone(&rule)), ..everything() };
            let totals = table.totals_within(&snapshot(table), Some(&rule), &Stop::default()).unwrap();
            let (paths, outcome) = run(table, options());
            assert_eq!(paths, expected, "{sql}");
            assert_eq!(totals.files, expected.len() as u64, "{sql}");
            let files = expected.len() as u64;
            assert_eq!(outcome, Outcome { considered: files, ..Outcome::default() }, "{sql}");
            let (paths, precount) = run_foreseen(table, options(), |scan| scan.precount(far()));
            assert_eq!((paths, precount.unwrap().files), (expected.clone(), files), "{sql}");
            assert_eq!(paged(table, 4, &options()).concat(), expected, "{sql}");
            let (found, outcome) = run(table, ScanOptions { limit_hint: Some(1), ..options() });
            assert!(expected.starts_with(&found) && (found.is_empty() == expected.is_empty()), "{sql}");
            assert_eq!(outcome.considered, files, "{sql}");
            let id = by_sql(table, "id >= 0 AND day > DATE '1970-01-01'");
            let (found, outcome) = run(table, ScanOptions { predicate: id, ..options() });
            assert!(found.iter().all(|path| expected.contains(path)), "{sql}");
            assert_eq!(outcome.considered, files, "{sql}");
        }
    }
    let key = warm.column_cache(&snapshot(&warm)).unwrap();
    assert!(key.0.get(&key.1).is_some());
    let whole = run(&cold, everything()).0;
    assert_eq!(run(&warm, everything()).0, whole, "columns that a rule's scan builds are those of the table");
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_live_file_that_a_rule_does_not_decide_ends_scans_and_totals_and_a_removed_one_does_not() {
    for cache_bytes in [0, 64 << 20] {
        let log = Log::new();
        let table = table_of(&log, cache_bytes, dated_row);
        run(&table, everything());
        let rule = by_rule(&table, "day <> DATE '2000-01-01'");
        let odd = |version: i64, kind: &str| {
            let mut file = dated_row(200)["add"].clone();
            file["partitionValues"] = json!({"day": "2000", "city": null});
            log.write_commit(version, &[json!({kind: file})]);
        };
        let files = |table: &Arc<Table>| {
            let rule = Some(Arc::clone(&rule));
            let snapshot = snapshot(table);
            let totals = table.totals_within(&snapshot, rule.as_ref(), &Stop::default());
            let options = ScanOptions { rule, ..everything() };
            let mut scan = scan_of(table, &snapshot, options);
            let last = std::iter::from_fn(|| scan.next_files().transpose()).find_map(Result::err);
            (totals.map(|totals| totals.files).map_err(|error| error.to_string()), last)
        };
        let before = files(&table);
        assert!(before.0.is_ok() && before.1.is_none(), "{before:?}");
        odd(11, "add");
        let (totals, last) = files(&table);
        assert!(totals.is_err() && matches!(last, Some(Error::RuleRefused { .. })), "{totals:?} {last:?}");
        odd(12, "remove");
        assert_eq!(files(&table).0, before.0);
    }
}
