//! Measures predicates over a million files in memory, in milliseconds of one thread.
//!
//! `cargo bench -p deltalog --bench predicate [name ..]`. Every answer is compared with a plain count over the
//! numbers that the files were made from. Exits with 1 if a bar is missed.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::StringViewArray;
use deltalog::actions::{FileBatch, PartitionColumn, PartitionTuple};
use deltalog::predicate::{Hints, PartitionVerdicts, Predicate, PruneCounts, StatsCache};
use deltalog::schema::{ColumnMapping, StructType};

const FILES: u32 = 1_000_000;
/// The size of a batch of the checkpoint's reader.
const BATCH_FILES: u32 = 8192;
const DAYS: u32 = 365;
const RUNS: usize = 11;

const SCHEMA: &str = r#"{"type":"struct","fields":[
    {"name":"day","type":"date","nullable":true,"metadata":{}},
    {"name":"id","type":"long","nullable":true,"metadata":{}},
    {"name":"event_time","type":"timestamp","nullable":true,"metadata":{}},
    {"name":"name","type":"string","nullable":true,"metadata":{}},
    {"name":"price","type":"double","nullable":true,"metadata":{}}]}"#;

fn day(file: u32) -> u32 {
    file % DAYS
}

fn date(day: u32) -> String {
    format!("2024-{:02}-{:02}", day / 28 % 12 + 1, day % 28 + 1)
}

/// The least id of a file; the greatest is 99 more.
fn least_id(file: u32) -> u32 {
    file.wrapping_mul(2_654_435_761) % 1_000_000
}

fn stats(file: u32) -> String {
    let (least, second) = (least_id(file), file % 60);
    format!(
        "{{\"numRecords\":1000,\"minValues\":{{\"id\":{least},\"event_time\":\"2024-02-01T00:00:{second:02}.000Z\",\
         \"name\":\"a{least:07}\",\"price\":0.99}},\"maxValues\":{{\"id\":{},\"event_time\":\
         \"2024-02-01T23:59:{second:02}.999Z\",\"name\":\"a{:07}\",\"price\":999.5}},\"nullCount\":{{\"id\":0,\
         \"event_time\":0,\"name\":12,\"price\":3}}}}",
        least + 99,
        least + 99,
    )
}

fn batches() -> Vec<FileBatch> {
    let tuple = |day| {
        let values = [Some(date(day).into())].into();
        Arc::new(PartitionTuple { values, json: b"{}".as_slice().into(), logged_json: None })
    };
    let dictionary = Arc::new((0..DAYS).map(tuple).collect::<Vec<_>>());
    let starts = (0..FILES).step_by(BATCH_FILES as usize);
    starts.map(|start| batch(start..(start + BATCH_FILES).min(FILES), &dictionary)).collect()
}

fn batch(files: std::ops::Range<u32>, dictionary: &Arc<Vec<Arc<PartitionTuple>>>) -> FileBatch {
    let count = files.len();
    FileBatch {
        row: files.clone().collect(),
        path: StringViewArray::from_iter_values(files.clone().map(|file| format!("{file}.parquet"))),
        size: vec![1; count].into(),
        partitions: PartitionColumn {
            dictionary: Arc::clone(dictionary),
            keys: files.clone().map(day).collect(),
        },
        ..FileBatch::of_stats(StringViewArray::from_iter_values(files.map(stats)))
    }
}

struct Case {
    name: &'static str,
    sql: &'static str,
    /// The files that must be left.
    left: fn(u32) -> bool,
    /// Milliseconds that a warm run may take.
    bar: f64,
}

const CASES: [Case; 6] = [
    Case {
        name: "partition",
        sql: "day = '2024-02-01'",
        left: |file| date(day(file)) == "2024-02-01",
        bar: 5.0,
    },
    Case {
        name: "min_max",
        sql: "id = 500000",
        left: |file| (499_901..=500_000).contains(&least_id(file)),
        bar: 25.0,
    },
    Case {
        name: "in_list",
        sql: "id IN (1, 250000, 500000, 750000)",
        left: |file| {
            [1, 250_000, 500_000, 750_000]
                .iter()
                .any(|id| (least_id(file)..=least_id(file) + 99).contains(id))
        },
        bar: 25.0,
    },
    Case { name: "text", sql: "name < 'a0001000'", left: |file| least_id(file) < 1000, bar: 25.0 },
    Case {
        name: "time",
        sql: "event_time >= '2024-02-01T23:59:59.999Z'",
        left: |file| file % 60 == 59,
        bar: 25.0,
    },
    Case {
        name: "both",
        sql: "day = '2024-02-01' OR id < 1000",
        left: |file| date(day(file)) == "2024-02-01" || least_id(file) < 1000,
        bar: 25.0,
    },
];

fn main() {
    if cfg!(debug_assertions) {
        println!("a debug build measures nothing");
        std::process::exit(2);
    }
    let schema = StructType::parse(SCHEMA, ColumnMapping::None).unwrap();
    let batches = batches();
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut record_miss = false;
    println!("{:<12} {:>10} {:>10} {:>9} {:>9}", "predicate", "first, ms", "warm, ms", "bar, ms", "files");
    for case in CASES.iter().filter(|case| words.iter().all(|word| case.name.contains(word))) {
        let hints = Hints { sql: vec![case.sql.to_owned()], json: None };
        let (predicate, problems) = Predicate::bind(&hints, &schema, &["day".to_owned()]);
        assert_eq!(problems, []);
        let caches: Vec<StatsCache> = batches.iter().map(|_| StatsCache::cached()).collect();
        let expected = (0..FILES).filter(|file| (case.left)(*file)).count();
        let first = run(&predicate, &batches, &caches, expected);
        // The minimum: other work on the machine only adds time.
        let warm = (0..RUNS).map(|_| run(&predicate, &batches, &caches, expected)).fold(f64::MAX, f64::min);
        println!("{:<12} {first:>10.2} {warm:>10.2} {:>9.1} {expected:>9}", case.name, case.bar);
        record_miss |= warm > case.bar;
    }
    std::process::exit(i32::from(record_miss));
}

/// Milliseconds to choose among all files.
fn run(predicate: &Predicate, batches: &[FileBatch], caches: &[StatsCache], expected: usize) -> f64 {
    let candidates: Vec<Vec<u32>> = batches.iter().map(|batch| (0..batch.len() as u32).collect()).collect();
    let (mut verdicts, mut counts) = (PartitionVerdicts::default(), PruneCounts::default());
    let begin = Instant::now();
    let mut left = 0;
    for ((batch, stats), rows) in batches.iter().zip(caches).zip(candidates) {
        left += predicate.select(batch, stats, rows, &mut verdicts, &mut counts).len();
    }
    let elapsed = begin.elapsed().as_secs_f64() * 1000.0;
    assert_eq!(left, expected, "the answer is wrong");
    elapsed
}
