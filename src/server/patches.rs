//! Servers with known weaknesses, through which a client can run code on the server or crash it.
//!
//! Waiters are blocked clients, and so the module makes the weakness in unblocking clients easier to reach.

use crate::ffi::{Ctx, MainThread, log, server_flavor};
use server_flavor::Version;
use std::cell::Cell;

/// The first version of each series, of Redis and then of Valkey, whose authors have mended:
///
/// - CVE-2025-49844, a use after free in Lua, and what was mended with it;
/// - CVE-2026-23479, a use after free when a blocked client is unblocked, CVE-2026-25243 in `RESTORE`, and
///   CVE-2026-23631 in scripts during a full synchronization;
/// - the use after free in `RESTORE` of streams, CVE-2026-63639 of Valkey;
/// - the use after free in TLS connections, CVE-2026-81934 of Redis and CVE-2026-56684 of Valkey.
///
/// Of a series that got no such version, the first of the next series.
const PATCHED: [&[((u32, u32), Version)]; 2] = [
    &[
        ((6, 2), (6, 2, 24)),
        ((7, 0), (7, 2, 16)),
        ((7, 2), (7, 2, 16)),
        ((7, 4), (7, 4, 11)),
        ((8, 0), (8, 2, 9)),
        ((8, 2), (8, 2, 9)),
        ((8, 4), (8, 4, 6)),
        ((8, 6), (8, 6, 6)),
        ((8, 8), (8, 8, 2)),
        ((8, 10), (8, 10, 1)),
    ],
    &[
        ((7, 2), (7, 2, 14)),
        ((8, 0), (8, 0, 10)),
        ((8, 1), (8, 1, 9)),
        ((9, 0), (9, 0, 5)),
        ((9, 1), (9, 1, 1)),
    ],
];

static PATCHED_FROM: MainThread<Cell<u64>> = MainThread::new(Cell::new(0));

/// The version that the server should have, 8.6.6 as 80606. 0 if it has a later one, or is of no known series.
pub(crate) fn patched_from() -> u64 {
    PATCHED_FROM.get()
}

/// Warns of a server without the patches.
pub(crate) fn warn(ctx: Ctx) {
    let Some(version) = server_flavor::version(ctx) else { return };
    let Some(patched) = needed(server_flavor::is_valkey(ctx), version) else { return };
    let as_one = |number: u64, part: u32| number.saturating_mul(100).saturating_add(part.into());
    PATCHED_FROM.set([patched.0, patched.1, patched.2].into_iter().fold(0, as_one));
    let dotted = |(major, minor, patch): Version| format!("{major}.{minor}.{patch}");
    let (version, patched) = (dotted(version), dotted(patched));
    log::warning(
        ctx,
        &format!(
            "this server, version {version}, has known weaknesses that are mended from {patched} on: \
             upgrade it, unless whoever packaged it has mended them"
        ),
    );
}

/// The version that a server of this version should have instead.
fn needed(is_valkey: bool, version: Version) -> Option<Version> {
    let [of_redis, of_valkey] = PATCHED;
    let series = if is_valkey { of_valkey } else { of_redis };
    let &(_, patched) =
        series.iter().find(|((major, minor), _)| (*major, *minor) == (version.0, version.1))?;
    (version < patched).then_some(patched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_needs_the_patched_version_of_its_series_or_of_the_next() {
        for (is_valkey, version, patched) in [
            (false, (8, 6, 3), Some((8, 6, 6))),
            (false, (8, 6, 6), None),
            (false, (8, 10, 0), Some((8, 10, 1))),
            (false, (7, 0, 15), Some((7, 2, 16))),
            (false, (8, 12, 0), None),
            (true, (8, 1, 8), Some((8, 1, 9))),
            (true, (9, 1, 2), None),
        ] {
            assert_eq!(needed(is_valkey, version), patched, "{version:?}");
        }
    }
}
