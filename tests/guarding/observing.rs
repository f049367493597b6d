//! Where a guarded command shows up: statistics, the slow log and MONITOR.

use super::{guarded, held};
use redis::Value;
use testkit::{bulk_text, lacks};

#[test]
fn the_statistics_count_the_guard_and_the_command() {
    let (_server, mut client, fence) = held();
    client.cmd(guarded(fence, "SET k v"));
    client.cmd("CONFIG RESETSTAT");
    client.cmd(guarded(fence, "SET k v"));
    client.cmd(guarded(fence, "LPUSH k v"));
    client.cmd(guarded(fence + 1, "SET k v"));
    let executed = client.executed();
    assert_eq!((executed["lock.guard"], executed["set"], executed["lpush"]), (3, 1, 1));
    let errors = client.info_text("errorstats");
    assert!(errors.contains("errorstat_NOTHOLDER:count=1"), "{errors}");
    assert!(errors.contains("errorstat_WRONGTYPE:count=1"), "{errors}");
    if !lacks((7, 0), "failed calls in the statistics") {
        let stats = client.info_text("commandstats");
        let guard = stats.lines().find(|line| line.starts_with("cmdstat_lock.guard")).unwrap();
        assert!(guard.ends_with("failed_calls=2"), "{guard}");
    }
}

#[test]
fn monitor_and_the_slow_log_show_both_the_command_first() {
    let (server, mut client, fence) = held();
    client.cmd(guarded(fence, "SET k v"));
    let mut monitor = server.client();
    monitor.send("MONITOR");
    assert_eq!(monitor.receive(), Value::Okay);
    client.cmd("CONFIG SET slowlog-log-slower-than 0");
    client.cmd("SLOWLOG RESET");
    client.cmd(guarded(fence, "SET k w"));
    client.cmd("CONFIG SET slowlog-log-slower-than -1");
    let lines: Vec<_> = (0..2)
        .map(|_| match monitor.receive() {
            Value::SimpleString(line) => line,
            other => bulk_text(&other),
        })
        .collect();
    assert!(lines[0].contains("\"SET\" \"k\" \"w\"") && !lines[0].contains("GUARD"), "{lines:?}");
    assert!(lines[1].contains("\"LOCK.GUARD\" \"the-lock\" \"alice\""), "{lines:?}");
    let slow = format!("{:?}", client.cmd("SLOWLOG GET 10"));
    assert!(slow.contains("LOCK.GUARD"), "{slow}");
}
