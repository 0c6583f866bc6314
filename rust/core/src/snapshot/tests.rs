use super::*;
use crate::checkpoint::tests::writer::{Log, checkpoint_name};
use crate::error::Error;
use crate::log_path::commit_name;

pub(super) const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
pub(super) const METADATA: &str = r#"{"metaData":{"id":"table","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":["p"],"configuration":{}}}"#;

const IN_COMMIT_PROTOCOL: &str =
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}"#;

/// A table whose version 0 has protocol, metadata and what is given.
pub(super) fn table_of(first: &[&str]) -> Log {
    let log = Log::new();
    log.commit(0, &[&[PROTOCOL, METADATA], first].concat());
    log
}

impl Log {
    fn commit(&self, version: i64, lines: &[&str]) {
        self.write_commit(version, lines);
        self.touch(&commit_name(version), 1_000_000 + version as u64 * 1000);
    }

    fn load(&self, at: TimeTravel) -> Result<Arc<Snapshot>> {
        Snapshot::load(&Storage::local(), self.root(), at, None)
    }

    fn advance(&self, previous: &Arc<Snapshot>) -> Arc<Snapshot> {
        self.advance_from(Base { snapshot: previous, is_cached: true })
    }

    fn advance_from(&self, base: Base<'_>) -> Arc<Snapshot> {
        Snapshot::load(&Storage::local(), self.root(), TimeTravel::Latest, Some(base)).unwrap()
    }
}

/// Shows the batches of all live files in the snapshot's order.
pub(super) fn each_live_batch(snapshot: &Snapshot, mut each: impl FnMut(&FileBatch, &[u32])) -> Result<()> {
    for (batch, rows) in snapshot.commit_batches() {
        each(batch, rows);
    }
    let Some(checkpoint) = snapshot.checkpoint()? else { return Ok(()) };
    let options = ReadOptions { first_source: CHECKPOINT_SOURCE, ..ReadOptions::default() };
    for batch in checkpoint.batches(snapshot.interner(), options) {
        let batch = batch.map_err(|error| snapshot.read_error(error))?;
        each(&batch, &snapshot.live_rows(&batch));
    }
    Ok(())
}

/// The lines of a checkpoint in JSON.
fn top_of(version: i64, adds: &[&str]) -> String {
    let head = format!(r#"{{"checkpointMetadata":{{"version":{version}}}}}"#);
    [&[&*head, PROTOCOL, METADATA], adds].concat().join("\n")
}

/// The metadata of a table with in-commit timestamps, and more properties.
fn with_in_commit_timestamps(more: &str) -> String {
    let enabled = format!(r#""configuration":{{"delta.enableInCommitTimestamps":"true"{more}}}"#);
    METADATA.replace(r#""configuration":{}"#, &enabled)
}

fn add(path: &str) -> String {
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{"p":"1"}},"size":10,"modificationTime":1,"dataChange":true}}}}"#
    )
}

fn remove(path: &str) -> String {
    format!(r#"{{"remove":{{"path":"{path}","dataChange":true}}}}"#)
}

fn live(snapshot: &Snapshot) -> Vec<String> {
    let rows = |(batch, rows): &(Arc<FileBatch>, RowIndices)| {
        let paths = rows.iter().map(|row| batch.path.value(*row as usize).to_owned());
        paths.collect::<Vec<_>>()
    };
    snapshot.commit_batches().iter().flat_map(rows).collect()
}

#[test]
fn files_come_newest_commit_first_and_in_a_commits_own_order() {
    let table = table_of(&[&add("a"), &add("b")]);
    table.commit(1, &[&add("c"), &remove("a"), &add("d")]);
    table.commit(2, &[&remove("c"), &add("a")]);
    let snapshot = table.load(TimeTravel::Latest).unwrap();
    assert_eq!(live(&snapshot), ["a", "d", "b"]);
    assert_eq!(snapshot.totals().unwrap(), Totals { files: 3, size_bytes: 30 });
    assert_eq!(live(&table.load(TimeTravel::Version(1)).unwrap()), ["c", "d", "b"]);
    assert_eq!(live(&table.load(TimeTravel::Version(0)).unwrap()), ["a", "b"]);
    let sources: Vec<_> = snapshot.commit_batches().iter().map(|(batch, _)| batch.source).collect();
    assert!(sources.is_sorted() && sources.iter().all(|source| snapshot.has_source(*source)));
    assert!(!snapshot.has_source(CHECKPOINT_SOURCE) && !snapshot.has_source(SourceId(0)));
}

#[test]
fn a_newest_commit_that_the_file_system_does_not_show_is_an_error_and_no_older_version() {
    let table = table_of(&[&add("a")]);
    table.commit(0, &[PROTOCOL, METADATA, &add("a")]);
    table.commit(1, &[&add("b")]);
    let newest = table.path(&commit_name(1));
    for target in [newest.clone(), "/nowhere".into()] {
        std::fs::remove_file(&newest).unwrap();
        std::os::unix::fs::symlink(target, &newest).unwrap();
        let error = table.load(TimeTravel::Latest).unwrap_err();
        assert!(matches!(error, Error::StorageUnavailable { .. } | Error::FileNotFound { .. }), "{error:?}");
        assert_eq!(live(&table.load(TimeTravel::Version(0)).unwrap()), ["a"]);
    }
    let known = table.load(TimeTravel::Version(0)).unwrap();
    std::fs::remove_file(&newest).unwrap();
    std::fs::create_dir(&newest).unwrap();
    for base in [None, Some(Base { snapshot: &known, is_cached: true })] {
        let error = Snapshot::load(&Storage::local(), table.root(), TimeTravel::Latest, base).unwrap_err();
        assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
    }
}

#[test]
fn a_table_that_is_replaced_while_it_is_loaded_is_one_of_the_two() {
    let tables = ["a", "b"].map(|name| {
        let files: Vec<_> = (0..8).map(|number| add(&format!("{name}{number}"))).collect();
        let table = table_of(&[&files[0]]);
        table.commit(0, &[PROTOCOL, &METADATA.replace("\"table\"", &format!("\"{name}\"")), &files[0]]);
        for version in 1..8 {
            table.commit(version, &[&files[version as usize]]);
        }
        table
    });
    let directory = tempfile::tempdir().unwrap();
    let (root, next) = (directory.path().join("root"), directory.path().join("next"));
    let point_to = |table: &Log| {
        std::os::unix::fs::symlink(table.root(), &next).unwrap();
        std::fs::rename(&next, &root).unwrap();
    };
    point_to(&tables[0]);
    let is_over = AtomicBool::new(false);
    let path = root.to_str().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                tables.iter().rev().for_each(point_to);
            }
        });
        let mut whole = 0;
        let mut known: Option<Arc<Snapshot>> = None;
        for _ in 0..300 {
            let base = known.as_ref().map(|snapshot| Base { snapshot, is_cached: true });
            match Snapshot::load(&Storage::local(), path, TimeTravel::Latest, base) {
                Ok(snapshot) => {
                    let id = &*snapshot.metadata().id;
                    let files = live(&snapshot);
                    assert!(
                        files.len() == 8 && files.iter().all(|file| file.starts_with(id)),
                        "{id}: {files:?}"
                    );
                    whole += 1;
                    known = Some(snapshot).filter(|_| whole % 2 == 0);
                }
                Err(error) => assert!(matches!(error, Error::FileReplaced { .. }), "{error:?}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(whole > 0);
    });
}

#[test]
fn an_advanced_snapshot_keeps_the_places_of_older_files() {
    let table = table_of(&[&add("a"), &add("b")]);
    let first = table.load(TimeTravel::Latest).unwrap();
    assert!(Arc::ptr_eq(&first, &table.advance(&first)));
    table.commit(1, &[&remove("a"), &add("c")]);
    let second = table.advance(&first);
    assert_eq!(live(&second), ["c", "b"]);
    assert!(Arc::ptr_eq(&second.commit_batches()[1].0, &first.commit_batches()[0].0));
    assert_eq!(live(&first), ["a", "b"], "the older one still answers");
    let fresh = table.load(TimeTravel::Latest).unwrap();
    let places = |snapshot: &Snapshot| {
        snapshot.commit_batches().iter().map(|(batch, _)| batch.source).collect::<Vec<_>>()
    };
    assert_eq!(places(&second), places(&fresh));
    assert_eq!(second.identity(), fresh.identity());
    assert_eq!(second.timestamp_ms().unwrap(), fresh.timestamp_ms().unwrap());
}

#[test]
fn an_identity_gives_the_same_order_after_later_commits() {
    let table = table_of(&[&add("a")]);
    table.commit(1, &[&add("b")]);
    let before = table.load(TimeTravel::Latest).unwrap();
    table.commit(2, &[&add("c"), &remove("a")]);
    let again = Snapshot::load_identity(&Storage::local(), table.root(), before.identity(), &[]).unwrap();
    assert_eq!(live(&again), live(&before));
    assert_eq!(live(&table.load(TimeTravel::Latest).unwrap()), ["c", "b"]);
    let refused = |identity: &str| {
        Snapshot::load_identity(&Storage::local(), table.root(), &identity.parse().unwrap(), &[])
    };
    assert!(matches!(refused("1@0c1"), Err(Error::InvalidCursor)), "another base");
    assert!(matches!(refused("9"), Err(Error::VersionNotFound { requested: 9, earliest: 0, latest: 2 })));
}

#[test]
fn a_compaction_file_decides_nothing() {
    let table = table_of(&[&add("a"), &add("b")]);
    table.commit(1, &[&remove("a"), &add("c")]);
    table.commit(2, &[&add("d")]);
    let files = |version| live(&table.load(TimeTravel::Version(version)).unwrap());
    let expected = [0, 1, 2].map(files);
    assert_eq!(expected[2], ["d", "c", "b"]);
    // Empty, torn, and as `compact_logs` of deltalake writes them: without removes that have expired.
    for content in ["", r#"{"add":{"path":"a"#, &[add("c"), add("d")].join("\n")] {
        for (first, last) in [(0, 1), (0, 2), (1, 2)] {
            table.write(&format!("{first:020}.{last:020}.compacted.json"), content);
            assert_eq!([0, 1, 2].map(files), expected, "{content}");
        }
    }
}

#[test]
fn new_partition_columns_start_from_nothing() {
    let table = table_of(&[&add("a")]);
    let first = table.load(TimeTravel::Latest).unwrap();
    table.commit(1, &[&METADATA.replace(r#"["p"]"#, r#"["q"]"#), &remove("a"), &add("b")]);
    let second = table.advance(&first);
    assert_eq!(live(&second), ["b"]);
    assert_eq!(second.metadata().partition_columns, ["q"]);
    assert_eq!(second.commit_batches()[0].0.partitions.dictionary[0].values.as_ref(), [None]);
}

#[test]
fn a_checksum_is_believed_only_where_it_agrees() {
    let checksum = |id: &str, version: i32, files: u32| {
        let metadata = METADATA.replace("table", id);
        let metadata = metadata.strip_prefix(r#"{"metaData":"#).unwrap().strip_suffix('}').unwrap();
        format!(
            r#"{{"tableSizeBytes":99,"numFiles":{files},"numMetadata":1,"numProtocol":1,"protocol":{{"minReaderVersion":{version},"minWriterVersion":2}},"metadata":{metadata}}}"#
        )
    };
    let table = table_of(&[&add("a")]);
    table.write("00000000000000000000.checkpoint.parquet", "no parquet at all");
    // With the checksum file the checkpoint is not opened.
    table.write("00000000000000000000.crc", &checksum("table", 1, 7));
    let snapshot = table.load(TimeTravel::Latest).unwrap();
    assert_eq!(snapshot.known_totals(), Some(Totals { files: 7, size_bytes: 99 }));
    let other = METADATA.replace("table", "other");
    table.commit(1, &[&other, &add("b")]);
    table.write("00000000000000000001.crc", &checksum("other", 1, 8));
    assert_eq!(table.load(TimeTravel::Latest).unwrap().known_totals().unwrap().files, 8);
    table.write("00000000000000000001.crc", &checksum("table", 1, 7));
    let snapshot = table.load(TimeTravel::Latest).unwrap();
    assert_eq!(snapshot.segment().base_version(), -1, "the checkpoint is asked, and left out");
    assert_eq!(snapshot.known_totals().unwrap().files, 2);
}

#[test]
fn a_checksum_of_another_history_is_left_out() {
    // The log was cut back and continued by a writer without checksum files: the later time, transaction or schema of
    // the commit shows it.
    let checksum = |transaction: &str, schema: &str| {
        let metadata = METADATA.replace(r#"\"fields\":[]"#, schema);
        let metadata = metadata.strip_prefix(r#"{"metaData":"#).unwrap().strip_suffix('}').unwrap();
        format!(
            r#"{{"txnId":"{transaction}","tableSizeBytes":99,"numFiles":7,"protocol":{{"minReaderVersion":1,"minWriterVersion":2}},"metadata":{metadata}}}"#
        )
    };
    let (own, other) = (r#"\"fields\":[]"#, r#"\"fields\":[{}]"#);
    let (with_id, without_id) = (r#"{"commitInfo":{"txnId":"t"}}"#, r#"{"commitInfo":{}}"#);
    for (transaction, info, schema, is_older, is_believed) in [
        ("t", with_id, own, false, true),
        ("t", with_id, own, true, false),
        ("u", with_id, own, false, false),
        ("t", without_id, own, false, false),
        ("t", with_id, other, false, false),
    ] {
        let table = table_of(&[&add("a")]);
        table.write(&checkpoint_name(0), &top_of(0, &[&add("a")]));
        table.commit(1, &[info, METADATA, &add("b")]);
        table.write("00000000000000000001.crc", &checksum(transaction, schema));
        if is_older {
            table.touch(&commit_name(1), 5_000_000_000_000);
        }
        let snapshot = table.load(TimeTravel::Latest).unwrap();
        let expected = if is_believed { 7 } else { 2 };
        assert_eq!(snapshot.totals().unwrap().files, expected, "{transaction} {schema} {is_older}");
        assert_eq!(snapshot.metadata().schema_string.as_deref(), Some(r#"{"type":"struct","fields":[]}"#));
    }
}

#[test]
fn a_malformed_checksum_is_ignored() {
    let table = table_of(&[&add("a")]);
    let before = table.load(TimeTravel::Latest).unwrap();
    for checksum in
        ["", "garbage", "{}", r#"{"numFiles":5,"tableSizeBytes":-1}"#, r#"{"numFiles":5,"tableSizeBytes":5}"#]
    {
        table.write("00000000000000000000.crc", checksum);
        let snapshot = table.load(TimeTravel::Latest).unwrap();
        assert_eq!(snapshot.totals().unwrap(), before.totals().unwrap(), "{checksum}");
    }
}

#[test]
fn a_time_finds_the_version_that_was_the_newest() {
    let table = table_of(&[]);
    table.commit(1, &[r#"{"commitInfo":{}}"#]);
    table.commit(2, &[r#"{"commitInfo":{}}"#]);
    for (time, version) in [(1_000_000, 0), (1_000_999, 0), (1_001_000, 1), (1_002_000, 2)] {
        assert_eq!(table.load(TimeTravel::Timestamp(time)).unwrap().version(), version, "{time}");
    }
    for time in [999_999, 1_002_001] {
        assert!(
            matches!(table.load(TimeTravel::Timestamp(time)), Err(Error::TimestampOutOfRange { .. })),
            "{time}"
        );
    }
    table.touch(&commit_name(1), 0);
    assert_eq!(
        table.load(TimeTravel::Version(1)).unwrap().timestamp_ms().unwrap(),
        Some(1_000_001),
        "made monotonic"
    );
}

#[test]
fn in_commit_timestamps_are_the_commits_own() {
    let table = table_of(&[]);
    let enabled = with_in_commit_timestamps(
        r#","delta.inCommitTimestampEnablementVersion":"1","delta.inCommitTimestampEnablementTimestamp":"5000000""#,
    );
    table.commit(1, &[r#"{"commitInfo":{"inCommitTimestamp":5000000}}"#, &enabled, IN_COMMIT_PROTOCOL]);
    table.commit(2, &[r#"{"commitInfo":{"inCommitTimestamp":6000000}}"#]);
    let time = |version| table.load(TimeTravel::Version(version)).unwrap().timestamp_ms().unwrap();
    assert_eq!(time(0), Some(1_000_000));
    assert_eq!(time(1), Some(5_000_000));
    assert_eq!(time(2), Some(6_000_000));
}

#[test]
fn a_missing_in_commit_timestamp_fails_only_requests_for_the_time() {
    let table = table_of(&[&add("a")]);
    let enabled = with_in_commit_timestamps("");
    table.commit(1, &[r#"{"commitInfo":{"inCommitTimestamp":5000000}}"#, &enabled, IN_COMMIT_PROTOCOL]);
    table.commit(2, &[r#"{"commitInfo":{"timestamp":6000000}}"#, &add("b")]);
    for at in [TimeTravel::Latest, TimeTravel::Version(2)] {
        let snapshot = table.load(at).unwrap();
        assert_eq!((snapshot.version(), snapshot.timestamp_ms().unwrap()), (2, None));
    }
    let requested = table.load(TimeTravel::Timestamp(5_500_000));
    assert!(
        matches!(&requested, Err(Error::CorruptLog { file, .. }) if *file == commit_name(2)),
        "{requested:?}"
    );
}

#[test]
fn without_the_table_feature_a_property_enables_no_in_commit_timestamps() {
    let table = table_of(&[]);
    let enabled = with_in_commit_timestamps("");
    table.commit(1, &[r#"{"commitInfo":{"inCommitTimestamp":5000000}}"#, &enabled]);
    assert_eq!(table.load(TimeTravel::Latest).unwrap().timestamp_ms().unwrap(), Some(1_001_000));
    assert_eq!(table.load(TimeTravel::Timestamp(1_000_500)).unwrap().version(), 0);
}

#[test]
fn metadata_without_a_schema_lists_files() {
    let table = table_of(&[&add("a")]);
    table.commit(1, &[r#"{"metaData":{"id":"bare","schemaString":null,"partitionColumns":["p"],"configuration":{"delta.columnMapping.mode":"name"}}}"#]);
    let snapshot = table.load(TimeTravel::Latest).unwrap();
    assert_eq!(live(&snapshot), ["a"]);
    assert_eq!(snapshot.metadata().schema_string, None);
}

#[test]
fn a_log_without_protocol_or_metadata_is_corrupt() {
    for line in [PROTOCOL, METADATA, ""] {
        let table = table_of(&[]);
        table.commit(0, &[line]);
        assert!(matches!(table.load(TimeTravel::Latest), Err(Error::CorruptLog { .. })), "{line}");
    }
}

#[test]
fn a_log_with_a_cut_file_gives_an_error_or_the_right_answer() {
    let table = table_of(&[&add("a"), &add("b")]);
    table.commit(1, &[&remove("a"), &add("c")]);
    table.write(
        "00000000000000000001.crc",
        r#"{"tableSizeBytes":20,"numFiles":2,"numMetadata":1,"numProtocol":1}"#,
    );
    table.write("_last_checkpoint", r#"{"version":0}"#);
    let expected = live(&table.load(TimeTravel::Latest).unwrap());
    for (name, is_optional) in [
        (commit_name(0), false),
        (commit_name(1), false),
        ("00000000000000000001.crc".to_owned(), true),
        ("_last_checkpoint".to_owned(), true),
    ] {
        let whole = std::fs::read(table.path(&name)).unwrap();
        for length in 0..whole.len() {
            table.write(&name, &whole[..length]);
            let at_line_end = length > 0 && (whole[length] == b'\n' || whole[length - 1] == b'\n');
            match table.load(TimeTravel::Latest) {
                Ok(snapshot) if is_optional => assert_eq!(live(&snapshot), expected, "{name} at {length}"),
                // A commit cut between two lines is a valid commit.
                Ok(_) => assert!(at_line_end, "{name} at {length}"),
                Err(error) => {
                    assert!(
                        !is_optional && matches!(error, Error::CorruptLog { .. }),
                        "{name} at {length}: {error}"
                    );
                }
            }
        }
        for noise in [&b"\xff\xfe\x00\x01"[..], b"PAR1", &[b'{'; 5000], &[0; 100]] {
            table.write(&name, noise);
            let loaded = table.load(TimeTravel::Latest);
            assert_eq!(loaded.is_ok(), is_optional, "{name}");
        }
        table.write(&name, &whole);
    }
}

#[test]
fn a_grown_snapshot_is_reloaded_only_from_a_newer_checkpoint() {
    let table = table_of(&[&add("f0")]);
    let mut snapshot = table.load(TimeTravel::Latest).unwrap();
    for version in 1..=80 {
        table.commit(version, &[&add(&format!("f{version}"))]);
        let advanced = table.advance(&snapshot);
        let oldest = |snapshot: &Snapshot| Arc::clone(&snapshot.commit_batches().last().unwrap().0);
        assert!(Arc::ptr_eq(&oldest(&advanced), &oldest(&snapshot)), "continued at {version}");
        snapshot = advanced;
    }
    table.write(&checkpoint_name(70), &top_of(70, &[&add("whole")]));
    assert!(Arc::ptr_eq(&table.advance(&snapshot), &snapshot), "nothing was committed");
    table.commit(81, &[&add("f81")]);
    let advanced = table.advance(&snapshot);
    assert_eq!(advanced.segment().base_version(), 70);
    assert_eq!(advanced.totals().unwrap().files, 12);
}

#[test]
fn an_older_checkpoint_is_kept_for_columns_in_memory_alone() {
    let table = table_of(&[&add("a")]);
    let base = table.load(TimeTravel::Latest).unwrap();
    table.write(&checkpoint_name(0), &top_of(0, &[&add("a")]));
    table.commit(1, &[&add("b")]);
    for (is_cached, base_version) in [(true, -1), (false, 0)] {
        let advanced = table.advance_from(Base { snapshot: &base, is_cached });
        assert_eq!((advanced.version(), advanced.segment().base_version()), (1, base_version));
    }
}

#[test]
fn a_snapshot_with_an_old_checkpoint_is_reloaded_before_cleanup() {
    let table = table_of(&[&add("a")]);
    let first = table.load(TimeTravel::Latest).unwrap();
    table.commit(1, &[&add("b")]);
    table.write(&checkpoint_name(1), &top_of(1, &[&add("a"), &add("b")]));
    let young = table.advance(&first);
    assert_eq!(young.segment().base_version(), -1);
    table.commit(2, &[&add("c")]);
    table.touch(&commit_name(2), 1_000_000 + 25 * 3_600_000);
    let aged = table.advance(&young);
    assert_eq!((aged.segment().base_version(), aged.totals().unwrap().files), (1, 3));
}

#[test]
fn a_log_that_was_cleaned_up_meanwhile_is_searched_again() {
    let table = table_of(&[&add("a")]);
    let first = table.load(TimeTravel::Latest).unwrap();
    table.write(&checkpoint_name(0), &top_of(0, &[&add("a")]));
    table.commit(1, &[&add("b")]);
    table.remove(&commit_name(0));
    assert_eq!(table.advance(&first).totals().unwrap().files, 2);
}
