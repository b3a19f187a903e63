//! Rules: what a wait of a program is, told by the functions on its stack. They are data: `rules/*.toml`, and files of the user.
//!
//! The format is documented in `docs/reference/rules.md`. A program has one list of rules, which it [installs](install) as it starts.

mod file;
mod patterns;
mod read_again;
mod shipped;
mod trial;

use std::sync::OnceLock;

use crate::interval::Frame;
use crate::lock::{Lock, Naming};
use crate::sample::{Happened, Kind, Mode};

pub use file::{MOST_BYTES, RulesError};
use patterns::Patterns;
pub use patterns::bare_name;
pub use shipped::SHIPPED;
pub use trial::{Trial, Tried};

/// How far from its inner end a stack is looked at: beyond it are callers.
pub const DEEPEST: usize = 24;

/// What a rule is about: how much of the wait it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// What programs build: it counts before the primitive inside.
    Built,
    /// What a C library or a language offers: what the futex word is.
    Primitive,
    /// What primitives are built of: it counts only where no primitive is found further out.
    Floor,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// For a lock, which its holder releases.
    Lock,
    /// For another thread's signal, or its end.
    Condition,
    /// For work: the thread is at rest.
    Idle,
}

impl Is {
    const ALL: [Self; 3] = [Self::Lock, Self::Condition, Self::Idle];

    /// As it stands in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Condition => "condition",
            Self::Idle => "idle",
        }
    }

    /// As what such waits are counted.
    pub const fn happened(self) -> Happened {
        match self {
            Self::Lock => Happened::Wait,
            Self::Condition | Self::Idle => Happened::Idle,
        }
    }
}

/// Where the lock begins, as seen from the futex word that is waited on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// At the word.
    Start,
    /// The word, rounded down to eight bytes, lies so far behind the lock's begin.
    Behind(u64),
    /// The word lies exactly so far behind the lock's begin.
    At(u64),
    /// The word belongs to the thread, which waits on it for any lock.
    OfThread,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// What it is about.
    pub layer: Layer,
    /// The functions that wait; none: any function of the files.
    pub functions: Patterns,
    /// The functions that release, which belong to the lock as well.
    pub release: Patterns,
    /// The files in which the function lies; none: any.
    pub files: Patterns,
    /// A function that stands further in.
    pub inside: Patterns,
    /// The kind of the primitive inside; of a futex of which nothing else is known, `Futex`.
    pub of: Option<Kind>,
    /// The value that the futex word has while the thread sleeps.
    pub value: Option<u64>,
    /// Nothing but the C library stands further in.
    pub direct: bool,
    /// Nothing stands further in but this many functions without names, of the same file, and the C library.
    pub nameless: Option<usize>,
    /// Threads in these files are looked at in any call, not only in futex calls.
    pub any_call: bool,
    /// A thread that runs in the function spins, whatever it does there.
    pub spins: bool,
    /// While a thread spins in the function itself, the register with its first argument holds the lock's address.
    pub address_in_argument: bool,
    /// A variable in which the lock lies, instead of functions.
    pub variable: Option<String>,
    /// The class for which a Java thread says that it is parked, instead of functions.
    pub class: Option<String>,
    /// What it is.
    pub is: Is,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it is asked for.
    pub mode: Mode,
    /// What the users of the lock call it; `None`: it is named like others, by its variable or the code that made it.
    pub name: Option<String>,
    /// Where the lock begins; `None`: where that of the primitive does.
    pub word: Option<Word>,
    /// The function that was called, which is shown where only inner ones without names are on the stack.
    pub called: Option<String>,
    /// How far behind the lock's begin the id of the thread stands that has it.
    pub owner: Option<u64>,
    /// In which of the sets it stands, and the line of the file.
    pub set: usize,
    /// The file in which it stands, and where.
    pub file: String,
    /// The line at which it begins.
    pub line: usize,
}

/// A rule among those that are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A frame that a rule matches.
#[derive(Debug, Clone, Copy)]
pub struct Match<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// Its number.
    pub id: RuleId,
    /// Which frame, counted from the innermost.
    pub at: usize,
}

/// What a set of rules is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleSet {
    /// Its name.
    pub name: String,
    /// The version that its author gave it; empty if none.
    pub version: String,
    /// CRC-32 of its text, which tells versions apart that were not given one.
    pub checksum: u32,
}

impl RuleSet {
    /// Whether lockmeter comes with it.
    pub fn is_shipped(&self) -> bool {
        self.name == shipped::NAME
    }
}

impl std::fmt::Display for RuleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version.as_str() {
            "" => write!(f, "{} ({:08x})", self.name, self.checksum),
            version => write!(f, "{} {version} ({:08x})", self.name, self.checksum),
        }
    }
}

/// Functions of programs that say nothing of what is waited for, by why.
#[derive(Debug, Clone, Default)]
struct Functions {
    lock: Patterns,
    user: Patterns,
    wrapper: Patterns,
    machinery: Patterns,
    /// Those that rules name as parts of locks that programs build.
    of_rules: Patterns,
}

/// All rules, those that come first before those that come later.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    sets: Vec<RuleSet>,
    rules: Vec<Rule>,
    functions: Functions,
}

static INSTALLED: OnceLock<Rules> = OnceLock::new();

/// Has this program use these rules; to be called before it looks at any stack. Returns whether it did none before.
pub fn install(rules: Rules) -> bool {
    INSTALLED.set(rules).is_ok()
}

/// The rules of this program: the shipped ones unless others were installed.
pub fn installed() -> &'static Rules {
    INSTALLED.get_or_init(Rules::shipped)
}

impl Rules {
    /// The rules that lockmeter comes with.
    pub fn shipped() -> Self {
        let mut rules = Self::default();
        rules.add_shipped();
        rules
    }

    /// Adds the rules of a file behind those that are here. `file` stands for it in errors, and is its name unless it gives one.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), RulesError> {
        file::add(self, file, text)
    }

    /// Adds the rules that lockmeter comes with behind those that are here.
    pub fn add_shipped(&mut self) {
        shipped::add(self);
    }

    /// The sets, those that count first first.
    pub fn sets(&self) -> &[RuleSet] {
        &self.sets
    }

    /// All rules, in the order in which they count.
    pub fn all(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.rules.iter().enumerate().map(|(at, rule)| (RuleId(at as u32), rule))
    }

    /// A rule of these.
    pub fn get(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id.0 as usize)
    }

    /// The primitive that waits in this function.
    pub fn primitive(&self, function: &str) -> Option<&Rule> {
        self.of_layer(Layer::Primitive, function)
    }

    /// What lies under the primitives that wait in this function.
    pub fn floor(&self, function: &str) -> Option<&Rule> {
        self.of_layer(Layer::Floor, function)
    }

    fn of_layer(&self, layer: Layer, function: &str) -> Option<&Rule> {
        let bare = bare_name(function);
        self.rules.iter().find(|rule| rule.layer == layer && rule.functions.match_either(function, bare))
    }

    /// What a program has built that waits with this stack, innermost frame first: the innermost of the first set that knows any. `of` is
    /// the kind of the primitive inside.
    pub fn built(&self, stack: &[Frame], of: Option<Kind>) -> Option<Match<'_>> {
        self.built_of(stack, of, None)
    }

    /// The same of a thread that sleeps in a futex call while the word has this value.
    pub fn built_of(&self, stack: &[Frame], of: Option<Kind>, value: Option<u64>) -> Option<Match<'_>> {
        self.built_where(stack, of, |rule| rule.value.is_none_or(|is| value == Some(is)))
    }

    /// The same of a thread that runs: of a futex word that it does not wait on nobody knows the value, so that any may be it.
    pub fn built_by_runner(&self, stack: &[Frame], of: Kind) -> Option<Match<'_>> {
        self.built_where(stack, Some(of), |_| true)
    }

    fn built_where(&self, stack: &[Frame], of: Option<Kind>, fits: impl Fn(&Rule) -> bool) -> Option<Match<'_>> {
        let stack = &stack[..stack.len().min(DEEPEST)];
        (0..self.sets.len()).find_map(|set| {
            let mut places = (0..stack.len()).flat_map(|at| self.all().map(move |(id, rule)| Match { rule, id, at }));
            places.find(|Match { rule, at, .. }| rule.set == set && fits(rule) && rule.matches(stack, *at, of))
        })
    }

    /// The lock that lies in a variable of a program.
    pub fn of_variable(&self, variable: &str, of: Kind) -> Option<&Rule> {
        let is_it = |rule: &&Rule| rule.variable.as_deref() == Some(variable) && rule.of.is_none_or(|kind| kind == of);
        self.rules.iter().find(is_it)
    }

    /// The lock for which a Java thread says that it is parked: the outer class counts.
    pub fn of_class(&self, class: &str) -> Option<(RuleId, &Rule)> {
        let outer = class.split('$').next();
        self.all().find(|(_, rule)| rule.class.is_some() && rule.class.as_deref() == outer)
    }

    /// Whether threads that run code of a file of this name may sleep for its own locks in any call.
    pub fn watches_any_call(&self, file: &str) -> bool {
        self.rules.iter().any(|rule| rule.any_call && rule.files.matches(file))
    }

    /// Whether threads that run code of a file of this name may spin in functions that say so.
    pub fn watches_spins(&self, file: &str) -> bool {
        self.rules.iter().any(|rule| rule.spins && rule.files.matches(file))
    }

    /// Whether a function only takes a lock for others, wraps one, or is a part of a language.
    pub fn is_part_of_lock(&self, function: &str) -> bool {
        self.is_lock_function(function) || self.is_wrapper_or_machinery(function)
    }

    /// Whether a function takes or releases locks for others: it says nothing of who uses the lock.
    pub(crate) fn is_lock_function(&self, function: &str) -> bool {
        self.functions.lock.matches(function) || self.is_function_of_rule(function)
    }

    /// Whether a rule says that a function is part of a lock that programs build: so is all that it calls.
    pub(crate) fn is_function_of_rule(&self, function: &str) -> bool {
        self.functions.of_rules.match_either(function, bare_name(function))
    }

    /// Whether a function uses locks, whatever other lists say.
    pub(crate) fn is_user(&self, function: &str) -> bool {
        self.functions.user.matches(function)
    }

    /// Whether a function wraps a lock, or is a part of a language.
    pub(crate) fn is_wrapper_or_machinery(&self, function: &str) -> bool {
        self.functions.wrapper.matches(function) || self.functions.machinery.matches(function)
    }
}

impl Rule {
    /// Whether this frame of a stack, and what stands further in, are what the rule is about.
    pub fn matches(&self, stack: &[Frame], at: usize, of: Option<Kind>) -> bool {
        let is_by_stack = self.layer == Layer::Built && self.variable.is_none() && self.class.is_none();
        let Some(frame) = stack.get(at).filter(|_| is_by_stack) else { return false };
        let function = frame.function.as_deref();
        let is_function = self.functions.is_empty()
            || function.is_some_and(|function| self.functions.match_either(function, bare_name(function)));
        let is_file = || self.files.is_empty() || frame.module.as_deref().is_some_and(|file| self.files.matches(file));
        let is_of = || self.of.is_none_or(|kind| of == Some(kind));
        is_function && is_of() && is_file() && self.fits_inside(&stack[..at], frame)
    }

    /// Whether this frame is of one of its functions, whatever else it asks for.
    fn has_function(&self, frame: &Frame) -> bool {
        frame.function.as_deref().is_some_and(|function| self.functions.match_either(function, bare_name(function)))
    }

    fn fits_inside(&self, inside: &[Frame], frame: &Frame) -> bool {
        let has_inside = || {
            inside.iter().filter_map(|frame| frame.function.as_deref()).any(|function| self.inside.matches(function))
        };
        if !self.inside.is_empty() && !has_inside() {
            return false;
        }
        let of_library = inside.iter().take_while(|frame| is_of_c_library(frame)).count();
        let between = &inside[of_library..];
        match self.nameless {
            Some(most) => {
                // A library may call it by functions of its own, whose names it exports.
                let calls = between.iter().take_while(|frame| is_called_for_lock(frame)).count();
                let between = &between[calls..];
                // Without a function it is the file that calls another one.
                let is_nameless = |other: &Frame| {
                    other.function.is_none() && (self.functions.is_empty() || other.module == frame.module)
                };
                (1..=most).contains(&between.len()) && between.iter().all(is_nameless)
            }
            None => !self.direct || between.is_empty(),
        }
    }

    /// The lock that it names, for the tables; `None` if it names none. Which of several it is, an argument of the function says.
    pub fn lock(&self, stack: &[Frame]) -> Option<Lock> {
        let name = self.name.clone()?;
        let found = stack.iter().find_map(|frame| {
            let function = frame.function.as_deref()?;
            self.functions
                .match_either(function, bare_name(function))
                .then_some((bare_name(function), frame.module.as_deref()))
        });
        let detail = match (found, &self.class) {
            (_, Some(class)) => format!("any {class} of the program"),
            (Some((function, file)), None) => {
                format!("any of those that {} waits for in {function}", file.unwrap_or("the program"))
            }
            (None, None) => "any of those that the program waits for".to_owned(),
        };
        Some(Lock { name, object: None, naming: Naming::UserFirstSite, detail })
    }
}

/// Whether a frame's function only calls the C library's for others.
fn is_called_for_lock(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(crate::lock_functions::is_user_lock_function)
}

/// Whether a frame belongs to the C library.
pub fn is_of_c_library(frame: &Frame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    module == "libc" || ["libc.so", "libc-", "libpthread"].iter().any(|start| module.starts_with(start))
}
