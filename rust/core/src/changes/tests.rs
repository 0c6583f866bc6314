use std::fmt::Write as _;

use super::*;
use crate::checkpoint::tests::writer::{Log, checkpoint_name};
use crate::column_cache::ColumnCache;
use crate::snapshot::damage::{FORMS, LATEST, log_with_damage};
use crate::stop::Stop;

pub(super) const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":4}}"#;

const IN_COMMIT_PROTOCOL: &str =
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}"#;

pub(super) fn metadata(feed: bool) -> String {
    format!(
        r#"{{"metaData":{{"id":"t","schemaString":"{{}}","partitionColumns":["p"],"configuration":{{"delta.enableChangeDataFeed":"{feed}"}}}}}}"#
    )
}

fn file(kind: &str, path: &str, data_change: bool) -> String {
    format!(
        r#"{{"{kind}":{{"path":"{path}","partitionValues":{{"p":"1"}},"size":10,"dataChange":{data_change}}}}}"#
    )
}

fn with_vector(kind: &str, path: &str, vector: &str) -> String {
    format!(
        r#"{{"{kind}":{{"path":"{path}","partitionValues":{{}},"size":1,"dataChange":true,"deletionVector":{{"storageType":"u","pathOrInlineDv":"{vector}","sizeInBytes":1,"cardinality":1}}}}}}"#
    )
}

impl Log {
    pub(super) fn changes(&self, kind: ChangeKind, start: i64, end: Option<i64>) -> Result<Changes> {
        Changes::open(&Storage::local(), self.root(), kind, start, end, None)
    }

    /// `version:kind path..` of all files, after a survey.
    fn feed(&self, kind: ChangeKind, start: i64, end: Option<i64>) -> Result<Vec<String>> {
        let mut changes = self.changes(kind, start, end)?;
        changes.survey(&Stop::default())?;
        changes.batches(start)?.map(|batch| batch.map(|batch| describe(&batch))).collect()
    }
}

fn describe(batch: &ChangeBatch) -> String {
    let mut text = batch.version.to_string();
    for (kind, files) in [("cdc", &batch.cdc), ("add", &batch.adds), ("remove", &batch.removes)] {
        for row in &files.rows {
            let row = *row as usize;
            let vector = files
                .batch
                .deletion_vector_at(row)
                .map_or(String::new(), |vector| format!("@{}", vector.unique_id()));
            write!(text, " {kind}:{}{vector}", files.batch.path.value(row)).unwrap();
        }
    }
    text
}

pub(super) fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// 0 creates, 1 appends, 2 updates with cdc files, 3 optimizes, 4 does nothing, 5 deletes a file.
fn table() -> Log {
    Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[&file("add", "a", true), &file("add", "b", true)]),
        lines(&[&file("remove", "a", true), &file("add", "c", true), &file("cdc", "_change_data/x", false)]),
        lines(&[&file("remove", "b", false), &file("remove", "c", false), &file("add", "d", false)]),
        lines(&[r#"{"commitInfo":{"operation":"MERGE"}}"#]),
        lines(&[&file("remove", "d", true)]),
    ])
}

#[test]
fn the_feed_uses_cdc_files_of_a_commit_or_else_its_data_changes() {
    let feed = table().feed(ChangeKind::ChangeDataFeed, 0, None).unwrap();
    assert_eq!(feed, ["0", "1 add:a add:b", "2 cdc:_change_data/x", "3", "4", "5 remove:d"]);
}

#[test]
fn a_merge_that_changed_no_row_is_no_change_of_the_feed() {
    let merge = |inserted: &str| {
        format!(
            r#"{{"commitInfo":{{"operation":"MERGE","operationMetrics":{{"numTargetRowsInserted":{inserted},"numTargetRowsUpdated":"0","numTargetRowsDeleted":"0","numTargetRowsCopied":"2"}}}}}}"#
        )
    };
    let unchanged = merge("\"0\"");
    for (info, is_changed) in [
        (merge("\"1\""), true),
        (unchanged.replace("MERGE", "UPDATE"), true),
        (unchanged.replace("numTargetRowsUpdated", "numOther"), true),
        (merge("0"), false),
        (unchanged, false),
    ] {
        let table = Log::of(&[
            lines(&[PROTOCOL, &metadata(true), &file("add", "a", true)]),
            lines(&[&info, &file("remove", "a", true), &file("add", "b", true)]),
        ]);
        let feed = table.feed(ChangeKind::ChangeDataFeed, 1, None).unwrap();
        assert_eq!(feed, [if is_changed { "1 add:b remove:a" } else { "1" }], "{info}");
        assert_eq!(table.feed(ChangeKind::Files, 1, None).unwrap(), ["1 add:b remove:a"], "{info}");
    }
}

#[test]
fn a_range_of_files_takes_no_cdc_files() {
    let feed = table().feed(ChangeKind::Files, 2, Some(3)).unwrap();
    assert_eq!(feed, ["2 add:c remove:a", "3"]);
}

#[test]
fn an_end_behind_the_latest_version_is_the_latest_version() {
    let table = table();
    let ends = [Some(99), None].map(|end| table.changes(ChangeKind::Files, 4, end).unwrap());
    assert!(ends.iter().all(|range| range.identity().starts_with("4-5~") && range.ending_version() == 5));
    assert_eq!(ends[0].identity(), ends[1].identity());
    assert!(matches!(
        table.changes(ChangeKind::Files, 6, None),
        Err(Error::VersionNotFound { latest: 5, .. })
    ));
    assert!(matches!(table.changes(ChangeKind::Files, 3, Some(2)), Err(Error::InvalidArgument(_))));
    assert!(matches!(table.changes(ChangeKind::Files, -1, None), Err(Error::InvalidArgument(_))));
}

#[test]
fn an_update_by_deletion_vector_is_a_pair_of_one_path() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true), &file("add", "a", true)]),
        lines(&[&file("remove", "a", true), &with_vector("add", "a", "v1")]),
        lines(&[&with_vector("remove", "a", "v1"), &with_vector("add", "a", "v2")]),
    ]);
    let feed = table.feed(ChangeKind::ChangeDataFeed, 1, None).unwrap();
    assert_eq!(feed, ["1 add:a@uv1 remove:a", "2 add:a@uv2 remove:a@uv1"]);
}

#[test]
fn a_version_without_the_feed_is_named() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[&file("add", "a", true)]),
        lines(&[&metadata(false)]),
        lines(&[&file("add", "b", true)]),
        lines(&[&metadata(true)]),
    ]);
    let disabled_at = |start, end| match table.feed(ChangeKind::ChangeDataFeed, start, end) {
        Err(Error::ChangeDataFeedDisabled(version)) => Some(version),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(disabled_at(0, None), Some(2));
    assert_eq!(disabled_at(3, None), Some(3));
    assert_eq!(disabled_at(0, Some(1)), None);
    assert_eq!(disabled_at(4, None), None);
    assert!(table.feed(ChangeKind::Files, 0, None).is_ok());
}

#[test]
fn later_metadata_and_protocols_stand_at_their_version_and_those_of_the_first_head_the_answer() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[&metadata(true).replace(r#""t""#, r#""t1""#)]),
        lines(&[
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors","v2Checkpoint"],"writerFeatures":[]}}"#,
        ]),
        lines(&[&metadata(true).replace(r#""p""#, r#""q""#), &file("add", "a", true)]),
    ]);
    let mut changes = table.changes(ChangeKind::ChangeDataFeed, 1, None).unwrap();
    assert_eq!(changes.head().metadata().id, "t1");
    assert!(!changes.needs_delta_format());
    changes.survey(&Stop::default()).unwrap();
    assert_eq!(changes.client_reader_features(), ["deletionVectors"]);
    let batches: Vec<_> = changes.batches(1).unwrap().map(Result::unwrap).collect();
    let brought: Vec<_> =
        batches.iter().map(|batch| (batch.protocol.is_some(), batch.metadata.is_some())).collect();
    assert_eq!(brought, [(false, false), (true, false), (false, true)]);
    assert_eq!(batches[2].metadata_in_force.partition_columns, ["q"]);
    assert_eq!(batches[2].adds.batch.partitions.dictionary[0].values.as_ref(), [None]);
    let unsurveyed = table.changes(ChangeKind::ChangeDataFeed, 1, None).unwrap();
    for changes in [&changes, &unsurveyed] {
        for (version, column) in [(2, "p"), (3, "q")] {
            let resumed = changes.batches(version).unwrap().next_version().unwrap().unwrap();
            assert_eq!(resumed.metadata_in_force.partition_columns, [column], "at {version}");
        }
    }
}

/// Returns metadata of `kib` KiB with a distinct `name`.
fn large_metadata(name: &str, kib: usize) -> String {
    metadata(true).replace(
        r#""schemaString":"{}""#,
        &format!(r#""name":"{name}","schemaString":"{}""#, "s".repeat(kib << 10)),
    )
}

/// Bytes of a surveyed range of versions that each bring metadata.
fn bytes_of_survey(metadata_at: impl Fn(usize) -> String) -> (Changes, usize) {
    let commits = (0..200).map(|version| {
        let mut commit = lines(&[&metadata_at(version)]);
        commit.extend((version == 0).then(|| PROTOCOL.to_owned()));
        commit
    });
    let table = Log::of(&commits.collect::<Vec<_>>());
    let mut changes = table.changes(ChangeKind::ChangeDataFeed, 0, None).unwrap();
    changes.survey(&Stop::default()).unwrap();
    for version in [0, 1, 20, 21, 150, 199] {
        let name = metadata_at(version).split('"').nth(9).map(str::to_owned);
        assert_eq!(changes.in_force_at(version as i64).unwrap().metadata.name, name, "at {version}");
    }
    changes.kept.clear();
    let cache = ColumnCache::new(1 << 30);
    let changes = Arc::new(changes);
    cache.keep(1, Arc::clone(&changes) as _, changes.parts());
    let bytes = cache.used_bytes();
    drop(cache);
    (Arc::into_inner(changes).unwrap(), bytes)
}

#[test]
fn a_survey_keeps_equal_metadata_once_and_bounds_distinct_metadata() {
    let once = bytes_of_survey(|_| large_metadata("a", 100)).1;
    let two = bytes_of_survey(|version| large_metadata(if version % 2 == 0 { "a" } else { "b" }, 100)).1;
    let all = bytes_of_survey(|version| large_metadata(&format!("n{version}"), 100)).1;
    assert!(once < 150 << 10, "{once}");
    assert!(two < 300 << 10, "{two}");
    assert!((3 << 20..5 << 20).contains(&all), "{all}");
}

#[test]
fn a_feature_that_is_not_supported_fails_the_survey() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["tomorrow"],"writerFeatures":[]}}"#,
        ]),
    ]);
    let feed = table.feed(ChangeKind::ChangeDataFeed, 0, None);
    assert!(matches!(feed, Err(Error::UnsupportedFeature(name)) if name == "tomorrow"));
    assert!(table.feed(ChangeKind::ChangeDataFeed, 0, Some(0)).is_ok());
}

#[test]
fn a_range_resumes_at_any_of_its_versions_and_at_no_other() {
    let table = table();
    let whole = table.feed(ChangeKind::ChangeDataFeed, 1, Some(4)).unwrap();
    for is_surveyed in [true, false] {
        let mut changes = table.changes(ChangeKind::ChangeDataFeed, 1, Some(4)).unwrap();
        if is_surveyed {
            changes.survey(&Stop::default()).unwrap();
        }
        for version in 1..=4 {
            let rest: Vec<_> =
                changes.batches(version).unwrap().map(|batch| describe(&batch.unwrap())).collect();
            assert_eq!(rest, whole[version as usize - 1..]);
        }
        for version in [i64::MIN, 0, 5, i64::MAX] {
            assert!(matches!(changes.batches(version), Err(Error::InvalidCursor)));
        }
    }
}

#[test]
fn a_remove_without_partition_values_differs_from_one_with_nulls() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[
            r#"{"remove":{"path":"old","dataChange":true}}"#,
            r#"{"remove":{"path":"null","dataChange":true,"partitionValues":{"p":null},"size":3}}"#,
            r#"{"remove":{"path":"explicit","dataChange":true,"partitionValues":null}}"#,
        ]),
    ]);
    let changes = table.changes(ChangeKind::ChangeDataFeed, 1, None).unwrap();
    let batch = changes.batches(1).unwrap().next_version().unwrap().unwrap();
    assert_eq!(batch.removes.rows, [0, 1, 2]);
    assert_eq!(batch.removes.without_partition_values, [0, 2]);
    let fields = batch.removes.batch.remove_fields.unwrap();
    assert_eq!(fields.iter().map(|fields| fields.size).collect::<Vec<_>>(), [false, true, false]);
    let found = changes.batches(1).unwrap().with_complete_removes(&Stop::default()).next_version();
    assert!(matches!(found, Err(Error::IncompleteRemove(1))), "nothing ever added these files");
}

/// `path=size/partition values` of all removes.
fn removed(table: &Log, kind: ChangeKind, start: i64) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for batch in table.changes(kind, start, None)?.batches(start)?.with_complete_removes(&Stop::default()) {
        let ChangedFiles { batch, rows, without_partition_values } = batch?.removes;
        assert!(without_partition_values.is_empty());
        for row in rows {
            let row = row as usize;
            let values = &batch.partitions.dictionary[batch.partitions.keys[row] as usize].json;
            let values = std::str::from_utf8(values).unwrap();
            found.push(format!("{}={}/{values}", batch.path.value(row), batch.size[row]));
        }
    }
    Ok(found)
}

fn bare_remove(path: &str) -> String {
    format!(r#"{{"remove":{{"path":"{path}","deletionTimestamp":5,"dataChange":true}}}}"#)
}

fn sized_add(path: &str, value: &str, size: i64) -> String {
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{"p":{value}}},"size":{size},"modificationTime":1,"dataChange":true}}}}"#
    )
}

#[test]
fn removes_are_completed_from_the_table_before_and_from_the_range_itself() {
    let checkpoint = [
        r#"{"checkpointMetadata":{"version":1}}"#,
        PROTOCOL,
        &metadata(true),
        &sized_add("file:///t/a", "\"x\"", 11),
        &sized_add("b", "null", 12),
        &sized_add("g", "\"o\"", 17),
    ]
    .join("\n");
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true), &sized_add("file:///t/a", "\"x\"", 11)]),
        lines(&[&sized_add("b", "null", 12), &sized_add("g", "\"o\"", 17)]),
        lines(&[&sized_add("c", "\"y\\u0022\"", 13)]),
        lines(&[&bare_remove("file:/t/a"), &bare_remove("c"), &sized_add("d", "\"z\"", 14)]),
        lines(&[&bare_remove("b"), &file("remove", "e", true)]),
        lines(&[&bare_remove("d"), &file("cdc", "_change_data/x", false)]),
        lines(&[&bare_remove("g").replace("true", "false")]),
    ]);
    let whole = [
        r#"file:/t/a=11/{"p":"x"}"#,
        r#"c=13/{"p":"y\""}"#,
        r#"b=12/{"p":null}"#,
        r#"e=10/{"p":"1"}"#,
        r#"d=14/{"p":"z"}"#,
    ];
    for has_checkpoint in [false, true] {
        if has_checkpoint {
            table.write(&checkpoint_name(1), &checkpoint);
        }
        for start in 0..=3 {
            assert_eq!(removed(&table, ChangeKind::Files, start).unwrap(), whole, "from {start}");
            assert_eq!(removed(&table, ChangeKind::ChangeDataFeed, start).unwrap(), whole[..4]);
        }
        assert_eq!(removed(&table, ChangeKind::Files, 4).unwrap(), whole[2..]);
        assert_eq!(removed(&table, ChangeKind::Files, 5).unwrap(), whole[4..]);
    }
    for version in 0..=2 {
        table.remove(&commit_name(version));
    }
    table.write(
        &checkpoint_name(3),
        &[PROTOCOL, &metadata(true), &sized_add("b", "null", 12), &sized_add("d", "\"z\"", 14)].join("\n"),
    );
    table.remove(&checkpoint_name(1));
    assert!(matches!(removed(&table, ChangeKind::Files, 3), Err(Error::IncompleteRemove(3))));
    assert_eq!(removed(&table, ChangeKind::Files, 4).unwrap(), whole[2..]);
}

#[test]
fn removes_are_completed_where_the_checkpoint_before_them_is_damaged() {
    for form in FORMS {
        let log = log_with_damage(form);
        log.write(&commit_name(LATEST + 1), bare_remove("f1").as_bytes());
        let found = removed(&log, ChangeKind::Files, LATEST + 1);
        assert_eq!(found.unwrap(), ["f1=10/{}"], "{form:?}");
    }
}

#[test]
fn removes_all_over_a_long_range_are_completed_in_order() {
    let mut commits = vec![lines(&[PROTOCOL, &metadata(true)])];
    for version in 1..=700_i64 {
        let add = sized_add(&format!("f{version}"), &format!("\"{}\"", version % 7), version);
        let gone = bare_remove(&format!("f{}", version - 41));
        commits.push(if version > 41 { lines(&[&add, &gone]) } else { lines(&[&add]) });
    }
    let table = Log::of(&commits);
    for start in [0, 333] {
        let expected = (start.max(42)..=700).map(|version| {
            let gone = version - 41;
            format!(r#"f{gone}={gone}/{{"p":"{}"}}"#, gone % 7)
        });
        assert!(removed(&table, ChangeKind::Files, start).unwrap().into_iter().eq(expected), "from {start}");
    }
}

#[test]
fn a_remove_of_a_path_that_is_added_again_is_completed_from_the_add_before_it() {
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true), &sized_add("a", "\"x\"", 1)]),
        lines(&[&bare_remove("a")]),
        lines(&[&sized_add("a", "\"y\"", 2)]),
        lines(&[&bare_remove("a"), &sized_add("a", "\"z\"", 3)]),
        lines(&[&bare_remove("a")]),
    ]);
    let whole = [r#"a=1/{"p":"x"}"#, r#"a=2/{"p":"y"}"#, r#"a=3/{"p":"z"}"#];
    for (start, skipped) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)] {
        assert_eq!(removed(&table, ChangeKind::Files, start).unwrap(), whole[skipped..], "from {start}");
    }
}

/// The paths that a version changes, each with whether a removed path is added again in the same version.
type Touched = Vec<(usize, bool)>;

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(24))]

    #[test]
    fn removes_are_completed_from_the_adds_in_force(
        versions in proptest::collection::vec(
            proptest::collection::vec((0_usize..6, proptest::bool::ANY), 0..4),
            1..200_usize,
        ),
        start in 0_usize..200,
    ) {
        let start = start % (versions.len() + 1);
        let mut commits = vec![lines(&[PROTOCOL, &metadata(true)])];
        let (mut sizes, mut next_size, mut expected) = ([None; 6], 0, Vec::new());
        for (version, touched) in (1..).zip(&versions) {
            let mut commit = lines(&[r#"{"commitInfo":{}}"#]);
            let touched: BTreeMap<usize, bool> = Touched::clone(touched).into_iter().collect();
            for (path, is_added_again) in touched {
                let name = format!("f{path}");
                if let Some(size) = sizes[path].take() {
                    commit.push(bare_remove(&name));
                    if version >= start {
                        expected.push(format!(r#"{name}={size}/{{"p":"{size}"}}"#));
                    }
                    if !is_added_again {
                        continue;
                    }
                }
                next_size += 1;
                sizes[path] = Some(next_size);
                commit.push(sized_add(&name, &format!("\"{next_size}\""), next_size));
            }
            commits.push(commit);
        }
        let found = removed(&Log::of(&commits), ChangeKind::Files, start as i64).unwrap();
        proptest::prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_table_without_partitions_needs_no_partition_values() {
    let unpartitioned = metadata(true).replace(r#"["p"]"#, "[]");
    let table = Log::of(&[
        lines(&[PROTOCOL, &unpartitioned]),
        lines(&[r#"{"remove":{"path":"old","dataChange":true,"size":3}}"#]),
    ]);
    let changes = table.changes(ChangeKind::Files, 1, None).unwrap();
    let batch =
        changes.batches(1).unwrap().with_complete_removes(&Stop::default()).next_version().unwrap().unwrap();
    assert_eq!((batch.removes.rows.len(), batch.removes.batch.size[0]), (1, 3));
}

#[test]
fn a_missing_commit_is_an_error_and_a_cleaned_up_start_names_available_versions() {
    let table = table();
    table.remove(&commit_name(3));
    let error = table.changes(ChangeKind::Files, 1, None).unwrap_err();
    assert!(matches!(&error, Error::FileNotFound { file } if *file == commit_name(3)), "{error:?}");
    assert!(table.changes(ChangeKind::Files, 1, Some(2)).is_ok());
    // Cleanup deletes the commits before a checkpoint one by one, in no order.
    table.write("00000000000000000004.checkpoint.parquet", "x");
    let error = table.changes(ChangeKind::Files, 1, None).unwrap_err();
    assert!(matches!(error, Error::VersionNotFound { requested: 1, earliest: 4, latest: 5 }), "{error:?}");
}

#[test]
fn a_commit_that_is_replaced_after_the_range_was_opened_is_not_read() {
    let table = table();
    let changes = table.changes(ChangeKind::Files, 1, None).unwrap();
    let path = table.path(&commit_name(2));
    let content = std::fs::read(&path).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, content).unwrap();
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    let error = changes.batches(1).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(&error, Error::FileReplaced { file } if *file == commit_name(2)), "{error:?}");
}

#[test]
fn a_commit_that_is_deleted_after_the_range_was_opened_is_replaced_and_not_missing() {
    let table = table();
    let changes = table.changes(ChangeKind::Files, 1, None).unwrap();
    table.remove(&commit_name(3));
    let error = changes.batches(1).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(&error, Error::FileReplaced { file } if *file == commit_name(3)), "{error:?}");
}

#[test]
fn the_error_of_a_page_of_a_cleaned_up_range_names_available_versions() {
    let table = table();
    let changes = table.changes(ChangeKind::Files, 1, Some(4)).unwrap();
    table.write("00000000000000000004.checkpoint.parquet", "x");
    for version in 0..=3 {
        table.remove(&commit_name(version));
    }
    let error = changes.batches(1).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::VersionNotFound { requested: 1, earliest: 4, latest: 5 }), "{error:?}");
}

#[test]
fn timestamps_are_the_commits_own_where_the_table_has_them() {
    let enabled = metadata(true).replace(r#""delta.enableCh"#, r#""delta.enableInCommitTimestamps":"true","delta.inCommitTimestampEnablementVersion":"1","delta.enableCh"#);
    let info = |at: i64| format!(r#"{{"commitInfo":{{"inCommitTimestamp":{at}}}}}"#);
    let table = Log::of(&[
        lines(&[PROTOCOL, &metadata(true)]),
        lines(&[&info(111), &enabled, IN_COMMIT_PROTOCOL]),
        lines(&[&info(222)]),
    ]);
    let changes = table.changes(ChangeKind::ChangeDataFeed, 0, None).unwrap();
    let times: Vec<_> = changes.batches(0).unwrap().map(|batch| batch.unwrap().timestamp_ms).collect();
    assert!(times[0] > Some(1_600_000_000_000));
    assert_eq!(times[1..], [Some(111), Some(222)]);
}

#[test]
fn a_change_without_its_time_fails_the_feed_and_not_a_range_of_files() {
    let enabled = metadata(true)
        .replace(r#""delta.enableCh"#, r#""delta.enableInCommitTimestamps":"true","delta.enableCh"#);
    let table = Log::of(&[
        lines(&[r#"{"commitInfo":{"inCommitTimestamp":111}}"#, IN_COMMIT_PROTOCOL, &enabled]),
        lines(&[r#"{"commitInfo":{"operation":"OPTIMIZE"}}"#, &file("add", "a", false)]),
        lines(&[&file("add", "b", true)]),
    ]);
    for surveyed in [true, false] {
        for (kind, first) in [(ChangeKind::ChangeDataFeed, 0), (ChangeKind::Files, 0), (ChangeKind::Files, 2)]
        {
            let mut changes = table.changes(kind, 0, None).unwrap();
            if surveyed {
                changes.survey(&Stop::default()).unwrap();
            }
            let times: Vec<_> =
                changes.batches(first).unwrap().map(|batch| batch.map(|batch| batch.timestamp_ms)).collect();
            match (kind, times.last().unwrap()) {
                (ChangeKind::ChangeDataFeed, Err(Error::CorruptLog { file, .. })) => {
                    assert_eq!(*file, commit_name(2));
                    assert!(matches!(times[..2], [Ok(Some(111)), Ok(None)]), "nothing changed at version 1");
                }
                (ChangeKind::Files, Ok(None)) => {}
                found => panic!("{found:?}"),
            }
        }
    }
}

#[test]
fn long_ranges_and_large_commits_are_read_in_groups_without_a_gap() {
    let large = format!(r#"{{"commitInfo":{{"x":"{}"}}}}"#, "x".repeat(3 << 20));
    let mut commits = vec![lines(&[PROTOCOL, &metadata(true)])];
    for version in 1..=300 {
        let add = file("add", &format!("f{version}"), true);
        commits.push(if version % 100 < 4 { lines(&[&add, &large]) } else { lines(&[&add]) });
    }
    let table = Log::of(&commits);
    for start in [0, 150] {
        let feed = table.feed(ChangeKind::ChangeDataFeed, start, None).unwrap();
        let expected = (start..=300).map(|version| match version {
            0 => "0".to_owned(),
            _ => format!("{version} add:f{version}"),
        });
        assert!(feed.into_iter().eq(expected));
    }
}

#[test]
fn a_batch_that_fails_ends_the_range() {
    let table = table();
    table.write(&commit_name(2), "{");
    let changes = table.changes(ChangeKind::Files, 1, None).unwrap();
    let mut batches = changes.batches(1).unwrap();
    assert!(matches!(batches.next(), Some(Ok(_))));
    assert!(matches!(batches.next(), Some(Err(Error::CorruptLog { .. }))));
    assert!(batches.next().is_none());
}
