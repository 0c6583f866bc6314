use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::known_tables::{answers, collections};

fn is_corrupt<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::CorruptLog { .. }))
}

/// The descriptors in the JSON commits of a table: (storage type, path or inline, offset, size, cardinality).
fn descriptors(table: &Path) -> Vec<(String, String, usize, usize, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(table.join("_delta_log")).unwrap() {
        let path = entry.unwrap().path();
        // Others' directories hold files of their own, too.
        if path.file_name().unwrap().len() != "00000000000000000000.json".len() {
            continue;
        }
        for line in std::fs::read_to_string(path).unwrap().lines().filter(|line| !line.trim().is_empty()) {
            let action: serde_json::Value = serde_json::from_str(line).unwrap();
            let vector = &action["add"]["deletionVector"];
            if vector.is_object() {
                let number = |name: &str| vector[name].as_u64().unwrap_or_default();
                found.push((
                    vector["storageType"].as_str().unwrap().to_owned(),
                    vector["pathOrInlineDv"].as_str().unwrap().to_owned(),
                    number("offset") as usize,
                    number("sizeInBytes") as usize,
                    number("cardinality"),
                ));
            }
        }
    }
    found
}

#[test]
fn vectors_of_other_writers_delete_the_logged_number_of_rows() {
    for collection in collections() {
        let (mut in_files, mut inline) = (0, 0);
        let readable = |(_, answer): &(_, serde_json::Value)| answer["readerSupported"] == true;
        for (table, _) in answers(&collection).into_iter().filter(readable) {
            for (storage_type, path_or_inline, offset, size, cardinality) in descriptors(&table) {
                let name = table.display();
                let vector = match storage_type.as_str() {
                    // More than a word of 32 bits can hold.
                    "i" if path_or_inline.ends_with("##093") => {
                        assert!(is_corrupt(&decode_inline(&path_or_inline)));
                        continue;
                    }
                    "i" => {
                        inline += 1;
                        decode_inline(&path_or_inline).unwrap()
                    }
                    "u" | "p" => {
                        in_files += 1;
                        let data = std::fs::read(stored(&table, &storage_type, &path_or_inline)).unwrap();
                        assert!(is_corrupt(&decode_file(&data, offset, size + 1)));
                        decode_file(&data, offset, size).unwrap()
                    }
                    other => panic!("{name} has a vector of type {other}"),
                };
                assert_eq!(vector.len(), cardinality, "{name}");
            }
        }
        assert!(
            in_files >= 4 && inline >= 1,
            "the tables of {} hold {in_files} vectors in files and {inline} inline",
            collection.display()
        );
    }
}

/// Returns the path of a vector's file: below its table, or that of its URI.
fn stored(table: &Path, storage_type: &str, place: &str) -> std::path::PathBuf {
    if storage_type == "p" {
        return place.strip_prefix("file://").unwrap().into();
    }
    let mut path = String::new();
    append_relative_path(place, &mut path).unwrap();
    table.join(path)
}

/// A file by PROTOCOL's format, byte by byte: version, size, magic, one bitmap of one array container, checksum.
#[test]
fn the_rows_of_a_known_vector() {
    let vector = [
        &1_681_511_377_u32.to_le_bytes()[..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 9, 0],
    ]
    .concat();
    let checksum = [0x2a, 0x67, 0x18, 0x46];
    let file = [&[1, 0, 0, 0, 36][..], &vector, &checksum].concat();
    assert_eq!(rows(&decode_file(&file, 1, 36).unwrap(), 2).unwrap(), [0, 9]);
}

#[test]
fn the_rows_of_a_known_inline_vector() {
    let vector = decode_inline("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L").unwrap();
    assert_eq!(rows(&vector, 100).unwrap(), [3, 4, 7, 11, 18, 29]);
}

/// The example in PROTOCOL has the magic number of a format that no reader supports.
#[test]
fn a_vector_of_another_format_is_refused() {
    assert!(is_corrupt(&decode_inline("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")));
}

#[test]
fn an_altered_file_is_corrupt_wherever_it_was_altered() {
    let file = encode_file(&RoaringTreemap::from([1, 2, 1 << 40])).unwrap();
    let size = file.len() - 1 - 2 * SIZE_BYTES;
    assert_eq!(rows(&decode_file(&file, 1, size).unwrap(), 3).unwrap(), [1, 2, 1 << 40]);
    for at in 0..file.len() {
        let mut altered = file.clone();
        altered[at] ^= 1;
        assert!(is_corrupt(&decode_file(&altered, 1, size)), "byte {at}");
        assert!(is_corrupt(&decode_file(&file[..at], 1, size)), "cut at {at}");
    }
    assert!(is_corrupt(&decode_file(&file, usize::MAX, size)));
    assert!(is_corrupt(&decode_file(&file, 1, usize::MAX)));
}

#[test]
fn a_vector_of_thousands_of_millions_of_rows_is_not_listed() {
    let mut vector = RoaringTreemap::new();
    vector.insert_range(0..1 << 33);
    assert!(is_corrupt(&rows(&vector, 1_000_000)));
}

#[test]
fn text_that_is_not_z85_is_corrupt() {
    for text in ["", "0", "00000", "0000~", "#####", "é000", "wi5b=00001"] {
        assert!(is_corrupt(&decode_inline(text)), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decoding_reverts_encoding(
        few in prop::collection::btree_set(any::<u64>(), 0..50),
        start in 0_u64..1 << 34,
        length in 0_u64..100_000,
    ) {
        let mut expected: RoaringTreemap = few.into_iter().collect();
        expected.insert_range(start..start + length);
        let file = encode_file(&expected).unwrap();
        prop_assert_eq!(decode_file(&file, 1, file.len() - 9).unwrap(), expected);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_vector_and_never_a_panic(
        rows in prop::collection::btree_set(0_u64..1 << 33, 0..40),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        run in any::<bool>(),
    ) {
        let mut vector: RoaringTreemap = rows.into_iter().collect();
        if run {
            let mut runs = (5..50_000).collect::<roaring::RoaringBitmap>();
            runs.optimize();
            vector.extend([1 << 33]);
            vector |= RoaringTreemap::from_bitmaps([(0, runs)]);
        }
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        vector.serialize_into(&mut bytes).unwrap();
        for (index, byte) in noise {
            let at = index.index(bytes.len() - 4) + 4;
            bytes[at] = byte;
        }
        if let Ok(vector) = decode_vector(&bytes) {
            prop_assert!(super::rows(&vector, 100_000).is_ok_and(|rows| rows.is_sorted()) || vector.len() > 100_000);
        }
    }

    #[test]
    fn any_text_is_a_path_or_an_error(text in ".{0,40}") {
        let mut path = String::new();
        if append_relative_path(&text, &mut path).is_ok() {
            prop_assert!(path.contains("deletion_vector_"));
        }
        let _ = decode_inline(&text).is_ok();
    }
}
