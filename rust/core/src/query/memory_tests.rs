//! The memory that streams hold ahead of their consumer, measured from outside: each log is answered in a separate
//! process.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use serde_json::{Value, json};

use super::*;
use crate::checkpoint::tests::writer::{Log, UUID, parquet, schema};
use crate::checkpoint::tests::{metadata_row, protocol_row};
use crate::column_cache::ColumnCache;
use crate::sign::{S3Options, Signer, SigningRoot};
use crate::storage::Storage;
use crate::stream::{Buffers, NdjsonStream, Next, StreamOptions};

const STREAMS: usize = 5;
/// Memory of a process beside its streams: threads and the heap's rounding.
const OVERHEAD_BYTES: usize = 48 << 20;
const ROOT_VARIABLE: &str = "DELTALOG_MEMORY_TEST_ROOT";
const CHILD: &str = "query::memory_tests::in_a_process_of_its_own";

fn with_stats(number: usize, stats: &str) -> Value {
    json!({"add": {
        "path": format!("part-{number:05}.parquet"), "partitionValues": {}, "size": 1, "modificationTime": 1,
        "dataChange": true, "stats": stats,
    }})
}

/// Returns distinct statistics of a given length, which compress very well.
fn stats(number: usize, bytes: usize) -> String {
    let head = format!(r#"{{"numRecords":{number},"minValues":{{"text":""#);
    head + &"x".repeat(bytes) + r#""}}"#
}

fn zstd() -> WriterPropertiesBuilder {
    // A page is closed after a hundred rows at most, as by other writers that look no more often.
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(parquet::file::properties::EnabledStatistics::Chunk)
        .set_write_batch_size(100)
}

/// A log with a checkpoint of such files at version 7.
fn log_of(files: BTreeMap<String, Vec<u8>>) -> Log {
    let log = Log::new();
    log.write_commit(7, &[protocol_row(), metadata_row(&[])]);
    for (name, content) in files {
        log.write(&format!("{:020}.checkpoint.{name}", 7), &content);
    }
    log
}

fn one_part(rows: impl Iterator<Item = Value>, properties: WriterProperties) -> Log {
    let rows: Vec<_> = [protocol_row(), metadata_row(&[])].into_iter().chain(rows).collect();
    log_of([("parquet".to_owned(), parquet(&schema(), &rows, properties))].into())
}

/// Answers all files of the log, and returns how much the process has grown and how many files there were.
fn answered(log: &Log) -> (usize, u64) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD, "--nocapture"])
        .env(ROOT_VARIABLE, log.root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let found = text.lines().find_map(|line| line.split_once("grown by ")?.1.split_once(" bytes, files "));
    let (grown, files) = found.unwrap_or_else(|| panic!("{text}"));
    (grown.parse().unwrap(), files.trim().parse().unwrap())
}

#[track_caller]
fn stays_within_its_bytes(log: &Log, files: u64) {
    let (grown, found) = answered(log);
    assert_eq!(found, files);
    // Shown where a test fails or is run with `--nocapture`.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("{STREAMS} streams hold {} MiB", grown >> 20);
    }
    assert!(grown < STREAMS * STREAM_BYTES + OVERHEAD_BYTES, "{STREAMS} streams hold {grown} bytes");
}

fn status_bytes(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// The other half of [`answered`]; does nothing in a usual run.
#[test]
fn in_a_process_of_its_own() {
    let Ok(root) = std::env::var(ROOT_VARIABLE) else { return };
    let (pool, buffers) = (Pool::new(4).unwrap(), Arc::new(Buffers::default()));
    let table = Arc::new(Table::new(Storage::local(), root, Arc::new(ColumnCache::new(0))));
    let snapshot = table.latest(Duration::ZERO, &pool).unwrap();
    let signers = signers();
    let format = ResponseFormat::Parquet;
    let (ids, now_ms) = (format.id_scheme(), 1_709_251_198_000);
    let lines = LineOptions { format, ids, now_ms, lifetime_seconds: 3600, history_shared: true };
    table.totals(&snapshot, &Stop::default()).unwrap();
    let before = status_bytes("VmRSS");
    let start = || {
        let files = files(&table, &snapshot, &FilesRequest::default(), &signers, lines, &pool).unwrap();
        NdjsonStream::start(&pool, &buffers, Box::new(files), StreamOptions::default()).unwrap()
    };
    let mut streams: Vec<_> = (0..STREAMS).map(|_| start()).collect();
    // A few chunks each, as a reader that is slow.
    for _ in 0..4 {
        for stream in &mut streams {
            take(stream);
        }
    }
    until_it_rests();
    let grown = status_bytes("VmHWM").saturating_sub(before);
    let mut stream = streams.swap_remove(0);
    drop(streams);
    while let Some(bytes) = take(&mut stream) {
        // A chunk's share, a line more, and what signing and escaping add.
        assert!(bytes < 1 << 20, "a chunk of {bytes} bytes");
    }
    // For the other process, which reads it.
    #[allow(clippy::print_stdout)]
    {
        println!("grown by {grown} bytes, files {}", stream.summary().written.files);
    }
}

fn signers() -> SignerSet {
    let signer = Signer::s3(S3Options::new("b", "us-east-1", "AKIAIOSFODNN7EXAMPLE", "hush")).unwrap();
    SignerSet::new(SigningRoot::new("s3://b/t", signer).unwrap(), vec![])
}

fn take(stream: &mut NdjsonStream) -> Option<usize> {
    loop {
        match stream.take().unwrap() {
            Next::Chunk(chunk) => return Some(chunk.bytes().len()),
            Next::Pending => std::thread::sleep(Duration::from_millis(1)),
            Next::Done => return None,
        }
    }
}

/// Waits until no thread works: until the process's CPU time does not change.
fn until_it_rests() {
    let cpu_time = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let (began, mut last, mut rests) = (Instant::now(), cpu_time(), 0);
    while rests < 8 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        let now = cpu_time();
        rests = if now == last { rests + 1 } else { 0 };
        last = now;
    }
}

#[test]
#[ignore = "of the part `nightly`"]
fn many_small_parts_with_large_statistics() {
    let part = |number: usize| {
        let head = [protocol_row(), metadata_row(&[])].into_iter().filter(|_| number == 0);
        let adds = (0..400).map(|add| with_stats(number * 400 + add, &stats(add, 50 << 10)));
        let rows: Vec<_> = head.chain(adds).collect();
        (format!("{:010}.0000000012.parquet", number + 1), parquet(&schema(), &rows, zstd().build()))
    };
    let parts: BTreeMap<_, _> = (0..12).map(part).collect();
    assert!(parts.values().map(Vec::len).sum::<usize>() < 2 << 20);
    stays_within_its_bytes(&log_of(parts), 4800);
}

#[test]
#[ignore = "of the part `nightly`"]
fn statistics_that_a_dictionary_holds_once_for_thousands_of_files() {
    let text = stats(1, 200 << 10);
    let properties = zstd().set_dictionary_enabled(true).build();
    stays_within_its_bytes(&one_part((0..2000).map(|number| with_stats(number, &text)), properties), 2000);
}

#[test]
fn a_few_files_with_huge_statistics_among_many_with_small_ones() {
    let rows = (0..30_000).map(|number| {
        let bytes = if (1000..1400).contains(&number) { 200 << 10 } else { 10 };
        with_stats(number, &stats(number, bytes))
    });
    stays_within_its_bytes(&one_part(rows, zstd().build()), 30_000);
}

#[test]
#[ignore = "of the part `nightly`"]
fn prefix_coded_statistics() {
    let column = ColumnPath::new(vec!["add".to_owned(), "stats".to_owned()]);
    let properties = zstd().set_column_encoding(column, Encoding::DELTA_BYTE_ARRAY).build();
    let same_head = |number: usize| format!("{}{number}", "x".repeat(50 << 10));
    let rows = (0..3000).map(|number| with_stats(number, &same_head(number)));
    stays_within_its_bytes(&one_part(rows, properties), 3000);
}

#[test]
#[ignore = "of the part `nightly`"]
fn a_checkpoint_in_json() {
    let head = [protocol_row(), metadata_row(&[])].into_iter();
    let rows = head.chain((0..1500).map(|number| with_stats(number, &stats(number, 50 << 10))));
    let content = rows.map(|row| row.to_string()).collect::<Vec<_>>().join("\n");
    stays_within_its_bytes(&log_of([(format!("{UUID}.json"), content.into_bytes())].into()), 1500);
}

#[test]
fn hints_that_need_long_statistics_of_few_files_are_not_for_the_calling_thread() {
    let signers = signers();
    let all = FilesRequest::default();
    let limit = FilesRequest { limit_hint: Some(1), ..all.clone() };
    let hints = Hints { sql: vec!["x = 1".to_owned()], json: None };
    let predicate = FilesRequest { hints, ..all.clone() };
    for (bytes, is_short) in [(3_000, true), (30_000, false)] {
        let log = Log::new();
        let head = [protocol_row(), metadata_row(&[])].into_iter();
        let rows = head.chain((0..50).map(|number| with_stats(number, &stats(number, bytes))));
        log.write_commit(0, &rows.collect::<Vec<_>>());
        let table =
            Arc::new(Table::new(Storage::local(), log.root().to_owned(), Arc::new(ColumnCache::new(0))));
        let snapshot = table.latest(Duration::ZERO, &Pool::new(1).unwrap()).unwrap();
        table.totals(&snapshot, &Stop::default()).unwrap();
        let is_inline = |request| is_made_inline(&table, &snapshot, request, &signers);
        assert_eq!([&all, &limit, &predicate].map(is_inline), [true, is_short, is_short]);
    }
}
