//! Deletion vectors: their location and the rows that they delete (PROTOCOL, section Deletion Vectors).
//!
//! Takes bytes of a deletion vector file or the text of an inline vector, from any origin. Returns row indices, or
//! [`Error::CorruptLog`]. A size in the input is never used to allocate memory.
//!
//! ```
//! use deltalog::deletion_vector::{MAX_ROWS, RoaringTreemap, decode_file, encode_file, rows};
//!
//! let file = encode_file(&RoaringTreemap::from_iter([0, 9]))?;
//! let vector = decode_file(&file, 1, file.len() - 9)?;
//! assert_eq!(rows(&vector, MAX_ROWS)?, [0, 9]);
//! # Ok::<(), deltalog::Error>(())
//! ```

pub use roaring::RoaringTreemap;

use crate::{Error, Result};

/// The version of a deletion vector file, its first byte.
const FILE_VERSION: u8 = 1;

/// Maximum rows of a vector that is returned as a list. No data file holds more.
pub const MAX_ROWS: u64 = 1 << 31;

/// Size of the length before a vector in a file, and of the checksum after it.
const SIZE_BYTES: usize = 4;

/// The first word of a vector: a treemap of roaring bitmaps follows.
const MAGIC: u32 = 1_681_511_377;

/// Decodes the vector in a deletion vector file at `offset`, and verifies its checksum.
pub fn decode_file(data: &[u8], offset: usize, size_in_bytes: usize) -> Result<RoaringTreemap> {
    if data.first() != Some(&FILE_VERSION) {
        return Err(corrupt("the file's version is not supported"));
    }
    let too_short = || corrupt("the file ends before the vector does");
    let (size, rest) =
        data.get(offset..).and_then(|rest| rest.split_first_chunk::<SIZE_BYTES>()).ok_or_else(too_short)?;
    if u32::from_be_bytes(*size) as usize != size_in_bytes {
        return Err(corrupt("the vector has another size than the log says"));
    }
    let (vector, rest) = rest.split_at_checked(size_in_bytes).ok_or_else(too_short)?;
    let checksum = rest.first_chunk().ok_or_else(too_short)?;
    if crc32fast::hash(vector) != u32::from_be_bytes(*checksum) {
        return Err(corrupt("the vector's checksum is wrong"));
    }
    decode_vector(vector)
}

/// Decodes an inline vector, z85 text in the log.
pub fn decode_inline(z85: &str) -> Result<RoaringTreemap> {
    let (words, rest) = z85.as_bytes().as_chunks::<5>();
    if !rest.is_empty() {
        return Err(corrupt("a vector's text is not z85"));
    }
    let words = words.iter().map(|word| decode_z85_word(*word)).collect::<Result<Vec<_>>>()?;
    decode_vector(words.as_flattened())
}

/// Encodes a deletion vector file with one vector at offset 1.
pub fn encode_file(rows: &RoaringTreemap) -> Result<Vec<u8>> {
    let mut vector = MAGIC.to_le_bytes().to_vec();
    rows.serialize_into(&mut vector).map_err(|error| Error::Internal { detail: error.to_string() })?;
    let too_large = |_| Error::InvalidArgument("a deletion vector must be smaller than 4 GiB".to_owned());
    let size = u32::try_from(vector.len()).map_err(too_large)?;
    let checksum = crc32fast::hash(&vector);
    Ok([&[FILE_VERSION], size.to_be_bytes().as_slice(), &vector, &checksum.to_be_bytes()].concat())
}

/// Returns the rows of `vector` in ascending order, or an error if there are more than `limit`: a few bytes may
/// represent billions of rows.
pub fn rows(vector: &RoaringTreemap, limit: u64) -> Result<Vec<u64>> {
    if vector.len() > limit {
        return Err(corrupt("the vector deletes more rows than a file holds"));
    }
    Ok(vector.iter().collect())
}

fn decode_vector(vector: &[u8]) -> Result<RoaringTreemap> {
    let (magic, rest) = vector.split_first_chunk().ok_or_else(|| corrupt("the vector is empty"))?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(corrupt("the vector's format is not supported"));
    }
    let count = rest.first_chunk().map(|count| u64::from_le_bytes(*count));
    let treemap =
        RoaringTreemap::deserialize_from(rest).map_err(|_| corrupt("the vector's bitmaps are broken"))?;
    if count != Some(treemap.bitmaps().count() as u64) {
        return Err(corrupt("the vector has two bitmaps for the same rows"));
    }
    Ok(treemap)
}

/// The z85 text of a uuid.
const UUID_TEXT_BYTES: usize = 20;

/// Appends the path, relative to the table's root and not percent-encoded, of a vector stored by uuid.
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

#[cfg(test)]
mod tests;
