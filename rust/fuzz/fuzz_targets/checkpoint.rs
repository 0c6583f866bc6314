//! Any bytes as a checkpoint: `PAR1` starts a classic one, anything else is the JSON top file of a v2 one.
//!
//! Damage must never be reported as a defect of the reader. The reader catches panics of the Parquet decoder, so
//! they are findings only if they escape it.

#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use deltalog::checkpoint::{Checkpoint, Needs, ReadOptions};
use deltalog::partition::PartitionInterner;
use deltalog::segment::{CheckpointFiles, CheckpointKind};
use deltalog::stop::Stop;
use deltalog::storage::{LogFileEntry, Storage};
use deltalog::{Error, Result};
use libfuzzer_sys::fuzz_target;

/// The message of the last panic.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fuzz_target!(init: remember_panics(), |data: &[u8]| {
    match catch_unwind(AssertUnwindSafe(|| read(data))) {
        Ok(Ok(()) | Err(Error::CorruptLog { .. } | Error::FileNotFound { .. })) => {}
        Ok(Err(Error::Internal { detail })) => fail(&detail),
        // A sidecar's name may be longer than the file system allows.
        Ok(Err(_)) => {}
        Err(_) => fail("the reader panicked"),
    }
});

fn read(data: &[u8]) -> Result<()> {
    let root = std::env::temp_dir().join(format!("deltalog-fuzz-{}", std::process::id()));
    let files = checkpoint_of(data);
    let log = root.join("_delta_log");
    std::fs::create_dir_all(&log)
        .and_then(|()| std::fs::write(log.join(&files.files[0].name), data))
        .expect("a file");

    let checkpoint = Checkpoint::open(&Storage::local(), root.to_str().expect("UTF-8"), &files)?;
    let columns =
        checkpoint.metadata().map(|metadata| metadata.partition_columns.clone()).unwrap_or_default();
    for all in [false, true] {
        let needs = Needs { stats: all, delta_fields: all };
        let options = ReadOptions { needs, ..ReadOptions::default() };
        for batch in checkpoint.batches(PartitionInterner::new(&columns), options) {
            let batch = batch?;
            for file in 0..batch.len() {
                std::hint::black_box(batch.deletion_vector_at(file));
                assert!(std::str::from_utf8(batch.path.value(file).as_bytes()).is_ok());
            }
        }
    }
    checkpoint.totals(None, 1, &Stop::default())?;
    checkpoint.totals(Some(&|path, _| path.is_empty()), 1, &Stop::default()).map(drop)
}

fn checkpoint_of(data: &[u8]) -> CheckpointFiles {
    let (kind, name) = if data.starts_with(b"PAR1") {
        (CheckpointKind::Classic, "00000000000000000007.checkpoint.parquet")
    } else {
        (
            CheckpointKind::UuidJson,
            "00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        )
    };
    let file = LogFileEntry {
        name: name.to_owned(),
        size: data.len() as u64,
        modified_ms: 0,
        entity_tag: None,
        identity: 0,
    };
    CheckpointFiles { version: 7, kind, files: vec![file] }
}

/// Replaces libFuzzer's panic hook, which would end the process before the reader catches the panic.
fn remember_panics() {
    std::panic::set_hook(Box::new(|panic| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

fn fail(what: &str) -> ! {
    eprintln!("{what}; the last panic: {}", LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner));
    std::process::abort();
}
