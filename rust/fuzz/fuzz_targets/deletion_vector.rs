//! Any bytes as a deletion vector: as a whole file, inside of a file whose checksum is right, as inline text.
//!
//! A vector that decodes has the same rows from a file and from text, and after encoding again.

#![no_main]

use deltalog::Error;
use deltalog::deletion_vector::{
    RoaringTreemap, append_relative_path, decode_file, decode_inline, encode_file, rows,
};
use libfuzzer_sys::fuzz_target;

const Z85: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

fuzz_target!(|data: &[u8]| {
    let size = data.get(1..5).and_then(|size| size.try_into().ok()).map_or(0, u32::from_be_bytes);
    checked(decode_file(data, 1, size as usize));
    if let Ok(text) = std::str::from_utf8(data) {
        checked(decode_inline(text));
        checked(append_relative_path(text, &mut String::new()));
    }

    let mut vector = data.to_vec();
    vector.resize(data.len().next_multiple_of(4), 0);
    let from_file = checked(decode_file(&enclosed(&vector), 1, vector.len()));
    let from_text = checked(decode_inline(&z85(&vector)));
    assert_eq!(from_file, from_text);
    if let Some(treemap) = from_file {
        round_trip(&treemap);
    }
});

/// A file that holds one vector, with the checksum that it ought to have.
fn enclosed(vector: &[u8]) -> Vec<u8> {
    let size = (vector.len() as u32).to_be_bytes();
    let checksum = crc32fast::hash(vector).to_be_bytes();
    [&[1], size.as_slice(), vector, checksum.as_slice()].concat()
}

fn z85(bytes: &[u8]) -> String {
    let (words, _) = bytes.as_chunks::<4>();
    let digits = words.iter().flat_map(|word| {
        let word = u32::from_be_bytes(*word);
        (0..5).rev().map(move |power| char::from(Z85[(word / 85_u32.pow(power) % 85) as usize]))
    });
    digits.collect()
}

fn round_trip(treemap: &RoaringTreemap) {
    if let Some(rows) = checked(rows(treemap, 10_000)) {
        assert_eq!(rows.len() as u64, treemap.len());
        assert!(rows.is_sorted_by(|one, next| one < next));
    }
    let file = encode_file(treemap).expect("what was decoded can be encoded");
    let again = decode_file(&file, 1, file.len() - 9).expect("what was encoded can be decoded");
    assert_eq!(*treemap, again);
}

fn checked<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::CorruptLog { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}
