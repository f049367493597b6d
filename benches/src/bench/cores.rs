//! Which cores the servers and this program run on. All servers get the same core, and this program gets the others.
//! Otherwise one server might share a core with this program for as long as it lives, and another not.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::ops::Range;
use std::sync::OnceLock;
use std::thread;
use testkit::Server;

/// The number of cores before this program confined itself.
pub(crate) fn all() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Keeps this thread off the last core until it is dropped.
pub(crate) struct Apart;

pub(crate) fn leave_the_last() -> Apart {
    confine(0, 0..(all() - 1).max(1));
    Apart
}

impl Drop for Apart {
    fn drop(&mut self) {
        confine(0, 0..all());
    }
}

/// On a machine with one core, they share it.
pub(crate) fn give_the_last_to(server: &Server) {
    confine(server.pid().try_into().unwrap(), all() - 1..all());
}

/// Confines a thread to these cores. A process is named by its main thread, which executes the
/// commands. 0 is this thread.
fn confine(pid: i32, cores: Range<usize>) {
    let mut set = CpuSet::new();
    cores.for_each(|core| set.set(core).unwrap());
    sched_setaffinity(Pid::from_raw(pid), &set).unwrap();
}
