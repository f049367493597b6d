//! A program that runs, and what it has said so far.

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
    /// What a shell would say: 128 and the signal for a program that was killed.
    pub(crate) code: i32,
    /// The one that killed it.
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

    /// Waits until this stands on standard output, which is returned up to its end.
    pub(crate) fn prints(&self, text: &str) -> String {
        until(&self.printed, &self.readers[0], text)
    }

    /// Waits until this was said on standard error.
    pub(crate) fn says(&self, text: &str) -> String {
        until(&self.said, &self.readers[1], text)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name).unwrap();
    }

    /// Waits for the end of it, after the end of its input.
    pub(crate) fn ends(mut self) -> Ended {
        drop(self.input.take());
        self.ended()
    }

    /// Sends it a signal, and waits for the end of it. Its input stays open: the end of that would be the end of many a
    /// command.
    pub(crate) fn ends_by(self, signal: &str) -> Ended {
        self.signal(signal);
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let status = eventually("the program ends", || {
            let seen = || (self.printed.lock().unwrap().clone(), self.said.lock().unwrap().clone());
            self.process.try_wait().unwrap().ok_or_else(seen)
        });
        // They end when nobody has its output open any more: a process that it has left behind would.
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
        // Looked at first: nothing comes after that.
        let is_over = reader.is_finished();
        let seen = seen.lock().unwrap();
        match seen.find(text) {
            Some(start) => Ok(seen[..start + text.len()].to_owned()),
            None if is_over => panic!("it ended, and did not say {text:?}: {seen:?}"),
            None => Err(seen.clone()),
        }
    })
}
