//! The replies by which a node of a cluster sends a client to another node.

/// `MOVED` or `ASK`.
#[derive(Clone, Copy)]
pub(crate) struct Redirect {
    pub(crate) port: u16,
    /// `ASK`: it holds for this one request, because the slot is on its way to that node.
    pub(crate) once: bool,
}

impl Redirect {
    /// From `-MOVED 1234 127.0.0.1:7001`, or the same with `ASK`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let once = line.starts_with("-ASK ");
        if !once && !line.starts_with("-MOVED ") {
            return None;
        }
        let port = line.trim_end().rsplit(':').next()?.parse().ok()?;
        Some(Self { port, once })
    }
}
