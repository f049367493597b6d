//! A program at its own terminal: what a person types and sees.

use super::eventually::{PATIENCE, eventually};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// The program, which ends when this is dropped.
pub struct Terminal {
    process: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Runs the program as the leader of a session, like a login, so that the terminal stops and interrupts its jobs.
    pub fn run(mut program: Command) -> Self {
        let (ours, theirs) = terminal();
        program
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs);
        // SAFETY: between fork and exec only two system calls are made. Both are async-signal-safe, and nothing
        // allocates.
        unsafe {
            program.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let process = program.spawn().unwrap();
        // Closes its end of the terminal in this process. Otherwise reading the screen would never end.
        drop(program);
        let (tell, screen) = mpsc::channel();
        let mut output = ours.try_clone().unwrap();
        // Not joined: the thread ends with the terminal.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                if tell.send(bytes[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { process, keyboard: ours, screen, seen: String::new() }
    }

    /// Types this text.
    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this text is on the screen, and returns the text before it. Later calls search only the text
    /// after it.
    pub fn shows(&mut self, text: &str) -> String {
        let whole = self.until(text, |seen| Some(seen.find(text)? + text.len()));
        whole[..whole.len() - text.len()].to_owned()
    }

    /// Reads until `end` returns a position, and returns the text up to there.
    pub fn until(&mut self, what: &str, end: impl Fn(&str) -> Option<usize>) -> String {
        loop {
            if let Some(end) = end(&self.seen) {
                return self.seen.drain(..end).collect();
            }
            let more = self.screen.recv_timeout(PATIENCE);
            let more =
                more.unwrap_or_else(|_| panic!("never shown: {what}; seen: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    /// Waits until the program ends.
    pub fn ends(&mut self) -> ExitStatus {
        eventually("the program at the terminal ends", || {
            self.process.try_wait().unwrap().ok_or(())
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both ends of a terminal wide enough for every hint.
fn terminal() -> (File, OwnedFd) {
    let size = Winsize { ws_row: 24, ws_col: 250, ws_xpixel: 0, ws_ypixel: 0 };
    let ends = openpty(&size, None).unwrap();
    // Programs that run here must not inherit another program's terminal.
    for end in [&ends.master, &ends.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    (ends.master.into(), ends.slave)
}
