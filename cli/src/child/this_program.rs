//! This program, to be run once more as another process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(super) fn this_program() -> io::Result<Command> {
    let mut file = std::env::current_exe()?;
    // It was replaced while this program waited: the kernel still has the one that runs.
    if cfg!(target_os = "linux") && !file.exists() {
        file = "/proc/self/exe".into();
    }
    let mut command = Command::new(file);
    command.arg0("leasehold");
    Ok(command)
}
