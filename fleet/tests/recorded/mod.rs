//! What `lockmeter record` really recorded.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The recorder.
pub fn lockmeter() -> PathBuf {
    built("LOCKMETER", "release/lockmeter")
}

/// What the recorder's workspace builds; a variable says where else it is.
fn built(variable: &str, otherwise: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    std::env::var_os(variable).map_or_else(|| target.join(otherwise), PathBuf::from)
}

/// A recording of waits and holds of a load that is known; `None`, after a visible line, if none can be made here.
pub fn recording() -> Option<&'static Path> {
    static RECORDING: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let made = RECORDING.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("churn.lockmeter");
        // Other tests meter the whole machine.
        let machine = File::create(std::env::temp_dir().join("lockmeter-tests.lock")).unwrap();
        machine.lock().unwrap();
        let load = built("WORKLOADS", "workloads").join("dir-churn");
        let mut command = Command::new(lockmeter());
        command
            .args(["record", "--hold", "--interval", "300ms", "-o"])
            .arg(&path)
            .arg("--")
            .arg(load)
            .args(["--seconds", "2"]);
        match command.output() {
            Ok(done) if done.status.success() => Some((folder, path)),
            other => {
                assert!(std::env::var_os("CI").is_none(), "cannot record: {other:?}");
                eprintln!("SKIPPED: {} cannot record here: {other:?}", lockmeter().display());
                None
            }
        }
    });
    made.as_ref().map(|(_, path)| path.as_path())
}
