//! The terminal while the view uses it. Every way out restores it, and a panic restores it first: otherwise its
//! message would be written over the view and disappear with it.

use crate::child::stop_this_job;
use crate::exit_code::Failure;
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{Event, poll, read};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Whether the terminal must be restored.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// How long the keyboard thread waits at a time before it checks whether its receiver still exists.
const LISTENS_FOR: Duration = Duration::from_millis(250);

pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn take() -> Result<Self, Failure> {
        give_back_when_panicking();
        let taken = take().and_then(|()| {
            let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
            terminal.clear()?;
            Ok(Self { terminal })
        });
        taken.map_err(|error| {
            give_back();
            failure(&error)
        })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> Result<(), Failure> {
        // A task that panicked has restored the terminal, and this program is about to end.
        if !TAKEN.load(SeqCst) {
            return Ok(());
        }
        let drawn = self.terminal.draw(|frame| draw(frame.buffer_mut()));
        drawn.map(|_| ()).map_err(|error| failure(&error))
    }

    /// Removes what other programs wrote to the terminal.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.terminal.clear().map_err(|error| failure(&error))
    }

    /// Gives the terminal to the shell until the shell continues this job.
    pub(super) fn suspend(&mut self) -> Result<(), Failure> {
        give_back();
        // Without a shell that would continue this job, it goes on at once.
        let _ = stop_this_job(|| {});
        self.again()
    }

    /// Takes the terminal again: it may have changed while this program was stopped.
    pub(super) fn again(&mut self) -> Result<(), Failure> {
        give_back();
        take().and_then(|()| self.terminal.clear()).map_err(|error| failure(&error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal at most once. An error would have nowhere to go if the terminal is gone.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn give_back_when_panicking() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        give_back();
        before(info);
    }));
}

fn failure(error: &io::Error) -> Failure {
    Failure::of_system("the terminal cannot be used", error)
}

/// Keys, and changes of the terminal's size.
pub(super) fn keyboard() -> UnboundedReceiver<io::Result<Event>> {
    let (tell, typed) = unbounded_channel();
    // A separate thread, because a read from a terminal cannot be cancelled. It ends with the program.
    std::thread::spawn(move || {
        while !tell.is_closed() {
            let told = match poll(LISTENS_FOR) {
                Ok(false) => continue,
                Ok(true) => read(),
                Err(error) => Err(error),
            };
            let is_over = match &told {
                Ok(_) => false,
                // Interrupted by a signal, for example when the job was stopped and continued.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => true,
            };
            if tell.send(told).is_err() || is_over {
                return;
            }
        }
    });
    typed
}
