//! JSON string escaping and unescaping, optimised for text that is mostly plain.
//!
//! Escapes `"`, `\`, control characters, and U+0085, U+2028 and U+2029: clients that split lines by Unicode rules break
//! lines at these.

/// The number of bytes per step.
const BLOCK_BYTES: usize = 16;

/// The size of a block with an escape for every byte.
const ESCAPED_BYTES: usize = 2 * BLOCK_BYTES;

/// Appends `text` as the content of a JSON string, without quotes.
pub(crate) fn append_escaped(text: &str, out: &mut Vec<u8>) {
    let text = text.as_bytes();
    let mut at = 0;
    while at < text.len() {
        at += append_simple_blocks(&text[at..], out);
        at = append_any(text, at, text.len().min(at + BLOCK_BYTES), out);
    }
}

/// Escapes the leading blocks of `text` with no characters to escape but quotes and backslashes; returns the number of
/// bytes consumed.
fn append_simple_blocks(text: &[u8], out: &mut Vec<u8>) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(taken) = crate::simd::append_escaped_blocks(text, out) {
        return taken;
    }
    append_simple_blocks_portably(text, out)
}

fn append_simple_blocks_portably(text: &[u8], out: &mut Vec<u8>) -> usize {
    let (blocks, _) = text.as_chunks::<BLOCK_BYTES>();
    let simple = blocks.iter().take_while(|block| is_simple(block));
    simple.map(|block| append_simple(block, out)).count() * BLOCK_BYTES
}

/// Appends `text` as a JSON string with its quotes.
pub(crate) fn append_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    append_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` as a JSON string with its quotes to a `String`.
pub(crate) fn push_string(text: &str, out: &mut String) {
    out.push('"');
    let (mut plain, mut at) = (0, 0);
    while let Some(run) = text.as_bytes()[at..].iter().position(|byte| NEEDS_A_LOOK[usize::from(*byte)]) {
        at += run;
        let (escape, taken) = escape_of(&text.as_bytes()[at..]);
        if let Some(escape) = escape {
            out.push_str(&text[plain..at]);
            out.push_str(escape);
            plain = at + taken;
        }
        at += taken;
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Returns the text of a JSON object of strings and nulls.
pub(crate) fn object_text<'t>(entries: impl Iterator<Item = (&'t str, Option<&'t str>)>) -> String {
    let mut json = String::from("{");
    for (position, (key, value)) in entries.enumerate() {
        if position > 0 {
            json.push(',');
        }
        push_string(key, &mut json);
        json.push(':');
        match value {
            Some(value) => push_string(value, &mut json),
            None => json.push_str("null"),
        }
    }
    json.push('}');
    json
}

/// Appends JSON of a log without line breaks. Between tokens they are dropped. Unicode line breaks can be in strings
/// only and are escaped there.
pub(crate) fn append_json(json: &str, out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = rest.find(['\r', '\n', '\u{85}', '\u{2028}', '\u{2029}']) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let taken = match after.as_bytes() {
            text @ [0xc2 | 0xe2, ..] => append_escape(text, out),
            _ => 1,
        };
        rest = after.get(taken..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Returns whether at most quotes and backslashes need an escape. Without an early exit it compiles to vector code.
fn is_simple(block: &[u8; BLOCK_BYTES]) -> bool {
    let odd = |byte: &u8| {
        u8::from(*byte < 0x20) | u8::from(*byte == NEXT_LINE[0]) | u8::from(*byte == SEPARATOR[0])
    };
    block.iter().fold(0, |found, byte| found | odd(byte)) == 0
}

/// Writes a backslash before every byte and overwrites unneeded ones, which avoids mispredicted branches.
fn append_simple(block: &[u8; BLOCK_BYTES], out: &mut Vec<u8>) {
    let mut escaped = [b'\\'; ESCAPED_BYTES];
    let mut length = 0;
    for byte in block {
        let needs_escape = usize::from(*byte == b'"') | usize::from(*byte == b'\\');
        escaped[length % ESCAPED_BYTES] = b'\\';
        escaped[(length + needs_escape) % ESCAPED_BYTES] = *byte;
        length += 1 + needs_escape;
    }
    out.extend_from_slice(&escaped[..length]);
}

/// U+0085 in UTF-8.
const NEXT_LINE: [u8; 2] = [0xc2, 0x85];
/// The first two bytes of U+2028 and U+2029 in UTF-8.
const SEPARATOR: [u8; 2] = [0xe2, 0x80];

/// Appends `text[at..end]` and the rest of a character that crosses `end`; returns the end position.
fn append_any(text: &[u8], mut at: usize, end: usize, out: &mut Vec<u8>) -> usize {
    while at < end {
        let rest = &text[at..];
        let run = rest.iter().take(end - at).take_while(|byte| !NEEDS_A_LOOK[usize::from(**byte)]).count();
        out.extend_from_slice(&rest[..run]);
        at += run;
        if at < end {
            at += append_escape(&text[at..], out);
        }
    }
    at
}

/// Appends the escape of the first character of `text`, or its first byte; returns the number of bytes consumed.
fn append_escape(text: &[u8], out: &mut Vec<u8>) -> usize {
    let (escape, taken) = escape_of(text);
    match escape {
        Some(escape) => out.extend_from_slice(escape.as_bytes()),
        None => out.extend_from_slice(&text[..taken]),
    }
    taken
}

/// Returns the escape of the first character of `text`, `None` if it needs none, and the number of bytes it replaces.
fn escape_of(text: &[u8]) -> (Option<&'static str>, usize) {
    #[rustfmt::skip]
    const CONTROL: [&str; 32] = [
        "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007",
        "\\b", "\\t", "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f",
        "\\u0010", "\\u0011", "\\u0012", "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017",
        "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
    ];
    match *text {
        [b'"', ..] => (Some("\\\""), 1),
        [b'\\', ..] => (Some("\\\\"), 1),
        [byte @ 0..0x20, ..] => (Some(CONTROL[usize::from(byte)]), 1),
        [first, second, ..] if [first, second] == NEXT_LINE => (Some("\\u0085"), 2),
        [first, second, 0xa8, ..] if [first, second] == SEPARATOR => (Some("\\u2028"), 3),
        [first, second, 0xa9, ..] if [first, second] == SEPARATOR => (Some("\\u2029"), 3),
        _ => (None, text.len().min(1)),
    }
}

const NEEDS_A_LOOK: [bool; 256] = {
    let mut needs = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        needs[byte] = byte < 0x20
            || matches!(byte as u8, b'"' | b'\\')
            || byte as u8 == NEXT_LINE[0]
            || byte as u8 == SEPARATOR[0];
        byte += 1;
    }
    needs
};

/// Returns whether the content of a JSON string is what [`append_escaped`] makes of its text. Also `false` if it has an
/// escape of another character than a quote or a backslash.
pub(crate) fn is_simply_escaped(content: &str) -> bool {
    let mut rest = content.as_bytes();
    while let Some(at) = memchr::memchr3(b'\\', 0xc2, 0xe2, rest) {
        let taken = match &rest[at..] {
            [b'\\', b'"' | b'\\', ..] => 2,
            // U+0085, U+2028 and U+2029.
            [b'\\', ..] | [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..] => return false,
            _ => 1,
        };
        rest = &rest[at + taken..];
    }
    true
}

/// Appends the unescaped content of a JSON string. Escapes must be well-formed; an unpaired surrogate becomes U+FFFD.
pub(crate) fn unescape(content: &str, out: &mut Vec<u8>) {
    unescape_bytes(content.as_bytes(), out);
}

/// As [`unescape`], of UTF-8 that was validated before.
pub(crate) fn unescape_bytes(content: &[u8], out: &mut Vec<u8>) {
    unescape_by(unescape_simple_blocks, content, out);
}

/// Unescapes bytes up to the first escape of another kind, or fewer; returns the numbers of bytes consumed and written.
type UnescapeBlocks = fn(&[u8], &mut [u8]) -> (usize, usize);

fn unescape_simple_blocks(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    let done = crate::simd::unescape_blocks(text, out).unwrap_or_default();
    #[cfg(not(target_arch = "x86_64"))]
    let done = (0, 0);
    done
}

fn unescape_by(blocks: UnescapeBlocks, bytes: &[u8], out: &mut Vec<u8>) {
    let mut to = out.len();
    // No escape is shorter than its character. Whole words are written, past the end by less than a word.
    out.resize(to + bytes.len() + WORD_BYTES, 0);
    let mut at = 0;
    loop {
        let (taken, written) = blocks(&bytes[at..], &mut out[to..]);
        at += taken;
        to += written;
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

/// Copies the bytes before the first backslash; returns their number. In statistics these are a few letters, for which
/// one word per step is faster than a search and a copy.
fn copy_plain(from: &[u8], to: &mut [u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; WORD_BYTES]);
    const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; WORD_BYTES]);
    let mut at = 0;
    while let (Some(word), Some(copy)) = (from[at..].first_chunk(), to[at..].first_chunk_mut::<WORD_BYTES>())
    {
        *copy = *word;
        // The lowest marked byte is the first that is zero, that is, a backslash.
        let difference = u64::from_le_bytes(*word) ^ BACKSLASHES;
        let marks = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += WORD_BYTES;
    }
    let rest = from[at..].iter().zip(&mut to[at..]).take_while(|(byte, _)| **byte != b'\\');
    at + rest.map(|(byte, copy)| *copy = *byte).count()
}

/// Returns the character of `XXXX` or `XXXX\uXXXX` and the length of the escape.
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
    use proptest::prelude::*;

    use super::*;

    fn string(text: &str) -> String {
        let (mut out, mut portable) = (Vec::new(), vec![b'"']);
        append_string(text, &mut out);
        let mut at = 0;
        while at < text.len() {
            at += append_simple_blocks_portably(&text.as_bytes()[at..], &mut portable);
            at = append_any(text.as_bytes(), at, text.len().min(at + BLOCK_BYTES), &mut portable);
        }
        portable.push(b'"');
        assert_eq!(out, portable, "both ways escape alike");
        let mut pushed = String::new();
        push_string(text, &mut pushed);
        assert_eq!(pushed.as_bytes(), out, "strings and bytes are escaped alike");
        String::from_utf8(out).unwrap()
    }

    /// A slow reference: the escaping of `serde_json`, then a replacement of the line separators.
    fn slow_string(text: &str) -> String {
        serde_json::to_string(text)
            .unwrap()
            .replace('\u{85}', "\\u0085")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029")
    }

    #[test]
    fn every_character_that_clients_break_lines_on_is_escaped_wherever_it_stands() {
        for character in ['"', '\\', '\n', '\r', '\t', '\0', '\u{1f}', '\u{85}', '\u{2028}', '\u{2029}'] {
            for before in 0..=130 {
                let text = format!("{}{character}{}", "a".repeat(before), "b".repeat(70));
                let escaped = string(&text);
                assert!(!escaped[1..escaped.len() - 1].contains(character) || "\"\\".contains(character));
                assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
                assert_eq!(escaped, slow_string(&text));
            }
        }
    }

    #[test]
    fn a_run_of_quotes_as_long_as_a_block_fits() {
        let text = "\"".repeat(200);
        assert_eq!(string(&text), format!("\"{}\"", "\\\"".repeat(200)));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(
            text in "([a-z{}:,]{0,20}|[\"\\\\]|[\u{80}-\u{8f}]|[\u{2020}-\u{202f}]|[éß€😀]|[\\x00-\\x07\\x0e-\\x1f\n\r\t]){0,60}",
        ) {
            prop_assert_eq!(string(&text), slow_string(&text));
        }

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
        fn unescaping_undoes_escaping_by_blocks_and_without(
            text in "([a-z{}:,]{0,9}|[\"\\\\]|[\u{80}-\u{8f}\u{2020}-\u{202f}é😀]|[\\x00-\\x1f]){0,80}",
            quotes in "([a-z]{0,9}\"){0,40}",
        ) {
            for text in [text, quotes] {
                let (mut escaped, mut out, mut portable) = (Vec::new(), b"x".to_vec(), b"x".to_vec());
                append_escaped(&text, &mut escaped);
                let escaped = String::from_utf8(escaped).unwrap();
                unescape(&escaped, &mut out);
                unescape_by(|_, _| (0, 0), escaped.as_bytes(), &mut portable);
                prop_assert_eq!(String::from_utf8(out).unwrap(), format!("x{text}"));
                prop_assert_eq!(String::from_utf8(portable).unwrap(), format!("x{text}"));
            }
        }

        #[test]
        fn a_simply_escaped_text_is_escaped_to_the_same_bytes(
            content in "([a-z{}:,]{0,9}|\\\\[\"\\\\/nu]0085|\\\\[\"\\\\]|[\u{80}-\u{8f}\u{2020}-\u{202f}Âé😀])*",
        ) {
            let (mut text, mut again) = (Vec::new(), Vec::new());
            unescape(&content, &mut text);
            append_escaped(std::str::from_utf8(&text).unwrap(), &mut again);
            let is_same = again == content.as_bytes();
            prop_assert!(is_same || !is_simply_escaped(&content));
            let is_plain = content.replace("\\\\", "").replace("\\\"", "").find('\\').is_none();
            prop_assert!(!is_same || !is_plain || is_simply_escaped(&content));
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
