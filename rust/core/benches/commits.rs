//! Measures commits: bytes per second of parsing, and nanoseconds per file of batches and of the replay set.
//!
//! `cargo bench -p deltalog --bench commits`. Every figure is the median of many runs in CPU time of one
//! thread, and every run's answer is checked.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]
// `debug_assertions` is a constant of the build; the assertion stops a debug build.
#![allow(clippy::assertions_on_constants)]

use std::fmt::Write as _;
use std::hint::black_box;

use bytes::Bytes;
use deltalog::actions::SourceId;
use deltalog::commit::CommitFile;
use deltalog::partition::PartitionInterner;
use deltalog::replay::ReplaySet;

const FILES: usize = 20_000;
const RUNS: usize = 41;
const PROBES: usize = 50;

fn commit() -> Bytes {
    let mut text = String::from("{\"commitInfo\":{\"timestamp\":1709251198000,\"operation\":\"WRITE\"}}\n");
    for index in 0..FILES {
        let stats = format!(
            "{{\"numRecords\":{index},\"minValues\":{{\"id\":{index},\"event_time\":\"2024-02-01T00:00:00.000Z\",\
             \"name\":\"aardvark\",\"price\":0.99}},\"maxValues\":{{\"id\":{index},\"event_time\":\
             \"2024-02-01T23:59:59.999Z\",\"name\":\"zebra\",\"price\":999.5}},\"nullCount\":{{\"id\":0,\
             \"event_time\":0,\"name\":12,\"price\":3}}}}"
        );
        writeln!(
            text,
            "{{\"add\":{{\"path\":\"date=2024-02-{day:02}/part-{index:05}-61d16c75-6994-46b7-a15b-{index:012x}.c000.snappy.parquet\",\
             \"partitionValues\":{{\"date\":\"2024-02-{day:02}\"}},\"size\":{size},\"modificationTime\":1709251198000,\
             \"dataChange\":true,\"stats\":{stats}}}}}",
            day = index % 28 + 1,
            size = 1_000_000 + index,
            stats = serde_json::to_string(&stats).unwrap(),
        )
        .unwrap();
    }
    Bytes::from(text)
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn median_seconds(mut run: impl FnMut()) -> f64 {
    assert!(!cfg!(debug_assertions), "a debug build measures nothing");
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = cpu_seconds();
            run();
            cpu_seconds() - began
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[RUNS / 2]
}

fn main() {
    let bytes = commit();
    let parsed = CommitFile::parse("00000000000000000001.json", &bytes).unwrap();
    assert_eq!(parsed.adds.len(), FILES);
    let seconds = median_seconds(|| {
        assert_eq!(black_box(CommitFile::parse("c.json", &bytes).unwrap()).adds.len(), FILES);
    });
    println!(
        "parse a commit: {:.2} GB/s, {:.0} ns a file",
        bytes.len() as f64 / seconds / 1e9,
        per_file(seconds)
    );

    let text = std::str::from_utf8(&bytes).unwrap();
    let seconds = median_seconds(|| {
        let lines = text.lines().map(|line| serde_json::from_str::<serde::de::IgnoredAny>(line).unwrap());
        assert_eq!(black_box(lines.count()), FILES + 1);
    });
    println!("serde_json skipping its lines: {:.2} GB/s", bytes.len() as f64 / seconds / 1e9);

    let batch = parsed.adds.batch(SourceId(0), &parsed.name, &mut PartitionInterner::new(&["date"])).unwrap();
    assert_eq!((batch.len(), batch.partitions.dictionary.len()), (FILES, 28));
    let seconds = median_seconds(|| {
        let mut interner = PartitionInterner::new(&["date"]);
        let batch = parsed.adds.batch(SourceId(0), &parsed.name, &mut interner).unwrap();
        assert_eq!(black_box(batch).len(), FILES);
    });
    println!("its batch: {:.0} ns a file", per_file(seconds));

    let seconds = median_seconds(|| {
        let mut set = ReplaySet::default();
        let live = set.take_commit(&parsed.adds, &parsed.removes);
        assert_eq!(black_box(live).len(), FILES);
    });
    println!("fill the replay set: {:.0} ns a file", per_file(seconds));

    let mut full = ReplaySet::default();
    full.take_commit(&parsed.adds, &parsed.removes);
    let mut one = ReplaySet::default();
    one.insert("elsewhere", None);
    for (name, set, live) in
        [("an empty", ReplaySet::default(), FILES), ("a small", one, FILES), ("a full", full, 0)]
    {
        // The clock's ticks are longer than one walk.
        let seconds =
            median_seconds(|| (0..PROBES).for_each(|_| assert_eq!(black_box(set.live(&batch)).len(), live)));
        println!("probe {name} replay set: {:.1} ns a file", per_file(seconds) / PROBES as f64);
    }
}

fn per_file(seconds: f64) -> f64 {
    seconds / FILES as f64 * 1e9
}
