//! Numbers as digits of a fixed width, as values have them. They are read and written eight digits at a time, because
//! every command passes here.

/// The number that eight digits stand for; `None` if a byte is not a digit.
pub(super) fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    let ones = u64::from_le_bytes(digits) ^ 0x3030_3030_3030_3030;
    // For a digit, the upper half of the byte is now 0, even with 6 added.
    if (ones | ones.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    // Neighbours are joined: digits to pairs, pairs to fours, fours to all eight.
    let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// The last `WIDTH` digits of a number below 10^16.
pub(super) fn decimal<const WIDTH: usize>(number: u64) -> [u8; WIDTH] {
    let (high, low) = (word(number / 100_000_000), word(number % 100_000_000));
    let digits = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    digits.last_chunk().copied().unwrap_or([b'0'; WIDTH])
}

/// A number below 10^8 as eight digits, the first in the highest byte.
pub(super) const fn word(number: u64) -> u64 {
    // Each step splits every part in two: eight digits into fours, fours into pairs, pairs into digits. For numbers
    // this small, multiplying and shifting divides exactly, two or four parts at a time.
    let fours = ((number / 10_000) << 32) | (number % 10_000);
    let hundreds = fours.wrapping_mul(10_486) >> 20 & 0x0000_007f_0000_007f;
    let pairs = hundreds << 16 | fours.wrapping_sub(hundreds.wrapping_mul(100));
    let tens = pairs.wrapping_mul(103) >> 10 & 0x000f_000f_000f_000f;
    let ones = pairs.wrapping_sub(tens.wrapping_mul(10));
    (tens << 8 | ones) | 0x3030_3030_3030_3030
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_of_eight_digits_is_divided_exactly() {
        for number in (0..10_000).flat_map(|four| [four, four * 10_000, four * 10_001]) {
            let digits = word(number).to_be_bytes();
            assert_eq!(str::from_utf8(&digits).unwrap(), format!("{number:08}"));
            assert_eq!(eight_digits(digits), Some(number));
        }
    }

    proptest! {
        #[test]
        fn a_number_has_its_last_digits(number in 0..10_000_000_000_000_000_u64) {
            let all = format!("{number:016}");
            prop_assert_eq!(&decimal::<16>(number)[..], all.as_bytes());
            prop_assert_eq!(&decimal::<14>(number)[..], &all.as_bytes()[2..]);
            prop_assert_eq!(&decimal::<3>(number)[..], &all.as_bytes()[13..]);
        }
    }
}
