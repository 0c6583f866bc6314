//! Deletion vectors: where one is stored and which rows it deletes (PROTOCOL, section Deletion Vectors).

use crate::{Error, Result};

/// The z85 text of a uuid.
const UUID_TEXT_BYTES: usize = 20;

/// Appends the path, relative to the table's root and not percent-encoded, of a vector stored by uuid:
/// `path_or_inline` is an optional directory and the uuid in z85.
pub fn append_relative_path(path_or_inline: &str, out: &mut String) -> Result<()> {
    let split_at = path_or_inline.len().checked_sub(UUID_TEXT_BYTES);
    let parts = split_at.and_then(|at| Some((path_or_inline.get(..at)?, path_or_inline.get(at..)?)));
    let (directory, uuid) = parts.ok_or_else(|| corrupt("a vector's uuid is too short"))?;
    let mut bytes = [0; 16];
    for (word, text) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(uuid.as_bytes().as_chunks::<5>().0) {
        *word = decode_z85_word(*text)?;
    }
    if !directory.is_empty() {
        out.push_str(directory);
        out.push('/');
    }
    out.push_str("deletion_vector_");
    push_uuid(bytes, out);
    out.push_str(".bin");
    Ok(())
}

/// `8-4-4-4-12` lower-case hex digits.
fn push_uuid(bytes: [u8; 16], out: &mut String) {
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        for nibble in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(u32::from(nibble), 16));
        }
    }
}

/// Base 85 of RFC 32/Z85.
const Z85_ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

const Z85_VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < Z85_ALPHABET.len() {
        values[Z85_ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};

fn decode_z85_word(text: [u8; 5]) -> Result<[u8; 4]> {
    let mut word: u64 = 0;
    for digit in text {
        match Z85_VALUES[usize::from(digit)] {
            u8::MAX => return Err(corrupt("a vector's text is not z85")),
            value => word = word * 85 + u64::from(value),
        }
    }
    let word = u32::try_from(word).map_err(|_| corrupt("a vector's text is not z85"))?;
    Ok(word.to_be_bytes())
}

fn corrupt(reason: &str) -> Error {
    Error::corrupt("a deletion vector", reason)
}
