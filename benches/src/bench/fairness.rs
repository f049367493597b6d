//! Whose turn was it? What the order of critical sections says of a way to wait.

/// One critical section. Moments are seconds since the run began.
pub(crate) struct Section {
    /// Its place in the order of all.
    pub(crate) place: usize,
    pub(crate) worker: usize,
    /// Before this moment its request was not yet sent …
    pub(crate) begun: f64,
    /// … and after this one it was.
    pub(crate) sent: f64,
    pub(crate) granted: f64,
}

/// Jain's index: 1 if all workers got through equally often, 1/n if only one of n did.
pub(crate) fn fairness(sections: &[Section], workers: usize) -> f64 {
    let mut counts = vec![0.0; workers];
    for section in sections {
        counts[section.worker] += 1.0;
    }
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (workers as f64 * squares)
}

/// Of sections in their order, how many were granted before one that was certainly queued when they had not yet asked.
///
/// A request that was sent is queued as soon as the server has read it, and that cannot be seen. But when it was sent,
/// a grant was made, its holder released the lock, and the next grant was seen, then the server has read both requests:
/// it reads all that there is before it replies.
pub(crate) fn overtakings(sections: &[Section]) -> usize {
    let grants: Vec<f64> = sections.iter().map(|section| section.granted).collect();
    assert!(grants.is_sorted(), "each saw its grant before it released the lock to the next");
    let queued = |sent: f64| {
        let next = grants.partition_point(|&granted| granted <= sent);
        grants.get(next + 1).copied().unwrap_or(f64::INFINITY)
    };
    let mut first_queued_of_later = f64::INFINITY;
    let mut overtakings = 0;
    for section in sections.iter().rev() {
        if first_queued_of_later < section.begun {
            overtakings += 1;
        }
        first_queued_of_later = first_queued_of_later.min(queued(section.sent));
    }
    overtakings
}
