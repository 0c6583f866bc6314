//! What a bound in a log may have lost: the one table of file skipping, row-group skipping and rules of grants.
//!
//! A bound is exact only where its type and every known writer make it so. The looks of a bound prove nothing about its
//! writer, and a checkpoint's typed columns repeat what the text has lost. So the rules depend on the type, the source
//! and the value alone:
//!
//! | type | statistics of a file | of a row group, on statistics | of a row group, on partition values |
//! | --- | --- | --- | --- |
//! | boolean, integers, date | exact | exact | exact |
//! | string | cut to 32 characters or fewer | cut, by files with any end | exact |
//! | decimal up to 15 digits | exact | exact | exact |
//! | wider decimal | rounded to a double; beyond 64 bits ±2^63 | unknown | unknown |
//! | float, double | exact, perhaps without NaN | unknown | unknown |
//! | timestamp | cut to milliseconds, to the second; ±59 s before 1972 | as of a file | unknown |
//! | timestamp without zone | as above | as above | as above |
//!
//! Known writers with such losses:
//! - Spark cuts strings and, towards zero or not, times to milliseconds. Spark 3.2 and 3.3 write offsets of times without
//!   their seconds; the last zone with such an offset changed it in January 1972.
//! - deltalake converts decimals to doubles, and those without digits after the point to 64-bit integers. Before 0.26 its
//!   `partitionValues_parsed` has milliseconds.
//! - Apache `XTable` cuts times to the second.
//! - Iceberg's writers and Delta Kernel do not count the nulls of a struct as nulls of its fields: see
//!   [`proves_no_nulls`].
//! - The footers of Parquet files ignore NaN. Those of Spark's LEGACY calendar have other days and times:
//!   `checkpoint::parquet::calendar` corrects them or leaves them out.
//!
//! The values of `add.partitionValues` are not bounds. They decide exactly as readers read them.

use super::keys::{KeyType, MILLISECOND};
use super::number::{HUGE, Spread};
use super::ranges::{TextCut, TextMax};
use crate::schema::Column;

/// Where a bound was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The statistics of one file: `add.stats`, `add.stats_parsed`, or the statistics of a data file's footer.
    File,
    /// The statistics of a checkpoint's row group on `stats_parsed` of many files.
    RowGroup,
    /// The statistics of a checkpoint's row group on `partitionValues_parsed` of many files.
    RowGroupPartitions,
}

/// Doubles keep decimals of this many digits.
const DOUBLE_DIGITS: u8 = 15;

/// Microseconds. Before 1972-02-01T00:00:00Z an offset may have lost up to 59 seconds.
const WHOLE_MINUTES_SINCE: i128 = 65_750_400_000_000;

const SECOND: i128 = 1_000_000;

/// Delta's writers cut strings to this length; longer ones may be prefixes.
const CUT_BYTES: usize = 32;

/// Returns the range of the values that a bound may stand for; `None` if it proves nothing. Not for strings.
pub(crate) fn true_bound(key_type: KeyType, source: Source, read: Spread) -> Option<Spread> {
    use Source::{File, RowGroup, RowGroupPartitions};
    match (key_type, source) {
        (KeyType::Boolean | KeyType::Integer | KeyType::Date, _)
        | (KeyType::Float | KeyType::Double { .. }, File) => Some(read),
        (KeyType::Decimal { precision, .. }, _) if precision <= DOUBLE_DIGITS => Some(read),
        (KeyType::Decimal { scale, .. }, File) => Some(of_double(read, scale)),
        // The typed instant of a partition value was computed in the time zone of a session.
        (KeyType::Timestamp, RowGroupPartitions)
        | (
            KeyType::Decimal { .. } | KeyType::Float | KeyType::Double { .. },
            RowGroup | RowGroupPartitions,
        )
        | (KeyType::Text | KeyType::Opaque, _) => None,
        (KeyType::Timestamp | KeyType::TimestampNtz, source) => {
            // Of many files, one may be cut to the second, and another have the greatest bound.
            let is_second = source != File || read.low % SECOND == 0;
            Some(of_cut_time(read, if is_second { SECOND } else { MILLISECOND }))
        }
    }
}

/// The unit that was cut off is added to a maximum. Some writers cut towards zero.
fn of_cut_time(read: Spread, unit: i128) -> Spread {
    let offset = if read.low < WHOLE_MINUTES_SINCE { 59 * SECOND } else { 0 };
    let below = if read.low < 0 { unit - 1 } else { 0 };
    read.widened(offset + below, offset + unit - 1)
}

/// The decimal was a double, or a 64-bit integer that stands for all beyond.
fn of_double(read: Spread, scale: u8) -> Spread {
    // A double has 53 bits, of which divisions by powers of ten take a few.
    let mut range = read.rounded_to_bits(48);
    let power = 10_i128.checked_pow(u32::from(scale)).unwrap_or(HUGE);
    // What a double rounds the limit to differs by less.
    let limit = ((1_i128 << 63) - (1 << 12)).saturating_mul(power);
    let beyond = ((1_i128 << 63) + (1 << 12)).saturating_mul(power);
    if (limit..=beyond).contains(&read.high) {
        range.high = HUGE;
    }
    if (-beyond..=-limit).contains(&read.low) {
        range.low = -HUGE;
    }
    range
}

/// Whether `nullCount` zero proves that no row is null in the column.
pub(crate) fn proves_no_nulls(column: &Column) -> bool {
    !column.in_nullable_struct
}

/// The upper bound of strings, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadMax<'a> {
    /// Inclusive.
    Value(&'a str),
    /// Exclusive.
    Before(TextCut),
    Unknown,
}

impl ReadMax<'_> {
    pub(crate) fn as_text_max(&self) -> TextMax<'_> {
        match self {
            Self::Value(max) => TextMax::Value(max.as_bytes()),
            Self::Before(cut) => TextMax::Before(&cut.bytes),
            Self::Unknown => TextMax::Unknown,
        }
    }
}

/// Interprets a maximum of strings. A long one may be a prefix of the true maximum, followed by a tie-breaker that some
/// writers chose too small, or by half a surrogate pair that became a question mark.
pub(crate) fn text_max(source: Source, max: &str) -> ReadMax<'_> {
    let is_tie_breaker = |character| matches!(character, '\u{7f}' | '\u{fffd}'..='\u{ffff}' | '\u{10ffff}');
    let prefix = match source {
        Source::RowGroupPartitions => return ReadMax::Value(max),
        Source::File => max.trim_end_matches(is_tie_breaker),
        // Another file may have the same prefix and a smaller tie-breaker, which hides a greater string.
        Source::RowGroup => {
            let end = max.find(|character| character >= '\u{7f}').unwrap_or(max.len()).min(CUT_BYTES - 1);
            &max[..end]
        }
    };
    if prefix.len() == max.len() && max.len() < CUT_BYTES {
        return ReadMax::Value(max);
    }
    let prefix = prefix.strip_suffix('?').unwrap_or(prefix);
    TextCut::after_prefix(prefix.as_bytes()).map_or(ReadMax::Unknown, ReadMax::Before)
}
