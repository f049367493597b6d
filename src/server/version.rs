//! The version of the module.

use std::ffi::c_int;

/// 1.2.3 becomes 10203, as MODULE LIST shows it.
pub(crate) const NUMBER: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_packages() {
        let parts: Vec<i32> =
            env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
        assert_eq!(super::NUMBER, (parts[0] * 100 + parts[1]) * 100 + parts[2]);
    }
}
