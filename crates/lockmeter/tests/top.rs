//! `lockmeter top` on terminals of their own, with real loads: what its screen shows, what its keys do, how it ends, and what it writes
//! where there is no terminal.

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Folder, Load, json, lockmeter, machine, refused, run, text, until, user_workload, wait};
use terminal::Terminal;

const SIGINT: i32 = libc::SIGINT;
const SIGTERM: i32 = libc::SIGTERM;

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (240, 70);

/// What `top` begins with once it owns the screen.
const ALTERNATE_SCREEN: &str = "\x1b[?1049h";

const ESCAPE: &str = "\x1b";
const LEFT: &str = "\x1b[D";
const RIGHT: &str = "\x1b[C";

/// The lock that `dir-churn` contends for.
const CHURNED: &str = "i_rwsem";

/// Only that lock has a row, whatever else this machine does.
const ONLY_CHURNED: [&str; 2] = ["--lock", "*.i_rwsem"];

/// `top` in a folder of its own.
struct Top {
    folder: Folder,
    terminal: Terminal,
}

impl Top {
    fn start(arguments: &[&str], size: (u16, u16)) -> Self {
        Self::start_in(Folder::new(), arguments, size, &[])
    }

    fn start_in(folder: Folder, arguments: &[&str], size: (u16, u16), variables: &[(&str, &str)]) -> Self {
        let mut command = lockmeter(["top"]);
        command.args(arguments).current_dir(folder.path());
        let terminal = Terminal::start_with(&mut command, size, variables);
        until("top has the screen", || terminal.read(|shown| text(&shown.bytes).contains(ALTERNATE_SCREEN)));
        Self { folder, terminal }
    }

    /// Ends it by its key.
    fn quit(mut self) {
        self.terminal.press("q");
        let (status, _) = self.terminal.ended();
        assert!(status.success(), "{status}");
    }
}

/// The words of the line that shows a lock in the list: waited time, its unit, its share, how often, …
fn row_of(screen: &str, lock: &str) -> Option<Vec<String>> {
    let list = screen.lines().skip_while(|line| !line.contains("WAITED")).skip(1);
    let line = list.take_while(|line| !line.starts_with("──")).find(|line| line.contains(lock))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Waited time and count of a row, as tables write them.
fn numbers(row: &[String]) -> String {
    format!("{} {} {}", row[0], row[1], row[3])
}

/// The same of a table of `report`, for a part of a recording.
fn reported(recording: &str, (from_ns, to_ns): (u64, u64), lock: &str) -> Option<String> {
    let window = format!("{from_ns}ns..{to_ns}ns");
    let report = run(lockmeter(["report", recording, "--window", &window, "-n", "0"]));
    let report = text(&report.stdout);
    row_of(&report, lock).map(|row| numbers(&row))
}

/// How many steps a sparkline shows; `None` of what is none.
fn steps_in(word: &str) -> Option<usize> {
    word.chars().all(|letter| ('▁'..='█').contains(&letter)).then(|| word.chars().count())
}

/// What the title says of when the step on the screen was: `LIVE  10:11:12 to 10:11:13 UTC`.
fn time_of(screen: &str) -> String {
    let title = screen.lines().next().unwrap_or_default();
    title.split_whitespace().find(|word| word.split(':').count() == 3).unwrap_or_default().to_owned()
}

/// How many steps before the newest the screen is: `FROZEN −4`.
fn steps_back(screen: &str) -> Option<usize> {
    let (_, behind) = screen.lines().next()?.split_once("FROZEN −")?;
    behind.split(' ').next()?.parse().ok()
}

fn clock(unix_ns: u64) -> String {
    let second = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// A line for each interval of a recording.
fn json_lines(recording: &str) -> Vec<Value> {
    let output = run(lockmeter(["top", recording, "--format", "json"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn top_ends_by_q_alone_and_leaves_the_terminal_as_it_was() {
    let Some(_machine) = machine("top_ends_by_q_alone_and_leaves_the_terminal_as_it_was") else { return };
    let mut top = Top::start(&[], SMALL);
    assert!(!top.terminal.is_users() && !top.terminal.has_modes_of_before());
    // Another key is answered, and ends nothing.
    top.terminal.press("?");
    top.terminal.until_shown("quit");
    top.terminal.press("q");
    top.terminal.until("the help is gone", |screen| !screen.contains("══ keys"));
    top.quit();
    // What keeps CPUs is a screen, too: it can be frozen and stepped through.
    let mut top = Top::start(&["--latency", "--interval", "200ms"], SMALL);
    top.terminal.until_shown("softirq");
    top.terminal.press_and_wait(" ", "FROZEN −2");
    top.terminal.press_and_wait("\x1b[F", "LIVE");
    top.quit();
}

#[test]
fn top_leaves_the_terminal_as_it_was_however_it_ends() {
    let Some(_machine) = machine("top_leaves_the_terminal_as_it_was_however_it_ends") else { return };
    assert!(Top::start(&["-d", "500ms"], SMALL).terminal.ended().0.success());
    let mut top = Top::start(&[], SMALL);
    // The key, which the terminal makes a signal of.
    top.terminal.press("\x03");
    assert!(top.terminal.ended().0.success());
    for number in [SIGINT, SIGTERM] {
        let top = Top::start(&[], SMALL);
        top.terminal.signal(number);
        assert!(top.terminal.ended().0.success());
    }
}

/// Makes sure that Ctrl-Z gives the terminal to the shell, and that going on takes it again.
#[test]
fn top_can_be_suspended_and_comes_back() {
    let Some(_machine) = machine("top_can_be_suspended_and_comes_back") else { return };
    let mut top = Top::start(&[], SMALL);
    top.terminal.until_shown("LIVE");
    top.terminal.press("\x1a");
    until("top has stopped", || top.terminal.is_stopped());
    until("the terminal is the shell's", || top.terminal.is_users());
    top.terminal.signal(libc::SIGCONT);
    until("the terminal is top's again", || !top.terminal.is_users());
    top.terminal.until_shown("q quit");
    // The one that stops it without asking may do anything with the terminal meanwhile.
    top.terminal.signal(libc::SIGSTOP);
    until("top has stopped", || top.terminal.is_stopped());
    top.terminal.set_modes_of_before();
    top.terminal.signal(libc::SIGCONT);
    until("the terminal is top's again", || !top.terminal.has_modes_of_before());
    top.terminal.press_and_wait("?", "══ keys");
    // With `q` right behind it, it would be another key.
    top.terminal.press(ESCAPE);
    top.terminal.until("the help is gone", |screen| !screen.contains("══ keys"));
    top.quit();
}

/// Makes sure that the numbers on the screen are those of `report` for the same time, that a frozen screen stays, that one can step
/// back, that what `w` writes is a recording of what was seen, and that `top` plays it with the same numbers.
#[test]
fn what_was_seen_is_frozen_stepped_through_written_reported_and_played_with_the_same_numbers() {
    let name = "what_was_seen_is_frozen_stepped_through_written_reported_and_played_with_the_same_numbers";
    let Some(_machine) = machine(name) else { return };
    let load = Load::start("dir-churn", &[]);
    let mut top = Top::start(&ONLY_CHURNED, LARGE);
    let steps_of = |screen: &str| row_of(screen, CHURNED)?.iter().rev().find_map(|word| steps_in(word));
    top.terminal.until("three steps were seen", |screen| steps_of(screen).is_some_and(|steps| steps >= 3));
    top.terminal.press_and_wait(" ", "FROZEN");
    let screen = top.terminal.press_and_wait(LEFT, "FROZEN −");
    // Details of the heaviest lock stand beside it.
    for part in ["do_renameat2", "releaser", "how long", "distribution", "waiting now", "threads █"] {
        assert!(screen.contains(part), "no {part}:\n{screen}");
    }
    let (row, time) = (row_of(&screen, CHURNED).unwrap(), time_of(&screen));
    let later = top.terminal.until("more steps have passed", |screen| steps_back(screen) >= Some(4));
    assert_eq!((numbers(&row_of(&later, CHURNED).unwrap()), time_of(&later)), (numbers(&row), time.clone()));
    drop(load);

    let fine_print = top.terminal.press_and_wait("i", "kept: ");
    let kept = fine_print.split("kept: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse::<usize>();
    top.terminal.press("q");
    top.terminal.until("the fine print is gone", |screen| !screen.contains("kept: "));
    top.terminal.press_and_wait("w", "write what was seen into: top-");
    top.terminal.press(&"\x7f".repeat(40));
    top.terminal.press_and_wait("seen.lockmeter\r", "wrote seen.lockmeter");
    let recording = top.folder.file("seen.lockmeter");
    let mode = fs::metadata(&recording).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what `record` gives its files");
    let intervals = json_lines(&recording);
    assert!(intervals.len() >= kept.unwrap(), "{fine_print}");
    let bounds_ns = |interval: &Value| {
        let start_ns = interval["start_unix_ns"].as_u64().unwrap();
        (start_ns, start_ns + interval["duration_ns"].as_u64().unwrap())
    };
    assert!(intervals.windows(2).all(|two| bounds_ns(&two[0]).1 == bounds_ns(&two[1]).0), "some are missing");
    let begin_ns = bounds_ns(&intervals[0]).0;
    let of_that_time = |interval: &&Value| clock(bounds_ns(interval).0) == time;
    let in_window = |interval: &Value| {
        let (from_ns, to_ns) = bounds_ns(interval);
        reported(&recording, (from_ns - begin_ns, to_ns - begin_ns), CHURNED)
    };
    let reports: Vec<Option<String>> = intervals.iter().filter(of_that_time).map(in_window).collect();
    assert!(reports.contains(&Some(numbers(&row))), "{reports:?}, but the screen had\n{screen}");
    let Top { folder, mut terminal } = top;
    terminal.press("q");
    assert!(terminal.ended().0.success());

    let mut played = Top::start_in(folder, &["seen.lockmeter"], LARGE, &[]);
    played.terminal.press(">>>>>");
    played.terminal.until_shown("END OF RECORDING");
    for _ in 0..intervals.len() {
        let screen = played.terminal.text();
        let is_same = row_of(&screen, CHURNED).is_some_and(|played| numbers(&played) == numbers(&row));
        if time_of(&screen) == time && is_same {
            return played.quit();
        }
        let before = time_of(&screen);
        played.terminal.press(LEFT);
        played.terminal.until("another step is shown", |screen| time_of(screen) != before);
    }
    panic!("no step of the recording has {row:?} at {time}");
}

/// Makes sure that a screen is usable from the smallest size to the largest, and while it changes.
#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let Some(_machine) = machine("the_screen_follows_the_size_of_the_terminal") else { return };
    let _load = Load::start("dir-churn", &[]);
    let mut top = Top::start(&ONLY_CHURNED, SMALL);
    let small = top.terminal.until("the lock is on the small screen", |screen| row_of(screen, "rwsem").is_some());
    for part in ["q quit", "callers", "LIVE", "of a CPU", "Waiting for locks"] {
        assert!(small.contains(part), "no {part}:\n{small}");
    }
    // One detail at a time, the next by a key.
    assert!(!small.contains("releaser"), "{small}");
    top.terminal.press_and_wait("\t\t", "releaser");
    top.terminal.resize(LARGE.0, LARGE.1);
    let panes = ["── callers", "── blockers", "── roots", "── how long", "── waiting now"];
    // What is read of it may end in the middle of the screen.
    top.terminal.until("the large screen has all details, and the keys on its last line", |screen| {
        let has_keys = screen.lines().last().is_some_and(|line| line.starts_with("q quit"));
        has_keys && panes.iter().all(|pane| screen.contains(pane))
    });
    top.terminal.resize(30, 8);
    top.terminal.until("the keys are on the last line", |screen| {
        screen.lines().nth(7).is_some_and(|line| line.starts_with("q quit"))
    });
    top.terminal.resize(SMALL.0, SMALL.1);
    top.terminal.until("the lock is on the small screen again", |screen| row_of(screen, "rwsem").is_some());
    top.quit();
}

/// A program whose threads contend for its hot lock.
struct Program(Child);

impl Program {
    /// It begins to work when it is told.
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut program = Command::new(user_workload(folder.path(), "two-locks", &[]));
        program.args(["--wait", "--sleep", "--hold-ns", "3000000"]).args(arguments);
        Self(program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn work(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes sure that a program's own lock can be found, chosen, filtered, grouped and looked into, that the end of the program is said, and
/// that what was seen of it stays.
#[test]
fn a_programs_lock_is_looked_into_until_the_program_ends_and_after_that() {
    let Some(_machine) = machine("a_programs_lock_is_looked_into_until_the_program_ends_and_after_that") else {
        return;
    };
    let folder = Folder::new();
    let mut program = Program::start(&folder, &["--rounds", "1000000"]);
    let mut top = Top::start_in(folder, &["-p", &program.pid(), "--interval", "500ms"], (160, 50), &[]);
    top.terminal.until_shown("LIVE");
    program.work();
    let screen = top.terminal.until("the lock and its callers are shown", |screen| {
        row_of(screen, "two-locks:hot_lock").is_some() && screen.contains("often") && screen.contains("seldom")
    });
    assert!(screen.contains("mutex"), "{screen}");
    top.terminal.press_and_wait("/no such lock\r", "only no such lock");
    top.terminal.until("no row is left", |screen| row_of(screen, "hot_lock").is_none());
    top.terminal.press("/");
    top.terminal.press(&"\x7f".repeat(20));
    top.terminal.press_and_wait("hot_*\x7f\r", "only hot_:");
    top.terminal.until("the lock is back", |screen| row_of(screen, "hot_lock").is_some());

    // Beside `lock` the third of the list, `caller`.
    top.terminal.press_and_wait("g", "group by (up to three)");
    top.terminal.press_and_wait("jj \r", "waits by lock, caller");
    top.terminal.until("both callers have rows", |screen| {
        let has_row = |caller: &str| {
            let mut below = screen.lines().filter(|line| line.trim_start().starts_with("caller  "));
            below.any(|line| line.contains(caller))
        };
        has_row("often") && has_row("seldom")
    });
    top.terminal.press_and_wait("s", "══ sort by");
    top.terminal.press_and_wait("j\r", "sorted by");
    top.terminal.until("the rows are sorted by another column", |screen| !screen.contains("sorted by total_ns"));

    // A click chooses the second row, and a key the first again.
    let is_selected = |line: u16| {
        move |shown: &terminal::Shown| shown.parser.screen().cell(line, 2).is_some_and(vt100::Cell::inverse)
    };
    top.terminal.press(" ");
    let screen = top.terminal.until_shown("FROZEN");
    let rows = screen.lines().enumerate().filter(|(_, line)| line.contains("mutex") && line.contains("exclusive"));
    let rows: Vec<u16> = rows.map(|(at, _)| u16::try_from(at).unwrap()).collect();
    assert!(top.terminal.read(is_selected(rows[0])) && rows.len() >= 2, "{screen}");
    top.terminal.press(&format!("\x1b[<0;5;{0}M\x1b[<0;5;{0}m", rows[1] + 1));
    until("the row that was clicked is selected", || top.terminal.read(is_selected(rows[1])));
    top.terminal.press("k");
    until("the row above it is selected", || top.terminal.read(is_selected(rows[0])));

    let pid = program.pid();
    drop(program);
    let ended = top.terminal.until_shown("has ended");
    assert!(ended.contains("ENDED") && ended.contains(&format!("process {pid}")), "{ended}");
    // By how many, the intervals since the screen was frozen decide.
    top.terminal.press_and_wait(LEFT, "ENDED −");
    top.terminal.press_and_wait(RIGHT, "ENDED ");
    top.quit();
}

/// Makes sure that a program which hangs is told at once: that it does stands first, and each of its threads with its age.
#[test]
fn a_deadlock_stands_first_and_the_threads_in_it_are_listed() {
    let Some(_machine) = machine("a_deadlock_stands_first_and_the_threads_in_it_are_listed") else { return };
    let folder = Folder::new();
    let mut program = Command::new(user_workload(folder.path(), "waits-for-ever", &[]));
    let mut program = program.arg("deadlock").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said.trim(), "ready");
    let mut top = Top::start_in(folder, &["-p", &program.id().to_string()], SMALL, &[]);
    let screen = top.terminal.until_shown("Deadlock: ");
    assert!(screen.lines().nth(1).is_some_and(|line| line.starts_with("Deadlock: ")), "{screen}");
    // The last of the details.
    let screen = top.terminal.press_and_wait("\x1b[Z", "s  deadlock: ");
    let waits: Vec<&str> = screen.lines().filter(|line| line.contains("  deadlock: ")).collect();
    assert!(waits.len() == 2 && waits.iter().all(|line| line.trim_start().starts_with('≥')), "{screen}");
    program.kill().unwrap();
    program.wait().unwrap();
    top.terminal.until_shown("has ended");
    top.quit();
}

/// Makes sure that colours are there, and none where they are not wanted.
#[test]
fn colours_are_left_out_where_no_color_is_set() {
    let folder = Folder::new();
    let recording = recorded(&folder);
    let colours = |variables: &[(&str, &str)]| {
        let mut top = Top::start_in(Folder::new(), &[&recording], (120, 40), variables);
        top.terminal.press(">>>>>");
        top.terminal.until_shown("END OF RECORDING");
        let coloured = top.terminal.read(terminal::Shown::coloured);
        top.quit();
        coloured
    };
    assert!(colours(&[]) > 0);
    assert_eq!(colours(&[("NO_COLOR", "1")]), 0);
}

/// Makes sure that a new size is answered at once, not with what is metered next.
#[test]
fn a_screen_on_which_nothing_happens_follows_the_size_of_the_terminal() {
    let folder = Folder::new();
    let recording = recorded(&folder);
    let mut top = Top::start_in(folder, &[&recording], SMALL, &[]);
    top.terminal.press(">>>>>");
    top.terminal.until_shown("END OF RECORDING");
    top.terminal.resize(LARGE.0, LARGE.1);
    top.terminal.until_shown("── waiting now");
    top.quit();
}

/// A recording of a command, which needs no privileges.
fn recorded(folder: &Folder) -> String {
    recorded_with(folder, &["--rounds", "200"])
}

fn recorded_with(folder: &Folder, arguments: &[&str]) -> String {
    let recording = folder.file("recording");
    let program = user_workload(folder.path(), "two-locks", &[]);
    support::preload_library();
    let mut record = lockmeter(["record", "--user", "--interval", "100ms", "-o", &recording, "--"]);
    record.arg(program).args(arguments);
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    recording
}

/// Makes sure that a recording is played without privileges, that without a terminal it is a JSON object a line, each with the fields of
/// `report`, and that they add up to what that says of the whole.
#[test]
fn without_a_terminal_a_recording_is_a_line_for_each_interval_with_the_numbers_of_report() {
    let folder = Folder::new();
    // Several intervals, also on a busy machine, where they are longer.
    let recording = recorded_with(&folder, &["--threads", "3", "--rounds", "300", "--hold-ns", "2000000", "--sleep"]);
    let whole = json(lockmeter(["report", &recording, "--format", "json"]));
    let lines = json_lines(&recording);
    assert!(lines.len() > 1 && whole["intervals"] == lines.len(), "{whole}");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    lines.iter().for_each(|line| assert_eq!(keys(line), keys(&whole)));
    let waited = |value: &Value| value["head"]["waits"]["total_ns"].as_u64().unwrap();
    let counted =
        |value: &Value| value["rows"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>();
    assert!(waited(&whole) > 0);
    assert_eq!(lines.iter().map(waited).sum::<u64>(), waited(&whole));
    assert_eq!(lines.iter().map(counted).sum::<u64>(), counted(&whole));
    let tables = text(&run(lockmeter(["top", &recording])).stdout);
    assert!(!tables.contains(ESCAPE) && tables.matches("Linux ").count() == lines.len(), "{tables}");
    let mut piped = Command::new(support::BINARY);
    piped.args(["top", "-", "--format", "json"]).stdin(fs::File::open(&recording).unwrap());
    assert_eq!(text(&run(piped).stdout).lines().count(), lines.len());
}

#[test]
fn live_json_is_a_line_each_refresh() {
    let Some(_machine) = machine("live_json_is_a_line_each_refresh") else { return };
    let mut top = lockmeter(["top", "--format", "json", "--interval", "200ms"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(line["rows"].is_array() && line["duration_ns"].as_u64().unwrap() > 0, "{line}");
    }
    support::signal(top.id(), SIGINT);
    // The rest is a line, too.
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(!rest.is_empty());
    assert!(wait(&mut top, "top").success());
}

/// Makes sure that what cannot be played is refused in one sentence, and that the screen is not touched.
#[test]
fn what_is_no_recording_is_refused_before_the_screen_is_taken() {
    let folder = Folder::new();
    let text_file = folder.file("text");
    fs::write(&text_file, "no recording\n").unwrap();
    let (status, said) = refused(lockmeter(["top", &text_file]));
    assert!(status == 4 && said.contains("is not a lockmeter recording"), "{status}: {said}");
    let (status, shown) = Terminal::start(&mut lockmeter(["top", &text_file]), SMALL).ended();
    assert_eq!(status.code(), Some(4));
    assert!(shown.contains("is not a lockmeter recording") && !shown.contains(ALTERNATE_SCREEN), "{shown}");
    let (status, said) = refused(lockmeter(["top", &text_file, "-p", "1"]));
    assert!(status == 2 && said.contains("RECORDING"), "{status}: {said}");
}

/// Makes sure that `w` treats what stands where it is to write as `record -o` does.
#[test]
fn a_file_that_is_no_recording_is_not_overwritten() {
    let folder = Folder::new();
    let recording = recorded(&folder);
    let precious = folder.file("precious");
    fs::write(&precious, "text\n").unwrap();
    let mut top = Top::start_in(folder, &[&recording], SMALL, &[]);
    top.terminal.press(">>>>>");
    top.terminal.until_shown("END OF RECORDING");
    top.terminal.press_and_wait("w", "into: top-");
    top.terminal.press(&"\x7f".repeat(40));
    top.terminal.press_and_wait("precious\r", "is not a recording");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text\n");
    top.quit();
}

/// Makes sure that `w` follows no link that another user laid there, no matter who runs `top`.
#[test]
fn a_link_of_another_user_is_not_written_through() {
    // SAFETY: takes nothing and returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return support::skip("a_link_of_another_user_is_not_written_through", "needs root");
    }
    const ANOTHER: u32 = 65_534;
    let folder = Folder::new();
    let recording = recorded(&folder);
    let precious = folder.file("precious");
    let original = fs::read(&recording).unwrap();
    fs::copy(&recording, &precious).unwrap();
    std::os::unix::fs::symlink(&precious, folder.file("link")).unwrap();
    std::os::unix::fs::lchown(folder.file("link"), Some(ANOTHER), Some(ANOTHER)).unwrap();
    let mut top = Top::start_in(folder, &[&recording], SMALL, &[]);
    top.terminal.press(">>>>>");
    top.terminal.until_shown("END OF RECORDING");
    top.terminal.press_and_wait("w", "into: top-");
    top.terminal.press(&"\x7f".repeat(40));
    top.terminal.press_and_wait("link\r", "symbolic link");
    assert_eq!(fs::read(&precious).unwrap(), original);
    top.quit();
}

/// Makes sure that in a recording Home goes to its first interval and End to its last, by either of the keys' spellings.
#[test]
fn home_and_end_go_to_the_ends_of_a_recording() {
    let folder = Folder::new();
    let sleeping = ["--threads", "3", "--rounds", "600", "--hold-ns", "2000000", "--sleep"];
    let recording = recorded_with(&folder, &sleeping);
    let intervals = json_lines(&recording);
    assert!(intervals.len() >= 3, "{} intervals", intervals.len());
    let begun = |interval: &Value| clock(interval["start_unix_ns"].as_u64().unwrap());
    let (first, last) = (begun(&intervals[0]), begun(intervals.last().unwrap()));
    let mut top = Top::start_in(folder, &[&recording], LARGE, &[]);
    top.terminal.press(">>>>>");
    top.terminal.until_shown("END OF RECORDING");
    let steps = format!("−{}", intervals.len() - 1);
    for (home, end) in [("\x1b[H", "\x1b[F"), ("\x1b[1~", "\x1b[4~")] {
        let screen = top.terminal.press_and_wait(home, &steps);
        assert_eq!(time_of(&screen), first, "{screen}");
        top.terminal.press(end);
        let screen = top
            .terminal
            .until("the last interval", |screen| screen.contains("END OF RECORDING") && !screen.contains(&steps));
        assert_eq!(time_of(&screen), last, "{screen}");
    }
    top.quit();
}

/// Makes sure that holds are seen live as `record --hold` sees them: by hooks of functions where this kernel allows them, and else with
/// the same reason why not and what is seen instead.
#[test]
fn top_shows_holds_as_record_does_or_says_why_it_cannot() {
    let Some(_machine) = machine("top_shows_holds_as_record_does_or_says_why_it_cannot") else { return };
    let folder = Folder::new();
    let recorded = run(lockmeter(["record", "--hold", "-a", "-d", "500ms", "-o", &folder.file("recording")]));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let shown = run(lockmeter(["top", "--hold", "-a", "-d", "1500ms", "-n", "3"]));
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let why_not = |said: &str| {
        said.lines().find(|line| line.contains("only mmap_lock's holds are timed whole")).map(str::to_owned)
    };
    let recorded = why_not(&text(&recorded.stderr));
    let shown = why_not(&text(&shown.stdout));
    assert_eq!(recorded.is_none(), shown.is_none(), "{recorded:?}, {shown:?}");
    if let (Some(recorded), Some(shown)) = (recorded, shown) {
        assert!(recorded.ends_with(&shown), "record: {recorded}\ntop: {shown}");
    }
    // What was not asked for is nothing to say.
    let shown = run(lockmeter(["top", "--hold", "--hooks", "none", "-a", "-d", "500ms", "-n", "3"]));
    assert!(shown.status.success() && why_not(&text(&shown.stdout)).is_none(), "{}", text(&shown.stdout));
    let (status, said) = refused(lockmeter(["top", "--hooks", "fentry", "-a", "-d", "500ms"]));
    assert!(status == 2 && said.contains("--hold"), "{status}: {said}");
}
