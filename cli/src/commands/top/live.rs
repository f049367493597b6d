//! The live view: receives rounds from servers, keys and signals, and draws.

use super::model::Model;
use super::rows::rows;
use super::screen::{Scene, Theme};
use super::terminal::{Screen, keyboard};
use super::view::{Meant, View};
use super::watching::{News, Wanted, watch};
use crate::connecting::Connection;
use crate::exit_code::{Code, Failure};
use nix::libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use ratatui_crossterm::crossterm::event::Event;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

/// How often bars and times are redrawn between two rounds.
const TICK: Duration = Duration::from_millis(250);

/// A server is shown as late when a round takes this much longer than the interval.
const LATE: Duration = Duration::from_secs(2);

const SIGNALS: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];

pub(super) async fn run(
    places: &[Connection],
    every: Duration,
    mut view: View,
) -> Result<Code, Failure> {
    let theme = Theme::of(|name| std::env::var(name).ok());
    let mut signals = signals()?;
    let (mut news, want) = watch(places, every);
    let mut model = Model::new(places.iter().map(Connection::name).collect());
    let mut screen = Screen::take()?;
    let mut typed = keyboard();
    let late_after = every.saturating_add(LATE);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let now = view.paused.unwrap_or_else(Instant::now);
        screen.draw(|buffer| {
            Scene { model: &model, view: &view, theme, now, late_after }.draw(buffer);
        })?;
        panic_if_told();
        let what = tokio::select! {
            heard = news.recv() => What::Heard(heard),
            key = typed.recv() => What::Typed(key),
            number = signals.recv() => What::Signal(number.unwrap_or_default()),
            _ = ticks.tick() => What::Time,
        };
        let meant = match what {
            What::Time => Meant::Nothing,
            What::Signal(SIGTSTP) => Meant::Suspend,
            What::Signal(SIGCONT) => {
                screen.again()?;
                Meant::Nothing
            }
            What::Signal(number) => return Ok(Code::that_tells_of(number)),
            What::Heard(Some(News::Broken) | None) => {
                let text = "it can ask no more: this is a defect of the program";
                return Err(Failure::new(Code::Internal, text));
            }
            What::Heard(Some(heard)) => {
                // A paused view does not change. Later rounds have everything again, and events that they miss
                // are counted.
                if view.paused.is_none() {
                    model.hear(heard, Instant::now());
                }
                Meant::Nothing
            }
            What::Typed(Some(Ok(Event::Key(key)))) => {
                let filter = view.filter.clone();
                let rows = rows(&model, view.sort, view.is_reversed, &filter, now);
                view.press(key, &rows, Instant::now())
            }
            What::Typed(Some(Ok(_))) => Meant::Nothing,
            What::Typed(Some(Err(error))) => {
                return Err(Failure::of_system("the keyboard cannot be read", &error));
            }
            What::Typed(None) => return Ok(Code::Done),
        };
        match meant {
            Meant::Nothing => {}
            Meant::Quit => return Ok(Code::Done),
            Meant::Interrupt => return Ok(Code::that_tells_of(SIGINT)),
            Meant::Suspend => screen.suspend()?,
            Meant::Redraw => screen.clear()?,
        }
        want.send_if_modified(|wanted| {
            let new = Wanted { opened: view.opened().cloned() };
            let is_new = *wanted != new;
            *wanted = new;
            is_new
        });
    }
}

enum What {
    Heard(Option<News>),
    Typed(Option<std::io::Result<Event>>),
    Signal(i32),
    Time,
}

fn signals() -> Result<UnboundedReceiver<i32>, Failure> {
    let (tell, heard) = unbounded_channel();
    for number in SIGNALS {
        let stream = signal(SignalKind::from_raw(number));
        let mut stream =
            stream.map_err(|error| Failure::of_system("signals cannot be heard", &error))?;
        let tell = tell.clone();
        tokio::spawn(
            async move { while stream.recv().await.is_some() && tell.send(number).is_ok() {} },
        );
    }
    Ok(heard)
}

/// A panic on demand, in debug builds only. With it the tests show that the terminal is restored.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "what it is for")]
fn panic_if_told() {
    if std::env::var("LEASEHOLD_PANIC_AT").is_ok_and(|place| place == "top") {
        panic!("told to");
    }
}

#[cfg(not(debug_assertions))]
fn panic_if_told() {}
