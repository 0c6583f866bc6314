//! The typed columns of a checkpoint, `partitionValues_parsed` and `stats_parsed`, converted to text.
//!
//! Partition values follow PROTOCOL, section Partition Value Serialization; statistics are JSON as Delta writes it
//! (section Per-file Statistics).

use std::fmt::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, StringViewArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::calendar::Calendar;
use crate::civil_time::{push_date, push_date_time, push_local};
use crate::escape::push_string;

/// A leaf column of one of the types that partition columns and statistics have.
pub(crate) enum TypedColumn<'a> {
    Boolean(&'a BooleanArray),
    Byte(&'a Int8Array),
    Short(&'a Int16Array),
    Int(&'a Int32Array),
    Long(&'a Int64Array),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Decimal { values: &'a Decimal128Array, scale: i8 },
    Date(&'a Date32Array, Calendar),
    Micros { values: &'a TimestampMicrosecondArray, is_utc: bool, calendar: Calendar },
    Millis { values: &'a TimestampMillisecondArray, is_utc: bool, calendar: Calendar },
    Text(&'a StringViewArray),
    Binary(&'a BinaryArray),
}

impl<'a> TypedColumn<'a> {
    /// `None` for every other type.
    pub(crate) fn of(column: &'a ArrayRef, calendar: Calendar) -> Option<Self> {
        Some(match column.data_type() {
            DataType::Boolean => Self::Boolean(column.as_boolean()),
            DataType::Int8 => Self::Byte(column.as_primitive::<Int8Type>()),
            DataType::Int16 => Self::Short(column.as_primitive::<Int16Type>()),
            DataType::Int32 => Self::Int(column.as_primitive::<Int32Type>()),
            DataType::Int64 => Self::Long(column.as_primitive::<Int64Type>()),
            DataType::Float32 => Self::Float(column.as_primitive::<Float32Type>()),
            DataType::Float64 => Self::Double(column.as_primitive::<Float64Type>()),
            DataType::Decimal128(_, scale) => {
                Self::Decimal { values: column.as_primitive::<Decimal128Type>(), scale: *scale }
            }
            DataType::Date32 => Self::Date(column.as_primitive::<Date32Type>(), calendar),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Self::Micros {
                values: column.as_primitive::<TimestampMicrosecondType>(),
                is_utc: zone.is_some(),
                calendar,
            },
            DataType::Timestamp(TimeUnit::Millisecond, zone) => Self::Millis {
                values: column.as_primitive::<TimestampMillisecondType>(),
                is_utc: zone.is_some(),
                calendar,
            },
            DataType::Utf8View => Self::Text(column.as_string_view()),
            DataType::Binary => Self::Binary(column.as_binary::<i32>()),
            _ => return None,
        })
    }

    /// Appends a value as the string of a partition value; returns false if its day or time is unknown, or its bytes are
    /// no text. The row must not be null.
    pub(crate) fn push_partition_value(&self, out: &mut String, row: usize) -> bool {
        match self {
            // The string in the log is in the unknown time zone of a session; the form with a zone is the same
            // instant for every reader.
            Self::Micros { is_utc, .. } | Self::Millis { is_utc, .. } => {
                let push = if *is_utc { push_instant } else { push_local };
                return self.micros(row).map(|micros| push(out, micros)).is_some();
            }
            Self::Text(values) => out.push_str(values.value(row)),
            // PROTOCOL has no string for other bytes.
            Self::Binary(values) => match str::from_utf8(values.value(row)) {
                Ok(text) => out.push_str(text),
                Err(_) => return false,
            },
            Self::Float(values) => push_double(out, f64::from(values.value(row)), values.value(row)),
            Self::Double(values) => push_double(out, values.value(row), values.value(row)),
            _ => return self.push_plain(out, row),
        }
        true
    }

    /// Appends a value as Delta writes it into statistics; returns false if its day or time is unknown. The row must not
    /// be null.
    pub(crate) fn push_json(&self, out: &mut String, row: usize) -> bool {
        match self {
            Self::Date(values, calendar) => {
                let Some(day) = calendar.day(values.value(row)) else { return false };
                out.push('"');
                push_date(out, day);
                out.push('"');
            }
            Self::Micros { is_utc, .. } | Self::Millis { is_utc, .. } => {
                let Some(micros) = self.micros(row) else { return false };
                push_json_timestamp(out, micros, *is_utc);
            }
            Self::Text(values) => push_string(values.value(row), out),
            Self::Binary(values) => push_string(&String::from_utf8_lossy(values.value(row)), out),
            Self::Float(values) if values.value(row).is_finite() => {
                _ = write!(out, "{:?}", values.value(row));
            }
            Self::Double(values) if values.value(row).is_finite() => {
                _ = write!(out, "{:?}", values.value(row));
            }
            // JSON has no numbers for these; Spark writes their names.
            Self::Float(_) | Self::Double(_) => {
                out.push('"');
                self.push_partition_value(out, row);
                out.push('"');
            }
            _ => return self.push_plain(out, row),
        }
        true
    }

    /// The formats common to both. Writing to a String cannot fail.
    fn push_plain(&self, out: &mut String, row: usize) -> bool {
        match self {
            Self::Boolean(values) => out.push_str(if values.value(row) { "true" } else { "false" }),
            Self::Byte(values) => _ = write!(out, "{}", values.value(row)),
            Self::Short(values) => _ = write!(out, "{}", values.value(row)),
            Self::Int(values) => _ = write!(out, "{}", values.value(row)),
            Self::Long(values) => _ = write!(out, "{}", values.value(row)),
            Self::Decimal { values, scale } => push_decimal(out, values.value(row), *scale),
            Self::Date(values, calendar) => {
                return calendar.day(values.value(row)).map(|day| push_date(out, day)).is_some();
            }
            // Handled by the callers.
            _ => {}
        }
        true
    }

    /// Returns a time in microseconds; `None` if it is unknown, and for other types.
    fn micros(&self, row: usize) -> Option<i64> {
        match self {
            Self::Micros { values, calendar, .. } => calendar.micros(values.value(row)),
            Self::Millis { values, calendar, .. } => calendar.micros(values.value(row).saturating_mul(1000)),
            _ => None,
        }
    }
}

fn push_double(out: &mut String, value: f64, shortest: impl std::fmt::Debug) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        _ = write!(out, "{shortest:?}");
    }
}

fn push_decimal(out: &mut String, unscaled: i128, scale: i8) {
    let Ok(scale) = usize::try_from(scale) else {
        // No Delta type has a negative scale.
        _ = write!(out, "{unscaled}e{}", -i32::from(scale));
        return;
    };
    if unscaled < 0 {
        out.push('-');
    }
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    out.push_str(whole);
    if scale > 0 {
        out.push('.');
        out.push_str(fraction);
    }
}

/// `yyyy-mm-ddThh:mm:ss.ffffffZ`
fn push_instant(out: &mut String, micros: i64) {
    push_date_time(out, micros.div_euclid(1_000_000), 'T');
    _ = write!(out, ".{:06}Z", micros.rem_euclid(1_000_000));
}

/// `"yyyy-mm-ddThh:mm:ss.fff[Z]"`, with six digits where the value needs them: a truncated bound would be wrong.
fn push_json_timestamp(out: &mut String, micros: i64, is_utc: bool) {
    out.push('"');
    push_date_time(out, micros.div_euclid(1_000_000), 'T');
    let fraction = micros.rem_euclid(1_000_000);
    _ = if fraction % 1000 == 0 {
        write!(out, ".{:03}", fraction / 1000)
    } else {
        write!(out, ".{fraction:06}")
    };
    out.push_str(if is_utc { "Z\"" } else { "\"" });
}
