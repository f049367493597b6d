//! What the order of critical sections says about a way to wait.

/// A critical section. Moments are seconds since the run began.
pub(crate) struct Section {
    /// Its place in the order of all sections.
    pub(crate) place: usize,
    /// The request was not sent before this moment …
    pub(crate) begun: f64,
    /// … and was sent by this one.
    pub(crate) sent: f64,
    pub(crate) granted: f64,
}

/// Counts the sections, in their order, that were granted the lock before a request that was
/// certainly queued when they asked.
///
/// A request is queued when the server has read it, and that cannot be seen. But once it was sent,
/// a grant was made, the holder released the lock, and the next grant was seen, the server has read
/// it: it reads everything that has arrived before it replies.
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
