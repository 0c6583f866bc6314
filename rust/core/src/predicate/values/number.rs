//! Parses decimal numbers without rounding.

/// Greater than every decimal(38) and every i64; adding one does not overflow an i128.
pub(crate) const HUGE: i128 = 150_000_000_000_000_000_000_000_000_000_000_000_000;

/// The position of a constant or a bound among the values that a column can have.
///
/// Closed: one unknown value of `low..=high`. Open: strictly between `low` and `high`; if these are neighbours, no
/// value of the column is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) low: i128,
    pub(crate) high: i128,
    pub(crate) open: bool,
}

impl Spread {
    pub(crate) fn exact(value: i128) -> Self {
        Self { low: value, high: value, open: false }
    }

    pub(crate) fn closed(low: i128, high: i128) -> Self {
        Self { low: low.min(high), high: low.max(high), open: false }
    }

    /// Returns whether the position is a known value or a known gap between two neighbours.
    pub(crate) fn is_exact(self) -> bool {
        self.low == self.high || (self.open && self.high - self.low == 1)
    }

    /// Returns the closed spread extended by `below` and `above`.
    pub(crate) fn widened(self, below: i128, above: i128) -> Self {
        if below == 0 && above == 0 {
            return self;
        }
        Self::closed(self.low.saturating_sub(below).max(-HUGE), self.high.saturating_add(above).min(HUGE))
    }

    /// Widens the spread by the error of a binary floating point number with `bits` plus three bits of precision.
    pub(crate) fn rounded_to_bits(self, bits: u32) -> Self {
        self.widened(self.low.abs() >> bits, self.high.abs() >> bits)
    }
}

/// `mantissa * 10^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) mantissa: i128,
    pub(crate) exponent: i32,
}

impl Number {
    /// Parses `[+-] digits [. digits] [e [+-] digits]` with at most 38 significant digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let end = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(unsigned.len());
        let (digits, suffix) = unsigned.split_at_checked(end)?;
        let written = match suffix {
            [] => None,
            [_, exponent @ ..] => Some(std::str::from_utf8(exponent).ok()?.parse::<i32>().ok()?),
        };
        let (mantissa, fraction) = Self::digits(digits)?;
        let exponent = written.unwrap_or(0).checked_sub(fraction)?;
        if exponent.unsigned_abs() > 100_000 {
            return None;
        }
        let mantissa = if negative { -mantissa } else { mantissa };
        Some(Self { mantissa, exponent }.trimmed())
    }

    /// Returns the digits as one integer and the number of digits after the point.
    fn digits(digits: &[u8]) -> Option<(i128, i32)> {
        let mut mantissa = 0_i128;
        let (mut seen, mut fraction) = (0, 0);
        let mut behind_point = false;
        // Zeros are appended with the next other digit or at the end.
        let mut zeros = 0_u32;
        for &byte in digits {
            match byte {
                b'.' if !behind_point => behind_point = true,
                b'0' => {
                    zeros += 1;
                    seen += 1;
                    fraction += i32::from(behind_point);
                }
                b'1'..=b'9' => {
                    if mantissa != 0 {
                        mantissa = mantissa.checked_mul(10_i128.checked_pow(zeros)?)?;
                    }
                    mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
                    zeros = 0;
                    seen += 1;
                    fraction += i32::from(behind_point);
                }
                _ => return None,
            }
        }
        if seen == 0 {
            return None;
        }
        if mantissa != 0 {
            mantissa = mantissa.checked_mul(10_i128.checked_pow(zeros)?)?;
        }
        Some((mantissa, fraction))
    }

    fn trimmed(mut self) -> Self {
        if self.mantissa == 0 {
            self.exponent = 0;
        }
        while self.mantissa != 0 && self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.exponent += 1;
        }
        self
    }

    /// Returns the number of significant digits, without leading and trailing zeros.
    pub(crate) fn significant_digits(self) -> u32 {
        self.mantissa.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1)
    }

    pub(crate) fn is_integer(self) -> bool {
        self.exponent >= 0
    }

    /// Returns the position among the multiples of `10^-scale`.
    pub(crate) fn scaled(self, scale: i32) -> Spread {
        if self.mantissa == 0 {
            return Spread::exact(0);
        }
        let shift = self.exponent + scale;
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        if shift >= 0 {
            let scaled = power.and_then(|power| self.mantissa.checked_mul(power));
            let beyond = self.mantissa.signum() * HUGE;
            return Spread::exact(scaled.unwrap_or(beyond).clamp(-HUGE, HUGE));
        }
        let (floor, remainder) = match power {
            Some(power) => (self.mantissa.div_euclid(power), self.mantissa.rem_euclid(power)),
            None => (if self.mantissa < 0 { -1 } else { 0 }, 1),
        };
        match remainder {
            0 => Spread::exact(floor),
            _ => Spread { low: floor, high: floor + 1, open: true },
        }
    }
}

/// Returns the key of a float in Spark's order: `-0.0` equals `0.0`, NaN is the greatest.
pub(crate) fn float_key(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = (if value == 0.0 { 0.0 } else { value }).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Parses a double: a number, an infinity or NaN.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    parse_float(text, f64::INFINITY, f64::NAN)
}

/// Parses a float of 32 bits, rounded once.
pub(crate) fn parse_single(text: &str) -> Option<f32> {
    parse_float(text, f32::INFINITY, f32::NAN)
}

fn parse_float<F: std::str::FromStr + std::ops::Neg<Output = F>>(
    text: &str,
    infinity: F,
    nan: F,
) -> Option<F> {
    let (negative, word) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    if word.starts_with(|character: char| character.is_ascii_alphabetic()) {
        return match word.to_ascii_lowercase().as_str() {
            "nan" => Some(nan),
            "inf" | "infinity" => Some(if negative { -infinity } else { infinity }),
            _ => None,
        };
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_spelling() {
        let hundred = Number::parse("100").unwrap();
        for spelling in ["1E+2", "1e2", "100.00", "+100", "0.1e3", "000100", "1000e-1"] {
            assert_eq!(Number::parse(spelling).unwrap().scaled(3), hundred.scaled(3), "{spelling}");
        }
        for nonsense in ["", "-", ".", "1e", "e1", "1.2.3", "0x1", "1_0", " 1", "1e99999999999"] {
            assert_eq!(Number::parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(Number::parse("0E-10").unwrap().scaled(10), Spread::exact(0));
    }

    #[test]
    fn a_value_between_two_neighbours_is_open() {
        let spread = |text: &str, scale| {
            let spread = Number::parse(text).unwrap().scaled(scale);
            (spread.low, spread.high, spread.open)
        };
        assert_eq!(spread("1.5", 0), (1, 2, true));
        assert_eq!(spread("-1.5", 0), (-2, -1, true));
        assert_eq!(spread("-1.50", 2), (-150, -150, false));
        assert_eq!(spread("1e-300", 0), (0, 1, true));
        assert_eq!(spread("-1e300", 0), (-HUGE, -HUGE, false));
        let most = "9".repeat(38);
        assert_eq!(spread(&most, 0), (10_i128.pow(38) - 1, 10_i128.pow(38) - 1, false));
        assert_eq!(spread(&most, 1), (HUGE, HUGE, false));
    }

    #[test]
    fn float_keys_are_ordered_as_spark_orders() {
        let ascending =
            [f64::NEG_INFINITY, f64::MIN, -1.5, -1e-310, 0.0, 1e-310, 1.5, f64::MAX, f64::INFINITY, f64::NAN];
        assert!(ascending.map(float_key).is_sorted_by(|a, b| a < b));
        assert_eq!(float_key(-0.0), float_key(0.0));
        assert_eq!(float_key(-f64::NAN), i64::MAX);
        assert_eq!(parse_double("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(parse_double("NaN").unwrap().is_nan());
    }
}
