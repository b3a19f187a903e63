//! What lies over the screen: pages to read, menus to choose from, lines to write.

use lockmeter_profile::Dimension;
use lockmeter_render::units::time_of_day;

use super::keys::Action;
use super::layout::Pane;
use super::state::{Effect, State};

/// No more dimensions than `--by` takes.
const MOST_DIMENSIONS: usize = 3;

/// What lies over the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlay {
    Help { scroll: usize },
    FinePrint { scroll: usize },
    Menu(Menu),
    Prompt(Prompt),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MenuOf {
    Sort,
    Group,
}

/// A list to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Menu {
    pub of: MenuOf,
    pub items: Vec<String>,
    pub at: usize,
    /// What is taken, in that order.
    pub taken: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptOf {
    Filter,
    File,
}

/// A line that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub of: PromptOf,
    pub text: String,
}

impl State {
    pub(super) fn ask_sort(&mut self) {
        let Some(view) = self.locks() else { return };
        let columns = view.sort_columns();
        let at = columns.iter().position(|(key, _)| *key == view.sort()).unwrap_or(0);
        let items = columns.iter().map(|(key, heading)| format!("{heading:<10} {key}")).collect();
        self.overlay = Some(Overlay::Menu(Menu { of: MenuOf::Sort, items, at, taken: vec![at] }));
    }

    pub(super) fn ask_group(&mut self) {
        let Some(view) = self.locks() else { return };
        let place = |wanted: &Dimension| Dimension::ALL.iter().position(|dimension| dimension == wanted);
        let taken = view.query.by.iter().filter_map(place).collect();
        let items = Dimension::ALL.iter().map(|dimension| dimension.name().to_owned()).collect();
        self.overlay = Some(Overlay::Menu(Menu { of: MenuOf::Group, items, at: 0, taken }));
    }

    pub(super) fn ask_filter(&mut self) {
        let Some(view) = self.locks() else { return };
        let text = view.query.lock.as_ref().map(ToString::to_string).unwrap_or_default();
        self.overlay = Some(Overlay::Prompt(Prompt { of: PromptOf::Filter, text }));
    }

    pub(super) fn ask_file(&mut self) {
        let Some((oldest, _)) = self.history.bounds() else { return self.say("nothing was seen yet") };
        let start_unix_ns = self.history.get(oldest).map_or(0, |step| step.start_unix_ns());
        let time: String = time_of_day(start_unix_ns).chars().filter(char::is_ascii_digit).take(6).collect();
        let text = format!("top-{time}.lockmeter");
        self.overlay = Some(Overlay::Prompt(Prompt { of: PromptOf::File, text }));
    }

    pub(super) fn in_overlay(&mut self, overlay: Overlay, action: Action) -> Option<Effect> {
        match overlay {
            Overlay::Help { scroll } => {
                self.overlay = scrolled(scroll, action).map(|scroll| Overlay::Help { scroll });
                None
            }
            Overlay::FinePrint { scroll } => {
                self.overlay = scrolled(scroll, action).map(|scroll| Overlay::FinePrint { scroll });
                None
            }
            Overlay::Menu(menu) => {
                self.in_menu(menu, action);
                None
            }
            Overlay::Prompt(prompt) => self.in_prompt(prompt, action),
        }
    }

    fn in_menu(&mut self, mut menu: Menu, action: Action) {
        match action {
            Action::Move(by) | Action::Wheel(_, _, by) => {
                let last = menu.items.len().saturating_sub(1);
                menu.at = menu.at.saturating_add_signed(by as isize).min(last);
            }
            Action::Toggle if menu.of == MenuOf::Group => match menu.taken.iter().position(|at| *at == menu.at) {
                Some(taken) => drop(menu.taken.remove(taken)),
                None if menu.taken.len() < MOST_DIMENSIONS => menu.taken.push(menu.at),
                None => self.say("three at most: leave another one first, with the space bar"),
            },
            Action::Accept | Action::Toggle => return self.accept_menu(&menu),
            Action::Dismiss => return,
            _ => {}
        }
        self.overlay = Some(Overlay::Menu(menu));
    }

    fn accept_menu(&mut self, menu: &Menu) {
        let Some(view) = self.locks_mut() else { return };
        match menu.of {
            MenuOf::Sort => {
                if let Some((key, _)) = view.sort_columns().get(menu.at) {
                    view.sort_by(key);
                }
            }
            MenuOf::Group => {
                // The one under the bar, where none was taken.
                let taken = if menu.taken.is_empty() { std::slice::from_ref(&menu.at) } else { &menu.taken };
                view.group_by(taken.iter().filter_map(|at| Dimension::ALL.get(*at).copied()).collect());
            }
        }
        self.scroll = [0; Pane::ALL.len()];
    }

    fn in_prompt(&mut self, mut prompt: Prompt, action: Action) -> Option<Effect> {
        match action {
            Action::Type(character) => prompt.text.push(character),
            Action::Erase => drop(prompt.text.pop()),
            Action::Dismiss => return None,
            Action::Accept => {
                let text = prompt.text.trim();
                match (prompt.of, self.locks_mut()) {
                    (PromptOf::File, _) if text.is_empty() => {}
                    (PromptOf::File, _) => return Some(Effect::Write(text.to_owned())),
                    (PromptOf::Filter, Some(view)) => view.filter(text),
                    (PromptOf::Filter, None) => {}
                }
                return None;
            }
            _ => {}
        }
        self.overlay = Some(Overlay::Prompt(prompt));
        None
    }
}

/// `None` once the page is read.
fn scrolled(scroll: usize, action: Action) -> Option<usize> {
    const PAGE: isize = 10;
    let by = match action {
        Action::Dismiss => return None,
        Action::Move(by) | Action::Wheel(_, _, by) => by as isize,
        Action::MovePage(pages) => pages as isize * PAGE,
        _ => 0,
    };
    Some(scroll.saturating_add_signed(by))
}
