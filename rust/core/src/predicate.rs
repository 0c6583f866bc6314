//! Predicates that prune files, and never a file with a matching row.
//!
//! Takes the hints of a query, SQL and JSON, and the table's schema. Returns the files of a batch that may hold a match.
//! Both kinds of hints become one tree. An undecidable part keeps its files, the rest still prunes, and a [`HintProblem`]
//! has the reason. Partition values are evaluated once per distinct tuple, statistics as typed columns of a
//! [`StatsCache`].
//!
//! Rules that are not obvious, all on the safe side:
//! - A row matches if the predicate is true; null does not match, below NOT neither.
//! - NaN is greater than all numbers, as in Spark, and many writers omit it from bounds. A finite maximum therefore does
//!   not exclude `x > 10` on a float column; `x > 10 AND x < 20` excludes NaN.
//! - A timestamp without a zone may be in any zone, in a partition value and in a constant: a client compares it in the
//!   zone of its session, which no hint contains. Only a constant with a zone prunes exactly.
//! - Bounds of timestamps are truncated to milliseconds, those of strings to 32 characters, and decimals may have been
//!   converted to doubles: each is widened accordingly.
//!
//! ```
//! use deltalog::predicate::{Hints, Predicate};
//! use deltalog::actions::Metadata;
//!
//! let metadata = Metadata {
//!     schema_string: Some(
//!         r#"{"type":"struct","fields":[{"name":"day","type":"date","nullable":true,"metadata":{}}]}"#.to_owned(),
//!     ),
//!     partition_columns: vec!["day".to_owned()],
//!     ..Metadata::default()
//! };
//! let hints = Hints { sql: vec!["day >= '2024-01-01'".to_owned(), "day ~ 1".to_owned()], json: None };
//! let (predicate, problems) = Predicate::of_table(&metadata, &hints);
//! assert!(!predicate.is_trivial());
//! assert_eq!(problems.len(), 1, "the second hint is not SQL, and prunes nothing");
//! ```

mod bind;
mod eval;
mod expression;
mod limit;
mod parse;
mod plan;
mod row_group;
mod rule;
mod stats;
mod values;

pub use eval::PartitionVerdicts;
pub use limit::Limit;
pub use rule::{BoundRule, NamedRule, Rule, RuleKey, RuleVerdicts};
pub use stats::{StatsBudget, StatsCache};

use arrow_array::StringViewArray;

use bind::{Binder, Bound, BoundColumn};
use expression::Expression;
use plan::{MAY, MUST, Plan};
use values::keys::KeyType;

use crate::actions::{FileBatch, Metadata, PartitionTuple, RowIndices};
use crate::hashing::SequenceDigest;
use crate::schema::StructType;

/// The hints of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// `predicateHints`: a conjunction of SQL conditions.
    pub sql: Vec<String>,
    /// `jsonPredicateHints`: one tree as JSON, in conjunction with the SQL conditions.
    pub json: Option<String>,
}

/// A hint that is ignored in whole or part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintProblem {
    /// The hint: `predicateHints[0]` or `jsonPredicateHints`.
    pub hint: String,
    /// The reason, in short printable ASCII.
    pub reason: String,
}

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 32;

impl Hints {
    /// A digest of the hints as they were sent.
    fn key(&self) -> PredicateKey {
        let mut digest = SequenceDigest::default();
        digest.add(self.sql.len().to_string());
        self.sql.iter().chain(&self.json).for_each(|text| digest.add(text));
        digest.finish()
    }
}

/// Identifies the hints of a predicate: a digest of them. Of predicates of one metadata, those with the same key select
/// the same files.
pub type PredicateKey = [u8; 32];

/// The kind of values that decide a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The condition is constant.
    Constant,
    /// Partition values.
    Partition,
    /// Statistics.
    Statistics,
    /// Partition values and statistics.
    Both,
    /// None: the condition prunes no file.
    Undecidable,
}

/// One condition of a conjunction.
#[derive(Debug, Clone)]
pub struct Conjunct {
    /// The condition as SQL.
    pub text: String,
    /// The columns of the condition, with their types: `id long`.
    pub columns: Vec<String>,
    /// The values that decide it.
    pub scope: Scope,
    plan: Plan,
}

/// The number of files that a predicate evaluated and dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneCounts {
    /// Evaluated files.
    pub considered: u64,
    /// Files dropped by their partition values.
    pub by_partition: u64,
    /// Files dropped by their statistics.
    pub by_stats: u64,
}

/// The hints of a query, bound to a table's schema. Immutable, shared by threads.
#[derive(Debug, Clone)]
pub struct Predicate {
    columns: Vec<BoundColumn>,
    whole: Plan,
    key: PredicateKey,
}

impl Predicate {
    /// Returns a predicate that keeps every file.
    #[must_use]
    pub fn keep_all() -> Self {
        Self { columns: Vec::new(), whole: Plan::new(Bound::Always, &[]), key: PredicateKey::default() }
    }

    /// Binds hints to the columns of a table. An unusable hint is a problem and prunes nothing.
    #[must_use]
    pub fn of_table(metadata: &Metadata, hints: &Hints) -> (Self, Vec<HintProblem>) {
        if hints.sql.is_empty() && hints.json.is_none() {
            return (Self::keep_all(), Vec::new());
        }
        // Without a schema nothing can be bound; the answer's header says what is wrong.
        let schema = StructType::of(metadata).unwrap_or_default();
        Self::bind(hints, &schema, &metadata.partition_columns)
    }

    /// Returns the predicate for an answer in the parquet format, whose timestamps among partition values have no zone. A
    /// client reads them in the zone of its session, and means what it reads.
    #[must_use]
    pub fn on_local_partition_times(mut self) -> Self {
        for column in &mut self.columns {
            column.is_read_in_any_zone = column.partition.is_some() && column.key_type == KeyType::Timestamp;
        }
        // Once, however many columns there are: two changes of a bit are none.
        self.key[0] ^= u8::from(self.columns.iter().any(|column| column.is_read_in_any_zone));
        self
    }

    /// Binds hints to columns. Never fails: an unusable hint is a problem and keeps all files.
    #[must_use]
    pub fn bind(
        hints: &Hints,
        schema: &StructType,
        partition_columns: &[String],
    ) -> (Self, Vec<HintProblem>) {
        Self::of(BoundHints::new(hints, schema, partition_columns), hints)
    }

    /// Binds hints, and each of their conditions by itself, in their order. A body of hints may have a hundred thousand
    /// conditions: no query makes their plans.
    #[must_use]
    pub fn explained(
        hints: &Hints,
        schema: &StructType,
        partition_columns: &[String],
    ) -> (Self, Vec<HintProblem>, Vec<Conjunct>) {
        let bound = BoundHints::new(hints, schema, partition_columns);
        let conjuncts = bound.conjuncts();
        let (predicate, problems) = Self::of(bound, hints);
        (predicate, problems, conjuncts)
    }

    fn of(bound: BoundHints, hints: &Hints) -> (Self, Vec<HintProblem>) {
        let BoundHints { columns, conditions, mut problems } = bound;
        let whole = Bound::And(conditions.into_iter().map(|(_, bound)| bound).collect());
        let whole = Plan::new(whole, &columns);
        if whole.is_capped {
            let reason = format!("of more than {} conditions the last prune nothing", plan::MAX_LEAVES);
            problems.push(HintProblem { hint: "all hints".into(), reason });
        }
        problems.truncate(MAX_PROBLEMS);
        (Self { columns, whole, key: hints.key() }, problems)
    }

    /// The key of the hints.
    #[must_use]
    pub fn key(&self) -> PredicateKey {
        self.key
    }

    /// Returns whether every file is kept.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        matches!(self.whole.root, plan::Node::Constant(verdict) if verdict & MAY != 0)
    }

    /// Returns whether both, of the same hints, are bound to the same columns.
    pub(crate) fn has_columns_of(&self, other: &Self) -> bool {
        self.columns.iter().map(|bound| &bound.column).eq(other.columns.iter().map(|bound| &bound.column))
    }

    /// Returns whether the predicate needs [`FileBatch::stats`].
    #[must_use]
    pub fn needs_stats(&self) -> bool {
        !self.whole.stats_columns().is_empty()
    }

    /// Returns whether partition values alone may drop a file, so that [`Self::keep_tuple`] is useful.
    #[must_use]
    pub fn asks_partitions(&self) -> bool {
        self.whole.gate().is_some()
    }

    /// Returns whether a file with these partition values may hold a match.
    #[must_use]
    pub fn keep_tuple(&self, tuple: &PartitionTuple) -> bool {
        let verdict = |slot: usize| {
            plan::tuple_verdict(&self.whole.slots[slot], tuple, &self.columns, plan::value_verdict)
        };
        self.whole.gate().is_none_or(|slot| verdict(slot) & MAY != 0)
    }

    /// Returns whether statistics decide without partition values, so that [`Self::keep_stats`] is useful.
    #[must_use]
    pub fn asks_statistics_alone(&self) -> bool {
        self.whole.slots.is_empty() && self.needs_stats()
    }

    /// Returns the positions of the files that may hold a match, given the statistics of some files.
    #[must_use]
    pub fn keep_stats(&self, stats: StringViewArray) -> RowIndices {
        let batch = FileBatch::of_stats(stats);
        let rows = (0..batch.len() as u32).collect();
        let (mut partitions, mut counts) = (PartitionVerdicts::default(), PruneCounts::default());
        self.select(&batch, &StatsCache::transient(), rows, &mut partitions, &mut counts)
    }

    /// Builds the statistics of all files that [`Self::select`] needs. Returns false if they exist.
    #[must_use]
    pub fn prepare(&self, batch: &FileBatch, stats: &StatsCache) -> bool {
        let requested = self.whole.stats_columns();
        let wanted: Vec<&BoundColumn> = requested.iter().map(|&index| &self.columns[index]).collect();
        stats.prepare(batch, &wanted)
    }

    /// Returns the `candidates` that may hold a match.
    #[must_use]
    pub fn select(
        &self,
        batch: &FileBatch,
        stats: &StatsCache,
        candidates: RowIndices,
        partitions: &mut PartitionVerdicts,
        counts: &mut PruneCounts,
    ) -> RowIndices {
        counts.considered += candidates.len() as u64;
        select(&self.whole, &self.columns, batch, stats, candidates, partitions, counts)
    }

    /// Returns for each of `rows` whether all records of the file match for certain.
    #[must_use]
    pub fn certain(
        &self,
        batch: &FileBatch,
        stats: &StatsCache,
        rows: &[u32],
        partitions: &mut PartitionVerdicts,
    ) -> Vec<bool> {
        if let plan::Node::Constant(verdict) = self.whole.root {
            return vec![verdict & MUST != 0; rows.len()];
        }
        partitions.learn(&self.whole, &self.columns, &batch.partitions.dictionary);
        let verdicts = eval::verdicts(&self.whole, &self.columns, batch, stats, rows, partitions);
        verdicts.into_iter().map(|verdict| verdict & MUST != 0).collect()
    }

    /// Returns the `rows` that the condition alone keeps. `partitions` caches verdicts for the next batch, by
    /// condition.
    #[must_use]
    pub fn kept_by(
        &self,
        conjunct: &Conjunct,
        batch: &FileBatch,
        stats: &StatsCache,
        rows: &[u32],
        partitions: &mut PartitionVerdicts,
    ) -> RowIndices {
        let mut counts = PruneCounts::default();
        select(&conjunct.plan, &self.columns, batch, stats, rows.to_vec(), partitions, &mut counts)
    }
}

fn select(
    plan: &Plan,
    columns: &[BoundColumn],
    batch: &FileBatch,
    stats: &StatsCache,
    mut rows: RowIndices,
    partitions: &mut PartitionVerdicts,
    counts: &mut PruneCounts,
) -> RowIndices {
    let before = rows.len();
    match plan.root {
        plan::Node::Constant(verdict) if verdict & MAY != 0 => return rows,
        plan::Node::Constant(_) => {
            counts.by_stats += before as u64;
            return RowIndices::new();
        }
        _ => {}
    }
    if !plan.slots.is_empty() {
        partitions.learn(plan, columns, &batch.partitions.dictionary);
    }
    if let Some(gate) = plan.gate() {
        rows = partitions.gate(gate, &batch.partitions.keys, &rows);
        counts.by_partition += (before - rows.len()) as u64;
    }
    if matches!(plan.root, plan::Node::Slot(_)) || rows.is_empty() {
        return rows;
    }
    let verdicts = eval::verdicts(plan, columns, batch, stats, &rows, partitions);
    let gated = rows.len();
    let mut verdicts = verdicts.into_iter();
    rows.retain(|_| verdicts.next().is_none_or(|verdict| verdict & MAY != 0));
    counts.by_stats += (gated - rows.len()) as u64;
    rows
}

fn parse(hints: &Hints) -> Vec<(String, Result<Expression, String>)> {
    let json = hints.json.iter().map(|text| ("jsonPredicateHints".to_owned(), parse::json::parse(text)));
    let sql = hints.sql.iter().enumerate();
    sql.map(|(index, text)| (format!("predicateHints[{index}]"), parse::sql::parse(text)))
        .chain(json)
        .collect()
}

/// Hints whose conditions are bound to columns.
struct BoundHints {
    columns: Vec<BoundColumn>,
    /// Without an expression for a hint that cannot be parsed.
    conditions: Vec<(Option<Expression>, Bound)>,
    problems: Vec<HintProblem>,
}

impl BoundHints {
    fn new(hints: &Hints, schema: &StructType, partition_columns: &[String]) -> Self {
        let mut binder = Binder::new(schema, partition_columns);
        let (mut conditions, mut problems) = (Vec::new(), Vec::new());
        for (hint, parsed) in parse(hints) {
            let problem = |reason| HintProblem { hint: hint.clone(), reason };
            match parsed {
                Ok(expression) => {
                    for conjunct in expression.into_conjuncts() {
                        let bound = binder.bind(&conjunct, false);
                        conditions.push((Some(conjunct), bound));
                    }
                    problems.extend(std::mem::take(&mut binder.reasons).into_iter().map(problem));
                }
                Err(reason) => {
                    conditions.push((None, Bound::Undecided));
                    problems.push(problem(reason));
                }
            }
        }
        Self { columns: binder.columns, conditions, problems }
    }

    fn conjuncts(&self) -> Vec<Conjunct> {
        let conjunct = |(expression, bound): &(Option<Expression>, Bound)| {
            expression.as_ref().map(|found| Conjunct::new(found.to_string(), bound.clone(), &self.columns))
        };
        self.conditions.iter().filter_map(conjunct).collect()
    }
}

impl Conjunct {
    fn new(text: String, bound: Bound, columns: &[BoundColumn]) -> Self {
        let mut used = Vec::new();
        collect_columns(&bound, &mut used);
        let plan = Plan::new(bound, columns);
        let described = |index: &usize| {
            let BoundColumn { column, .. } = &columns[*index];
            format!("{} {}", column.logical.join("."), type_name(&column.data_type))
        };
        let scope = scope(&plan);
        Self { text, columns: used.iter().map(described).collect(), scope, plan }
    }
}

fn scope(plan: &Plan) -> Scope {
    let stats = !plan.stats_columns().is_empty();
    match (&plan.root, plan.slots.is_empty(), stats) {
        (plan::Node::Constant(MAY), ..) => Scope::Undecidable,
        (plan::Node::Constant(_), ..) => Scope::Constant,
        (_, false, true) => Scope::Both,
        (_, false, false) => Scope::Partition,
        (_, true, _) => Scope::Statistics,
    }
}

fn collect_columns(bound: &Bound, into: &mut Vec<usize>) {
    match bound {
        Bound::Leaf(leaf) if !into.contains(&leaf.column) => into.push(leaf.column),
        Bound::And(children) | Bound::Or(children) => {
            for child in children {
                collect_columns(child, into);
            }
        }
        _ => {}
    }
}

fn type_name(data_type: &crate::schema::DataType) -> String {
    use crate::schema::DataType;
    match data_type {
        DataType::Primitive(primitive) => primitive.to_string(),
        DataType::Struct(_) => "struct".into(),
        DataType::Array(_) => "array".into(),
        DataType::Map(_) => "map".into(),
        DataType::Unknown(name) => name.clone(),
    }
}
