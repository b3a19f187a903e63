//! A thread that releases a lock which it does not hold: a checked build ends the process with a sentence, another goes on, and the lock stays
//! what it was.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

const RELEASES: [(&str, &str); 4] =
    [("mutex", "mutex"), ("held-by-another", "mutex"), ("write", "semaphore"), ("read", "semaphore")];

/// What the example does in a build with these flags.
fn runs(build: &[&str], folder: &str) -> impl Fn(&str) -> Output {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(folder);
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--package", "lockmeter-locks", "--example", "not_held"])
        .args(build)
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let profile = if build.contains(&"--release") { "release" } else { "debug" };
    let program = target.join(profile).join("examples/not_held");
    // A program that hangs is ended.
    move |release| Command::new("timeout").arg("120").arg(&program).arg(release).output().expect("timeout runs")
}

#[test]
fn a_checked_build_ends_with_a_sentence() {
    let run = runs(&[], "misuse");
    for (release, lock) in RELEASES {
        let output = run(release);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The shell's way of SIGABRT, as `timeout` passes it on.
        let aborted =
            output.status.code() == Some(128 + libc::SIGABRT) || output.status.signal() == Some(libc::SIGABRT);
        assert!(aborted, "{release}: {:?} {said}", output.status);
        assert!(said.contains(&format!("a thread released a {lock} that it does not hold")), "{release}: {said}");
    }
}

#[test]
fn another_build_goes_on_and_the_lock_works() {
    let run = runs(&["--release"], "fast-path");
    for (release, _) in RELEASES {
        let output = run(release);
        assert!(output.status.success(), "{release}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}
