//! Tables with known answers from an independent forward replay: the project's own, and golden tables of other
//! implementations.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/known_tables.rs"]
mod known_tables;

use std::path::{Path, PathBuf};

use deltalog::Error;
use deltalog::actions::Totals;
use deltalog::checkpoint::ReadOptions;
use deltalog::snapshot::{Base, CHECKPOINT_SOURCE, Snapshot, TimeTravel};
use deltalog::storage::Storage;
use serde_json::Value;

/// Returns the totals from the files, without the checksum file.
fn counted(snapshot: &Snapshot) -> Totals {
    let mut totals = Totals::default();
    for (batch, rows) in snapshot.commit_batches() {
        assert!(batch.source < CHECKPOINT_SOURCE && snapshot.has_source(batch.source));
        totals.add(batch, rows);
    }
    if let Some(checkpoint) = snapshot.checkpoint().unwrap() {
        let options = ReadOptions { first_source: CHECKPOINT_SOURCE, ..ReadOptions::default() };
        for batch in checkpoint.batches(snapshot.interner(), options) {
            let batch = batch.unwrap();
            totals.add(&batch, &snapshot.live_rows(&batch));
        }
    }
    totals
}

fn hold_against(root: &Path, answer: &Value) {
    let storage = Storage::local();
    let (name, root) = (root.display(), root.to_str().unwrap());
    let loaded = Snapshot::load(&storage, root, TimeTravel::Latest, None);
    if answer.get("error").is_some() {
        assert!(matches!(loaded, Err(Error::TableNotFound { .. })), "{name}: {loaded:?}");
        return;
    }
    if answer["readerSupported"] == Value::Bool(false) {
        let is_refused = matches!(loaded, Err(Error::UnsupportedFeature(_) | Error::CatalogNotConfigured));
        assert!(is_refused, "{name}: {loaded:?}");
        return;
    }
    let snapshot = loaded.unwrap_or_else(|error| panic!("{name}: {error} {:?}", error.detail()));
    assert_eq!(Value::from(snapshot.version()), answer["version"], "{name}");
    assert_eq!(Value::from(snapshot.metadata().id.as_str()), answer["metadataId"], "{name}");
    assert_eq!(
        Value::from(snapshot.metadata().partition_columns.clone()),
        answer["partitionColumns"],
        "{name}"
    );
    let expected = Totals {
        files: answer["numFiles"].as_u64().unwrap(),
        size_bytes: answer["totalSize"].as_u64().unwrap(),
    };
    assert_eq!(counted(&snapshot), expected, "{name}, counted");
    assert_eq!(snapshot.totals().unwrap(), expected, "{name}, as answered");

    let again = Snapshot::load_identity(&storage, root, snapshot.identity(), &[]).unwrap();
    assert_eq!(again.identity(), snapshot.identity(), "{name}");
    assert_eq!(counted(&again), expected, "{name}, by its identity");
}

fn known() -> impl Iterator<Item = (PathBuf, Value)> {
    known_tables::collections().into_iter().flat_map(|collection| {
        let answers = known_tables::answers(&collection);
        assert!(answers.len() > 40, "{} tables in {}", answers.len(), collection.display());
        answers
    })
}

#[test]
fn every_table_has_its_known_answer() {
    for (root, answer) in known() {
        hold_against(&root, &answer);
    }
}

/// A snapshot that is advanced version by version equals one that is loaded directly.
#[test]
fn every_table_advances_to_the_snapshot_of_a_fresh_load() {
    let storage = Storage::local();
    for (root, answer) in known() {
        let name = root.display();
        let root = root.to_str().unwrap();
        let Some(latest) = answer["version"].as_i64() else { continue };
        let mut previous = None;
        for version in 0..=latest {
            let Ok(fresh) = Snapshot::load(&storage, root, TimeTravel::Version(version), None) else {
                continue;
            };
            let base = previous.as_ref().map(|snapshot| Base { snapshot, is_cached: true });
            let advanced = Snapshot::load(&storage, root, TimeTravel::Version(version), base).unwrap();
            assert_eq!(advanced.version(), version, "{name}");
            assert_eq!(advanced.protocol(), fresh.protocol(), "{name} at {version}");
            // Not the whole metadata: the checkpoint of parquet_row_group_skipping is that of another table.
            let columns = |snapshot: &Snapshot| snapshot.metadata().partition_columns.clone();
            assert_eq!(columns(&advanced), columns(&fresh), "{name} at {version}");
            assert_eq!(counted(&advanced), counted(&fresh), "{name} at {version}");
            assert_eq!(advanced.totals().unwrap(), fresh.totals().unwrap(), "{name} at {version}");
            previous = Some(advanced);
        }
    }
}
