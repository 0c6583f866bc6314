//! Strings of a JSON file as spans of it. Strings with escapes are unescaped into a second buffer.

use arrow_array::StringViewArray;
use arrow_array::builder::StringViewBuilder;
use arrow_buffer::Buffer;
use bytes::Bytes;

use crate::actions::Stats;
use crate::escape::{is_simply_escaped, unescape};

/// The size of one block of texts. A longer text has its own.
const MAX_BLOCK_BYTES: u32 = 1 << 20;

/// A range of one of the two buffers. Log files are shorter than 2 GiB, so offsets fit 32 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u32,
    length: u32,
    unescaped: bool,
}

/// The bytes of a file and its unescaped strings.
#[derive(Debug, Default)]
pub(super) struct Text {
    file: Bytes,
    /// Grows until [`Text::seal`].
    growing: Vec<u8>,
    unescaped: Buffer,
}

impl Text {
    pub(super) fn new(file: &Bytes) -> Self {
        Self { file: file.clone(), ..Self::default() }
    }

    /// Returns the span of `piece`, which is copied unless it is a slice of the file.
    pub(super) fn span(&mut self, piece: &str) -> Span {
        let offset = (piece.as_ptr() as usize).wrapping_sub(self.file.as_ptr() as usize);
        let is_inside = offset <= self.file.len() && piece.len() <= self.file.len() - offset;
        if is_inside {
            return Span { start: offset as u32, length: piece.len() as u32, unescaped: false };
        }
        self.keep(|buffer| buffer.extend_from_slice(piece.as_bytes()))
    }

    /// Returns the span of the JSON string `raw`: of its content if [`is_simply_escaped`], otherwise of its text, which is
    /// unescaped. Anything else but null is its own text.
    pub(super) fn string_span(&mut self, raw: &str) -> Option<Span> {
        if raw == "null" {
            return None;
        }
        Some(match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(content) if is_simply_escaped(content) => self.span(content),
            Some(content) => self.keep(|buffer| unescape(content, buffer)),
            None => self.keep(|buffer| buffer.extend_from_slice(raw.as_bytes())),
        })
    }

    fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.growing.len();
        write(&mut self.growing);
        Span { start: start as u32, length: (self.growing.len() - start) as u32, unescaped: true }
    }

    /// Ends the writes, so that arrays can share the unescaped strings.
    pub(super) fn seal(&mut self) {
        self.unescaped = Buffer::from_vec(std::mem::take(&mut self.growing));
    }

    pub(super) fn get(&self, span: Span) -> &str {
        let buffer: &[u8] = if span.unescaped { &self.unescaped } else { &self.file };
        let range = span.start as usize..span.start as usize + span.length as usize;
        // Both buffers are UTF-8 and spans start and end at quotes, so neither fallback is reached.
        buffer.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Returns the spans as an array of views, `None` if a span is not a valid string.
    pub(super) fn strings(&self, spans: impl Iterator<Item = Option<Span>>) -> Option<StringViewArray> {
        // A builder without a capacity takes 16 KiB, and a log may have many commits of one line.
        let mut builder = StringViewBuilder::with_capacity(spans.size_hint().0);
        let file = builder.append_block(Buffer::from(self.file.clone()));
        let beside = builder.append_block(self.unescaped.clone());
        for span in spans {
            match span {
                None => builder.append_null(),
                Some(span) => {
                    let block = if span.unescaped { beside } else { file };
                    builder.try_append_view(block, span.start, span.length).ok()?;
                }
            }
        }
        Some(builder.finish())
    }

    /// Returns the spans of [`Text::string_span`] as statistics, `None` if one is not a valid string. They are views if
    /// all of them are escaped.
    pub(super) fn stats(&self, spans: &[Option<Span>]) -> Option<Stats> {
        if !spans.iter().flatten().any(|span| span.unescaped) {
            return self.strings(spans.iter().copied()).map(Stats::EscapedViews);
        }
        let length = spans.iter().flatten().map(|span| span.length).fold(1, u32::saturating_add);
        let block_bytes = length.min(MAX_BLOCK_BYTES);
        let mut builder = StringViewBuilder::with_capacity(spans.len()).with_fixed_block_size(block_bytes);
        let mut text = Vec::new();
        for span in spans {
            match span {
                None => builder.append_null(),
                Some(span) if span.unescaped => builder.append_value(self.get(*span)),
                Some(span) => {
                    text.clear();
                    unescape(self.get(*span), &mut text);
                    builder.append_value(std::str::from_utf8(&text).ok()?);
                }
            }
        }
        Some(builder.finish().into())
    }
}
