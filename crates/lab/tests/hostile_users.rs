//! What other users put in the way of root's benches: no link is followed, and nothing of theirs is run.

#[path = "../../lockmeter/tests/support/mod.rs"]
mod support;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use support::users::{A, Arena, ROOT, own_folder};
use support::{run, text};

/// Makes sure that what benches draw and write goes through no link of another user.
#[test]
fn a_link_in_place_of_a_picture_or_a_report_leads_root_nowhere() {
    let Some(arena) = Arena::open("links in place of pictures") else { return };
    let shared = arena.folder_of(ROOT, "shared");
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    for name in ["locks.svg", "locks.csv"] {
        let link = shared.join(name);
        symlink(arena.victim(), &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(A), Some(A)).unwrap();
        let kind = if name.ends_with("svg") { "--svg" } else { "--csv" };
        let mut bench = arena.lockmeter(ROOT, &["bench", "locks", "--quick", "--no-pairs", "--no-duels"]);
        bench.args(["--locks", "Mutex", "--threads", "1", "--rounds", "2", "--slice", "1ms", kind]).arg(&link);
        let ended = run(bench);
        assert!(!ended.status.success() && text(&ended.stderr).contains("another user"), "{}", text(&ended.stderr));
        arena.assert_victim_is_unharmed();
    }
    let results = own_folder(&shared.join("results"), A);
    own_folder(&results.join("data"), A);
    let mut all = arena.lockmeter(ROOT, &["bench", "all", "--short", "--report"]);
    let ended = run({
        all.arg(&results);
        all
    });
    assert!(text(&ended.stderr).contains(&format!("user {A}")), "{}", text(&ended.stderr));
}

#[test]
fn temporary_files_of_root_are_not_kept_where_a_user_can_change_them() {
    let Some(arena) = Arena::open("TMPDIR of another user") else { return };
    let temporary = arena.folder_of(A, "tmp");
    let mut overhead = arena.lockmeter(ROOT, &["overhead", "--levels", "user", "--runs", "1", "--", "sh", "-c"]);
    overhead.arg(format!("ls -A {}", temporary.display())).env("TMPDIR", &temporary);
    let ended = run(overhead);
    assert!(!text(&ended.stdout).contains("lockmeter-") && !text(&ended.stderr).contains("lockmeter-overhead"));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "something was left in the user's folder");
}

/// Makes sure that root runs no commands that a user wrote down for it.
#[test]
fn a_kernel_that_a_user_prepared_is_not_built() {
    let Some(arena) = Arena::open("a kernel build of another user") else { return };
    let temporary = arena.folder_of(ROOT, "tmp");
    fs::set_permissions(&temporary, Permissions::from_mode(0o1777)).unwrap();
    let build = own_folder(&temporary.join("lockmeter-kernel-build"), A);
    for part in ["kernel", "mm"] {
        let folder = own_folder(&build.join(part), A);
        for number in 0..8 {
            let mut file = File::create(folder.join(format!("{number}.o.cmd"))).unwrap();
            writeln!(file, "cmd := echo > {} -c -o", arena.victim().display()).unwrap();
        }
    }
    fs::write(build.join(".lockmeter-prepared"), "").unwrap();
    let mut overhead = arena.lockmeter(ROOT, &["overhead", "--preset", "kernel-build", "--runs", "1"]);
    overhead.env("TMPDIR", &temporary);
    let ended = run(overhead);
    let said = text(&ended.stderr);
    assert!(!ended.status.success() && said.contains(&format!("belongs to user {A}")), "{said}");
    arena.assert_victim_is_unharmed();
}
