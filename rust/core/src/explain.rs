//! Explains the result of a query: the number of files that each condition drops alone, with examples.

use std::sync::Arc;

use crate::Result;
use crate::predicate::{BoundRule, HintProblem, Hints, PartitionVerdicts, Predicate, PruneCounts, Scope};
use crate::scan::{Scan, ScanOptions, Selected};
use crate::schema::StructType;
use crate::snapshot::Snapshot;

/// Maximum number of example paths.
const EXAMPLES: usize = 3;

/// One condition of a conjunction.
#[derive(Debug, Clone)]
pub struct ExplainedConjunct {
    /// The condition as SQL.
    pub text: String,
    /// The columns of the condition, with their types.
    pub columns: Vec<String>,
    /// The values that decide it.
    pub scope: Scope,
    /// Number of files that the condition alone drops.
    pub drops: u64,
    /// Examples of them, by their paths in the log.
    pub dropped_examples: Vec<String>,
}

/// The effect of conditions on the files of a version.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// Number of live files.
    pub considered: u64,
    /// Number of files that all conditions keep.
    pub kept: u64,
    /// The conditions.
    pub conjuncts: Vec<ExplainedConjunct>,
    /// Hints that are ignored in whole or part.
    pub problems: Vec<HintProblem>,
}

/// Evaluates the conditions on every live file of the version that is within the rule.
pub fn explain(snapshot: &Arc<Snapshot>, hints: &Hints, rule: Option<Arc<BoundRule>>) -> Result<Explanation> {
    let metadata = snapshot.metadata();
    let schema = StructType::of(metadata).unwrap_or_default();
    let (predicate, problems, conjuncts) = Predicate::explained(hints, &schema, &metadata.partition_columns);
    let described = conjuncts.iter().map(|conjunct| ExplainedConjunct {
        text: conjunct.text.clone(),
        columns: conjunct.columns.clone(),
        scope: conjunct.scope,
        drops: 0,
        dropped_examples: Vec::new(),
    });
    let mut explanation = Explanation { problems, conjuncts: described.collect(), ..Explanation::default() };
    let mut scan = Scan::new(Arc::clone(snapshot), None, ScanOptions { rule, ..ScanOptions::everything() })?;
    // Verdicts are remembered by plan, so each condition has its own.
    let mut verdicts: Vec<PartitionVerdicts> = Vec::new();
    verdicts.resize_with(explanation.conjuncts.len() + 1, PartitionVerdicts::default);
    while let Some(Selected { batch, rows }) = scan.next_files()? {
        explanation.considered += rows.len() as u64;
        let path = |row: &u32| batch.files.path.value(*row as usize).to_owned();
        let mut counts = PruneCounts::default();
        let kept = predicate.select(&batch.files, &batch.stats, rows.clone(), &mut verdicts[0], &mut counts);
        explanation.kept += kept.len() as u64;
        let described = explanation.conjuncts.iter_mut().zip(&conjuncts);
        for ((explained, conjunct), verdicts) in described.zip(&mut verdicts[1..]) {
            let kept = predicate.kept_by(conjunct, &batch.files, &batch.stats, &rows, verdicts);
            explained.drops += (rows.len() - kept.len()) as u64;
            let dropped = rows.iter().filter(|row| kept.binary_search(row).is_err());
            add_examples(&mut explained.dropped_examples, dropped.map(path));
        }
    }
    Ok(explanation)
}

fn add_examples(examples: &mut Vec<String>, paths: impl Iterator<Item = String>) {
    let free = EXAMPLES - examples.len();
    examples.extend(paths.take(free));
}
