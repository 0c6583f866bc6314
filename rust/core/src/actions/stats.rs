//! `add.stats` of the files of a batch, raw as in the log or escaped as in the lines of an answer.
//!
//! A cached batch is written many times and evaluated by a predicate once, so it stores its statistics escaped, in one
//! text. Both forms return the same bytes. A file without statistics equals one whose statistics are empty.

use arrow_array::{Array, StringViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use crate::escape::{append_escaped, unescape_bytes};

/// The statistics of a batch's files, JSON each.
#[derive(Debug, Clone)]
pub enum Stats {
    /// As in the log.
    Raw(StringViewArray),
    /// Escaped, as between the quotes of a line's string.
    Escaped(EscapedStats),
    /// As `Escaped`, as views into a commit, of which nothing is copied.
    EscapedViews(StringViewArray),
}

/// Escaped statistics, concatenated.
#[derive(Debug, Clone)]
pub struct EscapedStats {
    /// UTF-8.
    text: Buffer,
    /// The start of the statistics of each file, and the end of the last ones.
    starts: ScalarBuffer<u32>,
}

/// The statistics of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StatsText<'batch> {
    Raw(&'batch str),
    /// UTF-8.
    Escaped(&'batch [u8]),
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
            Self::Escaped(escaped) => StatsText::Escaped(escaped.get(row)),
            Self::EscapedViews(texts) => StatsText::Escaped(raw_text(texts, row).as_bytes()),
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns the length of the statistics of the file at `row`, in their current form.
    pub(crate) fn bytes_of(&self, row: usize) -> usize {
        match self {
            Self::Raw(texts) | Self::EscapedViews(texts) => {
                texts.views().get(row).map_or(0, |view| *view as u32 as usize)
            }
            Self::Escaped(escaped) => escaped.get(row).len(),
        }
    }

    /// Returns the statistics of the files at `rows` as in the log, in that order.
    pub(crate) fn raw_of<'batch>(&'batch self, rows: &'batch [u32]) -> RawStats<'batch> {
        RawStats(match self {
            Self::Raw(texts) => Texts::Kept(texts, rows),
            Self::Escaped(escaped) => unescaped(|row| escaped.get(row), rows),
            Self::EscapedViews(texts) => unescaped(|row| raw_text(texts, row).as_bytes(), rows),
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
            Self::Escaped(ref escaped) => {
                let rows: Vec<u32> = (1..escaped.starts.len() as u32).map(|end| end - 1).collect();
                self.only(&rows).into_raw()
            }
            Self::EscapedViews(ref texts) => {
                let rows: Vec<u32> = (0..texts.len() as u32).collect();
                self.only(&rows).into_raw()
            }
        }
    }

    /// Converts to the form of cached batches.
    #[must_use]
    pub fn escaped(self) -> Self {
        match &self {
            Self::Raw(texts) => EscapedStats::of(texts, append_escaped),
            Self::EscapedViews(texts) => EscapedStats::of(texts, |text, out| out.extend(text.as_bytes())),
            Self::Escaped(_) => None,
        }
        .map_or(self, Self::Escaped)
    }
}

impl From<StringViewArray> for Stats {
    fn from(texts: StringViewArray) -> Self {
        Self::Raw(texts)
    }
}

impl EscapedStats {
    /// Returns `None` if the text exceeds the range of offsets.
    fn of(texts: &StringViewArray, append: impl Fn(&str, &mut Vec<u8>)) -> Option<Self> {
        let raw_bytes: usize = (0..texts.len()).map(|row| raw_text(texts, row).len()).sum();
        // A sixth of usual statistics are quotes.
        let mut text = Vec::with_capacity(raw_bytes + raw_bytes / 4);
        let mut starts = Vec::with_capacity(texts.len() + 1);
        starts.push(0);
        for row in 0..texts.len() {
            append(raw_text(texts, row), &mut text);
            starts.push(u32::try_from(text.len()).ok()?);
        }
        text.shrink_to_fit();
        Some(Self { text: text.into(), starts: starts.into() })
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.starts.inner().capacity()
    }

    /// The texts of all files and their starts, with the end of the last one.
    pub(crate) fn parts(&self) -> (&Buffer, &ScalarBuffer<u32>) {
        (&self.text, &self.starts)
    }

    /// Returns `None` if `starts` are not ascending positions of characters in `text`, which is UTF-8.
    pub(crate) fn of_parts(text: Buffer, starts: ScalarBuffer<u32>) -> Option<Self> {
        let valid = simdutf8::basic::from_utf8(&text).ok()?;
        let is_ascending = starts.windows(2).all(|pair| pair[0] <= pair[1]);
        let are_characters = starts.iter().all(|start| valid.is_char_boundary(*start as usize));
        let is_whole =
            starts.first() == Some(&0) && starts.last().is_some_and(|end| *end as usize == text.len());
        (is_ascending && are_characters && is_whole).then_some(Self { text, starts })
    }

    fn get(&self, row: usize) -> &[u8] {
        match self.starts.get(row..) {
            Some([start, end, ..]) => self.text.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

fn unescaped<'text>(get: impl Fn(usize) -> &'text [u8], rows: &[u32]) -> Texts<'static> {
    let mut text = Vec::new();
    let mut ends = Vec::with_capacity(rows.len());
    for row in rows {
        unescape_bytes(get(*row as usize), &mut text);
        ends.push(text.len());
    }
    // Unescaping makes characters of characters.
    Texts::Unescaped { text: String::from_utf8(text).unwrap_or_default(), ends }
}

impl StatsText<'_> {
    fn is_empty(self) -> bool {
        match self {
            Self::Raw(text) => text.is_empty(),
            Self::Escaped(text) => text.is_empty(),
        }
    }

    /// Appends the statistics as between the quotes of a JSON string.
    pub(crate) fn append_escaped(self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(text) => append_escaped(text, out),
            Self::Escaped(text) => out.extend_from_slice(text),
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
            for stats in [stats.clone(), stats.escaped()] {
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
            let escaped = raw.clone().escaped();
            prop_assert!(matches!(escaped, Stats::Escaped(_)));
            let views = (0..texts.len()).map(|row| line_text(&raw, row)).collect::<StringViewArray>();
            let views = Stats::EscapedViews(views);
            prop_assert_eq!(
                (0..texts.len()).map(|row| line_text(&views, row)).collect::<Vec<_>>(),
                (0..texts.len()).map(|row| line_text(&raw, row)).collect::<Vec<_>>()
            );
            for escaped in [escaped, views.clone(), views.escaped()] {
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
