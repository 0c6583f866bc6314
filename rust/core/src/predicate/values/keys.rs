//! Converts constants, partition values and statistics of a column to keys with one common order.
//!
//! All ordered types except strings map to integers with the order of Spark: microseconds, days, unscaled decimals, bits
//! of floats. An ambiguous text (without a time zone, or with truncated digits) becomes a [`Spread`] that covers every
//! reading.

use std::borrow::Cow;

use super::number::{Number, Spread, float_key, parse_double, parse_single};
use crate::civil_time::{self, CivilTime, DAY_MICROS, FARTHEST_ZONE_MICROS};
use crate::json_scanner::JsonText;
use crate::predicate::expression::{Literal, NumberKind};
use crate::schema::{Column, DataType, PrimitiveType};

/// The type of a column's keys, which decides their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum KeyType {
    Boolean,
    Integer,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Float,
    Double {
        /// Older files have floats, and statistics with the digits of floats.
        widened: bool,
    },
    Date,
    Timestamp,
    TimestampNtz,
    /// UTF-8 in byte order.
    Text,
    /// A type without ordered statistics. Only null counts are usable.
    Opaque,
}

impl KeyType {
    pub(crate) fn of(column: &Column) -> Self {
        let DataType::Primitive(primitive) = column.data_type else { return Self::Opaque };
        match primitive {
            PrimitiveType::Boolean => Self::Boolean,
            PrimitiveType::Byte | PrimitiveType::Short | PrimitiveType::Integer | PrimitiveType::Long => {
                Self::Integer
            }
            PrimitiveType::Float => Self::Float,
            PrimitiveType::Double => Self::Double { widened: column.widened_from_float },
            PrimitiveType::Decimal { precision, scale } => Self::Decimal { precision, scale },
            PrimitiveType::Date => Self::Date,
            PrimitiveType::Timestamp => Self::Timestamp,
            PrimitiveType::TimestampNtz => Self::TimestampNtz,
            PrimitiveType::String if column.binary_order => Self::Text,
            PrimitiveType::String | PrimitiveType::Binary | PrimitiveType::Variant | PrimitiveType::Void => {
                Self::Opaque
            }
        }
    }

    /// Returns whether keys may exceed an i64.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::Decimal { precision, .. } if precision > 18)
    }

    /// Returns whether statistics have the values in quotes.
    pub(crate) fn is_temporal(self) -> bool {
        matches!(self, Self::Date | Self::Timestamp | Self::TimestampNtz)
    }

    /// Returns whether the type has NaN, which is above every bound and which writers may omit from statistics.
    pub(crate) fn has_nan(self) -> bool {
        matches!(self, Self::Float | Self::Double { .. })
    }
}

/// Microseconds.
pub(super) const MILLISECOND: i128 = 1_000;

pub(crate) const NAN_KEY: i128 = i64::MAX as i128;

/// The conversions in a comparison, besides those by the types of the column and of the constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coercion {
    /// The least precise type of numbers.
    pub(crate) coarsest: NumberKind,
    /// Whether days and local times are compared as instants. Which instant a local time is depends on the time zone of
    /// the client's session, and one that a zone skips is the same as a later one: the cast has no inverse.
    pub(crate) as_instants: bool,
    /// Whether the column is cast or declared.
    is_cast: bool,
    /// The greatest value of the declared type, if the column has greater ones.
    pub(crate) wraps_above: Option<i128>,
}

impl Coercion {
    pub(crate) const NONE: Self =
        Self { coarsest: NumberKind::Exact, as_instants: false, is_cast: false, wraps_above: None };

    /// Returns the conversions in a list of constants, which get one type with the column.
    pub(crate) fn with_list(self, key_type: KeyType, list: &[Literal]) -> Self {
        let has = |is_wanted: fn(&Literal) -> bool| list.iter().any(is_wanted);
        let coarsest = if has(|one| matches!(one, Literal::Number(_, NumberKind::Float))) {
            NumberKind::Float
        } else if self.coarsest != NumberKind::Exact {
            self.coarsest
        } else if has(|one| matches!(one, Literal::Number(_, NumberKind::Double) | Literal::Text { .. })) {
            NumberKind::Double
        } else {
            NumberKind::Exact
        };
        let is_local = matches!(key_type, KeyType::Date | KeyType::TimestampNtz);
        let as_instants = self.as_instants || (is_local && has(is_instant));
        Self { coarsest, as_instants, ..self }
    }

    /// Whether a list of constants is compared with the same result as texts, in Spark without ANSI mode, and as values.
    pub(crate) fn has_one_meaning(self, key_type: KeyType, list: &[Literal]) -> bool {
        if key_type == KeyType::Text || !list.iter().any(|one| matches!(one, Literal::Text { .. })) {
            return true;
        }
        !self.is_cast
            && list.iter().all(|one| match (key_type, one) {
                (KeyType::Integer, Literal::Text { text, .. } | Literal::Number(text, NumberKind::Exact)) => {
                    text.parse::<i64>().is_ok_and(|number| number.to_string() == *text)
                }
                (KeyType::Boolean, Literal::Text { text, .. }) => text == "true" || text == "false",
                (KeyType::Boolean, Literal::Boolean(_)) => true,
                (KeyType::Date, Literal::Text { text, .. } | Literal::Date(text)) => {
                    let is_canonical = matches!(text.as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _]);
                    is_canonical && civil_time::parse(text).is_some_and(|moment| !moment.timed)
                }
                _ => false,
            })
    }
}

/// Returns how to compare a column that a client declares as, or casts to, another type. `None` if a comparison of the
/// column itself may differ.
pub(crate) fn compare_as(key_type: KeyType, declared: Option<PrimitiveType>) -> Option<Coercion> {
    use PrimitiveType as P;
    let Some(declared) = declared else { return Some(Coercion::NONE) };
    let cast = Coercion { is_cast: true, ..Coercion::NONE };
    let coarsest = |coarsest| Some(Coercion { coarsest, ..cast });
    match (key_type, declared) {
        (KeyType::Integer | KeyType::Decimal { .. } | KeyType::Double { .. }, P::Float) => {
            coarsest(NumberKind::Float)
        }
        (KeyType::Integer | KeyType::Decimal { .. }, P::Double) => coarsest(NumberKind::Double),
        (KeyType::Decimal { scale, .. }, P::Decimal { scale: declared, .. }) if declared < scale => None,
        (KeyType::Date | KeyType::TimestampNtz, P::Timestamp) => Some(Coercion { as_instants: true, ..cast }),
        (KeyType::Boolean, P::Boolean)
        | (KeyType::Integer, P::Byte | P::Short | P::Integer | P::Long | P::Decimal { .. })
        | (KeyType::Decimal { .. }, P::Decimal { .. })
        | (KeyType::Float, P::Float | P::Double)
        | (KeyType::Double { .. }, P::Double)
        | (KeyType::Date, P::Date | P::TimestampNtz)
        | (KeyType::Timestamp, P::Timestamp)
        | (KeyType::TimestampNtz, P::TimestampNtz)
        | (KeyType::Text, P::String) => Some(cast),
        _ => None,
    }
}

/// Returns the position of a constant among the column's values, `None` if the comparison is not exact.
pub(crate) fn literal_spread(key_type: KeyType, literal: &Literal, coercion: Coercion) -> Option<Spread> {
    let coarsest = coercion.coarsest;
    let as_instants = coercion.as_instants || is_instant(literal);
    match key_type {
        KeyType::Boolean => match literal {
            Literal::Boolean(value) => Some(Spread::exact(i128::from(*value))),
            Literal::Text { text, other: None } => boolean(text),
            _ => None,
        },
        KeyType::Integer | KeyType::Decimal { .. } => {
            let scale = if let KeyType::Decimal { scale, .. } = key_type { scale } else { 0 };
            // Spark compares a decimal, and what is cast to one, with a string as doubles.
            let as_doubles = matches!(literal, Literal::Text { .. })
                && (coercion.is_cast || key_type != KeyType::Integer)
                && coarsest == NumberKind::Exact;
            let coarsest = if as_doubles { NumberKind::Double } else { coarsest };
            number(literal, coarsest, i32::from(scale))
        }
        KeyType::Float => {
            let (text, kind) = number_text(literal)?;
            let single = key(f64::from(parse_single(text)?));
            let double = key(parse_double(text)?);
            Some(if kind == NumberKind::Float {
                Spread::exact(single)
            } else {
                Spread::closed(single, double)
            })
        }
        KeyType::Double { .. } => {
            let (text, kind) = number_text(literal)?;
            let (single, double) = (parse_single(text)?, parse_double(text)?);
            Some(match (coarsest, kind) {
                (NumberKind::Float, _) => {
                    Spread::closed(key(f64::from(single.next_down())), key(f64::from(single.next_up())))
                }
                (_, NumberKind::Float) => Spread::closed(key(f64::from(single)), key(double)),
                _ => Spread::exact(key(double)),
            })
        }
        KeyType::Date => date_literal(literal, as_instants),
        KeyType::Timestamp => timestamp_literal(literal),
        KeyType::TimestampNtz => timestamp_ntz_literal(literal, as_instants),
        KeyType::Text | KeyType::Opaque => None,
    }
}

fn key(value: f64) -> i128 {
    i128::from(float_key(value))
}

fn boolean(text: &str) -> Option<Spread> {
    if text.eq_ignore_ascii_case("true") {
        return Some(Spread::exact(1));
    }
    text.eq_ignore_ascii_case("false").then_some(Spread::exact(0))
}

fn number_text(literal: &Literal) -> Option<(&str, NumberKind)> {
    match literal {
        Literal::Number(text, kind) => Some((text, *kind)),
        Literal::Text { text, other: None } => Some((text.trim(), NumberKind::Exact)),
        _ => None,
    }
}

fn number(literal: &Literal, coarsest: NumberKind, scale: i32) -> Option<Spread> {
    let (text, kind) = number_text(literal)?;
    let number = Number::parse(text)?;
    if matches!(literal, Literal::Text { .. }) && !number.is_integer() && scale == 0 {
        return None;
    }
    let spread = number.scaled(scale);
    let (bits, digits) = match (kind, coarsest) {
        (NumberKind::Float, _) | (_, NumberKind::Float) => (21, 6),
        (NumberKind::Double, _) | (_, NumberKind::Double) => (50, 15),
        _ => return Some(spread),
    };
    // A constant with more digits than the type may be rounded to a value beside it.
    let is_rounded = number.significant_digits() > digits;
    let spread = if is_rounded { Spread::closed(spread.low, spread.high) } else { spread };
    Some(spread.rounded_to_bits(bits))
}

/// Spark cuts digits below a microsecond off, other clients compare with them.
fn micros(moment: CivilTime) -> Spread {
    Spread::closed(moment.micros, moment.micros + i128::from(moment.rounded))
}

/// Returns the time of a literal, whose client has perhaps cut it to milliseconds.
fn literal_micros(literal: &Literal, moment: CivilTime) -> Spread {
    let time = micros(moment);
    if !matches!(literal, Literal::CutTimestamp(_)) || time.low % MILLISECOND != 0 {
        return time;
    }
    let cut = |is_cut: bool| if is_cut { MILLISECOND - 1 } else { 0 };
    time.widened(cut(time.low <= 0), cut(time.low >= 0))
}

fn is_instant(literal: &Literal) -> bool {
    matches!(literal, Literal::Timestamp(_) | Literal::CutTimestamp(_))
}

/// Returns the instants that a time without a zone may be.
pub(crate) fn any_zone(spread: Spread) -> Spread {
    spread.widened(FARTHEST_ZONE_MICROS, FARTHEST_ZONE_MICROS)
}

/// Converts a timestamp to days. A day compares as its midnight.
fn days(micros: Spread) -> Spread {
    let low = micros.low.div_euclid(DAY_MICROS);
    let high = -(-micros.high).div_euclid(DAY_MICROS);
    Spread { low, high, open: high > low && micros.is_exact() }
}

/// A zone skips at most a day: the islands beside the date line did. The first time after it stands for all of it.
const LONGEST_GAP_MICROS: i128 = DAY_MICROS;

fn date_literal(literal: &Literal, as_instants: bool) -> Option<Spread> {
    let days = match literal {
        Literal::Date(text) | Literal::Text { text, other: None } => {
            let moment = civil_time::parse(text)?;
            let day = i128::from(moment.day);
            // Spark truncates the time, other clients compare with midnight.
            match (moment.timed, moment.zoned) {
                (false, _) => Spread::exact(day),
                (true, false) => Spread::closed(day, day + 1),
                (true, true) => Spread::closed(day - 1, day + 2),
            }
        }
        Literal::Timestamp(text) | Literal::CutTimestamp(text) | Literal::TimestampNtz(text) => {
            let moment = civil_time::parse(text)?;
            let micros = literal_micros(literal, moment);
            days(if moment.zoned { any_zone(micros) } else { micros })
        }
        _ => return None,
    };
    Some(if as_instants { days.widened(1, 1) } else { days })
}

/// A literal without a zone is a local time in the unknown zone of the client's session.
fn timestamp_literal(literal: &Literal) -> Option<Spread> {
    let (time, is_zoned) = temporal(literal)?;
    Some(if is_zoned { time } else { any_zone(time) })
}

fn timestamp_ntz_literal(literal: &Literal, as_instants: bool) -> Option<Spread> {
    let (time, is_zoned) = temporal(literal)?;
    let local = if is_zoned { any_zone(time) } else { time };
    let gap = if as_instants { LONGEST_GAP_MICROS } else { 0 };
    Some(local.widened(gap, gap))
}

/// Returns the time of a literal, and whether it names its zone.
fn temporal(literal: &Literal) -> Option<(Spread, bool)> {
    match literal {
        Literal::Timestamp(text)
        | Literal::CutTimestamp(text)
        | Literal::Text { text, other: None }
        | Literal::TimestampNtz(text) => {
            let moment = civil_time::parse(text)?;
            Some((literal_micros(literal, moment), moment.zoned))
        }
        Literal::Date(text) => {
            let moment = civil_time::parse(text)?;
            let midnight = i128::from(moment.day) * DAY_MICROS;
            // Spark truncates the time of a date.
            let time = Spread::closed(midnight.min(moment.micros), midnight.max(moment.micros));
            Some((if moment.zoned { any_zone(time) } else { time }, false))
        }
        _ => None,
    }
}

/// Returns the key of a partition value, `None` if it is not valid for the column's type. Not for strings.
///
/// A timestamp without a zone is a local time of the writer. The log does not name the zone, and readers assume their
/// own, so it may be any instant with this local time in some zone.
pub(crate) fn partition_spread(key_type: KeyType, text: &str) -> Option<Spread> {
    value_spread(key_type, text.trim())
}

fn value_spread(key_type: KeyType, text: &str) -> Option<Spread> {
    match key_type {
        KeyType::Boolean => boolean(text),
        KeyType::Integer => Some(Number::parse(text)?.scaled(0)),
        KeyType::Decimal { scale, .. } => Some(Number::parse(text)?.scaled(i32::from(scale))),
        KeyType::Float => Some(Spread::exact(key(f64::from(parse_single(text)?)))),
        KeyType::Double { widened } => double_spread(text, widened),
        KeyType::Date => {
            let moment = civil_time::parse(text)?;
            (!moment.timed).then(|| Spread::exact(i128::from(moment.day)))
        }
        KeyType::Timestamp => {
            let moment = civil_time::parse(text)?;
            Some(if moment.zoned { micros(moment) } else { any_zone(micros(moment)) })
        }
        KeyType::TimestampNtz => {
            let moment = civil_time::parse(text)?;
            Some(if moment.zoned { any_zone(micros(moment)) } else { micros(moment) })
        }
        KeyType::Text | KeyType::Opaque => None,
    }
}

/// A bound in the JSON of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    Text(JsonText<'a>),
    Number(&'a str),
    Boolean(bool),
}

impl<'a> Scalar<'a> {
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Text(_))
    }

    fn plain(self) -> Option<&'a str> {
        match self {
            Self::Text(JsonText { json, escaped: false }) => Some(json),
            Self::Number(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the decoded string, `None` if the scalar is not a well-formed string.
    pub(crate) fn unescaped(self) -> Option<Cow<'a, str>> {
        if let Self::Text(text) = self { text.unescaped() } else { None }
    }
}

/// Returns a bound as it reads; [`super::bounds`] has what it may have lost. Not for strings.
pub(crate) fn stats_spread(key_type: KeyType, bound: Scalar<'_>) -> Option<Spread> {
    if let Scalar::Boolean(value) = bound {
        return (key_type == KeyType::Boolean).then(|| Spread::exact(i128::from(value)));
    }
    let text = bound.plain()?;
    match key_type {
        KeyType::Integer => match text.parse::<i64>() {
            Ok(value) => Some(Spread::exact(i128::from(value))),
            // Some writers write numbers as doubles.
            Err(_) => Some(Number::parse(text)?.scaled(0).rounded_to_bits(50)),
        },
        KeyType::Date => {
            let moment = civil_time::parse(text)?;
            let day = Spread::exact(i128::from(moment.day));
            Some(if moment.timed { day.widened(1, 1) } else { day })
        }
        KeyType::TimestampNtz => {
            let moment = civil_time::parse(text)?;
            let wall = micros(moment);
            Some(if moment.zoned && !text.ends_with('Z') { any_zone(wall) } else { wall })
        }
        _ => value_spread(key_type, text),
    }
}

fn double_spread(text: &str, widened: bool) -> Option<Spread> {
    let double = parse_double(text)?;
    if widened {
        return Some(Spread::closed(key(double), key(f64::from(parse_single(text)?))));
    }
    Some(Spread::exact(key(double)))
}

/// Clamps a key to the range of narrow columns. The clamped key has the same order to every value.
pub(crate) fn narrow(key: i128) -> i64 {
    i64::try_from(key).unwrap_or(if key < 0 { i64::MIN } else { i64::MAX })
}
