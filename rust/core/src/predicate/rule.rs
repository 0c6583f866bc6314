//! Rules: conditions over partition columns that decide which files of a table a reader may know of.
//!
//! Takes SQL conditions, the properties of a recipient and the metadata of a version. Returns the files of a batch that
//! are inside of the rule. A [`Rule`] shares the parser and the sets of values with the hints of [`super`], and differs
//! in one respect: hints keep a file in doubt, a rule never decides in doubt.
//!
//! - A condition is refused unless partition values alone decide it, and exactly. Functions, arithmetic, data columns,
//!   columns of floating point numbers and constants that depend on a session's time zone are refused.
//! - A partition value that Spark may read differently, such as `1e2` for an integer, or a timestamp without a zone near
//!   a constant, is undecided. An undecided live file is an error of the whole answer: see [`Error::RuleRefused`].
//! - A file belongs to the rule if the condition is true. Null is not true, below NOT neither.
//! - The names of a condition are names of the latest version, and mean the same columns in every version: a column is
//!   known by its physical name. A version in which it is not a partition column, or has another type, is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use sha2::{Digest, Sha256};

use super::bind::{self, Binder, Bound, BoundColumn, Leaf, Set};
use super::eval::known_tuples;
use super::expression::{ColumnName, Expression, Literal, NumberKind, PatternRest};
use super::parse;
use super::parse::json::shown;
use super::plan::{HIVE_NULL, MAX_LEAVES, MAY, MUST, simplify, tuple_verdict};
use super::row_group;
use super::values::keys::{Coercion, KeyType, literal_spread, partition_spread};
use super::values::number::{Number, Spread};
use crate::actions::{Metadata, PartitionColumn, PartitionTuple, RowIndices};
use crate::checkpoint::RowGroupBounds;
use crate::civil_time;
use crate::hashing::SequenceDigest;
use crate::lock::lock;
use crate::schema::{Column, DataType, PrimitiveType, StructField, StructType};
use crate::{Error, Result};

/// The first part of the name of a property in a condition: `recipient.country`.
const RECIPIENT: &str = "recipient";
/// Number of metadata whose bound rules are kept, for each rule. Many tables may share a rule.
const MAX_BOUND: usize = 64;
/// Maximum bytes of all conditions of a rule.
const MAX_BYTES: usize = 64 << 10;

const INSIDE: u8 = MAY | MUST;
const OUTSIDE: u8 = 0;

/// Identifies a rule: a digest of its conditions and of the properties that they use.
pub type RuleKey = [u8; 32];

/// Conditions of which one has to be true, with the properties of a recipient in place of their names. Shared by threads.
#[derive(Debug)]
pub struct Rule {
    key: RuleKey,
    conditions: Vec<Expression>,
    bound: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    metadata: Weak<Metadata>,
    /// The metadata of the version whose names the conditions have.
    names: Weak<Metadata>,
    /// The caches of tables own it.
    rule: Weak<BoundRule>,
}

/// A rule with the metadata of the version whose names its conditions have.
#[derive(Debug, Clone)]
pub struct NamedRule {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The metadata of the latest version.
    pub names: Arc<Metadata>,
}

impl NamedRule {
    /// As [`Rule::bind_named`].
    pub fn bind(&self, metadata: &Arc<Metadata>) -> Result<Arc<BoundRule>> {
        self.rule.bind_named(metadata, &self.names)
    }
}

impl Rule {
    /// Parses conditions. Returns the reason if one is not SQL, names a property that `properties` lack, or contains
    /// anything that partition values cannot decide.
    pub fn parse(conditions: &[String], properties: &[(String, String)]) -> Result<Self, String> {
        if conditions.is_empty() {
            return Err("the rule has no condition".into());
        }
        if conditions.iter().map(String::len).sum::<usize>() > MAX_BYTES {
            return Err(format!("the conditions have more than {MAX_BYTES} bytes"));
        }
        let mut used = Vec::new();
        let mut parsed = Vec::with_capacity(conditions.len());
        for text in conditions {
            let expression = resolved(parse::sql::parse(text)?, properties, &mut used)?;
            check_form(&expression)?;
            parsed.push(expression);
        }
        used.sort();
        used.dedup();
        Ok(Self { key: key_of(conditions, &used), conditions: parsed, bound: Mutex::default() })
    }

    /// The key of the rule: equal for equal conditions and properties, and for no others.
    #[must_use]
    pub fn key(&self) -> RuleKey {
        self.key
    }

    /// Returns the conditions as SQL, with the properties in place of their names.
    #[must_use]
    pub fn text(&self) -> String {
        self.conditions.iter().map(|condition| format!("({condition})")).collect::<Vec<_>>().join(" OR ")
    }

    /// As [`Self::bind_named`], if it was bound before.
    #[must_use]
    pub fn known(&self, metadata: &Arc<Metadata>, names: &Arc<Metadata>) -> Option<Arc<BoundRule>> {
        // While the weak reference exists, no other metadata has its address.
        let is_same = |known: &Weak<Metadata>, wanted| std::ptr::eq(known.as_ptr(), Arc::as_ptr(wanted));
        let is_wanted = |known: &&Known| is_same(&known.metadata, metadata) && is_same(&known.names, names);
        lock(&self.bound).iter().find(is_wanted).and_then(|known| known.rule.upgrade())
    }

    /// Binds the rule to the partition columns of a version by its own names. Returns [`Error::RuleRefused`] if they do
    /// not decide it.
    pub fn bind(&self, metadata: &Arc<Metadata>) -> Result<Arc<BoundRule>> {
        self.bind_named(metadata, metadata)
    }

    /// Binds the rule to the partition columns of a version, by the names that they have in the version of `names`.
    /// Returns [`Error::RuleRefused`] if they do not decide it, or if a column is not the same in both.
    pub fn bind_named(&self, metadata: &Arc<Metadata>, names: &Arc<Metadata>) -> Result<Arc<BoundRule>> {
        if let Some(known) = self.known(metadata, names) {
            return Ok(known);
        }
        let bound = BoundRule::new(self, metadata, names).map_err(|detail| Error::RuleRefused { detail })?;
        let rule = Arc::new(bound);
        let mut bindings = lock(&self.bound);
        bindings.retain(|known| {
            known.rule.strong_count() > 0
                && known.metadata.strong_count() > 0
                && known.names.strong_count() > 0
        });
        if bindings.len() >= MAX_BOUND {
            bindings.remove(0);
        }
        let (metadata, names) = (Arc::downgrade(metadata), Arc::downgrade(names));
        bindings.push(Known { metadata, names, rule: Arc::downgrade(&rule) });
        Ok(rule)
    }
}

fn key_of(conditions: &[String], properties: &[(String, String)]) -> RuleKey {
    let mut digest = SequenceDigest::default();
    digest.add(conditions.len().to_string());
    let properties = properties.iter().flat_map(|(name, value)| [name, value]);
    conditions.iter().chain(properties).for_each(|text| digest.add(text));
    digest.finish()
}

/// Returns the name in `names` of a partition column of `schema`; empty if it is not there, or of another type.
fn name_of(column: &str, schema: &StructType, names: &StructType) -> String {
    let field = schema.fields.iter().find(|field| field.name == column).and_then(|field| {
        let is_same = |other: &&StructField| {
            other.physical_name == field.physical_name
                && other.data_type == field.data_type
                && other.binary_order == field.binary_order
        };
        names.fields.iter().find(is_same)
    });
    field.map(|field| field.name.clone()).unwrap_or_default()
}

fn bound_key(rule: RuleKey, columns: &[BoundColumn]) -> RuleKey {
    let mut digest = Sha256::new();
    digest.update(rule);
    for part in columns.iter().flat_map(|bound| &bound.column.physical) {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().into()
}

/// Replaces names of properties by their values, and adds those to `used`.
fn resolved(
    expression: Expression,
    properties: &[(String, String)],
    used: &mut Vec<(String, String)>,
) -> Result<Expression, String> {
    let mut all = |children: Vec<Expression>| -> Result<Vec<Expression>, String> {
        children.into_iter().map(|child| resolved(child, properties, used)).collect()
    };
    Ok(match expression {
        Expression::And(children) => Expression::And(all(children)?),
        Expression::Or(children) => Expression::Or(all(children)?),
        Expression::In(child, list) => {
            let list = all(list)?;
            Expression::In(Box::new(resolved(*child, properties, used)?), list)
        }
        Expression::Not(child) => Expression::Not(Box::new(resolved(*child, properties, used)?)),
        Expression::IsNull(child) => Expression::IsNull(Box::new(resolved(*child, properties, used)?)),
        Expression::Like(child, pattern) => {
            Expression::Like(Box::new(resolved(*child, properties, used)?), pattern)
        }
        Expression::Cast(child, to) => Expression::Cast(Box::new(resolved(*child, properties, used)?), to),
        Expression::Compare(comparison, left, right) => Expression::Compare(
            comparison,
            Box::new(resolved(*left, properties, used)?),
            Box::new(resolved(*right, properties, used)?),
        ),
        Expression::Column(ColumnName::Path(parts)) => match parts.as_slice() {
            [first, name] if first.eq_ignore_ascii_case(RECIPIENT) => {
                let property = properties.iter().find(|(known, _)| known == name);
                let (_, value) =
                    property.ok_or_else(|| format!("the recipient has no property {}", shown(name)))?;
                used.push((name.clone(), value.clone()));
                Expression::Literal(Literal::Text { text: value.clone(), other: None })
            }
            _ => Expression::Column(ColumnName::Path(parts)),
        },
        other => other,
    })
}

/// Returns the reason if a condition can be decided by partition values of no table.
fn check_form(expression: &Expression) -> Result<(), String> {
    match expression {
        Expression::And(children) | Expression::Or(children) => children.iter().try_for_each(check_form),
        Expression::Not(child) => check_form(child),
        Expression::Literal(Literal::Boolean(_)) => Ok(()),
        Expression::Column(_) => check_column(expression),
        Expression::Compare(_, left, right) => match (&**left, &**right) {
            (column @ Expression::Column(_), constant) | (constant, column @ Expression::Column(_)) => {
                check_column(column)?;
                check_constant(constant)
            }
            (left, right) => {
                check_constant(left)?;
                check_constant(right)?;
                Err("two constants are compared; one side has to be a partition column".into())
            }
        },
        Expression::IsNull(child) => check_column(child),
        Expression::In(child, list) => {
            check_column(child)?;
            list.iter().try_for_each(check_constant)
        }
        Expression::Like(child, pattern) => {
            if pattern.rest == PatternRest::Something {
                return Err("a LIKE pattern has a wildcard before its end".into());
            }
            check_column(child)
        }
        Expression::Undecidable(reason) => Err(format!("{reason} cannot be part of a rule")),
        Expression::Literal(_) | Expression::Cast(..) => {
            Err("an operand stands where a condition belongs".into())
        }
    }
}

fn check_column(expression: &Expression) -> Result<(), String> {
    match expression {
        Expression::Column(ColumnName::Path(parts)) if parts.len() == 1 => Ok(()),
        Expression::Column(name) => {
            let name = name.to_string().replace('`', "");
            Err(format!("{} is neither a partition column nor recipient.NAME", shown(&name)))
        }
        Expression::Undecidable(reason) => Err(format!("{reason} cannot be part of a rule")),
        _ => Err("a comparison, IN, LIKE or IS NULL does not start with a column".into()),
    }
}

fn check_constant(expression: &Expression) -> Result<(), String> {
    match expression {
        Expression::Literal(Literal::Text { other: Some(_), .. }) => {
            Err("a doubled quote in a text has several meanings; write \\'".into())
        }
        Expression::Literal(_) => Ok(()),
        Expression::Cast(child, _) if matches!(**child, Expression::Literal(_)) => check_constant(child),
        Expression::Column(_) => Err("two columns are compared with each other".into()),
        Expression::Undecidable(reason) => Err(format!("{reason} cannot be part of a rule")),
        _ => Err("a column is compared with more than a constant".into()),
    }
}

/// A rule bound to the partition columns of a table. Immutable, shared by threads.
#[derive(Debug)]
pub struct BoundRule {
    key: RuleKey,
    columns: Vec<BoundColumn>,
    bound: Bound,
    /// Its number in the cache of a table; 0 before the first.
    kept: AtomicU64,
}

/// The verdicts of one rule on the distinct partition tuples of one pass over files.
#[derive(Debug, Default)]
pub struct RuleVerdicts {
    dictionary: Option<Arc<Vec<Arc<PartitionTuple>>>>,
    verdicts: Vec<u8>,
}

impl BoundRule {
    fn new(rule: &Rule, metadata: &Arc<Metadata>, names: &Arc<Metadata>) -> Result<Self, String> {
        let schema = StructType::of(names).map_err(|error| error.to_string())?;
        if Arc::ptr_eq(metadata, names) {
            return Self::of_columns(rule, &schema, &metadata.partition_columns);
        }
        let of_version = StructType::of(metadata).map_err(|error| error.to_string())?;
        let columns = metadata.partition_columns.iter().map(|column| name_of(column, &of_version, &schema));
        let bound = Self::of_columns(rule, &schema, &columns.collect::<Vec<_>>());
        bound.map_err(|reason| format!("{reason}, or not the same one, in this version"))
    }

    /// Binds the rule to the columns of `schema`. `partition_columns` have the order of a version.
    fn of_columns(rule: &Rule, schema: &StructType, partition_columns: &[String]) -> Result<Self, String> {
        let mut binder = Binder::new(schema, partition_columns);
        binder.is_ansi = true;
        let mut bound = Vec::with_capacity(rule.conditions.len());
        for condition in &rule.conditions {
            check_types(condition, schema, partition_columns)?;
            bound.push(binder.bind(condition, false));
            if let Some(reason) = binder.reasons.first() {
                return Err(reason.clone());
            }
        }
        // Hints find partition columns without case, and the first of several.
        let is_found = |BoundColumn { column, partition, .. }: &BoundColumn| {
            let position = partition.and_then(|position| partition_columns.get(position));
            position.is_some_and(|name| column.logical.first() == Some(name))
        };
        if !binder.columns.iter().all(is_found) {
            return Err("several partition columns differ in case alone".into());
        }
        let bound = Bound::Or(bound);
        let mut leaves = 0;
        check_exact(&bound, &mut leaves)?;
        if leaves > MAX_LEAVES {
            return Err(format!("the rule has more than {MAX_LEAVES} comparisons"));
        }
        Ok(Self {
            key: bound_key(rule.key, &binder.columns),
            columns: binder.columns,
            bound: simplify(bound),
            kept: AtomicU64::new(0),
        })
    }

    /// The number that [`Self::set_kept`] set last, and 0 before.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    pub(crate) fn set_kept(&self, number: u64) {
        self.kept.store(number, Ordering::Relaxed);
    }

    /// Returns the memory in bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names =
            self.columns.iter().flat_map(|bound| bound.column.logical.iter().chain(&bound.column.physical));
        size_of::<Self>()
            + self.columns.len() * size_of::<BoundColumn>()
            + names.map(|name| size_of::<String>() + name.len()).sum::<usize>()
            + self.bound.memory_bytes()
    }

    /// A digest of [`Rule::key`] and of the columns that it is bound to.
    #[must_use]
    pub fn key(&self) -> RuleKey {
        self.key
    }

    /// Returns whether a file with these partition values may be inside of the rule: it is, or it is undecided.
    #[must_use]
    pub fn may_keep(&self, tuple: &PartitionTuple) -> bool {
        self.verdict(tuple) != OUTSIDE
    }

    /// Returns whether a file within these bounds may be inside of the rule.
    #[must_use]
    pub fn may_match_row_group(&self, bounds: &RowGroupBounds) -> bool {
        row_group::bound_may_match(&self.bound, &self.columns, bounds)
    }

    /// Returns the `rows` inside of the rule, or [`Error::RuleRefused`] if the rule is undecided for one of them.
    pub fn select(
        &self,
        partitions: &PartitionColumn,
        mut rows: RowIndices,
        known: &mut RuleVerdicts,
    ) -> Result<RowIndices> {
        match self.bound {
            Bound::Always => return Ok(rows),
            Bound::Never => return Ok(RowIndices::new()),
            _ => {}
        }
        self.learn(&partitions.dictionary, known);
        let mut undecided = false;
        rows.retain(|row| {
            let key = partitions.keys.get(*row as usize).map(|key| *key as usize);
            let verdict = key.and_then(|key| known.verdicts.get(key)).copied().unwrap_or(MAY);
            undecided |= verdict == MAY;
            verdict == INSIDE
        });
        if undecided { Err(self.undecided()) } else { Ok(rows) }
    }

    fn undecided(&self) -> Error {
        let columns: Vec<String> =
            self.columns.iter().map(|column| shown(&column.column.logical.join("."))).collect();
        let detail = format!("a file has a value of {} that does not decide the rule", columns.join(", "));
        Error::RuleRefused { detail }
    }

    fn learn(&self, dictionary: &Arc<Vec<Arc<PartitionTuple>>>, known: &mut RuleVerdicts) {
        let Some(same) = known_tuples(known.dictionary.as_ref(), dictionary) else { return };
        known.verdicts.truncate(same);
        let new = dictionary.get(same..).unwrap_or_default();
        known.verdicts.extend(new.iter().map(|tuple| self.verdict(tuple)));
        known.dictionary = Some(Arc::clone(dictionary));
    }

    fn verdict(&self, tuple: &PartitionTuple) -> u8 {
        tuple_verdict(&self.bound, tuple, &self.columns, value_verdict)
    }
}

/// Returns [`INSIDE`], [`OUTSIDE`] or [`MAY`] for a value that does not decide the leaf.
fn value_verdict(leaf: &Leaf, column: &BoundColumn, value: Option<&str>) -> u8 {
    let exact = |inside: bool| if inside { INSIDE } else { OUTSIDE };
    // The empty string is null for every type (PROTOCOL, section Partition Value Serialization).
    let Some(value) = value.filter(|value| !value.is_empty()) else { return exact(leaf.nulls) };
    let of_value = match &leaf.set {
        Set::Text(ranges) => exact(ranges.contains_text(value.as_bytes())),
        // A leaf on such a column only tests for null.
        Set::Keys(ranges) if column.key_type == KeyType::Opaque => exact(ranges.from_start),
        Set::Keys(_) if value == HIVE_NULL => return exact(leaf.nulls),
        Set::Keys(ranges) => match exact_spread(column, value) {
            Some(spread) => {
                let (some, all) =
                    (ranges.intersects(&spread.low, &spread.high), ranges.covers(&spread.low, &spread.high));
                u8::from(some) * MAY + u8::from(some && all) * MUST
            }
            None => MAY,
        },
    };
    // A text of this name is null for some readers.
    if value == HIVE_NULL && of_value != exact(leaf.nulls) { MAY } else { of_value }
}

/// Returns the key of a partition value in a form that every reader takes for the same value; `None` for other forms.
/// Only a timestamp without a zone has more than one key.
fn exact_spread(column: &BoundColumn, text: &str) -> Option<Spread> {
    let DataType::Primitive(primitive) = column.column.data_type else { return None };
    if text.trim() != text {
        return None;
    }
    if let Some(greatest) = bind::greatest(primitive) {
        let value = text.parse::<i64>().ok()?;
        return (-greatest - 1..=greatest).contains(&value).then(|| Spread::exact(i128::from(value)));
    }
    match primitive {
        PrimitiveType::Decimal { precision, scale } => {
            let spread = Number::parse(text)?.scaled(i32::from(scale));
            let limit = 10_i128.checked_pow(u32::from(precision))?;
            (spread.low == spread.high && spread.low.abs() < limit).then_some(spread)
        }
        PrimitiveType::Timestamp | PrimitiveType::TimestampNtz if civil_time::parse(text)?.rounded => None,
        _ => partition_spread(column.key_type, text),
    }
}

/// Returns the reason if the types of a table's columns do not decide a condition exactly.
fn check_types(
    expression: &Expression,
    schema: &StructType,
    partition_columns: &[String],
) -> Result<(), String> {
    let column = |name: &Expression| partition_column(name, schema, partition_columns);
    match expression {
        Expression::And(children) | Expression::Or(children) => {
            children.iter().try_for_each(|child| check_types(child, schema, partition_columns))
        }
        Expression::Not(child) => check_types(child, schema, partition_columns),
        Expression::Compare(_, left, right) => match (&**left, &**right) {
            (name @ Expression::Column(_), constant) | (constant, name @ Expression::Column(_)) => {
                check_pair(&column(name)?, constant)
            }
            _ => Ok(()),
        },
        Expression::IsNull(name) | Expression::Like(name, _) => column(name).map(|_| ()),
        Expression::Column(_) => column(expression).map(|_| ()),
        Expression::In(name, list) => {
            let column = column(name)?;
            list.iter().try_for_each(|constant| check_pair(&column, constant))
        }
        _ => Ok(()),
    }
}

fn partition_column(
    name: &Expression,
    schema: &StructType,
    partition_columns: &[String],
) -> Result<Column, String> {
    let Expression::Column(ColumnName::Path(parts)) = name else {
        return Err("a comparison does not start with a column".into());
    };
    let column =
        schema.resolve(parts).map_err(|_| format!("no one column is named {}", shown(&parts.join("."))))?;
    // The log's partition values are keyed by exactly this name, or by its physical name.
    if column.logical.len() != 1 || !partition_columns.contains(&column.logical[0]) {
        return Err(format!("column {} is no partition column", shown(&column.logical.join("."))));
    }
    Ok(column)
}

/// Returns the reason if the comparison of a column with a constant has more than one meaning.
fn check_pair(column: &Column, constant: &Expression) -> Result<(), String> {
    let key_type = KeyType::of(column);
    let name = || shown(&column.logical.join("."));
    let literal = match constant {
        Expression::Literal(literal) => literal.clone(),
        // The binder checks and converts it.
        Expression::Cast(child, to) => match &**child {
            Expression::Literal(literal) => bind::cast(literal, *to).ok_or("a cast changes its constant")?,
            _ => return Err("a cast of more than a constant".into()),
        },
        _ => return Err("a column is compared with more than a constant".into()),
    };
    let is_exact = match (key_type, &literal) {
        (_, Literal::Null)
        | (KeyType::Text, Literal::Text { other: None, .. })
        | (KeyType::Boolean, Literal::Boolean(_))
        | (KeyType::Integer, Literal::Number(..)) => true,
        (KeyType::Boolean, Literal::Text { text, .. }) => matches!(text.as_str(), "true" | "false"),
        (KeyType::Integer, Literal::Text { text, .. }) => text.parse::<i64>().is_ok(),
        (KeyType::Decimal { .. }, Literal::Number(_, NumberKind::Exact)) => {
            literal_spread(key_type, &literal, Coercion::NONE).is_some_and(|spread| spread.low == spread.high)
        }
        (KeyType::Date, Literal::Date(text) | Literal::Text { text, .. }) => {
            is_trimmed(text) && civil_time::parse(text).is_some_and(|moment| !moment.timed)
        }
        (KeyType::Timestamp, Literal::Timestamp(text) | Literal::Text { text, .. }) => {
            is_trimmed(text) && civil_time::parse(text).is_some_and(|moment| moment.zoned && !moment.rounded)
        }
        (
            KeyType::TimestampNtz,
            Literal::TimestampNtz(text) | Literal::Date(text) | Literal::Text { text, .. },
        ) => {
            is_trimmed(text) && civil_time::parse(text).is_some_and(|moment| !moment.zoned && !moment.rounded)
        }
        (KeyType::Float | KeyType::Double { .. }, _) => {
            return Err(format!("column {} has floating point numbers, which decide no rule", name()));
        }
        _ => false,
    };
    if is_exact {
        return Ok(());
    }
    let hint = if key_type == KeyType::Timestamp { "; it needs a time with its zone, such as Z" } else { "" };
    Err(format!("the constant cannot be compared exactly with column {}{hint}", name()))
}

fn is_trimmed(text: &str) -> bool {
    text.trim() == text
}

/// Returns the reason if a part of a bound rule is not exact.
fn check_exact(bound: &Bound, leaves: &mut usize) -> Result<(), String> {
    match bound {
        Bound::Always | Bound::Never => Ok(()),
        Bound::Undecided => Err("partition values do not decide the rule".into()),
        Bound::Leaf(leaf) => {
            *leaves += 1;
            if leaf.exact { Ok(()) } else { Err("a comparison of the rule is not exact".into()) }
        }
        Bound::And(children) | Bound::Or(children) => {
            children.iter().try_for_each(|child| check_exact(child, leaves))
        }
    }
}
