//! A program with names that steer terminals, spreadsheets and parsers, under `compare` and `overhead`: none of them comes out as it
//! is.

#[path = "../../lockmeter/tests/support/mod.rs"]
mod support;

use support::harmful_names::{
    COLOURS, assert_harmless, command, harmless, harmless_success, on_terminal, path, program,
};
use support::{Folder, machine, run, text};

/// Makes sure that a sentence about what the user named is one line and harmless, also where clap says it.
#[test]
fn sentences_about_arguments_are_harmless() {
    let folder = Folder::new();
    let odd = folder.file("odd\x1b[31m\nforged");
    let refused: [&[&str]; 3] = [
        &["compare", "--swap", "mutex=std,mutex", "--", "\x1b[31m\nforged"],
        &["overhead", "--each-of", &odd],
        &["overhead", "--each-of", &odd, "--limit", "1%\x1b[31m"],
    ];
    for arguments in refused {
        let output = harmless(arguments);
        assert!(!output.status.success(), "{arguments:?}");
    }
}

#[test]
fn comparisons_are_harmless() {
    let folder = Folder::new();
    let program = program(&folder);
    let compare = ["compare", "--swap", "mutex=std,mutex", "--runs", "2", "--warmup", "0"];
    for format in ["table", "json", "csv"] {
        let arguments = [&compare[..], &["--format", format, "--", path(&program), "2"]].concat();
        harmless_success(&arguments);
    }
    on_terminal(
        &folder,
        &[&compare[..], &["--", path(&program), "2"]].concat(),
        &[&COLOURS[..], &["\r\x1b[2K"]].concat(),
    );
    // What the command printed is shown when it fails.
    let fails = ["--", "sh", "-c", "printf 'a\\tb\\033[31m\\n\\302\\2331m\\n'; exit 3"];
    let output = run(command(&[&compare[..], &fails].concat()));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_harmless("a failed command", &output.stderr, &["\t"]);
    assert!(text(&output.stderr).starts_with("a\tb\\u{1b}[31m\n\\u{9b}1m\n"), "{}", text(&output.stderr));
}

/// Makes sure that the command's name is escaped in what `overhead` prints, and in the line that says how long it will take.
#[test]
fn overheads_are_harmless() {
    let Some(_machine) = machine("overheads_are_harmless") else { return };
    let folder = Folder::new();
    let program = program(&folder);
    let overhead = ["overhead", "--levels", "wait", "--runs", "2"];
    for format in ["table", "json"] {
        let said = harmless_success(&[&overhead[..], &["--format", format, "--", path(&program), "1"]].concat());
        assert!(said.contains("=\\u{1b}[31mfile\\n") || said.contains("=\\\\u{1b}[31mfile"), "{said}");
    }
    let arguments = [&overhead[..], &["--", path(&program), "1"]].concat();
    let screen = on_terminal(&folder, &arguments, &[&COLOURS[..], &["\r\x1b[2K"]].concat());
    assert!(screen.contains("left; Ctrl-C shows"), "{screen}");
}
