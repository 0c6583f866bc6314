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
pub(crate) enum Gap {
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
pub(crate) struct Part {
    pub(crate) literal: String,
    pub(crate) gap: Gap,
}

/// Lengths of a literal, and the gap after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(super) escaped: usize,
    pub(super) raw: usize,
    pub(super) gap: Gap,
}

#[derive(Debug)]
pub(crate) struct Form {
    steps: Vec<Step>,
    /// The literals one after the other, with padding.
    escaped: Vec<u8>,
    raw: Vec<u8>,
    /// The number of gaps whose lengths records have.
    counted: usize,
}

impl Form {
    /// Returns `None` if parts are too many or too long, or if a gap would have no end.
    pub(crate) fn new(parts: &[Part]) -> Option<Self> {
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

    /// Shows `take` each gap of a text: its part's step, the text from the gap on, and the gap's length. Returns false if
    /// the text does not have the form, or if `take` refuses a gap; gaps before the difference were shown then.
    #[inline]
    pub(crate) fn walk<'a>(
        &self,
        mut text: &'a [u8],
        mut take: impl FnMut(&Step, &'a [u8], usize) -> bool,
    ) -> bool {
        let mut literals = &self.raw[..];
        for step in &self.steps {
            if !begins(text, literals, step.raw) {
                return false;
            }
            (text, literals) = (&text[step.raw..], &literals[step.raw..]);
            let length = match step.gap {
                Gap::Fixed(length) => usize::from(length),
                // The next literal is not empty: see `new`.
                Gap::Counted => match find(literals[0], text) {
                    Some(length) => length,
                    None => return false,
                },
                Gap::Rest => text.len(),
            };
            if length > text.len() || !take(step, text, length) {
                return false;
            }
            text = &text[length..];
        }
        text.is_empty()
    }

    /// Sets `gaps` to those of a text; returns false if it does not have the form.
    pub(super) fn find_gaps(&self, text: &[u8], gaps: &mut Vec<Range<usize>>) -> bool {
        gaps.clear();
        self.walk(text, |_, rest, length| {
            let at = text.len() - rest.len();
            gaps.push(at..at + length);
            true
        })
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
    fn fill_record(&self, text: &[u8], lengths: &mut [u8], mut to: &mut [u8]) -> bool {
        let mut lengths = lengths.iter_mut();
        self.walk(text, |step, rest, length| {
            if step.gap == Gap::Counted {
                match lengths.next() {
                    Some(counted) => *counted = length as u8,
                    None => return false,
                }
            }
            match (rest.first_chunk::<GAP_STEP>(), to.first_chunk_mut()) {
                (Some(from), Some(to)) if length <= GAP_STEP => *to = *from,
                _ => match to.get_mut(..length) {
                    Some(to) => to.copy_from_slice(&rest[..length]),
                    None => return false,
                },
            }
            to = &mut std::mem::take(&mut to)[length..];
            true
        })
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

/// Divides JSON into keys and punctuation, and values as gaps. Any text may be given: its form has it in any case. A key
/// with a blank before its colon is taken for a value.
pub(crate) fn parts_of(text: &str) -> Vec<Part> {
    let bytes = text.as_bytes();
    let (mut parts, mut literal_at, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let value = match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at + 1);
                let is_key = bytes.get(end + 1) == Some(&b':');
                let content = at + 1..end;
                at = (end + 1).min(bytes.len());
                if is_key {
                    continue;
                }
                content
            }
            byte if is_of_scalar(byte) => {
                let length = bytes[at..].iter().take_while(|byte| is_of_scalar(**byte)).count();
                let content = at..at + length;
                at += length;
                content
            }
            _ => {
                at += 1;
                continue;
            }
        };
        let literal = text.get(literal_at..value.start).unwrap_or_default().to_owned();
        parts.push(Part { literal, gap: Gap::Counted });
        literal_at = value.end;
    }
    match (text.get(literal_at..), parts.last_mut()) {
        (Some(""), Some(last)) => last.gap = Gap::Rest,
        (literal, _) => {
            parts.push(Part { literal: literal.unwrap_or_default().to_owned(), gap: Gap::Fixed(0) });
        }
    }
    parts
}

pub(crate) fn is_of_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Returns the position of the quote that ends a string, or the end of the text.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
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
