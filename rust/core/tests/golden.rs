//! Tables of other implementations, held against known answers (an independent forward replay).
//!
//! Runs where `DELTA_GATEWAY_SHARED` names the folder that has them, or where they lie beside the checkout.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::PathBuf;

use deltalog::Error;
use deltalog::actions::Totals;
use deltalog::checkpoint::ReadOptions;
use deltalog::snapshot::{At, Base, CHECKPOINT_SOURCE, Snapshot};
use deltalog::storage::Storage;
use serde_json::Value;

fn tables() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("DELTA_GATEWAY_SHARED").map_or_else(beside, PathBuf::from);
    let tables = shared.join("tables");
    tables.join("ANSWERS.json").is_file().then_some(tables)
}

/// The totals from the files themselves, whatever the checksum file says.
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

fn hold_against(name: &str, root: &str, answer: &Value) {
    let storage = Storage::local();
    let loaded = Snapshot::load(&storage, root, At::Latest, None);
    if answer.get("error").is_some() {
        assert!(matches!(loaded, Err(Error::TableNotFound)), "{name}: {loaded:?}");
        return;
    }
    if answer["readerSupported"] == Value::Bool(false) {
        assert!(matches!(loaded, Err(Error::UnsupportedFeature(_))), "{name}: {loaded:?}");
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

    let again = Snapshot::load_identity(&storage, root, &snapshot.identity()).unwrap();
    assert_eq!(again.identity(), snapshot.identity(), "{name}");
    assert_eq!(counted(&again), expected, "{name}, by its identity");
}

#[test]
fn every_golden_table_has_its_known_answer() {
    let Some(tables) = tables() else {
        eprintln!("skipped: DELTA_GATEWAY_SHARED names no folder with golden tables");
        return;
    };
    let answers = std::fs::read(tables.join("ANSWERS.json")).unwrap();
    let answers: serde_json::Map<String, Value> = serde_json::from_slice(&answers).unwrap();
    assert!(answers.len() > 100);
    for (name, answer) in &answers {
        hold_against(name, tables.join(name).to_str().unwrap(), answer);
    }
}

/// Reading a table version by version, each from the one before, gives what reading each from nothing gives.
#[test]
fn every_golden_table_advances_to_what_a_fresh_load_gives() {
    let Some(tables) = tables() else {
        eprintln!("skipped: DELTA_GATEWAY_SHARED names no folder with golden tables");
        return;
    };
    let answers = std::fs::read(tables.join("ANSWERS.json")).unwrap();
    let answers: serde_json::Map<String, Value> = serde_json::from_slice(&answers).unwrap();
    let storage = Storage::local();
    for (name, answer) in &answers {
        let root = tables.join(name);
        let root = root.to_str().unwrap();
        let Some(latest) = answer["version"].as_i64() else { continue };
        let mut previous = None;
        for version in 0..=latest {
            let Ok(fresh) = Snapshot::load(&storage, root, At::Version(version), None) else { continue };
            let base = previous.as_ref().map(|snapshot| Base { snapshot, is_hot: true });
            let advanced = Snapshot::load(&storage, root, At::Version(version), base).unwrap();
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
