//! What the figures depend on besides the program: the server, the machine, the day.

use super::cores;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::{Client, Server};

/// Such as `redis-8.6`, and `Redis 8.6.3`.
pub(crate) fn names_of_the_server() -> (String, String) {
    let server = Server::builder().without_module().start();
    let mut client = server.client();
    let field = |client: &mut Client, name: &str| client.info_field("server", name);
    let (product, version) = match field(&mut client, "valkey_version") {
        Some(version) => ("Valkey", version),
        None => ("Redis", field(&mut client, "redis_version").unwrap()),
    };
    let short: Vec<_> = version.splitn(3, '.').take(2).collect();
    (format!("{}-{}", product.to_lowercase(), short.join(".")), format!("{product} {version}"))
}

/// One line: processor, cores, memory, kernel, and whether others use it.
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

pub(crate) fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400)
}

/// The date of the day that began so many days after 1970 did, such as `2026-11-21`.
pub(crate) fn date(mut day: u64) -> String {
    let february = |year: u64| match (year % 4, year % 100, year % 400) {
        (_, _, 0) => 29,
        (_, 0, _) => 28,
        (0, _, _) => 29,
        _ => 28,
    };
    let months = |year| [31, february(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut all = (1970..).flat_map(|year| (1..).zip(months(year)).map(move |month| (year, month)));
    loop {
        let (year, (month, length)) = all.next().unwrap();
        if day < length {
            return format!("{year}-{month:02}-{:02}", day + 1);
        }
        day -= length;
    }
}
