//! Commands that lockmeter-lab has now: `lockmeter` says so.

mod support;

use support::{lockmeter, run, text};

/// Exit status of a bad command line.
const USAGE: i32 = 2;

#[test]
fn a_command_that_moved_to_lockmeter_lab_is_named_in_one_sentence() {
    for (name, arguments) in [
        ("bench", &["mixed", "--users", "2"][..]),
        ("bench", &[]),
        ("compare", &["--swap", "mutex=std,mutex", "--", "true"]),
        ("overhead", &["--", "make", "-j8"]),
        ("overhead", &["--help"]),
    ] {
        let mut command = lockmeter([name]);
        command.args(arguments);
        let output = run(command);
        assert_eq!(output.status.code(), Some(USAGE), "{name} {arguments:?}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        let expected =
            format!("lockmeter: `lockmeter {name}` is now `lockmeter-lab {name}`; it takes the same arguments\n");
        assert_eq!(text(&output.stderr), expected, "{name} {arguments:?}");
    }
}
