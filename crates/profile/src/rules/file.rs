//! Rules as they stand in a file, and what is wrong with one.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::patterns::Patterns;
use super::{Is, Layer, Rule, RuleSet, Rules, Word};
use crate::lock_functions::matches_pattern;
use crate::sample::{Kind, Mode};

/// The format that is documented, and read.
const FORMAT: i64 = 1;

/// No file of rules is larger: one in a hundred of it suffices for the locks of a large program.
pub const MOST_BYTES: usize = 256 << 10;

/// Longer names are none.
const LONGEST_NAME: usize = 200;

/// Functions at the outer end of every stack: what matches one of them matches everything.
const EVERYWHERE: &[&str] = &["main", "_start", "start_thread", "clone", "clone3", "__libc_start_main"];

/// Kinds of locks of programs, and of what else threads wait for.
const LOCKS: &[Kind] = &[Kind::Mutex, Kind::Rwlock, Kind::Spin, Kind::Semaphore, Kind::File];
const CONDITIONS: &[Kind] = &[Kind::Condvar, Kind::Barrier, Kind::Join, Kind::Park, Kind::Semaphore, Kind::Futex];

/// Values of a futex word that tell what it is. All others are counted together: they are counters and ids of threads.
const TOLD_APART: &[u64] = &[0, 1, 2, 0xffff_ffff];

/// What is wrong with a file of rules, and where.
#[derive(Debug)]
pub struct RulesError {
    file: String,
    line: Option<usize>,
    what: String,
}

impl RulesError {
    /// Of a file as a whole.
    pub fn of_file(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, what: what.into() }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}: {}", self.file, self.what),
            None => write!(f, "{} {}", self.file, self.what),
        }
    }
}

impl std::error::Error for RulesError {}

/// A pattern, or a list of them.
#[derive(Default)]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany(PhantomData<Names>);
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name in quotes or a list of them")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Names, E> {
                Ok(Names(vec![name.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(OneOrMany(PhantomData))
    }
}

/// One of a few words.
macro_rules! word {
    ($name:ident, $of:ty, $what:literal, $all:expr) => {
        #[derive(Clone, Copy)]
        struct $name($of);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let all: Vec<(&str, $of)> = $all;
                match all.iter().find(|(name, _)| *name == text) {
                    Some((_, value)) => Ok(Self(*value)),
                    None => {
                        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
                        let names = names.join(", ");
                        Err(de::Error::custom(format!("there is no {} `{text}`; write one of: {names}", $what)))
                    }
                }
            }
        }
    };
}

word!(KindWord, Kind, "kind", {
    let mut all: Vec<(&str, Kind)> = LOCKS.iter().chain(CONDITIONS).map(|kind| (kind.name(), *kind)).collect();
    all.dedup();
    all.sort_unstable_by_key(|(name, _)| *name);
    all.dedup();
    all
});
word!(ModeWord, Mode, "mode", Mode::ALL.iter().map(|mode| (mode.name(), *mode)).collect());
word!(IsWord, Is, "`is`", Is::ALL.iter().map(|is| (is.name(), *is)).collect());
word!(
    LayerWord,
    Layer,
    "layer",
    vec![("built", Layer::Built), ("primitive", Layer::Primitive), ("floor", Layer::Floor)]
);
word!(CallsWord, bool, "`calls`", vec![("any", true), ("futex", false)]);

/// How far behind the lock's begin, or `"thread"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum WordPlace {
    Behind(u64),
    Named(String),
    #[serde(skip)]
    At(u64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(rename = "format")]
    _format: i64,
    name: Option<String>,
    version: Option<String>,
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    functions: RawFunctions,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawFunctions {
    lock: Option<Spanned<Names>>,
    user: Option<Spanned<Names>>,
    wrapper: Option<Spanned<Names>>,
    machinery: Option<Spanned<Names>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: Option<String>,
    function: Option<Spanned<Names>>,
    release: Option<Spanned<Names>>,
    file: Option<Spanned<Names>>,
    inside: Option<Spanned<Names>>,
    of: Option<KindWord>,
    value: Option<Spanned<u64>>,
    #[serde(default)]
    direct: bool,
    nameless: Option<u32>,
    calls: Option<CallsWord>,
    #[serde(default)]
    spins: bool,
    #[serde(default)]
    argument: bool,
    variable: Option<String>,
    class: Option<String>,
    layer: Option<LayerWord>,
    is: IsWord,
    kind: Option<Spanned<KindWord>>,
    mode: Option<ModeWord>,
    word: Option<WordPlace>,
    word_at: Option<u64>,
    called: Option<String>,
    owner: Option<u64>,
}

/// A file that is being read.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> RulesError {
        RulesError { file: self.name.to_owned(), line: Some(self.line(at)), what: what.into() }
    }

    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    fn by_toml(&self, error: &toml::de::Error) -> RulesError {
        let what = error.message().trim().lines().collect::<Vec<_>>().join(", ");
        match error.span() {
            Some(span) => self.error(span.start, what),
            None => RulesError::of_file(self.name, format!("cannot be read: {what}")),
        }
    }

    /// Another version may have other keys: it is asked for first.
    fn check_format(&self) -> Result<(), RulesError> {
        let table: toml::Table = toml::from_str(self.text).map_err(|error| self.by_toml(&error))?;
        let what = match table.get("format") {
            Some(format) if format.as_integer() == Some(FORMAT) => return Ok(()),
            Some(format) => {
                let found =
                    format.as_integer().map_or_else(|| "that is not a number".to_owned(), |format| format.to_string());
                format!(
                    "has rules of format {found}, this lockmeter reads format {FORMAT}; use the lockmeter that they were written for"
                )
            }
            None => format!("does not say in which format its rules are; write `format = {FORMAT}` as its first line"),
        };
        Err(RulesError::of_file(self.name, what))
    }

    fn parse(&self) -> Result<RawFile, RulesError> {
        toml::from_str(self.text).map_err(|error| self.by_toml(&error))
    }

    fn patterns(&self, key: &str, names: Option<Spanned<Names>>) -> Result<Patterns, RulesError> {
        let mut patterns = Patterns::default();
        let Some(names) = names else { return Ok(patterns) };
        let at = names.span().start;
        for pattern in names.into_inner().0 {
            if pattern.bytes().all(|byte| byte == b'*') {
                return Err(self.error(at, format!("`{key} = \"{pattern}\"` matches everything; name what you mean")));
            }
            let everywhere = EVERYWHERE.iter().find(|everywhere| matches_pattern(&pattern, everywhere));
            if let Some(everywhere) = everywhere.filter(|_| key != "file") {
                let what = format!(
                    "`{pattern}` matches every stack, because it matches `{everywhere}`; name the lock's own functions"
                );
                return Err(self.error(at, what));
            }
            patterns.add(pattern);
        }
        Ok(patterns)
    }

    fn value(&self, value: Option<Spanned<u64>>) -> Result<Option<u64>, RulesError> {
        let Some(value) = value else { return Ok(None) };
        if TOLD_APART.contains(value.get_ref()) {
            return Ok(Some(value.into_inner()));
        }
        let values: Vec<String> = TOLD_APART.iter().map(u64::to_string).collect();
        let what = format!("only these values can be distinguished; write one of: {}", values.join(", "));
        Err(self.error(value.span().start, what))
    }

    fn rule(&self, at: usize, raw: RawRule, set: usize) -> Result<Rule, RulesError> {
        let is = raw.is.0;
        let layer = raw.layer.map_or(Layer::Built, |layer| layer.0);
        let kind_at = raw.kind.as_ref().map_or(at, |kind| kind.span().start);
        let kind = raw.kind.map_or(
            match is {
                Is::Lock => Kind::Mutex,
                Is::Condition => Kind::Condvar,
                Is::Idle => Kind::Park,
            },
            |kind| kind.into_inner().0,
        );
        let fitting = if is == Is::Lock { LOCKS } else { CONDITIONS };
        if !fitting.contains(&kind) {
            let names: Vec<&str> = fitting.iter().map(|kind| kind.name()).collect();
            let what = format!("a {} cannot have the kind `{kind}`; write one of: {}", is.name(), names.join(", "));
            return Err(self.error(kind_at, what));
        }
        let word = match raw.word.or(raw.word_at.map(WordPlace::At)) {
            None => None,
            Some(WordPlace::At(bytes)) => Some(Word::At(bytes)),
            Some(WordPlace::Behind(bytes)) => Some(Word::Behind(bytes)),
            Some(WordPlace::Named(name)) if name == "thread" => Some(Word::OfThread),
            Some(WordPlace::Named(name)) => {
                let what = format!(
                    "`{name}` is not a place of the lock's word; write \"thread\", or its distance from the lock's start in bytes"
                );
                return Err(self.error(at, what));
            }
        };
        for text in [&raw.name, &raw.variable, &raw.class, &raw.called].into_iter().flatten() {
            if text.is_empty() || text.len() > LONGEST_NAME || text.chars().any(char::is_control) {
                let what =
                    format!("a name is empty, longer than {LONGEST_NAME} bytes or not printable; write another one");
                return Err(self.error(at, what));
            }
        }
        let any_call = raw.calls.is_some_and(|calls| calls.0);
        let rule = Rule {
            layer,
            functions: self.patterns("function", raw.function)?,
            release: self.patterns("release", raw.release)?,
            files: self.patterns("file", raw.file)?,
            inside: self.patterns("inside", raw.inside)?,
            of: raw.of.map(|of| of.0),
            value: self.value(raw.value)?,
            direct: raw.direct,
            nameless: raw.nameless.map(|most| most as usize),
            any_call,
            spins: raw.spins,
            address_in_argument: raw.argument,
            variable: raw.variable,
            class: raw.class,
            is,
            kind,
            mode: raw.mode.map_or(Mode::Exclusive, |mode| mode.0),
            name: raw.name,
            word,
            called: raw.called,
            owner: raw.owner,
            set,
            file: self.name.to_owned(),
            line: self.line(at),
        };
        match Self::contradiction(&rule) {
            Some(what) => Err(self.error(at, what)),
            None => Ok(rule),
        }
    }

    /// What makes a rule one that says nothing, or too much.
    fn contradiction(rule: &Rule) -> Option<&'static str> {
        let has_function = !rule.functions.is_empty();
        let ways = [has_function || !rule.files.is_empty(), rule.variable.is_some(), rule.class.is_some()];
        match ways.iter().filter(|given| **given).count() {
            0 => {
                return Some(
                    "this rule matches everything; add `function = \"…\"`, the name of the function that waits",
                );
            }
            1 => {}
            _ => {
                return Some("a rule has exactly one of `function`, `variable` and `class`; write a rule for each");
            }
        }
        if !has_function && ways[0] && !rule.direct && rule.nameless.is_none() {
            return Some("this rule matches every function of a file; add `function = \"…\"`");
        }
        if rule.any_call && rule.files.is_empty() {
            return Some("with `calls = \"any\"` say whose calls: add `file = \"…\"`, the name of the program's file");
        }
        if rule.spins && rule.files.is_empty() {
            return Some(
                "with `spins = true` say in which programs: add `file = \"…\"`, the name of the program's file",
            );
        }
        if (rule.spins || rule.address_in_argument) && !has_function {
            return Some("`spins` and `argument` are about a function; add `function = \"…\"`");
        }
        if rule.layer != Layer::Built && !has_function {
            return Some("a rule of this layer needs `function`; add it");
        }
        None
    }
}

/// Adds a file as a set of its own.
pub(super) fn add(rules: &mut Rules, file: &str, text: &str) -> Result<(), RulesError> {
    let mut checksum = flate2::Crc::new();
    checksum.update(text.as_bytes());
    let stem = file.rsplit('/').next().unwrap_or(file);
    let name = stem.strip_suffix(".toml").unwrap_or(stem).to_owned();
    let before = rules.clone();
    rules.sets.push(RuleSet { name, version: String::new(), checksum: checksum.sum() });
    File { name: file, text }
        .check_format()
        .and_then(|()| add_to_last_set(rules, file, text))
        .inspect_err(|_| *rules = before)
}

/// Adds a file to the set that was added last.
pub(super) fn add_to_last_set(rules: &mut Rules, name: &str, text: &str) -> Result<(), RulesError> {
    let file = File { name, text };
    let raw = file.parse()?;
    let set = rules.sets.len() - 1;
    if let Some(known) = rules.sets.last_mut() {
        known.name = raw.name.unwrap_or_else(|| known.name.clone());
        known.version = raw.version.unwrap_or_else(|| known.version.clone());
    }
    for rule in raw.rule {
        let at = rule.span().start;
        let rule = file.rule(at, rule.into_inner(), set)?;
        if rule.layer == Layer::Built && rule.is == Is::Lock && !rule.direct && rule.nameless.is_none() {
            let parts = rule.functions.all().iter().chain(rule.release.all());
            parts.for_each(|pattern| rules.functions.of_rules.add(pattern.clone()));
        }
        rules.rules.push(rule);
    }
    let lists = &mut rules.functions;
    for (key, names, list) in [
        ("lock", raw.functions.lock, &mut lists.lock),
        ("user", raw.functions.user, &mut lists.user),
        ("wrapper", raw.functions.wrapper, &mut lists.wrapper),
        ("machinery", raw.functions.machinery, &mut lists.machinery),
    ] {
        for pattern in file.patterns(key, names)?.all() {
            list.add(pattern.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "format = 1\n[[rule]]\nname = \"order book\"\nfunction = \"book_lock*\"\nis = \"lock\"\n";

    fn read(text: &str) -> Result<Rules, String> {
        let mut rules = Rules::default();
        rules.add("shop.toml", text).map_err(|error| error.to_string()).map(|()| rules)
    }

    fn refused(text: &str) -> String {
        read(text).err().unwrap_or_else(|| panic!("accepted:\n{text}"))
    }

    #[test]
    fn a_lock_takes_five_lines() {
        let rules = read(SHOP).unwrap();
        let (_, rule) = rules.all().next().unwrap();
        assert_eq!((rule.is, rule.kind, rule.mode), (Is::Lock, Kind::Mutex, Mode::Exclusive));
        assert_eq!((rule.name.as_deref(), rule.line), (Some("order book"), 2));
        assert_eq!(rules.sets()[0].name, "shop");
        assert!(rules.is_lock_function("book_lock_slow") && !rules.is_lock_function("take_order"));
    }

    #[test]
    fn a_set_has_a_name_a_version_and_a_checksum_of_its_text() {
        let first = read(&SHOP.replace("format = 1", "format = 1\nname = \"shop locks\"\nversion = \"3\"")).unwrap();
        assert_eq!((first.sets()[0].name.as_str(), first.sets()[0].version.as_str()), ("shop locks", "3"));
        assert_ne!(
            read(SHOP).unwrap().sets()[0].checksum,
            read(&SHOP.replace("order", "other")).unwrap().sets()[0].checksum
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, parts) in [
            (SHOP.replace("is = \"lock\"", "is = "), &["shop.toml, line 5: "][..]),
            (SHOP.replace("is =", "iz ="), &["line 5", "unknown field `iz`", "`is`"]),
            (SHOP.replace("is = \"lock\"\n", ""), &["line 2", "missing field `is`"]),
            (SHOP.replace("\"lock\"", "\"look\""), &["line 5", "no `is` `look`", "lock, condition, idle"]),
            (format!("{SHOP}kind = \"mutx\"\n"), &["line 6", "no kind `mutx`", "mutex", "rwlock"]),
            (format!("{SHOP}kind = \"condvar\"\n"), &["line 6", "a lock cannot have the kind `condvar`", "mutex"]),
            (format!("{SHOP}mode = \"x\"\n"), &["line 6", "no mode `x`", "exclusive, read, write"]),
            (format!("{SHOP}word = \"there\"\n"), &["line 2", "`there` is not a place", "thread"]),
            (SHOP.replace("book_lock*", "*"), &["line 4", "matches everything"]),
            (SHOP.replace("book_lock*", "*a*"), &["line 4", "matches every stack", "`main`"]),
            (SHOP.replace("function", "release"), &["line 2", "matches everything", "function"]),
            (SHOP.replace("function", "file"), &["line 2", "every function of a file"]),
            (format!("{SHOP}value = 77\n"), &["line 6", "0, 1, 2, 4294967295"]),
            (format!("{SHOP}calls = \"any\"\n"), &["line 2", "whose calls", "file"]),
            (format!("{SHOP}spins = true\n"), &["line 2", "in which programs", "file"]),
            (format!("{SHOP}variable = \"book\"\n"), &["line 2", "a rule for each"]),
            (SHOP.replace("\"order book\"", "\"a\\u001b[2J\""), &["line 2", "not printable"]),
            (SHOP.replace("\"book_lock*\"", "7"), &["line 4", "a name in quotes or a list of them"]),
            (SHOP.replace("format = 1\n", ""), &["does not say in which format", "`format = 1`"]),
            (SHOP.replace("format = 1", "format = 2\nnew = 1"), &["format 2", "reads format 1"]),
            (format!("{SHOP}[functions]\nlock = [\"*\"]\n"), &["line 7", "matches everything"]),
        ] {
            let said = refused(&text);
            assert!(parts.iter().all(|part| said.contains(part)), "{said}\nof\n{text}");
            assert!(!said.contains('\n'), "more than a sentence: {said}");
        }
    }

    #[test]
    fn rules_that_are_refused_leave_the_others_as_they_were() {
        let mut rules = read(SHOP).unwrap();
        assert!(rules.add("other.toml", &SHOP.replace("book_lock*", "*")).is_err());
        assert_eq!((rules.sets().len(), rules.all().count()), (1, 1));
    }
}
