//! A text with gaps, and the records of texts that have its form.

use std::ops::Range;
use std::slice::Iter;

use super::{GAP_STEP, LITERAL_STEP};
use crate::escape::append_escaped;

/// Lengths of gaps and numbers of forms are below this.
const LIMIT: usize = 128;
const MOST_GAPS: usize = 1024;
/// Bytes of the literals of a form, escaped.
const MOST_LITERAL_BYTES: usize = 1 << 16;

/// The part after a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Has this length in all texts.
    Fixed(u8),
    /// Has its length in the record.
    Counted,
    /// Takes the rest of the text, only as the last gap.
    Rest,
}

impl Gap {
    #[inline]
    pub(super) fn length(self, lengths: &mut Iter<'_, u8>, rest: usize) -> usize {
        match self {
            Self::Fixed(length) => usize::from(length),
            Self::Counted => lengths.next().map_or(0, |length| usize::from(*length)),
            Self::Rest => rest,
        }
    }
}

/// A literal, as in the log, and the gap after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) literal: String,
    pub(super) gap: Gap,
}

/// Lengths of a literal, and the gap after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) escaped: usize,
    pub(super) raw: usize,
    pub(super) gap: Gap,
}

#[derive(Debug)]
pub(super) struct Form {
    steps: Vec<Step>,
    /// The literals one after the other, with padding.
    escaped: Vec<u8>,
    raw: Vec<u8>,
    /// The number of gaps whose lengths records have.
    counted: usize,
}

impl Form {
    /// Returns `None` if parts are too many or too long, or if a gap would have no end.
    pub(super) fn new(parts: &[Part]) -> Option<Self> {
        let (mut escaped, mut raw) = (Vec::new(), Vec::new());
        let mut steps = Vec::with_capacity(parts.len());
        for Part { literal, gap } in parts {
            let before = escaped.len();
            append_escaped(literal, &mut escaped);
            raw.extend_from_slice(literal.as_bytes());
            steps.push(Step { escaped: escaped.len() - before, raw: literal.len(), gap: *gap });
        }
        let has_end = |pair: &[Step]| match pair[0].gap {
            Gap::Fixed(length) => usize::from(length) < LIMIT,
            Gap::Counted => pair[1].raw > 0,
            Gap::Rest => false,
        };
        let is_valid = steps.len() <= MOST_GAPS
            && escaped.len() <= MOST_LITERAL_BYTES
            && steps.windows(2).all(has_end)
            && steps.last().is_some_and(|step| matches!(step.gap, Gap::Fixed(0) | Gap::Rest));
        escaped.resize(escaped.len() + LITERAL_STEP, 0);
        raw.resize(raw.len() + LITERAL_STEP, 0);
        let counted = steps.iter().filter(|step| step.gap == Gap::Counted).count();
        is_valid.then_some(Self { steps, escaped, raw, counted })
    }

    /// The form of all texts.
    pub(super) fn whole() -> Self {
        let step = Step { escaped: 0, raw: 0, gap: Gap::Rest };
        Self { steps: vec![step], escaped: vec![0; LITERAL_STEP], raw: vec![0; LITERAL_STEP], counted: 0 }
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    /// The escaped literals, with padding.
    pub(super) fn escaped(&self) -> &[u8] {
        &self.escaped
    }

    /// The literals as in the log, with padding.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn escaped_bytes(&self) -> usize {
        self.escaped.len() - LITERAL_STEP
    }

    fn raw_bytes(&self) -> usize {
        self.raw.len() - LITERAL_STEP
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.steps.capacity() * size_of::<Step>()
            + self.escaped.capacity()
            + self.raw.capacity()
    }

    /// Sets `gaps` to those of a text; returns false if it does not have the form.
    pub(super) fn find_gaps(&self, text: &[u8], gaps: &mut Vec<Range<usize>>) -> bool {
        gaps.clear();
        let (mut at, mut literals) = (0, &self.raw[..]);
        for step in &self.steps {
            let (literal, later) = literals.split_at(step.raw);
            if !text.get(at..).is_some_and(|rest| rest.starts_with(literal)) {
                return false;
            }
            (at, literals) = (at + step.raw, later);
            let rest = &text[at..];
            let length = match step.gap {
                Gap::Fixed(length) => usize::from(length),
                // The next literal is not empty: see `new`.
                Gap::Counted => match find(later[0], rest) {
                    Some(length) => length,
                    None => return false,
                },
                Gap::Rest => rest.len(),
            };
            gaps.push(at..at + length);
            at += length;
        }
        at == text.len()
    }

    /// Appends the record of a text; returns false, without a change, if the text does not have the form.
    pub(super) fn append_record(&self, number: u8, text: &str, records: &mut Vec<u8>) -> bool {
        let Some(content_bytes) = text.len().checked_sub(self.raw_bytes()) else { return false };
        let start = records.len();
        let content = start + 1 + self.counted;
        records.resize(content + content_bytes + GAP_STEP, 0);
        records[start] = number;
        let (head, to) = records[start + 1..].split_at_mut(self.counted);
        let is_whole = self.fill_record(text.as_bytes(), head, to);
        records.truncate(content + content_bytes);
        let is_appended = is_whole
            && (is_plain(&records[content..]) || {
                records.truncate(content);
                self.append_escaped_gaps(start + 1, text, records)
            });
        if !is_appended {
            records.truncate(start);
        }
        is_appended
    }

    /// Writes the lengths and the content of gaps; returns false if the text does not have the form. `to` has room for
    /// all gaps and a step.
    fn fill_record(&self, mut text: &[u8], lengths: &mut [u8], mut to: &mut [u8]) -> bool {
        let (mut literals, mut lengths) = (&self.raw[..], lengths.iter_mut());
        for step in &self.steps {
            if !begins(text, literals, step.raw) {
                return false;
            }
            (text, literals) = (&text[step.raw..], &literals[step.raw..]);
            let length = match step.gap {
                Gap::Fixed(length) => usize::from(length),
                // The next literal is not empty: see `new`.
                Gap::Counted => match (find(literals[0], text), lengths.next()) {
                    (Some(length), Some(counted)) => {
                        *counted = length as u8;
                        length
                    }
                    _ => return false,
                },
                Gap::Rest => text.len(),
            };
            match (text.first_chunk::<GAP_STEP>(), to.first_chunk_mut()) {
                (Some(from), Some(to)) if length <= GAP_STEP => *to = *from,
                _ => match (text.get(..length), to.get_mut(..length)) {
                    (Some(from), Some(to)) => to.copy_from_slice(from),
                    _ => return false,
                },
            }
            (text, to) = (&text[length..], &mut to[length..]);
        }
        text.is_empty()
    }

    /// Appends gaps with characters that may need an escape, and writes their lengths from `length_at` on.
    fn append_escaped_gaps(&self, mut length_at: usize, text: &str, records: &mut Vec<u8>) -> bool {
        let mut gaps = Vec::new();
        if !self.find_gaps(text.as_bytes(), &mut gaps) {
            return false;
        }
        for (step, gap) in self.steps.iter().zip(gaps) {
            let before = records.len();
            // Otherwise a text of another form looks like one of this.
            let Some(gap) = text.get(gap) else { return false };
            append_escaped(gap, records);
            let length = records.len() - before;
            match step.gap {
                Gap::Fixed(fixed) if usize::from(fixed) == length => {}
                Gap::Counted if length < LIMIT => {
                    records[length_at] = length as u8;
                    length_at += 1;
                }
                Gap::Rest => {}
                Gap::Fixed(_) | Gap::Counted => return false,
            }
        }
        true
    }
}

/// The bytes of a step before each length.
const MASKS: [[u64; LITERAL_STEP / 8]; LITERAL_STEP + 1] = {
    let mut masks = [[0; LITERAL_STEP / 8]; LITERAL_STEP + 1];
    let mut length = 0;
    while length <= LITERAL_STEP {
        let mut byte = 0;
        while byte < length {
            masks[length][byte / 8] |= u64::from_le(0xff << (8 * (byte % 8)));
            byte += 1;
        }
        length += 1;
    }
    masks
};

/// Returns whether a text begins with the first `length` bytes of `literal`, which has padding. Most are shorter than a
/// step, for which a comparison under a mask is faster than the usual one.
fn begins(text: &[u8], literal: &[u8], length: usize) -> bool {
    let words = |text: &[u8; LITERAL_STEP]| -> [u64; LITERAL_STEP / 8] { bytemuck::cast(*text) };
    match (MASKS.get(length), text.first_chunk(), literal.first_chunk()) {
        (Some(mask), Some(text), Some(literal)) => {
            let (text, literal) = (words(text), words(literal));
            let differences = text.iter().zip(&literal).zip(mask).map(|((a, b), mask)| (a ^ b) & mask);
            differences.fold(0, |all, difference| all | difference) == 0
        }
        _ => literal.get(..length).is_some_and(|literal| text.starts_with(literal)),
    }
}

/// Returns the position of a byte among the first [`LIMIT`].
fn find(byte: u8, text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let wanted = ONES * u64::from(byte);
    let mut at = 0;
    while at < LIMIT {
        let Some(word) = text[at..].first_chunk() else { break };
        // The lowest marked byte is the first that is zero, that is, the wanted one.
        let difference = u64::from_le_bytes(*word) ^ wanted;
        let marks = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8).filter(|at| *at < LIMIT);
        }
        at += size_of::<u64>();
    }
    let rest = &text[at..text.len().min(LIMIT.max(at))];
    rest.iter().position(|other| *other == byte).map(|position| at + position)
}

/// Returns whether no character needs an escape or has several bytes. Without an early exit it compiles to vector code.
fn is_plain(text: &[u8]) -> bool {
    let odd = |byte: &u8| {
        u8::from(*byte < 0x20) | u8::from(*byte >= 0x80) | u8::from(*byte == b'"') | u8::from(*byte == b'\\')
    };
    text.iter().fold(0, |found, byte| found | odd(byte)) == 0
}

const COUNTED: u32 = 0x100;
const REST: u32 = 0x200;

/// Encodes forms for a file. The last one is [`Form::whole`], always.
pub(super) fn encode(forms: &[Form]) -> Vec<u8> {
    let mut out = Vec::new();
    for form in &forms[..forms.len().saturating_sub(1)] {
        out.extend((form.steps.len() as u32).to_le_bytes());
        let mut literals = &form.raw[..];
        for step in &form.steps {
            let (literal, later) = literals.split_at(step.raw);
            literals = later;
            let gap = match step.gap {
                Gap::Fixed(length) => u32::from(length),
                Gap::Counted => COUNTED,
                Gap::Rest => REST,
            };
            out.extend(gap.to_le_bytes());
            out.extend((literal.len() as u32).to_le_bytes());
            out.extend(literal);
        }
    }
    out
}

/// Returns `None` for bytes that are not of [`encode`].
pub(super) fn parse(mut bytes: &[u8]) -> Option<Vec<Form>> {
    fn number(bytes: &mut &[u8]) -> Option<u32> {
        let (number, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*number))
    }
    let mut forms = Vec::new();
    while !bytes.is_empty() {
        let mut parts = Vec::new();
        for _ in 0..number(&mut bytes)? {
            let gap = match number(&mut bytes)? {
                COUNTED => Gap::Counted,
                REST => Gap::Rest,
                length => Gap::Fixed(u8::try_from(length).ok()?),
            };
            let length = number(&mut bytes)? as usize;
            let (literal, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            parts.push(Part { literal: std::str::from_utf8(literal).ok()?.to_owned(), gap });
        }
        forms.push(Form::new(&parts)?);
    }
    forms.push(Form::whole());
    (forms.len() < LIMIT).then_some(forms)
}
