//! Predicates against an oracle that looks at the rows themselves.
//!
//! Random tables with the statistics of many writers, random conditions in both syntaxes: no file that holds a
//! match is ever dropped, no row group of a checkpoint with one is left unread, files whose bounds exclude a
//! condition are dropped, and "certain" files match in every row.

#![allow(clippy::unwrap_used, clippy::panic)]

mod choices;
mod conditions;
mod files;
mod pruning;
mod rules;
mod spark_truths;
mod values;

use choices::Choices;
use conditions::{Condition, draw_condition};
use deltalog::predicate::{Hints, Limit, PartitionVerdicts, Predicate, PruneCounts, StatsCache};
use files::{File, Table, draw_table};
use proptest::prelude::*;
use values::Type;

fn matches(file: &File, condition: &Condition) -> usize {
    let live = file.rows.iter().zip(&file.live).filter(|(_, live)| **live);
    live.filter(|(row, _)| condition.truth(row) == Some(true)).count()
}

fn bind(table: &Table, hints: &Hints) -> Predicate {
    let (predicate, problems) = Predicate::bind(hints, &table.schema(), &table.partition_columns());
    assert!(problems.iter().all(|problem| problem.reason.starts_with("NOT IN of a text")), "{problems:?}");
    predicate
}

fn kept(table: &Table, predicate: &Predicate, stats: &StatsCache) -> Vec<u32> {
    let mut counts = PruneCounts::default();
    let all = (0..table.files.len() as u32).collect();
    let kept = predicate.select(&table.batch(), stats, all, &mut PartitionVerdicts::default(), &mut counts);
    assert_eq!(counts.considered, table.files.len() as u64);
    assert_eq!(counts.considered - counts.by_partition - counts.by_stats, kept.len() as u64);
    kept
}

fn check(numbers: &[u32]) {
    let mut choices = Choices::new(numbers);
    let table = draw_table(&mut choices);
    for _ in 0..3 {
        let condition = draw_condition(&mut choices, &table, 3);
        let sql = Hints { sql: vec![condition.sql(&mut choices, &table.columns)], json: None };
        let json = Hints { sql: vec![], json: Some(condition.json(&table.columns).to_string()) };
        let predicate = bind(&table, &sql);
        let files = kept(&table, &predicate, &StatsCache::transient());
        // SQL knows lists, whose texts have several meanings. Timestamps in JSON are cut.
        let files_of_json = kept(&table, &bind(&table, &json), &StatsCache::cached());
        let is_time = |column: &usize| table.columns[*column].data_type == Type::Timestamp;
        let is_cut = condition.columns().iter().any(is_time);
        assert!(is_cut || files_of_json.iter().all(|file| files.contains(file)), "{sql:?} and {json:?}");
        for (index, file) in table.files.iter().enumerate() {
            let wanted = matches(file, &condition);
            assert!(wanted == 0 || files_of_json.contains(&(index as u32)), "dropped {file:#?}\nfor {sql:?}");
            let is_read = predicate.may_match_row_group(&file.as_row_group(&table.columns));
            assert!(wanted == 0 || is_read, "left a row group unread with {file:#?}\nfor {sql:?}");
        }
        check_certain(&table, &condition, &predicate, &files);
        check_limit(&table, &condition, &predicate, &files, choices.below(6) as u64);
    }
}

fn check_certain(table: &Table, condition: &Condition, predicate: &Predicate, files: &[u32]) {
    let certain =
        predicate.certain(&table.batch(), &StatsCache::cached(), files, &mut PartitionVerdicts::default());
    for (index, certain) in files.iter().zip(certain) {
        let file = &table.files[*index as usize];
        let all = file.rows.iter().all(|row| condition.truth(row) == Some(true));
        assert!(!certain || all, "not all rows of {file:#?}\nmatch {condition:?}");
    }
}

fn check_limit(table: &Table, condition: &Condition, predicate: &Predicate, files: &[u32], limit: u64) {
    let mut counter = Limit::new(Some(limit));
    let taken = counter.take(
        predicate,
        &table.batch(),
        &StatsCache::transient(),
        files.to_vec(),
        &mut PartitionVerdicts::default(),
    );
    assert!(files.starts_with(&taken));
    let found: usize = taken.iter().map(|index| matches(&table.files[*index as usize], condition)).sum();
    assert!(taken.len() == files.len() || found as u64 >= limit, "{found} records for a limit of {limit}");
    assert!(limit > 0 || taken.is_empty());
}

/// A number of times the usual cases.
pub(crate) fn cases(times: u32) -> ProptestConfig {
    let cases = times * ProptestConfig::default().cases;
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn no_file_with_a_match_is_dropped(numbers in prop::collection::vec(any::<u32>(), 500)) {
        check(&numbers);
    }
}
