//! What is made from the command line's definition: completions, in real shells, and manual pages, as `man` reads them.

mod support;

use std::fs;
use std::process::{Command, Output};

use support::{BINARY, Folder, lockmeter, run, text};

fn completions(folder: &Folder, shell: &str, name: &str) -> String {
    let output = run(lockmeter(["completions", shell]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = folder.file(name);
    fs::write(&file, output.stdout).unwrap();
    file
}

/// What a shell prints that runs this script, with the file of completions as `$1`.
fn said_by(shell: &str, script: &str, file: &str) -> String {
    let mut command = Command::new(shell);
    let before: &[&str] = if shell == "fish" { &["--no-config", "-c"] } else { &["-c"] };
    command.args(before).arg(script);
    if shell != "fish" {
        command.arg(shell);
    }
    command.arg(file).env("PATH", path_with_binary());
    let Output { status, stdout, stderr } = run(command);
    assert!(status.success() && stderr.is_empty(), "{shell}: {status} {}", text(&stderr));
    text(&stdout)
}

fn path_with_binary() -> String {
    let folder = std::path::Path::new(BINARY).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn bash_completes_commands_options_and_values() {
    let folder = Folder::new();
    let file = completions(&folder, "bash", "lockmeter.bash");
    let complete = |words: &str, count: usize| {
        let script = format!(
            "source \"$1\"; COMP_WORDS=({words}); COMP_CWORD={count}; _lockmeter lockmeter \"${{COMP_WORDS[{count}]}}\" \
             \"${{COMP_WORDS[{}]}}\"; echo \"${{COMPREPLY[*]}}\"",
            count - 1
        );
        said_by("bash", &script, &file).trim().to_owned()
    };
    assert_eq!(complete("lockmeter rec", 1), "record");
    // `compare` is none that the help shows.
    assert_eq!(complete("lockmeter comp", 1), "completions");
    assert_eq!(complete("lockmeter rules te", 2), "test");
    assert_eq!(complete("lockmeter record --spin-h", 2), "--spin-holds");
    assert_eq!(complete("lockmeter doctor --format j", 3), "json");
}

#[test]
fn fish_completes_commands_options_and_values() {
    let folder = Folder::new();
    let file = completions(&folder, "fish", "lockmeter.fish");
    let complete = |line: &str| {
        let said = said_by("fish", &format!("source $argv[1]; complete --do-complete '{line}'"), &file);
        let words: Vec<&str> = said.lines().map(|line| line.split('\t').next().unwrap_or(line)).collect();
        words.join(" ")
    };
    assert_eq!(complete("lockmeter rec"), "record");
    assert_eq!(complete("lockmeter comp"), "completions");
    assert_eq!(complete("lockmeter rules te"), "test");
    assert_eq!(complete("lockmeter record --spin-h"), "--spin-holds");
    assert_eq!(complete("lockmeter doctor --format j"), "json");
}

#[test]
fn zsh_completes_commands_options_and_values() {
    let folder = Folder::new();
    completions(&folder, "zsh", "_lockmeter");
    // A terminal of its own, in which a tab is typed; zsh then writes what it added to the line.
    let complete = |line: &str| {
        let script = format!(
            "zmodload zsh/zpty
             zpty shell 'PS1=; TERM=dumb zsh -f -i'
             zpty -w shell \"fpath=(${{1:h}} \\$fpath); autoload -Uz compinit; compinit -u -d ${{1:h}}/dump; unsetopt zle; setopt zle; \
             PS1=; bindkey '^I' complete-word; show() {{ print -r -- \\\"<\\$BUFFER>\\\"; zle kill-buffer }}; zle -N show; \
             bindkey '^X' show; print read''y\"
             until zpty -r -t shell said; [[ $said == *ready* ]]; do sleep 0.05; done
             zpty -w -n shell '{line}'$'\\t\\C-x'
             until zpty -r -t shell said; [[ $said == *'<'*'>'* ]]; do sleep 0.05; done
             print -r -- \"${{${{said##*<}}%%>*}}\"
             zpty -d shell"
        );
        said_by("zsh", &script, &folder.file("_lockmeter")).trim().to_owned()
    };
    assert_eq!(complete("lockmeter rec"), "lockmeter record");
    assert_eq!(complete("lockmeter comp"), "lockmeter completions");
    assert_eq!(complete("lockmeter rules te"), "lockmeter rules test");
    assert_eq!(complete("lockmeter record --spin-h"), "lockmeter record --spin-holds");
    assert_eq!(complete("lockmeter doctor --format j"), "lockmeter doctor --format json");
}

#[test]
fn manual_pages_are_read_without_a_warning_and_fit_a_terminal() {
    const COLUMNS: usize = 80;
    let folder = Folder::new();
    let output = run(lockmeter(["manual-pages", folder.path().to_str().unwrap()]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut pages = 0;
    for page in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let mut checked = Command::new("mandoc");
        checked.args(["-T", "lint", "-W", "warning"]).arg(&page);
        let found = text(&run(checked).stdout);
        // The date is the commit's.
        let found: Vec<&str> = found.lines().filter(|line| !line.contains("missing date")).collect();
        assert!(found.is_empty(), "{found:?}");
        let mut read = Command::new("man");
        read.args(["--warnings", "--local-file"])
            .arg(&page)
            .env("MANWIDTH", COLUMNS.to_string())
            .env("MANPAGER", "cat");
        let Output { status, stdout, stderr } = run(read);
        assert!(status.success() && stderr.is_empty(), "{}: {}", page.display(), text(&stderr));
        let stdout = text(&stdout);
        let wide: Vec<&str> = stdout.lines().filter(|line| line.chars().count() > COLUMNS).collect();
        assert!(wide.is_empty(), "{}: {wide:?}", page.display());
        pages += 1;
    }
    assert!(pages > 12, "{pages} pages");
}

#[test]
fn a_build_tells_its_commit_or_that_it_does_not_know_it() {
    let output = run(lockmeter(["--version"]));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [name, commit, features] = lines[..] else { panic!("{said}") };
    assert_eq!(name, concat!("lockmeter ", env!("CARGO_PKG_VERSION")));
    let known = option_env!("LOCKMETER_COMMIT").filter(|commit| !commit.is_empty());
    match known {
        Some(known) => assert_eq!(commit, format!("commit: {known}")),
        None => assert!(commit.starts_with("commit: unknown ("), "{said}"),
    }
    assert!(features.starts_with("features: "), "{said}");
    assert_eq!(text(&run(lockmeter(["-V"])).stdout), format!("{name}\n"));
}
