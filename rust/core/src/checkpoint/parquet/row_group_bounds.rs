//! Bounds over all adds of a row group, from the statistics of the footer.
//!
//! The footer has the minimum and the maximum of each typed column per row group. The least of the files' minima bounds
//! all files, so a filter can skip a row group. This is effective only for clustered checkpoints; correctness does not
//! depend on it.

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use super::calendar::Calendar;
use super::file::{ParquetFile, null_count, rows_without_add, without_panic};
use super::typed_column::TypedColumn;
use crate::checkpoint::REQUIRED_FIELDS;
use crate::escape::push_string;

/// Bounds of all files of a row group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowGroupBounds {
    /// The bounds of each partition column, in the order of `metaData.partitionColumns`; `None` if unknown.
    pub partition_values: Vec<Option<ValueBounds>>,
    /// A `stats` object with the `minValues`, `maxValues` and `nullCount` of all files, keyed by physical names.
    /// Leaves without known bounds are absent.
    pub stats: Option<String>,
}

/// The bounds of one partition column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueBounds {
    /// The lower bound in the order of the column's type, serialized as a partition value.
    pub min: String,
    /// The upper bound.
    pub max: String,
    /// Whether values may be null.
    pub has_nulls: bool,
    /// Whether they are in the order of strings, also of numbers that a writer has made strings of.
    pub is_text: bool,
}

/// The typed leaf columns of a part.
#[derive(Debug, Default)]
pub(crate) struct TypedLeaves {
    /// Those of fields that each add has.
    required: Vec<usize>,
    /// In the order of the partition columns.
    partition_values: Vec<Option<Leaf>>,
    /// The statistics' leaves, with their paths below `stats_parsed`.
    stats: Vec<(Vec<String>, Leaf)>,
}

#[derive(Debug)]
struct Leaf {
    index: usize,
    field: Field,
}

impl TypedLeaves {
    pub(crate) fn of(file: &ParquetFile, partition_columns: &[Box<str>]) -> Self {
        let calendar = file.calendar();
        let leaf = |index: usize| {
            let field = file.struct_leaf(index)?.clone();
            let is_ordered = match field.data_type() {
                // Bounds ignore NaN.
                DataType::Float32 | DataType::Float64 | DataType::Binary => false,
                DataType::Date32 => !calendar.has_hybrid_days(),
                // The format gives INT96 no order.
                DataType::Timestamp(..) => !calendar.has_hybrid_times() && !file.is_int96(index),
                _ => true,
            };
            is_ordered.then_some(Leaf { index, field })
        };
        let mut leaves = Self {
            required: file.leaves_of_add(&REQUIRED_FIELDS),
            partition_values: partition_columns.iter().map(|_| None).collect(),
            stats: Vec::new(),
        };
        let is_typed = |path: &[String]| {
            path.first().is_some_and(|action| action == "add")
                && path
                    .get(1)
                    .is_some_and(|field| field == "stats_parsed" || field == "partitionValues_parsed")
        };
        for index in file.leaves(is_typed) {
            match file.leaf_path(index) {
                [_, typed, column] if typed == "partitionValues_parsed" => {
                    if let Some(position) = partition_columns.iter().position(|name| **name == *column) {
                        leaves.partition_values[position] = leaf(index);
                    }
                }
                [_, typed, rest @ ..] if typed == "stats_parsed" => {
                    leaves.stats.extend(leaf(index).map(|leaf| (rest.to_vec(), leaf)));
                }
                _ => {}
            }
        }
        leaves
    }

    /// Returns the bounds; `None` if the footer has none.
    pub(crate) fn bounds(&self, file: &ParquetFile, row_group: usize) -> Option<RowGroupBounds> {
        // The footer's bounds are unvalidated bytes.
        without_panic(|| Ok(self.unchecked_bounds(file, row_group))).ok()?
    }

    fn unchecked_bounds(&self, file: &ParquetFile, row_group: usize) -> Option<RowGroupBounds> {
        let metadata = &file.row_groups()[row_group];
        let others = rows_without_add(metadata, &self.required)?;
        let group = RowGroup { metadata, others, file };
        let partition_values: Vec<_> =
            self.partition_values.iter().map(|leaf| group.value_bounds(leaf.as_ref()?)).collect();
        let mut stats = Object::default();
        for (path, leaf) in &self.stats {
            if let Some(value) = group.stats_leaf(path, leaf) {
                stats.push(path, &value);
            }
        }
        let stats = stats.finish();
        let is_known = stats.is_some() || partition_values.iter().any(Option::is_some);
        is_known.then_some(RowGroupBounds { partition_values, stats })
    }
}

struct RowGroup<'a> {
    metadata: &'a RowGroupMetaData,
    /// The number of rows without an add.
    others: i64,
    file: &'a ParquetFile,
}

impl RowGroup<'_> {
    fn value_bounds(&self, leaf: &Leaf) -> Option<ValueBounds> {
        let (min, max) = self.min_max(leaf)?;
        let text = |value: &ArrayRef| {
            let mut text = String::new();
            TypedColumn::of(value, Calendar::default())?.push_partition_value(&mut text, 0).then_some(text)
        };
        let (min, max) = (text(&min)?, text(&max)?);
        // An empty string is null.
        let has_nulls = self.adds_without(leaf)? > 0 || min.is_empty();
        let is_text = leaf.field.data_type() == &DataType::Utf8View;
        Some(ValueBounds { min, max, has_nulls, is_text })
    }

    /// Returns the statistics of all files as JSON. A file without a value has no bound.
    fn stats_leaf(&self, path: &[String], leaf: &Leaf) -> Option<String> {
        if self.adds_without(leaf)? > 0 {
            return None;
        }
        let (min, max) = self.min_max(leaf)?;
        let json = |value: &ArrayRef| {
            let mut json = String::new();
            TypedColumn::of(value, Calendar::default())?.push_json(&mut json, 0).then_some(json)
        };
        match path.first()?.as_str() {
            "minValues" => json(&min),
            "maxValues" => json(&max),
            // The sum of the files' null counts is unknown, except for zero.
            "nullCount" => json(&max).filter(|count| count == "0"),
            _ => None,
        }
    }

    /// Returns the number of adds without a value in the leaf. Statistics by which it has more values than there are adds
    /// are wrong.
    fn adds_without(&self, leaf: &Leaf) -> Option<i64> {
        let without = null_count(self.metadata, leaf.index)? - self.others;
        (without >= 0).then_some(without)
    }

    /// Returns the minimum and the maximum, each as an array of one value that is not null.
    fn min_max(&self, leaf: &Leaf) -> Option<(ArrayRef, ArrayRef)> {
        let statistics = self.metadata.column(leaf.index).statistics()?;
        if statistics.is_min_max_deprecated() {
            // Old writers compared strings and decimals as signed bytes.
            return None;
        }
        let schema = self.file.schema();
        let converter = StatisticsConverter::from_column_index(leaf.index, &leaf.field, schema).ok()?;
        let min = converter.row_group_mins([self.metadata]).ok()?;
        let max = converter.row_group_maxes([self.metadata]).ok()?;
        (min.len() == 1 && max.len() == 1 && min.is_valid(0) && max.is_valid(0)).then_some((min, max))
    }
}

/// A JSON object whose leaves come in the order of a schema, so that those of an object follow each other.
#[derive(Default)]
struct Object<'a> {
    json: String,
    /// The names of the objects around the last leaf.
    open: Vec<&'a str>,
}

impl<'a> Object<'a> {
    fn push(&mut self, path: &'a [String], value: &str) {
        let Some((name, outer)) = path.split_last() else { return };
        let known = self.open.iter().zip(outer).take_while(|(open, name)| **open == *name).count();
        self.close(known);
        for name in &outer[known..] {
            self.push_name(name);
            self.open.push(name);
        }
        self.push_name(name);
        self.json.push_str(value);
    }

    /// Begins a member, behind another one or as the first of its object.
    fn push_name(&mut self, name: &str) {
        self.json.push(if self.json.is_empty() || self.json.ends_with(':') { '{' } else { ',' });
        push_string(name, &mut self.json);
        self.json.push(':');
    }

    /// Ends all objects but the outermost ones.
    fn close(&mut self, kept: usize) {
        self.json.extend(self.open.drain(kept..).map(|_| '}'));
    }

    /// Returns `None` for an object without a leaf.
    fn finish(mut self) -> Option<String> {
        self.close(0);
        (!self.json.is_empty()).then(|| self.json + "}")
    }
}
