//! Partition values of timestamps in the format of the parquet response format.
//!
//! A log may hold `1970-01-01 00:00:00`, with an optional fraction, or ISO 8601 with a zone (PROTOCOL, section Partition
//! Value Serialization). Clients of the parquet format know only the former; timestamps with a zone are written in UTC.

use std::borrow::Cow;
use std::sync::Arc;

use crate::actions::{Metadata, PartitionTuple};
use crate::civil_time;
use crate::escape::append_string;
use crate::schema::{DataType, PartitionNames, PrimitiveType, StructType};

/// Which partition columns of a table are timestamps.
#[derive(Debug)]
pub(crate) struct PartitionTimestamps {
    /// The keys of `partitionValues`.
    names: Arc<[Box<str>]>,
    is_timestamp: Box<[bool]>,
}

impl PartitionTimestamps {
    /// `None` where no partition column is a timestamp, as in most tables.
    pub(crate) fn of(metadata: &Metadata) -> Option<Arc<Self>> {
        let columns = &metadata.partition_columns;
        if columns.is_empty() {
            return None;
        }
        // Without a schema there is no answer.
        let schema = StructType::of(metadata).ok()?;
        let is_timestamp = |name: &String| {
            let column = schema.resolve(std::slice::from_ref(name)).ok();
            column.is_some_and(|column| {
                matches!(
                    column.data_type,
                    DataType::Primitive(PrimitiveType::Timestamp | PrimitiveType::TimestampNtz)
                )
            })
        };
        let is_timestamp: Box<[bool]> = columns.iter().map(is_timestamp).collect();
        let names = PartitionNames::of(metadata).columns;
        is_timestamp.contains(&true).then(|| Arc::new(Self { names, is_timestamp }))
    }

    /// Appends the `partitionValues` object of a file. A value that is not a timestamp stays unchanged.
    pub(crate) fn append(&self, tuple: &PartitionTuple, out: &mut Vec<u8>) {
        let spelled = |column: usize, value: &str| {
            if self.is_timestamp.get(column) == Some(&true) { civil_time::normalized(value) } else { None }
        };
        let mut is_changed = false;
        let values: Vec<Option<Cow<'_, str>>> = (0..)
            .zip(&tuple.values)
            .map(|(column, value)| {
                let value = value.as_deref()?;
                let spelled = spelled(column, value).filter(|spelled| spelled != value);
                is_changed |= spelled.is_some();
                Some(spelled.map_or(Cow::Borrowed(value), Cow::Owned))
            })
            .collect();
        if !is_changed {
            out.extend_from_slice(&tuple.json);
            return;
        }
        for (column, (name, value)) in self.names.iter().zip(values).enumerate() {
            out.push(if column == 0 { b'{' } else { b',' });
            append_string(name, out);
            out.push(b':');
            match value {
                Some(value) => append_string(&value, out),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::PartitionInterner;

    fn metadata(types: &[(&str, &str)]) -> Metadata {
        let field = |(name, data_type): &(&str, &str)| {
            format!(r#"{{"name":"{name}","type":"{data_type}","nullable":true,"metadata":{{}}}}"#)
        };
        let fields: Vec<_> = types.iter().map(field).collect();
        Metadata {
            schema_string: Some(format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))),
            partition_columns: types.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ..Metadata::default()
        }
    }

    fn written(timestamps: &PartitionTimestamps, values: &[Option<&str>]) -> String {
        let mut interner = PartitionInterner::new(&timestamps.names);
        let mut column = interner.column(1);
        column.push(values);
        let mut out = Vec::new();
        timestamps.append(&column.finish().dictionary[0], &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn timestamps_are_written_in_one_spelling_and_other_values_as_they_are() {
        let table = metadata(&[("s\u{e9}", "string"), ("t", "timestamp"), ("d", "date")]);
        let timestamps = PartitionTimestamps::of(&table).unwrap();
        for (logged, expected) in [
            ("1970-01-02T08:45:00.000000Z", "1970-01-02 08:45:00"),
            ("1970-01-02T08:45:00.123456Z", "1970-01-02 08:45:00.123456"),
            ("1970-01-02T10:45:00.5+02:00", "1970-01-02 08:45:00.500000"),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31 23:59:59.999999"),
            ("2024-02-29 00:00:00", "2024-02-29 00:00:00"),
            ("2024-2-29 1:02:03.1", "2024-02-29 01:02:03.100000"),
            ("2024-02-29", "2024-02-29 00:00:00"),
            ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999"),
            ("+12024-02-29T00:00:00Z", "+12024-02-29T00:00:00Z"),
            ("2024-02-29T00:00:00.1234567Z", "2024-02-29T00:00:00.1234567Z"),
            ("soon", "soon"),
        ] {
            let text = written(&timestamps, &[Some("1970-01-02T08:45:00Z\u{2028}"), Some(logged), None]);
            assert_eq!(
                text,
                format!(r#"{{"sé":"1970-01-02T08:45:00Z\u2028","t":"{expected}","d":null}}"#),
                "{logged}"
            );
        }
        assert_eq!(written(&timestamps, &[None, None, None]), r#"{"sé":null,"t":null,"d":null}"#);
    }

    #[test]
    fn partitions_without_timestamps_are_not_normalized() {
        assert!(PartitionTimestamps::of(&metadata(&[])).is_none());
        assert!(PartitionTimestamps::of(&metadata(&[("s", "string"), ("d", "date")])).is_none());
    }
}
