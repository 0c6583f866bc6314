//! Tables with known answers, for tests of the crate and of its modules.
//!
//! `DELTA_GATEWAY_MADE` names the directory of tables that the project makes itself (`tests/run.py` does it),
//! `DELTA_GATEWAY_GOLDEN` one of golden tables of other implementations. Without a variable those tables are
//! skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Returns the existing directories, each with an `ANSWERS.json`.
pub(crate) fn collections() -> Vec<PathBuf> {
    [collection("DELTA_GATEWAY_MADE"), golden()].into_iter().flatten().collect()
}

/// Returns the directory of golden tables, if there is one.
pub(crate) fn golden() -> Option<PathBuf> {
    collection("DELTA_GATEWAY_GOLDEN")
}

fn collection(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    let found = found.filter(|directory| directory.join("ANSWERS.json").is_file());
    if found.is_none() {
        eprintln!("skipped: {variable} names no directory with ANSWERS.json");
    }
    found
}

/// Returns the answers of an independent replay for each table of a collection, by the table's directory.
pub(crate) fn answers(collection: &Path) -> Vec<(PathBuf, Value)> {
    let text = std::fs::read(collection.join("ANSWERS.json")).unwrap();
    let answers: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    answers.into_iter().map(|(name, answer)| (collection.join(name), answer)).collect()
}
