//! A bound predicate prepared for evaluation, and its evaluation on partition values.
//!
//! Leaves of one column merge; subtrees over partition columns become slots that are evaluated once per distinct tuple.
//! Verdicts are bits: whether a file *may* hold a match, and whether every row of it *must* match.

use super::bind::{Bound, BoundColumn, Leaf, Set};
use super::values::keys::{KeyType, any_zone, partition_spread};
use super::values::number::Spread;
use super::values::ranges::Ranges;
use crate::actions::PartitionTuple;

/// The file may hold a row that matches.
pub(crate) const MAY: u8 = 1;
/// All rows of the file match.
pub(crate) const MUST: u8 = 2;

/// The name of the directory of null partition values, which some writers log as a value.
pub(super) const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A node of the condition that is evaluated for each file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Constant(u8),
    /// The index of a slot, which partition values decide.
    Slot(usize),
    /// A condition that statistics decide.
    Leaf(Leaf),
    And(Vec<Node>),
    Or(Vec<Node>),
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    pub(crate) slots: Vec<Bound>,
    /// Whether leaves were dropped at the limit.
    pub(crate) is_capped: bool,
}

/// The limit of leaves. The cost of a file is proportional to their number.
pub(crate) const MAX_LEAVES: usize = 1000;

/// Returns the predicate with its first leaves. The others become undecided.
fn capped(bound: Bound, leaves_left: &mut usize) -> Bound {
    match bound {
        Bound::Leaf(_) if *leaves_left == 0 => Bound::Undecided,
        Bound::Leaf(leaf) => {
            *leaves_left -= 1;
            Bound::Leaf(leaf)
        }
        Bound::And(children) => {
            Bound::And(children.into_iter().map(|child| capped(child, leaves_left)).collect())
        }
        Bound::Or(children) => {
            Bound::Or(children.into_iter().map(|child| capped(child, leaves_left)).collect())
        }
        other => other,
    }
}

impl Bound {
    /// Returns the verdict of the predicate, given those of its leaves.
    pub(super) fn verdict(&self, of_leaf: &impl Fn(&Leaf) -> u8) -> u8 {
        match self {
            Self::Always => MAY | MUST,
            Self::Undecided => MAY,
            Self::Never => 0,
            Self::And(children) => {
                children.iter().fold(MAY | MUST, |verdict, child| verdict & child.verdict(of_leaf))
            }
            Self::Or(children) => children.iter().fold(0, |verdict, child| verdict | child.verdict(of_leaf)),
            Self::Leaf(leaf) => of_leaf(leaf),
        }
    }
}

impl Plan {
    pub(crate) fn new(bound: Bound, columns: &[BoundColumn]) -> Self {
        let mut leaves_left = MAX_LEAVES;
        let bound = capped(simplify(bound), &mut leaves_left);
        let mut slots = Vec::new();
        let root = lower(bound, columns, &mut slots);
        Self { root, slots, is_capped: leaves_left == 0 }
    }

    /// Returns the slot that every match must satisfy, if there is one.
    pub(crate) fn gate(&self) -> Option<usize> {
        match &self.root {
            Node::Slot(slot) => Some(*slot),
            Node::And(children) => children.iter().find_map(|child| match child {
                Node::Slot(slot) => Some(*slot),
                _ => None,
            }),
            _ => None,
        }
    }

    /// Returns the columns whose statistics the plan needs.
    pub(crate) fn stats_columns(&self) -> Vec<usize> {
        fn collect(node: &Node, into: &mut Vec<usize>) {
            match node {
                Node::Leaf(leaf) if !into.contains(&leaf.column) => into.push(leaf.column),
                Node::And(children) | Node::Or(children) => {
                    for child in children {
                        collect(child, into);
                    }
                }
                _ => {}
            }
        }
        let mut columns = Vec::new();
        collect(&self.root, &mut columns);
        columns
    }
}

fn lower(bound: Bound, columns: &[BoundColumn], slots: &mut Vec<Bound>) -> Node {
    if is_partition_only(&bound, columns) {
        slots.push(bound);
        return Node::Slot(slots.len() - 1);
    }
    let mut lower_all = |children: Vec<Bound>, join: fn(Vec<Bound>) -> Bound| {
        let (partition, rest): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|child| is_partition_only(child, columns));
        let mut nodes = Vec::new();
        if !partition.is_empty() {
            slots.push(join(partition));
            nodes.push(Node::Slot(slots.len() - 1));
        }
        nodes.extend(rest.into_iter().map(|child| lower(child, columns, slots)));
        nodes
    };
    match bound {
        Bound::Always => Node::Constant(MAY | MUST),
        Bound::Undecided => Node::Constant(MAY),
        Bound::Never => Node::Constant(0),
        Bound::Leaf(leaf) => Node::Leaf(leaf),
        Bound::And(children) => Node::And(lower_all(children, Bound::And)),
        Bound::Or(children) => Node::Or(lower_all(children, Bound::Or)),
    }
}

fn is_partition_only(bound: &Bound, columns: &[BoundColumn]) -> bool {
    match bound {
        Bound::Leaf(leaf) => columns[leaf.column].partition.is_some(),
        Bound::And(children) | Bound::Or(children) => {
            children.iter().all(|child| is_partition_only(child, columns))
        }
        _ => false,
    }
}

/// Flattens a predicate, folds its constants and merges the leaves of a column under one parent.
pub(crate) fn simplify(bound: Bound) -> Bound {
    match bound {
        Bound::And(children) => join(children, true),
        Bound::Or(children) => join(children, false),
        Bound::Leaf(leaf) => fold(leaf),
        other => other,
    }
}

fn fold(leaf: Leaf) -> Bound {
    let (none, all) = match &leaf.set {
        Set::Keys(ranges) => (ranges.is_none(), ranges.is_all()),
        Set::Text(ranges) => (ranges.is_none(), ranges.is_all()),
    };
    match (leaf.nulls, leaf.exact) {
        (false, _) if none => Bound::Never,
        (true, true) if all => Bound::Always,
        (true, false) if all => Bound::Undecided,
        _ => Bound::Leaf(leaf),
    }
}

fn join(children: Vec<Bound>, all: bool) -> Bound {
    // The child that decides the result alone, and the child that does not change it.
    let (absorbing, neutral) =
        if all { (Bound::Never, Bound::Always) } else { (Bound::Always, Bound::Never) };
    let mut flat = Vec::with_capacity(children.len());
    for child in children.into_iter().map(simplify) {
        match child {
            Bound::And(inner) if all => flat.extend(inner),
            Bound::Or(inner) if !all => flat.extend(inner),
            child if child == neutral => {}
            child if child == absorbing => return absorbing,
            child => flat.push(child),
        }
    }
    let undecided = flat.contains(&Bound::Undecided);
    if undecided && !all {
        return Bound::Undecided;
    }
    flat.retain(|child| *child != Bound::Undecided);
    let mut joined = Vec::new();
    for child in merge_leaves(flat, all) {
        match child {
            child if child == neutral => {}
            child if child == absorbing => return absorbing,
            child => joined.push(child),
        }
    }
    if undecided {
        joined.push(Bound::Undecided);
    }
    match joined.len() {
        0 => neutral,
        1 => joined.swap_remove(0),
        _ if all => Bound::And(joined),
        _ => Bound::Or(joined),
    }
}

fn merge_leaves(children: Vec<Bound>, all: bool) -> Vec<Bound> {
    let mut by_column: Vec<Vec<Leaf>> = Vec::new();
    let mut rest = Vec::new();
    for child in children {
        let Bound::Leaf(leaf) = child else {
            rest.push(child);
            continue;
        };
        match by_column.iter_mut().find(|leaves| leaves.first().is_some_and(|one| one.column == leaf.column))
        {
            Some(leaves) => leaves.push(leaf),
            None => by_column.push(vec![leaf]),
        }
    }
    let merged = by_column.into_iter().filter_map(|leaves| merge(leaves, all)).map(fold);
    merged.chain(rest).collect()
}

fn merge(leaves: Vec<Leaf>, all: bool) -> Option<Leaf> {
    let column = leaves.first()?.column;
    let exact = leaves.iter().all(|leaf| leaf.exact);
    let nulls = if all { leaves.iter().all(|leaf| leaf.nulls) } else { leaves.iter().any(|leaf| leaf.nulls) };
    let (mut keys, mut text) = (Vec::new(), Vec::new());
    for leaf in leaves {
        match leaf.set {
            Set::Keys(ranges) => keys.push(ranges),
            Set::Text(ranges) => text.push(ranges),
        }
    }
    let set = if text.is_empty() { Set::Keys(joined(keys, all)) } else { Set::Text(joined(text, all)) };
    Some(Leaf { column, set, nulls, exact })
}

fn joined<C: Ord + Clone>(sets: Vec<Ranges<C>>, all: bool) -> Ranges<C> {
    if all {
        // De Morgan: an intersection of many sets is as fast as a union.
        return Ranges::union_all(sets.into_iter().map(Ranges::complement).collect()).complement();
    }
    Ranges::union_all(sets)
}

/// Evaluates a predicate on partition columns for one tuple of partition values, by the verdict of a leaf on its value.
pub(super) fn tuple_verdict(
    bound: &Bound,
    tuple: &PartitionTuple,
    columns: &[BoundColumn],
    of_value: fn(&Leaf, &BoundColumn, Option<&str>) -> u8,
) -> u8 {
    bound.verdict(&|leaf| {
        let column = &columns[leaf.column];
        let value = column.partition.and_then(|position| tuple.values.get(position));
        value.map_or(MAY, |value| of_value(leaf, column, value.as_deref()))
    })
}

/// Returns the key of a partition value as clients read it.
fn read_spread(column: &BoundColumn, value: &str) -> Option<Spread> {
    let spread = partition_spread(column.key_type, value)?;
    // One without a zone in the log is wide already.
    let has_zone = spread.high - spread.low <= 1;
    Some(if column.is_read_in_any_zone && has_zone { any_zone(spread) } else { spread })
}

pub(super) fn value_verdict(leaf: &Leaf, column: &BoundColumn, value: Option<&str>) -> u8 {
    let verdict = |may: bool, must: bool| u8::from(may) * MAY + u8::from(must && leaf.exact) * MUST;
    // The empty string is null for every type (PROTOCOL, section Partition Value Serialization).
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return verdict(leaf.nulls, leaf.nulls);
    };
    match &leaf.set {
        Set::Text(ranges) => {
            let matches = ranges.contains_text(value.as_bytes());
            verdict(matches, matches)
        }
        Set::Keys(ranges) if ranges.cuts.is_empty() && column.key_type == KeyType::Opaque => {
            verdict(ranges.from_start, ranges.from_start)
        }
        Set::Keys(ranges) => match read_spread(column, value) {
            Some(spread) => verdict(
                ranges.intersects(&spread.low, &spread.high),
                ranges.covers(&spread.low, &spread.high),
            ),
            // Readers may read an invalid value as null.
            None => MAY,
        },
    }
}
