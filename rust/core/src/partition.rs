//! Partition values as a dictionary: many files, few distinct tuples.
//!
//! Takes the `partitionValues` of adds. Returns [`PartitionColumn`]s whose tuples hold their values in the order of
//! `metaData.partitionColumns` and their encoded JSON. Batches share one dictionary while it is small. A returned batch
//! never changes: a dictionary with readers is copied before it grows.

mod inline_tuples;
mod timestamps;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::actions::{PartitionColumn, PartitionTuple};
use crate::escape::{object_text, push_string};
use crate::schema::PartitionNames;
use inline_tuples::InlineTuples;

pub(crate) use timestamps::PartitionTimestamps;

/// Number of tuples after which the next batch starts a new dictionary.
const MAX_TUPLES: usize = 65_536;
/// Bytes of values and JSON after which the next batch starts a new dictionary.
const MAX_TUPLE_BYTES: usize = 16 << 20;

/// Encodes the partition values of a stream of files.
#[derive(Debug)]
pub struct PartitionInterner {
    names: PartitionNames,
    /// `"name":` of each column, escaped once; the first begins with `{`, the others with `,`.
    json_prefixes: Box<[Box<str>]>,
    keeps_logged: bool,
    dictionary: Arc<Vec<Arc<PartitionTuple>>>,
    index: PlaceIndex,
    inline: Option<InlineTuples>,
    bytes: usize,
    hasher: RandomState,
}

impl PartitionInterner {
    /// `log_names`: the partition columns in the order of `metaData.partitionColumns`, by the names that the
    /// log's `partitionValues` are keyed by (physical names where column mapping is on).
    #[must_use]
    pub fn new<S: AsRef<str>>(log_names: &[S]) -> Self {
        let columns = log_names.iter().map(|name| Box::from(name.as_ref())).collect();
        Self::of(PartitionNames { columns, left_behind: Arc::default() })
    }

    /// Where the schema has names left behind, a value is found by this name, as Spark finds it, or else by the column's
    /// own. Answers have the column's own name alone, as their schema has no other.
    pub(crate) fn of(names: PartitionNames) -> Self {
        let json_prefixes = names
            .columns
            .iter()
            .enumerate()
            .map(|(column, name)| {
                let mut prefix = String::from(if column == 0 { "{" } else { "," });
                push_string(name, &mut prefix);
                prefix.push(':');
                prefix.into_boxed_str()
            })
            .collect();
        // Its keys are the columns' names in their order.
        let inline = if names.left_behind.is_empty() { InlineTuples::new(&names.columns) } else { None };
        Self {
            names,
            json_prefixes,
            keeps_logged: false,
            dictionary: Arc::default(),
            index: PlaceIndex::default(),
            inline,
            bytes: 0,
            hasher: RandomState::default(),
        }
    }

    /// Keeps [`PartitionTuple::logged_json`] of maps whose keys are not the partition columns.
    #[must_use]
    pub fn keeping_logged(self) -> Self {
        Self { keeps_logged: true, ..self }
    }

    /// The names given to [`Self::new`].
    #[must_use]
    pub fn log_names(&self) -> &Arc<[Box<str>]> {
        &self.names.columns
    }

    pub(crate) fn names(&self) -> &PartitionNames {
        &self.names
    }

    /// Starts the column of one batch. A dictionary that is too large is replaced.
    pub fn column(&mut self, capacity: usize) -> PartitionColumnBuilder<'_> {
        if self.dictionary.len() > MAX_TUPLES || self.bytes > MAX_TUPLE_BYTES {
            self.dictionary = Arc::default();
            self.index = PlaceIndex::default();
            if let Some(inline) = &mut self.inline {
                inline.clear();
            }
            self.bytes = 0;
        }
        let scratch = vec![None; self.names.columns.len()];
        PartitionColumnBuilder { interner: self, keys: Vec::with_capacity(capacity), scratch }
    }

    fn intern(&mut self, values: &[Option<&str>], logged_json: Option<&str>) -> u32 {
        let hash = self.hash(values, logged_json);
        let is_same = |position: usize| is_same_tuple(&self.dictionary[position], values, logged_json);
        if let Some(position) = self.index.find(hash, is_same) {
            return position;
        }
        let tuple = PartitionTuple {
            logged_json: logged_json.map(|json| json.as_bytes().into()),
            ..self.tuple(values)
        };
        self.bytes += tuple.json.len()
            + logged_json.map_or(0, str::len)
            + tuple.values.iter().flatten().map(|value| value.len()).sum::<usize>();
        let position = self.dictionary.len() as u32;
        Arc::make_mut(&mut self.dictionary).push(Arc::new(tuple));
        self.index.insert(hash, position);
        position
    }

    fn hash(&self, values: &[Option<&str>], logged_json: Option<&str>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for value in values {
            // The length distinguishes ("ab","c") from ("a","bc"), and null from an empty string.
            hasher.write_usize(value.map_or(usize::MAX, str::len));
            hasher.write(value.unwrap_or_default().as_bytes());
        }
        if let Some(json) = logged_json {
            hasher.write(json.as_bytes());
        }
        hasher.finish()
    }

    fn tuple(&self, values: &[Option<&str>]) -> PartitionTuple {
        let mut json = String::new();
        for (prefix, value) in self.json_prefixes.iter().zip(values) {
            json.push_str(prefix);
            match value {
                Some(value) => push_string(value, &mut json),
                None => json.push_str("null"),
            }
        }
        json.push_str(if values.is_empty() { "{}" } else { "}" });
        PartitionTuple {
            values: values.iter().map(|value| value.map(Box::from)).collect(),
            json: json.into_bytes().into_boxed_slice(),
            logged_json: None,
        }
    }
}

/// The partition values of one batch, in construction.
#[derive(Debug)]
pub struct PartitionColumnBuilder<'a> {
    interner: &'a mut PartitionInterner,
    keys: Vec<u32>,
    scratch: Vec<Option<&'static str>>,
}

impl PartitionColumnBuilder<'_> {
    /// Adds a file with values in the order of the partition columns; missing ones are null. An empty string is null
    /// for every type (PROTOCOL, section Partition Value Serialization).
    pub fn push(&mut self, values: &[Option<&str>]) {
        self.push_each(|column| values.get(column).copied().flatten());
    }

    /// Adds a file by its `partitionValues` map: absent keys are null, unknown keys are ignored, the last of
    /// duplicate keys wins.
    pub fn push_entries<'v>(&mut self, entries: impl IntoIterator<Item = (&'v str, Option<&'v str>)>) {
        if !self.interner.names.left_behind.is_empty() {
            let entries: Vec<_> = entries.into_iter().collect();
            return self.push_logged(entries.into_iter());
        }
        let mut values = self.take_scratch();
        place_entries(&self.interner.names.columns, entries, &mut values);
        let key = self.interner.intern(&values, None);
        self.finish_row(key, values);
    }

    /// Adds a file as [`Self::push_entries`] does, by the views of its map's keys and values too. No value may be null:
    /// the view of a null is not defined.
    pub fn push_views<'v>(
        &mut self,
        keys: &[u128],
        values: &[u128],
        entries: impl IntoIterator<Item = (&'v str, Option<&'v str>)>,
    ) {
        let hash = self.interner.inline.as_ref().and_then(|tuples| {
            let hash = tuples.hash(keys, values, &self.interner.hasher)?;
            Some((hash, tuples.find(hash, values)))
        });
        match hash {
            Some((_, Some(place))) => self.keys.push(place),
            Some((hash, None)) => {
                self.push_entries(entries);
                if let (Some(place), Some(tuples)) = (self.keys.last(), &mut self.interner.inline) {
                    tuples.insert(hash, values, *place);
                }
            }
            None => self.push_entries(entries),
        }
    }

    /// Adds a file as [`Self::push_entries`] does. Also keeps the map of the log if the interner does
    /// ([`PartitionInterner::keeping_logged`]) and the keys are not the partition columns.
    pub fn push_logged<'v>(&mut self, entries: impl Iterator<Item = (&'v str, Option<&'v str>)> + Clone) {
        let mut values = self.take_scratch();
        let PartitionNames { columns, left_behind } = &self.interner.names;
        let mut has_all = place_entries(columns, entries.clone(), &mut values);
        if !left_behind.is_empty() {
            place_entries(left_behind, entries.clone(), &mut values);
            has_all = has_all_by_either(columns, left_behind, entries.clone());
        }
        let logged_json = (self.interner.keeps_logged && !has_all).then(|| object_text(entries));
        let key = self.interner.intern(&values, logged_json.as_deref());
        self.finish_row(key, values);
    }

    /// Returns the finished column.
    #[must_use]
    pub fn finish(self) -> PartitionColumn {
        PartitionColumn { dictionary: Arc::clone(&self.interner.dictionary), keys: self.keys.into() }
    }

    fn push_each<'v>(&mut self, value_of: impl Fn(usize) -> Option<&'v str>) {
        let mut values = self.take_scratch();
        for (column, value) in values.iter_mut().enumerate() {
            *value = value_of(column).filter(|value| !value.is_empty());
        }
        let key = self.interner.intern(&values, None);
        self.finish_row(key, values);
    }

    fn take_scratch<'v>(&mut self) -> Vec<Option<&'v str>> {
        // Collecting in place reuses the allocation under another lifetime.
        std::mem::take(&mut self.scratch).into_iter().map(|_| None).collect()
    }

    fn finish_row(&mut self, key: u32, values: Vec<Option<&str>>) {
        self.keys.push(key);
        self.scratch = values.into_iter().map(|_| None).collect();
    }
}

/// Sets the values of the columns that `entries` name. False if the entries are not one for each of `names`.
fn place_entries<'v>(
    names: &[Box<str>],
    entries: impl IntoIterator<Item = (&'v str, Option<&'v str>)>,
    values: &mut [Option<&'v str>],
) -> bool {
    let (mut known, mut unknown) = (0, 0);
    for (position, (key, value)) in entries.into_iter().enumerate() {
        // Writers keep the order of the columns, so the column is mostly found at the first look.
        let column = match names.get(position) {
            Some(name) if **name == *key => Some(position),
            _ => names.iter().position(|name| **name == *key),
        };
        if let Some(column) = column {
            values[column] = value.filter(|value| !value.is_empty());
            known += 1;
        } else {
            unknown += 1;
        }
    }
    known == names.len() && unknown == 0
}

/// Returns whether the entries are for each column, by one name or the other, and for nothing else.
fn has_all_by_either<'v>(
    names: &[Box<str>],
    others: &[Box<str>],
    entries: impl Iterator<Item = (&'v str, Option<&'v str>)> + Clone,
) -> bool {
    let mut keys = entries.map(|(key, _)| key);
    let mut pairs = names.iter().zip(others);
    pairs.all(|(name, other)| keys.clone().any(|key| key == &**name || key == &**other))
        && keys.all(|key| names.iter().chain(others).any(|name| **name == *key))
}

fn is_same_tuple(tuple: &PartitionTuple, values: &[Option<&str>], logged_json: Option<&str>) -> bool {
    tuple.logged_json.as_deref() == logged_json.map(str::as_bytes)
        && tuple.values.iter().map(Option::as_deref).eq(values.iter().copied())
}

/// Hashes to places in the dictionary: linear probing, at most half full. The tuples stay in the dictionary
/// alone, which a map keyed by borrowed tuples cannot offer.
#[derive(Debug, Default)]
struct PlaceIndex {
    /// `place + 1` and the hash; zero is free. The length is a power of two.
    slots: Vec<(u32, u64)>,
    filled: usize,
}

impl PlaceIndex {
    fn find(&self, hash: u64, is_match: impl Fn(usize) -> bool) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        loop {
            let (position, found) = self.slots[slot];
            if position == 0 {
                return None;
            }
            if found == hash && is_match(position as usize - 1) {
                return Some(position - 1);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn insert(&mut self, hash: u64, position: u32) {
        if self.slots.len() < 2 * (self.filled + 1) {
            let doubled = vec![(0, 0); (2 * self.slots.len()).max(16)];
            for (position, hash) in std::mem::replace(&mut self.slots, doubled) {
                if position != 0 {
                    self.put(hash, position);
                }
            }
        }
        self.put(hash, position + 1);
        self.filled += 1;
    }

    fn put(&mut self, hash: u64, position: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].0 != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = (position, hash);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn json_of(column: &PartitionColumn, file: usize) -> &str {
        std::str::from_utf8(&column.dictionary[column.keys[file] as usize].json).unwrap()
    }

    #[test]
    fn an_unpartitioned_table_has_one_empty_tuple() {
        let mut interner = PartitionInterner::new::<&str>(&[]);
        let mut column = interner.column(2);
        column.push(&[]);
        column.push_entries([("unknown", Some("x"))]);
        let column = column.finish();
        assert_eq!(column.keys, [0, 0]);
        assert_eq!(json_of(&column, 0), "{}");
    }

    #[test]
    fn absent_keys_and_empty_strings_are_null_and_unknown_keys_are_ignored() {
        let mut interner = PartitionInterner::new(&["day", "city"]);
        let mut column = interner.column(4);
        column.push_entries([("city", Some("Oslo")), ("other", Some("x")), ("day", Some(""))]);
        column.push_entries([("city", Some("Oslo"))]);
        column.push(&[None, Some("Oslo")]);
        column.push_entries([("day", Some("a")), ("day", Some("2024-01-01")), ("city", None)]);
        let column = column.finish();
        assert_eq!(column.keys, [0, 0, 0, 1]);
        assert_eq!(json_of(&column, 0), r#"{"day":null,"city":"Oslo"}"#);
        assert_eq!(json_of(&column, 3), r#"{"day":"2024-01-01","city":null}"#);
    }

    #[test]
    fn values_are_also_found_by_names_that_a_mapping_left_behind() {
        let shared = |names: [&str; 2]| Arc::from(names.map(Box::from));
        let names = PartitionNames { columns: shared(["p", "q"]), left_behind: shared(["col-1", "q"]) };
        for (entries, expected, is_logged) in [
            (vec![("p", Some("u")), ("q", Some("x"))], r#"{"p":"u","q":"x"}"#, false),
            (vec![("col-1", Some("u")), ("q", Some("x"))], r#"{"p":"u","q":"x"}"#, false),
            (vec![("q", Some("x")), ("col-1", Some("u")), ("p", Some("a"))], r#"{"p":"u","q":"x"}"#, false),
            (vec![("p", Some("a")), ("col-1", None), ("q", None)], r#"{"p":null,"q":null}"#, false),
            (vec![("q", Some("x"))], r#"{"p":null,"q":"x"}"#, true),
            (vec![("col-1", Some("u")), ("q", None), ("r", Some("x"))], r#"{"p":"u","q":null}"#, true),
        ] {
            let mut interner = PartitionInterner::of(names.clone()).keeping_logged();
            let mut column = interner.column(3);
            column.push_logged(entries.iter().copied());
            column.push_entries(entries.clone());
            column.push_views(&[], &[], entries.clone());
            let column = column.finish();
            assert_eq!(column.keys, [0, 0, 0]);
            assert_eq!(json_of(&column, 0), expected, "{entries:?}");
            assert_eq!(column.dictionary[0].logged_json.is_some(), is_logged, "{entries:?}");
        }
    }

    #[test]
    fn line_breaks_and_quotes_are_escaped() {
        let mut interner = PartitionInterner::new(&["a\"b"]);
        let mut column = interner.column(1);
        column.push(&[Some("\u{1}\n\t\r\\\"/\u{85}\u{2028}\u{2029}é\u{7f}😀")]);
        let column = column.finish();
        assert_eq!(
            json_of(&column, 0),
            "{\"a\\\"b\":\"\\u0001\\n\\t\\r\\\\\\\"/\\u0085\\u2028\\u2029é\u{7f}😀\"}"
        );
    }

    #[test]
    fn a_column_that_was_handed_out_does_not_change_when_the_dictionary_grows() {
        let mut interner = PartitionInterner::new(&["a"]);
        let mut first = interner.column(1);
        first.push(&[Some("x")]);
        let first = first.finish();
        let mut second = interner.column(2);
        second.push(&[Some("y")]);
        second.push(&[Some("x")]);
        let second = second.finish();
        assert_eq!(first.dictionary.len(), 1);
        assert_eq!(second.keys, [1, 0]);
        assert!(Arc::ptr_eq(&first.dictionary[0], &second.dictionary[0]));
    }

    #[test]
    fn a_dictionary_that_is_too_large_is_replaced_between_batches_only() {
        let mut interner = PartitionInterner::new(&["a"]);
        let mut large = interner.column(0);
        for number in 0..=MAX_TUPLES + 10 {
            large.push(&[Some(&number.to_string())]);
        }
        let large = large.finish();
        assert_eq!(large.dictionary.len(), MAX_TUPLES + 11);
        let mut next = interner.column(1);
        next.push(&[Some("7")]);
        let next = next.finish();
        assert_eq!((next.dictionary.len(), next.keys[0]), (1, 0));
        assert_eq!(large.dictionary[7].values[0].as_deref(), Some("7"));
    }

    proptest! {
        #[test]
        fn keys_and_json_agree_with_a_map_of_strings(
            files in prop::collection::vec(prop::collection::vec(prop::option::of("[ab\"\u{2028}]{0,2}"), 3), 0..200)
        ) {
            let mut interner = PartitionInterner::new(&["x", "y", "z"]);
            let mut seen: HashMap<Vec<Option<String>>, u32> = HashMap::new();
            for batch in files.chunks(37) {
                let mut column = interner.column(batch.len());
                for file in batch {
                    column.push(&file.iter().map(Option::as_deref).collect::<Vec<_>>());
                }
                let column = column.finish();
                for (file, key) in batch.iter().zip(&column.keys) {
                    let values: Vec<_> = file.iter().cloned().map(|v| v.filter(|v| !v.is_empty())).collect();
                    let next = seen.len() as u32;
                    prop_assert_eq!(*seen.entry(values.clone()).or_insert(next), *key);
                    let json: serde_json::Value = serde_json::from_slice(&column.dictionary[*key as usize].json).unwrap();
                    prop_assert_eq!(json, serde_json::json!({"x": values[0], "y": values[1], "z": values[2]}));
                }
            }
        }
    }
}
