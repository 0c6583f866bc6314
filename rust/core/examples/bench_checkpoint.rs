//! Measures reading a checkpoint: CPU per file and peak memory, for a log made by `make_log.py`.
//!
//!     cargo run --release -p deltalog --example bench_checkpoint -- TABLE_DIRECTORY
//!
//! The table needs a classic or multi-part checkpoint. Every run checks that it found the files and bytes of
//! the others.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]
// `debug_assertions` is a constant of the build; the assertion stops a debug build.
#![allow(clippy::assertions_on_constants)]

use std::sync::Arc;
use std::time::Duration;

use deltalog::actions::{PartitionTuple, Totals};
use deltalog::checkpoint::{Checkpoint, IsDead, Needs, Position, ReadOptions, Span};
use deltalog::partition::PartitionInterner;
use deltalog::segment::{CheckpointFiles, CheckpointKind};
use deltalog::stop::Stop;
use deltalog::storage::Storage;

fn main() {
    assert!(!cfg!(debug_assertions), "a debug build measures nothing");
    let root = std::env::args().nth(1).unwrap();
    let storage = Storage::local();
    let mut files = storage.list_log(&root, "").unwrap();
    files.retain(|file| file.name.contains(".checkpoint."));
    let kind = if files.len() > 1 { CheckpointKind::MultiPart } else { CheckpointKind::Classic };
    let version = files[0].name[..20].parse().unwrap();
    let files = CheckpointFiles { version, kind, files };
    let (checkpoint, cpu) = measured(|| Checkpoint::open(&storage, &root, &files).unwrap());
    println!("open: {:.2} ms", cpu.as_secs_f64() * 1e3);

    let all = Needs { stats: true, delta_fields: true };
    let without_stats = Needs { stats: false, ..all };
    let expected = checkpoint.totals(None, 1, &Stop::default()).unwrap().live;
    for _ in 0..3 {
        stream(&checkpoint, "all columns", ReadOptions { needs: all, ..ReadOptions::default() }, expected);
        stream(
            &checkpoint,
            "no stats",
            ReadOptions { needs: without_stats, ..ReadOptions::default() },
            expected,
        );
        stream(&checkpoint, "least", ReadOptions::default(), expected);
        one_day(&checkpoint, all);
        last_page(&checkpoint, all);
        sums(&checkpoint, "totals, no tombstone", None, expected);
        sums(&checkpoint, "totals, probed", Some(&|path, _| path.len() == 1), expected);
    }
}

fn stream(checkpoint: &Checkpoint, what: &str, options: ReadOptions, expected: Totals) {
    let (found, cpu) = measured(|| read(checkpoint, options));
    assert_eq!(found, expected);
    report(what, cpu, expected.files);
}

/// A predicate on the first partition column that keeps one of its values.
fn one_day(checkpoint: &Checkpoint, needs: Needs) {
    let keep = |tuple: &PartitionTuple| tuple.values[0].as_deref() == Some("2025-03-01");
    let options = ReadOptions { needs, keep_tuple: Some(Arc::new(keep)), ..ReadOptions::default() };
    let (found, cpu) = measured(|| read(checkpoint, options));
    let all = checkpoint.totals(None, 1, &Stop::default()).unwrap().live;
    report(&format!("one partition ({} files)", found.files), cpu, all.files);
}

/// Measures a page token that continues near the end of the last part.
fn last_page(checkpoint: &Checkpoint, needs: Needs) {
    let rows =
        checkpoint.totals(None, 1, &Stop::default()).unwrap().live.files / u64::from(checkpoint.parts());
    let start = Position { part: checkpoint.parts() - 1, row: u32::try_from(rows).unwrap() - 1000 };
    let options = ReadOptions { needs, span: Some(Span { start, end: None }), ..ReadOptions::default() };
    let (found, cpu) = measured(|| read(checkpoint, options));
    println!(
        "last page ({} files): {:.0} ms of CPU, {}",
        found.files,
        cpu.as_secs_f64() * 1e3,
        peak_memory()
    );
}

fn sums(checkpoint: &Checkpoint, what: &str, is_dead: Option<IsDead<'_>>, expected: Totals) {
    let (found, cpu) = measured(|| checkpoint.totals(is_dead, 2, &Stop::default()).unwrap().live);
    assert_eq!(found, expected);
    report(what, cpu, expected.files);
}

fn read(checkpoint: &Checkpoint, options: ReadOptions) -> Totals {
    let columns = &checkpoint.metadata().unwrap().partition_columns;
    let mut totals = Totals::default();
    for batch in checkpoint.batches(PartitionInterner::new(columns), options) {
        let batch = batch.unwrap();
        totals.files += batch.len() as u64;
        totals.size_bytes += batch.size.iter().map(|size| *size as u64).sum::<u64>();
    }
    totals
}

fn report(what: &str, cpu: Duration, files: u64) {
    println!("{what}: {:.3} µs of CPU a file, {}", cpu.as_secs_f64() * 1e6 / files as f64, peak_memory());
}

/// The CPU time of all threads of this process, so that a busy machine measures the same.
fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    // Begins a new peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = cpu_time();
    let done = work();
    (done, cpu_time().saturating_sub(before))
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    format!("{} at most", peak.trim())
}

fn cpu_time() -> Duration {
    // Fields 14 and 15: user and system time in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}
