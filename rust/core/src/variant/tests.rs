use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, ListArray, NullArray, StringArray, StructArray, Time64MicrosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{Field, Fields};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The dictionary of `a`, `b` and `z`.
const NAMES: &[u8] = b"\x01\x03\x00\x01\x02\x03abz";
/// An object whose only field is `z`, true.
const ONLY_Z: &[u8] = b"\x02\x01\x02\x00\x01\x04";

fn group(fields: Vec<(&str, ArrayRef)>) -> StructArray {
    let (fields, columns): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
        .unzip();
    StructArray::new(Fields::from(fields), columns, None)
}

fn bytes(values: Vec<Option<&[u8]>>) -> ArrayRef {
    Arc::new(BinaryArray::from(values))
}

/// Variants that are shredded as objects with a number `a`.
fn objects(metadata: &[u8], values: Vec<Option<&[u8]>>, numbers: Vec<Option<i64>>) -> StructArray {
    let rows = values.len();
    let a =
        group(vec![("value", bytes(vec![None; rows])), ("typed_value", Arc::new(Int64Array::from(numbers)))]);
    group(vec![
        ("metadata", bytes(vec![Some(metadata); rows])),
        ("value", bytes(values)),
        ("typed_value", Arc::new(group(vec![("a", Arc::new(a))]))),
    ])
}

fn values(variants: &StructArray) -> Vec<Vec<u8>> {
    let Values { offsets, data } = whole_values(variants).unwrap();
    offsets.windows(2).map(|ends| data[ends[0] as usize..ends[1] as usize].to_vec()).collect()
}

#[test]
fn fields_of_both_halves_make_one_object_in_the_order_of_their_names() {
    let found = values(&objects(NAMES, vec![Some(ONLY_Z), None, None], vec![Some(7), Some(-1), None]));
    let seven = [6 << 2, 7, 0, 0, 0, 0, 0, 0, 0];
    let both = [&[2, 2, 0, 2, 0, 9, 10][..], &seven, &[4]].concat();
    assert_eq!(found[0], both);
    assert_eq!(found[1][..5], [2, 1, 0, 0, 9]);
    assert_eq!(found[2], [2, 0, 0]);
}

#[test]
fn a_shredded_field_precedes_one_of_the_same_name() {
    let only_a = b"\x02\x01\x00\x00\x01\x04";
    let found = values(&objects(NAMES, vec![Some(only_a)], vec![Some(7)]));
    assert_eq!(found[0], [2, 1, 0, 0, 9, 6 << 2, 7, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_array_has_its_elements_and_null_for_missing_ones() {
    let elements = group(vec![
        ("value", bytes(vec![None, Some(b"\x04"), None])),
        ("typed_value", Arc::new(StringArray::from(vec![Some("x"), None, None]))),
    ]);
    let field = Arc::new(Field::new("element", elements.data_type().clone(), true));
    let list = ListArray::new(field, OffsetBuffer::from_lengths([3, 0]), Arc::new(elements), None);
    let found =
        values(&group(vec![("metadata", bytes(vec![Some(NAMES); 2])), ("typed_value", Arc::new(list))]));
    assert_eq!(found, [vec![3, 3, 0, 2, 3, 4, 1 << 2 | 1, b'x', 4, 0], vec![3, 0, 0]]);
}

#[test]
fn a_variant_without_halves_is_null() {
    let nulls: ArrayRef = Arc::new(NullArray::new(1));
    for fields in [vec![], vec![("value", Arc::clone(&nulls)), ("typed_value", nulls)]] {
        let fields = [vec![("metadata", bytes(vec![Some(NAMES)]))], fields].concat();
        assert_eq!(values(&group(fields)), [[0]]);
    }
}

#[test]
fn what_breaks_the_encoding_is_an_error() {
    for (metadata, value, reason) in [
        (NAMES, &b"\x04"[..], "another value at once"),
        (NAMES, b"", "another value at once"),
        (NAMES, b"\x02", "ends too early"),
        (NAMES, b"\x02\x01\x09\x00\x01\x04", "ends too early"),
        (NAMES, b"\x02\x01\x02\x05\x01\x04", "ends too early"),
        (NAMES, b"\x02\x02\x01\x02\x00\x00\x08\x11text\x00\x00\x00", "overlap"),
        (b"\x01\x00\x00", b"\x02\x00\x00", "does not name"),
        (b"", b"\x02\x00\x00", "no dictionary"),
        (b"\xc1\xff\xff\xff\xff", b"\x02\x00\x00", "no dictionary"),
    ] {
        let error = whole_values(&objects(metadata, vec![Some(value)], vec![Some(1)])).unwrap_err();
        assert!(error.to_string().contains(reason), "{error} for {metadata:?} {value:?}");
    }
    let times: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![1]));
    let error = whole_values(&group(vec![("metadata", bytes(vec![Some(NAMES)])), ("typed_value", times)]));
    assert!(error.unwrap_err().to_string().contains("Time64"));
}

proptest! {
    #[test]
    fn no_bytes_of_a_file_panic(metadata in vec(any::<u8>(), 0..20), value in vec(any::<u8>(), 0..30)) {
        for metadata in [&metadata[..], NAMES] {
            for value in [value.clone(), [&[2], &value[..]].concat()] {
                let _ = whole_values(&objects(metadata, vec![Some(&value)], vec![Some(1)]));
            }
        }
    }
}
