//! Versions of logs whose optional files are damaged: the commits or an older checkpoint replace them.

use std::collections::BTreeSet;

use ::parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use super::tests::each_live_batch;
use super::*;
use crate::checkpoint::tests::writer::{Log, UUID, parquet, schema};
use crate::checkpoint::tests::{metadata_row, protocol_row};
use crate::history::History;
use crate::log_path::commit_name;

/// The version of the damaged checkpoint.
pub(crate) const VERSION: i64 = 2;
pub(crate) const LATEST: i64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Classic,
    MultiPart,
    Json,
    Sidecar,
    JsonSidecar,
}

pub(crate) const FORMS: [Form; 5] =
    [Form::Classic, Form::MultiPart, Form::Json, Form::Sidecar, Form::JsonSidecar];

pub(crate) fn add(number: i64) -> Value {
    let path = format!("f{number}");
    json!({"add": {
        "path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": true,
    }})
}

pub(crate) fn lines(rows: &[Value]) -> Vec<u8> {
    rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into_bytes()
}

pub(crate) fn rows(version: i64) -> Vec<Value> {
    (0..=version).map(add).collect()
}

/// Writes a checkpoint of all files up to a version, and returns the names of its files. The last one is damaged.
pub(crate) fn checkpoint(log: &Log, version: i64, form: Form) -> Vec<String> {
    checkpoint_of(log, version, form, &rows(version))
}

pub(crate) fn checkpoint_of(log: &Log, version: i64, form: Form, adds: &[Value]) -> Vec<String> {
    let heads = vec![protocol_row(), metadata_row(&[])];
    let file = |rows: &[Value]| parquet(&schema(), rows, WriterProperties::default());
    let base = format!("{version:020}.checkpoint");
    let all = [&heads, adds].concat();
    match form {
        Form::Classic => {
            let name = format!("{base}.parquet");
            log.write(&name, &file(&all));
            vec![name]
        }
        Form::MultiPart => {
            let names = [1, 2].map(|part| format!("{base}.{part:010}.{:010}.parquet", 2));
            log.write(&names[0], &file(&heads));
            log.write(&names[1], &file(adds));
            names.into()
        }
        Form::Json => {
            let name = format!("{base}.{UUID}.json");
            log.write(&name, &lines(&all));
            vec![name]
        }
        Form::Sidecar | Form::JsonSidecar => {
            let path = format!("{UUID}-{version}.parquet");
            let sidecar = log.write(&format!("_sidecars/{path}"), &file(adds));
            let action = json!({"path": path, "sizeInBytes": sidecar.size, "modificationTime": 1});
            let top = [heads, vec![json!({"sidecar": action})]].concat();
            let name = format!("{base}.{UUID}.{}", if form == Form::Sidecar { "parquet" } else { "json" });
            let content = if form == Form::Sidecar { file(&top) } else { lines(&top) };
            log.write(&name, &content);
            vec![name, sidecar.name]
        }
    }
}

pub(crate) fn log_of(versions: std::ops::RangeInclusive<i64>) -> Log {
    let log = Log::new();
    for version in versions {
        let head = if version == 0 { vec![protocol_row(), metadata_row(&[])] } else { Vec::new() };
        log.write(&commit_name(version), &lines(&[head, vec![add(version)]].concat()));
    }
    log
}

/// A log whose checkpoint has lost some of its files, which the commits have.
pub(crate) fn log_with_damage(form: Form) -> Log {
    let log = log_of(0..=LATEST);
    let names = checkpoint(&log, VERSION, form);
    damage(&log, names.last().unwrap(), Some(&[0; 100]));
    log
}

/// The paths of all files of a version.
fn files(root: &str, at: TimeTravel) -> Result<BTreeSet<String>> {
    let snapshot = Snapshot::load(&Storage::local(), root, at, None)?;
    files_of(&snapshot)
}

fn files_of(snapshot: &Snapshot) -> Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    each_live_batch(snapshot, |batch, rows| {
        paths.extend(rows.iter().map(|row| batch.path.value(*row as usize).to_owned()));
    })?;
    Ok(paths)
}

/// A damage that is found in the middle of an answer ends it; the next one is right.
fn files_at_last(root: &str, at: TimeTravel) -> Result<BTreeSet<String>> {
    files(root, at).or_else(|_| files(root, at))
}

pub(crate) fn expected(version: i64) -> BTreeSet<String> {
    (0..=version).map(|number| format!("f{number}")).collect()
}

/// Damages a file in one of these ways; `None` deletes it.
fn damages(content: &[u8]) -> Vec<Option<Vec<u8>>> {
    let half = content[..content.len() / 2].to_vec();
    vec![None, Some(Vec::new()), Some(half), Some(vec![0; content.len()]), Some(b"PAR1".to_vec())]
}

fn damage(log: &Log, name: &str, content: Option<&[u8]>) {
    match content {
        Some(content) => _ = log.write(name, content),
        None => log.remove(name),
    }
}

#[test]
fn commits_replace_a_damaged_checkpoint() {
    for form in FORMS {
        let whole = log_of(0..=LATEST);
        let name = checkpoint(&whole, VERSION, form).pop().unwrap();
        let content = std::fs::read(whole.path(&name)).unwrap();
        for damaged in damages(&content) {
            let log = log_of(0..=LATEST);
            checkpoint(&log, VERSION, form);
            log.write("_last_checkpoint", format!(r#"{{"version":{VERSION}}}"#).as_bytes());
            damage(&log, &name, damaged.as_deref());
            for version in 0..=LATEST {
                let found = files_at_last(log.root(), TimeTravel::Version(version));
                assert_eq!(found.unwrap(), expected(version), "{form:?} {damaged:?} {version}");
            }
            let latest = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
            let is_deleted_top = damaged.is_none() && !name.starts_with("_sidecars");
            assert_eq!(latest.segment().left_out.is_empty(), is_deleted_top, "{form:?} {damaged:?}");
            assert_eq!(latest.totals().unwrap().files, LATEST as u64 + 1);
        }
    }
}

#[test]
fn an_older_checkpoint_replaces_a_damaged_one() {
    for form in FORMS {
        let log = log_of(0..=LATEST);
        checkpoint(&log, 1, Form::Classic);
        let name = checkpoint(&log, VERSION, form).pop().unwrap();
        damage(&log, &name, Some(b"nonsense"));
        log.remove(&commit_name(0));
        for version in 1..=LATEST {
            let found = files_at_last(log.root(), TimeTravel::Version(version)).unwrap();
            assert_eq!(found, expected(version), "{form:?}");
        }
    }
}

#[test]
fn where_commits_are_gone_the_error_names_the_damaged_file() {
    for form in FORMS {
        for content in [&b""[..], b"nonsense"] {
            let log = log_of(1..=LATEST);
            let name = checkpoint(&log, VERSION, form).pop().unwrap();
            damage(&log, &name, Some(content));
            for at in [TimeTravel::Latest, TimeTravel::Version(VERSION), TimeTravel::Version(LATEST)] {
                for _ in 0..2 {
                    let error = files(log.root(), at).unwrap_err();
                    let own = name.trim_start_matches("_sidecars/");
                    assert!(
                        matches!(&error, Error::CorruptLog { file, .. } if file == own),
                        "{form:?} {at:?} {error:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_damaged_checkpoint_that_nothing_replaces_is_the_start_of_the_log() {
    for form in FORMS {
        let log = log_of(1..=LATEST);
        let name = checkpoint(&log, VERSION, form).pop().unwrap();
        damage(&log, &name, Some(b"nonsense"));
        assert!(files(log.root(), TimeTravel::Latest).is_err());
        let error = files(log.root(), TimeTravel::Version(VERSION - 1)).unwrap_err();
        assert!(
            matches!(error, Error::VersionNotFound { earliest: VERSION, latest: LATEST, .. }),
            "{form:?} {error:?}"
        );
        let (storage, metadata) = (Storage::local(), Metadata::default());
        let history = History::read(&storage, log.root(), &Protocol::default(), &metadata).unwrap();
        assert_eq!(history.version_at_or_after(0).unwrap(), VERSION, "{form:?}");
    }
}

#[test]
fn a_checkpoint_that_is_written_again_is_read() {
    let log = log_of(0..=LATEST);
    let name = checkpoint(&log, VERSION, Form::Classic).pop().unwrap();
    damage(&log, &name, Some(b"nonsense"));
    let base = || {
        let latest = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
        latest.segment().base_version()
    };
    assert_eq!(base(), -1);
    checkpoint(&log, VERSION, Form::Classic);
    assert_eq!(base(), VERSION);
}

/// Some writers begin a log with a checkpoint: its files are in no commit.
#[test]
fn commits_that_lack_files_of_a_damaged_checkpoint_do_not_replace_it() {
    let remove = json!({"remove": {"path": "f0", "deletionTimestamp": 1, "dataChange": true}});
    for (form, is_stated, is_removed) in
        FORMS.into_iter().flat_map(|form| [(form, true, false), (form, false, true)])
    {
        let log = Log::new();
        log.write(&commit_name(0), &lines(&[protocol_row(), metadata_row(&[])]));
        let names = checkpoint(&log, 0, form);
        let whole = std::fs::read(log.path(names.last().unwrap())).unwrap();
        let newer = if is_removed { vec![add(1), remove.clone()] } else { vec![add(1)] };
        log.write(&commit_name(1), &lines(&newer));
        if is_stated {
            let hint = json!({"version": 0, "size": 3, "numOfAddFiles": 1});
            log.write("_last_checkpoint", hint.to_string().as_bytes());
        }
        log.write(names.last().unwrap(), &whole[..whole.len() / 2]);
        for _ in 0..3 {
            let found = files(log.root(), TimeTravel::Latest);
            assert!(matches!(found, Err(Error::CorruptLog { .. })), "{form:?} {found:?}");
        }
        log.write(names.last().unwrap(), &whole);
        let right: &[&str] = if is_removed { &["f1"] } else { &["f0", "f1"] };
        assert!(files_at_last(log.root(), TimeTravel::Latest).unwrap().iter().eq(right), "{form:?}");
    }
}

#[test]
fn commits_without_files_do_not_replace_a_damaged_checkpoint() {
    for is_empty in [false, true] {
        let log = Log::new();
        log.write(&commit_name(0), &lines(&[protocol_row(), metadata_row(&[])]));
        let names = checkpoint(&log, 0, Form::Classic);
        log.write(&commit_name(1), &lines(&[add(1)]));
        log.write(&names[0], if is_empty { "" } else { "PAR1 torn" });
        for _ in 0..3 {
            let found = files(log.root(), TimeTravel::Latest);
            assert!(matches!(found, Err(Error::CorruptLog { .. })), "{is_empty} {found:?}");
        }
    }
}

/// Writes a checkpoint of a version with its first files only.
fn short_checkpoint(log: &Log, version: i64) {
    checkpoint_of(log, version, Form::Classic, &rows(version - 1));
}

pub(crate) fn write_checksum(log: &Log, version: i64) {
    let files = version + 1;
    let content =
        json!({"tableSizeBytes": 10 * files, "numFiles": files, "numMetadata": 1, "numProtocol": 1});
    log.write(&format!("{version:020}.crc"), content.to_string().as_bytes());
}

#[test]
fn the_checksum_file_of_its_version_finds_a_checkpoint_that_is_short() {
    for form in FORMS {
        let log = log_of(0..=LATEST);
        checkpoint_of(&log, VERSION, form, &rows(VERSION - 1));
        write_checksum(&log, VERSION);
        let load = || Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
        let error = load().totals().unwrap_err().to_string();
        assert!(error.contains("2 adds, 00000000000000000002.crc"), "{form:?} {error}");
        assert_eq!(load().totals().unwrap().files, LATEST as u64 + 1);
        assert_eq!(files(log.root(), TimeTravel::Latest).unwrap(), expected(LATEST), "{form:?}");
    }
}

/// A log was cut back and continued by a writer that writes none.
#[test]
fn a_checksum_file_that_is_older_than_its_commit_does_not_count() {
    let log = log_of(0..=LATEST);
    short_checkpoint(&log, VERSION);
    write_checksum(&log, VERSION);
    log.touch(&format!("{VERSION:020}.crc"), 1000);
    assert_eq!(files(log.root(), TimeTravel::Latest).unwrap().len(), LATEST as usize);
}

#[test]
fn the_sum_of_the_files_finds_a_checkpoint_that_is_shorter_than_the_hint_states() {
    for heads in [vec![], vec![protocol_row(), metadata_row(&[])]] {
        let log = log_of(0..=LATEST);
        short_checkpoint(&log, VERSION);
        log.write(&commit_name(LATEST), &lines(&[heads, vec![add(LATEST)]].concat()));
        let adds = VERSION + 1;
        let hint = json!({"version": VERSION, "size": adds + 2, "numOfAddFiles": adds});
        log.write("_last_checkpoint", hint.to_string().as_bytes());
        let latest = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
        let error = latest.totals().unwrap_err();
        latest.record_error(&error);
        assert!(error.to_string().contains("at most 2 adds, _last_checkpoint requires 3"), "{error:?}");
        assert_eq!(files(log.root(), TimeTravel::Latest).unwrap(), expected(LATEST));
    }
}

#[test]
fn commits_replace_a_checkpoint_that_contradicts_the_checksum_file() {
    let log = log_of(0..=LATEST);
    short_checkpoint(&log, VERSION);
    write_checksum(&log, LATEST);
    let short = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
    assert_eq!(short.totals().unwrap().files, LATEST as u64 + 1);
    let counted = Totals { files: 4, size_bytes: 40 };
    assert!(matches!(short.check_counted(None, counted), Err(Error::Contradiction { .. })));
    assert_eq!(files(log.root(), TimeTravel::Latest).unwrap(), expected(LATEST));
}

#[test]
fn files_that_are_written_again_are_read_again() {
    let load = |log: &Log, known: Option<&Arc<Snapshot>>| {
        let base = known.map(|snapshot| Base { snapshot, is_cached: true });
        Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, base).unwrap()
    };
    let log = log_of(0..=LATEST);
    short_checkpoint(&log, VERSION);
    let short = load(&log, None);
    assert_eq!(short.totals().unwrap().files, 4);
    assert!(Arc::ptr_eq(&short, &load(&log, Some(&short))), "nothing has changed");
    checkpoint(&log, VERSION, Form::Classic);
    assert_eq!(load(&log, Some(&short)).totals().unwrap().files, 5);

    let log = log_of(0..=LATEST);
    log.write(&commit_name(2), b"{\"commitInfo\":{}}");
    let short = load(&log, None);
    assert_eq!(short.totals().unwrap().files, 4);
    log.write(&commit_name(2), &lines(&[add(2)]));
    assert_eq!(load(&log, Some(&short)).totals().unwrap().files, 5);
    log.write(&commit_name(LATEST + 1), &lines(&[add(LATEST + 1)]));
    assert_eq!(load(&log, Some(&short)).totals().unwrap().files, 6);
}

#[test]
fn a_file_that_is_added_again_with_another_size_is_counted_once() {
    let again = |size: u64| {
        let mut row = add(0);
        row["add"]["size"] = size.into();
        row
    };
    let log = log_of(0..=VERSION);
    checkpoint(&log, VERSION, Form::Classic);
    log.write(&commit_name(VERSION + 1), &lines(&[again(20)]));
    let latest = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
    assert_eq!(latest.totals().unwrap(), Totals { files: 3, size_bytes: 40 });
    // A large checkpoint is counted by sizes, until an answer shows that this is wrong.
    latest.is_counted_by_sizes.store(true, Ordering::Relaxed);
    let counted = Totals { files: 2, size_bytes: 30 };
    assert!(latest.check_counted(None, counted).is_err());
    assert!(latest.segment().is_counted_by_paths(&Storage::local(), log.root()));
}

#[test]
fn a_checkpoint_without_protocol_or_metadata_is_left_out() {
    for rows in [vec![protocol_row()], vec![metadata_row(&[])], vec![]] {
        let log = log_of(0..=LATEST);
        let content = parquet(&schema(), &[rows, vec![add(0)]].concat(), WriterProperties::default());
        let name = format!("{VERSION:020}.checkpoint.parquet");
        log.write(&name, &content);
        assert_eq!(files(log.root(), TimeTravel::Latest).unwrap(), expected(LATEST));
        log.remove(&commit_name(0));
        let error = files(log.root(), TimeTravel::Latest).unwrap_err();
        assert!(matches!(&error, Error::CorruptLog { file, .. } if *file == name), "{error:?}");
    }
}

/// A version whose checkpoint is not opened to load it, and the names of the checkpoint's files.
fn unopened(form: Form) -> (Log, Arc<Snapshot>, Vec<String>) {
    let log = log_of(VERSION..=LATEST);
    let names = checkpoint(&log, VERSION, form);
    log.write(&commit_name(LATEST), &lines(&[protocol_row(), metadata_row(&[]), add(LATEST)]));
    let snapshot = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
    (log, snapshot, names)
}

#[test]
fn a_checkpoint_that_is_cleaned_up_before_it_is_read_is_asked_for_again() {
    for form in FORMS {
        let (log, snapshot, names) = unopened(form);
        checkpoint(&log, LATEST, Form::Classic);
        let commits = (VERSION..LATEST).map(commit_name);
        names.into_iter().chain(commits).for_each(|name| damage(&log, &name, None));
        let error = files_of(&snapshot).unwrap_err();
        assert!(matches!(error, Error::FileReplaced { .. }), "{form:?} {error:?}");
        assert!(snapshot.is_lost());
        assert!(matches!(snapshot.explain_missing(error), Error::InvalidCursor), "the page of {form:?}");
        assert_eq!(files(log.root(), TimeTravel::Latest).unwrap(), expected(LATEST), "{form:?}");
    }
}

#[test]
fn a_sidecar_that_is_missing_from_a_listed_checkpoint_stays_missing() {
    for form in [Form::Sidecar, Form::JsonSidecar] {
        let (log, snapshot, names) = unopened(form);
        damage(&log, names.last().unwrap(), None);
        let error = files_of(&snapshot).unwrap_err();
        assert!(matches!(error, Error::FileNotFound { .. }), "{form:?} {error:?}");
    }
}

#[test]
fn a_log_that_loses_another_file_at_each_listing_is_asked_for_again() {
    let missing = |file: &str| Err::<(), _>(Error::FileNotFound { file: file.into() });
    let mut later = ["b", "c", "d", "e"].into_iter();
    let error = list_again(missing("a"), || missing(later.next().unwrap())).unwrap_err();
    assert!(matches!(error, Error::FileReplaced { file } if file == "d"));
    // Two tables whose directories are swapped.
    let mut swapped = ["b", "b", "a"].into_iter();
    let error = list_again(missing("a"), || missing(swapped.next().unwrap())).unwrap_err();
    assert!(matches!(error, Error::FileReplaced { file } if file == "a"));
    let error = list_again(missing("a"), || missing("a")).unwrap_err();
    assert!(matches!(error, Error::FileNotFound { .. }));
    assert!(list_again(missing("a"), || Ok(())).is_ok());
}
