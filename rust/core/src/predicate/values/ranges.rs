//! Sets of values as sorted cuts through an ordered domain: the values that a leaf of a predicate accepts.
//!
//! A cut is directly before a value (or, for strings, directly after one); membership toggles at each cut. Union,
//! complement and intersection are exact, so leaves of one column merge without loss.

use std::cmp::Ordering;

/// A union of intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranges<C> {
    /// Whether the least values of the domain are in the set.
    pub(crate) from_start: bool,
    /// Ascending, distinct.
    pub(crate) cuts: Vec<C>,
}

impl<C: Ord + Clone> Ranges<C> {
    pub(crate) fn all() -> Self {
        Self { from_start: true, cuts: Vec::new() }
    }

    pub(crate) fn none() -> Self {
        Self { from_start: false, cuts: Vec::new() }
    }

    /// Returns the interval between two cuts; `None` is an end of the domain.
    pub(crate) fn between(from: Option<C>, to: Option<C>) -> Self {
        match (from, to) {
            (Some(from), Some(to)) if from >= to => Self::none(),
            (from, to) => Self { from_start: from.is_none(), cuts: from.into_iter().chain(to).collect() },
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        self.from_start && self.cuts.is_empty()
    }

    pub(crate) fn is_none(&self) -> bool {
        !self.from_start && self.cuts.is_empty()
    }

    pub(crate) fn complement(mut self) -> Self {
        self.from_start = !self.from_start;
        self
    }

    /// Returns the union of all sets in `n log n`.
    pub(crate) fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            sets = sets
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => left.union(right),
                    rest => rest.first().cloned().unwrap_or_else(Self::none),
                })
                .collect();
        }
        sets.pop().unwrap_or_else(Self::none)
    }

    /// Returns whether the value directly after `cut` is in the set.
    pub(crate) fn contains(&self, cut: &C) -> bool {
        let passed = self.cuts.partition_point(|other| other <= cut);
        self.from_start ^ (passed % 2 == 1)
    }

    /// Returns whether the set has a value in an interval. The cuts directly before its first and last value define it.
    pub(crate) fn intersects(&self, first: &C, last: &C) -> bool {
        self.contains(first) || self.toggles(first, last)
    }

    /// Returns whether the set has every value of an interval.
    pub(crate) fn covers(&self, first: &C, last: &C) -> bool {
        self.contains(first) && !self.toggles(first, last)
    }

    fn toggles(&self, first: &C, last: &C) -> bool {
        let passed = self.cuts.partition_point(|cut| cut <= first);
        self.cuts.get(passed).is_some_and(|cut| cut <= last)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.from_start, other.from_start);
        let from_start = left || right;
        let mut inside = from_start;
        let mut cuts = Vec::new();
        let (mut mine, mut theirs) = (self.cuts.iter().peekable(), other.cuts.iter().peekable());
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (None, None) => return Self { from_start, cuts },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.cmp(b),
            };
            let cut = if order == Ordering::Greater { theirs.peek() } else { mine.peek() };
            let Some(cut) = cut.map(|cut| (*cut).clone()) else { return Self { from_start, cuts } };
            if order != Ordering::Greater {
                left = !left;
                mine.next();
            }
            if order != Ordering::Less {
                right = !right;
                theirs.next();
            }
            if (left || right) != inside {
                inside = !inside;
                cuts.push(cut);
            }
        }
    }
}

/// A cut directly before or after `bytes` in the byte order of strings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TextCut {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) after: bool,
}

impl TextCut {
    pub(crate) fn before(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), after: false }
    }

    pub(crate) fn after(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), after: true }
    }

    /// Returns the cut after all strings that start with `prefix`, `None` for the end of the domain.
    pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Self> {
        let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
        let mut bytes: Box<[u8]> = prefix.get(..=last)?.into();
        *bytes.last_mut()? += 1;
        Some(Self { bytes, after: false })
    }
}

/// The upper bound of a file's strings in its statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextMax<'a> {
    /// An inclusive bound.
    Value(&'a [u8]),
    /// An exclusive bound.
    Before(&'a [u8]),
    Unknown,
}

/// Returns the first eight bytes as a number. Different numbers have the order of their strings.
pub(crate) fn text_head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = bytes.len().min(head.len());
    head[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(head)
}

/// The first eight bytes of each cut. They decide most files without a comparison of strings.
#[derive(Debug)]
pub(crate) struct TextHeads {
    from_start: bool,
    cuts: Vec<u64>,
}

impl TextHeads {
    pub(crate) fn of(ranges: &Ranges<TextCut>) -> Self {
        let cuts = ranges.cuts.iter().map(|cut| text_head(&cut.bytes)).collect();
        Self { from_start: ranges.from_start, cuts }
    }

    /// Returns the same as [`Ranges::text_verdict`], `None` if eight bytes do not decide. The head of a missing minimum
    /// is 0, that of a missing maximum `u64::MAX`.
    pub(crate) fn verdict(&self, min: u64, max: u64) -> Option<(bool, bool)> {
        let passed = self.cuts.partition_point(|cut| *cut < min);
        let inside = self.from_start ^ (passed % 2 == 1);
        let toggles = match self.cuts.get(passed) {
            None => false,
            Some(cut) if *cut == min || *cut == max => return None,
            Some(cut) => *cut < max,
        };
        Some((inside || toggles, inside && !toggles))
    }
}

impl Ranges<TextCut> {
    pub(crate) fn contains_text(&self, value: &[u8]) -> bool {
        self.from_start ^ (self.cuts_passed(value) % 2 == 1)
    }

    /// Returns whether some and whether all strings between the bounds are in the set.
    pub(crate) fn text_verdict(&self, min: Option<&[u8]>, max: TextMax<'_>) -> (bool, bool) {
        let passed = min.map_or(0, |min| self.cuts_passed(min));
        let inside = self.from_start ^ (passed % 2 == 1);
        let toggles = self.cuts.get(passed).is_some_and(|cut| match max {
            TextMax::Value(max) => !cut.is_after(max),
            TextMax::Before(end) => *cut.bytes < *end,
            TextMax::Unknown => true,
        });
        (inside || toggles, inside && !toggles)
    }

    /// Returns the number of cuts before `value`.
    fn cuts_passed(&self, value: &[u8]) -> usize {
        self.cuts.partition_point(|cut| !cut.is_after(value))
    }
}

impl TextCut {
    fn is_after(&self, value: &[u8]) -> bool {
        match (*self.bytes).cmp(value) {
            Ordering::Less => false,
            Ordering::Equal => self.after,
            Ordering::Greater => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Ranges<i128>> {
        (any::<bool>(), prop::collection::btree_set(0_i128..20, 0..6))
            .prop_map(|(from_start, cuts)| Ranges { from_start, cuts: cuts.into_iter().collect() })
    }

    /// Strings of which some have equal first eight bytes.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let byte = || prop_oneof![Just(0_u8), Just(b'a'), Just(255)];
        prop_oneof![
            prop::collection::vec(byte(), 0..4),
            prop::collection::vec(byte(), 0..3).prop_map(|end| [b"commonpr".to_vec(), end].concat()),
        ]
    }

    proptest! {
        #[test]
        fn set_algebra_agrees_with_membership(a in ranges(), b in ranges(), lo in 0_i128..20, len in 0_i128..5) {
            for value in 0..20 {
                prop_assert_eq!(a.union(&b).contains(&value), a.contains(&value) || b.contains(&value));
                prop_assert_eq!(a.clone().complement().contains(&value), !a.contains(&value));
            }
            let hi = lo + len;
            prop_assert_eq!(a.intersects(&lo, &hi), (lo..=hi).any(|value| a.contains(&value)));
            prop_assert_eq!(a.covers(&lo, &hi), (lo..=hi).all(|value| a.contains(&value)));
        }

        #[test]
        fn heads_decide_as_whole_strings_do(
            cuts in prop::collection::btree_set((texts(), any::<bool>()), 0..5),
            from_start in any::<bool>(),
            bounds in (prop::option::of(texts()), prop::option::of(texts()), any::<bool>()),
        ) {
            let cuts = cuts.into_iter().map(|(bytes, after)| TextCut { bytes: bytes.into(), after }).collect();
            let ranges = Ranges { from_start, cuts };
            let (min, max, is_before) = bounds;
            let verdict = TextHeads::of(&ranges).verdict(
                min.as_deref().map_or(0, text_head),
                max.as_deref().map_or(u64::MAX, text_head),
            );
            let max = match max.as_deref() {
                None => TextMax::Unknown,
                Some(max) if is_before => TextMax::Before(max),
                Some(max) => TextMax::Value(max),
            };
            if let Some(verdict) = verdict {
                prop_assert_eq!(verdict, ranges.text_verdict(min.as_deref(), max));
            }
        }

        #[test]
        fn the_cut_after_a_prefix_parts_those_with_it_from_those_above(
            prefix in prop::collection::vec(prop_oneof![Just(0_u8), Just(254), Just(255)], 0..4),
            other in prop::collection::vec(prop_oneof![Just(0_u8), Just(254), Just(255)], 0..6),
        ) {
            let above = TextCut::after_prefix(&prefix).is_some_and(|cut| TextCut::before(&other) >= cut);
            prop_assert_eq!(above, other > prefix && !other.starts_with(&prefix));
        }
    }
}
