use super::*;
use crate::commands::top::model::State;
use crate::commands::top::model::tests::{SECOND, event, lock, model, round, tell};
use crate::commands::top::view::Meant;
use crate::commands::top::watching::News;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn drawn(model: &Model, view: &View, now: Instant, width: u16, height: u16) -> Vec<String> {
    let theme = Theme::of(|_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    Scene { model, view, theme, now, late_after: Duration::from_secs(3) }.draw(&mut buffer);
    let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect();
    cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
}

fn crowded(now: Instant) -> Model {
    let mut model = model(&["redis://a:1", "redis://b:2"], now);
    let mut told = round(now);
    told.locks =
        (0..40).map(|number| lock(&format!("lock-{number:02}"), Some(30), number)).collect();
    told.events = (0..9).rev().map(|id| event(id, "deleted")).collect();
    tell(&mut model, "redis://a:1", told);
    model
}

#[test]
fn every_size_can_be_drawn() {
    let now = Instant::now();
    let model = crowded(now);
    let mut opened = View::default();
    let rows = rows(&model, opened.sort, false, "", now);
    assert_eq!(opened.press(key(KeyCode::Enter), &rows, now), Meant::Nothing);
    assert!(opened.opened().is_some());
    let mut help = View::default();
    help.has_help = true;
    for view in [View::default(), opened, help] {
        for width in [1, 5, 29, 30, 44, 80, 300] {
            for height in [1, 5, 6, 10, 24, 90] {
                assert_eq!(drawn(&model, &view, now, width, height).len(), usize::from(height));
            }
        }
    }
}

#[test]
fn what_is_most_important_fits_80_x_24() {
    let now = Instant::now();
    let mut model = crowded(now);
    let silent = News::Silent { address: "redis://b:2".to_owned(), why: "refused".to_owned() };
    model.hear(silent, now);
    let screen = drawn(&model, &View::default(), now + 2 * SECOND, 80, 24);
    let all = screen.join("\n");
    assert_eq!(screen[0], " leasehold top   servers 1 of 2   waited for 39   stuck 0   losses 0");
    assert_eq!(screen[3], "2 b:2 DOWN for 2s: refused");
    assert!(screen[4].starts_with("LOCKS by queue, 1-"), "{all}");
    assert!(screen[6].contains("lock-39") && screen[6].contains("########"), "{all}");
    assert!(screen[6].contains(" 28s ") && screen[6].contains(" 39 "), "{all}");
    assert!(screen[22].starts_with("!") && screen[22].contains("deleted x of alice"), "{all}");
    assert!(screen[23].ends_with("q quit"), "{all}");
    assert!(screen.iter().all(|line| line.chars().count() <= 80), "{all}");
}

#[test]
fn a_server_whose_figures_are_old_is_late() {
    let now = Instant::now();
    let model = crowded(now);
    let at = |later: u32| drawn(&model, &View::default(), now + later * SECOND, 80, 24)[2].clone();
    assert!(!at(3).contains("LATE"), "{}", at(3));
    assert_eq!(at(5), "1 a:1 LATE: it has not answered for 5s");
    assert_eq!(model.servers[1].state, State::Asked);
}

#[test]
fn the_selected_lock_stays_in_sight_and_selected_where_it_goes() {
    let now = Instant::now();
    let mut model = crowded(now);
    let mut view = View::default();
    for _ in 0..30 {
        let rows = rows(&model, view.sort, false, "", now);
        assert_eq!(view.press(key(KeyCode::Down), &rows, now), Meant::Nothing);
    }
    let marked = |model: &Model, view: &View| {
        let screen = drawn(model, view, now, 80, 24);
        screen.iter().find(|line| line.starts_with('>')).cloned().unwrap_or_default()
    };
    assert!(marked(&model, &view).contains("lock-09"), "{}", marked(&model, &view));
    // The selected lock moves to the top: it now has the most waiters.
    let mut told = round(now);
    told.locks =
        (0..40).map(|number| lock(&format!("lock-{number:02}"), Some(30), number)).collect();
    told.locks[9].waiters = Some(1_000);
    tell(&mut model, "redis://a:1", told);
    assert_eq!(view.selected(&rows(&model, view.sort, false, "", now)), 0);
    // The lock is gone, so the lock in its place is selected.
    tell(&mut model, "redis://a:1", round(now));
    assert_eq!(view.selected(&rows(&model, view.sort, false, "", now)), 0);
}

#[test]
fn keys_mean_what_the_help_says() {
    let now = Instant::now();
    let model = crowded(now);
    let rows = rows(&model, Default::default(), false, "", now);
    let mut view = View::default();
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(view.press(control('c'), &rows, now), Meant::Interrupt);
    assert_eq!(view.press(control('z'), &rows, now), Meant::Suspend);
    assert_eq!(view.press(control('l'), &rows, now), Meant::Redraw);
    assert_eq!(view.press(key(KeyCode::Char('p')), &rows, now), Meant::Nothing);
    assert_eq!(view.paused, Some(now));
    assert!(drawn(&model, &view, now, 80, 24)[0].ends_with("PAUSED"));
    assert_eq!(view.press(key(KeyCode::Char('p')), &rows, now), Meant::Nothing);
    assert_eq!(view.paused, None);
    // While the user types a filter, q and p are letters too; Ctrl-C is not.
    for letter in ['/', 'q', 'p'] {
        assert_eq!(view.press(key(KeyCode::Char(letter)), &rows, now), Meant::Nothing);
    }
    assert_eq!((view.filter.as_str(), view.paused), ("qp", None));
    assert_eq!(view.press(control('c'), &rows, now), Meant::Interrupt);
    assert_eq!(view.press(key(KeyCode::Esc), &rows, now), Meant::Nothing);
    assert_eq!(view.filter, "");
    assert_eq!(view.press(key(KeyCode::Char('?')), &rows, now), Meant::Nothing);
    assert!(drawn(&model, &view, now, 80, 24).iter().any(|line| line.contains("WAITED")));
    assert_eq!(view.press(key(KeyCode::Char('x')), &rows, now), Meant::Nothing);
    assert_eq!(view.press(key(KeyCode::Char('q')), &rows, now), Meant::Quit);
}

#[test]
fn the_help_fits_80_x_24() {
    let now = Instant::now();
    let mut view = View::default();
    view.has_help = true;
    let screen = drawn(&crowded(now), &view, now, 80, 24);
    assert!(screen.iter().all(|line| !line.ends_with('~')), "{screen:#?}");
    assert!(screen[21].is_empty() || screen[21].contains("at once"), "{screen:#?}");
    assert!(screen.iter().any(|line| line.contains("has all of them at once")));
}
