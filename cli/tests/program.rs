//! A running program, and its output so far.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use testkit::{eventually, signal};

pub(crate) struct Program {
    process: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<String>>,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

pub(crate) struct Ended {
    /// The exit code; as in a shell, 128 and the signal for a program that was killed.
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) printed: String,
    pub(crate) said: String,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (printed, first) = read(process.stdout.take().unwrap());
        let (said, second) = read(process.stderr.take().unwrap());
        let input = process.stdin.take();
        Self { process, input, printed, said, readers: vec![first, second] }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for this text on standard output, and returns the output up to its end.
    pub(crate) fn prints(&self, text: &str) -> String {
        until(&self.printed, &self.readers[0], text)
    }

    /// Waits for this text on standard error.
    pub(crate) fn says(&self, text: &str) -> String {
        until(&self.said, &self.readers[1], text)
    }

    /// Standard output so far.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name).unwrap();
    }

    /// Closes the program's input, and waits for its end.
    pub(crate) fn ends(mut self) -> Ended {
        drop(self.input.take());
        self.ended()
    }

    /// Sends a signal, and waits for the program's end. Keeps its input open, because many commands end when their
    /// input does.
    pub(crate) fn ends_by(self, signal: &str) -> Ended {
        self.signal(signal);
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let status = eventually("the program ends", || {
            let seen = || (self.printed.lock().unwrap().clone(), self.said.lock().unwrap().clone());
            self.process.try_wait().unwrap().ok_or_else(seen)
        });
        // The readers end when no process has the output open, so a process left behind would fail the test.
        for reader in self.readers.drain(..) {
            eventually("nobody writes any more", || reader.is_finished().then_some(()).ok_or(()));
            reader.join().unwrap();
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
        let (printed, said) =
            (self.printed.lock().unwrap().clone(), self.said.lock().unwrap().clone());
        Ended { code, signal: status.signal(), printed, said }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(mut from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&text);
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    });
    (text, reader)
}

fn until(seen: &Mutex<String>, reader: &JoinHandle<()>, text: &str) -> String {
    eventually(&format!("it says {text:?}"), || {
        // Checked first: a reader that has ended adds nothing more.
        let is_over = reader.is_finished();
        let seen = seen.lock().unwrap();
        match seen.find(text) {
            Some(start) => Ok(seen[..start + text.len()].to_owned()),
            None if is_over => panic!("it ended, and did not say {text:?}: {seen:?}"),
            None => Err(seen.clone()),
        }
    })
}
