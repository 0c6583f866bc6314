//! Parses and formats dates and timestamps, in the formats of Spark, ISO 8601 and other writers.

use std::fmt::Write as _;

const DAY_SECONDS: i64 = 86_400;

pub(crate) const DAY_MICROS: i128 = 86_400_000_000;

/// The farthest that a zone can be from UTC, as Java has it; local mean times of the nineteenth century come
/// close.
pub(crate) const FARTHEST_ZONE_MICROS: i128 = 18 * 3_600_000_000;

/// A date, and perhaps a time and a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CivilTime {
    /// Days since the epoch, as written.
    pub(crate) day: i64,
    /// Microseconds since the epoch, rounded down; in UTC if `zoned`, else by the wall clock.
    pub(crate) micros: i128,
    /// Whether digits below a microsecond were cut off.
    pub(crate) rounded: bool,
    /// Whether a zone was written.
    pub(crate) zoned: bool,
    /// Whether a time was written.
    pub(crate) timed: bool,
}

/// `[+-]y..-[m]m-[d]d`, then perhaps `T` or a blank and `[h]h:[m]m[:[s]s[.f..]]`, then perhaps a zone.
pub(crate) fn parse(text: &str) -> Option<CivilTime> {
    let mut rest = Text(text.trim().as_bytes());
    let day = date(&mut rest)?;
    let midnight = i128::from(day) * DAY_MICROS;
    if rest.0.is_empty() {
        return Some(CivilTime { day, micros: midnight, rounded: false, zoned: false, timed: false });
    }
    if !rest.take(b'T') && !rest.take(b' ') && !rest.take(b't') {
        return None;
    }
    let (time, rounded) = time(&mut rest)?;
    let offset = zone(&mut rest)?;
    let micros = midnight + time - offset.unwrap_or(0);
    Some(CivilTime { day, micros, rounded, zoned: offset.is_some(), timed: true })
}

/// A timestamp as `yyyy-MM-dd HH:mm:ss[.SSSSSS]`, in UTC where it names a zone. `None` for a text that is not a
/// timestamp, and for one that this form cannot hold.
pub(crate) fn normalized(text: &str) -> Option<String> {
    let moment = parse(text).filter(|moment| !moment.rounded)?;
    let mut out = String::new();
    push_local(&mut out, i64::try_from(moment.micros).ok()?);
    (!out.starts_with(SIGNS)).then_some(out)
}

/// What a date begins with whose year has no four digits.
pub(crate) const SIGNS: [char; 2] = ['+', '-'];

/// Appends `yyyy-MM-dd`; a year before 0 or after 9999 with its sign.
pub(crate) fn push_date(out: &mut String, days: i64) {
    let (year, month, day) = date_of(days);
    _ = if (0..=9999).contains(&year) {
        write!(out, "{year:04}-{month:02}-{day:02}")
    } else {
        write!(out, "{year:+05}-{month:02}-{day:02}")
    };
}

/// Appends `yyyy-MM-dd HH:mm:ss` with another `separator`.
pub(crate) fn push_date_time(out: &mut String, seconds: i64, separator: char) {
    push_date(out, seconds.div_euclid(DAY_SECONDS));
    let second = seconds.rem_euclid(DAY_SECONDS);
    _ = write!(out, "{separator}{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
}

/// Appends `yyyy-MM-dd HH:mm:ss[.SSSSSS]`.
pub(crate) fn push_local(out: &mut String, micros: i64) {
    push_date_time(out, micros.div_euclid(1_000_000), ' ');
    let fraction = micros.rem_euclid(1_000_000);
    if fraction > 0 {
        _ = write!(out, ".{fraction:06}");
    }
}

struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn take(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Parses a number of `least` to `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        (count >= least)
            .then(|| digits.iter().fold(0, |number, &digit| number * 10 + i64::from(digit - b'0')))
    }
}

fn date(rest: &mut Text<'_>) -> Option<i64> {
    let negative = rest.take(b'-');
    if !negative {
        rest.take(b'+');
    }
    let year = rest.digits(4, 6)?;
    let month = rest.take(b'-').then(|| rest.digits(1, 2))??;
    let day = rest.take(b'-').then(|| rest.digits(1, 2))??;
    let year = if negative { -year } else { year };
    (1..=12).contains(&month).then_some(())?;
    (1..=days_of_month(year, month)).contains(&day).then(|| days_since_epoch(year, month, day))
}

fn time(rest: &mut Text<'_>) -> Option<(i128, bool)> {
    let hour = rest.digits(1, 2)?;
    let minute = rest.take(b':').then(|| rest.digits(1, 2))??;
    let second = if rest.take(b':') { rest.digits(1, 2)? } else { 0 };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = i128::from((hour * 60 + minute) * 60 + second) * 1_000_000;
    let mut rounded = false;
    if rest.take(b'.') {
        let mut unit = 100_000;
        while let [digit @ b'0'..=b'9', after @ ..] = rest.0 {
            micros += i128::from(digit - b'0') * unit;
            rounded |= unit == 0 && *digit != b'0';
            unit /= 10;
            rest.0 = after;
        }
    }
    Some((micros, rounded))
}

/// The offset east of UTC in microseconds, `Some(None)` where no zone is written.
#[allow(clippy::option_option)]
fn zone(rest: &mut Text<'_>) -> Option<Option<i128>> {
    rest.take(b' ');
    match rest.0 {
        [] => return Some(None),
        b"Z" | b"z" | b"UTC" | b"GMT" => return Some(Some(0)),
        _ => {}
    }
    let west = rest.take(b'-');
    if !west && !rest.take(b'+') {
        return None;
    }
    let hours = rest.digits(1, 2)?;
    rest.take(b':');
    let minutes = if rest.0.is_empty() { 0 } else { rest.digits(2, 2)? };
    rest.take(b':');
    let seconds = if rest.0.is_empty() { 0 } else { rest.digits(2, 2)? };
    if !rest.0.is_empty() || hours > 18 || minutes > 59 || seconds > 59 {
        return None;
    }
    let offset = i128::from((hours * 60 + minutes) * 60 + seconds) * 1_000_000;
    Some(Some(if west { -offset } else { offset }))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since 1970-01-01 in the proleptic Gregorian calendar.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_agree_with_a_count_of_them() {
        let mut expected = days_since_epoch(1599, 12, 31);
        for year in 1600..2500 {
            for month in 1..=12 {
                for day in 1..=days_of_month(year, month) {
                    expected += 1;
                    assert_eq!(days_since_epoch(year, month, day), expected);
                    assert_eq!(date_of(expected), (year, month, day));
                }
            }
        }
        assert_eq!(days_since_epoch(1970, 1, 1), 0);
        assert_eq!(days_since_epoch(1, 1, 1), -719_162);
    }

    #[test]
    fn timestamps_are_read_in_every_spelling() {
        let zoned = |text| parse(text).filter(|moment| moment.zoned).map(|moment| moment.micros);
        let wall = |text| parse(text).filter(|moment| !moment.zoned).map(|moment| moment.micros);
        assert_eq!(zoned("1970-01-02T08:45:00.000000Z"), Some(117_900_000_000));
        assert_eq!(zoned("1970-01-02 08:45:00 UTC"), Some(117_900_000_000));
        assert_eq!(zoned("1970-01-02T10:45:00.000+02:00"), Some(117_900_000_000));
        assert_eq!(zoned("1970-01-01T22:45:00-1000"), Some(117_900_000_000));
        assert_eq!(wall("1970-01-02 08:45:00"), Some(117_900_000_000));
        assert_eq!(wall("1970-1-2 8:45:0.5"), Some(117_900_500_000));
        assert_eq!(wall("1970-01-02"), Some(86_400_000_000));
        assert_eq!(wall("1969-12-31 23:59:59.999999"), Some(-1));
        assert_eq!(wall("+10000-01-01"), Some(253_402_300_800_000_000));
        let nanos = parse("1970-01-01T00:00:00.0000019Z").unwrap();
        assert_eq!((nanos.micros, nanos.rounded), (1, true));
        for nonsense in [
            "",
            "1970",
            "1970-13-01",
            "1970-02-29",
            "1970-01-01T",
            "1970-01-01T25:00",
            "1970-01-01 00:00 Mars",
            "70-01-01",
        ] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }
}
