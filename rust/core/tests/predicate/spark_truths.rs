//! What Spark says of comparisons in both of its ANSI modes and in several time zones: a file with a match in one of them
//! is kept, and a file counts as certain only if all of its rows match in all of them that give an answer.
//!
//! `spark_truths.tsv` is made by `tests/tables/spark_truths.py`. A line that begins with `#` has a type and the values of a
//! column. The others have a condition, and for each value one letter for each setting: T(rue), F(alse), N(ull) or
//! E(rror).

use deltalog::predicate::{Hints, PartitionVerdicts, Predicate, PruneCounts, StatsCache};
use deltalog::schema::{ColumnMapping, StructType};
use serde_json::json;

use crate::pruning::one_file;

const TABLE: &str = include_str!("spark_truths.tsv");

fn schema(data_type: &str) -> StructType {
    let field = json!({"name": "c", "type": data_type, "nullable": true, "metadata": {}});
    let text = json!({"type": "struct", "fields": [field]}).to_string();
    StructType::parse(&text, ColumnMapping::None).unwrap()
}

/// The files of one row each, by statistics and by a partition value.
fn files(data_type: &str, value: &str) -> [(deltalog::actions::FileBatch, Vec<String>); 2] {
    let is_quoted = matches!(data_type, "string" | "date" | "timestamp" | "timestamp_ntz");
    let bound = if is_quoted { json!(value).to_string() } else { value.to_owned() };
    let stats = format!(
        r#"{{"numRecords":1,"minValues":{{"c":{bound}}},"maxValues":{{"c":{bound}}},"nullCount":{{"c":0}}}}"#
    );
    [(one_file(Some(&stats), &[]), Vec::new()), (one_file(None, &[Some(value)]), vec!["c".to_owned()])]
}

#[test]
fn a_file_stays_where_one_mode_of_spark_finds_a_match_and_is_certain_where_all_do() {
    let (mut data_type, mut values) = ("", Vec::new());
    let (mut mistakes, mut hopeless, mut dropped) = (Vec::new(), 0, 0);
    for line in TABLE.lines() {
        if let Some(header) = line.strip_prefix('#') {
            let mut parts = header.split('\t');
            data_type = parts.next().unwrap();
            values = parts.map(|value| files(data_type, value).map(|file| (value, file))).collect();
            continue;
        }
        let (condition, letters) = line.split_once('\t').unwrap();
        let hints = Hints { sql: vec![condition.to_owned()], json: None };
        for (files, letters) in values.iter().zip(letters.split(' ')) {
            for (value, (file, partition_columns)) in files {
                let (predicate, _) = Predicate::bind(&hints, &schema(data_type), partition_columns);
                let mut verdicts = PartitionVerdicts::default();
                let mut counts = PruneCounts::default();
                let stats = StatsCache::transient();
                let kept = !predicate.select(file, &stats, vec![0], &mut verdicts, &mut counts).is_empty();
                let certain =
                    kept && predicate.certain(file, &stats, &[0], &mut PartitionVerdicts::default())[0];
                hopeless += usize::from(!letters.contains('T'));
                dropped += usize::from(!kept);
                if (letters.contains('T') && !kept) || (certain && letters.contains(['F', 'N'])) {
                    let source = if partition_columns.is_empty() { "statistics" } else { "partition value" };
                    mistakes.push(format!("{data_type} {value} ({source}): {condition} is {letters}, kept {kept}, certain {certain}"));
                }
            }
        }
    }
    assert!(mistakes.is_empty(), "{} mistakes:\n{}", mistakes.len(), mistakes.join("\n"));
    // The table would be of no use for a gateway that keeps everything.
    assert!(dropped * 2 > hopeless, "{dropped} of {hopeless}");
}
