//! Signatures in Base64, as a value in a query.
//!
//! A service decodes the query, so `+` must be written as `%2B`, and `/` and `=` are written as escapes too, as the SDKs
//! of Azure do. Escapes give signatures different lengths, while pending signatures are filled in at places of one
//! length: letters and digits, whose escapes have the same meaning, are escaped as well until [`ESCAPES`] characters are.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;

/// The Base64 characters of 32 bytes.
const CHARACTERS: usize = 44;

/// The number of escaped characters. More than this many of `+/=` occur in one of 10^20 signatures.
const ESCAPES: usize = 16;

/// The length of a signature.
pub(super) const SIGNATURE_BYTES: usize = CHARACTERS + 2 * ESCAPES;

/// Writes the signature to `out`, which has its length.
pub(super) fn write(signature: &[u8; 32], out: &mut [u8]) {
    let mut characters = [b'='; CHARACTERS];
    // The lengths are constant and fit.
    let _ = STANDARD.encode_slice(signature, &mut characters);
    let mut reserved = characters.iter().filter(|character| is_reserved(**character)).count();
    let mut escapes = ESCAPES;
    let mut at = 0;
    for character in characters {
        let is_escaped = if is_reserved(character) {
            reserved = reserved.saturating_sub(1);
            escapes > 0
        } else {
            escapes > reserved
        };
        if is_escaped {
            escapes -= 1;
            out[at..at + 3].copy_from_slice(&escape(character));
            at += 3;
        } else {
            out[at] = character;
            at += 1;
        }
    }
}

/// Characters with another meaning in a query.
fn is_reserved(character: u8) -> bool {
    matches!(character, b'+' | b'/' | b'=')
}

fn escape(character: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(character >> 4)], DIGITS[usize::from(character & 15)]]
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
        // 43 of `/` and one `=`: the last ones stay as they are.
        let text = written(&[0xff; 32]);
        assert_eq!(text.matches("%2F").count(), ESCAPES);
        assert_eq!(STANDARD.decode(percent_decode(&text).unwrap().as_bytes()).unwrap(), [0xff; 32]);
    }
}
