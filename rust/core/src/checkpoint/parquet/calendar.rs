//! The calendar of a checkpoint's typed dates and times.
//!
//! Spark before 3.0, and later versions in LEGACY mode, write days before 1582-10-15 by the Julian calendar, and times
//! before 1900 by the time zone rules of old Java. The key-value metadata of the footer marks such files, as Spark reads
//! it. Days are converted to the proleptic Gregorian calendar. Times before 1900 are unknown: their difference depends on
//! the writer's time zone.

use parquet::file::metadata::KeyValue;

const VERSION: &str = "org.apache.spark.version";
const LEGACY_DATETIME: &str = "org.apache.spark.legacyDateTime";
const LEGACY_INT96: &str = "org.apache.spark.legacyINT96";

/// The day on which the number of days to add changes, and that number.
const DAY_SWITCHES: [(i64, i64); 14] = [
    (-719_164, 2),
    (-682_945, 1),
    (-646_420, 0),
    (-609_895, -1),
    (-536_845, -2),
    (-500_320, -3),
    (-463_795, -4),
    (-390_745, -5),
    (-354_220, -6),
    (-317_695, -7),
    (-244_645, -8),
    (-208_120, -9),
    (-171_595, -10),
    (-141_427, 0),
];
/// 1900-01-01T00:00:00Z in microseconds. In no zone do later times differ.
const EQUAL_TIMES_SINCE: i64 = -2_208_988_800_000_000;

/// The calendars of a file's days and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Calendar {
    has_hybrid_days: bool,
    has_hybrid_times: bool,
}

impl Calendar {
    /// Reads the key-value metadata of a footer. A file without Spark's version has the Gregorian calendar.
    pub(crate) fn of(metadata: Option<&Vec<KeyValue>>) -> Self {
        let value = |key: &str| {
            let pair = metadata?.iter().find(|pair| pair.key == key)?;
            Some(pair.value.as_deref().unwrap_or_default())
        };
        let Some(version) = value(VERSION) else { return Self::default() };
        // Spark compares versions as texts.
        let has_hybrid_days = version < "3.0.0" || value(LEGACY_DATETIME).is_some();
        let has_hybrid_int96 = version < "3.1.0" || value(LEGACY_INT96).is_some();
        Self { has_hybrid_days, has_hybrid_times: has_hybrid_days || has_hybrid_int96 }
    }

    /// Whether the order of the file's days is not that of the Gregorian calendar, or their bounds are of another one.
    pub(crate) fn has_hybrid_days(self) -> bool {
        self.has_hybrid_days
    }

    pub(crate) fn has_hybrid_times(self) -> bool {
        self.has_hybrid_times
    }

    /// Returns a day since 1970-01-01 of the Gregorian calendar; `None` before the year 1 of the Julian calendar.
    pub(crate) fn day(self, day: i32) -> Option<i64> {
        let day = i64::from(day);
        if !self.has_hybrid_days {
            return Some(day);
        }
        let (_, difference) = DAY_SWITCHES.iter().rev().find(|(since, _)| day >= *since)?;
        Some(day + difference)
    }

    /// Returns microseconds since 1970-01-01 of the Gregorian calendar; `None` where they depend on a time zone.
    pub(crate) fn micros(self, micros: i64) -> Option<i64> {
        (!self.has_hybrid_times || micros >= EQUAL_TIMES_SINCE).then_some(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(pairs: &[(&str, &str)]) -> Calendar {
        let pair = |(key, value): &(&str, &str)| KeyValue::new((*key).to_owned(), (*value).to_owned());
        Calendar::of(Some(&pairs.iter().map(pair).collect()))
    }

    #[test]
    fn a_footer_names_its_calendar_by_the_version_and_the_keys_of_spark() {
        for (pairs, days, times) in [
            (&[][..], false, false),
            (&[(LEGACY_DATETIME, "")], false, false),
            (&[(VERSION, "2.4.8")], true, true),
            (&[(VERSION, "3.0.3")], false, true),
            (&[(VERSION, "3.5.0")], false, false),
            (&[(VERSION, "3.5.0"), (LEGACY_DATETIME, "")], true, true),
            (&[(VERSION, "4.0.0"), (LEGACY_INT96, "")], false, true),
        ] {
            let calendar = calendar(pairs);
            assert_eq!((calendar.has_hybrid_days(), calendar.has_hybrid_times()), (days, times), "{pairs:?}");
        }
        assert_eq!(Calendar::of(None), Calendar::default());
    }

    #[test]
    fn days_have_their_names_in_both_calendars() {
        let hybrid = calendar(&[(VERSION, "2.4.0")]);
        // 0001-01-01 and 1582-10-04 of the Julian calendar, 1582-10-15 and 1970-01-01 of the Gregorian one.
        for (day, expected) in [
            (-719_164, Some(-719_162)),
            (-719_165, None),
            (-141_428, Some(-141_438)),
            (-141_427, Some(-141_427)),
            (0, Some(0)),
        ] {
            assert_eq!(hybrid.day(day), expected, "{day}");
            assert_eq!(Calendar::default().day(day), Some(i64::from(day)));
        }
        assert_eq!(hybrid.micros(EQUAL_TIMES_SINCE), Some(EQUAL_TIMES_SINCE));
        assert_eq!(hybrid.micros(EQUAL_TIMES_SINCE - 1), None);
        assert_eq!(Calendar::default().micros(i64::MIN), Some(i64::MIN));
    }
}
