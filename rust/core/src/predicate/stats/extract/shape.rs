//! The keys and punctuation of a text of statistics, with gaps for its values.
//!
//! A text of the shape has the values of the same columns in the same gaps, if each gap holds one value and nothing else. So
//! shapes are made of valid JSON without escapes only, and a gap with a byte that ends or begins another value is refused.

use memchr::memchr;
use serde::de::IgnoredAny;

use super::{FileStats, Place, Target, scalar};
use crate::actions::form::{Form, Part, is_of_scalar, parts_of};
use crate::json_scanner::Scanner;

#[derive(Debug)]
pub(super) struct Shape {
    form: Form,
    /// One for each part of the form.
    gaps: Vec<Gap>,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    kind: Kind,
    target: Option<Target>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Between quotes.
    Text,
    /// A number, `true`, `false` or `null`.
    Word,
    /// Nothing, after the last value.
    End,
}

impl Shape {
    /// Returns the shape of a text with values at `places`. `None` if other texts with its keys cannot be told by it.
    pub(super) fn of(json: &str, places: &[Place], columns: usize) -> Option<Self> {
        if memchr(b'\\', json.as_bytes()).is_some() || serde_json::from_str::<IgnoredAny>(json).is_err() {
            return None;
        }
        let parts = parts_of(json);
        let kinds = kinds_of(&parts)?;
        let form = Form::new(&parts)?;
        let (mut gaps, mut kinds) = (Vec::with_capacity(parts.len()), kinds.iter());
        let mut places = places.iter().peekable();
        let is_known = form.walk(json.as_bytes(), |_, rest, _| {
            let Some(kind) = kinds.next() else { return false };
            let position = kind.value_at(json.len() - rest.len());
            let target = places.next_if(|(place, _)| *place == position).map(|(_, target)| *target);
            gaps.push(Gap { kind: *kind, target });
            true
        });
        let shape = Self { form, gaps };
        let mut stats = FileStats::default();
        stats.reset(columns);
        // A value that is a container has no gap.
        (is_known && places.next().is_none() && shape.read(json, &mut stats)).then_some(shape)
    }

    /// Reads a text into `stats`; returns false if it has another shape, when some values may have been read.
    pub(super) fn read<'a>(&self, json: &'a str, stats: &mut FileStats<'a>) -> bool {
        let mut gaps = self.gaps.iter();
        self.form.walk(json.as_bytes(), |_, rest, length| {
            let Some(Gap { kind, target }) = gaps.next() else { return false };
            if !kind.holds(&rest[..length]) {
                return false;
            }
            let Some(target) = target else { return true };
            let position = kind.value_at(json.len() - rest.len());
            let value = scalar(&mut Scanner { json, position });
            value.map(|value| stats.set(*target, value)).is_some()
        })
    }
}

impl Kind {
    /// Returns the position of the value whose gap begins at `gap`.
    fn value_at(self, gap: usize) -> usize {
        gap - usize::from(self == Self::Text)
    }

    /// Returns whether a gap, which ends before the shape's next literal, holds one value of the kind. A text has no quote:
    /// its gap ends before the first.
    fn holds(self, content: &[u8]) -> bool {
        match self {
            Self::Text => memchr(b'\\', content).is_none(),
            Self::Word => !content.is_empty() && content.iter().all(|byte| is_of_scalar(*byte)),
            Self::End => content.is_empty(),
        }
    }
}

/// Returns the kinds of the gaps of valid JSON without escapes; `None` if a gap is a key.
fn kinds_of(parts: &[Part]) -> Option<Vec<Kind>> {
    let mut kinds = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let Some(next) = parts.get(index + 1) else {
            kinds.push(Kind::End);
            break;
        };
        let is_text = part.literal.ends_with('"');
        if is_text && next.literal.strip_prefix('"')?.trim_start().starts_with(':') {
            return None;
        }
        kinds.push(if is_text { Kind::Text } else { Kind::Word });
    }
    Some(kinds)
}
