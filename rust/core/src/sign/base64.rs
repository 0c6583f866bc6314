//! Signatures in Base64, as a value in a query.
//!
//! A service decodes the query, so `+` must be written as `%2B`, and `/` and `=` are written as escapes too, as the SDKs
//! of Azure do. Escapes give signatures different lengths, while pending signatures are filled in at places of one
//! length: letters and digits, whose escapes have the same meaning, are escaped as well until [`ESCAPES`] characters are.

use ::base64::Engine;
use ::base64::alphabet;
use ::base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};

/// The Base64 characters of 32 bytes.
const CHARACTERS: usize = 44;

/// The number of escaped characters. More than this many of `+/=` occur in one of 10^20 signatures.
const ESCAPES: usize = 16;

/// Decodes keys as the libraries of Azure do: unused bits of the last character may be set.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// Returns the bytes of a key; `None` if it is not in Base64.
pub(crate) fn decode_key(text: &str) -> Option<Vec<u8>> {
    LENIENT.decode(text).ok()
}

pub(super) const SIGNATURE_BYTES: usize = CHARACTERS + 2 * ESCAPES;

/// The escape of each byte.
const ESCAPED: [[u8; 3]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = [[b'%'; 3]; 256];
    let mut byte = 0;
    while byte < 256 {
        escaped[byte] = [b'%', DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    escaped
};

/// Writes the signature to `out`, which has its length: some first characters are all escaped, then the reserved ones.
pub(super) fn write(signature: &[u8; 32], out: &mut [u8]) {
    let mut characters = [b'='; CHARACTERS];
    // The lengths are constant and fit.
    let _ = STANDARD.encode_slice(signature, &mut characters);
    let mut places = [CHARACTERS - 1; ESCAPES];
    let mut count = 1;
    // The last character is `=`, and no other is.
    for at in memchr::memchr2_iter(b'+', b'/', &characters[..CHARACTERS - 1]).take(ESCAPES - 1) {
        places[count - 1] = at;
        places[count] = CHARACTERS - 1;
        count += 1;
    }
    let reserved = &places[..count];

    let behind = |first: usize| reserved.iter().filter(|at| **at >= first).count();
    let mut first = ESCAPES - count;
    while first + behind(first) < ESCAPES {
        first += ESCAPES - first - behind(first);
    }
    let (escapes, mut out) = out.split_at_mut(3 * first);
    for (escape, character) in escapes.as_chunks_mut().0.iter_mut().zip(&characters) {
        *escape = ESCAPED[usize::from(*character)];
    }
    for at in &reserved[count - behind(first)..] {
        let (plain, after) = out.split_at_mut(at - first);
        plain.copy_from_slice(&characters[first..*at]);
        let (escape, after) = after.split_at_mut(3);
        escape.copy_from_slice(&ESCAPED[usize::from(characters[*at])]);
        out = after;
        first = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log_path::percent_decode;

    fn written(signature: &[u8; 32]) -> String {
        let mut out = vec![0; SIGNATURE_BYTES];
        write(signature, &mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn a_signature_has_one_length_and_decodes_to_itself(signature in any::<[u8; 32]>()) {
            let text = written(&signature);
            prop_assert!(!text.contains(['+', '/', '=']));
            let decoded = percent_decode(&text).unwrap();
            prop_assert_eq!(STANDARD.decode(decoded.as_bytes()).unwrap(), signature);
        }
    }

    #[test]
    fn a_signature_of_reserved_characters_alone_has_the_same_length() {
        // 43 of `/` and one `=`: fifteen of the first ones and the last are escaped.
        let text = written(&[0xff; 32]);
        assert_eq!(text.matches("%2F").count(), ESCAPES - 1);
        assert_eq!(STANDARD.decode(percent_decode(&text).unwrap().as_bytes()).unwrap(), [0xff; 32]);
    }
}
