//! Strings of a JSON file as spans of it; those with escapes go unescaped to a second buffer.

use arrow_array::StringViewArray;
use arrow_array::builder::StringViewBuilder;
use arrow_buffer::Buffer;
use bytes::Bytes;

/// A piece of one of the two buffers. Files of the log are shorter than 2 GiB, so a span fits 32 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u32,
    length: u32,
    unescaped: bool,
}

/// The file's bytes and what had to be unescaped.
#[derive(Debug)]
pub(super) struct Text {
    file: Bytes,
    /// Grows until [`Text::seal`].
    growing: Vec<u8>,
    unescaped: Buffer,
}

impl Text {
    pub(super) fn new(file: &Bytes) -> Self {
        Self { file: file.clone(), growing: Vec::new(), unescaped: Buffer::default() }
    }

    /// `piece`, which is borrowed from the file or else is kept beside it.
    pub(super) fn span(&mut self, piece: &str) -> Span {
        let offset = (piece.as_ptr() as usize).wrapping_sub(self.file.as_ptr() as usize);
        let is_inside = offset <= self.file.len() && piece.len() <= self.file.len() - offset;
        if is_inside {
            return Span { start: offset as u32, length: piece.len() as u32, unescaped: false };
        }
        self.keep(|buffer| buffer.extend_from_slice(piece.as_bytes()))
    }

    /// The content of a JSON string, still with its quotes; what is no string stays as it is.
    pub(super) fn string_span(&mut self, raw: &str) -> Option<Span> {
        if raw == "null" {
            return None;
        }
        let Some(content) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return Some(self.span(raw));
        };
        if memchr::memchr(b'\\', content.as_bytes()).is_none() {
            return Some(self.span(content));
        }
        Some(self.keep(|buffer| unescape(content, buffer)))
    }

    fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.growing.len();
        write(&mut self.growing);
        Span { start: start as u32, length: (self.growing.len() - start) as u32, unescaped: true }
    }

    /// Nothing is added any more: arrays may share what was unescaped.
    pub(super) fn seal(&mut self) {
        self.unescaped = Buffer::from_vec(std::mem::take(&mut self.growing));
    }

    pub(super) fn get(&self, span: Span) -> &str {
        let buffer: &[u8] = if span.unescaped { &self.unescaped } else { &self.file };
        let range = span.start as usize..span.start as usize + span.length as usize;
        // Both buffers are UTF-8 and spans begin and end at quotes, so neither fallback is reached.
        buffer.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// The spans as an array of views; `None` if there is a span that is no string.
    pub(super) fn strings(&self, spans: impl Iterator<Item = Option<Span>>) -> Option<StringViewArray> {
        let mut builder = StringViewBuilder::new();
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
}

/// Undoes JSON's escapes. The text was skipped over by serde before, so its escapes are well-formed; a half of
/// a surrogate pair becomes U+FFFD.
fn unescape(content: &str, out: &mut Vec<u8>) {
    let bytes = content.as_bytes();
    let mut to = out.len();
    // No escape is shorter than what it stands for; whole words are written, hence the room behind.
    out.resize(to + bytes.len() + WORD_BYTES, 0);
    let mut at = 0;
    loop {
        let plain = copy_plain(&bytes[at..], &mut out[to..]);
        at += plain;
        to += plain;
        let Some(&escape) = bytes.get(at + 1) else { break };
        at += 2;
        let (character, length) = match escape {
            b'n' => ('\n', 0),
            b't' => ('\t', 0),
            b'r' => ('\r', 0),
            b'b' => ('\u{8}', 0),
            b'f' => ('\u{c}', 0),
            b'u' => unicode_escape(&bytes[at..]),
            other => (char::from(other), 0),
        };
        to += character.encode_utf8(&mut out[to..]).len();
        at += length;
    }
    out.truncate(to);
}

const WORD_BYTES: usize = size_of::<u64>();

/// Copies what stands before the first backslash, and says how much that is. In statistics that is a few
/// letters: a word at a time costs less than a search and a copy.
fn copy_plain(from: &[u8], to: &mut [u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; WORD_BYTES]);
    const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; WORD_BYTES]);
    let mut at = 0;
    while let (Some(word), Some(room)) = (from[at..].first_chunk(), to[at..].first_chunk_mut::<WORD_BYTES>())
    {
        *room = *word;
        // The lowest marked byte is the first that is zero, that is, a backslash.
        let difference = u64::from_le_bytes(*word) ^ BACKSLASHES;
        let marks = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += WORD_BYTES;
    }
    let rest = from[at..].iter().zip(&mut to[at..]).take_while(|(byte, _)| **byte != b'\\');
    at + rest.map(|(byte, room)| *room = *byte).count()
}

/// The character of `XXXX` or `XXXX\uXXXX`, and how long its spelling is.
fn unicode_escape(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(0) else { return (char::REPLACEMENT_CHARACTER, 0) };
    let second = if bytes.get(4..6) == Some(b"\\u") { unit(6) } else { None };
    let pair = [first, second.unwrap_or(0)];
    let is_pair =
        (0xd800..0xdc00).contains(&first) && second.is_some_and(|low| (0xdc00..0xe000).contains(&low));
    let units = if is_pair { &pair[..] } else { &pair[..1] };
    let character = char::decode_utf16(units.iter().copied()).next().and_then(Result::ok);
    (character.unwrap_or(char::REPLACEMENT_CHARACTER), if is_pair { 10 } else { 4 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unescaping_agrees_with_serde(text in ".*", escape_all in any::<bool>()) {
            let escaped = if escape_all {
                text.encode_utf16().flat_map(|unit| format!("\\u{unit:04x}").into_bytes()).map(char::from).collect()
            } else {
                let quoted = serde_json::to_string(&text).unwrap();
                quoted[1..quoted.len() - 1].to_owned()
            };
            let mut out = Vec::new();
            unescape(&escaped, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), text);
        }

        #[test]
        fn unescaping_any_text_is_utf8(text in r"(\\u[0-9a-fA-F]{4}|\\[nrtbf/a-z]|[a-zé])*") {
            let mut out = Vec::new();
            unescape(&text, &mut out);
            prop_assert!(String::from_utf8(out).is_ok());
        }
    }

    #[test]
    fn a_lone_surrogate_is_replaced() {
        let mut out = Vec::new();
        unescape(r"\ud83d\u0041\ude00\/\ud83d\ude00", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\u{fffd}A\u{fffd}/😀");
    }
}
