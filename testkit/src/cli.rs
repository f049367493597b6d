//! redis-cli or valkey-cli, as a program to run.

use super::version::{announce, server_binary, version_in};
use super::{Cluster, eventually};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first version that rebalances slots.
const REBALANCES_SINCE: (u32, u32) = (5, 0);

/// Longer than any rebalancing takes, in seconds.
const LONGEST: &str = "120";

/// With which `timeout` ends then.
const TIMED_OUT: i32 = 124;

/// The program beside the server, or in PATH. `None`, with a line that says so, if none is new enough.
pub fn find(since: (u32, u32)) -> Option<PathBuf> {
    let beside = server_binary().parent().map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let found = beside
        .into_iter()
        .chain(env::split_paths(&path))
        .flat_map(|folder| ["redis-cli", "valkey-cli"].map(|name| folder.join(name)))
        .find(|client| client.is_file() && is_since(client, since));
    if found.is_none() {
        let (major, minor) = since;
        announce(&format!(
            "skipped: no redis-cli or valkey-cli from {major}.{minor} on beside the server or in PATH"
        ));
    }
    found
}

/// `redis-cli 7.0.15`
fn is_since(client: &Path, since: (u32, u32)) -> bool {
    let output = Command::new(client).arg("--version").output();
    let line = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    line.is_ok_and(|line| version_in(&line, "-cli ").is_some_and(|version| version >= since))
}

/// Rebalances the slots of a cluster with the server's own program, as an operator does.
pub struct Rebalance {
    client: PathBuf,
}

impl Rebalance {
    /// `None`, with a line that says so, if there is no program for it.
    pub fn by_program() -> Option<Self> {
        Some(Self { client: find(REBALANCES_SINCE)? })
    }

    /// Gives a node this weight; other primaries have 1. Returns when all nodes agree.
    pub fn to_weight(&self, cluster: &Cluster, index: usize, weight: f64) {
        let node = cluster.node(index);
        // The program moves nothing while nodes disagree, as they do just after slots have moved.
        eventually("the slots are shared out", || {
            let output = Command::new("timeout")
                .args([LONGEST.as_ref(), self.client.as_os_str()])
                .args(["--cluster", "rebalance", &format!("127.0.0.1:{}", node.port())])
                .args(["--cluster-weight", &format!("{}={weight}", node.id)])
                .args(["--cluster-threshold", "1"])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_ne!(output.status.code(), Some(TIMED_OUT), "it never ends: {told}");
            if output.status.success() && !told.contains("[ERR]") { Ok(()) } else { Err(told) }
        });
        cluster.wait_until_all_agree();
    }
}
