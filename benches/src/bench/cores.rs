//! Who runs where. Among several servers, one could share a core with the one who measures for as long as it lives, and
//! another not; so all are given the same core, and the one who measures has the others.

use std::mem;
use std::ops::Range;
use std::sync::OnceLock;
use std::thread;
use testkit::Server;

/// How many cores there were before this program confined itself.
pub(crate) fn all() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// As long as it lives, this thread stays off the last core.
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

/// Where there is only one, they share it.
pub(crate) fn give_the_last_to(server: &Server) {
    let pid = server.client().info_number("server", "process_id");
    confine(pid.try_into().unwrap(), all() - 1..all());
}

/// A process is meant by the number of its main thread, which is the one that executes commands; 0 is this thread.
fn confine(pid: i32, cores: Range<usize>) {
    // SAFETY: a set of cores is plain bits, and none of them set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for core in cores {
        // SAFETY: the number of a core of this machine, into a set that is ours.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the set is read, and as long as it says.
    let done = unsafe { libc::sched_setaffinity(pid, mem::size_of_val(&set), &raw const set) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
