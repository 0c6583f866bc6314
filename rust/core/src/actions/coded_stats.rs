//! Statistics of a batch without what they have in common.
//!
//! Writers give the files of a table the same keys, and many of the same values. A [`Form`] is such a text with gaps: the
//! record of a file is the number of a form and the content of its gaps, escaped as in the lines of an answer. A text that
//! has no form is the content of the one gap of [`Form::whole`], so every text is returned byte for byte.
//!
//! ```text
//! record   number of the form, length of each gap whose length varies, content of the gaps
//! ```
//!
//! Numbers and lengths are one byte below 128, so that records are UTF-8 as a whole.

pub(crate) mod form;
mod sample;

use std::sync::Arc;

use arrow_array::{Array, StringViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use self::form::{Form, Step};
use crate::escape::unescape_bytes;

/// Bytes after the last record: gaps are copied in steps.
const PADDING: usize = GAP_STEP;
/// Shorter parts of a text are copied with what follows them, in a few instructions.
const GAP_STEP: usize = 16;
const LITERAL_STEP: usize = 32;

/// Statistics of a batch.
#[derive(Debug, Clone)]
pub struct CodedStats {
    forms: Arc<[Form]>,
    /// UTF-8, with padding at the end.
    records: Buffer,
    /// The start of the record of each file, and the end of the last one. A file without statistics has an empty record.
    starts: ScalarBuffer<u32>,
    /// The bytes of the literals of the longest form, escaped.
    most_literal_bytes: usize,
}

/// A file's record.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    form: &'a Form,
    /// The lengths of gaps.
    lengths: &'a [u8],
    /// The content of gaps.
    content: &'a [u8],
    /// The content and the bytes after it.
    padded: &'a [u8],
}

impl CodedStats {
    /// Returns `None` if the records exceed the range of offsets.
    pub(super) fn of(texts: &StringViewArray) -> Option<Self> {
        let get = |row: usize| if texts.is_valid(row) { texts.value(row) } else { "" };
        let forms: Vec<Form> = sample::forms(texts.len(), get);
        let bytes: usize = (0..texts.len()).map(|row| get(row).len()).sum();
        let mut records = Vec::with_capacity(if forms.len() > 1 { bytes / 2 } else { bytes + bytes / 4 });
        let mut starts = Vec::with_capacity(texts.len() + 1);
        starts.push(0);
        for row in 0..texts.len() {
            let text = get(row);
            let is_coded =
                |(number, form): (usize, &Form)| form.append_record(number as u8, text, &mut records);
            if !text.is_empty() && !forms.iter().enumerate().any(is_coded) {
                // Not reached: the last form takes any text.
                return None;
            }
            starts.push(u32::try_from(records.len()).ok()?);
        }
        records.resize(records.len() + PADDING, 0);
        records.shrink_to_fit();
        Some(Self::new(forms, records.into(), starts.into()))
    }

    fn new(forms: Vec<Form>, records: Buffer, starts: ScalarBuffer<u32>) -> Self {
        let most_literal_bytes = forms.iter().map(Form::escaped_bytes).max().unwrap_or_default();
        Self { forms: forms.into(), records, starts, most_literal_bytes }
    }

    /// The records with their padding, their starts with the end of the last one, and the forms.
    pub(crate) fn parts(&self) -> (&Buffer, &ScalarBuffer<u32>, Vec<u8>) {
        (&self.records, &self.starts, form::encode(&self.forms))
    }

    /// Returns `None` for parts that [`Self::parts`] does not return.
    pub(crate) fn of_parts(records: &Buffer, starts: ScalarBuffer<u32>, forms: &[u8]) -> Option<Self> {
        let text = simdutf8::basic::from_utf8(records).ok()?;
        let coded = Self::new(form::parse(forms)?, records.clone(), starts);
        let is_whole = coded.starts.first() == Some(&0)
            && coded.starts.last().is_some_and(|end| *end as usize + PADDING == text.len());
        let is_valid = |pair: &[u32]| {
            pair[0] == pair[1]
                || coded.record_of(pair[0], pair[1]).is_some_and(|record| record.is_valid(text))
        };
        (is_whole && coded.starts.windows(2).all(is_valid)).then_some(coded)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.capacity() + self.starts.inner().capacity() + self.form_bytes()
    }

    /// Returns the memory of the forms, which are not a part of a mapped file.
    pub(crate) fn form_bytes(&self) -> usize {
        self.forms.iter().map(Form::memory_bytes).sum()
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns whether a file has no statistics.
    pub(super) fn is_without(&self, row: usize) -> bool {
        !matches!(self.starts.get(row..), Some([start, end, ..]) if start != end)
    }

    /// Returns at least the length of the escaped statistics of a file. Reads no record, which is not in the processor's
    /// cache before the line of its file is written.
    pub(super) fn most_bytes(&self, row: usize) -> usize {
        match self.starts.get(row..) {
            Some([start, end, ..]) if start != end => {
                self.most_literal_bytes + (*end as usize).saturating_sub(*start as usize)
            }
            _ => 0,
        }
    }

    pub(super) fn append_escaped(&self, row: usize, out: &mut Vec<u8>) {
        if let Some(record) = self.record(row) {
            record.append_escaped(out);
        }
    }

    /// Appends the statistics of a file as in the log.
    pub(super) fn append_raw(&self, row: usize, out: &mut Vec<u8>) {
        let Some(record) = self.record(row) else { return };
        if memchr::memchr(b'\\', record.content).is_none() {
            record.append_raw(out);
        } else {
            let mut escaped = Vec::new();
            record.append_escaped(&mut escaped);
            unescape_bytes(&escaped, out);
        }
    }

    fn record(&self, row: usize) -> Option<Record<'_>> {
        match self.starts.get(row..)? {
            [start, end, ..] if start != end => self.record_of(*start, *end),
            _ => None,
        }
    }

    fn record_of(&self, start: u32, end: u32) -> Option<Record<'_>> {
        let (number, rest) = self.records.get(start as usize..)?.split_first()?;
        let form = self.forms.get(usize::from(*number))?;
        let (lengths, readable) = rest.split_at_checked(form.counted())?;
        let content_bytes = (end as usize).checked_sub(start as usize + 1 + form.counted())?;
        let padded = readable.get(..content_bytes + PADDING)?;
        Some(Record { form, lengths, content: &padded[..content_bytes], padded })
    }
}

impl Record<'_> {
    /// Returns whether each gap has its content, in whole characters of `text`, which has the record.
    fn is_valid(&self, text: &str) -> bool {
        let start = self.content.as_ptr().addr() - text.as_ptr().addr();
        let (mut at, mut lengths) = (0, self.lengths.iter());
        let are_characters = self.form.steps().iter().all(|step| {
            at += step.gap.length(&mut lengths, self.content.len().saturating_sub(at));
            text.is_char_boundary(start + at.min(self.content.len()))
        });
        are_characters && at == self.content.len() && text.is_char_boundary(start)
    }

    fn append_escaped(&self, out: &mut Vec<u8>) {
        self.append(self.form.escaped(), |step| step.escaped, out);
    }

    /// Appends the text as in the log, if no gap has an escape.
    fn append_raw(&self, out: &mut Vec<u8>) {
        self.append(self.form.raw(), |step| step.raw, out);
    }

    /// `literals` has the padding.
    #[inline]
    #[allow(unsafe_code)]
    fn append(&self, literals: &[u8], length_of: impl Fn(&Step) -> usize, out: &mut Vec<u8>) {
        let most = literals.len() + self.content.len();
        out.reserve(most);
        let start = out.len();
        let (mut literal, mut gap, mut to) = (literals.as_ptr(), self.padded.as_ptr(), out.as_mut_ptr());
        let mut rest = self.content.len();
        let mut lengths = self.lengths.iter();
        // Checks of bounds and zeroes in `out` double the cost.
        // SAFETY: the literals of the steps are `literals` without its padding of LITERAL_STEP, and gaps are not longer than
        // the rest of the content, which has GAP_STEP bytes behind it. So each copy reads at most the padding, and writes at
        // most LITERAL_STEP past the text, for which `most` bytes are reserved.
        unsafe {
            to = to.add(start);
            for step in self.form.steps() {
                let length = length_of(step);
                copy::<LITERAL_STEP>(literal, length, to);
                (literal, to) = (literal.add(length), to.add(length));
                let length = step.gap.length(&mut lengths, rest).min(rest);
                copy::<GAP_STEP>(gap, length, to);
                (gap, to) = (gap.add(length), to.add(length));
                rest -= length;
            }
            out.set_len(to.offset_from_unsigned(out.as_ptr()));
        }
    }
}

/// Copies `length` bytes, at least a step.
///
/// # Safety
///
/// As many must be readable and writable, and not overlap.
#[inline]
#[allow(unsafe_code)]
unsafe fn copy<const STEP: usize>(from: *const u8, length: usize, to: *mut u8) {
    // SAFETY: as the caller states.
    unsafe {
        if length <= STEP {
            // A constant length needs no call.
            std::ptr::copy_nonoverlapping(from, to, STEP);
        } else {
            std::ptr::copy_nonoverlapping(from, to, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::escape::append_escaped;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        append_escaped(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn coded<T: AsRef<str>>(texts: &[T]) -> CodedStats {
        CodedStats::of(&StringViewArray::from_iter_values(texts)).unwrap()
    }

    /// The escaped and the raw texts, between others.
    fn texts_of(coded: &CodedStats) -> Vec<[String; 2]> {
        let text = |append: &dyn Fn(&mut Vec<u8>)| {
            let mut out = b"before".to_vec();
            append(&mut out);
            String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
        };
        let both =
            |row| [text(&|out| coded.append_escaped(row, out)), text(&|out| coded.append_raw(row, out))];
        (0..coded.files()).map(both).collect()
    }

    fn assert_texts<T: AsRef<str>>(coded: &CodedStats, texts: &[T]) {
        let expected: Vec<_> =
            texts.iter().map(|text| [escaped(text.as_ref()), text.as_ref().to_owned()]).collect();
        assert_eq!(texts_of(coded), expected);
        for (row, [escaped, _]) in expected.iter().enumerate() {
            assert!(coded.most_bytes(row) >= escaped.len());
            assert_eq!(coded.is_without(row), escaped.is_empty());
        }
    }

    fn usual(file: usize) -> String {
        let (low, name) = (file * 1000, if file % 50 == 7 { "a \\\"quoted\\\" é" } else { "plain" });
        format!(
            "{{\"numRecords\":1000,\"minValues\":{{\"id\":{low},\"name\":\"{name}{file:06}\"}},\
             \"maxValues\":{{\"id\":{},\"name\":\"z\"}},\"nullCount\":{{\"id\":0,\"name\":{}}}}}",
            low + 999,
            file % 7
        )
    }

    #[test]
    fn statistics_with_the_same_keys_take_their_values() {
        let texts: Vec<_> = (0..2000).map(usual).collect();
        let stats = coded(&texts);
        assert_texts(&stats, &texts);
        let escaped_bytes: usize = texts.iter().map(|text| escaped(text).len()).sum();
        let bytes = stats.memory_bytes();
        assert!(bytes < 34 * texts.len(), "{bytes} bytes of {escaped_bytes}");
    }

    #[test]
    fn texts_of_other_forms_than_those_of_the_samples_are_whole() {
        let mut texts: Vec<_> = (0..1600).map(usual).collect();
        texts[0] = "{\"numRecords\":1,\"é\u{2028}\n\":null}".to_owned();
        texts[1] = String::new();
        texts[2] = "no JSON".to_owned();
        texts[3] = usual(3).replace("plain", &"long".repeat(100));
        texts[4] = usual(4).replace("\"z\"", "\"\u{85}\"");
        texts[5] = usual(5).replace("000", "\",:{");
        texts[6].push(' ');
        texts[7].pop();
        assert_texts(&coded(&texts), &texts);
    }

    /// Texts of few forms with odd values.
    fn odd_texts() -> impl Strategy<Value = Vec<String>> {
        let value = r#"[0-9]{1,5}|-1\.5e3|null|"[a-z]{0,9}"|"[ -~]{0,5}"|"(a|é|\\"|\\\\|\u{85}|\u{2028}){0,9}"|"[x]{120,130}"|"#;
        let text = (0..4_usize, prop::collection::vec(value, 4));
        let text = text.prop_map(|(form, values)| match form {
            0 => format!(
                "{{\"a\":{},\"b\":{{\"é\":{}}},\"c\":[{},{}]}}",
                values[0], values[1], values[2], values[3]
            ),
            1 => format!("{{\"a\":7,\"b\":{},\"c\":\"2025-01-{}T\"}}", values[0], values[1]),
            2 => values.concat(),
            _ => "{\"numRecords\":5}".to_owned(),
        });
        prop::collection::vec(text, 0..80)
    }

    proptest! {
        #[test]
        fn any_texts_are_returned_also_after_a_stay_in_a_file(texts in odd_texts()) {
            let stats = coded(&texts);
            assert_texts(&stats, &texts);
            let (records, starts, forms) = stats.parts();
            let again = CodedStats::of_parts(records, starts.clone(), &forms).unwrap();
            assert_texts(&again, &texts);
        }

        #[test]
        fn altered_parts_are_refused_or_text(
            texts in odd_texts(),
            at in any::<prop::sample::Index>(),
            part in 0..3_usize,
            byte in any::<u8>(),
        ) {
            let stats = coded(&texts);
            let (records, starts, mut forms) = stats.parts();
            let (mut records, mut starts) = (records.to_vec(), starts.to_vec());
            match part {
                0 => { let at = at.index(records.len()); records[at] = byte; }
                1 => { let at = at.index(starts.len()); starts[at] = u32::from(byte) * 3; }
                _ if forms.is_empty() => forms.push(byte),
                _ => { let at = at.index(forms.len()); forms[at] = byte; }
            }
            if let Some(altered) = CodedStats::of_parts(&records.into(), starts.into(), &forms) {
                for row in 0..texts.len() {
                    let (mut escaped, mut raw) = (Vec::new(), Vec::new());
                    altered.append_escaped(row, &mut escaped);
                    // An altered escape may become anything.
                    altered.append_raw(row, &mut raw);
                    prop_assert!(String::from_utf8(escaped).unwrap().len() <= altered.most_bytes(row));
                }
            }
        }
    }
}
