//! This program, to be run again as another process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(super) fn this_program() -> io::Result<Command> {
    let mut file = std::env::current_exe()?;
    // The file was replaced while this program waited. The kernel still has the running one.
    if cfg!(target_os = "linux") && !file.exists() {
        file = "/proc/self/exe".into();
    }
    let mut command = Command::new(file);
    command.arg0("leasehold");
    Ok(command)
}
