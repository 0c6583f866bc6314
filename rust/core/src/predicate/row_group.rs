//! Evaluates a predicate on bounds over all files of a checkpoint's row group.

use super::Predicate;
use super::bind::{Bound, BoundColumn, Leaf, Set};
use super::eval::{Files, leaf_verdicts};
use super::plan::{MAY, Node};
use super::stats::of_one;
use super::values::keys::partition_spread;
use super::values::ranges::TextMax;
use crate::checkpoint::{RowGroupBounds, ValueBounds};

impl Predicate {
    /// Returns whether a file within these bounds may hold a match.
    #[must_use]
    pub fn may_match_row_group(&self, bounds: &RowGroupBounds) -> bool {
        self.node(&self.whole.root, bounds)
    }

    fn node(&self, node: &Node, bounds: &RowGroupBounds) -> bool {
        match node {
            Node::Constant(verdict) => verdict & MAY != 0,
            Node::Slot(slot) => {
                let slot = self.whole.slots.get(*slot);
                slot.is_none_or(|bound| bound_may_match(bound, &self.columns, bounds))
            }
            Node::Leaf(leaf) => self.stats_leaf(leaf, bounds),
            Node::And(children) => children.iter().all(|child| self.node(child, bounds)),
            Node::Or(children) => children.iter().any(|child| self.node(child, bounds)),
        }
    }

    fn stats_leaf(&self, leaf: &Leaf, bounds: &RowGroupBounds) -> bool {
        let column = &self.columns[leaf.column];
        let Some(stats) = of_one(column, bounds.stats.as_deref().unwrap_or_default()) else { return true };
        let verdicts = leaf_verdicts(leaf, column.key_type.has_nan(), &stats, Files::All);
        verdicts.first().is_none_or(|verdict| verdict & MAY != 0)
    }
}

/// Returns whether a file within these bounds may satisfy a condition on partition columns.
pub(super) fn bound_may_match(bound: &Bound, columns: &[BoundColumn], bounds: &RowGroupBounds) -> bool {
    match bound {
        Bound::Always | Bound::Undecided => true,
        Bound::Never => false,
        Bound::Leaf(leaf) => leaf_may_match(leaf, columns, bounds),
        Bound::And(children) => children.iter().all(|child| bound_may_match(child, columns, bounds)),
        Bound::Or(children) => children.iter().any(|child| bound_may_match(child, columns, bounds)),
    }
}

fn leaf_may_match(leaf: &Leaf, columns: &[BoundColumn], bounds: &RowGroupBounds) -> bool {
    let column = &columns[leaf.column];
    let position = column.partition.and_then(|position| bounds.partition_values.get(position));
    let Some(ValueBounds { min, max, has_nulls }) = position.and_then(Option::as_ref) else {
        return true;
    };
    let some = match &leaf.set {
        Set::Text(ranges) => ranges.text_verdict(Some(min.as_bytes()), TextMax::Value(max.as_bytes())).0,
        Set::Keys(ranges) if ranges.cuts.is_empty() => ranges.from_start,
        Set::Keys(ranges) => {
            let key = |text| partition_spread(column.key_type, text);
            let ends = key(min).zip(key(max));
            ends.is_none_or(|(min, max)| min.low > max.high || ranges.intersects(&min.low, &max.high))
        }
    };
    some || (leaf.nulls && *has_nulls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predicate::Hints;
    use crate::schema::{ColumnMapping, StructType};

    #[test]
    fn a_row_group_is_read_unless_its_bounds_exclude_the_predicate() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"day","type":"date","nullable":true,"metadata":{}},
            {"name":"region","type":"string","nullable":true,"metadata":{}},
            {"name":"id","type":"long","nullable":true,"metadata":{}}]}"#;
        let schema = StructType::parse(schema, ColumnMapping::None).unwrap();
        let day = ValueBounds { min: "2021-01-10".into(), max: "2021-01-20".into(), has_nulls: false };
        let bounds = RowGroupBounds {
            partition_values: vec![Some(day), None],
            stats: Some(r#"{"minValues":{"id":100},"maxValues":{"id":200},"nullCount":{"id":0}}"#.into()),
        };
        let unknown = RowGroupBounds { partition_values: vec![None, None], stats: None };
        for (sql, expected) in [
            ("day = '2021-01-15'", true),
            ("day = '2021-01-21'", false),
            ("day IS NULL", false),
            ("day IS NULL OR region IS NULL", true),
            ("NOT (day < '2021-01-25')", false),
            ("region = 'eu'", true),
            ("region = 'eu' AND id > 200", false),
            ("region = 'eu' OR id > 200", true),
            ("day = '2021-01-21' OR id = 150", true),
            ("day = '2021-01-21' OR id = 250", false),
            ("id IS NULL", false),
            ("f(id) = 1", true),
            ("1 = 2", false),
        ] {
            let hints = Hints { sql: vec![sql.into()], json: None };
            let partitions = ["day".to_owned(), "region".to_owned()];
            let (predicate, _) = Predicate::bind(&hints, &schema, &partitions);
            assert_eq!(predicate.may_match_row_group(&bounds), expected, "{sql}");
            assert!(predicate.may_match_row_group(&unknown) || sql == "1 = 2", "{sql}");
        }
    }
}
