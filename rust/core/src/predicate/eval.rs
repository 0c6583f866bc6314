//! Evaluates a plan on the files of a batch: one verdict byte per file, branch-free loops on typed columns.

use std::sync::Arc;

use super::bind::{BoundColumn, Leaf, Set};
use super::plan::{MAY, MUST, Node, Plan, tuple_verdict, value_verdict};
use super::stats::{Bounds, Columns, NULLS, StatsCache, StatsColumn, VALUES};
use super::values::keys::{NAN_KEY, narrow};
use super::values::ranges::{Ranges, TextHeads};
use crate::actions::{FileBatch, PartitionTuple};

/// Returns how many tuples a dictionary begins with that the one before has, `None` if it is the same.
pub(super) fn known_tuples(
    before: Option<&Arc<Vec<Arc<PartitionTuple>>>>,
    dictionary: &Arc<Vec<Arc<PartitionTuple>>>,
) -> Option<usize> {
    let Some(before) = before else { return Some(0) };
    let known = || before.iter().zip(&**dictionary).take_while(|(old, new)| Arc::ptr_eq(old, new));
    (!Arc::ptr_eq(before, dictionary)).then(|| known().count())
}

/// The verdicts of one predicate on the distinct partition tuples of one pass over the files.
#[derive(Debug, Default)]
pub struct PartitionVerdicts {
    dictionary: Option<Arc<Vec<Arc<PartitionTuple>>>>,
    slots: Vec<Vec<u8>>,
}

impl PartitionVerdicts {
    /// Adds the verdicts on the new tuples of `dictionary`, which is often the previous one or an extension of it.
    pub(crate) fn learn(
        &mut self,
        plan: &Plan,
        columns: &[BoundColumn],
        dictionary: &Arc<Vec<Arc<PartitionTuple>>>,
    ) {
        let before = self.dictionary.as_ref().filter(|_| self.slots.len() == plan.slots.len());
        let Some(known) = known_tuples(before, dictionary) else { return };
        self.slots.resize(plan.slots.len(), Vec::new());
        for (verdicts, bound) in self.slots.iter_mut().zip(&plan.slots) {
            verdicts.truncate(known);
            let new = dictionary.get(known..).unwrap_or_default();
            verdicts.extend(new.iter().map(|tuple| tuple_verdict(bound, tuple, columns, value_verdict)));
        }
        self.dictionary = Some(Arc::clone(dictionary));
    }

    /// Returns the verdict of a slot on the tuple with this key; a key out of range may match.
    pub(crate) fn at(&self, slot: usize, key: u32) -> u8 {
        self.slots.get(slot).and_then(|verdicts| verdicts.get(key as usize)).copied().unwrap_or(MAY)
    }

    /// Returns the rows whose tuple may match in `slot`.
    pub(crate) fn gate(&self, slot: usize, keys: &[u32], rows: &[u32]) -> Vec<u32> {
        let mut selected = vec![0; rows.len()];
        let mut count = 0;
        for &row in rows {
            let verdict = keys.get(row as usize).map_or(MAY, |key| self.at(slot, *key));
            if let Some(position) = selected.get_mut(count) {
                *position = row;
            }
            count += usize::from(verdict & MAY);
        }
        selected.truncate(count);
        selected
    }
}

/// Maximum number of bounds that are read at a time, of a predicate on many columns.
const BOUNDS_AT_ONCE: usize = 1 << 18;

/// Returns a verdict for each of `rows`.
pub(crate) fn verdicts(
    plan: &Plan,
    columns: &[BoundColumn],
    batch: &FileBatch,
    stats: &StatsCache,
    rows: &[u32],
    partitions: &PartitionVerdicts,
) -> Vec<u8> {
    let requested = plan.stats_columns();
    let wanted: Vec<&BoundColumn> = requested.iter().map(|&index| &columns[index]).collect();
    let evaluate = |loaded: &Columns, rows: &[u32]| {
        Evaluation { requested: &requested, loaded, columns, batch, rows, partitions }.node(&plan.root)
    };
    if let Some(kept) = stats.columns(batch, &wanted, rows) {
        return evaluate(&kept, rows);
    }
    let files_at_once = (BOUNDS_AT_ONCE / wanted.len().max(1)).max(1);
    let pieces = rows.chunks(files_at_once);
    pieces.flat_map(|rows| evaluate(&Columns::of_rows(batch, &wanted, rows), rows)).collect()
}

struct Evaluation<'a> {
    requested: &'a [usize],
    loaded: &'a Columns,
    columns: &'a [BoundColumn],
    batch: &'a FileBatch,
    rows: &'a [u32],
    partitions: &'a PartitionVerdicts,
}

impl Evaluation<'_> {
    fn node(&self, node: &Node) -> Vec<u8> {
        match node {
            Node::Constant(verdict) => vec![*verdict; self.rows.len()],
            Node::Slot(slot) => self.rows.iter().map(|row| self.slot(*slot, *row)).collect(),
            Node::Leaf(leaf) => self.leaf(leaf),
            Node::And(children) => self.fold(children, MAY | MUST, |verdict, child| verdict & child),
            Node::Or(children) => self.fold(children, 0, |verdict, child| verdict | child),
        }
    }

    fn fold(&self, children: &[Node], start: u8, join: fn(u8, u8) -> u8) -> Vec<u8> {
        let mut verdicts = vec![start; self.rows.len()];
        for child in children {
            for (verdict, child) in verdicts.iter_mut().zip(self.node(child)) {
                *verdict = join(*verdict, child);
            }
        }
        verdicts
    }

    fn slot(&self, slot: usize, row: u32) -> u8 {
        self.batch.partitions.keys.get(row as usize).map_or(MAY, |key| self.partitions.at(slot, *key))
    }

    fn leaf(&self, leaf: &Leaf) -> Vec<u8> {
        let position = self.requested.iter().position(|&column| column == leaf.column);
        let Some(column) = position.and_then(|position| self.loaded.columns.get(position)) else {
            return vec![MAY; self.rows.len()];
        };
        let has_nan = self.columns[leaf.column].key_type.has_nan();
        // Cached columns hold all files. Most predicates evaluate all of them, which needs no gather.
        if !self.loaded.of_all || self.rows.len() == column.flags.len() {
            return leaf_verdicts(leaf, has_nan, column, Files::All);
        }
        leaf_verdicts(leaf, has_nan, column, Files::Rows(self.rows))
    }
}

/// The files of a column to evaluate.
#[derive(Clone, Copy)]
pub(crate) enum Files<'a> {
    All,
    Rows(&'a [u32]),
}

impl Files<'_> {
    /// Returns the verdict on each file from its bounds and flags. [`Self::All`] is one loop without lookups.
    fn of_bounds<T: Copy>(
        self,
        (min, max): (&[T], &[T]),
        flags: &[u8],
        verdict: impl Fn(T, T, u8) -> u8,
    ) -> Vec<u8> {
        match self {
            Self::All => {
                let bounds = min.iter().zip(max).zip(flags);
                bounds.map(|((min, max), flags)| verdict(*min, *max, *flags)).collect()
            }
            Self::Rows(_) => {
                self.of_places(flags, |position, flags| match (min.get(position), max.get(position)) {
                    (Some(min), Some(max)) => verdict(*min, *max, flags),
                    _ => MAY,
                })
            }
        }
    }

    /// Returns the verdict on each file from its position in the column.
    fn of_places(self, flags: &[u8], verdict: impl Fn(usize, u8) -> u8) -> Vec<u8> {
        let at = |position: usize| flags.get(position).map_or(MAY, |flags| verdict(position, *flags));
        match self {
            Self::All => (0..flags.len()).map(at).collect(),
            Self::Rows(rows) => rows.iter().map(|row| at(*row as usize)).collect(),
        }
    }
}

// `&` on booleans keeps the loops free of branches.
#[allow(clippy::needless_bitwise_bool)]
pub(crate) fn leaf_verdicts(leaf: &Leaf, has_nan: bool, column: &StatsColumn, files: Files<'_>) -> Vec<u8> {
    let nulls = leaf.nulls;
    let exact = (u8::from(leaf.exact) * MUST) | MAY;
    let flags = column.flags.as_slice();
    match (&column.bounds, &leaf.set) {
        (Bounds::Narrow { min, max }, Set::Keys(ranges)) => {
            let nan = has_nan.then(|| ranges.contains(&NAN_KEY));
            match Intervals::of(ranges) {
                Intervals::One(first, last) => files.of_bounds((min, max), flags, |min, max, flags| {
                    let some = (min <= last) & (max >= first);
                    let all = (min >= first) & (max <= last);
                    join(flags, some, all, nan, nulls) & exact
                }),
                Intervals::Many(intervals) => files.of_bounds((min, max), flags, |min, max, flags| {
                    let (some, all) = many(&intervals, min, max);
                    join(flags, some, all, nan, nulls) & exact
                }),
            }
        }
        (Bounds::Wide { min, max }, Set::Keys(ranges)) => {
            files.of_bounds((min, max), flags, |min, max, flags| {
                let (some, all) = (ranges.intersects(&min, &max), ranges.covers(&min, &max));
                join(flags, some, all, None, nulls) & exact
            })
        }
        (Bounds::Text(bounds), Set::Text(ranges)) => {
            let heads = TextHeads::of(ranges);
            files.of_places(flags, |position, flags| {
                let by_heads = bounds.heads_at(position).and_then(|(min, max)| heads.verdict(min, max));
                let (some, all) = by_heads.unwrap_or_else(|| {
                    ranges.text_verdict(bounds.min_at(position), bounds.max_at(position, flags))
                });
                join(flags, some, all, None, nulls) & exact
            })
        }
        (_, Set::Keys(ranges)) => files.of_places(flags, |_, flags| {
            join(flags, !ranges.is_none(), ranges.is_all(), None, nulls) & exact
        }),
        (_, Set::Text(_)) => files.of_places(flags, |_, _| MAY),
    }
}

/// Returns the verdict on a file. `some` and `all` state whether its values are accepted, `nan` whether NaN is, `nulls`
/// whether null is.
fn join(flags: u8, some: bool, all: bool, nan: Option<bool>, nulls: bool) -> u8 {
    let some = u8::from(some | nan.unwrap_or(false));
    let all = u8::from(all & nan.unwrap_or(true));
    let (may_hold_values, may_hold_nulls) = ((flags & VALUES) / VALUES, flags & NULLS);
    let nulls = u8::from(nulls);
    let may = (may_hold_values & some) | (may_hold_nulls & nulls);
    let must = ((1 - may_hold_values) | all) & ((1 - may_hold_nulls) | nulls);
    may * MAY + (may & must) * MUST
}

/// Accepted keys of a narrow column.
enum Intervals {
    One(i64, i64),
    /// The first and last key of each interval, ascending.
    Many(Vec<(i64, i64)>),
}

impl Intervals {
    fn of(ranges: &Ranges<i128>) -> Self {
        let mut ends = ranges.cuts.iter().copied();
        let mut first = if ranges.from_start { Some(i128::from(i64::MIN)) } else { ends.next() };
        let mut intervals = Vec::new();
        while let Some(from) = first {
            let last = ends.next().map_or(i128::from(i64::MAX), |end| end - 1);
            if from <= i128::from(i64::MAX) && last >= i128::from(i64::MIN) {
                intervals.push((narrow(from), narrow(last)));
            }
            first = ends.next();
        }
        match intervals.as_slice() {
            [(first, last)] => Self::One(*first, *last),
            _ => Self::Many(intervals),
        }
    }
}

fn many(intervals: &[(i64, i64)], min: i64, max: i64) -> (bool, bool) {
    let position = intervals.partition_point(|(_, last)| *last < min);
    match intervals.get(position) {
        Some((first, last)) => (*first <= max, *first <= min && max <= *last),
        None => (false, false),
    }
}
