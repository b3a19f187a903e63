//! One row of the table: a program, how it is built and run, and what is known of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::build::{Build, Compiler};

/// How a program is metered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// `record --user`.
    Wait,
    /// `record --user --hold`.
    Hold,
    /// `record --user --swap mutex=mutex,rwlock=rwsem`.
    Swap,
}

pub const ALL_LEVELS: [Level; 3] = [Level::Wait, Level::Hold, Level::Swap];
/// Without `--swap`.
pub const METERED: [Level; 2] = [Level::Wait, Level::Hold];

impl Level {
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Wait => &[],
            Self::Hold => &["--hold"],
            Self::Swap => &["--swap", "mutex=mutex,rwlock=rwsem"],
        }
    }
}

/// No program takes longer, unless the machine is very busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A word of a command line.
#[derive(Clone)]
pub enum Word {
    Text(String),
    Built(Build),
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Build> for Word {
    fn from(build: Build) -> Self {
        Self::Built(build)
    }
}

impl Word {
    fn value(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Built(build) => build.path().to_str().unwrap().to_owned(),
        }
    }
}

/// What a program needs that a machine may lack.
enum Needed {
    Command(&'static str),
    File(&'static str),
    /// A compiler or a library without which it does not build.
    ToBuild,
}

struct Need {
    what: Needed,
    /// The Debian package that has it.
    package: &'static str,
}

impl Need {
    /// Why the program cannot run here.
    fn missing(&self, program: &Program) -> Option<String> {
        let why = match self.what {
            Needed::Command(name) => (!is_command(name)).then(|| format!("there is no {name}"))?,
            Needed::File(path) => (!Path::new(path).exists()).then(|| format!("there is no {path}"))?,
            Needed::ToBuild => program.build.try_path().err()?,
        };
        Some(format!("package {} is missing: {why}", self.package))
    }
}

fn is_command(name: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "command -v \"$0\"", name]).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub struct Program {
    pub name: String,
    pub build: Build,
    /// What runs around the recorder, or around the bare program.
    around: Vec<Word>,
    /// What the recorder runs, which runs the program.
    under: Vec<Word>,
    arguments: Vec<Word>,
    environment: Vec<(String, Word)>,
    /// The status that it ends with when it runs as it should.
    pub status: i32,
    pub levels: Vec<Level>,
    /// Where a recording without its locks is no failure.
    pub unseen: Vec<Level>,
    needs: Vec<Need>,
}

/// A program of that source, metered without `--swap`, which ends with status 7.
pub fn program(source: &'static str) -> Program {
    Program {
        name: source.to_owned(),
        build: Build::new(source),
        around: Vec::new(),
        under: Vec::new(),
        arguments: Vec::new(),
        environment: Vec::new(),
        status: 7,
        levels: METERED.to_vec(),
        unseen: Vec::new(),
        needs: Vec::new(),
    }
}

impl Program {
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.name = format!("{} {}", self.name, arguments.join(" "));
        self.arguments.extend(arguments.iter().map(|&argument| argument.into()));
        self
    }

    pub fn argument(mut self, argument: impl Into<Word>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Tells it apart from others of the same source.
    pub fn named(mut self, how: &str) -> Self {
        self.name = format!("{}, {how}", self.name);
        self
    }

    pub fn flags(mut self, flags: &[&'static str]) -> Self {
        self.build.flags.extend(flags);
        self
    }

    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.build.compiler = compiler;
        self
    }

    pub fn variable(mut self, name: &str, value: impl Into<Word>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub fn under(mut self, command: &[&str]) -> Self {
        self.under = command.iter().map(|&word| word.into()).collect();
        self
    }

    /// The recorder runs a shell that runs this line, in which `"$@"` is the program.
    pub fn under_shell(self, line: &str) -> Self {
        self.under(&["sh", "-c", line, "sh"])
    }

    pub fn around(mut self, command: &[&str]) -> Self {
        self.around = command.iter().map(|&word| word.into()).collect();
        self
    }

    pub fn ends_with(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// It runs under `--swap`, too.
    pub fn swapped(self) -> Self {
        self.at(&ALL_LEVELS)
    }

    pub fn at(mut self, levels: &[Level]) -> Self {
        self.levels = levels.to_vec();
        self
    }

    /// Its locks are not seen from inside, so a recording without them is no failure.
    pub fn unseen(self) -> Self {
        self.unseen_at(&ALL_LEVELS)
    }

    pub fn unseen_at(mut self, levels: &[Level]) -> Self {
        self.unseen = levels.to_vec();
        self
    }

    /// A command from the package of that name.
    pub fn needs_command(self, name: &'static str) -> Self {
        self.needs(Needed::Command(name), name)
    }

    pub fn needs_file(self, path: &'static str, package: &'static str) -> Self {
        self.needs(Needed::File(path), package)
    }

    pub fn needs_to_build(self, package: &'static str) -> Self {
        self.needs(Needed::ToBuild, package)
    }

    fn needs(mut self, what: Needed, package: &'static str) -> Self {
        self.needs.push(Need { what, package });
        self
    }

    /// Why it cannot run here.
    pub fn missing(&self) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(self))
    }

    /// The command line that runs it in this folder, with what stands before it: nothing, or a recorder.
    pub fn command(&self, recorder: &[String], folder: &Path) -> Command {
        let values = |words: &[Word]| words.iter().map(Word::value).collect::<Vec<_>>();
        let words: Vec<String> = [
            values(&self.around),
            recorder.to_vec(),
            values(&self.under),
            vec![self.path().to_str().unwrap().to_owned()],
            values(&self.arguments),
        ]
        .concat();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value.value())));
        command
    }

    fn path(&self) -> PathBuf {
        self.build.path()
    }
}
