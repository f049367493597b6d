//! Signals that whoever started the tests has had them ignore, as `nohup` and the background of a script do.

use std::fs;
use std::sync::Once;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Lets all that is started from here on begin with every signal as it usually is.
///
/// What is ignored stays so in programs that are started, and a handler does not. So there is one for each that is ignored here,
/// and it does nothing.
pub(crate) fn begin_as_usual() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ignored = ignored();
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
            if ignored >> (kind.as_raw_value() - 1) & 1 == 1 {
                drop(signal(kind).unwrap());
            }
        }
    });
}

/// As a mask; none where the system does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap())
}
