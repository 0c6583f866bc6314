//! `add.stats` of the files of a batch, raw as in the log or escaped as in the lines of an answer.
//!
//! A cached batch is written many times and evaluated by a predicate once, so it stores its statistics escaped, and what
//! its files have in common once. All forms return the same bytes. A file without statistics equals one whose statistics are
//! empty.

use arrow_array::{Array, StringViewArray};

use super::CodedStats;
use crate::escape::{append_escaped, unescape_bytes};

/// The statistics of a batch's files, JSON each.
#[derive(Debug, Clone)]
pub enum Stats {
    /// As in the log.
    Raw(StringViewArray),
    /// Escaped, as between the quotes of a line's string: views into a commit, of which nothing is copied.
    EscapedViews(StringViewArray),
    /// Escaped, without what the files have in common.
    Coded(CodedStats),
}

/// The statistics of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StatsText<'batch> {
    Raw(&'batch str),
    Escaped(&'batch str),
    /// Of this file.
    Coded(&'batch CodedStats, usize),
}

/// Collects the statistics of some files as in the log.
#[derive(Debug)]
pub(crate) struct RawStats<'batch>(Texts<'batch>);

#[derive(Debug)]
enum Texts<'batch> {
    Kept(&'batch StringViewArray, &'batch [u32]),
    Unescaped { text: String, ends: Vec<usize> },
}

impl Stats {
    /// Returns the statistics of the file at `row`, if any.
    pub(crate) fn get(&self, row: usize) -> Option<StatsText<'_>> {
        let text = match self {
            Self::Raw(texts) => StatsText::Raw(raw_text(texts, row)),
            Self::EscapedViews(texts) => StatsText::Escaped(raw_text(texts, row)),
            Self::Coded(coded) => StatsText::Coded(coded, row),
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns about the length of the statistics of the file at `row`, not less than they have as they are stored.
    pub(crate) fn bytes_of(&self, row: usize) -> usize {
        match self {
            Self::Raw(texts) | Self::EscapedViews(texts) => {
                texts.views().get(row).map_or(0, |view| *view as u32 as usize)
            }
            Self::Coded(coded) => coded.most_bytes(row),
        }
    }

    /// Returns the statistics of the files at `rows` as in the log, in that order.
    pub(crate) fn raw_of<'batch>(&'batch self, rows: &'batch [u32]) -> RawStats<'batch> {
        RawStats(match self {
            Self::Raw(texts) => Texts::Kept(texts, rows),
            Self::Coded(coded) => unescaped(|row, out| coded.append_raw(row, out), rows),
            Self::EscapedViews(texts) => {
                unescaped(|row, out| unescape_bytes(raw_text(texts, row).as_bytes(), out), rows)
            }
        })
    }

    /// Copies the statistics of the files at `rows`.
    pub(crate) fn only(&self, rows: &[u32]) -> Self {
        let texts = self.raw_of(rows);
        StringViewArray::from_iter_values((0..rows.len()).map(|position| texts.get(position))).into()
    }

    /// Returns the statistics of all files as in the log.
    #[cfg(test)]
    pub(crate) fn into_raw(self) -> StringViewArray {
        match self {
            Self::Raw(texts) => texts,
            Self::Coded(ref coded) => self.only(&all(coded.files())).into_raw(),
            Self::EscapedViews(ref texts) => self.only(&all(texts.len())).into_raw(),
        }
    }

    /// Converts to the form of cached batches.
    #[must_use]
    pub fn coded(self) -> Self {
        match &self {
            Self::Raw(texts) => CodedStats::of(texts).map_or(self, Self::Coded),
            Self::EscapedViews(texts) => self.only(&all(texts.len())).coded(),
            Self::Coded(_) => self,
        }
    }
}

impl From<StringViewArray> for Stats {
    fn from(texts: StringViewArray) -> Self {
        Self::Raw(texts)
    }
}

fn all(files: usize) -> Vec<u32> {
    (0..files as u32).collect()
}

fn unescaped(append: impl Fn(usize, &mut Vec<u8>), rows: &[u32]) -> Texts<'static> {
    let mut text = Vec::new();
    let mut ends = Vec::with_capacity(rows.len());
    for row in rows {
        append(*row as usize, &mut text);
        ends.push(text.len());
    }
    // Unescaping makes characters of characters.
    Texts::Unescaped { text: String::from_utf8(text).unwrap_or_default(), ends }
}

impl StatsText<'_> {
    fn is_empty(self) -> bool {
        match self {
            Self::Raw(text) | Self::Escaped(text) => text.is_empty(),
            Self::Coded(coded, row) => coded.is_without(row),
        }
    }

    /// Appends the statistics as between the quotes of a JSON string.
    pub(crate) fn append_escaped(self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(text) => append_escaped(text, out),
            Self::Escaped(text) => out.extend_from_slice(text.as_bytes()),
            Self::Coded(coded, row) => coded.append_escaped(row, out),
        }
    }
}

impl RawStats<'_> {
    /// Returns the statistics of requested file number `position`; empty if it has none.
    pub(crate) fn get(&self, position: usize) -> &str {
        match &self.0 {
            Texts::Kept(texts, rows) => rows.get(position).map_or("", |row| raw_text(texts, *row as usize)),
            Texts::Unescaped { text, ends } => {
                let start = position.checked_sub(1).and_then(|before| ends.get(before));
                let range = start.copied().unwrap_or(0)..ends.get(position).copied().unwrap_or(0);
                text.get(range).unwrap_or_default()
            }
        }
    }
}

fn raw_text(texts: &StringViewArray, row: usize) -> &str {
    if row < texts.len() && texts.is_valid(row) { texts.value(row) } else { "" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line_text(stats: &Stats, row: usize) -> Option<String> {
        let mut out = Vec::new();
        stats.get(row).map(|text| text.append_escaped(&mut out))?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn statistics_are_empty_beyond_the_last_file() {
        for stats in [
            Stats::from(StringViewArray::from_iter_values(["{}"])),
            Stats::from(StringViewArray::new_null(0)),
        ] {
            for stats in [stats.clone(), stats.coded()] {
                assert!(stats.get(1).is_none());
                assert_eq!(stats.raw_of(&[1]).get(0), "");
                assert_eq!(stats.raw_of(&[0]).get(1), "");
            }
        }
    }

    proptest! {
        #[test]
        fn escaped_statistics_have_the_same_values_and_text(
            texts in prop::collection::vec(
                prop::option::of(r#"([a-z{}:,"\\/]|\\u[0-9a-f]{4}|\PC|[\x00-\x1f\u{7f}-\u{85}\u{2028}\u{2029}]){0,40}"#),
                0..20,
            ),
            chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let raw = Stats::from(texts.iter().map(Option::as_deref).collect::<StringViewArray>());
            let escaped = raw.clone().coded();
            prop_assert!(matches!(escaped, Stats::Coded(_)));
            let views = (0..texts.len()).map(|row| line_text(&raw, row)).collect::<StringViewArray>();
            let views = Stats::EscapedViews(views);
            prop_assert_eq!(
                (0..texts.len()).map(|row| line_text(&views, row)).collect::<Vec<_>>(),
                (0..texts.len()).map(|row| line_text(&raw, row)).collect::<Vec<_>>()
            );
            for escaped in [escaped, views.clone(), views.coded()] {
            for row in 0..texts.len() {
                prop_assert_eq!(line_text(&escaped, row), line_text(&raw, row));
            }
            let all: Vec<&str> = texts.iter().map(|text| text.as_deref().unwrap_or_default()).collect();
            let again = escaped.clone().into_raw();
            prop_assert_eq!(again.iter().flatten().collect::<Vec<_>>(), all);
            let rows = chosen.iter().filter(|_| !texts.is_empty()).map(|index| index.index(texts.len()) as u32);
            let rows: Vec<u32> = rows.collect();
            let (of_raw, of_escaped) = (raw.raw_of(&rows), escaped.raw_of(&rows));
            for (position, row) in rows.iter().enumerate() {
                let expected = texts[*row as usize].as_deref().unwrap_or_default();
                prop_assert_eq!(of_raw.get(position), expected);
                prop_assert_eq!(of_escaped.get(position), expected);
            }
            }
        }
    }
}
