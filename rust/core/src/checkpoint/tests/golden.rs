//! Checkpoints of other writers: of the tables that the project makes and of others' golden tables.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::known_tables::{answers, collections};
use crate::snapshot::{Snapshot, TimeTravel};

fn load(root: &Path) -> Arc<Snapshot> {
    Snapshot::load(&Storage::local(), root.to_str().unwrap(), TimeTravel::Latest, None).unwrap()
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
    for collection in collections() {
        let readable = |(_, answer): &(_, Value)| answer["readerSupported"] == true;
        let checkpoints = answers(&collection)
            .into_iter()
            .filter(readable)
            .filter(|(root, answer)| has_the_files_of_its_checkpoint(root, answer))
            .count();
        assert!(checkpoints > 20, "only {checkpoints} tables of {} have a checkpoint", collection.display());
    }
}

/// Whether the table has a checkpoint; its live files are those of the answer.
fn has_the_files_of_its_checkpoint(root: &Path, answer: &Value) -> bool {
    let (snapshot, table) = (load(root), root.display());
    let Some(checkpoint) = snapshot.checkpoint().unwrap() else { return false };
    let mut commits = (0, 0);
    for (batch, rows) in snapshot.commit_batches() {
        commits.0 += rows.len() as u64;
        commits.1 += rows.iter().map(|row| batch.size[*row as usize] as u64).sum::<u64>();
    }
    let expected = Totals {
        files: answer["numFiles"].as_u64().unwrap() - commits.0,
        size_bytes: answer["totalSize"].as_u64().unwrap() - commits.1,
    };
    let is_dead = |path: &str, vector: Option<&_>| snapshot.seen().contains(path, vector);
    assert_eq!(checkpoint.totals(Some(&is_dead), 2, &Stop::default()).unwrap().live, expected, "{table}");
    let live = live_adds(&snapshot, everything());
    let size_bytes = live.values().map(|add| add["size"].as_u64().unwrap()).sum();
    assert_eq!(Totals { files: live.len() as u64, size_bytes }, expected, "{table}");
    let least = live_adds(&snapshot, ReadOptions::default());
    assert!(least.keys().eq(live.keys()), "{table}");
    true
}

/// Returns the adds in the commits of a table, by their paths.
fn adds_of_commits(root: &Path) -> BTreeMap<String, Value> {
    let log = root.join("_delta_log");
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
fn values_from_typed_columns_equal_those_of_the_commits() {
    for collection in collections() {
        let is_typed = |root: &Path| {
            let name = root.to_str().unwrap();
            ["struct-stats", "parsed-stats", "typed-statistics"].iter().any(|part| name.contains(part))
        };
        let mut tables = 0;
        for (root, _) in answers(&collection).into_iter().filter(|(root, _)| is_typed(root)) {
            rebuilds_the_adds_of_the_commits(&root);
            tables += 1;
        }
        assert!(tables > 5, "only {tables} tables of {} have typed statistics", collection.display());
    }
}

fn rebuilds_the_adds_of_the_commits(root: &Path) {
    let (snapshot, said, table) = (load(root), adds_of_commits(root), root.display());
    let live = live_adds(&snapshot, everything());
    assert!(!live.is_empty(), "{table}");
    let mut compared = 0;
    for (path, found) in live {
        // A log whose first commits are gone has only the checkpoint's word.
        let Some(said) = said.get(&path) else { continue };
        let stats =
            |add: &Value| add["stats"].as_str().map(|stats| serde_json::from_str::<Value>(stats).unwrap());
        assert_eq!(stats(&found), stats(said), "{table} {path}");
        assert_eq!(found["partitionValues"], said["partitionValues"], "{table} {path}");
        compared += 1;
    }
    assert!(compared > 0, "{table}");
}
