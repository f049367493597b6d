//! Where a node of a cluster sends a client on to.

/// Told by `MOVED`, or by `ASK`.
#[derive(Clone, Copy)]
pub(crate) struct SentOn {
    pub(crate) port: u16,
    /// For this one question: the slot is on its way there.
    pub(crate) once: bool,
}

/// `-MOVED 1234 127.0.0.1:7001`, or the same with `ASK`.
pub(crate) fn sent_on(line: &str) -> Option<SentOn> {
    let once = line.starts_with("-ASK ");
    if !once && !line.starts_with("-MOVED ") {
        return None;
    }
    let port = line.trim_end().rsplit(':').next()?.parse().ok()?;
    Some(SentOn { port, once })
}
