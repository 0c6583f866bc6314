//! The forms of statistics, found by some of them.

use std::ops::Range;

use super::form::{Form, Gap, Part, parts_of};

/// With fewer files, forms take more than they spare.
const LEAST_FILES: usize = 32;
/// One of so many files is a sample, within bounds.
const FILES_PER_SAMPLE: usize = 64;
const SAMPLES: Range<usize> = 16..64;
/// Sets of keys that have forms.
const MOST_GROUPS: usize = 8;
/// Samples of which a form takes what they have in common.
const LEAST_ALIKE: usize = 8;

/// Texts with the same keys.
struct Group<'a> {
    parts: Vec<Part>,
    form: Form,
    /// The gaps of each sample.
    samples: Vec<Vec<&'a str>>,
}

/// Returns the forms of texts, of which the last one takes any text.
pub(super) fn forms<'a>(files: usize, get: impl Fn(usize) -> &'a str) -> Vec<Form> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let step = (files / (files / FILES_PER_SAMPLE).clamp(SAMPLES.start, SAMPLES.end)).max(1);
    let rows = if files < LEAST_FILES { 0..0 } else { 0..files };
    // The middle of each step: the first rows of a batch are often those of one writer.
    for text in rows.skip(step / 2).step_by(step).map(get).filter(|text| !text.is_empty()) {
        let mut gaps = Vec::new();
        let known = groups.iter_mut().find(|group| group.form.find_gaps(text.as_bytes(), &mut gaps));
        if let Some(group) = known {
            group.add(text, &gaps);
        } else if groups.len() < MOST_GROUPS {
            let parts = parts_of(text);
            if let Some(form) = Form::new(&parts)
                && form.find_gaps(text.as_bytes(), &mut gaps)
            {
                let mut group = Group { parts, form, samples: Vec::new() };
                group.add(text, &gaps);
                groups.push(group);
            }
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.samples.len()));
    let mut forms = Vec::with_capacity(2 * groups.len() + 1);
    for group in groups {
        if group.samples.len() >= LEAST_ALIKE {
            forms.extend(Form::new(&group.common_parts()));
        }
        forms.push(group.form);
    }
    forms.push(Form::whole());
    forms
}

impl<'a> Group<'a> {
    fn add(&mut self, text: &'a str, gaps: &[Range<usize>]) {
        let gaps: Option<Vec<_>> = gaps.iter().map(|gap| text.get(gap.clone())).collect();
        self.samples.extend(gaps);
    }

    /// Moves into literals what the gaps of all samples have in common.
    fn common_parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len());
        let mut literal = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            literal.push_str(&part.literal);
            let contents = || self.samples.iter().filter_map(|sample| sample.get(index).copied());
            let first = contents().next().unwrap_or_default();
            let prefix =
                &first[..contents().fold(first.len(), |length, text| common_prefix(&first[..length], text))];
            literal.push_str(prefix);
            let rests = || contents().filter_map(|text| text.get(prefix.len()..));
            let length = first.len() - prefix.len();
            if part.gap == Gap::Counted && rests().any(|rest| rest.len() != length) {
                parts.push(Part { literal: std::mem::take(&mut literal), gap: Gap::Counted });
            } else if part.gap == Gap::Rest {
                parts.push(Part { literal: std::mem::take(&mut literal), gap: Gap::Rest });
            } else if length > 0 {
                let rest = &first[prefix.len()..];
                let suffix_bytes =
                    rests().fold(length, |bytes, other| common_suffix(&rest[length - bytes..], other));
                let (varying, suffix) = rest.split_at(length - suffix_bytes);
                let gap = u8::try_from(varying.len()).map_or(Gap::Counted, Gap::Fixed);
                parts.push(Part { literal: std::mem::take(&mut literal), gap });
                literal.push_str(suffix);
            }
        }
        if !literal.is_empty() {
            parts.push(Part { literal, gap: Gap::Fixed(0) });
        }
        parts
    }
}

/// Returns the length of the longest common prefix, in whole characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b).map_or(a.len().min(b.len()), |((at, _), _)| at)
}

/// Returns the length of the longest common suffix, in whole characters.
fn common_suffix(a: &str, b: &str) -> usize {
    let alike = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
    alike.map(|(character, _)| character.len_utf8()).sum()
}
