//! Converts the path of a log to the path of a URL: percent-decoded exactly once, then encoded once.
//!
//! Delta writes `add.path` as a URI on top of Hive's own escaping, so one path may hold a raw `é`, `%20` and `%253D`
//! (PROTOCOL, section Add File). The object's key is the path decoded once, and the URL contains the key encoded once by
//! the rules of `SigV4`: unreserved characters and `/` are literal, every other byte is `%XX` in upper case. A `%`
//! without two hex digits is literal, as in deltalake and `delta_kernel`, because a writer that does not encode at all
//! may put one in a file name.

/// Whether each byte is literal in a URL's path.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] =
            matches!(byte as u8, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/');
        byte += 1;
    }
    plain
};

/// Findings in a path that require further checks before its URL is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Oddities {
    /// The path contains NUL, which no store allows in a name.
    pub(crate) nul: bool,
    /// An escape of the path decodes to a byte beyond ASCII, so the decoded path may be invalid UTF-8.
    pub(crate) high_escape: bool,
}

/// Appends the URL form of a log's path, which is an encoded URI.
pub(crate) fn append_uri(path: &[u8], out: &mut Vec<u8>) -> Oddities {
    let mut found = Oddities::default();
    let mut rest = path;
    while let Some((byte, after)) = append_plain_run(rest, out) {
        let (byte, after) = unescaped(byte, after, &mut found);
        found.nul |= byte == 0;
        append_byte(byte, out);
        rest = after;
    }
    found
}

/// As [`append_uri`], and appends the decoded bytes to `decoded`.
pub(crate) fn append_uri_and_decoded(path: &[u8], out: &mut Vec<u8>, decoded: &mut Vec<u8>) -> Oddities {
    let mut found = Oddities::default();
    let mut rest = path;
    while let Some((byte, after)) = append_plain_run_to_both(rest, out, decoded) {
        let (byte, after) = unescaped(byte, after, &mut found);
        found.nul |= byte == 0;
        append_byte(byte, out);
        decoded.push(byte);
        rest = after;
    }
    found
}

/// Returns a byte of a URI, decoded if it begins an escape, and the rest.
#[inline]
fn unescaped<'text>(byte: u8, after: &'text [u8], found: &mut Oddities) -> (u8, &'text [u8]) {
    if byte != b'%' {
        return (byte, after);
    }
    let (byte, after) = decode_escape(after);
    found.high_escape |= !byte.is_ascii();
    (byte, after)
}

/// Appends the URL form of an object's key, which is not encoded.
pub(crate) fn append_key(key: &[u8], out: &mut Vec<u8>) -> Oddities {
    let mut found = Oddities::default();
    let mut rest = key;
    while let Some((byte, after)) = append_plain_run(rest, out) {
        found.nul |= byte == 0;
        append_byte(byte, out);
        rest = after;
    }
    found
}

/// Returns the encoded form of a value in a query, with `/` encoded too.
pub(crate) fn query_value(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len());
    append_key(value.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).replace('/', "%2F")
}

pub(crate) fn append_decoded(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let (byte, after) = decode_escape(&rest[at + 1..]);
        out.push(byte);
        rest = after;
    }
    out.extend_from_slice(rest);
}

pub(crate) fn decodes_to_utf8(path: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    append_decoded(path, &mut decoded);
    std::str::from_utf8(&decoded).is_ok()
}

/// Returns whether a segment of a decoded or URL path is `..`.
pub(crate) fn has_parent_segment(path: &[u8]) -> bool {
    // Most names have no consecutive dots.
    has_two_dots(path) && path.split(|byte| *byte == b'/').any(|segment| segment == b"..")
}

fn has_two_dots(path: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    let found = crate::simd::has_two_dots(path);
    #[cfg(not(target_arch = "x86_64"))]
    let found = path.windows(2).any(|pair| pair == b"..");
    found
}

/// Appends the leading literal bytes of `text`; returns the next byte and the rest.
fn append_plain_run<'text>(mut text: &'text [u8], out: &mut Vec<u8>) -> Option<(u8, &'text [u8])> {
    // Copying a block of known length and truncating is faster than copying a part of it.
    while let Some((block, rest)) = text.split_first_chunk() {
        let run = plain_run(block);
        out.extend_from_slice(block);
        if run < block.len() {
            out.truncate(out.len() - block.len() + run);
            return text[run..].split_first().map(|(byte, after)| (*byte, after));
        }
        text = rest;
    }
    let run = plain_bytes(text);
    out.extend_from_slice(&text[..run]);
    text[run..].split_first().map(|(byte, after)| (*byte, after))
}

/// As [`append_plain_run`], to two outputs.
fn append_plain_run_to_both<'text>(
    mut text: &'text [u8],
    out: &mut Vec<u8>,
    other: &mut Vec<u8>,
) -> Option<(u8, &'text [u8])> {
    while let Some((block, rest)) = text.split_first_chunk() {
        let run = plain_run(block);
        for out in [&mut *out, &mut *other] {
            out.extend_from_slice(block);
            if run < block.len() {
                out.truncate(out.len() - block.len() + run);
            }
        }
        if run < block.len() {
            return text[run..].split_first().map(|(byte, after)| (*byte, after));
        }
        text = rest;
    }
    let run = plain_bytes(text);
    out.extend_from_slice(&text[..run]);
    other.extend_from_slice(&text[..run]);
    text[run..].split_first().map(|(byte, after)| (*byte, after))
}

/// Returns the number of leading literal bytes of a block.
fn plain_run(block: &[u8; 16]) -> usize {
    #[cfg(target_arch = "x86_64")]
    let run = crate::simd::url_plain_run(block);
    #[cfg(not(target_arch = "x86_64"))]
    let run = plain_bytes(block);
    run
}

fn plain_bytes(text: &[u8]) -> usize {
    text.iter().take_while(|byte| PLAIN[usize::from(**byte)]).count()
}

fn append_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if PLAIN[usize::from(byte)] {
        out.push(byte);
    } else {
        out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Decodes the escape whose `%` precedes `text`; returns its byte and the rest.
fn decode_escape(text: &[u8]) -> (u8, &[u8]) {
    if let [high, low, after @ ..] = text
        && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
    {
        return (high << 4 | low, after);
    }
    (b'%', text)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uri(path: &str) -> String {
        let mut out = Vec::new();
        append_uri(path.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn both_forms_of_a_path_are_those_of_each_alone(
            path in prop::collection::vec(prop_oneof![Just(b'%'), b'0'..b'g', any::<u8>()], 0..80),
        ) {
            let (mut out, mut decoded) = (b"a".to_vec(), b"b".to_vec());
            let found = append_uri_and_decoded(&path, &mut out, &mut decoded);
            let (mut out_alone, mut decoded_alone) = (b"a".to_vec(), b"b".to_vec());
            prop_assert_eq!(found, append_uri(&path, &mut out_alone));
            append_decoded(&path, &mut decoded_alone);
            prop_assert_eq!((out, decoded), (out_alone, decoded_alone));
        }
    }

    #[test]
    fn raw_once_and_twice_encoded_characters_stand_in_one_path() {
        assert_eq!(uri("é/a%20b/c%253D/d=e+f"), "%C3%A9/a%20b/c%253D/d%3De%2Bf");
        assert_eq!(
            uri("date=2021-04-28%2010%253A30/part-0~._.parquet"),
            "date%3D2021-04-28%2010%253A30/part-0~._.parquet"
        );
    }

    #[test]
    fn an_unreserved_character_that_was_encoded_is_not_encoded_again() {
        assert_eq!(uri("%41%2f%7e"), "A/~");
    }

    #[test]
    fn a_percent_sign_without_two_hex_digits_stands_for_itself() {
        for (path, expected) in
            [("100%", "100%25"), ("a%2", "a%252"), ("%zz%4", "%25zz%254"), ("%%41", "%25A")]
        {
            assert_eq!(uri(path), expected);
        }
    }

    #[test]
    fn parent_segments_are_found_only_as_whole_segments() {
        for path in ["..", "../a", "a/..", "a/../b"] {
            assert!(has_parent_segment(path.as_bytes()), "{path}");
        }
        for path in ["", "a..b", "...", "a/..b/c..", "./a", "a.b/.c"] {
            assert!(!has_parent_segment(path.as_bytes()), "{path}");
        }
    }

    /// A slow reference: decodes byte by byte to a list and encodes the list.
    fn slow_uri(path: &[u8]) -> String {
        let mut decoded = Vec::new();
        let mut index = 0;
        while index < path.len() {
            let escape = path.get(index + 1..index + 3).and_then(|digits| std::str::from_utf8(digits).ok());
            match escape.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit())) {
                Some(digits) if path[index] == b'%' => {
                    decoded.push(u8::from_str_radix(digits, 16).unwrap());
                    index += 3;
                }
                _ => {
                    decoded.push(path[index]);
                    index += 1;
                }
            }
        }
        decoded
            .iter()
            .map(|byte| match char::from(*byte) {
                plain if plain.is_ascii_alphanumeric() || "-._~/".contains(plain) => plain.to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn agrees_with_a_slow_twin(path in "([%a-fA-F0-9=/. é\\x00-\\x7f]|%[0-9a-fA-F]{2}){0,60}") {
            prop_assert_eq!(uri(&path), slow_uri(path.as_bytes()));
        }

        #[test]
        fn decoding_and_encoding_equal_the_combined_function(path in "([%a-f0-9=/.é]|%[0-9a-fA-F]{2}){0,60}") {
            let (mut decoded, mut encoded) = (Vec::new(), Vec::new());
            append_decoded(path.as_bytes(), &mut decoded);
            append_key(&decoded, &mut encoded);
            prop_assert_eq!(uri(&path), String::from_utf8(encoded).unwrap());
        }
    }
}
