//! Writes to standard error in a thread. Nobody may read there for a while, as behind a pager, and leases must be
//! renewed meanwhile.

use nix::sys::signal::{SigSet, Signal};
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// How long to wait for a text to be written, so that later output on standard output comes after it.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// While nobody reads, texts beyond this number are dropped.
const MOST_UNWRITTEN: usize = 64;

static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

struct Writer {
    texts: SyncSender<String>,
    written: Receiver<()>,
    unwritten: usize,
}

/// Writes the text in one piece, so that no other process writes in between.
pub(crate) fn write(text: String) {
    if let Ok(mut writer) = WRITER.lock() {
        writer.get_or_insert_with(Writer::start).write(text);
    }
}

pub(crate) fn finish() {
    if let Ok(mut writer) = WRITER.lock()
        && let Some(writer) = writer.as_mut()
    {
        while writer.unwritten > 0 && writer.written.recv().is_ok() {
            writer.unwritten = writer.unwritten.saturating_sub(1);
        }
    }
}

impl Writer {
    fn start() -> Self {
        let (texts, to_write) = sync_channel::<String>(MOST_UNWRITTEN);
        let (tell, written) = channel();
        // Without a thread, `write` writes itself.
        let _ = thread::Builder::new().spawn(move || {
            // SIGTTOU for a message must not stop a program that has leases to renew.
            let _ = what_stops_writers().thread_block();
            for text in to_write {
                write_now(&text);
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        Self { texts, written, unwritten: 0 }
    }

    fn write(&mut self, text: String) {
        match self.texts.try_send(text) {
            Ok(()) => self.unwritten = self.unwritten.saturating_add(1),
            Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(text)) => write_now(&text),
        }
        // If an earlier text is unwritten, nobody reads, so do not wait.
        let limit = if self.unwritten == 1 { WRITTEN_WITHIN } else { Duration::ZERO };
        while self.unwritten > 0 && self.written.recv_timeout(limit).is_ok() {
            self.unwritten = self.unwritten.saturating_sub(1);
        }
    }
}

/// SIGTTOU, which stops a process that writes to its terminal from the background after `stty tostop`.
pub(crate) fn what_stops_writers() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}

fn write_now(text: &str) {
    // Nobody may be reading.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
