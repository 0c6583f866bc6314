//! Evaluates a predicate on bounds: over all files of a checkpoint's row group, and over the rows of a data file's.

use super::Predicate;
use super::bind::{Bound, BoundColumn, Leaf, Set};
use super::eval::{Files, leaf_verdicts};
use super::plan::{HIVE_NULL, MAY, Node};
use super::stats::of_one;
use super::values::bounds::{Source, text_max, true_bound};
use super::values::keys::partition_spread;
use crate::checkpoint::{RowGroupBounds, ValueBounds};

impl Predicate {
    /// Returns whether a file within these bounds may hold a match.
    #[must_use]
    pub fn may_match_row_group(&self, bounds: &RowGroupBounds) -> bool {
        self.node(&self.whole.root, Source::RowGroup, bounds)
    }

    /// Returns the physical paths of the columns whose statistics decide.
    #[must_use]
    pub fn stats_paths(&self) -> Vec<&[String]> {
        let used = self.whole.stats_columns().into_iter();
        used.map(|index| self.columns[index].column.physical.as_slice()).collect()
    }

    /// Returns whether rows with these statistics, in the form of `add.stats`, may match with any partition values.
    #[must_use]
    pub fn may_match_stats(&self, stats: &str) -> bool {
        let bounds = RowGroupBounds { partition_values: Vec::new(), stats: Some(stats.to_owned()) };
        self.node(&self.whole.root, Source::File, &bounds)
    }

    fn node(&self, node: &Node, source: Source, bounds: &RowGroupBounds) -> bool {
        match node {
            Node::Constant(verdict) => verdict & MAY != 0,
            Node::Slot(slot) => {
                let slot = self.whole.slots.get(*slot);
                slot.is_none_or(|bound| bound_may_match(bound, &self.columns, bounds))
            }
            Node::Leaf(leaf) => self.stats_leaf(leaf, source, bounds),
            Node::And(children) => children.iter().all(|child| self.node(child, source, bounds)),
            Node::Or(children) => children.iter().any(|child| self.node(child, source, bounds)),
        }
    }

    fn stats_leaf(&self, leaf: &Leaf, source: Source, bounds: &RowGroupBounds) -> bool {
        let column = &self.columns[leaf.column];
        let Some(stats) = of_one(column, source, bounds.stats.as_deref().unwrap_or_default()) else {
            return true;
        };
        let verdicts = leaf_verdicts(leaf, column.key_type.has_nan(), &stats, Files::All);
        verdicts.first().is_none_or(|verdict| verdict & MAY != 0)
    }
}

/// Returns whether a file within these bounds may satisfy a condition on partition columns.
pub(super) fn bound_may_match(bound: &Bound, columns: &[BoundColumn], bounds: &RowGroupBounds) -> bool {
    bound.verdict(&|leaf| u8::from(leaf_may_match(leaf, columns, bounds)) * MAY) & MAY != 0
}

fn leaf_may_match(leaf: &Leaf, columns: &[BoundColumn], bounds: &RowGroupBounds) -> bool {
    let column = &columns[leaf.column];
    let position = column.partition.and_then(|position| bounds.partition_values.get(position));
    let Some(ValueBounds { min, max, has_nulls, is_text }) = position.and_then(Option::as_ref) else {
        return true;
    };
    // The order of the values is not that of the column, nor are they the column's texts.
    if *is_text != matches!(leaf.set, Set::Text(_)) {
        return true;
    }
    let source = Source::RowGroupPartitions;
    let ranges = match &leaf.set {
        Set::Text(ranges) => {
            let bound = text_max(source, max);
            let some = ranges.text_verdict(Some(min.as_bytes()), bound.as_text_max()).0;
            // A rule is undecided on this text, and an undecided file must be found.
            let may_be_null = *has_nulls || (&**min..=&**max).contains(&HIVE_NULL);
            return some || (leaf.nulls && may_be_null);
        }
        Set::Keys(ranges) => ranges,
    };
    // A text that is not a value of the type is null as a typed value. Readers may read another value.
    if *has_nulls {
        return true;
    }
    if ranges.cuts.is_empty() {
        return ranges.from_start;
    }
    let bound = |text| true_bound(column.key_type, source, partition_spread(column.key_type, text)?);
    let ends = bound(min).zip(bound(max));
    ends.is_none_or(|(min, max)| min.low > max.high || ranges.intersects(&min.low, &max.high))
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
        let day = ValueBounds {
            min: "2021-01-10".into(),
            max: "2021-01-20".into(),
            has_nulls: false,
            is_text: false,
        };
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

    #[test]
    fn bounds_in_the_order_of_another_type_exclude_nothing() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"p","type":"long","nullable":true,"metadata":{}},
            {"name":"q","type":"string","nullable":true,"metadata":{}},
            {"name":"x","type":"long","nullable":true,"metadata":{}}]}"#;
        let schema = StructType::parse(schema, ColumnMapping::None).unwrap();
        // Of 9, 10 and 95 as strings, and of 09 and 10 as numbers.
        let bounds = |is_text| {
            let of = |min: &str, max: &str, is_text| {
                Some(ValueBounds { min: min.into(), max: max.into(), has_nulls: false, is_text })
            };
            let stats = r#"{"minValues":{"x":"10"},"maxValues":{"x":"95"},"nullCount":{"x":0}}"#;
            let stats = if is_text {
                stats.to_owned()
            } else {
                stats.replace("\"10\"", "10").replace("\"95\"", "95")
            };
            RowGroupBounds {
                partition_values: vec![of("10", "95", is_text), of("9", "10", !is_text)],
                stats: Some(stats),
            }
        };
        for sql in ["p = 9", "q = '09'", "x = 9"] {
            let hints = Hints { sql: vec![sql.into()], json: None };
            let (predicate, _) = Predicate::bind(&hints, &schema, &["p".to_owned(), "q".to_owned()]);
            assert!(predicate.may_match_row_group(&bounds(true)), "{sql}");
            assert!(!predicate.may_match_row_group(&bounds(false)), "{sql}");
        }
    }

    #[test]
    fn statistics_decide_where_partition_values_are_unknown() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"day","type":"date","nullable":true,"metadata":{}},
            {"name":"id","type":"long","nullable":true,"metadata":
                {"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}}]}"#;
        let schema = StructType::parse(schema, ColumnMapping::Name).unwrap();
        let bounds =
            r#"{"numRecords":9,"minValues":{"col-1":100},"maxValues":{"col-1":200},"nullCount":{"col-1":8}}"#;
        let nulls = r#"{"numRecords":9,"nullCount":{"col-1":9}}"#;
        for (stats, sql, expected) in [
            (bounds, "id = 201", false),
            (bounds, "id = 200", true),
            (nulls, "id = 200", false),
            (nulls, "id IS NULL", true),
            (nulls, "day = '2021-01-01' AND id IS NOT NULL", false),
            (nulls, "day = '2021-01-01' OR id IS NOT NULL", true),
        ] {
            let hints = Hints { sql: vec![sql.into()], json: None };
            let (predicate, _) = Predicate::bind(&hints, &schema, &["day".to_owned()]);
            assert_eq!(predicate.may_match_stats(stats), expected, "{sql}");
            assert!(predicate.may_match_stats("{}"), "{sql}");
            assert_eq!(predicate.stats_paths(), [["col-1".to_owned()]], "{sql}");
        }
    }
}
