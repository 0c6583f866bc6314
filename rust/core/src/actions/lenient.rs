//! Numbers as some writers of logs write them.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Parses an integer in any notation: `12`, `12.0`, `1.2E1`, `"12"`.
pub(crate) fn lenient_i64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    deserializer.deserialize_any(WholeNumber)
}

/// Parses the same as [`lenient_i64`], and null as `None`.
pub(crate) fn lenient_optional_i64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i64>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Whole(#[serde(deserialize_with = "lenient_i64")] i64);
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|Whole(number)| number))
}

/// Parses the same as [`lenient_i64`], if it fits.
pub(super) fn lenient_i32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    narrow(lenient_i64(deserializer)?)
}

pub(crate) fn lenient_optional_i32<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i32>, D::Error> {
    lenient_optional_i64(deserializer)?.map(narrow).transpose()
}

fn narrow<E: de::Error>(value: i64) -> Result<i32, E> {
    let unexpected = de::Unexpected::Signed(value);
    i32::try_from(value).map_err(|_| E::invalid_value(unexpected, &"a whole number of 32 bits"))
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number of 64 bits")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<i64, E> {
        // Doubles represent every integer up to 2^53 only.
        let is_exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        if is_exact { Ok(value as i64) } else { Err(E::invalid_value(de::Unexpected::Float(value), &self)) }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<i64, E> {
        value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
    }
}
