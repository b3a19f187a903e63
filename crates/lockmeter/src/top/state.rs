//! What is on the screen, and how what a person does changes it. Nothing here knows the terminal, the clock or the source.

use std::sync::Arc;

use lockmeter_profile::rules::installed;
use lockmeter_profile::{About, Interval, Limits, Losses, TooLarge};
use lockmeter_render::units::{counted, duration};
use lockmeter_render::{Weight, foot_lines, head_sentences, used_ppm};

use super::keys::{Action, Mode};
use super::latency::LatencyView;
use super::layout::{Layout, Pane};
use super::locks::{LocksView, Window};
use super::overlays::Overlay;
use crate::history::{History, Packable, Step};
use crate::warnings::Warning;

/// How far back one can step.
const MOST_NS: u64 = 600 * 1_000_000_000;

/// What the steps may take in memory, about. A busy machine's second takes 100 to 400 KB, packed a fraction of that.
const MOST_BYTES: usize = 64 << 20;

/// How many steps can be shown together.
const SPANS: [usize; 6] = [1, 5, 15, 60, 300, 600];

/// How many times as fast as it was recorded a recording can be played.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 60];

/// Where steps come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Feed {
    /// They are measured.
    Live,
    /// Nothing more comes; why.
    Ended(String),
    /// They are read, this fast.
    Replay { speed: u32 },
    /// The recording has been read to its end.
    ReplayedAll { speed: u32 },
}

pub enum View {
    Locks(Box<LocksView>),
    Latency(Box<LatencyView>),
}

/// A sentence for the person who watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub is_warning: bool,
}

/// What is to be done outside of here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Quit,
    /// Read the next steps of the recording.
    Read(u64),
    /// Write the steps that are kept into this file.
    Write(String),
}

pub struct State {
    pub about: About,
    pub history: History,
    /// The newest step that is shown; `None` follows the newest there is.
    pub at: Option<u64>,
    /// How many steps are shown together.
    pub span: usize,
    pub feed: Feed,
    pub view: View,
    pub focus: Pane,
    /// The detail pane that is seen where there is no room for all.
    pub detail: Pane,
    pub expanded: bool,
    /// By [`Pane::index`].
    pub scroll: [usize; Pane::ALL.len()],
    pub overlay: Option<Overlay>,
    pub message: Option<Message>,
    /// What the source had to say.
    pub notices: Vec<String>,
    pub file_losses: Losses,
    pub limits: Limits,
    /// Where things were drawn last, and which row each line of the locks' pane showed.
    pub layout: Layout,
    pub drawn_rows: Vec<Option<usize>>,
}

impl State {
    pub fn new(about: About, view: View, feed: Feed) -> Self {
        Self {
            about,
            history: History::within(MOST_NS, MOST_BYTES),
            at: None,
            span: 1,
            feed,
            view,
            focus: Pane::Locks,
            detail: Pane::Callers,
            expanded: false,
            scroll: [0; Pane::ALL.len()],
            overlay: None,
            message: None,
            notices: Vec::new(),
            file_losses: Losses::default(),
            limits: Limits::NONE,
            layout: Layout::default(),
            drawn_rows: Vec::new(),
        }
    }

    pub const fn mode(&self) -> Mode {
        match &self.overlay {
            None => Mode::Watching,
            Some(Overlay::Prompt(_)) => Mode::Writing,
            Some(Overlay::Menu(_)) => Mode::Choosing,
            Some(Overlay::Help { .. } | Overlay::FinePrint { .. }) => Mode::Reading,
        }
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(Message { text: text.into(), is_warning: false });
    }

    pub fn warn(&mut self, text: impl Into<String>) {
        self.message = Some(Message { text: text.into(), is_warning: true });
    }

    /// Takes in what was measured, or read, since the last time.
    pub fn push(&mut self, intervals: Vec<Interval>) {
        self.history.push(intervals.into_iter().map(Packable::ready).collect());
        let Some((oldest, _)) = self.history.bounds() else { return };
        match self.at {
            None => self.forget_reports(),
            Some(at) if at < oldest => {
                self.at = Some(oldest);
                self.forget_reports();
                self.warn("what was on the screen is no longer kept: this is the oldest step that is");
            }
            // A window that reaches beyond the oldest step has become smaller.
            Some(_) => {}
        }
    }

    /// What is known of the file that steps are read from.
    pub fn set_file(&mut self, losses: &Losses, limits: Limits) {
        self.limits = limits;
        if self.file_losses != *losses {
            self.file_losses = losses.clone();
            self.forget_reports();
        }
    }

    fn forget_reports(&mut self) {
        match &mut self.view {
            View::Locks(view) => view.forget_reports(),
            View::Latency(view) => view.forget_reports(),
        }
    }

    /// The number of the newest step on the screen.
    pub fn shown(&self) -> Option<u64> {
        self.at.or_else(|| self.history.bounds().map(|(_, newest)| newest))
    }

    /// The steps on the screen.
    pub fn shown_steps(&self) -> Vec<Arc<Step>> {
        self.steps_before(self.span)
    }

    /// Up to `count` steps, of which the newest on the screen is the last.
    pub fn steps_before(&self, count: usize) -> Vec<Arc<Step>> {
        self.shown().map(|last| self.history.up_to(last, count).cloned().collect()).unwrap_or_default()
    }

    /// Makes the reports that these panes show.
    pub fn prepare(&mut self, panes: &[Pane]) -> Result<(), TooLarge> {
        let steps = self.shown_steps();
        let window = Window { about: &self.about, steps, losses: &self.file_losses, limits: self.limits };
        match &mut self.view {
            _ if window.steps.is_empty() => Ok(()),
            View::Locks(view) => view.prepare(&window, panes),
            View::Latency(view) => view.prepare(&window),
        }
    }

    /// Reckons one step of the sparklines. `false` where none is left.
    pub fn prepare_sparkline(&mut self, steps: usize) -> Result<bool, TooLarge> {
        let shown = self.steps_before(steps);
        let View::Locks(view) = &mut self.view else { return Ok(false) };
        let Some(step) = view.missing_rates(&shown) else { return Ok(false) };
        let window = Window { about: &self.about, steps: vec![step], losses: &self.file_losses, limits: self.limits };
        view.add_rates(&window).map(|()| true)
    }

    pub fn locks(&self) -> Option<&LocksView> {
        match &self.view {
            View::Locks(view) => Some(view),
            View::Latency(_) => None,
        }
    }

    pub(super) fn locks_mut(&mut self) -> Option<&mut LocksView> {
        match &mut self.view {
            View::Locks(view) => Some(view),
            View::Latency(_) => None,
        }
    }

    /// What metering used of one CPU over what is on the screen, in millionths.
    pub fn used_ppm(&self) -> Option<u64> {
        let (overhead, duration_ns) = match &self.view {
            View::Locks(view) => view.report().map(|report| (report.overhead, report.duration_ns)),
            View::Latency(view) => view.report().map(|report| (report.overhead, report.duration_ns)),
        }?;
        used_ppm(&overhead, duration_ns)
    }

    /// Does it, and says what is left to do outside.
    pub fn apply(&mut self, action: Action) -> Option<Effect> {
        // A sentence stays until the next key.
        self.message = None;
        match self.overlay.take() {
            None => self.watch(action),
            Some(overlay) => self.in_overlay(overlay, action),
        }
    }

    fn watch(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Freeze => self.freeze(),
            Action::Back(steps) => self.step_back(steps),
            Action::Forward(steps) => return self.step_forward(steps),
            Action::Oldest => self.step_back(u64::MAX),
            Action::Newest => self.go_to(None),
            Action::Widen => self.set_span(SPANS.iter().copied().find(|span| *span > self.span)),
            Action::Narrow => self.set_span(SPANS.iter().copied().rfind(|span| *span < self.span)),
            Action::Faster => self.set_speed(|speed| SPEEDS.into_iter().find(|faster| *faster > speed)),
            Action::Slower => self.set_speed(|speed| SPEEDS.into_iter().rfind(|slower| *slower < speed)),
            Action::Help => self.overlay = Some(Overlay::Help { scroll: 0 }),
            Action::FinePrint => self.overlay = Some(Overlay::FinePrint { scroll: 0 }),
            Action::AskFile => self.ask_file(),
            Action::Move(rows) => self.move_in_focus(rows.into()),
            Action::MovePage(pages) => {
                let height = self.area_of(self.focus).height.saturating_sub(2).max(1);
                self.move_in_focus(i64::from(pages) * i64::from(height));
            }
            Action::Wheel(column, row, rows) => {
                let pane = self.layout.pane_at(column, row).unwrap_or(self.focus);
                self.move_in(pane, rows.into());
            }
            Action::Click(column, row) => self.click(column, row),
            Action::NextPane => self.change_pane(1),
            Action::PreviousPane => self.change_pane(Pane::ALL.len() - 1),
            Action::Expand => self.expanded = !self.expanded,
            Action::Deselect => {
                if let Some(view) = self.locks_mut() {
                    view.deselect();
                }
                self.focus = Pane::Locks;
                self.scroll = [0; Pane::ALL.len()];
            }
            Action::NextSection => self.next_section(),
            Action::AskSort => self.ask_sort(),
            Action::AskGroup => self.ask_group(),
            Action::AskFilter => self.ask_filter(),
            Action::Type(_) | Action::Erase | Action::Toggle | Action::Accept | Action::Dismiss => {}
        }
        None
    }

    fn freeze(&mut self) {
        self.at = match self.at {
            None => self.shown(),
            Some(_) => None,
        };
        self.forget_reports();
    }

    fn go_to(&mut self, at: Option<u64>) {
        self.at = at;
        self.forget_reports();
    }

    fn step_back(&mut self, steps: u64) {
        let (Some((oldest, _)), Some(shown)) = (self.history.bounds(), self.shown()) else { return };
        if shown == oldest {
            let dropped = self.history.dropped();
            match dropped {
                0 => self.say("this is the first step"),
                _ => self.warn(format!(
                    "this is the oldest step that is kept: {} before it are not",
                    counted(dropped, "step", "steps")
                )),
            }
        }
        self.go_to(Some(shown.saturating_sub(steps).max(oldest)));
    }

    fn step_forward(&mut self, steps: u64) -> Option<Effect> {
        let (at, (_, newest)) = (self.at?, self.history.bounds()?);
        let to = at.saturating_add(steps);
        match &self.feed {
            Feed::Replay { .. } if to > newest => {
                self.go_to(Some(newest));
                return Some(Effect::Read(to - newest));
            }
            Feed::Live if at == newest => self.go_to(None),
            Feed::Ended(_) | Feed::ReplayedAll { .. } if at == newest => self.say("this is the last step"),
            _ => self.go_to(Some(to.min(newest))),
        }
        None
    }

    fn set_span(&mut self, span: Option<usize>) {
        if let Some(span) = span {
            self.span = span;
            self.forget_reports();
        }
    }

    fn set_speed(&mut self, change: impl Fn(u32) -> Option<u32>) {
        match &mut self.feed {
            Feed::Replay { speed } | Feed::ReplayedAll { speed } => *speed = change(*speed).unwrap_or(*speed),
            Feed::Live | Feed::Ended(_) => self.say("only a recording plays faster or slower: `lockmeter top FILE`"),
        }
    }

    fn area_of(&self, pane: Pane) -> ratatui_core::layout::Rect {
        let detail = self.layout.details.iter().find(|(shown, _)| *shown == pane);
        detail.map_or(self.layout.locks, |(_, area)| *area)
    }

    fn move_in_focus(&mut self, rows: i64) {
        self.move_in(self.focus, rows);
    }

    fn move_in(&mut self, pane: Pane, rows: i64) {
        if pane == Pane::Locks && self.locks().is_some() {
            if let Some(view) = self.locks_mut() {
                view.move_by(rows);
            }
            self.scroll_details_to_top();
            return;
        }
        // The pane knows how far it can be scrolled: it says so when it is drawn.
        let scroll = &mut self.scroll[pane.index()];
        *scroll = scroll.saturating_add_signed(isize::try_from(rows).unwrap_or(0));
    }

    fn scroll_details_to_top(&mut self) {
        Pane::DETAILS.iter().for_each(|pane| self.scroll[pane.index()] = 0);
    }

    fn change_pane(&mut self, by: usize) {
        if self.locks().is_none() {
            return;
        }
        self.set_focus(Pane::ALL[(self.focus.index() + by) % Pane::ALL.len()]);
    }

    fn set_focus(&mut self, pane: Pane) {
        self.focus = pane;
        if pane != Pane::Locks {
            self.detail = pane;
        }
    }

    fn click(&mut self, column: u16, row: u16) {
        let Some(pane) = self.layout.pane_at(column, row) else { return };
        self.set_focus(pane);
        if pane == Pane::Locks {
            let line = usize::from(row - self.layout.locks.y);
            let at = self.drawn_rows.get(line).copied().flatten();
            if let (Some(at), Some(view)) = (at, self.locks_mut()) {
                view.select(at);
                self.scroll_details_to_top();
            }
        }
    }

    fn next_section(&mut self) {
        let Some(view) = self.locks_mut() else { return };
        match view.next_section() {
            Some(section) => self.say(section.title()),
            None => self.say("there are no other rows: `lockmeter top --hold` also shows holds"),
        }
    }

    /// What stands under a report, and what this screen adds to that.
    pub fn fine_print(&self) -> Vec<(String, Weight)> {
        let mut lines = Vec::new();
        if let Some(report) = self.locks().and_then(LocksView::report) {
            lines.extend(head_sentences(report).into_iter().map(|sentence| (sentence, Weight::Bold)));
            let warnings = Warning::about(report, true);
            let rules = Warning::about_rules(&report.about.rules, installed());
            let warnings = warnings.into_iter().chain(rules).map(|warning| (warning.to_string(), Weight::Warning));
            lines.extend(warnings);
            lines.extend(foot_lines(report));
        }
        lines.extend(self.notices.iter().map(|notice| (notice.clone(), Weight::Plain)));
        let about = &self.about;
        lines.push((
            format!(
                "{}, {}, Linux {}, lockmeter {}",
                about.scope,
                counted(about.cpus.into(), "CPU", "CPUs"),
                about.kernel_release,
                about.lockmeter_version
            ),
            Weight::Plain,
        ));
        let kept = self.history.bounds().map_or(0, |(oldest, newest)| newest - oldest + 1);
        let dropped = match self.history.dropped() {
            0 => "none was dropped".to_owned(),
            dropped => format!("{} before them were dropped", counted(dropped, "step", "steps")),
        };
        lines.push((
            format!(
                "kept: {}, {} in all (at most ten minutes and {} MiB); {dropped}",
                counted(kept, "step", "steps"),
                duration(self.history.duration_ns()),
                MOST_BYTES >> 20
            ),
            if self.history.dropped() > 0 { Weight::Warning } else { Weight::Plain },
        ));
        lines
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::view::Query;
    use lockmeter_profile::{Bucket, Dimension, Happened};
    use lockmeter_profile::{Key, Kind, Lock, Mode as LockMode, Naming, OpenWait, Task, ThreadState, Total, Value};

    use super::super::locks::DEFAULT_SORT;
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A second in which these locks were waited for so long.
    fn second(start_s: u64, waits: &[(&str, u64)]) -> Vec<Interval> {
        let mut interval =
            Interval { start_unix_ns: start_s * SECOND_NS, duration_ns: SECOND_NS, ..Interval::default() };
        for (name, total_ns) in waits {
            let lock = Lock { name: (*name).to_owned(), object: None, naming: Naming::Symbol, detail: String::new() };
            let lock = interval.tables.intern_lock(lock);
            let bucket = Bucket::of(*total_ns);
            let key = Key {
                happened: Happened::Wait,
                lock,
                kind: Kind::Mutex,
                mode: LockMode::Exclusive,
                task: None,
                cgroup: None,
                context: None,
                cpu: None,
                bucket,
            };
            let value = Value { count: 1, total_ns: *total_ns, max_ns: *total_ns, spin_ns: 0 };
            interval.totals.push(Total { key, value });
        }
        vec![interval]
    }

    fn state(feed: Feed) -> State {
        let view = LocksView::new(Query::by([Dimension::Lock]), DEFAULT_SORT);
        State::new(About::default(), View::Locks(Box::new(view)), feed)
    }

    /// Makes sure that ten minutes of a busy machine are kept, in no more memory than they may take.
    #[test]
    fn ten_busy_minutes_fit_into_the_memory_of_the_history() {
        let busy = |start_s: u64| {
            let [mut interval] = <[Interval; 1]>::try_from(second(start_s, &[])).unwrap();
            for at in 0..250 {
                let name = format!("{at}_{}", "a_long_name".repeat(100));
                interval.tables.intern_lock(Lock { name, object: None, naming: Naming::Symbol, detail: String::new() });
            }
            vec![interval]
        };
        assert!(busy(0)[0].memory_bytes() * 600 > 2 * MOST_BYTES, "they fit as they are");
        let mut state = state(Feed::Live);
        (0..600).for_each(|start_s| state.push(busy(start_s)));
        assert_eq!(state.history.bounds(), Some((0, 599)));
        assert!(state.history.memory_bytes() <= MOST_BYTES, "{} bytes", state.history.memory_bytes());
    }

    /// Makes sure that a pane reckons nothing of locks that it does not show: that would be most of what it costs.
    #[test]
    fn panes_reckon_only_what_they_show() {
        let mut state = state(Feed::Live);
        state.push(second(0, &[("worst", 900), ("other", 100)]));
        state.prepare(&[Pane::Callers]).unwrap();
        let View::Locks(view) = &state.view else { unreachable!("it was made of locks") };
        assert_eq!(view.report().map(|report| report.waits.total_ns), Some(1_000));
        let pane = view.detail(Pane::Callers).unwrap();
        assert_eq!((pane.rows.len(), pane.waits.total_ns), (1, 900));
    }

    fn locks_shown(state: &mut State) -> Vec<String> {
        state.prepare(&[]).unwrap();
        state.locks().unwrap().rows().iter().filter_map(|row| row.lock.clone()).collect()
    }

    #[test]
    fn a_frozen_screen_stays_while_steps_come_and_one_can_step_into_the_past() {
        let mut state = state(Feed::Live);
        state.push(second(0, &[("first", 5)]));
        state.push(second(1, &[("second", 5)]));
        assert_eq!(locks_shown(&mut state), ["second"]);
        state.apply(Action::Freeze);
        state.push(second(2, &[("third", 5)]));
        assert_eq!(locks_shown(&mut state), ["second"]);
        state.apply(Action::Back(1));
        assert_eq!(locks_shown(&mut state), ["first"]);
        state.apply(Action::Back(1));
        assert_eq!(locks_shown(&mut state), ["first"]);
        assert_eq!(state.message.as_ref().unwrap().text, "this is the first step");
        state.apply(Action::Forward(2));
        assert_eq!((state.at, locks_shown(&mut state)), (Some(2), vec!["third".to_owned()]));
        state.apply(Action::Forward(1));
        assert_eq!(state.at, None, "beyond the newest it follows again");
    }

    #[test]
    fn a_replay_reads_on_where_one_steps_beyond_what_was_read() {
        let mut state = state(Feed::Replay { speed: 1 });
        state.push(second(0, &[("first", 5)]));
        state.apply(Action::Freeze);
        assert_eq!(state.apply(Action::Forward(3)), Some(Effect::Read(3)));
        state.apply(Action::Faster);
        assert_eq!(state.feed, Feed::Replay { speed: 2 });
    }

    #[test]
    fn what_is_frozen_is_no_longer_shown_once_it_is_dropped_and_that_is_said() {
        let mut state = state(Feed::Live);
        state.push(second(0, &[("first", 5)]));
        state.apply(Action::Freeze);
        (1..=600).for_each(|start_s| state.push(second(start_s, &[("later", 5)])));
        assert_eq!(locks_shown(&mut state), ["later"]);
        assert!(state.message.as_ref().is_some_and(|message| message.is_warning));
        assert!(state.fine_print().iter().any(|(line, _)| line.contains("1 step before them were dropped")));
    }

    #[test]
    fn rows_are_filtered_grouped_and_sorted_and_a_chosen_one_is_followed() {
        let mut state = state(Feed::Live);
        state.push(second(0, &[("big_lock", 90), ("small_lock", 10), ("other", 50)]));
        assert_eq!(locks_shown(&mut state), ["big_lock", "other", "small_lock"]);
        state.apply(Action::Move(2));
        state.push(second(1, &[("small_lock", 99), ("other", 1)]));
        state.prepare(&[Pane::Callers]).unwrap();
        let view = state.locks().unwrap();
        assert_eq!((view.selected_at(), view.details_of()), (Some(0), "small_lock (exclusive)".to_owned()));
        state.apply(Action::Back(1));
        state.prepare(&[]).unwrap();
        assert_eq!(state.locks().unwrap().selected_at(), Some(2));

        state.apply(Action::AskFilter);
        "_lock".chars().for_each(|character| drop(state.apply(Action::Type(character))));
        state.apply(Action::Accept);
        assert_eq!(locks_shown(&mut state), ["big_lock", "small_lock"]);

        state.apply(Action::AskSort);
        let Some(Overlay::Menu(menu)) = &state.overlay else { panic!("no menu") };
        let by_name = menu.items.iter().position(|item| item.starts_with("LOCK ")).unwrap();
        let down = by_name as i32 - menu.at as i32;
        state.apply(Action::Move(down));
        state.apply(Action::Accept);
        assert_eq!(state.locks().unwrap().sort(), "lock");

        state.apply(Action::AskGroup);
        for _ in 0..2 {
            // Leaves `lock`, then takes the one below it.
            state.apply(Action::Toggle);
            state.apply(Action::Move(4));
        }
        state.apply(Action::Accept);
        let view = state.locks().unwrap();
        assert_eq!((view.query.by.as_slice(), view.sort()), (&[Dimension::Kind][..], "lock"));
    }

    /// Makes sure that a pane tells who waits for the selected lock, and nobody else.
    #[test]
    fn who_waits_now_waits_for_the_selected_lock() {
        let mut state = state(Feed::Live);
        let mut step = second(0, &[("first", 90), ("second", 10)]);
        let interval = &mut step[0];
        let task = interval.tables.intern_task(Task { tgid: 7, comm: "waiter".to_owned(), own: false });
        let wait = |lock, tid| OpenWait {
            task,
            tid,
            reason: ThreadState::UserLock,
            lock,
            kind: Kind::Mutex,
            mode: LockMode::Exclusive,
            instance: None,
            site: None,
            age_ns: SECOND_NS,
            is_older: false,
            is_timed: false,
            is_cut: false,
            holder: None,
            ended_holder: None,
            deadlock: None,
        };
        let locks: Vec<_> = interval.totals.iter().map(|total| total.key.lock).collect();
        interval.threads.open_waits = vec![wait(locks[0], 8), wait(locks[1], 9), wait(locks[0], 10)];
        state.push(step);
        let waiting = |state: &mut State| -> Vec<u32> {
            state.prepare(&[Pane::Waiting]).unwrap();
            state.locks().unwrap().waiting_now().unwrap().iter().map(|wait| wait.tid).collect()
        };
        assert_eq!(waiting(&mut state), [8, 10]);
        state.apply(Action::Move(1));
        assert_eq!(waiting(&mut state), [9]);
    }

    #[test]
    fn several_steps_together_are_summed() {
        let mut state = state(Feed::Live);
        (0..5).for_each(|start_s| state.push(second(start_s, &[("lock", 7)])));
        state.apply(Action::Widen);
        state.prepare(&[]).unwrap();
        let view = state.locks().unwrap();
        assert_eq!((view.rows()[0].value.total_ns, view.report().unwrap().duration_ns), (35, 5 * SECOND_NS));
        // A sparkline has each step by itself.
        while state.prepare_sparkline(3).unwrap() {}
        let steps = state.steps_before(3);
        let view = state.locks().unwrap();
        assert_eq!(view.rates_of(view.rows()[0], &steps), [Some(7); 3]);
    }

    #[test]
    fn a_file_is_written_only_when_it_has_a_name() {
        let mut state = state(Feed::Live);
        state.apply(Action::AskFile);
        assert_eq!(state.overlay, None, "there is nothing to write yet");
        state.push(second(3_661, &[]));
        state.apply(Action::AskFile);
        let Some(Overlay::Prompt(prompt)) = &state.overlay else { panic!("no prompt") };
        assert_eq!(prompt.text, "top-010101.lockmeter");
        assert_eq!(state.apply(Action::Accept), Some(Effect::Write("top-010101.lockmeter".to_owned())));
    }
}
