//! The places of tuples whose values are short, found by the views of their strings.
//!
//! A view of at most [`MAX_INLINE_BYTES`] bytes holds the string itself, so equal views are equal strings, also of
//! different arrays. A checkpoint has a tuple in each row: to compare some integers costs a fraction of what it costs
//! to place, hash and compare the strings.

use std::hash::{BuildHasher, Hasher};

use arrow_array::builder::make_view;
use foldhash::fast::RandomState;

use super::PlaceIndex;

/// The length of the longest string that a view holds itself (Arrow columnar format, section Variable-size Binary View
/// Layout).
const MAX_INLINE_BYTES: u32 = 12;

/// The tuples of a dictionary by the views of their values.
#[derive(Debug)]
pub(super) struct InlineTuples {
    /// The views of the partition columns' names.
    names: Box<[u128]>,
    index: PlaceIndex,
    /// The values of each tuple, one after another.
    views: Vec<u128>,
    /// The place of each tuple in the dictionary.
    places: Vec<u32>,
}

impl InlineTuples {
    /// Returns `None` for names that no view holds, and for no names.
    pub(super) fn new(names: &[Box<str>]) -> Option<Self> {
        let names: Box<[u128]> = names.iter().map(|name| make_view(name.as_bytes(), 0, 0)).collect();
        let is_usable = !names.is_empty() && names.iter().copied().all(is_inline);
        is_usable.then(|| Self { names, index: PlaceIndex::default(), views: Vec::new(), places: Vec::new() })
    }

    pub(super) fn clear(&mut self) {
        self.index = PlaceIndex::default();
        self.views = Vec::new();
        self.places = Vec::new();
    }

    /// Returns a hash of the values; `None` if the keys are not the columns in their order, or a value is long.
    pub(super) fn hash(&self, keys: &[u128], values: &[u128], hasher: &RandomState) -> Option<u64> {
        if *keys != *self.names || !values.iter().copied().all(is_inline) {
            return None;
        }
        let mut hasher = hasher.build_hasher();
        for value in values {
            hasher.write_u128(*value);
        }
        Some(hasher.finish())
    }

    /// Returns the place of the tuple with these values. `hash` is theirs.
    pub(super) fn find(&self, hash: u64, values: &[u128]) -> Option<u32> {
        let width = self.names.len();
        let tuple_number = self.index.find(hash, |tuple| self.views[tuple * width..][..width] == *values)?;
        Some(self.places[tuple_number as usize])
    }

    /// Adds a tuple that [`Self::find`] does not find.
    pub(super) fn insert(&mut self, hash: u64, values: &[u128], place: u32) {
        self.index.insert(hash, self.places.len() as u32);
        self.views.extend_from_slice(values);
        self.places.push(place);
    }
}

fn is_inline(view: u128) -> bool {
    // The low half of a view's first word is the length.
    view as u32 <= MAX_INLINE_BYTES
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, StringViewArray};
    use proptest::prelude::*;

    use crate::partition::PartitionInterner;

    /// The names of a map's keys, some of them not partition columns, and its values: absent, short and long ones.
    fn maps() -> impl Strategy<Value = Vec<Vec<(String, Option<String>)>>> {
        let in_order = prop::collection::vec(prop::option::weighted(0.9, "[ab\u{e9}]{0,2}|[ab]{11,14}"), 2)
            .prop_map(|values| ["day", "twelve bytes"].map(String::from).into_iter().zip(values).collect());
        let any = prop::collection::vec(
            ("day|twelve bytes|other", prop::option::of("[ab]{0,2}|[ab]{11,14}")),
            0..4,
        );
        prop::collection::vec(prop_oneof![4 => in_order, 1 => any], 0..120)
    }

    proptest! {
        #[test]
        fn views_give_the_tuples_of_their_strings(files in maps()) {
            let mut expected = PartitionInterner::new(&["day", "twelve bytes"]);
            let mut interner = PartitionInterner::new(&["day", "twelve bytes"]);
            for batch in files.chunks(29) {
                let mut by_strings = expected.column(batch.len());
                let mut by_views = interner.column(batch.len());
                for map in batch {
                    let entries = || map.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
                    by_strings.push_entries(entries());
                    let keys: StringViewArray = map.iter().map(|(key, _)| Some(key)).collect();
                    let values: StringViewArray = map.iter().map(|(_, value)| value.as_ref()).collect();
                    if values.null_count() > 0 {
                        by_views.push_entries(entries());
                    } else {
                        by_views.push_views(keys.views(), values.views(), entries());
                    }
                }
                let (found, expected) = (by_views.finish(), by_strings.finish());
                prop_assert_eq!(&found.keys, &expected.keys);
                prop_assert_eq!(&found.dictionary, &expected.dictionary);
            }
        }
    }

    #[test]
    fn a_tuple_is_found_by_its_views_alone_until_the_dictionary_is_replaced() {
        let mut interner = PartitionInterner::new(&["day"]);
        let keys = StringViewArray::from(vec!["day"]);
        let pushed = |interner: &mut PartitionInterner, value: &str, read: &str| {
            let mut column = interner.column(1);
            let values = StringViewArray::from(vec![value]);
            column.push_views(keys.views(), values.views(), [("day", Some(read))]);
            let column = column.finish();
            column.dictionary[column.keys[0] as usize].values[0].as_deref().map(str::to_owned)
        };
        assert_eq!(pushed(&mut interner, "2026-01-01", "2026-01-01").as_deref(), Some("2026-01-01"));
        // The strings are not read again.
        assert_eq!(pushed(&mut interner, "2026-01-01", "other").as_deref(), Some("2026-01-01"));
        assert_eq!(pushed(&mut interner, "2026-01-01 10:20", "other").as_deref(), Some("other"));
        let mut large = interner.column(0);
        (0..=super::super::MAX_TUPLES).for_each(|number| large.push(&[Some(&number.to_string())]));
        assert_eq!(pushed(&mut interner, "2026-01-01", "other").as_deref(), Some("other"));
    }
}
