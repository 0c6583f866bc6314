//! Puts shredded variants together (Parquet, Variant Encoding and Variant Shredding).
//!
//! Takes the struct of `metadata`, `value` and `typed_value` that a Parquet reader returns, and returns whole values. Names
//! of fields are those of the metadata's dictionary, which a writer completes for shredded fields, too. Bytes of files are
//! not trusted: values that break the encoding are an error.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrowPrimitiveType, BooleanArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use crate::{Error, Result};

const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;
const NULL: u8 = 0;
const LONGEST_SHORT_STRING: usize = 63;
const LARGEST_SMALL_COUNT: usize = 255;
/// Number of dictionaries that are kept parsed. Rows of one writer share a few.
const KEPT_DICTIONARIES: usize = 64;

/// Encoded values, one after the other.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Values {
    /// The start of each value, and the end of the last one. A null row has an empty value.
    pub offsets: Vec<i32>,
    /// The bytes of all values.
    pub data: Vec<u8>,
}

/// Returns the whole value of each row.
///
/// Returns [`Error::InvalidArgument`] for shredded types that variants do not have, and for values that break the
/// encoding.
pub fn whole_values(variants: &StructArray) -> Result<Values> {
    let metadata = variants.column_by_name("metadata").ok_or_else(|| broken("has no metadata"))?;
    let metadata = Bytes::of(metadata.as_ref()).ok_or_else(|| broken("has metadata of another type"))?;
    let group = Group::of(variants)?;
    let mut values = Values { offsets: vec![0], data: Vec::new() };
    let mut dictionaries = HashMap::new();
    for row in 0..variants.len() {
        if variants.is_valid(row) {
            let bytes = metadata.at(row).unwrap_or_default();
            if dictionaries.len() >= KEPT_DICTIONARIES && !dictionaries.contains_key(bytes) {
                dictionaries.clear();
            }
            if !dictionaries.contains_key(bytes) {
                dictionaries
                    .insert(bytes, Dictionary::parse(bytes).ok_or_else(|| broken("has no dictionary"))?);
            }
            if !group.write(row, &dictionaries[bytes], &mut values.data)? {
                values.data.push(NULL);
            }
        }
        let end = i32::try_from(values.data.len()).map_err(|_| broken("is too large"))?;
        values.offsets.push(end);
    }
    Ok(values)
}

fn broken(what: &str) -> Error {
    Error::InvalidArgument(format!("a shredded variant {what}"))
}

/// The names in a variant's metadata.
struct Dictionary<'a> {
    names: Vec<&'a [u8]>,
    ids: HashMap<&'a [u8], u32>,
}

impl<'a> Dictionary<'a> {
    fn parse(metadata: &'a [u8]) -> Option<Self> {
        let width = usize::from(*metadata.first()? >> 6) + 1;
        let mut rest = metadata.get(1..)?;
        let count = take_number(&mut rest, width)?;
        let offsets = rest.get(..count.checked_add(1)?.checked_mul(width)?)?;
        let texts = &rest[offsets.len()..];
        let offsets: Vec<usize> = offsets.chunks_exact(width).map(number).collect();
        let names: Vec<&[u8]> =
            offsets.windows(2).map(|ends| texts.get(ends[0]..ends[1])).collect::<Option<_>>()?;
        let ids = names.iter().zip(0..).map(|(name, id)| (*name, id)).collect();
        Some(Self { names, ids })
    }
}

/// Reads a little-endian number of at most four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn take_number(rest: &mut &[u8], width: usize) -> Option<usize> {
    let (bytes, after) = rest.split_at_checked(width)?;
    *rest = after;
    Some(number(bytes))
}

/// The two halves of a variant.
struct Group<'a> {
    value: Option<Bytes<'a>>,
    typed: Option<Typed<'a>>,
}

impl<'a> Group<'a> {
    fn of(array: &'a StructArray) -> Result<Self> {
        // A column of nulls alone may have no type.
        let half = |name| array.column_by_name(name).filter(|half| *half.data_type() != DataType::Null);
        let value = half("value")
            .map(|value| Bytes::of(value.as_ref()).ok_or_else(|| broken("has a value of another type")));
        let typed = half("typed_value").map(|typed| Typed::of(typed.as_ref()));
        Ok(Self { value: value.transpose()?, typed: typed.transpose()? })
    }

    /// Appends the variant of a row; returns false if both halves are missing.
    fn write(&self, row: usize, dictionary: &Dictionary<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let value = self.value.as_ref().and_then(|value| value.at(row));
        let Some(typed) = self.typed.as_ref().filter(|typed| typed.is_valid(row)) else {
            out.extend_from_slice(value.unwrap_or_default());
            return Ok(value.is_some());
        };
        match &typed.kind {
            Kind::Boolean(array) => out.push(if array.value(row) { 1 << 2 } else { 2 << 2 }),
            Kind::Fixed { head, bytes, stride, width } => {
                out.extend_from_slice(head);
                out.extend_from_slice(&bytes[row * stride..row * stride + width]);
            }
            Kind::Binary { code, bytes } => {
                let bytes = bytes.at(row).unwrap_or_default();
                if *code == STRING && bytes.len() <= LONGEST_SHORT_STRING {
                    out.push((bytes.len() as u8) << 2 | SHORT_STRING);
                } else {
                    out.push(code << 2);
                    let length = u32::try_from(bytes.len()).map_err(|_| broken("is too large"))?;
                    out.extend_from_slice(&length.to_le_bytes());
                }
                out.extend_from_slice(bytes);
            }
            Kind::Object(fields) => write_object(fields, value, row, dictionary, out)?,
            Kind::Array { offsets, elements } => {
                let mut body = Vec::new();
                let mut ends = vec![0];
                for element in offsets.at(row)..offsets.at(row + 1) {
                    if !elements.write(element, dictionary, &mut body)? {
                        body.push(NULL);
                    }
                    ends.push(body.len());
                }
                write_array(&ends, &body, out)?;
            }
        }
        Ok(true)
    }
}

/// The typed half of variants.
struct Typed<'a> {
    valid: Option<&'a NullBuffer>,
    kind: Kind<'a>,
}

const BINARY: u8 = 15;
const STRING: u8 = 16;

enum Kind<'a> {
    Boolean(&'a BooleanArray),
    /// The first `width` of `stride` bytes of each value, after `head`.
    Fixed {
        head: Vec<u8>,
        bytes: &'a [u8],
        stride: usize,
        width: usize,
    },
    Binary {
        code: u8,
        bytes: Bytes<'a>,
    },
    Object(Vec<(&'a [u8], Group<'a>)>),
    Array {
        offsets: Offsets<'a>,
        elements: Box<Group<'a>>,
    },
}

impl<'a> Typed<'a> {
    fn of(array: &'a dyn Array) -> Result<Self> {
        let kind = match array.data_type() {
            DataType::Boolean => Kind::Boolean(array.as_boolean()),
            DataType::Int8 => fixed::<Int8Type>(array, &[3 << 2]),
            DataType::Int16 => fixed::<Int16Type>(array, &[4 << 2]),
            DataType::Int32 => fixed::<Int32Type>(array, &[5 << 2]),
            DataType::Int64 => fixed::<Int64Type>(array, &[6 << 2]),
            DataType::Float64 => fixed::<Float64Type>(array, &[7 << 2]),
            DataType::Float32 => fixed::<Float32Type>(array, &[14 << 2]),
            DataType::Date32 => fixed::<Date32Type>(array, &[11 << 2]),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let code = if zone.is_some() { 12 } else { 13 };
                fixed::<TimestampMicrosecondType>(array, &[code << 2])
            }
            DataType::Decimal128(precision, scale) => {
                let (code, bytes) = match precision {
                    ..=9 => (8, 4),
                    ..=18 => (9, 8),
                    _ => (10, 16),
                };
                let scale = u8::try_from(*scale).map_err(|_| broken("has a decimal of a negative scale"))?;
                let mut kind = fixed::<Decimal128Type>(array, &[code << 2, scale]);
                if let Kind::Fixed { width, .. } = &mut kind {
                    *width = bytes;
                }
                kind
            }
            DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => {
                let is_text = matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8);
                let bytes = Bytes::of(array).ok_or_else(|| unsupported(array.data_type()))?;
                Kind::Binary { code: if is_text { STRING } else { BINARY }, bytes }
            }
            DataType::Struct(fields) => {
                let array = array.as_struct();
                let groups = fields.iter().zip(array.columns()).map(|(field, column)| {
                    let group = column.as_struct_opt().ok_or_else(|| unsupported(column.data_type()))?;
                    Ok((field.name().as_bytes(), Group::of(group)?))
                });
                Kind::Object(groups.collect::<Result<_>>()?)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                array_of(list.values().as_ref(), Offsets::Small(list.value_offsets()))?
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                array_of(list.values().as_ref(), Offsets::Large(list.value_offsets()))?
            }
            other => return Err(unsupported(other)),
        };
        Ok(Self { valid: array.nulls(), kind })
    }

    fn is_valid(&self, row: usize) -> bool {
        self.valid.is_none_or(|valid| valid.is_valid(row))
    }
}

fn unsupported(kind: &DataType) -> Error {
    Error::InvalidArgument(format!("variants that are shredded as {kind} cannot be read"))
}

fn fixed<'a, T: ArrowPrimitiveType>(array: &'a dyn Array, head: &[u8]) -> Kind<'a> {
    let stride = size_of::<T::Native>();
    let bytes = array.as_primitive::<T>().values().inner().as_slice();
    Kind::Fixed { head: head.to_vec(), bytes, stride, width: stride }
}

fn array_of<'a>(elements: &'a dyn Array, offsets: Offsets<'a>) -> Result<Kind<'a>> {
    let elements = elements.as_struct_opt().ok_or_else(|| unsupported(elements.data_type()))?;
    Ok(Kind::Array { offsets, elements: Box::new(Group::of(elements)?) })
}

enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl Offsets<'_> {
    fn at(&self, index: usize) -> usize {
        match self {
            Self::Small(offsets) => offsets[index] as usize,
            Self::Large(offsets) => offsets[index] as usize,
        }
    }
}

/// A column of texts or bytes.
struct Bytes<'a> {
    valid: Option<&'a NullBuffer>,
    offsets: Offsets<'a>,
    data: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn of(array: &'a dyn Array) -> Option<Self> {
        let (offsets, data) = if let Some(array) = array.as_binary_opt::<i32>() {
            (Offsets::Small(array.value_offsets()), array.value_data())
        } else if let Some(array) = array.as_binary_opt::<i64>() {
            (Offsets::Large(array.value_offsets()), array.value_data())
        } else if let Some(array) = array.as_string_opt::<i32>() {
            (Offsets::Small(array.value_offsets()), array.value_data())
        } else {
            let array = array.as_string_opt::<i64>()?;
            (Offsets::Large(array.value_offsets()), array.value_data())
        };
        Some(Self { valid: array.nulls(), offsets, data })
    }

    fn at(&self, row: usize) -> Option<&'a [u8]> {
        let is_valid = self.valid.is_none_or(|valid| valid.is_valid(row));
        is_valid.then(|| &self.data[self.offsets.at(row)..self.offsets.at(row + 1)])
    }
}

/// Writes an object of the shredded fields that a row has, and of the fields of `value`.
fn write_object(
    groups: &[(&[u8], Group<'_>)],
    value: Option<&[u8]>,
    row: usize,
    dictionary: &Dictionary<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut shredded = Vec::new();
    let mut ranges = Vec::with_capacity(groups.len());
    for (name, group) in groups {
        let start = shredded.len();
        if group.write(row, dictionary, &mut shredded)? {
            ranges.push((*name, start..shredded.len()));
        }
    }
    let mut fields: Vec<(&[u8], &[u8])> =
        ranges.into_iter().map(|(name, range)| (name, &shredded[range])).collect();
    if let Some(value) = value {
        fields.extend(object_fields(value, dictionary)?);
    }
    // The sort is stable: of two fields by one name the shredded one counts.
    fields.sort_by_key(|(name, _)| *name);
    fields.dedup_by_key(|(name, _)| *name);
    let id = |name: &[u8]| dictionary.ids.get(name).map(|id| *id as usize);
    let ids: Vec<usize> = fields
        .iter()
        .map(|(name, _)| id(name).ok_or_else(|| broken("has a field that its metadata does not name")))
        .collect::<Result<_>>()?;
    let mut ends = Vec::with_capacity(fields.len() + 1);
    ends.push(0);
    ends.extend(fields.iter().scan(0, |end, (_, bytes)| {
        *end += bytes.len();
        Some(*end)
    }));
    let is_large = fields.len() > LARGEST_SMALL_COUNT;
    let (id_width, width) = (width(ids.iter().copied().max().unwrap_or(0))?, width(ends[fields.len()])?);
    out.push((u8::from(is_large) << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | OBJECT);
    push_all(&[fields.len()], if is_large { 4 } else { 1 }, out);
    push_all(&ids, id_width, out);
    push_all(&ends, width, out);
    for (_, bytes) in fields {
        out.extend_from_slice(bytes);
    }
    Ok(())
}

fn write_array(ends: &[usize], body: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let count = ends.len() - 1;
    let is_large = count > LARGEST_SMALL_COUNT;
    let width = width(body.len())?;
    out.push((u8::from(is_large) << 2 | (width - 1)) << 2 | ARRAY);
    push_all(&[count], if is_large { 4 } else { 1 }, out);
    push_all(ends, width, out);
    out.extend_from_slice(body);
    Ok(())
}

/// Returns how many bytes a number and all smaller ones need.
fn width(largest: usize) -> Result<u8> {
    let largest = u32::try_from(largest).map_err(|_| broken("is too large"))?;
    Ok((u32::BITS - largest.leading_zeros()).div_ceil(8).max(1) as u8)
}

fn push_all(numbers: &[usize], width: u8, out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&(*number as u32).to_le_bytes()[..usize::from(width)]);
    }
}

/// Returns the fields of an object that are not shredded.
fn object_fields<'a>(value: &'a [u8], dictionary: &Dictionary<'a>) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    if value.first().is_none_or(|head| head & 3 != OBJECT) {
        return Err(broken("is an object and another value at once"));
    }
    let fields = unshredded(value, dictionary).ok_or_else(|| broken("has a value that ends too early"))?;
    // Of fields that share bytes each would be written: a small file could fill the memory of its readers.
    if fields.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > value.len() {
        return Err(broken("has fields that overlap"));
    }
    Ok(fields)
}

fn unshredded<'a>(value: &'a [u8], dictionary: &Dictionary<'a>) -> Option<Vec<(&'a [u8], &'a [u8])>> {
    let head = usize::from(*value.first()? >> 2);
    let (width, id_width) = ((head & 3) + 1, (head >> 2 & 3) + 1);
    let mut rest = value.get(1..)?;
    let count = take_number(&mut rest, if head >> 4 & 1 == 1 { 4 } else { 1 })?;
    let (ids, rest) = rest.split_at_checked(count.checked_mul(id_width)?)?;
    let (offsets, body) = rest.split_at_checked(count.checked_add(1)?.checked_mul(width)?)?;
    let offsets: Vec<usize> = offsets.chunks_exact(width).map(number).collect();
    // Values may have another order than their names: each ends where the next one in the body starts.
    let mut starts = offsets.clone();
    starts.sort_unstable();
    let fields = ids.chunks_exact(id_width).map(number).zip(&offsets).map(|(id, start)| {
        let end = starts.get(starts.partition_point(|other| other <= start))?;
        Some((*dictionary.names.get(id)?, body.get(*start..*end)?))
    });
    fields.collect()
}

#[cfg(test)]
mod tests;
