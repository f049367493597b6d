//! Signals that the process which started the tests had them ignore, as `nohup` and background jobs of scripts do.

use std::fs;
use std::sync::Once;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Gives SIGHUP, SIGINT and SIGQUIT their default actions in all programs started from now on.
///
/// Started programs inherit ignored signals, but not handlers. So each of these signals that is ignored here gets a
/// handler that does nothing.
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

/// A mask; 0 where the system does not provide one.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap())
}
