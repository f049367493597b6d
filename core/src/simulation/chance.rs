//! Random draws for schedules.

use rand::RngExt;
use rand::rngs::SmallRng;

pub(super) fn pick<'c, T>(rng: &mut SmallRng, choices: &'c [T]) -> &'c T {
    &choices[rng.random_range(0..choices.len())]
}

/// How often each kind happens in a schedule, drawn from its usual frequency. A kind that is not needed may not happen
/// at all.
pub(super) fn weights<K: Copy>(rng: &mut SmallRng, usual: &[(K, u32, bool)]) -> Vec<(K, u32)> {
    let mut weights = Vec::new();
    for &(kind, usual, is_needed) in usual {
        if is_needed || rng.random_ratio(2, 3) {
            weights.push((kind, rng.random_range(1..=2 * usual)));
        }
    }
    weights
}

/// One of these, each as often as its weight says.
pub(super) fn weighted<K: Copy>(rng: &mut SmallRng, weights: &[(K, u32)]) -> K {
    let all: u32 = weights.iter().map(|&(_, weight)| weight).sum();
    let mut at = rng.random_range(0..all);
    for &(kind, weight) in weights {
        if at < weight {
            return kind;
        }
        at -= weight;
    }
    panic!("no weights")
}

/// How many microseconds somebody moves the wall clock: from a little to a summer's hour, in either direction.
pub(super) fn clock_step(rng: &mut SmallRng) -> i64 {
    let micros = *pick(rng, &[2_000, 30_000, 2_000_000, 3_600_000_000]);
    rng.random_range(-micros..=micros)
}
