//! The server and the machine, on which the figures depend.

use super::cores;
use std::fs;
use testkit::full_version;

/// Such as `redis-8.6`, and `Redis 8.6.3`.
pub(crate) fn names_of_the_server() -> (String, String) {
    let (product, version) = full_version();
    let short: Vec<_> = version.splitn(3, '.').take(2).collect();
    (format!("{}-{}", product.to_lowercase(), short.join(".")), format!("{product} {version}"))
}

/// One line about the machine: processor, cores, memory, kernel and load.
pub(crate) fn description() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cpu = after(&read("/proc/cpuinfo"), "model name").unwrap_or("an unknown processor".into());
    let cores = cores::all();
    let memory = after(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kilobytes: f64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let gigabytes = kilobytes / 1024.0 / 1024.0;
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    let kernel = kernel.trim();
    format!("{cpu}, {cores} cores, {gigabytes:.0} GB, Linux {kernel}, load {load} before")
}
