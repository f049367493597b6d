//! A terminal with a screen. tmux tells what a person sees on it.

use crate::scene::leasehold;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tempfile::TempDir;
use testkit::eventually;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A shell in a window of tmux, which ends when this is dropped.
pub(crate) struct Window {
    name: String,
    /// The folder of tmux's socket.
    folder: TempDir,
}

impl Window {
    /// Opens a window of 80 x 24 for programs that ask the server at this address.
    pub(crate) fn open(url: &str) -> Self {
        Self::with(url, &[])
    }

    /// Like `open`, with these variables.
    pub(crate) fn with(url: &str, variables: &[(&str, &str)]) -> Self {
        let name = format!("leasehold-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let window = Self { name, folder: tempfile::tempdir().unwrap() };
        // The window gets the environment of the tmux command that opens it.
        let program = leasehold(url, &[]);
        let mut tmux = window.command(&["new-session", "-d", "-x", "80", "-y", "24"]);
        // Separate arguments, because an intermediate shell would set another prompt.
        tmux.args(["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        for (variable, value) in program.get_envs() {
            match value {
                Some(value) => tmux.env(variable, value),
                None => tmux.env_remove(variable),
            };
        }
        tmux.env_remove("NO_COLOR").env_remove("LC_ALL").env_remove("TMUX");
        tmux.env("LANG", "C.UTF-8").env("PS1", "ready> ").env("LEASEHOLD", program.get_program());
        tmux.envs(variables.iter().copied());
        window.run(tmux);
        window.shows("ready>");
        window
    }

    /// Types a line to the shell.
    pub(crate) fn runs(&self, line: &str) {
        self.types(line);
        self.presses("Enter");
    }

    pub(crate) fn types(&self, text: &str) {
        self.run(self.command(&["send-keys", "-l", text]));
    }

    /// Presses a key by its name: `Enter`, `C-c`, `Down`.
    pub(crate) fn presses(&self, key: &str) {
        self.run(self.command(&["send-keys", key]));
    }

    /// Waits until the text is on the screen, and returns the screen.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits until the text is gone from the screen, and returns the screen.
    #[track_caller]
    pub(crate) fn shows_no_more(&self, text: &str) -> String {
        self.until(&format!("no {text}"), |screen| !screen.contains(text))
    }

    /// Waits until the screen satisfies this condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let screen = |screen: String| if is_so(&screen) { Ok(screen) } else { Err(screen) };
        eventually(&format!("on the screen: {what}"), || screen(self.screen()))
    }

    pub(crate) fn screen(&self) -> String {
        self.run(self.command(&["capture-pane", "-p"]))
    }

    /// The text on the screen, with escape sequences of colours.
    pub(crate) fn screen_with_colours(&self) -> String {
        self.run(self.command(&["capture-pane", "-p", "-e"]))
    }

    /// Whether the alternate screen is active, and whether the cursor is shown.
    pub(crate) fn mode(&self) -> String {
        self.run(self.command(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]))
    }

    pub(crate) fn shell(&self) -> u32 {
        let told = self.run(self.command(&["display-message", "-p", "#{pane_pid}"]));
        told.trim().parse().unwrap()
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.run(self.command(&["resize-window", "-x", &width, "-y", &height]));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.env("TMUX_TMPDIR", self.folder.path());
        tmux.args(["-u", "-f", "/dev/null", "-L", &self.name]).args(words);
        tmux
    }

    #[track_caller]
    fn run(&self, mut tmux: Command) -> String {
        let output = tmux.output();
        let output = output.expect(
            "the view is tested through the program tmux, which cannot be run: scripts/setup tmux installs it",
        );
        let Output { status, stdout, stderr } = output;
        assert!(status.success(), "{tmux:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// The line of the screen that contains this text.
#[track_caller]
pub(crate) fn line_with<'a>(screen: &'a str, text: &str) -> &'a str {
    screen.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {screen}"))
}
