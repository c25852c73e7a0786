//! How is a number written for a person or a program?
//!
//! Without `core::fmt`, which would weigh more than the rest of the reports.
//! May use: `core` alone.

/// A number's decimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// Filled from the end; 20 digits hold any u64.
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// The digits of `number`, without leading zeros.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self::padded(number, 1)
    }

    /// The digits of `number`, at least `width` of them.
    #[must_use]
    pub fn padded(mut number: u64, width: usize) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        for digit in digits.iter_mut().rev() {
            if number == 0 {
                break;
            }
            let [low, ..] = (number % 10).to_le_bytes();
            *digit += low;
            number /= 10;
            start -= 1;
        }
        let padded = digits.len().saturating_sub(width);
        Self { digits, start: start.min(padded) }
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        for number in [0, 1, 9, 10, 12_345, u64::MAX - 1, u64::MAX] {
            assert_eq!(Decimal::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn padding() {
        assert_eq!(Decimal::padded(7, 3).as_bytes(), b"007");
        assert_eq!(Decimal::padded(0, 2).as_bytes(), b"00");
        assert_eq!(Decimal::padded(1234, 2).as_bytes(), b"1234");
        assert_eq!(Decimal::padded(5, 99).as_bytes(), b"00000000000000000005");
    }
}
