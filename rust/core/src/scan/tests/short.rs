//! Checkpoints that have too few files, or the same one several times.

use std::collections::BTreeSet;

use super::*;
use crate::checkpoint::tests::metadata_row;
use crate::log_path::log_file_path;
use crate::snapshot::damage::{
    FORMS, Form, LATEST, VERSION, add, checkpoint, checkpoint_of, expected, lines, log_of, rows,
    write_checksum,
};

/// The paths of an answer that its reader may end early.
fn files_by_hint(root: &str) -> Result<BTreeSet<String>> {
    let snapshot = Snapshot::load(&Storage::local(), root, TimeTravel::Latest, None)?;
    let options = ScanOptions { limit_hint: Some(u64::MAX), ..ScanOptions::everything() };
    let mut scan = Scan::new(snapshot, None, options)?;
    let mut found = BTreeSet::new();
    while let Some(selected) = scan.next_files()? {
        let path = |row: &u32| selected.batch.files.path.value(*row as usize).to_owned();
        found.extend(selected.rows.iter().map(path));
    }
    Ok(found)
}

#[test]
fn an_answer_by_a_hint_finds_a_checkpoint_that_is_shorter_than_the_checksum_file_of_its_version() {
    for form in FORMS {
        let log = log_of(0..=LATEST);
        checkpoint_of(&log, VERSION, form, &rows(VERSION - 1));
        write_checksum(&log, LATEST);
        let error = files_by_hint(log.root()).unwrap_err();
        assert!(error.to_string().contains("it has at most 2 adds"), "{form:?} {error:?}");
        assert_eq!(files_by_hint(log.root()).unwrap(), expected(LATEST), "{form:?}");
    }
}

#[test]
fn a_short_checkpoint_gives_way_to_another_one_of_its_version() {
    for (short, whole) in FORMS.into_iter().flat_map(|short| FORMS.map(|whole| (short, whole))) {
        // Some forms have files of one name.
        let are = |forms: [Form; 2]| forms.contains(&short) && forms.contains(&whole);
        let share_a_name = are([Form::Json, Form::JsonSidecar]) || are([Form::Sidecar, Form::JsonSidecar]);
        if short == whole || share_a_name {
            continue;
        }
        let log = log_of(VERSION..=LATEST);
        checkpoint_of(&log, VERSION, short, &rows(VERSION - 1));
        checkpoint(&log, VERSION, whole);
        let hint = json!({"version": VERSION, "numOfAddFiles": VERSION + 1});
        log.write("_last_checkpoint", hint.to_string().as_bytes());
        let found = files_by_hint(log.root()).or_else(|_| files_by_hint(log.root()));
        assert_eq!(found.unwrap(), expected(LATEST), "{short:?} beside {whole:?}");
    }
}

#[test]
fn a_sidecar_that_a_checkpoint_names_twice_is_read_once() {
    let log = log_of(VERSION..=VERSION);
    let top = &checkpoint(&log, VERSION, Form::JsonSidecar)[0];
    let content = std::fs::read_to_string(log_file_path(log.root(), top)).unwrap();
    let action = content.lines().last().unwrap();
    log.write(top, format!("{content}\n{action}").as_bytes());
    let snapshot = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
    assert_eq!(snapshot.totals().unwrap().files, VERSION as u64 + 1);
}

/// As delta-rs writes it before 0.17.
#[test]
fn a_file_that_a_checkpoint_of_delta_rs_repeats_is_listed_once() {
    let again = |number: i64, size: u64| {
        let mut row = add(number);
        row["add"]["size"] = size.into();
        row
    };
    for (library, sizes) in [("46.0.0", vec![10, 10, 30]), ("50.0.0", vec![10, 20, 10, 10, 30])] {
        let adds = [again(0, 10), again(1, 20), again(2, 10), again(0, 10), again(1, 30)];
        let all = [&[protocol_row(), metadata_row(&[])], &adds[..]].concat();
        let properties = WriterProperties::builder().set_created_by(format!("parquet-rs version {library}"));
        let log = log_of(VERSION..=VERSION);
        log.write(
            &format!("{VERSION:020}.checkpoint.parquet"),
            &parquet(&schema(), &all, properties.set_max_row_group_row_count(Some(3)).build()),
        );
        let load = || Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
        let snapshot = load();
        let mut scan = Scan::new(Arc::clone(&snapshot), None, ScanOptions::everything()).unwrap();
        let mut found = Vec::new();
        while let Some(selected) = scan.next_files().unwrap() {
            found.extend(selected.rows.iter().map(|row| selected.batch.files.size[*row as usize] as u64));
        }
        assert_eq!(found, sizes, "{library}");
        let counted = Totals { files: found.len() as u64, size_bytes: found.iter().sum() };
        assert_eq!(snapshot.totals().unwrap(), counted);
        assert_eq!(load().totals().unwrap(), counted, "without the scan");
        let remove = json!({"remove": {"path": "f1", "deletionTimestamp": 1, "dataChange": true}});
        log.write(&commit_name(VERSION + 1), &lines(&[remove]));
        let without = load();
        assert_eq!(without.totals().unwrap().files, if library == "46.0.0" { 2 } else { 3 });
        assert_eq!(files_by_hint(log.root()).unwrap().len(), 2);
    }
}
