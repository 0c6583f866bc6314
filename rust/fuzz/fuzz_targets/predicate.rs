//! Any text as hints: a JSON tree if it begins with a brace, else SQL, one condition on each line.
//!
//! Hints never fail, files whose records are all sure to match are kept, and typed statistics that are kept
//! decide as those that are read for one pass.

#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use deltalog::actions::{FileBatch, SourceId};
use deltalog::commit::CommitFile;
use deltalog::partition::PartitionInterner;
use deltalog::predicate::{Hints, PartitionVerdicts, Predicate, PruneCounts, StatsCache};
use deltalog::schema::{ColumnMapping, StructType};
use libfuzzer_sys::fuzz_target;

const SCHEMA: &str = r#"{"type":"struct","fields":[
    {"name":"id","type":"long","nullable":true,"metadata":{}},
    {"name":"name","type":"string","nullable":true,"metadata":{}},
    {"name":"price","type":"decimal(10,2)","nullable":true,"metadata":{}},
    {"name":"ratio","type":"double","nullable":true,"metadata":{}},
    {"name":"at","type":"timestamp","nullable":true,"metadata":{}},
    {"name":"point","type":{"type":"struct","fields":[
        {"name":"x","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
    {"name":"day","type":"date","nullable":true,"metadata":{}},
    {"name":"city","type":"string","nullable":true,"metadata":{}}]}"#;

/// Files with all statistics, with none, and with nulls only.
const COMMIT: &str = r#"
{"add":{"path":"a","partitionValues":{"day":"2024-01-01","city":"Oslo"},"size":1,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":10,\"minValues\":{\"id\":1,\"name\":\"a\",\"price\":1.25,\"ratio\":-0.5,\"at\":\"2024-01-01T00:00:00.000Z\",\"point\":{\"x\":3}},\"maxValues\":{\"id\":9,\"name\":\"zz\",\"price\":99.5,\"ratio\":2.5,\"at\":\"2024-02-01T00:00:00.000Z\",\"point\":{\"x\":7}},\"nullCount\":{\"id\":0,\"name\":1,\"price\":0,\"ratio\":0,\"at\":2,\"point\":{\"x\":0}}}"}}
{"add":{"path":"b","partitionValues":{"day":"2024-01-02","city":""},"size":2,"modificationTime":1,"dataChange":true}}
{"add":{"path":"c","partitionValues":{"day":null,"city":null},"size":3,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":4,\"nullCount\":{\"id\":4,\"name\":4,\"price\":4,\"ratio\":4,\"at\":4,\"point\":{\"x\":4}}}"}}
"#;

static TABLE: LazyLock<(StructType, Vec<String>, FileBatch)> = LazyLock::new(|| {
    let schema = StructType::parse(SCHEMA, ColumnMapping::None).expect("a schema");
    let columns = vec!["day".to_owned(), "city".to_owned()];
    let commit = CommitFile::parse("commit", &Bytes::from_static(COMMIT.as_bytes())).expect("a commit");
    let batch = commit.adds.batch(SourceId(0), "commit", &mut PartitionInterner::new(&columns));
    (schema, columns, batch.expect("a batch"))
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let hints = if text.starts_with('{') {
        Hints { sql: Vec::new(), json: Some(text.to_owned()) }
    } else {
        Hints { sql: text.lines().map(str::to_owned).collect(), json: None }
    };
    let (schema, columns, batch) = &*TABLE;
    let (predicate, problems, conjuncts) = Predicate::explained(&hints, schema, columns);
    for problem in &problems {
        assert!(problem.reason.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{problem:?}");
    }

    let kept = select(&predicate, batch, &StatsCache::cached());
    assert_eq!(kept, select(&predicate, batch, &StatsCache::transient()));
    let rows: Vec<u32> = (0..batch.len() as u32).collect();
    let verdicts = &mut PartitionVerdicts::default();
    let certain = predicate.certain(batch, &StatsCache::transient(), &rows, verdicts);
    for (row, is_certain) in rows.iter().zip(certain) {
        assert!(!is_certain || kept.contains(row), "file {row} is sure to match and dropped");
    }
    // Beyond the maximum number of conditions the last ones prune nothing together, but each prunes alone.
    let all_count = problems.is_empty();
    for conjunct in conjuncts.iter().filter(|_| all_count) {
        let verdicts = &mut PartitionVerdicts::default();
        let alone = predicate.kept_by(conjunct, batch, &StatsCache::transient(), &rows, verdicts);
        assert!(
            kept.iter().all(|row| alone.contains(row)),
            "all conditions keep what {} drops",
            conjunct.text
        );
    }
});

fn select(predicate: &Predicate, batch: &FileBatch, stats: &StatsCache) -> Vec<u32> {
    let rows = (0..batch.len() as u32).collect();
    predicate.select(batch, stats, rows, &mut PartitionVerdicts::default(), &mut PruneCounts::default())
}
