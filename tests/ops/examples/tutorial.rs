//! The service of docs/tutorial.md, run twice as printed: while one is paused for longer than its lease the other goes on, and both
//! print what the page says.

use super::python::REDIS_PY;
use super::stories::{comparable, fences};
use super::{ADDRESS, address_of, server};
use crate::ROOT;
use crate::page;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{eventually, signal};

const PAGE: &str = "docs/tutorial.md";

struct Service {
    process: Child,
    told: PathBuf,
    warned: PathBuf,
}

impl Service {
    /// In this folder, where the store is, under this name.
    fn start(python: &Path, folder: &Path, name: &str) -> Self {
        let [told, warned] = ["out", "err"].map(|kind| folder.join(format!("{name}.{kind}")));
        let [out, err] = [&told, &warned].map(|file| File::create(file).unwrap());
        // Whoever runs the tests in the background has left Ctrl-C ignored.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(python).args(["service.py", name]);
        command.current_dir(folder).stdin(Stdio::null());
        // The package needs nothing to be built.
        command.env("PYTHONPATH", Path::new(ROOT).join("clients/python/src"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let process = command.stdout(out).stderr(err).spawn().unwrap();
        Self { process, told, warned }
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap()
    }

    /// So often, by now.
    fn tells(&self, words: &str, times: usize) {
        eventually(words, || {
            let told = self.told();
            let is_told = told.ends_with('\n') && told.matches(words).count() == times;
            if is_told { Ok(()) } else { Err(told) }
        });
    }

    fn is_sent(&self, name: &str) {
        signal(self.process.id(), name).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One thread takes the signal and stops the others, which may take a while on a busy machine.
fn until_it_is_paused(process: u32) {
    eventually("it is paused", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        let is_paused = stat.as_ref().map_or(true, |stat| stat.contains(") T "));
        if is_paused { Ok(()) } else { Err(stat) }
    });
}

#[test]
fn the_service_of_the_tutorial_survives_a_paused_holder() {
    let Some(programs) = REDIS_PY.programs() else { return };
    let python = programs.join("python");
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let text = page::shown(PAGE, "Write the service", "python3");
    assert_eq!(text.matches(ADDRESS).count(), 1, "{text}");
    fs::write(folder.path().join("service.py"), text.replace(ADDRESS, &address_of(&server)))
        .unwrap();

    let anna = Service::start(&python, folder.path(), "anna");
    anna.tells("anna holds the lock", 1);
    let ben = Service::start(&python, folder.path(), "ben");
    server.client().wait_until_waiters(1);
    // Ctrl-Z does the same to a program at a terminal.
    anna.is_sent("STOP");
    until_it_is_paused(anna.process.id());
    ben.tells("ben holds the lock", 1);
    anna.is_sent("CONT");
    anna.tells("was refused", 1);
    anna.tells("asks for the lock", 2);

    let shown = page::shown(PAGE, "Pause the holder", "text");
    let of = |name: &str| -> String {
        let begins = format!("{name} ");
        let lines = shown.lines().filter(|line| line.starts_with(&begins));
        lines.map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(comparable(&anna.told()), comparable(&of("anna")));
    assert_eq!(comparable(&ben.told()), comparable(&of("ben")));
    assert!(fences(&anna.told()) < fences(&ben.told()), "{}{}", anna.told(), ben.told());
    let warned = [&anna, &ben].map(|service| fs::read_to_string(&service.warned).unwrap());
    let [of_anna, of_ben] = &warned;
    assert!(!of_anna.is_empty() && of_ben.is_empty(), "{warned:?}");
    assert!(of_anna.lines().all(|line| shown.lines().any(|shown| shown == line)), "{of_anna}");

    // Ctrl-C gives the lock back at once.
    ben.is_sent("INT");
    anna.tells("holds the lock", 2);
}
