//! Decimal numbers, compared without rounding.

use std::fmt;

use arrow_buffer::i256;

/// The number `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    unscaled: i256,
    scale: i32,
}

/// Where a number is in a sequence of integers: at `whole`, or between it and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) whole: i256,
    pub(super) is_between: bool,
}

impl Decimal {
    /// The number with these digits, the first of which is the highest, times `10^exponent`. `None` if it has more than 76
    /// digits.
    pub fn from_digits(is_negative: bool, digits: &[u8], exponent: i32) -> Option<Self> {
        let ten = i256::from_i128(10);
        let mut unscaled = i256::ZERO;
        for digit in digits.iter().skip_while(|digit| **digit == 0) {
            unscaled = (unscaled.checked_mul(ten)?).checked_add(i256::from(i64::from(*digit)))?;
        }
        if unscaled > max() {
            return None;
        }
        if is_negative {
            unscaled = unscaled.wrapping_neg();
        }
        Some(Self {
            unscaled,
            scale: exponent.checked_neg()?,
        })
    }

    /// The shortest decimal number that is read as this float: 0.1 is one tenth. `None` for NaN and infinity.
    pub(super) fn from_float(float: f64) -> Option<Self> {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e')?;
        let exponent: i32 = exponent.parse().ok()?;
        let fraction = mantissa
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len());
        let digits: Vec<u8> = (mantissa.bytes().filter(u8::is_ascii_digit))
            .map(|digit| digit - b'0')
            .collect();
        Self::from_digits(
            mantissa.starts_with('-'),
            &digits,
            exponent - fraction as i32,
        )
    }

    /// The nearest float.
    pub(super) fn to_float(self) -> f64 {
        let text = format!("{}e{}", self.unscaled, -i64::from(self.scale));
        text.parse().unwrap_or(f64::NAN)
    }

    /// Its place among the multiples of `10^-scale`. Numbers that are too large for 256 bits are beyond all columns.
    pub(super) fn threshold(self, scale: i32) -> Threshold {
        let ten = i256::from_i128(10);
        let power = |exponent: i64| {
            u32::try_from(exponent)
                .ok()
                .and_then(|e| ten.checked_pow(e))
        };
        let more = i64::from(scale) - i64::from(self.scale);
        if more >= 0 || self.unscaled == i256::ZERO {
            let whole = match power(more.max(0)).and_then(|power| self.unscaled.checked_mul(power))
            {
                Some(whole) => whole,
                None if self.unscaled == i256::ZERO => i256::ZERO,
                None if self.unscaled > i256::ZERO => i256::MAX,
                None => i256::MIN,
            };
            return Threshold {
                whole,
                is_between: false,
            };
        }
        let (quotient, rest) = match power(-more) {
            Some(power) => (
                self.unscaled.wrapping_div(power),
                self.unscaled.wrapping_rem(power),
            ),
            None => (i256::ZERO, self.unscaled),
        };
        Threshold {
            whole: match rest < i256::ZERO {
                true => quotient.wrapping_sub(i256::ONE),
                false => quotient,
            },
            is_between: rest != i256::ZERO,
        }
    }
}

impl From<i64> for Decimal {
    fn from(integer: i64) -> Self {
        Self {
            unscaled: integer.into(),
            scale: 0,
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scale {
            0 => write!(f, "{}", self.unscaled),
            scale => write!(f, "{}e{}", self.unscaled, -i64::from(scale)),
        }
    }
}

/// The largest number of 76 digits.
fn max() -> i256 {
    (i256::from_i128(10).wrapping_pow(76)).wrapping_sub(i256::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let digits: Vec<u8> = (mantissa.bytes().filter(u8::is_ascii_digit))
            .map(|digit| digit - b'0')
            .collect();
        Decimal::from_digits(
            mantissa.starts_with('-'),
            &digits,
            exponent.parse().unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn a_number_has_one_place_among_the_multiples_of_a_scale() {
        let place = |text: &str, scale: i32| {
            let Threshold { whole, is_between } = decimal(text).threshold(scale);
            (whole.to_string(), is_between)
        };
        assert_eq!(place("150e-2", 2), ("150".to_owned(), false));
        assert_eq!(place("150e-2", 1), ("15".to_owned(), false));
        assert_eq!(place("150e-2", 0), ("1".to_owned(), true));
        assert_eq!(place("-150e-2", 0), ("-2".to_owned(), true));
        assert_eq!(place("15e3", -2), ("150".to_owned(), false));
        assert_eq!(place("3e-999999", 4), ("0".to_owned(), true));
        assert_eq!(place("-3e-999999", 4), ("-1".to_owned(), true));
        assert_eq!(place("0e999999", 4), ("0".to_owned(), false));
        assert_eq!(decimal("3e999999").threshold(4).whole, i256::MAX);
        assert_eq!(decimal("-3e999999").threshold(4).whole, i256::MIN);
    }

    #[test]
    fn a_float_is_the_number_that_is_printed() {
        for (float, text) in [
            (0.1, "1e-1"),
            (-1234.5, "-12345e-1"),
            (1e300, "1e300"),
            (5e-324, "5e-324"),
            (-0.0, "0"),
        ] {
            let found = Decimal::from_float(float).unwrap();
            assert_eq!(found, decimal(text), "{float}");
            assert!(found.to_float() == float, "{float}");
        }
        assert_eq!(Decimal::from_float(f64::NAN), None);
        assert_eq!(Decimal::from_float(f64::INFINITY), None);
    }

    #[test]
    fn more_digits_than_a_column_can_have_are_none() {
        assert!(Decimal::from_digits(false, &[9; 76], 0).is_some());
        assert!(Decimal::from_digits(false, &[1; 77], 0).is_none());
        assert!(Decimal::from_digits(false, &[9; 78], 0).is_none());
        assert!(Decimal::from_digits(false, &[[0; 30], [1; 30]].concat(), 0).is_some());
        assert!(Decimal::from_digits(false, &[1], i32::MIN).is_none());
    }
}
