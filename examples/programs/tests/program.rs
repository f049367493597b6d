//! A program that runs, and what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::{Server, eventually, signal, strings};

pub(crate) struct Program {
    process: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let said = Arc::default();
        listen(process.stdout.take().unwrap(), &said);
        listen(process.stderr.take().unwrap(), &said);
        Self { process, said }
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Waits for a line with this text, and returns it.
    pub(crate) fn says(&self, text: &str) -> String {
        eventually(text, || {
            let said = self.said();
            said.iter().find(|line| line.contains(text)).cloned().ok_or(said)
        })
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.process.id(), name).unwrap();
    }

    pub(crate) fn ends(&mut self) -> ExitStatus {
        let said = self.said();
        eventually("it ends", || self.process.try_wait().unwrap().ok_or(&said))
    }

    #[track_caller]
    pub(crate) fn ends_well(&mut self) {
        let status = self.ends();
        assert!(status.success(), "{status}: {:?}", self.said());
    }

    /// Asks it to end, which it does in the orderly way.
    #[track_caller]
    pub(crate) fn terminate(mut self) {
        self.signal("TERM");
        self.ends_well();
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- a program said\n{}", self.said().join("\n"));
        }
    }
}

fn listen(output: impl Read + Send + 'static, said: &Arc<Mutex<Vec<String>>>) {
    let said = Arc::clone(said);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            said.lock().unwrap().push(line);
        }
    });
}

pub(crate) fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// The keys of locks that begin like this.
pub(crate) fn locks(server: &Server, prefix: &str) -> Vec<String> {
    let mut keys = strings(&server.cmd(["KEYS", &format!("{prefix}*")]));
    // The last fence of each, where there is no module.
    keys.retain(|key| !key.ends_with(":fence"));
    keys
}

#[track_caller]
pub(crate) fn assert_no_lock_is_left(server: &Server, prefix: &str) {
    let left = locks(server, prefix);
    assert!(left.is_empty(), "{left:?}");
}
