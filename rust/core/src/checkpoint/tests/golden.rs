//! Checkpoints of other writers, in the shared tables (`DELTA_GATEWAY_SHARED`, else `../shared`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::snapshot::{At, Snapshot};

fn shared_tables() -> PathBuf {
    let shared = std::env::var_os("DELTA_GATEWAY_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    shared.join("tables")
}

fn load(table: &str) -> Arc<Snapshot> {
    let root = shared_tables().join(table);
    Snapshot::load(&Storage::local(), root.to_str().unwrap(), At::Latest, None).unwrap()
}

/// The live adds of a table's checkpoint by their paths.
fn live_adds(snapshot: &Snapshot, options: ReadOptions) -> BTreeMap<String, Value> {
    let checkpoint = snapshot.checkpoint().unwrap().unwrap();
    let mut live = BTreeMap::new();
    for batch in checkpoint.batches(snapshot.interner(), options) {
        let batch = batch.unwrap();
        for row in snapshot.live_rows(&batch) {
            let (_, _, add) = add(&batch, row as usize);
            live.insert(add["path"].as_str().unwrap().to_owned(), add);
        }
    }
    live
}

#[test]
fn every_table_with_a_checkpoint_has_the_files_that_an_independent_replay_found() {
    let answers = std::fs::read(shared_tables().join("ANSWERS.json")).unwrap();
    let answers: BTreeMap<String, Value> = serde_json::from_slice(&answers).unwrap();
    let mut tables = 0;
    for (table, answer) in answers.iter().filter(|(_, answer)| answer["readerSupported"] == true) {
        let snapshot = load(table);
        let Some(checkpoint) = snapshot.checkpoint().unwrap() else { continue };
        tables += 1;
        let mut commits = (0, 0);
        for (batch, rows) in snapshot.commit_batches() {
            commits.0 += rows.len() as u64;
            commits.1 += rows.iter().map(|row| batch.size[*row as usize] as u64).sum::<u64>();
        }
        let expected = Totals {
            files: answer["numFiles"].as_u64().unwrap() - commits.0,
            size_bytes: answer["totalSize"].as_u64().unwrap() - commits.1,
        };
        let is_dead = |path: &str, vector: Option<&_>| snapshot.decided().contains(path, vector);
        assert_eq!(checkpoint.totals(Some(&is_dead), 2).unwrap(), expected, "{table}");
        let live = live_adds(&snapshot, everything());
        let size_bytes = live.values().map(|add| add["size"].as_u64().unwrap()).sum();
        assert_eq!(Totals { files: live.len() as u64, size_bytes }, expected, "{table}");
        let least = live_adds(&snapshot, ReadOptions::default());
        assert!(least.keys().eq(live.keys()), "{table}");
    }
    assert!(tables > 30, "only {tables} tables have a checkpoint");
}

/// What the commits of a table say of its adds, by their paths.
fn adds_of_commits(table: &str) -> BTreeMap<String, Value> {
    let log = shared_tables().join(table).join("_delta_log");
    let mut names: Vec<_> = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.file_name().unwrap().len() == "00000000000000000000.json".len());
    names.sort();
    let mut adds = BTreeMap::new();
    for name in names {
        for line in std::fs::read_to_string(name).unwrap().lines() {
            let mut action: Value = serde_json::from_str(line).unwrap();
            if action.get("add").is_some() {
                let add = action["add"].take();
                adds.insert(add["path"].as_str().unwrap().to_owned(), add);
            }
        }
    }
    adds
}

#[test]
fn what_is_rebuilt_from_typed_columns_is_what_the_commits_said() {
    for table in [
        "delta-rs/delta-1.2.1-only-struct-stats",
        "kernel-rs/parsed-stats",
        "kernel-rs/v1-multi-part-partitioned-struct-stats-only",
        "kernel-rs/v1-multi-part-struct-stats-only",
        "kernel-rs/v1-single-part-struct-stats-only",
        "kernel-rs/v2-classic-parquet-struct-stats-only",
        "kernel-rs/v2-json-sidecars-struct-stats-only",
        "kernel-rs/v2-parquet-sidecars-struct-stats-only",
    ] {
        let snapshot = load(table);
        let said = adds_of_commits(table);
        let live = live_adds(&snapshot, everything());
        assert!(!live.is_empty(), "{table}");
        let mut compared = 0;
        for (path, found) in live {
            // A log whose first commits are gone has only the checkpoint's word.
            let Some(said) = said.get(&path) else { continue };
            let stats = |add: &Value| {
                add["stats"].as_str().map(|stats| serde_json::from_str::<Value>(stats).unwrap())
            };
            assert_eq!(stats(&found), stats(said), "{table} {path}");
            assert_eq!(found["partitionValues"], said["partitionValues"], "{table} {path}");
            compared += 1;
        }
        assert!(compared > 0, "{table}");
    }
}
