//! Values of every type with their order in Spark, and the spellings that logs and clients have for them.

use std::cmp::Ordering;

use crate::choices::Choices;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Type {
    Boolean,
    Long,
    Integer,
    /// Digits, and those behind the point.
    Decimal(u8, u8),
    Float,
    Double,
    Date,
    Timestamp,
    TimestampNtz,
    String,
}

pub(crate) const TYPES: [Type; 12] = [
    Type::Long,
    Type::String,
    Type::Double,
    Type::Integer,
    Type::Timestamp,
    Type::Date,
    Type::Decimal(10, 2),
    Type::Decimal(38, 20),
    Type::Float,
    Type::TimestampNtz,
    Type::Boolean,
    Type::String,
];

/// Booleans, integers, dates (days), timestamps (microseconds) and unscaled decimals are numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(i128),
    Float(f32),
    Double(f64),
    Text(String),
}

impl Value {
    /// Spark's order: NaN is the greatest and equals itself, `-0.0` equals `0.0`, strings are bytes.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let floats = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => floats(f64::from(*a), f64::from(*b)),
            (Self::Double(a), Self::Double(b)) => floats(*a, *b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => panic!("values of two types are compared"),
        }
    }

    pub(crate) fn is_nan(&self) -> bool {
        match self {
            Self::Float(value) => value.is_nan(),
            Self::Double(value) => value.is_nan(),
            _ => false,
        }
    }
}

const LONGS: [i128; 8] = [0, 1, -1, 2, 100, i64::MAX as i128, i64::MIN as i128, 9_007_199_254_740_993];
const INTEGERS: [i128; 7] = [0, 1, -1, 2, 3, i32::MAX as i128, i32::MIN as i128];
const DOUBLES: [f64; 10] =
    [0.0, -0.0, 1.5, -1.5, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324];
const FLOATS: [f32; 9] = [0.0, -0.0, 1.5, -1.5, 0.1, 3.4, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
const DAYS: [i128; 6] = [0, 1, -1, 18_628, 18_629, -719_162];
const MICROS: [i128; 9] = [
    0,
    -1,
    1_609_459_200_000_000,
    1_609_459_200_000_001,
    1_609_459_200_000_999,
    1_609_459_200_001_000,
    -1_500,
    1_609_470_000_123_456,
    253_402_300_799_999_999,
];
const PREFIX: &str = "0123456789abcdefghijklmnopqrstuv";

pub(crate) fn draw(choices: &mut Choices<'_>, data_type: Type) -> Value {
    match data_type {
        Type::Boolean => Value::Number(choices.below(2) as i128),
        Type::Long => Value::Number(*choices.of(&LONGS)),
        Type::Integer => Value::Number(*choices.of(&INTEGERS)),
        Type::Decimal(digits, _) => {
            let most = 10_i128.pow(u32::from(digits)) - 1;
            let near = 30_000_000_000_000_000_001.min(most / 2);
            Value::Number(*choices.of(&[0, 1, -1, 150, -150, near, near + 1, most, -most]))
        }
        Type::Float => Value::Float(*choices.of(&FLOATS)),
        Type::Double => Value::Double(*choices.of(&DOUBLES)),
        Type::Date => Value::Number(*choices.of(&DAYS)),
        Type::Timestamp | Type::TimestampNtz => Value::Number(*choices.of(&MICROS)),
        Type::String => Value::Text(draw_text(choices)),
    }
}

fn draw_text(choices: &mut Choices<'_>) -> String {
    let short = ["a", "b", "ab", "a'b", "a\\b", "é", "z\u{7f}", "😀", "a%_", "~"];
    let tails = ["", "a", "z", "\u{7f}", "\u{ffff}", "😀", "\u{10ffff}", "a😀", "\u{ffff}😀"];
    match choices.below(3) {
        0 | 1 => (*choices.of(&short)).to_owned(),
        // The cut falls behind the prefix, or in the middle of what follows it.
        _ => format!("{}{}", &PREFIX[choices.below(2)..], choices.of(&tails)),
    }
}

pub(crate) fn date(days: i128) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Computes the civil date by another algorithm than the crate.
fn civil(days: i128) -> (i128, i128, i128) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i128::from(month <= 2), month, day)
}

/// A wall clock's reading with `digits` of the second's fraction, cut off and not rounded.
pub(crate) fn clock(micros: i128, between: char, digits: usize) -> String {
    let seconds = micros.div_euclid(1_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = format!("{:06}", micros.rem_euclid(1_000_000));
    let point = if digits > 0 { "." } else { "" };
    format!("{}{between}{hour:02}:{minute:02}:{second:02}{point}{}", date(day), &fraction[..digits])
}

pub(crate) fn decimal(unscaled: i128, scale: u8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

pub(crate) fn float(value: f64, shortest: String) -> String {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ => shortest,
    }
}
