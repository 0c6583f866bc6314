//! Measures a whole signed answer in process: CPU per file, for a log made by `make_log.py`.
//!
//!     cargo run --release -p deltalog --example bench_answer -- TABLE_DIRECTORY [hot|cold] [wide|portable] [parquet|delta]
//!
//! One native thread decodes, signs and writes, nothing is sent. Every run checks that it made the bytes of the one
//! before.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]
// `debug_assertions` is a constant of the build; the assertion stops a debug build.
#![allow(clippy::assertions_on_constants)]

use std::sync::Arc;
use std::time::Duration;

use deltalog::column_cache::ColumnCache;
use deltalog::ndjson::ResponseFormat;
use deltalog::pool::Pool;
use deltalog::query::{self, FilesRequest, LineOptions};
use deltalog::sign::{S3Options, Signer, SignerSet, SigningRoot};
use deltalog::storage::Storage;
use deltalog::stream::{Buffers, NdjsonStream, Next, StreamOptions};
use deltalog::table::Table;

const RUNS: usize = 7;
const HOT_BYTES: usize = 4 << 30;
const NOW_MS: i64 = 1_709_251_198_000;

struct Bench {
    pool: Pool,
    buffers: Arc<Buffers>,
    root: String,
}

fn main() {
    assert!(!cfg!(debug_assertions), "a debug build measures nothing");
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap();
    let words: Vec<String> = arguments.collect();
    // Both variants of a pair of words run, unless one is given.
    let is_wanted = |word: &str, other: &str| {
        words.iter().any(|given| given == word) || words.iter().all(|given| given != other)
    };
    let bench = Bench { pool: Pool::new(1).unwrap(), buffers: Arc::default(), root };
    for (kind, other, cache_bytes) in [("hot", "cold", HOT_BYTES), ("cold", "hot", 0)] {
        for (engine, other_engine) in [("wide", "portable"), ("portable", "wide")] {
            for (format, name, other_name) in
                [(ResponseFormat::Parquet, "parquet", "delta"), (ResponseFormat::Delta, "delta", "parquet")]
            {
                if is_wanted(kind, other) && is_wanted(engine, other_engine) && is_wanted(name, other_name) {
                    bench.report(
                        &format!("{kind} {engine} {name}"),
                        cache_bytes,
                        engine == "portable",
                        format,
                    );
                }
            }
        }
    }
}

impl Bench {
    fn report(&self, what: &str, cache_bytes: usize, portable: bool, format: ResponseFormat) {
        let hot = Arc::new(ColumnCache::new(cache_bytes));
        let table = Arc::new(Table::new(Storage::local(), self.root.clone(), Arc::clone(&hot)));
        let signers = signers(portable);
        let mut made = |_| {
            let before = cpu_time();
            let made = self.make(&table, &signers, format);
            (made, cpu_time().saturating_sub(before))
        };
        let ((files, bytes), _) = made(0);
        let mut times: Vec<Duration> = (0..RUNS)
            .map(&mut made)
            .map(|(again, cpu)| {
                assert_eq!(again, (files, bytes));
                cpu
            })
            .collect();
        times.sort();
        let a_file = |time: Duration| time.as_secs_f64() * 1e6 / files as f64;
        println!(
            "{what}: {:.3} µs of CPU a file (least {:.3}), {} bytes a line, {} bytes a file kept",
            a_file(times[RUNS / 2]),
            a_file(times[0]),
            bytes / files,
            hot.used_bytes() as u64 / files
        );
    }

    /// The files and bytes of an answer.
    fn make(&self, table: &Arc<Table>, signers: &SignerSet, format: ResponseFormat) -> (u64, u64) {
        let lines = LineOptions {
            format,
            ids: format.id_scheme(),
            now_ms: NOW_MS,
            lifetime_seconds: 3600,
            history_shared: true,
        };
        let snapshot = table.latest(Duration::MAX, &self.pool).unwrap();
        let request = FilesRequest::default();
        let files = query::files(table, &snapshot, &request, signers, lines, &self.pool).unwrap();
        let mut stream =
            NdjsonStream::start(&self.pool, &self.buffers, Box::new(files), StreamOptions::default())
                .unwrap();
        let mut bytes = 0;
        loop {
            match stream.take().unwrap() {
                Next::Chunk(chunk) => bytes += chunk.bytes().len() as u64,
                Next::Pending => std::thread::sleep(Duration::from_micros(100)),
                Next::Done => return (stream.summary().written.files, bytes),
            }
        }
    }
}

fn signers(portable: bool) -> SignerSet {
    let (id, secret) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    let options = S3Options::new("bench", "us-east-1", id, secret);
    let signer = Signer::s3(S3Options { portable, ..options }).unwrap();
    let root = SigningRoot::new("s3://bench/warehouse/table", signer).unwrap();
    SignerSet::new(root, vec![])
}

/// The CPU time of the pool's threads: who waits for chunks here is no part of the answer.
fn cpu_time() -> Duration {
    let own = std::process::id().to_string();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap());
    let nanoseconds = threads.filter(|thread| thread.file_name() != *own).map(|thread| {
        let times = std::fs::read_to_string(thread.path().join("schedstat")).unwrap();
        times.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}
